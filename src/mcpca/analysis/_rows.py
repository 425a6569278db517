"""Rows that go with a fit, as the analyses need them: projections of all rows, moments by context, PCs of groups.

Rows are numbered as the user has them: those of one matrix as they come, those of a list or dict one context after the
other, those of an AnnData as in ``obs``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from .._data.alignment import places_in
from .._data.detect import is_anndata
from .._data.sources import check_block
from .._results.fitted import Fitted, fitted
from .._results.fitted_rows import (
    Directions,
    RowsByContext,
    principal_directions,
    rows_of_fit,
    sampled_rows,
    scores_are_stored,
)
from .._utils.component_names import unknown
from .._utils.types import Array
from ._tables import pandas

_BLOCK = 2**26  # bytes of rows at a time
_MOST = 100_000  # rows from which PCs are computed
NEEDS_ROWS = "pass X and y, in any form that fit takes, or an AnnData with the fit"


@dataclass(frozen=True)
class FittedRows:
    """Rows of the fitted contexts.

    Attributes
    ----------
    fit : Fitted
    space : Space
    codes : ndarray (n,) of int
        The fitted context of each row, -1 where it has none.
    names : ndarray (n,) or None
        Of the rows: an index of pandas, or ``obs_names`` of an AnnData.
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
        """Return ``x^T W`` (n, m) of all rows, for W (q, m) in the space of the fit. One pass, by blocks."""
        W = self.space.over_row_features(W)
        parts = []
        for source in _sources(self.space):
            Z = np.empty((source.shape[0], W.shape[1]))
            for first, block in source.scan(_BLOCK):
                check_block(block, first, "X")
                Z[first : first + block.shape[0]] = block @ W
            parts.append(Z)
        return np.concatenate(parts)

    def scores(self) -> Array:
        """Return the scores ``x^T pinv(A)^T`` (n, r) of all rows, not centred."""
        return self.project(self.space.projection.T)

    def moments(self, Z: Array) -> tuple[Array, Array]:
        """Return the mean and the variance (divisor n - 1) of the columns of Z (n, m) in each context: (k, m) each.

        A context without rows has NaN, one with a single row a variance of NaN.
        """
        return moments_by_code(Z, self.codes, len(self.fit.contexts))

    def covariances(self, Z: Array) -> Array:
        """Return the covariances (k, m, m) of the columns of Z (n, m) in each context, which has 2 rows or more."""
        self.check_rows(2)
        parts = (Z[self.codes == i] for i in range(len(self.fit.contexts)))
        return np.stack([np.atleast_2d(np.cov(part, rowvar=False)) for part in parts])

    def check_rows(self, least: int, among: Sequence[int] | None = None) -> None:
        """Raise where a fitted context, or one of ``among``, has fewer rows than ``least`` in the data given."""
        counts = np.bincount(self.codes[self.codes >= 0], minlength=len(self.fit.contexts))
        for i in range(len(counts)) if among is None else among:
            if counts[i] < least:
                raise ValueError(
                    f"Context {self.fit.contexts[i]!r} has {counts[i]} row(s) in the data given, and needs {least}; "
                    "pass more of its rows, or leave it out of the fit."
                )

    def principal_directions(self, m: int, among: Sequence[int] | None = None) -> Directions:
        """Return the top ``m`` PCs of the rows of the fitted contexts ``among``, or of all: overall PCs.

        As many as there are, where there are fewer. Of more than 100,000 rows a random sample is taken.
        """
        wanted = range(len(self.fit.contexts)) if among is None else among
        positions = [self.space.position(i, self.fit.contexts) for i in wanted]
        rows = sampled_rows(self.space, positions, _MOST).rows
        n, q = rows.shape
        if n < 2:
            raise ValueError(f"Context {self.fit.contexts[wanted[0]]!r} has 1 row, and PCs need 2; pass more rows.")
        return principal_directions(rows, min(m, n - 1, q))


def moments_by_code(Z: Array, codes: Array, k: int) -> tuple[Array, Array]:
    """Return means and variances (k, m) of rows Z (n, m) by their code, -1 being none."""
    member, n = codes >= 0, np.bincount(codes[codes >= 0], minlength=k)
    Z, own = Z[member], codes[member]
    sums = scipy.sparse.csr_array((np.ones(len(own)), (own, np.arange(len(own)))), shape=(k, len(own)))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (sums @ Z) / n[:, None]
        variance = (sums @ (Z - mean[own]) ** 2) / np.where(n > 1, n - 1, 0)[:, None]
    return np.asarray(mean), np.asarray(variance)


def same_contexts(source: Any, key: str) -> tuple[list[Any], list[Fitted]]:
    """Return one source or several as a list, and their fits, which have the same contexts in the same order."""
    sources = list(source) if isinstance(source, (list, tuple)) else [source]
    if not sources:
        raise ValueError("source is empty; pass at least one fitted model.")
    some = any(map(is_anndata, sources))  # for which key is meant
    fits = [fitted(one, key if is_anndata(one) or not some else "mcpca") for one in sources]
    if any(fit.contexts != fits[0].contexts for fit in fits):
        raise ValueError("The models of source have different contexts; fit all of them to the same rows.")
    return sources, fits


