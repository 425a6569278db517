"""Standard errors, the Cramer-Rao bound, tests of presence, the bootstrap."""

import numpy as np
import pytest
import scipy.sparse
from scipy.optimize import minimize
from scipy.stats import chi2

from mcpca import MCPCA, cramer_rao_bound, match_components
from mcpca._inference.presence import _holm
from mcpca.datasets import make_contexts


def dense_bound(A, B, noise, n, pooled=False):
    """Fisher's information by brute force: all p r + k r + k parameters, projected on the tangent of unit columns."""
    (p, r), k = A.shape, len(B)
    n_noise = 1 if pooled else k
    directions = []
    for f in range(p):
        for j in range(r):
            dA = np.zeros((p, r))
            dA[f, j] = 1
            directions.append([(dA * b) @ A.T + ((dA * b) @ A.T).T for b in B])
    for i in range(k):
        for j in range(r):
            directions.append([np.outer(A[:, j], A[:, j]) * (i == m) for m in range(k)])
    for i in range(n_noise):
        directions.append([np.eye(p) * (pooled or i == m) for m in range(k)])
    whitened = []
    for m in range(k):
        root = np.linalg.inv(np.linalg.cholesky((A * B[m]) @ A.T + noise[m] * np.eye(p)))
        whitened.append(np.sqrt((n[m] - 1) / 2) * np.array([(root @ d[m] @ root.T).ravel() for d in directions]))
    J = np.concatenate(whitened, axis=1)
    information = J @ J.T
    tangent = np.zeros((p * r + k * r + n_noise, (p - 1) * r + k * r + n_noise))
    for j in range(r):
        basis = np.linalg.svd(A[:, j : j + 1], full_matrices=True)[0][:, 1:]
        tangent[np.arange(p) * r + j, j * (p - 1) : (j + 1) * (p - 1)] = basis
    tangent[p * r :, (p - 1) * r :] = np.eye(k * r + n_noise)
    covariance = tangent @ np.linalg.inv(tangent.T @ information @ tangent) @ tangent.T
    variances = np.diag(covariance)
    return np.degrees(np.sqrt(variances[: p * r].reshape(p, r).sum(axis=0))), np.sqrt(
        variances[p * r : p * r + k * r].reshape(k, r)
    )


@pytest.fixture
def truth(rng):
    A = rng.standard_normal((7, 3))
    B = np.abs(rng.standard_normal((4, 3))) * (rng.random((4, 3)) < 0.8) + np.eye(4, 3)
    return A / np.linalg.norm(A, axis=0), B


def test_bound_equals_brute_force(truth, rng):
    A, B = truth
    noise, n = rng.uniform(0.1, 0.4, 4), np.array([50, 100, 30, 80])
    bound = cramer_rao_bound(A, B, noise, n)
    angles, loadings = dense_bound(A, B, noise, n)
    np.testing.assert_allclose(bound.angles, angles)
    np.testing.assert_allclose(bound.loadings, loadings)
    np.testing.assert_allclose(bound.ascore_loss, np.mean(np.radians(angles) ** 2) / 2)


def test_bound_at_full_rank_and_square(truth, rng):
    A = np.linalg.qr(rng.standard_normal((3, 3)))[0] + 0.3
    A /= np.linalg.norm(A, axis=0)
    _, B = truth
    angles, loadings = dense_bound(A, B, np.full(4, 0.2), np.full(4, 60))
    bound = cramer_rao_bound(A, B, 0.2, 60)
    np.testing.assert_allclose(bound.angles, angles)
    np.testing.assert_allclose(bound.loadings, loadings)


def test_diagonal_noise_of_equal_size_is_known_isotropic_noise(truth):
    """With equal noise the two differ only in whether it is known, which costs loadings a little and angles less."""
    A, B = truth
    known = cramer_rao_bound(A, B, np.full(7, 0.2), 100, diagonal=True)
    unknown = cramer_rao_bound(A, B, 0.2, 100)
    assert (known.loadings <= unknown.loadings * (1 + 1e-12)).all()
    np.testing.assert_allclose(known.angles, unknown.angles, rtol=0.1)


def test_diagonal_noise_bound_follows_units(truth, rng):
    """Four times the variance is other units: angles stay, loadings follow."""
    A, B = truth
    psi = rng.uniform(0.05, 0.6, 7)
    bound = cramer_rao_bound(A, B, psi, 200, diagonal=True)
    again = cramer_rao_bound(A, B * 4, psi * 4, 200, diagonal=True)
    np.testing.assert_allclose(again.angles, bound.angles)
    np.testing.assert_allclose(again.loadings, 4 * bound.loadings)


def test_samples_needed_scale_with_the_squared_angle(truth):
    A, B = truth
    bound = cramer_rao_bound(A, B, 0.2, 101)
    needed = bound.samples_for(5)
    reached = cramer_rao_bound(A, B, 0.2, int(needed[2]) + 1)
    assert reached.angles[2] <= 5 * (1 + 1 / needed[2])
    np.testing.assert_array_equal(bound.samples_for(2.5), np.ceil(101 * (bound.angles / 2.5) ** 2))
    with pytest.raises(ValueError, match=r"degrees=0 must be a positive angle"):
        bound.samples_for(0)


