"""The policy for outputs: what may be written where, and what may be replaced. The writing is ``_utils.atomic_files``.

Checked twice: before any work is done, so that nobody computes for an hour in vain, and again when the output is
published, since another run may have written to the same place in between. Without ``--force`` nothing is replaced;
with it, only a folder that holds nothing but results of mcpca, what a killed run has left of some, and the little that
systems and office programs put into every folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any

from .._utils.atomic_files import (
    TargetExistsError,
    is_abandoned,
    parents_made,
    staged_file,
    staged_folder,
    staged_for,
)
from ._console import Failure, output_failure

RESULT_TABLES = (
    "components",
    "loadings",
    "corrected_loadings",
    "scores",
    "projection",
    "diagnostics",
    "scree",
    "rank",
    "solvers",
    "noise",
    "context_dependence",
    "features",
    "replicability",
    "loading_intervals",
)
# All that a folder of results can hold: a folder with anything else in it is never replaced.
RESULT_FILES = frozenset(
    {f"{name}.{suffix}" for name in RESULT_TABLES for suffix in ("csv", "parquet", "xlsx")}
    | {"diagnostics.json", "run.json", "model.mcpca", "report.html", "loadings.png", "rank.png", "rank.json"}
    | {"context_dependence.json", "evidence.json"}
    | {"comparison.html", "comparison.json", "matched_mcpcs.csv", "compared_loadings.csv", "changes.csv"}
)
# What systems and office programs leave in any folder that they have shown, or a file of which they have open.
_OF_OTHERS = (".DS_Store", "._*", "Thumbs.db", "ehthumbs.db", "desktop.ini", ".directory", ".~lock.*#", "~$*")
_HASH_CHUNK_BYTES = 2**20


def check_folder(path: Path, force: bool) -> None:
    """Raise, before any work is done, if a folder of results could not be put at ``path``."""
    # exists() is false for a link that points nowhere, and a folder cannot be put there either.
    if path.is_symlink() or path.exists():
        if not path.is_dir():
            raise output_failure(f"--out {path} is a file; choose a folder.")
        # Before the question of --force, which would not help with a folder of other things.
        _check_only_results(path)
        if any(path.iterdir()) and not force:
            raise output_failure(f"--out {path} exists; choose another folder, or replace it with --force.")
    _probe(path)


def check_file(path: Path, force: bool) -> None:
    """Raise, before any work is done, if a file could not be put at ``path``."""
    if path.is_dir():
        raise output_failure(f"--out {path} is a folder; name a file.")
    if path.exists() and not force:
        raise output_failure(f"--out {path} exists; choose another name, or replace it with --force.")
    _probe(path)


def _check_only_results(path: Path) -> None:
    """Raise if a folder holds anything that mcpca does not write, and which must therefore not be replaced."""
    foreign = sorted(file.name for file in path.iterdir() if not _is_replaceable(file))
    if foreign:
        raise output_failure(f"--out {path} holds {foreign[0]!r}, which mcpca did not write; choose another folder.")
    busy = [file.name for file in path.iterdir() if staged_for(file) is not None and not is_abandoned(file)]
    if busy:
        raise output_failure(f"another process is writing {busy[0]!r} in --out {path}; wait for it.")


def _is_replaceable(file: Path) -> bool:
    """Whether a file is a result, part of one that a killed process has left, or kept by a system or an office."""
    # Lower case: systems that write Thumbs.db also write thumbs.db.
    name = file.name.casefold()
    if file.name in RESULT_FILES or staged_for(file) in RESULT_FILES:
        return True
    # Files only: nothing of theirs is a folder.
    return file.is_file() and any(fnmatchcase(name, pattern.casefold()) for pattern in _OF_OTHERS)


def _remove_leftovers(path: Path) -> None:
    """Delete what killed runs have left beside ``path``: hidden files and folders for it that no process writes to."""
    for other in list(path.parent.iterdir()):
        if staged_for(other) != path.name or not is_abandoned(other):
            continue
        with suppress(OSError):
            if not other.is_dir():
                other.unlink()
            # The name alone is no proof for a folder: all that is in it must be ours.
            elif all(_is_replaceable(file) and file.is_file() for file in other.iterdir()):
                shutil.rmtree(other, ignore_errors=True)


def _probe(path: Path) -> None:
    """Make and remove a folder where ``path`` is to be: no other test covers permissions and full disks alike."""
    nearest_folder = path.absolute().parent
    # Folders on the way are made later, by ``parents_made``; here it is tested without leaving any behind.
    while not nearest_folder.exists():
        nearest_folder = nearest_folder.parent
    try:
        os.rmdir(tempfile.mkdtemp(dir=nearest_folder, prefix=f".{path.name}.", suffix=".tmp"))
    except OSError as error:
        raise output_failure(
            f"{path} cannot be written: nothing can be created in {nearest_folder} ({error.strerror})."
        ) from error


@contextmanager
def new_folder(path: Path, force: bool) -> Iterator[Path]:
    """Yield a folder to write into, which becomes ``path`` at the end; with ``force`` it replaces the one there.

    A failure leaves ``path`` as it was, and so does a folder that is there at the end without ``force``.
    """
    # The current folder may change before the end; the place of the output must not.
    path = path.absolute()
    with _failures_of(path), parents_made(path), staged_folder(path, replace=force) as staging:
        yield staging
        if force and path.exists():
            _check_only_results(path)  # something else may have been put there since ``check_folder``
    # Only after the new results are in place: what a run was killed at may have been the only copy of the old ones.
    if force:
        _remove_leftovers(path)


@contextmanager
def new_file(path: Path, force: bool) -> Iterator[Path]:
    """Yield a file to write, which becomes ``path`` at the end; with ``force`` it replaces the one there."""
    # Links are followed, so that a link stays one and what it points to is replaced.
    path = Path(os.path.realpath(path))
    with _failures_of(path), parents_made(path), staged_file(path, replace=force) as staging:
        yield staging
    if force:
        _remove_leftovers(path)


@contextmanager
def _failures_of(path: Path) -> Iterator[None]:
    """Turn errors of the file system into a ``Failure``."""
    try:
        yield
    # A failure of the body, about something else, is passed on; so is that of ``_check_only_results``.
    except Failure:
        raise
    except TargetExistsError as error:
        raise output_failure(
            f"--out {path} was written by another run meanwhile and is left as it is; nothing of this run is kept. "
            "Choose another --out, or replace it with --force."
        ) from error
    except OSError as error:
        raise output_failure(f"{path} cannot be written ({error.strerror or error}); nothing was changed.") from error


# Checksums ---------------------------------------------------------------------------------------------------------


def checksum(path: Path) -> dict[str, Any]:
    """Return size and SHA-256 of a file; for a folder, of the names and contents of its files in their order."""
    digest = hashlib.sha256()
    size = 0
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    for file in files:
        if path.is_dir():
            # With names, each closed by a zero byte, so that a file that is renamed changes the checksum. A single file
            # is hashed as sha256sum does it, by content alone.
            digest.update(f"{file.relative_to(path).as_posix()}\0".encode())
        with file.open("rb") as content:
            size += _feed(content, digest)
    return {"path": str(path.absolute()), "bytes": size, "sha256": digest.hexdigest()}


def checksums(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the checksums of several files."""
    return [checksum(path) for path in paths]


def _feed(content: IO[bytes], digest: Any) -> int:
    """Add a file to a digest; return its size."""
    size = 0
    # In chunks: inputs may be larger than the memory.
    while block := content.read(_HASH_CHUNK_BYTES):
        digest.update(block)
        size += len(block)
    return size
