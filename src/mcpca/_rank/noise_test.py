"""Is anything left above noise after r components? The search for the rank after which nothing is.

``recommend`` asks this first: the answer, the number of directions above noise, is the largest rank it may recommend.
``rank_curves`` asks again for the criterion "scree" and for ranks that the search skipped.

Features are divided by their unique standard deviations, contexts by the size of their noise (``noise_scale``), by what
is left outside the directions once these are known (``noise_units``). Three statistics, each of what is left outside r
directions, are compared with noise, in closed form where that will do and with random signs:

* the spread in all contexts together, whichever of them an axis is in (``noise_levels``);
* the pooled covariance, an axis that all contexts share but that is weak in each (``shared_axes``);
* the top eigenvalues of single contexts, an axis that drowns in the noise of the others (``single_contexts``).

Random signs multiply every entry of the residual rows (Hong, Sheng and Dobriban, Selecting the number of components in
PCA via random signflips, 2020). That preserves the number of samples of every context, the variance of every feature in
every context, and the size of every single entry, heavy tails included; it destroys correlations between features. The
rows with signs are centred again, as the rows were.

If rows are in groups, the k contexts are the 2 k parts of ``grouped_rows`` throughout: covariances within groups, and
of the means of groups. Groups that are in several contexts make these dependent, so rows are always drawn.

With fewer than 20 features and axes for more than half of them little noise is outside of these, and the variances of
noise are not determined beside so many (Ledermann): a few directions too many are then found.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from .._covariances.context_covariances import ContextCovariances
from .._data.contexts import Contexts
from .._utils.progress import Search, silent
from .._utils.types import Array, Report
from .grouped_rows import GroupedRows
from .noise_levels import DRAWS, STANDARD_DEVIATIONS, Level, NoiseLevels
from .noise_scale import noise_scale, whole_scale
from .noise_units import after_the_search, before_the_search, explained_by_units, is_clear
from .null_draws import NullDraws, ScaledMoments, square, uncorrelated, with_planted_factor
from .residual_sums import LEADING, SMALL, ResidualSums
from .shared_axes import shared_directions
from .single_contexts import single_directions

__all__ = ["STANDARD_DEVIATIONS", "Level", "ResidualTest"]

_SCREE_DRAWS = 10
_HEAVY = 1.1  # mean eigenvalue over the Gaussian one from which on the sizes of rows are looked at
_NOT_NOISE = 20.0  # a mean eigenvalue that exceeds the law's so many times is not that of noise of any kind
_DEEP = 64  # directions that are removed at most for that: half of all where there are fewer
_LEAST_FREEDOM = 3.0  # of contexts that take part
_LEAST_RELATIVE_SD = 0.01  # of the null's mean: guards against draws that happen to be nearly equal


class ResidualTest:
    """The noise test of one data set. Levels are computed on demand and cached.

    ``contexts`` holds the rows, and their groups if they have some; without rows (None) the null is Gaussian. The
    answer does not depend on ``workers``. Cost O(k p^3) once, with no draw where noise is alike in all features and
    Gaussian; a draw costs O(n p^2 + k p^3). Memory: k p R numbers for R directions that are removed at most, a few
    p x p matrices, and two copies of a context's rows for every worker while there are draws.

    Attributes
    ----------
    levels_in_units : NoiseLevels
        Levels in the units that were found.
    together : int
        Directions above noise in all contexts together, once ``directions_above_noise`` was called.
    shared : int
        Those among them that only the pooled covariance shows.
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
        # Without rows means may be unknown, and with them correlations over all rows: "auto" is then "features".
        isotropic = null == "isotropic" or (null == "auto" and contexts is not None and uncorrelated(moments))
        grouped = None
        tested = moments
        if contexts is not None and contexts.groups is not None:
            grouped = GroupedRows(contexts, moments)
            tested = grouped.moments
        self._freedom = np.maximum(tested.n_samples - 1.0, 0)
        scale = noise_scale(tested.covariances, self._freedom, equal_features=isotropic)
        least = _LEAST_FREEDOM if grouped is None else 0.0
        data = ScaledMoments(tested, workers, scale, least)
        self._whole = None if grouped is None else ScaledMoments(moments, workers)
        self.seed = seed
        draws = NullDraws(data, moments.means, contexts, isotropic, seed, grouped)
        self.levels_in_units = NoiseLevels(draws, scale, lambda n: self._progress.step(n))
        self.p = self.levels_in_units.p
        self.together = 0
        self.shared = 0
        self._progress = Search(report, "noise test", len(data.varying) * (2 * DRAWS[-1] + 10))

    @property
    def data(self) -> ScaledMoments:
        """The covariances in units of noise; those of the parts if rows are in groups."""
        return self.levels_in_units.data

    @property
    def whole(self) -> ScaledMoments:
        """The covariances of contexts, the same object without groups."""
        return self.data if self._whole is None else self._whole

    @property
    def null(self) -> NullDraws:
        """Where noise is drawn from."""
        return self.levels_in_units.null

    @property
    def sums(self) -> ResidualSums:
        """The sums that all levels share."""
        return self.levels_in_units.sums

    @property
    def V(self) -> Array:
        """Orthonormal directions (p, R), in units of noise, of which rank r removes the first r; as many as needed."""
        return self.levels_in_units.V

    @property
    def data_rank(self) -> int:
        """Directions in which the data vary at all."""
        return self.levels_in_units.scale.data_rank

    @property
    def levels(self) -> dict[int, Level]:
        """Those computed so far, by rank."""
        return self.levels_in_units.levels

    def level(self, r: int, *, thorough: bool = False) -> Level:
        """Return the level after ``r`` components; ``thorough`` makes draws even where the closed form would do."""
        return self.levels_in_units.level(r, thorough=thorough)

    @property
    def has_drawn(self) -> bool:
        """Whether noise was drawn, and not only computed."""
        return bool(self.levels_in_units.drawn)

    def share_above(self, A: Array, above: int) -> Array:
        """Return how much of each axis (p, r), in units of noise, is in the first ``above`` directions: (r,)."""
        units = A / self.data.features[:, None]
        units = units / np.maximum(np.linalg.norm(units, axis=0), np.finfo(float).tiny)
        self.sums.grow(above)
        return np.asarray(((self.V[:, :above].T @ units) ** 2).sum(axis=0))

    # The search

    def directions_above_noise(self) -> int:
        """Return the smallest rank after which nothing is left, in all contexts together or in a single one."""
        if self.levels_in_units.is_empty(0):
            self.level(0)
            return 0
        found = self._directions()
        # Before all is called noise it is asked once more in units of whole standard deviations: a feature that others
        # nearly determine has next to no unique variance, and divided by that hides all else, also with random signs.
        if found == 0 and not self.null.isotropic:
            levels = self.levels_in_units
            self.levels_in_units = levels.in_units(whole_scale(self.data.S, self._freedom, levels.scale))
            found = self._directions(refit=False)
        self._progress.finish()
        return found

    def _directions(self, *, refit: bool = True) -> int:
        # Well below all axes, if there are not more than half as many as features.
        deep = min(_DEEP if self.p <= SMALL else LEADING, self.p // 2, self.data_rank // 2)
        if refit:
            self.levels_in_units = before_the_search(self.levels_in_units, deep) or self.levels_in_units
        self._first_look(deep)
        together = self._in_all_contexts()
        if refit:
            other = after_the_search(self.levels_in_units, together)
            if other is not None:
                self.levels_in_units = other
                together = self._in_all_contexts(together)
            together = self._with_noise_of_its_own(together)
        levels = self.levels_in_units
        # The pool has had its chance in the first units.
        self.shared = shared_directions(levels, together, least=0.0 if refit else STANDARD_DEVIATIONS)
        self.together = together + self.shared
        levels.forget_beyond(self.together)
        sizes = levels.sizes_of_rows(self.together)
        single = single_directions(levels.sums, levels.null, sizes, self.together, levels.largest - self.together)
        return int(self.together + single)

    def _first_look(self, deep: int) -> None:
        """Look at the sizes of rows if eigenvalues vary more than those of Gaussian noise, well below all axes."""
        heavy = self.null.isotropic or _HEAVY - 1 < self.levels_in_units.misfit(deep) < _NOT_NOISE
        if self.null.contexts is not None and heavy:
            self.levels_in_units.look_at_sizes()

    def _in_all_contexts(self, guess: int | None = None) -> int:
        """Return the smallest rank after which the spread is that of noise.

        By the closed form; if what is left there is not noise as it describes it, once more with draws at each level.
        """
        levels = self.levels_in_units

        def above(r: int) -> bool:
            return levels.known(r).above_noise

        # Other scales rarely change the answer.
        confirmed = guess is not None and not above(guess) and (guess == 0 or above(guess - 1))
        rank = guess if guess is not None and confirmed else self._search(above)
        levels.judge_law(rank)
        if not levels.trusts_law:
            return self._search(lambda r: levels.level(r).above_noise)
        # By the law alone but where it is close, there with draws.
        while rank < levels.largest and levels.level(rank).above_noise:
            rank += 1
        while rank and not levels.level(rank - 1).above_noise:
            rank -= 1
        return rank

    def _search(self, above: Callable[[int], bool]) -> int:
        """Return the smallest rank that is not ``above``, by doubling and then halving: about 2 log2 of it."""
        if not above(0):
            return 0
        largest = self.levels_in_units.largest
        # Throughout, something is left after ``low`` components; ``high`` is the candidate for the answer.
        low, high = 0, min(1, largest)
        while high < largest and above(high):
            low, high = high, min(2 * high, largest)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if above(middle) else (low, middle)
        return high

    def _with_noise_of_its_own(self, rank: int) -> int:
        """Return the rank once weak directions were asked whether they are there with the noise outside fewer of them.

        First whether all that are weak could go, then half of them, then the last.
        """
        # Where the last direction is clear all are.
        while rank and not is_clear(self.levels_in_units, rank - 1):
            levels = self.levels_in_units
            first = min(self._search(partial(is_clear, levels)), rank)
            for r in sorted({first, (first + rank) // 2, rank - 1} - {rank}):
                other = explained_by_units(levels, r)
                if other is not None:
                    self.levels_in_units = other
                    rank = r
                    break
            else:
                break
        return rank

    # What else is asked

    def has_power(self) -> bool:
        """Whether a factor that holds a tenth of the variance of every feature, in all contexts, would be seen.

        It is planted into draws of the null, and counts as seen if the median of their spreads, or of their pooled
        covariances, is above noise. With few rows, or two or three features, not even such a factor stands out from
        noise: then "nothing above noise" is no evidence of anything.
        """
        levels = self.levels_in_units
        if levels.is_empty(0):
            return False
        # Key 2, since under (seed, rank) key 0 is the rotation of ``NullDraws`` and key 1 its draws.
        signs = np.random.default_rng((self.seed, 0, 2)).choice([-1.0, 1.0], self.p)
        null = levels.drawn.get(0)
        if null is None or len(null.spreads) < DRAWS[1]:
            null = levels.draw(0, DRAWS[1])
        planted = levels.statistics(0, range(_SCREE_DRAWS), lambda Z, _: with_planted_factor(Z, signs))
        return _is_seen(planted.spreads, null.spreads) or _is_seen(planted.pools, null.pools)

    @property
    def share_of_groups(self) -> float:
        """The share of variance that differences between groups have, in the median context; 0 without groups.

        By mean squares between and within groups, of which the former exceed the latter by the number of rows in a
        group times the variance of its mean.
        """
        if self.data is self.whole:
            return 0.0
        k = len(self.whole.size)
        sizes = np.einsum("kpp->k", self.data.S).astype(np.float64)
        within = sizes[:k]
        between = sizes[k:]
        groups = self.data.freedom[k:] + 1
        rows = (self.data.freedom[:k] + groups) / groups
        of_means = np.maximum(between - within, 0) / rows
        total = of_means + within
        several = (groups > 1.5) & (total > 0)
        return float(np.median(of_means[several] / total[several])) if several.any() else 0.0

    def excess_of_lengths(self, r: int) -> float:
        """Return how much more the squared lengths of rows vary than those of Gaussian rows, in the median context.

        Lengths are those outside r directions, and in units of their mean: variance minus ``2 / (p - r)``. It is
        ``2 / (nu - 4)`` and a little more for rows of a t distribution with nu degrees of freedom. 0 without rows, and
        where the noise test had no reason to look at lengths.
        """
        levels = self.levels_in_units
        if not levels.is_heavy or r >= self.p:
            return 0.0
        return float(np.median([np.var(sizes) for sizes in levels.sizes_of_rows(r)]) - 2 / (self.p - r))

    def with_levels_at(self, ranks: list[int], report: Report) -> tuple[Array, Array]:
        """Add the levels at ranks that the search skipped; return ``singular_values()`` and ``scree_band()``."""
        self._progress = Search(report, "noise at other ranks", len(self.data.varying) * _SCREE_DRAWS)
        values = self.singular_values()
        band = self.scree_band()
        for r in ranks:
            self.levels_in_units.known(r)
        self._progress.finish()
        return values, band

    def scree_band(self) -> Array:
        """Return singular values of the flattening under random signs, largest first (draws, p): parallel analysis."""
        none = np.empty((self.p, 0))
        draws = range(_SCREE_DRAWS)
        totals = np.zeros((len(draws), self.p, self.p))
        units = np.outer(self.data.features, self.data.features)

        def in_units(Z: Array, i: int) -> Array:
            return np.asarray(self.data.size[i] * units * Z)

        # Draws are in units of noise, singular values in the unit of the covariances.
        if self.data is self.whole:
            for squares in self.levels_in_units.over_null(none, draws, lambda Z, i: square(in_units(Z, i))):
                totals += squares
        else:
            k = len(self.whole.size)
            varying = set(self.data.varying.tolist())
            for i in range(k):
                # Parts of a context add up to it, by their degrees of freedom.
                parts = [part for part in (i, k + i) if part in varying]
                drawn = self.levels_in_units.over_null(
                    none, draws, lambda Z, j: self.data.freedom[j] * in_units(Z, j), parts
                )
                total = sum(drawn, start=np.zeros(totals.shape)) / self.whole.freedom[i]
                totals += total @ total
        return np.asarray(np.sqrt(np.maximum(np.linalg.eigvalsh(totals), 0))[:, ::-1])

    def singular_values(self) -> Array:
        """Return the singular values of the flattening, largest first (p,)."""
        # In the unit of the data and without weights, as in ``singular_values_``, unlike the V above.
        S = self.whole.S
        squares = np.linalg.eigvalsh(sum((square(Si.astype(np.float64)) for Si in S), start=np.zeros(S.shape[1:])))
        return np.asarray(np.sqrt(np.maximum(squares, 0))[::-1])


def _is_seen(planted: Array, null: Array) -> bool:
    mean = float(null.mean())
    bound = mean + STANDARD_DEVIATIONS * max(float(null.std(ddof=1)), _LEAST_RELATIVE_SD * mean)
    return float(np.median(planted)) > bound
