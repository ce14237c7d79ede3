"""Train, probe, embed, report: each stage reads what the one before wrote."""

import base64
import io
import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow.parquet
import pytest
import torch
from PIL import Image
from rich.console import Console

from relatum.data import DataError
from relatum.probes import parameter_hash
from relatum.recipes import embed, probe, report, train_images
from relatum.recipes.images import TrainImages, read_settings, trained_encoder, untrained_encoder
from relatum.recipes.pictures import embedding_map, neighbours
from relatum.recipes.tables import probe_table
from relatum.runs import Run, RunError

SETTINGS = {
    "data": "digits",
    "image_size": 8,
    "batch_size": 64,
    "projection_dim": 16,
    "projection_layers": 2,
    "epochs": 2,
    "tensorboard": False,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    paths = []
    for objective in ("rpc", "cpc"):
        for seed in (0, 1):
            path = folder / f"{objective}-{seed}"
            settings = TrainImages(**SETTINGS, objective=objective, seed=seed, out=path)
            train_images.main(settings, Console(file=io.StringIO()))
            paths.append(path)
    return paths


@pytest.fixture(scope="module")
def probed(runs):
    said = io.StringIO()
    settings = probe.Probe(runs=runs, draws=2, map="pca")
    payloads = probe.main(settings, Console(file=said, width=120))
    return payloads, said.getvalue()


def rows_of(payload, features, kind):
    return [r for r in payload["rows"] if (r["features"], r["probe"]) == (features, kind)]


def test_rows_cards_and_baselines(runs, probed):
    payloads, _ = probed
    for path, payload in zip(runs, payloads, strict=True):
        assert Run.open(path).read_json("results/probe.json")["kind"] == "probe"
        for features in ("encoder", "untrained", "pixels"):
            linear = rows_of(payload, features, "linear")
            assert [row["labels_per_class"] for row in linear] == [10, 10, None]
            assert all(0 <= row["accuracy"] <= 1 for row in linear)
            assert rows_of(payload, features, "knn")
            assert rows_of(payload, features, "class-means")
        card = payload["card"]
        assert card["encoder_hash_before"] == card["encoder_hash_after"]
        assert card["encoder_hash_before"] == parameter_hash(trained_encoder(Run.open(path)))
        assert payload["cards"]["untrained"]["encoder_hash_before"] != card["encoder_hash_before"]
        assert (card["n_train"], card["n_test"]) == (1438, 359)
    # Few labels are drawn by run seed: both objectives of a seed see the same draws.
    seeds = [[row["seed"] for row in rows_of(p, "encoder", "linear")[:2]] for p in payloads]
    assert seeds == [[0, 1], [1000, 1001]] * 2
    # Baselines of one seed are the same numbers, of another seed another network.
    untrained = [rows_of(p, "untrained", "linear") for p in payloads]
    assert untrained[0] == untrained[2]
    assert untrained[0] != untrained[1]


@pytest.mark.parametrize(
    "changes", [{"normalization": "group"}, {"objective": "wpc", "spectral_norm": True}]
)
def test_baselines_are_those_of_the_run_in_any_company(runs, tmp_path, changes):
    """Two networks with the same weights are two networks if they normalise differently."""
    # A copy, for others read what a probe of the run itself has written.
    path, copy = tmp_path / "other", tmp_path / "copy"
    shutil.copytree(runs[0], copy)
    settings = TrainImages(**SETTINGS, **changes, out=path)
    train_images.main(settings, Console(file=io.StringIO()))
    quick = {"labels_per_class": 0, "map": "pca", "queries": 0}
    quiet = Console(file=io.StringIO())
    (alone,) = probe.main(probe.Probe(runs=[path], **quick), quiet)
    _, together = probe.main(probe.Probe(runs=[copy, path], **quick), quiet)
    assert together["rows"] == alone["rows"]
    assert (alone["card"]["batch_norm"] == "none") == ("normalization" in changes)


def test_shares_of_the_labels_and_the_published_schedule_stand_beside(runs, tmp_path):
    shutil.copytree(runs[0], tmp_path / "run")
    said = Console(file=io.StringIO(), width=200)
    settings = probe.Probe(
        runs=[tmp_path / "run"],
        labels_per_class=0,
        label_fractions="0.05,0.1",
        draws=1,
        protocol="both",
        map="pca",
        queries=0,
    )
    (payload,) = probe.main(settings, said)
    for head in ("linear", "linear-sgd"):
        rows = rows_of(payload, "encoder", head)
        assert [row["label_fraction"] for row in rows] == [0.05, 0.1, None]
    assert payload["card"]["labels"] == "5 % of each class; 10 % of each class; all"
    assert (
        "rate 0.1 x batch / 256, cosine, no penalty, 100 epochs"
        in (payload["card"]["optimisation"])
    )
    for words in ["linear, 10 %", "linear-sgd, 5 %", "linear-sgd, all"]:
        assert words in said.file.getvalue()
    with pytest.raises(ValueError, match="the least that gives every class a row"):
        probe.main(replace(settings, label_fractions="0.0001"), QUIET)
    jobs = replace(settings, draws=2, labels_per_class=3).jobs(4)
    seeds = [(job.probe, job.share, job.per_class, job.seed) for job in jobs if job.share == 0.05]
    assert seeds == [(h, 0.05, None, 4000 + i) for h in ("linear", "linear-sgd") for i in (0, 1)]


def test_the_published_schedule_stands_alone(runs, tmp_path, monkeypatch):
    """No logistic regression is fitted, on few labels or all: it is too slow for a million rows."""
    shutil.copytree(runs[0], tmp_path / "run")
    monkeypatch.setattr("relatum.recipes.probe_rows.linear_probe", None)
    settings = probe.Probe(
        runs=[tmp_path / "run"], labels_per_class=3, draws=1, protocol="sgd", map="pca", queries=0
    )
    (payload,) = probe.main(settings, QUIET)
    assert rows_of(payload, "encoder", "linear") == []
    assert [r["labels_per_class"] for r in rows_of(payload, "encoder", "linear-sgd")] == [3, None]
    card = payload["card"]
    assert card["regularisation_grid"] == ()
    assert card["regularisation_choice"] == "no penalty; nothing is selected, the last step counts"
    assert card["standardisation"] == "none"
    assert card["optimisation"].startswith("linear by SGD: Nesterov momentum 0.9")
    assert "the whole centre square" in card["preprocessing"]


def test_the_table_has_all_groups(probed):
    _, text = probed
    for word in ["RPC", "CPC", "Untrained encoder", "Raw pixels", "linear, 10 a class", "kNN"]:
        assert word in text


def test_the_untrained_encoder_is_the_one_training_began_with(runs):
    path = runs[0]
    settings = TrainImages(**{**SETTINGS, "learning_rate": 0.0, "out": path.with_name("zero")})
    run = train_images.main(settings, Console(file=io.StringIO()))
    start, end = untrained_encoder(read_settings(run)), trained_encoder(run)
    for before, after in zip(start.parameters(), end.parameters(), strict=True):
        assert torch.equal(before, after)


def test_map_and_neighbours(runs, probed):
    run = Run.open(runs[0])
    layout = run.read_json("results/map.json")
    assert layout["kind"] == "embedding-map"
    payload = layout["payload"]
    assert len(payload["xy"]) == len(payload["labels"]) == 359
    assert "PCA" in payload["method"]
    shown = run.read_json("results/neighbours.json")["payload"]["rows"]
    assert len(shown) == 6
    assert len({row["query_label"] for row in shown}) == 6
    for row in shown:
        similarities = [found["similarity"] for found in row["neighbours"]]
        assert len(similarities) == 6
        assert similarities == sorted(similarities, reverse=True)
        assert all(found["png"] != row["query"] for found in row["neighbours"][1:])
        assert Image.open(io.BytesIO(base64.b64decode(row["query"]))).size == (8, 8)


def test_neighbours_by_hand(runs):
    images = train_images.load_images(TrainImages(**SETTINGS)).test.select(torch.arange(4))
    features = np.array([[1.0, 0.0], [2.0, 0.1], [0.0, 1.0], [0.0, 0.0]])
    found = neighbours(features, images, 4)["rows"]
    by_label = {row["query"]: row["neighbours"] for row in found}
    assert len(by_label) == 4
    similarities = sorted(row["neighbours"][0]["similarity"] for row in found)
    cosine = 2 / np.sqrt(4.01)
    assert similarities == pytest.approx([0.0, 0.1 / np.sqrt(4.01), cosine, cosine], abs=1e-6)


def test_a_collapsed_representation_still_has_a_map():
    images = train_images.load_images(TrainImages(**SETTINGS)).test.select(torch.arange(12))
    for method in ("pca", "tsne"):
        layout = embedding_map(np.ones((12, 3)), images, method, 500)
        assert np.isfinite(np.array(layout["xy"])).all()


def test_embed_writes_the_same_rows_twice(runs, tmp_path):
    files = embed.main(embed.Embed(run=runs[0], out=tmp_path / "a b"), Console(file=io.StringIO()))
    assert [file.name for file in files] == ["a b.npz", "a b.parquet"]
    with np.load(files[0]) as data:
        arrays = dict(data)
    table = pyarrow.parquet.read_table(files[1]).to_pydict()
    assert arrays["features"].shape == (1797, 128)
    assert arrays["features"].dtype == np.float32
    assert table["id"] == arrays["ids"].tolist()
    assert len(set(table["id"])) == 1797
    np.testing.assert_array_equal(np.array(table["features"], np.float32), arrays["features"])
    splits = train_images.load_images(TrainImages(**SETTINGS))
    number = len(splits.train) + 5
    assert arrays["ids"][number] == splits.test.ids[5]
    assert arrays["labels"][number] == splits.test.labels[5]
    encoder = trained_encoder(Run.open(runs[0]))
    with torch.no_grad():
        alone = encoder(splits.test.pixels[5:6].float() / 255)
    # A batch of one runs other convolution kernels: equal up to a few float32 roundings (4e-7 near
    # 3) of the terms of each sum. Batch normalisation in training mode would differ in the first
    # digit.
    np.testing.assert_allclose(arrays["features"][number], alone[0].numpy(), rtol=2e-6, atol=1e-5)


@pytest.mark.parametrize("name", ["x", "x.npz", "x.parquet"])
def test_embed_adds_endings_once(runs, tmp_path, name):
    embed.main(embed.Embed(run=runs[1], part="test", out=tmp_path / name), QUIET)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npz", "x.parquet"]


def test_a_folder_is_no_file(runs, tmp_path):
    with pytest.raises(ValueError, match=r"is a folder; name the files in it, such as .*features"):
        embed.main(embed.Embed(run=runs[1], out=tmp_path), QUIET)
    with pytest.raises(ValueError, match=r"is a folder; name the page in it, such as .*html"):
        report.main(report.Report(runs=runs, out=tmp_path), QUIET)
    assert not list(tmp_path.iterdir())


def test_embed_in_small_batches_is_the_same(tmp_path):
    write_images(tmp_path / "data", a=12, b=9)
    run = train_on(tmp_path / "data", tmp_path / "run")
    said = Console(file=io.StringIO(), width=200)
    found = []
    for name, more in [("one", {}), ("other", {"batch_size": 5, "workers": 0})]:
        files = embed.main(embed.Embed(run=run, out=tmp_path / name, **more), said)
        with np.load(files[0]) as data:
            found.append((data["features"], data["ids"].tolist()))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-4, atol=1e-5)
    assert found[0][1] == found[1][1]
    assert "images a second read" in said.file.getvalue()


