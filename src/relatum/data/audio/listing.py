"""Which sounds there are: a folder or a tar, in the layout of LibriSpeech or any other.

A file ``<speaker>-<chapter>-<number>.flac`` is LibriSpeech's: its stem is its id, and its speaker
the first number. Any other file has its path below the root as id, without the ending, and the
first folder below the root as speaker; a table may say otherwise.
"""

from __future__ import annotations

import csv
import os
import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ..folder import is_helper, natural_key
from ..images import DataError
from .reading import Place

__all__ = ["SOUND_SUFFIXES", "ListedSound", "list_sounds", "read_ids", "read_speakers"]

SOUND_SUFFIXES = frozenset(".wav .flac .ogg .oga .opus .mp3 .aif .aiff .au".split())
"""Lower-case endings that count as sounds; the comparison ignores case."""

_LIBRISPEECH = re.compile(r"(\d+)-\d+-\d+")


@dataclass(frozen=True)
class ListedSound:
    """One sound before it is opened: id, speaker ("" where nobody says) and place."""

    id: str
    speaker: str
    place: Place


def list_sounds(
    roots: Sequence[Path],
    *,
    speakers: Mapping[str, str] | None = None,
    only: Iterable[str] | None = None,
) -> tuple[list[ListedSound], tuple[str, ...]]:
    """The sounds of folders and tars, in natural order of their ids, and notes on what was ignored.

    Args:
        roots: Folders, ``.tar`` files (not compressed: parts of them are read), single sounds.
        speakers: Speaker of each id; a sound that it lacks is an error.
        only: Keep these ids alone; an id that is not there is an error.

    Raises:
        DataError: If a root is missing, of another kind or without sounds, two sounds share an id,
            or an id of `speakers` or `only` is missing; the message names it.

    """
    ignored: Counter[str] = Counter()
    found: dict[str, ListedSound] = {}
    for root in roots:
        before = len(found)
        for name, place in _places(root, ignored):
            sound = _listed(name, place)
            if sound.id in found:
                raise DataError(
                    f"two sounds have the id {sound.id}: {found[sound.id].place} and {place}; "
                    "leave out one of them, or give their folders by name"
                )
            found[sound.id] = sound
        if len(found) == before:
            raise DataError(f"{root} holds no sounds ({', '.join(sorted(SOUND_SUFFIXES))})")
    kept = list(found) if only is None else _chosen(only, found)
    if speakers is not None:
        _chosen(kept, speakers, "the table of speakers lacks")
        found = {key: ListedSound(key, speakers[key], found[key].place) for key in kept}
    order = sorted(kept, key=natural_key)
    notes = tuple(f"ignored: {what} ({n})" for what, n in sorted(ignored.items()))
    return [found[key] for key in order], notes


def read_ids(path: Path) -> list[str]:
    """One id a line; blank lines, line endings of any system and a byte-order mark do not count.

    Raises:
        DataError: If the file is missing or holds no id.
    """
    ids = [line.strip() for line in _text(path).splitlines() if line.strip()]
    if not ids:
        raise DataError(f"{path} holds no ids; one a line is needed")
    return ids


def read_speakers(path: Path) -> dict[str, str]:
    """Speaker of each id from a CSV file with the columns ``file`` and ``speaker``.

    ``file`` is the id: the path below the root without its ending, or LibriSpeech's utterance id.
    An ending and backslashes are forgiven.

    Raises:
        DataError: If the file is missing, lacks a column, or gives an id twice or no speaker.
    """
    rows = list(csv.DictReader(_text(path).splitlines()))
    table: dict[str, str] = {}
    for number, row in enumerate(rows, 2):
        missing = [name for name in ("file", "speaker") if not (row.get(name) or "").strip()]
        if missing:
            raise DataError(f"{path} line {number}: no {missing[0]}; columns: file, speaker")
        name = PurePosixPath(row["file"].strip().replace("\\", "/"))
        key = str(name.with_suffix("") if name.suffix.lower() in SOUND_SUFFIXES else name)
        if key in table:
            raise DataError(f"{path} line {number}: {key} is given twice")
        table[key] = row["speaker"].strip()
    if not table:
        raise DataError(f"{path} holds no rows; a CSV with the columns file,speaker is needed")
    return table


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from None


def _chosen(
    ids: Iterable[str], known: Mapping[str, object], complaint: str = "there is no sound"
) -> list[str]:
    ids = list(ids)
    if missing := [key for key in ids if key not in known]:
        more = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
        raise DataError(f"{complaint} {missing[0]!r}{more}")
    return ids


def _listed(name: str, place: Place) -> ListedSound:
    path = PurePosixPath(name)
    if match := _LIBRISPEECH.fullmatch(path.stem):
        return ListedSound(path.stem, match[1], place)
    speaker = path.parts[0] if len(path.parts) > 1 else ""
    return ListedSound(str(path.with_suffix("")), speaker, place)


def _places(root: Path, ignored: Counter[str]) -> Iterator[tuple[str, Place]]:
    """Names below the root, with their places."""
    if root.is_dir():
        return _in_folder(root, ignored)
    if not root.exists():
        raise DataError(f"there is no file or folder {root}")
    if root.suffix.lower() in SOUND_SUFFIXES:
        return iter([(root.name, Place(root))])
    if root.name.lower().endswith((".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")):
        raise DataError(
            f"{root} is compressed, and parts of it are read during training: unpack it once"
        )
    if root.suffix.lower() != ".tar":
        raise DataError(f"{root} is neither a folder nor a .tar nor a sound")
    return _in_tar(root, ignored)


def _in_folder(root: Path, ignored: Counter[str]) -> Iterator[tuple[str, Place]]:
    for place, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not is_helper(name)]
        for name in files:
            path = Path(place) / name
            if _counts(name, ignored):
                yield path.relative_to(root).as_posix(), Place(path)


def _in_tar(root: Path, ignored: Counter[str]) -> Iterator[tuple[str, Place]]:
    """The members; a single folder that holds all of them does not name their speakers."""
    try:
        with tarfile.open(root, "r:") as archive:
            members = [member for member in archive if member.isfile()]
    except (tarfile.TarError, OSError) as error:
        raise DataError(f"{root} cannot be read as a tar ({error})") from error
    names = [PurePosixPath(member.name) for member in members]
    common = len({name.parts[0] for name in names}) == 1
    for member, name in zip(members, names, strict=True):
        helper = any(is_helper(part) for part in name.parts)
        if not helper and _counts(name.name, ignored):
            below = PurePosixPath(*name.parts[1:]) if common and len(name.parts) > 1 else name
            place = Place(root, member.name, member.offset_data, member.size)
            yield str(below), place


def _counts(name: str, ignored: Counter[str]) -> bool:
    if is_helper(name):
        return False
    suffix = Path(name).suffix
    if suffix.lower() in SOUND_SUFFIXES:
        return True
    ignored[f"files that are not sounds, {suffix or 'no ending'}"] += 1
    return False
