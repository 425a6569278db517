"""Conjugate gradients and projected Newton steps, against dense solutions, and where they have to stop early."""

import numpy as np
import pytest
from scipy.optimize import nnls

from mcpca._linalg.bounded_newton import descend
from mcpca._linalg.newton import conjugate_gradients


def definite(rng, m, spread=1e3):
    Q = np.linalg.qr(rng.standard_normal((m, m)))[0]
    return (Q * np.geomspace(1, spread, m)) @ Q.T


def run(H, g, precondition=lambda z: z, rtol=1e-13, max_iter=100):
    products = []

    def hessian(d):
        products.append(d)
        return (H @ d.ravel()).reshape(d.shape)

    return conjugate_gradients(hessian, g, precondition, rtol=rtol, max_iter=max_iter), len(products)


def test_the_solution_of_newtons_equations_in_any_shape(rng):
    H, g = definite(rng, 6), rng.standard_normal((2, 3))
    d, _ = run(H, g)
    np.testing.assert_allclose(d.ravel(), -np.linalg.solve(H, g.ravel()), rtol=1e-7)


def test_as_many_products_as_there_are_eigenvalues(rng):
    Q = np.linalg.qr(rng.standard_normal((8, 8)))[0]
    H = (Q * [1, 1, 1, 5, 5, 5, 9, 9]) @ Q.T
    g = rng.standard_normal(8)
    d, products = run(H, g)
    assert products == 3
    np.testing.assert_allclose(H @ d, -g, atol=1e-12)
    # With the inverse as preconditioner one product is enough.
    assert run(H, g, lambda z: np.linalg.solve(H, z))[1] == 1


def test_a_step_is_the_best_of_its_krylov_space(rng):
    """After m products d minimises the quadratic over the span of g, Hg, ..., H^(m-1) g."""
    H, g = definite(rng, 7, 50), rng.standard_normal(7)
    for m in (1, 2, 4):
        d, products = run(H, g, max_iter=m)
        assert products == m
        K = np.linalg.qr(np.column_stack([np.linalg.matrix_power(H, i) @ g for i in range(m)]))[0]
        np.testing.assert_allclose(d, -K @ np.linalg.solve(K.T @ H @ K, K.T @ g), rtol=1e-8)


@pytest.mark.parametrize("rtol", [0.5, 1e-2, 1e-6])
def test_it_stops_at_the_residual_that_is_asked_for_and_not_before(rng, rtol):
    H, g = definite(rng, 30), rng.standard_normal(30)
    d, products = run(H, g, rtol=rtol)
    assert np.linalg.norm(H @ d + g) <= rtol * np.linalg.norm(g) * (1 + 1e-9)
    before, _ = run(H, g, rtol=rtol, max_iter=products - 1)
    assert np.linalg.norm(H @ before + g) > rtol * np.linalg.norm(g)


def test_negative_curvature_ends_it_on_the_way_down(rng):
    g = np.array([1.0, 2.0])
    # At once: minus the preconditioned gradient, which goes down all the same. A flat direction counts as negative.
    for H in (-np.eye(2), np.zeros((2, 2))):
        np.testing.assert_array_equal(run(H, g, lambda z: z / 2)[0], -g / 2)
    # Later: the solution so far, here the step to the minimum along g.
    H = np.diag([3.0, -0.5])
    d, products = run(H, g)
    assert products == 2
    np.testing.assert_allclose(d, -(g @ g) / (g @ H @ g) * g)


def test_at_a_stationary_point_there_is_nothing_to_solve(rng):
    d, products = run(definite(rng, 3), np.zeros(3))
    assert products == 0
    np.testing.assert_array_equal(d, 0)


def test_what_is_no_number_is_not_followed():
    g = np.array([1.0, -1.0])
    d, products = run(2 * np.eye(2), g, lambda z: np.full(2, np.nan))
    assert products == 0
    np.testing.assert_array_equal(d, 0)


class Quadratic:
    """|M x - y|^2 / 2 at x."""

    def __init__(self, M, y, x):
        self.M, self.x = M, x
        residual = M @ x - y
        self.value, self.gradient = float(residual @ residual) / 2, M.T @ residual

    def hessian(self, d):
        return self.M.T @ (self.M @ d)

    def preconditioner(self, free):
        size = (self.M**2).sum(axis=0)
        return lambda z: z / size


def test_bounded_least_squares_are_those_of_the_active_set(rng):
    for _ in range(5):
        M, y = rng.standard_normal((12, 6)), rng.standard_normal(12)
        end = descend(lambda x: Quadratic(M, y, x), np.full(6, 0.3), np.zeros(6), lambda point: 1e-18, 100)  # noqa: B023
        np.testing.assert_allclose(end.point.x, nnls(M, y)[0], atol=1e-8)
        assert end.decrement <= 1e-18
        assert 0 < end.n_iter < 20


def test_bounds_need_not_be_zero_and_a_start_below_them_is_lifted(rng):
    M, y, lower = rng.standard_normal((9, 4)), rng.standard_normal(9), np.array([-1.0, 0.5, -np.inf, 0.1])
    end = descend(lambda x: Quadratic(M, y, x), np.full(4, -5.0), lower, lambda point: 1e-18, 100)
    assert (end.point.x >= lower).all()
    held = end.point.x == lower
    assert (end.point.gradient[held] >= 0).all()
    np.testing.assert_allclose(end.point.gradient[~held], 0, atol=1e-8)


def test_no_step_at_all_tells_nothing_and_few_tell_what_is_left(rng):
    M, y = rng.standard_normal((9, 4)), rng.standard_normal(9)
    unbounded, goal = np.full(4, -np.inf), lambda point: 0.0
    none = descend(lambda x: Quadratic(M, y, x), np.ones(4), unbounded, goal, 0)
    assert (none.decrement, none.n_iter) == (np.inf, 0)
    one = descend(lambda x: Quadratic(M, y, x), np.ones(4), unbounded, goal, 1)
    assert one.n_iter == 1
    # The decrement is twice what the quadratic model promises: here that is what a step has gained, to its 10%.
    assert one.decrement == pytest.approx(2 * (none.point.value - one.point.value), rel=0.05)


def test_it_ends_where_no_step_goes_down():
    class Jagged(Quadratic):
        """A gradient that promises what the values do not keep."""

        def __init__(self, x):
            super().__init__(np.eye(2), np.zeros(2), x)
            self.value = 0.0 if (x == 1).all() else 1.0

    end = descend(Jagged, np.ones(2), np.zeros(2), lambda point: 0.0, 50)
    assert end.n_iter == 0
    np.testing.assert_array_equal(end.point.x, 1)
    assert end.decrement == pytest.approx(2)
