"""``relatum export``: a trained encoder, preprocessing included, for use without this library."""

from __future__ import annotations

import importlib
import io
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import torch
from jaxtyping import Float, UInt8
from rich.console import Console
from torch import Tensor, nn

from ..models import Encoder
from ..runs import Run, atomic_write
from ..settings import POSITIONAL, SettingsError, check_choices, choice, from_yaml
from .images import read_settings, untrained_encoder
from .images.resolve import stored_size
from .images.settings import TrainImages
from .inputs import check_alone, run_encoder

__all__ = ["FORMATS", "Export", "ImageEncoder", "main", "read_safetensors"]

# Each with its ending and the library it needs beside torch.
FORMATS: Final = {
    "safetensors": (".safetensors", "safetensors"),
    "onnx": (".onnx", "onnxscript"),
    "torch-export": (".pt2", None),
}
METADATA: Final = "relatum.json"  # its name among a .pt2 file's extra files


@dataclass(frozen=True)
class Export:
    """Write the trained encoder of a run to one file that takes images as they are.

    They are uint8 RGB (n, 3, h, w) of any size: the file cuts out the centre square and resizes it
    as evaluation does.
    """

    run: Path = field(metadata=POSITIONAL)
    """Run directory of `relatum train images`."""

    format: str = choice("onnx", FORMATS)
    """onnx; torch-export, for torch.export.load; or safetensors, the weights and the settings,
    which relatum.recipes.export.read_safetensors reads."""

    out: Path | None = None
    """The file. Default: RUN/export/encoder with the format's ending: .onnx, .pt2, .safetensors."""

    def __post_init__(self) -> None:
        check_choices(self)


class ImageEncoder(nn.Module):
    r"""An encoder with its preprocessing: from stored images of any size to representations.

    .. math:: f\big(\tfrac1{255} [A_h [X A_w^\top]]\big)

    The matrices cut out the centre square and resize it to the encoder's size, bicubic with
    antialiasing, and the brackets round to 0, 1, ..., 255: what decoding does to an image before it
    is probed. (Which direction comes first there depends on Pillow's version; beside pixels that
    clip, that moves a few by some levels.) An image of the right size is taken as it is. Nothing is
    subtracted from the pixels.

    Args:
        encoder: Takes floats in [0, 1], (n, 3, size, size).
        size: Side of its images in pixels.
    """

    def __init__(self, encoder: Encoder, size: int) -> None:
        super().__init__()
        self.encoder, self.size = encoder, size

    def forward(self, images: UInt8[Tensor, "n 3 h w"]) -> Float[Tensor, "n d"]:
        """The representation of each image."""
        return cast(Tensor, self.encoder(self.preprocessed(images)))

    def preprocessed(self, images: UInt8[Tensor, "n 3 h w"]) -> Float[Tensor, "n 3 s s"]:
        """What the encoder sees: floats in [0, 1]."""
        # Lengths as tensors: the graph that is written holds for images of all sizes.
        rows, columns = (torch.arange(n, device=images.device) for n in images.shape[2:])
        side = torch.minimum(rows[-1], columns[-1]) + 1
        down, across = (_resampling(pixels, side, self.size) for pixels in (rows, columns))
        return _levels(down @ _levels(images.float() @ across.T)) / 255


def _levels(pixels: Tensor) -> Tensor:
    return pixels.round().clamp(0, 255)


def _resampling(pixels: Tensor, side: Tensor, size: int) -> Float[Tensor, "size n"]:
    """Weights of each output pixel: Keys' cubic with a = -1/2, as wide as shrinking makes it."""
    scale = side / size
    start = (pixels[-1] + 1 - side) / 2
    centre = start + scale * (torch.arange(size, device=pixels.device)[:, None] + 0.5)
    t = ((pixels + 0.5 - centre) / scale.clamp(min=1)).abs()
    near = (1.5 * t - 2.5) * t * t + 1
    far = ((-0.5 * t + 2.5) * t - 4) * t + 2
    weight = torch.where(t < 1, near, torch.where(t < 2, far, 0.0))
    return weight / weight.sum(1, keepdim=True)


