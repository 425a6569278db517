"""Sources in HDF5, Zarr and AnnData files, also in damaged ones."""

import os
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from same_rows import assert_same_rows

from mcpca._data.blocks import Room
from mcpca._data.detect import anndata_parts, is_anndata, is_source_like
from mcpca._data.hdf5_bytes import DirectDataset, direct
from mcpca._data.labels import take_labels
from mcpca._data.sources import CSCDiskSource, CSRDiskSource, DenseDiskSource, as_source

h5py = pytest.importorskip("h5py")
zarr = pytest.importorskip("zarr")
ad = pytest.importorskip("anndata")

N, P = 31, 17
# anndata announces at each write to Zarr how its next version will write; the sources are tested with both formats.
pytestmark = [
    pytest.mark.filterwarnings("ignore:zarr v3 autosharding:UserWarning"),
    pytest.mark.filterwarnings("ignore:Writing zarr v2 data:UserWarning"),
]


@pytest.fixture
def dense(rng):
    X = (rng.random((N, P)) * (rng.random((N, P)) < 0.3)).astype(np.float32)
    X[7] = 0
    return X


@pytest.fixture
def h5(tmp_path):
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        yield file


def zarr_group(path, version=3):
    return zarr.open_group(path, mode="w", zarr_format=version)


def stored_files(folder):
    return sorted(p for p in Path(folder).rglob("*") if p.is_file() and p.name[-1].isdigit())


def sparse_dataset(group, X, name="X", **options):
    ad.io.write_elem(group, name, X, dataset_kwargs=options)
    return ad.io.sparse_dataset(group[name])


@pytest.mark.parametrize("chunks", [None, (5, P), (5, 4), (1, P), (N, 1), (N, P)])
@pytest.mark.parametrize("dtype", [np.float32, np.int16])
def test_dense_hdf5_twin(dense, h5, chunks, dtype):
    X = (dense * 9).astype(dtype)
    dataset = h5.create_dataset("X", data=X, chunks=chunks, compression="gzip" if chunks else None)
    assert is_source_like(dataset)
    source = as_source(dataset, "X")
    assert isinstance(source, DenseDiskSource)
    assert not source.in_memory
    assert source.dtype == (np.float32 if dtype is np.float32 else np.float64)
    assert_same_rows(source, X)


@pytest.mark.parametrize(
    ("version", "chunks", "shards"), [(2, (5, 4), None), (3, (5, P), None), (3, (5, P), (10, P)), (3, (N, 9), None)]
)
def test_dense_zarr_twin(tmp_path, rng, version, chunks, shards):
    X = rng.standard_normal((N, P))
    # Not by data=X: Zarr 3.1.0 to 3.1.2 lose half of the rows so where there are shards.
    array = zarr_group(tmp_path, version).create_array("X", shape=X.shape, dtype=X.dtype, chunks=chunks, shards=shards)
    array[...] = X
    assert is_source_like(array)
    assert_same_rows(as_source(array, "X"), X)


@pytest.mark.parametrize(("version", "chunk"), [("hdf5", 7), ("hdf5", 1000), (2, 60), (3, 60), (3, 1000)])
@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_sparse_twin(tmp_path, h5, dense, version, layout, chunk):
    group = h5 if version == "hdf5" else zarr_group(tmp_path / "z", version)
    dataset = sparse_dataset(
        group, sp.csr_matrix(dense).asformat(layout), chunks=(min(chunk, np.count_nonzero(dense)),)
    )
    assert is_source_like(dataset)
    source = as_source(dataset, "X")
    assert isinstance(source, CSRDiskSource if layout == "csr" else CSCDiskSource)
    assert source.sparse
    assert not source.in_memory
    assert source.dtype == np.float32
    assert_same_rows(source, dense)


@pytest.mark.parametrize("room", [1, 300, 900])
def test_small_reads(monkeypatch, h5, dense, room):
    monkeypatch.setattr("mcpca._data.disk.n_workers", lambda: 3)  # reads that are sorted out side by side
    monkeypatch.setattr("mcpca._data.disk._READ_BYTES", room)
    assert_same_rows(as_source(h5.create_dataset("dense", data=dense, chunks=(2, P)), "X"), dense)
    for layout in ("csr", "csc"):
        X = sp.csr_matrix(dense).asformat(layout)
        assert_same_rows(as_source(sparse_dataset(h5, X, layout), "X"), dense)


@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_sparse_integers_duplicates_and_nothing(h5, layout):
    lines, other = (30, 6) if layout == "csr" else (6, 30)
    rng = np.random.default_rng(0)
    parts = rng.integers(1, 9, lines * 8), rng.integers(0, other, lines * 8), np.arange(lines + 1) * 8
    X = (sp.csr_matrix if layout == "csr" else sp.csc_matrix)(parts, shape=(30, 6))
    source = as_source(sparse_dataset(h5, X), "X")
    assert source.dtype == np.float64
    assert_same_rows(source, X.toarray())
    nothing = sp.csr_matrix((30, 6), dtype=np.float32).asformat(layout)
    assert_same_rows(as_source(sparse_dataset(h5, nothing, "nothing"), "X"), nothing.toarray())


