"""The files of the paper: Xena tables, .h5ad of LuCA, Replogle and of species, PG-19 with a Gutenberg catalogue."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from mcpca._optional import require

from .loaders import Rows, log_normalised

# Keywords by which the paper tells the form of a work, looked for in its subjects and bookshelves.
SCIENCE = (
    *("science", "philosophy", "physics", "chemistry", "biology", "mathematics", "astronomy", "psychology", "logic"),
    *("ethics", "metaphysics", "epistemology", "natural history", "geology", "evolution", "scientific", "algebra"),
    *("geometry", "medicine", "anatomy", "botany", "zoology", "technology", "engineering", "political science"),
    *("economics", "sociology"),
)
FICTION = (
    *("fiction", "novel", "romance", "adventure", "mystery", "detective", "gothic", "love stories", "short stories"),
    *("fantasy", "science fiction", "historical fiction", "thriller", "western", "sea stories", "war stories"),
    "humorous stories",
)
# From where a sentence ends to where the next begins: a mark, perhaps a closing quote, space, then a capital or quote.
_END = re.compile(r"(?<=[.!?])[\"'”’)]*\s+(?=[\"'“‘(]*[A-Z])")
_ABBREVIATION = re.compile(r"\b(?:Mr|Mrs|Dr|St|Prof|Rev|Capt|Col|Gen|Hon|vol|chap|fig|[A-Z])\.$")


def xena(
    expression: Path,
    phenotype: Path,
    survival: Path | None = None,
    *,
    type_column: str = "_primary_disease",
    sample_types: Sequence[str] = ("Primary Tumor", "Primary Blood Derived Cancer - Peripheral Blood"),
    min_rows: int = 30,
) -> Rows:
    """Read tables of UCSC Xena: genes x samples, and the phenotype of samples; primary tumours by cancer type.

    Parameters
    ----------
    expression : path
        Tab-separated, also compressed: a gene in each row, a sample in each column, logarithms. Genes with missing
        values are left out.
    phenotype : path
        Columns "sample", "sample_type" and ``type_column``.
    survival : path, optional
        Columns "sample", "OS" (1 for death) and "OS.time".
    type_column, sample_types, min_rows
        Contexts, the samples that count, and how many a context must have.
    """
    table = _read_table(expression, "--xena", index_col=0)
    about = _read_table(phenotype, "--phenotype")
    _need(about, ["sample", "sample_type", type_column], phenotype)
    about = about.drop_duplicates("sample").set_index("sample")
    about = about[about["sample_type"].isin(sample_types) & about[type_column].notna()]
    shared = [name for name in table.columns if name in about.index]
    if not shared:
        raise ValueError(
            f"{expression} and {phenotype} have no primary tumour in common: samples are {list(table.columns[:3])} and "
            f"{list(about.index[:3])}. Use tables of one cohort."
        )
    table = table[shared].dropna()
    known = pd.DataFrame({"patient": [str(name)[:12] for name in shared]})
    if survival is not None:
        times = _read_table(survival, "--survival")
        _need(times, ["sample", "OS", "OS.time"], survival)
        times = times.drop_duplicates("sample").set_index("sample").reindex(shared)
        known["time"], known["event"] = times["OS.time"].to_numpy(float), times["OS"].to_numpy(float)
    y = about.loc[shared, type_column].astype(str).to_numpy()
    X = table.to_numpy(dtype=np.float64).T
    return Rows(np.ascontiguousarray(X), y, list(map(str, table.index)), known, f"{Path(expression).name}").keep(
        min_rows
    )


def luca(
    path: Path,
    *,
    patient: str = "donor_id",
    stage: str = "uicc_stage",
    disease: str = "disease",
    diseases: Sequence[str] = ("lung adenocarcinoma",),
    cell_type: str = "ann_coarse",
    cell_types: Sequence[str] = ("Cancer cell", "Tumor cells", "cancer cell"),
    min_cells: int = 200,
) -> Rows:
    """Read the lung cancer atlas: cancer cells of patients with adenocarcinoma, without mitochondrial genes.

    Contexts are patients with ``min_cells`` cancer cells; ``about`` has "stage". The column names are those of the
    published file, and options where another release has others. X must be log-normalised.
    """
    adata = _read_h5ad(path, "--luca")
    _need(adata.obs, [patient, stage, disease, cell_type], path)
    chosen = adata.obs[disease].isin(diseases) & adata.obs[cell_type].isin(cell_types)
    if not chosen.any():
        raise ValueError(
            f"{path} has no cell with {disease} in {list(diseases)} and {cell_type} in {list(cell_types)}; there are "
            f"{sorted(map(str, adata.obs[cell_type].unique()))[:8]}."
        )
    symbols = adata.var.get("feature_name", adata.var_names)
    names = np.array([str(name) for name in symbols])
    genes = np.array([not name.upper().startswith("MT-") for name in names])
    # Few patients have many cells: contexts are chosen before rows become dense.
    counts = adata.obs.loc[chosen, patient].astype(str).value_counts()
    chosen &= adata.obs[patient].astype(str).isin(counts.index[counts >= min_cells])
    if not chosen.any():
        raise ValueError(f"No patient in {path} has {min_cells} cancer cells; the most are {int(counts.max())}.")
    part = adata[chosen.to_numpy()][:, genes]
    about = pd.DataFrame({"stage": part.obs[stage].astype(str).to_numpy()})
    rows = Rows(_dense(part.X), part.obs[patient].astype(str).to_numpy(), names[genes].tolist(), about, Path(path).name)
    return rows.keep(min_cells)


def replogle(path: Path, *, gene: str = "gene", min_umis: float = 2000, min_cells: int = 300) -> Rows:
    """Read genome-wide Perturb-seq: raw counts, contexts are perturbed genes with ``min_cells`` cells.

    Cells with ``min_umis`` counts or more, scaled to 1000 and log(1 + x), as in the paper.
    """
    adata = _read_h5ad(path, "--replogle")
    _need(adata.obs, [gene], path)
    sizes = np.asarray(adata.X.sum(axis=1)).ravel()
    labels = adata.obs[gene].astype(str)
    enough = sizes >= min_umis
    counts = labels[enough].value_counts()
    chosen = enough & labels.isin(counts.index[counts >= min_cells]).to_numpy()
    if not chosen.any():
        raise ValueError(
            f"{path} has no perturbation with {min_cells} cells of {min_umis:g} counts or more; pass raw counts, or "
            "lower the bounds."
        )
    part = adata[chosen]
    names = part.var.get("gene_name", part.var_names)
    X = log_normalised(_dense(part.X), 1000.0)
    return Rows(X, labels[chosen].to_numpy(), [str(name) for name in names], source=Path(path).name).keep(min_cells)


def species_cells(paths: Sequence[Path]) -> Rows:
    """Read one .h5ad for each species, log-normalised; genes that all have, by name. The context is the file's name."""
    parts = {Path(path).stem: _read_h5ad(path, "--species") for path in paths}
    if len(parts) < 3:
        raise ValueError(
            f"--species has {len(parts)} files with names of their own, and a tree needs 3 species or more."
        )
    shared = set.intersection(*(set(map(str, part.var_names)) for part in parts.values()))
    if not shared:
        raise ValueError(
            "The files of --species have no gene in common; name genes by their orthologue in one species."
        )
    genes = sorted(shared)
    X = np.vstack([_dense(part[:, genes].X) for part in parts.values()])
    y = np.repeat(list(parts), [part.n_obs for part in parts.values()])
    about = pd.DataFrame({"species": y})
    return Rows(X, y, genes, about, "cells of " + ", ".join(parts)).keep(4)


