"""Resampling rows within contexts: how far loadings and components move from sample to sample.

Rows are drawn with replacement within each context, the model is fitted again with the same parameters and rank, and
its components are matched with the original ones before anything is compared, since their order and sign are free.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._linalg.canonical import match_components
from .._model.fitted_model import FittedModel
from .._model.new_rows import read_fitted_contexts
from .._utils.arguments import as_generator, check_integer, check_real
from .._utils.array_api import to_host
from .._utils.parallel import each, n_workers
from .._utils.printing import Shown, counted, extremes, mcpcs
from .._utils.types import Array, Report
from .precision import loading_intervals
from .replication import refit


@dataclass(frozen=True, repr=False)
class Bootstrap(Shown):
    """Fits of n resamples, matched to the fitted model.

    Attributes
    ----------
    lower, upper : ndarray (k, r)
        Interval for each loading at ``confidence``, from the standard errors below: symmetric in the logarithm where
        the loading is clearly above 0, cut off at 0 elsewhere.
    standard_errors : ndarray (k, r)
        Standard deviation of each loading over resamples.
    angles : ndarray (n, r)
        Angle in degrees between each MCPC of a resample and that of the model.
    angle_bounds : ndarray (r,)
        Angle within which a share ``confidence`` of the resamples stays.
    loadings : ndarray (n, k, r)
        Loadings of every resample.
    confidence : float
    n_failed : int
        Resamples that could not be fitted (a rank that their rows do not have), which are left out.
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
    """Fit ``n`` resamples of the rows by ``unfitted`` and match them with the model; see ``MCPCA.bootstrap``.

    Each resample has a stream of random numbers of its own, so that threads do not change the answer.
    """
    n = check_integer(n, "n", 2)
    confidence = check_real(confidence, "confidence", 0.5, 0.9999, "It is a probability, such as 0.95.")
    contexts = read_fitted_contexts(model, X, y)
    A = to_host(model.components).astype(np.float64)
    B = to_host(model.loadings)
    rng = as_generator(random_state)
    streams = rng.spawn(n)
    loadings = np.full((n, *B.shape), np.nan)
    angles = np.full((n, A.shape[1]), np.nan)

    def fit_one(i: int) -> None:
        stream = streams[i]
        drawn = contexts.take([stream.integers(n, size=n) for n in contexts.n_samples.tolist()])
        try:
            refitted = refit(unfitted, drawn, stream)
        except ValueError:
            return
        match = match_components(refitted.components_, A)
        loadings[i] = refitted.loadings_[:, match.indices]
        angles[i] = np.degrees(np.arccos(np.minimum(match.cosines, 1)))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of single resamples: convergence, near-proportional loadings
        for done, _ in enumerate(each(fit_one, range(n), n_workers())):
            report("resamples", done + 1, n)
    good = np.isfinite(angles).all(axis=1)
    if good.sum() < 2:
        raise ValueError(f"None of {n} resamples could be fitted: too few rows per context for rank {A.shape[1]}.")
    loadings, angles = loadings[good], angles[good]
    errors = loadings.std(axis=0, ddof=1)
    lower, upper = loading_intervals(B.astype(np.float64), errors, confidence)
    return Bootstrap(
        lower,
        upper,
        errors,
        angles,
        np.quantile(angles, confidence, axis=0),
        loadings,
        confidence,
        int(n - good.sum()),
    )
