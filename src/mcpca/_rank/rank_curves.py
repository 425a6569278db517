"""Which ranks are examined, and what every criterion says there.

``recommend`` makes one ``Curves`` after the noise test. ``default_ranks`` and ``Curves.search`` decide where to fit, at
as few ranks as an answer needs, since high ranks cost most; ``Curves.add`` computes the criteria that were requested;
``Curves.all_columns`` is the table that ``RankSelection`` shows. The criteria themselves are in ``criteria`` and
``noise_test``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from .._covariances.context_covariances import ContextCovariances
from .._data.contexts import Contexts
from .._inference.context_dependence import dependence_of
from .._inference.dependence_result import ContextDependence
from .._inference.replication import REPLICATES, Replicability
from .._inference.sampling import some_rows
from .._utils.progress import Search, silent
from .._utils.types import Array
from .criteria import bayesian_information, context_consistency, hold_out, seed_stability
from .halves import MOST_SPLITS, Halves
from .noise_test import STANDARD_DEVIATIONS, Level, ResidualTest
from .sample_fits import SampleFits, Sweep

# The default grid: every rank up to _DENSE_END, then steps that grow by _STEP_GROWTH, up to _LARGEST_RANK or _MARGIN
# ranks above the number of directions above noise. That is some 25 ranks where the largest is 100.
_DENSE_END = 8
_STEP_GROWTH = 1.2
_LARGEST_RANK = 100
_MARGIN = 2
# The search. The largest rank is tried first unless it exceeds this share of all directions: where nearly everything is
# above noise, the number of directions says little about how many components halves agree on.
_INFORMATIVE_SHARE = 0.8
_LOOK_AHEAD = 1.5  # the way up ends at this many times the last rank that passed, plus _REACH
_REACH = 5
_CURVE_RANKS = 12  # ranks in a curve that is computed for a plot and not for the decision
# Numbers of splits tried in turn until a decision is clear: on the mean over components at a rank, and on each
# component of the recommended one.
_SPLITS = (2, 5, 10, 20, 40, MOST_SPLITS)
_OPERATIONS = 3e9  # for covariances and bases of all splits at a rank, n p^2 + k p^3 for each; two are always allowed
_CLEAR_IN_ONE = 0.95  # least |cos| of all components from which on a single split is enough
# Standard deviation over splits of a mean |cos| as it usually is, counting like this many splits of the data at hand.
_USUAL_SPREAD = 0.05
_USUAL_SPLITS = 4
# Rows by which the choice tells whether contexts differ, and permutations of them.
_DEPENDENCE_ROWS = 5000
_PERMUTATIONS = 99
_DEPENDENCE_KEY = 5  # of the stream of random numbers for them; the others are in ``halves`` and ``criteria``
_STANDARD_ERRORS = 2.0  # from the threshold at which a decision is clear


def default_ranks(above: int, data_rank: int, n: Array) -> Array:
    """Return every rank up to a few, then ever wider steps, and every rank around ``above``; ``n`` (k,) are rows."""
    # Centred halves of n_i // 2 rows vary in no more than this many directions.
    directions_of_halves = int((n // 2 - 1).sum())
    end = max(1, min(data_rank, directions_of_halves, max(above + _MARGIN, 4), _LARGEST_RANK))
    values = [1.0]
    step = 1.0
    # Steps grow geometrically, as high ranks cost most.
    while values[-1] < end:
        step = 1.0 if values[-1] < _DENSE_END else step * _STEP_GROWTH
        values.append(values[-1] + step)
    # Every rank around the bound of the noise test, where the decision is likely to fall.
    near = np.arange(above - 1, above + _MARGIN + 1)
    grid = np.unique(np.concatenate([np.round(values).astype(int), near, [end]]))
    return np.asarray(grid[(grid >= 1) & (grid <= end)])


def thinned(grid: Array, above: int) -> list[int]:
    """Return about a dozen ranks of ``grid``, among them all those around ``above``."""
    near = np.abs(grid - above) <= _MARGIN
    some = np.linspace(0, len(grid) - 1, min(len(grid), _CURVE_RANKS)).round().astype(int)
    return np.union1d(grid[near], grid[some]).tolist()  # type: ignore[no-any-return]


class Curves:
    """The fits and criteria at the ranks that were examined.

    ``grid`` are the ranks that may be examined, ``ranks`` those that were. ``columns`` holds one array (m,) per
    criterion that was requested, ``pairwise`` those with a value for each pair of ranks (m, m), and ``scree`` the
    singular values with their band (p,). ``moments`` is None where the stack would be too large, and ``halves`` are
    given if they were needed before.
    """

    def __init__(
        self,
        contexts: Contexts | None,
        moments: ContextCovariances | None,
        test: ResidualTest,
        sweep: Sweep,
        n_splits: int,
        grid: Array,
        halves: Halves | None = None,
    ) -> None:
        self.contexts = contexts
        self._first_halves = halves
        self.moments = moments
        self.test = test
        self.sweep = sweep
        self.n_splits = n_splits
        self.grid = grid
        self.ranks: list[int] = []
        self.columns: dict[str, Array] = {}
        self.pairwise: dict[str, Array] = {}
        self.scree: dict[str, Array] = {}
        self.by_contexts: Halves | None = None
        self.not_by_contexts = ""  # why contexts could not be split

    @cached_property
    def whole(self) -> SampleFits:
        """Fits of all rows."""
        return SampleFits(self.contexts, self.sweep, self.moments)

    @cached_property
    def halves(self) -> Halves | None:
        """Fits of random halves of the rows; None without rows."""
        if self._first_halves is not None:
            return self._first_halves
        return None if self.contexts is None else Halves(self.contexts, self.n_splits, self.sweep)

    @cached_property
    def progress(self) -> Search:
        """Progress of the fits, counted in components: all rows and all halves, at every rank of the grid."""
        parts = 1 if self.contexts is None else 1 + 2 * self.n_splits
        return Search(self.sweep.report, "ranks", parts * int(self.grid.sum()))

    def fit_at(self, ranks: list[int]) -> None:
        """Fit halves of the rows at these ranks; without rows there are none, and the noise test alone decides."""
        if self.halves is not None:
            self.halves.fit(ranks, self.progress)
        # Ascending and each once, since columns are indexed by position in this list.
        self.ranks = sorted({*self.ranks, *ranks})

    def replicability(self, r: int, A: Array | None = None) -> Replicability | None:
        """Return what halves say of the columns of ``A``, or of the fit here; None without rows."""
        if self.halves is None:
            return None
        return self.halves.replicability(r, self._fitted(r) if A is None else A)

    def replicability_by_contexts(self, r: int, A: Array | None = None) -> Replicability | None:
        """Return the same for halves of the contexts; None if they were not split, or not fitted at this rank."""
        if self.by_contexts is None or not self.by_contexts.pairs(r):
            return None
        return self.by_contexts.replicability(r, self._fitted(r) if A is None else A)

    def dependence(self, r: int, A: Array) -> ContextDependence | None:
        """Return whether contexts differ in the columns of ``A``; None where they cannot be compared.

        Axes are those of the first two halves that were fitted at rank ``r``. A few thousand rows, and 99 permutations
        of them, tell what this is for; ``MCPCA.context_dependence`` takes all rows, and more splits and permutations.
        """
        fitted = [] if self.halves is None else self.halves.fitted(r)[:1]
        if self.contexts is None or len(self.contexts.names) < 2 or not fitted:
            return None
        rng = self.sweep.generator(_DEPENDENCE_KEY)
        # Groups are permuted whole.
        some = self.contexts if self.contexts.groups is not None else some_rows(self.contexts, _DEPENDENCE_ROWS, rng)
        options = {"n_permutations": _PERMUTATIONS, "workers": self.sweep.workers}
        try:
            return dependence_of(some, A, fitted, **options, rng=rng, report=silent)
        except ValueError:
            # Groups may leave fewer than two contexts that can be split.
            return None

    def _fitted(self, r: int) -> Array | None:
        if r not in self.whole.fits:
            self.whole.fit([r], self.progress)
        whole = self.whole.fits[r]
        return None if whole is None else whole.A

    def agreement(self, r: int) -> float:
        """Return the mean |cos| between halves; NaN without rows."""
        return np.nan if self.halves is None else float(self.halves.unordered(r).mean())

    def search(self, ranks: list[int], threshold: float, *, patient: bool) -> None:
        """Try the largest rank, and if halves do not agree there go up from the smallest.

        The way up ends well above the last rank at which they agreed, unless ``patient``: higher ranks cost most. The
        largest is not tried first where nearly all directions are above noise, or more than the grid holds: their
        number then says little.
        """
        largest = ranks[-1]
        informative = self.is_informative(largest, patient=patient)
        # One fit is enough if all directions above noise replicate. Without rows the noise test decides alone.
        if self.halves is None or informative or largest <= _DENSE_END:
            self.fit_at([largest])
            if self.halves is None or self._agree(largest, threshold):
                return
        if patient:
            self.fit_at(ranks)
            return
        # Agreement need not fall steadily with the rank, so the search does not stop at the first rank that fails.
        last_passing = 0
        start = 0
        while start < len(ranks) and ranks[start] <= _LOOK_AHEAD * last_passing + _REACH:
            within_reach = sum(r <= _LOOK_AHEAD * last_passing + _REACH for r in ranks)
            stop = max(start + 1, within_reach)
            self.fit_at(ranks[start:stop])
            passing = [r for r in ranks[start:stop] if self.agreement(r) > threshold]
            last_passing = max([last_passing, *passing])
            start = stop

    def is_informative(self, above: int, *, patient: bool = False) -> bool:
        """Whether ``above`` directions above noise say how many components halves may agree on."""
        # Without a stack the test sees no more directions than may be ranks.
        directions, most = len(self.test.V), _LARGEST_RANK
        if self.moments is None:
            assert self.contexts is not None
            directions, most = self.contexts.n_features, self.sweep.largest
        return above <= _INFORMATIVE_SHARE * directions and (patient or above < most)

    def largest_agreeing(self, allowed: list[int], threshold: float) -> int | None:
        """Return the largest of the ranks where halves agree; splits are added where that is close.

        A rank that is just below the threshold with few splits may be above it with many, and the other way round.
        """
        assert self.halves is not None
        return next((r for r in sorted(allowed, reverse=True) if self._agree(r, threshold)), None)

    def _agree(self, r: int, threshold: float) -> bool:
        """Return whether halves agree at rank ``r``, by all splits that its components need as well.

        The largest rank that passes is the one that few splits flatter most: it has to pass once more, with those that
        its components were settled by.
        """
        if not self._settled_agreement(r, threshold) > threshold:
            return False
        self.settle_components(r, threshold)
        return self.agreement(r) > threshold

    def _settled_agreement(self, r: int, threshold: float) -> float:
        """Return the mean |cos| at rank ``r`` from as many splits as it takes to tell it from the threshold."""
        assert self.halves is not None
        for n_splits in self._splits():
            # (splits,), one mean over components for each split; NaN where a half has too few rows for this rank.
            means = self.halves.unordered(r).mean(axis=1)
            if np.isnan(means).any():
                break
            error = self._spread_of_means() / np.sqrt(len(means))
            if abs(means.mean() - threshold) > _STANDARD_ERRORS * error:
                break
            self.halves.fit_more(r, n_splits)
        return self.agreement(r)

    def _splits(self) -> tuple[int, ...]:
        """Return how many splits to try in turn: of large data each takes long, and where they are many rows says more.

        By operations, and not by time, which varies.
        """
        if self.moments is None:
            return _SPLITS[:1]
        k, p, _ = self.moments.covariances.shape
        each_split = float(self.moments.n_samples.sum()) * p**2 + float(k) * p**3
        return tuple(n for n in _SPLITS if n == _SPLITS[0] or n * each_split <= _OPERATIONS)

    def _spread_of_means(self) -> float:
        """Return the standard deviation over splits of a mean |cos|, from all ranks: of one, few splits say little."""
        assert self.halves is not None
        squares = _USUAL_SPLITS * _USUAL_SPREAD**2
        freedom = _USUAL_SPLITS
        for r in self.ranks:
            means = self.halves.unordered(r).mean(axis=1)
            if not np.isnan(means).any():
                squares += float(((means - means.mean()) ** 2).sum())
                freedom += len(means) - 1
        # Agreement of one split by chance is what makes the decision wrong: no less than usual.
        return max(float(np.sqrt(squares / freedom)), _USUAL_SPREAD)

    def settle_components(self, r: int, threshold: float) -> None:
        """Add splits at rank ``r`` until it is clear which components come back, or there are as many as we take."""
        assert self.halves is not None
        for n_splits in self._splits():
            unordered = self.halves.unordered(r)
            # With every pair above in every split no order could leave a component in doubt.
            least = REPLICATES if len(unordered) > 1 else _CLEAR_IN_ONE
            if np.isnan(unordered).any() or unordered.min() > least:
                break
            if len(unordered) < 2:
                self.halves.fit_more(r, n_splits)
                continue
            if len(unordered) >= n_splits:
                continue  # and all rows need not be fitted to tell which components are in doubt
            found = self.replicability(r)
            assert found is not None
            if not replace(found, threshold=threshold).undecided.any():
                break
            self.halves.fit_more(r, n_splits)

    def add(self, criteria: tuple[str, ...], n_seed_pairs: int) -> None:
        """Compute these of ``selection.CRITERIA`` at all ranks examined so far."""
        ranks = self.ranks
        sweep = self.sweep
        whole = self.whole
        whole.fit(ranks, self.progress)
        # Without a stack the test is one of directions of a half, whose scree is not that of the data.
        if "scree" in criteria and self.moments is not None:
            self.scree = _scree(*self.test.with_levels_at(ranks, sweep.report))
            # Rank r is judged by singular value r, at index r - 1.
            self.columns |= {name: values[np.array(ranks) - 1] for name, values in self.scree.items()}
        if "seeds" in criteria:
            self.columns["seed stability"] = seed_stability(whole.core, n_seed_pairs, ranks, sweep)
        if "holdout" in criteria:
            if self.contexts is not None:
                self.pairwise = hold_out(self.contexts, whole, ranks)
                self.columns |= {name: np.diagonal(values).copy() for name, values in self.pairwise.items()}
            consistency = context_consistency([whole.fits[r] for r in ranks])
            self.pairwise["context consistency"] = consistency
            self.columns["context consistency"] = _mean_of_others(consistency)
        if "contexts" in criteria and self.contexts is not None:
            self._add_contexts(ranks)
        if "likelihood" in criteria:
            # Three fits of solver="ml" at each rank: both halves of the first split, and all rows.
            progress = sweep.stage("likelihood", ranks, 1 if self.halves is None else 3)
            if self.halves is not None:
                self.columns["held-out log-likelihood"] = self.halves.held_out_likelihoods(ranks, progress)
            self.columns["BIC"] = bayesian_information(whole, ranks, progress)

    def _add_contexts(self, ranks: list[int]) -> None:
        """Fit halves of the contexts; without a column if there are too few of them."""
        assert self.contexts is not None
        try:
            # Two at least: contexts that happen to lack an axis tell little of others.
            self.by_contexts = Halves(self.contexts, max(self.n_splits, 2), self.sweep, "contexts")
        except ValueError as error:
            self.not_by_contexts = str(error)
            return
        self.by_contexts.fit(ranks, self.sweep.stage("contexts", ranks, 2 * len(self.by_contexts.splits)))
        self.columns["context agreement"] = np.array([self.by_contexts.unordered(r).mean() for r in ranks])

    def all_columns(self) -> dict[str, Array]:
        """Return the criteria that decide, then those that were requested."""
        decide = _noise_columns(self.test, self.ranks)
        if self.halves is not None and self.ranks:
            cosines = [self.halves.unordered(r) for r in self.ranks]
            decide["split-half agreement"] = np.array([c.mean() for c in cosines])
            decide["replicating"] = np.array(
                [np.nan if np.isnan(c).any() else float((c > REPLICATES).sum(axis=1).mean()) for c in cosines]
            )
            decide["held-out error"] = self.halves.held_out_errors(self.ranks)
        return decide | self.columns


def _noise_columns(test: ResidualTest, ranks: list[int]) -> dict[str, Array]:
    # NaN at ranks that the search of the noise test skipped.
    unknown = Level(0, np.nan, np.nan, np.nan)
    levels = [test.levels.get(r, unknown) for r in ranks]
    return {
        "spread": np.array([level.spread for level in levels]),
        "noise spread": np.array([level.null_mean for level in levels]),
        "noise sd": np.array([level.null_sd for level in levels]),
        "excess": np.array([np.nan if level is unknown else level.excess for level in levels]),
    }


def _scree(values: Array, band: Array) -> dict[str, Array]:
    return {
        "singular value": values,
        "null mean": band.mean(axis=0),
        "null upper": band.mean(axis=0) + STANDARD_DEVIATIONS * band.std(axis=0, ddof=1),
    }


def _mean_of_others(values: Array) -> Array:
    """Return the mean of each row without its diagonal entry; NaN is ignored, and is the mean of a row without any."""
    # By hand, because ``nanmean`` warns of rows that have no value at all.
    others = np.where(np.eye(len(values), dtype=bool), np.nan, values)
    known = np.isfinite(others)
    total = np.where(known, others, 0).sum(axis=1)
    count = known.sum(axis=1)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))
