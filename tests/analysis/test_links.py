"""Links between contexts: recall against a naive twin, and against chance."""

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import binomtest
from stored_fit import stored_fit

import mcpca.analysis as analysis
from mcpca import MCPCA
from mcpca.analysis import links as links_module
from mcpca.datasets import make_contexts
from mcpca.exceptions import UnequalNoiseWarning


def test_links_are_pairs_in_one_set():
    genes = ["a", "b", "c", "d"]
    known = {"s": ["a", "c", "x", "y", "z"], "t": ["b", "c", "d"], "u": ["a"]}
    assert analysis.links_of_sets(known, genes) == {(0, 2), (1, 2), (1, 3), (2, 3)}
    # Sizes are counted among the contexts.
    assert analysis.links_of_sets(known, genes, max_size=2) == {(0, 2)}


def perturbations(seed=0, k=24):
    """Genes in pathways of three, which change the variances and not the means."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((15, 6))
    A /= np.linalg.norm(A, axis=0)
    pathways = {f"pathway {i}": [f"g{3 * i + j}" for j in range(3)] for i in range(k // 3)}
    X = {}
    for members in pathways.values():
        b = rng.gamma(0.5, 2, 6)
        for gene in members:
            X[gene] = (rng.standard_normal((80, 6)) * np.sqrt(b)) @ A.T + 0.1 * rng.standard_normal((80, 15))
    return MCPCA(6, random_state=0).fit(X), X, pathways


def naive_recall(F, names, links, tail):
    similarity = 1 - cdist(F, F, "cosine")
    pairs = list(itertools.combinations(range(len(F)), 2))
    values = np.array([similarity[pair] for pair in pairs])
    low, high = np.quantile(values, [tail, 1 - tail])
    called = {pair for pair, value in zip(pairs, values, strict=True) if value <= low or value >= high}
    return len(called & links) / len(links)


@pytest.mark.parametrize("corrected", [True, False])
def test_recall_is_that_of_the_paper(corrected):
    model, X, pathways = perturbations()
    names = list(X)
    table = analysis.link_recall(
        model, {"own": pathways}, corrected=corrected, X=X, n_pcs=4, max_sizes=[5], numbers=[3], permutations=9
    )
    loadings = model.corrected_loadings_ if corrected else model.loadings_
    assert not np.array_equal(model.corrected_loadings_, model.loadings_)
    links = analysis.links_of_sets(pathways, names)
    rows = np.vstack(list(X.values()))
    V = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2].T
    blocks = [(X[name] - rows.mean(axis=0)) @ V for name in names]
    means = np.array([block.mean(axis=0)[:4] for block in blocks])
    variances = np.array([block.var(axis=0, ddof=1)[:3] for block in blocks])
    expected = [means] + [np.hstack([means, more]) for more in (loadings, np.sqrt(variances), variances)]
    assert table["recall"].tolist() == [naive_recall(F, names, links, 0.05) for F in expected]
    assert table["number"].tolist() == [0, 6, 3, 3]
    assert table["n_links"].unique() == [24]
    words = "corrected loadings: the noise" if corrected else "loadings as fitted: the noise"
    assert table["loadings"].notna().tolist() == [False, True, False, False]
    assert table["loadings"][1].startswith(words)


def test_loadings_find_links_that_means_do_not():
    """60 links of 60 genes: the 88 most similar of 1770 pairs have room for all. Means are noise, so two are enough."""
    model, X, pathways = perturbations(k=60)
    rng = np.random.default_rng(1)
    pairs = [rng.choice(list(X), 2, replace=False).tolist() for _ in range(60)]
    links = {"own": pathways, "chance": pairs}
    table = analysis.link_recall(model, links, X=X, max_sizes=None, n_pcs=2, standardize=True)
    recall = table.set_index(["links", "features"])["recall"]
    assert recall["own", "mean PCs + loadings"] > 0.5
    assert recall["own", "mean PCs + loadings"] > recall["own", "mean PCs"] + 0.2
    # Links at random are found as often as pairs are called.
    chance = table[table["links"] == "chance"]
    assert (abs(chance["recall"] - chance["called"]) < 4 * np.sqrt(0.1 * 0.9 / 60)).all()
    assert table["called"].between(0.1, 0.11).all()


def test_the_best_rank_is_taken_for_each_set_of_links():
    model, X, pathways = perturbations()
    smaller = MCPCA(2, random_state=0).fit(X)
    options = {"X": X, "max_sizes": None, "n_pcs": 5}
    both = analysis.link_recall([smaller, model], {"own": pathways}, **options).set_index("features")
    single = [analysis.link_recall(one, {"own": pathways}, **options).set_index("features") for one in (smaller, model)]
    name = "mean PCs + loadings"
    assert both.at[name, "recall"] == max(one.at[name, "recall"] for one in single)
    assert both["tried"].tolist() == [1, 2, 2, 2]


def test_every_number_has_a_row_and_the_best_of_them_is_the_best():
    model, X, pathways = perturbations()
    models = [MCPCA(2, random_state=0).fit(X), model]
    links = {"own": pathways, "two": [("g0", "g1"), ("g0", "g9")]}
    options = {"X": X, "n_pcs": 5, "max_sizes": None, "permutations": 49}
    best = analysis.link_recall(models, links, **options)
    every = analysis.link_recall(models, links, **options, best=False)
    assert list(every.columns) == list(best.columns)
    assert (every["tried"] == 1).all()
    keys = ["links", "features"]
    by = every.groupby(keys, sort=False)
    np.testing.assert_array_equal(by["recall"].max(), best["recall"])
    at_best = best.merge(every, on=[*keys, "number"], suffixes=("_best", ""))
    assert len(at_best) == len(best)
    np.testing.assert_array_equal(at_best["recall"], best["recall"])
    # One number has no more of chance than the best of several.
    assert (at_best["chance"] <= at_best["chance_best"]).all()
    assert (at_best["p"] <= at_best["p_best"]).all()
    loadings = every[every["features"] == "mean PCs + loadings"]
    alone = analysis.link_recall(models[1], links, **options)
    np.testing.assert_array_equal(
        loadings[loadings["number"] == 6]["p"], alone[alone["features"] == "mean PCs + loadings"]["p"]
    )


def test_two_models_of_one_rank_are_both_tried():
    """The second is worth less: loadings of other rows under the same names."""
    model, X, pathways = perturbations()
    names = list(X)
    other = MCPCA(6, random_state=0).fit({name: X[names[i - 1]] for i, name in enumerate(names)})
    options = {"X": X, "max_sizes": None, "n_pcs": 2, "standardize": True}
    found = [
        analysis.link_recall(models, {"own": pathways}, **options).set_index("features").loc["mean PCs + loadings"]
        for models in (model, other, [model, other], [other, model])
    ]
    assert found[2]["tried"] == 2
    assert found[2]["recall"] == found[3]["recall"] == max(found[0]["recall"], found[1]["recall"])
    assert found[0]["recall"] != found[1]["recall"]


def test_contexts_with_the_same_noise_are_linked_by_loadings_as_fitted_alone():
    """Links are pairs of contexts with the same of four levels of noise, and B has nothing to do with it.

    One data set in twenty has p <= 0.05 by corrected loadings, so that their level is looked at and not one p-value.
    """
    level = np.arange(20) % 4
    links = {"noise": {f"level {one}": [f"c{i}" for i in np.flatnonzero(level == one)] for one in range(4)}}
    options = {"max_sizes": None, "n_pcs": 1, "numbers": 1, "metric": "euclidean", "tail": 0.2, "permutations": 199}
    found = {True: 0, False: 0}
    for seed in range(10):
        rng = np.random.default_rng(seed)
        A = np.linalg.qr(rng.standard_normal((30, 4)))[0]
        X = {}
        for i, b in enumerate(rng.gamma(2, 0.5, (20, 4))):
            rows = (rng.standard_normal((400, 4)) * np.sqrt(b)) @ A.T
            X[f"c{i}"] = rows + [0.3, 1.2, 1.7, 2.1][level[i]] * rng.standard_normal(rows.shape)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnequalNoiseWarning)  # which is the point
            model = MCPCA(4, random_state=0).fit(X)
        for corrected in found:
            table = analysis.link_recall(model, links, corrected=corrected, X=X, **options).set_index("features")
            found[corrected] += int(table.at["mean PCs + loadings", "p"] <= 0.05)
    assert found[False] == 10
    assert binomtest(found[True], 10, 0.05, "greater").pvalue > 0.01


def test_chance_is_the_best_recall_of_permuted_links():
    """One by one: contexts exchange their names in the links, and each set of links takes its own best number."""
    model, X, pathways = perturbations()
    models = [MCPCA(2, random_state=0).fit(X), model]
    options = {"X": X, "max_sizes": None, "n_pcs": 3, "tail": 0.1}
    found = analysis.link_recall(models, {"own": pathways}, permutations=20, random_state=3, **options)
    names = list(X)
    best = []
    for order in np.random.default_rng(3).permuted(np.tile(np.arange(len(names)), (20, 1)), axis=1):
        renamed = {
            name: [names[order[names.index(member)]] for member in members] for name, members in pathways.items()
        }
        best.append(analysis.link_recall(models, {"own": renamed}, permutations=0, **options)["recall"])
    best = np.array(best)
    np.testing.assert_allclose(found["chance"], best.mean(axis=0))
    np.testing.assert_allclose(found["chance_upper"], np.quantile(best, 0.95, axis=0))
    np.testing.assert_allclose(found["p"], (1 + (best >= found["recall"].to_numpy()).sum(axis=0)) / 21)
    # The best of two is above the share of pairs that each calls.
    assert (found["chance"] > found["called"])[found["tried"] == 2].all()


def test_links_by_blocks_are_those_at_once(monkeypatch):
    rng = np.random.default_rng(4)
    calls = rng.random((45, 3)) < 0.3
    i, j = np.array([(0, 4), (2, 7), (8, 9)]).T
    exchanges = rng.permuted(np.tile(np.arange(10), (7, 1)), axis=1)
    at_once = links_module.recalls_of_exchanged(calls, i, j, exchanges)
    monkeypatch.setattr(links_module, "_BLOCK_NUMBERS", 20)
    np.testing.assert_array_equal(links_module.recalls_of_exchanged(calls, i, j, exchanges), at_once)


def test_known_links_are_above_chance_and_random_ones_are_not():
    model, X, pathways = perturbations(k=60)
    rng = np.random.default_rng(5)
    pairs = [rng.choice(list(X), 2, replace=False).tolist() for _ in range(60)]
    options = {"X": X, "max_sizes": None, "n_pcs": 2, "standardize": True, "permutations": 199}
    table = analysis.link_recall(model, {"own": pathways, "chance": pairs}, **options)
    p = table.set_index(["links", "features"])["p"]
    assert p["own", "mean PCs + loadings"] == 1 / 200
    assert p["chance", "mean PCs + loadings"] > 0.05
    pd.testing.assert_frame_equal(table, analysis.link_recall(model, {"own": pathways, "chance": pairs}, **options))
    without = analysis.link_recall(model, {"own": pathways}, **options | {"permutations": 0})
    assert without[["chance", "chance_upper", "p"]].isna().all(axis=None)


def test_collections_without_a_link_are_told():
    model, X, pathways = perturbations()
    links = {"own": pathways, "others": {"s": ["x", "y"]}}
    with pytest.warns(UserWarning, match=r"no pair of contexts in own \(sets of at most 2\), others; these are not"):
        table = analysis.link_recall(model, links, X=X, max_sizes=[2, 3], n_pcs=3)
    assert table["links"].unique().tolist() == ["own"]


def test_links_of_an_anndata():
    data = make_contexts(6, 10, 3, n_samples=40, noise=0.1, random_state=0)
    adata, model = stored_fit(data.X, data.y, 3)
    options = {"max_sizes": [3], "n_pcs": 4}
    links = {"own": {"s": ["0", "1", "2"]}}
    assert analysis.link_recall(adata, links, **options).equals(
        analysis.link_recall(model, links, X=data.X, y=data.y, **options)
    )


def test_bad_links():
    model, X, pathways = perturbations()
    with pytest.raises(TypeError, match="links is a list"):
        analysis.link_recall(model, [("g1", "g2")], X=X)
    with pytest.raises(ValueError, match="links has no pair of contexts"):
        analysis.link_recall(model, {"own": {"s": ["x", "y"]}}, X=X)
    with pytest.raises(ValueError, match=r"links\['own'\] has \('a', 'b', 'c'\) among its pairs"):
        analysis.link_recall(model, {"own": [("a", "b", "c")]}, X=X)
    with pytest.raises(ValueError, match="max_sizes=1 is out of bounds"):
        analysis.link_recall(model, {"own": pathways}, X=X, max_sizes=1)
    with pytest.raises(TypeError, match="numbers is a str; pass a whole number, or several"):
        analysis.link_recall(model, {"own": pathways}, X=X, numbers="all")
    with pytest.raises(ValueError, match=r"Context 'g3' has 1 row\(s\)"):
        analysis.link_recall(model, {"own": pathways}, X=X | {"g3": X["g3"][:1]})
    with pytest.raises(ValueError, match=r"tail=0\.6 is out of bounds"):
        analysis.link_recall(model, {"own": pathways}, X=X, tail=0.6)
    with pytest.raises(TypeError, match="corrected='no'; pass True, or False"):
        analysis.link_recall(model, {"own": pathways}, X=X, corrected="no")
    with pytest.raises(ValueError, match="permutations=-1 is out of bounds"):
        analysis.link_recall(model, {"own": pathways}, X=X, permutations=-1)
    fewer = MCPCA(2, random_state=0).fit({name: X[name] for name in list(X)[:20]})
    with pytest.raises(ValueError, match="different contexts"):
        analysis.link_recall([model, fewer], {"own": pathways}, X=X)
