"""The figure of a choice of rank shows the numbers of every criterion, and nothing of those that have none."""

import dataclasses
import itertools
import sys

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgba

from mcpca._inference.replication import Replicability
from mcpca._rank.noise_test import STANDARD_DEVIATIONS
from mcpca._rank.selection import RankSelection, select_rank
from mcpca.plotting import plot_rank_selection
from mcpca.plotting._common import MARK

RANKS = np.array([1, 2, 3, 5, 8])
COLUMNS = {
    "spread": np.array([900.0, 400, np.nan, 30, 25]),
    "noise spread": np.array([30.0, 29, np.nan, 28, 20]),
    "noise sd": np.array([1.0, 2, np.nan, 1, 5]),
    "excess": np.array([870.0, 185.5, np.nan, 2, 1]),
    "split-half agreement": np.array([0.99, 0.95, 0.9, 0.7, np.nan]),
    "replicating": np.array([1.0, 2, 2, 1, np.nan]),
    "held-out error": np.array([0.5, 0.4, 0.3, 0.25, 0.26]),
    "singular value": np.array([9.0, 5, 4, 1, 0.4]),
    "null mean": np.full(5, 1.5),
    "null upper": np.full(5, 2.0),
    "seed stability": np.array([1, 1, 0.95, 0.85, 0.6]),
    "projection similarity": np.array([1, 1, 1, 0.5, 0.4]),
    "loading similarity": np.array([1, 0.9, 0.8, 0.5, 0.4]),
    "context consistency": np.array([np.nan, -0.2, 0.5, 0.6, 0.5]),
    "held-out log-likelihood": np.array([-9.0, -8, -7, -7.2, -7.3]),
    "BIC": np.array([500.0, 400, 300, 310, 320]),
}
VOTES = {
    "noise test": 5,
    "scree": 3,
    "split-half agreement": 3,
    "held-out error": 5,
    "seed stability": 5,
    "projection similarity": 3,
    "loading similarity": 1,
    "context consistency": 5,
    "held-out log-likelihood": 3,
    "BIC": 3,
}
SCREE = {
    "singular value": np.array([9.0, 5, 4, 1.9, 1, 0.8, 0.6, 0.4, 0.3, 0.2, 1e-20, 1e-20]),
    "null mean": np.full(12, 1.5),
    "null upper": np.full(12, 2.0),
}
REASON = "Rank 3: 5 directions are above noise. Halves of the rows agree, split-half and all. 2 of 3 come back. " * 2
CURVES = [n for n in VOTES if n not in ("noise test", "scree")]


def selection(**changes):
    pairs = np.random.default_rng(0).uniform(size=(3, 5, 5))
    pairs[2, 0, :] = pairs[2, :, 0] = np.nan
    pairwise = dict(zip(("projection similarity", "loading similarity", "context consistency"), pairs, strict=True))
    found = Replicability(np.array([[0.99, 0.7, 0.95], [0.97, 0.8, 0.95]]))
    full = RankSelection(3, REASON.strip(), 5, RANKS, COLUMNS, VOTES, found, pairwise, SCREE, threshold=0.8)
    return dataclasses.replace(full, **changes)


@pytest.fixture(scope="module")
def full():
    figure = plot_rank_selection(selection())
    figure.draw_without_rendering()
    plt.close(figure)
    return figure


@pytest.fixture(autouse=True)
def _no_open_figures():
    yield
    plt.close("all")


def shown(figure):
    """Titles and axes of what is to be seen."""
    return [(ax.get_title(), ax) for ax in figure.axes if ax.axison]


def panel(figure, name):
    """The panel of curves or bars whose title starts with a name, which a heatmap may share."""
    return next(ax for title, ax in shown(figure) if title.startswith(name) and not ax.images)


def heatmaps(figure):
    return [ax for _, ax in shown(figure) if ax.images]


def ring(ax):
    return next((tuple(*line.get_xydata()) for line in ax.lines if line.get_markerfacecolor() == "none"), None)


def dashed(ax):
    return [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == "--"]


def horizontal(ax):
    return [line.get_ydata()[0] for line in ax.lines if line.get_linestyle() == "-" and len(set(line.get_ydata())) == 1]


def words(figure):
    return " ".join(" ".join(text.get_text() for text in figure.texts).split())


def test_panels_that_decide_come_first_and_titles_give_the_votes(full):
    assert [title for title, ax in shown(full) if not ax.images] == [
        "noise test (5)",
        "split-half agreement (3)",
        "how many come back",
        "each component at rank 3",
        "scree (3)",
        "seed stability (5)",
        "projection similarity (3)",
        "loading similarity (1)",
        "context consistency (5)",
        "held-out error (5)",
        "held-out log-likelihood (3)",
        "BIC (3)",
    ]
    assert [title for title, ax in shown(full) if ax.images] == list(selection().pairwise)


