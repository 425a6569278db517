"""How far rows are from what the model expects of their context."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import roc_auc_score
from strict_arrays import strict_arrays

from mcpca import MCPCA
from mcpca.datasets import make_contexts
from tests.twins import squared_distances


@pytest.fixture(scope="module")
def truth():
    return make_contexts(
        n_contexts=4, n_features=9, n_components=2, n_samples=150, noise=0.5, random_state=np.random.default_rng(3)
    )


@pytest.fixture(scope="module", params=["mspm", "ml", "ml, diagonal", "mspm, scaled"])
def model(request, truth):
    solver, _, noise = request.param.partition(", ")
    return MCPCA(2, solver=solver, noise=noise or "auto", random_state=0).fit(truth.X, truth.y)


def noise_of(model, i):
    noise = model.noise_variance_
    if noise.ndim == 2:
        return noise[i]
    return noise if model.noise == "diagonal" else np.full(model.n_features_in_, noise[i])


def test_it_is_the_squared_distance_over_the_number_of_features(model, truth):
    found = model.outlyingness(truth.X, truth.y)
    A = model.components_
    for i, name in enumerate(model.contexts_.tolist()):
        rows = truth.y == name
        Sigma = A @ np.diag(model.corrected_loadings_[i]) @ A.T + np.diag(noise_of(model, i))
        expected = squared_distances(truth.X[rows], model.means_[i], Sigma) / 9
        np.testing.assert_allclose(found[rows], expected, rtol=1e-9)


def test_it_is_one_on_average_in_the_likelihood(truth):
    model = MCPCA(2, solver="ml", random_state=0).fit(truth.X, truth.y)
    for name in model.contexts_:
        # tr(Sigma_i^-1 S_i) = p at the maximum, where S_i has n_i - 1 degrees of freedom.
        rows = truth.y == name
        mean = model.outlyingness(truth.X[rows], truth.y[rows]).mean()
        assert mean == pytest.approx((rows.sum() - 1) / rows.sum(), rel=1e-4)


def test_every_form_of_rows_gives_the_same(model, truth, tmp_path):
    h5py = pytest.importorskip("h5py")
    pd = pytest.importorskip("pandas")
    X, y = truth.X, truth.y
    expected = model.outlyingness(X, y)
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["X"] = X
        for form in (sp.csr_array(X), file["X"], pd.DataFrame(X), lambda: iter([X[:50], X[50:]])):
            np.testing.assert_allclose(model.outlyingness(form, y), expected, rtol=1e-9)
    order = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_allclose(model.outlyingness(X[order], y[order]), expected[order], rtol=1e-12)
    single = model.outlyingness(X.astype(np.float32), y)
    np.testing.assert_allclose(single, expected, rtol=1e-4)


def test_lists_and_dicts_of_contexts_give_lists_and_dicts(model, truth):
    names = model.contexts_.tolist()
    expected = model.outlyingness(truth.X, truth.y)
    blocks = {name: truth.X[truth.y == name] for name in names}
    by_name = model.outlyingness({name: blocks[name] for name in names[::-1]})
    in_order = model.outlyingness(list(blocks.values()))
    assert list(by_name) == names[::-1]
    for name, found in zip(names, in_order, strict=True):
        np.testing.assert_allclose(found, expected[truth.y == name], rtol=1e-12)
        np.testing.assert_allclose(by_name[name], found, rtol=1e-12)


def test_rows_on_dask_stay_lazy(model, truth):
    array = pytest.importorskip("dask.array")
    X = array.from_array(truth.X, chunks=(100, 9))
    found = model.outlyingness(X, truth.y)
    assert isinstance(found, array.Array)
    np.testing.assert_allclose(found.compute(), model.outlyingness(truth.X, truth.y), rtol=1e-8)
    unlabelled = model.outlyingness(X).compute()
    np.testing.assert_allclose(unlabelled, model.outlyingness(truth.X), rtol=1e-8)


def test_rows_on_a_device_give_an_array_there(truth):
    strict = strict_arrays()
    pytest.importorskip("array_api_compat")
    model = MCPCA(2, random_state=0).fit(truth.X, truth.y)
    found = model.outlyingness(strict.asarray(truth.X), truth.y)
    assert type(found) is type(strict.asarray(truth.X))
    np.testing.assert_allclose(np.asarray(found), model.outlyingness(truth.X, truth.y), rtol=1e-12)


def test_without_labels_rows_meet_the_average_context(truth):
    model = MCPCA(2, solver="ml", random_state=0).fit(truth.X, truth.y)
    share = model.n_samples_per_context_ / model.n_samples_per_context_.sum()
    A = model.components_
    Sigma = A @ np.diag(share @ model.loadings_) @ A.T + share @ model.noise_variance_ * np.eye(9)
    expected = squared_distances(truth.X, share @ model.means_, Sigma) / 9
    np.testing.assert_allclose(model.outlyingness(truth.X), expected, rtol=1e-9)


@pytest.mark.parametrize("factor", [1e-60, 1e60])
def test_units_do_not_matter(truth, factor):
    model = MCPCA(2, solver="ml", random_state=0).fit(truth.X, truth.y)
    scaled = MCPCA(2, solver="ml", random_state=0).fit(truth.X * factor, truth.y)
    found = scaled.outlyingness(truth.X * factor, truth.y)
    np.testing.assert_allclose(found, model.outlyingness(truth.X, truth.y), rtol=1e-5)


def test_bad_rows_are_the_most_outlying(truth):
    rng = np.random.default_rng(8)
    X = truth.X.copy()
    bad = rng.random(len(X)) < 0.02
    X[bad] *= 6
    for solver in ("mspm", "ml"):
        model = MCPCA(2, solver=solver, robust=True, random_state=0).fit(X, truth.y)
        found = model.outlyingness(X, truth.y)
        assert roc_auc_score(bad, found) > 0.99
        assert found[~bad].mean() == pytest.approx(1, abs=0.1)


def test_errors(truth):
    model = MCPCA(2, random_state=0).fit(truth.X, truth.y)
    with pytest.raises(ValueError, match=r"'new' were not seen in fit"):
        model.outlyingness(truth.X[:2], ["new", model.contexts_[0]])
    with pytest.raises(ValueError, match=r"contains 1 NaN"):
        model.outlyingness(np.where(np.arange(9) == 2, np.nan, truth.X[:1]))
    with pytest.raises(ValueError, match=r"X has 3 features, but MCPCA is expecting 9"):
        model.outlyingness(truth.X[:, :3])
    full = MCPCA(9, random_state=0).fit(truth.X, truth.y)
    with pytest.raises(ValueError, match=r"outlyingness needs noise in every context"):
        full.outlyingness(truth.X, truth.y)
    S = np.stack([np.cov(truth.X[truth.y == name].T) for name in model.contexts_])
    alone = MCPCA(2, random_state=0).fit_covariances(S)
    with pytest.raises(ValueError, match="fitted to covariances and knows no means"):
        alone.outlyingness(truth.X)
