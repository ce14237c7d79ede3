"""Checkpoints: everything that changes during training, written so that a kill cannot harm it."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from ..runs import RunError, atomic_write

__all__ = ["TrainingState", "load_checkpoint", "save_checkpoint"]

FORMAT: Final = 1
_KEYS: Final = {"step", "seconds", "modules", "optimizer", "scaler"}


@dataclass
class TrainingState:
    """What a step changes: modules (parameters and buffers), optimiser, loss scaler, step count.

    Batch order, augmentation and dropout are functions of (seed, step), and so is the learning
    rate: they have no state, and resuming replays nothing.

    Attributes:
        modules: Named modules: encoder, head, loss (a learned temperature lives there), bank.
        optimizer: The optimiser over their parameters.
        scaler: Loss scaler for 16-bit floats; does nothing when disabled.
        step: Number of finished steps.
        seconds: Time the steps took, over all sittings.
    """

    modules: Mapping[str, nn.Module]
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    step: int = 0
    seconds: float = 0.0

    def parameters(self) -> list[nn.Parameter]:
        """All parameters that are trained."""
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def state_dict(self) -> dict[str, Any]:
        """The state as plain containers and tensors."""
        return {
            "format": FORMAT,
            "step": self.step,
            "seconds": self.seconds,
            "modules": {name: module.state_dict() for name, module in self.modules.items()},
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state written by :meth:`state_dict`.

        Raises:
            RunError: If the modules are not the same ones, or of other sizes.
        """
        if set(state["modules"]) != set(self.modules):
            raise RunError(
                f"the checkpoint holds the modules {sorted(state['modules'])}, this run has "
                f"{sorted(self.modules)}"
            )
        try:
            for name, module in self.modules.items():
                module.load_state_dict(state["modules"][name])
            self.optimizer.load_state_dict(state["optimizer"])
            self.scaler.load_state_dict(state["scaler"])
        except (RuntimeError, ValueError, KeyError) as error:
            raise RunError(
                "the checkpoint does not fit this run's settings: one of the two was changed or "
                f"comes from another run ({' '.join(str(error).split())})"
            ) from error
        self.step, self.seconds = int(state["step"]), float(state["seconds"])


def save_checkpoint(path: Path, state: TrainingState) -> None:
    """Writes the state atomically; a state that is not finite is refused, so the last good stays.

    Raises:
        FloatingPointError: If a parameter or buffer is NaN or infinite; the message names it.
    """
    for name, tensor in _tensors(state):
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise FloatingPointError(f"{name} is not finite at step {state.step}")
    buffer = io.BytesIO()
    torch.save(state.state_dict(), buffer)
    atomic_write(path, buffer.getvalue())


def _tensors(state: TrainingState) -> Iterator[tuple[str, Tensor]]:
    for name, module in state.modules.items():
        for key, tensor in module.state_dict().items():
            yield f"{name}.{key}", tensor


def load_checkpoint(path: Path, *, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Reads a checkpoint without running any code from it.

    Raises:
        RunError: If the file is missing, damaged or of another format.
    """
    if not path.is_file():
        raise RunError(f"there is no checkpoint {path}")
    try:
        state = torch.load(path, map_location=device, weights_only=True)
    except (PermissionError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # zip, pickle and torch's own errors alike mean "not such a file"
        # Their first sentence only; of a refusal not even that: it advises to run the file's code.
        cause = str(error).partition(". ")[0] or type(error).__name__
        if isinstance(error, pickle.UnpicklingError):
            cause = "torch's reader of plain tensors refuses it"
        raise RunError(
            f"{path} is damaged or is no checkpoint; put back a copy of it, or delete it and train "
            f"from the start with --resume ({cause})"
        ) from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise RunError(f"{path} is not a checkpoint of format {FORMAT}")
    if missing := _KEYS - state.keys():
        raise RunError(f"{path} is damaged: it lacks {', '.join(sorted(missing))}")
    return state
