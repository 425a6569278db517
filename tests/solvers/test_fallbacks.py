"""What solvers do where a matrix is singular, a step does not help, or a problem is large: the other ways out."""

import numpy as np
import pytest
from axes import axes_apart, orthonormal

from mcpca import decompose
from mcpca._covariances.stack import CovarianceStack
from mcpca._solvers import joint, loadings, lsq, ml, mspm, orthogonal, scoring
from mcpca._solvers.climbing import Peaks, power_steps
from mcpca._solvers.likelihood import likelihood_of
from mcpca._solvers.weighted import weighted_diagonaliser
from twins import F_in_full, compose, random_problem, right_singular_matrices, sampled_problem


def test_refinement_gives_up_where_a_direction_has_no_variance():
    T = compose(np.eye(3)[:, :2], np.ones((4, 2)))
    assert joint.refine(T, np.eye(3), np.eye(3)) is None


def test_two_combinations_need_a_definite_sum(rng):
    assert joint.pencil(-np.stack([np.eye(2), np.diag([1.0, 2])]), np.eye(2), np.ones(2), rng) is None


def test_refinement_of_an_exact_model_from_nearby(rng):
    A, _, T = random_problem(rng, 5, 4, 4)
    W = np.linalg.inv(A) + 0.01 * rng.standard_normal((4, 4))
    for inner in (None, T):
        found = joint.refine(T, np.eye(4), W, inner)
        assert axes_apart(found.components, A) < 1e-8
        # Every component is what the others leave: v_l^T sum_i d_ij T_i v_j = 0 off the diagonal.
        V = found.directions
        pulls = np.einsum("il,kij,kj->lj", V, np.einsum("kiq,qj->kij", T, V), found.weights)
        np.testing.assert_allclose(pulls, np.diag(np.diag(pulls)), atol=1e-8)


def test_components_that_coincide_are_not_refined(rng):
    _, _, T = random_problem(rng, 4, 3, 2)
    U, D = mspm.row_space(T, 2)
    space = mspm._Space(T, U, D, None, T)
    assert mspm._refined(space, np.repeat(U[:, :1], 2, axis=1)) is None


def test_singular_systems_leave_loadings_to_the_active_set(rng, monkeypatch):
    A, _, S = random_problem(rng, 9, 6, 3)
    expected = loadings.nonnegative_loadings(S, A)

    def singular(*_):
        raise np.linalg.LinAlgError

    monkeypatch.setattr(loadings, "_with_zeros", singular)
    np.testing.assert_allclose(loadings.nonnegative_loadings(S, A), expected, atol=1e-9)


def test_two_equal_columns_are_parted_along_the_gradient(rng):
    """G is singular, so that Newton's equations cannot be set up; the step is a multiple of minus the gradient."""
    _, _, T = sampled_problem(rng, 4, 5, 3, 40, 0.3)
    A = np.repeat(orthonormal(rng, 5, 1), 2, axis=1)
    B = np.tile([1.0, 2.0], (4, 1))
    point = lsq._Point(A, B, lsq.images(T, A), 0.0)
    derivatives = lsq._derivatives(point)
    d = lsq._newton_direction(T, point, derivatives, 0.1)
    np.testing.assert_allclose(d, -derivatives.gradient / (4 * 16.0))


def test_a_search_along_a_way_up_finds_nothing(rng):
    _, _, T = sampled_problem(rng, 4, 5, 3, 40, 0.3)
    point = lsq._point_at(T, orthonormal(rng, 5, 2))
    gradient = lsq._derivatives(point).gradient
    slope = float(np.vdot(gradient, gradient))
    assert lsq._line_search(T, point, gradient, -slope) is None
    lower = lsq._line_search(T, point, -gradient, -slope)
    assert lower.f < point.f


def test_no_density_is_an_infinite_value(rng):
    """Loadings far below zero: the covariance of that context is not definite, and only its value is infinite."""
    A, B, S = sampled_problem(rng, 3, 5, 2, 40, 0.3)
    n = np.full(3, 40.0)
    expected = likelihood_of(CovarianceStack(S), A, B, np.full(3, 0.3), n).deviances
    B[1, 0] = -5
    found = likelihood_of(CovarianceStack(S), A, B, np.full(3, 0.3), n)
    assert not np.isfinite(found.value)
    np.testing.assert_allclose(found.deviances[[0, 2]], expected[[0, 2]])


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:divide by zero")
def test_matrices_that_add_up_to_nothing_have_no_diagonaliser(rng):
    M = np.stack([np.eye(2), -np.eye(2)])
    assert weighted_diagonaliser(M, np.zeros(2), np.ones(2), rng) == (None, False)


@pytest.mark.parametrize("noise", ["isotropic", "pooled"])
def test_a_coarser_preconditioner_ends_at_the_same_maximum(rng, monkeypatch, noise):
    """Above so many numbers the information is inverted by its diagonal alone; the maximum is the same."""
    _, _, S = sampled_problem(rng, 5, 9, 3, 60, 0.4)
    options = {"solver": "ml", "noise": noise, "n_samples": 60, "tol": 1e-9, "random_state": 0}
    blocks = decompose(S, 3, **options)
    monkeypatch.setattr(scoring, "_DIAGONAL_BLOCKS_FROM", 0)
    diagonal = decompose(S, 3, **options)
    assert axes_apart(diagonal.components, blocks.components) < 1e-6
    np.testing.assert_allclose(diagonal.loadings, blocks.loadings, atol=1e-5)
    np.testing.assert_allclose(diagonal.noise, blocks.noise, rtol=1e-5)


