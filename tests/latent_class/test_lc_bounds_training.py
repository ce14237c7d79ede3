"""Generalisation, hold-out and PAC-Bayes: published figures, simulated coverage, wrong widths."""

import math

import numpy as np
import pytest

from relatum.latent_class import FiniteModel, unsupervised_risk
from relatum.latent_class.bounds import mean_classifier_bound
from relatum.latent_class.bounds.hold_out import hold_out_bound, pac_bayes_bound
from relatum.latent_class.bounds.training import finite_class_bound, minimiser_gap, uniform_bound
from relatum.latent_class.checks import loss_range
from relatum.latent_class.complexity import FiniteClass, exact_complexity, mlp_complexity
from relatum.latent_class.contraction import encoder_contraction, linear_complexity

from .finite_world import LOSSES

both_losses = pytest.mark.parametrize("loss", LOSSES)


@both_losses
@pytest.mark.parametrize("radius", [0.3, 1.0, 2.0])
def test_the_range_of_the_loss(loss, radius):
    t, lipschitz = 2 * radius**2, 1 if loss == "hinge" else 1 / math.log(2)
    low, high = loss_range(loss, radius)
    exact = min(2 * t, 1 + t) if loss == "hinge" else t / math.log(2)
    assert high - low == pytest.approx(exact) and high - low <= 4 * lipschitz * radius**2 + 1e-12
    low, high = loss_range(loss, radius, k=5)
    if loss == "logistic":
        exact = math.log2((1 + 5 * math.exp(t)) / (1 + 5 * math.exp(-t)))
    assert high - low == pytest.approx(exact) and high - low <= 2 * lipschitz * t + 1e-12


@pytest.mark.parametrize(
    ("samples", "confidence", "level_b", "level_c", "network"),
    [
        (10**4, 0.073, 0.040, 1.36, 216),
        (10**6, 0.0073, 0.0040, 0.136, 21.6),
        (10**8, 0.0007, 0.0004, 0.014, 2.2),
    ],
)
def test_sizes(samples, confidence, level_b, level_c, network):
    """R = 1, hinge, δ = 0.05; linear with d = 128, and three layers with product · |x| = 50."""
    rad = linear_complexity(samples, 1.0, dimension=128)
    for name, expected in (("scores", level_b), ("encoders", level_c)):
        gap = minimiser_gap(rad[name], samples, 1.0)
        assert gap.terms["complexity"] == pytest.approx(expected, rel=0.04)
        assert gap.terms["confidence"] == pytest.approx(confidence, rel=0.06)
        assert gap.vacuous == (gap.value >= 1)
    # |X|_F enters alone: one point of norm √(3M) stands for 3M points of norm 1
    deep = mlp_complexity([[math.sqrt(3 * samples)]], 128, [50.0, 1.0, 1.0]).high
    gap = minimiser_gap(encoder_contraction(deep, 1.0), samples, 1.0)
    assert gap.terms["complexity"] == pytest.approx(network, rel=0.02) and gap.vacuous


def test_steps_of_the_two_forms():
    """1 and 3 widths for one encoder, 2 and 4 for a minimiser; ln 2/δ where the sample is seen."""
    width = 3 * math.sqrt(math.log(20) / 2000)
    seen = 3 * math.sqrt(math.log(40) / 2000)
    assert uniform_bound(0.5, 10.0, 1000, 1.0).value == pytest.approx(0.52 + width)
    assert uniform_bound(0.5, 10.0, 1000, 1.0, observed=True).value == pytest.approx(
        0.52 + 3 * seen
    )
    assert minimiser_gap(10.0, 1000, 1.0).value == pytest.approx(0.02 + 2 * width)
    gap = minimiser_gap(10.0, 1000, 1.0, observed=True, optimisation=0.1)
    assert gap.value == pytest.approx(0.12 + 4 * seen)
    assert finite_class_bound(0.5, 1, 1000, 1.0).value == pytest.approx(0.5 + width)


class Simulation:
    """Twelve encoders of one model, one of which does well; samples of M triplets; exact risks."""

    def __init__(self, loss, samples):
        rng = np.random.default_rng(60)
        self.prior, self.laws = np.array([0.5, 0.3, 0.2]), rng.dirichlet(np.full(8, 0.3), 3)
        self.encoders = rng.normal(size=(12, 8, 2))
        self.encoders /= np.linalg.norm(self.encoders, axis=2, keepdims=True)
        self.risks = np.array(
            [unsupervised_risk(FiniteModel(self.prior, self.laws, f), loss) for f in self.encoders]
        )
        self.loss, self.samples = loss, samples

    def draw(self, rng):
        """The losses (encoders, M), points drawn by their index, the anchor's class first."""

        def members(classes):
            levels = self.laws.cumsum(axis=1)[classes]
            return np.minimum((rng.random((len(classes), 1)) > levels).sum(axis=1), 7)

        first, second = rng.choice(3, (2, self.samples), p=self.prior)
        x, positive, negative = members(first), members(first), members(second)
        f = self.encoders
        q = (f[:, x] * (f[:, negative] - f[:, positive])).sum(axis=2)
        return np.maximum(1 + q, 0) if self.loss == "hinge" else np.logaddexp(0, q) / math.log(2)


