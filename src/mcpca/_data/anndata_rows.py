"""What a fit takes from an AnnData: a matrix with some of its features, and contexts from columns of ``obs``.

The way in for ``mcpca.tl``: ``space_of`` resolves ``layer``, ``obsm`` and ``mask_var`` to a ``FeatureSpace``,
``contexts_of_obs`` resolves ``context_key`` and ``min_samples`` to ``ObsContexts``, and ``ObsContexts.with_rows`` joins
the two to the ``Contexts`` that every fit takes. Where results are stored is in ``_results.anndata_layout``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from .._utils.arguments import check_integer, check_unmasked
from .._utils.optional import require
from .._utils.types import Array
from .._utils.user_warnings import warn
from .._utils.wording import listed, quoted
from ..exceptions import DroppedContextsWarning, RawCountsWarning
from .alignment import NamedMatrix, column_names, with_columns
from .contexts import Contexts, contexts_of_codes
from .dask_rows import coded_contexts, first_rows
from .detect import InputKind, anndata_parts, index_of, input_kind, is_anndata, is_dask
from .labels import Coded, check_column_names, cross_labels, distinct, read_labels
from .lazy_files import opened
from .sources import as_source

EXTRA = "anndata"
# Rows that are read to tell counts from normalised values. Normalised rows hardly ever hold only whole numbers, so few
# are enough; more would cost a longer read from disk.
_ROWS_TESTED_FOR_COUNTS = 200
# Whole numbers up to this may be genotypes or answers to a questionnaire. A lower bound would warn of these, a higher
# one would miss counts of shallow sequencing.
_LARGEST_SMALL_COUNT = 10


def check_anndata(adata: Any, argument: str = "adata") -> None:
    """Raise if ``adata`` is not an AnnData, or anndata is not installed."""
    require("anndata", EXTRA)
    if not is_anndata(adata):
        raise TypeError(f"{argument} is a {type(adata).__name__}, not an AnnData; mcpca.MCPCA takes everything else.")


def check_target(adata: Any, copy: bool = False) -> None:
    """Raise if results could not be stored in ``adata``, before any work is done."""
    if adata.isbacked and copy:
        raise ValueError("copy=True would copy the file of a backed AnnData; call adata.copy(filename=...) yourself.")
    if adata.isbacked and adata.is_view:
        raise ValueError(
            "adata is a view of a backed AnnData, which takes no results; call adata.to_memory(), or "
            "adata.copy(filename=...)."
        )


@dataclass(frozen=True)
class FeatureSpace:
    """The features of a fit to an AnnData.

    Attributes
    ----------
    source : Source or Dask array
        All rows of the AnnData (n, p).
    names : ndarray (p,) of str, or None
        Feature names; None for the columns of an array in ``obsm``.
    columns : ndarray (p,), or None
        Positions of the features in ``var``; None if they are all of it, or not in it.
    axes : ndarray (n_vars, p), or None
        If the features are principal components in ``obsm``, their axes.
    in_var : bool
        Whether the features are variables of the AnnData (and not columns of ``obsm``).
    mask_var : str, ndarray or None
        The mask that selected them, with "auto" resolved.
    """

    source: Any
    names: Array | None
    columns: Array | None
    axes: Array | None
    in_var: bool
    mask_var: Any

    def over_var(self, vectors: Array, n_vars: int) -> Array | None:
        """Return vectors (p, r) of the fit in terms of ``var`` (n_vars, r), with zeros for features left out.

        None for components of unknown axes.
        """
        if not self.in_var:
            # A direction in the space of the components, turned back into that of the features.
            return None if self.axes is None else np.asarray(self.axes @ vectors)
        if self.columns is None:
            return vectors
        # Zeros and not NaN: a feature that was left out contributes nothing to a direction.
        full = np.zeros((n_vars, vectors.shape[1]), dtype=vectors.dtype)
        full[self.columns] = vectors
        return full


def space_of(adata: Any, layer: str | None, obsm: str | None, mask_var: Any, *, select: bool = True) -> FeatureSpace:
    """Return the features that these arguments of ``mcpca.tl.mcpca`` select. Nothing sparse is made dense.

    Without ``select`` the source and ``names`` have all features still, for rows that are to be prepared: their totals
    are over all features.
    """
    if obsm is not None:
        if not select:
            raise ValueError(
                f"preprocess with obsm={obsm!r}: rows there are no counts. Drop obsm, to prepare the counts in X or "
                "in a layer, or drop preprocess."
            )
        return _space_of_obsm(adata, layer, obsm, mask_var)
    matrix, names = layer_matrix(adata, layer)
    check_unique(names, "adata")
    if _is_text(mask_var, "auto"):
        mask_var = default_mask(adata.var)
    columns = None if mask_var is None else _masked_columns(adata, mask_var)
    # A mask of all features is none: selecting columns would copy the matrix.
    if columns is None or len(columns) == len(names):
        return FeatureSpace(feature_rows(matrix, None, _where(layer)), names, None, None, True, mask_var)
    if not select:
        return FeatureSpace(feature_rows(matrix, None, _where(layer)), names, columns, None, True, mask_var)
    return FeatureSpace(feature_rows(matrix, columns, _where(layer)), names[columns], columns, None, True, mask_var)


def default_mask(var: Any) -> str | None:
    """Return the column of ``var`` that selects features where the user names none: scanpy's, if it is there."""
    return "highly_variable" if "highly_variable" in var.columns else None