class Counting:
    """A dataset that remembers which rows were read."""

    def __init__(self, dataset):
        self.dataset, self.reads = dataset, []

    def __getattr__(self, name):
        return getattr(self.dataset, name)

    def __getitem__(self, key):
        self.reads.append((key.start, key.stop))
        return self.dataset[key]


def test_only_chunks_with_wanted_rows_are_read_and_in_order(h5, rng):
    source = as_source(h5.create_dataset("X", data=rng.random((1000, 5)), chunks=(10, 5)), "X")
    source._dataset = Counting(source._dataset)
    source.gather(np.array([995, 13, 500, 17, 25, 503, 13]))
    assert source._dataset.reads == [(13, 26), (500, 504), (995, 996)]
    source._dataset.reads.clear()
    assert sum(1 for _ in source.scan(35 * 5 * 8)) == 34
    assert all(start % 10 == 0 for start, _ in source._dataset.reads)


def test_chunks_of_very_many_rows_are_not_read_at_once(monkeypatch, h5, rng):
    monkeypatch.setattr("mcpca._data.disk._READ_BYTES", 400)
    X = rng.random((1000, 5))
    source = as_source(h5.create_dataset("X", data=X, chunks=(1000, 1)), "X")
    source._dataset = Counting(source._dataset)
    rows = rng.permutation(1000)[:300]
    np.testing.assert_array_equal(source.gather(rows), X[rows])
    assert max(stop - start for start, stop in source._dataset.reads) <= 40


def test_only_wanted_ranges_of_a_sparse_file_are_read(h5):
    X = sp.csr_matrix(np.ones((1000, 5)))
    source = as_source(sparse_dataset(h5, X, chunks=(50,)), "X")
    source._data = Counting(source._data)
    source.gather(np.array([995, 13, 500, 17, 21, 503, 13]))
    assert source._data.reads == [(65, 110), (2500, 2520), (4975, 4980)]


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_rows_are_gathered_in_room_that_was_there(h5, dense, layout):
    dataset = h5.create_dataset("X", data=dense) if layout == "dense" else sparse_dataset(h5, sp.csr_matrix(dense))
    source, room = as_source(dataset, "X"), Room()
    held = []
    for rows in (np.array([0, 3, 4, 9, 20]), np.array([30, 2, 5]), np.array([1, 8])):
        block = source.gather(rows, room)
        np.testing.assert_array_equal(block if layout == "dense" else block.toarray(), dense[rows])
        held.append(block.data if layout == "csr" else block)
    assert np.shares_memory(held[0], held[1])
    assert np.shares_memory(held[0], held[2])
    larger = source.gather(np.arange(0, N, 2), room)
    np.testing.assert_array_equal(larger if layout == "dense" else larger.toarray(), dense[::2])
    assert not np.shares_memory(held[0], larger.data if layout == "csr" else larger)


@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_memory_of_a_scan_is_that_of_blocks(h5, layout):
    X = sp.random(20_000, 100, density=0.5, random_state=0, format="csr")
    dataset = sparse_dataset(h5, X) if layout == "csr" else h5.create_dataset("X", data=X.toarray(), chunks=(100, 100))
    tracemalloc.start()
    source = as_source(dataset, "X")
    for _ in source.scan(2**18):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert source.nbytes > 1e7
    assert peak < 1.5e6


def test_a_closed_file(tmp_path, dense):
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        datasets = file.create_dataset("dense", data=dense), sparse_dataset(file, sp.csr_matrix(dense))
        sources = [as_source(dataset, "X[1]") for dataset in datasets]
    for dataset, source in zip(datasets, sources, strict=True):
        assert is_source_like(dataset)
        with pytest.raises(OSError, match=r"X\[1\]: its shape.* could not be read .*closed: keep it open"):
            as_source(dataset, "X[1]")
        with pytest.raises(OSError, match=r"X\[1\]: rows 2 to 5 could not be read \(OSError: the file is closed"):
            source.gather(np.array([5, 2]))
        with pytest.raises(OSError, match=r"X\[1\]: rows 0 to 30 could not be read"):
            list(source.scan(10**6))


