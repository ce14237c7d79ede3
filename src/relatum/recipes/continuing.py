"""Starting a training run on one process or several, or continuing it with the same settings."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import yaml

from ..distributed import Group
from ..runs import Run, RunError, atomic_write, strict_json
from ..settings import to_yaml
from ..training import Place, TrainingState, join_processes, load_checkpoint

__all__ = [
    "Trainer",
    "exchange",
    "forget_later_lines",
    "meet",
    "open_run",
    "own_share",
    "take_over",
]


class Trainer(NamedTuple):
    """What a training command is, where runs are opened.

    Attributes:
        command: What starts a run.
        free: Names of settings that may differ when a run is continued, as they do not change what
            is computed.
        read: The settings of a run.
        card: What is written of the data, enough to notice that they have changed; None where the
            settings say it all.
        check: Refuses data that are not those the run was started on.
    """

    command: str
    free: Collection[str]
    read: Callable[[Run], Any]
    card: Callable[[Any], dict[str, Any]] | None = None
    check: Callable[[Run, Any], None] | None = None


def open_run(settings: Any, trainer: Trainer, data: Any = None) -> Run:
    """A new run in ``settings.out``; with ``settings.resume`` the one that is there.

    Args:
        settings: Resolved.
        trainer: The command.
        data: What is trained on.

    Raises:
        RunError: If the folder already holds a run (without ``resume``), or another one (with it).
    """
    if settings.resume:
        run = Run.open(settings.out)
        _check_same_settings(run, settings, trainer)
    else:
        run = Run.create(settings.out, to_yaml(settings))
    if trainer.card and not (run.path / "data.json").exists():  # new, or killed before it was
        run.write_json("data.json", trainer.card(data))
    if trainer.check:
        trainer.check(run, data)
    return run


def _check_same_settings(run: Run, settings: Any, trainer: Trainer) -> None:
    # An older run lacks the newer settings: it was made with what is now their default.
    before = yaml.safe_load(to_yaml(trainer.read(run)))
    now = yaml.safe_load(to_yaml(settings))
    changed = [
        f"{key}: {before.get(key)} -> {now.get(key)}"
        for key in sorted(before.keys() | now.keys())
        if key not in trainer.free and before.get(key) != now.get(key)
    ]
    if changed:
        raise RunError(
            f"{run.path} was started with other settings ({'; '.join(changed)}); continue it with "
            f"its own: {trainer.command} --config {run.path / 'config.yaml'} --resume"
        )


def meet(device: str, batch_size: int, what: str) -> Place:
    """Joins the processes that share a batch.

    Args:
        device: Decided.
        batch_size: Of all processes together.
        what: A batch is of: pairs, windows.

    Raises:
        ValueError: If they cannot meet, or there are more of them than the batch has members.
    """
    place = join_processes(device)
    if batch_size < place.group.size:
        raise ValueError(
            f"batch_size {batch_size} is the batch of all processes together: it has fewer {what} "
            f"than there are processes ({place.group.size})"
        )
    return place


def take_over(run: Run, state: TrainingState, place: Place) -> None:
    """Takes over the last checkpoint, if there is one.

    Raises:
        RunError: If the processes found different ones.
    """
    if run.checkpoint.exists():
        state.load_state_dict(load_checkpoint(run.checkpoint, device=place.device))
        if place.group.rank == 0:
            forget_later_lines(run, state.step)
    if len(found := set(place.group.rows(state.step))) > 1:
        raise RunError(
            f"the processes found checkpoints of different steps {sorted(found)} in {run.path}: "
            "all of them must see one folder"
        )


def own_share(rows: int, group: Group) -> slice:
    """The rows of a batch that belong to this process: consecutive, as even as can be."""
    return slice(rows * group.rank // group.size, rows * (group.rank + 1) // group.size)


def exchange(group: Group, steps: int) -> dict[str, Any]:
    """How many processes took part, and the bytes that each handed to collectives in a step."""
    sent = {kind: count // max(1, steps) for kind, count in group.sent.items()}
    return {"processes": group.size, "bytes_sent_per_step": sent}


def forget_later_lines(run: Run, step: int) -> None:
    """Drops metrics logged after the checkpoint, and a line that a kill cut short."""
    lines = [strict_json(line) + "\n" for line in run.metrics() if line["step"] <= step]
    atomic_write(run.path / "metrics.jsonl", "".join(lines).encode())
