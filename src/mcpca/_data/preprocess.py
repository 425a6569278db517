"""What is to be done to rows before a fit: ``Preprocess``, a value that says so, and the short forms of it.

What it takes of the data (a median of totals, features, scales) is found at the fit and kept as a
``preprocessed.FittedPreprocess``; what happens to a block of rows is in ``row_steps``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields, replace
from numbers import Real
from typing import Any

import numpy as np

from .._utils.arguments import check_integer, check_real, refuse_without_effect
from .._utils.wording import nearest

LOG1P = "log1p"
PEARSON = "pearson"
TOTAL = "total"
KINDS = (LOG1P, PEARSON)
_WAYS = "pass 'log1p' or 'pearson', a function of a block of rows, a Preprocess, or None"


@dataclass(frozen=True)
class Preprocess:
    """Preprocessing steps applied to each row while it is read, mainly for raw counts.

    Every parameter ``preprocess`` takes one; "log1p", or a function, stands for ``Preprocess`` of that kind. Rows are
    prepared block by block in every pass, in memory, in a file and on Dask alike, so there is never a copy of the
    data, nor the whole prepared matrix. What has to be found from the data is found once, at the fit, is kept with the
    model as ``preprocess_``, and is repeated for all later rows: ``transform`` and every other method takes raw rows.

    Parameters
    ----------
    kind : {"log1p", "pearson", None} or callable
        "log1p": ``y_cj = log(1 + T x_cj / n_c)``, with ``n_c`` the total of row c over all features and T the median
        total of rows that are not empty, or ``target_sum``. This is what ``scanpy.pp.normalize_total`` and
        ``scanpy.pp.log1p`` give with their defaults, to rounding (but for sparse rows some of which have no counts,
        among which scanpy 1.11 takes the median of all rows); rows without counts stay 0. Values must not be
        negative; if they are not whole numbers, there is a ``NotCountsWarning``. Integers become float32, as scanpy has
        it; float32 and float64 stay what they are.
        "pearson": analytic Pearson residuals ``(x_cj - mu) / sqrt(mu + mu^2 / theta)`` with ``mu = n_c q_j`` and
        ``q_j`` the share of feature j in all counts of the rows of the fit, clipped to ``[-clip, clip]``: those of
        ``scanpy.experimental.pp.normalize_pearson_residuals`` for the matrix as it is given. Totals and shares are over
        all features, also if ``n_top`` chooses some; ``scanpy.experimental.pp.recipe_pearson_residuals`` has them over
        the chosen ones instead: for that, pass only these. Later rows have totals of their own, and shares and clip of
        the fit. Rows without counts, and features without counts in the fit, have residuals of 0. Takes one pass.
        Of sparse rows nothing is made dense: residuals are held as a sparse matrix and one of low rank.
        A function ``f(block) -> block``: given some rows, all of their features, as an array or a ``csr_array`` of
        float32 or float64 that it must not write to, it returns the same rows in the same columns, as the same kind of
        block. It must treat each row by itself, which is tried on the first rows, and it must be defined in a module
        for rows on the workers of a cluster. Files keep its name only.
        None: rows stay as they are, for ``n_top`` or ``scale`` alone.
    target_sum : float, optional
        T, the total that every row is brought to; by default the median, which takes one pass over the rows.
    size_factors : "total", array (n,), list or dict of these by context, or str
        "total" divides each row by ``n_c / T``. Otherwise by these positive numbers: one for each row, in the form of
        the contexts; a pandas Series goes by index where rows have one; text names a column of ``obs`` of an AnnData,
        where later rows have theirs, too.
    n_top : int, optional
        Fit this many features only, those of the most variable counts: the choice of
        ``scanpy.pp.highly_variable_genes(flavor="seurat_v3")``, made on the raw rows before anything else is done to
        them. The model is of these features; rows still need all of them, for their totals. Where these are at most
        half of the features, they are prepared once and held in memory, those of rows in files if they fit into
        scikit-learn's ``working_memory`` (1 GB by default).
    scale : bool
        Divide each feature by its standard deviation over all prepared rows, as ``scanpy.pp.scale`` does, without
        centring, which every fit does within contexts anyway; constant features stay. Sparse rows stay sparse. Takes
        one more pass.
    theta : float, optional
        Overdispersion of the counts for "pearson"; 100 by default.
    clip : float, optional
        Bound of residuals for "pearson", by default the root of the number of rows of the fit; ``numpy.inf`` is no
        bound. Below ``sqrt(theta)`` residuals of zeros may be clipped, too, and sparse rows are made dense as they are
        read.

    Notes
    -----
    Order: totals over all features of the rows, the features chosen, the function of the kind, scales. A pass over
    prepared rows takes one sum, one product and one logarithm for each stored entry besides; memory, one block more.

    Examples
    --------
    >>> import numpy as np
    >>> from mcpca import MCPCA, Preprocess
    >>> counts = np.random.default_rng(0).poisson(5.0, (300, 12))
    >>> labels = np.repeat(["a", "b", "c"], 100)
    >>> model = MCPCA(2, preprocess="log1p", random_state=0).fit(counts, labels)
    >>> model.preprocess_.target_sum
    61.0
    >>> same = MCPCA(2, preprocess=Preprocess("log1p", target_sum=61), random_state=0).fit(counts, labels)
    >>> bool(np.allclose(same.loadings_, model.loadings_))
    True
    """

    kind: Any = LOG1P
    _: KW_ONLY
    target_sum: float | None = None
    size_factors: Any = TOTAL
    n_top: int | None = None
    scale: bool = False
    theta: float | None = None
    clip: float | None = None

    @property
    def takes_counts(self) -> bool:
        """Whether the rows should be raw counts."""
        return self.kind in KINDS if isinstance(self.kind, str) else False

    @property
    def divides_by_totals(self) -> bool:
        """Whether rows are divided by their totals."""
        return self.takes_counts and _is_total(self.size_factors)

    @property
    def needs_rows(self) -> bool:
        """Whether something has to be found from all rows before the first of them can be prepared."""
        return (
            self.scale
            or self.n_top is not None
            or self.kind == PEARSON
            or (self.kind == LOG1P and self.divides_by_totals and self.target_sum is None)
        )

    def checked(self) -> Preprocess:
        """Return these steps; raise if one of them is invalid, or has no effect."""
        if isinstance(self.kind, str) and self.kind not in KINDS:
            raise ValueError(f"preprocess={self.kind!r} is unknown; {nearest(self.kind, KINDS)} Or {_WAYS}.")
        if not (self.kind is None or isinstance(self.kind, str) or callable(self.kind)):
            raise TypeError(f"preprocess is a {type(self.kind).__name__}; {_WAYS}.")
        if not isinstance(self.scale, (bool, np.bool_)):
            raise ValueError(f"scale={self.scale!r} is a {type(self.scale).__name__}; pass True or False.")
        what = f"preprocess={self.kind_in_words()}"
        given = not _is_total(self.size_factors)
        if isinstance(self.size_factors, str) and given and self.size_factors == "":
            raise ValueError("size_factors='' names no column; pass 'total', a column of obs, or numbers.")
        if self.kind != LOG1P:
            does = "takes the totals of rows themselves" if self.kind == PEARSON else "divides no row by its total"
            why = f"{what} {does}"
            refuse_without_effect("target_sum", self.target_sum, None, why, "drop it, or pass Preprocess('log1p')")
            if given:
                raise ValueError(f"size_factors have no effect, because {why}; drop them, or pass Preprocess('log1p').")
        elif given:
            why = "rows are divided by the size_factors that are given"
            refuse_without_effect("target_sum", self.target_sum, None, why, "multiply the factors by it instead")
        if self.kind != PEARSON:
            why = f"{what} has no residuals"
            for name in ("theta", "clip"):
                refuse_without_effect(name, getattr(self, name), None, why, "drop it, or pass Preprocess('pearson')")
        if self.theta is not None and not (isinstance(self.theta, Real) and 0 < self.theta < np.inf):
            raise ValueError(f"theta={self.theta!r} is no overdispersion; pass a positive number, say 100.")
        if self.clip is not None and not (isinstance(self.clip, Real) and self.clip > 0):
            raise ValueError(f"clip={self.clip!r} is no bound; pass a positive number, numpy.inf, or None for sqrt(n).")
        if self.target_sum is not None:
            check_real(self.target_sum, "target_sum", np.nextafter(0, 1), 1e300, "It is a total of counts, say 1e4.")
        if self.n_top is not None:
            check_integer(self.n_top, "n_top", 1, way_out="It is a number of features, say 2000.")
        if self.kind is None and not self.scale and self.n_top is None:
            raise ValueError("Preprocess(None) without n_top and scale does nothing; pass preprocess=None.")
        return self

    def kind_in_words(self) -> str:
        """Return what messages call the kind."""
        return function_name(self.kind) if callable(self.kind) else repr(self.kind)

    def to_json(self) -> dict[str, Any]:
        """Return the steps as JSON; of a function the name, and of given size factors that there were some."""
        out = {field.name: getattr(self, field.name) for field in fields(self)}
        if callable(self.kind):
            out["kind"] = {"function": function_name(self.kind)}
        if not isinstance(self.size_factors, str):
            out["size_factors"] = {"given": True}
        if self.clip is not None and np.isinf(self.clip):
            out["clip"] = "inf"  # JSON has no infinity
        return {name: value.item() if isinstance(value, np.generic) else value for name, value in out.items()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Preprocess:
        """Return the steps that ``to_json`` was called with; steps that this version does not know are an error."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(content) - known)
        if unknown:
            raise ValueError(f"preprocess has {unknown}, which this version of mcpca does not know; use a later one")
        values = dict(content)
        if isinstance(values.get("kind"), Mapping):
            values["kind"] = LostFunction(str(values["kind"].get("function")))
        if isinstance(values.get("size_factors"), Mapping):
            values["size_factors"] = LostFactors()
        if values.get("clip") == "inf":
            values["clip"] = np.inf
        return cls(**values)

    def __repr__(self) -> str:
        """Return the call that makes it; a function goes by its name, which unlike its address stays the same."""
        parts = [self.kind_in_words()]
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if field.name == "size_factors" and not isinstance(value, str):
                parts.append("size_factors=...")
            elif value != field.default:
                parts.append(f"{field.name}={value!r}")
        return f"Preprocess({', '.join(parts)})"


