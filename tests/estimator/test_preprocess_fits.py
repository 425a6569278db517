"""A fit of raw counts is the fit of rows prepared by hand, in every form and in everything that takes rows later."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from strict_arrays import strict_arrays

import mcpca
from mcpca import MCPCA, ContextMoments, NotCountsWarning, Preprocess
from twins import log1p_of_counts

pytestmark = pytest.mark.filterwarnings("ignore:1 of 360 rows of X are without counts")
K, N, P, R = 4, 90, 18, 2


def roots(block):
    return np.sqrt(block)


@pytest.fixture(scope="module")
def data():
    """Counts of two programmes whose activity depends on the context, of cells of very different depth."""
    rng = np.random.default_rng(5)
    B = np.array([[4.0, 0.2], [0.2, 4.0], [3.0, 3.0], [0.5, 1.5]])
    programmes = rng.normal(size=(R, P))
    y = np.repeat([f"c{i}" for i in range(K)], N)
    activity = rng.normal(size=(K * N, R)) * np.sqrt(np.repeat(B, N, axis=0)) * 0.25
    depth = rng.lognormal(0, 0.7, (K * N, 1))
    # Rows are compared at the same total, so that a programme is one only but for a factor of all features.
    programmes -= programmes.mean(axis=1, keepdims=True)
    X = rng.poisson(60 * depth * np.exp(activity @ programmes))
    order = rng.permutation(K * N)
    X, y = X[order], y[order]
    X[11] = 0
    return X.astype(float), y, programmes


@pytest.fixture(scope="module")
def by_hand(data):
    X, y, _ = data
    rows = log1p_of_counts(X)
    return rows, MCPCA(R, random_state=0).fit(rows, y)


def assert_same_fit(model, expected, atol=1e-9):
    np.testing.assert_allclose(model.components_, expected.components_, atol=atol)
    np.testing.assert_allclose(model.loadings_, expected.loadings_, atol=atol)
    np.testing.assert_allclose(model.means_, expected.means_, atol=atol)


def forms(X, y, tmp_path):
    h5py = pytest.importorskip("h5py")
    zarr = pytest.importorskip("zarr")
    anndata = pytest.importorskip("anndata")
    da = pytest.importorskip("dask.array")
    file = h5py.File(tmp_path / "rows.h5", "w")
    file["dense"] = X
    anndata.io.write_elem(file, "csr", sp.csr_matrix(X))
    store = zarr.open(str(tmp_path / "rows.zarr"), mode="w", zarr_format=2)
    anndata.io.write_elem(store, "csr", sp.csr_matrix(X))
    anndata.AnnData(sp.csr_matrix(X)).write_h5ad(tmp_path / "rows.h5ad")
    return {
        "dense": X,
        "columns first": np.asfortranarray(X),
        "CSR": sp.csr_array(X),
        "CSC": sp.csc_matrix(X),
        "HDF5": file["dense"],
        "CSR in HDF5": anndata.io.sparse_dataset(file["csr"]),
        "CSR in Zarr": anndata.io.sparse_dataset(store["csr"]),
        "AnnData": anndata.AnnData(sp.csr_matrix(X)),
        "backed AnnData": anndata.read_h5ad(tmp_path / "rows.h5ad", backed="r"),
        "chunks": lambda: (X[i : i + 70] for i in range(0, len(X), 70)),
        "Dask": da.from_array(X, chunks=(100, 7)),
        "sparse on Dask": da.from_array(X, chunks=(100, P)).map_blocks(sp.csr_matrix),
    }


def test_every_form_is_the_fit_of_rows_prepared_by_hand(data, by_hand, tmp_path):
    X, y, _ = data
    rows, expected = by_hand
    for name, form in forms(X, y, tmp_path).items():
        model = MCPCA(R, preprocess="log1p", random_state=0).fit(form, y)
        assert model.preprocess_.n_empty == 1, name
        assert_same_fit(model, expected)
        np.testing.assert_allclose(np.asarray(model.transform(form, y)), expected.transform(rows, y), atol=1e-9)


def test_separate_contexts(data, by_hand):
    X, y, _ = data
    expected = by_hand[1]
    blocks = {name: X[y == name] for name in np.unique(y)}
    model = MCPCA(R, preprocess="log1p", random_state=0).fit(blocks)
    assert_same_fit(model, expected)
    scores = model.transform(blocks)
    np.testing.assert_allclose(scores["c1"], expected.transform(by_hand[0][y == "c1"], y[y == "c1"]), atol=1e-9)


def test_passes_over_rows(data, by_hand, monkeypatch, tmp_path):
    """Covariances are never formed: rows are read, and prepared, again in every pass."""
    X, y, _ = data
    monkeypatch.setattr("mcpca._covariances.fit_data.MOST_NUMBERS", 10)
    expected = MCPCA(R, random_state=0).fit(by_hand[0], y)
    assert expected.n_passes_ is not None
    all_forms = forms(X, y, tmp_path)
    for name in ("dense", "CSR", "CSR in HDF5", "chunks", "sparse on Dask"):
        assert_same_fit(MCPCA(R, preprocess="log1p", random_state=0).fit(all_forms[name], y), expected, 1e-6)


def test_planted_axes_are_found_from_raw_counts(data):
    X, y, programmes = data
    some = X.any(axis=1)  # a row without counts is far from all others
    X, y = X[some], y[some]
    angle = mcpca.ascore(MCPCA(R, preprocess="log1p", random_state=0).fit(X, y).components_, programmes.T)
    raw = mcpca.ascore(MCPCA(R, random_state=0).fit(X, y).components_, programmes.T)
    assert angle > 0.95
    assert raw < 0.9


def test_most_variable_features(data, tmp_path):
    X, y, _ = data
    rows = log1p_of_counts(X)
    spec = Preprocess(n_top=7)
    columns = None
    for name, form in forms(X, y, tmp_path).items():
        model = MCPCA(R, preprocess=spec, random_state=0).fit(form, y)
        columns = model.preprocess_.columns if columns is None else columns
        np.testing.assert_array_equal(model.preprocess_.columns, columns, err_msg=name)
        expected = MCPCA(R, random_state=0).fit(rows[:, columns], y)
        assert_same_fit(model, expected)
        assert model.n_features_in_ == len(model.components_) == 7
        # Later rows have all features still.
        scores = np.asarray(model.transform(form, y))
        np.testing.assert_allclose(scores, expected.transform(rows[:, columns], y), atol=1e-9)
    with pytest.raises(ValueError, match="X has 7 features, but MCPCA is expecting 18"):
        model.transform(X[:, columns])


def test_features_by_name(data, by_hand):
    pd = pytest.importorskip("pandas")
    X, y, _ = data
    names = [f"g{j}" for j in range(P)]
    table = pd.DataFrame(X, columns=names)
    model = MCPCA(R, preprocess=Preprocess(n_top=7), random_state=0).fit(table.assign(label=y), "label")
    np.testing.assert_array_equal(model.feature_names_in_, np.array(names)[model.preprocess_.columns])
    scores = model.transform(table, y)
    np.testing.assert_array_equal(model.transform(table[names[::-1]], y), scores)
    np.testing.assert_array_equal(model.transform(table.assign(label=y), "label"), scores)
    with pytest.raises(ValueError, match=r"X lacks 1 of the 18 features of the fit: 'g3'"):
        model.transform(table.drop(columns="g3"), y)


@pytest.fixture(scope="module")
def models(data):
    some = data[0].any(axis=1)
    X, y = data[0][some], data[1][some]
    rows = log1p_of_counts(X)
    raw = MCPCA(R, solver="ml", preprocess="log1p", random_state=0).fit(X, y)
    return X, rows, y, raw, MCPCA(R, solver="ml", random_state=0).fit(rows, y)


class TestLaterRows:
    """Everything that takes rows prepares them as the fit did."""

    @pytest.mark.parametrize("posterior", [False, True])
    def test_transform(self, models, posterior):
        X, rows, y, raw, expected = models
        few = slice(30, 50)  # the total is that of the fit, and not of these rows
        for form in (X, sp.csr_array(X), X.astype(np.float32)):
            scores = raw.transform(form[few], y[few], posterior=posterior)
            np.testing.assert_allclose(scores, expected.transform(rows[few], y[few], posterior=posterior), atol=2e-5)

    def test_loadings_score_and_distances(self, models):
        X, rows, y, raw, expected = models
        np.testing.assert_allclose(raw.loadings_for(X[:80]), expected.loadings_for(rows[:80]), atol=1e-9)
        np.testing.assert_allclose(raw.loadings_for(X, y), expected.loadings_for(rows, y), atol=1e-9)
        np.testing.assert_allclose(raw.outlyingness(X, y), expected.outlyingness(rows, y), atol=1e-8)
        for metric in ("covariance", "likelihood"):
            assert raw.score(X, y, metric=metric) == pytest.approx(expected.score(rows, y, metric=metric))

    def test_a_covariance_is_one_of_prepared_rows(self, models):
        _, rows, _, raw, expected = models
        S = np.cov(rows.T)
        np.testing.assert_allclose(raw.loadings_for(S), expected.loadings_for(S), atol=1e-9)

    def test_resamples_and_halves(self, models):
        X, rows, y, raw, expected = models
        options = {"random_state": 1, "verbose": False}
        first, second = (m.bootstrap(Z, y, n=4, **options) for m, Z in ((raw, X), (expected, rows)))
        np.testing.assert_allclose(first.standard_errors, second.standard_errors, atol=1e-6)
        first, second = (m.replicability(Z, y, n_splits=2, **options) for m, Z in ((raw, X), (expected, rows)))
        np.testing.assert_allclose(first.cosines, second.cosines, atol=1e-6)
        first, second = (
            m.context_dependence(Z, y, n_splits=1, n_permutations=19, **options)
            for m, Z in ((raw, X), (expected, rows))
        )
        np.testing.assert_allclose(first.dispersion, second.dispersion, atol=1e-6)
        first, second = (m.standard_errors(Z, y) for m, Z in ((raw, X), (expected, rows)))
        np.testing.assert_allclose(first.loadings, second.loadings, atol=1e-6)
        assert raw.keep([0], X, y).preprocess_ is raw.preprocess_

    def test_functions_of_rows(self, models):
        X, rows, y, _, _ = models
        raw = mcpca.context_covariances(X, y, preprocess="log1p").covariances
        np.testing.assert_allclose(raw, mcpca.context_covariances(rows, y).covariances, atol=1e-12)
        options = {"ranks": [1, 2], "criteria": (), "random_state": 0}
        raw, expected = mcpca.select_rank(X, y, preprocess="log1p", **options), mcpca.select_rank(rows, y, **options)
        assert (raw.rank, raw.reason) == (expected.rank, expected.reason)
        options = {"n_splits": 1, "baselines": (), "random_state": 0}
        raw = mcpca.compare_solvers(X, y, R, ["mspm"], preprocess="log1p", **options).table
        expected = mcpca.compare_solvers(rows, y, R, ["mspm"], **options).table
        np.testing.assert_allclose(raw["off-diagonal error"], expected["off-diagonal error"])
        options = {"n_splits": 1, "n_permutations": 19, "random_state": 0}
        raw = mcpca.context_dependence(X, y, R, preprocess="log1p", **options)
        np.testing.assert_allclose(raw.dispersion, mcpca.context_dependence(rows, y, R, **options).dispersion)

    def test_robust_cross_fitted_and_chosen(self, models):
        X, rows, y, _, _ = models
        for options in ({"robust": True}, {"cross_fit": 1}, {"solver": "auto"}):
            raw = MCPCA(R, preprocess="log1p", random_state=0, **options).fit(X, y)
            expected = MCPCA(R, random_state=0, **options).fit(rows, y)
            np.testing.assert_allclose(raw.corrected_loadings_, expected.corrected_loadings_, atol=1e-6)
            assert raw.preprocess_ is not None

    def test_nuisance(self, models):
        X, rows, y, _, _ = models
        batch = np.arange(len(y)) % 3
        raw = MCPCA(R, preprocess="log1p", random_state=0).fit(X, y, batch=batch)
        expected = MCPCA(R, random_state=0).fit(rows, y, batch=batch)
        np.testing.assert_allclose(
            raw.transform(X, y, batch=batch), expected.transform(rows, y, batch=batch), atol=1e-9
        )


class TestKept:
    """A model keeps what was done to rows, in a file, a pickle and a clone."""

    @pytest.mark.parametrize(
        "spec",
        ["log1p", Preprocess(n_top=7, scale=True), Preprocess(target_sum=1e4), Preprocess(None, scale=True)],
    )
    def test_in_a_file(self, data, spec, tmp_path):
        X, y, _ = data
        model = MCPCA(R, preprocess=spec, random_state=0).fit(X, y)
        model.save(tmp_path / "model")
        loaded = MCPCA.load(tmp_path / "model")
        assert loaded.preprocess == spec
        assert loaded.preprocess_.summary() == model.preprocess_.summary()
        np.testing.assert_array_equal(loaded.transform(X, y), model.transform(X, y))
        same = clone(loaded).fit(X, y)
        np.testing.assert_array_equal(same.components_, model.components_)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).transform(X, y), model.transform(X, y))

    def test_names_of_raw_features_in_a_file(self, data, tmp_path):
        pd = pytest.importorskip("pandas")
        X, y, _ = data
        table = pd.DataFrame(X, columns=[f"g{j}" for j in range(P)])
        model = MCPCA(R, preprocess=Preprocess(n_top=7), random_state=0).fit(table, y)
        model.save(tmp_path / "model")
        loaded = MCPCA.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.transform(table.iloc[:, ::-1], y), model.transform(table, y))

    def test_a_function_by_its_name(self, data, tmp_path):
        X, y, _ = data
        model = MCPCA(R, preprocess=roots, random_state=0).fit(X, y)
        np.testing.assert_allclose(model.components_, MCPCA(R, random_state=0).fit(np.sqrt(X), y).components_)
        model.save(tmp_path / "model")
        loaded = MCPCA.load(tmp_path / "model")
        with pytest.raises(ValueError, match="the function roots had prepared, and a file keeps only its name"):
            loaded.transform(X, y)
        loaded.preprocess_ = loaded.preprocess_.with_function(roots)
        np.testing.assert_array_equal(loaded.transform(X, y), model.transform(X, y))
        with pytest.raises(ValueError, match="'log1p' is no function"):
            MCPCA(R, preprocess="log1p").fit(X, y).preprocess_.with_function(roots)

    def test_size_factors_are_those_of_rows(self, data, tmp_path):
        X, y, _ = data
        factors = X.sum(axis=1) + 1
        model = MCPCA(R, preprocess=Preprocess(size_factors=factors), random_state=0).fit(X, y)
        rows = log1p_of_counts(X, factors=factors)
        np.testing.assert_allclose(
            model.transform(X, y), MCPCA(R, random_state=0).fit(rows, y).transform(rows, y), atol=1e-9
        )
        with pytest.raises(ValueError, match="Those of a fit are not those of other rows"):
            model.transform(X[:5], y[:5])
        model.save(tmp_path / "model")
        loaded = MCPCA.load(tmp_path / "model")
        with pytest.raises(ValueError, match="size factors of its own rows, which a file does not keep"):
            loaded.transform(X, y)

    def test_size_factors_on_dask(self, data):
        da = pytest.importorskip("dask.array")
        X, y, _ = data
        spec = Preprocess(size_factors=X.sum(axis=1) + 1)
        expected = MCPCA(R, preprocess=spec, random_state=0).fit(X, y)
        model = MCPCA(R, preprocess=spec, random_state=0).fit(da.from_array(X, chunks=(70, P)), y)
        assert_same_fit(model, expected)

    def test_a_changed_file_is_refused(self, data, tmp_path):
        X, y, _ = data
        model = MCPCA(R, preprocess=Preprocess(n_top=7), random_state=0).fit(X, y)
        model.preprocess_ = replace(model.preprocess_, columns=model.preprocess_.columns[::-1])
        model.save(tmp_path / "model")
        with pytest.raises(ValueError, match="no increasing positions"):
            MCPCA.load(tmp_path / "model")

    def test_checkpoint(self, data, tmp_path, monkeypatch):
        X, y, _ = data
        monkeypatch.setattr("mcpca._covariances.fit_data.MOST_NUMBERS", 10)
        model = MCPCA(R, preprocess="log1p", random_state=0)
        first = model.fit(X, y).components_
        np.testing.assert_array_equal(model.fit(X, y, checkpoint=tmp_path / "state").components_, first)


class TestChunks:
    def test_partial_fit_with_a_given_total(self, data):
        X, y, _ = data
        spec = Preprocess(target_sum=500)
        model = MCPCA(R, preprocess=spec, random_state=0)
        for part in np.array_split(np.arange(len(y)), 3):
            model.partial_fit(X[part], y[part])
        assert_same_fit(model, MCPCA(R, preprocess=spec, random_state=0).fit(X, y))
        assert model.preprocess_.target_sum == 500

    @pytest.mark.parametrize("spec", ["log1p", Preprocess(target_sum=1, scale=True), Preprocess(target_sum=1, n_top=3)])
    def test_what_all_rows_are_needed_for(self, data, spec):
        X, y, _ = data
        with pytest.raises(ValueError, match="is not known before the last chunk"):
            MCPCA(R, preprocess=spec).partial_fit(X, y)


class TestRefused:
    def test_what_has_no_rows(self, data):
        X, y, _ = data
        model = MCPCA(R, preprocess="log1p")
        with pytest.raises(ValueError, match="preprocess='log1p' is applied to rows, and covariances"):
            model.fit_covariances(np.eye(4)[None])
        with pytest.raises(ValueError, match="and moments no longer have them"):
            model.fit(ContextMoments().update(X, y))
        with pytest.raises(ValueError, match="preprocess='log1p' has no effect, because it is about rows"):
            mcpca.select_rank(np.stack([np.eye(4)] * 2), n_samples=50, preprocess="log1p")

    def test_missing_values(self, data):
        X, y, _ = data
        with pytest.raises(ValueError, match="preprocess='log1p' with missing='em': totals of rows that lack features"):
            MCPCA(R, solver="ml", missing="em", preprocess="log1p").fit(X, y)
        with pytest.raises(ValueError, match="missing='union' with a model of preprocess='log1p'"):
            MCPCA(R, preprocess="log1p").fit(X, y).transform(X, y, missing="union")

    def test_unknown(self, data):
        X, y, _ = data
        with pytest.raises(ValueError, match="preprocess='log' is unknown"):
            MCPCA(R, preprocess="log").fit(X, y)

    def test_rows_that_are_prepared_already(self, data, by_hand):
        with pytest.warns(NotCountsWarning, match="does not look like raw counts"):
            MCPCA(R, preprocess="log1p").fit(by_hand[0], data[1])

    def test_devices(self, data):
        xp = strict_arrays()
        X, y, _ = data
        rows = xp.asarray(X)
        with pytest.raises(ValueError, match="preprocess='log1p' with rows on a device"):
            MCPCA(R, preprocess="log1p").fit(rows, y)
