"""What the benchmarks share: interleaved timing, peak memory, words about machine and versions."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from relatum.runs import environment

GIB = 1 << 30


@dataclass(frozen=True)
class Plan:
    """How often one contestant is measured.

    Attributes:
        rounds: Samples; a sample is the mean time of some calls in a row.
        calls: Calls in a sample, so that no sample is shorter than the clock's grain and noise.
    """

    rounds: int
    calls: int

    @classmethod
    def of(cls, seconds: float, budget: float = 3.0) -> Plan:
        """At least 5 rounds (3 where a call takes over 5 s), and up to 21 within the budget."""
        calls = max(1, round(0.05 / seconds))
        least = 3 if seconds > 5 else 5
        return cls(min(21, max(least, int(budget / (seconds * calls)))), calls)


def interleaved(
    calls: Mapping[str, Callable[[], object]],
    plans: Mapping[str, Plan],
    done: Callable[[float], None],
) -> dict[str, list[float]]:
    """Seconds a call, a sample for each round; all contestants take turns.

    Slow and fast contestants meet: one with fewer rounds sits out evenly spaced ones, so that a
    drift of the machine falls on all of them alike.

    Args:
        calls: What is timed, by name.
        plans: How often.
        done: Told the seconds that each sample took.
    """
    samples: dict[str, list[float]] = {name: [] for name in calls}
    rounds = max(plan.rounds for plan in plans.values())
    for number in range(rounds):
        for name, call in calls.items():
            plan = plans[name]
            if (number + 1) * plan.rounds // rounds == number * plan.rounds // rounds:
                continue
            began = time.perf_counter()
            for _ in range(plan.calls):
                call()
            took = time.perf_counter() - began
            samples[name].append(took / plan.calls)
            done(took)
    return samples


def quartiles(samples: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, middle, high


def memory_of_process(field: str) -> int:
    """``VmRSS`` (held now), ``VmHWM`` (peak since the last reset) or ``VmSize``, in bytes.

    The peak of ``getrusage`` would not do: it remembers the parent's size from before the exec.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) << 10
    raise OSError(f"/proc/self/status does not know {field}: memory is measured on Linux only")


def reset_peak(device: str) -> None:
    """From here on the peak is counted anew."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    else:
        # What was freed goes back first: reused unseen, it would look like no memory at all.
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: str) -> int:
    """Bytes at the highest since :func:`reset_peak`."""
    return torch.cuda.max_memory_allocated() if device == "cuda" else memory_of_process("VmHWM")


def held_memory(device: str) -> int:
    """Bytes held now."""
    return torch.cuda.memory_allocated() if device == "cuda" else memory_of_process("VmRSS")


def limit_memory(allowed: int) -> None:
    """Lets this process allocate so many bytes more; beyond, allocations fail instead of killing.

    Args:
        allowed: Bytes on top of what the process has mapped already.
    """
    most = memory_of_process("VmSize") + allowed
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def free_memory() -> int:
    """Bytes that the machine can still give."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    raise OSError("/proc/meminfo does not know MemAvailable: memory is measured on Linux only")


def warn_if_busy(console: Console) -> float:
    """The load average; a word on the terminal if other work would disturb the timing."""
    load = os.getloadavg()[0]
    if load > 0.5:
        console.print(
            f"[bold]The machine is busy[/bold] (load average {load:.1f}): times of work on several "
            "threads suffer most, so ratios are not to be trusted either. Nothing is refused."
        )
    return load


def machine(packages: Sequence[str]) -> dict[str, Any]:
    """:func:`relatum.runs.environment` with the processor's name and more versions."""
    found = environment()
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    versions = {name: importlib.metadata.version(name) for name in packages}
    versions = {"torch": found["versions"]["torch"], **versions}
    return {**found, "processor": names[0] if names else "unnamed", "versions": versions}


def machine_words(found: Mapping[str, Any], load: float | None = None) -> str:
    """One line for the page; without the load where nothing is timed."""
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    where = f"{found['platform']}, {found['processors']} processors ({found['processor']})"
    if found["accelerator"] != "none":
        where += f", {found['accelerator']}"
    busy = "" if load is None else f"; load average {load:.1f} before the start"
    return (
        f"Machine: {where}; {found['threads']} threads for everybody{busy}. "
        f"Python {found['python']}, {versions}. {found['created'][:10]}."
    )


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> list[str]:
    """A table; the first `words` columns are text, the others numbers."""
    align = [" --- |" if at < words else " ---: |" for at in range(len(head))]
    return [
        "| " + " | ".join(head) + " |",
        "|" + "".join(align),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