@dataclass(frozen=True)
class LostFunction:
    """Stands for the function of a model from a file, which has only its name."""

    name: str

    def __call__(self, block: Any) -> Any:
        """Raise: the function is not there."""
        raise ValueError(
            f"This model was fitted to rows that the function {self.name} had prepared, and a file keeps only its "
            "name. Give it back: model.preprocess_ = model.preprocess_.with_function(f)."
        )


@dataclass(frozen=True)
class LostFactors:
    """Stands for the size factors of a model from a file, which were those of its rows."""


def as_preprocess(value: Any) -> Preprocess | None:
    """Return what the parameter ``preprocess`` says, checked; None for nothing."""
    if value is None:
        return None
    if isinstance(value, Preprocess):
        return value.checked()
    return Preprocess(value).checked()


def with_factors(spec: Preprocess, factors: Any) -> Preprocess:
    """Return the same steps with other size factors."""
    return replace(spec, size_factors=factors)


def function_name(function: Any) -> str:
    """Return the name by which messages and files know a function."""
    if isinstance(function, LostFunction):
        return function.name
    # A ufunc of NumPy 1 has the second only.
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    return str(name or type(function).__name__)


def _is_total(size_factors: Any) -> bool:
    return isinstance(size_factors, str) and size_factors == TOTAL
