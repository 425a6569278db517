"""Joint diagonalisation with the weights of a Gaussian likelihood: the first stage of ``ml``.

An off-diagonal entry ``R_i[l, j]`` of the covariance of scores has variance ``t_il t_ij / n_i``, t being the variances
of scores with the noise left in. So a context in which two components are quiet says most about the angle between them,
and in the limit of no noise says it exactly.
"""

from __future__ import annotations

import numpy as np

from .._check import Array
from ..subspace import congruence
from ._diagonalise import pair_step

_UNWEIGHTED_STEPS, _UNWEIGHTED_TOL = 60, 1e-6
_LEVELS = 10.0 ** -np.arange(1, 13, 1.5)
_STEPS_PER_LEVEL = 3


def weighted_diagonaliser(M: Array, noise: Array, n: Array, rng: np.random.Generator) -> tuple[Array | None, bool]:
    """``_stages``, or None where rounding has the last word."""
    try:
        W, converged = _stages(M, noise, n, rng)
    except np.linalg.LinAlgError:
        return None, False
    return (W, converged) if np.isfinite(W).all() and np.linalg.cond(W) < 1e12 else (None, False)


def _stages(M: Array, noise: Array, n: Array, rng: np.random.Generator) -> tuple[Array, bool]:
    """Return a diagonaliser W (r, r) of the cores ``M`` (k, r, r) less ``noise`` (k,), and whether it converged.

    ``W (M_i - s_i I) W^T`` is about diagonal, and the columns of ``W^-1`` are the components. Cost O(k r^3) a step,
    some 30 steps.
    """
    weights = n / n.sum()
    w, Q = np.linalg.eigh(np.tensordot(weights, M, axes=1))
    W = (Q / np.sqrt(np.maximum(w, 1e-14 * w[-1]))).T
    mixed = np.tensordot(rng.standard_normal(len(M)), congruence(M, W.T), axes=(0, 1))
    W = np.linalg.eigh((mixed + mixed.T) / 2)[1].T @ W
    W, step = _diagonalise(M, W, noise, weights, None, _UNWEIGHTED_STEPS)
    converged = step < _UNWEIGHTED_TOL
    for level in _LEVELS:
        better, step = _diagonalise(M, W, noise, weights, level, _STEPS_PER_LEVEL)
        if not np.isfinite(step) or step > 0.5:  # weights have become too unequal for the first-order step
            break
        W = better
    return W, converged


def correlation_left(M: Array, W: Array, noise: Array, n: Array) -> float:
    """Correlation left between scores: the sum over contexts of squared correlations off the diagonal."""
    R = congruence(M, W.T)
    t = np.maximum(np.einsum("jej->ej", R), np.finfo(float).tiny)
    R = R - noise[None, :, None] * (W @ W.T)[:, None, :]
    squares = np.einsum("lej,el,ej->e", R**2, 1 / t, 1 / t, optimize=True)
    return float(n @ squares)


def _diagonalise(
    M: Array, W: Array, noise: Array, weights: Array, level: float | None, steps: int
) -> tuple[Array, float]:
    """Take pair steps; ``level`` bounds from below the variances that weights are inverse to, None is unweighted."""
    r = len(W)
    step = np.inf
    for _ in range(steps):
        R = congruence(M, W.T)
        gram = W @ W.T
        t = np.maximum(np.einsum("jej->ej", R), 0)
        d = t - noise[:, None] * np.diag(gram)
        scale = weights @ np.abs(d)
        if not (scale > 0).all():
            return W, np.inf
        # In units in which components have variance one on average, R is R / root / root.
        root = np.sqrt(scale)
        d, t = d / scale, t / scale
        q = None if level is None else np.sqrt(weights)[:, None] / (t + level)
        R = R - noise[None, :, None] * gram[:, None, :]
        E = pair_step(R / (root[:, None, None] * root), d, q)
        step = float(np.abs(E).max(initial=0))
        if not np.isfinite(step):
            return W, np.inf
        E *= min(1, 0.5 / max(step, 0.5))
        try:
            W = np.linalg.solve(np.eye(r) + E, W / root[:, None])
        except np.linalg.LinAlgError:
            return W, np.inf
        if step < 1e-9:
            break
    return W, step
