"""Maps of contexts and MCPCs show the model's numbers, in an order and with names that can be read."""

import itertools
import sys

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgba_array
from planted_maps import CONTEXTS, KINDS, B, axes_of, planted_model
from scipy.cluster.hierarchy import dendrogram
from sklearn.exceptions import NotFittedError
from stored_fit import stored_fit
from test_ranks import SCREE, selection

from mcpca import MCPCA, select_rank
from mcpca.context_tree import context_linkage
from mcpca.datasets import make_contexts
from mcpca.plotting import (
    plot_angles,
    plot_component_images,
    plot_context_tree,
    plot_loadings,
    plot_rank_heatmap,
    plot_rank_selection,
    plot_scree,
    plot_variance_explained,
)
from mcpca.plotting._annotations import _palette
from mcpca.plotting._common import CATEGORIES, shorten_all

SYSTEM = {"skin": "skin", "brain": "nerve", "liver": "gut", "colon": "gut", "kidney": "gut", "lung": "breath"}
ON_AXES = {
    "loadings": plot_loadings,
    "groups": lambda m, **k: plot_loadings(m, order="groups", annotations=SYSTEM, **k),
    "tree": plot_context_tree,
    "annotated tree": lambda m, **k: plot_context_tree(m, annotations=SYSTEM, **k),
    "explained": plot_variance_explained,
    "angles": plot_angles,
    "scree": plot_scree,
}
LONG = "a sample with a name that goes on and on, number "


@pytest.fixture(scope="module")
def model():
    return planted_model()


@pytest.fixture(scope="module")
def large():
    """200 contexts with long names, 50 MCPCs."""
    truth = make_contexts(200, 60, 50, n_samples=80, noise=0.05, random_state=0)
    names = [f"{LONG}{i}" for i in range(200)]
    return MCPCA(50, random_state=0).fit_covariances(truth.covariances, context_names=names)


@pytest.fixture(autouse=True)
def _no_open_figures():
    assert plt.get_fignums() == []
    yield
    plt.close("all")


def shown(ax):
    return np.ma.filled(np.ma.asarray(ax.images[0].get_array()), np.nan)


def labels(ticks):
    return [tick.get_text() for tick in ticks]


def strips(ax):
    """Colours (k, 4) of each annotation, by title."""
    return {
        child.get_xticklabels()[0].get_text(): shown(child)[:, 0]
        for child in ax.child_axes
        if child.images and child.get_xticklabels()
    }


def bare():
    """Axes without pyplot and without a layout."""
    return matplotlib.figure.Figure().add_subplot()


# All of them -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ON_AXES)
def test_given_axes_are_returned_and_no_figure_is_opened(name, model):
    ax = bare()
    assert ON_AXES[name](model, ax=ax) is ax
    assert plt.get_fignums() == []


@pytest.mark.parametrize("name", ON_AXES)
def test_model_must_be_fitted(name):
    with pytest.raises(NotFittedError):
        ON_AXES[name](MCPCA(3))


@pytest.mark.parametrize("name", ON_AXES)
def test_missing_matplotlib_names_the_extra(name, model, monkeypatch):
    for module in [n for n in sys.modules if n.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r'pip install "mcpca\[plot\]"'):
        ON_AXES[name](model)


