"""The lines of a certificate against exact risks of finite classes, loops and published numbers."""

import math
from itertools import product

import numpy as np
import pytest

from relatum.latent_class import (
    certify,
    collision_second_order,
    cross_entropy_lower,
    cross_entropy_upper,
    directional_spread,
    infonce_risk,
    labelled_sample,
    margin_bound,
    mean_classifier_risk,
    noncollision_risk,
    pair_risks,
    pair_table,
    pairwise_error,
    spread,
    supervised_risk,
    top1_errors,
    tuple_risk,
    unsupervised_risk,
)
from relatum.latent_class.certificate.few_shot import few_shot_curve
from relatum.latent_class.certificate.lines import (
    costly_pairs,
    one_shot_lines,
    spread_lines,
)
from relatum.latent_class.certificate.negatives import negative_lines
from relatum.latent_class.estimates import Estimate
from relatum.latent_class.leave_one_out import (
    leave_one_out_error,
    leave_one_out_risk,
    leave_one_out_top_error,
)
from relatum.latent_class.resampling import jackknife
from relatum.latent_class.risks import score_variances

from .finite_world import LIPSCHITZ, LOSS, LOSSES, World, random_sample


def exact(world, loss):
    """Every line of the finite model, by its own sums."""
    tau, scores = world.tau, world.features @ world.means.T
    m = scores[:, None, :] - scores[:, :, None]
    variances = score_variances(world).T
    v = variances[:, :, None] + variances[:, None, :]
    law = world.laws.T[:, :, None] * world.task_law
    collision = (unsupervised_risk(world, loss) - (1 - tau) * noncollision_risk(world, loss)) / tau
    spreads = LIPSCHITZ[loss] / math.sqrt(3) * np.array([directional_spread(world), spread(world)])
    second = [np.trace(s @ (s + np.outer(u, u))) for s, u in
              zip(world.covariances, world.means, strict=True)]  # fmt: skip
    margin = margin_bound(m, v, loss, law)
    found = {
        "pairwise_error": pairwise_error(world),
        "top1_error": world.prior @ top1_errors(world),
        "mean_classifier_risk": mean_classifier_risk(world, loss),
        "noncollision_risk": noncollision_risk(world, loss),
        "jensen_gap": noncollision_risk(world, loss) - mean_classifier_risk(world, loss),
        "jensen_bound": LIPSCHITZ[loss] / 2 * (law * np.sqrt(v)).sum(),
        "collision_probability": tau,
        "collision_excess": collision - 1,
        "collision_cost": tau / (1 - tau) * (collision - 1),
        "collision_price_directional": spreads[0],
        "collision_price": spreads[1],
        "beta_spread": tau / (1 - tau) * spreads[1],
        "second_order_price": collision_second_order(world.nu @ second, loss).value - 1,
        "contrastive_risk": unsupervised_risk(world, loss),
        "certificate_point": (unsupervised_risk(world, loss) - tau) / (1 - tau),
        "margin_bound": margin.value,
        "cross_entropy": world.prior @ (world.laws @ np.log(np.exp(scores).sum(1)))
        - world.prior @ np.einsum("cx,xc->c", world.laws, scores),
    }
    for k in (3,):
        nats = infonce_risk(world, k=k)
        spans = scores.max(1) - scores.min(1)
        masses = world.prior @ world.laws
        found |= {
            f"k_negative_risk[{k}]": tuple_risk(world, loss, k=k),
            f"infonce[{k}]": nats,
            f"collision_probability[{k}]": 1 - world.prior @ (1 - world.prior) ** k,
            f"cross_entropy_low[{k}]": cross_entropy_lower(
                nats, world.prior, world.means, world.radius, k=k
            ).value,
            f"cross_entropy_high[{k}]": cross_entropy_upper(
                nats, world.prior, world.means, k=k, spans=spans, weights=masses
            ).value,
        }
    return found


