"""What a person may pass as embeddings, ids and masks, and how it becomes tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

__all__ = [
    "Features",
    "Integers",
    "boolean_mask",
    "check_same_width",
    "features",
    "integer_ids",
    "one_dtype",
]

Features = Tensor | NDArray[Any]
"""Embeddings, (n, d): tensors of any floating type, or numpy arrays."""

Integers = Tensor | NDArray[Any] | Sequence[Any]
"""Ids: integers of any type, as tensor, array or list."""


def features(name: str, value: object) -> Float[Tensor, ...]:
    """Floating-point embeddings as a tensor; TypeError for anything else."""
    if isinstance(value, np.ndarray):
        # A copy: torch takes neither negative strides nor read-only arrays.
        value = torch.from_numpy(np.array(value, order="C"))
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor or array, got {type(value).__name__}")
    if not value.is_floating_point():
        raise TypeError(
            f"{name} must be floating point, got {value.dtype}: convert it with .float()"
        )
    return value


def one_dtype(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The widest of the types, for all: float32 and float64 sides meet in float64."""
    wide = tensors[0].dtype
    for tensor in tensors[1:]:
        wide = torch.promote_types(wide, tensor.dtype)
    return tuple(tensor.to(wide) for tensor in tensors)


def check_same_width(x: Tensor, y: Tensor) -> None:
    """Raises ValueError where two views differ in width."""
    if x.shape[1] != y.shape[1]:
        raise ValueError(
            f"two views must have one width, got shapes {tuple(x.shape)} and {tuple(y.shape)}"
        )


def integer_ids(name: str, ids: object, shape: tuple[int, ...], like: Tensor) -> Tensor | None:
    """Ids as int64 beside another tensor; TypeError or ValueError if they are none."""
    if ids is None:
        return None
    tensor = _as_tensor(name, ids)
    if tensor.is_floating_point() or tensor.is_complex():
        raise TypeError(f"{name} must be integers, got {tensor.dtype}")
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")
    signed = tensor.to(device=like.device, dtype=torch.int64)
    if tensor.dtype == torch.uint64 and bool((signed < 0).any()):
        raise ValueError(f"{name} must be below 2**63: larger ones do not fit signed integers")
    return signed


def boolean_mask(mask: object, shape: tuple[int, ...], like: Tensor) -> Tensor | None:
    """A mask as a boolean tensor beside another; TypeError or ValueError if it is none."""
    if mask is None:
        return None
    tensor = _as_tensor("negative_mask", mask)
    if tensor.dtype != torch.bool:
        raise TypeError(f"negative_mask must be boolean (True = counts), got {tensor.dtype}")
    if tuple(tensor.shape) != shape:
        raise ValueError(f"negative_mask must have shape {shape}, got {tuple(tensor.shape)}")
    return tensor.to(like.device)


def _as_tensor(name: str, value: object) -> Tensor:
    try:
        # A copy of arrays: torch takes neither negative strides nor read-only ones.
        return torch.as_tensor(np.array(value) if isinstance(value, np.ndarray) else value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} cannot be read as integers: {error}") from None
