"""F, the objective of the power method, around each MCPC: value, slope, curvature, and what they certify."""

import numpy as np
import pytest

from mcpca import MCPCA, Landscape, decompose
from mcpca._model.landscape import (
    THIRD_DERIVATIVE,
    PowerSpace,
    best_partners,
    gradient_and_hessian,
    slope_and_curvature,
)
from mcpca.datasets import make_contexts
from tests.twins import F_in_full, geodesic, random_problem, right_singular_matrices, sampled_problem


def random_space(rng, r, e, q):
    """An orthonormal basis (r, e, q) of random matrices, and unit a (q,), b (e,)."""
    V = np.linalg.qr(rng.standard_normal((e * q, r)))[0].T.reshape(r, e, q)
    a, b = rng.standard_normal(q), rng.standard_normal(e)
    return V, a / np.linalg.norm(a), b / np.linalg.norm(b)


def random_tangent(rng, a, b):
    v, w = rng.standard_normal(len(a)), rng.standard_normal(len(b))
    v, w = v - (v @ a) * a, w - (w @ b) * b
    size = np.sqrt(v @ v + w @ w)
    return v / size, w / size


def along(V, a, b, v, w, t):
    return F_in_full(V.transpose(0, 2, 1), *geodesic(a, b, v, w, t))


def test_gradient_and_hessian_are_the_finite_differences_along_geodesics():
    rng = np.random.default_rng(0)
    for _ in range(10):
        V, a, b = random_space(rng, 4, 5, 7)
        gradient, hessian = (x[0] for x in gradient_and_hessian(V, a[None], b[None]))
        h = 1e-4
        for _ in range(5):
            v, w = random_tangent(rng, a, b)
            f = [along(V, a, b, v, w, t) for t in (-h, 0, h)]
            step = np.concatenate([v, w])
            assert gradient @ step == pytest.approx((f[2] - f[0]) / (2 * h), abs=1e-7)
            assert step @ hessian @ step == pytest.approx((f[2] - 2 * f[1] + f[0]) / h**2, abs=1e-6)


def test_largest_eigenvalue_is_the_largest_second_derivative():
    rng = np.random.default_rng(1)
    V, a, b = random_space(rng, 3, 4, 5)
    slope, curvature = (x[0] for x in slope_and_curvature(V, a[None], b[None]))
    h = 1e-3

    def second_derivative(step):
        size = np.linalg.norm(step)
        f = [along(V, a, b, step[:5] / size, step[5:] / size, t) for t in (-h, 0, h)]
        return size**2 * (f[2] - 2 * f[1] + f[0]) / h**2

    # A basis of the tangent space, and the quadratic form on it from its values at sums of two.
    normals = np.zeros((9, 2))
    normals[:5, 0], normals[5:, 1] = a, b
    Q = np.linalg.qr(normals, mode="complete")[0][:, 2:].T
    alone = np.array([second_derivative(q) for q in Q])
    form = [[(second_derivative(x + y) - alone[i] - alone[j]) / 2 for j, y in enumerate(Q)] for i, x in enumerate(Q)]
    assert curvature == pytest.approx(np.linalg.eigvalsh(form)[-1], abs=1e-5)
    assert slope == pytest.approx(np.linalg.norm(gradient_and_hessian(V, a[None], b[None])[0]))


def test_the_largest_eigenvalue_is_at_least_that_of_directions_outside():
    rng = np.random.default_rng(2)
    for _ in range(20):
        V, a, b = random_space(rng, 3, 3, 4)
        F = F_in_full(V.transpose(0, 2, 1), a, b)
        assert slope_and_curvature(V, a[None], b[None])[1][0] >= -2 * F - 1e-12


def test_third_derivatives_stay_below_the_bound_of_the_certificate():
    rng = np.random.default_rng(3)
    h = 1e-3
    largest = 0.0
    for size in (2, 3, 6) * 100:
        V, a, b = random_space(rng, int(rng.integers(1, size * size)), size, size)
        v, w = random_tangent(rng, a, b)
        # x(t) is made of sines and cosines of (alpha -+ beta) t, so differences of four points are exact to h^2.
        f = [along(V, a, b, v, w, t * h) for t in (-2, -1, 1, 2)]
        largest = max(largest, abs(f[3] - 2 * f[2] + 2 * f[1] - f[0]) / (2 * h**3))
    assert 0.3 * THIRD_DERIVATIVE < largest < THIRD_DERIVATIVE


