"""Rows, scores and features in pictures are the model's numbers, whether they come from a model or from an AnnData."""

import itertools
import shutil
import sys

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from matplotlib.text import Text
from pictures import BASELINE, check_picture, plain_style
from scipy.stats import gaussian_kde
from sklearn.exceptions import NotFittedError
from stored_fit import stored_fit

from mcpca import MCPCA
from mcpca._results.row_pca import principal_directions
from mcpca.datasets import make_contexts
from mcpca.plotting import plot_plane, plot_scores, plot_top_features
from mcpca.plotting._common import shorten
from mcpca.plotting._scores import _density

FEATURES = [f"gene {j}" for j in range(12)]
NAMES = np.array(["brain", "heart", "liver", "lung"])


@pytest.fixture(scope="module")
def data():
    truth = make_contexts(4, 12, 3, n_samples=90, noise=0.1, random_state=3)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(truth.X))
    # Contexts differ in their means, and their rows are mixed.
    X = truth.X + rng.standard_normal((4, 12))[truth.y]
    return X[order], NAMES[truth.y][order]


@pytest.fixture(scope="module")
def model(data):
    X, y = data
    return MCPCA(3, random_state=0).fit(pd.DataFrame(X, columns=FEATURES), y)


@pytest.fixture(autouse=True)
def _no_open_figures(monkeypatch):
    assert plt.get_fignums() == []
    monkeypatch.setattr(plt, "show", lambda *a, **k: pytest.fail("show was called"))
    yield
    plt.close("all")


def frame(data):
    return pd.DataFrame(data[0], columns=FEATURES)


def leading(rows, m):
    """Principal components by SVD, the largest entry of each positive, and their shares of the variance."""
    _, s, Vt = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    V = Vt[:m].T
    return V * np.sign(V[np.argmax(np.abs(V), axis=0), np.arange(m)]), s[:m] ** 2 / (s**2).sum()


def dots(ax):
    """Positions and colours of the points, in the order of the rows' positions on the first axis."""
    xy, z = np.asarray(ax.collections[0].get_offsets()), np.asarray(ax.collections[0].get_array())
    order = np.argsort(xy[:, 0])
    return xy[order], z[order]


def tips(ax):
    """Ends of the arrows, by the label that was written nearest to each."""
    arrows = [text.xy for text in ax.texts if text.arrow_patch is not None and not text.get_text()]
    assert len(arrows) % 2 == 0  # each twice, white below black
    return np.array(arrows[::2])


def written(ax):
    return [text.get_text() for text in ax.texts if text.get_text()]


# The plane


def test_points_are_the_rows_on_the_principal_components_of_their_context(data, model):
    X, y = data
    ax = plot_plane(model, "liver", frame(data), y, pcs=(2, 0))
    rows = X[y == "liver"]
    V, shares = leading(rows, 3)
    expected = (rows - rows.mean(axis=0)) @ V[:, [2, 0]]
    xy, _ = dots(ax)
    np.testing.assert_allclose(xy, expected[np.argsort(expected[:, 0])], atol=1e-10)
    assert ax.get_xlabel() == f"PC 3 ({shares[2]:.0%} of variance)"
    assert ax.get_ylabel() == f"PC 1 ({shares[0]:.0%} of variance)"
    assert "context liver\n90 rows" in ax.get_title()


def test_colours_are_the_scores_of_the_model(data, model):
    X, y = data
    mine = y == "lung"
    ax = plot_plane(model, "lung", frame(data), y, color="MCPC 2")
    _, z = dots(ax)
    scores = model.transform(frame(data)[mine], y[mine])[:, 1]
    V, _ = leading(X[mine], 1)
    order = np.argsort(((X[mine] - X[mine].mean(axis=0)) @ V)[:, 0])
    np.testing.assert_allclose(z, scores[order], atol=1e-10)
    bar = ax.child_axes[0]
    assert bar.get_ylabel().startswith("score on MCPC 2 (")
    low, high = ax.collections[0].get_clim()
    assert low == -high  # white is 0
    # In black and white both ends are dark, and the sign is a shape: triangles have fewer corners than circles.
    corners = np.array([len(path.vertices) for path in ax.collections[0].get_paths()])
    np.testing.assert_array_equal(corners < 5, np.asarray(ax.collections[0].get_array()) < 0)


