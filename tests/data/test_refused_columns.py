"""Covariates that cannot be used are refused in one line, and moments that no rows have."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from mcpca import MCPCA, Preprocess
from mcpca._covariances.plausible import check_moments
from mcpca._data.context_sums import contexts_between, transposed

X = np.random.default_rng(0).standard_normal((40, 5))
Y = np.repeat([0, 1], 20)
HOLE = np.where(np.arange(40) == 3, np.nan, 1.0)


@pytest.mark.parametrize(
    ("covariates", "message"),
    [
        (np.zeros((40, 2, 2)), r"covariates have shape \(40, 2, 2\); pass \(n,\) or \(n, c\)"),
        ({"age": np.zeros((40, 2))}, r"covariates, 'age', has shape \(40, 2\); pass one value per row"),
        ({"age": HOLE}, "covariates, 'age', has 1 missing or infinite values, in rows 3; drop those rows"),
        ({"age": pd.array([None, *range(39)], dtype="Int64")}, "covariates, 'age', has 1 missing or infinite values"),
        ({"age": [None, *range(39)]}, "covariates, 'age', has 1 missing or infinite values, in rows 0"),
        (
            {"age": np.ma.masked_equal(np.arange(40), 7)},
            "covariates, 'age', has 1 missing or infinite values, in rows 7",
        ),
    ],
)
def test_covariates_with_holes_or_of_odd_shapes(covariates, message):
    with pytest.raises(ValueError, match=message):
        MCPCA(2).fit(X, Y, covariates=covariates)


def test_contexts_have_the_same_covariates_of_one_kind():
    blocks = {"a": X[:20], "b": X[20:]}
    numbers, labels = np.arange(20.0), np.repeat(["u", "v"], 10)
    with pytest.raises(ValueError, match="covariates are 'sex' in one context and 'age' in another; give all of them"):
        MCPCA(2).fit(blocks, covariates={"a": {"age": numbers}, "b": {"sex": numbers}})
    with pytest.raises(ValueError, match="covariates, 'age', are numbers in some contexts and labels in others"):
        MCPCA(2).fit(blocks, covariates={"a": {"age": numbers}, "b": {"age": labels}})


def test_size_factors_of_a_column_that_is_not_there():
    anndata = pytest.importorskip("anndata", reason="needs AnnData")
    adata = anndata.AnnData(
        np.floor(10 * np.abs(X)), obs=pd.DataFrame({"depth": np.ones(40), "y": Y}, index=[f"r{i}" for i in range(40)])
    )
    with pytest.raises(ValueError, match=r"size_factors='dept' is no column of adata.obs; .*depth"):
        MCPCA(2, preprocess=Preprocess(size_factors="dept")).fit(adata, "y")


def test_sums_in_single_precision_add_up_in_double(rng, monkeypatch):
    """1 and many halves of its rounding: in single precision all of them are lost."""
    monkeypatch.setattr("mcpca._data.context_sums._SINGLE_PRECISION_ROWS", 4)
    Z = np.full((401, 1), 2.0**-25, dtype=np.float32)
    Z[0] = 1
    for ones in (np.ones((401, 1), dtype=np.float32), sp.csr_array(np.ones((401, 1), dtype=np.float32))):
        np.testing.assert_allclose(transposed(ones, Z)[0, 0], 1 + 400 * 2.0**-25, rtol=1e-7)
    rows, other = rng.standard_normal((10, 3)).astype(np.float32), rng.standard_normal((10, 2)).astype(np.float32)
    np.testing.assert_allclose(transposed(rows, other), rows.T @ other, rtol=1e-5)


def test_rows_of_some_contexts_in_any_order(rng):
    rows, codes = rng.standard_normal((8, 2)), np.array([2, 0, 1, 2, 3, 1, 0, 1])
    found, of_rows, contexts, bounds = contexts_between(rows, codes, 1, 3)
    np.testing.assert_array_equal(of_rows, [1, 1, 1, 2, 2])
    np.testing.assert_array_equal(found, rows[[2, 5, 7, 0, 3]])
    np.testing.assert_array_equal(contexts, [1, 2])
    assert list(bounds)[:2] == [0, 3]


def test_moments_that_no_rows_have():
    contexts, counts, means, M = np.array(["a"]), np.array([5]), np.zeros((1, 2)), np.eye(2)[None]
    check_moments(contexts, counts, means, M, None)
    lean = np.array([[[1.0, 0.5], [0.0, 1.0]]])
    for changed, message in [
        ((contexts, np.array([0]), means, M, None), "context 'a' has a count of 0, where 1 to"),
        ((contexts, counts, means + np.nan, M, None), "means has values that are NaN or infinite"),
        (
            (contexts, counts, means, lean, None),
            r"the scatter of context 'a' is not symmetric: \|M - M\^T\| is 0.5 of 1",
        ),
        (
            (contexts, counts, means, M - 2 * np.eye(2), None),
            "not positive semi-definite: its smallest eigenvalue is -1",
        ),
        ((contexts, counts, means, M, np.array(["x"])), "it has 1 names for 2 features"),
    ]:
        with pytest.raises(ValueError, match=message):
            check_moments(*changed)
