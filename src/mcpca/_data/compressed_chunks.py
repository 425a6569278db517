"""Rows of a dataset that is stored in chunks, decoded by threads and not by the library that opened it.

HDF5 serves one thread at a time, and Zarr hands each chunk from task to task; most of what a compressed file costs is
decompression, which threads share if each takes a chunk. ``hdf5_bytes`` and ``zarr_bytes`` say where the bytes of a
chunk are, ``chunk_codecs`` how they are decoded; here they are put together to consecutive rows.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from .._utils.parallel import each, n_workers
from .._utils.types import Array
from .chunk_codecs import Undo, decode
from .file_faults import DamagedChunk, FileFault, file_of

# Bytes of decoded chunks that are kept for the next reads, by dataset. Reads do not end where chunks do, so that each
# would decode a chunk of its neighbour again; with threads, a few reads are under way at a time.
_KEPT_BYTES = 2**24
# Bytes below which a read is not worth starting threads for.
_WORTHWHILE_BYTES = 2**19
# Bytes of decoded chunks that a thread takes at a time: handing over a single small chunk costs as much as decoding it.
_TURN_BYTES = 2**18


class Stored(NamedTuple):
    """The bytes of a chunk as they are in the file, and the steps to undo."""

    content: Any
    steps: Sequence[Undo]


class ChunkedRows(ABC):
    """A dataset of plain numbers, (n,) or (n, p), of which slices of rows are read chunk by chunk.

    Chunks of which all is wanted are decoded where they belong in the result; of others the result takes a part, and
    the last few are kept. Memory beside the result: for each thread a chunk, stored and decoded, and 16 MB of chunks
    that are kept, or one chunk if that is larger; and what ``keep_first`` is told to keep.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.shape: tuple[int, ...] = dataset.shape
        self.dtype: np.dtype[Any] = np.dtype(dataset.dtype)
        self.chunks: tuple[int, ...] = dataset.chunks
        self.name = str(dataset.name)
        # Chunks along each axis; those at the end may reach beyond it, and are stored whole.
        self._grid = tuple(-(-n // length) for n, length in zip(self.shape, self.chunks, strict=True))
        self._kept = _RecentChunks(_KEPT_BYTES)
        # Rows of chunks, from the first on, of which all are kept.
        self._n_first = 0
        self._first = _RecentChunks(0)
        self._narrow = self.dtype

    def keep_first(self, n_bytes: int, largest: int) -> None:
        """Keep chunks from the first on, once they are decoded, up to so many bytes: for rows that are read repeatedly.

        Of those that were read last none would be there any more when the next reading begins. Whole numbers up to
        ``largest``, as all should be, are kept in as few bytes as that takes.
        """
        self._narrow = np.min_scalar_type(largest)
        n_first = n_bytes // (math.prod(self.chunks) * math.prod(self._grid[1:]) * self._narrow.itemsize)
        if n_first != self._n_first:
            self._n_first = n_first
            self._first = _RecentChunks(n_bytes)

    @abstractmethod
    def _opened(self) -> Any:
        """Return what ``_stored`` needs during one read, such as the number of an open file."""

    @abstractmethod
    def _stored(self, opened: Any, chunk: tuple[int, ...]) -> Stored | None:
        """Return a chunk as it is in the file; None if it is not there, and all of it is the fill value."""

    def __getitem__(self, part: slice) -> Array:
        first, stop, _ = part.indices(self.shape[0])
        stop = max(first, stop)
        out = np.empty((stop - first, *self.shape[1:]), dtype=self.dtype)
        if not out.size:
            return out
        opened = self._opened()
        bands = range(first // self.chunks[0], -(-stop // self.chunks[0]))
        wanted = list(itertools.product(bands, *(range(count) for count in self._grid[1:])))
        # Within threads of ``each``, where BLAS is kept to one, this is 1: reads are then side by side already.
        step = max(1, _TURN_BYTES // (math.prod(self.chunks) * self.dtype.itemsize))
        workers = n_workers() if len(wanted) > step and out.nbytes >= _WORTHWHILE_BYTES else 1

        def put(start: int) -> None:
            for chunk in wanted[start : start + step]:
                self._put(opened, chunk, first, out)

        for _ in each(put, range(0, len(wanted), step), workers):
            pass
        return out

    def _put(self, opened: Any, chunk: tuple[int, ...], first: int, out: Array) -> None:
        """Put what ``out``, the rows from ``first`` on, wants of a chunk into its place."""
        begins = [i * length for i, length in zip(chunk, self.chunks, strict=True)]
        ends = [min(a + length, n) for a, length, n in zip(begins, self.chunks, self.shape, strict=True)]
        a, b = max(begins[0], first), min(ends[0], first + len(out))
        place = out[(slice(a - first, b - first), *(slice(c, d) for c, d in zip(begins[1:], ends[1:], strict=True)))]
        key = chunk if len(chunk) > 1 else chunk[0]
        is_first = chunk[0] < self._n_first
        kept = self._first if is_first else self._kept
        # A chunk of which all rows are wanted is not wanted by the next read.
        once = a == begins[0] and b == ends[0] and not is_first and key not in kept
        if once and place.shape == self.chunks and place.flags.c_contiguous:
            self._decode(opened, chunk, place)
            return

        def decoded() -> Array:
            made = np.empty(self.chunks, dtype=self.dtype)
            self._decode(opened, chunk, made)
            if not is_first:
                return made
            small = made.astype(self._narrow)
            # Of a damaged file numbers may be anything.
            return small if np.array_equal(small, made) else made

        values = decoded() if once else kept.get(key, decoded)
        # At the edges chunks reach beyond the dataset: the part that is in it, and in the read.
        inside = (
            slice(a - begins[0], b - begins[0]),
            *(slice(d - c) for c, d in zip(begins[1:], ends[1:], strict=True)),
        )
        place[...] = values[inside]

    def _decode(self, opened: Any, chunk: tuple[int, ...], to: Array) -> None:
        """Decode a chunk into ``to``, which has its shape and is contiguous."""
        try:
            stored = self._stored(opened, chunk)
            if stored is None:
                fill = getattr(self._dataset, "fillvalue", getattr(self._dataset, "fill_value", None))
                to[...] = 0 if fill is None else fill  # version 2 of Zarr may leave it open
            else:
                decode(stored.content, stored.steps, to.reshape(-1).view(np.uint8))
        except (MemoryError, FileFault):
            raise
        except Exception as error:
            first = chunk[0] * self.chunks[0]
            rows = first, min(first + self.chunks[0], self.shape[0])
            raise DamagedChunk(file_of(self._dataset), self.name, chunk, rows, error) from error


class _RecentChunks:
    """The decoded chunks that were asked for last, at most so many bytes of them, but at least one.

    A chunk that several threads ask for at the same time is decoded by one of them, and the others wait for it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = Lock()
        self._chunks: OrderedDict[Any, Future[Array]] = OrderedDict()

    def __contains__(self, key: Any) -> bool:
        return key in self._chunks

    def get(self, key: Any, make: Callable[[], Array]) -> Array:
        """Return the chunk of this key, by ``make`` if it is not here."""
        with self._lock:
            chunk = self._chunks.get(key)
            mine = chunk is None
            if chunk is None:
                chunk = self._chunks[key] = Future()
            self._chunks.move_to_end(key)
        if not mine:
            return chunk.result()
        try:
            values = make()
        except BaseException as error:
            with self._lock:
                self._chunks.pop(key, None)
            chunk.set_exception(error)
            raise
        chunk.set_result(values)
        with self._lock:
            # All chunks have the same size. Of one that is still being decoded nobody but its readers need know.
            room = max(self._most // max(values.nbytes, 1), 1)
            while len(self._chunks) > room:
                self._chunks.popitem(last=False)
        return values
