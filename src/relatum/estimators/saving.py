"""A fitted estimator as one file of plain values and tensors, from which no code is run."""

from __future__ import annotations

import io
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from ..objectives import OBJECTIVES
from ..runs import atomic_write

__all__ = ["load", "packed", "save", "unpacked"]

FORMAT: Final = 1
_NAMES: Final = ("feature_names_in_", "target_names_in_")
_FITTED: Final = ("n_features_in_", "n_targets_", *_NAMES)


def save(model: Any, path: Path) -> None:
    """Writes the settings and what was fitted; the model's own part is its ``_state()``."""
    settings, given = {}, []
    for name, value in model.get_params(deep=False).items():
        if _is_plain(value):
            settings[name] = value
        elif name == "objective" and (known := _objective(value)):
            settings[name] = known
        else:
            given.append(name)
    fitted = {name: getattr(model, name) for name in _FITTED if hasattr(model, name)}
    fitted |= {name: list(fitted[name]) for name in _NAMES if name in fitted}
    whole = {
        "format": FORMAT,
        "class": type(model).__name__,
        "settings": settings,
        "given": given,
        "fitted": fitted,
        "state": model._state(),
    }
    buffer = io.BytesIO()
    torch.save(whole, buffer)
    atomic_write(path, buffer.getvalue())


def load(classes: tuple[type, ...], path: Path, given: dict[str, Any]) -> Any:
    """The estimator of a file, of one of these classes.

    Raises:
        ValueError: If the file holds none of them, or an argument that it cannot hold is missing.
    """
    try:
        whole = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # zip, pickle and torch's own errors alike mean "not such a file"
        raise ValueError(f"{path} is damaged or no saved estimator") from error
    known = {cls.__name__: cls for cls in classes}
    if not isinstance(whole, dict) or whole.get("class") not in known:
        raise ValueError(f"{path} holds no {' or '.join(known)}")
    if whole["format"] != FORMAT:
        raise ValueError(f"{path} has format {whole['format']}; this version reads {FORMAT}")
    if missing := sorted(set(whole["given"]) - set(given)):
        raise ValueError(
            f"{path} cannot hold {', '.join(missing)}: pass the same as load(path, "
            f"{missing[0]}=...)"
        )
    settings = whole["settings"]
    if isinstance(objective := settings.get("objective"), dict):
        settings["objective"] = OBJECTIVES[objective.pop("name")](**objective)
    model = known[whole["class"]](**{**settings, **given})
    for name, value in whole["fitted"].items():
        setattr(model, name, np.array(value, dtype=object) if name in _NAMES else value)
    model._restore(whole["state"])
    return model


def packed(value: Any) -> dict[str, Any]:
    """A dataclass of arrays and numbers as tensors and numbers."""
    return {
        f.name: torch.from_numpy(v) if isinstance(v := getattr(value, f.name), np.ndarray) else v
        for f in fields(value)
    }


def unpacked(cls: Any, values: dict[str, Any]) -> Any:
    """The dataclass that was :func:`packed`."""
    return cls(**{k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in values.items()})


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def _objective(value: Any) -> dict[str, Any] | None:
    """The name and the fields of one of the library's objectives."""
    if isinstance(value, nn.Module) or not is_dataclass(value):
        return None
    for name, make in OBJECTIVES.items():
        if type(value) is make:  # type: ignore[comparison-overlap]
            return {"name": name, **{f.name: getattr(value, f.name) for f in fields(value)}}
    return None