def test_embed_one_part_into_the_run(runs):
    quiet = Console(file=io.StringIO())
    files = embed.main(embed.Embed(run=runs[1], part="test"), quiet)
    assert files[0] == runs[1] / "embeddings" / "test.npz"
    with np.load(files[0]) as data:
        assert len(data["ids"]) == 359


def test_report_names_its_page(runs, probed, tmp_path):
    page = report.main(
        report.Report(runs=runs, out=tmp_path / "page.html"), Console(file=io.StringIO())
    )
    assert page.read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html")


def test_probe_of_something_else(tmp_path, runs):
    quiet = Console(file=io.StringIO())
    with pytest.raises(RunError, match="there is no run directory"):
        probe.main(probe.Probe(runs=[tmp_path / "none"]), quiet)
    half = Run.create(tmp_path / "half", "data: digits\n")
    with pytest.raises(RunError, match="leaves settings open"):
        probe.main(probe.Probe(runs=[half.path]), quiet)
    empty = Run.create(tmp_path / "empty", "data: digits\ncritic: dot\n")
    with pytest.raises(RunError, match="there is no checkpoint"):
        probe.main(probe.Probe(runs=[empty.path]), quiet)
    strange = Run.create(tmp_path / "strange", "bach_size: 3\n")
    with pytest.raises(ValueError, match="unknown key 'bach_size'; did you mean 'batch_size'"):
        probe.main(probe.Probe(runs=[strange.path]), quiet)


