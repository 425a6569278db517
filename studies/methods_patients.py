"""The paper's Methods for lung cancer patients, sentence by sentence, in the text's version or as the authors ran it.

``python studies/run.py patients --luca FILE --sets GMT ... --as-authors`` (or ``--as-text``), or with the data at hand
``--data DIR``: immune cells in place of cancer cells, and early against advanced tumours in place of stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import spearmanr, ttest_ind

from mcpca import MCPCA, match_components
from mcpca.analysis import enrichment, feature_scores, logistic_model

from .chance import Array
from .loaders import Rows, pooled_axes
from .methods_tcga import DROPPED, FDR, POLE, POPULATION
from .output import Report
from .stored import StoredRows

RANK = 5
AXES = 400
TOP = 50  # PCs whose standard deviation the text speaks of
MEANS = 20  # PCs among whose means the authors look


@dataclass(frozen=True)
class Stages:
    """How stages are compared.

    Attributes
    ----------
    order : tuple of str
        From the earliest on; others are no stages.
    late, late_in_model : tuple of str
        Those that are late in the t-test, and in the logistic model.
    first, last : str
        Those whose scores are compared (Fig. 3I).
    """

    order: tuple[str, ...]
    late: tuple[str, ...]
    late_in_model: tuple[str, ...]
    first: str = "I"
    last: str = "IV"


STAGES = {
    "text": Stages(("I", "II", "III", "IV"), ("III", "IV"), ("III", "IV")),
    "authors": Stages(("I", "II", "III", "III or IV", "IV"), ("III or IV", "IV"), ("III", "III or IV", "IV")),
}
# The lung samples at hand: what they are of tells early tumours from advanced ones, and no more.
AT_HAND = Stages(("early", "advanced"), ("advanced",), ("advanced",), "early", "advanced")


def methods(
    rows: Rows | StoredRows,
    report: Report,
    *,
    as_authors: bool,
    sets: Sequence[Path] = (),
    at_hand: str | None = None,
    others: Rows | None = None,
) -> None:
    """Report a line for each sentence of "MCPCs across lung cancer patients".

    ``rows`` are of ``cells.luca`` with the same ``as_authors``, or of ``loaders.lung_tumours``, of which ``at_hand``
    then says what they are; ``sets`` are GMT files. ``others`` are patients of whom nothing else is known: what needs
    no stage is run for them too.
    """
    version = "authors" if as_authors else "text"
    stages = STAGES[version] if at_hand is None else AT_HAND
    Z, pca = pooled_axes(rows, AXES)
    stage = pd.Series(rows.about["stage"].to_numpy(), index=rows.y).groupby(level=0).first()
    known = stage[stage.isin(stages.order)]
    counts = pd.Series(rows.y).value_counts()
    report.add(version=version, source=rows.source, patients=len(stage), staged=len(known))
    report.method(
        "Cancer cells of adenocarcinoma donors with at least 200; non-mitochondrial genes",
        at_hand
        or (
            "more than 200 cancer cells of any disease, genes without var['mito']"
            if as_authors
            else "200 or more of adenocarcinoma, genes whose symbol does not begin with MT-"
        ),
        f"{len(rows.y)} cells of {len(stage)} {'patients' if at_hand is None else 'samples'} ({counts.min()} to "
        f"{counts.max()}), {len(rows.features)} genes",
    )
    if at_hand is not None:
        report.method(
            "Cancer stage, I to IV",
            "not in the data at hand; in its place what a sample is of: early tumours (tLung), and advanced ones "
            "(tL/B) with pleural effusions (PE) and brain metastases (mBrain)",
            "not run: whether III is early, and what 'III or IV' is, needs stages, --luca FILE. Samples of no such "
            f"kind, {len(stage) - len(known)}, are in the fit and not in the tests",
        )
    report.method(
        "PCA with 400 components", f"{Z.shape[1]} PCs", f"{pca.explained_variance_ratio_.sum():.1%} of the variance"
    )
    model = MCPCA(RANK, random_state=0).fit(Z, rows.y)
    B = pd.DataFrame(np.asarray(model.loadings_), index=[str(name) for name in model.contexts_])
    B.columns = [f"MCPC {j + 1}" for j in range(RANK)]
    tested = stage_tests(B, known, stages)
    report.table("stage", tested.reset_index(names="MCPC"))
    best = str(tested["p"].idxmin())
    own = tested.loc[best]
    late = " and ".join(stages.late)
    report.method(
        "Spearman correlation of loadings with stage, and a t-test, Bonferroni",
        f"{len(known)} with a stage, {', '.join(f'{int((known == s).sum())} {s}' for s in stages.order)}; late: {late}",
        f"{best}: Spearman {own['spearman']:.2f}, p = {own['spearman p']:.2g}; t {own['t']:.2f}, p = {own['t p']:.2g}; "
        f"the larger p times {RANK}: {min(1, RANK * own['p']):.2g}",
    )
    report.add(axis=best, axis_p=own["p"], axis_bonferroni=min(1.0, RANK * own["p"]))
    _enriched(feature_scores(model, pca=pca), rows, best, sets, report, as_authors)
    means, sds = moments(Z, rows.y, B.index)
    _against_pcs(B, best, known, stage, means, sds, report, stages)
    _metastasis(B[best], rows, report, as_authors, at_hand)
    _first_against_last(model, best, Z, rows.y, stage, report, stages)
    seeds, halves = stability(model, Z, rows.y)
    j = int(best.split()[-1]) - 1
    report.add(axis_seeds=seeds[j], axis_halves=halves[j])
    report.method(
        "Stable to resampling single cells, and across random seeds",
        f"{best}: half of the cells of each {'patient' if at_hand is None else 'sample'}; two other seeds",
        f"|cos| {halves[j]:.2f} and {seeds[j]:.2f}",
    )
    if others is not None:
        _without_stage(others, report, as_authors)


def stage_tests(values: pd.DataFrame, stage: pd.Series, stages: Stages) -> pd.DataFrame:
    """Return for each column of values (patients, m) both tests against stage, and the larger p of the two.

    Spearman's correlation with the place of the stage in its order, and Student's t-test of late against early stages.
    """
    values = values.loc[stage.index]
    order = stage.map({name: i for i, name in enumerate(stages.order)}).to_numpy()
    late = stage.isin(stages.late).to_numpy()
    if late.all() or not late.any() or len(stage) < 4:
        raise ValueError(
            f"{int(late.sum())} of {len(stage)} patients have a late stage, {' or '.join(stages.late)}; the tests "
            "need both early and late ones, of four patients or more."
        )
    rows = []
    for name in values:
        v = values[name].to_numpy()
        r, p = spearmanr(order, v)
        t, q = ttest_ind(v[late], v[~late])
        rows.append({"spearman": r, "spearman p": p, "t": t, "t p": q, "p": max(p, q)})
    return pd.DataFrame(rows, index=values.columns)


def moments(Z: Array, y: Array, patients: pd.Index) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the mean and the standard deviation of every PC in every patient, (patients, PCs) each."""
    frame = pd.DataFrame(Z, columns=[f"PC {i + 1}" for i in range(Z.shape[1])]).groupby(np.asarray(y, dtype=str))
    return frame.mean().loc[patients], frame.std(ddof=0).loc[patients]


