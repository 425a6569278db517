"""Resampling rows within contexts: how far loadings and components move from sample to sample.

Rows are drawn with replacement within each context, and the model is fitted again with the same parameters and rank.
Its components are matched with the original ones before anything is compared, since their order and sign are arbitrary.
``resample`` is ``MCPCA.bootstrap``; it assumes nothing about the distribution of the rows, unlike ``precision``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._linalg.canonical import match_components
from .._model.fitted_model import FittedModel
from .._model.new_rows import read_fitted_contexts
from .._utils.arguments import as_generator, check_integer, check_real
from .._utils.array_api import to_host
from .._utils.printing import Shown, counted, extremes, mcpcs
from .._utils.types import Array, Report
from .precision import loading_intervals
from .replication import refit, refit_in_threads


@dataclass(frozen=True, repr=False)
class Bootstrap(Shown):
    """Fits to n resamples of the rows, matched to the fitted model.

    Attributes
    ----------
    lower, upper : ndarray (k, r)
        Interval for each loading at ``confidence``, from ``standard_errors``: symmetric in the logarithm for loadings
        clearly above 0, cut off at 0 for the others.
    standard_errors : ndarray (k, r)
        Standard deviation of each loading over resamples.
    angles : ndarray (n, r)
        Angle in degrees between each MCPC of a resample and its match in the model.
    angle_bounds : ndarray (r,)
        Angle within which a share ``confidence`` of the resamples stays.
    loadings : ndarray (n, k, r)
        Loadings of every resample.
    confidence : float
        Level of the intervals and of ``angle_bounds``.
    n_failed : int
        Resamples that could not be fitted, because their rows do not have the rank; they are left out.
    """

    lower: Array
    upper: Array
    standard_errors: Array
    angles: Array
    angle_bounds: Array
    loadings: Array
    confidence: float
    n_failed: int

    def _words(self) -> list[str]:
        n, k, r = self.loadings.shape
        share = f"{100 * self.confidence:g}%"
        words = [
            f"{counted(n, 'resample')} of {counted(k, 'context')}: {share} of them stay within "
            f"{extremes(self.angle_bounds)} degrees of the {counted(r, 'MCPC')} of the model.",
            f"The {share} intervals of {int((self.lower > 0).sum()):,} of {k * r:,} loadings are above 0.",
        ]
        if self.n_failed:
            words.append(f"{counted(self.n_failed, 'resample')} could not be fitted and are left out.")
        return words

    def _rows(self) -> dict[str, Any]:
        k, r = self.lower.shape
        return {
            "": mcpcs(r),
            f"{100 * self.confidence:g}% within (degrees)": self.angle_bounds,
            f"intervals above 0, of {k}": (self.lower > 0).sum(axis=0),
        }


def resample(
    model: FittedModel,
    unfitted: Any,
    X: Any,
    y: Any,
    n: Any,
    confidence: Any,
    random_state: Any,
    report: Report,
) -> Bootstrap:
    """Fit ``unfitted`` to ``n`` resamples of the rows, and match the fits with the model; see ``MCPCA.bootstrap``.

    Each resample has its own stream of random numbers, so that the number of threads does not change the answer.
    """
    n = check_integer(n, "n", 2)
    confidence = check_real(confidence, "confidence", 0.5, 0.9999, "It is a probability, such as 0.95.")
    # Arguments are checked before this line, since reading the rows may take long.
    contexts = read_fitted_contexts(model, X, y)
    A = to_host(model.components).astype(np.float64)
    B = to_host(model.loadings)
    rng = as_generator(random_state)
    streams = rng.spawn(n)
    # NaN marks resamples that could not be fitted.
    loadings = np.full((n, *B.shape), np.nan)
    angles = np.full((n, A.shape[1]), np.nan)

    def fit_one(i: int) -> None:
        stream = streams[i]
        # As many rows as each context has: its share of the fit, and the size of its sampling error, are those of the
        # data. Row numbers only; nothing is copied yet.
        drawn = contexts.take([stream.integers(n_rows, size=n_rows) for n_rows in contexts.n_samples.tolist()])
        try:
            refitted = refit(unfitted, drawn, stream)
        except ValueError:  # drawn rows repeat, and may span fewer directions than the model has components
            return
        match = match_components(refitted.components_, A)
        # Each call writes to its own place, so threads need no lock. Loadings do not depend on the signs of components.
        loadings[i] = refitted.loadings_[:, match.indices]
        angles[i] = np.degrees(np.arccos(np.minimum(match.cosines, 1)))  # rounding may make a cosine exceed 1

    refit_in_threads(fit_one, n, "resamples", report)
    fitted = np.isfinite(angles).all(axis=1)
    n_fitted = int(fitted.sum())
    if n_fitted < 2:
        raise ValueError(
            f"Only {n_fitted} of {n} resamples could be fitted: there are too few rows per context for rank "
            f"{A.shape[1]}. Lower n_components."
        )
    loadings = loadings[fitted]
    angles = angles[fitted]
    # (n, k, r) -> (k, r). Intervals are about the loadings of the model, not about the mean of the resamples.
    errors = loadings.std(axis=0, ddof=1)
    lower, upper = loading_intervals(B.astype(np.float64), errors, confidence)
    return Bootstrap(
        lower=lower,
        upper=upper,
        standard_errors=errors,
        angles=angles,
        # One-sided: angles are distances, of which only large ones are a concern.
        angle_bounds=np.quantile(angles, confidence, axis=0),
        loadings=loadings,
        confidence=confidence,
        n_failed=n - n_fitted,
    )
