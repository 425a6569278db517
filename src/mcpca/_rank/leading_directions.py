"""The noise test where the covariances of all features would be too large: directions of one half, tested in the other.

Features of one half of the rows are divided by their standard deviations sd (p,), or those with most noise would be
directions of their own. Let U (p, q) be the leading directions there, and psi (p,) the variances that they leave to
each feature. Rows x of the *other* half have the coordinates

    z = W^T (x / (sd sqrt(psi))),    W = an orthonormal basis of the columns of  U / sqrt(psi).

sd, psi and W are independent of these rows. Noise of variance sd^2 psi is white in what W multiplies, and stays white
in z: the q directions, in which axes stand out if they do anywhere, were not chosen by the noise that is tested.
(Directions of the same rows would be: their noise is larger in the first of them than in the last.) What is left is the
ordinary test of q features that are principal components, for which only half of the rows are used.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .._covariances.context_covariances import ContextCovariances, covariances_of
from .._covariances.interface import project
from .._covariances.subspace import orthonormal
from .._data.contexts import Contexts
from .._data.projection import projected_rows
from .._data.sources import Source, as_source
from .._utils.progress import silent
from .._utils.types import Array
from .rank_data import sample_here
from .sample_fits import SampleFits

# The largest rank that is looked at, and so the width of the bases: every pass multiplies the rows by as many columns.
_LARGEST_RANK = 30
# Least variance that is left to a feature, as a share of its own, and least share of it outside the directions: with
# none at all it would be all of a direction.
_LEAST_LEFT = 1e-2
_ROUNDING = 1e-12  # of the largest variance, up to which one is rounding


def largest_rank(p: int) -> int:
    """Return the largest rank that is looked at: outside of half of all directions noise can still be seen."""
    return max(1, min(_LARGEST_RANK, p // 2))


def noise_directions(half: SampleFits) -> Array:
    """Return ``D W`` (p, q), D = diag(1 / (sd sqrt(psi))): rows times this are z. Costs a basis of the half."""
    weights = half.n_samples - 1.0
    weights = weights / weights.sum()
    variances = weights @ half.products.variances()
    by_sd = _inverse_roots(variances)
    # Products cannot be multiplied by 0: a feature that never varies stays as it is, beside the others.
    S = half.products.scaled(np.where(by_sd > 0, by_sd, by_sd[by_sd > 0].min(initial=1.0)))
    q = half.sweep.largest
    U = S.basis(q, q).vectors
    C = np.tensordot(weights, project(S, U), axes=1)
    # diag(U C U^T) is what the directions explain of each feature: of its noise, too, the share diag(U U^T). Variances
    # of scaled features are 1, or 0 for one that never varies.
    left = (by_sd > 0) - np.einsum("pq,qr,pr->p", U, C, U, optimize=True)
    left /= np.maximum(1 - np.einsum("pq,pq->p", U, U), _LEAST_LEFT)
    by_noise = _inverse_roots(np.where(by_sd > 0, np.maximum(left, _LEAST_LEFT), 0))
    return np.asarray((by_sd * by_noise)[:, None] * orthonormal(by_noise[:, None] * U))


def _inverse_roots(variances: Array) -> Array:
    """Return one over the roots; 0 for a feature that never varies, which then has no part in any direction."""
    # Variances by passes are differences of sums: those of a constant may be rounding.
    varies = variances > _ROUNDING * variances.max(initial=0)
    roots = np.sqrt(np.where(varies, variances, 1))
    return np.where(varies, 1 / roots, 0.0)


def in_directions(
    contexts: Contexts, directions: Array, rng: np.random.Generator
) -> tuple[ContextCovariances, Contexts]:
    """Return rows in coordinates along ``directions`` (p, q), dense, and their moments: one pass, O(n q) memory.

    Of rows on other machines the coordinates come here, those of a sample by ``rng`` if all would take too much.
    """
    if contexts.engine is not None:
        rows = sample_here(contexts, 8.0 * directions.shape[1], rng, directions)
        return covariances_of(rows, silent), rows
    # Contexts given by labels share one source: it must be read once, not k times.
    projected: dict[int, Source] = {}
    for source in contexts.sources:
        if id(source) not in projected:
            projected[id(source)] = as_source(projected_rows(source, directions), "X")
    sources = [projected[id(source)] for source in contexts.sources]
    # Names of all features would no longer fit the columns; nothing here uses them.
    rows = replace(contexts, sources=sources, feature_names=None)
    return covariances_of(rows, silent), rows
