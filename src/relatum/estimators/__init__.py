"""Arrays in, representation out: estimators with scikit-learn's manners.

``LinearRPC`` is the exact linear solution of RPC, without training; needs scikit-learn
(``pip install 'relatum[probes]'``).
"""

from .linear_rpc import LinearRPC
from .retrieval import Retrieved

__all__ = ["LinearRPC", "Retrieved"]