def test_the_colour_is_by_default_that_of_the_largest_loading(data, model):
    for i, name in enumerate(NAMES):
        ax = plot_plane(model, name, frame(data), data[1])
        label = ax.child_axes[0].get_ylabel()
        assert label.startswith(f"score on MCPC {model.loadings_[i].argmax() + 1} (")


def test_arrows_end_at_so_many_standard_deviations(data, model):
    X, y = data
    ax = plot_plane(model, "brain", frame(data), y, components=[2, "MCPC 1"], arrow=3)
    V, _ = leading(X[y == "brain"], 2)
    expected = 3 * np.sqrt(model.loadings_[0, [2, 0]])[:, None] * (model.components_[:, [2, 0]].T @ V)
    np.testing.assert_allclose(tips(ax), expected, atol=1e-10)
    assert written(ax) == ["MCPC 3", "MCPC 1"]
    assert "arrows of 3 sd" in ax.get_title()


def test_only_arrows_that_can_be_seen_are_drawn(data):
    X, y = data
    model = MCPCA(3, random_state=0).fit(X, y)
    model.loadings_ = np.array([[1.0, 0.0, 1e-4]] * 4)
    ax = plot_plane(model, "brain", X, y)
    assert written(ax) == ["MCPC 1"]
    model.loadings_ = np.zeros((4, 3))
    assert tips(plot_plane(model, "brain", X, y)).size == 0


def test_both_axes_have_one_scale(data, model):
    ax = plot_plane(model, "brain", frame(data), data[1])
    ax.figure.canvas.draw()
    corners = ax.transData.transform([[0, 0], [1, 0], [0, 1]])
    np.testing.assert_allclose(corners[1, 0] - corners[0, 0], corners[2, 1] - corners[0, 1], rtol=0.01)
    low, high = np.array([ax.get_xlim(), ax.get_ylim()]).T
    everything = np.vstack([dots(ax)[0], tips(ax)])
    assert (everything > low).all()
    assert (everything < high).all()


def test_principal_components_of_all_rows(data, model):
    X, y = data
    ax = plot_plane(model, "heart", frame(data), y, pcs=(1, 2), pcs_of="all")
    V, _ = leading(X, 3)
    rows = X[y == "heart"]
    expected = (rows - rows.mean(axis=0)) @ V[:, 1:]
    np.testing.assert_allclose(dots(ax)[0], expected[np.argsort(expected[:, 0])], atol=1e-10)
    assert ax.get_xlabel().startswith("PC 2 of all rows (")


def test_many_rows_are_sampled_always_alike_and_it_is_said(data, model):
    first, again = (plot_plane(model, "brain", frame(data), data[1], max_rows=40) for _ in range(2))
    assert len(dots(first)[0]) == 40
    np.testing.assert_array_equal(dots(first)[0], dots(again)[0])
    assert "40 of 90 rows" in first.get_title()


@pytest.mark.parametrize("form", ["dict", "list", "sparse", "csc", "adata"])
def test_all_forms_of_rows_give_one_picture(form, data):
    X, y = data
    plain = MCPCA(3, random_state=0).fit(X, y)
    forms = {
        "dict": lambda: ({name: X[y == name] for name in NAMES[::-1]}, None),
        "list": lambda: ([X[y == name] for name in NAMES], None),
        "sparse": lambda: (scipy.sparse.csr_array(X), y),
        "csc": lambda: (scipy.sparse.csc_matrix(X), pd.Series(y)),
        "adata": lambda: (stored_fit(X, y, 3, obs={"organ": y})[0], "organ"),
    }
    given, labels = forms[form]()
    for pcs_of in ("context", "all"):
        one, other = (plot_plane(plain, "liver", *rows, pcs_of=pcs_of) for rows in ((X, y), (given, labels)))
        np.testing.assert_allclose(dots(one)[0], dots(other)[0], atol=1e-8)
        np.testing.assert_allclose(dots(one)[1], dots(other)[1], atol=1e-8)
    for center in ("context", "overall"):
        one, other = (plot_scores(plain, 1, *rows, center=center) for rows in ((X, y), (given, labels)))
        np.testing.assert_allclose(medians(one), medians(other), atol=1e-8)


