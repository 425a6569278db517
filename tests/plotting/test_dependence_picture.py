"""The picture of a test of contexts shows its numbers: variances, q-values, and what chance does."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgba

from mcpca import ContextDependence
from mcpca.plotting import plot_context_dependence
from mcpca.plotting._common import BLUE

K, R = 5, 3


def result(**changes):
    rng = np.random.default_rng(0)
    fields = {
        "p_value": 0.001,
        "p_values": np.array([0.001, 0.4, 0.002]),
        "statistics": np.array([90.0, 5.0, 60.0]),
        "null_means": np.array([4.0, 4.5, 5.0]),
        "variances": np.exp(rng.standard_normal((K, R)) / 3),
        "contexts": np.array([f"c{i}" for i in range(K)]),
        "n_samples": np.array([10, 20, 40, 80, 160]),
        "agreement": np.ones(R),
        "p_value_beyond_scale": 0.001,
    }
    return ContextDependence(**{**fields, **changes})


@pytest.fixture(autouse=True)
def _closed(monkeypatch):
    monkeypatch.setattr(plt, "show", lambda *a, **k: pytest.fail("show was called"))
    yield
    plt.close("all")


def test_points_are_variances_and_bands_are_chance():
    found = result()
    ax = plot_context_dependence(found)
    assert len(ax.collections) == R
    for j, points in enumerate(ax.collections):
        np.testing.assert_allclose(points.get_offsets()[:, 0], found.variances[:, j])
        assert (np.abs(points.get_offsets()[:, 1] - j) < 0.4).all()
        # A larger context has a larger point.
        assert (np.diff(points.get_sizes()) >= 0).all()
        assert np.ptp(points.get_sizes()) > 0
        # Filled and blue where it differs, open and grey where it does not.
        differs = found.dependent[j]
        assert (len(points.get_facecolor()) > 0) == differs
        assert (tuple(points.get_edgecolor()[0][:3]) == to_rgba(BLUE)[:3]) == differs
    bands = ax.patches[:R]
    sd = np.sqrt(found.null_means / (found.n_samples - 1).sum())
    np.testing.assert_allclose([band.get_x() for band in bands], 1 - sd)
    np.testing.assert_allclose([band.get_width() for band in bands], 2 * sd)
    said = [text.get_text() for text in ax.texts]
    assert said == [f"q = {q:.2g}" for q in found.q_values]
    assert ax.get_title(loc="left") == "2 of 3 axes differ between contexts (p = 0.001)"
    assert ax.get_xscale() == "log"
    assert [label.get_text() for label in ax.get_yticklabels()] == ["MCPC 1", "MCPC 2", "MCPC 3"]


def test_draws_on_given_axes_and_the_result_draws_itself():
    _, ax = plt.subplots()
    assert plot_context_dependence(result(), ax=ax) is ax
    figure = result().plot()
    assert isinstance(figure, plt.Figure)
    assert len(figure.axes) == 1


def test_a_context_without_variance_is_on_a_plain_scale():
    variances = result().variances.copy()
    variances[0, 0] = 0.0
    assert plot_context_dependence(result(variances=variances)).get_xscale() == "linear"


def test_other_sources_are_refused():
    with pytest.raises(TypeError, match="source is a dict without a test of contexts; pass what context_dependence"):
        plot_context_dependence({})
