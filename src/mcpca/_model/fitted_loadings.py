"""Loadings for the components of a solver, with or without noise in them, and what else a fit keeps.

The last step of ``decompose_checked``. Solvers of least squares return components only: their loadings follow by
non-negative least squares, beside a floor of noise if one is asked for (``_solvers.floor``). Without one, loadings are
the paper's and contain the noise of their context; a fit then keeps corrected loadings besides, which is what contexts
are compared by. The pass over the covariances that loadings need also yields the facets and the covariances of the
scores, from which tests of presence are computed later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._covariances.interface import Covariances
from .._covariances.packed import InCore
from .._covariances.subspace import orthonormal
from .._linalg.canonical import canonical_order
from .._solvers import SolverResult
from .._solvers.floor import Floor, floor_with_hidden, outside_is_empty, own_floor, shared_floor
from .._solvers.loadings import solve_loadings
from .._utils.parallel import over_contexts
from .._utils.types import Array
from .._utils.wording import listed
from .facets import Facets, ScoreMoments, complete, score_moments


class Measures(NamedTuple):
    """What an estimator keeps of a fit besides the decomposition; all of it is from one pass over the covariances.

    Attributes
    ----------
    facets : Facets
    corrected_loadings : ndarray (k, r)
        Loadings beside a floor of noise: those of the decomposition if it has noise.
    floor : ndarray
        The noise of the decomposition or, if that has none, the isotropic floor (k,) of the corrected loadings; 0 if
        A spans all features.
    score_covariances : ndarray (k, r, r) or None
        ``W S_i W^T`` with ``W = pinv(A)``, of a fit with noise that features share: the largest array of a model, which
        only tests of presence without rows have a use for.
    rest : ndarray (k,)
        Variance outside the span of A.
    """

    facets: Facets
    corrected_loadings: Array
    floor: Array
    score_covariances: Array | None
    rest: Array


class FittedLoadings(NamedTuple):
    """A and B in canonical order, the noise if there is any, and what else was measured."""

    A: Array
    B: Array
    noise: Array | None
    measures: Measures | None


def loadings_of_fit(
    S: Covariances,
    result: SolverResult,
    kind: str | None,
    freedom: Array,
    names: Sequence[Any] | None,
    with_measures: bool,
    within: InCore | None = None,
) -> FittedLoadings:
    """Fit loadings, unless the solver has its own, beside noise of a ``kind``; bring them to the canonical order.

    ``within`` are the covariances in the span of the components, where they are known from the core.
    """
    A = result.components
    # The likelihood has loadings of its own: without measures no further pass over the covariances is needed.
    if result.loadings is not None and not with_measures:
        A, B, _ = canonical_order(A, result.loadings)
        return FittedLoadings(A, B, result.noise, None)
    # a_j^T S_i a_j (k, r) is the right-hand side of least squares, and the diagonal of the A^T S_i A behind the facets.
    moments = score_moments(S, A, keep=kind in ("isotropic", "pooled"), within=within) if with_measures else None
    if moments is not None:
        along = moments.variances
    else:
        along = S.variances_along(A) if within is None else within.variances_along()
    noise = result.noise
    if result.loadings is not None:
        B = result.loadings
    elif kind is None:
        # <a a^T, b b^T> = (a . b)^2: the Gram matrix of the a_j a_j^T is (r, r), and one for all contexts.
        B = solve_loadings((A.T @ A) ** 2, along)
    else:
        # After ``score_moments``: a pass for those may have found the traces.
        _check_visible(_hidden_noise(S, A, moments, freedom), kind, names)
        B, noise = _floor(S, A, along, kind, freedom)
    if moments is None:
        A, B, _ = canonical_order(A, B)
        return FittedLoadings(A, B, noise, None)
    corrected = B
    floor = noise
    if floor is None:
        hidden = _hidden_noise(S, A, moments, freedom)
        corrected, floor = _corrected(S, A, B, along, hidden, freedom)
    ordered, B, order = canonical_order(A, B)
    signs = np.sign(np.einsum("pj,pj->j", ordered, A[:, order]))
    scores = None if moments.covariances is None else _turned(moments.covariances, order, signs)
    # The other moments are sums over components, and do not depend on their order and signs.
    facets = complete(moments._replace(variances=along[:, order]), ordered, B)
    measures = Measures(facets, corrected[:, order], floor, scores, _outside(S, moments.inside))
    return FittedLoadings(ordered, B, noise, measures)


def _turned(scores: Array, order: Array, signs: Array) -> Array:
    """Return covariances of scores (k, r, r) for components in another order and with other signs."""
    # New and contiguous, as from a file: another layout of memory would round differently later.
    out = np.empty_like(scores)
    rows = order[:, None]
    factors = np.outer(signs, signs)
    over_contexts(lambda part: np.multiply(scores[part][:, rows, order], factors, out=out[part]), *scores.shape[:2])
    return out


def _floor(S: Covariances, A: Array, along: Array, kind: str, freedom: Array) -> Floor:
    """Return loadings beside the noise that was asked for."""
    if kind == "isotropic":
        return own_floor(A, along, S.traces())
    return shared_floor(A, along, S.variances(), kind, freedom)


def _corrected(S: Covariances, A: Array, B: Array, along: Array, hidden: Array, freedom: Array) -> Floor:
    """Return loadings beside an isotropic floor, for a fit without noise, and the floor (k,)."""
    p, r = A.shape
    # No direction is left in which noise could be seen, so nothing can be taken out.
    if r == p or hidden.all():
        return Floor(B, np.zeros(len(B)))
    return floor_with_hidden(A, along, S.traces(), hidden, freedom)


def _outside(S: Covariances, inside: Array) -> Array:
    """Return the variance outside the span of A (k,), from that in it."""
    # Rounding may leave it below zero.
    return np.asarray(np.maximum(S.traces() - inside, 0))


def _hidden_noise(S: Covariances, A: Array, moments: ScoreMoments | None, freedom: Array) -> Array:
    """Return which contexts (k,) have so few rows that they vary only within the span of A, whatever their noise.

    With more rows, a context without variance outside the span has no noise.
    """
    few: Array = np.asarray(freedom <= A.shape[1])
    if not few.any():
        return few
    inside = S.variances_along(orthonormal(A)).sum(axis=1) if moments is None else moments.inside
    return np.asarray(few & outside_is_empty(_outside(S, inside), S.traces()))


def check_outside(r: int, p: int, noise: str | None) -> None:
    """Raise if noise is asked for beside components that span all features."""
    if noise is not None and r == p:
        raise ValueError(
            f"noise={noise!r} needs directions outside the MCPCs in which noise can be seen, but n_components={r} is "
            "the number of features, which leaves none. Lower n_components, or pass noise=None."
        )


def _check_visible(hidden: Array, kind: str | None, names: Sequence[Any] | None) -> None:
    """Raise if there are contexts whose noise cannot be seen, and the noise is theirs alone."""
    # Shared noise is seen in the other contexts.
    if not (hidden.all() if kind in ("pooled", "diagonal") else hidden.any()):
        return
    where = np.flatnonzero(hidden).tolist()
    few = [repr(i if names is None else names[i]) for i in where]
    raise ValueError(
        f"noise={kind!r}: {len(few)} of {len(hidden)} contexts have too few rows for a noise of their own, "
        f"{listed(few)}: they vary only within the span of the MCPCs. Pass noise='pooled', lower n_components, or drop "
        "them."
    )
