"""Batch and covariates in moments: what has to be kept of rows so that nuisance can be removed when they are gone.

For the strata s of context i (its cells), with n_s rows, kept are the means m_s of the features and z_s of the
covariates, and over all cells of the context

    C_i = sum (z - z_s)(x - m_s)^T (c, p),   N_i = sum (z - z_s)(z - z_s)^T (c, c).

With T from the eigenvectors of N_i, ``T^T N_i T = I``, the factors of ``nuisance`` are the rows ``sqrt(n_s) (m_s - m)``
and ``T^T C_i``, so that the scatter less ``F_i^T F_i`` is that of the rows less what strata and covariates explain.

Cells of the same name in two sets, with n and m rows and differences d, e of their means, merge like scatters do: they
add ``d e^T n m / (n + m)`` to the sum of ``(z - z_s)(x - m_s)^T``, and likewise to the others. Sites may have seen
different levels of a factor: kept is an indicator of each level, also of the first, and one of a level that a set has
not seen is a column of zeros. Only the bases leave the first level out, as the design of rows does.

Memory O(m p + k c p) for m cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse

from .._data.contexts import Contexts
from .._data.labels import name_array, sorted_names
from .._data.row_designs import Coding, NuisanceTerms
from .._utils.types import Array, Report
from .._utils.wording import quoted
from .nuisance import NuisanceFactors, check_terms, factors_of, products_with_rows
from .nuisance_bases import ContextBasis, RowBasis, context_bases, orthonormalising
from .plausible import ROUNDING, check_array, check_scatter

_ARRAYS = ("cell_contexts", "cell_levels", "cell_counts", "cell_means", "cell_centres", "crosses", "normals", "sizes")
NUISANCE_ARRAYS = tuple(f"nuisance_{name}" for name in _ARRAYS)  # of a file


@dataclass(frozen=True)
class NuisanceMoments:
    """Moments of the nuisance of k contexts: a value, whose arrays nobody writes to.

    Attributes
    ----------
    terms : NuisanceTerms
    cell_contexts, cell_levels, cell_counts : ndarray (m,) of int
        For each stratum within a context, sorted: positions in the contexts and in ``terms.levels``, and rows.
    cell_means, cell_centres : ndarray (m, p), (m, c)
        Means of features and of covariates: the c columns are numbers and indicators of all levels.
    crosses : ndarray (k, c, p)
        The C_i above.
    normals : ndarray (k, c, c)
        The N_i above.
    sizes : ndarray (k, c)
        Largest absolute values of the covariates, by which a constant is told from rounding.
    """

    terms: NuisanceTerms
    cell_contexts: Array
    cell_levels: Array
    cell_counts: Array
    cell_means: Array
    cell_centres: Array
    crosses: Array
    normals: Array
    sizes: Array

    def times_power(self, e: int) -> NuisanceMoments:
        """Return the moments of features times ``2^e``."""
        return replace(self, cell_means=np.ldexp(self.cell_means, e), crosses=np.ldexp(self.crosses, e))

    def of_features(self, order: Any) -> NuisanceMoments:
        """Return the moments with features in this order."""
        return replace(self, cell_means=self.cell_means[:, order], crosses=self.crosses[:, :, order])

    def bases(self) -> list[ContextBasis]:
        """Return the bases of all contexts. Cost O(k c^3)."""
        k = len(self.sizes)
        bounds = np.searchsorted(self.cell_contexts, np.arange(k + 1))
        coded = _coded_columns(self.terms.coding)
        bases = []
        for i in range(k):
            cells = slice(int(bounds[i]), int(bounds[i + 1]))
            counts = self.cell_counts[cells]
            T = orthonormalising(self.normals[i][np.ix_(coded, coded)], int(counts.sum()), self.sizes[i, coded])
            bases.append(ContextBasis(self.cell_levels[cells], counts, self.cell_centres[cells][:, coded], T))
        return bases

    def factors(self) -> NuisanceFactors:
        """Return what ``nuisance_factors`` does for the rows. Cost O(m p + k c^2 p)."""
        bases = self.bases()
        bounds = np.cumsum([0, *(basis.n_factors for basis in bases)])
        F = np.empty((int(bounds[-1]), self.cell_means.shape[1]))
        coded = _coded_columns(self.terms.coding)
        first_cell = 0
        for i, basis in enumerate(bases):
            S = len(basis.strata)
            part = F[bounds[i] : bounds[i + 1]]
            if S > 1:
                part[:S] = np.sqrt(basis.counts)[:, None] * self.cell_means[first_cell : first_cell + S]
            first_cell += S
            d = basis.T.shape[1]
            part[len(part) - d :] = basis.T.T @ self.crosses[i, coded]
        return factors_of(F, bounds, bases, self.terms)

    def ranks(self) -> Array:
        """Return the degrees of freedom that nuisance takes in each context (k,), beside that of the mean."""
        return np.array([basis.rank for basis in self.bases()])

    def in_words(self) -> str:
        """Return what they are of, as part of a sentence."""
        return _in_words(*_named(self.terms))

    def check(self, contexts: Array) -> None:
        """Raise or warn as ``check_nuisance`` does for the rows."""
        coded = _coded_columns(self.terms.coding)
        normal = self.normals.sum(axis=0)[np.ix_(coded, coded)]
        check_terms(self.terms, contexts, self.bases(), normal, self.sizes.max(axis=0)[coded])

    def to_state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return arrays by name, and JSON."""
        return {f"nuisance_{name}": getattr(self, name) for name in _ARRAYS}, self.terms.to_json()

    @classmethod
    def from_state(cls, arrays: dict[str, Array], header: Any) -> NuisanceMoments:
        """Return what ``to_state`` was called for; ``check_plausible`` says whether rows can have it."""
        try:
            terms = NuisanceTerms.from_json(header)
            formula = terms.coding.formula
            # Before anything is made of it: formulas are evaluated, and a file must not run code.
            columns = _coded_names(terms.coding) if formula is None else ()
        # Whatever a header may be instead of what we write.
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"its nuisance is not what ContextMoments.save writes ({error})") from error
        if formula is not None:
            raise ValueError(f"it has a formula, {str(formula)[:40]!r}, which moments do not keep")
        if columns != terms.columns:
            raise ValueError("its columns of covariates are not those of its variables")
        return cls(terms, **{name: arrays[f"nuisance_{name}"] for name in _ARRAYS})

    def check_plausible(self, contexts: Array, counts: Array, means: Array, scatters: Array) -> None:
        """Raise an error that says what no rows with these counts, means and scatters can have."""
        self._check_arrays(*means.shape)
        names = contexts.tolist()
        k, p = means.shape
        rows = np.zeros(k)
        np.add.at(rows, self.cell_contexts, self.cell_counts)
        if (self.cell_counts < 1).any() or (rows != counts).any():
            raise ValueError("the rows of its batches do not add up to those of its contexts")
        sums = np.zeros((k, p))
        np.add.at(sums, self.cell_contexts, self.cell_counts[:, None] * self.cell_means)
        largest = np.abs(self.cell_means).max(initial=0)
        if (np.abs(sums / rows[:, None] - means) > ROUNDING * largest).any():
            raise ValueError("the means of its batches are not those of its contexts")
        for name, N in zip(names, self.normals, strict=True):
            check_scatter(N, f"the scatter of the covariates of context {name!r}")
        factors = self.factors()
        for i, (name, M) in enumerate(zip(names, scatters, strict=True)):
            F = factors.of(i)
            if len(F):
                # Rounding is that of the scatter, of which little may be left.
                size = float(np.abs(M).max(initial=0.0))
                check_scatter(M - F.T @ F, f"what nuisance leaves of the scatter of context {name!r}", size)

    def _check_arrays(self, k: int, p: int) -> None:
        m, c, s = len(self.cell_contexts), len(_all_columns(self.terms.coding)), len(self.terms.levels)
        shapes: dict[str, tuple[int, ...]] = {"cell_means": (m, p), "cell_centres": (m, c), "sizes": (k, c)}
        shapes |= {"crosses": (k, c, p), "normals": (k, c, c)}
        for name in _ARRAYS:
            kinds = "f" if name in shapes else "iu"
            check_array(f"nuisance_{name}", getattr(self, name), shapes.get(name, (m,)), kinds)
        for name, bound in (("cell_contexts", k), ("cell_levels", s)):
            places = getattr(self, name)
            if places.size and not (places.min() >= 0 and places.max() < bound):
                raise ValueError(f"nuisance_{name} is not within 0 to {bound - 1}")
        if (np.diff(self.cell_contexts.astype(np.int64) * s + self.cell_levels) <= 0).any():
            raise ValueError("its batches within contexts are not in order, or not distinct")


