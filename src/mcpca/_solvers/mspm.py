"""The multi-subspace power method, in compressed coordinates, many starts at once, deflating in blocks.

Let ``T_i`` (q, q), i = 1..e, be the core and ``V_1 .. V_r`` (q, e) an orthonormal basis of the matrices
``[T_1 w ... T_e w]`` with w in the top r left singular vectors of the flattening. In the model the rank-one
matrices of that space are exactly ``a_j b_j^T``. The method climbs

    F(a, b) = sum_l (a^T V_l b)^2,   the squared cosine between a b^T and the space,

to a local maximum, where F near 1 means that a is a component; takes the component out of the space; repeats.
Four things differ from doing this one start and one component at a time:

* all components are first sought at once (``_joint``). Where they come out as maxima of F, each in its own right, they
  are what the steps below would end with, and those are not taken;
* starts advance together, as matrix products, the first of them informed (``_pencil_starts``); those that the power
  method has not settled after a while take Newton steps, which do not mind that F is flat when contexts are few;
* every maximum of a round is accepted that taking out the others would not touch (below); with many contexts
  that is all of them, with few contexts it is one at a time;
* at the end each component is taken once more with all the others out of the space, which removes the dependence
  on the order in which they came, and so on the seed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .._covariances.interface import Covariances
from .._covariances.stack import congruence
from .._covariances.subspace import Core
from .._utils.progress import within
from .._utils.types import Array, Report
from .climbing import Peaks, climb, unit
from .interface import Settings, SolverResult
from .joint import SAME_BASIN, Joint, at_maxima, pencil, refine

_MAX_STARTS = 64
_SPARE_STARTS = 12
_RANDOM_STARTS = 4
# A maximum joins a block while it loses at most the square of this, as a share of F, to deflating the block.
_APART = 0.02
_F_WINDOW = 0.05
_COARSE, _SINGLE = 1e-4, 1e-2
_AT_ONCE = "Converged; components do not depend on an order of deflation."


def solve(S: Covariances, core: Core, r: int, settings: Settings) -> SolverResult:
    """Find r components of the covariances behind ``core``.

    The core decides which they are. What each leans out of it is then seen in one product with the covariances
    themselves, after which the answer is that of the same method in all features. (Not where contexts are so many that
    the core holds combinations of them: planted problems gave errors of 0.9 to 1.07 times those with it.)
    """
    part = core.leading(r)
    settings.report("components", 0, r)
    if part.whole is not None:
        # A core would be no smaller than what is in memory already, and is made only where it must be.
        U = part.directions[:, :r]
        found = _at_once(part.whole, U, part.singular_values[:r], np.ones(part.n_contexts))
        if found is not None:
            settings.report("components", r, r)
            return SolverResult(found.components, found.n_iter, True, _AT_ONCE)
    result, joint = solve_core(
        part.tensor,
        r,
        leading=part.basis is not None,
        mixture=part.mixture,
        rng=settings.rng,
        tol=settings.tol,
        max_iter=settings.max_iter,
        report=settings.report,
    )
    if joint is None or part.basis is None or part.mixture is not None:
        return replace(result, components=part.lift(result.components))
    A = S.combine(part.lift(joint.directions), joint.weights)
    return replace(result, components=A / np.linalg.norm(A, axis=0))


def solve_core(
    T: Array,
    r: int,
    *,
    leading: bool = False,
    mixture: Array | None = None,
    rng: np.random.Generator,
    tol: float,
    max_iter: int,
    report: Report,
) -> tuple[SolverResult, Joint | None]:
    """Find r components (q, r) of the symmetric slices ``T`` (e, q, q), and how they are drawn from them.

    The second is None where components depend on the order of deflation. ``leading`` says that coordinates are those of
    singular vectors, in order; ``mixture`` (k, e) that slices are combinations of contexts.

    Cost about ten times O(e q^2 r) where all are found at once; else about ``60 r`` contractions of O(q^2 e) when
    contexts are many, up to ``60 r^2`` when they are few. Memory O(q^2 (e + 64)).
    """
    U, D = row_space(T, r, leading=leading)
    M = np.ascontiguousarray(congruence(T, U).transpose(1, 0, 2))
    # Half the time, for four digits, where the directions of the space are not too unequal for it.
    rounded = T.astype(np.float32) if D[-1] > _SINGLE * D[0] else T
    total = np.ones(len(T)) if mixture is None else mixture.sum(axis=0)
    joint = _at_once(T, U, D, total, M, rounded)
    if joint is not None:
        report("components", r, r)
        return SolverResult(joint.components, joint.n_iter, True, _AT_ONCE), joint
    # Where the refinement succeeds it brings all digits, so the maxima are first found to a few.
    C, n_iter, settled = _deflate(T, U, D, M, rng, max(tol, _COARSE), max_iter, report, rounded)
    joint = _refined(T, U, M, C)
    if joint is None and tol < _COARSE:
        C, more, settled = _deflate(T, U, D, M, rng, tol, max_iter, within(report, "to all digits"), T)
        n_iter += more
        joint = _refined(T, U, M, C)
    if joint is not None:
        return SolverResult(joint.components, n_iter, True, "Converged; the order of deflation was removed."), joint
    if settled:
        message = (
            "Converged, but components depend on the order of deflation: loadings are close to proportional or the "
            "model is far from exact at this rank, so the axes are less certain than what they span."
        )
    else:
        message = f"A component had not settled to tol={tol:.1e} after max_iter={max_iter} steps; raise either."
    return SolverResult(C, n_iter, settled, message), None


def _at_once(
    T: Array, U: Array, D: Array, total: Array, M: Array | None = None, rounded: Array | None = None
) -> Joint | None:
    """Return all components where they can be had without deflation; no random number of the caller's is used."""
    rng = np.random.default_rng(0)
    W = pencil(T, U, total, rng) if M is None else pencil(M, np.eye(U.shape[1]), total, rng)
    joint = None if W is None else refine(T, U, W, M)
    return joint if joint is not None and at_maxima(T if rounded is None else rounded, U / D, joint) else None