def feature_rows(matrix: Any, columns: Array | None, where: str) -> Any:
    """Return these columns of a matrix, or all if None: as a Dask array if it is on Dask, as a ``Source`` otherwise.

    A matrix that was read lazily, without a cluster to compute it, is read from its file.
    """
    matrix = opened(matrix)
    X, kind, _ = with_columns(NamedMatrix(matrix, input_kind(matrix), None), columns, where)
    return X if kind is InputKind.DASK else as_source(X, where, kind)


def layer_matrix(adata: Any, layer: str | None) -> tuple[Any, Array]:
    """Return ``X`` or a layer, and the feature names (n_vars,) of str."""
    if layer is None:
        matrix, names = anndata_parts(adata)
    else:
        names_of_layers = [name for name in adata.layers if name is not None]  # None stands for X since anndata 0.13
        check_column_names([layer], names_of_layers, "layer", "adata.layers", "or None for adata.X", "is not in")
        matrix = adata.layers[layer]
        names = np.asarray(index_of(adata, "var")).astype(str)
    return matrix, names


def _where(layer: str | None) -> str:
    return "adata.X" if layer is None else f"adata.layers[{layer!r}]"


def check_unique(names: Array, argument: str) -> None:
    """Raise if feature names are not unique."""
    # Loadings are stored and looked up by name, which a repeated one makes ambiguous.
    distinct_names, counts = np.unique(names, return_counts=True)
    repeated = distinct_names[counts > 1]
    if len(repeated):
        raise ValueError(
            f"{argument}.var_names has {len(repeated)} names that more than one feature has: {quoted(repeated)}. "
            f"Results go by name; call {argument}.var_names_make_unique() first."
        )


def _space_of_obsm(adata: Any, layer: str | None, obsm: str, mask_var: Any) -> FeatureSpace:
    if layer is not None:
        raise ValueError(f"layer={layer!r} and obsm={obsm!r} are both given, but rows come from one matrix; drop one.")
    # "auto" is the default, and has nothing to select here; only an explicit mask contradicts obsm.
    if mask_var is not None and not _is_text(mask_var, "auto"):
        raise ValueError(
            f"mask_var={mask_var!r} selects features of var, and obsm={obsm!r} has its own; drop mask_var."
        )
    check_column_names([obsm], list(adata.obsm), "obsm", "adata.obsm", "as in obsm='X_pca'", "is not in")
    matrix = adata.obsm[obsm]
    columns = column_names(matrix)
    source = feature_rows(matrix, None, f"adata.obsm[{obsm!r}]")
    # Columns of an array in obsm have no names; those of a DataFrame there may be numbers, and results go by text.
    names = None if columns is None else np.array([str(c) for c in columns])
    return FeatureSpace(source, names, None, axes_of(adata, obsm, source.shape[1]), False, None)


def axes_of(adata: Any, obsm: str, p: int) -> Array | None:
    """Return the axes (n_vars, p) of principal components in ``obsm``, or None if there are none in ``varm``."""
    # scanpy.pp.pca writes "X_pca" and "PCs"; with key_added, the same name to both.
    key = "PCs" if obsm == "X_pca" else obsm
    # Axes of another number of components are from another run of PCA, and do not belong to these columns.
    axes = np.asarray(adata.varm[key]) if key in adata.varm else None
    return axes if axes is not None and axes.ndim == 2 and axes.shape[1] == p else None


