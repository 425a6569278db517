"""Outputs appear whole or not at all: written beside their place, and renamed at the end.

What has come to that place meanwhile, from another run say, is not replaced unless that was asked for: a rename that
replaces nothing is one step of the file system, so that of two runs one fails, whenever they started.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from .._utils.atomic_files import file_beside, name_beside
from ._console import Failure, output_failure

TABLES = ("components", "loadings", "scores", "projection", "diagnostics", "scree", "rank", "noise")
# All that a folder of results can hold: only such a folder is ever replaced.
OURS = frozenset(
    {f"{name}.{suffix}" for name in TABLES for suffix in ("csv", "parquet")}
    | {"diagnostics.json", "run.json", "model.mcpca", "report.html", "loadings.png", "rank.png", "rank.json"}
)
_CHUNK = 2**20


def check_folder(path: Path, force: bool) -> None:
    """Raise, before any work is done, where a folder of results could not be put at ``path``."""
    if path.is_symlink() or path.exists():
        if not path.is_dir():
            raise output_failure(f"--out {path} is a file; choose a folder.")
        inside = _only_ours(path)
        if inside and not force:
            raise output_failure(f"--out {path} exists; choose another folder, or replace it with --force.")
    _probe(path)


def _only_ours(path: Path) -> list[str]:
    """Return what is in a folder; raise where anything is not from here, and must not be replaced."""
    inside = sorted(p.name for p in path.iterdir())
    foreign = [name for name in inside if name not in OURS]
    if foreign:
        raise output_failure(f"--out {path} holds {foreign[0]!r}, which is not mcpca's; choose another folder.")
    return inside


def check_file(path: Path, force: bool) -> None:
    """Raise where a file could not be put at ``path``."""
    if path.is_dir():
        raise output_failure(f"--out {path} is a folder; name a file.")
    if path.exists() and not force:
        raise output_failure(f"--out {path} exists; choose another name, or replace it with --force.")
    _probe(path)


def _probe(path: Path) -> None:
    """Make and remove a folder where ``path`` is to be: the one test that tells of permissions and full disks."""
    near = path.absolute().parent
    while not near.exists():
        near = near.parent
    try:
        os.rmdir(tempfile.mkdtemp(dir=near, prefix=f".{path.name}.", suffix=".tmp"))
    except OSError as error:
        raise output_failure(f"{path} cannot be written: {near} takes no files ({error.strerror}).") from error


@contextmanager
def new_folder(path: Path, force: bool) -> Iterator[Path]:
    """Give a folder to write into, which becomes ``path`` at the end; with ``force`` in place of what is there.

    A failure leaves ``path`` as it was; so does a folder that is there at the end without ``force``.
    """
    path = path.absolute()
    with _as_failure(path):
        made = [p for p in path.parents if not p.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        staging = name_beside(path)
        staging.mkdir()
        mode = stat.S_IMODE(staging.stat().st_mode)
        staging.chmod(0o700)  # what is unfinished is for nobody else
        try:
            yield staging
            for file in staging.iterdir():
                _settle(file)
            staging.chmod(mode)
            if force and path.exists():
                _swap(staging, path)
            else:
                _put_folder(staging, path)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            for parent in made:  # the nearest first; only what is empty goes
                _remove_empty(parent)
            raise


@contextmanager
def new_file(path: Path, force: bool) -> Iterator[Path]:
    """Give a file to write, which becomes ``path`` at the end, and with ``force`` takes the place of what is there."""
    path = Path(os.path.realpath(path))  # a link stays one
    with _as_failure(path):
        made = [p for p in path.parents if not p.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary, handle = file_beside(path)
        os.close(handle)
        try:
            yield temporary
            _settle(temporary)
            if force:
                os.replace(temporary, path)
            else:
                _put_file(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            for parent in made:
                _remove_empty(parent)
            raise


def _put_folder(staging: Path, path: Path) -> None:
    """Rename ``staging`` to ``path``, where there may be an empty folder and nothing else."""
    path = path.resolve()
    _remove_empty(path)  # not every system renames onto an empty folder; one that is not empty stays
    try:
        os.rename(staging, path)
    except OSError as error:
        if path.exists():
            raise _taken(path) from error
        raise


def _put_file(staging: Path, path: Path) -> None:
    """Rename ``staging`` to ``path``, where there may be nothing."""
    try:
        os.link(staging, path)  # unlike a rename it never replaces
    except FileExistsError as error:
        raise _taken(path) from error
    except OSError:  # a file system without links: an empty file takes the place first
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError as error:
            raise _taken(path) from error
        os.replace(staging, path)
    else:
        staging.unlink()


def _taken(path: Path) -> Failure:
    return output_failure(
        f"--out {path} was written by another run meanwhile, and is as that run left it; nothing of this one is kept. "
        "Choose another --out, or replace it with --force."
    )


def _swap(staging: Path, path: Path) -> None:
    """Put ``staging`` at ``path``; the old folder there goes when the new one is in place."""
    _only_ours(path)  # by now
    path = path.resolve()
    old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"))
    old.rmdir()  # only the name is needed: not every system renames onto an empty folder
    try:
        os.rename(path, old)
        os.rename(staging, path)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        if path.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.rename(old, path)
        raise


def _settle(path: Path) -> None:
    """Make sure that a file is on disk."""
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def _remove_empty(path: Path) -> None:
    with suppress(OSError):
        path.rmdir()


@contextmanager
def _as_failure(path: Path) -> Iterator[None]:
    try:
        yield
    except Failure:
        raise
    except OSError as error:
        raise output_failure(f"{path} cannot be written ({error.strerror or error}); nothing was changed.") from error


def checksum(path: Path) -> dict[str, Any]:
    """Return size and SHA-256 of a file; of a folder, those of its files one after the other with their names."""
    digest, size = hashlib.sha256(), 0
    inside = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    for file in inside:
        if path.is_dir():
            digest.update(f"{file.relative_to(path).as_posix()}\0".encode())
        with file.open("rb") as content:
            size += _feed(content, digest)
    return {"path": str(path.absolute()), "bytes": size, "sha256": digest.hexdigest()}


def checksums(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the checksums of several files."""
    return [checksum(path) for path in paths]


def _feed(content: IO[bytes], digest: Any) -> int:
    size = 0
    while block := content.read(_CHUNK):
        digest.update(block)
        size += len(block)
    return size
