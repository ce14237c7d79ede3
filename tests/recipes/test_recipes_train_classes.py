"""Empirical risk minimisation in the framework of latent classes: draws, losses, bounds, runs."""

import io
import math

import numpy as np
import pytest
import torch
from rich.console import Console

from relatum import ContrastiveLoss, DotProduct, Hinge, Logistic, cli
from relatum.latent_class import ScoreBall, score_contraction, simulated_complexity
from relatum.models import BoundedEncoder
from relatum.recipes import train_classes
from relatum.recipes.classes import (
    Rows,
    TrainClasses,
    TupleStep,
    class_complexity,
    load_population,
)
from relatum.recipes.embeddings import Embeddings
from relatum.report import render
from relatum.runs import RunError
from relatum.training import load_checkpoint

FAST = {"triplets": 600, "batch_size": 100, "epochs": 3, "log_every": 2, "checkpoint_every": 3}


def run(out, **changes):
    text = io.StringIO()
    settings = TrainClasses(**{**FAST, "out": out, **changes})
    made = train_classes.main(settings, Console(file=text, width=100))
    return made, made.read_json("results/classes.json")["payload"], text.getvalue()


def clusters(n=900, classes=3, width=6):
    generator = np.random.default_rng(0)
    labels = generator.choice(classes, n, p=[0.5, 0.3, 0.2])
    centres = generator.normal(size=(classes, width))
    return centres[labels] + 0.3 * generator.normal(size=(n, width)), labels


@pytest.mark.parametrize("norm", ["frobenius", "spectral", "sphere"])
@pytest.mark.parametrize("widths", [[4, 3], [4, 8, 3], [4, 8, 8, 3]])
def test_no_embedding_is_longer_than_the_radius(norm, widths):
    encoder = BoundedEncoder(widths, 1.7, norm)
    with torch.no_grad():
        for layer in encoder.layers:
            layer.weight.add_(torch.randn_like(layer.weight) * 5)
    encoder.project_()
    x = torch.nn.functional.normalize(torch.randn(500, 4), dim=1)
    lengths = encoder(x).norm(dim=1)
    assert lengths.max() <= 1.7 * (1 + 1e-6)
    bounds = encoder.frobenius_bounds()
    if norm == "sphere":
        assert bounds is None
        alive = lengths[lengths > 0]  # where every ReLU is shut there is no direction
        torch.testing.assert_close(alive, torch.full_like(alive, 1.7))
    else:
        for layer, bound in zip(encoder.layers, bounds, strict=True):
            assert layer.weight.norm() <= bound * (1 + 1e-6)


@pytest.mark.parametrize(
    ("norm", "order", "dual"), [("frobenius", "fro", "fro"), ("spectral", 2, "nuc")]
)
def test_the_projection_is_the_nearest_matrix_of_the_ball(norm, order, dual):
    encoder = BoundedEncoder([4, 3], 1.0, norm).double()
    outside = torch.randn(3, 4, dtype=torch.float64) * 2
    with torch.no_grad():
        encoder.layers[0].weight.copy_(outside)
        encoder.project_()
        nearest = encoder.layers[0].weight.clone()
    assert torch.linalg.matrix_norm(nearest, order) == pytest.approx(1)
    # No other member reaches further in the direction that is left: by the dual norm.
    left = outside - nearest
    assert (left * nearest).sum() == pytest.approx(float(torch.linalg.matrix_norm(left, dual)))


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
@pytest.mark.parametrize(("k", "block"), [(1, 1), (3, 1), (1, 3)])
def test_losses_are_those_of_loops_and_of_the_block_pairing(loss, k, block):
    settings = TrainClasses(triplets=30, k=k, block=block, loss=loss, radius=2.0)
    population = load_population(settings)
    tuples = population.draw(settings, np.random.default_rng(0))
    encoder = BoundedEncoder([20, 5], 2.0).double()
    step = TupleStep(encoder, loss, population.inputs.double(), tuples)
    f = encoder(population.inputs.double()).detach().numpy()
    looped = []
    for i, mates, others in zip(*tuples[:3], strict=True):
        own = sum(f[i] @ f[j] for j in mates) / block
        v = [sum(f[i] @ f[j] for j in row) / block - own for row in others]
        hinge = max(0.0, 1 + max(v))
        looped.append(hinge if loss == "hinge" else math.log2(1 + sum(map(math.exp, v))))
    np.testing.assert_allclose(step.losses(tuples), looped, rtol=1e-12)
    objective = Hinge() if loss == "hinge" else Logistic()
    x, y, negatives = (encoder(population.inputs.double()[rows]) for rows in tuples[:3])
    library = ContrastiveLoss(objective, DotProduct(), "block")(x, y, negatives=negatives)
    assert step(torch.arange(30), 0).loss.item() == pytest.approx(library.item(), rel=1e-12)


