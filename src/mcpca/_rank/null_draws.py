"""What would the covariances look like if they were noise? Random draws for ``noise_test``.

A draw takes the residual rows of every context, ``(x - mean) Q Q^T`` with Q (p, m) orthonormal, and multiplies each
entry by a random sign (Hong, Sheng and Dobriban, 2020). Two cases differ from this:

* Features that are principal components have no correlations over all rows together: their variances are what is to be
  explained. The rows are then rotated at random, and the rotated features scaled to equal variances, before signs are
  drawn: that preserves the number of samples and the total variance of every context and destroys everything else.
* Without rows, their Gaussian counterpart with the same variances is drawn: a Wishart matrix, by Bartlett's
  decomposition, from p^2 instead of n p random numbers.
* Rows in groups are two kinds of noise, each with signs and covariances of its own (``grouped_rows``): contexts are
  then the 2 k parts there.

For Gaussian white noise and n_i >> m no draw would be needed: the ``sqrt(n_i) (Z_i - I)`` are then Wigner matrices, and
the spread is about ``m (sqrt(k) + 1)^2``, the edge of a Marchenko-Pastur law. Only the tests use this: real noise has
features of unequal size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from itertools import repeat
from typing import Any

import numpy as np

from .._covariances.context_covariances import ContextCovariances
from .._data.contexts import Contexts
from .._utils.parallel import each
from .._utils.types import Array
from .grouped_rows import GroupedRows, residual_rows
from .noise_scale import NoiseScale, pooled_covariance

NULLS = ("auto", "features", "isotropic")
_PLANTED_SHARE = 0.1  # of every feature's variance, held by the factor that the test ought to see
# Largest |correlation| between pooled features that is taken for rounding, which only a PCA of these rows leaves.
_UNCORRELATED = 1e-6
_UNCORRELATED_FLOAT32 = 1e-4
_PART_NUMBERS = 2**18  # that a thread takes at a time, and that stay in its cache
_LEAST_LEFT = 0.1  # share of a feature outside removed directions below which it is not scaled up any further


class ScaledMoments:
    """Covariances of contexts in units of their noise, scaled when they are needed: no second stack is kept.

    Attributes
    ----------
    S : ndarray (k, p, p)
        The covariances in their own unit.
    features : ndarray (p,)
        Standard deviations that features are divided by.
    size : ndarray (k,)
        Variances that contexts are divided by, in that unit; 0 for a context that does not vary.
    freedom : ndarray (k,)
        Number of rows of each context less one.
    varying : ndarray (k',)
        Indices of the contexts that are tested: those that vary, and have more than a few rows.
    """

    def __init__(
        self, moments: ContextCovariances, workers: int, scale: NoiseScale | None = None, least_freedom: float = 0.0
    ) -> None:
        self.S = moments.covariances
        p = self.S.shape[1]
        self.features = np.ones(p) if scale is None else scale.features
        self.size = np.einsum("kpp->k", self.S).astype(np.float64) / p if scale is None else scale.contexts
        self.freedom = moments.n_samples - 1.0
        varying = self.size > 0
        enough = varying & (self.freedom >= least_freedom)
        self.varying = np.flatnonzero(enough if enough.any() else varying)
        self.workers = workers
        self._inverse = 1 / self.features

    def in_units(self, scale: NoiseScale) -> ScaledMoments:
        """Return the same covariances in other units; they are not copied."""
        other = copy(self)
        other.features = scale.features
        other.size = scale.contexts
        other._inverse = 1 / other.features
        return other

    def scaled(self, i: int) -> Array:
        """Return the covariance of context i in units of noise."""
        return np.asarray(self._in_units(np.array([i]))[0])

    def batch(self, part: slice) -> Array:
        """Return the covariances (m, p, p), in units of noise, of a slice of ``varying``."""
        return self._in_units(self.varying[part])

    def _in_units(self, indices: Array) -> Array:
        S = self.S[indices].astype(np.float64, copy=False)  # a copy of its own, by the indices
        S *= self._inverse[:, None] / self.size[indices, None, None]
        S *= self._inverse
        return np.asarray(S)

    def combined(self, weights: Array) -> Array:
        """Return ``sum_i weights_i S_i`` (p, p) in units of noise, over the contexts that vary; ``weights`` (k',)."""
        every = np.zeros(len(self.size))
        every[self.varying] = weights / self.size[self.varying]
        return pooled_covariance(self.S, every) * self._inverse[:, None] * self._inverse

    def each_varying(self, call: Callable[[int], Any]) -> Iterator[Any]:
        """Yield ``call`` of the index of each context that varies, in order, in threads."""
        return each(call, self.varying.tolist(), self.workers)

    def each_of(self, call: Callable[[Any], Any], pieces: list[Any]) -> Iterator[Any]:
        """Yield ``call`` of each piece, in order, in threads."""
        return each(call, pieces, self.workers)

    def parts(self, rows: int | None = None) -> list[slice]:
        """Return slices of ``varying`` for threads, with two megabytes of so many rows (p,) a context, by default p.

        They do not depend on the number of threads, and nor do sums over them.
        """
        p = self.S.shape[1]
        step = max(1, _PART_NUMBERS // (p * (rows or p)))
        k = len(self.varying)
        return [slice(a, min(a + step, k)) for a in range(0, k, step)]

    def total_square(self, weights: Array) -> Array:
        """Return ``sum_i w_i S_i^2`` (p, p) in units of noise over the contexts that vary, for ``weights`` (k',)."""
        p = self.S.shape[1]
        roots = np.sqrt(weights)[:, None, None]
        # The squares of a part are one product of its matrices on top of each other, which are symmetric.
        squares = self.each_of(lambda part: square((roots[part] * self.batch(part)).reshape(-1, p)), self.parts())
        return np.asarray(sum(squares, np.zeros((p, p))))


class NullDraws:
    """Draws of the null for one data set.

    ``contexts`` holds the rows; without them (None) rows are Gaussian. ``data`` are those of the parts of ``grouped``,
    if rows are in groups. ``isotropic`` says that features are principal components.
    """

    def __init__(
        self,
        data: ScaledMoments,
        means: Array,
        contexts: Contexts | None,
        isotropic: bool,
        seed: int,
        grouped: GroupedRows | None = None,
    ) -> None:
        self.grouped = grouped
        self.data = data
        self.means = means
        self.contexts = contexts
        self.seed = seed
        self.isotropic = isotropic

    def in_units(self, scale: NoiseScale) -> NullDraws:
        """Return the draws of the same rows in other units."""
        other = copy(self)
        other.data = self.data.in_units(scale)
        return other

    def over(
        self, V: Array, draws: range, call: Callable[[Array, int], Array], some: list[int] | None = None
    ) -> Iterator[Array]:
        """Yield for each varying context ``call`` of its null covariance outside V (p, r), and its index.

        The covariance is ``P S P`` (p, p), ``P = I - V V^T``; if the null is isotropic it is (p - r, p - r), in some
        coordinates outside V. One array per context, with the results of all ``draws`` stacked along the first axis.
        Contexts are never held all at once: callers sum what they need. ``some`` are the indices of contexts to take,
        if not all.
        """
        r = V.shape[1]
        frame = None
        if self.isotropic:
            rng = np.random.default_rng((self.seed, r, 0))
            m = len(V) - r
            # Directions have a sign by chance of rounding, which must not lead to other draws.
            V = V * np.where(V[np.abs(V).argmax(axis=0), np.arange(r)] < 0, -1.0, 1.0)
            # Q of the QR decomposition of a Gaussian matrix is uniformly distributed up to signs, which do not matter.
            frame = np.linalg.qr(V, mode="complete")[0][:, r:] @ np.linalg.qr(rng.standard_normal((m, m)))[0]

        def draw(i: int) -> Array:
            # A stream per rank, context and draw, so that neither threads nor the order of calls change a number.
            streams = [np.random.default_rng((self.seed, r, 1, i, d)) for d in draws]
            if self.contexts is None:
                scatters = self._gaussian_scatters(i, V, streams)
            elif self.grouped is not None:
                scatters = self._grouped_scatters(self.grouped, i, V, frame, streams, draws)
            else:
                rows, basis = residual_rows(self.contexts, i, self.means)
                signs = map(random_signs, streams, repeat((len(rows), len(V) if frame is None else frame.shape[1])))
                # What the rows no longer vary in: their mean, or all that nuisance has taken.
                lost = _mean_of if basis is None else basis.products
                scatters = self._flipped_scatters(rows, i, V, frame, signs, lost)
            return np.stack([call(Z / self.data.freedom[i], i) for Z in scatters])

        yield from each(draw, self.data.varying.tolist() if some is None else some, self.data.workers)

    def lengths(self, V: Array, i: int) -> Array:
        """Return the squared lengths of the rows of context i outside V, in units of noise."""
        rows = self._rows(i)
        along = rows @ V
        return np.asarray(np.maximum(np.einsum("np,np->n", rows, rows) - np.einsum("nr,nr->n", along, along), 0))

    def squares_along(self, v: Array, i: int) -> Array:
        """Return the squared scores of the rows of context i on ``v`` (p,), in units of noise."""
        return np.asarray((self._rows(i) @ v) ** 2)

    def _rows(self, i: int) -> Array:
        """Return the rows of context i, or the part i, in units of noise."""
        assert self.contexts is not None
        grouped = self.grouped
        if grouped is None:
            rows = residual_rows(self.contexts, i, self.means)[0]
        else:
            k = len(grouped.contexts.names)
            rows = grouped.rows_within(i) if i < k else grouped.rows_between(i - k)[0]
        return np.asarray(rows / (self.data.features * np.sqrt(self.data.size[i])))

    def _grouped_scatters(
        self,
        grouped: GroupedRows,
        part: int,
        V: Array,
        frame: Array | None,
        streams: list[np.random.Generator],
        draws: range,
    ) -> Iterator[Array]:
        """Return the same for a part of rows in groups."""
        k = len(grouped.contexts.names)
        width = len(V) if frame is None else frame.shape[1]
        if part < k:
            rows = grouped.rows_within(part)
            return self._flipped_scatters(
                rows, part, V, frame, map(random_signs, streams, repeat((len(rows), width))), None
            )
        rows, present, basis = grouped.rows_between(part - k)
        # Drawn for all groups, by a stream that contexts share (key 3; the others are 0 to 2), so that a group has the
        # same signs in each of them.
        shape = (grouped.n_groups, width)
        r = V.shape[1]
        signs = (random_signs(np.random.default_rng((self.seed, r, 3, d)), shape)[present] for d in draws)
        basis = basis.astype(np.float32)
        return self._flipped_scatters(rows, part, V, frame, signs, lambda flipped: basis.T @ flipped)

    def _flipped_scatters(
        self,
        rows: Array,
        i: int,
        V: Array,
        frame: Array | None,
        all_signs: Iterable[Array],
        lost: Callable[[Array], Array] | None,
    ) -> Iterator[Array]:
        """Yield scatter matrices of residual rows with random signs.

        ``all_signs`` gives the signs of each draw. ``lost`` are the products of rows with a basis of what they do not
        vary in, which is taken out again; None for contrasts, which have lost nothing.
        """
        # Single precision will do: the null is needed to three digits, and the rows are scaled to unit variance.
        rows = (rows / (self.data.features * np.sqrt(self.data.size[i]))).astype(np.float32)
        if frame is not None:
            rows = rows @ frame.astype(np.float32)
            # A few dominant directions are part of every rotated one, but in unequal shares: equalise the variances.
            squares = np.einsum("nm,nm->m", rows, rows)
            rows *= np.sqrt(squares.mean() / np.maximum(squares, np.finfo(np.float32).tiny))
        elif V.shape[1]:
            # Signs go to the entries of (x - mean) P, in features, which have the share P_jj of their noise there.
            removed = V.astype(np.float32)
            rows -= (rows @ removed) @ removed.T
            rows /= np.sqrt(share_left(V)).astype(np.float32)
        squares = np.einsum("nm,nm->m", rows, rows).astype(np.float64)
        opposite = -rows
        for signs in all_signs:
            flipped = np.where(signs, rows, opposite)
            scatter = (flipped.T @ flipped).astype(np.float64)
            if lost is not None:
                scatter = _recentred(scatter, lost(flipped), squares)
            yield scatter if frame is not None else projected(scatter, V)

    def _gaussian_scatters(self, i: int, V: Array, streams: list[np.random.Generator]) -> Iterator[Array]:
        """Yield scatter matrices of normal rows with the residual variances of context i."""
        n = int(self.data.freedom[i])
        p, r = V.shape
        if self.isotropic:
            yield from (_wishart(n, p - r, stream) for stream in streams)
            return
        # Variances of the residual rows in features, clipped as rounding may leave -1e-17.
        sd = np.sqrt(np.maximum(np.diag(projected(self.data.scaled(i), V)), 0) / share_left(V))
        for stream in streams:
            # Rows D^(1/2) g with standard normal g: their scatter is D^(1/2) W D^(1/2) with W Wishart.
            yield projected(sd[:, None] * _wishart(n, p, stream) * sd, V)


def share_left(V: Array) -> Array:
    """Return ``P_jj = 1 - |V_j|^2`` (p,), the share of white noise in a feature outside V; not less than a tenth."""
    return np.asarray(np.maximum(1 - np.einsum("pr,pr->p", V, V), _LEAST_LEFT))


def projected(M: Array, V: Array) -> Array:
    """Return ``P M P`` for ``P = I - V V^T``; cost O(p^2 r)."""
    if not V.shape[1]:
        return M
    MV = M @ V
    # P M P = M - V (MV)^T - (MV) V^T + V (V^T M V) V^T
    half = MV - V @ (V.T @ MV) / 2
    product = half @ V.T
    return np.asarray(M - product - product.T)


def random_signs(stream: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Return a random bit for each entry of ``shape``."""
    # One random bit per entry: 64 times fewer random bytes than a float64 each.
    size = shape[0] * shape[1]
    bits = np.frombuffer(stream.bytes(size // 8 + 1), dtype=np.uint8)
    return np.unpackbits(bits, count=size).reshape(shape)


def _mean_of(rows: Array) -> Array:
    """Return the product (1, m) of rows with the constant of unit length."""
    return np.asarray(np.ones((1, len(rows)), dtype=rows.dtype) @ rows / np.sqrt(len(rows)))


def with_planted_factor(Z: Array, signs: Array) -> Array:
    """Return the covariance ``Z`` changed so that one factor holds a tenth of every feature's variance.

    ``D^(1/2) C^(1/2) R C^(1/2) D^(1/2)`` for correlations R, variances D and ``C = 0.9 I + 0.1 s s^T``, s the signs.
    """
    m = len(signs)
    sd = np.sqrt(np.diag(Z))
    inverse = np.divide(1, sd, out=np.zeros(m), where=sd > 0)
    # C has the eigenvalue 0.9 + 0.1 m along s, which has length sqrt(m), and 0.9 elsewhere: its root in closed form.
    rest = np.sqrt(1 - _PLANTED_SHARE)
    root = rest * np.eye(m) + (np.sqrt(1 - _PLANTED_SHARE + m * _PLANTED_SHARE) - rest) / m * np.outer(signs, signs)
    # M^T Z M with M = D^(-1/2) C^(1/2) D^(1/2), and R = D^(-1/2) Z D^(-1/2).
    M = inverse[:, None] * root * sd
    return np.asarray(M.T @ Z @ M)


def _recentred(Z: Array, lost: Array, squares: Array) -> Array:
    """Return the scatter of rows about their mean, from that about 0, with diagonal ``squares`` (m,).

    ``lost`` (d, m) are the products of the rows with an orthonormal basis of the constant, and of nuisance if that was
    removed. Centring cost the rows these degrees of freedom, which random signs restore. Without centring again the
    null would vary less than the data, and noise in few rows would look structured.
    """
    lost = lost.astype(np.float64)
    Z -= lost.T @ lost
    # Signs preserve sums of squares about 0. Scaling restores them about the mean, so that variances do not change.
    diagonal = np.diag(Z)
    # A feature without variance has ``squares`` 0 and stays at 0.
    scale = np.sqrt(squares / np.where(diagonal > 0, diagonal, 1))
    Z *= scale[:, None]
    Z *= scale
    return Z


def square(Z: Array) -> Array:
    """Return ``Z^T Z``."""
    return np.asarray(Z.T @ Z)


def _wishart(n: int, p: int, rng: np.random.Generator) -> Array:
    """Draw ``X^T X`` for n rows of p standard normal numbers."""
    # Bartlett's factor needs n - j > 0 degrees of freedom on its diagonal; few rows are as cheap to draw.
    if n < p:
        X = rng.standard_normal((n, p))
        return np.asarray(X.T @ X)
    # Bartlett: X^T X = L L^T with independent entries, standard normal below the diagonal of L and chi on it.
    L = np.tril(rng.standard_normal((p, p)), -1)
    L[np.arange(p), np.arange(p)] = np.sqrt(rng.chisquare(n - np.arange(p)))
    return np.asarray(L @ L.T)


def uncorrelated(moments: ContextCovariances) -> bool:
    """Whether features are exactly uncorrelated over all rows: scores of a PCA of these very rows."""
    n = moments.n_samples
    S = moments.covariances
    means = moments.means.astype(np.float64)
    # Total scatter = scatter within contexts + scatter of their means.
    within = np.tensordot(n - 1.0, S.astype(np.float64, copy=False), axes=1)
    centred = np.sqrt(n)[:, None] * (means - np.average(means, axis=0, weights=n))
    pooled = within + centred.T @ centred
    sd = np.sqrt(np.maximum(np.diag(pooled), np.finfo(float).tiny))
    correlation = pooled / sd[:, None] / sd
    np.fill_diagonal(correlation, 0)
    tolerance = _UNCORRELATED if S.dtype == np.float64 else _UNCORRELATED_FLOAT32
    return len(pooled) > 1 and float(np.abs(correlation).max()) < tolerance
