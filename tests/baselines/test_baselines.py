"""The other methods: each recovers a model that meets its assumptions, and agrees with an independent way to it."""

import sys

import numpy as np
import pytest
import scipy.linalg
from sklearn.decomposition import PCA

from mcpca import ascore, context_covariances
from mcpca.baselines import METHODS, BaselineResult, _run, _squares, nls, qrj1d, run
from mcpca.datasets import make_contexts
from twins import compose, design_loadings, random_problem, sampled_problem

PAPER = ["pca_stack", "pca_c", "pca_svd", "hogsvd", "ffdiag", "qrj1d", "jacobi", "jennrich"]
PAPER += ["nls", "nls_svd", "nls_jennrich", "minf", "als", "mspm"]
TIMED = [name for name, method in METHODS.items() if "time_limit" in method.options]
ANY_K = [name for name, method in METHODS.items() if method.contexts[1] is None]
FAST = {"parafac2": {"max_iter": 3}}  # where the answer does not matter


def skip_if_missing(name):
    if name == "parafac2":
        pytest.importorskip("tensorly")


def orthonormal(rng, p, r):
    return np.linalg.qr(rng.standard_normal((p, r)))[0]


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


# Against an independent way -------------------------------------------------------------------------------------------


def test_pca_of_stacked_rows_is_scikit_learns():
    data = make_contexts(4, 7, 3, n_samples=30, noise=0.2, random_state=0)
    X = data.X + 3 * data.y[:, None] * np.eye(7)[0]
    own = np.concatenate([X[data.y == i] - X[data.y == i].mean(axis=0) for i in range(4)])
    reference = PCA(3).fit(own).components_.T
    assert 1 - ascore(run("pca_stack", X, 3, y=data.y).components, reference) < 1e-12
    reference = PCA(3).fit(X).components_.T
    assert 1 - ascore(run("pca_stack", X, 3, y=data.y, center="overall").components, reference) < 1e-12


def test_unequal_contexts_weigh_by_their_rows(rng):
    X = [rng.standard_normal((n, 5)) * rng.uniform(0.3, 2, 5) @ rng.standard_normal((5, 5)) for n in (10, 40, 200)]
    reference = PCA(2).fit(np.concatenate([x - x.mean(axis=0) for x in X])).components_.T
    assert 1 - ascore(run("pca_stack", X, 2).components, reference) < 1e-12


def test_pca_svd_is_the_svd_of_stacked_axes(rng):
    S = sampled_problem(rng, 5, 7, 4, 40, 0.5)[2]
    axes = np.concatenate([np.linalg.eigh(Si)[1][:, -3:].T for Si in S])
    reference = np.linalg.svd(axes)[2][:3].T
    assert 1 - ascore(run("pca_svd", S, 3).components, reference) < 1e-12


def test_clusters_of_lines_are_no_looser_than_those_around_the_truth(rng):
    data = make_contexts(10, 20, 6, n_samples=500, density=0.5, orthogonal=True, random_state=3)
    S = context_covariances(data.X, data.y).covariances
    axes = np.concatenate([V[:, w > 1e-10].T for w, V in map(np.linalg.eigh, S)])
    found = run("pca_c", S, 6, random_state=0).components
    assert ((axes @ found) ** 2).max(axis=1).sum() >= 0.99 * ((axes @ data.components) ** 2).max(axis=1).sum()


@pytest.mark.parametrize("k", [2, 5])
def test_hogsvd_is_the_mean_of_all_quotients(rng, k):
    D = sampled_problem(rng, k, 5, 5, 40, 0.3)[2]
    quotients = [D[i] @ np.linalg.inv(D[j]) for i in range(k) for j in range(k) if i != j]
    w, V = np.linalg.eig(sum(quotients) / (k * (k - 1)))
    assert np.abs(w.imag).max() < 1e-12
    found = run("hogsvd", D, 5)
    assert 1 - ascore(found.components, V.real, method="optimal") < 1e-10
    np.testing.assert_allclose(np.sort(found.extras["eigenvalues"]), np.sort(w.real), rtol=1e-9)


def test_common_subspace_of_hogsvd(rng):
    A, B, _ = random_problem(rng, 6, 9, 4)
    B[:, 1] = 0.7
    found = run("hogsvd", compose(A, B), 4)
    common = found.components[:, found.extras["common"]]
    assert common.shape == (9, 1)
    assert abs(common[:, 0] @ A[:, 1]) > 1 - 1e-12
    assert "1 of 4 components are in the common subspace." in found.notes


