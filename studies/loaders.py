"""The data at hand: one function for each folder, which says what is missing and where to get the original.

A folder of data has one sub-folder for each source. Preparation is the usual one: logarithms of expression, counts
divided by the size of their cell, contexts with too few rows left out, features that never vary dropped.
"""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.decomposition import PCA

from .stored import StoredRows, stored_axes

Array = NDArray[Any]
# Origins of the lung samples at hand that are tumours, and whether these are early.
TUMOURS = {"tLung": "early", "tL/B": "advanced", "PE": "advanced", "mBrain": "advanced", "mLN": ""}
METASTASES = ("PE", "mBrain", "mLN")
TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz")
LARGE = 4000  # rows or features, whichever are fewer, beyond which axes are found one by one


@dataclass(frozen=True)
class Rows:
    """Rows of a study.

    Attributes
    ----------
    X : ndarray (n, p) of float64
    y : ndarray (n,) of str
        The context of each row.
    features : list of p str
    about : DataFrame (n, ...)
        What else is known of the rows.
    source : str
        What they are, in a few words.
    """

    X: Array
    y: Array
    features: list[str]
    about: pd.DataFrame = field(default_factory=pd.DataFrame)
    source: str = ""

    def __post_init__(self) -> None:
        if len(self.X) != len(self.y) or self.X.shape[1] != len(self.features):
            raise ValueError(
                f"X is {self.X.shape[0]} x {self.X.shape[1]}, with {len(self.y)} contexts and {len(self.features)} "
                f"features ({self.source}); the numbers must agree."
            )
        bad = ~np.isfinite(self.X).all(axis=1)
        if bad.any():
            raise ValueError(
                f"{int(bad.sum())} rows have NaN or infinite values, the first is row {int(np.argmax(bad))} "
                f"({self.source}); leave them out."
            )

    def take(self, rows: Array) -> Rows:
        """Return some of the rows, by a mask or by numbers."""
        about = self.about.loc[rows] if len(self.about) and np.asarray(rows).dtype == bool else self.about
        if len(self.about) and np.asarray(rows).dtype != bool:
            about = self.about.iloc[rows]
        return replace(self, X=self.X[rows], y=self.y[rows], about=about.reset_index(drop=True))

    def keep(self, min_rows: int) -> Rows:
        """Leave out contexts with fewer rows than that, then features that never vary in what remains."""
        names, counts = np.unique(self.y, return_counts=True)
        enough = np.isin(self.y, names[counts >= min_rows])
        kept = self if enough.all() else self.take(enough)  # large tables are not copied for nothing
        if len(np.unique(kept.y)) < 2:
            raise ValueError(
                f"{len(np.unique(kept.y))} contexts of {len(names)} have {min_rows} rows or more ({self.source}), and "
                "a study needs two; pass more rows."
            )
        varies = np.ptp(kept.X, axis=0) > 0
        if varies.all():
            return kept
        return replace(kept, X=kept.X[:, varies], features=[f for f, v in zip(self.features, varies, strict=True) if v])


def pooled_axes(rows: Rows | StoredRows, n_axes: int) -> tuple[Array, PCA]:
    """Return the rows on the principal axes of all of them, as the paper does before MCPCA, and the fitted PCA."""
    if isinstance(rows, StoredRows):
        return stored_axes(rows, n_axes)
    n_axes = min(n_axes, *rows.X.shape)
    # A full decomposition of 10,000 tumours by 16,000 genes takes an hour and several times the room of the rows.
    pca = PCA(n_axes, svd_solver="full" if min(rows.X.shape) <= LARGE else "arpack", random_state=0).fit(rows.X)
    pca.feature_names_in_ = np.asarray(rows.features, dtype=object)
    return np.asarray((rows.X - pca.mean_) @ pca.components_.T), pca


def read_arrays(data: Path, folder: str, name: str, keys: tuple[str, ...]) -> Mapping[str, Array]:
    """Read arrays of an ``.npz`` file in a folder of data; errors say which file or array is missing."""
    path = require_file(data, folder, name)
    try:
        with open(path, "rb") as content, np.load(content, allow_pickle=False) as file:
            lost = [key for key in keys if key not in file.files]
            if lost:
                raise ValueError(f"{path} lacks the arrays {lost}; it has {sorted(file.files)}.")
            return {key: file[key] for key in keys}
    except (zipfile.BadZipFile, EOFError, OSError) as error:
        raise ValueError(f"{path} is no complete .npz file ({error}); copy it again.") from error


