"""Claims: ``ml`` reaches the Cramer-Rao bound; on the paper's exactly low-rank problem it is exact.

Efficiency is the bound over the mean error, 1 at best (a little above by chance, or where B >= 0 helps). With three
contexts some truths have two columns of B that are nearly proportional. Their bounds are up to a hundred times those of
others, so that a few data sets decide the ratio of the means: 5% of them hold half of the sum of the bounds, and 40
data sets give 0.7 to 1.3. So the error of each data set is also taken relative to its own bound ("by data set": one
over the mean of these ratios), and there are more data sets of this shape. "From the truth" is the same for the maximum
that a climb from the truth reaches, which no start can be expected to surpass.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from mcpca import ascore, context_covariances, cramer_rao_bound, decompose
from mcpca._solvers.scoring import ScoringData, maximise_likelihood
from mcpca.datasets import PlantedContexts, make_contexts

# p, k, r, samples, noise sd, density of B
PROBLEMS = [
    (30, 20, 12, 1000, 0.1, 1.0),
    (30, 20, 12, 1000, 0.5, 1.0),
    (60, 20, 12, 1000, 0.3, 0.3),
    (16, 12, 12, 1000, 0.3, 1.0),
    (100, 50, 20, 500, 0.3, 0.5),
    (400, 20, 10, 1000, 0.3, 0.5),
    (400, 20, 10, 4000, 0.3, 0.5),
    (30, 3, 5, 1000, 0.5, 1.0),
]
FEW_CONTEXTS = 3  # up to which a shape has MORE times the data sets
MORE = 15
MOST_FEATURES_FROM_TRUTH = 100  # above which a climb in all features takes too long
CLIMB_TOL = 1e-8


def draw(p: int, k: int, r: int, n: int, noise: float, density: float, seed: int):
    data = make_contexts(k, p, r, n_samples=n, noise=noise, density=density, random_state=seed)
    return data, context_covariances(data.X, data.y).covariances


def by_data_set(bounds: list[float], losses: list[float]) -> float:
    return float(1 / np.mean(np.array(losses) / np.array(bounds)))


def maximum_by_truth(S: np.ndarray, data: PlantedContexts, n: int, noise: float) -> np.ndarray:
    """Return the components at the maximum of the likelihood that a climb from the truth reaches."""
    k, p, _ = S.shape
    trace = np.einsum("kpp->k", S)
    scoring = ScoringData(S, trace, np.full(k, n - 1.0), p, np.full(k, 1e-9 * trace.max() / p), "isotropic")
    return maximise_likelihood(scoring, data.components, data.loadings, np.full(k, noise**2), CLIMB_TOL, 300).point.A


def measure(trials: int, log: Callable[[str], None]) -> list[dict]:
    rows = []
    for p, k, r, n, noise, density in PROBLEMS:
        losses: dict[str, list[float]] = {"mspm": [], "lsq": [], "ml": []}
        bounds = []
        from_truth = []
        n_sets = trials * MORE if k <= FEW_CONTEXTS else trials
        for seed in range(n_sets):
            data, S = draw(p, k, r, n, noise, density, seed)
            for solver, found in losses.items():
                result = decompose(S, r, solver=solver, n_samples=n, random_state=seed)
                found.append(1 - ascore(result.components, data.components))
            bounds.append(cramer_rao_bound(data.components, data.loadings, noise**2, n).ascore_loss)
            if p <= MOST_FEATURES_FROM_TRUTH:
                from_truth.append(1 - ascore(maximum_by_truth(S, data, n, noise), data.components))
        row = {"p, k, r, N, noise, density": f"{p}, {k}, {r}, {n}, {noise:g}, {density:g}", "data sets": n_sets}
        row |= {f"1 - Ascore, {solver}": np.mean(found) for solver, found in losses.items()}
        row |= {"bound": np.mean(bounds), "efficiency of ml": np.mean(bounds) / np.mean(losses["ml"]), "bar >=": 0.9}
        row["by data set"] = by_data_set(bounds, losses["ml"])
        row["from the truth"] = by_data_set(bounds, from_truth) if from_truth else None
        row["efficiency of mspm"] = np.mean(bounds) / np.mean(losses["mspm"])
        rows.append(row)
        log(
            f"efficiency  {row['p, k, r, N, noise, density']}: ml {row['efficiency of ml']:.3f}, "
            f"by data set {row['by data set']:.3f}"
        )
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
