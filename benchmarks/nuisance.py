"""Claims: batches and covariates within contexts cost next to no accuracy once they are removed, and little time.

python benchmarks/nuisance.py [accuracy paths time] [--trials 40] [--first 4000] [--repeats 3]

Accuracy: 1 - Ascore on designs of ``designs.py`` to which batches are added, shifts of every feature that are drawn
anew for every batch of every context, and covariates with slopes of their own in every context: of the rows without
nuisance, with it removed, and with it ignored. The bound is 1.1 times the first. A fit without nuisance on as many rows
less the degrees of freedom that it takes is shown beside them.
Paths: largest differences between fits of the same rows, dense, sparse, by passes, on Dask, and of moments.
Time: 100,000 sparse rows of 2,000 features in 50 contexts with 20 batches and 3 covariates, r = 20, against the same
fit without them, in turn; and peak memory of each in a process of its own. Bounds: 1.5 times, and 200 MB.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from designs import DESIGNS, Design, draw
from mcpca import MCPCA, ContextMoments, ascore

_DESIGNS = {"base": DESIGNS["base"], "unequal n": DESIGNS["unequal n"], "100 rows": Design(rows=100)}
_NUISANCE = {
    "5 batches, sd 1": (5, 1.0, 0),
    "5 batches, sd 3": (5, 3.0, 0),
    "10 batches, sd 1": (10, 1.0, 0),
    "5 batches, 2 covariates": (5, 1.0, 2),
}
_SOLVERS = ("mspm", "lsq", "ml")
ACCURACY_BAR = 1.1
TIME_BAR = 1.5
MEMORY_BAR = 200.0  # MB
ROWS, FEATURES, CONTEXTS, BATCHES, COVARIATES, RANK = 100_000, 2_000, 50, 20, 3, 20


def add_nuisance(X: np.ndarray, y: np.ndarray, batches: int, size: float, c: int, seed: int) -> tuple:
    """Return rows with nuisance, the batch of each row (n,) and its covariates (n, c)."""
    rng = np.random.default_rng((seed, 1))
    k = int(y.max()) + 1
    p = X.shape[1]
    batch = rng.integers(batches, size=len(y))
    Z = rng.standard_normal((len(y), c))
    moved = X + size * rng.standard_normal((k, batches, p))[y, batch]
    for i in range(k):
        moved[y == i] += Z[y == i] @ (size * rng.standard_normal((c, p)))
    return moved, batch, Z


def accuracy(trials: int, first: int) -> None:
    """Print errors by design and solver."""
    print("| design | nuisance | solver | without | removed | ratio | fewer rows | ignored |")
    print("|---|---|---|---|---|---|---|---|")
    worst = 0.0
    for design_name, design in _DESIGNS.items():
        for name, (batches, size, c) in _NUISANCE.items():
            for solver in _SOLVERS:
                errors = []
                for seed in range(first, first + trials):
                    data = draw(design, seed)
                    moved, batch, Z = add_nuisance(data.X, data.y, batches, size, c, seed)
                    said = {"batch": batch} | ({"covariates": Z} if c else {})
                    # As many rows less as nuisance takes degrees of freedom, from every context.
                    order = np.argsort(data.y, kind="stable")
                    rank = np.concatenate([np.arange(n) for n in np.bincount(data.y)])
                    kept = order[rank >= batches - 1 + c]
                    fits = (
                        MCPCA(design.r, solver=solver, random_state=0).fit(data.X, data.y),
                        MCPCA(design.r, solver=solver, random_state=0).fit(moved, data.y, **said),
                        MCPCA(design.r, solver=solver, random_state=0).fit(data.X[kept], data.y[kept]),
                        MCPCA(design.r, solver=solver, random_state=0).fit(moved, data.y),
                    )
                    errors.append([1 - ascore(data.components, fit.components_) for fit in fits])
                without, removed, fewer, ignored = np.mean(errors, axis=0)
                worst = max(worst, removed / without)
                print(
                    f"| {design_name} | {name} | {solver} | {without:.5f} | {removed:.5f} | {removed / without:.3f} | "
                    f"{fewer:.5f} | {ignored:.4f} |",
                    flush=True,
                )
    print(f"\nworst ratio {worst:.3f}, bound {ACCURACY_BAR}")


def paths() -> None:
    """Print the largest differences between ways to the same answer."""
    import dask.array as da

    from mcpca._covariances import fit_data

    data = draw(DESIGNS["base"], 0)
    X, batch, Z = add_nuisance(data.X, data.y, 5, 1.0, 2, 0)
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.3, 0, X)
    said = {"batch": batch, "covariates": Z}
    bound = fit_data.MOST_NUMBERS
    dense = MCPCA(5, random_state=0, tol=1e-12).fit(X, data.y, **said)
    forms = {"dense": X, "sparse": sp.csr_array(X), "Dask": da.from_array(X, chunks=(700, X.shape[1]))}
    print("| rows | components | loadings, relative |")
    print("|---|---|---|")
    for by_passes in (False, True):
        fit_data.MOST_NUMBERS = 0 if by_passes else bound
        for name, rows in forms.items():
            model = MCPCA(5, random_state=0, tol=1e-12).fit(rows, data.y, **said)
            _gap(f"{name}{', by passes' if by_passes else ''}", model, dense)
    fit_data.MOST_NUMBERS = bound
    half = np.arange(len(X)) % 2 == 0
    sites = [
        ContextMoments().update(X[part], data.y[part], batch=batch[part], covariates=Z[part]) for part in (half, ~half)
    ]
    _gap("moments of two sites", MCPCA(5, random_state=0, tol=1e-12).fit(sites[0].merge(sites[1])), dense)


def _gap(name: str, model: MCPCA, other: MCPCA) -> None:
    axes = np.abs(model.components_ - other.components_).max()
    loadings = np.abs(model.loadings_ - other.loadings_).max() / other.loadings_.max()
    print(f"| {name} | {axes:.1e} | {loadings:.1e} |", flush=True)


def _problem() -> tuple:
    rng = np.random.default_rng(0)
    X = sp.random_array((ROWS, FEATURES), density=0.1, format="csr", rng=rng, data_sampler=rng.standard_exponential)
    y = rng.integers(CONTEXTS, size=ROWS)
    # Programmes: groups of features that vary together in some contexts.
    activity = rng.gamma(1.0, 1.0, (ROWS, RANK)) * (rng.random((CONTEXTS, RANK)) < 0.4)[y]
    of_feature = rng.integers(RANK, size=FEATURES)
    X.data *= 0.3 + activity[np.repeat(np.arange(ROWS), np.diff(X.indptr)), of_feature[X.indices]]
    return X, y, rng.integers(BATCHES, size=ROWS), rng.standard_normal((ROWS, COVARIATES))


def _peak_of_fit(nuisance: bool, queue: Any) -> None:
    warnings.simplefilter("ignore")
    X, y, batch, Z = _problem()
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = _peak()
    MCPCA(RANK, random_state=0).fit(X, y, **({"batch": batch, "covariates": Z} if nuisance else {}))
    queue.put(_peak() - before)


def _peak() -> float:
    """Return the peak of resident memory in MB."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def duration(repeats: int) -> None:
    """Print times in turn, and peak memory of processes of their own."""
    X, y, batch, Z = _problem()
    MCPCA(RANK, random_state=0).fit(X[:5000], y[:5000])
    seconds: dict[bool, list[float]] = {False: [], True: []}
    passes = {}
    for _ in range(repeats):
        for nuisance in (False, True):
            start = time.perf_counter()
            model = MCPCA(RANK, random_state=0).fit(X, y, **({"batch": batch, "covariates": Z} if nuisance else {}))
            seconds[nuisance].append(time.perf_counter() - start)
            passes[nuisance] = model.n_passes_
    without, removed = min(seconds[False]), min(seconds[True])
    print(f"without {without:.2f} s ({passes[False]} passes), removed {removed:.2f} s ({passes[True]} passes)")
    by_pass = removed / without * passes[False] / passes[True]
    print(f"ratio {removed / without:.2f}, for each pass {by_pass:.2f}, bound {TIME_BAR}")
    context = multiprocessing.get_context("spawn")
    peaks = {}
    for nuisance in (False, True):
        queue = context.Queue()
        process = context.Process(target=_peak_of_fit, args=(nuisance, queue))
        process.start()
        peaks[nuisance] = queue.get()
        process.join()
    more = peaks[True] - peaks[False]
    print(f"peak above the rows: {peaks[False]:.0f} and {peaks[True]:.0f} MB, {more:.0f} more, bound {MEMORY_BAR:.0f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", default=["accuracy", "paths", "time"])
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--first", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for section in arguments.sections:
        print(f"\n## {section}\n", flush=True)
        if section == "accuracy":
            accuracy(arguments.trials, arguments.first)
        elif section == "paths":
            paths()
        else:
            duration(arguments.repeats)