@pytest.mark.parametrize("name", ON_AXES)
@pytest.mark.parametrize("own", [True, False])
def test_many_long_names_thin_out_and_do_not_overlap(name, own, large):
    """On a figure of its own, and on one of Matplotlib's size, where the names leave little room."""
    annotations = {f"{LONG}{i}": "abc"[i % 3] for i in range(200)}
    draw = {
        "groups": lambda m, **k: plot_loadings(m, order="groups", annotations=annotations, **k),
        "annotated tree": lambda m, **k: plot_context_tree(m, annotations=annotations, **k),
    }.get(name, ON_AXES[name])
    ax = draw(large) if own else draw(large, ax=plt.subplots(layout="constrained")[1])
    ax.figure.draw_without_rendering()
    for axis in (ax.xaxis, ax.yaxis):
        ticks = [tick.label1 if tick.label1.get_visible() else tick.label2 for tick in axis.get_major_ticks()]
        boxes = [text.get_window_extent() for text in ticks if text.get_text()]
        assert len(boxes) >= 2
        assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes))
    inside, drawn = ax.figure.bbox, ax.get_tightbbox()
    assert inside.x0 - 1 <= drawn.x0 < drawn.x1 <= inside.x1 + 1
    assert inside.y0 - 1 <= drawn.y0 < drawn.y1 <= inside.y1 + 1


def test_names_come_back_when_the_figure_grows(large):
    ax = plot_loadings(large, ax=plt.subplots(figsize=(6, 4))[1])
    few = len(ax.get_yticklabels())
    ax.figure.set_size_inches(6, 60)
    assert few < 30
    assert len(ax.get_yticklabels()) == 200


def test_long_names_keep_both_ends():
    assert shorten_all(["short", "abcdefghij", "abcdefghijk"], 10) == ["short", "abcdefghij", "abcde…hijk"]


@pytest.mark.parametrize("name", ON_AXES)
def test_anndata_gives_the_picture_of_its_model(name):
    rng = np.random.default_rng(0)
    y = np.repeat(CONTEXTS, 40)
    X = np.concatenate([rng.normal(size=(40, 5)) * np.sqrt(b) for b in B]) @ axes_of(12).T
    adata, fitted = stored_fit(X, y, 5, key="mine")
    pictures = []
    for source, more in ((fitted, {}), (adata, {"key": "mine"})):
        figure = ON_AXES[name](source, **more).figure
        figure.canvas.draw()
        pictures.append(np.asarray(figure.canvas.buffer_rgba()))
    np.testing.assert_array_equal(*pictures)
    with pytest.raises(
        ValueError, match=r"key='mcpca' names no fit of MCPCA in adata.uns. There are fits under 'mine'"
    ):
        ON_AXES[name](adata)


# Loadings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["cluster", "groups"])
def test_order_moves_rows_and_columns_with_their_names(order, model):
    ax = plot_loadings(model, order=order)
    rows, columns = labels(ax.get_yticklabels()), labels(ax.get_xticklabels())
    i, j = [CONTEXTS.index(name) for name in rows], [int(name.split()[1]) - 1 for name in columns]
    assert sorted(i) == list(range(6))
    assert sorted(j) == list(range(5))
    np.testing.assert_array_equal(shown(ax), model.loadings_[np.ix_(i, j)])


def test_clusters_are_beside_each_other(model):
    ax = plot_loadings(model, order="cluster", normalize="component")
    rows = labels(ax.get_yticklabels())
    for first, second in (("brain", "lung"), ("colon", "kidney")):
        assert abs(rows.index(first) - rows.index(second)) == 1


def kinds_of(model):
    """Kinds of the MCPCs of a model, whose order may differ from the planted one."""
    order = [int(np.argmax(np.abs(axes_of().T @ a))) for a in model.components_.T]
    return {f"MCPC {j + 1}": KINDS[planted] for j, planted in enumerate(order)}


def test_groups_are_bracketed_with_their_names(model):
    ax = plot_loadings(model, order="groups")
    kinds = [kinds_of(model)[name] for name in labels(ax.get_xticklabels())]
    assert kinds == ["specific", "specific", "shared", "shared", "broad"]
    names = [text for text in ax.texts if text.get_text() in KINDS]
    assert [text.get_text() for text in names] == ["specific", "shared", "broad"]
    spans = [tuple(line.get_xdata()) for line in ax.lines if len(set(line.get_ydata())) == 1]
    np.testing.assert_allclose(spans, [(-0.4, 1.4), (1.6, 3.4), (3.6, 4.4)])
    ax.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in names]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    assert min(box.y0 for box in boxes) > ax.get_window_extent().y1
    assert max(box.y1 for box in boxes) <= ax.figure.bbox.y1


