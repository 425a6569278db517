"""Batch and covariates removed from covariances: the same answer wherever rows are, equal to a regression."""

import h5py
import numpy as np
import pytest
import scipy.sparse
import sklearn
from strict_arrays import strict_arrays

from mcpca import MCPCA, NuisanceWarning, ascore, context_covariances, select_rank
from mcpca._covariances import fit_data
from mcpca._covariances.nuisance_bases import context_basis
from mcpca.datasets import make_contexts
from twins import covariances_without_nuisance

K, P, R, N = 5, 24, 3, 90


@pytest.fixture(scope="module")
def rows():
    """Rows in random order, half of their entries 0, shifted by batches and moved by covariates within contexts."""
    truth = make_contexts(K, P, R, n_samples=N, noise=0.3, random_state=0)
    rng = np.random.default_rng(1)
    order = rng.permutation(len(truth.y))
    X = truth.X[order]
    y = truth.y[order]
    batch = rng.integers(4, size=len(y))
    batch[y == 2] = 1  # one context in a single batch
    Z = rng.standard_normal((len(y), 2))
    Z[y == 1, 1] = 3.0  # constant in one context
    X = X + 2 * rng.standard_normal((K, 4, P))[y, batch] + Z @ rng.standard_normal((2, P)) * (1 + y[:, None])
    return np.where(rng.random(X.shape) < 0.5, 0, X), y, batch, Z


@pytest.fixture(scope="module")
def answer(rows):
    S, _ = covariances_without_nuisance(*rows)
    return MCPCA(R, random_state=0, tol=1e-12).fit_covariances(S, n_samples=N)


def stored(X, path):
    file = h5py.File(path, "w")
    return file.create_dataset("rows", data=X)


FORMS = {
    "dense": lambda X, path: X,
    "sparse": lambda X, path: scipy.sparse.csr_array(X),
    "sparse columns": lambda X, path: scipy.sparse.csc_array(X),
    "stored": stored,
    "blocks": lambda X, path: lambda: (X[i : i + 70] for i in range(0, len(X), 70)),
    "Dask": lambda X, path: pytest.importorskip("dask.array").from_array(X, chunks=(120, P)),
    "sparse on Dask": lambda X, path: (
        pytest.importorskip("dask.array").from_array(X, chunks=(120, P)).map_blocks(scipy.sparse.csr_matrix)
    ),
}


