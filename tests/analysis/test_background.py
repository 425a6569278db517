"""What sets are enriched against: the features of the fit, from every door."""

import anndata
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy.stats import hypergeom
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

import mcpca
import mcpca.analysis as analysis
from mcpca import MCPCA
from mcpca.datasets import make_contexts
from mcpca.plotting import plot_angles, plot_loadings, plot_plane, plot_top_features

FITTED, ALL = 300, 1200
GENES = np.array([f"g{j}" for j in range(ALL)])
CHOSEN = np.sort(np.random.default_rng(5).choice(ALL, FITTED, replace=False))


@pytest.fixture(scope="module")
def adata():
    """300 highly variable genes of 1200, in X and in a layer; PCs of these as scanpy has them, 0 for other genes."""
    data = make_contexts(4, FITTED, 3, n_samples=60, noise=0.5, random_state=0)
    X = np.random.default_rng(1).normal(scale=0.1, size=(len(data.X), ALL))
    X[:, CHOSEN] = data.X
    var = pd.DataFrame(
        {"highly_variable": np.isin(np.arange(ALL), CHOSEN), "symbol": np.char.upper(GENES)}, index=GENES
    )
    obs = pd.DataFrame({"patient": data.y.astype(str)}, index=[f"cell {i}" for i in range(len(X))])
    made = anndata.AnnData(X, obs=obs, var=var, layers={"twice": 2 * X})
    pca = PCA(20, random_state=0).fit(data.X)
    made.obsm["X_pca"], axes = pca.transform(data.X), np.zeros((ALL, 20))
    axes[CHOSEN] = pca.components_.T
    made.varm["PCs"] = axes
    for key, options in {
        "mcpca": {},
        "layer": {"layer": "twice", "mask_var": "highly_variable"},
        "pca": {"obsm": "X_pca"},
    }.items():
        mcpca.tl.mcpca(made, "patient", n_comps=3, key_added=key, **options)
    return made


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def doors(adata):
    """Each way to the same 300 genes: a source, and what goes with it."""
    rows = pd.DataFrame(adata.X[:, CHOSEN], columns=GENES[CHOSEN])
    pipeline = make_pipeline(PCA(20, random_state=0), MCPCA(3, random_state=0)).fit(rows, adata.obs["patient"])
    return {
        "model": (mcpca.tl.model(adata), {}),
        "AnnData": (adata, {}),
        "layer": (adata, {"key": "layer"}),
        "PCs in obsm": (adata, {"key": "pca"}),
        "model of PCs": (mcpca.tl.model(adata, "pca"), {"pca": adata.varm["PCs"].T, "names": adata.var_names}),
        "Pipeline": (pipeline, {}),
    }


@pytest.mark.parametrize("method", ["over-representation", "ranked"])
def test_random_sets_of_fitted_genes_are_as_significant_as_chance(adata, method):
    rng = np.random.default_rng(2)
    sets = {f"s{i}": list(rng.choice(GENES[CHOSEN], 30, replace=False)) for i in range(300)}
    n = {"n": 40} if method == "over-representation" else {}
    for door, (source, options) in doors(adata).items():
        p = analysis.enrichment(source, sets, method=method, **n, **options)["p"]
        share = (p <= 0.05).mean()
        least = 0.02 if method == "ranked" else 0.005
        assert least < share < 0.07, (door, share)
        # Not more, and not fewer, at any level: a discrete p-value is at most uniform, that of ranks is.
        for level in (0.1, 0.3, 0.5):
            assert (p <= level).mean() < level + 0.05, door
            assert method != "ranked" or (p <= level).mean() > level - 0.05, door


def test_gene_scores_have_the_same_rows_from_every_door(adata):
    for door, (source, options) in doors(adata).items():
        table = analysis.gene_scores(source, **options)
        assert table.index.tolist() == GENES[CHOSEN].tolist(), door
        assert table.columns.tolist() == ["MCPC 1", "MCPC 2", "MCPC 3"]
    pd.testing.assert_frame_equal(analysis.gene_scores(adata), analysis.gene_scores(mcpca.tl.model(adata)))
    for by in ("components", "projection"):
        full = "MCPCs" if by == "components" else "MCPCs_projection"
        np.testing.assert_allclose(analysis.gene_scores(adata, by=by), adata.varm[full][CHOSEN])


def test_what_goes_by_rows_goes_by_the_features_of_the_fit(adata):
    """Scores and PCs of an AnnData's rows are those of its model with the fitted genes, mask changed since or not."""
    changed = adata.copy()
    changed.var["highly_variable"] = ~changed.var["highly_variable"]
    X = pd.DataFrame(adata.X[:, CHOSEN], columns=GENES[CHOSEN])
    model, rows = mcpca.tl.model(adata), {"X": X, "y": adata.obs["patient"].to_numpy()}
    expected = analysis.compare_with_pca(model, n_pcs=4, n_top=20, **rows).pairs
    found = analysis.compare_with_pca(changed, n_pcs=4, n_top=20).pairs
    pd.testing.assert_frame_equal(found, expected)
    assert plot_plane(changed, "1").get_xlabel() == plot_plane(model, "1", **rows).get_xlabel()


def test_features_in_another_order_are_the_same_features(adata):
    order = np.random.default_rng(3).permutation(ALL)
    other = adata[:, order].copy()
    pd.testing.assert_frame_equal(analysis.gene_scores(other), analysis.gene_scores(adata))
    pd.testing.assert_frame_equal(analysis.gene_scores(other, key="pca"), analysis.gene_scores(adata, key="pca"))
    np.testing.assert_allclose(
        analysis.compare_with_pca(other, n_pcs=3, n_top=20).best["cosine"],
        analysis.compare_with_pca(adata, n_pcs=3, n_top=20).best["cosine"],
    )


