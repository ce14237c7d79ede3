"""Every preset parses, and its first lines say how to run it and what to expect."""

from pathlib import Path

import pytest

from relatum import cli
from relatum.recipes.demo import OBJECTIVES, SETTINGS
from relatum.recipes.images import TrainImages, resolve
from relatum.recipes.speech import TrainSpeech
from relatum.recipes.speech import resolve as resolve_speech

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
SPEECH = sorted(CONFIGS.glob("speech-*.yaml"))
PRESETS = sorted(set(CONFIGS.glob("*.yaml")) - set(SPEECH))


def test_there_are_presets():
    assert len(PRESETS) >= 5


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_preset(path):
    head = path.read_text(encoding="utf-8").splitlines()[:3]
    assert head[0].startswith("# relatum train images --config configs/")
    assert f"configs/{path.name}" in head[0]
    assert head[1].startswith("# time: ")
    assert head[2].startswith("# expected: ")
    words = head[0].removeprefix("# relatum train images ").split()
    words[words.index("--config") + 1] = str(path)
    settings = cli.parse("train images", TrainImages, words)
    resolve(settings, 50_000)  # its values fit together


@pytest.mark.parametrize("path", SPEECH, ids=lambda path: path.stem)
def test_speech_preset(path):
    head = path.read_text(encoding="utf-8").splitlines()[:3]
    assert head[0].startswith(f"# relatum train speech --config configs/{path.name}")
    assert head[1].startswith("# time: ")
    assert head[2].startswith("# expected: ")
    words = head[0].removeprefix("# relatum train speech ").split()
    words[words.index("--config") + 1] = str(path)
    resolve_speech(cli.parse("train speech", TrainSpeech, words))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_demo_is_its_presets(objective):
    settings = cli.parse(
        "train images", TrainImages, ["--config", str(CONFIGS / f"mnist5k-{objective}.yaml")]
    )
    demo = TrainImages(**SETTINGS, objective=objective, out=settings.out)
    assert resolve(settings, 4000) == resolve(demo, 4000)
