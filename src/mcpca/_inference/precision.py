"""How sure: Fisher's information of the Gaussian model, the Cramer-Rao bound, standard errors.

The unknowns are X (the change of A in its span, ``dA = A X``, zero on the diagonal), b_i, log s_i, and the change of A
outside its span, which is apart from the others (``likelihood`` has the equations). With ``P_i`` the precision of
noisy scores, the information of X is

    I[lj, l'j'] = sum_i n_i b_ij b_ij' (P_i[l, l'] P_i[j, j'] + P_i[l, j'] P_i[l', j]),

of which what the loadings and the noise of each context take is subtracted (Schur's complement). Columns of A have unit
length: ``db_ij`` then gains ``2 b_ij a_j . da_j``, and ``da_j`` loses its part along ``a_j``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import norm

from .._covariances.validation import check_counts
from .._model.fitted_model import FittedModel
from .._model.gaussian import GaussianModel
from .._model.identifiability import indistinct_loadings
from .._solvers.likelihood import Likelihood
from .._utils.arguments import check_real
from .._utils.array_api import to_host
from .._utils.component_names import mcpc_name
from .._utils.printing import Shown, counted, extremes, mcpcs, span
from .._utils.types import Array

_CLEAR = 0.4  # standard errors below this share of a loading make it clearly positive
_CHUNK = 2**21  # numbers in a temporary: 16 MB


@dataclass(frozen=True, repr=False)
class Precision(Shown):
    """Standard errors, of an estimate or the least that any unbiased one can have.

    Attributes
    ----------
    angles : ndarray (r,)
        Root mean square angle, in degrees, between each MCPC and the truth.
    loadings : ndarray (k, r)
        Standard error of each loading, of unit MCPCs. Where the loading is 0 it is what it would be without ``b >= 0``.
    ascore_loss : float
        Expected ``1 - Ascore``: the mean over MCPCs of half the squared angle (in radians).
    n_samples : ndarray (k,)
        Samples per context.
    """

    angles: Array
    loadings: Array
    ascore_loss: float
    n_samples: Array

    def times_power(self, e: int) -> Precision:
        """Return the standard errors for data times ``2^e``."""
        return replace(self, loadings=np.ldexp(self.loadings, 2 * e))

    def intervals(self, loadings: Any, confidence: float = 0.95) -> tuple[Array, Array]:
        """Return the ends (k, r) of intervals for the given loadings, those that the standard errors belong to.

        Loadings are variances: intervals are symmetric in their logarithms where they are clearly above 0, and cut
        off at 0 elsewhere.
        """
        return loading_intervals(np.asarray(loadings, dtype=np.float64), self.loadings, confidence)

    def samples_for(self, degrees: float) -> Array:
        """Return how many samples per context bring each MCPC within ``degrees`` (r,), as root mean square angle.

        Angles fall with the root of the sample size, all contexts growing alike; given is the mean over contexts.
        """
        if not degrees > 0:
            raise ValueError(f"degrees={degrees!r} must be a positive angle.")
        return np.asarray(np.ceil(self.n_samples.mean() * (self.angles / degrees) ** 2).astype(np.int64))

    def _words(self) -> list[str]:
        k, r = self.loadings.shape
        return [
            f"{counted(r, 'MCPC')} of {counted(k, 'context')} with {span(self.n_samples, ',.0f')} samples each are "
            f"expected {extremes(self.angles)} degrees from the truth (root mean square angle).",
            f"Expected 1 - Ascore: {self.ascore_loss:.2g}. Standard errors of loadings: {span(self.loadings)}.",
        ]

    def _rows(self) -> dict[str, Any]:
        errors = self.loadings
        return {"": mcpcs(len(self.angles)), "degrees from the truth": self.angles} | {
            "least standard error of a loading": errors.min(axis=0),
            "largest": errors.max(axis=0),
        }


def loading_intervals(B: Array, errors: Array, confidence: float) -> tuple[Array, Array]:
    """Return ``B exp(-+ z se / B)`` where the error is small beside B, ``B -+ z se`` cut off at 0 elsewhere."""
    z = norm.ppf((1 + check_real(confidence, "confidence", 0.5, 0.9999, "It is a probability, such as 0.95.")) / 2)
    relative = np.divide(errors, B, out=np.full_like(B, np.inf), where=B > 0)
    clear = relative < _CLEAR
    factor = np.exp(z * np.where(clear, relative, 0))
    lower = np.where(clear, B / factor, np.maximum(B - z * errors, 0))
    return lower, np.where(clear, B * factor, B + z * errors)


def cramer_rao_bound(A: Any, B: Any, noise: Any, n: Any, *, diagonal: bool = False) -> Precision:
    """Return the accuracy that no unbiased estimate can surpass; ``solver="ml"`` comes close to it.

    A sample-size calculator for a planned study: guess A and B (from a pilot fit, or from ``make_contexts``), and ask
    ``cramer_rao_bound(A, B, noise, n).samples_for(5)[2]`` for the samples per context that MCPC 3 needs to be within 5
    degrees.

    Parameters
    ----------
    A : array-like (p, r)
        Linearly independent columns, taken to unit length (B is of unit columns).
    B : array-like (k, r)
        Loadings >= 0; no two columns proportional.
    noise : float or array-like (k,)
        Noise variance, of all contexts or of each; with ``diagonal=True`` (p,), of each feature.
    n : int or array-like (k,)
        Samples per context, >= 2.
    diagonal : bool
        Whether ``noise`` goes by feature. It is then taken as known.

    Returns
    -------
    Precision

    Notes
    -----
    Cost O(k r^5 + r^6), memory O(r^4): half a second at r = 30, k = 30; a minute at r = 60, k = 50.
    """
    A, B = np.asarray(to_host(A), dtype=np.float64), np.asarray(to_host(B), dtype=np.float64)
    if A.ndim != 2 or B.ndim != 2 or A.shape[1] != B.shape[1] or not A.shape[1] <= A.shape[0]:
        raise ValueError(f"A {A.shape} and B {B.shape} do not fit: (p, r) and (k, r) with r <= p are needed.")
    if not (np.isfinite(A).all() and np.isfinite(B).all() and (B >= 0).all()):
        raise ValueError("A and B must be finite, and B non-negative.")
    norms = np.linalg.norm(A, axis=0)
    if np.linalg.matrix_rank(A) < A.shape[1]:
        raise ValueError("The columns of A are linearly dependent; no sample size could tell them apart.")
    counts = check_counts(n, len(B))
    length = len(A) if diagonal else len(B)
    variances = np.asarray(noise, dtype=np.float64)
    variances = np.full(length, variances) if variances.ndim == 0 else variances
    if variances.shape != (length,) or not np.isfinite(variances).all() or not (variances > 0).all():
        raise ValueError(
            f"noise={noise!r}: a positive variance is needed, one number or {length} (one per "
            f"{'feature' if diagonal else 'context'}). Without noise the bound is 0 or not defined; pass a small one."
        )
    return precision_of(GaussianModel(A / norms, B, variances, diagonal), counts, pooled=False)


def standard_errors_of(model: FittedModel) -> Precision:
    """Return the standard errors of a fitted model; see ``MCPCA.standard_errors``."""
    gaussian = model.gaussian("standard_errors()")
    counts = model.counts("standard_errors()")
    e = gaussian.exponent
    scaled = gaussian.times_power(-e)  # the information has fourth powers of the data in it
    precision = precision_of(scaled, counts, pooled=model.noise == "pooled", orthogonal=model.orthogonal)
    return precision.times_power(e)


def precision_of(model: GaussianModel, counts: Array, *, pooled: bool, orthogonal: bool = False) -> Precision:
    """Return the standard errors of an efficient estimate of ``model``; of orthonormal columns when they had to be."""
    k, r = model.B.shape
    white = model.white
    G = white.T @ white
    expected = np.zeros((k, r, r))  # the information does not depend on the data
    beside = Likelihood(G, model.B, model.s, expected, np.zeros(k), counts - 1.0, len(white) - r)
    blocks = beside.context_information()
    known = model.diagonal or pooled
    if known:
        blocks = blocks[:, :r, :r]
    try:
        inverse = np.linalg.inv(blocks)
        covariance = (
            _covariance_of_rotations(beside, inverse, pooled)
            if orthogonal
            else _covariance_of_X(beside, inverse, known, pooled)
        )
        outside = np.linalg.inv(beside.outside_information())
    except np.linalg.LinAlgError:
        raise ValueError(_not_identifiable(model.B, orthogonal, len(model.A))) from None
    angles = _squared_angles(model, white, covariance, outside)
    loadings = np.sqrt(_loading_variances(model, white, beside, inverse, covariance, known, pooled))
    return Precision(np.degrees(np.sqrt(angles)), loadings, float(angles.mean() / 2), counts)


def _not_identifiable(B: Array, orthogonal: bool, p: int) -> str:
    close = indistinct_loadings(B, orthogonal=orthogonal, n_features=p)
    pairs, kind = (
        [f"{mcpc_name(pair.first)} and {mcpc_name(pair.second)}" for pair in close],
        "equal" if orthogonal else "proportional",
    )
    empty = [mcpc_name(j) for j in np.flatnonzero(~(B > 0).any(axis=0)).tolist()]
    why = f"{'; '.join(pairs[:5])} have {kind} loadings" if pairs else "the information matrix is singular"
    if empty:
        why = f"{', '.join(empty[:5])} {'are' if len(empty) > 1 else 'is'} in no context"
    return f"The model is not identifiable: {why}. Drop or merge components, or choose a smaller rank."


def _covariance_of_X(model: Likelihood, inverse: Array, known: bool, pooled: bool) -> Array:
    """Return the covariance of X (r^2 entries, with a pooled noise one more), the loadings eliminated."""
    k, r = model.B.shape
    n, B, P = model.n, model.B, model.P
    weighted = (n[:, None] * B)[:, :, None] * P * B[:, None, :]
    information = (P.reshape(k, -1).T @ weighted.reshape(k, -1)).reshape(r, r, r, r).transpose(0, 2, 1, 3)
    mixed = P * B[:, None, :]
    second = (mixed.reshape(k, -1).T @ (n[:, None, None] * mixed).reshape(k, -1)).reshape(r, r, r, r)
    information = information + second.transpose(0, 3, 2, 1)  # [l, j', l', j] -> [l, j, l', j']
    full = np.zeros((r * r + pooled, r * r + pooled))
    full[: r * r, : r * r] = information.reshape(r * r, r * r)
    if pooled:
        each = model.s[:, None, None] * (P @ model.N @ P)
        full[r * r, : r * r] = full[: r * r, r * r] = np.einsum("klj,kj->lj", each, n[:, None] * B).ravel()
        full[r * r, r * r] = model.context_information()[:, r, r].sum()
    step = max(1, _CHUNK // (r * r * (r + 1)))
    for start in range(0, k, step):
        part = slice(start, start + step)
        C = _cross_information(model, part, known, pooled)
        full -= np.tensordot(C, np.matmul(inverse[part], C), axes=([0, 1], [0, 1]))
    free = np.flatnonzero(np.append(~np.eye(r, dtype=bool).ravel(), np.ones(int(pooled), dtype=bool)))
    kept = full[np.ix_(free, free)]
    size = np.sqrt(np.maximum(np.diag(kept), np.finfo(float).tiny))
    correlations = kept / size / size[:, None]
    if len(free) and np.linalg.eigvalsh(correlations)[0] < 1e-11:
        raise np.linalg.LinAlgError
    full[:] = 0
    full[np.ix_(free, free)] = np.linalg.inv(correlations) / size / size[:, None]
    return full


def _covariance_of_rotations(model: Likelihood, inverse: Array, pooled: bool) -> Array:
    """Return what ``_covariance_of_X`` does for orthonormal A, where X is skew and every pair is on its own.

    ``P_i`` is diagonal then, and turning pair (l, j) by theta changes ``Omega_i[l, j]`` by ``(b_ij - b_il) theta``.
    """
    r = model.B.shape[1]
    n, precision = model.n, np.einsum("kjj->kj", model.P)
    H, K = model.pair_information()
    size = H + H.T - 2 * K
    if (size[~np.eye(r, dtype=bool)] <= 1e-12 * H.max(initial=0)).any():
        raise np.linalg.LinAlgError
    np.fill_diagonal(size, np.inf)
    variances = 1 / size
    full = np.zeros((r, r, r, r))
    row, column = np.indices((r, r))
    full[row, column, row, column] = variances
    full[row, column, column, row] = -variances
    out = np.zeros((r * r + pooled, r * r + pooled))
    out[: r * r, : r * r] = full.reshape(r * r, r * r)
    if pooled:
        own = n[:, None] / 2 * model.s[:, None] * precision**2
        total = model.context_information()[:, r, r].sum()
        out[-1, -1] = 1 / (total - np.einsum("kj,kjl,kl->", own, inverse, own))
    return out


def _cross_information(model: Likelihood, part: slice, known: bool, pooled: bool) -> Array:
    """Information between (b_i, log s_i) and X (and a pooled log s), for some contexts: (k', r or r + 1, r^2 (+ 1))."""
    n, B, P, s = model.n[part], model.B[part], model.P[part], model.s[part]
    k, r = B.shape
    weight = (n[:, None] * B)[:, None, None, :]
    C = (P[:, :, :, None] * P[:, :, None, :] * weight).reshape(k, r, r * r)  # [m, (l, j)]: n b_j P_ml P_mj
    each = s[:, None, None] * (P @ model.N @ P)
    if pooled:
        own = n[:, None] / 2 * np.einsum("kjj->kj", each)
        return np.concatenate([C, own[:, :, None]], axis=2)
    return np.asarray(C) if known else np.concatenate([C, (each * weight[:, 0]).reshape(k, 1, r * r)], axis=1)


def _squared_angles(model: GaussianModel, white: Array, covariance: Array, outside: Array) -> Array:
    """Mean squared angle (r,) of each column of A."""
    p, r = white.shape
    # In features as they were: a_j = white_j / scale, and directions outside the span of white are of unit noise.
    G = model.A.T @ model.A
    own = covariance[: r * r, : r * r].reshape(r, r, r, r)[:, np.arange(r), :, np.arange(r)]  # (j, l, l')
    inside = G[None] - G.T[:, :, None] * G.T[:, None, :]
    angles = np.einsum("jab,jab->j", own, inside)
    if p > r:
        angles = angles + np.diag(outside) * _outside_size(model, white)
    return np.asarray(angles)


def _outside_size(model: GaussianModel, white: Array) -> Array:
    """Return the size of unit noise outside the span of ``white``, across each a_j in features as they were.

    Isotropic noise: p - r directions of unit length, all of them across. Diagonal noise: they are stretched by its
    standard deviations, and may lean along a_j.
    """
    p, r = white.shape
    if model.scale is None:
        return np.full(r, float(p - r))
    sigma = 1 / model.scale
    Q = np.linalg.qr(white)[0]
    whole = float((sigma**2).sum() - ((sigma[:, None] * Q) ** 2).sum())
    along = sigma[:, None] * model.A
    along = (along**2).sum(axis=0) - ((Q.T @ along) ** 2).sum(axis=0)
    return np.asarray(whole - along)


def _loading_variances(
    model: GaussianModel, white: Array, beside: Likelihood, inverse: Array, covariance: Array, known: bool, pooled: bool
) -> Array:
    """Variance of every loading (k, r), of unit columns."""
    k, r = model.B.shape
    G = model.A.T @ model.A
    lean = np.zeros((r, r, r))  # a_j . da_j = sum_l G_jl X_lj
    lean[np.arange(r), :, np.arange(r)] = G
    lean = np.concatenate([lean.reshape(r, r * r), np.zeros((r, int(pooled)))], axis=1)
    out = np.empty((k, r))
    step = max(1, _CHUNK // (r * r * (r + 1)))
    for start in range(0, k, step):
        part = slice(start, start + step)
        response = np.matmul(inverse[part], _cross_information(beside, part, known, pooled))[:, :r]
        v = 2 * model.B[part][:, :, None] * lean - response
        spread = np.einsum("kjx,kjx->kj", v @ covariance, v)
        out[part] = np.einsum("kjj->kj", inverse[part])[:, :r] + spread
    if model.scale is not None and len(white) > r:
        # Outside the span a_j may lean along itself when noise is not isotropic.
        sigma = 1 / model.scale
        Q = np.linalg.qr(white)[0]
        along = sigma[:, None] * model.A
        size = (along**2).sum(axis=0) - ((Q.T @ along) ** 2).sum(axis=0)
        outside = np.diag(np.linalg.inv(beside.outside_information()))
        out += 4 * model.B**2 * (size * outside)
    return out
