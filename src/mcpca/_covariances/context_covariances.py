"""Covariances of contexts as one array: the explicit way, for few features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from .._data import context_sums
from .._data.context_sums import SAFE_RATIO
from .._data.contexts import Contexts, read_contexts
from .._utils.parallel import each, n_workers
from .._utils.printing import Shown, contexts_in_words
from .._utils.progress import reporting
from .._utils.types import Array, Report
from .checkpoint import Checkpoint
from .passes import Passes, overflow, run
from .scaling import in_range
from .streamed import StreamedCovariances

_OUTER_ROWS = 128
_MIN_CHUNK = 2**16  # numbers in a centred copy of rows: 0.5 MB


@dataclass(frozen=True, repr=False)
class ContextCovariances(Shown):
    """Second moments of each context.

    Attributes
    ----------
    covariances : ndarray (k, p, p)
        ``S_i = (X_i - mean_i)^T (X_i - mean_i) / (n_i - 1)``.
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


def context_covariances(X: Any, y: Any = None, *, verbose: Any = None) -> ContextCovariances:
    """Return the covariance of each context, for any form of input that ``MCPCA.fit`` takes.

    Parameters
    ----------
    X : list of arrays, dict or Series {name: array}, or one 2-D array or DataFrame
        Rows of each context. Features that differ in order between DataFrames are aligned by name.
    y : array-like (n,), optional
        Context label of each row, for a 2-D ``X``. Without it ``X`` is one context.
    verbose : None, bool or callable
        Progress, as in ``MCPCA``.

    Returns
    -------
    ContextCovariances

    Notes
    -----
    Cost O(n p^2), memory O(k p^2). Rows with large means are centred before they are squared: that costs no accuracy.
    float32 rows give float32 covariances (half the memory, about six digits), with means summed in float64.
    """
    contexts, e = in_range(read_contexts(X, y))
    with reporting(verbose, "covariances") as report:
        found = covariances_of(contexts, report)
    return replace(found, covariances=np.ldexp(found.covariances, 2 * e), means=np.ldexp(found.means, e))


def covariances_of(contexts: Contexts, report: Report) -> ContextCovariances:
    """Return all moments. Cost O(sum_i n_i p^2); memory the stack and an eighth of it."""
    means, S = scatters(contexts, report, contexts.n_samples - 1)
    return ContextCovariances(
        S, means.astype(contexts.dtype), contexts.n_samples, contexts.names, contexts.feature_names
    )


def covariances_among(rows: StreamedCovariances, features: Array) -> ContextCovariances:
    """Return all moments of some features, wherever the rows are: one pass. Memory O(k m^2) for m of them."""
    contexts, means = rows.contexts, rows.means[:, features]
    S = np.zeros((*means.shape, len(features)))
    run(contexts, rows.passes, "covariances", partial(context_sums.scatters_among, features, means), [S])
    S /= (contexts.n_samples - 1.0)[:, None, None]
    return ContextCovariances(S, means, contexts.n_samples, contexts.names, None)


def second_moments(contexts: Contexts, means: Sequence[Array], report: Report) -> Array:
    """``(X_i - mean_i)^T (X_i - mean_i) / n_i`` (k, p, p) about means that were estimated elsewhere."""
    if contexts.engine is None:
        moments = []
        for i, mean in enumerate(means):
            moments.append(_second_moment(contexts, i, mean))
            report("contexts", i + 1, len(means))
        return np.stack(moments)
    own, S = scatters(contexts, report)
    for moment, n, mine, mean in zip(S, contexts.n_samples.tolist(), own, means, strict=True):
        moment /= n
        _add_outer(moment, 1, mine - mean)
    return S


def _second_moment(contexts: Contexts, i: int, mean: Array) -> Array:
    moment = np.empty((contexts.n_features, contexts.n_features), dtype=contexts.dtype)
    with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinite values are looked for below
        own = _mean(contexts, i)
    if not np.isfinite(own).all():
        contexts.check_finite(i)
    _scatter(contexts, i, own, moment, None)
    moment /= contexts.n_samples[i]
    _add_outer(moment, 1, own - mean)
    return moment


def scatters(contexts: Contexts, report: Report, divisors: Array | None = None) -> tuple[Array, Array]:
    """Return means (k, p) in float64 and ``sum (x - mean)(x - mean)^T`` (k, p, p), each divided by its divisor."""
    means, S = (_in_memory if contexts.dense else _from_passes)(contexts, report, divisors)
    degrees = 1.0 if divisors is not None else np.maximum(contexts.n_samples - 1.0, 1.0)[:, None]
    silence(S, means, degrees)
    return means, S


def silence(S: Array, means: Array, degrees: Any = 1.0) -> None:
    """Set to 0 what features that do not vary have in ``S`` (k, p, p), scatters with these degrees of freedom.

    A feature whose standard deviation is below the rounding of its mean (k, p) is constant.
    """
    rounding = np.finfo(S.dtype).eps * np.abs(means)
    for i, j in np.argwhere(np.einsum("kpp->kp", S) <= degrees * rounding**2).tolist():
        S[i, j] = 0
        S[i, :, j] = 0


