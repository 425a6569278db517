"""The paper's stability rule."""

import numpy as np
import pytest

from mcpca import MCPCA, NoStableRankError, choose_rank, decompose
from mcpca.decomposition import decompose_checked
from mcpca.stack import Stack
from mcpca.subspace import compress, width
from twins import random_problem, sampled_problem


def test_planted_rank_is_the_largest_stable_candidate(rng):
    _, _, S = random_problem(rng, 8, 12, 4)
    choice = choose_rank(S, range(1, 5), random_state=0)
    assert choice.rank == 4
    assert choice.outcome == "stable"
    assert "Rank 4 is the largest of 4 candidates" in choice.reason
    assert choice.ranks.tolist() == [1, 2, 3, 4]
    assert choice.scores.shape == (4, 5)
    np.testing.assert_allclose(choice.mean_scores, choice.scores.mean(axis=1))
    assert (choice.scores[-1] > 0.99).all()  # power steps alone, four digits by default
    exact = choose_rank(S, [4], tol=1e-12, max_iter=5000, random_state=0)
    np.testing.assert_allclose(exact.scores[-1], 1)
    np.testing.assert_allclose(choice.singular_values[:4], np.linalg.svd(np.concatenate(list(S), axis=1))[1][:4])


def test_no_stable_rank_is_a_named_outcome(rng):
    _, _, S = sampled_problem(rng, 3, 20, 8, 40, 1.0)
    choice = choose_rank(S, [6, 8], cos_sim_threshold=1.0, random_state=0)
    assert choice.rank is None
    assert choice.outcome == "none stable"
    assert "No candidate rank passed: the best" in choice.reason
    assert choice.scores.shape == (2, 5)


def test_the_estimator_raises_with_the_curve_attached(rng):
    blocks = [rng.standard_normal((30, 10)) for _ in range(3)]
    model = MCPCA(rank_range=[8, 9], cos_sim_threshold=1.0, random_state=0)
    with pytest.raises(NoStableRankError, match="force one with n_components") as error:
        model.fit(blocks)
    assert error.value.choice.ranks.tolist() == [8, 9]
    assert not hasattr(model, "components_")


def test_candidates_default_to_the_scree(rng):
    _, _, S = sampled_problem(rng, 10, 20, 5, 400, 0.02)
    choice = choose_rank(S, random_state=0)
    assert choice.ranks.tolist() == [1, 2, 3, 4, 5]
    assert choice.rank == 5


def test_a_score_does_not_depend_on_the_other_candidates(rng):
    _, _, S = sampled_problem(rng, 3, 20, 6, 60, 0.5)
    alone = choose_rank(S, [6], random_state=3)
    among = choose_rank(S, [2, 6, 4, 6], random_state=3)
    np.testing.assert_allclose(among.scores[-1], alone.scores[0], atol=1e-6)
    assert among.ranks.tolist() == [2, 4, 6]


def test_reproducible_and_global_generator_untouched(rng):
    _, _, S = sampled_problem(rng, 3, 15, 6, 60, 0.5)
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    first, second = (choose_rank(S, [3, 6], random_state=7).scores for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(state, np.random.get_state()[1])  # noqa: NPY002


def test_shared_basis_gives_each_rank_its_own_answer(rng):
    """The sweep's basis is cut for the largest rank; the fit at a smaller one must be what it is alone."""
    _, _, S = sampled_problem(rng, 12, 80, 4, 300, 0.1)
    shared = compress(Stack(S), 13)
    assert shared.leading(4).tensor.shape[1] == width(4, 12) < shared.tensor.shape[1]
    options = {"solver": "mspm", "orthogonal": False, "noise": None, "counts": None, "weights": None}
    options |= {"report": lambda *_: None, "tol": 1e-7, "max_iter": 200}
    swept, _ = decompose_checked(Stack(S), 4, core=shared, rng=np.random.default_rng(0), **options)
    np.testing.assert_allclose(swept.components, decompose(S, 4, random_state=1).components, atol=1e-8)


def test_one_context_is_always_stable(rng):
    S = np.cov(rng.standard_normal((40, 6)), rowvar=False)[None]
    assert choose_rank(S, [1, 5]).rank == 5


def test_progress(rng):
    _, _, S = random_problem(rng, 4, 8, 2)
    calls = []
    choose_rank(S, [1, 2], verbose=lambda *c: calls.append(c))
    assert calls == [("ranks", 0, 2), ("ranks", 1, 2), ("ranks", 2, 2)]
