"""Files of arrays with a JSON header: written as a whole or not at all, and read without running code."""

from __future__ import annotations

import io
import json
import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from ._check import Array
from .label_kinds import labels_to_json

VERSION = 1
_HEADER = "header"
# What a file that is not whole makes of its readers; RuntimeError is "encrypted" and "compression not supported".
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, struct.error, RuntimeError),
    *(ValueError, KeyError, EOFError, OSError, AttributeError, TypeError),
)


def write_file(path: Any, kind: str, arrays: dict[str, Array], header: dict[str, Any]) -> None:
    """Write arrays and a JSON header to ``path``; a crash on the way leaves the old file as it was."""
    text = json.dumps({"format": kind, "version": VERSION, **header})

    def write(file: IO[bytes]) -> None:
        np.savez(file, **{_HEADER: np.frombuffer(text.encode(), dtype=np.uint8)}, **arrays)  # type: ignore[arg-type]

    replace_file(path, write)


def replace_file(path: Any, write: Callable[[IO[bytes]], Any]) -> None:
    """Put what ``write`` writes at ``path``, as a whole: a crash on the way leaves the old file, or none."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path={str(path)!r}: the folder {str(path.parent)!r} does not exist; create it first.")
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # that of a new file; temporary ones are for their owner alone
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    """Return what this process takes off the permissions of new files; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def read_file(path: Any, kind: str, content_name: str, writer: str) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read what ``write_file`` wrote; no code can run from the file.

    Errors call it ``content_name``, and ``writer`` is who writes such files.
    """
    path = Path(path)
    content = path.read_bytes()
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop(_HEADER).tobytes().decode())
        if header["format"] != kind:
            raise KeyError(f"format {header['format']!r} and not {kind!r}")
    except _DAMAGED as error:
        raise ValueError(
            f"path={str(path)!r} is not a complete {content_name} ({len(content)} bytes; {type(error).__name__}: "
            f"{error}). It may be truncated or another kind of file; pass what {writer} wrote."
        ) from error
    if header["version"] > VERSION:
        raise ValueError(
            f"path={str(path)!r} has format version {header['version']} and this mcpca reads up to {VERSION}; upgrade "
            "mcpca."
        )
    return arrays, header


def names_to_json(names: Array | None) -> list[Any] | None:
    """Names as JSON values, which ``label_kinds.labels_from_json`` reads."""
    return None if names is None else labels_to_json(names.tolist())
