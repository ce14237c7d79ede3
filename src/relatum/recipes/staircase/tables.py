"""How numbers and tables stand on the page."""

from __future__ import annotations

from typing import Final

from ..experiments.page import table

__all__ = ["MINUS", "short", "signed", "table"]

MINUS: Final = "−"


def short(value: float) -> str:
    """Two decimals, or two digits where a number has run away.

    Example:
        >>> short(-0.25), short(174680582.0)
        ('−0.25', '1.7e+08')
    """
    text = f"{value:.2f}" if abs(value) < 1000 else f"{value:.1e}"
    return text.replace("-", MINUS)


def signed(value: float) -> str:
    """Two decimals with their sign.

    Example:
        >>> signed(1.0), signed(-0.25)
        ('+1.00', '−0.25')
    """
    return f"{value:+.2f}".replace("-", MINUS)
