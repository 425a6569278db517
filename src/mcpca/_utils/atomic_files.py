"""Files and folders that appear whole or not at all: written beside their place, and renamed at the end.

The one mechanism for everything the package writes. ``staged_file`` and ``staged_folder`` are its context managers;
``replace_file`` is the short form for one open file. The command line puts its policy on top (``cli/_outputs.py``: what
may be replaced, which exit code), ``array_files`` our file format.

Staging names are hidden and lie in the folder of the target, since a rename is atomic within one file system only.
Without ``replace`` nothing is ever replaced, not even a file that appeared while this one was being written: publishing
is a single operation of the file system that fails if the target exists, so that of two writers exactly one succeeds.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

_FRESH_SECONDS = 2  # after which a writer has locked what it has made
_ABANDONED_SECONDS = 24 * 3600  # without a change, where no lock can tell whether a process is still writing


class TargetExistsError(FileExistsError):
    """Something has appeared at the target while its content was being written, and must not be replaced."""


def prepare_folder(output: Path) -> None:
    """Make the folder ``output``, or raise an OSError, before any work is done, if it could not be written to."""
    if output.exists() and not output.is_dir():
        raise NotADirectoryError("it is a file")
    output.mkdir(parents=True, exist_ok=True)
    if not os.access(output, os.W_OK | os.X_OK):
        raise PermissionError("no permission to write")


# Files -------------------------------------------------------------------------------------------------------------


def replace_file(path: Any, write: Callable[[IO[bytes]], Any]) -> None:
    """Put what ``write`` writes to an open file at ``path``; a crash on the way leaves the old file, or none.

    A symbolic link stays one: what it points to is replaced. A file that was there keeps its permissions.
    """
    path = Path(path)
    # Before the link is followed: the message should name the path as it was passed.
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path={str(path)!r}: the folder {str(path.parent)!r} does not exist; create it first.")
    # Replacing ``path`` itself would turn a link into a file, and leave what it points to as it was.
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"path={str(path)!r} is a link to {str(target)!r}, and the folder {str(target.parent)!r} does not exist; "
            "create it, or delete the link."
        )
    with staged_file(target, replace=True) as staging, staging.open("wb") as file:
        write(file)


@contextmanager
def staged_file(path: Path, *, replace: bool) -> Iterator[Path]:
    """Yield the path of an empty file beside ``path``, which becomes ``path`` once the body has written to it.

    Parameters
    ----------
    path : Path
        Symbolic links are followed, so that a link stays one.
    replace : bool
        Whether a file at ``path`` may be replaced; its permissions are kept. If not, a file that is there when the
        body has ended raises ``TargetExistsError``.
    """
    target = Path(os.path.realpath(path))
    staging, handle = file_beside(target)
    # The body opens the file by its path, as libraries want it.
    os.close(handle)
    in_use = _claimed(staging)
    try:
        mode = _mode_of(target) if replace else None
        if mode is not None:
            # Before anything is written, so that a private file is private while it is being rewritten as well.
            # A read-only file must be writeable until it is complete.
            os.chmod(staging, mode | stat.S_IWUSR)
        yield staging
        # Content first, then permissions, then the name: at no time is there a file at the target that is incomplete.
        _sync_to_disk(staging)
        if mode is not None:
            os.chmod(staging, mode)
        if replace:
            os.replace(staging, target)
        else:
            _publish_new_file(staging, target)
    # Also on KeyboardInterrupt: nothing is left beside the target.
    except BaseException:
        staging.unlink(missing_ok=True)
        raise
    finally:
        _release(in_use)


def _publish_new_file(staging: Path, target: Path) -> None:
    """Rename ``staging`` to ``target``, or raise ``TargetExistsError`` if there is anything."""
    try:
        os.link(staging, target)  # unlike a rename, a link never replaces
    except FileExistsError as error:
        raise TargetExistsError(f"{target} exists") from error
    except OSError:
        # A file system without hard links: reserve the name with an empty file, then rename onto that.
        try:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError as error:
            raise TargetExistsError(f"{target} exists") from error
        os.replace(staging, target)
    else:
        staging.unlink()


# Folders -----------------------------------------------------------------------------------------------------------


@contextmanager
def staged_folder(path: Path, *, replace: bool) -> Iterator[Path]:
    """Yield an empty folder beside ``path``, which becomes ``path`` once the body has filled it with files.

    Parameters
    ----------
    path : Path
        Absolute.
    replace : bool
        Whether a folder at ``path`` may be replaced, with all that is in it. If not, a folder that is there when the
        body has ended, and is not empty, raises ``TargetExistsError``.
    """
    staging = name_beside(path)
    # The mode that a new folder gets here by the umask is noted, and set again once the folder is complete.
    staging.mkdir()
    final_mode = stat.S_IMODE(staging.stat().st_mode)
    staging.chmod(0o700)  # unfinished results are nobody else's business
    in_use = _claimed(staging)
    try:
        yield staging
        for file in staging.iterdir():
            _sync_to_disk(file)
        staging.chmod(final_mode)
        if replace and path.exists():
            _swap_folders(staging, path)
        else:
            _publish_new_folder(staging, path)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    finally:
        _release(in_use)


def _publish_new_folder(staging: Path, target: Path) -> None:
    """Rename ``staging`` to ``target``, or raise ``TargetExistsError`` if there is more than an empty folder."""
    target = target.resolve()
    _remove_if_empty(target)  # not every system renames onto an empty folder
    try:
        os.rename(staging, target)
    except OSError as error:
        if target.exists():
            raise TargetExistsError(f"{target} exists") from error
        raise


def _swap_folders(staging: Path, target: Path) -> None:
    """Put ``staging`` in the place of the folder ``target``, which is deleted once the new one is in place.

    Two renames: folders cannot be replaced in one. Whatever goes wrong between them, the old folder is put back.
    """
    target = target.resolve()
    old = name_beside(target)
    try:
        os.rename(target, old)
        os.rename(staging, target)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        # Either the old folder was never moved, and ``old`` does not exist, or the new one is in place already and only
        # the deletion was interrupted. Otherwise the name is empty, and the old folder goes back.
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.rename(old, target)
        raise


@contextmanager
def parents_made(path: Path) -> Iterator[None]:
    """Make the folders above ``path``, and remove those that are still empty if the body fails."""
    # Noted before any is made: folders that existed are never removed. ``parents`` begins with the innermost.
    missing = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for folder in missing:  # the innermost first
            _remove_if_empty(folder)
        raise


# Names beside a target, and what a killed process leaves -------------------------------------------------------------


def name_beside(target: Path) -> Path:
    """Return a hidden name in the folder of ``target`` for what is to take its place."""
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")


def file_beside(target: Path) -> tuple[Path, int]:
    """Create a file of such a name, open for writing; unlike those of ``tempfile`` it has a new file's permissions."""
    while True:
        staging = name_beside(target)
        with suppress(FileExistsError):
            # O_EXCL fails if the name is taken, even by a dangling link; the loop then draws another one.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            return staging, os.open(staging, flags, 0o666)


