"""What a fit leaves behind, as one typed value.

The estimator is a thin shell around it: ``MCPCA`` publishes the fields of a ``FittedModel`` as its fitted attributes,
and each of its methods is a plain function of one. Those functions live beside this module (``scores``,
``new_contexts``, ``facet_measures``) and in packages that build on this one (``_inference``, ``_estimator``). Reports,
files and AnnData, which need a model's internals, take them from here and not from the estimator's private attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._data.fitted_preprocess import FittedPreprocess
from .._solvers import SOLVERS
from .._utils.array_api import to_host
from .._utils.types import Array
from .._utils.wording import quoted
from .centering import ContextMeans
from .compared import Compared, compared
from .facets import Facets
from .gaussian import GaussianModel
from .landscape import Landscape, PowerSpace
from .removed_nuisance import RemovedNuisance


@dataclass(frozen=True)
class FittedModel:
    """``Cov(X_i) ~ A diag(b_i) A^T`` with k contexts, p features and r components.

    Attributes
    ----------
    components, projection : ndarray (p, r), ndarray (r, p)
        A and ``pinv(A)``. These and the arrays below are on the device of the data, if they were on one.
    loadings : ndarray (k, r)
    corrected_loadings : ndarray (k, r) or None
        Loadings beside the noise, by which contexts are compared; those above if the fit has noise, unless they were
        cross-fitted. None for models saved before these were kept.
    attenuation : ndarray (r,) or None
        The share of their loadings that MCPCs keep in rows that they were not fitted to; None unless
        ``corrected_loadings`` were cross-fitted.
    contexts : ndarray (k,)
        Names of the contexts.
    means : ndarray (k, p) or None
        None if only covariances were given.
    n_samples : ndarray (k,) or None
        Rows per context; None if covariances came without them.
    noise_variance : ndarray (k,), (p,) or (k, p), or None
        Per context, per feature for diagonal noise, or both for scaled noise. If ``noise`` is None, the floor of the
        corrected loadings (k,); None for models saved before it was kept.
    singular_values : ndarray
        The scree.
    n_iter, n_passes, basis_residual, basis_error : int, int or None, float, float or None
        What the fit took, and how accurately its subspace is known; see ``MCPCA``.
    facets : Facets
    score_moments : tuple of ndarray (k, r, r) and ndarray (k,), or None
        The covariances ``W S_i W^T`` of the scores and the variance outside the span of A, which is all that tests of
        presence need of the data; in features divided by their noise if that is by feature. None without noise, where
        they would be the largest array of the model, and for models saved before these were kept.
    feature_names : ndarray (p,) of object, or None
    label_columns : tuple of str
        Columns of a DataFrame that held the labels, and are therefore not features.
    solver, noise, orthogonal : str, str or None, bool
        The model's assumptions: the parameters of ``MCPCA`` of the same names, ``noise`` being None if ``loadings``
        were fitted without it.
    missing : str
        What was done about missing features or values, the parameter of ``MCPCA`` of the same name. Where a context
        lacks a feature, its mean is NaN.
    degrees_of_freedom : float or None
        Of the rows, if they were weighted (``robust=True``); infinite if they are Gaussian.
    nuisance : RemovedNuisance or None
        What batch and covariates took out of the covariances.
    kept_of : int or None
        The rank of the fit that these components were kept from; None if all of them were.
    preprocess : FittedPreprocess or None
        What was done to rows as they were read, and is done to later rows.
    space : PowerSpace, Landscape or None
        What ``MCPCA.landscape`` is computed from or, of a model from a file, that itself. None for rows with missing
        features or values, and for models saved before it was kept.
    """

    components: Array
    projection: Array
    loadings: Array
    corrected_loadings: Array | None
    contexts: Array
    means: Array | None
    n_samples: Array | None
    noise_variance: Array | None
    singular_values: Array
    n_iter: int
    n_passes: int | None
    basis_residual: float
    basis_error: float | None
    facets: Facets
    score_moments: tuple[Array, Array] | None
    feature_names: Array | None
    label_columns: tuple[str, ...]
    # Repeated from the estimator's parameters, so that functions of a model need no estimator.
    solver: str
    noise: str | None
    orthogonal: bool
    degrees_of_freedom: float | None = None
    attenuation: Array | None = None
    missing: str = "error"
    nuisance: RemovedNuisance | None = None
    kept_of: int | None = None
    space: PowerSpace | Landscape | None = None
    preprocess: FittedPreprocess | None = None

    @property
    def n_features(self) -> int:
        """Number of features, p."""
        return int(self.components.shape[0])

    @property
    def n_components(self) -> int:
        """The rank, r."""
        return int(self.components.shape[1])

    @property
    def is_likelihood(self) -> bool:
        """Whether loadings and noise are those of a likelihood."""
        return self.noise is not None and SOLVERS[self.solver].models_noise

    @property
    def noise_by_context(self) -> Array | None:
        """The noise variance of each context (k,), on the host; None if features differ in it, or it is not known."""
        if self.noise_variance is None or self.noise in ("diagonal", "scaled"):
            return None
        return np.asarray(to_host(self.noise_variance))

    @property
    def context_means(self) -> ContextMeans:
        """The means on the host, looked up by name."""
        # On the host even if the model is on a device: ``centering`` sends each mean to the rows where it is needed.
        return ContextMeans(self.contexts, to_host(self.means), self.n_samples, self.n_features)

    def compared_loadings(self, corrected: bool = True) -> Array:
        """Return the loadings (k, r), on the host, by which contexts are compared: without noise unless told otherwise.

        The noise of a context is in all of its loadings by least squares, so that contexts with more noise would seem
        to have more of everything.
        """
        if corrected and self.corrected_loadings is None:
            raise ValueError(
                "This model was saved by an older mcpca, without corrected loadings; fit it again, or pass "
                "corrected=False for loadings that contain the noise."
            )
        return self._compared(corrected).values

    def loadings_in_words(self, corrected: bool = True) -> str:
        """Return which loadings ``compared_loadings`` are, as part of a sentence."""
        return self._compared(corrected).words

    def _compared(self, corrected: bool) -> Compared:
        cross_fitted = self.attenuation is not None
        return compared(self.loadings, self.corrected_loadings, self.noise, corrected, cross_fitted=cross_fitted)

    def gaussian(self, purpose: str) -> GaussianModel:
        """Return the Gaussian model in float64; raise, naming ``purpose``, if noise is not known or zero."""
        # float64 also for float32 data: precisions and determinants lose too many digits in single precision.
        noise = None if self.noise_variance is None else to_host(self.noise_variance).astype(np.float64)
        if noise is None:
            raise ValueError(
                f"{purpose} needs the noise, and this model was saved by an older mcpca without it; fit it again."
            )
        if not (noise > 0).all():
            raise ValueError(
                f"{purpose} needs noise in every context, and there are some in which this fit has none: "
                f"{self.n_components} MCPCs of {self.n_features} features leave no variance in other directions. Lower "
                "n_components, or fit with solver='ml'."
            )
        return GaussianModel.with_noise(
            to_host(self.components).astype(np.float64), self.compared_loadings().astype(np.float64), noise, self.noise
        )

    def positions_of(self, names: Sequence[Any], purpose: str, way_out: str) -> list[int]:
        """Return where contexts are among the fitted ones; raise, naming ``purpose``, if one was not fitted."""
        positions = self.context_means.positions()
        unknown = [name for name in names if name not in positions]
        if unknown:
            raise ValueError(
                f"{purpose} needs the loadings of each context, and {quoted(unknown)} were not seen in fit. {way_out}"
            )
        return [positions[name] for name in names]

    def refuse_missing(self, purpose: str, way_out: str) -> None:
        """Raise, naming ``purpose``, if the model is of rows with missing features or values."""
        if self.missing != "error":
            raise ValueError(
                f"{purpose} is for models of complete rows, and this is one of missing={self.missing!r}. {way_out}"
            )

    def counts(self, purpose: str) -> Array:
        """Return the number of rows of each context (k,), less what nuisance takes of their degrees of freedom.

        Raises, naming ``purpose``, if it is not known.
        """
        if self.n_samples is None:
            raise ValueError(f"{purpose} needs the number of rows of each context; pass n_samples to fit_covariances.")
        return self.n_samples if self.nuisance is None else np.asarray(self.n_samples - self.nuisance.ranks)
