"""Covariances as one (k, p, p) array of PyTorch, CuPy, JAX or another library of the array API standard.

All products with the covariances run where the array is; what comes to the host is what a solver works on: a basis
(p, q), a core (k, q, q), columns (p, r).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .._utils.array_api import (
    as_float,
    from_host,
    is_device_array,
    namespace,
    stand_in,
    to_host,
    widest_float,
    without_gradient,
)
from .._utils.types import Array
from .interface import Basis
from .stack import GRAM_LIMIT, CovarianceStack, is_narrow, subspace_iteration
from .validation import NEGATIVE_ULPS, SYMMETRY_ULPS, check_covariances, check_stack_form

_CHUNK = 2**24  # numbers in a temporary on the device: 128 MB


@dataclass(frozen=True)
class DeviceStack:
    """``Covariances`` of a device array (k, p, p), which is neither copied nor changed.

    Works in float64, which the device must have. Memory beside the array a few p x p arrays, or of 128 MB where those
    are smaller; on the host only results.
    """

    values: Any

    @property
    def n_contexts(self) -> int:
        """Number of contexts, k."""
        return int(self.values.shape[0])

    @property
    def n_features(self) -> int:
        """Number of features, p."""
        return int(self.values.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the array, as NumPy calls it."""
        return np.dtype(np.float32 if self.values.dtype == self._xp.float32 else np.float64)

    @cached_property
    def _xp(self) -> Any:
        return namespace(self.values)

    def basis(self, q: int, r: int) -> Basis:
        """Return the top ``q`` left singular vectors. Cost O(k p^3 + p^3), memory O(p^2).

        By the Gram matrix ``sum_i S_i S_i``; where the first ``r`` singular values reach so far down that squaring
        loses them, by a chunked QR.
        """
        p = self.n_features
        gram = self._gram()
        top = None
        if is_narrow(q, p):
            top = subspace_iteration(lambda Q: self._receive(gram @ self._send(Q)), p, q, r)
        if top is None:
            w, U = (self._receive(x) for x in self._xp.linalg.eigh(gram))
            top = w[::-1][:q], np.ascontiguousarray(U[:, ::-1][:, :q])
        sigma = np.sqrt(np.maximum(top[0], 0))
        if sigma[0] > 0 and sigma[r - 1] > GRAM_LIMIT * sigma[0]:
            return Basis(top[1], sigma, 0.0)
        R = None
        for part in self._parts():
            F = self._xp.reshape(self._take(part), (-1, p))
            R = self._xp.linalg.qr(F if R is None else self._xp.concat([R, F])).R
        _, sigma, Vt = np.linalg.svd(self._receive(R), full_matrices=False)
        return Basis(np.ascontiguousarray(Vt[:q].T), sigma[:q], 0.0)

    def array_or_none(self) -> Array | None:
        """Return None: the entries are not on the host."""
        return None

    def whole(self) -> Array:
        """Return all entries on the host, in float64."""
        return self._receive(self.values)

    def congruences(self, A: Array) -> Iterator[Array]:
        """Yield ``A^T S_i A``. Cost O(k p^2 m)."""
        xp, columns = self._xp, self._send(A)
        p, m = A.shape
        for part in self._parts():
            cross = xp.reshape(self._images(part, columns), (-1, p)) @ columns
            yield self._receive(xp.reshape(cross, (m, -1, m))).transpose(1, 0, 2)

    def variances_along(self, A: Array) -> Array:
        """Return ``a_j^T S_i a_j`` (k, m). Cost O(k p^2 m)."""
        columns = self._send(A)
        rows = columns.T[:, None, :]
        found = [self._xp.sum(self._images(part, columns) * rows, axis=2) for part in self._parts()]
        return self._receive(self._xp.concat(found, axis=1)).T

    def combine(self, A: Array, weights: Array) -> Array:
        """Return ``sum_i S_i A W_i`` (p, m). Cost O(k p^2 m)."""
        xp, columns = self._xp, self._send(A)
        p, m = A.shape
        out = xp.zeros_like(columns)
        for part in self._parts():
            SA = self._images(part, columns)
            if weights.ndim == 2:
                out = out + xp.matmul(self._send(weights[part].T[:, None, :]), SA)[:, 0, :].T
            else:
                W = self._send(weights[part].transpose(1, 0, 2).reshape(-1, m))
                out = out + xp.reshape(SA, (-1, p)).T @ W
        return self._receive(out)

    def variances(self) -> Array:
        """Return the diagonals (k, p)."""
        return self._receive(self._xp.linalg.diagonal(self.values))

    def squared_norms(self) -> Array:
        """Return ``||S_i||_F^2`` (k,)."""
        found = []
        for part in self._parts():
            S = self._take(part)
            found.append(self._xp.sum(S * S, axis=(1, 2)))
        return self._receive(self._xp.concat(found))

    def norm_errors(self) -> Array:
        """Return zeros (k,): ``squared_norms`` are exact."""
        return np.zeros(self.n_contexts)

    def pooled(self, weights: Array) -> Array:
        """Return ``sum_i weights_i S_i`` (p, p)."""
        p = self.n_features
        out = self._send(np.zeros((1, p * p)))
        for part in self._parts():
            out = out + self._send(weights[None, part]) @ self._xp.reshape(self._take(part), (-1, p * p))
        return self._receive(out).reshape(p, p)

    def scaled(self, scale: Array) -> DeviceStack:
        """Return the covariances of features multiplied by ``scale`` (p,): a copy, in float64."""
        factors = self._send(scale)
        return DeviceStack(self._take(slice(None)) * factors * factors[:, None])

    def weighted(self, weights: Array) -> DeviceStack:
        """Return the covariances times ``weights`` (k,): a copy."""
        return DeviceStack(self.values * from_host(weights[:, None, None], self.values))

    def skewness(self) -> tuple[Array, Array]:
        """Return ``max |S_i x - S_i^T x|`` (k,) for one random probe x, and ``||S_i||_F`` (k,); NaN where S has it."""
        xp = self._xp
        x = self._send(_probe(self.n_features))
        gaps = []
        for part in self._parts():
            S = self._take(part)
            gaps.append(xp.max(xp.abs(xp.matmul(S, x) - xp.matmul(x, S)), axis=1))
        return self._receive(xp.concat(gaps)), np.sqrt(self.squared_norms())

    def is_definite(self, shift: Array) -> bool:
        """Whether every ``S_i + shift_i I`` has a Cholesky factorisation. Cost O(k p^3).

        Libraries raise, return NaN or return anything where there is none, so the factor is compared with the matrix
        along one vector.
        """
        xp, p = self._xp, self.n_features
        identity = self._send(np.eye(p))
        x = self._send(_probe(p)[:, None])
        for part in self._parts():
            M = self._take(part) + self._send(shift[part, None, None]) * identity
            try:
                L = xp.linalg.cholesky(M)
            except (RuntimeError, ValueError, ArithmeticError):
                return False
            gap = xp.max(xp.abs(L @ (xp.matrix_transpose(L) @ x) - M @ x), axis=(1, 2))
            if not bool(xp.all(xp.linalg.diagonal(L) > 0)) or not (self._receive(gap) <= shift[part] * p**0.5).all():
                return False
        return True

    def _parts(self) -> Iterator[slice]:
        """Slices of contexts whose covariances fit a temporary."""
        step = max(1, _CHUNK // self.n_features**2)
        for start in range(0, self.n_contexts, step):
            yield slice(start, min(start + step, self.n_contexts))

    def _take(self, part: slice) -> Any:
        return self._xp.astype(self.values[part, ...], self._xp.float64, copy=False)

    def _images(self, part: slice, columns: Any) -> Any:
        """``a_j^T S_i`` as (m, k', p): one product for all contexts, and rows for the next."""
        S = self._take(part)
        k, p, _ = S.shape
        return self._xp.reshape(columns.T @ self._xp.reshape(S, (k * p, p)).T, (-1, k, p))

    def _gram(self) -> Any:
        """``sum_i S_i S_i`` on the device."""
        p = self.n_features
        gram = None
        for part in self._parts():
            F = self._xp.reshape(self._take(part), (-1, p))
            gram = F.T @ F if gram is None else gram + F.T @ F
        return gram

    def _send(self, x: Array) -> Any:
        return from_host(x, self.values, self._xp.float64)

    def _receive(self, x: Any) -> Array:
        return np.asarray(to_host(x), dtype=np.float64)


def as_stack(S: Any) -> CovarianceStack | DeviceStack:
    """Return checked covariances (k, p, p), of NumPy or of a device, as ``Covariances``.

    Those on a device without float64 are copied to the host: with products in float32 a solver may miss its tolerance.
    """
    return DeviceStack(S) if _has_double(S) else CovarianceStack(to_host(S))


def check_stack(S: Any, name: str = "S") -> Any:
    """``check_covariances`` for arrays anywhere: those on a device stay there.

    Cost O(k p^3) on the device. Where something seems wrong the whole stack comes to the host, whose check has the last
    word and the message.
    """
    if not is_device_array(S):
        return check_covariances(S, name)
    check_stack_form(stand_in(S), name)
    S = as_float(without_gradient(S))
    if not _has_double(S):
        check_covariances(to_host(S), name)
        return S
    stack = DeviceStack(S)
    p, eps = stack.n_features, float(np.finfo(stack.dtype).eps)
    with np.errstate(over="ignore", invalid="ignore"):  # of libraries that compute by NumPy
        skew, scale = stack.skewness()
        good = np.isfinite(skew).all() and (skew <= SYMMETRY_ULPS * eps * np.sqrt(p) * scale).all()
        good = good and stack.is_definite(np.where(scale > 0, NEGATIVE_ULPS * eps * p * scale, 1))
    if not good:
        check_covariances(to_host(S), name)
    return S


def _probe(p: int) -> Array:
    """Between 0.5 and 1.5, so that a rounding error is not amplified; the seed decides no result."""
    return np.random.default_rng(0).uniform(0.5, 1.5, p)


def _has_double(S: Any) -> bool:
    """Whether ``S`` is on a device that computes in float64."""
    return is_device_array(S) and bool(widest_float(S) == namespace(S).float64)
