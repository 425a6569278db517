"""Claim: ``overcomplete`` recovers more components than features, exactly from exact covariances.

python benchmarks/overcomplete.py [--seeds 50] [--first 1000]

Columns of A are uniform on the sphere, loadings absolute values of normal numbers. "Mean" and "worst" are 1 - |cos| of
matched columns: over all columns of all seeds, and of the worst column of any seed. "Recovered" counts seeds in which
every column has |cos| >= 0.99. "Chance" is the mean for as many random columns.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from mcpca import match_components, overcomplete
from run import as_markdown

# p, r, k, rows of a context (0: exact covariances), sd of noise in every feature.
CASES = [
    (10, 14, 60, 0, 0.0),
    (10, 14, 60, 20_000, 0.0),
    (10, 14, 60, 2000, 0.0),
    (10, 14, 60, 300, 0.0),
    (10, 14, 60, 20_000, 0.3),
    (10, 14, 14, 0, 0.0),
    (10, 14, 20, 2000, 0.0),
    (10, 20, 60, 2000, 0.0),
    (10, 30, 60, 0, 0.0),
    (10, 40, 60, 0, 0.0),
    (10, 45, 60, 0, 0.0),
    (20, 40, 80, 0, 0.0),
]


def unit_columns(rng: np.random.Generator, p: int, r: int) -> np.ndarray:
    A = rng.standard_normal((p, r))
    return A / np.linalg.norm(A, axis=0)


def draw(seed: int, p: int, r: int, k: int, n: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Return A (p, r) and covariances (k, p, p)."""
    rng = np.random.default_rng(seed)
    A = unit_columns(rng, p, r)
    B = np.abs(rng.standard_normal((k, r)))
    if not n:
        return A, (A * B[:, None, :]) @ A.T + noise**2 * np.eye(p)
    rows = (
        (rng.standard_normal((n, r)) * np.sqrt(b)) @ A.T + noise * rng.standard_normal((n, p)) for b in B
    )  # one context at a time: all rows would be large
    return A, np.stack([np.cov(X, rowvar=False) for X in rows])


def measure(case: tuple, seeds: range) -> dict:
    p, r, k, n, noise = case
    errors, found, closeness, chance, seconds = [], [], [], [], 0.0
    for seed in seeds:
        A, S = draw(seed, *case)
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            result = overcomplete(S, r, random_state=seed)
        seconds += time.perf_counter() - start
        errors.append(1 - match_components(result.components, A, method="optimal").cosines)
        random = unit_columns(np.random.default_rng([seed, 1]), p, r)
        chance.append(1 - match_components(random, A, method="optimal").cosines)
        found.append(result.n_found)
        closeness.append(result.closeness.min())
    worst = np.array([e.max() for e in errors])
    return {
        "p": p,
        "r": r,
        "k": k,
        "rows of a context": n or "exact",
        "noise sd": noise,
        "mean": f"{max(np.mean(errors), 0):.1e}",
        "worst": f"{max(worst.max(), 0):.1e}",
        "recovered": f"{int((worst <= 0.01).sum())} of {len(errors)}",
        "least closeness": f"{min(closeness):.3f}",
        "all maxima": f"{sum(m == r for m in found)} of {len(errors)}",
        "chance": f"{np.mean(chance):.2f}",
        "seconds each": f"{seconds / len(errors):.2f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=1000)
    arguments = parser.parse_args()
    rows = []
    for case in CASES:
        rows.append(measure(case, range(arguments.first, arguments.first + arguments.seeds)))
        print(rows[-1], flush=True)
    print(as_markdown(rows))


if __name__ == "__main__":
    main()
