"""Primates: trees of species from loadings, and from means, covariances and variances of PCs, beside the known one.

``python studies/run.py primates --data DIR``, or with cells ``--species FILE FILE ... [--tree NEWICK]``.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning

from mcpca import MCPCA, IdentifiabilityWarning, plotting
from mcpca.analysis import context_tree, tree_distances

from .chance import Array, Chance, centred_by_context, permuted_fits, spread
from .known import PRIMATES, names_exchanged
from .loaders import Rows, pooled_axes, primates
from .organs import study_groups
from .output import Report
from .stored import StoredRows

AXES = 20
# The paper's text does not say how it clusters; the authors' code has the second, the first is the package's default.
CLUSTERINGS = (
    *(("average", "correlation"), ("complete", "euclidean"), ("complete", "correlation")),
    *(("average", "euclidean"), ("ward", "euclidean")),
)
RANKS = (2, 3, 4, 5, 6, 7, 8)
REGION_RANKS = (2, 3, 4, 5)  # in a region there are few rows
RESAMPLES = 200
LABELS = {
    "loadings": "loadings of MCPCs",
    "means": "means of PCs",
    "covariances": "covariances of PCs",
    "variances": "variances of PCs",
}


def run(data: Path, report: Report, permutations: int = 200) -> None:
    """Study the data at hand: bulk expression in regions of the brain."""
    rows = primates(data)
    individuals = rows.about.groupby("species")["individual"].nunique()
    regions = rows.about["region"].nunique()
    report.add(individuals=", ".join(f"{name} {count}" for name, count in individuals.items()), regions=regions)
    study_tree(rows, PRIMATES, report, AXES, RANKS, permutations)
    study_groups(rows, "region", PRIMATES, report, REGION_RANKS, permutations, prefix="region_")
    _balanced(rows, report, permutations)
    _claims(report)


def run_species(paths: Sequence[Path], tree: str | None, report: Report, permutations: int = 200) -> None:
    """Study single cells of species, as in the paper."""
    from .cells import species_cells

    rows = species_cells(paths)
    known = tree or PRIMATES
    report.add(source=rows.source, known=known)
    # Beyond 33, from where on the paper finds the tree by covariances.
    study_tree(rows, known, report, 500, (*range(2, 16), 20, 33, 40), permutations)
    _claims(report)


def study_tree(
    rows: Rows | StoredRows, known: str, report: Report, n_axes: int, ranks: Sequence[int], permutations: int
) -> None:
    """Compare trees with the known one at several ranks, and when names of species or rows are permuted."""
    Z, _ = pooled_axes(rows, n_axes)
    ranks = [r for r in ranks if r <= Z.shape[1]]
    with warnings.catch_warnings():
        # With few species several MCPCs have like loadings, and need not settle; trees need the loadings alone.
        warnings.simplefilter("ignore", IdentifiabilityWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        models = [MCPCA(r, random_state=0).fit(Z, rows.y) for r in ranks]
    # Loadings as fitted are the paper's, here and below.
    table = tree_distances(models, known, corrected=False, X=Z, y=rows.y, n_pcs=ranks)
    species = [str(name) for name in models[0].contexts_]
    counts = pd.Series(rows.y).value_counts()
    report.add(
        permutations=permutations,
        rows=len(rows.y),
        species=len(species),
        per_species=", ".join(f"{name} {counts[name]}" for name in species),
        genes=len(rows.features),
        axes=Z.shape[1],
        ranks=", ".join(map(str, ranks)),
        largest=int(2 * (len(species) - 2)),
    )
    wide = table.pivot(index="features", columns="number", values="distance").loc[list(LABELS)]
    shown = wide.reset_index()
    shown["features"] = shown["features"].map(LABELS)
    report.table("distances", shown.rename(columns={r: f"{r}" for r in ranks}))
    right = {name: int((wide.loc[name] == 0).sum()) for name in LABELS}
    report.add(**{f"right_{name}": right[name] for name in LABELS}, numbers=len(ranks))
    exact = names_exchanged(known, species)
    dealt = _rows_dealt(Z, rows.y, known, ranks, permutations)
    report.add(
        names_exchanged=exact,
        **{f"dealt_{name}": float(np.mean(dealt[name])) for name in LABELS},
        **{f"dealt_{name}_p": Chance(right[name] / len(ranks), np.asarray(dealt[name])).p for name in LABELS},
    )
    report.table("clusterings", _clusterings(models, known, Z, rows.y, ranks))
    middle = len(ranks) // 2
    null = permuted_fits(Z, rows.y, ranks[middle], permutations, spread, seed=2)
    report.add(**Chance(spread(models[middle]), np.array(null)).numbers("spread"))
    report.add(
        shown_rank=ranks[middle],
        tree_loadings=_topology(table, "loadings", ranks[middle]),
        tree_means=_topology(table, "means", ranks[middle]),
    )
    report.table("support", _support(models[middle], known, Z, rows.y))
    report.figure("tree", plotting.plot_context_tree(models[middle], corrected=False))
    report.figure("distances", _draw(table, exact))


def _clusterings(models: list[MCPCA], known: str, Z: Array, y: Array, ranks: Sequence[int]) -> pd.DataFrame:
    """Return at how many numbers each tree is right, by the way of clustering."""
    rows = []
    for method, metric in CLUSTERINGS:
        table = tree_distances(
            models, known, corrected=False, X=Z, y=y, n_pcs=list(ranks), method=method, metric=metric
        )
        right = table.groupby("features")["distance"].agg(lambda own: int((own == 0).sum()))
        rows.append({"linkage": method, "distance": metric} | {LABELS[name]: int(right[name]) for name in LABELS})
    return pd.DataFrame(rows)


def _support(model: MCPCA, known: str, Z: Array, y: Array) -> pd.DataFrame:
    """Return the share of resamples of the rows whose tree of loadings has each clade, those of the known tree too."""
    with warnings.catch_warnings():
        # The resamples are as short of rows as the rows themselves, of which readers are told.
        warnings.simplefilter("ignore", UserWarning)
        draws = model.bootstrap(Z, y, n=RESAMPLES, corrected=False, random_state=4)
    return context_tree(model, corrected=False).support(draws, known)


def _topology(table: pd.DataFrame, features: str, number: int) -> str:
    """Return a tree in Newick format without its lengths."""
    newick = table[(table["features"] == features) & (table["number"] == number)]["newick"].iloc[0]
    return re.sub(r":[0-9.eE+-]+", "", str(newick))


def _rows_dealt(Z: Array, y: Array, known: str, ranks: Sequence[int], n: int) -> dict[str, list[float]]:
    """Return, for species permuted over rows, the share of numbers (of MCPCs, of PCs) at which each tree is right.

    Rows are centred by their species first, as in ``permuted_fits``: means of species do not become covariance.
    """
    Z = centred_by_context(Z, y)
    rng = np.random.default_rng(1)
    found: dict[str, list[float]] = {name: [] for name in LABELS}
    for _ in range(n):
        labels = rng.permutation(y)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentifiabilityWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            models = [MCPCA(r, random_state=0).fit(Z, labels) for r in ranks]
        table = tree_distances(models, known, corrected=False, X=Z, y=labels, n_pcs=list(ranks))
        for name, own in table.groupby("features"):
            found[str(name)].append(float((own["distance"] == 0).mean()))
    return found


def _balanced(rows: Rows, report: Report, n: int) -> None:
    """Take one sample of each region in each species, at random, again and again: species then differ in nothing else.

    Otherwise a species with one individual varies less than one with six, and loadings show that.
    """
    about = rows.about
    groups = about.groupby(["species", "region"]).indices
    shared = set.intersection(*(set(about[about["species"] == s]["region"]) for s in about["species"].unique()))
    rng = np.random.default_rng(3)
    found: dict[str, list[float]] = {name: [] for name in LABELS}
    for _ in range(n):
        chosen = np.array([rng.choice(rows_of) for (_, region), rows_of in groups.items() if region in shared])
        part = rows.take(chosen)
        Z, _ = pooled_axes(part, AXES)
        for rank in (3, 5):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", IdentifiabilityWarning)
                warnings.simplefilter("ignore", ConvergenceWarning)
                model = MCPCA(rank, random_state=0).fit(Z, part.y)
            for name in LABELS:
                features: Any = name  # one of a few words
                tree = context_tree(model, features=features, corrected=name != "loadings", X=Z, y=part.y)
                found[name].append(float(tree.distance(PRIMATES) == 0))
    report.add(
        balanced_rows=len(shared),
        balanced_draws=n,
        **{f"balanced_{name}": float(np.mean(found[name])) for name in LABELS},
    )


def _draw(table: pd.DataFrame, exact: float) -> Any:
    ax = plotting.plot_tree_distances(table)
    ax.set_title(f"0 is the known tree; with names exchanged a tree of its shape is right in {exact:.0%}", fontsize=9)
    return ax


def _claims(report: Report) -> None:
    n = report.numbers
    numbers = n["numbers"]
    report.claim(
        "Loadings give the known tree",
        "at every rank above 8, of five species",
        f"at {n['right_loadings']} of {numbers} ranks",
        f"species dealt to rows anew: {n['dealt_loadings'] * numbers:.1f} of {numbers}, p = {n['dealt_loadings_p']:.2g}"
        f"; names exchanged: {n['names_exchanged']:.0%}",
        bool(n["right_loadings"] > numbers / 2 and n["dealt_loadings_p"] < 0.05),
    )
    for name, paper, right in (
        ("means", "never", False),
        ("covariances", "with 33 PCs or more", True),
        ("variances", "never", False),
    ):
        report.claim(
            f"{LABELS[name][0].upper()}{LABELS[name][1:]} {'give it' if right else 'do not give it'}",
            paper,
            f"right at {n[f'right_{name}']} of {numbers} numbers",
            f"{n[f'dealt_{name}'] * numbers:.1f} of {numbers}",
            bool(n[f"right_{name}"] == 0) if not right else bool(n[f"right_{name}"] > numbers / 2),
        )
