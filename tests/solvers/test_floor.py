"""Loadings beside a floor of noise: the least squares of every kind, against slow twins."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import nnls

from mcpca import MCPCA, context_covariances, decompose, match_components
from mcpca._solvers.floor import own_floor, shared_floor
from mcpca.datasets import make_contexts
from mcpca.exceptions import UnequalNoiseWarning

K, P, R = 5, 9, 3


def problem(rng, noise):
    """Return A, B and covariances with noise variances (k, p) on their diagonals, exact up to rounding."""
    A = rng.standard_normal((P, R))
    A /= np.linalg.norm(A, axis=0)
    B = rng.gamma(2.0, size=(K, R)) * (rng.random((K, R)) < 0.7)
    S = (A * B[:, None, :]) @ A.T
    S[:, np.arange(P), np.arange(P)] += noise
    return A, B, S


def along(S, A):
    return np.einsum("pj,kpq,qj->kj", A, S, A)


def squared_error(S, A, B, F):
    fitted = (A * B[:, None, :]) @ A.T
    fitted[:, np.arange(P), np.arange(P)] += F
    return ((S - fitted) ** 2).sum(axis=(1, 2))


def test_the_identity_is_one_more_atom(rng):
    A, _, S = problem(rng, 0.3)
    # Not of the model: the solution has entries at their bound.
    E = rng.standard_normal((K, 12, P))
    S = S + 0.5 * np.einsum("knp,knq->kpq", E, E) / 12
    floor = own_floor(A, along(S, A), np.trace(S, axis1=1, axis2=2))
    atoms = np.column_stack([*(np.outer(a, a).ravel() for a in A.T), np.eye(P).ravel()])
    for i in range(K):
        expected = nnls(atoms, S[i].ravel())[0]
        np.testing.assert_allclose(np.append(floor.loadings[i], floor.noise[i]), expected, atol=1e-9)


@pytest.mark.parametrize("kind", ["pooled", "diagonal", "scaled"])
def test_shared_floors_recover_what_was_planted(rng, kind):
    level = rng.uniform(0.2, 1.0, K)
    profile = rng.uniform(0.5, 1.5, P)
    noise = {"pooled": 0.4, "diagonal": profile, "scaled": np.outer(level, profile)}[kind]
    A, B, S = problem(rng, noise)
    variances = np.einsum("kpp->kp", S)
    floor = shared_floor(A, along(S, A), variances, kind, np.arange(1.0, K + 1))
    np.testing.assert_allclose(floor.loadings, B, atol=1e-7)
    shape = {"pooled": (K,), "diagonal": (P,), "scaled": (K, P)}[kind]
    np.testing.assert_allclose(floor.noise, np.broadcast_to(noise, shape), atol=1e-7)


@pytest.mark.parametrize("kind", ["pooled", "diagonal", "scaled"])
def test_no_step_improves_a_shared_floor(rng, kind):
    A, _, S = problem(rng, 0.3)
    E = rng.standard_normal((K, 15, P))
    S = S + np.einsum("knp,knq->kpq", E, E) / 15
    weights = rng.uniform(1, 3, K)
    floor = shared_floor(A, along(S, A), np.einsum("kpp->kp", S), kind, weights)
    F = {"pooled": floor.noise[:, None] * np.ones(P), "diagonal": np.ones((K, 1)) * floor.noise, "scaled": floor.noise}[
        kind
    ]
    # Loadings are those of least squares given the floor; shared values are weighted, which scales whole contexts.
    best = weights @ squared_error(S, A, floor.loadings, F)
    for _ in range(200):
        B = np.maximum(floor.loadings + 1e-3 * rng.standard_normal((K, R)), 0)
        by_context = 1 + 1e-3 * rng.standard_normal((K, 1))
        by_feature = 1 + 1e-3 * rng.standard_normal(P)
        factor = {"pooled": by_context[0], "diagonal": by_feature, "scaled": by_context * by_feature}[kind]
        assert weights @ squared_error(S, A, B, F * factor) >= best * (1 - 1e-9)


def test_none_is_the_papers_answer_and_the_default():
    data = make_contexts(6, 12, 3, n_samples=100, noise=0.5, random_state=0)
    default, none, floor = (
        MCPCA(3, random_state=0, **noise).fit(data.X, data.y) for noise in ({}, {"noise": None}, {"noise": "isotropic"})
    )
    np.testing.assert_array_equal(default.loadings_, none.loadings_)
    S = context_covariances(data.X, data.y).covariances
    A = default.components_
    expected = np.array([nnls(np.column_stack([np.outer(a, a).ravel() for a in A.T]), Si.ravel())[0] for Si in S])
    np.testing.assert_allclose(default.loadings_, expected, atol=1e-10)
    # The components are the same whatever the noise; columns are in the order of their loadings.
    order = match_components(floor.components_, A).indices
    np.testing.assert_allclose(floor.components_[:, order], A, atol=1e-12)
    np.testing.assert_allclose(floor.loadings_[:, order], default.corrected_loadings_, atol=1e-12)
    np.testing.assert_allclose(floor.noise_variance_, default.noise_variance_, atol=1e-12)
    assert (default.corrected_loadings_ <= default.loadings_ + 1e-12).all()


def test_loadings_converge_to_the_truth_beside_a_floor_only():
    data = make_contexts(6, 20, 3, n_samples=20000, noise=0.7, random_state=1)
    model = MCPCA(3, random_state=0).fit(data.X, data.y)
    order = match_components(model.components_, data.components).indices
    bias = (model.loadings_[:, order] - data.loadings).mean()
    assert bias == pytest.approx(0.49 * 0.9, rel=0.15)
    np.testing.assert_allclose(model.corrected_loadings_[:, order], data.loadings, atol=0.08)
    np.testing.assert_allclose(model.noise_variance_, 0.49, rtol=0.02)


@pytest.mark.parametrize("solver", ["mspm", "lsq"])
@pytest.mark.parametrize("noise", ["isotropic", "pooled", "diagonal", "scaled"])
def test_rows_and_covariances_agree(solver, noise):
    data = make_contexts(4, 10, 3, n_samples=80, noise=0.4, random_state=2)
    model = MCPCA(3, solver=solver, noise=noise, random_state=0).fit(data.X, data.y)
    S = context_covariances(data.X, data.y).covariances
    same = decompose(S, 3, solver=solver, noise=noise, n_samples=80, random_state=0)
    np.testing.assert_allclose(same.loadings, model.loadings_, atol=1e-9)
    np.testing.assert_allclose(same.noise, model.noise_variance_, atol=1e-9)
    np.testing.assert_array_equal(model.corrected_loadings_, model.loadings_)
    shape = {"diagonal": (10,), "scaled": (4, 10)}.get(noise, (4,))
    assert model.noise_variance_.shape == shape
    # Contexts of the fit are found again; a new one has a noise of its own if the fit has.
    if noise != "pooled":
        np.testing.assert_allclose(model.loadings_for(data.X, data.y), model.loadings_, atol=1e-6)


def test_full_rank_leaves_no_direction_for_noise(rng):
    X = [rng.standard_normal((30, 4)) for _ in range(3)]
    model = MCPCA(4, random_state=0).fit(X)
    np.testing.assert_array_equal(model.noise_variance_, 0)
    np.testing.assert_array_equal(model.corrected_loadings_, model.loadings_)
    with pytest.raises(
        ValueError, match=r"noise='pooled' needs directions outside.*n_components=4 is the number of fe"
    ):
        MCPCA(4, noise="pooled", random_state=0).fit(X)


def test_contexts_too_small_for_a_noise_of_their_own(rng):
    big = rng.standard_normal((100, 8)) * np.linspace(3, 0.5, 8)
    small = np.array([[2.0, 1, 0, 0, 0, 0, 0, 0], [-1.0, 3, 0, 0, 0, 0, 0, 0]])
    X = {"one": big, "two": 100 * small, "three": rng.standard_normal((100, 8))}
    # A is made of the large context, which lies in its span: its noise is that of the others.
    with pytest.raises(
        ValueError, match=r"1 of 3 contexts have too few rows for a noise of their own, 'two'.*'pooled'"
    ):
        MCPCA(2, noise="isotropic", random_state=0).fit(X)
    model = MCPCA(2, random_state=0).fit(X)
    others = model.noise_variance_[[0, 2]]
    assert model.noise_variance_[1] == pytest.approx(others @ [99, 99] / 198)
    # Many rows in the span of A have no noise to hide; least squares finds none but what correlated scores look like.
    data = make_contexts(3, 8, 2, n_samples=50, random_state=0)
    clean = MCPCA(2, noise="isotropic", random_state=0).fit(data.X, data.y)
    assert clean.noise_variance_.max() < 0.01 * data.loadings.mean()


def test_unequal_noise_is_named():
    rng = np.random.default_rng(0)
    A = np.linalg.qr(rng.standard_normal((20, 3)))[0]
    B = rng.uniform(0.5, 1.5, (6, 3))
    B[0, 2] = 1.2
    B[5, 2] = 0.2

    def rows(sd):
        noise = np.geomspace(0.2, sd, 6)
        return {
            f"c{i}": (rng.standard_normal((1000, 3)) * np.sqrt(B[i])) @ A.T + noise[i] * rng.standard_normal((1000, 20))
            for i in range(6)
        }

    with pytest.warns(
        UnequalNoiseWarning, match=r"from 0\.04.* \('c0'\) to 2\.2.* \('c5'\).*corrected_loadings_, or fit"
    ):
        MCPCA(3, random_state=0).fit(rows(1.5))
    for quiet in ({"noise": "isotropic"}, {"solver": "ml"}):
        MCPCA(3, random_state=0, **quiet).fit(rows(1.5))
    MCPCA(3, random_state=0).fit(rows(0.2))


@pytest.mark.parametrize("noise", ["diagonal", "scaled"])
def test_features_without_noise_of_their_own(noise):
    data = make_contexts(4, 8, 2, n_samples=60, noise=0.3, random_state=0)
    X = data.X.copy()
    X[:, 3] = 0  # never varies
    X[:, 5] = 2 * (X @ data.components[:, 0])  # is an axis
    model = MCPCA(2, noise=noise, random_state=0).fit(X, data.y)
    assert (model.noise_variance_ > 0).all()
    for result in (model.corrected_loadings_, model.transform(X, data.y, posterior=True), model.presence().p_values):
        assert np.isfinite(result).all()
