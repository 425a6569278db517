"""What a model says of rows and contexts that it has not seen, against the formulas written out."""

import numpy as np
import pytest

from mcpca import MCPCA
from twins import compose, design_loadings, random_problem

NOISE = {"isotropic": np.full(7, 0.3), "pooled": np.full(7, 0.3), "diagonal": np.linspace(0.1, 0.6, 7)}
NOISE["scaled"] = NOISE["diagonal"]


def fitted(rng, noise, **options):
    _, _, S = random_problem(rng, 6, 7, 3)
    if noise is not None:
        S = S + np.diag(NOISE[noise])
    return MCPCA(3, noise=noise, random_state=0, **options).fit_covariances(S, n_samples=np.full(6, 200))


@pytest.mark.parametrize("noise", [None, "isotropic", "pooled", "diagonal", "scaled"])
@pytest.mark.parametrize("solver", ["mspm", "ml"])
def test_a_new_context_of_the_model_has_its_loadings(rng, noise, solver):
    """Covariances ``A diag(b) A^T`` and noise, its level another one where each context has its own."""
    model = fitted(rng, noise, solver=solver)
    b = np.array([[1.5, 0.0, 0.7], [0.2, 2.0, 0.0]])
    S = compose(model.components_, b)
    if noise == "diagonal":
        S += np.diag(model.noise_variance_)
    elif noise == "scaled":
        S += np.diag(3 * model.noise_variance_.mean(axis=0))
    elif noise is not None:
        S += 0.8 * np.eye(7)
    np.testing.assert_allclose(model.loadings_for(S), b, atol=1e-5)
    np.testing.assert_allclose(model.loadings_for(S[1]), b[1], atol=1e-5)


def test_a_context_within_the_span_gets_the_average_noise(rng):
    model = fitted(rng, "isotropic")
    S = compose(model.components_, np.array([[1.5, 0.9, 0.7]]))
    average = float(np.mean(model.noise_variance_))
    expected = design_loadings(S - average * np.eye(7), model.components_)
    assert average > 0.1
    np.testing.assert_allclose(model.loadings_for(S), expected, atol=1e-9)


def test_as_many_components_as_features_leave_no_noise_to_see(rng):
    _, _, S = random_problem(rng, 6, 4, 4)
    model = MCPCA(4, random_state=0).fit_covariances(S)
    b = np.array([[1.5, 0.0, 0.7, 0.2]])
    np.testing.assert_allclose(model.loadings_for(compose(model.components_, b)), b, atol=1e-8)


@pytest.mark.parametrize("kind", ["batch", "covariates"])
def test_scores_are_free_of_a_batch_or_of_a_covariate_alone(rng, kind):
    X, y = rng.standard_normal((120, 6)) @ rng.standard_normal((6, 6)), np.repeat([0, 1, 2], 40)
    z = rng.integers(0, 2, 120)
    X += 5 * z[:, None]
    given = {kind: z if kind == "batch" else z[:, None].astype(float)}
    scores = MCPCA(2, random_state=0).fit(X, y, **given).transform(X, y, **given)
    means = np.array([[scores[(y == i) & (z == j)].mean(axis=0) for j in (0, 1)] for i in range(3)])
    np.testing.assert_allclose(means, 0, atol=1e-10)


def test_one_row_on_dask_is_no_context(rng):
    array = pytest.importorskip("dask.array", reason="needs Dask")
    model = fitted(rng, None)
    rows = rng.standard_normal((30, 7))
    np.testing.assert_allclose(model.loadings_for(array.from_array(rows)), model.loadings_for(rows), rtol=1e-9)
    with pytest.raises(ValueError, match="at least 2"):
        model.loadings_for(array.from_array(rows[:1]))
