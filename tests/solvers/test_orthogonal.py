"""Orthonormal components by least squares, and the rotations and Newton steps that find them."""

import numpy as np
import pytest
from axes import axes_apart, noisy_covariances, orthonormal
from scipy.optimize import minimize

from mcpca import MCPCA, ascore
from mcpca._linalg import jacobi, stiefel
from mcpca._solvers import orthogonal, orthogonal_ml
from mcpca.datasets import make_contexts
from twins import compose


def solve(T, r, tol=1e-9, max_iter=200):
    return orthogonal.solve_orthogonal_core(T, r, tol=tol, max_iter=max_iter, report=lambda stage, done, total: None)


def squares(T, A):
    return float((((T @ A) * A).sum(axis=1) ** 2).sum())


@pytest.mark.parametrize(("k", "q", "r"), [(2, 6, 6), (5, 9, 4), (3, 12, 5), (30, 7, 7), (4, 5, 1)])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_planted_axes_are_recovered(rng, k, q, r, scale):
    A = orthonormal(rng, q, r)
    B = np.abs(rng.standard_normal((k, r))) * (rng.random((k, r)) < 0.7)
    B[rng.integers(k, size=r), np.arange(r)] += 0.5
    result = solve(scale * compose(A, B), r)
    assert result.converged
    assert axes_apart(result.components, A) < 1e-8


@pytest.mark.parametrize("seed", range(4))
def test_as_good_as_many_slow_starts(seed):
    rng = np.random.default_rng(seed)
    k, q, r = 4, 5, (2, 3, 5)[seed % 3]
    T = noisy_covariances(rng, k, q, 6)
    found = squares(T, solve(T, r).components)

    def loss(x):
        U, _, Vt = np.linalg.svd(x.reshape(q, r), full_matrices=False)
        return -squares(T, U @ Vt) / squares(T, np.eye(q))

    slow = max(-minimize(loss, rng.standard_normal(q * r)).fun for _ in range(8)) * squares(T, np.eye(q))
    assert found >= slow * (1 - 1e-9)


def test_least_squares_and_the_sum_of_squares_are_one(rng):
    T = noisy_covariances(rng, 4, 6, 9)
    A = solve(T, 3).components
    h = np.einsum("qj,kqs,sj->kj", A, T, A)
    assert np.linalg.norm(T - compose(A, h)) ** 2 == pytest.approx(np.linalg.norm(T) ** 2 - squares(T, A))


def test_no_step_lowers_the_objective(rng):
    T = noisy_covariances(rng, 5, 12, 8)
    r = 4
    start = np.linalg.eigh(T.sum(axis=0))[1][:, ::-1]
    values = [squares(T, start[:, :r])]
    frame = start
    for _ in range(3):
        frame, _ = jacobi.jacobi_sweeps(T, frame, r, jacobi.squares_angle, 1)
        values.append(squares(T, frame[:, :r]))
    for _ in range(12):
        frame = stiefel.maximise_over_frames(T, frame, r, orthogonal.squared_variances, max_iter=1, tol=1e-12).frame
        values.append(squares(T, frame[:, :r]))
    assert (np.diff(values) >= -1e-13 * values[-1]).all()
    assert values[1] > values[0]
    flattening = np.linalg.eigh(np.einsum("kpq,kqs->ps", T, T))[1][:, -r:]
    assert squares(T, solve(T, r).components) >= max(values[-1] * (1 - 1e-12), squares(T, flattening))


def test_certificate_is_the_riemannian_gradient(rng):
    T = noisy_covariances(rng, 4, 8, 10)
    result = solve(T, 3, tol=1e-10)
    A = result.components
    G = 4 * sum(np.outer(Ti @ a, np.eye(3)[j]) * (a @ Ti @ a) for Ti in T for j, a in enumerate(A.T))
    tangent = G - A @ (A.T @ G + G.T @ A) / 2
    assert np.linalg.norm(tangent) / np.linalg.norm(T) ** 2 < 1e-10
    assert result.gradient < 1e-10
    stopped = solve(noisy_covariances(rng, 6, 20, 10), 8, tol=1e-15, max_iter=1)
    assert not stopped.converged
    assert "after max_iter=1 steps; raise either" in stopped.message


