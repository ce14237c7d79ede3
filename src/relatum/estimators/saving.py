"""An encoder as one file of plain values and tensors."""

from __future__ import annotations

import io
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from ..objectives import OBJECTIVES
from ..runs import atomic_write

__all__ = ["load", "save"]

FORMAT: Final = 1
_FITTED: Final = ("n_features_in_", "n_targets_", "feature_names_in_", "scaling_x_", "scaling_y_")


def save(model: Any, path: Path) -> None:
    """Writes the settings, what was fitted, and the networks' tensors."""
    plain, given = {}, []
    for name, value in model.get_params(deep=False).items():
        if _is_plain(value):
            plain[name] = value
        elif name == "objective" and (known := _objective(value)):
            plain[name] = known
        else:
            given.append(name)
    fitted = {name: getattr(model, name) for name in _FITTED if hasattr(model, name)}
    state = {
        "format": FORMAT,
        "class": type(model).__name__,
        "settings": plain,
        "given": given,
        "fitted": {
            name: value if _is_plain(value) else value.tolist() for name, value in fitted.items()
        },
        "history": tuple(model.history_),
        "networks": model.networks_.state_dict(),
    }
    buffer = io.BytesIO()
    torch.save(state, buffer)
    atomic_write(path, buffer.getvalue())


def load(cls: type, path: Path, given: dict[str, Any]) -> Any:
    """The encoder of a file."""
    import numpy as np

    from .fitting import History

    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # zip, pickle and torch's own errors alike mean "not such a file"
        raise ValueError(f"{path} is damaged or no saved encoder") from error
    if not isinstance(state, dict) or state.get("class") != cls.__name__:
        raise ValueError(f"{path} holds no {cls.__name__}")
    if state["format"] != FORMAT:
        raise ValueError(f"{path} has format {state['format']}, this version reads {FORMAT}")
    if missing := set(state["given"]) - set(given):
        raise ValueError(
            f"{path} cannot hold {', '.join(sorted(missing))}: pass the same as load(path, "
            f"{sorted(missing)[0]}=...)"
        )
    settings = dict(state["settings"])
    if isinstance(known := settings.get("objective"), dict):
        settings["objective"] = OBJECTIVES[known.pop("name")](**known)
    model = cls(**{**settings, **given})
    for name, value in state["fitted"].items():
        setattr(model, name, np.array(value) if isinstance(value, list) else value)
    if "feature_names_in_" in state["fitted"]:
        model.feature_names_in_ = model.feature_names_in_.astype(object)
    model.history_ = History(*state["history"])
    model._build()
    model.networks_.load_state_dict(state["networks"])
    return model


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def _objective(value: Any) -> dict[str, Any] | None:
    """The name and the fields of one of the library's objectives."""
    if isinstance(value, nn.Module) or not is_dataclass(value):
        return None
    for name, make in OBJECTIVES.items():
        if type(value) is make:  # type: ignore[comparison-overlap]
            return {"name": name, **{f.name: getattr(value, f.name) for f in fields(value)}}
    return None
