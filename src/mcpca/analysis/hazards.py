"""Scores and survival: Cox regression on scores, Kaplan-Meier curves of high and low scores (lifelines).

Scores come from ``_rows.scores_of_rows``; models and tests are in ``_cox``. MCPCs that were chosen for their small
p-values have small ones in a model of the same rows, too, whatever the truth. The joint model therefore has all MCPCs,
and its p-values are corrected for their number.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from .._results.fitted import Fitted
from .._utils.arguments import check_real
from .._utils.component_names import context_index
from .._utils.optional import require
from .._utils.printing import NAMED, Shown, counted, span
from .._utils.progress import shown
from .._utils.types import Array
from .._utils.user_warnings import warn
from .._utils.wording import listed
from ._cox import COX_COLUMNS, LEVEL, NoSolutionError, fit_cox, logrank, without_deprecations
from ._rows import per_row, scores_of_rows, table_in_row_order
from ._tables import ANALYSIS_EXTRA, bonferroni, chosen_components, false_discoveries, pandas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAIVE_COLUMNS = ["hazard_ratio", "naive_lower", "naive_upper", "naive_p"]


@dataclass(frozen=True, repr=False)
class Survival(Shown):
    """The relation of scores to survival.

    Attributes
    ----------
    table : DataFrame (one row per MCPC)
        From one Cox model each: "hazard_ratio" for one standard deviation of the score, its 95% interval, "lower" and
        "upper", "p" (Wald), "bonferroni" and "fdr" over the MCPCs; "logrank_p" of high against low scores; "n" and
        "events".
    curves : DataFrame
        Kaplan-Meier: "component", "group" ("high" or "low"), "time", "survival", "lower", "upper", "at_risk", with a
        row for time 0 and for each time in the group.
    joint : DataFrame or None
        One Cox model of all MCPCs and covariates: what each says beside the others. "hazard_ratio", "lower", "upper"
        and "p" for each predictor, where intervals and p hold for all predictors together (Bonferroni's correction for
        their number, standard errors widened for the events that so many coefficients use up); "single_p" is the
        p-value of a predictor that was the only one to be tested. If no score matters, at most 5% of data sets have any
        p < 0.05. None if the model has no solution.
    selected : DataFrame or None
        The paper's model: only MCPCs that are significant on their own (p < 0.05), and the covariates. It describes,
        and tests nothing: the same rows chose the MCPCs, so that of 10 MCPCs that do not matter, one has
        "naive_p" < 0.05 in four data sets of ten; "naive_lower" and "naive_upper" err in the same way. None if there
        are no such MCPCs, or the model has no solution.
    n_clusters : int or None
        Number of clusters of rows, if ``cluster`` was given: standard errors and p-values are then robust.
    """

    table: Any
    curves: Any
    joint: Any | None
    selected: Any | None = None
    n_clusters: int | None = None

    def plot(self, component: Any = None) -> Figure:
        """Draw the Kaplan-Meier curves of one MCPC, by default that with the smallest p-value.

        ``mcpca.plotting.plot_survival`` has options, and ``plot_forest`` draws the models of several.
        """
        # Late, because Matplotlib is an extra.
        from ..plotting import plot_survival

        return cast("Figure", plot_survival(self, component).figure)

    def _words(self) -> list[str]:
        words = [
            f"Scores of {counted(len(self.table), 'MCPC')} against survival of {self.table['n'].max():,.0f} rows with "
            f"{self.table['events'].max():,.0f} events, by Cox's model for each.",
            f"At level {LEVEL:g} after Bonferroni's correction: {_significant(self.table, 'bonferroni')}.",
        ]
        ratios = self.table["hazard_ratio"]
        if ratios.notna().any():
            words.append(f"Hazard ratios for one standard deviation: {span(ratios)}.")
        if self.joint is not None and len(self.joint) > 1:
            words.append(
                f"In one model of all {len(self.joint)} predictors, corrected for their number: "
                f"{_significant(self.joint, 'p')}."
            )
        if self.n_clusters is not None:
            words.append(f"Standard errors and p-values are robust to {counted(self.n_clusters, 'cluster')} of rows.")
        return words

    def _rows(self) -> dict[str, Any]:
        columns = [*COX_COLUMNS, "bonferroni"]
        return {"": list(self.table.index), **{name: list(self.table[name]) for name in columns}}


def _significant(table: Any, column: str) -> str:
    """List the rows of a table whose p-value in ``column`` is below the level."""
    return listed([str(name) for name in table.index[table[column] < LEVEL]], NAMED)


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
    cluster: str | Sequence[Any] | None = None,
    center: Literal["overall", "context"] = "overall",
    key: str = "mcpca",
) -> Survival:
    """Relate the scores of rows (patients) on MCPCs to their survival.

    Cox's proportional hazards, ``h(t | x) = h_0(t) exp(beta z_j(x))``, for the scores z_j of each MCPC, divided by
    their standard deviation; and Kaplan-Meier curves of the rows with scores above and below a quantile. The paper does
    this for MCPC 10 and patients with pancreatic cancer.

    Parameters
    ----------
    source : MCPCA, Pipeline or AnnData
        A fitted model, or a Pipeline that ends in one, with the rows in ``X`` and ``y``; or an AnnData with a fit,
        which brings its own rows.
    time, event : sequences of n_rows values, or str
        Time to death or to the end of observation, > 0; and whether it was death (True or 1) or not. For an AnnData
        also names of columns of ``obs``. Series of pandas are matched by their index if ``X`` is a DataFrame, so a
        table of patients may be in any order. Rows for which either is missing are left out.
    X, y : optional
        Rows of the fitted contexts.
    contexts : name or sequence of names, optional
        Only rows of these contexts; by default of all.
    components : int, str or sequence of them, optional
        MCPCs by column (0 is MCPC 1) or name; by default all.
    covariates : DataFrame (n_rows, c), optional
        Numeric columns to include in every Cox model: age, stage, means of PCs. Matched by index as ``time`` is. Rows
        with missing values are left out.
    cut : float
        Quantile of the scores that separates high from low, within each context if ``stratify``.
    stratify : bool
        Give each of several contexts its own baseline hazard: otherwise a score that differs between cancer types is
        credited with their difference in survival.
    cluster : sequence of n_rows labels, or str, optional
        Which rows belong together: the patient of each sample, or of each cell. Three samples of one patient are not
        three patients, and p-values that take them for such are too small. Given as ``time`` is; rows for which it is
        missing are left out. Standard errors are then Lin and Wei's, from sums over clusters, and so is the variance of
        the log-rank test. The intervals of ``curves`` still take rows as independent.
    center : {"overall", "context"}
        As for ``sample_scores``.
    key : str
        Name of the fit in an AnnData.

    Returns
    -------
    Survival

    Notes
    -----
    Needs lifelines (extra ``analysis``). One Cox model is fitted for each MCPC, and two of several. If the model of an
    MCPC has no finite solution there is a warning, the table has NaN, and it is left out of ``joint``; if none of them
    has one, that is an error. ``joint`` is None, with a warning, if the joint model has none.

    The joint model has power with at least three events for each predictor, better ten: with fewer choose
    ``components``, by something else than their p-values here. Splitting the rows, to choose MCPCs in one half and test
    them in the other, would also keep the level, but found an MCPC that matters in 75% of data sets, where the model of
    all found it in 94% (200 rows, 132 events, 10 MCPCs).

    With clusters p-values are by Student's t with as many degrees of freedom as clusters with an event are more than
    predictors. Fewer than 100 clusters are few: of 30 patients with 3 rows each, 8.5% of null data sets have p < 0.05,
    of 100 patients 6.5%; without ``cluster`` 17%.
    """
    pd = pandas()
    require("lifelines", ANALYSIS_EXTRA)  # before any work is done
    cut = check_real(cut, "cut", 0.01, 0.99, "It is a quantile of the scores.")
    fit, Z, codes, rows = scores_of_rows(source, key, X, y, center)
    chosen = chosen_components(components, fit.names)
    frame = _checked(pd, time, event, covariates, len(Z), rows, source)
    cluster_codes = None if cluster is None else pd.factorize(per_row(cluster, len(Z), rows, "cluster", source))[0]
    covariate_names = [name for name in frame.columns if name not in ("time", "event")]
    # The scores become a column of the same frame under the name of the MCPC.
    taken = [str(name) for name in covariate_names if name in fit.names]
    if taken:
        raise ValueError(f"covariates has a column {taken[0]!r}, the name of an MCPC; rename it.")
    # The same rows for all MCPCs, so that their results can be compared.
    is_used = np.isin(codes, _chosen_contexts(contexts, fit)) & frame.notna().all(axis=1).to_numpy()
    if cluster_codes is not None:
        is_used &= cluster_codes >= 0  # -1 where the label is missing
        cluster_codes = np.unique(cluster_codes[is_used], return_inverse=True)[1]
    # frame, codes and Z, and the clusters, stay row by row the same.
    frame = frame[is_used].reset_index(drop=True)
    codes = codes[is_used]
    Z = Z[is_used]
    if len(frame) < 4 or not frame["event"].sum() > 0:
        raise ValueError(
            f"{len(frame)} rows have a context, a time and an event, {int(frame['event'].sum())} with event=True; at "
            "least 4 rows and 1 event are needed."
        )
    n_clusters = None if cluster_codes is None else int(cluster_codes.max()) + 1
    if n_clusters is not None and n_clusters < 4:
        raise ValueError(f"cluster has {n_clusters} labels in these rows, and at least 4 are needed; pass more rows.")
    # One context is one stratum, which is the model without strata.
    strata = ["context"] if stratify and len(np.unique(codes)) > 1 else []
    frame["context"] = codes
    # Over all rows used, whatever the strata: a hazard ratio is for the same difference in scores in every context.
    sds = Z.std(axis=0, ddof=1)
    scaled = Z / np.where(sds > 0, sds, 1)
    groups = codes if strata else np.zeros_like(codes)  # within which scores are cut and deaths are compared
    models = []
    curves = []
    logrank_ps = []
    failed = []
    for j in chosen:
        name = fit.names[j]
        if np.ptp(Z[:, j]) == 0:
            raise ValueError(f"The scores on {name} are all equal in these rows; leave it out with components.")
        frame[name] = scaled[:, j]
        try:
            model = fit_cox(frame, [*covariate_names, name], strata, name, cluster_codes)
            # Only the row of the MCPC: covariates are adjusted for, not reported.
            models.append(model.table().loc[name])
        except NoSolutionError as error:
            # One MCPC without a solution must not cost the results of the others.
            failed.append(error)
            models.append(pd.Series(np.nan, index=COX_COLUMNS))
        is_high = _above(Z[:, j], groups, cut)
        if is_high.all() or not is_high.any():
            raise ValueError(f"cut={cut:g} leaves all scores on {name} on one side, since many are equal; change it.")
        # Curves and the log-rank test need no Cox model and are there even if that has no solution.
        curves.append(_curves(pd, frame, is_high, name))
        logrank_ps.append(logrank(frame, is_high, groups, cluster_codes))
    if len(failed) == len(chosen):  # a table of NaN alone would look like a result
        raise failed[0]
    for failure in failed:
        warn(str(failure))
    names = [fit.names[j] for j in chosen]
    table = pd.DataFrame(models, index=names)
    p = table["p"].to_numpy()
    table["bonferroni"] = bonferroni(p)
    table["fdr"] = false_discoveries(p)
    table["logrank_p"] = logrank_ps
    table["n"] = len(frame)
    table["events"] = int(frame["event"].sum())
    # NaN, no solution, compares as False.
    solved = [name for name in names if table.at[name, "p"] <= 1]
    joint = _model_of_several(frame, covariate_names, solved, strata, cluster_codes, "joint")
    significant = [name for name in solved if table.at[name, "p"] < LEVEL]
    selected = None
    if significant:
        selected = _model_of_several(frame, covariate_names, significant, strata, cluster_codes, "selected")
    return Survival(table, pd.concat(curves, ignore_index=True), joint, selected, n_clusters)


def _model_of_several(
    frame: Any, covariates: list[str], names: list[str], strata: list[str], clusters: Array | None, field: str
) -> Any | None:
    """Return the table of one model of several MCPCs and the covariates; if it has no solution, warn and return None.

    ``field`` of the result is "joint", for a table that is corrected for all it has, or "selected", for a naive one.
    """
    try:
        model = fit_cox(frame, [*covariates, *names], strata, listed(names, NAMED), clusters)
        return model.joint_table() if field == "joint" else model.table().set_axis(_NAIVE_COLUMNS, axis=1)
    except NoSolutionError as error:
        warn(f"{field} is None: {error}")
        return None


def _chosen_contexts(contexts: Any, fit: Fitted) -> Array:
    """Return the positions of one context or of several, by name; None is all of them."""
    if contexts is None:
        return np.arange(len(fit.contexts))
    several = [contexts] if isinstance(contexts, (str, numbers.Integral)) else list(contexts)
    return np.array([context_index(name, fit.contexts, "contexts") for name in several], dtype=int)


def _checked(pd: Any, time: Any, event: Any, covariates: Any, n: int, names: Array | None, source: Any) -> Any:
    """Return a table of time, event (as floats) and covariates, one row for each row of the data."""
    # A row is left out if NaN, but not if the value is impossible: that is more likely a mistake.
    times = _numbers(pd, per_row(time, n, names, "time", source), "time")
    events = _numbers(pd, per_row(event, n, names, "event", source), "event")
    odd_times = (times <= 0) | np.isinf(times)
    if odd_times.any():
        raise ValueError(
            f"time has {int(odd_times.sum())} values <= 0 or infinite, the first in row {int(odd_times.idxmax())}: "
            f"{times[odd_times.idxmax()]:g}. Set them to NaN to leave these rows out."
        )
    if not events.dropna().isin([0, 1]).all():
        odd = sorted(set(events.dropna()) - {0.0, 1.0})[:5]
        raise ValueError(f"event has values {odd}; pass True or 1 where the event was seen, False or 0 where not.")
    frame = pd.DataFrame({"time": times, "event": events})
    if covariates is None:
        return frame
    # Matched by name while the index is still that of the user.
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
        what = "1 or True where the event was seen" if argument == "event" else "time as numbers, such as days"
        raise ValueError(f"{argument} must be numbers ({error}); pass {what}.") from error


def _above(z: Array, groups: Array, cut: float) -> Array:
    """Return an indicator of the scores (n,) above the quantile ``cut`` of their group."""
    # z, groups (n,); a score equal to the quantile counts as low.
    bounds = {group: np.quantile(z[groups == group], cut) for group in np.unique(groups)}
    return z > np.array([bounds[group] for group in groups])


def _curves(pd: Any, frame: Any, is_high: Array, name: str) -> Any:
    """Return the Kaplan-Meier curves of the rows with high and with low scores."""
    lifelines = require("lifelines", ANALYSIS_EXTRA)
    parts = []
    for group, in_group in (("high", is_high), ("low", ~is_high)):
        patients = frame[in_group]
        with without_deprecations():
            curve = lifelines.KaplanMeierFitter().fit(patients["time"], patients["event"])
        # lifelines has a row for time 0 and each time in the group in all three tables.
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
