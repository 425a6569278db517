"""The multi-subspace power method, in compressed coordinates, many starts at once, deflating in blocks.

Let ``T_i`` (q, q), i = 1..e, be the core and ``V_1 .. V_r`` (q, e) an orthonormal basis of the matrices
``[T_1 w ... T_e w]`` with w in the top r left singular vectors of the flattening. In the model the rank-one
matrices of that space are exactly ``a_j b_j^T``. The method climbs

    F(a, b) = sum_l (a^T V_l b)^2,   the squared cosine between a b^T and the space,

to a local maximum, where F near 1 means that a is a component; takes the component out of the space; repeats.
Three things differ from doing this one start and one component at a time:

* starts advance together, as matrix products, the first of them informed (``_pencil_starts``); those that the power
  method has not settled after a while take Newton steps, which do not mind that F is flat when contexts are few;
* every maximum of a round is accepted that taking out the others would not touch (below); with many contexts
  that is all of them, with few contexts it is one at a time;
* at the end each component is taken once more with all the others out of the space, which removes the dependence
  on the order in which they came, and so on the seed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from .._check import Array, Report
from ..covariances import Covariances
from ..stack import congruence
from ..subspace import Core
from ._diagonalise import pair_step
from ._interface import Settings, SolverResult

_POWER_STEPS = 40
_NEWTON_STEPS = 15
_MAX_STARTS = 64
_SPARE_STARTS = 12
_RANDOM_STARTS = 4
# A maximum joins a block while it loses at most the square of this, as a share of F, to deflating the block.
_APART = 0.02
_F_WINDOW = 0.05
# The joint refinement must stay where deflation left it: |cos| of each component, before and after.
_SAME_BASIN = 0.9
_REFINE_STEPS = 100
_REFINE_TOL = 1e-9
_COARSE, _SINGLE = 1e-4, 1e-2
_BATCH = 2**19  # numbers in a Newton temporary: 4 MB


class _Peaks(NamedTuple):
    """A batch of m candidate maxima: a (m, q), b (m, e), c (m, r') unit; F and last step length (m,)."""

    a: Array
    b: Array
    c: Array
    F: Array
    step: Array
    n_iter: int


class Pull(NamedTuple):
    """What component j is to the covariances: the direction of ``sum_i weights_ij T_i directions_j``.

    ``directions`` (q, r) are orthogonal to all other components, within the top r singular vectors; ``weights`` (e, r).
    """

    directions: Array
    weights: Array


def solve(S: Covariances, core: Core, r: int, settings: Settings) -> SolverResult:
    """Find r components of the covariances behind ``core``.

    The core decides which they are. What each leans out of it is then seen in one product with the covariances
    themselves, after which the answer is that of the same method in all features. (Not where contexts are so many that
    the core holds combinations of them: planted problems gave errors of 0.9 to 1.07 times those with it.)
    """
    part = core.leading(r)
    result, pull = solve_core(
        part.tensor,
        r,
        leading=part.basis is not None,
        rng=settings.rng,
        tol=settings.tol,
        max_iter=settings.max_iter,
        report=settings.report,
    )
    if pull is None or part.basis is None or part.mixture is not None:
        return replace(result, components=part.lift(result.components))
    A = S.combine(part.lift(pull.directions), pull.weights)
    return replace(result, components=A / np.linalg.norm(A, axis=0))


def solve_core(
    T: Array,
    r: int,
    *,
    leading: bool = False,
    rng: np.random.Generator,
    tol: float,
    max_iter: int,
    report: Report,
) -> tuple[SolverResult, Pull | None]:
    """Find r components (q, r) of the symmetric slices ``T`` (e, q, q), and how they are drawn from them.

    The second is None where components depend on the order of deflation. ``leading`` says that coordinates are those of
    singular vectors, in order.

    Cost about ``60 r`` contractions of O(q^2 e) when contexts are many, up to ``60 r^2`` when they are few; memory
    O(q^2 (e + 64)).
    """
    U, D = row_space(T, r, leading=leading)
    M = np.ascontiguousarray(congruence(T, U).transpose(1, 0, 2))
    # Where the refinement succeeds it brings all digits, so the maxima are first found to a few.
    C, n_iter, settled = _deflate(T, U, D, M, rng, max(tol, _COARSE), max_iter, report)
    C, pull = _refine_jointly(T, U, M, C)
    if pull is None and tol < _COARSE:
        C, more, settled = _deflate(T, U, D, M, rng, tol, max_iter, report)
        n_iter += more
        C, pull = _refine_jointly(T, U, M, C)
    if pull is not None:
        message = "Converged; the order of deflation was removed."
    elif settled:
        message = (
            "Converged, but components depend on the order of deflation: loadings are close to proportional or the "
            "model is far from exact at this rank, so the axes are less certain than what they span."
        )
    else:
        message = f"A component had not settled to tol={tol:.1e} after max_iter={max_iter} steps; raise either."
    return SolverResult(C, n_iter, settled or pull is not None, message), pull


def _deflate(
    T: Array,
    U: Array,
    D: Array,
    M: Array,
    rng: np.random.Generator,
    tol: float,
    max_iter: int,
    report: Report,
) -> tuple[Array, int, bool]:
    """Find maxima and take them out until there are r; return them (q, r), the iterations, and whether all settled.

    ``M`` (e, r, r), the slices in the basis U, gives informed starts.
    """
    e, (q, r) = len(T), U.shape
    normals = np.zeros((0, r))  # deflated directions, in V's coordinates
    Q = np.eye(r)
    found = np.zeros((0, q))
    n_iter, settled = 0, True
    # Half the time, for four digits, where the directions of the space are not too unequal for it.
    rounded = T.astype(np.float32) if tol >= _COARSE and D[-1] > _SINGLE * D[0] else T
    while len(found) < r:
        report("components", len(found), r)
        left = r - len(found)
        m = min(left + _SPARE_STARTS, _MAX_STARTS)
        a, b = _unit(rng.standard_normal((m, q))), _unit(rng.standard_normal((m, e)))
        if left == r:
            a, b = _pencil_starts(U, M, rng, a, b)
        peaks = _climb(T, (U / D) @ Q, a, b, tol, max_iter, rounded)
        n_iter += peaks.n_iter
        normal = _unit(peaks.a @ U / D)
        block = _independent_block(peaks, peaks.c @ Q.T, normal, normals, tol)
        settled &= bool((peaks.step[block] <= tol).all())
        found = np.vstack([found, peaks.a[block]])
        normals = np.vstack([normals, normal[block]])
        if len(found) < r:
            Q = np.linalg.qr(normals.T, mode="complete")[0][:, len(found) :]
    report("components", r, r)
    return found.T, n_iter, settled


def _pencil_starts(U: Array, M: Array, rng: np.random.Generator, a: Array, b: Array) -> tuple[Array, Array]:
    """Replace all but a few random starts by the common axes of two combinations of contexts.

    With two contexts at full rank these are the answer (the generalised eigenproblem); with more they are a start for
    each component where random ones would find some twice.
    """
    r = len(M[0])
    try:
        L = np.linalg.cholesky(M.sum(axis=0))
    except np.linalg.LinAlgError:  # not covariances but combinations of them
        return a, b
    whitener = np.linalg.inv(L)
    mixed = whitener @ np.tensordot(rng.standard_normal(len(M)), M, axes=1) @ whitener.T
    Z = np.linalg.eigh((mixed + mixed.T) / 2)[1]
    n = min(r, len(a) - _RANDOM_STARTS)
    chosen = rng.permutation(r)[:n]
    W = whitener.T @ Z[:, chosen]
    a[:n] = _unit((U @ L @ Z[:, chosen]).T)
    b[:n] = _unit(np.einsum("jej->je", congruence(M, W)))
    return a, b


def _unit(z: Array) -> Array:
    return np.asarray(z / np.linalg.norm(z, axis=-1, keepdims=True))


def row_space(T: Array, r: int, *, leading: bool = False) -> tuple[Array, Array]:
    """Return U (q, r) and D (r,): ``V_l = [T_1 u_l ... T_e u_l] / D_l`` are orthonormal.

    U spans the top left singular vectors of the flattening: of T, or, where T is in coordinates of the singular vectors
    of larger covariances, the first r coordinates.
    """
    e, q, _ = T.shape
    F = T.reshape(e * q, q)
    if leading:
        U = np.zeros((q, r))
        U[:r] = np.linalg.eigh(F[:, :r].T @ F[:, :r])[1][:, ::-1]
    else:
        U = np.linalg.eigh(F.T @ F)[1]
        U = U[:, : q - r - 1 : -1] if r < q else U[:, ::-1]
    # From the images and not from the eigenvalues, which squaring has rounded.
    return U, np.linalg.norm(F @ U, axis=0)


def _climb(T: Array, P: Array, a: Array, b: Array, tol: float, max_iter: int, rounded: Array | None = None) -> _Peaks:
    """Take all starts to maxima of F, and the best of them as far as ``max_iter`` allows.

    ``rounded`` is T in the precision that the power method is to work in.
    """
    rounded = T if rounded is None else rounded
    power = _power(rounded, P.astype(rounded.dtype, copy=False), a, b, tol)
    slow = np.flatnonzero(power.step > tol)
    if not len(slow):
        return power
    layouts = _layouts(T, P)
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


def _newton_into(peaks: _Peaks, layouts: tuple[Array, Array, Array], rows: Array, tol: float, max_iter: int) -> int:
    """Continue the given rows of ``peaks`` in place; return the number of steps."""
    better = _newton(layouts, peaks.a[rows], peaks.b[rows], tol, max_iter)
    for old, new in zip(peaks[:5], better[:5], strict=True):
        old[rows] = new
    return better.n_iter


def _layouts(T: Array, P: Array) -> tuple[Array, Array, Array]:
    """Return V as (e, r q), (r, e q) and (q, r e): contracting any one index is then one product, starts first."""
    e, q, _ = T.shape
    r = P.shape[1]
    V = (T.reshape(e * q, q) @ P).reshape(e, q, r)
    by_context = np.ascontiguousarray(V.transpose(0, 2, 1)).reshape(e, r * q)
    by_matrix = np.ascontiguousarray(V.transpose(2, 0, 1)).reshape(r, e * q)
    return by_context, by_matrix, np.ascontiguousarray(V.transpose(1, 2, 0)).reshape(q, r * e)


def _power(T: Array, P: Array, a: Array, b: Array, tol: float) -> _Peaks:
    """Alternate ``a <- T(., b, c)``, ``b <- T(a, ., c)`` with ``c = T(a, b, .)``, all normalised.

    The slices of the space are ``V_l = [T_1 p_l ... T_e p_l]``, so contracting them is contracting T, once over
    contexts and once over features: V itself is not formed.
    """
    e, q, _ = T.shape
    m = len(a)
    over_contexts, over_features = T.reshape(e, q * q), T.reshape(e * q, q).T
    peaks = _Peaks(a.copy(), b.copy(), np.zeros((m, P.shape[1])), np.zeros(m), np.full(m, np.inf), 0)
    rows = np.arange(m)
    a, b = a.astype(T.dtype, copy=False), b.astype(T.dtype, copy=False)
    for n_iter in range(1, _POWER_STEPS + 1):
        Tb = (b @ over_contexts).reshape(-1, q, q)
        c = np.matmul(Tb, a[:, :, None])[:, :, 0] @ P
        w = c @ P.T
        a = _unit(np.matmul(Tb, w[:, :, None])[:, :, 0])
        Tw = (w @ over_features).reshape(-1, e, q)
        previous, b = b, _unit(np.matmul(Tw, a[:, :, None])[:, :, 0])
        if n_iter % 4 and n_iter < _POWER_STEPS:
            continue
        step = np.linalg.norm(b - previous, axis=1)
        norm = np.linalg.norm(c, axis=1)
        for old, new in zip(peaks[:5], (a, b, c / norm[:, None], norm**2, step), strict=True):
            old[rows] = new
        going = step > tol
        rows, a, b = rows[going], a[going], b[going]
        if not len(rows):
            break
    return peaks._replace(n_iter=n_iter)


def _newton(layouts: tuple[Array, Array, Array], a: Array, b: Array, tol: float, max_iter: int) -> _Peaks:
    """Newton's method for the critical points of ``c^T T(a, b)`` over three unit spheres, kept ascending.

    Where a Newton step does not raise F a power step, which always does, is taken instead.
    """
    by_context, by_matrix, by_feature = layouts
    (m, q), e, r = a.shape, b.shape[1], len(by_matrix)
    peaks = _Peaks(a.copy(), b.copy(), np.zeros((m, r)), np.zeros(m), np.full(m, np.inf), 0)
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
        trial = _unit(a + short * da), _unit(b + short * db)
        Vb, c, s_new = contract(*trial)
        down = ~(ascending & (s_new >= s * (1 - 1e-13)))
        a_new, b_new = trial
        if down.any():
            a_new[down] = _unit(np.matmul(X[down], b[down][:, :, None])[:, :, 0])
            b_new[down] = _unit(np.matmul(a_new[down][:, None, :], X[down])[:, 0])
            length[down] = np.maximum(length[down], 2 * tol)
            Vb[down], c[down], s_new[down] = contract(a_new[down], b_new[down])
        a, b, s = a_new, b_new, s_new
        for old, new in zip(peaks[:5], (a, b, c, s**2, length), strict=True):
            old[rows] = new
        going = length > tol
        rows, a, b, c, s, Vb = rows[going], a[going], b[going], c[going], s[going], Vb[going]
    return peaks._replace(n_iter=n_iter)


def _newton_step(a: Array, b: Array, c: Array, s: Array, X: Array, Vb: Array, Va: Array) -> tuple[Array, Array, Array]:
    """Solve the Newton equations by eliminating da, then db.

    On the tangent spaces, with ``X = T(., ., c)``, ``Z_a = P_a T(., b, .)``, ``Z_b = P_b T(a, ., .)``:
    ``s da = X db + Z_a dc + g_a``,  ``s db = X^T da + Z_b dc + g_b``,  ``s dc = Z_a^T da + Z_b^T db``.
    """
    r, e = c.shape[1], b.shape[1]

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
    Y = Z_b + np.matmul(Xp, Z_a) / S
    y = g_b + np.matmul(Xp, g_a) / S
    Z_aT, YT = Z_a.transpose(0, 2, 1), Y.transpose(0, 2, 1)
    try:
        K = np.linalg.solve(S * np.eye(e) - np.matmul(Xp, Xp.transpose(0, 2, 1)) / S, np.concatenate([Y, y], axis=2))
        rhs = np.matmul(Z_aT, g_a) / S + np.matmul(YT, K[:, :, r:])
        H = S * np.eye(r) - np.matmul(Z_aT, Z_a) / S - np.matmul(YT, K[:, :, :r])
        dc = np.linalg.solve(H, rhs)
        # Where -H, the curvature of F, is not negative: turn its positive directions round, and go up those too.
        uphill = np.matmul(dc.transpose(0, 2, 1), rhs)[:, 0, 0] <= 0
        if uphill.any():
            w, Q = np.linalg.eigh(H[uphill])
            w = np.maximum(np.abs(w), 1e-6 * s[uphill, None])[:, :, None]
            dc[uphill] = np.matmul(Q, np.matmul(Q.transpose(0, 2, 1), rhs[uphill]) / w)
    except np.linalg.LinAlgError:  # a direction in which F is exactly flat
        return np.zeros_like(a), np.zeros_like(b), np.zeros(len(a), dtype=bool)
    db = K[:, :, r:] + np.matmul(K[:, :, :r], dc)
    da = (np.matmul(Xp.transpose(0, 2, 1), db) + np.matmul(Z_a, dc) + g_a) / S
    gain = (np.matmul(da.transpose(0, 2, 1), g_a) + np.matmul(db.transpose(0, 2, 1), g_b))[:, 0, 0]
    return da[:, :, 0], db[:, :, 0], gain > 0


def _independent_block(peaks: _Peaks, c: Array, normal: Array, normals: Array, tol: float) -> list[int]:
    """Choose the maxima that can be deflated together.

    Deflating component j leaves the coefficient vectors orthogonal to ``n_j = D^-1 U^T a_j`` (in V's coordinates).
    In the exact model ``c_l . n_j = 0`` for l != j: each survives the other. So the best maximum is taken, and after
    it, in order of F, each converged one that keeps all but ``_APART**2`` of itself when those before it go, and
    leaves them as whole. Near-duplicates and maxima that compete for the same component fail this.
    """
    order = np.argsort(-peaks.F, kind="stable")
    block = [int(order[0])]
    taken = _orthonormal(normals)
    basis = _append_direction(np.zeros((0, c.shape[1])), taken, normal[block[0]])
    limit = _APART**2
    for j in map(int, order[1:]):
        if peaks.step[j] > tol or peaks.F[j] < peaks.F[block[0]] - _F_WINDOW:
            continue
        if ((basis @ c[j]) ** 2).sum() <= limit and ((c[block] @ normal[j]) ** 2).sum() <= limit:
            block.append(j)
            basis = _append_direction(basis, taken, normal[j])
    return block[: c.shape[1] - len(normals)]


def _orthonormal(rows: Array) -> Array:
    basis: Array = np.linalg.qr(rows.T)[0].T
    return basis


def _append_direction(basis: Array, taken: Array, row: Array) -> Array:
    """Add to ``basis`` what ``row`` has outside it and outside ``taken``."""
    row = row - taken.T @ (taken @ row)
    row = row - basis.T @ (basis @ row)
    return np.vstack([basis, _unit(row)])


def _refine_jointly(T: Array, U: Array, M: Array, C: Array) -> tuple[Array, Pull | None]:
    """Take each component with all the others deflated, until none moves.

    With all others out, the space is spanned by the one matrix ``[T_1 w_j ... T_e w_j]``, W the inverse transpose of
    ``U^T C``. Its rank-one direction is ``c_j`` exactly when ``sum_i R_i[l, j] R_i[j, j] = 0`` for all l != j, with
    ``R_i = W^T M_i W``: those are the equations of unweighted joint diagonalisation, solved for all pairs at once
    (``pair_step``). Cost O(e r^3) a step. The starting point is kept if this does not converge near it.
    """
    r = C.shape[1]
    try:
        W = np.linalg.inv(U.T @ C)
        for _ in range(_REFINE_STEPS):
            R = congruence(M, W.T)  # (r, e, r)
            d = np.einsum("jej->ej", R)
            size = np.einsum("ej,ej->j", d, d)
            if not (size > 0).all():
                return C, None
            E = pair_step(R, d)
            step = float(np.abs(E).max())
            if not np.isfinite(step):
                return C, None
            W = np.linalg.solve(np.eye(r) + E, W) / size[:, None] ** 0.25  # keeps every d_j near unit length
            if step < _REFINE_TOL:
                break
        else:
            return C, None
    except np.linalg.LinAlgError:
        return C, None
    directions = U @ W.T
    images = np.einsum("eqs,js->ejq", T @ U, W, optimize=True)
    d = np.einsum("ejq,qj->ej", images, directions)
    refined = np.einsum("ejq,ej->qj", images, d)
    refined = refined / np.linalg.norm(refined, axis=0)
    stays = bool((np.abs((refined * C).sum(axis=0)) > _SAME_BASIN).all())
    return (refined, Pull(directions, d)) if stays else (C, None)
