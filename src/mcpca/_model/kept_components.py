"""Some components of a fit, with the loadings that they have without the others.

A rank at which most components come back may hold some that do not. ``MCPCA.keep`` and ``n_components="replicating"``
leave these out: axes stay as they are, since they were found beside the others, and loadings and noise are fitted
again, by the rule of the model: non-negative least squares, beside a floor of noise if the fit has one, or likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._covariances.interface import Covariances
from .._linalg.canonical import match_components
from .._solvers import SOLVERS, SolverResult
from .._solvers.floor import shared_floor
from .._utils.types import Array
from .decomposition import Decomposition
from .fitted_loadings import Measures, loadings_of_fit
from .gaussian import GaussianModel


class Kept(NamedTuple):
    """The decomposition of the components that were kept, its measures, and which columns these were, in its order."""

    decomposition: Decomposition
    measures: Measures
    indices: Array


def keep_components(
    S: Covariances,
    fit: Decomposition,
    which: Array,
    *,
    solver: str,
    noise: str | None,
    freedom: Array,
    names: Sequence[Any] | None,
) -> Kept:
    """Return the fit with the columns ``which`` (indices) only; ``noise`` has been resolved.

    One pass over the covariances, two for a likelihood, and three for a likelihood whose noise contexts share.
    """
    A = np.asarray(fit.components[:, which], dtype=np.float64)
    result = SolverResult(A, fit.n_iter, fit.converged, fit.message)
    if SOLVERS[solver].models_noise and noise is not None:
        B, of_noise = _by_likelihood(S, A, noise, freedom)
        result = SolverResult(A, fit.n_iter, fit.converged, fit.message, B, of_noise)
    loadings = loadings_of_fit(S, result, noise, freedom, names, True)
    assert loadings.measures is not None
    # Without the others the order by total variance may be another one.
    indices = np.asarray(which)[match_components(A, loadings.A).indices]
    decomposition = Decomposition(
        components=loadings.A.astype(S.dtype, copy=False),
        loadings=loadings.B.astype(S.dtype, copy=False),
        singular_values=fit.singular_values,
        n_iter=fit.n_iter,
        converged=fit.converged,
        message=fit.message,
        noise=None if loadings.noise is None else loadings.noise.astype(S.dtype, copy=False),
        gradient=None,  # of the whole fit, which this is not
        basis_residual=fit.basis_residual,
        basis_error=fit.basis_error,
        # Where F has its maxima is a matter of the whole fit: the span is that of all its singular vectors.
        space=None if fit.space is None else fit.space.chosen(indices),
    )
    return Kept(decomposition, loadings.measures, indices)


def _by_likelihood(S: Covariances, A: Array, noise: str, freedom: Array) -> tuple[Array, Array]:
    """Return the most likely loadings (k, r) given the components, and the noise in the form that fits publish."""
    k = S.n_contexts
    p, r = A.shape
    if noise == "isotropic":
        fitted = GaussianModel(A, np.zeros((k, r)), np.ones(k)).fit_new(S)
        return fitted.B, fitted.s
    # What contexts share is fitted by least squares: what was left out is now a part of it.
    floor = shared_floor(A, S.variances_along(A), S.variances(), noise, freedom)
    if noise == "scaled":
        model = GaussianModel.with_noise(A, floor.loadings, floor.noise, noise)
        fitted = model.fit_new(S)
        return fitted.B, model.feature_noise(fitted.s)
    # Pooled noise is diagonal noise that features share: neither is a new context's own.
    psi = np.full(p, floor.noise[0]) if noise == "pooled" else floor.noise
    fitted = GaussianModel.with_noise(A, floor.loadings, psi, "diagonal").fit_new(S)
    return fitted.B, floor.noise
