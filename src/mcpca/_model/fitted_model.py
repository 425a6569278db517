"""What a fit leaves behind, as one typed value.

The estimator is a thin shell around it: ``MCPCA`` publishes the fields of a ``FittedModel`` as its fitted attributes,
and each of its methods is a plain function of one. Those functions live beside this module (``scores``,
``new_contexts``, ``facet_measures``) and in packages that build on this one (``_inference``, ``_estimator``). Reports,
files and AnnData, which need a model's internals, take them from here and not from the estimator's private attributes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._utils.array_api import to_host
from .._utils.types import Array
from .centering import ContextMeans
from .facets import Facets
from .gaussian import GaussianModel


@dataclass(frozen=True)
class FittedModel:
    """``Cov(X_i) ~ A diag(b_i) A^T`` with k contexts, p features and r components.

    Attributes
    ----------
    components, projection : ndarray (p, r), ndarray (r, p)
        A and ``pinv(A)``. These and the arrays below are on the device of the data, if they were on one.
    loadings : ndarray (k, r)
    contexts : ndarray (k,)
        Names of the contexts.
    means : ndarray (k, p) or None
        None if only covariances were given.
    n_samples : ndarray (k,) or None
        Rows per context; None if covariances came without them.
    noise_variance : ndarray (k,) or (p,), or None
        Per context, or per feature for diagonal noise; None without a model of the noise.
    singular_values : ndarray
        The scree.
    n_iter, n_passes, basis_residual : int, int or None, float
        What the fit took, and how accurately its subspace is known; see ``MCPCA``.
    facets : Facets
    score_moments : tuple of ndarray (k, r, r) and ndarray (k,), or None
        With noise: the covariances ``W S_i W^T`` of the scores and the variance outside the span of A, which is all
        that tests of presence need of the data. None without noise, and for models saved before these were kept.
    feature_names : ndarray (p,) of object, or None
    label_columns : tuple of str
        Columns of a DataFrame that held the labels, and are therefore not features.
    noise, orthogonal : str or None, bool
        The model's assumptions: the parameters of ``MCPCA`` of the same names.
    degrees_of_freedom : float or None
        Of the rows, if they were weighted (``robust=True``); infinite if they are Gaussian.
    """

    components: Array
    projection: Array
    loadings: Array
    contexts: Array
    means: Array | None
    n_samples: Array | None
    noise_variance: Array | None
    singular_values: Array
    n_iter: int
    n_passes: int | None
    basis_residual: float
    facets: Facets
    score_moments: tuple[Array, Array] | None
    feature_names: Array | None
    label_columns: tuple[str, ...]
    # Repeated from the estimator's parameters, so that functions of a model need no estimator.
    noise: str | None
    orthogonal: bool
    degrees_of_freedom: float | None = None

    @property
    def n_features(self) -> int:
        """Number of features, p."""
        return int(self.components.shape[0])

    @property
    def n_components(self) -> int:
        """The rank, r."""
        return int(self.components.shape[1])

    @property
    def context_means(self) -> ContextMeans:
        """The means on the host, looked up by name."""
        # On the host even if the model is on a device: ``centering`` sends each mean to the rows where it is needed.
        return ContextMeans(self.contexts, to_host(self.means), self.n_samples, self.n_features)

    def gaussian(self, purpose: str) -> GaussianModel:
        """Return the Gaussian model in float64; raise, naming ``purpose``, if the fit has no noise."""
        if self.noise_variance is None:
            raise ValueError(
                f"{purpose} needs a model of the noise; fit with solver='ml' and noise='isotropic', 'pooled' or "
                "'diagonal'."
            )
        # float64 also for float32 data: precisions and determinants lose too many digits in single precision.
        return GaussianModel(
            A=to_host(self.components).astype(np.float64),
            B=to_host(self.loadings).astype(np.float64),
            noise=to_host(self.noise_variance).astype(np.float64),
            diagonal=self.noise == "diagonal",
        )

    def counts(self, purpose: str) -> Array:
        """Return the number of rows of each context (k,); raise, naming ``purpose``, if they are not known."""
        if self.n_samples is None:
            raise ValueError(f"{purpose} needs the number of rows of each context; pass n_samples to fit_covariances.")
        return self.n_samples
