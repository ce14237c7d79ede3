"""``relatum certify``: will classes be told apart with these embeddings, and what limits it?"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import Float, Float64
from rich.console import Console

from ..data import ImageTable
from ..latent_class import TransferCertificate, certify
from ..latent_class.certificate.drawing import steps
from ..latent_class.certificate.meanings import DIAGNOSTICS, GROUPS
from ..probes import extract_features
from ..report.certificate_page import certificate_page
from ..runs import Run, atomic_write, environment, strict_json
from ..settings import POSITIONAL, check_choices, check_seed, choice
from ..surrogates import SURROGATES
from .embeddings import Embeddings, on_sphere, read_embeddings
from .images import read_settings
from .images.resolve import found_device
from .inputs import check_alone, check_moved, check_run_images, load_run_images, run_encoder

__all__ = ["Certify", "main"]

RUN_TEMPERATURE: Final = 0.5  # of the cosine critic that trains


@dataclass(frozen=True)
class Certify:
    """Say how well classes will be told apart with an encoder, what is certain, and what limits it.

    From labelled embeddings: the error of the class means, the risks that the theory of latent
    classes compares it with, and a bound on it that holds with the stated probability. Without
    labels, from pairs of class mates: the bound. The rows must be new to the encoder.

    Example: relatum certify embeddings.npz --normalize --temperature 0.5 --html certificate.html
    """

    subject: Path = field(metadata=POSITIONAL)
    """An npz file with `features` and `labels` (optional: `ids`, `groups`, `pairs`, `negatives`,
    `split`), as `relatum embed` writes; or a run directory of `relatum train images`."""

    part: str = choice("test", ("test", "train", "all"))
    """Which rows of a run, or of a file with `split`. Only those that the encoder was not trained
    on can certify anything."""

    labels: bool = True
    """Use the labels. --no-labels: from `pairs` alone, row i a class mate of row i."""

    loss: str = choice("hinge", SURROGATES)
    """hinge: max(0, 1 + t); logistic: log2(1 + exp t), t the negative score less the positive."""

    normalize: bool | None = None
    """Scale rows to length 1: scores are cosines. Default: no for a file, whose embeddings are used
    as given; yes for a run."""

    temperature: float | None = None
    """Divides the scores. The bounds depend on it: it is the scale at which a margin of 1 is large
    or small, so choose it on other data. Default: 1 for a file, 0.5 for a run."""

    radius: float | None = None
    """A bound on the length of a row, known before the data; with --normalize it is 1. Without one
    there are estimates and nothing is certified."""

    delta: float = 0.05
    """Probability that the certified bound fails."""

    k: str = "1,10"
    """Numbers of negatives to report, separated by commas."""

    block: str = "1,2,5,10,50"
    """Few-shot curve: numbers of labels per class."""

    tau_lower: float = 0.0
    """--no-labels: the least probability that two things are of one class; 0 is always right."""

    level: float = 0.95
    """Coverage of the intervals of the lines."""

    seed: int = 0
    """Of all choices of rows. Fix it beforehand: the best of several is no certificate."""

    data: str | None = None
    """Run: where its images lie now, if they have moved."""

    device: str = "cpu"
    """Run: where features are computed: auto (cuda where there is one, else cpu), cpu, cuda or
    cuda:1."""

    json: Path | None = None
    """Write everything to this file; a run also gets results/certificate.json for the report."""

    html: Path | None = None
    """Write one self-contained page with figures and explanations to this file."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_seed("seed", self.seed)
        for name in ("temperature", "radius"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be a positive number, got {value}")
        for name in ("delta", "level"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} must be between 0 and 1, got {getattr(self, name)}")
        if not 0 <= self.tau_lower < 1:
            raise ValueError(f"tau_lower must be in [0, 1), got {self.tau_lower}")
        if self.labels and self.tau_lower:
            raise ValueError("tau_lower belongs to --no-labels: labels tell the probability itself")
        for name in ("k", "block"):
            whole_numbers(name, getattr(self, name))


def whole_numbers(name: str, text: str) -> tuple[int, ...]:
    """Numbers of at least 1, separated by commas.

    Example:
        >>> whole_numbers("k", "1, 10")
        (1, 10)
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdigit() and int(word) for word in words):
        raise ValueError(f"{name} must be whole numbers such as 1,10, got {text!r}")
    return tuple(int(word) for word in words)


def main(settings: Certify, console: Console | None = None) -> TransferCertificate:
    """Prints the certificate, and writes the files asked for.

    Raises:
        ValueError: If the rows cannot be used.
        RunError: If the run is missing, has no checkpoint, or its images have changed.
    """
    check_alone("certify")
    console = console or Console()
    for path in (settings.json, settings.html):
        if path is not None and path.is_dir():
            raise ValueError(f"{path} is a folder; name a file in it")
    run = Run.open(settings.subject) if settings.subject.is_dir() else None
    settings = _resolved(settings, run is not None)
    with console.status("reading"):
        given = _read(settings) if run is None else _embedded(settings, run, console)
    certificate = _certified(settings, given, console)
    record = _record(settings, certificate)
    # Files first: a reader that stops early, such as head, ends the printing.
    if run is not None and settings.part == "test":
        run.write_result("certificate", "certificate", record)
    if settings.json is not None:
        atomic_write(settings.json, strict_json(record).encode() + b"\n")
    if settings.html is not None:
        atomic_write(settings.html, certificate_page(record).encode())
    console.out(str(certificate), highlight=False)
    for name, path in (("json", settings.json), ("page", settings.html)):
        if path is not None:
            console.out(f"{name}: {path}", highlight=False)
    return certificate


def _resolved(settings: Certify, run: bool) -> Certify:
    default = RUN_TEMPERATURE if run else 1.0
    return dataclasses.replace(
        settings,
        normalize=run if settings.normalize is None else settings.normalize,
        temperature=default if settings.temperature is None else settings.temperature,
        device=found_device(settings.device),
    )


def _read(settings: Certify) -> Embeddings:
    """The rows of a file, a part of them where it says which are which."""
    given = read_embeddings(settings.subject)
    if settings.labels and given.labels is None:
        raise ValueError(
            f"{settings.subject} has no `labels`; with `pairs` of class mates, --no-labels "
            "certifies without them"
        )
    if not settings.labels and given.pairs is None:
        raise ValueError(
            f"{settings.subject} has no `pairs`, of which row i is a class mate of row i of the "
            "features; --no-labels needs them"
        )
    if given.split is None and settings.part == "train":
        raise ValueError(
            f"{settings.subject} has no `split`, so nobody knows which rows are for training: "
            "leave out --part, and all are used"
        )
    given = given if settings.part == "all" else given.part(settings.part)
    if not len(given.features):
        raise ValueError(f"{settings.subject} has no rows whose `split` is {settings.part!r}")
    return given


def _embedded(settings: Certify, run: Run, console: Console) -> Embeddings:
    """What the encoder of a run makes of its images."""
    if not settings.labels:
        raise ValueError("--no-labels needs a file with `pairs`; a run has images and labels alone")
    trained = read_settings(run)
    check_moved(run, settings.data)
    encoder = run_encoder(run, settings.device)
    splits = load_run_images(trained, settings.data)
    check_run_images(run, splits, settings.data)
    tables: list[ImageTable] = [splits.train, splits.test]
    if settings.part != "all":
        tables = [splits.test if settings.part == "test" else splits.train]
    count = sum(map(len, tables))
    console.out(f"features of {count:,} {settings.part} images of {run.path}", highlight=False)
    batches = chain.from_iterable(table.batches(workers=trained.workers) for table in tables)
    return Embeddings(
        extract_features(encoder, batches, device=settings.device),
        labels=np.concatenate([table.labels.numpy() for table in tables]),
        classes=np.array(splits.train.classes, dtype=np.str_),
    )


def _certified(settings: Certify, given: Embeddings, console: Console) -> TransferCertificate:
    given = given.labelled() if settings.labels else given
    groups = given.groups
    if groups is None and given.ids is not None and len(np.unique(given.ids)) < len(given.ids):
        console.out("note: rows with one id count as one group", highlight=False)
        groups = given.ids
    n, width = given.features.shape
    with console.status(f"certifying {n:,} rows of {width} numbers; time grows with n²"):
        return certify(
            _scaled(settings, given.features),
            given.labels if settings.labels else None,
            None if given.pairs is None else _scaled(settings, given.pairs),
            None if given.negatives is None else _scaled(settings, given.negatives),
            loss=settings.loss,
            radius=_radius(settings),
            tau_lower=settings.tau_lower,
            delta=settings.delta,
            k=whole_numbers("k", settings.k),
            block=whole_numbers("block", settings.block),
            groups=groups,
            level=settings.level,
            seed=settings.seed,
        )


def _scaled(settings: Certify, x: Float[np.ndarray, "n d"]) -> Float64[np.ndarray, "n d"]:
    temperature = settings.temperature or 1.0
    if settings.normalize:
        return on_sphere(x, temperature)
    return np.asarray(x.astype(np.float64) / math.sqrt(temperature))


def _radius(settings: Certify) -> float | None:
    """The bound on the length of a scaled row."""
    radius = 1.0 if settings.normalize else settings.radius
    return None if radius is None else radius / math.sqrt(settings.temperature or 1.0)


def _record(settings: Certify, certificate: TransferCertificate) -> dict[str, Any]:
    """Everything there is to tell, as plain values: what ``--json`` writes and pages show."""
    return {
        "data": settings.subject.name or str(settings.subject),
        "part": settings.part,
        "normalize": settings.normalize,
        "temperature": settings.temperature,
        "certificate": certificate.to_dict(),
        "groups": {str(group): heading for group, heading in GROUPS.items()},
        "diagnostics": dict(DIAGNOSTICS),
        "waterfall": [
            {"step": name, "start": start, "end": end, "kind": kind}
            for name, start, end, kind in steps(certificate)
        ],
        "environment": environment(),
    }
