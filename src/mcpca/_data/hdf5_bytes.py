"""Datasets of HDF5, read straight from the bytes of the file by several threads.

HDF5 itself serves one thread at a time, and h5py holds Python's lock meanwhile. ``disk`` reads rows, and the data and
indices of sparse matrices, through ``direct``: what is stored as it is goes straight to its place (``DirectDataset``),
what is compressed is decoded by threads (``CompressedDataset``), and all that is remote, open for writing or compressed
in ways that ``chunk_codecs`` does not know is left to h5py.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._utils.types import Array
from .chunk_codecs import Undo, hdf5_steps
from .compressed_chunks import ChunkedRows, Stored


class DirectDataset:
    """A dataset of h5py, (n,) or (n, p), whose chunks of ``length`` whole rows are at ``offsets`` bytes of its file.

    Slices are read past HDF5; for the rest it looks like ``dataset``.
    """

    def __init__(self, dataset: Any, length: int, offsets: Array) -> None:
        self._dataset = dataset
        self._length = length
        self._offsets = offsets
        self.shape = dataset.shape
        self.dtype = dataset.dtype
        self.chunks = dataset.chunks
        self.name = dataset.name

    @property
    def file(self) -> Any:
        """The file that it is in."""
        return self._dataset.file

    def __bool__(self) -> bool:
        """Whether its file is open."""
        return bool(self._dataset)

    def __getitem__(self, part: slice) -> Array:
        first, stop, _ = part.indices(self.shape[0])
        out = np.empty((max(stop - first, 0), *self.shape[1:]), dtype=self.dtype)
        # Asked for at each read: once the file is closed, the system may give the same number to another file.
        handle = self.file.id.get_vfd_handle()
        size = self.dtype.itemsize * math.prod(self.shape[1:])
        # Chunk by chunk: chunks may be anywhere in the file, and within one the rows are contiguous.
        while first < stop:
            chunk, inside = divmod(first, self._length)
            n = min(self._length - inside, stop - first)
            done = len(out) - (stop - first)
            # Straight into the result, without a bytes object in between; Python's lock is released meanwhile.
            to = out[done : done + n].reshape(-1).view(np.uint8)
            _fill(handle, to.data, int(self._offsets[chunk]) + inside * size)
            first += n
        return out


class ChunkIndex(NamedTuple):
    """Where chunks are in the file, by number of the chunk in C order: (n_chunks,) each.

    ``offsets`` and ``sizes`` are in bytes, the offset of a chunk that was never written is -1. A bit of ``masks`` that
    is set says that the filter of that number was not applied to the chunk.
    """

    offsets: Array
    sizes: Array
    masks: Array


class CompressedDataset(ChunkedRows):
    """A dataset of h5py whose chunks are read past HDF5, and whose filters ``steps`` undo."""

    def __init__(self, dataset: Any, index: ChunkIndex, steps: Sequence[Undo]) -> None:
        super().__init__(dataset)
        self._index = index
        self._steps = steps

    @property
    def file(self) -> Any:
        """The file that it is in."""
        return self._dataset.file

    def __bool__(self) -> bool:
        """Whether its file is open."""
        return bool(self._dataset)

    def _opened(self) -> int:
        return int(self.file.id.get_vfd_handle())

    def _stored(self, opened: int, chunk: tuple[int, ...]) -> Stored | None:
        number = int(np.ravel_multi_index(chunk, self._grid))
        offset = int(self._index.offsets[number])
        if offset < 0:
            return None
        content = np.empty(int(self._index.sizes[number]), dtype=np.uint8)
        _fill(opened, content.data, offset)
        mask = int(self._index.masks[number])
        return Stored(
            content, [step for i, step in enumerate(self._steps) if not mask >> i & 1] if mask else self._steps
        )


def _fill(handle: int, to: memoryview, offset: int) -> None:
    """Fill ``to`` with the bytes of a file from ``offset`` on; a read may return fewer bytes than asked for."""
    while len(to):
        n = os.preadv(handle, [to], offset)  # moves no file position that threads would share
        if not n:
            raise OSError("the file ends before the entries that it should have")
        to = to[n:]
        offset += n


def direct(dataset: Any) -> Any:
    """Return a dataset of h5py as one that is read past HDF5 if it can be, and anything else as it is.

    It can if its entries are plain numbers in a local file that is open for reading only, and all filters of its
    chunks, if it has any, are known to ``chunk_codecs``.
    """
    if not hasattr(os, "preadv") or not hasattr(getattr(dataset, "id", None), "get_offset"):
        return dataset
    file = dataset.file
    stored = dataset.id.get_create_plist()
    # Bytes are taken as they are, so their order must be that of this machine.
    plain = dataset.dtype.isnative and dataset.dtype.kind in "iuf" and dataset.ndim in (1, 2)
    # The handle of other drivers need not be a file descriptor, and what is being written may not be on disk yet. With
    # a user block, addresses need not count from the start of the file.
    local = file.driver == "sec2" and file.mode == "r" and not file.swmr_mode and file.userblock_size == 0
    if not (plain and local) or stored.get_external_count():
        return dataset
    # Contiguous: like a single chunk. It has no offset if nothing was ever written to it.
    if dataset.chunks is None:
        offset = dataset.id.get_offset()
        return dataset if offset is None else DirectDataset(dataset, max(dataset.shape[0], 1), np.array([offset]))
    if not hasattr(dataset.id, "chunk_iter"):  # older versions of HDF5
        return dataset
    filters = [stored.get_filter(i) for i in range(stored.get_nfilters())]
    steps = hdf5_steps([(number, values) for number, _, values, _ in filters])
    if steps is None:
        return dataset
    index = _chunk_index(dataset)
    # -1 stands for chunks that are not in the file (never written, so all fill value).
    in_rows = dataset.chunks[1:] == dataset.shape[1:]
    if not steps and in_rows and (index.offsets >= 0).all():
        return DirectDataset(dataset, dataset.chunks[0], index.offsets)
    return CompressedDataset(dataset, index, steps)


def _chunk_index(dataset: Any) -> ChunkIndex:
    # One walk over the index of chunks; to ask for each chunk by number would search the index every time.
    chunks = dataset.chunks
    grid = tuple(-(-n // length) for n, length in zip(dataset.shape, chunks, strict=True))
    n = math.prod(grid)
    index = ChunkIndex(np.full(n, -1, dtype=np.int64), np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64))

    def note(chunk: Any) -> None:
        place = tuple(begin // length for begin, length in zip(chunk.chunk_offset, chunks, strict=True))
        # A dataset that was made smaller may have chunks beyond its end.
        if all(i < count for i, count in zip(place, grid, strict=True)):
            number = np.ravel_multi_index(place, grid)
            index.offsets[number], index.sizes[number] = chunk.byte_offset, chunk.size
            index.masks[number] = chunk.filter_mask

    dataset.id.chunk_iter(note)
    return index
