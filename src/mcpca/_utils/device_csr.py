"""Sparse rows on a device: the one place that knows how PyTorch and CuPy hold them, and how they multiply them.

``DeviceCSR`` has the three arrays of a CSR matrix as ordinary arrays of the device, on which functions of the array API
standard work, and asks the library for one thing that the standard has not: the product with a dense matrix. What is
transposed is sorted once and multiplied as CSR too: PyTorch would sort at every product with a transposed matrix, which
takes ten times as long as the product.
"""

from __future__ import annotations

import importlib
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse

from .array_api import (
    as_float,
    device_of,
    from_host,
    is_cupy_sparse,
    is_sparse_on_device,
    is_torch,
    namespace,
    to_host,
)
from .types import Array


@dataclass(frozen=True)
class DeviceCSR:
    """A CSR matrix on a device.

    Attributes
    ----------
    indptr : array (n + 1,) of integers
    indices : array (nnz,) of integers
    values : array (nnz,) of float32 or float64
    shape : (n, p)
    """

    indptr: Any
    indices: Any
    values: Any
    shape: tuple[int, int]

    is_device_csr = True  # for ``array_api``, which cannot import this class

    @classmethod
    def of(cls, X: Any, where: str = "X") -> DeviceCSR:
        """Return a sparse matrix of PyTorch or CuPy, without a copy if it is CSR; other layouts are converted there."""
        if isinstance(X, cls):
            return X
        if not is_sparse_on_device(X):
            raise TypeError(f"{where} is a {type(X).__name__}, which is not sparse; pass a sparse matrix.")
        shape = int(X.shape[0]), int(X.shape[1])
        if is_cupy_sparse(X):
            X = X.tocsr()
            if not X.has_canonical_format:
                X = X.copy()  # entries are added in place, which the caller's matrix is not for
                X.sum_duplicates()
            return cls(X.indptr, X.indices, as_float(X.data), shape)
        X = X.detach()
        # By name, so that torch need not be imported here.
        if str(X.layout) != "torch.sparse_csr":
            try:
                with _without_beta_warning():
                    X = (X.coalesce() if str(X.layout) == "torch.sparse_coo" else X).to_sparse_csr()
            except RuntimeError as error:
                raise TypeError(
                    f"{where} is a sparse PyTorch tensor ({X.layout}) that does not become CSR ({error}); pass "
                    f"{where}.to_dense().to_sparse_csr()."
                ) from error
        return cls(X.crow_indices(), X.col_indices(), as_float(X.values()), shape)

    @property
    def dtype(self) -> Any:
        """That of the values, as their library calls it."""
        return self.values.dtype

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return int(self.values.shape[0])

    @cached_property
    def pointers(self) -> Array:
        """``indptr`` on the host: one number a row, by which blocks are planned."""
        return np.asarray(to_host(self.indptr)).astype(np.int64)

    @cached_property
    def _matrix(self) -> Any:
        """The matrix as its library has it, around the same arrays."""
        if is_torch(self.values):
            torch = importlib.import_module("torch")
            with _without_beta_warning():
                return torch.sparse_csr_tensor(
                    self.indptr, self.indices, self.values, size=self.shape, check_invariants=False
                )
        sparse = importlib.import_module("cupyx.scipy.sparse")
        return sparse.csr_matrix((self.values, self.indices, self.indptr), shape=self.shape)

    def __matmul__(self, V: Any) -> Any:
        """Return the dense product (n, m) with V (p, m), in the precision of both."""
        return self._matrix @ V

    def with_values(self, values: Any) -> DeviceCSR:
        """Return a matrix with the same pattern and these values."""
        return replace(self, values=values)

    def toarray(self) -> Any:
        """Return a dense copy (n, p) on the device."""
        return self._matrix.to_dense() if is_torch(self.values) else self._matrix.toarray()

    def to_host(self) -> Any:
        """Return a copy as SciPy's CSR."""
        block = scipy.sparse.csr_array(
            (np.asarray(to_host(self.values)), np.asarray(to_host(self.indices)), self.pointers), shape=self.shape
        )
        if not block.has_canonical_format:
            block.sum_duplicates()
        return block

    def rows(self, rows: slice | Array) -> DeviceCSR:
        """Return these rows in this order: views for consecutive ones, otherwise a copy on the device."""
        n = self.shape[0]
        if isinstance(rows, slice) and rows.step in (None, 1):
            start, stop, _ = rows.indices(n)
            stop = max(start, stop)
            first, last = self.pointers[[start, stop]].tolist()
            pointers = self.indptr[start : stop + 1] - first
            shape = stop - start, self.shape[1]
            return DeviceCSR(pointers, self.indices[first:last], self.values[first:last], shape)
        numbers = np.arange(n)[rows]
        lengths = np.diff(self.pointers)[numbers]
        pointers = np.concatenate([[0], np.cumsum(lengths)])
        xp = namespace(self.values)
        indptr = from_host(pointers, self.values, self.indptr.dtype)
        chosen = DeviceCSR(indptr, self.indices, self.values, (len(numbers), self.shape[1]))
        # Entry e of row t of the result is entry e + shift_t here.
        entries = xp.arange(int(pointers[-1]), dtype=chosen.indptr.dtype, device=device_of(self.values))
        shift = from_host(self.pointers[numbers] - pointers[:-1], self.values, xp.int64)
        places = xp.astype(entries, xp.int64) + xp.take(shift, chosen.row_of_entries(int(pointers[-1])), axis=0)
        return replace(
            chosen, indices=xp.take(self.indices, places, axis=0), values=xp.take(self.values, places, axis=0)
        )

    def row_of_entries(self, nnz: int | None = None) -> Any:
        """Return the row of each entry (nnz,)."""
        xp = namespace(self.values)
        dtype = self.indptr.dtype
        entries = xp.arange(self.nnz if nnz is None else nnz, dtype=dtype, device=device_of(self.values))
        # The number of rows that end at or before an entry; empty rows end where they begin, and are passed over.
        return xp.searchsorted(self.indptr[1:], entries, side="right")

    def transposed(self) -> DeviceCSR:
        """Return the transposed matrix as CSR: a copy. Cost one sort of the entries."""
        xp = namespace(self.values)
        # Stable: the entries of a column stay in the order of their rows, and sums over them do not depend on chance.
        order = xp.argsort(self.indices, stable=True)
        columns = xp.take(self.indices, order, axis=0)
        bounds = xp.arange(self.shape[1] + 1, dtype=columns.dtype, device=device_of(self.values))
        dtype = self.indptr.dtype
        return DeviceCSR(
            xp.astype(xp.searchsorted(columns, bounds), dtype, copy=False),
            xp.astype(xp.take(self.row_of_entries(), order, axis=0), dtype, copy=False),
            xp.take(self.values, order, axis=0),
            (self.shape[1], self.shape[0]),
        )


class _without_beta_warning(warnings.catch_warnings):
    """PyTorch says once in every process that its CSR is in beta and unchecked: who made a CSR matrix has read it."""

    def __enter__(self) -> Any:
        entered = super().__enter__()
        warnings.filterwarnings("ignore", message="Sparse (.* tensor support|invariant checks)", category=UserWarning)
        return entered
