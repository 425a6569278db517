"""The paper's Methods for cancer types, sentence by sentence, in the version of the text or as the authors ran it.

``python studies/run.py tcga --xena FILE --phenotype FILE --survival FILE --sets GMT ... --as-authors`` (or
``--as-text``). The rank is the paper's, 30, whatever the measures say, and so are PCs; each line has its own output.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist

from mcpca import MCPCA, IdentifiabilityWarning
from mcpca._rank.criteria import FitAtRank, context_consistency
from mcpca.analysis import enrichment, feature_scores, survival

from .chance import Array
from .loaders import Rows, pooled_axes
from .output import Report

RANK = 30
AXES = 400
SUBSET = 9000
RANKS = {"text": range(20, 51), "authors": range(20, 50)}
# Names of genes that the authors leave out before they take the 200 at each pole. It is looked for anywhere in a name,
# so that MTOR, DNMT1 and SMTN go with the mitochondrial genes.
DROPPED = re.compile(r"LOC|MIR|MT|-NCRNA|RPL|^\d+")
POLE = 200
POPULATION = 20_000  # genes that Enrichr counts
FDR = 0.001
# The paper's axis: thyroid and pancreas, and survival in the second.
TYPES = (("thyroid carcinoma", "THCA"), ("pancreatic adenocarcinoma", "PAAD"))
CUT = {"text": 0.5, "authors": 0.9}


def methods(
    rows: Rows,
    report: Report,
    *,
    as_authors: bool,
    sets: Sequence[Path] = (),
    axis: str | None = None,
    cancer: str | None = None,
    at_hand: str | None = None,
) -> None:
    """Report a line for each sentence of "MCPCs across cancer types".

    Parameters
    ----------
    rows : Rows
        Of ``formats.xena``, with the same ``as_authors``, or of the data at hand.
    sets : paths of GMT files
        Gene sets; without any there is no enrichment.
    axis, cancer : str, optional
        The MCPC and the type for survival. By default the MCPC that is most of thyroid and pancreas, and pancreas, or
        else the type with the most deaths and its strongest MCPC.
    at_hand : str, optional
        What the rows are where they are not of the paper's files, so that its choice of them was not made.
    """
    version = "authors" if as_authors else "text"
    Z, pca = pooled_axes(rows, AXES)
    counts = pd.Series(rows.y).value_counts()
    unmeasured = int((~rows.about["measured"]).sum()) if "measured" in rows.about else 0
    chosen = (
        "sample type Primary Tumor, types with more than 50 lines of phenotypes, missing values 0"
        if as_authors
        else "primary tumours, also of blood; types with 30 or more; genes with missing values left out"
    )
    report.method(
        "Primary tumor samples were selected; types with fewer than thirty removed",
        at_hand or chosen,
        f"{len(rows.y)} tumours of {len(counts)} types, {counts.min()} to {counts.max()} each"
        + (f"; {unmeasured} have no expression and are rows of zeros" if as_authors and not at_hand else ""),
    )
    report.method(
        "PCA with 400 components",
        f"{Z.shape[1]} PCs of {len(rows.features)} features",
        f"{pca.explained_variance_ratio_.sum():.1%} of the variance",
    )
    report.add(version=version, source=rows.source, tumours=len(rows.y), types=len(counts), unmeasured=unmeasured)
    _ranks(Z, rows.y, report, version)
    rank = min(RANK, Z.shape[1])
    model = _fitted(Z, rows.y, rank)
    genes = feature_scores(model, pca=pca)
    report.method("MCPCs times the PCA projection are gene scores", f"rank {rank}", f"{genes.shape[0]} x {rank} scores")
    _enriched(genes, sets, report, as_authors)
    _survival_of_axis(model, Z, rows, report, version, axis, cancer)


def _fitted(Z: Array, y: Array, rank: int) -> MCPCA:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)
        return MCPCA(rank, random_state=0).fit(Z, y)


def _ranks(Z: Array, y: Array, report: Report, version: str) -> None:
    """Report the three measures of stability at each rank: all tumours against a subset, and ranks among each other."""
    rng = np.random.default_rng(4)
    n = SUBSET if len(y) > SUBSET else int(0.9 * len(y))
    chosen = np.sort(rng.choice(len(y), n, replace=False))
    names, left = np.unique(y[chosen], return_counts=True)
    chosen = chosen[np.isin(y[chosen], names[left > 1])]
    ranks = [r for r in RANKS[version] if r <= Z.shape[1]] or [Z.shape[1]]
    whole = [_fitted(Z, y, r) for r in ranks]
    subset = [_fitted(Z[chosen], y[chosen], r) for r in ranks]
    table = pd.DataFrame([{"rank": r} | similarities(a, b) for r, a, b in zip(ranks, whole, subset, strict=True)])
    fits = [FitAtRank(np.asarray(m.components_), np.asarray(m.loadings_)) for m in whole]
    consistency = context_consistency(fits, as_authors=version == "authors")
    np.fill_diagonal(consistency, np.nan)
    table["consistency of contexts"] = np.nanmean(consistency, axis=1) if len(ranks) > 1 else np.nan
    score = table.drop(columns="rank").mean(axis=1)
    best = int(table["rank"][score.idxmax()])
    report.table("ranks", table, on_page=False)
    at = table.set_index("rank").loc[best]
    how = (
        "ranks 20 to 49; consistency is Pearson's, of loadings standardised over types"
        if version == "authors"
        else "ranks 20 to 50; consistency is Spearman's, of loadings"
    )
    report.method(
        "MCPCA of all and of 9000 samples at ranks 20 to 50: projection similarity, context loading similarity, "
        "context relationship consistency",
        f"{how}; {len(chosen)} of {len(y)} tumours; the mean over the other ranks",
        f"highest together at rank {best}: {at.iloc[0]:.2f}, {at.iloc[1]:.2f}, {at.iloc[2]:.2f} (the paper: 30)",
    )
    report.add(best_rank=best, ranks_tried=f"{ranks[0]} to {ranks[-1]}")


def similarities(whole: MCPCA, subset: MCPCA) -> dict[str, float]:
    """Return the shares of MCPCs whose projection vector, and whose loadings, the subset has as well.

    Projections: the largest |cos| of rows of pinv(A) above 0.9. Loadings: the largest |correlation| over types that
    both have, above 0.99.
    """
    cosines = np.abs(1 - cdist(whole.projection_, subset.projection_, "cosine"))
    shared = [name for name in whole.contexts_ if name in set(subset.contexts_)]
    B, C = (
        pd.DataFrame(np.asarray(m.loadings_), index=list(m.contexts_)).loc[shared].to_numpy() for m in (whole, subset)
    )
    B, C = (D[:, np.ptp(D, axis=0) > 0] for D in (B, C))
    correlations = np.abs(1 - cdist(B.T, C.T, "correlation"))
    return {
        "projections, cos > 0.9": float((cosines.max(axis=1) > 0.9).mean()),
        "loadings, correlation > 0.99": float((correlations.max(axis=1) > 0.99).mean()),
    }


def _enriched(genes: pd.DataFrame, sets: Sequence[Path], report: Report, as_authors: bool) -> None:
    """Report which gene sets are at the poles, as Enrichr counts: of 20,000 genes, FDR within a collection and pole."""
    sentence = "200 genes with highest and lowest scores, gene sets with FDR < .001"
    kept = genes[[DROPPED.search(str(name)) is None for name in genes.index]] if as_authors else genes
    lost = len(genes) - len(kept)
    how = f"{lost} genes left out by their names first" if as_authors else "all genes"
    if not sets:
        report.method(sentence, how, "not run: --sets names no GMT files")
        report.add(enriched=0, dropped=lost)
        return
    kept = kept[~kept.index.duplicated()]  # some symbols come twice
    n = min(POLE, len(kept) // 2)
    population = max(POPULATION, 2 * len(kept))
    found = enrichment(kept, [str(path) for path in sets], n=n, background=population, min_size=1)
    hits = found[found["q"] < FDR]
    report.table("enriched", hits.drop(columns="features"), on_page=False)
    per = hits.groupby("component").size()
    strongest = "none" if hits.empty else f"{hits.iloc[hits['p'].argmin()]['set']} ({hits['p'].min():.2g})"
    report.method(
        sentence,
        f"{how}; {n} at each pole, of {population:,} genes, {len(sets)} collections",
        f"{len(hits)} sets at poles of {len(per)} MCPCs; the strongest: {strongest}",
    )
    report.add(enriched=len(hits), dropped=lost)


def axis_of_types(model: MCPCA, types: Sequence[str]) -> str:
    """Return the MCPC with the largest share of its loadings in these contexts."""
    names = [str(name) for name in model.contexts_]
    B = np.asarray(model.loadings_)
    share = B[np.isin(names, list(types))].sum(axis=0) / np.maximum(B.sum(axis=0), 1e-300)
    return f"MCPC {int(share.argmax()) + 1}"


def _survival_of_axis(
    model: MCPCA, Z: Array, rows: Rows, report: Report, version: str, axis: str | None, cancer: str | None
) -> None:
    """Report Cox's model and Kaplan-Meier curves of the scores of one axis in one type."""
    sentence = "Scores by the projection matrix; Cox regression of overall survival on those of MCPC10 in pancreas"
    if "time" not in rows.about or not (rows.about["time"].notna() & (rows.about["event"] == 1)).any():
        report.method(sentence, "scores of all tumours", "not run: --survival names no table with times of these")
        report.add(axis="none")
        return
    names = [str(name) for name in model.contexts_]
    papers = [next((one for one in pair if one in names), None) for pair in TYPES]
    if cancer is None:
        deaths = rows.about["event"].groupby(rows.y).sum()
        cancer = papers[1] if papers[1] is not None else str(deaths.idxmax())
    if cancer not in names:
        raise ValueError(f"--type {cancer!r} is no context; there are {names[:5]} and others.")
    if axis is None:
        axis = axis_of_types(model, [name for name in papers if name] or [cancer])
    time = rows.about["time"].where(rows.about["time"] > 0)
    found = survival(
        model, time, rows.about["event"], X=Z, y=rows.y, contexts=cancer, components=axis, cut=CUT[version]
    )
    own = found.table.iloc[0]
    report.add(axis=axis, cancer=cancer, cox_p=own["p"], hazard_ratio=own["hazard_ratio"], logrank_p=own["logrank_p"])
    report.table("survival", found.table.reset_index(names="MCPC"))
    report.method(
        sentence,
        f"{axis} in {cancer}: {own['n']:.0f} tumours, {own['events']:.0f} deaths",
        f"hazard ratio {own['hazard_ratio']:.2f} for one standard deviation, p = {own['p']:.2g} (the paper: 0.001)",
    )
    report.method(
        "Kaplan-Meier plot of patients with high and low MCPC10 (Fig. 3F)",
        f"split at the {CUT[version]:.0%} quantile of the scores",
        f"log-rank p = {own['logrank_p']:.2g}" + (" (the authors' notebook: 0.0039)" if version == "authors" else ""),
    )
    report.add(high_low=describe_curves(found.curves))


def describe_curves(curves: Any) -> str:
    """Return the shares of both groups that survive to the median time, in words."""
    middle = float(curves["time"].median())
    shares = [
        f"{group} {own[own['time'] <= middle]['survival'].iloc[-1]:.0%}"
        for group, own in curves.groupby("group", sort=False)
    ]
    return f"alive at {middle:.0f} days: {', '.join(shares)}"
