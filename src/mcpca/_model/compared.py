"""Which loadings contexts are compared by, and how results say so.

By least squares a loading contains the noise variance of its context: contexts with more noise (shallower sequencing,
another machine) have more of every MCPC, however many rows they have. What compares contexts therefore takes the
corrected loadings unless told otherwise, and its result says which it took. The choice and the words are the same for
a fitted model (``FittedModel``) and for a fit stored in an AnnData (``_results.fitted.Fitted``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._utils.array_api import to_host
from .._utils.types import Array

# As part of a sentence: "Tested were ...".
BESIDE_NOISE = "loadings of a fit with noise, which is not part of them"
CORRECTED = "corrected loadings: the noise of each context is taken out"
AS_FITTED = "loadings as fitted: the noise of each context is in them"
NO_NOISE = "loadings as fitted: beside the MCPCs there is no noise that could be taken out"
CROSS_FITTED = "cross-fitted loadings: neither noise nor what axes fit of it in their own rows is in them"
OLDER = "loadings as fitted, with the noise of each context in them: a fit of an older mcpca has no corrected ones"

_ROUNDING = 64  # units in the last place of the largest loading


class Compared(NamedTuple):
    """Loadings (k, r) on the host, which they are in words, and a short name for axes and titles."""

    values: Array
    words: str
    name: str


def compared(
    B: Array, corrected_loadings: Array | None, noise: str | None, corrected: bool, *, cross_fitted: bool = False
) -> Compared:
    """Return the loadings by which to compare contexts.

    Parameters
    ----------
    B, corrected_loadings : ndarray (k, r), ndarray (k, r) or None
        With the noise as the fit has it, and without; None for fits of older versions.
    noise : str or None
        The model of noise of the fit; None if the noise is in B.
    corrected : bool
        Whether to take the noise out.
    cross_fitted : bool
        Whether the corrected loadings are of other rows than the axes.
    """
    if not isinstance(corrected, (bool, np.bool_)):
        raise TypeError(f"corrected={corrected!r}; pass True, or False for loadings that contain the noise.")
    if corrected and cross_fitted and corrected_loadings is not None:
        return Compared(np.asarray(to_host(corrected_loadings)), CROSS_FITTED, "cross-fitted loading")
    # A fit with noise has one kind of loadings.
    if noise is not None:
        return Compared(np.asarray(to_host(B)), BESIDE_NOISE, "loading")
    if not corrected:
        return Compared(np.asarray(to_host(B)), AS_FITTED, "loading")
    if corrected_loadings is None:
        return Compared(np.asarray(to_host(B)), OLDER, "loading")
    values = np.asarray(to_host(corrected_loadings))
    fitted = np.asarray(to_host(B))
    # Nothing but rounding was taken out if nothing varies outside the span of A; there may be no outside at all.
    if np.abs(values - fitted).max() <= _ROUNDING * np.finfo(values.dtype).eps * fitted.max():
        return Compared(fitted, NO_NOISE, "loading")
    return Compared(values, CORRECTED, "corrected loading")
