"""The temperature of a critic, fixed or learned."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["LARGEST_SCALE", "Temperature"]

LARGEST_SCALE = 100.0
"""A learned 1/T stops here, as in CLIP: beyond it float32 scores of cosine critics saturate."""


class Temperature(nn.Module):
    r"""The factor :math:`1/T` of a critic's scores, stored as :math:`\log(1/T)`.

    A learned temperature is a parameter and is capped at :math:`1/T = 100` *after the step*: the
    parameter itself is moved back to the cap, by :meth:`cap_` or at the next forward pass, so the
    scale never exceeds the cap and the gradient at the cap is the true one (a clamp inside the
    formula would leave it zero for ever).

    Args:
        temperature: T > 0. If learned, the starting value, at least 0.01.
        learn: Whether T is a parameter.

    Raises:
        ValueError: If T is not a positive finite number, or below 0.01 and learned.

    Example:
        >>> round(Temperature(0.25).root(), 6)
        2.0
    """

    log_scale: nn.Parameter

    def __init__(self, temperature: float, learn: bool = False) -> None:
        super().__init__()
        if not (math.isfinite(temperature) and temperature > 0):
            raise ValueError(f"temperature must be a positive number, got {temperature}")
        if learn and temperature < 1 / LARGEST_SCALE:
            raise ValueError(
                f"a learned temperature must start at {1 / LARGEST_SCALE} or above, "
                f"got {temperature}"
            )
        self.learn = learn
        self._fixed = 1 / temperature
        if learn:
            self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature)))

    @torch.no_grad()
    def cap_(self) -> None:
        """Moves a learned log(1/T) back to the cap if a step took it beyond."""
        if self.learn:
            self.log_scale.clamp_(max=math.log(LARGEST_SCALE))

    def root(self) -> Float[Tensor, ""] | float:
        """√(1/T), the share of each of the two factors of a separable critic."""
        if not self.learn:
            return math.sqrt(self._fixed)
        self.cap_()
        return (self.log_scale / 2).exp()

    @property
    def value(self) -> float:
        """T, as a number."""
        if not self.learn:
            return 1 / self._fixed
        return math.exp(-min(float(self.log_scale.detach()), math.log(LARGEST_SCALE)))

    def extra_repr(self) -> str:
        """Shown by ``print(critic)``."""
        return f"T={self.value:.6g}, {'learned' if self.learn else 'fixed'}"
