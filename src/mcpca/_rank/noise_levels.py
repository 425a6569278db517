"""What is left after r directions, and how much of it would noise have? Both in one set of units.

Let P project on what is outside the first r directions V, m of them, ``Z_i = P S_i P``, ``t_i = tr Z_i / m``. Noise
that is the same in all directions would make ``Z_i`` a multiple of P, so

    spread(r) = the top eigenvalue of  sum_i w_i (Z_i / t_i - P)^2,   w_i = f_i min(1, f_i / m) t_i^2 for f_i = n_i - 1,

measures the structure that is left in all contexts together, whichever of them it is in (``residual_sums``). t_i is
near 1; a context with fewer rows than directions counts less, as it says less.

Without structure its law is known in closed form (``noise_law``), for rows of any sizes, if noise is alike in all
features. Whether it is shows in the mean eigenvalue of the same matrix. Where the law does not fit that, or the
decision is close, rows are drawn with random signs (``null_draws``), in stages.

All of this depends on the units in which noise is alike, which ``noise_units`` may find to be others: these are then
the levels of another object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from .._utils.types import Array
from .noise_law import TopOfNoise, gaussian_sizes, spread_of_noise
from .noise_scale import NoiseScale, drawn_together
from .null_draws import NullDraws, projected, share_left, square
from .residual_sums import ResidualSums, top_pair

# A spread above noise exceeds the null's mean by more than this many of its standard deviations. Top eigenvalues have
# long tails, 3 chances in 10,000 beyond 4, and the search tests several levels and statistics.
STANDARD_DEVIATIONS = 4.0
# Draws of the null at a level, in stages, and for each stage within how many standard deviations of the bound the
# decision is open, so that the next stage follows. Before the first draw there is the closed form.
DRAWS = (2, 8, 40)
OPEN_AFTER = (6.0, 1.5)
OPEN_BY_LAW = 2.0
_FITS = 0.03  # mean eigenvalue over the law's, less one, up to which the law is taken at its word
_FAR = 100.0  # times the spread of white noise, from which on no law is asked
_FAR_SD = 0.1  # standard deviation over mean of noise that is then reported
_HEAVY_ENTRIES = 0.25  # excess of the variance of variances over the Gaussian one from which on entries are heavy
_CONTEXTS_FOR_TAILS = 50
_FEW_ROWS_CLEAR = 20.0  # a spread so many times that of noise is not one of single rows
_LEAST_REST = 1e-3  # of the variance of noise: less of a feature is outside the removed directions by rounding only
_LEAST_RELATIVE_SD = 0.01  # of the null's mean: guards against draws that happen to be nearly equal


@dataclass(frozen=True)
class Level:
    """The spread that is left after ``rank`` components, and the mean and standard deviation of that of noise.

    ``shared`` is by how many standard deviations the pooled covariance of the rest exceeds noise, -inf if that was not
    looked at, and ``shared_bound`` by how many it has to.
    """

    rank: int
    spread: float
    null_mean: float
    null_sd: float
    shared: float = -np.inf
    shared_bound: float = np.inf

    @property
    def by_spread(self) -> float:
        """Standard deviations by which the spread exceeds noise."""
        return (self.spread - self.null_mean) / max(self.null_sd, 1e-100)

    @property
    def excess(self) -> float:
        """Standard deviations by which the spread, or the pooled covariance if that is more, exceeds noise."""
        return max(self.by_spread, self.shared)

    @property
    def above_noise(self) -> bool:
        """Whether structure is left."""
        return self.by_spread > STANDARD_DEVIATIONS or self.shared > self.shared_bound


@dataclass(frozen=True)
class Drawn:
    """Statistics of draws at a level: top eigenvalues of the spread and of the pooled covariance, (draws,) each."""

    spreads: Array
    pools: Array


class NoiseLevels:
    """Levels of one data set in the units of ``null.data``, computed on demand and kept.

    ``levels`` and ``drawn`` are those computed so far, by rank. ``step`` is told of every context that was drawn, with
    the number of draws.
    """

    def __init__(self, null: NullDraws, scale: NoiseScale, step: Callable[[int], None]) -> None:
        self.null = null
        self.data = null.data
        self.scale = scale
        self.p = self.data.S.shape[1]
        self.freedom = self.data.freedom[self.data.varying]
        self.levels: dict[int, Level] = {}
        self.drawn: dict[int, Drawn] = {}
        self._step = step
        self._sizes: dict[int, list[Array]] | None = None  # of rows, by level; None for equal ones
        self._fits = True
        self._has_heavy_entries = False
        self._laws: dict[tuple[int, bool], TopOfNoise] = {}
        self._rest: dict[int, Array] = {}
        self._sums: ResidualSums | None = None

    def in_units(self, scale: NoiseScale) -> NoiseLevels:
        """Return the levels in other units, of which nothing is known but how noise is distributed."""
        other = NoiseLevels(self.null.in_units(scale), scale, self._step)
        other._sizes = {} if self.is_heavy else None
        other._fits = self._fits
        other._has_heavy_entries = self._has_heavy_entries
        return other

    @property
    def sums(self) -> ResidualSums:
        """The sums that all levels share."""
        if self._sums is None:
            f = self.freedom
            self._sums = ResidualSums(self.data, np.asarray(f * np.minimum(1.0, f / self.p)))
        return self._sums

    @property
    def V(self) -> Array:
        """Directions that ranks remove, (p, R)."""
        return self.sums.V

    @property
    def largest(self) -> int:
        """The largest rank that there is."""
        return int(min(self.p - 1, self.scale.data_rank))

    def insert(self, rank: int, v: Array) -> None:
        """Put direction ``v`` (p,) behind the first ``rank``, and forget what is known beyond: others follow now."""
        self.sums.insert(rank, v)
        self.forget_beyond(rank)

    def forget_beyond(self, rank: int) -> None:
        """Forget levels of more than ``rank`` directions."""
        self.levels = {r: level for r, level in self.levels.items() if r <= rank}
        self.drawn = {r: drawn for r, drawn in self.drawn.items() if r <= rank}
        self._laws = {key: law for key, law in self._laws.items() if key[0] <= rank}
        self._rest = {r: sd for r, sd in self._rest.items() if r <= rank}
        if self._sizes is not None:
            self._sizes = {r: sizes for r, sizes in self._sizes.items() if r <= rank}

    # Levels

    def is_empty(self, r: int) -> bool:
        """Whether nothing can be left: a single direction, or none, is a multiple of the identity whatever the data."""
        return r >= self.scale.data_rank or self.p - r < 2 or not len(self.data.varying)

    def known(self, r: int) -> Level:
        """Return the level after ``r`` components by what is known: the closed form, unless there were draws."""
        if r not in self.levels:
            self.levels[r] = Level(r, 0.0, 0.0, 0.0) if self.is_empty(r) else self._level(r)
        return self.levels[r]

    def level(self, r: int, *, thorough: bool = False) -> Level:
        """Return the level after ``r`` components, with draws where it is close, or anyway if ``thorough``."""
        self.known(r)
        if self.is_empty(r):
            return self.levels[r]
        stage = 0
        while stage < len(DRAWS) and (self._is_open(r) or (thorough and r not in self.drawn)):
            if len(self.drawn[r].spreads if r in self.drawn else []) < DRAWS[stage]:
                self.draw(r, DRAWS[stage])
                self.levels[r] = self._level(r)
            stage += 1
        return self.levels[r]

    def _is_open(self, r: int) -> bool:
        """Whether more draws might change ``above_noise``."""
        distance = abs(self.levels[r].by_spread - STANDARD_DEVIATIONS)
        if r in self.drawn:
            n = len(self.drawn[r].spreads)
            return n < DRAWS[-1] and distance < OPEN_AFTER[0 if n < DRAWS[1] else 1]
        return not self.trusts_law or distance < OPEN_BY_LAW

    def _level(self, r: int) -> Level:
        """Return the level by what is known: own draws, the closed form times what draws near it say, or that alone."""
        spread = self._spread(r)
        # For white noise m (sqrt(k) + 1)^2; noise of any kind that rows can have is far below a hundred times that.
        white = (self.p - r) * (np.sqrt(len(self.data.varying)) + 1) ** 2
        if spread > _FAR * white and r not in self.drawn:
            return Level(r, spread, white, _FAR_SD * white)
        null = self._null(r)
        return Level(r, spread, null.mean, null.sd)

    def _spread(self, r: int) -> float:
        known = self.levels.get(r)
        return known.spread if known is not None else self.sums.residual(r).top()[0] / self._unit(r)

    def _unit(self, r: int) -> float:
        """Return the mean t_i^2, which makes spreads of different levels comparable."""
        t = self.sums.sizes(r)
        w = self.sums.weights
        return max(float(w @ t**2 / w.sum()), np.finfo(float).tiny)

    # What noise would have

    def law(self, r: int, *, gaussian: bool = False) -> TopOfNoise:
        """Return the law of the spread after r components, for rows of the sizes that they have unless ``gaussian``."""
        gaussian = gaussian or not self.is_heavy
        if (r, gaussian) not in self._laws:
            t = self.sums.sizes(r)
            used = np.flatnonzero(t > 0)
            w = (self.sums.weights * t**2)[used] / self._unit(r)
            sizes = gaussian_sizes(len(used)) if gaussian else [self.sizes_of_rows(r)[j] for j in used]
            self._laws[r, gaussian] = spread_of_noise(self.p - r, w, self.freedom[used], sizes)
        return self._laws[r, gaussian]

    def _null(self, r: int) -> TopOfNoise:
        law = self.law(r)
        drawn = self.drawn.get(r)
        if drawn is not None:
            # Given the sizes of rows a top eigenvalue varies about as much as for rows of equal sizes, or more.
            least = self.law(r, gaussian=True)
            return of_draws(drawn.spreads, law.bulk, max(least.sd / least.mean, _LEAST_RELATIVE_SD))
        if not self.drawn:
            return law
        near = min(self.drawn, key=lambda other: abs(other - r))
        there = self._null(near)
        ratio = there.mean / self.law(near).mean
        return TopOfNoise(law.mean * ratio, law.mean * ratio * there.sd / there.mean, law.bulk)

    def misfit(self, r: int) -> float:
        """Return by how much the mean eigenvalue, but for the top one, exceeds the law's, as a share of it."""
        law = self.law(r)
        rest = self.sums.residual(r).trace() / self._unit(r) - self._spread(r)
        return float(rest / max((self.p - r) * law.bulk - law.mean, law.bulk, 1e-100) - 1)

    @property
    def is_heavy(self) -> bool:
        """Whether rows have unequal sizes."""
        return self._sizes is not None

    def look_at_sizes(self) -> None:
        """Have the law know the sizes of rows from now on."""
        self._sizes = {}
        self.levels.clear()

    def sizes_of_rows(self, r: int) -> list[Array]:
        """Return the squared lengths of the rows of each context outside r directions, over their mean."""
        if self._sizes is None:
            return gaussian_sizes(len(self.data.varying))
        if r not in self._sizes:
            V = self.V[:, :r]
            lengths = self.data.each_varying(lambda i: self.null.lengths(V, i))
            self._sizes[r] = [x / x.mean() if x.any() else np.ones(1) for x in lengths]
        return self._sizes[r]

    @property
    def trusts_law(self) -> bool:
        """Whether noise is what the law describes, as far as ``judge_law`` has seen."""
        if self.null.grouped is not None:
            return False
        return self.null.isotropic or (not self.is_heavy and not self._has_heavy_entries and self._fits)

    def judge_law(self, rank: int) -> None:
        """Look whether noise is what the law describes, where all axes are gone and just before."""
        # The mean eigenvalue of Gaussian noise has k m^2 / 2 terms.
        chance = 2 / ((self.p - rank) * np.sqrt(len(self.data.varying)))
        self._fits = self.is_empty(rank) or abs(self.misfit(rank)) < _FITS + 2 * chance
        self._has_heavy_entries = not self.is_empty(rank) and self._entries_are_heavy(rank)
        if self.trusts_law and rank and self._rests_on_few_rows(rank - 1):
            self._fits = False

    def _entries_are_heavy(self, r: int) -> bool:
        """Whether variances of features vary between contexts more than those of Gaussian noise, outside r directions.

        ``f_i (v_ij / v_j - 1)^2 / 2`` is 1 on average, and more where single entries are large: a feature that has some
        in a context is a direction there, which the law knows nothing of, and draws keep. From up to 50 contexts.
        """
        varying = self.data.varying
        some = varying[:: -(-len(varying) // _CONTEXTS_FOR_TAILS)]
        if self.null.contexts is None or self.null.isotropic or len(some) < 2:
            return False
        self.sums.grow(r)
        V = self.V[:, :r]
        f = self.data.freedom[some][:, None]
        v = np.stack(list(self.data.each_of(lambda i: np.diag(projected(self.data.scaled(i), V)), some.tolist())))
        v = v / np.maximum(v.mean(axis=1, keepdims=True), np.finfo(float).tiny)
        mean = (f * v).sum(axis=0) / f.sum()
        known = mean > 0
        squares = f * (v[:, known] / mean[known] - 1) ** 2 / 2
        n = (len(some) - 1) * int(known.sum())
        return bool(squares.sum() / max(n, 1) > 1 + max(_HEAVY_ENTRIES, 4 * np.sqrt(2 / max(n, 1))))

    def _rests_on_few_rows(self, r: int) -> bool:
        """Whether direction ``r`` is one of single rows: without the largest of each context half of it is gone.

        Asked only where the direction is weak. The law knows of no outliers; draws keep them.
        """
        level = self.known(r)
        if self.null.contexts is None or level.spread > _FEW_ROWS_CLEAR * level.null_mean:
            return False
        self.sums.grow(r + 1)
        v = self.V[:, r]
        t = self.sums.sizes(r)
        squares = [
            (x.sum(), x.sum() - x.max()) for x in self.data.each_varying(lambda i: self.null.squares_along(v, i))
        ]
        variances = np.array(squares) / (self.freedom * np.where(t > 0, t, np.inf))[:, None]
        whole, without = self.sums.weights @ np.maximum(variances - 1, 0) ** 2
        return bool(without < whole / 2)

    # Draws

    def draw(self, r: int, n_draws: int) -> Drawn:
        """Draw the null after r components until there are ``n_draws``, which are added and never repeated."""
        old = self.drawn.get(r, Drawn(np.empty(0), np.empty(0)))
        new = self.statistics(r, range(len(old.spreads), n_draws), lambda Z, i: Z)
        self.drawn[r] = Drawn(np.append(old.spreads, new.spreads), np.append(old.pools, new.pools))
        return self.drawn[r]

    def statistics(self, r: int, draws: range, change: Callable[[Array, int], Array]) -> Drawn:
        """Return the statistics of draws outside r directions that ``change`` may have changed."""
        self.sums.grow(r)
        V = self.V[:, :r]
        m = self.p - r
        P = np.eye(m) if self.null.isotropic else np.eye(self.p) - V @ V.T
        w = dict(zip(self.data.varying.tolist(), self.sums.weights, strict=True))
        t = dict(zip(self.data.varying.tolist(), self.sums.sizes(r), strict=True))
        freedom = self.data.freedom

        def sums(Z: Array, i: int) -> Array:
            Z = change(Z, i)
            size = float(np.trace(Z)) / m
            if size <= 0:  # a context that does not vary outside the removed directions has no structure there
                return np.zeros((2, *Z.shape))
            # At the size that the context has in the data, which counts in its weight.
            D = (np.sqrt(w[i]) * t[i]) * (Z / size - P)
            return np.stack([square(D.astype(np.float32)), (freedom[i] / size * Z).astype(np.float32)])

        totals = np.zeros((len(draws), 2, *P.shape))
        for drawn in self.over_null(V, draws, sums):
            totals += drawn
        spreads = [top_pair(total[0])[0] / self._unit(r) for total in totals]
        pools = [top_pair(self.in_units_of_rest(total[1], r))[0] / self.freedom.sum() for total in totals]
        return Drawn(np.array(spreads), np.array(pools))

    def over_null(
        self, V: Array, draws: range, call: Callable[[Array, int], Array], some: list[int] | None = None
    ) -> Iterator[Array]:
        """``NullDraws.over``, with progress."""
        for results in self.null.over(V, draws, call, some):
            self._step(len(draws))
            yield results

    def in_units_of_rest(self, pooled: Array, r: int) -> Array:
        """Return a pooled covariance outside r directions with features divided by what they have there.

        Unique variances are smaller by chance where noise happens to be correlated, and would make more of that.
        """
        if self.null.isotropic:
            return pooled
        sd = self.sd_of_rest(r)
        return np.asarray(pooled / sd[:, None] / sd)

    def sd_of_rest(self, r: int) -> Array:
        """Return standard deviations (p,) of features outside r directions, in units of noise.

        Without the differences that chance has made between features; variances over their squares are 1 on average.
        """
        if r not in self._rest:
            left = np.diag(self.sums.pooled(r).matrix())
            variances = left / share_left(self.V[:, :r])
            varies = variances > _LEAST_REST
            units = self.data.features
            whole = units * np.sqrt(np.where(varies, variances, 1))
            sd = drawn_together(whole, varies, float(self.freedom.sum())) / units
            self._rest[r] = sd * np.sqrt(np.sum(left / sd**2) / (self.p - r))
        return self._rest[r]


def of_draws(values: Array, bulk: float, relative_sd: float) -> TopOfNoise:
    """Return mean and standard deviation of draws; the latter is at least ``relative_sd`` of the former."""
    mean = float(np.mean(values))
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return TopOfNoise(mean, max(sd, relative_sd * mean, np.finfo(float).tiny), bulk)
