"""``x P^T - m P^T`` against its twin, the scores of centred rows."""

import numpy as np
import pytest
import scipy.sparse as sp

from mcpca._data.projection import offset_scores, projected_rows, scores_by_context
from mcpca._data.sources import as_source

N, P, R, K = 40, 9, 3, 4


@pytest.fixture
def rows(rng):
    X = rng.random((N, P)) * (rng.random((N, P)) < 0.5)
    return X, rng.integers(K, size=N), rng.standard_normal((K, P)), rng.standard_normal((K, R, P))


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array])
def test_offsets_are_scores_of_centred_rows(rows, convert):
    X, codes, means, projections = rows
    first = projections[0]
    same_mean = offset_scores(convert(X), first.T, means[0] @ first.T)
    np.testing.assert_allclose(same_mean, (X - means[0]) @ first.T, atol=1e-12)

    one_projection = scores_by_context(convert(X), codes, [first], means @ first.T, np.dtype(float))
    np.testing.assert_allclose(one_projection, (X - means[codes]) @ first.T, atol=1e-12)
    one_offset = scores_by_context(convert(X), codes, [first], means[:1] @ first.T, np.dtype(float))
    np.testing.assert_allclose(one_offset, same_mean, atol=1e-12)

    offsets = np.stack([mean @ projection.T for mean, projection in zip(means, projections, strict=True)])
    own = scores_by_context(convert(X), codes, list(projections), offsets, np.dtype(float))
    expected = [(x - means[i]) @ projections[i].T for x, i in zip(X, codes, strict=True)]
    np.testing.assert_allclose(own, expected, atol=1e-12)


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array, lambda X: lambda: [X[:7], X[7:]]])
def test_projected_rows(rows, convert):
    X, _, _, projections = rows
    source = as_source(convert(X), "X")
    np.testing.assert_allclose(projected_rows(source, projections[0].T), X @ projections[0].T, atol=1e-12)
    np.testing.assert_allclose(projected_rows(source, projections[0, 1]), X @ projections[0, 1], atol=1e-12)
    assert projected_rows(source, projections[0].T, np.float32).dtype == np.float32
    X[5, 2] = np.inf
    with pytest.raises(ValueError, match=r"X contains 0 NaN and 1 infinite .* rows 5 to 5, in feature\(s\) 2"):
        projected_rows(as_source(convert(X), "X"), projections[0].T)
