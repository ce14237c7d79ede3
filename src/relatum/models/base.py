"""What every encoder is."""

from __future__ import annotations

from torch import nn

__all__ = ["Encoder"]


class Encoder(nn.Module):
    """What every encoder is: a module with the width of its representation.

    Attributes:
        dim: That width, d.
    """

    dim: int
