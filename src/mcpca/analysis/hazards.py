"""Scores and survival: Cox regression by score, Kaplan-Meier curves of high and low scores (lifelines)."""

from __future__ import annotations

import contextlib
import numbers
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.linalg import LinAlgError, LinAlgWarning
from scipy.stats import chi2

from .._utils.arguments import check_real
from .._utils.component_names import context_index
from .._utils.optional import require
from .._utils.printing import NAMED, Shown, counted, span
from .._utils.progress import shown
from .._utils.types import Array
from .._utils.wording import listed
from ._rows import per_row, scores_of_rows, table_in_row_order
from ._tables import ANALYSIS_EXTRA, bonferroni, chosen_components, false_discoveries, pandas

_COLUMNS = ["hazard_ratio", "lower", "upper", "p"]
_LEVEL = 0.05


@dataclass(frozen=True, repr=False)
class Survival(Shown):
    """Scores and survival.

    Attributes
    ----------
    table : DataFrame (one row per MCPC)
        Of a Cox model for each: "hazard_ratio" for one standard deviation of the score, its 95% interval, "lower" and
        "upper", "p" (Wald), "bonferroni" and "fdr" over the MCPCs; "logrank_p" of high against low scores; "n" and
        "events".
    curves : DataFrame
        Kaplan-Meier: "component", "group" ("high" or "low"), "time", "survival", "lower", "upper", "at_risk", with a
        row for time 0 and for each time in the group.
    joint : DataFrame or None
        One Cox model with all MCPCs that are significant on their own (p < 0.05) and the covariates: "hazard_ratio",
        "lower", "upper", "p" for each predictor. None where no MCPC is.
    """

    table: Any
    curves: Any
    joint: Any | None

    def _words(self) -> list[str]:
        found = [str(name) for name in self.table.index[self.table["bonferroni"] < _LEVEL]]
        words = [
            f"Scores of {counted(len(self.table), 'MCPC')} against survival of {self.table['n'].max():,.0f} rows with "
            f"{self.table['events'].max():,.0f} events, by Cox's model for each.",
            f"At level {_LEVEL:g} after Bonferroni's correction: {listed(found, NAMED)}.",
        ]
        ratios = self.table["hazard_ratio"]
        if ratios.notna().any():
            words.append(f"Hazard ratios for one standard deviation: {span(ratios)}.")
        return words

    def _rows(self) -> dict[str, Any]:
        told = ["hazard_ratio", "lower", "upper", "p", "bonferroni"]
        return {"": list(self.table.index), **{name: list(self.table[name]) for name in told}}


