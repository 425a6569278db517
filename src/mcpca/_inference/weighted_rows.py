"""Rows of a robust fit, as they entered it: shrunk by the roots of their weights.

A robust fit (``MCPCA(robust=True)``) is the ordinary one to ``S_i = f mean(w x x^T)``, with the weights of a
multivariate t, ``w = (nu + p) / (nu + d2)``, at the distances d2 in ``Sigma_i / f``. The factor f brings the scatter of
the t to the scale of the bulk. ``mean(w d2) = p`` at the fit, by which f is found again.

Weights depend on the fit, and so a row moves it by more than its share. With ``q = w d2``, the ``f w x x^T - Sigma`` of
a row has a part that changes the shape of Sigma and one that changes its size,

    (f w x x^T - q/p Sigma) + (q/p - 1) Sigma,

and as weights follow, a small change of shape comes back by the share ``1 - a``, one of size by ``1 - c``:

    a = 1 - 2 mean(q^2) / (p (p + 2) (nu + p)),      c = mean(nu q / (nu + d2)) / p,

which are ``(nu + p) / (nu + p + 2)`` and ``nu / (nu + p + 2)`` for rows of the t itself. The two parts therefore count
1/a and 1/c times. That is exact if every context has a noise of its own, whose size is then free; with shared noise it
is on the safe side.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from .._covariances.weighted_moments import weights_of
from .._model.fitted_model import FittedModel
from .._solvers.likelihood import Likelihood
from .._utils.types import Array, Report
from .fisher import without_data
from .row_scores import RowReader, RowScores, read_rows

# Bounds of the logarithm of f, beyond any that a fit has.
_LOG_FACTORS = (-20.0, 20.0)


def rows_of_fit(model: FittedModel, reader: RowReader, report: Report) -> list[RowScores]:
    """Return the rows that ``model`` was fitted on as they entered the fit."""
    rows = read_rows(reader, report)
    freedom = model.degrees_of_freedom
    if freedom is None or np.isinf(freedom):
        return rows
    return weighted_rows(without_data(reader.gaussian, np.ones(len(rows))), rows, freedom)


def weighted_rows(model: Likelihood, rows: list[RowScores], freedom: float) -> list[RowScores]:
    """Return rows as they entered a robust fit with ``freedom`` degrees of freedom, which ended in ``model``."""
    p = len(model.G) + model.outside
    distances = [_distances(model, i, row) for i, row in enumerate(rows)]
    d2 = np.concatenate(distances)
    # mean(w d2) grows with f, from 0 to nu + p.
    f = np.exp(brentq(lambda log_f: _mean_product(np.exp(log_f) * d2, p, freedom) - p, *_LOG_FACTORS))
    q = weights_of(f * d2, p, freedom) * f * d2
    shape = 1 - 2 * np.mean(q**2) / (p * (p + 2) * (freedom + p))
    size = np.mean(freedom * q / (freedom + f * d2)) / p
    out = []
    for row, squared in zip(rows, distances, strict=True):
        w = weights_of(f * squared, p, freedom)
        share = w * f * squared / p
        offsets = (share - 1) / size - share / shape
        roots = np.sqrt(f * w)
        out.append(RowScores(roots[:, None] * row.scores, f * w * row.outside, 1 / shape, offsets, roots))
    return out


def _mean_product(d2: Array, p: int, freedom: float) -> float:
    return float(np.mean(weights_of(d2, p, freedom) * d2))


def _distances(model: Likelihood, i: int, row: RowScores) -> Array:
    """Return ``(x - m)^T Sigma_i^-1 (x - m)`` (n,): that of the scores, and what is outside the span of A over s."""
    inside = np.einsum("na,na->n", row.scores @ model.P[i], row.scores)
    return np.asarray(inside + row.outside / model.s[i] if model.outside else inside)
