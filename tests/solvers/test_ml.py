"""Maximum likelihood: equal to dense formulas and slow optimisers, in all corners that the model has."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal
from sklearn.decomposition import PCA, FactorAnalysis

from mcpca import MCPCA, ascore, context_covariances, cramer_rao_bound, decompose
from mcpca._covariances import subspace
from mcpca._covariances.stack import CovarianceStack
from mcpca._model.gaussian import GaussianModel
from mcpca._solvers import growing, likelihood, ml_diagonal
from mcpca._solvers.likelihood import fit_contexts, likelihood_of
from mcpca._solvers.observed import ObservedHessian
from mcpca._solvers.scoring import ScoringData, likelihood_at, outside_gradient
from mcpca._utils import parallel
from mcpca.datasets import make_contexts
from twins import random_problem, sampled_problem


def dense_sigma(A, B, noise):
    """Noise of shape (k,) is by context, (p,) by feature (k and p differ), (k, p) by both."""
    by_feature = noise if noise.ndim == 2 or len(noise) == len(A) != len(B) else noise[:, None]
    return np.stack(
        [(A * b) @ A.T + np.diag(s) for b, s in zip(B, np.broadcast_to(by_feature, (len(B), len(A))), strict=True)]
    )


def dense_loss(S, Sigma, n):
    """The negative log-likelihood, by determinants and inverses."""
    terms = [np.linalg.slogdet(C)[1] + np.trace(np.linalg.solve(C, s)) for C, s in zip(Sigma, S, strict=True)]
    return float(n @ np.array(terms)) / 2


@pytest.fixture
def point(rng):
    A, B, S = sampled_problem(rng, 5, 8, 3, 50, 0.4)
    B = B * (rng.random(B.shape) < 0.7)  # zeros are legal
    return A, B, rng.uniform(0.1, 0.5, 5), S, np.array([30.0, 50, 20, 10, 40])


def test_value_equals_the_dense_formula(point):
    A, B, s, S, n = point
    np.testing.assert_allclose(
        likelihood_of(CovarianceStack(S), A, B, s, n).value, dense_loss(S, dense_sigma(A, B, s), n)
    )


def test_gradient_against_finite_differences(point, rng):
    A, B, s, S, n = point
    gX, gb, gs = likelihood_of(CovarianceStack(S), A, B + 0.1, s, n).gradient()
    X, db, ds = rng.standard_normal(gX.shape), rng.standard_normal(gb.shape), rng.standard_normal(gs.shape)
    np.fill_diagonal(X, 0)
    h = 1e-6
    moved = [
        dense_loss(S, dense_sigma(A @ (np.eye(3) + t * X), B + 0.1 + t * db, s * np.exp(t * ds)), n) for t in (h, -h)
    ]
    np.testing.assert_allclose((gX * X).sum() + (gb * db).sum() + gs @ ds, (moved[0] - moved[1]) / (2 * h), rtol=1e-5)


def test_information_equals_the_dense_formula(point, rng):
    """I(d, d) = sum_i n_i/2 tr(Sigma_i^-1 dSigma_i Sigma_i^-1 dSigma_i), also for A's part outside its span."""
    A, B, s, S, n = point
    model = likelihood_of(CovarianceStack(S), A, B, s, n)
    X, db, ds = rng.standard_normal((3, 3)), rng.standard_normal(B.shape), rng.standard_normal(5)
    np.fill_diagonal(X, 0)
    Z = rng.standard_normal(A.shape)
    Z -= A @ np.linalg.lstsq(A, Z, rcond=None)[0]
    dA = A @ X + Z
    dense = 0.0
    for i, C in enumerate(dense_sigma(A, B, s)):
        d = (dA * B[i]) @ A.T
        d = d + d.T + (A * db[i]) @ A.T + s[i] * ds[i] * np.eye(8)
        Y = np.linalg.solve(C, d)
        dense += n[i] / 2 * np.trace(Y @ Y)
    out = model.information(X, db, ds)
    fast = sum(float((a * b).sum()) for a, b in zip(out, (X, db, ds), strict=True))
    fast += float(np.einsum("pj,jl,pl->", Z, model.outside_information(), Z))
    np.testing.assert_allclose(fast, dense)
    block = model.context_information()
    each = np.column_stack([db, ds])
    parts = model.information(np.zeros((3, 3)), db, ds)
    np.testing.assert_allclose(np.einsum("ka,kab,kb->", each, block, each), (parts[1] * db).sum() + parts[2] @ ds)


