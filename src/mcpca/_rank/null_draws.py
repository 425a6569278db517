"""What would the covariances look like if they were noise? Random draws for ``noise_test``, its only caller.

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
from itertools import repeat

import numpy as np

from .._covariances.context_covariances import ContextCovariances
from .._data.contexts import Contexts
from .._utils.parallel import each
from .._utils.types import Array
from .grouped_rows import GroupedRows, residual_rows

NULLS = ("auto", "features", "isotropic")
_PLANTED_SHARE = 0.1  # of every feature's variance, held by the factor that the test ought to see
# Largest |correlation| between pooled features that is taken for rounding, which only a PCA of these rows leaves.
_UNCORRELATED = 1e-6
_UNCORRELATED_FLOAT32 = 1e-4


class ScaledMoments:
    """Covariances of contexts, each scaled to a mean variance of 1 when it is needed: no second stack is kept.

    Attributes
    ----------
    S : ndarray (k, p, p)
        The covariances in their own unit.
    size, freedom : ndarray (k,)
        Mean variance, and number of rows less one, of each context.
    varying : ndarray
        Indices of the contexts whose variance is not zero: only these are tested.
    """

    def __init__(self, moments: ContextCovariances, workers: int) -> None:
        self.S = moments.covariances
        self.size = np.einsum("kpp->k", self.S).astype(np.float64) / self.S.shape[1]
        self.freedom = moments.n_samples - 1.0
        self.varying = np.flatnonzero(self.size > 0)
        self.workers = workers

    def scaled(self, i: int) -> Array:
        """Return the covariance of context i scaled to a mean variance of 1."""
        return np.asarray(self.S[i].astype(np.float64) / self.size[i])

    def total_square(self, call: Callable[[int], Array]) -> Array:
        """Return ``sum_i Z_i Z_i`` over the contexts that vary, for ``Z_i`` from ``call``."""
        # Summed as they arrive, in the order of the contexts: one (p, p) matrix per thread, and the same rounding for
        # any number of them.
        squares = each(lambda i: square(call(i)), self.varying.tolist(), self.workers)
        return np.asarray(sum(squares, start=np.zeros(()))) if len(self.varying) else np.zeros(self.S.shape[1:])


class NullDraws:
    """Draws of the null for one data set; ``V`` (p, p) are its directions, of which rank r removes the first r.

    ``contexts`` holds the rows; without them (None) rows are Gaussian. ``null`` is one of ``NULLS``. ``data`` are those
    of the parts of ``grouped``, if rows are in groups.
    """

    def __init__(
        self,
        data: ScaledMoments,
        moments: ContextCovariances,
        contexts: Contexts | None,
        null: str,
        seed: int,
        V: Array,
        grouped: GroupedRows | None = None,
    ) -> None:
        self.grouped = grouped
        self.data = data
        self.means = moments.means
        self.contexts = contexts
        self.seed = seed
        self.V = V
        # Without rows means may be unknown, and with them correlations over all rows: "auto" is then "features".
        self.isotropic = null == "isotropic" or (null == "auto" and contexts is not None and _uncorrelated(moments))

    def over(
        self, r: int, Q: Array, draws: range, call: Callable[[Array, int], Array], some: list[int] | None = None
    ) -> Iterator[Array]:
        """Yield for each varying context ``call`` of its null covariance (m, m), in coordinates of Q, and its index.

        One array per context, with the results of all ``draws`` stacked along the first axis. Contexts are never held
        all at once: callers sum what they need. ``some`` are the indices of contexts to take, if not all.
        """
        rotation = None
        if self.isotropic:
            rng = np.random.default_rng((self.seed, r, 0))
            # Q of the QR decomposition of a Gaussian matrix is uniformly distributed up to signs, which do not matter.
            rotation = np.linalg.qr(rng.standard_normal((Q.shape[1],) * 2))[0]

        def draw(i: int) -> Array:
            # A stream per rank, context and draw, so that neither threads nor the order of calls change a number.
            streams = [np.random.default_rng((self.seed, r, 1, i, d)) for d in draws]
            if self.contexts is None:
                scatters = self._gaussian_scatters(i, Q, streams)
            elif self.grouped is not None:
                scatters = self._grouped_scatters(self.grouped, i, Q, rotation, streams, r, draws)
            else:
                rows, basis = residual_rows(self.contexts, i, self.means)
                signs = map(random_signs, streams, repeat((len(rows), _n_signs(Q, rotation))))
                # What the rows no longer vary in: their mean, or all that nuisance has taken.
                lost = _mean_of if basis is None else basis.products
                scatters = self._flipped_scatters(rows, i, Q, rotation, signs, lost)
            return np.stack([call(Z / self.data.freedom[i], i) for Z in scatters])

        yield from each(draw, self.data.varying.tolist() if some is None else some, self.data.workers)

    def _grouped_scatters(
        self,
        grouped: GroupedRows,
        part: int,
        Q: Array,
        rotation: Array | None,
        streams: list[np.random.Generator],
        r: int,
        draws: range,
    ) -> Array:
        """Return the same for a part of rows in groups."""
        k = len(grouped.contexts.names)
        width = _n_signs(Q, rotation)
        if part < k:
            rows = grouped.rows_within(part)
            return self._flipped_scatters(
                rows, part, Q, rotation, map(random_signs, streams, repeat((len(rows), width))), None
            )
        rows, present, basis = grouped.rows_between(part - k)
        # Drawn for all groups, by a stream that contexts share (key 3; the others are 0 to 2), so that a group has the
        # same signs in each of them.
        shape = (grouped.n_groups, width)
        signs = (random_signs(np.random.default_rng((self.seed, r, 3, d)), shape)[present] for d in draws)
        basis = basis.astype(np.float32)
        return self._flipped_scatters(rows, part, Q, rotation, signs, lambda flipped: basis.T @ flipped)

    def _flipped_scatters(
        self,
        rows: Array,
        i: int,
        Q: Array,
        rotation: Array | None,
        all_signs: Iterable[Array],
        lost: Callable[[Array], Array] | None,
    ) -> Array:
        """Return scatter matrices (draws, m, m) of residual rows with random signs.

        ``all_signs`` gives the signs of each draw. ``lost`` are the products of rows with a basis of what they do not
        vary in, which is taken out again; None for contrasts, which have lost nothing.
        """
        # Single precision will do: the null is needed to three digits, and the rows are scaled to unit variance.
        rows = (rows / np.sqrt(self.data.size[i])).astype(np.float32)
        p, m = Q.shape
        if rotation is not None:
            rows = rows @ (Q @ rotation).astype(np.float32)
            # A few dominant directions are part of every rotated one, but in unequal shares: equalise the variances.
            squares = np.einsum("nm,nm->m", rows, rows)
            rows *= np.sqrt(squares.mean() / np.maximum(squares, np.finfo(np.float32).tiny))
        elif m < p:
            # Signs go to the entries of (x - mean) Q Q^T, in features. Subtracting the r removed directions costs
            # O(n p r), multiplying by Q Q^T would cost O(n p m).
            removed = self.V[:, : p - m].astype(np.float32)
            rows -= (rows @ removed) @ removed.T
        scatters = []
        squares = np.einsum("nm,nm->m", rows, rows).astype(np.float64)
        opposite = -rows
        for signs in all_signs:
            flipped = np.where(signs, rows, opposite)
            scatter = (flipped.T @ flipped).astype(np.float64)
            if lost is not None:
                scatter = _recentred(scatter, lost(flipped), squares)
            # With m = p the change of coordinates is a rotation, which changes no spread and no singular value.
            scatters.append(Q.T @ scatter @ Q if rotation is None and m < p else scatter)
        return np.stack(scatters)

    def _gaussian_scatters(self, i: int, Q: Array, streams: list[np.random.Generator]) -> Array:
        """Return scatter matrices (draws, m, m) of normal rows with the residual variances of context i."""
        n = int(self.data.freedom[i])
        p, m = Q.shape
        if self.isotropic:
            return np.stack([_wishart(n, m, stream) for stream in streams])
        # diag(Q Z_i Q^T): variances of the residual rows in features, clipped as rounding may leave -1e-17.
        variances = np.maximum(np.einsum("pm,mn,pn->p", Q, Q.T @ self.data.scaled(i) @ Q, Q), 0)
        # Rows D^(1/2) g with standard normal g, in coordinates of Q: their scatter is Q^T D^(1/2) W D^(1/2) Q with W
        # Wishart.
        basis = np.sqrt(variances)[:, None] * Q
        return np.stack([basis.T @ _wishart(n, p, stream) @ basis for stream in streams])


def random_signs(stream: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Return a random bit for each entry of ``shape``."""
    # One random bit per entry: 64 times fewer random bytes than a float64 each.
    size = shape[0] * shape[1]
    bits = np.frombuffer(stream.bytes(size // 8 + 1), dtype=np.uint8)
    return np.unpackbits(bits, count=size).reshape(shape)


def _mean_of(rows: Array) -> Array:
    """Return the product (1, m) of rows with the constant of unit length."""
    return np.asarray(np.ones((1, len(rows)), dtype=rows.dtype) @ rows / np.sqrt(len(rows)))


def _n_signs(Q: Array, rotation: Array | None) -> int:
    """Return how many signs a row has: one for each feature, or for each rotated direction."""
    return int(Q.shape[0] if rotation is None else Q.shape[1])


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


def _uncorrelated(moments: ContextCovariances) -> bool:
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
