"""Checks of covariances that lie on a device: cheap tests there, and the host's check where one of them fails.

``check_stack`` is what ``decompose`` and ``MCPCA.fit_covariances`` call for arrays of any library; NumPy's arrays go
straight to ``validation.check_covariances``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._utils.array_api import as_float, is_device_array, stand_in, to_host, without_gradient
from .._utils.types import Array
from .array_memory import context_chunks
from .stack import CovarianceStack, has_double
from .validation import NEGATIVE_ULPS, SYMMETRY_ULPS, check_covariances, check_stack_form, probe


def check_stack(S: Any, name: str = "S") -> Any:
    """``check_covariances`` for arrays anywhere: those on a device stay there.

    Cost O(k p^3) on the device. Where something seems wrong the whole stack comes to the host, whose check has the last
    word and the message.
    """
    if not is_device_array(S):
        return check_covariances(S, name)
    check_stack_form(stand_in(S), name)
    S = as_float(without_gradient(S))
    # The products below are in float64. Without it a copy is checked on the host, and S itself returned.
    if not has_double(S):
        check_covariances(to_host(S), name)
        return S
    stack = CovarianceStack(S)
    p = stack.n_features
    eps = float(np.finfo(stack.dtype).eps)
    with np.errstate(over="ignore", invalid="ignore"):  # of libraries that compute by NumPy
        skew = _skewness(stack)
        # A squared norm may overflow where the covariance does not. The tests below then fail, and the check on the
        # host, which rescales, decides.
        scale = np.sqrt(stack.squared_norms())
        # NaN and infinite entries reach the product with the probe, whose entries are all positive, so no separate
        # search is needed.
        good = np.isfinite(skew).all() and (skew <= SYMMETRY_ULPS * eps * np.sqrt(p) * scale).all()
        # A covariance of zeros has no scale; any positive shift makes it definite.
        good = good and _is_definite(stack, np.where(scale > 0, NEGATIVE_ULPS * eps * p * scale, 1))
    if not good:
        check_covariances(to_host(S), name)
    return S


def _skewness(stack: CovarianceStack) -> Array:
    """Return ``max |S_i x - S_i^T x|`` (k,) for one random probe x; NaN where S_i has a NaN."""
    memory = stack.memory
    xp = memory.xp
    # S x and x S, that is S^T x: two products of O(p^2), and no transposed copy of S.
    x = memory.send(probe(stack.n_features))
    gaps = []
    for part in context_chunks(stack.values, memory):
        S = memory.double(stack.values[part, ...])
        gaps.append(memory.receive(xp.max(xp.abs(xp.matmul(S, x) - xp.matmul(x, S)), axis=1)))
    return np.concatenate(gaps)


def _is_definite(stack: CovarianceStack, shift: Array) -> bool:
    """Whether every ``S_i + shift_i I`` has a Cholesky factorisation. Cost O(k p^3).

    Where there is none some libraries raise, some return NaN and some return anything, so the factor is compared with
    the matrix along one vector.
    """
    memory = stack.memory
    xp = memory.xp
    p = stack.n_features
    # M (k', p, p), x (p, 1): one chunk of contexts is shifted and factored in one call.
    identity = memory.send(np.eye(p))
    x = memory.send(probe(p)[:, None])
    for part in context_chunks(stack.values, memory):
        M = memory.double(stack.values[part, ...]) + memory.send(shift[part, None, None]) * identity
        try:
            L = xp.linalg.cholesky(M)
        # Each library has its own error; NumPy's LinAlgError is a ValueError, PyTorch's a RuntimeError.
        except (RuntimeError, ValueError, ArithmeticError):
            return False
        # L L^T x against M x. The rounding of a valid factor is far below the shift, which is a hundred p eps |S|.
        gap = memory.receive(xp.max(xp.abs(L @ (xp.matrix_transpose(L) @ x) - M @ x), axis=(1, 2)))
        # A NaN in L fails at least one of the comparisons.
        has_factor = bool(xp.all(xp.linalg.diagonal(L) > 0)) and (gap <= shift[part] * p**0.5).all()
        if not has_factor:
            return False
    return True
