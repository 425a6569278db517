"""What a fit takes from an AnnData: some of its features, and contexts from columns of ``obs``."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from .._utils.arguments import check_integer, check_unmasked
from .._utils.optional import require
from .._utils.types import Array
from ..exceptions import DroppedContextsWarning, RawCountsWarning
from .alignment import NamedMatrix, columns_of, with_columns
from .contexts import Contexts, contexts_of_codes
from .dask_rows import coded_contexts, first_rows
from .detect import Kind, anndata_parts, input_kind, is_anndata, is_dask
from .labels import Coded, check_column_names, cross_labels, distinct, read_labels
from .sources import as_source

EXTRA = "anndata"
_LOOKED_AT = 200  # rows, to tell counts from normalised values
_LARGE_COUNT = 10  # what is not larger may be genotypes, answers of a questionnaire, ...


def check_anndata(adata: Any, argument: str = "adata") -> None:
    """Raise where ``adata`` is no AnnData, or AnnData cannot be imported."""
    require("anndata", EXTRA)
    if not is_anndata(adata):
        raise TypeError(f"{argument} is a {type(adata).__name__} and no AnnData; mcpca.MCPCA takes everything else.")


@dataclass(frozen=True)
class FeatureSpace:
    """The features of a fit.

    Attributes
    ----------
    source : Source or Dask array
        Rows (n, p), all of the AnnData's.
    names : ndarray (p,) of str, or None
        Of the features; None for the columns of an array in ``obsm``.
    columns : ndarray (p,), or None
        Positions of the features in ``var``; None where they are all of it, or not in it.
    axes : ndarray (n_vars, p), or None
        Where features are principal components in ``obsm``: their axes.
    in_var : bool
        Whether features are some of ``var``.
    mask_var : str, ndarray or None
        What was selected by, with "auto" resolved.
    """

    source: Any
    names: Array | None
    columns: Array | None
    axes: Array | None
    in_var: bool
    mask_var: Any

    def over_var(self, vectors: Array, n_vars: int) -> Array | None:
        """Return vectors (p, r) of the fit as (n_vars, r): zeros for features left out; None where there is no way."""
        if not self.in_var:
            return None if self.axes is None else np.asarray(self.axes @ vectors)
        if self.columns is None:
            return vectors
        full = np.zeros((n_vars, vectors.shape[1]), dtype=vectors.dtype)
        full[self.columns] = vectors
        return full


def space_of(adata: Any, layer: str | None, obsm: str | None, mask_var: Any) -> FeatureSpace:
    """Return the features that these arguments of ``mcpca.tl.mcpca`` mean. Nothing sparse is made dense."""
    if obsm is not None:
        return _space_of_obsm(adata, layer, obsm, mask_var)
    matrix, names = matrix_of(adata, layer)
    check_unique(names, "adata")
    if _is_text(mask_var, "auto"):
        mask_var = default_mask(adata.var)
    columns = None if mask_var is None else _masked_columns(adata, mask_var)
    if columns is None or len(columns) == len(names):
        return FeatureSpace(feature_rows(matrix, None, _where(layer)), names, None, None, True, mask_var)
    return FeatureSpace(feature_rows(matrix, columns, _where(layer)), names[columns], columns, None, True, mask_var)


def default_mask(var: Any) -> str | None:
    """Return the column of ``var`` that selects features where the user names none: scanpy's, if it is there."""
    return "highly_variable" if "highly_variable" in var.columns else None


def feature_rows(matrix: Any, columns: Array | None, where: str) -> Any:
    """Return these columns of a matrix as a ``Source``, of one on Dask as a Dask array; None is all of them."""
    X, kind, _ = with_columns(NamedMatrix(matrix, input_kind(matrix), None), columns, where)
    return X if kind is Kind.DASK else as_source(X, where, kind)


def matrix_of(adata: Any, layer: str | None) -> tuple[Any, Array]:
    """Return ``X`` or a layer, and the names of features (n_vars,) of str."""
    if layer is None:
        matrix, names = anndata_parts(adata)
    else:
        check_column_names([layer], list(adata.layers), "layer", "adata.layers", "or None for adata.X", "is not in")
        matrix, names = adata.layers[layer], np.asarray(adata.var_names).astype(str)
    return matrix, names


def _where(layer: str | None) -> str:
    return "adata.X" if layer is None else f"adata.layers[{layer!r}]"


def check_unique(names: Array, argument: str) -> None:
    """Raise where names of features are not unique."""
    found, counts = np.unique(names, return_counts=True)
    twice = found[counts > 1]
    if len(twice):
        some = ", ".join(map(repr, twice[:5].tolist())) + (f" and {len(twice) - 5} more" if len(twice) > 5 else "")
        raise ValueError(
            f"{argument}.var_names has {len(twice)} names that more than one feature has: {some}. Results go by name; "
            f"call {argument}.var_names_make_unique() first."
        )


