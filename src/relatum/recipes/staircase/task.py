r"""The task: 20 correlated pairs of normal numbers whose information climbs five steps.

.. math:: x \sim N(0, I_{20}), \quad y = \rho x + \sqrt{1 - \rho^2}\,\epsilon, \quad
    I = -10 \log(1 - \rho^2)

The *cubic* task hands out y³ in place of y, which has the same mutual information.
"""

from __future__ import annotations

import math
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["DIM", "LEVELS", "TASKS", "correlation", "level_of", "log_ratio_matrix", "sample_pairs"]

DIM: Final = 20
LEVELS: Final = (2.0, 4.0, 6.0, 8.0, 10.0)
TASKS: Final = ("gaussian", "cubic")


def correlation(information: float) -> float:
    r""":math:`\rho = \sqrt{1 - e^{-2I/20}}`, for I nats.

    Example:
        >>> round(-10 * math.log(1 - correlation(2.0) ** 2), 12)
        2.0
    """
    return math.sqrt(-math.expm1(-2 * information / DIM))


def level_of(step: int, steps: int) -> int:
    """Which level the step belongs to: equal shares of the schedule."""
    return step * len(LEVELS) // steps


def sample_pairs(
    information: float,
    n: int,
    *,
    cubic: bool = False,
    generator: torch.Generator,
    dtype: torch.dtype = torch.float32,
) -> tuple[Float[Tensor, "n 20"], Float[Tensor, "n 20"]]:
    """Fresh pairs (x, y)."""
    rho = correlation(information)
    x, noise = torch.randn(2, n, DIM, generator=generator, dtype=dtype)
    y = rho * x + math.sqrt(1 - rho**2) * noise
    return x, y**3 if cubic else y


def log_ratio_matrix(
    x: Float[Tensor, "*b n 20"], y: Float[Tensor, "*b n 20"], information: float
) -> Float[Tensor, "*b n n"]:
    r"""The exact :math:`\log r(x_i, y_j)` of all pairs of the Gaussian task, in nats.

    .. math:: \log r = I + \frac{1}{1 - \rho^2}
        \Big(\rho \langle x, y\rangle - \frac{\rho^2}{2} (\|x\|^2 + \|y\|^2)\Big)
    """
    rho = correlation(information)
    norms = x.square().sum(-1)[..., :, None] + y.square().sum(-1)[..., None, :]
    return information + (rho * (x @ y.mT) - rho**2 * norms / 2) / (1 - rho**2)
