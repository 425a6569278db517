"""Is anything left above noise after r components? The residual, compared with itself under random signs.

``recommend`` asks this first: the answer, the number of directions above noise, is the largest rank it may recommend.
``rank_curves`` asks again for the criterion "scree" and for ranks that the search skipped.

Let Q (p, m) span the directions outside the top r of the flattening (contexts scaled to unit variance), and
``Z_i = Q^T S_i Q``. Noise that is the same in all directions would make ``Z_i`` a multiple of the identity, so

    spread(r) = the top eigenvalue of  sum_i n_i (Z_i m / tr Z_i - I)^2

measures the structure that is left in all contexts together, whichever of them it is in. Its distribution without
structure comes from multiplying every entry of the residual rows ``(x - mean) Q Q^T`` by a random sign (Hong, Sheng and
Dobriban, Selecting the number of components in PCA via random signflips, 2020). That preserves the number of samples of
every context, the variance of every feature in every context, and the size of every single entry, heavy tails included;
it destroys correlations between features. The rows with signs are centred again, as the rows were.

A direction that exists in one context only may drown in the noise of all the others. At the end the top eigenvalues of
the single contexts are therefore tested as well, the largest of them against the largest under the null.

If rows are in groups, the k contexts are the 2 k parts of ``grouped_rows`` throughout: covariances within groups, and
of the means of groups. A part with f < m degrees of freedom has the eigenvalues m / f in f directions, whatever the
rows are: of noise, ``f (m / f)^2 = m^2 / f`` in the spread, where many rows have about m. It counts f / m times as
much, or few donors would hide all else. Single contexts are compared by the top eigenvalue over its mean under the
null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from .._covariances.context_covariances import ContextCovariances
from .._data.contexts import Contexts
from .._utils.parallel import each
from .._utils.progress import Search, silent
from .._utils.types import Array, Report
from .grouped_rows import GroupedRows
from .null_draws import NullDraws, ScaledMoments, square, with_planted_factor

# Draws of the null at a level, in three stages: a few, which settle levels far from noise; the usual number; and many
# where the usual number leaves the decision open. Nearly all of the time of the test goes into draws.
_FEW_DRAWS = 2
_DRAWS = 10
_MANY_DRAWS = 40
_FAR_FROM_NULL = 2.0  # a spread this many times outside the range of the few draws needs no more of them
_DOUBTFUL_EXCESS = (3.0, 15.0)  # standard deviations by _DRAWS draws between which _MANY_DRAWS are taken
# A spread above noise exceeds the null's mean by more than this many of its standard deviations. The search tests
# several levels and estimates the standard deviation from few draws, so the conventional 2 or 3 would be too lenient.
STANDARD_DEVIATIONS = 5.0
_LEAST_RELATIVE_SD = 0.01  # of the null's mean: guards against draws that happen to be nearly equal
_SINGLE_DRAWS = 4  # of the null of single contexts, at first
_MOST_SINGLE = 20  # directions that are taken out of single contexts at most; each costs k eigenvalue problems
_TRACY_WIDOM = 0.63  # standard deviation over mean of the top eigenvalue of a large Wigner matrix, times m^(2/3)
_EIGENVALUE_RESOLUTION = 1e-13  # of the largest, below which they are rounding; variances, their roots, go to 3e-7


@dataclass(frozen=True)
class Level:
    """The spread that is left after ``rank`` components, and the mean and standard deviation of that of noise."""

    rank: int
    spread: float
    null_mean: float
    null_sd: float

    @property
    def excess(self) -> float:
        """Standard deviations by which the spread exceeds that of noise."""
        return (self.spread - self.null_mean) / max(self.null_sd, np.finfo(float).tiny)

    @property
    def above_noise(self) -> bool:
        """Whether structure is left."""
        return self.excess > STANDARD_DEVIATIONS

    @property
    def in_doubt(self) -> bool:
        """Whether more draws might change ``above_noise``."""
        low, high = _DOUBTFUL_EXCESS
        return low < self.excess < high


class ResidualTest:
    """The noise test of one data set. Levels are computed on demand and cached.

    ``contexts`` holds the rows, and their groups if they have some; without rows (None) the null is Gaussian. The
    answer at a rank depends only on ``seed`` and that rank, not on the order of calls or on ``workers``. Memory O(p^2)
    and two copies of a context's rows for every worker. A level costs O(n p^2) for each of 2 to 10 draws, 40 in
    doubtful cases, and O(k p^3).

    Attributes
    ----------
    data : ScaledMoments
        The covariances, and their version with unit variance; those of the parts if rows are in groups.
    whole : ScaledMoments
        The covariances of contexts.
    V : ndarray (p, p)
        Left singular vectors of the flattening, contexts scaled to unit variance, largest first: rank r removes the
        first r columns.
    data_rank : int
        Directions in which the data vary at all.
    levels : dict of int to Level
        Those computed so far, by rank.
    together : int
        Directions above noise in all contexts together, once ``directions_above_noise`` was called.
    """

    def __init__(
        self,
        moments: ContextCovariances,
        contexts: Contexts | None,
        null: str,
        seed: int,
        workers: int,
        report: Report = silent,
    ) -> None:
        grouped = None
        self.whole = ScaledMoments(moments, workers)
        data = self.whole
        if contexts is not None and contexts.groups is not None:
            grouped = GroupedRows(contexts, moments)
            data = ScaledMoments(grouped.moments, workers)
        self.data = data
        self.seed = seed
        p = data.S.shape[1]
        # Doubling and halving look at about 2 log2(p) levels.
        self._progress = Search(report, "noise test", self._most_draws(2 * p.bit_length() + 2))
        # Left singular vectors of the flattening [S_1 ... S_k] are eigenvectors of sum_i S_i^2; each S_i is scaled to
        # unit variance and weighted by its degrees of freedom, as in the spread.
        weighted = data.total_square(lambda i: np.sqrt(self._weight(i, p)) * data.scaled(i))
        eigenvalues, V = np.linalg.eigh(weighted)
        self.V = np.ascontiguousarray(V[:, ::-1])
        largest = eigenvalues[-1]
        self.data_rank = int((eigenvalues > _EIGENVALUE_RESOLUTION * largest).sum()) if largest > 0 else 0
        self.null = NullDraws(data, moments, contexts, null, seed, self.V, grouped)
        self.levels: dict[int, Level] = {}
        self._null_spreads: dict[int, list[float]] = {}  # those drawn so far, by rank
        self.together = 0

    def _most_draws(self, levels: int) -> int:
        """Bound the draws that are left, for progress: those of ``levels`` levels, then of single contexts."""
        return len(self.data.varying) * (_DRAWS * levels + _SINGLE_DRAWS + _MOST_SINGLE)

    def level(self, r: int, *, thorough: bool = False) -> Level:
        """Return the level after ``r`` components; ``thorough`` makes all draws even where a few would do."""
        known = self.levels.get(r)
        # A level is final, unless it rests on the few draws and all are asked for.
        if known is not None and not (thorough and len(self._null_spreads[r]) == _FEW_DRAWS):
            return known
        Q = np.ascontiguousarray(self.V[:, r:])
        null = self._null_spreads.setdefault(r, [])
        # A single direction, or none, is a multiple of the identity whatever the data.
        if r >= self.data_rank or Q.shape[1] < 2:
            self.levels[r] = Level(r, 0.0, 0.0, 0.0)
            return self.levels[r]
        spread = _top_eigenvalue(self.data.total_square(partial(self._residual, Q))) if known is None else known.spread
        # Draws are added, never repeated: draw d of a rank has its own stream of random numbers.
        if not null:
            null += self._spreads(r, Q, range(_FEW_DRAWS))
        # Otherwise the spread is far from the few draws, on either side, and more of them are not worth their cost.
        if thorough or min(null) / _FAR_FROM_NULL < spread < _FAR_FROM_NULL * max(null):
            null += self._spreads(r, Q, range(_FEW_DRAWS, _DRAWS))
        self.levels[r] = _level(r, spread, null)
        if len(null) == _DRAWS and self.levels[r].in_doubt:
            null += self._spreads(r, Q, range(_DRAWS, _MANY_DRAWS))
            self.levels[r] = _level(r, spread, null)
        return self.levels[r]

    @property
    def share_of_groups(self) -> float:
        """The share of variance that differences between groups have, in the median context; 0 without groups.

        By mean squares between and within groups, of which the former exceed the latter by the number of rows in a
        group times the variance of its mean.
        """
        if self.data is self.whole:
            return 0.0
        k = len(self.whole.size)
        within = self.data.size[:k]
        between = self.data.size[k:]
        groups = self.data.freedom[k:] + 1
        rows = (self.data.freedom[:k] + groups) / groups
        of_means = np.maximum(between - within, 0) / rows
        total = of_means + within
        several = (groups > 1.5) & (total > 0)
        return float(np.median(of_means[several] / total[several])) if several.any() else 0.0

    def directions_above_noise(self) -> int:
        """Return the smallest rank after which nothing is left, in all contexts together or in a single one."""
        self.together = self._in_all_contexts()
        self._progress.at_most(self._most_draws(0))
        single = self._in_single_contexts(self.together)
        self._progress.finish()
        return self.together + single

    def has_power(self) -> bool:
        """Whether a factor that holds a tenth of the variance of every feature, in all contexts, would be seen.

        It is planted into draws of the null, and counts as seen if the median of their spreads is above noise. With few
        rows, or two or three features, not even such a factor stands out from noise: then "nothing above noise" is
        no evidence of anything.
        """
        p = len(self.V)
        level = self.level(0, thorough=True)
        # Key 2, since under (seed, rank) key 0 is the rotation of ``NullDraws`` and key 1 its draws.
        signs = np.random.default_rng((self.seed, 0, 2)).choice([-1.0, 1.0], p)

        def planted_square(Z: Array, i: int) -> Array:
            return square(_deviation(with_planted_factor(Z, signs), self._weight(i, p)))

        # Sums over contexts for each draw: the k covariances of a draw are never held together.
        totals = np.zeros((_DRAWS, p, p))
        for squares in self._over_null(0, np.eye(p), range(_DRAWS), planted_square):
            totals += squares
        spread = float(np.median([_top_eigenvalue(total) for total in totals]))
        return replace(level, spread=spread).above_noise

    def _in_single_contexts(self, r: int) -> int:
        """Return how many more directions stand out in one context each, once the top ``r`` are removed.

        One at a time: the top eigenvector of ``Z_i m / tr Z_i - I`` in the context where it stands out most is removed
        from Q. The noise of all contexts would hide such a direction in the spread.
        """
        # At least one direction has to stay in Q.
        largest = min(len(self.V) - 1, self.data_rank) - r
        if largest < 1 or len(self.data.varying) < 2:  # with one context the spread is the whole answer
            return 0
        Q = np.ascontiguousarray(self.V[:, r:])
        m = Q.shape[1]
        # The null is drawn for the first Q only, which loses at most _MOST_SINGLE columns below.
        drawn = self._single_tops(r, Q, range(_SINGLE_DRAWS))
        # (contexts, draws). Contexts are alike, and the largest is the largest; parts of grouped rows are not.
        unit = np.ones(len(drawn)) if self.data is self.whole else drawn.mean(axis=1)
        null = (drawn / unit[:, None]).max(axis=0)
        n_directions = 0
        while n_directions < min(largest, _MOST_SINGLE):
            tops = []
            for top in each(partial(self._top_residual, Q), self.data.varying.tolist(), self.data.workers):
                tops.append(top)
                self._progress.step()
            ratios = np.array(tops) / unit
            level = self._single_level(float(ratios.max()), null, m)
            if level.in_doubt and len(null) < _MANY_DRAWS:
                drawn = self._single_tops(r, self.V[:, r:], range(len(null), _MANY_DRAWS))
                null = np.append(null, (drawn / unit[:, None]).max(axis=0))
                level = self._single_level(float(ratios.max()), null, m)
            if not level.above_noise:
                break
            # eigh sorts ascending: all eigenvectors of that context but the last span what remains of Q.
            context = int(self.data.varying[np.argmax(ratios)])
            Q = Q @ np.linalg.eigh(self._residual(Q, context))[1][:, :-1]
            n_directions += 1
        return n_directions

    def _single_tops(self, r: int, Q: Array, draws: range) -> Array:
        """Return the top eigenvalues of single contexts in each of ``draws``, (contexts, draws)."""
        m = Q.shape[1]
        null = self._over_null(r, Q, draws, lambda Z, i: np.array(_top_eigenvalue(_deviation(Z, self._weight(i, m)))))
        return np.stack(list(null))

    def _single_level(self, top: float, null: Array, m: int) -> Level:
        mean = float(null.mean())
        # The draws are few, so their standard deviation gets a lower bound from theory: Tracy and Widom's for the top
        # eigenvalue of one context. The largest of k such values varies less: by extreme value theory it is Gumbel
        # distributed, with standard deviation pi / sqrt(6) over sqrt(2 log k) of that of one.
        gumbel_sd = np.pi / np.sqrt(6)
        shrinkage = gumbel_sd / max(gumbel_sd, np.sqrt(2 * np.log(len(self.data.varying))))
        sd = max(float(null.std(ddof=1)), _TRACY_WIDOM * m ** (-2 / 3) * shrinkage * mean)
        return Level(0, top, mean, sd)

    def _residual(self, Q: Array, i: int) -> Array:
        """Return ``sqrt(n_i) (Z_i m / tr Z_i - I)``, ``Z_i = Q^T S_i Q``."""
        return _deviation(Q.T @ self.data.scaled(i) @ Q, self._weight(i, Q.shape[1]))

    def _weight(self, i: int, m: int) -> float:
        """Return the weight of a context in the spread: its degrees of freedom, less for few of a part of groups."""
        freedom = float(self.data.freedom[i])
        return freedom if self.data is self.whole else freedom * min(1.0, freedom / m)

    def _top_residual(self, Q: Array, i: int) -> float:
        return _top_eigenvalue(self._residual(Q, i))

    def _in_all_contexts(self) -> int:
        """Return the smallest rank after which the spread is that of noise, by doubling and then halving."""
        largest = min(len(self.V) - 1, self.data_rank)
        # Two draws may put rank 0 below noise by chance; all of them are made before everything is called noise.
        if not largest or not (self.level(0).above_noise or self.level(0, thorough=True).above_noise):
            return 0
        # Throughout, something is left after ``low`` components; ``high`` is the candidate for the answer.
        low = 0
        # Doubling, then halving, takes about 2 log2 of the answer, however large p is.
        high = 1
        while high < largest and self.level(high).above_noise:
            low = high
            high = min(2 * high, largest)
            self._progress.at_most(self._most_draws(2 * largest.bit_length() - high.bit_length() + 2))
        while high - low > 1:
            self._progress.at_most(self._most_draws((high - low).bit_length() + 1))
            middle = (low + high) // 2
            if self.level(middle).above_noise:
                low = middle
            else:
                high = middle
        # The search may have taken ``high`` for noise on the strength of a few draws.
        while high < largest and self.level(high, thorough=True).above_noise:
            high += 1
        return high

    def with_levels_at(self, ranks: list[int], report: Report) -> tuple[Array, Array]:
        """Add the levels at ranks that the search skipped; return ``singular_values()`` and ``scree_band()``."""
        missing = [r for r in ranks if r not in self.levels]
        draws_per_level = len(self.data.varying) * _DRAWS
        # The one more is for the band of the scree.
        self._progress = Search(report, "noise at other ranks", draws_per_level * (len(missing) + 1))
        values = self.singular_values()
        band = self.scree_band()
        for i, r in enumerate(missing):
            self._progress.at_most(draws_per_level * (len(missing) - i))
            self.level(r)
        self._progress.finish()
        return values, band

    def scree_band(self) -> Array:
        """Return singular values of the flattening under random signs, largest first (draws, p): parallel analysis."""
        Q = np.eye(len(self.V))
        totals = np.zeros((_DRAWS, *Q.shape))
        # The null is drawn for contexts of unit variance: ``size`` takes it back to the unit of the covariances.
        if self.data is self.whole:
            for squares in self._over_null(0, Q, range(_DRAWS), lambda Z, i: square(self.data.size[i] * Z)):
                totals += squares
        else:
            k = len(self.whole.size)
            varying = set(self.data.varying.tolist())
            for i in range(k):
                # Parts of a context add up to it, by their degrees of freedom.
                parts = [part for part in (i, k + i) if part in varying]
                drawn = self._over_null(0, Q, range(_DRAWS), self._in_units, parts)
                total = sum(drawn, start=np.zeros(totals.shape)) / self.whole.freedom[i]
                totals += total @ total
        return np.asarray(np.sqrt(np.maximum(np.linalg.eigvalsh(totals), 0))[:, ::-1])

    def singular_values(self) -> Array:
        """Return the singular values of the flattening, largest first (p,)."""
        # In the unit of the data and without weights, as in ``singular_values_``, unlike the V above.
        squares = np.linalg.eigvalsh(self.whole.total_square(lambda i: self.whole.S[i].astype(np.float64)))
        return np.asarray(np.sqrt(np.maximum(squares, 0))[::-1])

    def _spreads(self, r: int, Q: Array, draws: range) -> list[float]:
        m = Q.shape[1]
        totals = np.zeros((len(draws), m, m))
        for squares in self._over_null(r, Q, draws, lambda Z, i: square(_deviation(Z, self._weight(i, m)))):
            totals += squares
        return [_top_eigenvalue(total) for total in totals]

    def _in_units(self, Z: Array, i: int) -> Array:
        return np.asarray(self.data.freedom[i] * self.data.size[i] * Z)

    def _over_null(
        self, r: int, Q: Array, draws: range, call: Callable[[Array, int], Array], some: list[int] | None = None
    ) -> Iterator[Array]:
        """``NullDraws.over``, with progress."""
        for results in self.null.over(r, Q, draws, call, some):
            self._progress.step(len(draws))
            yield results


def _level(r: int, spread: float, null: list[float]) -> Level:
    mean = float(np.mean(null))
    return Level(r, spread, mean, max(float(np.std(null, ddof=1)), _LEAST_RELATIVE_SD * mean))


def _deviation(Z: Array, n: float) -> Array:
    """Return ``sqrt(n) (Z m / tr Z - I)``."""
    m = len(Z)
    # The mean variance of what is left, so that a context counts by its shape and not by its size.
    size = float(np.trace(Z)) / m
    if size <= 0:  # a context that does not vary outside the removed directions has no structure there
        return np.zeros((m, m))
    # In one copy, without forming the identity.
    Z = np.sqrt(n) / size * Z
    Z[np.arange(m), np.arange(m)] -= np.sqrt(n)
    return Z


def _top_eigenvalue(Z: Array) -> float:
    return float(np.linalg.eigvalsh(Z)[-1])
