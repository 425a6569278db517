import tracemalloc

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from same_rows import assert_same_rows

from mcpca._data.blocks import largest
from mcpca._data.detect import is_source_like
from mcpca._data.sources import (
    ChunkSource,
    CSCSource,
    CSRSource,
    DenseSource,
    as_source,
    check_block,
)

N, P = 53, 17
FORMATS = ("csr", "csc", "coo", "bsr", "lil", "dok", "dia")


@pytest.fixture
def dense(rng):
    X = (rng.random((N, P)) * (rng.random((N, P)) < 0.3)).astype(np.float32)
    X[7] = 0
    X[:, 3] = 0
    return X


def blocks_of(X, step=10):
    return lambda: (X[i : i + step] for i in range(0, X.shape[0], step))


class Chunks:
    """Can be iterated again and again."""

    def __init__(self, X):
        self.X = X

    def __iter__(self):
        return blocks_of(self.X)()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, bool, np.float16, ">f4"])
def test_dense_twin(dense, dtype):
    X = np.asarray(dense * 5, dtype=dtype)
    source = as_source(X, "X")
    assert isinstance(source, DenseSource)
    assert source.in_memory
    assert source.dtype == (np.float32 if np.dtype(dtype).itemsize == 4 else np.float64)
    assert source.nbytes == N * P * source.dtype.itemsize
    assert_same_rows(source, X)


@pytest.mark.parametrize("make", [pd.DataFrame, np.asfortranarray, np.ndarray.tolist, np.ma.masked_array])
def test_whatever_becomes_an_array(dense, make):
    assert_same_rows(as_source(make(dense), "X"), dense)


def test_a_slice_of_a_dense_array_is_a_view(dense):
    source = as_source(dense, "X")
    assert np.shares_memory(source.gather(slice(3, 9)), dense)
    assert all(np.shares_memory(block, dense) for _, block in source.scan(300))


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_a_memory_map_is_not_read(tmp_path, dtype):
    X = np.memmap(tmp_path / "X", dtype=dtype, mode="w+", shape=(20_000, 100))
    X[:, 0] = np.arange(20_000)
    tracemalloc.start()
    source = as_source(X, "X")
    total = sum(float(block[:, 0].sum()) for _, block in source.scan(2**17))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(source.array, np.memmap)
    assert total == pytest.approx(20_000 * 19_999 / 2, rel=1e-5)
    assert peak < 2**19  # the map has 8 MB


@pytest.mark.parametrize("kind", ["matrix", "array"])
@pytest.mark.parametrize("layout", FORMATS)
def test_sparse_twin(dense, layout, kind):
    X = getattr(sp, f"{layout}_{kind}")(dense)
    source = as_source(X, "X")
    assert isinstance(source, CSCSource if layout == "csc" else CSRSource)
    assert source.in_memory == (layout != "csc")
    assert source.dtype == np.float32
    assert_same_rows(source, dense)


@pytest.mark.parametrize("layout", ["csr", "csc"])
@pytest.mark.parametrize("dtype", [np.int8, bool, np.int64])
def test_sparse_integers_become_floats(dense, layout, dtype):
    X = (dense * 9).astype(dtype)
    source = as_source(sp.csr_array(X).asformat(layout), "X")
    assert source.dtype == np.float64
    assert_same_rows(source, X)


def test_csr_is_shared_and_wide_indices_are_fine(dense):
    X = sp.csr_array(dense)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    source = as_source(X, "X")
    assert source.nbytes == X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    assert np.shares_memory(source.gather(slice(3, 30)).data, X.data)
    assert_same_rows(source, dense)
    assert X.indices.dtype == np.int64