def _space_of_obsm(adata: Any, layer: str | None, obsm: str, mask_var: Any) -> FeatureSpace:
    if layer is not None:
        raise ValueError(f"layer={layer!r} and obsm={obsm!r} are both given; the rows come from one of them. Drop one.")
    if mask_var is not None and not _is_text(mask_var, "auto"):
        raise ValueError(
            f"mask_var={mask_var!r} selects features of var, and obsm={obsm!r} has its own; drop mask_var."
        )
    check_column_names([obsm], list(adata.obsm), "obsm", "adata.obsm", "as in obsm='X_pca'", "is not in")
    matrix = adata.obsm[obsm]
    columns = columns_of(matrix)
    source = feature_rows(matrix, None, f"adata.obsm[{obsm!r}]")
    names = None if columns is None else np.array([str(c) for c in columns])
    return FeatureSpace(source, names, None, axes_of(adata, obsm, source.shape[1]), False, None)


def axes_of(adata: Any, obsm: str, p: int) -> Array | None:
    """Return the axes (n_vars, p) of principal components in ``obsm``, where scanpy keeps them; None without."""
    key = "PCs" if obsm == "X_pca" else obsm
    axes = np.asarray(adata.varm[key]) if key in adata.varm else None
    return axes if axes is not None and axes.ndim == 2 and axes.shape[1] == p else None


def _is_text(value: Any, text: str) -> bool:
    return isinstance(value, str) and value == text


def _masked_columns(adata: Any, mask_var: Any) -> Array:
    """Return the positions in ``var`` that a mask selects."""
    shown = repr(mask_var) if isinstance(mask_var, str) else f"<{type(mask_var).__name__}>"
    if isinstance(mask_var, str):
        otherwise = "a mask (n_vars,), or None for all features"
        check_column_names([mask_var], list(adata.var.columns), "mask_var", "adata.var", otherwise)
        mask_var = adata.var[mask_var]
    mask = np.asarray(check_unmasked(mask_var, "mask_var", "True or False is needed for each feature"))
    if mask.dtype == object and all(isinstance(v, (bool, np.bool_)) for v in mask.ravel().tolist()):
        mask = mask.astype(bool)
    if mask.dtype != bool or mask.shape != (adata.n_vars,):
        raise ValueError(
            f"mask_var={shown} has dtype {mask.dtype} and shape {mask.shape}; True or False is needed for each of the "
            f"{adata.n_vars} features, without gaps."
        )
    if not mask.any():
        raise ValueError(f"mask_var={shown} selects none of the {adata.n_vars} features; pass None to take all.")
    return np.flatnonzero(mask)


def counts_in(source: Any) -> tuple[int, float] | None:
    """Return how many rows were looked at and their largest value, where these look like counts, and None elsewhere."""
    n = min(_LOOKED_AT, source.shape[0])
    block: Any = first_rows(source, n) if is_dask(source) else source.gather(slice(0, n))
    values = block.data if scipy.sparse.issparse(block) else np.asarray(block).ravel()
    largest = float(values.max(initial=0.0))
    # NaN and infinite values are for the fit to tell.
    if not _LARGE_COUNT < largest < np.inf or not (values >= 0).all() or (values != np.floor(values)).any():
        return None
    return int(block.shape[0]), largest


def warn_of_counts(space: FeatureSpace, layer: str | None, stacklevel: int) -> str | None:
    """Warn where the first rows are whole numbers, none negative and some large; return what was said.

    Cost: a reading of 200 rows.
    """
    if not space.in_var:
        return None
    seen = counts_in(space.source)
    if seen is None:
        return None
    n_rows, largest = seen
    text = (
        f"{_where(layer)} looks like raw counts (whole numbers up to {largest:.0f} in its first {n_rows} "
        "rows): the largest variation is then how much was counted in each row. Normalise it first, with "
        "sc.pp.normalize_total(adata) and sc.pp.log1p(adata), or pass the layer that is normalised."
    )
    warnings.warn(text, RawCountsWarning, stacklevel=stacklevel + 1)
    return text


# Contexts


