"""Each of the other methods recovers a model that meets its assumptions."""

import numpy as np
import pytest
import scipy.linalg
from axes import orthonormal
from baseline_options import TIMED, skip_if_missing

from mcpca import ascore
from mcpca.baselines import METHODS, BaselineResult, run
from twins import compose, random_problem, sampled_problem

PAPER = ["pca_stack", "pca_c", "pca_svd", "hogsvd", "ffdiag", "qrj1d", "jacobi", "jennrich"]
PAPER += ["nls", "nls_svd", "nls_jennrich", "minf", "als", "mspm", "svd"]


# Models that meet the assumptions of a method, without noise ----------------------------------------------------------


def independent(rng, p, r):
    """Linearly independent components, no two with proportional loadings."""
    A, _, S = random_problem(rng, 8, p, r)
    return A, S


def many_contexts(rng, p, r):
    """As ``independent``, in many contexts: with few, PARAFAC2 takes thousands of iterations."""
    A, _, S = random_problem(rng, 30, p, r)
    return A, S


def orthogonal(rng, p, r):
    """Orthonormal components, positive loadings that are distinct within contexts and in total."""
    A = orthonormal(rng, p, r)
    return A, compose(A, rng.permuted(np.tile(np.arange(1.0, r + 1), (8, 1)), axis=1) + rng.uniform(0, 0.5, (8, r)))


def orthogonal_by_count(rng, p, r):
    """Orthonormal, and component j is present in all but j of the contexts."""
    A, S = orthogonal(rng, p, r)
    B = np.einsum("pr,kpq,qr->kr", A, S, A)
    return A, compose(A, B * (np.arange(8)[:, None] >= np.arange(r)))


def two_contexts(rng, p, r):
    """Two contexts, independent components, distinct ratios of loadings, one of them zero and one infinite."""
    A, B, _ = random_problem(rng, 2, p, r)
    B[0, 0] = B[1, 1] = 0
    return A, compose(A, B)


def two_orthogonal_contexts(rng, p, r):
    """Two contexts, orthonormal components with more variance in the first, by distinct differences."""
    A = orthonormal(rng, p, r)
    background = rng.uniform(0.1, 1, r)
    return A, compose(A, np.stack([background + np.arange(1.0, r + 1), background]))


MODELS = {
    "pca_stack": orthogonal,
    "pca_c": orthogonal,
    "pca_svd": orthogonal_by_count,
    "hogsvd": independent,
    "ffdiag": independent,
    "qrj1d": independent,
    "jacobi": orthogonal,
    "jennrich": independent,
    "nls": independent,
    "nls_svd": independent,
    "nls_jennrich": independent,
    "minf": independent,
    "als": independent,
    "mspm": independent,
    "pham": independent,
    "uwedge": independent,
    "gsvd": two_contexts,
    "cpc": orthogonal,
    "cpca": two_orthogonal_contexts,
    "gcpca": two_orthogonal_contexts,
    "parafac2": many_contexts,
    "svd": orthogonal,
    "stack_svd": orthogonal,
    "perpca": orthogonal,
    "stablepca": orthogonal,
}
# A start may lead to a local minimum of the squared error; then another is taken.
OPTIONS = {
    "nls": {"n_starts": 3},
    "minf": {"n_starts": 3},
    "als": {"n_starts": 3},
    "parafac2": {"tol": 1e-8, "max_iter": 1000},
}


@pytest.mark.parametrize(("p", "r"), [(9, 4), (4, 4)], ids=["r<p", "r=p"])
@pytest.mark.parametrize("name", METHODS)
def test_a_model_that_meets_the_assumptions_is_recovered(rng, name, p, r):
    skip_if_missing(name)
    A, S = MODELS[name](rng, p, r)
    result = run(name, S, r, random_state=0, **OPTIONS.get(name, {}))
    assert isinstance(result, BaselineResult)
    assert result.name == name
    assert result.converged
    assert result.seconds > 0
    assert 1 - ascore(result.components, A, method="optimal") < 1e-6
    fitted = compose(result.components, result.loadings)
    assert np.linalg.norm(fitted - S) < 1e-3 * np.linalg.norm(S)


