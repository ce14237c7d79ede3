"""What the embeddings of a certificate look like; no bound is attached to any of it."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float64, Int64

from ...diagnostics import alignment, alpha_req, effective_rank, lidar, rankme, uniformity
from ..sample import LabelledSample
from .inputs import drawn

__all__ = ["class_mates", "class_traces", "describe"]

# Rows for the uniformity, whose time is quadratic.
_ROWS = 4000


def describe(
    rows: Float64[np.ndarray, "n d"],
    mates: Float64[np.ndarray, "n d"],
    items: Int64[np.ndarray, " n"] | None,
    seed: int,
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Alignment, uniformity, ranks, decay; without items each row and its mate are one."""
    x, y = torch.from_numpy(rows), torch.from_numpy(mates)
    some = x[torch.from_numpy(drawn(len(x), _ROWS, seed))]
    views, codes = x, torch.from_numpy(items) if items is not None else None
    if codes is None:
        views, codes = torch.cat([x, y]), torch.arange(len(x)).repeat(2)
    found = {
        "alignment": float(alignment(x, y)),
        "uniformity": float(uniformity(some)),
        "rankme": float(rankme(x)) if bool((x != 0).any()) else math.nan,
        "effective_rank": float(effective_rank(x, centred=True)),
        "lidar": float(lidar(views, codes)),
    }
    notes = [] if len(some) == len(x) else [f"uniformity on {_ROWS:,} rows drawn at random"]
    if found["effective_rank"] > 1:
        decay = alpha_req(x)
        found |= {
            "alpha_req": float(decay.exponent),
            "alpha_req_first": decay.first,
            "alpha_req_last": decay.last,
        }
    else:
        notes.append("no decay of eigenvalues: the embeddings vary in one direction at most")
    return found, tuple(notes)


def class_mates(sample: LabelledSample, seed: int) -> Float64[np.ndarray, "n d"]:
    """Another row of its class for each row: the next one in a random round of the class."""
    order = np.random.default_rng(seed).permutation(len(sample.codes))
    mates = np.empty_like(sample.features)
    for c in range(len(sample.classes)):
        round_ = order[sample.codes[order] == c]
        mates[round_] = sample.features[np.roll(round_, 1)]
    return mates


def class_traces(sample: LabelledSample) -> dict[str, float]:
    r"""Tr Σ_b = V_B, the spread of the class means under the class law, and tr Σ_w within."""
    means = sample.class_means(sample.features)
    centre = sample.law @ means
    squares = ((sample.features - means[sample.codes]) ** 2).sum(1)
    within = sample.class_sums(squares) / (sample.counts - 1)
    return {
        "trace_between": float(sample.law @ ((means - centre) ** 2).sum(1)),
        "trace_within": float(sample.law @ within),
    }
