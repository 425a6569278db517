"""The multi-subspace power method, the paper's algorithm: solver "mspm".

This is the step ``(A, .) <- MSPM(T)`` of Algorithm 1 (supplement, section "MCPCA"); the loadings, its next step, follow
from A by non-negative least squares (``loadings``). Why it works is the proof of Proposition SI-2.2, on
identifiability. The flattening of the covariance tensor is ``M = [S_1 ... S_k] = A (A o B)^T``, where column j of
``A o B`` is ``a_j b_j^T`` as a vector. So in the model the top r right singular vectors of M span a space of matrices
whose only members of rank one are, generically, the ``a_j b_j^T``.

In compressed coordinates: let ``T_i`` (q, q), i = 1..e, be the core and ``V_1 .. V_r`` (q, e) an orthonormal basis of
the matrices ``[T_1 w ... T_e w]`` with w in the top r left singular vectors of the flattening. The method climbs

    F(a, b) = sum_l (a^T V_l b)^2,   the squared cosine between a b^T and the space

(the paper's F of section "Error analysis"), to a local maximum, where F near 1 means that a is close to a component
(Lemma SI-5.8); takes the component out of the space, which is deflation; and repeats. Four things differ from doing
this one start and one component at a time, as ``plain`` does:

* all components are first sought at once (``joint``). Where each of them comes out as a maximum of F in its own right,
  they are what the steps below would end with, and those are not taken;
* starts advance together, as matrix products, the first of them informed (``_pencil_starts``); those that the power
  method has not settled after a while take Newton steps, which still converge fast where F is nearly flat, as it is
  when contexts are few;
* a round accepts every maximum that deflating the others leaves intact (``_independent_block``): with many contexts
  nearly all at once, with three contexts one or two at a time;
* at the end each component is taken once more with all the others deflated (``_refined``). That removes the dependence
  on the order in which they came, and so on the seed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from .._covariances.interface import Covariances
from .._covariances.stack import congruence
from .._covariances.subspace import Core
from .._utils.progress import within
from .._utils.stages import uneven
from .._utils.types import Array, Report
from .climbing import Peaks, climb_to_peaks, unit
from .interface import Settings, SolverResult
from .joint import SAME_BASIN, Joint, at_maxima, pencil, refine

# A round starts from as many points as components are missing, and some spare ones since several starts may end at
# one maximum; no more than the first number, which bounds the memory of a round.
_STAGE = uneven("components")  # one round may find several
_MOST_STARTS = 64
_SPARE_STARTS = 12
_RANDOM_STARTS = 4  # of the first round, besides the informed ones
# A maximum joins a block while it loses at most the square of this, as a share of F, to deflating the block. Larger
# blocks need fewer rounds, but accepting maxima that compete costs accuracy, most of all with few contexts: on the
# paper's digits (k = 3, r = 17) whole rounds gave reconstruction errors of 0.05 to 0.07, the authors' one at a time
# 0.011.
_APART = 0.02
# And while its F is within this of the best of the round: a lower maximum may rise, or vanish, once others are
# deflated.
_F_WINDOW = 0.05
# Maxima are first found to this tolerance; the joint refinement, if it succeeds, brings all digits.
_COARSE_TOL = 1e-4
# Ratio of the r-th singular value to the first from which float32 resolves all directions well enough for that.
_FLOAT32_SPREAD = 1e-2
_AT_ONCE = "Converged; components do not depend on an order of deflation."


class _Space(NamedTuple):
    """The space of the flattening: slices ``T`` (e, q, q), U (q, r) and D (r,) with ``V_l = [T_1 u_l ...] / D_l``.

    ``inner`` (e, r, r) are the slices in the basis U, or None if they are not made; ``rounded`` is T in the precision
    of power steps.
    """

    T: Array
    U: Array
    D: Array
    inner: Array | None
    rounded: Array


def solve(S: Covariances, core: Core, r: int, settings: Settings) -> SolverResult:
    """Find r components of the covariances behind ``core``.

    The core decides which they are. One product with the covariances themselves then adds what each of them has
    outside the core, after which the answer is that of the same method in all features. It is left out where contexts
    are so many that the core holds combinations of them: on planted problems the errors without that product were 0.9
    to 1.07 times those with it, so it is not worth a pass.
    """
    part = core.leading(r)
    settings.report(_STAGE, 0, r)
    if part.whole is not None:
        # The covariances are in memory and a core would be hardly smaller: make it only if deflation needs it.
        may_copy = part.whole.size <= settings.spare_numbers
        space = _space(part.whole, part.directions[:, :r], part.singular_values[:r], may_copy)
        joint = _at_once(space, np.ones(part.n_contexts))
        if joint is not None:
            settings.report(_STAGE, r, r)
            return SolverResult(joint.components, joint.n_iter, True, _AT_ONCE, turned=space.inner)
    result, joint = _solve_core(part, r, settings)
    # Without a basis the core has all features already; without ``joint`` there are no weights to remake components
    # from.
    if joint is None or part.basis is None or part.mixture is not None:
        coordinates = result.components if part is core and part.basis is not None else None
        return replace(result, components=part.lift(result.components), coordinates=coordinates)
    # a_j is sum_i d_ij T_i v_j in the core; with S_i in place of T_i it is seen in all features.
    A = part.combine(S, joint.directions, joint.weights)
    return replace(result, components=A / np.linalg.norm(A, axis=0))


def _solve_core(core: Core, r: int, settings: Settings) -> tuple[SolverResult, Joint | None]:
    """Find r components (q, r) in the coordinates of a core, and how they are made from its slices.

    The second is None if components depend on the order of deflation.

    Cost about ten times O(e q^2 r) if all are found at once; else about ``60 r`` contractions of O(q^2 e) when
    contexts are many, up to ``60 r^2`` when they are few. Memory O(q^2 (e + 64)).
    """
    T = core.tensor
    tol, max_iter, report = settings.tol, settings.max_iter, settings.report
    space = _space(T, *row_space(T, r, leading=core.basis is not None), may_copy=True)
    # Slices that are combinations of contexts add up to the sum of all contexts with these weights.
    total = np.ones(len(T)) if core.mixture is None else core.mixture.sum(axis=0)
    joint = _at_once(space, total)
    if joint is not None:
        report(_STAGE, r, r)
        return SolverResult(joint.components, joint.n_iter, True, _AT_ONCE), joint
    # Coarsely first, and in float32: the refinement, if it succeeds, brings all digits.
    C, n_iter, settled = _deflate(space, settings.rng, max(tol, _COARSE_TOL), max_iter, report)
    joint = _refined(space, C)
    if joint is None and tol < _COARSE_TOL:
        # It did not, so the maxima themselves are the answer, and have to be found to all digits.
        exact = space._replace(rounded=T)
        C, more, settled = _deflate(exact, settings.rng, tol, max_iter, within(report, "to all digits"))
        n_iter += more
        joint = _refined(exact, C)
    if joint is not None:
        return SolverResult(joint.components, n_iter, True, "Converged; the order of deflation was removed."), joint
    if settled:
        # Proportional loadings leave the axes undetermined within their span (Proposition SI-2.3); close to that the
        # maxima of F compete, and deflating one moves the others.
        message = (
            "Converged, but components depend on the order of deflation: loadings are close to proportional or the "
            "model is far from exact at this rank, so the axes are less certain than what they span."
        )
    else:
        message = f"A component had not settled to tol={tol:.1e} after max_iter={max_iter} steps; raise either."
    return SolverResult(C, n_iter, settled, message), None


def _space(T: Array, U: Array, D: Array, may_copy: bool) -> _Space:
    """Return the space of slices T, with copies of these in the basis U and in the precision of power steps, or not."""
    if not may_copy:
        return _Space(T, U, D, None, T)
    inner = np.ascontiguousarray(congruence(T, U).transpose(1, 0, 2))
    # float32 takes half the time and has digits enough for _COARSE_TOL, unless some directions are too weak for it.
    return _Space(T, U, D, inner, T.astype(_coarse_dtype(D), copy=False))


def _coarse_dtype(D: Array) -> Any:
    """Return the precision in which maxima are found first, for singular values D (r,)."""
    return np.float32 if D[-1] > _FLOAT32_SPREAD * D[0] else np.float64


def row_space(T: Array, r: int, *, leading: bool = False) -> tuple[Array, Array]:
    """Return U (q, r) and D (r,): ``V_l = [T_1 u_l ... T_e u_l] / D_l`` are orthonormal.

    U spans the top left singular vectors of the flattening: of T or, if T is in coordinates of the singular vectors
    of larger covariances, the first r coordinates.
    """
    # F^T F = sum_i T_i^2, since slices are symmetric: its eigenvectors are the left singular vectors of [T_1 ... T_e],
    # and ||F u_l|| is the singular value, the norm of [T_1 u_l ... T_e u_l].
    e, q, _ = T.shape
    F = T.reshape(e * q, q)
    if leading:
        # Those coordinates were chosen for all features. Within their span U still has to diagonalise F^T F, which
        # the part of the covariances outside the core has not taken part in.
        U = np.zeros((q, r))
        U[:r] = np.linalg.eigh(F[:, :r].T @ F[:, :r])[1][:, ::-1]
    else:
        U = np.linalg.eigh(F.T @ F)[1]
        # The last r columns, largest first. With r = q the slice would end at -1, which Python takes for the last
        # column.
        U = U[:, : q - r - 1 : -1] if r < q else U[:, ::-1]
    # From the images and not from the eigenvalues: squaring has rounded away all below 1e-8 of the largest.
    return U, np.linalg.norm(F @ U, axis=0)


def _at_once(space: _Space, total: Array) -> Joint | None:
    """Return all components if they can be had without deflation, else None.

    ``total`` (e,) are weights that add the slices up to a covariance. The generator is one of its own: no random number
    of the caller is used, and the answer does not depend on the seed.
    """
    rng = np.random.default_rng(0)
    if space.inner is None:
        W = pencil(space.T, space.U, total, rng, refined=True)
    else:
        W = pencil(space.inner, np.eye(space.U.shape[1]), total, rng)
    if W is None:
        return None
    joint = refine(space.T, space.U, W, space.inner)
    if joint is None:
        return None
    dtype = _coarse_dtype(space.D)
    are_maxima = at_maxima(space.rounded, space.U / space.D, joint, dtype)
    # Where F is nearly flat, steps in single precision may not settle although others would.
    if not are_maxima and space.rounded.dtype != dtype:
        are_maxima = at_maxima(space.rounded, space.U / space.D, joint, space.rounded.dtype)
    return joint if are_maxima else None


def _refined(space: _Space, C: Array) -> Joint | None:
    """Take each of the components ``C`` with all the others deflated; None if that leads elsewhere."""
    try:
        # In the basis U the directions orthogonal to all other components are the rows of the inverse.
        joint = refine(space.T, space.U, np.linalg.inv(space.U.T @ C), space.inner)
    except np.linalg.LinAlgError:
        return None
    if joint is None:
        return None
    # Gauss-Newton steps may end at another solution of the equations, which says nothing about the maxima in C.
    cosines = np.abs((joint.components * C).sum(axis=0))
    return joint if bool((cosines > SAME_BASIN).all()) else None


# Deflation ----------------------------------------------------------------------------------------------------------


def _deflate(
    space: _Space, rng: np.random.Generator, tol: float, max_iter: int, report: Report
) -> tuple[Array, int, bool]:
    """Find maxima and take them out until there are r; return them (q, r), the iterations, and whether all settled.

    A member of the space is ``sum_l c_l V_l = [T_1 w ... T_e w]`` with ``w = U D^-1 c``. In the model that is
    ``sum_j (a_j . w) a_j b_j^T``, so it has no part in component j exactly when c is orthogonal to
    ``n_j = D^-1 U^T a_j``. Deflation restricts c to the complement Q of the normals found so far, and ``V Q`` is an
    orthonormal basis of what remains.
    """
    T, U, D, _, rounded = space
    e = len(T)
    q, r = U.shape
    normals = np.zeros((0, r))  # of the components found, in V's coordinates
    Q = np.eye(r)
    components = np.zeros((0, q))
    n_iter = 0
    settled = True
    while len(components) < r:
        report(_STAGE, len(components), r)
        left = r - len(components)
        m = min(left + _SPARE_STARTS, _MOST_STARTS)
        a = unit(rng.standard_normal((m, q)))
        b = unit(rng.standard_normal((m, e)))
        # In the first round only: the pencil knows nothing of deflation and would lead to the same components again.
        if left == r:
            a, b = _pencil_starts(space, rng, a, b)
        # V Q is again orthonormal, and V_l is the image of u_l / D_l, so the coefficients of its members are U D^-1 Q.
        peaks = climb_to_peaks(T, (U / D) @ Q, a, b, tol, max_iter, rounded)
        n_iter += peaks.n_iter
        normal = unit(peaks.a @ U / D)
        # Coordinates in V Q go back to coordinates in V, in which maxima of all rounds can be compared.
        block = _independent_block(peaks, peaks.c @ Q.T, normal, normals, tol)
        settled &= bool((peaks.step[block] <= tol).all())
        components = np.vstack([components, peaks.a[block]])
        normals = np.vstack([normals, normal[block]])
        if len(components) < r:
            # From all normals anew, so that rounding does not build up from round to round.
            Q = np.linalg.qr(normals.T, mode="complete")[0][:, len(components) :]
    report(_STAGE, r, r)
    return components.T, n_iter, settled


def _pencil_starts(space: _Space, rng: np.random.Generator, a: Array, b: Array) -> tuple[Array, Array]:
    """Replace all but a few random starts by the axes that two combinations of contexts share.

    They give each component a start of its own, where random starts would find some components twice.
    """
    U, M = space.U, space.inner
    assert M is not None  # only ``_at_once`` does without
    r = U.shape[1]
    W = pencil(M, np.eye(r), np.ones(len(M)), rng)
    if W is None:  # slices that are combinations of covariances need not add up to one
        return a, b
    n = min(r, len(a) - _RANDOM_STARTS)
    # A random choice if there are more components than starts.
    chosen = rng.permutation(r)[:n]
    # Row j of W is orthogonal to all components but a_j, so columns of the inverse are the components in U; and in the
    # model v_j^T M_i v_j is b_ij times a factor that is the same for all contexts.
    a[:n] = unit((U @ np.linalg.inv(W)[:, chosen]).T)
    b[:n] = unit(np.einsum("jej->je", congruence(M, W[chosen].T)))
    return a, b


def _independent_block(peaks: Peaks, c: Array, normal: Array, normals: Array, tol: float) -> list[int]:
    """Choose the maxima that can be deflated together.

    Deflating component j leaves the coefficient vectors orthogonal to ``n_j = D^-1 U^T a_j`` (in V's coordinates).
    In the exact model ``c_l . n_j = 0`` for l != j: each survives the other. So the best maximum is taken, and after
    it, in order of F, each converged one that keeps all but ``_APART**2`` of itself when those before it go, and
    leaves them as whole. Near-duplicates and maxima that compete for the same component fail this.
    """
    # The best is taken even if it has not settled, so that every round finds a component and deflation ends.
    order = np.argsort(-peaks.F, kind="stable")
    block = [int(order[0])]
    taken = _orthonormal_rows(normals)
    # c is orthogonal to the normals of earlier rounds already, so a new normal only costs it what it has outside them.
    basis = _append_direction(np.zeros((0, c.shape[1])), taken, normal[block[0]])
    limit = _APART**2
    for j in map(int, order[1:]):
        if peaks.step[j] > tol or peaks.F[j] < peaks.F[block[0]] - _F_WINDOW:
            continue
        # c is a unit vector and the basis orthonormal: this is the share of F that deflating the block would take.
        lost = ((basis @ c[j]) ** 2).sum()
        costs_the_others = ((c[block] @ normal[j]) ** 2).sum()
        if lost <= limit and costs_the_others <= limit:
            block.append(j)
            basis = _append_direction(basis, taken, normal[j])
    # Spare starts may bring more maxima than components are missing.
    return block[: c.shape[1] - len(normals)]


def _orthonormal_rows(rows: Array) -> Array:
    basis: Array = np.linalg.qr(rows.T)[0].T
    return basis


def _append_direction(basis: Array, taken: Array, row: Array) -> Array:
    """Add to ``basis`` what ``row`` has outside it and outside ``taken``."""
    row = row - taken.T @ (taken @ row)
    row = row - basis.T @ (basis @ row)
    return np.vstack([basis, unit(row)])
