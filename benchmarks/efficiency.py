"""Claims: ``ml`` reaches the Cramer-Rao bound; on the paper's exactly low-rank problem it is exact.

Efficiency is the bound over the mean error, 1 at best (a little above by chance, or where B >= 0 helps).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from mcpca import ascore, context_covariances, cramer_rao_bound, decompose
from mcpca.datasets import make_contexts

# p, k, r, samples, noise sd, density of B
PROBLEMS = [
    (30, 20, 12, 1000, 0.1, 1.0),
    (30, 20, 12, 1000, 0.5, 1.0),
    (60, 20, 12, 1000, 0.3, 0.3),
    (16, 12, 12, 1000, 0.3, 1.0),
    (100, 50, 20, 500, 0.3, 0.5),
    (400, 20, 10, 1000, 0.3, 0.5),
    (400, 20, 10, 4000, 0.3, 0.5),
]


def draw(p: int, k: int, r: int, n: int, noise: float, density: float, seed: int):
    data = make_contexts(k, p, r, n_samples=n, noise=noise, density=density, random_state=seed)
    return data, context_covariances(data.X, data.y).covariances


def measure(trials: int, log: Callable[[str], None]) -> list[dict]:
    rows = []
    for p, k, r, n, noise, density in PROBLEMS:
        losses: dict[str, list[float]] = {"mspm": [], "lsq": [], "ml": []}
        bounds = []
        for seed in range(trials):
            data, S = draw(p, k, r, n, noise, density, seed)
            for solver, found in losses.items():
                result = decompose(S, r, solver=solver, n_samples=n, random_state=seed)
                found.append(1 - ascore(result.components, data.components))
            bounds.append(cramer_rao_bound(data.components, data.loadings, noise**2, n).ascore_loss)
        row = {"p, k, r, N, noise, density": f"{p}, {k}, {r}, {n}, {noise:g}, {density:g}", "data sets": trials}
        row |= {f"1 - Ascore, {solver}": np.mean(found) for solver, found in losses.items()}
        row |= {"bound": np.mean(bounds), "efficiency of ml": np.mean(bounds) / np.mean(losses["ml"]), "bar >=": 0.9}
        row["efficiency of mspm"] = np.mean(bounds) / np.mean(losses["mspm"])
        rows.append(row)
        log(f"efficiency  {row['p, k, r, N, noise, density']}: ml {row['efficiency of ml']:.3f}")
    return rows


def measure_low_rank(reference: Callable | None, trials: int, log: Callable[[str], None]) -> list[dict]:
    """Measure on the paper's Fig. 2B problem, without noise and with."""
    rows = []
    for noise in (0.0, 0.1, 0.4):
        power = []
        likelihood = []
        ours = []
        theirs = []
        for seed in range(trials):
            data, S = draw(100, 50, 60, 1000, noise, 0.2, 1000 + seed)
            power.append(1 - ascore(decompose(S, 60, random_state=seed).components, data.components))
            start = time.perf_counter()
            result = decompose(S, 60, solver="ml", n_samples=1000, random_state=seed)
            ours.append(time.perf_counter() - start)
            likelihood.append(1 - ascore(result.components, data.components))
            if reference and noise == 0:
                start = time.perf_counter()
                reference(S, 60, seed)
                theirs.append(time.perf_counter() - start)
        median = float(np.median(likelihood))
        ratio = np.mean(likelihood) / np.mean(power)
        rows.append(
            {
                "noise": noise,
                "data sets": trials,
                "1 - Ascore, mspm": np.mean(power),
                "1 - Ascore, ml": np.mean(likelihood),
                "median, ml": median,
                "median bar <=": 1e-9 if noise == 0 else None,
                "ml / mspm": ratio,
                "bar <=": 0.2 if noise else None,
                "ml [s]": np.median(ours),
                "reference [s]": np.median(theirs) if theirs else None,
            }
        )
        log(f"low rank  noise {noise}: median {median:.1e}, ml / mspm {ratio:.3f}")
    return rows
