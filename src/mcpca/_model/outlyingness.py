"""How far rows are from what a fitted Gaussian model expects of their context.

``outlyingness`` is ``MCPCA.outlyingness``: ``d2 / p`` for the squared Mahalanobis distance d2 of a row with p features,
which is 1 on average where the model holds. The identity behind it, one product a row with r directions, is in
``_covariances.weighted_moments``; ``row_distances`` brings a ``GaussianModel`` to its form, here and in robust fits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .._covariances.fit_data import MOST_NUMBERS
from .._covariances.weighted_moments import RowDistances, centred_pieces
from .._data.blocks import SCAN_BYTES, check_block
from .._data.context_sums import rows_of_contexts
from .._data.detect import has_dask_rows, input_kind
from .._data.labels import encode_labels, take_labels
from .._utils.array_api import is_device_array, like, to_host
from .._utils.types import Array, Report
from .fitted_model import FittedModel
from .gaussian import GaussianModel
from .new_rows import check_new_rows, read_new_contexts


def row_distances(gaussian: GaussianModel, means: Array) -> RowDistances:
    """Return the distances of rows from ``means`` (k, p) in the metric of each context of a model.

    Cost O(p r^2 + k r^3), memory O(k r^2).
    """
    s = gaussian.s
    scale = gaussian.scale
    white = gaussian.white
    p, r = white.shape
    roots = np.sqrt(gaussian.B)
    # inner_i = s_i I + R_i A^T A R_i, (k, r, r): at least s_i in every direction, so its inverse exists.
    inner = roots[:, :, None] * (white.T @ white) * roots[:, None, :] + s[:, None, None] * np.eye(r)
    shrinkage = roots[:, :, None] * np.linalg.inv(inner) * roots[:, None, :]
    # det(A B A^T + s I) = s^(p - r) det(s I + R A^T A R); scaling features multiplies it by det(diag(scale))^2.
    log_determinants = np.linalg.slogdet(inner)[1] + (p - r) * np.log(s)
    if scale is not None:
        log_determinants = log_determinants - 2 * np.log(scale).sum()
    return RowDistances(
        means=means,
        directions=white if scale is None else scale[:, None] * white,
        shrinkage=(shrinkage + shrinkage.transpose(0, 2, 1)) / 2,
        noise=s,
        precisions=None if scale is None else scale**2,
        log_determinants=log_determinants,
    )


def outlyingness(model: FittedModel, X: Any, y: Any, center: Any, report: Report) -> Any:
    """Return ``d2 / p`` (n,) of the rows of one matrix; see ``MCPCA.outlyingness``.

    ``center`` is the mean of all rows, or None for the fitted mean of each row's context.
    """
    kind = input_kind(X)
    X, y = take_labels(X, y, kind)
    # Before rows are read: a model without noise has no distances.
    gaussian = model.gaussian("outlyingness")
    if has_dask_rows(X, kind):
        return _on_dask(model, gaussian, X, y, center)
    rows = check_new_rows(model, X, kind)
    n = rows.shape[0]
    names, codes = (None, np.zeros(n, dtype=np.intp)) if y is None else encode_labels(y, n)
    # Distances have no unit, so rows are scaled as the model is to where squares neither overflow nor underflow.
    e = gaussian.exponent
    distances = _distances(model, gaussian.times_power(-e), names, center, e)
    out = np.empty(n)
    # Rows on a device come to the host as a whole; they are of a size that is handed to ``transform``.
    host = to_host(rows)
    blocks = rows.scan(SCAN_BYTES) if host is rows and not isinstance(rows, np.ndarray) else [(0, host)]
    for first, block in blocks:
        check_block(block, first, "X")
        part = slice(first, first + block.shape[0])
        out[part] = _of_block(distances, block, codes[part], e)
        report("outlyingness", part.stop, n)
    return like(out, rows) if is_device_array(rows) else out


def _of_block(distances: RowDistances, X: Any, codes: Array, e: int) -> Array:
    """Return ``d2 / p`` of rows whose centres and covariances are those of data times ``2^-e``."""
    out = np.empty(len(codes))
    for i, rows in zip(*rows_of_contexts(codes, 0, len(distances.means)), strict=True):
        block = X[rows]
        d2 = np.empty(block.shape[0])
        for part, Z in centred_pieces(block, np.ldexp(distances.means[i], e)):
            d2[part] = distances.squared(np.ldexp(Z, -e, out=Z), i)
        out[rows] = d2 / X.shape[1]
    return out


def _distances(model: FittedModel, gaussian: GaussianModel, names: Array | None, center: Any, e: int) -> RowDistances:
    """Return the distances in the contexts ``names``, or in the average context, with means times ``2^-e``."""
    labels = None if names is None else names.tolist()
    if labels is None:
        # As posterior scores without labels: loadings and noise averaged over the fitted rows.
        counts = model.n_samples
        chosen = replace(
            gaussian,
            B=np.average(gaussian.B, axis=0, weights=counts)[None],
            s=np.average(gaussian.s, weights=counts)[None],
        )
    else:
        way_out = "Drop y to compare rows with the average context."
        places = model.positions_of(labels, "outlyingness", way_out)
        chosen = replace(gaussian, B=gaussian.B[places], s=gaussian.s[places])
    means = np.ldexp(np.stack(list(model.context_means.by_context(labels, center, list))), -e)
    return row_distances(chosen, np.broadcast_to(means, (len(chosen.B), model.n_features)))


def _on_dask(model: FittedModel, gaussian: GaussianModel, X: Any, y: Any, center: Any) -> Any:
    """Return the distances of rows on Dask as a Dask array (n,) that has not been computed yet.

    They are squared lengths of ``T_i (x - m_i)`` with ``T_i^T T_i = Sigma_i^-1``, which have the form of scores.
    """
    contexts = read_new_contexts(model, X, y, min_samples=1)
    assert contexts.engine is not None
    names = None if y is None else contexts.names
    k = 1 if names is None else len(names)
    p = model.n_features
    if k * p**2 > MOST_NUMBERS:
        raise ValueError(
            f"outlyingness of Dask rows needs a matrix of {p} x {p} numbers for each of {k} contexts, more than "
            f"{MOST_NUMBERS} in all; pass blocks of rows in memory, one call for each."
        )
    distances = _distances(model, gaussian, names, center, 0)
    roots = [_root(distances, i) for i in range(k)]
    offsets = np.array([mean @ root.T for mean, root in zip(distances.means, roots, strict=True)])
    scores = contexts.engine.scores(offsets, roots)
    return (scores**2).sum(axis=1) / p


def _root(distances: RowDistances, i: int) -> Array:
    """Return T (p, p) with ``T^T T = Sigma_i^-1``."""
    A = distances.directions
    p = len(A)
    D = np.eye(p) if distances.precisions is None else np.diag(distances.precisions)
    inverse = (D - A @ distances.shrinkage[i] @ A.T) / distances.noise[i]
    values, vectors = np.linalg.eigh((inverse + inverse.T) / 2)
    return np.asarray(np.sqrt(np.maximum(values, 0))[:, None] * vectors.T)
