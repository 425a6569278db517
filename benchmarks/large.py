"""Claims about size: sparse rows at the price of a truncated SVD, data on disk within 4 GiB, cost linear in non-zeros.

python benchmarks/large.py [products] [sparse] [linear] [contexts] [atlas] [--scratch DIR] [--cells 1000000]
                           [--converge] [--compression gzip]

``products`` are those with rows of the atlas, by SciPy and compiled by Numba (``mcpca[compiled]``), on one core.
The atlas, about 500 non-zeros in each of a million rows, is made once in ``--scratch`` (4 GB, some minutes) in the
layout of an AnnData file, rows of its 1,872 contexts in random order. With ``--compression`` a copy of it is made (gzip
at level 4; some minutes more) and fitted as well: the ratio of both fits, and whether the answer is the same to the
last bit. Every measurement is a process of its own; peaks are of resident memory (/proc), pages of the file that the
kernel caches not included.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse

GIB = 2**30


class Cells:
    """Random cells: counts of genes from a base line and r programmes, of which each context has half; log(1 + x)."""

    def __init__(self, p: int, k: int, r: int, tokens: int, dtype: str, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.p, self.tokens, self.dtype, self.seed = p, tokens, np.dtype(dtype), seed
        self.activity = rng.gamma(2, 1, (k, r)) * (rng.random((k, r)) < 0.5)
        programmes = np.zeros((r + 1, p))
        for programme in programmes[:r]:
            programme[rng.choice(p, p // 50, replace=False)] = rng.gamma(2, 1, p // 50)
        programmes[r] = rng.gamma(0.5, 1, p)
        self.cumulative = np.cumsum(programmes / programmes.sum(axis=1, keepdims=True), axis=1)

    def block(self, y: np.ndarray, number: int) -> scipy.sparse.csr_array:
        """Rows of the contexts y; the same for the same number."""
        rng = np.random.default_rng((self.seed, number))
        n = len(y)
        r = self.activity.shape[1]
        weights = np.hstack([rng.gamma(1, 1, (n, r)) * self.activity[y], np.full((n, 1), 10.0)])
        counts = rng.multinomial(self.tokens, weights / weights.sum(axis=1, keepdims=True))
        rows = []
        genes = []
        for j in range(r + 1):
            rows.append(np.repeat(np.arange(n, dtype=np.int32), counts[:, j]))
            draws = np.searchsorted(self.cumulative[j], rng.random(len(rows[-1])))
            genes.append(np.minimum(draws, self.p - 1).astype(np.int32))
        ones = np.ones(n * self.tokens, dtype=self.dtype)
        X = scipy.sparse.csr_array((ones, (np.concatenate(rows), np.concatenate(genes))), shape=(n, self.p))
        X.sum_duplicates()
        X.data = np.log1p(X.data)
        return X

    def rows(self, y: np.ndarray) -> scipy.sparse.csr_array:
        """All rows of the contexts y in memory."""
        parts = [self.block(y[i : i + 2000], i) for i in range(0, len(y), 2000)]
        X = scipy.sparse.vstack(parts, format="csr")
        if X.nnz < 2**31:
            X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
        return X


def sparse(repeats: int = 3) -> dict:
    """20,000 x 20,000, 5% dense, 40 contexts, r = 30, beside scikit-learn's TruncatedSVD(30)."""
    from sklearn.decomposition import TruncatedSVD

    from mcpca import MCPCA

    y = np.random.default_rng(0).integers(40, size=20_000)
    X = Cells(20_000, 40, 30, 1230, "float64").rows(y)
    size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    warm_up()
    reset_peak()
    before = resident("VmRSS:")
    ours = []
    theirs = []
    for _ in range(repeats):
        begin = time.perf_counter()
        model = MCPCA(30, random_state=0).fit(X, y)
        ours.append(time.perf_counter() - begin)
        peak = resident("VmHWM:") - before
        begin = time.perf_counter()
        TruncatedSVD(30, random_state=0).fit(X)
        theirs.append(time.perf_counter() - begin)
    return {
        "non-zeros": X.nnz,
        "density": X.nnz / 4e8,
        "MCPCA [s]": float(np.median(ours)),
        "TruncatedSVD [s]": float(np.median(theirs)),
        "ratio (bar 3)": float(np.median(ours) / np.median(theirs)),
        "passes": model.n_passes_,
        "residual": model.basis_residual_,
        "input [GiB]": size / GIB,
        "beside input [GiB] (bar 1)": peak / GIB,
    }