@pytest.mark.parametrize("kind", ["X", "layer", "obsm", "mask", "sparse", "key"])
def test_pictures_from_an_anndata_are_those_of_the_model(kind, data):
    X, y = data
    X, y = np.vstack([X, X[:7] + 50]), np.concatenate([y, ["brain"] * 7])  # 7 rows that are not fitted
    mask = np.arange(12) % 4 != 1 if kind == "mask" else None
    matrix = scipy.sparse.csr_matrix(X) if kind == "sparse" else X
    key = "other" if kind == "key" else "mcpca"
    settings = {"layer": "log"} if kind == "layer" else {"obsm": "X_pca"} if kind == "obsm" else {}
    adata, model = stored_fit(matrix, y, 3, mask=mask, unused=7, key=key, **settings)
    rows, labels = (X if mask is None else X[:, mask])[:-7], y[:-7]
    for pcs_of in ("context", "all"):
        one, other = (
            plot_plane(adata, "brain", key=key, pcs_of=pcs_of),
            plot_plane(model, "brain", rows, labels, pcs_of=pcs_of),
        )
        np.testing.assert_allclose(dots(one)[0], dots(other)[0], atol=1e-8)
        np.testing.assert_allclose(dots(one)[1], dots(other)[1], atol=1e-8)
        np.testing.assert_allclose(tips(one), tips(other), atol=1e-8)
    for center in ("context", "overall"):
        one, other = plot_scores(adata, 0, key=key, center=center), plot_scores(model, 0, rows, labels, center=center)
        np.testing.assert_allclose(medians(one), medians(other), atol=1e-8)
        assert names_of_rows(one) == names_of_rows(other)


def test_scores_that_lost_their_means_are_made_anew(data):
    X, y = data
    adata, model = stored_fit(X, y, 3, center="context")
    one, other = plot_scores(adata, 0, center="overall"), plot_scores(model, 0, X, y, center="overall")
    np.testing.assert_allclose(medians(one), medians(other), atol=1e-8)
    assert np.ptp(medians(one)) > 0.5


@pytest.mark.parametrize(("n", "q"), [(50, 9), (9, 50), (700, 640)])
@pytest.mark.parametrize("kind", ["float64", "float32", "sparse"])
def test_principal_directions_are_those_of_an_svd(n, q, kind, monkeypatch):
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((n, 6)) * [9, 7, 5, 4, 3, 2] @ rng.standard_normal((6, q)) / np.sqrt(q) + 3
    rows += 0.1 * rng.standard_normal((n, q))
    sparse = kind == "sparse"
    if sparse:
        rows[rng.random((n, q)) < 0.3] = 0
    V, shares = leading(rows, 3)
    if sparse and min(n, q) > 600:
        monkeypatch.setattr(scipy.sparse.csr_array, "toarray", lambda self: pytest.fail("made dense"))
    found = principal_directions(scipy.sparse.csr_array(rows) if sparse else rows.astype(kind), 3)
    single = kind == "float32"
    np.testing.assert_allclose(found.vectors, V, atol=1e-5 if single else 1e-7)
    np.testing.assert_allclose(found.variances / found.total, shares, rtol=1e-5 if single else 1e-9)
    np.testing.assert_allclose(found.total, rows.var(axis=0, ddof=1).sum(), rtol=1e-5 if single else 1e-9)


