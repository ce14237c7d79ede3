"""What embeddings of pairs look like, and how well partners find each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..base import InformationObjective
from ..diagnostics import alignment, effective_rank, uniformity
from ..latent_class import certify
from .fitting import batches, scores_of, validate
from .inputs import matched
from .networks import Networks
from .pairs import Pairs, class_codes
from .retrieval import partner_ranks, recall_at

__all__ = ["certificate", "measures", "mutual_information", "shape"]

_LEAST = 3  # rows of a class: one is judged, two make its mean


def measures(networks: Networks, pairs: Pairs, size: int, seed: int) -> dict[str, float]:
    """Objective, retrieval, shape, and the reading of mutual information where there is one."""
    [pair] = batches(pairs, len(pairs.anchors), seed)
    with torch.no_grad():
        left, right = networks.embed(pair.x, "x"), networks.embed(pair.y, "y")
    ranks = partner_ranks(
        lambda rows: networks.score_all(left[rows], right).cpu().double().numpy(), len(left)
    )
    found = {
        "objective": validate(networks, pairs, size, seed),
        **recall_at(ranks),
        **shape(left, right),
    }
    if isinstance(networks.loss.objective, InformationObjective):
        found["mutual_information"] = mutual_information(networks, pairs, size, seed)
    return found


def shape(left: Float[Tensor, "n d"], right: Float[Tensor, "n d"]) -> dict[str, float]:
    """Alignment of partners, and how the right side's embeddings fill their space."""
    return {
        "alignment": float(alignment(left, right)),
        "uniformity": float(uniformity(right)),
        "effective_rank": float(effective_rank(right)),
    }


def certificate(
    embeddings: Float[np.ndarray, "n d"],
    rows: Any,
    labels: Any,
    groups: Any,
    seed: int,
) -> dict[str, float]:
    r"""How well directions of embeddings tell classes apart: measured, and certified at 95 %.

    The radius of :func:`~relatum.latent_class.certify` must be known before the data, so that
    embeddings are divided by their lengths (a zero row stays).

    Args:
        embeddings: Of the rows.
        rows: The rows themselves, whose index labels and groups may have.
        labels: Their classes; None: nothing is certified.
        groups: Rows of one group are dependent.
        seed: Of the triplets that are certified.
    """
    if labels is None:
        return {}
    classes = class_codes("labels", matched(rows, labels, "labels"), len(embeddings))
    known, counts = np.unique(classes[classes >= 0].numpy(), return_counts=True)
    if (counts >= _LEAST).sum() < 2:
        return {}
    lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
    found = certify(
        embeddings / np.where(lengths > 0, lengths, 1.0), classes, radius=1.0, k=(),
        block=(), groups=matched(rows, groups, "groups"), seed=seed,
        classes=known[counts >= _LEAST].tolist(),
    )  # fmt: skip
    errors = {
        "class_error": found.line("top1_error").value,
        "class_pair_error": found.line("pairwise_error").value,
    }
    certified = found.certified  # None where groups leave too few independent rows
    return errors if certified is None else errors | {"certified_risk": certified}


def mutual_information(networks: Networks, pairs: Pairs, size: int, seed: int) -> float:
    """The mean reading over batches, in nats.

    Raises:
        TypeError: If the objective has no such reading.
    """
    objective = networks.loss.objective
    if not isinstance(objective, InformationObjective):
        raise TypeError(f"{type(objective).__name__} has no reading of mutual information")
    scores = scores_of(networks, pairs, size, seed)
    return float(np.mean([float(objective.mutual_information(s)) for s in scores]))
