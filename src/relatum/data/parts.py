"""Which files and folders of a data set are its training part, and which its test part.

The parts are ``train`` and, in the order of preference, ``test``, ``val``, ``valid`` and
``validation``. A file belongs to the part that its folder below the root is named for, or else to
that which is a word of its name (``imagenet-train-00.tar``). Whatever is not used is noted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .decoding import DataError
from .folder import is_helper, list_class_folders, natural_key
from .listing import Listing

__all__ = ["Form", "Listed", "data_files", "folder_splits", "no_form", "pattern_splits"]

_TEST_NAMES = ("test", "val", "valid", "validation")  # in the order of preference
_PARTS = ("train", *_TEST_NAMES)
_NAMED = 3  # files that a note names; of the others it gives the number

Listed = tuple[Listing, Listing | None, str]
"""Training, test (None if the source has no such part), and a sentence about the split."""


class Form(NamedTuple):
    """A kind of file that holds many images."""

    listed: Callable[[list[Path], str], Listing]
    """The images of some files; the text names them in messages."""
    labelled: Callable[[list[Path]], bool]
    """Whether any of them is labelled."""


def folder_splits(root: Path, forms: Mapping[str, Form], *, allow_empty: bool) -> Listed:
    """The parts of a folder: class folders, or files of one of the forms.

    Args:
        root: The folder.
        forms: Known forms, by the ending of their files.
        allow_empty: Whether class folders may be empty.

    Raises:
        DataError: If it holds neither, or its parts contradict each other.
    """
    found = data_files(root, forms)
    train = root / "train"
    tests = [root / name for name in _TEST_NAMES if (root / name).is_dir()]
    paired = train.is_dir() and (tests or _folders(root) == [train])
    if paired and (not found or (_folders(train) and not _within(found, train))):
        return _class_splits(root, tests, allow_empty, found)
    if not found:
        return list_class_folders(root, allow_empty_classes=allow_empty), None, ""
    files = max(_choices(root, found, forms), key=lambda files: _rank(root, files))
    return _file_splits(root, files, forms[files[0].suffix.lower()], found)


def data_files(root: Path, endings: Collection[str]) -> list[Path]:
    """Files of some kinds in `root`, in data/ (as on dataset hubs), in train/ and in test/."""
    places = [root, root / "data", *(root / part for part in _PARTS)]
    found = [
        path
        for folder in places
        for path in (folder.iterdir() if folder.is_dir() else ())
        if path.suffix.lower() in endings and path.is_file() and not is_helper(path.name)
    ]
    return sorted(found, key=lambda path: natural_key(path.relative_to(root).as_posix()))


def pattern_splits(pattern: str, forms: Mapping[str, Form]) -> Listed:
    """The parts of the files that a pattern with braces means, ``DIR/train-{000..146}.tar``.

    Raises:
        DataError: If it means no files, some are missing, or they are of no known form.
    """
    files = list(dict.fromkeys(Path(name) for name in _expanded(pattern)))
    missing = [path for path in files if not path.is_file()]
    if not files:
        raise DataError(f"{pattern} means no file: a range goes up, as in {{000..146}}")
    if missing:
        raise DataError(
            f"{pattern} means {len(files)} files, of which {len(missing)} are missing; the first "
            f"is {missing[0]}"
        )
    endings = {path.suffix.lower() for path in files}
    if len(endings) > 1 or not endings <= set(forms):
        raise no_form(pattern, forms)
    root = Path(os.path.commonpath([path.parent for path in files]))
    return _file_splits(root, files, forms[endings.pop()], files)


def no_form(data: str, forms: Mapping[str, Form]) -> DataError:
    """The error for files of no known form."""
    return DataError(f"{data} is neither {' nor '.join(forms)} nor a folder")


def _expanded(pattern: str) -> list[str]:
    """What braces stand for: ``{000..146}`` for numbers of that width, ``{train,val}`` for words.

    Example:
        >>> _expanded("{train,val}-{09..10}.tar")
        ['train-09.tar', 'train-10.tar', 'val-09.tar', 'val-10.tar']
    """
    braces = re.search(r"\{([^{}]*)\}", pattern)
    if braces is None:
        return [pattern]
    before, inner, after = pattern[: braces.start()], braces[1], pattern[braces.end() :]
    ends = re.fullmatch("([0-9]+)[.][.]([0-9]+)", inner)
    words = inner.split(",")
    if ends:
        words = [f"{i:0{len(ends[1])}d}" for i in range(int(ends[1]), int(ends[2]) + 1)]
    return [name for word in words for name in _expanded(before + word + after)]


def _part(path: Path, root: Path) -> str | None:
    """The part a file belongs to; None if neither its folder below `root` nor its name says."""
    folders = path.relative_to(root).parts[:-1]
    words = re.split(r"[-_.]", path.stem.lower())
    said = [part for part in _PARTS if part in folders] or [
        part for part in _PARTS if part in words
    ]
    if len(said) > 1:
        raise DataError(
            f"{path} names two parts, {' and '.join(said)}: rename it, or put it into a folder "
            f"{said[0]}/ or {said[1]}/"
        )
    return said[0] if said else None


def _within(files: Sequence[Path], folder: Path) -> list[Path]:
    return [path for path in files if path.parent == folder]


def _folders(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir() and not is_helper(path.name)]


def _choices(root: Path, found: list[Path], endings: Collection[str]) -> Iterator[list[Path]]:
    """Files of one form that lie in one place: train/ and test folders, `root`, or data/."""
    for ending in endings:
        files = [path for path in found if path.suffix.lower() == ending]
        below = [path for path in files if path.parent.name in _PARTS and path.parent != root]
        places = [below, *(_within(files, folder) for folder in (root, root / "data"))]
        yield from filter(None, places)


def _rank(root: Path, files: Sequence[Path]) -> int:
    """Files that are named for training go before others, those of both parts before all."""
    parts = {_part(path, root) for path in files}
    return 2 * ("train" in parts) + bool(parts - {"train", None})


def _left_out(root: Path, files: Sequence[Path], why: str) -> list[str]:
    """A note on files that are not used, if there are any."""
    return [f"left out of {root}, {why}: {_names(root, files)}"] if files else []


def _names(root: Path, files: Sequence[Path]) -> str:
    names = ", ".join(path.relative_to(root).as_posix() for path in files[:_NAMED])
    return names + (f" and {len(files) - _NAMED} more" if len(files) > _NAMED else "")


def _class_splits(
    root: Path, tests: Sequence[Path], allow_empty: bool, found: Sequence[Path]
) -> Listed:
    """Class folders in train/, and in the first test folder that has such, too."""
    train = list_class_folders(root / "train", allow_empty_classes=allow_empty, within=root)
    train = train.noting(*_left_out(root, found, "class folders serve"))
    if not tests:
        return train, None, ""
    with_classes = [folder for folder in tests if _folders(folder)] if len(tests) > 1 else tests
    chosen = (with_classes or tests)[0]
    for folder in tests[: tests.index(chosen)]:
        passed = f"{folder} has no class folders, so it is left out"
        train = train.noting(f"{passed}: {chosen.name} is the test part")
    for folder in tests[tests.index(chosen) + 1 :]:
        train = train.noting(f"{folder} is left out: {chosen.name} is the test part")
    test = list_class_folders(
        chosen, classes=train.classes, allow_empty_classes=allow_empty, within=root
    )
    return train, test, f"own split of {root}: train/ and {chosen.name}/"


def _file_splits(root: Path, files: list[Path], form: Form, found: Sequence[Path]) -> Listed:
    """The parts that the files are named for; `found` are these and others, to be noted."""
    parts: dict[str | None, list[Path]] = {}
    for path in files:
        parts.setdefault(_part(path, root), []).append(path)
    used = set(files)
    notes = _left_out(root, [path for path in found if path not in used], "others serve")
    tests = [name for name in _TEST_NAMES if name in parts]
    unnamed = parts.get(None, [])
    if "train" in parts:
        notes += _left_out(root, unnamed, "their names say no part")
    elif tests and unnamed:
        taken = f"files of {root} whose names say no part are training"
        notes.append(f"{taken}: {_names(root, unnamed)}")
    elif len(tests) > 1:
        raise DataError(
            f"{root} has files of {' and '.join(tests)} but none of training: call those train-*, "
            "or give the path of one file"
        )
    elif tests:
        notes.append(f"{root} has no training files: those of {tests[0]} are split")
    training = parts.get("train") or unnamed
    if not tests or not training:
        return form.listed(training or files, str(root)).noting(*notes), None, ""
    train = form.listed(training, str(root / "train"))
    name = tests[0]
    if len(tests) > 1 and (train.labels >= 0).any():
        name = next((each for each in tests if form.labelled(parts[each])), name)
    for each in tests:
        why = f"{name} serves" if tests.index(each) > tests.index(name) else "which has no labels"
        notes += _left_out(root, parts[each], why) if each != name else []
    train, test = train.noting(*notes), form.listed(parts[name], str(root / name))
    return train, _same_classes(train, test), f"own split of {root}: train and {name}"


def _same_classes(train: Listing, test: Listing) -> Listing:
    """The test split with the training split's numbers of the classes."""
    if test.classes == train.classes:
        return test
    unknown = [name for name in test.classes if name not in train.classes]
    if unknown:
        raise DataError(f"{test.source} has classes that training has not: {', '.join(unknown)}")
    # The last entry serves the label -1, unlabelled.
    number = np.asarray([*(train.classes.index(name) for name in test.classes), -1])
    return replace(test, labels=number[test.labels], classes=train.classes)