def _in_memory(contexts: Contexts, report: Report, divisors: Array | None) -> tuple[Array, Array]:
    """Return what ``scatters`` does for dense rows in memory."""
    k, p = len(contexts.names), contexts.n_features
    means = np.empty((k, p))
    S = np.empty((k, p, p), dtype=contexts.dtype)
    in_place = contexts.dtype == np.float64 and all(isinstance(rows, slice) for rows in contexts.rows)
    # With fewer contexts the threads of BLAS are better used inside a product, and temporaries count.
    available = n_workers()
    workers = available if k >= 8 * available else 1

    def fill(indices: Array) -> None:
        work = None if in_place else _work(contexts, workers)
        with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinite values are looked for below
            for i in indices.tolist():
                means[i] = _mean(contexts, i)
                _scatter(contexts, i, means[i], S[i], work)
                if divisors is not None:
                    S[i] /= divisors[i]

    pieces = np.array_split(np.arange(k), min(k, 20))
    for piece, _ in zip(pieces, each(fill, pieces, workers), strict=True):
        report("covariances", int(piece[-1]) + 1, k)
    for bad in np.flatnonzero(~np.isfinite(means).all(axis=1)):
        contexts.check_finite(int(bad))
    if not np.isfinite(np.einsum("kpp->", S, dtype=np.float64)):
        raise overflow(contexts)
    return means, S


def _step(contexts: Contexts) -> int:
    """Rows taken at a time where they are copied: an eighth of the covariance stack, or half a megabyte."""
    p = contexts.n_features
    return max(_MIN_CHUNK // p, len(contexts.names) * p // 8, 1)


def _work(contexts: Contexts, workers: int = 1) -> Array:
    """Room for centred rows, used again and again."""
    rows = min(max(_step(contexts) // workers, 1), int(contexts.n_samples.max()))
    return np.empty((rows, contexts.n_features), dtype=contexts.dtype)


def _mean(contexts: Contexts, i: int) -> Array:
    """Mean of context i (p,) in float64."""
    n = int(contexts.n_samples[i])
    step = n if isinstance(contexts.rows[i], slice) else _step(contexts)
    parts = (contexts.block_rows(i, j, min(j + step, n)) for j in range(0, n, step))
    # In float64 a product with ones is the faster sum; float32 is summed in float64.
    sums = (np.ones(len(x)) @ x if x.dtype == np.float64 else x.sum(axis=0, dtype=np.float64) for x in parts)
    return np.asarray(sum(sums) / n)


def _scatter(contexts: Contexts, i: int, mean: Array, out: Array, work: Array | None) -> None:
    """Write ``(X_i - mean)^T (X_i - mean)`` to ``out`` (p, p), for the mean of these very rows.

    ``X^T X - n mean mean^T`` needs no copy of the rows, and loses as many digits as ``1 + mean^2 / variance`` has:
    that is taken where the loss leaves 12 digits. Otherwise rows are centred before they are squared.
    """
    n = int(contexts.n_samples[i])
    if isinstance(contexts.rows[i], slice) and contexts.sources[i].dtype == np.float64:
        X = contexts.block_rows(i, 0, n)
        np.matmul(X.T, X, out=out)
        squares = np.diagonal(out)
        if (squares <= SAFE_RATIO * (squares - n * mean**2)).all():
            _add_outer(out, -n, mean)
            return
    mean = mean.astype(contexts.dtype)
    work = _work(contexts) if work is None else work
    left = np.zeros(len(mean))
    for j in range(0, n, len(work)):
        centred = work[: min(len(work), n - j)]
        np.subtract(contexts.block_rows(i, j, j + len(centred)), mean, out=centred)
        left += centred.sum(axis=0, dtype=np.float64)
        if j == 0:
            np.matmul(centred.T, centred, out=out)
        else:
            out += centred.T @ centred
    _add_outer(out, -1.0, left / np.sqrt(n))  # what the rounding of the mean has added


def _add_outer(out: Array, factor: float, x: Array) -> None:
    """Add ``factor x x^T`` to ``out`` (p, p), some rows at a time: a whole p x p array would count."""
    for i in range(0, len(x), _OUTER_ROWS):
        out[i : i + _OUTER_ROWS] += np.outer(factor * x[i : i + _OUTER_ROWS], x)


def _from_passes(contexts: Contexts, report: Report, divisors: Array | None) -> tuple[Array, Array]:
    """Return what ``scatters`` does for rows that are sparse or not in memory.

    float64 rows take one pass, or three where that would cost digits; float32 rows take two.
    """
    passes = Passes(report, Checkpoint(None, {}), 1.0)
    found = _in_one_pass(contexts, passes) if contexts.dtype == np.float64 else None
    if found is not None:
        means, S = found
        if divisors is not None:
            S /= divisors[:, None, None]
        return means, S
    rows = StreamedCovariances.with_means(contexts, passes)
    S = rows.whole()
    if divisors is None:
        S *= (contexts.n_samples - 1.0)[:, None, None]
    return rows.means, S.astype(contexts.dtype, copy=False)


def _in_one_pass(contexts: Contexts, passes: Passes) -> tuple[Array, Array] | None:
    """Return means, and scatters as ``sum x x^T - n mean mean^T``; None where that leaves fewer than 12 digits."""
    (k, n), p = (len(contexts.names), contexts.n_samples), contexts.n_features
    sums, S = np.zeros((k, p)), np.zeros((k, p, p))
    run(contexts, passes, "covariances", context_sums.moment_sums, [sums, S])
    means = sums / n[:, None]
    for Si, mean, rows in zip(S, means, n.tolist(), strict=True):
        before = np.diagonal(Si).copy()
        _add_outer(Si, -1.0, np.sqrt(rows) * mean)
        if not (before <= SAFE_RATIO * np.diagonal(Si)).all():
            return None
    return means, S