def test_best_partner_is_the_best():
    rng = np.random.default_rng(4)
    for r, e, q in ((5, 3, 6), (2, 7, 4)):
        V, a, _ = random_space(rng, r, e, q)
        F, b = best_partners(V, a[None])
        others = rng.standard_normal((200, e))
        others /= np.linalg.norm(others, axis=1, keepdims=True)
        assert F[0] == pytest.approx(F_in_full(V.transpose(0, 2, 1), a, b[0]))
        assert all(F_in_full(V.transpose(0, 2, 1), a, other) <= F[0] for other in others)


@pytest.mark.parametrize("orthogonal", [False, True])
def test_exact_covariances_have_sharp_maxima_of_value_one(orthogonal):
    rng = np.random.default_rng(5)
    A, B, S = random_problem(rng, 8, 12, 5)
    if orthogonal:
        A = np.linalg.qr(A)[0]
        S = np.einsum("pj,kj,qj->kpq", A, B, A)
    result = decompose(S, 5, random_state=0, orthogonal=orthogonal)
    landscape = result.landscape()
    np.testing.assert_allclose(result.F, 1, atol=1e-10)
    assert landscape.gradients.max() < 1e-6
    assert (landscape.curvatures < -0.05).all()
    assert (landscape.curvatures >= -2).all()
    assert landscape.certified.all()
    assert landscape.own.all()
    assert landscape.within.max() < 1e-3


def test_orthonormal_axes_in_contexts_of_their_own_are_peaks_without_neighbours():
    S = np.zeros((4, 6, 6))
    S[np.arange(4), np.arange(4), np.arange(4)] = [4.0, 3, 2, 1]
    np.testing.assert_allclose(decompose(S, 4).landscape().curvatures, -2, atol=1e-10)


def test_proportional_loadings_are_a_ridge_and_not_certified():
    rng = np.random.default_rng(6)
    A, B, _ = random_problem(rng, 6, 10, 4)
    B[:, 1] = 2 * B[:, 0]
    S = np.einsum("pj,kj,qj->kpq", A, B, A)
    landscape = decompose(S, 4, random_state=0).landscape()
    np.testing.assert_allclose(landscape.F, 1, atol=1e-9)
    assert np.sort(np.abs(landscape.curvatures) < 1e-6).tolist() == [False, False, True, True]
    assert landscape.certified.sum() == 2
    assert "2 of 4 MCPCs are certified" in str(landscape)
    assert np.sort(landscape.basins).tolist() == [-1, -1, 0, 1]
    np.testing.assert_array_equal(np.isnan(landscape.degrees), landscape.basins < 0)


def test_a_single_context_is_flat():
    S = np.diag([3.0, 2, 1, 0.5])[None]
    landscape = decompose(S, 2).landscape()
    np.testing.assert_allclose(landscape.curvatures, 0, atol=1e-12)
    assert not landscape.certified.any()
    assert (landscape.basins == -1).all()
    assert not landscape.own.any()


@pytest.mark.parametrize("solver", ["mspm", "lsq", "ml"])
def test_F_is_that_of_the_singular_vectors_of_the_flattening(solver):
    # p <= 200 and q near p: the space is the whole one.
    rng = np.random.default_rng(7)
    _, _, S = sampled_problem(rng, 4, 9, 4, 300, 0.3)
    result = decompose(S, 4, solver=solver, random_state=0)
    V = right_singular_matrices(S, 4)
    for a, F in zip(result.components.T, result.F, strict=True):
        assert pytest.approx(np.linalg.norm(np.einsum("p,lpk->lk", a, V), 2) ** 2, abs=1e-10) == F


def test_in_a_narrow_core_F_is_close_to_that_of_all_features():
    rng = np.random.default_rng(8)
    _, _, S = sampled_problem(rng, 12, 60, 4, 400, 0.2)
    result = decompose(S, 4, random_state=0)
    assert result.space.V.shape[2] < 60
    V = right_singular_matrices(S, 4)
    exact = [np.linalg.norm(np.einsum("p,lpk->lk", a, V), 2) ** 2 for a in result.components.T]
    np.testing.assert_allclose(result.F, exact, atol=0.02)
    assert result.landscape().certified.all()