def _refined(T: Array, U: Array, M: Array, C: Array) -> Joint | None:
    """Take each of the components ``C`` with all the others deflated; None where that leads elsewhere."""
    try:
        joint = refine(T, U, np.linalg.inv(U.T @ C), M)
    except np.linalg.LinAlgError:
        return None
    stays = joint is not None and bool((np.abs((joint.components * C).sum(axis=0)) > SAME_BASIN).all())
    return joint if stays else None


def _deflate(
    T: Array,
    U: Array,
    D: Array,
    M: Array,
    rng: np.random.Generator,
    tol: float,
    max_iter: int,
    report: Report,
    rounded: Array,
) -> tuple[Array, int, bool]:
    """Find maxima and take them out until there are r; return them (q, r), the iterations, and whether all settled.

    ``M`` (e, r, r), the slices in the basis U, gives informed starts; ``rounded`` is T in the precision of power steps.
    """
    e, (q, r) = len(T), U.shape
    normals = np.zeros((0, r))  # deflated directions, in V's coordinates
    Q = np.eye(r)
    found = np.zeros((0, q))
    n_iter, settled = 0, True
    while len(found) < r:
        report("components", len(found), r)
        left = r - len(found)
        m = min(left + _SPARE_STARTS, _MAX_STARTS)
        a, b = unit(rng.standard_normal((m, q))), unit(rng.standard_normal((m, e)))
        if left == r:
            a, b = _pencil_starts(U, M, rng, a, b)
        peaks = climb(T, (U / D) @ Q, a, b, tol, max_iter, rounded)
        n_iter += peaks.n_iter
        normal = unit(peaks.a @ U / D)
        block = _independent_block(peaks, peaks.c @ Q.T, normal, normals, tol)
        settled &= bool((peaks.step[block] <= tol).all())
        found = np.vstack([found, peaks.a[block]])
        normals = np.vstack([normals, normal[block]])
        if len(found) < r:
            Q = np.linalg.qr(normals.T, mode="complete")[0][:, len(found) :]
    report("components", r, r)
    return found.T, n_iter, settled


def _pencil_starts(U: Array, M: Array, rng: np.random.Generator, a: Array, b: Array) -> tuple[Array, Array]:
    """Replace all but a few random starts by the axes that two combinations of contexts share.

    They are a start for each component where random ones would find some twice.
    """
    r = U.shape[1]
    W = pencil(M, np.eye(r), np.ones(len(M)), rng)
    if W is None:  # not covariances but combinations of them
        return a, b
    n = min(r, len(a) - _RANDOM_STARTS)
    chosen = rng.permutation(r)[:n]
    a[:n] = unit((U @ np.linalg.inv(W)[:, chosen]).T)
    b[:n] = unit(np.einsum("jej->je", congruence(M, W[chosen].T)))
    return a, b


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


def _independent_block(peaks: Peaks, c: Array, normal: Array, normals: Array, tol: float) -> list[int]:
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
    return np.vstack([basis, unit(row)])
