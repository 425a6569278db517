"""Values of contexts are read alike in whatever form they come; MCPCs and contexts are found by number and by name."""

import numpy as np
import pandas as pd
import pytest
from stored_fit import stored_fit

from mcpca._results.context_values import context_values
from mcpca._utils.component_names import component_index, component_indices, context_index
from mcpca.datasets import make_contexts
from mcpca.poles import poles

CONTEXTS = ["north", "south", "west"]


def with_columns(**columns):
    """An AnnData of three contexts with 20 rows each and 5 rows that were not fitted, with a value per context."""
    truth = make_contexts(3, 6, 2, n_samples=25, random_state=0)
    labels = np.array(CONTEXTS)[truth.y]
    order = np.argsort(np.arange(75) % 25 >= 20, kind="stable")  # the last 5 of each at the end
    X, labels = truth.X[order], labels[order]
    obs = {name: [values[label] for label in labels] for name, values in columns.items()}
    return stored_fit(X, labels, 2, unused=15, obs=obs)[0]


@pytest.mark.parametrize(
    "given",
    [
        {"west": 3, "north": 1, "south": 2.0, "east": 9},
        pd.Series([3, 2, 1], index=["west", "south", "north"]),
        [1, 2, 3],
        (1, 2, 3),
        np.array([1, 2, 3], dtype=np.int16),
        pd.Index([1, 2, 3]),
        "depth",
    ],
)
def test_numbers_are_read_alike_in_all_forms(given):
    adata = with_columns(depth={"north": 1, "south": 2, "west": 3})
    read = context_values(given, CONTEXTS, "covariate", source=adata)
    assert read.kind == "number"
    np.testing.assert_array_equal(read.values, [1.0, 2.0, 3.0])
    assert read.values.dtype == np.float64
    assert not read.missing.any()


def test_contexts_that_are_numbers_go_by_their_names():
    read = context_values({1: 10.0, 0: 5.0}, ["0", "1"], "covariate")
    np.testing.assert_array_equal(read.values, [5, 10])


def test_categories_are_sorted_with_numbers_by_size():
    read = context_values(["visit 10", "visit 2", "visit 2"], CONTEXTS, "group")
    assert read.kind == "category"
    assert read.categories == ["visit 2", "visit 10"]
    np.testing.assert_array_equal(read.values, [1, 0, 0])
    np.testing.assert_array_equal(read.positions, [1.0, 0.0, 0.0])
    assert not read.ordered


@pytest.mark.parametrize("form", ["categorical", "series", "column"])
def test_order_of_a_categorical_stays(form):
    stages = pd.Categorical(["late", "early", "late"], categories=["early", "middle", "late"], ordered=True)
    given, adata = {"categorical": stages, "series": pd.Series(stages, index=CONTEXTS)}.get(form, "stage"), None
    if form == "column":
        adata = with_columns(stage=dict(zip(CONTEXTS, stages, strict=True)))
        adata.obs["stage"] = pd.Categorical(adata.obs["stage"], categories=stages.categories, ordered=True)
    read = context_values(given, CONTEXTS, "covariate", source=adata)
    assert (read.categories, read.ordered) == (["early", "late"], True)
    np.testing.assert_array_equal(read.values, [1, 0, 1])


def test_dates_and_truth_values():
    days = context_values(pd.to_datetime(["2020-01-03", "2020-01-01", None]), CONTEXTS, "time", missing="drop")
    assert days.kind == "date"
    np.testing.assert_array_equal(days.missing, [False, False, True])
    assert days.values[0] - days.values[1] == np.timedelta64(2, "D")
    read = context_values([True, False, True], CONTEXTS, "treated")
    assert (read.kind, read.categories, read.values.tolist()) == ("category", ["False", "True"], [1, 0, 1])


@pytest.mark.parametrize("nothing", [None, np.nan, pd.NA, pd.NaT])
@pytest.mark.parametrize("value", [1.5, "a"])
def test_missing_values_are_marked_or_refused(nothing, value):
    given = {"north": value, "south": nothing, "west": value}
    read = context_values(given, CONTEXTS, "covariate", missing="drop")
    np.testing.assert_array_equal(read.missing, [False, True, False])
    assert read.kind == ("number" if value == 1.5 else "category")
    with pytest.raises(ValueError, match=r"covariate has no value for 1 of 3 contexts: 'south'\. .*missing='drop'"):
        context_values(given, CONTEXTS, "covariate")


def test_infinite_numbers_count_as_missing():
    with pytest.raises(ValueError, match=r"no value for 1 of 3 contexts: 'west'"):
        context_values([1.0, 2.0, np.inf], CONTEXTS, "covariate")


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ([1, 2], r"covariate has shape \(2,\); pass one value for each of the 3 contexts"),
        (np.zeros((3, 2)), r"covariate has shape \(3, 2\)"),
        (7, r"covariate has shape \(\)"),
        ({"North": 1, "South": 2}, r"names no context of the fit: 'North' is none; did you mean 'north'"),
        ({}, r"names no context of the fit: it is empty"),
        (pd.Series([1, 2], index=["west", "west"]), r"names context 'west' more than once"),
        ([None, None, np.nan], r"covariate has no value for any of the 3 contexts"),
        ("depth", r"covariate='depth' would be a column of obs, which only an AnnData has"),
    ],
)
def test_errors_name_what_is_wrong(given, match):
    with pytest.raises(ValueError, match=match):
        context_values(given, CONTEXTS, "covariate")


