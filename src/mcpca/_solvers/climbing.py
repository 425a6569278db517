"""Climbing to maxima of F, the squared cosine between a rank-one matrix and the space of the flattening (see ``mspm``).

Starts advance together, as matrix products; those that power steps do not settle take Newton steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._covariances.array_memory import context_chunks
from .._utils.types import Array

_POWER_STEPS = 40
_NEWTON_STEPS = 15
_LOOKS = 4  # power steps between looks at who has settled
_BATCH = 2**19  # numbers in a Newton temporary: 4 MB


class Peaks(NamedTuple):
    """A batch of m candidate maxima: a (m, q), b (m, e), c (m, r') unit; F and last step length (m,)."""

    a: Array
    b: Array
    c: Array
    F: Array
    step: Array
    n_iter: int


def unit(z: Array) -> Array:
    return np.asarray(z / np.linalg.norm(z, axis=-1, keepdims=True))


def climb(T: Array, P: Array, a: Array, b: Array, tol: float, max_iter: int, rounded: Array | None = None) -> Peaks:
    """Take all starts to maxima of F, and the best of them as far as ``max_iter`` allows.

    ``rounded`` is T in the precision that the power method is to work in.
    """
    rounded = T if rounded is None else rounded
    power = power_steps(rounded, P.astype(rounded.dtype, copy=False), a, b, tol)
    slow = np.flatnonzero(power.step > tol)
    if not len(slow):
        return power
    layouts = layouts_of(T, P)
    e, q, _ = T.shape
    r = P.shape[1]
    size = max(1, _BATCH // (q * (r + e) + r * r))
    n_iter = power.n_iter
    for i in range(0, len(slow), size):
        n_iter += _newton_into(power, layouts, slow[i : i + size], tol, _NEWTON_STEPS)
    best = np.array([np.argmax(power.F)])
    if power.step[best[0]] > tol and max_iter > _NEWTON_STEPS:
        n_iter += _newton_into(power, layouts, best, tol, max_iter - _NEWTON_STEPS)
    return power._replace(n_iter=n_iter)


def _newton_into(peaks: Peaks, layouts: tuple[Array, Array, Array], rows: Array, tol: float, max_iter: int) -> int:
    """Continue the given rows of ``peaks`` in place; return the number of steps."""
    better = newton_steps(layouts, peaks.a[rows], peaks.b[rows], tol, max_iter)
    for old, new in zip(peaks[:5], better[:5], strict=True):
        old[rows] = new
    return better.n_iter


def layouts_of(T: Array, P: Array) -> tuple[Array, Array, Array]:
    """Return V as (e, r q), (r, e q) and (q, r e): contracting any one index is then one product, starts first."""
    e, q, _ = T.shape
    r = P.shape[1]
    V = (T.reshape(e * q, q) @ P).reshape(e, q, r)
    by_context = np.ascontiguousarray(V.transpose(0, 2, 1)).reshape(e, r * q)
    by_matrix = np.ascontiguousarray(V.transpose(2, 0, 1)).reshape(r, e * q)
    return by_context, by_matrix, np.ascontiguousarray(V.transpose(1, 2, 0)).reshape(q, r * e)


def power_steps(T: Array, P: Array, a: Array, b: Array, tol: float) -> Peaks:
    """Alternate ``a <- V(., b, c)``, ``b <- V(a, ., c)``, ``c <- V(a, b, .)``, all normalised.

    The slices of the space are ``V_l = [T_1 p_l ... T_e p_l]``, so with ``w = P c`` all three follow from the images
    ``T_i w`` and ``T_i a``: V itself is not formed, and T is read by contexts. Cost O(m e q^2) a step, memory O(m q)
    beside a chunk of the images.
    """
    m = len(a)
    peaks = Peaks(a.copy(), b.copy(), np.zeros((m, P.shape[1])), np.zeros(m), np.full(m, np.inf), 0)
    rows = np.arange(m)
    a, b = a.astype(T.dtype, copy=False), b.astype(T.dtype, copy=False)
    w = combined(T, a, b) @ P @ P.T
    for n_iter in range(1, _POWER_STEPS + 1):
        a = unit(combined(T, w, b))
        previous, (b, y) = b, carried(T, a, w)
        c = y @ P
        w = c @ P.T
        if n_iter % _LOOKS and n_iter < _POWER_STEPS:
            continue
        step = np.linalg.norm(b - previous, axis=1)
        norm = np.linalg.norm(c, axis=1)
        for old, new in zip(peaks[:5], (a, b, c / norm[:, None], norm**2, step), strict=True):
            old[rows] = new
        going = step > tol
        rows, a, b, w = rows[going], a[going], b[going], w[going]
        if not len(rows):
            break
    return peaks._replace(n_iter=n_iter)


def _images(T: Array, x: Array) -> Array:
    """``T_i x_j`` as (m, e, q), in the precision of T."""
    e, q, _ = T.shape
    return np.asarray(x @ T.reshape(e * q, q).T).reshape(-1, e, q)


def combined(T: Array, x: Array, b: Array) -> Array:
    """``sum_i b_ji T_i x_j`` (m, q)."""
    out = np.zeros_like(x)
    for part in context_chunks(T):
        out += np.matmul(b[:, None, part], _images(T[part], x))[:, 0]
    return out


def carried(T: Array, a: Array, w: Array) -> tuple[Array, Array]:
    """``b_ji = w_j^T T_i a_j`` (m, e), normalised, and ``sum_i b_ji T_i a_j`` (m, q)."""
    b, y = np.empty((len(a), len(T)), dtype=T.dtype), np.zeros_like(a)
    for part in context_chunks(T):
        Ta = _images(T[part], a)
        b[:, part] = np.matmul(Ta, w[:, :, None])[:, :, 0]
        y += np.matmul(b[:, None, part], Ta)[:, 0]
    norm = np.linalg.norm(b, axis=1, keepdims=True)
    return b / norm, y / norm


def newton_steps(layouts: tuple[Array, Array, Array], a: Array, b: Array, tol: float, max_iter: int) -> Peaks:
    """Newton's method for the critical points of ``c^T T(a, b)`` over three unit spheres, kept ascending.

    Where a Newton step does not raise F a power step, which always does, is taken instead.
    """
    by_context, by_matrix, by_feature = layouts
    (m, q), e, r = a.shape, b.shape[1], len(by_matrix)
    peaks = Peaks(a.copy(), b.copy(), np.zeros((m, r)), np.zeros(m), np.full(m, np.inf), 0)
    rows = np.arange(m)

    def contract(a: Array, b: Array) -> tuple[Array, Array, Array]:
        Vb = (b @ by_context).reshape(-1, r, q)
        c = np.matmul(Vb, a[:, :, None])[:, :, 0]
        s = np.linalg.norm(c, axis=1)
        return Vb, c / s[:, None], s

    Vb, c, s = contract(a, b)
    n_iter = 0
    while n_iter < max_iter and len(rows):
        n_iter += 1
        X = (c @ by_matrix).reshape(-1, e, q).transpose(0, 2, 1)
        Va = (a @ by_feature).reshape(-1, r, e)
        da, db, ascending = _newton_step(a, b, c, s, X, Vb, Va)
        length = np.sqrt((da**2).sum(axis=1) + (db**2).sum(axis=1))
        short = np.minimum(1, 0.3 / np.maximum(length, np.finfo(float).tiny))[:, None]
        trial = unit(a + short * da), unit(b + short * db)
        Vb, c, s_new = contract(*trial)
        down = ~(ascending & (s_new >= s * (1 - 1e-13)))
        a_new, b_new = trial
        if down.any():
            a_new[down] = unit(np.matmul(X[down], b[down][:, :, None])[:, :, 0])
            b_new[down] = unit(np.matmul(a_new[down][:, None, :], X[down])[:, 0])
            length[down] = np.maximum(length[down], 2 * tol)
            Vb[down], c[down], s_new[down] = contract(a_new[down], b_new[down])
        a, b, s = a_new, b_new, s_new
        for old, new in zip(peaks[:5], (a, b, c, s**2, length), strict=True):
            old[rows] = new
        going = length > tol
        rows, a, b, c, s, Vb = rows[going], a[going], b[going], c[going], s[going], Vb[going]
    return peaks._replace(n_iter=n_iter)


def _newton_step(a: Array, b: Array, c: Array, s: Array, X: Array, Vb: Array, Va: Array) -> tuple[Array, Array, Array]:
    """Return da, db, and whether they go up; where curvature is not negative its positive directions are turned."""
    reduced = Reduced.at(a, b, c, s, X, Vb, Va)
    try:
        K = np.linalg.solve(reduced.E, reduced.Yy)
        H, rhs = reduced.in_c(K)
        dc = np.linalg.solve(H, rhs)
        # Where -H, the curvature of F, is not negative: turn its positive directions round, and go up those too.
        uphill = np.matmul(dc.transpose(0, 2, 1), rhs)[:, 0, 0] <= 0
        if uphill.any():
            w, Q = np.linalg.eigh(H[uphill])
            w = np.maximum(np.abs(w), 1e-6 * s[uphill, None])[:, :, None]
            dc[uphill] = np.matmul(Q, np.matmul(Q.transpose(0, 2, 1), rhs[uphill]) / w)
    except np.linalg.LinAlgError:  # a direction in which F is exactly flat
        return np.zeros_like(a), np.zeros_like(b), np.zeros(len(a), dtype=bool)
    da, db = reduced.step(K, dc)
    gain = np.einsum("mi,mij->m", da, reduced.g_a) + np.einsum("mi,mij->m", db, reduced.g_b)
    return da, db, gain > 0


class Reduced(NamedTuple):
    """The Newton equations of a batch with da eliminated.

    On the tangent spaces, with ``X = T(., ., c)``, ``Z_a = P_a T(., b, .)``, ``Z_b = P_b T(a, ., .)``:
    ``s da = X db + Z_a dc + g_a``,  ``s db = X^T da + Z_b dc + g_b``,  ``s dc = Z_a^T da + Z_b^T db``. What is left is
    ``E db = Y dc + y``, and with db eliminated too ``H dc = rhs``. A critical point is a strict maximum where E and
    H, the curvatures that are left, are positive definite.
    """

    S: Array
    g_a: Array
    g_b: Array
    Xp: Array
    Z_a: Array
    E: Array
    Yy: Array

    @classmethod
    def at(cls, a: Array, b: Array, c: Array, s: Array, X: Array, Vb: Array, Va: Array) -> Reduced:
        """Return the equations at unit a (m, q), b (m, e), c (m, r), with the contractions of T there."""

        def off(u: Array, Z: Array) -> Array:
            return np.asarray(Z - u[:, :, None] * np.matmul(u[:, None, :], Z))

        S = s[:, None, None]
        g_a = off(a, np.matmul(X, b[:, :, None]))
        g_b = off(b, np.matmul(X.transpose(0, 2, 1), a[:, :, None]))
        Xp = off(b, off(a, X).transpose(0, 2, 1))  # (m, e, q), transposed
        Z_a = off(a, Vb.transpose(0, 2, 1))  # (m, q, r)
        Z_a -= np.matmul(Z_a, c[:, :, None]) * c[:, None, :]
        Z_b = off(b, Va.transpose(0, 2, 1))  # (m, e, r)
        Z_b -= np.matmul(Z_b, c[:, :, None]) * c[:, None, :]
        Yy = np.concatenate([Z_b + np.matmul(Xp, Z_a) / S, g_b + np.matmul(Xp, g_a) / S], axis=2)
        E = S * np.eye(b.shape[1]) - np.matmul(Xp, Xp.transpose(0, 2, 1)) / S
        return cls(S, g_a, g_b, Xp, Z_a, E, Yy)

    def in_c(self, K: Array) -> tuple[Array, Array]:
        """Return H and rhs, with ``K = E^-1 [Y y]``."""
        r = K.shape[2] - 1
        Z_aT, YT = self.Z_a.transpose(0, 2, 1), self.Yy[:, :, :r].transpose(0, 2, 1)
        rhs = np.matmul(Z_aT, self.g_a) / self.S + np.matmul(YT, K[:, :, r:])
        H = self.S * np.eye(r) - np.matmul(Z_aT, self.Z_a) / self.S - np.matmul(YT, K[:, :, :r])
        return H, rhs

    def step(self, K: Array, dc: Array) -> tuple[Array, Array]:
        """Return da (m, q) and db (m, e) for the solution ``dc`` (m, r, 1) of the last equations."""
        r = dc.shape[1]
        db = K[:, :, r:] + np.matmul(K[:, :, :r], dc)
        da = (np.matmul(self.Xp.transpose(0, 2, 1), db) + np.matmul(self.Z_a, dc) + self.g_a) / self.S
        return da[:, :, 0], db[:, :, 0]