def test_newtons_step_from_near_a_maximum_returns_to_it(rng):
    """Which tests every term of the Hessian: the step undoes a rotation t X up to O(t^2)."""
    k, q, r, t = 4, 7, 3, 1e-6
    n = np.array([0.1, 0.2, 0.3, 0.4])
    T = noisy_covariances(rng, k, q, 9)
    X = rng.standard_normal((q, r))
    X[:r] -= X[:r].T.copy()
    for objective in (
        orthogonal.squared_variances,
        lambda h: orthogonal_ml.likelihood_landscape(h, T.trace(axis1=1, axis2=2) + 1, n, 9, np.full(k, 1e-9), False),
        lambda h: orthogonal_ml.likelihood_landscape(h, T.trace(axis1=1, axis2=2) + 1, n, 9, np.full(k, 1e-9), True),
    ):
        top = stiefel.maximise_over_frames(T, orthonormal(rng, q, q), r, objective, max_iter=200, tol=1e-13)
        assert top.gradient < 1e-10 * abs(top.value)
        V = top.frame @ stiefel._cayley(t * X)
        here = objective(np.einsum("qj,kqs,sj->jk", V[:, :r], T, V[:, :r]))
        Y = np.einsum("qj,kqs,sl->jkl", V[:, :r], T, V)
        G = 2 * np.einsum("jk,jkl->lj", here.slope, Y)
        g = np.vstack([G[:r] - G[:r].T, G[r:]])
        step = stiefel._newton_direction(T, V, Y, G, g, np.ones((q, r)), here, 1e-12)
        np.testing.assert_allclose(step, -t * X, atol=1e-3 * t)


def test_equivariance(rng):
    T = noisy_covariances(rng, 5, 8, 10)
    A = solve(T, 4).components
    Q = orthonormal(rng, 8, 8)
    assert axes_apart(solve(Q @ T @ Q.T, 4).components, Q @ A) < 1e-7
    assert axes_apart(solve(T[rng.permutation(5)], 4).components, A) < 1e-7
    # Only the span of the slices, with its inner product, matters: they need not be covariances.
    mixed = np.tensordot(orthonormal(rng, 5, 5), T, axes=1)
    assert squares(mixed, solve(mixed, 4).components) == pytest.approx(squares(T, A))


def test_one_context_gives_its_eigenvectors(rng):
    T = noisy_covariances(rng, 1, 7, 20)
    top = np.linalg.eigh(T[0])[1][:, ::-1]
    for r in (1, 3, 7):
        assert axes_apart(solve(T, r).components, top[:, :r]) < 1e-8


@pytest.mark.parametrize(
    "T", [np.zeros((3, 4, 4)), np.stack([np.eye(4)] * 3), np.stack([np.ones((4, 4)), np.zeros((4, 4))])]
)
def test_degenerate_slices(T):
    for r in (1, 2, 4):
        result = solve(T, r)
        np.testing.assert_allclose(result.components.T @ result.components, np.eye(r), atol=1e-13)
        assert result.converged


def test_progress_is_reported(rng):
    calls = []
    orthogonal.solve_orthogonal_core(
        noisy_covariances(rng, 3, 5, 6), 2, tol=1e-8, max_iter=50, report=lambda *call: calls.append(call)
    )
    assert calls[-1][1] == calls[-1][2]


def test_every_pair_meets_once():
    for q, r in [(1, 1), (2, 1), (6, 6), (7, 7), (9, 4)]:
        rounds = jacobi.round_robin(q, r)
        assert all(len(np.unique(np.concatenate(pair))) == 2 * len(pair[0]) for pair in rounds)
        met = sorted((int(j), int(m)) for J, L in rounds for j, m in zip(J, L, strict=True))
        assert met == [(j, m) for j in range(r) for m in range(j + 1, q)]


@pytest.mark.parametrize("options", [{}, {"solver": "lsq"}, {"solver": "ml"}, {"solver": "ml", "noise": "pooled"}])
def test_orthogonal_models_recover_orthogonal_truth_better(options):
    data = make_contexts(8, 20, 4, n_samples=300, noise=0.3, density=0.6, orthogonal=True, random_state=0)
    losses = []
    for orthogonal_ in (False, True):
        model = MCPCA(4, orthogonal=orthogonal_, random_state=0, **options).fit(data.X, data.y)
        losses.append(1 - ascore(model.components_, data.components))
    np.testing.assert_allclose(model.components_.T @ model.components_, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(model.projection_, model.components_.T, atol=1e-12)
    assert losses[1] < losses[0]
