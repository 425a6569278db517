"""Which rank, and is it real."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from scipy.stats import pearsonr, spearmanr
from threadpoolctl import threadpool_info

import mcpca
from mcpca import (
    MCPCA,
    NothingAboveNoiseError,
    RankSelection,
    SmallContextsWarning,
    UncertainRankWarning,
    context_covariances,
    decompose,
    match_components,
    select_rank,
)
from mcpca._covariances.context_covariances import covariances_of
from mcpca._data.contexts import read_contexts
from mcpca._inference.sampling import split_rows
from mcpca._rank.criteria import FitAtRank, context_consistency
from mcpca._rank.noise_test import ResidualTest
from mcpca._rank.rank_curves import default_ranks, thinned
from mcpca._utils.progress import silent
from mcpca.datasets import make_contexts

RANK = 4
COLUMNS = [
    "spread",
    "noise spread",
    "noise sd",
    "excess",
    "split-half agreement",
    "replicating",
    "held-out error",
    "singular value",
    "null mean",
    "null upper",
    "seed stability",
    "projection similarity",
    "loading similarity",
    "context consistency",
    "context agreement",
    "held-out log-likelihood",
    "BIC",
]


@pytest.fixture(scope="module")
def planted():
    return make_contexts(8, 20, RANK, n_samples=150, noise=0.2, random_state=0)


@pytest.fixture(scope="module")
def selection(planted):
    return select_rank(planted.X, planted.y, random_state=0)


def noise(kind, shape, rng):
    X = rng.standard_t(4, size=shape) if kind == "heavy tails" else rng.standard_normal(shape)
    return X * 10 ** rng.uniform(-1, 1, shape[1]) if kind == "unequal features" else X


def test_the_planted_rank_is_recommended_with_its_reason(selection):
    assert selection.rank == selection.n_above_noise == RANK
    assert selection.reason.startswith("Rank 4: 4 directions are above noise (before the last of them ")
    assert "All of 4 MCPCs are recommended, mean |cos| between halves of the rows > 0.8 in 1 split" in selection.reason
    assert selection.reason.endswith("4 axes come back; all of them differ between contexts.")
    assert selection.replicability.n_replicating == RANK
    assert selection.ranks.tolist() == [1, 2, 3, 4, 5, 6]
    assert list(selection.columns) == COLUMNS


def test_every_criterion_votes(selection):
    votes = selection.votes
    assert votes["noise test"] == votes["scree"] == RANK
    assert votes["BIC"] == votes["held-out log-likelihood"] == votes["held-out error"] == RANK
    assert votes["seed stability"] >= RANK  # seeds agree on noise, too
    at = selection.ranks.tolist().index(RANK)
    assert selection.columns["split-half agreement"][at] > 0.95 > selection.columns["split-half agreement"][at + 1]
    assert selection.columns["replicating"][at] == RANK >= selection.columns["replicating"][at:].max()
    assert (selection.columns["excess"][:at] > 5).all()
    assert (selection.columns["excess"][at:] < 5).all()


def test_table_is_a_frame_of_all_columns(selection):
    pytest.importorskip("pandas")
    table = selection.table
    assert table.index.tolist() == selection.ranks.tolist()
    assert table.index.name == "rank"
    assert list(table.columns) == COLUMNS


def test_table_without_pandas_is_a_dict(selection, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert list(selection.table) == ["rank", *COLUMNS]


def test_json_comes_back_as_it_was(selection):
    text = selection.to_json()
    assert json.loads(text)["columns"]["context consistency"][0] is None  # a single component
    copy = RankSelection.from_json(text)
    assert copy.to_json() == text
    assert (copy.rank, copy.reason, copy.votes) == (selection.rank, selection.reason, selection.votes)
    for mine, other in ((copy.columns, selection.columns), (copy.pairwise, selection.pairwise)):
        for name, values in other.items():
            np.testing.assert_array_equal(mine[name], values)
    np.testing.assert_array_equal(copy.replicability.cosines, selection.replicability.cosines)


@pytest.mark.parametrize("kind", ["Gaussian", "heavy tails", "unequal features"])
@pytest.mark.parametrize(("k", "n", "p"), [(5, 60, 20), (12, 100, 30), (1, 300, 10)])
def test_nothing_is_found_in_noise(kind, k, n, p):
    rng = np.random.default_rng([k, n, p])
    selection = select_rank(noise(kind, (k * n, p), rng), np.repeat(np.arange(k), n), criteria=(), random_state=0)
    assert selection.rank == selection.n_above_noise == 0
    assert selection.reason.startswith("Nothing is above noise: the covariances spread no more than")
    assert selection.replicability is None
    assert len(selection.ranks) == 0


def test_the_curves_of_noise_can_be_looked_at(rng):
    selection = select_rank(rng.standard_normal((300, 8)), np.repeat([0, 1, 2], 100), random_state=0)
    assert selection.rank == 0
    assert selection.ranks.tolist() == [1, 2, 3, 4]
    assert selection.votes["split-half agreement"] == selection.votes["scree"] == 0
    assert selection.columns["replicating"].tolist() == [0, 0, 0, 0]
    assert RankSelection.from_json(selection.to_json()).rank == 0


def test_the_estimator_refuses_noise_and_says_how_to_force_a_rank(rng):
    model = MCPCA(random_state=0)
    X, y = rng.standard_normal((300, 8)), np.repeat([0, 1, 2], 100)
    with pytest.raises(
        NothingAboveNoiseError, match=r"Nothing is above noise.*pass it, for example n_components=2"
    ) as e:
        model.fit(X, y)
    assert e.value.selection.rank == 0
    assert not hasattr(model, "components_")
    assert model.set_params(n_components=2).fit(X, y).rank_choice_ is None


def test_the_estimator_takes_the_recommendation_and_keeps_its_reason(planted, tmp_path):
    model = MCPCA(random_state=0).fit(planted.X, planted.y)
    assert model.r_ == RANK
    assert isinstance(model.rank_choice_, RankSelection)
    np.testing.assert_allclose(
        model.components_, MCPCA(RANK, random_state=1).fit(planted.X, planted.y).components_, atol=1e-6
    )
    model.save(tmp_path / "model.npz")
    assert MCPCA.load(tmp_path / "model.npz").rank_choice_.to_json() == model.rank_choice_.to_json()
    moments = context_covariances(planted.X, planted.y)
    from_moments = MCPCA(random_state=0).fit_covariances(moments.covariances, n_samples=moments.n_samples)
    assert from_moments.r_ == RANK
    assert from_moments.rank_choice_.replicability is None


def test_the_papers_rule_is_taken_where_candidates_are_given(planted):
    assert MCPCA(rank_range=[2, 3], random_state=0).fit(planted.X, planted.y).rank_choice_.outcome == "stable"
    S = context_covariances(planted.X, planted.y).covariances
    assert MCPCA(rank_range=[2, 3], random_state=0).fit_covariances(S).rank_choice_.outcome == "stable"
    with pytest.raises(ValueError, match=r"n_components=None needs n_samples with covariances.*rank_range"):
        MCPCA(random_state=0).fit_covariances(S)


@pytest.mark.parametrize("p", [50, 200])
def test_noise_in_few_rows_is_refused(p):
    """Four contexts of 20 rows: with more features than rows signs alone would make noise look structured."""
    for seed in range(4):
        X = np.random.default_rng(seed).standard_normal((80, p))
        with pytest.raises(NothingAboveNoiseError, match="Nothing is above noise"):
            MCPCA(random_state=seed).fit(X, np.repeat(np.arange(4), 20))


def test_a_small_context_has_no_say_and_stays_in_the_fit(planted, rng):
    blocks = {"a": planted.X[:150], "b": planted.X[150:300], "c": planted.X[300:450], "tiny": planted.X[450:453]}
    words = r"1 of 4 contexts have fewer than 4 rows.*stay in the fit: 'tiny' \(3\)"
    with pytest.warns(SmallContextsWarning, match=words):
        model = MCPCA(random_state=0).fit(blocks)
    with pytest.warns(SmallContextsWarning, match=words):
        selection = select_rank(blocks, random_state=0)
    del blocks["tiny"]
    assert model.r_ == selection.rank == select_rank(blocks, criteria=(), random_state=0).rank == RANK
    assert "tiny" in model.contexts_
    assert "'tiny' (3)" in model.rank_choice_.reason
    noise = {"a": rng.standard_normal((200, 20)), "b": rng.standard_normal((200, 20)), "tiny": np.eye(3, 20)}
    with pytest.warns(SmallContextsWarning), pytest.raises(NothingAboveNoiseError, match=r"'tiny' \(3\)"):
        MCPCA(random_state=0).fit(noise)


@pytest.mark.parametrize("p", [3, 10, 16])
def test_rows_that_cannot_tell_noise_get_the_smallest_model(p):
    X, y = np.random.default_rng(p).standard_normal((24, p)), np.repeat([0, 1], 12)
    with pytest.warns(UncertainRankWarning, match=rf"Rank 1, the smallest.*24 rows of {p} features are too few"):
        model = MCPCA(random_state=0).fit(X, y)
    assert model.r_ == 1
    assert model.rank_choice_.outcome == "untold"
    with pytest.warns(UncertainRankWarning):
        selection = select_rank(X, y, random_state=0)
    assert (selection.rank, selection.reason) == (1, model.rank_choice_.reason)
    assert RankSelection.from_json(selection.to_json()).outcome == "untold"
    tiny = [X[:3], X[3:6]]
    with (
        pytest.warns(SmallContextsWarning, match="2 of 2 contexts"),
        pytest.warns(UncertainRankWarning, match="no context has enough rows"),
    ):
        assert MCPCA(random_state=0).fit(tiny).r_ == 1


def test_one_feature_has_one_rank(planted):
    selection = select_rank(planted.X[:, :1], planted.y)
    assert (selection.rank, selection.outcome) == (1, "one feature")
    assert MCPCA().fit(planted.X[:, :1], planted.y).rank_choice_.reason == selection.reason


def test_halves_that_agree_at_no_rank_are_told(rng):
    """Six equal eigenvalues in one context: above noise, and no two halves find the same axes."""
    Q = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    X = rng.standard_normal((300, 12)) * np.sqrt([4.0] * 6 + [0.2] * 6) @ Q
    with pytest.warns(UncertainRankWarning, match=r"Halves of the rows agree on the components at no rank"):
        model = MCPCA(random_state=1).fit(X)
    assert model.rank_choice_.outcome == "at odds"
    assert "at no rank that was looked at" in model.rank_choice_.reason


# Whose replicability


@pytest.fixture(scope="module")
def mixed():
    """Six axes in four contexts, from strong to weak: some come back and some do not."""
    rng = np.random.default_rng(5)
    A = np.linalg.qr(rng.standard_normal((16, 6)))[0]
    B = rng.uniform(0, 1, (4, 6)) * np.array([0.7, 4, 0.5, 3, 1, 2])
    X = (
        np.concatenate([rng.standard_normal((90, 6)) * np.sqrt(b) @ A.T for b in B])
        + rng.standard_normal((360, 16)) * 0.3
    )
    return X, np.repeat(np.arange(4), 90)


@pytest.mark.parametrize("r", [5, 6])
def test_replicability_is_told_of_the_columns_of_the_model(mixed, r):
    """Component by component, by the definition: pairs of the halves' components, matched with those of the model."""
    X, y = mixed
    selection = select_rank(X, y, ranks=[r], criteria=(), random_state=0)
    assert selection.rank == r
    model = MCPCA(r, random_state=0).fit(X, y)
    seed = int(np.random.default_rng(0).integers(2**62))
    for i, cosines in enumerate(selection.replicability.cosines[:20]):
        halves = split_rows(read_contexts(X, y), 0.5, np.random.default_rng((seed, 1, i)))
        one, two = (MCPCA(r, random_state=0).fit([h.block(j) for j in range(4)]).components_ for h in halves)
        pairs = match_components(two, one)
        midway = one + two[:, pairs.indices] * pairs.signs
        own = match_components(midway, model.components_).indices
        np.testing.assert_allclose(cosines, pairs.cosines[own], atol=5e-3)
    own = model.replicability(X, y, random_state=1)
    # Means over 2 to 80 splits and over 10 others.
    error = 0.05 + 3 * own.spread / np.sqrt(min(10, len(selection.replicability.cosines)))
    assert (np.abs(selection.replicability.agreement - own.agreement) < error).all()