@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if "orthogonal" in model.__name__])
def test_what_needs_orthonormal_components_does_not_recover_others(rng, name):
    A, S = (two_contexts if METHODS[name].contexts[1] == 2 else independent)(rng, 9, 4)
    assert 1 - ascore(run(name, S, 4, random_state=0).components, A, method="optimal") > 1e-3


def test_patterns_of_generalised_contrastive_pca_need_no_orthonormality(rng):
    A, S = two_contexts(rng, 9, 4)
    assert 1 - ascore(run("gcpca", S, 4, patterns=True).components, A, method="optimal") < 1e-9


def test_every_method_describes_itself():
    assert list(METHODS)[: len(PAPER)] == PAPER
    assert set(MODELS) == set(METHODS)
    for name, method in METHODS.items():
        assert method.name == name
        assert method.title
        assert method.citation
        assert method.assumptions.endswith(".")
        assert method.cost.startswith("O(")
        assert "Cost" in method.function.__doc__ or name in ("nls_svd", "nls_jennrich", "mspm")
        assert method.in_paper == (name in PAPER)
    for name in ("jacobi", "qrj1d", "nls", "nls_svd", "nls_jennrich", "minf", "als", "ffdiag"):
        assert name in TIMED


# Two contexts: one pencil ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gsvd", {}),
        ("jennrich", {}),
        ("ffdiag", {"max_iter": 5000}),
        ("uwedge", {}),
        ("qrj1d", {"tol": 1e-9, "max_iter": 5000}),
        ("pham", {}),
        ("gcpca", {"patterns": True}),
        ("nls_jennrich", {}),
        ("mspm", {}),
    ],
)
def test_two_contexts_are_a_generalised_eigenproblem(rng, name, options):
    """Any two regular covariances are jointly diagonalised exactly, at full rank, noise or not."""
    S = sampled_problem(rng, 2, 5, 5, 40, 0.3)[2]
    X = scipy.linalg.eigh(S[0], S[1])[1]  # X^T S_1 X diagonal, X^T S_2 X = I
    reference = np.linalg.inv(X).T
    found = run(name, S, 5, random_state=0, **options)
    assert 1 - ascore(found.components, reference / np.linalg.norm(reference, axis=0), method="optimal") < 1e-8


def test_share_of_the_gsvd_is_that_of_the_loadings(rng):
    S = random_problem(rng, 2, 6, 4)[2]
    found = run("gsvd", S, 4)
    np.testing.assert_allclose(found.extras["share"], found.loadings[0] / found.loadings.sum(axis=0), atol=1e-8)


@pytest.mark.parametrize("alpha", [0.0, 0.7, 3.0])
@pytest.mark.parametrize("foreground", [0, 1])
def test_contrastive_pca_is_an_eigenproblem(rng, alpha, foreground):
    S = sampled_problem(rng, 2, 6, 6, 30, 0.3)[2]
    w, V = scipy.linalg.eigh(S[foreground] - alpha * S[1 - foreground])
    found = run("cpca", S, 3, alpha=alpha, foreground=foreground)
    assert 1 - ascore(found.components, V[:, -3:], method="optimal") < 1e-12
    scale = np.einsum("kpp->", S) / 12
    np.testing.assert_allclose(np.sort(found.extras["contrast"]), w[-3:] / scale, atol=1e-12)
    assert f"Foreground is context {foreground}, alpha={alpha:g}." in found.notes


def test_generalised_contrastive_pca_is_a_generalised_eigenproblem(rng):
    S = sampled_problem(rng, 2, 6, 6, 30, 0.3)[2]
    w, X = scipy.linalg.eigh(S[0] - S[1], S[0] + S[1])
    found = run("gcpca", S, 3)
    X = X[:, -3:] / np.linalg.norm(X[:, -3:], axis=0)
    assert 1 - ascore(found.components, X, method="optimal") < 1e-12
    np.testing.assert_allclose(np.sort(found.extras["contrast"]), w[-3:], atol=1e-12)
