"""Orthonormal components by least squares: what ``orthogonal=True`` means for the solvers without a likelihood.

This is the paper's orthogonal MCPCA (supplement, "Orthogonal MCPCA", Definition SI-4.1). With orthonormal columns a_j
every criterion depends on the variances along them alone, ``h_ij = a_j^T T_i a_j``:

* least squares: ``min_B sum_i ||T_i - A B_i A^T||^2 = sum_i ||T_i||^2 - sum_ij h_ij^2``, at ``B_ij = h_ij``;
* the Gaussian likelihood of ``A B_i A^T + s_i^2 I``: B and s are functions of h (``orthogonal_ml``);
* Flury's common principal components: ``-sum_ij n_i log h_ij`` (``_model.common_components``).

So each is a function f(h) to be raised over orthonormal A, and one method does it. Jacobi sweeps turn pairs of axes,
each to its best angle (``_linalg.jacobi``), and bring the axes near; Newton steps finish (``_linalg.stiefel``). Neither
lowers f. No random number is used.
"""

from __future__ import annotations

import numpy as np

from .._covariances.interface import Covariances
from .._covariances.stack import images
from .._covariances.subspace import Core
from .._linalg.jacobi import jacobi_sweeps, squares_angle
from .._linalg.stiefel import FrameMaximum, Landscape, complete_frame, maximise_over_frames, nearest_orthonormal
from .._utils.progress import Search
from .._utils.types import Array, Report
from .._utils.wording import beside
from .growing import GrowingCore, Patience
from .interface import Settings, SolverResult

_SWEEPS = 2  # of Jacobi rotations before Newton's method: enough to come near, and Newton steps are cheaper after that
_ALL_STARTS_UP_TO = 3 * 10**6  # k q^2 r up to which all starts are taken to the end
_SAME_VALUE = 1e-9  # share of f by which ends may differ from rounding alone
_MOST_CORES = 40
_IDLE_FACTOR = 0.9  # a round that leaves more than this share of the gradient is one of those that ``Patience`` counts
_INNER_SHARE = 0.1  # of ``tol``, to which axes settle within a core


def solve(S: Covariances, core: Core, r: int, settings: Settings) -> SolverResult:
    """Orthonormal components by least squares: from the core to a stationary point in all features.

    Cost that of ``solve_orthogonal_core``, and two passes over the covariances whenever the core is made anew.
    """
    part = core.leading(r)
    result = solve_orthogonal_core(part.tensor, r, tol=settings.tol, max_iter=settings.max_iter, report=settings.report)
    # The core is the covariances themselves, and nothing is outside it.
    if part.basis is None and part.mixture is None:
        return result
    A = part.lift(result.components)
    n_iter = result.n_iter
    total = float(S.squared_norms().sum())
    # Without slices: the basis is replaced before they are asked for.
    growing = GrowingCore(S, part.basis)
    change = np.zeros((len(A), 0))
    patience = Patience(_IDLE_FACTOR)
    progress = Search(settings.report, "refinement", _MOST_CORES)
    for _ in range(_MOST_CORES):
        progress.step()
        # Of sum_ij h_ij^2: 4 sum_i h_ij S_i a_j, without the part that would bend A out of orthonormality.
        gradient = 4 * stiefel_tangent(A, S.combine(A, S.variances_along(A)))
        size = float(np.linalg.norm(gradient)) / total
        if patience.is_lost(size) or size <= settings.tol:
            break
        growing.grow(A, gradient, change)
        T = growing.tensor
        # The new basis holds A, so that the polar factor only takes rounding off.
        frame = complete_frame(nearest_orthonormal(growing.inside(A)))
        # Scaled, so that fourth powers of variances neither overflow nor vanish.
        T = T / float(np.abs(T).max())
        end = maximise_over_frames(
            T, frame, r, squared_variances, max_iter=settings.max_iter, tol=_INNER_SHARE * settings.tol
        )
        n_iter += end.n_iter
        # Rounding of the basis and of many rotations; the certificate is for columns that are orthonormal.
        moved = nearest_orthonormal(growing.lift(end.frame[:, :r]))
        change = moved - A
        A = moved
    progress.finish()
    message = _message(size, settings.tol, "; raise max_iter.")
    return SolverResult(A, n_iter, size <= settings.tol, message, gradient=size)