def test_hessian_against_finite_differences(rng):
    """In a core: q of p features, a gradient by inverses."""
    k, q, r, p = 4, 6, 3, 9
    _, _, T = sampled_problem(rng, k, q, r, 30, 0.5)
    trace, n = np.einsum("kqq->k", T) + rng.uniform(0.5, 1, k), rng.uniform(10, 50, k)
    A, B, s = rng.standard_normal((q, r)), rng.uniform(0, 2, (k, r)), rng.uniform(0.2, 0.6, k)
    A /= np.linalg.norm(A, axis=0)

    def gradient(A, B, s):
        C = np.linalg.inv((A * B[:, None, :]) @ A.T + s[:, None, None] * np.eye(q))
        Q = C - C @ T @ C
        inside = np.einsum("kqq->k", Q) + (p - q) / s - (trace - np.einsum("kqq->k", T)) / s**2
        by_A = np.einsum("k,kqm,mj,kj->qj", n, Q, A, B)
        return by_A, n[:, None] / 2 * np.einsum("qj,kqm,mj->kj", A, Q, A), n / 2 * s * inside

    data = ScoringData(T, trace, n, p, np.zeros(k), "isotropic")
    point = likelihood_at(data, A, B, s)
    gX, gb, gs = point.model.gradient()
    dense = gradient(A, B, s)
    np.testing.assert_allclose(A.T @ dense[0] - np.diag(np.diag(A.T @ dense[0])), gX, atol=1e-9)
    np.testing.assert_allclose(dense[0] - A @ np.linalg.lstsq(A, dense[0], rcond=None)[0], outside_gradient(point))
    np.testing.assert_allclose(dense[1], gb)
    np.testing.assert_allclose(dense[2], gs)
    change = rng.standard_normal(A.shape), rng.standard_normal(B.shape), rng.standard_normal(k)
    h = 1e-6
    ends = [gradient(A + t * change[0], B + t * change[1], s * np.exp(t * change[2])) for t in (h, -h)]
    products = ObservedHessian(T, A, point.model, point.TA)(*change)
    for product, up, down in zip(products, *ends, strict=True):
        np.testing.assert_allclose(product, (up - down) / (2 * h), atol=1e-6 * np.abs(product).max())


@pytest.mark.parametrize("solver", ["lsq", "ml"])
def test_growing_cores_end_where_all_features_do(solver, rng, monkeypatch):
    """More features than are taken at once; the model is not true, so the answer leans out of the first core."""
    _, _, S = sampled_problem(rng, 4, 240, 8, 60, 0.3)
    grown = decompose(S, 3, solver=solver, n_samples=60, random_state=0, tol=1e-8)
    monkeypatch.setattr(subspace, "ALL_FEATURES", 1000)
    monkeypatch.setattr(growing, "ALL_FEATURES", 1000)
    monkeypatch.setattr(ml_diagonal, "ALL_FEATURES", 1000)
    whole = decompose(S, 3, solver=solver, n_samples=60, random_state=0, tol=1e-8)
    assert grown.converged
    np.testing.assert_allclose(np.abs((grown.components * whole.components).sum(axis=0)), 1, atol=1e-5)
    np.testing.assert_allclose(grown.loadings, whole.loadings, atol=1e-3 * whole.loadings.max())


def test_a_model_that_is_not_true_still_converges(rng):
    """Twelve components in the data, four in the model: scoring alone would creep."""
    _, _, S = sampled_problem(rng, 10, 30, 12, 100, 0.1)
    result = decompose(S, 4, solver="ml", n_samples=100, random_state=0)
    assert result.converged
    assert result.n_iter < 60


