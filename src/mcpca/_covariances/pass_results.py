"""What passes over the rows have found that may be asked for again, so that it costs no other pass.

``StreamedCovariances`` looks here before it reads rows, and adds what every pass for the basis brings. The identity
behind it: a linear map M times ``U C`` is ``M U`` times C, so a product that is known for an orthonormal U is known for
everything in its span.

``PassResults`` is a value: learning something returns another one. ``PassMemory`` is the one place that changes, and
holds the latest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from .._utils.types import Array
from .stack import context_chunks

# Numbers in the (k, t, t) core that is kept: 256 MB in double precision. With a larger bound many contexts and a wide
# basis would need more memory than the rows; with a smaller one the core of the basis takes a pass of its own.
_MOST_CORE_NUMBERS = 2**25
# Share of a column's length that may lie outside a span for it to count as inside, and largest inner product of columns
# that count as orthogonal. Results taken from the span are wrong by about this share: it is far below ``tol`` of any
# fit, and far above the rounding of a QR decomposition, which would otherwise ask for passes without need.
_IN_SPAN = 1e-10


@dataclass(frozen=True)
class PassResults:
    """What is known of the covariances S_i, i = 1..k, and of ``G = sum_i S_i S_i``; None where nothing is.

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
    variances : ndarray (k, p)
        Diagonals of the S_i.
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
        """Return ``G V`` where V is in the span of what has been multiplied, None elsewhere."""
        C = _coefficients(self.multiplied, V)
        return None if C is None or self.products is None else self.products @ C

    def congruences(self, A: Array) -> Iterator[Array] | None:
        """Return an iterator of the ``A^T S_i A``, some contexts at a time, where A is in the span of the basis."""
        core = self.core
        C = _coefficients(self.basis, A)
        if C is None or core is None:
            return None
        return (np.matmul(C.T, np.matmul(core[part], C)) for part in context_chunks(core))

    def basis_with(self, V: Array, k: int) -> Array:
        """Return the basis followed by an orthonormal V (p, s): the U of the next core.

        V alone where the two are not orthogonal, and no columns where the core of k contexts would be too large.
        """
        nothing = V[:, :0]
        before = nothing if self.basis is None else self.basis
        if before.shape[1] and np.abs(before.T @ V).max() > _IN_SPAN:
            before = nothing  # Lanczos has started again from its Ritz vectors
        wider = np.hstack([before, V])
        return wider if k * wider.shape[1] ** 2 <= _MOST_CORE_NUMBERS else nothing

    def norms_are_rough(self, tolerance: float) -> bool:
        """Whether the sum of squared norms is unknown, or its standard error exceeds this share of it."""
        if self.squared_norms is None or self.norm_errors is None:
            return True
        return bool(np.sqrt((self.norm_errors**2).sum()) > tolerance * self.squared_norms.sum())

    def with_products(self, V: Array, products: Array) -> PassResults:
        """Return the results with ``G V`` for an orthonormal V."""
        return replace(self, multiplied=V, products=products)

    def with_variances(self, variances: Array) -> PassResults:
        """Return the results with the diagonals (k, p)."""
        return replace(self, variances=variances)

    def with_norms(self, lengths: Array, probes: Array, width: int, *, wider_than_block: bool) -> PassResults:
        """Return the results with squared norms from one more pass.

        ``lengths`` (k,) are the ``||S_i V||^2``, ``probes`` (k, m) the ``||S_i x||^2`` of random x outside U, which has
        ``width`` columns: those of V, and of earlier blocks too where ``wider_than_block``. An estimate from a wider U
        has less left to chance, so it stays.
        """
        if width < self.n_inside:
            return self
        # ||S_i U||^2 is the sum over the blocks of U, each of which was multiplied once.
        inside = self.inside + lengths if wider_than_block and self.inside is not None else lengths
        return replace(
            self,
            inside=inside,
            n_inside=width,
            squared_norms=inside + probes.mean(axis=1),
            norm_errors=probes.std(axis=1, ddof=1) / np.sqrt(probes.shape[1]),
        )

    def with_columns(self, basis: Array, columns: Array) -> PassResults:
        """Return the results with the basis U from ``basis_with``, whose core ``columns`` (k, t, s) complete.

        ``U^T S_i U`` is symmetric, and known for the directions before V: what is missing are its last columns,
        ``U^T S_i V``.
        """
        t, s = columns.shape[1:]
        core = np.empty((len(columns), t, t), dtype=columns.dtype)
        core[:, :, t - s :] = columns
        core[:, t - s :, : t - s] = columns[:, : t - s].transpose(0, 2, 1)
        corner = columns[:, t - s :]  # V^T S_i V, symmetric up to rounding
        core[:, t - s :, t - s :] = (corner + corner.transpose(0, 2, 1)) / 2
        if t > s:
            core[:, : t - s, : t - s] = self.core
        return replace(self, basis=basis, core=core)

    def with_core(self, basis: Array, core: Array) -> PassResults:
        """Return the results with this basis and core; without them if not orthonormal, or too large to keep."""
        small = core.size <= _MOST_CORE_NUMBERS
        if small and np.allclose(basis.T @ basis, np.eye(basis.shape[1]), rtol=0, atol=_IN_SPAN):
            return replace(self, basis=basis, core=core)
        return self


@dataclass
class PassMemory:
    """The latest results of one set of covariances; this changes, and the results do not."""

    results: PassResults = field(default_factory=PassResults)


def _coefficients(U: Array | None, A: Array) -> Array | None:
    """Return the C of ``A = U C`` for an orthonormal U, or None where A is not in its span."""
    if U is None:
        return None
    C = U.T @ A
    outside = np.linalg.norm(A - U @ C, axis=0).max()
    return C if outside <= _IN_SPAN * np.linalg.norm(A, axis=0).min() else None
