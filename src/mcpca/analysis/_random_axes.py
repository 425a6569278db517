"""What the best of many PCs has in common with an MCPC by chance: random axes, and contexts that exchange loadings.

A random axis is a mixture of the rows, each less the mean of its context, with normal weights g:

    u = sum_i g_i (x_i - mean of the context of i),    Cov(u) = (N - k) times the covariance within contexts.

It lies where rows vary, as MCPCs do, but knows nothing of what sets contexts apart. Directions that are uniform on the
sphere would not do: among thousands of features any axis in which rows vary is closer to a PC than they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from .._results.fitted_rows import sampled_rows
from .._utils.types import Array
from ._rows import FittedRows
from ._tails import ends, members

_MOST_ROWS = 100_000  # that are mixed; of more, a share of each context
_BLOCK_NUMBERS = 2**23  # in a block of what is compared, a byte each


class Best(NamedTuple):
    """The measures of MCPCs and PCs, (PCs, MCPCs), or the best of them by chance, (B,) or (B, MCPCs)."""

    cosine: Array
    variance_correlation: Array
    overlap: Array


@dataclass(frozen=True)
class ByChance:
    """Axes and loadings that have nothing to do with PCs, to be compared with PCs as MCPCs are.

    Attributes
    ----------
    axes : ndarray (q, B)
        Random axes of length 1.
    tails : pair of ndarray (n_top, B)
        Rows at either end of them, by number among those of fitted contexts.
    ranks : ndarray (B, k, r)
        Ranks of the loadings of MCPCs, centred and of length 1, after contexts exchanged them.
    """

    axes: Array
    tails: tuple[Array, Array]
    ranks: Array

    def best(self, V: Array, variances: Array, pc_tails: tuple[Array, Array], n_rows: int) -> Best:
        """Return the best of PCs V (q, m) by each measure: cosine and overlap (B,), variance correlation (B, r).

        ``variances`` (k, m) are those of the contexts along the PCs, and ``pc_tails`` the rows at either end of them,
        of ``n_rows``.
        """
        cosine = np.minimum(np.abs(V.T @ self.axes), 1).max(axis=0)
        # A PC that varies alike in all contexts has no correlation, and is no candidate.
        pc_ranks = unit_ranks(variances)
        pc_ranks = pc_ranks[:, np.isfinite(pc_ranks).all(axis=0)]
        correlation = np.full((len(self.ranks), self.ranks.shape[2]), np.nan)
        if pc_ranks.shape[1]:
            # (B, m, r), one context after another: B is large, the others are not.
            correlation = np.minimum(np.matmul(pc_ranks.T, self.ranks), 1).max(axis=1)
        n_top = len(self.tails[0])
        most = np.zeros(len(cosine))
        for inside in (members(tail, n_rows) for tail in pc_tails):
            for tail in self.tails:
                step = max(1, _BLOCK_NUMBERS // (n_top * V.shape[1]))
                for first in range(0, len(most), step):
                    block = slice(first, first + step)
                    # Rows in common of each random axis and each PC: (n_top, step, m), summed over rows.
                    most[block] = np.maximum(most[block], inside[tail[:, block]].sum(axis=0).max(axis=1))
        return Best(cosine, correlation, most / n_top)


def by_chance(
    rows: FittedRows, member: Array, loadings: Array, n_top: int, n: int, rng: np.random.Generator, width: int
) -> ByChance:
    """Draw n random axes and n exchanges of loadings (k, r).

    ``member`` are the numbers of the rows of fitted contexts, which compete for the ends. Rows are projected on
    ``width`` axes at a time, which bounds the memory.
    """
    axes = random_axes(rows, n, rng)
    exchanges = rng.permuted(np.tile(np.arange(len(loadings)), (n, 1)), axis=1)
    parts = [
        ends(rows.project(axes[:, first : first + width])[member], n_top) for first in range(0, axes.shape[1], width)
    ]
    high, low = (np.hstack([part[end] for part in parts]) for end in (0, 1))
    return ByChance(axes, (high, low), unit_ranks(loadings)[exchanges])


def random_axes(rows: FittedRows, n: int, rng: np.random.Generator) -> Array:
    """Return n random mixtures (q, n) of the rows within contexts, of length 1. Cost O(N q n)."""
    n_samples = rows.space.contexts.n_samples
    positions = [position for position in rows.space.order if position >= 0 and n_samples[position] > 0]
    counts = np.array([n_samples[position] for position in positions])
    shares = np.ceil(counts * min(1, _MOST_ROWS / counts.sum())).astype(int)
    axes = np.zeros((len(rows.components), n))
    for position, most in zip(positions, shares.tolist(), strict=True):
        drawn = sampled_rows(rows.space, [position], most).rows
        g = rng.standard_normal((drawn.shape[0], n))
        # Weights that sum to 0 do to the sum what centred rows would.
        axes += drawn.T @ (g - g.mean(axis=0))
    return np.asarray(axes / np.linalg.norm(axes, axis=0))


def unit_ranks(V: Array) -> Array:
    """Return the ranks of each column of V (k, m), centred and of length 1: products are Spearman's correlations.

    Constant columns become NaN.
    """
    ranks = rankdata(V, axis=0)
    ranks -= ranks.mean(axis=0)
    with np.errstate(invalid="ignore"):
        return np.asarray(ranks / np.linalg.norm(ranks, axis=0))


def p_of_best(observed: float, null: Array) -> float:
    """Return ``(1 + number of null as large) / (1 + number of null)``; NaN if there is nothing to compare."""
    if not len(null) or np.isnan(observed) or np.isnan(null).any():
        return float("nan")
    # Equal numbers may differ by rounding.
    return float(1 + (null >= observed - 1e-12).sum()) / (1 + len(null))
