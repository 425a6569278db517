"""A stand-in for ``cupyx.scipy.sparse`` without a GPU: arrays of array-api-strict on a device that refuses NumPy.

It has only what ``mcpca._utils.device_csr`` asks of CuPy. Products are made by SciPy behind the device's back.
"""

import sys
import types

import array_api_strict as strict
import numpy as np
import scipy.sparse

DEVICE = strict.Device("device1")
NAME = "cupyx.scipy.sparse"


def send(x):
    return strict.asarray(np.array(x), device=DEVICE)


class spmatrix:
    """A matrix in any layout, with SciPy's inside."""

    __module__ = NAME
    ndim = 2

    def __init__(self, inside):
        self._inside = inside
        self.shape = inside.shape

    @property
    def dtype(self):
        return send(np.zeros(1, self._inside.dtype)).dtype

    @property
    def data(self):
        return send(self._inside.data)

    def tocsr(self):
        return csr_matrix(scipy.sparse.csr_matrix(self._inside))

    def toarray(self):
        return send(self._inside.toarray())


class csr_matrix(spmatrix):
    __module__ = NAME

    def __init__(self, given, shape=None):
        if isinstance(given, tuple):
            parts = []
            for array in given:
                assert array.device == DEVICE
                parts.append(np.array(array._array))
            given = scipy.sparse.csr_matrix((parts[0], parts[1], parts[2]), shape=shape, copy=True)
        super().__init__(given)
        self.indices, self.indptr = send(given.indices), send(given.indptr)

    @property
    def has_canonical_format(self):
        return self._inside.has_canonical_format

    def tocsr(self):
        return self

    def copy(self):
        return csr_matrix(self._inside.copy())

    def sum_duplicates(self):
        self._inside.sum_duplicates()
        self.indices, self.indptr = send(self._inside.indices), send(self._inside.indptr)

    def __matmul__(self, V):
        assert V.device == DEVICE
        assert V.dtype == self.dtype
        return send(self._inside @ V._array)


def install(monkeypatch):
    """Make the module importable for one test."""
    module = types.ModuleType(NAME)
    module.csr_matrix = csr_matrix
    outer, scipy_part = types.ModuleType("cupyx"), types.ModuleType("cupyx.scipy")
    outer.scipy, scipy_part.sparse = scipy_part, module
    for each in (outer, scipy_part, module):
        monkeypatch.setitem(sys.modules, each.__name__, each)
