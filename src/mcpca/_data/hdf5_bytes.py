"""Uncompressed 1-D datasets of HDF5, read straight from the bytes of the file by several threads.

HDF5 itself serves one thread at a time, and h5py holds Python's lock meanwhile. ``disk`` reads the data and indices of
sparse matrices through ``direct``, which falls back to h5py for all that is compressed, remote or open for writing.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from .._utils.types import Array


class DirectDataset:
    """A 1-D dataset of h5py whose chunks of ``length`` entries are at ``offsets`` (in bytes) of its file.

    Slices are read past HDF5; for the rest it looks like ``dataset``.
    """

    def __init__(self, dataset: Any, length: int, offsets: Array) -> None:
        self._dataset = dataset
        self._length = length
        self._offsets = offsets
        self.shape = dataset.shape
        self.dtype = dataset.dtype
        self.chunks = dataset.chunks

    @property
    def file(self) -> Any:
        """The file that it is in."""
        return self._dataset.file

    def __bool__(self) -> bool:
        """Whether its file is open."""
        return bool(self._dataset)

    def __getitem__(self, part: slice) -> Array:
        first, stop, _ = part.indices(self.shape[0])
        out = np.empty(max(stop - first, 0), dtype=self.dtype)
        # Asked for at each read: once the file is closed, the system may give the same number to another file.
        handle = self.file.id.get_vfd_handle()
        size = self.dtype.itemsize
        # Chunk by chunk: chunks may be anywhere in the file, and within one the entries are contiguous.
        while first < stop:
            chunk, inside = divmod(first, self._length)
            n = min(self._length - inside, stop - first)
            done = len(out) - (stop - first)
            # Straight into the result, without a bytes object in between; Python's lock is released meanwhile.
            _fill(handle, out[done : done + n].data.cast("B"), int(self._offsets[chunk]) + inside * size)
            first += n
        return out


def _fill(handle: int, to: memoryview, offset: int) -> None:
    """Fill ``to`` with the bytes of a file from ``offset`` on; a read may return fewer bytes than asked for."""
    while len(to):
        n = os.preadv(handle, [to], offset)  # moves no file position that threads would share
        if not n:
            raise OSError("the file ends before the entries that it should have")
        to = to[n:]
        offset += n


def direct(dataset: Any) -> Any:
    """Return a dataset of h5py as ``DirectDataset`` if it can be read past HDF5, and anything else as it is.

    It can if its entries are plain numbers in a local file that is open for reading only, and all of its chunks are
    stored without compression or any other filter.
    """
    if not hasattr(os, "preadv") or not hasattr(getattr(dataset, "id", None), "get_offset"):
        return dataset
    file = dataset.file
    stored = dataset.id.get_create_plist()
    # Bytes are taken as they are, so their order must be that of this machine.
    plain = dataset.dtype.isnative and dataset.dtype.kind in "iuf" and dataset.ndim == 1
    # The handle of other drivers need not be a file descriptor, and what is being written may not be on disk yet. With
    # a user block, addresses need not count from the start of the file.
    local = file.driver == "sec2" and file.mode == "r" and not file.swmr_mode and file.userblock_size == 0
    if not (plain and local) or stored.get_nfilters() or stored.get_external_count():
        return dataset
    # Contiguous: like a single chunk. It has no offset if nothing was ever written to it.
    if dataset.chunks is None:
        offset = dataset.id.get_offset()
        return dataset if offset is None else DirectDataset(dataset, max(dataset.shape[0], 1), np.array([offset]))
    # -1 stands for chunks that are not in the file (never written, so all fill value), or that a filter was applied to.
    length = dataset.chunks[0]
    offsets = np.full(-(-dataset.shape[0] // length), -1, dtype=np.int64)

    def note(chunk: Any) -> None:
        offsets[chunk.chunk_offset[0] // length] = -1 if chunk.filter_mask else chunk.byte_offset

    if not hasattr(dataset.id, "chunk_iter"):  # older versions of HDF5
        return dataset
    # One walk over the index of chunks; to ask for each chunk by number would search the index every time.
    dataset.id.chunk_iter(note)
    return dataset if (offsets < 0).any() else DirectDataset(dataset, length, offsets)
