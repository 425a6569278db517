"""LAPACK's Cholesky factorisation in place: the factor of NumPy, and False where there is none."""

import threading

import numpy as np
import pytest

from mcpca._linalg import cholesky
from mcpca._linalg.cholesky import has_cholesky_factor


@pytest.fixture(params=["exported", "function"])
def way(request, monkeypatch):
    """LAPACK by the pointer that SciPy exports, and by SciPy's function, where that is not as expected."""
    if request.param == "function":
        monkeypatch.setattr(cholesky, "_potrf", lambda dtype: None)
    return request.param


def definite(p, dtype, rng):
    Z = rng.standard_normal((p, p))
    return np.asfortranarray(Z @ Z.T / p + np.eye(p), dtype=dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("p", [1, 7, 200])
def test_the_factor_is_that_of_numpy(p, dtype, way, rng):
    S = definite(p, dtype, rng)
    expected = np.linalg.cholesky(S.astype(np.float64))
    assert has_cholesky_factor(S)
    np.testing.assert_allclose(np.tril(S), expected, atol=200 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [-1e-3, 0.0, np.nan])
@pytest.mark.parametrize("place", [0, 30, 59])
def test_no_factor(place, value, dtype, way, rng):
    S = definite(60, dtype, rng)
    S[place, place] = value
    assert not has_cholesky_factor(S)


def test_in_threads(rng):
    """Each has its own matrix; every second one is indefinite."""
    matrices = [definite(150, np.float64, rng) for _ in range(8)]
    for S in matrices[::2]:
        S[70, 70] = -1
    found = {}
    threads = [
        threading.Thread(target=lambda i=i, S=S: found.update({i: has_cholesky_factor(S)}))
        for i, S in enumerate(matrices)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[i] for i in range(8)] == [False, True] * 4


def test_another_signature_is_not_called(monkeypatch):
    """Integers of 64 bits, say: SciPy's own function knows what it was built with."""
    monkeypatch.setattr(cholesky, "_SIGNATURE", b"void (char *, long *, ")
    cholesky._potrf.cache_clear()
    assert cholesky._potrf(np.dtype(np.float64)) is None
    cholesky._potrf.cache_clear()
