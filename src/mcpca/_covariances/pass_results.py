"""Results of passes over the rows that may be needed again, so that they need not be computed twice.

``StreamedCovariances`` looks here before it reads rows, and stores what each pass for the basis has found. By linearity
``M (U C) = (M U) C``: a product with an orthonormal U gives the products with everything in its span.

``PassResults`` is an immutable value; its ``with_...`` methods return new ones. ``PassMemory`` is the single place that
changes, and holds the latest value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from .._utils.types import Array
from .array_memory import context_chunks

# Most numbers in a core (k, t, t) that is kept, 256 MB in double precision. Raising it takes memory where there are
# many contexts and a wide basis; beyond it the solver's core takes one more pass.
_MOST_CORE_NUMBERS = 2**25
# A vector is in a span if no more than this share of its length lies outside, and vectors are orthogonal if their inner
# products are below it. Results taken from a span have about this relative error. Much smaller, and the rounding errors
# of a QR decomposition would cause passes without need; larger, and errors could approach the tolerance of a fit.
_IN_SPAN = 1e-10


@dataclass(frozen=True)
class PassResults:
    """What is known of the covariances S_i, i = 1..k, and of ``G = sum_i S_i S_i``; attributes not known are None.

    Attributes
    ----------
    basis : ndarray (p, t)
        Orthonormal directions U that passes have multiplied.
    core : ndarray (k, t, t)
        ``U^T S_i U``.
    multiplied, products : ndarray (p, s)
        An orthonormal V, and ``G V``.
    squared_norms, norm_errors : ndarray (k,)
        Estimates of ``||S_i||_F^2`` and their standard errors.
    inside : ndarray (k,)
        The part of the squared norms that lies in ``n_inside`` directions, which is exact.
    variances, traces : ndarray (k, p), ndarray (k,)
        Diagonals of the S_i, and their sums.
    """

    basis: Array | None = None
    core: Array | None = None
    multiplied: Array | None = None
    products: Array | None = None
    squared_norms: Array | None = None
    norm_errors: Array | None = None
    variances: Array | None = None
    traces: Array | None = None
    inside: Array | None = None
    n_inside: int = 0

    def product(self, V: Array) -> Array | None:
        """Return ``G V`` if V is in the span of what has been multiplied, else None."""
        C = _coefficients(self.multiplied, V)
        # G (V C) = (G V) C: O(p s^2) instead of a pass.
        return None if C is None or self.products is None else self.products @ C

    def congruences(self, A: Array) -> Iterator[Array] | None:
        """Return an iterator over the ``A^T S_i A``, some contexts at a time, if A is in the span of the basis."""
        core = self.core
        C = _coefficients(self.basis, A)
        if C is None or core is None:
            return None
        # core (k, t, t), C (t, m). A generator: the results, in float64, may be twice as large as the core.
        return (np.matmul(C.T, np.matmul(core[part], C)) for part in context_chunks(core))

    def basis_with(self, V: Array, k: int) -> Array:
        """Return the basis followed by an orthonormal V (p, s), which is the U of the next core.

        This is V alone if the two are not orthogonal, and has no columns if the core of k contexts would be too large.
        """
        nothing = V[:, :0]
        before = nothing if self.basis is None else self.basis
        if before.shape[1] and np.abs(before.T @ V).max() > _IN_SPAN:
            before = nothing  # Lanczos has restarted from its Ritz vectors
        # Earlier directions first: ``with_columns`` takes the last s of them to be V.
        wider = np.hstack([before, V])
        return wider if k * wider.shape[1] ** 2 <= _MOST_CORE_NUMBERS else nothing

    def norms_are_rough(self, tolerance: float) -> bool:
        """Whether the sum of squared norms is unknown, or has a relative standard error above ``tolerance``."""
        if self.squared_norms is None or self.norm_errors is None:
            return True
        # Of the sum, since that is what shares are taken of. Its variance is the sum of variances as if contexts were
        # independent, though they share the probes.
        return bool(np.sqrt((self.norm_errors**2).sum()) > tolerance * self.squared_norms.sum())

    def with_products(self, V: Array, products: Array) -> PassResults:
        """Return these results with ``G V`` for an orthonormal V."""
        return replace(self, multiplied=V, products=products)

    def with_variances(self, variances: Array) -> PassResults:
        """Return these results with the diagonals (k, p)."""
        return replace(self, variances=variances, traces=variances.sum(axis=1))

    def with_traces(self, traces: Array) -> PassResults:
        """Return these results with the traces (k,)."""
        return replace(self, traces=traces)

    def with_norms(self, lengths: Array, probes: Array, width: int, *, wider_than_block: bool) -> PassResults:
        """Return these results with squared norms from one more pass.

        Parameters
        ----------
        lengths : ndarray (k,)
            ``||S_i V||^2``.
        probes : ndarray (k, m)
            ``||S_i x||^2`` for random x orthogonal to U.
        width : int
            Columns of U. An earlier estimate from a wider U is more accurate and is kept.
        wider_than_block : bool
            Whether U has earlier blocks beside V.
        """
        if width < self.n_inside:  # Lanczos has restarted, with a narrower basis
            return self
        # ||S_i U||^2 is the sum over the blocks of U, each multiplied in a pass of its own.
        inside = self.inside + lengths if wider_than_block and self.inside is not None else lengths
        return replace(
            self,
            inside=inside,
            n_inside=width,
            # ||S_i||^2 = ||S_i U||^2 + ||S_i (I - U U^T)||^2, of which only the second term is an estimate.
            squared_norms=inside + probes.mean(axis=1),
            norm_errors=probes.std(axis=1, ddof=1) / np.sqrt(probes.shape[1]),
        )

    def with_columns(self, basis: Array, columns: Array) -> PassResults:
        """Return these results with the basis U from ``basis_with`` and its core.

        ``U^T S_i U`` is symmetric and already known for the directions before V, so its last ``columns`` (k, t, s),
        ``U^T S_i V``, complete it.
        """
        t, s = columns.shape[1:]
        # With U = [U0 V] the core is [[U0^T S U0, U0^T S V], [V^T S U0, V^T S V]]: the last columns are given, the last
        # rows are their transposes, and the first block is the core so far.
        core = np.empty((len(columns), t, t), dtype=columns.dtype)
        core[:, :, t - s :] = columns
        core[:, t - s :, : t - s] = columns[:, : t - s].transpose(0, 2, 1)
        corner = columns[:, t - s :]  # V^T S_i V, symmetric up to rounding
        core[:, t - s :, t - s :] = (corner + corner.transpose(0, 2, 1)) / 2
        if t > s:
            core[:, : t - s, : t - s] = self.core
        return replace(self, basis=basis, core=core)

    def with_core(self, basis: Array, core: Array) -> PassResults:
        """Return these results with this basis and core, unless it is not orthonormal or they are too large to keep."""
        # Coefficients of other vectors are taken as U^T A, which is wrong unless U is orthonormal.
        small = core.size <= _MOST_CORE_NUMBERS
        if small and np.allclose(basis.T @ basis, np.eye(basis.shape[1]), rtol=0, atol=_IN_SPAN):
            return replace(self, basis=basis, core=core)
        return self


@dataclass
class PassMemory:
    """The latest results for one set of covariances. Mutable: a new value replaces the old one."""

    results: PassResults = field(default_factory=PassResults)


def _coefficients(U: Array | None, A: Array) -> Array | None:
    """Return C such that ``A = U C`` for an orthonormal U, or None if A is not in its span."""
    if U is None:
        return None
    # The largest part outside against the shortest column: strict for columns of different lengths, and cheap.
    # U (p, t), A (p, m), C (t, m), from U^T U = I.
    C = U.T @ A
    outside = np.linalg.norm(A - U @ C, axis=0).max()
    return C if outside <= _IN_SPAN * np.linalg.norm(A, axis=0).min() else None
