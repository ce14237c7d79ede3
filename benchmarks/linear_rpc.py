"""LinearRPC on more rows than memory holds, and its speed beside scikit-learn's CCA.

    python benchmarks/linear_rpc.py            # ten million rows and four sizes: minutes
    python benchmarks/linear_rpc.py --quick    # small; writes no page

Set OMP_NUM_THREADS before the start to say how many threads linear algebra may use. Writes
``docs/results/linear_rpc_cpu.md``.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from measure import (
    Plan,
    held_memory,
    interleaved,
    machine,
    machine_words,
    markdown,
    peak_memory,
    quartiles,
    reset_peak,
    warn_if_busy,
)
from rich.console import Console
from sklearn.cross_decomposition import CCA
from sklearn.exceptions import ConvergenceWarning

from relatum import LinearRPC

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "linear_rpc_cpu.md"
MIB = 1 << 20
PART = 100_000  # rows that arrive at a time
SIDE = 64
CELLS = [(2_000, 20, 10), (2_000, 64, 16), (10_000, 64, 16), (4_000, 200, 32)]
QUICK = [(500, 8, 3)]


class Streamed(NamedTuple):
    """What streaming cost and found."""

    rows: int
    seconds: float
    held: int
    peak: int
    error: float


class Cell(NamedTuple):
    """Both on the same rows: seconds, and the sum of held-out correlations."""

    rows: int
    columns: int
    rank: int
    ours: list[float]
    theirs: list[float]
    found: tuple[float, float]


def main() -> None:
    """Measures, and writes the page."""
    given = arguments()
    console = Console()
    load = warn_if_busy(console)
    streamed = stream(given.rows if not given.quick else 3 * PART)
    console.print(
        f"{streamed.rows:,} rows in {streamed.seconds:.1f} s: "
        f"{streamed.rows / streamed.seconds:,.0f} rows/s, "
        f"{(streamed.peak - streamed.held) / MIB:.0f} MiB more at the peak"
    )
    cells = []
    for shape in QUICK if given.quick else CELLS:
        cells.append(cell(*shape))
        console.print(f"{shape}: {middle(cells[-1].theirs) / middle(cells[-1].ours):.0f} times")
    if given.quick or given.rows < 10_000_000:
        console.print("a small run: no page is written")
        return
    PAGE.write_text(page(streamed, cells, load), encoding="utf-8")
    console.print(f"wrote docs/results/{PAGE.name}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000, help="fewer writes no page")
    parser.add_argument("--quick", action="store_true", help="seconds; writes no page")
    return parser.parse_args()


def related(
    rng: np.random.Generator, rows: int, columns: int, correlations: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian sides with these canonical correlations, mixed by a fixed rotation each, float32."""
    x = rng.standard_normal((rows, columns), dtype=np.float32)
    y = rng.standard_normal((rows, columns), dtype=np.float32)
    y *= np.sqrt(1 - correlations**2, dtype=np.float32)
    y += x * correlations.astype(np.float32)
    mixing = np.random.default_rng(99)
    turn_x, turn_y = (np.linalg.qr(mixing.normal(size=(columns, columns))).Q for _ in "xy")
    return x @ turn_x.astype(np.float32), y @ turn_y.astype(np.float32) + np.float32(3)


def parts(rows: int, correlations: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The rows a part at a time, as a file reader would hand them over."""
    rng = np.random.default_rng(0)
    for start in range(0, rows, PART):
        yield related(rng, min(PART, rows - start), SIDE, correlations)


def stream(rows: int) -> Streamed:
    """`partial_fit` over all parts; the making of the parts is not counted."""
    correlations = np.linspace(0.9, 0, SIDE)
    LinearRPC().partial_fit(*related(np.random.default_rng(1), PART, SIDE, correlations))
    reset_peak("cpu")
    held, seconds, model = held_memory("cpu"), 0.0, LinearRPC()
    for x, y in parts(rows, correlations):
        began = time.perf_counter()
        model.partial_fit(x, y)
        seconds += time.perf_counter() - began
    error = float(np.abs(model.correlations_ - correlations).max())
    return Streamed(rows, seconds, held, peak_memory("cpu"), error)


def cell(rows: int, columns: int, rank: int) -> Cell:
    """LinearRPC and CCA of the same rank on the same rows, taking turns."""
    rng = np.random.default_rng(0)
    correlations = np.where(np.arange(columns) < rank, np.linspace(0.9, 0.3, columns), 0)
    x, y = (side.astype(np.float64) for side in related(rng, 2 * rows, columns, correlations))
    ours, theirs = LinearRPC(rank=rank), CCA(n_components=rank, max_iter=5000)
    calls = {
        "ours": lambda: ours.fit(x[:rows], y[:rows]),
        "theirs": lambda: theirs.fit(x[:rows], y[:rows]),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        plans = {}
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            plans[name] = Plan.of(time.perf_counter() - began)
        samples = interleaved(calls, plans, lambda _: None)
    new = x[rows:], y[rows:]
    images = (ours.transform(new[0]), ours.transform(new[1], "y")), theirs.transform(*new)
    found = [sum(np.corrcoef(u, v)[0, 1] for u, v in zip(a.T, b.T, strict=True)) for a, b in images]
    return Cell(rows, columns, rank, samples["ours"], samples["theirs"], (found[0], found[1]))


def middle(samples: list[float]) -> float:
    return quartiles(samples)[1]


def page(streamed: Streamed, cells: list[Cell], load: float) -> str:
    rows = [
        [
            f"{c.rows:,}",
            f"{c.columns} + {c.columns}",
            str(c.rank),
            f"{1000 * middle(c.ours):.1f}",
            f"{1000 * middle(c.theirs):,.0f}",
            f"{middle(c.theirs) / middle(c.ours):,.0f}",
            f"{c.found[0]:.3f}",
            f"{c.found[1]:.3f}",
        ]
        for c in cells
    ]
    head = [
        "rows", "columns", "rank", "LinearRPC, ms", "CCA, ms", "times as fast",
        "correlation held out, LinearRPC", "CCA",
    ]  # fmt: skip
    return "\n".join(
        [
            "# LinearRPC: streaming, and speed beside scikit-learn's CCA",
            "",
            "Generated by `python benchmarks/linear_rpc.py`. "
            + machine_words(machine(("numpy", "scipy", "scikit-learn")), load)
            + f" OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'not set')}.",
            "",
            "## Streaming",
            "",
            f"{streamed.rows:,} rows of {SIDE} + {SIDE} float32 columns through "
            f"`LinearRPC().partial_fit` in parts of {PART:,} (the solution after each part "
            "included, the making of the parts not):",
            "",
            f"* {streamed.seconds:.1f} s, **{streamed.rows / streamed.seconds:,.0f} rows/s**;",
            f"* {(streamed.peak - streamed.held) / MIB:.0f} MiB more at the peak than before the "
            f"start, parts included (one part is {2 * PART * SIDE * 4 / MIB:.0f} MiB, all rows "
            f"would be {2 * streamed.rows * SIDE * 4 / 1e9:.1f} GB);",
            f"* largest error of a canonical correlation: {streamed.error:.1e} "
            f"(1/√rows is {streamed.rows**-0.5:.1e}).",
            "",
            "## Speed",
            "",
            "Fits of the same rows at the same rank, taking turns; medians. Held out: the sum of "
            "the correlations of paired components on as many new rows. CCA iterates to its "
            "default tolerance, LinearRPC is exact.",
            "",
            *markdown(head, rows, 0),
            "",
        ]
    )


if __name__ == "__main__":
    main()
