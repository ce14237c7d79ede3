"""The page of ``relatum reproduce vision-table``."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from ...probes import paired_difference
from ..experiments.cells import Record
from ..experiments.page import length, origin, table, write_page
from ..experiments.seeds import Runs, accuracy, by_seed, shared, values
from ..experiments.statistics import gain

__all__ = ["write_vision_page"]

_OTHERS: Final = ("dv", "nwj", "js", "wpc", "cpc")
_KINDS: Final = (*_OTHERS, "rpc", "supervised", "untrained")

# Table 2 of the paper, top-1 in percent, as recalled: its CIFAR rows could not be checked.
_PUBLISHED: Final = {
    ("cifar10", "resnet18"): (91.10, 90.54, 83.55, 80.02, 91.12, 91.46, 93.12),
    ("cifar10", "resnet50"): (92.23, 92.67, 87.34, 85.93, 93.42, 93.57, 95.70),
    ("cifar100", "resnet18"): (77.10, 77.27, 74.02, 72.16, 77.36, 77.98, 79.11),
    ("cifar100", "resnet50"): (79.02, 78.52, 75.31, 73.23, 79.31, 79.89, 81.20),
    ("stl10", "resnet50"): (82.25, 81.17, 79.07, 76.50, 83.40, 84.10, 71.40),
}


Row = tuple[str, str]
Rows = Mapping[Row, Mapping[str, Runs]]


def write_vision_page(
    records: Mapping[str, Record], *, page: Path | None, command: str, jobs: int
) -> str:
    """Writes the page if one is asked for; returns its table and findings as text."""
    rows = _rows(records)
    header = ["data, network", *(name.upper() if len(name) < 4 else name for name in _KINDS)]
    shown = table(
        header,
        [[f"{data}, {network}", *(accuracy(of.get(kind, {})) for kind in _KINDS)]
         for (data, network), of in rows.items()],
    )  # fmt: skip
    findings = "\n".join(f"* {line}" for line in _findings(rows))
    if page is not None:
        published = [
            [f"{data}, {network}", *(f"{number:.2f}" for number in numbers)]
            for (data, network), numbers in _PUBLISHED.items()
        ]
        sections = [
            "# Vision: the paper's table 2, measured again",
            origin(command, records, jobs),
            _protocol(next(iter(records.values()))["plan"]),
            "## What was found",
            findings,
            "## Linear accuracy, %",
            shown,
            "Mean ± half of the 95 % t-interval over seeds; × where a loss that is not finite "
            "ended a training, of which the last checkpoint before is measured. *Supervised*: the "
            "same network from the same start, trained for as many updates on the labels of the "
            "same images, by its own classifier; as fine-tuning does it, by SGD with momentum at "
            "0.1 · batch / 256 on crops and flips alone.",
            "## Against the paper's order",
            "Neighbours in the order of the paper's accuracies for the data set (for this network, "
            "or else for its smallest), and CPC beside the two that it leaves farthest behind, in "
            "points; here as paired differences over seeds, each with its own 95 % interval.",
            *(
                f"### {data}, {network}\n\n{_order(data, network, of)}"
                for (data, network), of in rows.items()
            ),
            "## What was published",
            "Networks and epochs are other ones, so that only the order can be compared. As "
            "recalled from the paper, not checked against it.",
            table(header[:-1], published),
        ]
        write_page(page, sections, command, records)
    return f"{shown}\n\n{findings}"


def _rows(records: Mapping[str, Record]) -> Rows:
    """Records over seeds, by data set and network, and by what was trained."""
    found: dict[Row, dict[str, Runs]] = {}
    for key, runs in by_seed(records).items():
        data, network, kind = key.split("_")
        found.setdefault((data, network), {})[kind] = runs
    return dict(sorted(found.items()))


def _findings(rows: Rows) -> list[str]:
    lines = []
    for (data, network), of in rows.items():
        said, stronger = [], []
        for kind in (*_OTHERS, "untrained"):
            name = kind.upper() if len(kind) < 4 else kind
            rpc, other = shared(values(of.get("rpc", {})), values(of.get(kind, {})))
            if not rpc:
                continue
            found = paired_difference(rpc, other)
            clear = "" if found.excludes_zero else ", sign not clear"
            said.append(f"{name} {gain(rpc, other)}{clear}")
            if found.mean < 0:
                stronger.append(name)
        if said:
            lines.append(f"{data}, {network}: RPC minus {'; minus '.join(said)} (points).")
            names = ", ".join(stronger) or "none of these"
            lines.append(f"{data}, {network}: above RPC on average: {names}.")
    return lines


def _order(data: str, network: str, of: Mapping[str, Runs]) -> str:
    """Each pair of the paper's order, what it has, what was found, and whether they agree."""
    known = {name: row for (where, name), row in _PUBLISHED.items() if where == data}
    row = known.get(network, next(iter(known.values())))
    paper = dict(zip(_KINDS, row, strict=False))
    order = sorted((*_OTHERS, "rpc"), key=paper.__getitem__, reverse=True)
    lines, words = [], {"agrees": 0, "**disagrees**": 0, "not resolved": 0}
    for better, worse in dict.fromkeys([*pairwise(order), ("cpc", "js"), ("cpc", "wpc")]):
        a, b = shared(*(values(of.get(name, {})) for name in (better, worse)))
        if not a:
            continue
        found = paired_difference(a, b)
        verdict = "not resolved"
        if found.excludes_zero:
            verdict = "agrees" if found.mean > 0 else "**disagrees**"
        words[verdict] += 1
        pair = f"{better.upper()} − {worse.upper()}"
        lines.append([pair, f"{paper[better] - paper[worse]:+.2f}", gain(a, b), verdict])
    said = ", ".join(f"{word.strip('*')} {count}" for word, count in words.items())
    return f"{table(['pair', 'paper', 'here', 'verdict'], lines)}\n\nOf {len(lines)}: {said}."


def _protocol(plan: Mapping[str, Any]) -> str:
    size = f"{plan['image_size']} x {plan['image_size']}" if plan["image_size"] else "their own"
    images = f"{plan['limit']:,}" if plan["limit"] else "All"
    return (
        f"{images} training images (class-balanced) at {size} pixels, batch {plan['batch_size']}, "
        f"{length(plan)}, {plan['optimizer']} at rate "
        f"{plan['learning_rate']:g}. RPC: (1, 0.005, 1) on raw dot products / 128; the others: "
        "cosines / 0.5; WPC with a one-sided gradient penalty of weight 10 on the score's images. "
        "These are the paper's settings and were not tuned here, so this is no verdict on what "
        "each objective could reach. Linear classifier on frozen features, its penalty chosen on "
        "training images, judged once on all test images."
    )
