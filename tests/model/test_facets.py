"""The propositions of the paper's theory section as numerical identities, and the facets against direct formulas."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

from mcpca import (
    MCPCA,
    IdentifiabilityWarning,
    analysis,
    decompose,
    facets,
    match_components,
    proportional_loadings,
)
from mcpca._covariances.packed import InCore
from mcpca._covariances.stack import CovarianceStack
from mcpca._covariances.subspace import compress
from mcpca._inference.precision import precision_of
from mcpca._model import facets as module
from mcpca._model.gaussian import GaussianModel
from mcpca._model.identifiability import indistinct_loadings, warn_if_proportional
from mcpca._results.fitted import fitted as fitted_parts
from mcpca.report import _words as words
from twins import compose, design_loadings, random_problem, sampled_problem


@pytest.fixture
def fitted(rng):
    _, _, S = sampled_problem(rng, 6, 10, 4, 80, 0.4)
    return S, MCPCA(4, random_state=0).fit_covariances(S)


def test_model_is_a_tensor_decomposition(rng):
    """Sigma_i = A B_i A^T for all i is T = sum_j a_j (x) a_j (x) b_j."""
    A, B, S = random_problem(rng, 5, 7, 3)
    T = sum(np.einsum("a,b,i->abi", a, a, b) for a, b in zip(A.T, B.T, strict=True))
    np.testing.assert_allclose(T, S.transpose(1, 2, 0), atol=1e-14)


def test_proportional_loadings_are_not_identifiable(rng):
    """With b_1 = mu^2 b_2 the paper's v, w give another decomposition of the same tensor."""
    A, B, _ = random_problem(rng, 5, 7, 2)
    mu = 1.7
    B[:, 0] = mu**2 * B[:, 1]
    v, w = A[:, 0] + A[:, 1] / mu, A[:, 0] - A[:, 1] / mu
    other = np.stack([v, w], axis=1)
    norms = np.linalg.norm(other, axis=0)
    B_other = np.stack([B[:, 0] / 2, mu**2 * B[:, 1] / 2], axis=1) * norms**2
    np.testing.assert_allclose(compose(other / norms, B_other), compose(A, B), atol=1e-13)


def test_dimension_of_the_model(rng):
    """The Jacobian of (A, B) -> (A B_i A^T) has rank r (p + k - 1) at a generic point."""
    k, p, r = 4, 6, 3
    A, B, _ = random_problem(rng, k, p, r)
    columns = []
    for j in range(r):
        for a in range(p):
            dA = np.zeros((p, r))
            dA[a, j] = 1
            columns.append(np.stack([dA @ np.diag(b) @ A.T + A @ np.diag(b) @ dA.T for b in B]).ravel())
        for i in range(k):
            dB = np.zeros((k, r))
            dB[i, j] = 1
            columns.append(compose(A, dB).ravel())
    assert np.linalg.matrix_rank(np.array(columns)) == r * (p + k - 1)


def test_reconstruction_error_is_the_tensors(fitted):
    S, model = fitted
    A, B = model.components_, model.loadings_
    direct = [np.linalg.norm(Si - A @ np.diag(b) @ A.T) ** 2 for Si, b in zip(S, B, strict=True)]
    np.testing.assert_allclose(model.reconstruction_error("context"), direct, rtol=1e-10)
    tensor = np.linalg.norm(S - compose(A, B)) ** 2 / len(S)
    assert model.reconstruction_error() == pytest.approx(tensor)


def test_variance_explained_and_error_add_up(fitted):
    """||S||^2 = ||S - P(S)||^2 + ||P(S)||^2, with P by the (p^2, r) design."""
    S, model = fitted
    A = model.components_
    design = np.stack([np.outer(a, a).ravel() for a in A.T], axis=1)
    flat = S.reshape(len(S), -1)
    projected = (design @ np.linalg.lstsq(design, flat.T, rcond=None)[0]).T
    explained = (projected**2).sum(axis=1)
    np.testing.assert_allclose(model.variance_explained("context"), explained, rtol=1e-9)
    np.testing.assert_allclose(model.squared_norms(), explained + ((flat - projected) ** 2).sum(axis=1), rtol=1e-9)
    assert model.variance_explained() == pytest.approx(explained.mean())
    assert model.variance_explained("component").sum() == pytest.approx(model.variance_explained())


