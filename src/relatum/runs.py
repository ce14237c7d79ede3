"""The run directory: the contract between what writes results (recipes) and what reads them.

A run is a folder; nothing about a run lives anywhere else::

    RUN/
      config.yaml          the resolved settings, enough to repeat the run
      environment.json     command, versions, machine, time
      metrics.jsonl        one strict JSON object a line: {"step": 20, "epoch": 0.6, "loss": ...}
      checkpoints/last.pt  written atomically; `resume` continues from it bit for bit
      results/NAME.json    one result each: {"kind": "probe", "created": ..., "payload": {...}}

Stages of a job (train, probe, embed, report) meet only here, so each can be repeated alone.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import json
import math
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

# What a run writes after it has begun.
_CONTENTS = ("data.json", "metrics.jsonl", "checkpoints", "results", "tensorboard", "embeddings")

__all__ = ["Run", "RunError", "atomic_write", "environment", "strict_json"]


class RunError(ValueError):
    """A run directory that is missing, incomplete or not what the caller asked for."""


def strict_json(value: object, *, indent: int | None = None) -> str:
    """`value` as JSON that any strict parser reads.

    NaN and infinities have no JSON form: they become ``{"value": null, "reason": "nan"}``, never
    the bare word. Numpy and torch scalars, paths, tuples and dataclasses are converted.

    Raises:
        TypeError: If a value or key has no JSON form; the message names its type.

    Example:
        >>> strict_json({"loss": float("nan"), "n": np.int64(3)})
        '{"loss": {"value": null, "reason": "nan"}, "n": 3}'
    """
    return json.dumps(_plain(value), indent=indent, allow_nan=False, ensure_ascii=False)


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"value": None, "reason": repr(value)}
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, np.ndarray | torch.Tensor):
        return _plain(value.tolist())
    if isinstance(value, Path):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    raise TypeError(f"cannot write a {type(value).__name__} as JSON: {value!r}")


def _key(key: object) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool | int | float | np.integer):
        return str(key)
    raise TypeError(f"cannot use a {type(key).__name__} as a JSON key: {key!r}")


def atomic_write(path: Path, data: bytes) -> None:
    """Writes `data` to `path` so that a kill leaves either the old file or the whole new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        _removed(temporary)
        raise OSError(f"cannot write {path}: {error.strerror or error}") from error
    except BaseException:
        _removed(temporary)
        raise


def _removed(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def environment() -> dict[str, Any]:
    """What a number depends on besides its settings: command, versions, machine, time."""
    packages = ["relatum", "torch", "torchvision", "numpy", "scipy", "scikit-learn", "pillow"]
    versions = {}
    for name in packages:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    command = [Path(sys.argv[0]).name, *sys.argv[1:]]
    return {
        "command": " ".join(command),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "versions": versions,
    }


@dataclass(frozen=True)
class Run:
    """One run directory. Make it with :meth:`create`, read it with :meth:`open`."""

    path: Path

    @classmethod
    def create(cls, path: Path | str, config_text: str) -> Run:
        """Starts a run in a new folder, or in one that holds nothing of a run.

        ``config.yaml`` is written last: a folder that holds it is a run, whenever a kill comes.

        Args:
            path: The folder.
            config_text: The resolved settings as YAML text, written to ``config.yaml``.

        Raises:
            RunError: If the folder already holds a run or the remains of one, or is a file.
        """
        run = cls(Path(path))
        if run.path.exists() and not run.path.is_dir():
            raise RunError(f"{run.path} is a file; a run needs a folder of its own")
        if (run.path / "config.yaml").exists():
            raise RunError(
                f"{run.path} already holds a run; choose another folder, or continue it with "
                "--resume"
            )
        remains = [name for name in _CONTENTS if (run.path / name).exists()]
        if remains:
            raise RunError(
                f"{run.path} holds {', '.join(remains)} of an earlier run, which would pass for "
                "those of the new one; choose another folder, or remove them"
            )
        run.write_json("environment.json", environment())
        atomic_write(run.path / "config.yaml", config_text.encode())
        return run

    @classmethod
    def open(cls, path: Path | str) -> Run:
        """An existing run.

        Raises:
            RunError: If there is no such folder or it holds no ``config.yaml``.
        """
        run = cls(Path(path))
        if not run.path.is_dir():
            raise RunError(f"there is no run directory {run.path}")
        if not (run.path / "config.yaml").is_file():
            raise RunError(f"{run.path} is not a run directory: it has no config.yaml")
        return run

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.path.resolve().name

    @property
    def config_text(self) -> str:
        """The resolved settings, as YAML text."""
        return (self.path / "config.yaml").read_text(encoding="utf-8")

    @property
    def environment(self) -> dict[str, Any]:
        """What :func:`environment` said when the run began; empty where that was not written."""
        if not (self.path / "environment.json").exists():
            return {}
        return dict(self.read_json("environment.json"))

    @property
    def checkpoint(self) -> Path:
        """Where the last checkpoint is or will be."""
        return self.path / "checkpoints" / "last.pt"

    def write_json(self, name: str, value: object) -> Path:
        """Writes `value` as strict JSON to ``RUN/name``, atomically."""
        path = self.path / name
        atomic_write(path, strict_json(value, indent=2).encode() + b"\n")
        return path

    def read_json(self, name: str) -> Any:
        """Reads ``RUN/name``.

        Raises:
            RunError: If the file is missing or is not JSON.
        """
        path = self.path / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunError(f"{path} is missing: the run is incomplete") from None
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise RunError(f"{path} is damaged: it is not valid JSON ({error})") from None

    def write_result(self, name: str, kind: str, payload: object) -> Path:
        """Stores a result as ``results/NAME.json``; `kind` tells readers how to show it."""
        created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        record = {"kind": kind, "created": created, "payload": payload}
        return self.write_json(f"results/{name}.json", record)

    def results(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """All results as (name, record), in the order of their names."""
        for path in sorted((self.path / "results").glob("*.json")):
            yield path.stem, self.read_json(f"results/{path.name}")

    def log(self, record: Mapping[str, object]) -> None:
        """Appends one line to ``metrics.jsonl``."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(strict_json(record) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """All logged lines, in the order of their steps.

        A line that a kill cut short is left out, and where a resumed run logged a step again, the
        later line counts.
        """
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return []
        lines: dict[int, dict[str, Any]] = {}
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                record = json.loads(text)
            except json.JSONDecodeError:
                continue
            if not isinstance(record, dict) or not isinstance(record.get("step"), int):
                raise RunError(f"{path}: a line is not a record with a step: {text[:80]!r}")
            lines[record["step"]] = record
        return [lines[step] for step in sorted(lines)]
