"""Fisher's information of the Gaussian model, and the covariance of the components that follows from it.

The unknowns are X (the change of A within its span, ``dA = A X``, zero on the diagonal), b_i, log s_i, and the change
of A outside its span, which is independent of the others (``_solvers.likelihood`` has the equations). With ``P_i`` the
precision of the noisy scores, the information of X is

    I[lj, l'j'] = sum_i n_i b_ij b_ij' (P_i[l, l'] P_i[j, j'] + P_i[l, j'] P_i[l', j]).

The loadings and the noise of each context are eliminated by a Schur complement, context by context, so that the largest
matrix is that of X, (r^2, r^2). ``precision`` turns the result into standard errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .._model.gaussian import GaussianModel
from .._solvers.likelihood import Likelihood
from .._utils.types import Array

# Numbers in one temporary of cross-information, 16 MB: contexts are taken in chunks that fit.
_CROSS_CHUNK_NUMBERS = 2**21
# Smallest eigenvalue of the information of X, scaled to a unit diagonal, with which a model counts as identifiable.
# Below it, inverting would return rounding errors as variances.
_LEAST_EIGENVALUE = 1e-11
# The same for a rotation of two orthogonal axes, relative to the largest information.
_LEAST_ROTATION_INFORMATION = 1e-12


@dataclass(frozen=True)
class Information:
    """Fisher's information at a model, inverted.

    Attributes
    ----------
    likelihood : Likelihood
        The model in r dimensions, without data.
    inverse : ndarray (k, r + 1, r + 1)
        The inverse information of each context's (b_i, log s_i), or (k, r, r) of b_i alone if ``without_noise``.
    covariance : ndarray (r^2, r^2)
        Inverse information of X, everything else eliminated; with pooled noise (r^2 + 1, r^2 + 1), log s last.
    outside : ndarray (r, r)
        The same for the part of A in each direction outside its span.
    without_noise, pooled : bool
        Whether a context has no unknown noise of its own, and whether all share one unknown noise variance.
    """

    likelihood: Likelihood
    inverse: Array
    covariance: Array
    outside: Array
    without_noise: bool
    pooled: bool

    def responses(self, part: slice) -> Array:
        """Return ``I_i^-1 C_i``: how (b_i, log s_i) of some contexts give way to X, (k', r + 1, r^2), less it."""
        C = cross_information(self.likelihood, part, self.without_noise, self.pooled)
        return np.asarray(np.matmul(self.inverse[part], C))


def without_data(model: GaussianModel, n: Array) -> Likelihood:
    """Return the model in r dimensions with contexts of weight ``n`` (k,), in features in which noise is isotropic.

    Moments of data are left at 0: Fisher's information is an expectation and does not depend on them.
    """
    k, r = model.B.shape
    white = model.white
    return Likelihood(white.T @ white, model.B, model.s, np.zeros((k, r, r)), np.zeros(k), n, len(white) - r)


def covariance_of_X(model: Likelihood, inverse: Array, without_noise: bool, pooled: bool) -> Array:
    """Return the covariance (r^2, r^2) of X, or with pooled noise (r^2 + 1, r^2 + 1), the loadings eliminated.

    ``inverse`` holds the inverse information of each context, (k, r, r) or (k, r + 1, r + 1) with noise.
    """
    # B (k, r), P (k, r, r). X is flattened by rows: entry (l, j) has the index l r + j.
    k, r = model.B.shape
    n = model.n
    B = model.B
    P = model.P
    size = r * r + pooled
    full = np.zeros((size, size))
    full[: r * r, : r * r] = _information_of_X(model).reshape(r * r, r * r)
    if pooled:
        noise_response = model.s[:, None, None] * (P @ model.N @ P)
        # X_lj changes Omega_i by E_lj B_i + B_i E_lj^T, and log s by s N: n/2 tr(P dOmega P s N) = n b_ij (s P N P)_lj.
        with_noise = np.einsum("klj,kj->lj", noise_response, n[:, None] * B).ravel()
        full[r * r, : r * r] = with_noise
        full[: r * r, r * r] = with_noise
        full[r * r, r * r] = model.context_information()[:, r, r].sum()
    # Schur's complement: less what the unknowns of each context take, C_i^T I_i^-1 C_i.
    for part in information_chunks(k, r):
        C = cross_information(model, part, without_noise, pooled)
        full -= np.tensordot(C, np.matmul(inverse[part], C), axes=([0, 1], [0, 1]))
    # X_jj = 0, the scale of a column being that of b_j: only the other entries are unknowns.
    is_free = np.append(~np.eye(r, dtype=bool).ravel(), np.ones(int(pooled), dtype=bool))
    free = np.flatnonzero(is_free)
    information = full[np.ix_(free, free)]
    # Scaled to a unit diagonal first: entries differ by the fourth power of ratios of loadings.
    deviations = np.sqrt(np.maximum(np.diag(information), np.finfo(float).tiny))
    correlations = information / deviations / deviations[:, None]
    # A single component without pooled noise has no free entry. The caller turns the error into a sentence.
    if len(free) and np.linalg.eigvalsh(correlations)[0] < _LEAST_EIGENVALUE:
        raise np.linalg.LinAlgError
    # The same memory, (r^2, r^2), now for the covariance; rows and columns of X_jj stay 0.
    full[:] = 0
    full[np.ix_(free, free)] = np.linalg.inv(correlations) / deviations / deviations[:, None]
    return full


def _information_of_X(model: Likelihood) -> Array:
    """Return ``I[l, j, l', j']`` (r, r, r, r) above: two sums over contexts, each one product."""
    k, r = model.B.shape
    n = model.n
    B = model.B
    P = model.P
    weighted = (n[:, None] * B)[:, :, None] * P * B[:, None, :]  # n b_j P_jj' b_j'
    first = (P.reshape(k, -1).T @ weighted.reshape(k, -1)).reshape(r, r, r, r)  # [l, l', j, j']
    mixed = P * B[:, None, :]  # P_lj' b_j'
    second = (mixed.reshape(k, -1).T @ (n[:, None, None] * mixed).reshape(k, -1)).reshape(r, r, r, r)
    # [l, l', j, j'] and [l, j', l', j] -> [l, j, l', j']
    return np.asarray(first.transpose(0, 2, 1, 3) + second.transpose(0, 3, 2, 1))


def covariance_of_rotations(model: Likelihood, inverse: Array, pooled: bool) -> Array:
    """Return what ``covariance_of_X`` does for orthonormal A: X is skew, and every pair of axes is on its own.

    ``P_i`` is diagonal then, and turning the pair (l, j) by theta changes ``Omega_i[l, j]`` by ``(b_ij - b_il) theta``.
    """
    r = model.B.shape[1]
    # X_jl = -X_lj: the information of the angle is H_lj - 2 K_lj + H_jl.
    H, K = model.pair_information()
    information = H + H.T - 2 * K
    least = _LEAST_ROTATION_INFORMATION * H.max(initial=0)
    # sum_i n_i P_l P_j (b_ij - b_il)^2 is 0 only for equal loadings, and any rotation of the pair then fits as well.
    if (information[~np.eye(r, dtype=bool)] <= least).any():
        raise np.linalg.LinAlgError
    # An axis is not turned against itself: 1 / inf = 0 is that variance.
    np.fill_diagonal(information, np.inf)
    variances = 1 / information
    of_pairs = np.zeros((r, r, r, r))
    row, column = np.indices((r, r))
    of_pairs[row, column, row, column] = variances
    of_pairs[row, column, column, row] = -variances
    size = r * r + pooled
    full = np.zeros((size, size))
    full[: r * r, : r * r] = of_pairs.reshape(r * r, r * r)
    if pooled:
        # The shared noise is tied to the loadings only; they are eliminated as in ``covariance_of_X``.
        # N = I for orthonormal A, so the response to noise, s P N P, is s times the square of a diagonal matrix.
        precision = np.einsum("kjj->kj", model.P)
        with_loadings = model.n[:, None] / 2 * model.s[:, None] * precision**2
        total = model.context_information()[:, r, r].sum()
        full[-1, -1] = 1 / (total - np.einsum("kj,kjl,kl->", with_loadings, inverse, with_loadings))
    return full


def information_chunks(k: int, r: int) -> Iterator[slice]:
    """Yield contexts in chunks whose cross-information, r^2 (r + 1) numbers each, stays within the memory bound."""
    step = max(1, _CROSS_CHUNK_NUMBERS // (r * r * (r + 1)))
    for start in range(0, k, step):
        yield slice(start, start + step)


def cross_information(model: Likelihood, part: slice, without_noise: bool, pooled: bool) -> Array:
    """Return the information between (b_i, log s_i) and X, for some contexts: (k', r + 1, r^2).

    Without unknown noise of its own a context has only b_i, (k', r, r^2); with ``pooled`` noise the shared log s is one
    more column, (k', r, r^2 + 1).
    """
    n = model.n[part]
    B = model.B[part]
    P = model.P[part]
    k, r = B.shape
    weight = (n[:, None] * B)[:, None, None, :]
    C = (P[:, :, :, None] * P[:, :, None, :] * weight).reshape(k, r, r * r)  # [m, (l, j)]: n b_j P_ml P_mj
    if without_noise and not pooled:
        return np.asarray(C)
    noise_response = model.s[part][:, None, None] * (P @ model.N @ P)
    if pooled:
        of_loadings = n[:, None] / 2 * np.einsum("kjj->kj", noise_response)
        return np.concatenate([C, of_loadings[:, :, None]], axis=2)
    return np.concatenate([C, (noise_response * weight[:, 0]).reshape(k, 1, r * r)], axis=1)
