"""Cancer types: rank, axes of one organ, of several types and of all, axes that pooled PCA misses, and their poles.

``python studies/run.py tcga --data DIR``, or with the paper's tables ``--xena``, ``--phenotype`` and ``--survival``.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from mcpca import MCPCA, IdentifiabilityWarning, plotting, select_rank
from mcpca.analysis import compare_with_pca, enrichment, feature_scores, survival, top_features
from mcpca.sharing import carrying_contexts, how_shared

from .chance import Array, Chance, centred_by_context, permuted_fits, spread
from .known import MICRORNA_SETS, organ_of
from .loaders import Rows, optional_file, pooled_axes, tcga_mirna, tcga_mrna
from .output import Report
from .survival_types import survival_by_type, with_times

N_PCS = 50  # pooled PCs to look for an MCPC in
MISSED = 0.7  # |cos| below which no pooled PC is called the same axis
KINDS = ("specific", "shared", "broad")


def run(data: Path, report: Report, permutations: int = 200, times: Path | None = None) -> None:
    """Study the data at hand: microRNAs of 31 types, and genes of some; with a table of survival, that by type.

    The table may be the one in the folder tcga_survival of the data.
    """
    times = optional_file(data, "tcga_survival") if times is None else times
    rows = tcga_mirna(data)
    rows = rows if times is None else with_times(rows, times)
    report.add(timed=int(rows.about["time"].notna().sum()) if times is not None else 0)
    model, scores, shared = study_types(rows, report, "", 100, permutations, sets=MICRORNA_SETS)
    small = tcga_mrna(data)
    if times is not None:
        try:
            small = with_times(small, times)
        except ValueError as error:  # a table of other patients, where microRNAs have been matched
            report.say(f"genes without survival: {error}")
    other, other_scores, _ = study_types(small, report, "mrna_", 50, permutations, rank=len(np.unique(small.y)))
    _two_measurements(report, rows, scores, small, other_scores, other, permutations)
    _claims(report, model, shared)


def run_xena(expression: Path, phenotype: Path, times: Path | None, report: Report, permutations: int = 200) -> None:
    """Study the paper's own tables."""
    from .formats import xena

    rows = xena(expression, phenotype, times)
    timed = int(rows.about["time"].notna().sum()) if "time" in rows.about else 0
    report.add(source=rows.source, annotation=Path(phenotype).name, timed=timed)
    model, _, shared = study_types(rows, report, "", 400, permutations)
    _claims(report, model, shared)


