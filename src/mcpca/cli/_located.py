"""Where the files of a recorded run are now.

Paths in ``run.json`` are relative to its folder, so that results and data that are moved together can be repeated where
they are; the folder itself is recorded beside them, for results that are moved alone. Records of earlier versions, and
files on another drive, have absolute paths. Files that were moved otherwise are named by ``mcpca repeat --data`` and
recognised by their SHA-256.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._utils.wording import quoted
from ._console import Failure
from ._outputs import checksum
from .tables import UnusableFileError, stdin
from .tables.kinds import file_kind

_DIGITS = 12  # of a checksum, in messages


def stored_path(path: Path, folder: Path | None) -> str:
    """Return a path as a record in ``folder`` has it: relative to it, or absolute if there is no way from there."""
    if path == stdin.STDIN:
        return str(path)
    if stdin.as_typed(path) == stdin.STDIN:  # its copy, which is gone at the end of the command
        return stdin.NAME
    absolute = os.path.abspath(path)
    if folder is None:
        return absolute
    try:
        return Path(os.path.relpath(absolute, os.path.abspath(folder))).as_posix()
    except ValueError:  # another drive
        return absolute


@dataclass(frozen=True)
class Located:
    """The files of a record: where each stored path is now, and checksums in the order of the record."""

    base: Path
    stored: list[str]
    moved: dict[str, Path]
    inputs: list[dict[str, Any]]

    def path(self, stored: str) -> Path:
        """Return where a file of the record is now."""
        if stored == str(stdin.STDIN):
            stored = stdin.NAME
        return self.moved.get(stored) or _joined(self.base, stored)

    def data(self, arguments: Sequence[str], others: Sequence[str] = ()) -> tuple[Path, ...]:
        """Return what to read for the recorded arguments; a folder whose files were moved is its files, in order.

        ``others`` are files of the record that are not data: labels, and lists of columns.
        """
        found: list[Path] = []
        for text in arguments:
            inside = [path for path in self.stored if path.startswith(f"{text.rstrip('/')}/") and path not in others]
            if any(path in self.moved for path in inside):
                found += [self.path(path) for path in inside]
            else:
                found.append(self.path(text))
        return tuple(found)


def locate(before: dict[str, Any], run: Path, data: Sequence[Path] = ()) -> Located:
    """Find the files that a recorded run has read, unchanged, or raise.

    Parameters
    ----------
    before : dict
        The record.
    run : Path
        Its file, or the folder it is in.
    data : sequence of Path
        Files, and folders to look in, for files that are no longer where they were; matched by checksum.
    """
    entries = before["inputs"]
    if not data and any(entry["path"] == stdin.NAME for entry in entries):
        raise UnusableFileError(
            run, "the run read stdin, which is not kept; save what was piped in, and name that file with --data FILE."
        )
    base = _base(before, run)
    hashed: dict[Path, dict[str, Any]] = {}
    candidates = _candidates(data)
    same = [_same_file(entry, candidates, hashed) for entry in entries]
    moved = {entry["path"]: new for entry, new in zip(entries, same, strict=True) if new is not None}
    # Files that are one of the run are not to blame for another.
    others = [path for path in candidates if path not in moved.values()]
    inputs = [
        _absolute(hashed[new]) if new is not None else _unmoved(entry, _joined(base, entry["path"]), run, data, others)
        for entry, new in zip(entries, same, strict=True)
    ]
    _check_used(data, set(moved.values()), run)
    _check_names(before, moved)
    return Located(base, [entry["path"] for entry in entries], moved, inputs)


def _joined(base: Path, stored: str) -> Path:
    return Path(os.path.normpath(base / stored))


def _base(before: dict[str, Any], run: Path) -> Path:
    """Return the folder that relative paths start from: where the record is, or where it was written."""
    folder = Path(os.path.abspath(run))
    here = folder if run.is_dir() else folder.parent
    # Here first: a copy of all that is moved elsewhere must not read the original. By a link or by its real name.
    bases = [here, Path(os.path.realpath(here))]
    if "folder" in before:
        bases.append(Path(before["folder"]))
    paths = [entry["path"] for entry in before["inputs"]]
    return next((base for base in bases if all(_joined(base, path).exists() for path in paths)), here)


def _candidates(data: Sequence[Path]) -> list[Path]:
    """Return the files that are named or lie in a folder that is; a Zarr store is one."""
    found: list[Path] = []
    for path in data:
        path = Path(os.path.abspath(path))
        if not path.exists():
            raise UnusableFileError(path, "there is no such file; name the new place of the data with --data.")
        if not path.is_dir() or file_kind(path).format == "zarr":
            found.append(path)
            continue
        for folder, folders, files in os.walk(path):
            stores = [name for name in folders if file_kind(Path(folder, name)).format == "zarr"]
            # Not into stores, which are one file of ours, nor into hidden folders.
            folders[:] = sorted(name for name in folders if name not in stores and not name.startswith("."))
            found += [Path(folder, name) for name in sorted([*files, *stores]) if not name.startswith(".")]
    return list(dict.fromkeys(found))


def _same_file(entry: dict[str, Any], candidates: list[Path], hashed: dict[Path, dict[str, Any]]) -> Path | None:
    """Return the candidate with the content of a recorded file, one of the same name if there is; None without any."""
    name = Path(entry["path"]).name
    for path in sorted(candidates, key=lambda path: path.name != name):
        # Most files of a folder are told apart by their size, without being read.
        if path.is_file() and path.stat().st_size != entry["bytes"]:
            continue
        if path not in hashed:
            hashed[path] = checksum(path)
        if hashed[path]["sha256"] == entry["sha256"]:
            return path
    return None


def _unmoved(entry: dict[str, Any], path: Path, run: Path, data: Sequence[Path], others: list[Path]) -> dict[str, Any]:
    """Return the checksum of a file that is where it was, or raise: it is gone, or it has changed."""
    if path.exists() and entry["path"] != stdin.NAME:
        now = checksum(path)
        if now["sha256"] == entry["sha256"]:
            return _absolute(now)
        # Files that are named stand for those of the record; if none was, the file in its place is the one to blame.
        if not data:
            raise Failure(f"{path} has changed ({_digests(now, entry)}); the run cannot be repeated.", 3, "input")
    elif not data:
        raise UnusableFileError(
            path, f"is not there any more; the run in {run} read it. Name its new place with --data."
        )
    name = Path(entry["path"]).name
    places = quoted([str(place) for place in data], 3)
    namesake = next((other for other in others if other.name == name), None)
    # One file that was named is meant, whatever it is called.
    if namesake is None and len(others) == len(data) == 1 and data[0].is_file():
        namesake = others[0]
    if namesake is not None:
        now = checksum(namesake)
        raise Failure(
            f"{namesake} is not {name!r} of the run in {run} ({_digests(now, entry)}); the run cannot be repeated.",
            3,
            "input",
        )
    raise Failure(
        f"--data {places}: {name!r} of the run in {run} was not found ({entry['bytes']:,} bytes, SHA-256 "
        f"{entry['sha256'][:_DIGITS]}).",
        3,
        "input",
    )


def _digests(now: dict[str, Any], then: dict[str, Any]) -> str:
    return f"SHA-256 {now['sha256'][:_DIGITS]} now, {then['sha256'][:_DIGITS]} then"


def _absolute(entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, "path": os.path.abspath(entry["path"])}


def _check_used(data: Sequence[Path], used: set[Path], run: Path) -> None:
    """Raise if a file or folder that was named holds nothing of the run."""
    for path in data:
        place = Path(os.path.abspath(path))
        if not any(file == place or place in file.parents for file in used):
            raise Failure(f"--data {path} has no file that the run in {run} read; drop it.", 3, "input")


def _check_names(before: dict[str, Any], moved: dict[str, Path]) -> None:
    """Raise if files whose names are those of contexts are called otherwise now."""
    reading = before["options"]["reading"]
    tables = [entry["path"] for entry in before["inputs"]]
    if reading["context"] or reading["labels"] is not None or len(tables) == 1:
        return
    for stored, path in moved.items():
        if Path(stored).name != path.name and not any(f"@{stored}" in reading[name] for name in ("features", "drop")):
            raise Failure(
                f"{path} was called {Path(stored).name!r} in the run, where contexts are named after files; give it "
                "that name again.",
                3,
                "input",
            )
