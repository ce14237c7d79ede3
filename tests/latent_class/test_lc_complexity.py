"""Rademacher complexities: loops over all signs, enclosures, bands, contraction."""

import itertools
import math

import numpy as np
import pytest

from relatum.latent_class.complexity import (
    FiniteClass,
    exact_complexity,
    mlp_complexity,
    simulated_complexity,
    trivial_complexity,
)
from relatum.latent_class.complexity_linear import (
    FrobeniusBall,
    OperatorBall,
    RowBalls,
    ScoreBall,
)
from relatum.latent_class.contraction import (
    block_contraction,
    candidate_contraction,
    encoder_contraction,
    linear_complexity,
    projected_contraction,
    score_contraction,
)

from .finite_world import LOSS, LOSSES, MANY

both_losses = pytest.mark.parametrize("loss", LOSSES)


def draws(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield rng


def finite(rng):
    return FiniteClass(rng.normal(size=(rng.integers(1, 6), rng.integers(1, 5), 2)))


def linear(rng):
    n, d, p = rng.integers(1, 5), rng.integers(1, 3), rng.integers(1, 4)
    ball = [FrobeniusBall, OperatorBall, RowBalls][rng.integers(3)]
    return ball(rng.normal(size=(n, p)), int(d), rng.uniform(0.2, 3))


def scores(rng):
    size = (rng.integers(1, 8), rng.integers(1, 4))
    return ScoreBall(*(rng.normal(size=size) for _ in range(3)), rng.uniform(0.2, 3))


KINDS = {"finite": finite, "linear": linear, "scores": scores}


@pytest.mark.parametrize("kind", KINDS)
def test_enclosures_and_bands(kind):
    """Exact enumeration lies in the enclosure, within the simulation's band; flips are bounded."""
    missed = outside = 0
    for rng in draws(100, seed=1):
        functions = KINDS[kind](rng)
        exact, closed = exact_complexity(functions), functions.enclosure()
        assert exact.low == exact.value == exact.high
        assert closed.low - 1e-9 <= exact.value <= closed.high + 1e-9
        band = simulated_complexity(functions, rng, draws=200, delta=0.01)
        missed += not band.low <= exact.value <= band.high
        outside += abs(band.value - exact.value) > 0.02 * (band.high - band.value) + 1e-12
        signs = rng.integers(0, 2, (1, *functions.shape)) * 2.0 - 1
        for place in np.ndindex(functions.shape):
            flipped = signs.copy()
            flipped[(0, *place)] *= -1
            change = abs(functions.suprema(signs) - functions.suprema(flipped))[0]
            assert change <= functions.sensitivities()[place] + 1e-9
    assert missed == 0  # a rigorous band is wide
    assert outside > 0  # a fiftieth of it is not enough


def test_simulation_of_a_large_class_stays_in_its_enclosure():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 10))
    frobenius, operator = FrobeniusBall(x, 5, 1.0), OperatorBall(x, 5, 1.0)
    for ball in (frobenius, operator, RowBalls(x, 5, 1.0)):
        value = simulated_complexity(ball, rng, draws=300)
        assert ball.enclosure().low <= value.value <= ball.enclosure().high
        assert value.delta == 0.05
    # The enclosure of the Frobenius ball is tight here; the operator ball is larger.
    assert frobenius.enclosure().low > 0.97 * frobenius.enclosure().high
    assert simulated_complexity(operator, rng, draws=20).value > frobenius.enclosure().high
    triplets = ScoreBall(*rng.normal(size=(3, 300, 10)), 1.0)
    value = simulated_complexity(triplets, rng, draws=300)
    assert triplets.enclosure().low <= value.value <= triplets.enclosure().high


def test_the_second_moment_and_its_variance():
    """E|E|² = d Σ|x|² and Var = 2d(|XᵀX|² − Σ|x|⁴), by all signs."""
    rng = np.random.default_rng(2)
    x, d = rng.normal(size=(4, 3)), 2
    ball = FrobeniusBall(x, d, 1.0)
    tables = [np.reshape(s, (4, d)) for s in itertools.product((-1.0, 1.0), repeat=4 * d)]
    squares = np.array([np.linalg.norm(s.T @ x) ** 2 for s in tables])
    assert squares.mean() == pytest.approx(ball.enclosure().high ** 2)
    lower = ball.enclosure().low / ball.enclosure().high
    expected = max(1 / math.sqrt(2), 1 - squares.var() / (2 * squares.mean() ** 2))
    assert lower == pytest.approx(expected)
    assert exact_complexity(ball).value == pytest.approx(np.sqrt(squares).mean())


