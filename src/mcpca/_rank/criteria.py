"""What other seeds, held-out rows and the likelihood say about a rank: criteria that are reported beside halves.

``rank_curves`` calls this module. Each function returns an array with one entry per rank, or per pair of ranks; fits
are those of ``sample_fits``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata

from .._covariances.interface import Covariances
from .._covariances.subspace import Core
from .._data.contexts import Contexts
from .._inference import sampling
from .._model.gaussian import GaussianModel
from .._solvers import Settings, get_solver
from .._utils.progress import Search, silent
from .._utils.types import Array
from .paper_rule import seed_scores
from .sample_fits import FitAtRank, SampleFits, Sweep

# Fits of the likelihood are less exact than those of MCPCA: differences between ranks are far above a tenth of a
# standard error.
_LIKELIHOOD_TOL = 1e-5
_LIKELIHOOD_STEPS = 100
# The paper's measures for its TCGA data ("Determining rank for MCPCA"): the share of rows held out, the least |cos|
# between rows of pinv(A), and the least correlation between loadings, for a component to count as the same.
_HELD_OUT_SHARE = 0.1
_SAME_PROJECTION = 0.9
_SAME_LOADINGS = 0.99
_HOLDOUT_KEY = 2  # of the stream of random numbers that holds rows out


def seed_stability(core: Core, n_seed_pairs: int, ranks: Sequence[int], sweep: Sweep) -> Array:
    """Return the paper's stability score at every rank (m,)."""
    if core.n_contexts == 1:
        return np.ones(len(ranks))  # PCA: every seed gives the same axes

    def mean_score(r: int) -> float:
        return float(seed_scores(core, r, n_seed_pairs, sweep.seed).scores.mean())

    return np.array(sweep.over(sweep.stage("seeds", ranks), mean_score, ranks, core))


def bayesian_information(whole: SampleFits, ranks: Sequence[int], progress: Search) -> Array:
    """Return BIC (m,): ``(r (p + k - 1) + k) log n - 2 log L``, for r components and k noise variances.

    ``r (p + k - 1)`` is the dimension of the model: unit columns of A, and B (the paper's Proposition).
    """
    S = whole.covariances()
    n = whole.n_samples
    k = S.n_contexts
    p = S.n_features

    def criterion(r: int) -> float:
        model = maximum_likelihood(S, n, whole, r)
        log_likelihood = n @ model.log_likelihoods(model.likelihood(S, n))
        # Columns of A have unit length, p - 1 parameters each, and k loadings each; then k noise variances.
        n_parameters = r * (p + k - 1) + k
        return float(n_parameters * np.log(n.sum()) - 2 * log_likelihood)

    return np.array(whole.sweep.over(progress, criterion, ranks, whole.core))


def maximum_likelihood(S: Covariances, n: Array, fits: SampleFits, r: int) -> GaussianModel:
    """Fit ``solver="ml"`` with isotropic noise to the covariances ``S`` of ``fits``, to the accuracy of a sweep."""
    # Contexts weigh by their rows, as in MCPCA(solver="ml").
    settings = Settings(fits.sweep.generator(r), _LIKELIHOOD_TOL, _LIKELIHOOD_STEPS, silent, n - 1.0)
    solution = get_solver("ml", False, S.n_contexts)(S, fits.core, r, settings)
    assert solution.loadings is not None
    assert solution.noise is not None
    return GaussianModel(solution.components, solution.loadings, solution.noise)