def test_variance_explained_of_orthogonal_components(rng):
    A = np.linalg.qr(rng.standard_normal((8, 3)))[0]
    _, _, S = sampled_problem(rng, 5, 8, 3, 60, 0.3)
    result = facets(S, A, design_loadings(S, A))
    np.testing.assert_allclose(result.variance_shares, np.einsum("pj,kpq,qj->kj", A, S, A) ** 2, rtol=1e-10)


def test_projection_makes_the_model_uncorrelated(rng):
    """Cov(A^+ x_i) = B_i in the exact model."""
    A, B, S = random_problem(rng, 5, 9, 4)
    P = np.linalg.pinv(A)
    np.testing.assert_allclose(P @ S @ P.T, np.stack([np.diag(b) for b in B]), atol=1e-12)
    exact = facets(S, A, B)
    assert exact.offdiagonals.max() < 1e-20
    assert exact.likelihood_losses.max() < 1e-12
    assert exact.reconstruction_errors.max() < 1e-12


def test_offdiagonal_and_likelihood_loss_by_their_formulas(fitted):
    S, model = fitted
    off, loss, rms = [], [], []
    for Si in S:
        C = model.projection_ @ Si @ model.projection_.T
        off.append(np.linalg.norm(C - np.diag(np.diag(C))) ** 2)
        loss.append(np.log(np.diag(C)).sum() - np.linalg.slogdet(C)[1])
        R = C / np.sqrt(np.outer(np.diag(C), np.diag(C)))
        rms.append(np.sqrt((R[~np.eye(4, dtype=bool)] ** 2).mean()))
    np.testing.assert_allclose(model.offdiagonal_correlation("context"), off, rtol=1e-9)
    np.testing.assert_allclose(model.likelihood_loss("context"), loss, rtol=1e-8)
    np.testing.assert_allclose(model.offdiagonal_correlation("context", normalized=True), rms, rtol=1e-9)
    assert model.offdiagonal_correlation() == pytest.approx(sum(off))
    assert model.likelihood_loss() == pytest.approx(sum(loss))
    assert model.likelihood_loss() > 0  # Hadamard


def test_likelihood_loss_is_twice_a_kullback_leibler_divergence(fitted):
    S, model = fitted
    C = model.projection_ @ S[0] @ model.projection_.T
    D = np.diag(np.diag(C))
    kl = 0.5 * (np.trace(np.linalg.solve(D, C)) - len(C) + np.linalg.slogdet(D)[1] - np.linalg.slogdet(C)[1])
    assert model.likelihood_loss("context")[0] == pytest.approx(2 * kl)


def test_likelihood_loss_is_infinite_where_scores_are_singular(rng):
    A, B, S = random_problem(rng, 4, 8, 3)
    S[2] = 0
    result = facets(S, A, B)
    assert np.isinf(result.likelihood_losses).tolist() == [False, False, True, False]


def test_full_rank_likelihood_is_bounded_by_hadamard(rng):
    """sum_i log det(A Diag(A^-1 S_i A^-T) A^T) >= sum_i log det S_i, with equality at common axes only."""
    _A, _B, S = random_problem(rng, 2, 5, 5)
    components = decompose(S, 5, random_state=0).components

    def objective(M):
        W = np.linalg.inv(M)
        return sum(np.linalg.slogdet(M @ np.diag(np.diag(W @ Si @ W.T)) @ M.T)[1] for Si in S)

    bound = np.linalg.slogdet(S)[1].sum()
    assert objective(components) == pytest.approx(bound)
    assert objective(np.eye(5)) > bound + 1e-3


def test_errors_of_shares_are_those_of_the_squared_norms(fitted):
    """To first order a share e / n has the error (e / n) dn / n; errors of contexts add up as squares."""
    S, model = fitted
    found = facets(S, model.components_, model.loadings_)
    errors = np.linspace(0.1, 0.6, 6) * found.squared_norms
    share, error = replace(found, squared_norm_errors=errors).explained_shares(total=False)
    np.testing.assert_allclose(error, share * errors / found.squared_norms)
    h = 1e-6
    moved = replace(found, squared_norms=found.squared_norms + h * errors).explained_shares(total=False)[0]
    np.testing.assert_allclose((share - moved) / h, error, rtol=1e-4)
    share, error = replace(found, squared_norm_errors=errors).explained_shares(total=True)
    assert error == pytest.approx(share * np.sqrt((errors**2).sum()) / found.squared_norms.sum())


