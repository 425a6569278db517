"""Stacks, shared and own axes, worst contexts: each against a slow twin, and on data that the others fail on."""

import numpy as np
import pytest
from axes import orthonormal

from mcpca import ascore, decompose
from mcpca.baselines import perpca, run, stablepca
from twins import compose, sampled_problem


def angle(A, B):
    """The sine of the largest angle between two spans."""
    A, B = (np.linalg.qr(M)[0] for M in (A, B))
    return np.linalg.norm(B - A @ (A.T @ B), 2)


def rows_of(rng, V, signal, noise, n):
    """Contexts with orthonormal axes V, variances ``signal`` (k, r) along them, ``noise`` (k,) in all directions."""
    return [
        (rng.standard_normal((m, V.shape[1])) * np.sqrt(s)) @ V.T + np.sqrt(e) * rng.standard_normal((m, len(V)))
        for s, e, m in zip(signal, noise, n, strict=True)
    ]


# Stacks ---------------------------------------------------------------------------------------------------------------


def test_svd_is_that_of_the_flattening(rng):
    S = sampled_problem(rng, 5, 7, 4, 40, 0.5)[2]
    U = np.linalg.svd(np.hstack(list(S)))[0][:, :3]
    found = run("svd", S, 3)
    assert 1 - ascore(found.components, U) < 1e-12
    assert "arbitrary" not in found.notes
    assert "Some singular values are equal" in run("svd", np.stack([np.eye(4)] * 3), 2).notes


def test_weights_by_rows_are_pca_of_all_rows(rng):
    X = [rng.standard_normal((n, 6)) * rng.uniform(0.3, 2, 6) for n in (10, 40, 90)]
    stacked = run("pca_stack", X, 3).components
    assert 1 - ascore(run("stack_svd", X, 3, weights="rows").components, stacked) < 1e-12
    full = run("stack_svd", X, 6)
    assert 1 - ascore(full.components, run("pca_stack", X, 6).components) < 1e-12
    assert "no direction is left to measure noise in" in full.notes


def test_one_axis_is_the_singular_vector_of_weighted_rows(rng):
    """Rows times ``theta / sqrt(theta^2 + c)`` in units of the noise, as the authors have it."""
    v = orthonormal(rng, 12, 1)
    n = np.array([60, 200, 90, 40])
    noise = np.array([0.2, 1.0, 3.0, 0.5])
    X = rows_of(rng, v, np.array([[2.0], [1.0], [4.0], [0.5]]), noise, n)
    X = [x - x.mean(axis=0) for x in X]
    found = run("stack_svd", X, 1)
    p = 12
    first = np.linalg.svd(np.vstack(X))[2][0]
    S = [x.T @ x / (len(x) - 1) for x in X]
    e = np.array([(np.trace(s) - first @ s @ first) / (p - 1) for s in S])
    second = np.linalg.svd(np.vstack([x / np.sqrt(e_i) for x, e_i in zip(X, e, strict=True)]))[2][0]
    assert abs(second @ run("stack_svd", X, 1, weights="noise").components[:, 0]) > 1 - 1e-12
    e = np.array([(np.trace(s) - second @ s @ second) / (p - 1) for s in S])
    # In the authors' units noise is 1 / p in every entry, and the singular value of the signal theta.
    m = n - 1
    theta2 = np.array([second @ s @ second for s in S]) / e - 1
    theta2 = theta2 * m / p
    w = np.sqrt(theta2 / (theta2 + m / p))
    weighted = np.vstack([w_i * x / np.sqrt(e_i) for w_i, x, e_i in zip(w, X, e, strict=True)])
    assert abs(np.linalg.svd(weighted)[2][0] @ found.components[:, 0]) > 1 - 1e-12
    assert sum(found.extras["weights"].values()) == pytest.approx(1)
    assert list(found.extras["weights"]) == [0, 1, 2, 3]


def test_several_axes_maximise_their_weighted_variances(rng):
    V = orthonormal(rng, 9, 3)
    signal = rng.uniform(0.2, 3, (5, 3))
    X = rows_of(rng, V, signal, rng.uniform(0.1, 2, 5), [80] * 5)
    S = np.stack([np.cov(x, rowvar=False) for x in X])
    found = run("stack_svd", X, 3).components
    np.testing.assert_allclose(found.T @ found, np.eye(3), atol=1e-10)
    start = run("stack_svd", X, 3, weights="noise").components
    along = np.einsum("pj,kpq,qj->kj", start, S, start)
    e = (np.einsum("kpp->k", S) - along.sum(axis=1)) / 6
    W = (along / e[:, None] - 1) / along  # lambda / (e (lambda + e)) with lambda = along - e

    def objective(U):
        return (W * np.einsum("pj,kpq,qj->kj", U, S, U)).sum()

    order = np.abs(start.T @ found).argmax(axis=1)
    assert sorted(order) == [0, 1, 2]
    best = found[:, order]
    assert objective(best) > objective(start)
    for Z in 0.05 * rng.standard_normal((50, 9, 9)):
        turned = np.linalg.solve(np.eye(9) - (Z - Z.T) / 2, np.eye(9) + (Z - Z.T) / 2) @ best
        assert objective(turned) <= objective(best)


