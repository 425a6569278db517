"""Tests of columns of values against one covariate of contexts: exact for few contexts, by tables for many.

Contexts are few, and tables of Student's t and of F are wrong for few values that are far from normal: between 2
contexts and 30 Welch's test at level 5% errs in 15 to 25% of skewed loadings, and four contexts in the order of the
covariate have p = 0 by Student's t. So up to 50,000 arrangements are all looked at: exact for any distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.stats import f as f_distribution
from scipy.stats import rankdata
from scipy.stats import t as t_distribution

from .._utils.types import Array

MOST = 50_000  # arrangements that are all looked at
_AT_ONCE = 2**22  # numbers of one block of them


class Tested(NamedTuple):
    """Statistics and p-values (m,), NaN for constant columns."""

    statistics: Array
    p_values: Array


class _Form(NamedTuple):
    """A test as it is done: statistics, p-values by tables, and what there is to arrange.

    ``size(ways)`` (N, m) grows with the size of the statistic when ``x`` (k,) is in each of N orders ``ways`` (N, k).
    """

    statistics: Array
    p_values: Array
    x: Array
    size: Callable[[Array], Array]


def compare(test: str, V: Array, x: Array, permutations: int = 0, rng: np.random.Generator | None = None) -> Tested:
    """Test each column of V (k, m) against a covariate of the k contexts.

    Parameters
    ----------
    test : {"spearman", "t-test", "anova"}
        Spearman's correlation with x; Student's t between x = 1 and x = 0; F between the groups of equal x.
    V : ndarray (k, m)
    x : ndarray (k,)
    permutations : int
        Random arrangements, where there are too many to look at all of them: ``p = (1 + number of those with as large
        a statistic) / (1 + permutations)``. With 0 p is by tables then.
    rng : Generator, optional
        For ``permutations``.

    Notes
    -----
    Where x has at most 50,000 arrangements, p is the share of them with as large a statistic, whatever its sign: exact
    as long as contexts are exchangeable when nothing is associated. By tables p is no less than that of the
    two rarest orders, one of each sign.
    """
    form = TESTS[test](V, np.asarray(x, dtype=np.float64))
    n, observed = n_arrangements(x), form.size(form.x[None])[0]
    step = max(1, _AT_ONCE // max(V.shape))
    if n <= MOST:
        p = _as_large(form.size, observed, np.array_split(arrangements(form.x), -(-n // step))) / n
    elif permutations:
        assert rng is not None
        sizes = [min(step, permutations - first) for first in range(0, permutations, step)]
        blocks = (rng.permuted(np.tile(form.x, (size, 1)), axis=1) for size in sizes)
        p = (1 + _as_large(form.size, observed, blocks)) / (1 + permutations)
    else:
        p = np.maximum(form.p_values, 2 / n)
    constant = np.ptp(V, axis=0) == 0
    return Tested(*(np.where(constant, np.nan, values) for values in (form.statistics, p)))


def _as_large(size: Callable[[Array], Array], observed: Array, blocks: Iterable[Array]) -> Array:
    # A size that is the same up to rounding counts as large.
    return np.asarray(sum((size(ways) >= observed * (1 - 1e-9)).sum(axis=0) for ways in blocks))


def n_arrangements(x: Array) -> int:
    """Return in how many ways the values of x can be given to its places."""
    ways = math.factorial(len(x))
    for count in np.unique(x, return_counts=True)[1].tolist():
        ways //= math.factorial(count)
    return ways


def arrangements(x: Array) -> Array:
    """Return all different orders of the values of x (k,), each a row (N, k)."""
    values, counts = np.unique(x, return_counts=True)
    ways, free = np.full((1, len(x)), values[-1]), np.arange(len(x))[None]
    for value, count in zip(values[:-1], counts[:-1].tolist(), strict=True):
        n = free.shape[1]
        chosen = np.array(list(combinations(range(n), count)))
        other = np.ones((len(chosen), n), dtype=bool)
        np.put_along_axis(other, chosen, False, axis=1)
        left = np.nonzero(other)[1].reshape(len(chosen), n - count)
        ways = np.repeat(ways, len(chosen), axis=0)
        np.put_along_axis(ways, free[:, chosen].reshape(-1, count), value, axis=1)
        free = free[:, left].reshape(-1, n - count)
    return ways


def rank_correlations(V: Array, W: Array) -> Array:
    """Return Spearman's correlation (m, l) of each column of V (k, m) with each of W (k, l); NaN for constant ones."""
    first, second = (rankdata(values, axis=0) - (len(V) + 1) / 2 for values in (V, W))
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = first.T @ second / np.sqrt(np.outer((first**2).sum(axis=0), (second**2).sum(axis=0)))
    return np.asarray(np.clip(rho, -1, 1))


def _spearman(V: Array, x: Array) -> _Form:
    k, rho = len(x), rank_correlations(V, x[:, None])[:, 0]
    ranks, own = (rankdata(values, axis=0) - (k + 1) / 2 for values in (V, x))
    with np.errstate(invalid="ignore", divide="ignore"):
        t = rho * np.sqrt((k - 2) / ((1 - rho) * (1 + rho)))
    return _Form(rho, 2 * t_distribution.sf(np.abs(t), k - 2), own, lambda ways: np.abs(ways @ ranks))


def _student(V: Array, x: Array) -> _Form:
    k, n, centred = len(x), x.sum(), _centred(V)
    difference = x @ centred * k / (n * (k - n))
    within = _positive((centred**2).sum(axis=0), difference**2 * n * (k - n) / k)
    with np.errstate(invalid="ignore", divide="ignore"):
        t = difference / np.sqrt(within / (k - 2) * k / (n * (k - n)))
    # All arrangements have the same total, so t grows with the difference of means, and that with the sum of one group.
    return _Form(t, 2 * t_distribution.sf(np.abs(t), k - 2), x, lambda ways: np.abs(ways @ centred))


def _anova(V: Array, x: Array) -> _Form:
    k, centred = len(x), _centred(V)
    groups, counts = np.unique(x, return_counts=True)

    def between(ways: Array) -> Array:
        parts = [((ways == g) @ centred) ** 2 / n for g, n in zip(groups, counts, strict=True)]
        return np.asarray(np.sum(parts, axis=0))

    among, explained = len(groups) - 1, between(x[None])[0]
    within = _positive((centred**2).sum(axis=0), explained)
    with np.errstate(invalid="ignore", divide="ignore"):
        F = (explained / among) / (within / (k - among - 1))
    return _Form(F, f_distribution.sf(F, among, k - among - 1), x, between)


TESTS: dict[str, Callable[[Array, Array], _Form]] = {"spearman": _spearman, "t-test": _student, "anova": _anova}


def _centred(V: Array) -> Array:
    return np.asarray(V - V.mean(axis=0))


def _positive(total: Array, part: Array) -> Array:
    """Return what a part leaves of a total; 0 where that is rounding."""
    left = total - part
    return np.where(left > 1e-14 * total, left, 0.0)
