"""Pictures of analyses show the numbers of their tables, where they belong and under the right name."""

import itertools

import matplotlib

matplotlib.use("Agg")

import anndata
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from matplotlib.colors import to_rgba
from planted_maps import CONTEXTS, axes_of, planted_model
from stored_fit import stored_fit

import mcpca
from mcpca import MCPCA, RankChoice, choose_rank
from mcpca.analysis import (
    ContextTree,
    associate,
    compare_with_pca,
    context_tree,
    enrichment,
    group_medians,
    link_recall,
    survival,
    temporal_order,
    tree_distances,
    trees_by_group,
)
from mcpca.datasets import make_contexts
from mcpca.plotting import (
    plot_components,
    plot_context_tree,
    plot_contexts,
    plot_covariances,
    plot_enrichment,
    plot_forest,
    plot_group_medians,
    plot_group_trees,
    plot_link_recall,
    plot_pc_p_values,
    plot_pca_comparison,
    plot_rank_choice,
    plot_rank_heatmap,
    plot_rank_selection,
    plot_row_images,
    plot_scores,
    plot_survival,
    plot_temporal_order,
    plot_tree_distances,
)
from mcpca.plotting._common import CATEGORIES
from mcpca.plotting._survival import numbers_at_risk

NAMES = ["brain", "colon", "liver", "skin"]


@pytest.fixture(autouse=True)
def _closed():
    assert plt.get_fignums() == []
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def data():
    truth = make_contexts(4, 12, 3, n_samples=60, noise=0.2, random_state=2)
    return pd.DataFrame(truth.X, columns=[f"gene {i}" for i in range(12)]), np.array(NAMES)[truth.y]


@pytest.fixture(scope="module")
def model(data):
    return MCPCA(3, random_state=0).fit(*data)


@pytest.fixture(scope="module")
def survived(model, data):
    """High scores on MCPC 2 halve the time to the event."""
    rng = np.random.default_rng(0)
    z = model.transform(*data)[:, 1]
    t = rng.exponential(20 * np.exp(-0.7 * z / z.std()))
    end = rng.uniform(10, 60, len(t))
    age = pd.DataFrame({"age": rng.normal(60, 9, len(t))})
    return survival(model, np.minimum(t, end), t < end, X=data[0], y=data[1], covariates=age.set_axis(data[0].index))


def texts(ax):
    return [text.get_text() for text in ax.texts]


def labels(ticks):
    return [tick.get_text() for tick in ticks]


def no_overlap(boxes):
    return not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


# Survival ------------------------------------------------------------------------------------------------------------


def test_survival_draws_the_curves_of_the_mcpc_with_the_smallest_p(survived):
    ax = plot_survival(survived, label="months")
    name = survived.table["p"].idxmin()
    assert name == "MCPC 2"
    assert ax.get_legend().get_title().get_text() == "score on MCPC 2"
    for line, group in zip([li for li in ax.lines if li.get_drawstyle() == "steps-post"], ("high", "low"), strict=True):
        own = survived.curves.query("component == @name and group == @group")
        np.testing.assert_array_equal(line.get_xdata(), own["time"])
        np.testing.assert_array_equal(line.get_ydata(), own["survival"])
        assert line.get_label() == f"{group} (n = 120)"
    assert ax.get_xlabel() == "months"
    assert f"log-rank p = {survived.table.loc[name, 'logrank_p']:.0e}" in ax.get_title()
    other = plot_survival(survived, 0)
    assert other.get_legend().get_title().get_text() == "score on MCPC 1"
    assert survived.plot(0).axes[0].get_title() == other.get_title()


def test_censored_rows_are_ticks_where_the_curve_does_not_fall(survived):
    ax = plot_survival(survived, intervals=False)
    own = survived.curves.query("component == 'MCPC 2' and group == 'high'")
    s = own["survival"].to_numpy()
    ticks = next(line for line in ax.lines if line.get_marker() == "|")
    np.testing.assert_array_equal(ticks.get_xdata(), own["time"].to_numpy()[1:][s[1:] == s[:-1]])
    assert len(ticks.get_xdata()) > 3
    assert not ax.collections
    assert plot_survival(survived).collections


def test_numbers_at_risk_are_those_under_observation(survived):
    rng = np.random.default_rng(1)
    t = rng.integers(1, 20, 30).astype(float)
    times = np.unique(np.append(0, t))
    at_risk = np.array([(t >= one).sum() for one in times])
    when = [0, 3, 7.5, 19, 25]
    assert numbers_at_risk(times, at_risk, when) == [int((t >= one).sum()) for one in when]
    ax = plot_survival(survived)
    shown = {"120"}
    assert shown <= set(texts(ax))
    assert {"at risk", "high", "low"} <= set(texts(ax))
    assert not texts(plot_survival(survived, at_risk=False))
    ax.figure.canvas.draw()
    assert no_overlap([text.get_window_extent() for text in ax.texts] + [ax.xaxis.label.get_window_extent()])