def test_at_large_ranks_the_space_is_that_of_the_leading_directions(monkeypatch):
    rng = np.random.default_rng(11)
    _, _, S = sampled_problem(rng, 10, 30, 20, 2000, 0.01, density=0.3)
    monkeypatch.setattr("mcpca._model.landscape._SMALL_NUMBERS", 0)
    result = decompose(S, 20, random_state=0)
    assert result.space.matrices.shape == (10, 210)
    assert result.space.matrices.dtype == np.float32
    U = np.linalg.svd(np.concatenate(list(S), axis=1))[0][:, :20]
    V = right_singular_matrices(U.T @ S @ U, 20)
    exact = [np.linalg.norm(np.einsum("p,lpk->lk", U.T @ a, V), 2) ** 2 for a in result.components.T]
    np.testing.assert_allclose(result.F, exact, atol=1e-6)
    whole = right_singular_matrices(S, 20)
    np.testing.assert_allclose(
        result.F, [np.linalg.norm(np.einsum("p,lpk->lk", a, whole), 2) ** 2 for a in result.components.T], atol=5e-3
    )
    kept = result.space.chosen(np.array([3, 1]))
    np.testing.assert_allclose(kept.landscape.curvatures, result.landscape().curvatures[[3, 1]], atol=1e-10)


def test_directions_too_weak_for_single_precision_are_kept_in_double(monkeypatch):
    rng = np.random.default_rng(11)
    _, _, S = sampled_problem(rng, 5, 12, 8, 500, 0.01)
    weak = np.diag(np.geomspace(1, 1e-4, 12))
    monkeypatch.setattr("mcpca._model.landscape._SMALL_NUMBERS", 0)
    result = decompose(weak @ S @ weak, 8, random_state=0)
    assert result.singular_values[7] < 1e-3 * result.singular_values[0]
    assert result.space.matrices.dtype == np.float64


def test_a_maximum_is_where_the_certificate_says():
    rng = np.random.default_rng(9)
    _, _, S = sampled_problem(rng, 8, 10, 4, 1000, 0.1, density=0.5)
    result = decompose(S, 4, solver="lsq", random_state=0)
    landscape = result.landscape()
    V = right_singular_matrices(S, 4)
    assert landscape.certified.any()
    assert landscape.gradients.max() > 1e-4
    for j in np.flatnonzero(landscape.certified):
        a = result.components[:, j]
        for _ in range(500):
            b = np.linalg.svd(np.einsum("p,lpk->lk", a, V))[2][0]
            a = np.linalg.svd(np.einsum("lpk,k->lp", V, b))[2][0]
        angle = np.degrees(np.arccos(min(1, abs(a @ result.components[:, j]))))
        assert 0 < angle <= landscape.within[j]
        assert landscape.degrees[j] == pytest.approx(angle, abs=1e-4)
        assert landscape.peaks[j] == pytest.approx(np.linalg.norm(np.einsum("p,lpk->lk", a, V), 2) ** 2, abs=1e-9)
        assert landscape.peaks[j] > landscape.F[j]


def test_components_that_climb_to_one_maximum_share_its_number():
    rng = np.random.default_rng(12)
    _, _, S = sampled_problem(rng, 8, 10, 3, 4000, 0.05, density=0.5)
    space = decompose(S, 3, random_state=0).space
    a = space.components[:, 0] + 0.02 * rng.standard_normal(len(space.components))
    columns = np.column_stack([space.components[:, 1], space.components[:, 0], a / np.linalg.norm(a)])
    found = PowerSpace(space.matrices, columns).landscape
    assert found.basins.tolist() == [0, 1, 1]
    assert found.peaks[1] == pytest.approx(found.peaks[2])
    assert found.degrees[2] > found.degrees[1]
    assert found.own.tolist() == [True, True, False]
    assert "2 of them have a maximum of their own; climbing leads away from MCPC 3." in str(found)


def test_far_from_a_maximum_climbing_is_the_power_method():
    rng = np.random.default_rng(13)
    V, _, _ = random_space(rng, 6, 5, 7)
    columns = np.linalg.qr(rng.standard_normal((7, 6)))[0]
    found = PowerSpace(V, columns).landscape
    assert found.certified.sum() < 6
    assert (found.basins >= 0).sum() >= 5
    for j in np.flatnonzero(found.basins >= 0):
        a = columns[:, j]
        b = np.linalg.svd(np.einsum("q,leq->le", a, V))[2][0]
        for _ in range(5000):
            X = sum((b @ Vl @ a) * Vl for Vl in V)
            a = b @ X / np.linalg.norm(b @ X)
            b = X @ a / np.linalg.norm(X @ a)
        assert found.peaks[j] == pytest.approx(F_in_full(V.transpose(0, 2, 1), a, b), abs=1e-9)
        assert found.degrees[j] == pytest.approx(np.degrees(np.arccos(abs(a @ columns[:, j]))), abs=1e-4)