@pytest.mark.parametrize(("k", "block"), [(1, 1), (4, 1), (1, 3)])
def test_rows_of_a_file_are_drawn_in_the_law_of_the_theory_and_once(k, block):
    settings = TrainClasses(k=k, block=block, batch_size=10)
    features, labels = clusters(6000)
    population = Rows(settings, Embeddings(features, labels=labels))
    tuples = population.draw(settings, np.random.default_rng(0))
    used = torch.cat([part.flatten() for part in tuples[:3]])
    assert len(used) == len(tuples) * settings.rows_of_each == len(set(used.tolist()))
    assert len(used) > 0.8 * len(population.inputs)  # few are left over
    codes = torch.from_numpy(population.codes)
    classes = codes[tuples.anchors]
    assert (codes[tuples.positives] == classes[:, None]).all()
    others = codes[tuples.negatives]
    assert (others == others[:, :, :1]).all()
    # Class of the anchor and of the negatives: independent, from the prior.
    pairs = torch.bincount(3 * classes.repeat_interleave(k) + others[:, :, 0].flatten())
    law = np.outer(population.prior, population.prior).ravel()
    spread = np.sqrt(law / len(tuples))
    assert (abs(pairs.numpy() / pairs.sum().item() - law) < 4 * spread).all()


def test_more_than_there_are_are_drawn_repeatedly_and_said(tmp_path):
    features, labels = clusters()
    path = tmp_path / "rows.npz"
    np.savez(path, features=features, labels=labels)
    _, record, text = run(tmp_path / "many", data=str(path))
    assert record["fresh"] is False
    assert "about the law of the training rows" in " ".join(text.split())
    _, record, text = run(tmp_path / "fresh", data=str(path), triplets=None)
    assert record["fresh"] is True
    assert "about the law" not in text


def test_the_complexity_is_above_that_of_the_scores():
    """RAD <= L0 R_S(q_F), whose value is simulated; the closed form must not be below it."""
    settings = TrainClasses(triplets=60, radius=2.0, loss="logistic")
    population = load_population(settings)
    tuples = population.draw(settings, np.random.default_rng(0))
    parts = [tuples.anchors, tuples.positives[:, 0], tuples.negatives[:, 0, 0]]
    ball = ScoreBall(*(population.inputs[rows].double().numpy() for rows in parts), 2.0)
    scores = simulated_complexity(ball, np.random.default_rng(0), draws=300).value
    encoder = BoundedEncoder([20, 16], 2.0)
    found, way = class_complexity(encoder, 60, settings)
    assert way == "linear encoders"
    assert (
        score_contraction(scores, "logistic") < found < 10 * score_contraction(scores, "logistic")
    )


def test_the_complexity_of_networks_is_that_of_the_specification():
    settings = TrainClasses(triplets=100, layers=2, hidden=8, dim=4, radius=4.0, block=3)
    bounds = math.sqrt(4) * 2 * 2 * math.sqrt(100 * 7) * (1 + math.sqrt(2 + 2 * math.log(2)))
    expected = math.sqrt(2) * math.sqrt(4 + 2 / 3) * 4.0 * bounds
    found, _ = class_complexity(BoundedEncoder([20, 8, 4], 4.0), 100, settings)
    assert found == pytest.approx(expected, rel=1e-12)
    wide, _ = class_complexity(BoundedEncoder([20, 8, 4], 4.0, "spectral"), 100, settings)
    assert wide == pytest.approx(expected * math.sqrt(8 * 4), rel=1e-12)
    # On the sphere: every point may have its signs fulfilled, n √d R.
    sphere, way = class_complexity(BoundedEncoder([20, 8, 4], 4.0, "sphere"), 100, settings)
    assert sphere == pytest.approx(expected / bounds * 700 * 2 * 4, rel=1e-12)
    assert way == "any bounded encoders"


