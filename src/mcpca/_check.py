"""Checks of arguments: each error names the argument, the value, the bound and the way out."""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ._namespace import to_host
from ._parallel import each, n_workers

Array = NDArray[Any]
Report = Callable[[str, int, int], None]

# Rounding leaves S slightly asymmetric or slightly indefinite; beyond these multiples of eps * |S| it is
# the caller's mistake and not arithmetic's.
SYMMETRY_ULPS = 1e4
NEGATIVE_ULPS = 1e2
FINITE = "pass finite numbers"
_FAR = 1e200  # a squared norm beyond which, and below the inverse of which, powers may be no numbers
_CHUNK = 2**18  # numbers in a temporary: 2 MB
_BLOCK, _WHOLE = 48, 128  # columns of a block, and up to how many are not split


def as_generator(random_state: Any) -> np.random.Generator:
    """Return a Generator of our own; NumPy's global generator is neither read nor moved."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31, size=4))
    if random_state is not None and (isinstance(random_state, bool) or not isinstance(random_state, numbers.Integral)):
        raise ValueError(
            f"random_state={random_state!r} is a {type(random_state).__name__}; pass an integer, a "
            "numpy.random.Generator, a RandomState, or None."
        )
    if random_state is not None and random_state < 0:
        raise ValueError(f"random_state={random_state} is negative; pass an integer >= 0 or None.")
    return np.random.default_rng(None if random_state is None else int(random_state))


def check_integer(value: Any, name: str, low: int, high: int | None = None, way_out: str = "") -> int:
    """Return ``value`` as an int within [low, high]."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise ValueError(f"{name}={value!r} is not an integer (got {type(value).__name__}); pass a whole number.")
    bound = f"{name} >= {low}" if high is None else f"{low} <= {name} <= {high}"
    number = int(value)
    if number < low or (high is not None and number > high):
        raise ValueError(f"{name}={value} is out of bounds: {bound} is needed. {way_out}".strip())
    return number


def check_integers(values: Any, name: str, low: int) -> list[int]:
    """Return one integer or a sequence of them as a list, each at least ``low``."""
    several = [values] if isinstance(values, numbers.Real) else values
    if isinstance(several, str) or not isinstance(several, Iterable):
        raise TypeError(f"{name} is a {type(values).__name__}; pass a whole number, or several.")
    found = [check_integer(value, name, low) for value in several]
    if not found:
        raise ValueError(f"{name} is empty; pass at least one number.")
    return found


