"""The command line: ``relatum COMMAND [SUBJECT] --option value``.

Each command is a settings dataclass and a function; the parser, the help page and the strict
reading of YAML presets are derived from the dataclass. A command's module is imported only when
the command is used, so that ``relatum --help`` does not wait for the networks' libraries.

Exit codes: 0 done; 1 the job failed, as data or a run are not what they should be (one line says
why); 2 the command line was wrong, as no such option or value exists; 130 interrupted.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import io
import os
import sys
import types
import typing
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from jsonargparse import ArgumentError, ArgumentParser

from .commands import COMMANDS
from .help_pages import ARTICLES, HelpPage, kind_and_default, union_types
from .settings import SettingsError, field_docs, from_mapping, hint, nearest

__all__ = ["COMMANDS", "main", "parse"]


EXAMPLES: Final = """examples:
  relatum train images --data mnist5k --objective rpc --out runs/rpc
  relatum train images --config configs/mnist5k-cpc.yaml --seed 1 --out runs/cpc-1
  relatum probe runs/rpc runs/cpc-1
  relatum report runs/rpc runs/cpc-1 --out report.html
  relatum certify embeddings.npz --normalize --temperature 0.5 --html certificate.html
  relatum mi cells.csv --x gene1,gene2 --y drug --html cells.html
  relatum fit cells.parquet --x 'gene_*' --y 'protein_*' --out cells.pt
  relatum retrieve cells.pt --data new.parquet --k 3 --out matches.csv"""

S = TypeVar("S")

WORDS: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class UsageError(ValueError):
    """The command line cannot be understood; the message is for its author."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a letter shows its number instead of failing.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    debug = "--debug" in words or bool(os.environ.get("RELATUM_DEBUG"))
    try:
        code = _run([word for word in words if word != "--debug"], debug)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read this, such as head, has seen enough; what is still to flush goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def _run(words: list[str], debug: bool) -> int:
    try:
        if not words or words[0] in ("-h", "--help"):
            print(_overview())
            return 0
        if words[0] == "--version":
            print(f"relatum {importlib.import_module('relatum').__version__}")
            return 0
        if _only_first_word(words):
            print(_subjects(words[0]))
            return 0
        name, rest = _command(words)
        command = COMMANDS[name]
        module = importlib.import_module(f".{command.module}", __package__)
        settings_class = getattr(module, command.settings)
        if "-h" in rest or "--help" in rest:
            print(_parser(name, settings_class).format_help())
            return 0
        settings = parse(name, settings_class, rest)
    except UsageError as error:
        return _fail(str(error), 2)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            getattr(module, command.function)(settings)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        return _fail("interrupted; a training run continues with --resume", 130)
    except (ValueError, OSError, RuntimeError, ArithmeticError) as error:
        if debug:
            raise
        return _fail(str(error), 2 if isinstance(error, SettingsError) else 1)
    return 0


def parse(name: str, settings_class: type[S], words: Sequence[str]) -> S:
    """Settings from the words behind a command; options win over the preset of ``--config``.

    Raises:
        UsageError: If an option, key or value is unknown or of the wrong type. It names the one
            that was meant, or those there are.
    """
    given, values, presets = _split(name, settings_class, words)
    parser = _parser(name, settings_class)
    for preset in presets:
        _check_preset(parser, settings_class, Path(preset))
    options = [f"--config={preset}" for preset in presets]
    options += [f"--{option}={value}" for option, value in given.items()]
    try:
        parsed = parser.parse_args(options)
    except ArgumentError as error:
        raise _culprit(parser, settings_class, given, str(error)) from None
    settings = {key: value for key, value in parsed.as_dict().items() if key != "config"}
    settings |= _positional(name, settings_class, values)
    try:
        return from_mapping(settings_class, settings, where="command line")
    except ValueError as error:
        raise UsageError(str(error)) from None


def _overview() -> str:
    return "\n".join(
        [
            "usage: relatum COMMAND [options]",
            "",
            "Contrastive representation learning: train, probe, report; mutual information.",
            "",
            "commands:",
            *_summaries(COMMANDS),
            "",
            "`relatum COMMAND --help` explains every option of a command.",
            "`relatum --version` tells the version; --debug shows the traceback of an error.",
            "",
            EXAMPLES,
            "",
            "exit codes: 0 done, 1 data or a run are not as they should be, 2 the command line is",
            "wrong, 130 interrupted",
        ]
    )


