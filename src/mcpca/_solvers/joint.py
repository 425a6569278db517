"""All components at once: axes that two combinations of contexts share, moved to those that all contexts share best.

This is what ``mspm`` tries before it deflates, and what it ends with. Take all components but the j-th out of the space
of the flattening (see ``mspm``). One matrix is left, ``[T_1 v_j ... T_e v_j]``, where v_j, in the top r singular
vectors, is orthogonal to all the other components. Its rank-one direction is component j exactly when

    v_l^T sum_i d_ij T_i v_j = 0   for all l != j,   with d_ij = v_j^T T_i v_j.

These are the equations of unweighted joint diagonalisation (UWEDGE), in which components have no order: a solution
depends neither on the order of deflation nor on the seed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._linalg.diagonalise import solve_pairs
from .._utils.types import Array
from .climbing import combine_images, pull_images, unit, weigh_images

# About ten Gauss-Newton steps are the rule. Many more mean that the equations have no solution near the start.
_MOST_STEPS = 100
_STEP_TOL = 1e-9
# Combinations of slices on which steps are taken first where a step with all slices is dear, and how far: two give the
# pencil, and more make its answer less of an accident. What is then left takes a few steps with all slices.
_FEW_COMBINATIONS = 8
_FIRST_TOL = 1e-2
# Power steps have settled when they are shorter than the first of these, or than the second and still shrinking by at
# least the factor of the third: waiting for the first would then only repeat what is known.
_SETTLED = 1e-4
_NEARLY_SETTLED = 1e-3
_FAST_PACE = 0.5
_MOST_POWER_STEPS = 40
_STEPS_BEFORE_GIVING_UP = 4  # after which the pace of the steps is taken to last
# |cos| between a component and where it came from, or where climbing takes it: less is another component.
SAME_BASIN = 0.9


class Joint(NamedTuple):
    """Components (q, r) with unit columns, each ``sum_i weights_ij T_i directions_j`` normalised.

    ``directions`` (q, r) are the v_j, ``weights`` (e, r) the d_ij; ``n_iter`` steps were taken.
    """

    components: Array
    directions: Array
    weights: Array
    n_iter: int


def pencil(T: Array, U: Array, total: Array, rng: np.random.Generator, *, refined: bool = False) -> Array | None:
    """Return W (r, r), whose rows in the basis U are the directions that two combinations of slices share.

    One is ``sum_i total_i T_i``, the other is drawn at random (Jennrich's algorithm). In the model the shared
    directions are all of the v_j; with two contexts at full rank they always are (the generalised eigenproblem). None
    if the first combination is not positive definite in U.

    With ``refined`` a few combinations share them as well as they can: steps of ``refine`` at a fraction of its cost
    and memory.
    """
    n_combinations = max(2, min(_FEW_COMBINATIONS, len(T))) if refined else 2
    weights = np.stack([total, *rng.standard_normal((n_combinations - 1, len(T)))]).astype(T.dtype)
    # Two from each pass over T: all of them at once would be as many slices of q x q.
    pairs = [U.T @ np.tensordot(weights[j : j + 2], T, axes=1) @ U for j in range(0, n_combinations, 2)]
    combined = np.concatenate(pairs)
    try:
        whitener = np.linalg.inv(np.linalg.cholesky(combined[0]))
    except np.linalg.LinAlgError:
        return None
    # After whitening by the first matrix the second is symmetric with orthonormal eigenvectors: W pooled W^T = I and W
    # mixed W^T is diagonal.
    mixed = whitener @ combined[1] @ whitener.T
    W = np.asarray(np.linalg.eigh((mixed + mixed.T) / 2)[1].T @ whitener)
    steps = _solved(combined, np.eye(len(W)), W, _FIRST_TOL) if refined else None
    return W if steps is None else steps.W


def refine(T: Array, U: Array, W: Array, inner: Array | None = None) -> Joint | None:
    """Solve the equations of all pairs by Gauss-Newton steps from the directions ``U W^T``; None if that fails.

    ``inner`` (e, r, r) are the slices in the basis U, if they exist already. A step costs O(e r^3) with them and
    O(e q^2 r) without; memory besides the input O(q r) and a chunk of slices.
    """
    steps = _solved(T, U, W, _STEP_TOL) if inner is None else _solved(inner, np.eye(len(W)), W, _STEP_TOL)
    if steps is None:
        return None
    # At the final W, and in all q coordinates: v_j is in the span of U, but a_j = sum_i d_ij T_i v_j may lean out.
    directions = U @ steps.W.T
    weights, Y = _pulls(T, directions)
    return Joint(Y / np.linalg.norm(Y, axis=0), directions, weights, steps.n_iter)


class _Steps(NamedTuple):
    W: Array
    n_iter: int


def _solved(T: Array, U: Array, W: Array, tol: float) -> _Steps | None:
    """Return the W (r, r) that solves the equations of slices T (e, q, q) in the basis U (q, r) to ``tol``, or None."""
    r = len(W)
    previous_length = 0.0
    for n_iter in range(1, _MOST_STEPS + 1):
        # The v_j are the columns of V (q, r). d is (e, r), and column j of Y is sum_i d_ij T_i v_j: entries off the
        # diagonal of V^T Y are what has to vanish.
        V = U @ W.T
        d, Y = _pulls(T, V)
        K = d.T @ d
        size = np.diag(K).copy()
        # No slice has variance along v_j: there is nothing to scale the row by.
        if not (size > 0).all():
            return None
        # The normal equations of pair (l, j) have H_lj = sum_i d_ij^2, which is the same for all l.
        E = solve_pairs(np.broadcast_to(size, K.shape), K, V.T @ Y)
        length = float(np.abs(E).max())
        if not np.isfinite(length):
            return None
        try:
            # d_j is quadratic in row j of W, so its norm, the root of size_j, is brought to 1 by a fourth root.
            W = np.linalg.solve(np.eye(r) + E, W) / size[:, None] ** 0.25
        except np.linalg.LinAlgError:
            return None
        # Steps end up shrinking by a constant factor, so the length of the next one is known without taking it.
        if length * _pace(length, previous_length) < tol:
            return _Steps(W, n_iter)
        previous_length = length
    return None


def _pulls(T: Array, V: Array) -> tuple[Array, Array]:
    """Return ``d_ij = v_j^T T_i v_j`` (e, m) and ``sum_i d_ij T_i v_j`` (q, m). Cost O(e q^2 m), memory O(q m)."""
    v = np.ascontiguousarray(V.T)
    d, y = pull_images(T, v, v)
    return d.T, y.T


def at_maxima(T: Array, P: Array, joint: Joint, dtype: Any) -> bool:
    """Whether F (of the space with coefficients P, see ``mspm``) has a maximum of its own at every component.

    Steps are taken in the precision ``dtype``.

    If not, the components are the axes that all contexts together share best, but not those that the power method
    would find one after the other. Power steps from all of them decide: they must settle, and near where they began.
    The check gives up as soon as the pace of the steps shows that they will not settle in time.
    """
    # With little noise F has one maximum near each component (Proposition SI-5.7), and the answer is yes. With more, or
    # with loadings that are close to proportional, maxima may merge.
    P = P.astype(dtype, copy=False)
    a = joint.components.T.astype(dtype)
    b = unit(joint.weights.T).astype(dtype)
    # The power steps of ``climbing.power_steps``, from (a_j, d_j) of every component.
    w = combine_images(T, a, b) @ P @ P.T
    previous_step = 0.0
    for left in range(_MOST_POWER_STEPS, 0, -1):
        a = unit(combine_images(T, w, b))
        previous_b = b
        b, y = weigh_images(T, a, w)
        step = float(np.linalg.norm(b - previous_b, axis=1).max())
        pace = _pace(step, previous_step)
        # The pace of the second step is not trusted: a start that is off in all directions loses the steep ones at
        # once, and slows down when only the flat ones are left.
        shrinking = left < _MOST_POWER_STEPS - 1 and step <= _NEARLY_SETTLED and pace <= _FAST_PACE
        if step <= _SETTLED or shrinking:
            cosines = np.abs(np.einsum("jq,qj->j", a, joint.components))
            return bool((cosines > SAME_BASIN).all())
        # step * pace^left is the length of the last step that is allowed, if the pace lasts.
        if left <= _MOST_POWER_STEPS - _STEPS_BEFORE_GIVING_UP and step * pace**left > _SETTLED:
            return False
        w = y @ P @ P.T
        previous_step = step
    return False


def _pace(step: float, previous: float) -> float:
    """Return the factor by which steps shrink: 1 if they do not, or if there was no step before."""
    return min(step / previous, 1.0) if previous else 1.0
