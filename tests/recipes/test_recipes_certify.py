"""``relatum certify``: from files and runs to the certificate, its page and the report."""

import io
import json
import re
from itertools import pairwise

import numpy as np
import pytest
from rich.console import Console
from sklearn.datasets import load_digits

from relatum import certify as call
from relatum import cli
from relatum.probes import extract_features
from relatum.recipes import certify, train_images
from relatum.recipes.certify import Certify
from relatum.recipes.images import TrainImages
from relatum.recipes.images.build import load_images, trained_encoder
from relatum.report import render

TINY = {
    "image_size": 8, "limit": 200, "batch_size": 50, "projection_dim": 8,
    "projection_layers": 2, "steps": 3, "tensorboard": False, "device": "cpu",
}  # fmt: skip


def clusters(n=150, classes=3, width=5, seed=0):
    generator = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    centres = np.random.default_rng(9).normal(size=(classes, width))
    draw = lambda: centres[labels] + 0.4 * generator.normal(size=(n, width))  # noqa: E731
    return draw(), labels, draw()


def run(subject, **changes):
    text = io.StringIO()
    settings = Certify(subject=subject, **{"k": "1,3", "block": "1,2", **changes})
    return certify.main(settings, Console(file=text, width=100)), text.getvalue()


@pytest.fixture
def rows(tmp_path):
    features, labels, pairs = clusters()
    path = tmp_path / "rows.npz"
    np.savez(path, features=features, labels=labels, pairs=pairs, other=np.zeros(3))
    return path


@pytest.fixture(scope="module")
def some():
    """A certificate of the rows below, made once."""
    features, labels, pairs = clusters()
    return call(features, labels, pairs, k=(1, 3), block=(1, 2))


@pytest.fixture
def asked(monkeypatch, some):
    """What certify was called with, instead of calling it."""
    calls = []

    def recorded(embeddings, labels, pairs, negatives, **options):
        calls.append((embeddings, labels, pairs, options))
        return some

    monkeypatch.setattr(certify, "certify", recorded)
    return calls


def test_a_file_is_used_as_given(rows, some):
    found, text = run(rows)
    assert found.to_dict() == some.to_dict()
    assert found.certified is None
    assert str(some) in text


def test_unit_rows_over_the_root_of_the_temperature_have_a_known_radius(rows, asked):
    features, labels, pairs = clusters()
    run(rows, normalize=True, temperature=0.25, loss="logistic", delta=0.1)
    x, y = (2 * z / np.linalg.norm(z, axis=1, keepdims=True) for z in (features, pairs))
    np.testing.assert_allclose(asked[0][0], x, rtol=1e-12)
    np.testing.assert_array_equal(asked[0][1], labels)
    np.testing.assert_allclose(asked[0][2], y, rtol=1e-12)
    options = {"radius": 2.0, "loss": "logistic", "delta": 0.1, "k": (1, 3), "block": (1, 2)}
    assert options.items() <= asked[0][3].items()
    run(rows, temperature=4.0, radius=50.0)
    np.testing.assert_allclose(asked[1][0], features / 2, rtol=1e-12)
    assert asked[1][3]["radius"] == 25.0


def test_pairs_serve_without_labels(rows):
    found, text = run(rows, labels=False, normalize=True, tau_lower=0.2)
    assert found.settings["tau_lower"] == 0.2
    assert "views" in text
    with np.load(rows) as loaded:
        np.savez(rows, features=loaded["features"])
    with pytest.raises(ValueError, match="has no `labels`; with `pairs`"):
        run(rows)
    with pytest.raises(ValueError, match="has no `pairs`, of which row i is a class mate"):
        run(rows, labels=False)


def test_only_fresh_rows_unless_told_otherwise_and_classes_by_name(tmp_path, asked):
    features, labels, _ = clusters(300)
    split = np.where(np.arange(300) < 150, "train", "test")
    labels = np.where(np.arange(300) % 50 == 7, -1, labels)
    path = tmp_path / "rows.npz"
    np.savez(path, features=features, labels=labels, split=split, classes=["ant", "bee", "cat"])
    run(path)
    fresh = (split == "test") & (labels >= 0)
    np.testing.assert_allclose(asked[0][0], features[fresh])
    assert asked[0][1].tolist() == np.array(["ant", "bee", "cat"])[labels[fresh]].tolist()
    run(path, part="all")
    assert len(asked[1][0]) == (labels >= 0).sum()
    np.savez(path, features=features, labels=np.abs(labels), split=np.repeat("train", 300))
    with pytest.raises(ValueError, match="no rows whose `split` is 'test'"):
        run(path)


