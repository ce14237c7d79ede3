"""LinearRPC is the maximum of J, as loops over all pairs see it, and CCA where theory says so."""

import itertools
import math

import numpy as np
import pytest
import torch
from sklearn.cross_decomposition import CCA

from relatum import RPC, density_ratio
from relatum.estimators import LinearRPC
from relatum.estimators.moments import PairMoments

SETTINGS = [(1.0, 0.0, 1.0), (0.3, 0.0, 2.0), (1.0, 0.2, 1.0), (0.0, 0.7, 0.5)]


def related(n=60, dx=4, dy=3, seed=0, shift=1.5):
    """Two sides that share two directions, away from the origin, not Gaussian."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(n, 2)) + 0.3 * rng.exponential(size=(n, 2))
    x = shared @ rng.normal(size=(2, dx)) + rng.normal(size=(n, dx)) + shift
    y = shared @ rng.normal(size=(2, dy)) + rng.normal(size=(n, dy)) - shift
    return x, y


def ones(x):
    return np.column_stack([x, np.ones(len(x))])


def objective(matrix, alpha, beta, gamma):
    """J of the scores of all pairs, by loops: the diagonal is P, everything is Q."""
    n = len(matrix)
    total = 0.0
    for i in range(n):
        total += (matrix[i, i] - beta / 2 * matrix[i, i] ** 2) / n
        for j in range(n):
            total -= (alpha * matrix[i, j] + gamma / 2 * matrix[i, j] ** 2) / n**2
    return total


def gradient(x, y, matrix, alpha, beta, gamma):
    """The derivative of J by W, by loops over all pairs."""
    n = len(x)
    slope = np.zeros((x.shape[1], y.shape[1]))
    for i, j in itertools.product(range(n), range(n)):
        slope -= (alpha + gamma * matrix[i, j]) * np.outer(x[i], y[j]) / n**2
        if i == j:
            slope += (1 - beta * matrix[i, i]) * np.outer(x[i], y[i]) / n
    return slope


@pytest.mark.parametrize("relative", SETTINGS)
@pytest.mark.parametrize("intercept", [False, True])
def test_stationary(relative, intercept):
    x, y = related()
    model = LinearRPC(*relative, intercept=intercept).fit(x, y)
    matrix = model.similarity(x, y)
    sides = (ones(x), ones(y)) if intercept else (x, y)
    assert np.abs(gradient(*sides, matrix, *relative)).max() < 1e-8
    assert model.value_ == pytest.approx(objective(matrix, *relative), rel=1e-10)
    assert model.score(x, y) == pytest.approx(model.value_, rel=1e-10)
    np.testing.assert_allclose(model.score_pairs(x, y), np.diag(matrix), rtol=1e-9, atol=1e-12)
    # The scores are bilinear, and affine in each side with an intercept.
    free = np.linalg.lstsq(sides[0], matrix @ np.linalg.pinv(sides[1]).T, rcond=None)[0]
    np.testing.assert_allclose(sides[0] @ free @ sides[1].T, matrix, atol=1e-9)


@pytest.mark.parametrize("relative", SETTINGS)
def test_finite_differences_and_every_step_away_loses(relative):
    x, y = related(n=20)
    weight = LinearRPC(*relative, intercept=False).fit(x, y).weight_
    rng = np.random.default_rng(1)
    best = objective(x @ weight @ y.T, *relative)
    for _ in range(5):
        step = rng.normal(size=weight.shape)
        up, down = (objective(x @ (weight + h * step) @ y.T, *relative) for h in (1e-4, -1e-4))
        assert abs(up - down) / 2e-4 < 1e-8
        assert max(up, down) < best


@pytest.mark.parametrize("relative", [(1.0, 0.0, 1.0), (1.0, 0.3, 1.0)])
def test_no_gradient_training_is_better(relative):
    x, y = (torch.from_numpy(side) for side in related())
    alpha, beta, gamma = relative
    reached = []
    for seed in range(20):
        weight = torch.randn(4, 3, dtype=torch.float64, generator=torch.manual_seed(seed))
        weight.requires_grad_()
        optimizer = torch.optim.LBFGS([weight], max_iter=200, line_search_fn="strong_wolfe")

        def loss(weight=weight, optimizer=optimizer):
            optimizer.zero_grad()
            scores = x @ weight @ y.T
            own = scores.diagonal()
            value = own.mean() - alpha * scores.mean()
            value = value - beta / 2 * own.square().mean() - gamma / 2 * scores.square().mean()
            (-value).backward()
            return -value

        optimizer.step(loss)
        reached.append(-float(loss().detach()))
    best = LinearRPC(*relative, intercept=False).fit(x, y).value_
    assert max(reached) <= best + 1e-12
    assert max(reached) == pytest.approx(best, rel=1e-6)
    assert LinearRPC(*relative).fit(x, y).value_ >= best  # more critics with an intercept


def closed_form(x, y, alpha, gamma, *, centred=False, weight=1.0):
    n = len(x)
    if centred:
        xx, yy = np.cov(x.T, bias=True), np.cov(y.T, bias=True)
    else:
        xx, yy = x.T @ x / n, y.T @ y / n
    middle = x.T @ y / n - weight * alpha * np.outer(x.mean(0), y.mean(0))
    return np.linalg.inv(xx) @ middle @ np.linalg.inv(yy) / gamma


def test_closed_form_and_wrong_ones():
    x, y = related()
    alpha, gamma = 0.7, 2.0
    right = closed_form(x, y, alpha, gamma)
    model = LinearRPC(alpha, 0.0, gamma, intercept=False).fit(x, y)
    np.testing.assert_allclose(model.weight_, right, rtol=1e-9)
    wrong = [
        closed_form(x, y, alpha, gamma, centred=True),
        closed_form(x, y, alpha, gamma, weight=0),
        closed_form(x, y, alpha, 1.0),
        closed_form(x, y, 1.0, gamma),
    ]
    for weight in wrong:
        slope = gradient(x, y, x @ weight @ y.T, alpha, 0.0, gamma)
        assert np.abs(slope).max() > 1e-3
        assert objective(x @ weight @ y.T, alpha, 0.0, gamma) < model.value_ - 1e-4


def test_conjugate_gradients_solve_the_full_system():
    x, y = related()
    alpha, beta, gamma = 0.5, 2.0, 0.1
    n, size = len(x), x.shape[1] * y.shape[1]
    form, right = np.zeros((size, size)), np.zeros(size)
    for i, j in itertools.product(range(n), range(n)):
        pair = np.outer(x[i], y[j]).ravel()
        form += gamma * np.outer(pair, pair) / n**2
        right -= alpha * pair / n**2
        if i == j:
            form += beta * np.outer(pair, pair) / n
            right += pair / n
    model = LinearRPC(alpha, beta, gamma, intercept=False).fit(x, y)
    np.testing.assert_allclose(model.weight_.ravel(), np.linalg.solve(form, right), rtol=1e-7)
    assert 0 < model.n_iter_ <= 3 * size
    with pytest.warns(UserWarning, match="raise max_iter"):
        LinearRPC(alpha, beta, gamma, intercept=False, max_iter=1).fit(x, y)


def whitened_svd(x, y):
    """CCA by definition: singular vectors of the whitened cross-covariance."""
    x, y = x - x.mean(0), y - y.mean(0)
    n = len(x)
    roots = []
    for side in (x, y):
        values, axes = np.linalg.eigh(side.T @ side / n)
        roots.append(axes / np.sqrt(values) @ axes.T)
    left, rho, right = np.linalg.svd(roots[0] @ (x.T @ y / n) @ roots[1], full_matrices=False)
    return roots[0] @ left, rho, roots[1] @ right.T


def same_up_to_sign(a, b, rtol):
    signs = np.sign((a * b).sum(0))
    np.testing.assert_allclose(a * signs, b, rtol=rtol, atol=rtol * np.abs(b).max())


@pytest.mark.parametrize("relative", [(1.0, 0.0, 1.0), (0.2, 0.0, 3.0)])
def test_directions_are_those_of_cca(relative):
    x, y = related(n=300)
    model = LinearRPC(*relative).fit(x, y)
    a, rho, b = whitened_svd(x, y)
    np.testing.assert_allclose(model.correlations_, rho, rtol=1e-10)
    same_up_to_sign(model.form_.directions_x, a, 1e-8)
    same_up_to_sign(model.form_.directions_y, b, 1e-8)
    alpha, _, gamma = relative
    # J* = ((1 − α)² + Σ ρ²) / 2γ, and the affine terms are (1 − α) / γ alone.
    assert model.value_ == pytest.approx(((1 - alpha) ** 2 + (rho**2).sum()) / (2 * gamma))
    assert model.form_.bias == pytest.approx((1 - alpha) / gamma, abs=1e-12)
    np.testing.assert_allclose(model.form_.bias_x, 0, atol=1e-12)
    cca = CCA(3, scale=False, tol=1e-14, max_iter=100_000).fit(x, y)
    u, v = cca.transform(x, y)
    ours = model.transform(x), model.transform(y, side="y")
    same_up_to_sign(ours[0] / ours[0].std(0), u / u.std(0), 1e-5)
    same_up_to_sign(ours[1] / ours[1].std(0), v / v.std(0), 1e-5)


def test_without_intercept_cca_is_alpha_one_on_centred_data():
    x, y = related(n=300)
    x, y = x - x.mean(0), y - y.mean(0)
    a, rho, b = whitened_svd(x, y)
    for alpha in (0.0, 1.0):  # centred, means are 0 and α has no effect
        form = LinearRPC(alpha, intercept=False).fit(x, y).form_
        np.testing.assert_allclose(form.strengths, rho, rtol=1e-10)
        same_up_to_sign(form.directions_x, a, 1e-8)
        same_up_to_sign(form.directions_y, b, 1e-8)
    away = LinearRPC(intercept=False).fit(x + 2.0, y - 1.0)
    assert np.abs(away.form_.strengths - rho).max() > 0.01


def test_inner_products_of_embeddings_are_the_scores():
    x, y = related()
    for beta in (0.0, 0.3):
        model = LinearRPC(beta=beta).fit(x, y)
        form = model.form_
        affine = ((x - x.mean(0)) @ form.bias_x)[:, None] + (y - y.mean(0)) @ form.bias_y
        inner = model.transform(x) @ model.transform(y, "y").T + affine + form.bias
        np.testing.assert_allclose(inner, model.similarity(x, y), rtol=1e-9, atol=1e-11)


def test_spectral_contrastive_loss():
    x, y = related(n=40)
    model = LinearRPC(0.0, 0.0, 1.0).fit(x, y)
    matrix = model.similarity(x, y)
    spectral = -2 * np.mean(np.diag(matrix)) + np.mean(matrix**2)  # HaoChen et al., definition
    assert spectral == pytest.approx(-2 * model.value_, rel=1e-10)
    # Linear critics cannot do better: gradient 0 was shown above; CCA's ρ give the value.
    assert spectral == pytest.approx(-(1 + (whitened_svd(x, y)[1] ** 2).sum()), rel=1e-10)


@pytest.mark.parametrize("beta", [0.0, 0.4])
def test_the_ratio_does_not_depend_on_alpha_or_the_scale_of_weights(beta):
    x, y = related()
    first = LinearRPC(1.0, beta, 1.0).fit(x, y).density_ratio(x, y)
    for alpha, scale in ((0.0, 1.0), (0.4, 1.0), (1.0, 3.0)):
        model = LinearRPC(alpha, scale * beta, scale).fit(x, y)
        np.testing.assert_allclose(model.density_ratio(x, y), first, rtol=1e-6, atol=1e-8)
    scores = torch.from_numpy(LinearRPC(1.0, beta, 1.0).fit(x, y).score_pairs(x, y))
    np.testing.assert_allclose(first, density_ratio(scores, 1.0, beta, 1.0), rtol=1e-9)


def test_rank_is_the_best_of_that_rank():
    x, y = related()
    kept = LinearRPC(rank=1).fit(x, y)
    assert kept.transform(x).shape == (60, 1)
    rho = whitened_svd(x, y)[1]
    assert kept.value_ == pytest.approx(rho[0] ** 2 / 2)
    left, right = x - x.mean(0), y - y.mean(0)
    best = -math.inf
    for seed in range(5):
        rng = np.random.default_rng(seed)
        u, v = rng.normal(size=(4, 1)), rng.normal(size=(3, 1))
        for _ in range(300):  # alternating least squares of one direction
            a = left @ u
            v = np.linalg.lstsq(right, a / (a**2).mean(), rcond=None)[0]
            b = right @ v
            u = np.linalg.lstsq(left, b / (b**2).mean(), rcond=None)[0]
        best = max(best, objective(left @ u @ v.T @ right.T, 1.0, 0.0, 1.0))
    assert best == pytest.approx(kept.value_, rel=1e-6)


def test_parts_add_up_to_the_whole():
    x, y = related(n=101, shift=1e4)
    whole = LinearRPC(0.5).fit(x, y)
    parts = LinearRPC(0.5)
    for rows in np.split(np.arange(101), [1, 2, 40, 90]):
        parts.partial_fit(x[rows], y[rows])
    np.testing.assert_allclose(parts.weight_, whole.weight_, rtol=1e-7)
    assert parts.value_ == pytest.approx(whole.value_, rel=1e-9)
    moments = PairMoments.of(x, y)
    assert moments.count == 101
    exact = np.cov(np.column_stack([x, y]).T, bias=True)
    np.testing.assert_allclose(moments.scatter / 101, exact, rtol=1e-8, atol=1e-10)
    assert not hasattr(LinearRPC(beta=0.1), "partial_fit")


def test_many_chunks_and_a_file_on_disk(tmp_path, monkeypatch):
    x, y = related(n=200)
    whole = {beta: LinearRPC(beta=beta).fit(x, y).weight_ for beta in (0.0, 0.3)}
    monkeypatch.setattr("relatum.estimators.moments._CHUNK", 70)
    for name, side in (("x", x), ("y", y)):
        np.save(tmp_path / f"{name}.npy", side)
    left, right = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "xy")
    for beta, weight in whole.items():
        np.testing.assert_allclose(LinearRPC(beta=beta).fit(left, right).weight_, weight, rtol=1e-6)


def gaussian_pairs(rho, n=500, seed=0):
    """A sample whose moments are exactly those of pairs with these canonical correlations."""
    rng = np.random.default_rng(seed)
    k = len(rho)
    z = rng.normal(size=(n, 2 * k))
    z -= z.mean(0)
    z = z @ np.linalg.inv(np.linalg.cholesky(z.T @ z / n)).T
    x, y = z[:, :k], rho * z[:, :k] + np.sqrt(1 - rho**2) * z[:, k:]
    return x @ rng.normal(size=(k, k)) + 3, y @ rng.normal(size=(k, k)) - 1


def test_mutual_information_of_gaussian_moments():
    rho = np.array([0.9, 0.5, 0.1])
    truth = -0.5 * np.log(1 - rho**2).sum()
    x, y = gaussian_pairs(rho)
    model = LinearRPC().fit(x, y)
    np.testing.assert_allclose(model.correlations_, rho, rtol=1e-9)
    assert model.mutual_information() == pytest.approx(truth, rel=1e-9)
    # The mean log ratio of a law with these very moments is the same number.
    assert model.mutual_information(x, y) == pytest.approx(truth, rel=1e-9)
    assert LinearRPC().fit(x, x).mutual_information() == math.inf
    with pytest.raises(AttributeError, match="beta=0 and intercept=True"):
        LinearRPC(beta=0.1).fit(x, y).mutual_information()
    # The mean log of the ratio read from the scores is another number: log(1 + Σ ρuv).
    plug_in = np.log(np.abs(model.density_ratio(x, y))).mean()
    assert abs(plug_in - truth) > 0.05


def test_directions_on_gaussian_data_are_cca_and_those_it_was_made_of():
    """x = z A has the canonical directions A⁻¹, whatever A; as the moments are exact, exactly."""
    rho = np.array([0.9, 0.5, 0.1])
    x, y = gaussian_pairs(rho, n=2000)
    rng = np.random.default_rng(0)
    rng.normal(size=(2000, 6))
    inverses = [np.linalg.inv(rng.normal(size=(3, 3))) for _ in range(2)]
    form = LinearRPC().fit(x, y).form_
    cca = CCA(3, scale=False, tol=1e-14, max_iter=100_000).fit(x, y)
    for ours, truth, theirs in (
        (form.directions_x, inverses[0], cca.x_rotations_),
        (form.directions_y, inverses[1], cca.y_rotations_),
    ):
        same_up_to_sign(ours, truth, 1e-8)
        same_up_to_sign(
            ours / np.linalg.norm(ours, axis=0), theirs / np.linalg.norm(theirs, axis=0), 1e-5
        )


def test_new_gaussian_rows_read_the_mutual_information():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(40_000, 2))
    y = 0.8 * x + 0.6 * rng.normal(size=x.shape)
    model = LinearRPC().fit(x[:20_000], y[:20_000])
    assert model.mutual_information(x[20_000:], y[20_000:]) == pytest.approx(
        -math.log(0.36), abs=4 * 0.8 * math.sqrt(2 / 20_000)
    )


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_ridge_is_noise_on_the_negatives(beta):
    x, y = related()
    ridge = 0.3
    model = LinearRPC(1.0, beta, 1.0, ridge=ridge, intercept=False).fit(x, y)
    matrix, weight = model.similarity(x, y), model.weight_
    slope = gradient(x, y, matrix, 1.0, beta, 1.0)
    xx, yy = x.T @ x / 60, y.T @ y / 60
    more = [s + ridge * np.trace(s) / len(s) * np.eye(len(s)) for s in (xx, yy)]
    np.testing.assert_allclose(slope, more[0] @ weight @ more[1] - xx @ weight @ yy, atol=1e-9)
    assert model.value_ < LinearRPC(1.0, beta, 1.0, intercept=False).fit(x, y).value_


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_units_origins_and_empty_columns_do_not_matter(beta):
    x, y = related()
    plain = LinearRPC(beta=beta).fit(x, y)
    scores = plain.similarity(x, y)
    scaled = x * np.array([1e8, 1e-8, 1.0, 3.0]) + np.array([1e9, 0.0, 1e3, 0.0])
    np.testing.assert_allclose(
        LinearRPC(beta=beta).fit(scaled, y).similarity(scaled, y), scores, atol=1e-5
    )
    padded = np.column_stack([x, np.full(60, 0.1), np.full(60, 1e8 / 3), x[:, 0]])
    model = LinearRPC(beta=beta).fit(padded, y)
    np.testing.assert_allclose(model.similarity(padded, y), scores, atol=1e-7)
    assert np.abs(model.weight_[4:6]).max() == 0


def test_more_columns_than_rows_is_finite_and_bounded():
    x, y = related(n=10, dx=30, dy=20)
    model = LinearRPC().fit(x, y)
    assert np.isfinite(model.weight_).all()
    # All of the 9 directions fit perfectly; 1 is the highest correlation.
    np.testing.assert_allclose(model.correlations_[:9], 1, rtol=1e-8)
    assert model.value_ == pytest.approx(4.5, rel=1e-8)
    assert LinearRPC(beta=0.5).fit(x, y).value_ <= 1 / (2 * 0.5) + 1 / 2


@pytest.mark.parametrize("relative", [(1.0, 0.0, 1.0), (0.5, 0.4, 1.0)])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("dy", [3, 40])
def test_more_columns_than_rows_is_the_same_solution(relative, intercept, dy, monkeypatch):
    x, y = related(n=25, dx=50, dy=dy)
    settings = {"ridge": 0.2, "intercept": intercept, "rank": 3}
    small = LinearRPC(*relative, **settings).fit(x, y)
    assert small.moments_ is None
    monkeypatch.setattr("relatum.estimators.solution._span", lambda side, centred: None)
    whole = LinearRPC(*relative, **settings).fit(x, y)
    assert whole.moments_ is not None
    new = related(n=30, dx=50, dy=dy, seed=1)
    for sides in ((x, y), new):
        np.testing.assert_allclose(
            small.similarity(*sides), whole.similarity(*sides), rtol=1e-6, atol=1e-8
        )
        assert small.score(*sides) == pytest.approx(whole.score(*sides), rel=1e-7)
    assert small.value_ == pytest.approx(whole.value_, rel=1e-8)
    assert small.score(x, y) == pytest.approx(small.value_, rel=1e-8)
    assert small.score(x, y) == pytest.approx(objective(small.similarity(x, y), *relative))
    assert small.score(*new) == pytest.approx(objective(small.similarity(*new), *relative))


def test_wide_tables_are_refused_where_rows_are_added():
    x, y = related(n=10, dx=30)
    model = LinearRPC().fit(x, y)
    with pytest.raises(ValueError, match="begin with partial_fit"):
        model.partial_fit(x, y)
    assert LinearRPC().partial_fit(x, y).value_ == pytest.approx(model.value_, rel=1e-6)


def test_retrieval_by_score_and_by_the_gaussian_ratio():
    x, y = related()
    model = LinearRPC().fit(x, y)
    matrix = model.similarity(x, y)
    found = model.retrieve(x[:7], y, k=3, by="score")
    np.testing.assert_array_equal(found.indices[:, 0], matrix[:7].argmax(1))
    np.testing.assert_allclose(found.scores, -np.sort(-matrix[:7], axis=1)[:, :3], rtol=1e-12)
    back = model.retrieve(y[:5], x, k=60, side="y", by="score")
    np.testing.assert_array_equal(back.indices, np.argsort(-matrix[:, :5].T, axis=1, kind="stable"))
    with pytest.raises(ValueError, match="between 1 and the 60 candidates, got 61"):
        model.retrieve(x, y, k=61)
    with pytest.raises(ValueError, match="by must be"):
        model.retrieve(x, y, by="cosine")
    # The log ratio of two Gaussian laws, by their covariances.
    z = np.column_stack([x, y])
    whole, mean = np.cov(z.T, bias=True), z.mean(0)
    apart = whole.copy()
    apart[:4, 4:] = apart[4:, :4] = 0
    best = model.retrieve(x[:3], y, k=60)
    for i, row in enumerate(best.indices):
        for place, j in enumerate(row):
            d = np.concatenate([x[i], y[j]]) - mean
            ratio = d @ (np.linalg.inv(apart) - np.linalg.inv(whole)) @ d / 2
            ratio += (np.linalg.slogdet(apart)[1] - np.linalg.slogdet(whole)[1]) / 2
            assert best.scores[i, place] == pytest.approx(ratio, rel=1e-8, abs=1e-8)
    same = LinearRPC().fit(x, x)  # correlations of 1 have no such law
    np.testing.assert_array_equal(
        same.retrieve(x, x).indices, same.retrieve(x, x, by="score").indices
    )
    with pytest.raises(AttributeError, match="set ridge > 0"):
        same.retrieve(x, x, by="gaussian")


def test_measures_are_those_of_loops():
    x, y = related(n=120)
    model = LinearRPC(ridge=0.1).fit(x[:80], y[:80])
    found = model.measures(x[80:], y[80:])
    ratios = model.gaussian_.matrix(x[80:], y[80:])
    ranks = [1 + sum(ratios[i, j] > ratios[i, i] for j in range(40)) for i in range(40)]
    assert found["mean_rank"] == pytest.approx(np.mean(ranks))
    assert found["recall@5"] == pytest.approx(np.mean([rank <= 5 for rank in ranks]))
    assert found["objective"] == model.score(x[80:], y[80:])
    assert found["mutual_information"] == pytest.approx(np.diag(ratios).mean())
    u, v = model.transform(x[80:]), model.transform(y[80:], "y")
    cosines = (u * v).sum(1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)
    assert found["alignment"] == pytest.approx(np.mean(2 - 2 * cosines), rel=1e-6)
    assert "mutual_information" not in LinearRPC(beta=0.1).fit(x, y).measures(x, y)


def test_loss_of_the_library_agrees_but_for_own_pairs():
    """The objective is RPC's own: its value on all n² pairs, written by moments."""
    from relatum.base import Moments

    x, y = related(n=30)
    model = LinearRPC(1.0, 0.3, 1.0).fit(x, y)
    matrix = torch.from_numpy(model.similarity(x, y))
    moments = [Moments(s.mean(), s.square().mean()) for s in (matrix.diagonal(), matrix)]
    assert float(RPC(1.0, 0.3, 1.0).from_moments(*moments)) == pytest.approx(model.value_)
