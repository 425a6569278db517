"""Is an MCPC present in a context at all? A test of every loading against zero.

The components stay as fitted; the other loadings of the context, and its noise if that is free, are refitted without
MCPC j. All contexts are done at once, one MCPC after the other. With rows, ``score_tests`` then looks at the spread of
the rows themselves. Without, a likelihood ratio takes them to be Gaussian. The null hypothesis ``b_ij = 0`` is on the
boundary of ``b_ij >= 0``: under it the ratio is 0 half of the time, and chi-square with one degree of freedom
otherwise.

``presence_tests`` is ``MCPCA.presence``. Without rows the covariances themselves are gone by then: the moments of the
scores that a fit with noise keeps (``FittedModel.score_moments``) are all that the likelihood in r dimensions needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import chi2, false_discovery_control

from .._model.fitted_model import FittedModel
from .._model.gaussian import FLOOR
from .._solvers.likelihood import Likelihood, fit_contexts
from .._utils.arguments import check_real
from .._utils.printing import Shown, counted, listed_mcpcs, mcpcs, span
from .._utils.progress import silent
from .._utils.types import Array, Report
from .fisher import without_data
from .row_scores import RowScores, check_labelled, read_rows_of_fit, reader_of
from .score_tests import likelihood_of_rows, score_tests
from .weighted_rows import rows_of_fit

# How each test is called in sentences.
_TESTS = {
    "score": "score tests by the spread of the rows",
    "likelihood ratio": "likelihood-ratio tests for Gaussian rows",
}


@dataclass(frozen=True, repr=False)
class Presence(Shown):
    """Whether MCPC j is present in context i. Arrays are (k, r), one entry for each pair.

    Attributes
    ----------
    statistics : ndarray
        Score test: mean over the rows of the derivative of their log-density by the loading, at 0, over its standard
        error; what other loadings and the noise explain of it is taken out. Likelihood ratio: twice the log-likelihood
        that is lost by setting the loading to 0.
    p_values : ndarray
        For the hypothesis that the loading is 0, against a positive one. Score test: by Student's t, corrected for
        skewness. Likelihood ratio: zero is the end of the range, so the statistic is 0 half of the time and chi-square
        with one degree of freedom otherwise.
    adjusted : ndarray
        p-values corrected for the k r tests by ``method``.
    present : ndarray of bool
        ``adjusted <= alpha``.
    alpha : float
        Level of the tests.
    method : str
        "fdr" (Benjamini and Hochberg) or "holm".
    test : str
        "score", by the spread of the rows, or "likelihood ratio", which takes rows to be Gaussian.
    n_groups : ndarray (k,) or None
        Groups of each context, if the score test is by the spread between groups of rows.
    """

    statistics: Array
    p_values: Array
    adjusted: Array
    present: Array
    alpha: float
    method: str
    test: str = "likelihood ratio"
    n_groups: Array | None = None

    def _words(self) -> list[str]:
        k, r = self.present.shape
        test = _TESTS[self.test]
        if self.n_groups is not None:
            test = f"score tests by the spread between groups, {span(self.n_groups, ',.0f')} in a context"
        level = f"{self.alpha:g}"
        by = f"false discovery rate {level}" if self.method == "fdr" else f"level {level}, corrected by Holm's method"
        return [
            f"{int(self.present.sum()):,} of {k * r:,} loadings are above 0 ({counted(k, 'context')}, "
            f"{counted(r, 'MCPC')}; {by}; {test}).",
            f"Present in every context: {listed_mcpcs(self.present.all(axis=0))}; in none: "
            f"{listed_mcpcs(~self.present.any(axis=0))}.",
        ]

    def _rows(self) -> dict[str, Any]:
        k, r = self.present.shape
        return {
            "": mcpcs(r),
            f"present in, of {k} contexts": self.present.sum(axis=0),
            "smallest adjusted p": self.adjusted.min(axis=0),
            "largest": self.adjusted.max(axis=0),
        }


def presence_tests(
    model: FittedModel,
    X: Any,
    y: Any,
    alpha: Any,
    method: str,
    report: Report,
    *,
    groups: Any = None,
    batch: Any = None,
    covariates: Any = None,
) -> Presence:
    """Test every loading of a fitted model; see ``MCPCA.presence``."""
    alpha = check_real(alpha, "alpha", 0, 1, "It is a probability.")
    if method not in ("fdr", "holm"):
        raise ValueError(f"method={method!r}; choose 'fdr' or 'holm'.")
    check_labelled(X, y, groups=groups, batch=batch, covariates=covariates)
    model.refuse_missing("presence()", "Call bootstrap(X, y) for intervals of the loadings.")
    gaussian = model.gaussian("presence()")
    # The statistics have no units, so the data may be scaled to where squares of covariances are in range.
    e = gaussian.exponent
    gaussian = gaussian.times_power(-e)
    # Pooled and diagonal noise are shared by contexts, and stay as fitted.
    noise_free = gaussian.own_noise
    if X is not None:
        contexts = read_rows_of_fit(model, X, y, groups=groups, batch=batch, covariates=covariates, what="presence")
        reader = reader_of(model, gaussian, contexts, e)
        rows = rows_of_fit(model, reader, report)
        likelihood = likelihood_of_rows(gaussian, rows, reader.degrees_taken)
        return presence_by_rows(
            likelihood,
            rows,
            noise_free=noise_free,
            alpha=alpha,
            method=method,
            report=report,
            codes=None if contexts.groups is None else contexts.groups.codes,
        )
    counts = model.counts("presence()")
    if model.score_moments is None:
        raise ValueError(
            "presence() without rows needs the covariances of the scores, which a fit without noise does not keep (nor "
            "did older versions); pass the rows, presence(X, y), or fit with noise='isotropic'."
        )
    score_covariances, outside = (np.ldexp(moments, -2 * e) for moments in model.score_moments)
    likelihood = replace(without_data(gaussian, counts - 1.0), R=score_covariances, rest=outside)
    return presence_of(likelihood, noise_free=noise_free, alpha=alpha, method=method, report=report)


def presence_of(model: Likelihood, *, noise_free: bool, alpha: float, method: str, report: Report = silent) -> Presence:
    """Test every loading of ``model`` by its likelihood ratio, keeping A and refitting the other unknowns.

    ``noise_free`` says whether each context has a noise variance of its own to fit.
    """
    statistics = np.empty(model.B.shape)
    full, floor = _refitted(model, noise_free)
    for j, without in _without_each(full, noise_free, floor, report):
        # L = n/2 times the deviance, so this is twice the difference in L. ``fit_contexts`` changes n: take that of the
        # model.
        statistics[:, j] = model.n * np.maximum(without.deviances - full.deviances, 0)
    # A loading that is 0 anyway has nothing to lose; what rounding makes of the difference is no evidence.
    statistics[full.B <= 0] = 0
    # Half the upper tail: under the null the other half of the probability is at a statistic of 0.
    p_values = np.where(statistics > 0, chi2.sf(statistics, 1) / 2, 1.0)
    return _presence(statistics, p_values, alpha, method, "likelihood ratio")


def presence_by_rows(
    model: Likelihood,
    rows: list[RowScores],
    *,
    noise_free: bool,
    alpha: float,
    method: str,
    report: Report = silent,
    codes: Sequence[Array] | None = None,
) -> Presence:
    """Test every loading by the scores of the ``rows``, whose covariances ``model`` has; else as ``presence_of``.

    ``codes`` are the groups of the rows, k arrays (n_i,).
    """
    statistics = np.empty(model.B.shape)
    p_values = np.empty(model.B.shape)
    full, floor = _refitted(model, noise_free)
    for j, without in _without_each(full, noise_free, floor, report):
        tests = score_tests(without, j, rows, noise_free & (without.s > floor), codes)
        statistics[:, j] = tests.statistics
        p_values[:, j] = tests.p_values
    result = _presence(statistics, p_values, alpha, method, "score")
    return result if codes is None else replace(result, n_groups=np.array([len(np.unique(c)) for c in codes]))


def _refitted(model: Likelihood, noise_free: bool) -> tuple[Likelihood, float]:
    """Return the model with the unknowns of each context at their maximum for its A, and the least noise allowed."""
    p = len(model.G) + model.outside
    # tr S_i / p, from tr(A R_i A^T) = tr(R_i G) and the variance outside the span; the floor is that of the solver.
    variance = (np.einsum("kab,ab->k", model.R, model.G) + model.rest) / p
    floor = max(float(variance.max()) * FLOOR, np.finfo(float).tiny) if noise_free else 0.0
    # The solver leaves loadings at their maximum only up to its tolerance; both sides of a ratio need the same end.
    return fit_contexts(model, noise_free=noise_free, floor=floor), floor


def _without_each(full: Likelihood, noise_free: bool, floor: float, report: Report) -> Iterator[tuple[int, Likelihood]]:
    """Yield each MCPC and the maximum without it, for the A of ``full``."""
    k, r = full.B.shape
    p = r + full.outside
    allowed = np.ones((k, r), dtype=bool)
    for j in range(r):
        allowed[:, j] = False
        # The noise takes over the variance of the component; if r = p it may be near 0, where steps in log s are slow.
        start = replace(full, s=np.maximum(full.s, full.B[:, j] / p)) if noise_free else full
        yield j, fit_contexts(start, allowed=allowed, noise_free=noise_free, floor=floor)
        allowed[:, j] = True
        report("tests of MCPCs", j + 1, r)


def _presence(statistics: Array, p_values: Array, alpha: float, method: str, test: str) -> Presence:
    adjust = false_discovery_control if method == "fdr" else _holm
    # All k r tests are one family: users look at the whole table.
    adjusted = adjust(p_values.ravel()).reshape(p_values.shape)
    return Presence(statistics, p_values, adjusted, adjusted <= alpha, alpha, method, test)


def _holm(p: Array) -> Array:
    """Return p-values corrected by Holm's method: the i-th smallest times ``m - i + 1``, made monotone, at most 1."""
    order = np.argsort(p)
    # A hypothesis may not be rejected before one with a smaller p-value, hence the running maximum.
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    out = np.empty_like(p)
    out[order] = np.minimum(stepped, 1)
    return out
