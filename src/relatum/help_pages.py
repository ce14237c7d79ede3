"""How the command line's help pages say types and defaults: in the words of their readers."""

from __future__ import annotations

import dataclasses
import textwrap
import types
import typing
from pathlib import Path
from typing import Any, Final

from jsonargparse import DefaultHelpFormatter

__all__ = ["ARTICLES", "HelpPage", "kind_and_default", "union_types"]

ARTICLES: Final = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "a path",
}


class HelpPage(DefaultHelpFormatter):
    """Shows the text of an option as it is, and paragraphs of a description as paragraphs."""

    def _get_help_string(self, action: Any) -> str:
        return action.help or ""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(
            textwrap.fill(
                " ".join(part.split()), width, initial_indent=indent, subsequent_indent=indent,
                break_on_hyphens=False,
            )
            for part in text.split("\n\n")
        )  # fmt: skip


def union_types(hint: Any) -> tuple[Any, ...]:
    """The types of a union, or the one type.

    Example:
        >>> union_types(int | None) == (int, type(None))
        True
    """
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if union else (hint,)


def kind_and_default(hint: Any, field: dataclasses.Field[Any]) -> str:
    """What stands behind the help of an option: what it takes, and its default where it has one.

    Example:
        >>> @dataclasses.dataclass
        ... class Settings:
        ...     folder: Path | None = None
        ...     seed: int = 0
        >>> for field, hint in zip(dataclasses.fields(Settings), (Path | None, int)):
        ...     print(kind_and_default(hint, field))
         (path, optional)
         (whole number, default: 0)
    """
    kinds = [ARTICLES.get(kind, "text") for kind in union_types(hint) if kind is not types.NoneType]
    kind = " or ".join(word.removeprefix("a ") for word in kinds)
    if field.metadata.get("choices"):
        kind = "name"
    default = field.default
    if default is None:
        return f" ({kind}, optional)"
    if default is dataclasses.MISSING or str(default) == "":
        return f" ({kind})"
    return f" ({kind}, default: {str(default).lower() if isinstance(default, bool) else default})"
