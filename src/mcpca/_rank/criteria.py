"""What halves of the rows, other seeds, held-out rows and the likelihood say about a rank.

``rank_curves`` calls this module, rank by rank. ``Halves`` gives the agreement that decides together with the noise
test; the functions below it are the criteria that are only reported, each an array with one entry per rank, or per pair
of ranks.

Every set of rows (all, a half, nine tenths) is a ``SampleFits``. It gets one basis, for the largest rank, from which
the bases of all smaller ranks are cut. Whatever is random is seeded by its rank, so that the numbers at one rank depend
neither on the other ranks nor on the number of jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from .._covariances.context_covariances import ContextCovariances, covariances_of
from .._covariances.interface import Covariances
from .._covariances.passes import Passes
from .._covariances.stack import CovarianceStack
from .._covariances.streamed import StreamedCovariances
from .._covariances.subspace import Core, compress, numerical_rank
from .._data.contexts import Contexts
from .._inference import sampling
from .._inference.replication import Replicability, agreement_of_halves
from .._linalg.canonical import canonical_order
from .._model.gaussian import GaussianModel
from .._solvers import Settings, get_solver
from .._solvers.loadings import solve_loadings
from .._utils.parallel import each
from .._utils.progress import Search, silent
from .._utils.types import Array, Report
from .paper_rule import seed_scores

# Fits of the sweep are less exact than those of MCPCA: cosines are needed to three digits only, and differences
# between likelihoods are far above a tenth of a standard error.
_SWEEP_TOL = 1e-4
_SWEEP_STEPS = 30
_LIKELIHOOD_TOL = 1e-5
_LIKELIHOOD_STEPS = 100
# The paper's measures for its TCGA data ("Determining rank for MCPCA"): the share of rows held out, the least |cos|
# between rows of pinv(A), and the least correlation between loadings, for a component to count as the same.
_HELD_OUT_SHARE = 0.1
_SAME_PROJECTION = 0.9
_SAME_LOADINGS = 0.99
# Keys of the streams of random numbers that split the rows; fits are keyed by their rank.
_HALVES_KEY = 1
_HOLDOUT_KEY = 2
_CONTEXTS_KEY = 3
_ORDER_KEY = 4
_MOST_SPLITS = 10  # that the choice of a rank takes, unless more are asked for
_THREADED_WORK = 1e8  # e q^2 r^2 from which threads are faster than one: below, they wait for the interpreter


@dataclass(frozen=True)
class Sweep:
    """How to go through ranks: the largest of them, seed, threads and progress."""

    largest: int
    seed: int
    workers: int
    report: Report

    def stage(self, name: str, ranks: Sequence[int], times: int = 1) -> Search:
        """Return the progress of a stage that goes through ``ranks`` ``times`` times, counted in components."""
        # High ranks take longest, so components are a better measure of time than ranks.
        return Search(self.report, name, times * sum(ranks))

    def over(self, progress: Search, call: Callable[[int], Any], ranks: Sequence[int], core: Core) -> list[Any]:
        """Return ``call`` of every rank, in the order of ``ranks``; ``core`` tells how much work a call is."""
        e, q, _ = core.tensor.shape
        # The largest rank takes longest: it goes first, so that no thread is left with it at the end.
        order = sorted(range(len(ranks)), key=lambda i: -ranks[i])
        workers = self.workers if e * (q * max(ranks, default=0)) ** 2 > _THREADED_WORK else 1
        values: list[Any] = [None] * len(ranks)
        for place, value in zip(order, each(lambda i: call(ranks[i]), order, workers), strict=True):
            values[place] = value
            progress.step(ranks[place])
        return values

    def generator(self, *key: int) -> np.random.Generator:
        """Return the stream of random numbers that belongs to ``key``."""
        # NumPy hashes the whole tuple: streams of different keys are independent, however similar the keys.
        return np.random.default_rng((self.seed, *key))


class FitAtRank(NamedTuple):
    """Components (p, r) and loadings (k, r)."""

    A: Array
    B: Array


class SampleFits:
    """Some rows of every context, their basis, and their fits by rank.

    ``moments`` are kept if they are passed; otherwise covariances are computed for the basis and released again, so
    that halves cost the memory of their cores only. Without rows (None) ``moments`` are required.
    """

    def __init__(self, contexts: Contexts | None, sweep: Sweep, moments: ContextCovariances | None = None) -> None:
        self.contexts = contexts
        self.sweep = sweep
        self._moments = moments
        # Everything that is needed of the stack is taken here: unless it was passed, it is released at the end of this
        # method.
        S = CovarianceStack(self.moments().covariances)
        # Singular vectors are nested, so the basis of the largest rank holds those of all others.
        self.core = compress(S, sweep.largest)
        self.rank = numerical_rank(self.core.singular_values, S)
        self.squared_norm = float(S.squared_norms().sum())
        self.fits: dict[int, FitAtRank | None] = {}

    def moments(self) -> ContextCovariances:
        """Return the covariances, computed anew if they were not passed."""
        if self._moments is not None:
            return self._moments
        assert self.contexts is not None
        return covariances_of(self.contexts, silent)

    @cached_property
    def products(self) -> Covariances:
        """The covariances as an operator: from the array that was passed, or by passes over the rows.

        Fits work in the core and need products with a few columns only, for which no stack is kept.
        """
        if self.contexts is None or self._moments is not None:
            return CovarianceStack(self.moments().covariances)
        return StreamedCovariances.with_means(self.contexts, Passes.silent())

    def variances_along(self, A: Array) -> Array:
        """Return ``a_j^T S_i a_j`` (k, r)."""
        return self.products.variances_along(A)

    def fit(self, ranks: Sequence[int], progress: Search) -> None:
        """Fit the ranks that are missing by the power method; None where these rows vary in fewer directions."""
        missing = [r for r in ranks if r not in self.fits]
        fits = self.sweep.over(progress, self._fit, missing, self.core)
        self.fits |= dict(zip(missing, fits, strict=True))

    def _fit(self, r: int) -> FitAtRank | None:
        # Halves have fewer rows than the whole, and may vary in fewer directions.
        if r > self.rank:
            return None
        k = self.core.n_contexts
        # Contexts have equal weights, as in MCPCA by default.
        settings = Settings(self.sweep.generator(r), _SWEEP_TOL, _SWEEP_STEPS, silent, np.ones(k))
        # The solver itself cuts the core of rank r from the shared one (``Core.leading``).
        A = get_solver("mspm", False, k)(self.products, self.core, r, settings).components
        # Normal equations of the loadings: <aa', bb'> = (a'b)^2.
        B = solve_loadings((A.T @ A) ** 2, self.variances_along(A))
        return FitAtRank(*canonical_order(A, B)[:2])


class Halves:
    """Random splits of the rows, of their groups or of contexts into halves that share none, and their fits.

    The first ``n_splits`` splits are fitted at all ranks, those in ``more`` at single ones. If there are fewer
    different splits, it is these. ``by`` is that of ``MCPCA.replicability``.
    """

    def __init__(self, contexts: Contexts, n_splits: int, sweep: Sweep, by: str = "auto") -> None:
        self.sweep = sweep
        most = max(n_splits, _MOST_SPLITS)
        self.halving = sampling.Halves(contexts, by, most, sweep.generator(_ORDER_KEY))
        self._key = _CONTEXTS_KEY if by == "contexts" else _HALVES_KEY
        self._left_out: set[Any] = set()
        n_splits = min(n_splits, self.halving.n_splits)
        progress = Search(sweep.report, "halves of contexts" if by == "contexts" else "halves", 2 * n_splits)
        self.splits = [self._split(i, sweep, progress) for i in range(n_splits)]
        self.more: list[list[SampleFits]] = []

    def _split(self, i: int, sweep: Sweep, progress: Search) -> list[SampleFits]:
        parts = []
        # By the number of the split, not by the rank: a split is the same whatever ranks it is fitted at.
        halves = self.halving.split(i, self.sweep.generator(self._key, i))
        self._left_out |= set(self.halving.left_out([halves]))
        for half in halves:
            parts.append(SampleFits(half, sweep))
            progress.step()
        return parts

    def fit(self, ranks: Sequence[int], progress: Search) -> None:
        """Fit both halves of the first ``n_splits`` splits."""
        for split in self.splits:
            for part in split:
                part.fit(ranks, progress)

    def fit_more(self, r: int, n_splits: int) -> None:
        """Bring the number of splits at rank ``r`` up to ``n_splits``."""
        # Each more split costs two stacks of covariances and two bases: only a rank in question gets them.
        n_more = max(0, min(n_splits, self.halving.n_splits) - len(self.splits))
        progress = Search(self.sweep.report, f"{n_splits} splits at rank {r}", 2 * n_more * (r + 1))
        for i in range(n_more):
            # These splits have a basis for the one rank they were made for; a larger rank needs a wider basis.
            if i >= len(self.more) or self.more[i][0].sweep.largest < r:
                split = self._split(len(self.splits) + i, replace(self.sweep, largest=r), progress)
                self.more[i : i + 1] = [split]
        for split in self.more[:n_more]:
            for part in split:
                part.fit([r], progress)
        progress.finish()

    def pairs(self, r: int) -> list[tuple[FitAtRank | None, FitAtRank | None]]:
        """Return the fits of both halves, for all splits that were fitted at rank ``r``."""
        return [
            (first.fits[r], second.fits[r])
            for first, second in [*self.splits, *self.more]
            if r in first.fits and r in second.fits
        ]

    def cosines(self, r: int, A: Array | None) -> Array:
        """Return |cos| of each component between halves (splits, r), in the order of the columns of ``A``."""
        pairs = self.pairs(r)
        cosines = np.full((len(pairs), r), np.nan)
        for i, (first, second) in enumerate(pairs):
            # NaN, rather than a cosine of 0, where a half does not have the rank: "not known" is not "does not
            # replicate".
            if first is not None and second is not None and A is not None:
                cosines[i] = agreement_of_halves(first.A, second.A, A)
        return cosines

    def replicability(self, r: int, A: Array | None) -> Replicability:
        """Return the cosines at rank ``r`` with what was split."""
        cosines = self.cosines(r, A)
        n_ways = self.halving.n_ways if self.halving.n_ways == len(cosines) else None
        names = self.halving.contexts.names.tolist()
        left_out = tuple(name for name in names if name in self._left_out)
        return Replicability(cosines, by=self.halving.by, n_ways=n_ways, left_out=left_out)

    def held_out_error(self, r: int) -> float:
        """Return ``sum_i ||S_i - A B_i A^T||^2 / sum_i ||S_i||^2`` in the half that was not fitted, on average."""
        errors = []
        for split in self.splits:
            # Both ways, so that each half is predicted once.
            for fitted, other in (split, split[::-1]):
                fit = fitted.fits[r]
                if fit is None or other.squared_norm == 0:
                    return np.nan
                A, B = fit
                # ||S - A B A'||^2 = ||S||^2 - gain, with <S, A B A'> = sum_j b_j a_j' S a_j: no p x p residual.
                gain = 2 * np.vdot(other.variances_along(A), B) - np.vdot(B @ (A.T @ A) ** 2, B)
                errors.append(1 - float(gain) / other.squared_norm)
        return float(np.mean(errors))

    def held_out_likelihoods(self, ranks: Sequence[int], sweep: Sweep, progress: Search) -> Array:
        """Return the mean log-density (m,) of a row of the first split's other half, about the mean of its context."""
        # Only one split: three fits of solver="ml" at each rank cost more than everything else together. Covariances of
        # halves were released, and are computed again once for all ranks.
        first, second = self.splits[0]
        moments = (first.moments(), second.moments())
        curves = [
            _likelihoods_in_other_half(first, *moments, ranks, sweep, progress),
            _likelihoods_in_other_half(second, *moments[::-1], ranks, sweep, progress),
        ]
        return np.asarray(np.mean(curves, axis=0))


