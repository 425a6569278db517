"""Claims about raw counts: a flat scree at the price of PCA, and files as they are downloaded at the price of a copy.

python benchmarks/counts.py [flat] [raw] [--scratch DIR] [--cells 150000] [--genes 20000] [--contexts 300] [--repeats 3]

Cells have counts as they are measured (``FlatCells``): a rate for each gene, gamma-distributed, programmes that are
active in some of the contexts, and library sizes that differ, so that behind the programmes the scree is flat.

flat
    In memory after log1p, r = 30: ``MCPCA`` at its default tolerance beside scikit-learn's PCA by ARPACK (bar 1.0) and
    TruncatedSVD (bar 3), from a gzip file beside the fit in memory (bar 1.3), a pass for the basis beside the products
    that it consists of (bar 1.5), and how far its components are from those of ``tol=1e-7``, in units of their standard
    errors (bar 0.1).
raw
    From a file of raw counts with ``preprocess=Preprocess("log1p", n_top=2000)``, beside the fit of a file of the same
    genes prepared before and one reading of the raw file (bar 1.5); without a choice of genes, too; and scanpy's
    normalize_total, log1p, highly_variable_genes and pca on the rows that fit into 16 GiB, by non-zeros.

Data are made once in ``--scratch``. Every measurement is a process of its own, ``--repeats`` of each, and the
median is printed; peaks are of resident memory (/proc).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from flat_cells import FlatCells, log1p_of, write_h5ad
from large import GIB, four_products, read_once, reset_peak, resident, warm_up

RANK = 30
N_TOP = 2000
SLICE_GIB = 16
# Copies of the counts that scanpy's steps hold at once, with indices, about: for the size of the slice.
COPIES = 4


class Made(Exception):
    """A file had to be made: the measurement starts again in another process, with fresh memory."""


class Scratch:
    """Files of one size of data, each made when it is first asked for, which raises ``Made``."""

    def __init__(self, folder: Path, cells: FlatCells) -> None:
        self.cells = cells
        size = f"{cells.n_cells}x{cells.n_genes}x{cells.n_contexts}x{cells.n_programmes}"
        self.folder = folder / f"counts-{size}-{cells.seed}"

    def file(self, name: str, make: Callable[[Path], None]) -> Path:
        """Return the path of a file that is there."""
        path = self.folder / name
        if not path.exists():
            print(f"making {path}", file=sys.stderr, flush=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            make(path)
            raise Made
        return path

    def all_genes(self) -> np.ndarray:
        """Return the numbers of all genes."""
        return np.arange(self.cells.n_genes)

    def logged(self) -> tuple[scipy.sparse.csr_array, np.ndarray]:
        """Return the rows after log1p, and their labels, in memory."""

        def make(path: Path) -> None:
            X = log1p_of(self.cells.matrix())
            np.savez(path, data=X.data, indices=X.indices, indptr=X.indptr)

        with np.load(self.file("logged.npz", make)) as parts:
            arrays = parts["data"], parts["indices"], parts["indptr"]
        return scipy.sparse.csr_array(arrays, shape=(self.cells.n_cells, self.cells.n_genes)), self.cells.labels()

    def raw(self, compression: str | None) -> Path:
        """Return the file of raw counts."""
        name = f"raw-{compression or 'plain'}.h5ad"
        return self.file(
            name, lambda path: write_h5ad(path, self.cells, self.cells.blocks(), self.all_genes(), compression)
        )

    def prepared(self, compression: str | None, genes: np.ndarray | None = None) -> Path:
        """Return a file of the rows after log1p: all genes, or some."""

        def make(path: Path) -> None:
            totals = np.concatenate([np.asarray(X.sum(axis=1)).ravel() for X in self.cells.blocks()])
            target = float(np.median(totals[totals > 0]))
            kept = self.all_genes() if genes is None else genes
            blocks = (log1p_of(X, target) for X in self.cells.blocks())
            some = blocks if genes is None else (scipy.sparse.csr_array(X[:, kept]) for X in blocks)
            write_h5ad(path, self.cells, some, kept, compression)

        name = f"prepared-{'all' if genes is None else len(genes)}-{compression or 'plain'}.h5ad"
        return self.file(name, make)


def _timed(call: Callable[[], Any]) -> tuple[dict, Any]:
    """Return seconds and peak memory beside what was there before, and what ``call`` returns."""
    warm_up()
    reset_peak()
    before = resident("VmRSS:")
    begin = time.perf_counter()
    result = call()
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "beside input [GiB]": (resident("VmHWM:") - before) / GIB}, result


def _tol(args: argparse.Namespace) -> dict:
    return {} if args.tol is None else {"tol": args.tol}


def _rank(scratch: Scratch) -> int:
    return min(RANK, scratch.cells.n_programmes)


# Measurements, each in a process of its own.


def fit(scratch: Scratch, args: argparse.Namespace) -> dict:
    """Fit in memory after log1p, at the default tolerance; components are kept for ``converged``."""
    from mcpca import MCPCA

    X, y = scratch.logged()
    measured, model = _timed(lambda: MCPCA(_rank(scratch), random_state=0, **_tol(args)).fit(X, y))
    np.save(scratch.folder / "components.npy", model.components_)
    return measured | {"passes": model.n_passes_, "non-zeros a row": X.nnz / X.shape[0]}


def converged(scratch: Scratch, args: argparse.Namespace) -> dict:
    """Fit to ``tol=1e-7``: angles of the components of ``fit`` to these, over their standard errors.

    The standard error of a component is half the angle between fits of two halves of the rows of every context: each
    half has twice the variance, and their difference twice that of a half. One pair tells it well, since the angle is
    over thousands of genes.
    """
    from mcpca import MCPCA, match_components

    X, y = scratch.logged()

    def fitted(rows: Any) -> Any:
        return MCPCA(_rank(scratch), tol=1e-7, random_state=0).fit(X[rows], y[rows])

    measured, model = _timed(lambda: fitted(slice(None)))

    def matched(A: np.ndarray) -> np.ndarray:
        return match_components(A, model.components_).apply(A)

    order = np.random.default_rng(args.seed).permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    errors = _angles(*(matched(fitted(np.sort(order[start::2])).components_) for start in (0, 1))) / 2
    angles = _angles(matched(np.load(scratch.folder / "components.npy")), model.components_)
    return measured | {
        "passes": model.n_passes_,
        "largest angle [degrees]": float(angles.max()),
        "median standard error [degrees]": float(np.median(errors)),
        "median angle / standard error": float(np.median(angles / errors)),
        "largest angle / standard error": float((angles / errors).max()),
        "components within a tenth": int((angles <= 0.1 * errors).sum()),
    }


def _angles(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return the angles between columns of unit length in degrees, exact also where they are small."""
    return np.degrees(2 * np.arcsin(np.minimum(np.linalg.norm(A - B, axis=0) / 2, 1)))