def test_the_model_has_the_replicability_of_its_own_columns(mixed):
    X, y = mixed
    model = MCPCA(random_state=0).fit(X, y)
    own = model.replicability(X, y, random_state=1)
    assert np.ptp(own.agreement) > 0.05
    np.testing.assert_allclose(model.rank_choice_.replicability.agreement, own.agreement, atol=0.1)


@pytest.mark.parametrize("options", [{"solver": "lsq"}, {"solver": "ml"}, {"orthogonal": True}])
def test_halves_are_fitted_as_the_model_is(mixed, options):
    X, y = mixed
    model = MCPCA(random_state=0, **options).fit(X, y)
    choice = model.rank_choice_
    assert choice.rank == select_rank(X, y, criteria=(), random_state=0, **options).rank
    halves = split_rows(read_contexts(X, y), 0.5, np.random.default_rng((_seed(0), 1, 0)))
    one, two = (
        MCPCA(choice.rank, random_state=0, **options).fit([h.block(j) for j in range(4)]).components_ for h in halves
    )
    pairs = np.sort(match_components(two, one).cosines)
    np.testing.assert_allclose(np.sort(choice.replicability.cosines[0]), pairs, atol=5e-3)


def _seed(random_state):
    return int(np.random.default_rng(random_state).integers(2**62))


