"""Fine-tuning: the step is SGD's, the labels are few and fair, and nothing else is touched."""

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

from relatum.data import ImageTable, load_splits
from relatum.models import build_encoder
from relatum.probes import parameter_hash
from relatum.recipes import finetune, report, train_images
from relatum.recipes.finetuning import Classifier, FineTunePlan, fine_tune, stem_of
from relatum.recipes.finetuning.step import SupervisedStep
from relatum.recipes.images import TrainImages, trained_encoder
from relatum.runs import Run, RunError
from relatum.training import NonFiniteLoss, load_checkpoint

QUIET = Console(file=io.StringIO())


@pytest.fixture(scope="module")
def digits():
    return load_splits("digits", image_size=8)


@pytest.fixture
def encoder():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build_encoder("conv-small", image_size=8)


class Pixels(nn.Module):
    """An encoder whose features are known: two means of pixels."""

    def forward(self, images):
        return images.flatten(2).mean(2)[:, :2]


def table(pixels, labels):
    n = len(labels)
    return ImageTable(
        pixels=pixels,
        labels=torch.tensor(labels),
        ids=tuple(map(str, range(n))),
        rows=torch.arange(n),
        classes=("a", "b", "c"),
        source="made up",
    )


def coloured(*values):
    """Images of one colour each."""
    colours = torch.tensor(values, dtype=torch.uint8)
    return colours[:, :, None, None].expand(-1, -1, 8, 8).contiguous()


@pytest.mark.parametrize("micro", [None, 2])
def test_steps_are_those_of_nesterov_on_the_cross_entropy(micro):
    """Two steps on one batch, by loops in float64: v = mv + g, then w = w - r (g + m v).

    In parts, too: the rate and the mean are those of the whole batch.
    """
    values = [(10, 200, 0), (250, 30, 0), (90, 100, 0), (60, 160, 0)]
    labels, m = [0, 1, 2, 1], 0.7
    images = table(coloured(*values), labels)
    plan = FineTunePlan(
        tune="classifier",
        epochs=2,
        batch_size=4,
        learning_rate=40.0,
        momentum=m,
        augmentation="none",
        micro_batch_size=micro,
    )
    result = fine_tune(Pixels(), None, images, images, plan)
    x = np.array(values, np.float64)[:, :2] / 255
    w, v = np.zeros((3, 3)), np.zeros((3, 3))  # the last column is the offset
    inputs = np.column_stack([x, np.ones(4)])
    losses = []
    for step in range(2):
        rate = 40.0 * 4 / 256 / 2 * (1 + np.cos(np.pi * step / 2))
        gradient, loss = np.zeros((3, 3)), 0.0
        for row, label in zip(inputs, labels, strict=True):
            p = np.exp(w @ row)
            p /= p.sum()
            loss -= np.log(p[label]) / 4
            for c in range(3):
                gradient[c] += (p[c] - (c == label)) * row / 4
        losses.append(loss)
        v = m * v + gradient
        w = w - rate * (gradient + m * v)
    assert [line["loss"] for line in result.curve] == pytest.approx(losses, rel=1e-6)
    assert losses[1] < losses[0] == pytest.approx(np.log(3))
    scores = inputs @ w.T
    expected = np.mean(scores.argmax(1) == labels)
    assert result.accuracy == expected
    assert ("2 images at a time" in result.card.optimisation) == (micro == 2)


def test_parts_are_even_and_hold_at_least_two_images():
    plan = FineTunePlan(batch_size=512, micro_batch_size=64)
    assert [plan.parts(rows) for rows in (50_000, 512, 130, 64, 20)] == [8, 8, 3, 1, 1]
    assert [plan.batch(rows) for rows in (50_000, 512, 130, 64, 20)] == [512, 512, 129, 64, 20]
    assert [FineTunePlan().batch(rows) for rows in (50_000, 130)] == [512, 130]
    with pytest.raises(ValueError, match="micro_batch_size 100 does not divide batch_size 512"):
        FineTunePlan(micro_batch_size=100)
    with pytest.raises(ValueError, match="micro_batch_size must be at least 2, got 1"):
        FineTunePlan(micro_batch_size=1)


def test_records_without_micro_batches_are_those_of_before():
    assert "micro_batch_size" not in FineTunePlan().choices
    assert FineTunePlan(micro_batch_size=64).choices["micro_batch_size"] == 64
    job = finetune.FineTune(runs=["x"], micro_batch_size=64)
    assert all(plan.micro_batch_size == 64 for plan in job.plans(0))