def test_a_model_without_a_solution_is_told(survived):
    table = survived.table.copy()
    table.loc["MCPC 1", ["hazard_ratio", "lower", "upper", "p"]] = np.nan
    broken = type(survived)(table, survived.curves, None)
    assert "Cox's model has no solution" in plot_survival(broken, 0).get_title()
    assert "MCPC 2" in plot_survival(broken).get_title()  # NaN is not the smallest
    ax = plot_forest(broken, model="each")
    assert "–" in texts(ax)
    with pytest.raises(ValueError, match=r"no table for model='joint': the model of all has no solution\. Pass"):
        plot_forest(broken)


def test_forest_has_a_line_for_each_predictor(survived):
    ax = plot_forest(survived)
    assert labels(ax.get_yticklabels()) == ["age", "MCPC 1", "MCPC 2", "MCPC 3"]
    drawn = {int(li.get_ydata()[0]): li for li in ax.lines if li.get_marker() == "o"}
    for i, row in enumerate(survived.joint.itertuples()):
        assert drawn[i].get_xdata()[0] == pytest.approx(np.log2(row.hazard_ratio))
        assert (drawn[i].get_markerfacecolor() != "white") == (row.p < 0.05)
    assert "ratio (95% interval)" in texts(ax)
    each = plot_forest(survived, model="each")
    assert labels(each.get_yticklabels()) == ["MCPC 1", "MCPC 2", "MCPC 3"]
    naive = plot_forest(survived, model="selected")
    assert "naive p" in texts(naive)
    assert "naive" in naive.get_title(loc="left")


def test_forest_of_a_logistic_model_has_odds_ratios_for_a_standard_deviation():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((80, 3)) * [1.0, 10.0, 0.1], columns=["MCPC 5", "PC 2", "PC 6"])
    late = rng.random(80) < 1 / (1 + np.exp(-1.5 * table["MCPC 5"] - 0.05 * table["PC 2"]))
    found = mcpca.analysis.logistic_model(late, table)
    ax = plot_forest(found)
    assert labels(ax.get_yticklabels()) == ["MCPC 5", "PC 2", "PC 6"]  # without the intercept
    assert ax.get_xlabel() == "odds ratio for one standard deviation"
    # The slope of the standardised predictor is the logarithm of the ratio.
    standardised = mcpca.analysis.logistic_model(late, (table - table.mean()) / table.std(ddof=0))
    drawn = {int(li.get_ydata()[0]): li.get_xdata()[0] for li in ax.lines if li.get_marker() == "o"}
    for i, name in enumerate(table.columns):
        assert drawn[i] == pytest.approx(standardised.loc[name, "coefficient"] / np.log(2))
    with pytest.raises(ValueError, match="model='each' has no effect, because a logistic model is one; drop it"):
        plot_forest(found, model="each")


def test_survival_input_is_named(survived):
    for plot in (plot_survival, plot_forest):
        with pytest.raises(TypeError, match=r"result is a DataFrame; pass what analysis\.survival"):
            plot(survived.table)
    with pytest.raises(ValueError, match="model='all'; choose 'joint', 'selected' or 'each'"):
        plot_forest(survived, model="all")
    with pytest.raises(ValueError, match="component='MCPC 7' is not an MCPC"):
        plot_survival(survived, "MCPC 7")


# What PCA sees -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def associated():
    """Twelve contexts whose second MCPC grows with the covariate; no PC is as close."""
    truth = make_contexts(12, 10, 3, n_samples=80, noise=0.1, random_state=0)
    model = MCPCA(3, random_state=0).fit(truth.X, truth.y)
    noise = 0.03 * np.random.default_rng(0).normal(size=12)
    stage = pd.Series(model.corrected_loadings_[:, 1] + noise, index=model.contexts_, name="stage")
    return associate(model, stage, X=truth.X, y=truth.y, n_pcs=8)


def test_points_are_p_values_of_pcs_and_lines_those_of_mcpcs(associated):
    ax = plot_pc_p_values(associated)
    points = np.concatenate([c.get_offsets() for c in ax.collections])
    points = points[np.argsort(points[:, 0])]
    np.testing.assert_array_equal(points[:, 0], np.arange(1, 9))
    np.testing.assert_allclose(points[:, 1], -np.log10(associated.pc_sds["p"]))
    lines = [li for li in ax.lines if li.get_label().startswith("MCPC")]
    assert [li.get_label().split(",")[0] for li in lines] == associated.significant
    np.testing.assert_allclose(
        [li.get_ydata()[0] for li in lines], -np.log10(associated.table.loc[associated.significant, "p"])
    )
    bound = next(li for li in ax.lines if li.get_linestyle() == ":")
    assert bound.get_ydata()[0] == pytest.approx(-np.log10(0.05 / 8))
    assert ax.get_ylabel() == "-log10 p of PC standard deviations"
    assert ax.get_title().startswith("stage: ")
    assert associated.plot().axes[0].get_title() == ax.get_title()


