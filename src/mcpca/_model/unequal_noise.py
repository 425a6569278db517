"""Whether noise, which loadings by least squares contain, changes the order of contexts.

By the paper's least squares a loading is the variance of the MCPC plus about the noise variance of the context. If all
contexts have the same noise, contexts compare as they should; if not, those with more noise seem to have more of
everything. ``warn_of_unequal_noise`` says so at the end of a fit without noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._utils.array_api import to_host
from .._utils.types import Array
from .._utils.user_warnings import warn
from .._utils.wording import listed
from ..exceptions import UnequalNoiseWarning
from .fitted_model import FittedModel

# Standard errors by which two contexts have to differ, in their noise and the other way round in a corrected loading,
# to count. Pairs are many: at 2, contexts of equal noise would be named by chance.
_STANDARD_ERRORS = 4.0
# Contexts that are compared: the half of these with the least and the half with the most noise. All pairs of more
# contexts would take longer than the loadings.
_MOST_CONTEXTS = 100
_NEGLIGIBLE = 1e-4  # difference of noise variances, as a share of the largest loading
# Rows behind each covariance if their number is not known.
_ASSUMED_ROWS = 100


def warn_of_unequal_noise(model: FittedModel, names: Sequence[str]) -> None:
    """Issue an ``UnequalNoiseWarning`` that names the MCPCs; none if the loadings are without noise."""
    if model.noise is not None or model.noise_variance is None or model.n_components == model.n_features:
        return
    floors = to_host(model.noise_variance).astype(np.float64)
    B = to_host(model.loadings).astype(np.float64)
    corrected = model.compared_loadings().astype(np.float64)
    # Squares of variances may be out of range in the units of the data.
    unit = max(float(corrected.max(initial=0)), float(floors.max(initial=0))) or 1.0
    # Noise that is next to nothing cannot change an order by more than sampling does; exact data have such.
    if np.ptp(floors) <= _NEGLIGIBLE * unit:
        return
    changed = reordered(B / unit, corrected / unit, floors / unit, model.n_samples, model.n_features)
    if not changed.any():
        return
    low = int(floors.argmin())
    high = int(floors.argmax())
    which = listed([names[j] for j in np.flatnonzero(changed).tolist()])
    contexts = model.contexts.tolist()
    warn(
        f"The noise variance of contexts differs, from {floors[low]:.3g} ({contexts[low]!r}) to {floors[high]:.3g} "
        f"({contexts[high]!r}), and is part of loadings_: without it contexts come in another order in {which}. "
        "Compare contexts by corrected_loadings_, or fit with noise='isotropic' or solver='ml', whose loadings have no "
        "noise in them.",
        UnequalNoiseWarning,
    )


def reordered(B: Array, corrected: Array, floors: Array, counts: Array | None, p: int) -> Array:
    """Return for which MCPCs (r,) noise changes the order of two contexts by more than sampling could.

    ``B`` and ``corrected`` are loadings (k, r) with and without the noise ``floors`` (k,).
    """
    k, r = B.shape
    rows = np.full(k, _ASSUMED_ROWS) if counts is None else counts
    freedom = np.maximum(rows - 1.0, 1.0)
    if k > _MOST_CONTEXTS:
        order = np.argsort(floors, kind="stable")
        some = np.concatenate([order[: _MOST_CONTEXTS // 2], order[-(_MOST_CONTEXTS // 2) :]])
        B = B[some]
        corrected = corrected[some]
        floors = floors[some]
        freedom = freedom[some]
    # Relative standard errors of variances: of the floor from p - r directions, of a loading from one.
    of_floor = floors**2 * 2 / (freedom * (p - r))
    # Pairs (i, l) of contexts whose noise differs for sure: i has more.
    gap = floors[:, None] - floors
    noisier = gap > _STANDARD_ERRORS * np.sqrt(of_floor[:, None] + of_floor)
    out = np.zeros(r, dtype=bool)
    if not noisier.any():
        return out
    for j in range(r):
        of_loading = (corrected[:, j] + floors) ** 2 * 2 / freedom
        error = np.sqrt(of_loading[:, None] + of_loading)
        less = corrected[:, j] - corrected[:, j, None]  # what l has more than i, without noise
        seems_more = B[:, j, None] > B[:, j]
        out[j] = bool((noisier & seems_more & (less > _STANDARD_ERRORS * error)).any())
    return out
