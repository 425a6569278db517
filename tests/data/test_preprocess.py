"""Rows that are prepared while they are read: one block at a time, in every form, and what is refused."""

import itertools
import json
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn

from mcpca import NotCountsWarning, Preprocess
from mcpca._data import fitted_preprocess, row_steps
from mcpca._data.contexts import read_contexts
from mcpca._data.held_rows import held
from mcpca._data.preprocess import as_preprocess
from mcpca._data.preprocessed import PreprocessedSource, fit_and_preprocess, fit_preprocess, prepared_source
from mcpca._data.row_steps import row_totals
from mcpca._data.sources import DenseSource, as_source
from twins import log1p_of_counts

pytestmark = pytest.mark.filterwarnings("ignore:2 of 60 rows of X are without counts")
N, P = 60, 16


def scaled_by_one_row(block):
    return block / 2


def centred_by_block(block):
    return block - block.mean(axis=0)


@pytest.fixture
def counts(rng):
    X = rng.poisson(rng.gamma(1.0, 2.0, P), (N, P)).astype(float)
    X[[4, 17]] = 0
    return X


def forms(X, tmp_path):
    """The same rows in memory, in files and in chunks; all but the first are sources, or are made one."""
    h5py = pytest.importorskip("h5py")
    anndata = pytest.importorskip("anndata")
    file = h5py.File(tmp_path / "rows.h5", "w")
    file["dense"] = X
    for name, matrix in (("csr", sp.csr_matrix(X)), ("csc", sp.csc_matrix(X))):
        anndata.io.write_elem(file, name, matrix)
    return {
        "dense": X,
        "CSR": sp.csr_array(X),
        "CSC": sp.csc_array(X),
        "HDF5": file["dense"],
        "CSR on disk": anndata.io.sparse_dataset(file["csr"]),
        "CSC on disk": anndata.io.sparse_dataset(file["csc"]),
        "chunks": lambda: (X[i : i + 13] for i in range(0, len(X), 13)),
        "sparse chunks": lambda: (sp.csr_matrix(X[i : i + 13]) for i in range(0, len(X), 13)),
    }


def dense(block):
    return block.toarray() if sp.issparse(block) else np.asarray(block)


@pytest.mark.parametrize(
    "spec", [Preprocess(), Preprocess(target_sum=1e4), Preprocess(n_top=4), Preprocess(scale=True)]
)
def test_every_form_gives_the_rows_of_the_twin(counts, tmp_path, spec, monkeypatch):
    # Several blocks in every pass, and gathered rows in several parts.
    monkeypatch.setattr("mcpca._data.preprocessed.SCAN_BYTES", 1000)
    expected = log1p_of_counts(counts, spec.target_sum)
    chosen = None
    for name, X in forms(counts, tmp_path).items():
        fitted = fit_preprocess(spec, read_contexts(X))
        if spec.n_top is not None:
            chosen = fitted.columns if chosen is None else chosen
            assert len(chosen) == 4
            np.testing.assert_array_equal(fitted.columns, chosen, err_msg=name)
        wanted = expected if fitted.columns is None else expected[:, fitted.columns]
        if spec.scale:
            np.testing.assert_allclose(fitted.scales, wanted.std(axis=0, ddof=1), err_msg=name)
            wanted = wanted / fitted.scales
        source = prepared_source(as_source(X, "X"), fitted)
        assert source.shape == wanted.shape
        assert source.dtype == np.float64
        assert source.sparse == ("CS" in name or "sparse" in name), name
        # Everything in order, some rows twice and in another order, a stretch, every third, none.
        scanned = np.concatenate([dense(block) for _, block in source.scan(500)])
        np.testing.assert_allclose(scanned, wanted, rtol=1e-12, atol=1e-13, err_msg=name)
        for rows in (np.array([50, 3, 3, 17, 0, 59]), slice(10, 41), slice(1, 50, 3), np.arange(N)[::-1], slice(5, 5)):
            np.testing.assert_allclose(dense(source.gather(rows)), wanted[rows], rtol=1e-12, atol=1e-13, err_msg=name)
        if spec.n_top is not None:
            assert source.nbytes < as_source(X, "X").nbytes


def test_rows_without_counts_stay_zero_and_do_not_count_in_the_median(counts):
    with pytest.warns(UserWarning, match="2 of 60 rows of X are without counts"):
        fitted = fit_preprocess(Preprocess(), read_contexts(counts))
    assert fitted.n_empty == 2
    assert fitted.target_sum == np.median(counts.sum(axis=1)[counts.any(axis=1)])
    assert not fitted.apply(counts)[[4, 17]].any()
    assert "2 rows without counts stayed 0" in fitted.summary()