@pytest.mark.parametrize("loss", LOSSES)
def test_lines_are_the_exact_risks_of_the_model(loss):
    world, generator = World(3, classes=4, support=5), np.random.default_rng(3)
    labels = np.arange(2000) % 4  # not in the proportions of the prior, which is given
    certificate = certify(
        world.draw(labels, generator), labels,
        loss=loss, class_prior=world.prior, radius=world.radius, k=3, block=1,
    )  # fmt: skip
    for key, truth in exact(world, loss).items():
        line = certificate.line(key)
        error = 0.02 if math.isnan(line.standard_error) else 4.5 * line.standard_error + 1e-9
        assert line.value == pytest.approx(truth, abs=error), key
        if not math.isnan(line.standard_error):
            assert line.low <= line.value <= line.high and line.standard_error < 0.1, key
    best = supervised_risk(world, loss).value
    low, high = (certificate.line(f"supervised_{end}") for end in ("low", "high"))
    assert low.value - 0.05 <= best <= high.value + 4.5 * high.standard_error
    assert best <= mean_classifier_risk(world, loss) <= certificate.certified


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("prior", [None, [0.5, 0.3, 0.2]])
def test_collisions_are_taken_off_exactly(loss, prior):
    """Value and jackknife error of (L_un − τ)/(1 − τ), by leaving out one point after another."""
    sample = random_sample(4, (5, 6, 7), class_prior=prior)

    def values(part):
        table = pair_table(part, loss)
        risk = (part.weights * table.values).sum()
        return np.array([
            (risk - part.tau) / (1 - part.tau),
            (np.diag(part.weights) * (np.diag(table.values) - 1)).sum() / (1 - part.tau),
        ])  # fmt: skip

    risk = leave_one_out_risk(sample, loss)
    lines = one_shot_lines(pair_table(sample, loss), risk, 0.95)
    n = len(sample.codes)
    left = np.array([values(sample.keep(np.arange(n) != i)) for i in range(n)])
    if prior is None:
        errors = np.sqrt((n - 1) * left.var(0))
    else:
        parts = [left[sample.codes == c] for c in range(3)]
        errors = np.sqrt(sum((len(x) - 1) * x.var(0) for x in parts))
    for key, value, error in zip(
        ("certificate_point", "collision_cost"), values(sample), errors, strict=True
    ):
        assert lines[key].value == pytest.approx(value, abs=1e-12)
        assert lines[key].standard_error == pytest.approx(error, rel=1e-9)
    assert lines["jensen_gap"].value == lines["noncollision_risk"].value - risk.value


def test_infonce_encloses_the_cross_entropy_with_the_weights_of_the_prior():
    """InfoNCE − ln ρ_min + E gap(D_x) − ln(k + e^{V_B}), every point with ρ_c / n_c."""
    prior = np.array([0.9, 0.1])
    generator = np.random.default_rng(8)
    labels = np.arange(40) % 2
    points = np.where(labels[:, None], 0.2, 3.0) * generator.standard_normal((40, 2))
    sample = labelled_sample(points, labels, class_prior=prior)
    found, notes = negative_lines(sample, sample, (2, 99), "hinge", radius=None, level=0.95, seed=0)
    assert notes[0] == "k = 99 left out: 40 rows" and "needs the radius" in notes[1]
    means = np.array([points[labels == c].mean(0) for c in (0, 1)])
    gap = 0.0
    for x, c in zip(points, labels, strict=True):
        d = abs(x @ (means[0] - means[1]))
        gap += prior[c] / 20 * (math.log((math.exp(d) - 1) / d) - 1 + d / (math.exp(d) - 1))
    between = prior @ (means**2).sum(1) - ((prior @ means) ** 2).sum()
    high = found["infonce[2]"].value - math.log(0.1) + gap - math.log(2 + math.exp(between))
    assert found["cross_entropy_high[2]"].value == pytest.approx(high)
    assert found["floor[2]"] == pytest.approx(1 - 0.9 * 0.1**2 - 0.1 * 0.9**2)


def test_units_are_left_out_whole():
    """A person in several classes: the jackknife by units knows the spread over samples."""
    values, errors, naive = [], [], []
    for seed in range(150):
        generator = np.random.default_rng(seed)
        people = np.tile(np.arange(40), 3)
        labels = np.repeat([0, 1, 2], 40)
        shift = generator.standard_normal((40, 2))[people]
        points = np.eye(3)[labels][:, :2] + 0.8 * shift + 0.2 * generator.standard_normal((120, 2))
        for units, kept in ((people, errors), (None, naive)):
            sample = labelled_sample(points, labels, class_prior=[1 / 3] * 3)
            object.__setattr__(sample, "units", units)
            table = pair_table(sample)
            kept.append(jackknife(table, lambda law: law))
        values.append((sample.weights * table.values).sum())
    spread_ = np.std(values)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(spread_, rel=0.2)
    assert np.sqrt(np.mean(np.square(naive))) < 0.75 * spread_


def test_costly_pairs_are_parts_of_the_whole():
    sample = random_sample(5, (6, 9, 7, 5))
    table = pair_table(sample)
    found = costly_pairs(table)
    assert len(found) == 6 and sum(pair.share for pair in found) == pytest.approx(1)
    assert [pair.share for pair in found] == sorted((p.share for p in found), reverse=True)
    a, b = found[0].class_a, found[0].class_b
    triplets = [
        LOSS["hinge"](x @ z - x @ y)
        for c, e in ((a, b), (b, a))
        for i, x in enumerate(sample.rows(c))
        for j, y in enumerate(sample.rows(c))
        for z in sample.rows(e)
        if i != j
    ]
    half = len(triplets) * (len(sample.rows(a)) - 1)
    cut = round(half / (len(sample.rows(a)) + len(sample.rows(b)) - 2))
    both = (np.mean(triplets[:cut]) + np.mean(triplets[cut:])) / 2
    assert found[0].risk == pytest.approx(both)
    alone = sample.keep(np.isin(sample.codes, [a, b]))
    alone = labelled_sample(alone.features, alone.codes)
    risks = pair_risks(pair_table(alone)).noncollision  # of a sample of these two classes
    assert (found[0].risk, found[0].standard_error) == pytest.approx(
        (risks.value, risks.standard_error)
    )


