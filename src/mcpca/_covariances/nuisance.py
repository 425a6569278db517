"""Batch and covariates taken out of covariances, without taking them out of rows.

With ``P_i`` the projection onto the constant and the nuisance ``Z_i`` of context i (indicators of strata, covariates),
the covariance of what is left is

    X_i^T (I - P_i) X_i / (n_i - rank P_i) = (scatter of X_i about its mean - F_i^T F_i) / (n_i - rank P_i),

where ``F_i = Q_i^T X_i`` (m_i, p) for an orthonormal basis Q_i of the nuisance beside the constant. So the nuisance is
a downdate of low rank: one more pass over the rows finds all F_i, and every product with covariances is then that of
the rows as they are, less one with ``F_i``. Rows are never changed: sparse ones stay sparse, stored ones are not
copied, and no other pass knows of the design.

The basis of context i has two parts. For its strata s with n_s rows and mean m_s, the row ``sqrt(n_s) (m_s - m_i)`` of
F; these span one dimension fewer than there are strata. For its covariates, ``U_i = Z T``, orthonormal, where Z are the
covariates less their means by stratum: what is collinear within a context drops out there.

Digits are lost as far as nuisance outweighs the rest: of 16, as many as ``1 + ||F_i||^2 / ||rest||^2`` has.
Memory O(m p) for m = sum_i m_i, the number of cells (strata within contexts) plus covariates of all contexts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._data.contexts import Contexts
from .._data.labels import as_numbers
from .._data.projection import transposed_product
from .._data.row_designs import NuisanceDesign, NuisanceTerms
from .._utils.parallel import each, n_workers
from .._utils.types import Array, Report
from .._utils.user_warnings import warn
from .._utils.wording import listed, quoted
from ..exceptions import NuisanceWarning
from .nuisance_bases import COLLINEAR_SQUARES, ContextBasis, context_bases, varying

# A variance of which nuisance leaves less than this many rounding errors is nothing but these.
_NOTHING_LEFT = 64
# Bytes of rows that are multiplied at a time.
_BLOCK_BYTES = 2**25


def check_nuisance(contexts: Contexts) -> None:
    """Raise if the nuisance of a fit leaves a context without degrees of freedom or is collinear; warn if it is void.

    Covariates that do not vary within any context have no effect: what they do cannot be told from contexts.
    """
    design = contexts.nuisance
    if design is None:
        return
    bases = context_bases(design)
    c = len(design.columns)
    normal = np.zeros((c, c))
    sizes = np.zeros(c)
    for basis, numbers in zip(bases, design.numbers, strict=True):
        Z = numbers - basis.centres[basis.cells]
        normal += Z.T @ Z
        sizes = np.maximum(sizes, np.abs(numbers).max(axis=0, initial=0))
    check_terms(design, contexts.names, bases, normal, sizes)


def check_terms(
    terms: NuisanceTerms, contexts: Array, bases: Sequence[ContextBasis], normal: Array, sizes: Array
) -> None:
    """Do what ``check_nuisance`` does, for named ``contexts`` (k,) with these bases.

    ``normal`` (c, c) are the products of the covariates less their centres, over the rows of all contexts; ``sizes``
    (c,) their largest values.
    """
    names = contexts.tolist()
    counts = np.array([basis.counts.sum() for basis in bases])
    ranks = np.array([basis.rank for basis in bases])
    short = [f"{names[i]!r} ({counts[i]} rows, {ranks[i]} taken)" for i in np.flatnonzero(counts - 1 - ranks < 1)]
    if short:
        raise ValueError(
            f"{terms.in_words()}: nuisance leaves no degree of freedom in {len(short)} of {len(names)} contexts, "
            f"which need at least 2 rows more than it takes: {listed(short)}. Merge batches, drop covariates, or drop "
            "these contexts."
        )
    if terms.has_batch and all(len(basis.strata) == 1 for basis in bases):
        warn(
            "batch has no effect: all rows of every context are in one batch, so that what batches do cannot be told "
            "from what contexts do. Cross the two, or drop batch.",
            NuisanceWarning,
        )
    if terms.columns:
        _check_columns(terms, normal, int(counts.sum()), sizes)


def _check_columns(terms: NuisanceTerms, normal: Array, n: int, sizes: Array) -> None:
    """Raise if covariates are collinear within all contexts together; warn of those that vary in none."""
    # The normal matrix, each column scaled to length 1: singular if and only if some combination vanishes within every
    # cell.
    lengths = np.sqrt(np.diag(normal))
    varies = varying(lengths, n, sizes)
    if not varies.all():
        void = [terms.columns[j] for j in np.flatnonzero(~varies)]
        within = "context and batch" if terms.has_batch else "context"
        warn(
            f"covariates {quoted(void)} have no effect: they do not vary within any {within}, so that what they do "
            "cannot be told from it.",
            NuisanceWarning,
        )
    if not varies.any():
        return
    correlations = normal[np.ix_(varies, varies)] / np.outer(lengths[varies], lengths[varies])
    values, vectors = np.linalg.eigh(correlations)
    if values[0] < COLLINEAR_SQUARES * len(terms.columns):
        involved = np.flatnonzero(varies)[np.abs(vectors[:, 0]) > 1e-4]
        raise ValueError(
            f"covariates {quoted([terms.columns[j] for j in involved])} are collinear within contexts: one of them is "
            "a combination of the others; drop one."
        )


class Downdate(NamedTuple):
    """The factors alone, for the kernels of passes: ``F`` (m, p), of context i from ``bounds[i]`` on."""

    F: Array
    bounds: Array

    def along(self, i: int, V: Array) -> Array:
        """Return ``F_i V``."""
        return np.asarray(self.F[self.bounds[i] : self.bounds[i + 1]] @ V)

    def times(self, i: int, V: Array) -> Array:
        """Return ``F_i^T F_i V``."""
        return np.asarray(self.F[self.bounds[i] : self.bounds[i + 1]].T @ self.along(i, V))

    def combined(self, scores: list[tuple[int, Array]]) -> Array:
        """Return ``sum_i F_i^T G_i`` (p, s), for pairs (i, G_i): one product for all contexts."""
        rows = np.concatenate([np.arange(self.bounds[i], self.bounds[i + 1]) for i, _ in scores])
        return np.asarray(self.F[rows].T @ np.concatenate([G for _, G in scores]))


@dataclass(frozen=True)
class NuisanceFactors:
    """The ``F_i`` of k contexts, one below the other.

    Attributes
    ----------
    F : ndarray (m, p)
        In the units of the rows that they were computed from.
    bounds : ndarray (k + 1,)
        Rows ``bounds[i]`` to ``bounds[i + 1]`` are those of context i.
    ranks : ndarray (k,)
        Degrees of freedom that the nuisance takes in each context.
    bases : sequence of ContextBasis
    design : NuisanceTerms
    """

    F: Array
    bounds: Array
    ranks: Array
    bases: Sequence[ContextBasis]
    design: NuisanceTerms

    @property
    def contexts_of_rows(self) -> Array:
        """The context of each row of F (m,)."""
        return np.repeat(np.arange(len(self.ranks)), np.diff(self.bounds))

    def of(self, i: int) -> Array:
        """Return ``F_i`` (m_i, p)."""
        return self.F[self.bounds[i] : self.bounds[i + 1]]

    def times_power(self, e: int) -> NuisanceFactors:
        """Return the factors of rows times ``2^e``."""
        return self if e == 0 else replace(self, F=np.ldexp(self.F, e))

    # Each of the following is a product with the ``F_i^T F_i`` in place of the covariances; see ``interface``.

    def congruences(self, A: Array) -> Array:
        """Return ``A^T F_i^T F_i A`` (k, m, m)."""
        G = self.F @ A
        out = np.zeros((len(self.ranks), A.shape[1], A.shape[1]))
        for i in np.flatnonzero(np.diff(self.bounds)):
            Gi = G[self.bounds[i] : self.bounds[i + 1]]
            out[i] = Gi.T @ Gi
        return out

    def squares_along(self, A: Array) -> Array:
        """Return ``||F_i a_j||^2`` (k, m)."""
        return self._by_context((self.F @ A) ** 2)

    def squares(self) -> Array:
        """Return the diagonals of the ``F_i^T F_i`` (k, p)."""
        return self._by_context(self.F**2)

    def combine(self, A: Array, weights: Array) -> Array:
        """Return ``sum_i F_i^T F_i A W_i`` (p, m), ``weights`` being the W_i (k, m, m) or their diagonals (k, m)."""
        G = self.F @ A
        rows = self.contexts_of_rows
        weighted = G * weights[rows] if weights.ndim == 2 else np.einsum("nm,nml->nl", G, weights[rows])
        return np.asarray(self.F.T @ weighted)

    def _by_context(self, values: Array) -> Array:
        out = np.zeros((len(self.ranks), values.shape[1]))
        np.add.at(out, self.contexts_of_rows, values)
        return out

    def remove_from(self, S: Array, divisors: Array) -> None:
        """Take ``F_i^T F_i / divisors_i`` off every ``S_i`` (k, p, p), in place."""
        for i, divisor in enumerate(divisors.tolist()):
            Fi = self.of(i)
            if not len(Fi):
                continue
            before = np.diag(S[i]).copy()
            S[i] -= (Fi.T @ Fi / divisor).astype(S.dtype, copy=False)
            # A feature that is nuisance alone is left with rounding, which must not pass for a variance.
            for j in np.flatnonzero(np.diag(S[i]) <= _NOTHING_LEFT * np.finfo(S.dtype).eps * before):
                S[i, j] = 0
                S[i, :, j] = 0


def degrees_of_freedom(contexts: Contexts, factors: NuisanceFactors | None) -> Array:
    """Return ``n_i - rank P_i`` (k,), at least 1: a covariance without degrees of freedom is 0, whatever divides it."""
    taken = 0 if factors is None else factors.ranks
    return np.asarray(np.maximum(contexts.n_samples - 1.0 - taken, 1.0))


def nuisance_factors(contexts: Contexts, report: Report | None = None) -> NuisanceFactors | None:
    """Return the factors of the nuisance of the rows: one pass. None if they have none.

    Cost O(nnz (1 + c)); memory O(m p), and O(n c) for the basis.
    """
    design = contexts.nuisance
    if design is None:
        return None
    bases = context_bases(design)
    F, bounds = products_with_rows(contexts, design, [basis.columns() for basis in bases], report)
    return factors_of(F, bounds, bases, design)


def factors_of(F: Array, bounds: Array, bases: Sequence[ContextBasis], terms: NuisanceTerms) -> NuisanceFactors:
    """Return the factors from products F with bases of which the strata are not yet orthogonal to the constant.

    Rows ``sqrt(n_s) m_s`` of F become ``sqrt(n_s) (m_s - m)``, in place.
    """
    for start, basis in zip(bounds[:-1].tolist(), bases, strict=True):
        S = len(basis.strata)
        if S > 1:
            roots = np.sqrt(basis.counts)
            part = F[start : start + S]
            mean = roots @ part / basis.counts.sum()
            part -= np.outer(roots, mean)
    return NuisanceFactors(F, bounds, np.array([basis.rank for basis in bases]), bases, terms)


def products_with_rows(
    contexts: Contexts, design: NuisanceDesign, columns: list[Any], report: Report | None = None
) -> tuple[Array, Array]:
    """Return ``Q_i^T X_i`` of all contexts one below the other, and where each begins and ends (k + 1,).

    ``columns`` are the Q_i, sparse (n_i, m_i). One pass over the rows.
    """
    bounds = np.cumsum([0, *(Q.shape[1] for Q in columns)])
    products = np.zeros((int(bounds[-1]), contexts.n_features))
    if len(products):
        if report is not None:
            report("nuisance", 0, 1)
        with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinite values are looked for by later passes
            for key, value in _products(contexts, design, columns, bounds):
                products[key] += value
        if report is not None:
            report("nuisance", 1, 1)
    return products, bounds


def _products(
    contexts: Contexts, design: NuisanceDesign, columns: list[Any], bounds: Array
) -> Iterator[tuple[Any, Array]]:
    """Yield parts of ``Q_i^T X_i``, and the rows of F that they are added to."""
    if contexts.engine is not None:
        assert design.rows is not None
        totals = np.zeros((int(bounds[-1]), contexts.n_features))
        contexts.engine.add_products(_in_order(columns, list(design.rows)), totals)
        yield slice(None), totals
        return
    # Rows in memory, and resamples, by context; files in their own order, each of them once.
    by_file: dict[int, list[int]] = {}
    gathered: list[int] = []
    for i, source in enumerate(contexts.sources):
        if source.in_memory or contexts.resampled:
            gathered.append(i)
        else:
            by_file.setdefault(id(source), []).append(i)

    def of_context(i: int) -> Array:
        # Rows on a device are multiplied there, and only the products come to the host.
        there = getattr(contexts.sources[i], "transposed_product", None)
        if there is not None:
            return np.asarray(there(contexts.rows[i], columns[i].toarray()))
        step = max(1, int(_BLOCK_BYTES // max(contexts.row_bytes(i), 1)))
        total = np.zeros((columns[i].shape[1], contexts.n_features))
        for start in range(0, int(contexts.n_samples[i]), step):
            stop = min(start + step, int(contexts.n_samples[i]))
            total += transposed_product(
                columns[i][start:stop], contexts.sources[i].gather(contexts.row_numbers(i, start, stop))
            )
        return total

    wanted = [i for i in gathered if columns[i].shape[1]]
    for i, value in zip(wanted, each(of_context, wanted, n_workers()), strict=True):
        yield slice(int(bounds[i]), int(bounds[i + 1])), value
    for members in by_file.values():
        source = contexts.sources[members[0]]
        rows = [as_numbers(contexts.rows[i]) for i in members]
        # Columns of contexts that are not in this file are empty.
        W = _in_order([columns[i] for i in members], rows, source.shape[0])
        key = np.concatenate([np.arange(bounds[i], bounds[i + 1]) for i in members])
        for first, block in source.scan(_BLOCK_BYTES):
            yield key, transposed_product(W[first : first + block.shape[0]], block)


def _in_order(columns: list[Any], rows: list[Array], n: int | None = None) -> Any:
    """Return the bases of several contexts as one matrix (n, m), with the rows of each where ``rows`` says."""
    stacked = scipy.sparse.csr_array(scipy.sparse.block_diag(columns, format="csr"))
    numbers = np.concatenate(rows)
    n = int(numbers.max(initial=-1)) + 1 if n is None else n
    # Row j of the stack goes to row numbers[j]; rows without a context stay empty.
    to = scipy.sparse.csr_array((np.ones(len(numbers)), (numbers, np.arange(len(numbers)))), shape=(n, len(numbers)))
    return scipy.sparse.csr_array(to @ stacked)
