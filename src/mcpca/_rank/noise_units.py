"""In which units is noise alike, once directions are known? Scales by what is left outside of these.

``noise_scale`` has units before anything is known of axes. Unique variances, ``1 / (S^-1)_jj``, exceed those of noise
where axes take much of a feature, which matters if r is not small beside p. Outside r directions V, ``P = I - V V^T``,
noise of variances u_j leaves ``sum_l P_jl^2 u_l`` of feature j: a linear system for u, which should be 1 everywhere.
Contexts have ``t_i = tr P S_i P / (p - r)`` there, which should be 1, too. Where they are not, levels are looked at
again in units that make them so; where the law then fits worse than before, units stay.

Three uses, in the order of the search: well beyond all axes, before it; outside the directions found, after it; and
outside fewer of them, to ask whether weak ones were features with more noise than others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .._utils.types import Array
from .noise_levels import NoiseLevels
from .residual_sums import LEADING, SMALL

CLEAN = 0.1  # mean eigenvalue over the law's, less one, up to which what is left is taken for noise
_DEEP = 64  # directions that are removed at most to find noise before the search
_DEEPER = (40, 256)  # numbers of features for which more are removed if that is not enough
_UNEQUAL_NOISE = 0.2  # differences of log t_i from which on the sizes of noise are estimated once more
_CLEAR = 5.0  # a spread so many times that of noise is not one of features with more noise than others
_BEYOND_CHANCE = 1.5  # standard deviation of the sizes of features over that of chance, from which on it is real
_LEFT_FOR_NOISE = 0.8  # of all directions may be removed where the sizes of noise are estimated
_LEAST_LEFT = 0.1  # share of a feature outside the directions, from which on its noise is estimated from there


def where_noise_is_left(levels: NoiseLevels) -> int:
    """Return a rank well beyond all axes, if there is one: half of all directions, at most 64, or more."""
    p, data_rank = levels.p, levels.scale.data_rank
    deep = min(_DEEP if p <= SMALL else LEADING, p // 2, data_rank // 2)
    deeper = min(3 * p // 4, 3 * data_rank // 4)
    is_deep_enough = not _DEEPER[0] <= p <= _DEEPER[1] or abs(levels.misfit(deep)) < CLEAN
    return int(deep if is_deep_enough or abs(levels.misfit(deeper)) > CLEAN else deeper)


def refitted(levels: NoiseLevels, r: int, *, refined: bool = True) -> NoiseLevels | None:
    """Return the levels in units by what is outside r directions; None if these are the units in use.

    Unless ``refined``, features are left as they are where their differences would not show in the spread.
    """
    if levels.is_empty(r) or r > _LEFT_FOR_NOISE * levels.p:
        return None
    t = levels.sums.sizes(r)
    if not (t > 0).all():
        return None
    features = _sizes_of_features(levels, r, refined)
    if features is None and np.ptp(np.log(t)) < _UNEQUAL_NOISE:
        return None
    scale = levels.scale
    contexts = scale.contexts.copy()
    contexts[levels.data.varying] *= t
    return levels.in_units(
        replace(scale, contexts=contexts, features=scale.features if features is None else scale.features * features)
    )


def _sizes_of_features(levels: NoiseLevels, r: int, refined: bool) -> Array | None:
    """Return factors of the scales of features (p,) by what is outside r directions; None if all may be taken as 1."""
    p = levels.p
    # With (p - r)^2 <= p + r variances of noise are not determined beside r directions (Ledermann).
    if levels.null.isotropic or (p - r) ** 2 <= 2 * (p + r):
        return None
    V = levels.V[:, :r]
    squared = (np.eye(p) - V @ V.T) ** 2
    known = np.sqrt(np.diag(squared)) > _LEAST_LEFT
    if known.sum() < 2:
        return None
    left = np.diag(levels.sums.pooled(r).matrix())[known] - squared[np.ix_(known, ~known)].sum(axis=1)
    ratio = np.ones(p)
    ratio[known] = np.clip(np.linalg.solve(squared[np.ix_(known, known)], left), 0.05, 20)
    # The same deviation in all contexts adds its square times all rows to the spread, and more to what is pooled.
    f = float(levels.freedom.sum())
    deviation = float(np.std(ratio))
    chance = np.sqrt(2 / f) / float(np.sqrt(np.diag(squared)).mean())
    matters = deviation > _BEYOND_CHANCE * chance and (refined or f * deviation**2 > levels.law(r).sd)
    return np.asarray(np.sqrt(ratio)) if matters else None


def before_the_search(levels: NoiseLevels, deep: int) -> NoiseLevels:
    """Return the levels in units by what is left at rank ``deep``, if that is noise and stays so."""
    if abs(levels.misfit(deep)) < CLEAN:
        other = refitted(levels, deep, refined=False)
        if other is not None and abs(other.misfit(deep)) <= CLEAN:
            return other
    return levels


def after_the_search(levels: NoiseLevels, rank: int) -> NoiseLevels | None:
    """Return the levels in units by what is outside the directions found; None if these are no better."""
    was = 0.0 if levels.is_empty(rank) else abs(levels.misfit(rank))
    other = refitted(levels, rank)
    return other if other is not None and abs(other.misfit(rank)) <= max(CLEAN, was) else None


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
    if other is not None and abs(other.misfit(r)) < CLEAN and not other.level(r).above_noise:
        return other
    return None
