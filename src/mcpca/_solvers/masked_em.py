"""EM for values that are missing within rows: the likelihood of what each row has, for solver "ml".

The M-step is ``masked_start.solve_likelihood`` from where it last ended. The E-step completes each row x by its
expectation given the values that are there. With ``d`` the noise, A_o the rows of A for these values and V the
covariance of the scores given them,

    V = B^(1/2) (I + B^(1/2) A_o^T D_o^-1 A_o B^(1/2))^-1 B^(1/2),   z = V A_o^T D_o^-1 (x_o - mean_o),

missing values are ``mean + A z``, and their covariance ``A V A^T + D`` among missing ones is added to the scatter of
the completed rows. V depends on which values a row has: rows of a context are grouped by this pattern, and all patterns
are one batch of r x r matrices and a few products. Cost O(n p r^2 + n r p^2) a round at worst, where every row has a
pattern of its own; memory a dense copy of the rows.

Values have to be missing at random: whether one is missing may depend on values of the row that are there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from .._utils.progress import Search, silent
from .._utils.types import Array
from .interface import Settings, SolverResult
from .masked import Masked
from .masked_ml import Maximum
from .masked_start import solve_likelihood

_MOST_ROUNDS = 200
# Largest change of an entry of A in a round at which EM has settled, in units of ``tol``: 1e-5 by default.
_CHANGE_PER_TOL = 100.0
_CHUNK_NUMBERS = 2**22  # in products that complete the covariances of missing values


@dataclass(frozen=True)
class IncompleteRows:
    """The rows of one context (n, p) with NaN, as values (0 where there is none) and patterns.

    ``patterns`` (g, p) says which values are there, ``codes`` (n,) which pattern a row has.
    """

    values: Array
    patterns: Array
    codes: Array

    @classmethod
    def of(cls, X: Array) -> IncompleteRows:
        """Group rows by pattern."""
        seen = ~np.isnan(X)
        # Patterns as bits: comparing rows of p booleans would take p times as long.
        packed = np.packbits(seen, axis=1)
        _, first, codes = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        return cls(np.where(seen, X, 0), seen[first], codes.ravel())

    @property
    def seen(self) -> Array:
        """Which values are there (n, p)."""
        return np.asarray(self.patterns[self.codes])


class Completed(NamedTuple):
    """Means (k, p) and covariances (k, p, p) of completed rows."""

    means: Array
    covariances: Array


class EM(NamedTuple):
    """The answer of the solver, the moments that it is the answer for, and the maximum in full."""

    result: SolverResult
    moments: Completed
    maximum: Maximum


def solve_em(rows: list[IncompleteRows], data: Masked, means: Array, r: int, settings: Settings) -> EM:
    """Maximise the likelihood of incomplete rows, from moments to start with: ``data`` and ``means`` (k, p)."""
    result, best = solve_likelihood(data, r, settings)
    n_iter = result.n_iter
    goal = _CHANGE_PER_TOL * settings.tol
    quiet = replace(settings, report=silent)
    progress = Search(settings.report, "expectation", _MOST_ROUNDS)
    change = np.inf
    moments = Completed(np.where(data.mask, means, 0), data.S)
    for _ in range(_MOST_ROUNDS):
        progress.step()
        moments = expect(rows, data.mask, best.A, best.B, best.variances, moments.means)
        result, after = solve_likelihood(replace(data, S=moments.covariances), r, quiet, best)
        n_iter += result.n_iter
        change = float(np.abs(after.A - best.A).max())
        best = after
        if change <= goal:
            break
    progress.finish()
    converged = result.converged and change <= goal
    message = (
        f"EM settled: components changed by {change:.1e} in the last round."
        if converged
        else f"EM did not settle in {_MOST_ROUNDS} rounds: components change by {change:.1e}, above {goal:g}. Many "
        "values are missing; lower n_components, raise tol, or drop features with few values."
    )
    return EM(replace(result, n_iter=n_iter, converged=converged, message=message), moments, best)


def expect(rows: list[IncompleteRows], mask: Array, A: Array, B: Array, variances: Array, means: Array) -> Completed:
    """Make the E-step: return the moments of completed rows, on the features that each context has (``mask``)."""
    k, p = mask.shape
    new_means = np.zeros((k, p))
    S = np.zeros((k, p, p))
    for i, block in enumerate(rows):
        n = len(block.values)
        own = mask[i]
        V = _score_covariances(block.patterns, A, B[i], variances[i])
        seen = block.seen
        centred = np.where(seen, block.values - means[i], 0)
        # z (n, r): one product for all rows, and V by pattern.
        Z = np.matmul(V[block.codes], ((centred / variances[i]) @ A)[:, :, None])[:, :, 0]
        X = np.where(seen, centred, Z @ A.T)
        shift = X.mean(axis=0)
        new_means[i] = np.where(own, means[i] + shift, 0)
        X -= shift
        counts = np.bincount(block.codes, minlength=len(V))
        missing = ~block.patterns & own
        spread = _missing_covariance(V, missing, counts, A)
        spread[np.arange(p), np.arange(p)] += (counts @ missing) * variances[i]
        # The scatter of rows has n - 1 degrees of freedom as in any fit; what is added is a mean over rows.
        S[i] = (X.T @ X / (n - 1) + spread / n) * np.outer(own, own)
    return Completed(new_means, S)


def _score_covariances(patterns: Array, A: Array, b: Array, variances: Array) -> Array:
    """Return V (g, r, r) for each pattern."""
    p, r = A.shape
    root = np.sqrt(b)
    scaled = A * root
    # A_o^T D_o^-1 A_o of all patterns is one product of (g, p) with (p, r r).
    outer = (scaled[:, :, None] * scaled[:, None, :] / variances[:, None, None]).reshape(p, r * r)
    information = (patterns.astype(np.float64) @ outer).reshape(-1, r, r)
    return np.asarray(root[:, None] * np.linalg.inv(np.eye(r) + information) * root)


def _missing_covariance(V: Array, missing: Array, counts: Array, A: Array) -> Array:
    """Return ``sum_g n_g M_g A V_g A^T M_g`` (p, p), M_g being the missing values of pattern g."""
    p, r = A.shape
    out = np.zeros((p, p))
    # V = L L^T, so that the sum is Y^T Y with the rows of all M_g A L_g below each other.
    w, Q = np.linalg.eigh(V)
    L = Q * np.sqrt(np.maximum(w, 0))[:, None, :]
    step = max(1, _CHUNK_NUMBERS // (p * r))
    incomplete = np.flatnonzero(missing.any(axis=1))
    for start in range(0, len(incomplete), step):
        part = incomplete[start : start + step]
        Y = (A @ L[part]) * missing[part][:, :, None] * np.sqrt(counts[part])[:, None, None]
        Y = Y.transpose(0, 2, 1).reshape(-1, p)
        out += Y.T @ Y
    return out