BAD = {
    "shapes": (lambda A, B: cramer_rao_bound(A, B[:, :2], 0.1, 50), r"A \(7, 3\) and B \(4, 2\) do not fit"),
    "negative": (lambda A, B: cramer_rao_bound(A, -B, 0.1, 50), "B non-negative"),
    "no noise": (lambda A, B: cramer_rao_bound(A, B, 0.0, 50), "a positive variance is needed"),
    "noise length": (lambda A, B: cramer_rao_bound(A, B, [0.1] * 7, 50), r"one number or 4 \(one per context\)"),
    "counts": (lambda A, B: cramer_rao_bound(A, B, 0.1, 1), "n_samples=1: one integer >= 2"),
    "dependent": (lambda A, B: cramer_rao_bound(A[:, [0, 0, 1]], B, 0.1, 50), "linearly dependent"),
    "proportional": (
        lambda A, B: cramer_rao_bound(A, B[:, [0, 0, 1]] * [1, 2, 1], 0.1, 50),
        "not identifiable: MCPC 1 and MCPC 2 have proportional",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_plans_are_explained(truth, case):
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        call(*truth)


@pytest.fixture(scope="module")
def fitted():
    data = make_contexts(8, 15, 4, n_samples=300, noise=0.4, density=0.5, random_state=4)
    return data, MCPCA(4, solver="ml", random_state=0).fit(data.X, data.y)


@pytest.mark.parametrize("noise", ["isotropic", "pooled", "diagonal", "scaled"])
def test_standard_errors_are_the_bound_at_the_fit(fitted, noise):
    data, _ = fitted
    model = MCPCA(4, solver="ml", noise=noise, random_state=0).fit(data.X, data.y)
    errors = model.standard_errors()
    if noise in ("diagonal", "scaled"):
        is_diagonal = noise == "diagonal"
        bound = cramer_rao_bound(model.components_, model.loadings_, model.noise_variance_, 300, diagonal=is_diagonal)
        np.testing.assert_allclose(errors.loadings, bound.loadings)
    else:
        angles, loadings = dense_bound(
            model.components_, model.loadings_, model.noise_variance_, np.full(8, 300), pooled=noise == "pooled"
        )
        np.testing.assert_allclose(errors.angles, angles)
        np.testing.assert_allclose(errors.loadings, loadings)


@pytest.mark.parametrize("noise", ["isotropic", "pooled"])
def test_orthonormal_columns_are_surer(noise):
    """Brute force: only rotations of A inside its span, and what is outside."""
    data = make_contexts(5, 8, 3, n_samples=400, noise=0.4, orthogonal=True, random_state=1)
    model = MCPCA(3, solver="ml", noise=noise, orthogonal=True, random_state=0).fit(data.X, data.y)
    A, B, s, n = model.components_, model.loadings_, model.noise_variance_, 399
    errors = model.standard_errors()
    rotations = np.zeros((3, 3))
    for j in range(3):
        for m in set(range(3)) - {j}:
            change = A[:, [m]] @ A[:, [j]].T
            change = change + change.T  # of Sigma for a rotation by theta, times (b_j - b_m)
            information = 0.0
            for i in range(5):
                Y = np.linalg.solve((A * B[i]) @ A.T + s[i] * np.eye(8), (B[i, j] - B[i, m]) * change)
                information += n / 2 * np.trace(Y @ Y)
            rotations[m, j] = 1 / information
    outside = 5 / (n * (B**2 / (s[:, None] * (B + s[:, None]))).sum(axis=0))
    np.testing.assert_allclose(np.radians(errors.angles) ** 2, rotations.sum(axis=0) + outside)
    free = MCPCA(3, solver="ml", noise=noise, random_state=0).fit(data.X, data.y).standard_errors()
    assert (errors.angles < free.angles).all()


def test_standard_errors_match_the_spread_over_samples():
    """Forty samples of one truth: the spread of loadings is what one of them says it is."""
    rng = np.random.default_rng(0)
    truth = make_contexts(5, 10, 3, n_samples=2, random_state=7)
    A, B = truth.components, truth.loadings + 0.3
    estimates, angles = [], []
    for _ in range(40):
        X = [(rng.standard_normal((400, 3)) * np.sqrt(b)) @ A.T + 0.5 * rng.standard_normal((400, 10)) for b in B]
        model = MCPCA(3, solver="ml", random_state=0).fit(X)
        match = match_components(model.components_, A)
        estimates.append(model.loadings_[:, match.indices])
        angles.append(np.degrees(np.arccos(match.cosines)))
    bound = cramer_rao_bound(A, B, 0.25, 400)
    ratio = np.std(estimates, axis=0) / bound.loadings
    assert 0.8 < ratio.mean() < 1.2
    rms = np.sqrt(np.mean(np.square(angles), axis=0)) / bound.angles
    assert (rms < 1.25).all()
    assert (rms > 0.75).all()


def test_presence_equals_an_explicit_likelihood_ratio(fitted):
    data, model = fitted
    presence = model.presence()
    i, j = 2, int(np.argmax(model.loadings_[2]))
    S = np.cov(data.X[data.y == data.y[600]], rowvar=False)
    A = model.components_

    def loss(z, skip):
        b = z[:4] ** 2 * (np.arange(4) != skip)
        C = (A * b) @ A.T + np.exp(z[4]) * np.eye(15)
        return np.linalg.slogdet(C)[1] + np.trace(np.linalg.solve(C, S))

    start = np.append(np.sqrt(model.loadings_[i]) + 0.05, np.log(0.16))
    best = [minimize(loss, start, args=(skip,), method="BFGS").fun for skip in (-1, j)]
    np.testing.assert_allclose(presence.statistics[i, j], 299 * (best[1] - best[0]), rtol=1e-3)
    np.testing.assert_allclose(
        presence.p_values, np.where(presence.statistics > 0, chi2.sf(presence.statistics, 1) / 2, 1)
    )
    match = match_components(A, data.components)
    strong = data.loadings > 0.2
    assert presence.present[:, match.indices][strong].all()
    assert presence.present[:, match.indices][data.loadings == 0].mean() < 0.2
    assert (model.presence(method="holm").adjusted >= presence.adjusted - 1e-15).all()


def test_holm_equals_its_definition():
    np.testing.assert_allclose(_holm(np.array([0.01, 0.04, 0.03, 0.005])), [0.03, 0.06, 0.06, 0.02])


def test_bootstrap_is_reproducible_matched_and_covers(fitted):
    data, model = fitted
    calls = []
    first = model.bootstrap(data.X, data.y, 40, random_state=1, verbose=lambda *a: calls.append(a))
    again = model.bootstrap(data.X, data.y, 40, random_state=1)
    np.testing.assert_array_equal(first.loadings, again.loadings)
    assert calls[-1] == ("resamples", 40, 40)
    assert first.loadings.shape == (40, 8, 4)
    assert (first.lower <= first.upper).all()
    assert (first.lower >= 0).all()
    errors = model.standard_errors()
    present = model.loadings_ > 0.2
    ratio = first.standard_errors[present] / errors.loadings[present]
    assert 0.7 < np.median(ratio) < 1.3
    match = match_components(model.components_, data.components)
    truth = np.degrees(np.arccos(np.minimum(match.cosines, 1)))
    assert (truth <= 2 * first.angle_bounds[match.indices]).all()


def test_bootstrap_knows_contexts_by_name():
    data = make_contexts(3, 6, 2, n_samples=60, noise=0.3, random_state=0)
    X = dict(zip("cab", np.split(data.X, 3), strict=True))
    plain, named = (MCPCA(2, random_state=0, context_weights=w).fit(X) for w in ([3, 1, 2], {"a": 1, "b": 2, "c": 3}))
    results = [model.bootstrap(X, n=5, random_state=0) for model in (plain, named)]
    np.testing.assert_array_equal(results[0].loadings, results[1].loadings)


def test_bootstrap_of_the_power_method(fitted):
    data, _ = fitted
    model = MCPCA(4, random_state=0).fit(data.X, data.y)
    result = model.bootstrap(data.X, data.y, 10, random_state=0)
    assert np.isfinite(result.upper).all()
    assert result.n_failed == 0


def test_uncertainty_asks_for_what_it_needs(fitted):
    data, model = fitted
    with pytest.raises(ValueError, match=r"standard_errors\(\) are those of the likelihood, and this model was fitted"):
        MCPCA(2, random_state=0).fit(data.X, data.y).standard_errors()
    S = np.stack([np.cov(data.X[data.y == i], rowvar=False) for i in range(8)])
    blind = MCPCA(4, solver="ml", random_state=0).fit_covariances(S)
    with pytest.raises(ValueError, match=r"presence\(\) needs the number of rows of each context; pass n_samples"):
        blind.presence()
    with pytest.raises(ValueError, match=r"method='none'; choose 'fdr' or 'holm'"):
        model.presence(method="none")
    with pytest.raises(ValueError, match="needs the rows that the model was fitted on"):
        model.bootstrap(data.X[:600], data.y[:600], 5)
    with pytest.raises(ValueError, match="n=1"):
        model.bootstrap(data.X, data.y, 1)


def test_presence_at_full_rank_is_that_of_every_form():
    """With r = p noise may have shrunk to nothing, and without a component has to grow from there."""
    data = make_contexts(n_contexts=4, n_features=5, n_components=3, n_samples=80, noise=0.3, random_state=3)
    forms = [(data.X, data.y), (data.X[::-1], data.y[::-1]), (scipy.sparse.csr_array(data.X), data.y)]
    models = [MCPCA(5, solver="ml", random_state=0).fit(*form) for form in forms]
    assert models[0].noise_variance_.min() < 1e-4 * models[0].noise_variance_.max()
    by_form = [model.presence() for model in models]
    # What 320 rows can tell of a loading, and not 1e11.
    assert by_form[0].statistics.max() < 1e3
    for other in by_form[1:]:
        np.testing.assert_allclose(other.statistics, by_form[0].statistics, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(other.present, by_form[0].present)