@pytest.mark.parametrize("name", CURVES)
def test_curves_are_the_columns_with_ring_and_recommended_rank(name, full):
    ax, values = panel(full, name), COLUMNS[name]
    known = np.isfinite(values)
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), np.column_stack([RANKS, values])[known])
    assert ring(ax) == (VOTES[name], values[VOTES[name] == RANKS])
    assert dashed(ax) == [3]
    assert ax.get_ylim()[0] < values[known].min() <= values[known].max() < ax.get_ylim()[1]


def test_thresholds_are_lines(full):
    assert {title: horizontal(ax) for title, ax in shown(full) if horizontal(ax)} == {
        "split-half agreement (3)": [0.8],
        "seed stability (5)": [0.8],
        "each component at rank 3": [0.8, 0.9],
    }


def test_noise_test_is_beside_the_band_of_noise(full):
    ax = panel(full, "noise test")
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [(1, 900), (2, 400), (5, 30), (8, 25)])
    assert ax.get_yscale() == "log"
    assert ring(ax) == (5, 30)
    assert dashed(ax) == [3]
    band = {tuple(point) for point in ax.collections[0].get_paths()[0].vertices}
    mean = COLUMNS["noise spread"]
    margin = STANDARD_DEVIATIONS * COLUMNS["noise sd"]
    known = np.isfinite(mean)
    # The last would reach below 0, and ends at a tenth of the mean.
    low = np.maximum(mean - margin, 0.1 * mean)
    assert low[-1] == 0.1 * mean[-1]
    for values in (low, mean + margin):
        assert set(zip(RANKS[known].tolist(), values[known].tolist(), strict=True)) <= band


def test_scree_goes_a_little_beyond_the_ranks_and_leaves_out_rounding(full):
    ax = panel(full, "scree")
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), np.arange(1, 11))
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), SCREE["singular value"][:10])
    assert ring(ax) == (3, 4)
    assert dashed(ax) == [3]
    assert {1.5, 2.0} == set(ax.collections[0].get_paths()[0].vertices[:, 1])
    low, high = ax.get_ylim()
    assert [f"{y:g}" for y in ax.get_yticks() if low <= y <= high] == ["0.2", "0.5", "1", "2", "5", "10"]


def test_number_that_comes_back_is_beside_the_identity(full):
    ax = panel(full, "how many")
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [(1, 1), (2, 2), (3, 2), (5, 1)])
    line = next(line for line in ax.lines if line.get_linestyle() == ":")
    assert (line.get_xy1(), line.get_slope()) == ((0, 0), 1)
    assert dashed(ax) == [3]
    assert ring(ax) is None


def test_bars_are_the_components(full):
    bars = panel(full, "each component").patches
    np.testing.assert_allclose([bar.get_height() for bar in bars], [0.98, 0.75, 0.95])
    assert [bar.get_x() + bar.get_width() / 2 for bar in bars] == [1, 2, 3]
    first, second, third = (bar.get_facecolor() for bar in bars)
    assert first == third != second


def test_heatmaps_are_the_pairs_of_ranks_on_one_scale(full):
    axes = heatmaps(full)
    for ax, (name, values) in zip(axes, selection().pairwise.items(), strict=True):
        np.testing.assert_array_equal(ax.images[0].get_array().filled(np.nan), values)
        assert ax.images[0].get_clim() == (0, 1)
        assert ax.get_title() == name
        for axis in (ax.xaxis, ax.yaxis):
            assert [t.get_text() for t in axis.get_ticklabels()] == ["1", "2", "3", "5", "8"]
        (square,) = ax.patches
        assert square.get_xy() == (1.5, 1.5)
        assert square.get_edgecolor() == to_rgba(MARK)
    assert [ax.get_xlabel() for ax in axes] == ["rank, a tenth held out"] * 2 + ["rank"]
    assert [len(ax.child_axes) for ax in axes] == [0, 0, 1]
    assert axes[2].child_axes[0].get_ylabel() == "grey: not known"
    assert axes[2].images[0].cmap.get_bad().tolist() == list(to_rgba("0.8"))


def test_colour_bar_points_below_zero_only_where_values_do():
    bars = []
    for low in (-0.3, 0.3):
        figure = plot_rank_selection(selection(pairwise={"context consistency": np.full((5, 5), low)}, columns={}))
        (ax,) = heatmaps(figure)
        bars.append(ax.images[0].colorbar.extend)
        assert ax.child_axes[0].get_ylabel() == ""
    assert bars == ["min", "neither"]


def test_title_and_reason_are_above_all_panels_and_inside_the_figure(full):
    assert words(full).startswith(f"Recommended rank: 3 {REASON.strip()} Orange: the recommended rank.")
    assert full.texts[0].get_fontweight() == "bold"
    boxes = [text.get_window_extent() for text in full.texts]
    assert boxes[0].y0 >= boxes[1].y1
    panels = [ax.get_tightbbox() for _, ax in shown(full)]
    assert boxes[1].y0 > max(box.y1 for box in panels)
    for box in [*boxes, *panels]:
        assert full.bbox.x0 <= box.x0 < box.x1 <= full.bbox.x1
        assert full.bbox.y0 <= box.y0 < box.y1 <= full.bbox.y1

    assert not any(a.overlaps(b) for a, b in itertools.combinations(panels, 2))