@pytest.mark.parametrize("form", [dict, pd.Series, lambda groups: [groups.get(name) for name in CONTEXTS]])
def test_contexts_of_one_group_count_as_one(form, model):
    groups = {"brain": "head", "lung": "head", "skin": "skin", "colon": "gut", "kidney": "gut"}  # liver: of its own
    ax = plot_loadings(model, order="groups", groups=form(groups), ax=bare())
    assert [text.get_text() for text in ax.texts if text.get_text() in KINDS] == ["specific", "broad"]
    spans = [tuple(line.get_xdata()) for line in ax.lines if len(set(line.get_ydata())) == 1]
    np.testing.assert_allclose(spans, [(-0.4, 3.4), (3.6, 4.4)])


def test_groups_of_contexts_need_the_order_that_uses_them(model):
    with pytest.raises(ValueError, match=r"groups has no effect, because order='cluster'.*or pass order='groups'"):
        plot_loadings(model, order="cluster", groups=SYSTEM)


def test_specific_mcpcs_run_down_the_diagonal():
    rng = np.random.default_rng(1)
    loadings = 5 * np.eye(8)[:, rng.permutation(8)] + 0.01
    ax = plot_loadings(planted_model(loadings * np.linspace(1, 2, 8), [f"c{i}" for i in range(8)]), order="groups")
    np.testing.assert_array_equal(np.argmax(shown(ax), axis=0), np.arange(8))


def test_names_of_narrow_groups_are_upright_and_apart():
    loadings = np.concatenate([5 * np.eye(8), np.ones((8, 1)), [[0], [0], [1], [1], [0], [0], [0], [0]]], axis=1)
    model = planted_model(loadings * np.linspace(1, 2, 10), [f"c{i}" for i in range(8)])
    ax = plot_loadings(model, order="groups", ax=plt.subplots(figsize=(2.2, 3), layout="constrained")[1])
    ax.figure.draw_without_rendering()
    names = [text for text in ax.texts if text.get_text() in KINDS]
    assert [text.get_text() for text in names] == ["specific", "shared", "broad"]
    assert {text.get_rotation() for text in names} == {90}
    assert not any(a.overlaps(b) for a, b in itertools.pairwise(text.get_window_extent() for text in names))


def test_normalize_context_divides_by_the_row_maxima(model):
    ax = plot_loadings(model, normalize="context")
    np.testing.assert_allclose(shown(ax), model.loadings_ / model.loadings_.max(axis=1, keepdims=True))
    assert ax.child_axes[0].get_ylabel() == "loading / largest of its context"


# Annotations -----------------------------------------------------------------------------------------------------


def test_annotations_follow_the_rows(model):
    ages = pd.Series({name: 10.0 * i for i, name in enumerate(CONTEXTS)})
    table = pd.DataFrame({"system": pd.Series(SYSTEM), "age": ages})
    ax = plot_loadings(model, order="cluster", annotations=table)
    rows, colours = labels(ax.get_yticklabels()), strips(ax)
    assert set(colours) == {"system", "age"}
    by_system = {SYSTEM[name]: tuple(colour) for name, colour in zip(rows, colours["system"], strict=True)}
    assert len(set(by_system.values())) == 4
    for name, colour in zip(rows, colours["system"], strict=True):
        assert tuple(colour) == by_system[SYSTEM[name]]
    lightness = colours["age"][:, :3] @ [0.299, 0.587, 0.114]
    np.testing.assert_array_equal(np.argsort(-lightness), np.argsort([ages[name] for name in rows]))


