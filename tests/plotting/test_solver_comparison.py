"""The picture of a comparison: all measures, the decisive one first, the recommended solver marked."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

from mcpca import MCPCA, SolverComparison
from mcpca.datasets import make_contexts
from mcpca.plotting import plot_solver_comparison
from mcpca.plotting._common import MARK

NAMES = ("mspm", "ml isotropic", "cpc", "own covariance")


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def comparison(numbers):
    """A comparison in two splits whose errors are ``numbers`` (at least 4, 2)."""
    error = np.asarray(numbers, dtype=float)[:4, :2]
    best = NAMES[int(error[:2].mean(axis=1).argmin())]
    agreement = np.where(np.arange(4)[:, None] < 3, 1 / (1 + error), np.nan)
    return SolverComparison(
        NAMES,
        ("solver", "solver", "baseline", "naive"),
        {"off-diagonal error": error, "agreement of halves": agreement, "seconds": 0.1 + error},
        "off-diagonal error",
        best,
        {"solver": best.split()[0], "noise": None},
        f"{best} has the lowest error.",
        2,
    )


def rows_of(panel):
    """Return the positions of points along x by row."""
    found = {}
    for container in panel.containers:
        x, y = container[0].get_data()
        found[int(y[0])] = float(x[0])
    return found


def test_candidates_are_rows_and_measures_are_panels():
    made = comparison([[0.5, 0.6], [0.3, 0.4], [0.7, 0.7], [0.2, 0.2]])
    figure = made.plot()
    panels = figure.axes
    assert [panel.get_title().replace("\n", " ") for panel in panels] == [
        "off-diagonal error",
        "agreement of halves",
        "seconds",
    ]
    assert [label.get_text() for label in panels[0].get_yticklabels()] == [
        "own covariance",
        "ml isotropic",
        "mspm",
        "cpc",
    ]
    assert rows_of(panels[0]) == pytest.approx({0: 0.2, 1: 0.35, 2: 0.55, 3: 0.7})
    assert set(rows_of(panels[1])) == {1, 2, 3}  # naive covariances have no axes that could agree
    assert figure.get_suptitle() == "ml isotropic has the lowest error."
    marked = [patch for patch in panels[0].patches if patch.get_facecolor()[:3] == matplotlib.colors.to_rgb(MARK)]
    # A Rectangle, or with Matplotlib 3.8 a Polygon, which has no y of its own.
    assert [p.get_patch_transform().transform(p.get_path().vertices)[:, 1].min() for p in marked] == [0.5]


def test_what_is_far_out_is_pointed_at():
    made = comparison([[0.5, 0.5], [0.3, 0.3], [0.4, 0.4], [90, 90]])
    panel = made.plot().axes[0]
    assert panel.get_xlim()[1] < 2
    assert "90" in [text.get_text() for text in panel.texts]
    assert 3 not in rows_of(panel)


def test_a_model_shows_its_choice():
    data = make_contexts(4, 6, 2, n_samples=40, noise=0.3, random_state=0)
    model = MCPCA(2, solver="auto", noise="isotropic", random_state=0).fit(data.X, data.y)
    figure = plot_solver_comparison(model)
    assert len(figure.axes[0].get_yticklabels()) == 3
    assert figure.legends == []  # solvers alone need none
    with pytest.raises(ValueError, match=r"was not fitted with solver='auto' .it has solver='mspm'."):
        plot_solver_comparison(MCPCA(2).fit(data.X, data.y))
    with pytest.raises(TypeError, match=r"source is a list; pass the result of mcpca.compare_solvers"):
        plot_solver_comparison([])
    with pytest.raises(TypeError, match="ax is a Axes; this needs a whole Figure"):
        plot_solver_comparison(model, ax=plt.figure().add_subplot())
