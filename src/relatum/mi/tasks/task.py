"""What a task with known mutual information is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

__all__ = ["Draw", "LogRatio", "Rows", "Task"]

Rows = Float64[np.ndarray, "n d"]
Draw = Callable[[np.random.Generator, int], tuple[Rows, Rows]]
LogRatio = Callable[[Rows, Rows], Float64[np.ndarray, " n"]]


@dataclass(frozen=True)
class Task:
    r"""A joint law P of (x, y) whose mutual information is known exactly.

    .. math:: I(X; Y) = E_P \log r, \qquad r(x, y) = \frac{p(x, y)}{p(x)\, p(y)}

    Attributes:
        name: What the benchmark calls it.
        mutual_information: I in nats, from a formula, or from an integral to at least ten digits.
        dim_x: Number of columns of x.
        dim_y: Number of columns of y.
        draw: (generator, n) to n independent rows of x and y; :meth:`sample` calls it.
        log_ratio: The exact log r of each row in nats, −inf where the joint density is zero; it is
            meant for rows of either law within the support of the marginals.
        family: What it has in common with others, such as "Gaussian".
        note: Where the value comes from.
        discrete: Whether x and whether y takes a few values only (whole numbers, as float64).
    """

    name: str
    mutual_information: float
    dim_x: int
    dim_y: int
    draw: Draw
    log_ratio: LogRatio
    family: str
    note: str
    discrete: tuple[bool, bool] = (False, False)

    def sample(self, n: int, seed: int) -> tuple[Rows, Rows]:
        """Independent rows x (n, dim_x) and y (n, dim_y); the same seed gives the same rows.

        Raises:
            ValueError: If `n` is below 1.
        """
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        return self.draw(np.random.default_rng(seed), n)
