"""Checks of rows that are converted to an array in memory: numbers, two dimensions, no NaN.

For arrays, DataFrames and nested lists; what is read block by block is checked by ``blocks``. Each error names the
argument and the way out. The wording of some is what scikit-learn's estimator checks look for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from .._utils.arguments import check_unmasked
from .._utils.array_api import to_host
from .._utils.types import Array
from .._utils.wording import listed
from .blocks import has_finite_sum


def check_rows(X: Any, where: str) -> Array:
    """Return rows as a 2-D float32 or float64 array, without a copy where possible; values are not looked at."""
    if scipy.sparse.issparse(X):
        raise TypeError(f"{where} is a sparse matrix, and this needs a dense array; pass X.toarray().")
    X = to_host(X)
    # Before the conversion, in which a single column of text makes everything objects, and the error would name none.
    non_numeric = _non_numeric_columns(X)
    if non_numeric:
        raise ValueError(f"{where} has non-numeric columns {non_numeric}; drop or encode them.")
    try:
        # NumPy drops masks silently. It raises ValueError for nested lists of different lengths.
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
    # Integers, booleans, float16, and objects if they are all numbers. float32 stays, for half the memory.
    if A.dtype not in (np.float32, np.float64):
        try:
            A = A.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{where} has dtype {A.dtype}, which is not numeric ({error}); pass numbers.") from error
    return A


def _non_numeric_columns(X: Any) -> list[Any]:
    """Return the names of a DataFrame's columns that cannot be cast to float; none for other inputs."""
    if not (hasattr(X, "dtypes") and hasattr(X, "columns")):
        return []
    # Nullable and Arrow types of pandas, and all types of polars, are not NumPy's.
    kinds = [dtype.kind if isinstance(dtype, np.dtype) else _extension_kind(dtype) for dtype in X.dtypes]
    return [c for c, kind in zip(X.columns, kinds, strict=True) if kind not in "biuf"]


def _extension_kind(dtype: Any) -> str:
    """Return NumPy's letter for a column type of pandas or polars: b, f for any number, or O."""
    if str(dtype) == "Boolean":  # polars does not count it as numeric; pandas does
        return "b"
    is_numeric = getattr(dtype, "_is_numeric", None)  # pandas, a property
    if is_numeric is None:
        is_numeric = getattr(dtype, "is_numeric", lambda: False)()  # polars, a method
    return "f" if is_numeric else "O"


def check_finite(A: Array, where: str, features: Array | None) -> None:
    """Raise if an array has NaN or infinite values; the error says how many and in which ``features`` (names)."""
    if has_finite_sum(A):
        return
    # Only now a mask as large as A; it may also show that the sum of finite values has overflowed.
    bad = ~np.isfinite(A)
    if not bad.any():
        return
    columns = np.flatnonzero(bad.any(axis=0))
    names = columns if features is None else features[columns]
    raise ValueError(
        f"{where} contains {int(np.isnan(A).sum())} NaN and {int(np.isinf(A).sum())} infinite (inf) values, in "
        f"feature(s) {listed(names)}; impute or drop them before fitting."
    )
