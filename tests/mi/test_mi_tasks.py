"""The tasks' stated mutual information against quadrature, sums, samples and published figures."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from relatum.mi.tasks import (
    CORE,
    TASKS,
    THREE,
    Map,
    additive_information,
    gaussian,
    gaussian_information,
    independent,
    mixture,
    pairwise,
    pairwise_correlation,
    part,
    spiral,
    student_correction,
    table,
    table_information,
    transformed,
    twice,
)
from relatum.mi.tasks import transforms as maps

ROWS = 20_000


@pytest.mark.parametrize("name", TASKS)
def test_the_mean_exact_log_ratio_of_a_large_sample_is_the_stated_value(name):
    task = TASKS[name]
    x, y = task.sample(ROWS, seed=7)
    assert (x.shape, y.shape) == ((ROWS, task.dim_x), (ROWS, task.dim_y))
    assert x.dtype == y.dtype == np.float64
    assert task.name == name
    ratio = task.log_ratio(x, y)
    assert ratio.shape == (ROWS,)
    error = ratio.std(ddof=1) / math.sqrt(ROWS)
    assert abs(ratio.mean() - task.mutual_information) < 4 * error + 1e-12


@pytest.mark.parametrize("name", [n for n, t in TASKS.items() if t.mutual_information < 1.1])
def test_the_mean_ratio_of_independent_halves_is_one(name):
    """E_Q r = ∫ p(x, y) = 1: a ratio with a wrong constant or shape cannot have it."""
    task = TASKS[name]
    x, y = task.sample(ROWS, seed=8)[0], task.sample(ROWS, seed=9)[1]
    ratio = np.exp(task.log_ratio(x, y))
    assert abs(ratio.mean() - 1) < 4 * ratio.std(ddof=1) / math.sqrt(ROWS) + 1e-9


@pytest.mark.parametrize("name", ["gaussian-1x1", "student-3-2x2", "swissroll-2x1", "table-4x4"])
def test_a_seed_gives_the_same_rows_and_another_seed_others(name):
    first, again, other = (TASKS[name].sample(50, seed) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])


def test_a_log_ratio_of_one_row_is_a_vector_of_one():
    for task in TASKS.values():
        x, y = task.sample(3, seed=0)
        whole = task.log_ratio(x, y)
        assert task.log_ratio(x[:1], y[:1]) == pytest.approx(whole[:1], abs=1e-9), task.name


def quadrature(density, first, second, reach_x, reach_y):
    """∬ p log(p / (p_x p_y)) on Gauss-Legendre nodes of the square."""
    nodes, weights = np.polynomial.legendre.leggauss(400)
    x, y = nodes * reach_x, nodes * reach_y
    p = density(x[:, None], y)
    product = first(x)[:, None] * second(y)
    area = np.outer(weights, weights) * reach_x * reach_y
    return (area * p * np.log(p / product)).sum()


def test_the_gaussian_value_against_quadrature():
    rho = 0.75

    def joint(x, y):
        root = 1 - rho**2
        power = (x**2 - 2 * rho * x * y + y**2) / (2 * root)
        return np.exp(-power) / (2 * np.pi * np.sqrt(root))

    found = quadrature(joint, stats.norm.pdf, stats.norm.pdf, 8, 8)
    assert TASKS["gaussian-1x1"].mutual_information == pytest.approx(found, abs=1e-9)
    assert TASKS["gaussian-1x1"].mutual_information == pytest.approx(-math.log(1 - rho**2) / 2)


@pytest.mark.parametrize("freedom", [1.0, 3.0])
@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_the_student_value_against_quadrature(freedom, rho):
    """With z = sinh s the heavy tails die out, and the trapezium rule is exact to many digits."""
    s, step = np.linspace(-36, 36, 601, retstep=True)
    z, stretch = np.sinh(s), step * np.cosh(s)
    x, y = z[:, None], z[None, :]
    square = (x**2 - 2 * rho * x * y + y**2) / (1 - rho**2)
    p = (1 + square / freedom) ** (-(freedom + 2) / 2) / (2 * np.pi * math.sqrt(1 - rho**2))
    side = stats.t(freedom).pdf(z)
    found = (np.outer(stretch, stretch) * p * np.log(p / np.outer(side, side))).sum()
    expected = -math.log(1 - rho**2) / 2 + student_correction(freedom, 1, 1)
    assert found == pytest.approx(expected, abs=1e-8)


def test_the_student_correction_of_one_degree_in_closed_form():
    """f at ν = 1, 2, 2, 3 in elementary terms: c(1, 1, 1) = log(8π) − 3."""
    assert student_correction(1.0, 1, 1) == pytest.approx(math.log(8 * math.pi) - 3, abs=1e-12)


def test_the_student_correction_is_positive_grows_with_the_columns_and_dies_out():
    values = [student_correction(2.0, d, d) for d in (1, 2, 5, 20)]
    assert values == sorted(values) and values[0] > 0
    assert student_correction(1e6, 2, 2) == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("noise", [0.1, 0.5, 0.75, 3.0])
def test_the_additive_value_is_a_difference_of_entropies(noise):
    def density(y):
        return max(0.0, min(1.0, y + noise) - max(0.0, y - noise)) / (2 * noise)

    def surprise(y):
        p = density(y)
        return -p * math.log(p) if p > 0 else 0.0

    corners = sorted({-noise, 1 - noise, noise, 1 + noise})
    entropy = sum(
        integrate.quad(surprise, a, b, epsabs=1e-12)[0] for a, b in itertools.pairwise(corners)
    )
    assert additive_information(noise) == pytest.approx(entropy - math.log(2 * noise), abs=1e-9)


def test_known_figures():
    # Every two columns correlate by 1/2: the determinants in closed form, ½ log((d + 1)²/(2d + 1)).
    for name in ("gaussian-dense-2x2", "gaussian-dense-5x5", "gaussian-dense-50x50"):
        d = TASKS[name].dim_x
        expected = math.log((d + 1) ** 2 / (2 * d + 1)) / 2
        assert TASKS[name].mutual_information == pytest.approx(expected, abs=1e-10)
    assert TASKS["bit-gaussian-2"].mutual_information == pytest.approx(0.6327201937, abs=1e-9)
    assert TASKS["bit-gaussian-1"].mutual_information == pytest.approx(0.3368308203, abs=1e-9)
    # Tsai et al. 2021: 20 pairs, I = −10 log(1 − ρ²).
    for name, nats in {"gaussian-pairwise-20x20-2": 2, "gaussian-pairwise-20x20-10": 10}.items():
        rho = pairwise_correlation(20, nats)
        assert -10 * math.log(1 - rho**2) == pytest.approx(nats)
        assert TASKS[name].mutual_information == pytest.approx(nats)


def test_the_bimodal_pair_against_adaptive_integration_of_conditional_laws():
    """I = ∫ p(x) KL(p(y | x) || p(y)) dx, from the densities written out in full."""

    def pair(x, y, mx, my, rho):
        a, b, root = x - mx, y - my, 1 - rho**2
        power = (a * a - 2 * rho * a * b + b * b) / (2 * root)
        return math.exp(-power) / (2 * math.pi * math.sqrt(root))

    def side(z, m):
        low, high = (z + m) ** 2 / 2, (z - m) ** 2 / 2
        return (0.4 * math.exp(-low) + 0.6 * math.exp(-high)) / math.sqrt(2 * math.pi)

    def integrand(y, x):
        p = 0.4 * pair(x, y, -1.5, -1, 0.7) + 0.6 * pair(x, y, 1.5, 1, -0.5)
        return p * math.log(p / (side(x, 1.5) * side(y, 1.0)))

    found, _ = integrate.dblquad(integrand, -8, 8, -8, 8, epsabs=1e-7, epsrel=1e-7)
    assert TASKS["bimodal-1x1"].mutual_information == pytest.approx(found, abs=1e-6)


def test_the_bimodal_triple_against_gauss_hermite_sums_in_each_component():
    """E_P log r = Σ_k w_k E log r(μ_k + L_k ε): a rule that knows nothing of the task's grid."""
    blocks = (
        [[1, 0.6, 0], [0.6, 1, 0.3], [0, 0.3, 1]],
        [[1, -0.4, 0.3], [-0.4, 1, 0], [0.3, 0, 1]],
    )
    means = np.array([[-1.5, 1, -1], [1.5, -1, 1]])
    nodes, weights = np.polynomial.hermite_e.hermegauss(48)
    rows = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), -1).reshape(-1, 3)
    mass = np.einsum("i,j,k->ijk", weights, weights, weights).ravel() / (2 * np.pi) ** 1.5
    task = TASKS["bimodal-2x1"]
    found = 0.0
    for share, mean, block in zip((0.4, 0.6), means, blocks, strict=True):
        z = mean + rows @ np.linalg.cholesky(np.array(block)).T
        found += share * (mass @ task.log_ratio(z[:, :2], z[:, 2:]))
    assert task.mutual_information == pytest.approx(found, abs=1e-6)


