"""Products with ``G = sum_i S_i S_i`` from blocks of rows: the arithmetic of a pass for the basis.

With ``Z_i = (X_i - 1 m_i^T) V`` the centred scores and ``f_i`` the factor ``w_i / (n_i - 1)`` of context i,

    Y_i = S_i V = f_i (X_i - 1 m_i^T)^T Z_i,      S_i S_i V = f_i (X_i - 1 m_i^T)^T (X_i - 1 m_i^T) Y_i,

so Y_i must be complete before it is multiplied again. If a block has all rows of its contexts, ``Gram.whole`` does both
steps at once. If the rows of a context are spread over blocks, ``GramInParts`` does them one after the other: the
``parts`` from all blocks are added up, turned into ``images`` Y_i, and sent back to each block for its ``sums``.

By-products are the squared lengths of the columns of Y_i, for the norms of the S_i, and the core ``U^T Y_i``. The
product goes to total 0, (p, s), the squared lengths to total 1, (k, m), and the core to total 2, (k, t, s).

Where nuisance is removed, both factors ``S_i`` are less by ``f_i F_i^T F_i`` (``nuisance.py``).

If features are scaled by D, the covariances are ``D S_i D`` with S_i those of the rows themselves. Directions then come
in as D V, and Y_i is held as ``D^2 S_i D V``, which is what the rows themselves have to be multiplied with next. The
last factor D of the product is left to the caller.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._data import context_sums
from .._data.context_sums import Sum
from .._data.projection import offset_scores
from .._data.sparse_products import times
from .._utils.types import Array
from .nuisance import Downdate


class CovarianceImages(NamedTuple):
    """``S_i V`` (k', p, s) of contexts ``present`` (k',), and the squared lengths (k', m) of all m columns.

    ``values`` are as ``GramInParts.image`` has them, ``offsets`` (k', s) the scores of the means on them.
    """

    present: Array
    values: Array
    squares: Array
    offsets: Array


@dataclass(frozen=True)
class Gram:
    """Products for contexts with all rows in one block, whose means need not be known.

    Attributes
    ----------
    directions : ndarray (p, m)
        D V, in the precision of the rows, followed by D x for random probes x if norms are to be estimated.
    s : int
        Number of columns of V. Of the probes only lengths are needed, and no products.
    factors : ndarray (k,)
        ``w_i / (n_i - 1)``, by which scatters are multiplied.
    scale : ndarray (p,) or None
        The diagonal of D.
    seen : ndarray (p, t)
        U, for the core; t = 0 if none is wanted.
    removed : Downdate or None
        The part of the scatters that is nuisance: ``S_i`` is less by ``f_i F_i^T F_i``.
    """

    directions: Array
    s: int
    factors: Array
    scale: Array | None
    seen: Array
    removed: Downdate | None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision of the rows."""
        return self.directions.dtype

    @property
    def probing(self) -> bool:
        """Whether there are probes, and so lengths are needed."""
        return bool(self.directions.shape[1] > self.s)

    def squares(self, Y: Array) -> Array:
        """Return the squared column lengths (m,) of D S D V, given Y = D^2 S D V."""
        # Y (p, m) carries one factor D too many, which it needs for the second product and lengths must not have.
        Y = Y if self.scale is None else Y / self.scale[:, None]
        return np.asarray(np.einsum("pm,pm->m", Y, Y))

    def core(self, Y: Array) -> Array:
        """Return ``U^T D S D V`` (t, s), given Y = D^2 S D V."""
        Y = Y if self.scale is None or not self.seen.size else Y / self.scale[:, None]
        # (t, p) @ (p, s): small next to the products with rows.
        return np.asarray(self.seen.T @ Y.astype(self.dtype, copy=False))

    def core_of_scores(self, Y: Array, scores: Array, factor: Any) -> Array:
        """Return the same from the centred scores (n_i, m) times ``factor`` as well, of all rows of one context.

        The last s columns of U are V, and ``V^T D S D V = f Z^T Z``: n_i instead of p multiplications an entry.
        """
        t = self.seen.shape[1]
        if not t:
            return np.empty((0, self.s), dtype=self.dtype)
        out = np.empty((t, self.s), dtype=self.dtype)
        before = Y if self.scale is None else Y / self.scale[:, None]
        np.matmul(self.seen[:, : t - self.s].T, before.astype(self.dtype, copy=False), out=out[: t - self.s])
        Z = scores[:, : self.s]
        np.divide(Z.T @ Z, factor, out=out[t - self.s :])
        return out

    def whole(self, X: Any, codes: Array) -> list[Sum]:
        """Return the sums for X, which has all rows of its contexts, each context in one run of rows."""
        # One large product for all contexts of the block. Scores are centred by their own means afterwards, since the
        # mean of X_i V over all rows of context i is m_i^T V: the m_i are not needed.
        Z = times(X, self.directions)
        # X (n, p), Z (n, m), T (n, s): scores of the images, filled context by context below.
        T = np.empty((len(codes), self.s), dtype=Z.dtype)
        present, bounds = context_sums.runs(codes)
        # Zeros without probes: nobody asks for lengths then, and the total has to keep its shape.
        lengths = np.zeros((len(present), Z.shape[1]))
        # In the precision of the rows, which halves its memory: each context is added once, so no error accumulates.
        core = np.empty((len(present), self.seen.shape[1], self.s), dtype=self.dtype)
        squared_scale = None if self.scale is None else (self.scale**2)[:, None].astype(self.dtype)
        nuisance: list[tuple[int, Array]] = []
        for j, i in enumerate(present.tolist()):
            part = slice(int(bounds[j]), int(bounds[j + 1]))
            Xi = context_sums.consecutive(X, part.start, part.stop)
            factor = self.dtype.type(self.factors[i])
            # Centred scores sum to 0, so (X - 1 m^T)^T Z = X^T Z: there is nothing to correct in p features.
            scores = context_sums.centred(Z[part], factor)
            Y = context_sums.transposed(Xi, scores)
            if self.removed is not None:
                Y = Y - factor * self.removed.times(i, self.directions)
            Y = Y if squared_scale is None else Y * squared_scale
            if self.probing:
                lengths[j] = self.squares(Y)
                # Probes end here, after one product instead of two.
                Y = Y[:, : self.s]
            Y = Y.astype(self.dtype, copy=False)  # sums over many float32 rows are float64
            core[j] = self.core(Y) if self.removed is not None else self.core_of_scores(Y, scores, factor)
            # S_i Y_i = f_i (X_i - 1 m_i^T)^T (X_i - 1 m_i^T) Y_i, where again only the scores have to be centred.
            T[part] = context_sums.centred(times(Xi, Y), factor)
            if self.removed is not None:
                nuisance.append((i, factor * self.removed.along(i, Y)))
        # The sum of X_i^T T_i over the contexts of the block is one large product again.
        product = context_sums.transposed(X, T)
        if self.removed is not None:
            product = product - self.removed.combined(nuisance)
        return [Sum(0, ..., product), Sum(1, present, lengths), Sum(2, present, core)]

    def with_means(self, X: Any, codes: Array) -> list[Sum]:
        """Return the sums of ``whole``, and the means of the rows, to total 3, (k, p)."""
        present, means = context_sums.sums_of_runs(X, codes)
        # Here, and not in the total: with thousands of contexts a quotient of that takes as long as to read the file.
        means /= np.diff(context_sums.runs(codes)[1])[:, None]
        return [*self.whole(X, codes), Sum(3, present, means)]


@dataclass(frozen=True)
class GramInParts(Gram):
    """Products also for contexts whose rows are spread over blocks, or over machines.

    Scores are centred by ``means`` (k, p), whose own scores on ``directions`` are ``offsets`` (k, m).
    """

    means: Array
    offsets: Array

    def image(self, i: int, product: Array, sums: Array) -> Array:
        """Return ``Y_i`` (p, m) from ``X_i^T Z_i`` (p, m) and the sums of Z_i (m,), over all rows of context i."""
        # Sums of centred scores are 0 but for the rounding of m_i, which is no longer small once multiplied by m_i.
        Y = product - np.outer(self.means[i], sums).astype(product.dtype)
        if self.removed is not None:
            Y -= self.removed.times(i, self.directions)
        Y *= product.dtype.type(self.factors[i])
        return Y if self.scale is None else np.asarray(Y * (self.scale**2)[:, None].astype(product.dtype))

    def scores(self, X: Any, Y: Array, i: int) -> Array:
        """Return the centred scores of some rows of context i on its image Y, times its factor."""
        # m_i^T Y in float64 before it is rounded: the two terms of a score cancel where means are large.
        T = offset_scores(X, Y.astype(self.dtype, copy=False), (self.means[i] @ Y).astype(self.dtype))
        T *= self.dtype.type(self.factors[i])
        return T

    def parts(self, X: Any, codes: Array, start: int, stop: int) -> list[Sum]:
        """Return ``X_i^T Z_i`` (total 0) and the sums of Z_i (total 1) of contexts ``start`` to ``stop`` in X."""
        X, codes, present, bounds = context_sums.contexts_between(X, codes, start, stop)
        # Centred before the second product: to subtract n m m^T V from X^T X V would cancel digits.
        Z = offset_scores(X, self.directions, self.offsets.astype(self.dtype)[codes])
        # (k', p, m), whose size ``start`` and ``stop`` bound. Those of several blocks are added up in float64.
        products = context_sums.products_of_runs(X, Z, bounds)
        sums = np.add.reduceat(Z, bounds[:-1], axis=0, dtype=np.float64)
        return [Sum(0, present, products), Sum(1, present, sums)]

    def images(self, parts: list[Sum]) -> CovarianceImages:
        """Return ``S_i V`` from ``parts`` that were added up over all rows of their contexts."""
        products, sums = parts
        # In the precision of the rows that they will be multiplied with: (p, s) a context, sent to every block.
        values = np.empty((len(products.key), len(self.directions), self.s), dtype=self.dtype)
        squares = np.empty((len(products.key), self.directions.shape[1]))
        offsets = np.empty((len(products.key), self.s), dtype=self.dtype)
        for j, i in enumerate(products.key.tolist()):
            Y = self.image(i, products.value[j], sums.value[j])
            # The squared lengths are of all m columns, the probes included; only V is multiplied again.
            values[j] = Y[:, : self.s]
            squares[j] = self.squares(Y)
            # m_i^T Y_i in float64 before it is rounded: the two terms of a score cancel where means are large.
            offsets[j] = self.means[i] @ values[j].astype(np.float64)
        return CovarianceImages(products.key, values, squares, offsets)

    def sums(self, X: Any, codes: Array, images: CovarianceImages) -> list[Sum]:
        """Return the contribution to the product of those rows in X whose contexts are in ``images``."""
        first, last = int(images.present[0]), int(images.present[-1])
        X, codes, present, bounds = context_sums.contexts_between(X, codes, first, last + 1)
        # ``images.present`` is sorted, and holds every context between its ends that has rows anywhere.
        places = np.searchsorted(images.present, present)
        # As a view where all contexts are in the block, as in random order: it is by far the largest array here.
        Y = images.values if len(places) == len(images.present) else images.values[places]
        counts = np.diff(bounds)
        T = context_sums.scores_of_runs(X, Y, bounds)
        T -= np.repeat(images.offsets[places], counts, axis=0)
        T *= np.repeat(self.factors[present].astype(self.dtype), counts)[:, None]
        # Over some rows of a context centred scores do not sum to 0: (X - 1 m^T)^T T = X^T T - m (1^T T).
        sums = np.add.reduceat(T, bounds[:-1], axis=0, dtype=np.float64)
        return [Sum(0, ..., context_sums.transposed(X, T) - self.means[present].T @ sums)]

    def norms(self, images: CovarianceImages) -> list[Sum]:
        """Return the contribution of ``images`` to squared lengths and core, for which no rows are needed."""
        # A context is in one set of images only, so its rows of both totals are added once, and not once per block.
        core = np.stack([self.core(Y) for Y in images.values])
        sums = [Sum(1, images.present, images.squares), Sum(2, images.present, core)]
        if self.removed is not None:
            sums.append(Sum(0, ..., -self.nuisance_of(zip(images.present.tolist(), images.values, strict=True))))
        return sums

    def nuisance_of(self, images: Iterable[tuple[int, Array]]) -> Array:
        """Return ``sum_i f_i F_i^T F_i Y_i`` (p, s), by which the product of the rows is too large."""
        assert self.removed is not None
        return self.removed.combined([(i, self.factors[i] * self.removed.along(i, Y)) for i, Y in images])