def test_means_of_pcs_and_chosen_mcpcs(associated):
    ax = plot_pc_p_values(associated, ["MCPC 3", 0], of="mean")
    points = np.concatenate([c.get_offsets() for c in ax.collections])
    np.testing.assert_allclose(np.sort(points[:, 1]), np.sort(-np.log10(associated.pc_means["p"])))
    assert [li.get_label().split(",")[0] for li in ax.lines if li.get_label().startswith("MCPC")] == [
        "MCPC 3",
        "MCPC 1",
    ]
    assert ax.get_ylabel() == "-log10 p of PC means"


def test_significant_pcs_are_named_and_untested_ones_left_out(associated):
    table = associated.pc_sds.copy()
    table["p"] = [1e-9, 0.5, np.nan, 0.0, 0.3, 0.2, 0.9, 0.7]
    table["significant"] = table["p"] * 8 <= 0.05
    changed = type(associated)(**{**vars(associated), "pc_sds": table})
    ax = plot_pc_p_values(changed)
    assert sum(len(c.get_offsets()) for c in ax.collections) == 7
    assert set(texts(ax)) == {"PC 1", "PC 4"}
    assert np.isfinite(ax.get_ylim()).all()


def test_pc_p_values_need_rows(associated):
    with pytest.raises(TypeError, match=r"result is a DataFrame; pass what analysis\.associate returned"):
        plot_pc_p_values(associated.table)
    with pytest.raises(ValueError, match="of='variance'; choose 'auto', 'sd' or 'mean'"):
        plot_pc_p_values(associated, of="variance")
    without = type(associated)(**{**vars(associated), "pc_sds": None, "pc_means": None})
    with pytest.raises(ValueError, match=r"result has no tests of PCs; call associate with rows"):
        plot_pc_p_values(without)


def test_pcs_are_points_beside_an_mcpc(model, data):
    groups = dict(zip(NAMES, ["a", "a", "b", "b"], strict=True))
    found = compare_with_pca(model, X=data[0], y=data[1], groups=groups, n_top=30, n_pcs=6, n_random=19)
    ax = plot_pca_comparison(found, "MCPC 2")
    own = found.pairs[found.pairs["component"] == "MCPC 2"]
    assert [c.get_label() for c in ax.collections] == ["all rows", "a", "b"]
    for drawn in ax.collections:
        part = own[own["rows"] == drawn.get_label()]
        np.testing.assert_array_equal(drawn.get_offsets(), part[["overlap", "variance_correlation"]])
    best = found.best.query("component == 'MCPC 2' and rows == 'all rows'").iloc[0]
    dotted = [li for li in ax.lines if li.get_linestyle() == ":"]
    assert dotted[0].get_xdata()[0] == best["overlap_chance"]
    assert dotted[1].get_ydata()[0] == best["variance_correlation_chance"]
    assert ax.get_xlabel() == "share of the 30 rows at an end"
    swapped = plot_pca_comparison(found, 1, x="cosine", y="overlap")
    np.testing.assert_array_equal(
        swapped.collections[0].get_offsets(), own[own["rows"] == "all rows"][["cosine", "overlap"]]
    )
    assert found.plot(1).axes[0].get_title() == "PCs beside MCPC 2"
    with pytest.raises(ValueError, match=r"x='angle'; choose one of \['cosine', 'variance_correlation', 'overlap'\]"):
        plot_pca_comparison(found, x="angle")
    with pytest.raises(ValueError, match="x and y are both 'cosine'; choose two different measures"):
        plot_pca_comparison(found, x="cosine", y="cosine")
    with pytest.raises(TypeError, match=r"result is a DataFrame; pass what analysis\.compare_with_pca returned"):
        plot_pca_comparison(found.pairs)


def test_many_contexts_share_a_marker_and_chance_may_be_missing():
    truth = make_contexts(9, 8, 2, n_samples=30, noise=0.1, random_state=0)
    model = MCPCA(2, random_state=0).fit(truth.X, truth.y)
    ax = plot_pca_comparison(compare_with_pca(model, X=truth.X, y=truth.y, n_top=20, n_pcs=3, n_random=0))
    assert [c.get_label() for c in ax.collections] == ["all rows", "9 contexts"]
    assert len(ax.collections[1].get_offsets()) == 27
    assert not [li for li in ax.lines if li.get_linestyle() == ":"]


# Over time -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def medians(model, data):
    works = [f"{name} work {i % 6}" for i, name in enumerate(data[1])]
    return group_medians(model, works, X=data[0], y=data[1])


