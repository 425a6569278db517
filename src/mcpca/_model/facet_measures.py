"""The facets of a fitted model as the numbers users ask for: averaged, per context, or per component.

``facets`` measures all of them once, at the end of a fit; here they are only summed or averaged, one function for each
method of ``MCPCA``. ``per`` means the same in each of them: None for one number, "context" for an array (k,).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._utils.types import Array
from .facets import Facets


def reconstruction_error(facets: Facets, per: str | None) -> Any:
    """Return ``||S_i - A B_i A^T||_F^2``, averaged over contexts or for each."""
    # A mean over contexts, as in the paper's definition; it stays comparable when contexts are added.
    return _aggregate(facets.in_units("reconstruction_errors"), per, np.mean)


def variance_explained(facets: Facets, per: str | None) -> Any:
    """Return ``||S_i||_F^2 - ||S_i - A B_i A^T||_F^2``, averaged over contexts, for each, or by component (r,)."""
    shares = facets.in_units("variance_shares")  # (k, r); a row adds up to what is explained of that context
    if per == "component":
        return shares.mean(axis=0)
    return _aggregate(shares.sum(axis=1), per, np.mean, also=" or 'component'")


def explained_share(facets: Facets, per: str | None) -> tuple[Any, Any]:
    """Return the share of squared covariance explained and its standard error, in total or for each context."""
    if per not in (None, "context"):
        raise ValueError(f"per={per!r}; choose None or 'context'.")
    # Norms are summed before dividing: the mean of k shares would let contexts of little variance count as much as
    # others.
    share, error = facets.explained_shares(total=per is None)
    return (float(share), float(error)) if per is None else (np.asarray(share), np.asarray(error))


def offdiagonal_correlation(facets: Facets, per: str | None, normalized: bool) -> Any:
    """Return ``||offdiag(A^+ S_i A^+T)||_F^2``, summed or for each; or the root mean square correlation, averaged."""
    # Correlations have no unit, so there is nothing to scale back.
    if normalized:
        return _aggregate(facets.offdiagonal_correlations, per, np.mean)
    # The paper sums this facet, and the likelihood loss, over contexts.
    return _aggregate(facets.in_units("offdiagonals"), per, np.sum)


def likelihood_loss(facets: Facets, per: str | None) -> Any:
    """Return ``log det Diag(A^+ S_i A^+T) - log det(A^+ S_i A^+T)``, summed over contexts or for each."""
    return _aggregate(facets.likelihood_losses, per, np.sum)


def _aggregate(values: Array, per: str | None, total: Callable[[Array], Any], also: str = "") -> Any:
    """Return ``total`` of the values (k,) or the values; ``also`` completes the error by what else ``per`` may be."""
    if per is None:
        return float(total(values))
    if per == "context":
        return values
    raise ValueError(f"per={per!r}; choose None, 'context'{also}.")
