"""Non-negative loadings against the (p^2, r) design and the optimality conditions."""

import numpy as np
import pytest

from mcpca import nonnegative_loadings
from mcpca._solvers.loadings import _active_set, solve_loadings
from twins import compose, design_loadings, random_problem, sampled_problem


@pytest.mark.parametrize(("k", "p", "r"), [(1, 5, 3), (7, 12, 12), (40, 20, 10), (3, 30, 1)])
def test_equals_the_design_matrix_twin(rng, k, p, r):
    _, _, S = sampled_problem(rng, k, p, r, 50, 0.5)
    A = rng.standard_normal((p, r))  # not the truth: many constraints bind
    A /= np.linalg.norm(A, axis=0)
    np.testing.assert_allclose(nonnegative_loadings(S, A), design_loadings(S, A), atol=1e-9)


def test_exact_model_gives_back_its_loadings(rng):
    A, B, S = random_problem(rng, 30, 15, 8, density=0.4)
    np.testing.assert_allclose(nonnegative_loadings(S, A), B, atol=1e-12 * B.max())


def test_optimality_conditions_hold(rng):
    """b >= 0, gradient >= 0, and one of the two is zero."""
    A = rng.standard_normal((12, 9))
    A /= np.linalg.norm(A, axis=0)
    G = (A.T @ A) ** 2
    H = rng.standard_normal((500, 9))
    B = solve_loadings(G, H)
    gradient = B @ G - H
    assert (B >= 0).all()
    assert gradient.min() > -1e-10
    assert np.abs(B * gradient).max() < 1e-10
    assert ((B == 0).any(axis=1)).mean() > 0.9  # the constraints did bind


def test_each_context_keeps_its_relative_accuracy(rng):
    A, B, _ = random_problem(rng, 4, 10, 5)
    B *= np.array([1, 1e-9, 1e9, 0])[:, None]
    np.testing.assert_allclose(nonnegative_loadings(compose(A, B), A), B, rtol=1e-10)


def test_collinear_components_fall_back_to_the_active_set(rng):
    A, _B, S = random_problem(rng, 6, 8, 3)
    twice = np.column_stack([A, A[:, 0]])  # G is singular
    loadings = nonnegative_loadings(S, twice)
    np.testing.assert_allclose(compose(twice, loadings), S, atol=1e-8)
    G, H = (A.T @ A) ** 2, rng.standard_normal((20, 3))
    np.testing.assert_allclose(_active_set(G, H), solve_loadings(G, H), atol=1e-10)


def test_shapes_are_checked(rng):
    _, _, S = random_problem(rng, 2, 4, 2)
    with pytest.raises(ValueError, match=r"A must be \(p, r\) with p=4 as in S, got shape \(5, 2\)"):
        nonnegative_loadings(S, np.ones((5, 2)))
    with pytest.raises(ValueError, match="A contains NaN"):
        nonnegative_loadings(S, np.full((4, 2), np.nan))