def test_legend_explains_letters_and_numbers(model):
    ages = [41, 52, 63, 44, 70, None]
    ax = plot_loadings(model, annotations={"system": SYSTEM, "age": ages})
    texts = ax.get_legend().get_texts()
    assert labels(texts) == [
        *("system", "A breath", "B gut", "C nerve", "D skin"),
        *("age", "41", "55.5", "70", "not known"),
    ]
    assert [t.get_text() for t in texts if t.get_fontweight() == "bold"] == ["system", "age"]
    np.testing.assert_array_equal(strips(ax)["age"][5], [1, 1, 1, 1])
    letters = {
        text.get_position()[1]: text.get_text()
        for child in ax.child_axes
        for text in child.texts
        if len(text.get_text()) == 1
    }
    assert letters == {0: "C", 1: "A", 2: "D", 4: "B"}  # liver, colon and kidney have one letter, in their middle


def test_dates_have_a_scale_from_the_first_to_the_last(model):
    dates = np.array(
        ["2020-01-01", "2020-01-03", "2020-01-11", "NaT", "2020-01-02", "2020-01-04"], dtype="datetime64[D]"
    )
    ax = plot_loadings(model, annotations=dates, ax=bare())
    assert labels(ax.get_legend().get_texts()) == ["2020-01-01", "2020-01-06", "2020-01-11", "not known"]
    (colours,) = strips(ax).values()
    lightness = colours[:, :3] @ [0.299, 0.587, 0.114]
    assert np.argsort(-lightness).tolist() == [3, 0, 4, 1, 5, 2]


@pytest.mark.parametrize(
    "annotations",
    [
        SYSTEM,
        pd.Series(SYSTEM),
        np.array([SYSTEM[name] for name in CONTEXTS]),
        pd.DataFrame({"": pd.Series(SYSTEM)}),
        {"": [SYSTEM[name] for name in CONTEXTS]},
        {"": SYSTEM},
        [SYSTEM[name] for name in CONTEXTS],
    ],
)
def test_forms_of_one_annotation_look_alike(annotations, model):
    (colours,) = strips(plot_loadings(model, annotations=annotations, ax=bare())).values()
    np.testing.assert_array_equal(colours, _palette(4)[[2, 0, 3, 1, 1, 1]])


def test_annotations_of_an_anndata_are_columns_of_obs():
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c"], 20)
    obs = {"stage": np.repeat(["I", "II", "I"], 20), "site": rng.choice(["x", "y"], 60)}
    adata, _ = stored_fit(rng.normal(size=(60, 6)), y, 2, obs=obs)
    colours = strips(plot_loadings(adata, annotations="stage"))["stage"]
    np.testing.assert_array_equal(colours[0], colours[2])
    assert not np.array_equal(colours[0], colours[1])
    plt.close("all")
    with pytest.raises(ValueError, match=r"annotations\['site'\]='site' is not constant within contexts"):
        plot_loadings(adata, annotations=["stage", "site"])
    assert plt.get_fignums() == []


@pytest.mark.parametrize(
    ("annotations", "match"),
    [
        ({}, "annotations is empty"),
        ({"brian": "x"}, "annotations names no context of the fit.*did you mean 'brain'"),
        ({"age": [1, 2]}, r"annotations\['age'\] has shape \(2,\); pass one value for each of the 6 contexts"),
        ("stage", "would be a column of obs, which only an AnnData has"),
    ],
)
@pytest.mark.parametrize("plot", [plot_loadings, plot_context_tree])
def test_annotation_errors(plot, annotations, match, model):
    with pytest.raises(ValueError, match=match):
        plot(model, annotations=annotations)
    assert plt.get_fignums() == []


def test_more_categories_than_letters_are_refused(large):
    categories = {f"{LONG}{i}": f"kind {i % 27}" for i in range(200)}
    with pytest.raises(ValueError, match="annotations has 27 categories, and at most 26 can be told apart"):
        plot_loadings(large, annotations=categories)