def test_medians_stand_at_their_time_with_boxes(medians):
    times = {name: ["1800", "1820"][int(name[-1]) % 2] for name in medians.index}
    kinds = {name: "gut" if name.startswith(("colon", "liver")) else "other" for name in medians.index}
    ax = plot_group_medians(medians, "MCPC 1", times, kinds)
    assert [c.get_label() for c in ax.collections] == ["gut", "other"]
    for g, drawn in enumerate(ax.collections):
        own = [name for name in medians.index if kinds[name] == drawn.get_label()]
        x, height = drawn.get_offsets().T
        np.testing.assert_array_equal(height, medians.loc[own, "MCPC 1"])
        assert [round(one) for one in x] == [int(times[name] == "1820") for name in own]
        # The first group is left of the time, the second right of it.
        assert ((x - np.round(x)) * (2 * g - 1) > 0).all()
    assert labels(ax.get_xticklabels()) == ["1800", "1820"]
    assert len([li for li in ax.lines if li.get_linewidth() == 1.4]) == 4  # medians of boxes
    highest = medians["MCPC 1"].idxmax()
    assert highest in texts(ax)
    assert not texts(plot_group_medians(medians, 0, times, named=0))


def test_many_times_are_an_axis_of_numbers(medians):
    years = pd.Series(np.linspace(1800, 1900, len(medians)), index=medians.index, name="year")
    ax = plot_group_medians(medians, 1, years[::-1], named=2)
    assert ax.get_xlabel() == "year"
    np.testing.assert_allclose(ax.collections[0].get_offsets(), np.column_stack([years, medians["MCPC 2"]]))
    assert len(ax.texts) == 4
    days = pd.Series(pd.to_datetime("1859-11-24") + pd.to_timedelta(np.arange(len(medians)), "D"), index=medians.index)
    days.iloc[0] = pd.NaT
    dated = plot_group_medians(medians, 1, days)
    assert "1 without a value left out" in dated.get_title()
    dated.figure.canvas.draw()


def test_medians_errors(medians):
    with pytest.raises(TypeError, match=r"medians is a ndarray; pass what analysis\.group_medians returned"):
        plot_group_medians(medians.to_numpy(), 0, range(24))
    with pytest.raises(ValueError, match="group has 24 values, and markers can be told apart for up to 8"):
        plot_group_medians(medians, 0, np.arange(24) % 3, group=[f"g{i}" for i in range(24)])
    with pytest.raises(ValueError, match="No row of medians has both a time and a group"):
        plot_group_medians(medians, 0, [1, *[None] * 23], group=[None, *["a"] * 23])
    with pytest.raises(ValueError, match="named=-1 is out of bounds"):
        plot_group_medians(medians, 0, np.arange(24) % 3, named=-1)


def test_graph_of_order_has_nodes_at_their_peaks():
    B = np.array([[9.0, 0.1], [2, 1], [1, 5], [1, 0.2], [8, 1], [2, 6]])
    names = [f"{form} {year}" for form in ("fiction", "science") for year in (1800, 1820, 1840)]
    model = planted_model(B, names, p=12)
    form, year = ([name.split()[i] for name in names] for i in (0, 1))
    found = temporal_order(model, [int(one) for one in year], form, corrected=False)
    ax = plot_temporal_order(found)
    nodes = [text for text in ax.texts if text.get_text()]
    assert [text.get_text() for text in nodes] == list(found.nodes["component"])
    assert [text.get_position()[0] for text in nodes] == list(found.nodes["place"])
    assert len([text for text in ax.texts if not text.get_text()]) == len(found.edges)  # arrows
    assert labels(ax.get_yticklabels()) == ["fiction", "science"]
    assert labels(ax.get_xticklabels()) == ["1800", "1820", "1840"]
    ax.figure.canvas.draw()
    assert no_overlap([text.get_window_extent() for text in nodes])
    assert len(found.plot().axes) == 1
    with pytest.raises(TypeError, match=r"result is a DataFrame; pass what analysis\.temporal_order returned"):
        plot_temporal_order(found.nodes)


# Rows on a plane, axes and covariances -------------------------------------------------------------------------------


def test_contexts_are_points_on_the_plane_of_all_rows(model, data):
    X, y = data
    ax = plot_contexts(model, X, y, contexts=["liver", "brain"])
    _, _, V = np.linalg.svd(X.to_numpy() - X.to_numpy().mean(axis=0), full_matrices=False)
    for name in ("liver", "brain"):
        own = X.to_numpy()[y == name] @ V[:2].T
        own -= own.mean(axis=0)
        colour = to_rgba(CATEGORIES[NAMES.index(name)])[:3]
        drawn = np.concatenate(
            [c.get_offsets() for c in ax.collections if np.allclose(c.get_facecolor()[0][:3], colour)]
        )
        for column in range(2):  # the sign of a PC is a convention
            np.testing.assert_allclose(np.sort(np.abs(drawn[:, column])), np.sort(np.abs(own[:, column])), atol=1e-8)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["liver", "brain"]
    assert ax.get_xlabel().startswith("PC 1 of all rows (")


