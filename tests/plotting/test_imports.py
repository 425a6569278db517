"""Pictures show the numbers of the model, and nothing is imported or left open that was not asked for."""

import itertools
import re
import subprocess
import sys

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from mcpca import MCPCA
from mcpca._utils.optional import require
from mcpca.datasets import make_contexts
from mcpca.plotting import plot_component_images, plot_loadings, plot_scree
from mcpca.plotting._loadings import normalized


def fit(n_contexts, n_components, n_features=36, prefix="context "):
    truth = make_contexts(n_contexts, n_features, n_components, n_samples=60, noise=0.05, random_state=0)
    names = [f"{prefix}{i}" for i in range(n_contexts)]
    return MCPCA(n_components, random_state=0).fit_covariances(truth.covariances, context_names=names)


@pytest.fixture(scope="module")
def model():
    return fit(4, 3)


@pytest.fixture(autouse=True)
def _no_open_figures():
    assert plt.get_fignums() == []
    yield
    plt.close("all")


def shown(ax):
    """The matrix that the heatmap shows."""
    return np.asarray(ax.images[0].get_array())


def labels(ticks):
    return [tick.get_text() for tick in ticks]


def test_heatmap_shows_the_loadings_with_their_names(model):
    ax = plot_loadings(model)
    np.testing.assert_array_equal(shown(ax), model.loadings_)
    assert labels(ax.get_yticklabels()) == ["context 0", "context 1", "context 2", "context 3"]
    assert labels(ax.get_xticklabels()) == ["MCPC 1", "MCPC 2", "MCPC 3"]
    assert ax.images[0].get_clim() == (0, model.loadings_.max())
    assert ax.child_axes[0].get_ylabel() == "loading (variance)"


def test_colour_of_zero_is_light_and_lightness_falls(model):
    colours = plot_loadings(model).images[0].cmap(np.linspace(0, 1, 50))[:, :3]
    lightness = colours @ [0.299, 0.587, 0.114]
    assert lightness[0] > 0.95
    assert (np.diff(lightness) < 0).all()


def test_normalize_divides_by_the_column_maxima(model):
    ax = plot_loadings(model, normalize="component")
    np.testing.assert_allclose(shown(ax), model.loadings_ / model.loadings_.max(axis=0), rtol=1e-15)
    assert ax.child_axes[0].get_ylabel() != "loading (variance)"


def test_normalize_keeps_a_column_of_zeros():
    B = np.array([[0.0, 2.0], [0.0, 4.0]])
    np.testing.assert_array_equal(normalized(B, "component"), [[0, 0.5], [0, 1]])


def test_numbers_are_written_when_they_are_few(model):
    few, many = plot_loadings(model), plot_loadings(fit(30, 30))
    assert [t.get_text() for t in few.texts] == [f"{b:.2f}" for b in model.loadings_.ravel()]
    assert not many.texts
    assert not plot_loadings(model, annotate=False).texts
    assert len(plot_loadings(fit(12, 10), annotate=True).texts) == 120


@pytest.mark.parametrize(
    ("scale", "pattern"), [(1e-6, r"0|\d\.\de-\d+"), (1e-2, r"0|0\.\d{4}"), (1e2, r"0|\d+"), (1e7, r"0|\d\.\de\+\d+")]
)
def test_numbers_fit_the_scale_of_the_loadings(scale, pattern, model):
    S = np.einsum("pr,kr,qr->kpq", model.components_, scale * model.loadings_, model.components_)
    ax = plot_loadings(MCPCA(3, random_state=0).fit_covariances(S))
    assert ax.texts
    for text in ax.texts:
        assert re.fullmatch(pattern, text.get_text())


@pytest.mark.parametrize(("k", "r"), [(3, 12), (30, 30), (200, 20), (1, 1)])
def test_labels_do_not_overlap(k, r):
    ax = plot_loadings(fit(k, r))
    ax.figure.canvas.draw()
    for ticks in (ax.get_yticklabels(), ax.get_xticklabels()):
        boxes = [tick.get_window_extent() for tick in ticks]
        assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes))
    texts = labels(ax.get_yticklabels())
    assert set(texts) <= {f"context {i}" for i in range(k)}
    assert len(texts) == k or k == 200


def test_thinned_labels_stand_at_their_rows():
    ax = plot_loadings(fit(200, 5))
    assert labels(ax.get_yticklabels()) == [f"context {i}" for i in ax.get_yticks()]
    assert 20 <= len(ax.get_yticks()) < 200


def test_names_of_other_components_stay(model):
    class Named(MCPCA):
        def get_feature_names_out(self, input_features=None):
            return np.array(["growth", "stress", "age"], dtype=object)

    named = Named(3, random_state=0).fit_covariances(
        np.einsum("pr,kr,qr->kpq", model.components_, model.loadings_, model.components_)
    )
    assert labels(plot_loadings(named).get_xticklabels()) == ["growth", "stress", "age"]


@pytest.mark.parametrize("plot", [plot_loadings, plot_scree])
def test_given_axes_are_used_and_no_figure_is_opened(plot, model):
    ax = matplotlib.figure.Figure().add_subplot()
    assert plot(model, ax=ax) is ax
    assert plt.get_fignums() == []


def test_own_figure_is_one(model):
    for plot in (plot_loadings, plot_scree, lambda m: plot_component_images(m, (6, 6))):
        plot(model)
        assert len(plt.get_fignums()) == 1
        plt.close("all")


