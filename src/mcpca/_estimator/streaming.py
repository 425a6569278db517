"""Fitting from moments: rows that come in chunks, and moments that others have computed."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from .._covariances.fit_data import fit_data_of_covariances
from .._covariances.moments import ContextMoments, moments_of
from .._data.alignment import are_positions
from .._data.detect import is_anndata
from .._data.labels import label_columns, take_labels
from .._utils.arguments import check_rank
from .._utils.progress import reporting
from .._utils.types import Array, Report
from ..exceptions import RankExceedsDataError


class StreamingMethods:
    """``partial_fit`` of the estimator."""

    n_components: int | None
    verbose: Any

    _check_n_features: Any
    _check_parameters: Any
    _fit_to: Any

    def partial_fit(self, X: Any, y: Any = None, *, allow_duplicates: bool = False) -> Self:
        """Add a chunk of rows to those seen so far, and fit the model to all of them.

        Only moments are kept (``moments_``, O(k p^2)), so that rows come in any number of chunks, in any order, and the
        model is that of ``fit`` on all of them. Contexts may appear later. While a context has a single row, or the
        rows vary in fewer directions than ``n_components``, chunks are only added. Every call costs O(n p^2) for its
        chunk and a decomposition; to add many chunks first, update a ``ContextMoments`` and pass it to ``fit``.

        Parameters
        ----------
        X, y
            As for ``fit``; a chunk that is refused changes nothing.
        allow_duplicates : bool
            Whether rows that were added before may be added again; they then count twice.
        """
        self._check_parameters()
        with reporting(self.verbose, "moments") as report:
            return self._add_rows(X, y, allow_duplicates, report)

    def _add_rows(self, X: Any, y: Any, allow_duplicates: bool, report: Report) -> Self:
        columns = label_columns(X, y) or getattr(self, "label_columns_", [])
        X, y = take_labels(X, y)
        before: ContextMoments | None = getattr(self, "moments_", None)
        if before is not None and isinstance(X, np.ndarray) and X.ndim == 2:
            self._check_n_features(X.shape[1])
        moments = copy.copy(before or ContextMoments())
        moments._add(moments_of(X, y, report), allow_duplicates)
        try:
            ready = bool((moments.counts > 1).all())
            if ready:
                self._fit_context_moments(moments, report)
        except RankExceedsDataError:
            ready = False
        if not ready:
            set_features(self, moments.means.shape[1], moments.feature_names)
        set_label_columns(self, X, columns)
        self.moments_ = moments
        return self

    def _fit_context_moments(self, moments: ContextMoments, report: Report) -> Self:
        self._check_parameters()
        found = moments.covariances()
        if self.n_components is not None:
            check_rank(self.n_components, found.covariances.shape[1])
        features = BaseEstimator()
        set_features(features, found.covariances.shape[1], found.feature_names)
        fitted: Self = self._fit_to(fit_data_of_covariances(found, found.n_samples), report, features)
        return fitted


def set_features(target: Any, p: int, names: Array | None) -> None:
    """Set what scikit-learn's ``validate_data`` would set for a matrix, names that are no strings too."""
    target.n_features_in_ = p
    if names is not None and not are_positions(names.tolist()):
        target.feature_names_in_ = names.astype(object)


def set_label_columns(target: Any, X: Any, columns: list[str]) -> None:
    """Remember columns of a DataFrame that were labels; those of an AnnData are not among its features."""
    if columns and not is_anndata(X):
        target.label_columns_ = columns
