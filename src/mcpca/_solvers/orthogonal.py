"""Orthonormal components: least squares and maximum likelihood, by Jacobi rotations and Riemannian Newton steps.

With orthonormal columns a_j everything depends on the variances along them, ``h_ij = a_j^T T_i a_j``:

* least squares: ``min_B sum_i ||T_i - A B_i A^T||^2 = sum_i ||T_i||^2 - sum_ij h_ij^2``, at ``B_ij = h_ij``;
* the Gaussian likelihood of ``A B_i A^T + s_i^2 I``: B and s are functions of h (``_noise_level``);
* Flury's common principal components: ``-sum_ij n_i log h_ij`` (``common_components``).

So each is a function f(h) to be raised over orthonormal A, and one method does it. Jacobi sweeps turn pairs of axes,
each to its best angle (``_jacobi``), and bring the axes near; Newton steps finish (``_stiefel``). Neither lowers f.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._covariances.interface import Covariances
from .._covariances.subspace import Core, grow, slices
from .._linalg.jacobi import jacobi, squares_angle
from .._linalg.stiefel import Climb, Landscape, climb, complete, nearest_orthonormal
from .._utils.progress import Search
from .._utils.types import Array, Report
from .._utils.wording import beside
from .interface import Settings, SolverResult

_SWEEPS = 2
_SMALL = 3 * 10**6  # k q^2 r up to which all starts are taken to the end
_POLAR_STEPS = 5
_CORES, _PATIENCE, _INNER = 40, 4, 0.1
# s^2 is not taken below the first of these times the variance of a context, where rounding would decide the
# likelihood, nor below the second times that of the largest, so that squares of 1 / s^2 are finite.
_RESOLUTION, _SMALLEST = 1e-13, 1e-30
_FLOOR = 1e-9  # of the mean variance of a feature
_TINY = float(np.finfo(float).tiny)


def solve(S: Covariances, core: Core, r: int, settings: Settings) -> SolverResult:
    """Orthonormal components by least squares: from the core to a stationary point in all features.

    Cost that of ``solve_orthogonal_core``, and two passes over the covariances whenever the core is made anew.
    """
    part = core.leading(r)
    result = solve_orthogonal_core(part.tensor, r, tol=settings.tol, max_iter=settings.max_iter, report=settings.report)
    A, basis, n_iter = part.lift(result.components), part.basis, result.n_iter
    if basis is None and part.mixture is None:
        return result
    total, change, size, stalled = float(S.squared_norms().sum()), np.zeros((len(A), 0)), np.inf, 0
    told = Search(settings.report, "refinement", _CORES)
    for _ in range(_CORES):
        told.step()
        gradient = 4 * _stiefel_tangent(A, S.combine(A, S.variances_along(A)))
        size, before = float(np.linalg.norm(gradient)) / total, size
        stalled = stalled + 1 if size > 0.9 * before else 0
        if size <= settings.tol or stalled == _PATIENCE:
            break
        basis = grow(basis, A, gradient, change)
        T = slices(S, basis)
        C = nearest_orthonormal(A if basis is None else basis.T @ A)
        scale = float(np.abs(T).max())
        end = climb(T / scale, complete(C), r, squared_variances, max_iter=settings.max_iter, tol=_INNER * settings.tol)
        n_iter += end.n_iter
        moved = nearest_orthonormal(end.frame[:, :r] if basis is None else basis @ end.frame[:, :r])
        A, change = moved, moved - A
    told.finish()
    converged = size <= settings.tol
    message = (
        f"Converged; orthonormal components, gradient {size:.1e} of the total."
        if converged
        else f"The gradient was still {beside(size, settings.tol, 1, 'e')} of the total, above "
        f"tol={settings.tol:g}; raise max_iter."
    )
    return SolverResult(A, n_iter, converged, message, gradient=size)


def _stiefel_tangent(A: Array, G: Array) -> Array:
    """Return the part of ``G`` along which orthonormal columns A stay orthonormal."""
    cross = A.T @ G
    return np.asarray(G - A @ (cross + cross.T) / 2)


def solve_ml(S: Covariances, core: Core, r: int, settings: Settings) -> SolverResult:
    """Orthonormal components by maximum likelihood; without noise, in the span of least squares' ones.

    With noise the core is made anew, from A, the gradient in all features and the last change, until A stays.
    """
    start = solve(S, core, r, settings)
    n, noisy = settings.degrees_of_freedom, settings.noise is not None
    basis = core.leading(r).basis if noisy else start.components
    trace = S.variances().sum(axis=1)
    A, n_iter, change = start.components, start.n_iter, np.zeros((S.n_features, 0))
    told = Search(settings.report, "likelihood", _CORES)
    for _ in range(_CORES):
        told.step()
        T = slices(S, basis)
        inside = np.einsum("kqq->k", T)
        C, B, noise, steps, converged = solve_likelihood(
            T,
            np.maximum(trace - inside, 0) if noisy else np.zeros(len(inside)),
            r,
            n=n,
            p=S.n_features if noisy else r,
            floor=max(_FLOOR * float(trace.mean()) / S.n_features, _TINY),
            start=A if basis is None else nearest_orthonormal(basis.T @ A),
            shared_noise=settings.noise == "pooled",
            tol=settings.tol,
            max_iter=settings.max_iter,
        )
        moved = C if basis is None else nearest_orthonormal(basis @ C)
        A, change, n_iter = moved, moved - A, n_iter + steps
        if basis is None or not noisy or float(np.linalg.norm(change)) <= settings.tol * np.sqrt(r):
            break
        slope = n[:, None] * (1 / noise[:, None] - 1 / (noise[:, None] + B))
        basis = grow(basis, A, _stiefel_tangent(A, S.combine(A, slope)), change)
    told.finish()
    message = "Converged; orthonormal components of maximum likelihood."
    if not converged:
        message = f"The likelihood could still rise after max_iter={settings.max_iter} steps; raise max_iter."
    if not noisy:
        return SolverResult(A, n_iter, converged, message, B + noise[:, None], None)
    return SolverResult(A, n_iter, converged, message, B, noise)


def solve_orthogonal_core(
    T: Array,
    r: int,
    *,
    tol: float,
    max_iter: int,
    report: Report,
) -> SolverResult:
    """Find the orthonormal columns (q, r) that maximise ``sum_ij (a_j^T T_i a_j)^2`` for symmetric slices ``T``.

    Starts are the top r eigenvectors of ``sum_i T_i`` and those of ``sum_i T_i T_i``, after Jacobi sweeps. Small
    problems take both to a maximum, and as a third the r largest axes of the whole core jointly diagonalised; large
    ones go on from the better. (In all that we tried maxima differed by 1e-3 of the sum at most, and only in noise.)
    No random number is used.

    Converged means that the Riemannian gradient is below ``tol`` times ``sum_i ||T_i||^2``. Cost O(k q^3) a sweep and
    O(k q^2 r) a Newton step; memory O(k q^2 + min(r, 4 k) q^2).
    """
    q = T.shape[1]
    size = float(np.abs(T).max(initial=0))
    if size == 0:
        return SolverResult(np.eye(q)[:, :r], 0, True, "All slices are zero: any axes will do.")
    T = np.ascontiguousarray(T, dtype=np.float64) / size
    total = float((T**2).sum())
    starts = _starts(T, r)
    ends: list[Climb] = []
    for start in starts:
        report("starts", len(ends), len(starts))
        ends.append(climb(T, start, r, squared_variances, max_iter=max_iter, tol=tol))
    report("starts", len(starts), len(starts))
    # The first of those that only rounding tells apart.
    best = max(end.value for end in ends)
    end = next(end for end in ends if end.value >= best * (1 - 1e-9))
    certificate = end.gradient / total
    converged = certificate <= tol
    message = (
        f"Converged; orthonormal components, gradient {certificate:.1e} of the total."
        if converged
        else f"The gradient was still {beside(certificate, tol, 1, 'e')} of the total, above tol={tol:g}, after "
        f"max_iter={max_iter} "
        "steps; raise either."
    )
    A = nearest_orthonormal(end.frame[:, :r])
    return SolverResult(A, sum(end.n_iter for end in ends), converged, message, gradient=certificate)


def squared_variances(h: Array) -> Landscape:
    """``f = sum_ij h_ij^2``."""
    return Landscape(float((h**2).sum()), 2 * h, np.full_like(h, 2), None)


def solve_likelihood(
    T: Array,
    rest: Array,
    r: int,
    *,
    n: Array,
    p: int,
    floor: float,
    start: Array,
    shared_noise: bool,
    tol: float,
    max_iter: int,
) -> tuple[Array, Array, Array, int, bool]:
    """Maximise the Gaussian likelihood of ``S_i ~ A diag(b_i) A^T + s_i^2 I``, A orthonormal, ``b_i >= 0``.

    Parameters
    ----------
    T : ndarray (k, q, q)
        ``U^T S_i U`` in an orthonormal basis U that holds A.
    rest : ndarray (k,)
        ``trace(S_i) - trace(T_i)``, the variance outside the basis.
    r : int
        Number of components.
    n : ndarray (k,)
        Weights of contexts: sample sizes.
    p : int
        Number of features.
    floor : float
        The smallest s^2 allowed; positive. Below 1e-13 of a context's variance rounding would decide: it stops there.
    start : ndarray (q, r)
        Orthonormal columns.
    shared_noise : bool
        One s^2 for all contexts.
    tol, max_iter : float, int
        Converged when one more step would raise the log-likelihood per sample by less than ``tol`` times p.

    Returns
    -------
    C : ndarray (q, r)
        Orthonormal columns.
    loadings : ndarray (k, r)
        b.
    noise : ndarray (k,)
        s^2, all equal when shared.
    n_iter : int
        Steps.
    converged : bool
        Whether the gain that is left, which is the squared gradient over the curvature, is that small.

    Notes
    -----
    A few polar steps, ``A <- polar [M_j a_j]`` with ``M_j = sum_i n_i (1/s_i^2 - 1/t_ij) T_i``, which maximise a
    minorant, and then Newton steps on the likelihood with b and s eliminated. Cost O(k q^2 r) a step.
    """
    total = np.einsum("iqq->i", T) + rest
    # Variances of contexts may differ by orders of magnitude; the likelihood only needs that none overflows.
    size = float(total.max(initial=0)) / p
    size = size if size > 0 else 1.0
    T = np.ascontiguousarray(T, dtype=np.float64) / size
    total = total / size
    low = np.maximum(floor / size, np.maximum(_RESOLUTION * total, _SMALLEST))
    low = np.full_like(low, low.max()) if shared_noise else low
    weights = np.asarray(n, dtype=np.float64) / np.sum(n, dtype=np.float64)

    def likelihood(h: Array) -> Landscape:
        return _likelihood(np.maximum(h, 0), total, weights, p, low, shared_noise)

    A, n_iter = _polar_steps(T, start, likelihood, min(_POLAR_STEPS, max_iter))
    end = climb(T, complete(A), r, likelihood, max_iter=max_iter - n_iter, tol=tol)
    A = nearest_orthonormal(end.frame[:, :r])
    h = np.maximum(_along(T, A), 0)
    noise = _noise_level(h, total, weights, p, low, shared_noise)[0]
    loadings = np.maximum(h - noise, 0).T
    # What rounding of h does to the likelihood cannot be gained.
    noisy = float(np.finfo(float).eps * (total / noise).max())
    converged = end.gain <= max(tol, noisy) * p
    s2 = np.maximum(noise * size, floor)  # dividing and multiplying may lose the last digit
    return A, np.ascontiguousarray(loadings) * size, s2, n_iter + end.n_iter, bool(converged)


def _likelihood(h: Array, total: Array, n: Array, p: int, floor: Array, shared: bool) -> Landscape:
    """Return twice the log-likelihood, without its constant, with b and s^2 at their best for h (r, k).

    ``-sum_i n_i [sum_j log t_ij + (p - r) log s_i^2 + sum_j h_ij / t_ij + (total_i - sum_j h_ij) / s_i^2]``. As b and
    s are optimal its derivative is ``n_i (1/s_i^2 - 1/t_ij)``; the second derivative has ``n_i / h_ij^2`` on the
    diagonal and couples entries through s^2, which is the mean of what they leave.
    """
    r = len(h)
    s2, pool = _noise_level(h, total, n, p, floor, shared)
    t = np.maximum(h, s2)
    free = h > s2
    outside = _outside(h, total, p)
    value = -float(n @ ((np.log(t) + h / t).sum(axis=0) + (p - r) * np.log(s2) + outside / s2))
    slope = np.where(free, n * (1 / s2 - 1 / t), 0)
    bend = np.where(free, n / t**2, 0)
    # At the floor s^2 does not follow h.
    follows = np.where((s2 > floor) & (pool > 0), 1 / np.maximum(pool, _TINY), 0) / s2**2

    def coupling(change: Array) -> Array:
        sums = n * np.where(free, change, 0).sum(axis=0)
        return np.asarray(np.where(free, n * follows * (sums.sum() if shared else sums), 0))

    return Landscape(value, slope, bend, coupling)


def _outside(h: Array, total: Array, p: int) -> Array:
    """Return the variance of each context outside the components: none, whatever rounding says, when r = p."""
    return np.zeros_like(total) if len(h) == p else np.maximum(total - h.sum(axis=0), 0)


def _noise_level(h: Array, total: Array, n: Array, p: int, floor: Array, shared: bool) -> tuple[Array, Array]:
    """Return the best s^2 (k,) for h (r, k), and the weight of the variances that it is the mean of (k,).

    An entry has b > 0 when it exceeds the mean of all that does not, the complement included. With entries sorted,
    largest first, let s^2(m) be the mean of all but the first m: where entry m + 1 fails to exceed s^2(m), the later
    ones fail too, so the number of entries with b > 0 is the length of a run.
    """
    r, k = h.shape
    outside, dims = _outside(h, total, p), np.full(k, float(p - r))
    values = h.T
    w = np.broadcast_to(n[:, None], values.shape) if shared else np.ones_like(values)
    if shared:
        values, w = values.reshape(1, -1), w.reshape(1, -1)
        outside, dims = np.array([n @ outside]), np.array([n @ dims])
    order = np.argsort(-values, axis=1, kind="stable")
    values, w = np.take_along_axis(values, order, 1), np.take_along_axis(w, order, 1)
    # Sums from the small end: nothing cancels.
    sums = np.cumsum(np.column_stack([outside, (w * values)[:, ::-1]]), axis=1)[:, ::-1]
    counts = np.cumsum(np.column_stack([dims, w[:, ::-1]]), axis=1)[:, ::-1]
    means = np.maximum(sums / np.where(counts > 0, counts, 1), floor[: len(values), None])
    exceeds = values > means[:, :-1]
    if p == r:
        exceeds[:, -1] = False  # without a complement the smallest entry is the noise
    m = np.logical_and.accumulate(exceeds, axis=1).sum(axis=1, keepdims=True)
    s2 = np.take_along_axis(means, m, 1)[:, 0]
    pool = np.take_along_axis(counts, m, 1)[:, 0]
    # Per context the sums above have weight 1 for n_i.
    return (np.repeat(s2, k), np.repeat(pool, k)) if shared else (s2, pool * n)


def _polar_steps(T: Array, A: Array, objective: Callable[[Array], Landscape], max_iter: int) -> tuple[Array, int]:
    """Repeat ``A <- polar factor of [M_j a_j]``, ``M_j = sum_i slope_ij T_i``, as long as that raises f."""
    k, q, _ = T.shape
    A = nearest_orthonormal(np.asarray(A, dtype=np.float64))
    r = A.shape[1]
    images = (A.T @ T.reshape(k * q, q).T).reshape(r, k, q)
    here = objective(np.einsum("jiq,qj->ji", images, A))
    for n_iter in range(max_iter):
        pull = np.matmul(here.slope[:, None, :], images)[:, 0].T
        U, sigma, Vt = np.linalg.svd(pull, full_matrices=False)
        if sigma[-1] <= r * np.finfo(float).eps * sigma[0]:
            return A, n_iter  # the polar factor is not unique: some component is all noise
        trial = U @ Vt
        images = (trial.T @ T.reshape(k * q, q).T).reshape(r, k, q)
        there = objective(np.einsum("jiq,qj->ji", images, trial))
        if not there.value > here.value:
            return A, n_iter
        A, here = trial, there
    return A, max_iter


def _along(T: Array, A: Array) -> Array:
    """Return ``h_ij = a_j^T T_i a_j`` as (r, k)."""
    k, q, _ = T.shape
    return np.asarray(np.einsum("jiq,qj->ji", (A.T @ T.reshape(k * q, q).T).reshape(-1, k, q), A))


def _starts(T: Array, r: int) -> list[Array]:
    """Return frames to start from; one, the best, when the problem is large."""
    k, q, _ = T.shape
    F = T.reshape(k * q, q)
    eigenvectors = [np.linalg.eigh(G)[1][:, ::-1] for G in (T.sum(axis=0), F.T @ F)]
    small = k * q * q * r <= _SMALL
    starts = [jacobi(T, V, r, squares_angle, _SWEEPS if small else 1)[0] for V in eigenvectors]
    if not small:
        values = [float((_along(T, V[:, :r]) ** 2).sum()) for V in starts]
        return [starts[int(np.argmax(values))]]
    if r < q:
        whole = jacobi(T, eigenvectors[1], q, squares_angle, _SWEEPS)[0]
        largest = np.argsort(-(_along(T, whole) ** 2).sum(axis=1), kind="stable")
        starts.append(whole[:, largest])
    return starts
