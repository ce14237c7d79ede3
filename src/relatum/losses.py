r"""The loss: one module that binds an objective, a critic and a pairing."""

from __future__ import annotations

import difflib
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

# torch.compiler.disable, loading the compiler at the first call and not at the import of relatum.
from torch._compile import _disable_dynamo as eagerly

from .arrays import (
    Features,
    Integers,
    boolean_mask,
    check_same_width,
    features,
    integer_ids,
    one_dtype,
)
from .base import (
    Critic,
    CrossEntropyObjective,
    MomentObjective,
    Objective,
    Scores,
    SeparableCritic,
)
from .distributed import ALONE, Group
from .scores import (
    PAIRINGS,
    MovingMoments,
    Statistics,
    bank,
    checked_prior,
    debiased,
    debiased_moments,
    explicit,
    from_matrix,
    over_blocks,
    statistics_of_pairs,
)

__all__ = ["ContrastiveLoss"]


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
            ``"in_batch_symmetric"`` (both directions, averaged), ``"block"`` (CURL: y is (n, b, d),
            b class mates of each x_i, and what is scored is the mean over them), or None: two
            views, or the given pairs when ``negatives=`` is passed.
            :mod:`relatum.scores.pairings` says which pairs count as negatives in each.
        block_size: Bounds memory: separable critics are reduced in square tiles of this side,
            joint critics this many anchors at a time, recomputed in the backward pass. It never
            changes the result. None decides by the number of scores.
        group: The processes that share the batch, such as ``Group.world()``; each passes its own
            rows, as many as it has. Every process then has the loss of the whole batch, and the
            mean of their gradients is the gradient of one process with all rows
            (:mod:`relatum.distributed`). None is this process alone.
        positive_prior: The share 0 <= τ < 1 of negatives that are thought to be of the anchor's
            own class, 1 / C for C equally common classes; 0, the default, takes all as true
            negatives. See below.

    Inside ``torch.compile`` the loss runs as it is written, at any batch size; what surrounds it is
    compiled (``fullgraph=True`` is for the encoder alone).

    **Debiased negatives** (``positive_prior``, the τ⁺ of the source). The objective sees
    :math:`(E_Q φ - τ E_P φ) / (1 - τ)` wherever it takes an expectation :math:`E_Q φ` over
    negatives. Exponentials stop at the lowest value they can have: an anchor with K negatives has

    .. math:: \sum_j e^{f_{ij}} \;\to\; K \max\Big( \frac{1}{1 - τ}\Big(\frac1K \sum_j e^{f_{ij}}
        - τ e^{f_{ii}}\Big), e^{-1/T} \Big)

    so CPC, WPC, DV, NWJ and Logistic need a critic with a lowest score (``Cosine``, a normalised
    ``TwoTower``, or any with an attribute ``lowest``). Hinge takes a maximum, which has no such
    form. RPC and JS work with any critic and have *no* floor: estimates of :math:`E f^2` and of
    softplus may be negative, and where scores have no bound either, a batch then has no best loss
    (RPC keeps one if :math:`β > γ τ / (1 - τ)`). τ is about what ids leave: with ``ids=`` of
    classes it is 0. Only the loss is debiased; :meth:`scores` are as they are, so that what is read
    from them, such as mutual information, keeps its meaning.

    Raises:
        TypeError: If the objective or critic is not one, or inputs are not floating point.
        ValueError: If the pairing is unknown, a two-view pairing meets a critic whose sides
            differ, shapes do not fit, nothing is left to contrast with, or ``positive_prior`` is
            outside its range or does not go with the objective or the critic.

    References:
        Debiased Contrastive Learning (Chuang et al., 2020), section 4.
        https://arxiv.org/abs/2007.00224

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
        positive_prior: float = 0.0,
    ) -> None:
        super().__init__()
        if isinstance(objective, type | Critic) or not callable(objective):
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
        self.positive_prior = checked_prior(positive_prior)
        self._check_debiased()
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
            y: The other side, (n, dy); (n, b, dy) in blocks.
            ids: One integer per pair; candidates with the anchor's id are not its negatives. A
                negative number belongs to nobody else (signed hashes are negative half the time:
                shift them).
            negatives: Given negatives instead of the batch's: (n, k, dy), k for each anchor, or
                (m, dy), one bank shared by all. In blocks (n, k, b, dy) or (m, b, dy).
            negative_ids: Ids of the given negatives, (n, k) or (m,).
            negative_mask: True where a given negative counts, (n, k) or (n, m).
            unsupported: Anything else is refused by name.
        """
        _refuse(unsupported)
        x, y = features("x", x), features("y", y)
        _check_pair(x, y, self.group, self._blocks)
        x, y = one_dtype(x, y)
        own = integer_ids("ids", ids, (len(x),), x)
        if negatives is None:
            for name, value in (("negative_ids", negative_ids), ("negative_mask", negative_mask)):
                if value is not None:
                    raise ValueError(f"{name} describes given negatives: pass negatives= as well")
            if self.pairing in (None, "two_view"):
                self._check_symmetric()
                check_same_width(x, y)
            pairing = PAIRINGS[self.pairing or "two_view"]
            return pairing(self.critic, x, y, ids=own, block_size=self.block_size, group=self.group)
        if self.pairing not in (None, "in_batch", "block"):
            raise ValueError(
                f"negatives= replaces the negatives of the batch and does not go with "
                f"pairing={self.pairing!r}; use pairing=None, 'in_batch' or 'block'"
            )
        return self._given(x, y, own, negatives, negative_ids, negative_mask)

    @eagerly
    def from_scores(self, scores: Scores) -> Float[Tensor, ""]:
        """The loss of scores that are at hand."""
        if self.positive_prior:
            lowest = getattr(self.critic, "lowest", None)
            scores = debiased(scores, self.positive_prior, lowest)
        if isinstance(self.objective, CrossEntropyObjective):
            return self.objective.cross_entropy(scores)
        return -self.objective(scores)

    @eagerly
    def statistics(self, x: Features, y: Features, **unsupported: Any) -> Statistics:
        """What a part of a batch adds to the moments of the whole: embeddings need not be kept.

        Statistics of parts, of any sizes, add up by ``plus``; :meth:`from_statistics` is then the
        loss of all parts as one batch. They are summed in float64, so nothing cancels. There are no
        ids, since copies that stand in other parts could not be found; nor given negatives.

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
        for name in unsupported:
            raise TypeError(
                f"statistics take no {name}=: each part knows its own pairs alone, so that copies "
                "in other parts could not be left out; pass all embeddings to the loss itself"
            )
        self._moment_objective()
        critic = over_blocks(self.critic) if self._blocks else self.critic
        if not isinstance(critic, SeparableCritic):
            raise TypeError(
                f"statistics need a separable critic, such as Cosine or Bilinear; "
                f"{type(self.critic).__name__} is not"
            )
        x, y = features("x", x), features("y", y)
        _check_pair(x, y, ALONE, self._blocks)
        views = self.pairing in (None, "two_view")
        if views:
            self._check_symmetric()
            check_same_width(x, y)
        x, y = one_dtype(x, y)
        return statistics_of_pairs(critic, x, y, views)

    @eagerly
    def from_statistics(
        self, total: Statistics, past: MovingMoments | None = None
    ) -> Float[Tensor, ""]:
        """The loss of all parts whose statistics were added up; with a group, of all processes.

        Args:
            total: The sum of the parts' statistics, those of this process.
            past: Moments of earlier steps that count as well (:mod:`relatum.scores.streaming`).

        Raises:
            TypeError: If the objective is not a function of two moments.
            ValueError: If there is only one pair, which has no negatives.
        """
        objective = self._moment_objective()
        positives, negatives = total.moments(self.group, self.pairing == "in_batch_symmetric")
        if past is not None:
            negatives = past.blend(negatives, total, self.group)
        if self.positive_prior:
            negatives = debiased_moments(negatives, positives, self.positive_prior)
        return -objective.from_moments(positives, negatives)

    def extra_repr(self) -> str:
        """Shown by ``print(loss)``."""
        shown = f"{self.objective}, pairing={self.pairing!r}, block_size={self.block_size}"
        if self.positive_prior:
            shown += f", positive_prior={self.positive_prior:.6g}"
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
        negatives = features("negatives", given)
        shape = tuple(negatives.shape)
        lead = shape[: -2 if self._blocks else -1]  # (m,) or (n, k)
        if len(lead) not in (1, 2) or (len(lead) == 2 and lead[0] != len(x)):
            row = "b, d" if self._blocks else "d"
            raise ValueError(
                f"negatives must be (m, {row}), shared by all anchors, or (n, k, {row}), k for "
                f"each of the n = {len(x)} anchors; got shape {shape}"
            )
        if 0 in shape[:-1]:
            raise ValueError(f"negatives hold no candidates: no negatives in shape {shape}")
        if shape[-1] != y.shape[-1]:
            raise ValueError(
                f"negatives and y must have one width, got {shape} and {tuple(y.shape)}"
            )
        if negatives.device != x.device:
            raise ValueError(f"negatives are on {negatives.device}, x on {x.device}")
        if (ids is None) != (negative_ids is None):
            raise ValueError(
                "given negatives are matched by ids only if both ids= and negative_ids= are passed"
            )
        x, y, negatives = one_dtype(x, y, negatives)
        candidates = integer_ids("negative_ids", negative_ids, lead, x)
        mask = boolean_mask(negative_mask, (len(x), lead[-1]), x)
        critic = over_blocks(self.critic) if self._blocks else self.critic
        if len(lead) == 2:
            return explicit(
                critic, x, y, negatives, ids=ids, negative_ids=candidates, mask=mask,
                block_size=self.block_size, group=self.group,
            )  # fmt: skip
        return bank(
            critic, x, y, negatives, ids=ids, candidate_ids=candidates, mask=mask,
            block_size=self.block_size, group=self.group,
        )  # fmt: skip

    @property
    def _blocks(self) -> bool:
        return self.pairing == "block"

    def _moment_objective(self) -> MomentObjective:
        if not isinstance(self.objective, MomentObjective):
            raise TypeError(
                f"{type(self.objective).__name__} needs every score of its negatives; statistics "
                "are enough for RPC and chi_square() alone"
            )
        return self.objective

    def _check_debiased(self) -> None:
        """Tries the loss on four scores: what the objective asks of its negatives shows there."""
        if not self.positive_prior:
            return
        try:
            self.from_scores(from_matrix(torch.zeros(2, 2)))
        except ValueError as error:
            names = f"{type(self.objective).__name__} with {type(self.critic).__name__}"
            raise ValueError(f"{names}: {error}") from None

    def _check_symmetric(self) -> None:
        if not getattr(self.critic, "symmetric", False):
            raise ValueError(
                f"pairing 'two_view' treats both views alike and needs a critic with "
                f"f(x, y) = f(y, x); {type(self.critic).__name__} is not: use pairing='in_batch' "
                "or 'in_batch_symmetric'"
            )


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


def _check_pair(x: Tensor, y: Tensor, group: Group, blocks: bool) -> None:
    # Agreed upon first: a process that stopped alone would leave the others waiting.
    rows = group.rows(len(x) if x.ndim else 0)
    if group.size > 1 and 0 in rows:
        raise ValueError(
            f"every process needs at least one pair, they have {rows}: use fewer processes or a "
            "larger batch"
        )
    shapes = f"x has shape {tuple(x.shape)}, y {tuple(y.shape)}"
    if blocks and (x.ndim != 2 or y.ndim != 3):
        raise ValueError(
            f"pairing 'block' takes x (n, d) and y (n, b, d), b class mates of each row: {shapes}"
        )
    if not blocks and (x.ndim != 2 or y.ndim != 2):
        more = "; for b class mates of each row, (n, b, d), use pairing='block'" * (y.ndim == 3)
        raise ValueError(f"x and y must be (n, d), one row per pair: {shapes}{more}")
    if len(x) != len(y):
        raise ValueError(f"x and y must have one row per pair: {shapes}")
    if 0 in (*x.shape, *y.shape):
        raise ValueError(f"x and y hold nothing: {shapes}")
    if x.device != y.device:
        raise ValueError(f"x is on {x.device}, y on {y.device}")
