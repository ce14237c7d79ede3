"""Which command started a run, told by a setting that only this kind of run has."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..runs import Run, RunError

__all__ = ["check_kind", "kind_of"]


class _Kind(NamedTuple):
    setting: str
    taken: str


_KINDS: Final = {
    "train images": _Kind("pairing", "use `relatum probe {0}` or `relatum embed {0}`"),
    "train speech": _Kind(
        "look_ahead", "use `relatum probe speech {0}` or `relatum embed speech {0}`"
    ),
    "train classes": _Kind("triplets", "its measures are told by `relatum report {0}`"),
}


def kind_of(run: Run) -> str | None:
    """The command that starts such runs, as "train images"; None where nothing tells."""
    settings = {line.split(":")[0] for line in run.config_text.splitlines()}
    return next((name for name, kind in _KINDS.items() if kind.setting in settings), None)


def check_kind(run: Run, wanted: str) -> None:
    """Refuses a run of another kind.

    Raises:
        RunError: If another command started it; the message says what to do with such a run.
    """
    found = kind_of(run)
    if found not in (None, wanted):
        raise RunError(
            f"{run.path} is a run of `relatum {found}`, and this needs one of `relatum {wanted}`: "
            + _KINDS[found].taken.format(run.path)
        )
