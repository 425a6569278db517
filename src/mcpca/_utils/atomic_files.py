"""Files that are written as a whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any


def prepare_folder(output: Path) -> None:
    """Make the folder ``output``; raise OSError, before any work is done, when nothing could be written to it."""
    if output.exists() and not output.is_dir():
        raise NotADirectoryError("it is a file")
    output.mkdir(parents=True, exist_ok=True)
    if not os.access(output, os.W_OK | os.X_OK):
        raise PermissionError("no permission to write")


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
