"""Arrays in, representation out: estimators with scikit-learn's manners.

``LinearRPC`` is the exact linear solution of RPC, without training; ``ContrastiveEncoder`` trains a
network by any objective of the library. They need scikit-learn (``pip install 'relatum[probes]'``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import saving
from .contrastive_encoder import ContrastiveEncoder
from .fitting import split_rows
from .linear_rpc import LinearRPC
from .retrieval import Retrieved, partner_ranks, recall_at

__all__ = [
    "ContrastiveEncoder",
    "LinearRPC",
    "Retrieved",
    "load",
    "partner_ranks",
    "recall_at",
    "split_rows",
]


def load(path: str | Path, **given: Any) -> Any:
    """The estimator that ``save`` wrote to a file, of either kind.

    Args:
        path: The file.
        given: What a file cannot hold, as :meth:`ContrastiveEncoder.load` says.

    Raises:
        ValueError: If the file is no such estimator, or an argument is missing.
    """
    return saving.load((LinearRPC, ContrastiveEncoder), Path(path), given)
