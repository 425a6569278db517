"""Tests of columns of values against one covariate of the contexts: exact for few contexts, asymptotic for many.

Contexts are few, and the distributions of t and F are wrong for few values that are far from normal: between 2 contexts
and 30, Welch's test at level 5% errs in 15 to 25% of skewed loadings, and four contexts in the order of the covariate
have p = 0 by Student's t. Up to 50,000 arrangements are therefore enumerated, which is exact for any distribution.

``analysis.association`` and the plots of covariates call ``compare_with_covariate`` and thereby agree on p-values.
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

MOST_ARRANGEMENTS = 50_000  # up to which all are enumerated; time and memory of the list grow with it
_BLOCK_NUMBERS = 2**22  # in a block of arrangements times columns: 32 MB
_EQUAL_UP_TO_ROUNDING = 1e-9  # relative: an arrangement with the same statistic must count as one as large
_ROUNDING_OF_SQUARES = 1e-14  # of a total sum of squares, below which the sum within groups is zero


class Tested(NamedTuple):
    """Statistics and p-values (m,), NaN for constant columns."""

    statistics: Array
    p_values: Array


class _Form(NamedTuple):
    """A test of given data: ``statistics`` (m,), asymptotic ``p_values`` (m,), and what is permuted, ``x`` (k,).

    ``size(ways)`` (N, m) grows with the absolute statistic for each of N orders ``ways`` (N, k) of x. It leaves out
    whatever no order changes, which makes it a product of matrices.
    """

    statistics: Array
    p_values: Array
    x: Array
    size: Callable[[Array], Array]


def compare_with_covariate(
    test: str, V: Array, x: Array, permutations: int = 0, rng: np.random.Generator | None = None
) -> Tested:
    """Test each column of V (k, m) against a covariate of the k contexts.

    Parameters
    ----------
    test : {"spearman", "t-test", "anova"}
        Spearman's correlation with x; Student's t between x = 1 and x = 0; F between the groups of equal x.
    V : ndarray (k, m)
    x : ndarray (k,)
    permutations : int
        Number of random arrangements if there are too many to enumerate: ``p = (1 + number of those with as large a
        statistic) / (1 + permutations)``. With 0, p is then asymptotic.
    rng : Generator, optional
        For ``permutations``.

    Notes
    -----
    If x has at most 50,000 arrangements, p is the share of them with as large a statistic, whatever its sign: exact if
    contexts are exchangeable when there is no association. An asymptotic p is at least 2 over the number of
    arrangements, that of the most extreme order and its reverse.
    """
    # V (k, m), x (k,); ways (N, k) are orders of x, size(ways) (N, m).
    form = COVARIATE_TESTS[test](V, np.asarray(x, dtype=np.float64))
    n = n_arrangements(x)
    # By the same function as all arrangements, so that equal statistics differ by rounding at most.
    observed = form.size(form.x[None])[0]
    # Both a block of orders (step, k) and its sizes (step, m) stay below the bound.
    step = max(1, _BLOCK_NUMBERS // max(V.shape))
    if n <= MOST_ARRANGEMENTS:
        n_blocks = -(-n // step)
        p = _count_as_large(form.size, observed, np.array_split(arrangements(form.x), n_blocks)) / n
    elif permutations:
        assert rng is not None
        sizes = [min(step, permutations - first) for first in range(0, permutations, step)]
        blocks = (rng.permuted(np.tile(form.x, (size, 1)), axis=1) for size in sizes)
        # The observed order counts as one of the random ones, without which p could be 0 and the test too liberal.
        p = (1 + _count_as_large(form.size, observed, blocks)) / (1 + permutations)
    else:
        p = np.maximum(form.p_values, 2 / n)
    # Counting would give a constant column p = 1, or whatever rounding makes of it; NaN says that there is no test.
    constant = np.ptp(V, axis=0) == 0
    return Tested(np.where(constant, np.nan, form.statistics), np.where(constant, np.nan, p))


def _count_as_large(size: Callable[[Array], Array], observed: Array, blocks: Iterable[Array]) -> Array:
    """Return in how many arrangements the size of each column is at least ``observed`` (m,)."""
    bound = observed * (1 - _EQUAL_UP_TO_ROUNDING)
    return np.asarray(sum((size(ways) >= bound).sum(axis=0) for ways in blocks))


def n_arrangements(x: Array) -> int:
    """Return the number of different orders of the values of x, a multinomial coefficient."""
    ways = math.factorial(len(x))
    for count in np.unique(x, return_counts=True)[1].tolist():
        # Exact: every partial quotient is an integer.
        ways //= math.factorial(count)
    return ways


def arrangements(x: Array) -> Array:
    """Return all different orders of the values of x (k,), each a row (N, k)."""
    values, counts = np.unique(x, return_counts=True)
    # Value by value: each order so far (N, k) has free places (N, n), and every choice of ``count`` of them makes a new
    # order. Places left at the end get the last value.
    ways = np.full((1, len(x)), values[-1])
    free = np.arange(len(x))[None]
    for value, count in zip(values[:-1], counts[:-1].tolist(), strict=True):
        # ways (N, k), free (N, n), chosen (C, count): afterwards N C orders, with n - count places free in each.
        n = free.shape[1]
        chosen = np.array(list(combinations(range(n), count)))
        is_left = np.ones((len(chosen), n), dtype=bool)
        np.put_along_axis(is_left, chosen, False, axis=1)
        left = np.nonzero(is_left)[1].reshape(len(chosen), n - count)
        ways = np.repeat(ways, len(chosen), axis=0)
        np.put_along_axis(ways, free[:, chosen].reshape(-1, count), value, axis=1)
        free = free[:, left].reshape(-1, n - count)
    return ways


def rank_correlations(V: Array, W: Array) -> Array:
    """Return Spearman's correlation (m, l) of each column of V (k, m) with each of W (k, l); NaN for constant ones."""
    V_ranks = _centred_ranks(V)
    W_ranks = _centred_ranks(W)
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = V_ranks.T @ W_ranks / np.sqrt(np.outer((V_ranks**2).sum(axis=0), (W_ranks**2).sum(axis=0)))
    return np.asarray(np.clip(rho, -1, 1))