def _summaries(names: Collection[str]) -> list[str]:
    width = max(map(len, names))
    return [f"  {name:{width}}  {COMMANDS[name].summary}" for name in names]


def _only_first_word(words: Sequence[str]) -> bool:
    """Whether these are a word such as train, which says nothing yet of what, and no more."""
    return (
        words[0] not in COMMANDS
        and bool(_beginning(words[0]))
        and (len(words) == 1 or words[1] in ("-h", "--help"))
    )


def _beginning(word: str) -> list[str]:
    return [name for name in COMMANDS if name.startswith(f"{word} ")]


def _subjects(word: str) -> str:
    return "\n".join(
        [
            f"usage: relatum {word} SUBJECT [options]",
            "",
            *_summaries(_beginning(word)),
            "",
            f"`relatum {word} SUBJECT --help` explains every option.",
        ]
    )


def _command(words: Sequence[str]) -> tuple[str, list[str]]:
    for length in (2, 1):
        name = " ".join(words[:length])
        if name in COMMANDS:
            return name, list(words[length:])
    if subjects := _beginning(words[0]):
        tried = " ".join(words[:2])
        meant = nearest(tried, subjects) or subjects[0]
        raise UsageError(
            f"unknown command {tried!r}; did you mean {meant!r}? See relatum {words[0]} --help"
        )
    known = {word: name for name in reversed(COMMANDS) for word in (*name.split(), name)}
    near = known.get(nearest(" ".join(words[:2]), known) or nearest(words[0], known) or "")
    said = f"did you mean {near!r}? See" if near else "all are listed by"
    raise UsageError(f"unknown command {words[0]!r}; {said} relatum --help")


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _fields(settings_class: type) -> dict[str, dataclasses.Field[Any]]:
    """The fields that are options, by the option's name."""
    return {
        _dashed(field.name): field
        for field in dataclasses.fields(settings_class)
        if not field.metadata.get("positional")
    }


def _positional_field(settings_class: type) -> dataclasses.Field[Any] | None:
    fields = dataclasses.fields(settings_class)
    return next((field for field in fields if field.metadata.get("positional")), None)


def _parser(name: str, settings_class: type) -> ArgumentParser:
    """The parser of one command, derived from its settings."""
    docs, hints = field_docs(settings_class), typing.get_type_hints(settings_class)
    parser = ArgumentParser(
        prog=f"relatum {name}",
        usage=f"relatum {name} [options]",
        description=inspect.getdoc(settings_class),
        exit_on_error=False,
        print_config=None,
        formatter_class=HelpPage,
    )
    place = _positional_field(settings_class)
    if place is not None:
        word = place.name.rstrip("s").upper()
        many = "..." if typing.get_origin(hints[place.name]) is list else ""
        shown = f"[{word}]" if _may_lack(place) else f"{word}{many}"
        parser.usage = f"relatum {name} {shown} [options]"
        parser.epilog = f"{word}: {docs[place.name]}"
    parser.add_argument("--config", action="config", help="YAML preset; options win over it.")
    sections = COMMANDS[name].sections
    section: Any = parser
    for option, field in _fields(settings_class).items():
        if field.name in sections:
            section = parser.add_argument_group(sections[field.name])
        text = docs[field.name]
        if field.metadata.get("choices"):
            text += f" One of: {', '.join(field.metadata['choices'])}."
        text += kind_and_default(hints[field.name], field)
        default = None if field.default is dataclasses.MISSING else field.default
        text = text.replace("%", "%%")
        hint_of = hints[field.name]
        switch = {"metavar": "{true,false}"} if bool in union_types(hint_of) else {}
        section.add_argument(f"--{option}", type=hint_of, default=default, help=text, **switch)
    return parser


def _may_lack(place: dataclasses.Field[Any]) -> bool:
    return place.default is not dataclasses.MISSING


