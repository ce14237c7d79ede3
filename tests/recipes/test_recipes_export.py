"""Exported encoders give the features that a probe sees, from images of any size."""

import io
import json
import sys

import numpy as np
import pytest
import torch
from rich.console import Console

from relatum import __version__
from relatum.data.images import decode_image
from relatum.probes import extract_features
from relatum.recipes.export import FORMATS, METADATA, Export, ImageEncoder, main, read_safetensors
from relatum.recipes.images import TrainImages, trained_encoder
from relatum.recipes.train_images import main as train
from relatum.settings import SettingsError

QUIET = Console(file=io.StringIO())
SIDE = 12


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    settings = TrainImages(
        data="digits", image_size=SIDE, limit=60, batch_size=20, projection_dim=8, steps=2,
        tensorboard=False, device="cpu", out=tmp_path_factory.mktemp("export") / "run",
    )  # fmt: skip
    return train(settings, QUIET)


def photographs(n, height, width):
    """Smooth colours with noise, so that both interpolation and clipping matter."""
    generator = np.random.default_rng(0)
    y, x = np.mgrid[0:height, 0:width]
    waves = [np.sin((a * y + b * x) / 5 + c) for a, b, c in generator.normal(size=(n * 3, 3))]
    noise = generator.normal(size=(n * 3, height, width))
    levels = 128 + 110 * np.stack(waves) + 40 * noise
    return torch.from_numpy(levels.clip(0, 255).astype(np.uint8).reshape(n, 3, height, width))


def loaded(format, path):
    """The file as a function of uint8 images, and its metadata."""
    if format == "safetensors":
        safetensors = pytest.importorskip("safetensors")
        with safetensors.safe_open(path, "pt") as file:
            metadata = file.metadata()
        return read_safetensors(path), metadata
    if format == "torch-export":
        extra = {METADATA: ""}
        program = torch.export.load(path, extra_files=extra)
        return program.module(), json.loads(extra[METADATA])
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [i.type for i in session.get_inputs()] == ["tensor(uint8)"]
    metadata = session.get_modelmeta().custom_metadata_map
    return lambda x: torch.from_numpy(session.run(None, {"images": x.numpy()})[0]), metadata


@pytest.mark.parametrize(
    "format", ["safetensors", "torch-export", pytest.param("onnx", marks=pytest.mark.slow)]
)
def test_a_file_gives_the_features(run, tmp_path, format):
    if FORMATS[format][1]:
        pytest.importorskip(FORMATS[format][1])
    path = main(Export(run.path, format, tmp_path / "new" / "file"), QUIET)
    function, metadata = loaded(format, path)
    encoder = trained_encoder(run)
    for shape in [(2, SIDE, SIDE), (5, SIDE, SIDE), (1, SIDE, SIDE)]:
        images = photographs(*shape)
        with torch.no_grad():
            found = function(images)
        expected = torch.from_numpy(extract_features(encoder, images))
        torch.testing.assert_close(found, expected.float(), rtol=1e-4, atol=1e-4)
    whole = ImageEncoder(encoder, SIDE)
    for shape in [(3, 40, 31), (1, 9, 17), (2, 16, 16)]:
        with torch.no_grad():
            found, expected = function(photographs(*shape)), whole(photographs(*shape))
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=2e-3)
    assert metadata["objective"] == "rpc"
    assert metadata["data"] == "digits"
    assert metadata["relatum"] == __version__
    assert metadata["image_size"] == str(SIDE)
    assert metadata["settings"] == run.config_text


@pytest.mark.parametrize("shape", [(12, 12), (40, 31), (31, 40), (9, 17), (13, 13), (200, 7)])
def test_preprocessing_is_that_of_decoding(shape):
    images = photographs(3, *shape)
    prepare = ImageEncoder(torch.nn.Identity(), SIDE).preprocessed
    decoded = [decode_image(image.permute(1, 2, 0).numpy(), SIDE)[0] for image in images]
    expected = torch.from_numpy(np.stack(decoded)).permute(0, 3, 1, 2)
    found = [prepare(images) * 255, prepare(images.mT).mT * 255]  # versions of Pillow differ
    away = min(((each - expected).abs() for each in found), key=lambda each: float(each.max()))
    # Decoding has fixed-point weights, so that halves may be rounded the other way.
    assert float(away.max()) < (1e-3 if shape == (SIDE, SIDE) else 1.01)
    assert float((away > 0.5).float().mean()) < 0.01


def test_the_default_place(run):
    pytest.importorskip("safetensors")
    path = main(Export(run.path, "safetensors"), QUIET)
    assert path == run.path / "export" / "encoder.safetensors"
    assert path.is_file()


def test_a_missing_library_is_one_clear_error(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    message = r"--format safetensors needs safetensors, .* pip install 'relatum\[export\]'"
    with pytest.raises(SettingsError, match=message):
        main(Export(run.path, "safetensors"), QUIET)


def test_mistakes(run, tmp_path):
    with pytest.raises(ValueError, match="is a folder; name the file"):
        main(Export(run.path, "torch-export", tmp_path), QUIET)
    with pytest.raises(ValueError, match="unknown format 'onx'; did you mean 'onnx'"):
        Export(run.path, "onx")
    save = pytest.importorskip("safetensors.torch").save_file
    save({"a": torch.zeros(1)}, tmp_path / "other")
    with pytest.raises(ValueError, match="was not written by `relatum export`"):
        read_safetensors(tmp_path / "other")
    (tmp_path / "other").write_bytes(b"no such file")
    with pytest.raises(ValueError, match="is damaged or no safetensors file"):
        read_safetensors(tmp_path / "other")
    for path in (tmp_path / "missing.safetensors", tmp_path):
        with pytest.raises(ValueError, match=f"cannot read {path}"):
            read_safetensors(path)