def test_suprema_are_attained_and_not_exceeded():
    rng = np.random.default_rng(3)
    x, d, bound = rng.normal(size=(5, 3)), 2, 1.7
    signs = rng.integers(0, 2, (1, 5, d)) * 2.0 - 1
    e = signs[0].T @ x
    u, _, v = np.linalg.svd(e, full_matrices=False)
    best = {
        FrobeniusBall: e / np.linalg.norm(e),
        OperatorBall: u @ v,
        RowBalls: e / np.linalg.norm(e, axis=1, keepdims=True),
    }
    norms = {
        FrobeniusBall: np.linalg.norm,
        OperatorBall: lambda w: np.linalg.norm(w, 2),
        RowBalls: lambda w: np.linalg.norm(w, axis=1).max(),
    }
    for ball, weights in best.items():
        supremum = ball(x, d, bound).suprema(signs)[0]
        signed = (signs[0] * (x @ (bound * weights).T)).sum()
        assert norms[ball](weights) == pytest.approx(1)
        assert supremum == pytest.approx(signed)
        for _ in range(50):
            other = rng.normal(size=(d, 3))
            other *= bound / norms[ball](other)
            assert (signs[0] * (x @ other.T)).sum() <= supremum + 1e-9


def test_scores_have_a_rank_one_optimum():
    rng = np.random.default_rng(4)
    a, b, c = rng.normal(size=(3, 6, 3))
    signs = rng.integers(0, 2, (1, 6)) * 2.0 - 1

    def signed(w):
        return float((signs[0] * ((a @ w.T) * ((c - b) @ w.T)).sum(axis=1)).sum())

    supremum = ScoreBall(a, b, c, 1.3).suprema(signs)[0]
    form = ((c - b) * signs[0][:, None]).T @ a
    _, vectors = np.linalg.eigh(form + form.T)
    assert signed(1.3 * vectors[:, -1:].T) == pytest.approx(supremum)
    for _ in range(200):
        w = rng.normal(size=(3, 3))
        assert signed(1.3 * w / np.linalg.norm(w)) <= supremum + 1e-9


def test_general_laws():
    """R_S({f}) = 0, R_S(F − f0) = R_S(F), convex hulls add nothing, the trivial bound."""
    rng = np.random.default_rng(5)
    outputs = rng.normal(size=(4, 3, 2))
    value = exact_complexity(FiniteClass(outputs)).value
    assert exact_complexity(FiniteClass(outputs[:1])).value == pytest.approx(0, abs=1e-12)
    shifted = FiniteClass(outputs - rng.normal(size=(3, 2)))
    assert exact_complexity(shifted).value == pytest.approx(value)
    hull = np.einsum("gf,fnd->gnd", rng.dirichlet(np.ones(4), 20), outputs)
    both = FiniteClass(np.concatenate([outputs, hull]))
    assert exact_complexity(both).value == pytest.approx(value)
    radius = np.linalg.norm(outputs, axis=2).max()
    assert 0 <= value <= trivial_complexity(3, 2, radius).high
    loop = [
        max((np.reshape(s, (3, 2)) * f).sum() for f in outputs)
        for s in itertools.product((-1, 1), repeat=6)
    ]
    assert value == pytest.approx(np.mean(loop))


def test_networks_stay_below_their_norms():
    """Many random networks of full norm, and their own best signs."""
    rng = np.random.default_rng(6)
    x, d, ratios = rng.normal(size=(4, 3)), 2, []
    for layers in (2, 3):
        norms = list(rng.uniform(0.5, 2, layers))
        outputs = []
        for _ in range(3000):
            h, width = x, 3
            for layer, norm in enumerate(norms):
                rows = d if layer == layers - 1 else 5
                w = rng.normal(size=(rows, width))
                h, width = h @ (norm * w / np.linalg.norm(w)).T, rows
                h = h if layer == layers - 1 else np.maximum(h, 0)
            outputs.append(h)
        ratios.append(
            exact_complexity(FiniteClass(np.array(outputs))).value
            / mlp_complexity(x, d, norms).high
        )
    assert 0.01 < min(ratios) and max(ratios) < 1


def embeddings(rng, k):
    """A few encoders on M anchors, positives and k negatives, all norms <= R."""
    count, samples, d = rng.integers(2, 5), 2, 1 if k > 1 else 2
    f = rng.normal(size=(count, samples, k + 2, d)) * rng.uniform(0.3, 3)
    return f, float(np.linalg.norm(f, axis=3).max())


def complexity_of(values):
    return exact_complexity(FiniteClass(values.reshape(len(values), -1, 1))).value


@both_losses
def test_contraction(loss):
    """Losses <= scores <= encoders, by all signs; without L0 the logistic one is wrong."""
    wrong = 0
    for rng in draws(60, seed=7):
        k = int(rng.integers(1, 4))
        f, radius = embeddings(rng, k)
        v = np.einsum("fmd,fmkd->fmk", f[:, :, 0], f[:, :, 2:] - f[:, :, [1]])
        losses = np.array([[MANY[loss](row) for row in one] for one in v])
        a = complexity_of(losses)
        c = encoder_contraction(complexity_of(f), radius, loss)
        assert a <= candidate_contraction(complexity_of(v), loss) + 1e-9
        assert a <= c + 1e-9
        if k == 1:
            b = complexity_of(v)
            assert a <= score_contraction(b, loss) + 1e-9 <= c + 2e-9
            wrong += a > score_contraction(b, loss) / 2
    assert wrong > 0  # half of L0 is not enough


