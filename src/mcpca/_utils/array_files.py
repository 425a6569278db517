"""Our file format: arrays and a JSON header in one .npz, written atomically and read without running code.

Models (``_estimator/persistence.py``), moments and checkpoints (``_covariances``) are such files; they differ in the
"format" of the header and in the arrays. The header is stored as an array of bytes, so that ``np.load`` opens the files
too. Arrays are stored, not compressed: no file can then hold more than its size, which bounds the memory of a reader.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np

from .atomic_files import replace_file
from .npz import NpzArchive, NpzError
from .types import Array

FILE_VERSION = 1  # of the layout; a reader refuses files with a higher one
_HEADER = "header"


def write_file(path: Any, kind: str, arrays: dict[str, Array], header: dict[str, Any]) -> None:
    """Write arrays and a JSON header to ``path``; a crash on the way leaves the old file as it was."""
    text = json.dumps({"format": kind, "version": FILE_VERSION, **header})

    def write(file: IO[bytes]) -> None:
        # As np.savez does, which before NumPy 2 leaves the archive open where writing fails, and complains of it later.
        with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
            for name, array in {_HEADER: np.frombuffer(text.encode(), dtype=np.uint8), **arrays}.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)

    replace_file(path, write)


def read_file(
    path: Any, kind: str, content_name: str, writer: str, members: Callable[[dict[str, Any]], Iterable[str]]
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read what ``write_file`` wrote.

    Parameters
    ----------
    path : path-like
    kind : str
        The "format" that the header must have.
    content_name, writer : str
        For errors: what such a file is, and which function writes it.
    members : callable
        Given the header, names the arrays to read; those that the file lacks are skipped.

    Returns
    -------
    arrays : dict of str to array
    header : dict
    """
    # Outside the ``try``: a missing file stays the OSError it is, and is not called damaged.
    path = Path(path)
    size = path.stat().st_size
    try:
        with NpzArchive(path, stored=True) as archive:
            header = _decoded_header(archive.read(_HEADER))
            if header.get("format") != kind:
                # Texts of the file are cut: a hostile one could otherwise fill the screen.
                raise NpzError(f"its format is {str(header.get('format'))[:40]!r} and not {kind!r}")
            version = header.get("version")
            if not isinstance(version, int) or version < 1:
                raise NpzError(f"its format version is {str(version)[:40]!r}")
            # A ValueError and not an NpzError: nothing is wrong with the file, so it must not be called damaged below.
            if version > FILE_VERSION:
                raise ValueError(
                    f"path={str(path)!r} has format version {version} and this mcpca reads up to {FILE_VERSION}; "
                    "upgrade mcpca."
                )
            # Which arrays have to be there is for the caller to check. Those that were not asked for are never read.
            arrays = {name: archive.read(name) for name in members(header) if name in archive.names}
    except NpzError as error:
        raise ValueError(
            f"path={str(path)!r} is not a complete {content_name} ({size} bytes; {error}). It may be truncated or "
            f"another kind of file; pass what {writer} wrote."
        ) from error
    return arrays, header


def read_header(path: Path) -> dict[str, Any] | None:
    """Return the header of one of our files, or None for any other .npz; a damaged one raises ``NpzError``."""
    with NpzArchive(path) as archive:
        # Ours are never compressed; a compressed one would have to be unpacked only to see that it is not ours.
        if _HEADER not in archive.names or not archive.is_stored(_HEADER):
            return None
        try:
            return _decoded_header(archive.read(_HEADER))
        except NpzError:  # somebody else's array of that name
            return None


def _decoded_header(array: Array) -> dict[str, Any]:
    if array.dtype != np.uint8 or array.ndim != 1:
        raise NpzError(f"its header is {array.dtype} of shape {array.shape} and not text")
    try:
        # RecursionError: deeply nested lists, which no header has. ValueError includes text that is not UTF-8.
        header = json.loads(array.tobytes().decode())
    except (ValueError, RecursionError) as error:
        raise NpzError(f"its header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise NpzError("its header is not a JSON object")
    return header
