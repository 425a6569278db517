"""Analytic Pearson residuals of counts (Lause, Berens and Kobak, 2021), as sparse rows plus a matrix of low rank.

With ``s_c`` the total of row c, ``q_j`` the share of feature j in all counts of the fit, and ``mu = s_c q_j``,

    r_cj = (x_cj - mu) / sqrt(mu + mu^2 / theta),      clipped to [-b, b], with b = sqrt(n) for the n rows of the fit.

Few x are not 0, but no r is. For x = 0 it is ``-f(mu)`` with ``f(mu) = sqrt(mu / (1 + mu / theta))``, a smooth function
of ``log s_c + log q_j``, and a smooth function of a sum is close to one of low rank,

    f(s_c q_j) = sum_l u_l(s_c) w_l(q_j) + error,

here with the leading singular functions on Chebyshev points in log s. Errors are below 1e-11 with 4 terms if means go
up to 1, with 9 if they go up to 100 and with 21 if they go up to 10,000, whatever the range of s. Then
``R = S - U W^T``, where S has the entries

    (min(x, mu + b sqrt(mu + mu^2 / theta))) / sqrt(mu + mu^2 / theta)

in the pattern of the counts, since r + f is x over the root. This needs ``b >= sqrt(theta)``, the bound of f: otherwise
residuals of zeros are clipped, too, and blocks are dense.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse

from .._utils.types import Array
from .blocks import csr_block
from .low_rank_rows import LowRankRows

THETA = 100.0
# Chebyshev points in log s. The error of interpolation over a range of ten decades is below rounding with them.
_POINTS = 128
# Points in log q at which singular functions are found: the sample only has to span what f does there.
_SHARES = 256
# Largest error of f: what is left out must not be seen beside the rounding of residuals, which are about 1.
_ERROR = {np.dtype(np.float32): 1e-7, np.dtype(np.float64): 1e-10}
# Coefficients of terms below this, times singular values of up to some thousand, change f by less than rounding does.
_NO_COEFFICIENT = 1e-12
# Means below this have residuals of zeros below its root, about rounding.
_LEAST_MEAN = 1e-24


@dataclass(frozen=True)
class PearsonResiduals:
    """Residuals of rows, with what they take of the rows of the fit.

    Attributes
    ----------
    shares : ndarray (p,)
        Share of each feature in all counts of the fit, q; they add up to less than 1 if these are only some features.
    totals : tuple of float
        Smallest total of a row that is not 0, and largest, in the fit.
    theta : float
        Overdispersion: counts have the variance ``mu + mu^2 / theta``.
    clip : float
        Bound of the residuals, b.

    Notes
    -----
    New rows have their own totals, and shares and clip of the fit. Rows without counts, and features without counts in
    the fit, have residuals of 0.
    """

    shares: Array
    totals: tuple[float, float]
    theta: float
    clip: float

    @classmethod
    def fitted(
        cls, sums: CountSums, columns: Array | None, theta: float | None, clip: float | None
    ) -> PearsonResiduals:
        """Return residuals for some features of rows with these sums; None is the default of theta and clip."""
        if not sums.largest > 0:
            raise ValueError("X has no counts at all: every row is 0. Pass another matrix or layer.")
        shares = sums.features / sums.features.sum()
        return cls(
            shares if columns is None else shares[columns],
            (sums.smallest, sums.largest),
            THETA if theta is None else float(theta),
            float(np.sqrt(sums.n_rows)) if clip is None else float(clip),
        )

    def to_json(self) -> dict[str, Any]:
        """Return all but the shares as JSON, which has no infinity: for no clip, None."""
        clip = self.clip if np.isfinite(self.clip) else None
        return {"totals": list(self.totals), "theta": self.theta, "clip": clip}

    @classmethod
    def from_json(cls, shares: Array, content: Mapping[str, Any]) -> PearsonResiduals:
        """Return what ``to_json`` was called with; raise if it is not consistent."""
        low, high = (float(total) for total in content["totals"])
        theta = float(content["theta"])
        clip = np.inf if content["clip"] is None else float(content["clip"])
        if not (0 < low <= high < np.inf and theta > 0 and clip > 0 and (shares >= 0).all()):
            raise ValueError("residuals have totals, theta, clip or shares out of bounds")
        return cls(shares, (low, high), theta, clip)

    @property
    def keeps_sparse(self) -> bool:
        """Whether residuals of sparse rows are sparse plus low rank; otherwise they are dense."""
        return bool(self.clip >= np.sqrt(self.theta))

    def of(self, block: Any, totals: Array, dtype: Any) -> Any:
        """Return the residuals of a dense or CSR block of counts with these totals (n,), in this precision.

        Cost O(nnz) and O((n + p) L) for L terms; memory, S and U. A dense block gives a dense one.
        """
        if scipy.sparse.issparse(block) and self.keeps_sparse:
            return self._low_rank(block, totals, np.dtype(dtype))
        X = block.toarray() if scipy.sparse.issparse(block) else np.asarray(block)
        return self._dense(X, totals, np.dtype(dtype))

    def n_terms(self, dtype: Any) -> int:
        """Return L for the totals of the fit."""
        return int(self._terms_of_fit(np.dtype(dtype)).right.shape[1])

    def _dense(self, X: Array, totals: Array, dtype: np.dtype[Any]) -> Array:
        mean = totals[:, None] * self.shares
        # Where the mean is 0 there is nothing to divide by, and the residual of such a feature or row is 0.
        deviation = np.sqrt(mean + mean**2 / self.theta)
        residuals = np.divide(X - mean, deviation, out=np.zeros(X.shape), where=deviation > 0)
        return np.asarray(np.clip(residuals, -self.clip, self.clip, out=residuals).astype(dtype, copy=False))

    def _low_rank(self, block: Any, totals: Array, dtype: np.dtype[Any]) -> LowRankRows:
        # In the precision of the result, and in place: this is done to every entry in every pass.
        mean = np.repeat(totals.astype(dtype), np.diff(block.indptr))
        mean *= self.shares.astype(dtype)[block.indices]
        deviation = mean * dtype.type(1 / self.theta)
        deviation += 1
        deviation *= mean
        np.sqrt(deviation, out=deviation)
        values: Any = block.data
        if np.isfinite(self.clip):
            mean += deviation * dtype.type(self.clip)
            values = np.minimum(values, mean, out=mean)
        # Features of new rows may have had no counts in the fit.
        possible = deviation > 0
        if possible.all():
            values = np.divide(values, deviation, out=deviation)
        else:
            values = np.divide(values, deviation, out=np.zeros(len(values), dtype), where=possible)
        entries = csr_block(values, block.indices, block.indptr, block.shape[1], dtype, canonical=True)
        terms = self._terms_for(totals, dtype)
        return LowRankRows(entries, terms.left(totals).astype(dtype, copy=False), terms.right)

    def _terms_for(self, totals: Array, dtype: np.dtype[Any]) -> _Terms:
        """Return terms for these totals: those of the fit, or wider ones where new rows are outside its range."""
        filled = totals[totals > 0]
        low, high = self.totals
        if not len(filled) or (filled.min() >= low and filled.max() <= high):
            return self._terms_of_fit(dtype)
        bounds = min(low, float(filled.min())), max(high, float(filled.max()))
        return _Terms.of(self.shares, bounds, self.theta, dtype)

    def _terms_of_fit(self, dtype: np.dtype[Any]) -> _Terms:
        return self._single if dtype == np.float32 else self._double

    @cached_property
    def _single(self) -> _Terms:
        return _Terms.of(self.shares, self.totals, self.theta, np.dtype(np.float32))

    @cached_property
    def _double(self) -> _Terms:
        return _Terms.of(self.shares, self.totals, self.theta, np.dtype(np.float64))


@dataclass(frozen=True)
class CountSums:
    """Sums of counts over rows.

    Attributes
    ----------
    features : ndarray (p,)
        Of each feature.
    n_rows, n_empty : int
        Rows, and how many of them have no counts.
    smallest, largest : float
        Totals of rows that have counts; infinity and 0 if there are none.
    """

    features: Array
    n_rows: int
    n_empty: int
    smallest: float
    largest: float

    @classmethod
    def of(cls, block: Any, totals: Array) -> CountSums:
        """Return those of a block of rows with these totals (n,)."""
        filled = totals[totals > 0]
        features = np.asarray(block.sum(axis=0, dtype=np.float64)).ravel()
        return cls(
            features,
            len(totals),
            len(totals) - len(filled),
            float(filled.min(initial=np.inf)),
            float(filled.max(initial=0)),
        )

    @classmethod
    def merged(cls, parts: list[CountSums]) -> CountSums:
        """Return those of all rows from those of some each."""
        return cls(
            np.sum([part.features for part in parts], axis=0),
            sum(part.n_rows for part in parts),
            sum(part.n_empty for part in parts),
            min(part.smallest for part in parts),
            max(part.largest for part in parts),
        )


@dataclass(frozen=True)
class _Terms:
    """``-f(s q_j) = sum_l u_l(s) W_jl``.

    ``coefficients`` (m, L) are those of u_l in Chebyshev polynomials of log s between the logarithms of
    ``bounds``; ``right`` is W (p, L).
    """

    bounds: tuple[float, float]
    coefficients: Array
    right: Array

    @classmethod
    def of(cls, shares: Array, bounds: tuple[float, float], theta: float, dtype: np.dtype[Any]) -> _Terms:
        """Find the terms: the leading left singular vectors of f on a grid, and their products with f at each q."""
        low, high = np.log(bounds[0]), np.log(bounds[1])
        angles = np.pi * (np.arange(_POINTS) + 0.5) / _POINTS
        points = np.exp((low + high) / 2 + (high - low) / 2 * np.cos(angles))
        used = shares > 0
        # Shares so small that f is rounding for all totals need no points of their own.
        least = max(shares[used].min(initial=1), _LEAST_MEAN / bounds[1])
        grid = np.geomspace(least, max(shares.max(), least), _SHARES)
        left, sizes, _ = np.linalg.svd(_root(points[:, None] * grid, theta), full_matrices=False)
        # Singular values fall geometrically, and entries of what is left out are smaller than the first of them.
        L = max(1, int((sizes > _ERROR[dtype]).sum()))
        left = left[:, :L]
        right = np.zeros((len(shares), L))
        right[used] = -_root(shares[used, None] * points, theta) @ left
        # Values at Chebyshev points become coefficients by a cosine transform.
        transform = np.cos(np.outer(np.arange(_POINTS), angles)) * (2 / _POINTS)
        transform[0] /= 2
        coefficients = transform @ left
        # Those of high degree are rounding errors unless totals differ by many decades; each counts with its term.
        n_used = int(np.flatnonzero(np.abs(coefficients * sizes[:L]).max(axis=1) > _NO_COEFFICIENT)[-1]) + 1
        return cls(bounds, coefficients[:n_used], right.astype(dtype))

    def left(self, totals: Array) -> Array:
        """Return U (n, L) in float64; rows without counts have zeros."""
        U = np.zeros((len(totals), self.coefficients.shape[1]))
        low, high = np.log(self.bounds[0]), np.log(self.bounds[1])
        filled = totals > 0
        # Clipped against rounding at the ends only: totals are within the bounds. One total has a range of length 0.
        place = (2 * np.log(totals[filled]) - low - high) / max(high - low, np.finfo(float).tiny)
        U[filled] = np.polynomial.chebyshev.chebval(np.clip(place, -1, 1), self.coefficients).T
        return U


def _root(mean: Array, theta: float) -> Array:
    """Return f(mu), which is minus the residual of 0."""
    return np.asarray(np.sqrt(mean / (1 + mean / theta)))
