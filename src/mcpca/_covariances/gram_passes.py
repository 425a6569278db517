"""Passes for the basis: ``G V`` with ``G = sum_i S_i S_i``, and what the same rows reveal in passing.

``StreamedCovariances.basis`` runs one such pass for each product of block Lanczos. ``block_for`` chooses the directions
that a pass multiplies, ``multiply`` runs it (with the arithmetic of ``gram.py``), and ``learned`` adds its by-products,
norms and core, to ``PassResults``.

``S_i V`` has to be complete before it is multiplied by S_i again, so all rows of a context are needed together.
Contexts that fit into ``memory_limit()`` are gathered, as many at a time as fit. A larger one is read twice. Rows on
other machines or on a device are multiplied there.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .._data import context_sums
from .._data.context_sums import Sum
from .._data.contexts import Contexts
from .._data.held_rows import memory_limit
from .._data.projection import offset_scores
from .._utils.types import Array
from .gram import Gram, GramInParts
from .kernels import SquareLengths, with_row_squares
from .pass_results import PassResults
from .passes import Passes, engine_of, run_pass, run_pass_on_workers

# Random directions in a pass that estimates norms. Each costs half as much as a column of V, whose image is multiplied
# once more. With fewer, the estimates are worse and so are their standard errors, which come from the spread over them.
_PROBES = 8
# Once the standard error of the summed squared norms is below this share of them, passes go without probes. The share
# explained inherits it: ``docs/large.md`` promises 0.5%.
_ROUGH_NORMS = 5e-3


class GramBlock(NamedTuple):
    """The directions of one pass.

    Attributes
    ----------
    directions : ndarray (p, m)
        The s columns of V, then the probes.
    s : int
        Number of columns of V.
    seen : ndarray (p, t)
        The basis U of the core, which ends with V; t = 0 if the core would be too large to keep.
    n_excluded : int
        Dimension of the subspace that the probes are orthogonal to.
    """

    directions: Array
    s: int
    seen: Array
    n_excluded: int


class GramTotals(NamedTuple):
    """Totals of one pass: ``product`` G V (p, s), squared column ``lengths`` (k, m) of ``S_i V``, ``core`` (k, t, s).

    If features are scaled by D, ``product`` lacks its last factor D.
    """

    product: Array
    lengths: Array
    core: Array


def block_for(V: Array, known: PassResults, k: int) -> GramBlock:
    """Return the directions to multiply in a pass for an orthonormal V (p, s).

    Probes serve to estimate ``||S_i||^2 = ||S_i U||^2 + ||S_i (I - U U^T)||^2``, where U has V and all earlier blocks.
    The first term is exact, and ``||S_i x||^2`` for a standard normal x, projected off U, is an unbiased estimate of
    the second (Hutchinson), which shrinks as U grows. Passes carry probes until the sum is known well enough.
    """
    seen = known.basis_with(V, k)
    U = seen if seen.size else V  # without a core, earlier blocks are not at hand
    directions = V
    if known.norms_are_rough(_ROUGH_NORMS):
        # The seed is fixed, so that a resumed fit multiplies the directions that the totals on file are of. The same x
        # in every pass does no harm: a new estimate replaces the one before, and they are not averaged.
        x = np.random.default_rng(2).standard_normal((len(V), _PROBES))
        # With P = I - U U^T and E x x^T = I, E ||S_i P x||^2 = tr(P S_i S_i P) = ||S_i P||^2.
        directions = np.hstack([V, x - U @ (U.T @ x)])
    return GramBlock(directions, V.shape[1], seen, U.shape[1])


def learned(known: PassResults, block: GramBlock, totals: GramTotals) -> PassResults:
    """Return ``known`` with the norms and the core that a pass has found.

    The core covers all blocks so far, so products within their span need no pass later.
    """
    # totals.lengths (k, m): the first s columns are of V, the others of the probes.
    s = block.s
    if block.directions.shape[1] > s:
        # ||S_i V||^2, exact. Without a core U is V alone, and earlier blocks count as unseen.
        lengths = totals.lengths[:, :s].sum(axis=1)
        wider = block.n_excluded > s
        known = known.with_norms(lengths, totals.lengths[:, s:], block.n_excluded, wider_than_block=wider)
    return known.with_columns(block.seen, totals.core) if block.seen.size else known


def multiply(contexts: Contexts, passes: Passes, gram: GramInParts) -> GramTotals:
    """Run the pass; two more over each context that does not fit into memory."""
    sums = _zeros(gram)
    engine = engine_of(contexts, passes)
    if engine is not None:
        run_pass_on_workers(contexts, passes, "basis", partial(engine.add_gram, gram), sums)
        return GramTotals(*sums)
    large = contexts.context_bytes() > memory_limit()
    run_pass(contexts, passes, "basis", gram.whole, sums, whole=np.flatnonzero(~large))
    totals = GramTotals(*sums)
    # One at a time: the image (p, m) of a single context is held beside the totals.
    for i in np.flatnonzero(large).tolist():
        totals = _with_large_context(totals, i, contexts, passes, gram)
    return totals


def multiply_and_find_means(contexts: Contexts, passes: Passes, gram: Gram) -> tuple[GramTotals, Array, Array]:
    """Run the pass for contexts that all fit into memory; also return their means (k, p) and sums of squares (k,)."""
    k = len(contexts.names)
    means = np.zeros((k, contexts.n_features))
    squares = np.zeros((k, 1))
    sums = _zeros(gram)
    kernel = partial(with_row_squares, gram.with_means, SquareLengths(), len(sums) + 1)
    run_pass(contexts, passes, "means and basis", kernel, [*sums, means, squares], whole=np.arange(k))
    return GramTotals(*sums), means, squares[:, 0]


def _zeros(gram: Gram) -> list[Array]:
    p, m = gram.directions.shape
    k = len(gram.factors)
    # float64 for what is summed over many blocks. A context adds to its core once, so that may be less precise.
    core = np.zeros((k, gram.seen.shape[1], gram.s), dtype=gram.dtype)
    return [np.zeros((p, gram.s)), np.zeros((k, m)), core]


def _with_large_context(
    totals: GramTotals, i: int, contexts: Contexts, passes: Passes, gram: GramInParts
) -> GramTotals:
    """Return the totals with context i added, which does not fit into memory: its rows are read twice."""

    # Local functions will do as kernels here: rows on other machines, which would need to pickle them, do not get here.
    def image_parts(X: Any, codes: Array) -> list[Sum]:
        Z = offset_scores(X, gram.directions, gram.offsets[i].astype(gram.dtype))
        return _products_and_sums(X, Z)

    parts = [np.zeros(gram.directions.shape), np.zeros(gram.directions.shape[1])]
    run_pass(contexts, passes, "basis", image_parts, parts, only=i)
    # (p, m): the image of V and of the probes, from all rows of the context.
    Y = gram.image(i, *parts)
    lengths = totals.lengths.copy()  # a checkpoint may hold the totals of the finished pass
    lengths[i] += gram.squares(Y)
    Y = Y[:, : gram.s]
    core = totals.core.copy()
    # Rows i of lengths and core are still 0, since the context was in none of the blocks.
    core[i] = gram.core(Y)

    # The second reading, now that the image S_i V is complete.
    def product_parts(X: Any, codes: Array) -> list[Sum]:
        return _products_and_sums(X, gram.scores(X, Y, i))

    parts = [np.zeros(Y.shape), np.zeros(gram.s)]
    run_pass(contexts, passes, "basis", product_parts, parts, only=i)
    # Over all rows the scores sum to 0 but for rounding, which a large mean would multiply. Not in place, since a
    # checkpoint may hold ``totals.product`` as well.
    product = totals.product + (parts[0] - np.outer(gram.means[i], parts[1]))
    if gram.removed is not None:
        product = product - gram.nuisance_of([(i, Y)])
    return GramTotals(product, lengths, core)


def _products_and_sums(X: Any, Z: Array) -> list[Sum]:
    """Return ``X^T Z``, to total 0, and the sums of Z, to total 1."""
    return [Sum(0, ..., context_sums.transposed(X, Z)), Sum(1, ..., Z.sum(axis=0, dtype=np.float64))]
