"""1-D datasets of HDF5 whose bytes are in the file as they are: read from there, by several threads at a time.

HDF5 itself lets one thread in at a time, and h5py keeps Python's lock meanwhile.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from .._utils.types import Array


class DirectDataset:
    """A 1-D dataset of h5py whose chunks of ``length`` entries are at ``offsets`` (in bytes) of its file.

    Slices of it are read past HDF5; what else is asked of a dataset is answered by ``dataset``.
    """

    def __init__(self, dataset: Any, length: int, offsets: Array) -> None:
        self._dataset, self._length, self._offsets = dataset, length, offsets
        self.shape, self.dtype, self.chunks = dataset.shape, dataset.dtype, dataset.chunks

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
        handle, size = self.file.id.get_vfd_handle(), self.dtype.itemsize
        while first < stop:
            chunk, inside = divmod(first, self._length)
            n = min(self._length - inside, stop - first)
            done = len(out) - (stop - first)
            _fill(handle, out[done : done + n].data.cast("B"), int(self._offsets[chunk]) + inside * size)
            first += n
        return out


def _fill(handle: int, to: memoryview, offset: int) -> None:
    while len(to):
        n = os.preadv(handle, [to], offset)
        if not n:
            raise OSError("the file ends before the entries that it should have")
        to, offset = to[n:], offset + n


def direct(dataset: Any) -> Any:
    """Return a dataset of h5py that can be read past HDF5, and any other as it is.

    It can where entries are plain numbers in a local file that is only read, and are stored without compression or
    any other filter, all of them.
    """
    if not hasattr(os, "preadv") or not hasattr(getattr(dataset, "id", None), "get_offset"):
        return dataset
    file, stored = dataset.file, dataset.id.get_create_plist()
    plain = dataset.dtype.isnative and dataset.dtype.kind in "iuf" and dataset.ndim == 1
    local = file.driver == "sec2" and file.mode == "r" and not file.swmr_mode and file.userblock_size == 0
    if not (plain and local) or stored.get_nfilters() or stored.get_external_count():
        return dataset
    if dataset.chunks is None:
        offset = dataset.id.get_offset()
        return dataset if offset is None else DirectDataset(dataset, max(dataset.shape[0], 1), np.array([offset]))
    length = dataset.chunks[0]
    offsets = np.full(-(-dataset.shape[0] // length), -1, dtype=np.int64)

    def note(chunk: Any) -> None:
        offsets[chunk.chunk_offset[0] // length] = -1 if chunk.filter_mask else chunk.byte_offset

    if not hasattr(dataset.id, "chunk_iter"):  # of older libraries
        return dataset
    dataset.id.chunk_iter(note)
    return dataset if (offsets < 0).any() else DirectDataset(dataset, length, offsets)