def test_names_are_those_of_the_fitted_genes(adata):
    expected = np.char.upper(GENES[CHOSEN]).tolist()
    for given in ("symbol", adata.var["symbol"], adata.var["symbol"].iloc[CHOSEN]):
        assert analysis.gene_scores(adata, names=given).index.tolist() == expected
        assert analysis.top_features(adata, 5, names=given)["feature"].isin(expected).all()
    with pytest.raises(ValueError, match=r"names has 7 entries, but there are 300 features of the fit, and 1200 in"):
        analysis.gene_scores(adata, names=list("abcdefg"))


@pytest.mark.parametrize("key", ["mcpca", "pca"])
def test_an_anndata_that_has_lost_features_has_no_axes(adata, key):
    """Loadings are still there; what asks for the axes is told."""
    fewer = adata[:, np.setdiff1d(np.arange(ALL), CHOSEN[:2])].copy()
    assert plot_loadings(fewer, key=key) is not None
    for function in (analysis.gene_scores, plot_angles, lambda a, key: plot_top_features(a, 0, key=key)):
        with pytest.raises(ValueError, match=rf"made on 300 features, .* lost 2 \('{GENES[CHOSEN[0]]}'"):
            function(fewer, key=key)
    others = adata[:, np.union1d(CHOSEN, [0, 1, 2])].copy()
    pd.testing.assert_frame_equal(analysis.gene_scores(others, key=key), analysis.gene_scores(adata, key=key))


@pytest.mark.parametrize("key", ["mcpca", "pca"])
def test_files_that_do_not_name_the_features_are_read_by_what_is_not_zero(adata, key):
    old = adata.copy()
    old.uns[key].pop("features" if key == "mcpca" else "pca_features")
    pd.testing.assert_frame_equal(analysis.gene_scores(old, key=key), analysis.gene_scores(adata, key=key))


def test_cards_take_what_enrichment_found_against_the_fit(adata):
    sets = {f"s{i}": list(np.random.default_rng(i).choice(GENES[CHOSEN], 30, replace=False)) for i in range(50)}
    found = analysis.enrichment(adata, sets, n=40)
    cards = analysis.describe(adata, enriched=found)
    assert all(card.count("none at FDR < 0.001") == 2 for card in cards.values())


# A number


def test_a_number_is_the_population_as_enrichr_has_it(adata):
    """N genes in all, of which a set has its members, measured or not: the hypergeometric tail."""
    rng = np.random.default_rng(4)
    sets = {
        f"s{i}": [*rng.choice(GENES[CHOSEN], 20, replace=False), *(f"other {j}" for j in range(i))] for i in (5, 80)
    }
    found = analysis.enrichment(adata, sets, n=40, background=20_000)
    for row in found.itertuples():
        assert row.size == len(sets[row.set])
        assert row.expected == pytest.approx(40 * row.size / 20_000)
        assert row.p == pytest.approx(hypergeom.sf(row.overlap - 1, 20_000, row.size, 40))
    of_fit = analysis.enrichment(adata, sets, n=40)
    assert (found["overlap"].sum(), of_fit["size"].unique()) == (of_fit["overlap"].sum(), [20])
    # With the features of the fit for the population, and sets of nothing else, a number says what is the default.
    inside = {name: members[:20] for name, members in sets.items()}
    number, default = (analysis.enrichment(adata, inside, n=40, background=b) for b in (FITTED, None))
    pd.testing.assert_frame_equal(number, default)


@pytest.mark.parametrize(
    ("overlap", "size", "p"), [(44, 221, 8.6789e-45), (31, 90, 7.0265e-40), (23, 198, 4.1455e-18), (11, 19, 5.3391e-18)]
)
def test_p_values_of_the_papers_table_s1(overlap, size, p):
    """200 genes at a pole, Enrichr's 20,000: of all 3,426 rows of the table none is off by more than 2.2%."""
    scores = pd.DataFrame({"MCPC 1": np.linspace(1, -1, 1000)}, index=GENES[:1000])
    members = [*GENES[:overlap], *(f"other {j}" for j in range(size - overlap))]
    found = analysis.enrichment(scores, {"s": members}, background=20_000)
    row = found[found["pole"] == "positive"].iloc[0]
    assert (row["overlap"], row["size"]) == (overlap, size)
    assert row["p"] == pytest.approx(p, rel=0.022)


def test_numbers_that_cannot_be_are_refused(adata):
    sets = {"s": [*GENES[CHOSEN[:10]], *(f"other {j}" for j in range(100))]}
    with pytest.raises(ValueError, match=r"background=299 is out of bounds: background >= 300 .* 300 features of the"):
        analysis.enrichment(adata, sets, n=40, background=299)
    with pytest.raises(ValueError, match=r"background=350 is too few: 300 .* 100 members of the set 's'.* pass 400"):
        analysis.enrichment(adata, sets, n=40, background=350)
    with pytest.raises(ValueError, match=r"background=20000\.0 is not an integer"):
        analysis.enrichment(adata, sets, n=40, background=2e4)
    with pytest.raises(ValueError, match="background=True is not an integer"):
        analysis.enrichment(adata, sets, n=40, background=True)
    with pytest.raises(ValueError, match=r"a number, which has no effect: method='ranked' compares features"):
        analysis.enrichment(adata, sets, method="ranked", background=20_000)
    with pytest.raises(ValueError, match=r"no effect: method='enrichr' uses Enrichr's own 20,000"):
        analysis.enrichment(adata, "GO", method="enrichr", background=20_000)
