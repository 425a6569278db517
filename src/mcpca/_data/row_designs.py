"""What is known of rows beside their context: who they come from, and what else moved them.

``SamplingGroups`` says which rows were sampled together (cells of a donor), so that resampling and splitting take all
of them or none. ``NuisanceDesign`` has the batch and the covariates of rows, whose part is removed from covariances
(``_covariances.nuisance``). Both hold one array per context, in the order of its rows, and go with the rows when
``Contexts.take`` selects some. ``annotations`` reads them from what the user passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._utils.optional import require
from .._utils.types import Array
from .._utils.wording import quoted
from .formulas import FORMULA_EXTRA, check_plain, design_of_formula
from .label_kinds import labels_from_json, labels_to_json
from .labels import name_array


@dataclass(frozen=True)
class SamplingGroups:
    """The groups of rows: ``codes``, k arrays (n_i,) of positions in ``names`` (g,)."""

    codes: Sequence[Array]
    names: Array

    def take(self, rows: Sequence[Array]) -> SamplingGroups:
        """Return those of some rows: positions within each context, possibly repeated."""
        return replace(self, codes=[c[positions] for c, positions in zip(self.codes, rows, strict=True)])

    def in_order(self, places: Sequence[int]) -> SamplingGroups:
        """Return those of the contexts at ``places``."""
        return replace(self, codes=[self.codes[i] for i in places])


@dataclass(frozen=True)
class Coding:
    """How variables of rows become the columns of a design, so that later rows get the same columns.

    Attributes
    ----------
    variables : tuple of (name, levels)
        ``levels`` are None for numbers. A factor becomes an indicator of each level but the first.
    formula : str or None
        A formula over the variables; without one their columns stand side by side.
    """

    variables: tuple[tuple[str, tuple[Any, ...] | None], ...] = ()
    formula: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variables."""
        return tuple(name for name, _ in self.variables)

    def columns_of(self, values: Mapping[str, Array], n: int) -> tuple[Array, tuple[str, ...]]:
        """Return the columns (n, c) of the design and their names, from numbers (n,) or codes (n,) by variable.

        Codes are positions in the levels of a factor.
        """
        if self.formula is not None:
            # Each time, and not where a formula is first read: it may come from a file.
            check_plain(self.formula, "covariates")
            # Levels first, by a table that has them all: new rows may lack some, and would be coded differently.
            design = design_of_formula(self.formula, self._all_levels(), "covariates")
            return design.apply(self._table(values)), design.columns
        parts = [np.empty((n, 0))]
        names: list[str] = []
        for name, levels in self.variables:
            if levels is None:
                parts.append(np.asarray(values[name], dtype=np.float64)[:, None])
                names.append(name)
            else:
                # Without the first level, which the mean of the context stands for.
                parts.append((np.asarray(values[name])[:, None] == np.arange(1, len(levels))).astype(np.float64))
                names += [f"{name}[{level}]" for level in levels[1:]]
        return np.hstack(parts), tuple(names)

    def _all_levels(self) -> Any:
        """Return a table in which every factor has all of its levels, and numbers are 1, 2, ..."""
        n = max([2, *(len(levels) for _, levels in self.variables if levels is not None)])
        t = np.arange(n)
        return self._table({name: t + 1.0 if levels is None else t % len(levels) for name, levels in self.variables})

    def _table(self, values: Mapping[str, Array]) -> dict[str, Any]:
        pd = require("pandas", FORMULA_EXTRA)
        return {
            # Ordered, as trend(...) needs it; other terms do not care.
            name: values[name]
            if levels is None
            else pd.Categorical.from_codes(values[name], categories=list(levels), ordered=True)
            for name, levels in self.variables
        }


@dataclass(frozen=True)
class NuisanceTerms:
    """What nuisance consists of, without the rows that it is of.

    Attributes
    ----------
    levels : ndarray (s,)
        Names of the strata; a single one, None, without a batch.
    columns : tuple of str
        Names of the c columns of the covariates.
    coding : Coding
        How the columns came from variables.
    """

    levels: Array
    columns: tuple[str, ...]
    coding: Coding

    @property
    def has_batch(self) -> bool:
        """Whether rows are in strata."""
        return not (len(self.levels) == 1 and self.levels[0] is None)

    def in_words(self) -> str:
        """Return what is removed, as part of a sentence."""
        parts = ["batch"] if self.has_batch else []
        if self.columns:
            parts.append(f"{quoted(self.columns)}")
        return " and ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return the terms as JSON values, for the header of a file."""
        return {
            "levels": labels_to_json(self.levels.tolist()) if self.has_batch else None,
            "columns": list(self.columns),
            "variables": [[name, None if v is None else labels_to_json(v)] for name, v in self.coding.variables],
            "formula": self.coding.formula,
        }

    @classmethod
    def from_json(cls, header: dict[str, Any]) -> NuisanceTerms:
        """Return what ``to_json`` was called for."""
        levels = header["levels"]
        coding = Coding(
            tuple((str(name), None if v is None else tuple(labels_from_json(v))) for name, v in header["variables"]),
            header["formula"],
        )
        names = np.array([None], dtype=object) if levels is None else name_array(labels_from_json(levels))
        return NuisanceTerms(names, tuple(map(str, header["columns"])), coding)


@dataclass(frozen=True)
class NuisanceDesign(NuisanceTerms):
    """Batch and covariates of the rows of k contexts.

    Attributes
    ----------
    strata : sequence of k ndarrays (n_i,)
        The stratum of each row, as a position in ``levels``; all 0 without a batch.
    numbers : sequence of k ndarrays (n_i, c)
        The columns of the covariates.
    rows : sequence of k ndarrays, or None
        Numbers of the rows in their matrix, where these are on other machines and ``Contexts`` cannot tell.
    """

    strata: Sequence[Array]
    numbers: Sequence[Array]
    rows: Sequence[Array] | None = None

    @property
    def terms(self) -> NuisanceTerms:
        """The same without what belongs to rows."""
        return NuisanceTerms(self.levels, self.columns, self.coding)

    def take(self, rows: Sequence[Array]) -> NuisanceDesign:
        """Return that of some rows: positions within each context, possibly repeated."""
        return replace(
            self,
            strata=[s[positions] for s, positions in zip(self.strata, rows, strict=True)],
            numbers=[z[positions] for z, positions in zip(self.numbers, rows, strict=True)],
            rows=None
            if self.rows is None
            else [numbers[positions] for numbers, positions in zip(self.rows, rows, strict=True)],
        )

    def in_order(self, places: Sequence[int]) -> NuisanceDesign:
        """Return that of the contexts at ``places``."""
        return replace(
            self,
            strata=[self.strata[i] for i in places],
            numbers=[self.numbers[i] for i in places],
            rows=None if self.rows is None else [self.rows[i] for i in places],
        )