def test_weights_of_contexts_go_into_halves(mixed):
    X, y = mixed
    weights = {0: 1.0, 1: 2.0, 2: 3.0, 3: 20.0}
    plain, weighted = (
        select_rank(X, y, ranks=[3], criteria=(), context_weights=w, random_state=0) for w in (None, weights)
    )
    assert np.abs(plain.replicability.cosines[0] - weighted.replicability.cosines[0]).max() > 1e-3
    model = MCPCA(3, context_weights=weights, random_state=0).fit(X, y)
    np.testing.assert_allclose(
        weighted.replicability.agreement, model.replicability(X, y, random_state=1).agreement, atol=0.15
    )


def test_how_many_come_back_hardly_depends_on_the_seed():
    """Components near the threshold: up to eighty splits are made, and what is close is told."""
    pytest.importorskip("pandas")  # without it tables are dictionaries
    data = make_contexts(6, 24, 8, n_samples=80, noise=0.3, random_state=1)
    found = [
        select_rank(data.X, data.y, ranks=[8], criteria=(), cos_sim_threshold=0.75, random_state=s) for s in range(3)
    ]
    assert np.ptp([f.replicability.counts.mean() for f in found]) < 1.5
    for f in found:
        halves = f.replicability
        np.testing.assert_array_equal(f.recommended, halves.cosines.mean(axis=0) > 0.75)
        assert 0 < f.recommended.sum() < 8
        assert f"{f.recommended.sum()} of 8 MCPCs are recommended" in f.reason
        close = np.flatnonzero(f.components["close"])
        assert len(halves.cosines) == 80 or not len(close)
        for j in close:
            low, high = f.components["low"].iloc[j], f.components["high"].iloc[j]
            assert f"MCPC {j + 1} ({low:.2f} to {high:.2f})" in f.reason
        np.testing.assert_allclose(halves.spread, halves.cosines.std(axis=0, ddof=1))


