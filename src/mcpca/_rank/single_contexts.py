"""Which directions stand out in one context only? The third statistic of ``noise_test``.

With ``Z_i / t_i`` the covariance of context i outside the directions that were found, in units of its noise, the top
eigenvalue of noise is known (``noise_law.top_of_noise``): an edge, and the standard deviation about it. Only contexts
with an eigenvalue well above matter, and k eigenvalue problems to find them would cost O(k p^3) at a slow rate. Instead
a few random columns X are multiplied by a Chebyshev polynomial of the matrix,

    T_{j+1} = 2 C T_j - T_{j-1},   C = (Z_i / t_i - c) / e,

with c and e such that noise lies in [-1, 1]: there polynomials stay below 1, and an eigenvalue ``1 + d`` of C grows as
``cosh(j arccosh(1 + d))``. The degree is such that the smallest eigenvalue that would count outgrows noise by far. The
largest Rayleigh quotient in the span of the columns then tells the contexts to look at: O(k p^2) an iteration, all
contexts in one batch. For these few the eigenvalue is found and compared with draws of that context alone.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.optimize import brentq

from .._utils.types import Array
from .noise_law import TopOfNoise, top_of_noise
from .null_draws import NullDraws, projected
from .residual_sums import ResidualSums

_COLUMNS = 6
_ENERGY = 50.0  # of an eigenvalue that counts over that of all noise, in the columns
_MOST_DEGREE = 40
_DRAWS = 24  # of the null of a context that was picked
_LOOKED_AT = 6  # contexts with the largest eigenvalues for which rows are drawn
_MOST = 20  # directions that are taken out at most
_LARGEST_RELATIVE_SD = 0.15  # of a top eigenvalue less 1, from a law for rows of very unequal sizes
_CHANCE = 3e-3  # that the largest of k contexts of noise is picked
_LEAST_SDS = 4.0


def single_directions(sums: ResidualSums, null: NullDraws, sizes: list[Array], r: int, most: int) -> int:
    """Return how many directions stand out in one context each, outside the first ``r`` of ``sums.V``.

    One at a time, the largest first; each is put behind those that were found.
    """
    data = sums.data
    k = len(data.varying)
    if most < 1 or k < 2:  # with one context the spread is the whole answer
        return 0
    bound = standard_deviations(k)
    laws = _laws(sums, sizes, r)
    t = sums.sizes(r)
    ratios = _ritz_values(sums, laws, bound, r)
    excess = np.array([(x - law.mean) / law.sd for x, law in zip(ratios, laws, strict=True)])
    flagged = np.flatnonzero((excess > 0.5 * bound) & (t > 0))
    found = 0
    while found < min(most, _MOST) and len(flagged):
        rank = r + found
        t = sums.sizes(rank)
        best = None
        # Those that stood out most at the last look; the others are looked at when these are done.
        for j in flagged[np.argsort(-excess[flagged], kind="stable")][:_LOOKED_AT]:
            i = int(data.varying[j])
            if t[j] <= 0:
                excess[j] = -np.inf
                continue
            values, vectors = np.linalg.eigh(projected(data.scaled(i), sums.V[:, :rank]) / t[j])
            excess[j] = (values[-1] - laws[j].mean) / laws[j].sd
            if excess[j] > bound and (best is None or excess[j] > best[0]):
                drawn = _drawn_excess(null, sums.V[:, :rank], i, float(values[-1]), laws[j])
                excess[j] = excess[j] if drawn > _LEAST_SDS else -np.inf
                # Beyond the law by what k contexts ask for, and beyond draws of this one by what one asks for.
                if drawn > _LEAST_SDS and (best is None or drawn > best[0]):
                    best = drawn, vectors[:, -1]
        if best is None:
            break
        sums.insert(rank, best[1])
        found += 1
    return found


@lru_cache(maxsize=64)
def standard_deviations(k: int) -> float:
    """Return by how many standard deviations the largest of k contexts has to exceed the mean of noise.

    Four, or more where a chance of three in a thousand for all k asks for that: the tail of Tracy and Widom is about
    ``exp(-2/3 s^(3/2)) / (4 sqrt(pi) s^(3/4))``.
    """

    def log_tail(s: float) -> float:
        return float(-2 / 3 * s**1.5 - np.log(4 * np.sqrt(np.pi)) - 0.75 * np.log(s))

    s = brentq(lambda s: log_tail(s) - np.log(_CHANCE / k), 0.1, 60.0)
    return max(_LEAST_SDS, (float(s) + 1.2065) / 1.2680)


def _laws(sums: ResidualSums, sizes: list[Array], r: int) -> list[TopOfNoise]:
    """Return the law of the top eigenvalue of each context; those with the same number of rows share one."""
    freedom = sums.data.freedom[sums.data.varying]
    # Two digits of the number of rows make no difference.
    keys = np.round(np.log(freedom) * 50).astype(int)
    laws = {}
    for key in np.unique(keys):
        members = np.flatnonzero(keys == key)
        lengths = np.concatenate([sizes[j] for j in members])
        laws[int(key)] = top_of_noise(sums.p - r, float(freedom[members].mean()), lengths)
    return [laws[int(key)] for key in keys]


def _drawn_excess(null: NullDraws, V: Array, i: int, value: float, law: TopOfNoise) -> float:
    """Return by how many standard deviations ``value`` exceeds draws of context i, over the size of its noise."""
    m = V.shape[0] - V.shape[1]
    drawn = next(null.over(V, range(_DRAWS), lambda Z, _: np.linalg.eigvalsh(Z)[-1] * m / np.trace(Z), [i]))
    mean = float(np.mean(drawn))
    # The draws are few, so that their variance is averaged with that of the law, which counts as half as many.
    expected = min(law.sd / max(law.mean - 1, 1e-300), _LARGEST_RELATIVE_SD) * (mean - 1)
    weight = _DRAWS / 2
    sd = np.sqrt(((_DRAWS - 1) * float(np.var(drawn, ddof=1)) + weight * expected**2) / (_DRAWS - 1 + weight))
    return (value - mean) / max(float(sd), np.finfo(float).tiny)


def _ritz_values(sums: ResidualSums, laws: list[TopOfNoise], bound: float, r: int) -> Array:
    """Return, for each context that varies, nearly the top eigenvalue of ``Z_i / t_i`` if it is well above noise."""
    data = sums.data
    p = sums.p
    m = p - r
    V = sums.V[:, :r]
    t = sums.sizes(r)
    freedom = data.freedom[data.varying]
    high = np.array([law.mean for law in laws])
    low = np.maximum(1 - np.sqrt(m / freedom), 0) ** 2
    centre = (high + low) / 2
    half = (high - low) / 2
    # The smallest eigenvalue that counts, in units where noise ends at 1.
    least = min((law.mean + 0.75 * bound * law.sd - c) / h for law, c, h in zip(laws, centre, half, strict=True))
    growth = np.arccosh(max(least, 1 + 1e-3))
    degree = int(np.clip(np.ceil(np.log(2 * np.sqrt(_ENERGY * m / _COLUMNS)) / growth), 2, _MOST_DEGREE))
    columns = np.random.default_rng(0).standard_normal((p, _COLUMNS))
    columns -= V @ (V.T @ columns)

    def batch(part: slice) -> Array:
        Z = data.batch(part)
        size = np.where(t[part] > 0, t[part], np.inf)[:, None, None]
        c = centre[part][:, None, None]
        e = half[part][:, None, None]

        def times(X: Array) -> Array:
            Y = Z @ X
            Y -= V @ (V.T @ Y)
            return np.asarray((Y / size - c * X) / e)

        before = np.broadcast_to(columns, (len(Z), *columns.shape))
        now = times(before)
        for _ in range(degree - 1):
            before, now = now, 2 * times(now) - before
        Q = np.linalg.qr(now)[0]
        ritz = np.linalg.eigvalsh(np.swapaxes(Q, 1, 2) @ times(Q))[:, -1]
        return np.asarray(ritz * half[part] + centre[part])

    return np.concatenate(list(data.each_of(batch, data.parts())))
