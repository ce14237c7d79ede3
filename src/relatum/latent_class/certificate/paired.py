"""The certificate of pairs alone: no labels, and a lower bound on the collision probability."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float64

from ..bounds import Bound
from ..estimates import Estimate
from .advice import DOES_NOT_SAY, VIEWS, advise
from .diagnostics import describe
from .inputs import Inputs, drawn, first_of_each
from .lines import Numbers
from .pairs import pair_risk, pair_traces
from .records import lines_of
from .result import TransferCertificate
from .trust import assumptions, warnings
from .value import Triplets, pair_triplets

__all__ = ["certify_paired"]

# Pairs for the contrastive risk, whose time is quadratic.
_ROWS = 10_000


def certify_paired(inputs: Inputs, training: Bound | None) -> TransferCertificate:
    """The contrastive risk of the pairs, and what follows for classes that nobody named."""
    settings, notes, whole = inputs.settings(), list(inputs.notes), len(inputs.rows)
    if inputs.groups is not None:
        inputs = inputs.keep(first_of_each(inputs.groups, np.random.default_rng(inputs.seed)))
        notes.append(f"one pair of each group is used: {len(inputs.rows):,} of {whole:,}")
    rows, pairs = inputs.rows, inputs.pairs
    assert pairs is not None
    if len(rows) < 4:
        raise ValueError(f"pairs must be 4 or more, of different groups, got {len(rows)}")
    if len(rows) > _ROWS:
        notes.append(f"the contrastive risk is read from {_ROWS:,} pairs drawn at random")
    triplets = _triplets(inputs, rows, pairs)
    some = drawn(len(rows), _ROWS, inputs.seed)
    lines = lines_of(_numbers(inputs, rows[some], pairs[some], training))
    diagnostics, more = describe(rows, pairs, None, inputs.seed)
    value = triplets.certified()
    return TransferCertificate(
        *value,
        lines=lines,
        diagnostics={**diagnostics, **pair_traces(rows, pairs)},
        assumptions=assumptions(inputs),
        advice=advise(lines, scale=triplets.bound, certified=value.value),
        warnings=warnings(inputs, value),
        notes=(*notes, *more),
        does_not_say=(VIEWS, *DOES_NOT_SAY),
        settings=settings,
    )


def _triplets(
    inputs: Inputs, rows: Float64[np.ndarray, "n d"], pairs: Float64[np.ndarray, "n d"]
) -> Triplets:
    def draw(factor: float) -> Float64[np.ndarray, " m"]:
        others = None if inputs.negatives is None else factor * inputs.negatives
        return pair_triplets(factor * rows, factor * pairs, others, inputs.loss, inputs.seed)

    return Triplets(draw, inputs.loss, inputs.radius, inputs.delta, inputs.tau_lower, lower=True)


def _numbers(
    inputs: Inputs,
    rows: Float64[np.ndarray, "n d"],
    pairs: Float64[np.ndarray, "n d"],
    training: Bound | None,
) -> Numbers:
    others = inputs.negatives
    if others is not None:
        others = others[drawn(len(others), _ROWS, inputs.seed)]
    risk = pair_risk(rows, pairs, others, inputs.loss, inputs.level)
    found: Numbers = {"contrastive_risk": risk}
    if risk.value <= 1:  # above 1 a lower bound on τ bounds nothing
        found["certificate_point"] = _less_collisions(risk, inputs.tau_lower)
    if training is not None:
        found["training_gap"] = training
    return found


def _less_collisions(risk: Estimate, tau: float) -> Estimate:
    """(L − τ) / (1 − τ), with its interval."""
    ends = {name: getattr(risk, name) - tau for name in ("value", "low", "high")}
    return replace(risk, **ends).scaled(1 / (1 - tau))
