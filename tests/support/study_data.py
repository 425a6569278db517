"""A small folder of data in the layout that the studies read, with planted truth."""

import gzip
import json

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix

from studies.known import MICRORNA_SETS

SHARED_SET = "Xq27.3 cluster"


def contexts(loadings, A, n, rng, noise=0.3):
    """Rows (k n, p) and labels: context i has covariance A diag(b_i) A^T + noise^2 I."""
    names = list(loadings)
    X = [
        (rng.standard_normal((n, A.shape[1])) * np.sqrt(loadings[name])) @ A.T
        + noise * rng.standard_normal((n, A.shape[0]))
        for name in names
    ]
    return np.vstack(X), np.repeat(names, n)


def axes_on(blocks, p):
    """Unit columns (p, r), each with equal entries on its own block of features."""
    A = np.zeros((p, len(blocks)))
    for j, block in enumerate(blocks):
        A[list(block), j] = 1 / np.sqrt(len(block))
    return A


def write_tcga(folder, rng):
    clusters = {name: MICRORNA_SETS[name][:4] for name in (SHARED_SET, "14q32 cluster", "let-7 family", "liver")}
    genes = [gene for members in clusters.values() for gene in members] + [f"hsa-mir-9{i}0" for i in range(4)]
    A = axes_on([range(4 * j, 4 * j + 4) for j in range(4)], len(genes))
    loadings = {
        "UVM": [9, 2, 0.1, 3],
        "SKCM": [7, 2, 0.1, 4],
        "KIRC": [0.1, 2, 8, 3],
        "KIRP": [0.1, 3, 8, 4],
        "LUAD": [0.1, 8, 0.1, 3],
        "LUSC": [0.1, 1, 0.1, 4],
        "BRCA": [0.1, 1, 0.1, 3],
    }
    X, y = contexts(loadings, A, 60, rng)
    barcodes = [f"TCGA-AA-{i:04d}-01A-11R-A29W-13" for i in range(len(y))]
    machine = np.array(["Illumina HiSeq 2000"] * len(y))
    machine[:5] = "Illumina Genome Analyzer"
    (folder / "tcga_mirna").mkdir()
    np.savez(
        folder / "tcga_mirna" / "tcga_mirna_log2rpm.npz",
        **{
            "X": X + 5,
            "genes": genes,
            "context": y,
            "barcode": barcodes,
            "machine": machine,
            "sample_type": ["01"] * len(y),
        },
    )
    some = np.isin(y, ["UVM", "SKCM", "KIRC"])
    other = X[some] @ rng.standard_normal((X.shape[1], 12)) + rng.standard_normal((some.sum(), 12))
    (folder / "tcga_mrna_small").mkdir()
    np.savez(
        folder / "tcga_mrna_small" / "tcga_mrna_6types_log2cpm.npz",
        **{"X": other, "genes": [f"ENSG{i}" for i in range(12)], "context": y[some]},
        barcode=np.array(barcodes)[some],
    )


def write_patients(folder, rng):
    """Axis 1 varies five times as much in tumours, axis 2 differs in its mean alone."""
    p, n = 10, 210
    A = axes_on([(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)], p)
    parts = {"X": [], "context": [], "origin": [], "cell_type": []}
    samples = [(f"LUNG_N{i:02d}", "nLung") for i in range(1, 8)] + [(f"LUNG_T{i:02d}", "tLung") for i in range(1, 8)]
    for name, origin in samples:
        tumour = origin == "tLung"
        for kind in ("Myeloid cells", "T/NK cells"):
            b = np.array([10 if tumour else 2, 3, 2.5, 1.5, 1]) * np.exp(0.15 * rng.standard_normal(5))
            X = (rng.standard_normal((n, 5)) * np.sqrt(b)) @ A.T + 0.1 * rng.standard_normal((n, p))
            parts["X"].append(X + A[:, 1] * (2.0 if tumour else 0.0))
            for key, value in (("context", name), ("origin", origin), ("cell_type", kind)):
                parts[key] += [value] * n
    (folder / "lung_cancer_kim").mkdir()
    np.savez(
        folder / "lung_cancer_kim" / "kim2020_luad_immune_markers.npz",
        **parts
        | {"X": np.vstack(parts["X"]), "genes": [f"G{i}" for i in range(p)], "cell_subtype": parts["cell_type"]},
    )
    X, y = contexts({f"Mel{i}": rng.uniform(0.5, 4, 6) for i in range(4)}, rng.standard_normal((12, 6)), 70, rng)
    (folder / "melanoma_patients").mkdir()
    np.savez(
        folder / "melanoma_patients" / "tirosh_melanoma_immune.npz", X=X, genes=[f"G{i}" for i in range(12)], context=y
    )


