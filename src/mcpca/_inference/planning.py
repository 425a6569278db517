"""The Cramer-Rao bound for planned studies, and what a pilot can say about it.

``cramer_rao_bound`` is the public function. Its guess of the model often is the fit to a pilot. With few rows some of
their noise goes into the loadings, and what the bound says is convex in these: on average it promises more accuracy
than there is. How much is found by taking the step from truth to pilot once more: pilots are drawn from the fit and
fitted in turn, and their mean variance over that of the fit is the factor by which the fit errs itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .._covariances.validation import check_counts
from .._linalg.canonical import match_components
from .._model.decomposition import decompose
from .._model.gaussian import GaussianModel
from .._utils.arguments import as_generator, one_random_state
from .._utils.array_api import to_host
from .._utils.printing import span
from .._utils.progress import silent
from .._utils.types import Array
from .precision import Precision, precision_of
from .replication import refit_in_threads

# Pilots that are drawn. The factor of a single pilot varies by a tenth to a fifth, so its mean is known to 2 to 4%.
_DRAWS = 30
# Fewest of them that must be identifiable.
_FEWEST = 10


def cramer_rao_bound(
    A: Any,
    B: Any,
    noise: Any,
    n: Any,
    *,
    diagonal: bool = False,
    pilot_samples: Any = None,
    random_state: Any = None,
    rng: Any = None,
) -> Precision:
    """Return the accuracy that no unbiased estimate can surpass; ``solver="ml"`` comes close to it.

    A sample-size calculator for planned studies: guess A and B (from a pilot fit, or from ``make_contexts``); then
    ``cramer_rao_bound(A, B, noise, n).samples_for(5)[2]`` is the number of samples per context that brings MCPC 3
    within 5 degrees of the truth. If A, B and noise were fitted to a pilot, say to how many rows of it: with
    ``pilot_samples`` the plan is free of the optimism of small pilots, whose loadings contain some of the noise.

    Parameters
    ----------
    A : array-like (p, r)
        Linearly independent columns, which are scaled to unit length (B refers to unit columns).
    B : array-like (k, r)
        Loadings >= 0; no two columns proportional.
    noise : float or array-like (k,), (p,) or (k, p)
        Noise variance, for all contexts or for each; with ``diagonal=True`` (p,), for each feature. With (k, p) that is
        ``s_i psi_f``, as noise="scaled" has it: psi, shared by all contexts, is taken as known, s_i is not.
    n : int or array-like (k,)
        Samples per context, >= 2.
    diagonal : bool
        Whether ``noise`` is by feature. It is then taken as known.
    pilot_samples : int or array-like (k,), optional
        Rows per context of the pilot that A, B and noise were fitted to with ``solver="ml"``. Pilots of this size are
        drawn from them and fitted, and the bound is corrected by how far the bounds of these are from it on average.
    random_state, rng : int, Generator, SeedSequence, BitGenerator or None
        Determines the pilots that are drawn; without ``pilot_samples`` nothing is.

    Returns
    -------
    Precision

    Notes
    -----
    Cost O(k r^5 + r^6), memory O(r^4): half a second at r = 30, k = 30; a minute at r = 60, k = 50. With
    ``pilot_samples`` also 30 fits to covariances (k, p, p).
    """
    random_state = one_random_state(rng, random_state)
    A, B = checked_axes(A, B)
    counts = check_counts(n, len(B))
    variances, kind = _check_noise(noise, len(A), len(B), diagonal)
    model = GaussianModel.with_noise(A, B, variances, kind)
    bound = precision_of(model, counts, pooled=False)
    if pilot_samples is None:
        return bound
    return _corrected_for_pilot(bound, model, check_counts(pilot_samples, len(B), "pilot_samples"), random_state)


def checked_axes(A: Any, B: Any) -> tuple[Array, Array]:
    """Return A (p, r) with unit columns and B (k, r) in float64; raise if they make no model that n could tell."""
    A = np.asarray(to_host(A), dtype=np.float64)
    B = np.asarray(to_host(B), dtype=np.float64)
    if A.ndim != 2 or B.ndim != 2 or A.shape[1] != B.shape[1] or not A.shape[1] <= A.shape[0]:
        raise ValueError(f"A {A.shape} and B {B.shape} do not fit: (p, r) and (k, r) with r <= p are needed.")
    if not (np.isfinite(A).all() and np.isfinite(B).all() and (B >= 0).all()):
        raise ValueError("A and B must be finite, and B non-negative.")
    # The likelihood in r dimensions needs (A^T A)^-1.
    if np.linalg.matrix_rank(A) < A.shape[1]:
        raise ValueError("The columns of A are linearly dependent; no sample size could tell them apart.")
    return A / np.linalg.norm(A, axis=0), B


def _check_noise(noise: Any, p: int, k: int, diagonal: bool) -> tuple[Array, str]:
    """Return the noise variances in the form that a fit would have, and the kind of noise that they are."""
    variances = np.asarray(noise, dtype=np.float64)
    length = p if diagonal else k
    is_scaled = variances.shape == (k, p) and not diagonal
    if variances.ndim == 0:
        variances = np.full(length, variances)
    if not (is_scaled or variances.shape == (length,)) or not np.isfinite(variances).all() or not (variances > 0).all():
        raise ValueError(
            f"noise={noise!r}: a positive variance is needed, one number or {length} (one per "
            f"{'feature' if diagonal else 'context'}). Without noise the bound is 0 or undefined; pass a small one."
        )
    if is_scaled:
        product = np.outer(variances.mean(axis=1), variances.sum(axis=0) / variances.mean(axis=1).sum())
        if not np.allclose(variances, product, rtol=1e-6, atol=0):
            raise ValueError(
                f"noise of shape {variances.shape} must be s_i psi_f, the product of a variance per context and one "
                "per feature; these differ from such a product. Pass np.outer(s, psi)."
            )
        return variances, "scaled"
    return variances, "diagonal" if diagonal else "isotropic"


def _corrected_for_pilot(bound: Precision, model: GaussianModel, pilot_counts: Array, random_state: Any) -> Precision:
    """Return ``bound``, taken at ``model``, less what fitting ``model`` to a pilot of so many rows (k,) has added."""
    plain = precision_of(model, pilot_counts, pooled=False)
    streams = as_generator(random_state).spawn(_DRAWS)

    def fit_one(i: int) -> Precision | None:
        return _bound_at_a_pilot(model, pilot_counts, streams[i])

    drawn = [fit for fit in refit_in_threads(fit_one, _DRAWS, "pilots", silent) if fit is not None]
    if len(drawn) < _FEWEST:
        raise ValueError(
            f"Of {_DRAWS} pilots drawn from A, B and noise with pilot_samples={span(pilot_counts, ',.0f')} rows per "
            f"context, {_DRAWS - len(drawn)} do not identify the components: nothing can be planned from a pilot of "
            "this size. Take a larger one, or drop components that are weak or have proportional loadings."
        )
    # Variances, since these are what grows with 1 / n.
    angles = bound.angles / np.sqrt(np.mean([fit.angles**2 for fit in drawn], axis=0)) * plain.angles
    loadings = bound.loadings / np.sqrt(np.mean([fit.loadings**2 for fit in drawn], axis=0)) * plain.loadings
    return replace(bound, angles=angles, loadings=loadings, ascore_loss=float(np.mean(np.radians(angles) ** 2) / 2))


def _bound_at_a_pilot(model: GaussianModel, counts: Array, rng: np.random.Generator) -> Precision | None:
    """Return the bound at a fit to rows drawn from ``model``, in its order; None if the fit is not identifiable."""
    r = model.B.shape[1]
    try:
        fit = decompose(
            _drawn_covariances(model, counts, rng), r, solver="ml", noise=model.kind, n_samples=counts, random_state=rng
        )
        assert fit.noise is not None
        fitted = GaussianModel.with_noise(fit.components, fit.loadings, fit.noise, model.kind)
        precision = precision_of(fitted, counts, pooled=False)
    except ValueError:
        return None
    order = match_components(fit.components, model.A).indices
    return replace(precision, angles=precision.angles[order], loadings=precision.loadings[:, order])


def _drawn_covariances(model: GaussianModel, counts: Array, rng: np.random.Generator) -> Array:
    p, r = model.A.shape
    out = np.empty((len(counts), p, p))
    deviations = np.sqrt(model.feature_noise(model.s))  # (k, p)
    for i, (n, sd) in enumerate(zip(counts.tolist(), deviations, strict=True)):
        X = (rng.standard_normal((n, r)) * np.sqrt(model.B[i])) @ model.A.T + sd * rng.standard_normal((n, p))
        X -= X.mean(axis=0)
        out[i] = X.T @ X / (n - 1)
    return out
