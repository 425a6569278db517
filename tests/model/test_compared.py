"""Which loadings contexts are compared by, and what is said of them."""

from dataclasses import replace

import numpy as np
import pytest
from stored_fit import stored_fit
from unequal_noise import fitted_to, two_groups

from mcpca._estimator.mcpca import fitted_model
from mcpca._model.compared import AS_FITTED, BESIDE_NOISE, CORRECTED, CROSS_FITTED, NO_NOISE, OLDER, compared
from mcpca._results.fitted import fitted
from mcpca.datasets import make_contexts

B = np.array([[2.0, 1.0], [1.0, 3.0]])


@pytest.mark.parametrize(
    ("without", "noise", "corrected", "expected", "words"),
    [
        (B - 0.5, None, True, B - 0.5, CORRECTED),
        (B - 0.5, None, False, B, AS_FITTED),
        (B, "pooled", True, B, BESIDE_NOISE),
        (B, "pooled", False, B, BESIDE_NOISE),
        (B, None, True, B, NO_NOISE),
        (B * (1 - 1e-15), None, True, B, NO_NOISE),
        (B * (1 - 1e-12), None, True, B * (1 - 1e-12), CORRECTED),
        (None, None, True, B, OLDER),
        (None, None, False, B, AS_FITTED),
    ],
)
def test_each_kind_has_its_words(without, noise, corrected, expected, words):
    found = compared(B, without, noise, corrected)
    np.testing.assert_array_equal(found.values, expected)
    assert found.words == words
    assert (found.name == "corrected loading") == (words == CORRECTED)


@pytest.mark.parametrize("noise", [None, "pooled"])
def test_cross_fitted_loadings_are_called_so(noise):
    found = compared(B, B - 0.5, noise, True, cross_fitted=True)
    np.testing.assert_array_equal(found.values, B - 0.5)
    assert (found.words, found.name) == (CROSS_FITTED, "cross-fitted loading")
    assert compared(B, B - 0.5, noise, False, cross_fitted=True).words == (AS_FITTED if noise is None else BESIDE_NOISE)


def test_corrected_is_a_truth_value():
    with pytest.raises(TypeError, match="corrected='no'; pass True, or False for loadings that contain the noise"):
        compared(B, B, None, "no")


def test_corrected_loadings_are_nearer_to_the_truth():
    """By least squares the noise variance of a context, 0.81 or 0.09, is in all of its loadings."""
    X, y, truth, A = two_groups()
    model = fitted_to(X, y)
    order = [model.contexts_.tolist().index(name) for name in dict.fromkeys(y)]
    match = np.abs(A.T @ model.components_).argmax(axis=1)
    view = fitted(model)
    near = np.abs(view.compared().values[np.ix_(order, match)] - truth).mean()
    far = np.abs(view.compared(False).values[np.ix_(order, match)] - truth).mean()
    assert near < 0.1 < 0.4 < far
    inner = fitted_model(model)
    for corrected in (True, False):
        np.testing.assert_array_equal(inner.compared_loadings(corrected), view.compared(corrected).values)
        assert inner.loadings_in_words(corrected) == view.compared(corrected).words
    # A model of an older version raises where a view of it falls back and says so.
    old = replace(inner, corrected_loadings=None)
    assert old.loadings_in_words() == OLDER
    with pytest.raises(ValueError, match="saved by an older mcpca, without corrected loadings"):
        old.compared_loadings()


def test_a_stored_fit_has_the_kinds_of_its_model():
    data = make_contexts(5, 8, 2, n_samples=40, noise=0.4, random_state=0)
    adata, model = stored_fit(data.X, data.y, 2)
    np.testing.assert_array_equal(fitted(adata).compared().values, model.corrected_loadings_)
    assert fitted(adata).compared().words == CORRECTED
    np.testing.assert_array_equal(fitted(adata).compared(False).values, model.loadings_)
    adata.uns["mcpca"]["attenuation"] = np.ones(2)
    assert fitted(adata).compared().words == CROSS_FITTED
    del adata.uns["mcpca"]["attenuation"]
    del adata.uns["mcpca"]["corrected_loadings"]
    np.testing.assert_array_equal(fitted(adata).compared().values, model.loadings_)
    assert fitted(adata).compared().words == OLDER
    # In older versions a likelihood was the only fit with noise, and had one kind of loadings.
    adata.uns["mcpca"]["params"] |= {"solver": "ml", "noise": "isotropic"}
    assert fitted(adata).compared().words == BESIDE_NOISE
    adata.uns["mcpca"]["params"] |= {"solver": "mspm", "noise": "isotropic"}
    assert fitted(adata).compared().words == OLDER