def test_results_are_strict_json(runs, probed):
    def refuse(name):
        raise AssertionError(name)

    files = [file for path in runs for file in path.rglob("*.json")]
    assert len(files) >= 6 * len(runs)
    for file in files:
        assert json.loads(file.read_text(encoding="utf-8"), parse_constant=refuse)


def test_an_unfinished_run_is_called_so(runs, probed, tmp_path):

    assert "not finished" not in probed[1]
    shutil.copytree(runs[0], tmp_path / "run")
    (tmp_path / "run" / "results" / "training.json").unlink()
    said = io.StringIO()
    settings = probe.Probe(runs=[tmp_path / "run"], draws=1, map="pca", queries=0)
    probe.main(settings, Console(file=said, width=300))
    assert "has not finished training; its last checkpoint is measured" in said.getvalue()


QUICK = {"labels_per_class": 2, "draws": 1, "neighbours": 3, "map": "pca", "queries": 0}
QUIET = Console(file=io.StringIO())


def write_images(folder, **counts):
    for label, count in counts.items():
        (folder / label).mkdir(parents=True)
        for i in range(count):
            pixels = np.random.default_rng(i).integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{i}.png")


def train_on(data, out, **more):
    settings = {**SETTINGS, "data": str(data), "batch_size": 4, "steps": 1, "out": out, **more}
    train_images.main(TrainImages(**settings), QUIET)
    return out


