"""Orthonormal bases of the nuisance of contexts: of their strata and covariates, beside the constant.

``nuisance`` says what they are for. What a fit needs of a basis, ``ContextBasis``, does not grow with the rows, and
comes from rows or from their moments (``nuisance_moments``); ``RowBasis`` has the basis itself, an entry for each row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from .._data.row_designs import NuisanceDesign
from .._utils.types import Array

# Directions of the covariates below this share of the largest, each covariate scaled to its own size, are collinear.
_COLLINEAR = 1e-9
# The same for squares, which are all that sums of products have: rounding leaves this times c of those that vanish.
COLLINEAR_SQUARES = 1e-13
# A covariate varies within strata if what is left of it is above this share of its size: less is rounding.
_CONSTANT = 1e-12


@dataclass(frozen=True)
class ContextBasis:
    """What a fit needs of the basis of one context's nuisance.

    ``strata`` (S,) present, as positions among the levels, with ``counts`` (S,) of rows and ``centres`` (S, c), the
    means of the covariates; ``T`` (c, d), by which covariates less their centres become orthonormal columns.
    """

    strata: Array
    counts: Array
    centres: Array
    T: Array

    @property
    def rank(self) -> int:
        """Degrees of freedom that the nuisance takes beside the mean."""
        return len(self.strata) - 1 + int(self.T.shape[1])

    @property
    def n_factors(self) -> int:
        """Rows of F: none for a single stratum, which the mean stands for."""
        return (len(self.strata) if len(self.strata) > 1 else 0) + int(self.T.shape[1])


@dataclass(frozen=True)
class RowBasis(ContextBasis):
    """The basis with its rows.

    ``cells`` (n,), the position of each row's stratum among ``strata``; ``directions`` (n, d), the orthonormal columns.
    """

    cells: Array
    directions: Array

    def columns(self) -> Any:
        """Return the basis as a sparse matrix (n, n_factors); strata are not yet orthogonal to the constant."""
        parts = []
        n = len(self.cells)
        if len(self.strata) > 1:
            heights = 1 / np.sqrt(self.counts)
            places = np.arange(n), self.cells
            parts.append(scipy.sparse.csr_array((heights[self.cells], places), shape=(n, len(self.strata))))
        if self.T.shape[1]:
            parts.append(scipy.sparse.csr_array(self.directions))
        if not parts:
            return scipy.sparse.csr_array((n, 0))
        return scipy.sparse.csr_array(scipy.sparse.hstack(parts, format="csr"))

    def products(self, rows: Array) -> Array:
        """Return the products (d, m) of dense rows with an orthonormal basis of constant, strata and covariates."""
        n = len(self.cells)
        indicator = scipy.sparse.csr_array((np.ones(n), (self.cells, np.arange(n))), shape=(len(self.strata), n))
        return np.vstack([(indicator @ rows) / np.sqrt(self.counts)[:, None], self.directions.T @ rows])

    def residual(self, rows: Array) -> Array:
        """Return dense rows (n, m) of the context less their means by stratum and what covariates explain."""
        products = self.products(rows)
        S = len(self.strata)
        means = products[:S] / np.sqrt(self.counts)[:, None]
        return np.asarray(rows - means[self.cells] - self.directions @ products[S:])


def context_basis(strata: Array, numbers: Array) -> RowBasis:
    """Return the basis for rows in ``strata`` (n,) with covariates ``numbers`` (n, c). Cost O(n c^2)."""
    present, cells, counts = np.unique(strata, return_inverse=True, return_counts=True)
    c = numbers.shape[1]
    centres = np.zeros((len(present), c))
    np.add.at(centres, cells, numbers)
    centres /= counts[:, None]
    Z = numbers - centres[cells]
    norms = np.linalg.norm(Z, axis=0)
    varies = varying(norms, len(cells), np.abs(numbers).max(axis=0, initial=0))
    scaled = Z[:, varies] / norms[varies]
    U, s, Vt = np.linalg.svd(scaled, full_matrices=False)
    kept = s > _COLLINEAR * max(s.max(initial=0), np.finfo(float).tiny)
    T = np.zeros((c, int(kept.sum())))
    T[varies] = (Vt[kept].T / s[kept]) / norms[varies][:, None]
    return RowBasis(present, counts, centres, T, cells, U[:, kept])


def context_bases(design: NuisanceDesign) -> list[RowBasis]:
    """Return the bases of all contexts. Cost O(n c^2)."""
    return [context_basis(s, z) for s, z in zip(design.strata, design.numbers, strict=True)]


def varying(norms: Array, n: int, sizes: Array) -> Array:
    """Return which covariates (c,) vary within strata, by the norms of what is left of them in n rows.

    Less than the rounding of a mean, for values as large as ``sizes``, is that of a constant.
    """
    return np.asarray(norms > _CONSTANT * np.sqrt(n) * sizes)


def orthonormalising(normal: Array, n: int, sizes: Array) -> Array:
    """Return T (c, d) from ``Z^T Z`` (c, c) of n rows: ``(Z T)^T (Z T) = I``, and Z T spans what Z does.

    Products have squares of singular values, so that directions count as collinear from 3e-7 of the largest on, where
    rows would tell them apart down to 1e-9.
    """
    norms = np.sqrt(np.diag(normal))
    varies = varying(norms, n, sizes)
    values, V = np.linalg.eigh(normal[np.ix_(varies, varies)] / np.outer(norms[varies], norms[varies]))
    kept = values > COLLINEAR_SQUARES * len(values) * values.max(initial=0)
    T = np.zeros((len(normal), int(kept.sum())))
    T[varies] = V[:, kept] / np.sqrt(values[kept]) / norms[varies][:, None]
    return T
