"""Linear towers that begin at the exact optimum of RPC over bilinear critics."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float64
from torch import nn

from ..critics import DotProduct
from ..objectives import RPC
from .critic import BilinearForm
from .linear_rpc import LinearRPC
from .networks import Networks

__all__ = ["STARTS", "start_exactly"]

STARTS = ("random", "exact")

Layer = tuple[Float64[np.ndarray, "k d"], Float64[np.ndarray, " k"]]
"""Weights and offsets of a linear layer."""


def start_exactly(
    networks: Networks,
    x: np.ndarray,
    y: np.ndarray | None,
    pairing: object,
    dimension: int,
    ridge: float,
) -> None:
    r"""Gives the towers the weights whose scores are those of :class:`LinearRPC`.

    .. math:: \langle u(x), v(y) \rangle / T = (x-c_x)^\top A\,\mathrm{diag}(s)\,B^\top(y-c_y)
        + a^\top(x-c_x) + b^\top(y-c_y) + c

    Each side takes the root of the strengths s. Of the affine terms, u carries
    :math:`a^\top(x-c_x)+c` beside a 1 of v, and v the rest beside a 1 of u. They take two
    dimensions; with β = 0 they are a constant, which takes one, and none at α = 1, where it is 0.
    The others are LinearRPC's directions, the strongest first, and then zeros.

    Args:
        networks: One linear layer a side, a dot product between them, and RPC or chi2.
        x: Rows as the towers see them.
        y: Their partners.
        pairing: "rows".
        dimension: Of the embedding.
        ridge: Of LinearRPC.

    Raises:
        ValueError: If the networks are others, or the dimensions are too few.
    """
    objective, critic = _checked(networks, pairing, y is not None)
    relative = objective.alpha, objective.beta, objective.gamma
    affine = 2 if objective.beta > 0 else int(objective.alpha != 1)
    if dimension <= affine:
        raise ValueError(
            f"start='exact' needs dimension >= {affine + 1}, got {dimension}: the affine terms of "
            f"RPC{relative} take {affine}"
        )
    form = LinearRPC(*relative, ridge=ridge, rank=dimension - affine).fit(x, y).form_
    root = math.sqrt(critic.temperature.value)
    layers = [module for module in networks.towers.modules() if isinstance(module, nn.Linear)]
    for layer, (weights, offsets) in zip(layers, _layers(form, affine), strict=True):
        _fill(layer, root * weights, root * offsets)


def _checked(networks: Networks, pairing: object, two_sided: bool) -> tuple[RPC, DotProduct]:
    """Objective and critic, if the exact solution is one of these networks."""
    objective, critic = networks.loss.objective, networks.loss.critic
    if not isinstance(objective, RPC):
        wrong = f"objective {type(objective).__name__}"
    elif objective.gamma == 0:
        wrong = "gamma=0, where J has no maximum"
    elif not isinstance(critic, DotProduct):
        wrong = f"critic {type(critic).__name__}"
    elif pairing != "rows":
        wrong = f"pairing {pairing!r}"
    elif not two_sided or len(networks.towers) == 1:
        wrong = "sides that share one encoder"
    elif not all(map(_is_linear, networks.towers)):
        wrong = "other encoders"
    else:
        return objective, critic
    raise ValueError(
        "start='exact' needs objective 'rpc' or 'chi2', critic 'dot' and encoder 'linear', on the "
        f"rows of two sides, X and y; got {wrong}"
    )


def _is_linear(tower: nn.Module) -> bool:
    """Whether it is what the name "linear" makes."""
    layers = list(tower.children())
    return [type(layer) for layer in layers] == [nn.Linear] and layers[0].bias is not None


def _layers(form: BilinearForm, affine: int) -> tuple[Layer, Layer]:
    root = np.sqrt(form.strengths)
    zero, kept = np.zeros(len(root)), len(root) + affine
    sides = (
        (form.directions_x, form.centre_x, (form.bias_x, form.bias), (0 * form.bias_x, 1.0)),
        (form.directions_y, form.centre_y, (0 * form.bias_y, 1.0), (form.bias_y, 0.0)),
    )
    layers = []
    for directions, centre, first, second in sides:
        weights = np.vstack([(directions * root).T, first[0], second[0]])[:kept]
        offsets = np.concatenate([zero, [first[1], second[1]]])[:kept]
        layers.append((weights, offsets - weights @ centre))
    return layers[0], layers[1]


@torch.no_grad()
def _fill(layer: nn.Linear, weights: np.ndarray, offsets: np.ndarray) -> None:
    layer.weight.zero_()
    layer.bias.zero_()
    layer.weight[: len(weights)] = torch.from_numpy(weights)
    layer.bias[: len(offsets)] = torch.from_numpy(offsets)
