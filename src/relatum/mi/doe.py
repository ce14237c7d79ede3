"""Difference of entropies: two fitted densities instead of one density ratio."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn
from torch.nn.functional import softplus

from .margins import NormalScores
from .start import Side

__all__ = ["DoE", "Family", "FittedDoE", "fit_doe"]

Family = Literal["gaussian", "logistic"]

# Log scale of the member of the family that is nearest to a standard normal law.
_UNIT: dict[Family, float] = {"gaussian": 0.0, "logistic": -0.55893}

_REACH = 5.0  # of log scales about their unit: a network that extrapolates knows no bounds

_MAX_NORM = 10.0
_STEPS, _BATCH, _CHECK, _PATIENCE, _RATE, _DECAY = 600, 256, 20, 6, 3e-3, 1e-3


class DoE(nn.Module):
    r"""Two families of densities, :math:`q(y)` and :math:`q(y \mid x)`, products over y's columns.

    .. math:: \hat I = \hat H(Y) - \hat H(Y \mid X)
              = E_P\Big[\log \frac{q(y \mid x)}{q(y)}\Big]

    Both are of one location-scale family; location and scale given x come from a network of x,
    those of y alone are free numbers. Scales stay within :math:`e^{\pm 5}` of that of a standard
    normal law. Each cross-entropy is minimised for itself, and bounds its entropy from above, so
    the difference is no bound to either side. Columns of y that depend on each other are counted
    twice: both densities are products.

    Args:
        dim_x: Columns of x.
        dim_y: Columns of y.
        width: Of the two hidden layers.
        family: "gaussian" or "logistic".

    Raises:
        ValueError: If the family is unknown.

    References:
        Formal Limitations on the Measurement of Mutual Information (McAllester & Stratos, 2020),
        section 4. https://arxiv.org/abs/1811.04251

    Example:
        >>> DoE(1, 1, 8, "gaussian").log_ratio(torch.zeros(3, 1), torch.zeros(3, 1)).shape
        torch.Size([3])
    """

    def __init__(self, dim_x: int, dim_y: int, width: int, family: Family) -> None:
        super().__init__()
        if family not in ("gaussian", "logistic"):
            raise ValueError(f"family must be 'gaussian' or 'logistic', got {family!r}")
        self.family = family
        self.free = nn.Parameter(torch.zeros(2 * dim_y))
        self.network = nn.Sequential(
            *(nn.Linear(dim_x, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
            nn.Linear(width, 2 * dim_y),
        )
        # At first y depends on nothing, and both densities are the same.
        for parameter in self.network[-1].parameters():
            nn.init.zeros_(parameter)

    def forward(
        self, x: Float[Tensor, "n dx"], y: Float[Tensor, "n dy"]
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """The cross-entropies of y alone and of y given x, in nats."""
        return self._surprise(y, self.free).mean(), self._surprise(y, self.network(x)).mean()

    def log_ratio(self, x: Float[Tensor, "n dx"], y: Float[Tensor, "n dy"]) -> Float[Tensor, " n"]:
        """Log q(y_i | x_i) − log q(y_i), in nats."""
        return self._surprise(y, self.free) - self._surprise(y, self.network(x))

    def _surprise(self, y: Tensor, parameters: Tensor) -> Tensor:
        location, log_scale = parameters.chunk(2, -1)
        log_scale = _UNIT[self.family] + _REACH * torch.tanh(log_scale / _REACH)
        w = (y - location) * (-log_scale).exp()
        if self.family == "gaussian":
            surprise = w.square() / 2 + math.log(2 * math.pi) / 2
        else:
            surprise = w + 2 * softplus(-w)
        return (surprise + log_scale).sum(-1)


@dataclass(frozen=True)
class FittedDoE:
    """Both densities, fitted; takes columns as they were given to the fit."""

    model: DoE
    scores_x: NormalScores
    scores_y: NormalScores
    axes: Float64[np.ndarray, "dy k"]
    notes: tuple[str, ...]

    def log_ratio(self, x: Side, y: Side) -> Float64[np.ndarray, " n"]:
        """Log q(y_i | x_i) − log q(y_i); normal scores of y have one Jacobian in both."""
        with torch.no_grad():
            turned = self.scores_y(y) @ self.axes
            values = self.model.log_ratio(_tensor(self.scores_x(x)), _tensor(turned))
        return values.double().numpy()


def fit_doe(
    x: Side,
    y: Side,
    *,
    valid: tuple[Side, Side],
    family: Family = "gaussian",
    seed: int = 0,
    width: int = 64,
    steps: int = _STEPS,
    **unknown: Any,
) -> FittedDoE:
    """Minimises both cross-entropies, and stops where those of the validation rows do.

    Normal scores of y are first turned to the canonical variables of y and x. These are
    uncorrelated, alone and given x, so products of densities lose nothing on Gaussian data.

    Args:
        x: Rows of x.
        y: Rows of y.
        valid: Rows outside of these.
        family: "gaussian" or "logistic".
        seed: Of weights and batches.
        width: Of the two hidden layers.
        steps: Updates at most.
        unknown: Refused by name.

    Raises:
        ValueError: If there is an unknown option.
    """
    if unknown:
        raise ValueError(f"unknown option {next(iter(unknown))!r}; known are width, steps")
    if width < 1 or steps < 1:
        raise ValueError(f"width and steps must be at least 1, got {width} and {steps}")
    margins = NormalScores.fit(x), NormalScores.fit(y)
    axes = _canonical_axes(margins[0](x), margins[1](y))
    if not axes.any():
        steps = 0  # y is constant: densities would shrink to a point, and tell nothing
    tx, ty = _tensor(margins[0](x)), _tensor(margins[1](y) @ axes)
    held = _tensor(margins[0](valid[0])), _tensor(margins[1](valid[1]) @ axes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = DoE(x.shape[1], axes.shape[1], width, family)
    optimizer = torch.optim.AdamW(model.parameters(), _RATE, weight_decay=_DECAY)
    random = np.random.default_rng(seed)
    best, worse, best_step, step = _cross_entropy(model, held), 0, 0, 0
    state = copy.deepcopy(model.state_dict())
    for step in range(1, steps + 1):
        rows = random.permutation(len(x))[:_BATCH]
        loss: Tensor = sum(model(tx[rows], ty[rows]))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), _MAX_NORM)
        optimizer.step()
        if step % _CHECK == 0 or step == steps:
            value = _cross_entropy(model, held)
            if value < best:
                best, worse, best_step = value, 0, step
                state = copy.deepcopy(model.state_dict())
            else:
                worse += 1
        if worse >= _PATIENCE:
            break
    model.load_state_dict(state)
    late = step == steps and best_step > max(0, steps - 2 * _CHECK)
    notes = (f"not converged: validation still improved at the last of {steps} steps",) * late
    return FittedDoE(model, *margins, axes, notes)


def _cross_entropy(model: DoE, rows: tuple[Tensor, Tensor]) -> float:
    with torch.no_grad():
        return float(sum(model(*rows)))


def _canonical_axes(x: Side, y: Side) -> Float64[np.ndarray, "dy k"]:
    """All directions of y that vary, whitened, the most correlated with x first."""
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    of_x, of_y = np.linalg.svd(x, full_matrices=False), np.linalg.svd(y, full_matrices=False)
    known = of_y.S > len(y) * np.finfo(float).eps * of_y.S.max(initial=1.0)
    if not known.any():  # nothing varies: one axis of zeros
        return np.zeros((y.shape[1], 1))
    turned = np.linalg.svd((of_x.U.T @ of_y.U[:, known]).T).U
    axes: np.ndarray = math.sqrt(len(y)) * (of_y.Vh[known].T / of_y.S[known]) @ turned
    return axes


def _tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values).float()
