"""The two poles of an MCPC: the features with the most negative and the most positive entries.

Bar plots, cards, reports, tables and gene set tests all take their features from here, so that they agree on order and
ties, and on what a percentile is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ._utils.arguments import check_integer
from ._utils.array_api import to_host
from ._utils.types import Array

N_FEATURES = 25  # at each pole in reports and tables of features


class Pole(NamedTuple):
    """Features at one end, the strongest first: their ``indices`` (m,), ``names`` and ``values`` (m,)."""

    indices: Array
    names: list[str]
    values: Array


class Poles(NamedTuple):
    """Both ends of an MCPC. The sign of an MCPC is a convention, so which end is positive carries no meaning."""

    negative: Pole
    positive: Pole


def poles(components: Any, features: Sequence[Any], j: int, n: int = 10) -> Poles:
    """Return the features at both poles of an MCPC.

    Parameters
    ----------
    components : array-like (p, r)
        A, or ``projection_.T`` for the weights of the scores.
    features : sequence of p names
    j : int
        Column of ``components``.
    n : int
        Number of features at each pole; fewer if fewer have that sign. A feature with an entry of 0 is at no pole.

    Returns
    -------
    Poles
        Ties are in the order of the features.

    Notes
    -----
    Cost O(p log p).

    Examples
    --------
    >>> from mcpca.poles import poles
    >>> ends = poles([[0.6], [-0.8], [0.0]], ["height", "age", "weight"], 0)
    >>> ends.positive.names, ends.negative.names
    (['height'], ['age'])
    """
    A = np.asarray(to_host(components))
    if A.ndim != 2:
        raise ValueError(f"components has shape {A.shape}; a matrix (n_features, n_components) is needed.")
    if len(features) != len(A):
        raise ValueError(f"features has {len(features)} names, but components has {len(A)} rows; pass one for each.")
    j = check_integer(j, "j", 0, A.shape[1] - 1, "MCPCs count from 0, as columns.")
    n = check_integer(n, "n", 1)
    # Negated for the negative pole, so that both are the largest entries of something.
    a = A[:, j]
    return Poles(_strongest(-a, a, features, n), _strongest(a, a, features, n))


def percentiles(components: Any) -> Array:
    """Return the percentile (p, r) of each feature in each MCPC, by the size of its entry.

    It is the percentage of all p features whose entry is smaller in size: ``100 #{l : |a_lj| < |a_ij|} / p``, from 0
    for the smallest to ``100 (p - 1) / p`` for the largest. Features with entries of equal size have the same one.

    Parameters
    ----------
    components : array-like (p, r)
        A, or ``projection_.T`` for the weights of the scores.

    Notes
    -----
    Cost O(p r log p), memory O(p r).

    Examples
    --------
    >>> from mcpca.poles import percentiles
    >>> percentiles([[0.6], [-0.8], [0.0], [0.0]]).ravel().tolist()
    [50.0, 75.0, 0.0, 0.0]
    """
    A = np.asarray(to_host(components))
    if A.ndim != 2:
        raise ValueError(f"components has shape {A.shape}; a matrix (n_features, n_components) is needed.")
    sizes = np.abs(A)
    ordered = np.sort(sizes, axis=0)
    # "left" counts what is strictly smaller.
    smaller = [np.searchsorted(column, size) for column, size in zip(ordered.T, sizes.T, strict=True)]
    return np.asarray(100 * np.reshape(smaller, A.shape[::-1]).T / max(len(A), 1))


def _strongest(size: Array, a: Array, features: Sequence[Any], n: int) -> Pole:
    """Return the n features of largest ``size`` (p,), which is ``a`` or ``-a``."""
    order = np.argsort(-size, kind="stable")[:n]  # stable: ties in the order of the features
    # After the cut to n: sizes descend, so what is dropped here is at the end.
    order = order[size[order] > 0]
    return Pole(order, [str(features[i]) for i in order], a[order])
