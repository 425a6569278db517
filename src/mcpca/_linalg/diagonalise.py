"""Approximate joint diagonalisation, all pairs of axes at once: the step that several methods share.

``_solvers.joint`` (the power method's components at once), ``_solvers.weighted`` (stage 1 of maximum likelihood), the
preconditioner of ``_solvers.scoring``, and the baselines FFDIAG and UWEDGE all end in 2 x 2 systems, one for each pair.
"""

from __future__ import annotations

import numpy as np

from .._utils.types import Array

# The determinant vanishes where the loadings of two components are proportional over contexts, exactly the case in
# which the paper shows the model not to be identifiable.
_SINGULAR_PAIR = 1e-13  # determinant over the product of the diagonal: two components that cannot be told apart


def pair_step(
    R: Array,
    d: Array,
    root: Array | None = None,
    weights: Array | None = None,
    noise: Array | None = None,
    gram: Array | None = None,
) -> Array:
    """Return E such that ``(I + E)^-1 R_i (I + E)^-T`` is closer to diagonal for all i.

    To first order ``R_i[l, j] = E_lj d_ij + E_jl d_il`` with d the diagonals: for each pair a least-squares problem in
    two unknowns. ``R`` is (r, k, r) with contexts in the middle and ``d`` (k, r). ``weights`` (k, r) gives entry (l, j)
    of context i the weight ``weights_il weights_ij``; without it this is the step of UWEDGE (Tichavsky and Yeredor,
    IEEE Trans. Signal Process. 57, 2009). With ``root`` (r,) rows and columns of R, and d, are divided by it first, and
    with ``noise`` (k,) and ``gram`` (r, r) ``noise_i gram`` is taken off ``R_i`` (d is without it already). R is not
    changed; with ``weights`` there is a temporary of its size. Cost O(k r^2).
    """
    # Only d is scaled here: scaling R would be a copy of it, and pull, which is linear in R, can be scaled at the end.
    d = d if root is None else d / root**2
    # The normal equations of pair (l, j): H_lj = sum_i d_ij^2, K_lj = sum_i d_ij d_il, pull_lj = sum_i d_ij R_i[l, j],
    # every term times its weight. ``drift`` is what sum_i d_ij noise_i has in pull, before it meets gram.
    if weights is None:
        # With all weights 1, H_lj does not depend on l: it is K_jj, and a broadcast view is enough.
        K = d.T @ d
        H = np.broadcast_to(np.diag(K), K.shape)
        pull = np.einsum("lej,ej->lj", R, d)
        drift = None if noise is None else np.broadcast_to(noise @ d, K.shape)
    else:
        wd = weights * d
        K = wd.T @ wd
        H = weights.T @ (wd * d)
        # For each j the (r, k) matrix w_il R_i[l, j] times the vector w_ij d_ij: a batch of products, by BLAS.
        pull = np.matmul((weights.T[:, :, None] * R).transpose(2, 0, 1), wd.T[:, :, None])[:, :, 0].T
        drift = None if noise is None else weights.T @ (noise[:, None] * wd)
    if gram is not None and drift is not None:
        # sum_i d_ij (R_i - noise_i gram)[l, j]: gram is the same for all contexts, so r x r numbers are enough.
        pull = pull - gram * drift
    if root is not None:
        pull = pull / root / root[:, None]
    return solve_pairs(H, K, pull)


def solve_pairs(H: Array, K: Array, pull: Array) -> Array:
    """Solve ``H_lj E_lj + K_lj E_jl = pull_lj`` for all pairs; 0 on the diagonal and where a pair is singular.

    K is symmetric, so each pair (l, j) is the system ``[[H_lj, K_lj], [K_lj, H_jl]]``, solved by Cramer's rule.
    """
    # By Cauchy and Schwarz K_lj^2 <= H_lj H_jl, so the determinant is not negative but for rounding, and ``size`` is
    # what it is compared with.
    size = H * H.T
    det = size - K**2
    # On the diagonal E_jj only rescales axis j, which is no part of the step.
    np.fill_diagonal(det, 0)
    regular = det > _SINGULAR_PAIR * size
    # Pairs that are not regular stay where they are: dividing would turn the axes by noise.
    return np.asarray(np.divide(pull * H.T - K * pull.T, det, out=np.zeros_like(K), where=regular))
