"""The losses that are compared, and what each of them is checked against first."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from relatum import CPC, DV, JS, NWJ, RPC, ContrastiveLoss, Cosine, DotProduct, Hinge

DIM = 128
TILE = 512
TOLERANCE = 1e-5

Step = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""Takes (x, y), gives the value and both gradients."""


@dataclass(frozen=True)
class Formula:
    """What a contestant is meant to compute; contestants of one formula are compared.

    Attributes:
        objective: One of CPC, DV, NWJ, JS, RPC, Hinge.
        pairing: As in ``ContrastiveLoss``.
        critic: ``cosine`` or ``dot``.
        temperature: What scores are divided by.
    """

    objective: str
    pairing: str
    critic: str = "cosine"
    temperature: float = 0.5

    def __str__(self) -> str:
        return f"{self.objective}, {self.pairing}, {self.critic} / {self.temperature:g}"


@dataclass(frozen=True)
class Contestant:
    """One row of the tables.

    Attributes:
        name: Short, and unique.
        kind: Ours, a peer, or the floor below which no loss of all pairs can be.
        formula: What it is checked against.
        build: Makes the loss, of (x, y); for the floor it is the whole step.
        growth: Its memory grows with this power of the number of pairs.
    """

    name: str
    kind: Literal["ours", "peer", "floor"]
    formula: Formula
    build: Callable[[], Any]
    growth: int

    def step(self) -> Step:
        """Forward and backward to the gradients of both inputs."""
        loss = self.build()
        if self.kind == "floor":
            return loss  # type: ignore[no-any-return]

        def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            value = loss(x, y)
            return (value.detach(), *torch.autograd.grad(value, (x, y)))

        return step