def _split(
    name: str, settings_class: type, words: Sequence[str]
) -> tuple[dict[str, str], list[str], list[str]]:
    """Options with their values, values without an option, and presets."""
    fields, hints = _fields(settings_class), typing.get_type_hints(settings_class)
    loose = _positional_field(settings_class) is not None
    switches = {
        option for option, field in fields.items() if bool in union_types(hints[field.name])
    }
    given: dict[str, str] = {}
    values, presets = [], []
    queue = list(words)
    while queue:
        word = queue.pop(0)
        if not word.strip():
            raise UsageError(f"one of the words after relatum {name} is empty")
        if not word.startswith("-") or word[1:2].isdigit():
            values.append(word)
            continue
        option, equals, value = word.removeprefix("--").partition("=")
        option = _dashed(option)
        if word.startswith("--") and option.removeprefix("no-") in switches:
            given[option.removeprefix("no-")] = _switch(option, equals, value, queue, loose)
            continue
        if not word.startswith("--") or (option not in fields and option != "config"):
            near = nearest(option, [*fields, "config"])
            meant = f"did you mean '--{near}'? See" if near else "all are listed by"
            raise UsageError(
                f"unknown option {word.split('=')[0]!r}; {meant} relatum {name} --help"
            )
        if not equals:
            if not queue or queue[0].startswith("--"):
                raise UsageError(f"option --{option} needs a value")
            value = queue.pop(0)
        if not value.strip():
            raise UsageError(f"option --{option} is empty; give it a value, or leave it out")
        if option == "config":
            presets.append(value)
        else:
            given[option] = value
    return given, values, presets


def _switch(option: str, equals: str, value: str, queue: list[str], loose: bool) -> str:
    """The value of an option that is on or off, in any of the accepted spellings.

    Where a command takes loose values, the next word is this option's only if it can be.
    """
    on = True
    follows = bool(queue) and not queue[0].startswith("-")
    if equals or (follows and (not loose or queue[0].lower() in WORDS)):
        text = value if equals else queue.pop(0)
        if text.lower() not in WORDS:
            raise UsageError(f"--{option} must be true or false, got {text!r}")
        on = WORDS[text.lower()]
    return str(on != option.startswith("no-")).lower()


def _check_preset(parser: ArgumentParser, settings_class: type, path: Path) -> None:
    """Raises UsageError, with the key, if a preset is not what the settings are."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read the preset {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"cannot read the preset {path}: it is not UTF-8 text") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise UsageError(f"{path}: expected `key: value` lines")
    names = [field.name for field in dataclasses.fields(settings_class)]
    hints = typing.get_type_hints(settings_class)
    for key, value in values.items():
        if key not in names:
            raise UsageError(f"{path}: unknown key {key!r}; {hint(str(key), names)}")
        if isinstance(value, str) and not value.strip():
            raise UsageError(f"{path}: {key} is empty; give it a value, or leave it out")
        try:
            # A key without a value is null, which only options with an open default may be.
            if value is None and types.NoneType not in union_types(hints[key]):
                raise ArgumentError(None, "null")
            parser.parse_object({key: value})
        except ArgumentError:
            expected = _expected(settings_class, key)
            raise UsageError(f"{path}: {key} must be {expected}, got {value!r}") from None


def _culprit(
    parser: ArgumentParser, settings_class: type, given: dict[str, str], message: str
) -> UsageError:
    """The error for the first option whose value does not have its type."""
    for option, value in given.items():
        try:
            parser.parse_args([f"--{option}={value}"])
        except ArgumentError:
            expected = _expected(settings_class, option.replace("-", "_"))
            return UsageError(f"--{option} must be {expected}, got {value!r}")
    return UsageError(" ".join(message.split()))


def _expected(settings_class: type, name: str) -> str:
    kinds = union_types(typing.get_type_hints(settings_class)[name])
    named = [ARTICLES.get(kind, "a path") for kind in kinds if kind is not types.NoneType]
    return " or ".join([*named, "null"] if types.NoneType in kinds else named)


def _positional(name: str, settings_class: type, values: list[str]) -> dict[str, Any]:
    place = _positional_field(settings_class)
    if place is None:
        if values:
            raise UsageError(f"unexpected {values[0]!r}; options of relatum {name} start with --")
        return {}
    kind = typing.get_type_hints(settings_class)[place.name]
    if typing.get_origin(kind) is list:
        return {place.name: [Path(value) for value in values]}
    if not values and _may_lack(place):
        return {}
    if len(values) != 1:
        raise UsageError(f"relatum {name} takes one {place.name.upper()}, got {len(values)}")
    return {place.name: Path(values[0]) if Path in union_types(kind) else values[0]}


def _show_warning(message: Warning | str, *details: Any, **more: Any) -> None:
    print(f"relatum: warning: {message}", file=sys.stderr)


def _fail(message: str, code: int) -> int:
    print(f"relatum: error: {' '.join(message.split())}", file=sys.stderr)
    return code
