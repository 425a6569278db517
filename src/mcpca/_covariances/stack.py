"""Covariances held as one (k, p, p) array: every product is a few large matrix products over chunks of contexts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._utils.types import Array
from .interface import Basis

_VERY_FEW = 4
_CHUNK, _LEAST = 2**19, 2**13  # numbers in a temporary: at most 4 MB, a twelfth of all above 64 kB
# eigh of sum_i S_i S_i resolves singular values down to sqrt(eps) of the first; below this ratio use QR.
GRAM_LIMIT = 1e-5
_SMALL, _SPARE, _MAX_SWEEPS = 200, 10, 12


@dataclass(frozen=True)
class CovarianceStack:
    """``Covariances`` of an array (k, p, p), which is neither copied nor changed. Memory beside it O(p^2)."""

    values: Array

    @property
    def n_contexts(self) -> int:
        """Number of contexts, k."""
        return len(self.values)

    @property
    def n_features(self) -> int:
        """Number of features, p."""
        return int(self.values.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the array."""
        return self.values.dtype

    def basis(self, q: int, r: int) -> Basis:
        """Return the top ``q`` left singular vectors; see ``flattening_basis``."""
        return Basis(*flattening_basis(self.values, q, r), 0.0)

    def array_or_none(self) -> Array | None:
        """Return the array."""
        return self.values

    def whole(self) -> Array:
        """Return all entries, in float64."""
        return self.values.astype(np.float64, copy=False)

    def congruences(self, A: Array) -> Iterator[Array]:
        """Yield ``A^T S_i A``. Cost O(k p^2 m)."""
        for part in context_chunks(self.values):
            yield congruence(self.values[part], A).transpose(1, 0, 2)

    def variances_along(self, A: Array) -> Array:
        """Return ``a_j^T S_i a_j`` (k, m). Cost O(k p^2 m)."""
        return variances_along(self.values, A)

    def combine(self, A: Array, weights: Array) -> Array:
        """Return ``sum_i S_i A W_i`` (p, m). Cost O(k p^2 m)."""
        out = np.zeros(A.shape)
        m = A.shape[1]
        for part in context_chunks(self.values):
            SA = images(self.values[part], A)  # (m, k, p)
            if weights.ndim == 2:
                out += np.matmul(weights[part].T[:, None, :], SA)[:, 0].T
            else:
                out += SA.reshape(-1, len(A)).T @ weights[part].transpose(1, 0, 2).reshape(-1, m)
        return out

    def variances(self) -> Array:
        """Return the diagonals (k, p)."""
        return np.asarray(np.einsum("kpp->kp", self.values), dtype=np.float64)

    def squared_norms(self) -> Array:
        """Return ``||S_i||_F^2`` (k,)."""
        return np.asarray(np.einsum("kpq,kpq->k", self.values, self.values, dtype=np.float64))

    def norm_errors(self) -> Array:
        """Return zeros (k,): ``squared_norms`` are exact."""
        return np.zeros(self.n_contexts)

    def pooled(self, weights: Array) -> Array:
        """Return ``sum_i weights_i S_i`` (p, p)."""
        return np.asarray(np.tensordot(weights, self.whole(), axes=1))

    def scaled(self, scale: Array) -> CovarianceStack:
        """Return the covariances of features multiplied by ``scale`` (p,): a copy."""
        return CovarianceStack(self.values * scale * scale[:, None])

    def weighted(self, weights: Array) -> CovarianceStack:
        """Return the covariances times ``weights`` (k,): a copy."""
        return CovarianceStack(self.values * weights[:, None, None].astype(self.dtype))


