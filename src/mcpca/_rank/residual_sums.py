"""What covariances hold outside r directions, for any r, from sums that are formed once.

Let V (p, r) be orthonormal, ``P = I - V V^T`` and ``Z_i = P S_i P`` (m = p - r directions), ``t_i = tr Z_i / m``. The
noise test wants the matrix ``L_r = sum_i w_i (Z_i - t_i P)^2`` at many r. As ``Z_i^2 = P S_i^2 P - P S_i V V^T S_i P``,

    L_r = P ( sum_i w_i S_i^2 - sum_i w_i (S_i V)(S_i V)^T - 2 sum_i w_i t_i S_i + sum_i w_i t_i^2 I ) P:

one sum of squares, O(k p^3), serves all r; a level costs O(k p^2) and what V has gained since the last one, and no
eigenvalue problem of single contexts. V are the leading eigenvectors of ``sum_i w_i S_i^2``, that is, left singular
vectors of the flattening with the contexts weighted; directions found in other ways can be put behind the first r.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from .._linalg.eigenbasis import top_eigenvectors
from .._utils.types import Array
from .null_draws import ScaledMoments, projected, square

# Up to here all eigenvectors are found at once; above, some leading ones by Lanczos until more are needed.
SMALL = 450
LEADING = 48
_KRYLOV_BLOCKS = 5
_TOL = 1e-3
_SMALL_MATRIX = 200  # up to here all eigenvalues are found, beyond it the top one by Lanczos
_EIGENVALUE_TOL = 1e-4
_KEPT = 12  # residuals, and partial sums for them, that are kept: a p x p matrix each


class Residual(NamedTuple):
    """``P M P`` for a symmetric M (p, p) and ``P = I - V V^T``, without forming it where p is large."""

    inner: Array
    V: Array

    def matrix(self) -> Array:
        """Return ``P M P``; cost O(p^2 r)."""
        return projected(self.inner, self.V)

    def trace(self) -> float:
        """Return ``tr P M P``."""
        return float(np.trace(self.inner) - np.sum(self.V * (self.inner @ self.V)))

    def top(self) -> tuple[float, Array]:
        """Return the top eigenvalue and its eigenvector; M has to be positive semi-definite outside V."""
        p = len(self.inner)
        if p <= _SMALL_MATRIX:
            return top_pair(self.matrix())
        V = self.V

        def times(x: Array) -> Array:
            x = x.ravel()
            y = self.inner @ (x - V @ (V.T @ x))
            return np.asarray(y - V @ (V.T @ y))

        return top_pair(LinearOperator((p, p), matvec=times, dtype=np.float64))


def top_pair(Z: Any) -> tuple[float, Array]:
    """Return the top eigenvalue of a symmetric matrix, or operator, and its eigenvector; by Lanczos if it is large."""
    if Z.shape[0] <= _SMALL_MATRIX:
        values, vectors = np.linalg.eigh(Z)
        return float(values[-1]), np.asarray(vectors[:, -1])
    start = np.random.default_rng(0).standard_normal(Z.shape[0])
    try:
        values, vectors = eigsh(Z, 1, which="LA", v0=start, tol=_EIGENVALUE_TOL)
    except ArpackNoConvergence:
        values, vectors = np.linalg.eigh(Z @ np.eye(Z.shape[0]))
    return float(values[-1]), np.asarray(vectors[:, -1])


class ResidualSums:
    """Residuals of covariances ``data.scaled(i)`` outside the leading columns of ``V``, with ``weights`` (k',).

    Memory: the products of V with the covariances, k p R numbers for R columns, and some p x p matrices.
    """

    def __init__(self, data: ScaledMoments, weights: Array) -> None:
        self.data = data
        self.weights = weights
        self.p = data.S.shape[1]
        self.squares = data.total_square(weights)
        self.traces = np.einsum("kpp->kp", data.S).astype(np.float64)[data.varying] @ data.features**-2.0
        self.traces /= data.size[data.varying]
        self._own: Array | None = None
        self.V = np.empty((self.p, 0))
        self._products: list[tuple[int, Array]] = []  # from column c on, sqrt(w_i) (S_i v_c)^T, (k', columns, p)
        self._variances = np.empty((0, len(weights)))  # v_c^T S_i v_c
        self._removed: dict[int, Array] = {}  # sum_i w_i (S_i V)(S_i V)^T of so many columns
        self._known: dict[int, Residual] = {}

    def grow(self, r: int) -> None:
        """Have at least ``r`` columns in V."""
        R = self.V.shape[1]
        if r <= R:
            return
        if R and self._own is None:
            self._append(r)  # directions were inserted: what follows are eigenvectors outside of them
            return
        wanted = self._leading(r)
        self._add(wanted[:, R : max(r, min(wanted.shape[1], 2 * R, self.p))])

    def _leading(self, r: int) -> Array:
        if self._own is None or self._own.shape[1] < r:
            if self.p > SMALL and r <= LEADING:
                start = np.random.default_rng(0).standard_normal((self.p, LEADING))
                top = top_eigenvectors(
                    lambda V: self.squares @ V, start, LEADING, LEADING, tol=_TOL, eps=1e-15, most=_KRYLOV_BLOCKS
                )
                self._own = top.vectors
            else:
                self._own = np.ascontiguousarray(np.linalg.eigh(self.squares)[1][:, ::-1])
                if self.V.shape[1]:
                    # The first ones stay as they are: those that follow are orthogonal to them.
                    rest = self._own - self.V @ (self.V.T @ self._own)
                    self._own = np.linalg.qr(np.hstack([self.V, rest]))[0][:, : self.p]
        return self._own

    def insert(self, r: int, v: Array) -> None:
        """Put direction ``v`` (p,) behind the first ``r`` columns, and forget those that were there."""
        self.grow(r)
        v = v - self.V[:, :r] @ (self.V[:, :r].T @ v)
        v /= np.linalg.norm(v)
        self.V = self.V[:, :r]
        self._products = [(start, of[:, : r - start]) for start, of in self._products if start < r]
        self._variances = self._variances[:r]
        self._known = {known: residual for known, residual in self._known.items() if known <= r}
        self._removed = {known: total for known, total in self._removed.items() if known <= r}
        self._own = None
        self._add(v[:, None])

    def _append(self, r: int) -> None:
        """Continue V by the leading eigenvectors of the squares outside of it."""
        P = np.eye(self.p) - self.V @ self.V.T
        vectors = np.linalg.eigh(P @ self.squares @ P)[1][:, ::-1]
        new = vectors[:, : r - self.V.shape[1]]
        new = new - self.V @ (self.V.T @ new)
        self._add(np.linalg.qr(new)[0])

    def _add(self, columns: Array) -> None:
        rows = np.ascontiguousarray(columns.T)
        roots = np.sqrt(self.weights)[:, None, None]
        products = np.empty((len(roots), *rows.shape))

        # Each call writes to its own contexts only, so that threads need no lock.
        def fill(part: slice) -> Array:
            of_part = np.matmul(rows, self.data.batch(part), out=products[part])
            variances = np.einsum("kcp,cp->ck", of_part, rows)
            of_part *= roots[part]
            return np.asarray(variances)

        variances = np.hstack(list(self.data.each_of(fill, self.data.parts())))
        self._products.append((self.V.shape[1], products))
        self.V = np.hstack([self.V, columns])
        self._variances = np.concatenate([self._variances, variances])

    def sizes(self, r: int) -> Array:
        """Return ``t_i`` (k',)."""
        self.grow(r)
        return np.asarray(np.maximum(self.traces - self._variances[:r].sum(axis=0), 0) / (self.p - r))

    def residual(self, r: int) -> Residual:
        """Return ``L_r`` for the first ``r`` columns of V; the last few are kept."""
        if r not in self._known:
            t = self.sizes(r)
            w = self.weights
            inner = self.data.combined(-2 * w * t)
            inner += self.squares
            inner -= self._removed_by(r)
            inner[np.arange(self.p), np.arange(self.p)] += float(w @ t**2)
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[r] = Residual(inner, self.V[:, :r])
        return self._known[r]

    def pooled(self, r: int) -> Residual:
        """Return ``sum_i f_i Z_i / t_i / sum_i f_i`` for the first ``r`` columns of V; cost O(k p^2)."""
        t = self.sizes(r)
        f = self.data.freedom[self.data.varying]
        safe = np.where(t > 0, t, np.inf)
        return Residual(self.data.combined(f / safe / max(f[t > 0].sum(), 1.0)), self.V[:, :r])

    def _removed_by(self, r: int) -> Array:
        """Return ``sum_i w_i (S_i V)(S_i V)^T`` for r columns, from what is known of fewer."""
        known = max((n for n in self._removed if n <= r), default=0)
        total = self._removed.get(known, np.zeros((self.p, self.p)))
        if known < r:
            for start, of in self._products:
                some = of[:, max(known - start, 0) : max(r - start, 0)]
                if some.shape[1]:
                    pieces = [some[part] for part in self.data.parts(some.shape[1])]
                    total = sum(self.data.each_of(lambda piece: square(piece.reshape(-1, self.p)), pieces), total)
            if len(self._removed) > _KEPT:
                del self._removed[max(self._removed)]
            self._removed[r] = total
        return np.asarray(total)
