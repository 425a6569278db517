"""Checks of covariances that users pass: shape, finite numbers, symmetry, definiteness; and of numbers of rows.

Every public function that takes a NumPy stack calls ``check_covariances``; ``device_validation`` does the same on a
device, and comes here for the message if something is wrong. The checks cost O(k p^3), as does the basis of a fit,
and take care to need little memory beside the stack.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._utils.arguments import check_unmasked
from .._utils.array_api import to_host
from .._utils.parallel import one_thread_each
from .._utils.types import Array
from .._utils.wording import listed
from .array_memory import context_chunks
from .definiteness import indefinite_part

# Rounding leaves S slightly asymmetric or slightly indefinite. Beyond these multiples of eps * |S|, times sqrt(p) and
# p, it is the caller's mistake and not that of the arithmetic. Smaller multiples would refuse covariances that were
# computed correctly; larger ones would let mistakes pass.
SYMMETRY_ULPS = 1e4
NEGATIVE_ULPS = 1e2
# A squared norm beyond which, or below the inverse of which, its square may overflow or underflow.
_FAR_FROM_ONE = 1e200
# Numbers of covariances that are looked at together: 1 MB.
_CACHED_NUMBERS = 2**17


def check_covariances(S: Any, name: str = "S") -> Array:
    """Return ``S`` as a float (k, p, p) stack of finite, symmetric, positive semi-definite matrices.

    Symmetry and finiteness are tested by one random probe, ``S_i x`` against ``S_i^T x``: O(k p^2) without a
    temporary of the stack's size. Definiteness is tested by a Cholesky factorisation of ``S_i`` plus its rounding times
    the identity (``definiteness.py``).
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
    # With one thread of BLAS: memory limits these products, and threads of it would spin beside ours, which come next.
    with np.errstate(over="ignore", under="ignore", invalid="ignore"), one_thread_each():
        right, left, squares = _probed(A)
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


def _probed(A: Array) -> tuple[Array, Array, Array]:
    """Return ``A_i x`` and ``A_i^T x`` (k, p) for the probe x, and the squared norms (k,), of A (k, p, p)."""
    k, p, _ = A.shape
    # In the precision of A, lest the products convert the whole stack.
    x = probe(p).astype(A.dtype)
    right = np.empty((k, p), dtype=A.dtype)
    left = np.empty((k, p), dtype=A.dtype)
    squares = np.empty(k)
    # All three of a few contexts while these are in the cache.
    for part in context_chunks(A, numbers=_CACHED_NUMBERS):
        S = A[part]
        np.matmul(S, x, out=right[part])
        np.matmul(x, S, out=left[part])
        if A.dtype == np.float64 and S.flags.c_contiguous:
            rows = S.reshape(len(S), 1, -1)
            squares[part] = np.matmul(rows, rows.transpose(0, 2, 1))[:, 0, 0]
        else:
            # Summed in float64, where squares of float32 can neither overflow nor vanish.
            squares[part] = np.einsum("kpq,kpq->k", S, S, dtype=np.float64)
    return right, left, squares


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
    """Raise where an eigenvalue is negative beyond rounding. Eigenvalues are computed for the message only."""
    # A covariance of zeros is positive semi-definite; any positive shift gives it a factor.
    part = indefinite_part(S, scale, np.where(scale > 0, NEGATIVE_ULPS * eps * S.shape[1] * scale, 1))
    if part is not None:
        # Relative to its size, since contexts of one slice may differ by orders of magnitude.
        smallest = np.linalg.eigvalsh(S[part].astype(np.float64))[:, 0]
        worst = int(np.argmin(smallest / np.maximum(scale[part], np.finfo(float).tiny)))
        i = part.start + worst
        raise ValueError(
            f"{name}[{i}] is not positive semi-definite: its smallest eigenvalue is {smallest[worst]:.3g} and "
            f"|S| is {scale[i]:.3g}; a covariance has none below 0. Pass covariances, not correlations with gaps "
            "or differences of covariances."
        )
