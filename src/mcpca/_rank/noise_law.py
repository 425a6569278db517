"""How large is the top eigenvalue of noise? In closed form, by free probability, with no draw.

Let ``W = sum_l t_l z_l z_l^T / f`` with f directions ``z_l`` uniform on the sphere of squared radius m, and t_l with
mean 1 the sizes of rows: all 1 (nearly) for Gaussian noise, unequal where whole rows are large. With ``g = m / f``,

    y(h) = 1 / h + R(h),   R(h) = mean_l t_l / (1 - g t_l h),

is the inverse of the Cauchy transform of the eigenvalues of W (Marchenko and Pastur), and W has its edges where y' = 0.
The noise test looks at ``L = sum_i w_i (W_i - I)^2``. Squares have ``G(x^2) = (G_D(x) - G_D(-x)) / (2 x)``, and
R-transforms of free matrices add up, so the top edge of L is

    min over s of  z(s) = 1 / s + sum_i (z_i(s) - 1 / s),   z_i the inverse Cauchy transform of ``w_i (W_i - I)^2``.

For f >> m this is ``m (sqrt(k) + 1)^2`` for weights f_i. A top eigenvalue is an edge plus ``(z'' / 2)^(1/3) m^(-2/3)``
times a variable of Tracy and Widom (mean -1.21, standard deviation 1.27), at an edge times ``1 + 1 / m - 2 / m^2``: W
has so much more variance than the limit. Over 1 to 50 contexts of 6 to 200 features, with more or fewer rows,
simulated means are within half a standard deviation of this, and standard deviations within a quarter of themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._utils.types import Array

_TRACY_WIDOM_MEAN = -1.2065
_TRACY_WIDOM_SD = 1.2680
_GRID = 240  # points of the parameter at which laws are tabulated
_STEPS = 60  # of bisections: to the last digit
_CLASSES = 12  # contexts of similar weight and size are taken together: at most so many classes
_SIZES = 48  # values by which the sizes of the rows of a class are represented
_VERY_LARGE = 1e8
_BY_VARIANCES = 0.45  # of a standard deviation: what variances of features by chance add to a top eigenvalue
_LEAST_SCALE = 1e-3  # of the edge: a law whose curvature is not resolved has at least this scale


@dataclass(frozen=True)
class TopOfNoise:
    """Mean and standard deviation of a top eigenvalue of noise, and the mean of all eigenvalues."""

    mean: float
    sd: float
    bulk: float


def gaussian_sizes(k: int) -> list[Array]:
    """Return the sizes of rows of k contexts of Gaussian noise: all alike."""
    return [np.ones(1)] * k


def spread_of_noise(m: int, weights: Array, freedom: Array, sizes: list[Array]) -> TopOfNoise:
    """Return the law of the top eigenvalue of ``sum_i w_i (W_i - I)^2``.

    Parameters
    ----------
    m : int
        Directions.
    weights, freedom : ndarray (k,)
        Weights and degrees of freedom, both positive.
    sizes : list of k ndarrays
        Squared lengths of the rows of each context over their mean.
    """
    tables = []
    bulk = 0.0
    total = 0.0
    for members in _classes(weights, m / freedom):
        g = float(np.mean(m / freedom[members]))
        w = float(np.mean(weights[members]))
        t = np.concatenate([sizes[i] for i in members])
        table = _square_table(g, *_represented(t))
        second = g * float(np.mean(t**2))
        # The mean of D^2 is its second cumulant, g E t^2, and so is that of the class; weights and g may vary in it.
        variance = float(np.sum(weights[members] * m / freedom[members]))
        square = float(np.mean(t**2))
        bulk += variance * square
        # Measured sizes vary by chance, too, by 2 / m of their square for Gaussian rows.
        total += variance * (1 + 1 / m - 2 / m**2 if len(t) == len(members) else square - 1 / m)
        tables.append((len(members), w, second, table))
    # s of all classes on one grid: each table has G(x^2) / w descending in x.
    largest = min(float(G[0]) / w for _, w, _, (G, _) in tables)
    s = largest * np.geomspace(1, 1e-3, 4 * _GRID)
    z = 1 / s
    for count, w, second, (G, squares) in tables:
        inverse = np.exp(np.interp(np.log(s * w), np.log(G[::-1]), np.log(squares[::-1])))
        # Far outside, 1 / G = x^2 - E D^2.
        inverse = np.where(s * w < G[-1], 1 / (s * w) + second, inverse)
        z = z + count * (w * inverse - 1 / s)
    edge, scale = _edge_and_scale(s, z, m)
    finite = total / bulk
    return _top(edge * finite, scale, bulk * finite)


def top_of_noise(m: int, freedom: float, sizes: Array) -> TopOfNoise:
    """Return the law of the top eigenvalue of W, with ``freedom`` rows of these squared lengths over their mean."""
    g = m / freedom
    t, share = _represented(sizes)
    # The edge is where y' = 0, and y'' there in closed form: differences of y about a minimum would be rounding.
    h = _right_end(g, t, share)
    curvature = 2 / h**3 + 2 * g**2 * float(share @ (t / (1 - g * t * h)) ** 3)
    edge = float(_inverse(np.array([h]), g, t, share)[0])
    return _top(edge, float((curvature / 2) ** (1 / 3) * m ** (-2 / 3)), 1.0)


def pooled_top_of_noise(m: int, freedom: float, sizes: Array, unequal: float) -> TopOfNoise:
    """Return the law of the top eigenvalue of W over its mean, given how unequal the variances of features are.

    For rows of one size, by the constants of Ma (2012), ``mean = (sqrt(f - 1/2) + sqrt(m - 1/2))^2`` and so on, which
    are good from m = 5 on. ``unequal`` is the variance of the diagonal of W over that of chance, 2 / f: a diagonal that
    is all ones takes 0.45 standard deviations off the mean, one with more variance adds to it. Division by the trace
    takes its variance, 2 / (m f), off that of the eigenvalue.

    Simulated means are within a tenth of a standard deviation of this, from 5 to 200 features in 60 to 10,000 rows, and
    standard deviations 0.85 to 1.05 of it.
    """
    a, b = np.sqrt(freedom - 0.5), np.sqrt(m - 0.5)
    scale = (a + b) * (1 / a + 1 / b) ** (1 / 3) / freedom
    law = _top((a + b) ** 2 / freedom, scale, 1.0)
    mean = law.mean + _BY_VARIANCES * (unequal - 1) * law.sd
    sd = np.sqrt(max(law.sd**2 - law.mean**2 * 2 / (m * freedom), (law.sd / 2) ** 2))
    if len(sizes) > 1:
        heavy, light = (top_of_noise(m, freedom, t) for t in (sizes, np.ones(1)))
        mean += heavy.mean - light.mean
        sd = max(sd, heavy.sd)
    return TopOfNoise(float(mean), float(sd), 1.0)


def _top(edge: float, scale: float, bulk: float) -> TopOfNoise:
    scale = max(scale, _LEAST_SCALE * edge)
    return TopOfNoise(edge + _TRACY_WIDOM_MEAN * scale, _TRACY_WIDOM_SD * scale, bulk)


def _edge_and_scale(s: Array, z: Array, m: int) -> tuple[float, float]:
    """Return the least z, and ``(z'' / 2)^(1/3) m^(-2/3)`` there by a parabola through the points around it."""
    j = int(np.argmin(z))
    around = slice(max(j - 6, 0), j + 7)
    unit = s[j] if s[j] else 1.0
    curvature = np.polyfit(s[around] / unit - 1, z[around], 2)[0] / unit**2
    return float(z[j]), float(max(curvature, 0.0) ** (1 / 3) * m ** (-2 / 3))


def _classes(weights: Array, ratios: Array) -> list[Array]:
    """Return indices of contexts with similar weights and ratios m / f, a few classes of them."""
    order = np.lexsort((ratios, weights))
    # Contexts that are alike make one class, however many there are.
    keys = np.round(np.log(weights[order]) * 20), np.round(np.log(ratios[order]) * 20)
    new = np.flatnonzero(np.diff(keys[0]) != 0) + 1 if len(order) > 1 else np.array([], dtype=int)
    new = np.union1d(new, np.flatnonzero(np.diff(keys[1]) != 0) + 1) if len(order) > 1 else new
    groups = np.split(order, new)
    if len(groups) <= _CLASSES:
        return groups
    return [part for part in np.array_split(order, _CLASSES) if len(part)]


def _represented(t: Array) -> tuple[Array, Array]:
    """Return few values and their shares for sizes ``t``, finer where they are large; their mean is 1."""
    t = np.sort(np.asarray(t, dtype=np.float64))
    if t[0] == t[-1]:
        return np.ones(1), np.ones(1)
    if len(t) > _SIZES:
        # Cuts at n - n^0, ..., n - n: the largest ones alone, the others in ever wider blocks.
        cuts = np.unique(len(t) - np.round(np.geomspace(1, len(t), _SIZES)).astype(int))
        cuts = np.union1d(cuts, [0])
        counts = np.diff(np.append(cuts, len(t)))
        # Root mean squares within a block, which keep the variance.
        t = np.sqrt(np.add.reduceat(t**2, cuts) / counts)
        share = counts / counts.sum()
    else:
        share = np.full(len(t), 1 / len(t))
    mean = float(share @ t)
    return (t / mean if mean > 0 else np.ones(len(t))), share


def _inverse(h: Array, g: float, t: Array, share: Array) -> Array:
    return np.asarray(1 / h + (t / (1 - g * np.multiply.outer(h, t))) @ share)


def _right_end(g: float, t: Array, share: Array) -> float:
    """Return the h at which y is the right edge: ``h^2 mean g t^2 / (1 - g t h)^2 = 1``."""
    if len(t) == 1:  # rows of one size, which is 1
        return float(1 / (g + np.sqrt(g)))
    low, high = 0.0, 1 / (g * float(t.max()))
    for _ in range(_STEPS):
        h = (low + high) / 2
        beyond = h * h * float(share @ (g * t**2 / np.maximum(1 - g * t * h, 1e-300) ** 2)) > 1
        low, high = (low, h) if beyond else (h, high)
    return low


def _left_end(g: float, t: Array, share: Array) -> float:
    """Return the u = -h at which y is the left edge, ``u^2 mean g t^2 / (1 + g t u)^2 = 1``; or a very large one."""
    low, high = 0.0, _VERY_LARGE / g
    if high * high * float(share @ (g * t**2 / (1 + g * t * high) ** 2)) < 1:
        return high  # W is singular, and has no left edge above 0
    for _ in range(3 * _STEPS):
        # Geometric steps: the end may be anywhere.
        u = np.sqrt(max(low, 1e-6) * high)
        beyond = u * u * float(share @ (g * t**2 / (1 + g * t * u) ** 2)) > 1
        low, high = (low, u) if beyond else (u, high)
    return high


def _square_table(g: float, t: Array, share: Array) -> tuple[Array, Array]:
    """Return ``G(x^2)`` of ``(W - I)^2`` and ``x^2``, from the edge outwards: G descends."""
    h = _right_end(g, t, share) * np.geomspace(1, 1e-3, _GRID)
    x = _inverse(h, g, t, share) - 1
    # -G_D(-x) = u > 0 with  x = 1 + 1 / u - mean t / (1 + g t u), which falls in u up to the left edge of W.
    u = 2 / (x - g + np.sqrt((x + g) ** 2 - 4 * g)) if len(t) == 1 else _left_of(x, g, t, share)
    G = (h + u) / (2 * x)
    return np.minimum.accumulate(G), x**2


def _left_of(x: Array, g: float, t: Array, share: Array) -> Array:
    """Return u for each x, by halving; rows of one size have a quadratic equation instead."""
    low = np.zeros(_GRID)
    high = np.full(_GRID, _left_end(g, t, share))
    for _ in range(_STEPS):
        u = (low + high) / 2
        above = _left(u, g, t, share) > x
        low, high = np.where(above, u, low), np.where(above, high, u)
    return np.asarray((low + high) / 2)


def _left(u: Array, g: float, t: Array, share: Array) -> Array:
    return np.asarray(1 + 1 / np.maximum(u, 1e-300) - (t / (1 + g * np.multiply.outer(u, t))) @ share)