def main(settings: Export, console: Console | None = None) -> Path:
    """Writes the file and returns its path.

    The file holds as text: version of relatum, objective, data, encoder, image_size, dim, what goes
    in and comes out, and the settings of the run.

    Raises:
        RunError: If the run is missing or has no checkpoint.
        SettingsError: If the library that writes the format is not installed.
        ValueError: If ``out`` is a folder.
    """
    check_alone("export")
    ending, library = FORMATS[settings.format]
    if library is not None:
        _installed(library, settings.format)
    run = Run.open(settings.run)
    out = settings.out or run.path / "export" / f"encoder{ending}"
    if out.is_dir():
        raise ValueError(
            f"--out {out} is a folder; name the file in it, such as {out / f'encoder{ending}'}"
        )
    trained = read_settings(run)
    size = stored_size(trained)
    network = ImageEncoder(run_encoder(run, "cpu"), size).eval()
    metadata = _metadata(run, trained, network)
    out.parent.mkdir(parents=True, exist_ok=True)
    _WRITERS[settings.format](out, network, metadata)
    said = f"encoder of {run.path}, {size} x {size} pixels to {metadata['dim']} features: {out}"
    (console or Console()).out(said, highlight=False)
    return out


def read_safetensors(path: Path) -> ImageEncoder:
    """The encoder of a file written by ``relatum export --format safetensors``.

    Raises:
        ValueError: If it is missing, or no such file.
    """
    safetensors: Any = _installed("safetensors", "safetensors")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            settings = (file.metadata() or {}).get("settings")
            weights = {key: file.get_tensor(key) for key in file.keys()}
    except OSError as error:
        raise ValueError(f"cannot read {path} ({error})") from error
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is damaged or no safetensors file ({error})") from error
    if settings is None:
        raise ValueError(f"{path} was not written by `relatum export`: it has no settings")
    trained = from_yaml(TrainImages, settings, where=str(path))
    network = ImageEncoder(untrained_encoder(trained), stored_size(trained))
    network.load_state_dict(weights)
    return network.eval()


def _installed(library: str, format: str) -> Any:
    try:
        return importlib.import_module(library)
    except ImportError:
        raise SettingsError(
            f"--format {format} needs {library}, which is not installed: "
            "pip install 'relatum[export]', or take --format torch-export"
        ) from None


def _metadata(run: Run, trained: TrainImages, network: ImageEncoder) -> dict[str, str]:
    version = importlib.import_module("relatum").__version__
    return {
        "relatum": version,
        "objective": trained.objective,
        "data": trained.data,
        "encoder": trained.encoder,
        "image_size": str(network.size),
        "dim": str(network.encoder.dim),
        "input": "images: uint8 RGB (n, 3, h, w); the centre square is resized to image_size",
        "output": "features: float32 (n, dim)",
        "settings": run.config_text,
    }


def _write_safetensors(out: Path, network: ImageEncoder, metadata: dict[str, str]) -> None:
    save: Any = importlib.import_module("safetensors.torch").save
    weights = {key: value.contiguous() for key, value in network.state_dict().items()}
    atomic_write(out, save(weights, metadata))


def _write_exported(out: Path, network: ImageEncoder, metadata: dict[str, str]) -> None:
    buffer = io.BytesIO()
    torch.export.save(_program(network), buffer, extra_files={METADATA: json.dumps(metadata)})
    atomic_write(out, buffer.getvalue())


def _write_onnx(out: Path, network: ImageEncoder, metadata: dict[str, str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's own parts, about each other
        written: Any = torch.onnx.export(
            _program(network),
            input_names=["images"],
            output_names=["features"],
            dynamo=True,
            verbose=False,
        )
    written.model.metadata_props.update(metadata)
    written.save(str(out))


def _program(network: ImageEncoder) -> torch.export.ExportedProgram:
    """The graph for any number of images of any size."""
    dims: Any = torch.export.Dim.DYNAMIC
    images = torch.zeros(2, 3, network.size + 5, network.size + 3, dtype=torch.uint8)
    shapes = {"images": {0: dims, 2: dims, 3: dims}}
    with torch.no_grad():
        return torch.export.export(network, (images,), dynamic_shapes=shapes, strict=False)


_WRITERS: Final[dict[str, Callable[[Path, ImageEncoder, dict[str, str]], None]]] = {
    "safetensors": _write_safetensors,
    "onnx": _write_onnx,
    "torch-export": _write_exported,
}