def test_categories_differ_in_colour_and_the_first_five_in_grey():
    assert len({tuple(colour) for colour in _palette(26)}) == 26
    np.testing.assert_allclose(np.sort(_palette(8), axis=0), np.sort(to_rgba_array(CATEGORIES), axis=0))
    grey = np.sort(_palette(5)[:, :3] @ [0.299, 0.587, 0.114])
    assert np.diff(grey).min() > 0.1


# Tree ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [{}, {"method": "complete", "metric": "euclidean"}, {"normalize": "component"}])
def test_tree_is_the_dendrogram_of_the_loadings(arguments, model):
    ax = plot_context_tree(model, **arguments)
    loadings = model.corrected_loadings_
    loadings = loadings / (loadings.max(axis=0) if "normalize" in arguments else 1)
    tree = context_linkage(loadings, **{name: v for name, v in arguments.items() if name != "normalize"})
    expected = dendrogram(tree, no_plot=True, labels=CONTEXTS)
    assert labels(ax.get_yticklabels()) == expected["ivl"]
    drawn = {_ends(segment) for segment in ax.collections[0].get_segments()}
    heights, places = expected["dcoord"], (np.array(expected["icoord"]) - 5) / 10
    assert drawn == {_ends(np.column_stack(branch)) for branch in zip(heights, places, strict=True)}
    assert len(drawn) == 5


def _ends(branch):
    """The four corners of a branch, whichever child comes first."""
    return frozenset(tuple(point) for point in np.round(branch, 9))


def test_map_is_of_the_fit_unless_corrected_loadings_are_asked_for(model):
    for corrected, loadings in ((False, model.loadings_), (True, model.corrected_loadings_)):
        ax = plot_loadings(model, corrected=corrected)
        np.testing.assert_array_equal(shown(ax), loadings)
        assert ax.child_axes[0].get_ylabel() == f"{'corrected ' if corrected else ''}loading (variance)"
    assert not np.array_equal(model.loadings_, model.corrected_loadings_)


def test_tree_is_of_corrected_loadings_unless_told_otherwise(model):
    """The noise of the six contexts grows from 0 to 0.1, which is small beside loadings but not beside distances."""
    for corrected, loadings in ((True, model.corrected_loadings_), (False, model.loadings_)):
        ax = plot_context_tree(model, metric="euclidean", corrected=corrected)
        heights = np.array([segment[1][0] for segment in ax.collections[0].get_segments()])
        np.testing.assert_allclose(heights, context_linkage(loadings, metric="euclidean")[:, 2])
        assert ax.get_xlabel() == f"distance of {'corrected ' if corrected else ''}loadings"


def test_tree_joins_what_varies_alike(model):
    leaves = labels(plot_context_tree(model, metric="cosine", normalize="component").get_yticklabels())
    assert abs(leaves.index("brain") - leaves.index("lung")) == 1
    assert abs(leaves.index("colon") - leaves.index("kidney")) == 1


def test_tree_of_a_chain_of_thousands_is_drawn():
    """Single linkage of points with growing gaps: each join adds one context."""
    k = 1500
    model = planted_model()
    model.corrected_loadings_ = np.cumsum(np.linspace(1, 2, k))[:, None] * np.ones((1, 2))
    model.loadings_ = model.corrected_loadings_
    model.contexts_ = np.arange(k)
    ax = plot_context_tree(model, method="single", metric="euclidean")
    assert len(ax.collections[0].get_segments()) == k - 1


@pytest.mark.parametrize(
    ("loadings", "arguments", "match"),
    [
        (np.ones((1, 2)), {}, "source has 1 context, and a tree needs at least 2"),
        (np.ones((4, 1)), {}, "source has 1 MCPC, and metric='correlation' needs at least 2"),
        (np.eye(4), {"method": "ward"}, "method='ward' needs metric='euclidean'"),
        (np.eye(4), {"metric": "city"}, "metric='city' is unknown"),
        (np.eye(4), {"normalize": "row"}, "normalize='row'; choose None"),
    ],
)
def test_tree_errors(loadings, arguments, match):
    model = planted_model()
    model.loadings_ = model.corrected_loadings_ = loadings
    model.contexts_ = np.arange(len(loadings))
    with pytest.raises(ValueError, match=match):
        plot_context_tree(model, **arguments)
    assert plt.get_fignums() == []