def _spearman(V: Array, x: Array) -> _Form:
    k = len(x)
    rho = rank_correlations(V, x[:, None])[:, 0]
    V_ranks = _centred_ranks(V)
    with np.errstate(invalid="ignore", divide="ignore"):
        # (1 - rho) (1 + rho) instead of 1 - rho^2, which cancels where rho is near 1.
        t = rho * np.sqrt((k - 2) / ((1 - rho) * (1 + rho)))
    p_values = 2 * t_distribution.sf(np.abs(t), k - 2)
    # Orders change neither norm of the ranks: rho grows with their product alone.
    return _Form(rho, p_values, _centred_ranks(x), lambda ways: np.abs(ways @ V_ranks))


def _student(V: Array, x: Array) -> _Form:
    k = len(x)
    n = x.sum()  # contexts with x = 1
    centred = _centred_columns(V)
    # The group of n has the mean x^T V / n, the rest minus x^T V / (k - n), as columns sum to 0.
    difference = x @ centred * k / (n * (k - n))
    # Between two groups the sum of squares is d^2 n (k - n) / k, for the difference d of their means.
    within = _sum_within((centred**2).sum(axis=0), difference**2 * n * (k - n) / k)
    with np.errstate(invalid="ignore", divide="ignore"):
        # 1 / n + 1 / (k - n) = k / (n (k - n)); the pooled variance has k - 2 degrees of freedom.
        t = difference / np.sqrt(within / (k - 2) * k / (n * (k - n)))
    # All arrangements have the same total sum of squares, so |t| grows with the difference of means, and that with the
    # sum of one group.
    return _Form(t, 2 * t_distribution.sf(np.abs(t), k - 2), x, lambda ways: np.abs(ways @ centred))


def _anova(V: Array, x: Array) -> _Form:
    k = len(x)
    centred = _centred_columns(V)
    groups, counts = np.unique(x, return_counts=True)

    def between(ways: Array) -> Array:
        # Columns sum to 0, so group sums squared over group sizes add up to the sum of squares between groups.
        parts = [((ways == g) @ centred) ** 2 / n for g, n in zip(groups, counts, strict=True)]
        return np.asarray(np.sum(parts, axis=0))

    freedom_between = len(groups) - 1
    freedom_within = k - freedom_between - 1
    explained = between(x[None])[0]
    within = _sum_within((centred**2).sum(axis=0), explained)
    with np.errstate(invalid="ignore", divide="ignore"):
        F = (explained / freedom_between) / (within / freedom_within)
    # F grows with the sum of squares between groups, as the total is the same for all arrangements.
    return _Form(F, f_distribution.sf(F, freedom_between, freedom_within), x, between)


COVARIATE_TESTS: dict[str, Callable[[Array, Array], _Form]] = {
    "spearman": _spearman,
    "t-test": _student,
    "anova": _anova,
}


def _centred_columns(V: Array) -> Array:
    return np.asarray(V - V.mean(axis=0))


def _centred_ranks(V: Array) -> Array:
    """Return the ranks within each column, less their mean."""
    return np.asarray(rankdata(V, axis=0) - (len(V) + 1) / 2)


def _sum_within(total: Array, between: Array) -> Array:
    """Return ``total - between``, sums of squares; exactly 0 where the difference is rounding."""
    within = total - between
    return np.where(within > _ROUNDING_OF_SQUARES * total, within, 0.0)
