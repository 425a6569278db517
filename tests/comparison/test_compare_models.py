"""Two models compared: planted swaps, flips, ranks, features and contexts are told for what they are."""

import itertools

import numpy as np
import pandas as pd
import pytest

from mcpca import MCPCA, compare_models
from mcpca.datasets import make_contexts

P, R, K = 15, 4, 6
FEATURES = [f"g{j}" for j in range(P)]


def covariances(A, B):
    """Exact covariances (k, p, p) of a model."""
    return np.einsum("pj,kj,qj->kpq", A, B, A)


def truth(seed=0):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(P, R))
    A /= np.linalg.norm(A, axis=0)
    return A, rng.uniform(0.2, 2, (K, R))


def model(A, B, *, features=FEATURES, contexts=None):
    """A model with these very MCPCs: a fit whose arrays are replaced."""
    fitted = MCPCA(A.shape[1], random_state=0).fit_covariances(covariances(A, B) + 0.01 * np.eye(len(A)))
    fitted.contexts_ = np.array(contexts or [f"c{i}" for i in range(len(B))])
    fitted.components_ = A
    fitted.projection_ = np.linalg.pinv(A)
    fitted.loadings_ = fitted.corrected_loadings_ = B
    fitted.feature_names_in_ = np.array(features, dtype=object)
    return fitted


def slow_pairs(U, V):
    """The pairing with the largest sum of |cos|, by trying all."""
    cosines = np.abs(U.T @ V)
    r, s = cosines.shape
    best = max(itertools.permutations(range(s), r), key=lambda p: sum(cosines[i, j] for i, j in enumerate(p)))
    return list(best)


def test_a_model_is_the_same_as_itself():
    rows = make_contexts(5, 8, 3, n_samples=100, random_state=0)
    first, second = (MCPCA(3, random_state=0).fit(rows.X, rows.y) for _ in range(2))
    found = compare_models(first, second)
    assert found.identical
    assert found.same
    assert str(found) == "The two models are the same to the last bit: 3 MCPCs of 5 contexts and 8 features."
    assert len(found.gone) == len(found.new) == 0


def test_swapped_and_flipped_columns_are_the_same_mcpcs():
    A, B = truth()
    order, signs = [2, 0, 3, 1], np.array([1, -1, -1, 1])
    found = compare_models(model(A, B), model(A[:, order] * signs, B[:, order]))
    assert [order[j] for j in found.second.tolist()] == found.first.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(found.signs, signs[found.second])
    np.testing.assert_allclose(found.cosines, 1)
    np.testing.assert_allclose(found.differences, 0, atol=1e-15)
    assert found.same
    assert not found.identical
    assert str(found).startswith("The two models are the same up to rounding")


@pytest.mark.parametrize("way", ["fewer", "more"])
def test_models_of_different_rank(way):
    """Of a model and one with two of its MCPCs, two come back, and the others are gone or new."""
    A, B = truth()
    whole, part = model(A, B), model(A[:, [3, 1]], B[:, [3, 1]])
    found = compare_models(whole, part) if way == "fewer" else compare_models(part, whole)
    assert found.returns.tolist() == [True, True]
    if way == "fewer":
        assert (found.first.tolist(), found.second.tolist()) == ([1, 3], [1, 0])
        assert (found.gone.tolist(), found.new.tolist()) == ([0, 2], [])
        assert str(found).startswith("2 of 4 MCPCs of the first come back in the second (|cos| >= 0.9); 2 not.")
        assert found.table["second"].isna().tolist() == [True, False, True, False]
    else:
        assert (found.first.tolist(), found.second.tolist()) == ([0, 1], [3, 1])
        assert (found.gone.tolist(), found.new.tolist()) == ([], [0, 2])
        assert "2 of the 4 in the second are new" in str(found)
        assert "New in the second: MCPC 1, MCPC 3." in str(found)
        assert found.table["first"].isna().tolist() == [False, False, True, True]
    np.testing.assert_allclose(found.differences, 0, atol=1e-15)


def test_pairs_are_those_of_the_largest_sum():
    first, second = truth(1)[0], truth(2)[0]
    B = truth(1)[1]
    found = compare_models(model(first, B), model(second, B), threshold=0.5)
    pairs = slow_pairs(first, second)
    assert found.second.tolist() == pairs
    np.testing.assert_allclose(found.cosines, [abs(first[:, i] @ second[:, j]) for i, j in enumerate(pairs)])
    np.testing.assert_allclose(found.all_cosines, np.abs(first.T @ second))
    assert found.returns.tolist() == (found.cosines >= 0.5).tolist()


def test_common_features_carry_the_loadings_of_the_model_they_leave():
    """Over common features the model is ``sum_j b_j s_j^2 u_j u_j^T``; both sides of the identity."""
    A, B = truth()
    kept = [9, 2, 4, 0, 7, 11, 3]  # in an order of its own, and with two features that the first lacks
    names = [FEATURES[j] for j in kept] + ["new1", "new2"]
    C = np.vstack([A[kept], np.random.default_rng(3).normal(size=(2, R)) / 3])
    lengths = np.linalg.norm(C, axis=0)
    second = model(C / lengths, B * lengths**2, features=names)
    found = compare_models(model(A, B), second)
    assert found.features == [FEATURES[j] for j in sorted(kept)]
    assert found.features_alone == ([f for f in FEATURES if f not in names], ["new1", "new2"])
    np.testing.assert_allclose(found.cosines, 1)
    for j in (0, 1):
        np.testing.assert_allclose(np.linalg.norm(found.directions[j], axis=0), 1)
        left = covariances(found.directions[j], found.loadings[j])
        np.testing.assert_allclose(left, covariances(A, B)[:, sorted(kept)][:, :, sorted(kept)], atol=1e-12)
    np.testing.assert_allclose(found.kept[0], (A[kept] ** 2).sum(axis=0))
    np.testing.assert_allclose(found.differences, 0, atol=1e-12)
    assert "7 features in common, 8 only in the first ('g1', 'g5', 'g6' and 5 more), 2 only in the second" in str(found)
    assert f"at least {min(found.kept[0].min(), found.kept[1].min()):.0%} of every direction" in str(found)
    assert not found.same


