"""Whether arrays from a file can be counts, means and scatters of rows: nothing in a file is trusted."""

from __future__ import annotations

import numpy as np

from .._utils.types import Array

# Rows of a context beyond which a count in a file is taken for a mistake.
_MOST_ROWS = 10**12
# How far a scatter in a file may be from symmetric and positive semi-definite, as a share of its largest entry: what
# sums of float32 rows leave. Smaller, and files of such rows would be refused.
ROUNDING = 1e-5


def check_array(name: str, values: Array, shape: tuple[int, ...], kinds: str) -> None:
    """Raise unless an array has this shape, a type of these kinds, and finite values."""
    if values.shape != shape or values.dtype.kind not in kinds:
        raise ValueError(f"{name} is {values.dtype} of shape {values.shape} where {shape} is needed")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} has values that are NaN or infinite")


def check_moments(contexts: Array, counts: Array, means: Array, scatters: Array, feature_names: Array | None) -> None:
    """Raise an error that says what is wrong with counts, means and scatters that cannot come from rows."""
    k = len(contexts)
    p = means.shape[-1]
    check_array("counts", counts, (k,), "iu")
    check_array("means", means, (k, p), "f")
    check_array("scatters", scatters, (k, p, p), "f")
    if feature_names is not None and len(feature_names) != p:
        raise ValueError(f"it has {len(feature_names)} names for {p} features")
    for name, n, M in zip(contexts.tolist(), counts.tolist(), scatters, strict=True):
        if not 1 <= n <= _MOST_ROWS:
            raise ValueError(f"context {name!r} has a count of {n:,}, where 1 to {_MOST_ROWS:,} rows are plausible")
        # One scatter at a time: temporaries of p x p, not of the stack.
        check_scatter(M, f"the scatter of context {name!r}")


def check_scatter(M: Array, what: str, size: float | None = None) -> None:
    """Raise unless M (p, p) is symmetric and positive semi-definite, up to rounding of numbers of this size.

    Cost O(p^3).
    """
    size = float(np.abs(M).max(initial=0.0)) if size is None else size
    gap = float(np.abs(M - M.T).max(initial=0.0))
    if gap > ROUNDING * size:
        raise ValueError(f"{what} is not symmetric: |M - M^T| is {gap:.3g} of {size:.3g}")
    # A scatter plus its rounding times the identity is positive definite, so it has a Cholesky factor.
    # Divided by its size first, so that the shift is a share of it and neither over- nor underflows.
    p = len(M)
    try:
        np.linalg.cholesky(M / max(size, np.finfo(M.dtype).tiny) + ROUNDING * np.sqrt(p) * np.eye(p))
    except np.linalg.LinAlgError:
        smallest = float(np.linalg.eigvalsh(M)[0])
        raise ValueError(
            f"{what} is not positive semi-definite: its smallest eigenvalue is {smallest:.3g} and its largest entry "
            f"{size:.3g}"
        ) from None