@shown("survival")
def survival(
    source: Any,
    time: str | Sequence[Any],
    event: str | Sequence[Any],
    *,
    X: Any = None,
    y: Any = None,
    contexts: Any = None,
    components: Any = None,
    covariates: Any = None,
    cut: float = 0.5,
    stratify: bool = True,
    center: Literal["overall", "context"] = "overall",
    key: str = "mcpca",
) -> Survival:
    """Relate the scores of rows (patients) on MCPCs to their survival.

    Cox's proportional hazards, ``h(t | x) = h_0(t) exp(beta z_j(x))``, for the scores z_j of each MCPC, divided by
    their standard deviation; and Kaplan-Meier curves of the rows with scores above and below a quantile. The paper does
    so for MCPC 10 and patients with pancreatic cancer.

    Parameters
    ----------
    source : MCPCA, Pipeline or AnnData
        A fitted model, or a Pipeline that ends in one, with the rows in ``X`` and ``y``; or an AnnData with a fit,
        which brings its own.
    time, event : sequences of n_rows values, or str
        Time to death or to the end of observation, > 0; and whether it was death (True or 1) or not. For an AnnData
        also names of columns of ``obs``. Series of pandas go by their index where ``X`` is a DataFrame, so that a table
        of patients may have an order of its own. Rows where either is missing are left out.
    X, y : optional
        Rows of the fitted contexts.
    contexts : name or sequence of names, optional
        Only rows of these contexts; by default of all.
    components : int, str or sequence of them, optional
        MCPCs by column (0 is MCPC 1) or name; by default all.
    covariates : DataFrame (n_rows, c), optional
        Numbers that are in every Cox model too: age, stage, means of PCs. It goes by its index as ``time`` does. Rows
        with missing ones are left out.
    cut : float
        Quantile of the scores that parts high from low, within each context where ``stratify``.
    stratify : bool
        With several contexts let each have its own baseline hazard: otherwise a score that differs between cancer
        types is credited with their difference in survival.
    center : {"overall", "context"}
        As for ``sample_scores``.
    key : str
        Name of the fit in an AnnData.

    Returns
    -------
    Survival

    Notes
    -----
    Needs lifelines (extra ``analysis``). One Cox model for each MCPC. One that has no finite solution is told in a
    warning, and is NaN in the table; where none has, or where ``joint`` has none, see the message for why.
    """
    pd = pandas()
    require("lifelines", ANALYSIS_EXTRA)
    cut = check_real(cut, "cut", 0.01, 0.99, "It is a quantile of the scores.")
    fit, Z, codes, rows = scores_of_rows(source, key, X, y, center)
    chosen = chosen_components(components, fit.names)
    frame = _checked(pd, time, event, covariates, len(Z), rows, source)
    extra = [name for name in frame.columns if name not in ("time", "event")]
    taken = [str(name) for name in extra if name in fit.names]
    if taken:
        raise ValueError(f"covariates has a column {taken[0]!r}, the name of an MCPC; rename it.")
    wanted = np.arange(len(fit.contexts))
    if contexts is not None:
        several = [contexts] if isinstance(contexts, (str, numbers.Integral)) else list(contexts)
        wanted = np.array([context_index(name, fit.contexts, "contexts") for name in several], dtype=int)
    kept = np.isin(codes, wanted) & frame.notna().all(axis=1).to_numpy()
    frame, own, Z = frame[kept].reset_index(drop=True), codes[kept], Z[kept]
    if len(frame) < 4 or not frame["event"].sum() > 0:
        raise ValueError(
            f"{len(frame)} rows have a context, a time and an event, {int(frame['event'].sum())} with event=True; at "
            "least 4 rows and 1 event are needed."
        )
    strata = ["context"] if stratify and len(np.unique(own)) > 1 else []
    frame["context"] = own
    scaled = Z / np.where(Z.std(axis=0, ddof=1) > 0, Z.std(axis=0, ddof=1), 1)
    groups = own if strata else np.zeros_like(own)
    models, curves, tests, failed = [], [], [], []
    for j in chosen:
        name = fit.names[j]
        if np.ptp(Z[:, j]) == 0:
            raise ValueError(f"The scores on {name} are all equal in these rows; leave it out with components.")
        frame[name] = scaled[:, j]
        try:
            models.append(_cox(frame[["time", "event", *extra, *strata, name]], strata, name).loc[name])
        except _NoSolutionError as error:
            failed.append(error)
            models.append(pd.Series(np.nan, index=_COLUMNS))
        is_high = _above(Z[:, j], groups, cut)
        if is_high.all() or not is_high.any():
            raise ValueError(f"cut={cut:g} leaves all scores on {name} on one side, since many are equal; change it.")
        curves.append(_curves(pd, frame, is_high, name))
        tests.append(logrank(frame, is_high, groups))
    if len(failed) == len(chosen):
        raise failed[0]
    for why in failed:
        warnings.warn(str(why), UserWarning, stacklevel=2)
    names = [fit.names[j] for j in chosen]
    table = pd.DataFrame(models, index=names)
    p = table["p"].to_numpy()
    table["bonferroni"], table["fdr"], table["logrank_p"] = bonferroni(p), false_discoveries(p), tests
    table["n"], table["events"] = len(frame), int(frame["event"].sum())
    marginal = [name for name in names if table.at[name, "p"] < _LEVEL]
    joint = None
    if marginal:
        try:
            joint = _cox(frame[["time", "event", *extra, *strata, *marginal]], strata, ", ".join(marginal))
        except _NoSolutionError as error:
            warnings.warn(f"joint is None: {error}", UserWarning, stacklevel=2)
    return Survival(table, pd.concat(curves, ignore_index=True), joint)


def _checked(pd: Any, time: Any, event: Any, covariates: Any, n: int, names: Array | None, source: Any) -> Any:
    """Return a table of time, event (float) and covariates, one row for each row of the data."""
    times, events = (
        _numbers(pd, per_row(v, n, names, name, source), name) for v, name in ((time, "time"), (event, "event"))
    )
    odd_times = (times <= 0) | np.isinf(times)
    if odd_times.any():
        raise ValueError(
            f"time has {int(odd_times.sum())} values <= 0 or infinite, the first in row {int(odd_times.idxmax())}: "
            f"{times[odd_times.idxmax()]:g}. Leave these rows out (NaN)."
        )
    if not events.dropna().isin([0, 1]).all():
        odd = sorted(set(events.dropna()) - {0.0, 1.0})[:5]
        raise ValueError(f"event has values {odd}; pass True or 1 where the event was seen, False or 0 where not.")
    frame = pd.DataFrame({"time": times, "event": events})
    if covariates is None:
        return frame
    table = table_in_row_order(covariates, names, "covariates")
    table = table if isinstance(table, pd.DataFrame) else pd.DataFrame(table)
    if not table.columns.is_unique:
        raise ValueError(f"covariates has columns of the same name, {list(table.columns)[:5]}; rename them.")
    if len(table) != n:
        raise ValueError(f"covariates has {len(table)} rows, and the data {n}; pass one for each.")
    text = [str(name) for name in table.columns if not pd.api.types.is_numeric_dtype(table[name])]
    if text:
        raise ValueError(f"covariates has columns that are not numbers, {text[:5]}; encode them.")
    table = table.astype(float).set_axis([str(name) for name in table.columns], axis=1).reset_index(drop=True)
    reserved = {"time", "event", "context"} & set(table.columns)
    if reserved:
        raise ValueError(f"covariates has columns named {sorted(reserved)}; rename them.")
    return pd.concat([frame, table], axis=1)


