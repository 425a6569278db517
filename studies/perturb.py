"""Perturb-seq: recall of known links by mean PCs, with loadings, and with the spreads of PCs.

``python studies/run.py perturb --data DIR``, or with the paper's data ``--replogle FILE --links GMT ...``.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import false_discovery_control, rankdata

from mcpca import MCPCA, plotting
from mcpca.analysis import feature_scores, link_recall, links_of_sets
from mcpca.analysis.links import LOADINGS, MEANS, SDS, pairs_called, recalls_of_exchanged

from .chance import Array, Chance, permuted_fits, spread
from .known import K562_PATHWAYS, THP1_PATHWAYS
from .loaders import Rows, norman, papalexi, pooled_axes
from .output import Report
from .stored import StoredRows

CONTROLS = ("non-targeting", "control")
RANKS = (2, 3, 5, 7, 10)
NAMES = 5  # permutations of names for each of rows: they need no fit, and are cheap


def run(data: Path, report: Report, permutations: int = 200) -> None:
    """Study the data at hand: knock-outs in THP-1 cells, activations in K562 cells."""
    report.add(permutations=permutations)
    study_links(papalexi(data), THP1_PATHWAYS, report, "thp1", 40, RANKS, permutations)
    rows = norman(data)
    links: dict[str, Any] = {"a gene in common": shared_genes(sorted(set(rows.y)))}
    study_links(rows, links | K562_PATHWAYS, report, "k562", 30, RANKS, permutations)
    _claims(report, ("thp1", "k562"))


def run_replogle(path: Path, gmt: Sequence[Path], report: Report, permutations: int = 200) -> None:
    """Study the paper's data with gene sets from GMT files."""
    from .cells import replogle

    rows = replogle(path)
    links = {Path(one).name.split(".gmt")[0]: one for one in gmt}
    counts = pd.Series(rows.y).value_counts()
    report.add(
        permutations=permutations,
        source=rows.source,
        collections=", ".join(links),
        pooled=len(rows.parts[0].pooled),
        fewest=int(counts.min()),
        controls=int(counts.reindex(CONTROLS).sum()),
    )
    study_links(rows, links, report, "k562", 100, (5, 10, 20, 30, 40, 50), permutations, (5, 10, 20, None))
    _claims(report, ("k562",))


