"""Distances between contexts by their loadings, hierarchical clustering, and an order with similar ones side by side.

Trees and the heatmap of loadings are drawn from it, and ``analysis.trees`` compares its trees with others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
from scipy.spatial.distance import pdist, squareform

from ._utils.array_api import to_host
from ._utils.types import Array

DISTANCE_METRICS = ("correlation", "cosine", "euclidean")
# All of these are monotone: no node lies below its children, so branches have lengths >= 0.
LINKAGE_METHODS = ("average", "complete", "single", "weighted", "ward")
_MOST_ORDERED = 500  # contexts up to which leaves are put into their best order, which costs O(k^3)


def context_distances(B: Any, metric: str = "correlation") -> Array:
    """Return the distances between the rows of B, condensed as SciPy's ``pdist`` does: (k (k - 1) / 2,).

    Parameters
    ----------
    B : array-like (k, r)
        Loadings; ``corrected_loadings_`` if contexts differ in noise, which is a part of ``loadings_``.
    metric : {"correlation", "cosine", "euclidean"}
        The first two are 1 - correlation and 1 - cosine, which do not depend on the total variance of a context. A row
        without a correlation (constant) or a cosine (zero) is at distance 1 from all others, and at 0 from rows of
        its kind. With a single MCPC every row is constant.

    Notes
    -----
    Cost O(k^2 r).
    """
    B = np.asarray(to_host(B), dtype=np.float64)
    if B.ndim != 2 or 0 in B.shape or not np.isfinite(B).all():
        raise ValueError(f"B must be a (k, r) matrix of finite loadings, got shape {B.shape}.")
    if metric not in DISTANCE_METRICS:
        raise ValueError(f"metric={metric!r} is unknown; choose one of {list(DISTANCE_METRICS)}.")
    # B (k, r); Z below (k, r) with unit rows, whose products are cosines or correlations.
    if metric == "euclidean":
        return np.asarray(pdist(B))
    # Neither metric depends on the size of a row: scaled to at most 1, squares neither overflow nor vanish.
    largest = np.abs(B).max(axis=1, keepdims=True)
    Z = B / np.where(largest > 0, largest, 1)
    if metric == "correlation":
        Z = Z - Z.mean(axis=1, keepdims=True)
    size = np.linalg.norm(Z, axis=1)
    varies = size > np.finfo(float).eps * np.sqrt(B.shape[1])  # a constant row leaves rounding, not zeros
    Z = np.where(varies[:, None], Z / np.where(varies, size, 1)[:, None], 0)
    # Zero rows of Z give 1; rounding may leave [0, 2].
    D = np.clip(1 - Z @ Z.T, 0, 2)
    # Rows that do not vary are alike, and must not keep the 1 of a zero product.
    D[np.ix_(~varies, ~varies)] = 0
    np.fill_diagonal(D, 0)
    return np.asarray(squareform(D, checks=False))


def context_linkage(B: Any, *, method: str = "average", metric: str = "correlation") -> Array:
    """Cluster contexts by their loadings; return SciPy's linkage matrix (k - 1, 4).

    Parameters
    ----------
    B : array-like (k, r)
        Loadings of at least two contexts.
    method : {"average", "complete", "single", "weighted", "ward"}
        Distance between two clusters; "ward" needs ``metric="euclidean"``.
    metric : {"correlation", "cosine", "euclidean"}
        See ``context_distances``.

    Notes
    -----
    For up to 500 contexts, leaves are in the order with the smallest sum of distances between neighbours: cost
    O(k^2 r + k^3). Beyond that they are in the order of the clustering: O(k^2 r).
    """
    if method not in LINKAGE_METHODS:
        raise ValueError(f"method={method!r} is unknown; choose one of {list(LINKAGE_METHODS)}.")
    if method == "ward" and metric != "euclidean":
        raise ValueError(f"method='ward' needs metric='euclidean', got metric={metric!r}; change one of them.")
    distances = context_distances(B, metric)
    if not len(distances):
        raise ValueError("B has 1 context, and a tree needs at least 2.")
    Z = linkage(distances, method)
    # Z has k - 1 rows. The order of children carries no meaning in a tree and is free to choose.
    if len(Z) < _MOST_ORDERED:
        Z = optimal_leaf_ordering(Z, distances)
    return np.asarray(Z)


def similar_order(B: Array) -> Array:
    """Return an order of the rows of B in which neighbours are similar: the leaves of average linkage by cosine."""
    # Two contexts are neighbours in any order.
    if len(B) < 3:
        return np.arange(len(B))
    return np.asarray(leaves_list(context_linkage(B, metric="cosine")))
