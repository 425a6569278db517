"""What passes over the rows have found that may be asked for again, so that it needs no other pass.

A product of a linear map with U C is that with U, times C: products are known for whole spans.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .._utils.types import Array
from .array_memory import context_chunks

_MOST = 2**25  # numbers of a core that is kept
_IN_SPAN = 1e-10


@dataclass
class PassResults:
    """Of covariances S_i, i = 1..k, and ``G = sum_i S_i S_i``.

    ``basis`` U (p, t) and ``multiplied`` V (p, s) are orthonormal; ``core`` (k, t, t) are the ``U^T S_i U`` and
    ``products`` are G V. ``squared_norms`` (k,) of the S_i are estimates, ``norm_errors`` their standard errors,
    ``variances`` (k, p) their diagonals. ``inside`` (k,) is the part of the squared norms in ``n_inside`` directions,
    which is exact.
    """

    basis: Array | None = None
    core: Array | None = None
    multiplied: Array | None = None
    products: Array | None = None
    squared_norms: Array | None = None
    norm_errors: Array | None = None
    variances: Array | None = None
    inside: Array | None = None
    n_inside: int = 0

    def product(self, V: Array) -> Array | None:
        """Return G V where V is in the span of what has been multiplied."""
        C = _coefficients(self.multiplied, V)
        return None if C is None or self.products is None else self.products @ C

    def congruences(self, A: Array) -> Iterator[Array] | None:
        """Return an iterator of the ``A^T S_i A``, some contexts at a time, where A is in the span of the basis."""
        C, core = _coefficients(self.basis, A), self.core
        if C is None or core is None:
            return None
        return (np.matmul(C.T, np.matmul(core[part], C)) for part in context_chunks(core))

    def basis_with(self, V: Array, k: int) -> Array:
        """Return the basis with an orthonormal V (p, s) beside it, V alone where they overlap, none if too large."""
        before = V[:, :0] if self.basis is None else self.basis
        if before.shape[1] and np.abs(before.T @ V).max() > _IN_SPAN:
            before = V[:, :0]
        wider = np.hstack([before, V])
        return wider if k * wider.shape[1] ** 2 <= _MOST else V[:, :0]

    def norms_are_rough(self, tolerance: float) -> bool:
        """Whether squared norms are not known, or in total not up to this share."""
        if self.squared_norms is None or self.norm_errors is None:
            return True
        return bool(np.sqrt((self.norm_errors**2).sum()) > tolerance * self.squared_norms.sum())

    def estimate_norms(self, lengths: Array, probes: Array, width: int, more: bool) -> None:
        """Learn from squared lengths (k,) of the S_i V, in total, and of S_i x (k, m) for random x outside U.

        U has ``width`` columns, and those of V alone unless there are ``more``. What is known from a wider U stays.
        """
        if width < self.n_inside:
            return
        inside = lengths if not more or self.inside is None else self.inside + lengths
        self.inside, self.n_inside = inside, width
        self.squared_norms = inside + probes.mean(axis=1)
        self.norm_errors = probes.std(axis=1, ddof=1) / np.sqrt(probes.shape[1])

    def widen(self, basis: Array, columns: Array) -> None:
        """Take what ``basis_with`` gave, U, for the basis; the last ``columns`` (k, t, s) of ``U^T S_i U`` are new."""
        t, s = columns.shape[1:]
        core = np.empty((len(columns), t, t), dtype=columns.dtype)
        core[:, :, t - s :] = columns
        core[:, t - s :, : t - s] = columns[:, : t - s].transpose(0, 2, 1)
        own = columns[:, t - s :]
        core[:, t - s :, t - s :] = (own + own.transpose(0, 2, 1)) / 2
        if t > s:
            core[:, : t - s, : t - s] = self.core
        self.basis, self.core = basis, core

    def replace(self, basis: Array, core: Array) -> None:
        """Take this basis and core, if it is orthonormal and they are not too large."""
        if core.size <= _MOST and np.allclose(basis.T @ basis, np.eye(basis.shape[1]), rtol=0, atol=_IN_SPAN):
            self.basis, self.core = basis, core


def _coefficients(U: Array | None, A: Array) -> Array | None:
    """Return the C of ``A = U C`` for an orthonormal U, or None where A is not in its span."""
    if U is None:
        return None
    C = U.T @ A
    outside = np.linalg.norm(A - U @ C, axis=0).max()
    return C if outside <= _IN_SPAN * np.linalg.norm(A, axis=0).min() else None
