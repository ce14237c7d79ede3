r"""relatum: contrastive representation learning, exact, measured and explained.

A contrastive loss is an objective over the scores that a critic gives to related and unrelated
pairs::

    from relatum import ContrastiveLoss, RPC, Cosine

    loss = ContrastiveLoss(RPC(alpha=1.0, beta=0.005, gamma=1.0), Cosine(temperature=0.1))
    value = loss(z1, z2)        # (n, d) and (n, d); value.backward()

Objectives: ``CPC``, ``DV``, ``NWJ``, ``JS``, ``WPC``, ``RPC`` (and ``chi_square()``, the spectral
contrastive loss), ``Hinge``, ``Logistic``. Critics: ``DotProduct``, ``Cosine``, ``Bilinear``,
``TwoTower``, ``JointMLP``. Mutual information: ``estimate_mi``, ``DensityRatio``,
``mutual_information_matrix``. The theory of RPC: ``rpc_bounds`` and the functions of
:mod:`relatum.relative`. How well the embeddings of an encoder tell classes apart: ``certify``, and
the theory behind it, :mod:`relatum.latent_class`. Arrays in, representation out, with
scikit-learn's manners: ``ContrastiveEncoder``, and ``LinearRPC``, the exact linear solution.
Training, probes and reports live in the sub-packages and in the command ``relatum``.
"""

from typing import TYPE_CHECKING, Any

from .critics import Bilinear, Cosine, DotProduct, JointMLP, TwoTower
from .distributed import Group
from .latent_class import TransferCertificate, certify
from .losses import ContrastiveLoss
from .mi import DensityRatio, MIEstimate, estimate_mi, mutual_information_matrix
from .objectives import (
    CPC,
    DV,
    JS,
    NWJ,
    OBJECTIVES,
    RPC,
    WPC,
    Hinge,
    Logistic,
    chi_square,
)
from .penalty import gradient_penalty
from .relative import (
    density_ratio,
    least_squares_form,
    log_density_ratio,
    relative_density_ratio,
    rpc_bounds,
)

if TYPE_CHECKING:
    from .estimators import ContrastiveEncoder as ContrastiveEncoder
    from .estimators import LinearRPC as LinearRPC

__version__ = "0.1.0"

__all__ = [
    "CPC",
    "DV",
    "JS",
    "NWJ",
    "OBJECTIVES",
    "RPC",
    "WPC",
    "Bilinear",
    "ContrastiveLoss",
    "Cosine",
    "DensityRatio",
    "DotProduct",
    "Group",
    "Hinge",
    "JointMLP",
    "Logistic",
    "MIEstimate",
    "TransferCertificate",
    "TwoTower",
    "certify",
    "chi_square",
    "density_ratio",
    "estimate_mi",
    "gradient_penalty",
    "least_squares_form",
    "log_density_ratio",
    "mutual_information_matrix",
    "relative_density_ratio",
    "rpc_bounds",
]

_ESTIMATORS = ("ContrastiveEncoder", "LinearRPC")


def __getattr__(name: str) -> Any:
    """The estimators, which alone need scikit-learn, when they are asked for."""
    if name not in _ESTIMATORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from . import estimators
    except ModuleNotFoundError as error:
        if error.name != "sklearn":
            raise
        raise ImportError(
            f"{name} needs scikit-learn: pip install 'relatum[probes]'", name="sklearn"
        ) from None
    return getattr(estimators, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_ESTIMATORS})