@both_losses
def test_contraction_of_blocks_and_of_projections(loss):
    for rng in draws(60, seed=8):
        f = rng.normal(size=(3, 2, 5, 1)) * 2
        radius = float(np.abs(f).max())
        q = (f[:, :, 0] * (f[:, :, 3:].mean(axis=2) - f[:, :, 1:3].mean(axis=2))).sum(axis=2)
        a = complexity_of(np.vectorize(LOSS[loss])(q))
        assert a <= block_contraction(complexity_of(f), radius, 2, loss) + 1e-9
        u = rng.normal(size=(3, 2, 3, 2))
        lengths = np.linalg.norm(u, axis=3, keepdims=True)
        z = 1.5 * u / lengths
        q = (z[:, :, 0] * (z[:, :, 2] - z[:, :, 1])).sum(axis=2)
        a = complexity_of(np.vectorize(LOSS[loss])(q))
        bound = projected_contraction(complexity_of(u), 1.5, float(lengths.min()), loss)
        assert a <= bound + 1e-9


def test_the_lipschitz_constant_of_scores_is_attained():
    """|∇q|² = |e − b|² + 2|a|² reaches 6R²: at b = −e, with a along e."""
    a, b, e = np.array([1.0, 0.0]), np.array([-1.0, 0.0]), np.array([1.0, 0.0])
    gradient = np.concatenate([e - b, -a, a])
    step = 1e-6 * gradient / np.linalg.norm(gradient)
    moved = (a + step[:2]) @ ((e + step[4:]) - (b + step[2:4])) - a @ (e - b)
    assert moved / 1e-6 == pytest.approx(math.sqrt(6), rel=1e-5)
    assert encoder_contraction(1.0, 1.0) == pytest.approx(math.sqrt(2) * math.sqrt(6))


def test_projection_onto_the_sphere_is_lipschitz():
    rng = np.random.default_rng(9)
    u, v = rng.normal(size=(2, 1000, 3))
    a, b = (np.linalg.norm(w, axis=1, keepdims=True) for w in (u, v))
    near = np.minimum(a, b)[:, 0]
    apart = np.linalg.norm(u / a - v / b, axis=1)
    assert (apart <= np.linalg.norm(u - v, axis=1) / near + 1e-12).all()


@pytest.mark.parametrize(
    ("k", "candidates", "covering"), [(16, 0.023, 4.2), (4096, 0.36, 4.6), (65536, 1.45, 4.7)]
)
def test_honest_comparison_of_linear_routes(k, candidates, covering):
    """2 RAD/M at R = 1, hinge, M = 1e6: logarithms lose up to k about 5e5."""
    rad = linear_complexity(10**6, 1.0, k=k)
    assert 2e-6 * rad["candidates"] == pytest.approx(candidates, rel=0.02)
    assert 2e-6 * rad["covering"] == pytest.approx(covering, rel=0.02)
    assert rad["smallest"] == rad["candidates"]
    most = linear_complexity(10**6, 1.0, k=2**21)
    assert most["smallest"] == most["covering"] < most["candidates"]


def test_linear_routes_of_one_negative():
    rng = np.random.default_rng(10)
    x = rng.normal(size=(3, 200, 4))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    ball = ScoreBall(*x, 1.0)
    rad = linear_complexity(200, 1.0, dimension=3)
    assert ball.enclosure().high <= rad["scores"]
    encoders = FrobeniusBall(x.reshape(-1, 4), 3, 1.0).enclosure().high
    assert encoder_contraction(encoders, 1.0) == pytest.approx(rad["encoders"])
    assert rad["smallest"] == rad["scores"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: exact_complexity(FrobeniusBall(np.ones((21, 1)), 1, 1.0)), "up to 20 signs, got"),
        (lambda: FiniteClass(np.ones((2, 2))), "outputs must be finite and"),
        (lambda: FrobeniusBall(np.ones(3), 1, 1.0), "x must be a matrix"),
        (lambda: FrobeniusBall(np.ones((3, 1)), 0, 1.0), "dimension must be at least 1, got 0"),
        (lambda: RowBalls(np.ones((3, 1)), 1, 0.0), "bound must be a positive finite number"),
        (
            lambda: ScoreBall(np.ones((2, 1)), np.ones((2, 1)), np.ones((3, 1)), 1.0),
            "must have one shape",
        ),
        (lambda: mlp_complexity([[1.0]], 1, [1.0]), "norms must hold two layers"),
        (
            lambda: simulated_complexity(
                FiniteClass(np.ones((1, 1, 1))), np.random.default_rng(0), delta=1.0
            ),
            "delta must lie between 0 and 1",
        ),
    ],
)
def test_errors(call, words):
    with pytest.raises(ValueError, match=words):
        call()