@pytest.mark.parametrize("size", [(5.6, 4.7), (3, 2.5)])
def test_labels_of_arrows_do_not_overlap(size):
    truth = make_contexts(3, 30, 12, n_samples=60, random_state=1)
    model = MCPCA(12, random_state=0).fit(truth.X, truth.y)
    ax = plt.subplots(figsize=size, layout="constrained")[1]
    plot_plane(model, 0, truth.X, truth.y, components=range(12), ax=ax)
    ax.figure.canvas.draw()
    # An annotation's own extent has the line to its point too.
    boxes = [Text.get_window_extent(text) for text in ax.texts if text.get_text()]
    assert len(boxes) >= (12 if size[0] > 5 else 6)
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"context": "livr"}, r"context='livr' is not a context; did you mean 'liver'\?"),
        (
            {"pcs": (0, 12)},
            r"pcs asks for principal component 13 and context 'liver' has 12, of 90 rows and 12 features",
        ),
        ({"pcs": (0, 12), "pcs_of": "all"}, r"principal component 13 and X has 12"),
        ({"pcs": (1, 1)}, r"pcs=\(1, 1\) names one principal component twice"),
        ({"pcs": (0,)}, r"pcs=\(0,\) is not two integers >= 0"),
        ({"pcs": 1}, r"pcs=1 is not two integers >= 0"),
        ({"pcs_of": "both"}, r"pcs_of='both'; choose 'context' or 'all'"),
        ({"color": 3}, r"color=3 is out of bounds: 0 <= color <= 2"),
        ({"components": ["MCPC 9"]}, r"components='MCPC 9' is not an MCPC"),
        ({"arrow": -1}, r"arrow=-1 is out of bounds"),
        ({"max_rows": 2}, r"max_rows=2 is out of bounds: max_rows >= 3"),
        ({"X": None}, r"A fitted model keeps no rows: pass X and y"),
        ({"y": None}, r"X has 1 contexts without names and the model has 4: pass y=labels"),
        ({"y": np.repeat("lvier", 360)}, r"X or y: context='lvier' is not a context; did you mean 'liver'"),
        ({"y": np.repeat("brain", 360)}, r"Context 'liver' has no rows in the data given"),
    ],
)
def test_plane_errors(arguments, match, data):
    X, y = data
    model = MCPCA(3, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match=match):
        plot_plane(model, **{"context": "liver", "X": X, "y": y} | arguments)
    assert plt.get_fignums() == []


def test_rows_with_gaps_are_told(data):
    X, y = data
    model = MCPCA(3, random_state=0).fit(X, y)
    bad = X.copy()
    bad[0, 0] = np.nan
    bad = scipy.sparse.csr_array(bad)
    for draw in (lambda: plot_plane(model, y[0], bad, y), lambda: plot_scores(model, 0, bad, y)):
        with pytest.raises(ValueError, match="NaN"):
            draw()
    assert plt.get_fignums() == []


def test_an_anndata_has_its_own_rows(data):
    X, y = data
    adata, _ = stored_fit(X, y, 3, layer="log")
    for draw in (lambda: plot_plane(adata, "liver", X, y), lambda: plot_scores(adata, 0, X, y)):
        with pytest.raises(ValueError, match=r"X and y go with a fitted model; an AnnData brings its own rows"):
            draw()
    del adata.layers["log"]
    with pytest.raises(ValueError, match=r"The fit was made on adata\.layers\['log'\], which no longer exists"):
        plot_plane(adata, "liver")
    part = adata[y != "liver"].copy()
    with pytest.raises(ValueError, match=r"Context 'liver' has no rows"):
        plot_scores(part, 0)
    with pytest.raises(ValueError, match=r"key='mpca' names no fit"):
        plot_scores(adata, 0, key="mpca")


def test_rows_on_dask_are_not_drawn(data):
    da = pytest.importorskip("dask.array")
    X, y = data
    model = MCPCA(3, random_state=0).fit(X, y)
    with pytest.raises(TypeError, match=r"X is on Dask, and rows are drawn here; pass rows that were computed"):
        plot_plane(model, "liver", da.from_array(X), y)


# Scores by context


def medians(ax):
    """Positions of the dots at the medians, from top to bottom."""
    return np.array([line.get_xdata()[0] for line in ax.lines if line.get_marker() == "o"])


def names_of_rows(ax):
    return [tick.get_text() for tick in ax.get_yticklabels()]


def expected_scores(model, data, component, center):
    X, y = data
    centred = {"context": y, "overall": None}[center]
    scores = model.transform(pd.DataFrame(X, columns=FEATURES), centred)[:, component]
    return [scores[y == name] for name in NAMES]


