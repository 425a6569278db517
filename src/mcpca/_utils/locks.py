"""A lock on a file, held by one thread of one process at a time. A fit holds the lock of its checkpoint."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

_OWNER_BYTES = 20  # to read from a lock that is taken: the digits of its owner's process id


class Busy(Exception):
    """The lock is taken; the message says by whom."""


class Lock:
    """A lock file beside ``path``. The system releases it when its process dies, so that it is never stale.

    If the system cannot lock files (Windows, some network drives) everybody gets the lock.
    """

    def __init__(self, path: Path) -> None:
        # A file of its own: the checkpoint is replaced by renaming, and a lock on it would stay with the old file.
        self.path = path.with_name(f".{path.name}.lock")
        self._handle: int | None = None

    def take(self) -> None:
        """Take the lock, or raise ``Busy``."""
        if fcntl is None:
            return
        while self._handle is None:
            # Not truncated on opening: whoever holds the lock has written its process id there.
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                # flock applies to an open file and not to a process, so it also works between threads.
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                owner = os.pread(handle, _OWNER_BYTES, 0).decode("ascii", "replace").strip()
                os.close(handle)
                if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                    raise Busy(f"process {owner}" if owner else "another process") from error
                return  # not supported on this drive
            if self._is_current(handle):
                # A process that died may have left a longer number.
                os.ftruncate(handle, 0)
                os.pwrite(handle, str(os.getpid()).encode(), 0)
                self._handle = handle
            else:
                # The owner deleted the file between our open and our flock. The one we hold has no name any more, so
                # that others would create and lock a new one: start again with that.
                os.close(handle)

    def give_back(self) -> None:
        """Release the lock, and leave no file."""
        if self._handle is not None:
            # In this order: once the lock is released, the file at this path may belong to the next owner.
            self.path.unlink(missing_ok=True)
            os.close(self._handle)
            self._handle = None

    def _is_current(self, handle: int) -> bool:
        """Whether the open file is still the one at the path."""
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(handle), os.stat(self.path))
        return False
