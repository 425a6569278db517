"""Sign, order, matching and the Ascore."""

import itertools

import numpy as np
import pytest

from mcpca import ascore, match_components
from mcpca._linalg.canonical import canonical_order


def unit_columns(rng, p, r):
    A = rng.standard_normal((p, r))
    return A / np.linalg.norm(A, axis=0)


def test_order_is_total_variance_and_sign_is_the_largest_entry(rng):
    A, B = unit_columns(rng, 9, 5), np.abs(rng.standard_normal((4, 5)))
    A2, B2, order = canonical_order(A, B)
    assert (np.diff(B2.sum(axis=0)) <= 0).all()
    peak = np.abs(A2).argmax(axis=0)
    assert (A2[peak, range(5)] > 0).all()
    assert order.tolist() == np.argsort(-B.sum(axis=0)).tolist()
    np.testing.assert_array_equal(np.abs(A2), np.abs(A[:, order]))
    np.testing.assert_array_equal(B2, B[:, order])


def test_canonical_form_forgets_sign_and_order(rng):
    A, B = unit_columns(rng, 9, 6), np.abs(rng.standard_normal((4, 6)))
    shuffle, signs = rng.permutation(6), rng.choice([-1, 1], 6)
    shuffled = canonical_order((A * signs)[:, shuffle], B[:, shuffle])
    for left, right in zip(canonical_order(A, B)[:2], shuffled[:2], strict=True):
        np.testing.assert_array_equal(left, right)


def test_columns_of_zeros_have_no_sign():
    A, B = np.zeros((3, 2)), np.zeros((4, 2))
    A2, B2, order = canonical_order(A, B)
    assert not np.signbit(A2).any()
    assert not B2.any()
    assert order.tolist() == [0, 1]
    match = match_components(np.eye(3)[:, :2], np.eye(3)[:, 1:])
    assert match.indices.tolist() == [1, 0]
    assert match.cosines.tolist() == [1, 0]
    assert match.signs.tolist() == [1, 1]
    assert "2 columns matched" in str(match)
    assert "2 of them are in another place" in str(match)


def test_ties_do_not_hang_on_rounding():
    A = np.array([[1.0, 1.0], [1.0, -1.0]]) / np.sqrt(2)
    B = np.ones((3, 2))
    noisy = canonical_order(A * (1 + 1e-15), B * (1 + np.array([0, 1e-14])))
    np.testing.assert_allclose(noisy[0], canonical_order(A, B)[0], atol=1e-12)


def test_greedy_is_the_papers_matching(rng):
    """The first reference column chooses first, then the second among the rest."""
    A, A_ref = unit_columns(rng, 4, 5), unit_columns(rng, 4, 5)
    left, expected = list(range(5)), []
    for a in A_ref.T:
        best = max(left, key=lambda j: abs(a @ A[:, j]))
        expected.append(best)
        left.remove(best)
    assert match_components(A, A_ref, method="greedy").indices.tolist() == expected
    assert ascore(A, A_ref) == pytest.approx(np.mean([abs(A_ref[:, i] @ A[:, j]) for i, j in enumerate(expected)]))


def test_optimal_is_the_best_of_all_permutations(rng):
    A, A_ref = unit_columns(rng, 4, 5), unit_columns(rng, 4, 5)
    best = max(np.mean([abs(A_ref[:, i] @ A[:, j]) for i, j in enumerate(p)]) for p in itertools.permutations(range(5)))
    assert ascore(A, A_ref, method="optimal") == pytest.approx(best)
    assert ascore(A, A_ref, method="optimal") >= ascore(A, A_ref)


def test_apply_undoes_sign_and_order(rng):
    A = unit_columns(rng, 8, 4)
    shuffled = (A * [-1, 1, -1, 1])[:, [2, 0, 3, 1]]
    match = match_components(shuffled, A)
    np.testing.assert_allclose(match.apply(shuffled), A)
    np.testing.assert_allclose(match.cosines, 1)


def test_fewer_reference_columns_each_get_one(rng):
    A = unit_columns(rng, 8, 4)
    assert match_components(A, A[:, [3, 1]]).indices.tolist() == [3, 1]


def test_errors(rng):
    A = unit_columns(rng, 8, 4)
    with pytest.raises(ValueError, match=r"A \(8, 2\) and A_ref \(8, 4\) do not match.*Swap them"):
        match_components(A[:, :2], A)
    with pytest.raises(ValueError, match="method='best'; choose 'optimal' or 'greedy'"):
        match_components(A, A, method="best")
    with pytest.raises(ValueError, match="A_ref contains NaN"):
        ascore(A, A * np.nan)
    with pytest.raises(ValueError, match=r"A must be a non-empty \(p, r\) matrix"):
        ascore(A[0], A)
