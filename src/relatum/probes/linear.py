"""The linear probe: how well does a linear classifier read the classes off frozen features?"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import sklearn
from jaxtyping import Float64, Int64
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from .features import Array
from .labels import Labels
from .task import ProbeResult, ProbeTask, probe_task, score

__all__ = ["REGULARISATION_GRID", "Standardiser", "linear_probe"]

#: Half decades of the penalty, strongest first.
REGULARISATION_GRID: tuple[float, ...] = tuple(10.0 ** (half / 2) for half in range(2, -11, -1))

# A fit is hundreds of products of a millisecond. Below this many numbers in the features, threads
# that wait for each other cost more than they save, and where other work shares the cores twenty
# times more (3200 x 256 on two busy cores: 28 s with two threads, 1.2 s with one).
_ONE_THREAD_UP_TO = 2**23

_FOLDS = 5
_HOLD_OUT_FROM = 1000  # labelled rows from which one fold of 20 % says enough
_UNCHOSEN = 1e-2  # the penalty where no class has two rows and nothing can be held out
# Fits that only choose the penalty stop earlier: which one is best shows long before the
# fourth digit of the weights, and they are most of the time spent.
_CHOICE_TOLERANCE, _CHOICE_STEPS = 1e-3, 100


class Standardiser(NamedTuple):
    """Column means and standard deviations of the rows that a classifier is fitted on."""

    mean: Float64[np.ndarray, " d"]
    scale: Float64[np.ndarray, " d"]

    @classmethod
    def fit(cls, x: Float64[np.ndarray, "n d"]) -> Standardiser:
        """Measures `x`; a constant column has the scale 1, so that it becomes zero.

        Example:
            >>> Standardiser.fit(np.array([[0.0], [2.0]])).apply(np.array([[10.0]]))
            array([[9.]])
        """
        # Not "std == 0": the mean of a constant such as 0.1 is rounded, and so is its deviation.
        constant = x.max(axis=0) == x.min(axis=0)
        return cls(np.where(constant, x[0], x.mean(axis=0)), np.where(constant, 1, x.std(axis=0)))

    def apply(self, x: Float64[np.ndarray, "n d"]) -> Float64[np.ndarray, "n d"]:
        """`x` in units of these means and deviations."""
        scaled: NDArray[np.float64] = (x - self.mean) / self.scale
        return scaled


class _Choice(NamedTuple):
    """The penalty, and how it came about."""

    penalty: float
    settings: dict[str, Any]
    warnings: list[str]


def linear_probe(
    train_x: Array,
    train_y: Labels,
    test_x: Array,
    test_y: Labels,
    *,
    seed: int = 0,
    labels_per_class: int | None = None,
    label_fraction: float | None = None,
    regularisation: float | None = None,
    grid: Sequence[float] = REGULARISATION_GRID,
    standardise: bool = True,
    tolerance: float = 1e-4,
    max_iter: int = 1000,
    keep_scores: bool = False,
) -> ProbeResult:
    r"""Multinomial logistic regression on frozen features, fitted by L-BFGS in float64.

    .. math:: \min_{W, b}\; -\frac1n \sum_i \log \mathrm{softmax}(W z_i + b)_{y_i}
              + \frac{\lambda}{2} \|W\|_F^2

    where :math:`z` are the features, standardised by the means and deviations of the labelled
    training rows (of two classes, one weight vector is fitted and penalised). :math:`\lambda` is
    chosen on validation rows taken out of the labelled training rows, in five stratified folds:
    all five take their turn when there are fewer than 1000 rows, one of them (20 %) is held out
    otherwise. The :math:`\lambda` with the most correct validation rows wins, ties go to the
    strongest; then all labelled training rows are fitted. Test rows take no part in any of it.
    The only row of a class is never held out. Where every class has a single row,
    :math:`\lambda` is 0.01.

    Args:
        train_x: Features of the training rows, (n, d).
        train_y: Their labels; see :mod:`relatum.probes.labels` for what a label may be.
        test_x: Features of the test rows, (m, d).
        test_y: Their labels.
        seed: Seed of the drawn rows and of the folds. The fit itself uses no chance.
        labels_per_class: Use only so many training rows of each class.
        label_fraction: Use only this share of the training rows of each class.
        regularisation: :math:`\lambda > 0`, when it is not to be chosen.
        grid: The values of :math:`\lambda` to choose from.
        standardise: Whether to standardise. Without it, accuracies depend on the features' scale.
        tolerance: Converged when no component of the gradient is larger.
        max_iter: Steps after which the last fit gives up, with a warning in the result.
        keep_scores: Whether the result holds the scores :math:`W z + b` of the test rows, whose
            softmax are the posteriors.

    Raises:
        ValueError: If a setting is out of range or the rows are not usable (see
            :func:`relatum.probes.task.probe_task`).
        TypeError: If features are not floating point or labels are of unlike types.

    Example:
        >>> x = np.array([[-2e-4], [-1e-4], [1e-4], [2e-4]])
        >>> linear_probe(x, ["a", "a", "b", "b"], x, ["a", "a", "b", "b"]).accuracy
        1.0
    """
    penalties = _checked_grid(grid if regularisation is None else [regularisation])
    if max_iter < 1 or not tolerance > 0:
        raise ValueError(f"max_iter and tolerance must be positive, got {max_iter} and {tolerance}")
    task = probe_task(
        train_x,
        train_y,
        test_x,
        test_y,
        labels_per_class=labels_per_class,
        label_fraction=label_fraction,
        seed=seed,
    )
    threads = 1 if task.train_x.size <= _ONE_THREAD_UP_TO else None
    with threadpool_limits(threads):
        choice = _choose(task, penalties, standardise)
        train, test = _prepare(task.train_x, task.test_x, standardise)
        model = _engine(tolerance, max_iter)
        model.C = _c(choice.penalty, train)
        _, notes = _fit(model, train, task.train_y)
    gradient = _gradient(model, train, task.train_y, choice.penalty)
    end = _end(int(model.n_iter_[0]), gradient, tolerance)
    settings = {
        "regularisation": choice.penalty,
        "regularisation_grid": penalties,
        **choice.settings,
        "standardised": standardise,
        "tolerance": tolerance,
        "max_iter": max_iter,
        **end.settings,
        "engine": f"scikit-learn {sklearn.__version__} LogisticRegression (lbfgs)",
    }
    notes = [*choice.warnings, *notes, *end.warnings]
    scores = _class_scores(model, test)
    found = score(task, scores, probe="linear", settings=settings, warnings=notes)
    return replace(found, scores=scores) if keep_scores else found


class _End(NamedTuple):
    """How a fit ended, for the result."""

    settings: dict[str, Any]
    warnings: list[str]


def _end(steps: int, gradient: float, tolerance: float) -> _End:
    # The engine also stops where its value no longer falls; the gradient says whether that was it.
    converged = gradient <= tolerance * (1 + 1e-6)
    note = (
        f"the linear probe did not converge in {steps} steps: the largest gradient component is "
        f"{gradient:.2g}, the tolerance {tolerance:.2g}"
    )
    settings = {"converged": converged, "iterations": steps, "gradient_norm": gradient}
    return _End(settings, [] if converged else [note])


def _checked_grid(grid: Sequence[float]) -> list[float]:
    values = sorted({float(value) for value in grid}, reverse=True)
    if not values or not all(0 < value < math.inf for value in values):
        raise ValueError(f"regularisation must be positive and finite, got {list(grid)}")
    return values


def _choose(task: ProbeTask, penalties: list[float], standardise: bool) -> _Choice:
    """The penalty with the most correct validation rows; the strongest of equals."""
    if len(penalties) == 1:
        return _Choice(penalties[0], {"regularisation_choice": "given", "folds": 0}, [])
    folds, single = _folds(task.train_y, task.seed)
    alone = ", ".join(repr(task.classes[code]) for code in single)
    if len(single) == len(task.classes):
        note = f"every class has one labelled row: the penalty is {_UNCHOSEN}, not chosen"
        how = "fixed: no rows to validate on"
        return _Choice(_UNCHOSEN, {"regularisation_choice": how, "folds": 0}, [note])
    notes = [f"classes with one labelled row took no part in validation: {alone}"] if alone else []
    n = len(task.train_y)
    turns = 1 if n >= _HOLD_OUT_FROM else _FOLDS
    correct = np.zeros(len(penalties), np.int64)
    stopped = 0
    for turn in range(turns):
        hits, unfinished = _path(task, folds == turn, penalties, standardise)
        correct += hits
        stopped += unfinished
    how = (
        "one stratified fifth of the labelled training rows held out"
        if turns == 1
        else f"{_FOLDS} stratified folds of the labelled training rows"
    )
    validated = int((folds >= 0).sum() if turns > 1 else (folds == 0).sum())
    settings = {
        "regularisation_choice": how,
        "folds": turns,
        "validation_rows": validated,
        "validation_accuracy": [hits / validated for hits in correct.tolist()],
        "validation_fits_stopped_early": stopped,
    }
    return _Choice(penalties[int(correct.argmax())], settings, notes)


def _folds(
    codes: Int64[np.ndarray, " n"], seed: int
) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " s"]]:
    """The fold of each row, -1 for the only row of a class; and those classes.

    Each class is dealt out in a random order from where the last one stopped, so that folds differ
    by at most one row, in each class and in all; every class stays in what is fitted.
    """
    generator = np.random.default_rng(seed)
    folds = np.full(len(codes), -1, np.int64)
    counts = np.bincount(codes)
    dealt = 0
    for code in np.flatnonzero(counts > 1):
        rows = generator.permutation(np.flatnonzero(codes == code))
        folds[rows] = (dealt + np.arange(len(rows))) % _FOLDS
        dealt += len(rows)
    return folds, np.flatnonzero(counts == 1)


def _path(
    task: ProbeTask, held_out: np.ndarray, penalties: list[float], standardise: bool
) -> tuple[Int64[np.ndarray, " p"], int]:
    """Correct held-out rows for each penalty, strongest first, each fit starting from the last."""
    fitted, validation = _prepare(task.train_x[~held_out], task.train_x[held_out], standardise)
    labels, truth = task.train_y[~held_out], task.train_y[held_out]
    model = _engine(_CHOICE_TOLERANCE, _CHOICE_STEPS)
    hits = np.zeros(len(penalties), np.int64)
    stopped = 0
    if len(truth) == 0:
        return hits, stopped
    for index, penalty in enumerate(penalties):
        model.C = _c(penalty, fitted)
        converged, _ = _fit(model, fitted, labels)
        stopped += not converged
        hits[index] = (_class_scores(model, validation).argmax(axis=1) == truth).sum()
    return hits, stopped


def _prepare(
    fitted: Float64[np.ndarray, "n d"], other: Float64[np.ndarray, "m d"], standardise: bool
) -> tuple[Float64[np.ndarray, "n r"], Float64[np.ndarray, "m r"]]:
    """Standardises both by the fitted rows, and turns them into the fewest coordinates."""
    if standardise:
        standardiser = Standardiser.fit(fitted)
        fitted, other = standardiser.apply(fitted), standardiser.apply(other)
    if len(fitted) >= fitted.shape[1]:
        return fitted, other
    # The best weights lie in the span of the fitted rows and the penalty does not see rotations,
    # so n orthonormal coordinates of that span give the same classifier as all d.
    basis = np.linalg.qr(fitted.T).Q
    return np.ascontiguousarray(fitted @ basis), np.ascontiguousarray(other @ basis)


def _c(penalty: float, rows: np.ndarray) -> float:
    """scikit-learn's C weighs the summed loss against half the squared weights."""
    return 1 / (penalty * len(rows))