def test_at_rate_zero_all_images_are_of_the_first_class(digits, encoder):
    plan = FineTunePlan(learning_rate=0.0, epochs=1, batch_size=256, augmentation="none")
    result = fine_tune(encoder, None, digits.train, digits.test, plan)
    share = (digits.test.labels == 0).float().mean().item()
    assert result.accuracy == pytest.approx(share)
    assert result.curve[-1]["loss"] == pytest.approx(np.log(10))


def test_a_network_from_scratch_learns_and_nothing_outside_moves(digits, encoder):
    before, state = parameter_hash(encoder), torch.get_rng_state()
    mode = encoder.training
    plan = FineTunePlan(tune="all", epochs=3, batch_size=64, augmentation="none")
    result = fine_tune(encoder, None, digits.train, digits.test, plan)
    again = fine_tune(encoder, None, digits.train, digits.test, plan)
    assert result.accuracy > 0.85
    assert (again.accuracy, again.probe.predictions) == (
        result.accuracy,
        result.probe.predictions,
    )
    assert result.card.encoder_hash_before == result.card.encoder_hash_after == before
    assert parameter_hash(encoder) == before
    assert encoder.training == mode
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("tune", "norm", "moved", "statistics"),
    [
        ("all", "batch", {"stem", "later"}, True),
        ("all", "running", {"stem", "later"}, False),
        ("after-stem", "batch", {"later"}, True),
        ("after-stem", "running", {"later"}, False),
        ("classifier", None, set(), False),
    ],
)
def test_what_a_plan_names_is_what_moves(digits, encoder, tmp_path, tune, norm, moved, statistics):
    plan = FineTunePlan(
        tune=tune, batch_norm=norm, epochs=1, batch_size=400, augmentation="none", momentum=0.5
    )
    result = fine_tune(encoder, None, digits.train, digits.test, plan, folder=tmp_path / "cell")
    state = torch.load(tmp_path / "cell" / "checkpoints" / "last.pt", weights_only=True)
    tuned = state["modules"]["network"]
    changed = {
        name
        for name, value in encoder.state_dict().items()
        if not torch.equal(value, tuned[f"trunk.{name}"])
    }
    weights = {name for name, _ in encoder.named_parameters()}
    assert {"stem" if n.split(".")[1] in "01" else "later" for n in changed & weights} == moved
    assert bool(changed - weights) == statistics
    assert ("running statistics) throughout" in result.card.batch_norm) == (not statistics)
    assert result.card.tuned.startswith("nothing" if not moved else "everything")


def test_shares_are_fair_nested_and_keyed_by_the_seed(digits, encoder):
    counts = np.bincount(digits.train.labels)
    quick = FineTunePlan(tune="classifier", epochs=0.01, batch_size=4096, augmentation="none")
    result = fine_tune(encoder, None, digits.train, digits.test, replace(quick, label_fraction=0.1))
    assert result.probe.n_train == sum(int(0.1 * count + 0.5) for count in counts)
    assert result.card.labels == "10 % of each class, drawn by seed 0"
    with pytest.raises(ValueError, match=r"a share of 0\.001 of the 1\d\d labelled rows of class"):
        fine_tune(encoder, None, digits.train, digits.test, replace(quick, label_fraction=1e-3))


def test_unlabelled_images_and_unknown_classes():
    train = table(coloured((0, 255, 0), (255, 0, 0), (9, 9, 9)), [0, 1, -1])
    test = table(coloured((0, 255, 0), (255, 0, 0), (9, 9, 9), (1, 2, 3)), [0, 1, 2, -1])
    plan = FineTunePlan(tune="classifier", epochs=50, learning_rate=20.0, augmentation="none")
    result = fine_tune(Pixels(), None, train, test, plan)
    assert (result.probe.n_train, result.probe.n_test) == (2, 3)
    assert (result.card.n_train, result.card.n_test) == (2, 4)  # labelled, and all there are
    assert result.accuracy == pytest.approx(2 / 3)
    assert any("no training row has" in text for text in result.probe.warnings)