def write_tumours(folder, rng):
    """Lung samples of all origins in place of those of ``write_patients``, and melanoma patients with many cells.

    Axis 1 varies six times as much in advanced tumours, pleural effusions and brain metastases as elsewhere.
    """
    p = 10
    A = axes_on([(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)], p)
    origins = ["tLung"] * 8 + ["tL/B"] * 3 + ["PE"] * 2 + ["mBrain"] * 2 + ["mLN"] * 2 + ["nLung"] * 2
    parts = {"X": [], "context": [], "origin": [], "cell_type": []}
    for i, origin in enumerate(origins):
        late = origin in ("tL/B", "PE", "mBrain")
        b = np.array([12 if late else 2, 3, 2.5, 1.5, 1]) * np.exp(0.1 * rng.standard_normal(5))
        for kind, n in (("Myeloid cells", {0: 150, 1: 200}.get(i, 230)), ("T/NK cells", 40)):
            parts["X"].append((rng.standard_normal((n, 5)) * np.sqrt(b)) @ A.T + 0.1 * rng.standard_normal((n, p)))
            for key, value in (("context", f"S{i:02d}"), ("origin", origin), ("cell_type", kind)):
                parts[key] += [value] * n
    np.savez(
        folder / "lung_cancer_kim" / "kim2020_luad_immune_markers.npz",
        **parts
        | {"X": np.vstack(parts["X"]), "genes": [f"G{i}" for i in range(p)], "cell_subtype": parts["cell_type"]},
    )
    loadings = {"Mel1": [6, 2, 3, 1, 1], "Mel2": [1, 5, 1, 3, 2], "Mel3": [1, 1, 1, 1, 1]}
    X, y = contexts(loadings, A, 240, rng)
    kept = np.flatnonzero((y != "Mel3") | (np.arange(len(y)) % 3 == 0))  # 80 cells of the last
    np.savez(
        folder / "melanoma_patients" / "tirosh_melanoma_immune.npz",
        **{"X": X[kept], "genes": [f"G{i}" for i in range(p)], "context": y[kept]},
    )


def write_perturb(folder, rng):
    """Knock-outs of the interferon pathway shift the same genes; so do activations with a gene in common."""
    names = ["IFNGR1", "IFNGR2", "JAK2", "STAT1", "IRF1", "CD86", *"ABCDEFGHIJKLM", "non-targeting"]
    rates = np.exp(rng.standard_normal((len(names), 20)) * 0.3 + 1)
    rates[:5] = rates[0] * np.exp(0.02 * rng.standard_normal((5, 20)))
    rates[:5, :4] *= 0.3
    y = np.repeat(names, 62)
    counts = csr_matrix(rng.poisson(rates.repeat(62, axis=0)).astype(np.int16))
    (folder / "perturb_papalexi").mkdir()
    np.savez(
        folder / "perturb_papalexi" / "papalexi_thp1_counts.npz",
        **{"data": counts.data, "indices": counts.indices, "indptr": counts.indptr},
        **{"genes": [f"G{i}" for i in range(20)], "context": y},
    )
    names = ["KLF1", "KLF1+MAP2K6", "MAP2K6", "MAP2K3", "MIDN", "HK2", "FOXO4", "SGK1", "control"]
    X = rng.standard_normal((len(names) * 70, 15))
    X[: 2 * 70, 0] += 2
    (folder / "perturb_norman").mkdir()
    np.savez(
        folder / "perturb_norman" / "norman2019_k562_subset.npz",
        **{"X": X, "genes": [f"G{i}" for i in range(15)], "context": np.repeat(names, 70)},
    )


