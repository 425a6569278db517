"""Passes stop where more of them would change less than a tenth of a standard error."""

import numpy as np
import pytest
import sklearn
from random_csr import random_csr
from test_rows_on_disk import on_disk
from test_streamed import always_by_passes

from mcpca import MCPCA
from mcpca._covariances import fit_data, row_groups, sampling_limits
from mcpca._covariances.sampling_limits import SamplingGoal, power_step, standard_errors
from mcpca._data.contexts import read_contexts
from mcpca._data.disk import DenseDiskSource
from mcpca._linalg import eigenbasis
from mcpca._linalg.canonical import match_components
from mcpca.datasets import make_contexts


def leading(S, m):
    values, vectors = np.linalg.eigh(np.einsum("ipq,iqs->ps", S, S))
    return values[::-1][:m], vectors[:, ::-1][:, :m]


def outside_span(U, V):
    """Distances (r,) of the columns of U from the span of V."""
    return np.linalg.norm(U - V @ (V.T @ U), axis=0)


def covariances(rng, k=4, p=12, r=3, noise=0.05):
    A = np.linalg.qr(rng.standard_normal((p, r)))[0]
    B = rng.uniform(0.5, 2, (k, r)) * np.array([3.0, 2.0, 1.2])[:r]
    return np.einsum("pj,ij,qj->ipq", A, B, A) + noise * np.eye(p)


def test_standard_errors_are_those_of_other_rows(rng):
    """Rows are drawn 400 times; the root mean square distance from the leading span is what is predicted."""
    S = covariances(rng)
    k, p, r, n = len(S), 12, 3, 300
    roots = np.linalg.cholesky(S)
    _, U = leading(S, r)
    found = []
    for _ in range(400):
        X = np.einsum("ipq,inq->inp", roots, rng.standard_normal((k, n, p)))
        X -= X.mean(axis=1, keepdims=True)
        found.append(outside_span(U, leading(np.einsum("inp,inq->ipq", X, X) / (n - 1), r)[1]))
    observed = np.sqrt((np.array(found) ** 2).mean(axis=0))
    # Some of the other directions are known, as in a fit, and some are not.
    values, more = leading(S, 6)
    core = more.T @ S @ more
    outside = np.trace(S, axis1=1, axis2=2) - np.trace(core, axis1=1, axis2=2)
    predicted = standard_errors(values, r, core, outside, np.full(k, n - 1.0))
    np.testing.assert_allclose(predicted, observed, rtol=0.15)


def test_variances_are_those_of_a_loop_over_entries(rng):
    """All eigenvectors known: the sum over e of Var(u_e^T E u_j) / (w_j - w_e)^2 by the covariances of entries."""
    S = covariances(rng, k=2, p=5, r=2, noise=0.3)
    counts = np.array([40.0, 90.0])
    values, U = leading(S, 5)
    T = U.T @ S @ U
    squares = np.zeros(2)
    for j in range(2):
        for e in range(2, 5):
            variance = 0.0
            for Ti, n in zip(T, counts, strict=True):
                # u_e^T (D T + T D) u_j = sum_ab W_ab D_ab, and Cov(D_ab, D_cd) = (T_ac T_bd + T_ad T_bc) / n
                W = np.zeros((5, 5))
                W[e] += Ti[:, j]
                W[:, j] += Ti[e]
                variance += (np.einsum("ab,cd,ac,bd", W, W, Ti, Ti) + np.einsum("ab,cd,ad,bc", W, W, Ti, Ti)) / n
            squares[j] += variance / (values[j] - values[e]) ** 2
    found = standard_errors(values, 2, T, np.zeros(2), counts)
    np.testing.assert_allclose(found, np.sqrt(squares), rtol=1e-10)


def test_a_power_step_shrinks_errors_as_predicted(rng):
    w = np.concatenate([[2.0], np.linspace(0, 0.5, 4000)])
    error = rng.standard_normal(4000)
    shrunk = np.linalg.norm(error * w[1:] / w[0]) / np.linalg.norm(error)
    np.testing.assert_allclose(power_step(np.array([2.0, 0.5]), 1), shrunk, rtol=0.05)
    np.testing.assert_array_equal(power_step(np.array([2.0, 0.5]), 2), 1)  # nothing is known of what follows


def test_an_undetermined_direction_has_an_error_of_one(rng):
    S = np.stack([np.eye(6) * c for c in (1.0, 2.0)])
    found = standard_errors(np.full(4, 5.0), 2, S[:, :4, :4], np.array([2.0, 4.0]), np.array([30.0, 30.0]))
    np.testing.assert_array_equal(found, 1)


