"""Run the studies: ``python studies/run.py STUDY --data DIR --output DIR``; ``all`` runs them on one folder of data.

Each study leaves results.json (every number of its write-up), tables as CSV and figures as PNG in OUTPUT/STUDY. With
the options of the paper's own files a study reads these in place of the data at hand, and results go to a folder that
is named for them too, as in OUTPUT/patients_luca. ``--as-text`` and ``--as-authors`` run the paper's Methods sentence
by sentence instead, on either kind of data, into OUTPUT/patients_text or OUTPUT/patients_authors.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib
from threadpoolctl import threadpool_limits  # comes with scikit-learn

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from studies import as_authors, digits, guides, human, organs, patients, perturb, primates, tcga
from studies.loaders import optional_file
from studies.output import Report

STUDIES = ("digits", "tcga", "patients", "perturb", "guides", "primates", "organs", "human")
# The option that names the paper's own files, where a study has one.
SOURCES = {"tcga": "xena", "patients": "luca", "perturb": "replogle", "primates": "species", "human": "pg19"}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="studies/run.py", description=(__doc__ or "").split("\n")[0])
    made.add_argument("study", choices=(*STUDIES, "all"))
    made.add_argument("--data", type=Path, metavar="DIR", help="folder with a sub-folder for each source")
    made.add_argument(
        "--output", type=Path, default=Path("study-output"), metavar="DIR", help="results go to a folder in DIR"
    )
    made.add_argument(
        "--permutations", type=int, default=200, metavar="N", help="of labels, for chance; 200 by default"
    )
    made.add_argument("--organs", type=Path, metavar="FILE", help="organs: genes x samples of species by organ")
    version = made.add_mutually_exclusive_group()
    version.add_argument("--as-authors", action="store_true", help="the paper's Methods as its authors ran them")
    version.add_argument("--as-text", action="store_true", help="the paper's Methods as the text has them")
    paper = made.add_argument_group("the paper's own files")
    paper.add_argument("--xena", type=Path, metavar="FILE", help="tcga: genes x samples of UCSC Xena")
    paper.add_argument("--phenotype", type=Path, metavar="FILE", help="tcga: phenotypes of samples, with --xena")
    paper.add_argument("--survival", type=Path, metavar="FILE", help="tcga: times of survival, of Xena's samples")
    paper.add_argument("--sets", type=Path, nargs="+", default=(), metavar="GMT", help="tcga, patients: gene sets")
    paper.add_argument("--axis", metavar="MCPC", help="tcga: the MCPC for survival, such as 'MCPC 10'")
    paper.add_argument("--type", metavar="NAME", help="tcga: the cancer type for survival")
    paper.add_argument("--luca", type=Path, metavar="FILE", help="patients: the lung cancer atlas, .h5ad")
    paper.add_argument("--replogle", type=Path, metavar="FILE", help="perturb: raw counts of Perturb-seq, .h5ad")
    paper.add_argument("--links", type=Path, nargs="+", metavar="FILE", help="perturb: gene sets, with --replogle")
    paper.add_argument("--species", type=Path, nargs="+", metavar="FILE", help="primates: a file for each species")
    paper.add_argument("--genes", type=Path, metavar="FILE", help="primates: orthologues, with the authors' CSV files")
    paper.add_argument("--tree", metavar="NEWICK", help="primates, organs: the known tree of the species")
    paper.add_argument("--pg19", type=Path, metavar="DIR", help="human: PG-19, texts and metadata.csv")
    paper.add_argument("--catalogue", type=Path, metavar="FILE", help="human: catalogue of Project Gutenberg, CSV")
    paper.add_argument("--model", default="bert-base-uncased", help="human: language model, with --pg19")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return 0, or 2 with one line on stderr where something is wrong with it."""
    matplotlib.use("Agg")
    arguments = parser().parse_args(argv)
    names = STUDIES if arguments.study == "all" else (arguments.study,)
    try:
        if arguments.permutations < 1:
            raise ValueError(f"--permutations {arguments.permutations} is no reference of chance; pass at least 1.")
        for name in names:
            if arguments.study == "all" and name == "organs" and _no_organs(arguments):
                print(f"organs: left out, {arguments.data} has no folder {organs.FOLDER}", file=sys.stderr)
                continue
            start = time.perf_counter()
            kind = kind_of_run(name, arguments)
            report = Report(kind, lambda line: print(line, file=sys.stderr))
            task = _task(name, arguments, report)
            # BLAS sums in another order with another number of threads. Where a number is on a line, as with fits to
            # permuted contexts, the last digit then decides what the page says.
            with threadpool_limits(1):
                task()
            path = report.write(arguments.output / kind)
            report.say(f"{path} after {time.perf_counter() - start:.0f} s")
    except (ValueError, OSError, ImportError) as error:
        print(f"studies/run.py: {error}", file=sys.stderr)
        return 2
    return 0


def kind_of_run(name: str, given: argparse.Namespace) -> str:
    """Return the name of a run: that of the study, with that of the paper's files or the version of its Methods."""
    version = version_of(given)
    if version:
        return f"{name}_{version}"
    source = SOURCES.get(name)
    return f"{name}_{source}" if source and getattr(given, source) else name


def _no_organs(given: argparse.Namespace) -> bool:
    """Return whether there is no table of species by organ: the one source that may be missing."""
    return (
        given.organs is None
        and given.data is not None
        and given.data.is_dir()
        and not optional_file(given.data, organs.FOLDER)
    )


def version_of(given: argparse.Namespace) -> str | None:
    """Return "authors" or "text" where the command line asks for the paper's Methods."""
    return "authors" if given.as_authors else ("text" if given.as_text else None)


def _task(name: str, given: argparse.Namespace, report: Report) -> Callable[[], None]:
    """Return what to run: on the paper's files where they are named, on the data at hand otherwise."""
    n = given.permutations
    if version_of(given):
        return as_authors.task(name, given, report)
    if name == "tcga" and given.xena:
        if not given.phenotype:
            raise ValueError("--xena needs --phenotype, which says what cancer a sample is of.")
        return lambda: tcga.run_xena(given.xena, given.phenotype, given.survival, report, n)
    if name == "patients" and given.luca:
        return lambda: patients.run_luca(given.luca, report, n)
    if name == "perturb" and given.replogle:
        if not given.links:
            raise ValueError("--replogle needs --links, GMT files of gene sets.")
        return lambda: perturb.run_replogle(given.replogle, given.links, report, n)
    if name == "primates" and given.species:
        return lambda: primates.run_species(given.species, given.tree, report, n)
    if name == "organs" and given.organs:
        return lambda: organs.run_table(given.organs, report, n, given.tree)
    if name == "human" and given.pg19:
        if not given.catalogue:
            raise ValueError("--pg19 needs --catalogue, which says what form a work has.")
        return lambda: human.run_pg19(given.pg19, given.catalogue, given.model, report, n)
    if given.data is None:
        raise ValueError(f"Study {name} needs --data DIR, or the options of the paper's files; --help lists them.")
    if name == "tcga":
        return lambda: tcga.run(given.data, report, n, given.survival)
    if name == "organs":
        return lambda: organs.run(given.data, report, n, given.tree)
    modules = (digits, guides, human, patients, perturb, primates)
    module = {m.__name__.rsplit(".", 1)[-1]: m for m in modules}[name]
    return lambda: module.run(given.data, report, n)


if __name__ == "__main__":
    raise SystemExit(main())
