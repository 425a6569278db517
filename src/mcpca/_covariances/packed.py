"""Symmetric slices ``U^T S_i U`` of many contexts, held as the half that is not known from the other.

Where contexts are combined (``subspace.mix_contexts``), the slices of all of them are made once and kept until the fit
has its loadings. Components that lie in the span of U, ``A = U C``, then need no further product with the covariances:

    A^T S_i A = C^T (U^T S_i U) C,    a_j^T S_i a_j = <U^T S_i U, c_j c_j^T>.

Off-diagonal entries are multiplied by sqrt(2), so that the inner product of two halves is that of the whole matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from .._utils.parallel import over_contexts
from .._utils.types import Array
from .interface import Covariances
from .stack import congruence, each_congruence, over_chunks

_Part = TypeVar("_Part")
# Numbers in the whole slices that are unpacked at a time: 1 MB, several of which a product with them needs.
_UNPACKED_NUMBERS = 2**17


@dataclass(frozen=True)
class PackedSlices:
    """Upper halves (k, q (q + 1) / 2) of the ``U^T S_i U`` over ``unit``, row by row; the largest entry is 1."""

    halves: Array
    q: int
    unit: float

    @classmethod
    def of(cls, S: Covariances, U: Array) -> PackedSlices:
        """Return the slices in the basis U (p, q). Cost O(k p^2 q), memory that of the result and a chunk."""
        q = U.shape[1]
        rows, columns = np.triu_indices(q)
        root = np.where(rows == columns, 1.0, np.sqrt(2))
        # Positions of the upper half in a flattened q x q matrix.
        places = rows * q + columns
        halves = np.empty((S.n_contexts, len(places)))

        def pack(part: slice, slices: Array) -> None:
            upper = np.take(slices.reshape(len(slices), -1), places, axis=1)
            np.multiply(upper, root, out=halves[part])

        values = S.array_or_none()
        if values is None:
            each_congruence(S, U, pack)
        else:
            over_chunks(values, lambda part: pack(part, congruence(values[part], U).transpose(1, 0, 2)))
        # The largest absolute entry by two reductions: ``np.abs`` would be another array of this size. tiny for zeros
        # only.
        unit = max(float(halves.max()), -float(halves.min()), np.finfo(float).tiny)
        halves /= unit  # squares of large numbers would overflow
        return cls(halves, q, unit)

    @cached_property
    def places(self) -> Array:
        """Where each entry of a flattened q x q matrix is in a half (q^2,)."""
        rows, columns = np.triu_indices(self.q)
        places = np.empty((self.q, self.q), dtype=np.intp)
        places[rows, columns] = places[columns, rows] = np.arange(len(rows))
        return places.ravel()

    @cached_property
    def factors(self) -> Array:
        """What entries of a flattened q x q matrix are beside those of a half (q^2,)."""
        factors = np.full((self.q, self.q), self.unit / np.sqrt(2))
        np.fill_diagonal(factors, self.unit)
        return factors.ravel()

    def unpacked(self, halves: Array) -> Array:
        """Return whole matrices (m, q, q), in the unit of the data, for halves (m, q (q + 1) / 2)."""
        whole = np.take(halves, self.places, axis=1)
        whole *= self.factors
        return whole.reshape(-1, self.q, self.q)


@dataclass(frozen=True)
class InCore:
    """The covariances in the span of components ``A = U C``, for ``slices`` in the basis U and C (q, r)."""

    slices: PackedSlices
    C: Array

    def each_congruence(self, call: Callable[[slice, Array], _Part], N: Array) -> list[_Part]:
        """Return ``call(part, N A^T S_i A N)`` for slices of contexts, in threads. Cost O(k q^2 r)."""
        halves = self.slices.halves
        columns = self.C @ N

        def one(part: slice) -> Any:
            slices = self.slices.unpacked(halves[part])
            # Two products for all contexts of the part: (q k', q) by (q, r), and (r k', q) by (q, r).
            images = (columns.T @ slices.reshape(-1, len(columns)).T).reshape(-1, len(columns))
            r = columns.shape[1]
            return call(part, np.ascontiguousarray((images @ columns).reshape(r, -1, r).transpose(1, 0, 2)))

        return over_contexts(one, len(halves), self.slices.q, _UNPACKED_NUMBERS)

    def variances_along(self) -> Array:
        """Return ``a_j^T S_i a_j`` (k, r) in one product. Cost O(k q^2 r)."""
        rows, columns = np.triu_indices(self.slices.q)
        return np.asarray(self.slices.halves @ (self._weights()[:, None] * self.C[rows] * self.C[columns]))

    def inner_products(self, N: Array) -> Array:
        """Return ``<A^T S_i A, N>`` (k,) for symmetric N (r, r)."""
        rows, columns = np.triu_indices(self.slices.q)
        return np.asarray(self.slices.halves @ (self._weights() * (self.C @ N @ self.C.T)[rows, columns]))

    def _weights(self) -> Array:
        """Return what an entry of a half counts in the inner product with a whole matrix (q (q + 1) / 2,)."""
        rows, columns = np.triu_indices(self.slices.q)
        return np.where(rows == columns, self.slices.unit, self.slices.unit * np.sqrt(2))
