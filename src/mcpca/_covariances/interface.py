"""The products that solvers may ask of the covariances of k contexts, wherever they are: in memory, on disk, elsewhere.

A solver never looks at single entries of a covariance. It asks for products, of five kinds: a basis, congruences
``A^T S_i A`` with their diagonals, combinations ``sum_i S_i A W_i``, diagonals and norms, and pooled sums. Each is one
pass over the data. ``CovarianceStack`` has the array itself, on the host or a device; ``StreamedCovariances`` has only
rows. Solvers in ``_solvers`` and ``subspace.compress`` know this protocol and neither class.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from .._utils.types import Array


class Basis(NamedTuple):
    """Top left singular vectors U (p, q) of ``[S_1 ... S_k]`` and their singular values (q,).

    ``residual`` certifies the first r of them: the largest ``||G u - w u||`` of ``G = sum_i S_i S_i``, as a share of
    the r-th eigenvalue of G. It is 0 where they come from a decomposition that is exact up to rounding. ``error`` is
    about their largest error in standard errors, where that was the goal (``sampling_limits``), and None elsewhere.
    """

    # (p, q), orthonormal; singular values (q,) in descending order.
    vectors: Array
    singular_values: Array
    residual: float
    error: float | None = None


class Covariances(Protocol):
    """Covariances ``S_i`` (p, p), i = 1..k, through their products.

    Arguments and results are NumPy arrays in float64, except for ``array_or_none``.
    """

    @property
    def n_contexts(self) -> int:
        """Number of contexts, k."""

    @property
    def n_features(self) -> int:
        """Number of features, p."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision of the data, and so of results."""

    def basis(self, q: int, r: int) -> Basis:
        """Return the top ``q`` left singular vectors of ``[S_1 ... S_k]``, of which ``r`` are certified."""

    # For solvers that are faster with entries at hand; all of them have to work without.
    def array_or_none(self) -> Array | None:
        """Return all entries (k, p, p), in the precision of the data, if they are in NumPy's memory; else None."""

    def whole(self) -> Array:
        """Return all entries (k, p, p); only for few features. It may be the data itself: do not write to it."""

    # An iterator, since callers may reduce each (k', m, m) at once, and need not hold k m^2 numbers.
    def congruences(self, A: Array) -> Iterator[Array]:
        """Yield ``A^T S_i A`` for A (p, m) as (k', m, m), some contexts at a time."""

    # The diagonals of the congruences. Beside ``(A^T A)**2`` they are all that least-squares loadings depend on.
    def variances_along(self, A: Array) -> Array:
        """Return ``a_j^T S_i a_j`` (k, m)."""

    # With W_i = diag(b_i), the part of the gradient of ``sum_i ||S_i - A diag(b_i) A^T||^2`` that depends on the S_i.
    def combine(self, A: Array, weights: Array) -> Array:
        """Return ``sum_i S_i A W_i`` (p, m), ``weights`` being the W_i (k, m, m) or their diagonals (k, m)."""

    def variances(self) -> Array:
        """Return the diagonals of the S_i (k, p)."""

    # The floor of noise needs no more of the diagonals than this, and passes over rows find it on the way.
    def traces(self) -> Array:
        """Return ``tr S_i`` (k,)."""

    def squared_norms(self) -> Array:
        """Return ``||S_i||_F^2`` (k,)."""

    # Without entries the squared norms can only be estimated, from products with random directions.
    def norm_errors(self) -> Array:
        """Return the standard errors of ``squared_norms`` (k,), 0 where those are exact."""

    def pooled(self, weights: Array) -> Array:
        """Return ``sum_i weights_i S_i`` (p, p); only for few features."""

    # ``scaled`` and ``weighted`` return new covariances and leave these as they are: a solver may need both.
    def scaled(self, scale: Array) -> Covariances:
        """Return the covariances of features multiplied by ``scale`` (p,)."""

    def weighted(self, weights: Array) -> Covariances:
        """Return the covariances times ``weights`` (k,)."""


def project(S: Covariances, basis: Array) -> Array:
    """Return ``U^T S_i U`` (k, q, q) for ``basis`` U (p, q)."""
    return np.concatenate(list(S.congruences(basis)))