def _numbers(pd: Any, values: Array, argument: str) -> Any:
    try:
        return pd.to_numeric(pd.Series(values).astype(object)).astype(float)
    except (TypeError, ValueError) as error:
        what = "1 or True where the event was seen" if argument == "event" else "time as numbers, of days say"
        raise ValueError(f"{argument} must be numbers ({error}); pass {what}.") from error


class _NoSolutionError(ValueError):
    """A Cox model without a finite solution."""


@contextlib.contextmanager
def _without_notices() -> Iterator[None]:
    """Leave out what lifelines says of newer pandas: it is no matter of the caller's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        yield


def _cox(frame: Any, strata: list[str], what: str) -> Any:
    """Return the rows "hazard_ratio", "lower", "upper", "p" of each predictor of a Cox model."""
    lifelines = require("lifelines", ANALYSIS_EXTRA)
    exceptions = require("lifelines.exceptions", ANALYSIS_EXTRA)
    try:
        with _without_notices():
            for kind in (exceptions.ConvergenceWarning, LinAlgWarning):
                warnings.simplefilter("error", kind)
            fitted = lifelines.CoxPHFitter().fit(frame, "time", "event", strata=strata or None)
    except (exceptions.ConvergenceError, exceptions.ConvergenceWarning, LinAlgWarning, LinAlgError) as error:
        first = str(error).strip().split("\n")[0]
        raise _NoSolutionError(
            f"Cox's model with {what} has no finite solution ({first}): too few events, a covariate that follows from "
            "the others, or one that parts all events from the rest. Leave it out, or take more rows."
        ) from error
    found = fitted.summary
    table = found[["exp(coef)", "exp(coef) lower 95%", "exp(coef) upper 95%", "p"]]
    return table.set_axis(_COLUMNS, axis=1).rename_axis(None)


def _above(z: Array, groups: Array, cut: float) -> Array:
    """Return whether a score is above the quantile of its group."""
    bounds = {group: np.quantile(z[groups == group], cut) for group in np.unique(groups)}
    return z > np.array([bounds[group] for group in groups])


def _curves(pd: Any, frame: Any, is_high: Array, name: str) -> Any:
    lifelines = require("lifelines", ANALYSIS_EXTRA)
    parts = []
    for group, rows in (("high", is_high), ("low", ~is_high)):
        own = frame[rows]
        with _without_notices():
            curve = lifelines.KaplanMeierFitter().fit(own["time"], own["event"])
        interval = curve.confidence_interval_
        at_risk = curve.event_table["at_risk"].to_numpy()
        parts.append(
            pd.DataFrame(
                {
                    "component": name,
                    "group": group,
                    "time": curve.survival_function_.index.to_numpy(),
                    "survival": curve.survival_function_.iloc[:, 0].to_numpy(),
                    "lower": interval.iloc[:, 0].to_numpy(),
                    "upper": interval.iloc[:, 1].to_numpy(),
                    "at_risk": at_risk.astype(int),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def logrank(frame: Any, is_high: Array, strata: Array) -> float:
    """Return the p-value of the log-rank test of high against low scores, summed over strata of rows (n,)."""
    difference = variance = 0.0
    for stratum in np.unique(strata):
        mine = strata == stratum
        t, died, high = frame["time"].to_numpy()[mine], frame["event"].to_numpy()[mine] > 0, is_high[mine]
        moments = np.unique(t[died])
        # At each moment: rows at risk, those of them with high scores, deaths, and deaths with high scores.
        n = len(t) - np.searchsorted(np.sort(t), moments)
        n_high = high.sum() - np.searchsorted(np.sort(t[high]), moments)
        at = np.searchsorted(moments, t[died])
        deaths = np.bincount(at, minlength=len(moments))
        deaths_high = np.bincount(at, weights=high[died], minlength=len(moments))
        share = n_high / n
        difference += float((deaths_high - deaths * share).sum())
        variance += float((deaths * share * (1 - share) * (n - deaths) / np.maximum(n - 1, 1)).sum())
    return float(chi2.sf(difference**2 / variance, 1)) if variance > 0 else float("nan")
