"""Kernels: what one block of rows contributes to the totals of a pass. Those for the basis are in ``gram.py``.

A kernel takes rows X (n, p), dense or CSR, and ``codes`` (n,), the index of each row's context, and returns ``Sum``
items to be added to the totals. It may run in any thread and on any machine, so it holds nothing but arrays, bound to
its first arguments by ``functools.partial``. ``StreamedCovariances`` turns totals into products with covariances.

Centring rows would make sparse ones dense. Wherever possible, their scores on a few directions are centred instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from .._data import context_sums
from .._data.context_sums import Sum
from .._data.contexts import Contexts
from .._data.low_rank_rows import LowRankRows, dense_rows
from .._data.projection import offset_scores
from .._data.scatter import add_centred
from .._data.sparse_products import row_kernels, times, transposed_times
from .._utils.types import Array
from .passes import Kernel

# Numbers in a dense, centred copy of rows (8 MB per thread), which is needed if all entries of covariances are. With
# more, the copy only takes memory; with far fewer, it has too few rows for BLAS to be efficient.
_CENTRED_NUMBERS = 2**20
# With more contexts than this a block has few rows of each. Sums of sparse rows are then added entry by entry, which is
# three times as fast as forming sums by context first, and scores of several blocks are squared together.
_MANY_CONTEXTS = 200


@dataclass(frozen=True)
class CentredScores:
    """Centred scores ``(x - m_i)^T A``, from the directions A (p, m) and the scores ``offsets`` (k, m) of the means.

    Both are in the precision of the rows.
    """

    directions: Array
    offsets: Array

    def of(self, X: Any, codes: Array) -> Array:
        """Return the scores (n, m)."""
        # X (n, p) @ A (p, m), less one row of offsets for each row of X: O(n m) more, and no copy of X.
        return offset_scores(X, self.directions, self.offsets[codes])


def adds_by_row(contexts: Contexts) -> bool:
    """Whether to leave sums over contexts to the end; not on other machines, where that would be more data to send."""
    return contexts.engine is None and len(contexts.names) > _MANY_CONTEXTS


def adds_by_entry(contexts: Contexts) -> bool:
    """Whether to add sparse rows entry by entry."""
    # All contexts have to be sparse: ``entries_by_context`` reads the arrays of a CSR block.
    return bool(adds_by_row(contexts) and contexts.sparse.all() and not contexts.low_rank)


def row_sums(by_entry: bool, X: Any, codes: Array) -> list[Sum]:
    """Return the sums of rows, to total 0, (k, p)."""
    sums = context_sums.entries_by_context if by_entry else context_sums.sums_by_context
    return [Sum(0, *sums(X, codes))]


def row_sums_and_sketch(by_entry: bool, directions: Array, mixture: Array, X: Any, codes: Array) -> list[Sum]:
    """Return ``row_sums``, and ``sum_i w_il X_i^T X_i x_l`` for directions x and weights w (k, s), to total 1, (p, s).

    Means are not known yet, so the caller has to subtract ``n_i w_il m_i m_i^T x_l`` from the latter.
    """
    # In a single product whatever the contexts: row t is multiplied by the weights of its context, w[codes[t]].
    # X (n, p), directions (p, s), scores (n, s). The second product is a plain one, without the care that
    # ``context_sums.transposed`` takes of single precision: a sketch only has to point roughly the right way.
    scores = times(X, directions)
    return [*row_sums(by_entry, X, codes), Sum(1, ..., transposed_times(X, scores * mixture[codes]))]


def score_scatters(scores: CentredScores, X: Any, codes: Array) -> list[Sum]:
    """Return ``Z_i^T Z_i``, to total 0, (k, m, m)."""
    # Scores are sorted by context, and not the rows: they are far smaller.
    Z, present, bounds = context_sums.by_context(scores.of(X, codes), codes)
    # For contexts of this block only: with many contexts a total (k, m, m) for every block would be mostly zeros.
    return [Sum(0, present, context_sums.squares_of_runs(Z, bounds))]


def score_rows(scores: CentredScores, X: Any, codes: Array) -> list[Sum]:
    """Return the same as ``score_scatters``, to be squared with the scores of other blocks."""
    return [Sum(0, context_sums.Squared(codes), scores.of(X, codes))]


@dataclass(frozen=True)
class SquareLengths:
    """Squared lengths of rows, ``sum_f w_f (x_f - m_if)^2`` of dense and ``sum_f w_f x_f^2`` of sparse ones.

    ``means`` (k, p) or None for 0, ``weights`` w (p,) or None for 1. Summed over a context, the two differ by ``n_i
    sum_f w_f m_if^2``.
    """

    means: Array | None = None
    weights: Array | None = None

    def of(self, X: Any, codes: Array) -> Array:
        """Return the squared lengths (n,) in float64; memory O(nnz), or that of a chunk of dense rows."""
        if isinstance(X, LowRankRows):
            return X.row_squares(self.weights)
        if scipy.sparse.issparse(X):
            kernels = row_kernels(X) if self.weights is None else None
            if kernels is not None:
                return np.asarray(kernels.squared_lengths(X))
            # In the precision of the rows, added up in double: each square is rounded once.
            squares = X.data * X.data
            if self.weights is not None:
                squares = squares * self.weights[X.indices]
            # Rows without entries are left out: for these reduceat would return the next entry and not 0.
            filled = np.diff(X.indptr) > 0
            lengths = np.zeros(X.shape[0])
            if filled.any():
                lengths[filled] = np.add.reduceat(squares, X.indptr[:-1][filled], dtype=np.float64)
            return lengths
        weights = np.ones(X.shape[1]) if self.weights is None else self.weights
        step = max(1, _CENTRED_NUMBERS // X.shape[1])
        lengths = np.empty(len(X))
        for i in range(0, len(X), step):
            lengths[i : i + step] = self._of_dense(X[i : i + step], codes[i : i + step], weights)
        return lengths

    def _of_dense(self, X: Array, codes: Array, weights: Array) -> Array:
        centred = X.astype(np.float64, copy=False) if self.means is None else X - self.means[codes]
        return np.asarray(np.einsum("np,np,p->n", centred, centred, weights, optimize=True))


def with_row_squares(kernel: Kernel, lengths: SquareLengths, place: int, X: Any, codes: Array) -> list[Sum]:
    """Return what ``kernel`` does, and sums of squared lengths of rows, to total ``place``, (k, 1)."""
    present = np.flatnonzero(np.bincount(codes))
    squares = np.bincount(codes, weights=lengths.of(X, codes))[present]
    return [*kernel(X, codes), Sum(place, present, squares[:, None])]


def nothing(X: Any, codes: Array) -> list[Sum]:
    """Return nothing, for a pass that ``with_row_squares`` alone has a use for."""
    return []


def score_squares(scores: CentredScores, X: Any, codes: Array) -> list[Sum]:
    """Return the diagonals of ``Z_i^T Z_i``, to total 0, (k, m)."""
    Z, present, bounds = context_sums.by_context(scores.of(X, codes), codes)
    # Only the diagonal: O(n m) where ``score_scatters`` takes O(n m^2). Runs are never empty, for which reduceat would
    # return a row and not 0.
    return [Sum(0, present, np.add.reduceat(Z**2, bounds[:-1], axis=0, dtype=np.float64))]


def combined_products(scores: CentredScores, W: Array, X: Any, codes: Array) -> list[Sum]:
    """Return ``sum_i X_i^T Z_i W_i``, to total 0, (p, m), and the sums of the ``Z_i W_i``, to total 1, (k, m).

    W holds matrices (k, m, m) or their diagonals (k, m). The caller needs the second total to centre the first.
    """
    Z = scores.of(X, codes)
    # Z (n, m) is a new array, so it may be overwritten. With a diagonal W_i, row t is multiplied by the weights of its
    # context wherever it stands; matrices need the rows of a context together.
    if W.ndim == 2:
        Z *= W[codes]
    else:
        Z = context_sums.multiplied(Z, codes, W)
    ordered, present, bounds = context_sums.by_context(Z, codes)
    # Centred scores sum to 0 over all rows of a context, but not over those of one block, nor exactly after rounding.
    sums = np.add.reduceat(ordered, bounds[:-1], axis=0, dtype=np.float64)
    # X^T Z takes rows in the order in which they came: sorting X by context would copy it.
    return [Sum(0, ..., context_sums.transposed(X, Z)), Sum(1, present, sums)]


def pooled_products(directions: Array, factors: Array, X: Any, codes: Array) -> list[Sum]:
    """Return ``sum_i f_i X_i^T (Z_i - 1 z_i^T)``, to total 0, (p, m), for X with all rows of its contexts, in runs.

    ``Z_i = X_i V`` are the scores on the directions V and z_i their means: centred scores sum to 0 over a context, so
    that no mean of p features is needed.
    """
    Z = times(X, directions)
    present, bounds = context_sums.runs(codes)
    counts = np.diff(bounds)
    means = np.add.reduceat(Z, bounds[:-1], axis=0, dtype=np.float64) / counts[:, None]
    Z -= np.repeat(means.astype(Z.dtype), counts, axis=0)
    Z *= np.repeat(factors[present].astype(Z.dtype), counts)[:, None]
    return [Sum(0, ..., context_sums.transposed(X, Z))]


def feature_squares(means: Array, X: Any, codes: Array) -> list[Sum]:
    """Return sums of ``(x - m_i)^2``, or of ``(x - m_i)^2 - m_i^2`` for sparse rows, to total 0, (k, p)."""
    # ``means`` are in float64 whatever the rows are: for sparse ones the caller adds n m_i^2 to the sum, and much of it
    # cancels where a mean is large beside the deviations from it.
    present, squares = context_sums.squares_by_context(X, codes, means)
    return [Sum(0, present, squares)]


def centred_scatters(means: Array, X: Any, codes: Array) -> list[Sum]:
    """Return ``(X_i - 1 m_i^T)^T (X_i - 1 m_i^T)``, to total 0, (k, p, p), and its rows' sums, to total 1, (k, p).

    ``means`` (k, p) are in the precision of the rows. If they were exact the sums would be 0; the caller uses them to
    undo the effect of their rounding. Rows are not centred if ``X^T X`` can be corrected without losing digits.
    """
    # X (n, p), scatters (k', p, p) of the k' contexts in this block.
    p = means.shape[1]
    present, rows = context_sums.rows_of_contexts(codes, 0, len(means))
    scatters = np.zeros((len(present), p, p))
    centred_sums = np.zeros((len(present), p))
    step = max(1, _CENTRED_NUMBERS // p)
    for j, i in enumerate(present.tolist()):
        Xi = X[rows[j]]
        uncentred = context_sums.scatter_uncentred(Xi, means[i])
        if uncentred is not None:
            # Other blocks of this context may come as centred rows, so its sums are needed from all of them: a part
            # of them would not be small.
            scatters[j] = uncentred
            centred_sums[j] = np.ones(len(Xi)) @ Xi - len(Xi) * means[i]
            continue
        for start in range(0, Xi.shape[0], step):
            some = Xi[start : start + step]
            add_centred(dense_rows(some), means[i], scatters[j], centred_sums[j])
    return [Sum(0, present, scatters), Sum(1, present, centred_sums)]
