"""Features that some contexts lack: how much worse the axes get, at the same number of observed values.

``python benchmarks/missing_features.py [--seeds 60] [--first 1000] [--only union values]``

The base design of ``designs.py`` (12 contexts, 30 features, 5 components, 300 rows, noise sd 0.7, density of B 0.6).
"union": 30% of features missing at random by context, or 20% of features in half of the contexts only, against complete
data of the same truth with fewer rows, so that as many values are observed. "values": 20% of values missing at random
within rows, against complete data in the same way. The bound is a ratio of mean ``1 - Ascore`` of at most 1.5.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace

import numpy as np

from designs import DESIGNS, Drawn, draw
from mcpca import MCPCA, ascore
from mcpca.exceptions import MissingFeaturesWarning

BASE = DESIGNS["base"]
BOUND = 1.5


def missing_by_context(rng: np.random.Generator) -> np.ndarray:
    """Return which features (k, p) contexts lack: each with a probability of 0.3."""
    return rng.random((BASE.k, BASE.p)) < 0.3


def missing_in_half(rng: np.random.Generator) -> np.ndarray:
    """Return which features (k, p) contexts lack: a fifth of them, in half of the contexts each."""
    lacking = np.zeros((BASE.k, BASE.p), dtype=bool)
    for feature in rng.choice(BASE.p, BASE.p // 5, replace=False):
        lacking[rng.choice(BASE.k, BASE.k // 2, replace=False), feature] = True
    return lacking


def errors(X: np.ndarray, full: Drawn, seed: int, solver: str, missing: str, few: Drawn) -> tuple[float, float]:
    """Return ``1 - Ascore`` of incomplete rows, and of complete rows with as many values."""
    found = []
    for rows, y, how in ((X, full.y, missing), (few.X, few.y, "error")):
        with warnings.catch_warnings():
            # A weight that no context determines is part of the problem.
            warnings.simplefilter("ignore", MissingFeaturesWarning)
            model = MCPCA(BASE.r, solver=solver, missing=how, noise="auto", random_state=seed).fit(rows, y)
        found.append(1 - ascore(model.components_, full.components))
    return found[0], found[1]


def incomplete(kind: str, seed: int) -> tuple[np.ndarray, Drawn, Drawn]:
    """Return rows with NaN, the complete rows behind them, and other complete rows with as many values."""
    full = draw(BASE, seed)
    rng = np.random.default_rng([seed, 7])
    if kind == "values":
        lacking = rng.random(full.X.shape) < 0.2
    else:
        lacking = (missing_by_context if kind == "by context" else missing_in_half)(rng)[full.y]
    few = draw(replace(BASE, rows=round(BASE.rows * (1 - lacking.mean()))), seed + 500_000, truth_seed=seed)
    return np.where(lacking, np.nan, full.X), full, few


UNION = [
    ("by context", "lsq", "union"),
    ("by context", "ml", "union"),
    ("in half", "lsq", "union"),
    ("in half", "ml", "union"),
]
VALUES = [("values", "mspm", "pairwise"), ("values", "lsq", "pairwise"), ("values", "ml", "em")]


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--only", nargs="*", default=["union", "values"], choices=["union", "values"])
    options = parser.parse_args()
    cases = (UNION if "union" in options.only else []) + (VALUES if "values" in options.only else [])
    print(f"{options.seeds} seeds from {options.first}; 1 - Ascore, mean (median); bound on the ratio of means {BOUND}")
    print(
        f"{'missing':12} {'solver':6} {'missing=':9} {'incomplete':>18} {'complete':>18} {'ratio':>6} {'medians':>10}"
    )
    for kind, solver, missing in cases:
        values = []
        for seed in range(options.first, options.first + options.seeds):
            X, full, few = incomplete(kind, seed)
            values.append(errors(X, full, seed, solver, missing, few))
        table = np.array(values)
        mean = table.mean(axis=0)
        median = np.median(table, axis=0)
        ratio = mean[0] / mean[1]
        shown = [f"{m:.5f} ({d:.5f})" for m, d in zip(mean, median, strict=True)]
        verdict = "ok" if ratio <= BOUND else "MISSED"
        print(
            f"{kind:12} {solver:6} {missing:9} {shown[0]:>18} {shown[1]:>18} {ratio:6.2f} "
            f"{median[0] / median[1]:10.2f} {verdict}",
            flush=True,
        )


if __name__ == "__main__":
    main()
