"""What the user passed: one classification of every form of input, from its type alone.

``input_kind`` is asked once for each object, at the door (``read_contexts``, ``take_labels``, ``in_fitted_order``,
``as_source``), and its answer is handed down from there. It looks at types and not at values: attributes of a dataset
in a closed file raise, and those of a backed AnnData may read its file.
"""

from __future__ import annotations

from collections.abc import KeysView, Mapping, Sequence, Set, ValuesView
from enum import Enum, auto
from typing import Any

import numpy as np
import scipy.sparse

from .._utils.array_api import is_device_array
from .._utils.types import Array
from .._utils.wording import quoted
from .xarray_rows import is_dataarray


class InputKind(Enum):
    """Forms of input that are read in different ways."""

    ARRAY = auto()  # NumPy's array or memory map, or what turns itself into one
    DEVICE = auto()  # array of another library that follows the array API standard
    FRAME = auto()  # DataFrame of pandas, polars, ...
    SERIES = auto()  # one column with an index: labels, or contexts by name
    SPARSE = auto()  # SciPy's, in any layout
    DATASET = auto()  # dense, in HDF5 or Zarr
    SPARSE_DATASET = auto()  # CSR or CSC in HDF5 or Zarr, in AnnData's layout
    ANNDATA = auto()  # in memory or backed, whatever its matrix is
    DATAARRAY = auto()  # of xarray, in memory or on Dask
    DASK = auto()  # array, DataFrame or Series of Dask
    SOURCE = auto()  # what ``as_source`` returns
    CHUNKS = auto()  # function or object that yields blocks of rows, as often as it is asked
    ITERATOR = auto()  # yields blocks once, which is not enough for a fit
    SEQUENCE = auto()  # list or tuple: contexts, or the rows of a matrix
    MAPPING = auto()  # contexts by name
    OTHER = auto()  # None, numbers, text, sets, ...: left to NumPy, which mostly refuses it


# Kinds that are one matrix which NumPy cannot take as it is, but ``as_source`` can.
_SOURCE_LIKE = frozenset(
    {
        InputKind.SPARSE,
        InputKind.DATASET,
        InputKind.SPARSE_DATASET,
        InputKind.ANNDATA,
        InputKind.DATAARRAY,
        InputKind.SOURCE,
        InputKind.CHUNKS,
        InputKind.ITERATOR,
    }
)
_ARRAY_PROTOCOLS = ("__array__", "__array_interface__", "__dataframe__")
# Iterable, but not over blocks of rows.
_COLLECTIONS = (Sequence, Set, KeysView, ValuesView, str, bytes)


def input_kind(X: Any) -> InputKind:
    """Classify X by its type, without reading from any file.

    The order of the tests matters: sparse matrices in DOK format are also mappings, most arrays can be iterated, and
    AnnData, datasets and Dask collections all turn themselves into arrays when NumPy asks, which would read them whole.
    """
    if isinstance(X, np.ndarray):
        return InputKind.ARRAY
    # Some device arrays have none of the array protocols, and would pass for an iterable of blocks.
    if is_device_array(X):
        return InputKind.DEVICE
    if scipy.sparse.issparse(X):
        return InputKind.SPARSE
    cls = type(X)
    stored = _stored_kind(X, cls)
    if stored is not None:
        return stored
    # On the class, here and below: on the instance a property would be computed, and may read a file or raise.
    is_arraylike = any(hasattr(cls, name) for name in _ARRAY_PROTOCOLS)
    if is_arraylike and hasattr(cls, "columns"):
        return InputKind.FRAME
    if not is_arraylike and hasattr(cls, "__next__"):
        return InputKind.ITERATOR
    if not is_arraylike and callable(X):
        return InputKind.CHUNKS
    if isinstance(X, Mapping):
        return InputKind.MAPPING
    if isinstance(X, (list, tuple)):
        return InputKind.SEQUENCE
    if is_arraylike:
        # Arrays have neither; both together mean values with an index. Frames, which have them too, were found above.
        return InputKind.SERIES if hasattr(cls, "items") and hasattr(cls, "index") else InputKind.ARRAY
    if hasattr(cls, "__iter__") and not isinstance(X, _COLLECTIONS):
        return InputKind.CHUNKS
    return InputKind.OTHER


