"""``MCPCA(robust=True)``: rows far from the rest of their context count less.

Rows of context i are taken to have a multivariate t distribution with centre ``m_i``, scatter
``Sigma_i = A B_i A^T + noise`` and nu degrees of freedom, the same for all contexts. Given a fitted model, a row at the
squared distance ``d2 = (x - m_i)^T Sigma_i^-1 (x - m_i)`` weighs ``w = (nu + p) / (nu + d2)``: its expected precision
given the row. The EM algorithm alternates between

    weights     by the model, and sums of ``w``, ``w x`` and ``w x x^T``, in one pass over the rows;
    a refit     of any solver to ``S_i = sum w (x - m_i)(x - m_i)^T / sum w``, times ``n_i / (n_i - 1)`` as ordinary
                covariances are (``sum w`` is n_i at the maximum; dividing by it before makes steps far longer);
    nu          by the likelihood of the distances, which depends on it alone.

With infinite nu all weights are 1, and the fit is the ordinary one to the last digit. Solvers without a likelihood get
the noise, and loadings for the distances, by likelihood given their components.

The first weights come from distances in no direction in particular (a model without components), so that rows far out
in one direction do not pass for a component. The scatter of a t is not its covariance, which need not exist; what users
of a robust fit ask for is the covariance of the good rows. At the end covariances are therefore multiplied by one
number, so that the median distance is that of Gaussian rows.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import gammaln
from scipy.stats import chi2
from sklearn.exceptions import ConvergenceWarning

from .._covariances.checkpoint import Checkpoint
from .._covariances.context_covariances import ContextCovariances, covariances_of
from .._covariances.device_rows import device_covariances, is_on_device
from .._covariances.fit_data import MOST_NUMBERS, FitData, fit_data_of_covariances
from .._covariances.passes import Passes
from .._covariances.scaling import in_range
from .._covariances.weighted_moments import (
    RowDistances,
    WeightedMoments,
    bin_centres,
    nearest,
    weighted_moments,
)
from .._data.contexts import Contexts
from .._model.decomposition import Decomposition, check_weights, decompose_checked
from .._model.first_weights import LEAST_FREEDOM, FirstWeights, first_weights
from .._model.gaussian import GaussianModel
from .._model.outlyingness import row_distances
from .._solvers import SOLVERS, check_solver
from .._utils.array_api import like
from .._utils.progress import silent
from .._utils.stages import Stage
from .._utils.types import Array, Report
from .._utils.user_warnings import muted, warn
from .._utils.wording import listed
from .parameters import Parameters

# Fewest rows of a context. With 4 or fewer, the distance of a row says more about itself than about the others.
MIN_ROWS = 5
# Bounds of the degrees of freedom are LEAST_FREEDOM, below which tails are heavier than any that have a scale worth the
# name, and 1000: above it rows are Gaussian for all purposes, and nu is infinite.
MOST_FREEDOM = 1000.0
# Degrees of freedom of the first weights by a model: heavy tails, to be on the safe side.
_STAGE = Stage("reweighting", "bounded")
_FIRST_FREEDOM = 4.0
# Distances that are shorter than those of this share of Gaussian rows count as no shorter for the degrees of freedom.
_NEAREST_SHARE = 1e-6
_MOST_STEPS = 30
# EM has converged when a step changes the log-likelihood of all rows by less than this, or by less than the second
# number for each row: parameters then move by a small part of their standard errors.
_LEAST_CHANGE = 0.05
_LEAST_CHANGE_PER_ROW = 1e-5


class Reweighted(NamedTuple):
    """Covariances of weighted rows, ready to be fitted, and the degrees of freedom (infinite: all weights are 1)."""

    data: FitData
    degrees_of_freedom: float


class _Step(NamedTuple):
    """A step of EM: the log-likelihood, and the distances and degrees of freedom that it is of."""

    value: float
    distances: RowDistances
    freedom: float


def robust_rows(parameters: Parameters, contexts: Contexts, report: Report) -> RobustRows:
    """Check rows for a robust fit, and weigh them for the first time: some three passes."""
    names = contexts.names.tolist()
    few = [f"{names[i]!r} ({contexts.n_samples[i]})" for i in np.flatnonzero(contexts.n_samples < MIN_ROWS)]
    if few:
        raise ValueError(
            f"robust=True needs at least {MIN_ROWS} rows in every context, and {len(few)} of {len(names)} have fewer: "
            f"{listed(few)}. Drop or merge these contexts, or pass robust=False."
        )
    k = len(names)
    p = contexts.n_features
    if k * p**2 > MOST_NUMBERS:
        raise ValueError(
            f"robust=True forms the covariances, and those of {k} contexts with {p} features have {k * p**2} entries, "
            f"more than {MOST_NUMBERS}. Choose fewer features or contexts, fit principal components of the rows, or "
            "pass robust=False."
        )
    if parameters.n_components is not None:
        _check_outside(parameters.n_components, p)
    # Checked before the first pass, which may take long.
    weights = None
    if parameters.context_weights is not None:
        weights = check_weights(parameters.context_weights, contexts.names)
    contexts, e = in_range(contexts)
    passes = Passes(report, Checkpoint(None, {}), 1.0)
    plain = _plain(contexts, report)
    first = first_weights(contexts, plain, passes)
    # Of the stack only its kind and device are needed from here on.
    plain = replace(plain, covariances=plain.covariances[:0, ...])
    return RobustRows(parameters, weights, contexts, e, passes, plain, first)


def _check_outside(r: int, p: int) -> None:
    if r == p:
        raise ValueError(
            f"robust=True needs n_components < n_features, and both are {p}: distances of rows need a noise variance, "
            "which is that outside the components. Lower n_components, or pass robust=False."
        )


def _plain(contexts: Contexts, report: Report) -> ContextCovariances:
    """Return the moments of all rows alike."""
    return device_covariances(contexts, report) if is_on_device(contexts) else covariances_of(contexts, report)


@dataclass(frozen=True)
class RobustRows:
    """Rows times ``2^-exponent`` with their first weights; ``plain`` has their names, and an empty stack.

    ``context_weights`` (k,) are those of the contexts in the objective of the solver, if there are any.
    """

    parameters: Parameters
    context_weights: Array | None
    contexts: Contexts
    exponent: int
    passes: Passes
    plain: ContextCovariances
    first: FirstWeights

    def for_rank(self) -> FitData:
        """Return the data on which a rank is chosen: rows shrunk by the roots of their first weights.

        Of rows on other machines only the weighted covariances.
        """
        if self.contexts.engine is not None:
            return self._data(self._covariances(self._moments(self.first.distances, LEAST_FREEDOM)))
        shrunk = self.first.shrunk(self.contexts)
        return fit_data_of_covariances(covariances_of(shrunk, silent), shrunk.n_samples, shrunk, self.exponent)

    def reweighted(self, r: int, rng: np.random.Generator, report: Report) -> Reweighted:
        """Return the covariances that fits of rank ``r`` converge to as rows are weighted by them.

        Cost: a fit and a pass over the rows in each step, five to ten steps as a rule and at most 30. Memory as an
        ordinary fit that forms covariances.
        """
        p = self.contexts.n_features
        _check_outside(r, p)
        n = int(self.contexts.n_samples.sum())
        least_change = max(_LEAST_CHANGE, n * _LEAST_CHANGE_PER_ROW)
        moments = self._moments(self.first.distances, LEAST_FREEDOM)
        freedom = _FIRST_FREEDOM
        best = _Step(-np.inf, self.first.distances, freedom)
        value = -np.inf
        change = np.inf
        for step in range(_MOST_STEPS):
            report(_STAGE, step, _MOST_STEPS)
            distances = self._fitted(r, moments, rng)
            del moments  # their stack, before the next one is filled
            moments = self._moments(distances, freedom)
            before = value
            value = log_likelihood(distances, moments.log_sum, self.contexts.n_samples, freedom)
            change = abs(value - before)
            if value > best.value:
                best = _Step(value, distances, freedom)
            was = freedom
            freedom = degrees_of_freedom(moments.histogram, p)
            # With infinite degrees of freedom twice in a row the weights were 1 and remain so, whatever the model.
            converged = bool(np.isinf(was)) if np.isinf(freedom) else change < least_change
            if converged:
                break
        report(_STAGE, _MOST_STEPS, _MOST_STEPS)
        if not converged:
            # A likelihood rises to its maximum; solvers of least squares may go around in a circle of answers.
            warn(
                f"robust=True: weights of rows have not settled after {_MOST_STEPS} steps. The log-likelihood still "
                f"changes by {change:.2g}, where {least_change:.2g} is asked for; the weights with the highest are "
                "taken. Components that the data do not determine may alternate: lower n_components, or choose "
                "solver='ml'.",
                ConvergenceWarning,
            )
            del moments
            moments = self._moments(best.distances, best.freedom)
            freedom = degrees_of_freedom(moments.histogram, p)
        if np.isinf(freedom):
            return Reweighted(self._data(_plain(self.contexts, silent)), freedom)
        factor = bulk_factor(moments.histogram, p, len(self.contexts.names))
        return Reweighted(self._data(self._covariances(moments, factor)), freedom)

    def _moments(self, distances: RowDistances, freedom: float) -> WeightedMoments:
        return weighted_moments(self.contexts, distances, freedom, self.passes, "weights")

    def _fitted(self, r: int, moments: WeightedMoments, rng: np.random.Generator) -> RowDistances:
        """Return the distances by the model that the solver finds for these moments."""
        data = self._data(self._covariances(moments))
        parameters = self.parameters
        options = check_solver(parameters.solver, parameters.orthogonal, parameters.noise)
        # Warnings of a fit on the way are not those of the answer, which is fitted again.
        with muted():
            result, _ = decompose_checked(
                data.covariances,
                r,
                **options,
                counts=data.counts,
                weights=self.context_weights,
                # The same random numbers each time: a step depends on the last one through the moments alone.
                rng=copy.deepcopy(rng),
                report=silent,
                tol=parameters.tol,
                max_iter=parameters.max_iter,
            )
        # Solvers see data that may have been scaled once more.
        gaussian = gaussian_of(result, data, options["solver"], options["noise"]).times_power(
            data.exponent - self.exponent
        )
        return row_distances(gaussian, moments.means)

    def _covariances(self, moments: WeightedMoments, factor: float = 1.0) -> ContextCovariances:
        """Return ``factor sum w z z^T / sum w``, times n_i / (n_i - 1); takes the memory of the scatters."""
        n = self.contexts.n_samples
        totals = moments.totals
        if SOLVERS[self.parameters.solver].models_noise and self.parameters.noise in ("pooled", "diagonal"):
            # Noise that contexts share has one scale for all of them, and so has the model.
            totals = n * (totals.sum() / n.sum())
        S = moments.scatters
        S *= (factor * n / ((n - 1) * totals))[:, None, None]
        dtype = self.contexts.dtype
        return replace(
            self.plain,
            covariances=like(S.astype(dtype, copy=False), self.plain.covariances),
            means=moments.means.astype(dtype),
        )

    def _data(self, covariances: ContextCovariances) -> FitData:
        return fit_data_of_covariances(covariances, self.contexts.n_samples, exponent=self.exponent)


def gaussian_of(result: Decomposition, data: FitData, solver: str, noise: str | None) -> GaussianModel:
    """Return the Gaussian model of a decomposition: that of a likelihood, or the most likely one given its components.

    Noise by least squares may be 0 where there are few rows, which would leave no distances.
    """
    A = result.components.astype(np.float64)
    B = result.loadings.astype(np.float64)
    if SOLVERS[solver].models_noise and result.noise is not None:
        return GaussianModel.with_noise(A, B, np.asarray(result.noise, dtype=np.float64), noise)
    likelihood = GaussianModel(A, B, np.ones(len(B))).fit_new(data.covariances)
    return GaussianModel(A, likelihood.B, likelihood.s)


def log_likelihood(distances: RowDistances, log_sum: float, counts: Array, freedom: float) -> float:
    """Return the log-likelihood of all rows in the t model, or the Gaussian one where ``freedom`` is infinite."""
    p = distances.means.shape[1]
    n = float(counts.sum())
    common = -(n * p * np.log(2 * np.pi) + float(counts @ distances.log_determinants)) / 2
    if np.isinf(freedom):
        return float(common - log_sum / 2)
    return float(common + n * _log_normaliser(p, freedom) - (freedom + p) / 2 * log_sum)


def _log_normaliser(p: int, freedom: float) -> float:
    """Return what the t density has in front, less what the Gaussian has: 0 for infinite degrees of freedom."""
    return float(gammaln((freedom + p) / 2) - gammaln(freedom / 2) - p / 2 * np.log(freedom / 2))


def degrees_of_freedom(histogram: Array, p: int) -> float:
    """Return the most likely nu for squared distances of rows with p features, counted in ``histogram``.

    The likelihood depends on nu through ``c(nu) - (nu + p) / 2 mean log(1 + d2 / nu)``. Bounded from below by 1;
    infinite where more than 1000 is better, or the Gaussian is.
    """
    is_filled = histogram > 0
    # Equal rows may be at no distance from their mean, as if tails were heavier than any.
    d2 = np.maximum(bin_centres(p)[is_filled], nearest(p, _NEAREST_SHARE))
    shares = histogram[is_filled] / histogram.sum()

    def loss(log_nu: float) -> float:
        nu = np.exp(log_nu)
        return float((nu + p) / 2 * (shares @ np.log1p(d2 / nu)) - _log_normaliser(p, nu))

    bounds = (np.log(LEAST_FREEDOM), np.log(MOST_FREEDOM))
    best = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-4})
    is_gaussian = best.fun >= shares @ d2 / 2 or best.x > bounds[1] - 0.01
    return np.inf if is_gaussian else float(np.exp(best.x))


def bulk_factor(histogram: Array, p: int, k: int) -> float:
    """Return the number by which covariances are multiplied so that the median distance is that of Gaussian rows."""
    n = float(histogram.sum())
    below = np.cumsum(histogram)
    i = int(np.searchsorted(below, n / 2))
    # Within the bin in proportion to its rows, on the scale of logarithms.
    within = (n / 2 - (below[i] - histogram[i])) / histogram[i] - 0.5
    centres = bin_centres(p)
    median = centres[i] * (centres[1] / centres[0]) ** within
    # About fitted means, distances are shorter by a share of (n - k) / n on average.
    return float(median / (chi2.median(p) * (n - k) / n))
