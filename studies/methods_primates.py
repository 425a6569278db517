"""The paper's Methods for species, sentence by sentence, in the text's version or as the authors ran it.

``python studies/run.py primates --species FILE FILE ... [--genes FILE] --as-authors`` (or ``--as-text``).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import linkage
from sklearn.exceptions import ConvergenceWarning

from mcpca import MCPCA, IdentifiabilityWarning
from mcpca.analysis import tree_distances
from mcpca.analysis.newick import clades_of_newick, restricted

from .chance import Array
from .loaders import Rows, pooled_axes
from .organs import POOLED, trees
from .output import Report
from .stored import StoredRows

AXES = 500
RANKS = range(2, 27)
MOST_BY_PART = 5  # MCPCs within an organ or region, which has few rows
LABELS = {"loadings": "loadings", "means": "means of PCs", "covariances": "covariances", "variances": "variances"}
# Clustering: the text says "hierarchical"; the first is the package's default.
CLUSTERING = {"text": ("average", "correlation"), "authors": ("complete", "euclidean")}
PAPER = {"loadings": "every rank above 8", "means": "never", "covariances": "33 PCs or more", "variances": "never"}


def methods(
    rows: Rows | StoredRows, known: str, report: Report, *, as_authors: bool, ranks: Sequence[int] = tuple(RANKS)
) -> None:
    """Report a line for each sentence of "Phylogenetic analysis", and the table of distances by rank.

    ``rows`` are of ``cells.species_tables`` (as the authors ran it), ``cells.species_cells``, or the data at hand.
    """
    version = "authors" if as_authors else "text"
    method, metric = CLUSTERING[version]
    Z, pca = pooled_axes(rows, AXES)
    ranks = [r for r in ranks if r <= Z.shape[1]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        models = [MCPCA(r, random_state=0).fit(Z, rows.y) for r in ranks]
    counts = pd.Series(rows.y).value_counts()
    report.add(version=version, source=rows.source, species=len(counts), genes=len(rows.features), known=known)
    report.method(
        "Each species' matrix reduced to 500 PCs, 500 x 500 covariances stacked",
        "PCs of all species together",
        f"{Z.shape[1]} PCs, {pca.explained_variance_ratio_.sum():.0%} of the variance; {len(rows.features)} genes (the "
        f"authors' notebook: 13,991); {', '.join(f'{name} {n}' for name, n in counts.items())}",
    )
    table = tree_distances(
        models, known, corrected=False, X=Z, y=rows.y, n_pcs=list(ranks), method=method, metric=metric
    )
    wide = table.pivot(index="features", columns="number", values="distance").loc[list(LABELS)]
    report.table("distances", wide.reset_index().rename(columns={r: f"{r}" for r in ranks}))
    right = {name: [int(r) for r in wide.columns[wide.loc[name] == 0]] for name in LABELS}
    report.method(
        "The MCPC matrix gives a dendrogram by hierarchical clustering",
        f"loadings, {method} linkage, {metric} distance; distance of Robinson and Foulds, 0 is the known tree",
        f"right at {len(right['loadings'])} of {len(ranks)} ranks{_first(right['loadings'])} (the paper: "
        f"{PAPER['loadings']})",
    )
    for name in ("means", "covariances", "variances"):
        report.method(
            f"{LABELS[name][0].upper()}{LABELS[name][1:]} as features (Fig. S4D-I)",
            "the same clustering",
            f"right at {len(right[name])} of {len(ranks)} numbers of PCs{_first(right[name])} (the paper: "
            f"{PAPER[name]})",
        )
    report.add(**{f"right_{name}": len(own) for name, own in right.items()}, ranks=len(ranks))
    order = caterpillar(known, [str(name) for name in models[0].contexts_])
    if order is not None and as_authors:
        merges = [merges_that_differ(_loadings_in(model, order)) for model in models]
        report.add(merges=merges)
        report.method(
            "Topological disagreement by rank (Fig. S4C)",
            "the authors' count: steps of the clustering whose two numbers of clusters are not those of the known tree",
            f"{sum(one == 0 for one in merges)} of {len(merges)} ranks have none; {merges}",
        )
    _by_part(Z, rows, known, report, (method, metric), ranks)


def _by_part(
    Z: Array, rows: Rows | StoredRows, known: str, report: Report, clustering: tuple[str, str], ranks: Sequence[int]
) -> None:
    """Report how often trees are right within each organ or region, where rows are of several."""
    column = next((name for name in ("organ", "region") if name in rows.about), None)
    if column is None:
        return
    by = rows.about[column].to_numpy(dtype=str)
    table = pd.concat([trees(Z, rows.y, by, known, r, clustering).table for r in ranks if r <= MOST_BY_PART])
    table = table[table["group"] != POOLED]
    if not len(table):
        report.method(f"The same within each {column} (not in the paper)", "", "not run: too few rows in each")
        return
    found = table.groupby("features", sort=False)["distance"].agg(lambda own: f"{int((own == 0).sum())} of {len(own)}")
    report.add(**{f"{column}_{name}": text for name, text in found.items()})
    report.method(
        f"The same within each {column} (not in the paper)",
        f"{table['group'].nunique()} of them, with {table['contexts'].min()} to {table['contexts'].max()} species; "
        f"ranks 2 to {MOST_BY_PART}",
        "right, of all and ranks: " + ", ".join(f"{LABELS[str(name)]} {text}" for name, text in found.items()),
    )


def _first(right: Sequence[int]) -> str:
    return f", first at {right[0]}" if right else ""


def _loadings_in(model: MCPCA, order: Sequence[str]) -> Array:
    names = [str(name) for name in model.contexts_]
    return np.asarray(model.loadings_)[[names.index(name) for name in order]]


def caterpillar(known: str, species: Sequence[str]) -> list[str] | None:
    """Return species in the order in which a known tree adds them one by one; None for a tree of another shape."""
    clades = sorted(restricted(clades_of_newick(known)[0], list(species)), key=len)
    sets = [frozenset(clade) for clade in clades if 1 < len(clade) < len(species)]
    if [len(one) for one in sets] != list(range(2, len(species))):
        return None
    order = sorted(sets[0]) if sets else []
    for clade in [*sets[1:], frozenset(species)]:
        added = clade - set(order)
        if len(added) != 1:
            return None
        order.extend(added)
    return order


def merges_that_differ(features: Array) -> int:
    """Return how many of the k - 1 merges differ from adding the rows, in their order, one by one.

    The authors' "topological disagreement": complete linkage, Euclidean distance; a merge is the numbers of its two
    clusters, as SciPy numbers them, whatever is in them, so that one wrong merge may leave later ones right.
    """
    k = len(features)
    found = linkage(features, "complete", "euclidean")[:, :2].astype(int).tolist()
    expected = [[0, 1], *([i, k + i - 2] for i in range(2, k))]
    return sum(one != other for one, other in zip(found, expected, strict=True))
