"""``robust=True``: heavy tails, bad rows, the t-likelihood at its maximum, and clean rows as if nothing were asked."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_t
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from strict_arrays import strict_arrays

from mcpca import MCPCA, ContextMoments, ascore
from mcpca._covariances import fit_data
from mcpca._covariances.weighted_moments import bin_centres
from mcpca._estimator import robust as robust_module
from mcpca._estimator.robust import bulk_factor, degrees_of_freedom
from mcpca._utils.user_warnings import warn
from mcpca.datasets import make_contexts

FITTED = ("components_", "loadings_", "corrected_loadings_", "means_", "noise_variance_")


@pytest.fixture(scope="module")
def clean():
    return make_contexts(
        n_contexts=6, n_features=15, n_components=3, n_samples=150, noise=0.6, random_state=np.random.default_rng(11)
    )


def fit(X, y=None, **options):
    return MCPCA(**{"n_components": 3, "robust": True, "random_state": 0, **options}).fit(X, y)


def with_bad_rows(clean, share, factor=6.0):
    rng = np.random.default_rng(1)
    bad = rng.random(len(clean.X)) < share
    return np.where(bad[:, None], factor * clean.X, clean.X), bad


def with_heavy_tails(clean, freedom):
    chi2 = np.random.default_rng(2).chisquare(freedom, size=(len(clean.X), 1))
    return clean.X * np.sqrt(freedom / chi2)


def loss(model, clean):
    return 1 - ascore(model.components_, clean.components)


@pytest.mark.parametrize("solver", ["mspm", "lsq", "ml"])
def test_clean_rows_are_fitted_as_always(clean, solver):
    robust = fit(clean.X, clean.y, solver=solver)
    plain = fit(clean.X, clean.y, solver=solver, robust=False)
    assert robust.degrees_of_freedom_ == np.inf
    assert plain.degrees_of_freedom_ is None
    for name in FITTED:
        np.testing.assert_array_equal(getattr(robust, name), getattr(plain, name))


@pytest.mark.parametrize("solver", ["mspm", "lsq", "ml"])
def test_bad_rows_hardly_matter(clean, solver):
    X, _ = with_bad_rows(clean, 0.03)
    undisturbed = fit(clean.X, clean.y, solver=solver, robust=False)
    plain = fit(X, clean.y, solver=solver, robust=False)
    robust = fit(X, clean.y, solver=solver)
    assert loss(plain, clean) > 5 * loss(undisturbed, clean)
    assert loss(robust, clean) < 1.3 * loss(undisturbed, clean)
    # Loadings, means and noise are those of the good rows.
    np.testing.assert_allclose(robust.loadings_.sum(), undisturbed.loadings_.sum(), rtol=0.05)
    np.testing.assert_allclose(robust.noise_variance_, undisturbed.noise_variance_, rtol=0.1)
    assert plain.loadings_.sum() > 1.5 * undisturbed.loadings_.sum()


@pytest.mark.parametrize("freedom", [3, 5])
def test_heavy_tails_and_their_degrees_of_freedom(clean, freedom):
    X = with_heavy_tails(clean, freedom)
    robust = fit(X, clean.y, solver="ml")
    assert robust.degrees_of_freedom_ == pytest.approx(freedom, rel=0.15)
    assert loss(robust, clean) < 1.3 * loss(fit(clean.X, clean.y, solver="ml", robust=False), clean)
    assert loss(robust, clean) < 0.5 * loss(fit(X, clean.y, solver="ml", robust=False), clean)


def test_many_gross_errors_do_not_take_over_the_first_fit():
    truth = make_contexts(n_contexts=6, n_features=60, n_components=3, n_samples=40, noise=0.5, random_state=4)
    rng = np.random.default_rng(5)
    X = truth.X.copy()
    gross = rng.random(len(X)) < 0.05
    X[gross] += 1e4 * rng.standard_normal((gross.sum(), 60))
    assert loss(fit(X, truth.y, solver="ml"), truth) < 1.5 * loss(fit(truth.X, truth.y, solver="ml"), truth)


def test_equal_rows_do_not_draw_a_context_to_themselves():
    # With 60 features, 3 equal rows of 40 are more than 2 / 62: a t with two degrees of freedom has no maximum, and
    # steps towards it would go on for ever.
    truth = make_contexts(n_contexts=3, n_features=60, n_components=2, n_samples=40, noise=0.5, random_state=4)
    X = with_heavy_tails(truth, 2)
    model = fit(X, truth.y, n_components=2)
    for i in range(3):
        rows = np.flatnonzero(truth.y == i)[:3]
        X[rows] = X[rows[0]]
    equal = fit(X, truth.y, n_components=2)
    np.testing.assert_allclose(equal.noise_variance_, model.noise_variance_, rtol=0.3)


def t_log_likelihood(model, X, y, A, B, s, freedom):
    return sum(
        multivariate_t(mean, A @ np.diag(b) @ A.T + noise * np.eye(len(A)), freedom).logpdf(X[y == name]).sum()
        for name, mean, b, noise in zip(model.contexts_, model.means_, B, s, strict=True)
    )


def test_it_is_the_maximum_of_the_likelihood(clean, rng):
    X = with_heavy_tails(clean, 4)
    y = clean.y
    model = fit(X, y, solver="ml")
    A, nu = model.components_, model.degrees_of_freedom_

    # Fitted variances are those of the bulk: a common factor leads back to the scatter of the t.
    def value(c, A=A, B=model.loadings_, s=model.noise_variance_, nu=nu):
        return t_log_likelihood(model, X, y, A, c * B, c * s, nu)

    factor = minimize_scalar(lambda c: -value(c), bounds=(0.3, 3), method="bounded").x
    best = value(factor)
    slack = 0.5  # of a log-likelihood of -2e4; the covariances have n - 1 for n, and EM is stopped
    for _ in range(5):
        for size in (0.03, 0.1):
            moved = A + size * rng.standard_normal(A.shape) / np.sqrt(len(A))
            assert value(factor, A=moved / np.linalg.norm(moved, axis=0)) < best + slack
            assert value(factor, B=model.loadings_ * np.exp(size * rng.standard_normal(model.loadings_.shape))) < (
                best + slack
            )
            assert value(factor, s=model.noise_variance_ * np.exp(size * rng.standard_normal(6))) < best + slack
    for nu_moved in (0.8 * nu, 1.25 * nu):
        assert value(factor, nu=nu_moved) < best
    # The ordinary fit is far below, at whatever factor.
    plain = fit(X, y, solver="ml", robust=False)
    of_plain = minimize_scalar(
        lambda c: -value(c, A=plain.components_, B=plain.loadings_, s=plain.noise_variance_),
        bounds=(0.05, 3),
        method="bounded",
    )
    assert -of_plain.fun < best - 20


@pytest.mark.parametrize(
    ("solver", "noise"),
    [(solver, noise) for solver in ("ml", "mspm") for noise in ("isotropic", "pooled", "diagonal", "scaled")],
)
def test_every_kind_of_noise(clean, solver, noise):
    X, bad = with_bad_rows(clean, 0.03)
    model = fit(X, clean.y, solver=solver, noise=noise)
    assert loss(model, clean) < 1.3 * loss(fit(clean.X, clean.y, solver=solver, robust=False), clean)
    assert model.outlyingness(X, clean.y)[bad].min() > model.outlyingness(X, clean.y)[~bad].max()


def forms(X, y, folder):
    import dask.array
    import h5py
    import pandas as pd

    blocks = {i: X[y == i] for i in range(6)}
    with h5py.File(folder / "rows.h5", "w") as file:
        file["X"] = X
        yield file["X"], y
    yield blocks, None
    yield list(blocks.values()), None
    yield pd.DataFrame(X).assign(context=y), "context"
    yield sp.csr_array(X), y
    yield lambda: iter([X[:400], X[400:]]), y
    yield dask.array.from_array(X, chunks=(400, 15)), y


def test_every_form_of_rows_gives_the_same(clean, tmp_path):
    X, _ = with_bad_rows(clean, 0.03)
    order = np.random.default_rng(3).permutation(len(X))
    X, y = X[order], clean.y[order]
    expected = fit(X, y)
    for form, labels in forms(X, y, tmp_path):
        model = fit(form, labels)
        assert model.degrees_of_freedom_ == pytest.approx(expected.degrees_of_freedom_, rel=1e-6)
        for name in FITTED:
            np.testing.assert_allclose(getattr(model, name), getattr(expected, name), rtol=1e-6, atol=1e-8)
    single = fit(X.astype(np.float32), y)
    assert single.components_.dtype == np.float32
    np.testing.assert_allclose(single.components_, expected.components_, atol=2e-4)


def test_anndata_keeps_everything(clean, tmp_path):
    anndata = pytest.importorskip("anndata")
    import mcpca

    X, _ = with_bad_rows(clean, 0.03)
    adata = anndata.AnnData(X, obs={"context": clean.y.astype(str)})
    mcpca.tl.mcpca(adata, "context", n_comps=3, robust=True)
    adata.write_h5ad(tmp_path / "fit.h5ad")
    restored = mcpca.tl.model(anndata.read_h5ad(tmp_path / "fit.h5ad"))
    assert restored.robust is True
    direct = fit(X, clean.y)
    assert restored.degrees_of_freedom_ == pytest.approx(direct.degrees_of_freedom_)
    np.testing.assert_allclose(restored.loadings_, direct.loadings_)


def test_rows_on_a_device(clean):
    strict = strict_arrays()
    pytest.importorskip("array_api_compat")
    X, _ = with_bad_rows(clean, 0.03)
    model = fit(strict.asarray(X), clean.y)
    assert type(model.components_) is type(strict.asarray(X))
    np.testing.assert_allclose(np.asarray(model.components_), fit(X, clean.y).components_, atol=1e-7)


def test_units_and_origins_do_not_matter(clean):
    X, _ = with_bad_rows(clean, 0.03)
    model = fit(X, clean.y)
    moved = fit(1e70 * (X + 7), clean.y)
    np.testing.assert_allclose(moved.components_, model.components_, atol=1e-7)
    np.testing.assert_allclose(moved.loadings_, 1e140 * model.loadings_, rtol=1e-5)
    np.testing.assert_allclose(moved.means_, 1e70 * (model.means_ + 7), rtol=1e-9)


def test_the_rank_is_chosen_on_shrunk_rows(clean):
    X = with_heavy_tails(clean, 2)
    model = fit(X, clean.y, n_components=None)
    assert model.r_ == 3
    assert model.rank_choice_.rank == 3


def test_fits_on_the_way_do_not_warn(clean, monkeypatch):
    X, _ = with_bad_rows(clean, 0.03)
    decompose = robust_module.decompose_checked
    n_fits = []

    def doubtful(*args, **options):
        n_fits.append(1)
        warn("on the way")
        return decompose(*args, **options)

    monkeypatch.setattr(robust_module, "decompose_checked", doubtful)
    fit(X, clean.y)  # a warning would be an error
    assert len(n_fits) > 1
    with pytest.warns(UserWarning, match="heard again"):
        warn("heard again")


def test_steps_that_are_not_enough_are_told(clean, monkeypatch):
    monkeypatch.setattr(robust_module, "_MOST_STEPS", 2)
    X, bad = with_bad_rows(clean, 0.1)
    with pytest.warns(ConvergenceWarning, match=r"robust=True: weights of rows have not settled after 2 steps.*lower"):
        model = fit(X, clean.y)
    assert model.outlyingness(X, clean.y)[bad].min() > 3


def test_answers_that_alternate_end_with_the_likelier(clean, monkeypatch):
    X, _ = with_bad_rows(clean, 0.03)
    expected = fit(X, clean.y)
    decompose = robust_module.decompose_checked
    n_fits = []

    def alternating(*args, **options):
        n_fits.append(1)
        result, measures = decompose(*args, **options)
        if len(n_fits) % 2 == 0:
            result = replace(result, components=result.components[:, :1].repeat(3, axis=1) + 0.1 * np.eye(15, 3))
        return result, measures

    monkeypatch.setattr(robust_module, "decompose_checked", alternating)
    monkeypatch.setattr(robust_module, "_MOST_STEPS", 10)
    with pytest.warns(ConvergenceWarning, match="have not settled"):
        model = fit(X, clean.y)
    np.testing.assert_allclose(model.components_, expected.components_, atol=0.01)


def test_progress_never_falls(clean):
    X, _ = with_bad_rows(clean, 0.03)
    stages = {}

    def report(stage, done, total):
        before = stages.get(stage, (0, total))
        assert done >= before[0]
        assert total == before[1]
        stages[stage] = (done, total)

    fit(X, clean.y, verbose=report)
    assert all(done == total for done, total in stages.values())
    assert "reweighting" in stages


def test_refits_are_robust_too(clean):
    X, _ = with_bad_rows(clean, 0.03)
    model = fit(X, clean.y)
    plain = fit(X, clean.y, robust=False)
    angles = [fitted.bootstrap(X, clean.y, n=4, random_state=0).angles.mean() for fitted in (model, plain)]
    assert angles[0] < 0.5 * angles[1]
    assert clone(model).robust is True


def test_files_keep_the_degrees_of_freedom(clean, tmp_path):
    X, _ = with_bad_rows(clean, 0.03)
    for rows in (X, clean.X):
        model = fit(rows, clean.y)
        model.save(tmp_path / "model")
        assert MCPCA.load(tmp_path / "model").degrees_of_freedom_ == model.degrees_of_freedom_
        assert MCPCA.load(tmp_path / "model").robust is True
    fit(X, clean.y, robust=False).save(tmp_path / "model")
    assert MCPCA.load(tmp_path / "model").degrees_of_freedom_ is None


def test_degrees_of_freedom_of_counted_distances():
    rng = np.random.default_rng(6)
    p = 10
    edges = np.concatenate([[0], np.sqrt(bin_centres(p)[1:] * bin_centres(p)[:-1]), [np.inf]])
    for freedom in (1.5, 8.0):
        d2 = rng.chisquare(p, 50_000) * freedom / rng.chisquare(freedom, 50_000)
        counts = np.histogram(d2, edges)[0]
        assert degrees_of_freedom(counts, p) == pytest.approx(freedom, rel=0.03)
        assert bulk_factor(counts, p, 0) == pytest.approx(np.median(d2) / 9.3418, rel=1e-3)  # the median of chi2(10)
    # Shorter tails than those of Gaussian rows are Gaussian enough.
    assert degrees_of_freedom(np.histogram(0.5 * p + 0.5 * rng.chisquare(p, 50_000), edges)[0], p) == np.inf
    # Tails beyond all bounds are at the bound.
    assert degrees_of_freedom(np.histogram(np.exp(5 * rng.standard_normal(10_000)), edges)[0], p) == pytest.approx(
        1, rel=0.01
    )


CASES = {
    "covariances": (
        lambda model, X, y: model.fit_covariances(np.stack([np.eye(15)] * 2)),
        "robust=True weighs single rows, and covariances no longer have them; pass the rows to fit, or robust=False",
    ),
    "stack": (lambda model, X, y: model.fit(np.stack([np.eye(15)] * 2)), "and covariances no longer have them"),
    "moments": (lambda model, X, y: model.fit(ContextMoments().update(X, y)), "and moments no longer have them"),
    "chunks": (lambda model, X, y: model.partial_fit(X, y), "and moments of chunks no longer have them"),
    "checkpoint": (
        lambda model, X, y: model.fit(X, y, checkpoint="file"),
        "checkpoint='file' has no effect, because robust=True keeps no progress in files",
    ),
    "few rows": (
        lambda model, X, y: model.fit({"a": X[:50], "b": X[:4]}),
        r"robust=True needs at least 5 rows in every context, and 1 of 2 have fewer: 'b' \(4\). Drop or merge",
    ),
    "all features": (
        lambda model, X, y: model.set_params(n_components=15).fit(X, y),
        "robust=True needs n_components < n_features, and both are 15",
    ),
    "value": (lambda model, X, y: model.set_params(robust="yes").fit(X, y), "robust='yes' is a str; pass True or"),
    "weights": (
        lambda model, X, y: model.set_params(context_weights=[1, 2]).fit(X, y),
        "one positive number per context is needed, 6 of them",
    ),
    "NaN": (lambda model, X, y: model.fit(np.where(X.max() - 1e-9 < X, np.nan, X), y), "contains 1 NaN"),
}


@pytest.mark.parametrize("case", CASES)
def test_errors_leave_nothing_behind(case, clean):
    call, message = CASES[case]
    model = MCPCA(3, robust=True, random_state=0)
    with pytest.raises(ValueError, match=message):
        call(model, clean.X, clean.y)
    assert not hasattr(model, "components_")
    assert not hasattr(model, "moments_")


def test_covariances_that_are_not_formed(clean, monkeypatch):
    monkeypatch.setattr(robust_module, "MOST_NUMBERS", 6 * 15**2 - 1)
    message = "those of 6 contexts with 15 features have 1350 entries, more than 1349. Choose fewer features"
    with pytest.raises(ValueError, match=message):
        fit(clean.X, clean.y)


def test_covariances_are_formed_where_passes_would_be_faster(clean, monkeypatch):
    expected = fit(clean.X, clean.y)
    monkeypatch.setattr(fit_data, "_DENSE_SPEED", 0)
    model = fit(sp.csr_array(clean.X), clean.y)
    assert model.n_passes_ is None
    np.testing.assert_allclose(model.components_, expected.components_, atol=1e-7)