def remove_leftovers(path: Path) -> None:
    """Delete staging files for ``path`` that a killed process has left; nobody may be writing to it meanwhile."""
    for other in path.parent.iterdir():
        if staged_for(other) == path.name:
            other.unlink(missing_ok=True)


def staged_for(path: Path) -> str | None:
    """Return the name of the target that a staging name is for; None for any other name."""
    # Earlier versions made these names with ``tempfile``, whose alphabet is wider than the hexadecimal of today.
    match = re.fullmatch(r"\.(.+)\.[a-z0-9_]{8}\.tmp", path.name, re.DOTALL)
    return None if match is None else match[1]


def is_abandoned(path: Path) -> bool:
    """Whether a staging file or folder is ours and no process is writing to it any more.

    A writer holds a lock on it, which the system gives back when the process dies. Where files cannot be locked
    (Windows, some network drives), it is abandoned if nothing in it has changed for a day.
    """
    try:
        state = path.lstat()
        if stat.S_ISLNK(state.st_mode) or (hasattr(os, "getuid") and state.st_uid != os.getuid()):
            return False
        if state.st_mtime > time.time() - _FRESH_SECONDS:
            return False
        if fcntl is not None:
            handle = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except OSError as error:
                if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                    return False
            finally:
                os.close(handle)
        inside = path.rglob("*") if path.is_dir() else ()
        latest = max(float(other.lstat().st_mtime) for other in (path, *inside))
        return latest < time.time() - _ABANDONED_SECONDS
    except OSError:  # it has gone meanwhile, or is not ours to look at
        return False


def _claimed(staging: Path) -> int | None:
    """Lock a staging file or folder for as long as it is written to, where the system can."""
    if fcntl is None:
        return None
    with suppress(OSError):
        handle = os.open(staging, os.O_RDONLY)
        # Without waiting: nobody else knows the name, and a drive that cannot lock says so.
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return handle
    return None


def _release(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)


def _mode_of(path: Path) -> int | None:
    """Return the permissions of a file, or None if there is none."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(path.stat().st_mode)
    return None


def _sync_to_disk(file: Path) -> None:
    """Wait until a file is on disk: a rename may otherwise survive a power failure that its content does not."""
    with file.open("r+b") as opened:
        os.fsync(opened.fileno())


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
