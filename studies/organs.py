"""Species by organ: trees of species within each organ and pooled, from loadings and from PCs, beside the known one.

``python studies/run.py organs --data DIR`` reads the one table in DIR/species_organs, ``--organs FILE`` any other.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning

from mcpca import MCPCA, IdentifiabilityWarning, plotting
from mcpca.analysis import GroupTrees, trees_by_group
from mcpca.analysis.newick import clades_of_newick

from .chance import Array, Chance
from .formats import species_by_organ
from .known import AMNIOTES, names_exchanged
from .loaders import Rows, optional_file, pooled_axes
from .output import Report

FOLDER = "species_organs"
AXES = 200
RANKS = (2, 3, 4, 5, 6, 8)
POOLED = "pooled"
RESAMPLES = 200
CLUSTERINGS = (("average", "correlation"), ("complete", "euclidean"))
LABELS = {
    "loadings": "loadings of MCPCs",
    "means": "means of PCs",
    "covariances": "covariances of PCs",
    "variances": "variances of PCs",
}


def run(data: Path, report: Report, permutations: int = 200, tree: str | None = None) -> None:
    """Study the table in the folder of data."""
    path = optional_file(data, FOLDER)
    if path is None:
        raise FileNotFoundError(
            f"{Path(data) / FOLDER} is missing: put a table of species by organ there, genes x samples, or name it by "
            "--organs FILE. docs/studies says what it holds."
        )
    run_table(path, report, permutations, tree)


def run_table(path: Path, report: Report, permutations: int = 200, tree: str | None = None) -> None:
    """Study a table of species by organ, genes x samples."""
    rows = species_by_organ(path)
    known = tree or AMNIOTES
    leaves = clades_of_newick(known)[1]
    lost = sorted(set(map(str, rows.y)) - set(leaves))
    if lost:
        raise ValueError(
            f"The known tree lacks {', '.join(lost)}; its leaves are {', '.join(leaves)}. Pass --tree NEWICK with the "
            "names of the table."
        )
    counts = pd.Series(rows.y).value_counts()
    report.add(
        source=rows.source,
        known=known,
        permutations=permutations,
        rows=len(rows.y),
        genes=len(rows.features),
        species=len(counts),
        per_species=", ".join(f"{name} {n}" for name, n in counts.items()),
    )
    study_groups(rows, "organ", known, report, RANKS, permutations)
    _claims(report)


def study_groups(
    rows: Rows, column: str, known: str, report: Report, ranks: Sequence[int], permutations: int, prefix: str = ""
) -> None:
    """Compare trees within groups of rows, and pooled, with the known tree: by rank, with chance, with support.

    Names in the report begin with ``prefix``. Chance: species are dealt anew to the rows of each group, and the trees
    made again at the rank in the middle.
    """
    Z, _ = pooled_axes(rows, AXES)
    by = rows.about[column].to_numpy(dtype=str)
    ranks = [r for r in ranks if r <= Z.shape[1]]
    found = {(clustering, r): trees(Z, rows.y, by, known, r, clustering) for clustering in CLUSTERINGS for r in ranks}
    shown = ranks[len(ranks) // 2]
    main = trees(Z, rows.y, by, known, shown, CLUSTERINGS[0], resamples=RESAMPLES)
    chance = dealt(Z, rows.y, by, known, shown, permutations)
    table = pd.concat([_by_rank(found, clustering, ranks, known) for clustering in CLUSTERINGS], ignore_index=True)
    report.table(f"{prefix}by_group", table, on_page=False)
    report.table(f"{prefix}right", _right(table))
    at_rank = _at_rank(main, chance)
    report.table(f"{prefix}at_rank", at_rank, on_page=False)
    report.table(f"{prefix}near", _near(at_rank))
    assert main.clades is not None
    of_loadings = main.clades[(main.clades["features"] == "loadings") & main.clades["in known"].astype(bool)]
    wide = of_loadings.pivot(index="clade", columns="group", values="support")
    order = [name for name in dict.fromkeys(main.table["group"]) if name in wide]
    # Clades of fewer species, of groups that lack some, are others: those of all rows, in their order, come first.
    first = [name for name in of_loadings["clade"] if name in set(wide.index)]
    report.table(f"{prefix}support", wide.loc[list(dict.fromkeys(first)), order].reset_index())
    report.add(
        **{
            f"{prefix}groups": int((main.table["features"] == "loadings").sum()) - 1,
            f"{prefix}shown_rank": shown,
            f"{prefix}tried": ", ".join(map(str, ranks)),
            f"{prefix}resamples": RESAMPLES,
            f"{prefix}left_out": "; ".join(f"{name}: {why}" for name, why in main.left_out.items()) or "none",
        }
    )
    for name in LABELS:
        own = table[(table["features"] == LABELS[name]) & (table["linkage"] == CLUSTERINGS[0][0])]
        pooled = own["rows"] == POOLED
        report.add(
            **{
                f"{prefix}pooled_{name}": int(own["right"][pooled].sum()),
                f"{prefix}groups_{name}": int(own["right"][~pooled].sum()),
                f"{prefix}groups_of_{name}": int(own["ranks"][~pooled].sum()),
                f"{prefix}ranks_of_{name}": int(own["ranks"][pooled].sum()),
            }
        )
    report.figure(f"{prefix}by_group", plotting.plot_group_trees(main, value="normalized"))
    report.figure(f"{prefix}support_by_group", plotting.plot_group_trees(main, value="support"))


def trees(
    Z: Array, y: Array, by: Array, known: str, rank: int, clustering: tuple[str, str], resamples: int = 0
) -> GroupTrees:
    """Return the trees of each group and of all rows at one rank; loadings as fitted are the paper's."""
    method, metric = clustering
    with warnings.catch_warnings():
        # With few rows several MCPCs have like loadings, and need not settle; trees need the loadings alone.
        warnings.simplefilter("ignore", IdentifiabilityWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)
        return trees_by_group(
            MCPCA(rank, random_state=0),
            known,
            by,
            X=Z,
            y=y,
            corrected=False,
            method=method,
            metric=metric,
            pooled=POOLED,
            resamples=resamples,
            random_state=0,
        )