def test_rows_with_one_id_are_one_group(tmp_path, asked):
    features, labels, _ = clusters(300)
    path, ids = tmp_path / "rows.npz", (np.arange(300) // 6).astype(str)
    np.savez(path, features=features, labels=labels, ids=ids)
    _, text = run(path)
    assert "rows with one id count as one group" in text
    assert asked[0][3]["groups"].tolist() == ids.tolist()
    np.savez(path, features=features, labels=labels, ids=ids, groups=labels)
    run(path)
    assert asked[1][3]["groups"].tolist() == labels.tolist()


def test_a_run_its_page_and_the_report(tmp_path, monkeypatch):
    digits = load_digits()
    three = digits.target < 3
    images = {"x": (16 * digits.images[three]).clip(max=255).astype("uint8")}
    np.savez(tmp_path / "digits.npz", **images, y=digits.target[three])
    data = str(tmp_path / "digits.npz")
    settings = TrainImages(**TINY, data=data, out=tmp_path / "run")
    made = train_images.main(settings, Console(file=io.StringIO()))
    page, record = tmp_path / "page.html", tmp_path / "record.json"
    asked = []

    def certified(embeddings, labels, *others, **options):
        asked.append((embeddings, labels, options["radius"]))
        return found if len(asked) > 1 else call(embeddings, labels, *others, **options)

    monkeypatch.setattr(certify, "certify", certified)
    found, text = run(made.path, html=page, json=record)
    images = load_images(settings).test
    features = extract_features(trained_encoder(made), images.pixels).astype(np.float64)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True) * np.sqrt(2)
    np.testing.assert_allclose(asked[0][0], unit, rtol=1e-12)
    assert asked[0][1].tolist() == [images.classes[label] for label in images.labels.tolist()]
    assert asked[0][2] == pytest.approx(np.sqrt(2))
    assert f"{len(images)} test images" in text
    written = json.loads(record.read_text())
    assert written["certificate"]["lines"][0]["key"] == "pairwise_error"
    assert (written["normalize"], written["temperature"]) == (True, 0.5)
    # Each bar of the waterfall begins where the last one ended; the last one ends at the bound.
    steps = written["waterfall"]
    assert all(a["end"] == b["start"] for a, b in pairwise(steps))
    assert steps[-1]["end"] == found.certified
    whole = page.read_text()
    assert "<script" not in whole
    assert not re.search(r"(src|href)=\"(?!#)", whole)
    assert "From the error to the bound" in whole
    report = render([made.path], tmp_path / "report.html").read_text()
    assert "What is certain" in report
    ids = re.findall(r'\bid="([^"]+)"', report)
    assert len(ids) == len(set(ids))
    for text in found.does_not_say:
        assert text[:40] in report
    run(made.path, part="train")
    assert len(asked[1][0]) == 200
    kept = json.loads((made.path / "results/certificate.json").read_text())["payload"]
    assert kept["part"] == "test"  # rows that were trained on are not for the report


def test_names_are_escaped(tmp_path):
    features, labels, _ = clusters()
    evil = np.array(["<script>x</script>", 'b"', "c&"])
    np.savez(tmp_path / "rows.npz", features=features, labels=evil[labels])
    page = tmp_path / "page.html"
    run(tmp_path / "rows.npz", html=page)
    assert "<script" not in page.read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--k", "1,x"], "k must be whole numbers such as 1,10, got '1,x'"),
        (["--block", "0"], "block must be whole numbers"),
        (["--temperature", "0"], "temperature must be a positive number, got 0.0"),
        (["--tau-lower", "0.1"], "tau_lower belongs to --no-labels"),
        (["--loss", "hing"], "did you mean 'hinge'"),
        (["--radius", "0.01"], "radius"),
        (["--part", "train"], "has no `split`, so nobody knows which rows are for training"),
        (["--part", "test", "--json", "."], "is a folder; name a file in it"),
    ],
)
def test_mistakes_are_one_line(rows, capsys, options, message):
    assert cli.main(["certify", str(rows), *options]) in (1, 2)
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels": [0]}, "has no array `features`"),
        ({"features": [1.0, 2.0]}, "must be a matrix"),
        ({"features": [[1.0], [np.nan]]}, "`features` of .* must be finite; row 1 is not"),
        ({"features": [[1.0]], "labels": [1, 2]}, "`labels` of .* one value for each of 1 rows"),
        ({"features": [[1.0]], "pairs": [[1.0, 2.0]]}, "`pairs` of .* must be .1, 1."),
        ({"features": [[1.0]], "negatives": [[1.0, 2.0]]}, "as wide as the features, 1"),
        ({"features": [[1.0]], "labels": [4], "classes": ["a"]}, "go up to 4; `classes` names 1"),
    ],
)
def test_files_that_are_not_what_they_should_be(tmp_path, arrays, message):
    path = tmp_path / "rows.npz"
    np.savez(path, **{key: np.array(value) for key, value in arrays.items()})
    with pytest.raises(ValueError, match=message):
        run(path)


def test_files_that_are_no_npz(tmp_path):
    (tmp_path / "rows.npz").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="no npz file of plain arrays"):
        run(tmp_path / "rows.npz")
    with pytest.raises(ValueError, match="does not exist"):
        run(tmp_path / "none.npz")
