"""Standard errors from the spread of the rows: against finite differences of the log-density, and in every form."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from scipy.stats import multivariate_normal
from scipy.stats import t as student

from mcpca import MCPCA, match_components
from mcpca._inference.precision import precision_of, sandwich_precision_of
from mcpca._inference.row_scores import RowScores
from mcpca._model.gaussian import GaussianModel
from mcpca.datasets import make_contexts

STEP = 1e-5


def unit_tangent(A):
    """Changes of A, as columns, that keep the lengths of its columns."""
    p, r = A.shape
    out = np.zeros((p, r, (p - 1) * r))
    for j in range(r):
        out[:, j, j * (p - 1) : (j + 1) * (p - 1)] = np.linalg.svd(A[:, [j]], full_matrices=True)[0][:, 1:]
    return out.reshape(p * r, -1)


def orthonormal_tangent(A):
    """Changes of A that keep its columns orthonormal: rotations of pairs, and directions outside the span."""
    r = A.shape[1]
    changes = []
    for j in range(r):
        for m in range(j):
            K = np.zeros((r, r))
            K[j, m] = 1
            K[m, j] = -1
            changes.append((A @ K).ravel())
    for direction in np.linalg.svd(A, full_matrices=True)[0][:, r:].T:
        changes += [np.outer(direction, row).ravel() for row in np.eye(r)]
    return np.array(changes).T


def twin(blocks, A, B, s, noise, orthogonal=False):
    """The sandwich by finite differences of densities in all p r + k r (+ k) parameters: angles and loadings."""
    p, r = A.shape
    k = len(B)
    noise_columns = {"isotropic": np.eye(k), "pooled": np.ones((k, 1)), "known": np.zeros((k, 0))}[noise]

    def covariance(theta, i):
        components = theta[: p * r].reshape(p, r)
        loadings = theta[p * r : p * r + k * r].reshape(k, r)[i]
        log_s = np.log(s[i]) + noise_columns[i] @ theta[p * r + k * r :]
        return (components * loadings) @ components.T + np.exp(log_s) * np.eye(p)

    at = np.concatenate([A.ravel(), B.ravel(), np.zeros(noise_columns.shape[1])])
    d = len(at)
    tangent = np.eye(d)
    of_A = orthonormal_tangent(A) if orthogonal else unit_tangent(A)
    tangent = np.concatenate([np.pad(of_A, ((0, d - p * r), (0, 0))), tangent[:, p * r :]], axis=1)
    information = np.zeros((d, d))
    centred_meat = np.zeros((d, d))
    plain_meat = np.zeros((d, d))
    for i, X in enumerate(blocks):
        n = len(X)
        X = X - X.mean(axis=0)
        root = np.linalg.inv(np.linalg.cholesky(covariance(at, i)))
        scores, changes = [], []
        for change in np.eye(d) * STEP:
            up, down = covariance(at + change, i), covariance(at - change, i)
            densities = [multivariate_normal.logpdf(X, cov=C) for C in (up, down)]
            scores.append((densities[0] - densities[1]) / (2 * STEP))
            changes.append((root @ (up - down) @ root.T).ravel() / (2 * STEP))
        information += (n - 1) / 2 * np.array(changes) @ np.array(changes).T
        g = np.array(scores).T
        plain_meat += g.T @ g
        g = g - g.mean(axis=0)
        centred_meat += n / (n - 1) * g.T @ g
    bread = tangent @ np.linalg.inv(tangent.T @ information @ tangent) @ tangent.T
    inside = bread @ centred_meat @ bread
    outside = bread @ plain_meat @ bread
    P = A @ np.linalg.pinv(A)
    squared = []
    for j in range(r):
        column = np.ix_(np.arange(p) * r + j, np.arange(p) * r + j)
        squared.append(np.trace(P @ inside[column]) + np.trace((np.eye(p) - P) @ outside[column]))
    return np.degrees(np.sqrt(squared)), np.sqrt(np.diag(inside)[p * r : p * r + k * r].reshape(k, r))


def heavy_rows(rng, A, B, noise_sd, n, nu=5):
    """Rows with the covariance of the model, all features of a row large together."""
    blocks = []
    for b in B:
        X = (rng.standard_normal((n, len(b))) * np.sqrt(b)) @ A.T + noise_sd * rng.standard_normal((n, len(A)))
        blocks.append(X * np.sqrt((nu - 2) / rng.chisquare(nu, size=(n, 1))))
    return blocks


@pytest.fixture(scope="module")
def heavy():
    truth = make_contexts(4, 6, 2, n_samples=2, random_state=3)
    blocks = heavy_rows(np.random.default_rng(0), truth.components, truth.loadings + 0.3, 0.4, 120)
    return blocks, MCPCA(2, solver="ml", random_state=0).fit(blocks)


@pytest.mark.parametrize("orthogonal", [False, True])
@pytest.mark.parametrize("noise", ["isotropic", "pooled"])
def test_sandwich_equals_finite_differences_of_densities(heavy, noise, orthogonal):
    blocks, _ = heavy
    model = MCPCA(2, solver="ml", noise=noise, orthogonal=orthogonal, random_state=0).fit(blocks)
    angles, loadings = twin(
        blocks, model.components_, model.loadings_, model.noise_variance_, noise, orthogonal=orthogonal
    )
    errors = model.standard_errors(blocks)
    np.testing.assert_allclose(errors.angles, angles, rtol=1e-6)
    np.testing.assert_allclose(errors.loadings, loadings, rtol=1e-6)


def test_known_noise_equals_finite_differences_of_densities(heavy):
    """Diagonal noise of equal size in all features: other features than these are what the scale is for."""
    blocks, model = heavy
    A, B = model.components_, model.loadings_
    W = np.linalg.pinv(A)
    rows = []
    for X in blocks:
        white = (X - X.mean(axis=0)) / 0.5
        scores = white @ W.T * 0.5
        rows.append(RowScores(scores, (white**2).sum(axis=1) - ((scores / 0.5) @ A.T) ** 2 @ np.ones(6)))
    model = GaussianModel.with_noise(A, B, np.full(6, 0.25), "diagonal")
    errors = sandwich_precision_of(model, rows, pooled=False)
    angles, loadings = twin(blocks, A, B, np.full(4, 0.25), "known")
    np.testing.assert_allclose(errors.angles, angles, rtol=1e-6)
    np.testing.assert_allclose(errors.loadings, loadings, rtol=1e-6)


@pytest.mark.parametrize("noise", ["isotropic", "pooled", "diagonal", "scaled"])
def test_gaussian_rows_have_the_errors_of_the_model(noise):
    data = make_contexts(5, 10, 3, n_samples=8000, noise=0.5, random_state=1)
    model = MCPCA(3, solver="ml", noise=noise, random_state=0).fit(data.X, data.y)
    measured, expected = model.standard_errors(data.X, data.y), model.standard_errors()
    assert (measured.kind, expected.kind) == ("sandwich", "model")
    np.testing.assert_allclose(measured.angles, expected.angles, rtol=0.03)
    np.testing.assert_allclose(measured.loadings, expected.loadings, rtol=0.05)
    np.testing.assert_array_equal(model.standard_errors(data.X, data.y, kind="model").loadings, expected.loadings)


def test_noise_by_feature_and_context_has_the_errors_of_the_model(rng):
    """Gaussian rows of the model itself, in features of which some have twenty times the noise of others."""
    A = rng.standard_normal((8, 2))
    B = np.array([[1.0, 0.3], [0.2, 1.5], [0.7, 0.7]])
    noise = np.outer([0.2, 0.5, 1.0], np.geomspace(0.2, 4, 8))
    model = GaussianModel.with_noise(A / np.linalg.norm(A, axis=0), B, noise, "scaled")
    W = np.linalg.pinv(model.white)
    rows = []
    for b, variances in zip(B, noise, strict=True):
        X = (rng.standard_normal((20_000, 2)) * np.sqrt(b)) @ model.A.T
        white = (X + rng.standard_normal((20_000, 8)) * np.sqrt(variances)) * model.scale
        scores = white @ W.T
        rows.append(RowScores(scores, (white**2).sum(axis=1) - ((scores @ model.white.T) ** 2).sum(axis=1)))
    measured = sandwich_precision_of(model, rows, pooled=False)
    expected = precision_of(model, np.full(3, 20_000), pooled=False)
    np.testing.assert_allclose(measured.angles, expected.angles, rtol=0.02)
    np.testing.assert_allclose(measured.loadings, expected.loadings, rtol=0.03)


def test_errors_are_the_spread_over_samples_with_heavy_tails():
    """Samples of one truth: the model's errors are too small by a quarter, and those of the rows are not."""
    rng = np.random.default_rng(1)
    truth = make_contexts(5, 10, 3, n_samples=2, random_state=7)
    A, B = truth.components, truth.loadings + 0.3
    estimates, measured, expected = [], [], []
    for _ in range(25):
        blocks = heavy_rows(rng, A, B, 0.5, 300, nu=6)
        model = MCPCA(3, solver="ml", random_state=0).fit(blocks)
        order = match_components(model.components_, A).indices
        estimates.append(model.loadings_[:, order])
        measured.append(model.standard_errors(blocks).loadings[:, order])
        expected.append(model.standard_errors().loadings[:, order])
    spread = np.std(estimates, axis=0)
    assert 0.85 < np.mean(spread / np.sqrt(np.mean(np.square(measured), axis=0))) < 1.15
    assert np.mean(spread / np.sqrt(np.mean(np.square(expected), axis=0))) > 1.25


