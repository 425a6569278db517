"""What depends on the number of BLAS threads, and to which digit: the same fits with one thread and with several.

    python benchmarks/threads.py [threads]

Prints the largest difference of each result as a share of its largest entry, and whether a second run with the same
number of threads gives the same bits. (docs/large.md quotes it.)
"""

import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np


def fits() -> dict[str, np.ndarray]:
    """Fit 6 contexts of 500 features with every solver, by covariances and by passes over rows, dense and sparse."""
    import scipy.sparse

    import mcpca._covariances.fit_data
    from mcpca import MCPCA
    from mcpca.datasets import make_contexts

    warnings.simplefilter("ignore")
    data = make_contexts(n_contexts=6, n_features=500, n_components=8, n_samples=1500, noise=0.5, random_state=0)
    sparse = scipy.sparse.csr_array(np.where(np.abs(data.X) > 1, data.X, 0))
    found = {}
    for way, X, passes in (("formed", data.X, False), ("passes", data.X, True), ("passes, sparse", sparse, True)):
        mcpca._covariances.fit_data.by_passes = lambda *_, passes=passes: passes
        for solver in ("mspm", "lsq", "ml"):
            for orthogonal in (False, True):
                model = MCPCA(8, solver=solver, orthogonal=orthogonal, random_state=0).fit(X, data.y)
                name = f"{way}: {solver}{', orthogonal' if orthogonal else ''}"
                found |= {f"{name}: A": model.components_, f"{name}: B": model.loadings_}
                found[f"{name}: squared norms"] = model.squared_norms()
    return found


def run(threads: int, path: Path) -> dict[str, np.ndarray]:
    """Fit in a process of its own, since BLAS reads the number of threads when it is loaded."""
    limits = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), str(threads))
    subprocess.run([sys.executable, __file__, "--to", str(path)], env=os.environ | limits, check=True)
    return dict(np.load(path))


def main() -> None:
    """Compare."""
    if sys.argv[1:2] == ["--to"]:
        np.savez(sys.argv[2], **fits())
        return
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else os.cpu_count() or 2
    with tempfile.TemporaryDirectory() as folder:
        one, several, again = (run(n, Path(folder, f"{i}.npz")) for i, n in enumerate((1, threads, threads)))
    print(f"1 thread against {threads}; {threads} twice")
    for name, value in one.items():
        difference = np.abs(value - several[name]).max() / np.abs(value).max()
        print(f"{name:45} {difference:8.1e}   {'same' if np.array_equal(several[name], again[name]) else 'DIFFER'}")


if __name__ == "__main__":
    main()