def write_primates(folder, rng):
    """Covariances that follow the tree: (((Human, Chimpanzee), Gorilla), Gibbon)."""
    A = axes_on([range(3 * j, 3 * j + 3) for j in range(6)], 18)
    loadings = {
        "Human": [6, 6, 6, 1, 1, 1],
        "Chimpanzee": [6, 6, 5, 1, 1, 1.5],
        "Gorilla": [1, 6, 6, 1, 3, 1],
        "Gibbon": [1, 1, 1, 6, 6, 6],
    }
    regions = ["ACC", "CB", "HIP", "STR", "V1C", "PMC"]
    columns = {}
    for name, b in loadings.items():
        for individual in range(10):
            for region in regions:
                z = (rng.standard_normal(6) * np.sqrt(b)) @ A.T + 0.1 * rng.standard_normal(18)
                columns[f"{name}_{region}_{individual}"] = 2 ** (z + 12) - 1
    (folder / "primate_brain_bulk").mkdir()
    table = pd.DataFrame(columns, index=[f"ENSG{i}" for i in range(18)])
    table.to_csv(folder / "primate_brain_bulk" / "xu2018_primate_brain.csv.gz")


def write_human(folder, rng):
    """Axis 1 is of science, axis 2 of fiction; axis 3 of fiction in 1800 and of science in 1840."""
    A = np.linalg.qr(rng.standard_normal((16, 11)))[0]
    X, lines, genre, period = [], [], [], []
    for form in ("science", "fiction"):
        for year in (1800, 1820, 1840):
            b = np.full(11, 0.3)
            b[0 if form == "science" else 1] = 8
            if (form, year) in (("fiction", 1800), ("science", 1840)):
                b[2] = 12
            X.append((rng.standard_normal((80, 11)) * np.sqrt(b)) @ A.T)
            for i in range(80):
                work = {"title": f"{form} {year} {i % 4}", "author": "A", "year": year + i % 4, "genre": form}
                lines.append({"sentence": f"A human sentence, {i}.", "period": year, **work})
                genre.append(form)
                period.append(year)
    (folder / "text_human").mkdir()
    np.savez(
        folder / "text_human" / "human_minilm_embeddings.npz",
        **{"X": np.vstack(X), "row": np.arange(len(lines)), "genre": genre, "period": np.array(period, dtype=np.int16)},
    )
    with gzip.open(folder / "text_human" / "human_sentences.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def write_digits(folder, rng):
    """Digits are bars at places of their own, backgrounds are smooth."""
    labels = np.arange(400) % 10
    images = np.zeros((400, 28, 28), dtype=np.uint8)
    for d in range(10):
        pattern = np.zeros((28, 28))
        pattern[2 + 2 * d : 6 + 2 * d, 4:24] = 1
        pattern[4:24, 2 + 2 * d : 5 + 2 * d] = 1
        images[labels == d] = 220 * pattern
    images = np.clip(images + rng.integers(0, 20, images.shape), 0, 255).astype(np.uint8)
    grid = np.linspace(0, 1, 28)
    waves = np.array([np.outer(np.sin(a * grid), np.cos(b * grid)) for a, b in rng.uniform(1, 6, (60, 2))])
    smooth = np.clip(128 + 60 * waves, 0, 255).astype(np.uint8)
    (folder / "mnist_backgrounds").mkdir()
    np.savez(folder / "mnist_backgrounds" / "mnist.npz", x_train=images, y_train=labels.astype(np.uint8))
    np.savez(folder / "mnist_backgrounds" / "backgrounds_28x28.npz", grass=smooth[:30], cloud=smooth[30:])


def write_all(folder):
    rng = np.random.default_rng(0)
    for write in (write_tcga, write_patients, write_perturb, write_primates, write_human, write_digits):
        write(folder, rng)
    return folder