def test_many_contexts_in_float32_curvature_and_threads(monkeypatch):
    data = make_contexts(60, 15, 6, n_samples=100, noise=0.3, density=0.5, random_state=0)
    S = context_covariances(data.X, data.y).covariances
    plain = decompose(S, 6, solver="ml", n_samples=100, random_state=0, tol=1e-9)
    monkeypatch.setattr(likelihood, "_FLOAT32_NUMBERS", 10)
    monkeypatch.setattr(parallel, "_SLICE_NUMBERS", 100)
    monkeypatch.setattr(parallel, "_WORTHWHILE_OPERATIONS", 0)
    other = decompose(S, 6, solver="ml", n_samples=100, random_state=0, tol=1e-9)
    np.testing.assert_allclose(plain.components, other.components, atol=1e-4)
    again = decompose(S, 6, solver="ml", n_samples=100, random_state=0, tol=1e-9)
    np.testing.assert_array_equal(again.components, other.components)


def test_no_slow_optimiser_does_better(rng):
    k, p, r = 4, 7, 3
    A, B, S = sampled_problem(rng, k, p, r, 80, 0.5)
    n = np.array([79.0, 79, 79, 79])
    result = decompose(S, r, solver="ml", n_samples=80, random_state=0)
    best = dense_loss(S, dense_sigma(result.components, result.loadings, result.noise), n)

    def f(z):
        A, B, s = z[: p * r].reshape(p, r), z[p * r : p * r + k * r].reshape(k, r) ** 2, np.exp(z[-k:])
        return dense_loss(S, dense_sigma(A, B, s), n)

    z = np.concatenate([A.ravel(), np.sqrt(B).ravel(), np.log(np.full(k, 0.25))])
    slow = minimize(f, z, method="BFGS", options={"maxiter": 300})
    assert best <= slow.fun + 1e-3
    assert result.converged


@pytest.mark.parametrize("noise", ["isotropic", "pooled", "diagonal"])
def test_reaches_the_bound_where_the_power_method_does_not(noise, rng):
    data = make_contexts(15, 40, 6, n_samples=800, density=0.5, random_state=1)
    sd = np.full(40, 0.4) if noise != "diagonal" else np.exp(rng.standard_normal(40) / 2) * 0.4
    S = context_covariances(data.X + sd * rng.standard_normal(data.X.shape), data.y).covariances
    truth = sd**2 if noise == "diagonal" else np.full(15, 0.16)
    bound = cramer_rao_bound(data.components, data.loadings, truth, 800, diagonal=noise == "diagonal").ascore_loss
    power = 1 - ascore(decompose(S, 6, random_state=0).components, data.components)
    result = decompose(S, 6, solver="ml", noise=noise, n_samples=800, random_state=0)
    loss = 1 - ascore(result.components, data.components)
    assert loss < 1.35 * bound < power
    np.testing.assert_allclose(result.noise, truth, rtol=0.15)
    if noise == "pooled":
        assert np.ptp(result.noise) == 0


def test_exactly_low_rank_data_give_exact_components():
    """The paper's benchmark in small: absent components make the angles of the others exact."""
    data = make_contexts(30, 24, 12, n_samples=200, density=0.3, random_state=2)
    S = context_covariances(data.X, data.y).covariances
    result = decompose(S, 12, solver="ml", n_samples=200, random_state=0)
    assert 1 - ascore(result.components, data.components) < 1e-9
    assert 1 - ascore(decompose(S, 12, random_state=0).components, data.components) > 1e-4
    assert "unbounded" in result.message