@pytest.mark.parametrize(("name", "option"), [("hogsvd", "pi"), ("pham", "shrinkage"), ("cpc", "shrinkage")])
def test_singular_contexts(rng, name, option):
    """A share of the mean makes them regular and moves no component; without it the error says what to do."""
    A = orthonormal(rng, 8, 4) if name == "cpc" else random_problem(rng, 6, 8, 4)[0]
    B = rng.uniform(0.5, 2, (6, 4))
    B[2, 0] = B[3, 1] = 0
    S = compose(A, B)
    found = run(name, S, 4)
    assert 1 - ascore(found.components, A) < 1e-8
    assert f"{option}=" in found.notes
    assert "2 of 6 are singular there" in found.notes
    with pytest.raises(ValueError, match=rf"Context 2 has a singular.*{name} with {option}=0 inverts.*or lower r"):
        run(name, S, 4, **{option: 0})
    regular = run(name, compose(A, B + 0.1), 4)
    assert f"{option}=" not in regular.notes


@pytest.mark.parametrize("name", ["ffdiag", "uwedge"])
def test_frobenius_diagonalisers_stop_where_their_equations_hold(rng, name):
    S = sampled_problem(rng, 7, 5, 5, 100, 0.3)[2]
    found = run(name, S, 5, tol=1e-12)
    assert found.converged
    V = np.linalg.inv(found.components)
    R = V @ S @ V.T
    d = np.einsum("kjj->kj", R)
    pull = np.einsum("klj,kj->lj", R, d) / (d**2).sum(axis=0)
    np.testing.assert_allclose(pull, np.eye(5), atol=1e-9)


def test_ffdiag_and_uwedge_agree_where_both_converge(rng):
    S = sampled_problem(rng, 7, 9, 5, 200, 0.1)[2]
    first, second = (run(name, S, 5, tol=1e-12).components for name in ("ffdiag", "uwedge"))
    assert 1 - ascore(first, second) < 1e-10


def test_pham_stops_where_the_gradient_of_the_likelihood_is_zero(rng):
    X = [rng.standard_normal((n, 5)) * s @ rng.standard_normal((5, 5)) for n, s in ((30, 1), (80, 2), (40, 0.5))]
    found = run("pham", X, 5, tol=1e-12)
    V = np.linalg.inv(found.components)
    R = V @ np.stack([np.cov(x, rowvar=False) for x in X]) @ V.T
    gradient = np.tensordot([29, 79, 39], R / np.einsum("kjj->kj", R)[:, :, None], axes=1) / 147
    np.testing.assert_allclose(gradient, np.eye(5), atol=1e-7)


def test_pham_never_raises_its_criterion(rng):
    S = sampled_problem(rng, 6, 6, 6, 20, 0.3)[2]

    def criterion(sweeps):
        V = np.linalg.inv(run("pham", S, 6, max_iter=sweeps).components)
        R = V @ S @ V.T
        return np.log(np.einsum("kjj->kj", R)).sum() - np.linalg.slogdet(R)[1].sum()

    values = [criterion(sweeps) for sweeps in range(1, 8)]
    assert (np.diff(values) <= 1e-10).all()


@pytest.mark.parametrize(("name", "theirs"), [("pham", "ajd_pham"), ("uwedge", "uwedge"), ("jacobi", "rjd")])
def test_joint_diagonalisers_agree_with_pyriemann(rng, name, theirs):
    ajd = pytest.importorskip("pyriemann.geometry.ajd")
    S = sampled_problem(rng, 8, 5, 5, 300, 0.05)[2]
    options = {"eps": 1e-14, "n_iter_max": 500}
    V = getattr(ajd, theirs)(S, **options)[0]
    reference = V if theirs == "rjd" else np.linalg.inv(V)
    reference = reference / np.linalg.norm(reference, axis=0)
    assert 1 - ascore(run(name, S, 5, tol=1e-10).components, reference, method="optimal") < 1e-8


