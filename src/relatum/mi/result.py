"""The number that `estimate_mi` returns, together with how far to trust it."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np
from jaxtyping import Float64

from .reading import Kind

__all__ = ["KINDS", "MIEstimate"]

Unit = Literal["nats", "bits"]

KINDS: Final[Mapping[Kind, str]] = MappingProxyType(
    {
        "lower bound": "in the population at most the mutual information; how far below is unknown",
        "plug-in": "the mean of an estimated log density ratio; errs to either side",
        "difference": "one estimated entropy less another; errs to either side",
    }
)
"""What each kind of number is, in words."""

_NATS_PER: Final = {"nats": 1.0, "bits": math.log(2)}
_SCALARS: Final = ("value", "standard_error", "ceiling", "train_value", "seed_spread")


# Without ==: two estimates hold arrays, and equal numbers would say nothing.
@dataclass(frozen=True, eq=False, repr=False)
class MIEstimate:
    r"""An estimate of mutual information that states what it is.

    Attributes:
        value: The estimate in ``unit``; never clamped, so it may be negative.
        interval: Ends of the interval for the sampling of the held-out rows, in ``unit``, and for
            how differently critics come out. The upper end of a trained method is raised by the
            gap between trained and held-out rows, between which the truth lies as far as the critic
            can express it, and is never below 0, where mutual information is not. Other bias of the
            estimator is not covered.
        method: Name of the method.
        kind: "lower bound", "plug-in" or "difference".
        unit: "nats" or "bits".
        level: Nominal coverage of the interval.
        standard_error: Of the value, in ``unit``.
        ceiling: Highest value the method can take at this size (log N for CPC), in ``unit``.
        p_value: Of independence, by permutation, (1 + exceedances) / (1 + permutations); None where
            no permutation was asked for.
        permutations: How many there were.
        train_value: The same reading on the rows trained on, in ``unit``; None without training.
        seed_spread: Standard deviation of the value over training seeds; None with one seed.
        pointwise: Pointwise mutual information log r̂(x_i, y_i) of each row in ``unit``, NaN for a
            row that was not held out; None where the method has none.
        rows: Number of rows given.
        held_out: Number of rows that the value is read from.
        seconds: Time taken.
        warnings: In plain words.
        settings: Everything chosen, given or by default.
    """

    value: float
    interval: tuple[float, float]
    method: str
    kind: Kind
    unit: Unit = "nats"
    level: float = 0.95
    standard_error: float = float("nan")
    ceiling: float | None = None
    p_value: float | None = None
    permutations: int = 0
    train_value: float | None = None
    seed_spread: float | None = None
    pointwise: Float64[np.ndarray, " n"] | None = None
    rows: int = 0
    held_out: int = 0
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def in_nats(self) -> MIEstimate:
        """A copy with every quantity of information in nats."""
        return self._in("nats")

    def in_bits(self) -> MIEstimate:
        r"""A copy with every quantity of information in bits: nats divided by :math:`\log 2`.

        Example:
            >>> MIEstimate(math.log(2), (0.0, math.log(4)), "ksg", "difference").in_bits()
            <MIEstimate ksg: 1.000 bits, 95 % interval 0.000 to 2.000, difference>
        """
        return self._in("bits")

    def _in(self, unit: Unit) -> MIEstimate:
        factor = _NATS_PER[self.unit] / _NATS_PER[unit]
        scalars: dict[str, Any] = {
            name: None if (value := getattr(self, name)) is None else value * factor
            for name in _SCALARS
        }
        low, high = self.interval
        pointwise = None if self.pointwise is None else self.pointwise * factor
        return replace(
            self, unit=unit, interval=(low * factor, high * factor), pointwise=pointwise, **scalars
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields as values that strict JSON has: what is not finite becomes None.

        Example:
            >>> MIEstimate(0.5, (0.4, math.inf), "ksg", "difference").to_dict()["interval"]
            [0.4, None]
        """
        return {entry.name: _plain(getattr(self, entry.name)) for entry in fields(self)}

    def facts(self) -> list[tuple[str, str]]:
        """What there is to say, as (name, text); what is not known has no line."""
        show = self._show
        error = f" ± {show(self.standard_error)}" if math.isfinite(self.standard_error) else ""
        facts = [("estimate", f"{show(self.value)}{error} {self.unit}"), *self._interval_fact()]
        facts.append(("kind", f"{self.kind}: {KINDS[self.kind]}"))
        if self.ceiling is not None:
            room = show(self.ceiling - self.value)
            facts.append(("ceiling", f"{show(self.ceiling)} ({room} above the estimate)"))
        if self.p_value is not None:
            drawn = f", {self.permutations} permutations" if self.permutations else ""
            facts.append(("p-value", f"{self.p_value:.3g} (of independence{drawn})"))
        if self.train_value is not None:
            gap = show(self.train_value - self.value)
            facts.append(("on trained rows", f"{show(self.train_value)} (gap to held out {gap})"))
        if self.seed_spread is not None:
            facts.append(("seed spread", f"{show(self.seed_spread)} (standard deviation)"))
        if self.rows:
            facts.append(("rows", f"{self.rows:,}, read from {self.held_out:,} of them"))
        facts.append(("time", f"{self.seconds:.3g} s"))
        return facts

    def _interval_fact(self) -> list[tuple[str, str]]:
        low, high = self.interval
        if not (math.isfinite(low) and math.isfinite(high)):
            return []
        return [(f"{100 * self.level:g} % interval", f"{self._show(low)} to {self._show(high)}")]

    def _show(self, number: float) -> str:
        """A number to two digits of the standard error, between 3 and 6 decimals."""
        error = self.standard_error
        known = math.isfinite(error) and error > 0
        decimals = min(max(1 - math.floor(math.log10(error)), 3), 6) if known else 3
        return f"{round(number, decimals) + 0.0:.{decimals}f}"  # + 0.0: no minus before zero

    @property
    def _title(self) -> str:
        return f"mutual information, {self.method}"

    def __repr__(self) -> str:
        interval = "".join(f", {' '.join(fact)}" for fact in self._interval_fact())
        value = f"{self._show(self.value)} {self.unit}"
        return f"<MIEstimate {self.method}: {value}{interval}, {self.kind}>"

    def __str__(self) -> str:
        facts = self.facts()
        width = max(len(name) for name, _ in facts)
        lines = [self._title, *(f"  {name:{width}}  {text}" for name, text in facts)]
        return "\n".join([*lines, *(f"warning: {warning}" for warning in self.warnings)])

    def _repr_html_(self) -> str:
        left = 'style="text-align: left"'
        rows = "".join(
            f"<tr><th {left}>{html.escape(name)}</th><td {left}>{html.escape(text)}</td></tr>"
            for name, text in self.facts()
        )
        warnings = "".join(f"<p>warning: {html.escape(text)}</p>" for text in self.warnings)
        title = html.escape(self._title)
        return f"<table><caption {left}>{title}</caption><tbody>{rows}</tbody></table>{warnings}"

    def plot(self, ax: Any = None) -> Any:
        """Draws the pointwise mutual information of the rows, the estimate and its interval.

        Args:
            ax: matplotlib axes; None makes new ones.

        Returns:
            The axes.
        """
        if ax is None:
            from matplotlib import pyplot

            _, ax = pyplot.subplots()
        shown = None if self.pointwise is None else self.pointwise[np.isfinite(self.pointwise)]
        if shown is not None and len(shown):
            ax.hist(shown, bins="auto" if len(shown) < 10_000 else 100, color="0.8")
            ax.set_ylabel("rows")
        else:
            ax.set_yticks([])
        for name, _ in self._interval_fact():
            ax.axvspan(*self.interval, color="C0", alpha=0.3, linewidth=0, label=name)
        ax.axvline(self.value, color="C0", label=f"estimate {self._show(self.value)}")
        ax.set_xlabel(f"pointwise mutual information ({self.unit})")
        ax.set_title(f"{self.method}: {self.kind}")
        ax.legend(frameon=False)
        return ax


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)  # an objective or a critic among the settings: its repr rebuilds it