def test_lines_are_pcs_of_contexts_and_arrows_mcpcs(model, data):
    X, y = data
    ax = plot_contexts(model, X, y, contexts=["skin"], own_pcs=1, arrow=2, components=[0], center="context")
    rows = X.to_numpy()
    V = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2][:2].T
    own = rows[y == "skin"]
    _, s, W = np.linalg.svd(own - own.mean(axis=0), full_matrices=False)
    half = 2 * s[0] / np.sqrt(len(own) - 1) * (W[0] @ V)
    ends = ax.lines[-1].get_xydata()  # the white one comes before
    np.testing.assert_allclose(np.abs(ends), np.abs(np.stack([half, half])), atol=1e-8)
    tip = next(text.xy for text in ax.texts if text.get_text() == "")
    expected = 2 * np.sqrt(model.loadings_[NAMES.index("skin"), 0]) * (model.components_[:, 0] @ V)
    np.testing.assert_allclose(np.abs(tip), np.abs(expected), atol=1e-8)
    assert not [
        li
        for li in plot_contexts(model, X, y, own_pcs=0).lines
        if len(li.get_xdata()) == 2 and li.get_color() == CATEGORIES[0]
    ]


def test_contexts_of_an_anndata_and_many_rows(data):
    X, y = data
    adata, _ = stored_fit(X.to_numpy(), y, 3, obs={"organ": y})
    ax = plot_contexts(adata, max_rows=40, center="overall")
    assert ax.get_title().startswith("40 of 240 rows")
    assert sum(len(c.get_offsets()) for c in ax.collections) == 40
    figure = plot_covariances(adata, n=5)
    assert len([one for one in figure.axes if one.images]) == 8
    in_obsm, _ = stored_fit(X.to_numpy(), y, 3, obsm="X_pca", obs={"organ": y})
    assert plot_contexts(in_obsm).get_title().startswith("240 rows")


def test_sparse_rows_give_the_same_plane_and_covariances(data):
    X, y = data
    rows = X.to_numpy() * (np.abs(X.to_numpy()) > 0.2)
    model = MCPCA(3, random_state=0).fit(rows, y)
    pictures = [plot_contexts(model, one, y, own_pcs=1) for one in (rows, scipy.sparse.csr_array(rows))]
    points = [np.concatenate([c.get_offsets() for c in ax.collections]) for ax in pictures]
    np.testing.assert_allclose(points[0], points[1], atol=1e-10)
    panels = [plot_covariances(model, one, y).axes[4] for one in (rows, scipy.sparse.csr_array(rows))]
    np.testing.assert_allclose(*[np.asarray(panel.images[0].get_array()) for panel in panels], atol=1e-12)


def test_contexts_errors(model, data):
    with pytest.raises(ValueError, match="contexts: entry='lung' is not a context"):
        plot_contexts(model, *data, contexts=["lung"])
    with pytest.raises(ValueError, match="center='all'; choose 'context' or 'overall'"):
        plot_contexts(model, *data, center="all")
    with pytest.raises(ValueError, match="pcs asks for principal component 13 and X has 12"):
        plot_contexts(model, *data, pcs=(0, 12))
    with pytest.raises(ValueError, match="A fitted model keeps no rows"):
        plot_contexts(model)
    truth = make_contexts(9, 4, 2, n_samples=10, random_state=0)
    many = MCPCA(2, random_state=0).fit(truth.X, truth.y)
    with pytest.raises(ValueError, match="contexts names 9 contexts, and 1 to 8 can be told apart"):
        plot_contexts(many, truth.X, truth.y, contexts=range(9))
    assert len(plot_contexts(many, truth.X, truth.y).get_legend().get_texts()) == 8


def test_heatmap_of_a_shows_the_axes_with_their_signs(model):
    ax = plot_components(model)
    np.testing.assert_array_equal(np.asarray(ax.images[0].get_array()), model.components_)
    largest = np.abs(model.components_).max()
    assert ax.images[0].get_clim() == (-largest, largest)
    assert labels(ax.get_yticklabels()) == [f"gene {i}" for i in range(12)]
    few = plot_components(model, n=4, components=["MCPC 2"])
    kept = np.sort(np.argsort(-np.abs(model.components_[:, 1]))[:4])
    np.testing.assert_array_equal(np.asarray(few.images[0].get_array())[:, 0], model.components_[kept, 1])
    assert few.get_title() == "4 of 12 features"
    clustered = plot_components(model, order="cluster", names=[f"n{i}" for i in range(12)])
    order = [int(one[1:]) for one in labels(clustered.get_yticklabels())]
    np.testing.assert_array_equal(np.asarray(clustered.images[0].get_array()), model.components_[order])
    assert sorted(order) == list(range(12))
    with pytest.raises(ValueError, match="order='size'; choose 'given' or 'cluster'"):
        plot_components(model, order="size")


def test_covariances_of_the_model_above_those_of_rows(model, data):
    X, y = data
    figure = plot_covariances(model, X, y, order="given")
    panels = [ax for ax in figure.axes if ax.images]
    A, B = model.components_, model.loadings_
    for i, name in enumerate(NAMES):
        np.testing.assert_allclose(np.asarray(panels[i].images[0].get_array()), A @ np.diag(B[i]) @ A.T)
        np.testing.assert_allclose(np.asarray(panels[4 + i].images[0].get_array()), np.cov(X[y == name].T))
        assert panels[i].get_title() == name
    assert len([ax for ax in plot_covariances(model, contexts=["skin"]).axes if ax.images]) == 1
    with pytest.raises(TypeError, match="ax is a Axes; this needs a whole Figure"):
        plot_covariances(model, ax=matplotlib.figure.Figure().add_subplot())
    with pytest.raises(ValueError, match="contexts is empty"):
        plot_covariances(model, contexts=[])