def test_all_features_are_looked_at_by_passes(monkeypatch):
    data = make_contexts(6, 60, RANK, n_samples=150, noise=0.3, random_state=1)
    monkeypatch.setattr(mcpca._covariances.fit_data, "MOST_NUMBERS", 0)
    monkeypatch.setattr(mcpca._rank.rank_data, "RANK_FEATURES", 20)
    model = MCPCA(random_state=0).fit(data.X, data.y)
    selection = select_rank(data.X, data.y, random_state=0)
    for found in (model.rank_choice_, selection, RankSelection.from_json(selection.to_json())):
        assert found.replicability.n_replicating == RANK
    assert model.r_ == selection.rank == RANK
    # A scree would be one of directions of a half.
    assert "singular value" not in selection.columns
    assert np.isfinite(selection.columns["held-out log-likelihood"]).all()


def test_jobs_change_nothing(planted):
    texts = [select_rank(planted.X, planted.y, n_jobs=jobs, random_state=5).to_json() for jobs in (1, 2, -1)]
    assert texts[0] == texts[1] == texts[2]


def test_the_answer_at_a_rank_does_not_depend_on_the_others(planted, selection):
    alone = select_rank(planted.X, planted.y, ranks=[RANK], random_state=0)
    at = selection.ranks.tolist().index(RANK)
    for name in ("split-half agreement", "held-out error", "BIC", "held-out log-likelihood", "seed stability"):
        np.testing.assert_allclose(alone.columns[name][0], selection.columns[name][at], rtol=1e-5, err_msg=name)


