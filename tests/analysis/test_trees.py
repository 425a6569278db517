"""Trees of contexts: Newick, Robinson and Foulds, the paper's benchmark of primates."""

import numpy as np
import pytest
from scipy.cluster.hierarchy import linkage

import mcpca.analysis as analysis
from mcpca import MCPCA
from mcpca.analysis import ContextTree
from mcpca.analysis.newick import clades_of_linkage, clades_of_newick, newick_of_linkage, robinson_foulds
from mcpca.context_tree import context_linkage
from mcpca.datasets import make_contexts
from mcpca.exceptions import UnequalNoiseWarning

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


def test_contexts_of_equal_noise_are_not_relatives():
    """Two kinds of contexts, each once with little noise and once with much; exact covariances."""
    A = np.linalg.qr(np.random.default_rng(0).standard_normal((15, 3)))[0]
    kinds = {"a": [3.0, 1.0, 0.5], "b": [1.0, 3.0, 0.4]}
    names = [f"{kind} {noise}" for kind in kinds for noise in (0.1, 4.0)]
    B = np.array([kinds[name[0]] for name in names]) * np.array([[1.0], [1.1], [0.9], [1.05]])
    floors = np.array([float(name[2:]) for name in names])
    S = np.einsum("pr,kr,qr->kpq", A, B, A) + floors[:, None, None] * np.eye(15)
    with pytest.warns(UnequalNoiseWarning):
        model = MCPCA(3, random_state=0).fit_covariances(S, context_names=names, n_samples=[500] * 4)
    known = "(('a 0.1','a 4.0'),('b 0.1','b 4.0'));"
    tree = analysis.context_tree(model, metric="euclidean")
    assert tree.distance(known) == 0
    assert "These are corrected loadings: the noise of each context is taken out." in str(tree)
    fooled = analysis.context_tree(model, metric="euclidean", corrected=False)
    assert fooled.distance("(('a 0.1','b 0.1'),('a 4.0','b 4.0'));") == 0
    assert "These are loadings as fitted: the noise of each context is in them." in str(fooled)
    for corrected, expected in ((True, tree), (False, fooled)):
        table = analysis.tree_distances(model, known, metric="euclidean", corrected=corrected)
        assert table["distance"].tolist() == [expected.distance(known)]
        assert table["loadings"].tolist() == [expected.loadings]
    X = {name: np.random.default_rng(1).standard_normal((20, 15)) for name in names}
    assert analysis.context_tree(model, features="variances", X=X).loadings is None
    with pytest.raises(ValueError, match="corrected=False has no effect, because it is about loadings, and features="):
        analysis.context_tree(model, features="variances", X=X, corrected=False)


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


def test_a_known_tree_is_itself():
    newick = "(((human, chimp), (gorilla, 'old world')), mouse, (cow, dog, 'naked mole rat'));"
    tree = ContextTree.from_newick(newick)
    assert tree.distance(newick) == 0
    assert tree.distance(newick, rooted=False) == 0
    # Levels: pairs are at 1, the four apes at 2, everything at 3; three children are two joins at one height.
    assert sorted(tree.linkage[:, 2].tolist()) == [1, 1, 1, 1, 2, 3, 3]
    assert tree.linkage[-1, 3] == 8
    resolved = "(((human, chimp), (gorilla, 'old world')), (mouse, ((cow, dog), 'naked mole rat')));"
    assert tree.distance(resolved) == 2  # (cow, dog) and what is joined with the mouse
    assert ContextTree.from_newick(resolved).distance(newick) == 2
    part = ContextTree.from_newick(newick, ["mouse", "chimp", "human", "cow"])
    assert part.contexts == ["mouse", "chimp", "human", "cow"]
    assert part.distance("((human, chimp), mouse, cow);") == 0
    assert "A known tree of 4 contexts" in str(part)
    for wrong in (["human", "elephant"], ["human"], ["human", "human"]):
        with pytest.raises(ValueError, match="must be two or more different leaves of known"):
            ContextTree.from_newick(newick, wrong)


def test_a_tree_remembers_its_metric(rng):
    X, y = rng.standard_normal((60, 5)), np.repeat(["a", "b", "c"], 20)
    model = MCPCA(3, random_state=0).fit(X, y)
    assert analysis.context_tree(model, metric="cosine").metric == "cosine"
    assert analysis.context_tree(model, features="means", X=X, y=y, metric="euclidean").metric == "euclidean"
    assert ContextTree.from_newick("((a, b), c);").metric is None


# Support


@pytest.fixture(scope="module")
def kin():
    """Loadings of four species, of which the first two and the last two are close kin."""
    B = np.array([[4, 0.2, 2, 0.5], [4, 0.3, 1.9, 0.5], [0.3, 3, 0.4, 2], [0.3, 3.1, 0.3, 1.2]])
    rng = np.random.default_rng(3)
    A = rng.standard_normal((12, 4)) / np.sqrt(12)
    X = np.concatenate([rng.standard_normal((300, 4)) * np.sqrt(b) @ A.T for b in B])
    X += 0.1 * rng.standard_normal(X.shape)
    y = np.repeat(["a", "b", "c", "d"], 300)
    return MCPCA(4, random_state=0).fit(X, y), X, y


