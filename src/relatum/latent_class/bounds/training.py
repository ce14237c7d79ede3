r"""From a sample of M triplets to their law, for every encoder of a class at once.

With :math:`\hat L` the mean loss of M independent triplets (or of anchors with k negatives), drawn
in the law of the theory, and :math:`B_R` the oscillation of the loss on scores within ±2R².
Complexities are unnormalised and enter as RAD, any of

* A: that of the losses themselves, :math:`E_\epsilon \sup_f \sum_j \epsilon_j \ell(q_f(z_j))`;
* B: :func:`score_contraction` of that of the scores;
* C: :func:`encoder_contraction` of that of the encoders,

each of which is at most the next. A bound on a risk is vacuous from 1 on: the zero encoder has it.
"""

from __future__ import annotations

from ..checks import (
    check_count,
    check_finite,
    check_non_negative,
    loss_range,
)
from ..concentration import bounded_difference_tail
from .chain import Bound

__all__ = [
    "finite_class_bound",
    "minimiser_gap",
    "uniform_bound",
]

IID = "triplets independent, in the law of the theory"


def uniform_bound(
    empirical_risk: float,
    complexity: float,
    samples: int,
    radius: float,
    loss: str = "hinge",
    *,
    delta: float = 0.05,
    observed: bool = False,
    k: int = 1,
) -> Bound:
    r"""The contrastive risk of every encoder of a class at once, also of one chosen on the sample.

    With probability 1 − δ, for all f in F,

    .. math:: L_{un}(f) \le \hat L(f) + \frac{2\,E[RAD]}{M} + B_R \sqrt{\frac{\ln(1/\delta)}{2M}}

    .. math:: L_{un}(f) \le \hat L(f) + \frac{2\,RAD}{M} + 3 B_R \sqrt{\frac{\ln(2/\delta)}{2M}}

    the first with the expected complexity, the second with that of the observed sample.
    Symmetrisation, and McDiarmid's inequality with differences B_R/M. Both signs of the deviation
    hold with δ/2 each.

    Args:
        empirical_risk: :math:`\hat L(f)`.
        complexity: RAD, in one of its three forms.
        samples: M.
        radius: A bound R on |f(x)|, known before the data.
        loss: "hinge" or "logistic" (base 2).
        delta: δ.
        observed: Whether the complexity is that of the observed sample, not its expectation.
        k: The number of negatives of each anchor.

    Raises:
        ValueError: If a number is out of range.

    References:
        Foundations of Machine Learning (Mohri et al., 2018), Theorem 3.3.

    Example:
        >>> round(uniform_bound(0.4, 2e4, 10**6, 1.0).value, 4)
        0.4437
    """
    check_finite(empirical_risk=empirical_risk)
    steps = (3, 2) if observed else (1, 1)
    terms = _gap_terms(complexity, samples, radius, loss, delta, k, steps)
    value = empirical_risk + sum(terms.values())
    return Bound(value, {"sample": float(empirical_risk), **terms}, {IID: None}, value >= 1)


def minimiser_gap(
    complexity: float,
    samples: int,
    radius: float,
    loss: str = "hinge",
    *,
    delta: float = 0.05,
    observed: bool = False,
    optimisation: float = 0.0,
    k: int = 1,
) -> Bound:
    r"""What an empirical minimiser loses against the best encoder of its class.

    With probability 1 − δ, for an encoder with
    :math:`\hat L(\hat f) \le \inf_F \hat L + \epsilon_{opt}`, against every f in F,

    .. math:: L_{un}(\hat f) \le L_{un}(f) + \mathrm{Gen}_M + \epsilon_{opt}, \qquad
              \mathrm{Gen}_M = \frac{2\,E[RAD]}{M} + 2 B_R \sqrt{\frac{\ln(1/\delta)}{2M}}
              \ \text{ or }\ \frac{2\,RAD}{M} + 4 B_R \sqrt{\frac{\ln(2/\delta)}{2M}}

    the second with the complexity of the observed sample. The value is Gen_M + ε_opt, the excess E
    of :func:`relatum.latent_class.bounds.competitive_bound`. Vacuous from min(1, B_R) on: two risks
    differ by at most B_R.

    Args:
        complexity: RAD, in one of its three forms.
        samples: M.
        radius: A bound R on |f(x)|, known before the data.
        loss: "hinge" or "logistic" (base 2).
        delta: δ.
        observed: Whether the complexity is that of the observed sample, not its expectation.
        optimisation: ε_opt.
        k: The number of negatives of each anchor.

    Raises:
        ValueError: If a number is out of range.

    References:
        Saunshi et al. (2019), Lemma A.2. https://arxiv.org/abs/1902.09229

    Example:
        >>> round(minimiser_gap(2e4, 10**6, 1.0).terms["confidence"], 4)
        0.0073
    """
    check_non_negative(optimisation=optimisation)
    steps = (4, 2) if observed else (2, 1)
    terms = _gap_terms(complexity, samples, radius, loss, delta, k, steps)
    value = sum(terms.values()) + optimisation
    low, high = loss_range(loss, radius, k)
    terms["optimisation"] = float(optimisation)
    return Bound(value, terms, {IID: None}, value >= min(1.0, high - low))


def finite_class_bound(
    empirical_risk: float,
    encoders: int,
    samples: int,
    radius: float,
    loss: str = "hinge",
    *,
    delta: float = 0.05,
    k: int = 1,
) -> Bound:
    r"""The risk of each of finitely many encoders, better than by any complexity.

    .. math:: L_{un}(f) \le \hat L(f) + B_R \sqrt{\frac{\ln(|F|/\delta)}{2M}}

    with probability 1 − δ for all f in F at once: Hoeffding's inequality and a union bound.

    Args:
        empirical_risk: :math:`\hat L(f)`.
        encoders: |F|, fixed before the data; also a grid of temperatures.
        samples: M.
        radius: A bound R on |f(x)|, known before the data.
        loss: "hinge" or "logistic" (base 2).
        delta: δ.
        k: The number of negatives of each anchor.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> bound = finite_class_bound(0.4, 10, 1000, 1.0)
        >>> round(bound.value, 3)
        0.554
    """
    check_finite(empirical_risk=empirical_risk)
    check_count("encoders", encoders)
    width = hold_out_width(samples, radius, loss, delta / encoders, k)
    value = empirical_risk + width
    terms = {"sample": float(empirical_risk), "width": width}
    return Bound(value, terms, {IID: None}, value >= 1)


def hold_out_width(samples: int, radius: float, loss: str, delta: float, k: int) -> float:
    """B_R √(ln(1/δ) / 2M)."""
    check_count("samples", samples)
    low, high = loss_range(loss, radius, k)
    return bounded_difference_tail((high - low) ** 2 / samples, delta)


def _gap_terms(
    complexity: float,
    samples: int,
    radius: float,
    loss: str,
    delta: float,
    k: int,
    steps: tuple[int, int],
) -> dict[str, float]:
    """The two parts of a gap: of `steps`, so many widths, each at δ over the second."""
    check_non_negative(complexity=complexity)
    widths, parts = steps
    confidence = widths * hold_out_width(samples, radius, loss, delta / parts, k)
    return {"complexity": 2 * complexity / samples, "confidence": confidence}
