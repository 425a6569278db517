"""Covariances of which every context knows some features only, and what both masked solvers share.

Context i has the features of a mask ``m_i`` (p,). With ``A_(i) = diag(m_i) A``, the rows of A for these features and
zeros elsewhere, and covariances that are zero where a feature is missing, sums over the features of a context are sums
over all p, so that contexts stay one batch:

    ||S_i - A_(i) B_i A_(i)^T||_F^2 is over the observed entries,   G_i = A_(i)^T A_(i) = A^T diag(m_i) A.

The weight of a feature in an MCPC is determined by contexts that have the feature and in which the MCPC is present. If
there are none, nothing keeps it from growing, with loadings that are next to nothing where it is seen. So the variance
that the model implies for features of contexts that lack them, ``sum_ij b_ij sum_(f not in i) a_fj^2``, is penalised,
as much as a few rows would: an undetermined weight is then 0, and all others hardly change. Without missing features
there is no penalty.

Unlike in a complete problem G_i differs between contexts. ``masked_lsq`` and ``masked_ml`` minimise their objectives
over all of (A, B, noise) by ``_linalg.bounded_newton``; ``masked_start`` finds where to start.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .._utils.types import Array
from .floor import own_floor
from .loadings import solve_loadings

# Added to the blocks of preconditioners, relative to their traces: weights that no context determines have none.
_RIDGE = 1e-9
# Rows whose weight the penalty has. A weight that nothing determines fits the noise of a few covariances, which gains
# some units of log-likelihood: a single row would not outweigh that; many would shrink weights that are determined.
_PENALTY_ROWS = 3.0


@dataclass(frozen=True)
class Masked:
    """Covariances (k, p, p), zero where a feature is missing, the ``mask`` (k, p), and weights (k,) of contexts.

    The weights are those of the squared errors, or the degrees of freedom of a likelihood; ``rows`` is how many rows
    a context has, on average.
    """

    S: Array
    mask: Array
    weights: Array
    rows: float

    @cached_property
    def unseen(self) -> Array:
        """1 where a context lacks a feature, else 0 (k, p)."""
        return (~self.mask).astype(np.float64)

    @cached_property
    def unit(self) -> float:
        """The mean variance of an observed feature."""
        return float(np.einsum("kff->", self.S)) / float(self.mask.sum())

    @property
    def penalty_of_likelihood(self) -> float:
        """What a unit of unobserved variance costs in the log-likelihood: that of a few rows of usual variance."""
        return _PENALTY_ROWS / (2 * self.unit) if self.unit > 0 else 0.0

    @property
    def penalty_of_squares(self) -> float:
        """The same in the squared error, of which n / (4 v^2) is about minus the log-likelihood of n rows."""
        return 2 * _PENALTY_ROWS * self.unit / self.rows

    @property
    def sizes(self) -> Array:
        """Number of features of each context (k,)."""
        return np.asarray(self.mask.sum(axis=1))

    def rows_of(self, A: Array) -> Array:
        """Return ``A_(i)`` (k, p, r)."""
        return np.asarray(self.mask[:, :, None] * A)

    @cached_property
    def patterns(self) -> list[Array]:
        """Groups of contexts (indices) with the same features, which share G_i."""
        _, codes = np.unique(self.mask, axis=0, return_inverse=True)
        codes = codes.ravel()
        return [np.flatnonzero(codes == code) for code in range(codes.max() + 1)]


def masked_loadings(data: Masked, A: Array, *, floor: bool) -> tuple[Array, Array]:
    """Return B (k, r) and the noise (k,), non-negative least squares on the observed entries of each context.

    With ``floor`` beside an isotropic noise; a context with no more features than components leaves no direction in
    which noise could be seen, and has none. One batch for each pattern of features, O(k p^2 r) in all.
    """
    # a_j^T S_i a_j needs no mask: S_i is zero where a feature is missing. The penalty is linear in the loadings.
    along = np.einsum("kfj,fj->kj", data.S @ A, A) - data.penalty_of_squares / 2 * (data.unseen @ A**2)
    traces = np.einsum("kff->k", data.S)
    B = np.empty_like(along)
    noise = np.zeros(len(B))
    for members in data.patterns:
        own = A[data.mask[members[0]]]
        if floor and len(own) > A.shape[1]:
            B[members], noise[members] = own_floor(own, along[members], traces[members])
        else:
            B[members] = solve_loadings((own.T @ own) ** 2, along[members])
    return B, noise


def filled(data: Masked, model: Array) -> Array:
    """Return the stack with the entries that contexts do not have taken from ``model`` (k, p, p)."""
    seen = data.mask[:, :, None] & data.mask[:, None, :]
    return np.where(seen, data.S, model)


def unit_length(A: Array, B: Array) -> tuple[Array, Array]:
    """Return A with unit columns, and B times their squared lengths: ``A B_i A^T`` stays."""
    length = np.linalg.norm(A, axis=0)
    length = np.where(length > 0, length, 1)
    return A / length, B * length**2


def inverses(blocks: Array, free: Array | None = None) -> Array:
    """Invert positive semi-definite blocks (m, r, r) with a small ridge, each among its ``free`` entries (m, r)."""
    r = blocks.shape[-1]
    if free is not None:
        blocks = np.where(free[:, :, None] & free[:, None, :], blocks, 0)
    trace = np.einsum("mjj->m", blocks) / r
    # Blocks that are all zero become the identity: a variable without curvature keeps the size of its gradient.
    ridge = np.where(trace > 0, _RIDGE * trace, 1)
    blocks = blocks + ridge[:, None, None] * np.eye(r)
    if free is not None:
        # Held entries are not in the system: 1 on their diagonal keeps it regular.
        blocks = blocks + np.where(free, 0, np.maximum(trace, 1)[:, None])[:, :, None] * np.eye(r)
    return np.linalg.inv(blocks)