def _stored_kind(X: Any, cls: type) -> InputKind | None:
    """Return the kind of what is kept elsewhere than in an array in memory: in a file, on Dask, behind a ``Source``."""
    if hasattr(cls, "gather") and hasattr(cls, "scan"):
        return InputKind.SOURCE
    if all(hasattr(cls, name) for name in ("X", "obs", "var_names")):
        return InputKind.ANNDATA
    if is_mudata(X):
        names = list(X.mod)
        raise TypeError(
            f"This is a MuData with the modalities {quoted(names, 10)}; pass one of them, as in mdata.mod"
            f"[{names[0] if names else 'rna'!r}], after mdata.push_obs(...) if columns of mdata.obs are needed."
        )
    if is_dataarray(X):
        return InputKind.DATAARRAY
    # None of these libraries is imported: an instance of their classes shows that somebody else did.
    libraries = {base.__module__.partition(".")[0] for base in cls.__mro__}
    # ``ndim`` leaves out Delayed and Bag, which have no rows and columns.
    if libraries & {"dask", "dask_expr"} and hasattr(cls, "ndim"):
        return InputKind.DASK
    # AnnData's class for sparse groups in a file has had several names, so it is known by what it offers.
    layout = getattr(X, "format", None)
    if isinstance(layout, str) and layout in ("csr", "csc") and hasattr(cls, "shape") and hasattr(X, "group"):
        return InputKind.SPARSE_DATASET
    # A group has neither a shape nor chunks.
    if libraries & {"h5py", "zarr"} and hasattr(cls, "shape") and hasattr(cls, "chunks"):
        return InputKind.DATASET
    return None


def is_anndata(X: Any) -> bool:
    """Whether X is an AnnData, in memory or backed."""
    return input_kind(X) is InputKind.ANNDATA


def is_mudata(X: Any) -> bool:
    """Whether X is a MuData: several AnnData, its modalities, with columns of rows for all of them."""
    # By name: its modalities are an attribute of the instance in some versions, and its class has little of its own.
    return any(base.__name__ == "MuData" and base.__module__.startswith("mudata") for base in type(X).__mro__)


def is_dask(X: Any) -> bool:
    """Whether X is itself an array, DataFrame or Series of Dask; an AnnData is not, wherever its matrix is."""
    return input_kind(X) is InputKind.DASK


def has_dask_rows(X: Any, kind: InputKind | None = None) -> bool:
    """Whether the rows of X are on Dask: X is a Dask collection, or an AnnData or DataArray whose matrix is one."""
    kind = input_kind(X) if kind is None else kind
    if kind is InputKind.DATAARRAY:
        return is_dask(X.data)
    if kind is not InputKind.ANNDATA:
        return kind is InputKind.DASK
    if getattr(X, "isbacked", False):  # in a file, which may be closed
        return False
    # X of a view is a copy of the rows selected, so the view is narrowed to none of them first.
    return is_dask((X[:0] if getattr(X, "is_view", False) else X).X)


def is_source_like(X: Any, kind: InputKind | None = None) -> bool:
    """Whether X is one matrix that only ``as_source`` understands.

    Sparse matrices, datasets on disk, AnnData, functions and objects that yield blocks are, iterators too (for which
    ``as_source`` has the right error); arrays, DataFrames, Dask collections, lists and dicts are not.
    """
    return (input_kind(X) if kind is None else kind) in _SOURCE_LIKE


def holds_device_arrays(X: Any) -> bool:
    """Whether X is an array on a device, or a list, tuple or mapping of contexts with one in it."""
    kind = input_kind(X)
    if kind is InputKind.SEQUENCE:
        return any(map(is_device_array, X))
    if kind is InputKind.MAPPING:
        return any(map(is_device_array, X.values()))
    return kind is InputKind.DEVICE


def holds_labels_apart(X: Any) -> bool:
    """Whether labels of rows that X has are never among its features: in ``obs``, or in coordinates."""
    return input_kind(X) in (InputKind.ANNDATA, InputKind.DATAARRAY)


def anndata_parts(X: Any) -> tuple[Any, Array]:
    """Return the matrix of an AnnData and its feature names (p,) of str. Nothing of a backed matrix is read."""
    if not is_anndata(X):
        raise TypeError(f"X is a {type(X).__name__}, not an AnnData (with X, obs and var_names); pass an AnnData.")
    # ``X`` of a backed AnnData opens its file if need be, which is where a damaged one shows first.
    try:
        matrix = X.X
    except (OSError, ValueError, KeyError) as error:
        raise OSError(
            f"X is an AnnData whose matrix could not be opened ({type(error).__name__}: {error}). Its file may be "
            "closed, truncated or damaged: open it again, or copy it again."
        ) from error
    if matrix is None:
        raise ValueError("X is an AnnData without a matrix: its X is None; set adata.X, e.g. to adata.layers[...].")
    return matrix, np.asarray(index_of(X, "var")).astype(str)


def index_of(adata: Any, axis: str) -> Any:
    """Return the index of ``obs`` or ``var`` of an AnnData, as pandas has it.

    ``anndata.experimental.read_lazy(..., load_annotation_index=False)`` numbers rows and features, and leaves their
    names in the file as the table's ``true_index``; these are read here.
    """
    table = getattr(adata, axis)
    # On the class: a DataFrame may have a column of that name.
    return table.true_index if hasattr(type(table), "true_index") else getattr(adata, f"{axis}_names")
