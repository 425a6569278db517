"""Rows that meet a fitted model: matched to its features by name, checked, and grouped by context.

Everything that takes rows after the fit comes through here (scores, new contexts, held-out scores, the bootstrap,
reports, pictures), so that all of them align features and read labels by the same rules as ``fit``.
"""

from __future__ import annotations

from typing import Any

from .._covariances.device_scores import finite_rows
from .._data.alignment import column_names, in_fitted_order
from .._data.annotations import take_annotations
from .._data.contexts import Contexts, NamedBlocks, named_blocks, read_contexts
from .._data.detect import InputKind, input_kind, is_source_like
from .._data.labels import without_columns
from .._data.preprocessed import PreprocessedSource, prepared_source, preprocessed, refuse_on_device
from .._data.sources import as_source
from .._data.union import read_union, refuse_nuisance
from .._data.validation import check_rows
from .._utils.array_api import is_device_array, stand_in, to_host
from .._utils.types import Array
from .._utils.user_warnings import warn
from .._utils.wording import quoted
from .fitted_model import FittedModel


def check_n_features(p: int, expected: int) -> None:
    """Raise unless rows have as many features as the fit, in the words that scikit-learn's checks expect."""
    if p != expected:
        raise ValueError(f"X has {p} features, but MCPCA is expecting {expected} features as input.")


def with_fitted_features(model: FittedModel, X: Any, where: str, kind: InputKind | None = None) -> tuple[Any, bool]:
    """Return one matrix with the features of the fit in their order, and whether they were matched by name.

    ``kind`` is that of X if the caller knows it.
    """
    # Columns that held labels may be in new tables as well, and would count as unknown features.
    X = without_columns(X, model.label_columns)
    names = raw_feature_names(model)
    return in_fitted_order(X, None if names is None else names.tolist(), n_raw_features(model), where, kind)


def raw_feature_names(model: FittedModel) -> Array | None:
    """Return the names of the features that rows have before they are prepared."""
    return model.feature_names if model.preprocess is None else model.preprocess.feature_names_in


def n_raw_features(model: FittedModel) -> int:
    """Return how many features rows have before they are prepared."""
    return model.n_features if model.preprocess is None else model.preprocess.n_features_in


def check_new_rows(model: FittedModel, X: Any, kind: InputKind | None = None) -> Any:
    """Return one matrix, checked and ready to be multiplied; ``kind`` is that of X if the caller knows it.

    Dense rows are returned as a finite array, on the host or on their device; sparse, stored and chunked rows, and all
    that are prepared as the model says, as a ``Source``; rows on Dask unchanged, since they are checked and prepared
    when they are read.
    """
    if isinstance(X, PreprocessedSource):
        return X
    rows = _check_raw_rows(model, X, kind)
    if model.preprocess is None or input_kind(rows) is InputKind.DASK:
        return rows
    if is_device_array(rows):
        refuse_on_device(model.preprocess.spec)
    return prepared_source(as_source(rows, "X"), model.preprocess, X)


def _check_raw_rows(model: FittedModel, X: Any, kind: InputKind | None = None) -> Any:
    """Return the same before anything is done to rows."""
    kind = input_kind(X) if kind is None else kind
    rows_given = X
    X, by_name = with_fitted_features(model, X, "X", kind)
    # Alignment may take the matrix out of an AnnData, or open chunks as a source.
    kind = kind if X is rows_given else input_kind(X)
    if kind is InputKind.DASK:
        return X
    # Values of stored rows are not looked at here, which would be a pass: they are checked when they are read.
    if is_source_like(X, kind):
        source = as_source(X, "X", kind)
        check_n_features(source.shape[1], n_raw_features(model))
        _check_not_empty(source.shape)
        return source
    if not by_name and hasattr(X, "shape") and len(X.shape) == 2:
        _warn_of_names_on_one_side(model, X)
    # Shapes are checked on a stand-in without values: rows on a device are not copied to the host for that.
    rows = check_rows(stand_in(X), "X")
    check_n_features(rows.shape[1], n_raw_features(model))
    _check_not_empty(rows.shape)
    return finite_rows(X, rows, "X", raw_feature_names(model))