def test_tables_by_counting_on_paper():
    assert TASKS["table-independent-3x5"].mutual_information == pytest.approx(0, abs=1e-14)
    # 2 x 2 symmetric channel: log 2 − H(0.2).
    crossing = -0.2 * math.log(0.2) - 0.8 * math.log(0.8)
    assert TASKS["table-2x2"].mutual_information == pytest.approx(math.log(2) - crossing)
    # Four symbols kept with 0.6, else one of the other three alike.
    lost = -0.6 * math.log(0.6) - 0.4 * math.log(0.4 / 3)
    assert TASKS["table-4x4"].mutual_information == pytest.approx(math.log(4) - lost)


def test_an_empty_cell_of_a_table_adds_nothing_and_is_never_drawn():
    task = table("corner", np.array([[0.5, 0.0], [0.25, 0.25]]))
    expected = 0.5 * math.log(0.5 / (0.5 * 0.75)) + 0.25 * math.log(0.25 / (0.5 * 0.75))
    assert task.mutual_information == pytest.approx(expected + 0.25 * math.log(0.25 / (0.5 * 0.25)))
    assert task.log_ratio(np.array([[0.0]]), np.array([[1.0]]))[0] == -math.inf
    x, y = task.sample(2000, seed=0)
    assert not np.any((x == 0) & (y == 1))