def test_layers_of_a_head_are_kept_and_tuned(digits, encoder):
    head = nn.Sequential(nn.Linear(128, 24, bias=False), nn.BatchNorm1d(24), nn.ReLU())
    before = parameter_hash(head)
    plan = FineTunePlan(epochs=2, batch_size=128, augmentation="none")
    result = fine_tune(encoder, head, digits.train, digits.test, plan)
    assert result.card.feature_dim == 24
    assert result.card.tuned.endswith("and the first dense layer of the projection head")
    assert parameter_hash(head) == before
    assert result.accuracy > 0.5


def test_a_cell_that_was_stopped_ends_as_if_it_had_not(digits, encoder, tmp_path, monkeypatch):
    plan = FineTunePlan(epochs=3, batch_size=240, augmentation="crop-flip")
    whole = fine_tune(encoder, None, digits.train, digits.test, plan, folder=tmp_path / "whole")

    class Stopped(Exception):
        pass

    step = SupervisedStep.__call__

    def stops(self, rows, seed):
        stops.calls += 1
        if stops.calls == 9:
            raise Stopped
        return step(self, rows, seed)

    stops.calls = 0
    monkeypatch.setattr(SupervisedStep, "__call__", stops)
    monkeypatch.setattr("relatum.recipes.finetuning.tune.MOST_STEPS", 5)
    half = tmp_path / "half"
    with pytest.raises(Stopped):
        fine_tune(encoder, None, digits.train, digits.test, plan, folder=half)
    resumed = fine_tune(encoder, None, digits.train, digits.test, plan, folder=half)
    assert resumed.probe.predictions == whole.probe.predictions
    assert stops.calls == 9 + 18 - 5  # 18 steps, continued from the checkpoint after the fifth
    with pytest.raises(RunError, match="holds another fine-tuning"):
        fine_tune(encoder, None, digits.train, digits.test, replace(plan, seed=1), folder=half)


def test_a_rate_that_is_too_high_is_told(digits, encoder):
    plan = FineTunePlan(tune="all", batch_norm="running", learning_rate=1e9, epochs=5)
    with pytest.raises(NonFiniteLoss, match="not finite at step"):
        fine_tune(encoder, None, digits.train, digits.test, plan)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("label_fraction", 0.0),
        ("label_fraction", 1.1),
        ("epochs", 0.0),
        ("batch_size", 1),
        ("learning_rate", -1.0),
        ("momentum", 1.0),
        ("tune", "most"),
        ("augmentation", "strong"),
    ],
)
def test_a_plan_says_what_is_wrong(field, value):
    with pytest.raises(ValueError, match=field):
        FineTunePlan(**{field: value})


def test_a_frozen_encoder_keeps_its_statistics():
    with pytest.raises(ValueError, match="keeps it frozen: use batch_norm 'running'"):
        FineTunePlan(tune="classifier", batch_norm="batch")


def test_the_stem_is_known_or_asked_for():
    resnet = build_encoder("resnet18", image_size=32)
    assert stem_of(resnet) == [resnet.network.conv1, resnet.network.bn1]
    named = Pixels()
    named.stem = nn.Conv2d(3, 3, 1)
    assert stem_of(named) == [named.stem]
    with pytest.raises(ValueError, match="stem of a Pixels ends is not known: tune 'all'"):
        stem_of(Pixels())


def test_frozen_parts_need_no_gradient(encoder):
    network = Classifier(encoder, [], 128, 3, frozen=True, running=True).train()
    assert [name for name, p in network.named_parameters() if p.requires_grad] == [
        "linear.weight",
        "linear.bias",
    ]
    assert not encoder.training


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    paths = [folder / f"rpc-{seed}" for seed in (0, 1)]
    for seed, path in enumerate(paths):
        settings = TrainImages(
            data="digits",
            image_size=8,
            batch_size=128,
            epochs=1,
            projection_dim=16,
            tensorboard=False,
            device="cpu",
            seed=seed,
            out=path,
        )
        train_images.main(settings, QUIET)
    return paths


