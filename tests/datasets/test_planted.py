"""Planted contexts: the truth is what the rows are drawn from."""

import numpy as np
import pytest

from mcpca import context_covariances
from mcpca.datasets import make_contexts


def test_rows_have_the_covariance_of_the_truth():
    truth = make_contexts(3, 5, 2, n_samples=200_000, noise=0.5, random_state=0)
    found = context_covariances(truth.X, truth.y).covariances
    np.testing.assert_allclose(found, truth.covariances, atol=0.02)
    model = np.stack([truth.components @ np.diag(b) @ truth.components.T for b in truth.loadings])
    np.testing.assert_allclose(truth.covariances, model + 0.25 * np.eye(5), atol=1e-12)


@pytest.mark.parametrize("orthogonal", [False, True])
def test_axes_have_unit_length_and_right_angles_if_asked_for(orthogonal):
    A = make_contexts(4, 12, 6, n_samples=2, orthogonal=orthogonal, random_state=1).components
    gram = A.T @ A
    np.testing.assert_allclose(np.diag(gram), 1)
    assert (np.abs(gram - np.eye(6)).max() < 1e-12) == orthogonal


def test_sparse_loadings_leave_no_component_without_a_context():
    B = make_contexts(4, 30, 25, n_samples=2, density=0.05, random_state=2).loadings
    assert (B > 0).any(axis=0).all()
    assert (B == 0).mean() > 0.6


def test_the_seed_decides_everything():
    first, second, other = (make_contexts(3, 4, 2, n_samples=5, random_state=seed) for seed in (7, 7, 8))
    np.testing.assert_array_equal(first.X, second.X)
    assert not np.array_equal(first.X, other.X)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"n_components": 31}, "n_components=31 is out of bounds"),
        ({"density": 1.5}, "density=1.5 is out of bounds"),
        ({"noise": -1}, "noise=-1 is out of bounds"),
        ({"n_contexts": 0}, "n_contexts=0 is out of bounds"),
    ],
)
def test_bad_arguments_are_named(options, told):
    with pytest.raises(ValueError, match=told):
        make_contexts(**options)
