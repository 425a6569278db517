"""Fits of compressed files: the answer of the plain file to the last bit, and faults that lose nothing."""

import os
import re
import shutil
from threading import Lock

import anndata
import h5py
import numcodecs
import numpy as np
import pytest
import scipy.sparse
import sklearn
import zarr
from chunk_files import BLOSC, ZSTD, by_hand
from test_checkpoint import same
from test_streamed import always_by_passes
from threadpoolctl import threadpool_limits

from mcpca import MCPCA
from mcpca._covariances import checkpoint, passes, row_groups
from mcpca._data import compressed_chunks
from mcpca._data.file_faults import FileState
from mcpca._data.hdf5_bytes import CompressedDataset
from mcpca._data.read_ahead import blocks_ahead
from mcpca._data.sources import as_source
from mcpca._data.zarr_bytes import ZarrChunks
from mcpca._utils.parallel import blas_aside
from mcpca.datasets import make_contexts

RANK = 3
CHUNK = 300
# anndata announces at each write to Zarr how its next version will write.
pytestmark = [
    pytest.mark.filterwarnings("ignore:zarr v3 autosharding:UserWarning"),
    pytest.mark.filterwarnings("ignore:Writing zarr v2 data:UserWarning"),
]


def rows_and_labels():
    """Sparse rows of contexts in random order, float32."""
    data = make_contexts(4, 40, RANK, n_samples=120, noise=0.3, random_state=0)
    order = np.random.default_rng(0).permutation(len(data.y))
    X = np.where(np.abs(data.X) > 0.5, data.X, 0).astype(np.float32)
    return X[order], data.y[order]


@pytest.fixture
def small(monkeypatch):
    """Passes, blocks and panels of few rows, several to a file, and threads for reads of any size."""
    always_by_passes(monkeypatch)
    monkeypatch.setattr(row_groups, "SCAN_BYTES", 2**11)
    monkeypatch.setattr(compressed_chunks, "_WORTHWHILE_BYTES", 0)
    monkeypatch.setattr(compressed_chunks, "_TURN_BYTES", 0)
    monkeypatch.setattr(compressed_chunks, "_KEPT_BYTES", 0)  # a single chunk, so that others are read again
    monkeypatch.setattr("mcpca._data.disk._READ_BYTES", 2**12)
    monkeypatch.setattr(checkpoint, "_SECONDS_BETWEEN_WRITINGS", 0.0)  # write after every block
    with sklearn.config_context(working_memory=0.02):
        yield


def write(path, X, layout, compression):
    """Write rows in the layout of AnnData and return what fit takes."""
    stored = X if layout == "dense" else scipy.sparse.csr_matrix(X).asformat(layout)
    if compression in ("zarr2", "zarr3"):
        group = zarr.open_group(path, mode="w", zarr_format=int(compression[-1]))
        anndata.io.write_elem(
            group, "X", stored, dataset_kwargs={"chunks": (50, 40) if layout == "dense" else (CHUNK,)}
        )
        return group["X"] if layout == "dense" else anndata.io.sparse_dataset(group["X"])
    options = {"gzip": {"compression": "gzip", "compression_opts": 4}, "lzf": {"compression": "lzf"}, "plain": {}}
    kinds = {"zstd": (ZSTD, numcodecs.Zstd(3)), "blosc": (BLOSC, numcodecs.Blosc("zstd", 5))}
    kwargs = options.get(compression, {}) | {"chunks": (50, 40) if layout == "dense" else (CHUNK,)}
    with h5py.File(path, "w") as file:
        anndata.io.write_elem(file, "X", stored, dataset_kwargs=kwargs)
        for name in ("data", "indices") if compression in kinds else ():
            del file["X"][name]
    if compression in kinds:
        for name in ("data", "indices"):
            code, codec = kinds[compression]
            by_hand(path, "made", getattr(stored, name), CHUNK, code, codec.encode)
            with h5py.File(path, "a") as file:
                file.move("made/data", f"X/{name}")
    X = h5py.File(path)["X"]
    return X if layout == "dense" else anndata.io.sparse_dataset(X)


def fit(X, y, **options):
    return MCPCA(RANK, random_state=0, tol=1e-4).fit(X, y, **options)


