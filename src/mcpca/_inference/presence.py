"""Is an MCPC present in a context at all? A likelihood-ratio test of every loading against zero.

The null hypothesis ``b_ij = 0`` is at the boundary of ``b_ij >= 0``: the statistic is 0 half of the time, and
chi-square with one degree of freedom otherwise. The components stay as fitted; the other loadings of the context, and
its noise if that is free, are fitted again without MCPC j. All contexts are done at once, one MCPC after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import chi2, false_discovery_control

from .._model.fitted_model import FittedModel
from .._model.gaussian import FLOOR
from .._solvers.likelihood import Likelihood, fit_contexts
from .._utils.arguments import check_real
from .._utils.printing import Shown, counted, listed_mcpcs, mcpcs
from .._utils.progress import silent
from .._utils.types import Array, Report


@dataclass(frozen=True, repr=False)
class Presence(Shown):
    """Is MCPC j present in context i? One entry for each pair, (k, r).

    Attributes
    ----------
    statistics : ndarray
        Likelihood ratio: twice the log-likelihood that is lost when the loading is 0.
    p_values : ndarray
        Of "the loading is 0". Zero is the end of its range, so the statistic is 0 half of the time and chi-square
        with one degree of freedom otherwise.
    adjusted : ndarray
        p-values corrected for the k r tests by ``method``.
    present : ndarray of bool
        ``adjusted <= alpha``.
    alpha : float
    method : str
        "fdr" (Benjamini and Hochberg) or "holm".
    """

    statistics: Array
    p_values: Array
    adjusted: Array
    present: Array
    alpha: float
    method: str

    def _words(self) -> list[str]:
        k, r = self.present.shape
        level = f"{self.alpha:g}"
        by = f"false discovery rate {level}" if self.method == "fdr" else f"level {level}, corrected by Holm's method"
        return [
            f"{int(self.present.sum()):,} of {k * r:,} loadings are above 0 ({counted(k, 'context')}, "
            f"{counted(r, 'MCPC')}; {by}).",
            f"Present in every context: {listed_mcpcs(self.present.all(axis=0))}; in none: "
            f"{listed_mcpcs(~self.present.any(axis=0))}.",
        ]

    def _rows(self) -> dict[str, Any]:
        k, r = self.present.shape
        least = {"smallest adjusted p": self.adjusted.min(axis=0), "largest": self.adjusted.max(axis=0)}
        return {"": mcpcs(r), f"present in, of {k} contexts": self.present.sum(axis=0), **least}


def presence_tests(model: FittedModel, alpha: Any, method: str, report: Report) -> Presence:
    """Test every loading of a fitted model; see ``MCPCA.presence``."""
    alpha = check_real(alpha, "alpha", 0, 1, "It is a probability.")
    if method not in ("fdr", "holm"):
        raise ValueError(f"method={method!r}; choose 'fdr' or 'holm'.")
    gaussian = model.gaussian("presence()")
    counts = model.counts("presence()")
    if model.score_moments is None:
        raise ValueError("This model was saved by an older mcpca, without what the test needs; fit it again.")
    # Statistics have no units: data are brought to a scale at which squares of covariances are numbers.
    e = gaussian.exponent
    gaussian = gaussian.times_power(-e)
    score_covariances, outside = (np.ldexp(moments, -2 * e) for moments in model.score_moments)
    white = gaussian.white
    p, r = white.shape
    likelihood = Likelihood(white.T @ white, gaussian.B, gaussian.s, score_covariances, outside, counts - 1.0, p - r)
    return presence_of(likelihood, noise_free=model.noise == "isotropic", alpha=alpha, method=method, report=report)


def presence_of(model: Likelihood, *, noise_free: bool, alpha: float, method: str, report: Report = silent) -> Presence:
    """Test every loading of ``model``, with A as it is and the rest of the context fitted anew."""
    k, r = model.B.shape
    p = r + model.outside
    variance = (np.einsum("kab,ab->k", model.R, model.G) + model.rest) / p
    floor = max(float(variance.max()) * FLOOR, np.finfo(float).tiny) if noise_free else 0.0
    full = fit_contexts(model, noise_free=noise_free, floor=floor)
    statistics = np.empty((k, r))
    allowed = np.ones((k, r), dtype=bool)
    for j in range(r):
        allowed[:, j] = False
        # Noise has to take over what the component had, of which there may be none to start from (r = p). A context
        # that does without the component anyway has nothing to lose.
        start = replace(full, s=np.maximum(full.s, full.B[:, j] / p)) if noise_free else full
        without = fit_contexts(start, allowed=allowed, noise_free=noise_free, floor=floor)
        statistics[:, j] = model.n * np.maximum(without.deviances - full.deviances, 0)
        allowed[:, j] = True
        report("tests of MCPCs", j + 1, r)
    statistics[full.B <= 0] = 0
    p_values = np.where(statistics > 0, chi2.sf(statistics, 1) / 2, 1.0)
    adjusted = (false_discovery_control(p_values.ravel()) if method == "fdr" else _holm(p_values.ravel())).reshape(k, r)
    return Presence(statistics, p_values, adjusted, adjusted <= alpha, alpha, method)


def _holm(p: Array) -> Array:
    order = np.argsort(p)
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    out = np.empty_like(p)
    out[order] = np.minimum(stepped, 1)
    return out