# Variance explained ----------------------------------------------------------------------------------------------


def bars(ax):
    return np.array([patch.get_width() for patch in ax.patches])


def test_bars_are_shares_of_the_squared_covariance():
    model = planted_model(noise=0.5)
    shares = model.variance_explained(per="context") / model.squared_norms()
    assert shares.min() < 0.98 < shares.max()
    ax = plot_variance_explained(model)
    np.testing.assert_allclose(bars(ax), shares)
    assert labels(ax.get_yticklabels()) == CONTEXTS
    whole = model.variance_explained(per="context").sum() / model.squared_norms().sum()
    np.testing.assert_allclose(ax.lines[0].get_xdata(), whole)
    assert ax.texts[0].get_text() == f"all: {whole:.1%}"
    ordered = plot_variance_explained(model, order="sorted")
    np.testing.assert_allclose(bars(ordered), np.sort(shares)[::-1])
    assert labels(ordered.get_yticklabels()) == [CONTEXTS[i] for i in np.argsort(-shares)]


def test_bars_of_a_model_that_holds_everything_are_full():
    np.testing.assert_allclose(bars(plot_variance_explained(planted_model(noise=0))), 1, atol=1e-6)


def test_context_without_variance_has_no_bar():
    S = np.einsum("pr,kr,qr->kpq", axes_of(), B, axes_of())
    S[2] = 0
    np.testing.assert_allclose(bars(plot_variance_explained(MCPCA(5, random_state=0).fit_covariances(S)))[2], 0)


def test_estimated_norms_have_error_bars(model, monkeypatch):
    assert not plot_variance_explained(model).collections
    errors = 0.1 * model.squared_norms()
    monkeypatch.setattr(type(model), "squared_norm_errors", lambda _: errors)
    (lines,) = plot_variance_explained(model).collections
    shares = model.variance_explained(per="context") / model.squared_norms()
    np.testing.assert_allclose([np.ptp(s[:, 0]) / 2 for s in lines.get_segments()], 0.1 * shares)


def test_estimated_norms_of_an_anndata_have_error_bars():
    rng = np.random.default_rng(0)
    adata, _ = stored_fit(rng.normal(size=(60, 6)), np.repeat(["a", "b", "c"], 20), 2)
    assert not plot_variance_explained(adata).collections
    table = adata.uns["mcpca"]["contexts"]
    table["squared_norm_error"] = 0.1 * table["squared_norm"]
    (lines,) = plot_variance_explained(adata).collections
    shares = table["variance_explained"] / table["squared_norm"]
    np.testing.assert_allclose([np.ptp(s[:, 0]) / 2 for s in lines.get_segments()], 0.1 * shares)


def test_order_of_bars_is_checked(model):
    with pytest.raises(ValueError, match="order='cluster'; choose 'given' or 'sorted'"):
        plot_variance_explained(model, order="cluster")


# Angles ----------------------------------------------------------------------------------------------------------


def test_angles_are_those_between_lines_and_the_diagonal_is_left_out(model):
    ax = plot_angles(model)
    A = model.components_
    expected = np.degrees(np.arccos(np.abs(A.T @ A).clip(0, 1)))
    off = ~np.eye(5, dtype=bool)
    np.testing.assert_allclose(shown(ax)[off], expected[off])
    assert np.isnan(shown(ax)[~off]).all()
    assert [t.get_text() for t in ax.texts] == [f"{angle:.0f}" for angle in expected[off]]
    assert ax.images[0].get_clim() == (0, 90)