MAPS = {
    "identity": maps.IDENTITY,
    "cube": maps.CUBE,
    "half cube": maps.HALF_CUBE,
    "asinh": maps.ASINH,
    "uniform": maps.UNIFORM,
    "spiral": spiral(1 / 3),
}


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("columns", [1, 2, 5])
def test_a_map_is_undone_by_its_inverse(name, columns):
    rows = np.random.default_rng(0).standard_normal((500, columns))
    kept = rows.copy()
    image = MAPS[name].forward(rows)
    assert image.shape == rows.shape
    assert MAPS[name].inverse(image) == pytest.approx(kept, abs=1e-9)
    assert np.array_equal(rows, kept), "the input was changed"


def test_the_swiss_roll_is_undone_and_lies_in_the_unit_disc():
    rows = np.random.default_rng(0).standard_normal((500, 1))
    image = maps.SWISS_ROLL.forward(rows)
    assert image.shape == (500, 2)
    assert np.hypot(*image.T).max() <= 1
    assert maps.SWISS_ROLL.inverse(image) == pytest.approx(rows, abs=1e-9)


def test_maps_do_what_their_names_say():
    row = np.array([[-8.0, 0.25]])
    assert maps.CUBE.forward(row) == pytest.approx(np.array([[-512, 0.015625]]))
    assert maps.HALF_CUBE.forward(row) == pytest.approx(np.array([[-(8**1.5), 0.125]]))
    uniform = TASKS["uniform-1x1"].sample(5000, seed=1)
    assert all(stats.kstest(side[:, 0], "uniform").pvalue > 1e-3 for side in uniform)
    turned = spiral(0.5).forward(np.array([[math.sqrt(math.pi), 0.0]]))  # by ½ π: onto the axis
    assert turned == pytest.approx(np.array([[0.0, math.sqrt(math.pi)]]), abs=1e-12)