@pytest.mark.parametrize("center", ["context", "overall"])
@pytest.mark.parametrize("kind", ["violin", "ridge"])
def test_densities_stand_where_the_scores_are(kind, center, data, model):
    ax = plot_scores(model, "MCPC 2", frame(data), data[1], kind=kind, center=center)
    order = np.argsort(-model.loadings_[:, 1])
    scores = [expected_scores(model, data, 1, center)[i] for i in order]
    np.testing.assert_allclose(medians(ax), [np.median(z) for z in scores], atol=1e-10)
    assert names_of_rows(ax) == NAMES[order].tolist()
    # The largest loading is at the top, and its number is written beside it.
    assert (np.diff(ax.get_yticks()) < 0).all()
    assert written(ax)[:4] == [f"{b:.3g}" for b in model.loadings_[order, 1]]
    for body, z in zip(ax.collections, scores, strict=True):
        outline = body.get_paths()[0].vertices
        kernel = gaussian_kde(z)
        top = outline[np.argmax(outline[:, 1])]
        grid = np.linspace(z.min(), z.max(), 500)
        assert abs(top[0] - grid[np.argmax(kernel(grid))]) < 0.05 * np.ptp(z)
        assert outline[:, 0].min() < z.min()
        assert outline[:, 0].max() > z.max()
    if kind == "violin":
        bars = [line.get_xdata() for line in ax.lines if line.get_linewidth() == 3]
        np.testing.assert_allclose(bars, [np.quantile(z, [0.25, 0.75]) for z in scores], atol=1e-10)


def test_boxes_are_quartiles_and_all_rows_beyond_are_drawn(data, model):
    ax = plot_scores(model, 0, frame(data), data[1], kind="box", contexts=["lung", "brain"])
    assert names_of_rows(ax) == ["lung", "brain"]
    scores = [expected_scores(model, data, 0, "context")[i] for i in (3, 0)]
    for patch, z in zip(ax.patches, scores, strict=True):
        ends = [patch.get_x(), patch.get_x() + patch.get_width()]
        np.testing.assert_allclose(ends, np.quantile(z, [0.25, 0.75]), atol=1e-10)
    low, high = (np.quantile(scores[0], q) for q in (0.25, 0.75))
    far = scores[0][(scores[0] < low - 1.5 * (high - low)) | (scores[0] > high + 1.5 * (high - low))]
    fliers = [line for line in ax.lines if line.get_marker() == "."]
    np.testing.assert_allclose(np.sort(fliers[0].get_xdata()), np.sort(far), atol=1e-10)


def test_fills_are_darker_where_loadings_are_larger(data, model):
    ax = plot_scores(model, 0, frame(data), data[1])
    grey = [body.get_facecolor()[0, :3] @ [0.299, 0.587, 0.114] for body in ax.collections]
    assert (np.diff(grey) > 0).all()


def test_densities_of_many_values_are_as_good():
    z = np.random.default_rng(1).standard_normal(20_000)
    z[:6000] = 5 + z[:6000] / 2
    grid, density = _density(z)
    np.testing.assert_allclose(density, gaussian_kde(z)(grid), atol=0.01 * density.max())
    np.testing.assert_allclose(np.trapezoid(density, grid) if hasattr(np, "trapezoid") else 1, 1, atol=0.02)


@pytest.fixture(scope="module")
def many():
    """200 contexts with long names."""
    truth = make_contexts(200, 8, 4, n_samples=12, random_state=0)
    names = np.array([f"patient {i:03d} of a cohort with a rather long name, visit {i % 7}" for i in range(200)])
    return truth.X, names[truth.y], MCPCA(4, random_state=0).fit(truth.X, names[truth.y])


@pytest.mark.parametrize("kind", ["violin", "ridge", "box"])
def test_of_many_contexts_the_largest_and_the_smallest_are_drawn(kind, many):
    X, y, model = many
    ax = plot_scores(model, 0, X, y, kind=kind)
    b = np.sort(model.loadings_[:, 0])[::-1]
    texts = written(ax)
    assert texts[:20] == [f"{value:.3g}" for value in np.concatenate([b[:10], b[-10:]])]
    assert "… 180 contexts with loadings in between …" in texts
    order = np.argsort(-model.loadings_[:, 0], kind="stable")
    shown = [shorten(str(model.contexts_[i]), 32) for i in np.concatenate([order[:10], order[-10:]])]
    assert names_of_rows(ax) == shown
    assert_ticks_apart(ax)