def test_shears_of_a_phase_are_those_taken_one_by_one(rng):
    S = sampled_problem(rng, 4, 6, 6, 20, 0.3)[2]
    V, R = np.eye(6), S.copy()
    for j in range(6):
        for m in range(j + 1, 6):
            others = np.arange(6) != j
            a = -(R[:, j, others] * R[:, m, others]).sum() / (R[:, m, others] ** 2).sum()
            shear = np.eye(6)
            shear[j, m] = a
            V, R = shear @ V, shear @ R @ shear.T
    in_place = np.ascontiguousarray(S.transpose(1, 0, 2))
    np.testing.assert_allclose(qrj1d._shear(in_place), V, atol=1e-12)
    np.testing.assert_allclose(in_place.transpose(1, 0, 2), R, atol=1e-12)


def test_qrj1d_lowers_what_is_off_the_diagonal(rng):
    """With rows scaled alike, QRJ1D leaves no more off the diagonal than FFDIAG, which solves other equations."""
    S = sampled_problem(rng, 6, 6, 6, 30, 0.5)[2]

    def off(A):
        V = np.linalg.inv(A)
        R = V @ S @ V.T
        size = (np.einsum("kjj->kj", R) ** 2).sum(axis=0) ** 0.25
        R = R / size / size[:, None]
        return (R**2).sum() - (np.einsum("kjj->kj", R) ** 2).sum()

    assert off(run("qrj1d", S, 6).components) <= 1.01 * off(run("ffdiag", S, 6).components)


def test_jacobi_leaves_least_off_the_diagonal(rng):
    S = sampled_problem(rng, 6, 5, 5, 30, 0.5)[2]

    def on(A):
        return float((np.einsum("pj,kpq,qj->kj", A, S, A) ** 2).sum())

    found = run("jacobi", S, 5)
    assert found.converged
    np.testing.assert_allclose(found.components.T @ found.components, np.eye(5), atol=1e-12)
    others = [scipy.linalg.expm(0.1 * (Z - Z.T)) @ found.components for Z in rng.standard_normal((200, 5, 5))]
    assert on(found.components) >= max(map(on, others))


# Least squares --------------------------------------------------------------------------------------------------------


def test_gradient_and_gauss_newton_matrix(rng):
    T = sampled_problem(rng, 4, 5, 3, 20, 0.3)[2]
    T /= np.linalg.norm(T)
    A, B = rng.standard_normal((5, 3)), rng.standard_normal((4, 3))
    d = rng.standard_normal((9, 3))

    def residual(t):
        return (compose(A + t * d[:5], B + t * d[5:]) - T).ravel()

    value = _squares.squared_error(T, A, B)
    assert value.f == pytest.approx(0.5 * residual(0) @ residual(0), rel=1e-12)
    h = 1e-5
    slope = (0.5 * residual(h) @ residual(h) - 0.5 * residual(-h) @ residual(-h)) / (2 * h)
    assert np.vdot(value.gradient, d) == pytest.approx(slope, rel=1e-6)
    change = (residual(h) - residual(-h)) / (2 * h)
    curved = np.vdot(d, nls._gauss_newton(A, B, A.T @ A, B.T @ B, d))
    assert curved == pytest.approx(change @ change, rel=1e-6)


def test_starts_are_balanced_and_of_the_right_size(rng):
    problem, _ = _run._read(sampled_problem(rng, 5, 7, 3, 40, 0.3)[2], 3, None, 0)
    core, _ = _squares.core_of(problem)
    for kind in ("random", "svd", "jennrich"):
        A, B = _squares.starting_point(problem, core, kind)
        np.testing.assert_allclose(np.linalg.norm(A, axis=0), np.linalg.norm(B, axis=0))
        assert _squares.squared_error(core.tensor, A, B).f <= 0.5


def test_tensor_methods_reach_the_same_least_error(rng):
    S = sampled_problem(rng, 8, 6, 3, 50, 0.2)[2]
    found = {name: run(name, S, 3, random_state=1) for name in ("nls", "nls_svd", "nls_jennrich", "minf", "als")}
    errors = [result.extras["error"] for result in found.values()]
    np.testing.assert_allclose(errors, min(errors), rtol=1e-5)
    for result in found.values():
        assert result.converged
        assert 1 - ascore(result.components, found["nls"].components) < 1e-5


def test_als_agrees_with_tensorly(rng):
    decomposition = pytest.importorskip("tensorly.decomposition")
    S = sampled_problem(rng, 8, 6, 3, 50, 0.2)[2]
    (_, factors), errors = decomposition.parafac(
        S, 3, n_iter_max=2000, tol=1e-14, init="random", random_state=np.random.RandomState(0), return_errors=True
    )
    found = run("als", S, 3, random_state=0, tol=1e-15)
    reference = factors[1] / np.linalg.norm(factors[1], axis=0)
    assert found.extras["error"] == pytest.approx(float(errors[-1]) ** 2, rel=1e-3)  # ours within a core
    assert 1 - ascore(found.components, reference, method="optimal") < 1e-3


