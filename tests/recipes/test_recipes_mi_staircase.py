"""The staircase: exact facts of the task, cells that survive a kill, and a page from a tiny run."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy import integrate, stats

from relatum import cli
from relatum.critics import JointMLP
from relatum.recipes import mi_staircase
from relatum.recipes.mi_staircase import Staircase
from relatum.recipes.staircase import LEVELS, TASKS, TRAININGS, Plan, oracle
from relatum.recipes.staircase.cells import Cell, read_json, train_cell
from relatum.recipes.staircase.estimators import READINGS
from relatum.recipes.staircase.oracle import _difference_density, published_reading
from relatum.recipes.staircase.reference import AUTHORS, read_reference
from relatum.recipes.staircase.schedules import Schedule, longer_training
from relatum.recipes.staircase.summary import Level
from relatum.recipes.staircase.task import correlation, level_of, log_ratio_matrix, sample_pairs
from relatum.recipes.staircase.verdict import verdicts
from relatum.relative import relative_density_ratio, relative_score
from relatum.runs import RunError

TINY = {"preset": "cpu", "steps": 20, "width": 4, "batch_size": 8, "seeds": 1}
QUIET = Console(quiet=True)


def test_log_ratios_are_those_of_the_densities():
    x, y = sample_pairs(6.0, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rho = correlation(6.0)
    given = stats.norm.logpdf(y[None], rho * x[:, None], math.sqrt(1 - rho**2)).sum(-1)
    truth = given - stats.norm.logpdf(y).sum(-1)[None]
    assert np.allclose(log_ratio_matrix(x, y, 6.0), truth, rtol=1e-10)
    _, cubed = sample_pairs(
        6.0, 5, cubic=True, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    assert torch.equal(cubed, y**3)


def test_levels_share_the_schedule():
    counts = np.bincount([level_of(step, 20_000) for step in range(20_000)])
    assert counts.tolist() == [4000] * 5


def test_density_of_the_log_ratio():
    """A law of mass 1 and variance 20, that of the difference of two Gamma(10) numbers."""
    mass, _ = integrate.quad(_difference_density, -80, 80, points=[0.0])
    variance, _ = integrate.quad(lambda t: t**2 * _difference_density(t), -80, 80, points=[0.0])
    assert mass == pytest.approx(1, abs=1e-8)
    assert variance == pytest.approx(20, abs=1e-5)
    assert _difference_density(0.0) == pytest.approx(_difference_density(1e-3), rel=1e-5)


# Population values of the published read-out at the perfect critic, computed elsewhere by sampling,
# hence the tolerance.
@pytest.mark.parametrize(
    ("beta", "gamma", "values"),
    [
        (1e-4, 1.0, (3.80, 6.23, 7.66, 8.68, 9.53)),
        (1e-5, 1.0, (3.91, 6.90, 8.72, 9.93, 10.89)),
        (1e-3, 1.0, (3.48, 5.34, 6.49, 7.38, 8.21)),
        (1e-1, 1.0, (2.11, 3.20, 4.12, 4.96, 5.85)),
        (1e-4, 0.01, (2.90, 4.29, 5.27, 6.12, 6.97)),
    ],
)
def test_published_reading_of_the_perfect_critic(beta, gamma, values):
    for truth, value in zip(LEVELS, values, strict=True):
        assert published_reading(truth, 1.0, beta, gamma) == pytest.approx(value, abs=0.035)


def test_published_reading_by_sampling():
    generator = np.random.default_rng(0)
    n, beta = 400_000, 0.01
    difference = generator.gamma(10, size=n) - generator.gamma(10, size=n)
    ratio = np.exp(4.0 + correlation(4.0) * difference)
    share = beta * ratio / (beta * ratio + 1)
    mean, error = share.mean(), share.std() / math.sqrt(n)
    value = math.log(mean / (1 - mean) / beta)
    slack = 4 * error / (mean * (1 - mean))
    assert published_reading(4.0, 0.3, beta, 1.0) == pytest.approx(value, abs=slack)


def test_oracle():
    batches = 25
    for level in oracle(batches, batch_size=128)["levels"]:
        truth, readings = level["truth"], level["readings"]
        standard_error = level["floor"] / math.sqrt(batches)
        assert abs(readings["rpc"]["mean"] - truth) < 4 * standard_error
        published = readings["rpc-published"]
        assert abs(published["mean"] - level["published"]) < 0.15
        # E_Q r = 1, and where ratios are not too rare their scatter is the formula's or more: the
        # pairs of one batch depend on each other.
        if truth <= 2:
            assert abs(readings["partition"]["mean"] - 1) < 0.05
            assert readings["partition"]["sd"] > 0.8 * level["partition"]
    assert level["partition"] == pytest.approx(math.sqrt((math.exp(20) - 1) / (128 * 127)))


def test_logit_form_is_the_optimal_critic():
    u = torch.linspace(-20, 20, 41, dtype=torch.float64)
    assert torch.allclose(
        relative_score(u, 0.7, 0.05, 1.3), relative_density_ratio(u.exp(), 0.7, 0.05, 1.3)
    )


def test_readings_of_one_critic():
    """Both readings of a training come from the same scores, before any update."""
    x, y = sample_pairs(2.0, 16, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(3)
    model = TRAININGS["rpc"](8)
    critic = model.critic
    assert isinstance(critic, JointMLP)
    f = critic(x[:, None], y[None]).detach().double().diagonal()
    batch = model(x, y)
    logs = (f + 1).log() - (1 - 1e-4 * f).log()
    assert batch.readings["rpc"] == pytest.approx(float(logs.mean()), abs=1e-6)
    mean = f.mean()
    one = float(((mean + 1) / (1 - 1e-4 * mean)).log())
    assert batch.readings["rpc-published"] == pytest.approx(one, abs=1e-6)
    for name, names in READINGS.items():
        assert tuple(TRAININGS[name](8)(x, y).readings) == names


@pytest.mark.parametrize("family", ["gaussian", "logistic"])
def test_difference_of_entropies_is_of_densities(family):
    """The cross-entropies are those of scipy's laws."""
    law = stats.norm if family == "gaussian" else stats.logistic
    name = {"gaussian": "doe", "logistic": "doe-logistic"}[family]
    model = TRAININGS[name](8).double()
    densities = model.densities
    torch.nn.init.normal_(densities.free)
    # A parameter of 0 is the scale whose cross-entropy with a standard normal law is least.
    of_normal = {"gaussian": 0.0, "logistic": -0.559}[family]
    x, y = sample_pairs(2.0, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    batch = model(x, y)

    def cross_entropy(parameters):
        """With log scales that go to ±5 at most."""
        location, raw = parameters
        scale = np.exp(5 * np.tanh(raw / 5) + of_normal)
        return -law.logpdf(y, location, scale).sum(1).mean()

    alone = cross_entropy(densities.free.detach().numpy().reshape(2, 20))
    given = cross_entropy(densities.network(x).detach().numpy().reshape(6, 2, 20).swapaxes(0, 1))
    assert batch.readings[name] == pytest.approx(alone - given, rel=1e-3)
    assert batch.loss.item() == pytest.approx(alone + given, rel=1e-3)


def test_an_estimator_learns(tmp_path):
    """The densities of a difference of entropies follow the climb; pairs cost more than that."""
    plan = Plan(steps=300, width=16, batch_size=32, learning_rate=2e-2, seeds=1)
    cell = Cell("gaussian", "doe", 0)
    train_cell(cell, plan, tmp_path, lambda: None)
    levels = read_json(cell.path(tmp_path))["readings"]["doe"]["levels"]
    means = [level["mean"] for level in levels]
    assert means == sorted(means)
    assert means[0] < 1 < 1.5 < means[-1] < 10


def test_a_killed_run_goes_on(tmp_path, monkeypatch):
    out = tmp_path / "cells"
    one = Staircase(**TINY, out=out, cells="gaussian-rpc-0")
    assert mi_staircase.main(one, QUIET) == out
    kept = (out / "gaussian-rpc-0.json").read_bytes()
    trained = []
    monkeypatch.setattr(
        mi_staircase,
        "train_cell",
        lambda cell, *rest: (trained.append(cell.name), train_cell(cell, *rest)),
    )
    mi_staircase.main(Staircase(**TINY, out=out, cells="gaussian-rpc*"), QUIET)
    assert trained == ["gaussian-rpc-logit-0"]
    assert (out / "gaussian-rpc-0.json").read_bytes() == kept
    with pytest.raises(RunError, match="was made with.*choose another --out"):
        mi_staircase.main(Staircase(**TINY | {"width": 5}, out=out), QUIET)


def test_cells_repeat_bit_for_bit(tmp_path):
    plan = Plan(20, 4, 8, 1e-3, 1)
    texts = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        state = torch.get_rng_state()
        train_cell(Cell("cubic", "tuba", 0), plan, folder, lambda: None)
        assert torch.equal(state, torch.get_rng_state())  # the caller's numbers are left alone
        record = json.loads((folder / "cubic-tuba-0.json").read_text())
        texts.append(record["readings"])
    assert texts[0] == texts[1]


def test_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(mi_staircase, "ORACLE_BATCHES", 3)
    page = tmp_path / "docs" / "mi.md"
    words = "--preset cpu --steps 20 --width 4 --batch-size 8 --seeds 1".split()
    code = cli.main(["reproduce", "mi-staircase", *words, "--out", str(tmp_path / "cells"),
                     "--page", str(page)])  # fmt: skip
    assert code == 0, capsys.readouterr().err
    text = page.read_text(encoding="utf-8")
    assert "20 trainings" in text
    assert "missing" not in text
    assert not re.search(r"\bnan\b", text)
    for heading in ("published claims", *(f"critics: {task}" for task in TASKS), "perfect critic"):
        assert heading in text
    svg = page.with_suffix(".svg").read_text(encoding="utf-8")
    assert svg.startswith("<?xml")
    assert "authors" not in svg
    before = page.read_bytes(), svg
    cli.main(["reproduce", "mi-staircase", *words, "--out", str(tmp_path / "cells"),
              "--page", str(page)])  # fmt: skip
    assert (page.read_bytes(), page.with_suffix(".svg").read_text(encoding="utf-8")) == before


def _level(truth, mean, noise):
    return Level(truth, mean, noise, noise, (mean - truth) ** 2 + noise**2, mean, 0)


def test_verdicts_follow_the_numbers():
    levels = {
        ("gaussian", "rpc"): [_level(i, i - 0.1, 0.2) for i in LEVELS],
        ("gaussian", "rpc-published"): [_level(i, i + 1, 0.1) for i in LEVELS],
        ("gaussian", "smile"): [_level(i, i, 0.1 * n) for n, i in enumerate(LEVELS, start=1)],
    }
    outside = {"gaussian": [(0.0, 0.0), (0.01, 0.25), *[(0.0, 0.0)] * 3], "cubic": []}
    text = "\n".join(verdicts(levels, outside, oracle(2, 8)))
    assert "right read-out against SMILE (τ = 5): lower at 3, equal at 1, higher at 1 of 5" in text
    assert "| 2.00 | 1.00 | 0.67 | 0.50 | 0.40 |" in text
    assert "It does: scores" in text
    assert "26.00% of the positives lie outside it, at 4 nats (1.00% below, 25.00% above)" in text
    assert "too much at 1, 2, 4, 6, 8 nats and too little at 10" in text
    assert "−0.10, −0.10; closer than published at 5 of 5 levels" in text
    assert "too low at 5 of 5" in text
    assert "reads more at 5 of 5, by up to 1.10" in text
    inside = "\n".join(verdicts(levels, {"gaussian": [(0.0, 0.0)] * 5}, oracle(2, 8)))
    assert "It does not, here" in inside


def _schedule(steps, published, right, above=0.0):
    """Biases of two readings, the same on both tasks; right less 0.5 without those above 1/β."""
    dropped = [bias - 0.5 * (above > 0) for bias in right]
    named = {"rpc-published": published, "rpc": right, "rpc-drop": dropped}
    levels = {
        (task, name): [_level(i, i + bias, 0.1) for i, bias in zip(LEVELS, biases, strict=True)]
        for task in TASKS
        for name, biases in named.items()
    }
    outside = {"gaussian": [(0.0, 0.0)] * 4 + [(0.0, above)], "cubic": []}
    return Schedule(Plan(steps, 4, 8, 1e-3, 1), levels, outside, "4 trainings")


def test_longer_training():
    """Signs, counts and means, from biases that anyone can check by eye."""
    short = _schedule(100, (-1, -1, -1, -1, -1), (-2, -2, -2, -2, -2))
    long = _schedule(1000, (1, 1, 0.5, -0.5, -2.1), (-0.5, -0.5, -0.5, -0.25, -1), above=0.25)
    text = "\n".join(longer_training(short, long, oracle(2, 8), None))
    assert "up at low and down at high mutual information: in 2 of 4 cases" in text
    assert "nearer at most levels: RPC, right read-out, in 2 of 4." in text
    line = "* gaussian, 100 steps: the published read-out is too high at no level, too low at 2, 4,"
    assert line in text
    line = "too high at 2, 4, 6 nats, too low at 8, 10 nats: up at low and down at high. Nearer"
    assert line in text
    assert text.count("right read-out, at 0 of 5 levels") == 2
    assert text.count("right read-out, at 4 of 5 levels") == 2  # the third is a tie
    row = "| RPC, right read-out, 1,000 steps | −0.50 | −0.50 | −0.50 | −0.25 | −1.00 | 0.55 |"
    assert row in text
    assert "* gaussian: RPC, published read-out, 1.00 → 1.02 (further off); RPC, right" in text
    assert "RPC, right read-out, 2.00 → 0.55 (nearer)" in text
    # (1.81 + 2.23 + 1.66 + 0.68 + 0.46) / 5, from the population values above
    assert "ends at 1.37 with the published read-out" in text
    share = "1,000 steps: 0.00%, 0.00%, 0.00%, 0.00%, 25.00%; the two differ by up to 0.50 nats"
    assert share in text
    # Down at low and up at high is not the claim.
    other = _schedule(100, (-1, -1, 1, 1, 1), (0, 0, 0, 0, 0))
    assert "in 0 of 4 cases" in "\n".join(longer_training(other, other, oracle(2, 8), None))


def test_page_with_longer_training(tmp_path, monkeypatch):
    monkeypatch.setattr(mi_staircase, "ORACLE_BATCHES", 3)
    longer, page = tmp_path / "longer", tmp_path / "mi.md"
    some = TINY | {"preset": "rpc-long"}
    mi_staircase.main(Staircase(**some | {"steps": 40}, out=longer, cells="gaussian-*"), QUIET)
    names = sorted(path.stem for path in longer.iterdir())
    assert names == ["gaussian-rpc-0", "gaussian-rpc-logit-0"]
    shared = {"out": tmp_path / "cells", "cells": "gaussian-rpc*", "page": page}
    mi_staircase.main(Staircase(**TINY, **shared, longer=longer), QUIET)
    text = page.read_text(encoding="utf-8")
    assert "## With longer training\n\n40 steps, width 4" in text
    assert re.search(r"in [012] of 2 cases", text)
    with pytest.raises(ValueError, match="--longer .* is not a folder"):
        mi_staircase.main(Staircase(**TINY, **shared, longer=tmp_path / "no"), QUIET)
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match="empty has no finished cell"):
        mi_staircase.main(Staircase(**TINY, **shared, longer=tmp_path / "empty"), QUIET)


