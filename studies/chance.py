"""The reference of chance: fits after contexts were permuted over rows, and where a number stands among such numbers.

Every study calls ``permuted_fits`` with the statistic of a claim and reports it as a ``Chance``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from mcpca import MCPCA, IdentifiabilityWarning

Array = NDArray[Any]
_MOST_TRIES = 10_000  # to permute groups so that every context has enough rows


@dataclass(frozen=True)
class Chance:
    """A number, ``observed``, and those that chance gives, ``null`` (n,)."""

    observed: float
    null: Array

    @property
    def p(self) -> float:
        """Share of chance that is at least as large, counting the observed number itself, so that it is never 0."""
        # Equal numbers may differ by rounding.
        return float((1 + np.sum(self.null >= self.observed - 1e-12)) / (1 + len(self.null)))

    @property
    def mean(self) -> float:
        """Mean of chance."""
        return float(np.mean(self.null))

    @property
    def upper(self) -> float:
        """The 95% quantile of chance."""
        return float(np.quantile(self.null, 0.95))

    def numbers(self, name: str) -> dict[str, float]:
        """Return NAME, NAME_chance, NAME_chance_upper and NAME_p for a report."""
        return {
            name: self.observed,
            f"{name}_chance": self.mean,
            f"{name}_chance_upper": self.upper,
            f"{name}_p": self.p,
        }

    def words(self, digits: int = 2) -> str:
        """Return "mean 0.10, up to 0.15; p = 0.005"."""
        return f"mean {self.mean:.{digits}f}, 95% up to {self.upper:.{digits}f}; p = {self.p:.2g}"


def centred_by_context(X: Array, y: Array) -> Array:
    """Return rows minus the mean of their context: what is left differs in covariance alone."""
    out = np.asarray(X, dtype=np.float64).copy()
    for name in np.unique(y):
        rows = y == name
        out[rows] -= out[rows].mean(axis=0)
    return out


def covariances(X: Array, codes: Array, k: int) -> tuple[Array, Array]:
    """Return the covariances (k, p, p) of rows by code 0..k-1, and the number of rows of each."""
    n = np.bincount(codes, minlength=k)
    S = np.empty((k, X.shape[1], X.shape[1]))
    for i in range(k):
        block = X[codes == i]
        block = block - block.mean(axis=0)
        S[i] = block.T @ block / max(len(block) - 1, 1)
    return S, n


def permuted_fits(
    X: Array,
    y: Array,
    rank: int,
    n: int,
    statistic: Callable[[MCPCA], Any],
    *,
    seed: int,
    deal: Callable[[Array, np.random.Generator], Array] | None = None,
) -> list[Any]:
    """Permute contexts over rows and fit, ``n`` times; return a statistic of each fit.

    Rows are first centred by their own context, so that differences between means do not become covariance. Contexts
    then differ by chance alone, and keep their numbers of rows.

    Parameters
    ----------
    X : ndarray (N, p)
    y : ndarray (N,)
        Contexts.
    rank : int
    n : int
    statistic : callable
        Called with each fitted model, whose contexts are those of ``y`` in order.
    seed : int
    deal : callable, optional
        Called with the codes of the rows and a generator, it returns them permuted; by default row by row.
    """
    names, codes = np.unique(y, return_inverse=True)
    rows = centred_by_context(X, y)
    rng = np.random.default_rng(seed)
    permute = deal if deal is not None else (lambda row_codes, generator: generator.permutation(row_codes))
    statistics = []
    with warnings.catch_warnings():
        # Contexts that differ by chance alone do not tell MCPCs apart, which is the point; nor do solvers converge.
        warnings.simplefilter("ignore", IdentifiabilityWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        for _ in range(n):
            S, counts = covariances(rows, permute(codes, rng), len(names))
            model = MCPCA(rank, random_state=0).fit_covariances(S, n_samples=counts, context_names=names.tolist())
            statistics.append(statistic(model))
    return statistics


def deal_groups(
    groups: Array, within: Array | None = None, *, min_rows: int = 2
) -> Callable[[Array, np.random.Generator], Array]:
    """Return a function that permutes contexts over whole groups of rows (works, patients), for ``permuted_fits``.

    Each group has one context. Contexts keep their number of groups but not of rows; a permutation that leaves a
    context with fewer than ``min_rows`` is drawn again, since a context of few rows differs from others by that alone.
    With ``within``, one value for each row, groups exchange contexts only with groups of the same value.
    """
    _, first, of_group = np.unique(groups, return_index=True, return_inverse=True)
    strata = np.zeros(len(first)) if within is None else np.asarray(within)[first]

    def deal(codes: Array, rng: np.random.Generator) -> Array:
        if not np.array_equal(codes[first][of_group], codes):
            raise ValueError("A group has rows of several contexts; permute rows, or groups within contexts.")
        for _ in range(_MOST_TRIES):
            group_codes = codes[first]
            for stratum in np.unique(strata):
                in_stratum = strata == stratum
                group_codes[in_stratum] = rng.permutation(group_codes[in_stratum])
            permuted = np.asarray(group_codes[of_group])
            if np.bincount(permuted).min() >= min_rows:
                return permuted
        raise ValueError(
            f"None of {_MOST_TRIES} permutations gives every context min_rows={min_rows} rows; lower min_rows."
        )

    return deal


def spread(model: MCPCA) -> float:
    """Return how unequal loadings are over contexts: their coefficient of variation, the mean over MCPCs."""
    B = np.asarray(model.loadings_)
    means = B.mean(axis=0)
    return float(np.mean(B.std(axis=0) / np.where(means > 0, means, 1)))