def assert_ticks_apart(ax):
    ax.figure.canvas.draw()
    boxes = [tick.get_window_extent() for tick in ax.get_yticklabels()]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    _, height = ax.figure.canvas.get_width_height()
    for box in boxes:
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.y1 <= height


def test_names_thin_out_on_small_axes(many):
    X, y, model = many
    _, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    plot_scores(model, 0, X, y, max_contexts=60, ax=left)
    plot_top_features(model, 0, ax=right)
    assert 5 < len(names_of_rows(left)) < 60
    assert_ticks_apart(left)
    assert_ticks_apart(right)
    # A name stands at the row of its context.
    order = np.argsort(-model.loadings_[:, 0], kind="stable")[:30]
    for place, name in list(zip(left.get_yticks(), names_of_rows(left), strict=True))[:3]:
        assert name == shorten(str(model.contexts_[order[int(-place)]]), 32)


def test_contexts_without_spread_are_drawn_as_ticks():
    X = np.random.default_rng(0).standard_normal((40, 3))
    model = MCPCA(2, random_state=0).fit({"a": X, "b": X * [1, 2, 3]})
    for kind in ("violin", "ridge", "box"):
        ax = plot_scores(model, 0, {"a": X[:1], "b": np.ones((5, 3))}, kind=kind)
        if kind != "box":
            np.testing.assert_allclose(medians(ax), 0, atol=1e-12)
            assert not ax.collections
        ax.figure.canvas.draw()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"component": "MCPC 8"}, r"component='MCPC 8' is not an MCPC"),
        ({"kind": "swarm"}, r"kind='swarm'; choose 'violin', 'ridge' or 'box'"),
        ({"center": "own"}, r"center='own'; choose 'context' or 'overall'"),
        ({"contexts": ["hart"]}, r"contexts: entry='hart' is not a context; did you mean 'heart'"),
        ({"contexts": []}, r"contexts is empty"),
        ({"max_contexts": 1}, r"max_contexts=1 is out of bounds"),
        ({"X": None, "y": None}, r"A fitted model keeps no rows"),
    ],
)
def test_score_errors(arguments, match, data, model):
    with pytest.raises(ValueError, match=match):
        plot_scores(model, **{"component": 0, "X": frame(data), "y": data[1]} | arguments)
    assert plt.get_fignums() == []


# Features


@pytest.mark.parametrize("by", ["components", "projection"])
def test_bars_are_the_entries_at_both_poles(by, model):
    ax = plot_top_features(model, "MCPC 2", n=3, by=by)
    a = model.components_[:, 1] if by == "components" else model.projection_[1]
    order = np.argsort(-a)
    chosen = np.concatenate([order[:3], order[-3:]])
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], a[chosen])
    assert names_of_rows(ax) == [FEATURES[i] for i in chosen]
    heights = [bar.get_y() + bar.get_height() / 2 for bar in ax.patches]
    np.testing.assert_allclose(heights, ax.get_yticks())
    assert (np.diff(heights) < 0).all()


def test_features_without_a_part_are_not_drawn(data):
    mask = np.arange(12) < 5
    adata, model = stored_fit(*data, 3, mask=mask)
    ax = plot_top_features(adata, 0)
    assert set(names_of_rows(ax)) == {f"gene {j}" for j in range(5)}
    np.testing.assert_allclose(
        sorted(bar.get_width() for bar in ax.patches), np.sort(model.components_[:, 0]), atol=1e-12
    )


def test_names_of_features_by_column_or_as_given(data):
    adata, model = stored_fit(*data, 3)
    adata.var["symbol"] = [f"SYM{j}" for j in range(12)]
    own = [name.replace("gene ", "SYM") for name in names_of_rows(plot_top_features(adata, 0))]
    assert names_of_rows(plot_top_features(adata, 0, names="symbol")) == own
    assert names_of_rows(plot_top_features(model, 0, names=adata.var["symbol"])) == own
    with pytest.raises(ValueError, match=r"names='symbl' is not a column of adata\.var; did you mean 'symbol'"):
        plot_top_features(adata, 0, names="symbl")
    with pytest.raises(ValueError, match=r"names='symbol' would be a column of var"):
        plot_top_features(model, 0, names="symbol")
    with pytest.raises(ValueError, match=r"names has 2 entries, but there are 12 features"):
        plot_top_features(model, 0, names=["a", "b"])


