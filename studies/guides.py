"""Guides of one target: whether they get like loadings, beyond like means; non-targeting guides tell what is usual.

``python studies/run.py guides --data DIR``. Contexts are guides. A benchmark that needs no gene sets: two guides of one
target should do the same to cells.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from mcpca import MCPCA

from .chance import Array, Chance
from .loaders import Rows, papalexi, pooled_axes
from .output import Report

AXES = 40
RANKS = (3, 5, 7, 10)
CONTROL = "non-targeting"
LEAST_GUIDES = 2
NAMES = 25  # exchanges of targets for each permutation asked for: they need no fit
LOADINGS, MEANS, SPREADS = "loadings", "means of PCs", "variances of PCs"


def run(data: Path, report: Report, permutations: int = 200) -> None:
    """Study the data at hand: guides of 25 targets, and non-targeting ones, in THP-1 cells."""
    study_guides(papalexi(data, by="grna"), report, permutations)


def study_guides(rows: Rows, report: Report, permutations: int) -> None:
    """Fit MCPCA with guides as contexts, and report how alike guides of one target are, by three kinds of features."""
    target = pd.Series(rows.about["target"].to_numpy(), index=np.asarray(rows.y, dtype=str)).groupby(level=0).first()
    several = target.value_counts()
    kept = target[target.isin(several.index[several >= LEAST_GUIDES])]
    if CONTROL not in set(kept) or len(set(kept)) < 3:
        raise ValueError(
            f"Targets with {LEAST_GUIDES} guides or more are {sorted(set(kept))[:5]}; the study needs two and "
            f"{CONTROL!r}."
        )
    rows = rows.take(np.isin(np.asarray(rows.y, dtype=str), kept.index))
    Z, _ = pooled_axes(rows, AXES)
    labels = np.asarray(rows.y, dtype=str)
    names = kept.index.tolist()
    targets = kept.to_numpy(dtype=str)
    grouped = pd.DataFrame(Z).groupby(labels)
    rng = np.random.default_rng(8)
    perturbed = np.flatnonzero(targets != CONTROL)
    orders = [rng.permutation(perturbed) for _ in range(NAMES * permutations)]
    controls = targets == CONTROL
    report.add(
        permutations=permutations,
        exchanges=len(orders),
        cells=len(labels),
        guides=len(names),
        targets=len(set(targets)) - 1,
        controls=int(controls.sum()),
        fewest=int(grouped.size().min()),
        axes=Z.shape[1],
        ranks=", ".join(map(str, RANKS)),
    )
    means = likeness(grouped.mean().loc[names].to_numpy(), controls)
    table = []
    for rank in RANKS:
        model = MCPCA(rank, random_state=0).fit(Z, labels)
        place = [[str(name) for name in model.contexts_].index(name) for name in names]
        features = {
            LOADINGS: np.asarray(model.loadings_)[place],
            SPREADS: grouped.var().loc[names].to_numpy()[:, :rank],
        }
        for kind, F in features.items():
            table.append({"features": kind, "number": rank} | _tests(likeness(F, controls), means, targets, orders))
    table.append({"features": MEANS, "number": Z.shape[1]} | _tests(means, None, targets, orders))
    frame = pd.DataFrame(table)
    # The best of several ranks is chosen: p-values are corrected for their number within a kind of features.
    frame["p, corrected"] = np.minimum(1, frame["p"] * frame.groupby("features")["p"].transform("size"))
    beyond = frame["p beyond means"]
    frame["p beyond means, corrected"] = np.minimum(1, beyond * frame.groupby("features")["p"].transform("size"))
    report.table("guides", frame)
    best = frame[frame["features"] == LOADINGS].sort_values("p", kind="stable").iloc[0]
    spreads = frame[frame["features"] == SPREADS].sort_values("p", kind="stable").iloc[0]
    own = frame[frame["features"] == MEANS].iloc[0]
    report.add(
        rank=int(best["number"]),
        same=best["same target"],
        other=best["other targets"],
        between_controls=best["between controls"],
        p=best["p, corrected"],
        beyond_p=float(frame[frame["features"] == LOADINGS]["p beyond means, corrected"].min()),
        spreads_p=spreads["p, corrected"],
        spreads_beyond_p=float(frame[frame["features"] == SPREADS]["p beyond means, corrected"].min()),
        means_p=own["p"],
        means_same=own["same target"],
        means_other=own["other targets"],
    )
    report.table("targets", _by_target(names, targets, Z, labels, controls, int(best["number"])))
    report.figure("likeness", _draw(frame))
    _claims(report)


def likeness(F: Array, controls: Array) -> Array:
    """Return cosines (g, g) of guides, each as its difference from non-targeting guides in units of their spread.

    Column by column: less the mean over non-targeting guides, over their standard deviation. A guide that does nothing
    is then noise around 0, alike with none; the mean that a non-targeting guide is compared with is that of the others.
    """
    own = F[controls]
    n = len(own)
    sd = own.std(axis=0, ddof=1)
    D = F - own.mean(axis=0)
    # Leave one out: x - mean of the others = (x - mean) n / (n - 1).
    D[controls] *= n / (n - 1)
    D /= np.where(sd > 0, sd, 1)
    D /= np.maximum(np.linalg.norm(D, axis=1, keepdims=True), 1e-300)
    return np.asarray(D @ D.T)


def same_less_other(S: Array, targets: Array) -> float:
    """Return the mean of S over pairs of guides of one target, less that over pairs of two."""
    i, j = np.triu_indices(len(S), 1)
    same = targets[i] == targets[j]
    return float(S[i, j][same].mean() - S[i, j][~same].mean())


def _tests(S: Array, means: Array | None, targets: Array, orders: list[Array]) -> dict[str, float]:
    """Return the likeness of guides of one target, of two, of controls; p by exchange; and both beyond that of means.

    Controls take no part in the first test: they are what "does nothing" looks like. Beyond means: residuals of the
    likeness, over pairs, after regression on the likeness of means; names of targets are exchanged among guides.
    """
    perturbed = np.flatnonzero(targets != CONTROL)
    i, j = np.triu_indices(len(perturbed), 1)
    own = S[np.ix_(perturbed, perturbed)]
    labels = targets[perturbed]
    same = labels[i] == labels[j]
    between = S[np.ix_(targets == CONTROL, targets == CONTROL)]
    out = {
        "same target": float(own[i, j][same].mean()),
        "other targets": float(own[i, j][~same].mean()),
        "between controls": float(between[np.triu_indices(len(between), 1)].mean()),
    }
    exchanged = [targets[order] for order in orders]
    chance = Chance(same_less_other(own, labels), np.array([same_less_other(own, one) for one in exchanged]))
    out |= {"difference": chance.observed, "95% of chance": chance.upper, "p": chance.p}
    out["p beyond means"] = np.nan
    if means is not None:
        x, v = means[np.ix_(perturbed, perturbed)][i, j], own[i, j]
        slope = float(np.cov(x, v)[0, 1] / max(x.var(ddof=1), 1e-300))
        rest = np.zeros_like(own)
        rest[i, j] = v - v.mean() - slope * (x - x.mean())
        rest += rest.T
        beyond = Chance(same_less_other(rest, labels), np.array([same_less_other(rest, one) for one in exchanged]))
        out["p beyond means"] = beyond.p
    return out


def _by_target(names: list[str], targets: Array, Z: Array, labels: Array, controls: Array, rank: int) -> pd.DataFrame:
    """Return for each target its number of guides and how alike they are, by loadings and by means."""
    model = MCPCA(rank, random_state=0).fit(Z, labels)
    place = [[str(name) for name in model.contexts_].index(name) for name in names]
    kinds = {
        LOADINGS: likeness(np.asarray(model.loadings_)[place], controls),
        MEANS: likeness(pd.DataFrame(Z).groupby(labels).mean().loc[names].to_numpy(), controls),
    }
    rows = []
    for target in sorted(set(targets)):
        mine = np.flatnonzero(targets == target)
        upper = np.triu_indices(len(mine), 1)
        likes = {kind: float(S[np.ix_(mine, mine)][upper].mean()) for kind, S in kinds.items()}
        rows.append({"target": target, "guides": len(mine)} | {f"likeness by {kind}": v for kind, v in likes.items()})
    return pd.DataFrame(rows).sort_values(f"likeness by {LOADINGS}", ascending=False, kind="stable")


def _draw(table: pd.DataFrame) -> plt.Figure:
    figure, ax = plt.subplots(figsize=(6, 3.2), constrained_layout=True)
    places = np.arange(len(table))
    for column, colour, shift in (
        ("same target", "#1f5fa8", -0.25),
        ("other targets", "0.6", 0),
        ("between controls", "#d55e00", 0.25),
    ):
        ax.barh(places + shift, table[column], 0.23, color=colour, label=column)
    ax.set_yticks(places, [f"{one.features}, {one.number}" for one in table.itertuples()])
    ax.invert_yaxis()
    ax.axvline(0, color="k", lw=0.8)
    ax.set_xlabel("mean cosine of two guides, from non-targeting ones")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def _claims(report: Report) -> None:
    n = report.numbers
    report.claim(
        "Guides of one target have like loadings",
        "not asked",
        f"mean cosine {n['same']:.2f} within targets, {n['other']:.2f} between them, "
        f"{n['between_controls']:.2f} between non-targeting guides",
        f"targets exchanged among guides, corrected for {len(RANKS)} ranks: p = {n['p']:.2g}",
        bool(n["p"] < 0.05),
    )
    report.claim(
        "Beyond like means",
        "loadings add to mean PCs (links of gene sets)",
        f"p = {n['beyond_p']:.2g} for loadings, {n['spreads_beyond_p']:.2g} for variances of PCs",
        "the same, after regression on the likeness of means",
        bool(n["beyond_p"] < 0.05),
    )
    report.claim(
        "By means alone",
        "not asked",
        f"mean cosine {n['means_same']:.2f} within targets, {n['means_other']:.2f} between them",
        f"p = {n['means_p']:.2g}",
        bool(n["means_p"] < 0.05),
    )
