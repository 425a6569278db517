"""Twins of the kernels of passes for panels of sparse rows on a device.

Each has the arguments of its twin in ``kernels.py`` and returns the same sums, of all pieces of a panel at once, on the
host in float64: ``tests/covariances/test_device_sparse.py`` compares the two. ``gram_sums`` is the twin of
``GramInParts`` for panels with all rows of their contexts. Shapes: c pieces of at most R rows, c' contexts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .._data.context_sums import Sum
from .._utils.array_api import namespace, widest_float
from .._utils.types import Array
from . import kernels
from .gram import GramInParts
from .passes import Kernel

if TYPE_CHECKING:
    from .device_panels import Panel


def on_device(kernel: Kernel) -> Callable[[Panel], list[Sum]]:
    """Return the twin of a kernel, with the same arguments bound."""
    function: Any = getattr(kernel, "func", kernel)
    return partial(_TWINS[function], *getattr(kernel, "args", ()))


def _row_sums(by_entry: bool, panel: Panel) -> list[Sum]:
    values = panel.wide(panel.backward.values)
    return [Sum(0, panel.contexts, panel.receive(panel.by_context(panel.feature_sums(values))))]


def _row_sums_and_sketch(by_entry: bool, directions: Array, mixture: Array, panel: Panel) -> list[Sum]:
    scores = panel.times(panel.send(directions)) * panel.send(mixture[panel.codes])[:, None, :]
    return [*_row_sums(by_entry, panel), Sum(1, ..., _over_pieces(panel, panel.transposed_times(scores)))]


def _score_scatters(scores: kernels.CentredScores, panel: Panel) -> list[Sum]:
    xp = namespace(panel.values)
    Z = _scores(scores, panel)
    # One product (m, R) x (R, m) for each piece, batched; rows of zeros have scores of 0.
    return [Sum(0, panel.contexts, panel.receive(panel.by_context(xp.matmul(xp.matrix_transpose(Z), Z))))]


def _score_squares(scores: kernels.CentredScores, panel: Panel) -> list[Sum]:
    return [Sum(0, panel.contexts, panel.receive(panel.by_context(_column_squares(_scores(scores, panel)))))]


def _combined_products(scores: kernels.CentredScores, W: Array, panel: Panel) -> list[Sum]:
    xp = namespace(panel.values)
    Z = _scores(scores, panel)
    weights = panel.send(W[panel.codes])
    Z = Z * weights[:, None, :] if W.ndim == 2 else xp.matmul(Z, weights)
    sums = panel.by_context(xp.sum(Z, axis=1, dtype=widest_float(Z)))
    products = _over_pieces(panel, panel.transposed_times(Z))
    return [Sum(0, ..., products), Sum(1, panel.contexts, panel.receive(sums))]


def _feature_squares(means: Array, panel: Panel) -> list[Sum]:
    xp = namespace(panel.values)
    values = panel.wide(panel.backward.values)
    # ``x (x - 2 m)`` entry by entry, with the mean of the entry's context and feature: its row in ``backward``.
    m = xp.reshape(panel.send(means[panel.codes], values.dtype), (-1,))
    squares = values * (values - 2 * xp.take(m, panel.backward.row_of_entries(), axis=0))
    return [Sum(0, panel.contexts, panel.receive(panel.by_context(panel.feature_sums(squares))))]


def _with_row_squares(kernel: Kernel, lengths: kernels.SquareLengths, place: int, panel: Panel) -> list[Sum]:
    values = panel.wide(panel.backward.values)
    squares = panel.receive(panel.by_context(panel.feature_sums(values * values)))
    weights = np.ones(panel.n_features) if lengths.weights is None else lengths.weights
    return [*on_device(kernel)(panel), Sum(place, panel.contexts, (squares @ weights)[:, None])]


def _nothing(panel: Panel) -> list[Sum]:
    return []


def _centred_scatters(means: Array, panel: Panel) -> list[Sum]:
    xp = namespace(panel.values)
    # One piece at a time, dense: (R, p) numbers beside the scatters (c', p, p), for few features.
    scatters = np.zeros((len(panel.contexts), panel.n_features, panel.n_features))
    sums = np.zeros((len(panel.contexts), panel.n_features))
    for j, i in enumerate(panel.codes.tolist()):
        centred = panel.dense(j) - panel.send(means[i])
        centred = centred if panel.filled is None else centred * panel.filled[j, ...]
        place = 0 if panel.of_one_context else j
        scatters[place] += panel.receive(xp.matmul(xp.matrix_transpose(centred), centred))
        sums[place] += panel.receive(xp.sum(centred, axis=0, dtype=widest_float(centred)))
    return [Sum(0, panel.contexts, scatters), Sum(1, panel.contexts, sums)]


_TWINS: dict[Any, Callable[..., list[Sum]]] = {
    kernels.row_sums: _row_sums,
    kernels.row_sums_and_sketch: _row_sums_and_sketch,
    kernels.score_scatters: _score_scatters,
    kernels.score_squares: _score_squares,
    kernels.combined_products: _combined_products,
    kernels.feature_squares: _feature_squares,
    kernels.with_row_squares: _with_row_squares,
    kernels.nothing: _nothing,
    kernels.centred_scatters: _centred_scatters,
}


def gram_sums(gram: GramInParts, group: list[Panel]) -> list[Sum]:
    """Return what panels with all rows of their contexts add to ``sum_i S_i S_i V``, to lengths and to the core.

    As in ``gram.py``: ``Y_i = f_i (X_i - 1 m_i^T)^T Z_i`` first, over all panels, and then
    ``f_i (X_i - 1 m_i^T)^T (X_i - 1 m_i^T) Y_i``. Memory: images (c', p, m) about three times.
    """
    first = group[0]
    xp = namespace(first.values)
    contexts = first.contexts
    V = first.send(gram.directions)
    images = _images(gram, group, V)
    if gram.removed is not None:
        nuisance = np.stack([gram.factors[i] * gram.removed.times(i, gram.directions) for i in contexts.tolist()])
        images = images - first.send(nuisance, images.dtype)
    # With features scaled by D the images are ``D^2 S_i D V``, as rows need them; lengths and core one factor D less.
    plain = images
    if gram.scale is not None:
        scale = first.send(gram.scale, images.dtype)[None, :, None]
        plain = images * scale
        images = plain * scale
    squares = first.receive(xp.sum(plain * plain, axis=1)) if gram.probing else np.zeros((len(contexts), V.shape[1]))
    core = first.receive(xp.matmul(first.send(gram.seen, plain.dtype).T, plain[:, :, : gram.s]))
    Y = xp.astype(images[:, :, : gram.s], first.values.dtype, copy=False)
    product = first.receive(sum(_second_products(gram, panel, Y) for panel in group))
    if gram.removed is not None:
        product = product - gram.nuisance_of(zip(contexts.tolist(), first.receive(Y), strict=True))
    return [Sum(0, ..., product), Sum(1, contexts, squares), Sum(2, contexts, core)]


def _images(gram: GramInParts, group: list[Panel], V: Any) -> Any:
    """Return ``f_i (X_i - 1 m_i^T)^T Z_i`` (c', p, m) of the contexts of a group."""
    first = group[0]
    xp = namespace(first.values)
    factors = gram.factors[first.contexts]
    if first.of_whole_pieces:
        # All rows of a context in one piece: its scores are centred by their own mean and sum to 0, so that
        # (X - 1 m^T)^T Z = X^T Z, and nothing is to be corrected in p features.
        return first.transposed_times(_centred_by_own_means(first, first.times(V), factors))
    images: Any = 0
    sums: Any = 0
    for panel in group:
        Z = panel.centred(V, panel.send(gram.offsets[panel.codes]))
        images = images + panel.by_context(panel.transposed_times(Z))
        sums = sums + panel.by_context(xp.sum(Z, axis=1, dtype=widest_float(Z)))
    # Sums of centred scores are 0 but for the rounding of m_i, which is no longer small once multiplied by m_i.
    images = images - first.send(gram.means[first.contexts], images.dtype)[:, :, None] * sums[:, None, :]
    return images * first.send(factors, images.dtype)[:, None, None]


def _second_products(gram: GramInParts, panel: Panel, Y: Any) -> Any:
    """Return ``sum_i f_i (X_i - 1 m_i^T)^T (X_i - 1 m_i^T) Y_i`` (p, s) over the rows of a panel, on the device."""
    xp = namespace(panel.values)
    wide = widest_float(panel.values)
    factors = gram.factors[panel.contexts]
    if panel.of_whole_pieces:
        T = _centred_by_own_means(panel, panel.times(Y), factors)
        return xp.sum(panel.transposed_times(T), axis=0, dtype=wide)
    # One image, which all pieces of a large context share; m_i^T Y_i in float64 before it is rounded.
    mean = panel.send(gram.means[panel.contexts], wide)
    offset = xp.astype(mean @ panel.wide(Y[0, ...]), Y.dtype, copy=False)
    T = panel.centred(Y[0, ...], xp.broadcast_to(offset, (panel.n_pieces, gram.s))) * float(factors[0])
    # Over some rows of a context centred scores do not sum to 0: (X - 1 m^T)^T T = X^T T - m (1^T T).
    left = panel.by_context(xp.sum(T, axis=1, dtype=wide))
    return xp.sum(panel.transposed_times(T), axis=0, dtype=wide) - mean.T @ left


def _centred_by_own_means(panel: Panel, Z: Any, factors: Array) -> Any:
    """Return scores (c, R, m) of all rows of their contexts less their means, times ``factors`` (c,)."""
    xp = namespace(Z)
    counts = panel.send(panel.counts, widest_float(Z))[:, None, None]
    # Twice, as ``context_sums.centred`` has it: the rounding of a large mean is left in every entry the first time.
    for _ in range(2):
        mean = xp.sum(Z, axis=1, keepdims=True, dtype=widest_float(Z)) / counts
        Z = Z - xp.astype(mean, Z.dtype, copy=False)
        Z = Z if panel.filled is None else Z * panel.filled
    return Z * panel.send(factors, Z.dtype)[:, None, None]


def _scores(scores: kernels.CentredScores, panel: Panel) -> Any:
    """Return the centred scores (c, R, m)."""
    return panel.centred(panel.send(scores.directions), panel.send(scores.offsets[panel.codes]))


def _column_squares(Z: Any) -> Any:
    xp = namespace(Z)
    return xp.sum(Z * Z, axis=1, dtype=widest_float(Z))


def _over_pieces(panel: Panel, products: Any) -> Array:
    """Return the sum over all pieces of products (c, p, m), on the host."""
    return panel.receive(namespace(products).sum(products, axis=0, dtype=widest_float(products)))
