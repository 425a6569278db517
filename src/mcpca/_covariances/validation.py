"""Checks of covariances that users pass: shape, finite numbers, symmetry, definiteness; and of numbers of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._utils.arguments import check_unmasked
from .._utils.array_api import to_host
from .._utils.parallel import each, n_workers
from .._utils.types import Array

# Rounding leaves S slightly asymmetric or slightly indefinite; beyond these multiples of eps * |S| it is
# the caller's mistake and not arithmetic's.
SYMMETRY_ULPS = 1e4
NEGATIVE_ULPS = 1e2
_FAR = 1e200  # a squared norm beyond which, and below the inverse of which, powers may be no numbers
_CHUNK = 2**18  # numbers in a temporary: 2 MB
_BLOCK, _WHOLE = 48, 128  # columns of a block, and up to how many are not split


def check_covariances(S: Any, name: str = "S") -> Array:
    """Return ``S`` as a float (k, p, p) stack of finite, symmetric, positive semi-definite matrices.

    Symmetry and finiteness are tested by one random probe, ``S_i x`` against ``S_i^T x``: O(k p^2) without a
    temporary of the stack's size. Definiteness is a Cholesky factorisation of ``S_i`` shifted by rounding.
    """
    A = np.asarray(check_unmasked(to_host(S), name, "recompute those covariances without them"))
    check_stack_form(A, name)
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
    x = probe(p).astype(A.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        right, left = np.asarray(A @ x), np.einsum("p,kpq->kq", x, A)
    if not (np.isfinite(right).all() and np.isfinite(left).all()):
        bad = ~np.isfinite(A)
        if bad.any():
            contexts = np.flatnonzero(bad.any(axis=(1, 2)))
            raise ValueError(
                f"{name} contains {int(bad.sum())} NaN or infinite values, in context(s) {contexts[:5].tolist()}; "
                "recompute those covariances from finite data."
            )
    eps = float(np.finfo(A.dtype).eps)
    with np.errstate(over="ignore", under="ignore"):
        squares: Array = np.einsum("kpq,kpq->k", A, A, dtype=np.float64)
    far = ~((squares > 1 / _FAR) & (squares < _FAR)) | ~np.isfinite(right).all(axis=1)
    if far.any():
        # Squares may be no numbers: contexts are looked at in a size where they are.
        sizes = np.maximum(A.max(axis=(1, 2)), -A.min(axis=(1, 2))).astype(np.float64)
        if sizes[far].max() > 0:
            powers = np.where(far & (sizes > 0), -np.frexp(sizes)[1], 0)
            _check_stack_values(np.ldexp(A, powers[:, None, None]), name)
            return
    scale: Array = np.sqrt(squares)
    skew = np.abs(np.subtract(right, left, dtype=np.float64)).max(axis=1)
    bad_context = np.flatnonzero(skew > SYMMETRY_ULPS * eps * np.sqrt(p) * scale)
    if bad_context.size:
        i = int(bad_context[0])
        gap = float(np.abs(A[i] - A[i].T).max())
        raise ValueError(
            f"{name}[{i}] is not symmetric: |S - S^T| reaches {gap:.3g} where |S| is {scale[i]:.3g}; "
            "pass covariances, or (S + S.transpose(0, 2, 1)) / 2 if the asymmetry is only noise."
        )
    _check_definite(A, scale, eps, name)


def probe(p: int) -> Array:
    """Return a vector (p,) that tells S_i from its transpose.

    Between 0.5 and 1.5, so that a rounding error is not amplified; the seed is fixed, since it decides no result.
    """
    return np.random.default_rng(0).uniform(0.5, 1.5, p)


def check_stack_form(A: Array, name: str) -> None:
    """Raise where ``A`` is no (k, p, p) stack of real numbers."""
    if A.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {name} has dtype {A.dtype}; pass real covariances.")
    if A.ndim != 3 or A.shape[1] != A.shape[2]:
        hint = " A single matrix is S[None]." if A.ndim == 2 else ""
        raise ValueError(f"{name} must be a (k, p, p) stack of covariances, got shape {A.shape}.{hint}")
    if 0 in A.shape:
        raise ValueError(f"{name} is empty: shape {A.shape}; pass at least one context and one feature.")


def check_counts(n_samples: Any, k: int) -> Array:
    """Return numbers of samples (k,) of contexts."""
    counts = np.asarray(check_unmasked(to_host(n_samples), "n_samples", "every context needs its number"))
    counts = np.full(k, counts) if counts.ndim == 0 else counts
    if counts.shape != (k,) or counts.dtype.kind not in "iu" or (counts < 2).any():
        raise ValueError(
            f"n_samples={n_samples!r}: one integer >= 2 per context is needed, {k} of them or one for all."
        )
    return counts


def _check_definite(S: Array, scale: Array, eps: float, name: str) -> None:
    """Raise when an eigenvalue is negative beyond rounding; memory O(p^2)."""
    k, p, _ = S.shape
    # Many contexts: side by side, each with a copy and its factor. Few: with half a copy, by the threads of BLAS.
    available = n_workers() if p > _WHOLE else 1
    workers = available if k >= 16 * available else 1
    step = max(1, min(_CHUNK, S.size // 16) // (p * p)) if workers == 1 else 1
    width = p if workers > 1 or p <= _WHOLE else max(_BLOCK, p // 12)
    shift = np.where(scale > 0, NEGATIVE_ULPS * eps * p * scale, 1)
    failed: list[slice] = []

    def attempt(part: slice) -> None:
        try:
            _factor(S[part], shift[part], width)
        except np.linalg.LinAlgError:
            failed.append(part)

    for _ in each(attempt, [slice(i, i + step) for i in range(0, k, step)], workers):
        if failed:
            break
    if failed:
        part = min(failed, key=lambda part: part.start)
        smallest = np.linalg.eigvalsh(S[part].astype(np.float64))[:, 0]
        worst = int(np.argmin(smallest / np.maximum(scale[part], np.finfo(float).tiny)))
        i = part.start + worst
        raise ValueError(
            f"{name}[{i}] is not positive semi-definite: its smallest eigenvalue is {smallest[worst]:.3g} and "
            f"|S| is {scale[i]:.3g}; a covariance has none below 0. Pass covariances, not correlations with gaps "
            "or differences of covariances."
        )


def _factor(S: Array, shift: Array, width: int) -> None:
    """Cholesky's factorisation of ``S_i + shift_i I``, only to see whether it exists.

    By blocks of columns, of which only what lies below the diagonal is kept: with narrow ones half the room of S.
    """
    p = S.shape[1]
    below: list[Array] = []  # per block, the rows of the factor that are still to be used
    for j in range(0, p, width):
        panel = S[:, j:, j : j + width].astype(np.float64)
        diagonal = np.arange(panel.shape[2])
        panel[:, diagonal, diagonal] += shift[:, None]
        for rows in below:
            panel -= rows @ rows[:, : len(diagonal)].transpose(0, 2, 1)
        head = np.linalg.cholesky(panel[:, : len(diagonal)])
        if j + width < p:
            below = [rows[:, len(diagonal) :] for rows in below]
            below.append(panel[:, len(diagonal) :] @ np.linalg.inv(head).transpose(0, 2, 1))