def counts_with_zeros(seed=0):
    """Rows of which half the entries are 0, with means that are not."""
    rng = np.random.default_rng(seed)
    data = make_contexts(4, 8, 2, n_samples=60, noise=0.4, random_state=seed)
    return np.maximum(data.X + 0.5 * rng.standard_normal(8), 0), data.y


def test_all_forms_of_rows_give_the_same_answer(tmp_path):
    X, y = counts_with_zeros()
    model = MCPCA(2, solver="ml", random_state=0).fit(X, y)
    reference = model.standard_errors(X, y)
    tests = model.presence(X, y)
    blocks = [X[y == name] for name in model.contexts_]
    on_disk = np.memmap(tmp_path / "rows", dtype=X.dtype, mode="w+", shape=X.shape)
    on_disk[:] = X
    order = np.random.default_rng(0).permutation(len(X))
    forms = {
        "sparse": (scipy.sparse.csr_array(X), y),
        "columns": (scipy.sparse.csc_matrix(X), y),
        "list": (blocks, None),
        "dict": (dict(zip(model.contexts_.tolist(), blocks, strict=True)), None),
        "table": (pd.DataFrame(X), y),
        "map": (on_disk, y),
        "chunks": (lambda: iter(np.array_split(X, 7)), y),
        "shuffled": (X[order], y[order]),
    }
    for name, (rows, labels) in forms.items():
        errors = model.standard_errors(rows, labels)
        np.testing.assert_allclose(errors.angles, reference.angles, rtol=1e-9, err_msg=name)
        np.testing.assert_allclose(errors.loadings, reference.loadings, rtol=1e-9, err_msg=name)
        np.testing.assert_allclose(
            model.presence(rows, labels).p_values, tests.p_values, rtol=1e-6, atol=1e-12, err_msg=name
        )


