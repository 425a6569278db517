"""The power method as the paper has it, many runs side by side, to see how far chance decides.

Per component one random start, two more where that ends with F < 0.99, the best of them taken out of the space; power
steps alone, no block, no refinement (``mspm`` has the notation). Runs differ in their random numbers only, so that they
share every product with the core.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._check import Array
from .mspm import row_space

_GOOD_F, _MORE_STARTS = 0.99, 2
_CHECK = 4  # power steps between looks at who has settled
_COARSE, _SINGLE = 1e-4, 1e-2


def plain_runs(T: Array, r: int, generators: Sequence[np.random.Generator], tol: float, max_iter: int) -> Array:
    """Return components (m, q, r) of the slices ``T`` (e, q, q), one run for each of the m ``generators``.

    ``max_iter`` bounds the power steps of a start, ``tol`` is the length of the last of them. Cost up to
    ``m r max_iter`` contractions of O(q^2 e), in single precision where ``tol`` and the data allow; memory
    O(m q (q + e)).
    """
    m, q = len(generators), T.shape[1]
    U, D = row_space(T, r)
    if tol >= _COARSE and D[-1] > _SINGLE * D[0]:
        T = T.astype(np.float32)
    P = (U / D).astype(T.dtype)
    taken = np.zeros((m, 0, r), dtype=T.dtype)
    found = np.empty((m, q, r))
    for j in range(r):
        a, F = _climb(T, P, taken, generators, 1, tol, max_iter)
        weak = np.flatnonzero(F < _GOOD_F)
        if len(weak):
            again, better = _climb(
                T, P, taken[weak], [generators[i] for i in weak.tolist()], _MORE_STARTS, tol, max_iter
            )
            improved = better > F[weak]
            a[weak[improved]] = again[improved]
        found[:, :, j] = a
        normal = (a @ P)[:, None, :]
        for _ in range(2):  # once more: rounding
            normal = _unit(normal - normal @ taken.transpose(0, 2, 1) @ taken)
        taken = np.concatenate([taken, normal], axis=1)
    return found


def _climb(
    T: Array,
    P: Array,
    taken: Array,
    generators: Sequence[np.random.Generator],
    starts: int,
    tol: float,
    max_iter: int,
) -> tuple[Array, Array]:
    """Return for each run the best of ``starts`` maxima, a (m, q) and F (m,), with ``taken`` (m, j, r) left out."""
    m, (e, q, _) = len(generators), T.shape
    drawn = np.stack([g.standard_normal((starts, q + e)) for g in generators]).astype(T.dtype)
    a, b = _unit(drawn[:, :, :q]), _unit(drawn[:, :, q:])
    by_context = T.reshape(e, q * q)
    by_feature = np.ascontiguousarray(T.transpose(1, 0, 2)).reshape(q, e * q)
    best, F = a.copy(), np.zeros((m, starts))
    runs = np.arange(m)
    for n_iter in range(1, max_iter + 1):
        Tb = (b.reshape(-1, e) @ by_context).reshape(*b.shape[:2], q, q)
        c = np.matmul(Tb, a[..., None])[..., 0] @ P
        c = c - c @ taken.transpose(0, 2, 1) @ taken
        w = c @ P.T
        a = _unit(np.matmul(Tb, w[..., None])[..., 0])
        Tw = (w.reshape(-1, q) @ by_feature).reshape(*w.shape[:2], e, q)
        previous, b = b, _unit(np.matmul(Tw, a[..., None])[..., 0])
        if n_iter % _CHECK and n_iter < max_iter:
            continue
        best[runs], F[runs] = a, np.einsum("msr,msr->ms", c, c)
        going = (np.linalg.norm(b - previous, axis=2) > tol).any(axis=1)
        if not going.any():
            break
        if not going.all():
            runs, a, b, taken = runs[going], a[going], b[going], taken[going]
    top = F.argmax(axis=1)
    return best[np.arange(m), top], F[np.arange(m), top]


def _unit(z: Array) -> Array:
    return np.asarray(z / np.linalg.norm(z, axis=-1, keepdims=True))
