"""Covariances of contexts in memory: small ones are finished together, whatever their rows and means are like."""

import numpy as np
import pytest

from mcpca import context_covariances
from mcpca._covariances import context_covariances as module
from mcpca._utils.progress import silent


def contexts_with_means(rng, k=23, p=7):
    """Contexts of different length; every fifth is so far from 0 that squares would cost digits."""
    blocks = [rng.standard_normal((5 + 3 * i, p)) @ np.diag(rng.uniform(0.1, 3, p)) for i in range(k)]
    return [block + (1e7 if i % 5 == 2 else 1.0) for i, block in enumerate(blocks)]


@pytest.mark.parametrize("together", [1, 2**16])
def test_contexts_that_lose_digits_are_centred_beside_those_that_do_not(rng, monkeypatch, together):
    monkeypatch.setattr(module, "_CACHED_NUMBERS", together)
    monkeypatch.setattr(module, "_CACHED_SHARE", 1)
    monkeypatch.setattr(module, "_PROGRESS_PIECES", 3)
    centred = []
    by_centring = module._centred
    monkeypatch.setattr(module, "_centred", lambda c, i, *rest: centred.append(i) or by_centring(c, i, *rest))
    blocks = contexts_with_means(rng)
    found = context_covariances(blocks)
    assert sorted(centred) == list(range(2, 23, 5))
    for S, mean, block in zip(found.covariances, found.means, blocks, strict=True):
        np.testing.assert_allclose(mean, block.mean(axis=0), rtol=1e-14)
        np.testing.assert_allclose(S, np.cov(block.T), rtol=1e-8, atol=1e-8)
        np.testing.assert_array_equal(S, S.T)


def test_rows_in_any_order_and_scatters_agree(rng):
    blocks = contexts_with_means(rng)
    X = np.concatenate(blocks)
    y = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
    order = rng.permutation(len(X))
    together = context_covariances(X, y)
    mixed = context_covariances(X[order], y[order])
    np.testing.assert_allclose(mixed.covariances, together.covariances, rtol=1e-8, atol=1e-8)
    means, scatters = module.scatters(module.take_annotations(blocks, None).contexts(), silent)
    np.testing.assert_allclose(means, together.means)
    divided = scatters / (together.n_samples - 1)[:, None, None]
    np.testing.assert_allclose(divided, together.covariances, rtol=1e-10, atol=1e-12)
