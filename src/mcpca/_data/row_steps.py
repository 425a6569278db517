"""What ``Preprocess`` does to one block of rows, dense or CSR: plain functions, which write to copies only.

Sparse blocks stay sparse, since every step takes 0 to 0, and keep their canonical form. Large ones are worked on in
threads, some rows each: rows do not depend on each other, so results are the same for any number of them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse

from .._utils.parallel import each, n_workers
from .._utils.types import Array
from .blocks import RowBlock, as_canonical, check_block, csr_block
from .context_sums import consecutive
from .low_rank_rows import LowRankRows

# Entries of a block from which on threads are worth it.
_WORTHWHILE_ENTRIES = 2**18


def row_parts(block: Any) -> list[slice]:
    """Return the rows of a block, one slice for each thread, with equal numbers of entries; all rows if few."""
    is_sparse = scipy.sparse.issparse(block)
    n = int(block.shape[0])
    n_parts = n_workers() if stored_values(block).size >= _WORTHWHILE_ENTRIES else 1
    shares = np.linspace(0, 1, n_parts + 1)[1:-1]
    inner = np.searchsorted(block.indptr, shares * block.indptr[-1]) if is_sparse else (shares * n).astype(int)
    return [slice(a, b) for a, b in pairwise([0, *np.minimum(inner, n).tolist(), n])]


def _over_parts(call: Callable[[slice], Any], parts: list[slice]) -> list[Any]:
    return list(each(call, parts, len(parts)))


def stored_values(block: Any) -> Array:
    """Return the entries that a block stores: all that a sparse one has, every number of a dense one."""
    return np.asarray(block.data if scipy.sparse.issparse(block) else block)


def row_totals(block: RowBlock) -> Array:
    """Return the sum of each row (n,) in float64. Cost: one addition for each stored entry."""
    X: Any = block
    if not scipy.sparse.issparse(X):
        return np.asarray(X.sum(axis=1, dtype=np.float64))

    def of_part(part: slice) -> Array:
        rows = consecutive(X, part.start, part.stop)
        # Differences of running sums would lose digits, and reduceat has no sum of nothing, which empty rows need.
        totals = np.zeros(rows.shape[0])
        filled = np.flatnonzero(np.diff(rows.indptr))
        if len(filled):
            totals[filled] = np.add.reduceat(rows.data, rows.indptr[filled], dtype=np.float64)
        return totals

    return np.concatenate(_over_parts(of_part, row_parts(X)))


def row_name(rows: int | Array, i: int) -> int:
    """Return the number of row i of a block: ``rows`` is that of its first row, or of every row."""
    return rows + i if isinstance(rows, int) else int(rows[i])


def check_counts(block: RowBlock, totals: Array, rows: int | Array, where: str) -> None:
    """Raise if a block has negative or non-finite values; ``totals`` (n,) are those of its rows. Cost: one minimum."""
    if not np.isfinite(totals).all():
        # Row by row where numbers do not follow each other, so that the error names the right one.
        bad = np.flatnonzero(~np.isfinite(totals))
        X: Any = block
        for i in bad[:1] if not isinstance(rows, int) else ():
            check_block(X[[i]], row_name(rows, int(i)), where)
        check_block(X, rows if isinstance(rows, int) else 0, where)
    values = stored_values(block)
    if values.size and values.min() < 0:
        raise _negative(block, rows, where)


def _negative(block: Any, rows: int | Array, where: str) -> ValueError:
    values = stored_values(block)
    if scipy.sparse.issparse(block):
        position = np.flatnonzero(values < 0)
        first = int(np.searchsorted(block.indptr, position[0], side="right")) - 1
        column = int(block.indices[position[0]])
    else:
        at = np.argwhere(values < 0)
        first, column = (int(number) for number in at[0])
    return ValueError(
        f"{where} has negative values ({values.min():.3g} at the least, the first of them in row "
        f"{row_name(rows, first)}, feature {column}), and preprocess is for counts. Pass raw counts (a layer, or "
        "adata.raw), or preprocess=None if rows have been prepared already."
    )


def times_rows(block: RowBlock, factors: Array, dtype: np.dtype[Any]) -> Any:
    """Return ``diag(factors) X`` in this precision: a copy."""
    X: Any = block
    factors = factors.astype(dtype)
    if not scipy.sparse.issparse(X):
        return np.multiply(X, factors[:, None], dtype=dtype)
    data = np.empty(len(X.data), dtype=dtype)

    def fill(part: slice) -> None:
        bounds = X.indptr[part.start : part.stop + 1]
        entries = slice(int(bounds[0]), int(bounds[-1]))
        np.multiply(X.data[entries], np.repeat(factors[part], np.diff(bounds)), out=data[entries], dtype=dtype)

    _over_parts(fill, row_parts(X))
    return csr_block(data, X.indices, X.indptr, X.shape[1], dtype, canonical=True)


def log1p_in_place(block: Any) -> Any:
    """Return the block with ``log(1 + x)`` in place of its values, which are its own."""
    values = stored_values(block)
    n_parts = n_workers() if values.size >= _WORTHWHILE_ENTRIES else 1
    list(each(lambda part: np.log1p(part, out=part), np.array_split(values, n_parts), n_parts))
    return block


def divided_columns(block: Any, scales: Array) -> Any:
    """Return the block with each column divided by its scale; its values are its own, and are written to."""
    scales = scales.astype(block.dtype)
    if isinstance(block, LowRankRows):
        return LowRankRows(divided_columns(block.entries, scales), block.left, block.right / scales[:, None])
    if scipy.sparse.issparse(block):
        block.data /= scales[block.indices]
    else:
        block /= scales
    return block


def chosen_columns(block: Any, columns: Array) -> Any:
    """Return some columns of a block, numbers in increasing order: a copy."""
    if not scipy.sparse.issparse(block):
        return block[:, columns]
    parts = _over_parts(lambda part: consecutive(block, part.start, part.stop)[:, columns], row_parts(block))
    # Their order keeps indices sorted, which SciPy would go through all entries to see.
    chosen = scipy.sparse.csr_array(parts[0]) if len(parts) == 1 else _stacked(parts)
    return as_canonical(chosen, known=True)


def _stacked(parts: list[Any]) -> Any:
    """Return CSR parts below each other, copied in threads."""
    ends = np.cumsum([0, *(len(part.data) for part in parts)])
    data = np.empty(ends[-1], dtype=parts[0].dtype)
    indices = np.empty(ends[-1], dtype=np.result_type(*(part.indices for part in parts)))
    pointers = [parts[0].indptr[:1], *(part.indptr[1:] + start for part, start in zip(parts, ends, strict=False))]

    def fill(i: int) -> None:
        data[ends[i] : ends[i + 1]] = parts[i].data
        indices[ends[i] : ends[i + 1]] = parts[i].indices

    list(each(fill, range(len(parts)), len(parts)))
    return csr_block(data, indices, np.concatenate(pointers), parts[0].shape[1], data.dtype, canonical=True)


def as_floats(block: Any, dtype: np.dtype[Any]) -> Any:
    """Return a copy of a block in this precision."""
    if not scipy.sparse.issparse(block):
        return np.array(block, dtype=dtype)
    data = np.array(block.data, dtype=dtype)
    return csr_block(data, block.indices, block.indptr, block.shape[1], dtype, canonical=True)


def by_function(function: Callable[[Any], Any], name: str, block: Any, dtype: np.dtype[Any], where: str) -> Any:
    """Return what a user's function makes of a block, in this precision; raise if that is no block of the same form."""
    given = _read_only(block)
    made = function(given)
    way_out = "Return the same rows and columns, one for one."
    sparse = scipy.sparse.issparse(block)
    if not hasattr(made, "shape") or getattr(made, "shape", None) != block.shape:
        what = f"shape {made.shape}" if hasattr(made, "shape") else f"a {type(made).__name__}"
        raise ValueError(f"preprocess={name} made {what} of a block of {where} of shape {block.shape}. {way_out}")
    if scipy.sparse.issparse(made) != sparse:
        raise ValueError(
            f"preprocess={name} made a {'dense' if sparse else 'sparse'} block of a {'sparse' if sparse else 'dense'} "
            f"one of {where}; return {'a CSR matrix, whose zeros stay zeros' if sparse else 'an array'}."
        )
    made = as_canonical(scipy.sparse.csr_array(made)) if sparse else np.asarray(made)
    if made.dtype.kind not in "biuf":
        raise ValueError(f"preprocess={name} made values of dtype {made.dtype}; return real numbers.")
    values = stored_values(made)
    if not np.isfinite(values.sum(dtype=np.float64)) and not np.isfinite(values).all():
        # Rows that are not finite themselves have an error of their own, which says where.
        check_block(block, 0, where)
        n = int((~np.isfinite(values)).sum())
        raise ValueError(
            f"preprocess={name} made {n} values that are NaN or infinite of finite rows of {where}; let it return "
            "finite numbers, as np.log1p does for counts."
        )
    # Its own values, which later steps write to: the function may have returned what it was given.
    own = made is not given and made.dtype == dtype and not np.shares_memory(values, stored_values(block))
    return made if own else as_floats(made, dtype)


