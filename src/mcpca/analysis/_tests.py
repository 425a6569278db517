"""Tests of many columns of values against one covariate of contexts, at once: Spearman, Welch, ANOVA, permutations."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.stats import f as f_distribution
from scipy.stats import rankdata
from scipy.stats import t as t_distribution

from .._check import Array


class Tested(NamedTuple):
    """Statistics and p-values (m,); NaN where a column is constant, or a group has no spread to judge by."""

    statistics: Array
    p_values: Array


def spearman(V: Array, x: Array) -> Tested:
    """Return Spearman's correlation of each column of V (k, m) with x (k,), with the p-value of Student's t."""
    k = len(x)
    ranks, own = rankdata(V, axis=0), rankdata(x)
    ranks, own = ranks - ranks.mean(axis=0), own - own.mean()
    size = np.sqrt((ranks**2).sum(axis=0) * (own**2).sum())
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = np.where(size > 0, own @ ranks / size, np.nan)
        rho = np.clip(rho, -1, 1)
        t = rho * np.sqrt((k - 2) / ((1 - rho) * (1 + rho)))
    return Tested(rho, 2 * t_distribution.sf(np.abs(t), k - 2))


def welch(V: Array, x: Array) -> Tested:
    """Return Welch's t of each column of V (k, m) between the contexts with x = 1 and those with x = 0."""
    first, second = V[x == 1], V[x == 0]
    n, m = len(first), len(second)
    with np.errstate(invalid="ignore", divide="ignore"):
        a, b = _variance(first) / n, _variance(second) / m
        t = np.where(a + b > 0, (first.mean(axis=0) - second.mean(axis=0)) / np.sqrt(a + b), np.nan)
        df = (a + b) ** 2 / (a**2 / (n - 1) + b**2 / (m - 1))
    return Tested(t, 2 * t_distribution.sf(np.abs(t), df))


def anova(V: Array, x: Array) -> Tested:
    """Return the F of one-way ANOVA of each column of V (k, m) between groups of contexts with the same x."""
    codes = np.unique(x, return_inverse=True)[1]
    groups = [V[codes == g] for g in range(codes.max() + 1)]
    k, among = len(V), len(groups) - 1
    within = np.sum([_variance(part) * (len(part) - 1) for part in groups if len(part) > 1], axis=0)
    between = np.sum([len(part) * (part.mean(axis=0) - V.mean(axis=0)) ** 2 for part in groups], axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        F = np.where(within > 0, (between / among) / (within / (k - among - 1)), np.nan)
    return Tested(F, f_distribution.sf(F, among, k - among - 1))


TESTS: dict[str, Callable[[Array, Array], Tested]] = {"spearman": spearman, "t-test": welch, "anova": anova}


def permutation_p(name: str, V: Array, x: Array, n: int, rng: np.random.Generator) -> Tested:
    """Return the statistics of a test, and p-values by giving the covariate to other contexts ``n`` times.

    ``p = (1 + number of times the statistic was as large) / (1 + n)``: exact for any distribution, as long as contexts
    are exchangeable when nothing is associated. Signs do not count.
    """
    test = TESTS[name]
    statistics = test(V, x).statistics
    size = np.abs(statistics)
    # A statistic that is the same up to rounding counts as large.
    as_large = np.ones(V.shape[1])
    for _ in range(n):
        as_large += np.nan_to_num(np.abs(test(V, rng.permutation(x)).statistics)) >= size * (1 - 1e-9)
    return Tested(statistics, np.where(np.isnan(statistics), np.nan, as_large / (n + 1)))


def _variance(V: Array) -> Array:
    """Return variances that are exactly 0 for constant columns, where rounding would leave a little."""
    variance = ((V - V.mean(axis=0)) ** 2).sum(axis=0) / (len(V) - 1)
    return np.where(np.ptp(V, axis=0) == 0, 0.0, variance)
