"""Rows that come in blocks from the user's own code: a function, or an object that can be iterated repeatedly.

Nothing is known about such rows before they are read, and nothing guarantees that they are the same in the next pass;
so ``ChunkSource`` reads them once to learn their shapes, and checks every later pass against the first.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from .._utils.types import Array
from .blocks import (
    RowBlock,
    as_canonical,
    block_dtype,
    check_matrix_shape,
    csr_blocks,
    equal_blocks,
    in_asked_order,
    largest,
    row_numbers,
)
from .columns import frame_columns, positions_of
from .validation import check_rows


class ChunkSource:
    """Rows of one matrix that come as 2-D blocks: arrays, DataFrames, or sparse matrices.

    The constructor reads all blocks once. Where some are sparse, all are passed on as CSR: a dense block takes up to
    twice its size as CSR, while there is no bound on the size of a sparse block that is made dense.

    Parameters
    ----------
    chunks : callable or iterable
        A function without arguments that returns an iterable of blocks, a new one at each call, or an object that can
        be iterated repeatedly.
    where : str
        What to call it in errors.

    Attributes
    ----------
    feature_names : list or None
        Columns of the first block, if that is a DataFrame; those of later DataFrames are put in this order.
    size : float
        Largest absolute value, for the choice of a scale without another pass.
    """

    in_memory = False

    def __init__(self, chunks: Any, where: str) -> None:
        self._chunks = chunks
        self._where = where
        # Before anything is read: the first block of an iterator would be lost to the user.
        if hasattr(chunks, "__next__"):
            raise one_shot(chunks, where)
        if callable(chunks):
            _check_no_arguments(chunks, where)
        counts: list[int] = []
        n = p = nnz = 0
        dtype = np.dtype(np.float32)  # widened by the first block that is float64
        integers = True
        self.sparse = False
        self.size = 0.0
        self.feature_names: list[Any] | None = None
        for X in self._iterate():
            # Only the first block decides: if it has no names, names of later ones mean nothing.
            if not counts and hasattr(X, "columns"):
                self.feature_names = list(X.columns)
            block = self._convert(X, n)
            integers &= _holds_integers(X)
            if counts and block.shape[1] != p:
                raise ValueError(
                    f"{where}: block {len(counts)} (rows {n} to {n + block.shape[0] - 1}) has {block.shape[1]} "
                    f"features where the blocks before have {p}; give every block the same features."
                )
            p = block.shape[1]
            counts.append(block.shape[0])
            n += block.shape[0]
            dtype = np.result_type(dtype, block.dtype)
            self.sparse |= scipy.sparse.issparse(block)
            self.size = max(self.size, largest(block))
            # Every number of a dense block counts: how many are 0 is not known without looking at them all.
            nnz += block.nnz if scipy.sparse.issparse(block) else block.size
        if not counts:
            raise ValueError(
                f"{where} gave no block of rows; give at least one 2-D block, and a function that returns a new "
                "iterator at each call."
            )
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        self.shape = (n, p)
        self.dtype = dtype
        self.stored_dtype = np.dtype(np.int64) if integers else dtype
        # An estimate, for int32 indices and pointers; SciPy takes int64 only for very large blocks.
        index_bytes = 4
        self.nbytes = nnz * (dtype.itemsize + index_bytes) + index_bytes * n if self.sparse else n * p * dtype.itemsize

    def gather(self, rows: slice | Array) -> RowBlock:
        """Return these rows in this order, from one pass that ends at the last of them."""
        numbers = row_numbers(rows, self.shape[0], self._where)
        # In the order of the stream; ``order`` is where each of them belongs in the result.
        order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
        out: Any = None if self.sparse else np.empty((len(numbers), self.shape[1]), dtype=self.dtype)
        pieces = []
        for first, block in self._blocks(int(ordered[-1]) + 1 if len(ordered) else 0):
            # Those of the rows wanted that are in this block: ordered[a:b].
            a, b = np.searchsorted(ordered, [first, first + block.shape[0]])
            if a == b:
                continue
            wanted = block[ordered[a:b] - first]
            if self.sparse:
                pieces.append(wanted)
            else:
                out[order[a:b]] = wanted
        if not self.sparse:
            return out
        # vstack refuses an empty list.
        if not pieces:
            return scipy.sparse.csr_array((0, self.shape[1]), dtype=self.dtype)
        return in_asked_order(pieces, order)

    def scan(self, max_bytes: int) -> Iterator[tuple[int, RowBlock]]:
        """Yield (number of the first row, block): blocks as they come, split if larger than ``max_bytes``."""
        for first, block in self._blocks(self.shape[0]):
            if self.sparse:
                parts = csr_blocks(block.indptr, self.dtype.itemsize + block.indices.itemsize, max_bytes)
            else:
                parts = equal_blocks(block.shape[0], max_bytes // (self.shape[1] * self.dtype.itemsize))
            for a, b in parts:
                yield first + a, block if b - a == block.shape[0] else block[a:b]

    def _blocks(self, stop: int) -> Iterator[tuple[int, Any]]:
        """Yield (first row, block) up to row ``stop``, each checked against the first pass."""
        # Blocks are compared by number and shape only; whether their values are the same is not looked for.
        expected = len(self._starts) - 1
        i = 0
        # If no row is asked for, the user's function is not even called.
        for X in self._iterate() if stop else ():
            if i == expected:
                raise ValueError(self._changed(f"it gave {expected} blocks and now gives more"))
            first = int(self._starts[i])
            past = int(self._starts[i + 1])
            block = self._convert(X, first)
            if block.shape != (past - first, self.shape[1]):
                raise ValueError(
                    self._changed(
                        f"block {i} (rows {first} to {past - 1}) had shape {(past - first, self.shape[1])} and now has "
                        f"{block.shape}"
                    )
                )
            # A stream that is partly sparse is passed on as CSR throughout; one that was dense in the first pass must
            # stay so, since whoever reads it has planned for dense blocks.
            if self.sparse and not scipy.sparse.issparse(block):
                block = scipy.sparse.csr_array(block)
            elif not self.sparse and scipy.sparse.issparse(block):
                raise ValueError(self._changed(f"block {i} (rows {first} to {past - 1}) was dense and now is sparse"))
            i += 1
            yield first, block.astype(self.dtype, copy=False)
            # Nothing is read beyond the last row wanted, unless that is the very last row: then the loop goes on, to
            # find out whether the stream has ended.
            if stop <= past and past < self.shape[0]:
                return
        if stop and i < expected:
            hint = " (return a new iterator at each call)" if i == 0 else ""
            raise ValueError(self._changed(f"it gave {expected} blocks and now gives {i}{hint}"))

    def _changed(self, what: str) -> str:
        return (
            f"{self._where} changed between passes: {what}. A fit reads it several times; give the same rows each time."
        )

    def _iterate(self) -> Iterator[Any]:
        # Only ``iter`` is within the try: errors of the user's own function pass through as they are.
        chunks = self._chunks() if callable(self._chunks) else self._chunks
        try:
            return iter(chunks)
        except TypeError as error:
            raise TypeError(
                f"{self._where} is a function that returned a {type(chunks).__name__}, which cannot be iterated; "
                "return an iterable of 2-D blocks of rows."
            ) from error

    def _convert(self, X: Any, first: int) -> Any:
        """Return a block as CSR or as a float array."""
        where = f"{self._where}, the block from row {first} on"
        # Arrays among frames go by position: there is nothing to compare.
        if self.feature_names is not None and hasattr(X, "columns"):
            X = self._by_name(X, where)
        if not scipy.sparse.issparse(X):
            return check_rows(X, where)
        check_matrix_shape(X.shape, where)
        dtype = block_dtype(X.dtype, where)
        # csr_array makes a new object around the same arrays, so that no flag is set on the user's.
        return as_canonical(scipy.sparse.csr_array(X).astype(dtype, copy=False))

    def _by_name(self, X: Any, where: str) -> Any:
        """Return a DataFrame with its columns in the order of the first block's, which must be the same."""
        assert self.feature_names is not None
        way_out = "Give every block the same columns."
        places = positions_of(self.feature_names, list(X.columns), where, "of the first block", way_out, exactly=True)
        return X if places is None else frame_columns(X, places)


def _holds_integers(X: Any) -> bool:
    """Whether a block is of integers, as counts may be: an array, a sparse matrix, or a DataFrame."""
    dtypes = list(X.dtypes) if hasattr(X, "columns") else [getattr(X, "dtype", None)]
    return all(getattr(dtype, "kind", "") in ("b", "i", "u") for dtype in dtypes)


def one_shot(X: Any, where: str) -> TypeError:
    """Return the error for an iterator, which would be empty in the second pass."""
    return TypeError(
        f"{where} is a {type(X).__name__}, which can be read only once, and a fit reads the rows several times; pass a "
        "function that returns a new one (lambda: blocks()), or an object that can be iterated repeatedly. With few "
        "features, ContextMoments and partial_fit need only one pass."
    )


def _check_no_arguments(function: Any, where: str) -> None:
    """Raise if the function cannot be called without arguments."""
    # Here rather than at the first call, whose TypeError might also come from inside the function.
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins have no signature; the call itself raises then
        return
    try:
        signature.bind()
    except TypeError as error:
        raise TypeError(
            f"{where} is a function with arguments {signature} ({error}); pass one without, such as "
            "lambda: blocks(path)."
        ) from error