@pytest.mark.parametrize("corrected", [True, False])
def test_support_is_the_share_of_resamples_with_a_clade(kin, corrected):
    model, X, y = kin
    tree = analysis.context_tree(model, corrected=corrected)
    draws = model.bootstrap(X, y, n=12, corrected=corrected, random_state=0)
    found = tree.support(draws, "(((a,c),b),d);").set_index("clade")
    trees = [context_linkage(B, method="average", metric="correlation") for B in draws.loadings]
    for clade, row in found.iterrows():
        of = [frozenset(clade.split(", ")) in clades_of_linkage(one, list("abcd")) for one in trees]
        assert row["support"] == pytest.approx(np.mean(of))
    assert found.loc["a, b", "support"] == found.loc["c, d", "support"] == 1
    assert found["in tree"].to_dict() == {"a, b": True, "c, d": True, "a, c": False, "a, b, c": False}
    assert found["in known"].to_dict() == {"a, b": False, "c, d": False, "a, c": True, "a, b, c": True}
    assert found.loc["a, c", "support"] == 0
    assert list(tree.support(draws).columns) == ["clade", "in tree", "support"]


def test_support_is_refused_where_it_says_nothing(kin):
    model, X, y = kin
    draws = model.bootstrap(X, y, n=2, random_state=0)
    with pytest.raises(ValueError, match="The tree is by means; support is that of trees of loadings"):
        analysis.context_tree(model, features="means", X=X, y=y).support(draws)
    with pytest.raises(ValueError, match="The tree has corrected=False and the bootstrap corrected=True; make both"):
        analysis.context_tree(model, corrected=False).support(draws)
    with pytest.raises(ValueError, match="bootstrap has no loadings of resamples"):
        analysis.context_tree(model).support(model)
    some = np.isin(y, ["a", "b", "c"])
    fewer = MCPCA(4, random_state=0).fit(X[some], y[some])
    with pytest.raises(ValueError, match="bootstrap has 4 contexts and the tree 3; both are to be of one model"):
        analysis.context_tree(fewer).support(draws)
    with pytest.raises(ValueError, match="known lacks 1 of the 4 contexts"):
        analysis.context_tree(model).support(draws, "((a,b),c);")


# Trees by group of rows

ORGANS = ("brain", "heart", "liver")


def species_by_organ(n=60):
    """Rows of five species in three organs: covariances follow the tree in brain and heart, means of organs do not.

    In the liver two loadings are exchanged between marmoset and human, which makes another tree.
    """
    rng = np.random.default_rng(3)
    carried = ["11110000", "11110000", "11101000", "11000110", "00001011"]
    B = (0.5 + 5 * np.array([[int(one) for one in row] for row in carried])) * (1 + 0.3 * rng.random((5, 8)))
    A = rng.standard_normal((12, 8))
    A /= np.linalg.norm(A, axis=0)
    X, y, organ = [], [], []
    for one in ORGANS:
        for name, b in zip(NAMES, B[[4, 1, 2, 3, 0]] if one == "liver" else B, strict=True):
            mean = 8 * rng.standard_normal(12)
            X.append((rng.standard_normal((n, 8)) * np.sqrt(b)) @ A.T + mean)
            y += [name] * n
            organ += [one] * n
    return np.vstack(X), np.array(y), np.array(organ)


@pytest.fixture(scope="module")
def by_organ():
    X, y, organ = species_by_organ(200)
    model = MCPCA(8, noise="isotropic", random_state=0)
    return X, y, organ, model, analysis.trees_by_group(model, PRIMATES, organ, X=X, y=y, resamples=8, random_state=0)


def test_trees_by_organ_and_pooled(by_organ):
    X, y, organ, _, found = by_organ
    table = found.table
    assert list(dict.fromkeys(table["group"])) == ["all", *ORGANS]
    assert set(table["rows"][table["group"] != "all"]) == {1000}
    distance = table.set_index(["group", "features"])["distance"]
    assert distance["brain", "loadings"] == distance["heart", "loadings"] == 0
    # Over all organs a covariance has the means of organs in it, which are of no tree; in the liver it is another tree.
    assert distance["liver", "loadings"] > 0
    for name in ORGANS:
        assert distance[name, "means"] > 0
    assert not found.left_out
    # Each is what context_tree says of the rows of that organ.
    own = organ == "heart"
    there = MCPCA(8, noise="isotropic", random_state=0).fit(X[own], y[own])
    for features in ("loadings", "means", "covariances", "variances"):
        rows = {} if features == "loadings" else {"X": X[own], "y": y[own]}
        tree = analysis.context_tree(there, features=features, **rows)
        np.testing.assert_allclose(found.trees["heart"][features].linkage, tree.linkage)
        row = table[(table["group"] == "heart") & (table["features"] == features)].iloc[0]
        assert row["distance"] == tree.distance(PRIMATES)
        assert row["normalized"] == tree.distance(PRIMATES, normalized=True)
        assert row["newick"] == tree.newick()
    pooled = analysis.context_tree(MCPCA(8, noise="isotropic", random_state=0).fit(X, y))
    np.testing.assert_allclose(found.trees["all"]["loadings"].linkage, pooled.linkage)


