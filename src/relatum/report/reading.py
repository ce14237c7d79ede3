"""What the report knows about each run, and which runs are repeats of one another.

Runs that differ only in their seed (and in where and on what they ran) are repeats of one
experiment and form a `Group`; everything that is averaged is averaged over a group. Two runs of
one objective with different settings are *not* averaged: their labels name the difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from jaxtyping import Float

from ..runs import Run, RunError

__all__ = [
    "Column",
    "Group",
    "ProbeRow",
    "RunRecord",
    "group",
    "last",
    "number",
    "open_records",
    "series",
]

# Settings that change no result, or only say which repeat it was.
_REPEAT_SETTINGS = frozenset(
    "seed out resume dry_run device threads workers block_size log_every checkpoint_every"
    " tensorboard on_nonfinite".split()
)

_PROBES = {
    "linear": "Linear",
    "linear-sgd": "Linear by SGD",
    "knn": "Nearest neighbours",
    "class-means": "Class means",
    "fine-tuning": "Fine-tuned",
}
_SHOWS_ALL = {"linear", "linear-sgd", "fine-tuning"}  # of these there may be columns of few labels


class Column(NamedTuple):
    """One kind of probe: its name, how many labels of each class it saw or which share of them."""

    probe: str
    labels_per_class: int | None = None
    label_fraction: float | None = None

    @property
    def title(self) -> str:
        """The column's heading in plain words."""
        head = _PROBES.get(self.probe, self.probe)
        if self.labels_per_class is not None:
            return f"{head}, {self.labels_per_class} labels a class"
        if self.label_fraction is not None:
            return f"{head}, {100 * self.label_fraction:g} % of the labels"
        return f"{head}, all labels" if self.probe in _SHOWS_ALL else head

    @property
    def phrase(self) -> str:
        """The same, inside a sentence."""
        known = {"linear": "a linear probe", "knn": "a nearest-neighbour probe"}
        few = self.labels_per_class is not None or self.label_fraction is not None
        labels = self.title.rpartition(", ")[2] if few else "all labels"
        return f"{known.get(self.probe, f'a {self.probe} probe')} on {labels}"

    @property
    def order(self) -> tuple[int, str, float, float]:
        """Sorts linear before nearest neighbours before class means, few labels first."""
        rank = list(_PROBES).index(self.probe) if self.probe in _PROBES else len(_PROBES)
        few = math.inf if self.labels_per_class is None else float(self.labels_per_class)
        return rank, self.probe, few, 1.0 if self.label_fraction is None else self.label_fraction


class ProbeRow(NamedTuple):
    """One measured accuracy: of which features, by which probe, with which probe seed."""

    features: str
    column: Column
    seed: int
    accuracy: float
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class RunRecord:
    """One run, read once: settings by dotted name, log, and results by kind."""

    name: str
    config_text: str
    settings: Mapping[str, Any]
    environment: Mapping[str, Any]
    metrics: Sequence[Mapping[str, Any]]
    results: Mapping[str, tuple[str, Any]]

    def result(self, kind: str) -> Any:
        """The payload of the result of this `kind`, or None where it has not been made."""
        for found, payload in self.results.values():
            if found == kind:
                return payload
        return None

    def setting(self, name: str) -> Any:
        """The setting called `name`, at the top or, failing that, inside a section."""
        if name in self.settings:
            return self.settings[name]
        inner = [value for key, value in self.settings.items() if key.endswith(f".{name}")]
        return inner[0] if inner else None

    @property
    def training(self) -> Mapping[str, Any]:
        """The result of training; empty where training has not ended."""
        payload = self.result("training")
        return payload if isinstance(payload, Mapping) else {}

    @property
    def diverged(self) -> int | None:
        """The step at which the loss was no longer finite and training ended; None: it never was.

        Counted from 0, so it is the number of steps that were finished.
        """
        step = self.training.get("nonfinite_step")
        return step if isinstance(step, int) else None

    @property
    def good_step(self) -> int | None:
        """The step of the last checkpoint of a run that diverged, where its settings tell."""
        if not self.diverged:
            return self.diverged
        every = self.setting("checkpoint_every")
        return self.diverged // every * every if isinstance(every, int) and every > 0 else None

    @property
    def objective(self) -> str:
        """The objective's name as the papers write it: abbreviations in capitals."""
        name = self.training.get("objective", self.setting("objective"))
        if isinstance(name, Mapping):
            name = name.get("name")
        if name is None:
            name = self.settings.get("objective.name", "objective not recorded")
        return name.upper() if len(name) <= 3 and name.isalpha() else str(name)

    @property
    def data(self) -> str:
        """What was trained on, without the folder it lay in."""
        data = str(self.setting("data") or "data not recorded")
        prefix, colon, _ = data.partition(":")
        return prefix if colon else " + ".join(Path(part).name for part in data.split(","))

    @property
    def probe_rows(self) -> list[ProbeRow]:
        """All measured accuracies, as fractions; empty where the run has not been probed."""
        payload = self.result("probe") or {}
        return [_probe_row(row, self.name) for row in payload.get("rows", [])]

    @property
    def card(self) -> Mapping[str, Any]:
        """The protocol card of the probes; empty where the run has not been probed."""
        return (self.result("probe") or {}).get("card") or {}


@dataclass(frozen=True)
class Group:
    """Runs that repeat one experiment. `slot` numbers its colour and dash pattern."""

    label: str
    slot: int
    runs: tuple[RunRecord, ...]

    @property
    def objective(self) -> str:
        """The objective of all its runs."""
        return self.runs[0].objective

    @property
    def data(self) -> str:
        """The data of all its runs."""
        return self.runs[0].data


