"""Groups, batch and covariates are read beside y, by its rules."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from mcpca import MCPCA
from mcpca._data.annotations import take_annotations
from mcpca._data.contexts import read_contexts
from mcpca._data.row_designs import Coding

N = 12
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, 3))
Y = np.repeat([0, 1], 6)
BATCH = np.array(list("abcabcabcabc"))
DEPTH = RNG.random(N)


@pytest.fixture
def frame():
    table = pd.DataFrame(X, columns=["f", "g", "h"], index=[f"r{i}" for i in range(N)])
    return table.assign(context=Y, batch=BATCH, depth=DEPTH, donor=np.arange(N) % 4)


def attached(rows, y, **said):
    annotated = take_annotations(rows, y, **said)
    return annotated.attach(read_contexts(annotated.X, annotated.y)), annotated


def test_columns_are_read_and_are_not_features(frame):
    contexts, annotated = attached(frame, "context", groups="donor", batch="batch", covariates="depth")
    assert list(annotated.X.columns) == ["f", "g", "h"]
    assert set(annotated.columns) == {"donor", "batch", "depth"}
    np.testing.assert_array_equal(contexts.groups.codes[1], np.arange(6, 12) % 4)
    np.testing.assert_array_equal(contexts.nuisance.levels[contexts.nuisance.strata[0]], BATCH[:6])
    np.testing.assert_array_equal(contexts.nuisance.numbers[1][:, 0], DEPTH[6:])
    assert contexts.nuisance.columns == ("depth",)


def test_arrays_columns_and_tables_say_the_same(frame):
    expected, _ = attached(X, Y, groups=np.arange(N) % 4, batch=BATCH, covariates=DEPTH)
    shuffled = frame.sample(frac=1, random_state=1)
    forms = [
        attached(frame.drop(columns=["batch", "depth", "donor"]), "context", groups=shuffled["donor"],
                 batch=shuffled["batch"], covariates=shuffled[["depth"]]),
        attached(frame, "context", groups=["donor"], batch=["batch"], covariates=["depth"]),
        attached(frame[["f", "g", "h"]], Y, groups=shuffled["donor"], batch=BATCH.tolist(), covariates={"d": DEPTH}),
    ]  # fmt: skip
    for contexts, _ in forms:
        for i in range(2):
            np.testing.assert_array_equal(contexts.groups.codes[i], expected.groups.codes[i])
            np.testing.assert_array_equal(contexts.nuisance.strata[i], expected.nuisance.strata[i])
            np.testing.assert_array_equal(contexts.nuisance.numbers[i], expected.nuisance.numbers[i])


def test_several_columns_are_crossed(frame):
    contexts, _ = attached(frame, "context", batch=["batch", "donor"])
    assert len(contexts.nuisance.levels) == 12
    assert contexts.nuisance.levels[0] == "a / 0"


def test_contexts_one_by_one(frame):
    blocks = {"u": frame.iloc[:6].drop(columns="context"), "v": frame.iloc[6:].drop(columns="context")}
    by_column, annotated = attached(blocks, None, groups="donor", batch="batch", covariates=["depth"])
    assert list(annotated.X["u"].columns) == ["f", "g", "h"]
    said = {name: {"u": values[:6], "v": values[6:]} for name, values in (("batch", BATCH), ("covariates", DEPTH))}
    by_dict, _ = attached({"u": X[:6], "v": X[6:]}, None, **said)
    for i in range(2):
        np.testing.assert_array_equal(by_column.nuisance.strata[i], by_dict.nuisance.strata[i])
        np.testing.assert_array_equal(by_column.nuisance.numbers[i], by_dict.nuisance.numbers[i])
    with pytest.raises(
        ValueError, match=r"batch is a ndarray, and X holds 2 separate contexts; pass a list of 2 arrays"
    ):
        take_annotations([X[:6], X[6:]], None, batch=BATCH)


def test_annotations_go_with_the_rows():
    contexts, _ = attached(X, Y, groups=np.arange(N), batch=BATCH, covariates=DEPTH)
    some = contexts.take([np.array([3, 3, 0]), np.array([5])])
    np.testing.assert_array_equal(some.groups.codes[0], [3, 3, 0])
    np.testing.assert_array_equal(some.nuisance.numbers[1][:, 0], DEPTH[[11]])
    back = contexts.in_order([1, 0])
    np.testing.assert_array_equal(back.nuisance.strata[0], contexts.nuisance.strata[1])
    assert back.without_annotations().nuisance is None


def test_factors_and_formulas():
    table = pd.DataFrame({"sex": list("fmfmfmfmfmfm"), "depth": DEPTH + 1})
    contexts, _ = attached(X, Y, covariates=table)
    assert contexts.nuisance.columns == ("sex[m]", "depth")
    np.testing.assert_array_equal(contexts.nuisance.numbers[0][:, 0], [0, 1] * 3)
    frame = pd.DataFrame(X, columns=["f", "g", "h"]).join(table)
    contexts, annotated = attached(frame, Y, covariates="sex + np.log(depth)")
    assert list(annotated.X.columns) == ["f", "g", "h"]
    np.testing.assert_allclose(np.vstack(contexts.nuisance.numbers)[:, 1], np.log(DEPTH + 1))


def test_new_rows_are_coded_as_those_of_the_fit():
    coding = Coding((("sex", ("f", "m", "x")), ("depth", None)), "sex * depth")
    numbers, names = coding.columns_of({"sex": np.array([2, 0]), "depth": np.array([3.0, 5.0])}, 2)
    assert names == ("sex[T.m]", "sex[T.x]", "depth", "sex[T.m]:depth", "sex[T.x]:depth")
    np.testing.assert_array_equal(numbers, [[0, 1, 3, 0, 3], [0, 0, 5, 0, 0]])
    plain = Coding((("sex", ("f", "m")), ("depth", None)))
    read = take_annotations(
        X[:3], Y[:3], covariates=pd.DataFrame({"depth": [1.0, 2, 3], "sex": ["m"] * 3}), coding=plain
    )
    numbers, _ = plain.columns_of(read.annotations.codes(), 3)
    np.testing.assert_array_equal(numbers, [[1, 1], [1, 2], [1, 3]])
    for covariates, match in (
        (pd.DataFrame({"depth": [1.0, 2, 3]}), "covariates lack 'sex'"),
        (pd.DataFrame({"depth": [1.0, 2, 3], "sex": ["q"] * 3}), "levels that the fit does not have: 'q'"),
        (pd.DataFrame({"depth": ["a"] * 3, "sex": ["m"] * 3}), "were numbers in the fit and are labels here"),
    ):
        with pytest.raises(ValueError, match=match):
            take_annotations(X[:3], Y[:3], covariates=covariates, coding=plain)


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ({"batch": BATCH[:5]}, "batch has 5 values and X has 12 rows; pass one for each row"),
        ({"groups": [None, *range(11)]}, "groups has 1 missing labels, in rows 0"),
        ({"covariates": np.where(np.arange(N) == 4, np.nan, DEPTH)}, "'covariate', has 1 missing or .* in rows 4"),
        ({"covariates": {"sex": [*"mfmfmfmfmfm", None]}}, "'sex', has 1 missing or infinite values, in rows 11"),
        ({"covariates": np.zeros((N, 2, 2))}, r"covariates have shape \(12, 2, 2\)"),
        ({"batch": np.zeros((N, 3))}, r"batch has shape \(12, 3\); pass one label per row"),
    ],
)  # fmt: skip
def test_bad_annotations_are_named(said, match):
    with pytest.raises(ValueError, match=match):
        MCPCA(None if "groups" in said else 1).fit(X, Y, **said)  # beside a rank groups have no effect


def test_bad_columns_and_formulas_are_named(frame):
    for said, match in (
        ({"batch": "bach"}, "batch='bach' is not a column of X.*did you mean 'batch'"),
        ({"covariates": "dept"}, "covariates='dept' is not a column of X.*did you mean 'depth'"),
        ({"covariates": "batch + * depth"}, "is not a formula.*at character 7"),
        ({"covariates": "batch + scale(depth)"}, r"has 'scale\(depth\)' at character 9.*only arithmetic"),
    ):
        with pytest.raises(ValueError, match=match):
            MCPCA(1).fit(frame.drop(columns="donor"), "context", **said)
    with pytest.raises(ValueError, match="groups names row"):
        take_annotations(frame, "context", groups=pd.Series(range(N), index=["q"] * N))


def test_covariances_have_no_rows():
    with pytest.raises(ValueError, match="batch has no effect, because it is about rows, and covariances have none"):
        MCPCA(1).fit(np.stack([np.eye(3)] * 2), batch=BATCH)


def test_a_formula_may_bring_its_table():
    table = {"sex": list("fmfmfmfmfmfm"), "depth": DEPTH + 1, "other": np.zeros(N)}
    frame = pd.DataFrame(X, columns=["f", "g", "h"]).assign(**table)
    expected, _ = attached(frame.drop(columns="other"), Y, covariates="sex * np.log(depth)")
    contexts, annotated = attached(X, Y, covariates=("sex * np.log(depth)", table))
    assert annotated.annotations.variables.keys() == {"sex", "depth"}
    assert contexts.nuisance.columns == expected.nuisance.columns
    for i in range(2):
        np.testing.assert_array_equal(contexts.nuisance.numbers[i], expected.nuisance.numbers[i])
    with pytest.raises(ValueError, match=r"covariates='dept' is not a column of the table.*did you mean 'depth'"):
        take_annotations(X, Y, covariates=("sex + dept", table))


@pytest.mark.parametrize(
    "formula",
    [
        "np.where(depth > 0, depth, 0)",
        "np.save('file', depth)",
        "depth.tofile('file')",
        "I(__import__('os').getpid())",
        "I([depth for _ in range(9)])",
        "np.log(depth, out=depth)",
        "I(9 ** 9 ** 9)",
        "I(depth ** 1000)",
        "I((lambda: depth)())",
        "bs(depth, df=4)",
    ],
)
def test_a_formula_that_models_keep_is_no_program(frame, formula):
    with pytest.raises(ValueError, match="only arithmetic and C, I, abs"):
        MCPCA(1).fit(frame.drop(columns=["donor", "batch"]), "context", covariates=formula)


def test_arithmetic_is_allowed(frame):
    table = frame.drop(columns="donor")
    formula = "batch + np.log1p(depth) + I(depth ** 2 / 3 - 1) + C(batch):np.sqrt(depth)"
    with pytest.raises(ValueError, match="no degree of freedom"):
        MCPCA(1).fit(table, "context", covariates=formula)
    assert (
        MCPCA(1).fit(table.drop(columns="batch"), "context", covariates="np.log(depth) + I(-depth)").nuisance_
        is not None
    )


def test_a_file_cannot_bring_a_program(frame, tmp_path):
    table = frame.drop(columns=["donor", "batch"])
    model = MCPCA(1).fit(table, "context", covariates="np.log(depth)")
    removed = model.nuisance_
    model.nuisance_ = dataclasses.replace(removed, coding=Coding(removed.coding.variables, "np.fromfile(depth)"))
    model.save(tmp_path / "model.mcpca")
    with pytest.raises(ValueError, match=r"has 'np.fromfile\(depth\)'"):
        MCPCA.load(tmp_path / "model.mcpca").transform(table, "context", covariates="depth")
