"""The nearest-neighbour probe: do rows of one class lie near each other?"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from .features import Array
from .labels import Labels
from .task import ProbeResult, probe_task, score

__all__ = ["knn_probe"]

# Cosines and votes closer than this are equal. Sums of float64 numbers depend on their order by
# about 1e-16, so without it the order of the rows or columns would decide between tied classes.
_TIE = 1e-9


def knn_probe(
    train_x: Array,
    train_y: Labels,
    test_x: Array,
    test_y: Labels,
    *,
    k: int = 20,
    weighting: Literal["similarity", "uniform"] = "similarity",
    temperature: float = 0.07,
    seed: int = 0,
    labels_per_class: int | None = None,
    chunk_size: int = 512,
    device: torch.device | str = "cpu",
) -> ProbeResult:
    r"""Classifies a test row by the votes of its `k` most similar training rows.

    Similarity is the cosine :math:`s` of the features, in float64; a row of zeros has similarity 0
    to everything. A neighbour's vote weighs :math:`e^{s/T}` with the temperature :math:`T`
    ("similarity") or 1 ("uniform"). `k` is chosen beforehand, never on the test rows.

    Ties never depend on the order of rows or columns (equal means: to within 1e-9):

    * Neighbours tied at the k-th place all take part and share the places that are left, so that
      three rows tied for one place weigh a third each: the mean over all ways to break the tie.
    * Classes with equal votes are ranked by the summed similarity of their neighbours, and then
      in the order in which the labels sort.

    Args:
        train_x: Features of the training rows, (n, d).
        train_y: Their labels; see :mod:`relatum.probes.labels` for what a label may be.
        test_x: Features of the test rows, (m, d).
        test_y: Their labels.
        k: Neighbours that vote, from 1 to the number of labelled training rows.
        weighting: How a vote weighs.
        temperature: :math:`T > 0` of the similarity weighting.
        seed: Seed of the rows drawn for `labels_per_class`.
        labels_per_class: Use only so many training rows of each class.
        chunk_size: Test rows handled at once: bounds the memory, changes no result.
        device: Where the products are computed; it must know float64.

    Raises:
        ValueError: If `k`, `temperature`, `weighting` or `chunk_size` is out of range, or the rows
            are not usable (see :func:`relatum.probes.task.probe_task`).
        TypeError: If features are not floating point or labels are of unlike types.

    Example:
        >>> x = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
        >>> knn_probe(x, ["a", "a", "b", "b"], x, ["a", "a", "b", "b"], k=1).accuracy
        1.0
    """
    _check_options(weighting, temperature, chunk_size)
    task = probe_task(
        train_x, train_y, test_x, test_y, labels_per_class=labels_per_class, seed=seed
    )
    n = len(task.train_y)
    if not 1 <= k <= n:
        raise ValueError(f"k must be from 1 to the {n} labelled training rows, got {k}")
    bank, train_zeros = _unit_rows(task.train_x, device)
    queries, test_zeros = _unit_rows(task.test_x, device)
    labels = torch.from_numpy(task.train_y).to(device)
    sharpness = 1 / temperature if weighting == "similarity" else 0.0
    ranked = [
        _ranks(chunk @ bank.T, labels, len(task.classes), k, sharpness)
        for chunk in torch.split(queries, chunk_size)
    ]
    return score(
        task,
        torch.cat(ranked).cpu().numpy(),
        probe="knn",
        settings={
            "k": k,
            "weighting": weighting,
            "temperature": temperature if weighting == "similarity" else None,
            "similarity": "cosine",
        },
        warnings=_notes_on_zeros({"training": train_zeros, "test": test_zeros}),
    )


def _check_options(weighting: str, temperature: float, chunk_size: int) -> None:
    if weighting not in ("similarity", "uniform"):
        raise ValueError(f"weighting must be 'similarity' or 'uniform', got {weighting!r}")
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be positive and finite, got {temperature}")
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, got {chunk_size}")


def _notes_on_zeros(zeros: dict[str, int]) -> list[str]:
    return [
        f"{count} {name} rows are all zeros and have similarity 0 to everything"
        for name, count in zeros.items()
        if count
    ]


def _unit_rows(x: Float64[np.ndarray, "n d"], device: torch.device | str) -> tuple[Tensor, int]:
    """Rows scaled to length one (zero rows stay zero), and how many are zero."""
    # Divided by the largest entry first: squares of 1e-200 would vanish, of 1e200 overflow.
    peak = np.abs(x).max(axis=1, keepdims=True)
    zero = peak == 0
    scaled = x / np.where(zero, 1, peak)
    unit = scaled / np.where(zero, 1, np.linalg.norm(scaled, axis=1, keepdims=True))
    return torch.from_numpy(unit).to(device), int(zero.sum())


def _ranks(cosines: Tensor, labels: Tensor, n_classes: int, k: int, sharpness: float) -> Tensor:
    """Minus the rank of each class for each query; -inf for a class without a neighbour."""
    cosines = cosines.clamp(-1, 1)
    highest = cosines.topk(k, dim=1).values
    last = highest[:, -1:]
    above, tied = cosines > last + _TIE, (cosines - last).abs() <= _TIE
    places = (k - above.sum(1, keepdim=True)) / tied.sum(1, keepdim=True)
    query, row = (above | tied).nonzero(as_tuple=True)
    share = torch.where(above, 1.0, places.expand_as(above))[query, row].to(cosines.dtype)
    cosine = cosines[query, row]
    # Relative to the nearest neighbour: the same ranking, and no overflow for small temperatures.
    weight = share * ((cosine - highest[query, 0]) * sharpness).exp()
    cell = query * n_classes + labels[row]
    sums = cosines.new_zeros(3, len(cosines) * n_classes)
    sums.index_add_(1, cell, torch.stack([weight, share * cosine, share]))
    votes, similarity, count = sums.view(3, len(cosines), n_classes)
    # The least important key first: stable sorts keep the order of what is equal in the next.
    order = (similarity / _TIE).round().argsort(dim=1, descending=True, stable=True)
    by_votes = (votes / _TIE).round().gather(1, order)
    order = order.gather(1, by_votes.argsort(dim=1, descending=True, stable=True))
    rank = -torch.arange(n_classes, dtype=cosines.dtype, device=cosines.device)
    ranks = torch.empty_like(votes).scatter_(1, order, rank.expand_as(votes))
    return ranks.masked_fill(count == 0, -math.inf)