def test_support_by_organ(by_organ):
    X, y, organ, model, found = by_organ
    table = found.table.set_index(["group", "features"])
    # Human and chimpanzee carry the same: their clade is sure, by loadings, where the known tree made the rows.
    clades = found.clades.set_index(["group", "features", "clade"])
    assert clades["support"]["brain", "loadings", "chimp, human"] > 0.9
    assert table["support"]["brain", "loadings"] > table["support"]["brain", "means"]
    assert table["support"]["brain", "loadings"] > 0.8 > table["support"]["liver", "loadings"]
    assert (table["right"] <= table["support"] + 1e-12).all()
    for (group, features), own in found.clades.groupby(["group", "features"]):
        known = own["in known"].astype(bool)
        assert known.sum() == 3
        assert table["support"][group, features] == pytest.approx(own["support"][known].mean())
        assert own["in tree"].sum() == 3
    # Loadings of resamples are those of model.bootstrap, clustered as ContextTree.support does it.
    own = organ == "brain"
    there = MCPCA(8, noise="isotropic", random_state=0).fit(X[own], y[own])
    draw = np.random.default_rng(0).spawn(4)[1].spawn(2)[0]
    draws = there.bootstrap(X[own], y[own], n=8, random_state=draw)
    expected = analysis.context_tree(there).support(draws, PRIMATES)
    mine = found.clades[(found.clades["group"] == "brain") & (found.clades["features"] == "loadings")]
    assert mine["support"].tolist() == expected["support"].tolist()
    again = analysis.trees_by_group(model, PRIMATES, organ, X=X, y=y, resamples=8, rng=0)
    assert again.table.equals(found.table)
    assert again.clades.equals(found.clades)
    assert "The known tree is found, of 4, by loadings in" in str(found)


def test_groups_with_too_little_are_left_out_and_say_why():
    X, y, organ = species_by_organ(20)
    by = organ.astype(object)
    by[(organ == "liver") & ~np.isin(y, NAMES[:2])] = None  # two species have a liver
    heart = np.flatnonzero(organ == "heart")
    by[heart[y[heart] == "marmoset"][1:]] = None  # one heart of a marmoset
    model = MCPCA(3, random_state=0)
    found = analysis.trees_by_group(model, PRIMATES, by, X=X, y=y, metric="euclidean", method="complete")
    assert list(found.left_out) == ["liver"]
    assert "2 contexts have 2 rows or more there, and a tree needs 3" in found.left_out["liver"]
    assert "Left out: liver, 2 contexts have" in found.summary()
    counts = found.table.groupby("group")["contexts"].first().to_dict()
    assert counts == {"all": 5, "brain": 5, "heart": 4}
    assert found.clades is None
    assert "support" not in found.table
    assert "marmoset" not in found.trees["heart"]["means"].contexts
    # A model that does not fit to so few rows is a reason too; to all rows it is an error.
    few = np.flatnonzero(organ == "brain")[[0, 1, 20, 21, 40, 41]]
    by = np.array(["rest"] * len(y), dtype=object)
    by[few] = "few"
    found = analysis.trees_by_group(MCPCA(8, noise="isotropic", random_state=0), PRIMATES, by, X=X, y=y)
    assert "n_components=8" in found.left_out["few"]
    with pytest.raises(ValueError, match="n_components=13"):
        analysis.trees_by_group(MCPCA(13), PRIMATES, by, X=X, y=y)


def test_bad_groups_are_refused():
    X, y, organ = species_by_organ(10)
    model = MCPCA(3, random_state=0)
    for change, message in (
        ({"by": organ[:5]}, r"by has shape \(5,\); pass one value for each of the 150 rows"),
        ({"by": "organ"}, "by='organ' would be a column of obs"),
        ({"known": "(human,chimp);"}, "known lacks 3 of the 5 contexts among its leaves"),
        ({"pooled": "brain"}, "pooled='brain' is the name of a group of by too"),
        ({"X": X[None]}, r"X has 3 dimension\(s\); pass one matrix of all rows"),
        ({"min_rows": 1}, "min_rows"),
        ({"resamples": -1}, "resamples"),
        ({"by": [None] * 150, "pooled": None}, "by has no group, and pooled is None"),
        ({"pooled": None, "min_rows": 11}, "No group of by has a tree: brain: 0 contexts have 11 rows"),
    ):
        given = {"known": PRIMATES, "by": organ, "X": X, "y": y} | change
        with pytest.raises(ValueError, match=message):
            analysis.trees_by_group(model, **given)
    with pytest.raises(TypeError, match="model is a str; pass an MCPCA"):
        analysis.trees_by_group("model", PRIMATES, organ, X=X, y=y)
