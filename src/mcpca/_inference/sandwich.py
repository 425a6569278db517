"""Covariances of estimates that hold whatever the distribution of the rows: Fisher's information around their spread.

The maximum of the Gaussian likelihood depends on covariances only, and so do the values it settles at: they are the
model's whether rows are Gaussian, skewed or heavy-tailed. How much they vary is a matter of fourth moments, and these
are taken from the rows. With ``u = P_i z`` for the noisy scores z of a row of context i, and e its squared length
outside the span of A (``row_scores``), the derivatives of its log-density are

    b_ij: (u_j^2 - P_jj) / 2      log s_i: (s_i u^T N u - s_i tr P_i N + e / s_i - (p - r)) / 2
    X_lj: (u_l u_j - P_lj) b_ij   Z: x_out (B_i u)^T / s_i, with |x_out|^2 = e.

With I_i the information of ``g_i``, the first line, and C_i that between it and X, the efficient score of X is
``g_X - C_i^T I_i^-1 g_i``. Estimates then move with each row of context i, to first order, by

    x:   V g,                           V = inverse information of X, g = efficient score of X,
    b_i: I_i^-1 g_i + (coefficients of x in b_i) x,

and the second by ``coefficients V g`` for rows of other contexts as well. Rows are independent: variances are sums over
rows of squares of these, about their means in each context.

Rows that were sampled in groups are not independent, but groups are. Variances are then sums over groups of squares of
the sums over their rows, also across the contexts that a group is in, times ``g_i / (g_i - 1)`` for g_i groups of
context i.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse

from .._utils.types import Array
from .fisher import Information
from .row_scores import RowScores

# Numbers in the scores of X of some rows, (n', r^2): 8 MB, so that memory does not grow with the number of rows.
_CHUNK_NUMBERS = 2**20


class Spread(NamedTuple):
    """What estimates vary by.

    The covariance of X (r^2, r^2), with pooled noise (r^2 + 1, r^2 + 1); the mean variance (r,) of the columns of A in
    a direction outside its span; and the variances of loadings (k, r), without what the latter adds to them.
    """

    covariance: Array
    outside: Array
    loadings: Array


class Clusters(NamedTuple):
    """Groups of rows: k arrays (n_i,) of their codes, how many there are in all, and their sums outside the span of A.

    ``squares_outside(factors)`` is ``RowReader.squares_outside``.
    """

    codes: Sequence[Array]
    n_groups: int
    squares_outside: Callable[[Sequence[Array]], Array]


Coefficients = Callable[[slice, Array, bool], Array]


def sandwich_of(information: Information, rows: list[RowScores], coefficients_of: Coefficients) -> Spread:
    """Return the variances of the estimates at which ``information`` was taken, from the rows behind them.

    ``coefficients_of(part, responses, pooled)`` are the coefficients of X in the loadings of some contexts, given how
    these respond to it. Cost O(n r^4 + k r^5 + r^6), memory O(r^4).
    """
    model = information.likelihood
    k, r = model.B.shape
    V = information.covariance
    meat = np.zeros_like(V)
    of_outside = np.zeros((r, r))
    own_part = np.empty((k, r))
    for i, row in enumerate(rows):
        part = slice(i, i + 1)
        responses = information.responses(part)
        through_X = V @ coefficients_of(part, responses, information.pooled)[0].T  # (r^2, r)
        n = len(row.scores)
        offsets = np.broadcast_to(row.offsets, n)
        sums = [np.zeros(len(V)), np.zeros(r), np.zeros(r)]
        squares = np.zeros_like(V)
        own_squares = np.zeros(r)
        for chunk in _chunks(n, len(V)):
            U = row.scores[chunk] @ model.P[i]
            outside = row.outside[chunk]
            of_context, of_X = row_derivatives(information, i, U, outside, row.gain, offsets[chunk])
            efficient = of_X - of_context @ responses[0]
            own = (of_context @ information.inverse[i])[:, :r]
            shared = efficient @ through_X
            squares += efficient.T @ efficient
            # (own + shared)^2 - shared^2: the last is part of what X contributes for all rows together, below.
            own_squares += (own * (own + 2 * shared)).sum(axis=0)
            for total, values in zip(sums, (efficient, own, shared), strict=True):
                total += values.sum(axis=0)
            if model.outside:
                weighted = U * model.B[i]
                of_outside += row.gain**2 * (weighted * (outside / model.s[i] ** 2)[:, None]).T @ weighted
        efficient_sum, own_sum, shared_sum = sums
        # About the mean in the context, and by n - 1, as for any variance.
        correction = n / (n - 1)
        meat += correction * (squares - np.outer(efficient_sum, efficient_sum) / n)
        own_part[i] = correction * (own_squares - own_sum * (own_sum + 2 * shared_sum) / n)
    return _spread(information, meat, of_outside, own_part, coefficients_of)


def cluster_sandwich_of(
    information: Information, rows: list[RowScores], clusters: Clusters, coefficients_of: Coefficients
) -> Spread:
    """Return the same for rows in groups. Cost as ``sandwich_of``, memory O(g r^2 + r^4) for g groups."""
    model = information.likelihood
    k, r = model.B.shape
    V = information.covariance
    efficient_sums = np.zeros((clusters.n_groups, len(V)))
    own_sums = []
    members = []
    factors = []
    for i, row in enumerate(rows):
        part = slice(i, i + 1)
        responses = information.responses(part)
        n = len(row.scores)
        offsets = np.broadcast_to(row.offsets, n)
        present, local = np.unique(clusters.codes[i], return_inverse=True)
        g = len(present)
        # (g, n), 1 where a row is in a group: a product with it sums rows by group.
        indicator = scipy.sparse.csr_array((np.ones(n), (local, np.arange(n))), shape=(g, n)).tocsc()
        efficient = np.zeros((g, len(V)))
        own = np.zeros((g, r))
        for chunk in _chunks(n, len(V)):
            U = row.scores[chunk] @ model.P[i]
            of_context, of_X = row_derivatives(information, i, U, row.outside[chunk], row.gain, offsets[chunk])
            efficient += indicator[:, chunk] @ (of_X - of_context @ responses[0])
            own += indicator[:, chunk] @ (of_context @ information.inverse[i])[:, :r]
        # About the means in the context, of which a group has its share of rows.
        share = (np.bincount(local) / n)[:, None]
        correction = np.sqrt(g / (g - 1))
        efficient = correction * (efficient - share * efficient.sum(axis=0))
        efficient_sums[present] += efficient
        own_sums.append(correction * (own - share * own.sum(axis=0)))
        members.append(present)
        roots = np.broadcast_to(row.roots, n)[:, None]
        factors.append(correction * row.gain * roots * (row.scores @ model.P[i]) * model.B[i] / model.s[i])
    own_part = np.empty((k, r))
    for i, own in enumerate(own_sums):
        part = slice(i, i + 1)
        through_X = V @ coefficients_of(part, information.responses(part), information.pooled)[0].T
        shared = efficient_sums[members[i]] @ through_X
        own_part[i] = (own * (own + 2 * shared)).sum(axis=0)
    of_outside = clusters.squares_outside(factors) if model.outside else np.zeros((r, r))
    return _spread(information, efficient_sums.T @ efficient_sums, of_outside, own_part, coefficients_of)


def _spread(
    information: Information, meat: Array, of_outside: Array, own_part: Array, coefficients_of: Coefficients
) -> Spread:
    """Return variances from sums of squares: of efficient scores, of those outside the span, and of contexts' own."""
    model = information.likelihood
    k, r = model.B.shape
    V = information.covariance
    covariance = V @ meat @ V
    loadings = np.empty((k, r))
    for i in range(k):
        part = slice(i, i + 1)
        coefficients = coefficients_of(part, information.responses(part), information.pooled)[0]
        loadings[i] = own_part[i] + np.einsum("jx,jx->j", coefficients @ covariance, coefficients)
    K = information.outside
    return Spread(covariance, np.diag(K @ of_outside @ K) / max(model.outside, 1), loadings)


