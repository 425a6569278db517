"""Claims: what ``lsq`` and ``ml`` cost beside ``mspm``; ``lsq`` never ends above the others' squared error.

Times are medians of ``decompose`` calls that alternate in one run. Stage 1 of ``ml`` is timed like ``mspm``, from
covariances to components and loadings, check and basis included; stage 2 is what ``ml`` takes beyond it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import real_data
from mcpca import context_covariances, decompose, facets
from mcpca._covariances.stack import CovarianceStack
from mcpca._covariances.subspace import compress
from mcpca._covariances.validation import check_covariances
from mcpca._solvers.interface import Settings
from mcpca._solvers.ml_starts import start_by_size
from problems import SHAPES, Shape
from speed import seconds


def error(S: np.ndarray, A: np.ndarray, B: np.ndarray) -> float:
    measured = facets(S, A, B)
    return float(measured.reconstruction_errors.sum() / measured.squared_norms.sum())


def _stage_one(S: np.ndarray, shape: Shape, seed: int) -> None:
    S = check_covariances(S)
    trace = np.einsum("kpp->k", S)
    unit = float(trace.mean()) / shape.p
    n = np.full(shape.k, shape.n_samples - 1.0)
    settings = Settings(np.random.default_rng(seed), 1e-7, 200, lambda *_: None, n)
    start_by_size(
        CovarianceStack(S),
        compress(CovarianceStack(S), shape.r).leading(shape.r),
        shape.r,
        trace / unit,
        unit,
        settings,
    )


def measure_time(repeats: int, log: Callable[[str], None]) -> list[dict]:
    rows = []
    for shape in SHAPES:
        data = shape.draw(0)
        S = context_covariances(data.X, data.y).covariances
        times: dict[str, list[float]] = {name: [] for name in ("stage 1", "mspm", "lsq", "ml")}
        for i in range(repeats + 1):  # the first to warm up
            took = {"stage 1": seconds(_stage_one, S, shape, i)}
            for solver in ("mspm", "lsq", "ml"):
                options = {"solver": solver, "n_samples": shape.n_samples, "random_state": i}
                took[solver] = seconds(decompose, S, shape.r, **options)
            if i:
                for name, value in took.items():
                    times[name].append(value)
        median = {name: float(np.median(values)) for name, values in times.items()}
        second = max(median["ml"] - median["stage 1"], 0)
        rows.append(
            {
                "shape": shape.name,
                "mspm [s]": median["mspm"],
                "lsq / mspm": median["lsq"] / median["mspm"],
                "ml / mspm": median["ml"] / median["mspm"],
                "stage 1 of ml / mspm": median["stage 1"] / median["mspm"],
                "stage 2 of ml / mspm": second / median["mspm"],
                "bar <=": 5,
            }
        )
        log(f"solvers  {shape.name}: ml / mspm {rows[-1]['ml / mspm']:.2f}")
    return rows


def measure_errors(reference: Callable | None, data: str | None, log: Callable[[str], None]) -> list[dict]:
    """Squared error of each solver, relative to the squared norm of the data; on real data, too, if given."""
    problems = []
    for shape in SHAPES:
        drawn = shape.draw(1)
        problems.append((shape.name, drawn.X, drawn.y, shape.r))
    for name in real_data.NAMES if data else []:
        loaded = real_data.load(name, data)
        problems.append((name, loaded.X, loaded.y, loaded.rank))
    rows = []
    for name, X, y, r in problems:
        S = context_covariances(X, y).covariances
        row: dict = {"data": name}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            for solver in ("mspm", "lsq"):
                result = decompose(S, r, solver=solver, random_state=0)
                row[solver] = error(S, result.components, result.loadings)
        row["gradient of lsq"] = result.gradient
        row["reference"] = error(S, *reference(S, r, 0)) if reference else None
        best = min(row["mspm"], row["reference"] or np.inf)
        row["lsq / best of the others"] = row["lsq"] / best if best > 1e-15 else 1.0
        row["bar <="] = 1
        rows.append(row)
        log(f"errors  {name}: lsq / best of the others {row['lsq / best of the others']:.4f}")
    return rows


def measure_held_out(data: str, splits: int, log: Callable[[str], None]) -> list[dict]:
    """TCGA's miRNAs: error on one half of the rows of what the other half gave."""
    loaded = real_data.load("tcga_mirna", data)
    rows = []
    for r in (10, 20, 30):
        errors: dict[str, list[float]] = {"mspm": [], "lsq": []}
        for seed in range(splits):
            rng = np.random.default_rng(seed)
            half = np.zeros(len(loaded.y), dtype=bool)
            for context in np.unique(loaded.y):
                members = rng.permutation(np.flatnonzero(loaded.y == context))
                half[members[: len(members) // 2]] = True
            train, test = (context_covariances(loaded.X[m], loaded.y[m]).covariances for m in (half, ~half))
            for solver, found in errors.items():
                result = decompose(train, r, solver=solver, random_state=seed)
                found.append(error(test, result.components, result.loadings))
        row = {"rank": r, "splits": splits} | {f"held-out, {name}": np.mean(found) for name, found in errors.items()}
        row["lsq better in"] = f"{int(np.sum(np.array(errors['lsq']) < np.array(errors['mspm'])))} of {splits}"
        rows.append(row)
        log(f"held out  r = {r}: {row}")
    return rows
