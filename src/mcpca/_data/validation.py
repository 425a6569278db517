"""Checks of rows as an array: numbers, two dimensions, no NaN. Each error names the argument and the way out."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from .._utils.arguments import check_unmasked
from .._utils.array_api import to_host
from .._utils.types import Array


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