def test_what_is_given_is_not_written_to(counts):
    counts.flags.writeable = False
    matrix = sp.csr_array(counts)
    before = matrix.data.copy()
    for X in (counts, matrix):
        prepared = fit_and_preprocess(Preprocess(scale=True), read_contexts(X))
        prepared.block(0)
    np.testing.assert_array_equal(matrix.data, before)


@pytest.mark.parametrize(
    ("given", "expected"), [(np.int32, np.float32), (np.uint8, np.float32), (np.float32, np.float32), (float, float)]
)
def test_counts_in_integers_become_single_precision(counts, given, expected):
    for form in (np.asarray, sp.csr_array, sp.csc_array, lambda X: lambda: iter([X[:20], X[20:]])):
        rows = fit_and_preprocess("log1p", read_contexts(form(counts.astype(given))))
        assert rows.dtype == expected
        assert rows.block(0).dtype == expected
        np.testing.assert_allclose(rows.dense_block(0), log1p_of_counts(counts), rtol=3e-6)


def test_few_features_of_rows_in_memory_are_held(counts):
    contexts = read_contexts(sp.csr_array(counts), np.repeat([0, 1], N // 2))
    few = fit_and_preprocess(Preprocess(n_top=4), contexts)
    many = fit_and_preprocess(Preprocess(n_top=12), contexts)
    assert not isinstance(few.sources[0], PreprocessedSource)
    assert isinstance(many.sources[0], PreprocessedSource)
    assert few.sources[0] is few.sources[1]
    np.testing.assert_allclose(few.dense_block(1), log1p_of_counts(counts)[N // 2 :, few.preprocess.columns])


def test_few_features_of_a_file_are_held_if_they_fit(counts, tmp_path):
    expected = log1p_of_counts(counts)
    for name, X in forms(counts, tmp_path).items():
        contexts = read_contexts(X)
        with sklearn.config_context(working_memory=1e-3):  # a kilobyte, of which half of the features take more
            read_again = fit_and_preprocess(Preprocess(n_top=8), contexts)
        few = fit_and_preprocess(Preprocess(n_top=8), contexts)
        assert not isinstance(few.sources[0], PreprocessedSource), name
        in_memory = name in ("dense", "CSR")
        assert isinstance(read_again.sources[0], PreprocessedSource) != in_memory, name
        for rows in (few, read_again):
            np.testing.assert_allclose(rows.dense_block(0), expected[:, rows.preprocess.columns], rtol=1e-12)
            assert rows.preprocess.n_empty == 2


def test_rows_are_never_prepared_as_a_whole(rng, tmp_path, monkeypatch):
    X = np.lib.format.open_memmap(tmp_path / "rows.npy", mode="w+", dtype=np.float32, shape=(4000, 500))
    X[:] = rng.poisson(3.0, X.shape)
    monkeypatch.setattr("mcpca._data.preprocessed.SCAN_BYTES", 2**17)
    tracemalloc.start()
    rows = fit_and_preprocess(Preprocess(scale=True), read_contexts(X))
    for _, block in rows.sources[0].scan(2**17):
        assert block.nbytes <= 2**17
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.nbytes / 6


def test_progress_never_falls(counts):
    told = {}

    def report(stage, done, total):
        assert done >= told.get(stage, (0, total))[0]
        assert total == told.get(stage, (0, total))[1]
        told[stage] = done, total

    # No counts, so that features are chosen in two passes.
    with pytest.warns(NotCountsWarning):
        fit_and_preprocess(Preprocess(n_top=8, scale=True), read_contexts(counts * 1.5), report=report)
    assert told == dict.fromkeys(("variable features", "scales of features", "preparing rows"), (N, N))


def test_totals_are_left_behind_by_the_pass_that_chooses_features(counts):
    scans = []

    class Watched(DenseSource):
        def scan(self, max_bytes):
            scans.append(max_bytes)
            return super().scan(max_bytes)

    fitted = fit_preprocess(Preprocess(n_top=8), read_contexts(Watched(counts, "X")))
    assert len(scans) == 1
    assert fitted.target_sum == fit_preprocess(Preprocess(), read_contexts(counts)).target_sum


@pytest.mark.parametrize("kind", ["log1p", "pearson"])
def test_totals_that_are_known_are_not_added_up_again(counts, monkeypatch, tmp_path, kind):
    """The pass that prepares rows takes them from the one that chose features, for whatever rows it is asked for."""
    spec = Preprocess(kind, n_top=7)
    for X in forms(counts, tmp_path).values():
        raw = read_contexts(X)
        fitted = fit_preprocess(spec, raw)
        source = raw.sources[0]
        known = PreprocessedSource(source, fitted, "X", totals=counts.sum(axis=1))
        anew = PreprocessedSource(source, fitted, "X")
        expected = [dense(anew.gather(rows)) for rows in (slice(3, 40), np.array([17, 4, 59, 0]))]
        together = fit_and_preprocess(spec, raw).sources[0].gather(slice(0, N))
        np.testing.assert_array_equal(dense(together), dense(anew.gather(slice(0, N))))
        with monkeypatch.context() as patch:
            patch.setattr(fitted_preprocess, "row_totals", None)
            for rows, prepared in zip((slice(3, 40), np.array([17, 4, 59, 0])), expected, strict=True):
                np.testing.assert_array_equal(dense(known.gather(rows)), prepared)
            for first, block in known.scan(2000):
                np.testing.assert_array_equal(dense(block), dense(together)[first : first + block.shape[0]])


def test_totals_are_those_of_rows(rng):
    X = rng.poisson(0.3, (50, 8)).astype(np.float32)
    X[[0, 1, 20, 49]] = 0
    for block in (X, sp.csr_array(X), sp.csr_array((3, 8)), np.zeros((0, 8))):
        np.testing.assert_array_equal(row_totals(block), dense(block).sum(axis=1))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_steps_do_not_depend_on_threads(rng, monkeypatch, make, threads):
    X = rng.poisson(0.3, (50, 8)).astype(np.float32)
    X[[0, 1, 20, 49]] = 0
    X[3] = 40  # one row with much of the entries, which no thread shares
    factors = rng.random(50)
    columns = np.array([1, 4, 5])
    monkeypatch.setattr(row_steps, "_WORTHWHILE_ENTRIES", 1)
    monkeypatch.setattr(row_steps, "n_workers", lambda: threads)
    block = make(X)
    parts = row_steps.row_parts(block)
    assert len(parts) == threads
    assert [row for part in parts for row in range(part.start, part.stop)] == list(range(50))
    np.testing.assert_array_equal(row_totals(block), X.sum(axis=1))
    chosen = row_steps.chosen_columns(block, columns)
    np.testing.assert_array_equal(dense(chosen), X[:, columns])
    scaled = row_steps.times_rows(block, factors, np.dtype(np.float32))
    twin = X * factors.astype(np.float32)[:, None]
    np.testing.assert_array_equal(dense(scaled), twin)
    np.testing.assert_array_equal(dense(row_steps.log1p_in_place(scaled)), np.log1p(twin))
    np.testing.assert_array_equal(dense(block), X)


class Blocks:
    """A sparse source of these blocks, which says that it has ``n`` rows."""

    sparse = True
    dtype = np.dtype(np.float32)

    def __init__(self, blocks, n):
        self.blocks = blocks
        self.shape = (n, 8)

    def scan(self, max_bytes):
        first = 0
        for block in self.blocks:
            yield first, block
            first += block.shape[0]


def test_rows_are_held_whatever_their_lengths(rng):
    blocks = [sp.csr_array((rng.random((n, 8)) < share).astype(np.float32)) for n, share in ((5, 0), (9, 0.1), (30, 1))]
    blocks[2].indices = blocks[2].indices.astype(np.int64)  # as those of a matrix with very many entries
    rows = held(Blocks(blocks, 44), 2**16)
    np.testing.assert_array_equal(rows.matrix.toarray(), sp.vstack(blocks).toarray())


def test_rows_that_do_not_fit_are_not_waited_for(rng):
    block = sp.csr_array(np.ones((50, 8), dtype=np.float32))
    # Not all of these blocks are read, and nobody asks for the memory of that many rows.
    assert held(Blocks(itertools.repeat(block), 10**15), 2**16) is None


def test_prepared_contexts_are_not_prepared_again(counts):
    once = fit_and_preprocess("log1p", read_contexts(counts))
    assert fit_and_preprocess("log1p", once) is once


class TestSizeFactors:
    def test_given_ones_take_the_place_of_totals(self, counts, rng):
        factors = rng.gamma(2.0, 1.0, N)
        y = np.arange(N) % 3
        rows = fit_and_preprocess(Preprocess(size_factors=factors), read_contexts(sp.csr_array(counts), y))
        np.testing.assert_allclose(rows.dense_block(1), log1p_of_counts(counts, factors=factors)[y == 1])

    def test_by_context(self, counts, rng):
        factors = rng.gamma(2.0, 1.0, N)
        expected = log1p_of_counts(counts, factors=factors)
        blocks = {"a": counts[:20], "b": counts[20:]}
        for given in ({"b": factors[20:], "a": factors[:20]}, [factors[:20], factors[20:]]):
            rows = fit_and_preprocess(Preprocess(size_factors=given), read_contexts(blocks))
            np.testing.assert_allclose(rows.dense_block(1), expected[20:])

    def test_a_series_goes_by_index(self, counts, rng):
        pd = pytest.importorskip("pandas")
        table = pd.DataFrame(counts, index=[f"row {i}" for i in range(N)])
        factors = pd.Series(rng.gamma(2.0, 1.0, N), index=table.index)
        shuffled = factors.sample(frac=1, random_state=0)
        rows = fit_and_preprocess(Preprocess(size_factors=shuffled), read_contexts(table), table)
        np.testing.assert_allclose(rows.dense_block(0), log1p_of_counts(counts, factors=factors.to_numpy()))

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (np.ones(5), r"size_factors have shape \(5,\), and X has 60 rows"),
            (np.zeros(N), "60 of 60 are not positive and finite"),
            (["a"] * N, "size_factors are no numbers"),
            ("depth", "size_factors='depth' names a column of obs, and X is no AnnData"),
        ],
    )
    def test_errors(self, counts, given, message):
        with pytest.raises(ValueError, match=message):
            fit_and_preprocess(Preprocess(size_factors=given), read_contexts(counts), counts)

    def test_errors_by_context(self, counts):
        contexts = read_contexts({"a": counts[:20], "b": counts[20:]})
        with pytest.raises(ValueError, match="size_factors lack the context 'b'"):
            fit_and_preprocess(Preprocess(size_factors={"a": np.ones(20)}), contexts)
        with pytest.raises(ValueError, match="pass a list or a dict with an array for each"):
            fit_and_preprocess(Preprocess(size_factors=np.ones(N)), contexts)
        with pytest.raises(ValueError, match="are a list of 1, and X has 2 contexts"):
            fit_and_preprocess(Preprocess(size_factors=[np.ones(20)]), contexts)


class TestFaults:
    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
    def test_negative_counts_are_named(self, counts, form):
        counts[31, 5] = -2
        message = r"X has negative values \(-2 at the least, the first of them in row 31, feature 5\)"
        with pytest.raises(ValueError, match=message):
            fit_and_preprocess(Preprocess(target_sum=10), read_contexts(form(counts))).block(0)
        contexts = fit_and_preprocess(Preprocess(target_sum=10), read_contexts(form(counts), np.arange(N) % 2))
        with pytest.raises(ValueError, match="in row 31, feature 5"):
            contexts.block(1)

    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_values_that_are_not_finite_are_named(self, counts, form, value, monkeypatch):
        counts[31, 5] = value
        monkeypatch.setattr("mcpca._data.preprocessed.SCAN_BYTES", 1000)
        for spec in (Preprocess(), Preprocess(target_sum=10)):
            with pytest.raises(ValueError, match=r"within rows 31 to 31, in feature\(s\) 5"):
                fit_and_preprocess(spec, read_contexts(form(counts))).block(0)

    def test_no_counts_at_all(self):
        with pytest.raises(ValueError, match="X has no counts at all"):
            fit_preprocess(Preprocess(), read_contexts(np.zeros((5, 3))))

    def test_logarithms_are_warned_of(self, counts):
        with pytest.warns(NotCountsWarning, match="100% of the values in its first 60 rows .* are logarithms"):
            fit_preprocess(Preprocess(), read_contexts(log1p_of_counts(counts)))

    def test_normalised_rows_are_warned_of(self, counts):
        rows = counts[counts.any(axis=1)]
        with pytest.warns(NotCountsWarning, match="as though they have been normalised"):
            fit_preprocess(Preprocess(), read_contexts(1e3 * rows / rows.sum(axis=1, keepdims=True)))

    def test_a_few_corrected_counts_are_not(self, counts):
        counts[0, 0] = 1.5
        fit_preprocess(Preprocess(), read_contexts(counts))


class TestFunctions:
    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
    def test_gives_the_rows(self, counts, form):
        rows = fit_and_preprocess(np.sqrt, read_contexts(form(counts)))
        np.testing.assert_allclose(rows.dense_block(0), np.sqrt(counts))
        assert rows.preprocess.summary() == "Rows were prepared by the function sqrt."

    def test_of_what_it_was_given_is_scaled_in_a_copy(self, counts):
        rows = fit_and_preprocess(Preprocess(lambda block: block, scale=True), read_contexts(counts))
        before = counts.copy()
        np.testing.assert_allclose(rows.dense_block(0), counts / counts.std(axis=0, ddof=1))
        np.testing.assert_array_equal(counts, before)

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (lambda block: block[:, :3], r"made shape \(60, 3\) of a block of X of shape \(60, 16\)"),
            (lambda block: None, "made a NoneType of a block of X"),
            (lambda block: np.log(block - 100), "made 960 values that are NaN or infinite of finite rows"),
            (lambda block: block * 1j, "made values of dtype complex128"),
            (sp.csr_array, "made a sparse block of a dense one of X; return an array"),
            (centred_by_block, "gives rows of X other values when they come in two blocks"),
        ],
    )
    @pytest.mark.filterwarnings("ignore:invalid value")
    def test_errors(self, counts, function, message):
        with pytest.raises(ValueError, match=message):
            fit_and_preprocess(function, read_contexts(counts))

    def test_sparse_rows_stay_sparse(self, counts):
        with pytest.raises(ValueError, match="made a dense block of a sparse one of X; return a CSR matrix"):
            fit_and_preprocess(lambda block: block.toarray(), read_contexts(sp.csr_array(counts)))

    def test_cannot_write_to_the_rows(self, counts):
        def careless(block):
            block *= 2
            return block

        with pytest.raises(ValueError, match="read-only"):
            fit_and_preprocess(careless, read_contexts(counts))