def test_signs_units_and_order_of_contexts_do_not_matter():
    rng = np.random.default_rng(10)
    _, _, S = sampled_problem(rng, 6, 8, 3, 200, 0.2)
    first = decompose(S, 3, random_state=0).landscape()
    second = decompose(1e6 * S[::-1], 3, random_state=0).landscape()
    np.testing.assert_allclose(first.F, second.F, atol=1e-8)
    np.testing.assert_allclose(first.curvatures, second.curvatures, atol=1e-6)


def test_a_model_has_the_landscape_of_its_decomposition_and_keeps_it_in_files(tmp_path):
    pytest.importorskip("pandas")  # without which the table is a dict
    truth = make_contexts(n_contexts=6, n_features=10, n_components=3, n_samples=200, random_state=0)
    model = MCPCA(3, random_state=0).fit(truth.X, truth.y)
    landscape = model.landscape()
    S = np.stack([np.cov(truth.X[truth.y == c], rowvar=False) for c in model.contexts_])
    np.testing.assert_allclose(landscape.F, decompose(S, 3, random_state=0).F, atol=1e-8)
    columns = ["F", "gradient", "curvature", "certified", "F at the maximum", "degrees to it", "maximum", "own"]
    assert list(landscape.table.columns) == columns
    assert list(landscape.table.index) == ["MCPC 1", "MCPC 2", "MCPC 3"]
    model.save(tmp_path / "model.npz")
    loaded = MCPCA.load(tmp_path / "model.npz").landscape()
    assert isinstance(loaded, Landscape)
    for name in ("F", "gradients", "curvatures", "peaks", "degrees", "basins"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(landscape, name))


def test_files_of_large_models_have_the_landscape_only_if_it_was_asked_for(tmp_path, monkeypatch):
    truth = make_contexts(n_contexts=5, n_features=9, n_components=2, n_samples=100, random_state=4)
    model = MCPCA(2, random_state=0).fit(truth.X, truth.y)
    monkeypatch.setattr("mcpca._model.landscape._MOST_COST", 10)
    model.save(tmp_path / "model.npz")
    with pytest.raises(ValueError, match=r"this model has not kept them.*it is large"):
        MCPCA.load(tmp_path / "model.npz").landscape()
    landscape = model.landscape()
    model.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(MCPCA.load(tmp_path / "model.npz").landscape().F, landscape.F)


def test_kept_components_are_seen_in_the_span_of_the_whole_fit():
    truth = make_contexts(n_contexts=6, n_features=10, n_components=4, n_samples=300, random_state=1)
    model = MCPCA(4, random_state=0).fit(truth.X, truth.y)
    kept = model.keep([0, 2], truth.X, truth.y)
    np.testing.assert_allclose(np.sort(kept.landscape().F), np.sort(model.landscape().F[[0, 2]]), atol=1e-12)


def test_passes_over_rows_have_the_landscape_of_the_stack(monkeypatch):
    truth = make_contexts(n_contexts=5, n_features=12, n_components=3, n_samples=150, random_state=2)
    model = MCPCA(3, random_state=0).fit(truth.X, truth.y).landscape()
    monkeypatch.setattr("mcpca._covariances.fit_data.by_passes", lambda *args, **options: True)
    by_passes = MCPCA(3, random_state=0).fit(truth.X, truth.y)
    assert by_passes.n_passes_ is not None
    np.testing.assert_allclose(by_passes.landscape().F, model.F, atol=5e-3)


def test_missing_features_leave_no_landscape():
    truth = make_contexts(n_contexts=4, n_features=8, n_components=2, n_samples=80, random_state=3)
    X = truth.X.copy()
    X[truth.y == 0, 0] = np.nan
    model = MCPCA(2, solver="lsq", missing="union", random_state=0).fit(X, truth.y)
    with pytest.raises(ValueError, match=r"landscape\(\) needs the leading singular vectors.*Fit complete rows"):
        model.landscape()
