"""Moments of rows that count by how near they are: one pass, in which every row is weighed as it is read.

``RowDistances`` has, for a Gaussian model ``Sigma_i = A B_i A^T + s_i I`` (of features multiplied by ``scale``, where
noise is by feature) and centres ``m_i``, the squared Mahalanobis distance of a row of context i. With
``R_i = sqrt(B_i)`` and ``u = A^T (x - m_i)`` it takes one product with r directions:

    d2 = (x - m_i)^T Sigma_i^-1 (x - m_i) = (|x - m_i|^2 - u^T C_i u) / s_i,
    C_i = R_i (s_i I + R_i A^T A R_i)^-1 R_i,

by the Woodbury identity, in which neither B_i nor ``A^T A`` is inverted. A row then weighs
``w = (nu + p) / (nu + d2)``, what the multivariate t with nu degrees of freedom gives to it, and ``weighted_moments``
adds up ``w``, ``w (x - m_i)`` and ``w (x - m_i)(x - m_i)^T`` for each context. Nothing is kept of a row but a count in
a histogram of distances, from which the degrees of freedom are found: so rows may be in memory, on disk or on other
machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from scipy.stats import chi2

from .._data.blocks import Source
from .._data.context_sums import Sum, rows_of_contexts
from .._data.contexts import Contexts
from .._data.scatter import add_outer, dense_pieces
from .._utils.types import Array
from .context_covariances import clear_constant_features
from .passes import Passes, run_pass

# Numbers in a centred copy of rows (8 MB). Larger copies take memory, smaller ones make products slow.
_COPY_NUMBERS = 2**20
# Distances are counted by their logarithm: from 2^-40 to 2^60 times the number of features, in bins that are 2% wide.
# What depends on them to second order in that width, the degrees of freedom and the median, is then known to 1e-4.
_LOWEST_POWER = -40
_HIGHEST_POWER = 60
_BINS_PER_POWER = 32
# The share of Gaussian rows that are nearer than ``nearest``. Far more would change the weights of ordinary rows, far
# less would let a few equal rows draw the mean of their context to themselves.
_NEAREST_SHARE = 1e-3
N_BINS = (_HIGHEST_POWER - _LOWEST_POWER) * _BINS_PER_POWER


@dataclass(frozen=True)
class RowDistances:
    """What squared distances of rows in k contexts are computed from.

    Attributes
    ----------
    means : ndarray (k, p)
        The centre of each context.
    directions : ndarray (p, r)
        Components; if features have a scale, ``scale * A'`` for the components A' of the scaled features.
    shrinkage : ndarray (k, r, r)
        The ``C_i`` above.
    noise : ndarray (k,)
        ``s_i``.
    precisions : ndarray (p,) or None
        Squared scales of features; None if all are 1.
    log_determinants : ndarray (k,)
        ``log det Sigma_i``.
    """

    means: Array
    directions: Array
    shrinkage: Array
    noise: Array
    precisions: Array | None
    log_determinants: Array

    def squared(self, Z: Array, i: int) -> Array:
        """Return d2 (n,) of centred rows Z (n, p) of context i, in float64."""
        if self.precisions is None:
            squares = np.einsum("ij,ij->i", Z, Z)
        else:
            squares = np.einsum("ij,ij,j->i", Z, Z, self.precisions)
        u = Z @ self.directions
        squares -= np.einsum("ij,ij->i", u @ self.shrinkage[i], u)
        # Rounding may leave less than nothing of a row that lies in the span of the components.
        return np.asarray(np.maximum(squares, 0) / self.noise[i])


@dataclass(frozen=True)
class WeightedMoments:
    """Moments of weighted rows, and the distances by which they were weighted.

    Attributes
    ----------
    totals : ndarray (k,)
        Sums of weights.
    means : ndarray (k, p)
        Weighted means.
    scatters : ndarray (k, p, p)
        ``sum w (x - mean)(x - mean)^T`` about the weighted mean.
    histogram : ndarray (N_BINS,)
        Numbers of rows by distance, see ``bin_centres``.
    log_sum : float
        ``sum log(1 + d2 / nu)`` over all rows, or ``sum d2`` for infinite nu.
    """

    totals: Array
    means: Array
    scatters: Array
    histogram: Array
    log_sum: float


class ShrunkSource:
    """Rows of another source less the centre of their context and times a root of their weight, made as they are read.

    The ordinary second moments of such rows about 0 are the weighted ones of the rows: with ``factors`` (k,),
    ``sum factor w (x - m_i)(x - m_i)^T``. ``codes`` (n,) are the contexts of all rows of the source, -1 for none.
    """

    sparse = False

    def __init__(self, source: Source, codes: Array, distances: RowDistances, freedom: float, factors: Array) -> None:
        self._source = source
        self._codes = codes
        self._distances = distances
        self._freedom = freedom
        self._factors = factors
        self.shape = source.shape
        self.dtype = source.dtype
        self.in_memory = source.in_memory
        self.nbytes = self.shape[0] * self.shape[1] * self.dtype.itemsize

    def gather(self, rows: slice | Array) -> Array:
        """Return these rows in this order: a dense copy."""
        return self._shrunk(self._source.gather(rows), self._codes[rows])

    def scan(self, max_bytes: int) -> Iterator[tuple[int, Array]]:
        """Yield (number of the first row, block)."""
        # Sparse blocks grow when they become dense, so these are asked for by their dense size.
        step = max(1, max_bytes // (self.shape[1] * self.dtype.itemsize))
        for first, block in self._source.scan(max_bytes):
            for start in range(0, block.shape[0], step):
                stop = min(start + step, block.shape[0])
                part = slice(first + start, first + stop)
                yield part.start, self._shrunk(block[start:stop], self._codes[part])

    def _shrunk(self, X: Any, codes: Array) -> Array:
        out = np.zeros(X.shape, dtype=self.dtype)
        # An empty block has no runs of contexts.
        if not len(codes):
            return out
        for i, rows in zip(*rows_of_contexts(codes, 0, len(self._factors)), strict=True):
            block = X[rows]
            shrunk = np.empty(block.shape, dtype=self.dtype)
            for part, Z in centred_pieces(block, self._distances.means[i]):
                w = weights_of(self._distances.squared(Z, i), X.shape[1], self._freedom)
                shrunk[part] = np.sqrt(self._factors[i] * w)[:, None] * Z
            out[rows] = shrunk
        return out


def shrunk_rows(contexts: Contexts, distances: RowDistances, freedom: float, totals: Array) -> Contexts:
    """Return the contexts with rows shrunk so that their moments are the weighted ones, divided by the mean weight."""
    factors = contexts.n_samples / totals
    shrunk: dict[int, Source] = {}  # contexts of a labelled matrix share one source
    for source in contexts.sources:
        if id(source) not in shrunk:
            shrunk[id(source)] = ShrunkSource(source, contexts.codes(source), distances, freedom, factors)
    return replace(contexts, sources=[shrunk[id(source)] for source in contexts.sources])


def bin_centres(p: int) -> Array:
    """Return the squared distances (N_BINS,) of rows with p features in the middle of each bin of the histogram."""
    powers = _LOWEST_POWER + (np.arange(N_BINS) + 0.5) / _BINS_PER_POWER
    return np.asarray(p * 2.0**powers)


@cache
def nearest(p: int, share: float = _NEAREST_SHARE) -> float:
    """Return the squared distance that a ``share`` of Gaussian rows with p features are below."""
    return float(chi2.ppf(share, p))


def weights_of(d2: Array, p: int, freedom: float) -> Array:
    """Return ``(nu + p) / (nu + d2)``, which is 1 for infinite degrees of freedom; d2 counts as ``nearest`` at least.

    Without that bound a row may weigh up to ``1 + p / nu``. A few equal rows in a context would then outweigh the rest:
    with p features the t has no maximum if more than ``nu / (nu + p)`` of the rows are in one point.
    """
    return np.ones_like(d2) if np.isinf(freedom) else (freedom + p) / (freedom + np.maximum(d2, nearest(p)))


def weighted_moments(
    contexts: Contexts, distances: RowDistances, freedom: float, passes: Passes, stage: str
) -> WeightedMoments:
    """Return the moments of rows weighted by their distances, from one pass, wherever the rows are.

    Cost O(n p (p + r)). Memory the stack (k, p, p) in float64 and copies of some rows.
    """
    k, p = distances.means.shape
    totals = np.zeros(k)
    sums = np.zeros((k, p))
    scatters = np.zeros((k, p, p))
    histogram = np.zeros(N_BINS)
    log_sum = np.zeros(1)
    kernel = partial(_weighted_sums, distances, freedom)
    run_pass(contexts, passes, stage, kernel, [totals, sums, scatters, histogram, log_sum])
    shifts = sums / totals[:, None]
    for scatter, total, shift in zip(scatters, totals.tolist(), shifts, strict=True):
        # sum w z z^T about another mean, less what lies between the two: cross terms vanish about the weighted mean.
        add_outer(scatter, -total, shift)
    means = distances.means + shifts
    clear_constant_features(scatters, means, totals[:, None])
    return WeightedMoments(totals, means, scatters, histogram, float(log_sum[0]))


def weighted_spread(
    contexts: Contexts, distances: RowDistances, freedom: float, passes: Passes, stage: str
) -> tuple[Array, Array, Array]:
    """Return sums of weights (k,), weighted means (k, p) and weighted variances, averaged over features, (k,).

    A pass without the scatters: cost O(n p r), memory O(k p).
    """
    k, p = distances.means.shape
    totals = np.zeros(k)
    sums = np.zeros((k, p))
    squares = np.zeros(k)
    run_pass(contexts, passes, stage, partial(_weighted_lengths, distances, freedom), [totals, sums, squares])
    shifts = sums / totals[:, None]
    variances = (squares / totals - np.square(shifts).sum(axis=1)) / p
    return totals, distances.means + shifts, np.maximum(variances, 0)


def centred_pieces(X: Any, mean: Array) -> Iterator[tuple[slice, Array]]:
    """Yield (which rows, their dense copy less ``mean`` in float64) of a dense or CSR block, some rows at a time."""
    step = max(1, _COPY_NUMBERS // len(mean))
    start = 0
    pieces = _slices(X, step) if isinstance(X, np.ndarray) else dense_pieces(X, step)
    for piece in pieces:
        Z = piece - mean  # float64, as the mean is
        yield slice(start, start + len(Z)), Z
        start += len(Z)


def _slices(X: Array, step: int) -> Iterator[Array]:
    for start in range(0, len(X), step):
        yield X[start : start + step]


def _weighted_sums(distances: RowDistances, freedom: float, X: Any, codes: Array) -> list[Sum]:
    """Return sums of w, of ``w z`` and of ``w z z^T`` of the contexts in X, the histogram, and the sum of logarithms.

    z are rows less the centre of their context, so that large means cost no digits.
    """
    present, rows = rows_of_contexts(codes, 0, int(codes.max()) + 1)
    p = X.shape[1]
    totals = np.zeros(len(present))
    sums = np.zeros((len(present), p))
    scatters = np.zeros((len(present), p, p))
    histogram = np.zeros(N_BINS)
    log_sum = np.zeros(1)
    for j, (i, rows_of_context) in enumerate(zip(present.tolist(), rows, strict=True)):
        for _, Z in centred_pieces(X[rows_of_context], distances.means[i]):
            d2 = distances.squared(Z, i)
            w = weights_of(d2, p, freedom)
            totals[j] += w.sum()
            sums[j] += w @ Z
            # In place: Z is a copy, and its root-weighted rows have w z z^T for squares.
            Z *= np.sqrt(w)[:, None]
            scatters[j] += Z.T @ Z
            histogram += _counts(d2 / p)
            log_sum += d2.sum() if np.isinf(freedom) else np.log1p(d2 / freedom).sum()
    return [
        Sum(0, present, totals),
        Sum(1, present, sums),
        Sum(2, present, scatters),
        Sum(3, ..., histogram),
        Sum(4, ..., log_sum),
    ]


def _weighted_lengths(distances: RowDistances, freedom: float, X: Any, codes: Array) -> list[Sum]:
    """Return sums of w, of ``w z`` and of ``w |z|^2`` of the contexts in X."""
    present, rows = rows_of_contexts(codes, 0, int(codes.max()) + 1)
    p = X.shape[1]
    totals = np.zeros(len(present))
    sums = np.zeros((len(present), p))
    squares = np.zeros(len(present))
    for j, (i, rows_of_context) in enumerate(zip(present.tolist(), rows, strict=True)):
        for _, Z in centred_pieces(X[rows_of_context], distances.means[i]):
            w = weights_of(distances.squared(Z, i), p, freedom)
            totals[j] += w.sum()
            sums[j] += w @ Z
            squares[j] += w @ np.einsum("ij,ij->i", Z, Z)
    return [Sum(0, present, totals), Sum(1, present, sums), Sum(2, present, squares)]


def _counts(ratios: Array) -> Array:
    """Return how many of these distances, in units of the number of features, fall into each bin (N_BINS,)."""
    # NaN, of rows that are not finite, is counted anywhere: the sums of the pass find it.
    with np.errstate(divide="ignore", invalid="ignore"):
        powers = (np.log2(ratios) - _LOWEST_POWER) * _BINS_PER_POWER
    bins = np.clip(np.nan_to_num(powers), 0, N_BINS - 1).astype(np.intp)
    return np.bincount(bins, minlength=N_BINS)
