"""Processes of one thread each, and the bar that counts what they finish."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from threadpoolctl import threadpool_limits

__all__ = ["counting_bar", "single_threaded"]


def single_threaded(jobs: int) -> ProcessPoolExecutor:
    """Processes of one thread each; started afresh, since a fork of torch's threads can hang."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, mp_context=context, initializer=_one_thread)


def _one_thread() -> None:
    torch.set_num_threads(1)
    threadpool_limits(1)


def counting_bar(console: Console, **options: Any) -> Progress:
    """How many of how many, and the time left; `options` are those of rich's Progress."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, **options)