def test_rows_are_images_with_the_mean_first(model, data):
    X, y = data
    figure = plot_row_images(model, (3, 4), X, y, n=5, contexts=["skin", "brain"])
    assert len(figure.axes) == 12
    mean = X[y == "skin"].to_numpy().mean(axis=0)
    np.testing.assert_allclose(np.asarray(figure.axes[0].images[0].get_array()).ravel(), mean)
    shown = np.asarray(figure.axes[1].images[0].get_array()).ravel()
    assert (np.abs(X[y == "skin"].to_numpy() - shown).max(axis=1) < 1e-12).sum() == 1
    assert figure.axes[6].get_ylabel() == "brain"
    assert len(plot_row_images(model, (3, 4), X, y, n=2, mean=False).axes) == 8
    with pytest.raises(ValueError, match=r"shape=\(3, 5\) has 15 pixels"):
        plot_row_images(model, (3, 5), X, y)


def test_scores_of_groups_of_contexts_are_drawn_together(model, data):
    X, y = data
    stage = pd.Categorical(["late", "early", "late", None], ["early", "late"], ordered=True)
    ax = plot_scores(model, 0, X, y, groups=stage, kind="box")
    assert labels(ax.get_yticklabels()) == ["early", "late"]
    Z = (X.to_numpy() - np.stack([X.to_numpy()[y == name].mean(axis=0) for name in y])) @ model.projection_[0]
    medians = [li.get_xdata()[0] for li in ax.lines if li.get_linewidth() == 1.6 and li.get_color() == "black"]
    np.testing.assert_allclose(medians, [np.median(Z[y == "colon"]), np.median(Z[(y == "brain") | (y == "liver")])])
    means = [model.loadings_[1, 0], model.loadings_[[0, 2], 0].mean()]
    assert [f"{one:.3g}" for one in means] == texts(ax)[:2]
    assert "mean loading" in texts(ax)
    assert labels(plot_scores(model, 0, X, y, groups=stage, contexts=["late"]).get_yticklabels()) == ["late"]


# Trees, links, gene sets, rank ---------------------------------------------------------------------------------------


def test_trees_of_any_features_and_known_trees_are_drawn(model, data):
    tree = context_tree(model, features="means", X=data[0], y=data[1], metric="euclidean")
    ax = plot_context_tree(tree)
    assert ax.get_xlabel() == "distance of means"
    assert sorted(labels(ax.get_yticklabels())) == NAMES
    heights = np.sort([seg[1, 0] for seg in ax.collections[0].get_segments()])
    np.testing.assert_allclose(heights, np.sort(tree.linkage[:, 2]))
    same = plot_context_tree(model).collections[0].get_segments()
    made = plot_context_tree(context_tree(model)).collections[0].get_segments()
    np.testing.assert_allclose(same, made)
    known = ContextTree.from_newick("((brain, skin), (colon, liver));").plot().axes[0]
    assert known.get_xlabel() == "a known tree (levels)"
    with pytest.raises(ValueError, match=r"metric='cosine'.*tree that was made before.*context_tree"):
        plot_context_tree(tree, metric="cosine")


def test_distances_of_trees_are_lines_with_filled_points_at_zero():
    truth = make_contexts(4, 8, 4, n_samples=40, noise=0.1, random_state=0)
    models = [MCPCA(r, random_state=0).fit(truth.X, truth.y) for r in (2, 3, 4)]
    known = context_tree(models[1]).newick()
    table = tree_distances(models, known, X=truth.X, y=truth.y)
    ax = plot_tree_distances(table)
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["loadings of MCPCs", "means of PCs", "covariances of PCs", "variances of PCs"]
    lines = ax.lines[1:]  # the first is the line at 0
    for i, feature in enumerate(dict.fromkeys(table["features"])):
        own = table[table["features"] == feature]
        np.testing.assert_array_equal(lines[2 * i].get_xdata(), own["number"])
        # A little apart, but less than half a clade.
        assert np.abs(lines[2 * i].get_ydata() - own["distance"]).max() < 0.5
        assert len(lines[2 * i + 1].get_xdata()) == (own["distance"] == 0).sum()
    assert len(lines[1].get_xdata()) >= 1
    assert plot_tree_distances(table, normalized=True).get_ylim()[1] < 1.2
    with pytest.raises(TypeError, match="table is a list without distances; pass what tree_distances returned"):
        plot_tree_distances([1])


