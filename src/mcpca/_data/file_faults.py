"""Faults of files that rows are read from: damaged chunks, and files that are cut short, closed or changed.

Every read from a file goes through ``reading``, which turns whatever a storage library raises into one line that says
what was read, what is wrong and what to do. A damaged chunk is named by file, dataset and number (``DamagedChunk``). A
file that changes while it is read would give rows of two versions, so each read compares the file with what it was when
the source was made (``FileState``).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._utils.types import Array


class FileFault(OSError):
    """A fault whose message says what to do, so that nothing has to be added but what was being read."""


class DamagedChunk(FileFault):
    """A chunk that cannot be decompressed, named by its file, dataset, number and rows."""

    def __init__(self, file: str, dataset: str, chunk: Sequence[int], rows: tuple[int, int], error: BaseException):
        number = int(chunk[0]) if len(chunk) == 1 else tuple(int(i) for i in chunk)
        entries = "entries" if len(chunk) == 1 else "rows"
        super().__init__(
            f"chunk {number} ({entries} {rows[0]} to {rows[1] - 1}) of dataset {dataset!r} in {file} is damaged "
            f"({type(error).__name__}: {error}). Copy or write the file again; the checkpoint of a fit, if it has one, "
            "is kept, and the fit goes on with a file of the same rows."
        )


class ChangedFile(FileFault):
    """A file that is not what it was when the fit began to read it."""

    def __init__(self, file: str, difference: str) -> None:
        super().__init__(
            f"{file} has changed since it was first read ({difference}), and rows of two versions would be mixed. "
            "Leave the file as it is during a fit, and fit again; the checkpoint of a fit, if it has one, is kept, and "
            "the fit goes on with a file of the same rows."
        )


@dataclass(frozen=True)
class FileState:
    """Size and time of a local HDF5 file that is open for reading only, which tell if it changes, and its inode."""

    path: str
    needed: int  # bytes that HDF5 says the file has
    size: int
    modified: int  # in nanoseconds
    inode: int

    @classmethod
    def of(cls, dataset: Any) -> FileState | None:
        """Return the state of a dataset's file; None if it is no such file, and cannot be told to have changed."""
        file: Any = getattr(dataset, "file", None)
        # sec2 is the driver of plain local files; with others there may be no file on disk to compare with. A file that
        # is being written changes by the user's own hand, and may be longer in memory than on disk.
        if getattr(file, "mode", None) != "r" or getattr(file, "driver", None) != "sec2":
            return None
        try:
            found = os.stat(file.filename)
        except FileNotFoundError:  # deleted while open, or opened by a path from another folder
            return None
        return cls(
            os.path.abspath(file.filename),
            int(file.id.get_filesize()),
            found.st_size,
            found.st_mtime_ns,
            found.st_ino,
        )

    def check(self) -> None:
        """Raise if the file has become another one. Cost: one call of the system."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError as error:
            raise ChangedFile(self.path, "it is gone") from error
        # HDF5 returns zeros from beyond the end of a file that was cut short while open.
        if found.st_size < self.needed:
            raise OSError(f"the file has {found.st_size} of its {self.needed} bytes")
        if (found.st_size, found.st_mtime_ns) == (self.size, self.modified):
            return  # not by its inode alone, which some drives make up anew each time
        if found.st_ino != self.inode:
            raise ChangedFile(self.path, "another file has taken its place")
        if found.st_size != self.size:
            raise ChangedFile(self.path, f"it had {self.size} bytes and has {found.st_size}")
        raise ChangedFile(self.path, "it was written to")


@contextmanager
def reading(where: str, what: str, *datasets: Any, state: FileState | None = None) -> Iterator[None]:
    """Turn whatever a storage library raises into an OSError that says what was read and what to do.

    ``datasets`` are looked at before, since h5py still knows the shape of a dataset whose file is closed; ``state`` is
    compared with the file afterwards, whether the read was a success or not.
    """
    try:
        for dataset in datasets:
            # The truth of an h5py dataset is whether its file is open; arrays of Zarr have no such thing.
            if hasattr(type(dataset), "__bool__") and not dataset:
                raise OSError("the file is closed")
        try:
            yield
        except Exception:
            # A chunk that is being written looks damaged, and the file is what has to be told of.
            if state is not None:
                state.check()
            raise
        if state is not None:
            state.check()
    # Nothing is wrong with the file, and the advice below would mislead.
    except MemoryError:
        raise
    except FileFault as error:
        raise OSError(f"{where}: {what} could not be read: {error}") from error
    except Exception as error:  # every codec and every store has its own
        raise OSError(
            f"{where}: {what} could not be read ({type(error).__name__}: {error}). The file may be cut short, damaged, "
            "or closed: keep it open during the fit, and copy or write it again if it cannot be read."
        ) from error


def read_rows(dataset: Any, first: int, stop: int) -> Array:
    """Return ``dataset[first:stop]``; if that fails because of a chunk, the error names it."""
    try:
        return np.asarray(dataset[first:stop])
    except (MemoryError, FileFault):
        raise
    except Exception:
        # Libraries do not say which chunk it was, so each one is read by itself.
        _find_damage(dataset, first, stop)
        raise


def _find_damage(dataset: Any, first: int, stop: int) -> None:
    """Raise ``DamagedChunk`` for the first chunk with some of these rows that cannot be read, if there is any."""
    chunks = getattr(dataset, "chunks", None)
    # Once the file is closed no chunk can be read, and none is to blame.
    if not chunks or (hasattr(type(dataset), "__bool__") and not dataset):
        return
    counts = [-(-n // length) for n, length in zip(dataset.shape, chunks, strict=True)]
    bands = range(first // chunks[0], -(-stop // chunks[0]))
    for chunk in itertools.product(bands, *(range(count) for count in counts[1:])):
        begins = [i * length for i, length in zip(chunk, chunks, strict=True)]
        ends = [min(a + length, n) for a, length, n in zip(begins, chunks, dataset.shape, strict=True)]
        try:
            dataset[tuple(slice(a, b) for a, b in zip(begins, ends, strict=True))]
        except Exception as error:
            raise DamagedChunk(file_of(dataset), str(dataset.name), chunk, (begins[0], ends[0]), error) from error


def file_of(dataset: Any) -> str:
    """Return the path of a dataset's file, or the address of its Zarr store."""
    file = getattr(dataset, "file", None)
    if file is not None:
        return str(os.path.abspath(file.filename))
    store = getattr(dataset, "store", None)
    return str(getattr(store, "root", store))