@pytest.mark.shared_data
def test_the_authors_curves(shared_data):
    reference = read_reference(shared_data / "mi")
    assert {name for _, name in reference.curves} == set(AUTHORS)
    mean, sd, _ = reference.levels["gaussian", "rpc-published", 2.0]
    assert mean == pytest.approx(3.29, abs=0.02)
    assert sd == pytest.approx(0.23, abs=0.02)


def test_settings():
    assert Staircase() == Staircase(preset="cpu")
    paper = Staircase(preset="paper").plan()
    assert (paper.steps, paper.width, paper.batch_size, paper.seeds) == (20_000, 512, 128, 3)
    assert len(paper.cells()) == 3 * 2 * len(TRAININGS)
    assert len(Staircase(preset="rpc-long").plan().cells()) == 2 * 2 * 2
    assert Staircase(preset="cpu", width=7).plan().width == 7
    for given, message in [
        ({"steps": 3}, "steps must be at least 20, got 3"),
        ({"batch_size": 1}, "batch_size must be at least 2, got 1"),
        ({"preset": "gpu"}, "unknown preset 'gpu'"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"page": Path("x.html")}, "page must end in .md"),
    ]:
        with pytest.raises(ValueError, match=message):
            Staircase(**given)


def test_mistakes(tmp_path):
    with pytest.raises(ValueError, match="--cells 'mine' matches none of gaussian-cpc-0"):
        mi_staircase.main(Staircase(**TINY, out=tmp_path, cells="mine"), QUIET)
    with pytest.raises(ValueError, match="is not a folder"):
        mi_staircase.main(Staircase(**TINY, out=tmp_path, reference=tmp_path / "no"), QUIET)
    (tmp_path / "gaussian-cpc-0.json").write_text("{")
    with pytest.raises(RunError, match="is damaged.*remove it"):
        mi_staircase.main(Staircase(**TINY, out=tmp_path), QUIET)
