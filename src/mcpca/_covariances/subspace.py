"""From the (k, p, p) covariances to a small core that holds all a solver needs.

``U`` holds the top left singular vectors of the flattening ``M = [S_1 ... S_k]``, that is the top eigenvectors
of ``sum_i S_i S_i``; its singular values are the paper's scree plot. The core is ``T_i = U^T S_i U``. It keeps
more than r directions: with few contexts an MCPC may lean out of the top r singular vectors, and cutting it off there
costs accuracy (on the paper's digits over photographs, r = 17, the best |correlation| of an MCPC with the mean digit 0
falls from 0.95 to between 0.82 and 0.89).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .._utils.types import Array
from .interface import Covariances, project

_FEW, _MANY, _SPARE = 5, 200, 10
_SMALL_CORE = 2**20  # numbers in a core that is always made: 8 MB
ALL_FEATURES, _WIDEST = 200, 6


@dataclass(frozen=True)
class Core:
    """The covariances in coordinates of ``basis``; ``tensor`` is (e, q, q) with e <= k symmetric slices.

    ``make`` returns the tensor, which is made when it is first asked for.
    ``basis`` is (p, q) with orthonormal columns, or None for the identity (q = p).
    ``directions`` (p, .) are the top left singular vectors of the flattening, which a basis consists of, and
    ``singular_values`` theirs, largest first; ``residual`` certifies them (``Basis``).
    ``mixture`` (k, e) has orthonormal columns: slice l is that combination of contexts; None where e = k.
    ``whole`` (k, p, p) are the covariances themselves, where they are in memory and the tensor would be more than a
    quarter of them; else None.
    """

    make: Callable[[], Array]
    basis: Array | None
    directions: Array
    singular_values: Array
    n_contexts: int
    mixture: Array | None = None
    residual: float = 0.0
    whole: Array | None = None

    @cached_property
    def tensor(self) -> Array:
        """The slices."""
        return self.make()

    def leading(self, r: int) -> Core:
        """Return the core that rank ``r`` would have got, from the same basis."""
        q = width(r, self.n_contexts)
        if self.basis is None or q >= self.basis.shape[1]:
            return self
        narrow = self.basis[:, :q]
        whole = self.whole if _is_wide(q, len(narrow)) else None

        def make() -> Array:
            return np.ascontiguousarray(self.tensor[:, :q, :q])

        return replace(self, make=make, basis=narrow, directions=narrow, whole=whole)

    def lift(self, C: Array) -> Array:
        """Take columns from core coordinates back to features."""
        return C if self.basis is None else self.basis @ C


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
    """Return q, the directions kept for rank r: 3 r for up to 5 contexts, and closer to r the more there are.

    Where contexts are combined, r: what a component leans out of the top r directions is then mostly noise.
    """
    return r if _are_many(k, r) else r + -(-2 * r * min(k, _FEW) // k)


def _are_many(k: int, r: int) -> bool:
    return k > max(2 * (r + _SPARE), _MANY)


def numerical_rank(singular_values: Array, S: Covariances) -> int:
    """Count the singular values above what rounding alone would leave."""
    eps = float(np.finfo(S.dtype).eps)
    threshold = 4 * eps * np.sqrt(S.n_features) * singular_values[0]
    return int((singular_values > threshold).sum()) if singular_values[0] > 0 else 0


def compress(S: Covariances, r: int) -> Core:
    """Return the core for ranks up to ``r``.

    Cost that of ``S.basis``, and of projecting on q directions once the tensor is asked for; memory O(k q^2) from then
    on. Of a stack that is O(k p^3) and O(k p^2 q), and at most a quarter of the stack, or 8 MB: where q is too close to
    p for that, the core is the stack itself.
    """
    k, p = S.n_contexts, S.n_features
    q = min(p, width(r, k))
    U, sigma, residual = S.basis(q, r)
    e, many = r + _SPARE, _are_many(k, r)
    numbers = q * (q + 1) // 2 if many else q * q
    basis = np.ascontiguousarray(U) if q < p and k * numbers <= max(k * p * p // 4, _SMALL_CORE) else None
    if many:
        tensor, mixture = mix_contexts(S, np.eye(p) if basis is None else basis, p if basis is None else r, e)
        return Core(lambda: tensor, basis, U, sigma, k, mixture, residual)
    whole = S.array_or_none() if _is_wide(q, p) else None
    return Core(lambda: slices(S, basis), basis, U, sigma, k, None, residual, whole)


def _is_wide(q: int, p: int) -> bool:
    return 2 * q > p


def slices(S: Covariances, basis: Array | None) -> Array:
    """Return ``U^T S_i U`` (k, q, q), or the covariances themselves where ``basis`` is None."""
    return S.whole() if basis is None else project(S, basis)


def mix_contexts(S: Covariances, U: Array, r: int, e: int) -> tuple[Array, Array]:
    """Return ``e`` combinations (e, q, q) of the ``U^T S_i U``, and their orthonormal coefficients (k, e).

    In the model the variance along u_l is ``sum_j b_ij (u_l . a_j)^2``: already the variances along r directions span
    the columns of B, and some covariances between directions are added as a reserve. One step of subspace iteration on
    all entries of the first r directions then averages noise out. No random number is involved, and permuting contexts
    permutes the answer. Symmetric matrices are held as the half that is not known from the other, off-diagonal entries
    times sqrt(2): memory O(k q^2 / 2), cost O(k q^2 e) beside the products.
    """
    q = U.shape[1]
    rows, columns = np.triu_indices(q)
    root = np.where(rows == columns, 1.0, np.sqrt(2))
    half, filled = rows * q + columns, 0
    packed = np.empty((S.n_contexts, len(half)))
    for part in S.congruences(U):
        np.multiply(np.take(part.reshape(len(part), -1), half, axis=1), root, out=packed[filled : filled + len(part)])
        filled += len(part)
    scale = max(float(packed.max()), -float(packed.min()), np.finfo(float).tiny)
    packed /= scale  # squares of large numbers would overflow
    top = np.flatnonzero(columns < r)
    first = top[np.argsort((columns - rows)[top], kind="stable")[:e]]  # the diagonal, then pairs of neighbours
    pull = packed.T @ np.linalg.qr(packed[:, first])[0]
    pull[columns >= r] = 0
    Q = np.linalg.qr(packed @ pull)[0]
    mixed = (Q.T @ packed) * (scale / root)
    tensor = np.empty((Q.shape[1], q, q))
    tensor[:, rows, columns] = tensor[:, columns, rows] = mixed
    return tensor, Q
