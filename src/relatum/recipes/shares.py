"""Shares of the labels, as they stand on the command line."""

from __future__ import annotations

__all__ = ["shares"]


def shares(text: str) -> list[float]:
    """The shares of a list with commas, each once.

    Raises:
        ValueError: If a word is no number in (0, 1].

    Example:
        >>> shares("0.01, 1")
        [0.01, 1.0]
    """
    found: list[float] = []
    for word in text.split(","):
        try:
            share = float(word)
        except ValueError:
            share = 0.0
        if not 0 < share <= 1:
            raise ValueError(
                f"a share of the labels must be a number in (0, 1], got {word.strip()!r}; 1 % is "
                "0.01"
            )
        found.append(share)
    return list(dict.fromkeys(found))
