"""temporal_order: peaks, the order between them, and what groups carry, from planted loadings."""

import numpy as np
import pandas as pd
import pytest
from planted_maps import planted_model
from stored_fit import stored_fit

from mcpca.analysis import temporal_order

YEARS = (1800, 1820, 1840, 1860)
NAMES = [f"{form} {year}" for form in ("fiction", "science") for year in YEARS]
FORM = {name: name.split()[0] for name in NAMES}
YEAR = {name: int(name.split()[1]) for name in NAMES}
# The paper's story: MCPC 1 in fiction, then in science; MCPC 2 in science, then in fiction; MCPC 3 in science alone.
B = np.array(
    [
        [9.0, 0.1, 0.1],
        [3.0, 0.2, 0.0],
        [2.0, 1.0, 0.1],
        [1.0, 5.0, 0.2],
        [1.0, 0.5, 1.0],
        [8.0, 1.0, 2.0],
        [2.0, 6.0, 1.9],
        [1.0, 3.0, 1.0],
    ]
)


@pytest.fixture(scope="module")
def model():
    return planted_model(B, NAMES, noise=0.0, p=12)


def arrows(found):
    """Edges as pairs of (MCPC, group), by what they follow."""
    node = [(row.component, row.group) for row in found.nodes.itertuples()]
    return {of: {(node[e.source], node[e.target]) for e in part.itertuples()} for of, part in found.edges.groupby("of")}


def test_the_papers_graph_is_found(model):
    found = temporal_order(model, YEAR, FORM)
    assert found.shared == ["MCPC 1", "MCPC 2"]
    peaks = {(row.component, row.group): row.peak for row in found.nodes.itertuples()}
    assert peaks == {
        ("MCPC 1", "fiction"): "1800",
        ("MCPC 1", "science"): "1820",
        ("MCPC 2", "fiction"): "1860",
        ("MCPC 2", "science"): "1840",
    }
    assert arrows(found) == {
        "component": {
            (("MCPC 1", "fiction"), ("MCPC 1", "science")),
            (("MCPC 2", "science"), ("MCPC 2", "fiction")),
        },
        "group": {
            (("MCPC 1", "fiction"), ("MCPC 2", "fiction")),
            (("MCPC 1", "science"), ("MCPC 2", "science")),
        },
    }
    assert "MCPC 1 peaks in fiction (1800), then science (1820)." in str(found)
    row = found.nodes.query("component == 'MCPC 2' and group == 'science'").iloc[0]
    assert (row["first"], row["last"]) == ("1840", "1860")  # 3 is half of 6
    assert row["loading"] == pytest.approx(6, rel=1e-6)
    assert row["lead"] == pytest.approx(2, rel=1e-6)
    assert list(found.times) == ["1800", "1820", "1840", "1860"]


def test_share_says_which_groups_carry_an_mcpc(model):
    alone = temporal_order(model, YEAR, FORM, components="MCPC 3")
    assert list(alone.nodes["group"]) == ["science"]
    assert alone.shared == []
    assert alone.edges.empty
    assert alone.nodes["lead"].iloc[0] == pytest.approx(2 / 1.9, rel=1e-6)
    both = temporal_order(model, YEAR, FORM, components="MCPC 3", share=0.09)
    assert set(both.nodes["group"]) == {"science", "fiction"}


def test_equal_times_have_no_order_and_contexts_of_one_time_are_averaged(model):
    halves = {name: "early" if YEAR[name] < 1830 else "late" for name in NAMES}
    found = temporal_order(model, halves, FORM, components=[0])
    assert list(found.nodes["peak"]) == ["early", "early"]
    assert found.edges.empty
    np.testing.assert_allclose(found.nodes["loading"], [6, 4.5], rtol=1e-6)
    assert "MCPC 1 peaks in fiction and science (early)." in str(found)


def test_all_forms_of_time_give_one_order(model):
    expected = temporal_order(model, YEAR, FORM)
    ordered = pd.Series(pd.Categorical([f"y{YEAR[n]}" for n in NAMES], [f"y{y}" for y in YEARS], ordered=True), NAMES)
    dates = pd.Series(pd.to_datetime([f"{YEAR[n]}-06-01" for n in NAMES]), NAMES)
    for time in ([YEAR[n] for n in NAMES], ordered[::-1], dates):
        found = temporal_order(model, time, FORM)
        pd.testing.assert_frame_equal(found.edges, expected.edges)
        np.testing.assert_array_equal(found.nodes["loading"], expected.nodes["loading"])
        assert np.argsort(found.nodes["place"]).tolist() == np.argsort(expected.nodes["place"]).tolist()


def test_dates_are_days_unless_two_are_of_one_day(model):
    days = [f"{YEAR[n]}-06-01" for n in NAMES]
    assert list(temporal_order(model, pd.to_datetime(days).to_numpy(), FORM).times) == days[:4]
    hours = pd.Series(pd.to_datetime(["1859-11-24"] * 8) + pd.to_timedelta(np.tile([0, 6, 12, 18], 2), "h"), NAMES)
    found = temporal_order(model, hours, FORM)
    assert len(found.times) == 4
    np.testing.assert_allclose(np.diff(list(found.times.values())), 0.25)
    pd.testing.assert_frame_equal(found.edges, temporal_order(model, YEAR, FORM).edges)


def test_columns_of_an_anndata_are_read(rng):
    y = np.repeat(NAMES, 30)
    X = rng.normal(size=(len(y), 6)) * np.sqrt(np.repeat(np.hstack([B, B]), 30, axis=0))
    about = {"form": [FORM[n] for n in y], "year": [YEAR[n] for n in y], "context": y}
    adata, fitted = stored_fit(X, y, 3, obs=about)
    stored = temporal_order(adata, "year", "form")
    pd.testing.assert_frame_equal(stored.nodes, temporal_order(fitted, YEAR, FORM).nodes)


def test_missing_values_are_an_error_or_left_out(model):
    part = {name: FORM[name] for name in NAMES[1:]}
    with pytest.raises(ValueError, match="group has no value for 1 of 8 contexts: 'fiction 1800'"):
        temporal_order(model, YEAR, part)
    found = temporal_order(model, YEAR, part, components=[0], missing="drop", share=0.3)
    assert list(found.nodes["peak"]) == ["1820", "1820"]


def test_bad_input_is_named(model):
    with pytest.raises(ValueError, match="share=2 is out of bounds"):
        temporal_order(model, YEAR, FORM, share=2)
    with pytest.raises(ValueError, match="components='MCPC 9' is not an MCPC"):
        temporal_order(model, YEAR, FORM, components="MCPC 9")
    with pytest.raises(ValueError, match="No context has both a time and a group"):
        temporal_order(model, [1, *[None] * 7], [None, *["a"] * 7], missing="drop")