def gutenberg(
    pg19: Path,
    catalogue: Path,
    *,
    word: str = "human",
    model: Any = "bert-base-uncased",
    first: int = 1800,
    last: int = 1919,
    years: int = 20,
    verbose: Any = True,
) -> Rows:
    """Read PG-19 and a Gutenberg catalogue, find sentences with a word, and embed it by a language model.

    Parameters
    ----------
    pg19 : folder
        With ``metadata.csv`` (book id, title, year, address; no header) and texts ``ID.txt`` in it or below it.
    catalogue : path
        CSV of works: Project Gutenberg's ``pg_catalog.csv`` ("Text#", "Subjects", "Bookshelves"), or one with a column
        "METADATA" of JSON texts, as exported from the data set ``gutenberg_english``.
    word, model
        As for ``mcpca.analysis.contextual_embeddings``.
    first, last, years : int
        Years of publication that count, and the length of a period.
    """
    from mcpca.analysis import contextual_embeddings

    works = _works(Path(pg19), catalogue, first, last)
    found: dict[str, list[Any]] = {name: [] for name in ("sentence", "work", "year", "form", "period")}
    for work, text in works:
        for sentence in sentences_with(text.read_text(encoding="utf-8", errors="replace"), word):
            period = first + (work["year"] - first) // years * years
            title = f"{work['title']} ({work['year']})"
            for name, value in zip(found, (sentence, title, work["year"], work["form"], period), strict=True):
                found[name].append(value)
    about = pd.DataFrame(found)
    if not len(about):
        raise ValueError(f"No sentence with {word!r} in {len(works)} works of {pg19}; are the texts there?")
    X = contextual_embeddings(about["sentence"].tolist(), word, model, missing="nan", verbose=verbose)
    y = np.array([f"{form} {period}" for form, period in zip(about["form"], about["period"], strict=True)])
    known = np.isfinite(X).all(axis=1)
    features = [f"dimension {i + 1}" for i in range(X.shape[1])]
    rows = Rows(X[known].astype(np.float64), y[known], features, about[known].reset_index(drop=True), "PG-19")
    return rows.keep(50)