# From rows


def nuisance_moments(contexts: Contexts, report: Report | None = None) -> NuisanceMoments | None:
    """Return the moments of the nuisance of the rows: one pass. None if they have none.

    Cost O(nnz (1 + c)); memory O(m p + k c p), and O(n c).
    """
    design = contexts.nuisance
    if design is None:
        return None
    if design.coding.formula is not None:
        # Its columns depend on the levels of all rows together, and a file of moments must not hold code.
        raise ValueError(
            f"covariates={design.coding.formula!r} is a formula, which moments do not keep: compute its columns, and "
            "pass them as a table."
        )
    bases = context_bases(design)
    numbers_of = [_with_first_levels(numbers, design.coding) for numbers in design.numbers]
    k, c, p = len(bases), len(_all_columns(design.coding)), contexts.n_features
    columns = []
    normals = np.zeros((k, c, c))
    sizes = np.zeros((k, c))
    centres = []
    for i, (basis, numbers) in enumerate(zip(bases, numbers_of, strict=True)):
        centres.append(_means(numbers, basis))
        Z = numbers - centres[i][basis.cells]
        normals[i] = Z.T @ Z
        sizes[i] = np.abs(numbers).max(axis=0, initial=0)
        places = np.arange(len(Z)), basis.cells
        means = scipy.sparse.csr_array((1 / basis.counts[basis.cells], places), shape=(len(Z), len(basis.strata)))
        columns.append(scipy.sparse.csr_array(scipy.sparse.hstack([means, scipy.sparse.csr_array(Z)], format="csr")))
    products, bounds = products_with_rows(contexts, design, columns, report)
    cells = np.array([len(basis.strata) for basis in bases])
    is_mean = np.concatenate([np.arange(n) < m for n, m in zip(np.diff(bounds), cells, strict=True)])
    return NuisanceMoments(
        design.terms,
        np.repeat(np.arange(k), cells),
        np.concatenate([basis.strata for basis in bases]).astype(np.intp),
        np.concatenate([basis.counts for basis in bases]).astype(np.intp),
        products[is_mean],
        np.concatenate(centres),
        products[~is_mean].reshape(k, c, p),
        normals,
        sizes,
    )


