"""The estimators of mutual information that are compared, each called as its documentation shows.

    python benchmarks/mi_contestants.py NAME CORE

is a worker on one core: it says its versions, and then answers each line
``{"rows": FILE.npz, "seed": 0}`` with the value and its seconds.
Peers need versions of their own, so this file runs in their environment too: it imports nothing
but numpy at its top, and each library where it is called.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import io
import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, Literal

import numpy as np

HELD_OUT = 0.2
LIMIT = 900


@dataclass(frozen=True)
class Rows:
    """What an estimator is given.

    Attributes:
        x: (n, dx) float64.
        y: (n, dy) float64.
        discrete: Whether x and whether y takes a few values only.
    """

    x: np.ndarray
    y: np.ndarray
    discrete: tuple[bool, bool] = (False, False)


@dataclass(frozen=True)
class Contestant:
    """One row of the tables.

    Attributes:
        name: The library's name and the method's.
        package: The distribution that it comes from.
        kind: Ours, or how the peer works.
        takes: Which data its documentation says it is for, in words.
        can: The same as a test of (columns of x, columns of y, discrete).
        estimate: Gives nats, of rows and a seed.
    """

    name: str
    package: str
    kind: Literal["ours", "neural", "classical"]
    takes: str
    can: Callable[[int, int, tuple[bool, bool]], bool]
    estimate: Callable[[Rows, int], float]


def relatum(method: str, rows: Rows, seed: int, **options: Any) -> float:
    """Our value, with all that it comes with: interval, p-value, warnings."""
    from relatum.mi import estimate_mi

    return float(estimate_mi(rows.x, rows.y, method, seed=seed, **options).value)


def torch_mist(method: str, rows: Rows, seed: int, **options: Any) -> float:
    """Its defaults (one hidden layer of 128, at most 5,000 steps, early stopping), quiet.

    Without `test_data` it reads its value from the rows it was trained on; a fifth is held out.
    """
    import torch
    from torch_mist import estimate_mi

    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (the library draws from the global generator)
    order = np.random.default_rng(seed).permutation(len(rows.x))
    test, train = np.split(order, [int(HELD_OUT * len(order))])
    x, y = torch.tensor(rows.x).float(), torch.tensor(rows.y).float()
    value = estimate_mi(
        data={"x": x[train], "y": y[train]},
        test_data={"x": x[test], "y": y[test]},
        estimator=method,
        verbose=False,
        logger=False,
        **options,
    )
    return float(value[0] if isinstance(value, tuple) else value)


def bmi(estimator: str, rows: Rows, seed: int) -> float:
    """Its defaults: standardised columns; KSG is the mean of 5 and 10 neighbours."""
    from bmi import estimators

    return float(getattr(estimators, estimator)().estimate(rows.x, rows.y))


def bmi_network(estimator: str, rows: Rows, seed: int) -> float:
    """Its defaults (layers of 16 and 8, at most 10,000 steps on half of the rows), quiet."""
    from bmi import estimators

    made = getattr(estimators, estimator)(seed=seed, verbose=False)
    return float(made.estimate(rows.x, rows.y))


def infomeasure(rows: Rows, seed: int) -> float:
    """KSG with its default of 4 neighbours; the counts of a table where both sides are discrete."""
    import infomeasure as im

    np.random.seed(seed)  # noqa: NPY002
    if all(rows.discrete):
        x, y = rows.x[:, 0].astype(int), rows.y[:, 0].astype(int)
        return float(im.mutual_information(x, y, approach="discrete", base="e"))
    return float(im.mutual_information(rows.x, rows.y, approach="ksg", base="e"))


def sklearn(rows: Rows, seed: int) -> float:
    """Nearest neighbours between single columns, told what is discrete."""
    from sklearn.feature_selection import mutual_info_classif, mutual_info_regression

    of = mutual_info_classif if rows.discrete[1] else mutual_info_regression
    y = rows.y[:, 0].astype(int) if rows.discrete[1] else rows.y[:, 0]
    return float(of(rows.x, y, discrete_features=[rows.discrete[0]], random_state=seed)[0])


def ennemi(rows: Rows, seed: int) -> float:
    """Nearest neighbours between single columns, told what is discrete."""
    from ennemi import estimate_mi

    sides = dict(zip(("discrete_x", "discrete_y"), rows.discrete, strict=True))
    return float(estimate_mi(rows.y[:, 0], rows.x[:, 0], max_threads=1, **sides)[0, 0])


def npeet_plus(rows: Rows, seed: int) -> float:
    """NPEET's estimators, 3 neighbours: KSG, the counts of a table, or one side discrete."""
    from npeet_plus import mi, micd, midd

    np.random.seed(seed)  # noqa: NPY002
    if all(rows.discrete):
        return float(midd(rows.x, rows.y, base=np.e))
    if rows.discrete[0]:
        return float(micd(rows.y, rows.x, base=np.e))
    return float((micd if rows.discrete[1] else mi)(rows.x, rows.y, base=np.e))


def latentmi(rows: Rows, seed: int) -> float:
    """Its defaults: autoencoders to 8 dimensions, then KSG on the held-out half; it gives bits."""
    import torch
    from latentmi import lmi

    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    pointwise, _, _ = lmi.estimate(rows.x, rows.y)
    return float(np.nanmean(pointwise) * np.log(2))


