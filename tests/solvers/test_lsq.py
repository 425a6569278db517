"""Least squares: exact truth, a certificate that is true, never above the power method, equal to a slow optimiser."""

import numpy as np
import pytest
from scipy.optimize import minimize

from mcpca import MCPCA, ascore, decompose, facets, nonnegative_loadings
from mcpca._covariances.stack import CovarianceStack, images
from mcpca._solvers import lsq
from twins import compose, random_problem, relative_error, sampled_problem


def objective(S, A, B, weights=None):
    errors = facets(S, A, B).reconstruction_errors
    return float(errors @ (np.ones(len(S)) if weights is None else weights))


@pytest.mark.parametrize(("k", "p", "r"), [(2, 6, 6), (3, 10, 4), (8, 20, 20), (12, 50, 5), (300, 12, 4), (5, 210, 6)])
def test_exact_tensor_is_recovered(rng, k, p, r):
    A, _B, S = random_problem(rng, k, p, r)
    result = decompose(S, r, solver="lsq", random_state=0)
    assert 1 - ascore(result.components, A) < 1e-10
    assert relative_error(S, result.components, result.loadings) < 1e-12
    assert result.converged
    assert result.gradient <= 1e-7


@pytest.mark.parametrize(("k", "p", "r"), [(3, 12, 5), (10, 30, 4), (6, 8, 8), (20, 15, 3)])
def test_never_above_the_power_method_and_stationary_by_finite_differences(rng, k, p, r):
    _, _, S = sampled_problem(rng, k, p, r + 2 if r < p else r, 60, 0.4)
    power = decompose(S, r, random_state=0)
    result = decompose(S, r, solver="lsq", random_state=0)
    A, B = result.components, result.loadings
    assert objective(S, A, B) <= objective(S, power.components, power.loadings) * (1 + 1e-12)
    scale = float((S**2).sum())
    steps = []
    for _ in range(5):  # the derivative along random tangents, B refitted
        D = rng.standard_normal(A.shape)
        D -= A * (A * D).sum(axis=0)
        D /= np.linalg.norm(D)
        values = []
        for h in (1e-5, -1e-5):
            moved = A + h * D
            moved /= np.linalg.norm(moved, axis=0)
            values.append(objective(S, moved, nonnegative_loadings(S, moved)))
        steps.append((values[0] - values[1]) / 2e-5)
    assert np.abs(steps).max() < 1e-6 * scale


def test_as_good_as_a_slow_optimiser_from_the_same_start(rng):
    k, p, r = 6, 9, 4
    _, _, S = sampled_problem(rng, k, p, 6, 50, 0.5)
    start = decompose(S, r, random_state=0)

    def f(z):
        A, B = z[: p * r].reshape(p, r), z[p * r :].reshape(k, r)
        E = compose(A, B) - S
        gA = 4 * np.einsum("kpq,qr,kr->pr", E, A, B)
        gB = 2 * np.einsum("pr,kpq,qr->kr", A, E, A)
        return (E**2).sum(), np.concatenate([gA.ravel(), gB.ravel()])

    z = np.concatenate([start.components.ravel(), start.loadings.ravel()])
    bounds = [(None, None)] * (p * r) + [(0, None)] * (k * r)
    slow = minimize(f, z, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 5000, "ftol": 1e-15})
    result = decompose(S, r, solver="lsq", random_state=0)
    assert objective(S, result.components, result.loadings) <= slow.fun * (1 + 1e-6)


def test_gradient_and_hessian_against_finite_differences(rng):
    _, _, T = sampled_problem(rng, 5, 7, 4, 60, 0.3)
    A = rng.standard_normal((7, 3))
    A /= np.linalg.norm(A, axis=0)

    def gradient(A):
        return lsq.full_gradient(CovarianceStack(T), A / np.linalg.norm(A, axis=0))

    point = lsq._point_at(T, A)
    np.testing.assert_allclose(point.TA, images(T, A))
    D = rng.standard_normal(A.shape)
    D -= A * (A * D).sum(axis=0)
    h = 1e-6
    f = [lsq._point_at(T, (A + s * D) / np.linalg.norm(A + s * D, axis=0)).f for s in (h, -h)]
    np.testing.assert_allclose((gradient(A) * D).sum(), (f[0] - f[1]) / (2 * h), rtol=1e-6)
    numeric = lsq._tangent(A, (gradient(A + h * D) - gradient(A - h * D)) / (2 * h))
    derivatives = lsq._derivatives(point)
    np.testing.assert_allclose(derivatives.gradient, gradient(A))
    seen = []

    def spy(hessian, *_args, **_options):
        seen.append(hessian(D))
        return D

    original, lsq.conjugate_gradients = lsq.conjugate_gradients, spy
    try:
        lsq._newton_direction(T, point, derivatives, 0.1)
    finally:
        lsq.conjugate_gradients = original
    np.testing.assert_allclose(seen[0], numeric, atol=1e-5 * np.abs(numeric).max())


