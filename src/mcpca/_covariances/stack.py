"""Covariances held as one (k, p, p) array, in NumPy or on a device, and the products that solvers need of them.

``CovarianceStack`` implements the ``Covariances`` protocol for data whose covariances were formed; the other
implementation is ``StreamedCovariances``. The functions below the class are the same products for plain NumPy arrays,
which solvers call in their inner loops on compressed cores (e, q, q).

Every product is a few large matrix products over chunks of contexts. The contexts of a chunk lie below each other as
one (k' p, p) matrix F. Since each S_i is symmetric, ``A^T F^T`` holds all ``a_j^T S_i`` at once: one call of BLAS, and
no loop over contexts. Results are in float64, whatever the precision of the array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from .._utils.array_api import is_device_array, namespace, to_host, widest_float
from .._utils.parallel import each, n_workers
from .._utils.types import Array
from .array_memory import HOST, ArrayMemory, context_chunks, memory_of
from .flattening import EXACT, flattening_basis
from .interface import Basis, Covariances

_Part = TypeVar("_Part")
# Numbers of covariances from which on threads of our own are worth starting for a product with them.
_WORTHWHILE_NUMBERS = 2**21


@dataclass(frozen=True)
class CovarianceStack:
    """``Covariances`` of an array (k, p, p), NumPy's or on a device, which is neither copied nor changed.

    Products run where the array is, and their results come to the host. Beside the array they need O(p^2) memory; on a
    device a few p x p arrays or 128 MB, whichever is larger. The device must have float64; see ``as_stack``.
    ``basis_tol`` is what a basis that is iterated for may miss.
    """

    values: Any
    basis_tol: float = EXACT

    # A frozen dataclass refuses assignment, but ``cached_property`` writes to ``__dict__`` directly.
    @cached_property
    def memory(self) -> ArrayMemory:
        """Where the array is."""
        return memory_of(self.values)

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
        """Precision of the array, as NumPy calls it."""
        return self.memory.dtype_of(self.values)

    def basis(self, q: int, r: int) -> Basis:
        """Return the top ``q`` left singular vectors; see ``flattening_basis``."""
        return flattening_basis(self.values, q, r, self.memory, self.basis_tol)

    def array_or_none(self) -> Array | None:
        """Return the array if it is NumPy's, and None if it is on a device."""
        return self.values if self.memory is HOST else None

    def whole(self) -> Array:
        """Return all entries on the host, in float64."""
        return self.memory.receive(self.values)

    def congruences(self, A: Array) -> Iterator[Array]:
        """Yield ``A^T S_i A``. Cost O(k p^2 m)."""
        columns = self.memory.send(A)  # once, and not for every chunk
        # ``values[part, ...]`` and not ``values[part]``, here and below: the array API standard leaves an index without
        # an ellipsis undefined unless it names every axis.
        for part in context_chunks(self.values, self.memory):
            products = congruence(self.values[part, ...], columns, self.memory)
            # Contexts from the middle (m, k', m) to the front, as a view: callers copy or reduce the chunk anyway.
            yield self.memory.receive(products).transpose(1, 0, 2)

    def variances_along(self, A: Array) -> Array:
        """Return ``a_j^T S_i a_j`` (k, m). Cost O(k p^2 m)."""
        return variances_along(self.values, A, self.memory)

    def combine(self, A: Array, weights: Array) -> Array:
        """Return ``sum_i S_i A W_i`` (p, m). Cost O(k p^2 m)."""
        xp = self.memory.xp
        p, m = A.shape
        columns = self.memory.send(A)

        def of_chunk(part: slice) -> Any:
            SA = images(self.values[part, ...], columns, self.memory)
            if weights.ndim == 2:
                # Diagonal W_i: column j of the sum is sum_i w_ij S_i a_j, at 1/m of what full W_i cost here.
                return _weighted_sums(SA, self.memory.send(weights[part].T), xp).T
            # Contexts and columns as one long index: sum_i S_i A W_i is (p, m k') times (m k', m).
            return xp.reshape(SA, (-1, p)).T @ self.memory.send(weights[part].transpose(1, 0, 2).reshape(-1, m))

        # Sent from new zeros, so that it may be added to in place although ``send`` on the host returns its argument.
        total = self.memory.send(np.zeros((p, m)))
        for part in context_chunks(self.values, self.memory):
            total += of_chunk(part)
        return self.memory.receive(total)

    def variances(self) -> Array:
        """Return the diagonals (k, p)."""
        return self.memory.receive(self.memory.diagonals(self.values))

    def traces(self) -> Array:
        """Return ``tr S_i`` (k,)."""
        return np.asarray(self.variances().sum(axis=1, dtype=np.float64))

    def squared_norms(self) -> Array:
        """Return ``||S_i||_F^2`` (k,)."""
        entries = self.n_features**2
        norms = []
        for part in context_chunks(self.values, self.memory):
            S = self.memory.double(self.values[part, ...])
            # As products of rows and columns of p^2 numbers: no temporary of squares.
            rows = self.memory.xp.reshape(S, (-1, 1, entries))
            columns = self.memory.xp.reshape(S, (-1, entries, 1))
            norms.append(self.memory.receive(self.memory.xp.matmul(rows, columns)[:, 0, 0]))
        return np.concatenate(norms)

    def norm_errors(self) -> Array:
        """Return zeros (k,): ``squared_norms`` are exact."""
        return np.zeros(self.n_contexts)

    def pooled(self, weights: Array) -> Array:
        """Return ``sum_i weights_i S_i`` (p, p)."""
        p = self.n_features
        if self.memory.flattens_without_copy(self.values):
            # One product: sums over chunks would each be as large as a covariance, and up to four times as slow.
            parts = [slice(0, self.n_contexts)]
        else:
            parts = [*context_chunks(self.values, self.memory)]
        total: Any = None
        for part in parts:
            rows = self.memory.xp.reshape(self.memory.double(self.values[part, ...]), (-1, p * p))
            product = self.memory.send(weights[None, part]) @ rows
            # The first product is the start of the sum: no p x p array of zeros is made and sent for it.
            if total is None:
                total = product
            else:
                total += product
        return self.memory.receive(total).reshape(p, p)

    def scaled(self, scale: Array) -> CovarianceStack:
        """Return the covariances of features multiplied by ``scale`` (p,): a copy, in float64."""
        factors = self.memory.send(scale)  # float64: all libraries promote float32 values times these
        # D S_i D for D = diag(scale): columns first, then rows, by broadcasting, so D is never formed.
        return CovarianceStack(self.values * factors * factors[:, None])

    def weighted(self, weights: Array) -> CovarianceStack:
        """Return the covariances times ``weights`` (k,): a copy, in the precision of the array."""
        # Weights in the precision of the array: float64 weights would turn a float32 stack into one of twice the size.
        values = self.values * self.memory.send(weights[:, None, None], self.values.dtype)
        return CovarianceStack(values, self.basis_tol)


