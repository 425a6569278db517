"""Scores of rows on the MCPCs, and rows from scores: one matrix, or a list or dict of contexts."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .._covariances.device_rows import finite_rows
from .._covariances.streamed import context_means
from .._data.alignment import by_name, in_row_order
from .._data.contexts import named_blocks, read_contexts
from .._data.detect import has_dask_rows, is_source_like
from .._data.labels import name_array, take_labels
from .._data.sources import as_source
from .._data.validation import check_rows
from .._utils.array_api import stand_in, to_host
from .._utils.progress import reporting
from .._utils.types import Array, Report
from .centering import ContextMeans, rows_of, scores_of

_Class = TypeVar("_Class", bound=type)


def _over_contexts(cls: _Class) -> _Class:
    """Let ``transform`` and ``inverse_transform`` take a list or dict of contexts, one call for each.

    Applied to the finished class and so outside scikit-learn's ``set_output`` wrapper: with
    ``set_output(transform="pandas")`` a list gives a list of frames.
    """

    def spread(method: Any) -> Any:
        @functools.wraps(method)
        def over_contexts(self: Any, X: Any, y: Any = None, *, center: Any = None, **options: Any) -> Any:
            named = named_blocks(X)
            if named is None:
                return method(self, X, y, center=center, **options)
            check_is_fitted(self)
            if y is not None:
                raise ValueError(f"y labels the rows of one 2-D X, but X is a {type(X).__name__} of contexts; drop y.")
            names, means = named.names.tolist(), self._means()
            if center is not None:
                centers = [center] * len(names)
            else:
                centers = means.of(names) if named.by_name else means.in_order(len(names))
            known = names if named.by_name else self.contexts_.tolist() if center is None else [None] * len(names)
            labels = [
                # Rows of Dask are not counted for the sake of labels, which only ``posterior`` needs here.
                None
                if name is None or (has_dask_rows(block) and not options.get("posterior"))
                else name_array([name]).repeat(_n_rows(block))
                for name, block in zip(known, named.blocks, strict=True)
            ]
            results = []
            with reporting(self.verbose, "scores") as report:
                for block, label, c in zip(named.blocks, labels, centers, strict=True):
                    results.append(method(self, block, label, center=c, **options))
                    report("scores", len(results), len(names))
            return dict(zip(names, results, strict=True)) if named.by_name else results

        return over_contexts

    for name in ("transform", "inverse_transform"):
        setattr(cls, name, spread(getattr(cls, name)))
    return cls


def _n_rows(block: Any) -> int:
    return as_source(block, "X").shape[0] if is_source_like(block) else len(stand_in(block))


@_over_contexts
class ScoreMethods(TransformerMixin):
    """``transform`` and ``inverse_transform`` of a fitted model."""

    components_: Array
    projection_: Array
    contexts_: Array
    means_: Array | None
    n_samples_per_context_: Array | None
    n_components_: int
    n_features_in_: int
    verbose: Any

    _check_new_rows: Any
    _read_new: Any
    _posterior_projections: Any
    _posterior_by_context: Any

    def transform(self, X: Any, y: Any = None, *, center: Any = None, posterior: bool = False) -> Any:
        """Return the scores of rows on the MCPCs: ``(x - mean) @ pinv(A).T``.

        Parameters
        ----------
        X : one matrix, in any form that ``fit`` takes; or a list or dict of contexts
            A list must have one entry per fitted context, in their order; a dict goes by name. They give a list or
            dict of scores.
        y : array-like (n,), str or list of str, optional
            Context label of each row, or the name of a column with them, as in ``fit`` (also by index): rows are
            centred by the mean of their own context, looked up by label.
        center : None, "overall", "own", array (n_features,) or dict {label: array}
            None is the context's fitted mean where contexts are known (by ``y``, list or dict), and the overall mean
            of the fitted rows otherwise, which keeps differences between contexts visible. "own" centres each context
            by its mean in ``X``: the way for contexts that ``fit`` has not seen, as is an explicit mean.
        posterior : bool
            With ``solver="ml"``: the expected scores given the row, ``B_i A^T Sigma_i^-1 (x - mean)``, which shrink
            towards 0 by the noise as in probabilistic PCA; without ``y``, by the average loadings and noise.

        Returns
        -------
        ndarray (n, r), or a list or dict of them; for rows on a device arrays of the same kind there, for rows on Dask
        a Dask array that is computed when asked for
        """
        check_is_fitted(self)
        with reporting(self.verbose, "scores") as report:
            return self._scores_of_rows(X, y, center, posterior, report)

    def _scores_of_rows(self, X: Any, y: Any, center: Any, posterior: bool, report: Report) -> Any:
        (X, y), center = take_labels(X, y), self._center(center)
        if has_dask_rows(X):
            return self._transform_there(X, y, center, posterior)
        A = self._check_new_rows(X)
        ordinary = to_host(self.projection_)
        projections = self._posterior_projections(y, A.shape[0]) if posterior else [(slice(None), ordinary)]
        groups = self._means().by_rows(A, y, center)
        if posterior and len(projections) > 1 and len(groups) == 1:
            groups = [(rows, groups[0][1]) for rows, _ in projections]
        if len(projections) == 1:
            projections = projections * len(groups)
        return scores_of(A, groups, [projection for _, projection in projections], ordinary.dtype, report)

    def _transform_there(self, X: Any, y: Any, center: Any, posterior: bool) -> Any:
        """Return the scores of rows on Dask as a Dask array, which is not computed yet."""
        contexts = self._read_new(X, y, min_samples=1)
        assert contexts.engine is not None
        names = None if y is None else contexts.names.tolist()
        projections = self._posterior_by_context(names) if posterior else [self.projection_]
        means = list(self._means().by_context(names, center, lambda: list(context_means(contexts))))
        n = max(len(means), len(projections))
        pairs = zip(means * (n // len(means)), projections * (n // len(projections)), strict=True)
        return contexts.engine.scores(np.array([mean @ P.T for mean, P in pairs]), projections)

    def inverse_transform(self, X: Any, y: Any = None, *, center: Any = None) -> Any:
        """Return rows with the given scores: ``z @ A.T + mean``; ``y`` and ``center`` as in ``transform``.

        Scores on Dask give a Dask array, which is computed when asked for.
        """
        check_is_fitted(self)
        if isinstance(center, str) and center == "own":
            raise ValueError("center='own' is not known from scores; pass the mean itself.")
        center = self._center(center)
        if has_dask_rows(X):
            return self._inverse_there(X, y, center)
        Z = check_rows(stand_in(X), "X")
        self._check_scores(Z.shape[1])
        Z = finite_rows(X, Z, "X", None)
        groups = self._means().by_rows(Z, in_row_order(X, y), center)
        return rows_of(Z, groups, to_host(self.components_))

    def _center(self, center: Any) -> Any:
        """Return means in the order of the features, by name where they are a Series and the fit has names."""
        names = getattr(self, "feature_names_in_", None)
        if names is None or center is None or isinstance(center, str):
            return center
        if isinstance(center, Mapping):
            return {label: self._center(mean) for label, mean in center.items()}
        return by_name(center, names.tolist(), "center", "the features of the fit")

    def _inverse_there(self, Z: Any, y: Any, center: Any) -> Any:
        contexts = read_contexts(Z, y, min_samples=1)
        self._check_scores(contexts.n_features)
        assert contexts.engine is not None
        means = self._means().by_context(None if y is None else contexts.names.tolist(), center, list)
        return contexts.engine.scores(-np.array(means), [to_host(self.components_)])

    def _check_scores(self, r: int) -> None:
        if r != self.n_components_:
            raise ValueError(f"X has {r} columns, but scores of this model have {self.n_components_}.")

    def _means(self) -> ContextMeans:
        return ContextMeans(self.contexts_, to_host(self.means_), self.n_samples_per_context_, self.n_features_in_)