def _engine(tolerance: float, max_iter: int) -> Any:
    # A first fit starts from zero; each further one from the last.
    return LogisticRegression(tol=tolerance, max_iter=max_iter, warm_start=True)


def _fit(
    model: Any, x: Float64[np.ndarray, "n d"], y: Int64[np.ndarray, " n"]
) -> tuple[bool, list[str]]:
    """Fits; whether it converged, and whatever else the engine warned about."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x, y)
    unlike = [w for w in caught if not issubclass(w.category, ConvergenceWarning)]
    return len(unlike) == len(caught), [f"{w.category.__name__}: {w.message}" for w in unlike]


def _class_scores(model: Any, x: Float64[np.ndarray, "m d"]) -> Float64[np.ndarray, "m c"]:
    scores = np.asarray(model.decision_function(x))
    # Of two classes the engine fits the score of the second against 0 for the first.
    return scores if scores.ndim == 2 else np.stack([np.zeros_like(scores), scores], axis=1)


def _gradient(
    model: Any,
    x: Float64[np.ndarray, "n d"],
    y: Int64[np.ndarray, " n"],
    penalty: float,
) -> float:
    """The largest component of the objective's gradient, the measure that the engine stops by."""
    scores = _class_scores(model, x)
    residual = np.exp(scores - scores.max(axis=1, keepdims=True))
    residual /= residual.sum(axis=1, keepdims=True)
    residual[np.arange(len(y)), y] -= 1
    if len(model.coef_) == 1:
        residual = residual[:, 1:]
    weights = residual.T @ x / len(x) + penalty * model.coef_
    return float(max(np.abs(weights).max(), np.abs(residual.mean(axis=0)).max()))
