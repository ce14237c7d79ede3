"""Settings dataclasses: one source for defaults, checks, YAML files and the command line's help.

A job's settings are a frozen dataclass whose fields carry a docstring each. The command line shows
those docstrings as help; YAML presets and a run's ``config.yaml`` are read strictly into the class.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import textwrap
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar, get_args, get_type_hints

import yaml

__all__ = [
    "POSITIONAL",
    "SettingsError",
    "check_choices",
    "check_seed",
    "check_used",
    "choice",
    "field_docs",
    "from_mapping",
    "from_yaml",
    "hint",
    "nearest",
    "to_yaml",
    "unknown",
]

S = TypeVar("S")

POSITIONAL: Final = {"positional": True}
"""Metadata of a field whose values stand on the command line without an option name."""


class SettingsError(ValueError):
    """A setting that no data and no run could make right: the command line was wrong."""


LARGEST_SEED = 2**32 - 1  # what numpy's and scikit-learn's generators accept


def nearest(value: str, known: Iterable[str]) -> str | None:
    """The known name that looks like `value` but for a slip or its case; None if none does.

    Example:
        >>> nearest("Bach_size", ["seed", "batch_size"])
        'batch_size'
        >>> nearest("colour", ["seed", "batch_size"])
    """
    names = {name.casefold(): name for name in known}
    found = difflib.get_close_matches(value.casefold(), list(names), n=1)
    return names[found[0]] if found else None


def hint(value: str, known: Iterable[str]) -> str:
    """What to say of an unknown name: the one that is meant, or else all there are.

    Example:
        >>> hint("rcp", ["cpc", "rpc"]), hint("mine", ["cpc", "rpc"])
        ("did you mean 'rpc'?", 'known are cpc, rpc')
    """
    names = list(known)
    near = nearest(value, names)
    return f"did you mean {near!r}?" if near else f"known are {', '.join(names)}"


def unknown(what: str, value: str, known: Iterable[str]) -> ValueError:
    """The error for a name that does not exist: it names one that looks like it and lists all.

    Example:
        >>> raise unknown("critic", "cosin", ["dot", "cosine"])
        Traceback (most recent call last):
        ValueError: unknown critic 'cosin'; did you mean 'cosine'? Known: dot, cosine
    """
    names = list(known)
    near = nearest(value, names)
    meant = f"did you mean {near!r}? " if near else ""
    return ValueError(f"unknown {what} {value!r}; {meant}Known: {', '.join(names)}")


def choice(default: str | None, known: Iterable[str]) -> Any:
    """A field that takes one of the `known` names (or None where that is its default)."""
    return dataclasses.field(default=default, metadata={"choices": tuple(known)})


def check_choices(settings: Any) -> None:
    """Raises ValueError, naming the known ones, if a :func:`choice` field is unknown."""
    for field in dataclasses.fields(settings):
        known, value = field.metadata.get("choices"), getattr(settings, field.name)
        if known is not None and value is not None and value not in known:
            raise unknown(field.name, str(value), known)


def check_seed(name: str, seed: int) -> None:
    """Raises ValueError if a seed is not in 0 ... 2³² − 1."""
    if not 0 <= seed <= LARGEST_SEED:
        raise ValueError(f"{name} must be an integer from 0 to {LARGEST_SEED}, got {seed}")


def check_used(settings: Any, names: str, owner: str) -> None:
    """Refuses settings that would have no effect, unless they have their defaults.

    Args:
        settings: A dataclass of settings.
        names: Of those without effect here, separated by spaces.
        owner: What they belong to, in words.

    Raises:
        SettingsError: If one is not its default.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(settings)}
    for name in names.split():
        value = getattr(settings, name)
        if value != defaults[name]:
            raise SettingsError(f"{name} belongs to {owner}: {name} {value} would have no effect")


def field_docs(cls: type) -> dict[str, str]:
    """The docstring below each field of a dataclass, on one line each; those inherited, too."""
    bases = [base for base in cls.__bases__ if dataclasses.is_dataclass(base)]
    docs = {name: text for base in bases for name, text in field_docs(base).items()}
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef)).body
    for field, below in pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            docs[field.target.id] = " ".join(str(below.value.value).split())
    return docs


def to_yaml(settings: Any) -> str:
    """All fields as YAML, in their order; None is written as null."""
    plain = {name: _plain(value) for name, value in dataclasses.asdict(settings).items()}
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def from_mapping(cls: type[S], values: Mapping[str, Any], *, where: str) -> S:
    """Settings from a mapping of field names.

    Raises:
        ValueError: If a key is no field; the message says where, and which fields there are.
    """
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for key in values:
        if key not in names:
            raise ValueError(f"{where}: unknown key {key!r}; {hint(str(key), names)}")
    hints = get_type_hints(cls)
    paths = {name for name in names if Path in (hints[name], *get_args(hints[name]))}
    converted = {
        name: Path(value) if name in paths and isinstance(value, str) else value
        for name, value in values.items()
    }
    return cls(**converted)


def from_yaml(cls: type[S], text: str, *, where: str) -> S:
    """Settings from YAML text, strictly.

    Raises:
        ValueError: If the text is no mapping, or a key is no field.
    """
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{where}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{where}: expected `key: value` lines")
    return from_mapping(cls, values, where=where)
