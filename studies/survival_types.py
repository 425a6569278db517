"""Survival by cancer type: which MCPCs go with survival in which types, and how many would by chance.

Every MCPC is tested in every type by the score test of Cox's model, at beta = 0: with one predictor z, deaths d and the
rows R_d that are at risk then,

    U = sum_d (z_d - mean of z over R_d),   V = sum_d (variance of z over R_d),   U^2 / V ~ chi^2 with 1 degree.

All MCPCs of a type take one sort and cumulated sums, O(n (log n + r)), so that chance (times of survival dealt to the
tumours of a type anew) costs little. q is Benjamini and Hochberg's over all types and MCPCs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import chi2, false_discovery_control

from mcpca import MCPCA
from mcpca.analysis import survival

from .chance import Array, Chance
from .formats import column_of, read_table
from .loaders import Rows
from .output import Report

LEAST_DEATHS = 10
CUT = 0.5


def with_times(rows: Rows, path: Path) -> Rows:
    """Return rows with "time" and "event" from a table of survival as Xena has it, matched by patient.

    The first sample of a patient counts; patients that the table does not have get missing times. Tabs or, in ``.csv``,
    commas between columns; samples may be called "barcode" or "patient", OS "event" and OS.time "time".
    """
    times = read_table(path, "--survival", sep="," if str(path).split(".gz")[0].endswith(".csv") else "\t")
    sample, event, time = (
        column_of(times, names, path)
        for names in (("sample", "barcode", "patient"), ("OS", "event"), ("OS.time", "time"))
    )
    names = times[sample].astype(str)
    times = times.assign(**{"_patient": names.str[:12]}).drop_duplicates("_patient").set_index("_patient")
    own = times.reindex(rows.about["patient"])
    if own[time].notna().sum() == 0:
        raise ValueError(
            f"--survival {path} has none of the patients, who are {list(rows.about['patient'][:2])}; its samples are "
            f"{list(names[:2])}."
        )
    about = rows.about.assign(time=own[time].to_numpy(float), event=own[event].to_numpy(float))
    return Rows(rows.X, rows.y, rows.features, about, rows.source)


def cox_score_tests(Z: Array, time: Array, event: Array) -> tuple[Array, Array]:
    """Return the score statistic's signed root (r,) and p-values (r,) for each column of Z (n, r), one at a time.

    Positive: higher scores, earlier deaths. Deaths at equal times have the same rows at risk (Breslow).
    """
    order = np.argsort(-time, kind="stable")  # the longest first: rows at risk are a beginning of the list
    z = Z[order] - Z.mean(axis=0)
    # The last place with the same time: all of these are at risk together.
    t = time[order]
    last = np.searchsorted(-t, -t, side="right")
    deaths = np.flatnonzero(event[order] == 1)
    n = last[deaths][:, None]
    sums, squares = (np.cumsum(v, axis=0)[last[deaths] - 1] for v in (z, z**2))
    U = (z[deaths] - sums / n).sum(axis=0)
    V = (squares / n - (sums / n) ** 2).sum(axis=0)
    root = U / np.sqrt(np.where(V > 0, V, np.inf))
    return np.asarray(root), np.asarray(chi2.sf(root**2, 1))


def survival_by_type(model: MCPCA, Z: Array, rows: Rows, report: Report, permutations: int, prefix: str = "") -> None:
    """Report tests of all MCPCs in all types with enough deaths, the chance of so many, and the best ones in full."""
    scores = (Z - Z.mean(axis=0)) @ model.projection_.T
    about = rows.about
    known = ((about["time"] > 0) & about["event"].isin([0, 1])).to_numpy()
    deaths = about["event"].where(known).groupby(rows.y).sum()
    types = [str(name) for name in deaths.index[deaths >= LEAST_DEATHS]]
    report.add(**{f"{prefix}survival_types": len(types), f"{prefix}survival_deaths": int(deaths.sum())})
    if not types:
        report.say(f"survival: no type has {LEAST_DEATHS} deaths")
        return
    members = [np.flatnonzero(known & (rows.y == name)) for name in types]
    time, event = about["time"].to_numpy(float), about["event"].to_numpy(float)
    rng = np.random.default_rng(7)
    root, p = _all_tests(scores, time, event, members)
    q = _fdr(p)
    null = []
    for _ in range(permutations):
        # Times go with their events; tumours keep their scores and their type.
        dealt = [rng.permutation(own) for own in members]
        null.append(int((_fdr(_all_tests(scores, time, event, members, dealt)[1]) < 0.05).sum()))
    found = int((q < 0.05).sum())
    report.add(**Chance(found, np.array(null)).numbers(f"{prefix}survival_found"))
    report.add(**{f"{prefix}survival_tests": p.size})
    table = pd.DataFrame(
        {
            "type": np.repeat(types, p.shape[1]),
            "MCPC": [f"MCPC {j + 1}" for j in range(p.shape[1])] * len(types),
            "tumours": np.repeat([len(own) for own in members], p.shape[1]),
            "deaths": np.repeat([int(event[own].sum()) for own in members], p.shape[1]),
            "score z": root.ravel(),
            "p": p.ravel(),
            "q": q.ravel(),
        }
    ).sort_values("p", kind="stable")
    report.table(f"{prefix}survival_types", table, on_page=False)
    best = table.head(5).assign(**_in_full(model, Z, rows, table.head(5)))
    report.table(f"{prefix}survival_best", best)
    borrowed = _of_another_type(model, table[table["q"] < 0.05])
    report.add(**{f"{prefix}survival_borrowed": borrowed})


def _all_tests(
    scores: Array, time: Array, event: Array, members: list[Array], dealt: list[Array] | None = None
) -> tuple[Array, Array]:
    """Return roots and p (types, r); ``dealt`` are the rows that times are taken from, in place of ``members``."""
    found = [
        cox_score_tests(scores[own], time[other], event[other])
        for own, other in zip(members, dealt or members, strict=True)
    ]
    return np.stack([root for root, _ in found]), np.stack([p for _, p in found])


def _fdr(p: Array) -> Array:
    return np.asarray(false_discovery_control(p.ravel()).reshape(p.shape))


def _in_full(model: MCPCA, Z: Array, rows: Rows, best: pd.DataFrame) -> dict[str, list[Any]]:
    """Return Cox's hazard ratio and the log-rank test of each of a few pairs of type and MCPC."""
    time = rows.about["time"].where(rows.about["time"] > 0)
    columns: dict[str, list[Any]] = {"hazard ratio": [], "Cox p": [], "log-rank p": []}
    for one in best.itertuples():
        own = survival(
            model, time, rows.about["event"], X=Z, y=rows.y, contexts=one.type, components=one.MCPC, cut=CUT
        ).table.iloc[0]
        for name, key in zip(columns, ("hazard_ratio", "p", "logrank_p"), strict=True):
            columns[name].append(float(own[key]))
    return columns


def _of_another_type(model: MCPCA, found: pd.DataFrame) -> str:
    """Return findings in a type that is not the one with the largest loading, as the paper's MCPC 10 is of thyroid."""
    B = np.asarray(model.loadings_)
    names = [str(name) for name in model.contexts_]
    words = []
    for one in found.itertuples():
        largest = names[int(B[:, int(one.MCPC.split()[-1]) - 1].argmax())]
        if largest != one.type:
            words.append(f"{one.MCPC}, most of {largest}, in {one.type}")
    return "; ".join(words[:10]) or "none"
