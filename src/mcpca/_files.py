"""Files of arrays with a JSON header: written as a whole or not at all, and read without running code."""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from ._check import Array
from ._npz import NpzArchive, NpzError
from .label_kinds import labels_from_json, labels_to_json

VERSION = 1
_HEADER = "header"


def write_file(path: Any, kind: str, arrays: dict[str, Array], header: dict[str, Any]) -> None:
    """Write arrays and a JSON header to ``path``; a crash on the way leaves the old file as it was."""
    text = json.dumps({"format": kind, "version": VERSION, **header})

    def write(file: IO[bytes]) -> None:
        np.savez(file, **{_HEADER: np.frombuffer(text.encode(), dtype=np.uint8)}, **arrays)  # type: ignore[arg-type]

    replace_file(path, write)


def replace_file(path: Any, write: Callable[[IO[bytes]], Any]) -> None:
    """Put what ``write`` writes at ``path``, as a whole: a crash on the way leaves the old file, or none.

    A link stays one: what it points to is replaced. A file that was there keeps its permissions.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path={str(path)!r}: the folder {str(path.parent)!r} does not exist; create it first.")
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"path={str(path)!r} is a link to {str(target)!r}, and the folder {str(target.parent)!r} does not exist; "
            "create it, or delete the link."
        )
    temporary, handle = file_beside(target)
    try:
        with os.fdopen(handle, "wb") as file:
            with suppress(FileNotFoundError):
                os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def name_beside(target: Path) -> Path:
    """Return a name in the same folder for what is to take the place of ``target``."""
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")


def file_beside(target: Path) -> tuple[Path, int]:
    """Create such a file, with the permissions that any new file gets, and open it for writing."""
    while True:
        temporary = name_beside(target)
        with suppress(FileExistsError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            return temporary, os.open(temporary, flags, 0o666)


def remove_leftovers(path: Path) -> None:
    """Delete what writing to ``path`` left where a process was killed; nobody may be writing to it meanwhile."""
    name = re.compile(re.escape(f".{path.name}.") + r"[a-z0-9_]{8}\.tmp")
    for other in path.parent.iterdir():
        if name.fullmatch(other.name):
            other.unlink(missing_ok=True)


def read_file(
    path: Any, kind: str, content_name: str, writer: str, members: Callable[[dict[str, Any]], Iterable[str]]
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read what ``write_file`` wrote: the header, and of the arrays that ``members`` of it names those that are there.

    No code can run from the file, and memory is bounded by its size. Errors call it ``content_name``, and ``writer`` is
    who writes such files.
    """
    path = Path(path)
    size = path.stat().st_size
    try:
        with NpzArchive(path, stored=True) as archive:
            header = _json(archive.read(_HEADER))
            if header.get("format") != kind:
                raise NpzError(f"its format is {str(header.get('format'))[:40]!r} and not {kind!r}")
            version = header.get("version")
            if not isinstance(version, int) or version < 1:
                raise NpzError(f"its format version is {str(version)[:40]!r}")
            if version > VERSION:
                raise ValueError(
                    f"path={str(path)!r} has format version {version} and this mcpca reads up to {VERSION}; upgrade "
                    "mcpca."
                )
            arrays = {name: archive.read(name) for name in members(header) if name in archive.names}
    except NpzError as error:
        raise ValueError(
            f"path={str(path)!r} is not a complete {content_name} ({size} bytes; {error}). It may be truncated or "
            f"another kind of file; pass what {writer} wrote."
        ) from error
    return arrays, header


def read_header(path: Path) -> dict[str, Any] | None:
    """Return the JSON header of a file of ours, or None where an .npz has none; a damaged one raises ``NpzError``."""
    with NpzArchive(path) as archive:
        if _HEADER not in archive.names or not archive.is_stored(_HEADER):
            return None
        try:
            return _json(archive.read(_HEADER))
        except NpzError:  # another array of that name
            return None


def _json(array: Array) -> dict[str, Any]:
    if array.dtype != np.uint8 or array.ndim != 1:
        raise NpzError(f"its header is {array.dtype} of shape {array.shape} and not text")
    try:
        header = json.loads(array.tobytes().decode())
    except (ValueError, RecursionError) as error:
        raise NpzError(f"its header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise NpzError("its header is not a JSON object")
    return header


def names_to_json(names: Array | None) -> list[Any] | None:
    """Names as JSON values, which ``label_kinds.labels_from_json`` reads."""
    return None if names is None else labels_to_json(names.tolist())


def checked_names(names: Any, what: str) -> list[Any]:
    """Return names that ``names_to_json`` wrote, or raise where they are no list of different names."""
    if not isinstance(names, list):
        raise ValueError(f"{what} is no list of names")
    twice = [name for name, n in Counter(map(repr, names)).items() if n > 1]
    if twice:
        raise ValueError(f"{what} has {twice[0][:40]} more than once")
    try:
        return labels_from_json(names)
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise ValueError(f"{what} has a name that cannot be read ({error})") from error