def test_missing_has_two_choices():
    with pytest.raises(ValueError, match=r"missing='ignore'; choose 'error' or 'drop'"):
        context_values([1, 2, 3], CONTEXTS, "covariate", missing="ignore")


def test_columns_must_be_there_and_constant_within_contexts():
    adata = with_columns(depth={"north": 1, "south": 2, "west": 3})
    adata.obs.loc[adata.obs_names[:2], "depth"] = 7
    with pytest.raises(ValueError, match=r"covariate='dept' is not a column of adata\.obs; did you mean 'depth'"):
        context_values("dept", CONTEXTS, "covariate", source=adata)
    with pytest.raises(
        ValueError, match=r"'depth' is not constant within contexts: 1 of 3 .*, 'north' for example 7, 1"
    ):
        context_values("depth", CONTEXTS, "covariate", source=adata)


def test_rows_that_were_not_fitted_have_no_say():
    adata = with_columns(depth={"north": 1, "south": 2, "west": 3})
    adata.obs.loc[adata.obs_names[60:], "depth"] = 99  # the rows without a context
    np.testing.assert_array_equal(context_values("depth", CONTEXTS, "covariate", source=adata).values, [1, 2, 3])


# MCPCs and contexts by name


@pytest.mark.parametrize("component", [2, np.int64(2), "MCPC 3", "MCPC3", "mcpc 3"])
def test_component_by_column_or_name(component):
    assert component_index(component, ["MCPC 1", "MCPC 2", "MCPC 3"]) == 2


def test_an_exact_name_goes_before_a_similar_one():
    assert component_index("Age", ["age", "Age"]) == 1


@pytest.mark.parametrize(
    ("component", "match"),
    [
        (
            3,
            r"component=3 is out of bounds: 0 <= component <= 2 is needed\. MCPCs count from 0, .*0 is MCPC 1",
        ),
        (-1, r"component=-1 is out of bounds"),
        (1.0, r"component=1.0 is not an integer"),
        ("MCPC 4", r"component='MCPC 4' is not an MCPC; did you mean 'MCPC [123]'.*Pass a name, or 0 to 2"),
        ("growth", r"component='growth' is not an MCPC; there are 'MCPC 1', 'MCPC 2', 'MCPC 3'\."),
    ],
)
def test_unknown_components(component, match):
    with pytest.raises(ValueError, match=match):
        component_index(component, ["MCPC 1", "MCPC 2", "MCPC 3"])


def test_several_components():
    names = ["MCPC 1", "MCPC 2", "MCPC 3"]
    assert component_indices(["MCPC 3", 0], names) == [2, 0]
    assert component_indices("MCPC 2", names) == component_indices(1, names) == [1]
    with pytest.raises(ValueError, match=r"components is empty; pass at least one of 0 to 2"):
        component_indices([], names)
    with pytest.raises(ValueError, match=r"components names MCPC 1 more than once"):
        component_indices([0, "MCPC 1"], names)


def test_contexts_by_name():
    assert context_index(7, ["3", "7"]) == 1
    with pytest.raises(ValueError, match=r"context='nort' is not a context; did you mean 'north'\?"):
        context_index("nort", CONTEXTS)
    many = [f"x{i}" for i in range(30)]
    with pytest.raises(ValueError, match=r"there are 'x0', 'x1', 'x2', 'x3', 'x4' and 25 more"):
        context_index("elsewhere", many)


# Poles


def test_poles_are_the_extremes_in_order():
    a = np.array([0.1, -0.5, 0.0, 0.7, -0.2, 0.3, -0.9])
    ends = poles(np.column_stack([-a, a]), list("abcdefg"), 1, 2)
    assert ends.positive.names == ["d", "f"]
    assert ends.negative.names == ["g", "b"]
    np.testing.assert_array_equal(ends.positive.values, [0.7, 0.3])
    np.testing.assert_array_equal(ends.negative.values, [-0.9, -0.5])
    np.testing.assert_array_equal(ends.negative.indices, [6, 1])


def test_poles_have_no_zeros_and_no_feature_twice():
    ends = poles([[0.0], [2.0], [0.0], [-1.0]], list("abcd"), 0, 10)
    assert (ends.positive.names, ends.negative.names) == (["b"], ["d"])


def test_ties_are_in_the_order_of_features():
    assert poles([[1.0], [1.0], [-1.0], [1.0]], list("abcd"), 0, 2).positive.names == ["a", "b"]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (([1.0, 2.0], "ab", 0), r"components has shape \(2,\); a matrix"),
        (([[1.0], [2.0]], "a", 0), r"features has 1 names, but components has 2 rows"),
        (([[1.0], [2.0]], "ab", 1), r"j=1 is out of bounds: 0 <= j <= 0"),
        (([[1.0], [2.0]], "ab", 0, 0), r"n=0 is out of bounds: n >= 1"),
    ],
)
def test_poles_errors(arguments, match):
    with pytest.raises(ValueError, match=match):
        poles(*arguments)
