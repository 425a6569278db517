"""Real data with contexts, like those of the paper: rows and labels, ready for ``context_covariances``.

The files are not part of this project; ``load(name, directory)`` reads them from a folder that has one sub-folder per
source. Preparation is the usual one: logarithms of expression, counts divided by the size of their cell, contexts with
too few rows left out, features that never vary dropped, and principal axes of the pooled rows where there are many
features (the paper does the same with 400). Axes are found on all rows, so rows that a study holds out later have had a
part in choosing the space: that is the same for every solver.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.decomposition import PCA

from digits import RANK as DIGITS_RANK
from digits import composites


@dataclass(frozen=True)
class RealData:
    """Rows ``X`` (n, p) in float64, the context ``y`` (n,) of each, a default rank, and what to know about them."""

    name: str
    X: np.ndarray
    y: np.ndarray
    rank: int
    note: str


def load(name: str, directory: str | Path, *, axes: bool = True) -> RealData:
    """Read and prepare one of ``NAMES``; ``axes=False`` keeps the features as they are, without principal axes."""
    if name not in _RECIPES:
        raise ValueError(f"{name!r} is unknown; choose one of {', '.join(NAMES)}.")
    X, y, n_axes, rank, note = _RECIPES[name](Path(directory))
    if axes and n_axes:
        X = PCA(n_axes, svd_solver="full").fit_transform(X)
    return RealData(name, np.ascontiguousarray(X, dtype=np.float64), y, rank, note)


# Rows, contexts, principal axes of the pooled rows (0 for none), rank, note.
Prepared = tuple[np.ndarray, np.ndarray, int, int, str]


def _keep(X: np.ndarray, y: np.ndarray, min_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Leave out contexts with fewer rows than that, then features that never vary in what remains."""
    names, counts = np.unique(y, return_counts=True)
    rows = np.isin(y, names[counts >= min_rows])
    X, y = X[rows].astype(np.float64), y[rows]
    return X[:, np.ptp(X, axis=0) > 0], y


def _tcga_mirna(directory: Path) -> Prepared:
    data = np.load(directory / "tcga_mirna" / "tcga_mirna_log2rpm.npz")
    X, y = _keep(data["X"], data["context"], 60)
    # About one axis per cancer type or less: the paper takes 30 for 30 types from twenty times as many genes.
    return X, y, 100, 20, "log2 of reads per million; two sequencing machines, which differ within some types"


def _tcga_mrna_small(directory: Path) -> Prepared:
    data = np.load(directory / "tcga_mrna_small" / "tcga_mrna_6types_log2cpm.npz")
    X, y = _keep(data["X"], data["context"], 30)
    # About one axis per type: the smallest half has 18 tumours.
    return X, y, 50, 6, "log2 of counts per million; more features than rows in most halves"


def _lung_cancer_kim(directory: Path) -> Prepared:
    data = np.load(directory / "lung_cancer_kim" / "kim2020_luad_immune_markers.npz")
    X, y = _keep(data["X"], data["context"], 200)
    # The paper's rank for its atlas is 5; with so many cells a few more are well determined.
    return X, y, 0, 8, "log-normalised markers of immune cells"


def _melanoma_patients(directory: Path) -> Prepared:
    data = np.load(directory / "melanoma_patients" / "tirosh_melanoma_immune.npz")
    X, y = _keep(data["X"], data["context"], 60)
    # Half a dozen kinds of cells; beyond 7 the axes of two halves soon differ.
    return X, y, 30, 7, "log-normalised immune cells"


