"""Scores of rows on directions, with an offset instead of centred rows.

For rows x (p,), their mean m and a projection P (r, p),

    (x - m) P^T = x P^T - m P^T,

so the mean is taken off the r scores and not off the p features: sparse rows stay sparse, and dense ones are not
copied. The price is cancellation: the error of a score grows from ``eps |x - m|`` to ``eps (|x| + |m|)``, times the
norm of P. It matters only where means are many orders of magnitude larger than deviations from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse

from .._utils.types import Array
from .blocks import SCAN_BYTES, Source, check_block
from .sparse_products import times


def offset_scores(X: Any, directions: Array, offset: Array) -> Array:
    """Return ``X W - offset`` for rows X (n, p), dense or CSR, and directions W (p, r), which is ``P^T``.

    ``offset`` is (r,), or (n, r) where rows have different ones.
    """
    # Dense (n, r) in either case, since the directions are.
    return times(X, directions) - offset


def offset_scores_by_context(
    X: Any, codes: Array, projections: Sequence[Array], offsets: Array, dtype: np.dtype[Any]
) -> Array:
    """Return ``x P^T - offset`` (n, r) of rows X (n, p), with P and offset of each row's context ``codes`` (n,).

    ``projections`` are one matrix (r, p) for all contexts or one for each, ``offsets`` (1, r) or (k, r) likewise.
    """
    # One projection for all contexts: a single product (n, p) x (p, r), and only the offsets go by context.
    if len(projections) == 1:
        offset = offsets[codes] if len(offsets) > 1 else offsets[0]
        return np.asarray(offset_scores(X, projections[0].T, offset), dtype=dtype)
    # In the order of the rows, not of their contexts: scores go back to the user next to the rows.
    Z = np.empty((len(codes), offsets.shape[1]), dtype=dtype)
    for i in np.unique(codes).tolist():
        # Only contexts in this block: with many contexts a block has rows of few.
        rows = np.flatnonzero(codes == i)
        Z[rows] = offset_scores(X[rows], projections[i].T, offsets[i])
    return Z


def projected_rows(source: Source, directions: Array, dtype: Any = np.float64) -> Array:
    """Return ``X W`` (n, r) of all rows of a source, for W (p, r), or (n,) for W (p,).

    One pass, which raises for values that are not finite. Memory: the result and a block of rows. Of rows on Dask only
    the products come here.
    """
    products = getattr(source, "products", None)
    if products is not None:
        return np.asarray(products(directions), dtype=dtype)
    # Shape and type are known beforehand, so blocks go straight to their rows, and nothing is joined at the end.
    Z = np.empty((source.shape[0], *directions.shape[1:]), dtype=dtype)
    for first, block in source.scan(SCAN_BYTES):
        # Before the product: afterwards NaN has spread over whole rows of Z, and its feature is no longer known.
        check_block(block, first, "X")
        Z[first : first + block.shape[0]] = block @ directions
    return Z


def transposed_product(W: Any, X: Any) -> Array:
    """Return ``W^T X`` (m, p) in float64, for a sparse W (n, m) and rows X (n, p), dense or CSR."""
    product: Any = W.T.tocsr() @ X
    return np.asarray(product.toarray() if scipy.sparse.issparse(product) else product, dtype=np.float64)