def test_a_run_that_diverged_is_called_so(tmp_path):
    settings = {**SETTINGS, "learning_rate": 1e30, "warmup_epochs": 0, "optimizer": "sgd"}
    run = tmp_path / "run"
    train_images.main(TrainImages(**settings, on_nonfinite="record", out=run), QUIET)
    step = Run.open(run).read_json("results/training.json")["payload"]["nonfinite_step"]
    assert step is not None
    said = Console(file=io.StringIO(), width=300)
    probe.main(probe.Probe(runs=[run], draws=1, map="pca", queries=0), said)
    assert f"run diverged at step {step}; its last checkpoint is measured" in said.file.getvalue()
    page = report.main(report.Report(runs=[run], out=tmp_path / "page.html"), QUIET)
    text = page.read_text(encoding="utf-8")
    assert f"RPC diverged at step {step} (run run)." in text
    assert "nothing is known about the accuracy of a trained encoder" in text


def test_classes_are_known_by_their_names(tmp_path):
    write_images(tmp_path / "data", cat=12, dog=12, empty_in_test=2)
    run = train_on(tmp_path / "data", tmp_path / "run")
    with pytest.raises(ValueError, match=r"class 'empty_in_test' has 1 .* --labels-per-class 2;"):
        probe.main(probe.Probe(runs=[run], **QUICK), QUIET)
    with pytest.raises(ValueError, match=r"there are 21 labelled .* --neighbours 22;"):
        probe.main(
            probe.Probe(runs=[run], **{**QUICK, "labels_per_class": 0, "neighbours": 22}), QUIET
        )
    (payload,) = probe.main(probe.Probe(runs=[run], **{**QUICK, "labels_per_class": 1}), QUIET)
    for row in payload["rows"]:
        assert row["classes"] == ("cat", "dog", "empty_in_test")
        assert set(row["class_accuracy"]) <= {"cat", "dog", "empty_in_test"}
        assert {"cat", "dog"} <= set(row["class_accuracy"])


