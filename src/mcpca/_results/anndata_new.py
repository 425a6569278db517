"""New rows in an AnnData, aligned with the features of a fit: by name, or by the axes of principal components.

``mcpca.tl.loadings_for`` and ``transform`` call this. Axes of two PCAs of similar data look alike, and loadings on the
wrong ones are nonsense without any error; so axes are compared wherever both are known.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._data.anndata_rows import axes_of, check_unique, feature_rows, layer_matrix
from .._data.columns import positions_of
from .._data.dask_graph import computed
from .._data.dask_rows import dask_product, first_rows
from .._data.detect import index_of, is_dask
from .._data.projection import projected_rows
from .._data.sources import as_source
from .._utils.types import Array
from .anndata_layout import keys_of

# Axes that are the same up to the precision of float32, in which files often keep them.
_SAME_AXES_RTOL = 1e-3
_SAME_AXES_ATOL = 1e-4
# Rows of the fit from which the mean of a PCA is read; any one has it, and the others show that it is the mean.
_ROWS_COMPARED = 50


def features_by_name(adata: Any, layer: str | None, features: list[str]) -> Any:
    """Return the rows of ``adata`` with these features, in this order, in the form of ``feature_rows``."""
    matrix, names = layer_matrix(adata, layer)
    # A repeated name would leave open which of its columns is meant.
    check_unique(names, "adata")
    way_out = "All are needed; add them, or fit on the features that both have."
    return feature_rows(matrix, positions_of(features, names.tolist(), "adata", "of the fit", way_out), "adata")


def rows_on_components(
    adata: Any, obsm: str, layer: str | None, fitted: Any, key: str, A: Array, *, centred: bool
) -> Any:
    """Return new rows on the principal components of a fit: from ``adata.obsm``, or else projected from features.

    In the form of ``feature_rows``. ``fitted`` is the AnnData with the fit, A (p, r) its MCPCs in terms of these.
    ``centred`` also subtracts the mean that the PCA did, without which rows cannot be compared with means of the fit.
    """
    axes = _axes_of_fit(fitted, obsm, key, A)
    # Rows that are already on components are preferred, unless their axes are known to be others.
    if obsm in adata.obsm and adata.obsm[obsm].shape[1] == len(A):
        _check_same_axes(adata, obsm, fitted, axes, len(A))
        return feature_rows(adata.obsm[obsm], None, f"adata.obsm[{obsm!r}]")
    if axes is None:
        state = f"has shape {adata.obsm[obsm].shape}" if obsm in adata.obsm else "is not there"
        raise ValueError(
            f"The fit was made on obsm={obsm!r} with {len(A)} columns, and adata.obsm[{obsm!r}] {state}. The axes of "
            "the fit are not known (adata.varm of the AnnData with the fit): put the new rows there, on the same "
            "components."
        )
    # Features outside the PCA have zeros for axes, and new data need not have them.
    used = np.flatnonzero((axes != 0).any(axis=1))
    source = features_by_name(adata, layer, [str(name) for name in index_of(fitted, "var")[used]])
    # Where every context is centred by its own mean later, that of the PCA makes no difference.
    offset = _offset_of_fit(fitted, obsm, layer, axes, used) if centred else 0.0
    # Rows on Dask stay lazy.
    if is_dask(source):
        return dask_product(source, axes[used]) - offset
    scores = projected_rows(source, axes[used], np.result_type(source.dtype, axes))
    return as_source(np.asarray(scores - offset, scores.dtype), "adata")


def _offset_of_fit(fitted: Any, obsm: str, layer: str | None, axes: Array, used: Array) -> Array:
    """Return ``mean @ axes`` (q,) of the PCA behind a fit, from the rows that have both features and components.

    Components are ``(x - mean) @ axes``, so that ``x @ axes - components`` is the same for every row. Where it is not,
    the components were made from something else than these features.
    """
    n = min(_ROWS_COMPARED, fitted.n_obs)
    some = fitted[:n]
    source = features_by_name(some, layer, [str(name) for name in index_of(fitted, "var")[used]])
    rows: Any = first_rows(source, n) if is_dask(source) else source.gather(slice(0, n))
    known = np.asarray(computed(some.obsm[obsm]), dtype=np.float64)[: rows.shape[0]]
    offsets = np.asarray(rows @ axes[used].astype(np.float64)) - known
    # The median, so that one row that was changed does not count.
    offset = np.median(offsets, axis=0)
    if np.abs(offsets - offset).max() > _SAME_AXES_RTOL * max(np.abs(known).max(), np.abs(offset).max()):
        raise ValueError(
            f"The mean that the components in obsm={obsm!r} were centred by is not known: in the AnnData with the fit, "
            f"they are not those of {'X' if layer is None else f'layers[{layer!r}]'}. Put the new rows on the same "
            f"components into adata.obsm[{obsm!r}], name the layer that the components are of, or pass center='own'."
        )
    return np.asarray(offset)


def _axes_of_fit(fitted: Any, obsm: str, key: str, A: Array) -> Array | None:
    """Return the axes of the components that were fitted, if they still are those that gave the stored MCPCs."""
    axes = axes_of(fitted, obsm, len(A))
    stored = fitted.varm.get(keys_of(key).components)
    if axes is None or stored is None:
        return None
    # A later PCA may have replaced the axes; the stored MCPCs are the product of those of the fit.
    return axes if _nearly_equal(axes @ A, np.asarray(stored)) else None


def _check_same_axes(adata: Any, obsm: str, fitted: Any, axes: Array | None, p: int) -> None:
    """Raise if ``adata.obsm`` has rows on other components than the fit."""
    new_axes = axes_of(adata, obsm, p)
    # Without axes in ``adata`` there is nothing to compare: the user's word counts.
    if new_axes is None or adata is fitted:
        return
    if axes is not None:
        # Only features that both have can be compared; place -1 is for the others.
        place = index_of(fitted, "var").get_indexer(index_of(adata, "var"))
        shared = place >= 0
        if shared.any() and _nearly_equal(new_axes[shared], axes[place[shared]]):
            return
    raise ValueError(
        f"adata.obsm[{obsm!r}] is on other components than those of the fit: the axes in adata.varm differ. Delete "
        f"adata.obsm[{obsm!r}], and the rows are projected on the axes of the fit if these are known; or project "
        "them yourself, and delete the axes from adata.varm."
    )


def _nearly_equal(first: Array, second: Array) -> bool:
    return np.allclose(first, second, rtol=_SAME_AXES_RTOL, atol=_SAME_AXES_ATOL)
