"""Compressed chunks, decoded in threads past the library: the same numbers as the library gives, each chunk once."""

import builtins
import importlib
import zlib
from concurrent.futures import ThreadPoolExecutor

import h5py
import numcodecs
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from chunk_files import BLOSC, FLETCHER, GZIP, LZF, ZSTD, by_hand
from same_rows import assert_same_rows

from mcpca._data import chunk_codecs, compressed_chunks
from mcpca._data.chunk_codecs import decode, fletcher32, hdf5_steps, zarr_steps
from mcpca._data.hdf5_bytes import CompressedDataset, DirectDataset, direct
from mcpca._data.sources import as_source
from mcpca._data.zarr_bytes import ZarrChunks, direct_zarr

ad = pytest.importorskip("anndata")

N = 4001


@pytest.fixture
def values(rng):
    return rng.integers(0, 50, N).astype(np.int32)


def same_slices(found, values):
    n = len(values)
    for part in (
        slice(0, n),
        slice(3, 5),
        slice(255, 257),
        slice(256, 512),
        slice(1, n - 1),
        slice(n - 1, n),
        slice(9, 9),
    ):
        np.testing.assert_array_equal(found[part], values[part], strict=True)


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "gzip", "compression_opts": 4},
        {"compression": "gzip", "shuffle": True},
        {"compression": "gzip", "shuffle": True, "fletcher32": True},
        {"compression": "lzf"},
        {"compression": "lzf", "shuffle": True, "fletcher32": True},
        {"shuffle": True},
        {"fletcher32": True},
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint16, np.int8])
def test_filters_of_hdf5(tmp_path, values, options, dtype):
    if options.get("compression") == "lzf":
        pytest.importorskip("imagecodecs")  # in the extra "test"
    values = values.astype(dtype)
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file.create_dataset("data", data=values, chunks=(256,), **options)
    with h5py.File(tmp_path / "rows.h5") as file:
        found = direct(file["data"])
        assert isinstance(found, CompressedDataset)
        same_slices(found, values)


@pytest.mark.parametrize(
    ("code", "codec"), [(ZSTD, numcodecs.Zstd(3)), (BLOSC, numcodecs.Blosc("zstd", 5)), (BLOSC, numcodecs.Blosc("lz4"))]
)
def test_filters_of_plugins(tmp_path, values, code, codec):
    by_hand(tmp_path / "rows.h5", "", values, 256, code, codec.encode)
    with h5py.File(tmp_path / "rows.h5") as file:
        found = direct(file["data"])
        assert isinstance(found, CompressedDataset)
        same_slices(found, values)


def test_what_cannot_be_decoded_is_left_to_the_library(tmp_path, values, monkeypatch):
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file.create_dataset("scaled", data=values, chunks=(256,), scaleoffset=0)
        file.create_dataset("lzf", data=values, chunks=(256,), compression="lzf")
        file.create_dataset("swapped", data=values.astype(">i4"), chunks=(256,), compression="gzip")
    look_up = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", lambda name: look_up("none" if name == "imagecodecs" else name))
    with h5py.File(tmp_path / "rows.h5") as file:
        for name in file:
            assert direct(file[name]) == file[name]
            np.testing.assert_array_equal(direct(file[name])[3:999], values[3:999])


