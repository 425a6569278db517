"""Errors, tests, halves and resamples of a fit that removed batch and covariates: those of the residual rows."""

import numpy as np
import pytest
import scipy.sparse

from mcpca import MCPCA
from mcpca.datasets import make_contexts
from twins import covariances_without_nuisance

K, N = 5, 400


@pytest.fixture(scope="module")
def rows():
    truth = make_contexts(K, 14, 3, n_samples=N, noise=0.5, random_state=0)
    rng = np.random.default_rng(1)
    batch = rng.integers(3, size=len(truth.y))
    Z = rng.standard_normal((len(truth.y), 2))
    X = truth.X + 2 * rng.standard_normal((K, 3, 14))[truth.y, batch] + 2 * Z @ rng.standard_normal((2, 14))
    donors = np.arange(len(truth.y)) % 10
    return np.where(np.abs(X) < 0.2, 0, X), truth.y, batch, Z, donors


@pytest.mark.parametrize("noise", ["isotropic", "scaled"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
def test_the_sandwich_is_that_of_residual_rows(rows, noise, sparse, grouped):
    X, y, batch, Z, donors = rows
    said = {"batch": batch, "covariates": Z}
    groups = {"groups": donors} if grouped else {}
    model = MCPCA(3, solver="ml", noise=noise, random_state=0).fit(X, y, **said)
    of_rows = model.standard_errors(scipy.sparse.csr_array(X) if sparse else X, y, **said, **groups)
    # The same model of residuals: their covariances, but for the degrees of freedom, are the ones that were fitted.
    _, residuals = covariances_without_nuisance(X, y, batch, Z)
    scaled = residuals * np.sqrt((N - 1) / (N - 5))
    twin = MCPCA(3, solver="ml", noise=noise, random_state=0).fit(scaled, y)
    np.testing.assert_allclose(twin.components_, model.components_, atol=1e-5)
    of_residuals = twin.standard_errors(scaled, y, **groups)
    # Rows count N - 4 there and N here, and residuals are larger here by the root above.
    np.testing.assert_allclose(of_rows.angles, of_residuals.angles, rtol=0.06)
    np.testing.assert_allclose(of_rows.loadings, of_residuals.loadings, rtol=0.1)


def test_presence_sees_residuals(rows):
    X, y, batch, Z, _ = rows
    said = {"batch": batch, "covariates": Z}
    model = MCPCA(3, random_state=0).fit(X, y, **said)
    dense = model.presence(X, y, **said)
    np.testing.assert_allclose(model.presence(scipy.sparse.csr_array(X), y, **said).p_values, dense.p_values, atol=1e-8)


def test_halves_and_resamples_lose_the_nuisance(rows):
    X, y, batch, Z, donors = rows
    model = MCPCA(3, random_state=0).fit(X, y, batch=batch, covariates=Z)
    ignorant = MCPCA(3, random_state=0).fit(X, y)
    agreement = model.replicability(X, y, n_splits=2, batch=batch, covariates=Z, random_state=0).agreement
    by_donors = model.replicability(X, y, n_splits=2, batch=batch, covariates=Z, groups=donors, random_state=0)
    assert agreement.min() > 0.85
    assert by_donors.agreement.min() > 0.85
    bounds = model.bootstrap(X, y, n=6, batch=batch, covariates=Z, random_state=0).angle_bounds
    assert bounds.max() < 30
    assert not np.allclose(ignorant.components_, model.components_, atol=0.1)


def test_what_the_fit_removed_has_to_be_given(rows):
    X, y, batch, Z, _ = rows
    model = MCPCA(3, solver="ml", random_state=0).fit(X, y, batch=batch, covariates=Z)
    for method in (model.standard_errors, model.presence, model.replicability, model.bootstrap):
        with pytest.raises(ValueError, match="has removed batch; pass it as well"):
            method(X, y)
        with pytest.raises(ValueError, match="has removed covariates; pass it as well"):
            method(X, y, batch=batch)
    with pytest.raises(ValueError, match="was fitted without batch; drop it"):
        MCPCA(3, random_state=0).fit(X, y).replicability(X, y, batch=batch)