def dealt(Z: Array, y: Array, by: Array, known: str, rank: int, n: int) -> dict[tuple[str, str], list[float]]:
    """Return normalized distances, by group and features, for species dealt anew to the rows of each group.

    Rows are centred by species and group first: means of species do not become covariance.
    """
    labels = np.array([f"{one}|{group}" for one, group in zip(y, by, strict=True)])
    centred = Z - pd.DataFrame(Z).groupby(labels).transform("mean").to_numpy()
    rng = np.random.default_rng(5)
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(n):
        again = np.array(y, copy=True)
        for group in np.unique(by):
            own = np.flatnonzero(by == group)
            again[own] = again[rng.permutation(own)]
        for row in trees(centred, again, by, known, rank, CLUSTERINGS[0]).table.itertuples():
            found.setdefault((str(row.group), str(row.features)), []).append(float(row.normalized))
    return found


def _by_rank(
    found: dict[tuple[tuple[str, str], int], GroupTrees], clustering: tuple[str, str], ranks: Sequence[int], known: str
) -> pd.DataFrame:
    """Return, for each group and kind of features, at how many ranks the tree is right, and the mean distance."""
    table = pd.concat([found[clustering, r].table for r in ranks], ignore_index=True)
    out = []
    for (group, name), own in table.groupby(["group", "features"], sort=False):
        out.append(
            {
                "linkage": clustering[0],
                "distance": clustering[1],
                "rows": group,
                "features": LABELS[str(name)],
                "species": int(own["contexts"].max()),
                "right": int((own["distance"] == 0).sum()),
                "ranks": len(own),
                "mean normalized distance": float(own["normalized"].mean()),
                "of trees of this shape, by chance": names_right(known, str(own["newick"].iloc[0])),
            }
        )
    return pd.DataFrame(out)