@pytest.mark.parametrize("module", ["deflate", "isal.isal_zlib", "zlib_ng.zlib_ng", "zlib"])
@pytest.mark.parametrize("window", [15, 31])
def test_libraries_that_undo_gzip(values, module, window, monkeypatch):
    pytest.importorskip(module)
    monkeypatch.setattr(chunk_codecs, "_INFLATERS", (module,) if module != "zlib" else ("no_such_module",))
    undo = chunk_codecs._inflater.__wrapped__(window)
    pressed = zlib.compressobj(4, zlib.DEFLATED, window)
    stored = np.frombuffer(pressed.compress(values.tobytes()) + pressed.flush(), np.uint8)
    out = np.zeros(values.nbytes, np.uint8)
    decode(stored, [undo], out)
    np.testing.assert_array_equal(out.view(np.int32), values)
    damaged = stored.copy()
    damaged[len(damaged) // 2] ^= 255
    for wrong, to in (
        (damaged, out),
        (stored[:-9], out),
        (stored, out[:-4]),
        (stored, np.zeros(len(out) + 4, np.uint8)),
    ):
        with pytest.raises(Exception, match=r"\w"):  # each library has its own
            decode(wrong, [undo], to)


@pytest.mark.parametrize(
    "codec", [numcodecs.Zstd(3), numcodecs.Zstd(3, checksum=True), numcodecs.Blosc("lz4"), numcodecs.LZ4()]
)
@pytest.mark.parametrize("n", [1, 40, 300, 70_000])
def test_chunks_of_another_size_are_refused(codec, n):
    steps = zarr_steps([{"id": codec.codec_id}])
    content = (np.arange(n) % 251).astype(np.uint8)
    stored = codec.encode(content.tobytes())
    out = np.zeros(n, np.uint8)
    decode(stored, steps, out)
    np.testing.assert_array_equal(out, content)
    with pytest.raises(ValueError, match=f"{n} bytes came out where {n + 8} are needed"):
        decode(stored, steps, np.zeros(n + 8, np.uint8))
    if n > 1:
        with pytest.raises(ValueError, match=f"{n} bytes came out where {n - 1} are needed"):
            decode(stored, steps, np.zeros(n - 1, np.uint8))


def test_chunks_of_lzf_of_another_size_are_refused():
    imagecodecs = pytest.importorskip("imagecodecs")  # in the extra "test"
    stored = imagecodecs.lzf_encode(bytes(4000))
    with pytest.raises(ValueError, match="4000 bytes came out where 8000 are needed"):
        decode(stored, hdf5_steps([(LZF, ())]), np.zeros(8000, np.uint8))


def test_a_fletcher_checksum_is_what_its_definition_says(rng):
    for n in (0, 1, 2, 7, 1000, 300_001):
        content = rng.integers(0, 256, n).astype(np.uint8)
        one = two = 0
        for high, low in zip(content[::2].tolist(), [*content[1::2].tolist(), 0], strict=False):
            one = (one + 256 * high + low) % 65535
            two = (two + one) % 65535
        assert fletcher32(content) == (one, two)
    (undo,) = hdf5_steps([(FLETCHER, ())])
    with pytest.raises(ValueError, match="do not have the checksum"):
        undo(np.arange(12, dtype=np.uint8), None)


def test_chunks_to_which_filters_were_not_applied_or_that_were_never_written(tmp_path, values):
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        data = file.create_dataset("data", (N,), "i4", chunks=(256,), compression="gzip", shuffle=True, fillvalue=7)
        data[256:512] = values[256:512]
        data.id.write_direct_chunk((512,), values[512:768].tobytes(), filter_mask=0b11)
        data.id.write_direct_chunk((768,), zlib.compress(values[768:1024].tobytes()), filter_mask=0b01)
    with h5py.File(tmp_path / "rows.h5") as file:
        found = direct(file["data"])
        assert isinstance(found, CompressedDataset)
        same_slices(found, np.r_[np.full(256, 7, "i4"), values[256:1024], np.full(N - 1024, 7, "i4")])


@pytest.mark.parametrize("chunks", [(5, 17), (5, 4), (1, 17), (31, 1), (31, 17), (40, 20)])
@pytest.mark.parametrize("compression", ["gzip", None])
def test_dense_matrices(tmp_path, rng, chunks, compression, monkeypatch):
    monkeypatch.setattr(compressed_chunks, "_WORTHWHILE_BYTES", 0)
    monkeypatch.setattr(compressed_chunks, "_TURN_BYTES", 200)
    monkeypatch.setattr(compressed_chunks, "n_workers", lambda: 3)
    X = rng.random((31, 17)).astype(np.float32)
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=chunks, maxshape=(None, None), compression=compression)
    with h5py.File(tmp_path / "rows.h5") as file:
        source = as_source(file["X"], "X")
        plain = compression is None and chunks[1] == 17
        assert isinstance(source._dataset, DirectDataset if plain else CompressedDataset)
        assert_same_rows(source, X)


def test_a_dense_matrix_without_chunks(tmp_path, rng):
    X = rng.random((31, 17))
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["X"] = X
    with h5py.File(tmp_path / "rows.h5") as file:
        source = as_source(file["X"], "X")
        assert isinstance(source._dataset, DirectDataset)
        assert_same_rows(source, X)


