"""Local quadratic regression of one variable on another (loess), with interpolation between vertices.

Cleveland's loess as S, R and scikit-misc have it: at a point v the fit is the value at v of the polynomial
``a + b (x - v) + c (x - v)^2`` that minimises ``sum_t w_t (y_t - polynomial)^2`` over the q nearest points, with the
tricube weights ``w_t = (1 - (|x_t - v| / h)^3)^3``, where h is the distance of the q-th. This is done at few vertices
only: the ends of the data and cuts between them, found by halving the points until a cell has at most ``cell span n``
of them. Between two vertices the fit is the cubic with the values a and the slopes b of both.
"""

from __future__ import annotations

import numpy as np

from .._utils.types import Array

# Share of the range by which the outermost vertices lie outside the data.
_MARGIN = 0.005
# Singular values of the equilibrated design below this share of the largest count as 0: equal x determine no slope.
_SINGULAR = 100 * np.finfo(float).eps
# Fewest neighbours that determine a quadratic and leave a degree of freedom.
_FEWEST_NEIGHBOURS = 4


def loess(x: Array, y: Array, *, span: float = 0.3, cell: float = 0.2) -> Array:
    """Return the values (n,) at ``x`` of the loess curve of degree 2 through the points (x, y).

    Parameters
    ----------
    x, y : ndarray (n,)
        Finite numbers, in any order.
    span : float
        Share of the points, at most 1, that are neighbours of a vertex.
    cell : float
        A cell between vertices has at most ``cell span n`` points.

    Notes
    -----
    Cost O(n log n) for sorting and O(span n) for each of about ``2 / (cell span)`` vertices; memory O(n).
    """
    n = len(x)
    q = min(n, int(np.floor(n * span + 1e-5)))
    if q < _FEWEST_NEIGHBOURS:
        raise ValueError(
            f"n = {n} points are too few for a local quadratic fit with span={span}: {q} neighbours, and it needs at "
            f"least {_FEWEST_NEIGHBOURS}; raise span or pass more points."
        )
    order = np.argsort(x, kind="stable")
    xs, ys = x[order], y[order]
    if xs[0] == xs[-1]:
        return np.full(n, ys.mean())
    vertices = _vertices(xs, int(np.floor(n * span * cell)))
    values, slopes = np.array([_local_fit(xs, ys, v, q) for v in vertices.tolist()]).T
    return _hermite(vertices, values, slopes, x)


def _vertices(x: Array, most: int) -> Array:
    """Return the ends and the cuts, ascending, of cells with at most ``most`` of the sorted points x."""
    margin = _MARGIN * max(x[-1] - x[0], 1e-10 * np.abs(x[[0, -1]]).max() + 1e-30)
    ends = [x[0] - margin, x[-1] + margin]
    cuts: list[float] = []
    cells = [(0, len(x) - 1, *ends)]
    while cells:
        first, last, lower, upper = cells.pop()
        if last - first + 1 <= most:
            continue
        # Halved by number, at the step between different points that is nearest to the middle (of two, the higher).
        middle = (first + last) // 2
        nearby = np.arange(max(first, 2 * middle - last + 1), last)
        steps = nearby[x[nearby] < x[nearby + 1]]
        m = int(steps[np.lexsort((-steps, np.abs(steps - middle)))[0]]) if len(steps) else middle
        cut = float(x[m])
        if cut in (lower, upper):
            continue
        cuts.append(cut)
        cells += [(first, m, lower, cut), (m + 1, last, cut, upper)]
    return np.unique([*ends, *cuts])


def _local_fit(x: Array, y: Array, v: float, q: int) -> tuple[float, float]:
    """Return value and slope at v of the weighted quadratic through the q of the sorted points x nearest to v."""
    # The distance of the q-th nearest point: the least, over all runs of q points, of that of their farther end.
    h = np.maximum(np.abs(x[: len(x) - q + 1] - v), np.abs(x[q - 1 :] - v)).min()
    if h == 0:  # the q nearest are all at v, and say nothing of a slope
        return float(y[x == v].mean()), 0.0
    # Points at this distance have weight 0.
    near = np.abs(x - v) < h
    d = x[near] - v
    root = np.sqrt((1 - (np.abs(d) / h) ** 3) ** 3)
    design = root[:, None] * np.stack([np.ones(len(d)), d, d * d], axis=1)
    norms = np.linalg.norm(design, axis=0)
    norms[norms == 0] = 1
    coefficients = np.linalg.lstsq(design / norms, root * y[near], rcond=_SINGULAR)[0] / norms
    return float(coefficients[0]), float(coefficients[1])


def _hermite(vertices: Array, values: Array, slopes: Array, x: Array) -> Array:
    """Return at x the cubics between vertices with these values and slopes at them."""
    right = np.clip(np.searchsorted(vertices, x, side="left"), 1, len(vertices) - 1)
    left = right - 1
    width = vertices[right] - vertices[left]
    h = (x - vertices[left]) / width
    ends = (1 - h) ** 2 * (1 + 2 * h) * values[left] + h**2 * (3 - 2 * h) * values[right]
    return np.asarray(ends + (h * (1 - h) ** 2 * slopes[left] + h**2 * (h - 1) * slopes[right]) * width)
