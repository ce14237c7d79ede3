"""Where a training run's numbers go: metrics.jsonl, TensorBoard, and the person who watches."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, final

from ..runs import Run

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

__all__ = ["Monitor"]


@final
class Monitor:
    """Writes every record to the run; shows a bar on a terminal, a few lines elsewhere.

    Use as a context manager around the training.

    Args:
        run: Its ``metrics.jsonl`` gets one line a record, ``tensorboard/`` an event file.
        total: Number of steps.
        done: Steps already finished (a resumed run).
        steps_per_epoch: Where there is no terminal, the first and the last record are printed, and
            one after each epoch between them; at most about twenty, and six of a short training.
        tensorboard: Whether to write the event file; needs the tensorboard package.
        console: Where to show progress; None shows nothing.
    """

    def __init__(
        self,
        run: Run,
        total: int,
        *,
        done: int = 0,
        steps_per_epoch: int = 1,
        tensorboard: bool = False,
        console: Console | None = None,
    ) -> None:
        self.run = run
        self.console = console
        self._total = total
        self._every = min(max(steps_per_epoch, total // 20), max(1, total // 6))
        self._window = [0.0, 0]
        self._printed = -1
        self._bar = _progress_bar(console) if console is not None and console.is_terminal else None
        if self._bar is not None:
            self._task = self._bar.add_task(run.name, total=total, completed=done, readings="")
        self._events = _event_writer(run, done) if tensorboard else None

    def __enter__(self) -> Monitor:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._events is not None:
            self._events.close()

    def advance(self, seconds: float, pairs: int) -> None:
        """One step is done: it took so long, for so many pairs."""
        self._window[0] += seconds
        self._window[1] += pairs
        if self._bar is not None:
            self._bar.advance(self._task)

    def log(self, record: Mapping[str, Any]) -> None:
        """Stores a record of readings (None where there is no reading) and shows it.

        Pairs per second, averaged since the last record, are added.
        """
        seconds, pairs = self._window
        self._window = [0.0, 0]
        record = {**record, "pairs_per_second": pairs / seconds if seconds > 0 else None}
        self.run.log(record)
        if self._events is not None:
            for name, value in record.items():
                if value is not None and name != "step":
                    self._events.add_scalar(name, value, record["step"])
        if self._bar is not None:
            self._bar.update(self._task, readings=_line(record))
        elif self.console is not None:
            step = record["step"]
            if step // self._every > self._printed or step == self._total:
                self._printed = step // self._every
                text = f"{self.run.name} step {step}/{self._total} epoch {record['epoch']:.1f}"
                # As it is: no wrapping, and brackets in a name are no markup.
                self.console.out(f"{text}  {_line(record)}", highlight=False)


def _line(record: Mapping[str, Any]) -> str:
    """The readings a person wants, in a fixed order; what an objective has not is left out."""
    shown = [
        ("loss", "loss", ".3f"),
        ("MI", "mi", ".2f"),
        ("log K", "mi_ceiling", ".2f"),
        ("accuracy", "contrastive_accuracy", ".0%"),
        ("rank", "effective_rank", ".1f"),
        ("pairs/s", "pairs_per_second", ".0f"),
    ]
    return "  ".join(
        f"{label} {format(record[key], form)}"
        for label, key, form in shown
        if record.get(key) is not None
    )


def _progress_bar(console: Console | None) -> Progress:
    # Imported here: rich is an optional extra, which plans and optimisers do not need.
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column

    # Where the terminal is narrow, the readings are cut off and nothing else.
    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    return Progress(
        TextColumn("{task.description}", markup=False),
        TimeRemainingColumn(),
        MofNCompleteColumn(),
        BarColumn(bar_width=10),
        TextColumn("{task.fields[readings]}", markup=False, table_column=rest),
        console=console,
        expand=True,
    )


def _event_writer(run: Run, done: int) -> Any:
    # Imported here: TensorBoard is an optional extra and slow to load.
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError(
            "tensorboard is not installed; install relatum[cli] or use --no-tensorboard"
        ) from None
    # purge_step hides what a killed run logged after its last checkpoint.
    return SummaryWriter(log_dir=str(run.path / "tensorboard"), purge_step=done or None)