@pytest.mark.parametrize("layout", ["csr", "csc"])
@pytest.mark.parametrize("chunk", [7, 60])
def test_sparse_matrices(tmp_path, rng, layout, chunk, monkeypatch):
    monkeypatch.setattr(compressed_chunks, "_WORTHWHILE_BYTES", 0)
    monkeypatch.setattr(compressed_chunks, "_TURN_BYTES", 200)
    monkeypatch.setattr(compressed_chunks, "n_workers", lambda: 3)
    monkeypatch.setattr("mcpca._data.disk.n_workers", lambda: 3)
    monkeypatch.setattr("mcpca._data.disk._READ_BYTES", 300)
    X = (rng.random((31, 17)) * (rng.random((31, 17)) < 0.3)).astype(np.float32)
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        options = {"chunks": (chunk,), "compression": "gzip"}
        ad.io.write_elem(file, "X", sp.csr_matrix(X).asformat(layout), dataset_kwargs=options)
    with h5py.File(tmp_path / "rows.h5") as file:
        source = as_source(ad.io.sparse_dataset(file["X"]), "X")
        assert isinstance(source._data, CompressedDataset)
        assert isinstance(source._indices, CompressedDataset)
        assert_same_rows(source, X)


CODECS = {
    2: [numcodecs.GZip(5), numcodecs.Zlib(5), numcodecs.Zstd(3), numcodecs.Blosc("zstd", 5), numcodecs.LZ4(), None],
    3: [zarr.codecs.GzipCodec(level=5), zarr.codecs.ZstdCodec(level=3), zarr.codecs.BloscCodec(cname="lz4"), None],
}


@pytest.mark.parametrize(("version", "codec"), [(version, codec) for version in (2, 3) for codec in CODECS[version]])
@pytest.mark.parametrize("shape", [(401,), (31, 17)])
def test_arrays_of_zarr(tmp_path, rng, version, codec, shape):
    X = rng.integers(9, size=shape).astype(np.float32)
    X[5:10] = 0  # a chunk that is not stored
    group = zarr.open_group(tmp_path / "z", mode="w", zarr_format=version)
    array = group.create_array("X", shape=shape, dtype="f4", chunks=(5, 4)[: len(shape)], compressors=codec)
    array[...] = X
    found = direct_zarr(array)
    assert isinstance(found, ZarrChunks)
    for part in (slice(0, 31), slice(3, 12), slice(10, 15), slice(30, 31), slice(4, 4)):
        np.testing.assert_array_equal(found[part], X[part], strict=True)


def test_an_array_of_zarr_without_a_fill_value(tmp_path):
    old = zarr.open_group(tmp_path / "old", mode="w", zarr_format=2)
    array = old.create_array("X", shape=(20,), dtype="f4", chunks=(5,), fill_value=None)
    array[5:10] = 1
    found = direct_zarr(array)
    assert isinstance(found, ZarrChunks)
    np.testing.assert_array_equal(found[0:20], array[0:20])


@pytest.mark.parametrize("place", ["start", "end"])
@pytest.mark.parametrize("shape", [(401,), (31, 17)])
def test_shards_of_zarr(tmp_path, rng, shape, place):
    X = rng.integers(9, size=shape).astype(np.float32)
    X[5:10] = 0  # a chunk that is not in its shard
    X[20:30] = 0  # a shard that is not stored
    group = zarr.open_group(tmp_path / "z", mode="w")
    shards = {"shape": (10, 8)[: len(shape)], "index_location": place}
    array = group.create_array("X", shape=shape, dtype="f4", chunks=(5, 4)[: len(shape)], shards=shards)
    array[...] = X
    found = direct_zarr(array)
    assert isinstance(found, ZarrChunks)
    for part in (slice(0, 31), slice(3, 12), slice(10, 15), slice(30, 31), slice(4, 4)):
        np.testing.assert_array_equal(found[part], X[part], strict=True)


def test_other_arrays_of_zarr_are_left_to_the_library(tmp_path, rng):
    X = rng.random((40, 6))
    group = zarr.open_group(tmp_path / "z", mode="w")
    old = zarr.open_group(tmp_path / "old", mode="w", zarr_format=2)
    others = [
        group.create_array("turned", data=X, chunks=(5, 6), filters=zarr.codecs.TransposeCodec(order=(1, 0))),
        group.create_array("swapped", data=X, chunks=(5, 6), serializer=zarr.codecs.BytesCodec(endian="big")),
        old.create_array("filtered", data=X, chunks=(5, 6), filters=[numcodecs.Delta("f8")]),
        old.create_array("columns", data=X, chunks=(5, 6), order="F"),
        zarr.create_array(zarr.storage.MemoryStore(), data=X, chunks=(5, 6)),
    ]
    for array in others:
        assert direct_zarr(array) is array
        np.testing.assert_allclose(as_source(array, "X").gather(slice(3, 30)), X[3:30])


