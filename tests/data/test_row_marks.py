"""Marks of rows: equal for the same rows in whatever order, blocks and format, and different for any others."""

import sys

import numpy as np
import pytest
import scipy.sparse

from mcpca._data.row_marks import marks_of
from mcpca.datasets import make_contexts


def slow_marks(X, codes, k):
    """Python's integers, a value at a time."""

    def mixed(x):
        x = (x + 0x9E3779B97F4A7C15) % 2**64
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
        return x ^ x >> 31

    marks = [0] * k
    for row, code in zip(X, codes, strict=True):
        total = 0
        for j, value in enumerate(row):
            bits = int.from_bytes(value.tobytes(), sys.byteorder)
            bits = bits ^ bits >> 32 if value.dtype == np.float64 else bits
            total += bits * (mixed(j) | 1)
        marks[code] = (marks[code] + mixed(total % 2**64)) % 2**64
    return marks


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_marks_depend_on_rows_alone(rng, monkeypatch, dtype):
    """Not on their order, on blocks, on the layout in memory, or on whether zeros are stored."""
    monkeypatch.setattr("mcpca._data.row_marks._BITS_AT_A_TIME", 40)
    X = rng.standard_normal((30, 7)).astype(dtype)
    X[rng.random(X.shape) < 0.4] = 0
    X[[3, 20]] = 0
    codes = rng.integers(3, size=30)
    expected = slow_marks(X, codes, 3)
    assert marks_of(X, codes, 3).tolist() == expected
    assert marks_of(np.asfortranarray(X), codes, 3).tolist() == expected
    assert marks_of(np.repeat(X, 2, axis=1)[:, ::2], codes, 3).tolist() == expected
    sparse = scipy.sparse.csr_array(X)
    order = rng.permutation(30)
    assert marks_of(sparse, codes, 3).tolist() == expected
    assert marks_of(sparse[order], codes[order], 3).tolist() == expected
    assert (marks_of(X[:11], codes[:11], 3) + marks_of(sparse[11:], codes[11:], 3)).tolist() == expected


CHANGES = {
    "one value by its last bit": lambda X: X.__setitem__((333, 17), np.nextafter(X[333, 17], X.dtype.type(np.inf))),
    "two features negated": lambda X: X.__setitem__((slice(None), [3, 4]), -X[:, [3, 4]]),
    "two features exchanged": lambda X: X.__setitem__((slice(None), [3, 4]), X[:, [4, 3]]),
    "doubled": lambda X: np.multiply(X, 2, out=X),
    "negated": lambda X: np.negative(X, out=X),
    "a feature shuffled": lambda X: X.__setitem__((slice(None), 5), np.random.default_rng(0).permutation(X[:, 5])),
    "rows of two contexts exchanged": lambda X: X.__setitem__([0, 399], X[[399, 0]]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_rows_has_another_mark(change):
    data = make_contexts(4, 40, 3, n_samples=100, noise=0.3, random_state=0)
    for dtype in (np.float32, np.float64):
        X = data.X.astype(dtype)
        before = marks_of(X, data.y, 4)
        CHANGES[change](X)
        assert (marks_of(X, data.y, 4) != before).any()