def linear(repeats: int = 3) -> list[dict]:
    """Time over a factor of 30 in the number of non-zeros, from where they outweigh what does not depend on them.

    That is O(k p r) a pass, and the solver. Medians of ``repeats`` runs.
    """
    from mcpca import MCPCA

    warm_up()
    made = []
    for n in (40_000, 120_000, 400_000, 1_200_000):
        y = np.random.default_rng(0).integers(20, size=n)
        X = Cells(4_000, 20, 20, 300, "float32").rows(y)
        times = []
        for _ in range(repeats):
            begin = time.perf_counter()
            model = MCPCA(20, random_state=0).fit(X, y)
            times.append(time.perf_counter() - begin)
        seconds = float(np.median(times))
        row = {"rows": n, "non-zeros": X.nnz, "seconds": seconds, "passes": model.n_passes_}
        made.append(row | {"seconds a pass": seconds / model.n_passes_})
        print(made[-1], file=sys.stderr, flush=True)
    logs = np.log([[row["non-zeros"], row["seconds"], row["seconds a pass"]] for row in made])
    for name, column in (("slope", 1), ("slope a pass", 2)):
        made[-1][f"{name} (bar 0.9 to 1.1)"] = float(np.polyfit(logs[:, 0], logs[:, column], 1)[0])
    return made


def products(repeats: int = 7) -> list[dict]:
    """``X V`` and ``X^T Z`` with rows like the atlas's by SciPy, and compiled: nanoseconds an entry, medians."""
    from mcpca._utils import vector_kernels

    made = []
    y = np.random.default_rng(1).integers(1872, size=10_000)
    rng = np.random.default_rng(0)
    for dtype in ("float32", "float64"):
        X = Cells(20_000, 1872, 30, 530, dtype).rows(y)
        for m in (16, 30, 40, 48):
            row: dict = {"precision": dtype, "columns": m}
            compared = {
                "X V": (X.shape[1], lambda V, X=X: X @ V, lambda V, X=X: vector_kernels.times(X, V)),
                "X^T Z": (X.shape[0], lambda Z, X=X: X.T @ Z, lambda Z, X=X: vector_kernels.transposed_times(X, Z)),
            }
            for name, (n, by_scipy, compiled) in compared.items():
                W = rng.standard_normal((n, m)).astype(dtype)
                compiled(W)  # which compiles it
                times: dict = {by_scipy: [], compiled: []}
                for _ in range(repeats):
                    for product, seconds in times.items():
                        begin = time.perf_counter()
                        product(W)
                        seconds.append(time.perf_counter() - begin)
                scipys, ours = (float(np.median(seconds)) / X.nnz * 1e9 for seconds in times.values())
                row |= {f"{name}, SciPy [ns]": scipys, f"{name}, compiled [ns]": ours, f"{name}, ratio": scipys / ours}
            made.append(row)
    return made


def contexts() -> dict:
    """10,000 contexts at p = 200, r = 30."""
    from mcpca import MCPCA, ascore
    from mcpca.datasets import make_contexts

    data = make_contexts(10_000, 200, 30, n_samples=50, noise=0.1, density=0.3, random_state=0)
    reset_peak()
    before = resident("VmRSS:")
    begin = time.perf_counter()
    model = MCPCA(30, random_state=0).fit(data.X, data.y)
    seconds = time.perf_counter() - begin
    return {
        "contexts": 10_000,
        "seconds": seconds,
        "passes": model.n_passes_,
        "1 - Ascore": 1 - ascore(model.components_, data.components),
        "input [GiB]": data.X.nbytes / GIB,
        "beside input [GiB]": (resident("VmHWM:") - before) / GIB,
    }


