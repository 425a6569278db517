"""What seeds, halves of the rows, a tenth held out and the likelihood say of a rank.

Every set of rows gets one basis, for the largest rank, from which all smaller ones are cut. Whatever is random is
seeded by its rank, so that the numbers of one depend neither on the others nor on the number of jobs.
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
from .._inference.replication import agreement_of_halves, split_rows
from .._linalg.canonical import canonical_order
from .._model.gaussian import GaussianModel
from .._solvers import Settings, get_solver
from .._solvers.loadings import solve_loadings
from .._utils.parallel import each
from .._utils.progress import Search, silent
from .._utils.types import Array, Report
from .paper_rule import seed_scores

# Cosines are wanted to three digits, and differences between likelihoods are far above a tenth of a standard error.
_TOL, _MAX_ITER = 1e-4, 30
_LIKELIHOOD_TOL, _LIKELIHOOD_STEPS = 1e-5, 100
_HELD_OUT = 0.1
_PROJECTION, _LOADING = 0.9, 0.99  # the paper's
_HALVES, _HOLDOUT = 1, 2  # keys of streams of random numbers
_WORTHWHILE = 1e8  # e q^2 r^2 from which threads are faster than one: below, they wait for the interpreter


@dataclass(frozen=True)
class Sweep:
    """How to go through ranks: seed, threads, progress, and the largest rank of all."""

    largest: int
    seed: int
    workers: int
    report: Report

    def stage(self, name: str, ranks: Sequence[int], times: int = 1) -> Search:
        """Return what tells how far a stage is that goes through ranks, in components."""
        return Search(self.report, name, times * sum(ranks))

    def over(self, told: Search, call: Callable[[int], Any], ranks: Sequence[int], core: Core) -> list[Any]:
        """Return ``call`` of every rank, in their order; the largest, which takes longest, goes first."""
        e, q, _ = core.tensor.shape
        order = sorted(range(len(ranks)), key=lambda i: -ranks[i])
        workers = self.workers if e * (q * max(ranks, default=0)) ** 2 > _WORTHWHILE else 1
        out: list[Any] = [None] * len(ranks)
        for done, value in enumerate(each(lambda i: call(ranks[i]), order, workers)):
            out[order[done]] = value
            told.step(ranks[order[done]])
        return out

    def generator(self, *key: int) -> np.random.Generator:
        """Return the stream of random numbers with this key."""
        return np.random.default_rng((self.seed, *key))


class Fit(NamedTuple):
    """Components (p, r) and loadings (k, r)."""

    A: Array
    B: Array


class SampleFits:
    """Some rows of every context, their basis, and the fits that were asked for.

    Covariances that are given stay; others are computed for the basis and then let go. Without rows (None) they must
    be given.
    """

    def __init__(self, contexts: Contexts | None, sweep: Sweep, moments: ContextCovariances | None = None) -> None:
        self.contexts, self.sweep, self._given = contexts, sweep, moments
        S = CovarianceStack(self.moments().covariances)
        self.core = compress(S, sweep.largest)
        self.rank = numerical_rank(self.core.singular_values, S)
        self.squared_norm = float(S.squared_norms().sum())
        self.fits: dict[int, Fit | None] = {}

    def moments(self) -> ContextCovariances:
        """Return covariances as given, or computed anew."""
        if self._given is not None:
            return self._given
        assert self.contexts is not None
        return covariances_of(self.contexts, silent)

    @cached_property
    def products(self) -> Covariances:
        """The covariances, by passes over the rows where they were not given."""
        if self.contexts is None or self._given is not None:
            return CovarianceStack(self.moments().covariances)
        return StreamedCovariances.with_means(self.contexts, Passes.silent())

    def variances_along(self, A: Array) -> Array:
        """Return ``a_j^T S_i a_j`` (k, r)."""
        return self.products.variances_along(A)

    def fit(self, ranks: Sequence[int], told: Search) -> None:
        """Fit those ranks by the power method that were not yet; None where these rows vary in fewer directions."""
        missing = [r for r in ranks if r not in self.fits]
        for r, fit in zip(missing, self.sweep.over(told, self._fit, missing, self.core), strict=True):
            self.fits[r] = fit

    def _fit(self, r: int) -> Fit | None:
        if r > self.rank:
            return None
        k = self.core.n_contexts
        settings = Settings(self.sweep.generator(r), _TOL, _MAX_ITER, silent, np.ones(k))
        A = get_solver("mspm", False, k)(self.products, self.core, r, settings).components
        return Fit(*canonical_order(A, solve_loadings((A.T @ A) ** 2, self.variances_along(A)))[:2])


class Halves:
    """Random splits of the rows into halves that share none, fitted at the ranks that are asked for.

    The first ``n_splits`` are for all ranks, ``more`` for single ones.
    """

    def __init__(self, contexts: Contexts, n_splits: int, sweep: Sweep) -> None:
        self.contexts, self.sweep = contexts, sweep
        told = Search(sweep.report, "halves", 2 * n_splits)
        self.splits = [self._split(i, sweep, told) for i in range(n_splits)]
        self.more: list[list[SampleFits]] = []

    def _split(self, i: int, sweep: Sweep, told: Search) -> list[SampleFits]:
        parts = []
        for half in split_rows(self.contexts, 0.5, self.sweep.generator(_HALVES, i)):
            parts.append(SampleFits(half, sweep))
            told.step()
        return parts

    def fit(self, ranks: Sequence[int], told: Search) -> None:
        """Fit all halves."""
        for split in self.splits:
            for part in split:
                part.fit(ranks, told)

    def fit_more(self, r: int, n_splits: int) -> None:
        """Fit halves of ``n_splits`` splits in all at rank ``r``."""
        wanted = max(0, n_splits - len(self.splits))
        told = Search(self.sweep.report, f"{n_splits} splits at rank {r}", 2 * wanted * (r + 1))
        for i in range(wanted):
            if i >= len(self.more) or self.more[i][0].sweep.largest < r:
                split = self._split(len(self.splits) + i, replace(self.sweep, largest=r), told)
                self.more[i : i + 1] = [split]
        for split in self.more[:wanted]:
            for part in split:
                part.fit([r], told)
        told.finish()

    def pairs(self, r: int) -> list[tuple[Fit | None, Fit | None]]:
        """Return the fits of both halves, of all splits that were fitted at rank ``r``."""
        return [
            (one.fits[r], two.fits[r]) for one, two in [*self.splits, *self.more] if r in one.fits and r in two.fits
        ]

    def cosines(self, r: int, A: Array | None) -> Array:
        """Return |cos| of each component between halves (splits, r), in the order of the columns of ``A``."""
        pairs = self.pairs(r)
        out = np.full((len(pairs), r), np.nan)
        for i, (one, two) in enumerate(pairs):
            if one is not None and two is not None and A is not None:
                out[i] = agreement_of_halves(one.A, two.A, A)
        return out

    def held_out_error(self, r: int) -> float:
        """Return ``sum_i ||S_i - A B_i A^T||^2 / sum_i ||S_i||^2`` in the half that was not fitted, on average."""
        errors = []
        for split in self.splits:
            for own, other in (split, split[::-1]):
                fit = own.fits[r]
                if fit is None or other.squared_norm == 0:
                    return np.nan
                A, B = fit
                gain = 2 * np.vdot(other.variances_along(A), B) - np.vdot(B @ (A.T @ A) ** 2, B)
                errors.append(1 - float(gain) / other.squared_norm)
        return float(np.mean(errors))

    def held_out_likelihoods(self, ranks: Sequence[int], sweep: Sweep, told: Search) -> Array:
        """Return the mean log-density (m,) of a row of the first split's other half, about the mean of its context."""
        parts = self.splits[0]
        moments = [part.moments() for part in parts]
        curves = []
        for side in (0, 1):
            own, other, n = moments[side], moments[1 - side], moments[1 - side].n_samples

            def of(r: int, part: SampleFits = parts[side], own: Any = own, other: Any = other, n: Array = n) -> float:
                if r > part.rank:
                    return np.nan
                model = _maximum_likelihood(own, part.core, r, sweep)
                beside = model.likelihood(CovarianceStack(other.covariances), n)
                return float(np.average(model.log_likelihoods(beside), weights=n))

            curves.append(sweep.over(told, of, ranks, parts[side].core))
        return np.asarray(np.mean(curves, axis=0))


