"""Cells of the paper's .h5ad files: the lung cancer atlas, genome-wide Perturb-seq, species. Values stay on disk.

Names of columns were checked against public code and documentation, not against the files themselves, which have many
gigabytes; each function says what was looked at, and what could not be found out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .formats import column_of, read_table
from .loaders import Rows
from .stored import Array, Part, StoredRows, looks_like_counts, opened, read_frames, row_sums

SPECIES = {
    "Homo sapiens": "Human",
    "Pan troglodytes": "Chimpanzee",
    "Gorilla gorilla": "Gorilla",
    "Gorilla gorilla gorilla": "Gorilla",
    "Macaca mulatta": "Macaque",
    "Callithrix jacchus": "Marmoset",
}
SPECIES_SCALE = 10_000.0
AUTHORS_CELLS = 500_000  # of Perturb-seq, that axes were computed from
AUTHORS_FILES = {
    "human": "Human",
    "chimp": "Chimpanzee",
    "gorilla": "Gorilla",
    "marmoset": "Marmoset",
    "rhesus": "Macaque",
}


def luca(
    path: Path,
    *,
    diseases: Sequence[str] = ("lung adenocarcinoma", "LUAD"),
    cell_types: Sequence[str] = ("Cancer cells", "Tumor cells", "malignant cell"),
    min_cells: int = 200,
    as_authors: bool = False,
) -> StoredRows:
    """Read the lung cancer atlas: cancer cells of patients with adenocarcinoma, without mitochondrial genes.

    As in the paper contexts are patients with ``min_cells`` cancer cells, from whatever tissue; ``about`` has "stage",
    and "metastasis", the share of a patient's cells, of any kind, that come from one, where the file has "origin".
    ``as_authors`` is luca.ipynb: genes with ``var["mito"]`` are left out, and patients need more than ``min_cells``
    cancer cells of any disease. (Its 82 donors, 21 of them "III or IV", are those of all diseases; 53 were fitted.)

    Looked at: the atlas' own export (github.com/icbi-lab/luca, analyses/80_export_atlas/81_export_atlas.py) and
    CELLxGENE's schema 7.1. There ``donor_id`` is the patient, ``disease`` the name of MONDO:0005061, ``ann_fine`` has
    "Cancer cells" (``ann_coarse`` calls them "Epithelial cell", with healthy ones), ``uicc_stage`` has I to IV, "III or
    IV" and "non-cancer"; X is log-normalised and counts are in ``raw``; genes have Ensembl's names, and symbols are in
    ``feature_name``. The authors' own files have "patient", "condition" with "LUAD", "cell_type" with "Tumor cells",
    and symbols for names: read as well. Its table of genes (tables/symbol_to_ensembl.csv) has none whose symbol begins
    with "MT-", so that leaving these out may leave out nothing; the authors' file has a column "mito". Not told by the
    paper: which release, the core or the extended one (1.2 million cells).
    """
    with opened(path, "--luca") as file:
        obs, var = read_frames(file)
        if looks_like_counts(file, path):
            raise ValueError(f"--luca {path}: X holds counts; pass the published atlas, whose X is log-normalised.")
    patient, disease, stage, cell_type = (
        column_of(obs, names, path)
        for names in (("donor_id", "patient"), ("disease", "condition"), ("uicc_stage",), ("ann_fine", "cell_type"))
    )
    chosen = (obs[disease].isin(diseases) & obs[cell_type].isin(cell_types)).to_numpy()
    if not chosen.any():
        raise ValueError(
            f"{path} has no cell with {disease} in {list(diseases)} and {cell_type} in {list(cell_types)}; there are "
            f"{_some(obs[disease])} and {_some(obs[cell_type])}."
        )
    names = obs[patient].astype(str).to_numpy()
    counted = obs[cell_type].isin(cell_types).to_numpy() if as_authors else chosen
    counts = pd.Series(names[counted]).value_counts()
    enough = counts.index[counts > min_cells if as_authors else counts >= min_cells]
    if len(enough) < 2:
        raise ValueError(
            f"{len(enough)} patients in {path} have {min_cells} cancer cells, and a study needs two; the most are "
            f"{int(counts.max())}."
        )
    rows = np.flatnonzero(chosen & np.isin(names, enough))
    symbols = _symbols(var)
    mitochondrial = np.array([symbol.upper().startswith("MT-") for symbol in symbols])
    if as_authors:
        mitochondrial = var[column_of(var, ("mito",), path)].astype(bool).to_numpy()
    columns = np.flatnonzero(~mitochondrial)
    about = pd.DataFrame({"stage": obs[stage].astype(str).to_numpy()[rows]})
    if "origin" in obs:
        away = pd.Series((obs["origin"] == "tumor_metastasis").to_numpy()).groupby(names).mean()
        about["metastasis"] = away[names[rows]].to_numpy()
    coding = (var["feature_type"] == "protein_coding").to_numpy()[columns] if "feature_type" in var else None
    part = Part(Path(path), rows, columns)
    return StoredRows((part,), names[rows], symbols[columns].tolist(), about, Path(path).name, coding)


def replogle(path: Path, *, min_umis: float = 2000, min_cells: int = 300, as_authors: bool = False) -> StoredRows:
    """Read genome-wide Perturb-seq: raw counts, contexts are perturbed genes with ``min_cells`` cells.

    As in the paper: cells with ``min_umis`` counts or more, scaled to 1000, log(1 + x); axes are those of all such
    cells, before perturbations with few of them are left out. "non-targeting" is a context too; the study drops it.

    Looked at: descriptions by others of ``K562_gwps_raw_singlecell_01.h5ad`` (Figshare+ 20029387: 1,989,578 cells by
    8,248 genes, dense float32, 66 GB; ``obs`` has gene, gene_transcript, gem_group, UMI_count, ... as categories of
    AnnData's older format; ``var`` has gene_name) and the script that made scPerturb's version of it
    (github.com/sanderlab/scPerturb, ReplogleWeissman2022.py: the same cells and counts, "perturbation" added, symbols
    as index, 8.8 GB compressed). ``UMI_count`` is taken where it is there and sums of X elsewhere; which of them the
    paper means is not told, nor whether its 1,872 perturbations are genes or transcripts.

    ``as_authors`` is perturbseq.ipynb: more than ``min_umis`` of ``UMI_count`` and more than ``min_cells`` cells of one
    "gene", and axes of 500,000 of the cells, drawn at random.
    """
    with opened(path, "--replogle") as file:
        obs, var = read_frames(file)
        if not looks_like_counts(file, path):
            raise ValueError(f"--replogle {path}: X holds no counts; pass raw ones (K562_gwps_raw_singlecell_01.h5ad).")
    gene = column_of(obs, ("gene", "perturbation"), path)
    sizes = obs["UMI_count"].to_numpy(float) if "UMI_count" in obs else row_sums(path)
    labels = obs[gene].astype(str).to_numpy()
    enough = sizes > min_umis if as_authors else sizes >= min_umis
    counts = pd.Series(labels[enough]).value_counts()
    chosen = enough & np.isin(labels, counts.index[counts > min_cells if as_authors else counts >= min_cells])
    if not chosen.any():
        raise ValueError(
            f"{path} has no perturbation with {min_cells} cells of {min_umis:g} counts or more; the most are "
            f"{int(counts.max()) if len(counts) else 0}. Pass the whole file, or lower the bounds."
        )
    rows = np.flatnonzero(chosen)
    pooled = np.flatnonzero(enough)
    if as_authors and len(pooled) > AUTHORS_CELLS:
        pooled = np.sort(np.random.default_rng(4).choice(pooled, AUTHORS_CELLS, replace=False))
    part = Part(Path(path), rows, np.arange(len(var)), 1000.0, pooled)
    return StoredRows((part,), labels[rows], _symbols(var).tolist(), source=Path(path).name)


def species_cells(paths: Sequence[Path]) -> StoredRows:
    """Read one .h5ad for each species; genes that all have, by name. Counts are scaled to 10,000, and log(1 + x) taken.

    Looked at: the repository of Jorstad et al. 2023 (github.com/AllenInstitute/Great_Ape_MTG), which names CELLxGENE's
    collection, and CELLxGENE's schema 7.1. Files there are named by identifiers, and the species is "organism" in
    ``obs`` or, in newer ones, in ``uns``; elsewhere the file's own name is the species. Genes of other species used to
    be given as their human orthologues, and now have names of their own: whichever of the index, ``feature_name`` and
    ``gene_name`` has most genes in common is used. Not told by the paper: whose cells it took, of which kinds, how
    normalised, and how orthologues were found; so this is a likely source and no more. The authors' own tables are for
    ``species_tables``.
    """
    tables: dict[str, tuple[Path, pd.DataFrame, int, bool]] = {}
    for path in map(Path, paths):
        with opened(path, "--species") as file:
            obs, var = read_frames(file)
            name = _species(file, obs, path)
            if name in tables:
                raise ValueError(f"--species {path} and {tables[name][0]} are both of {name}; pass a file for each.")
            tables[name] = (path, var, len(obs), looks_like_counts(file, path))
    if len(tables) < 3:
        raise ValueError(
            f"--species has {len(tables)} files with names of their own, and a tree needs 3 species or more."
        )
    shared, ids = _shared_genes([var for _, var, _, _ in tables.values()])
    if len(shared) < 2:
        raise ValueError(
            f"The files of --species have {len(shared)} genes in common; name genes by their orthologue in one species."
        )
    parts = tuple(
        Part(path, np.arange(n), pd.Index(own).get_indexer(shared), SPECIES_SCALE if counts else None)
        for (path, _, n, counts), own in zip(tables.values(), ids, strict=True)
    )
    y = np.repeat(list(tables), [n for _, _, n, _ in tables.values()])
    source = ", ".join(f"{name} ({path.name})" for name, (path, *_) in tables.items())
    return StoredRows(parts, y, shared, pd.DataFrame({"species": y}), source)


def species_tables(paths: Sequence[Path], genes: Path | None = None) -> Rows:
    """Read the authors' tables of species: genes x cells, as CSV, one for each; values as they are.

    Looked at: monkey_human_restored.ipynb, which reads human_data.csv, chimp_data.csv, gorilla_data.csv,
    marmoset_data.csv and rhesus_data.csv (10,000 cells each, 11,034 of marmoset; names of genes in the first column)
    and useful_genes(S6).csv, a column of orthologues without a header, and is left with 13,991 genes that all have. It
    does not say how the tables were normalised.

    Parameters
    ----------
    paths : paths
        The species is the beginning of a file's name, before "_".
    genes : path, optional
        The orthologues; by default all genes that the tables have in common.
    """
    tables = {}
    for path in map(Path, paths):
        stem = path.name.split("_")[0].split(".")[0]
        name = AUTHORS_FILES.get(stem.lower(), stem)
        if name in tables:
            raise ValueError(f"--species {path} is a second table of {name}; pass one for each species.")
        tables[name] = read_table(path, "--species", sep=",", index_col=0)
    if len(tables) < 3:
        raise ValueError(f"--species has tables of {len(tables)} species, and a tree needs 3 or more.")
    shared = set.intersection(*(set(map(str, table.index)) for table in tables.values()))
    if genes is not None:
        listed = read_table(genes, "--genes", sep=",", header=None, dtype=str)
        shared &= set(listed[0])
    if len(shared) < 2:
        raise ValueError(f"The tables of --species have {len(shared)} genes in common, of those of --genes.")
    order = sorted(shared)
    X = [table.set_axis(table.index.astype(str), axis=0).loc[order].to_numpy(np.float64).T for table in tables.values()]
    y = np.repeat(list(tables), [len(own) for own in X])
    source = ", ".join(f"{name} ({Path(path).name})" for name, path in zip(tables, paths, strict=True))
    return Rows(np.vstack(X), y, order, pd.DataFrame({"species": y}), source)


def _shared_genes(frames: Sequence[pd.DataFrame]) -> tuple[list[str], list[Array]]:
    """Return genes that all tables have by the kind of name that gives most, sorted, and the names in each table."""
    best: tuple[list[str], list[Array]] = ([], [])
    for kind in ("index", "feature_name", "gene_name"):
        if kind != "index" and not all(kind in var for var in frames):
            continue
        ids = [np.asarray(var.index if kind == "index" else var[kind]).astype(str) for var in frames]
        # A name that two genes have says of neither which it is.
        once = [set(pd.Series(own).drop_duplicates(keep=False)) for own in ids]
        shared = sorted(set.intersection(*once))
        if len(shared) > len(best[0]):
            best = (shared, [np.where(np.isin(own, shared), own, [f"|{i}" for i in range(len(own))]) for own in ids])
    return best


def _species(file: Any, obs: pd.DataFrame, path: Path) -> str:
    """Return the species of a file: by "organism" where that is one of those known, by the file's name elsewhere."""
    found = set(obs["organism"].astype(str)) if "organism" in obs else set()
    if "uns" in file and "organism" in file["uns"]:
        value = file["uns"]["organism"][()]
        found = {value.decode() if isinstance(value, bytes) else str(value)}
    return SPECIES.get(found.pop(), path.stem) if len(found) == 1 else path.stem


def _symbols(var: pd.DataFrame) -> Array:
    """Return symbols of genes, their names where there are none."""
    column = next((name for name in ("feature_name", "gene_name") if name in var), None)
    return np.asarray(var.index if column is None else var[column]).astype(str)


def _some(column: pd.Series) -> list[str]:
    return sorted(map(str, column.unique()))[:8]