@pytest.mark.parametrize("layout", [sp.csr_matrix, sp.csc_array])
def test_duplicates_and_unsorted_indices_leave_the_matrix_as_it_is(rng, layout):
    lines, other = (30, 6) if layout is sp.csr_matrix else (6, 30)
    data, indices = rng.random(lines * 8), rng.integers(0, other, lines * 8)
    X = layout((data.copy(), indices.copy(), np.arange(lines + 1) * 8), shape=(30, 6))
    state = {name: id(value) for name, value in vars(X).items()}
    twin = X.toarray()
    assert_same_rows(as_source(X, "X"), twin)
    np.testing.assert_array_equal(X.data, data)
    np.testing.assert_array_equal(X.indices, indices)
    assert {name: id(value) for name, value in vars(X).items()} == state


@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_memory_of_a_scan_is_that_of_blocks(layout):
    X = sp.random(40_000, 200, density=0.1, format=layout, random_state=0)
    source = as_source(X, "X")
    tracemalloc.start()
    number = sum(1 for _ in source.scan(2**18))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert source.nbytes > 9e6
    if layout == "csr":
        assert number >= source.nbytes / 2**18
        assert peak < 2**17  # blocks are views, but for their pointers
    else:  # each block costs a look at all entries
        assert number <= 10
        assert peak < 0.6 * source.nbytes


def test_blocks_keep_to_the_room(dense):
    for X in (dense, sp.csr_array(dense)):
        source = as_source(X, "X")
        for size in (300, 1000):
            blocks = [block for _, block in source.scan(size)]
            room = [
                b.data.nbytes + b.indices.nbytes + b.indptr.nbytes - 4 if sp.issparse(b) else b.nbytes for b in blocks
            ]
            assert max(room) <= size
            assert len(blocks) < 2.5 * source.nbytes / size + 1


@pytest.mark.parametrize(
    "make",
    [
        blocks_of,
        Chunks,
        lambda X: Chunks(pd.DataFrame(X)),
        lambda X: blocks_of(sp.csr_matrix(X)),
        lambda X: lambda: [X[:20], sp.csc_array(X[20:21]), pd.DataFrame(X[21:])],
        lambda X: lambda: [X[:20].astype(np.float64), X[20:20], X[20:]],
    ],
)
def test_chunks_twin(dense, make):
    X = make(dense)
    assert is_source_like(X)
    source = as_source(X, "X")
    assert isinstance(source, ChunkSource)
    assert not source.in_memory
    assert_same_rows(source, dense)


def test_chunks_end_at_the_last_wanted_row(dense):
    seen = []

    def blocks():
        for i in range(0, N, 10):
            seen.append(i)
            yield dense[i : i + 10]

    source = as_source(blocks, "X")
    seen.clear()
    source.gather(np.array([12, 3]))
    assert seen == [0, 10]


def test_chunks_that_do_not_fit(dense):
    with pytest.raises(ValueError, match=r"X\[2\]: block 1 \(rows 53 to 105\) has 4 features where .* have 17"):
        as_source(lambda: [dense, dense[:, :4]], "X[2]")
    with pytest.raises(ValueError, match="X gave no block"):
        as_source(lambda: [], "X")
    with pytest.raises(ValueError, match="X, the block from row 53 on must be 2-D"):
        as_source(lambda: [dense, dense[0]], "X")
    with pytest.raises(TypeError, match="returned a int"):
        as_source(lambda: 3, "X")
    with pytest.raises(TypeError, match=r"function with arguments \(path\)"):
        as_source(lambda path: [dense], "X")


def test_chunks_that_change_between_passes(dense):
    passes = []

    def shrink():
        passes.append(0)
        return [dense[:10], dense[10 : 30 - len(passes)]]

    source = as_source(shrink, "X")
    with pytest.raises(
        ValueError, match=r"X changed .* block 1 \(rows 10 to 28\) had shape \(19, 17\) and now has \(18"
    ):
        list(source.scan(10**6))
    for later, message in (
        ([dense], "gave 2 blocks and now gives 1"),
        ([dense] * 3, "gave 2 blocks and now gives more"),
        ([], "now gives 0 .return a new iterator"),
        ([sp.csr_array(dense)] * 2, r"block 0 \(rows 0 to 52\) was dense and now is sparse"),
    ):
        turns = iter([[dense, dense], later])
        source = as_source(lambda turns=turns: next(turns), "X")
        with pytest.raises(ValueError, match=message):
            list(source.scan(10**6))


