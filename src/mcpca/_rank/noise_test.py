"""Is anything left above noise after r components? The residual, against noise in closed form and with random signs.

``recommend`` asks this first: the answer, the number of directions above noise, is the largest rank it may recommend.
``rank_curves`` asks again for the criterion "scree" and for ranks that the search skipped.

Features are divided by their unique standard deviations, contexts by the size of their noise (``noise_scale``). Let
P project on what is outside the top r of the flattening, m directions, ``Z_i = P S_i P``, ``t_i = tr Z_i / m``. Noise
that is the same in all directions would make ``Z_i`` a multiple of P, so

    spread(r) = the top eigenvalue of  sum_i w_i (Z_i / t_i - P)^2,   w_i = f_i min(1, f_i / m) t_i^2 for f_i = n_i - 1,

measures the structure that is left in all contexts together, whichever of them it is in (``residual_sums``). t_i is
near 1; a context with fewer rows than directions counts less, as it says less. Two more statistics find what this one
misses: the top eigenvalue of the pooled ``sum_i f_i Z_i / t_i``, an axis that all contexts share but that is weak in
each; and the top eigenvalues of single contexts (``single_contexts``), an axis that drowns in the noise of the others.

Without structure their law is known in closed form (``noise_law``), for rows of any sizes, if noise is alike in all
features. Whether it is shows in the mean eigenvalue of the same matrices. Where the law does not fit that, or the
decision is close, rows are drawn: every entry of the residual rows is multiplied by a random sign (Hong, Sheng and
Dobriban, Selecting the number of components in PCA via random signflips, 2020). That preserves the number of samples of
every context, the variance of every feature in every context, and the size of every single entry, heavy tails included;
it destroys correlations between features. The rows with signs are centred again, as the rows were.

If rows are in groups, the k contexts are the 2 k parts of ``grouped_rows`` throughout: covariances within groups, and
of the means of groups. Groups that are in several contexts make these dependent, so rows are always drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .._covariances.context_covariances import ContextCovariances
from .._data.contexts import Contexts
from .._utils.progress import Search, silent
from .._utils.types import Array, Report
from .grouped_rows import GroupedRows
from .noise_law import TopOfNoise, gaussian_sizes, pooled_top_of_noise, spread_of_noise
from .noise_scale import NoiseScale, drawn_together, noise_scale, whole_scale
from .null_draws import NullDraws, ScaledMoments, projected, share_left, square, uncorrelated, with_planted_factor
from .residual_sums import LEADING, SMALL, ResidualSums, top_pair
from .single_contexts import single_directions

# A spread above noise exceeds the null's mean by more than this many of its standard deviations. Top eigenvalues have
# long tails, 3 chances in 10,000 beyond 4, and the search tests several levels and statistics.
STANDARD_DEVIATIONS = 4.0
# The same for the pooled covariance. Its law is precise, and it is asked once: 3 chances in 100 beyond 2, about as many
# as parallel analysis with 20 draws has. Beside other directions, whose errors are part of what is left, 1 in 100.
SHARED_DEVIATIONS = (2.0, 2.5)
# Draws of the null at a level, in stages, and for each stage within how many standard deviations of the bound the
# decision is open, so that the next stage follows. Before the first draw there is the closed form.
_DRAWS = (2, 8, 40)
_OPEN_AFTER = (6.0, 1.5)
_OPEN_BY_LAW = 2.0
_FITS = 0.03  # mean eigenvalue over the law's, less one, up to which the law is taken at its word
_FAR = 100.0  # times the spread of white noise, from which on no law is asked
_FAR_SD = 0.1  # standard deviation over mean of noise that is then reported
_SCREE_DRAWS = 10
_HEAVY = 1.1  # mean eigenvalue over the Gaussian one from which on the sizes of rows are looked at
_HEAVY_ENTRIES = 0.25  # excess of the variance of variances over the Gaussian one from which on entries are heavy
_CONTEXTS_FOR_TAILS = 50
_DEEP = 64  # directions that are removed at most for that first look
_DEEPER = (40, 256)  # numbers of features for which more are removed if that is not enough
_CLEAN = 0.1  # mean eigenvalue over the law's, less one, up to which what is left there is taken for noise
_UNEQUAL_NOISE = 0.2  # differences of log t_i from which on the sizes of noise are estimated once more
_REFITS = 2
_FEW_ROWS_CLEAR = 20.0  # a spread so many times that of noise is not one of single rows
_CLEAR = 5.0  # a spread so many times that of noise is not one of features with more noise than others
_BEYOND_CHANCE = 1.5  # standard deviation of the sizes of features over that of chance, from which on it is real
_LEFT_FOR_NOISE = 0.8  # of all directions may be removed where the sizes of noise are estimated
_LEAST_LEFT = 0.1  # share of a feature outside the directions, from which on its noise is estimated from there
_NOT_NOISE = 20.0  # a mean eigenvalue that exceeds the law's so many times is not that of noise of any kind
_MOST_SHARED = 20
_LEAST_FREEDOM = 3.0  # of contexts that take part
_LEAST_REST = 1e-3  # of the variance of noise: less of a feature is outside the removed directions by rounding only
_LEAST_RELATIVE_SD = 0.01  # of the null's mean: guards against draws that happen to be nearly equal


@dataclass(frozen=True)
class Level:
    """The spread that is left after ``rank`` components, and the mean and standard deviation of that of noise.

    ``shared`` is by how many standard deviations the pooled covariance of the rest exceeds noise, -inf if that was not
    looked at.
    """

    rank: int
    spread: float
    null_mean: float
    null_sd: float
    shared: float = field(default=-np.inf)

    @property
    def excess(self) -> float:
        """Standard deviations by which the spread, or the pooled covariance if that is more, exceeds noise."""
        by_spread = (self.spread - self.null_mean) / max(self.null_sd, 1e-100)
        return max(by_spread, self.shared)

    @property
    def above_noise(self) -> bool:
        """Whether structure is left."""
        by_spread = (self.spread - self.null_mean) / max(self.null_sd, 1e-100)
        return by_spread > STANDARD_DEVIATIONS or self.shared > shared_bound(self.rank)


def shared_bound(rank: int) -> float:
    """Return the standard deviations by which the pooled covariance has to exceed noise after ``rank`` components."""
    return SHARED_DEVIATIONS[min(rank, 1)]


@dataclass(frozen=True)
class _Drawn:
    """Statistics of draws at a level: top eigenvalues of the spread and of the pooled covariance, (draws,) each."""

    spreads: Array
    pools: Array


class ResidualTest:
    """The noise test of one data set. Levels are computed on demand and cached.

    ``contexts`` holds the rows, and their groups if they have some; without rows (None) the null is Gaussian. The
    answer does not depend on ``workers``. Cost O(k p^3) once, with no draw where noise is alike in all features and
    Gaussian; a draw costs O(n p^2 + k p^3). Memory: k p R numbers for R directions that are removed at most, a few
    p x p matrices, and two copies of a context's rows for every worker while there are draws.

    Attributes
    ----------
    data : ScaledMoments
        The covariances in units of noise; those of the parts if rows are in groups.
    whole : ScaledMoments
        The covariances of contexts, the same object without groups.
    V : ndarray (p, R)
        Orthonormal directions, in units of noise, of which rank r removes the first r. There are as many columns as
        were needed.
    data_rank : int
        Directions in which the data vary at all.
    levels : dict of int to Level
        Those computed so far, by rank.
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
        freedom = np.maximum(tested.n_samples - 1.0, 0)
        self._scale = noise_scale(tested.covariances, freedom, equal_features=isotropic)
        self._tested = tested.covariances
        self._freedom = freedom
        least = _LEAST_FREEDOM if grouped is None else 0.0
        self.data = ScaledMoments(tested, workers, self._scale, least)
        self.whole = self.data if grouped is None else ScaledMoments(moments, workers)
        self.data_rank = self._scale.data_rank
        self.seed = seed
        self.p = self.data.S.shape[1]
        self.null = NullDraws(self.data, moments.means, contexts, isotropic, seed, grouped)
        self.levels: dict[int, Level] = {}
        self._drawn: dict[int, _Drawn] = {}
        self._sizes: dict[int, list[Array]] | None = None  # of rows, by level; None for equal ones
        self._fits = True
        self._entries_are_heavy = False
        self._laws: dict[tuple[int, bool], TopOfNoise] = {}
        self._sums: ResidualSums | None = None
        self._rest: dict[int, Array] = {}
        self.together = 0
        self.shared = 0
        self._progress = Search(report, "noise test", len(self.data.varying) * (2 * _DRAWS[-1] + 10))

    @property
    def V(self) -> Array:
        """Directions that ranks remove, (p, R)."""
        return self.sums.V

    @property
    def sums(self) -> ResidualSums:
        """The sums that all levels share."""
        if self._sums is None:
            self._sums = ResidualSums(self.data, self._weights(self.p))
        return self._sums

    def share_above(self, A: Array, above: int) -> Array:
        """Return how much of each axis (p, r), in units of noise, is in the first ``above`` directions: (r,)."""
        units = A / self._scale.features[:, None]
        units = units / np.maximum(np.linalg.norm(units, axis=0), np.finfo(float).tiny)
        return np.asarray(((self.V[:, :above].T @ units) ** 2).sum(axis=0))

    @property
    def has_drawn(self) -> bool:
        """Whether noise was drawn, and not only computed."""
        return bool(self._drawn)

    def _weights(self, m: int) -> Array:
        f = self.data.freedom[self.data.varying]
        return np.asarray(f * np.minimum(1.0, f / m))

    # Levels

    def level(self, r: int, *, thorough: bool = False) -> Level:
        """Return the level after ``r`` components; ``thorough`` makes draws even where the closed form would do."""
        if self._is_empty(r):
            self.levels[r] = Level(r, 0.0, 0.0, 0.0)
            return self.levels[r]
        if r not in self.levels:
            self.levels[r] = self._level(r)
        stage = 0
        while stage < len(_DRAWS) and (self._is_open(r) or (thorough and r not in self._drawn)):
            if len(self._drawn[r].spreads if r in self._drawn else []) < _DRAWS[stage]:
                self._draw(r, _DRAWS[stage])
                self.levels[r] = self._level(r)
            stage += 1
        return self.levels[r]

    def _is_empty(self, r: int) -> bool:
        # A single direction, or none, is a multiple of the identity whatever the data.
        return r >= self.data_rank or self.p - r < 2 or not len(self.data.varying)

    def _level(self, r: int) -> Level:
        """Return the level by what is known: own draws, the closed form times what draws near it say, or that alone."""
        spread = self._spread(r)
        # For white noise m (sqrt(k) + 1)^2; noise of any kind that rows can have is far below a hundred times that.
        white = (self.p - r) * (np.sqrt(len(self.data.varying)) + 1) ** 2
        if spread > _FAR * white and r not in self._drawn:
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

    def _law(self, r: int, *, gaussian: bool = False) -> TopOfNoise:
        gaussian = gaussian or not self._heavy
        key = r, gaussian
        if key not in self._laws:
            self._laws[key] = self._new_law(r, gaussian)
        return self._laws[key]

    def _new_law(self, r: int, gaussian: bool) -> TopOfNoise:
        t = self.sums.sizes(r)
        used = np.flatnonzero(t > 0)
        f = self.data.freedom[self.data.varying][used]
        w = (self.sums.weights * t**2)[used] / self._unit(r)
        if gaussian:
            return spread_of_noise(self.p - r, w, f, gaussian_sizes(len(used)))
        sizes = self._sizes_at(r)
        return spread_of_noise(self.p - r, w, f, [sizes[j] for j in used])

    def _null(self, r: int) -> TopOfNoise:
        law = self._law(r)
        drawn = self._drawn.get(r)
        if drawn is not None:
            # Given the sizes of rows a top eigenvalue varies about as much as for rows of equal sizes, or more.
            least = self._law(r, gaussian=True)
            return _of_draws(drawn.spreads, law.bulk, max(least.sd / least.mean, _LEAST_RELATIVE_SD))
        if not self._drawn:
            return law
        near = min(self._drawn, key=lambda other: abs(other - r))
        there = self._null(near)
        ratio = there.mean / self._law(near).mean
        return TopOfNoise(law.mean * ratio, law.mean * ratio * there.sd / there.mean, law.bulk)

    def _is_open(self, r: int) -> bool:
        """Whether more draws might change ``above_noise``."""
        level = self.levels[r]
        distance = abs((level.spread - level.null_mean) / max(level.null_sd, 1e-300) - STANDARD_DEVIATIONS)
        if r in self._drawn:
            n = len(self._drawn[r].spreads)
            return n < _DRAWS[-1] and distance < _OPEN_AFTER[0 if n < _DRAWS[1] else 1]
        return not self._trusts_law or distance < _OPEN_BY_LAW

    @property
    def _trusts_law(self) -> bool:
        """Whether noise is what the law describes, by its mean eigenvalue where all axes are gone."""
        if self.null.grouped is not None:
            return False
        return self.null.isotropic or (not self._heavy and not self._entries_are_heavy and self._fits)

    @property
    def _heavy(self) -> bool:
        return self._sizes is not None

    def _misfit(self, r: int) -> float:
        """Return by how much the mean eigenvalue, but for the top one, exceeds the law's, as a share of it."""
        m = self.p - r
        law = self._law(r)
        rest = self.sums.residual(r).trace() / self._unit(r) - self._spread(r)
        return float(rest / max(m * law.bulk - law.mean, law.bulk, 1e-100) - 1)

    def _chance_of_bulk(self, r: int) -> float:
        """Return the standard deviation of the mean eigenvalue of Gaussian noise, as a share: of k m^2 / 2 terms."""
        return float(2 / ((self.p - r) * np.sqrt(len(self.data.varying))))

    # The search

    def directions_above_noise(self) -> int:
        """Return the smallest rank after which nothing is left, in all contexts together or in a single one."""
        if self._is_empty(0):
            self.level(0)
            return 0
        found = self._directions()
        # Before all is called noise it is asked once more in units of whole standard deviations: a feature that others
        # nearly determine has next to no unique variance, and divided by that hides all else, also with random signs.
        if found == 0 and not self.null.isotropic:
            self._use_scale(whole_scale(self._tested, self._freedom, self._scale))
            found = self._directions(refit=False)
        self._progress.finish()
        return found

    def _directions(self, *, refit: bool = True) -> int:
        deep = self._where_noise_is_left()
        if refit and abs(self._misfit(deep)) < _CLEAN:
            before = self._state()
            if self._refit_noise(deep, refined=False) and abs(self._misfit(deep)) > _CLEAN:
                self._return_to(before)
        self._first_look(deep)
        together = self._in_all_contexts()
        for _ in range(_REFITS if refit else 0):
            before = self._state()
            was = abs(self._misfit(together)) if not self._is_empty(together) else 0.0
            if not self._refit_noise(together):
                break
            if abs(self._misfit(together)) > max(_CLEAN, was):
                self._return_to(before)
                break
            together = self._in_all_contexts(together)
        together = self._with_noise_of_its_own(together) if refit else together
        self.shared = self._in_the_pool(together, least=0.0 if refit else STANDARD_DEVIATIONS)
        self.together = together + self.shared
        self._forget_beyond(self.together)
        single = single_directions(
            self.sums, self.null, self._sizes_at(self.together), self.together, self._largest - self.together
        )
        return int(self.together + single)

    @property
    def _largest(self) -> int:
        return int(min(self.p - 1, self.data_rank))

    def _where_noise_is_left(self) -> int:
        """Return a rank well beyond all axes, if there is one: half of all directions, at most ``_DEEP``, or more."""
        deep = min(_DEEP if self.p <= SMALL else LEADING, self.p // 2, self.data_rank // 2)
        deeper = min(3 * self.p // 4, 3 * self.data_rank // 4)
        is_deep_enough = not _DEEPER[0] <= self.p <= _DEEPER[1] or abs(self._misfit(deep)) < _CLEAN
        return int(deep if is_deep_enough or abs(self._misfit(deeper)) > _CLEAN else deeper)

    def _first_look(self, deep: int) -> None:
        """Look at the sizes of rows if eigenvalues vary more than those of Gaussian noise, well below all axes."""
        if self.null.contexts is not None and (self.null.isotropic or _HEAVY - 1 < self._misfit(deep) < _NOT_NOISE):
            self._sizes = {}
            self.levels.clear()

    def _has_heavy_entries(self, r: int) -> bool:
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

    def _sizes_at(self, r: int) -> list[Array]:
        """Return the squared lengths of the rows of each context outside r directions, over their mean."""
        if self._sizes is None:
            return gaussian_sizes(len(self.data.varying))
        if r not in self._sizes:
            V = self.V[:, :r]
            lengths = self.data.each_varying(lambda i: self.null.lengths(V, i))
            self._sizes[r] = [x / x.mean() if x.any() else np.ones(1) for x in lengths]
        return self._sizes[r]

    def _refit_noise(self, r: int, *, refined: bool = True) -> bool:
        """Estimate the sizes of noise outside r directions; return whether they differ from those in use.

        Unique variances, ``1 / (S^-1)_jj``, exceed those of noise where axes take much of a feature, which matters if
        r is not small beside p. Noise of variances u_j leaves ``sum_l P_jl^2 u_l`` of feature j outside V.
        """
        if self._is_empty(r) or r > _LEFT_FOR_NOISE * self.p:
            return False
        t = self.sums.sizes(r)
        if not (t > 0).all():
            return False
        features, misfit = self._refitted_features(r, refined)
        if np.ptp(np.log(t)) < _UNEQUAL_NOISE and not misfit:
            return False
        contexts = self._scale.contexts.copy()
        contexts[self.data.varying] *= t
        return self._use_scale(replace(self._scale, contexts=contexts, features=self._scale.features * features))

    def _use_scale(self, scale: NoiseScale) -> bool:
        """Start again in other units."""
        self._scale = scale
        self.data.rescale(scale)
        self._sums = None
        self.levels.clear()
        self._laws.clear()
        self._drawn.clear()
        self._rest.clear()
        if self._sizes is not None:
            self._sizes = {}
        return True

    def _with_noise_of_its_own(self, rank: int) -> int:
        """Return the rank once weak directions were asked whether they are there with the noise outside fewer of them.

        First whether all that are weak could go, then half of them, then the last.
        """
        # Where the last direction is clear all are.
        while rank and not self._is_clear(rank - 1):
            first = min(self._search(self._is_clear), rank)
            tries = sorted({first, (first + rank) // 2, rank - 1} - {rank})
            explained = next((r for r in tries if self._is_explained(r)), None)
            if explained is None:
                break
            rank = explained
        return rank

    def _is_clear(self, r: int) -> bool:
        level = self._known_level(r)
        return level.spread > _CLEAR * level.null_mean

    def _is_explained(self, r: int) -> bool:
        """Whether nothing is left after ``r`` directions once the sizes of noise are those outside of these.

        A feature with more noise than others is a direction that makes itself: it is removed, and its noise then
        estimated without it. Asked only where the last direction is weak. If something is left, or what is left is
        not noise, all stays.
        """
        if self._is_clear(r):
            return False
        before = self._state()
        if self._refit_noise(r) and abs(self._misfit(r)) < _CLEAN and not self.level(r).above_noise:
            return True
        self._return_to(before)
        return False

    def _state(self) -> tuple[Any, ...]:
        """Return all that depends on the scales of noise."""
        return (
            self._scale,
            self._sums,
            dict(self.levels),
            dict(self._laws),
            dict(self._drawn),
            self._sizes,
            dict(self._rest),
        )

    def _return_to(self, before: tuple[Any, ...]) -> None:
        self._scale, self._sums, self.levels, self._laws, self._drawn, self._sizes, self._rest = before
        self.data.rescale(self._scale)

    def _refitted_features(self, r: int, refined: bool) -> tuple[Array, bool]:
        """Return factors of the scales of features by what is outside r directions, and whether these matter."""
        ones = np.ones(self.p)
        # With (p - r)^2 <= p + r variances of noise are not determined beside r directions (Ledermann).
        if self.null.isotropic or (self.p - r) ** 2 <= 2 * (self.p + r):
            return ones, False
        V = self.V[:, :r]
        squared = (np.eye(self.p) - V @ V.T) ** 2
        known = np.sqrt(np.diag(squared)) > _LEAST_LEFT
        if known.sum() < 2:
            return ones, False
        left = np.diag(self.sums.pooled(r).matrix())[known] - squared[np.ix_(known, ~known)].sum(axis=1)
        ratio = np.ones(self.p)
        ratio[known] = np.clip(np.linalg.solve(squared[np.ix_(known, known)], left), 0.05, 20)
        # The same deviation in all contexts adds its square times all rows to the spread, and more to what is pooled.
        f = float(self.data.freedom[self.data.varying].sum())
        deviation = float(np.std(ratio))
        chance = np.sqrt(2 / f) / float(np.sqrt(np.diag(squared)).mean())
        matters = deviation > _BEYOND_CHANCE * chance and (refined or f * deviation**2 > self._law(r).sd)
        return (np.sqrt(ratio) if matters else ones), matters

    def _in_all_contexts(self, guess: int | None = None) -> int:
        """Return the smallest rank after which the spread is that of noise.

        By the closed form; if what is left there is not noise as it describes it, once more with draws at each level.
        """

        def above(r: int) -> bool:
            return self._known_level(r).above_noise

        # Other scales rarely change the answer.
        confirmed = guess is not None and not above(guess) and (guess == 0 or above(guess - 1))
        rank = guess if guess is not None and confirmed else self._search(above)
        self._fits = self._is_empty(rank) or abs(self._misfit(rank)) < _FITS + 2 * self._chance_of_bulk(rank)
        self._entries_are_heavy = not self._is_empty(rank) and self._has_heavy_entries(rank)
        if self._trusts_law and rank and self._rests_on_few_rows(rank - 1):
            self._fits = False
        if not self._trusts_law:
            return self._search(lambda r: self.level(r).above_noise)
        # By the law alone but where it is close, there with draws.
        while rank < self._largest and self.level(rank).above_noise:
            rank += 1
        while rank and not self.level(rank - 1).above_noise:
            rank -= 1
        return rank

    def _rests_on_few_rows(self, r: int) -> bool:
        """Whether direction ``r`` is one of single rows: without the largest of each context half of it is gone.

        Asked only where the direction is weak. The law knows of no outliers; draws keep them.
        """
        level = self._known_level(r)
        if self.null.contexts is None or level.spread > _FEW_ROWS_CLEAR * level.null_mean:
            return False
        self.sums.grow(r + 1)
        v = self.V[:, r]
        t = self.sums.sizes(r)
        f = self.data.freedom[self.data.varying]
        squares = [
            (x.sum(), x.sum() - x.max()) for x in self.data.each_varying(lambda i: self.null.squares_along(v, i))
        ]
        variances = np.array(squares) / (f * np.where(t > 0, t, np.inf))[:, None]
        whole, without = self.sums.weights @ np.maximum(variances - 1, 0) ** 2
        return bool(without < whole / 2)

    def _known_level(self, r: int) -> Level:
        if r not in self.levels:
            self.levels[r] = Level(r, 0.0, 0.0, 0.0) if self._is_empty(r) else self._level(r)
        return self.levels[r]

    def _search(self, above: Callable[[int], bool]) -> int:
        """Return the smallest rank that is not ``above``, by doubling and then halving: about 2 log2 of it."""
        if not above(0):
            return 0
        largest = self._largest
        # Throughout, something is left after ``low`` components; ``high`` is the candidate for the answer.
        low, high = 0, min(1, largest)
        while high < largest and above(high):
            low, high = high, min(2 * high, largest)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if above(middle) else (low, middle)
        return high

    def _in_the_pool(self, r: int, *, least: float) -> int:
        """Return how many more directions the pooled covariance has above noise, and put them behind the first r.

        ``least`` standard deviations are asked for at any rank.
        """
        found = 0
        while found < _MOST_SHARED and r + found < self._largest and not self._is_empty(r + found):
            rank = r + found
            bound = max(least, shared_bound(rank))
            excess, direction = self._shared_excess(rank, bound)
            self.levels[rank] = replace(self._known_level(rank), shared=excess)
            if excess <= bound:
                break
            self.sums.insert(rank, direction)
            self._forget_beyond(rank)
            found += 1
        return found

    def _forget_beyond(self, rank: int) -> None:
        """Forget levels of more than ``rank`` directions: those behind are others now."""
        self.levels = {r: level for r, level in self.levels.items() if r <= rank}
        self._drawn = {r: drawn for r, drawn in self._drawn.items() if r <= rank}
        self._laws = {key: law for key, law in self._laws.items() if key[0] <= rank}
        self._rest = {r: sd for r, sd in self._rest.items() if r <= rank}
        if self._sizes is not None:
            self._sizes = {r: sizes for r, sizes in self._sizes.items() if r <= rank}

    def _shared_excess(self, r: int, bound: float) -> tuple[float, Array]:
        """Return by how many standard deviations the pooled covariance exceeds noise, and its top eigenvector."""
        pooled = self._in_units_of_rest(self.sums.pooled(r).matrix(), r)
        value, direction = top_pair(pooled)
        f = float(self.data.freedom[self.data.varying].sum())
        m = self.p - r
        unequal = 1.0
        if not self.null.isotropic:
            direction = direction * self._sd_of_rest(r)
            unequal = float(np.var(np.diag(pooled) / share_left(self.V[:, :r]))) * f / 2
        gaussian = law = pooled_top_of_noise(m, f, np.ones(1), unequal)
        if self._heavy:
            law = pooled_top_of_noise(m, f, np.concatenate(self._sizes_at(r)), unequal)
        excess = (value - law.mean) / law.sd
        # Well below is well below for any noise; what is above, or near, has to be above draws if noise is not Gaussian.
        clear = not self._heavy or abs(excess - bound) > _OPEN_BY_LAW
        if excess < 0 or (self._trusts_law and clear):
            return excess, direction
        for stage in range(len(_DRAWS)):
            drawn = self._drawn.get(r)
            if drawn is None or len(drawn.pools) < _DRAWS[stage]:
                drawn = self._draw(r, _DRAWS[stage])
            null = _of_draws(drawn.pools - 1, 1.0, gaussian.sd / (gaussian.mean - 1))
            excess = (value - 1 - null.mean) / null.sd
            if stage == len(_DRAWS) - 1 or abs(excess - bound) >= _OPEN_AFTER[stage]:
                break
        return excess, direction

    def _in_units_of_rest(self, pooled: Array, r: int) -> Array:
        """Return a pooled covariance outside r directions with features divided by what they have there.

        Unique variances are smaller by chance where noise happens to be correlated, and would make more of that.
        """
        if self.null.isotropic:
            return pooled
        sd = self._sd_of_rest(r)
        return np.asarray(pooled / sd[:, None] / sd)

    def _sd_of_rest(self, r: int) -> Array:
        """Return standard deviations (p,) of features outside r directions, in units of noise.

        Without the differences that chance has made between features; variances over their squares are 1 on average.
        """
        if r not in self._rest:
            f = float(self.data.freedom[self.data.varying].sum())
            left = np.diag(self.sums.pooled(r).matrix())
            variances = left / share_left(self.V[:, :r])
            varies = variances > _LEAST_REST
            units = self.data.features
            sd = drawn_together(units * np.sqrt(np.where(varies, variances, 1)), varies, f) / units
            self._rest[r] = sd * np.sqrt(np.sum(left / sd**2) / (self.p - r))
        return self._rest[r]

    # Draws

    def _draw(self, r: int, n_draws: int) -> _Drawn:
        """Draw the null after r components until there are ``n_draws``, which are added and never repeated."""
        old = self._drawn.get(r, _Drawn(np.empty(0), np.empty(0)))
        draws = range(len(old.spreads), n_draws)
        V = self.V[:, :r]
        spreads, pools = self._statistics(V, draws, lambda Z, i: Z)
        self._drawn[r] = _Drawn(np.append(old.spreads, spreads), np.append(old.pools, pools))
        return self._drawn[r]

    def _statistics(self, V: Array, draws: range, change: Callable[[Array, int], Array]) -> tuple[Array, Array]:
        """Return the top eigenvalues of spreads and pooled covariances of draws that ``change`` may have changed."""
        p, r = V.shape
        m = p - r
        P = np.eye(m) if self.null.isotropic else np.eye(p) - V @ V.T
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
        for drawn in self._over_null(V, draws, sums):
            totals += drawn
        unit = self._unit(r)
        f = float(freedom[self.data.varying].sum())
        spreads = np.array([_top_eigenvalue(total[0]) / unit for total in totals])
        pools = [_top_eigenvalue(self._in_units_of_rest(total[1], r)) / f for total in totals]
        return spreads, np.array(pools)

    def _over_null(
        self, V: Array, draws: range, call: Callable[[Array, int], Array], some: list[int] | None = None
    ) -> Iterator[Array]:
        """``NullDraws.over``, with progress."""
        for results in self.null.over(V, draws, call, some):
            self._progress.step(len(draws))
            yield results

    # What else is asked

    def has_power(self) -> bool:
        """Whether a factor that holds a tenth of the variance of every feature, in all contexts, would be seen.

        It is planted into draws of the null, and counts as seen if the median of their spreads, or of their pooled
        covariances, is above noise. With few rows, or two or three features, not even such a factor stands out from
        noise: then "nothing above noise" is no evidence of anything.
        """
        if self._is_empty(0):
            return False
        # Key 2, since under (seed, rank) key 0 is the rotation of ``NullDraws`` and key 1 its draws.
        signs = np.random.default_rng((self.seed, 0, 2)).choice([-1.0, 1.0], self.p)
        null = self._drawn.get(0)
        if null is None or len(null.spreads) < _DRAWS[1]:
            null = self._draw(0, _DRAWS[1])
        spreads, pools = self._statistics(
            self.V[:, :0], range(_SCREE_DRAWS), lambda Z, _: with_planted_factor(Z, signs)
        )
        return any(
            float(np.median(planted)) > _excess_bound(drawn)
            for planted, drawn in ((spreads, null.spreads), (pools, null.pools))
        )

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

    def with_levels_at(self, ranks: list[int], report: Report) -> tuple[Array, Array]:
        """Add the levels at ranks that the search skipped; return ``singular_values()`` and ``scree_band()``."""
        self._progress = Search(report, "noise at other ranks", len(self.data.varying) * _SCREE_DRAWS)
        values = self.singular_values()
        band = self.scree_band()
        for r in ranks:
            self._known_level(r)
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
            for squares in self._over_null(none, draws, lambda Z, i: square(in_units(Z, i))):
                totals += squares
        else:
            k = len(self.whole.size)
            varying = set(self.data.varying.tolist())
            for i in range(k):
                # Parts of a context add up to it, by their degrees of freedom.
                parts = [part for part in (i, k + i) if part in varying]
                drawn = self._over_null(none, draws, lambda Z, j: self.data.freedom[j] * in_units(Z, j), parts)
                total = sum(drawn, start=np.zeros(totals.shape)) / self.whole.freedom[i]
                totals += total @ total
        return np.asarray(np.sqrt(np.maximum(np.linalg.eigvalsh(totals), 0))[:, ::-1])

    def singular_values(self) -> Array:
        """Return the singular values of the flattening, largest first (p,)."""
        # In the unit of the data and without weights, as in ``singular_values_``, unlike the V above.
        S = self.whole.S
        squares = np.linalg.eigvalsh(sum((square(Si.astype(np.float64)) for Si in S), start=np.zeros(S.shape[1:])))
        return np.asarray(np.sqrt(np.maximum(squares, 0))[::-1])


def _of_draws(values: Array, bulk: float, relative_sd: float) -> TopOfNoise:
    """Return mean and standard deviation of draws; the latter is at least ``relative_sd`` of the former."""
    mean = float(np.mean(values))
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return TopOfNoise(mean, max(sd, relative_sd * mean, np.finfo(float).tiny), bulk)


def _excess_bound(values: Array) -> float:
    mean = float(values.mean())
    return mean + STANDARD_DEVIATIONS * max(float(values.std(ddof=1)), _LEAST_RELATIVE_SD * mean)


def _top_eigenvalue(Z: Array) -> float:
    return top_pair(Z)[0]