def test_unlabelled_rows_are_left_out_and_counted(tmp_path):
    labels = np.array([0, 1, -1] * 8)
    pixels = np.random.default_rng(0).integers(0, 256, (24, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", x=pixels, y=labels)
    run = train_on(tmp_path / "a.npz", tmp_path / "run")
    (payload,) = probe.main(probe.Probe(runs=[run], **QUICK), QUIET)
    for row in payload["rows"]:
        # Unlabelled images all go to training; a fifth of 8 is 2 test images of each class.
        assert row["warnings"][0] == "8 train rows are unlabelled (-1) and were left out"
        assert row["n_test"] == 4
    assert {card["n_train"] for card in payload["cards"].values()} == {12}  # the labelled ones


def test_images_that_have_changed_are_refused(tmp_path):
    """A file deleted since training would move training images into a newly drawn test split."""
    write_images(tmp_path / "data", a=12, b=12)
    (tmp_path / "data" / "a" / "bad.png").write_bytes(b"")
    out = train_on(tmp_path / "data", tmp_path / "run", on_bad_file="skip")
    skipped = json.loads((out / "data.json").read_text())["skipped"]
    assert [entry["id"] for entry in skipped] == ["a/bad.png"]
    measure = probe.Probe(runs=[out], **QUICK)
    probe.main(measure, Console(file=io.StringIO()))
    embed.main(embed.Embed(run=out), Console(file=io.StringIO()))  # skips what the run skipped
    (tmp_path / "data" / "b" / "3.png").unlink()
    for job, settings in [(probe, measure), (embed, embed.Embed(run=out))]:
        with pytest.raises(RunError, match="was started on other images"):
            job.main(settings, QUIET)
    embed.main(embed.Embed(run=out, data=str(tmp_path / "data")), QUIET)  # these, whatever they are


def test_images_that_have_moved(tmp_path, monkeypatch):
    write_images(tmp_path / "here" / "data", a=12, b=12)
    monkeypatch.chdir(tmp_path / "here")
    run = train_on("data", tmp_path / "run")
    there = probe.main(probe.Probe(runs=[run], **QUICK), QUIET)
    monkeypatch.chdir(tmp_path)
    for job, settings in [
        (probe, probe.Probe(runs=[run], **QUICK)),
        (embed, embed.Embed(run=run)),
    ]:
        with pytest.raises(DataError, match="'data', are not there .* with --data"):
            job.main(settings, QUIET)
    moved = probe.Probe(runs=[run], data="here/data", **QUICK)
    here = probe.main(moved, QUIET)
    assert [row["accuracy"] for row in here[0]["rows"]] == [
        row["accuracy"] for row in there[0]["rows"]
    ]
    write_images(tmp_path / "other", a=12, c=12)
    with pytest.raises(RunError, match=r"--data other does not hold the images .*classes"):
        probe.main(probe.Probe(runs=[run], data="other", **QUICK), QUIET)
    (run / "data.json").unlink()
    with pytest.raises(RunError, match=r"has no data\.json, so whether --data here/data"):
        probe.main(moved, QUIET)


def test_a_checkpoint_of_another_run_is_named(runs, tmp_path):
    shutil.copytree(runs[0], tmp_path / "run")
    config = tmp_path / "run" / "config.yaml"
    config.write_text(config.read_text().replace("encoder: conv-small", "encoder: resnet18"))
    message = r"last\.pt does not fit .*config\.yaml: one of the two was changed or comes from"
    for job, settings in [
        (probe, probe.Probe(runs=[tmp_path / "run"])),
        (embed, embed.Embed(run=tmp_path / "run")),
    ]:
        with pytest.raises(RunError, match=message):
            job.main(settings, QUIET)
    other = TrainImages(**{**SETTINGS, "projection_dim": 8}, out=tmp_path / "other")
    train_images.main(other, QUIET)
    shutil.copy(runs[0] / "checkpoints" / "last.pt", tmp_path / "other" / "checkpoints")
    (tmp_path / "other" / "results" / "training.json").unlink()
    with pytest.raises(RunError, match=r"the checkpoint does not fit this run's settings"):
        train_images.main(replace(other, resume=True), QUIET)


@pytest.mark.parametrize("name", ["foo", "cuda:", "gpu", "mps"])
def test_an_unknown_device_is_refused_as_in_training(runs, name):
    for job, settings in [
        (probe, probe.Probe(runs=runs[:1], device=name)),
        (embed, embed.Embed(run=runs[0], device=name)),
    ]:
        with pytest.raises(ValueError, match="device must be auto, cpu, cuda or cuda:N, got"):
            job.main(settings, QUIET)


def test_device_auto_is_one_that_is_there(runs):
    assert embed.main(embed.Embed(run=runs[0], part="test", device="auto"), QUIET)


def test_embed_leaves_out_bad_files_of_other_data(tmp_path):
    write_images(tmp_path / "data", a=12, b=12)
    run = train_on(tmp_path / "data", tmp_path / "run")
    (tmp_path / "data" / "a" / "bad.png").write_bytes(b"")
    settings = {"run": run, "data": str(tmp_path / "data")}
    with pytest.raises(DataError, match="bad.png"):
        embed.main(embed.Embed(**settings), QUIET)
    files = embed.main(embed.Embed(**settings, on_bad_file="skip"), QUIET)
    with np.load(files[0]) as data:
        assert len(data["ids"]) == 24


def test_all_runs_are_looked_at_before_the_first_is_probed(runs, tmp_path):
    shutil.copytree(runs[0], tmp_path / "a", ignore=shutil.ignore_patterns("results"))
    shutil.copytree(tmp_path / "a", tmp_path / "b", ignore=shutil.ignore_patterns("checkpoints"))
    for last, message in [
        ("b", "b cannot be probed: there is no checkpoint"),
        ("b/../a", "is given twice"),
    ]:
        settings = probe.Probe(runs=[tmp_path / "a", tmp_path / last], map="pca", queries=0)
        with pytest.raises(RunError, match=message):
            probe.main(settings, QUIET)
        assert not (tmp_path / "a" / "results").exists()


def test_names_come_through_as_they_are(tmp_path):
    """Brackets are markup to the terminal's library, :cat: is an emoji, and long lines wrap."""
    folder = tmp_path / "[red]a[/red] :cat:" / ("long " * 30) / "b[1]"
    said = Console(file=io.StringIO(), width=40)
    settings = TrainImages(**{**SETTINGS, "steps": 24, "log_every": 1}, out=folder)
    train_images.main(settings, said)
    assert "b[1] step" in said.file.getvalue()
    bars = Console(file=io.StringIO(), width=200, force_terminal=True)
    train_images.main(replace(settings, out=folder.with_name("c[d]")), bars)
    assert "c[d]" in bars.file.getvalue()
    embed.main(embed.Embed(run=folder, part="test"), said)
    (folder / "results" / "training.json").unlink()
    measure = probe.Probe(runs=[folder], draws=1, map="pca", queries=0)
    probe.main(measure, said)
    report.main(report.Report(runs=[folder], out=folder / "r.html"), said)
    lines = said.file.getvalue().splitlines()
    assert f"359 images, 128 features: {folder}/embeddings/test.npz" in lines
    assert f"note: {folder} has not finished training; its last checkpoint is measured" in lines
    assert f"probed {folder}" in lines
    assert f"report: {folder}/r.html" in lines


def test_a_setting_with_brackets_in_the_table(runs, probed, tmp_path):
    for name in ("x[1]", "x[2]"):
        shutil.copytree(runs[0], tmp_path / name)
        config = tmp_path / name / "config.yaml"
        config.write_text(config.read_text() + f"projection: '[{name}]'\n")
    said = Console(file=io.StringIO(), width=300)
    said.print(probe_table([tmp_path / "x[1]", tmp_path / "x[2]"]))
    assert "RPC, projection [x[1]]" in said.file.getvalue()
