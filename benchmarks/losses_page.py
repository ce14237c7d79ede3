"""The page of ``losses.py``: tables, targets and their verdicts, all from the measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from contestants import BY_NAME, DIM, LINEAR, ONE_WAY, SYMMETRIC, TWO_VIEW, Check, Formula
from measure import machine_words, markdown, quartiles

MIB = 1 << 20
GOAL = 4096
LONG = (16_384, 65_536, 262_144, 1_048_576)


@dataclass
class Cell:
    """One contestant at one size; what could not be measured is None, with the reason.

    Attributes:
        call_seconds: A call in the fresh process: what plans are made from.
        added_bytes: Peak minus what was held with the inputs made.
        whole_bytes: Peak minus what was held before: with the inputs and their gradients.
        seconds: Samples, each a mean of `calls` calls.
    """

    name: str
    pairs: int
    refused: str | None = None
    call_seconds: float | None = None
    added_bytes: int | None = None
    whole_bytes: int | None = None
    value: float | None = None
    gradient_norm: float | None = None
    strategy: str = ""
    seconds: list[float] = field(default_factory=list)
    calls: int = 0

    @property
    def median(self) -> float:
        """Median seconds a call."""
        return median(self.seconds)

    @property
    def formula(self) -> Formula:
        """What it computes."""
        return BY_NAME[self.name].formula

    @property
    def matrices(self) -> float:
        """The whole peak in units of both embedding matrices."""
        assert self.whole_bytes is not None
        return self.whole_bytes / (2 * self.pairs * DIM * 4)


@dataclass(frozen=True)
class Target:
    """What was aimed at and what was found; `met` is None where it was not measured."""

    text: str
    bound: str
    found: str
    met: bool | None


def targets(cells: Sequence[Cell], checks: Mapping[str, Check]) -> list[Target]:
    """The verdicts, at 4,096 pairs and for RPC from 16,384 on."""
    at = {(c.name, c.pairs): c for c in cells if c.seconds}
    names = {formula: f"relatum {formula}" for formula in (TWO_VIEW, SYMMETRIC)}

    def mine(formula: Formula) -> Cell:
        return at[names[formula], GOAL]

    def peer(formula: Formula) -> Cell:
        found = [c for c in at.values() if c.formula == formula and c.pairs == GOAL
                 and BY_NAME[c.name].kind == "peer" and checks[c.name].correct]  # fmt: skip
        if not found:
            raise LookupError
        return min(found, key=lambda cell: cell.median)

    def rpc() -> Cell:
        two = [at[name, GOAL] for name in LINEAR if BY_NAME[name].formula.pairing == "two_view"]
        return max(two, key=lambda cell: cell.median)

    two = "two-view NT-Xent"
    return [
        aim(f"{two}: faster than the fastest correct two-view peer", "at least", 6,
            lambda: times(peer(TWO_VIEW), mine(TWO_VIEW))),
        aim(f"{two}: less added memory than that peer", "at least", 30,
            lambda: sizes(peer(TWO_VIEW), mine(TWO_VIEW))),
        aim(f"{two}: time over that of two bare products in tiles", "at most", 1.6,
            lambda: times(mine(TWO_VIEW), at["two bare tiled products", GOAL])),
        aim("symmetric in-batch: faster than open_clip's loss", "at least", 2,
            lambda: times(peer(SYMMETRIC), mine(SYMMETRIC))),
        aim("RPC, the slower of the two-view rows: faster than the fastest correct two-view peer's "
            "NT-Xent", "at least", 120, lambda: times(peer(TWO_VIEW), rpc())),
        aim("RPC, worst row: time a pair from 16,384 to 1,048,576 pairs, largest over smallest",
            "at most", 1.25, lambda: worst(at, flatness)),
        aim("RPC, worst row and size of these: peak with inputs and gradients, in units of both "
            "embedding matrices", "at most", 5,
            lambda: worst(at, lambda row: max(cell.matrices for cell in row))),
    ]  # fmt: skip


def aim(text: str, sign: str, bound: float, measure: Callable[[], tuple[float, str]]) -> Target:
    try:
        value, words = measure()
    except LookupError:
        return Target(text, f"{sign} {bound:g}", "not measured", None)
    met = value >= bound if sign == "at least" else value <= bound
    return Target(text, f"{sign} {bound:g}", f"{value:.3g} ({words})", met)


def times(slow: Cell, fast: Cell) -> tuple[float, str]:
    words = f"{1e3 * slow.median:,.1f} ms / {1e3 * fast.median:,.1f} ms"
    return slow.median / fast.median, words


def sizes(large: Cell, small: Cell) -> tuple[float, str]:
    assert large.added_bytes is not None and small.added_bytes is not None
    words = f"{large.added_bytes / MIB:,.0f} MiB / {small.added_bytes / MIB:,.0f} MiB"
    return large.added_bytes / small.added_bytes, words


def worst(
    at: Mapping[tuple[str, int], Cell], measure: Callable[[list[Cell]], float]
) -> tuple[float, str]:
    """The largest over the RPC rows, each from 16,384 pairs to a million."""
    rows = [[at[name, pairs] for pairs in LONG] for name in LINEAR]
    row = max(rows, key=measure)
    return measure(row), row[0].name.removeprefix("relatum ")


def flatness(row: Sequence[Cell]) -> float:
    """Time a pair at its largest over its smallest."""
    each = [cell.median / cell.pairs for cell in row]
    return max(each) / min(each)


def page(
    cells: Sequence[Cell],
    checks: Mapping[str, Check],
    machine: Mapping[str, Any],
    load: float,
    device: str,
) -> str:
    """The results page."""
    lines = [
        "# The losses: time and memory",
        "",
        f"Generated by `python benchmarks/{machine['command']}`. {machine_words(machine, load)}",
        "",
        HOW.format(dim=DIM),
        "",
        *([machine["note"], ""] if "note" in machine else []),
    ]
    if device == "cpu":
        lines += ["## Targets", "", "At 4,096 pairs; they were set for two processors:", ""]
        lines += [*target_table(targets(cells, checks)), ""]
    for pairs in sorted({cell.pairs for cell in cells}):
        same = [cell for cell in cells if cell.pairs == pairs]
        if not {cell.name for cell in same} <= set(LINEAR):
            lines += [f"## {pairs:,} pairs", "", *size_table(same, checks), "", agreement(same), ""]
    lines += ["## RPC up to a million pairs", "", *scaling(cells), ""]
    lines += ["## What the others compute", "", PEERS, "", *check_table(checks), ""]
    return "\n".join(lines)


HOW = """Embeddings of {dim} dimensions in float32, the same for all; forward, and backward to
the gradients of both inputs. **Time**: after a warm-up (calls over 5 s have none), all
contestants of a size take turns; median of at least 5 samples (3 where a call takes over 5 s),
a sample being the mean of as many calls as take about 50 ms; in brackets the quartiles. **Added
memory**: what one call in a fresh process holds at its peak beyond the inputs and what
libraries had taken after a call with 16 pairs. Gradients are included, and so are buffers that
a library makes only for larger calls, a few MiB for everybody. A contestant may take 20 GiB, or
what the machine has free less 1 GiB. `x ours` is the time over that of relatum's row with the
same formula. **Two bare tiled products** is a floor, not a loss: of the 2N x 2N matrix of two
views, in tiles of 512 x 512 and without use of its symmetry, the scores `S = Z Zᵀ` (what a
forward pass cannot avoid) and, from the same buffer, `S Z` (what a backward pass cannot avoid);
no exponential, no normalisation. A loss that uses the symmetry could come below it; one that
computes its tiles anew in the backward pass does more. The column *negatives* is what
`loss.scores(x, y).negatives` says of itself.""".replace("\n", " ")

PEERS = """Each contestant against the definition, pair by pair in float64, on 12 pairs:
relative differences of value and gradient. A row is compared as what it computes; one that is
off by more than 1e-5 in float64 is marked and not ranked. lightly holds the four N x N blocks
of the two-view scores and copies of them. pytorch-metric-learning's `SelfSupervisedLoss` with
its default `symmetric=True` stacks both views (two-view NT-Xent: with one positive each, its
own way of counting positives makes no difference); with `symmetric=False` only the first view
is an anchor (in-batch; checked, not timed). It holds a matrix of positives x negative *pairs*,
cubic in N. open_clip's loss takes normalised features and a scale of 1 / T; here the
normalisation, which its model does, is inside the time. info-nce-pytorch without given
negatives is in-batch with one direction.""".replace("\n", " ")


def target_table(found: Sequence[Target]) -> list[str]:
    words = {True: "met", False: "**missed**", None: "not measured"}
    rows = [(t.text, t.bound, t.found, words[t.met]) for t in found]
    return markdown(["target", "bound", "found", "verdict"], rows, 4)


def size_table(cells: Sequence[Cell], checks: Mapping[str, Check]) -> list[str]:
    ours = {c.formula: c for c in cells if BY_NAME[c.name].kind == "ours"}
    rows = [size_row(cell, ours[cell.formula], checks) for cell in cells]
    head = ["contestant", "ms", "quartiles", "µs a pair", "x ours", "added MiB", "samples x calls",
            "negatives"]  # fmt: skip
    return markdown(head, rows)


def size_row(cell: Cell, ours: Cell, checks: Mapping[str, Check]) -> list[str]:
    if not cell.seconds or cell.added_bytes is None:
        return [cell.name, cell.refused or "", *[""] * 6]
    low, middle, high = (1e3 * value for value in quartiles(cell.seconds))
    ratio = f"{cell.median / ours.median:.2f}" if cell is not ours and ours.seconds else ""
    if cell.name in checks and not checks[cell.name].correct:
        ratio = "other formula"
    return [
        cell.name,
        digits(middle),
        f"[{digits(low)}, {digits(high)}]",
        digits(1e3 * middle / cell.pairs),
        ratio,
        digits(cell.added_bytes / MIB),
        f"{len(cell.seconds)} x {cell.calls}",
        f"`{cell.strategy}`" if cell.strategy else "",
    ]


def digits(value: float) -> str:
    """Three digits, and all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def agreement(cells: Sequence[Cell]) -> str:
    """How far contestants of one formula differ at this size, in what they computed when timed."""
    spread = 0.0
    for formula in (TWO_VIEW, SYMMETRIC, ONE_WAY):
        same = [c for c in cells if c.formula == formula and BY_NAME[c.name].kind != "floor"]
        for name in ("value", "gradient_norm"):
            each = [getattr(c, name) for c in same if getattr(c, name) is not None]
            spread = max(spread, (max(each) - min(each)) / max(each) if each else 0.0)
    return (
        "Contestants of one formula agree at this size: values and norms of the gradients differ "
        f"by at most {spread:.0e}, relative."
    )


