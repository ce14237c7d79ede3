"""The lines of a certificate from labelled embeddings: the estimators of this room, by theme."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from jaxtyping import Float64

from ...surrogates import SURROGATES
from ..bounds.chain import collision_price
from ..bounds.margin import margin_bound
from ..bounds.one_shot import jensen_bound
from ..bracket import supervised_bracket
from ..estimated_spreads import (
    estimated_directional_spread,
    estimated_score_variances,
    estimated_spread,
    estimated_trace,
)
from ..estimates import Estimate, normal_estimate, pair_risks
from ..leave_one_out import (
    leave_one_out_error,
    leave_one_out_margins,
    leave_one_out_risk,
    leave_one_out_top_error,
)
from ..pair_tables import PairTable
from ..resampling import PARTS, Part, jackknife, weighted_sum
from ..sample import LabelledSample
from .records import Number, PairCost

__all__ = ["Numbers", "class_lines", "costly_pairs", "one_shot_lines", "spread_lines"]

Numbers = dict[str, Number]

# Rows of a class and class pairs for the best linear classifiers: each pair is a linear program.
_BRACKET = {"rows": 100, "tasks": 15}
_COSTLY = 20
# What a table of class pairs holds for each row.
_PARTS = ("anchor", "positive", "negative")
# At most: numbers in all class covariances, multiplications for all their widest directions, and
# for their quadratic forms in all rows.
_COVARIANCES, _WIDEST, _FORMS = 5 * 10**7, 3 * 10**8, 4 * 10**11


def class_lines(
    sample: LabelledSample, loss: str, level: float, seed: int
) -> tuple[Numbers, tuple[str, ...]]:
    """The facts; the mean classifier and the best linear one."""
    found: Numbers = {
        "pairwise_error": leave_one_out_error(sample, level=level),
        "top1_error": leave_one_out_top_error(sample, level=level),
        "mean_classifier_risk": leave_one_out_risk(sample, loss, level=level),
    }
    if sample.counts.min() < 6:
        return found, ("best linear classifier left out: a class has fewer than 6 rows",)
    bracket = supervised_bracket(sample, loss, level=level, seed=seed, **_BRACKET)
    if not math.isnan(bracket.low.value):
        found["supervised_low"] = bracket.low
    found["supervised_high"] = bracket.high
    return found, tuple(x for x in bracket.low.notes if x not in sample.notes)


def one_shot_lines(table: PairTable, mean_risk: Estimate, level: float) -> Numbers:
    r"""The one-shot risk, what collisions cost, and the contrastive risk.

    A collision costs 1 at least, so 1 is taken from each loss within a class:
    :math:`(L_{un} - \tau) / (1 - \tau)` is then a weighted sum of the table like the others.
    """
    risks = pair_risks(table, level=level)
    over = _less_collisions(table)

    def estimate(part: Part) -> Estimate:
        value = weighted_sum(part(table.sample.weights), over.values)
        return normal_estimate(value, jackknife(over, part), len(over.anchor), level=level)

    one_shot = risks.noncollision
    return {
        "noncollision_risk": one_shot,
        # Errors as of independent numbers: the two move together, so that is conservative.
        "jensen_gap": normal_estimate(
            one_shot.value - mean_risk.value,
            math.hypot(one_shot.standard_error, mean_risk.standard_error),
            one_shot.n,
            level=level,
        ),
        "collision_probability": risks.tau,
        "collision_excess": estimate(PARTS["collision"]),
        "collision_cost": estimate(lambda law: np.diag(np.diag(law)) / (1 - np.trace(law))),
        "contrastive_risk": risks.unsupervised,
        "certificate_point": estimate(lambda law: law / (1 - np.trace(law))),
    }


def _less_collisions(table: PairTable) -> PairTable:
    """The table of losses less 1 within a class."""
    codes, counts = table.sample.codes, table.sample.counts
    own = np.arange(len(codes)), codes
    terms = ((counts - 1) * (counts - 2))[codes]
    parts = {name: getattr(table, name).copy() for name in _PARTS}
    for part in parts.values():
        part[own] -= terms
    return replace(table, **parts)


def spread_lines(
    sample: LabelledSample, loss: str, level: float, mean_risk: float
) -> tuple[Numbers, tuple[str, ...]]:
    """What class variances allow the one-shot noise and the collisions to cost; margins."""
    classes, d = len(sample.classes), sample.features.shape[1]
    if classes * d**2 > _COVARIANCES:
        size = f"{classes} covariances of {d} x {d}"
        return {}, (f"lines of class variances left out (J, c' s, margins): {size}",)
    loss_constants, notes = SURROGATES[loss], []
    constant = loss_constants.collision
    found: Numbers = {
        "collision_price_directional": estimated_directional_spread(sample, level=level).scaled(
            constant
        ),
        "second_order_price": estimated_trace(sample, level=level).scaled(
            loss_constants.lipschitz / 4
        ),
    }
    if classes * d**3 <= _WIDEST:
        spread = estimated_spread(sample, level=level)
        found["collision_price"] = spread.scaled(constant)
        found["beta_spread"] = collision_price(sample.tau, loss, spread.value, None)
    else:
        notes.append(f"c' s left out: the widest directions of {classes} classes in {d} dimensions")
    if classes * len(sample.codes) * d**2 > _FORMS:
        return found, (*notes, f"J and margins left out: {classes} variances of every row's scores")
    scores, variances, law = _tasks(sample)
    found["jensen_bound"] = jensen_bound(mean_risk, variances, loss, law).terms["J"]
    margin = margin_bound(scores, variances, loss, law)
    found |= {"margin": margin.terms["gamma"], "margin_bound": margin}
    return found, tuple(notes)


def _tasks(
    sample: LabelledSample,
) -> tuple[Float64[np.ndarray, " m"], Float64[np.ndarray, " m"], Float64[np.ndarray, " m"]]:
    """The score m, the variance v and the probability of each point against each other class."""
    codes = sample.codes
    own = np.arange(len(codes)), codes
    variances = estimated_score_variances(sample)
    variances = variances + variances[own][:, None]
    law = (PARTS["noncollision"](sample.weights) / sample.counts[:, None])[codes]
    other = np.arange(law.shape[1]) != codes[:, None]
    return leave_one_out_margins(sample)[other], variances[other], law[other]


def costly_pairs(table: PairTable) -> tuple[PairCost, ...]:
    """Class pairs by their part of the one-shot risk, the most costly first, at most twenty."""
    sample = table.sample
    law = PARTS["noncollision"](sample.weights)
    parts = np.where(law > 0, law * table.values, 0)
    parts = parts + parts.T
    whole = parts.sum() / 2
    first, second = np.triu_indices(len(law), 1)
    order = np.argsort(-parts[first, second], kind="stable")[:_COSTLY]
    across, costs = PARTS["noncollision"], []
    for a, b in zip(first[order].tolist(), second[order].tolist(), strict=True):
        two = _between(table, a, b)
        risk = weighted_sum(across(two.sample.weights), two.values)
        share = float(parts[a, b] / whole) if whole > 0 else math.nan
        names = sample.classes[a], sample.classes[b]
        costs.append(PairCost(*names, risk, share, jackknife(two, across)))
    return tuple(costs)


def _between(table: PairTable, a: int, b: int) -> PairTable:
    """The table of two classes alone: no other row is in the risk between them."""
    sample = table.sample
    kept = np.isin(sample.codes, (a, b))
    prior = None
    if sample.prior is not None:
        prior = sample.prior[[a, b]] / sample.prior[[a, b]].sum()
    two = replace(
        sample.keep(kept),
        codes=(sample.codes[kept] == b).astype(np.int64),
        classes=(sample.classes[a], sample.classes[b]),
        prior=prior,
    )
    parts = {name: getattr(table, name)[kept][:, (a, b)] for name in _PARTS}
    return replace(table, sample=two, **parts)
