"""Top eigenvectors of ``G = sum_i S_i S_i`` from few products ``G V``, each of which may be a pass over a large file.

``StreamedCovariances.basis`` calls it, and hands the vectors on as the basis that compresses the covariances.

Block Lanczos that keeps all blocks: V holds them side by side, ``G V`` is known, and the Ritz vectors of V are the best
approximation that these products allow. Their residuals ``G u - w u`` are known without another product. They are the
certificate: by Weyl's inequality an eigenvalue of G is within ``||residual||`` of w, and by Davis and Kahan u is within
``||residual|| / gap`` of an eigenvector. They also span the next Lanczos block, of which only those columns are
multiplied whose residuals are not small yet, so that blocks get narrower on the way. ``G u`` itself is known as well,
and closer to the answer than u: where that is close enough no further product is made.

Where products are cheap, since G is a matrix in memory, ``_covariances.flattening.subspace_iteration`` is faster: it
needs more products and no orthogonalisation against all blocks. The two agree on the certified directions only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from .._utils.types import Array

# Columns of a block beyond the r that are certified. They hold the next eigenvectors, so that convergence depends on
# eigenvalue r + SPARE over eigenvalue r: more of them save products and make each one dearer.
SPARE = 10
# V starts again from its Ritz vectors, whose products are known, when it has so many times the columns of a block.
# Memory is that of twice as many blocks, V and G V; a restart forgets part of the Krylov space, so it costs products.
_BLOCKS = 8
# Give up when so many products have not brought the residual down to this share of itself.
_NO_BETTER = 0.5
_PATIENCE = 8
# Within this factor of the rounding of the products, patience is for two of them only.
_NEAR_ROUNDING = 1e4
# Residuals below this share of the goal are small enough, and are not multiplied for the time being.
_SETTLED_SHARE = 0.7
# Relative residual that is asked of a direction which nothing determines: it settles the eigenvalue.
_SETTLES_VALUE = 0.1
_LANES = 4  # columns that processors multiply at a time: 32 of them take less than 30


class Goal(Protocol):
    """Says how far Ritz vectors are from what is asked of them; see ``top_eigenvectors``."""

    def __call__(self, values: Array, U: Array, residuals: Array, *, all_moved: bool) -> Array | None:
        """Return errors (r,) as multiples of what is allowed."""


class Eigenbasis(NamedTuple):
    """Ritz values (q,) and vectors (p, q), largest first, the certificate, and the number of products.

    ``residual`` is the largest residual of the first r vectors, as a share of the r-th value; ``excess`` the largest as
    a multiple of what was asked of it. Vectors that were multiplied by G once more have estimates of both.
    """

    values: Array
    vectors: Array
    residual: float
    n_products: int
    excess: float


def top_eigenvectors(
    times: Callable[[Array], Array],
    start: Array,
    q: int,
    r: int,
    *,
    tol: float,
    goal: Goal | None = None,
    shrink: Callable[[Array, int], Array] | None = None,
    eps: float,
    most: int,
) -> Eigenbasis:
    """Return the top ``q`` eigenvectors of the positive semi-definite G in ``times``.

    Parameters
    ----------
    times : function of an orthonormal (p, s) block that returns ``G`` times it
    start : ndarray (p, s)
        Any block; the closer to the answer, the fewer products.
    q, r : int
        Directions wanted, and how many of them are certified. Those between r and q are what the blocks hold of the
        next eigenvectors.
    tol : float
        Stop when the first r residuals are below ``tol`` times eigenvalue r. Also stop when eight products in a row
        have hardly improved them.
    goal : function, optional
        It is called after each product with the largest Ritz values (m,), their vectors (p, m), of which r + SPARE are
        wanted and there may be fewer, and the lengths (r,) of the first r residuals. It may return errors (r,) as
        multiples of what is allowed: stop when they are at most 1 as well. NaN stands for directions that nothing
        determines, of which a residual of a tenth of their eigenvalue is asked; None says that it cannot tell.
        ``all_moved`` says whether the product was of the residuals of all directions beyond what is allowed.
    shrink : function, optional
        ``shrink(values, r)`` returns factors (r,) by which errors shrink if vectors are multiplied by G once more,
        which takes no product, since that of the Ritz vectors is known. Where that is all that is needed, it is done.
        The vectors are then outside the span of the blocks.
    eps : float
        The precision of the products: residuals below ``8 eps`` times the first eigenvalue are small whatever ``tol``.
    most : int
        Products at most.

    Notes
    -----
    Memory O(p s min(products, 8)).
    """
    # V, GV (p, m) grow by a block a product; w (m,), Y (m, m); residuals (p, n_watched).
    p, width = start.shape
    block = np.linalg.qr(start)[0]
    V = np.empty((p, 0))
    GV = np.empty((p, 0))
    tiny = np.finfo(float).tiny
    history = [np.inf]  # the excess after each product
    all_moved = True
    for n_products in range(1, most + 1):
        V = np.hstack([V, block])
        GV = np.hstack([GV, times(block)])
        # Rayleigh and Ritz on the span of V: G u - w u needs no product, since G V is known.
        H = V.T @ GV
        # Symmetric but for the rounding of the products, which may be that of float32 rows.
        ascending, Y = np.linalg.eigh((H + H.T) / 2)
        w = np.maximum(ascending[::-1], 0)
        Y = Y[:, ::-1]
        n_certified = min(r, len(w))
        n_watched = min(_in_lanes(q), len(w))
        # A narrow start may be certified before V has the q directions that are wanted: then go on.
        is_wide_enough = len(w) >= min(q, p)
        residuals = GV @ Y[:, :n_watched] - (V @ Y[:, :n_watched]) * w[:n_watched]
        sizes = np.linalg.norm(residuals, axis=0)
        excesses = sizes / max(tol * w[n_certified - 1], 8 * eps * w[0], tiny)
        shrunk = np.ones(n_certified)
        if goal is not None and n_certified == r:
            told = goal(w[: r + SPARE], V @ Y[:, : r + SPARE], sizes[:r], all_moved=all_moved)
            if told is not None:
                told = np.where(np.isnan(told), sizes[:r] / np.maximum(_SETTLES_VALUE * w[:r], tiny), told)
                # Residuals may show that a direction is exact where the goal is more cautious. Those beyond r are
                # watched, and nothing is asked of them.
                excesses = np.concatenate([np.minimum(excesses[:r], told), np.zeros(n_watched - r)])
                shrunk = np.minimum(shrunk if shrink is None else shrink(w[: r + SPARE], r), 1.0)
        excess = excesses[:n_certified].max()
        if is_wide_enough and excess <= 1:
            break
        # After one more multiplication by G, which takes no product, since that of the Ritz vectors is known.
        later = excesses[:n_certified] * shrunk
        if is_wide_enough and later.max() <= 1:
            break
        history.append(later.max())
        # Near the precision of the products a residual that stays will not get better.
        patience = _PATIENCE if sizes[:n_certified].max() > _NEAR_ROUNDING * eps * w[0] else 2
        if is_wide_enough and later.max() > _NO_BETTER * history[max(0, n_products - patience)]:
            break
        # The next block: large residuals of certified directions first, then those of the others.
        order = np.lexsort((-sizes, np.arange(n_watched) >= n_certified))
        # What one more multiplication settles is left to that.
        over = excesses > _SETTLED_SHARE
        left = np.flatnonzero(later > _SETTLED_SHARE)
        all_moved = not 0 < len(left) < over[:n_certified].sum()
        n_columns = min(_in_lanes(over.sum() if all_moved else len(left)), width)
        order = order if all_moved else np.concatenate([left, order[~np.isin(order, left)]])
        block = _outside(V, residuals[:, order[:n_columns]], eps * w[0])
        if not block.shape[1]:  # V holds all that G reaches from the start
            break
        if V.shape[1] + width > _BLOCKS * width and n_products < most:
            # A thick restart: with more than q Ritz vectors the directions beyond q are not lost.
            # G (V Y) = (G V) Y, so no product is needed. The next block is orthogonal to all of V, and so to what is
            # kept. Not after the last product: V and Y have to belong together below.
            keep = min(len(w), max(q, 2 * width))
            V = V @ Y[:, :keep]
            GV = GV @ Y[:, :keep]
    vectors = V @ np.ascontiguousarray(Y[:, :q])
    if excess > 1 and shrunk.min() < 1:
        # u + (G u - w u) / w is G u / w. A direction that G takes to 0 stays as it is.
        scale = np.divide(1, w[:q], out=np.zeros(len(w[:q])), where=w[:q] > 8 * eps * w[0])
        vectors = np.linalg.qr(vectors + residuals[:, :q] * scale)[0]
        sizes = sizes[:n_certified] * shrunk
        excess = later.max()
    # Where the rank of G is below r, eigenvalue r is 0 and no share of it can be taken.
    worst = sizes[:n_certified].max()
    residual = float(worst / w[n_certified - 1]) if w[n_certified - 1] > 0 else 0.0
    return Eigenbasis(w[:q], vectors, residual, n_products, float(excess))


def _in_lanes(n: int) -> int:
    """Round ``n`` up to a number of columns that processors multiply at once."""
    return -(-n // _LANES) * _LANES


def _outside(V: Array, block: Array, rounding: float) -> Array:
    """Return an orthonormal basis of what ``block`` has outside the span of V, without what is rounding only."""
    # Residuals of Ritz vectors are orthogonal to V in exact arithmetic. Rounding is all that they have along V, but
    # near convergence that is a large part of them.
    block = block - V @ (V.T @ block)
    Q, size, _ = np.linalg.svd(block, full_matrices=False)
    Q = Q[:, size > 8 * rounding]
    # Twice is enough (Kahan and Parlett): a direction outside V keeps its length, one that was rounding loses it.
    Q = Q - V @ (V.T @ Q)
    Q = Q[:, np.linalg.norm(Q, axis=0) > 0.9]
    return np.ascontiguousarray(np.linalg.qr(Q)[0])
