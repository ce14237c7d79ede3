"""Features to probe: from a frozen module, or the pixels themselves as the thing to beat."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Float64, UInt8
from numpy.typing import NDArray
from torch import Tensor, nn

__all__ = ["Array", "NonFiniteFeatures", "extract_features", "feature_array", "pixel_features"]

Array: TypeAlias = NDArray[Any] | Tensor


class NonFiniteFeatures(ValueError):
    """A feature is NaN or infinite, as after a training that ran away."""


def extract_features(
    module: nn.Module,
    pixels: UInt8[Tensor, "n 3 h w"] | Iterable[UInt8[Tensor, "b 3 h w"]],
    *,
    batch_size: int = 512,
    device: torch.device | str | None = None,
) -> Float[np.ndarray, "n d"]:
    """The output of a frozen module for images, as the module is used after training.

    Pixels are scaled to [0, 1] floats. The module runs in evaluation mode and without gradients,
    so that an image's features do not depend on the images around it; afterwards every submodule
    is back in the mode it was in, also when an error stops the run.

    Args:
        module: Takes (b, 3, h, w) floats and returns (b, d).
        pixels: The images, uint8; or batches of them, where not all fit into memory at once.
        batch_size: Images at once, where `pixels` is a tensor: bounds the memory.
        device: Where the module is; None looks at its first parameter or buffer.

    Raises:
        ValueError: If `pixels` is no such tensor or empty, `batch_size` is not positive, the module
            is on another device or does not return (b, d).
        NonFiniteFeatures: If a feature is not finite; the row and column are named.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    batches = torch.split(pixels, batch_size) if isinstance(pixels, Tensor) else pixels
    place = _device(module, device)
    modes = {part: part.training for part in module.modules()}
    outputs: list[Tensor] = []
    try:
        module.eval()
        with torch.no_grad():
            for batch in batches:
                _check_pixels(batch)
                output = module(batch.to(place).float() / 255)
                if output.ndim != 2 or len(output) != len(batch):
                    raise ValueError(
                        f"the module must return (rows, features), got {tuple(output.shape)} for "
                        f"{len(batch)} images"
                    )
                outputs.append(output.cpu())
    finally:
        # Not module.train(mode): a frozen part may be in another mode than the whole.
        for part, training in modes.items():
            part.training = training
    if not outputs:
        raise ValueError("there must be at least one batch of pixels")
    features = torch.cat(outputs)
    # numpy has no bfloat16; float32 holds all its values and those of float16.
    array = features.to(torch.promote_types(features.dtype, torch.float32)).numpy()
    feature_array(array, "features")
    return array


def pixel_features(pixels: UInt8[Tensor, "n 3 h w"]) -> Float[np.ndarray, "n d"]:
    """The pixels themselves as features, in [0, 1].

    Grey images (three equal channels in every image) give one channel. Take training and test
    images together where only some are grey, or their features differ in length.

    Raises:
        ValueError: If `pixels` is no such tensor or empty.

    Example:
        >>> pixel_features(torch.full((2, 3, 1, 1), 255, dtype=torch.uint8))
        array([[1.],
               [1.]], dtype=float32)
    """
    _check_pixels(pixels)
    grey = bool((pixels == pixels[:, :1]).all())
    kept = pixels[:, :1] if grey else pixels
    features: NDArray[np.float32] = (kept.flatten(1).float() / 255).cpu().numpy()
    return features


def _check_pixels(pixels: Tensor) -> None:
    if pixels.dtype != torch.uint8 or pixels.ndim != 4 or pixels.shape[1] != 3 or not len(pixels):
        raise ValueError(
            "pixels must be a uint8 tensor of the shape (n, 3, h, w) with n > 0, got "
            f"{pixels.dtype} {tuple(pixels.shape)}"
        )


def _device(module: nn.Module, wanted: torch.device | str | None) -> torch.device:
    """The device of the module, which must be the wanted one if there is one."""
    for tensor in (*module.parameters(), *module.buffers()):
        # An empty tensor turns "cuda" into "cuda:0", which a comparison needs.
        if wanted is not None and torch.empty(0, device=wanted).device != tensor.device:
            raise ValueError(f"the module is on {tensor.device}, but device is {wanted}")
        return tensor.device
    return torch.device("cpu" if wanted is None else wanted)


def feature_array(features: Array, name: str) -> Float64[np.ndarray, "n d"]:
    """`features` as a finite float64 matrix.

    Raises:
        TypeError: If they are not floating point.
        ValueError: If they are no matrix or have no columns.
        NonFiniteFeatures: If they hold a NaN or an infinity; the first is named.
    """
    if isinstance(features, Tensor):
        floating = features.is_floating_point()
        array = features.detach().cpu()
        matrix = array.double().numpy() if floating else array.numpy()
    else:
        matrix = np.asarray(features)
        floating = matrix.dtype.kind == "f"
    if not floating:
        raise TypeError(f"{name} must hold floating point features, got {matrix.dtype}")
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise ValueError(f"{name} must be a matrix (rows, features), got the shape {matrix.shape}")
    finite = np.isfinite(matrix)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise NonFiniteFeatures(f"{name} row {row}, column {column} is {matrix[row, column]}")
    return np.ascontiguousarray(matrix, np.float64)