def test_a_file_cut_short_while_open(tmp_path, rng):
    path = tmp_path / "rows.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("X", data=rng.random((2000, 20)), chunks=(100, 20))
    with h5py.File(path) as file:
        source = as_source(file["X"], "X")
        os.truncate(path, 200_000)
        with pytest.raises(OSError, match=r"X: rows 0 to 1999 could not be read .*200000 of its") as caught:
            list(source.scan(10**9))
        assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize(
    ("options", "past_the_library"),
    [
        ({"chunks": (7,)}, True),
        ({}, True),
        ({"chunks": (7,), "maxshape": (None,)}, True),
        ({"chunks": (7,), "compression": "gzip"}, False),
        ({"chunks": (7,), "fletcher32": True}, False),
        ({"dtype": ">f4"}, False),
    ],
)
def test_bytes_that_are_in_the_file_as_they_are(tmp_path, rng, options, past_the_library):
    values = rng.integers(9, size=45).astype(np.float32)
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file.create_dataset("data", data=values, **options)
        assert not isinstance(direct(file["data"]), DirectDataset)  # what was written may not be in the file yet
    with h5py.File(tmp_path / "rows.h5") as file:
        found = direct(file["data"])
        assert isinstance(found, DirectDataset) is past_the_library
        for part in (slice(0, 45), slice(3, 5), slice(6, 8), slice(7, 14), slice(13, 44), slice(44, 45), slice(9, 9)):
            np.testing.assert_array_equal(found[part], file["data"][part])
            assert found[part].dtype == file["data"].dtype
        assert found.chunks == file["data"].chunks


def test_chunks_that_were_never_written_are_left_to_the_library(tmp_path):
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file.create_dataset("data", (20,), "f4", chunks=(5,), fillvalue=3)[5:10] = 1
        file.create_dataset("nothing", (20,), "f4")
        file.create_dataset("empty", (0,), "f4", chunks=(5,), maxshape=(None,))
    with h5py.File(tmp_path / "rows.h5") as file:
        for name in ("data", "nothing"):
            assert not isinstance(direct(file[name]), DirectDataset)
        assert len(direct(file["empty"])[0:0]) == 0


def test_other_layouts_of_hdf5_are_left_to_the_library(tmp_path):
    values = np.arange(20, dtype=np.float32)
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file["data"] = values
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((20,))
        h5py.Dataset(h5py.h5d.create(file.id, b"compact", h5py.h5t.IEEE_F32LE, space, compact))[...] = values
        layout = h5py.VirtualLayout((20,), "f4")
        layout[:] = h5py.VirtualSource(tmp_path / "plain.h5", "data", (20,))
        file.create_virtual_dataset("virtual", layout)
        file["linked"] = h5py.ExternalLink(tmp_path / "plain.h5", "/data")
    with h5py.File(tmp_path / "user.h5", "w", userblock_size=512) as file:
        file["data"] = values
    with h5py.File(tmp_path / "rows.h5") as file, h5py.File(tmp_path / "user.h5") as user:
        for dataset in (file["compact"], file["virtual"], user["data"]):
            assert not isinstance(direct(dataset), DirectDataset)
        linked = direct(file["linked"])  # which is in its own file
        assert isinstance(linked, DirectDataset)
        np.testing.assert_array_equal(linked[3:17], values[3:17])


@pytest.mark.parametrize("options", [{"chunks": (11,)}, {"chunks": (11,), "compression": "gzip"}])
def test_a_sparse_file_that_is_only_read(tmp_path, dense, options):
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        sparse_dataset(file, sp.csr_matrix(dense), **options)
    with h5py.File(tmp_path / "rows.h5") as file:
        assert_same_rows(as_source(ad.io.sparse_dataset(file["X"]), "X"), dense)


def test_a_sparse_file_cut_short_while_open(tmp_path, rng):
    path, X = tmp_path / "rows.h5", sp.csr_matrix(rng.random((2000, 20)))
    with h5py.File(path, "w") as file:
        sparse_dataset(file, X, chunks=(1000,))
    with h5py.File(path) as file:
        source = as_source(ad.io.sparse_dataset(file["X"]), "X")
        os.truncate(path, 200_000)
        with pytest.raises(
            OSError, match=r"X: rows 0 to 1999 could not be read .*has 200000 of its \d+ bytes.*copy or write it"
        ):
            list(source.scan(10**9))


def test_damaged_compressed_chunks(tmp_path, rng):
    group = zarr_group(tmp_path)
    array = group.create_array("X", data=rng.random((40, 5)), chunks=(10, 5))
    stored_files(tmp_path / "X")[2].write_bytes(b"cut")
    source = as_source(array, "X")
    source.gather(slice(0, 20))
    with pytest.raises(OSError, match="X: rows 20 to 29 could not be read"):
        list(source.scan(400))


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("part", ["data", "indices"])
def test_missing_chunks_of_a_sparse_matrix(tmp_path, dense, version, part):
    group = zarr_group(tmp_path, version)
    dataset = sparse_dataset(group, sp.csr_matrix(dense), chunks=(50,))
    stored_files(tmp_path / "X" / part)[1].unlink()
    with pytest.raises(ValueError, match=rf"chunks are missing from the store \(1 of {part}\).*copy or write it again"):
        as_source(dataset, "X")


