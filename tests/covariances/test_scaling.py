"""Data times a power of two: the same answer to the last bit, a named error where results would be no numbers."""

from dataclasses import replace

import dask.array as da
import h5py
import numpy as np
import pytest
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning

import mcpca._covariances.fit_data
import mcpca._model.decomposition
from mcpca import (
    MCPCA,
    ContextMoments,
    choose_rank,
    common_principal_components,
    context_covariances,
    decompose,
    facets,
    nonnegative_loadings,
    select_rank,
)
from mcpca._covariances.validation import check_covariances
from mcpca._solvers import SOLVERS
from mcpca.datasets import make_contexts

RANK = 2
DATA = make_contexts(n_contexts=4, n_features=8, n_components=RANK, n_samples=40, noise=0.3, random_state=0)
CONSTANT = "covariances are all zero"


@pytest.fixture
def by_passes(monkeypatch):
    monkeypatch.setattr(mcpca._covariances.fit_data, "by_passes", lambda *_: True)


def model(solver="mspm", orthogonal=False, **options):
    return MCPCA(RANK, solver=solver, orthogonal=orthogonal, random_state=0, **options)


def rows(e, dtype=np.float64):
    return np.ldexp(DATA.X.astype(dtype), e)


def by_list(fit, X):
    return fit.fit([X[i == DATA.y] for i in np.unique(DATA.y)])


def by_chunks(fit, X):
    return fit.fit(lambda: iter([X[:50], X[50:]]), DATA.y)


def by_hdf5(fit, X):
    with h5py.File("in memory", "w", driver="core", backing_store=False) as file:
        return fit.fit(file.create_dataset("X", data=X), DATA.y)


def by_covariances(fit, X):
    found = context_covariances(X, DATA.y)
    return fit.fit_covariances(found.covariances, n_samples=found.n_samples)


FORMS = {
    "labels": lambda fit, X: fit.fit(X, DATA.y),
    "list": by_list,
    "csr": lambda fit, X: fit.fit(scipy.sparse.csr_array(X), DATA.y),
    "csc": lambda fit, X: fit.fit(scipy.sparse.csc_array(X), DATA.y),
    "chunks": by_chunks,
    "hdf5": by_hdf5,
    "dask": lambda fit, X: fit.fit(da.from_array(X, chunks=(50, 8)), DATA.y),
    "covariances": by_covariances,
    "moments": lambda fit, X: fit.fit(ContextMoments().update(X[::2], DATA.y[::2]).update(X[1::2], DATA.y[1::2])),
}
WAYS = [(solver, orthogonal) for solver in SOLVERS for orthogonal in (False, True)]


def in_first_units(fit, e):
    found = {name: np.ldexp(getattr(fit, name), -2 * e) for name in ("loadings_", "singular_values_")}
    found["components_"] = fit.components_
    found["share"] = fit.explained_share("context")
    if fit.means_ is not None:
        found["means_"] = np.ldexp(fit.means_, -e)
    if fit.noise_variance_ is not None:
        found["noise_variance_"] = np.ldexp(fit.noise_variance_, -2 * e)
    return found


def same(fit, e, plain):
    for name, value in in_first_units(fit, e).items():
        np.testing.assert_array_equal(value, in_first_units(plain, 0)[name], err_msg=f"{name} at 2^{e}")


@pytest.mark.parametrize(("solver", "orthogonal"), WAYS)
def test_every_solver_at_every_scale(solver, orthogonal):
    """From 1e-144 to 1e150, where loadings are numbers; fourth powers of the data are not."""
    plain = model(solver, orthogonal).fit(rows(0), DATA.y)
    for e in (-480, -140, -70, -20, 20, 70, 140, 495):
        same(model(solver, orthogonal).fit(rows(e), DATA.y), e, plain)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_at_every_scale(form):
    plain = FORMS[form](model("ml"), rows(0))
    for e in (-480, -140, 140, 480):
        same(FORMS[form](model("ml"), rows(e)), e, plain)