def anything(dx: int, dy: int, discrete: tuple[bool, bool]) -> bool:
    return True


def continuous(dx: int, dy: int, discrete: tuple[bool, bool]) -> bool:
    return not any(discrete)


def columns(dx: int, dy: int, discrete: tuple[bool, bool]) -> bool:
    return dx == dy == 1


def not_mixed(dx: int, dy: int, discrete: tuple[bool, bool]) -> bool:
    return discrete[0] == discrete[1]


def smooth(
    name: str, package: str, kind: Literal["ours", "neural", "classical"], estimate: Any
) -> Contestant:
    """One for continuous columns, any number of them."""
    return Contestant(name, package, kind, "continuous columns", continuous, estimate)


WITH_TABLES = "continuous columns, or a table"
SINGLE = "one column on each side"
MIST, BMI = "torch-mist", "benchmark-mi"
# Its separable critic with one hidden layer is linear on each side; a second layer bends it.
BENT = partial(torch_mist, "infonce", hidden_dims=[64, 64])
# RPC solved in closed form, without a network on top.
KERNEL = partial(relatum, "rpc", critic="kernel")
CONTESTANTS = [
    Contestant("relatum rpc", "relatum", "ours", "any", anything, partial(relatum, "rpc")),
    Contestant("relatum rpc, kernel", "relatum", "ours", "any", anything, KERNEL),
    smooth("relatum ksg", "relatum", "ours", partial(relatum, "ksg")),
    smooth("relatum gaussian", "relatum", "ours", partial(relatum, "gaussian")),
    *(
        smooth(f"torch-mist {method}", MIST, "neural", partial(torch_mist, method))
        for method in ("mine", "nwj", "infonce", "smile", "js")
    ),
    smooth("torch-mist infonce 64-64", MIST, "neural", BENT),
    smooth("bmi MINE", BMI, "neural", partial(bmi_network, "MINEEstimator")),
    smooth("bmi InfoNCE", BMI, "neural", partial(bmi_network, "InfoNCEEstimator")),
    smooth("bmi NWJ", BMI, "neural", partial(bmi_network, "NWJEstimator")),
    smooth("bmi DV", BMI, "neural", partial(bmi_network, "DonskerVaradhanEstimator")),
    smooth("latentmi", "latentmi", "neural", latentmi),
    smooth("bmi KSG", BMI, "classical", partial(bmi, "KSGEnsembleFirstEstimator")),
    smooth("bmi CCA", BMI, "classical", partial(bmi, "CCAMutualInformationEstimator")),
    Contestant("infomeasure", "infomeasure", "classical", WITH_TABLES, not_mixed, infomeasure),
    Contestant("npeet-plus", "npeet-plus", "classical", "any", anything, npeet_plus),
    Contestant("scikit-learn", "scikit-learn", "classical", SINGLE, columns, sklearn),
    Contestant("ennemi", "ennemi", "classical", SINGLE, columns, ennemi),
]
BY_NAME = {contestant.name: contestant for contestant in CONTESTANTS}


class Compiling:
    """Seconds that JAX spent on tracing and compiling, as its own monitoring counts them."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def listen(self) -> None:
        """To be called once the library is imported; without JAX there is nothing to hear."""
        if "jax" in sys.modules:
            from jax import monitoring

            monitoring.register_event_duration_secs_listener(self._hear)

    def _hear(self, event: str, seconds: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile"):
            self.seconds += seconds


MODULES = {
    "relatum": "relatum.mi",
    "scikit-learn": "sklearn.feature_selection",
    BMI: "bmi.estimators",
    "latentmi": "latentmi.lmi",
}


def prepare(package: str) -> dict[str, str]:
    """Imports it, outside the time, and says what it runs on."""
    importlib.import_module(MODULES.get(package, package.replace("-", "_")))
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    beside = [name for name in ("numpy", "torch", "jax") if name in sys.modules]
    return {name: importlib.metadata.version(name) for name in (package, *beside)}


def measure(contestant: Contestant, rows: Rows, seed: int, compiling: Compiling) -> dict[str, Any]:
    """Value and seconds of one call; what was raised, if it was."""
    began, wall, compiled = time.process_time(), time.perf_counter(), compiling.seconds
    found: dict[str, Any] = {"value": None, "error": None}
    signal.alarm(LIMIT)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            value = contestant.estimate(rows, seed)
        found["value"] = value if np.isfinite(value) else None
        found["error"] = None if np.isfinite(value) else f"gave {value}"
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}"[:300]
    finally:
        signal.alarm(0)
    return {
        **found,
        "seconds": time.process_time() - began,
        "wall": time.perf_counter() - wall,
        "compiling": compiling.seconds - compiled,
    }


def give_up(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"took longer than {LIMIT} s")


def serve(name: str, core: int) -> None:
    """Answers lines until there are no more."""
    os.sched_setaffinity(0, {core})  # all that every library's thread pool respects
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, give_up)
    contestant, compiling = BY_NAME[name], Compiling()
    print(json.dumps(prepare(contestant.package)), flush=True)
    compiling.listen()
    for line in sys.stdin:
        asked = json.loads(line)
        with np.load(asked["rows"]) as file:
            rows = Rows(file["x"], file["y"], tuple(bool(side) for side in file["discrete"]))
        found = measure(contestant, rows, asked["seed"], compiling)
        print(json.dumps(found, allow_nan=False), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