def test_one_shot_iterators_are_refused(dense):
    for X in (blocks_of(dense)(), iter([dense]), map(np.asarray, [dense])):
        assert is_source_like(X)
        with pytest.raises(TypeError, match=r"X is a \w+, which can be read only once.*several times.*partial_fit"):
            as_source(X, "X")


def test_what_only_sources_understand(dense):
    for layout in FORMATS:
        assert is_source_like(sp.csr_array(dense).asformat(layout))
    # A column may be called as an attribute of datasets is.
    frame = pd.DataFrame({"format": ["csr"], "group": [1], "chunks": [2]})
    named = {"a": dense}
    for X in (dense, frame, [dense], (dense,), named, named.values(), dense.tolist(), "rows", None, 3, {1}):
        assert not is_source_like(X)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (sp.csr_array(np.eye(3) * 1j), "Complex data not supported: X has dtype complex128"),
        (sp.csc_array(np.eye(3) * 1j), "Complex data not supported"),
        (sp.csr_matrix((3, 0)), r"X has 0 feature\(s\)"),
        (np.eye(3) * 1j, "Complex data not supported"),
        (np.zeros((3, 0)), r"X has 0 feature\(s\)"),
        (np.zeros(3), "X must be 2-D"),
        (np.array([["a", "b"]]), "X has dtype <U1"),
        (pd.DataFrame({"a": ["x"]}), r"non-numeric columns \['a'\]"),
        (np.ma.masked_equal(np.eye(2), 0), "X has 2 masked values"),
    ],
)
def test_no_rows(X, message):
    with pytest.raises(ValueError, match=message):
        as_source(X, "X")


def test_objects_in_a_sparse_matrix():
    X = sp.csr_array(np.eye(2))
    X.data = X.data.astype(object)
    with pytest.raises(ValueError, match="X has dtype object, which is not numeric"):
        as_source(X, "X")


def test_rows_that_are_none(dense):
    for X in (dense, sp.csr_array(dense), sp.csc_array(dense), blocks_of(dense)):
        source = as_source(X, "X")
        with pytest.raises(IndexError, match="rows of X: 0 to 53 are asked for and it has 53"):
            source.gather(np.array([0, N]))
        with pytest.raises(IndexError, match="rows of X: -1 to 2"):
            source.gather(np.array([-1, 2]))
        with pytest.raises(ValueError, match="dtype bool"):
            source.gather(np.ones(N, dtype=bool))


def test_no_rows_at_all(dense):
    for X in (dense[:0], sp.csr_array(dense[:0]), sp.csc_array(dense[:0]), lambda: [dense[:0]]):
        source = as_source(X, "X")
        assert source.shape == (0, P)
        assert list(source.scan(100)) == [] or all(block.shape == (0, P) for _, block in source.scan(100))
        assert source.gather(slice(None)).shape == (0, P)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_check_block(dense, make):
    dense[7, 2:9] = np.nan
    dense[20, 1] = -np.inf
    message = (
        r"X\['a'\] contains 7 NaN and 1 infinite \(inf\) values within rows 107 to 120, in feature\(s\) 1, 2, 3, 4, 5 "
        "and 3 more"
    )
    with pytest.raises(ValueError, match=message):
        check_block(make(dense), 100, "X['a']")
    check_block(make(np.full((2, 2), np.finfo(np.float64).max)), 0, "X")  # its sum is infinite, its values are not
    check_block(make(np.zeros((0, 3))), 0, "X")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[True, False]], 1.0),
        ([[False, False]], 0.0),
        (np.array([[-128, 5]], dtype=np.int8), 128.0),
        ([[-2.5, 1.0]], 2.5),
    ],
)
def test_the_largest_value_of_any_kind_of_number(values, expected):
    """Booleans have no negative, and that of the least int8 is no int8."""
    values = np.asarray(values)
    assert largest(values) == expected
    assert largest(sp.csr_array(values)) == expected