def test_theory_and_experiment_meet_on_the_toy(tmp_path):
    _, record, text = run(tmp_path / "run", triplets=20_000, epochs=4, batch_size=500)
    risk, mean = record["risk"]["value"], record["mean_classifier_risk"]["value"]
    tau = record["tau"]
    assert tau == pytest.approx(1 / 5)
    # Trained: well below 1, and the sample is as good as the law (a linear class, many triplets).
    assert record["empirical_risk"] < 0.4
    assert record["empirical_risk"] == pytest.approx(risk, abs=0.02)
    assert mean <= (risk - tau) / (1 - tau)
    assert risk <= record["risk_bound"] < 1
    assert record["risk_bound_terms"]["complexity"] == pytest.approx(4 * 9 / math.sqrt(20_000))
    assert record["transfer_bound"] == pytest.approx((record["risk_bound"] - tau) / (1 - tau))
    assert "the bound says something" in " ".join(text.split()).lower()


def test_blocks_and_networks_run_and_say_what_is_vacuous(tmp_path):
    changes = {"block": 3, "layers": 2, "norm": "sphere", "radius": 1.0, "loss": "logistic"}
    _, record, text = run(tmp_path / "run", **changes)
    assert record["risk_bound_vacuous"] is True
    assert "vacuous" in text
    assert record["risk"]["standard_error"] > 0
    bound = record["transfer_from_measured"]
    assert record["mean_classifier_risk"]["value"] <= bound + 4 * record["risk"]["standard_error"]


def test_interrupted_and_continued_equals_uninterrupted(tmp_path, monkeypatch):
    whole, record, _ = run(tmp_path / "whole")
    step = TupleStep.__call__
    calls = []

    def interrupted(self, rows, seed):
        calls.append(seed)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return step(self, rows, seed)

    monkeypatch.setattr(TupleStep, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts")
    monkeypatch.undo()
    parts, again, _ = run(tmp_path / "parts", resume=True)
    first, second = (load_checkpoint(r.checkpoint)["modules"]["encoder"] for r in (whole, parts))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert again == record
    steps = [line["step"] for line in parts.metrics()]
    assert steps == [line["step"] for line in whole.metrics()]
    with pytest.raises(RunError, match="radius: 3.0 -> 2.0.*relatum train classes"):
        run(tmp_path / "parts", resume=True, radius=2.0)
    assert run(tmp_path / "parts", resume=True)[1] == record  # finished: shown again


def test_the_command_line_and_the_report(tmp_path, capsys):
    features, labels = clusters()
    np.savez(tmp_path / "rows.npz", features=features, labels=labels)
    words = f"train classes --data {tmp_path / 'rows.npz'} --batch-size 50 --epochs 2 --out"
    assert cli.main([*words.split(), str(tmp_path / "run")]) == 0
    assert "contrastive risk, bound and fresh" in capsys.readouterr().out
    page = render([tmp_path / "run"], tmp_path / "page.html").read_text()
    assert "Theory beside experiment" in page
    assert "has been probed" not in page  # nobody can
    assert "relatum probe" not in page
    assert cli.main(["probe", str(tmp_path / "run")]) == 1
    assert "is a run of `relatum train classes`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 2, "block": 2}, "give k or block, not both"),
        ({"radius": 0.0}, "radius must be a positive number, got 0.0"),
        ({"norm": "forbenius"}, "did you mean 'frobenius'"),
        ({"delta": 1.0}, "delta must be between 0 and 1"),
        ({"layers": 1, "hidden": 7}, "hidden belongs to layers of 2 or more: hidden 7"),
        ({"classes": 1}, "classes must be at least 2"),
        ({"data": "nowhere.npz"}, "nowhere.npz does not exist"),
    ],
)
def test_mistakes_are_named(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "run", **changes)


def test_a_file_needs_labels_and_enough_rows(tmp_path):
    features, labels = clusters(60)
    np.savez(tmp_path / "bare.npz", features=features)
    with pytest.raises(ValueError, match="has no `labels`"):
        run(tmp_path / "run", data=str(tmp_path / "bare.npz"))
    np.savez(tmp_path / "few.npz", features=features, labels=labels)
    with pytest.raises(ValueError, match=r"gives \d+ tuples.*fewer than one step"):
        run(tmp_path / "run", data=str(tmp_path / "few.npz"), triplets=None)