def seed_stability(core: Core, n_seed_pairs: int, ranks: Sequence[int], sweep: Sweep) -> Array:
    """Return the paper's score at every rank (m,); one context has one answer."""
    if core.n_contexts == 1:
        return np.ones(len(ranks))

    def of(r: int) -> float:
        return float(seed_scores(core, r, n_seed_pairs, sweep.seed).scores.mean())

    return np.array(sweep.over(sweep.stage("seeds", ranks), of, ranks, core))


def bayesian_information(
    moments: ContextCovariances, core: Core, ranks: Sequence[int], sweep: Sweep, told: Search
) -> Array:
    """Return BIC (m,): ``(r (p + k - 1) + k) log n - 2 log L``, for r components and k noise variances.

    ``r (p + k - 1)`` is the dimension of the model: unit columns of A, and B (the paper's Proposition).
    """
    S, n = CovarianceStack(moments.covariances), moments.n_samples
    k, p = S.n_contexts, S.n_features

    def of(r: int) -> float:
        model = _maximum_likelihood(moments, core, r, sweep)
        log_likelihood = n @ model.log_likelihoods(model.likelihood(S, n))
        return float((r * (p + k - 1) + k) * np.log(n.sum()) - 2 * log_likelihood)

    return np.array(sweep.over(told, of, ranks, core))


