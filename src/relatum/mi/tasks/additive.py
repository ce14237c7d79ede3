"""A uniform variable seen through uniform noise."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64

from .task import Rows, Task

__all__ = ["additive_information", "additive_uniform"]


def additive_information(noise: float) -> float:
    r"""I(X; X + N) for X uniform on [0, 1] and N uniform on [−ε, ε], in nats.

    .. math:: I = h(X + N) - h(N) = \begin{cases} \epsilon - \log 2\epsilon & \epsilon \le \tfrac12
              \\ 1 / 4\epsilon & \epsilon \ge \tfrac12 \end{cases}

    The density of the sum is a trapezium of height :math:`\min(1, 1/2\epsilon)`: its two slopes and
    its roof are integrated by hand.

    Args:
        noise: ε > 0.

    Raises:
        ValueError: If `noise` is not positive.

    References:
        Beyond normal: on the evaluation of mutual information estimators (Czyż et al., 2023)
        ("additive noise"). https://arxiv.org/abs/2306.11078

    Example:
        >>> round(additive_information(0.75), 6)
        0.333333
    """
    if not 0 < noise < math.inf:
        raise ValueError(f"noise must be positive and finite, got {noise}")
    return noise - math.log(2 * noise) if noise <= 0.5 else 1 / (4 * noise)


def additive_uniform(name: str, noise: float) -> Task:
    """Law of x uniform on [0, 1] and y = x + uniform noise on [−ε, ε]: hard edges."""

    def draw(generator: np.random.Generator, n: int) -> tuple[Rows, Rows]:
        x = generator.uniform(size=(n, 1))
        return x, x + generator.uniform(-noise, noise, size=(n, 1))

    def log_ratio(x: Rows, y: Rows) -> Float64[np.ndarray, " n"]:
        # p(y | x) = 1/2ε and p(y) = |[0, 1] ∩ [y − ε, y + ε]| / 2ε.
        overlap = np.minimum(1, y + noise) - np.maximum(0, y - noise)
        near = np.abs(y - x) <= noise
        return np.where(near, -np.log(overlap), -np.inf)[:, 0]

    value = additive_information(noise)
    note = f"ε − log 2ε up to ε = ½, then 1/4ε; ε = {noise:g}"
    return Task(name, value, 1, 1, draw, log_ratio, "additive noise", note)
