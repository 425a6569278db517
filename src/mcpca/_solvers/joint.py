"""All components at once: axes that two combinations of contexts share, moved to those that all contexts share best.

With all components but the j-th out of the space of the flattening (see ``mspm``), one matrix is left,
``[T_1 v_j ... T_e v_j]``, where the ``v_j`` in the top r singular vectors are orthogonal to all other components. Its
rank-one direction is component j exactly when ``v_l^T sum_i d_ij T_i v_j = 0`` for all l != j, with
``d_ij = v_j^T T_i v_j``: the equations of unweighted joint diagonalisation, which know of no order among components.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._covariances.stack import pulls
from .._linalg.diagonalise import solve_pairs
from .._utils.types import Array
from .climbing import carried, combined, unit

_STEPS, _TOL = 100, 1e-9
# Power steps are done with when they are shorter than the first, or than the second and still getting shorter fast.
_SETTLED, _NEARLY, _FAST = 1e-4, 1e-3, 0.5
_CLIMB, _FEW = 40, 4
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


def pencil(T: Array, U: Array, total: Array, rng: np.random.Generator) -> Array | None:
    """Return W (r, r), whose rows in the basis U are the directions that two combinations of slices share.

    One is ``sum_i total_i T_i``, the other drawn at random. In the model they are all the v_j; with two contexts at
    full rank they always are (the generalised eigenproblem). None where the first combination is no covariance.
    """
    weights = np.stack([total, rng.standard_normal(len(T))])
    pooled, mixed = (U.T @ M @ U for M in np.tensordot(weights.astype(T.dtype), T, axes=1))
    try:
        whitener = np.linalg.inv(np.linalg.cholesky(pooled))
    except np.linalg.LinAlgError:
        return None
    mixed = whitener @ mixed @ whitener.T
    return np.asarray(np.linalg.eigh((mixed + mixed.T) / 2)[1].T @ whitener)


def refine(T: Array, U: Array, W: Array, inner: Array | None = None) -> Joint | None:
    """Solve the equations of all pairs by Gauss-Newton steps from the directions ``U W^T``; None if that fails.

    ``inner`` (e, r, r) are the slices in the basis U, where they were made. A step costs O(e r^3) with them and
    O(e q^2 r) without; memory beside the input O(q r) and a chunk of slices.
    """
    r, before = len(W), 0.0
    for step in range(1, _STEPS + 1):
        V = U @ W.T if inner is None else W.T
        d, Y = pulls(T if inner is None else inner, V)
        K = d.T @ d
        size = np.diag(K).copy()
        if not (size > 0).all():
            return None
        E = solve_pairs(np.broadcast_to(size, K.shape), K, V.T @ Y)
        length = float(np.abs(E).max())
        if not np.isfinite(length):
            return None
        try:
            W = np.linalg.solve(np.eye(r) + E, W) / size[:, None] ** 0.25  # keeps every d_j near unit length
        except np.linalg.LinAlgError:
            return None
        # Steps shrink by a factor in the end, so that the next one is known.
        if length * _pace(length, before) < _TOL:
            directions = U @ W.T
            weights, Y = pulls(T, directions)
            return Joint(Y / np.linalg.norm(Y, axis=0), directions, weights, step)
        before = length
    return None


def at_maxima(T: Array, P: Array, found: Joint) -> bool:
    """Whether F (of the space with coefficients P, see ``mspm``) has a maximum of its own at every component.

    Otherwise the components together are axes that all contexts share best, but not those that the power method would
    take one after the other. Power steps from all of them tell: they must settle, and near where they began. Given up
    as soon as the pace of the steps says that they will not.
    """
    P = P.astype(T.dtype, copy=False)
    a, b = found.components.T.astype(T.dtype), unit(found.weights.T).astype(T.dtype)
    w, before = combined(T, a, b) @ P @ P.T, 0.0
    for left in range(_CLIMB, 0, -1):
        a = unit(combined(T, w, b))
        previous, (b, y) = b, carried(T, a, w)
        step = float(np.linalg.norm(b - previous, axis=1).max())
        pace = _pace(step, before)
        # (Not by the second step: a start that is off in all directions soon has only the flat ones left.)
        if step <= _SETTLED or (left < _CLIMB - 1 and step <= _NEARLY and pace <= _FAST):
            return bool((np.abs(np.einsum("jq,qj->j", a, found.components)) > SAME_BASIN).all())
        if left <= _CLIMB - _FEW and step * pace**left > _SETTLED:
            return False
        w, before = y @ P @ P.T, step
    return False


def _pace(step: float, before: float) -> float:
    """By what factor steps get shorter, 1 where they do not or the one before is not known."""
    return min(step / before, 1.0) if before else 1.0