def test_single_precision_and_covariances_agree_with_rows():
    X, y = counts_with_zeros(1)
    model = MCPCA(2, solver="ml", random_state=0).fit(X, y)
    errors = model.standard_errors(X, y)
    single = MCPCA(2, solver="ml", random_state=0).fit(X.astype(np.float32), y)
    np.testing.assert_allclose(single.standard_errors(X.astype(np.float32), y).loadings, errors.loadings, rtol=1e-3)
    S = {name: np.cov(X[y == name], rowvar=False) for name in model.contexts_.tolist()}
    # A model of covariances knows no means, and here not even how many rows there were. Solvers stop within a
    # thousandth of a standard error.
    of_covariances = MCPCA(2, solver="ml", random_state=0).fit_covariances(S)
    np.testing.assert_allclose(of_covariances.standard_errors(X, y).loadings, errors.loadings, rtol=1e-3)
    np.testing.assert_allclose(
        of_covariances.presence(X, y).p_values, model.presence(X, y).p_values, rtol=0.01, atol=1e-9
    )


@pytest.mark.parametrize("exponent", [-300, 300])
def test_units_of_the_rows_do_not_matter(exponent):
    X, y = counts_with_zeros(2)
    plain = MCPCA(2, solver="ml", random_state=0).fit(X, y)
    scaled = MCPCA(2, solver="ml", random_state=0).fit(np.ldexp(X, exponent), y)
    errors, again = plain.standard_errors(X, y), scaled.standard_errors(np.ldexp(X, exponent), y)
    np.testing.assert_allclose(again.angles, errors.angles, rtol=1e-8)
    np.testing.assert_allclose(np.ldexp(again.loadings, -2 * exponent), errors.loadings, rtol=1e-8)
    np.testing.assert_allclose(
        scaled.presence(np.ldexp(X, exponent), y).p_values, plain.presence(X, y).p_values, rtol=1e-6, atol=1e-12
    )


