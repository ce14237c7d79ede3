"""Runs a function on several gloo processes and brings back what each returns."""

import contextlib
import os
import tempfile
import traceback
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


class _Failure(NamedTuple):
    trace: str


def run(function, size, *arguments):
    """[function(rank, size, *arguments) of each process]; an error in one is raised here."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_process, (size, folder, function, arguments), nprocs=size)
        outcomes = [
            torch.load(Path(folder) / f"{rank}.pt", weights_only=False) for rank in range(size)
        ]
    for outcome in outcomes:
        if isinstance(outcome, _Failure):
            raise AssertionError(outcome.trace)
    return outcomes


def _process(rank, size, folder, function, arguments):
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size)
    try:
        outcome = function(rank, size, *arguments)
    except Exception:
        outcome = _Failure(traceback.format_exc())
    torch.save(outcome, Path(folder) / f"{rank}.pt")
    if not isinstance(outcome, _Failure):
        with contextlib.suppress(RuntimeError):  # another process failed, and says so itself
            dist.barrier()
    # Everything is saved: gloo's threads now and then abort while an interpreter winds down.
    os._exit(0)
