"""The report's section on one utterance: what is drawn is what was stored, and it can be heard."""

import base64
import io
import json
import re

import numpy as np
import pytest
from PIL import Image

from relatum.report import render
from relatum.report.speech import utterance_view
from relatum.runs import Run, RunError

from .fake_runs import make_run, probe_rows

EVIL = "<i>&\"'$x^2$"
FLAC = base64.b64encode(b"fLaC" + bytes(100)).decode()
TRUTH = ["SIL"] * 5 + ["S"] * 7 + [None] * 3 + ["AA"] * 5


def packed(values):
    return {
        "shape": list(values.shape),
        "base64": base64.b64encode((255 * values).round().astype(np.uint8).tobytes()).decode(),
    }


def payload(**changes):
    """Twenty frames: the probe is right in all but the first two; it never thinks of N."""
    generator = np.random.default_rng(0)
    classes = ["SIL", "S", "AA", "N"]
    posteriors = np.zeros((20, 4))
    for t, name in enumerate(TRUTH):
        if name is not None:
            posteriors[t, classes.index(name) if t > 1 else 1] = 1.0
    found = {
        "id": "19-198-0000", "speaker": "19", "held_out": True, "seconds": 0.2,
        "whole_seconds": 3.0, "sound": FLAC, "hertz": np.linspace(100, 7000, 6).tolist(),
        "spectrogram": packed(generator.random((20, 6))),
        "features": packed(generator.random((20, 8))),
        "posteriors": packed(posteriors), "classes": classes, "phones": TRUTH,
    }  # fmt: skip
    return {**found, **changes}


def without_labels():
    return {k: v for k, v in payload().items() if k not in ("posteriors", "classes", "phones")}


def pictures(svg):
    """The raster pictures of a drawing, as arrays, the highest row first."""
    found = []
    for tag in re.findall(r"<image[^>]*>", svg):
        text = re.sub(r"\s", "", re.search(r'base64,([^"]+)"', tag)[1])
        picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))
        _, _, _, down, *_ = re.search(r"matrix\(([^)]*)\)", tag)[1].split()
        found.append(picture if float(down) > 0 else picture[::-1])
    return found


def test_what_is_drawn_is_what_was_stored():
    given = payload()
    view = utterance_view(given, "run", "u")
    energies, posteriors = pictures(view["svg"])
    stored = np.frombuffer(base64.b64decode(given["spectrogram"]["base64"]), np.uint8)
    # The lowest frequency is the lowest row, and the first phone the highest.
    assert np.abs(energies[::-1, :, 3] - stored.reshape(20, 6).T.astype(int)).max() <= 1
    stored = np.frombuffer(base64.b64decode(given["posteriors"]["base64"]), np.uint8)
    shown = stored.reshape(20, 4).T[:3]  # nobody says N, nor is the probe ever sure of it
    assert np.array_equal(posteriors[..., 3], shown)
    for name in ("SIL", "AA", "1,000"):
        assert f">{name}</text>" in view["svg"].replace("\n", "")
    assert ">N</text>" not in view["svg"].replace("\n", "")
    assert "The probe has 15 of these 17 frames right." in view["words"]
    assert "true phones in order: SIL, S, AA" in view["svg"]
    assert "held out from the probe" in view["words"]
    assert "0.2 of 3.0 s" in view["words"]


def test_without_labels_the_features_are_drawn():
    view = utterance_view(without_labels(), "run", "u")
    _, features = pictures(view["svg"])
    assert features.shape[:2] == (8, 20)
    assert "feature" in view["svg"]
    assert "right" not in view["words"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"sound": base64.b64encode(b"RIFF").decode()}, "the utterance of run holds no FLAC"),
        ({"sound": "?"}, "holds what is not base64"),
        ({"spectrogram": {"shape": [3, 3], "base64": "AAAA"}}, "should hold 3 x 3 bytes, has 3"),
    ],
)
def test_damage_is_named(changes, why):
    with pytest.raises(RunError, match=why):
        utterance_view(payload(**changes), "run", "u")


def speech_run(path, found=None, **options):
    rows = probe_rows({("encoder", "phones, every frame", None): 0.4})
    place = make_run(
        path, settings="look_ahead: 12\n", rows=rows, log={"accuracy_first": 0.5}, **options
    )
    if found is not None:
        Run.open(place).write_result("utterance", "utterance", found)
    return place


def page_of(runs, folder):
    return render(runs, folder / "report.html").read_text(encoding="utf-8")


def test_the_page_can_be_heard_and_asks_for_nothing_of_images(tmp_path):
    runs = [speech_run(tmp_path / str(seed), payload(), seed=seed) for seed in (0, 1)]
    text = page_of(runs, tmp_path)
    assert text.count(f'src="data:audio/flac;base64,{FLAC}"') == 1  # of two repeats the first
    assert 'id="h-utterance"' in text
    assert "Contrastive accuracy, one frame ahead" in text
    assert "Map of the features" not in text
    assert "Nearest neighbours</h2>" not in text
    assert 'class="missing"' not in text
    assert "No probe yet" in page_of([speech_run(tmp_path / "2")], tmp_path)
    assert "relatum probe speech 2" in page_of([tmp_path / "2"], tmp_path)


def test_names_from_data_are_escaped(tmp_path):
    found = payload(
        id=EVIL, speaker=EVIL, classes=[EVIL, "S", "AA", "N"],
        phones=[EVIL if name == "SIL" else name for name in TRUTH],
    )  # fmt: skip
    text = page_of([speech_run(tmp_path / "r", json.loads(json.dumps(found)))], tmp_path)
    assert "<i>" not in text
    assert "$x^2$" in text
