"""Rows in groups, as two kinds of noise: that of rows within a group, and that of groups within a context.

Rows of a donor share what is particular to it. Differences between donors are then directions of large variance in a
context, as many as donors less one, and random signs of single rows take them for structure. The scatter of context i
with n_i rows in g_i groups is a sum of two,

    (n_i - 1) S_i = sum over rows (x - m_g)(x - m_g)^T + sum over groups n_g (m_g - m)(m_g - m)^T,

with n_i - g_i and g_i - 1 degrees of freedom, and the noise test looks at each of the 2 k matrices as if it were a
context of its own: structure is what features have in common more than by chance, among the rows of a group or among
the means of groups. ``GroupedRows`` has these matrices, and the rows whose signs are drawn:

* within groups, the contrasts of each row with the mean of those before it, ``sqrt(j / (j + 1)) (x_j - mean_j)`` for
  j = 1..n_g - 1. They are uncorrelated if rows are independent, and their scatter is the one above: there are no more of
  them than degrees of freedom, which random signs would restore.
* between groups, ``sqrt(n_g) (m_g - m)``, where a group has the same signs in all contexts that it is in. A donor's
  shift is often the same there, and would otherwise look like an axis that contexts share.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .._covariances.context_covariances import ContextCovariances
from .._data.contexts import Contexts
from .._utils.types import Array


class GroupedRows:
    """Contexts with groups, as 2 k parts: parts 0..k-1 are within groups, k..2k-1 between groups.

    Attributes
    ----------
    moments : ContextCovariances
        Of the parts, with ``n_samples`` one more than their degrees of freedom.
    n_groups : int
        Number of groups in all.
    """

    def __init__(self, contexts: Contexts, moments: ContextCovariances) -> None:
        """Split the covariances; one pass over the rows, memory for two more stacks of covariances."""
        assert contexts.groups is not None
        self.contexts = contexts
        self.codes = contexts.groups.codes
        self.n_groups = len(contexts.groups.names)
        self._means = moments.means
        k = len(contexts.names)
        S = moments.covariances
        parts = np.zeros((2 * k, *S.shape[1:]), dtype=S.dtype)
        freedom = np.zeros(2 * k, dtype=np.int64)
        for i in range(k):
            between = self._between(i)[0]
            n = int(contexts.n_samples[i])
            g = len(between)
            freedom[i] = n - g
            freedom[k + i] = g - 1
            scatter = between.T @ between
            # Where there is no freedom rounding is all that is left, and the part stays 0.
            if n > g:
                parts[i] = ((n - 1) * S[i].astype(np.float64) - scatter) / (n - g)
            if g > 1:
                parts[k + i] = scatter / (g - 1)
        names = np.concatenate([moments.contexts, moments.contexts])
        self.moments = replace(moments, covariances=parts, n_samples=freedom + 1, contexts=names)

    def _centred(self, i: int) -> Array:
        """Return the rows of context i about their mean (n_i, p)."""
        return np.asarray(self.contexts.dense_block(i) - self._means[i].astype(np.float64))

    def _between(self, i: int) -> tuple[Array, Array, Array]:
        """Return ``sqrt(n_g) (m_g - m)`` (g_i, p), the groups (g_i,) that these are of, and their shares of rows."""
        present, local, sizes = np.unique(self.codes[i], return_inverse=True, return_counts=True)
        rows = self._centred(i)
        order = np.argsort(local, kind="stable")
        sums = np.add.reduceat(rows[order], np.concatenate([[0], np.cumsum(sizes)[:-1]]), axis=0)
        return sums / np.sqrt(sizes)[:, None], present, sizes / len(rows)

    def rows_between(self, i: int) -> tuple[Array, Array, Array]:
        """Return the rows whose signs are drawn for part ``k + i``, their groups, and their shares of the rows (g_i,).

        The sum of rows times the roots of their shares is 0, as the rows of a context sum to 0 about their mean.
        """
        return self._between(i)

    def rows_within(self, i: int) -> Array:
        """Return the contrasts (n_i - g_i, p) whose signs are drawn for part i."""
        codes = self.codes[i]
        order = np.argsort(codes, kind="stable")
        rows = self._centred(i)[order]
        sizes = np.unique(codes, return_counts=True)[1]
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        # Sums of the rows before each, within its group.
        before = np.cumsum(rows, axis=0) - rows
        before -= np.repeat(before[starts], sizes, axis=0)
        j = np.arange(len(rows)) - np.repeat(starts, sizes)
        others = j > 0
        j = j[others][:, None]
        return np.asarray(np.sqrt(j / (j + 1)) * (rows[others] - before[others] / j))
