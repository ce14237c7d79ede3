"""The contrastive risk and its parts from labelled embeddings, with standard errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from scipy.stats import norm

from .pair_tables import PairTable
from .resampling import PARTS, Part, grouped_jackknife, hajek, jackknife, weighted_sum
from .sample import LabelledSample

__all__ = ["Estimate", "PairRisks", "jackknife_estimate", "normal_estimate", "pair_risks"]


@dataclass(frozen=True)
class Estimate:
    """A number read from a sample, with what its sampling may have done to it.

    Attributes:
        value: The estimate; never clamped.
        standard_error: NaN where none can be given; a note says why.
        low: Lower end of the interval.
        high: Upper end.
        n: Rows that it is read from.
        level: Nominal coverage of the interval.
        method: Where the standard error comes from.
        notes: What a reader of the number should know.
    """

    value: float
    standard_error: float
    low: float
    high: float
    n: int
    level: float = 0.95
    method: str = ""
    notes: tuple[str, ...] = ()

    def scaled(self, factor: float) -> Estimate:
        """The same in another unit, factor > 0; ln 2 makes nats of bits."""
        names = ("value", "standard_error", "low", "high")
        return replace(self, **{name: factor * getattr(self, name) for name in names})


def normal_estimate(
    value: float,
    standard_error: float,
    n: int,
    *,
    level: float = 0.95,
    method: str = "",
    notes: tuple[str, ...] = (),
) -> Estimate:
    """The value ± z standard errors, z the normal quantile of the level.

    Raises:
        ValueError: If the level is not in (0, 1).

    Example:
        >>> normal_estimate(0.5, 0.1, 100).high  # 0.5 + 1.96 · 0.1
        0.695...
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), got {level}")
    reach = float(norm.ppf((1 + level) / 2)) * standard_error
    return Estimate(value, standard_error, value - reach, value + reach, n, level, method, notes)


def jackknife_estimate(
    sample: LabelledSample,
    statistic: Callable[[LabelledSample], float],
    *,
    level: float = 0.95,
    groups: int = 20,
    least: int = 2,
) -> Estimate:
    """A statistic with the error of :func:`~relatum.latent_class.resampling.grouped_jackknife`."""
    return normal_estimate(
        statistic(sample),
        grouped_jackknife(sample, statistic, groups=groups, least=least),
        len(sample.codes),
        level=level,
        method="delete-a-group jackknife",
        notes=sample.notes,
    )


@dataclass(frozen=True)
class PairRisks:
    r"""The contrastive risk and its two parts: :math:`L_{un} = \tau L^= + (1 - \tau) L^{\ne}`.

    Attributes:
        unsupervised: L_un.
        collision: L^=, where the negative is of the anchor's class.
        noncollision: L^≠, where it is not; the risk of the one-shot mean classifier.
        tau: The probability of a collision.
    """

    unsupervised: Estimate
    collision: Estimate
    noncollision: Estimate
    tau: float


def pair_risks(table: PairTable, *, level: float = 0.95, method: str = "jackknife") -> PairRisks:
    r"""L_un, L^= and L^≠ as weighted means of the class-pair risks.

    .. math:: L_{un} = \sum_{ce} w_{ce} U_{ce}, \quad
              L^= = \frac1\tau \sum_c w_{cc} U_{cc}, \quad
              L^{\ne} = \frac1{1-\tau} \sum_{c \ne e} w_{ce} U_{ce}, \quad \tau = \sum_c w_{cc}

    with the weights of :func:`~relatum.latent_class.sample.class_weights`. With a prior, L_un is
    unbiased given the labels, and the error is that of points within their classes. Without one,
    labels count as drawn too: L_un is unbiased up to the event that a class is too small, the parts
    are ratios, and the error includes that of the class frequencies.

    Args:
        table: From :func:`~relatum.latent_class.pair_tables.pair_table`.
        level: Nominal coverage of the intervals.
        method: "jackknife" (delete one point, exactly, mildly conservative) or "projection" (first
            order, by what each point contributes). Both mislead where a class has points of mass
            below 1 / n_c that matter.

    Raises:
        ValueError: For another method.

    References:
        Saunshi et al. (2019), equation 4 and section 4.3. https://arxiv.org/abs/1902.09229
        The jackknife estimate of variance (Efron and Stein, 1981).

    Example:
        >>> import numpy as np
        >>> from relatum.latent_class.pair_tables import pair_table
        >>> from relatum.latent_class.sample import labelled_sample
        >>> corners = labelled_sample(np.eye(2).repeat(4, axis=0), [0] * 4 + [1] * 4)
        >>> risks = pair_risks(pair_table(corners))
        >>> risks.collision.value, risks.noncollision.value  # collapsed to its classes: ℓ(0), ℓ(−1)
        (1.0, 0.0)
    """
    errors = {"jackknife": jackknife, "projection": hajek}
    if method not in errors:
        raise ValueError(f"method must be one of {sorted(errors)}, got {method!r}")

    def estimate(part: Part) -> Estimate:
        value = weighted_sum(part(table.sample.weights), table.values)
        error = errors[method](table, part)
        notes = table.sample.notes
        if math.isnan(error):
            notes = (*notes, "no standard error: a class has too few rows to leave one out")
        n = len(table.sample.codes)
        return normal_estimate(value, error, n, level=level, method=method, notes=notes)

    parts = {name: estimate(part) for name, part in PARTS.items()}
    return PairRisks(**parts, tau=table.sample.tau)
