"""Fills the tables of docs/scaling.md from the cost model and the measurements.

    python docs/fill_scaling.py

``tests/test_scaling.py`` fails where the page is not what this writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from scaling_model import Gpu, Loss, Machine, Sent, added_bytes, sent

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "scaling.md"
LOSSES = DOCS / "results" / "losses_cpu.json"
WHOLE = DOCS / "results" / "whole_batch_cpu.json"
MIB, GB = 1 << 20, 1e9
FLOOR = "two bare tiled products"
CPC, JS, HINGE = (f"relatum {name}, two_view, cosine / 0.5" for name in ("CPC", "JS", "Hinge"))
RPC = "relatum RPC, in_batch, dot / 128"
SHORT, LONG = 256, 16_384  # the largest size at which everything was measured
FITTED = {(CPC, LONG), (JS, LONG), (HINGE, LONG), (RPC, LONG), (RPC, SHORT)}
TOLERATED = 1.25
PLANNED = [(gpus, pairs) for gpus in (8, 64, 1024) for pairs in (4096, 65_536, 1 << 20, 10**7)]
PARAMETERS = 25_600_000  # of a ResNet-50 and its head, about


def filled(text: str) -> str:
    """The page with its generated parts."""
    losses = json.loads(LOSSES.read_text(encoding="utf-8"))
    whole = json.loads(WHOLE.read_text(encoding="utf-8"))
    machine = fit(losses)
    parts = {
        "machine": words(losses["environment"]),
        "constants": constants(machine, losses),
        "check": check(machine, losses),
        "verdict": verdict(machine, losses),
        "bytes": bytes_table(),
        "whole": whole_batch(whole),
        "readings": readings(),
        "rpc128": plan("RPC", 128, whole),
        "cpc128": plan("CPC", 128, whole),
        "rpc2048": plan("RPC", 2048, whole),
        "cpc2048": plan("CPC", 2048, whole),
    }
    for name, content in parts.items():
        pattern = rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)"
        text, count = re.subn(
            pattern, lambda m, c=content: f"{m[1]}{c}\n{m[2]}", text, flags=re.DOTALL
        )
        assert count == 1, f"docs/scaling.md has {count} places for {name}"
    return text


def seconds_of(losses: dict[str, Any], name: str, pairs: int) -> float:
    """Median of a row of the benchmark."""
    return median(cells(losses)[name, pairs]["seconds"])


def cells(losses: dict[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    """What was timed, by name and size."""
    return {(c["name"], c["pairs"]): c for c in losses["cells"] if c["seconds"]}


def fit(losses: dict[str, Any]) -> Machine:
    """The constants, each from one measurement, those before it given."""

    def left(name: str, pairs: int) -> tuple[float, Loss]:
        loss = Loss.named(name, pairs, losses["dim"])
        return seconds_of(losses, name, pairs) - machine.seconds(loss), loss

    products = 2 * 2 * (2 * LONG) ** 2 * losses["dim"]  # two, of the 2N x 2N matrix
    machine = Machine(seconds_of(losses, FLOOR, LONG) / products)
    rest, loss = left(RPC, LONG)
    machine = replace(machine, row=rest / loss.row_numbers)
    machine = replace(machine, call=left(RPC, SHORT)[0])
    rest, loss = left(CPC, LONG)
    machine = replace(machine, exponential=rest / loss.visited / 2)
    rest, loss = left(JS, LONG)
    machine = replace(machine, mean=rest / loss.visited)
    rest, loss = left(HINGE, LONG)
    return replace(machine, maximum=rest / loss.visited / 2)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], text: int = 1) -> str:
    """A table; its first `text` columns are words."""
    align = ["---" if at < text else "---:" for at in range(len(head))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, align, *rows))


def digits(value: float) -> str:
    """Three digits, and all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """Seconds, or a smaller unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{digits(seconds / size)} {unit}"
    return f"{digits(1e9 * seconds)} ns"


def words(found: dict[str, Any]) -> str:
    """Command, machine, versions."""
    return (
        f"Measured by `python benchmarks/{found['command']}` on {found['platform']}, "
        f"{found['processors']} processors ({found['processor']}), {found['threads']} threads, "
        f"torch {found['versions']['torch']}, {found['created'][:10]}; load average "
        f"{found['load']:.1f} before the start."
    )


def constants(machine: Machine, losses: dict[str, Any]) -> str:
    """What was fitted, and where."""
    rows = [
        ["products", f"{1e-9 / machine.product:,.0f} GFLOP/s", FLOOR, f"{LONG:,}"],
        ["a number of a factor, once", f"{1e12 * machine.row:,.0f} ps", RPC, f"{LONG:,}"],
        ["a call", f"{1e3 * machine.call:.2f} ms", RPC, f"{SHORT:,}"],
        ["an exponential of a score", f"{1e12 * machine.exponential:,.0f} ps", CPC, f"{LONG:,}"],
        ["a softplus with its slope", f"{1e12 * machine.mean:,.0f} ps", JS, f"{LONG:,}"],
        ["a maximum, each side", f"{1e12 * machine.maximum:,.0f} ps", HINGE, f"{LONG:,}"],
    ]  # fmt: skip
    floors = [(pairs, seconds) for (name, pairs), cell in sorted(cells(losses).items())
              if name == FLOOR for seconds in [median(cell["seconds"])]]  # fmt: skip
    speeds = ", ".join(
        f"{8e-9 * pairs**2 * losses['dim'] * 2 / seconds:,.0f} at {pairs:,}"
        for pairs, seconds in floors
    )
    drift = f"The same products, with nothing else, ran at these GFLOP/s: {speeds} pairs."
    return table(["constant", "value", "from the row", "pairs"], rows, 3) + f"\n\n{drift}"


def checked(
    machine: Machine, losses: dict[str, Any]
) -> list[tuple[str, int, Loss, float, float, float, float]]:
    """Name, pairs, loss; predicted and measured seconds; predicted and measured bytes."""
    found = []
    for (name, pairs), cell in cells(losses).items():
        if name.startswith("relatum"):
            loss = Loss.named(name, pairs, losses["dim"])
            mine = machine.seconds(loss), median(cell["seconds"])
            space = added_bytes(loss), float(cell["added_bytes"])
            found.append((name.removeprefix("relatum "), pairs, loss, *mine, *space))
    return found


def off(ratio: float) -> bool:
    """Whether a prediction misses by more than is tolerated, either way."""
    return not 1 / TOLERATED <= ratio <= TOLERATED


def check(machine: Machine, losses: dict[str, Any]) -> str:
    """Predicted against measured."""
    rows = []
    for name, pairs, loss, guess, took, space, held in checked(machine, losses):
        mark = "*" if (f"relatum {name}", pairs) in FITTED else ""
        ratios = [f"**{r:.2f}**" if off(r) else f"{r:.2f}" for r in (guess / took, space / held)]
        rows.append(
            [name, f"{pairs:,}", loss.strategy, digits(1e3 * guess), digits(1e3 * took),
             ratios[0] + mark, digits(space / MIB), digits(held / MIB), ratios[1]]
        )  # fmt: skip
    head = ["loss", "pairs", "held", "ms, model", "ms, measured", "ratio", "MiB, model",
            "MiB, measured", "ratio"]  # fmt: skip
    return table(head, rows)


def verdict(machine: Machine, losses: dict[str, Any]) -> str:
    """How many predictions hold."""
    found = checked(machine, losses)
    guesses = [c for c in found if (f"relatum {c[0]}", c[1]) not in FITTED]
    time = sum(not off(guess / took) for *_, guess, took, _, _ in guesses)
    space = sum(not off(guess / held) for *_, guess, held in found)
    large = [c for c in found if c[1] >= 4096]
    large_space = sum(not off(guess / held) for *_, guess, held in large)
    return (
        f"Time: {time} of {len(guesses)} predictions are within 25 % (fitted rows, marked *, left "
        f"out). Memory, where nothing is fitted: {space} of {len(found)}, and {large_space} of the "
        f"{len(large)} at 4,096 pairs or more."
    )


def megabytes(value: float) -> str:
    """10⁶ bytes."""
    return digits(value / 1e6) if value else "0"


def bytes_table() -> str:
    """What a process hands over and what leaves it, for some batches."""
    rows = []
    for r, pairs in ((2, 4096), (8, 65_536), (1024, 10**7)):
        for objective, pairing in (("RPC", "two_view"), ("CPC", "in_batch"), ("CPC", "two_view")):
            loss = Loss(objective, pairing, pairs, processes=r)
            handed: Sent = sent(loss)
            rows.append(
                [f"{objective}, {pairing}", f"{r:,}", f"{pairs:,}", megabytes(handed.all_reduce),
                 megabytes(handed.all_gather), megabytes(handed.reduce_scatter),
                 megabytes(handed.travelling(r))]
            )  # fmt: skip
    head = ["loss", "R", "N", "all-reduce, MB", "gather, MB", "reduce-scatter, MB", "leaves, MB"]
    return table(head, rows)


def per_image(whole: dict[str, Any], work: str, field: str = "seconds") -> float:
    """What the largest measured size took for an image."""
    largest = max((c for c in whole["cells"] if c["work"] == work), key=lambda c: c["images"])
    value = median(largest[field]) if field == "seconds" else largest[field]
    return value / largest["images"]


def draws(whole: dict[str, Any], pairs: int) -> float:
    """Seconds of the draws of both views and of the order of as many images."""
    return pairs * (2 * per_image(whole, "draws") + per_image(whole, "order"))


def whole_batch(whole: dict[str, Any]) -> str:
    """What each process does whatever its share."""
    rows = []
    for pairs in (4096, 65_536, 1 << 20, 10**7):
        kept = 2 * whole["bytes_kept_per_view"] * pairs
        peak = per_image(whole, "draws", "added_bytes") * pairs + kept / 2
        rows.append(
            [f"{pairs:,}", digits(draws(whole, pairs)), digits(kept / GB), digits(peak / GB)]
        )
    head = ["batch", "seconds a step", "kept, GB of host memory", "peak, GB"]
    text = (
        f"{words(whole['environment'])} A view takes {1e6 * per_image(whole, 'draws'):.2f} µs and "
        f"keeps {whole['bytes_kept_per_view']} bytes; a row of the epoch's order takes "
        f"{1e9 * per_image(whole, 'order'):.0f} ns. Scaled linearly from 1,048,576:"
    )
    return f"{text}\n\n{table(head, rows)}"


def readings() -> str:
    """Seconds of uniformity on each GPU, in a step that is logged."""
    gpu, dim = Gpu(), 128
    rows = []
    for pairs in (4096, 65_536, 1 << 20, 10**7):
        work = 2 * dim * pairs**2 / gpu.flops + 18 * 4 * pairs**2 / gpu.bandwidth
        both = 2 * pairs * dim * 4
        rows.append([f"{pairs:,}", duration(work / gpu.share), digits(both / GB)])
    return table(["batch", "time of uniformity", "embeddings of both views, GB"], rows)


def plan(objective: str, dim: int, whole: dict[str, Any]) -> str:
    """What a step is made of on 8, 64 and 1,024 GPUs."""
    gpu, rows = Gpu(), []
    for gpus, pairs in PLANNED:
        loss = Loss(objective, "two_view", pairs, dim, gpus, temperature=0.1)
        gradient = Sent(all_reduce=4 * PARAMETERS).travelling(gpus) / gpu.pace(gpus)
        parts = {
            "encoder": gpu.encoder(pairs / gpus),
            "loss": gpu.seconds(loss),
            "network": gpu.network(loss) + gradient,
        }
        memory = gpu.added_bytes(loss)
        share = (parts["loss"] + gpu.network(loss)) / sum(parts.values())
        aside = draws(whole, pairs)
        first = max({**parts, "draws": aside}.items(), key=lambda part: part[1])[0]
        if memory > gpu.memory / 2:
            first = "**memory**"
        percent = f"{100 * share:.0f}" if share > 0.1 else f"{100 * share:.1g}"
        rows.append(
            [f"{gpus:,}", f"{pairs:,}", duration(parts["encoder"]), duration(parts["loss"]),
             duration(gpu.network(loss)), duration(gradient), f"{percent} %", duration(aside),
             digits(memory / GB), megabytes(sent(loss).travelling(gpus)), first]
        )  # fmt: skip
    head = ["GPUs", "pairs", "encoder", "loss", "its network", "gradients", "loss's share",
            "draws", "added, GB", "sent, MB", "first limit"]  # fmt: skip
    return table(head, rows, 0)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