def test_what_facets_say_of_an_exact_model_and_of_nothing(rng):
    A, B, S = random_problem(rng, 4, 6, 2)
    assert "explain 100.0%, and these loadings leave an error of 0.0%" in str(facets(5 * S, A, 5 * B))
    assert "explain 0.0%" in str(facets(0 * S, A, 0 * B))


def test_facet_options_are_checked(fitted):
    _, model = fitted
    with pytest.raises(ValueError, match="per='feature'; choose None, 'context'"):
        model.reconstruction_error("feature")
    with pytest.raises(ValueError, match="or 'component'"):
        model.variance_explained("feature")
    with pytest.raises(ValueError, match=r"S \(6, 10, 10\), A \(10, 4\) and B \(5, 4\) do not fit"):
        facets(np.stack([np.eye(10)] * 6), np.eye(10)[:, :4], np.ones((5, 4)))


def test_identifiability_warning_names_the_components(rng):
    A, B, _ = random_problem(rng, 5, 9, 4)
    B[:, 3] = 0.5 * B[:, 0]
    with pytest.warns(IdentifiabilityWarning, match=r"MCPC \d and MCPC \d .* degrees apart.*Lower n_components"):
        model = MCPCA(4, random_state=0).fit_covariances(compose(A, B))
    (pair,) = model.proportional_loadings()
    assert pair.degrees < 1e-3
    cosines = np.corrcoef(model.loadings_.T)
    assert cosines[pair.first, pair.second] > 1 - 1e-8


def test_proportional_loadings_reports_angles_and_zero_columns():
    B = np.array([[1.0, 1.0, 2.0, 0.0], [0.0, 0.001, 0.0, 0.0]])
    pairs = proportional_loadings(B)
    assert [(p.first, p.second) for p in pairs] == [(0, 1), (0, 2), (1, 2), (3, 3)]
    assert pairs[0].degrees == pytest.approx(np.degrees(np.arctan(0.001)), rel=1e-6)
    assert proportional_loadings(B[:, :2], max_degrees=0.01) == []


def orthogonal_problem(rng, columns):
    """Orthonormal A (7, r), and covariances with these columns of B."""
    B = np.stack(columns, axis=1)
    A = np.linalg.qr(rng.standard_normal((7, B.shape[1])))[0]
    return A, compose(A, B)


@pytest.mark.parametrize("solver", ["mspm", "ml"])
def test_orthogonal_axes_with_proportional_loadings_are_identifiable(rng, solver):
    """The paper's proposition on the orthogonal model; warnings are errors here."""
    b = np.array([1.0, 2.0, 0.5])
    A, S = orthogonal_problem(rng, [3 * b, b, b[::-1]])
    if solver == "ml":
        S = S + 0.1 * np.eye(7)
    model = MCPCA(3, orthogonal=True, solver=solver, random_state=0).fit_covariances(S, n_samples=100)
    np.testing.assert_allclose(match_components(model.components_, A).cosines, 1, atol=1e-6)
    assert model.proportional_loadings() == []
    assert len(proportional_loadings(model.loadings_)) == 1


def test_orthogonal_axes_with_equal_loadings_are_not_identifiable(rng):
    b = np.array([1.0, 2.0, 0.5])
    _, S = orthogonal_problem(rng, [b, b * 1.001, 2 * b[::-1]])
    with pytest.warns(IdentifiabilityWarning, match="MCPCs with equal loadings: .* degrees apart"):
        model = MCPCA(3, orthogonal=True, random_state=0).fit_covariances(S)
    (pair,) = model.proportional_loadings()
    assert (pair.first, pair.second) == (1, 2)
    # 2 arcsin(0.001 / 2.001), and their angle, 0, would say nothing of the difference
    assert pair.degrees == pytest.approx(np.degrees(2 * np.arcsin(0.001 / 2.001)), rel=1e-3)
    assert model.proportional_loadings(0.01) == []


def test_distance_from_equal_is_the_angle_of_columns_of_one_length(rng):
    B = np.abs(rng.standard_normal((5, 4)))
    B /= np.linalg.norm(B, axis=0)
    options = {"orthogonal": True, "n_features": 9}
    for scale in (1, 1e-30, 1e30):
        angles = [p.degrees for p in indistinct_loadings(scale * B, 180, **options)]
        np.testing.assert_allclose(angles, [p.degrees for p in proportional_loadings(B, 180)])


