"""A one-sided score test of every loading against zero, by the spread of the rows themselves.

For MCPC j the model is fitted without it, context by context, as for the likelihood ratio (``presence``). There the
derivative of a row's log-density by b_ij, less what the other unknowns of the context explain of it, is

    psi = g_j - I_jo I_oo^-1 g_o,

with g and I the derivatives and the information of (b_i, log s_i) and o those of them that are free (``sandwich`` has
the equations). Under the null hypothesis psi has mean 0 whatever the distribution of the rows. The statistic t is its
mean over the standard error of that, from the rows; only a positive one speaks for a positive loading.

psi is a square, and so skewed to the right, which makes large values of t rarer than normal
(``P(t <= x) = Phi(x) + g (2 x^2 + 1) phi(x) / 6 + ...`` with ``g`` the skewness over the root of n). Hall's transform
``t + g t^2 / 3 + g^2 t^3 / 27 + g / 6``, which is monotone, takes that out.

Of rows in groups it is the sums of psi over groups that are independent; about the mean of the context they take the
place of the rows, and t has one degree of freedom less than there are groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from .._model.gaussian import GaussianModel
from .._solvers.likelihood import Likelihood
from .._utils.types import Array
from .fisher import without_data
from .row_scores import RowScores

# Skewness of the square of a Gaussian score. That of heavy-tailed rows is larger, but then a few rows decide about it,
# and correcting by all of it rejects true hypotheses: 10% at a level of 5%, with one bad row in a hundred.
_MOST_SKEWNESS = np.sqrt(8)


class ScoreTests(NamedTuple):
    """The studentised mean of psi and its one-sided p-value, (k,) for one MCPC."""

    statistics: Array
    p_values: Array


def likelihood_of_rows(model: GaussianModel, rows: list[RowScores], taken: Array | int = 0) -> Likelihood:
    """Return ``model`` with the covariances of these rows as data; nuisance has ``taken`` degrees of freedom (k,)."""
    n = np.array([len(row.scores) - 1.0 for row in rows]) - taken
    R = np.stack([row.scores.T @ row.scores for row in rows]) / n[:, None, None]
    rest = np.array([row.outside.sum() for row in rows]) / n
    return replace(without_data(model, n), R=R, rest=rest)


def score_tests(
    without: Likelihood, j: int, rows: list[RowScores], noise_free: Array, codes: Sequence[Array] | None = None
) -> ScoreTests:
    """Test MCPC j in every context at ``without``, the model fitted without it.

    ``noise_free`` (k,) says which contexts have a noise variance that was fitted with it, ``codes`` are the groups of
    rows, k arrays (n_i,). Cost O(n r^2 + k r^3).
    """
    k, r = without.B.shape
    weights = _efficient_weights(without, j, noise_free)
    P = without.P
    # Of the constants in g: psi = weights . g, with g_b = (u^2 - diag P) / 2 and g_s as in ``sandwich``.
    expected = np.column_stack(
        [np.einsum("kjj->kj", P), without.s * np.einsum("kab,ab->k", P, without.N) + without.outside]
    )
    constants = np.einsum("kj,kj->k", weights, expected)
    # Of the terms of psi, which may cancel: what is far below is rounding.
    sizes = np.einsum("kj,kj->k", np.abs(weights), expected)
    statistics = np.zeros(k)
    p_values = np.ones(k)
    for i, row in enumerate(rows):
        n = len(row.scores)
        U = row.scores @ P[i]
        psi = U**2 @ weights[i, :r]
        of_noise = weights[i, r]
        if of_noise:
            s = without.s[i]
            psi += of_noise * s * np.einsum("na,na->n", U @ without.N, U)
            if without.outside:
                psi += of_noise / s * row.outside
        # Covariances divide by n - 1, and at these the model was fitted.
        psi = (psi * (n / (n - 1)) - constants[i]) / 2
        mean = psi.mean()
        deviations = psi - mean
        if codes is not None:
            # Sums over groups, of which there are n from here on; their mean is that of a group.
            deviations = np.bincount(np.unique(codes[i], return_inverse=True)[1], weights=deviations)
            mean *= n / len(deviations)
            n = len(deviations)
        spread = np.sqrt((deviations**2).sum() / (n - 1))
        # Two rows are at the same distance from their mean. All p-values stay 1 where nothing varies.
        if spread <= np.sqrt(np.finfo(float).eps) * sizes[i]:
            continue
        t = np.sqrt(n) * mean / spread
        skewness = np.clip((deviations**3).mean() / spread**3, -_MOST_SKEWNESS, _MOST_SKEWNESS) / np.sqrt(n)
        statistics[i] = t
        corrected = t + skewness * t**2 / 3 + skewness**2 * t**3 / 27 + skewness / 6
        p_values[i] = student.sf(corrected, n - 1)
    return ScoreTests(statistics, p_values)


def _efficient_weights(without: Likelihood, j: int, noise_free: Array) -> Array:
    """Return the weights (k, r + 1) of ``(g_b, g_s)`` in psi: 1 for j, ``-I_oo^-1 I_oj`` for the free, 0 elsewhere."""
    r = without.B.shape[1]
    # Loadings at 0 stay there, and do not explain anything.
    free = np.column_stack([without.B > 0, noise_free])
    free[:, j] = False
    information = without.context_information()
    block = np.where(free[:, :, None] & free[:, None, :], information, 0)
    diagonal = np.arange(r + 1)
    # A ridge, as in ``fit_contexts``, against two components with proportional columns of P.
    block[:, diagonal, diagonal] = np.where(free, block[:, diagonal, diagonal] * (1 + 1e-10), 1)
    weights = -np.linalg.solve(block, np.where(free, information[:, :, j], 0)[:, :, None])[:, :, 0]
    weights[:, j] = 1
    return np.asarray(weights)