def test_als_tells_when_its_factors_disagree(rng):
    S = sampled_problem(rng, 2, 8, 5, 50, 0.2)[2]
    found = run("als", S, 5, random_state=0, max_iter=3)
    assert "The two factors that should agree differ" in found.notes
    assert "Not converged after 3 iterations; raise max_iter or tol." in found.notes


def test_more_starts_do_not_raise_the_error(rng):
    S = sampled_problem(rng, 3, 8, 6, 50, 0.1)[2]
    for name in ("nls", "minf", "als"):
        one, four = (run(name, S, 6, random_state=0, n_starts=n, max_iter=50).extras["error"] for n in (1, 4))
        assert four <= one


def test_roots_stand_in_for_the_rows_of_parafac2():
    decomposition = pytest.importorskip("tensorly.decomposition")
    data = make_contexts(6, 5, 2, n_samples=40, noise=0.1, random_state=0)
    X = [data.X[data.y == i] - data.X[data.y == i].mean(axis=0) for i in range(6)]
    state = np.random.RandomState(0)
    (_, factors, _), errors = decomposition.parafac2(X, 2, tol=1e-9, random_state=state, return_errors=True)
    found = run("parafac2", X, 2, random_state=0, tol=1e-9)
    reference = factors[2] / np.linalg.norm(factors[2], axis=0)
    assert 1 - ascore(found.components, reference, method="optimal") < 1e-3
    assert 0 < found.extras["error"] < float(errors[-1]) ** 2  # what lies outside the r directions is not counted
    assert 1 - ascore(found.components, data.components) < 0.01