def test_rows_are_taken_in_chunks(heavy, monkeypatch):
    blocks, model = heavy
    whole = model.standard_errors(blocks)
    monkeypatch.setattr("mcpca._inference.sandwich._CHUNK_NUMBERS", 4 * 7)
    np.testing.assert_allclose(model.standard_errors(blocks).loadings, whole.loadings, rtol=1e-10)


def test_intervals_know_that_the_spread_is_an_estimate(heavy):
    blocks, model = heavy
    errors = model.standard_errors(blocks)
    i, j = np.unravel_index(np.argmin(errors.loadings / np.maximum(model.loadings_, 1e-9)), model.loadings_.shape)
    lower, upper = errors.intervals(model.loadings_)
    half = np.log(upper / np.maximum(lower, 1e-300))[i, j] / 2
    np.testing.assert_allclose(
        half, student.ppf(0.975, 120 / 7) * errors.loadings[i, j] / model.loadings_[i, j], rtol=1e-12
    )
    assert (lower <= model.loadings_).all()
    assert np.isfinite(errors.intervals(model.loadings_, 0.9999)[1]).all()


def test_words_say_where_the_errors_are_from(heavy):
    blocks, model = heavy
    assert "as the spread of the rows shows" in model.standard_errors(blocks).summary()
    assert "for Gaussian rows" in model.standard_errors().summary()


def test_rows_on_dask_are_refused_with_the_way_out():
    array = pytest.importorskip("dask.array")
    X, y = counts_with_zeros()
    model = MCPCA(2, solver="ml", random_state=0).fit(X, y)
    for method in (model.standard_errors, model.presence):
        with pytest.raises(ValueError, match=r"Dask collection, .* Pass X.compute\(\) .* or leave X out"):
            method(array.from_array(X, chunks=(60, 8)), y)


def test_errors_ask_for_what_they_need(heavy):
    blocks, model = heavy
    with pytest.raises(ValueError, match=r"kind='sandwich' measures the spread of the rows, and none are given"):
        model.standard_errors(kind="sandwich")
    with pytest.raises(ValueError, match=r"kind='robust'; choose 'sandwich', 'model' or None"):
        model.standard_errors(blocks, kind="robust")
    for method in (model.standard_errors, model.presence):
        with pytest.raises(ValueError, match=r"y labels the rows of X, and no X is given"):
            method(y=np.zeros(480))
        with pytest.raises(ValueError, match=r"other numbers of rows here than in the fit: 1 \(100 and 120\)"):
            method([blocks[0], blocks[1][:100], *blocks[2:]])
        with pytest.raises(ValueError, match=r"rows that the model was fitted on: X has the contexts"):
            method(blocks[:3])
        spoilt = [block.copy() for block in blocks]
        spoilt[2][5, 1] = np.nan
        with pytest.raises(ValueError, match=r"context 2, contains 1 NaN"):
            method(spoilt)
    least_squares = MCPCA(2, random_state=0).fit(blocks)
    with pytest.raises(
        ValueError, match=r"fitted with solver='mspm'; fit with solver='ml' and noise, or call bootstrap"
    ):
        least_squares.standard_errors(blocks)
    without = MCPCA(2, solver="ml", noise=None, random_state=0).fit(blocks)
    with pytest.raises(ValueError, match=r"fitted with noise=None; .* bootstrap\(X, y\), which is for every solver"):
        without.standard_errors(blocks)
