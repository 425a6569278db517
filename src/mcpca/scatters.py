"""Covariances of contexts as one array: the explicit way, for few features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ._check import Array, Report, as_report
from ._parallel import each, n_workers
from .checkpoint import Checkpoint
from .contexts import Contexts, read_contexts
from .rows import Passes, Rows

_OUTER_ROWS = 128
_MIN_CHUNK = 2**16  # numbers in a centred copy of rows: 0.5 MB
_SAFE_RATIO = 1e-12 / np.finfo(np.float64).eps


@dataclass(frozen=True)
class ContextCovariances:
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


def context_covariances(X: Any, y: Any = None, *, verbose: Any = False) -> ContextCovariances:
    """Return the covariance of each context, for any form of input that ``MCPCA.fit`` takes.

    Parameters
    ----------
    X : list of arrays, dict or Series {name: array}, or one 2-D array or DataFrame
        Rows of each context. Features that differ in order between DataFrames are aligned by name.
    y : array-like (n,), optional
        Context label of each row, for a 2-D ``X``. Without it ``X`` is one context.
    verbose : bool or callable
        True prints progress; a function gets (stage, done, total).

    Returns
    -------
    ContextCovariances

    Notes
    -----
    Cost O(n p^2), memory O(k p^2). Rows are centred before they are squared, so a large mean costs no accuracy.
    float32 rows give float32 covariances (half the memory, about six digits), with means summed in float64.
    """
    return covariances_of(read_contexts(X, y), as_report(verbose))


def covariances_of(contexts: Contexts, report: Report) -> ContextCovariances:
    """Return all moments. Cost O(sum_i n_i p^2); memory the stack and an eighth of it."""
    means, S = scatters(contexts, report, contexts.n_samples - 1)
    return ContextCovariances(
        S, means.astype(contexts.dtype), contexts.n_samples, contexts.names, contexts.feature_names
    )


def _add_outer(out: Array, factor: float, x: Array) -> None:
    """Add ``factor x x^T`` to ``out`` (p, p), some rows at a time: a whole p x p array would count."""
    for i in range(0, len(x), _OUTER_ROWS):
        out[i : i + _OUTER_ROWS] += np.outer(factor * x[i : i + _OUTER_ROWS], x)


