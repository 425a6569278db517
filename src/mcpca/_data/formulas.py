"""A formula and a table of covariates, as a matrix of numbers: ``"stage + age"``, ``"stage * sex"``, ``"log(depth)"``.

The grammar is that of Wilkinson as formulaic reads it, an extra that is imported late: ``+`` adds terms, ``a:b`` is the
interaction of two, ``a * b`` is ``a + b + a:b``, backticks quote names with spaces. Text, categoricals and booleans are
factors, coded by differences from their first level; numbers stay numbers; dates are days since 1970. Beside
formulaic's functions (``log``, ``C``, ``poly``, ``bs``, ``scale``) there is ``trend(stage)``: the levels of an ordered
categorical as 0, 1, 2, ..., so that one number stands for all of its steps.

Covariates of contexts (``analysis.associate``) and of rows are read by the same function. Every model that uses a
design has an intercept of its own, or takes means out; a formula can therefore not leave it out.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._utils.optional import require
from .._utils.types import Array
from .._utils.wording import nearest, quoted

FORMULA_EXTRA = "formula"
# Around the faulty part of a formula in the messages of formulaic, with the codes of a terminal's colours within.
_MARKED = re.compile("⧛(.*?)⧚", re.DOTALL)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_QUOTED_NAME = re.compile("`([^`]*)`")
# What a formula that a file keeps may call: functions of numbers, by themselves or of ``np``, and readings of a column.
_PLAIN_FUNCTIONS = frozenset({"abs", "exp", "expm1", "log", "log10", "log1p", "log2", "sqrt"})
_PLAIN_READINGS = frozenset({"C", "I", "trend"})
_LARGEST_POWER = 10  # a constant to the power of a large one may take for ever
_PLAIN_NODES = (ast.Expression, ast.Name, ast.Load, ast.BinOp, ast.UnaryOp, ast.Call, ast.Attribute, ast.Constant)
_PLAIN_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.USub, ast.UAdd)


@dataclass(frozen=True)
class Design:
    """A formula evaluated on a table.

    Attributes
    ----------
    matrix : ndarray (n, q) of float64
        One column for each number, and one for each level of a factor but its first. Without a column of ones.
    columns : tuple of q str
        Names of the columns: "age", "stage[T.II]", "stage[T.II]:sex[T.m]".
    terms : tuple of (str, slice)
        Terms of the formula in its order, interactions after all others, and the columns that belong to each.
    formula : str
    argument : str
        What the formula is called in errors.
    spec : Any
        formulaic's ModelSpec, which codes new rows in the same way; see ``apply``. It can be pickled.
    """

    matrix: Array
    columns: tuple[str, ...]
    terms: tuple[tuple[str, slice], ...]
    formula: str
    argument: str
    spec: Any

    def apply(self, table: Any, rows: str = "row") -> Array:
        """Return the same columns (n, q) for new rows: levels, knots and centres are those of the first table.

        A level that the first table does not have is an error that names it.
        """
        frame = _frame(table, formula_variables(self.formula, self.argument), self.argument, rows)
        return _evaluated(self.spec, frame, self.formula, self.argument, rows)[0]


def formula_variables(formula: str, argument: str = "formula") -> tuple[str, ...]:
    """Return the names of the columns that a formula needs, in the order of its terms."""
    names: dict[str, None] = {}
    for term in _parsed(formula, argument):
        for factor in term.factors:
            if factor.eval_method.value == "lookup":
                names[str(factor.expr)] = None
            elif factor.eval_method.value == "python":
                names.update(dict.fromkeys(_names_within(str(factor.expr))))
    return tuple(names)


def design_of_formula(formula: str, table: Any, argument: str, rows: str = "row") -> Design:
    """Evaluate a formula on the columns of a table.

    Parameters
    ----------
    formula : str
        Terms on the right-hand side, with or without a leading ``~``.
    table : DataFrame or mapping {name: column}
        Columns of n values. The index of a DataFrame of pandas names the rows in errors.
    argument, rows : str
        For errors: the argument that holds the formula, and what a row of the table is called ("row", "context").

    Returns
    -------
    Design

    Notes
    -----
    Time and memory are O(n q). Expressions within a formula are evaluated as Python with the columns, NumPy as ``np``
    and formulaic's functions in reach, and nothing of the calling program.
    """
    terms = _parsed(formula, argument)
    names = formula_variables(formula, argument)
    if not names:
        raise ValueError(f"{argument}={formula!r} names no covariate; pass a formula such as 'stage + age'.")
    frame = _frame(table, names, argument, rows)
    matrix, model_matrix = _evaluated(terms, frame, formula, argument, rows)
    spec = model_matrix.model_spec
    # Slices of the columns with the intercept, which comes first and is left out.
    by_term = [(str(term), columns) for term, columns in spec.term_slices.items() if str(term) != "1"]
    shifted = tuple((name, slice(one.start - 1, one.stop - 1)) for name, one in by_term)
    columns = tuple(str(name) for name in model_matrix.columns[1:])
    empty = [name for name, one in shifted if one.start == one.stop]
    if empty:
        raise ValueError(f"{argument}={formula!r}: {quoted(empty)} has one level only; drop it from the formula.")
    return Design(matrix, columns, shifted, formula, argument, spec)


def check_plain(formula: str, argument: str) -> None:
    """Raise unless a formula is arithmetic of columns and known functions, which no file can make into a program.

    formulaic evaluates what stands in brackets as Python. That is the user's own affair in a call, and nobody's in a
    model that is read from a file.
    """
    for term in _parsed(formula, argument):
        for factor in term.factors:
            if factor.eval_method.value != "python":
                continue
            expression = str(factor.expr)
            tree = ast.parse(_QUOTED_NAME.sub("quoted", expression), mode="eval")
            refused = next((node for node in ast.walk(tree) if not _is_plain(node)), None)
            if refused is not None:
                place = max(formula.find(expression), 0)
                raise ValueError(
                    f"{argument}={formula!r} has {ast.unparse(refused)!r} at character {place + 1}, "
                    f"{_pointed(formula, place, place + len(expression))}; only arithmetic and "
                    f"{', '.join(sorted(_PLAIN_FUNCTIONS | _PLAIN_READINGS))} are allowed, since models are saved with "
                    "their formula. Compute that column yourself, and name it."
                )


def _is_plain(node: ast.AST) -> bool:
    """Whether a part of an expression is arithmetic, a name, a number, or a call of a known function."""
    if isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Attribute):
            is_numpy = isinstance(function.value, ast.Name) and function.value.id == "np"
            known = is_numpy and function.attr in _PLAIN_FUNCTIONS
        else:
            known = isinstance(function, ast.Name) and function.id in _PLAIN_FUNCTIONS | _PLAIN_READINGS
        return known and len(node.args) == 1 and not node.keywords
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.value.id == "np" and node.attr in _PLAIN_FUNCTIONS
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, float))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        power = node.right.value if isinstance(node.right, ast.Constant) else None
        small = isinstance(power, (int, float)) and abs(power) <= _LARGEST_POWER
        return small and not isinstance(node.left, ast.Constant)
    return isinstance(node, _PLAIN_NODES + _PLAIN_OPERATORS)


# Reading -------------------------------------------------------------------------------------------------------------


def _parsed(formula: Any, argument: str) -> Any:
    """Return the terms of a formula, or raise an error that shows where it cannot be read."""
    if not isinstance(formula, str):
        raise TypeError(f"{argument} is a {type(formula).__name__}; pass a formula as text, such as 'stage + age'.")
    formulaic = require("formulaic", FORMULA_EXTRA)
    errors = require("formulaic.errors", FORMULA_EXTRA)
    try:
        terms = formulaic.Formula(formula)
    except errors.FormulaSyntaxError as error:
        raise ValueError(f"{argument}={formula!r} is not a formula: {_where(str(error), formula)}.") from error
    except SyntaxError as error:  # of Python, within a call: its place is counted within that call
        what = (error.text or "").strip()
        start = formula.find(what) if what else -1
        place = max(start, 0) + (error.offset or 1)
        raise ValueError(
            f"{argument}={formula!r} is not a formula: {error.msg} at character {place}, "
            f"{_pointed(formula, place - 1, place)}."
        ) from error
    if not isinstance(terms, formulaic.SimpleFormula):
        what = "~" if "~" in formula else "|"
        place = formula.index(what)
        raise ValueError(
            f"{argument}={formula!r} has more than a right-hand side, at character {place + 1}, "
            f"{_pointed(formula, place, place + 1)}; pass the covariates alone, 'stage + age'."
        )
    if "1" not in [str(term) for term in terms]:
        raise ValueError(
            f"{argument}={formula!r} leaves the intercept out, which every model here has; drop '0 +' or '- 1'."
        )
    return terms


def _where(message: str, formula: str) -> str:
    """Return the fault that formulaic found as part of a sentence, with its place in the formula."""
    text = _COLOURS.sub("", message)
    what, _, shown = text.partition("\n")
    what = what.strip().rstrip(".").replace("`", "'").replace("insuffient", "insufficient")
    what = (what[:1].lower() + what[1:]).replace("context marker", "bracket")
    marked = _MARKED.search(shown)
    if marked is None:
        return what
    # What is shown is the formula itself with two marks, one of which comes before the faulty part.
    start = marked.start() - (len(shown) - len(shown.lstrip()))
    return f"{what} at character {start + 1}, {_pointed(formula, start, start + len(marked[1]))}"


def _pointed(formula: str, start: int, stop: int) -> str:
    """Return the formula with the part from ``start`` to ``stop`` pointed at."""
    return f"{formula[:start]}»{formula[start:stop]}«{formula[stop:]}"


def _names_within(expression: str) -> list[str]:
    """Return the names of columns within an expression of Python, in which backticks may quote them."""
    functions = set(require("formulaic.transforms", FORMULA_EXTRA).TRANSFORMS) | {"trend"}
    quoted_names: list[str] = []

    def placeholder(match: re.Match[str]) -> str:
        quoted_names.append(match[1])
        return f"quoted_{len(quoted_names) - 1}_"

    tree = ast.parse(_QUOTED_NAME.sub(placeholder, expression), mode="eval")
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called]
    named = [node.id for node in sorted(names, key=lambda node: node.col_offset) if node.id not in functions]
    by_placeholder = {f"quoted_{i}_": name for i, name in enumerate(quoted_names)}
    return [by_placeholder.get(name, name) for name in named]


# The table -----------------------------------------------------------------------------------------------------------


def _frame(table: Any, names: tuple[str, ...], argument: str, rows: str) -> Any:
    """Return the columns that a formula names as a DataFrame of pandas, complete and of types that it can code."""
    pd = require("pandas", FORMULA_EXTRA)
    if not isinstance(table, Mapping) and not hasattr(table, "columns"):
        raise TypeError(
            f"{argument} is a formula, and its table is a {type(table).__name__}; pass a DataFrame, or a dict "
            "{name: column}."
        )
    known = list(table) if isinstance(table, Mapping) else list(table.columns)
    # Tables may have numbers as names of columns, which a formula can only name as text.
    by_text = {str(name): name for name in known}
    for name in names:
        if name not in by_text:
            raise ValueError(f"{argument}: the table has no column {name!r}; {nearest(name, known)}")
    # Columns one by one: of a large table only these are copied.
    columns = {name: _column(pd, table[by_text[name]]) for name in names}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name!r} {n}" for name, n in lengths.items())
        raise ValueError(
            f"{argument}: columns of the table differ in length, {counts}; pass one value for each {rows}."
        )
    frame = pd.DataFrame(columns)
    # Set afterwards: columns of a dict go by position, whatever their own index is.
    frame.index = table.index if isinstance(table, pd.DataFrame) else range(len(frame))
    for name in names:
        missing = np.flatnonzero(~_is_known(frame[name]))
        if len(missing):
            raise ValueError(
                f"{argument}: {name!r} has no value for {len(missing)} of {len(frame)} {rows}s: "
                f"{quoted(frame.index[missing].tolist())}. Add values for these, or leave these {rows}s out."
            )
    return frame


def _column(pd: Any, values: Any) -> Any:
    """Return a column as numbers, or as a categorical of the levels that occur."""
    # A Categorical must stay one; columns of other libraries (polars) become arrays.
    if np.ma.is_masked(values):  # np.asarray would uncover what is masked
        values = np.where(np.ma.getmaskarray(values), None, values.data.astype(object))
    plain = values if isinstance(values, (pd.Series, pd.Categorical)) else np.asarray(values)
    if np.ndim(plain) != 1:
        raise ValueError(
            f"a column of the table of covariates has shape {np.shape(plain)}; pass one value for each row."
        )
    column = pd.Series(plain).reset_index(drop=True).infer_objects()
    if isinstance(column.dtype, pd.CategoricalDtype):
        # Levels that no row has would be columns of zeros.
        return column.cat.remove_unused_categories()
    if pd.api.types.is_bool_dtype(column.dtype):
        return column.astype("category")
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return (column - pd.Timestamp(0, tz=column.dt.tz)) / pd.Timedelta(days=1)
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.astype(np.float64)
    # Text as objects: levels of a column of pandas' own text type may be missing in a way of their own.
    return column.astype(object).where(column.notna(), None).astype("category")


def _is_known(column: Any) -> Array:
    """Return where a column has a value; an infinite number is none."""
    known = column.notna().to_numpy()
    if column.dtype == np.float64:
        known = known & np.isfinite(column.to_numpy())  # in place fails: pandas 3 gives a read-only array
    return np.asarray(known)


# Evaluation ----------------------------------------------------------------------------------------------------------


def _evaluated(what: Any, frame: Any, formula: str, argument: str, rows: str) -> tuple[Array, Any]:
    """Evaluate a formula, or the spec of one evaluated before; return its matrix without ones, and formulaic's own."""
    errors = require("formulaic.errors", FORMULA_EXTRA)
    transforms = {"trend": require("formulaic.transforms", FORMULA_EXTRA).stateful_transform(_trend)}
    try:
        with warnings.catch_warnings():
            # Levels that the first table did not have: formulaic would code them as all zeros, like the first level.
            warnings.simplefilter("error", errors.DataMismatchWarning)
            # Beyond their domain functions return NaN, which is reported below with the rows.
            warnings.filterwarnings("ignore", category=RuntimeWarning)
            evaluated = what.get_model_matrix(frame, context=transforms, na_action="ignore", output="pandas")
    except errors.DataMismatchWarning as error:
        levels = str(error).partition("{")[2].partition("}")[0]
        raise ValueError(
            f"{argument}={formula!r} meets levels that the table of the fit does not have: {levels}; leave these "
            f"{rows}s out, or fit with them."
        ) from error
    except errors.FormulaicError as error:
        cause = error.__cause__ or error.__context__ or error
        raise ValueError(f"{argument}={formula!r} cannot be evaluated: {_one_line(cause)}.") from error
    matrix = np.array(evaluated, dtype=np.float64)[:, 1:]
    undefined = np.argwhere(~np.isfinite(matrix))
    if len(undefined):
        names = [str(name) for name in evaluated.columns[1:]]
        which = np.unique(undefined[:, 0])
        raise ValueError(
            f"{argument}={formula!r}: {names[undefined[0, 1]]!r} is not a finite number for {len(which)} of "
            f"{len(matrix)} {rows}s: {quoted(frame.index[which].tolist())}; transform it otherwise."
        )
    return matrix, evaluated


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _trend(data: Any, _state: Any = None) -> Any:
    """Return the position of each value among the levels of an ordered categorical; numbers stay as they are."""
    if not hasattr(data, "cat"):
        return data
    state = {} if _state is None else _state
    # Levels that were seen before bring their order with them.
    if not data.cat.ordered and "levels" not in state:
        raise ValueError(
            f"trend({data.name}) needs an order, and {data.name!r} has levels without one, "
            f"{quoted(data.cat.categories.tolist())}; make it an ordered categorical of pandas, or a number"
        )
    levels = state.setdefault("levels", data.cat.categories.tolist())
    unknown = [level for level in data.cat.categories.tolist() if level not in levels]
    if unknown:
        raise ValueError(f"trend({data.name}) meets levels that it has no place for: {quoted(unknown)}")
    position = {level: float(i) for i, level in enumerate(levels)}
    return data.astype(object).map(position).astype(np.float64)