def test_parafac2_names_the_extra_that_brings_tensorly(rng, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorly.decomposition", None)
    with pytest.raises(ImportError, match=r"mcpca\[baselines\]"):
        run("parafac2", random_problem(rng, 3, 4, 2)[2], 2)


# The call -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ANY_K)
def test_every_form_of_input_gives_the_same(name):
    skip_if_missing(name)
    data = make_contexts(4, 6, 3, n_samples=25, noise=0.2, random_state=0)
    blocks = [data.X[data.y == i] for i in range(4)]
    shuffled = np.random.default_rng(0).permutation(len(data.X))
    stack = context_covariances(data.X, data.y).covariances
    forms = [(stack, None), (blocks, None), (dict(enumerate(blocks)), None), (data.X[shuffled], data.y[shuffled])]
    # Iterations amplify rounding, so those that wander long are stopped early.
    options = {"max_iter": 5} if name in ("minf", "als", "parafac2") else {}
    first, *others = (run(name, X, 3, y=y, random_state=0, **options) for X, y in forms)
    for other in others:
        np.testing.assert_allclose(other.components, first.components, atol=1e-6)
        np.testing.assert_allclose(other.loadings, first.loadings, atol=1e-6)


@pytest.mark.parametrize("name", METHODS)
def test_loadings_are_least_squares_and_the_order_is_canonical(rng, name):
    skip_if_missing(name)
    S = sampled_problem(rng, METHODS[name].contexts[1] or 5, 7, 3, 40, 0.3)[2]
    found = run(name, S, 3, random_state=0, **FAST.get(name, {}))
    assert found.components.shape == (7, 3)
    np.testing.assert_allclose(np.linalg.norm(found.components, axis=0), 1, atol=1e-12)
    np.testing.assert_allclose(found.loadings, design_loadings(S, found.components), atol=1e-8)
    assert (np.diff(found.loadings.sum(axis=0)) <= 1e-9).all()
    peaks = found.components[np.abs(found.components).argmax(axis=0), np.arange(3)]
    assert (peaks > 0).all()


@pytest.mark.parametrize("name", METHODS)
def test_reproducible_from_the_seed_alone(rng, name):
    skip_if_missing(name)
    S = sampled_problem(rng, METHODS[name].contexts[1] or 5, 6, 3, 40, 0.3)[2]
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    one, two = (run(name, S, 3, random_state=7, **FAST.get(name, {})) for _ in range(2))
    np.testing.assert_array_equal(one.components, two.components)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_scale_does_not_matter(rng, name, scale):
    skip_if_missing(name)
    S = sampled_problem(rng, METHODS[name].contexts[1] or 5, 5, 3, 40, 0.3)[2]
    # A power of two, so that rounding is the same.
    scale = 2.0 ** np.round(np.log2(scale))
    one, other = (run(name, M, 3, random_state=7, **FAST.get(name, {})) for M in (S, scale * S))
    np.testing.assert_allclose(other.components, one.components, atol=1e-12)
    np.testing.assert_allclose(other.loadings, scale * one.loadings, rtol=1e-9, atol=1e-12 * scale)


@pytest.mark.parametrize("name", METHODS)
def test_finite_on_degenerate_contexts(rng, name):
    """An empty context, a tiny one, equal ones, and rank as low as r; warnings are errors here."""
    skip_if_missing(name)
    k = METHODS[name].contexts[1] or 5
    low = np.stack([np.cov(rng.standard_normal((4, 6)), rowvar=False) for _ in range(k)])
    empty, tiny, alike = low.copy(), low.copy(), np.stack([low.sum(axis=0)] * k)
    empty[0], tiny[0] = 0, 1e-9 * low[0]
    for S, r in ((low, 3), (empty, 3), (tiny, 3), (alike, 3), (np.stack([np.eye(6)] * k), 6), (low, 1)):
        options = {"max_iter": 30} if "max_iter" in METHODS[name].options else {}
        found = run(name, S, r, random_state=0, **(FAST.get(name) or options))
        assert np.isfinite(found.components).all()
        assert (found.loadings >= 0).all()
        np.testing.assert_allclose(np.linalg.norm(found.components, axis=0), 1, atol=1e-12)


def test_single_precision_rows_are_worked_on_in_double():
    data = make_contexts(5, 8, 3, n_samples=200, noise=0.1, random_state=0)
    single = run("ffdiag", data.X.astype(np.float32), 3, y=data.y)
    assert single.components.dtype == np.float64
    assert 1 - ascore(single.components, run("ffdiag", data.X, 3, y=data.y).components) < 1e-8


@pytest.mark.parametrize("name", TIMED)
def test_time_limit_stops_and_says_so(rng, name):
    skip_if_missing(name)
    S = sampled_problem(rng, 8, 10, 8, 50, 0.3)[2]
    found = run(name, S, 8, random_state=0, time_limit=0)
    assert not found.converged
    assert "Stopped by time_limit=0 s after" in found.notes
    assert np.isfinite(found.components).all()
    assert "time_limit" not in run(name, S, 8, random_state=0, time_limit=1e6, max_iter=2).notes


@pytest.mark.parametrize("name", METHODS)
def test_one_context(rng, name):
    """PCA where a method can take one context, and an error that says so where it cannot."""
    S = sampled_problem(rng, 1, 6, 3, 50, 0.3)[2]
    if METHODS[name].contexts[0] == 1:
        axes = np.linalg.eigh(S[0])[1][:, ::-1][:, :3]
        found = run(name, S, 3, random_state=0)
        assert 1 - ascore(found.components, axes) < 1e-10
        np.testing.assert_allclose(found.loadings[0], np.linalg.eigvalsh(S[0])[::-1][:3], rtol=1e-8)
    else:
        with pytest.raises(ValueError, match=rf"X has k=1 context\(s\), and {name} .* needs 2 or more"):
            run(name, S, 3)


def test_full_rank_methods_say_that_they_compressed(rng):
    S = random_problem(rng, 5, 7, 3)[2]
    for name in ("ffdiag", "qrj1d", "jennrich", "hogsvd", "pham", "uwedge", "cpc", "jacobi"):
        assert "worked in the top r=3 singular directions of the flattening, not all p=7." in run(name, S, 3).notes
    assert "worked in" not in run("ffdiag", random_problem(rng, 5, 3, 3)[2], 3).notes
    assert "Worked in a core of 9 of p=20 directions and 5 of k=5 contexts." in run("nls", sampled_problem(
        rng, 5, 20, 3, 50, 0.1)[2], 3, random_state=0).notes  # fmt: skip


def test_a_component_that_vanished_is_replaced_and_noted(rng):
    problem, _ = _run._read(random_problem(rng, 3, 4, 2)[2], 2, None, 0)
    A, notes = _run._unit_columns(_run.MethodOutput(np.array([[2.0, 0], [0, 0], [0, 0], [0, 0]])), problem, "als")
    np.testing.assert_allclose(np.linalg.norm(A, axis=0), 1)
    np.testing.assert_array_equal(A[:, 0], [1, 0, 0, 0])
    assert notes == ("1 component(s) had vanished and are random directions.",)
    with pytest.raises(FloatingPointError, match=r"als broke down: its components are not finite\. Lower r=2"):
        _run._unit_columns(_run.MethodOutput(np.full((4, 2), np.nan)), problem, "als")


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("fdiag", {}, r"name='fdiag' is unknown; choose one of pca_stack, pca_c, .*parafac2\."),
        (["ffdiag"], {}, r"name=\['ffdiag'\] is unknown"),
        ("gsvd", {}, r"X has k=3 contexts, and gsvd \(generalised SVD\) compares exactly 2; pass the two"),
        ("cpca", {}, r"X has k=3 contexts, and cpca .* compares exactly 2"),
        ("ffdiag", {"tol": -1.0}, r"tol=-1\.0 is out of bounds"),
        ("ffdiag", {"max_iter": 0}, "max_iter=0 is out of bounds"),
        ("ffdiag", {"theta": 1.0}, r"theta=1\.0 is out of bounds.*cannot become singular"),
        ("ffdiag", {"time_limit": -1}, "time_limit=-1 is out of bounds.*Pass seconds, or None"),
        ("ffdiag", {"time_limit": "1 s"}, "time_limit='1 s' is out of bounds"),
        ("hogsvd", {"pi": -1}, "pi=-1 is out of bounds.*share of the sum"),
        ("pham", {"shrinkage": -1}, "shrinkage=-1 is out of bounds.*share of the mean"),
        ("als", {"init": "pca"}, "init='pca' is unknown; choose 'random', 'svd' or 'jennrich'"),
        ("nls", {"n_starts": 0}, "n_starts=0 is out of bounds"),
        ("pca_stack", {"center": "none"}, "center='none' is unknown; choose 'context' or 'overall'"),
        ("pca_stack", {"center": "overall"}, "center='overall' needs rows, and X is a stack of covariances"),
        ("pca_c", {"n_init": 0}, "n_init=0 is out of bounds"),
        ("mspm", {"random_state": -1}, "random_state=-1 is negative"),
    ],
)
def test_errors_name_the_argument_and_the_way_out(rng, name, options, message):
    S = random_problem(rng, 3, 5, 3)[2]
    with pytest.raises(ValueError, match=message):
        run(name, S, 3, **options)


