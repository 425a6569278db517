"""Climbing to local maxima of F, the objective of the power method, from many starts at once.

``F(a, b) = ||T_A(a, b, .)||^2`` over unit a and b is the objective of the paper's section "Error analysis": the squared
cosine between ``a b^T`` and the space spanned by the top r right singular vectors of the flattening. ``mspm`` has the
notation, chooses the starts and deflates what comes back; ``joint`` uses the power step to check components that it
found in another way.

The alternating power method comes first. It never lowers F and costs little, but converges linearly, with a rate near 1
where contexts are few and F is nearly flat. Starts that have not settled by then go on with Newton steps. All starts of
a batch advance together, as matrix products.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .._covariances.array_memory import context_chunks
from .._utils.types import Array

# Enough where contexts are many and F is sharply peaked. Where they are few the power method takes hundreds to
# thousands of steps, so that more of them would only delay Newton's method.
_POWER_STEPS = 40
# Quadratic convergence from where the power method ends. Starts that need more are hopeless, save the best of them.
_NEWTON_STEPS = 15
# Numbers of T whose images are computed together, at most: 4 MB, and a share of T.
_CHUNK_NUMBERS = 2**19
_CHUNK_SHARE = 6
_STEPS_BETWEEN_CHECKS = 4  # of the power method; dropping the settled starts copies those that go on
_NEWTON_BATCH_NUMBERS = 2**19  # in the largest temporary of a batch of Newton steps: 4 MB
_LONGEST_NEWTON_STEP = 0.3  # on the product of spheres; beyond it the quadratic model says little about F
_UPHILL_ROUNDING = 1e-13  # F may fall by this share of itself in a step that is accepted


class Peaks(NamedTuple):
    """A batch of m candidate maxima: a (m, q), b (m, e), c (m, r') unit; F and last step length (m,)."""

    a: Array
    b: Array
    c: Array
    F: Array
    step: Array
    n_iter: int

    @classmethod
    def before_climbing(cls, a: Array, b: Array, r: int) -> Peaks:
        """Return a batch at the starts a, b, with an infinite last step: nothing has settled."""
        m = len(a)
        return cls(a.copy(), b.copy(), np.zeros((m, r)), np.zeros(m), np.full(m, np.inf), 0)

    def put(self, rows: Array, *values: Array) -> None:
        """Overwrite a, b, c, F and step of the given rows, in place."""
        for stored, new in zip(self[:5], values, strict=True):
            stored[rows] = new


class Layouts(NamedTuple):
    """V, the basis of the space, in three orders of its indices, so that contracting any one of them is one product.

    ``by_context`` (e, r q), ``by_matrix`` (r, e q), ``by_feature`` (q, r e).
    """

    by_context: Array
    by_matrix: Array
    by_feature: Array


def unit(z: Array) -> Array:
    """Scale the last axis to length one."""
    return np.asarray(z / np.linalg.norm(z, axis=-1, keepdims=True))


def climb_to_peaks(
    T: Array, P: Array, a: Array, b: Array, tol: float, max_iter: int, rounded: Array | None = None
) -> Peaks:
    """Take all starts to maxima of F, and the best of them as far as ``max_iter`` allows.

    ``T`` (e, q, q) are the slices and ``P`` (q, r') gives the space: its orthonormal basis is
    ``V_l = [T_1 p_l ... T_e p_l]``. ``rounded`` is T in the precision that the power method is to work in.
    """
    rounded = T if rounded is None else rounded
    peaks = power_steps(rounded, P.astype(rounded.dtype, copy=False), a, b, tol)
    slow = np.flatnonzero(peaks.step > tol)
    if not len(slow):
        return peaks
    # Newton's method alone needs V itself, r' / q times the size of T, so it is formed only if a start is slow. From T
    # and not from ``rounded``: these steps bring the last digits.
    layouts = layouts_of(T, P)
    e, q, _ = T.shape
    r = P.shape[1]
    # Newton's equations hold V contracted with a and with b, and r x r systems, for every start of a batch.
    size = max(1, _NEWTON_BATCH_NUMBERS // (q * (r + e) + r * r))
    n_iter = peaks.n_iter
    for i in range(0, len(slow), size):
        n_iter += _newton_into(peaks, layouts, slow[i : i + size], tol, _NEWTON_STEPS)
    # The highest maximum is always deflated, settled or not, so it alone is worth all of max_iter.
    best = np.array([np.argmax(peaks.F)])  # an array, so that rows can be written
    if peaks.step[best[0]] > tol and max_iter > _NEWTON_STEPS:
        n_iter += _newton_into(peaks, layouts, best, tol, max_iter - _NEWTON_STEPS)
    return peaks._replace(n_iter=n_iter)


def _newton_into(peaks: Peaks, layouts: Layouts, rows: Array, tol: float, max_iter: int) -> int:
    """Continue the given rows of ``peaks`` by Newton steps, in place; return the number of steps."""
    better = newton_steps(layouts, peaks.a[rows], peaks.b[rows], tol, max_iter)
    peaks.put(rows, *better[:5])
    return better.n_iter


def layouts_of(T: Array, P: Array) -> Layouts:
    """Form ``V_l = [T_1 p_l ... T_e p_l]`` in the three orders that Newton's method contracts."""
    e, q, _ = T.shape
    r = P.shape[1]
    # One product; the copies below then let each contraction of a batch be a single matrix product as well.
    V = (T.reshape(e * q, q) @ P).reshape(e, q, r)
    return Layouts(
        by_context=np.ascontiguousarray(V.transpose(0, 2, 1)).reshape(e, r * q),
        by_matrix=np.ascontiguousarray(V.transpose(2, 0, 1)).reshape(r, e * q),
        by_feature=np.ascontiguousarray(V.transpose(1, 2, 0)).reshape(q, r * e),
    )


# The power method ---------------------------------------------------------------------------------------------------


def power_steps(T: Array, P: Array, a: Array, b: Array, tol: float) -> Peaks:
    """Alternate ``a <- V(., b, c)``, ``b <- V(a, ., c)``, ``c <- V(a, b, .)``, each normalised.

    The basis is ``V_l = [T_1 p_l ... T_e p_l]``, so with ``w = P c`` all three contractions follow from the images
    ``T_i w`` and ``T_i a``: V, which is r' / q times the size of T again, is not formed, and T is read in chunks of
    contexts. Cost O(m e q^2) a step, memory O(m q) besides a chunk of the images.
    """
    peaks = Peaks.before_climbing(a, b, P.shape[1])
    rows = np.arange(len(a))
    a = a.astype(T.dtype, copy=False)
    b = b.astype(T.dtype, copy=False)
    # V(a, b, .) = P^T sum_i b_i T_i a, since slices are symmetric.
    w = combine_images(T, a, b) @ P @ P.T
    # c is not normalised here: it acts through w alone, and the length of w drops out of the unit vectors a and b.
    for n_iter in range(1, _POWER_STEPS + 1):
        a = unit(combine_images(T, w, b))
        previous = b
        # b_i = w^T T_i a = V(a, ., c)_i, and y = sum_i b_i T_i a is the next V(a, b, .) before P^T.
        b, y = weigh_images(T, a, w)
        c = y @ P
        w = c @ P.T
        if n_iter % _STEPS_BETWEEN_CHECKS and n_iter < _POWER_STEPS:
            continue
        # P^T y is V(a, b, .) before it is normalised, so its squared length is F.
        step = np.linalg.norm(b - previous, axis=1)
        norm = np.linalg.norm(c, axis=1)
        peaks.put(rows, a, b, c / norm[:, None], norm**2, step)
        # Settled starts leave the batch, so that a few slow ones do not make all the others go on.
        going = step > tol
        rows = rows[going]
        if not len(rows):
            break
        a = a[going]
        b = b[going]
        w = w[going]
    return peaks._replace(n_iter=n_iter)


def _images(T: Array, x: Array) -> Array:
    """``T_i x_j`` as (m, e, q), in the precision of x."""
    e, q, _ = T.shape
    # Callers pass chunks, so that T may be larger than a copy of it in another precision should be.
    F = T.astype(x.dtype, copy=False).reshape(e * q, q)
    # x F^T and not F x: the q numbers of an image then lie side by side, as the sums over contexts read them.
    return np.asarray(x @ F.T).reshape(-1, e, q)


def combine_images(T: Array, x: Array, b: Array) -> Array:
    """``sum_i b_ji T_i x_j`` (m, q)."""
    out = np.zeros_like(x)
    for part in _chunks(T):
        out += np.matmul(b[:, None, part], _images(T[part], x))[:, 0]
    return out


def weigh_images(T: Array, a: Array, w: Array) -> tuple[Array, Array]:
    """``b_ji = w_j^T T_i a_j`` (m, e), normalised, and ``sum_i b_ji T_i a_j`` (m, q): one pass over T for both."""
    b, y = pull_images(T, a, w)
    # y is linear in b, whose norm is known at the end only.
    norm = np.linalg.norm(b, axis=1, keepdims=True)
    return b / norm, y / norm


def pull_images(T: Array, a: Array, w: Array) -> tuple[Array, Array]:
    """``b_ji = w_j^T T_i a_j`` (m, e) and ``sum_i b_ji T_i a_j`` (m, q), in the precision of a: one pass over T."""
    b = np.empty((len(a), len(T)), dtype=a.dtype)
    y = np.zeros_like(a)
    for part in _chunks(T):
        Ta = _images(T[part], a)
        b[:, part] = np.matmul(Ta, w[:, :, None])[:, :, 0]
        y += np.matmul(b[:, None, part], Ta)[:, 0]
        del Ta  # before the next ones are made
    return b, y


def _chunks(T: Array) -> Iterator[slice]:
    """Yield slices of contexts: images of all of them would take m / q times the memory of T."""
    # A sixth of T, where other products take a twelfth: there are many passes, and each call has its price.
    return context_chunks(T, numbers=min(_CHUNK_NUMBERS, T.size // _CHUNK_SHARE))


# Newton's method ----------------------------------------------------------------------------------------------------


class _Point(NamedTuple):
    """Unit a (m, q) and b (m, e), the contraction ``V(., b, .)`` as Vb (m, r, q), ``V(a, b, .) = s c`` with unit c."""

    a: Array
    b: Array
    Vb: Array
    c: Array
    s: Array

    @classmethod
    def at(cls, layouts: Layouts, a: Array, b: Array) -> _Point:
        r = len(layouts.by_matrix)
        Vb = (b @ layouts.by_context).reshape(-1, r, a.shape[1])
        c = np.matmul(Vb, a[:, :, None])[:, :, 0]
        # s = ||V(a, b, .)|| is the root of F, the paper's sigma in Lemma SI-5.3.
        s = np.linalg.norm(c, axis=1)
        return cls(a, b, Vb, c / s[:, None], s)

    def rows(self, which: Array) -> _Point:
        return _Point(*(part[which] for part in self))

    def put(self, which: Array, other: _Point) -> None:
        for stored, new in zip(self, other, strict=True):
            stored[which] = new


def newton_steps(layouts: Layouts, a: Array, b: Array, tol: float, max_iter: int) -> Peaks:
    """Newton's method for the critical points of ``V(a, b, c)`` over three unit spheres, kept ascending.

    ``max_c V(a, b, c)^2 = F(a, b)``, so its critical points are those of F. A Newton step that does not raise F is
    replaced by a power step, which always does.
    """
    r = len(layouts.by_matrix)
    q, e = a.shape[1], b.shape[1]
    peaks = Peaks.before_climbing(a, b, r)
    rows = np.arange(len(a))
    here = _Point.at(layouts, a, b)
    n_iter = 0
    while n_iter < max_iter and len(rows):
        n_iter += 1
        X = (here.c @ layouts.by_matrix).reshape(-1, e, q).transpose(0, 2, 1)  # V(., ., c), (m, q, e)
        Va = (here.a @ layouts.by_feature).reshape(-1, r, e)
        da, db, ascending = _newton_direction(here, X, Va)
        # c is a function of a and b, so it does not count.
        length = np.sqrt((da**2).sum(axis=1) + (db**2).sum(axis=1))
        shrink = np.minimum(1, _LONGEST_NEWTON_STEP / np.maximum(length, np.finfo(float).tiny))[:, None]
        # Normalising is the retraction to the spheres. It follows geodesics to second order, so convergence stays
        # quadratic.
        trial = _Point.at(layouts, unit(here.a + shrink * da), unit(here.b + shrink * db))
        # A negation, so that NaN, which compares as False, counts as failed.
        failed = ~(ascending & (trial.s >= here.s * (1 - _UPHILL_ROUNDING)))
        if failed.any():
            trial.put(failed, _power_step(layouts, X[failed], here.b[failed]))
            # The length is that of the step which was not taken: it must not end the climb.
            length[failed] = np.maximum(length[failed], 2 * tol)
        peaks.put(rows, trial.a, trial.b, trial.c, trial.s**2, length)
        going = length > tol
        rows = rows[going]
        here = trial.rows(going)
    return peaks._replace(n_iter=n_iter)


def _power_step(layouts: Layouts, X: Array, b: Array) -> _Point:
    """Return where ``a <- X b``, ``b <- X^T a`` leads, with ``X = V(., ., c)``."""
    a = unit(np.matmul(X, b[:, :, None])[:, :, 0])
    return _Point.at(layouts, a, unit(np.matmul(a[:, None, :], X)[:, 0]))


def _newton_direction(here: _Point, X: Array, Va: Array) -> tuple[Array, Array, Array]:
    """Return da, db, and whether they go up; positive curvature is turned round first."""
    # At a component of the exact model F curves down in every direction (Lemma SI-5.4), and still does so nearby and
    # under little noise (Lemma SI-5.5): there E and H are positive definite and the step is Newton's own.
    equations = ReducedNewton.at(here.a, here.b, here.c, here.s, X, here.Vb, Va)
    try:
        # One factorisation of E serves Y and y.
        K = np.linalg.solve(equations.E, equations.Yy)
        H, rhs = equations.in_c(K)
        dc = np.linalg.solve(H, rhs)
        # -H is the curvature of F that is left. Where it is not negative the solution leads to a saddle or a minimum:
        # turn the positive directions round, and go up those too.
        # dc^T rhs = dc^T H dc, so that a value <= 0 shows that H is not positive definite.
        uphill = np.matmul(dc.transpose(0, 2, 1), rhs)[:, 0, 0] <= 0
        if uphill.any():
            w, Q = np.linalg.eigh(H[uphill])
            # H has the units of s. Without a floor a nearly flat direction would get all of the step.
            w = np.maximum(np.abs(w), 1e-6 * here.s[uphill, None])[:, :, None]
            dc[uphill] = np.matmul(Q, np.matmul(Q.transpose(0, 2, 1), rhs[uphill]) / w)
    except np.linalg.LinAlgError:  # a direction in which F is exactly flat
        # NumPy does not say which matrix of the batch is singular: all of its starts take a power step instead.
        return np.zeros_like(here.a), np.zeros_like(here.b), np.zeros(len(here.a), dtype=bool)
    da, db = equations.step(K, dc)
    # The slope of s along the step. There is no term of c, which is at its best for a and b.
    gain = np.einsum("mi,mij->m", da, equations.g_a) + np.einsum("mi,mij->m", db, equations.g_b)
    return da, db, gain > 0


class ReducedNewton(NamedTuple):
    """Newton's equations of a batch, with da eliminated.

    On the tangent spaces, with ``X = V(., ., c)``, ``Z_a = P_a V(., b, .)``, ``Z_b = P_b V(a, ., .)`` and P_a, P_b the
    projections off a and b (Lemma SI-5.3 has gradient and Hessian of F itself)::

        s da = X db + Z_a dc + g_a,    s db = X^T da + Z_b dc + g_b,    s dc = Z_a^T da + Z_b^T db.

    The first gives da; ``E db = Y dc + y`` is left of the second; db from it leaves ``H dc = rhs`` of the third. The
    systems are e x e and r x r; the whole would be q + e + r wide. A critical point is a strict maximum if E
    and H, the curvatures that are left, are positive definite.

    ``S`` is s as (m, 1, 1), ``Xp`` (m, e, q) the projected X transposed, and ``Yy`` holds Y and y side by side.
    """

    S: Array
    g_a: Array
    g_b: Array
    Xp: Array
    Z_a: Array
    E: Array
    Yy: Array

    @classmethod
    def at(cls, a: Array, b: Array, c: Array, s: Array, X: Array, Vb: Array, Va: Array) -> ReducedNewton:
        """Return the equations at unit a (m, q), b (m, e), c (m, r), with the contractions of V there."""

        def off(u: Array, Z: Array) -> Array:
            """Project the columns of Z off the unit vectors u."""
            return np.asarray(Z - u[:, :, None] * np.matmul(u[:, None, :], Z))

        # g_a and g_b are the gradient of V(a, b, c) on the spheres. That by c is zero, since c is V(a, b, .)
        # normalised.
        S = s[:, None, None]
        g_a = off(a, np.matmul(X, b[:, :, None]))
        g_b = off(b, np.matmul(X.transpose(0, 2, 1), a[:, :, None]))
        # P_b X^T P_a: steps are tangent, so neither the a-part nor the b-part of X may act on them.
        Xp = off(b, off(a, X).transpose(0, 2, 1))
        # c moves on its sphere too, so the rows of Z_a and Z_b are projected off it.
        Z_a = off(a, Vb.transpose(0, 2, 1))  # (m, q, r)
        Z_a -= np.matmul(Z_a, c[:, :, None]) * c[:, None, :]
        Z_b = off(b, Va.transpose(0, 2, 1))  # (m, e, r)
        Z_b -= np.matmul(Z_b, c[:, :, None]) * c[:, None, :]
        # da = (X db + Z_a dc + g_a) / s put in the second equation. Along b, where Xp is zero, E is s: the projection
        # leaves no null direction behind, and E needs no basis of the tangent space. The same holds for H along c.
        Yy = np.concatenate([Z_b + np.matmul(Xp, Z_a) / S, g_b + np.matmul(Xp, g_a) / S], axis=2)
        E = S * np.eye(b.shape[1]) - np.matmul(Xp, Xp.transpose(0, 2, 1)) / S
        return cls(S, g_a, g_b, Xp, Z_a, E, Yy)

    def in_c(self, K: Array) -> tuple[Array, Array]:
        """Return H (m, r, r) and rhs (m, r, 1), with ``K = E^-1 [Y y]``."""
        r = K.shape[2] - 1
        Z_aT = self.Z_a.transpose(0, 2, 1)
        YT = self.Yy[:, :, :r].transpose(0, 2, 1)
        # With da eliminated the third equation has db only in Z_b^T db + Z_a^T X db / s, which is Y^T db.
        rhs = np.matmul(Z_aT, self.g_a) / self.S + np.matmul(YT, K[:, :, r:])
        H = self.S * np.eye(r) - np.matmul(Z_aT, self.Z_a) / self.S - np.matmul(YT, K[:, :, :r])
        return H, rhs

    def step(self, K: Array, dc: Array) -> tuple[Array, Array]:
        """Return da (m, q) and db (m, e) for the solution ``dc`` (m, r, 1) of ``H dc = rhs``."""
        r = dc.shape[1]
        db = K[:, :, r:] + np.matmul(K[:, :, :r], dc)
        da = (np.matmul(self.Xp.transpose(0, 2, 1), db) + np.matmul(self.Z_a, dc) + self.g_a) / self.S
        return da[:, :, 0], db[:, :, 0]