def test_images_are_the_components_on_symmetric_scales(model):
    figure = plot_component_images(model, (4, 9))
    assert len(figure.axes) == 3
    for j, ax in enumerate(figure.axes):
        a = model.components_[:, j]
        np.testing.assert_array_equal(shown(ax), a.reshape(4, 9))
        assert ax.images[0].get_clim() == (-np.abs(a).max(), np.abs(a).max())


def test_chosen_images_in_the_order_given(model):
    figure = plot_component_images(model, (6, 6), components=[2, 0], titles=["last", "first"])
    assert [ax.get_title() for ax in figure.axes] == ["last", "first"]
    np.testing.assert_array_equal(shown(figure.axes[0]).ravel(), model.components_[:, 2])


def test_rows_of_images_are_filled_and_the_rest_is_empty():
    figure = plot_component_images(fit(5, 7), (6, 6), n_columns=3)
    assert [len(ax.images) for ax in figure.axes] == [1] * 7 + [0] * 2
    assert [ax.axison for ax in figure.axes] == [True] * 7 + [False] * 2


@pytest.mark.parametrize(
    ("loadings", "title"),
    [
        ([4, 1, 0, 0], "MCPC 1\nx0"),
        ([2, 0, 4, 1.9], "MCPC 1\nx0, x2"),
        ([4, 3, 2, 2], "MCPC 1\nall contexts"),
        ([0, 0, 0, 0], "MCPC 1\nno context"),
    ],
)
def test_titles_name_the_contexts_with_half_of_the_largest_loading(loadings, title):
    model = fit(4, 1, prefix="x")
    model.loadings_ = np.array(loadings, dtype=float)[:, None]
    assert plot_component_images(model, (6, 6)).axes[0].get_title() == title


@pytest.mark.parametrize(
    ("loadings", "line"), [([1, 4, 3, 0], "a rather lo… + 1 more"), ([0, 4, 0, 0], "a rather long name 1")]
)
def test_titles_are_short(loadings, line):
    model = fit(4, 1, prefix="a rather long name ")
    model.loadings_ = np.array(loadings, dtype=float)[:, None]
    assert plot_component_images(model, (6, 6)).axes[0].get_title().split("\n")[1] == line


def test_scree_shows_the_singular_values_and_the_rank(model):
    ax = plot_scree(model)
    line = ax.lines[0]
    np.testing.assert_array_equal(line.get_ydata(), model.singular_values_)
    np.testing.assert_array_equal(line.get_xdata(), np.arange(1, len(model.singular_values_) + 1))
    assert ax.get_yscale() == "log"
    assert [len(c.get_offsets()) for c in ax.collections] == [3, len(model.singular_values_) - 3]
    assert ax.texts[0].get_text() == "rank 3"


def test_scree_leaves_out_what_is_zero_but_for_rounding():
    S = np.zeros((2, 5, 5))
    S[0, 0, 0], S[1, 1, 1] = 2, 1
    ax = plot_scree(MCPCA(2, random_state=0).fit_covariances(S))
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [2, 1])
    ax.figure.canvas.draw()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"shape": (6, 7)}, r"shape=\(6, 7\) has 42 pixels, but the model has 36 features.*height \* width = 36"),
        ({"shape": 36}, r"shape=36 is not \(height, width\)"),
        ({"shape": (36,)}, r"shape=\(36,\) is not \(height, width\)"),
        ({"shape": (-6, -6)}, r"shape=\(-6, -6\) is not \(height, width\)"),
        ({"shape": (6.0, 6.0)}, r"shape=\(6.0, 6.0\) is not \(height, width\)"),
        ({"components": [3]}, r"components entry=3 is out of bounds: 0 <= components entry <= 2"),
        ({"components": []}, r"components is empty; pass at least one of 0 to 2"),
        ({"titles": ["one"]}, r"titles has 1 entries, but 3 images are drawn"),
        ({"n_columns": 0}, r"n_columns=0 is out of bounds: n_columns >= 1"),
    ],
)
def test_image_errors_name_argument_value_and_bound(arguments, match, model):
    with pytest.raises(ValueError, match=match):
        plot_component_images(model, **{"shape": (6, 6)} | arguments)
    assert plt.get_fignums() == []


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"normalize": "row"}, r"normalize='row'; choose None, 'component' or 'context'"),
        ({"order": "size"}, r"order='size'; choose one of \['given', 'cluster', 'groups'\]"),
        ({"annotate": "yes"}, r"annotate='yes'; choose True, False or 'auto'"),
    ],
)
def test_heatmap_errors_name_argument_value_and_choices(arguments, match, model):
    with pytest.raises(ValueError, match=match):
        plot_loadings(model, **arguments)
    assert plt.get_fignums() == []


@pytest.mark.parametrize("plot", [plot_loadings, plot_scree, lambda m: plot_component_images(m, (6, 6))])
def test_model_must_be_fitted(plot):
    with pytest.raises(NotFittedError):
        plot(MCPCA(3))


@pytest.mark.parametrize("plot", [plot_loadings, plot_scree, lambda m: plot_component_images(m, (6, 6))])
def test_missing_matplotlib_names_the_extra(plot, model, monkeypatch):
    for name in [n for n in sys.modules if n.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r'pip install "mcpca\[plot\]"'):
        plot(model)


def test_require_keeps_the_cause():
    with pytest.raises(ImportError, match=r"no_such_module.*mcpca\[demo\]") as caught:
        require("no_such_module", "demo")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_importing_the_package_does_not_import_matplotlib():
    code = (
        "import mcpca, mcpca.plotting, mcpca.demo, sys; print([m for m in sys.modules if m.startswith('matplotlib')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
