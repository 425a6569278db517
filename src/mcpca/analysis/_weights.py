"""What contexts weigh in a design, and on which scale their values are compared.

A loading is a variance, and from n_i rows it is known up to a variance of about 2 t^2 / n_i, with t the variance of
rows along the MCPC, noise included. Beside that, contexts differ from each other by a variance tau^2 that no number of
rows makes smaller. Weights by errors are therefore w_i = 1 / (tau^2 + c / n_i): nearly equal where contexts differ by
much more than their errors, nearly n_i where they do not. c is the average of 2 t^2 over contexts, not a context's own:
small loadings would otherwise have small errors and large weights, and pull every mean towards zero. tau^2 is estimated
beside the confounders but without what is tested (``_design_tests.between_contexts``), so that weights cannot favour
what they are used to test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from .._data.detect import is_anndata
from .._estimator.mcpca import fitted_model
from .._results.anndata_layout import stored_fit
from .._results.context_values import context_values
from .._results.fitted import Fitted
from .._results.pipelines import split_steps
from .._utils.types import Array
from ._design_tests import between_contexts
from ._tables import of_table

# Loadings below this share of the mean of their MCPC count as that on a logarithmic scale: zeros have no logarithm, and
# how far below the others a loading is that cannot be told from zero, no data say.
LOG_FLOOR = 0.01
_SCALES = ("linear", "log", "rank")


class Sampled(NamedTuple):
    """Where values come from: ``what`` they are of rows ("loadings", "variance", "sd", "mean").

    ``spread`` (k, m) is the variance of the rows of each context along the same axes, from which errors follow.
    """

    what: str
    spread: Array


@dataclass(frozen=True)
class Weights:
    """The rule by which contexts are weighed.

    Attributes
    ----------
    kind : {"none", "rows", "errors", "given"}
    by_context : ndarray (k,) or None
        Rows of the contexts that are tested, or their weights.
    scale : {"linear", "log", "rank"}
        On which values are compared.
    """

    kind: str
    by_context: Array | None
    scale: str

    @property
    def words(self) -> str | None:
        """A sentence about the weights."""
        return {
            "none": None,
            "rows": "Contexts count by their rows.",
            "errors": "Contexts count by the errors of their values: those with few rows count less.",
            "given": "Contexts count by the weights given.",
        }[self.kind]

    def of(self, V: Array, sampled: Sampled, Z: Array, blocks: Array) -> Array | None:
        """Return weights (k,) or (k, m) for the columns of V (k, m), on the scale of V, or None if all are equal."""
        if self.kind == "none" or self.by_context is None:
            return None
        if self.kind != "errors":
            return np.asarray(self.by_context / self.by_context.mean())
        sampling = self._constants(V, sampled) / self.by_context[:, None]
        variance = between_contexts(V, Z, blocks, sampling) + sampling
        # A column that does not vary at all has neither variance; all contexts then count alike.
        variance = np.where(variance.max(axis=0) > 0, variance, 1.0)
        return np.asarray(variance.min(axis=0) / variance)

    def _constants(self, V: Array, sampled: Sampled) -> Array:
        """Return c (m,), the sampling variance of a value from a single row."""
        spread = sampled.spread
        if sampled.what == "mean":
            return np.asarray(spread.mean(axis=0))
        if self.scale == "log":
            # log v varies by the variance of v over its square, in which the level of a context cancels but for its
            # noise. The median: where next to nothing is left of a loading without its noise, the ratio is anything.
            level = np.exp(V) if sampled.what != "sd" else np.exp(2 * V)
            return np.asarray((2 if sampled.what != "sd" else 0.5) * np.median((spread / level) ** 2, axis=0))
        return np.asarray(2 * (spread**2).mean(axis=0) if sampled.what != "sd" else spread.mean(axis=0) / 2)


def read_weights(
    weights: Any, data: Any, scale: str, fit: Fitted, source: Any, key: str, missing: str, with_value: Array
) -> Weights:
    """Return the rule for the contexts ``with_value``; ``weights`` is "errors", "rows", values by context, or None."""
    if weights is None:
        return Weights("none", None, scale)
    if isinstance(weights, str) and weights in ("errors", "rows"):
        if fit.n_samples is None:
            raise ValueError(
                f"weights={weights!r} needs the rows of each context, and the fit to covariances does not know them; "
                "fit with n_samples, or pass weights by context."
            )
        if weights == "errors" and scale == "rank":
            raise ValueError("weights='errors' has no effect on ranks, which have no errors; pass 'rows', or drop it.")
        return Weights(weights, np.asarray(fit.n_samples, dtype=np.float64)[with_value], scale)
    if isinstance(weights, str) and not is_anndata(source) and data is None:
        raise ValueError(f"weights={weights!r}; choose 'errors' or 'rows', or pass a weight for each context.")
    read = context_values(
        of_table(weights, data, "weights", source), fit.contexts, "weights", source=source, key=key, missing=missing
    )
    given = read.values[with_value]
    if read.kind != "number":
        raise ValueError(f"weights has {read.kind} values; pass positive numbers, 'errors' or 'rows'.")
    bad = np.flatnonzero(~(given > 0))
    if len(bad):
        context = fit.contexts[with_value[bad[0]]]
        raise ValueError(f"weights of context {context!r} is {given[bad[0]]:g}; pass positive numbers.")
    return Weights("given", given, scale)


def check_scale(scale: Any, of: str) -> None:
    """Raise if ``scale`` is unknown or does not suit what is tested."""
    if scale not in _SCALES:
        raise ValueError(f"scale={scale!r}; choose one of {list(_SCALES)}.")
    if scale == "log" and of == "mean":
        raise ValueError("scale='log' needs positive values, and means have any sign; take 'linear' or 'rank'.")


def on_scale(V: Array, what: str, scale: str) -> Array:
    """Return the columns of V (k, m) on a scale; means have no logarithm and stay as they are."""
    if scale == "rank":
        return np.asarray(rankdata(V, axis=0), dtype=np.float64)
    if scale == "linear" or what == "mean":
        return V
    floor = log_floor(V)
    # A column of zeros stays constant, which is what it is.
    return np.asarray(np.log(np.where(floor > 0, np.maximum(V, floor), 1.0)))


def log_floor(V: Array) -> Array:
    """Return the value (m,) that counts for all smaller ones of a column on a logarithmic scale."""
    return np.asarray(LOG_FLOOR * np.maximum(V, 0).mean(axis=0))


def spread_along_mcpcs(source: Any, key: str, fit: Fitted) -> Array:
    """Return the variance of rows (k, r) along each MCPC, with the noise, as far as the fit tells it."""
    if fit.noise is None:
        return fit.loadings  # the noise is in them
    if is_anndata(source):
        noise = stored_fit(source, key)["contexts"].get("noise_variance")
    else:
        noise = fitted_model(split_steps(source)[1]).noise_by_context
    # Noise by feature is not that of a context; errors are then those of the loadings alone.
    if noise is None:
        return fit.loadings
    return np.asarray(fit.loadings + np.outer(noise, (fit.projection**2).sum(axis=1)))