def check_real(value: Any, name: str, low: float, high: float, way_out: str = "") -> float:
    """Return ``value`` as a float within [low, high]."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not low <= float(value) <= high:
        raise ValueError(f"{name}={value!r} is out of bounds: {low} <= {name} <= {high} is needed. {way_out}".strip())
    return float(value)


def refuse_without_effect(name: str, value: Any, default: Any, why: str, way_out: str) -> None:
    """Raise where an option is not left at its default though it cannot have an effect; ``why`` completes "because".

    For options that other options, or the kind of input, leave without any. Data (rows, counts) are no option, and what
    these very data make no use of (a checkpoint of few rows, a seed that nothing is drawn from) is nobody's mistake.
    """
    if value is default or (default is not None and np.ndim(value) == 0 and bool(value == default)):
        return
    shown = f"={value!r}" if isinstance(value, (str, numbers.Number, range)) or value is None else ""
    raise ValueError(f"{name}{shown} has no effect, because {why}; {way_out}.")


def check_rank(r: Any, p: int, name: str = "n_components") -> int:
    """Return the rank as an int in [1, p]."""
    return check_integer(r, name, 1, p, f"MCPCA needs 1 <= {name} <= n_features; choose a rank of at most {p}.")


def check_unmasked(X: Any, where: str, way_out: str = "fill them, or drop those rows") -> Any:
    """Return X; raise where it is an array with masked values, which NumPy would take for their numbers."""
    masked = int(np.ma.getmaskarray(X).sum()) if isinstance(X, np.ma.MaskedArray) else 0
    if masked:
        raise ValueError(f"{where} has {masked} masked values; {way_out}.")
    return X


def check_rows(X: Any, where: str) -> Array:
    """Return one context's rows as a finite 2-D float32 or float64 array, without a copy where possible."""
    if scipy.sparse.issparse(X):
        raise TypeError(f"{where} is a sparse matrix, and this needs a dense array; pass X.toarray().")
    X = to_host(X)
    non_numeric = _non_numeric_columns(X)
    if non_numeric:
        raise ValueError(f"{where} has non-numeric columns {non_numeric}; drop or encode them.")
    try:
        A = np.asarray(check_unmasked(X, where))
    except ValueError as error:
        raise ValueError(f"{where} has rows of different lengths ({error}); pass a rectangular array.") from error
    if A.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {where} has dtype {A.dtype}; pass real numbers.")
    if A.ndim == 0:
        raise ValueError(
            f"{where} is a {type(X).__name__} and not rows; pass a 2-D array or DataFrame, a list of them (one per "
            "context), a dict {name: array}, or a (k, p, p) stack of covariances."
        )
    if A.ndim != 2:
        raise ValueError(
            f"{where} must be 2-D (n_samples, n_features), got shape {A.shape}. "
            "Reshape your data: X.reshape(-1, 1) if it has a single feature, X.reshape(1, -1) if a single sample."
        )
    if A.shape[1] == 0:
        raise ValueError(f"{where} has 0 feature(s) (shape={A.shape}) while a minimum of 1 is required.")
    if A.dtype not in (np.float32, np.float64):
        try:
            A = A.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{where} has dtype {A.dtype}, which is not numeric ({error}); pass numbers.") from error
    return A


def _non_numeric_columns(X: Any) -> list[Any]:
    """Names of a DataFrame's columns that no cast to float can take; other inputs have none."""
    if not (hasattr(X, "dtypes") and hasattr(X, "columns")):
        return []
    kinds = [getattr(np.dtype(d), "kind", "O") if isinstance(d, np.dtype) else _extension_kind(d) for d in X.dtypes]
    return [c for c, kind in zip(X.columns, kinds, strict=True) if kind not in "biuf"]


def _extension_kind(dtype: Any) -> str:
    """NumPy's letter for a pandas or polars column type."""
    if str(dtype) == "Boolean":  # of polars; pandas' is numeric
        return "b"
    is_numeric = getattr(dtype, "_is_numeric", None)
    if is_numeric is None:
        is_numeric = getattr(dtype, "is_numeric", lambda: False)()
    return "f" if is_numeric else "O"


def prepare_folder(output: Path) -> None:
    """Make the folder ``output``; raise OSError, before any work is done, when nothing could be written to it."""
    if output.exists() and not output.is_dir():
        raise NotADirectoryError("it is a file")
    output.mkdir(parents=True, exist_ok=True)
    if not os.access(output, os.W_OK | os.X_OK):
        raise PermissionError("no permission to write")


def check_finite(A: Array, where: str, features: Array | None) -> None:
    """Raise with the number and the place of NaN and infinite values."""
    # The sum of finite numbers may overflow, so it only opens the door to the exact test.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(A.sum(dtype=np.float64)):
            return
    bad = ~np.isfinite(A)
    if not bad.any():
        return
    columns = np.flatnonzero(bad.any(axis=0))
    names = [str(features[c]) if features is not None else str(c) for c in columns[:5]]
    more = f" and {len(columns) - 5} more" if len(columns) > 5 else ""
    raise ValueError(
        f"{where} contains {int(np.isnan(A).sum())} NaN and {int(np.isinf(A).sum())} infinite (inf) values, in "
        f"feature(s) {', '.join(names)}{more}; impute or drop them before fitting."
    )


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
    # Between 0.5 and 1.5 a rounding error is not amplified; the seed is fixed, since the probe decides no result.
    x = np.asarray(np.random.default_rng(0).uniform(0.5, 1.5, p), dtype=A.dtype)
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
