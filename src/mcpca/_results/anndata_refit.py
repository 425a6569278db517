"""The rows of a fit that is stored in an AnnData, as they were fitted, for what needs them again.

``mcpca.tl.replicability``, ``bootstrap`` and reports call this. Layer, entry of ``obsm``, features and contexts are
those that the fit remembers, so that nobody has to name them again; the rows stay where they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._data.anndata_rows import feature_rows, layer_matrix
from .._data.annotations import annotations_of_obs
from .._data.contexts import Contexts, contexts_of_codes
from .._data.dask_reading import DaskReader
from .._data.dask_rows import coded_contexts
from .._data.detect import is_dask
from .._data.fitted_preprocess import FittedPreprocess
from .._data.labels import Coded
from .._data.preprocessed import preprocessed
from .._utils.types import Array
from .._utils.user_warnings import warn
from .._utils.wording import listed
from .anndata_layout import Columns, columns_of_fit, features_are_lost, keys_of, obs_columns, stored_fit
from .anndata_preprocess import fitted_preprocess


def contexts_of_fit(adata: Any, key: str, groups: Any = None, *, readable: bool = False) -> Contexts:
    """Return the rows of the fit under ``key`` by their contexts.

    Rows on Dask are there for passes; ``readable`` ones can be drawn by number instead, and only these come here.

    They bring the batch and the covariates that the fit removed, and ``groups`` by the name of a column of ``obs``, or
    those that the fit remembers. Every context must still have 2 rows. A warning says so where rows have been removed,
    or added, since the fit.
    """
    stored = stored_fit(adata, key)
    names = np.array([str(name) for name in stored["loadings"].index])
    source = _source_of_fit(adata, key, stored)
    codes = _codes(adata, key, names)
    features = stored.get("features")
    steps = fitted_preprocess(stored)
    if steps is not None:
        features = steps.feature_names_in
    features = None if features is None else np.asarray(features).astype(str)
    # Rows on Dask stay there, and get their codes.
    if is_dask(source) and readable:
        contexts = contexts_of_codes(DaskReader(source, "adata"), codes, names, features)
    elif is_dask(source):
        contexts = coded_contexts(source, Coded(codes, names), features, "adata")
    else:
        contexts = contexts_of_codes(source, codes, names, features)
    contexts = preprocessed(contexts, steps, adata, hold=True)
    _check_counts(contexts, np.asarray(stored["contexts"]["n_samples"]), key)
    said = {name: _names(stored["params"].get(name)) for name in ("groups", "batch", "covariates")}
    return annotations_of_obs(adata, **(said if groups is None else said | {"groups": groups})).attach(contexts)


def _names(value: Any) -> Any:
    """Return names of columns as they were passed: files have several as an array."""
    return value if value is None or isinstance(value, str) else [str(name) for name in value]


def _source_of_fit(adata: Any, key: str, stored: dict[str, Any]) -> Any:
    """Return all rows of ``adata`` with the features of a fit, in its order; a Dask array if they are on Dask."""
    params = stored["params"]
    obsm = params.get("obsm")
    layer = params.get("layer")
    if obsm is not None:
        matrix = entry_of_fit(adata.obsm, obsm, "obsm")
        p = len(stored["components"])
        if matrix.shape[1] != p:
            raise ValueError(
                f"The fit was made on adata.obsm[{obsm!r}] with {p} columns, which now has {matrix.shape[1]}; put back "
                "what was fitted, or fit again."
            )
        return feature_rows(matrix, None, f"adata.obsm[{obsm!r}]")
    if layer is not None:
        entry_of_fit(adata.layers, layer, "layers")
    steps = fitted_preprocess(stored)
    # Rows that are prepared need all features that the fit had, for their totals.
    columns = columns_of_fit(adata, key, stored) if steps is None else columns_of_raw(adata, steps)
    if columns.lost:
        raise features_are_lost(len(columns.positions) + len(columns.lost), columns.lost)
    # None where they are all features in their order: the matrix is then taken as it is.
    is_all = np.array_equal(columns.positions, np.arange(adata.n_vars))
    matrix, _ = layer_matrix(adata, layer)
    where = "adata.X" if layer is None else f"adata.layers[{layer!r}]"
    return feature_rows(matrix, None if is_all else columns.positions, where)


def columns_of_raw(adata: Any, steps: FittedPreprocess) -> Columns:
    """Return the positions in ``var`` of all features that rows had before they were prepared."""
    if steps.feature_names_in is None:
        return Columns(np.arange(steps.n_features_in), [])
    names = [str(name) for name in steps.feature_names_in.tolist()]
    positions = np.asarray(adata.var_names.astype(str).get_indexer(names))
    lost = [name for name, position in zip(names, positions, strict=True) if position < 0]
    return Columns(positions[positions >= 0], lost)


def preprocessed_of_fit(adata: Any, key: str, steps: FittedPreprocess, codes: Array, names: Array) -> Contexts:
    """Return the rows of an AnnData prepared as those of the fit under ``key``, by the contexts ``codes`` (n,)."""
    source = _source_of_fit(adata, key, stored_fit(adata, key))
    return preprocessed(contexts_of_codes(source, codes, names, None), steps, adata)


def entry_of_fit(mapping: Any, name: str, place: str) -> Any:
    """Return ``adata.<place>[name]``, which a fit was made on; raise if it is gone."""
    if name not in mapping:
        raise ValueError(
            f"The fit was made on adata.{place}[{name!r}], which no longer exists; put it back, or fit again."
        )
    return mapping[name]


def _codes(adata: Any, key: str, names: Array) -> Array:
    """Return the position of each row's context (n,), -1 for rows that were not fitted."""
    column = keys_of(key).context
    if column not in adata.obs.columns:
        raise ValueError(
            f"adata.obs[{column!r}], the contexts of the fit, no longer exists; put it back, or fit again."
        )
    position = {name: i for i, name in enumerate(names.tolist())}
    labels = np.asarray(obs_columns(adata, [column])[column].astype(object))
    return np.array([position.get(label, -1) for label in labels.tolist()], dtype=np.intp)


def _check_counts(contexts: Contexts, fitted: Array, key: str) -> None:
    """Raise if a context has no longer enough rows for a covariance, and warn if the rows are not those of the fit."""
    counts = contexts.n_samples
    few = [f"{contexts.names[i]} ({counts[i]})" for i in np.flatnonzero(counts < 2)]
    if few:
        raise ValueError(
            f"{len(few)} of {len(counts)} contexts of the fit have fewer than 2 rows left in adata: {listed(few)}. "
            "Pass the AnnData with the rows of the fit, or fit again."
        )
    if not np.array_equal(counts, fitted):
        warn(
            f"adata has {counts.sum():,} rows in the contexts of the fit under key={key!r}, which was made on "
            f"{fitted.sum():,}; the result is about the rows that are there."
        )
