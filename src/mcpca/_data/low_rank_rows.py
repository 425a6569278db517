"""Rows that are sparse but for a matrix of low rank, ``X = S + U W^T``, and are never made dense.

S (n, p) is CSR, U (n, L) and W (p, L) have few columns. Products cost what those of S do and O((n + p) L m) more,

    X V = S V + U (W^T V),      X^T Z = S^T Z + W (U^T Z),

so such a block goes through the passes like a dense or a CSR one; what kernels ask of entries is here, too. Analytic
Pearson residuals have this form (``pearson.py``): a row of W belongs to a feature, and is the same for all blocks of a
fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from .._utils.types import Array
from .sparse_products import times, transposed_times


class LowRankRows:
    """Rows ``S + U W^T``.

    Parameters
    ----------
    entries : csr_array (n, p)
        S, in canonical form.
    left : ndarray (n, L)
        U.
    right : ndarray (p, L)
        W.

    All are in the same precision.
    """

    ndim = 2
    # NumPy and SciPy must not take it apart in ``matrix @ rows``, but ask ``__rmatmul__``.
    __array_ufunc__ = None

    def __init__(self, entries: Any, left: Array, right: Array) -> None:
        self.entries = entries
        self.left = left
        self.right = right

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and features."""
        return int(self.entries.shape[0]), int(self.entries.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision of all three parts."""
        dtype: np.dtype[Any] = np.dtype(self.entries.dtype)
        return dtype

    @property
    def nbytes(self) -> int:
        """Bytes of S and U; W is shared between blocks."""
        S = self.entries
        return int(S.data.nbytes + S.indices.nbytes + S.indptr.nbytes + self.left.nbytes)

    @property
    def T(self) -> _Transposed:  # as arrays have it
        """The transpose, for products."""
        return _Transposed(self)

    def __matmul__(self, V: Array) -> Array:
        return np.asarray(times(self.entries, V) + self.left @ (self.right.T @ V))

    def __rmatmul__(self, M: Any) -> Array:
        """Return ``M X``, dense, for a dense or sparse M (m, n)."""
        product: Any = M @ self.entries
        product = product.toarray() if scipy.sparse.issparse(product) else np.asarray(product)
        product += (M @ self.left) @ self.right.T.astype(product.dtype, copy=False)
        return np.asarray(product)

    def __getitem__(self, rows: slice | Array) -> LowRankRows:
        if isinstance(rows, slice) and rows.step in (None, 1):
            from .blocks import csr_rows  # here, because that module imports this one

            start, stop, _ = rows.indices(self.shape[0])
            part = csr_rows(self.entries, start, max(start, stop), self.dtype, canonical=True)
            return LowRankRows(part, self.left[start : max(start, stop)], self.right)
        part = self.entries[rows]
        part.has_canonical_format = True
        return LowRankRows(part, self.left[rows], self.right)

    def astype(self, dtype: Any, copy: bool = True) -> LowRankRows:
        """Return the rows in another precision."""
        return LowRankRows(
            self.entries.astype(dtype, copy=copy),
            self.left.astype(dtype, copy=copy),
            self.right.astype(dtype, copy=copy),
        )

    def toarray(self) -> Array:
        """Return the rows as a dense array."""
        return np.asarray(self.entries.toarray() + self.left @ self.right.T)

    def mean(self, axis: int) -> Array:
        """Return the mean (p,) of all rows in float64; ``axis`` is 0, as for arrays."""
        assert axis == 0
        n = max(self.shape[0], 1)
        return np.asarray(self.entries.sum(axis=0, dtype=np.float64) + self.left.sum(axis=0) @ self.right.T) / n

    def times_power(self, e: int) -> LowRankRows:
        """Return the rows times ``2^e``."""
        entries = self.entries.copy()
        entries.data = np.ldexp(entries.data, e)
        entries.has_canonical_format = True
        return LowRankRows(entries, self.left, np.ldexp(self.right, e))

    def largest_of_low_rank(self) -> float:
        """Return a bound on the entries of ``U W^T``."""
        longest = [float(np.linalg.norm(part, axis=1).max(initial=0)) for part in (self.left, self.right)]
        return longest[0] * longest[1]

    def row_squares(self, weights: Array | None = None) -> Array:
        """Return ``sum_f w_f x_f^2`` of each row (n,) in float64: ``|s|^2 + 2 s . W u + u^T W^T W u``, with weights."""
        S = self.entries
        W = self.right.astype(np.float64, copy=False)
        weighted = W if weights is None else W * weights[:, None]
        values = S.data.astype(np.float64)
        values *= values + 2 * self._low_rank_entries()
        if weights is not None:
            values *= weights[S.indices]
        U = self.left.astype(np.float64, copy=False)
        squares = scipy.sparse.csr_array((values, S.indices, S.indptr), shape=S.shape).sum(axis=1)
        # Rounding may leave it below 0 where S and the other part cancel.
        return np.asarray(np.maximum(squares + np.einsum("nl,nl->n", U @ (weighted.T @ W), U), 0))

    def squares_by(self, indicator: Any) -> Array:
        """Return sums of ``x^2`` (k', p) over the rows that the rows of ``indicator`` (k', n) have ones for."""
        S = self.entries
        values = S.data.astype(np.float64)
        values *= values + 2 * self._low_rank_entries()
        sums = (indicator @ scipy.sparse.csr_array((values, S.indices, S.indptr), shape=S.shape)).toarray()
        U = self.left.astype(np.float64, copy=False)
        W = self.right.astype(np.float64, copy=False)
        bounds = indicator.indptr
        for j in range(len(sums)):
            Uj = U[indicator.indices[bounds[j] : bounds[j + 1]]]
            sums[j] += np.einsum("pl,pl->p", W @ (Uj.T @ Uj), W)
        return np.asarray(np.maximum(sums, 0))

    def _low_rank_entries(self) -> Array:
        """Return the entries of ``U W^T`` where S stores some (nnz,), in float64; one column of U and W at a time."""
        S = self.entries
        rows = np.repeat(np.arange(S.shape[0]), np.diff(S.indptr))
        entries = np.zeros(len(S.data))
        for u, w in zip(self.left.T.astype(np.float64), self.right.T.astype(np.float64), strict=True):
            entries += u[rows] * w[S.indices]
        return entries


class _Transposed:
    """The transpose of ``LowRankRows``."""

    __array_ufunc__ = None

    def __init__(self, rows: LowRankRows) -> None:
        self._rows = rows
        self.shape = rows.shape[::-1]

    def __matmul__(self, Z: Array) -> Array:
        rows = self._rows
        return np.asarray(transposed_times(rows.entries, Z) + rows.right @ (rows.left.T @ Z))


class LowRankSource:
    """``LowRankRows`` in memory as a ``Source``."""

    in_memory = True
    sparse = True
    low_rank = True

    def __init__(self, rows: LowRankRows) -> None:
        self.rows = rows
        self.shape = rows.shape
        self.dtype = rows.dtype
        self.nbytes = rows.nbytes

    def gather(self, rows: slice | Array) -> Any:
        """Return these rows in this order."""
        return self.rows[rows]

    def scan(self, max_bytes: int) -> Iterator[tuple[int, Any]]:
        """Yield (number of the first row, block)."""
        from .blocks import equal_blocks  # here, because that module imports this one

        step = max_bytes * self.shape[0] // max(self.nbytes, 1)
        for first, stop in equal_blocks(self.shape[0], step):
            yield first, self.rows[first:stop]


def stacked(parts: list[LowRankRows]) -> Any:
    """Return the rows of several blocks one below the other; dense where blocks have different W."""
    first = parts[0]
    if any(not np.array_equal(part.right, first.right) for part in parts[1:]):
        return np.concatenate([part.toarray() for part in parts])
    entries = scipy.sparse.csr_array(scipy.sparse.vstack([part.entries for part in parts], format="csr"))
    return LowRankRows(entries, np.concatenate([part.left for part in parts]), first.right)


def dense_rows(block: Any) -> Array:
    """Return a block of rows of any kind as an array: itself, if it is one."""
    return np.asarray(block.toarray() if hasattr(block, "toarray") else block)