def _is_text(value: Any, text: str) -> bool:
    # A mask may be an array or a Series, for which == alone gives an array and not a truth value.
    return isinstance(value, str) and value == text


def _masked_columns(adata: Any, mask_var: Any) -> Array:
    """Return the positions in ``var`` that a mask selects."""
    shown = repr(mask_var) if isinstance(mask_var, str) else f"<{type(mask_var).__name__}>"
    if isinstance(mask_var, str):
        otherwise = "a mask (n_vars,), or None for all features"
        check_column_names([mask_var], list(adata.var.columns), "mask_var", "adata.var", otherwise)
        mask_var = adata.var[mask_var]
    # Columns that were read from a file, or with gaps, may hold Python's True and False as objects.
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
    """Return how many rows were tested and their largest value if they look like raw counts, and None otherwise.

    Counts are whole numbers, none negative, some above 10. Cost: reading 200 rows.
    """
    n = min(_ROWS_TESTED_FOR_COUNTS, source.shape[0])
    block: Any = first_rows(source, n) if is_dask(source) else source.gather(slice(0, n))
    # Entries that are not stored are 0, a whole number, so those that are stored decide.
    values = block.data if scipy.sparse.issparse(block) else np.asarray(block).ravel()
    largest = float(values.max(initial=0.0))
    # Comparisons with NaN are false, so NaN and infinite values are not counts; the fit reports them.
    if not _LARGEST_SMALL_COUNT < largest < np.inf:
        return None
    if not (values >= 0).all() or (values != np.floor(values)).any():
        return None
    return int(block.shape[0]), largest


def warn_of_counts(space: FeatureSpace, layer: str | None) -> str | None:
    """Warn if the first rows look like raw counts, and return the text of the warning."""
    # Only for X and layers: obsm mostly holds components, for which the advice below makes no sense.
    if not space.in_var:
        return None
    counts = counts_in(space.source)
    if counts is None:
        return None
    n_rows, largest = counts
    text = (
        f"{_where(layer)} looks like raw counts (whole numbers up to {largest:.0f} in its first {n_rows} "
        "rows), of which the largest variation is the total count of a row. Pass preprocess='log1p', which normalises "
        "them as sc.pp.normalize_total(adata) and sc.pp.log1p(adata) do, or a normalised layer."
    )
    warn(text, RawCountsWarning)
    return text


# Contexts


@dataclass(frozen=True)
class ObsContexts:
    """Contexts of the rows of an AnnData.

    Attributes
    ----------
    names : ndarray (k,) of str
        Contexts with enough rows.
    codes : ndarray (n,)
        Position of each row's context in ``names``; -1 for rows without a label, or in a context that is left out.
    levels : list of ndarray (k,) of str
        For each crossed column, the label of each context in it.
    dropped : list of (str, int)
        Contexts that are left out, and their numbers of rows.
    n_missing : int
        Number of rows without a label.
    """

    names: Array
    codes: Array
    levels: list[Array]
    dropped: list[tuple[str, int]]
    n_missing: int

    def with_rows(self, space: FeatureSpace) -> Contexts:
        """Return the contexts with their rows in the features of a fit."""
        # Rows on Dask need their codes on the workers; for all others the codes become row numbers here.
        if is_dask(space.source):
            return coded_contexts(space.source, Coded(self.codes, self.names), space.names, "adata")
        return contexts_of_codes(space.source, self.codes, self.names, space.names)

    def warn_of_dropped(self, min_samples: int) -> list[str]:
        """Warn of contexts and rows that are left out, and return the texts of the warnings."""
        texts = []
        if self.dropped:
            counted = [f"{name!r} ({n})" for name, n in self.dropped]
            texts.append(
                f"{len(self.dropped)} of {len(self.dropped) + len(self.names)} contexts have fewer than "
                f"min_samples={min_samples} rows and are left out, {sum(n for _, n in self.dropped)} rows in all: "
                f"{listed(counted)}."
            )
        if self.n_missing:
            texts.append(f"{self.n_missing} of {len(self.codes)} rows have no context and are left out.")
        for text in texts:
            warn(text, DroppedContextsWarning)
        return texts


