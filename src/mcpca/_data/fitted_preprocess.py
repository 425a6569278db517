"""What was done to the rows of a fit: a ``Preprocess`` with all that it took of the data, to be done to later rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._utils.printing import Shown, counted
from .._utils.types import Array
from .blocks import RowBlock
from .label_kinds import checked_names, labels_from_json, names_to_json
from .labels import name_array
from .pearson import PearsonResiduals
from .preprocess import LOG1P, PEARSON, Preprocess, function_name
from .row_steps import (
    as_floats,
    by_function,
    check_counts,
    chosen_columns,
    divided_columns,
    log1p_in_place,
    row_totals,
    times_rows,
)


@dataclass(frozen=True, repr=False)
class FittedPreprocess(Shown):
    """The preprocessing of a fit, with everything it learned from the rows; it is applied to later rows too.

    Attributes
    ----------
    spec : Preprocess
        The steps.
    n_features_in : int
        Features of the rows as they are given.
    feature_names_in : ndarray (n_features_in,) or None
        Their names, by which later rows are matched.
    target_sum : float or None
        The total that rows are brought to: given, or the median of all rows of the fit that are not empty.
    columns : ndarray or None
        Positions of the features that the model is of, in increasing order; None if it is of all.
    scales : ndarray or None
        What each feature of the model is divided by.
    n_empty : int or None
        Rows of the fit without any counts, which stay 0; None if totals of all rows were not needed.
    residuals : PearsonResiduals or None
        What Pearson residuals take of the rows of the fit: ``shares`` of the features, ``theta`` and ``clip``.
    """

    spec: Preprocess
    n_features_in: int
    feature_names_in: Array | None = None
    target_sum: float | None = None
    columns: Array | None = None
    scales: Array | None = None
    n_empty: int | None = None
    residuals: PearsonResiduals | None = None

    @property
    def n_features_out(self) -> int:
        """Number of features of prepared rows."""
        return self.n_features_in if self.columns is None else len(self.columns)

    @property
    def feature_names_out(self) -> Array | None:
        """Names of the features of prepared rows."""
        names = self.feature_names_in
        return names if names is None or self.columns is None else names[self.columns]

    def with_function(self, function: Callable[[Any], Any]) -> FittedPreprocess:
        """Return the same with this function: that of the fit, for a model from a file, which has only its name."""
        if not callable(self.spec.kind):
            raise ValueError(f"preprocess={self.spec.kind!r} is no function, and needs none.")
        return replace(self, spec=replace(self.spec, kind=function).checked())

    def dtype_of(self, source: Any) -> np.dtype[Any]:
        """Return the precision of prepared rows of a source: that of its blocks, but float32 for counts in integers."""
        stored = np.dtype(getattr(source, "stored_dtype", source.dtype))
        return np.dtype(np.float32) if self.spec.takes_counts and stored.kind in "biu" else np.dtype(source.dtype)

    def apply(
        self,
        block: RowBlock,
        dtype: np.dtype[Any] | None = None,
        *,
        rows: int | Array = 0,
        where: str = "X",
        factors: Array | None = None,
    ) -> Any:
        """Return a block of prepared rows, which is a copy: ``y_cj = log(1 + T x_cj / n_c) / d_j`` for "log1p".

        Parameters
        ----------
        block : ndarray or csr_array (n, n_features_in)
            Raw rows, all of their features: totals are over these, though only some are returned.
        dtype : dtype, optional
            Precision of the result.
        rows, where : int or ndarray (n,), str
            The number of the first row, or of each, and what to call the matrix in errors.
        factors : ndarray (n,), optional
            What to divide rows by, where that is not their total.
        """
        return prepared_rows(self, block, dtype, rows, where, factors)

    # Arrays by name in files, with the fields that they hold.
    array_names = ("preprocess_columns", "preprocess_scales", "preprocess_shares")

    def to_state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return arrays by name, and the rest as JSON."""
        residuals = self.residuals
        shares = None if residuals is None else residuals.shares
        held = zip(self.array_names, (self.columns, self.scales, shares), strict=True)
        header = {
            "spec": self.spec.to_json(),
            "n_features_in": self.n_features_in,
            "feature_names_in": names_to_json(self.feature_names_in),
            "target_sum": self.target_sum,
            "n_empty": self.n_empty,
            "residuals": None if residuals is None else residuals.to_json(),
        }
        return {name: values for name, values in held if values is not None}, header

    @classmethod
    def from_state(cls, arrays: Mapping[str, Array], header: Mapping[str, Any]) -> FittedPreprocess:
        """Return what ``to_state`` was called with; raise if it is not consistent."""
        columns, scales, shares = (arrays.get(name) for name in cls.array_names)
        names = header["feature_names_in"]
        p = int(header["n_features_in"])
        if (
            columns is not None
            and len(columns)
            and not (columns[0] >= 0 and columns[-1] < p and (np.diff(columns) > 0).all())
        ):
            raise ValueError(f"preprocess_columns are no increasing positions within 0 to {p - 1}")
        if scales is not None and not (scales > 0).all():
            raise ValueError("preprocess_scales has values that are not positive")
        residuals = header.get("residuals")
        if (residuals is None) != (shares is None):
            raise ValueError("it has only one of residuals and preprocess_shares")
        if names is not None and len(checked_names(names, "feature_names_in")) != p:
            raise ValueError(f"it has {len(names)} names for {p} features of raw rows")
        target = header.get("target_sum")
        if target is not None and not 0 < float(target) < np.inf:
            raise ValueError(f"target_sum is {str(target)[:40]!r}")
        return cls(
            Preprocess.from_json(header["spec"]),
            p,
            None if names is None else name_array(labels_from_json(names)).astype(object),
            None if target is None else float(target),
            columns,
            scales,
            None if header.get("n_empty") is None else int(header["n_empty"]),
            None if shares is None or residuals is None else PearsonResiduals.from_json(shares, residuals),
        )

    def _target(self) -> float:
        assert self.target_sum is not None
        return self.target_sum

    def _words(self) -> list[str]:
        """Return what was done, a sentence each."""
        spec = self.spec
        done = []
        if spec.kind == LOG1P:
            by = "divided by size factors"
            if spec.divides_by_totals:
                by = f"brought to a total of {self.target_sum:,.6g}"
            done.append(f"Rows were {by}, and their logarithms taken (log1p).")
        elif self.residuals is not None:
            done.append(
                f"Rows were turned into Pearson residuals (theta {self.residuals.theta:g}, clipped at "
                f"{self.residuals.clip:.4g})."
            )
        elif callable(spec.kind):
            done.append(f"Rows were prepared by the function {function_name(spec.kind)}.")
        if self.columns is not None:
            done.append(f"{len(self.columns):,} of {self.n_features_in:,} features were used.")
        if self.scales is not None:
            done.append("Features were divided by their standard deviations.")
        if self.n_empty:
            done.append(f"{counted(self.n_empty, 'row')} without counts stayed 0.")
        return done or ["Rows were taken as they are."]


