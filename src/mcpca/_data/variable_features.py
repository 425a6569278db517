"""Highly variable features of raw counts, chosen in one pass over the rows as Seurat and scanpy choose them.

The rule is "vst" of Seurat 3, ``flavor="seurat_v3"`` of ``scanpy.pp.highly_variable_genes``. With ``m_j`` and ``v_j``
the mean and the variance of feature j over the n rows of a group, and ``s_j^2`` what a loess curve (span 0.3, degree 2)
of ``log10 v`` on ``log10 m`` gives at ``m_j``, a feature's normalised variance is

    z_j = sum_t (min(x_tj, m_j + s_j sqrt(n)) - m_j)^2 / ((n - 1) s_j^2).

The bound of the clip is known only after all rows have been seen, but counts are whole numbers: the table of how often
each occurs in each feature is small, and gives the sums for any bound (``count_tables.py``). Values that are no whole
numbers, and data with too many different counts, take a second pass.

Features are ranked by ``z_j`` within each group. The ``n_top`` are those with the smallest median of their ranks
over the groups in which they are among the first ``n_top``, then with the most such groups, then in the order of the
columns. Equal variances within a group are ranked in the order in which ``numpy.argsort`` leaves them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .._linalg.loess import loess
from .._utils.arguments import check_integer
from .._utils.types import Array
from . import count_tables
from .blocks import SCAN_BYTES, Source
from .contexts import Contexts
from .count_tables import CountTable, NumberedRows

# Share of the features that determine the curve at each of them, as in Seurat and scanpy.
SPAN = 0.3


@dataclass(frozen=True)
class VariableFeatures:
    """The features chosen, and what they were chosen by.

    Attributes
    ----------
    chosen : ndarray (n_top,)
        Their columns, ascending.
    ranks : ndarray (p,)
        Median over groups of a feature's rank by normalised variance, from 0, among ranks below ``n_top``; NaN for
        features that are among the first ``n_top`` of no group.
    n_groups : ndarray (p,) of int
        In how many groups a feature is among the first ``n_top``.
    means, variances : ndarray (p,)
        Over all rows.
    normalized_variances : ndarray (p,)
        Means over groups.
    """

    chosen: Array
    ranks: Array
    n_groups: Array
    means: Array
    variances: Array
    normalized_variances: Array


def variable_features(contexts: Contexts, n_top: int, *, by_context: bool = False) -> VariableFeatures:
    """Return the ``n_top`` most variable features of raw counts: one pass over the rows.

    Parameters
    ----------
    contexts : Contexts
        Raw counts in memory, on disk or on Dask; each row once.
    n_top : int
        How many features, at most p.
    by_context : bool
        Rank features within each context, as scanpy does with ``batch_key``, and not over all rows.

    Notes
    -----
    Cost O(nnz) and little more. Memory: a block of rows, 8 MB for each thread, 16 bytes for each different pair of
    feature and count (in each context, if by context), at most 2^24 pairs, and some ten vectors of features (for each
    context). Where there are more pairs, or values are no whole numbers, a second pass takes the place of the table.
    Rows on Dask are counted by the workers, and tables are added up there.

    scanpy refuses features of which so many have the same mean that no slope is determined; here such points lead to
    the least slope, and the choice goes on.
    """
    p = contexts.n_features
    n_top = check_integer(n_top, "n_top", 1, p, f"X has {p} features.")
    n_rows = contexts.n_samples if by_context else contexts.n_samples.sum(keepdims=True)
    if n_rows.min() < 2:
        raise ValueError(
            "variable features need at least 2 rows (in every context, if they are chosen by context), and there is "
            f"a group of {int(n_rows.min())}; drop such contexts, or choose over all rows."
        )
    rows = _GroupedRows(contexts, by_context)
    table = rows.table()
    sums, squares = table.moments()
    # (g, p); with the same expressions as scanpy, so that what is 0 there is 0 here.
    n = n_rows[:, None]
    means = sums / n
    variances = (squares / n - means**2) * (n / (n - 1))
    if table.keys is None:
        # Of counts the variance of a constant is 0, of other numbers a rounding error, whose logarithm is far off.
        variances = np.where(variances > n * np.finfo(float).eps * means**2, variances, 0)
    scales = np.stack([_expected_deviations(m, v) for m, v in zip(means, variances, strict=True)])
    bounds = scales * np.sqrt(n) + means
    clipped, clipped_squares = rows.clipped_sums(bounds) if table.keys is None else table.clipped_sums(bounds)
    normalized = (n * means**2 + clipped_squares - 2 * clipped * means) / ((n - 1) * scales**2)
    ranks, n_groups = _median_ranks(normalized, n_top)
    # NaN, for no rank, is last.
    order = np.lexsort((-n_groups, ranks))
    total = float(n_rows.sum())
    mean = sums.sum(axis=0) / total
    variance = (squares.sum(axis=0) / total - mean**2) * (total / (total - 1))
    return VariableFeatures(np.sort(order[:n_top]), ranks, n_groups, mean, variance, normalized.mean(axis=0))


def _expected_deviations(means: Array, variances: Array) -> Array:
    """Return the standard deviation (p,) that the curve gives at each mean; 1 for constant features."""
    varies = variances > 0
    deviations = np.ones(len(means))
    if varies.any():
        curve = loess(np.log10(means[varies]), np.log10(variances[varies]), span=SPAN)
        deviations[varies] = np.sqrt(10**curve)
    return deviations


def _median_ranks(normalized: Array, n_top: int) -> tuple[Array, Array]:
    """Return the median of the ranks below ``n_top`` over groups (p,), and in how many groups there is one."""
    # NumPy's default sort twice, as scanpy has it: features with the same counts have equal variances, and come in the
    # order that this sort leaves them in, which a stable one would not give.
    ranks = np.argsort(np.argsort(-normalized, axis=1), axis=1)
    p = ranks.shape[1]
    # Ranks from ``n_top`` on sort behind the others, so those that count come first in every column.
    ranks = np.sort(np.where(ranks < n_top, ranks, np.nan), axis=0)
    n_groups = (~np.isnan(ranks)).sum(axis=0)
    columns = np.arange(p)
    low, high = ranks[np.maximum(n_groups - 1, 0) // 2, columns], ranks[n_groups // 2 % len(ranks), columns]
    return np.where(n_groups > 0, (low + high) / 2, np.nan), n_groups


@dataclass(frozen=True)
class _GroupedRows:
    """The rows of contexts in one group, or in one group for each context."""

    contexts: Contexts
    by_context: bool

    def table(self) -> CountTable:
        contexts = self.contexts
        shape = (len(contexts.names) if self.by_context else 1, contexts.n_features)
        if contexts.engine is not None:
            table: CountTable = contexts.engine.reduced(partial(_table_of_block, shape), count_tables.merged)
            return table
        return count_tables.merged([count_tables.table_of(self._blocks(s), shape, "X") for s in self._sources()])

    def clipped_sums(self, bounds: Array) -> tuple[Array, Array]:
        engine = self.contexts.engine
        if engine is not None:
            return _added([engine.reduced(partial(_clipped_sums_of_block, bounds), _added)])
        return _added([count_tables.clipped_sums(self._blocks(s), bounds, "X") for s in self._sources()])

    def _sources(self) -> list[Source]:
        return list({id(source): source for source in self.contexts.sources}.values())

    def _blocks(self, source: Source) -> Iterator[NumberedRows]:
        codes = self.contexts.codes(source)
        everything = not self.by_context and bool((codes >= 0).all())
        groups = None if everything else codes if self.by_context else np.minimum(codes, 0)
        for first, block in source.scan(SCAN_BYTES):
            yield NumberedRows(first, block, None if groups is None else groups[first : first + block.shape[0]])


def _table_of_block(shape: tuple[int, int], block: Any, codes: Array, first: int, where: str) -> CountTable:
    groups = codes if shape[0] > 1 else np.minimum(codes, 0)
    return count_tables.table_of([NumberedRows(first, block, groups)], shape, where)


def _clipped_sums_of_block(bounds: Array, block: Any, codes: Array, first: int, where: str) -> tuple[Array, Array]:
    groups = codes if len(bounds) > 1 else np.minimum(codes, 0)
    return count_tables.clipped_sums([NumberedRows(first, block, groups)], bounds, where)


def _added(parts: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    return sum(part[0] for part in parts), sum(part[1] for part in parts)  # type: ignore[return-value]
