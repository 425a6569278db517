"""Top eigenvectors from few products: certified, restarted, and stopped when products no longer help."""

import numpy as np

from mcpca._covariances.sampling_limits import power_step
from mcpca._linalg import eigenbasis


def test_eigenvectors_are_certified(rng):
    Q = np.linalg.qr(rng.standard_normal((200, 200)))[0]
    w = np.concatenate([np.linspace(5, 2, 6), np.linspace(1, 0, 194)])
    G = (Q * w) @ Q.T
    found = eigenbasis.top_eigenvectors(
        lambda V: G @ V, rng.standard_normal((200, 12)), 8, 6, tol=1e-8, eps=1e-16, most=40
    )
    np.testing.assert_allclose(found.values[:6], w[:6], rtol=1e-12)
    np.testing.assert_allclose(np.abs(np.sum(found.vectors[:, :6] * Q[:, :6], axis=0)), 1, atol=1e-9)
    assert found.residual <= 1e-8
    residual = np.linalg.norm(G @ found.vectors[:, :6] - found.vectors[:, :6] * found.values[:6], axis=0).max()
    np.testing.assert_allclose(found.residual, residual / w[5], atol=1e-13)
    assert found.n_products < 15


def test_a_good_start_needs_few_products(rng):
    A = np.linalg.qr(rng.standard_normal((300, 5)))[0]
    G = (A * [5, 4, 3, 2, 1]) @ A.T
    found = eigenbasis.top_eigenvectors(
        lambda V: G @ V, G @ rng.standard_normal((300, 10)), 5, 5, tol=1e-8, eps=1e-16, most=40
    )
    assert found.n_products == 1


def test_products_end_where_eigenvalues_do_not_differ(rng):
    found = eigenbasis.top_eigenvectors(
        lambda V: 2 * V, rng.standard_normal((50, 4)), 3, 3, tol=1e-8, eps=1e-16, most=40
    )
    np.testing.assert_allclose(found.values, 2)
    G = np.diag(np.linspace(1, 0.99, 400))
    slow = eigenbasis.top_eigenvectors(
        lambda V: G @ V, rng.standard_normal((400, 6)), 4, 4, tol=1e-12, eps=1e-16, most=5
    )
    assert slow.n_products == 5
    assert slow.residual > 1e-12
    left = np.linalg.norm(G @ slow.vectors - slow.vectors * slow.values, axis=0).max()
    np.testing.assert_allclose(slow.residual, left / slow.values[-1])


def test_a_basis_that_starts_again_goes_on_converging(rng):
    w = np.concatenate([np.linspace(2, 1.2, 4), np.linspace(1.1, 0, 596)])
    found = eigenbasis.top_eigenvectors(
        lambda V: w[:, None] * V, rng.standard_normal((600, 4)), 4, 4, tol=1e-8, eps=1e-16, most=60
    )
    assert found.n_products > 8
    assert found.residual <= 1e-8
    np.testing.assert_allclose(found.values, w[:4], rtol=1e-10)


def test_one_more_multiplication_takes_the_place_of_products(rng):
    """Strong directions are done with it, so that the second product is of the weak one alone."""
    p, r, allowed = 300, 5, 2e-3
    Q = np.linalg.qr(rng.standard_normal((p, p)))[0]
    w = np.concatenate([[1, 0.9, 0.8, 0.7, 0.1], np.linspace(0.02, 0, p - r)])
    G = (Q * w) @ Q.T
    start = Q[:, :15] + 0.05 / np.sqrt(p) * rng.standard_normal((p, 15))
    widths = []

    def times(V):
        widths.append(V.shape[1])
        return G @ V

    def errors(U):
        return np.linalg.norm(U[:, :r] - Q[:, :r] @ (Q[:, :r].T @ U[:, :r]), axis=0) / allowed

    def goal(values, U, residuals, *, all_moved):
        return errors(U)

    options = {"tol": 1e-12, "goal": goal, "eps": 1e-16, "most": 40}
    plain = eigenbasis.top_eigenvectors(times, start, r, r, **options)
    widths = []
    found = eigenbasis.top_eigenvectors(times, start, r, r, shrink=power_step, **options)
    assert found.n_products < plain.n_products
    assert widths == [15, 4]
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(r), atol=1e-12)
    assert errors(found.vectors).max() <= 1
    assert errors(found.vectors).max() <= 2 * found.excess <= 2
    # The weak one need not be exact: nothing but the first product is made.
    rough = eigenbasis.top_eigenvectors(times, start, r, r, shrink=power_step, **options | {"goal": eased(goal)})
    assert rough.n_products == 1
    assert errors(rough.vectors)[:4].max() <= 1
    assert found.residual < rough.residual


def eased(goal):
    """Ten times as much is allowed of the last direction."""

    def at_ease(values, U, residuals, *, all_moved):
        return goal(values, U, residuals, all_moved=all_moved) / [1, 1, 1, 1, 10]

    return at_ease