def test_context_weights_decide_which_context_is_fitted(rng):
    _, _, S = sampled_problem(rng, 4, 10, 6, 40, 0.3)
    errors = []
    for weight in (1, 100):
        weights = np.array([weight, 1, 1, 1])
        result = decompose(S, 2, solver="lsq", context_weights=weights, random_state=0)
        errors.append(facets(S, result.components, result.loadings).reconstruction_errors)
        other = decompose(S, 2, solver="lsq", random_state=0)
        assert objective(S, result.components, result.loadings, weights) <= (1 + 1e-12) * objective(
            S, other.components, other.loadings, weights
        )
    assert errors[1][0] < errors[0][0]
    assert errors[1][1:].sum() > errors[0][1:].sum()


def test_equal_weights_change_nothing_and_names_select(rng):
    X = {"a": rng.standard_normal((30, 6)), "b": rng.standard_normal((40, 6)) @ rng.standard_normal((6, 6))}
    plain = MCPCA(2, solver="lsq", random_state=0).fit(X)
    same = MCPCA(2, solver="lsq", random_state=0, context_weights={"b": 3, "a": 3}).fit(X)
    np.testing.assert_allclose(plain.components_, same.components_, atol=1e-6)
    for bad, message in [
        ({"a": 1}, "lacks 'b'; unknown contexts: none"),
        ([1, -1], "one positive number"),
        ("heavy", "one positive number"),
    ]:
        with pytest.raises(ValueError, match=message):
            MCPCA(2, solver="lsq", context_weights=bad).fit(X)


@pytest.mark.parametrize("solver", ["lsq", "ml"])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_scale_costs_no_accuracy(solver, scale):
    _, _, S = sampled_problem(np.random.default_rng(3), 6, 12, 4, 200, 0.2)
    one = decompose(S, 4, solver=solver, random_state=0)
    other = decompose(S * scale, 4, solver=solver, random_state=0)
    np.testing.assert_allclose(other.components, one.components, atol=1e-6)
    np.testing.assert_allclose(other.loadings / scale, one.loadings, atol=1e-6 * one.loadings.max())


@pytest.mark.parametrize("solver", ["lsq", "ml"])
def test_float32_stays_float32_and_agrees(solver, rng):
    _, _, S = sampled_problem(rng, 5, 12, 3, 300, 0.3)
    single = decompose(S.astype(np.float32), 3, solver=solver, n_samples=300, random_state=0)
    double = decompose(S, 3, solver=solver, n_samples=300, random_state=0)
    assert single.components.dtype == single.loadings.dtype == np.float32
    np.testing.assert_allclose(single.components, double.components, atol=1e-4)
    np.testing.assert_allclose(single.loadings, double.loadings, atol=1e-4 * double.loadings.max())


def test_weights_of_the_power_method_scale_covariances(rng):
    _, _, S = sampled_problem(rng, 5, 10, 3, 200, 0.2)
    weights = np.array([1.0, 4, 2, 1, 2])
    weighted = decompose(S, 3, context_weights=weights, random_state=0)
    scaled = decompose(S * np.sqrt(weights)[:, None, None], 3, random_state=0)
    match = [int(np.argmax(np.abs(a @ scaled.components))) for a in weighted.components.T]
    np.testing.assert_allclose(np.abs((weighted.components * scaled.components[:, match]).sum(axis=0)), 1, atol=1e-10)
    np.testing.assert_allclose(weighted.loadings, nonnegative_loadings(S, weighted.components), atol=1e-12)
