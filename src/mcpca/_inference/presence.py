"""What is certain about a fitted model: standard errors, tests of presence, resampling."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import chi2, false_discovery_control
from sklearn.utils.validation import check_is_fitted

from .._data.contexts import Contexts
from .._model.gaussian import FLOOR
from .._solvers.likelihood import Likelihood, fit_contexts
from .._utils.arguments import as_generator, check_integer, check_real
from .._utils.array_api import to_host
from .._utils.printing import Shown, counted, listed_mcpcs, mcpcs
from .._utils.progress import reporting, silent
from .._utils.types import Array, Report
from .bootstrap import Bootstrap, resample
from .precision import Precision, precision_of
from .replication import REPLICATES, Replicability, replicate

# Parameters of the estimator that only a choice of the rank has a use for, as they are by default.
RANK_DEFAULTS = {"rank_range": None, "n_seed_pairs": 5, "cos_sim_threshold": 0.8}


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


class UncertaintyMethods:
    """Standard errors, tests and the bootstrap of a fitted model."""

    components_: Array
    loadings_: Array
    n_samples_per_context_: Array | None
    noise: str | None
    orthogonal: bool
    verbose: Any
    contexts_: Array
    get_params: Any
    _read_new: Any
    _score_moments: tuple[Array, Array] | None
    _gaussian: Any

    def standard_errors(self) -> Precision:
        """Return standard errors from Fisher's information of the fitted model.

        For each MCPC the root mean square angle to the truth, in degrees; for each loading its standard error. They
        hold for ``solver="ml"`` (others are less accurate than that), for many samples, and as far as the Gaussian
        model does; ``bootstrap`` asks the rows instead. Diagonal noise is taken as known.

        Notes
        -----
        Cost O(k r^5 + r^6), memory O(r^4).
        """
        check_is_fitted(self)
        model = self._gaussian("standard_errors()")
        counts = self._counts("standard_errors()")
        e = model.exponent
        with reporting(self.verbose, "standard errors"):
            options = {"pooled": self.noise == "pooled", "orthogonal": self.orthogonal}
            return precision_of(model.times_power(-e), counts, **options).times_power(e)

    def presence(self, *, alpha: float = 0.05, method: str = "fdr") -> Presence:
        """Test for every MCPC and context whether the MCPC is there at all.

        A likelihood-ratio test of a zero loading, the end of its range, with the other loadings and the noise of the
        context fitted anew and the MCPCs as they are; corrected for the number of tests. Needs ``solver="ml"``.

        Parameters
        ----------
        alpha : float
            Level at which ``present`` is told.
        method : {"fdr", "holm"}
            Correction: the share of false discoveries (Benjamini and Hochberg), or the chance of a single one (Holm).
        """
        check_is_fitted(self)
        alpha = check_real(alpha, "alpha", 0, 1, "It is a probability.")
        if method not in ("fdr", "holm"):
            raise ValueError(f"method={method!r}; choose 'fdr' or 'holm'.")
        model = self._gaussian("presence()")
        counts = self._counts("presence()")
        R, rest = self._score_moments or (None, None)
        if R is None or rest is None:
            raise ValueError("This model was saved by an older mcpca, without what the test needs; fit it again.")
        e = model.exponent
        model, R, rest = model.times_power(-e), np.ldexp(R, -2 * e), np.ldexp(rest, -2 * e)
        white = model.white
        beside = Likelihood(white.T @ white, model.B, model.s, R, rest, counts - 1.0, len(white) - white.shape[1])
        with reporting(self.verbose, "tests of MCPCs") as report:
            free = self.noise == "isotropic"
            return presence_of(beside, noise_free=free, alpha=alpha, method=method, report=report)

    def bootstrap(
        self,
        X: Any,
        y: Any = None,
        n: int = 200,
        *,
        confidence: float = 0.95,
        random_state: Any = None,
        verbose: Any = None,
    ) -> Bootstrap:
        """Resample the rows of each context, fit again, and see how far the answer moves.

        Parameters
        ----------
        X, y
            The rows that the model was fitted on.
        n : int
            Resamples. Intervals need some hundreds.
        confidence : float
            Level of the intervals.
        random_state : int, Generator, RandomState or None
            Decides the resamples; the answer does not depend on the number of threads.
        verbose : None, bool or callable
            Progress, as in ``MCPCA``.

        Returns
        -------
        Bootstrap
            Intervals for the loadings, and for each MCPC the angle within which it stays. Fits are matched to this
            model's MCPCs.

        Notes
        -----
        n times the cost of ``fit``, as many fits at a time as BLAS has threads. The rank stays as it is.
        """
        check_is_fitted(self)
        n = check_integer(n, "n", 2)
        confidence = check_real(confidence, "confidence", 0.5, 0.9999, "It is a probability, such as 0.95.")
        with reporting(verbose, "resamples") as report:
            return resample(
                self._of_this_rank(),
                self._read_fitted_rows(X, y),
                to_host(self.components_).astype(np.float64),
                to_host(self.loadings_),
                n,
                confidence,
                as_generator(random_state),
                report,
            )

    def replicability(
        self,
        X: Any,
        y: Any = None,
        n_splits: int = 10,
        *,
        threshold: float = REPLICATES,
        random_state: Any = None,
        verbose: Any = None,
    ) -> Replicability:
        """Split the rows of each context into halves, fit both, and see which MCPCs both find.

        An MCPC that comes back in the other half would come back in as many new samples as a half has. At a rank that
        is too high some do not, and the more samples, the more do.

        Parameters
        ----------
        X, y
            The rows that the model was fitted on; at least 4 in every context.
        n_splits : int
            Random splits.
        threshold : float
            ``|cos|`` between the halves from which on an MCPC counts as replicating.
        random_state, verbose
            As in ``bootstrap``.

        Returns
        -------
        Replicability
            ``|cos|`` of each MCPC between halves, in the order of ``components_``, with its spread over splits.

        Notes
        -----
        ``2 n_splits`` fits of half the rows with this model's parameters, as many at a time as BLAS has threads.
        """
        check_is_fitted(self)
        n_splits = check_integer(n_splits, "n_splits", 1)
        threshold = check_real(threshold, "threshold", 0, 1, "It is an absolute cosine.")
        with reporting(verbose, "halves") as report:
            return replicate(
                self._of_this_rank(),
                self._read_fitted_rows(X, y),
                to_host(self.components_).astype(np.float64),
                n_splits,
                threshold,
                as_generator(random_state),
                report,
            )

    def _of_this_rank(self) -> Any:
        """Return an unfitted model with this one's parameters and its rank, which says nothing."""
        rank = {**RANK_DEFAULTS, "n_components": self.components_.shape[1]}
        return type(self)(**{**self.get_params(deep=False), **rank, "verbose": False})

    def _read_fitted_rows(self, X: Any, y: Any) -> Contexts:
        """Return rows that may be those of the fit: the same contexts and features."""
        contexts: Contexts = self._read_new(X, y, min_samples=2)
        names, fitted = contexts.names.tolist(), self.contexts_.tolist()
        if len(names) != len(fitted) or set(names) != set(fitted):
            raise ValueError(
                f"Resampling needs the rows that the model was fitted on: contexts {names[:5]} were given, "
                f"and it was fitted on {fitted[:5]}."
            )
        return contexts.in_order(fitted)

    def _counts(self, purpose: str) -> Array:
        if self.n_samples_per_context_ is None:
            raise ValueError(f"{purpose} needs the number of rows of each context; pass n_samples to fit_covariances.")
        return self.n_samples_per_context_
