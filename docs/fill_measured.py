"""What the table of objectives says of our own measurements, from the pages of results.

    python docs/fill_measured.py && python docs/fill_readme.py

Writes ``src/relatum/objectives/measured.json``; ``tests/test_readme.py`` fails where it is not what
this writes.
"""

import json
import re
from pathlib import Path
from typing import Any

from relatum.recipes.experiments.seeds import accuracy, by_seed, ended

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
MEASURED = ROOT / "src" / "relatum" / "objectives" / "measured.json"

TABLE = "vision_table_cpu"
ONE_CRITIC = "objectives_cifar_cpu"


Verdict = dict[str, str]  # what is said, and the page that it is said on


def measured() -> dict[str, dict[str, Verdict]]:
    """By objective and by claim: stable training, any batch size, downstream accuracy."""
    found = {**_with_one_critic(), **_of_the_table()}
    for name, said in _stability().items():
        found[name]["stable"] = verdict(said, "stability_cpu")
    for name, slope in cells("batch_size_cpu")["slopes"].items():
        if name in found:
            of = slope["over_seeds"]
            ends = f"{100 * of['low']:+.2f} to {100 * of['high']:+.2f}"
            said = f"{100 * of['value']:+.2f} ({ends}) points a doubling"
            found[name]["batch"] = verdict(said, "batch_size_cpu")
    return found


def verdict(said: str, page: str) -> Verdict:
    """One claim, measured."""
    return {"said": said, "page": page}


def cells(page: str) -> dict[str, Any]:
    """The numbers beside a page."""
    numbers: dict[str, Any] = json.loads((RESULTS / f"{page}.json").read_text(encoding="utf-8"))
    return numbers


def _of_the_table() -> dict[str, dict[str, Verdict]]:
    found = {}
    for key, runs in by_seed(cells(TABLE)["cells"]).items():
        data, _, kind = key.split("_")
        if data == "cifar10" and kind not in ("supervised", "untrained"):
            found[kind] = {
                "stable": verdict(f"{len(ended(runs))} of {len(runs)} runs ended early", TABLE),
                "downstream": verdict(f"{accuracy(runs)} % (CIFAR-10 at CPU scale)", TABLE),
            }
    return found


def _with_one_critic() -> dict[str, dict[str, Verdict]]:
    """The table of a page that has no numbers beside it."""
    text = (RESULTS / f"{ONE_CRITIC}.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|.*\| (\d+) \| \d+ \|$", text, re.MULTILINE)
    return {
        name: {
            "stable": verdict(f"cosines: {steps} steps of 3 runs not finite", ONE_CRITIC),
            "downstream": verdict(f"{value} % (CIFAR-10 at CPU scale, cosines)", ONE_CRITIC),
        }
        for name, value, steps in rows
    }


def _stability() -> dict[str, str]:
    """Where it was pushed: raw scores at the paper's rate, and cosines."""
    found: dict[str, list[str]] = {}
    for key, runs in by_seed(cells("stability_cpu")["cells"]).items():
        objective, critic, temperature = key.split("-")
        if (critic, temperature) in (("dot", "8"), ("cosine", "0.5")):
            steps = ", ".join(map(str, ended(runs).values()))
            scores = "raw scores" if critic == "dot" else "cosines"
            said = f"{scores}: {f'ended at step {steps}' if steps else 'yes'}"
            found.setdefault(objective, []).append(said)
    return {name: "; ".join(said) for name, said in found.items()}


if __name__ == "__main__":
    text = json.dumps(measured(), indent=1, ensure_ascii=False)
    MEASURED.write_text(text + "\n", encoding="utf-8")