def one_pass(scratch: Scratch, args: argparse.Namespace) -> dict:
    """Multiply 40 directions in a pass for the basis, beside the four products of SciPy that it consists of."""
    from mcpca._covariances.passes import Passes
    from mcpca._covariances.streamed import StreamedCovariances
    from mcpca._data.contexts import read_contexts
    from mcpca._data.sources import as_source

    X, y = scratch.logged()
    S = StreamedCovariances.of(read_contexts(X, y), 40, Passes.silent())
    ours, theirs = [], []
    for i in range(3):
        V = np.linalg.qr(np.random.default_rng(i).standard_normal((X.shape[1], 40)))[0]
        begin = time.perf_counter()
        S._gram_times(V)
        ours.append(time.perf_counter() - begin)
        theirs.append(four_products(as_source(X, "X"), share=1.0))
    return {"seconds": float(np.median(ours)), "four products [s]": float(np.median(theirs))}


def pca(scratch: Scratch, args: argparse.Namespace) -> dict:
    """Run scikit-learn's PCA of the same rows."""
    from sklearn.decomposition import PCA

    X, _ = scratch.logged()
    return _timed(lambda: PCA(_rank(scratch), svd_solver="arpack", random_state=0).fit(X))[0]


def svd(scratch: Scratch, args: argparse.Namespace) -> dict:
    """Run scikit-learn's TruncatedSVD of the same rows."""
    from sklearn.decomposition import TruncatedSVD

    X, _ = scratch.logged()
    return _timed(lambda: TruncatedSVD(_rank(scratch), random_state=0).fit(X))[0]


def fit_file(scratch: Scratch, args: argparse.Namespace) -> dict:
    """Fit the rows after log1p from a gzip file."""
    return _fit_backed(scratch, scratch.prepared("gzip"), _tol(args))[0]


def reading(scratch: Scratch, args: argparse.Namespace) -> dict:
    """Read the file of raw counts once."""
    import anndata

    path = scratch.raw(args.compression)
    return _timed(lambda: read_once(anndata.read_h5ad(path, backed="r").X))[0]