def study_types(
    rows: Rows,
    report: Report,
    prefix: str,
    n_axes: int,
    permutations: int,
    *,
    sets: dict[str, list[str]] | None = None,
    rank: int | None = None,
) -> tuple[MCPCA, Array, str | None]:
    """Fit MCPCA on pooled PCs of one data set and report; return the model, the scores, and the axis few types share.

    The rank is the one that ``select_rank`` recommends unless it is given.
    """
    Z, pca = pooled_axes(rows, n_axes)
    criteria = ("seeds", "holdout") if rank is None else ()
    selection = select_rank(Z, rows.y, criteria=criteria, random_state=0)
    chosen_rank = max(selection.rank, 1)
    rank = chosen_rank if rank is None else rank
    report.say(f"{prefix or 'mirna_'}rank: {selection.reason}")
    model = MCPCA(rank, random_state=0).fit(Z, rows.y)
    at = int(np.flatnonzero(selection.ranks == chosen_rank)[0]) if chosen_rank in selection.ranks else 0
    report.add(
        **{
            f"{prefix}n": len(rows.y),
            f"{prefix}types": len(model.contexts_),
            f"{prefix}features": len(rows.features),
            f"{prefix}axes": Z.shape[1],
            f"{prefix}rank": rank,
            f"{prefix}rank_selected": selection.rank,
            f"{prefix}rank_reason": selection.reason,
            f"{prefix}above_noise": selection.n_above_noise,
            f"{prefix}agreement": float(selection.columns["split-half agreement"][at]),
            f"{prefix}variance_of_axes": float(pca.explained_variance_ratio_.sum()),
        }
    )
    if criteria:
        _paper_rules(report, prefix, selection)
    again = model.replicability(Z, rows.y, random_state=0)
    sharing = how_shared(model.loadings_)
    counts = {kind: int((sharing.labels == kind).sum()) for kind in KINDS}
    null = permuted_fits(Z, rows.y, rank, permutations, _kinds_and_spread, seed=1)
    if not prefix:
        report.add(permutations=permutations)
    report.add(**Chance(spread(model), np.array([one[1] for one in null])).numbers(f"{prefix}spread"))
    for kind in KINDS:
        report.add(**Chance(counts[kind], np.array([one[0][kind] for one in null])).numbers(f"{prefix}{kind}"))
    report.add(**{f"{prefix}replicating": again.n_replicating, f"{prefix}halves": float(again.agreement.mean())})
    report.add(**{f"{prefix}halves_chance": _halves_by_chance(Z, rows.y, rank)})
    compared = compare_with_pca(
        model, corrected=False, X=Z, y=rows.y, n_pcs=N_PCS, n_top=max(5, min(200, len(Z) // 10))
    )
    table = _axes_table(model, sharing.effective, sharing.labels, again, compared.best)
    report.table(f"{prefix}axes", table)
    floor = _random_cosines(Z.shape[1], min(N_PCS, Z.shape[1]))
    missed = (table["best pooled PC, cos"] < MISSED) & (table["halves, cos"] > again.threshold)
    report.add(
        **{
            f"{prefix}cos_chance": floor,
            f"{prefix}missed": int(missed.sum()),
            f"{prefix}missed_shared": int((missed & (table["kind"] == "shared")).sum()),
            f"{prefix}missed_percent": float(100 * missed.mean()),
        }
    )
    organs = {str(name): organ_of(str(name)) for name in model.contexts_}
    several = {name: organ for name, organ in organs.items() if list(organs.values()).count(organ) > 1}
    if several:
        _organs(report, prefix, model, organs)
    chosen = _shared_axis(table, missed)
    scores = (Z - Z.mean(axis=0)) @ model.projection_.T
    if chosen is not None:
        _one_axis(report, prefix, model, chosen, table, compared, Z, rows)
    genes = feature_scores(model, pca=pca)
    if sets is not None:
        _sets(report, prefix, genes, sets, min(50, permutations))
    poles = top_features(genes, 8).groupby(["component", "pole"], sort=False)["feature"].agg(", ".join).unstack("pole")
    report.table(f"{prefix}poles", poles.reset_index(), on_page=False)
    if chosen is not None:
        report.add(**{f"{prefix}axis_{pole}": str(poles.loc[chosen, pole]) for pole in ("positive", "negative")})
    report.figure(
        f"{prefix}loadings",
        plotting.plot_loadings(
            model, order="groups", normalize="component", annotations={"organ": several} if several else None
        ),
    )
    if "time" in rows.about and chosen is not None:
        _survival(report, prefix, model, chosen, Z, rows)
    if "time" in rows.about:
        survival_by_type(model, Z, rows, report, permutations, prefix)
    return model, scores, chosen


def _kinds_and_spread(model: MCPCA) -> tuple[dict[str, int], float]:
    labels = how_shared(model.loadings_).labels
    return {kind: int((labels == kind).sum()) for kind in KINDS}, spread(model)


def _halves_by_chance(Z: Array, y: Array, rank: int, n: int = 5) -> float:
    """Return how well halves of the rows agree when types are permuted over rows: mean |cos|."""
    rows = centred_by_context(Z, y)
    rng = np.random.default_rng(5)
    found = []
    for _ in range(n):
        labels = rng.permutation(y)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentifiabilityWarning)
            model = MCPCA(rank, random_state=0).fit(rows, labels)
            found.append(model.replicability(rows, labels, n_splits=1, random_state=0).agreement.mean())
    return float(np.mean(found))


def _paper_rules(report: Report, prefix: str, selection: Any) -> None:
    """Keep what the paper's three measures say of each rank, and draw the curves."""
    columns = {
        "projections, cos > 0.9": "projection similarity",
        "loadings, correlation > 0.99": "loading similarity",
        "consistency of contexts": "context consistency",
        "halves, mean cos": "split-half agreement",
        "seeds, mean cos": "seed stability",
    }
    table = pd.DataFrame({"rank": selection.ranks} | {name: selection.columns[key] for name, key in columns.items()})
    report.table(f"{prefix}ranks", table, on_page=False)
    report.figure(f"{prefix}ranks", selection.plot(), dpi=72)
    # One MCPC says nothing about how contexts relate.
    paper = table[[name for name in columns if "halves" not in name and "seeds" not in name]].mean(axis=1, skipna=False)
    report.add(
        **{
            f"{prefix}rank_by_paper": int(table["rank"][paper.fillna(0).idxmax()]),
            f"{prefix}ranks_most": int(table["rank"].max()),
            f"{prefix}seeds_least": float(table["seeds, mean cos"].min()),
        }
    )


def _axes_table(model: MCPCA, effective: Array, labels: Array, again: Any, best: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each MCPC: who carries it, whether it comes back, and the PCs that come closest."""
    overall = best[best["rows"] == "all rows"].set_index("component")
    within = best[best["rows"] != "all rows"].groupby("component", sort=False)["cosine"].max()
    rows = []
    for j, name in enumerate(overall.index):
        carriers = [str(model.contexts_[i]) for i in carrying_contexts(model.loadings_[:, j])]
        more = f" and {len(carriers) - 5} more" if len(carriers) > 5 else ""
        rows.append(
            {
                "MCPC": name,
                "kind": labels[j],
                "effective types": effective[j],
                "carried by": ", ".join(carriers[:5]) + more,
                "halves, cos": float(again.agreement[j]),
                "best pooled PC, cos": overall.loc[name, "cosine"],
                "its number": int(overall.loc[name, "cosine_pc"]),
                "top tumours shared": overall.loc[name, "overlap"],
                "best PC of a type, cos": within[name],
            }
        )
    return pd.DataFrame(rows)


def _random_cosines(p: int, m: int, n: int = 500) -> float:
    """Return the mean over random directions in p dimensions of the largest |cos| with m orthogonal axes."""
    directions = np.random.default_rng(0).standard_normal((n, p))
    return float(np.mean(np.abs(directions[:, :m]).max(axis=1) / np.linalg.norm(directions, axis=1)))


def _organs(report: Report, prefix: str, model: MCPCA, organs: dict[str, str]) -> None:
    """Test whether types of one organ have similar loadings, against organs permuted over types."""
    B = model.loadings_ / np.maximum(model.loadings_.max(axis=0), 1e-300)
    likeness = np.corrcoef(rankdata(B, axis=1))
    names = np.array([organs[str(name)] for name in model.contexts_])
    rng = np.random.default_rng(2)
    upper = np.triu_indices(len(names), 1)

    def difference(labels: Array) -> float:
        same = (labels[:, None] == labels)[upper]
        return float(likeness[upper][same].mean() - likeness[upper][~same].mean())

    null = np.array([difference(rng.permutation(names)) for _ in range(2000)])
    report.add(**Chance(difference(names), null).numbers(f"{prefix}organs"))


def _shared_axis(table: pd.DataFrame, missed: pd.Series) -> str | None:
    """Return the axis of few types that comes back and that pooled PCA sees least; None where there is none."""
    few = table[missed & (table["kind"] == "shared")]
    return None if few.empty else str(few.loc[few["best pooled PC, cos"].idxmin(), "MCPC"])


def _one_axis(
    report: Report, prefix: str, model: MCPCA, name: str, table: pd.DataFrame, compared: Any, Z: Array, rows: Rows
) -> None:
    own = table.set_index("MCPC").loc[name]
    best = compared.best[(compared.best["component"] == name) & (compared.best["rows"] == "all rows")].iloc[0]
    report.add(
        **{
            f"{prefix}axis": name,
            f"{prefix}axis_types": own["carried by"],
            f"{prefix}axis_halves": own["halves, cos"],
            f"{prefix}axis_cos": own["best pooled PC, cos"],
            f"{prefix}axis_pc": own["its number"],
            f"{prefix}axis_overlap": own["top tumours shared"],
            f"{prefix}axis_variance_correlation": best["variance_correlation"],
            f"{prefix}axis_type_cos": own["best PC of a type, cos"],
        }
    )
    report.figure(f"{prefix}axis", plotting.plot_scores(model, name, Z, rows.y, max_contexts=12))


def _sets(report: Report, prefix: str, genes: pd.DataFrame, sets: dict[str, list[str]], n: int) -> None:
    """Look for known sets at the poles, and for the same sets after features changed names."""
    found = enrichment(genes, sets, method="ranked")
    hits = found[found["q"] < 0.001]
    rng = np.random.default_rng(3)
    null = []
    for _ in range(n):
        renamed = genes.set_axis(rng.permutation(genes.index.to_numpy()), axis=0)
        null.append(int((enrichment(renamed, sets, method="ranked")["q"] < 0.001).sum()))
    report.add(**Chance(len(hits), np.array(null)).numbers(f"{prefix}sets"))
    report.add(
        **{
            f"{prefix}sets_axes": int(hits["component"].nunique()),
            f"{prefix}sets_found": int(hits["set"].nunique()),
            f"{prefix}sets_all": len(sets),
        }
    )
    columns = {
        "component": "MCPC",
        "pole": "pole",
        "set": "set",
        "size": "size",
        "auc": "AUC towards the pole",
        "q": "q",
    }
    hits = hits.assign(auc=np.where(hits["pole"] == "negative", 1 - hits["auc"], hits["auc"]))
    short = hits.sort_values("q").drop_duplicates("set")[list(columns)].rename(columns=columns)
    report.table(f"{prefix}sets", short)
    report.table(f"{prefix}sets_everywhere", found.drop(columns="features"), on_page=False)


def _two_measurements(
    report: Report, first: Rows, first_scores: Array, second: Rows, second_scores: Array, model: MCPCA, n: int
) -> None:
    """Compare the axes of genes with those of microRNAs in tumours that have both, within types."""
    at = {patient: i for i, patient in enumerate(first.about["patient"])}
    pairs = [(at[patient], i) for i, patient in enumerate(second.about["patient"]) if patient in at]
    if len(pairs) < 20:
        report.add(both=len(pairs))
        return
    i, j = np.array(pairs).T
    types = second.y[j]
    ranks = [_ranks_within(Z, types) for Z in (first_scores[i], second_scores[j])]
    observed = np.abs(ranks[1].T @ ranks[0])
    rng = np.random.default_rng(4)
    null = []
    for _ in range(max(n, 1)):
        order = np.arange(len(types))
        for name in np.unique(types):
            mine = np.flatnonzero(types == name)
            order[mine] = rng.permutation(mine)
        null.append(np.abs(ranks[1].T @ ranks[0][order]).max(axis=1))
    largest = np.max(null, axis=1)
    best = observed.max(axis=1)
    report.add(
        both=len(pairs),
        both_axes=model.n_components_,
        both_seen=int((best > np.quantile(largest, 0.95)).sum()),
        both_best=float(best.max()),
        both_median=float(np.median(best)),
        both_chance=float(np.mean(null)),
        both_chance_upper=float(np.quantile(largest, 0.95)),
        both_p=float((1 + (largest >= best.max()).sum()) / (1 + len(largest))),
    )


def _ranks_within(Z: Array, types: Array) -> Array:
    """Return ranks within types, centred, as columns of unit length: products are pooled Spearman correlations."""
    out = np.empty(Z.shape)
    for name in np.unique(types):
        mine = types == name
        ranked = rankdata(Z[mine], axis=0)
        out[mine] = (ranked - ranked.mean(axis=0)) / len(ranked)
    return np.asarray(out / np.linalg.norm(out, axis=0))


def _survival(report: Report, prefix: str, model: MCPCA, name: str, Z: Array, rows: Rows) -> None:
    """Relate scores on the shared axis to survival in each type that carries it, as the paper does for one."""
    j = int(name.split()[-1]) - 1
    carriers = [str(model.contexts_[i]) for i in carrying_contexts(model.loadings_[:, j])]
    found = []
    for cancer_type in carriers:
        try:
            one = survival(
                model, rows.about["time"], rows.about["event"], X=Z, y=rows.y, contexts=cancer_type, components=name
            )
        except ValueError as error:
            report.say(f"survival in {cancer_type}: {error}")
            continue
        found.append({"type": cancer_type} | one.table.iloc[0].to_dict())
    if found:
        report.table(f"{prefix}survival", pd.DataFrame(found))


def _claims(report: Report, model: MCPCA, axis: str | None) -> None:
    n = report.numbers
    report.claim(
        "The rank can be chosen by stability",
        "30 for 30 types",
        f"{n['rank']} of {n['above_noise']} directions above noise, halves agree by {n['agreement']:.2f}; the paper's "
        f"three measures are highest at {n['rank_by_paper']}",
        f"halves agree by {n['halves_chance']:.2f} when types are dealt anew",
        bool(n["rank_selected"] > 0 and n["agreement"] > n["halves_chance"]),
    )
    report.claim(
        "Axes are organ-specific, multi-cancer and pan-cancer",
        "all three kinds",
        f"{n['specific']} specific, {n['shared']} shared by some, {n['broad']} broad",
        f"{n['specific_chance']:.1f} specific, {n['shared_chance']:.1f} shared, {n['broad_chance']:.1f} broad",
        bool(min(n["specific"], n["shared"], n["broad"]) > 0 and n["specific_p"] < 0.05),
    )
    if "organs" in n:
        report.claim(
            "Types of one organ have like loadings",
            "liver, kidney and thymus have axes of their own",
            f"correlation of loadings higher by {n['organs']:.2f} within organs",
            f"mean {n['organs_chance']:.2f}, 95% up to {n['organs_chance_upper']:.2f}; p = {n['organs_p']:.2g}",
            bool(n["organs_p"] < 0.05),
        )
    here = "no such axis"
    if axis is not None:
        here = (
            f"{axis}, in {n['axis_types']}: comes back in halves by {n['axis_halves']:.2f}, closest pooled PC "
            f"{n['axis_cos']:.2f}"
        )
    report.claim(
        "An axis shared by few types is missed by pooled PCA",
        "MCPC 10, in thyroid and pancreas",
        here,
        f"closest pooled PC of a random direction {n['cos_chance']:.2f}",
        axis is not None,
    )
    if "sets" in n:
        report.claim(
            "Poles have a biological meaning",
            "gene sets with FDR < 0.001 at the poles",
            f"{n['sets']} sets at poles of {n['sets_axes']} MCPCs, q < 0.001",
            f"{n['sets_chance']:.1f} with names exchanged",
            bool(n["sets_p"] < 0.05),
        )
    if "both_axes" in n:
        report.claim(
            "Axes are of the tumours, not of the measurement",
            "not asked",
            f"{n['both_seen']} of {n['both_axes']} axes of genes go with one of microRNAs in the same tumours, best "
            f"correlation {n['both_best']:.2f}",
            f"tumours exchanged within types: 95% up to {n['both_chance_upper']:.2f}; p = {n['both_p']:.2g}",
            bool(n["both_p"] < 0.05),
        )
    found = "survival" in report._tables
    why_not = "no axis to look at" if n.get("timed") else "no times of survival in these files"
    report.claim(
        "The axis tells who survives longer",
        "in pancreatic cancer, p = 0.001",
        "see the table of survival" if found else why_not,
        "",
        "see the table" if found else "cannot be told here",
    )