def names_right(known: str, newick: str) -> float:
    """Return the share of all exchanges of the names in a tree with which one of the known shape would be right."""
    return names_exchanged(known, clades_of_newick(newick)[1])


def _at_rank(main: GroupTrees, chance: dict[tuple[str, str], list[float]]) -> pd.DataFrame:
    """Return distance, chance and support of each group and kind of features at the rank shown."""
    out = []
    for row in main.table.itertuples():
        null = np.asarray(chance.get((str(row.group), str(row.features)), []))
        # Near is small: the share of deals that come as near, or nearer.
        p = Chance(-float(row.normalized), -null).p if len(null) else None
        out.append(
            {
                "rows": row.group,
                "features": LABELS[str(row.features)],
                "species": row.contexts,
                "samples": row.rows,
                "distance": row.distance,
                "normalized": row.normalized,
                "by chance": float(null.mean()) if len(null) else None,
                "p": p,
                "support of known clades": row.support,
                "resamples with the known tree": row.right,
            }
        )
    return pd.DataFrame(out)


def _right(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each clustering and set of rows, with how often each kind of features is right."""
    keys = ["linkage", "distance", "rows", "species", "of trees of this shape, by chance"]
    words = [f"{right} of {ranks}" for right, ranks in zip(table["right"], table["ranks"], strict=True)]
    order = {name: i for i, name in enumerate(dict.fromkeys(table["rows"]))}
    wide = table.assign(words=words).pivot(index=keys, columns="features", values="words")[list(LABELS.values())]
    wide = wide.reset_index().sort_values(
        ["linkage", "rows"], key=lambda own: own.map(order) if own.name == "rows" else own
    )
    return wide.rename(columns={"of trees of this shape, by chance": "by chance"})


def _near(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each set of rows: the distance by each kind of features, with chance, p and support."""
    words = [
        f"{d:.2f} (chance {'-' if c is None else f'{c:.2f}'}, p = {'-' if p is None else f'{p:.2g}'}; support {s:.0%})"
        for d, c, p, s in zip(
            table["normalized"], table["by chance"], table["p"], table["support of known clades"], strict=True
        )
    ]
    wide = table.assign(words=words).pivot(index=["rows", "species", "samples"], columns="features", values="words")
    order = {name: i for i, name in enumerate(dict.fromkeys(table["rows"]))}
    return wide[list(LABELS.values())].reset_index().sort_values("rows", key=lambda own: own.map(order))


def _claims(report: Report) -> None:
    n: dict[str, Any] = report.numbers
    table = report._tables["at_rank"].set_index(["rows", "features"])
    for name, paper in (
        ("loadings", "at every rank above 8, of five species"),
        ("means", "never"),
        ("covariances", "with 33 PCs or more"),
        ("variances", "never"),
    ):
        own = table.loc[(POOLED, LABELS[name])]
        by_organ = table.xs(LABELS[name], level="features").drop(POOLED)
        near = int((by_organ["p"].astype(float) < 0.05).sum())
        report.claim(
            f"{LABELS[name][0].upper()}{LABELS[name][1:]} give the known tree",
            paper,
            f"pooled at {n[f'pooled_{name}']} of {n[f'ranks_of_{name}']} ranks; by organ at {n[f'groups_{name}']} of "
            f"{n[f'groups_of_{name}']} organs and ranks",
            f"rank {n['shown_rank']}: pooled distance {own['normalized']:.2f}, species dealt anew "
            f"{own['by chance']:.2f} (p = {own['p']:.2g}); nearer than chance in {near} of {len(by_organ)} organs",
            bool(n[f"pooled_{name}"] == n[f"ranks_of_{name}"]),
        )
