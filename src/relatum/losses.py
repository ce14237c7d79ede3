r"""The loss: one module that binds an objective, a critic and a pairing."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

# torch.compiler.disable, loading the compiler at the first call and not at the import of relatum.
from torch._compile import _disable_dynamo as eagerly

from .base import (
    Critic,
    CrossEntropyObjective,
    MomentObjective,
    Objective,
    Scores,
    SeparableCritic,
)
from .distributed import ALONE, Group
from .scores import PAIRINGS, Statistics, bank, explicit, statistics_of_pairs

__all__ = ["ContrastiveLoss", "gradient_penalty"]

Features = Tensor | NDArray[Any]
"""Embeddings, (n, d): tensors of any floating type, or numpy arrays."""

Integers = Tensor | NDArray[Any] | Sequence[Any]
"""Ids: integers of any type, as tensor, array or list."""


class ContrastiveLoss(nn.Module):
    r"""A contrastive loss: :math:`-J(f)` for an objective J, a critic f and a pairing.

    The loss is exactly :math:`-J`, in nats (``Logistic`` in bits), with one exception: for ``CPC``
    and ``WPC`` it is the cross-entropy :math:`\log K - J` over the K candidates of an anchor, as
    people know NT-Xent. ``ContrastiveLoss(WPC(), ...)`` is that cross-entropy alone: the Lipschitz
    penalty is :func:`gradient_penalty`, which needs the network's inputs.

    Args:
        objective: What is maximised, e.g. ``RPC(1.0, 0.005, 1.0)``.
        critic: How a pair is scored, e.g. ``Cosine(temperature=0.1)``; its parameters, if any,
            are parameters of this module.
        pairing: ``"two_view"`` (SimCLR's 2N rows), ``"in_batch"`` (x_i against all y_j),
            ``"in_batch_symmetric"`` (both directions, averaged), or None: two views, or the given
            pairs when ``negatives=`` is passed. :mod:`relatum.scores.pairings` says which pairs
            count as negatives in each.
        block_size: Bounds memory: separable critics are reduced in square tiles of this side,
            joint critics this many anchors at a time, recomputed in the backward pass. It never
            changes the result. None decides by the number of scores.
        group: The processes that share the batch, such as ``Group.world()``; each passes its own
            rows, as many as it has. Every process then has the loss of the whole batch, and the
            mean of their gradients is the gradient of one process with all rows
            (:mod:`relatum.distributed`). None is this process alone.

    Raises:
        TypeError: If the objective or critic is not one, or inputs are not floating point.
        ValueError: If the pairing is unknown, a two-view pairing meets a critic whose sides
            differ, shapes do not fit, or nothing is left to contrast with.

    Example:
        >>> from relatum import RPC, Cosine
        >>> loss = ContrastiveLoss(RPC(1.0, 0.005, 1.0), Cosine(temperature=0.1))
        >>> z1, z2 = torch.eye(4), torch.eye(4)
        >>> loss(z1, z2)
        tensor(-9.7500)
    """

    def __init__(
        self,
        objective: Objective,
        critic: Critic,
        pairing: str | None = None,
        block_size: int | None = None,
        group: Group | None = None,
    ) -> None:
        super().__init__()
        if isinstance(objective, type | SeparableCritic) or not callable(objective):
            hint = f"{objective.__name__}()" if isinstance(objective, type) else "RPC()"
            raise TypeError(f"objective must be an instance such as {hint}, got {objective!r}")
        if isinstance(critic, type) or not callable(critic):
            hint = f"{critic.__name__}(...)" if isinstance(critic, type) else "Cosine(0.1)"
            raise TypeError(f"critic must be an instance such as {hint}, got {critic!r}")
        if pairing is not None and pairing not in PAIRINGS:
            near = difflib.get_close_matches(str(pairing), PAIRINGS, 1, 0)
            raise ValueError(
                f"pairing must be None or one of {', '.join(PAIRINGS)}, got {pairing!r}; "
                f"the nearest is {near[0]!r}"
            )
        if block_size is not None and (type(block_size) is not int or block_size < 1):
            raise ValueError(f"block_size must be a whole number of at least 1, got {block_size!r}")
        self.objective, self.critic = objective, critic
        self.pairing, self.block_size = pairing, block_size
        self.group = ALONE if group is None else group
        if pairing == "two_view":
            self._check_symmetric()

    @eagerly
    def forward(self, x: Features, y: Features, **given: Any) -> Float[Tensor, ""]:
        """The loss of a batch of related pairs (x_i, y_i); keywords as in :meth:`scores`."""
        return self.from_scores(self.scores(x, y, **given))

    @eagerly
    def scores(
        self,
        x: Features,
        y: Features,
        *,
        ids: Integers | None = None,
        negatives: Features | None = None,
        negative_ids: Integers | None = None,
        negative_mask: Integers | None = None,
        **unsupported: Any,
    ) -> Scores:
        """Positives and negatives of a batch, from which losses and readings follow.

        Args:
            x: One side of the pairs, (n, dx).
            y: The other side, (n, dy).
            ids: One integer per pair; candidates with the anchor's id are not its negatives. A
                negative number belongs to nobody else (signed hashes are negative half the time:
                shift them).
            negatives: Given negatives instead of the batch's: (n, k, dy), k for each anchor, or
                (m, dy), one bank shared by all.
            negative_ids: Ids of the given negatives, of their shape without the last axis.
            negative_mask: True where a given negative counts, (n, k) or (n, m).
            unsupported: Anything else is refused by name.
        """
        _refuse(unsupported)
        x, y = _features("x", x), _features("y", y)
        _check_pair(x, y, self.group)
        x, y = _one_dtype(x, y)
        own = _ids("ids", ids, (len(x),), x)
        if negatives is None:
            for name, value in (("negative_ids", negative_ids), ("negative_mask", negative_mask)):
                if value is not None:
                    raise ValueError(f"{name} describes given negatives: pass negatives= as well")
            if self.pairing in (None, "two_view"):
                self._check_symmetric()
                _check_same_width(x, y)
            pairing = PAIRINGS[self.pairing or "two_view"]
            return pairing(self.critic, x, y, ids=own, block_size=self.block_size, group=self.group)
        if self.pairing not in (None, "in_batch"):
            raise ValueError(
                f"negatives= replaces the negatives of the batch and does not go with "
                f"pairing={self.pairing!r}; use pairing=None or 'in_batch'"
            )
        return self._given(x, y, own, negatives, negative_ids, negative_mask)

    @eagerly
    def from_scores(self, scores: Scores) -> Float[Tensor, ""]:
        """The loss of scores that are at hand."""
        if isinstance(self.objective, CrossEntropyObjective):
            return self.objective.cross_entropy(scores)
        return -self.objective(scores)

    @eagerly
    def statistics(self, x: Features, y: Features) -> Statistics:
        """What a part of a batch adds to the moments of the whole: embeddings need not be kept.

        Statistics of parts, of any sizes, add up by ``plus``; :meth:`from_statistics` is then the
        loss of all parts as one batch. They are summed in float64, so nothing cancels.

        Raises:
            TypeError: If the objective is not a function of two moments, or the critic is not
                separable.

        Example:
            >>> from relatum import RPC, Cosine
            >>> loss = ContrastiveLoss(RPC(), Cosine(0.5))
            >>> x, y = torch.randn(2, 6, 3)
            >>> parts = [loss.statistics(x[i : i + 2], y[i : i + 2]) for i in (0, 2, 4)]
            >>> total = parts[0].plus(parts[1]).plus(parts[2])
            >>> bool((loss.from_statistics(total) - loss(x, y)).abs() < 1e-5)
            True
        """
        if not isinstance(self.objective, MomentObjective):
            raise TypeError(
                f"{type(self.objective).__name__} needs every score of its negatives; statistics "
                "are enough for RPC and chi_square() alone"
            )
        if not isinstance(self.critic, SeparableCritic):
            raise TypeError(
                f"statistics need a separable critic, such as Cosine or Bilinear; "
                f"{type(self.critic).__name__} is not"
            )
        x, y = _features("x", x), _features("y", y)
        _check_pair(x, y, ALONE)
        views = self.pairing in (None, "two_view")
        if views:
            self._check_symmetric()
            _check_same_width(x, y)
        x, y = _one_dtype(x, y)
        return statistics_of_pairs(self.critic, x, y, views)

    @eagerly
    def from_statistics(self, total: Statistics) -> Float[Tensor, ""]:
        """The loss of all parts whose statistics were added up; with a group, of all processes.

        Raises:
            ValueError: If there is only one pair, which has no negatives.
        """
        assert isinstance(self.objective, MomentObjective)
        both = self.pairing == "in_batch_symmetric"
        return -self.objective.from_moments(*total.moments(self.group, both))

    def extra_repr(self) -> str:
        """Shown by ``print(loss)``."""
        shown = f"{self.objective}, pairing={self.pairing!r}, block_size={self.block_size}"
        return shown if self.group.size == 1 else f"{shown}, {self.group}"

    def _given(
        self,
        x: Tensor,
        y: Tensor,
        ids: Tensor | None,
        given: Features,
        negative_ids: Integers | None,
        negative_mask: Integers | None,
    ) -> Scores:
        negatives = _features("negatives", given)
        shape = tuple(negatives.shape)
        if negatives.ndim not in (2, 3) or (negatives.ndim == 3 and shape[0] != len(x)):
            raise ValueError(
                f"negatives must be (m, d), shared by all anchors, or (n, k, d), k for each of the "
                f"n = {len(x)} anchors; got shape {shape}"
            )
        if shape[-2] == 0:
            raise ValueError(f"negatives hold no candidates: no negatives in shape {shape}")
        if shape[-1] != y.shape[1]:
            raise ValueError(
                f"negatives and y must have one width, got {shape} and {tuple(y.shape)}"
            )
        if negatives.device != x.device:
            raise ValueError(f"negatives are on {negatives.device}, x on {x.device}")
        if (ids is None) != (negative_ids is None):
            raise ValueError(
                "given negatives are matched by ids only if both ids= and negative_ids= are passed"
            )
        x, y, negatives = _one_dtype(x, y, negatives)
        candidates = _ids("negative_ids", negative_ids, shape[:-1], x)
        mask = _mask(negative_mask, (len(x), shape[-2]), x)
        if negatives.ndim == 3:
            return explicit(
                self.critic, x, y, negatives, ids=ids, negative_ids=candidates, mask=mask,
                block_size=self.block_size, group=self.group,
            )  # fmt: skip
        return bank(
            self.critic, x, y, negatives, ids=ids, candidate_ids=candidates, mask=mask,
            block_size=self.block_size, group=self.group,
        )  # fmt: skip

    def _check_symmetric(self) -> None:
        if not getattr(self.critic, "symmetric", False):
            raise ValueError(
                f"pairing 'two_view' treats both views alike and needs a critic with "
                f"f(x, y) = f(y, x); {type(self.critic).__name__} is not: use pairing='in_batch' "
                "or 'in_batch_symmetric'"
            )


@eagerly
def gradient_penalty(
    critic_of_inputs: Callable[[Tensor, Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    *,
    target: float = 1.0,
    one_sided: bool = True,
) -> Float[Tensor, ""]:
    r"""The Lipschitz penalty of WPC: how far the score's gradient exceeds the target.

    .. math:: \frac1n \sum_i \max\big(0, \|\nabla_{(x, y)} f(x_i, y_i)\|_2 - c\big)^2

    with c the target; two-sided, :math:`(\|\nabla f\| - c)^2`. The gradient is taken with respect
    to both *inputs* of the pair, per pair, so the critic given here runs from the networks' inputs
    to the score, and must not mix pairs: put batch normalisation in evaluation mode. A pair whose
    gradient vanishes contributes its value and no gradient (never NaN).

    Args:
        critic_of_inputs: Takes (x, y) and gives n scores.
        x: Inputs of one side, (n, ...), for example images.
        y: Inputs of the other side, (n, ...).
        target: The Lipschitz constant c >= 0.
        one_sided: Whether gradients below the target are free.

    Raises:
        ValueError: If the scores are not one per pair, or the target is negative.

    References:
        Wasserstein Dependency Measure for Representation Learning (Ozair et al., 2019);
        one-sided form of Improved Training of Wasserstein GANs (Gulrajani et al., 2017).

    Example:
        >>> x = torch.ones(2, 3)
        >>> gradient_penalty(lambda a, b: 2 * (a + b).sum(1), x, x)  # (√(6 · 4) − 1)²
        tensor(15.2020)
    """
    if not target >= 0:
        raise ValueError(f"target must be at least 0, got {target}")
    with torch.enable_grad():
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        scores = critic_of_inputs(x, y)
        if scores.shape != (len(x),):
            raise ValueError(
                f"critic_of_inputs must give one score per pair, shape ({len(x)},); "
                f"got {tuple(scores.shape)}"
            )
        gradients = torch.autograd.grad(
            scores.sum(), (x, y), create_graph=True, materialize_grads=True
        )
        # Squares of half-precision gradients overflow above 256.
        wide = [g.float() if g.dtype.itemsize < 4 else g for g in gradients]
        square = sum(g.flatten(1).square().sum(1) for g in wide)
        assert isinstance(square, Tensor)
        # √ has slope ∞ at 0; there the norm is 0 and its gradient is set to 0.
        zero = square == 0
        norm = square.masked_fill(zero, 1).sqrt().masked_fill(zero, 0)
        excess = norm - target
        return (excess.relu() if one_sided else excess).square().mean()


def _refuse(unsupported: dict[str, Any]) -> None:
    for name in unsupported:
        if name in ("labels", "targets", "soft_targets"):
            raise TypeError(
                f"{name}= is not supported: every anchor has exactly one positive here, so there "
                "is no supervised-contrastive or soft-target form; pass ids= to keep samples of "
                "one class from being negatives of each other"
            )
        known = ["ids", "negatives", "negative_ids", "negative_mask"]
        near = difflib.get_close_matches(name, known, 1, 0)
        raise TypeError(f"unknown argument {name!r}; the nearest is {near[0]!r}")


def _features(name: str, value: object) -> Float[Tensor, ...]:
    if isinstance(value, np.ndarray):
        # A copy: torch takes neither negative strides nor read-only arrays.
        value = torch.from_numpy(np.array(value, order="C"))
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor or array, got {type(value).__name__}")
    if not value.is_floating_point():
        raise TypeError(
            f"{name} must be floating point, got {value.dtype}: convert it with .float()"
        )
    return value


def _check_pair(x: Tensor, y: Tensor, group: Group) -> None:
    # Agreed upon first: a process that stopped alone would leave the others waiting.
    rows = group.rows(len(x))
    if group.size > 1 and 0 in rows:
        raise ValueError(
            f"every process needs at least one pair, they have {rows}: use fewer processes or a "
            "larger batch"
        )
    shapes = f"x has shape {tuple(x.shape)}, y {tuple(y.shape)}"
    if x.ndim != 2 or y.ndim != 2:
        raise ValueError(f"x and y must be (n, d), one row per pair: {shapes}")
    if len(x) != len(y):
        raise ValueError(f"x and y must have one row per pair: {shapes}")
    if 0 in (*x.shape, *y.shape):
        raise ValueError(f"x and y hold nothing: {shapes}")
    if x.device != y.device:
        raise ValueError(f"x is on {x.device}, y on {y.device}")


def _one_dtype(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The widest of the types, for all: float32 and float64 sides meet in float64."""
    wide = tensors[0].dtype
    for tensor in tensors[1:]:
        wide = torch.promote_types(wide, tensor.dtype)
    return tuple(tensor.to(wide) for tensor in tensors)


def _check_same_width(x: Tensor, y: Tensor) -> None:
    if x.shape[1] != y.shape[1]:
        raise ValueError(
            f"two views must have one width, got shapes {tuple(x.shape)} and {tuple(y.shape)}"
        )


def _ids(name: str, ids: object, shape: tuple[int, ...], like: Tensor) -> Tensor | None:
    if ids is None:
        return None
    tensor = _as_tensor(name, ids)
    if tensor.is_floating_point() or tensor.is_complex():
        raise TypeError(f"{name} must be integers, got {tensor.dtype}")
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")
    signed = tensor.to(device=like.device, dtype=torch.int64)
    if tensor.dtype == torch.uint64 and bool((signed < 0).any()):
        raise ValueError(f"{name} must be below 2**63: larger ones do not fit signed integers")
    return signed


def _mask(mask: object, shape: tuple[int, ...], like: Tensor) -> Tensor | None:
    if mask is None:
        return None
    tensor = _as_tensor("negative_mask", mask)
    if tensor.dtype != torch.bool:
        raise TypeError(f"negative_mask must be boolean (True = counts), got {tensor.dtype}")
    if tuple(tensor.shape) != shape:
        raise ValueError(f"negative_mask must have shape {shape}, got {tuple(tensor.shape)}")
    return tensor.to(like.device)


def _as_tensor(name: str, value: object) -> Tensor:
    try:
        # A copy of arrays: torch takes neither negative strides nor read-only ones.
        return torch.as_tensor(np.array(value) if isinstance(value, np.ndarray) else value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} cannot be read as integers: {error}") from None