def test_orthogonal_maximum_likelihood_is_where_the_weights_change_nothing(rng):
    """With the weights of its own axes, those of ``decompose(solver="ml", orthogonal=True)`` are stationary."""
    n = np.array([300, 500, 400, 200])
    X = rows_of(rng, orthonormal(rng, 9, 3), rng.uniform(0.5, 4, (4, 3)), np.array([0.1, 0.5, 1.0, 0.2]), n)
    S = np.stack([np.cov(x, rowvar=False) for x in X])
    V = decompose(S, 3, solver="ml", orthogonal=True, n_samples=n, tol=1e-10, random_state=0).components
    along = np.einsum("pj,kpq,qj->kj", V, S, V)
    e = (np.einsum("kpp->k", S) - along.sum(axis=1)) / 6
    W = (n - 1)[:, None] * (along / e[:, None] - 1) / along
    pull = np.einsum("kj,kpq,qj->pj", W, S, V)
    inside = V.T @ pull
    np.testing.assert_allclose(pull, V @ inside, atol=1e-5 * np.abs(pull).max())
    np.testing.assert_allclose(inside, inside.T, atol=1e-5 * np.abs(pull).max())
    # So it is not for the weights of one context more.
    other = np.einsum("kj,kpq,qj->pj", W * np.array([[5.0], [1], [1], [1]]), S, V)
    assert np.abs(other - V @ (V.T @ other)).max() > 1e-3 * np.abs(other).max()


def test_weights_pay_where_contexts_differ_in_noise():
    errors = {"rows": [], "noise": [], "optimal": []}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        V = orthonormal(rng, 40, 2)
        noise = np.geomspace(0.05, 5, 8)
        X = rows_of(rng, V, np.tile([3.0, 1.5], (8, 1)), noise, [60] * 8)
        for name, list_ in errors.items():
            list_.append(angle(V, run("stack_svd", X, 2, weights=name).components))
    rows, by_noise, optimal = (np.mean(errors[name]) for name in ("rows", "noise", "optimal"))
    assert optimal < 0.5 * rows
    assert optimal <= by_noise


# Shared and own -------------------------------------------------------------------------------------------------------


def shared_and_own(rng, k, p, r, m):
    """Shared axes U (p, r), own axes V (k, p, m) orthogonal to them and not to each other, and covariances."""
    U = orthonormal(rng, p, r)
    V = np.stack([np.linalg.qr(Z - U @ (U.T @ Z))[0] for Z in rng.standard_normal((k, p, m))])
    shared = compose(U, rng.uniform(1, 2, (k, r)) * np.arange(1, r + 1))
    own = np.stack([v @ np.diag(rng.uniform(5, 9, m)) @ v.T for v in V])  # more variance than all that is shared
    return U, V, shared + own


def test_shared_axes_are_told_from_those_of_one_context(rng):
    U, V, S = shared_and_own(rng, 5, 12, 2, 2)
    found = run("perpca", S, 2, unique=2)
    assert found.converged
    assert angle(found.components, U) < 1e-6
    for i in range(5):
        assert angle(found.extras["unique"][i], V[i]) < 1e-6
    assert angle(run("pca_stack", S, 2).components, U) > 0.5
    assert "2 shared components" in found.notes


def test_shared_axes_under_noise(rng):
    U, _, S = shared_and_own(rng, 6, 15, 2, 1)
    X = [rng.multivariate_normal(np.zeros(15), s + 0.3 * np.eye(15), size=400) for s in S]
    found = run("perpca", X, 2)
    assert found.converged
    assert angle(found.components, U) < 0.35
    for axes in found.extras["unique"].values():
        np.testing.assert_allclose(found.components.T @ axes, 0, atol=1e-10)
        np.testing.assert_allclose(axes.T @ axes, np.eye(1), atol=1e-10)


def test_what_is_explained_by_shared_and_own_axes_is_largest(rng):
    S = sampled_problem(rng, 4, 8, 5, 40, 0.5)[2]
    found = run("perpca", S, 2, unique=2, tol=1e-14)

    def explained(U):
        U = np.linalg.qr(U)[0]
        rest = np.eye(8) - U @ U.T
        own = sum(np.linalg.eigvalsh(rest @ s @ rest)[-2:].sum() for s in S)
        return own + sum(np.trace(U.T @ s @ U) for s in S)

    best = explained(found.components)
    for scale in (1e-3, 1e-2, 0.1):
        for Z in rng.standard_normal((30, 8, 2)):
            assert explained(found.components + scale * Z) <= best + 1e-9 * abs(best)
    for Z in rng.standard_normal((200, 8, 2)):
        assert explained(Z) <= best