def _means(numbers: Array, basis: RowBasis) -> Array:
    """Return the means of columns (S, c) by stratum."""
    sums = np.zeros((len(basis.strata), numbers.shape[1]))
    np.add.at(sums, basis.cells, numbers)
    return sums / basis.counts[:, None]


# Columns: numbers, and an indicator for each level of a factor


def _all_columns(coding: Coding) -> list[tuple[str, Any]]:
    """Return the columns of moments, as pairs of a variable and a level, which is None for numbers."""
    return [(name, level) for name, levels in coding.variables for level in (levels or (None,))]


def _coded_columns(coding: Coding) -> Array:
    """Return which columns of moments the design has, as positions: all but the first levels of factors."""
    columns = _all_columns(coding)
    first = {(name, levels[0]) for name, levels in coding.variables if levels}
    return np.array([j for j, column in enumerate(columns) if column not in first], dtype=np.intp)


def _with_first_levels(numbers: Array, coding: Coding) -> Array:
    """Return the columns of moments (n, c) from those of the design, which lack the first levels."""
    parts = [numbers[:, :0]]
    start = 0
    for _, levels in coding.variables:
        width = 1 if levels is None else len(levels) - 1
        part = numbers[:, start : start + width]
        # Exact: indicators are 0 and 1.
        parts += [part] if levels is None else [1 - part.sum(axis=1, keepdims=True), part]
        start += width
    return np.hstack(parts)


def _coded_names(coding: Coding) -> tuple[str, ...]:
    return coding.columns_of({name: np.zeros(0) for name in coding.names}, 0)[1]


# Merging


