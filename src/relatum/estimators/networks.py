"""The networks of an encoder: one tower a side, and the loss between them."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..base import Critic, Objective, Scores, SeparableCritic
from ..critics import Cosine, DotProduct, TwoTower
from ..losses import ContrastiveLoss
from ..objectives import OBJECTIVES
from .pairs import Pair

__all__ = ["Networks", "objective_of"]

TOWERS = ("linear", "mlp")
CRITICS: dict[str, Callable[[float], Critic]] = {"cosine": Cosine, "dot": DotProduct}

_PART = 8192  # rows embedded at a time


class Networks(nn.Module):
    """Towers that embed the sides, and the loss that compares embeddings.

    Args:
        towers: One, which both sides share, or one a side.
        loss: Binds objective, critic and pairing.
    """

    def __init__(self, towers: Sequence[nn.Module], loss: ContrastiveLoss) -> None:
        super().__init__()
        self.towers = nn.ModuleList(towers)
        self.loss = loss

    def tower(self, side: str) -> nn.Module:
        """The tower of a side."""
        return self.towers[0 if side == "x" else -1]

    def embed(
        self, x: Float[Tensor, "n d"], side: str, micro: int | None = None
    ) -> Float[Tensor, "n e"]:
        """Embeddings; in parts that are computed again in the backward pass, if `micro` is less.

        The gradient is that of the whole batch: nothing is summed in between but memory.
        """
        tower = self.tower(side)
        if micro is None or micro >= len(x):
            out: Tensor = tower(x)
        else:
            parts = [checkpoint(tower, part, use_reentrant=False) for part in torch.split(x, micro)]
            out = torch.cat(parts)
        if out.ndim != 2 or len(out) != len(x):
            raise ValueError(
                f"the encoder must map (n, d) to (n, dimension); of {tuple(x.shape)} it made "
                f"{tuple(out.shape)}"
            )
        return out

    def scores(self, pair: Pair, micro: int | None = None) -> Scores:
        """Positives and negatives of a batch of pairs."""
        x, y = self.embed(pair.x, "x", micro), self.embed(pair.y, "y", micro)
        return self.loss.scores(x, y, ids=pair.ids)

    @torch.no_grad()
    def embed_all(self, x: Float[Tensor, "n d"], side: str, *, exact: bool) -> Float[Tensor, "n e"]:
        """Embeddings without gradient, on the CPU, a part at a time.

        With `exact` in float64, so that what a row becomes does not depend on the rows beside it
        (float32 products of matrices are rounded otherwise for each number of rows).
        """
        self.eval()
        networks = copy.deepcopy(self).double() if exact else self
        where = next((p.device for p in self.parameters()), torch.device("cpu"))
        wide = x.double() if exact else x.float()
        parts = [
            networks.embed(wide[at : at + _PART].to(where), side).cpu()
            for at in range(0, len(x), _PART)
        ]
        return torch.cat(parts)

    @torch.no_grad()
    def score_all(self, x: Float[Tensor, "n e"], y: Float[Tensor, "m e"]) -> Float[Tensor, "n m"]:
        """The critic's scores of all pairs of embeddings, without gradient."""
        critic = self.loss.critic
        if isinstance(critic, nn.Module):
            critic = copy.deepcopy(critic).to(x)
        if isinstance(critic, SeparableCritic):
            u, v = critic.factors(x, y)
            return u @ v.T
        scores: Tensor = critic(x[:, None], y[None])
        return scores

    @property
    def rows_meet(self) -> bool:
        """Whether a layer ties the rows of a batch together, as batch normalisation does."""
        return not TwoTower(self.towers[0], self.towers[-1]).rowwise

    @classmethod
    def build(
        cls,
        *,
        encoder: Any,
        widths: tuple[int, int | None],
        dimension: int,
        hidden: Sequence[int],
        objective: Objective,
        critic: Any,
        temperature: float,
        views: bool,
    ) -> Networks:
        """New networks, from torch's global generator; modules that are given are copied.

        Args:
            encoder: "linear", "mlp", a module, or a pair of these.
            widths: Columns of the sides; None for the second if it is of the first's kind.
            dimension: Of the embedding, for towers that are built here.
            hidden: Widths of the hidden layers of "mlp".
            objective: What is maximised.
            critic: "cosine", "dot", or a module that scores embeddings.
            temperature: Of the named critics.
            views: Whether both sides are views of one thing, which are contrasted with all others.
        """
        towers = _towers(encoder, widths, dimension, hidden)
        made = _critic(critic, temperature)
        both = "two_view" if views and getattr(made, "symmetric", False) else "in_batch_symmetric"
        return cls(towers, ContrastiveLoss(objective, made, pairing=both))


def objective_of(given: Any) -> Objective:
    """An objective by name, or as it is.

    Raises:
        ValueError: If there is no such name.
    """
    if not isinstance(given, str):
        return given  # type: ignore[no-any-return]  # ContrastiveLoss refuses what is none
    if given not in OBJECTIVES:
        raise ValueError(_unknown("objective", given, OBJECTIVES))
    return OBJECTIVES[given]()


def _critic(given: Any, temperature: float) -> Critic:
    if isinstance(given, str):
        if given not in CRITICS:
            raise ValueError(_unknown("critic", given, CRITICS))
        return CRITICS[given](temperature)
    made: Critic = copy.deepcopy(given)
    return made


def _towers(
    encoder: Any, widths: tuple[int, int | None], dimension: int, hidden: Sequence[int]
) -> list[nn.Module]:
    first, second = widths
    if isinstance(encoder, tuple | list):
        if len(encoder) != 2:
            raise ValueError(f"encoder must be one or a pair (x's, y's), got {len(encoder)}")
        if second is None:
            raise ValueError(
                "a pair of encoders needs two sides: here both are of one kind and share one"
            )
        return [
            _tower(e, w, dimension, hidden) for e, w in zip(encoder, (first, second), strict=True)
        ]
    if second is None:
        return [_tower(encoder, first, dimension, hidden)]
    if isinstance(encoder, nn.Module):
        if second != first:
            raise ValueError(
                f"one module cannot serve sides of {first} and {second} columns: pass a pair"
            )
        return [_tower(encoder, first, dimension, hidden)]
    return [_tower(encoder, width, dimension, hidden) for width in (first, second)]


def _tower(given: Any, width: int, dimension: int, hidden: Sequence[int]) -> nn.Module:
    if isinstance(given, nn.Module):
        return copy.deepcopy(given)
    if given not in TOWERS:
        raise ValueError(_unknown("encoder", given, TOWERS) + ", a module, or a pair of these")
    if dimension < 1 or any(size < 1 for size in hidden):
        raise ValueError(
            f"dimension and hidden must be positive, got {dimension} and {tuple(hidden)}"
        )
    sizes = [width, *(hidden if given == "mlp" else ()), dimension]
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _unknown(what: str, given: Any, known: Any) -> str:
    near = difflib.get_close_matches(str(given), known, 1, 0)
    return f"unknown {what} {given!r}; did you mean {near[0]!r}? Known: {', '.join(known)}"