def papalexi_counts(directory: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the counts (n, 299) and the contexts (n,) of all cells that have any."""
    data = np.load(directory / "perturb_papalexi" / "papalexi_thp1_counts.npz")
    # The stored shape is genes x cells, the pointers are one per cell.
    shape = len(data["context"]), len(data["genes"])
    counts = csr_matrix((data["data"], data["indices"], data["indptr"]), shape=shape).toarray().astype(np.float64)
    some = counts.any(axis=1)
    return counts[some], data["context"][some]


def log_normalised(counts: np.ndarray) -> np.ndarray:
    """Return logarithms of counts divided by the size of their cell, by these genes, and times the median size."""
    sizes = counts.sum(axis=1)
    return np.log1p(counts * (np.median(sizes) / sizes)[:, None])


def _perturb_papalexi(directory: Path) -> Prepared:
    counts, y = papalexi_counts(directory)
    X, y = _keep(log_normalised(counts), y, 100)
    # A few programmes (cell cycle, interferon, stress): the spectrum is flat, and few axes are found again.
    return X, y, 40, 7, "log-normalised counts of 299 random genes; most knock-outs change little"


def _perturb_norman(directory: Path) -> Prepared:
    data = np.load(directory / "perturb_norman" / "norman2019_k562_subset.npz")
    X, y = _keep(data["X"], data["context"], 60)
    # Weak signal: 3% of the values are not zero, so few axes stand above noise.
    return X, y, 30, 6, "log-normalised; genes chosen for another cell line, 40 to 50 cells in a half"


def _perturb_mcfaline(directory: Path) -> Prepared:
    data = np.load(directory / "perturb_norman" / "mcfaline2023_gbm_lines_subset.npz")
    both = np.char.add(np.char.add(data["cell_line"], " "), data["context"])
    X, y = _keep(data["X"], both, 60)
    # Three lines that differ, with an axis or two each, and what they share.
    return X, y, 30, 6, "log-normalised; contexts are cell line x perturbation"


def _primate_brain_bulk(directory: Path) -> Prepared:
    with gzip.open(directory / "primate_brain_bulk" / "xu2018_primate_brain.csv.gz", "rt") as file:
        (_, *samples), *rows = csv.reader(file)
    values = np.array([row[1:] for row in rows], dtype=np.float64).T  # genes are rows of the file
    species = np.array([name.split("_")[0] for name in samples])
    X, y = _keep(np.log2(values + 1), species, 16)
    # Eight brain regions of which the cerebellum stands apart, and 8 rows in the smallest half.
    return X, y, 20, 4, "log2(x + 1); regions of a few individuals, so rows are not independent"


def _text_human(directory: Path) -> Prepared:
    data = np.load(directory / "text_human" / "human_minilm_embeddings.npz")
    X, y = _keep(data["X"], data["context"], 100)
    # The paper's rank for its 12 contexts.
    return X, y, 60, 10, "embeddings of the word 'human'; contexts are genre x 20 years"


def _flury(directory: Path, file: str, logs: bool, rank: int) -> Prepared:
    """Small data with all their features.

    Two covariances can always be diagonalised together, exactly, with r = p: every solver would then fit perfectly, so
    two contexts get r = p - 1, and three get p. Lengths of animals are taken in logarithms, as Flury does with the
    turtles, which also makes their different units immaterial.
    """
    header, *rows = csv.reader((directory / "flury_classics" / file).read_text().splitlines())
    y = np.array([row[0] for row in rows])
    X = np.array([row[1:] for row in rows], dtype=np.float64)
    known = y != "unknown"  # voles of one species or the other: a mixture, not a context
    X, y = (np.log(X) if logs else X)[known], y[known]
    return X, y, 0, rank, f"{'logarithms of ' if logs else ''}{len(header) - 1} measurements"


def _flury_heads(directory: Path) -> Prepared:
    """Men and women are in a file each, without a column for the group."""
    files = {"men": "swiss.heads.csv", "women": "f.swiss.heads.csv"}
    parts = {
        sex: np.loadtxt(directory / "flury_classics" / file, delimiter=",", skiprows=1) for sex, file in files.items()
    }
    y = np.repeat(list(parts), [len(part) for part in parts.values()])
    return np.vstack(list(parts.values())), y, 0, 5, "6 measurements of young soldiers' heads, in mm"


def _mnist_backgrounds(directory: Path) -> Prepared:
    # Images are drawn with replacement: with 2000 a context, not the paper's 10,000 of 5000 to 7000 images, a random
    # half shares few with the other.
    contexts, _ = composites(str(directory / "mnist_backgrounds"), seed=0, n=2000)
    y = np.repeat(["background", "0 and 2", "1 and 2"], [len(rows) for rows in contexts])
    # The paper's rank.
    return np.vstack(contexts), y, 100, DIGITS_RANK, "digits on grass and clouds; some patches are in both halves"


_RECIPES: dict[str, Callable[[Path], Prepared]] = {
    "tcga_mirna": _tcga_mirna,
    "tcga_mrna_small": _tcga_mrna_small,
    "lung_cancer_kim": _lung_cancer_kim,
    "melanoma_patients": _melanoma_patients,
    "perturb_papalexi": _perturb_papalexi,
    "perturb_norman": _perturb_norman,
    "perturb_mcfaline": _perturb_mcfaline,
    "primate_brain_bulk": _primate_brain_bulk,
    "text_human": _text_human,
    "mnist_backgrounds": _mnist_backgrounds,
    "flury/turtles": partial(_flury, file="turtles.csv", logs=True, rank=2),
    "flury/microtus": partial(_flury, file="microtus.csv", logs=True, rank=7),
    "flury/irisf": partial(_flury, file="irisf.csv", logs=False, rank=4),
    "flury/swiss_heads": _flury_heads,
    "flury/electrode": partial(_flury, file="electrode.csv", logs=False, rank=4),
}
NAMES = tuple(_RECIPES)