def inputs(
    pairs: int, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Embeddings x ~ N(0, 1) and y = x / 10 + N(0, 1), the same for everybody.

    Hardly related on purpose: losses of well related pairs are 0 at a low temperature.
    """
    generator = torch.Generator(device).manual_seed(0)
    x = torch.randn(pairs, DIM, generator=generator, device=device, dtype=dtype)
    y = torch.randn(pairs, DIM, generator=generator, device=device, dtype=dtype)
    y.add_(x, alpha=0.1)
    return x.requires_grad_(), y.requires_grad_()


def bare_products() -> Step:
    """The floor of two views: S = Z Zᵀ and S Z of the 2N x 2N matrix, tile by tile, nothing else.

    Every tile of 512 x 512 is computed into one buffer (the product of a forward pass) and
    multiplied by its candidates (the product of a backward pass). No symmetry is used, nothing is
    normalised, no exponential is taken.
    """

    @torch.no_grad()
    def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = torch.cat([x, y])
        gradient, buffer = torch.zeros_like(z), z.new_empty(TILE * TILE)
        parts = [slice(i, min(i + TILE, len(z))) for i in range(0, len(z), TILE)]
        for rows, columns in itertools.product(parts, parts):
            a, b = rows.stop - rows.start, columns.stop - columns.start
            tile = torch.mm(z[rows], z[columns].T, out=buffer[: a * b].view(a, b))
            gradient[rows].addmm_(tile, z[columns])
        return (z.new_full((), math.nan), *gradient.chunk(2))

    return step


def lightly_ntxent() -> Any:
    from lightly.loss import NTXentLoss

    return NTXentLoss(temperature=0.5)


def metric_learning(symmetric: bool) -> Any:
    from pytorch_metric_learning.losses import NTXentLoss, SelfSupervisedLoss

    return SelfSupervisedLoss(NTXentLoss(temperature=0.5), symmetric=symmetric)


def open_clip_loss() -> Any:
    from open_clip.loss import ClipLoss

    loss = ClipLoss()

    def call(x: Tensor, y: Tensor) -> Tensor:
        # Its model normalises the features and hands over exp(logit_scale) = 1 / T.
        return loss(functional.normalize(x, dim=1), functional.normalize(y, dim=1), 2.0)

    return call


def info_nce() -> Any:
    from info_nce import InfoNCE

    return InfoNCE(temperature=0.5)


TWO_VIEW = Formula("CPC", "two_view")
ONE_WAY = Formula("CPC", "in_batch")
SYMMETRIC = Formula("CPC", "in_batch_symmetric")
OBJECTIVES = {
    "CPC": CPC(),
    "DV": DV(),
    "NWJ": NWJ(),
    "JS": JS(),
    "RPC": RPC(1.0, 0.005, 1.0),
    "Hinge": Hinge(),
}


def ours(formula: Formula) -> Contestant:
    critic = Cosine if formula.critic == "cosine" else DotProduct

    def build() -> ContrastiveLoss:
        return ContrastiveLoss(
            OBJECTIVES[formula.objective], critic(formula.temperature), formula.pairing
        )

    return Contestant(f"relatum {formula}", "ours", formula, build, 1)


CONTESTANTS = [
    ours(TWO_VIEW),
    Contestant("two bare tiled products", "floor", TWO_VIEW, bare_products, 1),
    Contestant("lightly NTXentLoss", "peer", TWO_VIEW, lightly_ntxent, 2),
    Contestant(
        "pytorch-metric-learning NTXentLoss", "peer", TWO_VIEW, lambda: metric_learning(True), 3
    ),
    ours(SYMMETRIC),
    Contestant("open_clip ClipLoss", "peer", SYMMETRIC, open_clip_loss, 2),
    ours(ONE_WAY),
    Contestant("info-nce-pytorch InfoNCE", "peer", ONE_WAY, info_nce, 2),
    ours(replace(TWO_VIEW, temperature=0.01)),
    *(ours(Formula(objective, "two_view")) for objective in ("DV", "NWJ", "JS", "Hinge")),
    *(
        ours(Formula("RPC", pairing, critic, temperature))
        for critic, temperature in (("cosine", 0.5), ("dot", 128.0))
        for pairing in ("two_view", "in_batch")
    ),
]  # fmt: skip
CHECKED_ONLY = [
    Contestant(
        "pytorch-metric-learning NTXentLoss, symmetric=False", "peer", ONE_WAY,
        lambda: metric_learning(False), 3,
    ),
]  # fmt: skip
BY_NAME = {contestant.name: contestant for contestant in (*CONTESTANTS, *CHECKED_ONLY)}
LINEAR = [c.name for c in CONTESTANTS if c.formula.objective == "RPC"]


def truth(formula: Formula, x: Tensor, y: Tensor) -> Tensor:
    """The loss by its definition, pair by pair in float64."""
    rows, n = torch.cat([x, y]).double(), len(x)
    if formula.critic == "cosine":
        rows = rows / rows.square().sum(1, keepdim=True).sqrt()
    scores = [[(a * b).sum() / formula.temperature for b in rows] for a in rows]
    positives, negatives = [], []
    for anchor in range(n if formula.pairing == "in_batch" else 2 * n):
        partner = (anchor + n) % (2 * n)
        others = range(2 * n)
        if formula.pairing != "two_view":  # only the other side
            others = range(n, 2 * n) if anchor < n else range(n)
        positives.append(scores[anchor][partner])
        kept = [scores[anchor][j] for j in others if j not in (anchor, partner)]
        negatives.append(torch.stack(kept))
    return _loss(formula.objective, torch.stack(positives), torch.stack(negatives))


def _loss(objective: str, positive: Tensor, negative: Tensor) -> Tensor:
    """From the positive score (n) and the negative scores (n, k) of each anchor."""
    if objective == "CPC":
        return ((positive.exp() + negative.exp().sum(1)).log() - positive).mean()
    if objective == "DV":
        return negative.exp().mean().log() - positive.mean()
    if objective == "NWJ":
        return (negative - 1).exp().mean() - positive.mean()
    if objective == "JS":
        return (1 + (-positive).exp()).log().mean() + (1 + negative.exp()).log().mean()
    if objective == "Hinge":
        return (1 + negative.max(1).values - positive).relu().mean()
    if objective == "RPC":  # (1, 0.005, 1)
        squares = 0.005 / 2 * positive.square().mean() + negative.square().mean() / 2
        return negative.mean() + squares - positive.mean()
    raise ValueError(f"no definition of {objective}")


@dataclass(frozen=True)
class Check:
    """Relative differences from the truth: value and gradient, in float64 and as timed."""

    value: float
    gradient: float
    value32: float
    gradient32: float

    @property
    def correct(self) -> bool:
        """Whether it computes the formula."""
        return max(self.value, self.gradient) <= TOLERANCE


def check(contestant: Contestant, pairs: int = 12) -> Check:
    """A contestant against the truth on a few pairs."""
    found: list[float] = []
    for dtype in (torch.float64, torch.float32):
        x, y = inputs(pairs, dtype=dtype)
        wide = [t.detach().double().requires_grad_() for t in (x, y)]
        value = truth(contestant.formula, *wide)
        right = torch.cat(torch.autograd.grad(value, wide))
        got, *gradients = contestant.step()(x, y)
        gradient = torch.cat(gradients).double()
        found.append(float((got.double() - value.detach()).abs() / value.detach().abs()))
        found.append(float((gradient - right).norm() / right.norm()))
    return Check(*found)
