"""From the (k, p, p) covariances to a small core that holds all a solver needs.

``U`` holds the top left singular vectors of the flattening ``M = [S_1 ... S_k]``, that is the top eigenvectors
of ``sum_i S_i S_i``; its singular values are the paper's scree plot. The core is ``T_i = U^T S_i U``. It keeps
more than r directions: with few contexts an MCPC may lean out of the top r singular vectors, and cutting it off there
costs accuracy (on the paper's digits over photographs, r = 17, the best |correlation| of an MCPC with the mean digit 0
falls from 0.95 to between 0.82 and 0.89).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ._check import Array

_FEW, _VERY_FEW = 5, 4
_CHUNK = 2**19  # numbers in a temporary: 4 MB
# eigh of sum_i S_i S_i resolves singular values down to sqrt(eps) of the first; below this ratio use QR.
_GRAM_LIMIT = 1e-5
_SMALL, _SPARE, _MAX_SWEEPS = 200, 10, 12
ALL_FEATURES, _WIDEST = 200, 6


@dataclass(frozen=True)
class Core:
    """The covariances in coordinates of ``basis``; ``tensor`` is (e, q, q) with e <= k symmetric slices.

    ``basis`` is (p, q) with orthonormal columns, or None for the identity (q = p).
    ``singular_values`` are those of the flattening, largest first.
    """

    tensor: Array
    basis: Array | None
    singular_values: Array
    n_contexts: int

    def leading(self, r: int) -> Core:
        """Return the core that rank ``r`` would have got, from the same basis."""
        q = width(r, self.n_contexts)
        if self.basis is None or q >= self.tensor.shape[1]:
            return self
        tensor = np.ascontiguousarray(self.tensor[:, :q, :q])
        return Core(tensor, self.basis[:, :q], self.singular_values, self.n_contexts)

    def lift(self, C: Array) -> Array:
        """Take columns from core coordinates back to features."""
        return C if self.basis is None else self.basis @ C


def context_chunks(S: Array) -> Iterator[slice]:
    """Slices of contexts whose covariances fit a small temporary."""
    k, p, _ = S.shape
    step = max(1, _CHUNK // (p * p))
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
    if p > max(_SMALL, 4 * (q + _SPARE)):
        if k <= _VERY_FEW:
            top = _subspace_iteration(lambda Q: _twice(S, Q), p, q, r)
        else:
            gram = flattening_gram(S)
            top = _subspace_iteration(lambda Q: gram @ Q, p, q, r)
    if top is None:
        # NumPy's eigh, and not SciPy's, which could stop at q: each brings a BLAS of its own, and the threads of the
        # one that has just multiplied still spin on the cores that the other needs.
        w, U = np.linalg.eigh(flattening_gram(S))
        top = w[::-1][:q], np.ascontiguousarray(U[:, ::-1][:, :q])
    sigma = np.sqrt(np.maximum(top[0], 0))
    if sigma[0] > 0 and sigma[r - 1] > _GRAM_LIMIT * sigma[0]:
        return top[1], sigma
    R = np.zeros((0, p))
    for part in context_chunks(S):
        R = np.asarray(np.linalg.qr(np.vstack([R, S[part].astype(np.float64).reshape(-1, p)]), mode="r"))
    _, sigma, Vt = np.linalg.svd(R, full_matrices=False)
    return np.ascontiguousarray(Vt[:q].T), sigma[:q]


def _twice(S: Array, Q: Array) -> Array:
    """Return ``sum_i S_i (S_i Q)`` in float64."""
    out = np.zeros_like(Q)
    for part in context_chunks(S):
        F = S[part].astype(np.float64, copy=False).reshape(-1, len(Q))
        out += F.T @ (F @ Q)
    return out


def _subspace_iteration(times: Callable[[Array], Array], p: int, q: int, r: int) -> tuple[Array, Array] | None:
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


def numerical_rank(singular_values: Array, S: Array) -> int:
    """Count the singular values above what rounding alone would leave."""
    eps = float(np.finfo(S.dtype).eps)
    threshold = 4 * eps * np.sqrt(S.shape[1]) * singular_values[0]
    return int((singular_values > threshold).sum()) if singular_values[0] > 0 else 0


def compress(S: Array, r: int) -> Core:
    """Return the core for ranks up to ``r``.

    Cost O(k p^3) for the basis and O(k p^2 q) for the core; memory O(p^2 + k q^2), at most a quarter of the stack
    (where q is too close to p for that, the core is the stack itself, uncopied).
    """
    k, p, _ = S.shape
    q, e = min(p, width(r, k)), min(p, r + _SPARE)
    U, sigma = flattening_basis(S, max(q, e), r)
    Q = context_basis(S, U[:, :e]) if k > max(2 * e, 200) else None
    fits = (k if Q is None else e) * q * q <= max(k * p * p // 4, 2 * _CHUNK)
    basis = np.ascontiguousarray(U[:, :q]) if q < p and fits else None
    if Q is not None:
        mixed = _mix_contexts(S, Q).astype(np.float64, copy=False)
        tensor = mixed if basis is None else basis.T @ mixed @ basis
    elif basis is None:
        tensor = S.astype(np.float64, copy=False)
    else:
        tensor = project(S, basis)
    return Core(tensor, basis, sigma, k)


def project(S: Array, basis: Array) -> Array:
    """Return ``U^T S_i U`` (k, q, q) for ``basis`` U (p, q). Cost O(k p^2 q)."""
    return np.concatenate([congruence(S[part], basis).transpose(1, 0, 2) for part in context_chunks(S)])


def orthonormal(columns: Array) -> Array:
    """Return an orthonormal basis of the span of ``columns`` (p, m), without directions that are rounding only."""
    U, w, _ = np.linalg.svd(columns / np.maximum(np.linalg.norm(columns, axis=0), np.finfo(float).tiny), False)
    return np.ascontiguousarray(U[:, w > 1e-12 * w[0]])


def grow(basis: Array | None, A: Array, gradient: Array, change: Array) -> Array | None:
    """Return the next basis for a solver that has come to ``A`` (p, r) in ``basis`` and finds a gradient outside it.

    The gradient is added; a basis that has grown to ``_WIDEST`` times r starts again from A, the gradient and the last
    change of A (as in LOBPCG). None, all features, where that is no more.
    """
    p, r = A.shape
    if p <= max(ALL_FEATURES, 3 * r):
        return None
    size = np.maximum(np.linalg.norm(gradient, axis=0), np.finfo(float).tiny)
    keep = basis is not None and basis.shape[1] + r <= _WIDEST * r
    return orthonormal(np.hstack([basis if keep else A, gradient / size, change][: 2 if keep else 3]))


def width(r: int, k: int) -> int:
    """Return q, the directions kept for rank r: 3 r for up to 5 contexts, and closer to r the more there are."""
    return r + -(-2 * r * min(k, _FEW) // k)


def context_basis(S: Array, U: Array) -> Array:
    """Return (k, e) orthonormal combinations of contexts that carry the loadings of every MCPC.

    In the model the variance of feature f is ``sum_j b_ij a_fj^2``: already e combinations of features' variances (here
    with weights ``u_fl^2``) span the columns of B. One step of subspace iteration on the (k, p^2) unfolding then
    averages noise out. No random number is involved, and permuting contexts permutes the answer. Cost O(k p^2 e),
    memory O(e p^2 + k e).
    """
    Q = np.linalg.qr(np.einsum("kpp->kp", S).astype(np.float64) @ U**2)[0]
    flat = _mix_contexts(S, Q).reshape(Q.shape[1], -1).T
    flat /= np.abs(flat).max()  # squares of large float32 would overflow
    return np.linalg.qr((S.reshape(len(S), -1) @ flat).astype(np.float64))[0]


def variances_along(S: Array, A: Array) -> Array:
    """Return ``h_ij = a_j^T S_i a_j`` (k, r) in float64. Cost O(k p^2 r), memory O(p r) beside the result."""
    return np.concatenate([np.einsum("rkp,pr->kr", images(S[part], A), A) for part in context_chunks(S)])


def congruence(S: Array, A: Array) -> Array:
    """Return ``A^T S_i A`` for symmetric ``S_i`` as (r, k, r), contexts in the middle: two products and no loop."""
    half = images(S, A)
    r, k, p = half.shape
    return np.asarray(half.reshape(r * k, p) @ A).reshape(r, k, r)


def images(S: Array, A: Array) -> Array:
    """Return ``a_j^T S_i`` as (r, k, p)."""
    k, p, _ = S.shape
    return np.asarray(A.T @ S.astype(np.float64, copy=False).reshape(k * p, p).T).reshape(-1, k, p)


def _mix_contexts(S: Array, Q: Array) -> Array:
    """Return ``sum_i Q_ie S_i`` (e, p, p) by one product, in the precision of S."""
    k, p, _ = S.shape
    return np.asarray(Q.T.astype(S.dtype, copy=False) @ S.reshape(k, p * p)).reshape(-1, p, p)
