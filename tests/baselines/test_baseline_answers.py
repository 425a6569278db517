"""Each of the other methods agrees with an independent way to its answer."""

import sys

import numpy as np
import pytest
import scipy.linalg
from axes import orthonormal
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

from mcpca import ascore, context_covariances
from mcpca.baselines import _run, _squares, nls, qrj1d, run
from mcpca.datasets import make_contexts
from twins import compose, random_problem, sampled_problem


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


def test_hogsvd_of_products_takes_rows_as_they_are(rng):
    A, B, _ = random_problem(rng, 4, 6, 6)
    X = [
        rng.standard_normal((n, 6)) * np.sqrt(b + 0.1) @ A.T + i
        for i, (n, b) in enumerate(zip((30, 60, 90, 20), B, strict=True))
    ]
    D = np.stack([x.T @ x for x in X])
    found = run("hogsvd", X, 6, of="products").components
    assert 1 - ascore(found, run("hogsvd", D, 6).components) < 1e-10
    assert 1 - ascore(found, run("hogsvd", X, 6).components) > 1e-3  # covariances are something else
    with pytest.raises(ValueError, match=r"of='products' needs rows, and X is a stack"):
        run("hogsvd", D, 6, of="products")
    with pytest.raises(ValueError, match="of='rows' is unknown"):
        run("hogsvd", D, 6, of="rows")


def test_ordinary_k_means_of_axes_keeps_signs_apart(rng):
    data = make_contexts(8, 12, 3, n_samples=2000, density=1, orthogonal=True, random_state=1)
    S = context_covariances(data.X, data.y).covariances
    found = run("pca_c", S, 3, kmeans="vectors", random_state=0)
    axes = np.concatenate([np.linalg.eigh(Si)[1][:, -3:].T for Si in S])
    axes *= np.sign(np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1))
    reference = KMeans(3, n_init=50, random_state=0).fit(axes).cluster_centers_.T
    assert 1 - ascore(found.components, reference, method="optimal") < 1e-6
    # An axis whose largest entry is in doubt is split in two; clusters of lines do not care.
    tilted = np.array([[1 + e, -1 + e, 0] for e in (0.01, -0.01, 0.01, -0.01)])
    S = np.einsum("kp,kq->kpq", tilted, tilted) + 1e-6 * np.eye(3)
    lines = run("pca_c", S, 1, random_state=0).components[:, 0]
    vectors = run("pca_c", S, 1, kmeans="vectors", random_state=0).components[:, 0]
    assert abs(lines @ [1, -1, 0]) / np.sqrt(2) > 0.999
    assert abs(vectors @ [1, -1, 0]) / np.sqrt(2) < 0.9
    with pytest.raises(ValueError, match="kmeans='points' is unknown"):
        run("pca_c", S, 2, kmeans="points")


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


@pytest.mark.skipif(int(np.__version__.split(".")[0]) < 2, reason="pyriemann needs NumPy 2")
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
