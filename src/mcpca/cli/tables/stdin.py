"""Rows or labels from stdin, which commands name by "-": kept in a temporary file, since tables are read in passes.

Messages and records call the file "stdin" (``told``), and not by its path, which is gone once the command ends.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from ._errors import UnusableFileError

STDIN = Path("-")
NAME = "stdin"
_COPY_BYTES = 2**20
# The one folder with what has come from stdin, while a command runs; removed with it, or by Python at its end.
_kept: list[tempfile.TemporaryDirectory[str]] = []


def is_terminal() -> bool:
    """Whether nothing is piped in, so that reading would wait for somebody to type."""
    return sys.stdin is None or sys.stdin.closed or sys.stdin.isatty()


def forget() -> None:
    """Remove what an earlier command in this process has read."""
    while _kept:
        _kept.pop().cleanup()


def opened(path: Path) -> Path:
    """Return the file to read for ``path``: itself, or a copy of stdin, which is read at the first call."""
    if path != STDIN:
        return path
    if not _kept:
        folder = tempfile.TemporaryDirectory(prefix="mcpca-")
        _kept.append(folder)
        try:
            with (Path(folder.name) / NAME).open("wb") as copy:
                shutil.copyfileobj(sys.stdin.buffer, copy, _COPY_BYTES)
        except OSError as error:
            raise UnusableFileError(NAME, f"cannot be copied to {tempfile.gettempdir()} ({error.strerror}).") from error
    return Path(_kept[0].name) / NAME


def as_typed(path: Path) -> Path:
    """Return what stands for a file on a command line: itself, or "-" for the copy of stdin."""
    return STDIN if any(path == Path(folder.name) / NAME for folder in _kept) else path


def told(text: str) -> str:
    """Return a text in which the copy is called "stdin"."""
    for folder in _kept:
        text = text.replace(str(Path(folder.name) / NAME), NAME)
    return text
