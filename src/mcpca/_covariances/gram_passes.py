"""Passes for the basis: ``G V`` with ``G = sum_i S_i S_i``, and what is learnt from the same rows on the way.

``StreamedCovariances.basis`` asks for one such pass for each product of block Lanczos. ``GramBlock`` says which
directions a pass multiplies, ``multiply`` makes it (the arithmetic is in ``gram.py``), and ``learned`` adds what it
brought to ``PassResults``.

``S_i V`` has to be complete before it is multiplied again, so the rows of a context are wanted together. Contexts that
fit into ``memory_limit()`` are gathered, as many at a time as fit; a larger one is read twice; rows on other machines
are multiplied there.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .._data import context_sums
from .._data.context_sums import Sum
from .._data.contexts import Contexts
from .._utils.types import Array
from .gram import Gram, GramInParts
from .pass_results import PassResults
from .passes import Passes, run_pass, run_pass_on_workers
from .row_groups import memory_limit

# Random directions in a pass that estimates norms. More cost as much as so many columns of the basis, and fewer leave
# standard errors, which are found from the spread of these eight, uncertain themselves.
_PROBES = 8
# Standard error of the sum of squared norms, as a share of it, from which on passes are free of probes: 0.5% is what
# ``docs/large.md`` promises for the share explained.
_ROUGH_NORMS = 5e-3


class GramBlock(NamedTuple):
    """The directions of one pass.

    ``directions`` (p, m) are the s columns of V, then the probes; ``seen`` (p, t) is the basis U of the core, V being
    its last columns, with t = 0 where the core would be too large; ``n_outside_of`` is the number of directions that
    probes are orthogonal to.
    """

    directions: Array
    s: int
    seen: Array
    n_outside_of: int


class GramTotals(NamedTuple):
    """Sums of one pass: ``product`` G V (p, s), squared ``lengths`` (k, m) of the ``S_i V`` and ``core`` (k, t, s).

    In features scaled by D ``product`` lacks the last factor D.
    """

    product: Array
    lengths: Array
    core: Array


def block_for(V: Array, known: PassResults, k: int) -> GramBlock:
    """Return the directions that a pass for an orthonormal V (p, s) multiplies.

    Probes estimate ``||S_i||^2 = ||S_i U||^2 + ||S_i (I - U U^T)||^2``, U being V with all blocks before it: the first
    term is exact, and ``||S_i x||^2`` of random x outside U estimates the second without bias (Hutchinson). The more U
    holds the less is left to chance, so every pass asks again until the sum is known well enough.
    """
    seen = known.basis_with(V, k)
    U = seen if seen.size else V
    directions = V
    if known.norms_are_rough(_ROUGH_NORMS):
        x = np.random.default_rng(2).standard_normal((len(V), _PROBES))
        directions = np.hstack([V, x - U @ (U.T @ x)])
    return GramBlock(directions, V.shape[1], seen, U.shape[1])


def learned(known: PassResults, block: GramBlock, totals: GramTotals) -> PassResults:
    """Return ``known`` with the norms and the core that a pass has found.

    With the core of all blocks, whatever is asked for in their span later needs no pass.
    """
    s = block.s
    if block.directions.shape[1] > s:
        lengths = totals.lengths[:, :s].sum(axis=1)
        wider = block.n_outside_of > s
        known = known.with_norms(lengths, totals.lengths[:, s:], block.n_outside_of, wider_than_block=wider)
    return known.with_columns(block.seen, totals.core) if block.seen.size else known


def multiply(contexts: Contexts, passes: Passes, gram: GramInParts) -> GramTotals:
    """Make the pass, or where contexts are too large to be held several."""
    totals = _zeros(gram)
    if contexts.engine is not None:
        run_pass_on_workers(contexts, passes, "basis", partial(contexts.engine.add_gram, gram), totals)
        return GramTotals(*totals)
    sizes = contexts.context_bytes()
    large = sizes > memory_limit()
    run_pass(contexts, passes, "basis", gram.whole, totals, whole=np.flatnonzero(~large))
    found = GramTotals(*totals)
    for i in np.flatnonzero(large).tolist():
        found = _with_large_context(found, i, contexts, passes, gram)
    return found


def multiply_and_sum_rows(contexts: Contexts, passes: Passes, gram: Gram) -> tuple[GramTotals, Array]:
    """Make the pass for contexts that all fit into memory, and return the sums of their rows (k, p) with it."""
    row_sums = np.zeros((len(contexts.names), contexts.n_features))
    totals = _zeros(gram)
    every = np.arange(len(contexts.names))
    run_pass(contexts, passes, "means and basis", gram.with_row_sums, [*totals, row_sums], whole=every)
    return GramTotals(*totals), row_sums


def _zeros(gram: Gram) -> list[Array]:
    p, m = gram.directions.shape
    k = len(gram.factors)
    core = np.zeros((k, gram.seen.shape[1], gram.s), dtype=gram.dtype)
    return [np.zeros((p, gram.s)), np.zeros((k, m)), core]


def _with_large_context(found: GramTotals, i: int, contexts: Contexts, passes: Passes, gram: GramInParts) -> GramTotals:
    """Return the sums with context i, which is too large to be held: its rows are read twice."""

    def image_parts(X: Any, codes: Array) -> list[Sum]:
        Z = X @ gram.directions - gram.offsets[i].astype(gram.dtype)
        return _products_and_sums(X, Z)

    parts = [np.zeros(gram.directions.shape), np.zeros(gram.directions.shape[1])]
    run_pass(contexts, passes, "basis", image_parts, parts, only=i)
    Y = gram.image(i, *parts)
    lengths = found.lengths.copy()  # those of a finished pass stay as they are
    lengths[i] += gram.squares(Y)
    Y = Y[:, : gram.s]
    core = found.core.copy()
    core[i] = gram.core(Y)

    def product_parts(X: Any, codes: Array) -> list[Sum]:
        return _products_and_sums(X, gram.scores(X, Y, i))

    parts = [np.zeros(Y.shape), np.zeros(gram.s)]
    run_pass(contexts, passes, "basis", product_parts, parts, only=i)
    return GramTotals(found.product + (parts[0] - np.outer(gram.means[i], parts[1])), lengths, core)


def _products_and_sums(X: Any, Z: Array) -> list[Sum]:
    """Return ``X^T Z``, to total 0, and the sums of Z, to total 1."""
    return [Sum(0, ..., context_sums.transposed(X, Z)), Sum(1, ..., Z.sum(axis=0, dtype=np.float64))]
