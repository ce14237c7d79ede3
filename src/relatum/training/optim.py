"""Optimisers and the learning-rate schedule of the published RPC code and SimCLRv2.

One thing differs: the first step of the warm-up has a rate (:func:`warmup_cosine`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Final, final

import torch
from torch import Tensor, nn

__all__ = ["LARS", "OPTIMIZERS", "build_optimizer", "parameter_groups", "warmup_cosine"]


@final
class LARS(torch.optim.Optimizer):
    r"""Layer-wise adaptive rate scaling, with classic momentum as in SimCLR's code.

    .. math::
        G = \nabla + \lambda w, \quad
        \ell = \eta \, |w| / |G| \text{ (1 when a norm is zero)}, \quad
        v \leftarrow m v + r \ell G, \quad w \leftarrow w - v

    with rate :math:`r`, trust coefficient :math:`\eta`, momentum :math:`m`, decay
    :math:`\lambda`. The rate is inside the momentum buffer (so a falling rate acts at once on new
    gradients only), and there is no Nesterov step.

    A parameter group with ``adapt=False`` uses :math:`\ell = 1`: batch normalisation and biases.

    Args:
        params: Parameters or groups; a group may set ``adapt``.
        lr: Rate :math:`r`; 1.0 · batch / 256 on CIFAR.
        momentum: :math:`m` in [0, 1).
        weight_decay: :math:`\lambda \ge 0`.
        trust: :math:`\eta > 0`.

    References:
        Large Batch Training of Convolutional Networks (You et al., 2017)
        https://arxiv.org/abs/1708.03888
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.001,
    ) -> None:
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be in [0, 1), got {momentum}")
        if trust <= 0:
            raise ValueError(f"trust must be positive, got {trust}")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust": trust,
            "adapt": True,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update of all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        gradient = parameter.grad.add(parameter, alpha=group["weight_decay"])  # type: ignore[union-attr]
        if group["adapt"]:
            weight_norm, gradient_norm = parameter.norm(), gradient.norm()
            both = (weight_norm > 0) & (gradient_norm > 0)
            ratio = group["trust"] * weight_norm / torch.where(both, gradient_norm, 1.0)
            gradient = gradient * torch.where(both, ratio, 1.0)
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].mul_(group["momentum"]).add_(gradient, alpha=group["lr"])
        parameter.sub_(state["momentum"])


def parameter_groups(modules: Iterable[nn.Module], weight_decay: float) -> list[dict[str, Any]]:
    """Two groups: weights that decay, and vectors that do not.

    Batch-norm scales and offsets, biases and a learned temperature have at most one axis; they get
    neither weight decay nor LARS's adaptation, as in SimCLRv2.
    """
    parameters = [p for module in modules for p in module.parameters() if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0, "adapt": False},
    ]


OPTIMIZERS: Final[dict[str, Callable[[list[dict[str, Any]], float], torch.optim.Optimizer]]] = {
    "adamw": lambda groups, rate: torch.optim.AdamW(groups, lr=rate),
    "sgd": lambda groups, rate: torch.optim.SGD(groups, lr=rate, momentum=0.9),
    "lars": lambda groups, rate: LARS(groups, lr=rate),
}


def build_optimizer(
    name: str, modules: Iterable[nn.Module], *, learning_rate: float, weight_decay: float
) -> torch.optim.Optimizer:
    """An optimiser over the modules' parameters, with vectors excluded from decay.

    Args:
        name: ``adamw``, ``sgd`` (momentum 0.9) or ``lars`` (momentum 0.9, trust 0.001).
        modules: Their parameters are optimised.
        learning_rate: Base rate, at least 0; the loop sets the scheduled rate before each step.
        weight_decay: Decay of the weights with more than one axis, at least 0.

    Raises:
        ValueError: If the name is unknown or a number is negative.
    """
    if name not in OPTIMIZERS:
        raise ValueError(f"unknown optimizer {name!r}; known: {', '.join(OPTIMIZERS)}")
    if learning_rate < 0 or weight_decay < 0:
        raise ValueError(
            f"learning_rate and weight_decay must be at least 0, got {learning_rate} and "
            f"{weight_decay}"
        )
    groups = [group for group in parameter_groups(modules, weight_decay) if group["params"]]
    return OPTIMIZERS[name](groups, learning_rate)


def warmup_cosine(step: int, *, base: float, warmup: int, total: int) -> float:
    r"""The learning rate of a step: linear warm-up, then half a cosine down to zero.

    Step :math:`s` counts from 0. During the warm-up the rate is
    :math:`r (s + 1) / w`; afterwards
    :math:`\tfrac{r}{2} (1 + \cos(\pi (s - w) / (T - w)))`. It is a function of the step alone, so a
    resumed run needs no scheduler state. The published code warms up by :math:`r s / w`: its first
    step changes nothing, and every later one of the warm-up is one step behind this.

    Args:
        step: :math:`s \ge 0`.
        base: Highest rate :math:`r`.
        warmup: Number of warm-up steps :math:`w`, from 0 to `total`.
        total: Number of steps :math:`T`, at least 1.

    Example:
        >>> round(warmup_cosine(50, base=0.1, warmup=10, total=100), 10)
        0.0586824089
    """
    if not 0 <= warmup <= total or total < 1:
        raise ValueError(f"warmup must be in [0, total] and total at least 1: {warmup}, {total}")
    if step < warmup:
        return base * (step + 1) / warmup
    if total == warmup:
        return base
    return base / 2 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))
