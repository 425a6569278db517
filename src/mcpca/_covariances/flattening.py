"""The top left singular vectors of the flattening ``[S_1 ... S_k]`` (p, k p): the basis that compresses a stack.

Called by ``CovarianceStack.basis``; ``subspace.compress`` projects the covariances on what comes back. The vectors are
the eigenvectors of ``G = sum_i S_i S_i`` and the singular values the roots of its eigenvalues, so the p x p matrix G
stands in for the k times larger flattening, except where squaring costs digits.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from .._utils.parallel import blas_aside, each, n_workers, one_thread_each
from .._utils.types import Array
from .array_memory import HOST, ArrayMemory, context_chunks
from .interface import Basis

# With no more contexts than these G would be a quarter of the stack or more, so it is not formed.
_VERY_FEW = 4
# A product ``S_i (S_i Q)`` takes as long as 4 operations an entry of S_i and column of Q, and so many more to read it;
# G takes p, and the iteration about so many products, those in single precision counted half.
_READING = 60
_LIKELY_PRODUCTS = 2.5
# Columns of such a product come in so many at least, for which BLAS is written, two or three of them to spare.
_LANES = 8
_SPARE_IN_LANES = 2
# eigh(G) has an absolute error of eps * ||G||, so singular values below sqrt(eps), about 1e-8, of the first are noise.
# The r-th one has to stay above this share, where three digits are left; below it the basis comes from QR.
_GRAM_LIMIT = 1e-5
# Subspace iteration: from how many features on it is considered, how many columns it carries at least beyond those that
# are certified and beyond those that are wanted, how many products it makes in single precision after the first, where
# it can, and after how many others the whole eigendecomposition takes over.
_SMALL = 200
_SPARE = 10
_SPARE_BEYOND_Q = 3
_ROUGH_PRODUCTS = 2
# Residual, as a share of the r-th eigenvalue, up to which vectors are orthonormal after a correction by it, the root of
# rounding; and up to which its square, by which Ritz values and combinations of the leading vectors err, is no matter.
_NEAR = 1e-8
_NEARLY = 1e-6
# Products in single precision that corrections take at most: each costs half of one that starts again from there.
_MOST_CORRECTIONS = 2
_MOST_PRODUCTS = 24
# Covariances from this to its inverse, also parts of them that are smaller by all digits, are in the range of float32.
_LEAST_SINGLE = 1e-28
_FAR_FROM_ONE = 20  # power of two, up to which they are used as they are
# Numbers of covariances from which on threads of our own are worth starting for a product with them.
_WORTHWHILE_NUMBERS = 2**20
# Up to so many features the Gram matrix is a sum over pieces of so many numbers, 4 MB, in threads of our own. Beyond,
# of at most so many pieces, each of at least so many contexts, of which one more Gram matrix is a small part.
_THIN = 200
_PIECE_NUMBERS = 2**19
_MOST_PIECES = 8
_PIECE_CONTEXTS = 6
# Residual, as a share of the r-th eigenvalue, that counts as none: a thousandth of the tolerance of solvers.
EXACT = 1e-10


def flattening_basis(S: Any, q: int, r: int, memory: ArrayMemory = HOST, tol: float = EXACT) -> Basis:
    """Return the top ``q`` left singular vectors (p, q) and singular values (q,) of ``[S_1 ... S_k]``.

    Cost O(k p^3 + p^3), memory O(p^2). With four contexts or fewer, of which one p x p array would be a quarter, and
    with many times more features than directions, the products ``S_i (S_i Q)`` stand in for the Gram matrix as long as
    they converge: O(k p^2 q) each. Squaring loses singular values below 1e-8 of the first, so where the first ``r`` of
    them reach far down a chunked QR is taken instead: several times the time, no squaring. ``tol`` is the residual that
    iterations may leave, as a share of the r-th eigenvalue of the Gram matrix.
    """
    # S (k, p, p), vectors (p, q), sigma (q,); q >= r directions are wanted, of which the first r have to be accurate.
    k, p, _ = S.shape
    top = None
    if _is_narrow(q, p):
        # Either way the iteration sees only products with G. Without G each costs 2 k products of p x p with the block
        # instead of one, which few contexts and narrow blocks make up for by not forming G in O(k p^3).
        width = _in_lanes(max(q, r + 1) + _SPARE_IN_LANES)
        product = 4 * width + _READING
        if k <= _VERY_FEW or (memory.flattens_without_copy(S) and _LIKELY_PRODUCTS * product < p):
            # Single precision takes half the time, and has digits enough for the first products.
            rough = _in_single_precision(S) if memory is HOST else None
            most = _MOST_PRODUCTS if k <= _VERY_FEW else p / product
            with blas_aside():
                top = subspace_iteration(
                    lambda Q: _squared_times(S, Q, memory), p, q, r, tol, rough, width=width, most=most
                )
        if top is None and k > _VERY_FEW:
            gram = _gram(S, memory)
            # What is left to do is small: threads of BLAS would wait for each other, in QR above all. G is symmetric,
            # and Q^T G a better shape for BLAS than G Q.
            with one_thread_each():
                top = subspace_iteration(lambda Q: memory.receive(memory.send(Q).T @ gram).T, p, q, r, tol)
    if top is None:
        # On the host NumPy's eigh, and not SciPy's, which could stop at q: each brings a BLAS of its own, and the
        # threads of the one that has just multiplied still spin on the cores that the other needs.
        gram = _gram(S, memory)
        # Threads of BLAS do not help below some size, and take long to wake up after those of our own.
        with one_thread_each() if p <= _SMALL else nullcontext():
            w, U = (memory.receive(x) for x in memory.xp.linalg.eigh(gram))
        # ``eigh`` sorts ascending. A copy of the q columns lets go of the other p - q, which a view would keep alive.
        top = w[::-1][:q], np.ascontiguousarray(U[:, ::-1][:, :q])
    eigenvalues, vectors = top
    # G is positive semi-definite, but rounding may leave its smallest eigenvalues slightly negative.
    sigma = np.sqrt(np.maximum(eigenvalues, 0))
    # A stack of zeros has no ratio to test; QR then returns zeros and some orthonormal vectors.
    if sigma[0] > 0 and sigma[r - 1] > _GRAM_LIMIT * sigma[0]:
        return Basis(vectors, sigma, 0.0)
    return _basis_by_qr(S, q, memory)


def _basis_by_qr(S: Any, q: int, memory: ArrayMemory) -> Basis:
    """Return the basis from R of ``[S_1; ...; S_k] = Q R``, which has the same right singular vectors.

    The S_i below each other are the transpose of the flattening. R is updated chunk by chunk: memory O(p^2).
    """
    R = None
    for part in context_chunks(S, memory):
        F = _rows(S, part, memory)
        # [R; F] has the Gram matrix R^T R + F^T F, that of all rows so far, so Q is never needed.
        R = memory.triangle(F if R is None else memory.stacked([R, F]))
    # The right singular vectors of R are those of F, and so the left ones of the flattening F^T.
    _, sigma, Vt = np.linalg.svd(memory.receive(R), full_matrices=False)
    return Basis(np.ascontiguousarray(Vt[:q].T), sigma[:q], 0.0)


def _is_narrow(q: int, p: int) -> bool:
    """Whether ``q`` of ``p`` directions are so few that iterating on them beats a whole eigendecomposition."""
    return p > max(_SMALL, 4 * (q + _SPARE))


def _in_lanes(n: int) -> int:
    """Round ``n`` up to a number of columns for which BLAS is written."""
    return -(-n // _LANES) * _LANES


def _rows(S: Any, part: slice, memory: ArrayMemory) -> Any:
    """Return the covariances of some contexts below each other (k' p, p), in float64."""
    return memory.xp.reshape(memory.double(S[part, ...]), (-1, S.shape[1]))


def _gram(S: Any, memory: ArrayMemory) -> Any:
    """Return ``sum_i S_i S_i`` in float64, where S is. Cost O(k p^3), memory O(p^2)."""
    k, p, _ = S.shape
    if memory.flattens_without_copy(S):
        # A view of the whole stack: one product, and no sum of p x p matrices over chunks.
        F = _rows(S, slice(0, k), memory)
        n_pieces = -(-F.size // _PIECE_NUMBERS) if p <= _THIN else _even_share(min(k // _PIECE_CONTEXTS, _MOST_PIECES))
        workers = n_workers()
        if n_pieces < workers or F.size < 4 * _PIECE_NUMBERS:
            return F.T @ F
        # Threads of BLAS, which share out columns, wait for each other: by a third of the time, and longer for a thin
        # F. Pieces do not depend on the number of threads; only whether there are any does, above.
        step = -(-len(F) // n_pieces)
        products = each(lambda i: F[i : i + step].T @ F[i : i + step], range(0, len(F), step), workers)
        total = next(products)
        for product in products:
            total += product
        return total
    gram = memory.send(np.zeros((p, p)))
    for part in context_chunks(S, memory):
        F = _rows(S, part, memory)
        gram += F.T @ F
    return gram


def _even_share(n: int) -> int:
    """Return the largest power of two up to n, or 0: pieces that two, four or eight threads end with at once."""
    return 1 << (n.bit_length() - 1) if n else 0


def _squared_times(S: Any, Q: Array, memory: ArrayMemory) -> Array:
    """Return ``sum_i S_i (S_i Q)`` in float64, on the host."""
    if memory.flattens_without_copy(S):
        return _in_pieces(S, lambda F: F.T @ (F @ Q))
    columns = memory.send(Q)
    total = memory.send(np.zeros(Q.shape))
    for part in context_chunks(S, memory):
        F = _rows(S, part, memory)
        total += F.T @ (F @ columns)
    return memory.receive(total)


def _in_single_precision(S: Array) -> Callable[[Array], Array] | None:
    """Return the function ``Q -> sum_i S_i (S_i Q)`` with products in float32.

    None where single precision does not reach that far, or all is 0.
    """
    # No entry of a covariance is larger than its largest variance.
    largest = float(np.einsum("kpp->kp", S).max())
    if not _LEAST_SINGLE < largest < 1 / _LEAST_SINGLE:
        return None
    # Entries that are far from 1 are brought there by a power of two.
    e = int(np.frexp(largest)[1])
    factor = None if abs(e) <= _FAR_FROM_ONE else np.float32(2.0**-e)

    def times(Q: Array) -> Array:
        columns = Q.astype(np.float32)

        def squared(F: Array) -> Array:
            rounded = F.astype(np.float32)
            if factor is not None:
                rounded *= factor
            return rounded.T @ (rounded @ columns)

        product = _in_pieces(S, squared).astype(np.float64)
        return product if factor is None else product * 4.0**e

    return times


def _in_pieces(S: Array, call: Callable[[Array], Array]) -> Array:
    """Return the sum of ``call`` over pieces of the rows of all covariances (k p, p), in two threads of our own.

    Products with few columns are too thin for those of BLAS. Each thread adds up half of the pieces: with few contexts
    more sums would take memory that counts beside the stack. A piece is at least a quarter of a covariance, since each
    makes a result, or a chunk where that is larger.
    """
    p = S.shape[1]
    F = S.reshape(-1, p)
    step = max(HOST.chunk_numbers(S) // p, -(-p // 4))
    pieces = [F[i : i + step] for i in range(0, len(F), step)]

    def add_up(half: list[Array]) -> Array:
        total = call(half[0])
        for piece in half[1:]:
            total += call(piece)
        return total

    middle = -(-len(pieces) // 2)
    halves = [half for half in (pieces[:middle], pieces[middle:]) if half]
    total, *other = each(add_up, halves, min(n_workers(), 2) if F.size > _WORTHWHILE_NUMBERS else 1)
    for part in other:
        total += part
    return np.asarray(total)


def subspace_iteration(
    times: Callable[[Array], Array],
    p: int,
    q: int,
    r: int,
    tol: float = EXACT,
    rough: Callable[[Array], Array] | None = None,
    *,
    width: int | None = None,
    most: float = _MOST_PRODUCTS,
) -> tuple[Array, Array] | None:
    """Return the top ``q`` eigenvalues and eigenvectors, largest first, of the positive semi-definite G in ``times``.

    The block has ``width`` columns, by default q and a few more, so the top r converge at the rate of eigenvalue q over
    eigenvalue r, and their residuals certify them, or what is left of these after multiplying them by G once more; what
    lies between r and q is a good subspace and no more, which is all that a core needs. None when two dozen products
    did not certify the first r, or as soon as more than ``most`` others seem to be needed for it.

    ``rough`` is a cheaper product, in single precision. The first steps make do with it, and so do corrections: what is
    left of G u / w = u + d, d = (G u - w u) / w, is G d / w, where d is small, so that few digits of G d are needed,
    and so on: the eigenvector is u + d + G d / w + ..., in which all terms are orthogonal to the leading vectors.

    ``_linalg.eigenbasis.top_eigenvectors`` solves the same problem for products that are passes over the rows: it keeps
    all blocks, to need as few products as possible. Here a product is a matrix product in memory, and what Lanczos
    saves in products it spends on orthogonalising: it takes 0.9 to 3 times as long (p from 300 to 1,500, r from 10 to
    30). Both agree on the first r directions to 1e-10, but not on the others up to q, so they are not interchangeable.
    """
    # The seed is fixed, so that the same covariances always give the same basis. A random start has a part along every
    # eigenvector; the first product already damps those of small eigenvalues.
    first = times if rough is None else rough
    width = max(q + _SPARE_BEYOND_Q, r + _SPARE) if width is None else width
    Z = first(np.random.default_rng(0).standard_normal((p, width)))
    # Without a look at residuals: they cannot be small yet, or would not certify single precision.
    for i in range(1 if rough is None else _ROUGH_PRODUCTS):
        Q = np.linalg.qr(Z)[0]
        Z = first(Q)
        # The three in single precision count as one and a half.
        if i == 0 and most < _MOST_PRODUCTS and _left(np.linalg.eigvalsh(Q.T @ Z)[::-1], r, most + 1.5) > tol:
            return None
    for _ in range(_MOST_PRODUCTS):
        # Orthogonalised before each product, since columns would otherwise all turn to the first vector.
        Q = np.linalg.qr(Z)[0]
        Z = times(Q)
        # Rayleigh and Ritz: the best eigenvectors within the span of Q, and by G Q, which is known, their residuals.
        # Q^T G Q is symmetric up to rounding; ``eigh`` reads one triangle only, so it need not be symmetrised.
        ascending, rotation = np.linalg.eigh(Q.T @ Z)
        w = ascending[::-1]
        rotation = rotation[:, ::-1]
        residuals = Z @ rotation[:, :r] - (Q @ rotation[:, :r]) * w[:r]
        residual = np.linalg.norm(residuals, axis=0).max()
        # The second bound is the rounding of the products themselves, which no step gets below.
        allowed = max(tol * w[r - 1], 8 * np.finfo(float).eps * w[0])
        # All that G multiplies outside the span of the leading vectors is at most eigenvalue r + 1, over w.
        shrinking = max(w[r], 0) / w[r - 1] if w[r - 1] > 0 else 1.0
        n_corrections = _corrections(residual / allowed, shrinking) if residual > allowed else 0
        near, most_corrections = (_NEAR, 1) if rough is None else (_NEARLY, 1 + _MOST_CORRECTIONS)
        if not n_corrections or (n_corrections <= most_corrections and residual <= near * w[r - 1]):
            vectors = Q @ np.ascontiguousarray(rotation[:, :q])
            if n_corrections:
                # The first takes no product: residuals are orthogonal to Q and so to the leading vectors.
                correction = residuals / w[:r]
                vectors[:, :r] += correction
                for _ in range(n_corrections - 1):
                    assert rough is not None
                    correction = rough(correction) / w[:r]
                    vectors[:, :r] += correction
                if residual > _NEAR * w[r - 1]:
                    # One step to the nearest orthonormal columns, which squares the distance to these.
                    vectors = vectors @ (1.5 * np.eye(q) - 0.5 * (vectors.T @ vectors))
            return w[:q], vectors
        if residual * _left(w, r, most) > allowed:
            return None
        del Q  # before the next one is made
    return None


def _left(w: Array, r: int, n: float) -> float:
    """Return the least share of a residual that n products leave, by the eigenvalues w of a block, largest first.

    Each leaves the last of them over the r-th, or more. 0 where the r-th is 0, which tells nothing.
    """
    return float((max(w[-1], 0) / w[r - 1]) ** n) if w[r - 1] > 0 else 0.0


def _corrections(excess: float, shrinking: float) -> int:
    """Return how many factors of ``shrinking``, from 0 to 1, bring ``excess`` down to 1; very many if none do."""
    if not 0 < shrinking < 1:
        return 1 if shrinking == 0 else 1 + _MOST_PRODUCTS
    return int(np.ceil(np.log(excess) / -np.log(shrinking)))
