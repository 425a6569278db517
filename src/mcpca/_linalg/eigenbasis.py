"""Top eigenvectors of ``G = sum_i S_i S_i`` from few products ``G V``, each of which may be a pass over a large file.

Block Lanczos with everything kept: V holds all blocks so far, ``G V`` is known, and the Ritz vectors of V are the best
that can be said from these passes. Their residuals ``G u - w u`` are known without another pass: by Weyl and Davis and
Kahan an eigenvalue of G is within ``||residual||`` of w, and u within ``||residual|| / gap`` of an eigenvector. All
residuals lie in the next block of Lanczos; of that only those are multiplied that are not small yet, so that blocks get
narrower on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .._utils.types import Array

SPARE = 10
_BLOCKS = 8  # after as many V starts again from its Ritz vectors, whose products are known
_NO_BETTER, _PATIENCE = 0.5, 8  # a residual that so many products have not brought down to this share of itself
_NEAR = 1e4
_SMALL = 0.7  # of the goal: residuals below it wait
_LANES = 4  # columns that processors multiply at a time: 32 of them take less than 30


class Eigenbasis(NamedTuple):
    """Ritz values (q,) and vectors (p, q), largest first, the certificate, and the number of products."""

    values: Array
    vectors: Array
    residual: float
    n_products: int


def top_eigenvectors(
    times: Callable[[Array], Array], start: Array, q: int, r: int, *, tol: float, eps: float, most: int
) -> Eigenbasis:
    """Return the top ``q`` eigenvectors of the positive semi-definite G in ``times``.

    Parameters
    ----------
    times : function of an orthonormal (p, s) block that returns ``G`` times it
    start : ndarray (p, s)
        Any block, the closer to the answer the better.
    q, r : int
        Directions wanted, and how many of them are certified. Those between r and q are what the blocks hold of the
        next eigenvectors.
    tol, eps : float
        Stop when the first r residuals are below ``tol`` times eigenvalue r, or below ``8 eps`` times the first: eps is
        the precision of the products. Also when eight products in a row brought little.
    most : int
        Products at most.

    Notes
    -----
    Memory O(p s min(products, 8)).
    """
    block, V, GV = np.linalg.qr(start)[0], np.empty((len(start), 0)), np.empty((len(start), 0))
    width, history = start.shape[1], [np.inf]
    for n_products in range(1, most + 1):
        V, GV = np.hstack([V, block]), np.hstack([GV, times(block)])
        H = V.T @ GV
        w, Y = np.linalg.eigh((H + H.T) / 2)
        w, Y = np.maximum(w[::-1], 0), Y[:, ::-1]
        few, shown, enough = min(r, len(w)), min(_in_lanes(q), len(w)), len(w) >= min(q, len(V))
        residuals = GV @ Y[:, :shown] - (V @ Y[:, :shown]) * w[:shown]
        sizes = np.linalg.norm(residuals, axis=0)
        left, goal = sizes[:few].max(), max(tol * w[few - 1], 8 * eps * w[0])
        if enough and left <= goal:
            break
        history.append(left)
        # Near the precision of the products a residual that stays will not get better.
        patience = _PATIENCE if left > _NEAR * eps * w[0] else 2
        if enough and left > _NO_BETTER * history[max(0, n_products - patience)]:
            break
        order = np.lexsort((-sizes, np.arange(shown) >= few))
        wanted = order[: min(_in_lanes((sizes > _SMALL * goal).sum()), width)]
        block = _outside(V, residuals[:, wanted], eps * w[0])
        if not block.shape[1]:  # V holds all that G reaches from the start
            break
        if V.shape[1] + width > _BLOCKS * width and n_products < most:
            keep = min(len(w), max(q, 2 * width))
            V, GV = V @ Y[:, :keep], GV @ Y[:, :keep]
    residual = float(left / w[few - 1]) if w[few - 1] > 0 else 0.0
    return Eigenbasis(w[:q], V @ np.ascontiguousarray(Y[:, :q]), residual, n_products)


def _in_lanes(n: int) -> int:
    return -(-n // _LANES) * _LANES


def _outside(V: Array, block: Array, least: float) -> Array:
    """Return an orthonormal basis of what ``block`` has outside the span of V, without what is rounding only."""
    block = block - V @ (V.T @ block)
    Q, size, _ = np.linalg.svd(block, full_matrices=False)
    Q = Q[:, size > 8 * least]
    Q = Q - V @ (V.T @ Q)  # twice is enough: what is outside V stays as long as it was, rounding does not
    Q = Q[:, np.linalg.norm(Q, axis=0) > 0.9]
    return np.ascontiguousarray(np.linalg.qr(Q)[0])
