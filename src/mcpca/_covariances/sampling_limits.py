"""How exactly the leading directions have to be known, given how exactly the rows determine them.

Let ``u_j`` be an eigenvector of ``G = sum_i S_i S_i`` with eigenvalue ``w_j``. Other rows of the same contexts would
have given ``S_i + D_i``, and moved it, to first order, by ``sum_e u_e (u_e^T E u_j) / (w_j - w_e)`` with
``E = sum_i D_i S_i + S_i D_i``. For normal rows, and S for S_i,

    Cov(a^T D_i b, c^T D_i d) = (a^T S c b^T S d + a^T S d b^T S c) / n_i,

so all variances of ``u_e^T E u_j`` are known for the directions U that passes have multiplied, from the core
``T_i = U^T S_i U``. Outside these, the sum over e of the variances of ``u_e^T D_i S_i u_j`` is

    tr(S_i - U T_i U^T) (T_i^3)_jj / n_i

or more. Their eigenvalues are not known; evenly spread between 0 and the last that is, w, the mean of
``1 / (w_j - w_e)^2`` is ``1 / (w_j (w_j - w))``. The standard error of ``u_j`` outside the span of the leading r
directions follows: more with heavy tails, and never above 1, where nothing is known of a direction.

What is left of the error of Lanczos is at most ``|R_j| / (w_j - w)``, with the residual ``R_j``, which tells little
where the scree is flat. It is also estimated by what the last product has changed: from product to product errors
shrink by a factor ``f``; if ``u_j`` has moved by c out of the span of the leading r directions, c f / (1 - f) is left.
``SamplingGoal`` is reached when the smaller of the two is below a tenth of the standard error, for each of the r
directions but those with an error of 1: they turn by a radian from one set of rows to the next, so there is nothing to
converge to.

The last product has more to give: ``G u_j / w_j`` is closer to the answer than u_j, since the part of its error along
``u_e`` is multiplied by ``w_e / w_j``. With eigenvalues that are evenly spread between 0 and w again, an error shrinks
to ``w / (sqrt(3) w_j)`` of itself (``power_step``). Where that is enough, another product is saved.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._utils.types import Array

# Error allowed, in standard errors of each direction. Errors add in squares: a tenth makes the whole half a percent
# larger.
SHARE = 0.1
# Bounds of the factor f: nothing converges so fast that what comes next need not be looked at, and where errors hardly
# shrink, the last change says little of what is left.
_FASTEST, _SLOWEST = 0.2, 0.9


def standard_errors(values: Array, r: int, core: Array, outside: Array, counts: Array) -> Array:
    """Return standard errors (r,) of the first r eigenvectors of G, outside their span.

    Parameters
    ----------
    values : ndarray (m,)
        The largest eigenvalues of G.
    core : ndarray (k, m, m)
        ``U^T S_i U`` for their vectors U.
    outside : ndarray (k,)
        Traces of the S_i outside U.
    counts : ndarray (k,)
        Degrees of freedom of the S_i.

    Notes
    -----
    Cost O(k m^3).
    """
    second = core @ core
    third = second @ core
    diagonals = [np.maximum(np.diagonal(T, axis1=1, axis2=2), 0) for T in (core, second, third)]
    first_jj, second_jj, third_jj = (d[:, :r] for d in diagonals)
    first_ee, second_ee, third_ee = (d[:, r:] for d in diagonals)
    # (e, j): the variance of u_e^T (D S + S D) u_j, times n_i
    others = slice(r, None), slice(None, r)
    crossed = 2 * second[:, *others] ** 2 + 2 * core[:, *others] * third[:, *others]
    variances = np.einsum("ie,ij,i->ej", first_ee, third_jj, 1 / counts)
    variances += np.einsum("ie,ij,i->ej", third_ee, first_jj, 1 / counts)
    variances += 2 * np.einsum("ie,ij,i->ej", second_ee, second_jj, 1 / counts)
    variances += np.einsum("iej,i->ej", crossed, 1 / counts)
    gaps = values[None, :r] - values[r:, None]
    # A gap may be 0, and rounding may leave a variance below 0.
    least = max((np.finfo(float).eps * values[0]) ** 2, np.finfo(float).tiny)
    squares = (np.maximum(variances, 0) / np.maximum(gaps**2, least)).sum(axis=0)
    squares += (outside / counts) @ third_jj / np.maximum(values[:r] * (values[:r] - values[-1]), least)
    return np.asarray(np.sqrt(np.minimum(squares, 1.0)))


def power_step(values: Array, r: int) -> Array:
    """Return the factor (r,) by which the errors of the first r directions shrink if they are multiplied by G.

    ``values`` (m,) are the largest eigenvalues of G; r factors of 1 if no others than these are known.
    """
    if len(values) <= r:
        return np.ones(r)
    return np.asarray(values[-1] / (np.sqrt(3) * np.maximum(values[:r], np.finfo(float).tiny)))


class SamplingGoal:
    """Excess of the errors of leading directions over a tenth of their standard errors, product by product.

    It changes with each call: it remembers the directions and changes of the call before.
    """

    def __init__(self, r: int, core_of: Callable[[Array], Array | None], traces: Array, counts: Array) -> None:
        """``core_of(U)`` returns ``U^T S_i U`` (k, m, m) if it is known; ``traces`` and ``counts`` are (k,)."""
        self._r = r
        self._core_of = core_of
        self._traces = traces
        self._counts = counts
        self._errors: Array | None = None
        self._before: Array | None = None
        self._largest = np.inf

    def __call__(self, values: Array, U: Array, residuals: Array, *, all_moved: bool = True) -> Array | None:
        """Return errors (r,) as multiples of what is allowed, NaN of what rows leave open; None if it cannot tell yet.

        ``values`` (m,) and ``U`` (p, m) are the largest Ritz values and their vectors after one more product,
        ``residuals`` (r,) the lengths of the first r residuals. Without ``all_moved`` the product was of some residuals
        only, so that what it has not changed may be far from its end.
        """
        r = self._r
        core = self._core_of(U)
        if core is not None:
            outside = np.maximum(self._traces - np.trace(core, axis1=1, axis2=2), 0)
            self._errors = standard_errors(values, r, core, outside, self._counts)
        # Otherwise Lanczos has started again, and the errors before are as good.
        before, self._before = self._before, np.ascontiguousarray(U[:, :r])
        if self._errors is None:
            return None
        # A direction without error, as of rank r exactly, need not be waited for once it stays.
        errors = np.maximum(self._errors, np.finfo(np.float32).eps)
        least = max(np.finfo(float).eps * values[0], np.finfo(float).tiny)
        bounds = residuals / np.maximum(values[:r] - values[-1], least) / errors
        bounds[self._errors >= 1] = np.nan
        if before is None or not all_moved:
            self._largest = np.inf
            return np.asarray(bounds / SHARE)
        changes = np.linalg.norm(before - self._before @ (self._before.T @ before), axis=0)
        multiples = changes / errors
        multiples[self._errors >= 1] = np.nan
        largest = float(np.nan_to_num(multiples).max(initial=0.0))
        factor = np.clip(largest / self._largest if np.isfinite(self._largest) else 0.5, _FASTEST, _SLOWEST)
        self._largest = max(largest, np.finfo(float).tiny)
        return np.asarray(np.minimum(multiples * factor / (1 - factor), bounds) / SHARE)