def over_chunks(S: Array, call: Callable[[slice], None]) -> None:
    """Call for slices of the contexts of covariances in memory, in threads of our own where these are worth it."""
    workers = n_workers() if S.size > _WORTHWHILE_NUMBERS else 1
    for _ in each(call, list(context_chunks(S)), workers):
        pass


class BasisImages:
    """``S_i U`` of covariances in memory (k, p, p) for a basis U (p, q): one product with them for all that needs U.

    Memory O(k p q), once they are needed.
    """

    def __init__(self, S: Array, U: Array) -> None:
        self._S = S
        self._U = U

    @cached_property
    def _values(self) -> Array:
        """``u_l^T S_i`` (q, k, p), a chunk of contexts in each thread."""
        k, p, _ = self._S.shape
        values = np.empty((self._U.shape[1], k, p))

        def fill(part: slice) -> None:
            values[:, part] = images(self._S[part], self._U)

        over_chunks(self._S, fill)
        return values

    def slices(self) -> Array:
        """Return ``U^T S_i U`` (k, q, q)."""
        q, k, p = self._values.shape
        return np.ascontiguousarray((self._values.reshape(-1, p) @ self._U).reshape(q, k, q).transpose(1, 0, 2))

    def combine(self, C: Array, weights: Array) -> Array:
        """Return ``sum_i w_ij S_i U c_j`` (p, m). Cost O(k p q m)."""
        q, k, p = self._values.shape
        factors = C[:, None, :] * weights  # (q, k, m)
        return np.asarray(self._values.reshape(-1, p).T @ factors.reshape(q * k, -1))


def each_congruence(S: Covariances, A: Array, call: Callable[[slice, Array], _Part]) -> list[_Part]:
    """Return ``call(part, A^T S_i A)`` for slices of contexts, in their order."""
    results = []
    first = 0
    for cross in S.congruences(A):
        results.append(call(slice(first, first + len(cross)), cross))
        first += len(cross)
    return results


def as_stack(S: Any) -> CovarianceStack:
    """Wrap checked covariances (k, p, p), in NumPy or on a device, as ``Covariances``.

    An array on a device without float64 is copied to the host: with products in float32 a solver may miss its
    tolerance.
    """
    return CovarianceStack(S if has_double(S) else to_host(S))


def has_double(S: Any) -> bool:
    """Whether ``S`` is on a device that computes in float64."""
    return is_device_array(S) and bool(widest_float(S) == namespace(S).float64)


def images(S: Array, A: Any, memory: ArrayMemory = HOST) -> Any:
    """Return ``a_j^T S_i`` as (m, k, p) for A (p, m) in the same memory."""
    k, p, _ = S.shape
    # F (k p, p) is a view of a contiguous float64 stack. Of any other it is a copy, which is why callers pass chunks.
    F = memory.xp.reshape(memory.double(S), (k * p, p))
    # A^T F^T, and not F A, which is its transpose: the p numbers of an image then lie side by side, as the second
    # product of a congruence and the sums over contexts want to read them.
    return memory.xp.reshape(A.T @ F.T, (-1, k, p))


def congruence(S: Array, A: Any, memory: ArrayMemory = HOST) -> Any:
    """Return ``A^T S_i A`` for symmetric ``S_i`` as (m, k, m), contexts in the middle: two products and no loop."""
    half = images(S, A, memory)
    m, k, p = half.shape
    # Bringing contexts to the front would take a copy, which callers that sum over contexts do not need.
    return memory.xp.reshape(memory.xp.reshape(half, (m * k, p)) @ A, (m, k, m))


def variances_along(S: Array, A: Array, memory: ArrayMemory = HOST) -> Array:
    """Return ``h_ij = a_j^T S_i a_j`` (k, m) in float64. Cost O(k p^2 m), memory O(p m) beside the result."""
    columns = memory.send(A)
    # Images (m, k', p) exist for a chunk of contexts at a time; all of them would be m / p of the stack.
    h = np.empty((S.shape[0], A.shape[1]))
    for part in context_chunks(S, memory):
        h[part] = memory.receive(memory.dots(images(S[part, ...], columns, memory), columns))
    return h


def _weighted_sums(SA: Any, weights: Any, xp: Any) -> Any:
    """Return ``sum_i w_ji a_j^T S_i`` (m, p) from the images (m, k, p) and weights (m, k)."""
    # A batch of m products (1, k) by (k, p): no array of weighted images, which would be as large as SA.
    return xp.matmul(weights[:, None, :], SA)[:, 0, :]