def test_forms_of_input_agree(planted, selection):
    blocks = [planted.X[planted.y == i] for i in range(8)]
    for X, y in ((blocks, None), (dict(enumerate(blocks)), None), (planted.X, planted.y.astype(str))):
        assert select_rank(X, y, random_state=0, criteria=("seeds",)).rank == RANK
    quick = select_rank(blocks, criteria=(), random_state=0)
    assert quick.ranks.tolist() == [RANK]
    at = selection.ranks.tolist().index(RANK)
    np.testing.assert_allclose(
        quick.columns["split-half agreement"][0], selection.columns["split-half agreement"][at], rtol=1e-5
    )


def test_covariances_with_numbers_of_rows(planted):
    moments = context_covariances(planted.X, planted.y)
    found = select_rank(moments.covariances, n_samples=150, random_state=0)
    assert found.rank == RANK
    assert "Without rows it is not known whether components come back" in found.reason
    assert not {"split-half agreement", "projection similarity", "held-out log-likelihood"} & set(found.columns)
    assert found.votes["BIC"] == RANK
    assert list(found.pairwise) == ["context consistency"]


def test_bic_is_its_formula(planted, selection):
    moments = context_covariances(planted.X, planted.y)
    k, p, _ = moments.covariances.shape
    for r in (2, RANK):
        fit = decompose(moments.covariances, r, solver="ml", n_samples=moments.n_samples, random_state=0)
        deviance = 0.0
        for S, b, s in zip(moments.covariances, fit.loadings, fit.noise, strict=True):
            Sigma = fit.components @ np.diag(b) @ fit.components.T + s * np.eye(p)
            terms = p * np.log(2 * np.pi) + np.linalg.slogdet(Sigma)[1] + np.trace(np.linalg.solve(Sigma, S))
            deviance += 150 * terms
        expected = deviance + (r * (p + k - 1) + k) * np.log(8 * 150)
        at = selection.ranks.tolist().index(r)
        # The likelihood stops a tenth of a standard error from its maximum; ranks differ by hundreds.
        np.testing.assert_allclose(selection.columns["BIC"][at], expected, atol=0.5)


def test_held_out_numbers_are_their_definitions(planted):
    found = select_rank(planted.X, planted.y, ranks=[RANK], n_splits=1, random_state=0)
    seed = int(np.random.default_rng(0).integers(2**62))
    halves = split_rows(read_contexts(planted.X, planted.y), 0.5, np.random.default_rng((seed, 1, 0)))
    moments = [covariances_of(half, lambda *_: None) for half in halves]
    errors, densities = [], []
    for own, other in (moments, moments[::-1]):
        fit = decompose(own.covariances, RANK, random_state=0)
        model = np.einsum("pj,kj,qj->kpq", fit.components, fit.loadings, fit.components)
        errors.append(np.sum((other.covariances - model) ** 2) / np.sum(other.covariances**2))
        fit = decompose(own.covariances, RANK, solver="ml", n_samples=own.n_samples, random_state=0)
        for S, b, s in zip(other.covariances, fit.loadings, fit.noise, strict=True):
            Sigma = fit.components @ np.diag(b) @ fit.components.T + s * np.eye(20)
            terms = 20 * np.log(2 * np.pi) + np.linalg.slogdet(Sigma)[1] + np.trace(np.linalg.solve(Sigma, S))
            densities.append(-terms / 2)
    np.testing.assert_allclose(found.columns["held-out error"][0], np.mean(errors), rtol=1e-4)
    np.testing.assert_allclose(found.columns["held-out log-likelihood"][0], np.mean(densities), rtol=1e-3)


def test_context_consistency_is_spearmans(rng):
    loadings = [rng.random((7, r)) for r in (1, 3, 4, 6)]
    found = context_consistency([FitAtRank(np.zeros((9, B.shape[1])), B) for B in loadings])
    assert np.isnan(found[0]).all()
    pairs = np.triu_indices(7, 1)
    vectors = [np.corrcoef(B)[pairs] for B in loadings[1:]]
    expected = [[spearmanr(v, w).statistic for v in vectors] for w in vectors]
    np.testing.assert_allclose(found[1:, 1:], expected, atol=1e-12)
    assert np.isnan(context_consistency([FitAtRank(np.zeros((9, 3)), rng.random((2, 3)))])).all()


