"""AnnData: the matrix and the names of its features."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._utils.types import Array


def is_anndata(X: Any) -> bool:
    """Whether X is an AnnData, in memory or backed; told by its type, so that nothing is read."""
    return all(hasattr(type(X), name) for name in ("X", "obs", "var_names"))


def anndata_parts(X: Any) -> tuple[Any, Array]:
    """Return the matrix of an AnnData and its feature names (p,) of str. Nothing of a backed matrix is read."""
    if not is_anndata(X):
        raise TypeError(f"X is a {type(X).__name__} and no AnnData (with X, obs and var_names); pass an AnnData.")
    try:
        matrix = X.X
    except (OSError, ValueError, KeyError) as error:
        raise OSError(
            f"X is an AnnData whose matrix could not be opened ({type(error).__name__}: {error}). Its file may be "
            "closed, cut short or damaged: open it again, or copy it again."
        ) from error
    if matrix is None:
        raise ValueError("X is an AnnData without a matrix: its X is None; set adata.X, to adata.layers[...] say.")
    return matrix, np.asarray(X.var_names).astype(str)