def _maximum_likelihood(moments: ContextCovariances, core: Core, r: int, sweep: Sweep) -> GaussianModel:
    S, freedom = CovarianceStack(moments.covariances), moments.n_samples - 1.0
    settings = Settings(sweep.generator(r), _LIKELIHOOD_TOL, _LIKELIHOOD_STEPS, silent, freedom)
    found = get_solver("ml", False, S.n_contexts)(S, core, r, settings)
    assert found.loadings is not None
    assert found.noise is not None
    return GaussianModel(found.components, found.loadings, found.noise, diagonal=False)


def hold_out(contexts: Contexts, whole: SampleFits, ranks: Sequence[int]) -> dict[str, Array]:
    """Return the paper's measures for every pair of ranks (m, m), with a tenth of the rows held out.

    Entry (i, j) of "projection similarity" is the share of MCPCs at rank i, of all rows, whose row of ``pinv(A)`` has
    |cos| > 0.9 with one at rank j of the rows that are left; of "loading similarity" the share whose loadings correlate
    above 0.99 with those of that match (NaN for fewer than three contexts).
    """
    kept = SampleFits(split_rows(contexts, 1 - _HELD_OUT, whole.sweep.generator(_HOLDOUT))[0], whole.sweep)
    kept.fit(ranks, whole.sweep.stage("hold-out", ranks))
    projection, loading = np.full((2, len(ranks), len(ranks)), np.nan)
    rows, rows_kept = ([_projection(part.fits[r]) for r in ranks] for part in (whole, kept))
    for i, (fit, own) in enumerate(zip((whole.fits[r] for r in ranks), rows, strict=True)):
        for j, (other, others) in enumerate(zip((kept.fits[r] for r in ranks), rows_kept, strict=True)):
            if fit is None or own is None or other is None or others is None:
                continue
            cosines = np.abs(own @ others.T)
            projection[i, j] = (cosines.max(axis=1) > _PROJECTION).mean()
            if len(contexts.names) > 2:
                match = other.B[:, cosines.argmax(axis=1)]
                loading[i, j] = (_correlations(fit.B, match) > _LOADING).mean()
    return {"projection similarity": projection, "loading similarity": loading}


def context_consistency(fits: Sequence[Fit | None]) -> Array:
    """Return for every pair of ranks (m, m) Spearman's correlation of the context-context correlations of loadings.

    NaN where fewer than three contexts, or a single component, leave nothing to correlate.
    """
    out = np.full((len(fits),) * 2, np.nan)
    known, ordered = [], []
    for i, fit in enumerate(fits):
        if fit is not None and fit.B.shape[0] > 2 and fit.B.shape[1] > 1:
            Z = _unit_rows(_centred(fit.B))
            correlations = (Z @ Z.T)[np.triu_indices(len(Z), 1)]
            if np.ptp(correlations) > 0:
                known.append(i)
                ordered.append(rankdata(correlations))
    if known:
        Z = _unit_rows(_centred(np.array(ordered)))
        out[np.ix_(known, known)] = Z @ Z.T
    return out


def _projection(fit: Fit | None) -> Array | None:
    return None if fit is None else _unit_rows(np.linalg.pinv(fit.A))


def _centred(B: Array) -> Array:
    return np.asarray(B - B.mean(axis=1, keepdims=True))


def _unit_rows(Z: Array) -> Array:
    size = np.linalg.norm(Z, axis=1, keepdims=True)
    return np.asarray(Z / np.where(size > 0, size, 1))


def _correlations(B: Array, other: Array) -> Array:
    """Pearson's correlation of matching columns."""
    return np.asarray(np.einsum("jk,jk->j", _unit_rows(_centred(B.T)), _unit_rows(_centred(other.T))))
