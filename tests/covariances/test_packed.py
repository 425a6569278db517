"""Slices of many contexts as upper halves: products with components in their span are those with the covariances."""

import numpy as np
import pytest

from mcpca import MCPCA, decompose
from mcpca._covariances.packed import InCore, PackedSlices
from mcpca._covariances.stack import CovarianceStack, each_congruence
from mcpca._covariances.subspace import compress, mix_contexts
from mcpca._model.facets import facets
from mcpca._solvers import loadings as least_squares
from mcpca._utils import parallel
from tests.twins import sampled_problem


@pytest.fixture
def S(rng):
    # Contexts of very different size, and one that does not vary.
    S = sampled_problem(rng, 30, 12, 4, 60, 0.3)[2] * np.logspace(-3, 6, 30)[:, None, None]
    S[7] = 0
    return S


@pytest.fixture
def within(S, rng):
    U = np.linalg.qr(rng.standard_normal((12, 5)))[0]
    return U, InCore(PackedSlices.of(CovarianceStack(S), U), rng.standard_normal((5, 3)))


def test_halves_hold_the_slices(S, within):
    U, inside = within
    slices = inside.slices
    assert np.abs(slices.halves).max() == 1
    whole = np.einsum("pa,kpq,qb->kab", U, S, U)
    np.testing.assert_allclose(slices.unpacked(slices.halves), whole, rtol=1e-10, atol=1e-12 * np.abs(whole).max())
    # The inner product of halves is that of the matrices.
    gram = slices.unit**2 * slices.halves @ slices.halves.T
    np.testing.assert_allclose(gram, np.einsum("iab,jab->ij", whole, whole), rtol=1e-10)


def test_products_in_the_span_are_those_with_the_covariances(S, within, rng):
    U, inside = within
    A = U @ inside.C
    N = rng.standard_normal((3, 3))
    N = N + N.T
    cross = np.einsum("pa,kpq,qb->kab", A, S, A)
    np.testing.assert_allclose(inside.variances_along(), np.einsum("kaa->ka", cross), rtol=1e-9)
    np.testing.assert_allclose(inside.inner_products(N), np.einsum("kab,ab->k", cross, N), rtol=1e-7)
    parts = inside.each_congruence(lambda part, C: (part, C), N)
    assert [part.start for part, _ in parts] == [0, *(part.stop for part, _ in parts[:-1])]
    np.testing.assert_allclose(np.concatenate([C for _, C in parts]), N @ cross @ N, rtol=1e-7, atol=1e-8)


def test_combinations_of_contexts_are_one_step_of_subspace_iteration(rng):
    """From the variances along r directions: ``qr(P P^T Q)``, P the entries of the slices among these directions."""
    k, r, e = 30, 3, 4
    T = np.stack([M @ M.T for M in rng.standard_normal((k, 5, 5))])
    packed = PackedSlices.of(CovarianceStack(T), np.eye(5))
    slices, Q = mix_contexts(packed, r, e)
    np.testing.assert_allclose(Q.T @ Q, np.eye(e), atol=1e-12)
    np.testing.assert_allclose(slices, np.tensordot(Q.T, T, axes=1), atol=1e-10)
    P = T[:, :r, :r].reshape(k, r * r)
    # Three variances, and the covariance of the first two directions.
    start = np.column_stack([T[:, 0, 0], T[:, 1, 1], T[:, 2, 2], T[:, 0, 1]])
    expected = np.linalg.qr(P @ P.T @ np.linalg.qr(start)[0])[0]
    np.testing.assert_allclose(Q @ Q.T, expected @ expected.T, atol=1e-10)


def test_congruences_come_in_slices_of_contexts(S, within, monkeypatch):
    U, _ = within
    monkeypatch.setattr("mcpca._covariances.array_memory._HOST_CHUNK_LEAST", 600)  # several chunks of this small stack
    found = each_congruence(CovarianceStack(S), U, lambda part, cross: (part, cross.copy()))
    assert len(found) > 1
    for part, cross in found:
        np.testing.assert_allclose(cross, U.T @ S[part] @ U, rtol=1e-9, atol=1e-9 * np.abs(S).max())
    assert sum(len(cross) for _, cross in found) == len(S)


def test_a_fit_of_many_contexts_measures_in_the_core_what_the_covariances_say(rng):
    """Loadings and facets of combined contexts come from packed slices; twins compute them from the covariances."""
    *_, S = sampled_problem(rng, 230, 15, 4, 80, 0.3)
    core = compress(CovarianceStack(S), 4)
    assert core.packed is not None
    assert core.leading(3).packed is None
    model = MCPCA(4, random_state=0).fit_covariances(S, n_samples=80)
    A, B = model.components_, model.loadings_
    np.testing.assert_allclose(B, least_squares.nonnegative_loadings(S, A), atol=1e-10)
    np.testing.assert_allclose(decompose(S, 4, random_state=0).loadings, B, atol=1e-10)
    twin = facets(S, A, B)
    np.testing.assert_allclose(model.reconstruction_error("context"), twin.reconstruction_errors, rtol=1e-8)
    np.testing.assert_allclose(model.likelihood_loss("context"), twin.likelihood_losses, rtol=1e-8)
    # The core of weighted covariances has other slices, which loadings must not be taken from.
    weights = rng.uniform(0.5, 2, 230)
    weighted = decompose(S, 4, context_weights=weights, random_state=0)
    expected = least_squares.nonnegative_loadings(S, weighted.components)
    np.testing.assert_allclose(weighted.loadings, expected, atol=1e-10)


def test_threads_are_not_left_limited(S):
    before = parallel.n_workers()
    each_congruence(CovarianceStack(S), np.eye(12), lambda part, cross: None)
    assert parallel.n_workers() == before
