"""The paper's error bound: each link of its proof against simulated data, and what it says at which number of rows."""

import numpy as np
import pytest

from mcpca import decompose, error_analysis
from mcpca._inference.error_analysis import _MIXED, _PER_DELTA, CONDITION
from mcpca._model.landscape import slope_and_curvature
from tests.twins import F_in_full, compose, random_problem, right_singular_matrices


def nearly_orthogonal(rng, p=12, k=9, r=3, tilt=0.05):
    """A and B whose columns are nearly orthogonal, as the theorem asks."""
    A = np.eye(p)[:, :r] + tilt * rng.standard_normal((p, r))
    B = np.eye(k)[:, :r] * rng.uniform(1, 2, r) + tilt * rng.random((k, r))
    return A / np.linalg.norm(A, axis=0), B


def projector(S, r):
    V = right_singular_matrices(S, r).reshape(r, -1)
    return V.T @ V


def wishart(rng, S, n):
    """Covariances of n Gaussian rows with mean 0, without the rows: S^(1/2) W S^(1/2) / n by Bartlett's W."""
    out = np.empty_like(S)
    for i, Si in enumerate(S):
        w, U = np.linalg.eigh(Si)
        U = U[:, w > 1e-12 * w[-1]] * np.sqrt(w[w > 1e-12 * w[-1]])
        m = U.shape[1]
        L = np.tril(rng.standard_normal((m, m)), -1)
        L[np.arange(m), np.arange(m)] = np.sqrt(rng.chisquare(n - np.arange(m)))
        out[i] = U @ L @ (U @ L).T / n
    return out


def largest_loss(A, estimate):
    return 1 - np.abs(A.T @ estimate).max(axis=1).min()


def test_numbers_of_the_model_are_those_of_the_flattening():
    rng = np.random.default_rng(0)
    for k, p, r in ((4, 7, 5), (9, 6, 3)):
        A, B, S = random_problem(rng, k, p, r)
        result = error_analysis(A, B, 100)
        sigma = np.linalg.svd(np.concatenate(list(S), axis=1), compute_uv=False)[:r]
        np.testing.assert_allclose(result.singular_values, sigma, rtol=1e-10)
        assert result.kappa == pytest.approx(sigma[0] / sigma[-1])
        assert result.sigma_r == pytest.approx(sigma[-1])
        units = B / np.linalg.norm(B, axis=0)
        assert result.rho_a == pytest.approx(np.abs(A.T @ A - np.eye(r)).max())
        assert result.rho_b == pytest.approx((units.T @ units - np.eye(r)).max())
        assert result.condition == pytest.approx((r - 1) * result.rho**2)
        assert result.rate == pytest.approx(result.kappa * np.sqrt(p * k / 100))


def test_curvatures_are_those_of_the_landscape_of_exact_covariances():
    rng = np.random.default_rng(1)
    S = random_problem(rng, 12, 8, 4)[2]
    result = decompose(S, 4, random_state=0)
    analysis = error_analysis(result.components, result.loadings, 1000)
    np.testing.assert_allclose(analysis.curvatures, result.landscape().curvatures, atol=1e-6)


def test_the_lemma_bounds_the_curvature_and_is_below_minus_one_under_the_condition():
    rng = np.random.default_rng(2)
    met = 0
    for tilt in np.tile([0.01, 0.03, 0.06, 0.1], 10):
        result = error_analysis(*nearly_orthogonal(rng, tilt=tilt), 100)
        assert result.curvatures.max() <= result.mu
        if result.condition < CONDITION:
            assert result.mu < -1
            met += 1
    assert 10 < met < 40


def test_the_lemma_on_neighbourhoods_holds_for_perturbed_spaces():
    rng = np.random.default_rng(3)
    A, B, S = random_problem(rng, 6, 7, 3)
    mu = error_analysis(A, B, 100).curvatures.max()
    P = projector(S, 3)
    checked = 0
    for _ in range(60):
        size = 10 ** rng.uniform(-4, -1.5)
        V = right_singular_matrices(S, 3).reshape(3, -1).T
        Q = np.linalg.qr(V + size * rng.standard_normal(V.shape) / np.sqrt(len(V)))[0]
        Delta = np.linalg.norm(P - Q @ Q.T, 2)
        j = rng.integers(3)
        a0, b0 = A[:, j], B[:, j] / np.linalg.norm(B[:, j])
        a, b = a0 + size * rng.standard_normal(7) / 4, b0 + size * rng.standard_normal(6) / 4
        a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
        delta = max(np.linalg.norm(a - a0), np.linalg.norm(b - b0))
        matrices = Q.T.reshape(3, 7, 6)
        _, curvature = slope_and_curvature(matrices.transpose(0, 2, 1), a[None], b[None])
        w = 2 * Delta**2 + 18 * delta**2 + _MIXED * Delta * delta + 10 * Delta + _PER_DELTA * delta
        assert curvature[0] <= mu + w
        # The line of the proof that makes 1/n of 1/sqrt(n).
        assert 1 - F_in_full(matrices, a0, b0) <= Delta**2 + 1e-12
        checked += mu + w < 0
    assert checked > 5