@dataclass(frozen=True)
class ObsContexts:
    """Contexts of the rows of an AnnData.

    Attributes
    ----------
    names : ndarray (k,) of str
        Of the contexts with enough rows.
    codes : ndarray (n,)
        Position of each row's context in ``names``; -1 where it has none, or one that was left out.
    levels : list of ndarray (k,) of str
        For each crossed column, the label of each context in it.
    dropped : list of (str, int)
        Contexts that were left out, and their rows.
    n_missing : int
        Rows without a label.
    """

    names: Array
    codes: Array
    levels: list[Array]
    dropped: list[tuple[str, int]]
    n_missing: int

    def with_rows(self, space: FeatureSpace) -> Contexts:
        """Return the contexts with their rows in the features of a fit."""
        if is_dask(space.source):
            return coded_contexts(space.source, Coded(self.codes, self.names), space.names, "adata")
        return contexts_of_codes(space.source, self.codes, self.names, space.names)

    def warn(self, min_samples: int, stacklevel: int) -> list[str]:
        """Warn of what was left out; return what was said."""
        texts = []
        if self.dropped:
            shown = ", ".join(f"{name!r} ({n})" for name, n in self.dropped[:5])
            more = f" and {len(self.dropped) - 5} more" if len(self.dropped) > 5 else ""
            texts.append(
                f"{len(self.dropped)} of {len(self.dropped) + len(self.names)} contexts have fewer than "
                f"min_samples={min_samples} rows and are left out, {sum(n for _, n in self.dropped)} rows in all: "
                f"{shown}{more}."
            )
        if self.n_missing:
            texts.append(f"{self.n_missing} of {len(self.codes)} rows have no context and are left out.")
        for text in texts:
            warnings.warn(text, DroppedContextsWarning, stacklevel=stacklevel + 1)
        return texts


def contexts_of_obs(
    adata: Any, context_key: Any, *, min_samples: Any, missing: str, single: bool = False
) -> ObsContexts:
    """Read contexts from one column of ``obs``, or several that are crossed.

    ``missing`` is "error" or "drop", for rows without a label; ``single`` allows one context only. Names are text.
    """
    min_samples = check_integer(min_samples, "min_samples", 2, way_out="A covariance needs 2 rows.")
    if missing not in ("error", "drop"):
        raise ValueError(f"missing={missing!r}; choose 'error' or 'drop', for rows without a context.")
    keys = [context_key] if isinstance(context_key, str) else context_key
    if not isinstance(keys, (list, tuple)) or not keys or not all(isinstance(key, str) for key in keys):
        raise TypeError(f"context_key={context_key!r}; pass the name of a column of adata.obs, or a list of names.")
    keys = check_column_names(list(keys), list(adata.obs.columns), "context_key", "adata.obs", "or a list of names")
    columns = [adata.obs[key] for key in keys]
    coded = read_labels(columns[0]) if len(keys) == 1 else cross_labels(columns)
    n_missing = int((coded.codes < 0).sum())
    if n_missing and missing == "error":
        raise ValueError(
            f"context_key={context_key!r}: {n_missing} of {adata.n_obs} rows have no label (NaN). missing='drop' "
            "leaves them out of the fit; or give them a context in adata.obs."
        )
    names = np.array(distinct([str(name) for name in coded.categories]), dtype=str)
    counts = np.bincount(coded.codes[coded.codes >= 0], minlength=len(names))
    enough = counts >= min_samples
    _check_number(context_key, names, counts, enough, min_samples, single)
    codes = np.append(np.where(enough, np.cumsum(enough) - 1, -1), -1)[coded.codes]  # the last is for what is missing
    dropped = list(zip(names[~enough].tolist(), counts[~enough].tolist(), strict=True))
    levels = _levels(columns, codes, int(enough.sum())) if len(keys) > 1 else []
    return ObsContexts(names[enough], codes, levels, dropped, n_missing)


def _levels(columns: list[Any], codes: Array, k: int) -> list[Array]:
    """Return the label of each context in each column, from the first of its rows."""
    first = np.unique(codes, return_index=True)[1][-k:]
    coded: list[Coded] = [read_labels(column) for column in columns]
    return [np.array([str(own.categories[c]) for c in own.codes[first]]) for own in coded]


def _check_number(context_key: Any, names: Array, counts: Array, enough: Array, min_samples: int, single: bool) -> None:
    """Raise where there are not two contexts with enough rows."""
    if enough.sum() >= (1 if single else 2):
        return
    if len(names) == 1 and enough.all():
        raise ValueError(
            f"context_key={context_key!r} has one context only, {str(names[0])!r}. MCPCA compares contexts; with one "
            "it is PCA: use sc.pp.pca, or pass another column."
        )
    largest = f", and the largest of them has {counts.max()}" if len(counts) else ""
    raise ValueError(
        f"context_key={context_key!r}: {enough.sum()} of {len(names)} contexts have min_samples={min_samples} rows or "
        f"more{largest}. {1 if single else 2} are needed: lower min_samples, or pass a column with fewer values."
    )
