"""The rows at the ends of axes: those with the largest and the smallest scores."""

from __future__ import annotations

import numpy as np

from .._utils.types import Array


def ends(Z: Array, n: int) -> tuple[Array, Array]:
    """Return the numbers of the n rows with the largest and the smallest entries of each column of Z (N, m): (n, m)."""
    columns = np.ascontiguousarray(Z.T)
    high, low = ([_largest(z, n) for z in signed] for signed in (columns, -columns))
    return np.array(high).T, np.array(low).T


def _largest(z: Array, n: int) -> Array:
    """Return the numbers of the n largest entries of z, the first ones among ties.

    ``np.partition`` takes linear time, which matters for many rows and 50 PCs of every context.
    """
    # The n-th largest entry: all above it are in, and as many of those equal to it as are needed.
    bound = np.partition(z, len(z) - n)[len(z) - n]
    above = np.flatnonzero(z > bound)
    return np.concatenate([above, np.flatnonzero(z == bound)[: n - len(above)]])


def members(numbers: Array, N: int) -> Array:
    """Return an indicator (N, m) of the rows whose numbers are in each column of ``numbers`` (n, m)."""
    inside = np.zeros((N, numbers.shape[1]), dtype=bool)
    np.put_along_axis(inside, numbers, True, axis=0)
    return inside