def test_gradient_of_personalised_pca(rng):
    S = sampled_problem(rng, 4, 7, 5, 40, 0.5)[2]
    U = orthonormal(rng, 7, 2)
    Z = rng.standard_normal((7, 2))
    Z -= U @ (U.T @ Z)
    h = 1e-5
    f = [perpca._split(S, np.linalg.qr(U + s * Z)[0], 2).f for s in (h, -h)]
    assert (f[0] - f[1]) / (2 * h) == pytest.approx(np.vdot(perpca._split(S, U, 2).gradient, Z), rel=1e-6)


def test_without_own_axes_it_is_pca_of_the_mean(rng):
    S = sampled_problem(rng, 4, 7, 5, 40, 0.5)[2]
    axes = np.linalg.eigh(S.mean(axis=0))[1][:, -3:]
    assert 1 - ascore(run("perpca", S, 3, unique=0, tol=1e-14).components, axes) < 1e-8
    assert "0 of each context" in run("perpca", S, 7).notes


# Worst contexts -------------------------------------------------------------------------------------------------------


def least(S, U, worst):
    explained = np.array([np.trace(U.T @ s @ U) for s in S])
    return (explained - (np.trace(S, axis1=1, axis2=2) if worst == "error" else 0)).min()


@pytest.mark.parametrize("worst", ["variance", "error"])
def test_one_axis_in_three_dimensions_by_trying_them_all(rng, worst):
    S = np.stack([np.cov(rng.standard_normal((20, 3)) * rng.uniform(0.2, 3, 3), rowvar=False) for _ in range(3)])
    t, z = np.meshgrid(np.linspace(0, 2 * np.pi, 721), np.linspace(0, 1, 361))
    axes = np.stack([np.sqrt(1 - z**2) * np.cos(t), np.sqrt(1 - z**2) * np.sin(t), z]).reshape(3, -1)
    values = np.einsum("pm,kpq,qm->km", axes, S, axes)
    values -= np.trace(S, axis1=1, axis2=2)[:, None] * (worst == "error")
    scale = np.einsum("kpp->", S) / 9
    found = run("stablepca", S, 1, worst=worst, tol=1e-6)
    assert found.converged
    best = values.min(axis=0).max()
    assert found.extras["bound"] * scale >= best - 1e-9
    assert found.extras["value"] * scale == pytest.approx(least(S, found.components, worst), abs=1e-9)
    # Rounding may cost something where the relaxation is not tight; the note says how much at most.
    assert found.extras["value"] <= found.extras["bound"] + 1e-9
    if "is tight" in found.notes:
        assert found.extras["value"] * scale >= best - 1e-3 * abs(best)


@pytest.mark.parametrize("worst", ["variance", "error"])
def test_the_worst_context_is_better_off_than_with_pca(worst):
    gains = []
    for seed in range(6):
        S = sampled_problem(np.random.default_rng(seed), 4, 10, 10, 200, 0.2, density=0.4)[2]
        S[1:] *= 5  # the first counts little in the mean
        found = run("stablepca", S, 3, worst=worst)
        assert found.converged
        gains.append(least(S, found.components, worst) - least(S, run("pca_stack", S, 3).components, worst))
    assert min(gains) >= -1e-9
    assert max(gains) > 0.1


def test_weights_of_contexts_make_it_pca_where_the_relaxation_is_tight(rng):
    """As it is for two contexts whose axes differ; with axes in common rounding costs something, and that is told."""
    S = np.stack([np.cov(rng.standard_normal((15, 8)), rowvar=False) for _ in range(2)])
    found = run("stablepca", S, 2, tol=1e-9)
    assert "is tight" in found.notes
    assert found.extras["value"] == pytest.approx(found.extras["bound"], rel=1e-3)
    q = np.array(list(found.extras["weights"].values()))
    assert q.sum() == pytest.approx(1)
    assert q.min() > 0.01
    axes = np.linalg.eigh(np.tensordot(q, S, axes=1))[1][:, -2:]
    assert angle(axes, found.components) < 1e-2
    V = orthonormal(rng, 8, 4)
    common = compose(V, np.array([[4.0, 3, 0.2, 0.1], [0.5, 2, 3, 0.1], [5, 5, 5, 5]]))
    assert "not tight: rounding costs 0.1 of" in run("stablepca", common, 2).notes


def test_projection_on_the_fantope_is_the_nearest(rng):
    for r in (1, 3, 5):
        M = rng.standard_normal((5, 5))
        M = M + M.T
        P = stablepca._on_fantope(M, r)
        w = np.linalg.eigvalsh(P)
        assert w.min() > -1e-12
        assert w.max() < 1 + 1e-12
        assert np.trace(P) == pytest.approx(r)
        for Z in rng.standard_normal((50, 5, 5)):
            Q = np.linalg.qr(Z)[0][:, :r]
            assert np.vdot(M - P, Q @ Q.T - P) <= 1e-9


def test_one_step_short_is_not_converged(rng):
    S = sampled_problem(rng, 5, 8, 5, 40, 0.5)[2]
    found = run("stablepca", S, 2, tol=1e-12, max_iter=3)
    assert not found.converged
    assert "Not converged after 3 steps; raise max_iter or tol." in found.notes
