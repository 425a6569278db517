"""Some MCPCs of a fit: axes stay, loadings are those that they have without the others."""

import numpy as np
import pytest

from mcpca import MCPCA, NoStableRankError, RankSelection, match_components, nonnegative_loadings, select_rank
from mcpca.datasets import make_contexts


@pytest.fixture(scope="module")
def data():
    return make_contexts(6, 14, 4, n_samples=150, noise=0.3, random_state=2)


@pytest.fixture(scope="module")
def half_real():
    """Three axes of six contexts, and a cloud of fourfold variance in six directions that has no axes of its own."""
    rng = np.random.default_rng(5)
    B = rng.gamma(1.0, 6.0, (6, 3)) + 1
    A = np.linalg.qr(rng.standard_normal((15, 9)))[0]
    rows = [
        (rng.standard_normal((120, 3)) * np.sqrt(b)) @ A[:, :3].T
        + 1.5 * rng.standard_normal((120, 6)) @ A[:, 3:].T
        + 0.5 * rng.standard_normal((120, 15))
        for b in B
    ]
    return np.concatenate(rows), np.repeat(np.arange(6), 120), A[:, :3]


@pytest.mark.parametrize(
    "options",
    [{}, {"solver": "lsq", "noise": "isotropic"}, {"noise": "diagonal"}, {"solver": "ml"}, {"orthogonal": True}],
)
def test_all_of_them_kept_are_the_model_itself(data, options):
    model = MCPCA(4, random_state=0, **options).fit(data.X, data.y)
    kept = model.keep(range(4), data.X, data.y)
    np.testing.assert_allclose(kept.components_, model.components_, atol=1e-12)
    np.testing.assert_allclose(kept.loadings_, model.loadings_, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(kept.corrected_loadings_, model.corrected_loadings_, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(kept.noise_variance_, model.noise_variance_, rtol=1e-3)
    np.testing.assert_allclose(kept.means_, model.means_)
    assert kept.kept_of_ == 4
    assert model.kept_of_ is None


@pytest.mark.parametrize("noise", ["pooled", "diagonal", "scaled"])
def test_shared_noise_of_a_likelihood_takes_up_what_is_left_out(data, noise):
    model = MCPCA(4, solver="ml", noise=noise, random_state=0).fit(data.X, data.y)
    all_kept = model.keep(range(4), data.X, data.y)
    np.testing.assert_allclose(all_kept.loadings_, model.loadings_, rtol=0.1, atol=0.05)
    some = model.keep([0, 1], data.X, data.y)
    assert some.noise_variance_.shape == model.noise_variance_.shape
    assert some.noise_variance_.mean() > 1.5 * model.noise_variance_.mean()
    assert some.score(data.X, data.y) < model.score(data.X, data.y)


def test_loadings_are_least_squares_without_the_others(data):
    model = MCPCA(4, random_state=0).fit(data.X, data.y)
    kept = model.keep([3, 1], data.X, data.y)
    A = model.components_[:, [1, 3]]
    S = np.stack([np.cov(data.X[data.y == c], rowvar=False) for c in model.contexts_])
    B = nonnegative_loadings(S, A)
    order = match_components(A, kept.components_)
    np.testing.assert_allclose(order.cosines, 1)
    np.testing.assert_allclose(kept.loadings_, B[:, order.indices], rtol=1e-9)
    assert (np.diff(kept.loadings_.sum(axis=0)) < 0).all()
    # A model like any other.
    assert kept.transform(data.X, data.y).shape == (len(data.X), 2)
    np.testing.assert_allclose(kept.loadings_for(data.X, data.y, corrected=False), kept.loadings_, rtol=1e-9)
    assert kept.get_params()["n_components"] == 2


def test_masks_indices_and_units(data):
    model = MCPCA(4, random_state=0).fit(data.X, data.y)
    by_mask = model.keep(np.array([False, True, False, True]), data.X, data.y)
    np.testing.assert_array_equal(by_mask.loadings_, model.keep([1, 3], data.X, data.y).loadings_)
    large = MCPCA(4, random_state=0).fit(data.X * 2.0**40, data.y).keep([1, 3], data.X * 2.0**40, data.y)
    np.testing.assert_allclose(large.loadings_, by_mask.loadings_ * 2.0**80, rtol=1e-9)
    np.testing.assert_allclose(large.singular_values_, by_mask.singular_values_ * 2.0**80, rtol=1e-9)


def test_replicating_keeps_what_comes_back(half_real):
    X, y, axes = half_real
    model = MCPCA("replicating", random_state=0).fit(X, y)
    whole = MCPCA(random_state=0).fit(X, y)
    choice = whole.rank_choice_
    n = choice.replicability.n_replicating
    assert 0 < n < choice.rank  # or this would test nothing
    assert (model.n_components_, model.kept_of_) == (n, choice.rank)
    assert match_components(axes, model.components_).cosines.min() > 0.95
    for kept in (whole.keep("replicating", X, y), MCPCA("replicating", random_state=0).fit(X, y)):
        np.testing.assert_allclose(kept.components_, model.components_)
        np.testing.assert_allclose(kept.loadings_, model.loadings_, rtol=1e-9)
    found = model.rank_choice_
    assert (found.rank, found.kept_of, found.fitted_rank) == (n, choice.rank, choice.rank)
    assert found.components["replicates"].all()
    assert found.reason.startswith(f"{n} of {choice.rank} MCPCs were kept")
    np.testing.assert_allclose(
        np.sort(found.replicability.agreement), np.sort(choice.replicability.agreement[choice.replicability.replicates])
    )
    recommended = whole.keep("recommended", X, y)
    assert recommended.n_components_ == choice.recommended.sum() >= n


def test_kept_mcpcs_are_looked_for_among_as_many_as_they_were_found_with(half_real, tmp_path):
    X, y, _ = half_real
    model = MCPCA("replicating", random_state=0).fit(X, y)
    halves = model.replicability(X, y, 4, random_state=1)
    assert halves.cosines.shape == (4, model.n_components_)
    assert halves.agreement.min() > 0.85
    bootstrap = model.bootstrap(X, y, 5, random_state=0)
    assert bootstrap.angles.shape[-1] == model.n_components_
    model.save(tmp_path / "kept.npz")
    read = MCPCA.load(tmp_path / "kept.npz")
    assert read.kept_of_ == model.kept_of_
    assert read.n_components == "replicating"
    assert read.rank_choice_.to_json() == model.rank_choice_.to_json()
    assert read.replicability(X, y, 4, random_state=1).cosines.tolist() == halves.cosines.tolist()


def test_a_selection_has_all_that_is_known_of_components(half_real):
    pytest.importorskip("pandas")  # without it tables are dictionaries
    X, y, _ = half_real
    found = select_rank(X, y, criteria=("contexts",), random_state=0)
    table = found.components
    assert table.index.tolist() == [f"MCPC {j + 1}" for j in range(found.rank)]
    np.testing.assert_array_equal(table["recommended"], found.recommended)
    np.testing.assert_array_equal(table["agreement"] > 0.9, table["replicates"])
    assert (table["low"] <= table["agreement"]).all()
    assert (table["agreement"] <= table["high"]).all()
    np.testing.assert_array_equal(table["context q"], found.dependence.q_values)
    assert (found.above_noise[found.replicability.replicates] > 0.9).all()
    np.testing.assert_array_equal(table["recommended"], table["agreement"] > 0.8)
    np.testing.assert_array_equal(table["above noise"], found.above_noise > 0.5)
    np.testing.assert_array_equal(table["context agreement"], found.replicability_by_contexts.agreement)
    read = RankSelection.from_json(found.to_json())
    assert read.to_json() == found.to_json()
    assert read.components.drop(columns="close").round(9).equals(table.drop(columns="close").round(9))


def test_labels_that_mean_nothing_are_told(half_real):
    X, y, _ = half_real
    shuffled = np.random.default_rng(0).permutation(y)
    # Contexts differ in nothing: the axes of the pooled rows are in all of them alike.
    X = X - np.stack([X[y == c].mean(axis=0) for c in range(6)])[y]
    found = select_rank(X, shuffled, criteria=(), ranks=[1, 2, 3], random_state=0)
    assert found.dependence.outcome == "alike"
    assert not found.components["context-dependent"].any()
    assert "in all contexts alike (pooled PCA would do)" in found.reason


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("best", r"which='best' is unknown; choose 'replicating', 'recommended', or pass indices"),
        ("replicating", "needs the evidence of a rank that was chosen with rows, and this model has none"),
        ([0, 4], "4 is not among 0 to 3; there are 4 MCPCs, counted from 0"),
        ([0, 0], "one at least, and each once, is needed"),
        ([], "a mask of 4 values, or a list of indices"),
        ([True, False], r"which has shape \(2,\); a mask needs one value for each of the 4 MCPCs"),
        ([0.5], "a mask of 4 values, or a list of indices"),
    ],
)
def test_what_cannot_be_kept(data, which, message):
    model = MCPCA(4, random_state=0).fit(data.X, data.y)
    with pytest.raises(ValueError, match=message):
        model.keep(which, data.X, data.y)