@pytest.mark.parametrize("b", [1, 2])
def test_few_shot_curve_is_the_expectation(b):
    """All blocks of all classes, enumerated: risk, error of two and error among all."""
    world, generator = World(6, classes=3, support=3), np.random.default_rng(6)
    labels = world.sample_classes(4000, generator)
    sample = labelled_sample(world.draw(labels, generator), labels, class_prior=world.prior)
    (shot,), _ = few_shot_curve(sample, (b,), "logistic")
    truth = np.zeros(3)
    for blocks in product(*(list(world.blocks(c, b)) for c in range(3))):
        means = np.array([mean for mean, _ in blocks])
        mass = math.prod(p for _, p in blocks)
        scores = world.features @ means.T
        margins = scores[:, None, :] - scores[:, :, None]
        law = world.laws.T[:, :, None] * world.task_law
        truth[0] += mass * (law * LOSSES["logistic"](margins)).sum()
        truth[1] += mass * (law * (margins >= 0)).sum()
        others = margins + np.where(np.eye(3, dtype=bool), -np.inf, 0)
        truth[2] += mass * ((others.max(2) >= 0) * world.laws.T @ world.prior).sum()
    errors = [shot.risk_standard_error, shot.pairwise_standard_error, shot.top1_standard_error]
    found = [shot.risk, shot.pairwise_error, shot.top1_error]
    assert (np.abs(found - truth) < 5 * np.array(errors)).all()
    assert max(errors) < 0.03
    assert shot.risk == pytest.approx(noncollision_risk(world, "logistic", block=b), abs=0.03)


def test_few_shot_curve_predicts_measurements():
    """Classifiers of fresh shots on fresh points, without any of the rows of the prediction."""
    generator = np.random.default_rng(7)
    centres = generator.standard_normal((6, 8))

    def draw(count):
        labels = np.repeat(np.arange(6), count)
        return centres[labels] + 1.5 * generator.standard_normal((len(labels), 8)), labels

    rows, labels = draw(200)
    curve, notes = few_shot_curve(labelled_sample(rows, labels), (1, 5, 120, 300))
    assert notes == ("few-shot curve without 300 labels per class: a class has 200 rows",)
    for shot in curve:
        errors = []
        for _ in range(60):
            shots, points = draw(shot.shots)[0], draw(100)
            means = shots.reshape(6, shot.shots, 8).mean(1)
            errors.append(((points[0] @ means.T).argmax(1) != points[1]).mean())
        assert shot.top1_error == pytest.approx(np.mean(errors), abs=0.025)
        assert shot.top1_spread == pytest.approx(np.std(errors), abs=0.02)
        assert 0.003 < shot.top1_standard_error < 0.03


# T (R² = 1/T), loss: L_un, L^≠, L_sup^μ, LOO + J, L^= − 1, c' s, β s, certificate, as published
# in the design of this certificate for K = 10, n = 400, d = 16, noise 0.35 on the sphere.
PUBLISHED = {
    (1.0, "hinge"): (0.681, 0.645, 0.644, 0.788, 0.000, 0.175, 0.019, 0.645),
    (0.5, "hinge"): (0.483, 0.425, 0.328, 0.617, 0.006, 0.351, 0.039, 0.425),
    (0.5, "logistic"): (0.681, 0.640, 0.595, 1.011, 0.048, 0.506, 0.056, 0.645),
    (0.1, "hinge"): (0.523, 0.401, 0.062, 1.503, 0.616, 1.753, 0.195, 0.470),
    (0.1, "logistic"): (0.620, 0.487, 0.141, 2.220, 0.820, 2.529, 0.281, 0.578),
}


@pytest.mark.parametrize(("temperature", "loss"), PUBLISHED)
def test_the_published_example(temperature, loss):
    """Other draws of the centres: the columns agree to a tenth, or a fifth of large numbers."""
    keys = ("contrastive_risk", "noncollision_risk", "mean_classifier_risk", "loo_j",
            "collision_excess", "collision_price", "beta_spread", "certificate_point")  # fmt: skip
    rows = []
    for seed in range(3):
        generator = np.random.default_rng(seed)
        centres = generator.standard_normal((10, 16))
        centres /= np.linalg.norm(centres, axis=1, keepdims=True)
        labels = np.arange(400) % 10
        x = centres[labels] + 0.35 * generator.standard_normal((400, 16))
        x /= np.linalg.norm(x, axis=1, keepdims=True) * math.sqrt(temperature)
        sample = labelled_sample(x, labels, class_prior=[0.1] * 10)
        risk = leave_one_out_risk(sample, loss)
        found = one_shot_lines(pair_table(sample, loss), risk, 0.95)
        found |= spread_lines(sample, loss, 0.95, risk.value)[0] | {"mean_classifier_risk": risk}
        found["loo_j"] = risk.value + found["jensen_bound"]
        rows.append([x.value if isinstance(x := found[key], Estimate) else x for key in keys])
        if temperature == 1:
            assert 0.01 < leave_one_out_error(sample).value < 0.05
            assert 0.1 < leave_one_out_top_error(sample).value < 0.25
    published = np.array(PUBLISHED[temperature, loss])
    assert np.mean(rows, axis=0) == pytest.approx(published, abs=0.1, rel=0.2)
