"""Rows in HDF5 and Zarr: read in the order of the file, by whole chunks, never all at once.

``as_source`` makes these sources of datasets that the user has opened, so neither library is imported here. Files may
be cut short, damaged, closed or changed between passes: ``file_faults`` says which. Where they can be, bytes are read
and decompressed past the libraries, in threads: ``hdf5_bytes``, ``zarr_bytes``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse

from .._utils.parallel import each, n_workers
from .._utils.types import Array
from .._utils.user_warnings import warn
from .blocks import (
    Room,
    RowBlock,
    as_canonical,
    as_range,
    block_dtype,
    check_matrix_shape,
    csr_array_of,
    csr_block,
    csr_blocks,
    equal_blocks,
    row_numbers,
)
from .compressed_chunks import ChunkedRows
from .file_faults import FileState, read_rows, reading
from .hdf5_bytes import direct
from .sparse_products import row_kernels
from .zarr_bytes import direct_zarr

# Bytes that ``gather`` reads at a time. Larger reads need more memory next to the result, smaller ones cost a call of
# the library each.
_READ_BYTES = 2**24
# If a sparse dataset has no chunks: unwanted entries up to this many are read over, because a skip costs another read.
_MIN_GAP_ENTRIES = 2**12
# Rows of a chunk are read together up to this multiple of ``max_bytes``. A lower ratio decompresses a chunk several
# times, a higher one takes more memory than was asked for.
_BAND_RATIO = 4
# A CSC file is read whole for each block of rows: a scan has about this many blocks at most, unless each would take
# more bytes than the second bound.
_MAX_CSC_BLOCKS = 8
_MAX_CSC_BLOCK_BYTES = 2**30


def _rows_text(first: int, stop: int) -> str:
    return f"rows {first} to {stop - 1}"


def _missing_chunks(array: Any) -> tuple[int, int]:
    """Return (chunks that are not in a Zarr store, all chunks); (0, 0) for HDF5, which keeps track of them itself.

    If chunks are stored together in shards, shards are counted: those are the files that get lost. Cost: listing the
    store.
    """
    if not hasattr(array, "nchunks_initialized"):
        return 0, 0
    shards = getattr(array, "shards", None)
    stored = shards or array.chunks
    # -(-a // b) rounds up: the last chunk along an axis may be partly filled.
    total = math.prod(-(-n // length) for n, length in zip(array.shape, stored, strict=True))
    # Zarr counts all chunks of a shard, also those beyond the end of the array; before 3.1.2, shards.
    counts_shards = shards is None or not hasattr(array, "_nshards_initialized")
    per_file = 1 if counts_shards else math.prod(s // c for s, c in zip(stored, array.chunks, strict=True))
    return max(total - -(-int(array.nchunks_initialized) // per_file), 0), total


class DenseDiskSource:
    """A dense 2-D dataset of HDF5 or Zarr. Memory: the block that is asked for.

    Chunks that span all columns and few rows are fastest to read. A chunk whose rows take more than four times
    ``max_bytes`` is read once per block. Memory of ``gather``: the result and at most 64 MB.
    """

    in_memory = False
    sparse = False

    def __init__(self, dataset: Any, where: str) -> None:
        self._where = where
        with reading(where, "its shape", dataset):
            self._dataset = direct_zarr(direct(dataset))
            self._state = FileState.of(dataset)
            # None for an HDF5 dataset with a null dataspace; () has the right error below.
            shape = dataset.shape or ()
            dtype = dataset.dtype
            chunks = getattr(dataset, "chunks", None)
            missing, total = _missing_chunks(dataset)
        self.shape = check_matrix_shape(shape, where)
        self.dtype = block_dtype(dtype, where)
        self.stored_dtype = np.dtype(dtype)
        self._row_bytes = self.shape[1] * self.dtype.itemsize
        self.nbytes = self.shape[0] * self._row_bytes
        # Rows that are stored together; without chunks, as many as make a megabyte.
        self._band = max(int(chunks[0]) if chunks else 2**20 // self._row_bytes, 1)
        if missing and missing == total:
            raise ValueError(
                f"{where}: none of its {total} chunks is in the store, so every value would be read as the fill value; "
                "copy or write the store again."
            )
        if missing:
            # Only a warning: Zarr can leave out chunks of zeros on purpose.
            warn(
                f"{where}: {missing} of {total} chunks are not in the store, and are read as {dataset.fill_value}. "
                "That is right if they were left out because they are empty (write_empty_chunks=False); otherwise the "
                "store is incomplete: copy it again.",
            )

    def gather(self, rows: slice | Array, room: Room | None = None) -> RowBlock:
        """Return these rows in this order, reading only chunks that hold some of them, in the order of the file.

        The result is in the memory of ``room``, if there is one, unless the rows are consecutive.
        """
        consecutive = as_range(rows, self.shape[0])
        if consecutive is not None:
            return self._read(*consecutive)
        numbers = row_numbers(rows, self.shape[0], self._where)
        order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
        # out (number of rows asked for, p), filled read by read; nothing else of its size is held.
        out = (room or Room()).take("data", len(numbers) * self.shape[1], self.dtype).reshape(-1, self.shape[1])
        a = 0
        for b in self._ends_of_reads(ordered):
            # One contiguous read, then a pick in memory: h5py is slow with long lists of row numbers.
            first = int(ordered[a])
            out[order[a:b]] = self._read(first, int(ordered[b - 1]) + 1)[ordered[a:b] - first]
            a = b
        return out

    def scan(self, max_bytes: int) -> Iterator[tuple[int, RowBlock]]:
        """Yield (number of the first row, block), reading whole chunks where they are not too large."""
        step = max(max_bytes // self._row_bytes, 1)
        # Whole bands, so that no chunk is decompressed for two blocks.
        if step >= self._band:
            read = step // self._band * self._band
        else:
            # Less than a band of chunks fits into a block: read it once and hand it out in parts, if memory allows.
            read = self._band if self._band <= _BAND_RATIO * step else step
        for first, stop in equal_blocks(self.shape[0], read):
            block = self._read(first, stop)
            for a, b in equal_blocks(stop - first, min(step, read)):
                yield first + a, block[a:b]

    def _ends_of_reads(self, ordered: Array) -> Iterator[int]:
        """Yield where to cut sorted row numbers, so that each part is within neighbouring chunks of a bounded size."""
        # Chunks of very many rows are read in parts, though each part decompresses the whole chunk.
        band = min(self._band, max(_BAND_RATIO * _READ_BYTES // self._row_bytes, 1))
        # Cuts where a band is skipped, or where a read would hold more than ``most`` bands.
        bands = ordered // band
        most = max(_READ_BYTES // (band * self._row_bytes), 1)  # bands in a read
        begin = 0
        for i in np.append(np.flatnonzero(np.diff(bands)) + 1, len(ordered)) if len(ordered) else ():
            if i == len(ordered) or bands[i] != bands[i - 1] + 1 or bands[i] - bands[begin] >= most:
                begin = int(i)
                yield begin

    def _read(self, first: int, stop: int) -> Array:
        with reading(self._where, _rows_text(first, stop), self._dataset, state=self._state):
            block = read_rows(self._dataset, first, stop)
        if block.shape != (stop - first, self.shape[1]):
            raise OSError(
                f"{self._where}: {_rows_text(first, stop)} came in shape {block.shape}; copy or write the file again."
            )
        return block.astype(self.dtype, copy=False)


class _SparseDisk:
    """What CSR and CSC groups share: datasets data, indices and indptr, and their checks.

    indptr is held in memory. Nothing in a file is trusted: SciPy's compiled loops would read and write beyond arrays if
    indptr or indices were wrong.
    """

    in_memory = False
    sparse = True

    def __init__(self, dataset: Any, where: str) -> None:
        self._where = where
        with reading(where, "its shape and indptr"):
            shape = dataset.shape
            group = dataset.group
            self._data = direct_zarr(direct(group["data"]))
            self._indices = direct_zarr(direct(group["indices"]))
            self._state = FileState.of(group["data"])
            # Zarr reads a missing chunk as fill value without an error; as indices, zeros would pass every check below.
            missing = {name: _missing_chunks(group[name])[0] for name in ("data", "indices", "indptr")}
            self._major = read_rows(group["indptr"], 0, group["indptr"].shape[0])  # of rows for CSR, of columns for CSC
            n_data = int(self._data.shape[0])
            n_indices = int(self._indices.shape[0])
            index_bytes = np.dtype(self._indices.dtype).itemsize
            chunks = getattr(self._data, "chunks", None)
        self.shape = check_matrix_shape(shape, where)
        self.dtype = block_dtype(self._data.dtype, where)
        self.stored_dtype = np.dtype(self._data.dtype)
        # What an entry takes in a block: values as floats, whatever they are in the file.
        self._entry_bytes = self.dtype.itemsize + index_bytes
        # Skipping less than a chunk saves nothing, since chunks are read whole.
        self._gap = int(chunks[0]) if chunks else _MIN_GAP_ENTRIES
        lines = self.shape[0 if dataset.format == "csr" else 1]
        advice = "the file is cut short or damaged; copy or write it again."
        # Without entries indptr is all zeros, which Zarr does not store.
        if any(missing.values()) and (n_data or n_indices):
            names = ", ".join(f"{count} of {name}" for name, count in missing.items() if count)
            raise ValueError(f"{where}: chunks are missing from the store ({names}); {advice}")
        if len(self._major) != lines + 1 or self._major[0] != 0 or (np.diff(self._major) < 0).any():
            raise ValueError(
                f"{where}: indptr has {len(self._major)} numbers from {self._major[:1].tolist()} on, where {lines + 1} "
                f"that start at 0 and never decrease are needed; {advice}"
            )
        if not self._major[-1] == n_data == n_indices:
            raise ValueError(
                f"{where}: indptr promises {self._major[-1]} entries, while data has {n_data} and indices has "
                f"{n_indices}; {advice}"
            )
        self.nbytes = n_data * self._entry_bytes + (self.shape[0] + 1) * self._major.itemsize

    def _entries(self, first: int, stop: int, what: str) -> tuple[Array, Array]:
        """Return data and indices of entries ``first`` to ``stop``; the caller checks indices before they are used."""
        with reading(self._where, what, self._data, self._indices, state=self._state):
            data = read_rows(self._data, first, stop)
            indices = read_rows(self._indices, first, stop)
        if not len(data) == len(indices) == stop - first:
            raise OSError(
                f"{self._where}: {what} gave {len(data)} values and {len(indices)} indices where {stop - first} are "
                "needed; copy or write the file again."
            )
        return data, indices

    def _check_indices(self, indices: Array, what: str, bound: int) -> None:
        """Raise unless each index is within [0, bound)."""
        if len(indices) and not (indices.min() >= 0 and indices.max() < bound):
            raise ValueError(
                f"{self._where}: {what} have indices from {indices.min()} to {indices.max()}, where 0 to {bound - 1} "
                "are possible; the file is damaged: copy or write it again."
            )


class CSRDiskSource(_SparseDisk):
    """A CSR matrix in HDF5 or Zarr, in AnnData's layout.

    Memory: indptr, the block that is asked for, and some 100 MB for parts of the file that are being read.
    """

    def expect_rereads(self, n_bytes: int) -> None:
        """Keep up to so many bytes decoded, if the file is compressed: it will be read several times."""
        # Of the indices: they compress worst, and decoding them takes most of the time.
        if isinstance(self._indices, ChunkedRows):
            self._indices.keep_first(n_bytes, self.shape[1] - 1)

    def gather(self, rows: slice | Array, room: Room | None = None) -> RowBlock:
        """Return these rows in this order; unwanted rows in between are read only within a chunk.

        The result is in the memory of ``room``, if there is one, unless the rows are consecutive.
        """
        consecutive = as_range(rows, self.shape[0])
        if consecutive is not None:
            return self._read(*consecutive)
        numbers = row_numbers(rows, self.shape[0], self._where)
        order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
        # Sorted numbers are copied slice by slice, others entry by entry unless that is compiled.
        in_order = bool((order[1:] > order[:-1]).all())
        # indptr tells how long rows are, so they go straight to their places in the result and are never held twice.
        places = np.concatenate([[0], np.cumsum(self._major[numbers + 1] - self._major[numbers])])
        index_dtype = np.int32 if places[-1] < 2**31 and self.shape[1] < 2**31 else np.int64
        size = int(places[-1])
        # Threads write to disjoint places of these two arrays, so no lock is needed.
        room = room or Room()
        data = room.take("data", size, self.dtype)
        indices = room.take("indices", size, index_dtype)

        def put(a: int, b: int) -> bool:
            """Read the wanted rows ``ordered[a:b]`` in one piece, put them where they belong, and say if in order."""
            first = int(ordered[a])
            stop = int(ordered[b - 1]) + 1
            part = self._unchecked(first, stop)
            wanted = ordered[a:b] - first
            kernels = row_kernels(part)
            if kernels is not None:
                found = kernels.put_rows(part, wanted, places[order[a:b]], data, indices)
                if found == kernels.OUTSIDE:
                    self._check_indices(part[wanted].indices, _rows_text(first, stop), self.shape[1])
                return bool(found == kernels.CANONICAL)
            part = part[wanted]
            is_canonical = self._is_canonical(part, _rows_text(first, stop))
            to: Any = slice(places[a], places[b])
            if not in_order:
                # Entry e of row t of the part goes to the place where that row begins, plus e's position in the row.
                to = np.repeat(places[order[a:b]] - part.indptr[:-1], np.diff(part.indptr))
                to += np.arange(len(to))
            data[to] = part.data
            indices[to] = part.indices
            return is_canonical

        reads = list(pairwise([0, *self._ends_of_reads(ordered)]))
        # While one thread reads, others put what was read into its place.
        are_canonical = list(each(lambda read: put(*read), reads, n_workers() if len(reads) > 1 else 1))
        return csr_block(data, indices, places, self.shape[1], self.dtype, all(are_canonical))

    def scan(self, max_bytes: int) -> Iterator[tuple[int, RowBlock]]:
        """Yield (number of the first row, block) from contiguous ranges of the file."""
        for first, stop in csr_blocks(self._major, self._entry_bytes, max_bytes):
            yield first, self._read(first, stop)

    def _ends_of_reads(self, ordered: Array) -> Iterator[int]:
        """Yield where to cut sorted row numbers: at gaps of a chunk or more, and before a read gets too large."""
        if not len(ordered):
            return
        # Unwanted entries between one wanted row and the next; none if a row is wanted twice in a row.
        gaps = self._major[ordered[1:]] - self._major[np.minimum(ordered[:-1] + 1, ordered[1:])]
        most = max(_READ_BYTES // self._entry_bytes, 1)
        begin = 0
        ends = self._major[ordered + 1]
        # A gap of a chunk or more ends a read in any case; between such cuts reads are split by size.
        cuts = np.append(np.flatnonzero(gaps >= self._gap) + 1, len(ordered)).tolist()
        for cut in cuts:
            while begin < cut:
                # As many rows as fit into a read, but at least one, however long it is.
                limit = int(self._major[ordered[begin]]) + most
                begin = min(cut, max(begin + 1, int(np.searchsorted(ends, limit, side="right"))))
                yield begin

    def _read(self, first: int, stop: int) -> Any:
        """Return consecutive rows."""
        block = self._unchecked(first, stop)
        return as_canonical(block, self._is_canonical(block, _rows_text(first, stop)))

    def _unchecked(self, first: int, stop: int) -> Any:
        """Return consecutive rows with the indices that are in the file, whatever they are."""
        pointers = self._major[first : stop + 1]
        data, indices = self._entries(int(pointers[0]), int(pointers[-1]), _rows_text(first, stop))
        return csr_array_of(data, indices, pointers - pointers[0], self.shape[1], self.dtype)

    def _is_canonical(self, block: Any, what: str) -> bool:
        """Whether entries of rows are sorted and distinct; raise if an index is none of a feature."""
        # Where they are sorted, the first and the last of each row tell of all: one reading of the indices, not three.
        is_canonical = bool(block.has_canonical_format)
        indices = block.indices
        if is_canonical:
            filled = np.diff(block.indptr) > 0
            indices = indices[np.concatenate([block.indptr[:-1][filled], block.indptr[1:][filled] - 1])]
        self._check_indices(indices, what, self.shape[1])
        return is_canonical


class CSCDiskSource(_SparseDisk):
    """A CSC matrix in HDF5 or Zarr, in AnnData's layout.

    It is stored by columns, so the whole file is read for each ``gather`` and each block of ``scan``. Blocks are
    therefore at least an eighth of the matrix, or 1 GB if that is less, even where ``max_bytes`` is smaller. A file
    that is read often should be written again as CSR. Memory: twice the block, and some 50 MB for the part of the file
    that is being read.
    """

    def __init__(self, dataset: Any, where: str) -> None:
        super().__init__(dataset, where)
        self._indptr: Array | None = None

    def first_entries(self, n: int) -> Array:
        """Return ``n`` stored entries of the first columns, or all if there are fewer."""
        return self._entries(0, min(n, int(self._major[-1])), "its first columns")[0]

    def gather(self, rows: slice | Array) -> RowBlock:
        """Return these rows in this order; cost: a read of the whole file."""
        numbers = row_numbers(rows, self.shape[0], self._where)
        # Each row is selected once from the file, and repeated in memory.
        unique, inverse = np.unique(numbers, return_inverse=True)
        # Sorted and distinct, as ``_select`` needs them: it has a single place for each row of the file.
        block = self._select(unique)
        return block if len(unique) == len(numbers) and (unique == numbers).all() else block[inverse]

    def scan(self, max_bytes: int) -> Iterator[tuple[int, RowBlock]]:
        """Yield (number of the first row, block): about eight for up to 8 GB; each costs a read of the file."""
        # Blocks of bounded size need the lengths of rows, which a file by columns does not have: one more read, once.
        if self._indptr is None:
            counts = np.zeros(self.shape[0], dtype=np.int64)
            for _, _, indices, _ in self._pieces("its columns"):
                counts += np.bincount(indices, minlength=self.shape[0])
            self._indptr = np.concatenate([[0], np.cumsum(counts)])
        # Speed against memory: every block costs a read of the whole file, so few and large ones.
        size = max(max_bytes, min(-(-self.nbytes // _MAX_CSC_BLOCKS), _MAX_CSC_BLOCK_BYTES))
        for first, stop in csr_blocks(self._indptr, self._entry_bytes, size):
            yield first, self._select(np.arange(first, stop))

    def _pieces(self, what: str) -> Iterator[tuple[int, Array, Array, Array]]:
        """Yield (first column, data, indices, indptr) of the file in order."""
        for first, stop in csr_blocks(self._major, self._entry_bytes, _READ_BYTES):
            pointers = self._major[first : stop + 1]
            data, indices = self._entries(int(pointers[0]), int(pointers[-1]), what)
            self._check_indices(indices, what, self.shape[0])
            yield first, data, indices, pointers - pointers[0]

    def _select(self, wanted: Array) -> Any:
        """Return these rows, sorted numbers, as CSR."""
        what = _rows_text(int(wanted[0]), int(wanted[-1]) + 1) if len(wanted) else "no rows"
        # Position of each row of the file in the result, -1 for rows that are not wanted.
        place = np.full(self.shape[0], -1, dtype=np.int64)
        place[wanted] = np.arange(len(wanted))
        data_parts: list[Array] = []
        row_parts: list[Array] = []
        # Empty first parts, here and below, since np.concatenate refuses an empty list: a file may have no entries.
        counts = [np.zeros(0, dtype=np.int64)]
        for _, data, indices, pointers in self._pieces(what):
            rows = place[indices]
            entries = np.flatnonzero(rows >= 0)
            data_parts.append(data[entries].astype(self.dtype, copy=False))
            row_parts.append(rows[entries].astype(np.int32 if len(wanted) < 2**31 else np.int64))
            # How many of the wanted entries are in each column: where its bounds fall among them.
            counts.append(np.diff(np.searchsorted(entries, pointers)))
        indptr = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
        data = np.concatenate([np.zeros(0, dtype=self.dtype), *data_parts])
        rows = np.concatenate([np.zeros(0, dtype=np.int32), *row_parts])
        # Entries came column by column, so this is CSC as it stands; SciPy turns it into CSR in linear time.
        block = scipy.sparse.csc_array((data, rows, indptr), shape=(len(wanted), self.shape[1]))
        return as_canonical(scipy.sparse.csr_array(block.tocsr()))