def make_atlas(path: Path, n: int) -> None:
    """Write the atlas in chunks, under another name until it is whole."""
    import anndata
    import h5py
    import pandas as pd

    cells = Cells(20_000, 1872, 30, 530, "float32")
    y = np.random.default_rng(1).integers(1872, size=n)
    unfinished = path.with_suffix(".part")
    with h5py.File(unfinished, "w") as file:
        group = file.create_group("X")
        group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": (n, cells.p)})
        kinds = {"data": "float32", "indices": "int32"}
        sets = {
            name: group.create_dataset(name, (0,), kind, maxshape=(None,), chunks=(2**18,))
            for name, kind in kinds.items()
        }
        ends = [np.zeros(1, dtype=np.int64)]
        for i in range(0, n, 5000):
            X = cells.block(y[i : i + 5000], i)
            for name, values in (("data", X.data), ("indices", X.indices)):
                sets[name].resize((sets[name].shape[0] + len(values),))
                sets[name][-len(values) :] = values
            ends.append(ends[-1][-1] + X.indptr[1:].astype(np.int64))
            if i % 100_000 == 0:
                print(f"{i} of {n} rows", file=sys.stderr, flush=True)
        group.create_dataset("indptr", data=np.concatenate(ends))
        names = pd.Categorical.from_codes(y, [f"perturbation {i:04d}" for i in range(1872)])
        obs = pd.DataFrame({"context": names}, index=np.arange(n).astype(str))
        var = pd.DataFrame(index=[f"gene {i}" for i in range(cells.p)])
        anndata.io.write_elem(file, "obs", obs)
        anndata.io.write_elem(file, "var", var)
        for name in ("obsm", "varm", "obsp", "varp", "layers", "uns"):
            anndata.io.write_elem(file, name, {})
        file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    unfinished.rename(path)


def compress_atlas(plain: Path, path: Path, compression: str) -> None:
    """Copy the atlas with its values and indices compressed, under another name until it is whole."""
    import h5py

    options = {"compression": compression} | ({"compression_opts": 4} if compression == "gzip" else {})
    unfinished = path.with_suffix(".part")
    with h5py.File(plain) as source, h5py.File(unfinished, "w") as file:
        file.attrs.update(source.attrs)
        for name in source:
            if name != "X":
                source.copy(name, file)
        group = file.create_group("X")
        group.attrs.update(source["X"].attrs)
        source.copy("X/indptr", group)
        for name in ("data", "indices"):
            values = source["X"][name]
            copy = group.create_dataset(name, values.shape, values.dtype, chunks=values.chunks, **options)
            for i in range(0, len(values), 2**24):
                copy[i : i + 2**24] = values[i : i + 2**24]
                print(f"{name}: {i} of {len(values)} entries", file=sys.stderr, flush=True)
    unfinished.rename(path)


def four_products(source, share: float = 0.1, columns: int = 40) -> float:
    """Seconds that SciPy takes for ``X^T (X (X^T (X V)))``, what a pass for the basis multiplies, on all cores.

    From a share of the rows, in memory and in pieces for the threads; extrapolated to all.
    """
    from mcpca._utils.parallel import each, n_workers

    V = np.random.default_rng(0).standard_normal((source.shape[1], columns)).astype(source.dtype)
    pieces = []
    rows = 0
    for _, block in source.scan(2**23):
        pieces.append(block)
        rows += block.shape[0]
        if rows >= share * source.shape[0]:
            break
    begin = time.perf_counter()
    for _ in each(lambda X: X.T @ (X @ (X.T @ (X @ V))), pieces, n_workers()):
        pass
    return (time.perf_counter() - begin) * source.shape[0] / rows


