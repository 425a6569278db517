"""LAPACK's Cholesky factorisation in place, without Python's lock.

NumPy's copies a matrix before and after, one number at a time, and takes up to three times as long; SciPy's functions
hold the lock, so that threads wait for each other. SciPy also exports LAPACK for compiled code, as pointers that any
caller may use (``scipy.linalg.cython_lapack``). Where these are not as expected, SciPy's functions serve: the result is
the same.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import cython_lapack, lapack

from .._utils.types import Array

_NAMES = {np.dtype(np.float32): "spotrf", np.dtype(np.float64): "dpotrf"}
# Half, order, numbers, leading dimension, info; integers of 32 bits, as "int *" in the signature says.
_SIGNATURE = b"void (char *, int *, "
_POTRF = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int), ctypes.c_void_p, *[ctypes.POINTER(ctypes.c_int)] * 2
)


def has_cholesky_factor(S: Array) -> bool:
    """Whether a symmetric S (p, p), in Fortran's order, has a Cholesky factor. The half below the diagonal is changed.

    Cost p^3 / 3, no memory. May be called in several threads; which threads LAPACK itself uses is up to the caller.
    """
    p = len(S)
    potrf = _potrf(S.dtype)
    if potrf is None:
        factor, info = getattr(lapack, _NAMES[S.dtype])(S, lower=1, clean=0, overwrite_a=1)
    else:
        order, result = ctypes.c_int(p), ctypes.c_int(0)
        potrf(b"L", ctypes.byref(order), S.ctypes.data, ctypes.byref(order), ctypes.byref(result))
        factor, info = S, result.value
    # A pivot that is not a number is no error for every LAPACK, but is passed on to the last.
    return info == 0 and bool(factor[-1, -1] > 0)


@cache
def _potrf(dtype: np.dtype[Any]) -> Any:
    """Return LAPACK's function for this precision, or None where SciPy exports another than expected."""
    capsule = getattr(cython_lapack, "__pyx_capi__", {}).get(_NAMES[dtype])
    if capsule is None:
        return None
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    signature = api.PyCapsule_GetName(capsule)
    if not signature.startswith(_SIGNATURE) or signature.count(b"int *") != 3:
        return None
    return _POTRF(api.PyCapsule_GetPointer(capsule, signature))