def context_chunks(S: Array) -> Iterator[slice]:
    """Slices of contexts whose covariances fit a temporary that is small, also beside all of them."""
    k, p, _ = S.shape
    step = max(1, min(_CHUNK, max(S.size // 12, _LEAST)) // (p * p))
    for start in range(0, k, step):
        yield slice(start, min(start + step, k))


def flattening_gram(S: Array) -> Array:
    """Return ``sum_i S_i S_i`` in float64. Cost O(k p^3), memory O(p^2)."""
    k, p, _ = S.shape
    if S.dtype == np.float64 and S.flags.c_contiguous:
        F = S.reshape(k * p, p)
        gram: Array = F.T @ F
        return gram
    gram = np.zeros((p, p))
    for part in context_chunks(S):
        F = S[part].astype(np.float64).reshape(-1, p)
        gram += F.T @ F
    return gram


def flattening_basis(S: Array, q: int, r: int) -> tuple[Array, Array]:
    """Return the top ``q`` left singular vectors (p, q) and singular values (q,) of ``[S_1 ... S_k]``.

    Cost O(k p^3 + p^3), memory O(p^2); with four contexts or fewer, of which one p x p array would be a quarter,
    the products ``S_i (S_i Q)`` stand in for the Gram matrix as long as they converge. Squaring loses singular
    values below 1e-8 of the first, so where the first ``r`` of them reach far down a chunked QR is taken instead:
    several times the time, no squaring.
    """
    k, p, _ = S.shape
    top = None
    if is_narrow(q, p):
        if k <= _VERY_FEW:
            top = subspace_iteration(lambda Q: _twice(S, Q), p, q, r)
        else:
            gram = flattening_gram(S)
            top = subspace_iteration(lambda Q: gram @ Q, p, q, r)
    if top is None:
        # NumPy's eigh, and not SciPy's, which could stop at q: each brings a BLAS of its own, and the threads of the
        # one that has just multiplied still spin on the cores that the other needs.
        w, U = np.linalg.eigh(flattening_gram(S))
        top = w[::-1][:q], np.ascontiguousarray(U[:, ::-1][:, :q])
    sigma = np.sqrt(np.maximum(top[0], 0))
    if sigma[0] > 0 and sigma[r - 1] > GRAM_LIMIT * sigma[0]:
        return top[1], sigma
    R = np.zeros((0, p))
    for part in context_chunks(S):
        R = np.asarray(np.linalg.qr(np.vstack([R, S[part].astype(np.float64).reshape(-1, p)]), mode="r"))
    _, sigma, Vt = np.linalg.svd(R, full_matrices=False)
    return np.ascontiguousarray(Vt[:q].T), sigma[:q]


def is_narrow(q: int, p: int) -> bool:
    """Whether ``q`` of ``p`` directions are so few that iterating on them beats a whole eigendecomposition."""
    return p > max(_SMALL, 4 * (q + _SPARE))


def _twice(S: Array, Q: Array) -> Array:
    """Return ``sum_i S_i (S_i Q)`` in float64."""
    out = np.zeros_like(Q)
    for part in context_chunks(S):
        F = S[part].astype(np.float64, copy=False).reshape(-1, len(Q))
        out += F.T @ (F @ Q)
    return out


def subspace_iteration(times: Callable[[Array], Array], p: int, q: int, r: int) -> tuple[Array, Array] | None:
    """Return the top ``q`` eigenvalues and eigenvectors, largest first, of the positive semi-definite G in ``times``.

    The block is q wide and a little more, so the top r converge as fast as eigenvalue q is below eigenvalue r, and
    they are certified by their residuals; what lies between r and q is only a good subspace, which is all that is
    asked of it. None when a dozen sweeps did not certify them.
    """
    Z = times(np.random.default_rng(0).standard_normal((p, q + _SPARE)))
    for _ in range(_MAX_SWEEPS):
        Z = times(np.linalg.qr(Z)[0])
        Q = np.linalg.qr(Z)[0]
        Z = times(Q)
        w, rotation = np.linalg.eigh(Q.T @ Z)
        w, rotation = w[::-1], rotation[:, ::-1]
        residual = np.linalg.norm(Z @ rotation[:, :r] - (Q @ rotation[:, :r]) * w[:r], axis=0).max()
        if residual <= max(1e-12 * w[r - 1], 8 * np.finfo(float).eps * w[0]):
            return w[:q], Q @ np.ascontiguousarray(rotation[:, :q])
        del Q  # before the next one is made
    return None


def variances_along(S: Array, A: Array) -> Array:
    """Return ``h_ij = a_j^T S_i a_j`` (k, r) in float64. Cost O(k p^2 r), memory O(p r) beside the result."""
    return np.concatenate([np.einsum("rkp,pr->kr", images(S[part], A), A) for part in context_chunks(S)])


def pulls(S: Array, V: Array) -> tuple[Array, Array]:
    """Return ``d_ij = v_j^T S_i v_j`` (k, r) and ``sum_i d_ij S_i v_j`` (p, r), in float64.

    Cost O(k p^2 r), memory O(p r) beside the result.
    """
    d, Y = np.empty((len(S), V.shape[1])), np.zeros((V.shape[1], len(V)))
    for part in context_chunks(S):
        SV = images(S[part], V)
        d[part] = np.einsum("rkp,pr->kr", SV, V)
        Y += np.matmul(d[part].T[:, None, :], SV)[:, 0]
    return d, np.ascontiguousarray(Y.T)


def congruence(S: Array, A: Array) -> Array:
    """Return ``A^T S_i A`` for symmetric ``S_i`` as (r, k, r), contexts in the middle: two products and no loop."""
    half = images(S, A)
    r, k, p = half.shape
    return np.asarray(half.reshape(r * k, p) @ A).reshape(r, k, r)


def images(S: Array, A: Array) -> Array:
    """Return ``a_j^T S_i`` as (r, k, p)."""
    k, p, _ = S.shape
    return np.asarray(A.T @ S.astype(np.float64, copy=False).reshape(k * p, p).T).reshape(-1, k, p)