def shared_genes(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return pairs of perturbations ("A", "A+B") that have a gene in common."""
    return [(a, b) for a, b in itertools.combinations(names, 2) if set(a.split("+")) & set(b.split("+"))]


def study_links(
    rows: Rows | StoredRows,
    links: Mapping[str, Any],
    report: Report,
    prefix: str,
    n_axes: int,
    ranks: Sequence[int],
    permutations: int,
    sizes: Sequence[int | None] = (None,),
) -> None:
    """Measure the recall of known links, and that of the same links after perturbations exchanged their names.

    ``sizes`` are the largest sets of a collection that make links, each a collection of its own; None takes all.
    """
    rows = rows.take(~np.isin(rows.y, CONTROLS))
    Z, pca = pooled_axes(rows, n_axes)
    ranks = [r for r in ranks if r <= Z.shape[1]]
    models = [MCPCA(r, random_state=0).fit(Z, rows.y) for r in ranks]
    contexts = [str(name) for name in models[0].contexts_]
    known = _known(links, contexts, sizes)
    if not known:
        raise ValueError(f"No link is between two perturbations of {rows.source}, which are {contexts[:5]}.")
    rng = np.random.default_rng(1)
    # Perturbations exchange their names: links keep their shape, and best ranks are chosen as for the true links.
    at = {name: i for i, name in enumerate(contexts)}
    exchanges = [
        np.array([at[name] for name in rng.permutation(contexts).tolist()]) for _ in range(NAMES * permutations)
    ]
    tables = []
    gained = []
    for standardize, word in ((False, "as they are"), (True, "standardised")):
        options: dict[str, Any] = {
            "corrected": False,  # the paper's loadings
            "X": Z,
            "y": rows.y,
            "n_pcs": Z.shape[1],
            "standardize": standardize,
        }
        # Chance is found below, with the exchanges that gains need as well.
        recall = link_recall(models, known, max_sizes=None, permutations=0, **options)
        null = _recall_by_chance(pairs_called(models, **options), known, at, exchanges)
        tables.append(_table(recall, null))
        gained.append(_gains(recall, null).assign(**{"means and loadings": word}))
    table, scaled = (_with_q(one) for one in tables)
    report.table(f"{prefix}_recall", table)
    report.table(f"{prefix}_recall_scaled", scaled, on_page=False)
    # What is claimed of gains is corrected for all of them, as they are and standardised.
    both = _with_q(pd.concat(gained, ignore_index=True))
    both.insert(0, "means and loadings", both.pop("means and loadings"))
    report.table(f"{prefix}_gain", both)
    gains, gains_scaled = (both[both["means and loadings"] == word] for word in ("as they are", "standardised"))
    middle = models[len(models) // 2]
    chance = permuted_fits(Z, rows.y, ranks[len(ranks) // 2], permutations, spread, seed=2)
    report.add(
        **{
            f"{prefix}_cells": len(rows.y),
            f"{prefix}_perturbations": len(contexts),
            f"{prefix}_genes": len(rows.features),
            f"{prefix}_axes": Z.shape[1],
            f"{prefix}_pairs": len(contexts) * (len(contexts) - 1) // 2,
            f"{prefix}_ranks": ", ".join(map(str, ranks)),
            f"{prefix}_found": ", ".join(_found(table, LOADINGS)) or "none",
            f"{prefix}_found_by_means": ", ".join(_found(table, MEANS)) or "none",
            f"{prefix}_better": ", ".join(gains[gains["q"] < 0.05]["links"]) or "none",
            f"{prefix}_more": int((gains["gain"] > 0).sum()),
            f"{prefix}_less": int((gains["gain"] < 0).sum()),
            f"{prefix}_sets": len(gains),
            f"{prefix}_mean_gain": float(gains["gain"].mean()),
            f"{prefix}_scaled_found": ", ".join(_found(scaled, LOADINGS)) or "none",
            f"{prefix}_scaled_mean_gain": float(gains_scaled["gain"].mean()),
            f"{prefix}_scaled_better": ", ".join(gains_scaled[gains_scaled["q"] < 0.05]["links"]) or "none",
            f"{prefix}_exchanges": NAMES * permutations,
        },
        **Chance(spread(middle), np.array(chance)).numbers(f"{prefix}_spread"),
    )
    genes = feature_scores(middle, pca=pca)
    _pathway_axes(report, prefix, middle, genes, known, NAMES * permutations)
    report.figure(f"{prefix}_recall", _draw(scaled))
    report.figure(f"{prefix}_loadings", plotting.plot_loadings(middle, normalize="component", order="cluster"))


def _pathway_axes(
    report: Report,
    prefix: str,
    model: MCPCA,
    genes: pd.DataFrame,
    known: Mapping[str, list[tuple[str, str]]],
    n: int,
) -> None:
    """Ask whether one MCPC has larger (or smaller) loadings in the members of a pathway than in all others.

    The AUC is the chance that a member is above another perturbation, or below it where that is larger; the best MCPC
    is taken, and so it is when perturbations exchange their names.
    """
    contexts = [str(name) for name in model.contexts_]
    ranks = rankdata(model.loadings_, axis=0)
    rng = np.random.default_rng(6)
    rows = []
    for name, pairs in known.items():
        members = sorted({one for pair in pairs for one in pair})
        if not 2 <= len(members) <= len(contexts) - 2:
            continue
        inside = np.isin(contexts, members)
        aucs = _aucs(ranks, inside)
        chance = Chance(float(aucs.max()), np.array([_aucs(ranks, rng.permutation(inside)).max() for _ in range(n)]))
        j = int(aucs.argmax())
        top = [contexts[i] for i in np.argsort(-model.loadings_[:, j], kind="stable")[: len(members)]]
        rows.append(
            {
                "links": name,
                "members": len(members),
                "best MCPC": f"MCPC {j + 1}",
                "AUC": chance.observed,
                "by chance": chance.mean,
                "95% of chance": chance.upper,
                "p": chance.p,
                "largest loadings": ", ".join(top[:6]),
                "genes of the axis": ", ".join(genes.iloc[:, j].abs().nlargest(5).index),
            }
        )
    table = _with_q(pd.DataFrame(rows)) if rows else pd.DataFrame(columns=["links", "q"])
    report.table(f"{prefix}_axes", table)
    found = [str(name) for name in table[table["q"] < 0.05]["links"]]
    report.add(**{f"{prefix}_axes_rank": model.n_components_, f"{prefix}_axes_found": ", ".join(found) or "none"})


def _aucs(ranks: Array, inside: Array) -> Array:
    """Return for each column of ranks (k, r) the AUC of the members, in the direction in which it is larger."""
    m = int(inside.sum())
    k = len(inside)
    auc = (ranks[inside].sum(axis=0) - m * (m + 1) / 2) / (m * (k - m))
    return np.asarray(np.maximum(auc, 1 - auc))


def _known(
    links: Mapping[str, Any], contexts: list[str], sizes: Sequence[int | None]
) -> dict[str, list[tuple[str, str]]]:
    """Return the pairs of contexts that collections link, as names, by collection and largest size of its sets."""
    known: dict[str, list[tuple[str, str]]] = {}
    for name, sets in links.items():
        before: list[tuple[str, str]] = []
        for size in sizes:
            pairs = _pairs(sets, contexts, size)
            # A larger bound that adds no pair is the same collection again.
            if pairs and pairs != before:
                known[name if size is None else f"{name}, sets of {size} at most"] = before = pairs
    return known


def _pairs(sets: Any, contexts: list[str], size: int | None) -> list[tuple[str, str]]:
    """Return the pairs of contexts that a collection links, as names."""
    if isinstance(sets, list):
        return [pair for pair in sets if set(pair) <= set(contexts)]
    return [(contexts[i], contexts[j]) for i, j in sorted(links_of_sets(sets, contexts, size))]


def _recall_by_chance(
    called: Mapping[str, Sequence[tuple[int, Array]]],
    known: Mapping[str, list[tuple[str, str]]],
    at: Mapping[str, int],
    exchanges: Sequence[Array],
) -> dict[tuple[str, str], Array]:
    """Return the recall of each collection by each kind of features when names are exchanged, the best number taken."""
    # Which pairs are called stays: only the places of links change.
    ways = np.stack(exchanges)
    null = {}
    for name, pairs in known.items():
        i, j = np.array([(at[a], at[b]) for a, b in pairs]).T
        for features, own in called.items():
            calls = np.stack([inside for _, inside in own], axis=1)
            null[name, features] = recalls_of_exchanged(calls, i, j, ways).max(axis=1)
    return null


def _table(recall: pd.DataFrame, null: dict[Any, Array]) -> pd.DataFrame:
    rows = []
    for one in recall.itertuples():
        chance = Chance(one.recall, null[one.links, one.features])
        rows.append(
            {
                "links": one.links,
                "pairs": one.n_links,
                "features": one.features,
                "loadings or PCs added": one.number,
                "recall": one.recall,
                "by chance": chance.mean,
                "95% of chance": chance.upper,
                "p": chance.p,
            }
        )
    return pd.DataFrame(rows)


def _gains(recall: pd.DataFrame, null: dict[Any, Array]) -> pd.DataFrame:
    """Return what loadings add to the recall of mean PCs, beside what spreads of PCs add and chance would."""
    wide = recall.pivot(index="links", columns="features", values="recall")
    rows = []
    for name in dict.fromkeys(recall["links"]):
        gain = Chance(float(wide.loc[name, LOADINGS] - wide.loc[name, MEANS]), null[name, LOADINGS] - null[name, MEANS])
        rows.append(
            {
                "links": name,
                "gain": gain.observed,
                "gain by chance": gain.mean,
                "95% of chance": gain.upper,
                "p": gain.p,
                "gain of PC sds": float(wide.loc[name, SDS] - wide.loc[name, MEANS]),
            }
        )
    return pd.DataFrame(rows)


def _found(table: pd.DataFrame, features: str) -> list[str]:
    own = table[table["features"] == features]
    return [str(name) for name in own[own["q"] < 0.05]["links"]]


def _with_q(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with p-values and, after them, those corrected for its rows (Benjamini and Hochberg)."""
    out = table.copy()
    out.insert(out.columns.get_loc("p") + 1, "q", false_discovery_control(out["p"]))
    return out


def _draw(table: pd.DataFrame) -> Any:
    """Draw recall by links and features, with the upper end of chance as a mark on each bar."""
    columns = {"loadings or PCs added": "number", "95% of chance": "chance_upper"}
    return plotting.plot_link_recall(table.rename(columns=columns))


def _claims(report: Report, prefixes: Sequence[str]) -> None:
    n = report.numbers
    for prefix in prefixes:
        name = prefix.upper()
        report.claim(
            f"Perturbations of one pathway are found together ({name})",
            "recall of links in gene sets; no number in the text",
            f"with loadings, q < 0.05: {n[f'{prefix}_found']}; by mean PCs alone: {n[f'{prefix}_found_by_means']}",
            "names of perturbations exchanged; see the table",
            bool(n[f"{prefix}_found"] != "none"),
        )
        report.claim(
            f"Loadings add to mean PCs ({name})",
            "across gene sets, and more than spreads of PCs",
            f"recall rises in {n[f'{prefix}_more']} of {n[f'{prefix}_sets']} collections and falls in "
            f"{n[f'{prefix}_less']}, mean gain {n[f'{prefix}_mean_gain']:+.2f}; q < 0.05: {n[f'{prefix}_better']}",
            "see the table of gains",
            bool(n[f"{prefix}_better"] != "none"),
        )
        report.claim(
            f"One MCPC marks a pathway ({name})",
            "not asked",
            f"q < 0.05: {n[f'{prefix}_axes_found']}",
            "names exchanged; see the table of axes",
            bool(n[f"{prefix}_axes_found"] != "none"),
        )
        report.claim(
            f"Loadings add to mean PCs, both standardised ({name})",
            "not in its text; the authors' code standardises twice",
            f"found together: {n[f'{prefix}_scaled_found']}; mean gain {n[f'{prefix}_scaled_mean_gain']:+.2f}, "
            f"q < 0.05: {n[f'{prefix}_scaled_better']}",
            "see the table of gains",
            bool(n[f"{prefix}_scaled_better"] != "none"),
        )
