"""The noise test where the covariances of all features would be too large: directions of one half, tested in the other.

Let U (p, q) be the leading directions of one half of the rows, which its fits need anyway, and psi (p,) the variances
that they leave to each feature there. Rows x of the *other* half have the coordinates

    z = W^T (x / sqrt(psi)),    W = an orthonormal basis of the columns of  U / sqrt(psi).

W and psi are independent of these rows. Noise of variance psi is white in x / sqrt(psi), and stays white in z: the q
directions, in which axes stand out if they do anywhere, were not chosen by the noise that is tested. (Directions of the
same rows would be: their noise is larger in the first of them than in the last.) What is left is the ordinary test of q
features that are principal components, for which only half of the rows are used.
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
from .sample_fits import SampleFits

# The largest rank that is looked at, and so the width of the bases: every pass multiplies the rows by as many columns.
LARGEST_RANK = 30
# Least variance that is left to a feature, as a share of its own: with none at all it would be all of a direction.
_LEAST_LEFT = 1e-2


def noise_directions(half: SampleFits) -> Array:
    """Return ``D W`` (p, q) with D = diag(psi)^(-1/2): rows times this are z. Takes two passes over the half."""
    S = half.products
    U = half.core.directions
    weights = half.n_samples - 1.0
    weights = weights / weights.sum()
    variances = weights @ S.variances()
    C = np.tensordot(weights, project(S, U), axes=1)
    # diag(U C U^T) is what the directions explain of each feature.
    left = np.maximum(variances - np.einsum("pq,qr,pr->p", U, C, U, optimize=True), _LEAST_LEFT * variances)
    # A feature that never varies has no part in any direction.
    scale = np.divide(1, np.sqrt(left), out=np.zeros_like(left), where=left > 0)
    return np.asarray(scale[:, None] * orthonormal(scale[:, None] * U))


def in_directions(contexts: Contexts, directions: Array) -> tuple[ContextCovariances, Contexts]:
    """Return rows in coordinates along ``directions`` (p, q), dense, and their moments: one pass, O(n q) memory."""
    # Contexts given by labels share one source: it must be read once, not k times.
    projected: dict[int, Source] = {}
    for source in contexts.sources:
        if id(source) not in projected:
            projected[id(source)] = as_source(projected_rows(source, directions), "X")
    sources = [projected[id(source)] for source in contexts.sources]
    # Names of all features would no longer fit the columns; nothing here uses them.
    rows = replace(contexts, sources=sources, feature_names=None)
    return covariances_of(rows, silent), rows