def test_marks_of_group_trees_are_the_table():
    truth = make_contexts(4, 10, 3, n_samples=60, random_state=1)
    organ = np.where(np.arange(len(truth.y)) % 2, "brain", "heart")
    found = trees_by_group(
        MCPCA(3, noise="isotropic", random_state=0),
        "((0,1),(2,3));",
        organ,
        X=truth.X,
        y=truth.y,
        resamples=3,
        random_state=0,
    )
    for value in ("distance", "normalized", "support", "right"):
        ax = plot_group_trees(found, value=value)
        assert labels(ax.get_yticklabels()) == ["all (4)", "brain (4)", "heart (4)"]
        marks = [line for line in ax.lines if line.get_linestyle() == "None"]
        assert len(marks) == 8
        for i, name in enumerate(("loadings", "means", "covariances", "variances")):
            own = found.table[found.table["features"] == name]
            np.testing.assert_array_equal(marks[2 * i].get_xdata(), own[value])
            np.testing.assert_array_equal(np.round(marks[2 * i].get_ydata()), [0, 1, 2])
            assert len(marks[2 * i + 1].get_xdata()) == (own["distance"] == 0).sum()
    assert ax.get_ylim() == (2.5, -0.5)
    assert found.plot().axes[0].get_xlabel() == "clades in one tree only"
    without = trees_by_group(MCPCA(3, random_state=0), "((0,1),(2,3));", organ, X=truth.X, y=truth.y)
    with pytest.raises(ValueError, match="value='support' needs resamples; call trees_by_group with resamples=200"):
        plot_group_trees(without, value="support")
    with pytest.raises(ValueError, match="value='clades' is unknown; choose one of"):
        plot_group_trees(found, value="clades")
    with pytest.raises(TypeError, match="result is a DataFrame; pass what trees_by_group returned"):
        plot_group_trees(found.table)


@pytest.fixture(scope="module")
def recalled():
    truth = make_contexts(8, 10, 4, n_samples=40, noise=0.1, random_state=1)
    models = [MCPCA(r, random_state=0).fit(truth.X, truth.y) for r in (2, 3)]
    links = {"sets": {"a": ["0", "1", "2"], "b": ["3", "4"]}, "pairs": [("5", "6"), ("0", "7")]}

    def run(**options):
        return link_recall(models, links, X=truth.X, y=truth.y, n_pcs=4, max_sizes=(2, 3), permutations=19, **options)

    return run(), run(best=False)


def test_bars_are_recalls_with_chance_beside_them(recalled):
    table = recalled[0]
    ax = plot_link_recall(table)
    assert labels(ax.get_yticklabels()) == ["sets, sets to 2", "sets, sets to 3", "pairs"]
    assert sorted(bar.get_width() for bar in ax.patches) == sorted(table["recall"])
    marks = next(li for li in ax.lines if li.get_marker() == "|")
    assert sorted(marks.get_xdata()) == sorted(table["chance_upper"])
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == [*dict.fromkeys(table["features"]), "95% of chance"]
    # Bars of a collection are nearest to its name, and those of a description have its recalls.
    for name, bars in zip(dict.fromkeys(table["features"]), ax.containers, strict=True):
        assert [bar.get_width() for bar in bars] == list(table["recall"][table["features"] == name])
        assert [round(bar.get_y() + bar.get_height() / 2) for bar in bars] == [0, 1, 2]


def test_cells_are_recalls_by_features_and_number(recalled):
    best, every = recalled
    ax = plot_link_recall(every)
    shown = np.asarray(ax.images[0].get_array())
    assert shown.shape == (3, 7)  # means; loadings, sds and variances at two numbers each
    assert labels(ax.get_xticklabels()) == ["0", "2", "3", "2", "3", "2", "3"]
    loadings = every[every["features"] == "mean PCs + loadings"].pivot(
        index=["links", "max_size"], columns="number", values="recall"
    )
    assert sorted(shown[:, 1:3].ravel()) == sorted(loadings.to_numpy().ravel())
    frames = [patch for patch in ax.patches if patch.get_edgecolor() == (0, 0, 0, 1)]
    assert len(frames) == (every["p"] < 0.05).sum()
    cells = plot_link_recall(best, kind="heatmap")
    assert np.asarray(cells.images[0].get_array()).shape == (3, 4)
    with pytest.raises(ValueError, match="table has several numbers of one description; pass kind='heatmap'"):
        plot_link_recall(every, kind="bars")
    with pytest.raises(ValueError, match="kind='lines'; choose 'auto', 'bars' or 'heatmap'"):
        plot_link_recall(every, kind="lines")
    with pytest.raises(TypeError, match="table is a dict without recalls; pass what link_recall returned"):
        plot_link_recall({})


