"""Files of arrays with a JSON header: written as a whole or not at all, and read without running code."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np

from .atomic_files import replace_file
from .npz import NpzArchive, NpzError
from .types import Array

VERSION = 1
_HEADER = "header"


def write_file(path: Any, kind: str, arrays: dict[str, Array], header: dict[str, Any]) -> None:
    """Write arrays and a JSON header to ``path``; a crash on the way leaves the old file as it was."""
    text = json.dumps({"format": kind, "version": VERSION, **header})

    def write(file: IO[bytes]) -> None:
        np.savez(file, **{_HEADER: np.frombuffer(text.encode(), dtype=np.uint8)}, **arrays)  # type: ignore[arg-type]

    replace_file(path, write)


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
