"""The file behind a matrix that anndata reads lazily, for computations in this process.

``anndata.experimental.read_lazy`` and ``read_elem_lazy`` make Dask arrays of which each block opens the file and reads
some rows. On a cluster that is what workers need. Without one, blocks are read in this process, where the file is read
several times as fast in its own order (``disk``), as that of a backed AnnData is, and no less lazily. Which file it is
stands in the graph of the array. Any array whose graph is not exactly that of a matrix on file, as after a step of the
user's, stays what it is: nothing but speed depends on this module.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from .._utils.optional import require
from .dask_graph import client_in_use
from .detect import is_dask

_READER = "make_dask_chunk"  # the function of anndata that reads a block


def opened(matrix: Any) -> Any:
    """Return the dataset that a Dask array of anndata reads, if it is read in this process; anything else as it is.

    Nothing of it is read; the file is open for reading as long as the dataset is in use.
    """
    if not is_dask(matrix) or getattr(matrix, "ndim", 0) != 2 or client_in_use([matrix]) is not None:
        return matrix
    reader = _reader_of(matrix)
    if reader is None:
        return matrix
    where, name = reader.args
    try:
        dataset = _dataset(where, name)
    except (OSError, KeyError, ValueError, TypeError, AttributeError):
        return matrix  # the computation has the error for a file that is gone
    same = tuple(dataset.shape) == tuple(matrix.shape) and dataset.dtype == matrix.dtype
    return dataset if same else matrix


def _reader_of(array: Any) -> Any:
    """Return the call that reads a block, with path and name of the matrix; None if the array is anything else."""
    layers = getattr(array.dask, "layers", {})
    # Further layers are steps after the reading.
    if len(layers) != 1 or array.name not in layers:
        return None
    task = layers[array.name].get((array.name, 0, 0))
    for argument in getattr(task, "args", ()):
        call = getattr(argument, "value", argument)
        if isinstance(call, partial) and len(call.args) == 2 and not call.keywords:
            function = call.func
            if function.__name__ == _READER and str(function.__module__).partition(".")[0] == "anndata":
                return call
    return None


def _dataset(where: Any, name: str) -> Any:
    """Return an element of a file by its path, or the sparse dataset of a Zarr store that anndata has opened."""
    if not isinstance(where, Path):
        return where
    element = require("h5py", "anndata").File(where, "r")[name]
    # Groups hold sparse matrices.
    return element if hasattr(element, "shape") else require("anndata", "anndata").io.sparse_dataset(element)
