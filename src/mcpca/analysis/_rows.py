"""The rows that go with a fit, as the analyses need them: projections of all rows, moments by context, PCs of groups.

``_results.fitted_rows`` reads the rows and finds the context of each; here they become scores, moments and PCs, from
which the analyses make their tables. Projections are computed by blocks, so rows on disk stay there.

Rows are numbered as the user has them: those of one matrix as they come, those of a list or dict one context after the
other, those of an AnnData as in ``obs``. ``codes`` holds the fitted context of each row by position, -1 for none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._data.alignment import places_of_rows
from .._data.detect import index_of, is_anndata
from .._data.projection import projected_rows
from .._results.fitted import Fitted, fitted
from .._results.fitted_rows import (
    RowsByContext,
    rows_of_fit,
    sampled_rows,
    scores_are_stored,
)
from .._results.row_pca import Directions, principal_directions
from .._utils.component_names import unknown
from .._utils.types import Array
from ._tables import pandas

_MOST_PCA_ROWS = 100_000  # of more, PCs are computed from a random sample, which is held in memory
NEEDS_ROWS = "pass X and y, in any form that fit takes, or an AnnData with the fit"


@dataclass(frozen=True)
class FittedRows:
    """The rows that go with a fit.

    Attributes
    ----------
    fit : Fitted
    space : RowsByContext
        The rows where they are, and A in the space in which they were fitted.
    codes : ndarray (n,) of int
        The fitted context of each row, -1 for rows without one.
    names : ndarray (n,) or None
        Names of the rows: the index of a DataFrame, or ``obs_names`` of an AnnData.
    """

    fit: Fitted
    space: RowsByContext
    codes: Array
    names: Array | None

    @property
    def components(self) -> Array:
        """A in the space of the fit (q, r)."""
        return self.space.components

    def project(self, W: Array) -> Array:
        """Return ``x^T W`` (n, m) of all rows x, for W (q, m) in the space of the fit. One pass, by blocks."""
        # Concatenated by source, in the order in which ``read_rows`` concatenates the codes.
        W = self.space.over_row_features(W)
        return np.concatenate([projected_rows(source, W) for source in _sources(self.space)])

    def scores(self) -> Array:
        """Return the scores ``x^T pinv(A)^T`` (n, r) of all rows, not centred."""
        return self.project(self.space.projection.T)

    def moments(self, Z: Array) -> tuple[Array, Array]:
        """Return the mean and the variance (divisor n - 1) of the columns of Z (n, m) in each context: (k, m) each.

        NaN for a context without rows; the variance is NaN for one with a single row.
        """
        return moments_by_code(Z, self.codes, len(self.fit.contexts))

    def covariances(self, Z: Array) -> Array:
        """Return the covariances (k, m, m) of the columns of Z (n, m) in each context; each needs 2 rows."""
        self.check_rows(2)
        # One context at a time; np.cov gives a scalar for m = 1, hence atleast_2d.
        by_context = (Z[self.codes == i] for i in range(len(self.fit.contexts)))
        return np.stack([np.atleast_2d(np.cov(scores, rowvar=False)) for scores in by_context])

    def check_rows(self, least: int, among: Sequence[int] | None = None) -> None:
        """Raise if a fitted context (one of ``among``, if given) has fewer rows than ``least`` in the data."""
        # bincount takes no -1; minlength keeps contexts without rows.
        counts = np.bincount(self.codes[self.codes >= 0], minlength=len(self.fit.contexts))
        for i in range(len(counts)) if among is None else among:
            if counts[i] < least:
                raise ValueError(
                    f"Context {self.fit.contexts[i]!r} has {counts[i]} row(s) in the data given, and needs {least}; "
                    "pass more of its rows, or fit without it."
                )

    def principal_directions(self, m: int, among: Sequence[int] | None = None) -> Directions:
        """Return the top ``m`` PCs, or as many as there are, of the rows of the fitted contexts ``among``.

        None takes all contexts, for overall PCs. More than 100,000 rows are represented by a random sample.
        """
        # A context without rows is an error here, even among others: PCs of fewer contexts are not what was asked for.
        chosen = range(len(self.fit.contexts)) if among is None else among
        positions = [self.space.position(i, self.fit.contexts) for i in chosen]
        rows = sampled_rows(self.space, positions, _MOST_PCA_ROWS).rows
        # Centring takes one degree of freedom: n rows have at most n - 1 PCs.
        n, q = rows.shape
        if n < 2:
            raise ValueError(f"Context {self.fit.contexts[chosen[0]]!r} has 1 row, and PCs need 2; pass more rows.")
        return principal_directions(rows, min(m, n - 1, q))


class ScoredRows(NamedTuple):
    """Scores of the rows that go with a fit, however they were found.

    Attributes
    ----------
    fit : Fitted
    scores : ndarray (n, r)
    codes : ndarray (n,) of int
        The fitted context of each row, -1 for rows without one.
    names : ndarray (n,) or None
        Names of the rows, if they have any.
    """

    fit: Fitted
    scores: Array
    codes: Array
    names: Array | None


def moments_by_code(Z: Array, codes: Array, k: int) -> tuple[Array, Array]:
    """Return means and variances (k, m) of rows Z (n, m) by their code; rows with code -1 are ignored."""
    has_context = codes >= 0
    Z = Z[has_context]
    codes = codes[has_context]
    # Z (n, m), codes (n,), membership (k, n); mean and variance (k, m)
    counts = np.bincount(codes, minlength=k)
    # A (k, n) matrix with a 1 for the context of each row: one sparse product sums all columns within contexts.
    membership = scipy.sparse.csr_array((np.ones(len(codes)), (codes, np.arange(len(codes)))), shape=(k, len(codes)))
    with np.errstate(invalid="ignore", divide="ignore"):  # 0 / 0 is the NaN of a context with too few rows
        mean = (membership @ Z) / counts[:, None]
        # Two steps, mean first: E[z^2] - mean^2 would cancel for scores far from 0, and these are not centred.
        variance = (membership @ (Z - mean[codes]) ** 2) / np.where(counts > 1, counts - 1, 0)[:, None]
    return np.asarray(mean), np.asarray(variance)


def same_contexts(source: Any, key: str) -> tuple[list[Any], list[Fitted]]:
    """Return one source or several as a list, and their fits, all with the same contexts in the same order."""
    sources = list(source) if isinstance(source, (list, tuple)) else [source]
    if not sources:
        raise ValueError("source is empty; pass at least one fitted model.")
    # key is meant for the AnnData among the sources; a plain model beside one would refuse any but the default.
    any_anndata = any(map(is_anndata, sources))
    fits = [fitted(one, key if is_anndata(one) or not any_anndata else "mcpca") for one in sources]
    # Contexts are compared by position from here on.
    if any(fit.contexts != fits[0].contexts for fit in fits):
        raise ValueError("The models of source have different contexts; fit all of them to the same rows.")
    return sources, fits


def rows_are_given(source: Any, X: Any, y: Any) -> bool:
    """Return whether there are rows: passed as X, or in an AnnData. Labels alone are an error."""
    # Otherwise the labels would be dropped without a word.
    if X is None and y is not None:
        raise ValueError("y is given without X: labels go with rows; pass both, or neither.")
    return X is not None or is_anndata(source)


def read_rows(source: Any, key: str, X: Any, y: Any) -> FittedRows:
    """Return the rows that go with a fit: ``X`` and ``y`` for a model, otherwise those of the AnnData itself."""
    fit = fitted(source, key)
    space = rows_of_fit(source, fit, key, X, y)
    # From positions among the contexts of the data to positions among the fitted ones. The last entry is for code -1,
    # which indexes it.
    fitted_position = {position: i for i, position in enumerate(space.order) if position >= 0}
    recoded = np.array([fitted_position.get(i, -1) for i in range(len(space.contexts.names))] + [-1])
    codes = np.concatenate([recoded[space.contexts.codes(one)] for one in _sources(space)])
    return FittedRows(fit, space, codes, _row_names(source, X, len(codes)))


def scores_of_rows(source: Any, key: str, X: Any, y: Any, center: str) -> ScoredRows:
    """Return the scores of rows, ``pinv(A) (x - mean)``, with their contexts and names.

    ``center="overall"`` subtracts the mean of all rows with a context; "context" that of the row's own context, which
    leaves NaN for rows without one. No pass over the rows is made if an AnnData holds the scores.
    """
    if center not in ("overall", "context"):
        raise ValueError(f"center={center!r}; choose 'overall' or 'context'.")
    if is_anndata(source) and X is None and y is None and scores_are_stored(source, key, center):
        fit = fitted(source, key)
        # An AnnData with a fit has both.
        assert fit.scores is not None
        assert fit.labels is not None
        # Labels of rows that were not fitted are None, which is no context.
        position = {name: i for i, name in enumerate(fit.contexts)}
        codes = np.array([position.get(label, -1) for label in fit.labels], dtype=np.intp)
        Z = fit.scores
        names: Array | None = np.asarray(index_of(source, "obs"))
    else:
        rows = read_rows(source, key, X, y)
        fit = rows.fit
        codes = rows.codes
        Z = rows.scores()
        names = rows.names
    # By the rows that have a context alone: others must not shift the origin.
    if center == "overall":
        return ScoredRows(fit, Z - Z[codes >= 0].mean(axis=0), codes, names)
    # Stored scores may be centred already; subtracting their means, 0, once more does no harm.
    means = moments_by_code(Z, codes, len(fit.contexts))[0]
    means = np.vstack([means, np.full(Z.shape[1], np.nan)])  # code -1 indexes the last row
    return ScoredRows(fit, Z - means[codes], codes, names)


def per_row(values: Any, n: int, names: Array | None, argument: str, source: Any) -> Array:
    """Return one value for each of n rows: a sequence, or the name of a column of ``obs`` for an AnnData.

    A Series of pandas is matched by its index if the rows have names; see ``table_in_row_order``.
    """
    if isinstance(values, str):
        if not is_anndata(source):
            raise ValueError(
                f"{argument}={values!r} would be a column of obs, which only an AnnData has; pass {n} values."
            )
        if values not in source.obs.columns:
            raise ValueError(
                unknown(values, argument, source.obs.columns, "a column of adata.obs") + " Pass one, or values."
            )
        values = source.obs[values]
    if np.ma.is_masked(values):  # np.asarray would uncover what is masked
        values = np.where(np.ma.getmaskarray(values), None, values.data.astype(object))
    # Only a Series has an index to go by; a list is taken in the order of the rows.
    column = np.asarray(table_in_row_order(values, names, argument))
    if column.dtype.kind in "SU":  # text of a fixed length, which pandas would not take for text
        column = column.astype(object)
    if column.shape != (n,):
        raise ValueError(f"{argument} has shape {column.shape}; pass one value for each of the {n} rows.")
    return column


def table_in_row_order(table: Any, names: Array | None, argument: str) -> Any:
    """Return a Series or DataFrame of pandas in the order of the rows, by their names; anything else unchanged.

    Without this a table of patients sorted in its own way would give each row the values of another. The table may have
    more rows than the data; rows that it does not name get missing values.
    """
    pd = pandas()
    if names is None or not isinstance(table, (pd.Series, pd.DataFrame)):
        return table
    # None from ``places_of_rows``: the table is in the order of the rows already.
    rows = pd.Index(names)
    places = places_of_rows(rows, table.index, argument, some_missing=True)
    return table if places is None else table.reindex(rows)


def _sources(space: RowsByContext) -> list[Any]:
    """Return each source once, in the order of the contexts of the data."""
    return list({id(one): one for one in space.contexts.sources}.values())


def _row_names(source: Any, X: Any, n: int) -> Array | None:
    """Return the names of the rows, None if they have none."""
    if is_anndata(source):
        return np.asarray(index_of(source, "obs"))
    matrices = X.values() if isinstance(X, dict) else X
    blocks = list(matrices) if isinstance(X, (dict, list, tuple)) else [X]
    indices = [getattr(block, "obs_names", getattr(block, "index", None)) for block in blocks]
    if any(index is None or callable(index) for index in indices):  # a list has a method of that name
        return None
    if len(indices) > 1 and all(type(index).__name__ == "RangeIndex" for index in indices):
        return None  # the default index: each of several frames counts its rows from 0
    names = np.concatenate([np.asarray(index) for index in indices])
    return names if len(names) == n else None