def row_derivatives(
    information: Information, i: int, U: Array, outside: Array, gain: float, offsets: Array
) -> tuple[Array, Array]:
    """Return the derivatives of the log-density of rows of context i, by the context's unknowns and by X.

    ``U`` (n, r) holds ``P_i z``, ``outside`` (n,) squared lengths, ``gain`` and ``offsets`` (n,) are those of
    ``RowScores``. The unknowns of a context are (b_i, log s_i), or b_i without noise of its own; with pooled noise
    log s is the last of X, (n, r^2 + 1).
    """
    model = information.likelihood
    r = model.B.shape[1]
    s = model.s[i]
    # u u^T - P (n, r, r), in terms of gain and offset.
    products = gain * U[:, :, None] * U[:, None, :] + offsets[:, None, None] * model.P[i]
    of_loadings = np.einsum("njj->nj", products) / 2
    of_X = (products * model.B[i]).reshape(len(U), r * r)
    if information.without_noise and not information.pooled:
        return of_loadings, of_X
    of_noise = s * np.einsum("nab,ab->n", products, model.N) / 2
    if model.outside:
        of_noise += (gain * outside / s + offsets * model.outside) / 2
    if information.pooled:
        return of_loadings, np.column_stack([of_X, of_noise])
    return np.column_stack([of_loadings, of_noise]), of_X


def _chunks(n: int, width: int) -> list[slice]:
    step = max(1, _CHUNK_NUMBERS // width)
    return [slice(start, start + step) for start in range(0, n, step)]
