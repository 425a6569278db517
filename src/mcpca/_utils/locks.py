"""A lock on a file, for one process, or one thread, at a time; a checkpoint holds one while its fit is alive."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

_OWNER_BYTES = 20  # read of a lock that is taken: the number of its process, in digits


class Busy(Exception):
    """Somebody else has the lock; the message says who."""


class Lock:
    """A lock in a file beside ``path``, which the system releases when a process dies: none is ever stale.

    Where the system has no locks on files (Windows, some network drives) everybody gets it.
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
                # flock belongs to the open file and not to the process, so that it also keeps threads apart.
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                owner = os.pread(handle, _OWNER_BYTES, 0).decode("ascii", "replace").strip()
                os.close(handle)
                if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                    raise Busy(f"process {owner}" if owner else "another process") from error
                return  # this drive has no locks
            if self._is_current(handle):
                os.ftruncate(handle, 0)
                os.pwrite(handle, str(os.getpid()).encode(), 0)
                self._handle = handle
            else:
                # Between our open and our flock its owner has deleted the file. Ours has no name any more, so that the
                # next one to come would make, and lock, another: try again with that.
                os.close(handle)

    def give_back(self) -> None:
        """Release the lock, and leave no file."""
        if self._handle is not None:
            # In this order: once it is released, the file at this path may be the next owner's.
            self.path.unlink(missing_ok=True)
            os.close(self._handle)
            self._handle = None

    def _is_current(self, handle: int) -> bool:
        """Whether the open file is still the one at the path."""
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(handle), os.stat(self.path))
        return False
