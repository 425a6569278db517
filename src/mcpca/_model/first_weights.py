"""Weights of rows before there is a model: rows far from the rest of their context, in any direction, count less.

Without components a row at the squared distance ``d2 = ||x - m_i||^2 / s_i`` from the centre of its context weighs
``(1 + p) / (1 + d2)``, that of a multivariate t with one degree of freedom: rows far out in one direction do not pass
for a component then. Robust fits start from these weights, and the choice of a rank asks with them whether far rows
decide.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._covariances.context_covariances import ContextCovariances
from .._covariances.passes import Passes
from .._covariances.stack import as_stack
from .._covariances.weighted_moments import RowDistances, shrunk_rows, weighted_spread
from .._data.contexts import Contexts
from .._utils.types import Array
from .gaussian import FLOOR, GaussianModel
from .outlyingness import row_distances

LEAST_FREEDOM = 1.0  # degrees of freedom of the weights
# Weights are repeated, about the weighted means and by the weighted variances, until variances change by less than this
# share; each time gross errors inflate them about p times less.
_CHANGE = 0.2
_MOST_PASSES = 10


class FirstWeights(NamedTuple):
    """Distances in no direction in particular, and the sums of the weights that they give to rows (k,)."""

    distances: RowDistances
    totals: Array

    def shrunk(self, contexts: Contexts) -> Contexts:
        """Return the rows times the roots of their weights, over the mean weight of their context."""
        return shrunk_rows(contexts, self.distances, LEAST_FREEDOM, self.totals)


def first_weights(contexts: Contexts, plain: ContextCovariances, passes: Passes) -> FirstWeights:
    """Return the weights of rows whose moments, all rows alike, are ``plain``: some three passes of O(n p) each."""
    k, p = plain.means.shape
    means = plain.means.astype(np.float64)
    variances = as_stack(plain.covariances).variances().sum(axis=1) / p
    for _ in range(_MOST_PASSES):
        s = np.maximum(variances, max(float(variances.max()) * FLOOR, np.finfo(float).tiny))
        distances = row_distances(GaussianModel(A=np.zeros((p, 0)), B=np.zeros((k, 0)), s=s), means)
        totals, means, variances = weighted_spread(contexts, distances, LEAST_FREEDOM, passes, "first weights")
        if (np.abs(variances - s) <= _CHANGE * s).all():
            break
    return FirstWeights(distances, totals)
