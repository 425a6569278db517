"""Scatter matrices ``sum_t (x_t - m)(x_t - m)^T`` of a block of rows: the two formulas for them, and which to take.

``context_sums`` and the modules of ``_covariances`` add these up over blocks and contexts; divided by ``n - 1`` they
are covariances.

From ``X^T X``
    ``sum x x^T - n m m^T`` needs no copy of the rows and one pass. Where a mean is far from 0 beside the standard
    deviation, two large numbers are subtracted: as many digits are lost as ``1 + m^2 / variance`` has. ``keeps_digits``
    says whether enough are left.
From centred rows
    ``Z = X - 1 m^T`` and ``Z^T Z`` lose nothing, and need a copy of some rows at a time (``add_centred``). The mean is
    rounded to the precision of the rows, so that the rows of Z add up to ``d`` and not to 0; about their true mean the
    scatter is ``Z^T Z - d d^T / n``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .._utils.types import Array

# The scatter from X^T X has a rounding error of eps times the squares before subtraction. Below this ratio of squares
# before to squares after, 12 of 16 digits are left. Larger means fewer digits, smaller more passes over the rows.
SAFE_RATIO = 1e-12 / np.finfo(np.float64).eps
# Rows of an outer product that are formed at a time: with p x p at once the temporary would be as large as a result.
OUTER_ROWS = 128


def keeps_digits(squares: Array, centred_squares: Array) -> Any:
    """Whether 12 digits are left of every feature: ``sum x^2`` (p,) before and after the mean was taken off.

    Of several contexts, (k, p), one answer for each.
    """
    # A product, so that nothing is divided by 0: a feature of zeros passes, and one that is constant elsewhere fails.
    return (squares <= SAFE_RATIO * centred_squares).all(axis=-1)


def dense_pieces(X: Any, step: int) -> Iterator[Array]:
    """Yield the rows of a block as dense arrays, sparse ones ``step`` rows at a time, dense ones as they are."""
    if isinstance(X, np.ndarray):
        yield X
        return
    for start in range(0, X.shape[0], step):
        yield X[start : start + step].toarray()


def add_centred(
    X: Array, mean: Array, scatter: Array, shift: Array, *, work: Array | None = None, first: bool = False
) -> None:
    """Add ``Z^T Z`` to ``scatter`` (p, p) and the sum of the rows of Z to ``shift`` (p,), for ``Z = X - 1 mean^T``.

    ``work`` is room for Z, in its precision. ``first`` overwrites ``scatter`` and so needs no temporary of its size.
    """
    Z = np.subtract(X, mean, out=None if work is None else work[: len(X)])
    # In double even for float32 rows: d is made of rounding errors, which a sum in single precision would add to.
    shift += Z.sum(axis=0, dtype=np.float64)
    # matmul writes into ``scatter``, where += would form the whole product (p, p) next to it.
    if first:
        np.matmul(Z.T, Z, out=scatter)
    else:
        scatter += Z.T @ Z


def add_outer(out: Array, factor: float, x: Array) -> None:
    """Add ``factor x x^T`` to ``out`` (p, p), some rows at a time."""
    for i in range(0, len(x), OUTER_ROWS):
        out[i : i + OUTER_ROWS] += np.outer(factor * x[i : i + OUTER_ROWS], x)