@pytest.mark.parametrize("method", ["over-representation", "ranked"])
def test_dots_are_sets_at_the_poles(method, model):
    a = model.components_[:, 0]
    order = np.argsort(-a)
    genes = np.array([f"gene {i}" for i in range(12)])
    sets = {"top": genes[order[:4]], "bottom": genes[order[-4:]], "any": genes[[0, 3, 6, 9]]}
    found = enrichment(model, sets, n=4, method=method)
    ax = plot_enrichment(found, q=0.2, components="MCPC 1")
    assert labels(ax.get_xticklabels()) == ["MCPC 1 +", "MCPC 1 −"]
    rows = labels(ax.get_yticklabels())
    assert rows[:2] == ["top", "bottom"]
    own = found[(found["component"] == "MCPC 1") & found["set"].isin(rows)]
    dots = ax.collections[0]
    assert len(dots.get_offsets()) == len(own)
    np.testing.assert_allclose(np.sort(np.asarray(dots.get_array())), np.sort(-np.log10(own["q"])))
    framed = dots.get_edgecolor()[:, 3] > 0
    assert framed.sum() == (own["q"] <= 0.2).sum()
    # The largest dots are those of the two planted sets at their poles.
    largest = dots.get_offsets()[np.argsort(-dots.get_sizes(), kind="stable")[:2]]
    assert {tuple(one) for one in largest} == {(0.0, 0.0), (1.0, 1.0)}
    with pytest.raises(ValueError, match="q=0: no set is as significant, the smallest q-value is"):
        plot_enrichment(found, q=0)
    with pytest.raises(TypeError, match=r"table is a list without gene sets; pass what analysis\.enrichment returned"):
        plot_enrichment([])


def test_choice_by_the_papers_rule_is_drawn_from_anything_that_has_it(data):
    X, y = data
    ranks = range(1, 6)
    model = MCPCA(None, rank_range=ranks, n_seed_pairs=4, random_state=0).fit(X, y)
    choice = model.rank_choice_
    ax = plot_rank_choice(model)
    curve = next(li for li in ax.lines if li.get_marker() == "o")
    np.testing.assert_array_equal(curve.get_ydata(), choice.mean_scores)
    assert f"rank {choice.rank}," in ax.get_title()
    assert any(li.get_xdata()[0] == choice.rank and li.get_linestyle() == "--" for li in ax.lines)
    assert any(li.get_ydata()[0] == choice.threshold and li.get_linestyle() == ":" for li in ax.lines)
    assert len([li for li in ax.lines if li.get_linewidth() == 1.2]) == 5  # medians of boxes
    band = ax.collections[0].get_paths()[0].vertices
    half = 2 * choice.scores.std(axis=1, ddof=1) / 2
    assert band[:, 1].min() == pytest.approx((choice.mean_scores - half).min())
    # What used to raise a TypeError that asked for what it was given.
    figure = plot_rank_selection(model)
    assert figure.axes[0].get_title() == ax.get_title()
    given = plt.figure()
    assert plot_rank_selection(choice, ax=given) is given
    with pytest.raises(
        TypeError, match=r"choice by the paper's rule, which compares runs at one rank.*run select_rank"
    ):
        plot_rank_heatmap(model, "context consistency")
    assert choice.plot().axes[0].get_ylabel() == "mean |cos| of 4 pairs of runs"
    adata = anndata.AnnData(X.to_numpy(), obs=pd.DataFrame({"organ": y}, index=X.index.astype(str)))
    mcpca.tl.mcpca(adata, "organ", n_comps=None, rank_range=ranks, n_seed_pairs=4, rng=0)
    stored = plot_rank_choice(adata)
    np.testing.assert_array_equal(
        next(li for li in stored.lines if li.get_marker() == "o").get_ydata(), curve.get_ydata()
    )
    assert stored.get_title() == ax.get_title()


def test_no_stable_rank_and_runs_without_an_end_are_told():
    scores = np.array([[0.9], [0.6], [0.5]])
    choice = RankChoice(None, "none stable", "", np.array([2, 3, 5]), scores, 0.95, np.ones(5), np.array([0, 2, 0]))
    ax = plot_rank_choice(choice)
    assert ax.get_title().startswith("no rank above the threshold (0.95, dotted)")
    assert "had not converged" in ax.get_title()
    assert not ax.collections  # one pair of runs has no spread
    ring = next(li for li in ax.lines if li.get_markerfacecolor() == "white")
    np.testing.assert_array_equal(ring.get_xdata(), [3])
    with pytest.raises(
        TypeError, match="source is a MCPCA without a choice by the paper's rule; pass what choose_rank"
    ):
        plot_rank_choice(planted_model())
    truth = np.einsum("pr,kr,qr->kpq", axes_of(8, 2), np.array([[2.0, 1], [1, 3]]), axes_of(8, 2))
    assert choose_rank(truth, [1, 2], n_seed_pairs=2, random_state=0).plot().axes
    assert len(CONTEXTS) == 6


@pytest.mark.parametrize(
    "draw",
    [
        lambda m, d, s, ax: plot_components(m, ax=ax),
        lambda m, d, s, ax: plot_contexts(m, *d, ax=ax),
        lambda m, d, s, ax: plot_survival(s, ax=ax),
        lambda m, d, s, ax: plot_forest(s, ax=ax),
        lambda m, d, s, ax: plot_context_tree(context_tree(m), ax=ax),
    ],
)
def test_given_axes_are_used_and_no_figure_is_opened(draw, model, data, survived):
    ax = matplotlib.figure.Figure().add_subplot()
    assert draw(model, data, survived, ax) is ax
    assert plt.get_fignums() == []
