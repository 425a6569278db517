"""New rows in an AnnData, brought to the features of a fit: by name, and by the axes of principal components."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._data.anndata_rows import axes_of, check_unique, feature_rows, layer_matrix
from .._data.columns import positions_of
from .._data.dask_rows import dask_product
from .._data.detect import is_dask
from .._data.projection import projected_rows
from .._data.sources import as_source
from .._utils.types import Array
from .anndata_layout import keys_of


def features_by_name(adata: Any, layer: str | None, features: list[str]) -> Any:
    """Return the named features of ``adata``, in this order, as ``feature_rows`` does; others are left out."""
    matrix, names = layer_matrix(adata, layer)
    check_unique(names, "adata")
    way_out = "Loadings need them all; add them, or fit on the features that both have."
    return feature_rows(matrix, positions_of(features, names.tolist(), "adata", "of the fit", way_out), "adata")


def rows_on_components(adata: Any, obsm: str, layer: str | None, fitted: Any, key: str, A: Array) -> Any:
    """Return new rows on the principal components of a fit: those in ``adata.obsm``, or else made from features.

    As ``feature_rows`` does. ``fitted`` is the AnnData with the fit, A (p, r) its MCPCs in terms of the components.
    """
    axes = _axes_of_fit(fitted, obsm, key, A)
    if obsm in adata.obsm and adata.obsm[obsm].shape[1] == len(A):
        _check_same_axes(adata, obsm, fitted, axes, len(A))
        return feature_rows(adata.obsm[obsm], None, f"adata.obsm[{obsm!r}]")
    if axes is None:
        found = f"has shape {adata.obsm[obsm].shape}" if obsm in adata.obsm else "is not there"
        raise ValueError(
            f"The fit was made on obsm={obsm!r} with {len(A)} columns, and adata.obsm[{obsm!r}] {found}. The axes of "
            "the fit are not known (adata.varm of the AnnData with the fit): put the new rows there, on the same "
            "components."
        )
    used = np.flatnonzero((axes != 0).any(axis=1))
    source = features_by_name(adata, layer, [str(name) for name in fitted.var_names[used]])
    # Centring is left to the contexts, each of which has its own mean taken off.
    if is_dask(source):
        return dask_product(source, axes[used])
    scores = projected_rows(source, axes[used], np.result_type(source.dtype, axes))
    return as_source(scores, "adata")


def _axes_of_fit(fitted: Any, obsm: str, key: str, A: Array) -> Array | None:
    """Return the axes of the components that were fitted, if they are still there and gave the stored MCPCs."""
    axes, stored = axes_of(fitted, obsm, len(A)), fitted.varm.get(keys_of(key).components)
    if axes is None or stored is None:
        return None
    same = np.allclose(axes @ A, np.asarray(stored), rtol=1e-3, atol=1e-4)
    return axes if same else None


def _check_same_axes(adata: Any, obsm: str, fitted: Any, axes: Array | None, p: int) -> None:
    """Raise where ``adata.obsm`` has rows on components of their own."""
    own = axes_of(adata, obsm, p)
    if own is None or adata is fitted:
        return
    if axes is not None:
        place = fitted.var_names.get_indexer(adata.var_names)
        known = place >= 0
        if known.any() and np.allclose(own[known], axes[place[known]], rtol=1e-3, atol=1e-4):
            return
    raise ValueError(
        f"adata.obsm[{obsm!r}] is on other components than those of the fit: the axes in adata.varm differ. Delete "
        f"adata.obsm[{obsm!r}], and the rows are projected on the axes of the fit where these are known; or project "
        "them yourself, and delete the axes from adata.varm."
    )