def sentences_with(text: str, word: str) -> list[str]:
    """Return the sentences of a text that have a word, whole and in any case, each on one line."""
    joined = re.sub(r"\s+", " ", text).strip()
    has = re.compile(rf"\b{re.escape(word)}\b", re.IGNORECASE).search
    if not has(joined):
        return []
    pieces: list[str] = []
    for piece in _END.split(joined):
        # What was cut after "Mr." is one sentence.
        if pieces and _ABBREVIATION.search(pieces[-1]):
            pieces[-1] += " " + piece
        else:
            pieces.append(piece)
    return [piece for piece in pieces if has(piece)]


def form_of(words: str) -> str | None:
    """Return "science" or "fiction" by the paper's keywords; None where a work has none of them, or both."""
    lower = words.lower()
    fiction = any(word in lower for word in FICTION)
    # "Science fiction" has a keyword of both; the paper lists it under fiction.
    rest = re.sub(r"science fiction", "", lower)
    science = any(word in rest for word in SCIENCE)
    return None if fiction == science else ("fiction" if fiction else "science")


def _works(pg19: Path, catalogue: Path, first: int, last: int) -> list[tuple[dict[str, Any], Path]]:
    """Return works of known form and year whose text is there, with the path of the text."""
    listing = pg19 / "metadata.csv"
    if not listing.is_file():
        raise FileNotFoundError(f"{listing} is missing; --pg19 must name the folder of PG-19, which has it.")
    texts = {path.stem: path for path in pg19.glob("**/*.txt")}
    if not texts:
        raise FileNotFoundError(f"{pg19} has no texts (ID.txt in it or below it); get PG-19 with them.")
    forms = dict(_forms(catalogue))
    works = []
    with open(listing, encoding="utf-8", newline="") as file:
        for row in csv.reader(file):
            if len(row) < 3 or not re.fullmatch(r"-?\d+", row[2].strip()):
                continue
            name, title, year = row[0].strip(), row[1].strip(), int(row[2])
            form = forms.get(name)
            if form and first <= year <= last and name in texts:
                works.append(({"title": title, "year": year, "form": form}, texts[name]))
    if not works:
        raise ValueError(
            f"No work of {listing} from {first} to {last} has a text and a form in {catalogue}; are the ids the same?"
        )
    return works


def _forms(catalogue: Path) -> Iterator[tuple[str, str]]:
    """Yield (id, form) of each work whose subjects or bookshelves tell it."""
    table = _read_table(catalogue, "--catalogue", sep=",", dtype=str, keep_default_na=False)
    if "METADATA" in table:
        for text in table["METADATA"]:
            try:
                known = json.loads(text)
            except json.JSONDecodeError as error:
                raise ValueError(f"{catalogue}: METADATA is no JSON ({error}): {text[:60]!r}.") from error
            form = form_of(" ".join(str(known.get(key, "")) for key in ("subjects", "bookshelves")))
            if form:
                yield str(known.get("text_id", "")), form
        return
    _need(table, ["Text#", "Subjects", "Bookshelves"], catalogue)
    for name, subjects, shelves in zip(table["Text#"], table["Subjects"], table["Bookshelves"], strict=True):
        form = form_of(f"{subjects} {shelves}")
        if form:
            yield str(name), form


def _read_table(path: Path, option: str, sep: str = "\t", **options: Any) -> pd.DataFrame:
    if not Path(path).is_file():
        raise FileNotFoundError(f"{option} {path} is missing; docs/studies says where to get it.")
    try:
        return pd.read_csv(path, sep=sep, **options)
    except (UnicodeDecodeError, EOFError, OSError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise ValueError(f"{option} {path} is no table ({error}); pass the file as it was downloaded.") from error


def _read_h5ad(path: Path, option: str) -> Any:
    anndata = require("anndata", "anndata")
    if not Path(path).is_file():
        raise FileNotFoundError(f"{option} {path} is missing; docs/studies says where to get it.")
    try:
        return anndata.read_h5ad(path)
    except OSError as error:
        raise ValueError(f"{option} {path} is no .h5ad file ({error}); pass the file as it was downloaded.") from error


def _need(table: Any, columns: Sequence[str], path: Path) -> None:
    lost = [name for name in columns if name not in table.columns]
    if lost:
        raise ValueError(f"{path} lacks the columns {lost}; it has {list(map(str, table.columns))[:12]}.")


def _dense(X: Any) -> Any:
    return np.asarray(X.todense() if scipy.sparse.issparse(X) else X, dtype=np.float64)