class TestSpecification:
    def test_short_forms(self):
        assert as_preprocess(None) is None
        assert as_preprocess("log1p") == Preprocess()
        assert as_preprocess(np.sqrt) == Preprocess(np.sqrt)

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: as_preprocess("log2p"), "preprocess='log2p' is unknown"),
            (lambda: as_preprocess(3), "preprocess is a int"),
            (lambda: Preprocess(None), "does nothing"),
            (lambda: Preprocess(np.sqrt, target_sum=3), "target_sum=3 has no effect"),
            (lambda: Preprocess(np.sqrt, size_factors=[1]), "size_factors have no effect"),
            (lambda: Preprocess(target_sum=3, size_factors=[1]), "target_sum=3 has no effect"),
            (lambda: Preprocess(target_sum=0), "target_sum=0 is out of bounds"),
            (lambda: Preprocess(target_sum=np.nan), "target_sum=nan is out of bounds"),
            (lambda: Preprocess(n_top=0), "n_top=0 is out of bounds"),
            (lambda: Preprocess(scale="yes"), "scale='yes' is a str"),
            (lambda: Preprocess(size_factors=""), "size_factors='' names no column"),
        ],
    )
    def test_errors(self, make, message):
        with pytest.raises((ValueError, TypeError), match=message):
            as_preprocess(make())

    def test_more_features_than_there_are(self, counts):
        with pytest.raises(ValueError, match=r"n_top=17 is out of bounds.*X has 16 features"):
            fit_preprocess(Preprocess(n_top=17), read_contexts(counts))
        assert fit_preprocess(Preprocess(n_top=P), read_contexts(counts)).columns is None

    @pytest.mark.parametrize(
        "spec",
        [Preprocess(), Preprocess(target_sum=1e4, scale=True), Preprocess(n_top=7), Preprocess(size_factors="s")],
    )
    def test_json(self, spec):
        assert Preprocess.from_json(json.loads(json.dumps(spec.to_json()))) == spec
        assert eval(repr(spec)) == spec

    def test_json_of_a_function_is_its_name(self):
        spec = Preprocess.from_json(json.loads(json.dumps(Preprocess(scaled_by_one_row).to_json())))
        assert repr(spec) == repr(Preprocess(scaled_by_one_row)) == "Preprocess(scaled_by_one_row)"

    def test_steps_of_a_later_version(self):
        with pytest.raises(ValueError, match="does not know; use a later one"):
            Preprocess.from_json({"kind": "log1p", "whiten": True})
