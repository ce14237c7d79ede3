"""Critics: how a pair (x, y) becomes a score."""

from .joint import JointMLP
from .separable import Bilinear, Cosine, DotProduct, TwoTower
from .temperature import Temperature

__all__ = ["Bilinear", "Cosine", "DotProduct", "JointMLP", "Temperature", "TwoTower"]
