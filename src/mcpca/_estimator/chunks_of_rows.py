"""``partial_fit``: rows that come in chunks, of which only the moments are kept.

The moments of chunks add up to those of all rows, in whatever order they come, so the model after the last chunk is the
one that ``fit`` finds on all rows at once.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from .._covariances.moments import ContextMoments, moments_of_contexts
from .._data.annotations import take_annotations
from .._data.labels import label_columns
from .._data.preprocess import as_preprocess
from .._model.new_rows import check_n_features
from .._utils.types import Report
from ..exceptions import RankExceedsDataError
from .fitting import Fit, fit_moments, remembered_columns
from .parameters import Parameters


class AddedChunk(NamedTuple):
    """The moments of all rows so far, the columns that held labels, and the fit, or None while rows are too few."""

    moments: ContextMoments
    label_columns: tuple[str, ...]
    fit: Fit | None


def add_chunk(
    parameters: Parameters,
    before: ContextMoments | None,
    columns_before: tuple[str, ...],
    X: Any,
    y: Any,
    allow_duplicates: bool,
    report: Report,
    *,
    batch: Any = None,
    covariates: Any = None,
) -> AddedChunk:
    """Add a chunk to the moments ``before`` it, and fit all rows; a chunk that is refused changes nothing.

    ``columns_before`` are the columns of earlier chunks that held labels, batch or covariates.
    """
    spec = as_preprocess(parameters.preprocess)
    if spec is not None and spec.needs_rows:
        raise ValueError(
            f"partial_fit with preprocess={spec!r}: what it takes of the data (the median of totals, features, scales) "
            "is not known before the last chunk. Give it, Preprocess('log1p', target_sum=1e4), or pass all rows to fit."
        )
    parameters = replace(parameters, preprocess=None)
    parameters.refuse_options_of_rows("moments of chunks")
    # A chunk may bring its labels as an array; the columns that held those of earlier chunks are still no features.
    named = label_columns(X, y)
    annotated = take_annotations(X, y, batch=batch, covariates=covariates)
    X = annotated.X
    columns = tuple(dict.fromkeys([*columns_before, *named, *annotated.columns]))
    # First, so that the error is in the words that scikit-learn's checks expect.
    if before is not None and isinstance(X, np.ndarray) and X.ndim == 2:
        check_n_features(X.shape[1], before.means.shape[1])
    # A copy, so that the moments of the estimator stay as they were if the chunk or the fit fails.
    moments = copy.copy(before) if before is not None else ContextMoments()
    # A shallow copy is enough, because adding replaces arrays and changes none in place.
    contexts = annotated.contexts(min_samples=1, preprocess=spec, report=report)
    moments._add(moments_of_contexts(contexts, report), allow_duplicates)
    label_names = remembered_columns(X, columns)
    fit = _fit_if_possible(parameters, moments, label_names, report)
    if fit is not None:
        fit = fit._replace(model=replace(fit.model, preprocess=contexts.preprocess))
    return AddedChunk(moments, label_names, fit)


def _fit_if_possible(
    parameters: Parameters, moments: ContextMoments, columns: tuple[str, ...], report: Report
) -> Fit | None:
    # A single row has no covariance; the next chunk may bring more of its context.
    taken = 0 if moments.nuisance is None else moments.nuisance.ranks()
    if not (moments.counts - 1 - taken > 0).all():
        return None
    try:
        return fit_moments(parameters, moments, columns, report, complete=False)
    except RankExceedsDataError:  # so far the rows vary in fewer directions than there are components
        return None
