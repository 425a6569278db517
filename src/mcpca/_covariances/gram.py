"""``sum_i S_i S_i V``, and ``U^T S_i V`` beside it, from blocks of rows with all rows of a context or only some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._data import context_sums
from .._data.context_sums import Sum
from .._data.projection import offset_scores
from .._utils.types import Array


class CovarianceImages(NamedTuple):
    """``S_i V`` (k', p, s) of contexts ``present`` (k',), and the squared lengths (k', m) of all m columns.

    ``values`` are as ``Gram.image`` has them.
    """

    present: Array
    values: Array
    squares: Array


@dataclass(frozen=True)
class Gram:
    """What products need beside the rows; nothing else goes to other machines.

    ``typed`` (p, m) are the directions, features scaled, in the precision of rows; the products of the first ``s`` are
    wanted and only lengths of the others. ``offsets`` (k, m) are the scores of ``means`` (k, p), used where rows of a
    context come apart. ``factors`` (k,) multiply the scatters, ``scale`` (p,) the features; ``against`` (p, t) are the
    U. Sums go to total 0, (p, s), 1, (k, m), and 2, ``U^T S_i V`` (k, t, s).
    """

    typed: Array
    offsets: Array
    means: Array
    factors: Array
    scale: Array | None
    s: int
    against: Array

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision of the rows."""
        return self.typed.dtype

    @property
    def probing(self) -> bool:
        """Whether lengths are wanted: of columns beside the first s, and then of those too."""
        return bool(self.typed.shape[1] > self.s)

    def image(self, i: int, product: Array, sums: Array) -> Array:
        """``S_i V`` from ``X_i^T Z_i`` and the sums of Z_i: ``(X - 1 m^T)^T Z`` in scaled features on both sides."""
        Y = product - np.outer(self.means[i], sums).astype(product.dtype)
        Y *= product.dtype.type(self.factors[i])
        return Y if self.scale is None else np.asarray(Y * (self.scale**2)[:, None].astype(product.dtype))

    def squares(self, Y: Array) -> Array:
        """Squared lengths of columns; of D S D V where Y is D^2 S D V."""
        Y = Y if self.scale is None else Y / self.scale[:, None]
        return np.asarray(np.einsum("pm,pm->m", Y, Y))

    def core(self, Y: Array) -> Array:
        """``U^T D S D V`` (t, s) where Y is D^2 S D V."""
        Y = Y if self.scale is None or not self.against.size else Y / self.scale[:, None]
        return np.asarray(self.against.T @ Y.astype(self.dtype, copy=False))

    def scores(self, X: Any, Y: Array, i: int) -> Array:
        """Centred scores of rows of context i on its image, times its factor."""
        T = offset_scores(X, Y.astype(self.dtype, copy=False), (self.means[i] @ Y).astype(self.dtype))
        T *= self.dtype.type(self.factors[i])
        return T

    def whole(self, X: Any, codes: Array) -> list[Sum]:
        """Return what contexts add all of whose rows are in X, standing together: their means need not be known."""
        Z = X @ self.typed
        T = np.empty((len(codes), self.s), dtype=Z.dtype)
        present, bounds = context_sums.runs(codes)
        norms = np.zeros((len(present), Z.shape[1]))
        core = np.empty((len(present), self.against.shape[1], self.s), dtype=self.dtype)
        squared = None if self.scale is None else (self.scale**2)[:, None].astype(self.dtype)
        for j, i in enumerate(present.tolist()):
            part = slice(int(bounds[j]), int(bounds[j + 1]))
            Xi, factor = context_sums.consecutive(X, part.start, part.stop), self.dtype.type(self.factors[i])
            Y = context_sums.transposed(Xi, context_sums.centred(Z[part], factor))
            Y = Y if squared is None else Y * squared
            if self.probing:
                norms[j] = self.squares(Y)
                Y = np.ascontiguousarray(Y[:, : self.s])
            Y = Y.astype(self.dtype, copy=False)
            core[j] = self.core(Y)
            T[part] = context_sums.centred(Xi @ Y, factor)
        return [Sum(0, ..., context_sums.transposed(X, T)), Sum(1, present, norms), Sum(2, present, core)]

    def with_row_sums(self, X: Any, codes: Array) -> list[Sum]:
        """Return what ``whole`` does, and the sums of rows, to total 3, (k, p)."""
        return [*self.whole(X, codes), Sum(3, *context_sums.sums_of_runs(X, codes))]

    # The same where X has some rows of contexts: ``parts`` of all blocks are added, then made ``images``, which give
    # the ``sums`` of each block.

    def parts(self, X: Any, codes: Array, start: int, stop: int) -> list[Sum]:
        """``X_i^T Z_i`` (total 0) and the sums of Z_i (total 1) for contexts ``start`` to ``stop`` in X."""
        present, rows = context_sums.rows_of_contexts(codes, start, stop)
        products = np.empty((len(present), *self.typed.shape))
        sums = np.empty((len(present), self.typed.shape[1]))
        for j, i in enumerate(present.tolist()):
            Xi = X[rows[j]]
            Z = offset_scores(Xi, self.typed, self.offsets[i].astype(self.dtype))
            products[j], sums[j] = context_sums.transposed(Xi, Z), Z.sum(axis=0, dtype=np.float64)
        return [Sum(0, present, products), Sum(1, present, sums)]

    def images(self, parts: list[Sum]) -> CovarianceImages:
        """Return ``S_i V`` of the contexts in ``parts``, from all of their rows."""
        products, sums = parts
        values = np.empty((len(products.key), len(self.typed), self.s), dtype=self.dtype)
        squares = np.empty((len(products.key), self.typed.shape[1]))
        for j, i in enumerate(products.key.tolist()):
            Y = self.image(i, products.value[j], sums.value[j])
            values[j], squares[j] = Y[:, : self.s], self.squares(Y)
        return CovarianceImages(products.key, values, squares)

    def sums(self, X: Any, codes: Array, images: CovarianceImages) -> list[Sum]:
        """Return what the rows in X of the contexts in ``images`` add."""
        position = {i: j for j, i in enumerate(images.present.tolist())}
        present, rows = context_sums.rows_of_contexts(codes, int(images.present[0]), int(images.present[-1]) + 1)
        total = np.zeros((len(self.typed), self.s))
        for j, i in enumerate(present.tolist()):
            Xi = X[rows[j]]
            T = self.scores(Xi, images.values[position[i]], i)
            total += context_sums.transposed(Xi, T) - np.outer(self.means[i], T.sum(axis=0, dtype=np.float64))
        return [Sum(0, ..., total)]

    def norms(self, images: CovarianceImages) -> list[Sum]:
        """Return what ``images`` add by themselves."""
        core = np.stack([self.core(Y) for Y in images.values])
        return [Sum(1, images.present, images.squares), Sum(2, images.present, core)]
