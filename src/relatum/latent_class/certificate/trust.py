"""What a certificate rests on, and what may mislead its reader."""

from __future__ import annotations

import numpy as np

from .inputs import Inputs
from .value import Certified

__all__ = ["assumptions", "warnings"]


def assumptions(inputs: Inputs, *, views: bool | None = None) -> dict[str, bool | None]:
    """Whether they hold; None where the input cannot tell.

    Args:
        inputs: What was given.
        views: Whether the pairs were found to look like views; None without labels.
    """
    found: dict[str, bool | None] = {
        "data on which the encoder was neither trained nor chosen": None,
        "rows of different groups independent" if inputs.groups is not None
        else "rows independent": None,
    }  # fmt: skip
    if inputs.radius is not None:
        found["radius bounds |f(x)| of all data, and was known before them"] = None
    if inputs.sample is not None:
        found["class prior given"] = inputs.sample.prior is not None
    if inputs.pairs is not None:
        found["pairs are class mates, independent given the class"] = False if views else None
    if inputs.sample is None:
        known = True if inputs.tau_lower == 0 else None
        found[f"classes collide with probability {inputs.tau_lower:g} at least"] = known
    elif inputs.tau_lower > 0:
        below = inputs.tau_lower <= inputs.sample.tau
        found[f"classes collide with probability {inputs.tau_lower:g} at least"] = below
    return found


def warnings(
    inputs: Inputs,
    value: Certified,
    *,
    views: bool | None = None,
    thinned: bool = False,
    unsolved: bool = False,
) -> tuple[str, ...]:
    """In plain words.

    Args:
        inputs: The rows that were used.
        value: What was certified.
        views: Whether the pairs were found to look like views.
        thinned: Whether rows were left out because they share a group.
        unsolved: Whether the best linear classifier on the sample was not found.
    """
    found = []
    if value.vacuous:
        found.append("The certified bound is vacuous: it is 1 or more, which holds without data.")
    longest = float(np.linalg.norm(inputs.rows, axis=1).max())
    if inputs.radius is not None and inputs.radius > 1.5 * longest:
        found.append(
            f"The radius {inputs.radius:.3g} is far above the longest row, {longest:.3g}: the "
            "width of the certificate grows with its square."
        )
    copies, number = _copies(inputs)
    if copies:
        found.append(
            f"{copies:,} of {number:,} rows equal an earlier one. If they are the same data, given "
            "twice or as mates of others, they are not independent and the certificate fails: "
            "leave them out, or say by groups what belongs together."
        )
    if inputs.sample is not None and inputs.sample.prior is None:
        found.append(
            "No class prior was given: the labels serve twice, for the class weights and for the "
            "triplets. All numbers are for the class frequencies of these rows."
        )
    if views:
        found.append(
            "The pairs are nearer than class mates are: they look like views of one item. Their "
            "contrastive risk says nothing about classes without the augmentation gap."
        )
    elif inputs.sample is None:
        found.append(
            "Without labels nobody can tell whether the pairs are class mates or views of one item."
        )
    if thinned:
        found.append("Rows share groups: each group counts once (see the notes), not its rows.")
    if unsolved:
        found.append(
            "The lower reading of the best linear classifier is left out: its solver gave up (see "
            "the notes). No other number depends on it."
        )
    return tuple(found)


def _copies(inputs: Inputs) -> tuple[int, int]:
    """How many rows equal an earlier one, of how many."""
    given = [x for x in (inputs.rows, inputs.pairs, inputs.negatives) if x is not None]
    # + 0 makes 0 of -0: rows are compared by their bytes.
    found = {hash((row + 0.0).tobytes()) for rows in given for row in rows}
    number = sum(map(len, given))
    return number - len(found), number
