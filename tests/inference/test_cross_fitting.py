"""Loadings in rows that axes were not fitted to: unbiased where features outnumber rows, and as in new rows."""

import json
import warnings

import numpy as np
import pytest
import scipy.sparse

from mcpca import MCPCA, ContextMoments, match_components, tl
from mcpca._data.contexts import read_contexts
from mcpca._estimator.mcpca import fitted_model
from mcpca._inference import cross_fitting
from mcpca._inference.cross_fitting import _of_the_whole, _parts, expected_inflation
from mcpca._utils import parallel
from mcpca.datasets import make_contexts
from mcpca.exceptions import InflatedLoadingsWarning

K = 8
P = 300
R = 2


def rows_of(A, B, noise, n, seed):
    """Draw n rows in each context."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((len(B), n, B.shape[1])) * np.sqrt(B)[:, None, :]
    X = Z @ A.T + noise * rng.standard_normal((len(B), n, len(A)))
    return X.reshape(-1, len(A)), np.repeat(np.arange(len(B)), n)


@pytest.fixture(scope="module")
def planted():
    """Ten times as many features as rows of a context: A (p, r), B (k, r), rows and labels."""
    rng = np.random.default_rng(5)
    A = np.linalg.qr(rng.standard_normal((P, R)))[0]
    B = np.column_stack([np.tile([2, 0.3], K // 2), np.tile([0.3, 2], K // 2)])
    return A, B, *rows_of(A, B, 0.4, 30, 1)


@pytest.fixture(scope="module", params=["mspm", "ml"])
def fitted(request, planted):
    _, _, X, y = planted
    options = {"solver": request.param, "random_state": 0}
    return MCPCA(R, **options).fit(X, y), MCPCA(R, cross_fit=3, **options).fit(X, y)


@pytest.fixture(scope="module")
def small():
    return make_contexts(4, 12, 2, n_samples=20, noise=0.3, random_state=0)


def share(found, truth):
    """Return the sum of loadings relative to the truth."""
    return found.sum() / truth.sum()


def test_loadings_are_inflated_by_a_fit_and_not_by_a_cross_fit(planted, fitted):
    A, _, X, y = planted
    plain, model = fitted
    order = match_components(plain.components_, A).indices
    # In the same rows but on the true axes: what is left is the effect of fitting these.
    S = np.stack([np.cov(X[y == i], rowvar=False) for i in range(K)])
    on_truth = np.einsum("pj,kpq,qj->kj", A, S, A) - np.einsum("kpp->k", S)[:, None] / P
    assert share(plain.corrected_loadings_, on_truth) > 1.2
    assert abs(share(model.corrected_loadings_, on_truth) - 1) < 0.07
    error = np.linalg.norm(model.corrected_loadings_[:, order] - on_truth)
    assert error < 0.7 * np.linalg.norm(plain.corrected_loadings_[:, order] - on_truth)
    # The fit itself is the same.
    np.testing.assert_array_equal(plain.components_, model.components_)
    np.testing.assert_array_equal(plain.loadings_, model.loadings_)
    assert plain.attenuation_ is None


def test_attenuation_is_the_squared_cosine_to_the_truth(planted, fitted):
    match = match_components(fitted[1].components_, planted[0])
    assert (match.cosines**2 < 0.85).all()
    np.testing.assert_allclose(fitted[1].attenuation_[match.indices], match.cosines**2, atol=0.06)


def test_new_rows_of_fitted_contexts_have_their_loadings(planted, fitted):
    A, B, _, _ = planted
    plain, model = fitted
    X, y = rows_of(A, B, 0.4, 400, 2)
    assert share(plain.loadings_for(X, y), plain.corrected_loadings_) < 0.75
    assert abs(share(model.loadings_for(X, y), model.corrected_loadings_) - 1) < 0.1  # of which sampling has some
    assert abs(share(model.loadings_for(X, y), B) - 1) < 0.07


def test_loadings_for_divides_by_the_attenuation(fitted, planted):
    _, _, X, y = planted
    plain, model = fitted
    expected = plain.loadings_for(X, y) / model.attenuation_
    np.testing.assert_allclose(model.loadings_for(X, y), expected, rtol=1e-12)
    if plain.solver == "mspm":
        expected = plain.loadings_for(X, y, corrected=False)
        np.testing.assert_array_equal(model.loadings_for(X, y, corrected=False), expected)


def test_parts_share_no_row_and_lose_none(small):
    contexts = read_contexts(small.X, small.y)
    parts = _parts(contexts, 5, np.random.default_rng(0))
    assert len(parts) == 5
    for i in range(4):
        numbers = [set(part.unseen.rows[i].tolist()) for part in parts]
        assert sorted(row for rows in numbers for row in rows) == np.flatnonzero(small.y == i).tolist()
        for part, rows in zip(parts, numbers, strict=True):
            assert set(part.fitted.rows[i].tolist()) == set(np.flatnonzero(small.y == i).tolist()) - rows
            for halves in part.halvings:
                first, second = (set(half.rows.rows[i].tolist()) for half in halves)
                assert first | second == rows
                assert not first & second


def test_contexts_too_small_for_two_halves_count_in_one(small):
    contexts = read_contexts([small.X[small.y == i][: 5 + i] for i in range(4)])
    for part in _parts(contexts, 2, np.random.default_rng(0)):
        shared = np.array([len(rows) < 4 for rows in part.unseen.rows])
        assert shared.any()
        for first, second in part.halvings:
            np.testing.assert_array_equal(first.counted + second.counted, np.where(shared, 1, 2))


def test_what_is_known_of_spikes():
    """The angle of all rows follows from that of four fifths, for d = 4 and g = p / n = 2."""

    def tangent(g, d):
        return g * (1 + d) / (d**2 - g)

    B = np.full((3, 1), 4.0)
    whole = _of_the_whole(np.array([tangent(2 / 0.8, 4.0)]), 0.8, B, np.ones(3))
    np.testing.assert_allclose(whole, tangent(2, 4.0), rtol=1e-12)


def test_the_answer_does_not_depend_on_threads_or_storage(small, monkeypatch):
    one = MCPCA(2, cross_fit=2, random_state=3).fit(small.X, small.y)
    monkeypatch.setattr(cross_fitting, "refit_in_threads", _backwards)
    again = MCPCA(2, cross_fit=2, random_state=3).fit(small.X, small.y)
    np.testing.assert_array_equal(one.corrected_loadings_, again.corrected_loadings_)
    np.testing.assert_array_equal(one.attenuation_, again.attenuation_)
    other = MCPCA(2, cross_fit=2, random_state=4).fit(small.X, small.y)
    assert np.abs(one.corrected_loadings_ - other.corrected_loadings_).max() > 1e-4
    sparse = MCPCA(2, cross_fit=2, random_state=3).fit(scipy.sparse.csr_array(small.X), small.y)
    np.testing.assert_allclose(sparse.corrected_loadings_, one.corrected_loadings_, atol=1e-10)


def _backwards(work, n, stage, report):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = list(parallel.each(work, range(n)[::-1], 1))
    return results[::-1]


def test_units_and_precision(small):
    one = MCPCA(2, cross_fit=2, random_state=3).fit(small.X, small.y)
    for e in (-150, 200):
        scaled = MCPCA(2, cross_fit=2, random_state=3).fit(np.ldexp(small.X, e), small.y)
        np.testing.assert_allclose(np.ldexp(scaled.corrected_loadings_, -2 * e), one.corrected_loadings_, rtol=1e-8)
        np.testing.assert_allclose(scaled.attenuation_, one.attenuation_, rtol=1e-8)
    single = MCPCA(2, cross_fit=2, random_state=3).fit(small.X.astype(np.float32), small.y)
    assert single.corrected_loadings_.dtype == single.attenuation_.dtype == np.float32
    np.testing.assert_allclose(single.corrected_loadings_, one.corrected_loadings_, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("noise", [None, "isotropic", "pooled", "diagonal", "scaled"])
@pytest.mark.parametrize("solver", ["lsq", "ml"])
def test_every_model_of_noise(small, solver, noise):
    model = MCPCA(2, solver=solver, noise=noise, cross_fit=1, random_state=0).fit(small.X, small.y)
    assert abs(share(model.corrected_loadings_, small.loadings) - 1) < 0.35
    assert ((model.attenuation_ > 0.7) & (model.attenuation_ <= 1)).all()
    # The Gaussian model and what compares contexts go by cross-fitted loadings.
    np.testing.assert_array_equal(fitted_model(model).compared_loadings(), model.corrected_loadings_)


def test_progress_counts_the_fits(small):
    calls = []
    MCPCA(2, cross_fit=2, random_state=0, verbose=lambda *a: calls.append(a)).fit(small.X, small.y)
    assert ("cross-fit", 10, 10) in calls


def test_refits_do_not_cross_fit(small):
    model = MCPCA(2, cross_fit=2, random_state=0).fit(small.X, small.y)
    assert model._unfitted().cross_fit == 0
    calls = []
    model.replicability(small.X, small.y, 1, random_state=0, verbose=lambda *a: calls.append(a[0]))
    assert set(calls) == {"halves"}


def test_bad_input_is_named(small):
    X, y = small.X, small.y
    S = np.stack([np.cov(X[y == i], rowvar=False) for i in range(4)])
    with pytest.raises(ValueError, match=r"cross_fit=2 fits parts of the rows, and covariances cannot be divided"):
        MCPCA(2, cross_fit=2).fit_covariances(S, n_samples=20)
    with pytest.raises(ValueError, match=r"cross_fit=2 fits parts of the rows, and moments cannot be divided"):
        MCPCA(2, cross_fit=2).fit(ContextMoments().update(X, y))
    with pytest.raises(ValueError, match=r"and moments of chunks cannot be divided into parts; pass the rows to fit"):
        MCPCA(2, cross_fit=2).partial_fit(X, y)
    with pytest.raises(ValueError, match=r"fewer than 4 rows, .*Drop or merge them, or pass cross_fit=0 in place of 2"):
        MCPCA(2, cross_fit=2).fit([X[y == 0], X[y == 1][:3]])
    with pytest.raises(ValueError, match=r"needs n_components < n_features, and both are 12"):
        MCPCA(12, cross_fit=2).fit(X, y)
    with pytest.raises(ValueError, match=r"cross_fit=2 with robust=True: loadings in unseen rows are variances"):
        MCPCA(2, cross_fit=2, robust=True).fit(X, y)
    with pytest.raises(ValueError, match=r"cross_fit=-1 is out of bounds"):
        MCPCA(2, cross_fit=-1).fit(X, y)
    model = MCPCA(7, cross_fit=1)
    with pytest.raises(ValueError, match=r"cross_fit=1: 1 of 2 parts of the rows cannot be fitted with 7 components"):
        model.fit([X[y == 0][:5], X[y == 1][:5]])
    assert not hasattr(model, "components_")


def test_files_keep_the_attenuation(small, tmp_path):
    model = MCPCA(2, cross_fit=1, random_state=0).fit(small.X, small.y)
    model.save(tmp_path / "model.npz")
    back = MCPCA.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(back.attenuation_, model.attenuation_)
    np.testing.assert_array_equal(back.loadings_for(small.X, small.y), model.loadings_for(small.X, small.y))
    assert back.cross_fit == 1
    # A file of a version without cross-fits has neither the array nor the parameter.
    with np.load(tmp_path / "model.npz", allow_pickle=False) as file:
        content = dict(file)
    del content["attenuation_"]
    (name,) = [n for n, array in content.items() if array.dtype.kind in "SU" or array.dtype == np.uint8]
    text = content[name].tobytes().decode() if content[name].dtype == np.uint8 else str(content[name])
    header = json.loads(text)
    del header["parameters"]["cross_fit"]
    dumped = json.dumps(header)
    is_bytes = content[name].dtype == np.uint8
    content[name] = np.frombuffer(dumped.encode(), np.uint8) if is_bytes else np.array(dumped)
    np.savez(tmp_path / "older.npz", **content)
    older = MCPCA.load(tmp_path / "older.npz")
    assert older.attenuation_ is None
    assert older.cross_fit == 0


def test_anndata_keeps_the_attenuation(small):
    anndata = pytest.importorskip("anndata")
    adata = anndata.AnnData(small.X.copy())
    adata.obs["site"] = [f"site {i}" for i in small.y]
    tl.mcpca(adata, "site", n_comps=2, cross_fit=1, random_state=0)
    back = tl.model(adata)
    model = MCPCA(2, cross_fit=1, random_state=0).fit(small.X, small.y)
    np.testing.assert_allclose(back.attenuation_, model.attenuation_, rtol=1e-12)
    expected = model.loadings_for(small.X, small.y)
    np.testing.assert_allclose(tl.loadings_for(adata, "site", model=back).to_numpy(), expected, rtol=1e-9)


def test_users_are_told_of_inflation(planted):
    _, _, X, y = planted
    model = MCPCA(R, solver="ml", random_state=0).fit(X, y)
    expected = expected_inflation(fitted_model(model))
    with pytest.warns(
        InflatedLoadingsWarning,
        match=rf"300 features and 30 rows in the average context: loadings of MCPC 1, MCPC 2 are expected to be too "
        rf"large, by up to about {expected.max():.0%}, .*Fit with cross_fit=5",
    ):
        model.standard_errors()
    with pytest.warns(InflatedLoadingsWarning, match="300 features and 30 rows"):
        model.bootstrap(X, y, 2, random_state=0)
    # Enough rows, or a cross-fit: nothing to be told, and warnings are errors here.
    MCPCA(R, solver="ml", cross_fit=1, random_state=0).fit(X, y).standard_errors()
    enough = make_contexts(4, 12, 2, n_samples=300, noise=0.3, random_state=0)
    MCPCA(2, solver="ml", random_state=0).fit(enough.X, enough.y).standard_errors()


def test_the_expected_inflation_is_that_of_the_fit(planted):
    A, _, X, y = planted
    model = MCPCA(R, solver="ml", random_state=0).fit(X, y)
    order = match_components(model.components_, A).indices
    S = np.stack([np.cov(X[y == i], rowvar=False) for i in range(K)])
    on_truth = np.einsum("pj,kpq,qj->kj", A, S, A) - np.einsum("kpp->k", S)[:, None] / P
    found = model.corrected_loadings_[:, order].sum(axis=0) / on_truth.sum(axis=0) - 1
    assert (found > 0.2).all()
    np.testing.assert_allclose(expected_inflation(fitted_model(model))[order], found, rtol=0.35)


def test_mcpcs_that_parts_do_not_find_are_named():
    X = np.random.default_rng(0).standard_normal((80, 60))
    X[:, 0] *= 8  # one axis, and noise
    y = np.repeat(np.arange(4), 20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", InflatedLoadingsWarning)
        with pytest.raises(
            InflatedLoadingsWarning, match=r"Parts of the rows do not find MCPC 2, MCPC 3: .*are guesses"
        ):
            MCPCA(3, orthogonal=True, cross_fit=3, random_state=0).fit(X, y)