def test_contexts_are_aligned_by_name():
    A, B = truth()
    order = [4, 2, 5, 1]
    changed = B[order].copy()
    changed[1, 2] += 0.7  # c2, MCPC 3
    found = compare_models(model(A, B), model(A, changed, contexts=[f"c{i}" for i in order]))
    assert found.contexts == ["c1", "c2", "c4", "c5"]
    assert found.contexts_alone == (["c0", "c3"], [])
    expected = np.zeros((4, R))
    expected[1, 2] = 0.7
    np.testing.assert_allclose(found.differences, expected, atol=1e-12)
    table = found.loading_table
    worst = table.loc[table["difference"].abs().idxmax()]
    assert (worst["context"], worst["first"], worst["difference"]) == ("c2", "MCPC 3", pytest.approx(0.7))
    assert found.table["largest difference of loadings"].tolist() == pytest.approx([0, 0, 0.7, 0], abs=1e-12)
    apart = compare_models(model(A, B), model(A, B, contexts=list("uvwxyz")))
    assert apart.contexts == []
    assert apart.returns.all()
    assert len(apart.loading_table) == 0
    assert "0 contexts in common" in str(apart)


def test_solvers_and_orders_of_columns_give_the_same_mcpcs():
    rows = make_contexts(8, 12, 3, n_samples=500, noise=0.05, random_state=1)
    table = pd.DataFrame(rows.X, columns=[f"f{j}" for j in range(12)])
    first = MCPCA(3, random_state=0).fit(table, rows.y)
    second = MCPCA(3, solver="ml", random_state=0).fit(table.iloc[:, ::-1], rows.y)
    found = compare_models(first, second, names=("power", "likelihood"))
    assert found.returns.all()
    assert found.cosines.min() > 0.999
    assert repr(found) == "<ModelComparison: 3 of 3 MCPCs of power come back in likelihood (|cos| >= 0.9).>"
    assert "those of likelihood loadings of a fit with noise" in str(found)
    assert 0.9 < found.scale < 1.1
    assert "on another scale" not in str(found)
    other = MCPCA(3, random_state=0).fit(table * 10, rows.y)
    scaled = compare_models(first, other)
    assert scaled.scale == pytest.approx(100, rel=1e-6)
    assert "Loadings are 100 times as large in the second as in the first" in str(scaled)
    assert "<table>" in found._repr_html_()


def test_features_without_names_are_compared_by_place():
    rows = make_contexts(5, 8, 2, n_samples=100, random_state=0)
    bare = MCPCA(2, random_state=0).fit(rows.X, rows.y)
    named = MCPCA(2, random_state=0).fit(pd.DataFrame(rows.X).add_prefix("f"), rows.y)
    found = compare_models(named, bare)
    assert found.same
    assert not found.by_name
    assert found.features == [f"f{j}" for j in range(8)]
    fewer = MCPCA(2, random_state=0).fit(rows.X[:, :7], rows.y)
    with pytest.raises(ValueError, match="8 features and the second 7, and they do not have names"):
        compare_models(bare, fewer)


def test_what_cannot_be_compared_is_refused():
    A, B = truth()
    first = model(A, B)
    with pytest.raises(ValueError, match=r"no feature in common: 'g0', 'g1', 'g2' and 12 more in the first, 'h0'"):
        compare_models(first, model(A, B, features=[f"h{j}" for j in range(P)]))
    with pytest.raises(ValueError, match=r"features have the same name \('g0'\) more than once"):
        compare_models(first, model(A, B, features=["g0", "g0", *FEATURES[2:]]))
    with pytest.raises(ValueError, match="pass two different names"):
        compare_models(first, first, names=("a", "a"))
    with pytest.raises(ValueError, match="threshold"):
        compare_models(first, first, threshold=1.5)
    with pytest.raises(ValueError, match="key"):
        compare_models(first, first, key="other")


def test_fits_in_an_anndata_by_their_keys():
    anndata = pytest.importorskip("anndata")
    from mcpca import tl

    rows = make_contexts(5, 8, 3, n_samples=100, random_state=0)
    obs = pd.DataFrame({"c": [f"c{i}" for i in rows.y]}, index=[str(i) for i in range(len(rows.y))])
    adata = anndata.AnnData(rows.X, obs=obs, var=pd.DataFrame(index=[f"g{j}" for j in range(8)]))
    tl.mcpca(adata, "c", n_comps=3)
    tl.mcpca(adata, "c", n_comps=2, key_added="two")
    found = compare_models(adata, adata, key=("mcpca", "two"))
    assert found.all_cosines.shape == (3, 2)
    fitted = MCPCA(3, random_state=0).fit(pd.DataFrame(rows.X, columns=adata.var_names), obs["c"].to_numpy())
    assert compare_models(adata, fitted).returns.all()


def test_plot_has_a_cell_for_every_pair():
    plt = pytest.importorskip("matplotlib.pyplot")
    A, B = truth()
    found = compare_models(model(A, B), model(A[:, :2], B[:, :2]))
    ax = found.plot()
    assert ax.images[0].get_array().shape == (4, 2)
    np.testing.assert_allclose(ax.images[0].get_array(), found.all_cosines)
    plt.close(ax.figure)