@pytest.mark.parametrize(
    "corner",
    ["zero loadings", "few samples", "full rank", "unequal samples", "two contexts", "no noise", "zero context"],
)
@pytest.mark.parametrize(
    ("solver", "noise"),
    [
        ("lsq", "auto"),
        ("mspm", "auto"),
        *(("ml", noise) for noise in ("isotropic", "pooled", "diagonal", "scaled", None)),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # without noise it can be unbounded
def test_corners_give_finite_answers(corner, noise, solver, rng):
    k, p, r, n = 5, 9, 3, 60
    if corner == "full rank":
        r = p
    if corner == "two contexts":
        k = 2
    A, B, _ = random_problem(rng, k, p, r, density=0.4 if corner == "zero loadings" else 1.0)
    counts = np.full(k, n)
    if corner == "few samples":
        counts = np.array([3, 4, 60, 60, 2])
    if corner == "unequal samples":
        counts = np.array([20, 20000, 100, 50, 30])
    sd = 0.0 if corner == "no noise" else 0.3
    X = [
        (rng.standard_normal((m, r)) * np.sqrt(b)) @ A.T + sd * rng.standard_normal((m, p))
        for m, b in zip(counts, B, strict=True)
    ]
    if corner == "zero context":
        X[0][:] = 0
    S = np.stack([np.cov(x, rowvar=False) for x in X])
    with np.errstate(all="raise"):
        result = decompose(S, r, solver=solver, noise=noise, n_samples=counts, random_state=0)
    assert np.isfinite(result.components).all()
    assert np.isfinite(result.loadings).all()
    assert (result.loadings >= 0).all()
    np.testing.assert_allclose(np.linalg.norm(result.components, axis=0), 1)
    if solver == "ml" and noise is not None:
        assert np.isfinite(result.noise).all()
        assert (result.noise > 0).all()


def test_likelihood_never_falls_and_weights_are_sample_sizes(rng):
    """Twice the samples in every context, or a weight of two on each, is the same problem."""
    _, _, S = sampled_problem(rng, 6, 10, 3, 40, 0.5)
    one = decompose(S, 3, solver="ml", n_samples=[11, 21, 31, 41, 51, 61], random_state=0)
    two = decompose(S, 3, solver="ml", n_samples=[21, 41, 61, 81, 101, 121], random_state=0)
    np.testing.assert_allclose(one.components, two.components, atol=1e-3)
    three = decompose(S, 3, solver="ml", n_samples=11, context_weights=[1, 2, 3, 4, 5, 6], random_state=0)
    np.testing.assert_allclose(one.components, three.components, atol=1e-3)


def test_diagonal_noise_is_equivariant_to_units_of_features(rng):
    _, _, S = sampled_problem(rng, 8, 12, 3, 500, 0.4)
    units = np.exp(rng.standard_normal(12))
    plain = decompose(S, 3, solver="ml", noise="diagonal", n_samples=500, random_state=0, tol=1e-10)
    scaled = decompose(
        S * units * units[:, None], 3, solver="ml", noise="diagonal", n_samples=500, random_state=0, tol=1e-10
    )
    back = scaled.components / units[:, None]
    assert 1 - ascore(back, plain.components) < 1e-6
    np.testing.assert_allclose(scaled.noise / units**2, plain.noise, rtol=1e-2)


def test_one_context_is_probabilistic_pca_and_factor_analysis(rng):
    X = rng.standard_normal((300, 3)) @ rng.standard_normal((3, 8)) + 0.5 * rng.standard_normal((300, 8))
    model = MCPCA(3, solver="ml").fit(X)
    pca = PCA(3).fit(X)
    np.testing.assert_allclose(np.abs(np.sum(model.components_ * pca.components_.T, axis=0)), 1)
    np.testing.assert_allclose(model.noise_variance_[0], pca.noise_variance_)
    np.testing.assert_allclose(model.loadings_[0], pca.explained_variance_ - pca.noise_variance_)
    fa = FactorAnalysis(3, tol=1e-10, max_iter=20000, svd_method="lapack").fit(X)
    factor = MCPCA(3, solver="ml", noise="diagonal", tol=1e-10).fit(X)
    # scikit-learn divides by n, we by n - 1
    np.testing.assert_allclose(factor.noise_variance_, fa.noise_variance_ * 300 / 299, rtol=2e-2)
    assert factor.score(X) >= fa.score(X) - 1e-3


@pytest.mark.parametrize("noise", ["isotropic", "pooled", "diagonal", "scaled"])
def test_score_is_the_mean_log_density(noise):
    data = make_contexts(4, 7, 3, n_samples=80, noise=0.4, random_state=3)
    model = MCPCA(3, solver="ml", noise=noise, random_state=0).fit(data.X[::2], data.y[::2])
    Sigma = dense_sigma(model.components_, model.loadings_, model.noise_variance_)
    held, labels = data.X[1::2], data.y[1::2]
    dense = [multivariate_normal(model.means_[i], Sigma[i]).logpdf(held[labels == i]) for i in range(4)]
    np.testing.assert_allclose(model.score(held, labels), np.concatenate(dense).mean())


@pytest.mark.parametrize("noise", ["isotropic", "pooled", "diagonal", "scaled"])
def test_posterior_scores_equal_the_dense_formula(noise):
    data = make_contexts(4, 7, 3, n_samples=80, noise=0.4, random_state=3)
    model = MCPCA(3, solver="ml", noise=noise, random_state=0).fit(data.X, data.y)
    Sigma = dense_sigma(model.components_, model.loadings_, model.noise_variance_)
    Z = model.transform(data.X, data.y, posterior=True)
    for i in range(4):
        rows = data.y == i
        dense = (data.X[rows] - model.means_[i]) @ np.linalg.solve(Sigma[i], model.components_) * model.loadings_[i]
        np.testing.assert_allclose(Z[rows], dense, atol=1e-10)
    by_name = model.transform({i: data.X[data.y == i] for i in range(4)}, posterior=True)
    np.testing.assert_allclose(np.vstack([by_name[i] for i in range(4)]), Z)
    plain = model.transform(data.X, data.y)
    assert (Z**2).sum() < (plain**2).sum()
    unlabelled = model.transform(data.X, posterior=True)
    assert unlabelled.shape == Z.shape
    assert (unlabelled**2).sum() < (model.transform(data.X) ** 2).sum()


def test_posterior_needs_noise_and_known_contexts(rng):
    X = [rng.standard_normal((20, 4)) for _ in range(3)]
    with pytest.raises(ValueError, match=r"posterior=True needs noise in every context.*4 MCPCs of 4 features leave"):
        MCPCA(4, random_state=0).fit(X).transform(X[0], posterior=True)
    model = MCPCA(2, solver="ml", random_state=0).fit(X)
    with pytest.raises(ValueError, match=r"and 'new' were not seen in fit\. Drop y"):
        model.transform(X[0], ["new"] * 20, center="own", posterior=True)


def test_new_context_gets_loadings_by_likelihood(rng):
    data = make_contexts(8, 12, 3, n_samples=2000, noise=0.5, random_state=5)
    model = MCPCA(3, solver="ml", random_state=0).fit(data.X, data.y)
    again = model.loadings_for(data.X, data.y)
    np.testing.assert_allclose(again, model.loadings_, atol=5e-3 * model.loadings_.max())
    gaussian = GaussianModel(model.components_, model.loadings_, model.noise_variance_)
    S = context_covariances(data.X, data.y).covariances
    fitted = fit_contexts(gaussian.likelihood(CovarianceStack(S), np.ones(8)))
    _, gb, gs = fitted.gradient()
    assert np.abs(np.where(fitted.B > 0, gb, np.minimum(gb, 0))).max() < 1e-5
    assert np.abs(gs).max() < 1e-5


def test_choices_that_do_not_exist_are_named(rng):
    S = np.stack([np.eye(3)] * 2)
    with pytest.raises(
        ValueError,
        match=r"noise='white' is unknown; choose one of \['auto', 'isotropic', 'pooled', 'diagonal', 'scaled', None\]",
    ):
        decompose(S, 2, solver="ml", noise="white")
    with pytest.raises(ValueError, match="orthogonal='yes'; choose True or False"):
        decompose(S, 2, orthogonal="yes")


def test_same_seed_same_answer_and_seeds_agree(rng):
    _, _, S = sampled_problem(rng, 6, 15, 4, 300, 0.3)
    first, again, other = (decompose(S, 4, solver="ml", n_samples=300, random_state=s) for s in (0, 0, 1))
    np.testing.assert_array_equal(first.components, again.components)
    np.testing.assert_allclose(first.components, other.components, atol=1e-4)


def test_ml_model_survives_a_file(tmp_path):
    data = make_contexts(4, 7, 3, n_samples=80, noise=0.4, random_state=3)
    model = MCPCA(3, solver="ml", noise="pooled", random_state=0, context_weights=[1, 1, 1, 2]).fit(data.X, data.y)
    model.save(tmp_path / "model.mcpca")
    back = MCPCA.load(tmp_path / "model.mcpca")
    assert back.get_params() == model.get_params()
    np.testing.assert_array_equal(back.noise_variance_, model.noise_variance_)
    assert back.score(data.X, data.y) == model.score(data.X, data.y)
    np.testing.assert_array_equal(back.presence().p_values, model.presence().p_values)
