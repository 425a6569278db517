"""A fitted model meets rows: loadings of new contexts, scores on held-out rows, expected scores given the noise."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from .._covariances.context_covariances import second_moments_about
from .._covariances.device_rows import finite_rows
from .._covariances.fit_data import MOST_NUMBERS, without_basis
from .._covariances.interface import Covariances
from .._covariances.scaling import in_range, stack_in_range
from .._covariances.stack import CovarianceStack
from .._covariances.validation import check_covariances
from .._data.alignment import in_fitted_order, square_in_order
from .._data.contexts import Contexts, NamedBlocks, named_blocks, read_contexts
from .._data.labels import encode_labels, rows_by_context, take_labels, without_columns
from .._data.sources import as_source, is_dask, is_source_like
from .._data.validation import check_rows
from .._solvers.loadings import solve_loadings
from .._utils.array_api import stand_in, to_host
from .._utils.progress import reporting
from .._utils.types import Array, Report
from .facets import measure
from .gaussian import GaussianModel


class NewContextMethods:
    """``loadings_for`` and ``score`` of a fitted model, and the Gaussian model behind it."""

    components_: Array
    loadings_: Array
    noise_variance_: Array | None
    n_samples_per_context_: Array | None
    contexts_: Array
    n_features_in_: int
    noise: str | None
    verbose: Any

    _means: Any

    def loadings_for(self, X: Any, y: Any = None) -> Array:
        """Return the loadings of new contexts on the fitted MCPCs.

        Parameters
        ----------
        X : rows (n, p), covariance (p, p), stack (k, p, p), or a list or dict of contexts
            A symmetric, positive semi-definite (p, p) matrix is read as a covariance, any other matrix as rows.
        y : array-like (n,), str or list of str, optional
            Context label of each row, or the name of a column with them, as in ``fit``.

        Returns
        -------
        ndarray (r,) for one context, (k, r) for several (in the order given; sorted by label with ``y``)

        Notes
        -----
        By non-negative least squares, or with ``solver="ml"`` by likelihood, each new context with a noise of its own
        (diagonal noise stays as fitted).
        """
        check_is_fitted(self)
        with reporting(self.verbose, "loadings") as report:
            S, e, single = self._covariances_of(X, y, report)
            B = np.ldexp(self._loadings_on(S, e), 2 * e)
        return np.asarray(B[0] if single else B)

    def _loadings_on(self, S: Covariances, e: int) -> Array:
        """Return loadings of covariances of rows times ``2^-e``."""
        A = to_host(self.components_).astype(np.float64)
        if self.noise_variance_ is not None:
            B = self._gaussian("").times_power(-e).fit_new(S).B
        else:
            B = solve_loadings((A.T @ A) ** 2, S.variances_along(A))
        return B.astype(to_host(self.loadings_).dtype, copy=False)

    def _gaussian(self, purpose: str) -> GaussianModel:
        """Return the fitted Gaussian model, or explain that there is none."""
        if self.noise_variance_ is None:
            raise ValueError(
                f"{purpose} needs a model of the noise; fit with solver='ml' and noise='isotropic', 'pooled' or "
                "'diagonal'."
            )
        fitted = self.components_, self.loadings_, self.noise_variance_
        A, B, noise = (to_host(x).astype(np.float64) for x in fitted)
        return GaussianModel(A, B, noise, self.noise == "diagonal")

    def _posterior_projections(self, y: Any, n_rows: int) -> list[tuple[Any, Array]]:
        """Pair groups of rows with the (r, p) matrix that gives their expected scores."""
        if y is None:
            return [(slice(None), self._posterior_by_context(None)[0])]
        names, index = encode_labels(y, n_rows)
        return list(zip(rows_by_context(index), self._posterior_by_context(names.tolist()), strict=True))

    def _posterior_by_context(self, names: list[Any] | None) -> list[Array]:
        """Return the (r, p) matrix of expected scores for each of the contexts ``names``, or one for the average."""
        model = self._gaussian("posterior=True")
        model = model.times_power(-model.exponent)
        counts = self.n_samples_per_context_
        weights = np.ones(len(self.contexts_)) if counts is None else counts
        if names is None:
            return [model.posterior_projection(None, weights)]
        position = self._means().positions()
        unknown = [name for name in names if name not in position]
        if unknown:
            raise ValueError(
                f"posterior=True needs the loadings of each context, and {unknown[:5]} were not seen in fit. Drop y to "
                "shrink by the average context, or posterior."
            )
        return [model.posterior_projection(position[name], weights) for name in names]

    def _covariances_of(self, X: Any, y: Any, report: Report) -> tuple[Covariances, int, bool]:
        """Return covariances of new rows times ``2^-e``, e, and whether there is one context that was not labelled."""
        X, p = to_host(X), self.n_features_in_
        if isinstance(X, np.ndarray) and X.ndim == 3:
            S = check_covariances(X, "X")
            self._check_n_features(S.shape[1])
            S, e = stack_in_range(S)
            return CovarianceStack(S), e, False
        single = y is None and not isinstance(X, Contexts) and named_blocks(X) is None
        if not single:
            contexts = self._read_new(X, y, min_samples=2)
        else:
            A = self._check_new_rows(square_in_order(X, getattr(self, "feature_names_in_", None)))
            dense = isinstance(A, np.ndarray) and A.shape == (p, p)
            if dense and np.allclose(A, A.T, rtol=1e-10, atol=1e-10 * np.abs(A).max()):
                S, e = stack_in_range(check_covariances(A[None], "X"))
                return CovarianceStack(S), e, True
            contexts = self._read_new(A, None, min_samples=2) if is_dask(A) else read_contexts(A)
        found = without_basis(contexts, self.components_.shape[1], report)
        return found.covariances, found.exponent, single

    def _check_new_rows(self, X: Any) -> Any:
        """Return new rows as an array, on the host or on their device; as a ``Source`` where that is no dense array."""
        X, by_name = self._in_fitted_order(X, "X")
        if is_dask(X):  # checked as it is read
            return X
        if is_source_like(X):
            source = as_source(X, "X")
            self._check_n_features(source.shape[1])
            if source.shape[0] == 0:
                raise ValueError(f"X has 0 samples (shape={source.shape}) while a minimum of 1 is required.")
            return source
        if not by_name and hasattr(X, "shape") and len(X.shape) == 2:  # names that only one side has: a warning
            validate_data(self, X, reset=False, skip_check_array=True)
        A = check_rows(stand_in(X), "X")
        self._check_n_features(A.shape[1])
        if len(A) == 0:
            raise ValueError(f"X has 0 samples (shape={A.shape}) while a minimum of 1 is required.")
        return finite_rows(X, A, "X", getattr(self, "feature_names_in_", None))

    def _check_n_features(self, p: int) -> None:
        if p != self.n_features_in_:
            raise ValueError(f"X has {p} features, but MCPCA is expecting {self.n_features_in_} features as input.")

    def _in_fitted_order(self, X: Any, where: str) -> tuple[Any, bool]:
        """Return one matrix with the fitted features in their order, and whether that was by name."""
        X = without_columns(X, getattr(self, "label_columns_", ()))
        names = getattr(self, "feature_names_in_", None)
        return in_fitted_order(X, None if names is None else names.tolist(), self.n_features_in_, where)

    def _read_new(self, X: Any, y: Any, min_samples: int) -> Contexts:
        X, y = take_labels(X, y)
        if not isinstance(X, Contexts):
            named = named_blocks(X)
            X = self._check_new_rows(to_host(X)) if named is None else self._blocks_in_fitted_order(named)
        contexts = read_contexts(X, y, min_samples=min_samples)
        self._check_n_features(contexts.n_features)
        return contexts

    def _blocks_in_fitted_order(self, named: NamedBlocks) -> Any:
        names = named.names.tolist()
        pairs = zip(names, named.blocks, strict=True)
        blocks = [self._in_fitted_order(block, f"X, context {name!r},")[0] for name, block in pairs]
        return dict(zip(names, blocks, strict=True)) if named.by_name else blocks

    def score(self, X: Any, y: Any = None, *, metric: str | None = None) -> float:
        """Return how well the model predicts these rows; larger is better.

        Parameters
        ----------
        X, y : as in ``fit``
            Without ``y``, where the model has several contexts, ``X`` is a new context, centred by its own mean, on
            which the loadings (and isotropic noise) are fitted.
        metric : {"covariance", "likelihood"}, optional
            "covariance" is the share of squared covariance that is predicted, 1 at best:
            ``1 - sum_i ||S_i - C_i||_F^2 / sum_i ||S_i||_F^2``, with ``S_i`` the second moment of the given rows about
            the fitted mean of their context and ``C_i`` the covariance of the model, ``A diag(b_i) A^T`` and, where it
            has noise, the noise as fitted: on new rows an honest test, also with one row in a context, and one number
            by which models of any solver compare. "likelihood" is the mean log-likelihood of a row, given the fitted
            mean, loadings and noise of its context; for ``solver="ml"`` with noise. None takes "likelihood" there and
            "covariance" elsewhere: two quantities.
        """
        check_is_fitted(self)
        if metric not in (None, "covariance", "likelihood"):
            raise ValueError(f"metric={metric!r}; choose None, 'covariance' or 'likelihood'.")
        if metric == "likelihood":
            self._gaussian("metric='likelihood'")
        with reporting(self.verbose, "score") as report:
            return self._score(X, y, metric, report)

    def _score(self, X: Any, y: Any, metric: str | None, report: Report) -> float:
        contexts = self._read_new(X, y, min_samples=1)
        fitted = self._means()
        new = not contexts.by_name and len(contexts.names) == 1 < len(self.contexts_)
        if new:
            index = np.zeros(1, dtype=int)
            S, e, _ = self._covariances_of(X, None, report)
        else:
            if contexts.by_name:
                way_out = "Cross-validate with StratifiedKFold, so that every fold has rows of every context."
                means, position = fitted.of(contexts.names.tolist(), way_out), fitted.positions()
                index = np.array([position[name] for name in contexts.names.tolist()])
            else:
                means, index = fitted.in_order(len(contexts.names)), np.arange(len(contexts.names))
            if len(means) * self.n_features_in_**2 > MOST_NUMBERS:
                raise ValueError(
                    f"score needs covariances as an array, and those of {len(means)} contexts with "
                    f"{self.n_features_in_} features are more than {MOST_NUMBERS} numbers; score some contexts or "
                    "features at a time."
                )
            scaled, e = in_range(contexts)
            S = CovarianceStack(second_moments_about(scaled, [np.ldexp(mean, -e) for mean in means], report))
        if self.noise_variance_ is not None and metric != "covariance":
            model = self._gaussian("score").times_power(-e)
            beside = model.fit_new(S) if new else model.likelihood(S, contexts.n_samples, index)
            densities = model.log_likelihoods(beside) - self.n_features_in_ * e * np.log(2)
            return float(np.average(densities, weights=contexts.n_samples))
        return self._predicted_share(S, e, None if new else index)

    def _predicted_share(self, S: Covariances, e: int, index: Array | None) -> float:
        """Return the share of squared covariance predicted in fitted contexts, or in new ones (None).

        ``S`` is of rows times ``2^-e``.
        """
        A = to_host(self.components_)
        if self.noise_variance_ is None:
            B = self._loadings_on(S, e) if index is None else np.ldexp(to_host(self.loadings_)[index], -2 * e)
            noise = None
        else:
            model = self._gaussian("score").times_power(-e)
            fitted = model.fit_new(S) if index is None else None
            B, s = (model.B[index], model.s[index]) if fitted is None else (fitted.B, fitted.s)
            noise = np.outer(s, model.noise if model.diagonal else np.ones(len(A)))
        result = measure(S, A, B)
        errors, total = float(result.reconstruction_errors.sum()), float(result.squared_norms.sum())
        if noise is not None:
            # ||E - N||^2 = ||E||^2 - 2 <E, N> + ||N||^2 with N diagonal.
            left = S.variances() - B @ np.square(A.T)
            errors += float(np.vdot(noise, noise - 2 * left))
        return 1 - errors / total if total > 0 else 0.0
