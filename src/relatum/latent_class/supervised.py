r"""The best linear classifier of two classes: its exact risk, also where no weights attain it.

Without a penalty on the weights, the logistic risk of separable data falls towards 0 for ever. Its
infimum is still exact: a linear program finds the points whose loss some direction drives to zero,
and on the others the risk is coercive.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float64
from numpy.typing import ArrayLike
from scipy.optimize import linprog

from .checks import Array, finite_array, losses_of, surrogate
from .model import FiniteModel

__all__ = [
    "LinearMinimum",
    "SupervisedRisk",
    "ball_lower_bound",
    "linear_minimum",
    "linear_risk",
    "supervised_risk",
]

_NEWTON_STEPS = 200
_ROUNDING = 1e-14  # of a risk between 0 and about 1
_TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
# The simplex method gives up where rounding hides such small steps: an interior point finds the
# same vertex, and so does simplex with the solver's own tolerances.
_ATTEMPTS: Final[tuple[tuple[str, dict[str, float]], ...]] = (
    ("highs", _TIGHT),
    ("highs-ipm", _TIGHT),
    ("highs", {}),
)


class LinearMinimum(NamedTuple):
    """The infimum of a linear classifier's risk.

    Attributes:
        value: The infimum over all weights.
        attained: Whether some weights have it.
        weights: If attained, weights that have it; else those of the points that remain.
        direction: The risk of ``weights + s * direction`` tends to the infimum as s grows; zero if
            it is attained.
    """

    value: float
    attained: bool
    weights: Float64[np.ndarray, " d"]
    direction: Float64[np.ndarray, " d"]


class SupervisedRisk(NamedTuple):
    """The risk of the best linear classifiers of pairs of classes.

    Attributes:
        value: The mean over the task law.
        attained: Whether every task attains its infimum.
        tasks: The infimum of each task; 1, the loss of a tie, on the diagonal.
        tasks_attained: Whether each attains it.
    """

    value: float
    attained: bool
    tasks: Float64[np.ndarray, "K K"]
    tasks_attained: Bool[np.ndarray, "K K"]


def supervised_risk(model: FiniteModel, loss: str = "hinge") -> SupervisedRisk:
    r"""The supervised risk :math:`L_{sup}` of the best linear classifiers, one for each task.

    .. math:: L_{sup} = \sum_{c < e} 2 \pi_{ce} \inf_w \tfrac12 \big( E_{D_c} \ell(-w \cdot f)
              + E_{D_e} \ell(w \cdot f) \big) \le \min(1, L_{sup}^\mu)

    without intercept and without a bound on w.

    Args:
        model: The classes and the encoder.
        loss: "hinge" or "logistic" (base 2).

    References:
        A Theoretical Analysis of Contrastive Unsupervised Representation Learning (Saunshi et al.,
        2019), section 2.1. https://arxiv.org/abs/1902.09229

    Example:
        >>> apart = FiniteModel([0.5, 0.5], np.eye(2), [[1.0], [-1.0]])
        >>> supervised_risk(apart, "logistic")[:2], supervised_risk(apart, "hinge")[:2]
        ((0.0, False), (0.0, True))
    """
    number = len(model.prior)
    tasks = np.ones((number, number))
    attained = np.ones((number, number), bool)
    points = np.concatenate([model.features, model.features])
    signs = np.repeat([1.0, -1.0], len(model.features))
    for c, e in zip(*np.triu_indices(number, 1), strict=True):
        masses = np.concatenate([model.laws[c], model.laws[e]]) / 2
        best = linear_minimum(points, signs, masses, loss)
        tasks[c, e] = tasks[e, c] = best.value
        attained[c, e] = attained[e, c] = best.attained
    value = float((model.task_law * tasks).sum())
    return SupervisedRisk(value, bool(attained.all()), tasks, attained)


def linear_minimum(
    points: ArrayLike, signs: ArrayLike, masses: ArrayLike, loss: str = "hinge"
) -> LinearMinimum:
    r"""The infimum over w of the risk :math:`\sum_i m_i\, \ell(-y_i\, w \cdot f_i)`, exactly.

    *Hinge*: a linear program, whose minimum is attained. *Logistic*: the program

    .. math:: \max \sum_i t_i, \quad y_i\, w \cdot f_i \ge t_i, \quad 0 \le t_i \le 1

    has all :math:`t_i \in \{0, 1\}`, since its w form a cone that holds their sums. The points with
    :math:`t_i = 1` are those that a direction drives to zero loss without a rise of any other; if
    there are some the infimum is not attained. On the rest the risk is coercive in the span, and
    Newton's method with line search finds its minimum.

    Args:
        points: Row i is :math:`f_i`.
        signs: The labels :math:`y_i = \pm 1`.
        masses: Weights :math:`m_i \ge 0`; points of none are left out.
        loss: "hinge" or "logistic" (base 2).

    Raises:
        ValueError: If the parts do not fit, or a label or mass is out of range.
        RuntimeError: If a solver gives up.

    References:
        On the existence of maximum likelihood estimates in logistic regression models (Albert and
        Anderson, 1984), for the separation of points. https://doi.org/10.1093/biomet/71.1.1

    Example:
        >>> best = linear_minimum([[1.0], [1.0]], [1, -1], [0.5, 0.5], "logistic")
        >>> best.value, best.attained
        (1.0, True)
    """
    signed, mass = _signed_points(points, signs, masses)
    nothing = np.zeros(signed.shape[1])
    rows, back = _span(signed)
    if surrogate(loss).name == "hinge":
        best = _hinge_minimum(rows, mass)
        return LinearMinimum(_risk(rows, mass, best, loss), True, best @ back, nothing)
    direction, vanishing = _recession(rows)
    rest, rest_mass = signed[~vanishing], mass[~vanishing]
    rows, rest_back = _span(rest)
    best = _newton(rows, rest_mass, loss)
    value = _risk(rows, rest_mass, best, loss)
    if not vanishing.any():
        return LinearMinimum(value, True, best @ rest_back, nothing)
    return LinearMinimum(value, False, best @ rest_back, direction @ back)


def linear_risk(
    points: ArrayLike, signs: ArrayLike, masses: ArrayLike, weights: ArrayLike, loss: str = "hinge"
) -> float:
    r"""The risk :math:`\sum_i m_i\, \ell(-y_i\, w \cdot f_i)` of given weights w."""
    signed, mass = _signed_points(points, signs, masses)
    return _risk(signed, mass, finite_array("weights", weights, 1), loss)


def ball_lower_bound(
    points: ArrayLike,
    signs: ArrayLike,
    masses: ArrayLike,
    weights: ArrayLike,
    norm: float,
    loss: str = "hinge",
) -> float:
    r"""What no weights of norm at most W undercut, given any weights w, at the price of a gradient.

    .. math:: \inf_{|w'| \le W} r(w') \ge r(w) - |\nabla r(w)|\, (W + |w|)

    by convexity. For data too large for :func:`linear_minimum`, after any descent.

    Args:
        points: Row i is :math:`f_i`.
        signs: The labels :math:`y_i = \pm 1`.
        masses: Weights :math:`m_i \ge 0`.
        weights: The weights w that were found.
        norm: The radius W of the ball.
        loss: "hinge" or "logistic" (base 2).

    Example:
        >>> round(ball_lower_bound([[1.0], [1.0]], [1, -1], [0.5, 0.5], [0.0], 9, "logistic"), 12)
        1.0
    """
    signed, mass = _signed_points(points, signs, masses)
    w = finite_array("weights", weights, 1)
    slopes, _ = _derivatives(signed @ w, loss)
    gradient = np.linalg.norm((mass * slopes) @ signed)
    return float(_risk(signed, mass, w, loss) - gradient * (norm + np.linalg.norm(w)))


def _signed_points(points: ArrayLike, signs: ArrayLike, masses: ArrayLike) -> tuple[Array, Array]:
    """Points times their labels, and the masses, where there is mass."""
    rows = finite_array("points", points, 2)
    labels = finite_array("signs", signs, 1)
    mass = finite_array("masses", masses, 1)
    if not len(rows) == len(labels) == len(mass):
        raise ValueError(
            "points, signs and masses must be as many, got "
            f"{len(rows)}, {len(labels)} and {len(mass)}"
        )
    if not np.isin(labels, (-1, 1)).all():
        raise ValueError(f"signs must be 1 or -1, got {labels[~np.isin(labels, (-1, 1))][0]}")
    if mass.min() < 0 or mass.max() == 0:
        raise ValueError("masses must not be negative, nor all zero")
    there = mass > 0
    return (labels[:, None] * rows)[there], mass[there]


def _span(signed: Array) -> tuple[Array, Array]:
    """The points in orthonormal coordinates u, and what takes u to weights: w = u @ back.

    The risk of the best weights does not depend on the coordinates. The solvers do: where features
    are nearly collinear, the simplex method stops short of its tolerances.
    """
    if len(signed) == 0:
        return np.zeros((0, 0)), np.zeros((0, signed.shape[1]))
    left, sizes, axes = np.linalg.svd(signed, full_matrices=False)
    rank = int((sizes > sizes[0] * max(signed.shape) * np.finfo(np.float64).eps).sum())
    return left[:, :rank], axes[:rank] / sizes[:rank, None]


def _risk(signed: Array, mass: Array, weights: Array, loss: str) -> float:
    return float(mass @ losses_of(loss, -(signed @ weights)))


def _hinge_minimum(signed: Array, mass: Array) -> Array:
    """Weights that minimise Σ m ξ with ξ >= 1 − y w·f and ξ >= 0."""
    n, d = signed.shape
    costs = np.concatenate([np.zeros(d), mass])
    rows = np.hstack([signed, np.eye(n)])
    return _solve(costs, -rows, -np.ones(n), [(None, None)] * d + [(0, None)] * n)[:d]


def _recession(signed: Array) -> tuple[Array, Array]:
    """A direction in which no margin falls, and the points whose margin rises: as many as can."""
    n, d = signed.shape
    costs = np.concatenate([np.zeros(d), -np.ones(n)])
    rows = np.hstack([-signed, np.eye(n)])
    found = _solve(costs, rows, np.zeros(n), [(None, None)] * d + [(0, 1)] * n)
    return found[:d], found[d:] > 0.5


def _solve(costs: Array, rows: Array, ends: Array, ranges: list[Any]) -> Array:
    for method, options in _ATTEMPTS:
        found = linprog(costs, rows, ends, bounds=ranges, method=method, options=options)
        if found.status == 0:
            return np.asarray(found.x)
    raise RuntimeError(f"the linear program was not solved: {found.message}")


def _newton(rows: Array, mass: Array, loss: str) -> Array:
    """Coordinates that minimise a coercive risk of points in their span."""
    u = np.zeros(rows.shape[1])
    if len(rows) == 0:
        return u
    for _ in range(_NEWTON_STEPS):
        slopes, curvatures = _derivatives(rows @ u, loss)
        gradient = (mass * slopes) @ rows
        hessian = (rows.T * (mass * curvatures)) @ rows
        step = -np.linalg.lstsq(hessian, gradient, rcond=None)[0]
        # The step promises half of this: what is near rounding is the last step.
        decrement = -gradient @ step
        if decrement < _ROUNDING * mass.sum():
            return np.asarray(u + step)
        value = _risk(rows, mass, u, loss)
        while _risk(rows, mass, u + step, loss) > value - 1e-4 * decrement:
            step, decrement = step / 2, decrement / 2
            if decrement < _ROUNDING * mass.sum():
                raise RuntimeError("Newton's method found no lower risk on its way")
        u += step
    raise RuntimeError(f"Newton's method did not converge in {_NEWTON_STEPS} steps")


def _derivatives(margins: Array, loss: str) -> tuple[Array, Array]:
    """First and second derivative of ℓ(−margin) by the margin."""
    at = torch.from_numpy(margins).requires_grad_()
    (slopes,) = torch.autograd.grad(surrogate(loss)(-at).sum(), at, create_graph=True)
    if not slopes.requires_grad:  # the hinge: straight lines
        return slopes.numpy(), np.zeros_like(margins)
    (curvatures,) = torch.autograd.grad(slopes.sum(), at)
    return slopes.detach().numpy(), curvatures.numpy()
