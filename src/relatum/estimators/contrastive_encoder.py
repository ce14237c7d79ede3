"""An encoder trained by any contrastive objective, with scikit-learn's manners."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from ..base import Objective
from ..training import build_optimizer
from . import saving
from .fitting import History, Regime, fit_networks, split_rows, validate
from .inputs import first_side, keep_names, matched, other_side
from .measures import certificate, measures, mutual_information
from .networks import Networks, objective_of
from .pairs import Augmentation, ClassPairs, Pairs, class_codes
from .retrieval import Retrieved, retrieve
from .rows import Rows, check_settings, scaled, scaling_of, warn_alone
from .start import start_exactly

__all__ = ["ContrastiveEncoder"]

SideName = Literal["x", "y"]
_LEAST = 4  # rows: two to train on, two to stop by


class ContrastiveEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    r"""Networks that embed related rows near each other, trained by a contrastive objective.

    .. math:: \max_{g, h}\; J(f), \qquad f(x, y) = \mathrm{critic}\big(g(x), h(y)\big)

    J is any objective of the library over the pairs of a batch, as
    :class:`relatum.ContrastiveLoss` has it; what is a pair says `pairing`:

    =============== ============================================= ============================
    pairing         pairs                                          y of ``fit``
    =============== ============================================= ============================
    ``"rows"``      row i of X and row i of y                      the second side; None: two
                                                                   noisy copies of X
    ``"time"``      a row and one 1 to `lag` rows later            the second side; None: X
    ``"classes"``   two rows of one class                          the classes
    ``"groups"``    two rows of one group (``groups=`` of fit)     not used
    a callable      two of its views, ``f(rows, generator)``       not used
    =============== ============================================= ============================

    Sides of one kind (all but a second side y) share one network and are contrasted like SimCLR's
    views; two sides have one each and are contrasted in both directions. Rows of one class or
    group are never negatives of each other.

    Args:
        objective: A name ("rpc", "cpc", "js", ...) or an objective such as ``RPC(1, 0.005, 1)``.
        encoder: "linear", "mlp", a module from (n, d) to (n, dimension), or a pair of these, x's
            and y's. Modules are copied, never changed.
        dimension: Of the embedding, for encoders by name.
        pairing: See above.
        critic: "cosine", "dot", or a critic of embeddings.
        temperature: T > 0 of the named critics: scores are divided by it.
        hidden: Widths of the hidden layers of "mlp".
        noise: Standard deviation of the noise on each copy, in units of a standardised column.
        lag: The farthest neighbour in time, in rows.
        standardise: Whether columns are centred and scaled by the rows trained on.
        start: Of the networks: "random", or "exact", for linear encoders of two sides with critic
            "dot" and objective "rpc" or "chi2": the towers of :class:`LinearRPC` on the rows
            trained on, which are kept if no update makes J on the rows held out higher.
        ridge: Of the exact start; see :class:`LinearRPC`.
        batch_size: Pairs contrasted with each other; all, if there are fewer.
        micro_batch_size: Pairs that pass through the networks at a time; the gradient stays that of
            the batch. None: all.
        steps: Most updates.
        check_every: Updates between two looks at the objective on the rows held out.
        patience: Looks without a better one after which training ends; the best networks are kept.
        valid_fraction: Share of the rows, in [0, 1), held out for that: whole groups if fit knows
            groups, the last rows if pairs are neighbours in time. 0: none, train to the end.
        learning_rate: Of AdamW, after a warm-up, falling to 0 as a cosine.
        weight_decay: Of AdamW.
        device: Where the networks are, such as "cpu" or "cuda".
        seed: Of everything random. The same seed gives the same networks on the same machine.
        verbose: Whether progress is printed.

    Attributes:
        networks_: The trained networks; ``networks_.towers`` are g (and h).
        history_: Objective on batches trained on and held out, and after how many updates was best.
        scaling_x_: Means and scales of X's columns, (2, d).
        scaling_y_: The same of y's; None without a second side.
        n_features_in_: Columns of X.
        n_targets_: Columns of the second side; None without one.
        feature_names_in_: Names of X's columns, if it was a table with names.
        target_names_in_: The same of the second side.

    Raises:
        ValueError: If a setting is out of range, data are no finite numbers, or rows do not match.

    References:
        Self-supervised Representation Learning with Relative Predictive Coding (Tsai et al., 2021)
        https://arxiv.org/abs/2103.11275

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(200, 4))
        >>> y = x[:, :3] + 0.1 * rng.normal(size=(200, 3))
        >>> model = ContrastiveEncoder("cpc", "linear", dimension=3, learning_rate=0.05, steps=100)
        >>> model = model.fit(x, y)
        >>> model.transform(x).shape, model.transform(y, side="y").shape
        ((200, 3), (200, 3))
        >>> model.measures(x, y)["recall@10"] > 0.5
        True
    """

    def __init__(
        self,
        objective: str | Objective = "rpc",
        encoder: str | nn.Module | Sequence[str | nn.Module] = "mlp",
        *,
        dimension: int = 16,
        pairing: str | Augmentation = "rows",
        critic: str | nn.Module = "cosine",
        temperature: float = 0.1,
        hidden: Sequence[int] = (256,),
        noise: float = 0.3,
        lag: int = 1,
        standardise: bool = True,
        start: str = "random",
        ridge: float = 0.0,
        batch_size: int = 256,
        micro_batch_size: int | None = None,
        steps: int = 2000,
        check_every: int = 50,
        patience: int = 10,
        valid_fraction: float = 0.1,
        learning_rate: float = 3e-3,
        weight_decay: float = 1e-4,
        device: str = "cpu",
        seed: int = 0,
        verbose: bool = False,
    ) -> None:
        self.objective = objective
        self.encoder = encoder
        self.dimension = dimension
        self.pairing = pairing
        self.critic = critic
        self.temperature = temperature
        self.hidden = hidden
        self.noise = noise
        self.lag = lag
        self.standardise = standardise
        self.start = start
        self.ridge = ridge
        self.batch_size = batch_size
        self.micro_batch_size = micro_batch_size
        self.steps = steps
        self.check_every = check_every
        self.patience = patience
        self.valid_fraction = valid_fraction
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.device = device
        self.seed = seed
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> ContrastiveEncoder:
        """Trains new networks.

        Args:
            X: Numbers, (n, d): array, tensor or table.
            y: See the table of pairings.
            groups: One label a row, such as patient or recording. Rows of a group stay together
                when some are held out, and neighbours in time are of one group.
        """
        check_settings(self, one_side=y is None)
        x = first_side(self, X, reset=True, least=_LEAST)
        y, groups = matched(X, y), matched(X, groups, "groups")
        second, labels = self._other(x, y, None)
        keep_names(self, None if second is None else y)
        codes = None if groups is None else class_codes("groups", groups, len(x))
        train, valid = split_rows(
            len(x), self.valid_fraction, None if codes is None else codes.numpy(), self.seed,
            self.pairing == "time",
        )  # fmt: skip
        self._begin(x[train], None if second is None else second[train])
        rows = self._rows(x, second, labels, codes)
        pairs = rows.pairs(train)
        warn_alone(pairs, len(train))
        held = rows.held_out(valid, self.valid_fraction)
        self.history_ = fit_networks(
            self.networks_, self._optimizer, pairs, held, self._regime(self.steps, self.seed),
            self.learning_rate,
        )  # fmt: skip
        del self._optimizer
        return self

    def partial_fit(self, X: Any, y: Any = None, groups: Any = None) -> ContrastiveEncoder:
        """One pass over these rows, on top of what was learned; nothing is held out.

        The first call fixes networks and scaling. The learning rate warms up and falls in each.
        """
        check_settings(self, one_side=y is None)
        first = not hasattr(self, "networks_")
        x = first_side(self, X, reset=first, least=2)
        y, groups = matched(X, y), matched(X, groups, "groups")
        second, labels = self._other(x, y, None if first else self.n_targets_)
        if first:
            self._begin(x, second)
        elif not hasattr(self, "_optimizer"):
            self._optimizer = self._new_optimizer()
        codes = None if groups is None else class_codes("groups", groups, len(x))
        pairs = self._rows(x, second, labels, codes).pairs()
        self._passes = getattr(self, "_passes", 0) + 1
        regime = self._regime(None, self.seed + self._passes)
        self.history_ = fit_networks(
            self.networks_, self._optimizer, pairs, None, regime, self.learning_rate
        )
        return self

    def transform(self, X: Any, side: SideName = "x") -> np.ndarray:
        """Embeddings of rows of one side, (n, dimension), of X's floating type."""
        rows = self._read(X, side)
        return self._embed(rows, side).numpy().astype(rows.dtype, copy=False)

    def similarity(self, X: Any, Y: Any = None) -> np.ndarray:
        """The critic's scores f(x_i, y_j) of all rows of X and of Y, the other side.

        Without a second side Y is of X's kind, and None stands for X itself.
        """
        if Y is None and self.n_targets_ is not None:
            raise ValueError("Y is missing: this encoder knows two sides, pass rows of the other")
        left = self._embed(self._read(X, "x"), "x")
        right = left if Y is None else self._embed(self._read(Y, "y"), "y")
        return self._matrix(left, right)

    def retrieve(self, X: Any, Y: Any, k: int = 5, side: SideName = "x") -> Retrieved:
        """The k rows of the other side with the highest scores.

        Args:
            X: The queries, rows of `side`.
            Y: The candidates, rows of the other side.
            k: How many for each query.
            side: "x" or "y".
        """
        other: SideName = "y" if side == "x" else "x"
        queries = self._embed(self._read(X, side), side)
        candidates = self._embed(self._read(Y, other), other)
        return retrieve(self._matrix, queries, candidates, k, side)

    def score(self, X: Any, y: Any = None, groups: Any = None) -> float:
        """The objective J on pairs of these rows, mean over batches of `batch_size`.

        Higher is better, for one objective and one number of rows: CPC is at most the log of the
        batch.
        """
        return validate(self.networks_, self._new_pairs(X, y, groups), self.batch_size, self.seed)

    def mutual_information(self, X: Any, y: Any = None, groups: Any = None) -> float:
        """The objective's reading of mutual information on pairs of these rows, in nats.

        A bound or a plug-in, as the objective's docstring says; NaN where a score has no density
        ratio. :func:`relatum.estimate_mi` has intervals and warnings.

        Raises:
            TypeError: If the objective has no such reading.
        """
        pairs = self._new_pairs(X, y, groups)
        return mutual_information(self.networks_, pairs, self.batch_size, self.seed)

    def measures(
        self, X: Any, y: Any = None, groups: Any = None, labels: Any = None
    ) -> dict[str, float]:
        r"""How the embeddings of these rows look, and how well partners find each other.

        Args:
            X: New rows: neither trained on nor chosen by.
            y: See the table of pairings.
            groups: One label a row.
            labels: The class of each row, -1 unlabelled; y where it holds the classes. Classes of
                fewer than three rows are left out.

        Returns:
            ``objective``; ``recall@1``, ``@5``, ``@10`` and ``mean_rank`` of the partner among all
            rows (:func:`~relatum.estimators.partner_ranks`); ``alignment``, ``uniformity`` and
            ``effective_rank`` (:mod:`relatum.diagnostics`); ``mutual_information`` where the
            objective reads it. With labels, of the directions of X's embeddings: ``class_error``
            and ``class_pair_error`` of the class means, among all classes and between two on
            average, each row judged without itself; and the transfer certificate
            ``certified_risk``, which bounds :math:`L_{sup}^\mu`, hence the latter, at confidence
            95 %, and says nothing from 1 on (:func:`relatum.latent_class.certify` tells why).
        """
        pairs = self._new_pairs(X, y, groups)
        found = measures(self.networks_, pairs, self.batch_size, self.seed)
        if labels is None and self.pairing == "classes" and isinstance(pairs, ClassPairs):
            labels = pairs.codes
        return found | certificate(self.transform(X), X, labels, groups, self.seed)

    def save(self, path: str | Path) -> None:
        """Writes settings and networks to one file, from which :meth:`load` runs no code."""
        check_is_fitted(self)
        saving.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, **given: Any) -> ContrastiveEncoder:
        """The encoder that was saved.

        Args:
            path: The file.
            given: Arguments that are no plain values (a module as encoder or critic, a callable
                pairing, an objective of one's own), which a file cannot hold.

        Raises:
            ValueError: If the file is no such encoder, or such an argument is missing.
        """
        model: ContrastiveEncoder = saving.load((cls,), Path(path), given)
        return model

    def _state(self) -> dict[str, Any]:
        scalings = [None if s is None else s.tolist() for s in (self.scaling_x_, self.scaling_y_)]
        networks = self.networks_.state_dict()
        return {"scalings": scalings, "history": tuple(self.history_), "networks": networks}

    def _restore(self, state: dict[str, Any]) -> None:
        first, second = state["scalings"]
        self.scaling_x_ = np.array(first)
        self.scaling_y_ = None if second is None else np.array(second)
        self.history_ = History(*state["history"])
        self._build()
        self.networks_.load_state_dict(state["networks"])

    def _other(
        self, x: np.ndarray, y: Any, width: int | None
    ) -> tuple[np.ndarray | None, Tensor | None]:
        """The second side, or the classes, that y is; None for what it is not."""
        if self.pairing == "classes":
            if y is None:
                raise ValueError(
                    "pairing='classes' requires y to be passed: one class for each row"
                )
            values = np.asarray(y)
            column = values.ndim == 2 and values.shape[1] == 1
            return None, class_codes("y", values[:, 0] if column else values, len(x))
        if self.pairing not in ("rows", "time") or (y is None and not self._two_sided):
            return None, None
        return other_side(y, len(x), width, "a second side fitted"), None

    @property
    def _two_sided(self) -> bool:
        return getattr(self, "n_targets_", None) is not None

    def _begin(self, x: np.ndarray, y: np.ndarray | None) -> None:
        """Scaling by these rows, and new networks."""
        self.n_targets_ = None if y is None else y.shape[1]
        self.scaling_x_ = scaling_of(x, self.standardise)
        self.scaling_y_ = None if y is None else scaling_of(y, self.standardise)
        self._build()
        if self.start == "exact":
            start_exactly(
                self.networks_,
                self._scaled(x, "x").numpy(),
                None if y is None else self._scaled(y, "y").numpy(),
                self.pairing, self.dimension, self.ridge,
            )  # fmt: skip
        self._optimizer = self._new_optimizer()
        self._passes = 0

    def _build(self) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.networks_ = Networks.build(
                encoder=self.encoder,
                widths=(self.n_features_in_, self.n_targets_),
                dimension=self.dimension,
                hidden=self.hidden,
                objective=objective_of(self.objective),
                critic=self.critic,
                temperature=self.temperature,
                views=self.n_targets_ is None,
            ).to(self.device)
        if self.micro_batch_size is not None and self.networks_.rows_meet:
            raise ValueError(
                "micro_batch_size needs an encoder whose rows do not meet; batch normalisation, or "
                "a layer that is not torch's own, would see parts of the batch"
            )

    def _new_optimizer(self) -> torch.optim.Optimizer:
        return build_optimizer(
            "adamw", [self.networks_], learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
        )  # fmt: skip

    def _regime(self, steps: int | None, seed: int) -> Regime:
        return Regime(
            self.batch_size, self.micro_batch_size, steps, self.check_every, self.patience, seed,
            self.start == "exact", print if self.verbose else None,
        )  # fmt: skip

    def _scaled(self, rows: np.ndarray, side: str) -> Float[Tensor, "n d"]:
        second = self.scaling_y_ if side == "y" else None
        return scaled(rows, self.scaling_x_ if second is None else second)

    def _rows(
        self, x: np.ndarray, y: np.ndarray | None, labels: Tensor | None, groups: Tensor | None
    ) -> Rows:
        """These rows as the networks see them, with the codes that their pairing needs."""
        sides = [None if s is None else self._scaled(s, n) for s, n in ((x, "x"), (y, "y"))]
        left, right = (None if s is None else s.float().to(self.device) for s in sides)
        assert left is not None
        codes = labels if self.pairing == "classes" else groups
        return Rows(left, right, codes, self.pairing, self.noise, self.lag)

    def _new_pairs(self, X: Any, y: Any, groups: Any) -> Pairs:
        x = self._read(X, "x")
        y, groups = matched(X, y), matched(X, groups, "groups")
        second, labels = self._other(x, y, self.n_targets_)
        codes = None if groups is None else class_codes("groups", groups, len(x))
        return self._rows(x, second, labels, codes).pairs()

    def _read(self, rows: Any, side: str) -> np.ndarray:
        check_is_fitted(self, "networks_")
        if side not in ("x", "y"):
            raise ValueError(f"side must be 'x' or 'y', got {side!r}")
        if side == "x" or self.n_targets_ is None:
            return first_side(self, rows, reset=False)
        return other_side(rows, None, self.n_targets_, "the second side")

    def _embed(self, rows: np.ndarray, side: str) -> Float[Tensor, "n e"]:
        exact = isinstance(self.encoder, str) and self.device == "cpu"
        return self.networks_.embed_all(self._scaled(rows, side), side, exact=exact)

    def _matrix(self, x: Tensor, y: Tensor) -> np.ndarray:
        scores: np.ndarray = self.networks_.score_all(x, y).numpy()
        return scores

    @property
    def _n_features_out(self) -> int:
        return int(self.transform(np.zeros((1, self.n_features_in_))).shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.pairing == "classes"
        tags.target_tags.two_d_labels = True
        tags.target_tags.multi_output = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