def test_a_mapped_task_is_the_plain_one_seen_through_the_maps():
    plain = pairwise("plain", dim=2, information=1.0)
    double = Map(lambda rows: 2 * rows, lambda rows: rows / 2)
    task = transformed(plain, "mapped", double, maps.CUBE, "mapped")
    (x, y), (u, v) = plain.sample(100, 0), task.sample(100, 0)
    assert np.array_equal(u, 2 * x) and np.array_equal(v, y**3)
    assert task.log_ratio(u, v) == pytest.approx(plain.log_ratio(x, y), abs=1e-9)


def test_what_a_task_is_made_into_keeps_the_rows_that_consistency_is_about():
    task = TASKS["gaussian-dense-5x5"]
    x, y = task.sample(4000, 5)
    double_x, double_y = twice(task).sample(4000, 5)
    assert np.array_equal(double_x[:, :5], x) and np.array_equal(double_y[:, :5], y)
    ratio = twice(task).log_ratio(double_x, double_y)
    assert abs(ratio.mean() - 2 * task.mutual_information) < 4 * ratio.std() / math.sqrt(4000)
    less_x, less_y = part(task).sample(4000, 5)
    assert np.array_equal(less_x, x) and np.array_equal(less_y, y[:, :3])
    apart_x, apart_y = independent(task).sample(4000, 5)
    assert abs(np.corrcoef(apart_x.T, apart_y.T)[:5, 5:]).max() < 0.08  # 1/2 in the task itself
    assert abs(np.corrcoef(apart_y.T) - np.corrcoef(y.T)).max() < 0.1
    with pytest.raises(ValueError, match="gaussian-1x1: y has one column"):
        part(TASKS["gaussian-1x1"])


def test_the_lists_name_tasks_of_all_kinds():
    assert len(CORE) == 8 and len(THREE) == 3 and set(THREE) <= set(CORE) <= set(TASKS)
    assert len(TASKS) >= 25
    assert {task.dim_x for task in TASKS.values()} >= {1, 2, 5, 20, 100}
    assert min(t.mutual_information for t in TASKS.values()) == pytest.approx(0, abs=1e-12)
    assert max(t.mutual_information for t in TASKS.values()) == pytest.approx(10)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: gaussian_information(np.array([[1.0, 2.0], [2.0, 1.0]]), 1), "positive definite"),
        (lambda: gaussian("a", np.array([[1.0, 1.0], [1.0, 1.0]]), 1, ""), "positive definite"),
        (lambda: pairwise_correlation(3, -1.0), "information = -1"),
        (lambda: student_correction(0.0, 1, 1), "freedom must be positive, got 0"),
        (lambda: additive_information(0.0), "noise must be positive and finite, got 0"),
        (lambda: table_information(np.ones((2, 2))), "of sum 1, got the sum 4"),
        (lambda: mixture("a", np.ones(2), np.ones((2, 2)), np.ones((2, 2, 2)), 1), "of sum 1"),
        (lambda: TASKS["gaussian-1x1"].sample(0, 0), "n must be at least 1, got 0"),
    ],
)
def test_one_clear_error_for_each_mistake(call, said):
    with pytest.raises(ValueError, match=said):
        call()
