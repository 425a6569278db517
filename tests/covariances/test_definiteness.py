"""Whether covariances are positive semi-definite: the verdict of eigenvalues, in less time, whatever the precision."""

import numpy as np
import pytest

from mcpca._covariances import definiteness
from mcpca._covariances.definiteness import indefinite_part

SHAPES = [
    (40, 12),
    (6, 150),
    (3, 150),
    (2, 150),
    (1, 150),
]  # batches; single precision in two threads, in one; by blocks
SPECTRA = {
    "noise in all directions": lambda p: np.linspace(0.5, 3, p),
    "strong axes": lambda p: np.r_[np.full(5, 1e3), np.full(p - 5, 1e-1)],
    "singular": lambda p: np.r_[np.ones(p // 2), np.zeros(p - p // 2)],
    "falling": lambda p: np.logspace(0, -9, p),
}


def stack(k, p, spectrum, rng, least=None):
    """Return k matrices with these eigenvalues, ``least`` for the last of one, their norms, and the shift of checks."""
    S = np.empty((k, p, p))
    for i in range(k):
        w = spectrum(p).astype(float)
        if least is not None and i == k // 2:
            w[-1] = least * np.linalg.norm(w)
        Q = np.linalg.qr(rng.standard_normal((p, p)))[0]
        S[i] = (Q * w) @ Q.T
        S[i] = (S[i] + S[i].T) / 2
    norms = np.linalg.norm(S, axis=(1, 2))
    return S, norms, 1e2 * np.finfo(float).eps * p * norms


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize(("k", "p"), SHAPES)
def test_the_verdict_is_that_of_eigenvalues(k, p, name, rng):
    S, norms, shift = stack(k, p, SPECTRA[name], rng)
    assert indefinite_part(S, norms, shift) is None
    # Twice the tolerance, which single precision cannot see, and far more than it.
    for least in (-2e2 * np.finfo(float).eps * p, -1e-7, -1e-3):
        S, norms, shift = stack(k, p, SPECTRA[name], rng, least)
        part = indefinite_part(S, norms, shift)
        assert part is not None
        assert part.start <= k // 2 < part.stop
    # Half of the tolerance is rounding.
    S, norms, shift = stack(k, p, SPECTRA[name], rng, -0.5e2 * np.finfo(float).eps * p)
    assert indefinite_part(S, norms, shift) is None


@pytest.mark.parametrize("size", [1e-300, 1e-35, 1e-20, 1e20, 1e35, 1e150])
def test_the_scale_has_no_say(size, rng):
    """Single precision ends at 1e38; what it does not reach is left to double."""
    for least in (None, -1e-6):
        S, norms, shift = stack(6, 150, SPECTRA["noise in all directions"], rng, least)
        assert (indefinite_part(S * size, norms * size, shift * size) is None) == (least is None)


def test_single_precision_never_passes_what_double_refuses(rng):
    """Smallest eigenvalues around 0: the margin is ten times the errors of single precision, and more."""
    p = 200
    wrong = []
    for name in SPECTRA:
        for least in (-1e-6, -1e-8, -1e-12):
            S, norms, _ = stack(1, p, SPECTRA[name], rng, least)
            margin = definiteness._MARGIN * np.sqrt(p) * np.finfo(np.float32).eps * norms[0]
            for share in (1, 0.1):
                single = definiteness._has_factor(S[0], -share * margin, np.float32)
                wrong += [(name, least, share)] if single else []
    assert not wrong


def test_double_precision_is_not_asked_where_single_tells(rng, monkeypatch):
    S, norms, shift = stack(6, 150, SPECTRA["noise in all directions"], rng)
    asked = []
    factor = definiteness.has_cholesky_factor
    monkeypatch.setattr(definiteness, "has_cholesky_factor", lambda S: (asked.append(S.dtype), factor(S))[1])
    assert indefinite_part(S, norms, shift) is None
    assert indefinite_part(S.astype(np.float32), norms, shift * 2**29) is None
    assert asked == [np.float32] * 12
    S[3, 0, 0] = -1
    assert indefinite_part(S, norms, shift) == slice(3, 4)
    assert asked[-1] == np.float64


def test_a_value_that_is_not_a_number_has_no_factor(rng):
    S, norms, shift = stack(6, 150, SPECTRA["noise in all directions"], rng)
    S[2, 40, 40] = np.nan
    assert indefinite_part(S, norms, shift) == slice(2, 3)