def rows_are_given(source: Any, X: Any, y: Any) -> bool:
    """Whether there are rows, which an AnnData brings; labels alone are none."""
    if X is None and y is not None:
        raise ValueError("y is given without X: labels go with rows; pass both, or neither.")
    return X is not None or is_anndata(source)


def read_rows(source: Any, key: str, X: Any, y: Any) -> FittedRows:
    """Return the rows that go with a fit, ``X`` and ``y`` for a model and those of the AnnData itself otherwise."""
    fit = fitted(source, key)
    space = rows_of_fit(source, fit, key, X, y)
    at = {position: i for i, position in enumerate(space.order) if position >= 0}
    renamed = np.array([at.get(i, -1) for i in range(len(space.contexts.names))] + [-1])
    codes = np.concatenate([renamed[space.contexts.codes(one)] for one in _sources(space)])
    return FittedRows(fit, space, codes, _row_names(source, X, len(codes)))


def scores_of_rows(source: Any, key: str, X: Any, y: Any, center: str) -> tuple[Fitted, Array, Array, Array | None]:
    """Return the fit, the scores (n, r) of rows, their contexts as codes, and their names where they have any.

    ``center`` "overall" takes off the mean of all rows with a context, "context" that of the row's own context; rows
    without a context then have NaN. No pass over the rows where an AnnData holds the scores.
    """
    if center not in ("overall", "context"):
        raise ValueError(f"center={center!r}; choose 'overall' or 'context'.")
    if is_anndata(source) and X is None and y is None and scores_are_stored(source, key, center):
        fit = fitted(source, key)
        assert fit.scores is not None
        assert fit.labels is not None
        at = {name: i for i, name in enumerate(fit.contexts)}
        codes, Z = np.array([at.get(label, -1) for label in fit.labels], dtype=np.intp), fit.scores
        names: Array | None = np.asarray(source.obs_names)
    else:
        rows = read_rows(source, key, X, y)
        fit, codes, Z, names = rows.fit, rows.codes, rows.scores(), rows.names
    if center == "overall":
        return fit, Z - Z[codes >= 0].mean(axis=0), codes, names
    means = np.vstack([moments_by_code(Z, codes, len(fit.contexts))[0], np.full(Z.shape[1], np.nan)])
    return fit, Z - means[codes], codes, names


def per_row(given: Any, n: int, names: Array | None, argument: str, source: Any) -> Array:
    """Return one value for each of n rows: a sequence, or for an AnnData the name of a column of ``obs``.

    A Series of pandas goes by its index where rows have names; see ``table_in_row_order``.
    """
    if isinstance(given, str):
        if not is_anndata(source):
            raise ValueError(
                f"{argument}={given!r} would be a column of obs, which only an AnnData has; pass {n} values."
            )
        if given not in source.obs.columns:
            raise ValueError(
                unknown(given, argument, source.obs.columns, "a column of adata.obs") + " Pass one, or values."
            )
        given = source.obs[given]
    if np.ma.is_masked(given):
        given = np.where(np.ma.getmaskarray(given), None, given.data.astype(object))
    values = np.asarray(table_in_row_order(given, names, argument))
    if values.dtype.kind in "SU":
        values = values.astype(object)
    if values.shape != (n,):
        raise ValueError(f"{argument} has shape {values.shape}; pass one value for each of the {n} rows.")
    return values


def table_in_row_order(given: Any, names: Array | None, argument: str) -> Any:
    """Return a Series or DataFrame of pandas in the order of the rows, by their names; anything else as it is.

    A table may have more rows; rows that it does not name have missing values. One that is sorted in its own way would
    otherwise give each row the values of another.
    """
    pd = pandas()
    if names is None or not isinstance(given, (pd.Series, pd.DataFrame)):
        return given
    index, rows = given.index, pd.Index(names)
    places = places_in(index, rows, argument, "X")
    if places is None:
        return given
    if (places < 0).all():
        raise ValueError(
            f"{argument} has an index that names none of the rows: {list(index[:3])}, where rows are {list(rows[:3])}. "
            f"Use the same names, or pass {argument}.to_numpy() in the order of the rows."
        )
    return given.reindex(rows)


def _sources(space: RowsByContext) -> list[Any]:
    """Return each source once, in the order of the contexts as they were given."""
    return list({id(one): one for one in space.contexts.sources}.values())


def _row_names(source: Any, X: Any, n: int) -> Array | None:
    """Return the names of the rows, None where they have none."""
    if is_anndata(source):
        return np.asarray(source.obs_names)
    blocks = list(X.values()) if isinstance(X, dict) else list(X) if isinstance(X, (list, tuple)) else [X]
    indices = [getattr(block, "obs_names", getattr(block, "index", None)) for block in blocks]
    if any(index is None or callable(index) for index in indices):
        return None
    if len(indices) > 1 and all(type(index).__name__ == "RangeIndex" for index in indices):
        return None  # each of several frames counts its rows from 0
    names = np.concatenate([np.asarray(index) for index in indices])
    return names if len(names) == n else None
