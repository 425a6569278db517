"""Do two versions of the package give the same numbers? Ten problems, every form of input, every solver.

``python benchmarks/same_results.py write FILE`` keeps the results of the package that is installed;
``python benchmarks/same_results.py compare FILE`` computes them again and prints which differ, and by how much: a
rewrite that only moves code differs nowhere, one that changes the order of sums by rounding.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from mcpca import MCPCA, ContextMoments, choose_rank, context_covariances, decompose, select_rank
from mcpca.baselines import run
from mcpca.datasets import make_contexts

# (contexts, features, components, rows a context, noise, density of B)
PROBLEMS = {
    "small": (6, 12, 4, 80, 0.3, 1.0),
    "sparse loadings": (10, 20, 6, 120, 0.3, 0.4),
    "few contexts": (3, 25, 5, 200, 0.3, 1.0),
    "many contexts": (60, 10, 4, 30, 0.5, 0.5),
    "one component": (5, 15, 1, 60, 0.5, 1.0),
    "r is p": (12, 8, 8, 150, 0.0, 1.0),
    "r is k": (7, 30, 7, 100, 0.3, 1.0),
    "p above n": (8, 60, 5, 25, 0.5, 1.0),
    "noise-free": (15, 30, 10, 100, 0.0, 0.5),
    "two contexts": (2, 12, 3, 150, 0.3, 1.0),
}
SOLVERS: dict[str, dict[str, Any]] = {
    "mspm": {},
    "lsq": {"solver": "lsq"},
    "ml": {"solver": "ml"},
    "ml pooled": {"solver": "ml", "noise": "pooled"},
    "ml diagonal": {"solver": "ml", "noise": "diagonal"},
    "orthogonal": {"orthogonal": True},
    "orthogonal ml": {"orthogonal": True, "solver": "ml"},
}


def forms(X: Any, y: Any, folder: Path) -> Iterator[tuple[str, Callable[[MCPCA], MCPCA]]]:
    """Yield the name of each form of input, and a function that fits a model to it."""
    import anndata
    import dask.array as da
    import h5py
    import pandas as pd
    import zarr

    X = X + 3.0  # means that are not 0
    blocks = [X[y == c] for c in np.unique(y)]
    shuffled = np.random.default_rng(0).permutation(len(X))
    names = [f"f{j}" for j in range(X.shape[1])]
    yield "list", lambda m: m.fit(blocks)
    yield "dict", lambda m: m.fit({f"c{i:03d}": block for i, block in enumerate(blocks)})
    yield "labels", lambda m: m.fit(X[shuffled], y[shuffled])
    yield "float32", lambda m: m.fit(X.astype(np.float32), y)
    yield "frame", lambda m: m.fit(pd.DataFrame(X, columns=names), y)
    yield "csr", lambda m: m.fit(sp.csr_array(X), y)
    yield "csc", lambda m: m.fit(sp.csc_array(X[shuffled]), y[shuffled])
    thin = np.where(np.random.default_rng(1).random(X.shape) < 0.5, X, 0.0)
    yield "thin csr", lambda m: m.fit(sp.csr_array(thin), y)
    with h5py.File(folder / "rows.h5", "w") as file:
        file["X"] = X
    opened = h5py.File(folder / "rows.h5")
    yield "hdf5", lambda m: m.fit(opened["X"], y)
    stored = zarr.array(X, chunks=(37, X.shape[1]))
    yield "zarr", lambda m: m.fit(stored, y)
    yield "blocks", lambda m: m.fit(lambda: iter(np.array_split(X, 5)), y)
    yield "dask", lambda m: m.fit(da.from_array(X, chunks=(41, -1)), y)
    obs = pd.DataFrame({"c": y.astype(str)}, index=[f"r{i}" for i in range(len(X))])
    adata = anndata.AnnData(sp.csr_matrix(thin), obs=obs, var=pd.DataFrame(index=names))
    yield "anndata", lambda m: m.fit(adata, "c")
    adata.write_h5ad(folder / "cells.h5ad")
    backed = anndata.read_h5ad(folder / "cells.h5ad", backed="r")
    yield "backed", lambda m: m.fit(backed, "c")
    found = context_covariances(X, y)
    yield "covariances", lambda m: m.fit_covariances(found.covariances, found.n_samples)
    yield "moments", lambda m: m.fit(ContextMoments().update(X[::2], y[::2]).update(X[1::2], y[1::2]))
    yield "partial", lambda m: m.partial_fit(X[::2], y[::2]).partial_fit(X[1::2], y[1::2])
    opened.close()
    backed.file.close()


def results(name: str, spec: tuple[Any, ...]) -> dict[str, np.ndarray]:
    """Return the arrays of one problem by the name of what they are."""
    k, p, r, n, noise, density = spec
    truth = make_contexts(
        n_contexts=k, n_features=p, n_components=r, n_samples=n, noise=noise, density=density, random_state=5
    )
    X = np.asarray(truth.X)
    y = np.asarray(truth.y)
    out = {}
    with tempfile.TemporaryDirectory() as folder:
        for form, fit in forms(X, y, Path(folder)):
            for solver, options in SOLVERS.items():
                model = fit(MCPCA(r, random_state=3, verbose=False, **options))
                key = f"{name} | {form} | {solver}"
                out |= {f"{key} | {part}": np.asarray(getattr(model, part)) for part in ("components_", "loadings_")}
                out[f"{key} | scree"] = np.asarray(model.singular_values_)
                if solver == "ml" or form == "list":
                    out |= _more(key, model, X, y, form)
    S = context_covariances(X, y).covariances
    out[f"{name} | decompose"] = decompose(S, r, random_state=3).components
    out |= _ranks(name, X, y, r)
    out |= {
        f"{name} | baseline {method}": _unless_refused(lambda m=method: run(m, S, r, random_state=0).components)
        for method in ("als", "ffdiag", "pca")
    }
    return out


def _more(key: str, model: MCPCA, X: Any, y: Any, form: str) -> dict[str, np.ndarray]:
    labels = model.contexts_[np.unique(y, return_inverse=True)[1]]
    out = {
        f"{key} | scores": np.asarray(model.transform(X, center="own")),
        f"{key} | loadings_for": model.loadings_for(X),
    }
    if model.means_ is not None:
        out[f"{key} | scores by context"] = np.asarray(model.transform(X, labels))
        out[f"{key} | score"] = np.array(model.score(X, labels))
    out[f"{key} | explained"] = np.asarray(model.variance_explained("context"))
    out[f"{key} | likelihood loss"] = np.asarray(model.likelihood_loss("context"))
    out[f"{key} | reconstruction"] = np.asarray(model.reconstruction_error("context"))
    if model.noise_variance_ is not None and form == "list":
        out[f"{key} | noise"] = np.asarray(model.noise_variance_)
        out[f"{key} | standard errors"] = _unless_refused(lambda: model.standard_errors().loadings)
        out[f"{key} | presence"] = _unless_refused(lambda: model.presence().p_values)
        out[f"{key} | posterior"] = _unless_refused(lambda: model.transform(X, center="own", posterior=True))
    if form == "list":
        out[f"{key} | replicability"] = np.asarray(model.replicability(X, labels, 2, random_state=1).cosines)
    return out


def _ranks(name: str, X: Any, y: Any, r: int) -> dict[str, np.ndarray]:
    chosen = choose_rank(context_covariances(X, y).covariances, [r], n_seed_pairs=2, random_state=2)
    out = {f"{name} | choose_rank": np.asarray(chosen.scores)}
    if name in ("small", "sparse loadings", "many contexts"):
        selected = select_rank(X, y, random_state=2)
        out[f"{name} | select_rank"] = np.array([selected.rank if selected.rank is not None else -1])
    return out


def _unless_refused(compute: Callable[[], Any]) -> np.ndarray:
    try:
        return np.asarray(compute())
    except ValueError:  # what this problem is not for
        return np.zeros(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["write", "compare"])
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    found: dict[str, np.ndarray] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what problems this small are warned of is not the question
        for name, spec in PROBLEMS.items():
            found |= results(name, spec)
            print(f"{name}: {len(found)} arrays so far", flush=True)
    if arguments.action == "write":
        np.savez(arguments.file, **found)
        return
    with np.load(arguments.file) as kept:
        before = {key: kept[key] for key in kept.files}
    missing = sorted(set(before) ^ set(found))
    gaps = {key: _gap(before[key], found[key]) for key in sorted(set(before) & set(found))}
    same = sum(gap == 0 for gap in gaps.values())
    print(f"{len(gaps)} arrays: {same} equal to the last bit; {len(missing)} are in one version only {missing[:5]}")
    for bound in (1e-14, 1e-12, 1e-10, 1e-8):
        print(f"  {sum(gap > bound for gap in gaps.values()):5d} differ by more than {bound:.0e} of the largest entry")
    # Which results of which solver: keys end with both.
    kinds = Counter(" | ".join(key.split(" | ")[2:]) for key, gap in gaps.items() if gap > 1e-10)
    for kind, count in sorted(kinds.items()):
        print(f"  {count:5d} of them: {kind or 'decompose, ranks and baselines'}")
    for key, gap in sorted(gaps.items(), key=lambda item: -item[1])[:20]:
        if gap:
            print(f"  {gap:.1e}  {key}")


def _gap(before: np.ndarray, after: np.ndarray) -> float:
    if before.shape != after.shape:
        return float("inf")
    if np.array_equal(before, after, equal_nan=True):
        return 0.0
    return float(np.nanmax(np.abs(after - before)) / max(np.nanmax(np.abs(before)), np.finfo(float).tiny))


if __name__ == "__main__":
    main()