def merged_nuisance(
    first: NuisanceMoments | None, second: NuisanceMoments | None, in_first: Array, in_second: Array, k: int
) -> NuisanceMoments | None:
    """Return the moments of both sets of rows; ``in_first`` and ``in_second`` are their contexts' places among k.

    Raises if they are not of the same batch and covariates.
    """
    if first is None and second is None:
        return None
    terms = _united(None if first is None else first.terms, None if second is None else second.terms)
    assert first is not None  # or ``_united`` would have raised
    assert second is not None
    a = _recoded(first, terms, in_first, k)
    b = _recoded(second, terms, in_second, k)
    p = a.cell_means.shape[1]
    # A cell is the number of its context and of its level in one.
    s = len(terms.levels)
    cells_a, cells_b = (part.cell_contexts * s + part.cell_levels for part in (a, b))
    cells = np.union1d(cells_a, cells_b)
    # n, m (cells,); means, difference (cells, p + c).
    n, m = np.zeros((2, len(cells)), dtype=np.intp)
    means, difference = np.zeros((2, len(cells), p + a.sizes.shape[1]))
    in_a, in_b = np.searchsorted(cells, cells_a), np.searchsorted(cells, cells_b)
    n[in_a] = a.cell_counts
    m[in_b] = b.cell_counts
    means[in_a] = np.hstack([a.cell_means, a.cell_centres])
    # Where only the second set has rows this is its mean, and 0 where only the first has.
    difference[in_b] = np.hstack([b.cell_means, b.cell_centres]) - means[in_b]
    means += difference * (m / (n + m))[:, None]
    crosses = a.crosses + b.crosses
    normals = a.normals + b.normals
    shared = np.flatnonzero((n > 0) & (m > 0))
    # The product of two numbers of rows may exceed int64.
    weights = n[shared].astype(np.float64) * m[shared] / (n + m)[shared]
    owners = cells[shared] // s
    for i in np.unique(owners).tolist():
        dx, dz = np.split(difference[shared[owners == i]], [p], axis=1)
        weighted = weights[owners == i, None] * dz
        crosses[i] += weighted.T @ dx
        normals[i] += weighted.T @ dz
    sizes = np.maximum(a.sizes, b.sizes)
    return NuisanceMoments(terms, cells // s, cells % s, n + m, means[:, :p], means[:, p:], crosses, normals, sizes)


def _united(first: NuisanceTerms | None, second: NuisanceTerms | None) -> NuisanceTerms:
    """Return the terms of two sets of rows, with the levels of both; raise if they are not of the same variables."""
    there, here = (_named(terms) for terms in (first, second))
    if there != here:
        raise ValueError(
            f"These rows come with {_in_words(*here)}, and those before with {_in_words(*there)}; pass the same batch "
            "and covariates with all of them."
        )
    assert first is not None
    assert second is not None
    other = dict(second.coding.variables)
    variables = []
    for name, levels in first.coding.variables:
        if (levels is None) != (other[name] is None):
            now, before = ("labels", "numbers") if levels is None else ("numbers", "labels")
            raise ValueError(f"covariates, {name!r}, are {now} in these rows and {before} in those before; use one.")
        variables.append((name, None if levels is None else tuple(_joined(levels, other[name] or (), "covariates"))))
    coding = Coding(tuple(variables))
    levels_of_batch = first.levels
    if first.has_batch:
        levels_of_batch = name_array(_joined(first.levels.tolist(), second.levels.tolist(), "batch"))
    return NuisanceTerms(levels_of_batch, _coded_names(coding), coding)


def _joined(first: Sequence[Any], second: Sequence[Any], argument: str) -> list[Any]:
    # The order of a categorical is kept where both have the same; otherwise it must not depend on that of merging.
    return list(first) if list(first) == list(second) else sorted_names([*first, *second], argument)


def _named(terms: NuisanceTerms | None) -> tuple[bool, frozenset[str]]:
    return (False, frozenset()) if terms is None else (terms.has_batch, frozenset(terms.coding.names))


def _in_words(has_batch: bool, names: frozenset[str]) -> str:
    parts = (["batch"] if has_batch else []) + ([f"covariates {quoted(sorted(names))}"] if names else [])
    return " and ".join(parts) or "neither batch nor covariates"


def _recoded(moments: NuisanceMoments, terms: NuisanceTerms, places: Array, k: int) -> NuisanceMoments:
    """Return the moments of the same rows in ``terms``, which may have more levels, contexts at ``places`` of k."""
    position = {name: j for j, name in enumerate(terms.levels.tolist())}
    levels = np.array([position[name] for name in moments.terms.levels.tolist()])
    columns = {column: j for j, column in enumerate(_all_columns(terms.coding))}
    at = np.array([columns[column] for column in _all_columns(moments.terms.coding)], dtype=np.intp)
    p, c = moments.cell_means.shape[1], len(columns)
    crosses, normals, sizes = np.zeros((k, c, p)), np.zeros((k, c, c)), np.zeros((k, c))
    crosses[np.ix_(places, at)] = moments.crosses
    normals[np.ix_(places, at, at)] = moments.normals
    sizes[np.ix_(places, at)] = moments.sizes
    centres = np.zeros((len(moments.cell_centres), c))
    centres[:, at] = moments.cell_centres
    return NuisanceMoments(
        terms,
        places[moments.cell_contexts],
        levels[moments.cell_levels],
        moments.cell_counts,
        moments.cell_means,
        centres,
        crosses,
        normals,
        sizes,
    )
