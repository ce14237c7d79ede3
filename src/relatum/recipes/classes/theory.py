"""What theory says of a trained encoder before held-out rows are seen, and what they say."""

from __future__ import annotations

import math
from typing import Any

import torch

from ...latent_class import (
    Bound,
    Estimate,
    block_bound,
    block_contraction,
    linear_complexity,
    mean_classifier_bound,
    mlp_complexity,
    trivial_complexity,
    tuple_bound,
    uniform_bound,
)
from ...models import BoundedEncoder
from ...surrogates import SURROGATES
from .populations import Measured, Population, Tuples
from .settings import TrainClasses

__all__ = ["class_complexity", "classes_record"]


def class_complexity(
    encoder: BoundedEncoder, tuples: int, settings: TrainClasses
) -> tuple[float, str]:
    r"""RAD of the losses of all encoders of this shape and norm, in closed form, and the way to it.

    Inputs have length 1 at most, so that it is a number before any data:

    * one layer: :func:`~relatum.latent_class.linear_complexity` with the Frobenius norm; block
      scores are those of triplets whose x⁺ and x⁻ are means, of length 1 at most as well;
    * more layers: :func:`~relatum.latent_class.mlp_complexity` of all inputs of the tuples, and
      from encoders to losses by contraction;
    * on the sphere: only that outputs are bounded, which is vacuous.
    """
    norms = encoder.frobenius_bounds()
    if norms is not None and len(norms) == 1:
        routes = linear_complexity(tuples, norms[0], settings.loss, k=settings.k)
        return routes["smallest"], "linear encoders"
    points, width = tuples * settings.rows_of_each, encoder.widths[-1]
    if norms is None:
        vectors, way = trivial_complexity(points, width, settings.radius), "any bounded encoders"
    else:
        # The sum of squared lengths of the inputs, at most their number.
        vectors = mlp_complexity([[math.sqrt(points)]], width, norms)
        way = f"networks of {len(norms)} layers"
    # With b = 1 the constant is that of any number of negatives.
    return block_contraction(vectors.high, settings.radius, settings.block, settings.loss), way


def classes_record(
    settings: TrainClasses,
    population: Population,
    encoder: BoundedEncoder,
    tuples: Tuples,
    empirical_risk: float,
    measured: Measured,
) -> dict[str, Any]:
    """Everything there is to tell, as plain values: the run's result."""
    complexity, way = class_complexity(encoder, len(tuples), settings)
    bound = uniform_bound(
        empirical_risk,
        complexity,
        len(tuples),
        settings.radius,
        settings.loss,
        delta=settings.delta,
        k=settings.k,
    )
    transfer = _transfer(bound.value, population, settings)
    nothing = float(SURROGATES[settings.loss].many(torch.zeros(settings.k)))
    return {
        "loss": settings.loss,
        "k": settings.k,
        "block": settings.block,
        "radius": settings.radius,
        "norm": settings.norm,
        "layers": settings.layers,
        "delta": settings.delta,
        "tuples": len(tuples),
        "fresh": tuples.fresh,
        "tau": population.tau,
        "classes": len(population.prior),
        "empirical_risk": empirical_risk,
        "complexity": complexity,
        "complexity_of": way,
        "risk_bound": bound.value,
        "risk_bound_terms": bound.terms,
        "risk_bound_vacuous": bound.value >= nothing,
        "risk_of_nothing": nothing,
        "risk": _plain(measured.risk),
        "transfer_bound": transfer.value,
        "transfer_bound_vacuous": transfer.vacuous,
        "transfer_from_measured": _transfer(measured.risk.value, population, settings).value,
        "mean_classifier_risk": _plain(measured.mean_classifier_risk),
        "pairwise_error": _plain(measured.pairwise_error),
        "measured_on": measured.rows,
    }


def _transfer(risk: float, population: Population, settings: TrainClasses) -> Bound:
    """The bound on the mean classifier, among the classes that a tuple brings."""
    if settings.block > 1:
        return block_bound(risk, population.tau)
    if settings.k > 1:
        return tuple_bound(risk, population.prior, settings.loss, k=settings.k)
    return mean_classifier_bound(risk, population.tau)


def _plain(estimate: Estimate) -> dict[str, float]:
    return {"value": estimate.value, "standard_error": estimate.standard_error}