def test_context_consistency_of_the_authors_is_pearsons_of_standardised_loadings(rng):
    loadings = [rng.gamma(1, size=(7, r)) * rng.gamma(1, size=r) for r in (3, 5)]
    fits = [FitAtRank(np.zeros((9, B.shape[1])), B) for B in loadings]
    found = context_consistency(fits, as_authors=True)
    # Their znorm over contexts, then SciPy's distances.
    pairs = [pdist((B - B.mean(axis=0)) / B.std(axis=0), "correlation") for B in loadings]
    np.testing.assert_allclose(found[0, 1], pearsonr(*pairs).statistic)
    assert abs(found[0, 1] - context_consistency(fits)[0, 1]) > 0.01


def test_pairwise_measures_have_the_curves_as_diagonals(selection):
    assert list(selection.pairwise) == ["projection similarity", "loading similarity", "context consistency"]
    m = len(selection.ranks)
    for name in ("projection similarity", "loading similarity"):
        assert selection.pairwise[name].shape == (m, m)
        np.testing.assert_array_equal(np.diagonal(selection.pairwise[name]), selection.columns[name])
        assert selection.columns[name][selection.ranks.tolist().index(RANK)] == 1
    consistency = selection.pairwise["context consistency"]
    np.testing.assert_allclose(consistency[1:, 1:], consistency[1:, 1:].T)
    np.testing.assert_allclose(np.diagonal(consistency)[1:], 1)


def test_halves_limit_the_rank_where_all_directions_are_above_noise():
    """Contexts that share one covariance: its axes have many names, and only the first comes back."""
    rng = np.random.default_rng(3)
    spectrum = np.concatenate([[30.0], np.full(5, 4.0), np.ones(6)])
    X = rng.standard_normal((900, 12)) * np.sqrt(spectrum) @ np.linalg.qr(rng.standard_normal((12, 12)))[0]
    found = select_rank(X, np.repeat([0, 1, 2], 300), criteria=(), random_state=0)
    assert found.n_above_noise == 6
    assert found.rank == 1
    assert "It is the largest rank looked at where halves of the rows agree" in found.reason


def test_ranks_in_any_order_and_beyond_what_is_above_noise(planted):
    found = select_rank(planted.X, planted.y, ranks=[3, 2, 3], criteria=("seeds",), random_state=0)
    assert found.ranks.tolist() == [2, 3]
    assert found.rank in (2, 3)
    beyond = select_rank(planted.X, planted.y, ranks=[6, 8], criteria=("seeds",), random_state=0)
    assert beyond.rank == RANK
    assert beyond.ranks.tolist() == [4, 6, 8]
    assert beyond.reason.endswith("All of the given ranks, 6 and more, exceed what is above noise.")


def test_one_and_two_contexts(rng):
    spectrum = np.concatenate([[9.0, 6.0, 4.0], np.full(9, 0.3)])
    X = rng.standard_normal((800, 12)) * np.sqrt(spectrum) @ np.linalg.qr(rng.standard_normal((12, 12)))[0]
    alone = select_rank(X, random_state=0)
    assert alone.rank == 3
    assert (alone.columns["seed stability"] == 1).all()
    two = make_contexts(2, 12, 3, n_samples=400, noise=0.2, random_state=2)
    found = select_rank(two.X, two.y, random_state=0)
    assert found.rank == 3
    assert np.isnan(found.columns["loading similarity"]).all()
    assert np.isnan(found.columns["context consistency"]).all()


def test_default_ranks_are_dense_below_and_around():
    grid = default_ranks(60, 400, np.full(10, 500))
    assert grid[:8].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert set(range(59, 63)) <= set(grid.tolist())
    assert grid[-1] == 62
    assert len(grid) < 30
    assert default_ranks(300, 400, np.full(10, 500))[-1] == 100
    assert default_ranks(0, 400, np.full(10, 500)).tolist() == [1, 2, 3, 4]
    assert default_ranks(9, 400, np.array([4, 8])).tolist() == [1, 2, 3, 4]  # halves have 1 + 3 dimensions
    thin = thinned(grid, 60)
    assert set(range(59, 63)) <= set(thin)
    assert len(thin) <= 16


def test_progress_names_stages_and_ends(planted):
    calls = []
    select_rank(planted.X, planted.y, random_state=0, verbose=lambda *c: calls.append(c))
    stages = list(dict.fromkeys(stage for stage, _, _ in calls))
    assert stages[:4] == ["covariances", "noise test", "halves", "ranks"]
    assert {"seeds", "hold-out", "noise at other ranks", "likelihood"} <= set(stages)
    for stage in stages:
        done, total = [(d, t) for s, d, t in calls if s == stage][-1]
        assert done == total