def scaling(cells: Sequence[Cell]) -> list[str]:
    """RPC: time a pair and peak memory at every size."""
    every = sorted({cell.pairs for cell in cells if cell.name in LINEAR})
    at = {(c.name, c.pairs): c for c in cells if c.seconds}
    head = ["", *(f"{pairs:,}" for pairs in every)]
    pace, peak = [], []
    for name in LINEAR:
        row = [at.get((name, pairs)) for pairs in every]
        long = [at[name, pairs] for pairs in LONG if (name, pairs) in at]
        flat = f"{flatness(long):.2f}" if len(long) == len(LONG) else ""
        pace.append([name, *(digits(1e6 * c.median / c.pairs) if c else "" for c in row), flat])
        peak.append([name, *(f"{c.matrices:.2f}" if c else "" for c in row)])
    return [
        "Microseconds a pair, and the largest over the smallest from 16,384 pairs on:",
        "",
        *markdown([*head, "largest / smallest"], pace),
        "",
        "Peak memory with the inputs and their gradients, in units of both embedding matrices "
        "(2 · N · 128 · 4 bytes). Fixed costs, tens of MiB, rule the small sizes:",
        "",
        *markdown(head, peak),
    ]


def check_table(checks: Mapping[str, Check]) -> list[str]:
    rows = [
        [
            name,
            f"{BY_NAME[name].formula}" if found.correct else "**other formula**",
            *(f"{v:.0e}" for v in (found.value, found.gradient, found.value32, found.gradient32)),
        ]
        for name, found in checks.items()
    ]
    head = ["contestant", "computes", "value", "gradient", "value, float32", "gradient, float32"]
    return markdown(head, rows, 2)