def test_tick_labels_do_not_overlap(full):
    for _, ax in shown(full):
        for axis in (ax.xaxis, ax.yaxis):
            labels = [tick.label1.get_window_extent() for tick in axis.get_major_ticks() if tick.label1.get_text()]
            assert not any(a.overlaps(b) for a, b in itertools.pairwise(labels))


def test_criteria_that_are_absent_or_unknown_have_no_panel():
    columns = {name: COLUMNS[name] for name in ("spread", "noise spread", "noise sd", "excess", "BIC")}
    columns["seed stability"] = np.full(5, np.nan)
    columns["spread"] = np.array([np.nan, 0, 0, 0, 0])
    unknown = {"context consistency": np.full((5, 5), np.nan)}
    figure = plot_rank_selection(
        selection(columns=columns, scree={}, replicability=Replicability(np.full((2, 3), np.nan)), pairwise=unknown)
    )
    assert [title for title, _ in shown(figure)] == ["BIC (3)"]
    assert len(figure.axes) == 1


@pytest.mark.parametrize("vote", [0, 4])
def test_votes_off_the_ranks_have_a_number_and_no_ring(vote):
    figure = plot_rank_selection(selection(votes={"BIC": vote}, columns={"BIC": COLUMNS["BIC"]}))
    assert ring(panel(figure, f"BIC ({vote})")) is None


def test_heatmaps_share_a_row_and_the_figure_grows_with_rows():
    few = {name: COLUMNS[name] for name in ("BIC", "held-out error", "seed stability")}
    bare = {"scree": {}, "replicability": None, "columns": few}
    together, alone = plot_rank_selection(selection(**bare)), plot_rank_selection(selection(**bare, pairwise={}))
    assert {ax.get_subplotspec().rowspan.start for ax in heatmaps(together)} == {1}
    assert [ax.axison for ax in together.axes] == [True] * 3 + [False] + [True] * 3 + [False]
    assert len(alone.axes) == 3
    assert together.get_figheight() > 1.5 * alone.get_figheight()


def test_single_rank_has_points_and_a_band_but_no_heatmap():
    one = {name: COLUMNS[name][1:2] for name in ("spread", "noise spread", "noise sd", "replicating", "BIC")}
    pairs = {"context consistency": np.ones((1, 1))}
    figure = plot_rank_selection(selection(ranks=RANKS[1:2], rank=2, columns=one, pairwise=pairs, scree={}))
    figure.draw_without_rendering()
    assert not heatmaps(figure)
    assert panel(figure, "BIC").lines[0].get_xydata().tolist() == [[2, 400]]
    assert np.ptp(panel(figure, "noise test").collections[0].get_paths()[0].vertices[:, 0]) == pytest.approx(0.8)


def test_labels_of_many_ranks_are_thinned():
    ranks = np.arange(1, 32) * 5
    figure = plot_rank_selection(selection(ranks=ranks, columns={}, scree={}, pairwise={"x": np.eye(31)}))
    figure.draw_without_rendering()
    (ax,) = heatmaps(figure)
    labels = ax.get_xticklabels()
    assert [t.get_text() for t in labels] == [str(ranks[i]) for i in ax.get_xticks()]
    assert not any(a.overlaps(b) for a, b in itertools.pairwise(t.get_window_extent() for t in labels))
    assert 4 <= len(labels) < 31


def test_rank_zero_is_said_and_no_line_is_drawn():
    found = selection(rank=0, reason="Nothing is above noise.", replicability=None, votes=VOTES | {"noise test": 0})
    figure = plot_rank_selection(found)
    assert words(figure).startswith("Rank 0: nothing above noise Nothing is above noise.")
    assert "recommended" not in words(figure)
    assert not any(dashed(ax) or (ax.images and ax.patches) for _, ax in shown(figure))
    assert not any(title.startswith("each component") for title, _ in shown(figure))


def test_without_ranks_the_reason_is_left():
    X = np.random.default_rng(0).normal(size=(3, 40, 6))
    found = select_rank(list(X), criteria=(), random_state=0)
    assert len(found.ranks) == 0
    figure = found.plot()
    figure.draw_without_rendering()
    assert words(figure) == f"Rank 0: nothing above noise {found.reason}"
    assert figure.axes == []


def test_figure_is_the_only_one_and_survives_json():
    found = RankSelection.from_json(selection(columns={"BIC": COLUMNS["BIC"]}, scree={}, pairwise={}).to_json())
    figure = found.plot()
    assert plt.get_fignums() == [figure.number]
    np.testing.assert_array_equal(panel(figure, "BIC").lines[0].get_ydata(), COLUMNS["BIC"])


def test_missing_matplotlib_names_the_extra(monkeypatch):
    for name in [n for n in sys.modules if n.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r'pip install "mcpca\[plot\]"'):
        plot_rank_selection(selection())