def _likelihoods_in_other_half(
    half: SampleFits,
    fitted: ContextCovariances,
    other: ContextCovariances,
    ranks: Sequence[int],
    sweep: Sweep,
    progress: Search,
) -> list[Any]:
    """Return the mean log-density of a row of ``other`` under models of the covariances ``fitted`` of ``half``."""
    n = other.n_samples

    def mean_log_density(r: int) -> float:
        if r > half.rank:
            return np.nan
        # The covariances of the other half are about its own means: the criterion judges covariances, and leaves means
        # aside.
        model = _maximum_likelihood(fitted, half.core, r, sweep)
        likelihood = model.likelihood(CovarianceStack(other.covariances), n)
        return float(np.average(model.log_likelihoods(likelihood), weights=n))

    return sweep.over(progress, mean_log_density, ranks, half.core)


def seed_stability(core: Core, n_seed_pairs: int, ranks: Sequence[int], sweep: Sweep) -> Array:
    """Return the paper's stability score at every rank (m,)."""
    if core.n_contexts == 1:
        return np.ones(len(ranks))  # PCA: every seed gives the same axes

    def mean_score(r: int) -> float:
        return float(seed_scores(core, r, n_seed_pairs, sweep.seed).scores.mean())

    return np.array(sweep.over(sweep.stage("seeds", ranks), mean_score, ranks, core))