def require_file(data: Path, folder: str, name: str) -> Path:
    """Return the path of a file in a folder of data, or raise an error that says what was looked for."""
    path = Path(data) / folder / name
    if not Path(data).is_dir():
        raise FileNotFoundError(f"--data {data} is no folder; name the one that has {folder}/{name}.")
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: --data must name a folder with {folder}/{name}. docs/studies says what it holds, and "
            "which options read the paper's own files instead."
        )
    return path


def optional_file(data: Path, folder: str, ends: Sequence[str] = TABLES) -> Path | None:
    """Return the one file with such an ending in a folder that need not be there; None without it, several an error."""
    if not Path(data).is_dir():
        raise FileNotFoundError(f"--data {data} is no folder; name the one that has {folder}.")
    inside = Path(data) / folder
    if not inside.is_dir():
        return None
    found = [path for path in sorted(inside.iterdir()) if path.name.endswith(tuple(ends)) and path.name != "SOURCE.txt"]
    if len(found) != 1:
        raise FileNotFoundError(f"{inside} has {len(found)} files that end in {', '.join(ends)}; keep one of them.")
    return found[0]


def gene_sets(data: Path | None) -> list[Path]:
    """Return the GMT files in the folder gene_sets of the data, which need not be there."""
    return [] if data is None else sorted((Path(data) / "gene_sets").glob("*.gmt"))


def tcga_mirna(data: Path) -> Rows:
    """Tumours of 31 cancer types by 385 microRNAs, log2 of reads per million.

    Two sequencing machines differ, within some types: only the tumours from the newer one are taken, which leaves out
    acute myeloid leukaemia.
    """
    a = read_arrays(
        data, "tcga_mirna", "tcga_mirna_log2rpm.npz", ("X", "genes", "context", "barcode", "machine", "sample_type")
    )
    about = pd.DataFrame({"patient": [code[:12] for code in a["barcode"]], "machine": a["machine"]})
    rows = Rows(a["X"].astype(np.float64), a["context"], list(map(str, a["genes"])), about, "TCGA microRNA")
    return rows.take(np.array(["HiSeq" in machine for machine in a["machine"]])).keep(30)


def tcga_mrna(data: Path) -> Rows:
    """Tumours of 6 cancer types by 3,000 genes, log2 of counts per million; of more types where there is such a file.

    That is the one ``.npz`` in the folder tcga_mrna, with the same arrays: X (n, p), genes, context and barcode.
    """
    larger = optional_file(data, "tcga_mrna", (".npz",))
    place = ("tcga_mrna_small", "tcga_mrna_6types_log2cpm.npz") if larger is None else ("tcga_mrna", larger.name)
    a = read_arrays(data, *place, ("X", "genes", "context", "barcode"))
    about = pd.DataFrame({"patient": [code[:12] for code in a["barcode"]]})
    return Rows(a["X"].astype(np.float64), a["context"], list(map(str, a["genes"])), about, "TCGA mRNA").keep(30)


def lung(data: Path) -> Rows:
    """Immune cells of lung adenocarcinoma by 36 marker genes, log-normalised; contexts are samples."""
    keys = ("X", "genes", "context", "origin", "cell_type", "cell_subtype")
    a = read_arrays(data, "lung_cancer_kim", "kim2020_luad_immune_markers.npz", keys)
    about = pd.DataFrame({key: a[key] for key in ("origin", "cell_type", "cell_subtype")})
    return Rows(a["X"].astype(np.float64), a["context"], list(map(str, a["genes"])), about, "lung adenocarcinoma")


def lung_tumours(data: Path, *, cell_type: str = "Myeloid cells", as_authors: bool = False) -> Rows:
    """One kind of immune cells in the samples of tumours, as ``cells.luca`` has cancer cells of patients.

    ``about`` has "stage": "early" for tumours that were resected (tLung), "advanced" for advanced ones (tL/B), for
    pleural effusions and for metastases in the brain, "" for lymph nodes, which may be of either; and "metastasis", 1
    for samples of one and 0 for others. Samples need 200 such cells, with ``as_authors`` more than 200.
    """
    rows = lung(data)
    wanted = rows.about["origin"].isin(TUMOURS) & (rows.about["cell_type"] == cell_type)
    if not wanted.any():
        raise ValueError(
            f"No sample of {sorted(TUMOURS)} has cells of cell_type={cell_type!r}; there are "
            f"{sorted(set(rows.about['cell_type']))[:8]} from {sorted(set(rows.about['origin']))}."
        )
    rows = rows.take(wanted.to_numpy())
    origin = rows.about["origin"]
    about = rows.about.assign(stage=origin.map(TUMOURS), metastasis=origin.isin(METASTASES).astype(float))
    return replace(rows, about=about, source=f"{cell_type} of lung tumours").keep(201 if as_authors else 200)


