"""Approximate joint diagonalisation, all pairs at once: the step that the power method and the likelihood share."""

from __future__ import annotations

import numpy as np

from .._check import Array


def pair_step(R: Array, d: Array, weights: Array | None = None) -> Array:
    """Return E such that ``(I + E)^-1 R_i (I + E)^-T`` is closer to diagonal for all i.

    To first order ``R_i[l, j] = E_lj d_ij + E_jl d_il`` with d the diagonals: for each pair a least-squares problem in
    two unknowns. ``R`` is (r, k, r) with contexts in the middle and ``d`` (k, r). ``weights`` (k, r) gives entry (l, j)
    of context i the weight ``weights_il weights_ij``; without it this is the step of UWEDGE (Tichavsky and Yeredor,
    IEEE Trans. Signal Process. 57, 2009). Cost O(k r^2).
    """
    if weights is None:
        K = d.T @ d
        H = np.broadcast_to(np.diag(K), K.shape)
        pull = np.einsum("lej,ej->lj", R, d)
    else:
        wd = weights * d
        K = wd.T @ wd
        H = weights.T @ (wd * d)
        pull = np.einsum("lej,el,ej->lj", R, weights, wd, optimize=["einsum_path", (0, 1), (0, 1)])
    return solve_pairs(H, K, pull)


def solve_pairs(H: Array, K: Array, pull: Array) -> Array:
    """Solve ``H_lj E_lj + K_lj E_jl = pull_lj`` for all pairs; 0 on the diagonal and where a pair is singular."""
    size = H * H.T
    det = size - K**2
    np.fill_diagonal(det, 0)
    good = det > 1e-13 * size
    return np.asarray(np.divide(pull * H.T - K * pull.T, det, out=np.zeros_like(K), where=good))