def _enriched(
    genes: pd.DataFrame, rows: Rows | StoredRows, axis: str, sets: Sequence[Path], report: Report, as_authors: bool
) -> None:
    coding = getattr(rows, "coding", None)
    how = "all genes"
    if as_authors:
        kept = np.array([DROPPED.search(str(name)) is None for name in genes.index])
        kept &= np.ones(len(kept), dtype=bool) if coding is None else coding
        how = f"{int(kept.sum())} of {len(genes)} genes: " + (
            "none left out by its type, which the file does not tell" if coding is None else "of proteins"
        )
        genes = genes[kept]
    report.add(genes_at_poles=len(genes))
    sentence = "GSEApy and Enrichr on gene scores"
    if not sets:
        report.method(sentence, how, "not run: --sets names no GMT files")
        return
    genes = genes[~genes.index.duplicated()]  # some symbols come twice
    n = min(POLE, len(genes) // 2)
    found = enrichment(
        genes,
        [str(path) for path in sets],
        n=n,
        background=max(POPULATION, 2 * len(genes)),
        components=axis,
        min_size=1,
    )
    hits = found[found["q"] < FDR]
    report.table("enriched", hits.drop(columns="features"), on_page=False)
    top = hits.sort_values("p").groupby("pole", sort=False)["set"].agg(lambda own: ", ".join(own.head(3)))
    words = "; ".join(f"{pole}: {names}" for pole, names in top.items()) or "none"
    report.method(sentence, f"{how}; {n} at each pole of {axis}", f"FDR < {FDR}: {words}")


def _against_pcs(
    B: pd.DataFrame,
    axis: str,
    known: pd.Series,
    stage: pd.Series,
    means: pd.DataFrame,
    sds: pd.DataFrame,
    report: Report,
    stages: Stages,
) -> None:
    """Report what PCs say of stage: their standard deviations, their means, and the model of both with the loading."""
    by_sd = stage_tests(sds, known, stages)["p"]
    report.table("pc_sds", by_sd.to_frame("p").reset_index(names="PC"), on_page=False)
    top = by_sd.iloc[:TOP]
    report.method(
        "The same tests for the standard deviation of each PC per patient",
        f"the larger p of both, {len(by_sd)} PCs",
        f"p < 0.05 in {int((top < 0.05).sum())} of the first {len(top)} and {int((by_sd < 0.05).sum())} of all; after "
        f"Bonferroni over the first {len(top)}: {int((top * len(top) < 0.05).sum())}",
    )
    by_mean = stage_tests(means.iloc[:, :MEANS], known, stages)
    chosen = by_mean.index[(by_mean["spearman p"] < 0.05) & (by_mean["t p"] < 0.05)].tolist()
    chosen = by_mean.loc[chosen].nsmallest(2, "p").index.tolist()
    staged = stage[stage.isin(stages.order)]
    predictors = pd.concat([B[[axis]], means[chosen]], axis=1).loc[staged.index]
    outcome = staged.isin(stages.late_in_model)
    try:
        fitted = logistic_model(outcome, predictors)
        how = "plain likelihood"
    except ValueError:
        fitted = logistic_model(outcome, predictors, penalty="firth")
        how = "Firth's penalty, since the groups can be separated"
    report.table("logistic", fitted.reset_index(names="predictor"))
    report.method(
        "Logistic regression of III/IV against I/II, with means of PCs associated with stage",
        f"{', '.join(chosen) or 'no PC mean'} beside {axis}; {how}; {int(outcome.sum())} of {len(outcome)} late",
        "; ".join(f"{name} {row['coefficient']:.3g} (p = {row['p']:.2g})" for name, row in fitted.iloc[1:].iterrows()),
    )
    report.add(model_p=fitted["p"][axis], pc_means=", ".join(chosen) or "none", pc_sds=int((top < 0.05).sum()))
    sentence = "The loading is not correlated with the mean of the PC that is (Fig. S3G)"
    if not chosen:
        report.method(sentence, f"the first {len(by_mean)} PCs", "no PC has a mean that goes with stage by both tests")
        return
    name = by_mean.loc[chosen]["p"].idxmin()
    r, p = spearmanr(means[name], B[axis])
    report.method(sentence, f"{axis} and the mean of {name}", f"Spearman {r:.2f}, p = {p:.2g}")


def _metastasis(
    loading: pd.Series, rows: Rows | StoredRows, report: Report, as_authors: bool, at_hand: str | None
) -> None:
    """Report whether the loading goes with the share of a patient's cells that are from a metastasis."""
    sentence = "Not correlated with the proportion of metastatic cells in the sample (Fig. S3F)"
    if "metastasis" not in rows.about:
        report.method(sentence, "", "not run: the file has no column origin")
        return
    share = pd.Series(rows.about["metastasis"].to_numpy(), index=rows.y).groupby(level=0).first().loc[loading.index]
    r, p = spearmanr(share, loading) if share.nunique() > 1 else (np.nan, np.nan)
    how, out = "Spearman's correlation", f"{r:.2f}, p = {p:.2g}"
    many, few = share >= 0.6, share <= 0.4
    if as_authors:
        how = f"t-test of {int(many.sum())} with 60% or more against {int(few.sum())} with 40% or less"
        t, p = ttest_ind(loading[many], loading[few]) if min(many.sum(), few.sum()) > 1 else (np.nan, np.nan)
        out = f"t {t:.2f}, p = {p:.2g} (the authors' notebook: 0.79, 0.43)"
    if at_hand is not None:
        how += "; a sample is of one tissue, so that its share is 0 or 1, and metastases are most of the advanced ones"
    report.method(sentence, how, out)
    report.add(metastasis_p=p)


def _first_against_last(
    model: MCPCA, axis: str, Z: Array, y: Array, stage: pd.Series, report: Report, stages: Stages
) -> None:
    """Report the first stage and the last: the spread of scores by patient, their mean by patient, and by cell."""
    sentence = "Scores in stages I and IV: t-test for the std, mean not significant (Fig. 3I)"
    j = int(axis.split()[-1]) - 1
    scores = pd.Series((Z - Z.mean(axis=0)) @ model.projection_[j])
    labels = np.asarray(y, dtype=str)
    of = stage.to_numpy()
    by = scores.groupby(labels)
    sd, mean = by.std().loc[stage.index], by.mean().loc[stage.index]
    first, last = of == stages.first, of == stages.last
    if min(first.sum(), last.sum()) < 2:
        report.method(sentence, "", f"not run: fewer than two patients of stage {stages.first} or {stages.last}")
        return
    p_sd, p_mean = (float(ttest_ind(v[last], v[first]).pvalue) for v in (sd, mean))
    cells = stage[labels].to_numpy()
    p_cells = float(ttest_ind(scores[cells == stages.last], scores[cells == stages.first]).pvalue)
    report.add(sd_p=p_sd, mean_p=p_mean, mean_of_cells_p=p_cells)
    report.method(
        sentence,
        f"{stages.first}: {int(first.sum())}; {stages.last}: {int(last.sum())}",
        f"std by patient p = {p_sd:.2g} (the authors' notebook: 0.019); mean by patient p = {p_mean:.2g}; mean over "
        f"cells, as if they were independent, p {_p(p_cells)} (the authors' notebook: 1e-133)",
    )


def stability(model: MCPCA, Z: Array, y: Array) -> tuple[Array, Array]:
    """Return |cos| of each MCPC (r,) with its like from two other seeds, the lower one, and from half of the cells."""
    rank = model.n_components_
    rng = np.random.default_rng(0)
    half = np.concatenate([rng.permutation(own)[: max(len(own) // 2, 2)] for own in _members(y)])
    others = [MCPCA(rank, random_state=seed).fit(Z, y) for seed in (1, 2)]
    again = MCPCA(rank, random_state=0).fit(Z[half], np.asarray(y)[half])
    seeds = np.min([match_components(one.components_, model.components_).cosines for one in others], axis=0)
    return np.asarray(seeds), np.asarray(match_components(again.components_, model.components_).cosines)


def _without_stage(rows: Rows, report: Report, as_authors: bool) -> None:
    """Report what can be run for patients of whom nothing is known: the fit, and whether it comes back."""
    rows = rows.keep(201 if as_authors else 200)
    Z, pca = pooled_axes(rows, AXES)
    model = MCPCA(RANK, random_state=0).fit(Z, rows.y)
    seeds, halves = stability(model, Z, rows.y)
    report.add(others=rows.source, other_patients=len(model.contexts_), other_halves=halves, other_seeds=seeds)
    report.method(
        f"The same for patients with {rows.source}",
        f"{len(rows.y)} cells of {len(model.contexts_)} patients, {len(rows.features)} genes, {Z.shape[1]} PCs",
        f"{pca.explained_variance_ratio_.sum():.1%} of the variance; stable to half of the cells and to seeds, |cos| "
        f"of each MCPC: {_list(halves)} and {_list(seeds)}; not run: stage and metastasis, which the file "
        "does not have",
    )


def _p(value: float) -> str:
    return f"= {value:.2g}" if value > 0 else "below 1e-300"


def _list(values: Array) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


def _members(y: Array) -> list[Array]:
    labels = np.asarray(y)
    return [np.flatnonzero(labels == name) for name in np.unique(labels)]
