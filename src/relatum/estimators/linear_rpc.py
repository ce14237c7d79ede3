"""The exact linear solution of relative predictive coding."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float64
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..mi import GaussianRatio
from ..relative import check_relative_parameters, density_ratio
from . import saving
from .critic import BilinearForm, images, value
from .inputs import first_side, keep_names, matched, other_side
from .measures import certificate, shape
from .moments import PairMoments
from .retrieval import Retrieved, partner_ranks, recall_at, retrieve
from .solution import Problem, Solution, solve, solve_moments

__all__ = ["LinearRPC"]

_EXACT = 1e-10  # a correlation as near to 1 as this is 1, and rounding

SideName = Literal["x", "y"]


def _reads_once(estimator: LinearRPC) -> bool:
    if estimator.beta > 0:
        raise AttributeError(
            f"partial_fit needs beta = 0, got {estimator.beta}: with beta > 0 the solution reads "
            "every row several times; use fit with a numpy.memmap, which is read in parts"
        )
    return True


class LinearRPC(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    r"""RPC maximised exactly over bilinear critics: no training, no learning rate, no seed.

    .. math:: f(x, y) = x^\top W y, \qquad
        J(W) = E_P f - \alpha E_Q f - \tfrac\beta2 E_P f^2 - \tfrac\gamma2 E_Q f^2

    P is the empirical law of the pairs and Q the product of its marginals: all n² pairs, own pairs
    included, so that J is a concave quadratic with a maximum for every β >= 0 and γ > 0.

    **β = 0.** With uncentred moments :math:`S_{xx} = E xx^\top` and means m,

    .. math:: \nabla J = S_{xy} - \alpha m_x m_y^\top - \gamma S_{xx} W S_{yy} = 0
        \;\Rightarrow\; W = \tfrac1\gamma S_{xx}^{-1} (S_{xy} - \alpha m_x m_y^\top) S_{yy}^{-1}

    One pass over the rows, in memory (dx + dy)²; :meth:`partial_fit` takes rows as they come.

    **β > 0.** Conjugate gradients solve :math:`\beta E_P[f\, xy^\top] + \gamma S_{xx} W S_{yy} =
    S_{xy} - \alpha m_x m_y^\top` in coordinates where the second term is the identity. An
    iteration reads the data once; nothing of size (dx dy)² is formed.

    **Intercept** (the default). Both sides get a column of ones, and no origin of the columns
    matters: the critic is

    .. math:: (x-m_x)^\top W (y-m_y) + a^\top(x-m_x) + b^\top(y-m_y) + c

    With β = 0, a = b = 0, c = (1 − α)/γ and :math:`W = \frac1\gamma C_{xx}^{-1} C_{xy}
    C_{yy}^{-1}` in covariances, so the ratio read from it is the same for every α, γ:

    .. math:: \hat r(x, y) = \gamma f + \alpha = 1 + \sum_k \rho_k u_k v_k

    with canonical variables u, v and canonical correlations ρ.

    **Canonical correlation analysis.** Write :math:`\Omega = S_{xx}^{1/2} W S_{yy}^{1/2}`; then
    :math:`J = \langle \Omega, M \rangle - \frac\gamma2 \|\Omega\|^2` with the whitened cross moment
    M, so Ω = M/γ, and its singular vectors are CCA's directions when M is the whitened
    cross-covariance: with an intercept always, without one at α = 1 on centred data. The maximum is
    :math:`\frac{1}{2\gamma}[(1-\alpha)^2 + \sum_k \rho_k^2]`, and by Eckart and Young the best
    critic of rank k keeps the k largest. **Spectral contrastive loss**: it is −2 J at (0, 0, 1), so
    CCA is its exact linear solution as well (the constant being the first direction).

    Args:
        alpha: Weight α >= 0.
        beta: Weight β >= 0. Above 0 the critic is held near 1/β at most on related pairs.
        gamma: Weight γ > 0.
        ridge: Variance of independent noise that the negatives' second moments get on each column
            of each side, in units of the side's mean variance; λ >= 0: every S within a side
            becomes :math:`S + \lambda \bar s 1` above. 0 is the exact optimum (of least norm where
            columns depend on each other); 0.1 is a start where columns are many for the rows.
        rank: Number of directions kept; None: all. The optimum of that rank with β = 0; with β > 0
            the critic of that rank nearest to the optimum in :math:`E_Q (f - f_k)^2`.
        intercept: Whether the sides get a column of ones.
        tolerance: Relative residual at which conjugate gradients stop.
        max_iter: Iterations after which they give up, with a warning.

    Attributes:
        form_: The critic: centres, directions A and B, strengths s (falling), and the affine terms
            a, b, c (zero without intercept); :math:`W = A \,\mathrm{diag}(s) B^\top`. Images
            under A have variance 1 (second moment 1 without intercept; with a ridge, including its
            noise). With β = 0 and an intercept, s are canonical correlations over γ.
        weight_: W, (dx, dy).
        value_: J on the rows of the fit, without the ridge's share.
        n_iter_: Iterations of conjugate gradients; 1 where the closed form is the solution.
        moments_: Moments of the rows seen; None if a side had more columns than rows.
        n_features_in_: Columns of X.
        n_targets_: Columns of y.
        feature_names_in_: Names of X's columns, if it was a table with names.
        target_names_in_: The same of y.

    Raises:
        ValueError: If a setting is out of range, data are no finite numbers, or rows do not match.

    References:
        Self-supervised Representation Learning with Relative Predictive Coding (Tsai et al., 2021),
        section 2. https://arxiv.org/abs/2103.11275
        Relations between Two Sets of Variates (Hotelling, 1936).
        Provable Guarantees for Self-Supervised Deep Learning with Spectral Contrastive Loss
        (HaoChen et al., 2021), section 3. https://arxiv.org/abs/2106.04156

    Example:
        >>> z, noise = np.random.default_rng(0).normal(size=(2, 1000, 3))
        >>> model = LinearRPC().fit(z, z[:, :2] + noise[:, :2])
        >>> model.correlations_.round(1)  # √½
        array([0.7, 0.7])
        >>> model.transform(z).shape
        (1000, 2)
    """

    moments_: PairMoments | None

    def __init__(
        self,
        alpha: float = 1.0,
        beta: float = 0.0,
        gamma: float = 1.0,
        *,
        ridge: float = 0.0,
        rank: int | None = None,
        intercept: bool = True,
        tolerance: float = 1e-11,
        max_iter: int = 1000,
    ) -> None:
        self.alpha = alpha
        self.beta = beta
        self.gamma = gamma
        self.ridge = ridge
        self.rank = rank
        self.intercept = intercept
        self.tolerance = tolerance
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any = None) -> LinearRPC:
        """Finds the optimum.

        Args:
            X: One side, (n, dx): array, tensor, table, or ``numpy.memmap``, which is read in parts.
            y: The other side, (n, dy), or (n,) for one column.
        """
        self._check_settings()
        x, y = first_side(self, X, reset=True, least=2), matched(X, y)
        keep_names(self, y)
        y = other_side(y, len(x), None, "LinearRPC")
        self.n_targets_ = y.shape[1]
        self._take(solve(self._problem, x, y))
        return self

    @available_if(_reads_once)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None) -> LinearRPC:
        """Adds rows to those seen; the result is that of :meth:`fit` on all (β = 0 only)."""
        self._check_settings()
        first = not hasattr(self, "form_")
        seen = None if first else self.moments_
        if not first and seen is None:
            raise ValueError(
                "this fit had more columns than rows and kept no moments to add to: begin with "
                "partial_fit"
            )
        x, y = first_side(self, X, reset=first), matched(X, y)
        y = other_side(y, len(x), None if first else self.n_targets_, "LinearRPC")
        self.n_targets_ = y.shape[1]
        moments = PairMoments.of(x, y)
        self._take(solve_moments(self._problem, moments if seen is None else seen.plus(moments)))
        return self

    def transform(self, X: Any, side: SideName = "x") -> np.ndarray:
        """Embeddings of rows of one side, (n, k), strongest direction first.

        Inner products of embeddings of both sides are the scores, but for the affine terms.
        """
        rows, form = self._read(X, side), self.form_
        left = side == "x"
        directions = form.directions_x if left else form.directions_y
        deviations = rows - (form.centre_x if left else form.centre_y)
        embedded: np.ndarray = deviations @ (directions * np.sqrt(form.strengths))
        return embedded.astype(rows.dtype, copy=False)

    def similarity(self, X: Any, Y: Any) -> Float64[np.ndarray, "n m"]:
        """The scores f(x_i, y_j) of all pairs of rows of X and rows of Y."""
        return self.form_.matrix(self._read(X, "x"), self._read(Y, "y"))

    def retrieve(
        self,
        X: Any,
        Y: Any,
        k: int = 5,
        side: SideName = "x",
        by: Literal["gaussian", "score"] | None = None,
    ) -> Retrieved:
        """The k rows of the other side that belong to a row most likely.

        Args:
            X: The queries, rows of `side`.
            Y: The candidates, rows of the other side.
            k: How many for each query.
            side: "x" or "y".
            by: "score" ranks by f. "gaussian" by the log ratio of the Gaussian law with these
                correlations, which also sees how far out a candidate lies: a long vector has high
                scores with many, and a high ratio with its partner alone. None: "gaussian" where
                there is one (β = 0, an intercept, no correlation of 1), otherwise "score".
        """
        other: SideName = "y" if side == "x" else "x"
        queries, candidates = self._read(X, side), self._read(Y, other)
        if by not in ("gaussian", "score", None):
            raise ValueError(f"by must be 'gaussian', 'score' or None, got {by!r}")
        if by == "gaussian" or (by is None and self._has_law()):
            return retrieve(self.gaussian_.matrix, queries, candidates, k, side)
        return retrieve(self.form_.matrix, queries, candidates, k, side)

    def density_ratio(self, X: Any, y: Any) -> Float64[np.ndarray, " n"]:
        r""":math:`\hat r = (\gamma f + \alpha)/(1 - \beta f)` of each pair.

        It is the ratio's projection on what a bilinear critic can say, hence negative far out where
        the law is not; nothing is clamped.
        """
        scores = torch.from_numpy(self.score_pairs(X, y))
        ratio: np.ndarray = density_ratio(scores, *self._relative).numpy()
        return ratio

    def score_pairs(self, X: Any, y: Any) -> Float64[np.ndarray, " n"]:
        """The score f(x_i, y_i) of each pair."""
        return self.form_.pairs(*self._pair(X, y))

    def score(self, X: Any, y: Any = None) -> float:
        """J on these rows, Q being the product of their own marginals; higher is better."""
        x, y = self._pair(X, y)
        return value(self.form_, images(self.form_, x, y), self._relative, (x, y))

    def measures(self, X: Any, y: Any, labels: Any = None, groups: Any = None) -> dict[str, float]:
        r"""How well partners among these rows find each other, and how their embeddings look.

        Args:
            X: New rows of one side.
            y: Their other side.
            labels: The class of each row, -1 unlabelled. Classes of fewer than three rows are left
                out.
            groups: Rows of one group are dependent, and count once for the classes.

        Returns:
            ``objective`` (:meth:`score`); ``recall@1``, ``@5``, ``@10`` and ``mean_rank`` by the
            ranking of :meth:`retrieve`; ``alignment``, ``uniformity`` and ``effective_rank``
            (:mod:`relatum.diagnostics`); ``mutual_information`` where there is a Gaussian law; with
            labels ``class_error``, ``class_pair_error`` and the transfer certificate
            ``certified_risk``, as :meth:`ContrastiveEncoder.measures` says.
        """
        left, right = self._pair(X, y)
        matrix = self.gaussian_.matrix if self._has_law() else self.form_.matrix
        found = {
            "objective": self.score(X, y),
            **recall_at(partner_ranks(lambda rows: matrix(left[rows], right), len(left))),
            **shape(
                torch.from_numpy(self.transform(X)), torch.from_numpy(self.transform(y, side="y"))
            ),
        }
        if self._has_law():
            found["mutual_information"] = self.mutual_information(X, y)
        return found | certificate(self.transform(X), X, labels, groups, seed=0)

    @property
    def weight_(self) -> Float64[np.ndarray, "dx dy"]:
        """W, (dx, dy)."""
        check_is_fitted(self)
        return self.form_.weight

    @property
    def correlations_(self) -> Float64[np.ndarray, " k"]:
        """The canonical correlations ρ, falling.

        Raises:
            AttributeError: With β > 0, or without intercept, where singular values are none.
        """
        check_is_fitted(self)
        if self.beta > 0 or not self.intercept:
            raise AttributeError(
                f"correlations_ is read from the critic with beta=0 and intercept=True, this one "
                f"has beta={self.beta} and intercept={self.intercept}"
            )
        rho: np.ndarray = self.gamma * self.form_.strengths
        return np.where(rho > 1 - _EXACT, 1.0, rho)

    @property
    def gaussian_(self) -> GaussianRatio:
        """The density ratio of the Gaussian law with these correlations and moments.

        Raises:
            AttributeError: Where there are no correlations, or one is 1.
        """
        form, rho = self.form_, self.correlations_
        if not self._has_law():
            raise AttributeError("a correlation is 1, which has no density: set ridge > 0")
        return GaussianRatio(
            form.centre_x, form.centre_y, form.directions_x, form.directions_y, rho, math.nan
        )

    def _has_law(self) -> bool:
        return self.beta == 0 and self.intercept and not (self.correlations_ == 1).any()

    def mutual_information(self, X: Any = None, y: Any = None) -> float:
        r"""Mutual information of the Gaussian law with these correlations, in nats.

        .. math:: I = -\tfrac12 \sum_k \log(1 - \rho_k^2)

        Infinite where one side determines a direction of the other. For jointly Gaussian data with
        ridge 0 this *is* the mutual information, in the limit of many rows (with few it is too
        high: :func:`relatum.estimate_mi` has a method "gaussian" without that bias). For other laws
        it is what linear dependence carries: a lower bound where each side by itself is Gaussian,
        and otherwise a plug-in that can err either way.

        Args:
            X: New rows: the mean of their log ratio under the fitted law is read instead, which
                overfitting lowers. None: the formula.
            y: Their other side.
        """
        rho = self.correlations_
        if X is None:
            return math.inf if (rho == 1).any() else float(-np.log1p(-(rho**2)).sum() / 2)
        return float(self.gaussian_.log_ratio(*self._pair(X, y)).mean())

    def save(self, path: str | Path) -> None:
        """Writes settings and solution to one file, from which :meth:`load` runs no code."""
        check_is_fitted(self)
        saving.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> LinearRPC:
        """The solution that was saved.

        Raises:
            ValueError: If the file is no such solution.
        """
        model: LinearRPC = saving.load((cls,), Path(path), {})
        return model

    def _state(self) -> dict[str, Any]:
        moments = None if self.moments_ is None else saving.packed(self.moments_)
        more = {"moments_": moments, "value_": self.value_, "n_iter_": self.n_iter_}
        return {"form_": saving.packed(self.form_), **more}

    def _restore(self, state: dict[str, Any]) -> None:
        form: BilinearForm = saving.unpacked(BilinearForm, state["form_"])
        self.form_, kept = form, state["moments_"]
        self.moments_ = None if kept is None else saving.unpacked(PairMoments, kept)
        self.value_, self.n_iter_ = state["value_"], state["n_iter_"]

    @property
    def _n_features_out(self) -> int:
        return len(self.form_.strengths)

    @property
    def _relative(self) -> tuple[float, float, float]:
        return self.alpha, self.beta, self.gamma

    def _check_settings(self) -> None:
        check_relative_parameters(*self._relative)
        if self.gamma == 0:
            raise ValueError("gamma must be > 0: without it J of a bilinear critic has no maximum")
        if not (math.isfinite(self.ridge) and self.ridge >= 0):
            raise ValueError(f"ridge must be a finite number >= 0, got {self.ridge}")
        if self.rank is not None and self.rank < 1:
            raise ValueError(f"rank must be at least 1, or None for all, got {self.rank}")

    def _take(self, found: Solution) -> None:
        if found.residual > 10 * self.tolerance:
            warnings.warn(
                f"conjugate gradients left {found.residual:.1e} of the equation after "
                f"{found.iterations} iterations (tolerance {self.tolerance:.1e}): raise max_iter, "
                "or ridge where columns nearly depend on each other",
                UserWarning,
                stacklevel=3,
            )
        self.form_, self.value_, self.moments_ = found.form, found.value, found.moments
        self.n_iter_ = max(1, found.iterations)

    @property
    def _problem(self) -> Problem:
        return Problem(
            self._relative, self.ridge, self.rank, self.intercept, self.tolerance, self.max_iter
        )

    def _read(self, rows: Any, side: str) -> np.ndarray:
        check_is_fitted(self)
        if side not in ("x", "y"):
            raise ValueError(f"side must be 'x' or 'y', got {side!r}")
        if side == "x":
            return first_side(self, rows, reset=False)
        return other_side(rows, None, self.n_targets_, "LinearRPC")

    def _pair(self, x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        left, y = self._read(x, "x"), matched(x, y)
        return left, other_side(y, len(left), self.n_targets_, "LinearRPC")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.two_d_labels = True
        tags.target_tags.multi_output = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