def melanoma(data: Path) -> Rows:
    """Immune and stromal cells of melanoma patients by 100 genes, log-normalised."""
    a = read_arrays(data, "melanoma_patients", "tirosh_melanoma_immune.npz", ("X", "genes", "context"))
    return Rows(a["X"].astype(np.float64), a["context"], list(map(str, a["genes"])), source="melanoma").keep(60)


def papalexi(data: Path, *, by: str = "context") -> Rows:
    """THP-1 cells by 299 random genes, log-normalised counts; contexts are knocked-out genes, or guides (by="grna").

    ``about`` has "target", the gene, and "replicate".

    Sizes of cells are sums over these genes, since those over all genes are not in the file.
    """
    keys = ("data", "indices", "indptr", "genes", "context", *(("grna", "bio_rep") if by == "grna" else ()))
    a = read_arrays(data, "perturb_papalexi", "papalexi_thp1_counts.npz", keys)
    shape = len(a["context"]), len(a["genes"])
    counts = csr_matrix((a["data"], a["indices"], a["indptr"]), shape=shape).toarray().astype(np.float64)
    some = counts.sum(axis=1) > 0
    about = pd.DataFrame({"target": a["context"][some]})
    if by == "grna":
        about["replicate"] = a["bio_rep"][some]
    genes = list(map(str, a["genes"]))
    return Rows(log_normalised(counts[some]), a[by][some], genes, about, "THP-1 knock-outs").keep(60)


def norman(data: Path) -> Rows:
    """K562 cells by 500 genes, log-normalised; contexts are one or two activated genes."""
    a = read_arrays(data, "perturb_norman", "norman2019_k562_subset.npz", ("X", "genes", "context"))
    return Rows(a["X"].astype(np.float64), a["context"], list(map(str, a["genes"])), source="K562 activation").keep(60)


def log_normalised(counts: Array, scale: float | None = None) -> Array:
    """Return log(1 + counts scaled to the same sum in every row): ``scale``, or the median sum."""
    sizes = counts.sum(axis=1)
    target = float(np.median(sizes)) if scale is None else scale
    return np.asarray(np.log1p(counts * (target / sizes)[:, None]))


def primates(data: Path) -> Rows:
    """Brain regions of four species by 200 genes, log2(1 + expression); contexts are species."""
    path = require_file(data, "primate_brain_bulk", "xu2018_primate_brain.csv.gz")
    table = pd.read_csv(path, index_col=0)
    parts = [str(name).split("_") for name in table.columns]
    odd = [name for name, part in zip(table.columns, parts, strict=True) if len(part) != 3]
    if odd:
        raise ValueError(f"{path} has columns {odd[:3]}; they must be named Species_Region_Individual.")
    about = pd.DataFrame(parts, columns=["species", "region", "individual"])
    X = np.log2(table.to_numpy(dtype=np.float64).T + 1)
    return Rows(X, about["species"].to_numpy(), list(map(str, table.index)), about, "brain regions").keep(4)


def human(data: Path, *, as_authors: bool = False) -> Rows:
    """Sentences with the word "human" by their embeddings; contexts are form and period.

    The paper's six periods of 20 years, 1800 to 1919, and its two forms. ``as_authors`` takes their periods, (1800,
    1820] and so on, sentences of less than 600 characters, and contexts of any size.
    """
    a = read_arrays(data, "text_human", "human_minilm_embeddings.npz", ("X", "row", "genre", "period"))
    path = require_file(data, "text_human", "human_sentences.jsonl.gz")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    if a["row"].max() >= len(lines):
        raise ValueError(
            f"{path} has {len(lines)} lines, but the embeddings are of line {int(a['row'].max()) + 1} too."
        )
    chosen = [lines[i] for i in a["row"]]
    about = pd.DataFrame(
        {
            "sentence": [one["sentence"] for one in chosen],
            "work": [f"{one['author']}, {one['title']} ({one['year']})" for one in chosen],
            "year": [one["year"] for one in chosen],
            "form": a["genre"],
            "period": a["period"].astype(int),
        }
    )
    if as_authors:
        about["period"] = 1800 + (about["year"] - 1801) // 20 * 20
    y = np.array([f"{form} {period}" for form, period in zip(about["form"], about["period"], strict=True)])
    rows = Rows(
        a["X"].astype(np.float64), y, [f"dimension {i + 1}" for i in range(a["X"].shape[1])], about, "sentences"
    )
    chosen_rows = about["period"].between(1800, 1900)
    if as_authors:
        chosen_rows &= about["sentence"].str.len() < 600
    return rows.take(chosen_rows.to_numpy()).keep(2 if as_authors else 50)
