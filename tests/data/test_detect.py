"""Every form of input has one kind, told from its type: nothing is computed, and no file is read."""

import collections

import anndata
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

from mcpca._data.contexts import named_blocks
from mcpca._data.detect import Kind, has_dask_rows, holds_device_arrays, input_kind, is_anndata, is_dask
from mcpca._data.sources import as_source, columns_source

da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
h5py = pytest.importorskip("h5py")
X = np.arange(12.0).reshape(4, 3)
FRAME = pd.DataFrame(X, columns=list("abc"))


class Blocks:
    def __iter__(self):
        return iter([X])


class CallableMapping(collections.UserDict):
    def __call__(self):
        return [X]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (X, Kind.ARRAY),
        (np.ma.array(X), Kind.ARRAY),
        (memoryview(b"ab"), Kind.OTHER),
        (FRAME, Kind.FRAME),
        (pl.DataFrame(FRAME), Kind.FRAME),
        (FRAME["a"], Kind.SERIES),
        (pl.Series([1.0]), Kind.ARRAY),
        (FRAME.index, Kind.ARRAY),
        *((sp.csr_array(X).asformat(layout), Kind.SPARSE) for layout in ("csr", "csc", "coo", "lil", "dok")),
        (anndata.AnnData(X), Kind.ANNDATA),
        (anndata.AnnData(X)[:2], Kind.ANNDATA),
        (da.ones((4, 3)), Kind.DASK),
        (dd.from_pandas(FRAME, npartitions=1), Kind.DASK),
        (dd.from_pandas(FRAME, npartitions=1)["a"], Kind.DASK),
        (as_source(X, "X"), Kind.SOURCE),
        (columns_source(lambda: [X], np.array([0]), "X"), Kind.SOURCE),
        (lambda: [X], Kind.CHUNKS),
        (Blocks(), Kind.CHUNKS),
        (CallableMapping(a=X), Kind.CHUNKS),
        (iter([X]), Kind.ITERATOR),
        ([X], Kind.SEQUENCE),
        ((X,), Kind.SEQUENCE),
        ({"a": X}, Kind.MAPPING),
        (collections.UserDict(a=X), Kind.MAPPING),
        ({"a": X}.values(), Kind.OTHER),
        *((value, Kind.OTHER) for value in (None, 3, 2.5, "text", b"bytes", {1}, range(3), collections.deque([1]))),
    ],
)
def test_kind(value, kind):
    assert input_kind(value) is kind


def test_stored_kinds_are_told_of_closed_files(tmp_path):
    anndata.AnnData(sp.csr_array(X)).write_h5ad(tmp_path / "sparse.h5ad")
    backed = anndata.read_h5ad(tmp_path / "sparse.h5ad", backed="r")
    sparse = backed.X
    with h5py.File(tmp_path / "dense.h5", "w") as file:
        dense = file.create_dataset("x", data=X)
        assert input_kind(dense) is Kind.DATASET
    backed.file.close()
    assert input_kind(dense) is Kind.DATASET
    assert input_kind(sparse) is Kind.SPARSE_DATASET
    assert input_kind(backed) is Kind.ANNDATA
    assert not has_dask_rows(backed)


def test_an_anndata_is_not_dask_but_its_rows_may_be():
    adata = anndata.AnnData(da.from_array(X, chunks=(2, 3)))
    for whole_or_view in (adata, adata[:3]):
        assert is_anndata(whole_or_view)
        assert not is_dask(whole_or_view)
        assert has_dask_rows(whole_or_view)
    assert not has_dask_rows(anndata.AnnData(X))
    assert is_dask(adata.X)
    assert has_dask_rows(adata.X)


def test_a_sparse_matrix_that_is_a_mapping_is_one_matrix():
    dok = sp.dok_matrix(X)
    assert named_blocks(dok) is None
    assert not holds_device_arrays(dok)