@pytest.mark.parametrize("by_passes", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_the_same_answer_wherever_rows_are(form, by_passes, rows, answer, tmp_path, monkeypatch):
    X, y, batch, Z = rows
    if by_passes:
        monkeypatch.setattr(fit_data, "MOST_NUMBERS", 0)
    model = MCPCA(R, random_state=0, tol=1e-12).fit(FORMS[form](X, tmp_path / "x.h5"), y, batch=batch, covariates=Z)
    assert (model.n_passes_ is None) == (not by_passes)
    np.testing.assert_allclose(model.components_, answer.components_, atol=1e-10)
    np.testing.assert_allclose(model.loadings_, answer.loadings_, rtol=1e-8, atol=1e-10)


def test_contexts_that_do_not_fit_into_memory(rows, answer, tmp_path, monkeypatch):
    X, y, batch, Z = rows
    monkeypatch.setattr(fit_data, "MOST_NUMBERS", 0)
    with sklearn.config_context(working_memory=0.01):
        model = MCPCA(R, random_state=0, tol=1e-12).fit(stored(X, tmp_path / "x.h5"), y, batch=batch, covariates=Z)
    np.testing.assert_allclose(model.components_, answer.components_, atol=1e-10)


@pytest.mark.parametrize("solver", ["lsq", "ml"])
@pytest.mark.parametrize("noise", ["isotropic", "diagonal"])
def test_solvers_and_noise_by_passes(solver, noise, rows, monkeypatch):
    X, y, batch, Z = rows
    fits = []
    for bound in (2**26, 0):
        monkeypatch.setattr(fit_data, "MOST_NUMBERS", bound)
        model = MCPCA(R, solver=solver, noise=noise, random_state=0, tol=1e-9, max_iter=500)
        fits.append(model.fit(scipy.sparse.csr_array(X), y, batch=batch, covariates=Z))
    whole, passes = fits
    np.testing.assert_allclose(passes.components_, whole.components_, atol=1e-6)
    np.testing.assert_allclose(passes.noise_variance_, whole.noise_variance_, rtol=1e-6)
    np.testing.assert_allclose(passes.nuisance_.shares, whole.nuisance_.shares, rtol=1e-10)


def test_rows_on_a_device(rows, answer):
    xp = strict_arrays()
    X, y, batch, Z = rows
    model = MCPCA(R, random_state=0, tol=1e-12).fit(xp.asarray(X), y, batch=batch, covariates=Z)
    np.testing.assert_allclose(np.asarray(model.components_), answer.components_, atol=1e-10)


def test_single_precision_and_large_means(rows):
    X, y, batch, Z = rows
    double = MCPCA(R, random_state=0).fit(X, y, batch=batch, covariates=Z)
    single = MCPCA(R, random_state=0).fit(X.astype(np.float32), y, batch=batch, covariates=Z.astype(np.float32))
    assert single.components_.dtype == np.float32
    np.testing.assert_allclose(single.components_, double.components_, atol=2e-4)
    far = MCPCA(R, random_state=0).fit(X + 1e5, y, batch=batch, covariates=Z + 1e5)
    np.testing.assert_allclose(far.components_, double.components_, atol=1e-6)


def test_units_of_rows_and_of_covariates_do_not_matter(rows):
    X, y, batch, Z = rows
    plain = MCPCA(R, random_state=0).fit(X, y, batch=batch, covariates=Z)
    mixed = Z @ [[1e6, 0.3], [-2e6, 1e-3]] + 7
    other = MCPCA(R, random_state=0).fit(X * 2.0**60, y, batch=10 - batch, covariates=mixed)
    np.testing.assert_allclose(other.components_, plain.components_, atol=1e-9)
    np.testing.assert_allclose(np.ldexp(other.loadings_, -120), plain.loadings_, rtol=1e-8)
    np.testing.assert_allclose(other.nuisance_.shares, plain.nuisance_.shares, rtol=1e-9)
    np.testing.assert_allclose(
        np.ldexp(other.transform(X * 2.0**60, y, batch=10 - batch, covariates=mixed), -60),
        plain.transform(X, y, batch=batch, covariates=Z),
        atol=1e-8,
    )


def test_adding_nuisance_to_the_rows_changes_nothing(rows):
    X, y, batch, Z = rows
    rng = np.random.default_rng(5)
    moved = (
        X + 5 * rng.standard_normal((K, 4, P))[y, batch] + np.einsum("nc,ncp->np", Z, rng.standard_normal((K, 2, P))[y])
    )
    before = MCPCA(R, random_state=0).fit(X, y, batch=batch, covariates=Z)
    after = MCPCA(R, random_state=0).fit(moved, y, batch=batch, covariates=Z)
    np.testing.assert_allclose(after.components_, before.components_, atol=1e-9)
    assert (after.nuisance_.shares > before.nuisance_.shares).all()


def test_scores_are_those_of_residuals_and_uncorrelated_with_nuisance(rows):
    X, y, batch, Z = rows
    model = MCPCA(R, random_state=0).fit(X, y, batch=batch, covariates=Z)
    _, residuals = covariances_without_nuisance(X, y, batch, Z)
    scores = model.transform(X, y, batch=batch, covariates=Z)
    np.testing.assert_allclose(scores, residuals @ model.projection_.T, atol=1e-10)
    total = np.array([((X[y == i] - X[y == i].mean(0)) ** 2).sum() for i in range(K)])
    left = np.array([(residuals[y == i] ** 2).sum() for i in range(K)])
    np.testing.assert_allclose(model.nuisance_.shares, 1 - left / total, rtol=1e-9)
    np.testing.assert_array_equal(model.nuisance_.ranks, [3 + 2, 3 + 1, 2, 3 + 2, 3 + 2])
    assert "batch and 'covariate 1', 'covariate 2'" in str(model.nuisance_)


@pytest.mark.parametrize("form", ["sparse", "Dask", "dict"])
def test_scores_of_every_form(form, rows, tmp_path):
    X, y, batch, Z = rows
    model = MCPCA(R, random_state=0).fit(X, y, batch=batch, covariates=Z)
    expected = model.transform(X, y, batch=batch, covariates=Z)
    if form == "dict":
        by_context = {i: X[y == i] for i in range(K)}
        said = {"batch": {i: batch[y == i] for i in range(K)}, "covariates": {i: Z[y == i] for i in range(K)}}
        scores = model.transform(by_context, **said)
        for i in range(K):
            np.testing.assert_allclose(scores[i], expected[y == i], atol=1e-10)
        return
    scores = model.transform(FORMS[form](X, tmp_path), y, batch=batch, covariates=Z)
    np.testing.assert_allclose(np.asarray(scores), expected, atol=1e-10)


def test_a_list_of_contexts_is_the_labelled_matrix(rows, answer):
    X, y, batch, Z = rows
    parts = [np.flatnonzero(y == i) for i in range(K)]
    model = MCPCA(R, random_state=0, tol=1e-12).fit(
        [X[part] for part in parts], batch=[batch[part] for part in parts], covariates=[Z[part] for part in parts]
    )
    np.testing.assert_allclose(model.components_, answer.components_, atol=1e-10)


def test_a_saved_model_removes_the_same(rows, tmp_path):
    X, y, batch, Z = rows
    model = MCPCA(R, random_state=0).fit(X, y, batch=np.array(list("abcd"))[batch], covariates=Z)
    model.save(tmp_path / "model.mcpca")
    loaded = MCPCA.load(tmp_path / "model.mcpca")
    labels = np.array(list("abcd"))[batch]
    np.testing.assert_array_equal(
        loaded.transform(X, y, batch=labels, covariates=Z), model.transform(X, y, batch=labels, covariates=Z)
    )
    assert str(loaded.nuisance_) == str(model.nuisance_)
    assert MCPCA(R).fit(X, y).nuisance_ is None


def test_new_contexts_lose_their_own_nuisance(rows):
    X, y, batch, Z = rows
    model = MCPCA(R, random_state=0).fit(X, y, batch=batch, covariates=Z)
    np.testing.assert_allclose(
        model.loadings_for(X, y, corrected=False, batch=batch, covariates=Z), model.loadings_, rtol=1e-8, atol=1e-10
    )
    one = y == 3
    assert model.loadings_for(X[one], batch=batch[one], covariates=Z[one]).shape == (R,)
    share = 1 - model.reconstruction_error() / model.squared_norms().mean()
    assert model.score(X, y, metric="covariance", batch=batch, covariates=Z) == pytest.approx(share)


def test_planted_axes_are_found_as_without_batches():
    truth = make_contexts(8, 20, 4, n_samples=400, noise=0.5, random_state=3)
    rng = np.random.default_rng(3)
    batch = rng.integers(5, size=len(truth.y))
    X = truth.X + 3 * rng.standard_normal((8, 5, 20))[truth.y, batch]
    errors = [
        1 - ascore(truth.components, MCPCA(4, random_state=0).fit(rows_, truth.y, batch=said).components_)
        for rows_, said in ((truth.X, None), (X, batch), (X, None))
    ]
    without, removed, ignored = errors
    assert removed < 1.2 * without
    assert ignored > 5 * without


def test_the_rank_is_that_without_nuisance():
    truth = make_contexts(6, 20, 3, n_samples=150, noise=0.5, random_state=0)
    rng = np.random.default_rng(1)
    batch = rng.integers(4, size=len(truth.y))
    Z = rng.standard_normal(len(truth.y))
    nuisance = 2 * rng.standard_normal((6, 4, 20))[truth.y, batch] + Z[:, None] * (1 + truth.y[:, None])
    model = MCPCA(random_state=0).fit(truth.X + nuisance, truth.y, batch=batch, covariates=Z)
    assert model.n_components_ == 3
    noise = rng.standard_normal(truth.X.shape)
    with pytest.raises(ValueError, match="Nothing is above noise"):
        MCPCA(random_state=0).fit(noise + nuisance, truth.y, batch=batch, covariates=Z)


def test_the_basis_is_orthonormal_and_drops_what_is_collinear_within_a_context():
    rng = np.random.default_rng(0)
    strata = rng.integers(3, size=40)
    z = rng.standard_normal(40)
    numbers = np.column_stack([z, 2 * z + strata, rng.standard_normal(40), np.full(40, 1e8)])
    basis = context_basis(strata, numbers)
    U = basis.directions
    np.testing.assert_allclose(U.T @ U, np.eye(2), atol=1e-12)
    np.testing.assert_allclose((numbers - basis.centres[basis.cells]) @ basis.T, U, atol=1e-10)
    assert basis.rank == 2 + 2
    rows_ = rng.standard_normal((40, 6))
    D = np.column_stack([strata[:, None] == np.arange(3), z, numbers[:, 2]])
    np.testing.assert_allclose(basis.residual(rows_), rows_ - D @ np.linalg.lstsq(D, rows_, rcond=None)[0], atol=1e-12)


def test_what_cannot_be_removed_is_said(rows):
    X, y, batch, Z = rows
    with pytest.raises(ValueError, match=r"'covariate 1', 'covariate 2', 'covariate 3' are collinear within contexts"):
        MCPCA(R).fit(X, y, covariates=np.column_stack([Z, Z @ [1, 2]]))
    with pytest.raises(
        ValueError, match=r"batch: nuisance leaves no degree of freedom in 5 of 5 contexts.*90 rows, 89 t"
    ):
        MCPCA(R).fit(X, y, batch=np.arange(len(y)))
    with pytest.warns(NuisanceWarning, match="'covariate' have no effect: they do not vary within any context"):
        MCPCA(R).fit(X, y, covariates=y.astype(float))
    with pytest.warns(NuisanceWarning, match="batch has no effect: all rows of every context are in one batch"):
        MCPCA(R).fit(X, y, batch=y)
    with pytest.raises(ValueError, match="robust=True beside batch"):
        MCPCA(R, robust=True).fit(X, y, batch=batch)


def test_scores_without_what_the_fit_removed_are_refused(rows):
    X, y, batch, Z = rows
    model = MCPCA(R, random_state=0).fit(X, y, batch=batch, covariates=Z)
    said = {"batch": batch, "covariates": Z}
    with pytest.raises(ValueError, match="has removed covariates; pass it as well"):
        model.transform(X, y, batch=batch)
    with pytest.raises(ValueError, match=r"batch has labels that the fit does not have: 10, 11.*known: 0, 1, 2, 3"):
        model.transform(X, y, batch=batch + 10, covariates=Z)
    with pytest.raises(ValueError, match="seen no rows of batch 0 in 2"):
        model.transform(X[:9], np.full(9, 2), batch=np.zeros(9, int), covariates=Z[:9])
    with pytest.raises(ValueError, match="no labels of contexts here; pass y"):
        model.transform(X, **said)
    with pytest.raises(ValueError, match="center beside covariates"):
        model.transform(X, y, center="own", **said)
    with pytest.raises(ValueError, match="posterior=True beside covariates"):
        model.transform(X, y, posterior=True, **said)
    with pytest.raises(ValueError, match="fitted without batch and covariates"):
        MCPCA(R, random_state=0).fit(X, y).transform(X, y, batch=batch)
    with pytest.raises(ValueError, match="batch has 3 values and X has 450 rows"):
        model.transform(X, y, batch=[0, 1, 2], covariates=Z)


def test_rows_far_from_finite_are_named(rows):
    X, y, batch, _ = rows
    bad = X.copy()
    bad[7, 3] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        MCPCA(R).fit(bad, y, batch=batch)


def test_every_door_checks_nuisance(rows):
    X, y, batch, Z = rows
    model = MCPCA(R, random_state=0).fit(X, y)
    collinear = np.column_stack([Z, Z @ [1, 2]])
    for call in (
        lambda: select_rank(X, y, covariates=collinear),
        lambda: model.loadings_for(X, y, covariates=collinear),
        lambda: model.score(X, y, covariates=collinear),
        lambda: context_covariances(X, y, covariates=collinear),
    ):
        with pytest.raises(ValueError, match="are collinear within contexts"):
            call()
    with pytest.raises(ValueError, match="batch has no effect, because it is about rows, and covariances have none"):
        model.loadings_for(np.stack([np.eye(P)] * 2), batch=batch)


def test_one_context_in_a_list_is_a_list_of_loadings(rows):
    X, y, batch, _ = rows
    model = MCPCA(R, random_state=0).fit(X, y)
    one = y == 3
    assert model.loadings_for([X[one]]).shape == (1, R)
    assert model.loadings_for([X[one]], batch=[batch[one]]).shape == (1, R)
    assert model.loadings_for(X[one], batch=batch[one]).shape == (R,)
