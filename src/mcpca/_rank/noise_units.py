"""In which units is noise alike, once directions are known? Scales by what is left outside of these.

``noise_scale`` has units before anything is known of axes. Unique variances, ``1 / (S^-1)_jj``, exceed those of noise
where axes take much of a feature, which matters if r is not small beside p. Outside r directions V, ``P = I - V V^T``,
noise of variances u_j leaves ``sum_l P_jl^2 u_l`` of feature j: a linear system for u, which should be 1 everywhere.
Contexts have ``t_i = tr P S_i P / (p - r)`` there, which should be 1, too. Where they are not, levels are looked at
again in units that make them so; where the law then fits worse than before, units stay.

Three uses: outside many directions before the search, which many axes would otherwise lead too far; outside those that
the search has found, which is then repeated; and outside fewer of them, to ask whether weak ones were features with
more noise than others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .._utils.types import Array
from .noise_levels import NoiseLevels

_CLEAN = 0.1  # mean eigenvalue over the law's, less one, up to which what is left is taken for noise
_UNEQUAL_NOISE = 0.2  # differences of log t_i from which on the sizes of noise are estimated once more
_CLEAR = 5.0  # a spread so many times that of noise is not one of features with more noise than others
_BEYOND_CHANCE = 1.5  # standard deviation of the sizes of features over that of chance, from which on it is real
_LEFT_FOR_NOISE = 0.8  # of all directions may be removed where the sizes of noise are estimated
_LEAST_LEFT = 0.1  # share of a feature outside the directions, from which on its noise is estimated from there


def refitted(levels: NoiseLevels, r: int) -> NoiseLevels | None:
    """Return the levels in units by what is outside r directions; None if these are the units in use."""
    if levels.is_empty(r) or r > _LEFT_FOR_NOISE * levels.p:
        return None
    t = levels.sums.sizes(r)
    if not (t > 0).all():
        return None
    features = _sizes_of_features(levels, r)
    if features is None and np.ptp(np.log(t)) < _UNEQUAL_NOISE:
        return None
    scale = levels.scale
    contexts = scale.contexts.copy()
    contexts[levels.data.varying] *= t
    return levels.in_units(
        replace(scale, contexts=contexts, features=scale.features if features is None else scale.features * features)
    )


def _sizes_of_features(levels: NoiseLevels, r: int) -> Array | None:
    """Return factors of the scales of features (p,) by what is outside r directions; None if all may be taken as 1."""
    p = levels.p
    # With (p - r)^2 <= p + r variances of noise are not determined beside r directions (Ledermann).
    if levels.null.isotropic or (p - r) ** 2 <= p + r:
        return None
    V = levels.V[:, :r]
    squared = (np.eye(p) - V @ V.T) ** 2
    known = np.sqrt(np.diag(squared)) > _LEAST_LEFT
    if known.sum() < 2:
        return None
    left = np.diag(levels.sums.pooled(r).matrix())[known] - squared[np.ix_(known, ~known)].sum(axis=1)
    ratio = np.ones(p)
    ratio[known] = np.clip(np.linalg.solve(squared[np.ix_(known, known)], left), 0.05, 20)
    chance = np.sqrt(2 / float(levels.freedom.sum())) / float(np.sqrt(np.diag(squared)).mean())
    return np.asarray(np.sqrt(ratio)) if float(np.std(ratio)) > _BEYOND_CHANCE * chance else None


def before_the_search(levels: NoiseLevels, deep: int) -> NoiseLevels | None:
    """Return the levels in units by what is outside ``deep`` directions, if that is noise; None if it is not."""
    if levels.is_empty(deep) or abs(levels.misfit(deep)) > _CLEAN:
        return None
    other = refitted(levels, deep)
    return other if other is not None and abs(other.misfit(deep)) <= _CLEAN else None


def after_the_search(levels: NoiseLevels, rank: int) -> NoiseLevels | None:
    """Return the levels in units by what is outside the directions found; None if these are no better."""
    was = 0.0 if levels.is_empty(rank) else abs(levels.misfit(rank))
    other = refitted(levels, rank)
    return other if other is not None and abs(other.misfit(rank)) <= max(_CLEAN, was) else None


def is_clear(levels: NoiseLevels, r: int) -> bool:
    """Whether direction ``r`` is far too strong to be one of features with more noise than others."""
    level = levels.known(r)
    return level.spread > _CLEAR * level.null_mean


def explained_by_units(levels: NoiseLevels, r: int) -> NoiseLevels | None:
    """Return the levels in units by what is outside ``r`` directions if nothing is left after these then; else None.

    A feature with more noise than others is a direction that makes itself: it is removed, and its noise then estimated
    without it. Asked only where the last direction is weak.
    """
    if is_clear(levels, r):
        return None
    other = refitted(levels, r)
    if other is not None and abs(other.misfit(r)) < _CLEAN and not other.level(r).above_noise:
        return other
    return None
