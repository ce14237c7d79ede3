"""What a run does with its networks: head offset, first layers, spectral norms, compilation."""

import io
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import nn

from relatum.recipes.images import TrainImages, resolve, trained_encoder, trained_head
from relatum.recipes.train_images import main
from relatum.runs import Run
from relatum.settings import SettingsError
from relatum.training import load_checkpoint

TINY = {
    "data": "digits", "image_size": 8, "limit": 120, "batch_size": 24, "projection_dim": 8,
    "steps": 3, "log_every": 1, "tensorboard": False, "device": "cpu",
}  # fmt: skip


def trained(out, **changes):
    return main(TrainImages(**{**TINY, **changes}, out=out), Console(file=io.StringIO()))


def test_a_run_keeps_its_head(tmp_path):
    run = trained(tmp_path / "run", projection_offset=True)
    head, saved = trained_head(run), load_checkpoint(run.checkpoint)["modules"]["head"]
    assert not head.training
    assert {k: v.tolist() for k, v in head.state_dict().items()} == {
        k: v.tolist() for k, v in saved.items()
    }
    assert head.layers[-1].bias.abs().max() > 0  # it has learned an offset
    features = trained_encoder(run)(torch.rand(2, 3, 8, 8))
    assert head.upto(1)(features).shape == (2, head.widths[1])
    assert trained_head(trained(tmp_path / "released")).layers[-1].bias is None


def test_spectral_norms_instead_of_the_penalty(tmp_path):
    run = trained(tmp_path / "run", objective="wpc", spectral_norm=True, learning_rate=1e-5)
    assert "penalty: null" in run.config_text
    assert all("gradient_penalty" not in line for line in run.metrics())
    encoder = trained_encoder(run)
    weights = [m.weight.detach() for m in encoder.modules() if isinstance(m, nn.Conv2d)]
    for weight in weights:
        assert float(torch.linalg.matrix_norm(weight.flatten(1), 2)) == pytest.approx(1, abs=0.2)


def test_a_transformer_of_timm_trains(tmp_path):
    run = trained(tmp_path / "run", encoder="timm:test_vit", image_size=16, steps=1)
    assert (
        trained_encoder(run).dim
        == load_checkpoint(run.checkpoint)["modules"]["head"]["layers.0.weight"].shape[1]
    )


on_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="on a CPU its C++ compiler takes minutes"
)


@pytest.mark.filterwarnings("ignore")  # of the compiler, about itself
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=on_gpu)])
def test_a_compiled_run_is_the_run(tmp_path, monkeypatch, backend):
    """But for rounding, which the first steps do not yet multiply."""
    device = "cpu" if backend == "aot_eager" else "cuda"
    plain = trained(tmp_path / "plain", device=device)
    compile, calls = torch.compile, []

    def compile_with(*given, **options):
        calls.append(given)
        return compile(*given, **{**options, "backend": backend})

    monkeypatch.setattr(torch, "compile", compile_with)
    compiled = trained(tmp_path / "compiled", compile=True, device=device)
    assert len(calls) == 2  # encoder and head
    for key in ("loss", "grad_norm", "effective_rank"):
        expected = [line[key] for line in plain.metrics()]
        assert [line[key] for line in compiled.metrics()] == pytest.approx(expected, rel=1e-3)
    one, other = trained_encoder(plain), trained_encoder(Run.open(compiled.path))
    assert list(one.state_dict()) == list(other.state_dict())
    images = torch.rand(4, 3, 8, 8)
    torch.testing.assert_close(one(images), other(images), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"spectral_norm": True}, "spectral_norm belongs to wpc; objective 'rpc' has none"),
        ({"penalty": 1.0}, "penalty belongs to wpc"),
        ({"certify_images": 7}, "certify_images belongs to certify_every: certify_images 7"),
        ({"cache": Path("x")}, "cache belongs to stream: cache x would have no effect"),
        ({"projection_layers": 1, "projection_hidden": 8}, "projection_layers of 2 or more"),
        ({"data": "digits", "download": True}, "download belongs to sets of torchvision"),
        (
            {"objective": "wpc", "spectral_norm": True, "penalty": 1.0},
            "stands for the gradient penalty, got penalty 1.0 too",
        ),
        (
            {"objective": "wpc", "spectral_norm": True, "micro_batch_size": 4},
            "spectral_norm and micro_batch_size exclude each other",
        ),
        ({"objective": "wpc", "compile": True}, "has no second derivatives"),
    ],
)
def test_settings_that_exclude_each_other(changes, message):
    with pytest.raises(SettingsError, match=message):
        resolve(TrainImages(**{**TINY, **changes}), 100)