def test_missing_chunks_of_a_dense_array(tmp_path, rng):
    group = zarr_group(tmp_path)
    X = rng.random((40, 5))
    X[10:20] = 0
    array = group.create_array("X", data=X, chunks=(10, 5))  # zeros are not stored
    with pytest.warns(UserWarning, match="X: 1 of 4 chunks are not in the store, and are read as 0.0"):
        source = as_source(array, "X")
    assert_same_rows(source, X)
    empty = group.create_array("none", shape=(40, 5), chunks=(10, 5), dtype="f4")
    with pytest.raises(ValueError, match="X: none of its 4 chunks is in the store"):
        as_source(empty, "X")


@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_parts_of_a_sparse_file_that_do_not_fit(h5, dense, layout):
    X = sp.csr_matrix(dense).asformat(layout)

    def damaged(name, values):
        h5.pop("X", None)
        dataset = sparse_dataset(h5, X)
        del h5["X"][name]
        h5["X"][name] = values
        return ad.io.sparse_dataset(h5["X"]) if dataset else None

    with pytest.raises(ValueError, match=rf"X: indptr promises {X.nnz} entries, while data has {X.nnz - 5}"):
        as_source(damaged("data", X.data[:-5]), "X")
    with pytest.raises(ValueError, match=rf"X: indptr has {len(X.indptr) - 3} numbers .*{len(X.indptr)} that"):
        as_source(damaged("indptr", X.indptr[:-3]), "X")
    wrong = X.indices.copy()
    wrong[4] = 1000
    source = as_source(damaged("indices", wrong), "X")
    with pytest.raises(ValueError, match=r"X: .* have indices from 0 to 1000, where 0 to .* the file is damaged"):
        list(source.scan(10**6))


def test_datasets_that_are_no_matrix(h5):
    h5["vector"], h5["none"], h5["text"] = np.arange(3.0), h5py.Empty("f4"), np.array([[b"a"]])
    with pytest.raises(ValueError, match=r"X must be 2-D .* got shape \(3,\)"):
        as_source(h5["vector"], "X")
    with pytest.raises(ValueError, match=r"X must be 2-D .* got shape \(\)"):
        as_source(h5["none"], "X")
    with pytest.raises(ValueError, match=r"X has dtype \|S1, which is not numeric"):
        as_source(h5["text"], "X")


@pytest.fixture
def adata(dense):
    obs = pd.DataFrame({"batch": pd.Categorical(["a", "b"] * 15 + ["a"])}, index=[f"cell{i}" for i in range(N)])
    return ad.AnnData(sp.csr_matrix(dense), obs=obs, var=pd.DataFrame(index=[f"gene{i}" for i in range(P)]))


@pytest.mark.parametrize("layout", ["csr", "csc", "dense"])
@pytest.mark.parametrize("where", ["memory", "hdf5", "zarr"])
def test_anndata(tmp_path, adata, dense, layout, where):
    adata.X = dense if layout == "dense" else adata.X.asformat(layout)
    if where == "hdf5":
        adata.write_h5ad(tmp_path / "a.h5ad")
        adata = ad.read_h5ad(tmp_path / "a.h5ad", backed="r")
    elif where == "zarr":
        adata.write_zarr(tmp_path / "a.zarr")
        X = zarr.open_group(tmp_path / "a.zarr", mode="r")["X"]
        adata = ad.AnnData(X if layout == "dense" else ad.io.sparse_dataset(X), obs=adata.obs, var=adata.var)
    assert is_anndata(adata)
    matrix, names = anndata_parts(adata)
    assert names.tolist() == [f"gene{i}" for i in range(P)]
    assert names.dtype.kind == "U"
    assert_same_rows(as_source(matrix, "X"), dense)
    assert_same_rows(as_source(adata, "X"), dense)
    same, labels = take_labels(adata, "batch")  # a column as it is: categories keep their order
    assert same is adata
    assert labels.tolist() == ["a", "b"] * 15 + ["a"]
    if where == "hdf5":
        adata.file.close()


def test_views_of_anndata(adata, dense):
    rows = np.arange(0, N, 3)
    assert_same_rows(as_source(adata[rows], "X"), dense[rows])


def test_labels_of_anndata(adata):
    own = np.arange(N)
    assert take_labels(adata, own)[1] is own
    assert take_labels(adata, None)[1] is None
    with pytest.raises(ValueError, match=r"y='donor' is not a column of adata.obs, which has 'batch';"):
        take_labels(adata, "donor")
    with pytest.raises(ValueError, match="its X is None"):
        anndata_parts(ad.AnnData(obs=adata.obs, var=adata.var))
    with pytest.raises(TypeError, match="X is a ndarray, not an AnnData"):
        anndata_parts(np.eye(2))
