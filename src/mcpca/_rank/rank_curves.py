"""The curves behind a choice of rank: which ranks to look at, and what every criterion says there."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from .._covariances.context_covariances import ContextCovariances
from .._data.contexts import Contexts
from .._inference.replication import Replicability
from .._utils.progress import Search
from .._utils.types import Array
from .criteria import (
    Halves,
    SampleFits,
    Sweep,
    bayesian_information,
    context_consistency,
    hold_out,
    seed_stability,
)
from .noise_test import STANDARD_DEVIATIONS, Level, ResidualTest

_EVERY, _GROWTH, _END, _BEYOND = 8, 1.2, 100, 2  # the default ranks
_TELLING = 0.8  # share of all directions
_AHEAD, _SHORT = 1.5, 12  # how far the search goes on beyond the last rank that passed; how many ranks make a curve
_SPLITS, _UNDECIDED = (2, 5, 10), 0.1  # ever more splits; share of components that may stay undecided


def default_ranks(above: int, data_rank: int, n: Array) -> Array:
    """Every rank up to a few, then ever wider steps, and every one around ``above``."""
    end = max(1, min(data_rank, int((n // 2 - 1).sum()), max(above + _BEYOND, 4), _END))
    values, step = [1.0], 1.0
    while values[-1] < end:
        step = 1.0 if values[-1] < _EVERY else step * _GROWTH
        values.append(values[-1] + step)
    near = np.arange(above - 1, above + _BEYOND + 1)
    grid = np.unique(np.concatenate([np.round(values).astype(int), near, [end]]))
    return np.asarray(grid[(grid >= 1) & (grid <= end)])


def thinned(grid: Array, above: int) -> list[int]:
    """About a dozen of ``grid``, among them all around ``above``."""
    near = np.abs(grid - above) <= _BEYOND
    some = np.linspace(0, len(grid) - 1, min(len(grid), _SHORT)).round().astype(int)
    return np.union1d(grid[near], grid[some]).tolist()  # type: ignore[no-any-return]


class Curves:
    """All that is known at the ranks that were looked at."""

    def __init__(
        self,
        contexts: Contexts | None,
        moments: ContextCovariances,
        test: ResidualTest,
        sweep: Sweep,
        n_splits: int,
        grid: Array,
    ) -> None:
        self.contexts, self.moments, self.test, self.sweep, self.n_splits = contexts, moments, test, sweep, n_splits
        self.grid, self.ranks = grid, list[int]()  # those that may be looked at, and that were
        self.columns: dict[str, Array] = {}
        self.pairwise: dict[str, Array] = {}
        self.scree: dict[str, Array] = {}

    @cached_property
    def whole(self) -> SampleFits:
        """All rows."""
        return SampleFits(self.contexts, self.sweep, self.moments)

    @cached_property
    def halves(self) -> Halves | None:
        """Halves of the rows; None without rows."""
        return None if self.contexts is None else Halves(self.contexts, self.n_splits, self.sweep)

    @cached_property
    def told(self) -> Search:
        """How far the fits are, in components: all rows and all halves, at all ranks that may be looked at."""
        parts = 1 if self.contexts is None else 1 + 2 * self.n_splits
        return Search(self.sweep.report, "ranks", parts * int(self.grid.sum()))

    def look_at(self, ranks: list[int]) -> None:
        """Fit all rows and halves of them at these ranks."""
        self.whole.fit(ranks, self.told)
        if self.halves is not None:
            self.halves.fit(ranks, self.told)
        self.ranks = sorted({*self.ranks, *ranks})

    def cosines(self, r: int) -> Array:
        """|cos| of each component between halves (splits, r); NaN without rows."""
        if self.halves is None:
            return np.full((1, r), np.nan)
        whole = self.whole.fits[r]
        return self.halves.cosines(r, None if whole is None else whole.A)

    def agreement(self, r: int) -> float:
        """Return the mean |cos| between halves."""
        return float(self.cosines(r).mean())

    def search(self, ranks: list[int], threshold: float, *, patient: bool) -> None:
        """Look at the largest rank, and if halves do not agree on that go up from the least.

        The way up ends well above the last rank at which they agreed, unless ``patient``: higher ranks cost most. The
        largest is not tried first where nearly all directions are above noise, or more than are looked at: that says
        little.
        """
        telling = ranks[-1] <= _TELLING * len(self.test.V) and (patient or ranks[-1] < _END)
        if self.halves is None or telling or ranks[-1] <= _EVERY:
            self.look_at(ranks[-1:])
            if self.halves is None or self.agreement(ranks[-1]) > threshold:
                return
        if patient:
            self.look_at(ranks)
            return
        last, start = 0, 0
        while start < len(ranks) and ranks[start] <= _AHEAD * last + _EVERY:
            stop = max(start + 1, sum(r <= _AHEAD * last + _EVERY for r in ranks))
            self.look_at(ranks[start:stop])
            last = max([last, *(r for r in ranks[start:stop] if self.agreement(r) > threshold)])
            start = stop

    def settle(self, r: int, threshold: float) -> bool:
        """Make splits until others would hardly change which components come back; return whether halves agree.

        Ten splits at most, unless more were asked for. At high ranks a tenth of the components may stay undecided.
        """
        assert self.halves is not None
        for n in _SPLITS:
            cosines = self.cosines(r)
            means = cosines.mean(axis=1)
            error = 2 * means.std(ddof=1) / np.sqrt(len(means)) if len(means) > 1 else np.inf
            if np.isnan(means).any() or (
                abs(means.mean() - threshold) > error and Replicability(cosines).undecided.sum() <= _UNDECIDED * r
            ):
                break
            self.halves.fit_more(r, n)
        return self.agreement(r) > threshold

    def add(self, criteria: tuple[str, ...], n_seed_pairs: int) -> None:
        """Compute what was asked for beside the two criteria that decide."""
        ranks, sweep, whole = self.ranks, self.sweep, self.whole
        if "scree" in criteria:
            self.scree = _scree(*self.test.look_at(ranks, sweep.report))
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
        if "likelihood" in criteria:
            told = sweep.stage("likelihood", ranks, 1 if self.halves is None else 3)
            if self.halves is not None:
                self.columns["held-out log-likelihood"] = self.halves.held_out_likelihoods(ranks, sweep, told)
            self.columns["BIC"] = bayesian_information(self.moments, whole.core, ranks, sweep, told)

    def all_columns(self) -> dict[str, Array]:
        """Return the criteria that decide, then the others."""
        decide = _noise_columns(self.test, self.ranks)
        if self.halves is not None and self.ranks:
            cosines = [self.cosines(r) for r in self.ranks]
            decide["split-half agreement"] = np.array([c.mean() for c in cosines])
            decide["replicating"] = np.array(
                [np.nan if np.isnan(c).any() else float(Replicability(c).counts.mean()) for c in cosines]
            )
            decide["held-out error"] = np.array([self.halves.held_out_error(r) for r in self.ranks])
        return decide | self.columns


def _noise_columns(test: ResidualTest, ranks: list[int]) -> dict[str, Array]:
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
    """Mean of each row without its diagonal entry and what is not known."""
    others = np.where(np.eye(len(values), dtype=bool), np.nan, values)
    known = np.isfinite(others)
    total = np.where(known, others, 0).sum(axis=1)
    count = known.sum(axis=1)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))
