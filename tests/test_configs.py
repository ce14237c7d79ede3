"""Every preset parses, and its first lines say how to run it and what to expect."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from relatum import cli
from relatum.models import ENCODERS
from relatum.recipes.demo import OBJECTIVES, SETTINGS
from relatum.recipes.images import TrainImages, resolve
from relatum.recipes.speech import TrainSpeech
from relatum.recipes.speech import resolve as resolve_speech
from relatum.settings import from_yaml

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
SPEECH = sorted(CONFIGS.glob("speech-*.yaml"))
VISION = sorted(CONFIGS.glob("vision/*.yaml"))
PRESETS = sorted({*CONFIGS.glob("*.yaml"), *VISION} - set(SPEECH))


# What the paper gives, written down from its text, tables and the authors' commands; the files are
# not looked at here. Objective, then (alpha, beta, gamma) or None, critic, temperature.
SMALL = {
    "rpc": ("dot", 128),
    **dict.fromkeys(("cpc", "dv", "nwj", "js", "wpc"), ("cosine", 0.5)),
}
LARGE = {name: ("dot", 32) if name == "rpc" else ("cosine", 0.1) for name in SMALL}
# Images, side, network, augmentation, batch, epochs, rate, (alpha, beta, gamma) of rpc, scores.
PAPER = {
    "cifar10": (50_000, 32, "resnet18", "simclr-cifar", 512, 1000, 2.0, (1, 0.005, 1), SMALL),
    "cifar100": (50_000, 32, "resnet18", "simclr-cifar", 512, 1000, 2.0, (1, 0.005, 1), SMALL),
    "stl10": (105_000, 96, "resnet50", "simclr", 512, 1000, 2.0, (1, 0.001, 1), SMALL),
    # gamma as published, 0.1, times the factor (N - 1) / (N / 32 - 1) = 32.2 of the authors' code.
    "imagenet": (1_281_167, 224, "resnet50-sk", "simclr", 4096, 100, 6.4, (0.3, 0.01, 3.2), LARGE),
}


def needs_known_encoder(path):
    encoder = yaml.safe_load(path.read_text("utf-8")).get("encoder", "conv-small")
    if encoder not in ENCODERS:
        pytest.skip(f"there is no encoder {encoder} yet")


@pytest.mark.parametrize("objective", SMALL)
@pytest.mark.parametrize("dataset", PAPER)
def test_the_paper_presets_hold_the_papers_values(dataset, objective):
    rows, side, network, policy, batch, epochs, rate, weights, scores = PAPER[dataset]
    path = CONFIGS / "vision" / f"{dataset}-{objective}-paper.yaml"
    needs_known_encoder(path)
    text = path.read_text("utf-8")
    settings = resolve(from_yaml(TrainImages, text, where=path.name), rows)
    critic, temperature = scores[objective]
    expected = {
        "objective": objective, "critic": critic, "temperature": temperature, "pairing": "two_view",
        "encoder": network, "image_size": side, "augmentation": policy, "batch_size": batch,
        "epochs": epochs, "learning_rate": rate, "optimizer": "lars", "weight_decay": 1e-4,
        "warmup_epochs": 10, "projection_dim": 128, "projection_layers": 3,
        "normalization": "sync", "penalty": 10 if objective == "wpc" else None,
        "stream": dataset == "imagenet", "accumulate_steps": 1, "released_devices": 0,
        # The penalty on 512 images of a GPU, about 0.9 GB each, fits none.
        "micro_batch_size": 32 if (dataset, objective) == ("imagenet", "wpc") else None,
    }  # fmt: skip
    assert {name: getattr(settings, name) for name in expected} == expected
    given = (settings.alpha, settings.beta, settings.gamma)
    assert given == (weights if objective == "rpc" else (None, None, None))
    assert settings.data.startswith(f"{dataset}:")
    # One line says what was reported; nothing is claimed to have been measured.
    assert "not reproduced here" in text
    # The authors round once, over all epochs, and not each epoch.
    theirs, ours = rows * epochs // batch + 1, rows // batch * epochs
    assert f"{ours:,}" in text
    assert f"{theirs:,}" in text
    if dataset != "imagenet":
        assert f"steps, {rows // batch * 10:,} of them warm-up" in text
        assert f"{theirs:,} and {10 * rows // batch:,}" in text


@pytest.mark.parametrize(("objective", "found"), [("dv", "72.2 %"), ("nwj", "0.5 % (collapsed)")])
def test_what_the_authors_log_alone_says(objective, found):
    text = (CONFIGS / "vision" / f"imagenet-{objective}-paper.yaml").read_text("utf-8")
    assert f"# expected: {found} after fine-tuning with all labels in the authors' log" in text


@pytest.mark.parametrize("objective", ["js", "nwj"])
def test_the_weight_of_negatives_in_the_authors_code_can_be_had(objective):
    """They gather the negatives of all devices and divide by the pairs of one: 32 times as much."""
    path = CONFIGS / "vision" / f"imagenet-{objective}-paper.yaml"
    text = path.read_text("utf-8")
    assert "released_devices: 32" in text
    settings = replace(from_yaml(TrainImages, text, where=path.name), released_devices=32)
    assert resolve(settings, 1_281_167).released_devices == 32


@pytest.mark.parametrize(("objective", "weights"), [("rpc", (0.3, 0.001, 1)), ("cpc", None)])
def test_the_largest_presets_change_the_network_and_rpcs_weights(objective, weights):
    small, large = (
        yaml.safe_load((CONFIGS / "vision" / f"imagenet-{objective}-{end}.yaml").read_text("utf-8"))
        for end in ("paper", "r152-paper")
    )
    assert large["encoder"] == "resnet152-2x-sk"
    changed = {name for name in small if small[name] != large[name]}
    assert changed <= {"encoder", "out", "beta", "gamma"}
    if weights:
        assert tuple(large[name] for name in ("alpha", "beta", "gamma")) == weights


@pytest.mark.parametrize("objective", ["rpc", "cpc"])
def test_the_gpu_presets_are_the_papers_for_a_tenth_of_the_epochs(objective):
    paper, gpu = (
        yaml.safe_load((CONFIGS / "vision" / f"cifar10-{objective}-{end}.yaml").read_text("utf-8"))
        for end in ("paper", "gpu")
    )
    assert (gpu["epochs"], paper["epochs"], gpu["autocast"]) == (100, 1000, "bf16")
    changed = {name for name in {*paper, *gpu} if paper.get(name) != gpu.get(name)}
    assert changed == {"epochs", "out", "normalization"}


def test_there_are_presets():
    assert len(VISION) == 24 + 2 + 2 + 1
    assert len(PRESETS) >= 5


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_preset(path):
    head = path.read_text(encoding="utf-8").splitlines()[:3]
    assert head[0].startswith("# relatum train images --config configs/")
    assert f"configs/{path.relative_to(CONFIGS).as_posix()} " in head[0]
    assert head[1].startswith("# time: ")
    assert head[2].startswith("# expected: ")
    needs_known_encoder(path)
    words = head[0].removeprefix("# relatum train images ").split()
    words[words.index("--config") + 1] = str(path)
    settings = cli.parse("train images", TrainImages, words)
    assert settings.out == Path("runs") / path.stem or path not in VISION
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
