"""Products of blocks of rows with dense matrices: ``X V`` and ``X^T Z``, where passes spend most of their time.

SciPy's, unless there are so many sparse rows that it pays to have faster ones compiled, and Numba is there to do so
(``_utils.vector_kernels``, and ``_utils.row_kernels`` for what else is done with rows). Which it is depends on the rows
of the whole pass and never on a block, so that the same fit gives the same numbers again.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._utils.types import Array

# Bytes of sparse rows from which on compiled products are used. They save 0.2 s of a fit there. The first fit of a
# process imports Numba and what is compiled, in 0.35 s where Python keeps its modules compiled, as it does unless told
# not to: it gains from twice as many bytes on, and all others gain from here on.
_WORTHWHILE_BYTES = 2**26


class _Compiled(NamedTuple):
    """The modules of compiled code."""

    vectors: ModuleType
    rows: ModuleType


# What is compiled within ``compiled_products``, else None. Threads of ``each`` have it from their caller.
_kernels: ContextVar[_Compiled | None] = ContextVar("kernels", default=None)


@contextmanager
def compiled_products(n_bytes: float) -> Iterator[None]:
    """Have products compiled in the body if sparse rows take ``n_bytes`` and that pays, and if Numba is there.

    Within another body for which that paid it does for any number: of a sample of large rows, say.
    """
    token = _kernels.set(_compiled() if n_bytes >= _WORTHWHILE_BYTES or compiled_rows() else None)
    try:
        yield
    finally:
        _kernels.reset(token)


def times(X: Any, V: Array) -> Array:
    """Return ``X V`` for rows X (n, p) of any kind and V (p, m) or (p,)."""
    kernels = _kernels_for(X, V)
    return np.asarray(X @ V if kernels is None else kernels.times(X, V))


def transposed_times(X: Any, Z: Array) -> Array:
    """Return ``X^T Z`` for such rows and Z (n, m) or (n,)."""
    kernels = _kernels_for(X, Z)
    return np.asarray(X.T @ Z if kernels is None else kernels.transposed_times(X, Z))


def row_kernels(X: Any) -> ModuleType | None:
    """Return the compiled loops over entries if they can be used for the rows X."""
    kernels = _kernels.get()
    is_csr = kernels is not None and scipy.sparse.issparse(X) and X.format == "csr"
    return kernels.rows if kernels is not None and is_csr and X.dtype in (np.float32, np.float64) else None


def compiled_rows() -> bool:
    """Whether ``row_kernels`` are at hand for CSR rows."""
    return _kernels.get() is not None


def _kernels_for(X: Any, V: Array) -> ModuleType | None:
    """Return the compiled products if they can be used for X and V."""
    kernels = _kernels.get()
    # Of a single column SciPy's is as fast.
    if kernels is None or not scipy.sparse.issparse(X) or X.format != "csr" or V.ndim != 2 or V.shape[1] == 1:
        return None
    return kernels.vectors if X.dtype == V.dtype and V.dtype in (np.float32, np.float64) else None


@cache
def _compiled() -> _Compiled | None:
    """Return the modules of compiled code; None without Numba, or where its compiler is switched off."""
    try:
        if importlib.import_module("numba").config.DISABLE_JIT:
            return None
        names = ("mcpca._utils.vector_kernels", "mcpca._utils.row_kernels")
        return _Compiled(*map(importlib.import_module, names))
    except ImportError:
        return None
