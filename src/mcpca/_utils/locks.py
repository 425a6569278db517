"""A file that one process, or thread, has to itself as long as it lives."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]


class Busy(Exception):
    """Somebody else has the lock; the message says who."""


class Lock:
    """A lock beside ``path``, which the system takes back from a process that dies: none is ever stale.

    Where the system has no locks of files (Windows, some network drives) everybody gets it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(f".{path.name}.lock")
        self._handle: int | None = None

    def take(self) -> None:
        """Take the lock, or raise ``Busy``."""
        if fcntl is None:
            return
        while self._handle is None:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                owner = os.pread(handle, 20, 0).decode("ascii", "replace").strip()
                os.close(handle)
                if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                    raise Busy(f"process {owner}" if owner else "another process") from error
                return  # not supported here
            if self._is_there(handle):
                os.ftruncate(handle, 0)
                os.pwrite(handle, str(os.getpid()).encode(), 0)
                self._handle = handle
            else:  # whoever had it has deleted it meanwhile
                os.close(handle)

    def give_back(self) -> None:
        """Give the lock back, and leave no file."""
        if self._handle is not None:
            self.path.unlink(missing_ok=True)
            os.close(self._handle)
            self._handle = None

    def _is_there(self, handle: int) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(handle), os.stat(self.path))
        return False
