"""The logistic model with all coefficients: its maximum, against scikit-learn's, and where there is none."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import approx_fprime
from sklearn.linear_model import LogisticRegression

from mcpca.analysis import logistic_model


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    V = pd.DataFrame(rng.standard_normal((60, 3)) * [1, 20, 0.1] + [0, 5, 3], columns=["MCPC 5", "PC 3", "PC 6"])
    V.index = [f"P{i}" for i in range(60)]
    log_odds = 0.4 + 1.2 * V["MCPC 5"] - 0.05 * (V["PC 3"] - 5)
    return V, pd.Series(rng.random(60) < 1 / (1 + np.exp(-log_odds)), index=V.index)


def likelihood(beta, V, x):
    eta = beta[0] + V.to_numpy() @ beta[1:]
    return float(x.to_numpy(float) @ eta - np.logaddexp(0, eta).sum())


def test_it_is_the_maximum_and_scikit_learns(data):
    V, x = data
    found = logistic_model(x, V)
    assert list(found.index) == ["intercept", "MCPC 5", "PC 3", "PC 6"]
    beta = found["coefficient"].to_numpy()
    assert np.abs(approx_fprime(beta, likelihood, 1e-7, V, x)).max() < 1e-3
    scaled = (V - V.mean()) / V.std()
    reference = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000).fit(scaled, x)
    np.testing.assert_allclose(beta[1:], reference.coef_[0] / V.std(), rtol=1e-5)
    assert found.attrs["log_likelihood"] == pytest.approx(likelihood(beta, V, x))
    assert found.attrs["n"] == 60
    # Without predictors that matter the null model is that of the share alone.
    share = x.mean()
    null = 60 * (share * np.log(share) + (1 - share) * np.log1p(-share))
    assert found.attrs["null_log_likelihood"] == pytest.approx(null)
    assert 0 < found.attrs["pseudo_r2"] < 1


def test_standard_errors_are_those_of_the_curvature(data):
    V, x = data
    found = logistic_model(x, V)
    beta = found["coefficient"].to_numpy()
    D = np.column_stack([np.ones(len(V)), V])
    p = 1 / (1 + np.exp(-(D @ beta)))
    se = np.sqrt(np.diag(np.linalg.inv((D * (p * (1 - p))[:, None]).T @ D)))
    np.testing.assert_allclose(found["se"], se, rtol=1e-6)
    np.testing.assert_allclose(found["upper"] - found["lower"], 2 * 1.959964 * se, rtol=1e-5)
    assert found["p"]["MCPC 5"] < 0.01 < found["p"]["PC 6"]


def test_units_and_order_do_not_matter(data):
    V, x = data
    found = logistic_model(x, V)
    other = logistic_model(x.sample(frac=1, random_state=1), V * [10, 1, 1])
    np.testing.assert_allclose(other.loc["MCPC 5", "coefficient"], found.loc["MCPC 5", "coefficient"] / 10, rtol=1e-6)
    np.testing.assert_allclose(other["z"], found["z"], rtol=1e-6)
    missing = x.astype(object)
    missing.iloc[:5] = None
    np.testing.assert_allclose(logistic_model(missing, V)["z"], logistic_model(x[5:], V[5:])["z"])


def test_separated_groups_need_a_penalty(data):
    V, _ = data
    x = V["MCPC 5"] > 0
    with pytest.raises(ValueError, match=r"can be separated by the predictors.* pass penalty='firth'"):
        logistic_model(x, V)
    found = logistic_model(x, V, penalty="firth")
    assert np.isfinite(found.drop(columns="sd").to_numpy()).all()
    assert found.loc["MCPC 5", "coefficient"] > 0


def test_bad_input(data):
    V, x = data
    with pytest.raises(ValueError, match="penalty='l2' is unknown"):
        logistic_model(x, V, penalty="l2")
    with pytest.raises(ValueError, match=r"outcome has shape \(59,\); pass one value for each of 60"):
        logistic_model(x.to_numpy()[1:], V)
    with pytest.raises(ValueError, match=r"no value for \['P0'\]"):
        logistic_model(x[1:], V)
    with pytest.raises(ValueError, match="outcome has the value 2"):
        logistic_model(x.astype(int) + 1, V)
    with pytest.raises(ValueError, match=r"0 of them in the group"):
        logistic_model(x & False, V)
    with pytest.raises(ValueError, match="one is constant or follows from the others"):
        logistic_model(x, V.assign(more=V["PC 3"] * 2 + 1))
    with pytest.raises(ValueError, match="has a column 'intercept'"):
        logistic_model(x, V.assign(intercept=1.0))