def hold_out(contexts: Contexts, whole: SampleFits, ranks: Sequence[int]) -> dict[str, Array]:
    """Return the paper's measures for every pair of ranks (m, m), with a tenth of the rows held out, in whole groups.

    Entry (i, j) of "projection similarity" is the share of MCPCs at rank i, fitted to all rows, whose row of
    ``pinv(A)`` has |cos| > 0.9 with one at rank j, fitted to the remaining rows; of "loading similarity" the share
    whose loadings correlate above 0.99 with those of that match (NaN for fewer than three contexts).
    """
    sweep = whole.sweep
    stream = sweep.generator(_HOLDOUT_KEY)
    if contexts.groups is None:
        remaining, _ = sampling.split_rows(contexts, 1 - _HELD_OUT_SHARE, stream)
    else:
        remaining = sampling.without_some_groups(contexts, _HELD_OUT_SHARE, stream)
    reduced = SampleFits(remaining, sweep)
    reduced.fit(ranks, sweep.stage("hold-out", ranks))
    projection, loading = np.full((2, len(ranks), len(ranks)), np.nan)
    # Once per rank: within the loop over pairs, each pseudoinverse would be computed m times.
    whole_projections = [_projection_rows(whole.fits[r]) for r in ranks]
    reduced_projections = [_projection_rows(reduced.fits[r]) for r in ranks]
    for i, r in enumerate(ranks):
        fit = whole.fits[r]
        rows = whole_projections[i]
        for j, other_r in enumerate(ranks):
            other_fit = reduced.fits[other_r]
            other_rows = reduced_projections[j]
            if fit is None or rows is None or other_fit is None or other_rows is None:
                continue
            cosines = np.abs(rows @ other_rows.T)
            # The paper's maximum, not a one-to-one matching, which models of different ranks do not have.
            projection[i, j] = (cosines.max(axis=1) > _SAME_PROJECTION).mean()
            if len(contexts.names) > 2:  # two loadings always correlate by 1 or -1
                match = other_fit.B[:, cosines.argmax(axis=1)]
                loading[i, j] = (_correlations(fit.B, match) > _SAME_LOADINGS).mean()
    return {"projection similarity": projection, "loading similarity": loading}


def context_consistency(fits: Sequence[FitAtRank | None], *, as_authors: bool = False) -> Array:
    """Return for every pair of ranks (m, m) Spearman's correlation of the context-context correlations of loadings.

    ``as_authors`` is the authors' code instead: loadings of each MCPC are first centred over contexts and divided by
    their standard deviation, and the correlation over pairs is Pearson's. NaN where fewer than three contexts, or a
    single component, leave nothing to correlate.
    """
    consistency = np.full((len(fits),) * 2, np.nan)
    known = []
    orders = []
    for i, fit in enumerate(fits):
        if fit is not None and fit.B.shape[0] > 2 and fit.B.shape[1] > 1:
            # Rows of unit length around their mean: their products are Pearson's correlations between contexts.
            B = _unit_rows(_centred_rows(fit.B.T)).T if as_authors else fit.B
            Z = _unit_rows(_centred_rows(B))
            # Each pair of contexts once, without the diagonal of ones.
            correlations = (Z @ Z.T)[np.triu_indices(len(Z), 1)]
            if np.ptp(correlations) > 0:  # equal ones have no rank correlation
                known.append(i)
                orders.append(correlations if as_authors else rankdata(correlations))
    if known:
        # Spearman's correlation is Pearson's of the ranks.
        Z = _unit_rows(_centred_rows(np.array(orders)))
        consistency[np.ix_(known, known)] = Z @ Z.T
    return consistency


def _projection_rows(fit: FitAtRank | None) -> Array | None:
    """Return the rows of ``pinv(A)`` with unit length (r, p): the directions along which scores are measured."""
    return None if fit is None else _unit_rows(np.linalg.pinv(fit.A))


def _centred_rows(B: Array) -> Array:
    return np.asarray(B - B.mean(axis=1, keepdims=True))


def _unit_rows(Z: Array) -> Array:
    # A row of zeros stays one, and correlates with nothing.
    lengths = np.linalg.norm(Z, axis=1, keepdims=True)
    return np.asarray(Z / np.where(lengths > 0, lengths, 1))


def _correlations(B: Array, other: Array) -> Array:
    """Return Pearson's correlation of matching columns (r,)."""
    return np.asarray(np.einsum("jk,jk->j", _unit_rows(_centred_rows(B.T)), _unit_rows(_centred_rows(other.T))))
