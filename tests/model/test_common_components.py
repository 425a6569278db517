"""Flury's common principal components: his equations, his test, and a slow twin."""

import numpy as np
import pytest
from axes import axes_apart, noisy_covariances, orthonormal
from scipy.optimize import minimize
from scipy.stats import kstest

from mcpca._model.common_components import common_principal_components
from twins import compose


def divergence(S, n, A):
    """Flury's objective, one context at a time."""
    return sum(
        ni * (np.log(np.diag(A.T @ Si @ A)).sum() - np.linalg.slogdet(Si)[1]) for Si, ni in zip(S, n, strict=True)
    )


def stationarity(S, n, A):
    """The paper's equations: largest ``|a_j^T (sum_i n_i (b_il - b_ij) / (b_il b_ij) S_i) a_l|`` over ``sum_i n_i``."""
    worst = 0.0
    b = np.array([np.diag(A.T @ Si @ A) for Si in S])
    for j in range(A.shape[1]):
        for m in range(A.shape[1]):
            if j != m:
                weights = n * (b[:, m] - b[:, j]) / (b[:, m] * b[:, j])
                worst = max(worst, abs(A[:, j] @ np.tensordot(weights, S, axes=1) @ A[:, m]))
    return worst / n.sum()


def slow_components(S, n, rng, tries=2):
    """Minimise the divergence over products of plane rotations with a general-purpose method."""
    p = S.shape[1]
    pairs = [(j, m) for j in range(p) for m in range(j + 1, p)]
    base = np.linalg.eigh(S.sum(axis=0))[1]

    def axes(x):
        A = base
        for angle, (j, m) in zip(x, pairs, strict=True):
            G = np.eye(p)
            G[j, j] = G[m, m] = np.cos(angle)
            G[j, m], G[m, j] = -np.sin(angle), np.sin(angle)
            A = A @ G
        return A

    scale = n.sum()
    starts = [np.zeros(len(pairs)), *(rng.uniform(-1.5, 1.5, len(pairs)) for _ in range(tries - 1))]
    runs = [minimize(lambda x: divergence(S, n, axes(x)) / scale, x0, options={"gtol": 1e-9}) for x0 in starts]
    best = min(runs, key=lambda run: run.fun)
    return axes(best.x), best.fun * scale


@pytest.mark.parametrize("n", [np.full(4, 50), np.array([12, 400, 33, 90])])
def test_papers_equations_hold(rng, n):
    S = noisy_covariances(rng, 4, 6, 25)
    result = common_principal_components(S, n)
    assert result.converged
    assert stationarity(S, n - 1, result.components) < 1e-10
    assert stationarity(S, n - 1, np.eye(6)) > 1e-2
    np.testing.assert_allclose(result.components.T @ result.components, np.eye(6), atol=1e-12)
    np.testing.assert_allclose(result.variances, np.einsum("pj,kpq,qj->kj", result.components, S, result.components))
    assert (np.diff(result.variances.sum(axis=0)) <= 0).all()
    assert (result.components[np.abs(result.components).argmax(axis=0), np.arange(6)] > 0).all()
    assert result.statistic == pytest.approx(divergence(S, n - 1, result.components), rel=1e-10)


def test_no_worse_than_a_slow_twin():
    for seed in range(3):
        rng = np.random.default_rng(seed)
        S, n = noisy_covariances(rng, 3, 4, 8), np.array([8, 20, 11])
        result = common_principal_components(S, n)
        assert result.statistic <= slow_components(S, n - 1, rng)[1] * (1 + 1e-9)


def test_iris(rng):
    from sklearn.datasets import load_iris

    data = load_iris()
    S = np.stack([np.cov(10 * data.data[data.target == species], rowvar=False) for species in range(3)])
    n = np.full(3, 50)
    result = common_principal_components(S, n)
    slow, statistic = slow_components(S, n - 1, rng)
    assert result.statistic == pytest.approx(statistic, rel=1e-8)
    assert axes_apart(result.components, slow) < 1e-4
    assert result.dof == 12
    assert result.p_value < 1e-6  # the species do not share their axes
    pair = common_principal_components(S[1:], n[1:])
    assert pair.dof == 6
    assert pair.statistic < result.statistic


def test_scale_of_a_context_does_not_matter(rng):
    S, n = noisy_covariances(rng, 3, 5, 30), np.array([30, 30, 30])
    plain = common_principal_components(S, n)
    scaled = common_principal_components(S * np.array([1e-9, 1.0, 1e9])[:, None, None], n)
    assert scaled.statistic == pytest.approx(plain.statistic, rel=1e-9)
    assert axes_apart(scaled.components, plain.components) < 1e-8


def test_exactly_common_axes_leave_nothing(rng):
    A = orthonormal(rng, 6, 6)
    result = common_principal_components(compose(A, rng.uniform(0.5, 5, (4, 6))), np.full(4, 30))
    assert result.statistic < 1e-10
    assert result.p_value == pytest.approx(1)
    assert axes_apart(result.components, A) < 1e-8


def test_p_value_is_uniform_under_the_hypothesis():
    rng = np.random.default_rng(3)
    A, n = orthonormal(rng, 3, 3), 150
    roots = np.sqrt(np.array([[9.0, 3.0, 1.0], [1.0, 4.0, 12.0]]))
    values = []
    for _ in range(100):
        rows = [(rng.standard_normal((n, 3)) * root) @ A.T for root in roots]
        S = np.stack([np.cov(X, rowvar=False) for X in rows])
        values.append(common_principal_components(S, [n, n]).p_value)
    assert kstest(values, "uniform").pvalue > 0.01
    # 5 of 100 expected; more than 12 has a chance of 0.2 percent.
    assert np.mean(np.array(values) < 0.05) <= 0.12


def test_small_cases(rng):
    single = common_principal_components(noisy_covariances(rng, 1, 4, 20), [20])
    assert (single.statistic, single.dof, single.p_value) == (pytest.approx(0, abs=1e-10), 0, 1.0)
    line = common_principal_components(np.array([[[2.0]], [[3.0]]]))
    assert line.components.tolist() == [[1.0]]
    assert line.variances.tolist() == [[2.0], [3.0]]
    assert line.p_value is None
    same = common_principal_components(np.stack([np.eye(3)] * 2))
    assert same.converged
    assert same.statistic == pytest.approx(0, abs=1e-12)


def test_errors(rng):
    S = noisy_covariances(rng, 3, 4, 20)
    S[1] = noisy_covariances(rng, 1, 4, 2)[0]
    with pytest.raises(ValueError, match=r"S\[1\] is singular: it has rank 2 and 4 features.*MCPCA\(orthogonal=True\)"):
        common_principal_components(S)
    S[1] = 0
    with pytest.raises(ValueError, match=r"S\[1\] is singular: it has rank 0"):
        common_principal_components(S)
    S = noisy_covariances(rng, 3, 4, 20)
    with pytest.raises(ValueError, match=r"n_samples has shape \(2,\) where S has 3 context"):
        common_principal_components(S, [5, 5])
    with pytest.raises(ValueError, match=r"n_samples\[2\]=1; a covariance needs at least 2"):
        common_principal_components(S, [5, 5, 1])
    with pytest.raises(ValueError, match="n_samples has dtype float64; pass whole numbers"):
        common_principal_components(S, [5.0, 5.5, 6.0])
    with pytest.raises(ValueError, match="max_iter=0 is out of bounds"):
        common_principal_components(S, max_iter=0)
    with pytest.raises(ValueError, match=r"tol=1\.0 is out of bounds"):
        common_principal_components(S, tol=1.0)