def check_row_wise(function: Callable[[Any], Any], name: str, block: Any, where: str) -> None:
    """Raise if a function gives rows other values when they come in two parts: it looks at other rows."""
    n = block.shape[0]
    if n < 2:
        return
    dtype = np.dtype(block.dtype)
    whole = by_function(function, name, block, dtype, where)
    parts = [by_function(function, name, part, dtype, where) for part in (block[: n // 2], block[n // 2 :])]
    sparse = scipy.sparse.issparse(whole)
    joined = scipy.sparse.vstack(parts) if sparse else np.concatenate(parts)
    difference = stored_values(whole - joined)
    # Rounding only: sums within a row may be taken in another order.
    size = max(float(np.abs(stored_values(whole)).max(initial=0)), float(np.finfo(dtype).tiny))
    rows = int(np.abs(difference).max(initial=0) > 1e3 * float(np.finfo(dtype).eps) * size)
    if rows:
        raise ValueError(
            f"preprocess={name} gives rows of {where} other values when they come in two blocks than in one, so it "
            "looks at other rows. Blocks have any length: let it treat each row by itself, and compute what it takes "
            "of all rows before the fit."
        )


def _read_only(block: Any) -> Any:
    """Return the block with values that cannot be written to: they may be the user's own data."""
    if not scipy.sparse.issparse(block):
        view = block.view()
        view.flags.writeable = False
        return view
    data = block.data.view()
    data.flags.writeable = False
    return csr_block(data, block.indices, block.indptr, block.shape[1], block.dtype, canonical=True)
