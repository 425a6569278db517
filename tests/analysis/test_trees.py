"""Trees of contexts and links between them: Newick, Robinson and Foulds, the paper's two benchmarks."""

import itertools

import numpy as np
import pytest
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import cdist
from stored_fit import stored_fit

import mcpca.analysis as analysis
from mcpca import MCPCA
from mcpca.analysis import ContextTree
from mcpca.analysis.newick import clades_of_linkage, clades_of_newick, newick_of_linkage, robinson_foulds
from mcpca.context_tree import context_linkage
from mcpca.datasets import make_contexts

PRIMATES = "((((human:6,chimp:6)hominini:2,gorilla)0.9:20,'rhesus macaque':28),marmoset);"
NAMES = ["human", "chimp", "gorilla", "rhesus macaque", "marmoset"]


def sets(*clades):
    return {frozenset(clade) for clade in clades}


# Newick


def test_newick_is_read():
    clades, leaves = clades_of_newick(PRIMATES)
    assert leaves == NAMES
    assert clades == sets(NAMES[:2], NAMES[:3], NAMES[:4])
    assert clades_of_newick("(a,b,(c,d,e)[a comment]);")[0] == sets("cde")
    assert clades_of_newick("((a ,b),(c,'it''s'))")[1] == ["a", "b", "c", "it's"]
    assert clades_of_newick("(rhesus macaque,(a,b));")[1] == ["rhesus macaque", "a", "b"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("((a,b),c", "a bracket is not closed"),
        ("(a,b),c);", "a comma has nothing before it or no bracket"),
        ("(a,,b);", "a comma has nothing before it"),
        ("(a,());", "a bracket closes that is empty"),
        ("(a,b);(c,d);", "goes on after its end"),
        ("(a(b,c));", "a comma is missing"),
        ("", "no leaves"),
        ("[()]", "there are no leaves"),
        ("(a,(b,a));", "leaf 'a' more than once"),
        ("(a,b]);", "unexpected text at character 4"),
    ],
)
def test_broken_newick_is_refused(text, why):
    with pytest.raises(ValueError, match=why):
        clades_of_newick(text)


def test_a_linkage_becomes_a_tree_and_comes_back(rng):
    names = [f"leaf {i}" if i % 2 else f"l{i}" for i in range(9)]
    tree = linkage(rng.standard_normal((9, 3)), "average")
    text = newick_of_linkage(tree, names)
    clades, leaves = clades_of_newick(text)
    assert sorted(leaves) == sorted(names)
    assert clades == clades_of_linkage(tree, names)
    assert len(clades) == 7


# Robinson and Foulds


def test_distances_of_known_trees():
    leaves = list("abcde")
    first = clades_of_newick("((((a,b),c),d),e);")[0]
    # The same without its root; clades {d, e} for {a, b, c, d}.
    moved = clades_of_newick("(((a,b),c),(d,e));")[0]
    other = clades_of_newick("((((a,c),b),d),e);")[0]
    star = clades_of_newick("(a,b,c,d,e);")[0]
    assert robinson_foulds(first, first, leaves) == 0
    assert robinson_foulds(first, moved, leaves) == 2
    assert robinson_foulds(first, moved, leaves, rooted=False) == 0
    assert robinson_foulds(first, other, leaves) == 2
    assert robinson_foulds(first, other, leaves, rooted=False) == 2
    assert robinson_foulds(first, star, leaves) == 3
    assert robinson_foulds(first, star, leaves, rooted=False) == 2


def tree_of_species():
    """Rows of five species, and the model: the nearer two are, the more MCPCs do they share."""
    rng = np.random.default_rng(0)
    carried = ["11110000", "11110000", "11101000", "11000110", "00001011"]
    B = 0.5 + 5 * np.array([[int(one) for one in row] for row in carried])
    A = rng.standard_normal((12, 8))
    A /= np.linalg.norm(A, axis=0)
    B = B * (1 + 0.4 * rng.random(B.shape))  # no two columns are proportional
    X = {name: (rng.standard_normal((500, 8)) * np.sqrt(b)) @ A.T for name, b in zip(NAMES, B, strict=True)}
    planted = ContextTree(NAMES, context_linkage(B), "loadings")
    assert planted.distance(PRIMATES) == 0  # of the loadings that rows are drawn with
    return MCPCA(8, random_state=0).fit(X), X


def test_loadings_recover_the_tree_that_made_them():
    model, X = tree_of_species()
    tree = analysis.context_tree(model)
    assert tree.contexts == list(X)
    assert tree.distance(PRIMATES) == 0
    assert tree.distance(PRIMATES, normalized=True) == 0
    # Means are all alike, and say nothing.
    means = analysis.context_tree(model, features="means", X=X, n_pcs=6)
    assert means.distance(PRIMATES) > 0
    assert means.distance(PRIMATES, normalized=True) == means.distance(PRIMATES) / 6
    assert clades_of_newick(tree.newick())[0] == clades_of_linkage(tree.linkage, tree.contexts)
    # Leaves that are no contexts are left out of the known tree.
    assert tree.distance(PRIMATES.replace("marmoset", "(marmoset,lemur)").replace("gorilla", "(gorilla,bonobo)")) == 0


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("features", ["means", "covariances", "variances"])
def test_alternatives_are_what_overall_pcs_say(features, metric):
    """Means are seen from the mean of all rows, which has a say in angles: all rows are far from the origin here."""
    data = make_contexts(5, 7, 2, n_samples=30, noise=0.3, random_state=1)
    X = data.X + 5
    model = MCPCA(2, random_state=0).fit(X, data.y)
    tree = analysis.context_tree(model, features=features, n_pcs=3, X=X, y=data.y, metric=metric)
    centred = X - X.mean(axis=0)
    V = np.linalg.svd(centred, full_matrices=False)[2][:3].T
    blocks = [centred[data.y == i] @ V for i in range(5)]
    F = {
        "means": [block.mean(axis=0) for block in blocks],
        "covariances": [np.cov(block, rowvar=False).ravel() for block in blocks],
        "variances": [block.var(axis=0, ddof=1) for block in blocks],
    }[features]
    expected = linkage(np.array(F), "average", metric)
    assert clades_of_linkage(tree.linkage, tree.contexts) == clades_of_linkage(expected, tree.contexts)
    np.testing.assert_allclose(np.sort(tree.linkage[:, 2]), np.sort(expected[:, 2]), rtol=1e-6)


