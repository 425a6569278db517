"""The paper's stability rule."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from mcpca import MCPCA, NoStableRankError, choose_rank, decompose
from mcpca._covariances.stack import CovarianceStack
from mcpca._covariances.subspace import compress, width
from mcpca._model.decomposition import decompose_checked
from mcpca._rank.paper_rule import _largest_stable, authors_score, seed_scores
from mcpca._solvers.plain import plain_runs
from twins import authors_score as slow_authors_score
from twins import power_run, random_problem, sampled_problem


def test_planted_rank_is_the_largest_stable_candidate(rng):
    _, _, S = random_problem(rng, 8, 12, 4)
    choice = choose_rank(S, range(1, 5), random_state=0)
    assert choice.rank == 4
    assert choice.outcome == "stable"
    assert "Rank 4 is the largest of 4 candidates" in choice.reason
    assert choice.ranks.tolist() == [1, 2, 3, 4]
    assert choice.scores.shape == (4, 5)
    np.testing.assert_allclose(choice.mean_scores, choice.scores.mean(axis=1))
    np.testing.assert_allclose(choice.scores[-1], 1)
    assert choice.unsettled.tolist() == [0] * 4
    assert choice.matching == "greedy"
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


def test_a_score_depends_neither_on_the_unit_nor_on_the_signs_of_singular_vectors(rng):
    """Runs start in coordinates of these; with other signs they would be other runs."""
    _, _, S = sampled_problem(rng, 3, 60, 6, 60, 0.5)
    core = compress(CovarianceStack(S), 6)
    signs = np.where(rng.random(core.basis.shape[1]) < 0.5, -1.0, 1.0)
    tensor = signs[:, None] * core.tensor * signs
    turned = replace(core, make=lambda: tensor, basis=core.basis * signs)
    for matching in ("greedy", "authors"):
        scores = seed_scores(core, 6, 2, 0, matching=matching).scores
        assert (scores < 1 - 1e-6).any()
        np.testing.assert_allclose(seed_scores(turned, 6, 2, 0, matching=matching).scores, scores, atol=1e-8)
    units = [choose_rank(unit * S, [5, 6], n_seed_pairs=2, random_state=0).scores for unit in (1, 3, 1e-3)]
    np.testing.assert_allclose(units[1:], [units[0]] * 2, atol=1e-7)


def test_starts_that_end_at_one_maximum_leave_the_sign_of_the_first():
    """With few contexts F stays below 0.99, three starts are taken, and rounding must not choose among equal ends."""
    _, _, S = sampled_problem(np.random.default_rng(0), 3, 12, 4, 30, 0.6)
    T = compress(CovarianceStack(S), 4).tensor
    runs = [
        plain_runs(unit * T, 4, [np.random.default_rng(i) for i in range(4)], 1e-9, 20_000).components
        for unit in (1.0, 3.0, 0.7)
    ]
    for other in runs[1:]:
        np.testing.assert_allclose((runs[0] * other).sum(axis=1), 1, atol=1e-6)


def test_reproducible_and_global_generator_untouched(rng):
    _, _, S = sampled_problem(rng, 3, 15, 6, 60, 0.5)
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    first, second = (choose_rank(S, [3, 6], random_state=7).scores for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(state, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("largest", [13, 70])
def test_shared_basis_gives_each_rank_its_own_answer(rng, largest):
    """The sweep's basis is cut for the largest rank; the fit at a smaller one must be what it is alone.

    At 70 the core of the largest rank is the covariances themselves.
    """
    _, _, S = sampled_problem(rng, 12, 80, 4, 300, 0.1)
    shared = compress(CovarianceStack(S), largest)
    assert (shared.basis is None) == (largest == 70)
    np.testing.assert_allclose(shared.leading(4).tensor, compress(CovarianceStack(S), 4).tensor, atol=1e-12)
    assert shared.leading(4).tensor.shape[1] == width(4, 12) < shared.tensor.shape[1]
    options = {"solver": "mspm", "orthogonal": False, "noise": None, "counts": None, "weights": None}
    options |= {"report": lambda *_: None, "tol": 1e-7, "max_iter": 200}
    swept, _ = decompose_checked(CovarianceStack(S), 4, core=shared, rng=np.random.default_rng(0), **options)
    np.testing.assert_allclose(swept.components, decompose(S, 4, random_state=1).components, atol=1e-8)


def test_one_context_is_always_stable(rng):
    S = np.cov(rng.standard_normal((40, 6)), rowvar=False)[None]
    assert choose_rank(S, [1, 5]).rank == 5


def test_progress(rng):
    _, _, S = random_problem(rng, 4, 8, 2)
    calls = []
    choose_rank(S, [1, 2], verbose=lambda *c: calls.append(c))
    assert calls == [("ranks", 0, 2), ("ranks", 1, 2), ("ranks", 2, 2)]


def test_few_contexts_are_run_to_convergence(rng):
    """Two contexts: a power step is below 1e-4 long before the end, where all seeds agree."""
    _, _, S = sampled_problem(np.random.default_rng(2), 2, 12, 4, 300, 0.3)
    choice = choose_rank(S, [4], random_state=0)
    assert (choice.scores > 0.999).all()
    assert choice.unsettled.tolist() == [0]
    early = choose_rank(S, [4], tol=1e-4, random_state=0)
    assert (early.scores < 0.97).any()


@pytest.mark.parametrize(("k", "p", "r", "seed"), [(3, 15, 5, 0), (2, 12, 4, 2)])
def test_runs_end_where_power_steps_alone_would(k, p, r, seed):
    _, _, S = sampled_problem(np.random.default_rng(seed), k, p, r, 200, 0.3)
    T = compress(CovarianceStack(S), r).tensor
    runs = plain_runs(T, r, [np.random.default_rng(i) for i in range(2)], 1e-9, 20_000)
    assert runs.settled.all()
    for i, found in enumerate(runs.components):
        slow = power_run(T, r, np.random.default_rng(i))
        np.testing.assert_allclose(np.abs((found * slow).sum(axis=0)), 1, atol=1e-6)


def test_ranks_at_which_runs_did_not_converge_are_told(rng):
    _, _, S = sampled_problem(rng, 3, 20, 6, 60, 0.5)
    words = r"not converged to tol=1e-09 after max_iter=8 steps at ranks 5 \(\d+ of 6\), 6 \(\d+ of 6\), where"
    with pytest.warns(ConvergenceWarning, match=words):
        choice = choose_rank(S, [1, 5, 6], n_seed_pairs=3, max_iter=8, random_state=0)
    assert choice.unsettled[0] == 0
    assert (choice.unsettled[1:] > 0).all()
    assert "at ranks 5 (" in choice.reason
    with pytest.warns(ConvergenceWarning, match="at rank 6 "):
        choose_rank(S, [6], max_iter=8, random_state=0)


def test_matching_of_the_authors(rng):
    """As their rule is stated, on features; lower where close components of one sign meet wrong ones of the other."""
    _, _, S = sampled_problem(rng, 3, 30, 8, 100, 0.5)
    core = compress(CovarianceStack(S), 8)
    core = replace(core, basis=None)  # coordinates are features
    streams = [np.random.default_rng((5, 8, j)) for j in range(6)]
    runs = plain_runs(core.tensor, 8, streams, 1e-9, 20_000).components
    expected = [slow_authors_score(runs[j], runs[j + 1]) for j in (0, 2, 4)]
    found = seed_scores(core, 8, 3, 5, matching="authors").scores
    np.testing.assert_allclose(found, expected, atol=1e-7)
    greedy = seed_scores(core, 8, 3, 5).scores
    assert (found <= greedy + 1e-12).all()
    assert found.mean() < greedy.mean() - 0.05
    choice = choose_rank(S, [8], n_seed_pairs=1, matching="authors", random_state=0)
    assert choice.matching == "authors"
    with pytest.raises(ValueError, match="matching='hungarian'; choose 'greedy' or 'authors'"):
        choose_rank(S, [8], matching="hungarian")


def test_a_pair_that_is_close_but_not_equal_loses_to_one_of_opposite_sign():
    """Columns 0.1 apart in L2 are 0.8 apart in L1; an opposite one at cosine -0.7 is 0.6 away."""
    p = 100
    a = np.full(p, 0.1)
    near = a + 0.01 * np.resize([1.0, -1.0], p)
    near /= np.linalg.norm(near)
    other = np.resize([1.0, 1, -1, -1], p) / 10
    wrong = -(0.75 * a + np.sqrt(1 - 0.75**2) * other)
    A, ref = np.stack([wrong, near], axis=1), np.stack([a, other], axis=1)
    assert authors_score(A, ref) == pytest.approx(slow_authors_score(A, ref))
    assert authors_score(A, ref) == pytest.approx(0.75 / 2, abs=0.01)


def test_default_candidates_go_beyond_a_first_direction_that_dominates(rng):
    """As on most real data; the largest drop is then the first, and was the whole list. (One context: no runs.)"""
    S = np.cov(rng.standard_normal((200, 40)) * np.r_[9, np.linspace(2, 1, 39)], rowvar=False)[None]
    ranks = choose_rank(S).ranks
    assert len(ranks) == 20
    assert ranks[[0, -1]].tolist() == [1, 30]
    assert choose_rank(np.diag(np.r_[90.0, 8, 7, 6, 2, 1.9, 1.8])[None]).ranks.tolist() == [1, 2, 3, 4]
    for p in (2, 3, 4):
        assert len(choose_rank(S[:, :p, :p]).ranks) > 1


def test_candidates_of_data_of_rank_one_are_one():
    a = np.arange(1.0, 5)
    assert choose_rank(np.stack([np.outer(a, a), 2 * np.outer(a, a)]), random_state=0).ranks.tolist() == [1]


def test_a_mean_is_not_rounded_across_the_threshold_beside_it():
    found = _largest_stable(np.array([1, 2]), np.array([[1.0], [0.80004]]), 0.8, np.ones(2))
    assert "mean |cos| 0.80004 > 0.8" in found.reason
    found = _largest_stable(np.array([2]), np.array([[0.79996]]), 0.8, np.ones(2))
    assert "0.79996 <= 0.8 between seeds" in found.reason
