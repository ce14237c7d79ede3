"""Diagnostics: what an embedding looks like, without labels. Is it learning, has it collapsed?

All of them take embeddings of any scale and refuse NaN. Half precision is computed in float32;
float64 stays float64.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = [
    "SpectralDecay",
    "alignment",
    "alpha_req",
    "effective_rank",
    "lidar",
    "participation_ratio",
    "rankme",
    "uniformity",
]

# Rows of the similarity matrix held at once by `uniformity`.
_BLOCK = 1024


def alignment(x: Float[Tensor, "n d"], y: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
    r"""How near the two views of a thing lie: the mean squared distance of the unit vectors.

    .. math:: \frac1n \sum_i \left\| \hat x_i - \hat y_i \right\|^2 \in [0, 4]

    with :math:`\hat x = x / \|x\|`, that is :math:`2 - 2\cos` on average. 0 means the views agree,
    about 2 that they are unrelated; a collapsed encoder gives 0 as well, so read it beside
    :func:`uniformity`. A row of zeros has no direction and sits at the origin. The gradient is
    finite everywhere, also where the views are equal.

    Args:
        x: One view of each thing.
        y: The other, row by row.

    Raises:
        ValueError: If the shapes differ or are no matrices with rows, or a value is not finite.
        TypeError: If the embeddings are not floating point.

    References:
        Understanding Contrastive Representation Learning through Alignment and Uniformity on the
        Hypersphere (Wang and Isola, 2020), with exponent 2 https://arxiv.org/abs/2005.10242

    Example:
        >>> alignment(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 3.0]]))
        tensor(2.)
    """
    if x.shape != y.shape:
        raise ValueError(f"x and y must have one shape, got {tuple(x.shape)} and {tuple(y.shape)}")
    # The difference, not 2 - 2 cos: exactly 0 for equal rows, where the cosine may round above 1.
    return (_unit_rows(x, "x") - _unit_rows(y, "y")).square().sum(dim=1).mean()


def uniformity(z: Float[Tensor, "n d"], *, t: float = 2.0) -> Float[Tensor, ""]:
    r"""How evenly the embeddings fill the sphere: the log of the mean Gaussian potential.

    .. math:: \log \frac{1}{n(n-1)} \sum_{i \ne j} e^{-t \|\hat z_i - \hat z_j\|^2} \in [-4t, 0]

    with :math:`\hat z = z / \|z\|`. 0 is total collapse; lower is more even (about
    :math:`-2t` for independent directions in many dimensions). A row of zeros sits at the origin.
    Time is O(n² d); memory, without a gradient, O(n).

    Args:
        z: At least two embeddings.
        t: Sharpness :math:`t > 0` of the potential.

    Raises:
        ValueError: If there are fewer than two rows, a value is not finite, or `t` not positive.
        TypeError: If the embeddings are not floating point.

    References:
        Wang and Isola (2020), Section 4.1.2 https://arxiv.org/abs/2005.10242

    Example:
        >>> uniformity(torch.tensor([[1.0, 0.0], [-2.0, 0.0]]))
        tensor(-8.)
    """
    if not 0 < t < math.inf:
        raise ValueError(f"t must be positive and finite, got {t}")
    unit = _unit_rows(z, "z")
    n = len(unit)
    if n < 2:
        raise ValueError(f"uniformity needs at least two embeddings, got {n}")
    squares = unit.square().sum(dim=1)
    potentials = []
    for start in range(0, n, _BLOCK):
        rows = unit[start : start + _BLOCK]
        # Clamped: a cosine that rounds above 1 would be a negative squared distance.
        distances = (squares[start : start + _BLOCK, None] + squares - 2 * (rows @ unit.T)).clamp(
            min=0
        )
        own = torch.arange(len(rows), device=unit.device)
        exponents = (-t * distances).index_put((own, own + start), _minus_infinity(unit))
        potentials.append(exponents.flatten().logsumexp(dim=0))
    return torch.stack(potentials).logsumexp(dim=0) - math.log(n * (n - 1))


def effective_rank(z: Float[Tensor, "n d"], *, centred: bool = False) -> Float[Tensor, ""]:
    r"""How many directions the embeddings use: the exponential entropy of the singular values.

    .. math:: \exp\Big( -\sum_k p_k \log p_k \Big) \in [1, \min(n, d)],
              \qquad p_k = \sigma_k / \textstyle\sum_l \sigma_l

    It equals :math:`r` if :math:`r` singular values are equal and the others zero. Embeddings that
    are all equal have rank 1, or 0 when `centred` since nothing is left; so have embeddings that
    are all zero. It does not depend on the scale, and it carries no gradient.

    Args:
        z: Embeddings.
        centred: Whether to subtract the mean first, and so to count the directions in which the
            embeddings differ. The definition does not.

    Raises:
        ValueError: If `z` is no matrix with rows, or a value is not finite.
        TypeError: If the embeddings are not floating point.

    References:
        The Effective Rank: A Measure of Effective Dimensionality (Roy and Vetterli, 2007); as a
        label-free measure of representations: RankMe (Garrido et al., 2023)
        https://arxiv.org/abs/2210.02885

    Example:
        >>> effective_rank(5 * torch.eye(4))
        tensor(4.)
    """
    values = _singular_values(z, centred)
    total = values.sum()
    if total == 0:
        return total
    entropy: Tensor = torch.special.entr(values / total).sum()
    return entropy.exp()


def participation_ratio(z: Float[Tensor, "n d"], *, centred: bool = True) -> Float[Tensor, ""]:
    r"""How many directions carry the variance: the participation ratio of its eigenvalues.

    .. math:: \Big( \sum_k \lambda_k \Big)^2 \Big/ \sum_k \lambda_k^2 \in [1, \min(n, d)]

    with the eigenvalues :math:`\lambda_k = \sigma_k^2 / n` of the covariance. It weighs large
    directions more than :func:`effective_rank` does. Embeddings that are all equal have no
    variance and give 0. It does not depend on the scale, and it carries no gradient.

    Args:
        z: Embeddings.
        centred: Whether to subtract the mean first, as a covariance does.

    Raises:
        ValueError: If `z` is no matrix with rows, or a value is not finite.
        TypeError: If the embeddings are not floating point.

    Example:
        >>> participation_ratio(torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]))
        tensor(2.)
    """
    values = _singular_values(z, centred).square()
    total = values.sum()
    return total if total == 0 else total.square() / values.square().sum()


class SpectralDecay(NamedTuple):
    """A power law fitted to eigenvalues.

    Attributes:
        exponent: α of λ_k ∝ k^(−α).
        first: The first index fitted, counted from 1.
        last: The last one.
    """

    exponent: Float[Tensor, ""]
    first: int
    last: int


def rankme(z: Float[Tensor, "n d"], *, epsilon: float = 1e-7) -> Float[Tensor, ""]:
    r"""How many directions the embeddings use, as published for representations.

    .. math:: \exp\Big( -\sum_k p_k \log p_k \Big), \qquad
              p_k = \sigma_k / \textstyle\sum_l \sigma_l + \epsilon

    over the min(n, d) singular values: :func:`effective_rank` but for ε, which adds
    :math:`-\epsilon \log \epsilon` for every direction that is not used. It sees collapse, not
    classes: random embeddings score high, an encoder that is constant on each of K classes scores
    K at most. It carries no gradient.

    Args:
        z: Embeddings.
        epsilon: ε >= 0; 0 is the effective rank.

    Raises:
        ValueError: If `z` is no matrix with rows, all of it is zero, a value is not finite, or ε
            negative.
        TypeError: If the embeddings are not floating point.

    References:
        RankMe: Assessing the Downstream Performance of Pretrained Self-Supervised Representations
        by Their Rank (Garrido et al., 2023), equation 1. https://arxiv.org/abs/2210.02885

    Example:
        >>> round(rankme(5 * torch.eye(4)).item(), 4)
        4.0
    """
    if not 0 <= epsilon < math.inf:
        raise ValueError(f"epsilon must be a finite number >= 0, got {epsilon}")
    values = _singular_values(z, centred=False)
    if values.sum() == 0:
        raise ValueError("z is zero everywhere: it has no rank")
    entropy: Tensor = torch.special.entr(values / values.sum() + epsilon).sum()
    return entropy.exp()


@torch.no_grad()
def alpha_req(
    z: Float[Tensor, "n d"], *, first: int | None = None, last: int | None = None
) -> SpectralDecay:
    r"""How fast the variance falls from direction to direction: the exponent α of a power law.

    .. math:: \log \lambda_k \approx \text{const} - \alpha \log k, \qquad
              k = k_1, \dots, k_2

    by least squares over the eigenvalues :math:`\lambda_1 \ge \lambda_2 \ge \dots` of the
    covariance. Near 1 is reported best; far above, few directions hold everything; 0 is white
    noise. It depends on the indices fitted, so they come with it.

    Args:
        z: Embeddings.
        first: :math:`k_1`; by default 5, or 1 where fewer than 10 eigenvalues are positive.
        last: :math:`k_2`; by default 50, or the number of positive eigenvalues if that is less.

    Raises:
        ValueError: If `z` is no matrix with rows, a value is not finite, or fewer than two positive
            eigenvalues stand at those indices.
        TypeError: If the embeddings are not floating point.

    References:
        α-ReQ: Assessing Representation Quality in Self-Supervised Learning by Measuring
        Eigenspectrum Decay (Agrawal et al., 2022). https://openreview.net/forum?id=ii9X4vtZGTZ

    Example:
        >>> sides = torch.cat([x := torch.diag(torch.tensor([1.0, 0.5, 0.25, 0.125])), -x])
        >>> alpha_req(sides[:, [0, 1]]).exponent  # eigenvalues 1 : 1/4 at indices 1, 2
        tensor(2.)
    """
    values = _singular_values(z, centred=True).square()
    positive = int((values > 0).sum())
    start = first if first is not None else 5 if positive >= 10 else 1
    end = last if last is not None else min(50, positive)
    if not 1 <= start < end <= positive:
        raise ValueError(
            f"first and last must be two indices from 1 to the {positive} positive eigenvalues, "
            f"got {start} and {end}"
        )
    logs = values[start - 1 : end].log()
    places = torch.arange(start, end + 1, dtype=logs.dtype, device=logs.device).log()
    places = places - places.mean()
    return SpectralDecay(-(places @ logs) / (places @ places), start, end)


@torch.no_grad()
def lidar(
    z: Float[Tensor, "n d"], items: Int[Tensor, " n"], *, ridge: float = 1e-4
) -> Float[Tensor, ""]:
    r"""How many directions tell items apart beyond the differences among views of one item.

    .. math:: \exp\Big( -\sum_k p_k \log p_k \Big), \qquad
              p_k = \lambda_k / \textstyle\sum_l \lambda_l, \qquad
              \lambda = \operatorname{eig}\big( (\Sigma_w + \delta I)^{-1/2} \Sigma_b
              (\Sigma_w + \delta I)^{-1/2} \big)

    with the covariance :math:`\Sigma_b` of the item means, every item counting once, and the mean
    :math:`\Sigma_w` over items of the covariance of its views (both as plain means). With classes
    for items it is the rank that linear discriminants use, at most K − 1. Items that all have one
    mean give 0. It carries no gradient.

    Args:
        z: Embeddings.
        items: The item of each row; at least two items, one of them with two rows.
        ridge: δ > 0, an absolute number: embeddings on another scale want another one.

    Raises:
        ValueError: If shapes disagree, a value is not finite, δ is not positive, there are fewer
            than two items, or every item has a single row.
        TypeError: If the embeddings are not floating point.

    References:
        LiDAR: Sensing Linear Probing Performance in Joint Embedding SSL Architectures (Thilak et
        al., 2023), equations 1 to 4. https://arxiv.org/abs/2312.04000

    Example:
        >>> corners = torch.eye(3).repeat(2, 1)
        >>> round(lidar(corners, torch.arange(6) % 3).item(), 4)
        2.0
    """
    matrix = _matrix(z, "z").double()
    if items.shape != matrix.shape[:1]:
        raise ValueError(f"items must have the shape ({len(matrix)},), got {tuple(items.shape)}")
    if not 0 < ridge < math.inf:
        raise ValueError(f"ridge must be positive and finite, got {ridge}")
    _, codes, counts = torch.unique(items, return_inverse=True, return_counts=True)
    if not 2 <= len(counts) < len(matrix):
        raise ValueError(
            f"lidar needs two items and several views of one, got {len(counts)} items in "
            f"{len(matrix)} rows"
        )
    means = matrix.new_zeros(len(counts), matrix.shape[1]).index_add_(0, codes, matrix)
    means = means / counts[:, None]
    # Rows are weighted so that every item counts once, whatever its number of views.
    inside = (matrix - means[codes]) / (counts[codes, None] * len(counts)).double().sqrt()
    between = (means - means.mean(dim=0)) / math.sqrt(len(counts))
    within = inside.T @ inside
    within.diagonal().add_(ridge)
    factor = torch.linalg.cholesky(within)
    whitened = torch.linalg.solve_triangular(factor, between.T, upper=False)
    # The squared singular values are the eigenvalues, without squaring the rounding.
    values = torch.linalg.svdvals(whitened).square()
    noise = values.max() * max(whitened.shape) * torch.finfo(values.dtype).eps
    values = torch.where(values > noise, values, 0)
    total = values.sum()
    if total == 0:
        return total
    entropy: Tensor = torch.special.entr(values / total).sum()
    return entropy.exp()


def _matrix(z: Tensor, name: str) -> Tensor:
    if not z.is_floating_point():
        raise TypeError(f"{name} must hold floating point embeddings, got {z.dtype}")
    if z.ndim != 2 or 0 in z.shape:
        raise ValueError(f"{name} must be a matrix (rows, features), got {tuple(z.shape)}")
    finite = z.isfinite()
    if not finite.all():
        row, column = (~finite).nonzero()[0].tolist()
        raise ValueError(f"{name} row {row}, column {column} is {z[row, column].item()}")
    return z.to(torch.promote_types(z.dtype, torch.float32))


def _minus_infinity(like: Tensor) -> Tensor:
    return torch.full((), -math.inf, dtype=like.dtype, device=like.device)


def _unit_rows(z: Tensor, name: str) -> Tensor:
    """Rows scaled to length one; zero rows stay zero, and no gradient is NaN there."""
    matrix = _matrix(z, name)
    # The direction does not depend on the scale, so the scale may be a constant to the gradient.
    # Without it, squares of very small or large entries vanish or overflow.
    peak = matrix.detach().abs().amax(dim=1, keepdim=True)
    scaled = matrix / torch.where(peak > 0, peak, 1)
    length = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    return scaled / torch.where(peak > 0, length, 1)


@torch.no_grad()
def _singular_values(z: Tensor, centred: bool) -> Tensor:
    """Singular values relative to the largest entry; those of rounding alone are zero."""
    matrix = _matrix(z, "z")
    peak = matrix.abs().max()
    if peak == 0:
        return matrix.new_zeros(1)
    matrix = matrix / peak
    size = torch.linalg.matrix_norm(matrix)
    if centred:
        matrix = matrix - matrix.mean(dim=0)
    values = torch.linalg.svdvals(matrix)
    # The usual rule of a numerical rank, measured by the size before centring: what centring
    # equal rows leaves is rounding, not a direction.
    noise = size * max(matrix.shape) * torch.finfo(matrix.dtype).eps
    return torch.where(values > noise, values, 0)
