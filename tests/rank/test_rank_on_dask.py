"""The automatic rank of rows on Dask is that of the same rows in memory, however they are cut into blocks."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import mcpca._covariances.fit_data
import mcpca._rank.rank_data
from mcpca import MCPCA, NothingAboveNoiseError, SmallContextsWarning, match_components, select_rank
from mcpca._covariances.checkpoint import Checkpoint
from mcpca._covariances.context_covariances import covariances_of
from mcpca._covariances.fit_data import fit_data_of_rows, without_basis
from mcpca._data.contexts import read_contexts
from mcpca._inference.sampling import some_rows, split_rows
from mcpca._rank.leading_directions import in_directions
from mcpca._rank.rank_data import fits_here, rank_data
from mcpca._utils.progress import silent
from mcpca.datasets import make_contexts

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

P, R = 120, 3


@pytest.fixture(scope="module")
def data():
    """Rows in an order that mixes contexts."""
    drawn = make_contexts(6, P, R, n_samples=120, noise=0.15, random_state=1)
    order = np.random.default_rng(0).permutation(len(drawn.X))
    return drawn.X[order] + 1, np.array(list("abcdef"))[drawn.y[order]]


@pytest.fixture
def by_passes(monkeypatch):
    """No stack of covariances, as for thousands of features, and more rows than come here."""
    monkeypatch.setattr(mcpca._covariances.fit_data, "MOST_NUMBERS", 0)
    monkeypatch.setattr(mcpca._rank.rank_data, "RANK_FEATURES", 20)
    monkeypatch.setattr(mcpca._rank.rank_data, "fits_here", lambda contexts: False)


def on_dask(X, rows=97):
    return da.from_array(X, chunks=(rows, X.shape[1]))


def assert_same_choice(found, expected):
    assert found.reason == expected.reason
    assert (found.rank, found.outcome, found.n_above_noise) == (
        expected.rank,
        expected.outcome,
        expected.n_above_noise,
    )
    assert list(found.columns) == list(expected.columns)
    for name in set(expected.columns) - {"context consistency"}:  # ranks of numbers that may be equal but for rounding
        np.testing.assert_allclose(found.columns[name], expected.columns[name], rtol=1e-5, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(found.replicability.cosines, expected.replicability.cosines, atol=1e-5)
    np.testing.assert_array_equal(found.dependence.p_values, expected.dependence.p_values)
    np.testing.assert_allclose(found.dependence.statistics, expected.dependence.statistics, rtol=1e-4)


# The same answer


def forms(X, y, folder):
    """The same rows in the same order within contexts."""
    h5py = pytest.importorskip("h5py")
    dd = pytest.importorskip("dask.dataframe")
    with h5py.File(folder / "rows.h5", "w") as file:
        file["X"] = X
        yield "file", (file["X"], y)
    yield "sparse", (sp.csr_array(X), y)
    yield "blocks of 97", (on_dask(X), y)
    yield "blocks of all lengths", (da.from_array(X, chunks=((1, 300, 419), P)), da.from_array(y, chunks=200))
    yield "sparse blocks", (on_dask(X, 200).map_blocks(sp.csr_array), y)
    frame = pd.DataFrame(X, columns=[f"f{j}" for j in range(P)]).assign(context=y)
    yield "frame", (dd.from_pandas(frame, npartitions=3, sort=False), "context")
    # Whole partitions of one context, as files by donor have them.
    yield "contexts apart", ({name: on_dask(X[y == name], 50) for name in np.unique(y)}, None)
    by_context = np.argsort(y, kind="stable")
    yield "sorted", (on_dask(X[by_context], 120), y[by_context])


def test_by_passes(data, by_passes, tmp_path):
    expected = MCPCA(random_state=0).fit(*data).rank_choice_
    assert expected.rank == R
    assert expected.outcome == "agreed"
    assert expected.replicability.n_replicating == R
    for name, form in forms(*data, tmp_path):
        found = MCPCA(random_state=0).fit(*form).rank_choice_
        assert_same_choice(found, expected)
        assert found.above_noise is None, name


def test_with_a_stack(data, tmp_path):
    X, y = data
    expected = MCPCA(random_state=0).fit(X, y).rank_choice_
    assert expected.rank == R
    assert expected.above_noise.min() > 0.9
    for rows in (on_dask(X), on_dask(X, 200).map_blocks(sp.csr_array)):
        found = MCPCA(random_state=0).fit(rows, y).rank_choice_
        assert_same_choice(found, expected)
        np.testing.assert_allclose(found.above_noise, expected.above_noise, atol=1e-6)


@pytest.mark.parametrize("passes", [False, True])
def test_all_criteria(data, passes, request):
    if passes:
        request.getfixturevalue("by_passes")
    X, y = data
    found, expected = (select_rank(rows, y, ranks=[2, R], random_state=0) for rows in (on_dask(X), X))
    assert_same_choice(found, expected)
    assert {"context agreement", "held-out log-likelihood", "projection similarity"} <= set(found.columns)
    votes = {name: vote for name, vote in expected.votes.items() if name != "context consistency"}
    assert votes.items() <= found.votes.items()


def test_axes_that_the_most_variable_features_have_no_part_in(by_passes):
    drawn = make_contexts(5, 200, R, n_samples=200, noise=0.1, random_state=0)
    loud = np.random.default_rng(0).standard_normal((len(drawn.X), 40)) * 0.3
    assert loud.var(axis=0).min() > drawn.X.var(axis=0).max()
    model = MCPCA(random_state=0).fit(on_dask(np.hstack([drawn.X, loud]), 300), drawn.y)
    assert model.n_components_ == R
    assert match_components(drawn.components, model.components_[:200]).cosines.min() > 0.97


@pytest.mark.parametrize("passes", [False, True])
def test_noise_has_no_rank(passes, request):
    if passes:
        request.getfixturevalue("by_passes")
    noise = np.random.default_rng(0).standard_normal((800, 60))
    with pytest.raises(NothingAboveNoiseError, match="Nothing is above noise"):
        MCPCA(random_state=0).fit(on_dask(noise), np.repeat(np.arange(4), 200))


def test_replicating_ones_are_kept(data, by_passes):
    X, y = data
    found, expected = (MCPCA("replicating", random_state=0).fit(rows, y) for rows in (on_dask(X), X))
    np.testing.assert_allclose(found.components_, expected.components_, atol=1e-6)
    np.testing.assert_allclose(found.loadings_, expected.loadings_, rtol=1e-5)


@pytest.mark.parametrize("passes", [False, True])
def test_groups_and_batches(data, passes, request):
    if passes:
        request.getfixturevalue("by_passes")
    X, y = data
    donors = np.random.default_rng(1).integers(0, 12, len(y))
    shifted = X + np.random.default_rng(2).standard_normal((3, P))[donors % 3]
    for rows, annotations in ((X, {"groups": donors}), (shifted, {"batch": donors % 3})):
        found, expected = (
            select_rank(form, y, ranks=[R], criteria=(), random_state=0, **annotations)
            for form in (on_dask(rows), rows)
        )
        assert_same_choice(found, expected)
        assert found.replicability.by == ("groups" if "groups" in annotations else "rows")
        assert found.replicability.agreement.min() > 0.95


def test_small_contexts_have_no_say(data, by_passes):
    X, y = data
    y = np.where(np.isin(np.arange(len(y)), [5, 400, 719]), "few", y)
    choices = []
    for rows in (on_dask(X), X):
        with pytest.warns(SmallContextsWarning, match=r"'few' \(3\)"):
            choices.append(select_rank(rows, y, criteria=(), random_state=0))
    assert_same_choice(*choices)


def test_methods_of_a_model(data):
    X, y = data
    model = MCPCA(R, random_state=0).fit(X, y)
    for by in ("rows", "contexts"):
        found, expected = (model.replicability(rows, y, n_splits=2, by=by, random_state=0) for rows in (on_dask(X), X))
        np.testing.assert_allclose(found.cosines, expected.cosines, atol=1e-6)
    for batch in (None, np.arange(len(y)) % 3):
        groups = {"batch": batch} if batch is not None else {"groups": np.arange(len(y)) // 5}
        fitted = MCPCA(R, random_state=0).fit(X, y, batch=batch)
        found, expected = (fitted.bootstrap(rows, y, 3, random_state=0, **groups) for rows in (on_dask(X), X))
        np.testing.assert_allclose(found.loadings, expected.loadings, rtol=1e-6)
        np.testing.assert_allclose(found.angles, expected.angles, atol=1e-4)
    found, expected = (
        model.context_dependence(rows, y, n_splits=2, n_permutations=39, random_state=0) for rows in (on_dask(X), X)
    )
    np.testing.assert_array_equal(found.p_values, expected.p_values)
    np.testing.assert_allclose(found.statistics, expected.statistics, rtol=1e-6)


@pytest.mark.parametrize("passes", [False, True])
def test_cross_fitted_loadings(data, passes, request):
    if passes:
        request.getfixturevalue("by_passes")
    X, y = data
    found, expected = (MCPCA(R, cross_fit=1, random_state=0).fit(rows, y) for rows in (on_dask(X, 300), X))
    np.testing.assert_allclose(found.corrected_loadings_, expected.corrected_loadings_, rtol=1e-4)
    np.testing.assert_allclose(found.attenuation_, expected.attenuation_, rtol=1e-4)


# Rows that come here, and more than do


@pytest.mark.parametrize("sparse", [False, True])
def test_few_rows_come_here_whatever_their_features(data, by_passes, monkeypatch, sparse):
    X, y = data
    there = on_dask(X).map_blocks(sp.csr_array) if sparse else on_dask(X)
    stayed = MCPCA(random_state=0).fit(there, y).rank_choice_
    monkeypatch.setattr(mcpca._rank.rank_data, "fits_here", lambda contexts: True)
    contexts = read_contexts(there, y)
    examined = rank_data(fit_data_of_rows(contexts, R, None, silent, Checkpoint(None, {})), contexts.n_samples, silent)
    assert examined.contexts.engine is None
    assert examined.moments is None
    assert_same_choice(MCPCA(random_state=0).fit(there, y).rank_choice_, stayed)


def test_what_fits_here(data, monkeypatch):
    X, y = data
    contexts = read_contexts(on_dask(X), y)
    monkeypatch.setattr(mcpca._rank.rank_data, "_MOST_BYTES", X.nbytes)
    assert fits_here(contexts)
    monkeypatch.setattr(mcpca._rank.rank_data, "_MOST_BYTES", X.nbytes - 1)
    assert not fits_here(contexts)


def test_the_noise_test_of_a_sample(data, monkeypatch):
    """Halves are of all rows, and the same as in memory; the noise test is of some rows of every context."""
    X, y = data
    monkeypatch.setattr(mcpca._rank.rank_data, "_MOST_BYTES", X.nbytes // 2)
    contexts = read_contexts(on_dask(X), y)
    examined = rank_data(without_basis(contexts, None, silent), contexts.n_samples, silent)
    assert examined.contexts.engine is not None
    moments, sample = examined.for_noise_test(np.random.default_rng(0))
    assert sample.engine is None
    np.testing.assert_array_equal(sample.n_samples, np.full(6, 60))
    np.testing.assert_array_equal(moments.n_samples, sample.n_samples)
    np.testing.assert_allclose(moments.covariances[1], np.cov(sample.dense_block(1).T), atol=1e-10)
    found, expected = (select_rank(rows, y, criteria=(), random_state=0) for rows in (on_dask(X), X))
    assert found.rank == expected.rank == R
    np.testing.assert_allclose(found.replicability.cosines, expected.replicability.cosines, atol=1e-6)


def test_many_features_of_many_rows_go_by_passes(data, monkeypatch):
    X, y = data
    monkeypatch.setattr(mcpca._rank.rank_data, "_MOST_BYTES", X.nbytes // 2)
    monkeypatch.setattr(mcpca._rank.rank_data, "RANK_FEATURES", 20)
    contexts = read_contexts(on_dask(X), y)
    whole = without_basis(contexts, None, silent)
    assert whole.moments is not None
    assert rank_data(whole, contexts.n_samples, silent).moments is None
    assert select_rank(on_dask(X), y, criteria=(), random_state=0).rank == R


def test_coordinates_of_a_sample(data, monkeypatch):
    X, y = data
    W = np.random.default_rng(0).standard_normal((P, 5))
    contexts = read_contexts(on_dask(X), y)
    moments, rows = in_directions(contexts, W, np.random.default_rng(0))
    twin = read_contexts(X @ W, y)
    for i in range(6):
        np.testing.assert_allclose(rows.dense_block(i), twin.dense_block(i), atol=1e-10)
    monkeypatch.setattr(mcpca._rank.rank_data, "_MOST_BYTES", 5 * 8 * 300)
    moments, rows = in_directions(contexts, W, np.random.default_rng(0))
    np.testing.assert_array_equal(rows.n_samples, np.full(6, 50))
    assert moments.covariances.shape == (6, 5, 5)


# Rows that are chosen


def test_chosen_rows_are_those_of_memory(data):
    X, y = data
    there, here = read_contexts(on_dask(X).map_blocks(sp.csr_array), y), read_contexts(X, y)
    for half, twin in zip(
        split_rows(there, 0.5, np.random.default_rng(0)), split_rows(here, 0.5, np.random.default_rng(0)), strict=True
    ):
        for found, expected in ((half, twin), (half.in_order(["d", "b"]), twin.in_order(["d", "b"]))):
            gathered = found.here()
            assert gathered.engine is None
            assert gathered.names.tolist() == expected.names.tolist()
            for i in range(len(expected.names)):
                np.testing.assert_array_equal(gathered.dense_block(i), expected.dense_block(i))
            # By chance within each context: every block has rows of it.
            assert len(found.engine.blocks) == 8
    few = some_rows(there, 90, np.random.default_rng(0), least=20)
    np.testing.assert_array_equal(few.n_samples, np.full(6, 20))
    assert len(few.here().dense_block(0)) == 20


def test_chosen_rows_of_contexts_apart_and_without_a_label(data):
    X, y = data
    apart = read_contexts([on_dask(X[y == name], 40) for name in np.unique(y)])
    chosen = apart.in_order([2, 0]).take([np.array([119, 3]), np.arange(5)])
    gathered = chosen.here()
    np.testing.assert_array_equal(gathered.dense_block(0), X[y == "c"][[119, 3]])
    np.testing.assert_array_equal(gathered.dense_block(1), X[y == "a"][:5])
    # Blocks without a chosen row are not loaded.
    assert [(block.matrix, block.number) for block in chosen.engine.blocks] == [(0, 0), (2, 0), (2, 2)]


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_that_are_drawn_twice(data, sparse):
    """A row that was drawn t times counts t times in every pass, and comes as often."""
    X, y = data
    there = read_contexts(on_dask(X).map_blocks(sp.csr_array) if sparse else on_dask(X), y)
    here = read_contexts(X, y)
    rng = np.random.default_rng(0)
    drawn = [rng.integers(n, size=n) for n in here.n_samples.tolist()]
    drawn[0][:] = 7  # one row 120 times
    found, expected = there.take(drawn), here.take(drawn)
    left, right = (covariances_of(contexts, silent) for contexts in (found, expected))
    np.testing.assert_allclose(left.covariances, right.covariances, atol=1e-10)
    np.testing.assert_allclose(left.means, right.means)
    np.testing.assert_allclose(left.covariances[0], 0, atol=1e-12)
    gathered = found.here()
    for i in range(6):
        np.testing.assert_array_equal(gathered.dense_block(i), expected.dense_block(i))
    # Some of those that were drawn, again.
    again = [rng.integers(len(rows), size=30) for rows in drawn]
    np.testing.assert_allclose(
        covariances_of(found.take(again), silent).covariances,
        covariances_of(expected.take(again), silent).covariances,
        atol=1e-10,
    )


def test_a_row_is_in_one_context(data):
    X, y = data
    contexts = read_contexts(on_dask(X), y)
    rows = [np.array([0, 0])] + [contexts.rows[0][:2]] * 5
    with pytest.raises(ValueError, match="needs its rows in the memory of this process"):
        contexts.engine.chosen(contexts.sources, rows)
