"""Objectives: one file each; every one a short formula over positives and one reduction.

All are maximised. Adding one takes its file, its line in :data:`OBJECTIVES`, and its row in the
laws of ``tests/laws/test_objectives.py``; the command line, the table and the report follow.
"""

from collections.abc import Callable

from ..base import Objective
from .cpc import CPC
from .dv import DV
from .hinge import Hinge
from .js import JS
from .logistic import Logistic
from .nwj import NWJ
from .released import Released
from .rpc import RPC, chi_square
from .wpc import WPC

__all__ = [
    "CPC",
    "DV",
    "JS",
    "NWJ",
    "OBJECTIVES",
    "RPC",
    "WPC",
    "Hinge",
    "Logistic",
    "Released",
    "chi_square",
]

OBJECTIVES: dict[str, Callable[..., Objective]] = {
    "cpc": CPC,
    "dv": DV,
    "nwj": NWJ,
    "js": JS,
    "wpc": WPC,
    "rpc": RPC,
    "chi2": chi_square,
    "hinge": Hinge,
    "logistic": Logistic,
}
"""Objectives by name, as the command line spells them."""