def bayesian_information(
    moments: ContextCovariances, core: Core, ranks: Sequence[int], sweep: Sweep, progress: Search
) -> Array:
    """Return BIC (m,): ``(r (p + k - 1) + k) log n - 2 log L``, for r components and k noise variances.

    ``r (p + k - 1)`` is the dimension of the model: unit columns of A, and B (the paper's Proposition).
    """
    S = CovarianceStack(moments.covariances)
    n = moments.n_samples
    k = S.n_contexts
    p = S.n_features

    def criterion(r: int) -> float:
        model = _maximum_likelihood(moments, core, r, sweep)
        log_likelihood = n @ model.log_likelihoods(model.likelihood(S, n))
        # Columns of A have unit length, p - 1 parameters each, and k loadings each; then k noise variances.
        n_parameters = r * (p + k - 1) + k
        return float(n_parameters * np.log(n.sum()) - 2 * log_likelihood)

    return np.array(sweep.over(progress, criterion, ranks, core))


def _maximum_likelihood(moments: ContextCovariances, core: Core, r: int, sweep: Sweep) -> GaussianModel:
    """Fit ``solver="ml"`` with isotropic noise, to the accuracy of the sweep."""
    S = CovarianceStack(moments.covariances)
    # Contexts weigh by their rows, as in MCPCA(solver="ml").
    freedom = moments.n_samples - 1.0
    settings = Settings(sweep.generator(r), _LIKELIHOOD_TOL, _LIKELIHOOD_STEPS, silent, freedom)
    solution = get_solver("ml", False, S.n_contexts)(S, core, r, settings)
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


def context_consistency(fits: Sequence[FitAtRank | None]) -> Array:
    """Return for every pair of ranks (m, m) Spearman's correlation of the context-context correlations of loadings.

    NaN where fewer than three contexts, or a single component, leave nothing to correlate.
    """
    consistency = np.full((len(fits),) * 2, np.nan)
    known = []
    orders = []
    for i, fit in enumerate(fits):
        if fit is not None and fit.B.shape[0] > 2 and fit.B.shape[1] > 1:
            # Rows of unit length around their mean: their products are Pearson's correlations between contexts.
            Z = _unit_rows(_centred_rows(fit.B))
            # Each pair of contexts once, without the diagonal of ones.
            correlations = (Z @ Z.T)[np.triu_indices(len(Z), 1)]
            if np.ptp(correlations) > 0:  # equal ones have no rank correlation
                known.append(i)
                orders.append(rankdata(correlations))
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