def test_sign_of_an_mcpc_does_not_change_an_angle(model):
    before = shown(plot_angles(model))
    flipped = planted_model()
    flipped.components_ = model.components_ * [1, -1, 1, -1, -1]
    np.testing.assert_allclose(shown(plot_angles(flipped)), before)


def test_near_axes_are_dark_and_orthogonal_ones_light(model):
    colours = plot_angles(model).images[0].cmap(np.linspace(0, 1, 50))[:, :3]
    lightness = colours @ [0.299, 0.587, 0.114]
    assert lightness[-1] > 0.95
    assert (np.diff(lightness) > 0).all()


def test_annotate_of_angles_is_checked(model):
    assert not plot_angles(model, annotate=False).texts
    plt.close("all")
    with pytest.raises(ValueError, match="annotate='yes'; choose True, False or 'auto'"):
        plot_angles(model, annotate="yes")


# Scree -----------------------------------------------------------------------------------------------------------


def noisy():
    truth = make_contexts(5, 12, 2, n_samples=60, noise=0.3, random_state=0)
    return truth, MCPCA(2, random_state=0).fit(truth.X)


def test_band_of_noise_comes_from_the_selection():
    truth, model = noisy()
    found = select_rank(truth.X, criteria=["scree"], random_state=0)
    ax = plot_scree(model, selection=found)
    m = len(model.singular_values_)
    drawn = ax.collections[0].get_paths()[0].vertices
    for name in ("null mean", "null upper"):
        points = np.column_stack([np.arange(1, m + 1), found.scree[name][:m]])
        assert {tuple(p) for p in np.round(points, 9)} <= {tuple(p) for p in np.round(drawn, 9)}
    assert "noise" in [t.get_text() for t in ax.texts]
    assert "noise" not in [t.get_text() for t in plot_scree(model).texts]
    model.rank_choice_ = found
    assert "noise" in [t.get_text() for t in plot_scree(model).texts]


def test_band_of_other_data_is_refused_or_left_out(model):
    with pytest.raises(ValueError, match="selection is of other data: its largest singular value is 9, the model's"):
        plot_scree(model, selection=selection())
    with pytest.raises(ValueError, match="selection has no scree; run select_rank with criteria='all'"):
        plot_scree(model, selection=selection(scree={}))
    with pytest.raises(TypeError, match="selection is a dict and no RankSelection"):
        plot_scree(model, selection=SCREE)
    other = planted_model()
    other.rank_choice_ = selection()
    assert "noise" not in [t.get_text() for t in plot_scree(other).texts]


# Images and ranks ------------------------------------------------------------------------------------------------


def test_images_fill_a_part_of_a_figure(model):
    figure = plt.figure(layout="constrained")
    left, right = figure.subfigures(1, 2)
    assert plot_component_images(model, (6, 6), components=["MCPC 2", 0], ax=left) is left
    assert [ax.get_title().split("\n")[0] for ax in left.axes] == ["MCPC 2", "MCPC 1"]
    assert right.axes == []
    np.testing.assert_array_equal(shown(left.axes[0]).ravel(), model.components_[:, 1])


def test_images_go_to_the_axes_given(model):
    figure, grid = plt.subplots(2, 2)
    assert plot_component_images(model, (6, 6), components=[0, 1, 2, 3], ax=grid) is grid
    np.testing.assert_array_equal(shown(grid[1, 0]).ravel(), model.components_[:, 2])
    one = figure.add_subplot()
    assert plot_component_images(model, (6, 6), components=[4], ax=one) is one
    np.testing.assert_array_equal(shown(one).ravel(), model.components_[:, 4])
    assert len(plt.get_fignums()) == 1
    with pytest.raises(ValueError, match="ax has 4 axes, but 5 images are drawn; pass one for each, or a figure"):
        plot_component_images(model, (6, 6), ax=grid)


