"""Covariances of contexts as one array: the explicit way, for few features.

``context_covariances`` is public; ``fit_data`` calls ``covariances_of`` where the array is small enough to form, and
``moments`` calls ``scatters``. Dense rows in memory are read context by context, all other rows by passes. Either way
the arithmetic is that of ``_data.scatter``: ``X^T X`` where no digits are lost, and centred rows where some would be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._data import context_sums
from .._data.annotations import take_annotations
from .._data.contexts import Contexts
from .._data.scatter import OUTER_ROWS, add_centred, add_outer, keeps_digits
from .._utils.parallel import each, n_workers
from .._utils.printing import Shown, contexts_in_words
from .._utils.progress import reporting
from .._utils.stages import uneven
from .._utils.types import Array, Report
from .checkpoint import Checkpoint
from .nuisance import NuisanceFactors, check_nuisance, degrees_of_freedom, nuisance_factors
from .passes import Passes, overflow, run_pass
from .scaling import in_range
from .streamed import StreamedCovariances

# A centred copy of rows takes an eighth of the stack, or 0.5 MB where that is more: larger copies need memory that
# counts beside the stack, smaller ones have too few rows for BLAS to be fast.
_COPY_SHARE = 8
_LEAST_COPY_NUMBERS = 2**16
# Contexts per worker from which on threads take whole contexts each.
_CONTEXTS_PER_WORKER = 8
# Numbers of covariances, half a megabyte, that are centred and divided together: several small ones, or one. A
# temporary of that size for each worker is to be small beside the stack.
_CACHED_NUMBERS = 2**16
_CACHED_SHARE = 64
# Progress is reported after each of so many pieces.
_PROGRESS_PIECES = 20


@dataclass(frozen=True, repr=False)
class ContextCovariances(Shown):
    """Second moments of each context.

    Attributes
    ----------
    covariances : ndarray (k, p, p)
        ``S_i = (X_i - mean_i)^T (X_i - mean_i) / (n_i - 1)``, or less what batch and covariates explain.
    means : ndarray (k, p)
    n_samples : ndarray (k,) of int
    contexts : ndarray (k,)
        Names of the contexts, in the order of the first axis.
    feature_names : ndarray (p,) or None
    """

    covariances: Array
    means: Array
    n_samples: Array
    contexts: Array
    feature_names: Array | None

    def _words(self) -> list[str]:
        return contexts_in_words("Covariances", self.contexts, self.n_samples, self.means.shape[1])

    def _rows(self) -> dict[str, Any]:
        return {"context": self.contexts, "rows": self.n_samples}


def context_covariances(
    X: Any,
    y: Any = None,
    *,
    batch: Any = None,
    covariates: Any = None,
    preprocess: Any = None,
    verbose: Any = None,
) -> ContextCovariances:
    """Return the covariance of each context, for any form of input that ``MCPCA.fit`` takes.

    Parameters
    ----------
    X : list of arrays, dict or Series {name: array}, or one 2-D array or DataFrame
        Rows of each context. Features that differ in order between DataFrames are aligned by name.
    y : array-like (n,), optional
        Context label of each row, for a 2-D ``X``. Without it ``X`` is one context.
    batch, covariates : optional
        Nuisance that is removed within each context, as in ``MCPCA.fit``: covariances are then
        ``X_i^T (I - P_i) X_i / (n_i - rank P_i)``, with P_i the projection onto constant, batches and covariates.
    preprocess : optional
        What is done to rows while they are read, as in ``MCPCA``.
    verbose : None, bool or callable
        Progress, as in ``MCPCA``.

    Returns
    -------
    ContextCovariances

    Notes
    -----
    Cost O(n p^2), memory O(k p^2). Rows are centred before they are squared where their means are large, so that these
    cost no accuracy. float32 rows give float32 covariances (half the memory, about six digits), with means summed in
    float64.
    """
    with reporting(verbose, "covariances") as report:
        annotated = take_annotations(X, y, batch=batch, covariates=covariates)
        contexts = annotated.contexts(preprocess=preprocess, report=report)
        check_nuisance(contexts)
        contexts, e = in_range(contexts)
        scaled = covariances_of(contexts, report)
    # Rows were multiplied by 2^-e, so covariances go back by 4^e: powers of two, which cost no digit.
    return replace(scaled, covariances=np.ldexp(scaled.covariances, 2 * e), means=np.ldexp(scaled.means, e))


def covariances_of(contexts: Contexts, report: Report, factors: NuisanceFactors | None = None) -> ContextCovariances:
    """Return all moments. Cost O(sum_i n_i p^2); memory the stack and an eighth of it.

    Batch and covariates of the rows are removed; ``factors`` are those of the rows, if the caller has them.
    """
    factors = nuisance_factors(contexts, report) if factors is None else factors
    # Handed in as divisors: rows in memory are then divided context by context, without another pass over the stack.
    freedom = contexts.n_samples - 1 if factors is None else degrees_of_freedom(contexts, factors)
    means, S = scatters(contexts, report, freedom)
    if factors is not None:
        factors.remove_from(S, freedom)
    return ContextCovariances(
        S, means.astype(contexts.dtype), contexts.n_samples, contexts.names, contexts.feature_names
    )


def second_moments_about(contexts: Contexts, means: Sequence[Array], report: Report) -> Array:
    """Return ``(X_i - mean_i)^T (X_i - mean_i) / n_i`` (k, p, p) about ``means`` that were estimated elsewhere.

    Computed as the moment about the mean u_i of the rows, plus ``(u_i - mean_i)(u_i - mean_i)^T``: that loses no
    digits, however far the given mean is from the rows.
    """
    # Rows are at hand context by context. Those behind an engine come by passes, all contexts at once.
    if contexts.engine is None:
        moments = []
        for i, mean in enumerate(means):
            moments.append(_second_moment(contexts, i, mean))
            report(uneven("contexts"), i + 1, len(means))
        return np.stack(moments)
    row_means, S = scatters(contexts, report)
    for moment, n, row_mean, mean in zip(S, contexts.n_samples.tolist(), row_means, means, strict=True):
        # In place: moments and scatters would otherwise be two stacks.
        moment /= n
        add_outer(moment, 1, row_mean - mean)
    return S


def _second_moment(contexts: Contexts, i: int, mean: Array) -> Array:
    """Return the moment (p, p) of context i about ``mean``, for dense rows in memory."""
    p = contexts.n_features
    moment = np.empty((p, p), dtype=contexts.dtype)
    with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinite values are looked for below
        row_mean = _mean(contexts, i)
    # A NaN or infinite entry shows in the mean of its feature. A sum that overflows does too; it passes this check.
    if not np.isfinite(row_mean).all():
        contexts.check_finite(i)
    n = int(contexts.n_samples[i])
    X = _at_once(contexts, i, _step(contexts))
    if X is not None:
        np.matmul(X.T, X, out=moment)
    squares = np.diagonal(moment)
    if X is not None and keeps_digits(squares, squares - n * row_mean**2):
        add_outer(moment, -n, row_mean)
    else:
        _centred(contexts, i, row_mean, moment, None)
    moment /= contexts.n_samples[i]
    # sum (x - mean)(x - mean)^T / n = sum (x - u)(x - u)^T / n + (u - mean)(u - mean)^T: cross terms vanish about u.
    add_outer(moment, 1, row_mean - mean)
    return moment


def scatters(contexts: Contexts, report: Report, divisors: Array | None = None) -> tuple[Array, Array]:
    """Return means (k, p) in float64 and ``sum (x - mean)(x - mean)^T`` (k, p, p), each divided by its divisor.

    They are those of the rows as they are, whatever nuisance these have.
    """
    contexts = contexts.without_annotations()
    if contexts.dense:
        means, S = _in_memory(contexts, report, divisors)
    else:
        means, S = _from_passes(contexts, report, divisors)
    # The rounding of a mean is compared with standard deviations, and scatters are n - 1 times their squares.
    degrees = 1.0 if divisors is not None else np.maximum(contexts.n_samples - 1.0, 1.0)[:, None]
    clear_constant_features(S, means, degrees)
    return means, S


def clear_constant_features(S: Array, means: Array, degrees: Any = 1.0) -> None:
    """Set rows and columns of constant features to 0 in ``S`` (k, p, p), scatters with these degrees of freedom.

    A feature is constant where its standard deviation is below the rounding of its mean (k, p). Its scatter is then
    rounding alone, and must not pass for a variance.
    """
    # In the precision of S: float32 rows are centred by a mean that was rounded to float32.
    rounding = np.finfo(S.dtype).eps * np.abs(means)
    # Such features are few, so entries are set one feature at a time: no mask of the stack's size.
    for i, j in np.argwhere(np.einsum("kpp->kp", S) <= degrees * rounding**2).tolist():
        S[i, j] = 0
        S[i, :, j] = 0


def _in_memory(contexts: Contexts, report: Report, divisors: Array | None) -> tuple[Array, Array]:
    """Return what ``scatters`` does for dense rows in memory."""
    k = len(contexts.names)
    p = contexts.n_features
    means = np.empty((k, p))
    S = np.empty((k, p, p), dtype=contexts.dtype)
    # Slices of float64 arrays are mostly multiplied where they are, so ``_scatter`` makes room for copies only if it
    # has to. For all others each worker keeps its room from context to context.
    in_place = contexts.dtype == np.float64 and all(isinstance(rows, slice) for rows in contexts.rows)
    # With few contexts the threads of BLAS are better used inside a product, and room for each worker would count.
    available = n_workers()
    workers = available if k >= _CONTEXTS_PER_WORKER * available else 1

    # Contexts that are finished together, while their covariances are in the cache.
    step = max(1, min(_CACHED_NUMBERS, S.size // _CACHED_SHARE) // (p * p))

    # Each call writes to means and S of its own contexts only, so that threads need no lock.
    def fill(indices: Array) -> None:
        work = None if in_place else _work(contexts, workers)
        first = int(indices[0])
        stop = int(indices[-1]) + 1
        with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinite values are looked for below
            for i in range(first, stop, step):
                _fill(contexts, range(i, min(i + step, stop)), means, S, divisors, work)

    # No sum crosses contexts, so pieces can be taken by any thread, in any order.
    pieces = np.array_split(np.arange(k), min(k, _PROGRESS_PIECES))
    # In rows, which take the time: contexts may be of any size.
    rows = np.cumsum(contexts.n_samples)
    for piece, _ in zip(pieces, each(fill, pieces, workers), strict=True):
        report("covariances", int(rows[piece[-1]]), int(rows[-1]))
    # Only now, and only where a mean is not finite: a search of all rows beforehand would be another pass over them.
    for bad in np.flatnonzero(~np.isfinite(means).all(axis=1)):
        contexts.check_finite(int(bad))
    # Rows are finite here. The trace bounds all entries, so it is finite if and only if the covariances are.
    # In float64, so that the trace of float32 covariances does not overflow although none of them has.
    if not np.isfinite(np.einsum("kpp->", S, dtype=np.float64)):
        raise overflow(contexts)
    return means, S


def _step(contexts: Contexts) -> int:
    """Return how many rows are copied at a time: an eighth of the covariance stack, or half a megabyte."""
    p = contexts.n_features
    # An eighth of the k p^2 numbers of the stack is k p / 8 rows of p numbers.
    return max(_LEAST_COPY_NUMBERS // p, len(contexts.names) * p // _COPY_SHARE, 1)


def _work(contexts: Contexts, workers: int = 1) -> Array:
    """Return a buffer for centred rows, to be reused from block to block."""
    # The share is divided among the workers, who hold their copies at the same time.
    rows = min(max(_step(contexts) // workers, 1), int(contexts.n_samples.max()))
    return np.empty((rows, contexts.n_features), dtype=contexts.dtype)


def _mean(contexts: Contexts, i: int) -> Array:
    """Return the mean of context i (p,) in float64."""
    n = int(contexts.n_samples[i])
    # A slice of the source is a view, so that all its rows can be taken at once; an index array gathers a copy.
    step = n if isinstance(contexts.rows[i], slice) else _step(contexts)
    parts = (contexts.block_rows(i, j, min(j + step, n)) for j in range(0, n, step))
    return np.asarray(sum(_sums(x) for x in parts) / n)


def _sums(X: Array) -> Array:
    """Return the sums of columns (p,) in float64."""
    # In float64 a product with ones is the faster sum; float32 is summed in float64.
    return np.asarray(np.ones(len(X)) @ X if X.dtype == np.float64 else X.sum(axis=0, dtype=np.float64))


def _fill(contexts: Contexts, part: range, means: Array, S: Array, divisors: Array | None, work: Array | None) -> None:
    """Write means and divided scatters of the contexts in ``part``, consecutive ones, to ``means`` and ``S``.

    ``X^T X / d - (n / d) mean mean^T``, d the divisor, without a centred copy, where that leaves 12 digits; rows of
    other contexts are centred. Only the products are made one context after the other.
    """
    from_products = np.zeros(len(part), dtype=bool)
    room = 0 if work is None else len(work)
    for j, i in enumerate(part):
        X = _at_once(contexts, i, room)
        if X is None:
            means[i] = _mean(contexts, i)
            continue
        from_products[j] = True
        # Before the product, which then finds the rows in the cache.
        means[i] = _sums(X) / len(X)
        # Straight into the stack: no p x p temporary for each context. NumPy computes one half and copies it.
        np.matmul(X.T, X, out=S[i])
    block = slice(part.start, part.stop)
    n = contexts.n_samples[block, None].astype(np.float64)
    d = np.ones_like(n) if divisors is None else divisors[block, None]
    squares = np.where(from_products[:, None], np.einsum("kpp->kp", S[block]), 0)
    # Decided by the diagonals that are about to be left, before S is changed.
    safe = from_products & keeps_digits(squares, squares - n * means[block] ** 2)
    roots = means[block] * np.sqrt(n / d)
    if safe.all():
        _less_outer(S[block], roots, None if divisors is None else 1 / d)
        return
    for j, i in enumerate(part):
        if safe[j]:
            _less_outer(S[i : i + 1], roots[j : j + 1], None if divisors is None else 1 / d[j : j + 1])
            continue
        _centred(contexts, i, means[i], S[i], work)
        if divisors is not None:
            S[i] /= divisors[i]


def _less_outer(S: Array, x: Array, factors: Array | None) -> None:
    """Multiply each of the matrices S (k, p, p) by its factor (k, 1), and subtract ``x x^T``, x its row of x (k, p)."""
    if factors is not None:
        S *= factors[:, :, None]
    # As many rows at a time as ``add_outer`` takes: no temporary of a large matrix.
    for i in range(0, S.shape[1], OUTER_ROWS):
        rows = slice(i, i + OUTER_ROWS)
        S[:, rows] -= x[:, rows, None] * x[:, None, :]


def _at_once(contexts: Contexts, i: int, room: int) -> Array | None:
    """Return the rows of context i if squares of them have digits to lose and a copy, if any, has room; else None.

    A slice of a dense source is read without a copy. Rows from here and there are gathered, up to ``room`` of them.
    """
    source = contexts.sources[i]
    if source.sparse or source.dtype != np.float64:
        return None
    fits = isinstance(contexts.rows[i], slice) or contexts.n_samples[i] <= room
    return contexts.dense_block(i) if fits else None


def _centred(contexts: Contexts, i: int, mean: Array, out: Array, work: Array | None) -> None:
    """Write ``(X_i - mean)^T (X_i - mean)`` to ``out`` (p, p), for the mean of these very rows.

    Rows are centred before they are squared, ``work`` at a time.
    """
    n = int(contexts.n_samples[i])
    # In the precision of the rows, so that centring does not make a float64 copy of float32 rows. The sums of the
    # centred rows, ``shift``, say how far this rounded mean is off.
    mean = mean.astype(contexts.dtype)
    work = _work(contexts) if work is None else work
    shift = np.zeros(len(mean))
    for j in range(0, n, len(work)):
        rows = contexts.block_rows(i, j, min(j + len(work), n))
        add_centred(rows, mean, out, shift, work=work, first=j == 0)
    # Z^T Z - d d^T / n, as in ``_data.scatter``: d / sqrt(n) is squared by the outer product.
    add_outer(out, -1.0, shift / np.sqrt(n))  # what the rounding of the mean has added


def _from_passes(contexts: Contexts, report: Report, divisors: Array | None) -> tuple[Array, Array]:
    """Return what ``scatters`` does for rows that are sparse or not in memory.

    float64 rows take one pass, or three where that would cost digits: a second for means and a third for centred rows.
    float32 rows take two, since they have no digits to lose.
    """
    # Without a file: these passes are few, and nothing is resumed.
    passes = Passes(report, Checkpoint(None, {}), 1.0)
    in_one_pass = _in_one_pass(contexts, passes) if contexts.dtype == np.float64 else None
    if in_one_pass is not None:
        means, S = in_one_pass
        if divisors is not None:
            S /= divisors[:, None, None]
        return means, S
    rows = StreamedCovariances.with_means(contexts, passes)
    S = rows.whole()  # divided by n - 1
    if divisors is None or (divisors != contexts.n_samples - 1).any():
        # The division is undone rather than left out: scatters from passes are wanted by ``moments`` and
        # ``second_moments_about`` only, and other divisors where nuisance is removed.
        S *= ((contexts.n_samples - 1.0) / (1.0 if divisors is None else divisors))[:, None, None]
    return rows.means, S.astype(contexts.dtype, copy=False)


def _in_one_pass(contexts: Contexts, passes: Passes) -> tuple[Array, Array] | None:
    """Return means, and scatters as ``sum x x^T - n mean mean^T``; None where that leaves fewer than 12 digits."""
    k = len(contexts.names)
    p = contexts.n_features
    sums = np.zeros((k, p))
    S = np.zeros((k, p, p))
    run_pass(contexts, passes, "covariances", context_sums.moment_sums, [sums, S])
    means = sums / contexts.n_samples[:, None]
    for Si, mean, n in zip(S, means, contexts.n_samples.tolist(), strict=True):
        # A copy: ``np.diagonal`` is a view, which the next line changes. One context that loses digits spoils the pass
        # for all, since the centred one has to read every row anyway.
        squares = np.diagonal(Si).copy()
        add_outer(Si, -1.0, np.sqrt(n) * mean)
        if not keeps_digits(squares, np.diagonal(Si)):
            return None
    return means, S
