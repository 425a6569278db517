"""The paper's benchmark of Perturb-seq, sentence by sentence, in the text's version or as the authors ran it.

``python studies/run.py perturb --replogle FILE --links FILE ... --as-authors`` (or ``--as-text``); links are GMT files,
CORUM's complexes, SIGNOR's relations or Reactome's table of genes, as published.

The two versions differ in much: the text puts means and loadings side by side as they are; the code standardises every
column, puts them side by side, and standardises again, takes loadings before they are made non-negative, means of all
400 PCs beside loadings from 100, variances of PCs under the name of standard deviations, and counts a perturbation and
itself as a pair, both among the pairs called and among the links.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist

from mcpca import MCPCA
from mcpca.analysis.gene_sets import read_gmt

from .chance import Array, Chance
from .formats import need_columns, read_table
from .loaders import Rows, pooled_axes
from .output import Report
from .stored import StoredRows

AXES = {"text": 100, "authors": 400}
FITTED_AXES = 100
RANKS = (5, 10, 20, 30, 40, 50)
SIZES = (5, 10, 20)
TAIL = 5  # per cent of pairs at each end
STEADY = 1e-4  # what the authors add to a standard deviation before they divide by it
MEANS, LOADINGS, SPREADS = "mean PCs", "with loadings", "with PC spreads"
CONTROLS = ("non-targeting", "control")
Links = set[tuple[str, str]]


def methods(
    rows: Rows | StoredRows,
    links: Mapping[str, Any],
    report: Report,
    *,
    as_authors: bool,
    exchanges: int = 200,
    ranks: Sequence[int] = RANKS,
    at_hand: str | None = None,
) -> None:
    """Report the benchmark, and recall when perturbations exchange their names.

    ``rows`` are of ``cells.replogle`` with the same ``as_authors``, or of the data at hand; ``links`` are files of
    links by name, or sets and pairs as ``study_links`` takes them. ``at_hand`` says what rows are that are not the
    paper's.
    """
    version = "authors" if as_authors else "text"
    if not as_authors:
        rows = rows.take(~np.isin(rows.y, CONTROLS))
    Z, _ = pooled_axes(rows, AXES[version])
    names = [str(name) for name in np.unique(rows.y)]
    y = np.asarray(rows.y, dtype=str)
    small = Z[:, : min(FITTED_AXES, Z.shape[1])]
    ranks = [r for r in ranks if r <= small.shape[1]] or [small.shape[1]]
    models = {r: MCPCA(r, random_state=0).fit(small, y) for r in ranks}
    report.add(version=version, source=rows.source, perturbations=len(names), axes=Z.shape[1])
    report.method(
        "Cells with at least 2000 UMIs, scale factor 1000, PCA with 100 components, perturbations with at least 300 "
        "cells; MCPCA at ranks 5, 10, 20, 30, 40 and 50",
        f"{at_hand or ('more than 2000 UMIs and 300 cells' if as_authors else '2000 UMIs and 300 cells or more')}; "
        f"{'controls are a context too' if as_authors else 'controls left out'}; "
        f"{Z.shape[1]} PCs for means, {small.shape[1]} for MCPCA; ranks {', '.join(map(str, ranks))}",
        f"{len(y)} cells of {len(names)} perturbations (the paper: 1,872)",
    )
    frame = pd.DataFrame(Z).groupby(y)
    means, sds = frame.mean().loc[names], frame.std(ddof=0).loc[names]
    known = {key: value for key, value in known_links(links, names, self_pairs=as_authors).items() if value}
    if not known:
        raise ValueError(f"No link is between two perturbations of {rows.source}, which are {names[:5]}.")
    selves = {name: sum(i == j for i, j in own) for name, own in known.items()}
    report.method(
        "Gene-gene links where genes co-occur in sets of at most 5, 10 and 20; all sets of REACTOME, CORUM and SIGNOR",
        "sizes are counted among perturbations" + ("; a gene linked to itself stays" if as_authors else ""),
        f"{len(known)} collections, {min(map(len, known.values()))} to {max(map(len, known.values()))} links"
        + (f"; {sum(selves.values())} are of a gene to itself" if as_authors else ""),
    )
    features = _features(models, small, y, means, sds, version)
    table = recall_table(features, known, names, as_authors=as_authors, exchanges=exchanges)
    table.insert(2, "to itself", [selves[name] for name in table["links"]])
    report.table("recall", table)
    wide = table.pivot(index="links", columns="features", values="recall")
    gain = wide[LOADINGS] - wide[MEANS]
    beyond = wide[LOADINGS] - wide[SPREADS]
    report.add(
        gain=float(gain.mean()), gained=int((gain > 0).sum()), collections=len(gain), beyond=int((beyond > 0).sum())
    )
    report.method(
        "Lowest and highest 5% of similarity called; recall with mean PCs, with loadings, with standard deviations or "
        "variance of PCs; the best rank of each",
        "every column standardised, side by side, and again; loadings before non-negative least squares; variances of "
        f"PCs; pairs of a perturbation with itself among those called, {2 / (len(names) + 1):.1%} of all pairs and the "
        "nearest of them"
        if as_authors
        else "cosine similarity of means and loadings as they are; standard deviations of PCs",
        f"loadings raise recall in {int((gain > 0).sum())} of {len(gain)} collections, mean gain {gain.mean():+.3f}; "
        f"more than spreads do in {int((beyond > 0).sum())}",
    )


def known_links(links: Mapping[str, Any], names: Sequence[str], *, self_pairs: bool) -> dict[str, Links]:
    """Return the links of each collection between these perturbations, by size of its sets where it has sets."""
    known: dict[str, Links] = {}
    there = set(names)
    for name, given in links.items():
        read = read_links(given) if isinstance(given, (str, Path)) else given
        if isinstance(read, Mapping):
            members = [[one for one in dict.fromkeys(own) if one in there] for own in read.values()]
            before: Links = set()
            for size in (*SIZES, None):
                small = [own for own in members if size is None or len(own) <= size]
                pairs = {tuple(sorted(pair)) for own in small for pair in itertools.combinations(own, 2)}
                if pairs != before:  # a larger bound that adds no pair is the same collection again
                    known[name if size is None else f"{name}, sets of {size} at most"] = before = pairs
        else:
            pairs = {tuple(sorted(map(str, pair))) for pair in read if set(map(str, pair)) <= there}
            known[name] = pairs if self_pairs else {pair for pair in pairs if pair[0] != pair[1]}
    return known


def read_links(path: str | Path) -> dict[str, list[str]] | list[tuple[str, str]]:
    """Read a file of links: a GMT file as sets; CORUM, SIGNOR and Reactome, told by their columns, as pairs.

    CORUM's table of complexes has "subunits_gene_name" (or "subunits(Gene name)"), members between semicolons; SIGNOR's
    has ENTITYA and ENTITYB; Reactome's NCBI2Reactome_PE_Pathway has no header, the gene as the first word of its third
    column and the pathway in its fourth. In these a gene can be linked to itself: a subunit that comes twice, a protein
    that acts on itself, a gene with several products in a pathway.
    """
    path = Path(path)
    if path.name.split(".gz")[0].endswith(".gmt"):
        return read_gmt(path)
    head = read_table(path, "--links", nrows=1)
    subunits = next(
        (c for c in head.columns if str(c).lower().replace(" ", "_").startswith("subunits") and "ene" in c), None
    )
    if subunits is not None:
        groups = read_table(path, "--links", usecols=[subunits])[subunits].dropna().str.split(";")
        return [pair for own in groups for pair in itertools.combinations([one.strip() for one in own], 2)]
    if "ENTITYA" in head.columns:
        need_columns(head, ["ENTITYA", "ENTITYB"], path)
        table = read_table(path, "--links", usecols=["ENTITYA", "ENTITYB"]).dropna().astype(str)
        return list(zip(table["ENTITYA"], table["ENTITYB"], strict=True))
    if head.shape[1] >= 4:
        table = read_table(path, "--links", header=None, usecols=[2, 3], dtype=str).dropna()
        genes = table[2].str.split(" ").str[0]
        return [pair for _, own in genes.groupby(table[3]) for pair in itertools.combinations(own, 2)]
    return read_gmt(path)  # Enrichr's files have no ending


def _features(
    models: Mapping[int, MCPCA], Z: Array, y: Array, means: pd.DataFrame, sds: pd.DataFrame, version: str
) -> dict[str, dict[int, Array]]:
    """Return {features: {number: array (k, m)}} of one version."""
    if version == "text":
        M = means.to_numpy()
        return {
            MEANS: {0: M},
            LOADINGS: {r: np.hstack([M, np.asarray(m.loadings_)]) for r, m in models.items()},
            SPREADS: {r: np.hstack([M, sds.iloc[:, :r].to_numpy()]) for r in models},
        }
    M = standardised(means.to_numpy())
    return {
        MEANS: {0: means.to_numpy()},
        LOADINGS: {r: np.hstack([standardised(signed_loadings(m, Z, y)), M]) for r, m in models.items()},
        SPREADS: {r: np.hstack([standardised(sds.iloc[:, :r].to_numpy() ** 2), M]) for r in models},
    }


def signed_loadings(model: MCPCA, Z: Array, y: Array) -> Array:
    """Return least-squares loadings (k, r) without the constraint that they are not negative.

    b_i = G^-1 h_i with G = (A^T A)^2 by entries and h_ij = a_j^T S_i a_j. The authors take what the power method
    leaves, which is this where the model is exact, and elsewhere depends on the order in which components were found:
    with their components, at ranks 5 and 10 of the two screens at hand, the two correlate by 0.93 to 1 over contexts.
    """
    A = np.asarray(model.components_)
    scores = pd.DataFrame(Z @ A).groupby(np.asarray(y, dtype=str))
    h = scores.var(ddof=1).loc[[str(name) for name in model.contexts_]].to_numpy()
    return np.asarray(np.linalg.solve((A.T @ A) ** 2, h.T).T)


def standardised(F: Array) -> Array:
    """Return columns less their mean over their standard deviation, to which the authors add 1e-4."""
    return np.asarray((F - F.mean(axis=0)) / (STEADY + F.std(axis=0)))


def called_pairs(F: Array, *, as_authors: bool) -> Array:
    """Return which pairs (k, k) are in the tails of the cosine distance, the upper triangle.

    ``as_authors`` standardises the columns first, and counts the diagonal, of distance 0, among the pairs: as many
    fewer true pairs are among the nearest 5%.
    """
    Y = standardised(F) if as_authors else F
    distance = cdist(Y, Y, "cosine")
    upper = np.triu_indices(len(Y), 0 if as_authors else 1)
    low, high = np.percentile(distance[upper], [TAIL, 100 - TAIL])
    inside = (distance < low) | (distance > high)
    if not as_authors:
        inside = (distance <= low) | (distance >= high)
    called = np.zeros_like(inside)
    called[upper] = inside[upper]
    return np.asarray(called | called.T)


def recall_table(
    features: Mapping[str, Mapping[int, Array]],
    known: Mapping[str, Links],
    names: Sequence[str],
    *,
    as_authors: bool,
    exchanges: int,
) -> pd.DataFrame:
    """Return the best recall of each collection by each kind of features, beside that of names exchanged at random."""
    at = {name: i for i, name in enumerate(names)}
    rng = np.random.default_rng(1)
    ways = np.stack([rng.permutation(len(names)) for _ in range(max(exchanges, 1))])
    calls = {
        kind: {number: called_pairs(F, as_authors=as_authors) for number, F in own.items()}
        for kind, own in features.items()
    }
    rows = []
    for name, links in known.items():
        i, j = np.array([(at[a], at[b]) for a, b in sorted(links)]).T
        for kind, own in calls.items():
            found = {number: float(called[i, j].mean()) for number, called in own.items()}
            best = max(found, key=lambda number: found[number])
            null = np.max([[called[way[i], way[j]].mean() for way in ways] for called in own.values()], axis=0)
            chance = Chance(found[best], null)
            rows.append(
                {
                    "links": name,
                    "pairs": len(links),
                    "features": kind,
                    "number": best,
                    "recall": found[best],
                    "by chance": chance.mean,
                    "95% of chance": chance.upper,
                    "p": chance.p,
                }
            )
    return pd.DataFrame(rows)
