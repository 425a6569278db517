"""Effective numbers of contexts count equal loadings, ignore a weak background, and name the kinds of MCPCs."""

import numpy as np
import pytest
from planted_maps import KINDS, B

from mcpca.sharing import carrying_contexts, how_shared


@pytest.mark.parametrize("m", [1, 2, 5, 12])
def test_m_equal_loadings_count_as_m_contexts_whatever_their_size(m):
    b = np.zeros((12, 3))
    b[:m] = [1e-120, 1, 1e120]
    np.testing.assert_allclose(how_shared(b).effective, m)


def test_effective_number_is_the_formula_and_does_not_depend_on_scale_or_order(rng):
    b = rng.exponential(size=(20, 6))
    found = how_shared(b).effective
    np.testing.assert_allclose(found, (b**2).sum(axis=0) ** 2 / (b**4).sum(axis=0))
    np.testing.assert_allclose(how_shared(7 * rng.permutation(b)).effective, found)
    assert (found >= 1).all()
    assert (found <= 20).all()


def test_weak_loadings_in_all_other_contexts_leave_an_mcpc_specific():
    b = np.full((30, 1), 0.05)
    b[3] = 1
    assert how_shared(b).labels.tolist() == ["specific"]
    assert b.sum() ** 2 / (b**2).sum() > 5  # without the squares it would be shared by more than five


def test_planted_kinds():
    assert how_shared(B).labels.tolist() == KINDS


@pytest.mark.parametrize(
    ("k", "carried", "kind"),
    [
        (1, 1, "specific"),
        (2, 2, "broad"),
        (3, 2, "shared"),
        (3, 3, "broad"),
        (12, 3, "shared"),
        (12, 4, "broad"),
        (30, 9, "shared"),
        (30, 10, "broad"),
        (30, 0, "none"),
    ],
)
def test_broad_is_a_third_of_the_contexts_and_at_least_three(k, carried, kind):
    b = np.zeros((k, 1))
    b[:carried] = 2
    assert how_shared(b).labels.tolist() == [kind]


def test_share_that_is_broad_can_be_chosen():
    b = np.zeros((20, 1))
    b[:8] = 1
    assert [how_shared(b, broad=share).labels[0] for share in (0.4, 0.41, 1)] == ["broad", "shared", "shared"]


def test_contexts_of_a_group_count_once_with_their_largest_loading():
    b = np.array([[4.0, 1], [3, 1], [2, 1], [0, 1]])
    found = how_shared(b, groups=["kidney", "kidney", "kidney", "lung"])
    assert found.labels.tolist() == ["specific", "broad"]
    np.testing.assert_allclose(found.effective, [1, 2])
    assert how_shared(b).labels.tolist() == ["shared", "broad"]


def test_carrying_contexts_have_half_of_the_largest_loading():
    assert carrying_contexts(np.array([2.0, 0, 4, 1.9])).tolist() == [2, 0]
    assert carrying_contexts(np.zeros(3)).tolist() == []


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"B": [1, 2]}, r"B must be a \(k, r\) matrix of loadings, got shape \(2,\)"),
        ({"B": [[1], [-1]]}, "B has negative, NaN or infinite entries"),
        ({"B": [[1], [np.nan]]}, "B has negative, NaN or infinite entries"),
        ({"B": np.eye(2), "broad": 2}, "broad=2 is out of bounds: 0 <= broad <= 1"),
        ({"B": np.eye(2), "groups": ["a"]}, "groups has 1 labels, but B has 2 contexts"),
    ],
)
def test_errors(arguments, match):
    with pytest.raises(ValueError, match=match):
        how_shared(**arguments)
