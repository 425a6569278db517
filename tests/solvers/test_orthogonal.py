"""Orthonormal components: least squares, likelihood, and Flury's common principal components."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import kstest

from mcpca import MCPCA, ascore
from mcpca._linalg import jacobi, stiefel
from mcpca._model.common_components import common_principal_components
from mcpca._solvers import orthogonal, orthogonal_ml
from mcpca.datasets import make_contexts
from twins import compose


def solve(T, r, tol=1e-9, max_iter=200):
    return orthogonal.solve_orthogonal_core(T, r, tol=tol, max_iter=max_iter, report=lambda stage, done, total: None)


def squares(T, A):
    return float((((T @ A) * A).sum(axis=1) ** 2).sum())


def orthonormal(rng, q, r):
    return np.linalg.qr(rng.standard_normal((q, r)))[0]


def noisy(rng, k, q, n):
    X = rng.standard_normal((k, q, n)) * rng.uniform(0.3, 2, (k, q, 1))
    return X @ X.transpose(0, 2, 1) / n


def same_axes(A, reference):
    """Whether columns agree up to order and sign; the largest sine between matched ones."""
    best = np.abs(reference.T @ A)
    match = best.argmax(axis=1)
    assert len(set(match)) == reference.shape[1]
    M = A[:, match] * np.sign((A[:, match] * reference).sum(axis=0))
    return np.abs(M - reference).max()


# Least squares --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "q", "r"), [(2, 6, 6), (5, 9, 4), (3, 12, 5), (30, 7, 7), (4, 5, 1)])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_planted_axes_are_recovered(rng, k, q, r, scale):
    A = orthonormal(rng, q, r)
    B = np.abs(rng.standard_normal((k, r))) * (rng.random((k, r)) < 0.7)
    B[rng.integers(k, size=r), np.arange(r)] += 0.5
    result = solve(scale * compose(A, B), r)
    assert result.converged
    assert same_axes(result.components, A) < 1e-8


@pytest.mark.parametrize("seed", range(4))
def test_as_good_as_many_slow_starts(seed):
    rng = np.random.default_rng(seed)
    k, q, r = 4, 5, (2, 3, 5)[seed % 3]
    T = noisy(rng, k, q, 6)
    found = squares(T, solve(T, r).components)

    def loss(x):
        U, _, Vt = np.linalg.svd(x.reshape(q, r), full_matrices=False)
        return -squares(T, U @ Vt) / squares(T, np.eye(q))

    slow = max(-minimize(loss, rng.standard_normal(q * r)).fun for _ in range(8)) * squares(T, np.eye(q))
    assert found >= slow * (1 - 1e-9)


def test_least_squares_and_the_sum_of_squares_are_one(rng):
    T = noisy(rng, 4, 6, 9)
    A = solve(T, 3).components
    h = np.einsum("qj,kqs,sj->kj", A, T, A)
    assert np.linalg.norm(T - compose(A, h)) ** 2 == pytest.approx(np.linalg.norm(T) ** 2 - squares(T, A))


def test_no_step_lowers_the_objective(rng):
    T = noisy(rng, 5, 12, 8)
    r = 4
    start = np.linalg.eigh(T.sum(axis=0))[1][:, ::-1]
    values = [squares(T, start[:, :r])]
    frame = start
    for _ in range(3):
        frame, _ = jacobi.jacobi_sweeps(T, frame, r, jacobi.squares_angle, 1)
        values.append(squares(T, frame[:, :r]))
    for _ in range(12):
        frame = stiefel.maximise_over_frames(T, frame, r, orthogonal.squared_variances, max_iter=1, tol=1e-12).frame
        values.append(squares(T, frame[:, :r]))
    assert (np.diff(values) >= -1e-13 * values[-1]).all()
    assert values[1] > values[0]
    flattening = np.linalg.eigh(np.einsum("kpq,kqs->ps", T, T))[1][:, -r:]
    assert squares(T, solve(T, r).components) >= max(values[-1] * (1 - 1e-12), squares(T, flattening))


def test_certificate_is_the_riemannian_gradient(rng):
    T = noisy(rng, 4, 8, 10)
    result = solve(T, 3, tol=1e-10)
    A = result.components
    G = 4 * sum(np.outer(Ti @ a, np.eye(3)[j]) * (a @ Ti @ a) for Ti in T for j, a in enumerate(A.T))
    tangent = G - A @ (A.T @ G + G.T @ A) / 2
    assert np.linalg.norm(tangent) / np.linalg.norm(T) ** 2 < 1e-10
    assert result.gradient < 1e-10
    stopped = solve(noisy(rng, 6, 20, 10), 8, tol=1e-15, max_iter=1)
    assert not stopped.converged
    assert "after max_iter=1 steps; raise either" in stopped.message


def test_newtons_step_from_near_a_maximum_returns_to_it(rng):
    """Which tests every term of the Hessian: the step undoes a rotation t X up to O(t^2)."""
    k, q, r, t = 4, 7, 3, 1e-6
    n = np.array([0.1, 0.2, 0.3, 0.4])
    T = noisy(rng, k, q, 9)
    X = rng.standard_normal((q, r))
    X[:r] -= X[:r].T.copy()
    for objective in (
        orthogonal.squared_variances,
        lambda h: orthogonal_ml.likelihood_landscape(h, T.trace(axis1=1, axis2=2) + 1, n, 9, np.full(k, 1e-9), False),
        lambda h: orthogonal_ml.likelihood_landscape(h, T.trace(axis1=1, axis2=2) + 1, n, 9, np.full(k, 1e-9), True),
    ):
        top = stiefel.maximise_over_frames(T, orthonormal(rng, q, q), r, objective, max_iter=200, tol=1e-13)
        assert top.gradient < 1e-10 * abs(top.value)
        V = top.frame @ stiefel._cayley(t * X)
        here = objective(np.einsum("qj,kqs,sj->jk", V[:, :r], T, V[:, :r]))
        Y = np.einsum("qj,kqs,sl->jkl", V[:, :r], T, V)
        G = 2 * np.einsum("jk,jkl->lj", here.slope, Y)
        g = np.vstack([G[:r] - G[:r].T, G[r:]])
        step = stiefel._newton_direction(T, V, Y, G, g, np.ones((q, r)), here, 1e-12)
        np.testing.assert_allclose(step, -t * X, atol=1e-3 * t)


def test_equivariance(rng):
    T = noisy(rng, 5, 8, 10)
    A = solve(T, 4).components
    Q = orthonormal(rng, 8, 8)
    assert same_axes(solve(Q @ T @ Q.T, 4).components, Q @ A) < 1e-7
    assert same_axes(solve(T[rng.permutation(5)], 4).components, A) < 1e-7
    # Only the span of the slices, with its inner product, matters: they need not be covariances.
    mixed = np.tensordot(orthonormal(rng, 5, 5), T, axes=1)
    assert squares(mixed, solve(mixed, 4).components) == pytest.approx(squares(T, A))


def test_one_context_gives_its_eigenvectors(rng):
    T = noisy(rng, 1, 7, 20)
    top = np.linalg.eigh(T[0])[1][:, ::-1]
    for r in (1, 3, 7):
        assert same_axes(solve(T, r).components, top[:, :r]) < 1e-8


@pytest.mark.parametrize(
    "T", [np.zeros((3, 4, 4)), np.stack([np.eye(4)] * 3), np.stack([np.ones((4, 4)), np.zeros((4, 4))])]
)
def test_degenerate_slices(T):
    for r in (1, 2, 4):
        result = solve(T, r)
        np.testing.assert_allclose(result.components.T @ result.components, np.eye(r), atol=1e-13)
        assert result.converged


def test_progress_is_reported(rng):
    calls = []
    orthogonal.solve_orthogonal_core(
        noisy(rng, 3, 5, 6), 2, tol=1e-8, max_iter=50, report=lambda *call: calls.append(call)
    )
    assert calls[-1][1] == calls[-1][2]


def test_every_pair_meets_once():
    for q, r in [(1, 1), (2, 1), (6, 6), (7, 7), (9, 4)]:
        rounds = jacobi.round_robin(q, r)
        assert all(len(np.unique(np.concatenate(pair))) == 2 * len(pair[0]) for pair in rounds)
        met = sorted((int(j), int(m)) for J, L in rounds for j, m in zip(J, L, strict=True))
        assert met == [(j, m) for j in range(r) for m in range(j + 1, q)]


# Likelihood -----------------------------------------------------------------------------------------------------------


def dense_log_likelihood(S, n, A, b, s2):
    """Gaussian log-likelihood, up to its constant, with every covariance written out."""
    total = 0.0
    for Si, ni, bi, s in zip(S, n, b, s2, strict=True):
        Sigma = A @ np.diag(bi) @ A.T + s * np.eye(len(Si))
        total -= ni / 2 * (np.linalg.slogdet(Sigma)[1] + np.trace(np.linalg.solve(Sigma, Si)))
    return total


def planted_noise(rng, k, p, r, n, noise):
    A = orthonormal(rng, p, r)
    B = np.abs(rng.standard_normal((k, r))) * (rng.random((k, r)) < 0.7) + 0.1
    rows = [(rng.standard_normal((n, r)) * np.sqrt(b)) @ A.T + noise * rng.standard_normal((n, p)) for b in B]
    return A, B, np.stack([np.cov(X, rowvar=False) for X in rows])


def to_core(S, q):
    U = np.linalg.eigh(np.einsum("kpq,kqs->ps", S, S))[1][:, ::-1][:, :q]
    T = U.T @ S @ U
    return U, T, np.einsum("kpp->k", S) - np.einsum("kqq->k", T)


def fit_likelihood(T, rest, r, n, p, start, shared, floor=1e-9, max_iter=200, tol=1e-11):
    return orthogonal_ml.solve_likelihood(
        T, rest, r, n=n, p=p, floor=floor, start=start, pooled_noise=shared, tol=tol, max_iter=max_iter
    )


@pytest.mark.parametrize("shared", [False, True])
def test_likelihood_recovers_what_was_planted(rng, shared):
    A, B, S = planted_noise(rng, 6, 10, 3, 20000, 0.3)
    U, T, rest = to_core(S, 6)
    C, b, s2, n_iter, converged = fit_likelihood(T, rest, 3, np.full(6, 20000), 10, solve(T, 3).components, shared)
    assert converged
    assert n_iter < 30
    assert same_axes(U @ C, A) < 0.02
    order = np.abs(A.T @ U @ C).argmax(axis=1)
    np.testing.assert_allclose(b[:, order], B, atol=0.06)
    np.testing.assert_allclose(s2, 0.09, rtol=0.02)
    assert len(np.unique(s2)) == (1 if shared else 6)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("q", "r", "noise"), [(8, 3, 0.3), (8, 3, 2.0), (8, 8, 0.5), (8, 1, 1.0)])
def test_likelihood_never_falls_and_ends_stationary(rng, shared, q, r, noise):
    _, _, S = planted_noise(rng, 4, 8, r, 25, noise)
    n = np.array([25, 10, 60, 30])
    _, T, rest = to_core(S, q)
    start = orthonormal(rng, q, r)
    values = []
    for max_iter in (0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 300):
        C, b, s2, _, converged = fit_likelihood(T, rest, r, n, 8, start, shared, max_iter=max_iter)
        assert (b >= 0).all()
        values.append(dense_log_likelihood(T, n, C, b, s2))
    assert (np.diff(values) >= -1e-11 * abs(values[-1])).all()
    assert converged
    # B and s are the best for this A, and no small rotation of A raises the likelihood.
    for _ in range(20):
        scaled = b * np.exp(0.02 * rng.standard_normal(b.shape))
        level = s2 * np.exp(0.02 * rng.standard_normal(1 if shared else 4))
        assert dense_log_likelihood(T, n, C, scaled, level) <= values[-1] + 1e-9
        near = np.linalg.svd(C + 1e-3 * rng.standard_normal(C.shape), full_matrices=False)
        turned = near[0] @ near[2]
        assert dense_log_likelihood(T, n, turned, b, s2) <= values[-1] + 1e-9


def test_likelihood_in_the_core_is_the_full_one(rng):
    """With the variance outside given as a number the answer is that of all features, where the core holds A."""
    _, _, S = planted_noise(rng, 5, 9, 2, 40, 0.5)
    n = np.full(5, 40)
    _, T, rest = to_core(S, 9)
    full = fit_likelihood(T, rest, 2, n, 9, solve(T, 2).components, False)
    basis = np.linalg.qr(np.column_stack([full[0], rng.standard_normal((9, 3))]))[0]
    inner = basis.T @ T @ basis
    outside = np.einsum("kpp->k", T) - np.einsum("kqq->k", inner)
    C, b, s2, _, _ = fit_likelihood(inner, outside, 2, n, 9, solve(inner, 2).components, False)
    assert same_axes(basis @ C, full[0]) < 1e-6
    np.testing.assert_allclose(s2, full[2], rtol=1e-7)
    np.testing.assert_allclose(np.sort(b, axis=1), np.sort(full[1], axis=1), atol=1e-6)


@pytest.mark.parametrize("shared", [False, True])
def test_noise_level_by_trying_every_split(rng, shared):
    k, r, p = 3, 4, 6
    n = np.array([0.5, 0.2, 0.3])
    h = rng.exponential(size=(r, k))
    total = h.sum(axis=0) + rng.exponential(size=k)
    floor = np.full(k, 1e-3)
    best = orthogonal_ml.likelihood_landscape(h, total, n, p, floor, shared).value

    def value(log_s2):
        s2 = np.maximum(np.exp(log_s2) * np.ones(k), floor)
        t = np.maximum(h, s2)
        return -n @ ((np.log(t) + h / t).sum(axis=0) + (p - r) * np.log(s2) + (total - h.sum(axis=0)) / s2)

    grid = np.linspace(-6, 3, 6001)
    if shared:
        slow = max(value(x) for x in grid)
    else:
        slow = sum(max(value(np.where(np.arange(k) == i, x, 0.0)) for x in grid[::3]) for i in range(k))
        slow -= (k - 1) * value(np.zeros(k))
    assert best == pytest.approx(slow, abs=1e-5)
    assert best >= slow - 1e-12


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_likelihood_of_degenerate_slices(rng, shared, scale):
    q = 4
    low_rank = rng.standard_normal((3, q, 2))
    stacks = [
        np.zeros((3, q, q)),
        np.stack([np.eye(q), np.zeros((q, q)), 1e-9 * np.eye(q)]),
        low_rank @ low_rank.transpose(0, 2, 1),
        noisy(rng, 3, q, 9),
    ]
    for T in stacks:
        for r, p in [(1, q), (q, q), (2, 7), (q, 7)]:
            start = solve(scale * T, r).components
            floor = scale * 1e-8
            n = np.array([5, 9, 2])
            C, b, s2, _, _ = fit_likelihood(scale * T, np.zeros(3), r, n, p, start, shared, floor=floor, max_iter=60)
            np.testing.assert_allclose(C.T @ C, np.eye(r), atol=1e-12)
            assert np.isfinite(b).all()
            assert (b >= 0).all()
            assert (s2 >= floor).all()
            assert np.isfinite(s2).all()


def test_full_rank_likelihood_is_common_principal_components(rng):
    """With r = p the noise is one of the variances, and the model Flury's."""
    S = noisy(rng, 4, 5, 40)
    n = np.array([40, 20, 60, 30])
    C, b, s2, _, converged = fit_likelihood(S, np.zeros(4), 5, n - 1, 5, solve(S, 5).components, False)
    assert converged
    cpc = common_principal_components(S, n)
    assert same_axes(C, cpc.components) < 1e-6
    np.testing.assert_allclose(np.sort(b + s2[:, None], axis=1), np.sort(cpc.variances, axis=1), rtol=1e-5)


