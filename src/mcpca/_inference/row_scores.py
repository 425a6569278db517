"""What inference needs of the rows themselves: r noisy scores and the squared length outside the MCPCs, of every row.

With features scaled so that noise is isotropic (``GaussianModel.white``), a row x of a context with mean m has the
scores ``z = W (x - m)``, W the pseudoinverse of A, and outside the span of A the squared length

    e = |x - m|^2 - z^T A^T A z.

The Gaussian log-density of a row depends on these r + 1 numbers only (``_solvers.likelihood``), and so do the scores of
all parameters but the direction in which A leaves its span. Rows are read once, in pieces, and sparse ones stay sparse:
``|x - m|^2 = |x|^2 - 2 x . m + |m|^2``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._covariances.row_groups import all_rows
from .._covariances.streamed import context_means
from .._data.blocks import times_power
from .._data.context_sums import rows_of_contexts
from .._data.contexts import Contexts
from .._model.fitted_model import FittedModel
from .._model.gaussian import GaussianModel
from .._model.new_rows import read_fitted_contexts
from .._utils.array_api import to_host
from .._utils.types import Array, Report
from .._utils.wording import listed


class RowScores(NamedTuple):
    """Rows of one context: their noisy scores z (n, r), and their squared lengths e outside the span of A (n,).

    A row moves the covariance of its context by ``gain x x^T + offset Sigma``: x x^T less Sigma, unless rows were
    weighted (``weighted_rows``).
    """

    scores: Array
    outside: Array
    gain: float = 1.0
    offsets: Array | float = -1.0


def check_labelled(X: Any, y: Any) -> None:
    """Raise for labels without rows."""
    if X is None and y is not None:
        raise ValueError("y labels the rows of X, and no X is given; pass both or neither.")


def read_rows(model: FittedModel, gaussian: GaussianModel, X: Any, y: Any, e: int, report: Report) -> list[RowScores]:
    """Return the scores of the rows that ``model`` was fitted on, context by context.

    ``gaussian`` is that of the rows times ``2^-e``, and so are the results. One pass, or two if the model was fitted to
    covariances and knows no means; memory O(n r) and a piece of rows.
    """
    contexts = read_fitted_contexts(model, X, y)
    if contexts.engine is not None:
        raise ValueError(
            "X is a Dask collection, and the spread of its rows is measured in this process. Pass X.compute() if that "
            "fits into memory, or leave X out for an answer that takes rows to be Gaussian."
        )
    _check_counts(model, contexts)
    means = context_means(contexts) if model.means is None else to_host(model.means).astype(np.float64)
    means = np.ldexp(means, -e)
    white = gaussian.white
    scale = np.ones(len(white)) if gaussian.scale is None else gaussian.scale
    # (p, r): takes features as they are, not scaled, to scores.
    directions = scale[:, None] * np.linalg.pinv(white).T
    G = white.T @ white
    n_rows = int(contexts.n_samples.sum())
    parts: list[list[tuple[Array, Array]]] = [[] for _ in contexts.names]
    done = 0
    for group in all_rows(contexts):
        for piece in group.pieces():
            block, codes = piece.load()
            block = times_power(block, -e) if e else block
            for i, members in zip(*rows_of_contexts(codes, 0, len(parts)), strict=True):
                parts[i].append(_scores(block[members], means[i], directions, scale))
            done += piece.n_rows
            report("rows", done, n_rows)
    rows = []
    for i, pieces in enumerate(parts):
        Z = np.concatenate([scores for scores, _ in pieces])
        lengths = np.concatenate([squares for _, squares in pieces])
        if not np.isfinite(lengths).all():
            # In double precision, and with the scale of the model, only values that are not finite lead here.
            contexts.check_finite(i)
        inside = np.einsum("na,na->n", Z @ G, Z)
        # Rounding may leave it below 0. If r = p there is no outside, and rounding is all that is left.
        rest = np.maximum(lengths - inside, 0) if len(white) > len(G) else np.zeros(len(Z))
        rows.append(RowScores(Z, rest))
    return rows


def _scores(block: Any, mean: Array, directions: Array, scale: Array) -> tuple[Array, Array]:
    """Return ``(x - m) V`` and ``|D (x - m)|^2`` of some rows of one context, V the directions and D the scale."""
    weights = scale**2
    if scipy.sparse.issparse(block):
        values = block.astype(np.float64)
        scores = values @ directions - mean @ directions
        across = values @ (weights * mean)
        values.data = values.data**2
        return np.asarray(scores), np.asarray(values @ weights - 2 * across + weights @ mean**2)
    centred = block - mean  # float64, as the mean is
    return centred @ directions, centred**2 @ weights


def _check_counts(model: FittedModel, contexts: Contexts) -> None:
    """Raise if contexts have other numbers of rows than in the fit: these are then other rows."""
    if model.n_samples is None:
        return
    fitted = np.asarray(model.n_samples)
    differ = np.flatnonzero(fitted != contexts.n_samples)
    if len(differ):
        names = contexts.names.tolist()
        changed = [f"{names[i]!r} ({contexts.n_samples[i]:,} and {fitted[i]:,})" for i in differ]
        raise ValueError(
            "X must be the rows that the model was fitted on, but contexts have other numbers of rows here than in the "
            f"fit: {listed(changed)}."
        )
