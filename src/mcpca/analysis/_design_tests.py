"""Columns of values of contexts in a linear model: effects, intervals, and p by rearranged residuals or the F-test.

The model of a column v (k,), with weights w, blocks of contexts, confounders Z (k, c) and what is tested, X (k, q):

    v_i = block_i + z_i^T gamma + x_i^T beta + e_i,   var e_i = sigma^2 / w_i

Everything is computed after multiplication by sqrt(w). With an orthonormal basis Q of what X adds to blocks and Z, and
the residuals e of v on blocks and Z alone, the share of variance that X explains is r2 = ||Q^T e||^2 / ||e||^2, and
F = (r2 / q) / ((1 - r2) / df). By Freedman and Lane (1983), e is rearranged (``_arrangements``) and F computed anew,
with blocks and Z taken out once more: under the hypothesis beta = 0 all rearrangements are alike, exactly if there are
no confounders and no weights, and closely with them, since F is studentised. r2 grows with F and stands for it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse
from scipy.stats import f as f_distribution
from scipy.stats import t as t_distribution

from .._utils.types import Array
from ._arrangements import Arrangements

_BLOCK_NUMBERS = 2**22  # in a batch of rearrangements of all columns: 32 MB
_EQUAL_UP_TO_ROUNDING = 1e-9  # relative: a rearrangement with the same statistic must count as one as large
_ROUNDING = 1e-12  # of what it was, or of a sum of squares, below which a number is zero
COLLINEAR = 1e-10  # share of the squares of a column that the columns before it must leave


class Partial(NamedTuple):
    """What X explains of each of m columns beside blocks and confounders.

    ``effects``, ``lower`` and ``upper`` (q, m); ``F``, ``r2`` and ``p_values`` (m,), NaN for constant columns.
    """

    effects: Array
    lower: Array
    upper: Array
    F: Array
    r2: Array
    p_values: Array


def partial_tests(
    V: Array,
    X: Array,
    Z: Array,
    ways: Arrangements,
    weights: Array | None,
    rng: np.random.Generator,
    level: float = 0.95,
) -> Partial:
    """Test X (k, q) beside Z (k, c) and the blocks of ``ways`` in the model of each column of V (k, m).

    Parameters
    ----------
    weights : ndarray (k,) or (k, m), or None
        Of contexts, the same for all columns or for each its own.
    ways : Arrangements
        p is the share of these with as large an F, and that of the F distribution if there are none.
    level : float
        Of the intervals, which are those of Student's t.

    Notes
    -----
    Cost O(N k m (q + c)) for N rearrangements.
    """
    if weights is None or weights.ndim == 1:
        return _tests(V, X, Z, ways, weights, rng, level)
    each = [_tests(V[:, [j]], X, Z, ways, weights[:, j], rng, level) for j in range(V.shape[1])]
    return Partial(*(np.concatenate(parts, axis=-1) for parts in zip(*each, strict=True)))


def _tests(
    V: Array, X: Array, Z: Array, ways: Arrangements, w: Array | None, rng: np.random.Generator, level: float
) -> Partial:
    k = len(V)
    root = np.ones(k) if w is None else np.sqrt(w)
    U = _block_basis(ways.blocks, root)
    Qz = _basis(_without(root[:, None] * Z, U), root[:, None] * Z)
    # Qx (k, q), and R with X = Qx R after blocks and confounders.
    Qx, R = np.linalg.qr(_without(_without(root[:, None] * X, U), Qz))
    q = X.shape[1]
    freedom = k - U.shape[1] - Qz.shape[1] - q
    # A second time, as the first leaves rounding of the size of the means, which may be far above the residuals.
    E = _without(_without(_without(root[:, None] * V, U), U), Qz)
    constant = (np.ptp(V, axis=0) == 0) | ((E**2).sum(axis=0) <= _ROUNDING**2 * (V**2).sum(axis=0))
    total = np.where(constant, 1.0, (E**2).sum(axis=0))
    explained = Qx.T @ E
    r2 = np.minimum((explained**2).sum(axis=0) / total, 1)
    r2 = np.where(1 - r2 <= _ROUNDING, 1.0, r2)
    inverse = np.linalg.inv(R)
    effects = inverse @ explained
    errors = np.sqrt((inverse**2).sum(axis=1))[:, None] * np.sqrt(total * (1 - r2) / freedom)
    half = t_distribution.ppf((1 + level) / 2, freedom) * errors
    with np.errstate(divide="ignore"):
        F = (r2 / q) / ((1 - r2) / freedom)
    if ways.n:
        p = _share_as_large(E, r2, total, Qx, Qz, None if _blocks_stay_out(ways, w) else U, ways, rng)
    else:
        p = np.asarray(f_distribution.sf(F, q, freedom))
    blank = np.where(constant, np.nan, 1.0)
    return Partial(
        effects * blank, (effects - half) * blank, (effects + half) * blank, F * blank, r2 * blank, p * blank
    )


def _share_as_large(
    E: Array,
    r2: Array,
    total: Array,
    Qx: Array,
    Qz: Array,
    U: scipy.sparse.csr_array | None,
    ways: Arrangements,
    rng: np.random.Generator,
) -> Array:
    """Return the share of rearrangements of E (k, m) in which X explains as much as ``r2`` (m,)."""
    k, m = E.shape
    bound = r2 * (1 - _EQUAL_UP_TO_ROUNDING)
    n_as_large = np.zeros(m)
    for places, signs in ways.batches(max(1, _BLOCK_NUMBERS // (k * m)), rng):
        # moved (k, N m): one product with a basis for all rearrangements.
        moved = (E[places.T] * signs.T[:, :, None]).reshape(k, -1)
        explained = ((Qx.T @ moved) ** 2).sum(axis=0).reshape(-1, m)
        # Moved residuals are not orthogonal to confounders any more.
        again = ((Qz.T @ moved) ** 2).sum(axis=0).reshape(-1, m)
        if U is not None:
            again = again + ((U.T @ moved) ** 2).sum(axis=0).reshape(-1, m)
        left = total - again
        # Nothing is left of what blocks and confounders explain entirely, and X explains nothing of it.
        share = np.where(left > _ROUNDING * total, explained / np.where(left > 0, left, 1), 0)
        n_as_large += (share >= bound).sum(axis=0)
    # Random ones are not all: the observed order counts as one of them, without which p could be 0.
    return n_as_large / ways.n if ways.exact else (1 + n_as_large) / (1 + ways.n)


def _blocks_stay_out(ways: Arrangements, w: Array | None) -> bool:
    """Whether rearranged residuals still sum to 0 in every block: always without weights, and in pairs."""
    return w is None or bool((np.bincount(ways.blocks) <= 2).all())


def between_contexts(V: Array, Z: Array, blocks: Array, sampling: Array) -> Array:
    """Return the variance (m,) between contexts beyond that of sampling (k, m), of V (k, m) beside blocks and Z.

    With M the projection that takes blocks and Z out, E ||M v||^2 = tau^2 tr M + sum_i M_ii s_i^2 (Hedges' estimator).
    """
    U = _block_basis(blocks, np.ones(len(V)))
    Q = _basis(_without(Z, U), Z)
    kept = 1 - np.asarray((U.multiply(U)).sum(axis=1)).ravel() - (Q**2).sum(axis=1)  # M_ii (k,)
    squares = (_without(_without(V, U), Q) ** 2).sum(axis=0)
    return np.asarray(np.maximum((squares - kept @ sampling) / max(float(kept.sum()), 1e-300), 0))


def _block_basis(blocks: Array, root: Array) -> scipy.sparse.csr_array:
    """Return orthonormal columns (k, n_blocks): ``root`` within each block."""
    norms = np.sqrt(np.bincount(blocks, root**2))
    return scipy.sparse.csr_array((root / norms[blocks], (np.arange(len(blocks)), blocks)))


def _without(M: Array, Q: Array | scipy.sparse.csr_array) -> Array:
    """Return M less its projection on the orthonormal columns of Q."""
    return np.asarray(M - Q @ (Q.T @ M))


def _basis(M: Array, before: Array) -> Array:
    """Return an orthonormal basis of the columns of M, each of which counts alike, whatever its units.

    Columns of which rounding alone is left of what they were ``before`` do not count.
    """
    norms = np.sqrt((M**2).sum(axis=0))
    counts = norms > _ROUNDING * np.sqrt((before**2).sum(axis=0))
    left, values, _ = np.linalg.svd(M[:, counts] / norms[counts], full_matrices=False)
    return np.asarray(left[:, values > np.sqrt(COLLINEAR)])


def within_blocks(M: Array, blocks: Array) -> Array:
    """Return the columns of M (k, m) less their means within blocks."""
    return _without(M, _block_basis(blocks, np.ones(len(M))))