def number(value: object) -> float:
    """A logged number; what strict JSON wrote as ``{"value": null, "reason": "nan"}`` is NaN.

    Example:
        >>> number(2), number({"value": None, "reason": "-inf"}), number(None)
        (2.0, -inf, nan)
    """
    if isinstance(value, Mapping) and value.get("reason") in ("nan", "inf", "-inf"):
        return float(value["reason"])
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return math.nan


def series(
    run: RunRecord, key: str
) -> tuple[Float[np.ndarray, " steps"], Float[np.ndarray, " steps"]]:
    """The logged values of `key` against their steps; steps that do not log it are left out."""
    lines = [line for line in run.metrics if line.get(key) is not None]
    steps = np.array([number(line["step"]) for line in lines])
    return steps, np.array([number(line[key]) for line in lines])


def last(run: RunRecord, key: str) -> float:
    """The mean of the last tenth of what was logged: steadier than the last line alone."""
    _, values = series(run, key)
    tail = values[-max(1, len(values) // 10) :]
    tail = tail[np.isfinite(tail)]
    return float(tail.mean()) if tail.size else math.nan


def open_records(paths: Sequence[Path | str]) -> list[RunRecord]:
    """Reads run directories; where two have one name, the names gain the folder they lie in.

    Raises:
        RunError: If there is none, one is given twice, one is not a run directory, or a file in
            it cannot be read as what it is.
    """
    places = [Path(path).resolve() for path in paths]
    if not places:
        raise RunError("a report needs at least one run directory, got none")
    twice = [str(path) for i, path in enumerate(places) if path in places[:i]]
    if twice:
        raise RunError(f"a run must be given once, or it would count as a repeat; twice: {twice}")
    names = [place.name for place in places]
    unique = [
        f"{place.parent.name}/{name}" if names.count(name) > 1 else name
        for place, name in zip(places, names, strict=True)
    ]
    return [_open(path, name) for path, name in zip(paths, unique, strict=True)]


def _open(path: Path | str, name: str) -> RunRecord:
    run = Run.open(path)
    try:
        tree = yaml.safe_load(run.config_text)
    except yaml.YAMLError as error:
        raise RunError(f"{run.path / 'config.yaml'} is not valid YAML: {error}") from None
    if not isinstance(tree, Mapping | None):
        raise RunError(f"{run.path / 'config.yaml'} must hold named settings, got {tree!r}")
    results = {}
    for stem, record in run.results():
        if not isinstance(record, Mapping) or not {"kind", "payload"} <= set(record):
            raise RunError(f"{run.path}/results/{stem}.json has no 'kind' and 'payload'")
        results[stem] = (str(record["kind"]), record["payload"])
    return RunRecord(
        name=name,
        config_text=run.config_text,
        settings=dict(_flatten(tree or {})),
        environment=run.environment,
        metrics=run.metrics(),
        results=results,
    )


def group(runs: Sequence[RunRecord]) -> list[Group]:
    """Collects repeats: runs with equal settings, apart from the seed and where they ran."""
    members: dict[tuple[str, ...], list[RunRecord]] = {}
    for run in runs:
        identity = sorted(f"{key}={value!r}" for key, value in _identity(run).items())
        members.setdefault((run.objective, *identity), []).append(run)
    families = [tuple(members[key]) for key in members]
    labels = _labels([family[0] for family in families])
    order = sorted(range(len(families)), key=lambda i: (families[i][0].data, labels[i]))
    return [
        Group(labels[i], slot, tuple(sorted(families[i], key=_by_seed)))
        for slot, i in enumerate(order)
    ]


def _by_seed(run: RunRecord) -> tuple[float, str]:
    seed = number(run.setting("seed"))
    return (math.inf if math.isnan(seed) else seed), run.name


def _identity(run: RunRecord) -> dict[str, Any]:
    return {
        key: value
        for key, value in run.settings.items()
        if key.rpartition(".")[2] not in _REPEAT_SETTINGS
    }


def _labels(heads: Sequence[RunRecord]) -> list[str]:
    several_data = len({head.data for head in heads}) > 1
    labels = []
    for head in heads:
        label = f"{head.objective} on {head.data}" if several_data else head.objective
        twins = [h for h in heads if (h.objective, h.data) == (head.objective, head.data)]
        mine = _identity(head)
        keys = sorted(
            {key for twin in twins for key in {*mine, *_identity(twin)}}
            - {key for key in mine if all(_identity(t).get(key) == mine[key] for t in twins)}
        )
        differences = [f"{key.replace('_', ' ')} {mine.get(key, 'not set')}" for key in keys[:3]]
        more = [f"and {len(keys) - 3} more"] if len(keys) > 3 else []
        labels.append(", ".join([label, *differences, *more]))
    return labels


def _flatten(tree: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{name}.")
        else:
            yield name, value


def _probe_row(row: Mapping[str, Any], name: str) -> ProbeRow:
    try:
        column = Column(str(row["probe"]), row.get("labels_per_class"), row.get("label_fraction"))
        warnings = tuple(str(text) for text in row.get("warnings") or ())
        accuracy = number(row["accuracy"])
        return ProbeRow(str(row["features"]), column, int(row["seed"]), accuracy, warnings)
    except KeyError as error:
        raise RunError(f"a row of the probe result of {name} has no {error}: {row}") from None
