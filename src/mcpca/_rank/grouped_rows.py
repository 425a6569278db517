"""Rows in groups, as two kinds of noise: that of rows within a group, and that of groups within a context.

Rows of a donor share what is particular to it. Differences between donors are then directions of large variance in a
context, as many as donors less one, and random signs of single rows take them for structure. The scatter of context i
with n_i rows in g_i groups is a sum of two,

    (n_i - 1) S_i = sum over rows (x - m_g)(x - m_g)^T + sum over groups n_g (m_g - m)(m_g - m)^T,

with n_i - g_i and g_i - 1 degrees of freedom, and the noise test looks at each of the 2 k matrices as if it were a
context of its own: structure is what features have in common more than by chance, among the rows of a group or among
the means of groups. ``GroupedRows`` has these matrices, and the rows whose signs are drawn:

* within groups, the contrasts of each row with the mean of those before it, ``sqrt(j / (j + 1)) (x_j - mean_j)`` for
  j = 1..n_g - 1. They are uncorrelated if rows are independent, and their scatter is the one above. There are as many
  of them as degrees of freedom, of which random signs then restore none.
* between groups, ``sqrt(n_g) (m_g - m)``, where a group has the same signs in all contexts that it is in. A donor's
  shift is often the same there, and would otherwise look like an axis that contexts share.

Nuisance (batch, covariates) is taken out of the rows first. With N (n_i, g_i) the indicators of groups and Q (n_i, d) a
basis of the constant and the nuisance, both orthonormal, means of groups keep ``g_i - |Q^T N|^2`` degrees of freedom:
``g_i - 1`` without nuisance, and none if the batch is the group.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse

from .._covariances.context_covariances import ContextCovariances
from .._covariances.nuisance_bases import RowBasis, context_basis
from .._data.contexts import Contexts
from .._utils.types import Array

# Degrees of freedom below which there are none: what is left is rounding, or a part of a single one.
_LEAST_FREEDOM = 0.5


def residual_rows(contexts: Contexts, i: int, means: Array) -> tuple[Array, RowBasis | None]:
    """Return the rows of context i about its mean, less nuisance, dense; and the basis of the nuisance, if any."""
    rows = contexts.dense_block(i) - means[i].astype(np.float64)
    if contexts.nuisance is None:
        return np.asarray(rows), None
    basis = context_basis(contexts.nuisance.strata[i], contexts.nuisance.numbers[i])
    return basis.residual(rows), basis


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
        freedom = np.zeros(2 * k)
        for i in range(k):
            between, _, basis = self.rows_between(i)
            # ``n_samples`` of moments is one more than their degrees of freedom, also with nuisance.
            total = float(moments.n_samples[i]) - 1
            freedom[k + i] = len(between) - (basis**2).sum()
            freedom[i] = total - freedom[k + i]
            scatter = between.T @ between
            # Where there is no freedom rounding is all that is left, and the part stays 0.
            if freedom[i] >= _LEAST_FREEDOM:
                parts[i] = (total * S[i].astype(np.float64) - scatter) / freedom[i]
            if freedom[k + i] >= _LEAST_FREEDOM:
                parts[k + i] = scatter / freedom[k + i]
        names = np.concatenate([moments.contexts, moments.contexts])
        self.moments = replace(moments, covariances=parts, n_samples=freedom + 1, contexts=names)

    def rows_between(self, i: int) -> tuple[Array, Array, Array]:
        """Return the rows whose signs are drawn for part ``k + i``, their groups, and what they do not vary in.

        ``N^T X`` (g_i, p), the groups (g_i,), and ``N^T Q`` (g_i, d): rows have been centred, and are to be again.
        """
        present, local, sizes = np.unique(self.codes[i], return_inverse=True, return_counts=True)
        rows, nuisance = residual_rows(self.contexts, i, self._means)
        n = len(rows)
        heights = 1 / np.sqrt(sizes)
        N = scipy.sparse.csr_array((heights[local], (np.arange(n), local)), shape=(n, len(sizes)))
        basis = N.T @ np.full((n, 1), 1 / np.sqrt(n)) if nuisance is None else nuisance.products(N.toarray()).T
        return np.asarray(N.T @ rows), present, np.asarray(basis)

    def rows_within(self, i: int) -> Array:
        """Return the contrasts (n_i - g_i, p) whose signs are drawn for part i."""
        codes = self.codes[i]
        order = np.argsort(codes, kind="stable")
        rows = residual_rows(self.contexts, i, self._means)[0][order]
        sizes = np.unique(codes, return_counts=True)[1]
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        # Sums of the rows before each, within its group.
        before = np.cumsum(rows, axis=0) - rows
        before -= np.repeat(before[starts], sizes, axis=0)
        j = np.arange(len(rows)) - np.repeat(starts, sizes)
        others = j > 0
        j = j[others][:, None]
        return np.asarray(np.sqrt(j / (j + 1)) * (rows[others] - before[others] / j))
