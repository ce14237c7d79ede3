"""What embeddings of pairs look like, and how well partners find each other."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..base import InformationObjective
from ..diagnostics import alignment, effective_rank, uniformity
from .fitting import batches, scores_of, validate
from .networks import Networks
from .pairs import Pairs
from .retrieval import partner_ranks, recall_at

__all__ = ["measures", "mutual_information", "shape"]


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