def test_an_orthogonal_axis_without_loadings():
    """It may be any direction that is left, and is determined where one alone is left."""
    B = np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0]])
    names = ["MCPC 1", "MCPC 2", "MCPC 3"]
    assert indistinct_loadings(B, orthogonal=True, n_features=4) == [(2, 2, 0.0)]
    assert indistinct_loadings(B, orthogonal=True, n_features=3) == []
    assert len(indistinct_loadings(B[:, [0, 2, 2]], orthogonal=True, n_features=3)) == 2
    with pytest.warns(IdentifiabilityWarning, match=r"MCPC 3 \(all loadings zero\)"):
        warn_if_proportional(B, names, orthogonal=True, n_features=4)
    warn_if_proportional(B, names, orthogonal=True, n_features=3)


def test_whoever_tells_of_pairs_knows_of_right_angles(rng):
    b = np.array([1.0, 2.0, 0.5])
    _, S = orthogonal_problem(rng, [3 * b, b, b[::-1]])
    model = MCPCA(3, orthogonal=True, random_state=0).fit_covariances(S)
    assert fitted_parts(model).proportional_loadings() == []
    (finding,) = words._identifiability(fitted_parts(model))
    assert finding["level"] == "good"
    assert "from equal, so the data can tell" in finding["text"]
    assert all("cannot be told apart" not in card for card in analysis.describe(model).values())
    equal = GaussianModel(np.eye(4)[:, :2], np.ones((3, 2)), np.full(3, 0.1))
    with pytest.raises(ValueError, match="not identifiable: MCPC 1 and MCPC 2 have equal loadings"):
        precision_of(equal, np.full(3, 50), pooled=False, orthogonal=True)


@pytest.mark.parametrize(("k", "p", "r", "is_held"), [(6, 9, 4, True), (230, 30, 4, True), (6, 9, 4, False)])
def test_facets_of_scores_wait_until_they_are_asked_for(rng, monkeypatch, k, p, r, is_held):
    # Held as A^T S_i A; in the core of contexts that were combined; too large to be held, and measured at once.
    _, _, S = sampled_problem(rng, k, p, r, 3 * p, 0.01)
    A = rng.standard_normal((p, r))
    A /= np.linalg.norm(A, axis=0)
    if not is_held:
        monkeypatch.setattr(module, "_SMALL_NUMBERS", 0)
    calls = []
    measured = module._of_scores
    monkeypatch.setattr(module, "_of_scores", lambda *args, **keep: calls.append(1) or measured(*args, **keep))
    if k == 230:
        core = compress(CovarianceStack(S), r)
        within = InCore(core.packed, rng.standard_normal((r, r)))
        A = core.basis @ within.C
        moments = module.score_moments(CovarianceStack(S), A, within=within)
    else:
        moments = module.score_moments(CovarianceStack(S), A)
    found = module.with_exponent(module.complete(moments, A, np.ones((k, r))), 3)
    assert bool(calls) != is_held
    assert found.exponent == 3
    found.explained_shares(total=True)
    assert bool(calls) != is_held
    again = pickle.loads(pickle.dumps(copy.copy(found)))
    n_calls = len(calls)
    W = np.linalg.pinv(A)
    for C, offdiagonal, correlation, loss in zip(
        W @ S @ W.T, again.offdiagonals, again.offdiagonal_correlations, again.likelihood_losses, strict=True
    ):
        variances = np.diag(C)
        np.testing.assert_allclose(offdiagonal, (C**2).sum() - (variances**2).sum(), rtol=1e-6)
        R = C / np.sqrt(np.outer(variances, variances))
        np.testing.assert_allclose(correlation, np.sqrt(((R**2).sum() - r) / (r * (r - 1))), rtol=1e-6)
        np.testing.assert_allclose(loss, -np.linalg.slogdet(R)[1], rtol=1e-6)
    assert len(calls) == n_calls  # once
    with pytest.raises(AttributeError, match="no attribute 'offdiagonal'"):
        _ = found.offdiagonal


def test_a_fit_leaves_facets_of_scores_for_later(rng, monkeypatch):
    X = rng.standard_normal((90, 6))
    monkeypatch.setattr(module, "_of_scores", None)
    model = MCPCA(2, random_state=0).fit(X, np.arange(90) % 3)
    monkeypatch.undo()
    assert (model.likelihood_loss(per="context") >= 0).all()
