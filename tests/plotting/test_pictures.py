"""Each picture looks as it did when someone looked at it; another model's picture does not pass for it."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from pictures import BASELINE, LARGEST, TOLERANCE, axes, check_picture, picture_distance, plain_style, save_picture
from planted_maps import CONTEXTS, planted_model, rearranged_model
from test_ranks import selection
from test_solver_comparison import comparison

from mcpca.analysis import differential_variance
from mcpca.plotting import (
    plot_angles,
    plot_component_images,
    plot_context_tree,
    plot_differential_variance,
    plot_loadings,
    plot_rank_heatmap,
    plot_rank_selection,
    plot_scree,
    plot_solver_comparison,
    plot_variance_explained,
)

ANNOTATIONS = {
    "system": dict(zip(CONTEXTS, ["nerve", "breath", "skin", "gut", "gut", "gut"], strict=True)),
    "age": [41, 52, 63, 44, 70, None],
}


@pytest.fixture(scope="module")
def model():
    return planted_model()


@pytest.fixture(scope="module")
def other():
    return rearranged_model()


@pytest.fixture(autouse=True)
def _plain():
    with plain_style():
        yield
    plt.close("all")


def many(model):
    """Nearly the same six contexts, forty times each: 240 names. Equal ones would be in an order that rounding has."""
    weights = 1 + 0.002 * np.outer(np.arange(40), np.cos(np.arange(model.loadings_.shape[1])))
    loadings = np.concatenate([row * weights for row in model.loadings_])
    names = [f"{name} sample {i} of forty" for name in model.contexts_ for i in range(40)]
    return planted_model(loadings, names)


def rank_choice(model):
    """A selection whose numbers are those of the model."""
    sigma = model.singular_values_
    null = 0.5 * sigma[0] * 0.8 ** np.arange(len(sigma))
    return selection(scree={"singular value": sigma, "null mean": null, "null upper": 1.5 * null})


def pairs(model):
    values = model.loadings_[:5] / model.loadings_[:5].max()
    return selection(pairwise={"projection similarity": values}, scree={}, columns={"BIC": model.loadings_[:5, 0]})


def five_axes():
    figure = plt.figure(figsize=(4, 3))
    return [figure.add_axes((0.04 + 0.33 * (j % 3), 0.52 - 0.5 * (j // 3), 0.25, 0.33)) for j in range(5)]


PICTURES = {
    "loadings": lambda m: plot_loadings(m, ax=axes()),
    "loadings_cluster": lambda m: plot_loadings(m, order="cluster", normalize="component", ax=axes()),
    "loadings_groups": lambda m: plot_loadings(
        m,
        order="groups",
        normalize="component",
        annotations=ANNOTATIONS,
        ax=axes(1.2, 2.2, above=0.8, width=5.5, height=3.5),
    ),
    "loadings_many": lambda m: plot_loadings(many(m), order="cluster", ax=axes(2.1)),
    "context_tree": lambda m: plot_context_tree(m, ax=axes(0.2)),
    "context_tree_annotated": lambda m: plot_context_tree(
        m, annotations=ANNOTATIONS, ax=axes(0.4, 2.1, above=0.7, height=3.6)
    ),
    "context_tree_many": lambda m: plot_context_tree(many(m), ax=axes(0.4, 2)),
    "differential_variance": lambda m: plot_differential_variance(
        differential_variance(m, list("aaabbb")), ax=axes(right=2.1, width=5.5, height=2.5)
    ),
    "variance_explained": lambda m: plot_variance_explained(m, ax=axes(right=0.2)),
    "angles": lambda m: plot_angles(m, ax=axes()),
    "scree": lambda m: plot_scree(m, selection=rank_choice(m), ax=axes(right=0.1)),
    "component_images": lambda m: plot_component_images(m, (6, 6), ax=five_axes()),
    "rank_heatmap": lambda m: plot_rank_heatmap(pairs(m), "projection similarity", ax=axes()),
    "rank_selection": lambda m: plot_rank_selection(pairs(m)),
    "solver_comparison": lambda m: plot_solver_comparison(comparison(m.loadings_), ax=plt.figure(figsize=(7, 3))),
}


def figure_of(drawn):
    first = drawn[0] if isinstance(drawn, list) else drawn
    return getattr(first, "figure", first)


@pytest.mark.parametrize("name", PICTURES)
def test_picture_is_the_one_that_was_looked_at(name, model):
    check_picture(figure_of(PICTURES[name](model)), name)


@pytest.mark.parametrize("name", PICTURES)
def test_picture_of_another_model_does_not_pass(name, other, tmp_path):
    save_picture(figure_of(PICTURES[name](other)), tmp_path / "other.png")
    assert picture_distance(tmp_path / "other.png", BASELINE / f"{name}.png") > TOLERANCE


def test_check_tells_what_differs_and_keeps_what_was_drawn(tmp_path, monkeypatch):
    def line(slope):
        ax = axes(0.2, 0.2, 0.2, 0.2, 2, 2)
        ax.plot([0, 1], [0, slope], linewidth=5)
        ax.set_ylim(-1, 1)
        return ax.figure

    monkeypatch.delenv("MCPCA_UPDATE_PICTURES", raising=False)
    with pytest.raises(AssertionError, match=r"line\.png is missing; write it with MCPCA_UPDATE_PICTURES=1"):
        check_picture(line(1), "line", tmp_path)
    monkeypatch.setenv("MCPCA_UPDATE_PICTURES", "1")
    check_picture(line(1), "line", tmp_path)
    monkeypatch.delenv("MCPCA_UPDATE_PICTURES")
    check_picture(line(1), "line", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["line.png"]
    with pytest.raises(AssertionError, match=r"line-failed\.png differs from .*line\.png: \d+\.\d > "):
        check_picture(line(-1), "line", tmp_path)
    assert picture_distance(tmp_path / "line-failed.png", tmp_path / "line.png") > TOLERANCE
    with pytest.raises(AssertionError, match="inf > "):
        check_picture(plt.figure(figsize=(2, 3)), "line", tmp_path)


def test_kept_pictures_are_small():
    sizes = {path.name: path.stat().st_size for path in BASELINE.glob("*.png") if not path.stem.endswith("-failed")}
    assert set(sizes) >= {f"{name}.png" for name in PICTURES}
    assert max(sizes.values()) < LARGEST
