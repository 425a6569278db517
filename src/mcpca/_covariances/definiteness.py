"""Is every covariance of a stack positive semi-definite? By Cholesky factorisations, in single precision if that tells.

``S + shift I`` has a Cholesky factor where no eigenvalue of S is below ``-shift``, which costs far less than the
eigenvalues do. A factorisation in single precision takes half the time of one in double, and errs by a multiple of
``sqrt(p) eps |S|``. So a factor of ``S + (shift - margin) I``, with a margin of that size, shows in single precision
what is asked of double: covariances with noise in all directions pass so. Those that fail, as all that are singular do,
are factored in double precision, and have the last word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._linalg.cholesky import has_cholesky_factor
from .._utils.parallel import each, n_workers, one_thread_each
from .._utils.types import Array

# Up to so many features many covariances are factored in one call of NumPy, for which they are copied: 2 MB at a time,
# and at most a sixteenth of the stack.
_SMALL = 128
_CHUNK_NUMBERS = 2**18
_CHUNK_SHARE = 16
# Copies of larger ones, one for each thread, may have so much of the stack.
_COPIES_SHARE = 0.2
# Without room for a copy: by blocks of a twelfth of the columns, but no narrower than 48. Narrower blocks need less
# room, and are slower.
_NARROWEST_BLOCK = 48
_BLOCKS = 12
# Operations k p^3 below which starting threads costs more than they gain.
_WORTHWHILE_OPERATIONS = 10**8
# The margin, in units of ``sqrt(p) eps |S|``. Errors seen are below a tenth of it.
_MARGIN = 4.0
# Norms of covariances from this to its inverse are factored in single precision; products stay in its range.
_LEAST_SINGLE = 1e-28


def indefinite_part(S: Array, norms: Array, shift: Array) -> slice | None:
    """Return contexts among which one has an eigenvalue below ``-shift`` (k,), the first such; None if there is none.

    Parameters
    ----------
    S : ndarray (k, p, p)
        Symmetric, finite, float32 or float64.
    norms : ndarray (k,)
        Their Frobenius norms.
    shift : ndarray (k,)
        Positive.

    Notes
    -----
    Cost O(k p^3 / 3); memory at most a fifth of the stack, or half a covariance where there are fewer than five.
    """
    k, p, _ = S.shape
    available = n_workers() if k * p**3 > _WORTHWHILE_OPERATIONS else 1
    if p <= _SMALL:
        step = max(1, min(_CHUNK_NUMBERS, S.size // (_CHUNK_SHARE * available)) // (p * p))
        parts = [slice(i, min(i + step, k)) for i in range(0, k, step)]
        return _first_failure(parts, lambda part: _all_have_factors(S[part], shift[part], p), available)
    # In threads of our own: those of SciPy's library would go on spinning beside those of NumPy's.
    contexts = [slice(i, i + 1) for i in range(k)]
    single = int(_COPIES_SHARE * k * 2)  # copies that there is room for: of half the size in single precision
    if single:
        margin = _MARGIN * np.sqrt(p) * np.finfo(np.float32).eps * norms
        reaches = (norms > _LEAST_SINGLE) & (norms < 1 / _LEAST_SINGLE)

        def passes(part: slice) -> bool:
            i = part.start
            return bool(reaches[i]) and _has_factor(S[i], shift[i] - margin[i], np.float32)

        with one_thread_each():
            failed = _first_failure(contexts, passes, min(available, single))
        if failed is None:
            return None
        # Those before it have passed. Others are likely to fail as it did, so no more of them are tried.
        contexts = contexts[failed.start :]
    double = int(_COPIES_SHARE * k)
    if not double:
        width = max(_NARROWEST_BLOCK, p // _BLOCKS)
        return _first_failure(contexts, lambda part: _all_have_factors(S[part], shift[part], width), 1)
    with one_thread_each():
        return _first_failure(
            contexts, lambda part: _has_factor(S[part.start], shift[part.start], np.float64), min(available, double)
        )


def _first_failure(parts: list[slice], passes: Callable[[slice], bool], workers: int) -> slice | None:
    """Return the first of the parts that does not pass."""
    for part, passed in zip(parts, each(passes, parts, workers), strict=True):
        if not passed:
            return part
    return None


def _has_factor(S: Array, shift: float, dtype: type[np.floating[Any]]) -> bool:
    """Whether ``S + shift I`` has a Cholesky factor, in a copy of this precision."""
    # S is symmetric: its transpose is copied without a change of order.
    copy = np.array(S.T, dtype=dtype, order="F")
    np.einsum("pp->p", copy)[...] += dtype(shift)
    return has_cholesky_factor(copy)


def _all_have_factors(S: Array, shift: Array, width: int) -> bool:
    """Whether all ``S_i + shift_i I`` have Cholesky factors, by NumPy.

    Column block by column block (left-looking), of which only what lies below the diagonal is kept: with narrow blocks
    half the room of S.
    """
    # S (k', p, p), panel (k', p - j, w), each element of below (k', p - j, w): all contexts of a slice side by side.
    p = S.shape[1]
    below: list[Array] = []  # for each block so far, the rows of the factor from row j on
    for j in range(0, p, width):
        panel = S[:, j:, j : j + width].astype(np.float64)
        n_columns = panel.shape[2]
        diagonal = np.arange(n_columns)
        panel[:, diagonal, diagonal] += shift[:, None]
        # What earlier columns explain of this panel: L[j:, :j] L[j:j+w, :j]^T.
        for rows in below:
            panel -= rows @ rows[:, :n_columns].transpose(0, 2, 1)
        try:
            head = np.linalg.cholesky(panel[:, :n_columns])
        except np.linalg.LinAlgError:  # a diagonal block is not positive definite
            return False
        if j + width < p:
            below = [rows[:, n_columns:] for rows in below]
            # L21 = P21 L11^-T, by an inverse of w x w: NumPy has no triangular solve.
            below.append(panel[:, n_columns:] @ np.linalg.inv(head).transpose(0, 2, 1))
    return True