# Common principal components ------------------------------------------------------------------------------------------


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
    S = noisy(rng, 4, 6, 25)
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
        S, n = noisy(rng, 3, 4, 8), np.array([8, 20, 11])
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
    assert same_axes(result.components, slow) < 1e-4
    assert result.dof == 12
    assert result.p_value < 1e-6  # the species do not share their axes
    pair = common_principal_components(S[1:], n[1:])
    assert pair.dof == 6
    assert pair.statistic < result.statistic


def test_scale_of_a_context_does_not_matter(rng):
    S, n = noisy(rng, 3, 5, 30), np.array([30, 30, 30])
    plain = common_principal_components(S, n)
    scaled = common_principal_components(S * np.array([1e-9, 1.0, 1e9])[:, None, None], n)
    assert scaled.statistic == pytest.approx(plain.statistic, rel=1e-9)
    assert same_axes(scaled.components, plain.components) < 1e-8


def test_exactly_common_axes_leave_nothing(rng):
    A = orthonormal(rng, 6, 6)
    result = common_principal_components(compose(A, rng.uniform(0.5, 5, (4, 6))), np.full(4, 30))
    assert result.statistic < 1e-10
    assert result.p_value == pytest.approx(1)
    assert same_axes(result.components, A) < 1e-8


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
    single = common_principal_components(noisy(rng, 1, 4, 20), [20])
    assert (single.statistic, single.dof, single.p_value) == (pytest.approx(0, abs=1e-10), 0, 1.0)
    line = common_principal_components(np.array([[[2.0]], [[3.0]]]))
    assert line.components.tolist() == [[1.0]]
    assert line.variances.tolist() == [[2.0], [3.0]]
    assert line.p_value is None
    same = common_principal_components(np.stack([np.eye(3)] * 2))
    assert same.converged
    assert same.statistic == pytest.approx(0, abs=1e-12)


