"""Claim: on a sparse AnnData ``mcpca.tl.mcpca`` takes no longer than ``scanpy.pp.pca``, and 1.3 times as long lazily.

Lazily: the same cells from a file by ``anndata.experimental.read_lazy``, which is opened anew for each run, without a
cluster; ``scanpy.pp.pca`` has them in memory.

100,000 cells, 2,000 genes, 50 contexts in random order, about a tenth of the entries not zero: counts with programs of
genes that are active in some of the contexts, normalised and logged. Both get the same number of components, their
default solvers and the threads there are, and run in turn. Also: both see the programs, by the share of a program's
activity in the cells that all scores together tell (R^2), and that the best single one tells.

Run: python benchmarks/anndata_pca.py [--cells 100000] [--repeats 3] [--compression gzip]
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import scanpy
import scipy.sparse as sp

import mcpca

GENES = 2000
CONTEXTS = 50
PROGRAMS = 20  # of genes, each active in some contexts
DRAWN_AT_ONCE = 10_000  # cells, so that dense rates stay small
RANKS = (20, 50)
BAR = 1.0  # times scanpy.pp.pca
LAZY_BAR = 1.3


def draw(n: int) -> tuple[anndata.AnnData, np.ndarray]:
    """Return the cells, and the activity of each program in each of them (n, PROGRAMS)."""
    rng = np.random.default_rng(0)
    base = rng.gamma(0.3, 0.3, GENES)
    programs = np.zeros((PROGRAMS, GENES))
    for program in programs:
        program[rng.choice(GENES, 60, replace=False)] = rng.gamma(2, 0.4, 60)
    carried = rng.random((CONTEXTS, PROGRAMS)) < 0.3
    context = rng.integers(0, CONTEXTS, n)
    activity = rng.gamma(1, 0.5, (n, PROGRAMS)) * carried[context]
    rows = []
    for start in range(0, n, DRAWN_AT_ONCE):
        rate = base + 0.4 * activity[start : start + DRAWN_AT_ONCE] @ programs
        rows.append(sp.csr_matrix(rng.poisson(rate).astype(np.float32)))
    obs = pd.DataFrame({"context": pd.Categorical(context.astype(str))}, index=np.arange(n).astype(str))
    adata = anndata.AnnData(sp.vstack(rows, format="csr"), obs=obs)
    scanpy.pp.normalize_total(adata)
    scanpy.pp.log1p(adata)
    return adata, activity


def seen(scores: np.ndarray, activity: np.ndarray) -> tuple[float, float]:
    """Return the medians over programs of R^2 on all scores, and of the largest squared correlation with one score."""
    Z, Y = (x - x.mean(axis=0) for x in (scores.astype(np.float64), activity))
    Z, Y = Z / np.linalg.norm(Z, axis=0), Y / np.linalg.norm(Y, axis=0)
    left = Y - Z @ np.linalg.lstsq(Z, Y, rcond=None)[0]
    return float(np.median(1 - (left**2).sum(axis=0))), float(np.median(((Z.T @ Y) ** 2).max(axis=0)))


def seconds(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cells", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--compression", choices=["gzip", "lzf"], help="of the file that is read lazily")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compare(options, Path(folder) / "cells.h5ad")


def lazily(path: Path, r: int) -> None:
    adata = anndata.experimental.read_lazy(path)
    mcpca.tl.mcpca(adata, "context", n_comps=r)


def compare(options: argparse.Namespace, path: Path) -> None:
    warnings.simplefilter("ignore")  # near-proportional loadings at a rank above the number of programs
    adata, activity = draw(options.cells)
    adata.write_h5ad(path, compression=options.compression)
    density = adata.X.nnz / np.prod(adata.shape)
    print(f"{adata.n_obs} x {adata.n_vars}, {density:.1%} not zero, {CONTEXTS} contexts, {PROGRAMS} programs")
    print(f"scanpy {scanpy.__version__}; medians of {options.repeats} runs in turn\n")
    print("| r | scanpy.pp.pca [s] | mcpca.tl.mcpca [s] | ratio | bar | lazily [s] | ratio | bar |", end="")
    print(" R^2 PCA | R^2 MCPCA | one PC | one MCPC |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for r in RANKS:
        theirs = []
        ours = []
        lazy = []
        for _ in range(options.repeats):
            theirs.append(seconds(lambda r=r: scanpy.pp.pca(adata, n_comps=r)))
            ours.append(seconds(lambda r=r: mcpca.tl.mcpca(adata, "context", n_comps=r)))
            lazy.append(seconds(lambda r=r: lazily(path, r)))
        ratio, lazy_ratio = (np.median(times) / np.median(theirs) for times in (ours, lazy))
        (pca_all, pca_one), (all_, one) = (seen(adata.obsm[key], activity) for key in ("X_pca", "X_mcpca"))
        print(
            f"| {r} | {np.median(theirs):.1f} | {np.median(ours):.1f} | {ratio:.2f} | <= {BAR} | "
            f"{np.median(lazy):.1f} | {lazy_ratio:.2f} | <= {LAZY_BAR} | "
            f"{pca_all:.2f} | {all_:.2f} | {pca_one:.2f} | {one:.2f} |"
        )
        passes = adata.uns["mcpca"]["diagnostics"]
        print(f"    {passes['n_passes']} passes, residual {passes['basis_residual']:.0e}; repeats {np.round(ours, 1)}")
        print(f"    lazily {np.round(lazy, 1)}")


if __name__ == "__main__":
    main()
