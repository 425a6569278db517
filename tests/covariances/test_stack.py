"""Products with a stack of covariances are what their definitions say, in chunks of any size."""

import numpy as np
import pytest

from mcpca import decompose
from mcpca._covariances import array_memory, stack, subspace
from mcpca._covariances.stack import CovarianceStack
from tests.twins import sampled_problem

K, P, M = 7, 9, 4


def covariances(rng, kind):
    X = rng.standard_normal((K, 30, P))
    S = X.transpose(0, 2, 1) @ X
    if kind == "float32":
        return S.astype(np.float32)
    if kind == "strided":
        wide = np.zeros((K, P, 2 * P))
        wide[:, :, ::2] = S
        return wide[:, :, ::2]
    return S


@pytest.fixture(params=["float64", "float32", "strided"])
def S(request, rng):
    return covariances(rng, request.param)


@pytest.fixture(params=[1, 3, K])
def chunk(request, monkeypatch):
    monkeypatch.setattr(array_memory, "_HOST_CHUNK_NUMBERS", request.param * P * P)


def same(found, expected):
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max())


@pytest.mark.usefixtures("chunk")
def test_products_by_definition(rng, S):
    A = rng.standard_normal((P, M))
    diagonals = rng.uniform(1, 2, (K, M))
    matrices = rng.standard_normal((K, M, M))
    weights = rng.uniform(1, 2, K)
    before = S.copy()
    products = CovarianceStack(S)
    exact = S.astype(np.float64)

    assert (products.n_contexts, products.n_features, products.dtype) == (K, P, S.dtype)
    assert products.array_or_none() is S
    same(products.whole(), exact)
    same(np.concatenate(list(products.congruences(A))), np.einsum("pa,kpq,qb->kab", A, exact, A))
    same(products.variances_along(A), np.einsum("pa,kpq,qa->ka", A, exact, A))
    same(products.combine(A, diagonals), np.einsum("kpq,qa,ka->pa", exact, A, diagonals))
    same(products.combine(A, matrices), np.einsum("kpq,qa,kab->pb", exact, A, matrices))
    same(products.variances(), np.einsum("kpp->kp", exact))
    same(products.squared_norms(), np.einsum("kpq,kpq->k", exact, exact))
    same(products.norm_errors(), np.zeros(K))
    same(products.pooled(weights), np.einsum("k,kpq->pq", weights, exact))
    np.testing.assert_array_equal(S, before)


def test_copies_have_the_precision_that_they_need(rng, S):
    """Scales of features are float64, and so are the results; weights of contexts leave the precision of the data."""
    scale = rng.uniform(1, 2, P)
    weights = rng.uniform(1, 2, K)
    same(CovarianceStack(S).scaled(scale).values, S.astype(np.float64) * scale * scale[:, None])
    weighted = CovarianceStack(S).weighted(weights)
    assert weighted.dtype == S.dtype
    np.testing.assert_allclose(weighted.values, S * weights[:, None, None], rtol=1e-6)


@pytest.mark.usefixtures("chunk")
def test_the_basis_is_that_of_a_singular_value_decomposition(S):
    left, sigma, _ = np.linalg.svd(np.hstack(list(S.astype(np.float64))), full_matrices=False)
    vectors, values, residual, error = CovarianceStack(S).basis(5, 3)
    assert error is None
    np.testing.assert_allclose(values, sigma[:5], rtol=1e-10)
    np.testing.assert_allclose(np.abs(np.sum(vectors * left[:, :5], axis=0)), 1, rtol=1e-8)
    assert residual == 0


def test_images_of_a_basis_serve_slices_and_combinations(rng, monkeypatch):
    S = sampled_problem(rng, 7, 64, 3, 200, 0.1)[2]
    U = np.linalg.qr(rng.standard_normal((64, 4)))[0]
    C, weights = rng.standard_normal((4, 3)), rng.standard_normal((7, 3))
    monkeypatch.setattr(stack, "_WORTHWHILE_NUMBERS", 0)
    found = []
    for n in (1, 2):
        monkeypatch.setattr(stack, "n_workers", lambda n=n: n)
        images = stack.BasisImages(S, U)
        found.append((images.slices(), images.combine(C, weights)))
        np.testing.assert_allclose(found[-1][0], U.T @ S @ U, atol=1e-13)
        np.testing.assert_allclose(found[-1][1], stack.CovarianceStack(S).combine(U @ C, weights), atol=1e-13)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_components_take_no_further_product_with_the_covariances(rng, monkeypatch):
    """Where images of a narrow basis are kept; of ranks cut from a larger one they are not."""
    S = sampled_problem(rng, 8, 300, 4, 500, 0.05)[2]
    combine = stack.CovarianceStack.combine
    calls = []
    monkeypatch.setattr(stack.CovarianceStack, "combine", lambda *args: calls.append(1) or combine(*args))
    found = decompose(S, 4, random_state=0)
    assert not calls
    monkeypatch.setattr(subspace, "_IMAGES_SHARE", np.inf)
    expected = decompose(S, 4, random_state=0)
    assert calls
    np.testing.assert_allclose(found.components, expected.components, atol=1e-10)
