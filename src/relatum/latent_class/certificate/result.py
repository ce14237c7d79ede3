"""What `certify` returns: lines from the facts to the bound, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from .drawing import draw
from .records import CertificateLine, FewShot, PairCost
from .text import text

__all__ = ["TransferCertificate"]


@dataclass(frozen=True, repr=False)
class TransferCertificate:
    r"""How well an encoder tells classes apart, what of it is certain, and what limits it.

    Attributes:
        certified: The bound on :math:`L_{sup}^\mu`, the average risk of the mean classifier between
            two classes, at confidence 1 − δ; so also on its average error. None where nothing is
            certified: `reason` says why.
        vacuous: Whether it says nothing (1 or more); None where nothing was tried.
        reason: How it was certified, or why not.
        lines: The numbers, from the facts to the bounds.
        costly: Class pairs by their part of the one-shot risk, the most costly first.
        few_shot: The learning curve of the mean classifier.
        diagnostics: What the embeddings look like; no bound attached.
        assumptions: What the reading rests on: whether it holds, None where the input cannot tell.
        advice: What to change.
        warnings: What may mislead.
        notes: How the numbers were made, and what was left out.
        does_not_say: What nobody should read out of it.
        settings: Everything chosen, given or by default, and the size of the data.
    """

    certified: float | None
    vacuous: bool | None
    reason: str
    lines: tuple[CertificateLine, ...] = ()
    costly: tuple[PairCost, ...] = ()
    few_shot: tuple[FewShot, ...] = ()
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    assumptions: Mapping[str, bool | None] = field(default_factory=dict)
    advice: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    does_not_say: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    def line(self, key: str) -> CertificateLine:
        """The line of this key.

        Raises:
            KeyError: If there is none; the message names those that there are.
        """
        found = {line.key: line for line in self.lines}
        if key not in found:
            raise KeyError(f"no line {key!r} in this certificate, which has {', '.join(found)}")
        return found[key]

    def to_dict(self) -> dict[str, Any]:
        """All of it as values that strict JSON has: what is not finite becomes None.

        Example:
            >>> one = TransferCertificate(None, None, "no radius", diagnostics={"lidar": math.nan})
            >>> one.to_dict()["diagnostics"]
            {'lidar': None}
        """
        return {entry.name: _plain(getattr(self, entry.name)) for entry in fields(self)}

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> TransferCertificate:
        """The certificate of :meth:`to_dict`, also after a journey through JSON.

        Example:
            >>> one = TransferCertificate(0.5, False, "certified", advice=("use blocks",))
            >>> TransferCertificate.from_dict(one.to_dict()) == one
            True
        """
        parts = dict(entries)
        for name, kind in (("lines", CertificateLine), ("costly", PairCost), ("few_shot", FewShot)):
            parts[name] = tuple(kind(**_numbers(kind, entry)) for entry in parts[name])
        for name in ("advice", "warnings", "notes", "does_not_say"):
            parts[name] = tuple(parts[name])
        parts["diagnostics"] = {
            key: math.nan if value is None else value for key, value in parts["diagnostics"].items()
        }
        return cls(**parts)

    def plot(self, ax: Any = None) -> Any:
        """Draws the way from the error measured to the bound certified.

        Args:
            ax: matplotlib axes; None makes new ones.

        Returns:
            The axes.
        """
        return draw(self, ax)

    def __repr__(self) -> str:
        value = "nothing" if self.certified is None else f"L_sup^μ <= {self.certified:.3f}"
        return f"<TransferCertificate: {value} certified, {len(self.lines)} lines>"

    def __str__(self) -> str:
        return text(self)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, CertificateLine | PairCost | FewShot):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)


def _numbers(kind: type, entry: Mapping[str, Any]) -> dict[str, Any]:
    """None back to NaN where a number belongs."""
    floats = {part.name for part in fields(kind) if part.type == "float"}
    return {
        name: math.nan if value is None and name in floats else value
        for name, value in entry.items()
    }
