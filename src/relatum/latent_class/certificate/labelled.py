"""The certificate of labelled embeddings: the whole waterfall."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float64

from ..bounds import Bound
from ..estimates import Estimate
from ..intervals import disjoint_triplets
from ..pair_tables import PairTable, pair_table
from ..sample import LabelledSample
from ..sample_blocks import row_places
from .advice import DOES_NOT_SAY, VIEWS, advise
from .diagnostics import class_mates, class_traces, describe
from .few_shot import few_shot_curve
from .inputs import Inputs, drawn, first_of_each
from .lines import (
    Numbers,
    class_lines,
    costly_pairs,
    one_shot_lines,
    spread_lines,
)
from .negatives import negative_lines
from .pairs import view_lines
from .records import lines_of
from .result import TransferCertificate
from .trust import assumptions, warnings
from .value import Triplets

__all__ = ["certify_labelled"]

# Rows for what is quadratic in them, and for the k-negative risks, which cost more.
_ROWS, _FEW = 10_000, 1000


def certify_labelled(
    inputs: Inputs, sample: LabelledSample, training: Bound | None
) -> TransferCertificate:
    """The lines by theme, the certified value, and what follows from them."""
    settings, notes, whole = inputs.settings(), list(inputs.notes), len(inputs.rows)
    inputs, sample = _thinned(inputs, sample, notes)
    table = pair_table(_some(sample, _ROWS, inputs.seed), inputs.loss)
    found, more = _numbers(inputs, sample, table)
    curve, curve_notes = few_shot_curve(sample, inputs.block, inputs.loss, seed=inputs.seed)
    mates, views = class_mates(sample, inputs.seed), None
    if inputs.pairs is not None:
        near = drawn(len(mates), _ROWS, inputs.seed)
        pair_numbers, views = view_lines(
            inputs.rows[near], inputs.pairs[near], mates[near], inputs.loss, inputs.level
        )
        found |= pair_numbers
    if training is not None:
        found["training_gap"] = training
    looks, look_notes = _looks(inputs, sample, mates)
    lines, costly, triplets = lines_of(found), costly_pairs(table), _triplets(inputs, sample)
    value = triplets.certified()
    return TransferCertificate(
        *value,
        lines=lines,
        costly=costly,
        few_shot=curve,
        diagnostics=looks,
        assumptions=assumptions(inputs, views=views),
        advice=advise(lines, costly, curve, triplets.bound, value.value),
        warnings=warnings(
            inputs,
            value,
            views=views,
            thinned=len(inputs.rows) < whole,
            unsolved="supervised_high" in found and "supervised_low" not in found,
        ),
        notes=(*notes, *more, *curve_notes, *look_notes),
        does_not_say=DOES_NOT_SAY if inputs.pairs is None else (VIEWS, *DOES_NOT_SAY),
        settings=settings,
    )


def _looks(
    inputs: Inputs, sample: LabelledSample, mates: Float64[np.ndarray, "n d"]
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Group 9: of the given pairs, or of classes where there are none."""
    if inputs.pairs is not None:
        found, notes = describe(inputs.rows, inputs.pairs, None, inputs.seed)
    else:
        found, notes = describe(inputs.rows, mates, sample.codes, inputs.seed)
    return {**found, **class_traces(sample)}, notes


def _thinned(
    inputs: Inputs, sample: LabelledSample, notes: list[str]
) -> tuple[Inputs, LabelledSample]:
    """One row of each group and class, with the groups as units of the standard errors."""
    if inputs.groups is None:
        return inputs, sample
    codes, groups = sample.codes, inputs.groups
    kept = first_of_each(groups * len(sample.classes) + codes, np.random.default_rng(inputs.seed))
    few = sample.keep(kept)
    if few.counts.min() < 3:
        at = int(few.counts.argmin())
        raise ValueError(
            f"groups must leave every class rows of 3 groups or more, class "
            f"{few.classes[at]!r} has {few.counts[at]}: rows of one group say nothing about another"
        )
    notes.append(
        f"one row of each group and class is used, {kept.sum():,} of {len(kept):,}; standard "
        "errors leave out whole groups, and the certified triplets use a group once"
    )
    _, units = np.unique(groups[kept], return_inverse=True)
    thin = replace(few, units=units)
    return replace(inputs.keep(kept), sample=thin), thin


def _some(sample: LabelledSample, most: int, seed: int) -> LabelledSample:
    """About so many rows, each class keeping its share, and three rows at least."""
    if len(sample.codes) <= most:
        return sample
    quota = np.maximum(sample.counts * most // len(sample.codes), 3)
    places = row_places(sample.codes, np.random.default_rng(seed))
    return sample.keep(places < quota[sample.codes])


def _numbers(
    inputs: Inputs, sample: LabelledSample, table: PairTable
) -> tuple[Numbers, tuple[str, ...]]:
    """Groups 1 to 7."""
    loss, level, seed = inputs.loss, inputs.level, inputs.seed
    found, notes = class_lines(sample, loss, level, seed)
    mean_risk = found["mean_classifier_risk"]
    assert isinstance(mean_risk, Estimate)
    spreads, spread_notes = spread_lines(sample, loss, level, mean_risk.value)
    few = _some(sample, _FEW, seed)
    many, many_notes = negative_lines(
        sample, few, inputs.k, loss, radius=inputs.radius, level=level, seed=seed
    )
    if len(few.codes) < len(sample.codes):
        many_notes = (*many_notes, f"risks with k negatives from {len(few.codes):,} rows")
    n = len(table.anchor)
    if n < len(sample.codes):
        notes = (*notes, f"risks of triplets (3 to 5) from {n:,} rows, classes in proportion")
    found |= {**one_shot_lines(table, mean_risk, level), **spreads, **many}
    return found, (*notes, *spread_notes, *many_notes)


def _triplets(inputs: Inputs, sample: LabelledSample) -> Triplets:
    """One row of each group, at the class frequencies of all rows."""
    if sample.units is not None:
        single = sample.keep(first_of_each(sample.units, np.random.default_rng(inputs.seed)))
        sample = replace(single, prior=sample.law)

    def draw(factor: float) -> Float64[np.ndarray, " m"] | None:
        scaled = replace(sample, features=factor * sample.features)
        return disjoint_triplets(scaled, inputs.loss, seed=inputs.seed)

    return Triplets(draw, inputs.loss, inputs.radius, inputs.delta, sample.tau)