@both_losses
def test_coverage(loss):
    """Every bound fails in at most δ of 200 samples; without widths, half of them do."""
    delta, world, rng = 0.1, Simulation(loss, 60), np.random.default_rng(61)
    failed, bare = dict.fromkeys(["uniform", "finite", "pac", "minimiser", "hold", "narrow"], 0), 0
    for _ in range(200):
        losses = world.draw(rng)
        means = losses.mean(axis=1)
        best = int(means.argmin())
        signs = rng.integers(0, 2, (60, world.samples)) * 2.0 - 1
        rad = float((losses @ signs.T).max(axis=0).mean())  # of the observed sample
        given = {"delta": delta, "loss": loss}
        uniform = uniform_bound(means[best], rad, 60, 1.0, observed=True, **given)
        finite = finite_class_bound(means[best], 12, 60, 1.0, **given)
        pac = pac_bayes_bound(means[best], math.log(12), 60, 1.0, **given)
        gap = minimiser_gap(rad, 60, 1.0, observed=True, **given)
        truth = world.risks[best]
        failed["uniform"] += truth > uniform.value
        failed["finite"] += truth > finite.value
        failed["pac"] += truth > pac.value
        failed["minimiser"] += truth > world.risks.min() + gap.value
        failed["hold"] += world.risks[0] > hold_out_bound(losses[0], 1.0, **given).value
        bernstein = hold_out_bound(losses[0], 1.0, method="bernstein", **given)
        failed["narrow"] += world.risks[0] > bernstein.value
        bare += truth > means[best]
    assert max(failed.values()) <= delta * 200
    assert bare > 100  # a chosen encoder's own mean is optimistic


def test_the_expected_deviation_is_below_the_complexity():
    """Symmetrisation: E sup (L − L̂) <= 2 E[RAD]/M, here with all signs of 12 triplets."""
    world, rng = Simulation("hinge", 12), np.random.default_rng(62)
    deviations, complexities = [], []
    for _ in range(60):
        losses = world.draw(rng)
        deviations.append((world.risks - losses.mean(axis=1)).max())
        complexities.append(exact_complexity(FiniteClass(losses[:, :, None])).value)
    deviation, bound = np.mean(deviations), 2 * np.mean(complexities) / 12
    assert 0.25 * bound < deviation <= bound


def test_bernstein_is_narrower_for_rare_losses():
    losses = np.zeros(20_000)
    losses[:20] = 3.0
    hoeffding, bernstein = (
        hold_out_bound(losses, 1.0, method=m) for m in ("hoeffding", "bernstein")
    )
    assert bernstein.value < hoeffding.value
    log, v = math.log(40), losses.var(ddof=1)
    width = math.sqrt(2 * v * log / 20_000) + 7 * 3 * log / (3 * 19_999)
    assert bernstein.terms["width"] == pytest.approx(width)
    assert mean_classifier_bound(bernstein.value, 0.0, tau_is_lower_bound=True).holds


def test_losses_that_the_radius_forbids_are_told():
    assert hold_out_bound([0.0, 3.0], 1.0).holds is None  # independence cannot be seen
    assert hold_out_bound([0.0, 3.1], 1.0).holds is False


@both_losses
def test_pac_bayes_inverts_the_divergence(loss):
    low, high = loss_range(loss, 1.0)
    for share in (0.0, 0.01, 0.3, 0.9, 1.0):
        for divergence in (0.0, 5.0, 1e4):
            bound = pac_bayes_bound(low + share * (high - low), divergence, 1000, 1.0, loss)
            budget = (divergence + math.log(2 * math.sqrt(1000) / 0.05)) / 1000
            p = (bound.value - low) / (high - low)
            assert bound.terms["kl"] == pytest.approx(budget) and share <= p <= 1
            pairs = ((share, p), (1 - share, 1 - p))
            if p < 1 - 1e-9:
                kl = sum(a * math.log(a / b) for a, b in pairs if a > 0)
                assert kl == pytest.approx(budget, rel=1e-6)
            # Pinsker: never wider than the square root
            assert p <= share + math.sqrt(budget / 2) + 1e-9


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: uniform_bound(0.5, -1.0, 10, 1.0), "complexity must be a finite number >= 0"),
        (lambda: uniform_bound(0.5, 1.0, 0, 1.0), "samples must be at least 1, got 0"),
        (lambda: minimiser_gap(1.0, 10, 0.0), "radius must be a positive finite number, got 0.0"),
        (lambda: minimiser_gap(1.0, 10, 1.0, delta=0.0), "delta must lie between 0 and 1"),
        (lambda: finite_class_bound(0.5, 0, 10, 1.0), "encoders must be at least 1, got 0"),
        (lambda: hold_out_bound([], 1.0), "losses must be finite numbers, at least one"),
        (lambda: hold_out_bound([1.0], 1.0, method="bernstein"), "losses must be two at least"),
        (lambda: hold_out_bound([1.0], 1.0, method="chernoff"), "method must be 'hoeffding' or"),
        (lambda: pac_bayes_bound(5.0, 1.0, 10, 1.0), "empirical_risk must lie in the range"),
        (lambda: pac_bayes_bound(0.5, -1.0, 10, 1.0), "divergence must be a finite number >= 0"),
    ],
)
def test_errors(call, words):
    with pytest.raises(ValueError, match=words):
        call()