def contexts_of_obs(
    adata: Any, context_key: Any, *, min_samples: Any, missing: str, single: bool = False
) -> ObsContexts:
    """Read contexts from one column of ``obs``, or several that are crossed; names become text.

    Parameters
    ----------
    context_key : str or list of str
    min_samples : int
        Contexts with fewer rows are left out.
    missing : {"error", "drop"}
        What to do with rows without a label.
    single : bool
        Whether one context is enough.
    """
    min_samples = check_integer(min_samples, "min_samples", 2, way_out="A covariance needs 2 rows.")
    columns, coded, n_missing = _read_columns(adata, context_key, missing)
    names = coded.categories
    counts = np.bincount(coded.codes[coded.codes >= 0], minlength=len(names))
    enough = counts >= min_samples
    _check_number(context_key, names, counts, enough, min_samples, single)
    # Codes of the contexts with enough rows are counted anew. The entry appended is where code -1, missing, points to.
    new_codes = np.append(np.where(enough, np.cumsum(enough) - 1, -1), -1)
    codes = new_codes[coded.codes]
    dropped = list(zip(names[~enough].tolist(), counts[~enough].tolist(), strict=True))
    levels = _levels(columns, codes, int(enough.sum())) if len(columns) > 1 else []
    return ObsContexts(names[enough], codes, levels, dropped, n_missing)


def labels_of_obs(adata: Any, context_key: Any, missing: str) -> Coded:
    """Read the label of each row from one column of ``obs``, or several that are crossed; names become text.

    ``missing`` {"error", "drop"}: whether rows without a label are an error, or have the code -1.
    """
    return _read_columns(adata, context_key, missing)[1]


def _read_columns(adata: Any, context_key: Any, missing: str) -> tuple[list[Any], Coded, int]:
    """Return the columns that ``context_key`` names, their labels as text, and the number of rows without one."""
    if missing not in ("error", "drop"):
        raise ValueError(f"missing={missing!r}; choose 'error' or 'drop', for rows without a context.")
    keys = [context_key] if isinstance(context_key, str) else context_key
    if not isinstance(keys, (list, tuple)) or not keys or not all(isinstance(key, str) for key in keys):
        raise TypeError(f"context_key={context_key!r}; pass the name of a column of adata.obs, or a list of names.")
    keys = check_column_names(list(keys), list(adata.obs.columns), "context_key", "adata.obs", "or a list of names")
    columns = [adata.obs[key] for key in keys]
    # codes (n,): -1 for rows without a label, in any of the columns if these are crossed.
    coded = read_labels(columns[0]) if len(keys) == 1 else cross_labels(columns)
    n_missing = int((coded.codes < 0).sum())
    if n_missing and missing == "error":
        raise ValueError(
            f"context_key={context_key!r}: {n_missing} of {adata.n_obs} rows have no label (NaN). missing='drop' "
            "leaves them out of the fit; or give them a context in adata.obs."
        )
    # Text, because they become the index of tables in ``uns``, where 1 and "1" would be the same.
    names = np.array(distinct([str(name) for name in coded.categories]), dtype=str)
    return columns, Coded(coded.codes, names), n_missing


def _levels(columns: list[Any], codes: Array, k: int) -> list[Array]:
    """Return the label (k,) of each context in each of the crossed columns, from the first of its rows."""
    first_rows_of_contexts = np.unique(codes, return_index=True)[1][-k:]  # without that of code -1, which sorts first
    levels = []
    for column in columns:
        labels = read_labels(column)
        levels.append(np.array([str(labels.categories[c]) for c in labels.codes[first_rows_of_contexts]]))
    return levels


def _check_number(context_key: Any, names: Array, counts: Array, enough: Array, min_samples: int, single: bool) -> None:
    """Raise if fewer than two contexts have enough rows, or none where ``single``."""
    needed = 1 if single else 2
    if enough.sum() >= needed:
        return
    if len(names) == 1 and enough.all():
        raise ValueError(
            f"context_key={context_key!r} has one context only, {str(names[0])!r}. MCPCA compares contexts; with one "
            "it is PCA: use sc.pp.pca, or pass another column."
        )
    largest = f", and the largest of them has {counts.max()}" if len(counts) else ""
    raise ValueError(
        f"context_key={context_key!r}: {enough.sum()} of {len(names)} contexts have min_samples={min_samples} rows or "
        f"more{largest}. {needed} are needed: lower min_samples, or pass a column with fewer values."
    )