def test_errors_of_two_contexts(rng):
    S = random_problem(rng, 2, 5, 3)[2]
    with pytest.raises(ValueError, match="foreground=2 is out of bounds: 0 <= foreground <= 1"):
        run("cpca", S, 3, foreground=2)
    with pytest.raises(ValueError, match="alpha=-1 is out of bounds"):
        run("cpca", S, 3, alpha=-1)
    with pytest.raises(ValueError, match="patterns='yes'; choose True or False"):
        run("gcpca", S, 3, patterns="yes")


def test_errors_of_the_input(rng):
    S = random_problem(rng, 3, 5, 3)[2]
    with pytest.raises(ValueError, match="r=6 is out of bounds: 1 <= r <= 5"):
        run("ffdiag", S, 6)
    with pytest.raises(ValueError, match="r=0 is out of bounds"):
        run("ffdiag", S, 0)
    with pytest.raises(ValueError, match=r"r=4 exceeds the numerical rank of the data, 3: .* Choose r <= 3"):
        run("ffdiag", S, 4)
    with pytest.raises(ValueError, match="The covariances are all zero"):
        run("ffdiag", np.zeros((2, 3, 3)), 1)
    with pytest.raises(ValueError, match="a stack of covariances, which takes no y; drop y"):
        run("ffdiag", S, 3, y=[0, 1, 2])
    with pytest.raises(ValueError, match=r"X\[0\] is not symmetric"):
        run("ffdiag", rng.standard_normal((2, 3, 3)), 1)
    with pytest.raises(TypeError, match=r"option\(s\) \['steps'\] are unknown to jennrich; it takes none"):
        run("jennrich", S, 3, steps=3)
    with pytest.raises(TypeError, match=r"\['alpha'\] are unknown to als; it takes \['init', 'n_starts'"):
        run("als", S, 3, alpha=3)