def raw_top(scratch: Scratch, args: argparse.Namespace) -> dict:
    """Fit the file of raw counts with a choice of genes, which is kept for ``prepared_top``."""
    from mcpca import Preprocess

    n_top = min(N_TOP, scratch.cells.n_genes // 2)
    measured, model = _fit_backed(
        scratch, scratch.raw(args.compression), {"preprocess": Preprocess("log1p", n_top=n_top), **_tol(args)}
    )
    np.savez(scratch.folder / "chosen.npz", genes=model.preprocess_.columns, components=model.components_)
    return measured


def raw_all(scratch: Scratch, args: argparse.Namespace) -> dict:
    """Fit the file of raw counts, all genes."""
    return _fit_backed(scratch, scratch.raw(args.compression), {"preprocess": "log1p", **_tol(args)})[0]


def prepared_top(scratch: Scratch, args: argparse.Namespace) -> dict:
    """Fit a file of the genes that ``raw_top`` chose, prepared before, and compare the components."""
    from mcpca import ascore

    with np.load(scratch.folder / "chosen.npz") as chosen:
        genes, components = chosen["genes"], chosen["components"]
    measured, model = _fit_backed(scratch, scratch.prepared(args.compression, genes), _tol(args))
    return measured | {"1 - Ascore to raw": 1 - ascore(model.components_, components)}


def prepared_all(scratch: Scratch, args: argparse.Namespace) -> dict:
    """Fit a file of all genes, prepared before."""
    return _fit_backed(scratch, scratch.prepared(args.compression), _tol(args))[0]


def _fit_backed(scratch: Scratch, path: Path, options: dict) -> tuple[dict, Any]:
    import anndata

    from mcpca import MCPCA

    adata = anndata.read_h5ad(path, backed="r")
    measured, model = _timed(lambda: MCPCA(_rank(scratch), random_state=0, **options).fit(adata, "context"))
    return measured | {"passes": model.n_passes_, "file [GiB]": path.stat().st_size / GIB}, model


def scanpy(scratch: Scratch, args: argparse.Namespace) -> dict:
    """Run scanpy's steps on the first rows of the raw counts, as many as fit; the time for all is by non-zeros."""
    import anndata
    import scanpy as sc

    cells = scratch.cells
    backed = anndata.read_h5ad(scratch.raw(args.compression), backed="r")
    total = int(backed.X.group["indptr"][-1])
    fitting = int(SLICE_GIB * GIB / (8 * COPIES * total / cells.n_cells))
    n = min(cells.n_cells, args.slice or fitting)
    adata = backed[:n].to_memory()

    def steps(adata: Any) -> None:
        sc.pp.normalize_total(adata)
        sc.pp.log1p(adata)
        sc.pp.highly_variable_genes(adata, n_top_genes=min(N_TOP, cells.n_genes // 2))
        sc.pp.pca(adata, n_comps=_rank(scratch))

    share = int(adata.X.nnz) / total
    steps(adata[:300].copy())  # compiles
    measured, _ = _timed(lambda: steps(adata))
    return measured | {"rows": n, "share of non-zeros": share, "by non-zeros [s]": measured["seconds"] / share}


def flat(run: Callable[[str], dict]) -> dict:
    """Return what was measured, and the ratios."""
    found = {name: run(name) for name in ("fit", "pca", "svd", "fit_file", "one_pass")}
    found["converged"] = run("converged")
    seconds = {name: row["seconds"] for name, row in found.items()}
    return _labelled(found) | {
        "MCPCA / PCA by ARPACK (bar 1.0)": seconds["fit"] / seconds["pca"],
        "MCPCA / TruncatedSVD (bar 3)": seconds["fit"] / seconds["svd"],
        "from a gzip file / in memory (bar 1.3)": seconds["fit_file"] / seconds["fit"],
        "a pass / its four products by SciPy (bar 1.5)": seconds["one_pass"] / found["one_pass"]["four products [s]"],
        "largest angle to converged / standard error (bar 0.1)": found["converged"]["largest angle / standard error"],
    }


def raw(run: Callable[[str], dict]) -> dict:
    """Return what was measured, and the ratios."""
    names = ("reading", "raw_top", "prepared_top", "raw_all", "prepared_all", "scanpy")
    found = {name: run(name) for name in names}
    seconds = {name: row["seconds"] for name, row in found.items()}
    return _labelled(found) | {
        "raw / (prepared + reading), chosen genes (bar 1.5)": seconds["raw_top"]
        / (seconds["prepared_top"] + seconds["reading"]),
        "raw / (prepared + reading), all genes": seconds["raw_all"] / (seconds["prepared_all"] + seconds["reading"]),
        "raw, chosen genes / scanpy by non-zeros": seconds["raw_top"] / found["scanpy"]["by non-zeros [s]"],
    }


def _labelled(found: dict[str, dict]) -> dict:
    return {f"{name}, {key}": value for name, row in found.items() for key, value in row.items()}


SECTIONS = {"flat": flat, "raw": raw}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", default=["flat"], help=f"of {tuple(SECTIONS)}")
    parser.add_argument("--scratch", type=Path, default=Path("benchmark-output"))
    parser.add_argument("--cells", type=int, default=150_000)
    parser.add_argument("--genes", type=int, default=20_000)
    parser.add_argument("--contexts", type=int, default=300)
    parser.add_argument("--programmes", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3, help="processes of each measurement")
    parser.add_argument("--tol", type=float, help="of fits, but those to convergence, in place of the default")
    parser.add_argument("--compression", choices=["gzip"], help="of the files of the section raw")
    parser.add_argument("--slice", type=int, help=f"rows for scanpy; by default those that fit into {SLICE_GIB} GiB")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    cells = FlatCells(args.cells, args.genes, args.contexts, args.programmes, seed=args.seed)
    if args.child:
        try:
            print(json.dumps(globals()[args.child](Scratch(args.scratch, cells), args)))
        except Made:
            print("null")
        return 0

    def run(name: str) -> dict:
        rows: list[dict] = []
        while len(rows) < args.repeats:
            command = [sys.executable, __file__, "--child", name, *sys.argv[1:]]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
            row = json.loads(done.stdout)
            rows += [] if row is None else [row]
        return {key: float(np.median([row[key] for row in rows])) for key in rows[0]}

    for section in args.sections:
        for key, value in SECTIONS[section](run).items():
            print(f"{section}  {key}: {value:.4g}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
