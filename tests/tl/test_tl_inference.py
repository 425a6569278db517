"""What is asked about a fit in an AnnData: the answers of ``MCPCA`` itself, stored, and back from files."""

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp

import mcpca
from mcpca import MCPCA, DroppedContextsWarning
from mcpca._results.anndata_inference import (
    fields_content,
    stored_associations,
    stored_bootstrap,
    stored_dependence,
    stored_replicability,
)
from mcpca.analysis import Association, associate
from mcpca.datasets import make_contexts

ad = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")

pytestmark = [
    pytest.mark.filterwarnings("ignore:zarr v3 autosharding:UserWarning"),
    pytest.mark.filterwarnings("ignore:Writing zarr v2 data:UserWarning"),
]

K, P, R, N = 6, 12, 3, 40
GENES = np.array([f"gene{j}" for j in range(P)])
MASK = np.arange(P) % 4 != 1


def draw(seed=3, n=N, dtype=np.float64):
    """Cells in random order, with means that differ between patients, a stage by patient, and a mask of genes."""
    data = make_contexts(K, P, R, n_samples=n, noise=0.1, random_state=seed)
    order = np.random.default_rng(seed).permutation(len(data.X))
    y = data.y[order]
    X = data.X[order] + 0.3 * y[:, None]
    X[np.abs(X) < 0.05] = 0
    obs = pd.DataFrame(
        {"patient": pd.Categorical([f"p{i}" for i in y]), "stage": y // 2 + 1.0, "form": np.array(["a", "b"])[y % 2]},
        index=[f"cell{i}" for i in range(len(y))],
    )
    return ad.AnnData(sp.csr_matrix(X.astype(dtype)), obs=obs, var=pd.DataFrame({"chosen": MASK}, index=GENES))


@pytest.fixture
def adata():
    cells = draw()
    mcpca.tl.mcpca(cells, "patient", n_comps=R)
    return cells


def same_arrays(first, second):
    """Fields of two results are equal to the last bit."""
    for name, value in vars(first).items():
        twin = getattr(second, name)
        if hasattr(value, "columns"):
            pd.testing.assert_frame_equal(value, twin, check_exact=True)
        elif isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, twin, err_msg=name)
        else:
            assert value == twin, name
    return True


# Replicability


def test_replicability_is_that_of_the_model(adata):
    result = mcpca.tl.replicability(adata, n_splits=3, rng=5)
    model = MCPCA(R, random_state=0).fit(adata, "patient")
    assert same_arrays(result, model.replicability(adata, "patient", n_splits=3, random_state=5))
    stored = adata.uns["mcpca"]["replicability"]
    table = stored["table"]
    assert table.index.tolist() == ["MCPC 1", "MCPC 2", "MCPC 3"]
    np.testing.assert_array_equal(table["agreement"], result.agreement)
    np.testing.assert_array_equal(table["spread"], result.spread)
    assert table["replicates"].tolist() == result.replicates.tolist()
    assert (stored["params"]["n_splits"], stored["params"]["random_state"]) == (3, 5)
    assert "loadings" in adata.uns["mcpca"]  # beside the fit, which stays


@pytest.mark.parametrize("where", ["layer", "mask", "obsm", "pca"])
def test_rows_are_those_that_the_fit_remembers(where):
    adata = draw()
    X = adata.X.toarray()
    options = {}
    if where == "layer":
        adata.layers["scaled"] = adata.X.multiply(np.linspace(0.5, 1.5, P)).tocsr()
        options, X = {"layer": "scaled"}, adata.layers["scaled"].toarray()
    elif where == "mask":
        options, X = {"mask_var": "chosen"}, X[:, MASK]
    else:
        key = "X_pca" if where == "pca" else "X_other"
        axes = np.linalg.qr(np.random.default_rng(0).standard_normal((P, 5)))[0]
        adata.obsm[key] = X @ axes
        if where == "pca":
            adata.varm["PCs"] = axes
        options, X = {"obsm": key}, adata.obsm[key]
    adata.obs.loc[adata.obs_names[:7], "patient"] = None  # rows that are not fitted stay out
    with pytest.warns(DroppedContextsWarning, match="7 of 240 rows"):
        mcpca.tl.mcpca(adata, "patient", n_comps=R, missing="drop", key_added="fit", **options)
    fitted_rows = adata.obs["patient"].notna().to_numpy()
    y = adata.obs["patient"][fitted_rows].astype(str).to_numpy()
    twin = MCPCA(R, random_state=0).fit(X[fitted_rows], y)
    result = mcpca.tl.replicability(adata, key="fit", n_splits=2)
    # Rows of the twin are dense, so that sums may differ in the last bits.
    np.testing.assert_allclose(result.cosines, twin.replicability(X[fitted_rows], y, 2, random_state=0).cosines, 1e-6)