def test_which_covariances_have_rank_r_or_less(rng):
    """By Cauchy and Schwarz first, then by eigenvalues: the fourth passes the one and not the other."""
    spectra = np.array([[3.0, 0, 0, 0], [3, 2, 0, 0], [3, 3, 3, 0], [9, 1, 1e-3, 0], [3, 2, 1e-12, 0]])
    Q = orthonormal(rng, 4, 4)
    T = (Q * spectra[:, None, :]) @ Q.T
    trace = spectra.sum(axis=1)
    assert ml._singular(T, trace, 2).tolist() == [True, True, False, False, True]
    # Variance that the core does not hold counts as well.
    assert ml._singular(T, trace + 1e-3, 2).tolist() == [False] * 5


def chosen_block(c, normal, F, step=None, normals=None, tol=1e-6):
    m, r = c.shape
    peaks = Peaks(np.eye(m), np.eye(m), c, np.array(F), np.zeros(m) if step is None else np.array(step), 1)
    normals = np.zeros((0, r)) if normals is None else normals
    return mspm._independent_block(peaks, c, normal, normals, tol)


def test_maxima_that_leave_each_other_alone_are_taken_together():
    c = np.eye(4)
    assert chosen_block(c, c, [0.97, 1.0, 0.98, 0.99]) == [1, 3, 2, 0]
    # One that has not settled waits, unless it is the best; so does one that is much lower.
    assert chosen_block(c, c, [1.0, 0.99, 0.98, 0.97], step=[1.0, 0, 1.0, 0]) == [0, 1, 3]
    assert chosen_block(c, c, [1.0, 0.99, 1 - 1.1 * mspm._F_WINDOW, 0.98]) == [0, 1, 3]
    # What a normal has along those of earlier rounds costs nothing: members of the space have no part in it.
    tilted = np.array([[0.8, 0, 0, 0.6], [0, 0.6, 0, 0.8], [0, 0, 1, 0]])
    assert chosen_block(c[:3], tilted, [1.0, 0.99, 0.98], normals=c[3:]) == [0, 1, 2]


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(("share", "together"), [(0.9, True), (1.1, False)])
def test_maxima_that_compete_are_not_taken_together(sign, share, together):
    """Deflating one takes ``(c . n)^2`` of the other, in either direction; signs of components are arbitrary."""
    x = sign * share * mspm._APART
    leaning = np.array([[1.0, 0, 0], [x, np.sqrt(1 - x**2), 0]])
    expected = [0, 1] if together else [0]
    assert chosen_block(leaning, np.eye(3)[:2], [1.0, 0.99]) == expected
    assert chosen_block(np.eye(3)[:2], leaning, [1.0, 0.99]) == expected


def test_the_height_of_a_maximum_is_F_there(rng):
    _, _, T = sampled_problem(rng, 5, 6, 3, 60, 0.3)
    U, D = mspm.row_space(T, 3)
    a, b = rng.standard_normal((4, 6)), rng.standard_normal((4, 5))
    peaks = power_steps(T, U / D, a / np.linalg.norm(a, axis=1)[:, None], b / np.linalg.norm(b, axis=1)[:, None], 1e-9)
    V = right_singular_matrices(T, 3)
    np.testing.assert_allclose(peaks.F, [F_in_full(V, *pair) for pair in zip(peaks.a, peaks.b, strict=True)])
    assert (peaks.F < 0.999).all()


def test_one_start_is_enough_for_planted_axes(rng, monkeypatch):
    monkeypatch.setattr(orthogonal, "_ALL_STARTS_UP_TO", 0)
    A, B = orthonormal(rng, 9, 4), rng.uniform(0.2, 2, (5, 4))
    assert axes_apart(decompose(compose(A, B), 4, orthogonal=True, random_state=0).components, A) < 1e-8


def test_a_pencil_of_more_combinations_is_nearer_to_what_all_slices_share(rng):
    """The joint diagonaliser of noisy slices, from two combinations of them and from a few."""
    A = np.linalg.qr(rng.standard_normal((9, 9)))[0] + 0.1 * rng.standard_normal((9, 9))
    noise = rng.standard_normal((40, 9, 9))
    T = np.einsum("pj,ij,qj->ipq", A, rng.uniform(0.2, 2, (40, 9)), A) + 0.02 * (noise + noise.transpose(0, 2, 1))
    exact = joint.refine(T, np.eye(9), np.linalg.inv(A))

    def distance(W):
        V = W.T / np.linalg.norm(W.T, axis=0)
        V_exact = exact.directions / np.linalg.norm(exact.directions, axis=0)
        return (1 - np.abs(V.T @ V_exact).max(axis=1)).max()

    two = joint.pencil(T, np.eye(9), np.ones(40), np.random.default_rng(0))
    more = joint.pencil(T, np.eye(9), np.ones(40), np.random.default_rng(0), refined=True)
    assert distance(more) < 0.3 * distance(two)
    again = joint.refine(T, np.eye(9), more)
    assert again.n_iter <= joint.refine(T, np.eye(9), two).n_iter
    np.testing.assert_allclose(np.abs(again.components.T @ exact.components).max(axis=1), 1, rtol=1e-8)
