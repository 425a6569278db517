"""plot_differential_variance: numbers stand where they should, and whatever a group lacks is an arrow."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

from mcpca import MCPCA
from mcpca.analysis import differential_variance
from mcpca.plotting import plot_differential_variance


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def found():
    """The second MCPC is twice as large in b, the third is absent there; the others do not differ."""
    rng = np.random.default_rng(0)
    b = np.repeat([False, True], 8)
    B = rng.gamma(30, 1 / 30, (16, 4)) * [8, 3, 2, 1]
    B[b, 1] *= 2
    B[b, 2] = 0
    model = MCPCA(4, random_state=0).fit_covariances(B[:, :, None] * np.eye(4), n_samples=100)
    return differential_variance(model, np.where(b, "treated", "control"))


def points(ax):
    """The drawn points {row: (x, filled)}."""
    drawn = [line for line in ax.lines if line.get_marker() == "o"]
    return {int(line.get_ydata()[0]): (line.get_xdata()[0], line.get_markerfacecolor() != "white") for line in drawn}


def labels(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def test_points_and_lines_are_the_ratios(found):
    ax = plot_differential_variance(found)
    drawn = points(ax)
    table = found.table
    for i, name in enumerate(labels(ax)):
        if table.loc[name, "ratio"] > 0:
            x, filled = drawn[i]
            assert x == pytest.approx(np.log2(table.loc[name, "ratio"]))
            assert filled == table.loc[name, "significant"]
    ends = [line.get_xdata() for line in ax.lines if len(line.get_xdata()) == 2 and line.get_marker() == "None"]
    kept = table[table["ratio"] > 0]
    for low, high in np.log2(kept[["lower", "upper"]].to_numpy()):
        assert any(np.allclose(end, [low, high]) for end in ends)
    assert ax.get_xlabel() == "variance in treated / variance in control"
    low, high = ax.get_xlim()
    assert low == -high  # half and twice as much are equally far from the middle


def test_what_a_group_lacks_is_an_arrow_at_the_edge(found):
    ax = plot_differential_variance(found)
    lacking = labels(ax).index(found.table.index[found.table["ratio"] == 0][0])
    arrow = [line for line in ax.lines if line.get_marker() == "<"]
    assert [line.get_ydata()[0] for line in arrow] == [lacking]
    assert arrow[0].get_xdata()[0] == ax.get_xlim()[0]
    assert lacking not in points(ax)
    # From the other side it is infinitely more.
    table = found.table.assign(
        ratio=lambda t: 1 / t["ratio"], lower=1 / found.table["upper"], upper=1 / found.table["lower"]
    )
    other = type(found)(table, ("treated", "control"), (8, 8), found.how, (), 0.05, found.loadings, "fdr")
    ax = plot_differential_variance(other)
    assert [line.get_ydata()[0] for line in ax.lines if line.get_marker() == ">"] == [lacking]
    texts = [text.get_text() for text in ax.texts]
    assert "∞" in texts
    assert "q" in texts


def test_order_and_choice_of_mcpcs(found):
    ax = plot_differential_variance(found, order="ratio")
    ratios = found.table.loc[labels(ax), "ratio"].to_numpy()
    assert (np.diff(ratios) <= 0).all()
    given = plt.subplots()[1]
    assert plot_differential_variance(found, components=["MCPC 3", 0], ax=given) is given
    assert labels(given) == ["MCPC 3", "MCPC 1"]
    names = [text.get_text() for text in given.texts]
    assert "← more in control" in names
    assert "ratio (95% interval)" in names
    assert "adj. p" in names


def test_many_mcpcs_and_wide_intervals_stay_readable(rng):
    B = rng.gamma(0.3, 1, (6, 60)) + 0.01
    model = MCPCA(60, random_state=0).fit_covariances(B[:, :, None] * np.eye(60), n_samples=100)
    ax = plot_differential_variance(differential_variance(model, list("aaabbb")))
    assert ax.get_xlim()[1] <= 6
    assert not any("(" in text.get_text() for text in ax.texts)  # no numbers on top of each other
    assert len([line for line in ax.lines if line.get_marker() in "<>"]) > 0


def test_bad_input_is_named(found):
    with pytest.raises(TypeError, match=r"result is a DataFrame; pass what analysis\.differential_variance returned"):
        plot_differential_variance(found.table)
    with pytest.raises(ValueError, match="order='sorted'; choose 'given' or 'ratio'"):
        plot_differential_variance(found, order="sorted")
    with pytest.raises(ValueError, match="components='MCPC 9' is not an MCPC"):
        plot_differential_variance(found, components="MCPC 9")