def test_distances_of_all_features_in_one_table():
    model, X = tree_of_species()
    smaller = MCPCA(4, random_state=0).fit(X)
    table = analysis.tree_distances([smaller, model], PRIMATES, X=X, n_pcs=[4, 9])
    alternatives = [name for name in ("means", "covariances", "variances") for _ in range(2)]
    assert table["features"].tolist() == ["loadings", "loadings", *alternatives]
    assert table["number"].tolist() == [4, 8, *[4, 9] * 3]
    for row in table.itertuples():
        source = {4: smaller, 8: model}.get(row.number, model) if row.features == "loadings" else model
        given = {} if row.features == "loadings" else {"X": X, "n_pcs": row.number}
        assert row.distance == analysis.context_tree(source, features=row.features, **given).distance(PRIMATES)
    assert table["distance"][1] == 0
    alone = analysis.tree_distances(model, PRIMATES)
    assert alone["features"].tolist() == ["loadings"]


def test_bad_trees():
    model, X = tree_of_species()
    with pytest.raises(ValueError, match=r"known lacks 1 of the \d contexts among its leaves: 'rhesus macaque'"):
        analysis.context_tree(model).distance("(((human,chimp),gorilla),marmoset);")
    with pytest.raises(ValueError, match="Pass the text of the tree, not the name of a file"):
        analysis.context_tree(model).distance("tree.nwk")
    fewer = MCPCA(3, random_state=0).fit({name: X[name] for name in list(X)[:4]})
    with pytest.raises(ValueError, match="different contexts"):
        analysis.tree_distances([model, fewer], PRIMATES, X=X)
    with pytest.raises(ValueError, match=r"Context 'gorilla' has 1 row\(s\) in the data given, and needs 2"):
        analysis.context_tree(model, features="variances", X=X | {"gorilla": X["gorilla"][:1]})
    with pytest.raises(ValueError, match=r"n_pcs=2\.5 is not an integer"):
        analysis.tree_distances(model, PRIMATES, X=X, n_pcs=2.5)
    with pytest.raises(ValueError, match="y is given without X"):
        analysis.tree_distances(model, PRIMATES, y=list(X))
    with pytest.raises(ValueError, match="n_pcs is empty"):
        analysis.tree_distances(model, PRIMATES, X=X, n_pcs=[])
    assert len(analysis.tree_distances(model, PRIMATES, X=X, n_pcs=np.int64(3))) == 4
    with pytest.raises(TypeError, match="known is a int"):
        analysis.context_tree(model).distance(3)
    with pytest.raises(ValueError, match="features='mean' is unknown"):
        analysis.context_tree(model, features="mean")
    with pytest.raises(ValueError, match="A fitted model keeps no rows"):
        analysis.context_tree(model, features="means")
    with pytest.raises(ValueError, match="n_pcs=50, but the rows have 12 PCs"):
        analysis.context_tree(model, features="means", X=X, n_pcs=50)
    with pytest.raises(ValueError, match="One MCPC or PC has no correlation"):
        analysis.context_tree(model, features="means", X=X, n_pcs=1)
    with pytest.raises(ValueError, match="source is empty"):
        analysis.tree_distances([], PRIMATES)


# Links


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


def test_recall_is_that_of_the_paper():
    model, X, pathways = perturbations()
    names = list(X)
    table = analysis.link_recall(model, {"own": pathways}, X=X, n_pcs=4, max_sizes=[5], numbers=[3])
    links = analysis.links_of_sets(pathways, names)
    rows = np.vstack(list(X.values()))
    V = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2].T
    blocks = [(X[name] - rows.mean(axis=0)) @ V for name in names]
    means = np.array([block.mean(axis=0)[:4] for block in blocks])
    variances = np.array([block.var(axis=0, ddof=1)[:3] for block in blocks])
    expected = [means] + [np.hstack([means, more]) for more in (model.loadings_, np.sqrt(variances), variances)]
    assert table["recall"].tolist() == [naive_recall(F, names, links, 0.05) for F in expected]
    assert table["number"].tolist() == [0, 6, 3, 3]
    assert table["n_links"].unique() == [24]


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
    fewer = MCPCA(2, random_state=0).fit({name: X[name] for name in list(X)[:20]})
    with pytest.raises(ValueError, match="different contexts"):
        analysis.link_recall([model, fewer], {"own": pathways}, X=X)