def atlas(scratch: Path, n: int, tol: float | None, converge: bool, compression: str | None = None) -> dict:
    """Fit the atlas from disk; yardsticks are the time to read its rows once, and that of the products of one pass.

    The system is asked to drop the file from its cache before a first reading of it, and before the fit. What holds the
    disk of a virtual machine may have it in a cache of its own, so that first readings differ from run to run.
    With ``converge`` also as far as float32 goes, and how far the components of the first fit are from these.
    """
    import anndata

    from mcpca import MCPCA, match_components
    from mcpca._data.sources import as_source

    path = scratch / f"atlas-{n}.h5ad"
    if not path.exists():
        subprocess.run([sys.executable, __file__, "--make", str(path), "--cells", str(n)], check=True)
    if compression is not None:
        plain, path = path, scratch / f"atlas-{n}-{compression}.h5ad"
        if not path.exists():
            compress_atlas(plain, path, compression)
    adata = anndata.read_h5ad(path, backed="r")

    def read() -> float:
        begin = time.perf_counter()
        read_once(adata.X)
        return time.perf_counter() - begin

    drop_from_cache(path)
    first, cached = read(), read()
    products = four_products(as_source(adata.X, "X"))
    drop_from_cache(path)
    reset_peak()
    begin = time.perf_counter()
    model = MCPCA(30, tol=tol, random_state=0, verbose=True).fit(
        adata, "context", checkpoint=scratch / "atlas.checkpoint"
    )
    seconds = time.perf_counter() - begin
    peak = resident("VmHWM:")
    more = {}
    if converge:
        last = MCPCA(30, tol=1e-7, random_state=0).fit(adata, "context")
        same = match_components(model.components_, last.components_).apply(model.components_)
        distance = np.linalg.norm(same - last.components_, axis=0)
        more = {
            "passes to converge": last.n_passes_,
            "largest angle to converged [degrees]": np.degrees(distance.max()),
        }
    return {
        "rows": n,
        "file [GiB]": path.stat().st_size / GIB,
        "first reading [s]": first,
        "cached reading [s]": cached,
        "fit [s]": seconds,
        "fit / first reading (bar 6)": seconds / first,
        "fit / cached reading": seconds / cached,
        "four products [s]": products,
        "fit / four products": seconds / products,
        "passes": model.n_passes_,
        "residual": model.basis_residual_,
        "error [standard errors]": np.nan if model.basis_error_ is None else model.basis_error_,
        "peak [GiB] (bar 4)": peak / GIB,
        **more,
        "answer": hashlib.sha256(model.components_.tobytes() + model.loadings_.tobytes()).hexdigest()[:12],
    }


def read_once(X) -> None:
    """Read all rows of a sparse matrix in a file."""
    from mcpca._data.sources import as_source

    for _, block in as_source(X, "X").scan(2**26):
        block.data.sum()


def drop_from_cache(path: Path) -> None:
    """Ask the system to forget the file, so that it is read from the disk again."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def warm_up() -> None:
    """Have what the first fit of a process needs: imports and threads."""
    from mcpca import MCPCA

    rng = np.random.default_rng(0)
    MCPCA(3, random_state=0).fit(rng.random((400, 50)), np.arange(400) % 4)


def resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sections = ("products", "sparse", "linear", "contexts", "atlas")
    parser.add_argument("sections", nargs="*", default=["sparse", "linear", "contexts"], help=f"of {sections}")
    parser.add_argument("--scratch", type=Path, default=Path("benchmark-output"))
    parser.add_argument("--cells", type=int, default=1_000_000)
    parser.add_argument("--tol", type=float, help="of the fit of the atlas; by default what the rows can tell")
    parser.add_argument("--converge", action="store_true", help="compare with a fit of the atlas to convergence")
    parser.add_argument("--compression", choices=["gzip", "lzf"], help="of a copy of the atlas, fitted as well")
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.make:
        make_atlas(args.make, args.cells)
        return 0
    if args.child:
        options = {"atlas": (args.scratch, args.cells, args.tol, args.converge, args.compression)}
        print(json.dumps(globals()[args.child](*options.get(args.child, ()))))
        return 0
    args.scratch.mkdir(parents=True, exist_ok=True)
    for section in args.sections:
        rows = measured(section, args)
        if section == "atlas" and args.compression:
            plain, compressed = rows[0], measured(section, args, "--compression", args.compression)[0]
            ratio = compressed["fit [s]"] / plain["fit [s]"]
            same = "the same" if plain["answer"] == compressed["answer"] else "ANOTHER"
            print(f"{args.compression} fit / uncompressed fit (bar 2): {ratio:.2f}; answer: {same}", flush=True)
    return 0


def measured(section: str, args: argparse.Namespace, *more: str) -> list[dict]:
    """Run a section in a process of its own, and print and return what it found."""
    command = [sys.executable, __file__, "--child", section, "--scratch", str(args.scratch), "--cells", str(args.cells)]
    command += ["--tol", str(args.tol)] if args.tol is not None else []
    command += [*(["--converge"] if args.converge else []), *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    rows = json.loads(done.stdout)
    rows = rows if isinstance(rows, list) else [rows]
    for row in rows:
        shown = (f"{name}: {value if isinstance(value, str) else format(value, '.4g')};" for name, value in row.items())
        print(section, *more[1:], *shown, flush=True)
    return rows


if __name__ == "__main__":
    raise SystemExit(main())
