"""PCA of rows in memory, to set beside the MCPCs: of one context, of a group of contexts, or of all rows.

The analyses that compare with PCA, the plane of a context and the report all come here with rows that
``fitted_rows.sample_rows`` or the report has drawn. PCA by passes over rows that do not fit in memory is not needed:
everything here works on a sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from sklearn.decomposition import PCA

from .._utils.types import Array

# Up to this many rows or features the smaller Gram matrix is decomposed exactly, which always converges. A larger bound
# costs min(n, q)^3 and a square matrix; a smaller one leaves more to ARPACK, which is slower for dense rows.
_MOST_EXACT = 600


@dataclass(frozen=True)
class Directions:
    """Leading principal components of some rows.

    Attributes
    ----------
    mean : ndarray (q,)
        Mean of the rows.
    vectors : ndarray (q, m)
        Orthonormal columns, in each of which the entry of largest absolute value is positive.
    variances : ndarray (m,)
        Variances along these, descending; divisor n - 1.
    total : float
        Variance in all directions, the trace of the covariance.
    """

    mean: Array
    vectors: Array
    variances: Array
    total: float


def principal_directions(rows: Any, m: int) -> Directions:
    """Return the top ``m`` principal components of rows (n, q), dense or sparse; ``m <= min(n - 1, q)``.

    Sparse rows stay sparse. Cost O(n q min(n, q)) where n or q is at most 600, otherwise O(nnz m) per iteration of
    ARPACK (scikit-learn's PCA) and, for dense rows, a centred copy.
    """
    # rows (n, q), vectors (q, m); for n < q the eigenvectors are (n, m) first.
    n, q = rows.shape
    mean = np.asarray(rows.mean(axis=0, dtype=np.float64)).ravel()
    rows = rows.astype(np.float64)  # always a copy when dense, so it can be centred in place
    if min(n, q) > _MOST_EXACT:
        # ARPACK needs nothing but products with the rows; scikit-learn centres sparse ones implicitly.
        pca = PCA(m, svd_solver="arpack", copy=False, random_state=0).fit(rows)
        # The ratio is the variance over the total, which is not an attribute of its own.
        total = float(pca.explained_variance_[0] / pca.explained_variance_ratio_[0])
        return Directions(mean, pca.components_.T, pca.explained_variance_, total)
    # scikit-learn decomposes X^T X (covariance_eigh) but never X X^T: its SVD of 500 rows of 5,000 features takes six
    # times as long as what follows. And covariance_eigh centres products, which loses digits where means are large.
    if not scipy.sparse.issparse(rows):
        rows -= mean
    products = _centred_products(rows, mean)
    size = len(products)
    # The m largest, in ascending order.
    eigenvalues, eigenvectors = scipy.linalg.eigh(products, subset_by_index=[size - m, size - 1])
    # Rounding may leave eigenvalues of rank-deficient rows slightly below 0.
    variances = np.maximum(eigenvalues[::-1], 0) / (n - 1)
    vectors = eigenvectors[:, ::-1]
    if n < q:
        # X X^T u = s^2 u gives the axis X^T u, of length s.
        vectors = _centred_transpose(rows, mean, vectors)
        # ``tiny`` keeps a direction of length 0, one without variance, from becoming NaN.
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=0), np.finfo(float).tiny)
    # Signs of eigenvectors differ between libraries and machines; this fixes them.
    peak = np.argmax(np.abs(vectors), axis=0)
    signs = np.where(vectors[peak, np.arange(m)] < 0, -1, 1)
    return Directions(mean, vectors * signs, variances, float(np.trace(products)) / (n - 1))


def _centred_products(rows: Any, mean: Array) -> Array:
    """Return the smaller of X^T X (q, q) and X X^T (n, n) of X, the rows less their mean; dense rows are centred.

    Sparse rows are not, and their products are centred afterwards. Little cancels in that: a column with a share d of
    entries that are not zero has mean^2 / variance <= d / (1 - d).
    """
    n, q = rows.shape
    if not scipy.sparse.issparse(rows):
        return np.asarray(rows.T @ rows if q <= n else rows @ rows.T)
    if q <= n:
        # sum_i (x_i - m)(x_i - m)^T = X^T X - n m m^T
        return np.asarray((rows.T @ rows).toarray() - n * np.outer(mean, mean))
    products = (rows @ rows.T).toarray()
    # (I - 1 1^T / n) X X^T (I - 1 1^T / n), the double centring of classical scaling.
    row_means = products.mean(axis=0)
    return np.asarray(products - row_means - row_means[:, None] + products.mean())


def _centred_transpose(rows: Any, mean: Array, U: Array) -> Array:
    """Return X^T U (q, m), where X are the rows less their mean, for ``rows`` as in ``_centred_products``."""
    if scipy.sparse.issparse(rows):
        return np.asarray(rows.T @ U - mean[:, None] * U.sum(axis=0))
    return np.asarray(rows.T @ U)
