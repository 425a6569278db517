"""Resampling rows within contexts: how far loadings and components move from sample to sample.

Rows are drawn with replacement within each context, and the model is fitted again with the same parameters and rank.
With groups (donors) whole groups are drawn, within contexts or, where they are in several, for these together.
Its components are matched with the original ones before anything is compared, since their order and sign are arbitrary.
``resample`` is ``MCPCA.bootstrap``; it assumes nothing about the distribution of the rows.

Two things that resamples cannot see, or see too large, are dealt with here:

- Components by least squares keep a bias due to noise however many rows there are (``noise_bias``). Intervals are about
  loadings less that bias.
- Rows that occur twice make the components of few rows in many features far worse than those of the data. For loadings
  that were cross-fitted, rows are drawn without replacement instead: by the delete-d jackknife, ``n / (n - m) - 1``
  times the variance over subsamples of m rows estimates that over samples of n.

Resamples of g groups vary by (g - 1) / g of what samples do. For hundreds of rows that is nothing; for groups it is
corrected, and intervals are by Student's t with g - 1 degrees of freedom.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._data.contexts import Contexts
from .._linalg.canonical import match_components
from .._model.fitted_model import FittedModel
from .._model.new_rows import read_fitted_contexts
from .._utils.arguments import as_generator, check_integer, check_real
from .._utils.array_api import to_host
from .._utils.printing import Shown, counted, extremes, mcpcs, span
from .._utils.types import Array, Report
from .noise_bias import bias_of_noise
from .precision import loading_intervals
from .replication import refit, refit_in_threads
from .sampling import GroupDesign, checked_groups, draw_groups, subsample_groups, subsample_size

# Share of the rows of a context in a subsample. More rows, and subsamples differ by few of them; fewer, and they are
# fits to another number of rows.
_SUBSAMPLE = 0.8


@dataclass(frozen=True, repr=False)
class Bootstrap(Shown):
    """Fits to n resamples of the rows, matched to the fitted model.

    Loadings, their intervals and standard errors are those without noise (``corrected_loadings_``) unless ``corrected``
    is False.

    Attributes
    ----------
    lower, upper : ndarray (k, r)
        Interval for each loading at ``confidence``, about the loading of the model less its ``bias``, from
        ``standard_errors``: symmetric in the logarithm for loadings clearly above 0, cut off at 0 for the others.
    standard_errors : ndarray (k, r)
        Standard deviation of each loading over resamples. For a cross-fitted model, from subsamples without
        replacement, and in units of the cross-fitted loadings.
    angles : ndarray (n, r)
        Angle in degrees between each MCPC of a resample and its match in the model; for a cross-fitted model, those of
        subsamples times their root of ``n / (n - m) - 1``.
    angle_bounds : ndarray (r,)
        Angle within which a share ``confidence`` of the resamples stays.
    loadings : ndarray (n, k, r) or None
        Loadings of every resample; None for a bootstrap that was read from an AnnData, which does not keep them.
    confidence : float
        Level of the intervals and of ``angle_bounds``.
    n_failed : int
        Resamples that could not be fitted, because their rows do not have the rank; they are left out.
    corrected : bool
        Whether loadings are those without noise.
    bias : ndarray (k, r) or None
        What noise does to corrected loadings through the components of "mspm" and "lsq", with any number of rows; 0
        for other solvers, and for noise by feature, for which it is not known.
    n_groups : ndarray (k,) or None
        Groups of each context, if these were resampled and not single rows.
    """

    lower: Array
    upper: Array
    standard_errors: Array
    angles: Array
    angle_bounds: Array
    loadings: Array | None
    confidence: float
    n_failed: int
    corrected: bool = True
    bias: Array | None = None
    n_groups: Array | None = None

    def _words(self) -> list[str]:
        n = len(self.angles)
        k, r = self.lower.shape
        share = f"{100 * self.confidence:g}%"
        words = [
            f"{counted(n, 'resample')} {self._of_what()}of {counted(k, 'context')}: {share} of them stay within "
            f"{extremes(self.angle_bounds)} degrees of the {counted(r, 'MCPC')} of the model.",
            f"The {share} intervals of {int((self.lower > 0).sum()):,} of {k * r:,} "
            f"{'corrected loadings' if self.corrected else 'loadings, with the noise in them,'} are above 0.",
        ]
        if self.n_failed:
            words.append(f"{counted(self.n_failed, 'resample')} could not be fitted and are left out.")
        return words

    def _of_what(self) -> str:
        return "" if self.n_groups is None else f"of the {span(self.n_groups, ',.0f')} groups "

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
    corrected: bool,
    random_state: Any,
    report: Report,
    *,
    groups: Any = None,
    batch: Any = None,
    covariates: Any = None,
) -> Bootstrap:
    """Fit ``unfitted`` to ``n`` resamples of the rows, and match the fits with the model; see ``MCPCA.bootstrap``.

    Each resample has its own stream of random numbers, so that the number of threads does not change the answer.
    """
    n = check_integer(n, "n", 2)
    confidence = check_real(confidence, "confidence", 0.5, 0.9999, "It is a probability, such as 0.95.")
    # Arguments are checked before this line, since reading the rows may take long.
    contexts = checked_groups(read_fitted_contexts(model, X, y, groups=groups, batch=batch, covariates=covariates))
    design = None
    if contexts.groups is not None:
        design = GroupDesign.of(contexts)
        design.check_several("bootstrap", "Drop these contexts, or drop groups.")
        design.warn_of_few(model.n_components)
    A = to_host(model.components).astype(np.float64)
    B = model.compared_loadings(corrected).astype(np.float64)
    rng = as_generator(random_state)
    streams = rng.spawn(n)
    is_cross_fitted = corrected and model.attenuation is not None
    draws = (_resample, _subsample) if design is None else (draw_groups, _subsample_groups)
    draw = draws[int(is_cross_fitted)]
    # NaN marks resamples that could not be fitted.
    loadings = np.full((n, *B.shape), np.nan)
    angles = np.full((n, A.shape[1]), np.nan)

    def fit_one(i: int) -> None:
        stream = streams[i]
        drawn = draw(contexts, stream)  # outside of ``try``: rows that cannot be drawn are no matter of the rank
        try:
            refitted = refit(unfitted, drawn, stream)
        except ValueError:  # drawn rows repeat, and may span fewer directions than the model has components
            return
        match = match_components(refitted.components_, A)
        # Each call writes to its own place, so threads need no lock. Loadings do not depend on the signs of components.
        fitted_loadings = refitted.corrected_loadings_ if corrected else refitted.loadings_
        loadings[i] = to_host(fitted_loadings)[:, match.indices]
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
    if is_cross_fitted:
        # Subsamples fit noise as the model did; cross-fitted loadings do not contain it.
        loadings *= _ratio(B.sum(axis=0), loadings.mean(axis=0).sum(axis=0))
    # (n, k, r) -> (k, r). Intervals are not about the mean of the resamples, whose components err twice.
    errors = loadings.std(axis=0, ddof=1)
    # What is drawn: rows of each context, or groups of its component.
    n_units = contexts.n_samples if design is None else design.groups_to_draw
    if is_cross_fitted:
        kept = _subsample_size(n_units) if design is None else subsample_size(n_units, _SUBSAMPLE)
        errors *= np.sqrt(kept / (n_units - kept))[:, None]
        angles = np.minimum(angles * np.sqrt(kept.sum() / (n_units - kept).sum()), 90)
    elif design is not None:
        errors *= np.sqrt(n_units / (n_units - 1))[:, None]
        angles = np.minimum(angles * np.sqrt(n_units.sum() / (n_units - 1).sum()), 90)
    bias = bias_of_noise(model, unfitted, rng) if corrected else np.zeros_like(B)
    degrees = None if design is None else design.groups_of_contexts[:, None] - 1.0
    lower, upper = loading_intervals(np.maximum(B - bias, 0), errors, confidence, degrees)
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
        corrected=corrected,
        bias=bias,
        n_groups=None if design is None else design.groups_of_contexts,
    )


def _resample(contexts: Contexts, stream: np.random.Generator) -> Contexts:
    """Draw as many rows as each context has: its share of the fit and the size of its error are those of the data."""
    # Row numbers only; nothing is copied yet.
    return contexts.take([stream.integers(n, size=n) for n in contexts.n_samples.tolist()])


def _subsample(contexts: Contexts, stream: np.random.Generator) -> Contexts:
    """Draw rows of each context without replacement."""
    counts = zip(contexts.n_samples.tolist(), _subsample_size(contexts.n_samples).tolist(), strict=True)
    return contexts.take([np.sort(stream.permutation(n)[:m]) for n, m in counts])


def _subsample_groups(contexts: Contexts, stream: np.random.Generator) -> Contexts:
    return subsample_groups(contexts, _SUBSAMPLE, stream)


def _subsample_size(n: Array) -> Array:
    # Two rows at least have a covariance, and one at least is left out: cross-fitted contexts have four or more.
    return subsample_size(n, _SUBSAMPLE, 2)


def _ratio(numerator: Array, denominator: Array) -> Array:
    """Return the ratio, 1 where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.ones_like(numerator), where=denominator > 0)