def read_new_contexts(
    model: FittedModel,
    X: Any,
    y: Any,
    min_samples: int,
    *,
    groups: Any = None,
    batch: Any = None,
    covariates: Any = None,
) -> Contexts:
    """Return rows in any form that ``fit`` takes as contexts with the features of the fit, and what is said of them."""
    # Labels first: they may be columns of X, which are then not features.
    annotated = take_annotations(X, y, groups=groups, batch=batch, covariates=covariates)
    X = annotated.X
    y = annotated.y
    if not isinstance(X, Contexts):
        blocks = named_blocks(X)
        X = _check_raw_rows(model, to_host(X)) if blocks is None else _blocks_with_fitted_features(model, blocks)
    contexts = read_contexts(X, y, min_samples=min_samples)
    if contexts.preprocess is None:
        check_n_features(contexts.n_features, n_raw_features(model))
        contexts = preprocessed(contexts, model.preprocess, annotated.X, hold=True)
    check_n_features(contexts.n_features, model.n_features)
    return annotated.attach(contexts)


def read_incomplete(
    model: FittedModel,
    X: Any,
    y: Any,
    min_samples: int,
    *,
    groups: Any = None,
    batch: Any = None,
    covariates: Any = None,
) -> Contexts:
    """Return rows that may lack features as contexts over the features of the fit, NaN where one is missing."""
    refuse_nuisance(model.missing if model.missing != "error" else "union", batch, covariates)
    annotated = take_annotations(X, y, groups=groups, batch=None, covariates=None)
    refuse_incomplete(model)
    features = None if model.feature_names is None else model.feature_names.tolist()
    contexts = read_union(annotated.X, annotated.y, "union", features, min_samples=min_samples)
    check_n_features(contexts.n_features, model.n_features)
    return annotated.attach(contexts)


def refuse_incomplete(model: FittedModel) -> None:
    """Raise if rows that may lack features would have to be prepared."""
    if model.preprocess is not None:
        raise ValueError(
            f"missing='union' with a model of preprocess={model.preprocess.spec.kind_in_words()}: totals of rows that "
            "lack features are not those of the fit. Pass rows with all of its features, 0 where nothing was counted."
        )


def read_fitted_contexts(
    model: FittedModel, X: Any, y: Any, *, groups: Any = None, batch: Any = None, covariates: Any = None
) -> Contexts:
    """Return rows that can be those of the fit: with exactly its contexts, in its order, and its features."""
    # Rows of a model with missing features are read as its fit read them.
    read = read_new_contexts if model.missing == "error" else read_incomplete
    contexts = read(model, X, y, min_samples=2, groups=groups, batch=batch, covariates=covariates)
    names = contexts.names.tolist()
    fitted = model.contexts.tolist()
    if len(names) != len(fitted) or set(names) != set(fitted):
        raise ValueError(
            f"This needs the rows that the model was fitted on: X has the contexts {quoted(names)}, and the "
            f"model was fitted on {quoted(fitted)}."
        )
    _check_nuisance_of_fit(model, contexts)
    # Loadings of refitted models are compared with the fitted ones row by row.
    return contexts.in_order(fitted)


def _check_nuisance_of_fit(model: FittedModel, contexts: Contexts) -> None:
    """Raise unless rows of the fit come with the batch and the covariates that it removed."""
    given = contexts.nuisance
    if model.nuisance is not None:
        has_batch = given is not None and given.has_batch
        model.nuisance.check_complete(has_batch, given is not None and bool(given.columns))
    elif given is not None:
        raise ValueError(f"This model was fitted without {given.in_words()}; drop it, or fit with it.")


def _blocks_with_fitted_features(model: FittedModel, named: NamedBlocks) -> Any:
    names = named.names.tolist()
    # Block by block: tables of different contexts may have their columns in different orders.
    blocks = [
        with_fitted_features(model, block, f"X, context {name!r},")[0]
        for name, block in zip(names, named.blocks, strict=True)
    ]
    return dict(zip(names, blocks, strict=True)) if named.by_name else blocks


def _check_not_empty(shape: tuple[int, ...]) -> None:
    if shape[0] == 0:
        raise ValueError(f"X has 0 samples (shape={shape}) while a minimum of 1 is required.")


def _warn_of_names_on_one_side(model: FittedModel, X: Any) -> None:
    """Warn if only the fit or only the new rows have feature names, in the words of scikit-learn's own check."""
    names = column_names(X)
    fitted_names = raw_feature_names(model)
    has_names = names is not None and len(names) > 0 and all(isinstance(name, str) for name in names)
    if has_names and fitted_names is None:
        warn("X has feature names, but MCPCA was fitted without feature names")
    elif not has_names and fitted_names is not None:
        warn("X does not have valid feature names, but MCPCA was fitted with feature names")
