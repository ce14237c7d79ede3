"""The report's sentences, all derived from results: what happened, and is it learning?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .reading import Column, Group, RunRecord, last, number, series
from .tables import (
    BASELINES,
    Interval,
    by_seed,
    columns,
    compare,
    half,
    interval,
    repeats,
    standing,
    units,
)

__all__ = [
    "DASH",
    "MINUS",
    "NBSP",
    "Note",
    "listing",
    "notes",
    "percent",
    "protocol_notes",
    "start_line",
    "verdict",
]

DASH, MINUS, NBSP = "\N{EN DASH}", "\N{MINUS SIGN}", "\N{NO-BREAK SPACE}"
_MARKS = {"bad": "✗", "warn": "!", "good": "✓"}


class Note(NamedTuple):
    """One remark: its level ("bad", "warn", "good"), the runs it is about, and the text."""

    level: str
    about: str
    text: str

    @property
    def mark(self) -> str:
        """A symbol beside the colour, for those who do not see the colour."""
        return _MARKS[self.level]


def percent(value: Interval | None, *, signed: bool = False) -> str:
    """A fraction as per cent with its interval; differences carry their sign.

    Example:
        >>> single = Interval(-0.5, math.nan, math.nan, 1)
        >>> percent(Interval(0.5, 0.489, 0.511, 3)), percent(single, signed=True)
        ('50.0 ± 1.1', '−50.0')
    """
    if value is None:
        return DASH
    text = f"{100 * value.mean:+.1f}" if signed else f"{100 * value.mean:.1f}"
    # All repeats equal (raw pixels, measured again in each run): an interval of zero says nothing.
    spread = f" ± {100 * half(value):.1f}" if half(value) > 1e-12 else ""
    return text.replace("-", MINUS) + spread


def listing(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def verdict(groups: Sequence[Group]) -> list[str]:
    """What happened, one paragraph for each data set."""
    data = dict.fromkeys(group.data for group in groups)
    texts = [_verdict([g for g in groups if g.data == name], name) for name in data]
    # A number and its interval or unit stay on one line.
    return [text.replace(" ± ", f"{NBSP}±{NBSP}").replace(" %", f"{NBSP}%") for text in texts]


def _verdict(groups: Sequence[Group], data: str) -> str:
    runs = sum(len(group.runs) for group in groups)
    names = listing(list(dict.fromkeys(group.objective for group in groups)))
    count = "one run" if runs == 1 else f"{runs} runs"
    start = f"{names} {'was' if ' and ' not in names else 'were'} trained on {data} ({count})."
    if all(run.result("classes") for group in groups for run in group.runs):
        return f"{start} What it came to stands below, beside what theory says beforehand."
    column = _headline(columns(groups))
    scored = [(interval(units(g, "encoder", column).values()), g) for g in groups if column]
    start = " ".join([start, *_divergences(groups)])
    # A group of which no run was trained to its end has no encoder to praise.
    lost = [g for g in groups if all(run.diverged is not None for run in g.runs)]
    if len(lost) == len(groups):
        return f"{start} So nothing is known about the accuracy of a trained encoder."
    found = [(value, group) for value, group in scored if value and group not in lost]
    if not column or not found:
        return f"{start} No run has been probed yet, so nothing is known about accuracy."
    found.sort(key=lambda pair: -pair[0].mean)
    value, best = found[0]
    lead = f"{best.label} has the best encoder" if len(found) > 1 else "With the trained encoder"
    lead += ": with its features," if len(found) > 1 else ""
    text = f"{start} {lead} {column.phrase} classifies {percent(value)} % of the test images"
    text += f" correctly ({_replication(best, value)})."
    return f"{text} {_comparisons([group for _, group in found], column)}".rstrip()


def _divergences(groups: Sequence[Group]) -> list[str]:
    """One sentence for each group with runs whose loss stopped being finite."""
    sentences = []
    for group in groups:
        gone = [run for run in group.runs if run.diverged is not None]
        if not gone:
            continue
        where = listing([f"at step {run.diverged} (run {run.name})" for run in gone])
        who = group.label
        if len(group.runs) > len(gone):
            who = f"{len(gone)} of the {len(group.runs)} runs of {group.label}"
        probes = "Its probe is" if len(gone) == 1 else "Their probes are"
        left = listing(list(dict.fromkeys(_left_with(run) for run in gone)))
        sentences.append(f"{who} diverged {where}. {probes} of {left}.")
    return sentences


def _left_with(run: RunRecord) -> str:
    """What a run that diverged has for an encoder."""
    if run.good_step == 0:
        return "the last good checkpoint, which is the untrained network"
    step = "" if run.good_step is None else f" (step {run.good_step})"
    return f"the last good checkpoint{step}"


def _headline(found: Sequence[Column]) -> Column | None:
    linear = [c for c in found if c.probe == "linear" and c.labels_per_class is None]
    return next(iter([*linear, *found]), None)


def _replication(group: Group, value: Interval) -> str:
    if value.n == 1:
        return "one measurement; an interval needs more seeds"
    unit = "runs" if len(group.runs) > 1 else "probe seeds of a single training run"
    return f"mean and 95 % interval over {value.n} {unit}"


def _comparisons(groups: Sequence[Group], column: Column) -> str:
    """The best group against its baselines and the next best, in one sentence and a judgement."""
    best, found = groups[0], []
    for features, plain in BASELINES.items():
        name = f"the {plain}" if features == "untrained" else plain
        base = units(best, features, column)
        if difference := compare(units(best, "encoder", column), base):
            found.append((difference, name, f"{name} ({percent(interval(base.values()))} %)"))
    for second in groups[1:2]:
        if difference := compare(by_seed(best, column), by_seed(second, column)):
            found.append((difference, second.label, f"{second.label}, the next best"))
    if not found:
        return ""
    terms = [
        f"{percent(difference, signed=True)} points against {name}" for difference, _, name in found
    ]
    text = f"That is {listing(terms)}"
    if all(standing(difference) == "single" for difference, _, _ in found):
        return f"{text}; with one measurement of each, any of this may be chance."
    clear = [name for d, name, _ in found if standing(d) in ("above", "below")]
    unclear = [name for d, name, _ in found if standing(d) not in ("above", "below")]
    text += " (paired 95 % intervals)."
    if not unclear:
        one = "This difference exceeds its interval" if len(clear) == 1 else ""
        return f"{text} {one or 'Each of these differences exceeds its interval'}."
    judged = f"The difference to {listing(clear)} exceeds its interval; the" if clear else "The"
    return f"{text} {judged} difference to {listing(unclear)} does not and may be chance."


def start_line(run: RunRecord) -> float | None:
    """The loss of a critic that tells nothing apart, where the log lets it be known.

    For the objectives whose reading is the objective itself, loss + reading is one constant
    (log K in the cross-entropy form of CPC, 0 for the negative bound). The loss starts there,
    and it returns there on collapse.
    """
    lines = [(number(line.get("loss")), number(line.get("mi"))) for line in run.metrics]
    sums = [loss + mi for loss, mi in lines if math.isfinite(loss + mi)]
    if len(sums) < 2 or max(sums) - min(sums) > 1e-3 * (1 + abs(sums[0])):
        return None
    return round(sums[0], 3) + 0.0  # + 0.0 turns −0.0 into 0.0


def notes(groups: Sequence[Group]) -> list[Note]:
    """Alarms and reassurances for each run, equal remarks on several runs told once."""
    found: dict[tuple[str, str], list[str]] = {}
    for group in groups:
        for run in group.runs:
            for level, text in _run_notes(run):
                found.setdefault((level, text), []).append(run.name)
    ordered = sorted(found, key=lambda key: "bad warn good".split().index(key[0]))
    return [Note(level, listing(found[level, text]), text) for level, text in ordered]


def _run_notes(run: RunRecord) -> list[tuple[str, str]]:
    lines = _finite(run)
    if run.metrics:
        lines += [*_chance(run), *_rank(run), *_saturated(run)]
    elif not lines:
        lines = [("warn", "Not started, or stopped at once: nothing has been logged yet.")]
    warnings = sorted({text for row in run.probe_rows for text in row.warnings})
    lines += [("warn", f"Probe: {text}") for text in warnings]
    lost = sum(not math.isfinite(row.accuracy) for row in run.probe_rows)
    if lost:
        lines.append(("bad", f"Accuracies that are not numbers, left out of the means: {lost}."))
    lines = lines or [("good", _reassurance(run))]
    if run.metrics and not run.training:
        lines.append(("warn", "Training has not finished: this is how far it has come."))
    return lines


def _reassurance(run: RunRecord) -> str:
    """Only what could be checked is called fine."""
    fine = ["the loss is finite"]
    if start_line(run) is not None and math.isfinite(last(run, "mi_ceiling")):
        fine.append("it has left its starting line")
    if math.isfinite(last(run, "effective_rank")):
        fine.append("the embeddings have not collapsed")
    return f"No alarm: {listing(fine)}."


def _finite(run: RunRecord) -> list[tuple[str, str]]:
    _, loss = series(run, "loss")
    count = max(number(run.training.get("nonfinite_steps", 0)), int((~np.isfinite(loss)).sum()))
    if not count > 0:
        return []
    times = "in one step" if count == 1 else f"in {count:.0f} steps"
    advice = "a lower learning rate, a higher temperature or full precision is worth a try"
    if run.diverged is None:
        return [("bad", f"Loss or gradient was not finite {times}: {advice}.")]
    ended = f"Loss or gradient was not finite at step {run.diverged}, where training ended"
    return [("bad", f"{ended}; what is left is {_left_with(run)}. {advice.capitalize()}.")]


def _chance(run: RunRecord) -> list[tuple[str, str]]:
    start, ceiling = start_line(run), last(run, "mi_ceiling")
    if start is None or not math.isfinite(ceiling) or not math.isfinite(last(run, "loss")):
        return []
    if abs(last(run, "loss") - start) > 0.02 * ceiling:
        return []
    line = f"The loss stands at its starting line ({start:.2f}), where positives and negatives"
    return [
        (
            "bad",
            f"{line} score alike: not learning, or collapsed. Try a lower learning rate or"
            " longer warm-up, and check that the two views show the same image.",
        )
    ]


def _rank(run: RunRecord) -> list[tuple[str, str]]:
    rank = last(run, "effective_rank")
    if rank < 1.5:
        text = "The embeddings have collapsed to one direction (effective rank {:.1f})."
    elif rank < 5:
        text = "The effective rank is low ({:.1f}): the embeddings use few directions."
    else:
        return []
    return [("bad" if rank < 1.5 else "warn", text.format(rank))]


def _saturated(run: RunRecord) -> list[tuple[str, str]]:
    lines = []
    reading, ceiling = last(run, "mi"), last(run, "mi_ceiling")
    if last(run, "contrastive_accuracy") > 0.99:
        lines.append(
            "Nearly every positive beats all its negatives: the task has become easy and teaches"
            " little more. Stronger augmentation or more negatives make it harder."
        )
    if reading > 0.95 * ceiling:
        lines.append(
            f"The mutual-information reading touches its ceiling, log K = {ceiling:.2f} nats:"
            " the truth may lie anywhere above. A larger batch raises the ceiling."
        )
    return [("warn", text) for text in lines]


def protocol_notes(groups: Sequence[Group]) -> list[Note]:
    """Warnings about numbers that must not be compared, or that a probe may have spoiled."""
    found = []
    for data in dict.fromkeys(group.data for group in groups):
        runs = [run for g in groups if g.data == data for run in g.runs if run.card]
        differing = sorted(
            key
            for key in {key for run in runs for key in run.card}
            if not any(word in key for word in ("hash", "seed", "feature_dim"))
            and len({repr(run.card.get(key)) for run in runs}) > 1
        )
        if differing:
            keys = listing([key.replace("_", " ") for key in differing])
            text = f"The probes followed different protocols ({keys}); do not compare their numbers"
            found.append(Note("bad", listing([run.name for run in runs]), f"{text}."))
    for group in groups:
        seeds = [run.setting("seed") for run in group.runs]
        if len(set(map(repr, seeds))) < len(seeds):
            text = f"Several runs share one seed, so {repeats(group)} are fewer repeats than that."
            found.append(Note("warn", listing([run.name for run in group.runs]), text))
        for run in group.runs:
            before, after = (
                next((v for k, v in run.card.items() if "hash" in k and when in k), None)
                for when in ("before", "after")
            )
            if before != after:
                text = "The encoder changed while it was probed (its hash differs): not frozen."
                found.append(Note("bad", run.name, text))
    return found
