"""Is anything left after r components? What is left, against the same rows with random signs.

Let Q (p, m) span the directions outside the top r of the flattening (contexts scaled to unit variance), and
``Z_i = Q^T S_i Q``. Noise that is alike in all directions would make ``Z_i`` a multiple of the identity, so

    spread(r) = the top eigenvalue of  sum_i n_i (Z_i m / tr Z_i - I)^2

measures what structure is left, in all contexts together, whichever of them has it. What it would be without structure
is seen by multiplying every entry of the residual rows ``(x - mean) Q Q^T`` by a random sign (Hong, Sheng and Dobriban,
Selecting the number of components in PCA via random signflips, 2020). That keeps every context's number of samples, the
variance of every feature in every context, and the size of every single entry, heavy tails included; it destroys
correlations between features. The rows with signs are centred again, as the rows were. A direction that one context
alone has may drown in the noise of all the others, so that at the end the top eigenvalues of single contexts are
compared as well, their largest with that of the null.

Three variants of the null:

* Features that are principal components have no correlations over all rows together: their variances are what is to be
  explained. The rows are then turned by a random rotation, and the turned features given equal variances, before
  signs are drawn: that keeps the number of samples and the total variance of every context and destroys all else.
* Without rows, their Gaussian counterpart with the same variances is drawn: a Wishart matrix, by Bartlett's
  decomposition, for the price of p^2 and not n p random numbers.
* For Gaussian white noise and n_i >> m no draw is needed in principle: the ``sqrt(n_i) (Z_i - I)`` are then Wigner
  matrices, and the spread is about ``m (sqrt(k) + 1)^2``, the edge of a Marchenko-Pastur law. It is a check in the
  tests; real noise has features of unequal size.
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

_FEW_DRAWS, _DRAWS, _MANY_DRAWS = 2, 10, 40
STANDARD_DEVIATIONS = 5.0
_CLEAR = 2.0  # times the largest of the draws: no more of them are needed
_RESOLUTION = 0.01  # of the null's mean: the least standard deviation that is believed
_DOUBT = (3.0, 15.0)  # standard deviations, estimated from few draws, between which many are taken
_FACTOR = 0.1  # share of every feature's variance that a factor holds which the test should see
_MOST_SINGLE, _SINGLE_DRAWS = 20, 4
_TRACY_WIDOM = 0.63  # standard deviation over mean of the top eigenvalue of a large Wigner matrix, times m^(2/3)
_UNCORRELATED = 1e-6  # |correlation| between pooled features that only PCA brings about
NULLS = ("auto", "features", "isotropic")


@dataclass(frozen=True)
class Level:
    """What is left after ``rank`` components: the spread, and the mean and standard deviation of that of noise."""

    rank: int
    spread: float
    null_mean: float
    null_sd: float

    @property
    def excess(self) -> float:
        """Standard deviations above noise."""
        return (self.spread - self.null_mean) / max(self.null_sd, np.finfo(float).tiny)

    @property
    def above_noise(self) -> bool:
        """Whether structure is left."""
        return self.excess > STANDARD_DEVIATIONS

    @property
    def in_doubt(self) -> bool:
        """Whether more draws may change that."""
        return _DOUBT[0] < self.excess < _DOUBT[1]


class ResidualTest:
    """Levels of one data set, computed when asked for and kept.

    ``contexts`` gives the rows; without them (None) Gaussian ones stand in. The answer for a rank depends on ``seed``
    and that rank alone, and not on ``workers``. Memory O(p^2) and a context's rows, twice, for every worker. A level
    costs O(n p^2) for each of 2 to 10 draws, 40 where these leave a doubt, and O(k p^3).
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
        S = moments.covariances
        p = S.shape[1]
        self.S, self.means, self.contexts, self.seed, self.workers = S, moments.means, contexts, seed, workers
        self.size = np.einsum("kpp->k", S).astype(np.float64) / p
        self.freedom = moments.n_samples - 1.0
        self.varying = np.flatnonzero(self.size > 0)
        self._told = Search(report, "noise test", self._draws(2 * p.bit_length() + 2))
        self.isotropic = null == "isotropic" or (null == "auto" and contexts is not None and _uncorrelated(moments))
        w, V = np.linalg.eigh(self._total_square(lambda i: np.sqrt(self.freedom[i]) * self._scaled(i)))
        self.V = np.ascontiguousarray(V[:, ::-1])
        # Squares resolve 1e-13 of the largest: variances 3e-7 of it.
        self.data_rank = int((w > 1e-13 * w[-1]).sum()) if w[-1] > 0 else 0
        self.levels: dict[int, Level] = {}
        self._null: dict[int, list[float]] = {}  # the spreads that were drawn
        self.together = 0  # directions above noise in all contexts together, once they were looked for

    def _draws(self, levels: int) -> int:
        """Draws in contexts that may still come: of so many levels, and of single contexts."""
        return len(self.varying) * (_DRAWS * levels + _SINGLE_DRAWS + _MOST_SINGLE)

    def level(self, r: int, *, thorough: bool = False) -> Level:
        """Return what is left after ``r`` components; ``thorough`` takes all draws where a few would do."""
        known = self.levels.get(r)
        if known is not None and not (thorough and len(self._null[r]) == _FEW_DRAWS):
            return known
        Q = np.ascontiguousarray(self.V[:, r:])
        null = self._null.setdefault(r, [])
        if r >= self.data_rank or Q.shape[1] < 2:
            self.levels[r] = Level(r, 0.0, 0.0, 0.0)
            return self.levels[r]
        spread = _top(self._total_square(partial(self._left, Q))) if known is None else known.spread
        if not null:
            null += self._spreads(r, Q, range(_FEW_DRAWS))
        if thorough or min(null) / _CLEAR < spread < _CLEAR * max(null):
            null += self._spreads(r, Q, range(_FEW_DRAWS, _DRAWS))
        self.levels[r] = _level(r, spread, null)
        if len(null) == _DRAWS and self.levels[r].in_doubt:
            null += self._spreads(r, Q, range(_DRAWS, _MANY_DRAWS))
            self.levels[r] = _level(r, spread, null)
        return self.levels[r]

    def directions_above_noise(self) -> int:
        """Return the least rank after which nothing is left, in all contexts together or in a single one."""
        self.together = self._in_all_contexts()
        self._told.at_most(self._draws(0))
        single = self._in_single_contexts(self.together)
        self._told.finish()
        return self.together + single

    def has_power(self) -> bool:
        """Whether a factor that holds a tenth of the variance of every feature, in all contexts, would be seen.

        It is planted into what is drawn as noise, and mostly above it where the rows are enough. With few rows, or two
        or three features, not even such a factor can be told from noise: then nothing above noise says nothing.
        """
        level, totals = self.level(0, thorough=True), np.zeros((_DRAWS, *self.S.shape[1:]))
        signs = np.random.default_rng((self.seed, 0, 2)).choice([-1.0, 1.0], len(self.V))
        planted = self._over_null(
            0, np.eye(len(self.V)), range(_DRAWS), lambda Z, i: _square(_deviation(_planted(Z, signs), self.freedom[i]))
        )
        for squares in planted:
            totals += squares
        return replace(level, spread=float(np.median([_top(total) for total in totals]))).above_noise

    def _in_single_contexts(self, r: int) -> int:
        """Return how many directions more stand out in one context each, once the top ``r`` are gone.

        One by one: the top eigenvector of ``Z_i m / tr Z_i - I`` in the context where it stands out most is taken out
        of Q. The noise of all contexts would hide such a direction in the spread.
        """
        Q = np.ascontiguousarray(self.V[:, r:])
        found, largest = 0, min(len(self.V) - 1, self.data_rank) - r
        if largest < 1 or len(self.varying) < 2:  # of one context the spread has said all
            return 0
        null = self._single_tops(r, Q, range(_SINGLE_DRAWS))
        while found < min(largest, _MOST_SINGLE):
            tops = []
            for top in each(partial(self._top_left, Q), self.varying.tolist(), self.workers):
                tops.append(top)
                self._told.step()
            level = self._single_level(max(tops), null, self.V.shape[1] - r)
            if level.in_doubt and len(null) < _MANY_DRAWS:
                null = np.append(null, self._single_tops(r, self.V[:, r:], range(len(null), _MANY_DRAWS)))
                level = self._single_level(max(tops), null, self.V.shape[1] - r)
            if not level.above_noise:
                break
            # All eigenvectors of that context but the last, to which its top eigenvalue belongs.
            Q = Q @ np.linalg.eigh(self._left(Q, int(self.varying[np.argmax(tops)])))[1][:, :-1]
            found += 1
        return found

    def _single_tops(self, r: int, Q: Array, draws: range) -> Array:
        """Return the largest top eigenvalue of a single context in each of ``draws``."""
        null = self._over_null(r, Q, draws, lambda Z, i: np.array(_top(_deviation(Z, self.freedom[i]))))
        return np.asarray(np.max(list(null), axis=0))

    def _single_level(self, top: float, null: Array, m: int) -> Level:
        mean = float(null.mean())
        # Draws are few: not below Tracy and Widom's standard deviation for one context, less (Gumbel) for the largest
        # of k.
        gumbel = np.pi / np.sqrt(6) / max(np.pi / np.sqrt(6), np.sqrt(2 * np.log(len(self.varying))))
        sd = max(float(null.std(ddof=1)), _TRACY_WIDOM * m ** (-2 / 3) * gumbel * mean)
        return Level(0, top, mean, sd)

    def _left(self, Q: Array, i: int) -> Array:
        """Return ``sqrt(n_i) (Z_i m / tr Z_i - I)``, ``Z_i = Q^T S_i Q``."""
        return _deviation(Q.T @ self._scaled(i) @ Q, float(self.freedom[i]))

    def _top_left(self, Q: Array, i: int) -> float:
        return _top(self._left(Q, i))

    def _in_all_contexts(self) -> int:
        """Return the least rank after which the spread is that of noise, by doubling and then halving."""
        largest = min(len(self.V) - 1, self.data_rank)
        if not largest or not (self.level(0).above_noise or self.level(0, thorough=True).above_noise):
            return 0
        low, high = 0, 1
        while high < largest and self.level(high).above_noise:
            low, high = high, min(2 * high, largest)
            self._told.at_most(self._draws(2 * largest.bit_length() - high.bit_length() + 2))
        while high - low > 1:
            self._told.at_most(self._draws((high - low).bit_length() + 1))
            middle = (low + high) // 2
            if self.level(middle).above_noise:
                low = middle
            else:
                high = middle
        while high < largest and self.level(high, thorough=True).above_noise:
            high += 1
        return high

    def look_at(self, ranks: list[int], report: Report) -> tuple[Array, Array]:
        """Find levels that the search did not come to; return singular values and those of noise (``scree_band``)."""
        missing = [r for r in ranks if r not in self.levels]
        self._told = Search(report, "noise at other ranks", len(self.varying) * _DRAWS * (len(missing) + 1))
        found = self.singular_values(), self.scree_band()
        for i, r in enumerate(missing):
            self._told.at_most(len(self.varying) * _DRAWS * (len(missing) - i))
            self.level(r)
        self._told.finish()
        return found

    def scree_band(self) -> Array:
        """Return singular values of the flattening with random signs, largest first (draws, p): parallel analysis."""
        Q = np.eye(len(self.V))
        totals = np.zeros((_DRAWS, *Q.shape))
        for squares in self._over_null(0, Q, range(_DRAWS), lambda Z, i: _square(self.size[i] * Z)):
            totals += squares
        return np.asarray(np.sqrt(np.maximum(np.linalg.eigvalsh(totals), 0))[:, ::-1])

    def singular_values(self) -> Array:
        """Return those of the flattening, largest first (p,)."""
        squares = np.linalg.eigvalsh(self._total_square(lambda i: self.S[i].astype(np.float64)))
        return np.asarray(np.sqrt(np.maximum(squares, 0))[::-1])

    def _spreads(self, r: int, Q: Array, draws: range) -> list[float]:
        m = Q.shape[1]
        totals = np.zeros((len(draws), m, m))
        for squares in self._over_null(r, Q, draws, lambda Z, i: _square(_deviation(Z, self.freedom[i]))):
            totals += squares
        return [_top(total) for total in totals]

    def _over_null(self, r: int, Q: Array, draws: range, call: Callable[[Array, int], Array]) -> Iterator[Array]:
        """Yield (draws, m, m) for each context: ``call`` of its null covariances in coordinates of Q, and its index."""
        rotation = None
        if self.isotropic:
            rng = np.random.default_rng((self.seed, r, 0))
            rotation = np.linalg.qr(rng.standard_normal((Q.shape[1],) * 2))[0]

        def draw(i: int) -> Array:
            streams = [np.random.default_rng((self.seed, r, 1, i, d)) for d in draws]
            if self.contexts is None:
                drawn = self._gaussian(i, Q, streams)
            else:
                drawn = self._signs(self.contexts, i, Q, rotation, streams)
            return np.stack([call(Z / self.freedom[i], i) for Z in drawn])

        for found in each(draw, self.varying.tolist(), self.workers):
            self._told.step(len(draws))
            yield found

    def _signs(
        self, contexts: Contexts, i: int, Q: Array, rotation: Array | None, streams: list[np.random.Generator]
    ) -> Array:
        # In single precision: the null is wanted to three digits, and rows are scaled.
        rows = contexts.dense_block(i) - self.means[i].astype(np.float64)
        rows = (rows / np.sqrt(self.size[i])).astype(np.float32)
        p, m = Q.shape
        if rotation is not None:
            rows = rows @ (Q @ rotation).astype(np.float32)
            # A few directions that dominate are in all of the turned ones, but unequally.
            squares = np.einsum("nm,nm->m", rows, rows)
            rows *= np.sqrt(squares.mean() / np.maximum(squares, np.finfo(np.float32).tiny))
        elif m < p:
            gone = self.V[:, : p - m].astype(np.float32)
            rows -= (rows @ gone) @ gone.T
        out, ones = np.empty((len(streams), m, m)), np.ones(len(rows), dtype=np.float32)
        squares, opposite = np.einsum("nm,nm->m", rows, rows).astype(np.float64), -rows
        for d, stream in enumerate(streams):
            bits = np.frombuffer(stream.bytes(rows.size // 8 + 1), dtype=np.uint8)
            signs = np.unpackbits(bits, count=rows.size).reshape(rows.shape)
            flipped = np.where(signs, rows, opposite)
            drawn = _recentred((flipped.T @ flipped).astype(np.float64), ones @ flipped, len(rows), squares)
            # Where all directions are kept a rotation changes no spread and no singular value.
            out[d] = Q.T @ drawn @ Q if rotation is None and m < p else drawn
        return out

    def _gaussian(self, i: int, Q: Array, streams: list[np.random.Generator]) -> Array:
        n, (p, m) = int(self.freedom[i]), Q.shape
        if self.isotropic:
            return np.stack([_wishart(n, m, stream) for stream in streams])
        variances = np.maximum(np.einsum("pm,mn,pn->p", Q, Q.T @ self._scaled(i) @ Q, Q), 0)
        basis = np.sqrt(variances)[:, None] * Q
        return np.stack([basis.T @ _wishart(n, p, stream) @ basis for stream in streams])

    def _scaled(self, i: int) -> Array:
        """Covariance of context i, its mean variance 1."""
        return np.asarray(self.S[i].astype(np.float64) / self.size[i])

    def _total_square(self, call: Callable[[int], Array]) -> Array:
        """Return ``sum_i Z_i Z_i`` over the contexts that vary, for ``Z_i`` from ``call``."""
        squares = each(lambda i: _square(call(i)), self.varying.tolist(), self.workers)
        return np.asarray(sum(squares, start=np.zeros(()))) if len(self.varying) else np.zeros(self.S.shape[1:])


def _level(r: int, spread: float, null: list[float]) -> Level:
    mean = float(np.mean(null))
    return Level(r, spread, mean, max(float(np.std(null, ddof=1)), _RESOLUTION * mean))


def _planted(Z: Array, signs: Array) -> Array:
    """Return the covariance of rows with the covariance ``Z`` once a factor holds a tenth of every feature's variance.

    ``D^(1/2) C^(1/2) R C^(1/2) D^(1/2)`` for correlations R, variances D and ``C = 0.9 I + 0.1 s s^T``, ``s`` of signs.
    """
    m = len(signs)
    sd = np.sqrt(np.diag(Z))
    inverse = np.divide(1, sd, out=np.zeros(m), where=sd > 0)
    rest = np.sqrt(1 - _FACTOR)
    root = rest * np.eye(m) + (np.sqrt(1 - _FACTOR + m * _FACTOR) - rest) / m * np.outer(signs, signs)
    M = inverse[:, None] * root * sd
    return np.asarray(M.T @ Z @ M)


def _recentred(Z: Array, total: Array, n: int, squares: Array) -> Array:
    """Return the scatter of n rows about their mean, from that about 0 and their sum; ``squares`` (m,) are kept.

    Signs bring back the degree of freedom that centring took: without this, noise in few rows would look structured.
    """
    Z -= np.outer(total / n, total.astype(np.float64))
    own = np.diag(Z)
    scale = np.sqrt(squares / np.where(own > 0, own, 1))
    Z *= scale[:, None]
    Z *= scale
    return Z


def _square(Z: Array) -> Array:
    return np.asarray(Z.T @ Z)


def _deviation(Z: Array, n: float) -> Array:
    """Return ``sqrt(n) (Z m / tr Z - I)``."""
    m = len(Z)
    size = float(np.trace(Z)) / m
    if size <= 0:
        return np.zeros((m, m))
    Z = np.sqrt(n) / size * Z
    Z[np.arange(m), np.arange(m)] -= np.sqrt(n)
    return Z


def _top(Z: Array) -> float:
    return float(np.linalg.eigvalsh(Z)[-1])


def _wishart(n: int, p: int, rng: np.random.Generator) -> Array:
    """Draw ``X^T X`` for n rows of p standard normal numbers."""
    if n < p:
        X = rng.standard_normal((n, p))
        return np.asarray(X.T @ X)
    L = np.tril(rng.standard_normal((p, p)), -1)
    L[np.arange(p), np.arange(p)] = np.sqrt(rng.chisquare(n - np.arange(p)))
    return np.asarray(L @ L.T)


def _uncorrelated(moments: ContextCovariances) -> bool:
    """Whether features are uncorrelated over all rows, exactly: scores of a PCA of these very rows."""
    n, S, means = moments.n_samples, moments.covariances, moments.means.astype(np.float64)
    pooled = np.tensordot(n - 1.0, S.astype(np.float64, copy=False), axes=1)
    centred = np.sqrt(n)[:, None] * (means - np.average(means, axis=0, weights=n))
    pooled = pooled + centred.T @ centred
    sd = np.sqrt(np.maximum(np.diag(pooled), np.finfo(float).tiny))
    correlation = pooled / sd[:, None] / sd
    np.fill_diagonal(correlation, 0)
    tolerance = _UNCORRELATED if S.dtype == np.float64 else 1e-4
    return len(pooled) > 1 and float(np.abs(correlation).max()) < tolerance
