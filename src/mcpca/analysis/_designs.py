"""A design on contexts: covariates by a formula or one alone, blocks, and what of it can be tested.

``associate`` reads its arguments by ``read_design``, which knows contexts, names and errors; the numbers are tested by
``_design_tests``. One covariate needs no formula and no table: numbers and dates enter as they are, ordered categories
by their order, which makes the test one of a linear trend, and other categories as differences from the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._data.detect import is_anndata
from .._data.formulas import design_of_formula, formula_variables
from .._results.context_values import ContextValues, context_values
from .._utils.component_names import unknown
from .._utils.types import Array
from .._utils.wording import listed, nearest, quoted
from ._design_tests import COLLINEAR, within_blocks
from ._tables import names_of_values, of_table, pandas
from ._targets import groups_of

_FORMULA_SIGNS = "+*:~()`"  # that tell a formula from the name of a column
_NANOSECONDS_PER_DAY = 86_400e9
_ROUNDING = 1e-12  # of what a column was, below which it is constant


@dataclass(frozen=True)
class ContextDesign:
    """What is known about k contexts, as columns of numbers.

    Attributes
    ----------
    matrix : ndarray (k, q)
    columns : tuple of q str
    terms : tuple of (str, slice)
        Terms and their columns.
    tested : str
        The term of interest.
    blocks : ndarray (k,) of int
        Block of each context, 0, 1, ...; all zero if there are none.
    block_names : tuple of str
        Names of the blocks; empty if there are none.
    """

    matrix: Array
    columns: tuple[str, ...]
    terms: tuple[tuple[str, slice], ...]
    tested: str
    blocks: Array
    block_names: tuple[str, ...]

    def beside(self, term: str) -> tuple[Array, Array]:
        """Return the columns of a term (k, q), and those of the confounders it is tested beside (k, c).

        Interactions that contain the term are none of these: a main effect is the effect on average.
        """
        parts = set(term.split(":"))
        own = dict(self.terms)[term]
        others = [one for name, one in self.terms if not parts <= set(name.split(":"))]
        Z = [self.matrix[:, one] for one in others]
        return self.matrix[:, own], np.concatenate([np.empty((len(self.matrix), 0)), *Z], axis=1)

    def confounders(self, term: str) -> list[str]:
        """Return the names of the terms that a term is tested beside."""
        parts = set(term.split(":"))
        return [name for name, _ in self.terms if not parts <= set(name.split(":"))]

    @property
    def silent_blocks(self) -> list[str]:
        """Blocks within which the tested term does not vary, so that they say nothing about it."""
        if not self.block_names:
            return []
        within = np.abs(within_blocks(self.beside(self.tested)[0], self.blocks)).sum(axis=1)
        varies = np.bincount(self.blocks, within) > 1e-9 * max(float(within.max()), 1e-300)
        return [name for name, one in zip(self.block_names, varies, strict=True) if not one]


def is_formula(covariate: Any, data: Any, source: Any) -> bool:
    """Whether ``covariate`` is a formula: text with a table, or text with signs that is no column of ``obs``."""
    if not isinstance(covariate, str):
        if data is not None:
            raise ValueError(
                "data has no effect, because covariate is not a formula; pass one that names columns of data, such as "
                "'stage + age', or leave data out."
            )
        return False
    if data is not None:
        return True
    has_signs = any(sign in covariate for sign in _FORMULA_SIGNS)
    if not is_anndata(source):
        if has_signs:
            raise ValueError(
                f"covariate={covariate!r} is a formula, and there is no table to take its columns from; pass data, a "
                "DataFrame indexed by context."
            )
        return False
    return has_signs and covariate not in source.obs.columns


def read_design(
    covariate: Any,
    name: str,
    contexts: Sequence[str],
    *,
    data: Any,
    formula: bool,
    test: str | None,
    block: Any,
    split: Any,
    source: Any,
    key: str,
    missing: str,
) -> tuple[ContextDesign, Array]:
    """Return the design, and the positions of the contexts that have all values.

    Parameters are those of ``associate``; ``name`` is that of a single covariate, and ``formula`` says that it is one.
    """
    where = {"source": source, "key": key, "missing": missing}
    variables = _columns_of(covariate, data, contexts, where) if formula else {}
    if not formula:
        variables = {name: context_values(covariate, contexts, "covariate", **where)}
    read_block = (
        None if block is None else context_values(of_table(block, data, "block", source), contexts, "block", **where)
    )
    absent = np.any([one.missing for one in (*variables.values(), *([read_block] if read_block else []))], axis=0)
    with_value = np.flatnonzero(~absent)
    if not len(with_value):
        raise ValueError("No context has a value of every covariate; add values.")
    if formula:
        table = pandas().DataFrame(
            {one: _as_series(values, with_value) for one, values in variables.items()},
            index=[contexts[i] for i in with_value.tolist()],
        )
        made = design_of_formula(covariate, table, "covariate", "context")
        matrix, columns, terms = made.matrix, made.columns, made.terms
    else:
        matrix, columns = _coded(variables[name], with_value, name, split)
        terms = ((name, slice(0, matrix.shape[1])),)
    names = [one for one, _ in terms]
    if test is not None and test not in names:
        raise ValueError(unknown(test, "test", names, "a term of the formula"))
    codes = np.zeros(len(with_value), dtype=np.intp)
    block_names: tuple[str, ...] = ()
    if read_block is not None:
        labels, codes = np.unique(read_block.values[with_value], return_inverse=True)
        block_names = tuple(names_of_values(read_block, labels))
    design = ContextDesign(matrix, columns, terms, names[0] if test is None else test, codes, block_names)
    _check(design, formula)
    return design, with_value


def _columns_of(formula: str, data: Any, contexts: Sequence[str], where: Any) -> dict[str, ContextValues]:
    """Return the values of the columns that a formula names."""
    if data is None:
        known = list(where["source"].obs.columns)
    elif isinstance(data, Mapping) or hasattr(data, "columns"):
        known = list(data) if isinstance(data, Mapping) else list(data.columns)
    else:
        raise TypeError(f"data is a {type(data).__name__}; pass a DataFrame indexed by context, or a dict of columns.")
    table = "adata.obs" if data is None else "data"
    columns = {}
    for name in formula_variables(formula, "covariate"):
        if name not in known:
            raise ValueError(f"covariate={formula!r}: {table} has no column {name!r}; {nearest(name, known)}")
        columns[name] = context_values(name if data is None else data[name], contexts, f"{table}[{name!r}]", **where)
    if not columns:
        raise ValueError(f"covariate={formula!r} names no covariate; pass a formula such as 'stage + age'.")
    return columns


def _as_series(read: ContextValues, with_value: Array) -> Any:
    """Return the values of some contexts as pandas has them, with the order of categories."""
    values = read.values[with_value]
    if read.kind != "category":
        return values
    return pandas().Categorical.from_codes(values, read.categories, ordered=read.ordered)


def _coded(read: ContextValues, with_value: Array, name: str, split: Any) -> tuple[Array, tuple[str, ...]]:
    """Return one covariate as columns: numbers, ranks of ordered categories, or differences from the first."""
    values = read.values[with_value]
    if split is not None:
        groups = groups_of(read, with_value, split)
        assert groups is not None  # a split makes two
        return groups[:, None], (f"{name} >= {split}",)
    if read.kind == "number":
        return values.astype(np.float64)[:, None], (name,)
    if read.kind == "date":
        return values.astype(np.int64)[:, None] / _NANOSECONDS_PER_DAY, (name,)
    occurring = np.unique(values)
    if read.ordered and len(occurring) > 2:
        return values.astype(np.float64)[:, None], (name,)
    # As in formulas: the first category is what others are compared with.
    columns = tuple(f"{name}[T.{read.categories[int(code)]}]" for code in occurring[1:])
    return (values[:, None] == occurring[1:]).astype(np.float64), columns


# Checks --------------------------------------------------------------------------------------------------------------


def _check(design: ContextDesign, formula: bool) -> None:
    """Raise if the design has nothing to compare, columns that follow from others, or too few contexts."""
    M = design.matrix
    k, q = M.shape
    n_blocks = len(design.block_names)
    tested = dict(design.terms)[design.tested]
    what = repr(design.tested) if formula else "covariate"
    centred = M - M.mean(axis=0)
    varies = _more_than_rounding(centred, M)
    if not varies[tested].any():
        raise ValueError(
            f"{'covariate: ' if formula else ''}{what} has the same value in all contexts; there is nothing to compare."
        )
    if k < 4:
        raise ValueError(f"covariate has values for {k} contexts, and tests need at least 4.")
    within = within_blocks(M, design.blocks)
    varies_within = _more_than_rounding(within, M)
    if not varies_within[tested].any():
        raise ValueError(
            f"block: {what} varies within none of the {n_blocks} blocks, {quoted(design.block_names)}, so that nothing "
            "can be compared within them; pass blocks whose contexts differ, or leave block out."
        )
    for j, column in enumerate(design.columns):
        if not varies[j]:
            why = "has the same value in all contexts"
        elif not varies_within[j]:
            why = "is constant within blocks, which take it out already"
        else:
            others = _follows_from(within, j)
            if others is None:
                continue
            why = f"is collinear: it follows from {listed([repr(design.columns[i]) for i in others])}"
            why += " and the blocks" if n_blocks else ""
        raise ValueError(f"covariate: {column!r} {why}; drop it, or merge levels.")
    used = q + max(n_blocks, 1)
    if used >= k:
        raise ValueError(
            f"The design has {f'{n_blocks} blocks' if n_blocks else 'an intercept'} and {q} columns "
            f"({listed(design.columns)}) for {k} contexts, which leaves no degrees of freedom; it needs at least "
            f"{used + 1} contexts, or fewer covariates."
        )


def _more_than_rounding(M: Array, before: Array) -> Array:
    """Whether more than rounding is left in each column of M (k, m) of what it was ``before`` (m,)."""
    return np.asarray((M**2).sum(axis=0) > _ROUNDING**2 * (before**2).sum(axis=0))


def _follows_from(M: Array, j: int) -> list[int] | None:
    """Return which columns of M (k, q) before column j it is a combination of; None if it is none."""
    if not j:
        return None
    scaled = M[:, : j + 1] / np.sqrt((M[:, : j + 1] ** 2).sum(axis=0))
    beta = np.linalg.lstsq(scaled[:, :j], scaled[:, j], rcond=None)[0]
    if ((scaled[:, j] - scaled[:, :j] @ beta) ** 2).sum() > COLLINEAR:
        return None
    return np.flatnonzero(np.abs(beta) > 1e-6).tolist()