def test_the_goal_follows_the_change_of_the_last_product_or_the_residual(rng):
    S = covariances(rng)
    values, U = leading(S, 6)
    goal = SamplingGoal(3, lambda V: V.T @ S @ V, np.trace(S, axis1=1, axis2=2), np.full(4, 200.0))
    tilted = np.linalg.qr(U + 0.02 * rng.standard_normal(U.shape))[0]
    far = np.full(3, np.inf)
    assert (goal(values, tilted, far) == np.inf).all()
    excess = goal(values, U, far)
    errors = standard_errors(
        values, 3, U.T @ S @ U, goal._traces - np.trace(U.T @ S @ U, axis1=1, axis2=2), goal._counts
    )
    # f is 1/2 after the first change, so all of it may be left
    np.testing.assert_allclose(excess, outside_span(tilted[:, :3], U[:, :3]) / errors / sampling_limits.SHARE)
    assert goal(values, U, far).max() < 1e-6
    # A residual bounds the error by its share of the gap to what follows.
    sure = SamplingGoal(3, lambda V: V.T @ S @ V, np.trace(S, axis1=1, axis2=2), np.full(4, 200.0))
    residuals = 1e-3 * values[:3]
    expected = residuals / (values[:3] - values[-1]) / errors / sampling_limits.SHARE
    np.testing.assert_allclose(sure(values, U, residuals), expected)
    # Directions that were not multiplied have not moved, which says nothing of how far they are.
    np.testing.assert_allclose(sure(values, U, residuals, all_moved=False), expected)
    assert sure(values, U, residuals).max() < 1e-6


@pytest.mark.parametrize(("k", "noise"), [(8, 0.5), (40, 1.0)])
def test_a_fit_by_passes_stops_within_a_tenth_of_a_standard_error(monkeypatch, k, noise):
    data = make_contexts(k, 300, 4, n_samples=150, noise=noise, random_state=1)
    exact = MCPCA(4, random_state=0).fit(data.X, data.y)
    always_by_passes(monkeypatch)
    fine = MCPCA(4, random_state=0, tol=1e-7).fit(data.X, data.y)
    model = MCPCA(4, random_state=0).fit(data.X, data.y)
    assert model.n_passes_ < fine.n_passes_
    assert model.basis_error_ <= sampling_limits.SHARE
    assert fine.basis_error_ is None
    assert exact.basis_error_ is None
    match = match_components(data.components, exact.components_)
    errors = np.arccos(np.minimum(np.abs(match.cosines), 1))  # of this sample: as large as standard errors are
    stopped = np.arccos(np.minimum(np.abs(match_components(exact.components_, model.components_).cosines), 1))
    assert stopped.max() < 0.2 * errors.mean()


def test_small_files_are_read_once(tmp_path, request, monkeypatch):
    data = make_contexts(4, 60, 3, n_samples=200, noise=0.3, random_state=0)
    X = on_disk(tmp_path, request, data.X)
    monkeypatch.setattr(fit_data, "MOST_NUMBERS", 0)
    reads = []
    for way in ("gather", "scan"):
        plain = getattr(DenseDiskSource, way)
        monkeypatch.setattr(DenseDiskSource, way, lambda *a, plain=plain: reads.append(1) or plain(*a))
    stages = []
    model = MCPCA(3, random_state=0, verbose=lambda stage, done, total: stages.append(stage)).fit(X, data.y)
    assert len(reads) == 1
    assert "reading rows" in stages
    in_memory = MCPCA(3, random_state=0).fit(data.X, data.y)
    np.testing.assert_array_equal(model.components_, in_memory.components_)
    assert model.n_passes_ == in_memory.n_passes_


def test_what_does_not_fit_into_memory_stays_on_disk(tmp_path, request, rng):
    X, y = rng.standard_normal((3000, 50)), rng.integers(3, size=3000)
    contexts = read_contexts(on_disk(tmp_path, request, X), y)

    with sklearn.config_context(working_memory=1):  # 1.2 MB of rows
        assert row_groups.loaded_if_small(contexts, lambda *_: None) is contexts
    loaded = row_groups.loaded_if_small(contexts, lambda *_: None)
    assert loaded.sources[0].in_memory
    np.testing.assert_array_equal(loaded.block(1), contexts.block(1))


def test_directions_that_nothing_determines_do_not_take_forty_products(monkeypatch, rng):
    always_by_passes(monkeypatch)
    X = random_csr(rng, 1500, 400, 0.2)
    y = np.repeat(np.arange(5), 300)
    model = MCPCA(6, random_state=0).fit(X, y)
    assert model.n_passes_ < eigenbasis._PATIENCE + 8
