r"""From the complexity of encoders to that of their losses, RAD.

The score of a triplet, :math:`q = f(x) \cdot (f(x^-) - f(x^+))`, has a gradient of squared norm at
most 6R² on the product of balls of radius R, so that ℓ(q) is √6 R L0-Lipschitz in the three
embeddings; a vector contraction inequality costs √2 more, and √2 √6 = 2√3. The same constant
serves for any number of negatives. Complexities are unnormalised and one-sided
(:mod:`relatum.latent_class.complexity`).
"""

from __future__ import annotations

import math

import numpy as np

from .checks import check_count, check_non_negative, check_positive, loss_range, surrogate

__all__ = [
    "block_contraction",
    "candidate_contraction",
    "encoder_contraction",
    "linear_complexity",
    "projected_contraction",
    "score_contraction",
]


def score_contraction(complexity: float, loss: str = "hinge") -> float:
    r"""Level B: :math:`RAD \le L_0\, R_S(q_F)`, with one score and one sign for each triplet.

    References:
        Probability in Banach Spaces (Ledoux and Talagrand, 1991), Theorem 4.12.

    Example:
        >>> score_contraction(3.0)
        3.0
    """
    check_non_negative(complexity=complexity)
    return surrogate(loss).lipschitz * complexity


def encoder_contraction(complexity: float, radius: float, loss: str = "hinge") -> float:
    r"""Level C: :math:`RAD \le 2 \sqrt3\, L_0 R\, R_S(F)`, for any number of negatives.

    R_S(F) is the vector complexity over all M (k + 2) points of the sample.

    References:
        A Vector-Contraction Inequality for Rademacher Complexities (Maurer, 2016).
        https://arxiv.org/abs/1605.00251

    Example:
        >>> round(encoder_contraction(1.0, 1.0), 4)
        3.4641
    """
    check_non_negative(complexity=complexity)
    check_positive(radius=radius)
    return 2 * math.sqrt(3) * surrogate(loss).lipschitz * radius * complexity


def projected_contraction(
    complexity: float, radius: float, minimum_norm: float, loss: str = "hinge"
) -> float:
    r"""Encoders on a sphere, f = R u/|u|: :math:`RAD \le 2 \sqrt3\, L_0 (R^2/m)\, R_S(U)`.

    R_S(U) is the complexity of the class of u before projection, and m a lower bound on |u(x)|
    over the whole domain of the data; u ↦ R u/|u| is R/m-Lipschitz there. Without such a bound no
    constant is finite.

    Example:
        >>> round(projected_contraction(1.0, 1.0, 0.5), 4)
        6.9282
    """
    check_positive(minimum_norm=minimum_norm)
    return encoder_contraction(complexity, radius, loss) * radius / minimum_norm


def candidate_contraction(complexity: float, loss: str = "hinge") -> float:
    r"""With k negatives by their scores: :math:`RAD \le \sqrt2\, L_0\, R_S(v_F)`.

    :math:`R_S(v_F) = E \sup_f \sum_{j,i} \epsilon_{ji}\, v_{ji}(f)` has a sign for each score
    :math:`v_{ji} = f(x_j) \cdot (f(x_{ji}^-) - f(x_j^+))`; the loss is L0-Lipschitz in them.

    Example:
        >>> round(candidate_contraction(1.0), 4)
        1.4142
    """
    return math.sqrt(2) * score_contraction(complexity, loss)


def block_contraction(complexity: float, radius: float, block: int, loss: str = "hinge") -> float:
    r"""Blocks of b: :math:`RAD \le \sqrt2 \sqrt{4 + 2/b}\, L_0 R\, R_S(F)`, over M (2b + 1) points.

    At b = 1 it is :func:`encoder_contraction`.

    Example:
        >>> round(block_contraction(1.0, 1.0, 1), 4)
        3.4641
    """
    check_count("block", block)
    factor = math.sqrt((4 + 2 / block) / 6)
    return factor * encoder_contraction(complexity, radius, loss)


def linear_complexity(
    samples: int, radius: float, loss: str = "hinge", *, k: int = 1, dimension: int | None = None
) -> dict[str, float]:
    r"""RAD of linear encoders in a Frobenius ball, by every route there is.

    For f(x) = W x, :math:`\|W\|_F \le B`, |x| <= X and R = B X, per triplet:

    * ``scores`` (k = 1): :math:`RAD/M \le 2 L_0 R^2 / \sqrt M`;
    * ``candidates``: :math:`RAD/M \le 2\sqrt2\, L_0 R^2 \sqrt{k/M}`;
    * ``encoders``, where the dimension d is given:
      :math:`RAD/M \le 2 \sqrt3\, L_0 R^2 \sqrt{d (k + 2)/M}`;
    * ``covering``, which depends on k by logarithms alone:

    .. math:: \frac{RAD}{M} \le \min_\alpha \Big\{ 4 \alpha + \frac{144 R^2 L_0}{\sqrt M}
              \sqrt{\ln\big(2 \lceil 8 R^2 L_0/\alpha + 2 \rceil M k + 1\big)}\,
              \ln \frac{B_R}{2 \alpha} \Big\}

    by Dudley's integral over Zhang's covering numbers. With these constants it is the smallest only
    for k above about 5e5. All are RAD (times M); ``smallest`` is the least of them.

    Args:
        samples: M.
        radius: R = B X.
        loss: "hinge" or "logistic" (base 2).
        k: The number of negatives of each anchor.
        dimension: d.

    Raises:
        ValueError: If a number is out of range.

    References:
        Covering Number Bounds of Certain Regularized Linear Function Classes (Zhang, 2002),
        Theorem 4. The question, and bounds of this kind for general encoders: Generalization
        Analysis for Contrastive Representation Learning (Lei et al., 2023).
        https://arxiv.org/abs/2302.12383

    Example:
        >>> rad = linear_complexity(10**6, 1.0, k=4096)
        >>> [round(2 * rad[route] / 10**6, 2) for route in ("candidates", "covering")]
        [0.36, 4.59]
    """
    check_count("samples", samples)
    check_count("k", k)
    check_positive(radius=radius)
    scale = surrogate(loss).lipschitz * radius**2
    routes = {"candidates": 2 * math.sqrt(2) * scale * math.sqrt(k * samples)}
    if k == 1:
        routes["scores"] = 2 * scale * math.sqrt(samples)
    if dimension is not None:
        check_count("dimension", dimension)
        vectors = radius * math.sqrt(dimension * samples * (k + 2))
        routes["encoders"] = encoder_contraction(vectors, radius, loss)
    low, high = loss_range(loss, radius, k)
    alpha = (high - low) / 2 * np.logspace(-12, 0, 2401)
    cells = np.log(2 * np.ceil(8 * scale / alpha + 2) * samples * k + 1)
    integral = 144 * scale / math.sqrt(samples) * np.sqrt(cells) * np.log((high - low) / 2 / alpha)
    routes["covering"] = samples * float((4 * alpha + integral).min())
    return {**routes, "smallest": min(routes.values())}
