"""The basis of the flattening in pieces, in threads and from products in single precision: all the same vectors."""

import numpy as np
import pytest

from mcpca._covariances import flattening
from mcpca._covariances.stack import CovarianceStack
from tests.twins import sampled_problem


def by_svd(S, q):
    U, sigma, _ = np.linalg.svd(np.concatenate(list(S), axis=1), full_matrices=False)
    return U[:, :q], sigma[:q]


@pytest.mark.parametrize("scale", [1.0, 1e-22, 1e22, 1e50])
@pytest.mark.parametrize("k", [2, 3])
def test_first_products_in_single_precision_cost_no_digit(rng, monkeypatch, k, scale):
    """Few contexts: products with the covariances stand in for the Gram matrix, the first of them in float32."""
    S = scale * sampled_problem(rng, k, 250, 6, 400, 0.1)[2]
    rough = []
    in_single = flattening._in_single_precision
    monkeypatch.setattr(flattening, "_in_single_precision", lambda S: rough.append(1) or in_single(S))
    vectors, sigma, residual, *_ = CovarianceStack(S).basis(18, 6)
    U, expected = by_svd(S, 18)
    assert rough
    assert residual == 0
    np.testing.assert_allclose(sigma[:6], expected[:6], rtol=1e-12)
    np.testing.assert_allclose(np.abs((vectors * U).sum(axis=0))[:6], 1, rtol=1e-12)


@pytest.mark.parametrize(("rest", "n_products"), [(0.01, 1), (0.1, 1), (0.3, 2), (2.9, 0)])
def test_narrow_blocks_do_without_the_gram_matrix(rng, monkeypatch, rest, n_products):
    """Where products with the covariances take less time; not if eigenvalues fall too slowly for few of them.

    Where they fall fast one product in double precision is enough, and corrections in single bring all digits.
    """
    p, k, r = 1200, 5, 2
    products = []
    times = flattening._squared_times
    monkeypatch.setattr(flattening, "_squared_times", lambda *args: products.append(1) or times(*args))
    U = np.linalg.qr(rng.standard_normal((p, 60)))[0]
    values = np.concatenate([[4.0, 3.0], np.full(58, rest)])
    S = np.stack([(U * values * factors) @ U.T for factors in rng.uniform(0.95, 1.05, (k, 60))])
    found = CovarianceStack(S).basis(4, r)
    w, exact = np.linalg.eigh(np.einsum("kpq,kqs->ps", S, S, optimize=True))
    exact = exact[:, ::-1][:, :r]
    distance = found.vectors[:, :r] - exact * np.sign((found.vectors[:, :r] * exact).sum(axis=0))
    assert np.linalg.norm(distance, axis=0).max() < 2e-10 / (1 - rest**2 / 9)
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(4), atol=1e-13)
    np.testing.assert_allclose(found.singular_values[:r], np.sqrt(w[::-1][:r]), rtol=1e-12)
    assert len(products) == n_products


def test_wide_blocks_take_the_gram_matrix(rng, monkeypatch):
    monkeypatch.setattr(flattening, "_squared_times", None)
    CovarianceStack(sampled_problem(rng, 5, 300, 15, 400, 0.1)[2]).basis(20, 15)


def test_covariances_of_zeros_have_a_basis():
    vectors, sigma, _, *_ = CovarianceStack(np.zeros((2, 250, 250))).basis(4, 2)
    np.testing.assert_array_equal(sigma, 0)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(4), atol=1e-12)


@pytest.mark.parametrize(("k", "p"), [(40, 60), (27, 250), (3, 250)])
def test_pieces_and_threads_change_nothing_but_rounding(rng, monkeypatch, k, p):
    """The Gram matrix is a sum over pieces, more of them with few features; in three contexts products are."""
    S = sampled_problem(rng, k, p, 5, 300, 0.1)[2]
    monkeypatch.setattr(flattening, "_PIECE_NUMBERS", 2**13)
    monkeypatch.setattr(flattening, "_WORTHWHILE_NUMBERS", 0)
    alone, *together = (
        monkeypatch.setattr(flattening, "n_workers", lambda n=n: n) or CovarianceStack(S).basis(8, 5) for n in (1, 2, 3)
    )
    U, expected = by_svd(S, 5)
    np.testing.assert_allclose(alone.singular_values[:5], expected, rtol=1e-12)
    np.testing.assert_allclose(np.abs((alone.vectors[:, :5] * U).sum(axis=0)), 1, rtol=1e-12)
    for other in together:
        np.testing.assert_array_equal(other.vectors, alone.vectors)
        np.testing.assert_array_equal(other.singular_values, alone.singular_values)


def test_one_more_multiplication_takes_no_product(rng, monkeypatch):
    """What the last product says of vectors beyond their residuals is used: fewer products, the same vectors."""
    p, q, r = 240, 12, 4
    U = np.linalg.qr(rng.standard_normal((p, p)))[0]
    values = np.concatenate([[5.0, 4.0, 3.0, 2.0], np.geomspace(0.01, 0.001, p - r)])
    G = (U * values) @ U.T
    products = []

    def times(Q):
        products.append(Q.shape)
        return G @ Q

    def found():
        products.clear()
        w, vectors = flattening.subspace_iteration(times, p, q, r)
        np.testing.assert_allclose(w[:r], values[:r], rtol=1e-12)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(q), atol=1e-13)
        assert np.linalg.norm(vectors[:, :r] - U[:, :r] @ (U[:, :r].T @ vectors[:, :r]), axis=0).max() < 1e-10
        return len(products)

    n_products = found()
    monkeypatch.setattr(flattening, "_NEAR", 0.0)
    assert n_products < found()
