"""Runs of the paper's Methods, in the text's version or as the authors ran them: which rows go to which lines.

``task`` is called by ``run`` with what the command line gave. Rows are the paper's own files where an option names
them, and otherwise the data at hand, which are smaller: their lines show that each step runs, not the paper's numbers.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import methods_human, methods_patients, methods_perturb, methods_primates, methods_tcga
from .known import AMNIOTES, K562_PATHWAYS, PRIMATES, THP1_PATHWAYS
from .loaders import (
    gene_sets,
    human,
    lung_tumours,
    melanoma,
    norman,
    optional_file,
    papalexi,
    primates,
    tcga_mirna,
    tcga_mrna,
)
from .output import Report
from .perturb import shared_genes

TITLES = {
    "tcga": "MCPCs across cancer types",
    "patients": "MCPCs across lung cancer patients",
    "perturb": "MCPCs with Perturb-seq data",
    "primates": "Phylogenetic analysis",
    "human": "MCPCs of genres and time periods",
}
VERSIONS = {"authors": "as the authors ran it", "text": "as the text has it"}


def task(name: str, given: argparse.Namespace, report: Report) -> Callable[[], None]:
    """Return what to run for one study; raise where it has no Methods of its own or files are missing."""
    if name not in TITLES:
        raise ValueError(
            f"Study {name} has no version of the authors to run; choose one of {', '.join(TITLES)}. Digits have the "
            "authors' pairing of components in any case."
        )
    if given.data is None and not getattr(given, _OPTIONS[name]) and not (name == "primates" and given.organs):
        raise ValueError(f"Study {name} needs --data DIR or --{_OPTIONS[name]}; --help lists the options.")
    version = "authors" if given.as_authors else "text"
    report.add(title=f"{TITLES[name]}, {VERSIONS[version]}", permutations=given.permutations)
    return lambda: _RUNS[name](given, report, bool(given.as_authors))


def _tcga(given: argparse.Namespace, report: Report, as_authors: bool) -> None:
    from .formats import xena
    from .survival_types import with_times

    at_hand = None
    if given.xena:
        if not given.phenotype:
            raise ValueError("--xena needs --phenotype, which says what cancer a sample is of.")
        rows = xena(given.xena, given.phenotype, given.survival, as_authors=as_authors)
    else:
        genes = optional_file(given.data, "tcga_mrna", (".npz",))
        rows = tcga_mirna(given.data) if genes is None else tcga_mrna(given.data)
        times = given.survival or optional_file(given.data, "tcga_survival")
        rows = rows if times is None else with_times(rows, times)
        what = "microRNAs, of one sequencing machine" if genes is None else f"genes, {genes.name}"
        at_hand = f"data at hand: {what}, types with 30 or more"
    methods_tcga.methods(
        rows,
        report,
        as_authors=as_authors,
        sets=given.sets or gene_sets(given.data),
        axis=given.axis,
        cancer=given.type,
        at_hand=at_hand,
    )


def _patients(given: argparse.Namespace, report: Report, as_authors: bool) -> None:
    from .cells import luca

    if given.luca:
        rows: Any = luca(given.luca, as_authors=as_authors)
        methods_patients.methods(rows, report, as_authors=as_authors, sets=given.sets or gene_sets(given.data))
        return
    rows = lung_tumours(given.data, as_authors=as_authors)
    at_hand = (
        f"data at hand: myeloid cells of samples with {'more than 200' if as_authors else '200 or more'}; there are no "
        "cancer cells, and markers of immune cells alone, none of them mitochondrial"
    )
    others = melanoma(given.data)
    methods_patients.methods(
        rows, report, as_authors=as_authors, sets=given.sets or gene_sets(given.data), at_hand=at_hand, others=others
    )


def _perturb(given: argparse.Namespace, report: Report, as_authors: bool) -> None:
    from .cells import replogle

    n = given.permutations
    if given.replogle:
        if not given.links:
            raise ValueError("--replogle needs --links, files of gene sets or pairs.")
        links: dict[str, Any] = {Path(one).name.split(".")[0]: one for one in given.links}
        rows = replogle(given.replogle, as_authors=as_authors)
        methods_perturb.methods(rows, links, report, as_authors=as_authors, exchanges=n)
        return
    activated = norman(given.data)
    links = {"a gene in common": shared_genes(sorted(set(map(str, activated.y)))), **K562_PATHWAYS}
    # One report has one set of numbers: the larger screen, K562, or THP-1 where that has more perturbations.
    knocked = papalexi(given.data)
    if len(np.unique(knocked.y)) > len(np.unique(activated.y)):
        activated, links = knocked, dict(THP1_PATHWAYS)
    at_hand = f"data at hand: {activated.source}, perturbations with 60 cells or more"
    methods_perturb.methods(activated, links, report, as_authors=as_authors, exchanges=n, at_hand=at_hand)


def _primates(given: argparse.Namespace, report: Report, as_authors: bool) -> None:
    from .cells import species_cells, species_tables
    from .formats import species_by_organ

    if given.species:
        tables = [str(path).split(".gz")[0].endswith(".csv") for path in given.species]
        if any(tables) and not all(tables):
            raise ValueError("--species has .csv and .h5ad files; pass files of one kind.")
        if given.genes and not all(tables):
            raise ValueError("--genes lists orthologues of the authors' .csv files; .h5ad files are matched by name.")
        rows: Any = species_tables(given.species, given.genes) if all(tables) else species_cells(given.species)
    elif given.organs:
        rows = species_by_organ(given.organs)
    else:
        rows = primates(given.data)
    known = given.tree or (AMNIOTES if given.organs else PRIMATES)
    methods_primates.methods(rows, known, report, as_authors=as_authors)


def _human(given: argparse.Namespace, report: Report, as_authors: bool) -> None:
    from .corpus import gutenberg

    if given.pg19:
        if not given.catalogue:
            raise ValueError("--pg19 needs --catalogue, which says what form a work has.")
        rows = gutenberg(given.pg19, given.catalogue, model=given.model, as_authors=as_authors)
    else:
        rows = human(given.data, as_authors=as_authors)
    at_hand = None if given.pg19 else "data at hand: forms as their list of works has them, embedded by MiniLM"
    methods_human.methods(rows, report, as_authors=as_authors, at_hand=at_hand)


_OPTIONS = {"tcga": "xena", "patients": "luca", "perturb": "replogle", "primates": "species", "human": "pg19"}
_RUNS: dict[str, Callable[[argparse.Namespace, Report, bool], None]] = {
    "tcga": _tcga,
    "patients": _patients,
    "perturb": _perturb,
    "primates": _primates,
    "human": _human,
}