def test_fits_that_nothing_can_be_kept_of(data):
    with pytest.raises(ValueError, match=r"n_components='most' is unknown; pass a number, None .* or 'replicating'"):
        MCPCA("most").fit(data.X, data.y)
    with pytest.raises(ValueError, match="the paper's rule compares seeds, and does not say which MCPCs come back"):
        MCPCA("replicating", rank_range=range(1, 4)).fit(data.X, data.y)
    with pytest.raises(ValueError, match=r"with cross_fit=2: .* Pass cross_fit=0, or a number"):
        MCPCA("replicating", cross_fit=2).fit(data.X, data.y)
    S = np.stack([np.cov(data.X[data.y == c], rowvar=False) for c in np.unique(data.y)])
    with pytest.raises(NoStableRankError, match=r"which were not compared here.* Pass the rows in memory, or a number"):
        MCPCA("replicating", random_state=0).fit_covariances(S, n_samples=150)
    robust = MCPCA(2, robust=True, random_state=0).fit(data.X, data.y)
    with pytest.raises(ValueError, match="this is a model of robust=True; fit without it or pass n_components="):
        robust.keep([0], data.X, data.y)
    model = MCPCA(4, random_state=0).fit(data.X, data.y)
    with pytest.raises(ValueError, match="This needs the rows that the model was fitted on"):
        model.keep([0], data.X[data.y < 3], data.y[data.y < 3])


def test_nothing_that_comes_back_is_an_error_with_the_evidence():
    """A round cloud above noise in six of twelve directions: halves agree on no axis."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((240, 12)) * np.sqrt(np.r_[np.full(6, 4.0), np.ones(6)])
    X = X @ np.linalg.qr(rng.standard_normal((12, 12)))[0]
    with (
        pytest.warns(match="Halves of the rows agree on the components at no rank"),
        pytest.raises(NoStableRankError, match="and none does") as error,
    ):
        MCPCA("replicating", random_state=0).fit(X, np.repeat([0, 1, 2], 80))
    assert isinstance(error.value.choice, RankSelection)
