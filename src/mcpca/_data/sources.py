"""Rows of one matrix, wherever they are, behind one small interface.

A fit passes over its rows several times. ``as_source`` makes that possible for arrays, memory maps, sparse matrices,
datasets of HDF5 and Zarr, AnnData's backed matrices and chunks that are computed, without a copy of the data and
without making sparse data dense. The classes for matrices in memory are here, the others in ``disk``, ``chunks`` and
``columns``; the interface itself, ``Source``, is in ``blocks``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from .._utils.array_api import is_sparse_on_device, to_host
from .._utils.types import Array
from .blocks import (
    RowBlock,
    Source,
    as_canonical,
    as_range,
    block_dtype,
    check_block,
    check_matrix_shape,
    csr_blocks,
    csr_rows,
    equal_blocks,
    row_numbers,
)
from .chunks import ChunkSource, one_shot
from .columns import ColumnSource, in_memory
from .detect import InputKind, anndata_parts, input_kind
from .disk import CSCDiskSource, CSRDiskSource, DenseDiskSource
from .low_rank_rows import LowRankRows, LowRankSource
from .validation import check_rows
from .xarray_rows import dataarray_matrix

__all__ = [
    "CSCDiskSource",
    "CSCSource",
    "CSRDiskSource",
    "CSRSource",
    "ChunkSource",
    "ColumnSource",
    "DenseDiskSource",
    "DenseSource",
    "RowBlock",
    "Source",
    "as_source",
    "check_block",
    "columns_source",
]

# Blocks of a CSC matrix in one scan, at most: each costs a look at all entries, so more of them make a pass slower,
# and fewer make the blocks larger.
_MAX_CSC_BLOCKS = 8
# Entries of a CSC matrix whose rows are counted at a time; bounds the int64 copy of the indices that bincount makes.
_COUNTED_ENTRIES = 2**17


class DenseSource:
    """A dense array or memory map, used as it is. Slices are views if it is float32 or float64 already."""

    in_memory = True
    sparse = False

    def __init__(self, X: Array, where: str) -> None:
        self._where = where
        # Kept as it is: rows of a memory map are read only when they are asked for.
        self.array = X
        self.shape = check_matrix_shape(X.shape, where)
        self.dtype = block_dtype(X.dtype, where)
        self.stored_dtype = X.dtype
        self.nbytes = self.shape[0] * self.shape[1] * self.dtype.itemsize

    def gather(self, rows: slice | Array) -> RowBlock:
        """Return these rows in this order: a view for a slice, a copy for row numbers."""
        # A slice goes to NumPy as it is, which then returns a view.
        if not isinstance(rows, slice):
            rows = row_numbers(rows, self.shape[0], self._where)
        # asarray turns slices of a memory map into plain arrays, without reading them.
        return np.asarray(self.array[rows]).astype(self.dtype, copy=False)

    def scan(self, max_bytes: int) -> Iterator[tuple[int, RowBlock]]:
        """Yield (number of the first row, block); integers become floats block by block."""
        for first, stop in equal_blocks(self.shape[0], max_bytes // (self.shape[1] * self.dtype.itemsize)):
            yield first, self.gather(slice(first, stop))


class CSRSource:
    """A CSR matrix, used as it is and never changed. Blocks of consecutive rows share its values.

    Duplicates and unsorted indices are corrected in copies of the blocks. Whether there are any is found out once, in
    one pass over the indices, unless ``canonical`` says that there are none.
    """

    in_memory = True
    sparse = True

    def __init__(self, X: Any, where: str, canonical: bool = False) -> None:
        self._where = where
        self.shape = check_matrix_shape(X.shape, where)
        self.dtype = block_dtype(X.dtype, where)
        self.stored_dtype = X.dtype
        # A new object around the same arrays: SciPy caches flags such as has_canonical_format on the matrix itself, and
        # the caller's is not ours to change.
        self.matrix = scipy.sparse.csr_array(X)
        # From the pointers: data and indices may be longer than the entries in use.
        entries = int(self.matrix.indptr[-1])
        self._entry_bytes = self.dtype.itemsize + self.matrix.indices.itemsize
        self.nbytes = entries * self._entry_bytes + self.matrix.indptr.nbytes
        # For the whole matrix once: every block would otherwise be checked in every pass.
        self._canonical = canonical or bool(self.matrix.has_canonical_format)

    def gather(self, rows: slice | Array) -> RowBlock:
        """Return these rows in this order. Cost: their entries."""
        consecutive = as_range(rows, self.shape[0])
        if consecutive is not None:
            return csr_rows(self.matrix, *consecutive, self.dtype, self._canonical)
        numbers = row_numbers(rows, self.shape[0], self._where)
        return as_canonical(self.matrix[numbers].astype(self.dtype, copy=False), self._canonical)

    def scan(self, max_bytes: int) -> Iterator[tuple[int, RowBlock]]:
        """Yield (number of the first row, block)."""
        for first, stop in csr_blocks(self.matrix.indptr, self._entry_bytes, max_bytes):
            yield first, self.gather(slice(first, stop))


class CSCSource:
    """A CSC matrix, used as it is and never changed; blocks are CSR.

    It is stored by columns, so each ``gather`` and each block of ``scan`` costs a look at all entries. Blocks are
    therefore at least an eighth of the matrix, even where ``max_bytes`` is smaller.
    """

    # In memory, but ``gather`` is not cheap: a pass has to read in order, as from a file.
    in_memory = False
    sparse = True

    def __init__(self, X: Any, where: str) -> None:
        self._where = where
        self.shape = check_matrix_shape(X.shape, where)
        self.dtype = block_dtype(X.dtype, where)
        self.stored_dtype = X.dtype
        self.matrix = scipy.sparse.csc_array(X)
        entries = int(self.matrix.indptr[-1])
        self._entry_bytes = self.dtype.itemsize + self.matrix.indices.itemsize
        # As CSR, which blocks will be: pointers of rows, not of columns.
        self.nbytes = entries * self._entry_bytes + (self.shape[0] + 1) * self.matrix.indptr.itemsize
        self._indptr: Array | None = None

    def first_entries(self, n: int) -> Array:
        """Return ``n`` stored entries of the first columns, or all if there are fewer."""
        return np.asarray(self.matrix.data[:n])

    def gather(self, rows: slice | Array) -> RowBlock:
        """Return these rows in this order. Cost: a look at all entries."""
        if not isinstance(rows, slice):
            rows = row_numbers(rows, self.shape[0], self._where)
        block = scipy.sparse.csr_array(self.matrix[rows].astype(self.dtype, copy=False))
        return as_canonical(block)

    def scan(self, max_bytes: int) -> Iterator[tuple[int, RowBlock]]:
        """Yield (number of the first row, block), about eight blocks at most."""
        # Blocks of bounded size need the lengths of rows, which a matrix by columns does not have: counted once.
        if self._indptr is None:
            counts = np.zeros(self.shape[0], dtype=np.int64)
            indices = self.matrix.indices
            # No fewer than n at a time: each bincount also costs O(n) for its result.
            step = max(_COUNTED_ENTRIES, self.shape[0])
            for first, stop in equal_blocks(int(self.matrix.indptr[-1]), step):
                counts += np.bincount(indices[first:stop], minlength=self.shape[0])
            self._indptr = np.concatenate([[0], np.cumsum(counts)])
        size = max(max_bytes, -(-self.nbytes // _MAX_CSC_BLOCKS))
        for first, stop in csr_blocks(self._indptr, self._entry_bytes, size):
            yield first, self.gather(slice(first, stop))


def as_source(X: Any, where: str, kind: InputKind | None = None) -> Source:
    """Return the rows of one matrix as a ``Source``.

    Parameters
    ----------
    X : array, sparse matrix, dataset, function or iterable; a source is returned as it is
        - ndarray, memory map, DataFrame and whatever else becomes a 2-D array: not copied if it is an array of real
          numbers already; a memory map is not read. Arrays on a device are copied to the host, sparse ones as CSR.
        - SciPy sparse: CSR and CSC are used as they are. COO, BSR, LIL, DOK and DIA are converted to CSR once, which
          takes a copy.
        - 2-D dataset of h5py or array of zarr; AnnData's backed CSR or CSC dataset, in HDF5 or Zarr; an AnnData,
          of which ``X`` is taken.
        - a function without arguments that returns an iterable of 2-D blocks, or an object that can be iterated
          repeatedly and yields them (see ``ChunkSource``).
    where : str
        What to call it in errors.
    kind : InputKind, optional
        That of X, where the caller has asked already.
    """
    if isinstance(X, LowRankRows):
        return LowRankSource(X)
    kind = input_kind(X) if kind is None else kind
    if kind is InputKind.SOURCE:
        return X  # type: ignore[no-any-return]  # opening it again could mean reading it again
    if kind is InputKind.ANNDATA:
        # Its matrix has a kind of its own, which has not been asked for yet.
        return as_source(anndata_parts(X)[0], where)
    if kind is InputKind.DATAARRAY:
        return as_source(dataarray_matrix(X, where)[0], where)
    if kind is InputKind.DASK:
        raise TypeError(
            f"{where} is on Dask, and this needs its rows in the memory of this process, where they may not fit. Pass "
            "a sample of them: some blocks, computed."
        )
    if kind is InputKind.ITERATOR:
        raise one_shot(X, where)
    if kind is InputKind.CHUNKS:
        return ChunkSource(X, where)
    if kind is InputKind.DATASET:
        return DenseDiskSource(X, where)
    if kind is InputKind.SPARSE_DATASET:
        return CSRDiskSource(X, where) if X.format == "csr" else CSCDiskSource(X, where)
    if kind is InputKind.SPARSE:
        # Before the conversion to CSR, which may take a copy and raise errors of SciPy's own.
        check_matrix_shape(X.shape, where)
        block_dtype(X.dtype, where)
        return CSCSource(X, where) if X.format == "csc" else CSRSource(X, where)
    if kind is InputKind.DEVICE and is_sparse_on_device(X):
        check_matrix_shape(X.shape, where)
        return CSRSource(to_host(X), where)
    # An array that needs no conversion is not copied, and not looked at: a memory map would be read.
    plain = isinstance(X, np.ndarray) and not isinstance(X, np.ma.MaskedArray)
    if plain and X.ndim == 2 and X.shape[1] and X.dtype.kind in "biuf":
        return DenseSource(X, where)
    return DenseSource(check_rows(X, where), where)


def columns_source(X: Any, columns: Array | None, where: str, kind: InputKind | None = None) -> Source:
    """Return these columns of one matrix, in this order, as a ``Source``; None is all of them.

    Columns of a matrix in memory are copied once; those of any other are selected block by block as it is read.
    """
    if columns is None:
        return as_source(X, where, kind)
    # One copy of the columns now, rather than a selection from every block in every pass.
    if in_memory(X):
        return as_source(X[:, columns], where, kind)
    return ColumnSource(as_source(X, where, kind), columns)