def test_errors(rng):
    S = noisy(rng, 3, 4, 20)
    S[1] = noisy(rng, 1, 4, 2)[0]
    with pytest.raises(ValueError, match=r"S\[1\] is singular: it has rank 2 and 4 features.*MCPCA\(orthogonal=True\)"):
        common_principal_components(S)
    S[1] = 0
    with pytest.raises(ValueError, match=r"S\[1\] is singular: it has rank 0"):
        common_principal_components(S)
    S = noisy(rng, 3, 4, 20)
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


@pytest.mark.parametrize("options", [{}, {"solver": "lsq"}, {"solver": "ml"}, {"solver": "ml", "noise": "pooled"}])
def test_orthogonal_models_recover_orthogonal_truth_better(options):
    data = make_contexts(8, 20, 4, n_samples=300, noise=0.3, density=0.6, orthogonal=True, random_state=0)
    losses = []
    for orthogonal_ in (False, True):
        model = MCPCA(4, orthogonal=orthogonal_, random_state=0, **options).fit(data.X, data.y)
        losses.append(1 - ascore(model.components_, data.components))
    np.testing.assert_allclose(model.components_.T @ model.components_, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(model.projection_, model.components_.T, atol=1e-12)
    assert losses[1] < losses[0]


def test_without_noise_at_full_rank_is_flurys_model(rng):
    S = noisy(rng, 4, 5, 40)
    model = MCPCA(5, solver="ml", noise=None, orthogonal=True, random_state=0).fit_covariances(S, n_samples=50)
    flury = common_principal_components(S, [50] * 4)
    assert same_axes(model.components_, flury.components) < 1e-4
    np.testing.assert_allclose(model.loadings_, flury.variances, rtol=1e-3)


def test_orthogonal_axes_and_noise_by_feature_do_not_go_together(rng):
    with pytest.raises(ValueError, match="standardise the features first"):
        MCPCA(2, solver="ml", noise="diagonal", orthogonal=True).fit(rng.standard_normal((20, 4)))
