"""Formulas as matrices: coding, new rows, and errors that show where."""

import pickle

import numpy as np
import pandas as pd
import pytest

from mcpca._data.formulas import design_of_formula, formula_variables

TABLE = pd.DataFrame(
    {
        "stage": pd.Categorical(["I", "II", "III", "I", "II", "III"], ["I", "II", "III", "IV"], ordered=True),
        "age": [30.0, 41, 52, 63, 44, 35],
        "sex": list("fmfmmf"),
        "n counts": [1, 10, 100, 1, 10, 1000],
        "treated": [True, False, False, True, True, False],
        "day": pd.date_range("1970-01-02", periods=6),
    },
    index=[f"P{i}" for i in range(6)],
)


def design(formula, table=TABLE):
    return design_of_formula(formula, table, "covariate", "context")


def test_numbers_stay_and_factors_are_differences_from_their_first_level():
    made = design("stage + age")
    assert made.columns == ("stage[T.II]", "stage[T.III]", "age")  # level IV does not occur
    assert made.terms == (("stage", slice(0, 2)), ("age", slice(2, 3)))
    stage = TABLE["stage"].to_numpy()
    np.testing.assert_array_equal(made.matrix, np.column_stack([stage == "II", stage == "III", TABLE["age"]]))
    assert made.matrix.dtype == np.float64


def test_a_star_adds_the_products_of_columns():
    made = design("stage * sex")
    assert [name for name, _ in made.terms] == ["stage", "sex", "stage:sex"]
    products = made.matrix[:, :2] * made.matrix[:, 2:3]
    np.testing.assert_array_equal(made.matrix[:, made.terms[2][1]], products)


def test_trend_counts_the_levels_of_an_ordered_categorical_and_leaves_numbers():
    made = design("trend(stage) + trend(age)")
    np.testing.assert_array_equal(made.matrix, np.column_stack([TABLE["stage"].cat.codes, TABLE["age"]]))


def test_booleans_are_factors_and_dates_are_days():
    made = design("treated + day + log10(`n counts`)")
    np.testing.assert_allclose(
        made.matrix, np.column_stack([TABLE["treated"], np.arange(1, 7), np.log10(TABLE["n counts"])])
    )


def test_variables_are_those_of_the_table_in_their_order():
    assert formula_variables("log(`n counts`) + stage:sex + poly(age, 2) + np.exp(age) + C(stage, contr.sum)") == (
        "n counts",
        "age",
        "stage",
        "sex",
    )


@pytest.mark.parametrize(
    "formula", ["stage * sex", "center(age) + treated", "trend(stage) + scale(age)", "C(age) + day"]
)
def test_new_rows_are_coded_as_the_first_ones(formula):
    made = pickle.loads(pickle.dumps(design(formula)))
    some = [5, 1, 5]
    np.testing.assert_allclose(made.apply(TABLE.iloc[some]), made.matrix[some], atol=1e-12)


def test_a_mapping_and_a_frame_of_another_library_give_the_same():
    polars = pytest.importorskip("polars")
    columns = {name: TABLE[name].to_list() for name in ("age", "sex")}
    for table in (columns, polars.DataFrame(columns), {**columns, "age": TABLE["age"].iloc[:]}):
        np.testing.assert_array_equal(design("sex * age", table).matrix, design("sex * age").matrix)


def test_nothing_of_the_calling_program_is_in_reach():
    threshold = 40
    with pytest.raises(ValueError, match="the table has no column 'threshold'"):
        design("I(age > threshold)")
    assert threshold == 40


@pytest.mark.parametrize(
    ("formula", "where"),
    [
        ("stage +* age", r"operator '\+\*' is incorrectly used at character 7, stage »\+\*« age"),
        ("stage + (age", r"could not find matching bracket at character 9, stage \+ »\(«age"),
        ("stage + age)", r"at character 12, stage \+ age»\)«"),
        ("stage age", "missing operator between 'stage' and 'age' at character 1, »stage age«"),
        ("stage + ", "insufficient arguments and/or is misplaced at character 7"),
        ("sex + log(age,,)", r"invalid syntax at character 15, sex \+ log\(age,»,«\)"),
        ("age + @", "unknown operator '@' at character 5"),
        ("age ~ stage", "more than a right-hand side, at character 5, age »~« stage"),
        ("age | stage", r"more than a right-hand side, at character 5, age »\|« stage"),
    ],
)
def test_a_formula_that_does_not_parse_shows_where(formula, where):
    with pytest.raises(ValueError, match=where) as raised:
        design(formula)
    assert str(raised.value).startswith(f"covariate={formula!r}")
    assert "\n" not in str(raised.value)
    assert "\x1b" not in str(raised.value)


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("stge + age", "no column 'stge'; did you mean 'stage'?"),
        ("log(ag)", "no column 'ag'; did you mean 'age'?"),
        ("0 + stage", "leaves the intercept out"),
        ("1", "names no covariate"),
        ("foo(age)", "cannot be evaluated: name 'foo' is not defined"),
        ("trend(sex)", "needs an order, and 'sex' has levels without one, 'f', 'm'"),
        ("log(age - 30)", "not a finite number for 1 of 6 contexts: 'P0'"),
    ],
)
def test_what_cannot_be_evaluated_is_named(formula, message):
    with pytest.raises(ValueError, match=message):
        design(formula)


def test_rows_without_a_value_are_named():
    gaps = TABLE.assign(age=[1.0, np.nan, 3, np.inf, 5, 6], sex=["f", "m", None, "f", "m", "f"])
    with pytest.raises(ValueError, match=r"'age' has no value for 2 of 6 contexts: 'P1', 'P3'\. Add values"):
        design("stage + age", gaps)
    with pytest.raises(ValueError, match="'sex' has no value for 1 of 6 contexts: 'P2'"):
        design("sex", gaps)


def test_other_faults_of_tables():
    with pytest.raises(ValueError, match="'one' has one level only"):
        design("age + one", TABLE.assign(one="x"))
    with pytest.raises(ValueError, match="columns of the table differ in length, 'a' 3, 'b' 2"):
        design("a + b", {"a": [1, 2, 3], "b": [1, 2]})
    with pytest.raises(TypeError, match="its table is a list; pass a DataFrame"):
        design("a", [1, 2])
    with pytest.raises(TypeError, match="covariate is a int; pass a formula"):
        design(3)


def test_levels_that_the_first_table_lacks_are_named():
    made = design("sex + trend(stage)")
    with pytest.raises(ValueError, match="meets levels that the table of the fit does not have: 'x'"):
        made.apply({"sex": ["x"], "stage": ["I"]})
    with pytest.raises(ValueError, match=r"trend\(stage\) meets levels that it has no place for: 'IV'"):
        made.apply({"sex": ["f"], "stage": ["IV"]})