def test_covariances_and_projectors_stay_within_their_bounds():
    rng = np.random.default_rng(4)
    A, B = nearly_orthogonal(rng)
    S = compose(A, B)
    P = projector(S, 3)
    for n in (20_000, 10**6):
        result = error_analysis(A, B, n)
        measured = [np.linalg.norm(P - projector(wishart(rng, S, n), 3), 2) for _ in range(20)]
        assert max(measured) <= result.local_perturbation <= result.perturbation < 1
        assert max(measured) > 0.005 * result.local_perturbation


def test_bounds_hold_where_they_say_something_and_fall_at_their_rates():
    rng = np.random.default_rng(5)
    A, B = nearly_orthogonal(rng, tilt=0.02)
    n = 10**9
    result = error_analysis(A, B, n)
    assert result.holds
    assert result.says_anything
    assert result.probability > 0.99
    assert 0 < result.local_loss_bound < result.loss_bound
    estimate = decompose(wishart(rng, compose(A, B), n), 3, random_state=0)
    assert 0 < largest_loss(A, estimate.components) <= result.local_loss_bound
    later = error_analysis(A, B, 100 * n)
    assert later.loss_bound / result.loss_bound == pytest.approx(0.1, rel=0.01)
    assert later.local_loss_bound / result.local_loss_bound == pytest.approx(0.01, rel=0.05)
    assert "The theorem applies: 1 - cos is at most" in str(result)


def test_rows_that_are_needed_are_where_the_bounds_begin():
    A, B = nearly_orthogonal(np.random.default_rng(6))
    first = error_analysis(A, B, 1000)
    assert not first.says_anything
    assert f"something from {first.n_needed:,.0f} on" in str(first)
    assert error_analysis(A, B, int(first.n_needed) + 1).says_anything
    assert not error_analysis(A, B, int(0.99 * first.n_needed)).says_anything
    assert np.isfinite(error_analysis(A, B, int(first.local_n_needed) + 1).local_loss_bound)
    assert np.isnan(error_analysis(A, B, int(0.99 * first.local_n_needed)).local_loss_bound)


def test_random_axes_and_loadings_do_not_meet_the_condition():
    rng = np.random.default_rng(7)
    for p, k, r in ((20, 10, 4), (100, 50, 60)):
        A, B = rng.standard_normal((p, r)), np.abs(rng.standard_normal((k, r)))
        result = error_analysis(A, B, 10**12)
        assert not result.holds
        assert np.isnan(result.loss_bound)
        assert result.n_needed == np.inf
        assert result.condition > 20 * CONDITION
        assert "says nothing here, at any number of rows" in str(result)
        assert np.isfinite(result.local_n_needed)
        assert result.curvatures.max() < 0


def test_units_signs_and_lengths_do_not_matter_and_unequal_contexts_count_each():
    rng = np.random.default_rng(8)
    A, B = nearly_orthogonal(rng)
    first = error_analysis(A, B, 10**8)
    second = error_analysis(-3 * A, 1e-6 * B, np.full(9, 10**8))
    for name in ("kappa", "rho", "perturbation", "loss_bound", "local_loss_bound", "n_needed", "certifying_F"):
        assert getattr(first, name) == pytest.approx(getattr(second, name), rel=1e-9)
    unequal = error_analysis(A, B, [10**7] + [10**8] * 8)
    assert unequal.perturbation > first.perturbation
    assert unequal.rate == pytest.approx(first.kappa * np.sqrt(12 * (1 / 10**7 + 8 / 10**8)))


def test_proportional_loadings_are_beyond_any_number_of_rows():
    rng = np.random.default_rng(9)
    A, B, _ = random_problem(rng, 6, 8, 3)
    B[:, 1] = 3 * B[:, 0]
    result = error_analysis(A, B, 10**12)
    assert result.rho_b == pytest.approx(1)
    assert result.local_n_needed == np.inf
    assert result.curvatures.max() == pytest.approx(0, abs=1e-8)
    assert "not identifiable" in str(result)


def test_a_single_component_has_no_neighbours():
    result = error_analysis(np.eye(5)[:, :1], [[1.0], [2.0]], 10**7)
    assert result.condition == 0
    assert result.kappa == 1
    assert result.curvatures[0] == pytest.approx(-2)
    assert result.mu == -2


def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match=r"B has 1 column of zeros.*Drop it"):
        error_analysis(np.eye(4)[:, :2], [[1.0, 0], [2, 0]], 10)
    with pytest.raises(ValueError, match=r"A \(4, 2\) and B \(2, 3\) do not fit"):
        error_analysis(np.eye(4)[:, :2], np.ones((2, 3)), 10)
    with pytest.raises(ValueError, match="n=1: one integer >= 2 per context"):
        error_analysis(np.eye(4)[:, :2], np.ones((2, 2)), 1)