def test_images_of_an_anndata_are_in_the_space_of_its_features():
    rng = np.random.default_rng(0)
    mask = np.arange(12) % 3 > 0
    adata, fitted = stored_fit(rng.normal(size=(60, 12)) * np.arange(1, 13), np.repeat(["a", "b"], 30), 2, mask=mask)
    figure = plot_component_images(adata, (3, 4))
    for j, ax in enumerate(figure.axes):
        np.testing.assert_array_equal(shown(ax).ravel()[mask], fitted.components_[:, j])
        assert not shown(ax).ravel()[~mask].any()


@pytest.mark.parametrize("measure", ["projection similarity", "context consistency"])
def test_one_heatmap_of_ranks_alone(measure):
    found = selection()
    ax = bare()
    assert plot_rank_heatmap(found, measure, ax=ax) is ax
    np.testing.assert_array_equal(shown(ax), found.pairwise[measure])
    assert ax.get_title() == measure
    assert labels(ax.get_xticklabels()) == ["1", "2", "3", "5", "8"]
    assert ax.patches[0].get_xy() == (1.5, 1.5)
    assert plt.get_fignums() == []


def test_rank_pictures_take_a_model_that_chose_its_rank(model):
    chosen = planted_model()
    chosen.rank_choice_ = selection()
    np.testing.assert_array_equal(
        shown(plot_rank_heatmap(chosen, "loading similarity")), selection().pairwise["loading similarity"]
    )
    assert plot_rank_selection(chosen).texts[0].get_text() == "Recommended rank: 3"
    for plot in (plot_rank_selection, lambda m: plot_rank_heatmap(m, "loading similarity")):
        with pytest.raises(TypeError, match="source is a MCPCA without a RankSelection; pass what select_rank"):
            plot(model)


def test_anndata_that_holds_a_choice_of_rank_gives_its_pictures():
    rng = np.random.default_rng(0)
    adata, fitted = stored_fit(rng.normal(size=(60, 6)), np.repeat(["a", "b", "c"], 20), 2)
    with pytest.raises(TypeError, match="source is a AnnData without a RankSelection"):
        plot_rank_selection(adata)
    assert "noise" not in [t.get_text() for t in plot_scree(adata).texts]
    sigma = fitted.singular_values_
    found = selection(scree={"singular value": sigma, "null mean": sigma / 2, "null upper": sigma})
    adata.uns["mcpca"]["rank"] = {"rank": 3, "json": found.to_json()}
    np.testing.assert_array_equal(
        shown(plot_rank_heatmap(adata, "projection similarity")), found.pairwise["projection similarity"]
    )
    assert plot_rank_selection(adata).texts[0].get_text() == "Recommended rank: 3"
    assert "noise" in [t.get_text() for t in plot_scree(adata).texts]


def test_ranks_are_drawn_on_a_given_figure():
    figure = matplotlib.figure.Figure(figsize=(9, 8))
    assert plot_rank_selection(selection(), ax=figure) is figure
    assert plt.get_fignums() == []
    figure.draw_without_rendering()
    reason, panels = figure.texts[1].get_window_extent(), [ax.get_tightbbox() for ax in figure.axes if ax.axison]
    assert reason.y0 > max(box.y1 for box in panels)
    assert not any(a.overlaps(b) for a, b in itertools.combinations(panels, 2))
    with pytest.raises(TypeError, match="ax is a Axes; this needs a whole Figure"):
        plot_rank_selection(selection(), ax=bare())


def test_measure_of_ranks_must_be_known():
    with pytest.raises(ValueError, match=r"measure='BIC' is not among .*'projection similarity', 'loading similarity'"):
        plot_rank_heatmap(selection(), "BIC")
    with pytest.raises(ValueError, match=r"measured \(none\); run select_rank with criteria='all'"):
        plot_rank_heatmap(selection(pairwise={}), "context consistency")
