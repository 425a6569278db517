"""The paper's tables of tumours: expression, phenotypes and survival, from UCSC Xena."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .loaders import Rows

BRAWAND_SPECIES = {
    "hsa": "Human",
    "ptr": "Chimpanzee",
    "ppa": "Bonobo",
    "ggo": "Gorilla",
    "ppy": "Orangutan",
    "mml": "Macaque",
    "mmu": "Mouse",
    "mdo": "Opossum",
    "oan": "Platypus",
    "gga": "Chicken",
}
BRAWAND_ORGANS = {"br": "brain", "cb": "cerebellum", "ht": "heart", "kd": "kidney", "lv": "liver", "ts": "testis"}
AUTHORS_SAMPLES = ("Primary Tumor",)
AUTHORS_LINES = 50  # a type needs more lines than that in the phenotypes


def xena(
    expression: Path,
    phenotype: Path,
    survival: Path | None = None,
    *,
    sample_types: Sequence[str] = ("Primary Tumor", "Primary Blood Derived Cancer - Peripheral Blood"),
    min_rows: int = 30,
    as_authors: bool = False,
) -> Rows:
    """Read tables of UCSC Xena: genes x samples, and the phenotype of samples; primary tumours by cancer type.

    As in the paper, types with fewer than ``min_rows`` tumours are left out. Only columns of chosen samples are read.
    Memory: 4.5 GiB for 20,000 genes of 10,500 samples, measured on a generated table.

    Looked at: code of others that reads these files. Cohort "TCGA Pan-Cancer (PANCAN)" has
    ``EB++AdjustPANCAN_IlluminaHiSeq_RNASeqV2.geneExp.xena`` (a gene in each row, first column "sample", samples like
    TCGA-AA-0000-01, logarithms, some values missing), ``TCGA_phenotype_denseDataOnlyDownload.tsv`` ("sample",
    "sample_type_id", "sample_type", "_primary_disease") and ``Survival_SupplementalTable_S1_20171025_xena_sp``
    ("sample", "_PATIENT", "cancer type abbreviation", "OS", "OS.time"). ``TcgaTargetGTEX_phenotype`` has "_sample_type"
    and "primary disease or tissue", and bytes that are no UTF-8; older clinical tables call samples "sampleID". Not
    told: which table and which choice gave the paper's 10,509 samples of 30 types; a run's page has its own numbers.

    Parameters
    ----------
    expression : path
        Tab-separated, also compressed. Genes with missing values are left out, of which the paper says nothing.
    phenotype, survival : path
        As above; "OS" is 1 for death.
    sample_types, min_rows
        The samples that count, and how many a type must have.
    as_authors : bool
        As the authors ran it (tcga.ipynb): "Primary Tumor" alone; types with more than 50 lines of any kind of sample
        in the phenotypes; missing values are 0, so that a tumour which the table of expression does not have is a row
        of zeros ("measured" in ``about`` tells). ``sample_types`` and ``min_rows`` are then theirs.
    """
    if as_authors:
        sample_types, min_rows = AUTHORS_SAMPLES, 2
    about = read_table(phenotype, "--phenotype", encoding_errors="replace")
    sample = column_of(about, ("sample", "sampleID"), phenotype)
    kind = column_of(about, ("sample_type", "_sample_type"), phenotype)
    cancer = column_of(about, ("_primary_disease", "primary disease or tissue"), phenotype)
    about = about.drop_duplicates(sample).set_index(sample)
    types = about.loc[about[kind].isin(sample_types), cancer].dropna().astype(str)
    columns = [str(name) for name in read_table(expression, "--xena", nrows=0).columns]
    shared = [name for name in columns[1:] if name in types.index]
    if as_authors:
        lines = about[cancer].value_counts()
        wanted = types[types.isin(lines.index[lines > AUTHORS_LINES])]
        there = set(columns)
        unmeasured = [str(name) for name in wanted.index if name not in there]
        shared = [name for name in shared if name in wanted.index]
    else:
        unmeasured = []
    if not shared:
        raise ValueError(
            f"{expression} and {phenotype} have no primary tumour in common: samples are {columns[1:4]} and "
            f"{list(types.index[:3])}. Use tables of one cohort."
        )
    counts = types[shared].value_counts()
    shared = [name for name in shared if counts[types[name]] >= min_rows]
    if not shared:
        raise ValueError(f"No cancer type of {expression} has {min_rows} primary tumours; the most are {counts.max()}.")
    table = read_table(
        expression, "--xena", index_col=0, usecols=[columns[0], *shared], dtype=dict.fromkeys(shared, np.float32)
    )[shared]
    values = table.to_numpy()
    whole = np.isfinite(values).all(axis=1)
    if as_authors:
        values = np.hstack([np.nan_to_num(values, nan=0.0), np.zeros((len(values), len(unmeasured)), np.float32)])
        whole[:] = True
    shared = [*shared, *unmeasured]
    known = pd.DataFrame({"patient": [name[:12] for name in shared]})
    known["measured"] = np.arange(len(shared)) < len(shared) - len(unmeasured)
    if survival is not None:
        times = read_table(survival, "--survival")
        need_columns(times, ["sample", "OS", "OS.time"], survival)
        times = times.drop_duplicates("sample").set_index("sample").reindex(shared)
        if "cancer type abbreviation" in times:
            known["abbreviation"] = times["cancer type abbreviation"].to_numpy()
        known["time"], known["event"] = times["OS.time"].to_numpy(float), times["OS"].to_numpy(float)
    X = np.ascontiguousarray(values[whole].T, dtype=np.float64)
    genes = [str(name) for name in table.index[whole]]
    return Rows(X, types[shared].to_numpy(), genes, known, Path(expression).name).keep(min_rows)


def species_by_organ(path: Path, option: str = "--organs") -> Rows:
    """Read a table of species by organ: genes x samples, tab- or comma-separated, log2(1 + expression).

    Contexts are species; ``about`` has "species", "organ" and "individual". Samples are named Species_Organ_Individual,
    as TreeExp does, or species.organ.sex.number by the codes of Brawand et al. 2011 (Nature 478, 343). Other columns,
    such as the names of a gene in each species, are left out, and genes with missing values too.

    Looked at: code of others that reads Brawand's Supplementary Data 1
    (``NormalizedRPKM_ConstitutiveExons_Amniote1to1Orthologues.txt``, 5,636 genes, columns hsa, ptr, ... with Ensembl's
    names of a gene, then hsa.br.M.1, ...), and TreeExp's table of brain regions. Values are RPKM, not logarithms.
    """
    read = str(path).split(".gz")[0]
    table = read_table(path, option, sep="," if read.endswith(".csv") else "\t")
    first = str(table.columns[0])
    found = {str(name): named for name in table.columns if (named := _sample(str(name))) is not None}
    if len(found) < 3:
        raise ValueError(
            f"{option} {path} has {len(found)} columns named Species_Organ_Individual or like hsa.br.M.1; it has "
            f"{list(map(str, table.columns))[:6]}. Rename the samples."
        )
    try:
        values = table[list(found)].to_numpy(dtype=np.float64)
    except ValueError as error:
        raise ValueError(f"{option} {path}: a sample has a value that is no number ({error}).") from error
    if (values < 0).any():
        raise ValueError(f"{option} {path} has values below 0; pass expression as it is, without logarithms.")
    whole = np.isfinite(values).all(axis=1)
    genes = [str(name) for name in table[first][whole]] if first not in found else [f"{i}" for i in np.where(whole)[0]]
    about = pd.DataFrame(list(found.values()), columns=["species", "organ", "individual"])
    X = np.log2(1 + values[whole].T)
    return Rows(X, about["species"].to_numpy(), genes, about, Path(path).name).keep(2)


def _sample(name: str) -> tuple[str, str, str] | None:
    """Return species, organ and individual of a sample, by either way of naming; None for another column."""
    parts = name.split(".")
    if len(parts) == 4 and parts[0] in BRAWAND_SPECIES and parts[1] in BRAWAND_ORGANS:
        return BRAWAND_SPECIES[parts[0]], BRAWAND_ORGANS[parts[1]], ".".join(parts[2:])
    parts = name.split("_")
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 and all(parts) else None


def read_table(path: Path, option: str, sep: str = "\t", **options: Any) -> pd.DataFrame:
    """Read a table, also compressed; errors name the option that it was given by."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"{option} {path} is missing; docs/studies says where to get it.")
    try:
        return pd.read_csv(path, sep=sep, **options)
    except (UnicodeDecodeError, EOFError, OSError, ValueError) as error:
        raise ValueError(f"{option} {path} is no table ({error}); pass the file as it was downloaded.") from error


def need_columns(table: Any, columns: Sequence[str], path: Path) -> None:
    """Raise where a table lacks one of these columns."""
    lost = [name for name in columns if name not in table.columns]
    if lost:
        raise ValueError(f"{path} lacks the columns {lost}; it has {list(map(str, table.columns))[:12]}.")


def column_of(table: Any, names: Sequence[str], path: Path) -> str:
    """Return the first of these names that a table has as a column."""
    found = [name for name in names if name in table.columns]
    if not found:
        raise ValueError(
            f"{path} has none of the columns {list(names)}; it has {list(map(str, table.columns))[:40]}. Rename one."
        )
    return found[0]
