"""Starting a training run, or continuing one whose settings must be the same."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import yaml

from ..runs import Run, RunError, atomic_write, strict_json
from ..settings import to_yaml

__all__ = ["forget_later_lines", "open_run"]


def open_run(settings: Any, read: Callable[[Run], Any], free: Collection[str], command: str) -> Run:
    """A new run in ``settings.out``; with ``settings.resume`` the one that is there.

    Args:
        settings: Resolved.
        read: The settings of a run.
        free: Names of settings that may differ, as they do not change what is computed.
        command: What started the run.

    Raises:
        RunError: If the folder already holds a run (without ``resume``), or another one (with it).
    """
    if not settings.resume:
        return Run.create(settings.out, to_yaml(settings))
    run = Run.open(settings.out)
    # An older run lacks the newer settings: it was made with what is now their default.
    before = yaml.safe_load(to_yaml(read(run)))
    now = yaml.safe_load(to_yaml(settings))
    changed = [
        f"{key}: {before.get(key)} -> {now.get(key)}"
        for key in sorted(before.keys() | now.keys())
        if key not in free and before.get(key) != now.get(key)
    ]
    if changed:
        raise RunError(
            f"{run.path} was started with other settings ({'; '.join(changed)}); continue it with "
            f"its own: {command} --config {run.path / 'config.yaml'} --resume"
        )
    return run


def forget_later_lines(run: Run, step: int) -> None:
    """Drops metrics logged after the checkpoint, and a line that a kill cut short."""
    lines = [strict_json(line) + "\n" for line in run.metrics() if line["step"] <= step]
    atomic_write(run.path / "metrics.jsonl", "".join(lines).encode())
