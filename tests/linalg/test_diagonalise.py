"""The step of joint diagonalisation: for each pair of axes a small least-squares problem, solved here by a design."""

import numpy as np
import pytest

from mcpca._linalg.diagonalise import pair_step, solve_pairs


def by_design(R, d, weights=None):
    """Least squares of entry (i, j) over contexts on the diagonals j and i, for each pair, by a general solver."""
    k, r = d.shape
    E = np.zeros((r, r))
    for j in range(r):
        for i in range(j):
            w = np.ones(k) if weights is None else np.sqrt(weights[:, j] * weights[:, i])
            design = np.column_stack([d[:, j], d[:, i]]) * w[:, None]
            E[i, j], E[j, i] = np.linalg.lstsq(design, w * R[:, i, j], rcond=None)[0]
    return E


@pytest.fixture
def slices(rng):
    R = rng.standard_normal((6, 4, 4))
    return R + R.transpose(0, 2, 1)


def in_the_middle(R):
    return np.ascontiguousarray(R.transpose(1, 0, 2))


@pytest.mark.parametrize("weighted", [False, True])
def test_each_pair_is_least_squares(rng, slices, weighted):
    d, weights = rng.uniform(0.5, 2, (6, 4)), rng.uniform(0.2, 3, (6, 4)) if weighted else None
    np.testing.assert_allclose(pair_step(in_the_middle(slices), d, weights=weights), by_design(slices, d, weights))


@pytest.mark.parametrize("weighted", [False, True])
def test_noise_is_taken_off_and_axes_are_scaled(rng, slices, weighted):
    d, weights = rng.uniform(0.5, 2, (6, 4)), rng.uniform(0.2, 3, (6, 4)) if weighted else None
    noise, gram, root = rng.uniform(0.1, 1, 6), slices[0] @ slices[0], rng.uniform(0.5, 2, 4)
    given = in_the_middle(slices)
    kept = given.copy()
    found = pair_step(given, d, root, weights, noise, gram)
    clean = (slices - noise[:, None, None] * gram) / root / root[:, None]
    np.testing.assert_allclose(found, by_design(clean, d / root**2, weights))
    np.testing.assert_array_equal(given, kept)


def test_an_exact_model_is_diagonal_after_a_few_steps(rng):
    W, B = np.eye(4) + 0.1 * rng.standard_normal((4, 4)), rng.uniform(0.2, 2, (6, 4))
    R = (W * B[:, None, :]) @ W.T
    for _ in range(6):
        E = pair_step(in_the_middle(R), np.einsum("kjj->kj", R))
        undo = np.linalg.inv(np.eye(4) + E)
        R = undo @ R @ undo.T
    off = R - np.einsum("kjj->kj", R)[:, :, None] * np.eye(4)
    assert np.abs(off).max() < 1e-12


def test_a_pair_that_cannot_be_told_apart_stays(rng):
    """Proportional columns of d: the determinant is zero, and so is the step of that pair alone."""
    d = rng.uniform(0.5, 2, (5, 3))
    d[:, 1] = 3 * d[:, 0]
    K = d.T @ d
    E = solve_pairs(np.broadcast_to(np.diag(K), K.shape), K, rng.standard_normal((3, 3)))
    np.testing.assert_array_equal(np.diag(E), 0)
    assert E[0, 1] == E[1, 0] == 0
    assert np.count_nonzero(E) == 4