@pytest.mark.parametrize("form", [form for form in FORMS if form not in ("covariances", "moments")])
def test_passes_at_every_scale(by_passes, form):
    plain = FORMS[form](model(), rows(0))
    assert plain.n_passes_
    for e in (-480, -70, 70, 480):
        same(FORMS[form](model(), rows(e)), e, plain)


@pytest.mark.parametrize("form", ["labels", "csr", "hdf5", "dask"])
@pytest.mark.parametrize("way", ["formed", "passed over"])
def test_single_precision(monkeypatch, form, way):
    """Fourth powers of 1e-10 are no numbers in single precision, which passes multiply in."""
    monkeypatch.setattr(mcpca._covariances.fit_data, "by_passes", lambda *_: way == "passed over")
    plain = FORMS[form](model(), rows(0, np.float32))
    assert plain.loadings_.dtype == np.float32
    for e in (-45, -30, 30, 48):
        same(FORMS[form](model(), rows(e, np.float32)), e, plain)


@pytest.mark.parametrize("way", ["formed", "passed over"])
def test_rows_that_begin_with_zeros(monkeypatch, way):
    monkeypatch.setattr(mcpca._covariances.fit_data, "by_passes", lambda *_: way == "passed over")
    X = rows(0)
    X[:60] = 0
    # The middle and the end are looked at, too: then all rows have to be searched for one that is not zero.
    X[[len(X) // 2 - 1, -1]] = 0
    plain = model().fit(X, DATA.y)
    for e in (-300, 300):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("mcpca._covariances.scaling._SAMPLE_NUMBERS", 8)
            same(model().fit(np.ldexp(X, e), DATA.y), e, plain)


@pytest.mark.parametrize(
    ("e", "dtype", "message"),
    [
        (
            520,
            np.float64,
            r"X is too large for float64: its squares overflow \(its values are about .e\+15.\)\. Divide",
        ),
        (
            -530,
            np.float64,
            r"X is too small for float64: its squares underflow \(its values are about .e-1\d\d\)\. Multiply",
        ),
        (60, np.float32, r"too large for float32: its squares overflow .* by a constant, or pass float64"),
        (-66, np.float32, r"too small for float32: its squares underflow .* by a constant, or pass float64"),
    ],
)
@pytest.mark.parametrize("way", ["formed", "passed over"])
def test_variances_that_are_no_numbers_are_named(monkeypatch, way, e, dtype, message):
    monkeypatch.setattr(mcpca._covariances.fit_data, "by_passes", lambda *_: way == "passed over")
    fit = model()
    with pytest.raises(ValueError, match=message):
        fit.fit(rows(e, dtype), DATA.y)
    assert not hasattr(fit, "components_")
    if dtype == np.float64:
        with pytest.raises(ValueError, match=message):
            ContextMoments().update(rows(e, dtype), DATA.y)


def test_covariances_of_any_scale():
    S = context_covariances(rows(0), DATA.y).covariances
    A = np.linalg.qr(np.random.default_rng(0).standard_normal((8, RANK)))[0]
    plain, common = decompose(S, RANK, random_state=0), common_principal_components(S)
    choice, B = choose_rank(S, [1, 2, 3], random_state=0), nonnegative_loadings(S, A)
    for e in (-500, -300, 300, 500):
        scaled = np.ldexp(S, 2 * e)
        found = decompose(scaled, RANK, random_state=0)
        np.testing.assert_array_equal(found.components, plain.components)
        np.testing.assert_array_equal(np.ldexp(found.loadings, -2 * e), plain.loadings)
        np.testing.assert_allclose(common_principal_components(scaled).components, common.components, atol=1e-9)
        np.testing.assert_array_equal(choose_rank(scaled, [1, 2, 3], random_state=0).scores, choice.scores)
        np.testing.assert_array_equal(np.ldexp(nonnegative_loadings(scaled, A), -2 * e), B)
        with pytest.raises(ValueError, match=r"squared_norms are fourth powers of the data.*explained_share"):
            facets(scaled, A, np.ldexp(B, 2 * e))
    near, plain_facets = facets(np.ldexp(S, 100), A, np.ldexp(B, 100)), facets(S, A, B)
    np.testing.assert_array_equal(np.ldexp(near.reconstruction_errors, -200), plain_facets.reconstruction_errors)


def test_check_of_covariances_of_any_scale():
    S = context_covariances(rows(0), DATA.y).covariances
    unequal = np.ldexp(S, np.array([-900, 0, 300, 900])[:, None, None])
    assert check_covariances(unequal) is unequal
    for e in (-900, 900):
        skew = np.ldexp(S, e)
        skew[1, 0, 1] *= 1.5
        with pytest.raises(ValueError, match=r"S\[1\] is not symmetric"):
            check_covariances(skew)
        indefinite = np.ldexp(S - 2 * np.eye(8) * S.max(), e)
        with pytest.raises(ValueError, match="not positive semi-definite"):
            check_covariances(indefinite)


@pytest.mark.parametrize("noise", ["isotropic", "pooled", "diagonal", "scaled"])
def test_what_a_model_says_of_rows_of_its_scale(noise):
    plain = model("ml", noise=noise).fit(rows(0), DATA.y)
    errors, presence = plain.standard_errors(), plain.presence()
    for e in (-450, 450):
        X = rows(e)
        fit = model("ml", noise=noise).fit(X, DATA.y)
        np.testing.assert_allclose(np.ldexp(fit.loadings_for(X[:40]), -2 * e), plain.loadings_for(rows(0)[:40]), 1e-9)
        assert fit.score(X, DATA.y) == pytest.approx(plain.score(rows(0), DATA.y) - 8 * e * np.log(2), rel=1e-12)
        assert fit.score(X[:40]) == pytest.approx(plain.score(rows(0)[:40]) - 8 * e * np.log(2), rel=1e-12)
        np.testing.assert_array_equal(np.ldexp(fit.transform(X, DATA.y), -e), plain.transform(rows(0), DATA.y))
        expected = plain.transform(rows(0), DATA.y, posterior=True)
        np.testing.assert_allclose(np.ldexp(fit.transform(X, DATA.y, posterior=True), -e), expected, 1e-9, 1e-12)
        np.testing.assert_allclose(fit.standard_errors().angles, errors.angles, 1e-9)
        np.testing.assert_allclose(np.ldexp(fit.standard_errors().loadings, -2 * e), errors.loadings, 1e-9)
        np.testing.assert_allclose(fit.presence().statistics, presence.statistics, 1e-9, 1e-9)
        assert fit.explained_share() == plain.explained_share()
        with pytest.raises(ValueError, match="reconstruction_errors are fourth powers of the data"):
            fit.reconstruction_error()


def test_score_of_least_squares_at_every_scale(tmp_path):
    plain = model().fit(rows(0), DATA.y)
    for e in (-450, 450):
        fit = model().fit(rows(e), DATA.y)
        assert fit.score(rows(e), DATA.y) == plain.score(rows(0), DATA.y)
        assert fit.proportional_loadings(89) == plain.proportional_loadings(89)
        fit.save(tmp_path / "model")
        assert MCPCA.load(tmp_path / "model").explained_share() == plain.explained_share()


def test_choice_of_a_rank_at_every_scale():
    truth = make_contexts(n_contexts=4, n_features=10, n_components=2, n_samples=60, noise=0.5, random_state=1)
    plain = select_rank(truth.X, truth.y, ranks=[1, 2, 3], criteria=["scree", "likelihood"], random_state=0)
    for e in (-400, 400):
        X = np.ldexp(truth.X, e)
        found = select_rank(X, truth.y, ranks=[1, 2, 3], criteria=["scree", "likelihood"], random_state=0)
        assert (found.rank, found.reason) == (plain.rank, plain.reason)
        np.testing.assert_allclose(np.ldexp(found.columns["singular value"], -2 * e), plain.columns["singular value"])
        likelihoods = plain.columns["held-out log-likelihood"] - 10 * e * np.log(2)
        np.testing.assert_allclose(found.columns["held-out log-likelihood"], likelihoods, rtol=1e-9)
        np.testing.assert_allclose(
            found.columns["BIC"], plain.columns["BIC"] + 2 * len(X) * 10 * e * np.log(2), rtol=1e-9
        )
        assert MCPCA(random_state=0).fit(X, truth.y).n_components_ == MCPCA(random_state=0).fit(truth.X, truth.y).r_


# Constant data


def constants(value, n, dtype):
    """Four contexts, constant in each; every sum of these numbers is rounded."""
    return (np.full((n, 5), value) * np.arange(1, 6)).astype(dtype), np.arange(n) % 4


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("value", [0.1, 1e6, 1 / 3, -7.7e-9])
def test_constant_data_have_no_covariance_in_any_form(monkeypatch, value, dtype):
    X, y = constants(value, 1000, dtype)
    forms = {
        "labels": (X, y),
        "list": ([X[y == i] for i in range(4)],),
        "csr": (scipy.sparse.csr_array(X), y),
        "csc": (scipy.sparse.csc_array(X), y),
        "chunks": (lambda: iter([X[:7], X[7:]]), y),
        "moments": (ContextMoments().update(X[:9], y[:9]).update(X[9:500], y[9:500]).update(X[500:], y[500:]),),
        "covariances": (context_covariances(X, y).covariances,),
    }
    for form, arguments in forms.items():
        with pytest.raises(ValueError, match=CONSTANT):
            pytest.fail(f"{form} was fitted: {model().fit(*arguments).loadings_}")
    monkeypatch.setattr(mcpca._covariances.fit_data, "by_passes", lambda *_: True)
    for form in ("labels", "list", "csr", "csc", "chunks"):
        with pytest.raises(ValueError, match=CONSTANT):
            pytest.fail(f"{form} was fitted by passes: {model().fit(*forms[form]).loadings_}")


def test_a_feature_that_varies_by_rounding_alone_is_constant():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    X[:, 1] = 1e6 + rng.choice([0, np.spacing(1e6)], 60)
    X[:, 2] = 1e6 + 1e-7 * X[:, 2]  # a thousand times the rounding: data
    S = context_covariances(X, np.arange(60) % 2).covariances
    assert not S[:, 1].any()
    assert not S[:, :, 1].any()
    np.testing.assert_allclose(S[:, 2, 2], 1e-14, rtol=0.5)
    np.testing.assert_allclose(S[0], np.where(S[0] == 0, 0, np.cov((X[::2] - X[0]).T)), rtol=1e-9)


# Covariances that are singular


def rank_one_contexts(k, p, n, high, seed):
    rng = np.random.default_rng(seed)
    return [np.outer(rng.integers(0, high, n), rng.integers(0, high, p)).astype(float) for _ in range(k)]


@pytest.mark.parametrize(
    ("k", "p", "n", "r", "seed"), [(13, 60, 20, 2, 0), (13, 60, 20, 2, 7), (15, 30, 10, 3, 4), (12, 20, 5, 2, 4)]
)
def test_likelihood_of_rank_one_integers(k, p, n, r, seed):
    """A context that A holds exactly must not have all the weight: what is left is not larger than the data."""
    fit = MCPCA(r, solver="ml", random_state=0).fit(rank_one_contexts(k, p, n, 3, seed))
    assert fit.explained_share() > 0


def test_a_residual_larger_than_the_data_is_told(monkeypatch):
    solvers = mcpca._model.decomposition.get_solver

    def inflated(*arguments):
        solve = solvers(*arguments)
        return lambda *rest: (found := solve(*rest)) and replace(found, loadings=10 * found.loadings)

    monkeypatch.setattr(mcpca._model.decomposition, "get_solver", inflated)
    with pytest.warns(ConvergenceWarning, match=r"residual of the model is \d+ times as large.*choose solver='lsq'"):
        model("ml").fit(rows(0), DATA.y)


def test_a_solver_that_breaks_down_says_so(monkeypatch):
    def broken(*_):
        raise np.linalg.LinAlgError("Singular matrix")

    monkeypatch.setattr(mcpca._model.decomposition, "get_solver", lambda *_: broken)
    with pytest.raises(ValueError, match=r"solver='ml' broke down at rank 2 \(Singular matrix\).*Lower n_components"):
        model("ml").fit(rows(0), DATA.y)