def prepared_rows(
    fitted: FittedPreprocess,
    block: RowBlock,
    dtype: np.dtype[Any] | None,
    rows: int | Array,
    where: str,
    factors: Array | None,
    totals: Array | None = None,
) -> Any:
    """Return what ``FittedPreprocess.apply`` does; ``totals`` (n,) are of the rows, where these were checked before."""
    X: Any = block
    spec = fitted.spec
    dtype = np.dtype(X.dtype) if dtype is None else dtype
    if spec.takes_counts:
        if totals is None:
            totals = row_totals(X)
            check_counts(X, totals, rows, where)
        if factors is None and spec.kind == LOG1P:
            # Rows without counts are divided by 1, and stay 0.
            factors = np.where(totals > 0, totals, 1.0) / fitted._target()
        if fitted.columns is not None:
            X = chosen_columns(X, fitted.columns)
        if spec.kind == PEARSON:
            assert fitted.residuals is not None
            X = fitted.residuals.of(X, totals, dtype)
        else:
            assert factors is not None
            X = log1p_in_place(times_rows(X, 1.0 / factors, dtype))
    else:
        if callable(spec.kind):
            X = by_function(spec.kind, function_name(spec.kind), X, dtype, where)
        if fitted.columns is not None:
            X = chosen_columns(X, fitted.columns)
        if X is block:
            X = as_floats(X, dtype)
    return X if fitted.scales is None else divided_columns(X, fitted.scales)


def keeps_sparse(fitted: FittedPreprocess, sparse: bool) -> bool:
    """Whether prepared rows are sparse, given that raw ones are or not; Pearson residuals, but for a low rank."""
    return sparse and (fitted.residuals is None or fitted.residuals.keeps_sparse)
