"""Checks of covariances that users pass: shape, finite numbers, symmetry, definiteness; and of numbers of rows.

Every public function that takes a NumPy stack calls ``check_covariances``; ``device_validation`` does the same on a
device, and comes here for the message if something is wrong. The checks cost O(k p^3), as does the basis of a fit,
and take care to need little memory beside the stack.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg.lapack import dpftrf, dtrttf, strttf

from .._utils.arguments import check_unmasked
from .._utils.array_api import to_host
from .._utils.types import Array
from .._utils.wording import listed

# Rounding leaves S slightly asymmetric or slightly indefinite. Beyond these multiples of eps * |S|, times sqrt(p) and
# p, it is the caller's mistake and not that of the arithmetic. Smaller multiples would refuse covariances that were
# computed correctly; larger ones would let mistakes pass.
SYMMETRY_ULPS = 1e4
NEGATIVE_ULPS = 1e2
# A squared norm beyond which, or below the inverse of which, its square may overflow or underflow.
_FAR_FROM_ONE = 1e200
# Numbers in a temporary of small covariances that are factored together: 2 MB, and at most a sixteenth of the stack.
_FACTOR_CHUNK_NUMBERS = 2**18
_FACTOR_CHUNK_SHARE = 16
# Up to so many columns covariances are factored several in a call.
_SMALL = 128


def check_covariances(S: Any, name: str = "S") -> Array:
    """Return ``S`` as a float (k, p, p) stack of finite, symmetric, positive semi-definite matrices.

    Symmetry and finiteness are tested by one random probe, ``S_i x`` against ``S_i^T x``: O(k p^2) without a
    temporary of the stack's size. Definiteness is tested by a Cholesky factorisation of ``S_i`` plus its rounding times
    the identity.
    """
    A = np.asarray(check_unmasked(to_host(S), name, "recompute those covariances without them"))
    check_stack_form(A, name)
    # float32 is kept: converting it would double the stack, and the products of a solver are in float64 anyway.
    if A.dtype not in (np.float32, np.float64):
        try:
            A = A.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name} has dtype {A.dtype}, which is not numeric ({error}).") from error
    _check_stack_values(A, name)
    return A


def _check_stack_values(A: Array, name: str) -> None:
    """Raise where a float (k, p, p) stack has a matrix that is not finite, symmetric and positive semi-definite."""
    p = A.shape[1]
    # A (k, p, p), x (p,), right and left (k, p). In the precision of A, lest the product convert the whole stack.
    x = probe(p).astype(A.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        right = np.asarray(A @ x)
        left = np.einsum("p,kpq->kq", x, A)
    if not (np.isfinite(right).all() and np.isfinite(left).all()):
        # A product may also have overflowed; only now is a mask of the stack's size worth its memory.
        bad = ~np.isfinite(A)
        if bad.any():
            contexts = np.flatnonzero(bad.any(axis=(1, 2)))
            raise ValueError(
                f"{name} contains {int(bad.sum())} NaN or infinite values, in context(s) {listed(contexts)}; recompute "
                "those covariances from finite data."
            )
    eps = float(np.finfo(A.dtype).eps)
    with np.errstate(over="ignore", under="ignore"):
        # Summed in float64, where squares of float32 can neither overflow nor vanish.
        squares: Array = np.einsum("kpq,kpq->k", A, A, dtype=np.float64)
    far = ~((squares > 1 / _FAR_FROM_ONE) & (squares < _FAR_FROM_ONE)) | ~np.isfinite(right).all(axis=1)
    if far.any():
        # Such contexts are checked again times a power of two, which is exact: no check depends on the scale.
        sizes = np.maximum(A.max(axis=(1, 2)), -A.min(axis=(1, 2))).astype(np.float64)
        # Covariances of zeros are far from 1 as well, and cannot be scaled. All others are between 1/2 and 1 in size
        # after scaling, so that this calls itself once only.
        if sizes[far].max() > 0:
            powers = np.where(far & (sizes > 0), -np.frexp(sizes)[1], 0)
            _check_stack_values(np.ldexp(A, powers[:, None, None]), name)
            return
    # The Frobenius norm, of which rounding leaves a share of about eps sqrt(p) in a product with the probe.
    scale: Array = np.sqrt(squares)
    skew = np.abs(np.subtract(right, left, dtype=np.float64)).max(axis=1)
    asymmetric = np.flatnonzero(skew > SYMMETRY_ULPS * eps * np.sqrt(p) * scale)
    if asymmetric.size:
        i = int(asymmetric[0])
        # For the message only: of one context, a temporary of p x p is no matter.
        gap = float(np.abs(A[i] - A[i].T).max())
        raise ValueError(
            f"{name}[{i}] is not symmetric: |S - S^T| reaches {gap:.3g} where |S| is {scale[i]:.3g}; "
            "pass covariances, or (S + S.transpose(0, 2, 1)) / 2 if the asymmetry is only noise."
            + contexts_last(A, name)
        )
    _check_definite(A, scale, eps, name)


def probe(p: int) -> Array:
    """Return a vector x (p,) for which ``S_i x`` and ``S_i^T x`` differ if S_i is not symmetric.

    Entries between 0.5 and 1.5 do not amplify rounding errors; the seed is fixed, since it decides no result.
    """
    return np.random.default_rng(0).uniform(0.5, 1.5, p)


def contexts_last(A: Array, name: str) -> str:
    """Return the way out for covariances stacked along the last axis, (p, p, k); "" for anything else."""
    if A.ndim != 3 or A.shape[0] != A.shape[1] or A.dtype.kind not in "fiu" or not A.size:
        return ""
    # For the message only. Symmetry in the first two axes is what (p, p, k) has and a wrong (k, p, q) has not.
    if float(np.abs(A - A.transpose(1, 0, 2)).max()) > 1e-8 * float(np.abs(A).max()):
        return ""
    return (
        f" Its contexts seem to be along the last axis, as in the authors' package: pass {name}.transpose(2, 0, 1), of "
        f"shape {(A.shape[2], *A.shape[:2])}."
    )


def check_stack_form(A: Array, name: str) -> None:
    """Raise where ``A`` is not a (k, p, p) stack of real numbers."""
    if A.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {name} has dtype {A.dtype}; pass real covariances.")
    if A.ndim != 3 or A.shape[1] != A.shape[2]:
        hint = " A single matrix is S[None]." if A.ndim == 2 else contexts_last(A, name)
        raise ValueError(f"{name} must be a (k, p, p) stack of covariances, got shape {A.shape}.{hint}")
    if 0 in A.shape:
        raise ValueError(f"{name} is empty: shape {A.shape}; pass at least one context and one feature.")


def check_counts(n_samples: Any, k: int, name: str = "n_samples") -> Array:
    """Return the numbers of samples of contexts (k,), from one for each or one for all."""
    counts = np.asarray(check_unmasked(to_host(n_samples), name, "every context needs its number"))
    # Two rows at least: with one, the divisor n - 1 of a covariance is 0.
    counts = np.full(k, counts) if counts.ndim == 0 else counts
    if counts.shape != (k,) or counts.dtype.kind not in "iu" or (counts < 2).any():
        raise ValueError(f"{name}={n_samples!r}: one integer >= 2 per context is needed, {k} of them or one for all.")
    return counts


def _check_definite(S: Array, scale: Array, eps: float, name: str) -> None:
    """Raise where an eigenvalue is negative beyond rounding; memory O(p^2).

    ``S_i + shift_i I`` has a Cholesky factor where no eigenvalue is below ``-shift_i``. That costs far less than the
    eigenvalues, which are computed for the message only.
    """
    k, p, _ = S.shape
    # Small contexts are factored several in a call; large ones one after the other, by the threads of BLAS.
    step = 1
    if p <= _SMALL:
        step = max(1, min(_FACTOR_CHUNK_NUMBERS, S.size // _FACTOR_CHUNK_SHARE) // (p * p))
    # A covariance of zeros is positive semi-definite; any positive shift gives it a factor.
    shift = np.where(scale > 0, NEGATIVE_ULPS * eps * p * scale, 1)
    failed = None
    for part in (slice(i, i + step) for i in range(0, k, step)):
        if not (_have_factors(S[part], shift[part]) if p <= _SMALL else _has_factor(S[part.start], shift[part.start])):
            failed = part
            break
    if failed is not None:
        part = failed
        # Relative to its size, since contexts of one slice may differ by orders of magnitude.
        smallest = np.linalg.eigvalsh(S[part].astype(np.float64))[:, 0]
        worst = int(np.argmin(smallest / np.maximum(scale[part], np.finfo(float).tiny)))
        i = part.start + worst
        raise ValueError(
            f"{name}[{i}] is not positive semi-definite: its smallest eigenvalue is {smallest[worst]:.3g} and "
            f"|S| is {scale[i]:.3g}; a covariance has none below 0. Pass covariances, not correlations with gaps "
            "or differences of covariances."
        )


def _have_factors(S: Array, shift: Array) -> bool:
    """Whether all ``S_i + shift_i I`` (k', p, p) have Cholesky factors; memory twice that of S."""
    shifted = S.astype(np.float64)
    diagonal = np.arange(S.shape[1])
    shifted[:, diagonal, diagonal] += shift[:, None]
    try:
        np.linalg.cholesky(shifted)
    except np.linalg.LinAlgError:
        return False
    return True


def _has_factor(S: Array, shift: float) -> bool:
    """Whether ``S + shift I`` (p, p) has a Cholesky factor; memory half that of S, where it is float64."""
    # LAPACK's rectangular full packed format holds the lower half, without gaps, as two triangles side by side that
    # products of matrices can work on. S is symmetric: its transpose is the column order that LAPACK has.
    copy = strttf if S.dtype == np.float32 else dtrttf
    packed = copy(S.T, transr="N", uplo="L")[0].astype(np.float64, copy=False)
    packed[_diagonal_of_packed(len(S))] += shift
    return bool(dpftrf(len(S), packed, transr="N", uplo="L", overwrite_a=1)[1] == 0)


def _diagonal_of_packed(p: int) -> Array:
    """Return where the diagonal (p,) of a matrix is in its rectangular full packed format (N, L)."""
    # An array of (p + 1, p / 2), or (p, (p + 1) / 2) for odd p, by columns. The first half of the diagonal goes down
    # from row 1, or row 0, of its first column; the second, of the triangle that is turned over, from row 0.
    odd = p % 2
    rows, first = p + 1 - odd, (p + odd) // 2
    up = np.arange(first)
    down = np.arange(p - first)
    return np.concatenate([up * rows + up + (1 - odd), (down + odd) * rows + down])