def test_feature_errors(model):
    with pytest.raises(ValueError, match=r"by='loadings'; choose 'components' or 'projection'"):
        plot_top_features(model, 0, by="loadings")
    with pytest.raises(ValueError, match=r"n=0 is out of bounds"):
        plot_top_features(model, 0, n=0)
    assert plt.get_fignums() == []


def test_long_names_keep_both_ends():
    assert shorten("abcdefghij", 10) == "abcdefghij"
    assert shorten("abcdefghijk", 7) == "abc…ijk"
    assert len(shorten("x" * 1000, 32)) == 32


def test_names_are_text_and_no_formulas(data):
    X, y = data
    names = dict(zip(NAMES, ["$\\frac$ and", "two\nlines", "$5 to $6", "_{x}^"], strict=True))
    labels = np.array([names[label] for label in y])
    model = MCPCA(3, random_state=0).fit(pd.DataFrame(X, columns=[f"$\\wrong{j}$" for j in range(12)]), labels)
    rows = pd.DataFrame(X, columns=model.feature_names_in_)
    axes = [
        plot_scores(model, 0, rows, labels),
        plot_plane(model, "$\\frac$ and", rows, labels),
        plot_top_features(model, 0),
    ]
    for ax in axes:
        ax.figure.canvas.draw()  # raises where a formula cannot be read
    assert "two lines" in names_of_rows(axes[0])
    assert r"\$5 to \$6" in names_of_rows(axes[0])


# All of them

PICTURES = {
    "plane": lambda m, data, ax, **o: plot_plane(m, "liver", frame(data), data[1], ax=ax, **{"color": 0} | o),
    "scores_violin": lambda m, data, ax, **o: plot_scores(m, **{"component": 0} | o, X=frame(data), y=data[1], ax=ax),
    "scores_ridge": lambda m, data, ax, **o: plot_scores(
        m, **{"component": 0} | o, X=frame(data), y=data[1], kind="ridge", center="overall", ax=ax
    ),
    "scores_box": lambda m, data, ax, **o: plot_scores(
        m, **{"component": 0} | o, X=frame(data), y=data[1], kind="box", ax=ax
    ),
    "top_features": lambda m, data, ax, **o: plot_top_features(m, **{"component": 0} | o, n=4, ax=ax),
}
# The same picture of something else, which must not pass for the kept one.
OTHERS = {"plane": {"color": 1, "components": [2]}} | {name: {"component": 1} for name in PICTURES if name != "plane"}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_look_as_they_did(name, model, data, tmp_path, monkeypatch):
    with plain_style():
        for other in (False, True):
            figure = plt.figure(figsize=(4, 3))
            ax = figure.add_axes((0.2, 0.18, 0.55, 0.66))  # at a fixed place: a layout moves with the width of letters
            PICTURES[name](model, data, ax, **(OTHERS[name] if other else {}))
            if not other:
                check_picture(figure, name)
                continue
            monkeypatch.delenv("MCPCA_UPDATE_PICTURES", raising=False)
            shutil.copy(BASELINE / f"{name}.png", tmp_path)
            with pytest.raises(AssertionError, match="differs"):
                check_picture(figure, name, tmp_path)


@pytest.mark.parametrize("name", PICTURES)
def test_given_axes_are_used_and_no_figure_is_opened(name, model, data):
    ax = matplotlib.figure.Figure().add_subplot()
    assert PICTURES[name](model, data, ax) is ax
    assert plt.get_fignums() == []
    PICTURES[name](model, data, None)
    assert len(plt.get_fignums()) == 1


@pytest.mark.parametrize("name", PICTURES)
def test_model_must_be_fitted(name, data):
    with pytest.raises(NotFittedError):
        PICTURES[name](MCPCA(3), data, None)


@pytest.mark.parametrize("name", PICTURES)
def test_missing_matplotlib_names_the_extra(name, model, data, monkeypatch):
    for module in [n for n in sys.modules if n.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r'pip install "mcpca\[plot\]"'):
        PICTURES[name](model, data, None)
