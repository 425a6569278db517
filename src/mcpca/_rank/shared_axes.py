"""Which axes do all contexts share, though they are weak in each? The second statistic of ``noise_test``.

Outside the directions found, the pooled ``W = sum_i f_i Z_i / t_i / sum_i f_i`` has one covariance's worth of noise for
the rows of all contexts, and so shows an axis of variance ``sqrt(p / n)`` for n rows in all, ``sqrt(k)`` times less
than a single context shows: what PCA of the pooled rows could find (Baik, Ben Arous and Peche). Features are divided by
what they have outside the directions, but for differences between them that chance makes (``NoiseLevels.sd_of_rest``).

The law of its top eigenvalue, given how unequal the variances of features are, is precise to a tenth of a standard
deviation (``noise_law.pooled_top_of_noise``), so that a bound of two is as safe here as it says: three chances in a
hundred. For noise that is not Gaussian draws take its place. Parallel analysis of the pooled rows asks the same, with a
bound by the largest of a few draws.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .._utils.types import Array
from .noise_law import pooled_top_of_noise
from .noise_levels import DRAWS, OPEN_AFTER, OPEN_BY_LAW, STANDARD_DEVIATIONS, NoiseLevels, of_draws
from .null_draws import share_left
from .residual_sums import top_pair

_MOST = 20  # directions that are taken out at most
# Standard deviations above noise that are asked for. The law is precise, and it is asked once: 3 chances in 100 beyond
# 2, about as many as parallel analysis with 32 draws has. Beside other directions, whose errors are part of what is
# left, 1 in 100.
_BOUNDS = (2.0, 2.5)


def shared_directions(levels: NoiseLevels, r: int, *, least: float = 0.0) -> int:
    """Return how many more directions the pooled covariance has above noise, and put them behind the first ``r``.

    One at a time, the largest first. ``least`` standard deviations are asked for at any rank.
    """
    found = 0
    while found < _MOST and r + found < levels.largest and not levels.is_empty(r + found):
        rank = r + found
        bound = max(least, _bound(levels, rank))
        excess, direction = shared_excess(levels, rank, bound)
        levels.levels[rank] = replace(levels.known(rank), shared=excess, shared_bound=bound)
        if excess <= bound:
            break
        levels.insert(rank, direction)
        found += 1
    return found


def _bound(levels: NoiseLevels, rank: int) -> float:
    """Return the standard deviations by which the pooled covariance has to exceed noise after ``rank`` components."""
    # Noise in principal components, or along chosen directions, is as unequal as the features make it, which the law
    # does not know. Long rows make the errors of directions that were found large, and signs do not keep these.
    if levels.null.isotropic or (rank and not levels.trusts_law):
        return STANDARD_DEVIATIONS
    return _BOUNDS[min(rank, 1)]


def shared_excess(levels: NoiseLevels, r: int, bound: float) -> tuple[float, Array]:
    """Return by how many standard deviations the pooled covariance exceeds noise, and its top eigenvector (p,).

    There are as many draws as it takes to compare with ``bound``; none where the law is that of Gaussian noise.
    """
    pooled = levels.in_units_of_rest(levels.sums.pooled(r).matrix(), r)
    value, direction = top_pair(pooled)
    f = float(levels.freedom.sum())
    m = levels.p - r
    unequal = 1.0
    if not levels.null.isotropic:
        direction = direction * levels.sd_of_rest(r)
        unequal = float(np.var(np.diag(pooled) / share_left(levels.V[:, :r]))) * f / 2
    gaussian = law = pooled_top_of_noise(m, f, np.ones(1), unequal)
    if levels.is_heavy:
        law = pooled_top_of_noise(m, f, np.concatenate(levels.sizes_of_rows(r)), unequal)
    excess = (value - law.mean) / law.sd
    # Well below is well below for any noise; what is above, or near, has to be above draws if noise is not Gaussian.
    clear = not levels.is_heavy or abs(excess - bound) > OPEN_BY_LAW
    if excess < 0 or (levels.trusts_law and clear):
        return excess, direction
    for stage, n_draws in enumerate(DRAWS):
        drawn = levels.drawn.get(r)
        if drawn is None or len(drawn.pools) < n_draws:
            drawn = levels.draw(r, n_draws)
        null = of_draws(drawn.pools - 1, 1.0, gaussian.sd / (gaussian.mean - 1))
        excess = (value - 1 - null.mean) / null.sd
        if stage == len(DRAWS) - 1 or abs(excess - bound) >= OPEN_AFTER[stage]:
            break
    return excess, direction
