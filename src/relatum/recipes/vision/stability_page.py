"""The page of ``relatum reproduce stability``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..experiments.cells import Record
from ..experiments.page import length, origin, table, write_page
from ..experiments.seeds import Runs, accuracy, by_seed, ended

__all__ = ["write_stability_page"]

_NAMES: Final = {"dv": "DV", "nwj": "NWJ", "js": "JS", "cpc": "CPC", "rpc": "RPC"}

_WHY: Final = """\
*Raw scores.* DV has one log-mean-exp over all negatives of the batch, so that its gradient falls \
on the largest of some hundred thousand raw scores alone; NWJ has the exponential of that score \
itself, and 89 is more than a 32-bit float can take. The last scale of the projection head \
multiplies all scores, LARS does not adapt its rate, and a gradient that is the batch's largest \
score steps past the optimum and farther past it at each step: the loss climbs (J falls) until \
scores leave the range of floats. CPC averages a log-sum-exp over anchors, each bounded from \
below by its own positive, and RPC and JS are plain means over pairs: with the same weights, rate \
and scores their steps are small enough. Apart from that, J of DV has no upper end on a finite \
batch, and J of CPC and RPC has one.

*Cosines / 0.5.* A score lies in [−2, 2] whatever the weights: no exponential of it exceeds 7.4, \
and scaling the embeddings changes nothing. Nothing can overflow, so nothing does: where the \
published figure shows DV and NWJ run to NaN, the scores cannot have been cosines / 0.5."""


def write_stability_page(
    records: Mapping[str, Record], *, page: Path | None, command: str, jobs: int
) -> str:
    """Writes the page and its figure if asked for; returns table and findings as text."""
    groups = _groups(records)
    shown = table(
        ["objective", "scores", "first loss that is not finite", "largest loss seen",
         "linear, %", "20-NN, %"],
        [_row(*key, found) for key, found in groups.items()],
    )  # fmt: skip
    findings = "\n".join(f"* {line}" for line in _findings(groups))
    if page is not None:
        from .stability_figure import stability_svg  # matplotlib is slow to load, and an extra

        figure = page.with_suffix(".svg")
        stability_svg(groups, figure)
        first = next(iter(records.values()))["plan"]
        sections = [
            "# Stability: which objectives run away",
            origin(command, records, jobs),
            _protocol(first),
            f"![Objective against step, raw scores and cosines]({figure.name})",
            "## What was found",
            findings,
            "## The runs",
            shown,
            "*First loss that is not finite*: the step, counted from 0, whose loss or gradient was "
            f"NaN or infinite; the training ends there, and the last checkpoint before (every "
            f"{first['checkpoint_every']} steps, 0 being the untrained network) is measured. A "
            "dash: all steps done. *Largest loss seen*: of those logged and, where a training "
            "ended, of the last. Mean ± half of the 95 % t-interval over seeds where there are "
            "several.",
            "## Why",
            _WHY,
        ]
        write_page(page, sections, command, records)
    return f"{shown}\n\n{findings}"


Groups = Mapping[tuple[str, str, str], Runs]


def _groups(records: Mapping[str, Record]) -> Groups:
    """Records over seeds, by objective, critic and temperature."""
    found = {}
    for key, runs in by_seed(records).items():
        objective, critic, temperature = key.split("-")
        found[objective, critic, temperature] = runs
    return found


def _row(objective: str, critic: str, temperature: str, found: Runs) -> list[str]:
    stopped = ended(found).values()
    where = ", ".join(map(str, stopped)) if stopped else "—"
    losses = [abs(loss) for record in found.values() for loss in _losses(record)]
    largest = f"{max(losses):.3g}" if losses else "none"
    measured = (accuracy(found, name).removesuffix(" ×") for name in ("linear", "knn"))
    return [f"`{objective}`", f"{critic} / {temperature}", where, largest, *measured]


def _losses(record: Record) -> list[float]:
    """The losses that are known, that of the last step among them."""
    last = (record["training"]["nonfinite_terms"] or {}).get("loss")
    known = [*(point[1] for point in record["training"]["curve"]), last]
    return [float(loss) for loss in known if isinstance(loss, int | float)]


def _findings(groups: Groups) -> list[str]:
    raw = {key[0]: found for key, found in groups.items() if key[1:] == ("dot", "8")}
    cosine = {key[0]: found for key, found in groups.items() if key[1] == "cosine"}
    lines = []
    for title, runs in (("raw scores (dot / 8)", raw), ("cosines / 0.5", cosine)):
        if not runs:
            continue
        fell = {name: ended(found).values() for name, found in runs.items() if ended(found)}
        stood = [_NAMES[name] for name in runs if name not in fell]
        said = [f"{_NAMES[name]} at step {', '.join(map(str, at))}" for name, at in fell.items()]
        lines.append(
            f"With {title}: ended early {'; '.join(said) or 'none'}; "
            f"finite to the end {', '.join(stood) or 'none'}."
        )
    if raw.keys() >= {"dv", "nwj", "cpc", "rpc"}:
        fell_raw = {name for name, found in raw.items() if ended(found)}
        as_published = fell_raw >= {"dv", "nwj"} and not fell_raw & {"cpc", "rpc"}
        fell_cosine = any(ended(found) for found in cosine.values())
        lines.append(
            "The paper's claim, that DV and NWJ run to NaN where CPC and RPC are stable, "
            + ("holds" if as_published else "does not hold")
            + " for raw scores"
            + (", and cannot hold for cosines." if cosine and not fell_cosine else ".")
        )
    for key, found in groups.items():
        terms = [record["training"]["nonfinite_terms"] for record in found.values()]
        for each in (term for term in terms if term):
            shown = ", ".join(
                f"{name} {value:.3g}" for name, value in each.items()
                if isinstance(value, int | float)
            )  # fmt: skip
            lines.append(f"Where {_NAMES[key[0]]} on {key[1]} / {key[2]} ended: {shown}.")
    return lines


def _protocol(plan: Mapping[str, Any]) -> str:
    return (
        f"CIFAR-10 at {plan['image_size'] or 32} x {plan['image_size'] or 32} pixels, "
        f"{plan['limit'] or 50_000:,} training images, `{plan['encoder']}`, batch "
        f"{plan['batch_size']}, {length(plan)}, {plan['optimizer'].upper()} at rate "
        f"{plan['learning_rate']:g} (the paper's rule, 1.0 · batch / 256), two views of each image "
        "against all others. RPC has (1, 0.005, 1). Accuracies are of frozen features on all "
        "test images; penalties were chosen on training images."
    )
