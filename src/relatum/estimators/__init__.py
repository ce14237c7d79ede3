"""Arrays in, representation out: estimators with scikit-learn's manners.

``LinearRPC`` is the exact linear solution of RPC, without training; ``ContrastiveEncoder`` trains a
network by any objective of the library. They need scikit-learn (``pip install 'relatum[probes]'``).
"""

from .contrastive_encoder import ContrastiveEncoder
from .linear_rpc import LinearRPC
from .retrieval import Retrieved, partner_ranks, recall_at

__all__ = ["ContrastiveEncoder", "LinearRPC", "Retrieved", "partner_ranks", "recall_at"]
