"""All components at once: axes that two combinations of contexts share, moved to those that all contexts share best.

With all components but the j-th out of the space of the flattening (see ``mspm``), one matrix is left,
``[T_1 v_j ... T_e v_j]``, where the ``v_j`` in the top r singular vectors are orthogonal to all other components. Its
rank-one direction is component j exactly when ``v_l^T sum_i d_ij T_i v_j = 0`` for all l != j, with
``d_ij = v_j^T T_i v_j``: the equations of unweighted joint diagonalisation, which know of no order among components.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._check import Array
from ..stack import pulls
from ._climbing import power_steps, unit
from ._diagonalise import solve_pairs

_STEPS, _TOL = 100, 1e-9
_SETTLED = 1e-4
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
    r = len(W)
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
        if length < _TOL:
            directions = U @ W.T
            weights, Y = pulls(T, directions)
            return Joint(Y / np.linalg.norm(Y, axis=0), directions, weights, step)
    return None


def at_maxima(T: Array, P: Array, found: Joint) -> bool:
    """Whether F (of the space with coefficients P, see ``mspm``) has a maximum of its own at every component.

    Otherwise the components together are axes that all contexts share best, but not those that the power method would
    take one after the other.
    """
    peaks = power_steps(T, P.astype(T.dtype, copy=False), found.components.T, unit(found.weights.T), _SETTLED)
    near = np.abs(np.einsum("jq,qj->j", peaks.a, found.components))
    return bool((peaks.step <= _SETTLED).all() and (near > SAME_BASIN).all())