def _message(certificate: float, tol: float, way_out: str) -> str:
    """Say how far from stationary the axes are; ``way_out`` ends the sentence if that is too far."""
    if certificate <= tol:
        return f"Converged; orthonormal components, gradient {certificate:.1e} of the total."
    return f"The gradient was still {beside(certificate, tol, 1, 'e')} of the total, above tol={tol:g}{way_out}"


def stiefel_tangent(A: Array, G: Array) -> Array:
    """Return the part of ``G`` along which orthonormal columns A stay orthonormal."""
    # A sym(A^T G) is normal to the manifold of orthonormal columns (differentiate A^T A = I).
    cross = A.T @ G
    return np.asarray(G - A @ (cross + cross.T) / 2)


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
    ones go on from the better. (In everything we tried, maxima differed by at most 1e-3 of the sum, and only in noise.)

    Converged means that the Riemannian gradient is below ``tol`` times ``sum_i ||T_i||^2``. Cost O(k q^3) a sweep and
    O(k q^2 r) a Newton step; memory O(k q^2 + min(r, 4 k) q^2).
    """
    q = T.shape[1]
    size = float(np.abs(T).max(initial=0))
    if size == 0:
        return SolverResult(np.eye(q)[:, :r], 0, True, "All slices are zero: any axes will do.")
    # Squares of variances along axes are fourth powers of the data: without a scale they may overflow or vanish.
    T = np.ascontiguousarray(T, dtype=np.float64) / size
    total = float((T**2).sum())
    starts = _starts(T, r)
    ends: list[FrameMaximum] = []
    for start in starts:
        report("starts", len(ends), len(starts))
        ends.append(maximise_over_frames(T, start, r, squared_variances, max_iter=max_iter, tol=tol))
    report("starts", len(starts), len(starts))
    # The first of those that only rounding tells apart, so that rounding does not decide which.
    best = max(end.value for end in ends)
    end = next(end for end in ends if end.value >= best * (1 - _SAME_VALUE))
    # Equal loadings of two components leave their axes undetermined (Proposition SI-4.2), but the gradient is zero all
    # the same. It is quadratic in T, as the total is, so that the ratio does not depend on units.
    certificate = end.gradient / total
    A = nearest_orthonormal(end.frame[:, :r])
    message = _message(certificate, tol, f", after max_iter={max_iter} steps; raise either.")
    n_iter = sum(end.n_iter for end in ends)
    return SolverResult(A, n_iter, certificate <= tol, message, gradient=certificate)


def squared_variances(h: Array) -> Landscape:
    """``f = sum_ij h_ij^2``, the criterion of least squares."""
    return Landscape(float((h**2).sum()), 2 * h, np.full_like(h, 2), None)


def variances_by_axis(T: Array, A: Array) -> Array:
    """Return ``h_ij = a_j^T T_i a_j`` as (r, k), axes first as landscapes have them."""
    return np.asarray(np.einsum("jiq,qj->ji", images(T, A), A))


def _starts(T: Array, r: int) -> list[Array]:
    """Return frames to start from; one, the best, when the problem is large."""
    k, q, _ = T.shape
    F = T.reshape(k * q, q)
    # The axes with most variance, and those with most squared variance (the singular vectors of the flattening).
    # All q eigenvectors, since the sweeps also turn the first r axes against the others.
    eigenvectors = [np.linalg.eigh(G)[1][:, ::-1] for G in (T.sum(axis=0), F.T @ F)]
    is_small = k * q * q * r <= _ALL_STARTS_UP_TO
    starts = [jacobi_sweeps(T, V, r, squares_angle, _SWEEPS if is_small else 1)[0] for V in eigenvectors]
    if not is_small:
        values = [float((variances_by_axis(T, V[:, :r]) ** 2).sum()) for V in starts]
        return [starts[int(np.argmax(values))]]
    if r < q:
        # Rotating all q axes first lets r axes come together that the top eigenvectors mix with others.
        whole = jacobi_sweeps(T, eigenvectors[1], q, squares_angle, _SWEEPS)[0]
        largest = np.argsort(-(variances_by_axis(T, whole) ** 2).sum(axis=1), kind="stable")
        starts.append(whole[:, largest])
    return starts
