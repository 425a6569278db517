"""Scores of rows on the MCPCs, and rows from scores.

``z = pinv(A) (x - m)`` takes a row x of a context with mean m to its r scores, and ``x = A z + m`` takes scores back.
In the Gaussian model the first may be replaced by the expected scores given the row, ``B_i A^T Sigma_i^-1 (x - m)``.

``MCPCA.transform`` and ``inverse_transform`` call ``for_each_context``, which calls ``scores`` or ``rows_from_scores``
for one matrix, or once for each context of a list or dict. The function for one matrix is passed in, as each result
has to go through scikit-learn's ``set_output`` on its own. ``centering`` has the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .._covariances.device_scores import finite_rows
from .._covariances.streamed import context_means
from .._data.alignment import by_name, in_row_order
from .._data.annotations import by_block, take_annotations
from .._data.contexts import named_blocks, read_contexts
from .._data.dask_graph import computed
from .._data.detect import InputKind, has_dask_rows, input_kind, is_dask, is_source_like
from .._data.labels import encode_labels, name_array, rows_by_context, take_labels
from .._data.sources import as_source
from .._data.validation import check_rows
from .._utils.array_api import is_device_array, like, stand_in, to_host, without_gradient
from .._utils.optional import require
from .._utils.stages import uneven
from .._utils.types import Array, Report
from .centering import rows_of, scores_of
from .fitted_model import FittedModel
from .new_rows import check_new_rows, read_new_contexts


def for_each_context(
    model: FittedModel,
    X: Any,
    y: Any,
    center: Any,
    of_matrix: Callable[..., Any],
    report: Report,
    *,
    labels_needed: bool,
    **nuisance: Any,
) -> Any:
    """Return ``of_matrix(X, y, center)``, or a list or dict of its results for a list or dict of contexts.

    Parameters
    ----------
    of_matrix : function of (matrix, labels, center) and the batch and covariates of its rows
    labels_needed : bool
        Whether ``of_matrix`` uses the label of each row even if it is given the mean, as expected scores do.
    nuisance
        Batch and covariates of all rows, where ``of_matrix`` takes them.
    """
    named = named_blocks(X)
    nuisance = {name: value for name, value in nuisance.items() if value is not None}
    if named is None:
        return of_matrix(X, y, center, **nuisance)
    said = {name: by_block(value, named, name) for name, value in nuisance.items()}
    if y is not None:
        raise ValueError(f"y labels the rows of one 2-D X, but X is a {type(X).__name__} of contexts; drop y.")
    names = named.names.tolist()
    if center is not None:
        # Whatever was passed, a mean, a dict or "own", is resolved block by block, by the label of the block.
        centers = [center] * len(names)
    elif named.by_name:
        centers = model.context_means.of(names)
    else:
        centers = model.context_means.in_order(len(names))
    results = []
    labels_of_blocks = _labels_of(model, names, named.by_name, center)
    for j, (name, block, mean) in enumerate(zip(labels_of_blocks, named.blocks, centers, strict=True)):
        # Labels take the number of rows, which on Dask is a computation: none is made for labels that nobody reads.
        kind = input_kind(block)
        unlabelled = name is None or (has_dask_rows(block, kind) and not labels_needed and not said)
        labels = None if unlabelled else name_array([name]).repeat(_n_rows(block, kind))
        # Nuisance is centred by context and batch, and takes the place of the mean.
        own = {argument: values[j] for argument, values in said.items()}
        results.append(of_matrix(block, labels, None if own and center is None else mean, **own))
        report(uneven("scores"), len(results), len(names))
    return dict(zip(names, results, strict=True)) if named.by_name else results


def _labels_of(model: FittedModel, names: list[Any], by_name: bool, center: Any) -> list[Any]:
    """Return the fitted context that each block belongs to: by name, by position, or None if it has none."""
    if by_name:
        return names
    # A list is one of the fitted contexts only if its means were matched by position; with a given centre it may be of
    # new ones.
    return model.contexts.tolist() if center is None else [None] * len(names)


def _n_rows(block: Any, kind: InputKind) -> int:
    # ``len`` of a sparse matrix is an error in SciPy; its source knows the shape.
    return as_source(block, "X", kind).shape[0] if is_source_like(block, kind) else len(stand_in(block))


def scores(
    model: FittedModel,
    X: Any,
    y: Any,
    center: Any,
    posterior: bool,
    report: Report,
    *,
    batch: Any = None,
    covariates: Any = None,
) -> Any:
    """Return the scores (n, r) of one matrix; see ``MCPCA.transform``."""
    kind = input_kind(X)  # which taking a column out of a table does not change
    if batch is not None or covariates is not None:
        return _residual_scores(model, X, y, center, posterior, report, batch=batch, covariates=covariates)
    X, y = take_labels(X, y, kind)
    center = in_order_of_features(model, center)
    if has_dask_rows(X, kind):
        return _scores_on_dask(model, X, y, center, posterior)
    rows = check_new_rows(model, X, kind)
    ordinary = to_host(model.projection)
    # (rows, mean) for each context, or one pair for all rows.
    groups = model.context_means.by_rows(rows, y, center)
    if not posterior:
        projections = [ordinary] * len(groups)
    elif y is None:
        # No labels, hence one group and the projection of the average context.
        projections = posterior_projections(model, None) * len(groups)
    else:
        names, codes = encode_labels(y, rows.shape[0])
        projections = posterior_projections(model, names.tolist())
        if len(groups) == 1 < len(projections):
            # One mean for all rows, but a projection for each context: every context gets that mean.
            groups = [(members, groups[0][1]) for members in rows_by_context(codes)]
    return scores_of(rows, groups, projections, ordinary.dtype, report)


def _residual_scores(
    model: FittedModel, X: Any, y: Any, center: Any, posterior: bool, report: Report, *, batch: Any, covariates: Any
) -> Any:
    """Return the scores of rows less the nuisance that the fit removed, looked up by context, batch and name."""
    given = "batch" if covariates is None else "covariates"
    removed = model.nuisance
    if removed is None:
        raise ValueError(f"{given}: this model was fitted without batch and covariates; drop it, or fit with them.")
    if y is None:
        raise ValueError(
            f"{given}: nuisance was removed within contexts, and there are no labels of contexts here; pass y."
        )
    if center is not None:
        raise ValueError(f"center beside {given}: rows are centred by their context and batch; drop one of the two.")
    if posterior:
        raise ValueError(
            f"posterior=True beside {given}: nuisance is known in scores only, and not in all features; drop one of "
            "the two."
        )
    annotated = take_annotations(X, y, batch=batch, covariates=covariates, coding=removed.coding)
    assert annotated.annotations is not None
    Z = scores(model, annotated.X, annotated.y, None, False, report)
    names, codes = encode_labels(computed(annotated.y), Z.shape[0])
    way_out = "Drop batch and covariates, and pass center='own', for contexts that are new."
    places = np.array(model.positions_of(names.tolist(), given, way_out))
    offsets = removed.offsets(annotated.annotations, places[codes])
    if is_dask(Z):
        return Z - require("dask.array", "dask").from_array(offsets.astype(Z.dtype), chunks=Z.chunks)
    return Z - like(offsets.astype(to_host(Z).dtype), Z)


def _scores_on_dask(model: FittedModel, X: Any, y: Any, center: Any, posterior: bool) -> Any:
    """Return the scores of rows on Dask as a Dask array that has not been computed yet."""
    contexts = read_new_contexts(model, X, y, min_samples=1)
    assert contexts.engine is not None
    names = None if y is None else contexts.names.tolist()
    projections = posterior_projections(model, names) if posterior else [to_host(model.projection)]
    means = list(model.context_means.by_context(names, center, lambda: list(context_means(contexts))))
    # There may be one mean, or one projection, for all contexts: it is repeated.
    n = max(len(means), len(projections))
    pairs = zip(means * (n // len(means)), projections * (n // len(projections)), strict=True)
    # (x - m) P^T = x P^T - m P^T: the workers need only the offsets (n, r) and not the means.
    offsets = np.array([mean @ projection.T for mean, projection in pairs])
    return contexts.engine.scores(offsets, projections)


def posterior_projections(model: FittedModel, names: list[Any] | None) -> list[Array]:
    """Return the matrix ``B_i A^T Sigma_i^-1`` (r, p) for each of the contexts ``names``, or one for their average."""
    gaussian = model.gaussian("posterior=True")
    # The matrix has no units, so the model may be scaled to where squares neither overflow nor underflow.
    gaussian = gaussian.times_power(-gaussian.exponent)
    weights = np.ones(len(model.contexts)) if model.n_samples is None else model.n_samples
    if names is None:
        return [gaussian.posterior_projection(None, weights)]
    way_out = "Drop y to shrink by the average context, or drop posterior."
    places = model.positions_of(names, "posterior=True", way_out)
    return [gaussian.posterior_projection(i, weights) for i in places]


def rows_from_scores(model: FittedModel, X: Any, y: Any, center: Any) -> Any:
    """Return rows (n, p) with the scores in one matrix; see ``MCPCA.inverse_transform``."""
    # Scores have no trace of the mean that was subtracted.
    if isinstance(center, str) and center == "own":
        raise ValueError("center='own' is not known from scores; pass the mean itself.")
    center = in_order_of_features(model, center)
    if has_dask_rows(X):
        return _rows_on_dask(model, X, y, center)
    # Scores pass the checks of rows; a stand-in without values tells the shape of a device array.
    if is_device_array(X):
        X = without_gradient(X)
    Z = check_rows(stand_in(X), "X")
    _check_n_scores(Z.shape[1], model.n_components)
    Z = finite_rows(X, Z, "X", None)
    groups = model.context_means.by_rows(Z, in_row_order(X, y), center)
    return rows_of(Z, groups, to_host(model.components))


def _rows_on_dask(model: FittedModel, Z: Any, y: Any, center: Any) -> Any:
    contexts = read_contexts(Z, y, min_samples=1)
    _check_n_scores(contexts.n_features, model.n_components)
    assert contexts.engine is not None
    means = model.context_means.by_context(None if y is None else contexts.names.tolist(), center, list)
    # z A^T + m has the form of scores, z P^T - offset, with P = A and the offset -m.
    return contexts.engine.scores(-np.array(means), [to_host(model.components)])


def in_order_of_features(model: FittedModel, center: Any) -> Any:
    """Return ``center`` with means in the order of the features: by name if they are Series and the fit has names."""
    if model.feature_names is None or center is None or isinstance(center, str):
        return center
    if isinstance(center, Mapping):
        return {label: in_order_of_features(model, mean) for label, mean in center.items()}
    return by_name(center, model.feature_names.tolist(), "center", "the features of the fit")


def _check_n_scores(n_columns: int, r: int) -> None:
    if n_columns != r:
        raise ValueError(f"X has {n_columns} columns, but scores of this model have {r}.")