def test_order_of_features_does_not_matter(adata):
    result = mcpca.tl.replicability(adata, n_splits=2)
    turned = adata[:, ::-1].copy()
    np.testing.assert_array_equal(mcpca.tl.replicability(turned, n_splits=2).cosines, result.cosines)


def test_a_backed_matrix_gives_the_same(adata, tmp_path):
    result = mcpca.tl.replicability(adata, n_splits=2)
    spread = mcpca.tl.bootstrap(adata, n=4)
    adata.write_h5ad(tmp_path / "cells.h5ad")
    backed = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    assert same_arrays(mcpca.tl.replicability(backed, n_splits=2), result)
    assert same_arrays(mcpca.tl.bootstrap(backed, n=4), spread)


def test_rows_on_dask(adata):
    da = pytest.importorskip("dask.array")
    here = [mcpca.tl.replicability(adata, n_splits=2).cosines, mcpca.tl.bootstrap(adata, n=3).standard_errors]
    adata.X = da.from_array(adata.X.toarray(), chunks=(50, P))
    there = [mcpca.tl.replicability(adata, n_splits=2).cosines, mcpca.tl.bootstrap(adata, n=3).standard_errors]
    for found, expected in zip(there, here, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert isinstance(adata.X, da.Array)


# Bootstrap


def test_context_dependence_is_that_of_the_model(adata):
    X, y = adata.X, adata.obs["patient"]
    found = mcpca.tl.context_dependence(adata, n_splits=2, n_permutations=39, rng=1)
    expected = (
        MCPCA(R, random_state=0).fit(X, y).context_dependence(X, y, n_splits=2, n_permutations=39, random_state=1)
    )
    np.testing.assert_array_equal(found.p_values, expected.p_values)
    stored = adata.uns["mcpca"]["context_dependence"]
    assert list(stored["table"].columns) == ["p", "q", "dependent", "dispersion"]
    assert list(stored["table"].index) == ["MCPC 1", "MCPC 2", "MCPC 3"]
    np.testing.assert_array_equal(stored["table"]["dependent"], found.dependent)
    assert stored["params"]["random_state"] == 1
    assert stored["outcome"] == found.outcome == "dependent"
    np.testing.assert_array_equal(stored_dependence(adata, "mcpca").variances, found.variances)
    assert stored_dependence({}, "mcpca") is None
    # Whole donors, by a column of obs.
    adata.obs["donor"] = [f"d{i}" for i in np.arange(len(adata)) % 24]
    assert mcpca.tl.context_dependence(adata, groups="donor", n_splits=1, n_permutations=19).by == "groups"


@pytest.mark.parametrize("form", ["h5ad", "zarr"])
def test_context_dependence_comes_back_from_files_and_is_shown(adata, tmp_path, form):
    if form == "zarr":
        pytest.importorskip("zarr")
    found = mcpca.tl.context_dependence(adata, n_splits=1, n_permutations=39)
    path = tmp_path / f"cells.{form}"
    getattr(adata, f"write_{form}")(path)
    back = getattr(ad, f"read_{form}")(path)
    same = stored_dependence(back, "mcpca")
    np.testing.assert_array_equal(same.p_values, found.p_values)
    assert same.outcome == found.outcome
    cards = mcpca.analysis.describe(back)
    for j, card in enumerate(cards.values()):
        (line,) = [line for line in card.splitlines() if line.startswith("Is it of the contexts")]
        assert f"q = {found.q_values[j]:.2g}" in line
        assert ("it differs between contexts" in line) == found.dependent[j]
    assert "Is it of the contexts" not in mcpca.analysis.describe(back, context_dependence=None)["MCPC 1"]
    with pytest.raises(TypeError, match="context_dependence is a int"):
        mcpca.analysis.describe(back, context_dependence=3)
    mcpca.pl.plot_context_dependence(back).figure.clear()


def test_bootstrap_is_that_of_the_model(adata):
    result = mcpca.tl.bootstrap(adata, n=6, confidence=0.9, rng=1)
    model = MCPCA(R, random_state=0).fit(adata, "patient")
    assert same_arrays(result, model.bootstrap(adata, "patient", n=6, confidence=0.9, random_state=1))
    stored = adata.uns["mcpca"]["bootstrap"]
    for name in ("lower", "upper", "standard_errors", "bias"):
        assert stored[name].index.tolist() == adata.uns["mcpca"]["loadings"].index.tolist()
        np.testing.assert_array_equal(stored[name], getattr(result, name))
    np.testing.assert_array_equal(stored["angle_bounds"]["degrees"], result.angle_bounds)
    assert "loadings" not in stored  # n k r numbers
    assert str(stored_bootstrap(adata, "mcpca")) == str(result)


# Association


def test_association_is_that_of_the_analysis(adata):
    result = mcpca.tl.associate(adata, "stage", n_pcs=3)
    assert same_arrays(result, associate(adata, "stage", n_pcs=3))
    (stored,) = stored_associations(adata, "mcpca", Association)
    assert same_arrays(stored, result)
    # Another covariate, and another quantity, stand beside it; the same replaces it.
    mcpca.tl.associate(adata, "form", n_pcs=0)
    mcpca.tl.associate(adata, "stage", of="sd", n_pcs=0)
    mcpca.tl.associate(adata, "stage", n_pcs=0)
    assert sorted(adata.uns["mcpca"]["associations"]) == ["form", "stage", "stage (sd)"]
    assert stored_associations(adata, "mcpca", Association)[1].pc_sds is None


def test_seeds_of_associations(adata):
    covariate = dict(zip(adata.uns["mcpca"]["loadings"].index, [0.3, 0.1, 0.9, 0.5, 0.2, 0.7], strict=True))
    many = draw(n=8)
    y = np.arange(many.n_obs) % 24
    many.obs["patient"] = pd.Categorical([f"q{i:02d}" for i in y])
    many.obs["dose"] = (y * 7 % 24).astype(float)
    mcpca.tl.mcpca(many, "patient", n_comps=2, min_samples=2)
    result = mcpca.tl.associate(many, "dose", n_pcs=0, permutations=99, rng=3)
    assert same_arrays(result, associate(many, "dose", n_pcs=0, permutations=99, random_state=3))
    with pytest.raises(ValueError, match="permutations=5 gives no p-value"):
        mcpca.tl.associate(many, "dose", n_pcs=0, permutations=5)
    # Values by context go as well, under a name that files can hold.
    mcpca.tl.associate(adata, pd.Series(covariate, name="a/b"), n_pcs=0)
    assert list(adata.uns["mcpca"]["associations"]) == ["a|b"]
    mcpca.tl.associate(adata, "stage", n_pcs=0, name="by stage")
    assert list(adata.uns["mcpca"]["associations"]) == ["a|b", "by stage"]
    with pytest.raises(ValueError, match="name='a/b'; pass a name without"):
        mcpca.tl.associate(adata, "stage", name="a/b")


def test_tables_of_any_index_come_back(adata, tmp_path):
    """Fields that results may have one day: rows with several names or none, nothing, and text."""

    @dataclass
    class Result:
        effects: object
        plain: object
        words: tuple
        notes: tuple = ()
        number: float | None = None
        other: str = "as it was"

    rows = pd.MultiIndex.from_product([["MCPC 1", "MCPC 2"], ["stage", "age"]], names=["mcpc", "term"])
    effects = pd.DataFrame({"effect": [1.0, np.nan, 3.0, 4.0], "found": [True, False] * 2}, index=rows)
    result = Result(effects, effects.reset_index(), ("a", "b"))
    adata.uns["mcpca"]["associations"] = {"x": fields_content(result)}
    adata.write_h5ad(tmp_path / "cells.h5ad")
    for cells in (adata, ad.read_h5ad(tmp_path / "cells.h5ad")):
        (again,) = stored_associations(cells, "mcpca", Result)
        pd.testing.assert_frame_equal(again.effects, effects)
        pd.testing.assert_frame_equal(again.plain, effects.reset_index(), check_index_type=False)
        assert (again.words, again.notes, again.number, again.other) == (("a", "b"), (), None, "as it was")


# Files, and what happens to stored results


@pytest.mark.parametrize("form", ["h5ad", "zarr"])
def test_everything_comes_back_from_files(adata, tmp_path, form):
    if form == "zarr":
        pytest.importorskip("zarr")
    agreement = mcpca.tl.replicability(adata, n_splits=2)
    single = mcpca.tl.replicability(adata, n_splits=1)  # whose spread is NaN
    spread = mcpca.tl.bootstrap(adata, n=4, corrected=False)
    tested = mcpca.tl.associate(adata, "stage", n_pcs=2, split=2)
    mcpca.tl.associate(adata, "form", n_pcs=0)
    path = tmp_path / f"cells.{form}"
    getattr(adata, f"write_{form}")(path)
    again = getattr(ad, f"read_{form}")(path)
    assert same_arrays(stored_replicability(again, "mcpca"), single)
    assert agreement.cosines.shape == (2, R)
    kept = stored_bootstrap(again, "mcpca")
    assert kept.loadings is None
    for name in ("lower", "upper", "standard_errors", "bias", "angles", "angle_bounds"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(spread, name), err_msg=name)
    assert (kept.confidence, kept.n_failed, kept.corrected) == (0.95, 0, False)
    form_result, stage_result = stored_associations(again, "mcpca", Association)
    assert same_arrays(stage_result, tested)
    assert str(stage_result) == str(tested)
    assert form_result.covariate == "form"
    # The fit itself still comes back.
    np.testing.assert_array_equal(mcpca.tl.model(again).components_, mcpca.tl.model(adata).components_)


def test_results_go_with_their_fit(adata):
    mcpca.tl.replicability(adata, n_splits=1)
    mcpca.tl.rank(adata, "patient", ranks=[2, 3], criteria=(), n_splits=2)
    assert {"rank", "replicability", "loadings"} <= set(adata.uns["mcpca"])
    mcpca.tl.mcpca(adata, "patient", n_comps=2)
    assert "replicability" not in adata.uns["mcpca"]


def test_rows_that_are_gone(adata):
    some = adata[50:].copy()
    with pytest.warns(UserWarning, match=r"adata has 190 rows in the contexts.* which was made on 240"):
        result = mcpca.tl.replicability(some, n_splits=1)
    model = mcpca.tl.model(adata)
    y = some.obs["mcpca_context"].astype(str)
    np.testing.assert_allclose(result.cosines, model.replicability(some, y, 1, random_state=0).cosines, 1e-6)
    with pytest.raises(ValueError, match=r"1 of 6 contexts of the fit have fewer than 2 rows left in adata: p2 \(0\)"):
        mcpca.tl.bootstrap(adata[adata.obs["patient"] != "p2"].copy(), n=2)
    del adata.obs["mcpca_context"]
    with pytest.raises(ValueError, match=r"adata.obs\['mcpca_context'\], the contexts of the fit, no longer exists"):
        mcpca.tl.replicability(adata)


def test_matrices_that_are_gone():
    adata = draw()
    adata.layers["scaled"] = adata.X * 2
    adata.obsm["X_some"] = adata.X.toarray()[:, :5]
    mcpca.tl.mcpca(adata, "patient", n_comps=2, layer="scaled")
    mcpca.tl.mcpca(adata, "patient", n_comps=2, obsm="X_some", key_added="five")
    adata.obsm["X_some"] = adata.obsm["X_some"][:, :4]
    with pytest.raises(ValueError, match=r"obsm\['X_some'\] with 5 columns, which now has 4"):
        mcpca.tl.replicability(adata, key="five")
    del adata.layers["scaled"]
    with pytest.raises(ValueError, match=r"The fit was made on adata.layers\['scaled'\], which no longer exists"):
        mcpca.tl.replicability(adata)
    with pytest.raises(ValueError, match="of which adata has lost 1 \\('gene0'\\)"):
        mcpca.tl.replicability(adata[:, 1:].copy())


def test_there_must_be_a_fit(adata):
    for asked in (mcpca.tl.replicability, mcpca.tl.bootstrap, lambda a, key: mcpca.tl.associate(a, "stage", key=key)):
        with pytest.raises(ValueError, match=r"key='mpca' names no fit.*did you mean 'mcpca'"):
            asked(adata, key="mpca")
    with pytest.raises(TypeError, match="adata is a ndarray, not an AnnData"):
        mcpca.tl.replicability(np.eye(3))


# Random numbers


def test_rng_is_the_preferred_name(adata):
    by_rng = mcpca.tl.replicability(adata, n_splits=2, rng=7)
    assert same_arrays(by_rng, mcpca.tl.replicability(adata, n_splits=2, random_state=7))
    assert same_arrays(mcpca.tl.replicability(adata, n_splits=2), mcpca.tl.replicability(adata, n_splits=2, rng=0))
    # Whatever was passed, the stored integer repeats the run.
    for rng in (np.random.default_rng(1), np.random.SeedSequence(1), np.random.PCG64(1), [1, 2], None):
        result = mcpca.tl.replicability(adata, n_splits=2, rng=rng)
        seed = adata.uns["mcpca"]["replicability"]["params"]["random_state"]
        assert same_arrays(result, mcpca.tl.replicability(adata, n_splits=2, rng=seed))
    # Like numpy's, a Generator goes on, and a SeedSequence does not.
    rng = np.random.default_rng(1)
    first, second = (mcpca.tl.replicability(adata, n_splits=2, rng=rng) for _ in range(2))
    assert (first.cosines != second.cosines).any()


@pytest.mark.parametrize("name", ["mcpca", "rank", "replicability", "bootstrap", "associate"])
def test_one_of_both_names(adata, name):
    asked = getattr(mcpca.tl, name)
    arguments = {"mcpca": ("patient",), "rank": ("patient",), "associate": ("stage",)}.get(name, ())
    before = set(adata.uns["mcpca"])
    with pytest.raises(TypeError, match="rng and random_state are both given"):
        asked(adata, *arguments, rng=0, random_state=0)
    for wrong in (True, -1, "seed", 0.5, np.random.RandomState(0)):
        with pytest.raises(ValueError, match=r"is nothing that numpy\.random\.default_rng takes"):
            asked(adata, *arguments, rng=wrong)
    with pytest.raises(ValueError, match="random_state='seed'"):
        asked(adata, *arguments, random_state="seed")
    assert set(adata.uns["mcpca"]) == before


def test_rng_of_fits_and_ranks():
    first, second = draw(), draw()
    mcpca.tl.mcpca(first, "patient", n_comps=R, rng=4)
    mcpca.tl.mcpca(second, "patient", n_comps=R, random_state=4)
    np.testing.assert_array_equal(first.varm["MCPCs"], second.varm["MCPCs"])
    assert first.uns["mcpca"]["params"]["random_state"] == 4
    options = {"ranks": [2, 3], "criteria": (), "n_splits": 2}
    by_rng = mcpca.tl.rank(first, "patient", rng=4, **options)
    assert by_rng.to_json() == mcpca.tl.rank(first, "patient", random_state=4, **options).to_json()


# What reads them


def test_cards_say_what_is_stored(adata):
    plain = mcpca.analysis.describe(adata)["MCPC 1"]
    assert "not assessed" in plain
    assert "Covariate" not in plain
    agreement = mcpca.tl.replicability(adata, n_splits=2)
    spread = mcpca.tl.bootstrap(adata, n=4)
    tested = [mcpca.tl.associate(adata, name, n_pcs=0) for name in ("form", "stage")]
    card = mcpca.analysis.describe(adata)["MCPC 1"]
    assert card.count("Covariate:") == 2
    assert "in halves of the rows (mean |cos|" in card
    assert "95% of resamples stay within" in card
    # The same cards as with the results themselves; and none with None.
    one = mcpca.analysis.describe(adata, association=tested, sure=agreement)
    other = mcpca.analysis.describe(adata, association=tested[1], sure=spread)
    assert [line for line in card.splitlines() if "Covariate" in line] == [
        line for line in one["MCPC 1"].splitlines() if "Covariate" in line
    ]
    assert other["MCPC 1"].count("Covariate:") == 1
    assert mcpca.analysis.describe(adata, association=None, sure=None)["MCPC 1"] == plain


def test_pictures_show_what_is_stored(adata):
    pytest.importorskip("matplotlib").use("Agg")
    pl = mcpca.pl

    def names(ax):
        ax.figure.canvas.draw()
        return [tick.get_text() for tick in ax.get_xticklabels()]

    assert names(pl.plot_loadings(adata)) == ["MCPC 1", "MCPC 2", "MCPC 3"]
    result = mcpca.tl.replicability(adata, n_splits=2, threshold=0.9999)
    ax = pl.plot_loadings(adata)
    expected = [f"MCPC {j + 1}" if again else f"(MCPC {j + 1})" for j, again in enumerate(result.replicates)]
    assert names(ax) == expected
    assert "(MCPC 1)" in expected
    assert "not found again\nin halves of the rows" in ax.get_xlabel()
    mcpca.tl.replicability(adata, n_splits=2, threshold=1, by="contexts")
    assert "in halves of the contexts" in pl.plot_loadings(adata).get_xlabel()
    assert names(pl.plot_loadings(adata, replicability=None)) == ["MCPC 1", "MCPC 2", "MCPC 3"]
    # Lines from the lower to the upper end of each interval.
    spread = mcpca.tl.bootstrap(adata, n=4)
    for covariate in ("stage", "form"):
        ax = pl.plot_covariate(adata, 1, covariate)
        ends = np.array([path.vertices[:, 1] for path in ax.collections[-1].get_paths()])
        np.testing.assert_allclose(ends, np.column_stack([spread.lower[:, 1], spread.upper[:, 1]]))
        assert ax.get_ylim()[1] > spread.upper[:, 1].max()
    # Other loadings have other intervals.
    n_collections = len(pl.plot_covariate(adata, 1, "stage", intervals=None).collections)
    assert len(pl.plot_covariate(adata, 1, "stage", corrected=False).collections) == n_collections
    with pytest.raises(ValueError, match="intervals are of loadings with corrected=True"):
        pl.plot_covariate(adata, 1, "stage", corrected=False, intervals=spread)
    with pytest.raises(TypeError, match="intervals is a Replicability"):
        pl.plot_covariate(adata, 1, "stage", intervals=result)
    with pytest.raises(TypeError, match="replicability is a Bootstrap"):
        pl.plot_loadings(adata, replicability=spread)
    mcpca.tl.mcpca(adata, "patient", n_comps=2, key_added="two")
    with pytest.raises(ValueError, match="replicability is of 3 MCPCs, and the fit has 2"):
        pl.plot_loadings(adata, key="two", replicability=result)
    with pytest.raises(ValueError, match=r"intervals are of \(6, 3\) loadings, and the fit has \(6, 2\)"):
        pl.plot_covariate(adata, 1, "stage", key="two", intervals=spread)
    pytest.importorskip("matplotlib.pyplot").close("all")


def test_reports_show_what_is_stored(adata, tmp_path):
    pytest.importorskip("plotly")
    from mcpca.report import render

    mcpca.tl.rank(adata, "patient", ranks=[2, 3], criteria=(), n_splits=2)
    agreement = mcpca.tl.replicability(adata, n_splits=2)
    spread = mcpca.tl.bootstrap(adata, n=4)
    model = mcpca.tl.model(adata)
    selection = mcpca.RankSelection.from_json(adata.uns["mcpca"]["rank"]["json"])
    page = render(adata)
    shown = {"selection": selection, "replicability": agreement}
    assert page == render(model, X=adata, y="patient", standard_errors=spread, **shown)
    # Intervals of other loadings than the page shows are left out.
    assert render(adata, corrected=False) == render(model, X=adata, y="patient", corrected=False, **shown)
    adata.write_h5ad(tmp_path / "cells.h5ad")
    assert render(ad.read_h5ad(tmp_path / "cells.h5ad")) == page
    with pytest.raises(ValueError, match="an AnnData brings its own rows"):
        render(adata, X=adata)
    with pytest.raises(ValueError, match="key='other' has no effect"):
        render(model, key="other")


def test_fits_that_were_read_lazily(adata, tmp_path):
    """Results that stay in the file until they are asked for; rows are on Dask then."""
    pytest.importorskip("dask")
    pytest.importorskip("xarray")
    read_lazy = getattr(ad.experimental, "read_lazy", None)
    if read_lazy is None:
        pytest.skip("this anndata reads nothing lazily")
    result = mcpca.tl.replicability(adata, n_splits=1)
    adata.write_h5ad(tmp_path / "cells.h5ad")
    lazy = read_lazy(tmp_path / "cells.h5ad")
    assert same_arrays(stored_replicability(lazy, "mcpca"), result)
    new = draw(5)
    mcpca.tl.transform(new, "patient", model=lazy)
    mcpca.tl.transform(new, "patient", model=adata, key="mcpca", key_added="twin")
    np.testing.assert_array_equal(new.obsm["X_mcpca"], new.obsm["X_twin"])
    assert same_arrays(mcpca.tl.associate(lazy, "stage", n_pcs=0), associate(adata, "stage", n_pcs=0))
    np.testing.assert_allclose(mcpca.tl.replicability(lazy, n_splits=1).cosines, result.cosines, rtol=1e-6)
