"""compare_with_pca against a naive twin, on an MCPC that is a PC and on one that PCA cannot see."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr
from stored_fit import stored_fit

import mcpca.analysis as analysis
from mcpca import MCPCA
from mcpca.analysis import _random_axes
from mcpca.analysis._tails import ends
from mcpca.datasets import make_contexts

LIKENESS = ["cosine", "variance_correlation", "overlap"]


@pytest.fixture(scope="module")
def data():
    return make_contexts(6, 10, 3, n_samples=60, noise=0.2, random_state=2)


@pytest.fixture(scope="module")
def model(data):
    return MCPCA(3, random_state=0).fit(data.X, data.y)


def naive(model, loadings, X, y, j, v, n_top):
    """The three likenesses of MCPC j and one axis v, as the paper defines them."""
    z, s = X @ model.projection_[j], X @ v
    variances = [np.var(s[y == c], ddof=1) for c in model.contexts_]
    ends = []
    for mcpc in (np.argsort(-z)[:n_top], np.argsort(z)[:n_top]):
        for pc in (np.argsort(-s)[:n_top], np.argsort(s)[:n_top]):
            ends.append(len(set(mcpc.tolist()) & set(pc.tolist())) / n_top)
    return [abs(model.components_[:, j] @ v), spearmanr(variances, loadings[:, j]).statistic, max(ends)]


@pytest.mark.parametrize("corrected", [True, False])
def test_likenesses_are_as_the_paper_defines_them(data, model, corrected):
    X, y = data.X, data.y
    found = analysis.compare_with_pca(model, corrected=corrected, X=X, y=y, n_pcs=4, n_top=30)
    loadings = model.corrected_loadings_ if corrected else model.loadings_
    which = "corrected loadings: the noise" if corrected else "loadings as fitted: the noise"
    assert f"Variances are compared with {which}" in found.summary()
    assert len(found.pairs) == 3 * 7 * 4
    for rows in ["all rows", "2"]:
        own = X if rows == "all rows" else X[y == int(rows)]
        V = np.linalg.svd(own - own.mean(axis=0), full_matrices=False)[2][:4]
        for row in found.pairs[found.pairs["rows"] == rows].itertuples():
            j = int(row.component.split()[1]) - 1
            expected = naive(model, loadings, X, y, j, V[row.pc - 1], 30)
            np.testing.assert_allclose([row.cosine, row.variance_correlation, row.overlap], expected, atol=1e-8)
    for (component, rows), own in found.pairs.groupby(["component", "rows"]):
        best = found.best[(found.best["component"] == component) & (found.best["rows"] == rows)].iloc[0]
        for name in LIKENESS:
            at = own[name].idxmax()
            assert (best[name], best[f"{name}_pc"]) == (own.at[at, name], own.at[at, "pc"])
    assert found.best["rows"].unique().tolist() == ["all rows", *"012345"]
    assert found.best["component"].unique().tolist() == ["MCPC 1", "MCPC 2", "MCPC 3"]


def test_by_projection_compares_the_direction_of_scores(data, model):
    options = {"X": data.X, "y": data.y, "n_pcs": 4, "n_top": 30, "random_state": 0}
    found = analysis.compare_with_pca(model, by="projection", **options)
    W = np.linalg.pinv(model.components_)
    W /= np.linalg.norm(W, axis=1, keepdims=True)
    V = np.linalg.svd(data.X - data.X.mean(axis=0), full_matrices=False)[2][:4]
    own = found.pairs[found.pairs["rows"] == "all rows"]
    np.testing.assert_allclose(own["cosine"].to_numpy().reshape(3, 4), np.abs(W @ V.T), atol=1e-8)
    # Nothing else changes.
    other = analysis.compare_with_pca(model, **options)
    for name in ("variance_correlation", "overlap"):
        np.testing.assert_array_equal(found.pairs[name], other.pairs[name])
    assert np.abs(found.pairs["cosine"] - other.pairs["cosine"]).max() > 0.05
    orthogonal = MCPCA(3, orthogonal=True, random_state=0).fit(data.X, data.y)
    pair = [analysis.compare_with_pca(orthogonal, by=by, **options).pairs for by in ("components", "projection")]
    np.testing.assert_allclose(pair[0]["cosine"], pair[1]["cosine"], atol=1e-10)
    with pytest.raises(ValueError, match="by='scores' is unknown"):
        analysis.compare_with_pca(model, by="scores", **options)


def test_an_mcpc_that_is_a_pc_is_seen_and_one_that_is_not_is_not():
    """Orthogonal MCPCs of different size are PCs. Two oblique ones of equal size are none: PCs are their sum and
    difference, in every pooling in which they vary alike."""
    rng = np.random.default_rng(3)
    u, v, w = np.linalg.qr(rng.standard_normal((8, 3)))[0].T
    A = np.column_stack([w, (u + 0.5 * v) / np.sqrt(1.25), (u - 0.5 * v) / np.sqrt(1.25)])
    B = np.array([[9, 1.0, 2], [4, 2, 1], [9, 1.5, 1.5], [4, 2.1, 0.9], [8, 0.9, 2.1], [5, 1.5, 1.5]])
    X = np.vstack([(rng.standard_normal((300, 3)) * np.sqrt(b)) @ A.T for b in B])
    X += 0.05 * rng.standard_normal(X.shape)
    y = np.repeat(np.arange(6), 300)
    model = MCPCA(3, random_state=0).fit(X, y)
    best = analysis.compare_with_pca(model, X=X, y=y, groups=list("ababab"), n_pcs=8).best
    overall = best[best["rows"] == "all rows"].set_index("component")
    shown = overall.loc["MCPC 1"]
    assert shown["cosine"] > 0.99
    assert shown["variance_correlation"] > 0.8
    for hidden in ("MCPC 2", "MCPC 3"):
        assert overall.at[hidden, "cosine"] < 0.95  # of the planted axes with u: 0.894
        assert overall.at[hidden, "overlap"] < shown["overlap"] - 0.25
    assert best["rows"].unique().tolist() == ["all rows", "a", "b"]


def test_groups_pool_the_rows_of_their_contexts(data, model):
    found = analysis.compare_with_pca(model, X=data.X, y=data.y, groups=[1, 1, 1, 2, 2, 2], n_pcs=2, n_top=20).pairs
    own = data.X[data.y < 3]
    V = np.linalg.svd(own - own.mean(axis=0), full_matrices=False)[2]
    first = found[(found["rows"] == "1") & (found["component"] == "MCPC 1") & (found["pc"] == 2)]
    assert first["cosine"].item() == pytest.approx(abs(model.components_[:, 0] @ V[1]))


def test_contexts_without_a_group_are_in_none(data, model):
    found = analysis.compare_with_pca(model, X=data.X, y=data.y, groups={"1": "a", "3": "a"}, n_pcs=1, n_top=20).pairs
    own = data.X[np.isin(data.y, [1, 3])]
    v = np.linalg.svd(own - own.mean(axis=0), full_matrices=False)[2][0]
    assert found["rows"].unique().tolist() == ["all rows", "a"]
    first = found[(found["rows"] == "a") & (found["component"] == "MCPC 1")]
    assert first["cosine"].item() == pytest.approx(abs(model.components_[:, 0] @ v))


def test_rows_with_equal_scores_are_taken_in_their_order():
    """An MCPC that is a PC has all of its rows, though most scores are equal and signs may differ."""
    z = np.array([0.0, 0, 0, 0, 2, -1, 0, 0])
    first, second = ends(np.column_stack([z, -z]), 3)
    assert sorted(first[:, 0]) == sorted(second[:, 1]) == [0, 1, 4]
    assert sorted(second[:, 0]) == sorted(first[:, 1]) == [0, 1, 5]


def test_an_anndata_brings_its_own_rows(data):
    mask = np.arange(10) < 7
    adata, model = stored_fit(data.X, data.y, 2, mask=mask, unused=4, obs={"half": np.where(data.y < 3, "a", "b")})
    found = analysis.compare_with_pca(adata, groups="half", n_pcs=3, n_top=20)
    n = len(data.X) - 4
    X, y = data.X[:n][:, mask], data.y[:n]
    groups = {str(c): "a" if c < 3 else "b" for c in range(6)}
    by_hand = analysis.compare_with_pca(model, X=X, y=y, groups=groups, n_pcs=3, n_top=20)
    pd.testing.assert_frame_equal(found.pairs, by_hand.pairs)


def mixtures(X, y, n, seed):
    """Random axes by their definition, and the generator after them."""
    rng = np.random.default_rng(seed)
    axes = np.zeros((X.shape[1], n))
    for context in np.unique(y):
        own = X[y == context]
        axes += (own - own.mean(axis=0)).T @ rng.standard_normal((len(own), n))
    return axes / np.linalg.norm(axes, axis=0), rng


def test_chance_is_the_best_pc_of_random_axes_and_of_exchanged_loadings(data, model):
    X, y = data.X, data.y
    n = 7
    found = analysis.compare_with_pca(model, X=X, y=y, groups=list("aabbbb"), n_pcs=4, n_top=30, n_random=n)
    axes, rng = mixtures(X, y, n, 0)
    exchanges = rng.permuted(np.tile(np.arange(6), (n, 1)), axis=1)
    Z = X @ axes
    for rows, own in {"all rows": X, "b": X[y > 1]}.items():
        V = np.linalg.svd(own - own.mean(axis=0), full_matrices=False)[2][:4].T
        S = X @ V
        variances = [[np.var(S[y == c, m], ddof=1) for c in range(6)] for m in range(4)]
        cosine = np.abs(V.T @ axes).max(axis=0)
        tops = [[set(np.argsort(sign * z)[:30].tolist()) for sign in (1, -1)] for z in S.T]
        overlap = [
            max(len(set(np.argsort(sign * z)[:30].tolist()) & end) for sign in (1, -1) for ends in tops for end in ends)
            for z in Z.T
        ]
        for row in found.best[found.best["rows"] == rows].itertuples():
            b = model.corrected_loadings_[:, int(row.component.split()[1]) - 1]
            correlation = [max(spearmanr(v, b[order]).statistic for v in variances) for order in exchanges]
            for name, null in zip(LIKENESS, (cosine, correlation, np.array(overlap) / 30), strict=True):
                assert getattr(row, f"{name}_chance") == pytest.approx(np.mean(null))
                as_high = np.sum(np.array(null) >= getattr(row, name) - 1e-9)
                assert getattr(row, f"{name}_p") == pytest.approx((1 + as_high) / (1 + n))


def test_chance_does_not_depend_on_blocks_and_samples_many_rows(data, model, monkeypatch):
    options = {"X": data.X, "y": data.y, "n_pcs": 4, "n_top": 30, "n_random": 20, "random_state": 5}
    at_once = analysis.compare_with_pca(model, **options).best
    monkeypatch.setattr(_random_axes, "_BLOCK_NUMBERS", 200)
    pd.testing.assert_frame_equal(analysis.compare_with_pca(model, **options).best, at_once)
    monkeypatch.setattr(_random_axes, "_MOST_ROWS", 50)
    sampled = analysis.compare_with_pca(model, **options).best
    assert (sampled["cosine_chance"] != at_once["cosine_chance"]).all()
    np.testing.assert_allclose(sampled["cosine_chance"], at_once["cosine_chance"], atol=0.15)


def test_a_pc_is_above_chance_and_chance_may_be_left_out():
    """Three MCPCs along features with distinct variances, among ten features of noise: each is a PC."""
    rng = np.random.default_rng(6)
    B = rng.uniform(1, 3, (8, 3)) * [20, 10, 5]
    X = rng.standard_normal((800, 10))
    X[:, :3] *= np.sqrt(np.repeat(B, 100, axis=0))
    y = np.repeat(np.arange(8), 100)
    model = MCPCA(3, random_state=0).fit(X, y)
    found = analysis.compare_with_pca(model, X=X, y=y, groups=["a"] * 8, n_pcs=10, n_top=50)
    overall = found.best[found.best["rows"] == "all rows"]
    assert (overall["cosine"] > 0.98).all()
    assert (overall["cosine_p"] < 0.05).all()
    assert (overall["overlap_p"] < 0.05).all()
    # The mean of the best is far above that of a single PC.
    pairs = found.pairs[found.pairs["rows"] == "all rows"]
    assert (overall["cosine_chance"] > 2 / np.sqrt(10)).all()
    assert "Closer to a PC than 95% of random axes: MCPC 1, MCPC 2" in found.summary()
    assert "the best of 10 has |cos|" in found.summary()
    without = analysis.compare_with_pca(model, X=X, y=y, groups=["a"] * 8, n_pcs=10, n_top=50, n_random=0)
    assert not [name for name in without.best if name.endswith(("_chance", "_p"))]
    pd.testing.assert_frame_equal(without.best, found.best[without.best.columns])
    pd.testing.assert_frame_equal(without.pairs, found.pairs)
    assert "chance" not in without.summary()
    assert len(pairs) == 30
    assert "<table>" in without._repr_html_()


def test_equal_variances_have_no_correlation_by_chance_either():
    chance = _random_axes.ByChance(
        np.eye(10)[:, :4], (np.zeros((5, 4), int), np.zeros((5, 4), int)), np.ones((4, 6, 2))
    )
    tails = (np.arange(10).reshape(5, 2), np.arange(10).reshape(5, 2))
    best = chance.best(np.eye(10)[:, :2], np.ones((6, 2)), tails, 10)
    assert np.isnan(best.variance_correlation).all()
    np.testing.assert_array_equal(best.cosine, [1, 1, 0, 0])
    assert np.isnan(_random_axes.p_of_best(np.nan, best.cosine))
    assert np.isnan(_random_axes.p_of_best(0.5, best.variance_correlation[:, 0]))
    assert _random_axes.p_of_best(1, best.cosine) == 3 / 5


def test_bad_input(data, model):
    with pytest.raises(ValueError, match="n_top=200 rows at each of two ends, but there are 360; n_top <= 180"):
        analysis.compare_with_pca(model, X=data.X, y=data.y)
    with pytest.raises(ValueError, match="A fitted model keeps no rows"):
        analysis.compare_with_pca(model)
    with pytest.raises(ValueError, match="n_random=-1 is out of bounds"):
        analysis.compare_with_pca(model, X=data.X, y=data.y, n_random=-1)
    with pytest.raises(ValueError, match="random_state='a' is a str"):
        analysis.compare_with_pca(model, X=data.X, y=data.y, random_state="a")
    with pytest.raises(ValueError, match="n_pcs=0 is out of bounds"):
        analysis.compare_with_pca(model, X=data.X, y=data.y, n_pcs=0)
