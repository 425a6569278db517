"""A fitted model as a Dataset of xarray: arrays with the names of their features, contexts and MCPCs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._data.columns import positions_of
from .._data.xarray_rows import MCPC, check_two_dimensions, column_coordinate, dataarray_matrix, is_dataarray
from .._utils.array_api import to_host
from .._utils.optional import require
from .fitted_model import FittedModel

CONTEXT = "context"


def dataset_of(model: FittedModel, names: Sequence[str], like: Any = None) -> Any:
    """Return the Dataset of a model whose MCPCs have these ``names``.

    Parameters
    ----------
    like : DataArray, optional
        With the features of the fit in its second dimension, which then has its name and its coordinates.
    """
    xarray = require("xarray", "xarray")
    feature, coords = ("feature", None) if like is None else _features_of(model, like)
    variables: dict[str, Any] = {
        "components": ((feature, MCPC), model.components),
        "projection": ((MCPC, feature), model.projection),
        "loadings": ((CONTEXT, MCPC), model.loadings),
        "corrected_loadings": ((CONTEXT, MCPC), model.corrected_loadings),
    }
    if model.noise_variance is not None:
        dims = (CONTEXT, feature) if model.noise_variance.ndim == 2 else (_noise_dimension(model, feature),)
        variables["noise_variance"] = (dims, model.noise_variance)
    if model.means is not None:
        variables["means"] = ((CONTEXT, feature), model.means)
    if model.n_samples is not None:
        variables["n_samples"] = ((CONTEXT,), model.n_samples)
    arrays = {name: (dims, to_host(values)) for name, (dims, values) in variables.items()}
    # As text where there is none: files of netCDF hold no None.
    attributes = {"solver": model.solver, "noise": model.noise or "none", "orthogonal": int(model.orthogonal)}
    dataset = xarray.Dataset(arrays, attrs=attributes)
    if coords is None and model.feature_names is not None:
        coords = column_coordinate(feature, model.feature_names.tolist())
    dataset = dataset if coords is None else dataset.assign_coords(coords)
    # Contexts that are tuples would become levels, which an axis of contexts is not.
    contexts = [str(name) if isinstance(name, tuple) else name for name in model.contexts.tolist()]
    return dataset.assign_coords(column_coordinate(CONTEXT, contexts)).assign_coords({MCPC: list(names)})


def _noise_dimension(model: FittedModel, feature: str) -> str:
    """Return the dimension of noise (k,) or (p,): by its model, since there may be as many features as contexts."""
    return feature if model.noise == "diagonal" else CONTEXT


def _features_of(model: FittedModel, like: Any) -> tuple[str, Any]:
    """Return the second dimension of ``like``, and its coordinates in the order of the features of the fit."""
    if not is_dataarray(like):
        raise TypeError(f"like is a {type(like).__name__}; pass a DataArray with rows and the features of the fit.")
    rows, feature = check_two_dimensions(like, "like")
    if feature in (MCPC, CONTEXT):
        raise ValueError(f"like calls its features {feature!r}, which is a dimension of the model; rename it.")
    columns = like.isel({rows: 0}, drop=True)
    _, names = dataarray_matrix(like, "like")
    if names is not None and model.feature_names is not None:
        way_out = "Pass rows with all features of the fit."
        places = positions_of(model.feature_names.tolist(), names, "like", "of the fit", way_out)
        columns = columns if places is None else columns.isel({feature: places})
    if columns.shape[0] != model.n_features:
        raise ValueError(f"like has {columns.shape[0]} features, and the model has {model.n_features}; pass its rows.")
    return feature, columns.coords
