"""What passes have found is a value: learning more gives another one, and what is known is what was computed."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from mcpca._covariances.pass_results import PassMemory, PassResults
from mcpca._covariances.passes import Passes, PassLedger

K, P = 4, 12


@pytest.fixture
def S(rng):
    Z = rng.standard_normal((K, 30, P))
    return np.matmul(Z.transpose(0, 2, 1), Z)


@pytest.fixture
def U(rng):
    return np.linalg.qr(rng.standard_normal((P, 6)))[0]


def test_results_do_not_change(S, U):
    nothing = PassResults()
    known = nothing.with_core(U, np.matmul(U.T, np.matmul(S, U)))
    assert nothing.basis is None
    assert known.basis is U
    with pytest.raises(FrozenInstanceError):
        known.core = None
    assert known.with_norms(np.ones(K), np.ones((K, 2)), 6, wider_than_block=False).inside is not None
    assert known.inside is None
    memory = PassMemory()
    memory.results = known
    assert PassMemory().results.basis is None  # each set of covariances has a memory of its own


def test_columns_complete_the_core_block_by_block(S, U):
    known = PassResults()
    for block in (U[:, :3], U[:, 3:5], U[:, 5:]):
        seen = known.basis_with(block, K)
        known = known.with_columns(seen, np.matmul(seen.T, np.matmul(S, block)))
    np.testing.assert_array_equal(known.basis, U)
    np.testing.assert_allclose(known.core, np.matmul(U.T, np.matmul(S, U)), atol=1e-12)
    np.testing.assert_array_equal(known.core, known.core.transpose(0, 2, 1))
    A = U @ np.random.default_rng(1).standard_normal((6, 2))
    expected = np.matmul(A.T, np.matmul(S, A))
    np.testing.assert_allclose(np.concatenate(list(known.congruences(A))), expected, rtol=1e-10)
    assert known.congruences(np.eye(P)[:, :2]) is None
    # A block that is not orthogonal to the basis begins a new one.
    np.testing.assert_array_equal(known.basis_with(U[:, :2], K), U[:, :2])


def test_products_are_known_in_the_span(S, U, rng):
    G = sum(s @ s for s in S)
    known = PassResults().with_products(U, G @ U)
    C = rng.standard_normal((6, 2))
    np.testing.assert_allclose(known.product(U @ C), G @ U @ C, rtol=1e-10)
    assert known.product(rng.standard_normal((P, 2))) is None
    assert PassResults().product(U) is None


def test_only_an_orthonormal_basis_is_taken(S, U):
    assert PassResults().with_core(2 * U, np.matmul(U.T, np.matmul(S, U))).basis is None


def test_norms_of_a_wider_basis_are_kept():
    known = PassResults()
    assert known.norms_are_rough(0.1)
    known = known.with_norms(np.full(K, 3.0), np.full((K, 2), 1.0), 3, wider_than_block=False)
    np.testing.assert_array_equal(known.squared_norms, 4)
    known = known.with_norms(np.full(K, 2.0), np.tile([0.5, 1.5], (K, 1)), 5, wider_than_block=True)
    np.testing.assert_array_equal(known.inside, 5)
    np.testing.assert_array_equal(known.squared_norms, 6)
    np.testing.assert_allclose(known.norm_errors, np.std([0.5, 1.5], ddof=1) / np.sqrt(2))
    assert known.norms_are_rough(1e-3)
    assert not known.norms_are_rough(0.1)
    assert known.with_norms(np.full(K, 9.0), np.ones((K, 2)), 4, wider_than_block=False) is known


def test_the_ledger_counts_and_passes_are_fixed():
    passes = Passes.silent()
    assert [passes.ledger.enter(stage) for stage in ("means", "basis")] == ["pass 1, means", "pass 2, basis"]
    assert passes.ledger == PassLedger(2)
    with pytest.raises(FrozenInstanceError):
        passes.ledger = PassLedger()
