"""From the (k, p, p) covariances to a small core that holds all a solver needs.

Every fit calls ``compress`` once; solvers work on the ``Core`` it returns, and on bases that ``grow`` enlarges where
they have to be stationary in all features.

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

from .._utils.parallel import each, n_workers
from .._utils.types import Array
from .interface import Covariances
from .packed import PackedSlices
from .stack import BasisImages, each_congruence

# Up to so many contexts the core has 3 r directions; beyond, 2 r more are shared out among the contexts.
_FEW_CONTEXTS = 5
# Above so many contexts, and twice the slices that would be left, contexts are combined (``mix_contexts``). A larger
# number leaves more problems with all their slices: slower, and with more memory.
_MANY_CONTEXTS = 200
# Combinations of contexts beyond the r that the model needs.
_SPARE_SLICES = 10
# Numbers in a core that is always made, 8 MB: below this size it does not matter that it may be as large as the stack.
_SMALL_CORE_NUMBERS = 2**20
# Parts of a product with packed slices, which two, four or eight threads end with at once, and from how many numbers of
# these on they are worth starting.
_PARTS = 8
_WORTHWHILE_NUMBERS = 2**18
# Share of the covariances that their images of a basis may take.
_IMAGES_SHARE = 16
# Up to so many features solvers that leave the core work in all of them, which then costs less than to grow a basis.
ALL_FEATURES = 200
# A basis that has grown to so many times r columns starts again. The core has (6 r)^2 numbers a context by then: with
# a larger number it takes more time and memory, with a smaller one more of the basis is thrown away.
_WIDEST_GROWTH = 6
# Directions of a basis whose singular value is below this share of the first are rounding.
_ROUNDING_SHARE = 1e-12


@dataclass(frozen=True)
class Core:
    """The covariances in coordinates of ``basis``; ``tensor`` is (e, q, q) with e <= k symmetric slices.

    ``make`` returns the tensor, which is computed when it is first needed: some solvers use only the basis.
    ``basis`` is (p, q) with orthonormal columns, or None for the identity (q = p).
    ``directions`` (p, .) are the top left singular vectors of the flattening, of which a basis consists, and
    ``singular_values`` are theirs, largest first; ``residual`` and ``error`` certify them (``Basis``).
    ``mixture`` (k, e) has orthonormal columns: slice l is that combination of contexts; None where e = k.
    ``whole`` (k, p, p) are the covariances themselves, where they are in memory and the tensor would be more than a
    quarter of them; else None.
    ``packed`` are the slices of all contexts in the basis, at most an eighth of the covariances, where slices are
    combinations of those of contexts and the covariances are in memory; else None.
    ``images`` are the ``S_i U`` that the tensor is made of, at most a sixteenth of the covariances, where these are in
    memory; else None.
    """

    make: Callable[[], Array]
    basis: Array | None
    directions: Array
    singular_values: Array
    n_contexts: int
    mixture: Array | None = None
    residual: float = 0.0
    error: float | None = None
    whole: Array | None = None
    packed: PackedSlices | None = None
    images: BasisImages | None = None

    @cached_property
    def tensor(self) -> Array:
        """The slices (e, q, q)."""
        return self.make()

    def leading(self, r: int) -> Core:
        """Return the core that rank ``r`` would have had, cut from this one.

        Singular vectors are nested, so the first q columns of U and the leading q x q block of each slice are the core
        of a smaller rank: a sweep over ranks compresses once.
        """
        p, known = self.directions.shape
        q = width(r, self.n_contexts)
        if q >= known or not _has_basis(q, p, self.n_contexts, is_mixed=self.mixture is not None):
            return self
        narrow = np.ascontiguousarray(self.directions[:, :q])
        whole = self.whole if _is_wide(q, p) else None

        def make() -> Array:
            if self.basis is None:
                # The slices are the covariances themselves.
                return np.ascontiguousarray(narrow.T @ self.tensor @ narrow)
            return np.ascontiguousarray(self.tensor[:, :q, :q])

        # ``replace`` makes a new object without the cached tensor; ``make`` cuts it from ours, which is projected once
        # for all ranks. The singular values stay complete: they are the scree plot of the data, whatever the rank.
        return replace(self, make=make, basis=narrow, directions=narrow, whole=whole, packed=None, images=None)

    def lift(self, C: Array) -> Array:
        """Take columns (q, m) in coordinates of the basis back to features (p, m)."""
        return C if self.basis is None else self.basis @ C

    def combine(self, S: Covariances, C: Array, weights: Array) -> Array:
        """Return ``sum_i w_ij S_i U c_j`` (p, m) of the covariances themselves, for C (q, m) and weights (k, m)."""
        return S.combine(self.lift(C), weights) if self.images is None else self.images.combine(C, weights)


def orthonormal(columns: Array) -> Array:
    """Return an orthonormal basis of the span of ``columns`` (p, m), without directions that are mere rounding."""
    lengths = np.linalg.norm(columns, axis=0)
    # Of unit length first: a small column is a direction as good as a large one.
    units = columns / np.maximum(lengths, np.finfo(float).tiny)
    # An SVD and not QR: it tells which directions are independent, where QR would fill up with arbitrary ones.
    U, w, _ = np.linalg.svd(units, full_matrices=False)
    return np.ascontiguousarray(U[:, w > _ROUNDING_SHARE * w[0]])


def grow(basis: Array | None, A: Array, gradient: Array, change: Array) -> Array | None:
    """Return the next basis for a solver that has reached ``A`` (p, r) within ``basis`` and has a gradient outside it.

    The gradient is added. A basis that has grown to six times r columns starts again from A, the gradient and the last
    ``change`` of A, the three blocks of LOBPCG, which keep most of what the whole history would. None, all features,
    where there are so few that a basis saves nothing.

    A new basis takes new products (``slices``), since orthonormalising mixes its columns. What passes over rows have
    found grows in another way (``pass_results``): by columns whose products the same pass has computed.
    """
    p, r = A.shape
    if p <= max(ALL_FEATURES, 3 * r):
        return None
    # The gradient of a converged column may be exactly 0: tiny avoids a division by it.
    lengths = np.maximum(np.linalg.norm(gradient, axis=0), np.finfo(float).tiny)
    slopes = gradient / lengths
    if basis is not None and basis.shape[1] + r <= _WIDEST_GROWTH * r:
        return orthonormal(np.hstack([basis, slopes]))
    return orthonormal(np.hstack([A, slopes, change]))


def width(r: int, k: int) -> int:
    """Return q, the directions kept for rank r: 3 r for up to 5 contexts, and closer to r the more there are.

    Where contexts are combined, r: what a component leans out of the top r directions is then mostly noise.
    """
    if are_many(k, r):
        return r
    # -(-x // k) rounds up. With k = 6 contexts, 10 r / 6 directions are added, with k = 100 a tenth of r.
    return r + -(-2 * r * min(k, _FEW_CONTEXTS) // k)


def are_many(k: int, r: int) -> bool:
    """Whether k contexts are to be combined into fewer slices for rank r."""
    return k > max(2 * (r + _SPARE_SLICES), _MANY_CONTEXTS)


def numerical_rank(singular_values: Array, S: Covariances) -> int:
    """Count the singular values of the flattening above what rounding alone would leave."""
    # The precision of the data, not that of the products: float32 covariances carry rounding of their own, and their
    # singular values below it are noise although computed in float64.
    eps = float(np.finfo(S.dtype).eps)
    threshold = 4 * eps * np.sqrt(S.n_features) * singular_values[0]
    return int((singular_values > threshold).sum()) if singular_values[0] > 0 else 0


def compress(S: Covariances, r: int) -> Core:
    """Return the core for ranks up to ``r``.

    Cost that of ``S.basis``, and of projecting on q directions once the tensor is asked for; memory O(k q^2) from then
    on. Of a stack that is O(k p^3) and O(k p^2 q), and at most a quarter of the stack, or 8 MB: where q is too close to
    p for that, the core is the stack itself.
    """
    k = S.n_contexts
    p = S.n_features
    q = min(p, width(r, k))
    U, sigma, residual, error = S.basis(q, r)
    is_mixed = are_many(k, r)
    basis = np.ascontiguousarray(U) if _has_basis(q, p, k, is_mixed=is_mixed) else None
    if is_mixed:
        # Without a basis all p directions are the model's, and not only the first r.
        n_signal = p if basis is None else r
        # Mixed at once and not on demand: the mixture (k, e), which solvers need beside the basis, comes with it.
        packed = PackedSlices.of(S, np.eye(p) if basis is None else basis)
        tensor, mixture = mix_contexts(packed, n_signal, r + _SPARE_SLICES)
        # Without a basis the covariances themselves are no dearer; products by passes are remembered where they are.
        kept = packed if basis is not None and S.array_or_none() is not None else None
        return Core(lambda: tensor, basis, U, sigma, k, mixture, residual, error, packed=kept)
    values = S.array_or_none()
    whole = values if _is_wide(q, p) else None
    if values is not None and basis is not None and _IMAGES_SHARE * q <= p:
        images = BasisImages(values, basis)
        return Core(images.slices, basis, U, sigma, k, None, residual, error, whole, images=images)
    return Core(lambda: slices(S, basis), basis, U, sigma, k, None, residual, error, whole)


def _has_basis(q: int, p: int, k: int, *, is_mixed: bool) -> bool:
    """Whether a core is made in coordinates of q directions.

    With q close to p it would be nearly a second stack: solvers then get the covariances themselves, basis None.
    """
    numbers = q * (q + 1) // 2 if is_mixed else q * q  # combined contexts are held as their upper halves
    return q < p and k * numbers <= max(k * p * p // 4, _SMALL_CORE_NUMBERS)


def _is_wide(q: int, p: int) -> bool:
    """Whether a core with q of p directions takes more than a quarter of the covariances: (q / p)^2 > 1/4."""
    return 2 * q > p


def slices(S: Covariances, basis: Array | None) -> Array:
    """Return ``U^T S_i U`` (k, q, q), or the covariances themselves where ``basis`` is None."""
    if basis is None:
        return S.whole()
    out = np.empty((S.n_contexts, basis.shape[1], basis.shape[1]))
    each_congruence(S, basis, out.__setitem__)
    return out


def mix_contexts(packed: PackedSlices, r: int, e: int) -> tuple[Array, Array]:
    """Return ``e`` combinations (e, q, q) of slices ``U^T S_i U``, and their orthonormal coefficients (k, e).

    In the model the variance along u_l is ``sum_j b_ij (u_l . a_j)^2``: already the variances along r directions span
    the columns of B, and some covariances between directions are added as a reserve. One step of subspace iteration on
    all entries of the first r directions then averages noise out. No random number is involved, and permuting contexts
    permutes the answer. Cost O(k q^2 e), memory O(q^2 e) beside the slices.
    """
    halves = packed.halves
    rows, columns = np.triu_indices(packed.q)
    # The first e columns by distance from the diagonal: variances, then covariances of neighbours.
    # In the upper half rows <= columns, so columns < r says that both directions are among the first r.
    among_top = np.flatnonzero(columns < r)
    first = among_top[np.argsort((columns - rows)[among_top], kind="stable")[:e]]
    # One step of subspace iteration, Q <- qr(P P^T Q), with P the packed entries of the first r directions only. Its
    # span is that of P P^T of the columns themselves; of unit length, so that none is lost beside larger ones.
    columns_of_first = halves[:, first]
    lengths = np.linalg.norm(columns_of_first, axis=0)
    pull = _product(halves.T, columns_of_first / np.maximum(lengths, np.finfo(float).tiny))
    pull[columns >= r] = 0
    Q = np.linalg.qr(_product(halves, pull))[0]
    return packed.unpacked(_product(halves.T, Q).T), Q


def _product(M: Array, Q: Array) -> Array:
    """Return ``M Q``, some rows of M in each thread of our own: those of BLAS would go on spinning beside others."""
    out = np.empty((len(M), Q.shape[1]))
    step = -(-len(M) // _PARTS) if M.size > _WORTHWHILE_NUMBERS else len(M)
    parts = [slice(i, i + step) for i in range(0, len(M), step)]
    for _ in each(lambda part: np.matmul(M[part], Q, out=out[part]), parts, n_workers() if len(parts) > 1 else 1):
        pass
    return out