@pytest.mark.parametrize(
    ("layout", "compression"),
    [
        *[("csr", kind) for kind in ("gzip", "lzf", "zstd", "blosc", "zarr2", "zarr3")],
        *[(layout, kind) for layout in ("csc", "dense") for kind in ("gzip", "zarr3")],
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_the_answer_is_that_of_the_plain_file(small, tmp_path, layout, compression, threads):
    X, y = rows_and_labels()
    plain = write(tmp_path / "plain.h5", X, layout, "plain")
    pressed = write(tmp_path / "pressed", X, layout, compression)
    source = as_source(pressed, "X")
    if compression == "lzf":
        pytest.importorskip("imagecodecs")  # in the extra "test"
    read = source._dataset if layout == "dense" else source._data
    assert isinstance(read, ZarrChunks if "zarr" in compression else CompressedDataset)
    with threadpool_limits(threads):
        one, two = fit(plain, y), fit(pressed, y)
        assert one.n_passes_ > 2
        same(one, two)
        if threads > 1:  # the same again, whatever their timing was
            same(two, fit(pressed, y))


def test_blocks_are_read_ahead_in_order(small, tmp_path, rng):
    X, _ = rows_and_labels()
    source = as_source(write(tmp_path / "rows.h5", X, "csr", "gzip"), "X")
    scan, begun = source.scan, []

    def watched(max_bytes):
        for item in scan(max_bytes):
            begun.append(item[0])
            yield item

    source.scan = watched
    with threadpool_limits(2), blas_aside():
        seen = []
        for first, block in blocks_ahead(source, 2**11):
            np.testing.assert_array_equal(block.toarray(), X[first : first + block.shape[0]])
            seen.append(first)
            assert len(begun) <= len(seen) + 1  # one block ahead, and no more
    assert seen == begun
    assert len(seen) > 5
    begun.clear()
    with threadpool_limits(1), blas_aside():
        next(blocks_ahead(source, 2**11))
        assert len(begun) == 1  # with one thread nothing runs beside it
    begun.clear()
    with threadpool_limits(2):
        next(blocks_ahead(source, 2**11))
        assert len(begun) == 1  # nor where that would change the threads of BLAS


def test_a_block_that_cannot_be_read_ahead_raises_where_it_is_due(small, tmp_path):
    X, _ = rows_and_labels()
    path = tmp_path / "rows.h5"
    write(path, X, "csr", "gzip")
    damage(path, "data", 3)
    source = as_source(anndata.io.sparse_dataset(h5py.File(path)["X"]), "X")
    with threadpool_limits(2), blas_aside():
        blocks = blocks_ahead(source, 2**11)
        assert next(blocks)[0] == 0
        with pytest.raises(OSError, match="chunk 3 "):
            list(blocks)


def damage(path, name, number):
    """Flip bytes in the middle of a stored chunk."""
    with h5py.File(path) as file:
        info = file["X"][name].id.get_chunk_info(number)
    with open(path, "r+b") as file:
        file.seek(info.byte_offset + info.size // 2)
        content = file.read(8)
        file.seek(info.byte_offset + info.size // 2)
        file.write(bytes(255 - byte for byte in content))


class Meanwhile:
    """Calls ``what`` when a fit adds its n-th group of rows, and counts the groups."""

    def __init__(self, monkeypatch, n, what):
        self.groups, self.n, self.what, self.add = 0, n, what, passes._add_group
        monkeypatch.setattr(passes, "_add_group", self)

    def __call__(self, *arguments, **more):
        self.groups += 1
        if self.groups == self.n:
            self.what()
        return self.add(*arguments, **more)


@pytest.mark.parametrize("name", ["data", "indices"])
@pytest.mark.parametrize("past_the_library", [True, False])
def test_a_damaged_chunk_is_named_and_the_fit_goes_on_with_a_whole_file(
    small, tmp_path, monkeypatch, name, past_the_library
):
    if not past_the_library:
        monkeypatch.setattr("mcpca._data.disk.direct", lambda dataset: dataset)
    X, y = rows_and_labels()
    path, copy, ckpt = tmp_path / "rows.h5", tmp_path / "copy.h5", tmp_path / "fit.ckpt"
    write(path, X, "csr", "gzip").group.file.close()
    shutil.copy(path, copy)
    time = os.stat(path).st_mtime_ns
    meanwhile = Meanwhile(monkeypatch, -1, None)
    # The thread that reads ahead is not to see the file between the damage and its old time.
    quiet, check = Lock(), FileState.check

    def check_quietly(self):
        with quiet:
            check(self)

    monkeypatch.setattr(FileState, "check", check_quietly)

    def fail_as_a_disk_does():
        with quiet:
            damage(path, name, 9)
            os.utime(path, ns=(time, time))

    def refit(**options):
        meanwhile.groups = 0
        with h5py.File(path, rdcc_nbytes=0) as file:  # without chunks that HDF5 has decoded before
            return MCPCA(RANK, random_state=0, tol=1e-4).fit(anndata.io.sparse_dataset(file["X"]), y, **options)

    unbroken, n_groups = refit(), meanwhile.groups
    meanwhile.n, meanwhile.what = 6, fail_as_a_disk_does
    with pytest.raises(OSError, match="damaged") as caught:
        refit(checkpoint=ckpt)
    message = str(caught.value)
    assert f"chunk 9 (entries 2700 to 2999) of dataset '/X/{name}' in {path} is damaged" in message
    assert re.match(r"X: rows \d+ to \d+ could not be read: chunk", message)
    assert "Copy or write the file again; the checkpoint of a fit, if it has one, is kept" in message
    assert "\n" not in message
    assert ckpt.exists()
    shutil.copy(copy, path)
    meanwhile.n = -1
    same(refit(checkpoint=ckpt), unbroken)
    assert 0 < meanwhile.groups <= n_groups - 5  # what the checkpoint had was not multiplied again
    assert not ckpt.exists()


def test_a_damaged_chunk_of_a_dense_file_and_of_zarr(small, tmp_path):
    X, y = rows_and_labels()
    path = tmp_path / "rows.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("X", data=X, chunks=(50, 10), compression="gzip")
    with h5py.File(path) as file:
        info = file["X"].id.get_chunk_info_by_coord((100, 20))
    with open(path, "r+b") as file:
        file.seek(info.byte_offset + 2)
        file.write(b"\xff" * 20)
    with (
        h5py.File(path) as file,
        pytest.raises(OSError, match=r"chunk \(2, 2\) \(rows 100 to 149\) of dataset '/X' in"),
    ):
        fit(file["X"], y)
    for version in (2, 3):
        store = tmp_path / f"z{version}"
        array = zarr.open_group(store, mode="w", zarr_format=version).create_array("X", data=X, chunks=(50, 40))
        chunk = store / "X" / ("c/2/0" if version == 3 else "2.0")
        chunk.write_bytes(chunk.read_bytes()[:-30])
        with pytest.raises(
            OSError, match=rf"chunk \(2, 0\) \(rows 100 to 149\) of dataset '/X' in .*z{version} is damaged"
        ):
            fit(array, y)
    # Not by data=X, which loses rows with Zarr 3.1.0 to 3.1.2.
    group, layout = zarr.open_group(tmp_path / "s", mode="w"), {"chunks": (25, 40), "shards": (50, 40)}
    shards = group.create_array("X", shape=X.shape, dtype=X.dtype, **layout)
    shards[...] = X
    chunk = tmp_path / "s/X/c/2/0"
    chunk.write_bytes(chunk.read_bytes()[:-30])
    with pytest.raises(OSError, match=r"chunk \(4, 0\) \(rows 100 to 124\) of dataset '/X' in .*s is damaged"):
        fit(shards, y)


def append(path):
    with open(path, "ab") as file:
        file.write(b"more")


def touch(path):
    os.utime(path, ns=(1, os.stat(path).st_mtime_ns + 10**9))


def replace(path):
    shutil.copy(path, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)


@pytest.mark.parametrize(
    ("layout", "compression", "change", "difference"),
    [
        ("csr", "gzip", append, r"it had \d+ bytes and has \d+"),
        ("csr", "plain", append, r"it had \d+ bytes and has \d+"),
        ("csr", "gzip", touch, "it was written to"),
        ("dense", "gzip", touch, "it was written to"),
        ("csr", "gzip", replace, "another file has taken its place"),
        ("csr", "gzip", os.remove, "it is gone"),
    ],
)
def test_a_file_that_changes_during_a_fit(small, tmp_path, monkeypatch, change, difference, layout, compression):
    monkeypatch.setattr(row_groups, "SCAN_BYTES", 2**11 if layout == "csr" else 2**14)
    X, y = rows_and_labels()
    path, copy, ckpt = tmp_path / "rows.h5", tmp_path / "copy.h5", tmp_path / "fit.ckpt"
    unbroken = fit(write(path, X, layout, compression), y)
    shutil.copy(path, copy)

    def opened(file):
        return file["X"] if layout == "dense" else anndata.io.sparse_dataset(file["X"])

    Meanwhile(monkeypatch, 6, lambda: change(path))
    expected = rf"X: rows \d+ to \d+ could not be read: {path} has changed since it was first read \({difference}\)"
    with h5py.File(path) as file, pytest.raises(OSError, match=expected) as caught:
        fit(opened(file), y, checkpoint=ckpt)
    assert "Leave the file as it is during a fit" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert ckpt.exists()
    shutil.copy(copy, path)
    with h5py.File(path) as file:
        same(fit(opened(file), y, checkpoint=ckpt), unbroken)


def test_a_chunk_of_zarr_that_changes_during_a_fit(small, tmp_path, monkeypatch):
    X, y = rows_and_labels()
    store = write(tmp_path / "z", X, "csr", "zarr3")
    unbroken = fit(store, y)
    # The last one: how many there are is for anndata and Zarr to choose.
    chunk = max((tmp_path / "z/X/indices/c").iterdir(), key=lambda path: int(path.name))
    content = chunk.read_bytes()
    Meanwhile(monkeypatch, 6, lambda: chunk.write_bytes(content + b"more"))
    with pytest.raises(
        OSError, match=rf"{chunk} has changed since it was first read \(the file of a chunk was written"
    ):
        fit(store, y, checkpoint=tmp_path / "fit.ckpt")
    chunk.write_bytes(content)
    same(fit(store, y, checkpoint=tmp_path / "fit.ckpt"), unbroken)


def test_damage_to_the_pointers_of_rows_is_named(tmp_path):
    X, _ = rows_and_labels()
    path = tmp_path / "rows.h5"
    write(path, X, "csr", "gzip").group.file.close()
    damage(path, "indptr", 1)
    with h5py.File(path) as file, pytest.raises(OSError, match=r"X: its shape and indptr could not be read: chunk 1 "):
        as_source(anndata.io.sparse_dataset(file["X"]), "X")