def test_cells_are_kept_and_the_run_is_left_as_it_was(runs, tmp_path):
    before = [(path / "checkpoints" / "last.pt").read_bytes() for path in runs]
    quick = {"epochs": 0.5, "batch_size": 128, "augmentation": "digits", "device": "cpu"}
    job = finetune.FineTune(runs=runs, label_fraction="0.1, 1", draws=2, **quick)
    said = Console(file=io.StringIO(), width=200)
    payloads = finetune.main(job, said)
    assert [len(payload["rows"]) for payload in payloads] == [3, 3]  # two draws, one of all labels
    seeds = [[row["seed"] for row in payload["rows"]] for payload in payloads]
    assert seeds == [[0, 1, 0], [1000, 1001, 1000]]
    assert "minutes left" in said.file.getvalue()
    assert before == [(path / "checkpoints" / "last.pt").read_bytes() for path in runs]
    encoder = trained_encoder(Run.open(runs[0]))
    card = payloads[0]["rows"][0]["card"]
    assert card["encoder_hash_before"] == card["encoder_hash_after"] == parameter_hash(encoder)

    stamps = {path: path.stat().st_mtime_ns for path in runs[0].rglob("finetuning/*/metrics.jsonl")}
    assert len(stamps) == 3
    more = Console(file=io.StringIO(), width=200)
    again = finetune.main(replace(job, label_fraction="0.1,0.5,1"), more)
    assert "6 of 10 cells are finished and were kept" in more.file.getvalue()
    assert again[0]["rows"][:3] == payloads[0]["rows"]
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())

    scratch = finetune.main(replace(job, from_scratch=True), QUIET)
    assert [row["features"] for row in scratch[0]["rows"][-3:]] == ["untrained"] * 3
    page = report.main(report.Report(runs=runs, out=tmp_path / "page.html"), QUIET)
    text = page.read_text(encoding="utf-8")
    for words in ["Fine-tuning", "From scratch", "Fine-tuned, 10 % of the labels"]:
        assert words in text
    assert "RPC minus from scratch" in text


def test_rows_of_an_encoder_that_is_gone_are_dropped(runs):
    run = Run.open(runs[1])
    job = finetune.FineTune(
        runs=[runs[1]], label_fraction="0.2", epochs=0.1, device="cpu", tune="classifier"
    )
    (payload,) = finetune.main(job, QUIET)
    stale = {**payload["rows"][-1], "cell": {**payload["rows"][-1]["cell"], "encoder": "old"}}
    run.write_result("finetune", "finetune", {"rows": [stale]})
    (payload,) = finetune.main(job, QUIET)
    assert [row["cell"]["encoder"] != "old" for row in payload["rows"]] == [True]


def test_mistakes_on_the_command_line(runs):
    with pytest.raises(ValueError, match=r"number in \(0, 1\], got '10%'; 1 % is 0\.01"):
        finetune.FineTune(runs=runs, label_fraction="0.1,10%")
    with pytest.raises(ValueError, match="from_scratch trains everything"):
        finetune.FineTune(runs=runs, from_scratch=True, head_layers=1)
    with pytest.raises(RunError, match="given twice"):
        finetune.main(finetune.FineTune(runs=[runs[0], runs[0]]), QUIET)
    with pytest.raises(ValueError, match="the least that gives every class a row"):
        finetune.main(finetune.FineTune(runs=runs, label_fraction="0.001"), QUIET)


def test_the_first_layers_of_the_trained_head_are_tuned_too(runs):
    run = Run.open(runs[0])
    stored = load_checkpoint(run.checkpoint)["modules"]["head"]
    first = finetune.head_layers(run, 1)
    assert torch.equal(first[0].weight, stored["layers.0.weight"])
    assert len(first) == 3  # dense, normalisation, ReLU
    assert finetune.head_layers(run, 0) is None
    with pytest.raises(ValueError, match="head_layers must be from 0 to 3, .* dense layers; got 9"):
        finetune.head_layers(run, 9)
    (payload,) = finetune.main(
        finetune.FineTune(runs=[runs[0]], head_layers=1, label_fraction="1", epochs=0.1), QUIET
    )
    assert payload["rows"][-1]["cell"]["head_layers"] == 1


def test_the_defaults_are_the_published_protocol():
    plan = finetune.FineTune(runs=["x"], label_fraction="1").plans(3)[0]
    assert plan.choices == {
        "tune": "after-stem",
        "label_fraction": 1.0,
        "epochs": 100.0,
        "batch_size": 512,
        "learning_rate": 0.1,
        "momentum": 0.9,
        "augmentation": "crop-flip",
        "batch_norm": None,
        "autocast": "none",
        "seed": 3000,
    }
    assert plan.steps(50_000) == 9766  # 50 000 x 100 / 512