@pytest.fixture
def decoded(monkeypatch):
    """Numbers of the chunks that were decoded, one after the other."""
    numbers = []
    stored = CompressedDataset._stored
    monkeypatch.setattr(
        CompressedDataset,
        "_stored",
        lambda self, opened, chunk: numbers.append(chunk[0]) or stored(self, opened, chunk),
    )
    return numbers


def test_a_chunk_that_two_reads_share_is_decoded_once(tmp_path, values, decoded):
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file.create_dataset("data", data=values, chunks=(256,), compression="gzip")
    with h5py.File(tmp_path / "rows.h5") as file:
        found = direct(file["data"])
        for first in range(0, N, 100):
            np.testing.assert_array_equal(found[first : first + 100], values[first : first + 100])
        assert decoded == list(range(16))
        decoded.clear()
        found = direct(file["data"])
        with ThreadPoolExecutor(4) as pool:
            for first, part in enumerate(pool.map(lambda first: found[first : first + 100], range(0, N, 100))):
                np.testing.assert_array_equal(part, values[100 * first : 100 * first + 100])
        assert sorted(decoded) == list(range(16))


def test_few_chunks_are_kept_and_a_chunk_that_failed_is_not(tmp_path, values, decoded, monkeypatch):
    monkeypatch.setattr(compressed_chunks, "_KEPT_BYTES", 2500)  # two of 1,024 bytes
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file.create_dataset("data", data=values, chunks=(256,), compression="gzip")
    with h5py.File(tmp_path / "rows.h5") as file:
        found = direct(file["data"])
        for chunk in (0, 1, 2, 2, 1, 0):
            found[256 * chunk : 256 * chunk + 9]
        assert decoded == [0, 1, 2, 0]
        assert len(found._kept._chunks) == 2
        monkeypatch.setattr(compressed_chunks, "decode", lambda *_: 1 / 0)
        for _ in range(2):
            with pytest.raises(
                OSError, match=r"chunk 5 \(entries 1280 to 1535\) of dataset '/data'.*ZeroDivisionError"
            ):
                found[1290:1300]


def read_three_times(tmp_path, n_bytes, largest):
    """Return a dataset of 16 chunks of 0, 1, 2, ..., told to keep the first, after three readings at ends of chunks."""
    values = np.arange(N, dtype=np.int32)
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file.create_dataset("data", data=values, chunks=(256,), compression="gzip")
    with h5py.File(tmp_path / "rows.h5") as file:
        found = direct(file["data"])
        found.keep_first(n_bytes, largest)
        for _ in range(3):
            for first, stop in ((0, 1536), (1536, N)):
                np.testing.assert_array_equal(found[first:stop], values[first:stop])
        return found


def test_first_chunks_are_kept_in_as_few_bytes_as_their_numbers_take(tmp_path, decoded):
    found = read_three_times(tmp_path, 9 * 256, N)
    assert {chunk.result().dtype for chunk in found._first._chunks.values()} == {np.dtype(np.uint16)}
    # Four chunks of two bytes a number are decoded once, all others by each reading.
    assert [decoded.count(number) for number in range(16)] == [1] * 4 + [3] * 12


def test_chunks_with_unexpected_numbers_are_kept_as_they_are(tmp_path, decoded):
    found = read_three_times(tmp_path, 9 * 256, 200)  # nine chunks of one byte a number, two of four
    assert len(found._first._chunks) == 2
    assert {chunk.result().dtype for number, chunk in found._first._chunks.items() if number} == {np.dtype(np.int32)}


def test_no_library_is_needed_for_gzip(monkeypatch):
    look_up = builtins.__import__

    def without(name, *rest, **more):
        if name.split(".")[0] in ("deflate", "isal", "zlib_ng", "numcodecs", "imagecodecs"):
            raise ImportError(name)
        return look_up(name, *rest, **more)

    monkeypatch.setattr(importlib, "import_module", lambda name: without(name))
    chunk_codecs._inflater.cache_clear()
    (undo,) = hdf5_steps([(GZIP, (4,))])
    chunk_codecs._inflater.cache_clear()
    assert undo(zlib.compress(b"abcd"), np.empty(4, np.uint8)) == b"abcd"
    for code in (LZF, BLOSC, ZSTD):
        assert hdf5_steps([(GZIP, (4,)), (code, ())]) is None