def test_interruption_leaves_nothing_behind(planted):
    threads = [library["num_threads"] for library in threadpool_info()]
    model = MCPCA(random_state=0)

    def interrupt(stage, done, total):
        if stage.startswith("halves") and done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.set_params(verbose=interrupt).fit(planted.X, planted.y)
    assert not hasattr(model, "components_")
    assert [library["num_threads"] for library in threadpool_info()] == threads
    assert model.set_params(verbose=False).fit(planted.X, planted.y).r_ == RANK


def test_control_c_stops_a_running_sweep():
    program = (
        "import sys\n"
        "from mcpca import select_rank\n"
        "from mcpca.datasets import make_contexts\n"
        "d = make_contexts(30, 100, 60, n_samples=200, noise=0.3, random_state=0)\n"
        "print('ready', flush=True)\n"
        "select_rank(d.X, d.y, ranks=range(1, 70), random_state=0)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.7)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=20)
    assert error.rstrip().endswith("KeyboardInterrupt")
    assert process.returncode != 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": []}, "ranks is empty; pass at least one candidate rank"),
        ({"ranks": 3}, r"ranks=3 is not a list of ranks"),
        ({"ranks": [0, 2]}, r"ranks entry=0 is out of bounds: 1 <= ranks entry <= 20"),
        ({"ranks": [21]}, r"ranks entry=21 is out of bounds"),
        ({"ranks": [2.5]}, r"ranks entry=2.5 is not an integer"),
        ({"criteria": "votes"}, r"criteria='votes': 'votes' is unknown; choose 'all' or some of \['scree'"),
        ({"criteria": ["seeds", "aic"]}, r"'aic' is unknown"),
        ({"null": "rows"}, r"null='rows' is unknown; choose one of \['auto', 'features', 'isotropic'\]"),
        ({"n_splits": 0}, r"n_splits=0 is out of bounds: n_splits >= 1"),
        ({"n_seed_pairs": 0}, r"n_seed_pairs=0 is out of bounds"),
        ({"cos_sim_threshold": 1.5}, r"cos_sim_threshold=1.5 is out of bounds"),
        ({"n_jobs": 0}, r"n_jobs=0 is out of bounds: n_jobs >= 1 is needed. None or -1"),
        ({"n_samples": 100}, r"n_samples goes with a \(k, p, p\) stack"),
    ],
)
def test_bad_options_are_named(planted, options, message):
    with pytest.raises(ValueError, match=message):
        select_rank(planted.X, planted.y, **options)


def test_bad_data_are_named(planted, rng):
    with pytest.raises(ValueError, match="The covariances are all zero"):
        select_rank(np.ones((50, 3)))
    with pytest.raises(ValueError, match="n_samples is needed with covariances"):
        select_rank(np.eye(3)[None])
    with pytest.raises(ValueError, match="takes no y"):
        select_rank(np.eye(3)[None], [0])
    flat = planted.X @ np.diag([1.0] * 6 + [0.0] * 14)
    with pytest.raises(ValueError, match="ranks reaches 7, above the numerical rank of the data, 6"):
        select_rank(flat, planted.y, ranks=[7])


def test_global_generator_is_untouched(planted):
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    select_rank(planted.X, planted.y, criteria=())
    np.testing.assert_array_equal(state, np.random.get_state()[1])  # noqa: NPY002


def test_excess_of_lengths_is_that_of_a_t_distribution(rng):
    n, p, nu = 20_000, 10, 9
    X = rng.standard_normal((n, p)) * np.sqrt(nu / rng.chisquare(nu, (n, 1)))
    y = np.repeat([0, 1], n // 2)
    contexts = read_contexts(X, y)
    test = ResidualTest(covariances_of(contexts, silent), contexts, "isotropic", 0, 1)
    test.directions_above_noise()
    # E[(chi2_p / p)^2] = 1 + 2 / p, and E[(nu / chi2_nu)^2] over the squared mean = (nu - 2) / (nu - 4).
    expected = (1 + 2 / p) * (nu - 2) / (nu - 4) - 1 - 2 / p
    assert test.excess_of_lengths(0) == pytest.approx(expected, rel=0.15)
    assert ResidualTest(covariances_of(contexts, silent), None, "features", 0, 1).excess_of_lengths(0) == 0
