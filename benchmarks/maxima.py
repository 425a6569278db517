"""Claim: no fit of ``ml`` ends below the likelihood of the truth, whatever the noise of contexts.

python benchmarks/maxima.py [--fits 30] [--seed 0] [--only NAME ...]

The maximum of a likelihood is at least its value at the truth, so a fit that ends below stopped at a lesser maximum.
Above the truth a fit ends by about half a log-unit for each parameter, and "lowest gain" is the least of that. "Below
the climb" counts fits that end lower, by more than 0.1, than a climb that begins at the truth. Problems are those of
``designs.py`` and smaller ones, where likelihoods have more maxima.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from designs import DESIGNS, Design, Drawn, draw
from mcpca import ascore, context_covariances, decompose
from mcpca._covariances.stack import CovarianceStack
from mcpca._model.gaussian import GaussianModel
from mcpca._solvers.scoring import ScoringData, maximise_likelihood
from run import as_markdown


class Problem(NamedTuple):
    """A design, the model that is fitted to it, and whether its components are made orthonormal."""

    design: Design
    noise: str = "isotropic"
    orthogonal: bool = False


UNEQUAL = DESIGNS["noise sd 0.1 to 1.5"]
PROBLEMS = {
    "base": Problem(DESIGNS["base"]),
    "unequal n": Problem(DESIGNS["unequal n"]),
    "noise sd 0.1 to 1.5": Problem(UNEQUAL),
    "the same, k=6, n=100": Problem(replace(UNEQUAL, k=6, rows=100)),
    "the same, k=4, r=4": Problem(replace(UNEQUAL, k=4, r=4)),
    "the same, k=3, r=5": Problem(replace(UNEQUAL, k=3)),
    "the same, k=20, r=10": Problem(replace(UNEQUAL, k=20, r=10)),
    "the same, p=200, n=100": Problem(replace(UNEQUAL, p=200, rows=100)),
    "k=3, r=5": Problem(Design(k=3)),
    "base, pooled": Problem(DESIGNS["base"], "pooled"),
    "k=4, r=5, pooled": Problem(Design(k=4), "pooled"),
    "base, diagonal": Problem(DESIGNS["base"], "diagonal"),
    "k=4, r=5, diagonal": Problem(Design(k=4), "diagonal"),
    "noise by feature and context, scaled": Problem(DESIGNS["noise by feature and context"], "scaled"),
    "the same, k=4, n=100": Problem(replace(DESIGNS["noise by feature and context"], k=4, rows=100), "scaled"),
    "noise sd 0.1 to 1.5, orthogonal": Problem(UNEQUAL, orthogonal=True),
    "k=4, n=100, orthogonal": Problem(replace(UNEQUAL, k=4, rows=100), orthogonal=True),
}


def draw_problem(problem: Problem, seed: int) -> Drawn:
    data = draw(problem.design, seed)
    if not problem.orthogonal:
        return data
    # The polar factor of A: x = z A^T + noise, so that adding z (Q - A)^T puts orthonormal components in its place. The
    # scores z are not kept: they are those of a second draw without noise.
    U, _, Vt = np.linalg.svd(data.components, full_matrices=False)
    Q = U @ Vt
    rng = np.random.default_rng([seed, 3])
    Z = rng.standard_normal((len(data.y), Q.shape[1])) * np.sqrt(data.loadings[data.y])
    X = Z @ Q.T + rng.standard_normal(data.X.shape) * np.sqrt(data.noise[data.y])
    return data._replace(X=X, components=Q)


def log_likelihood(S: np.ndarray, n: np.ndarray, A: Any, B: Any, noise: Any, kind: str) -> float:
    model = GaussianModel.with_noise(A, B, noise, kind)
    stack = CovarianceStack(S)
    return float(n @ model.log_likelihoods(model.likelihood(stack, n)))


def truth_noise(data: Drawn, kind: str) -> np.ndarray:
    """Return the noise of the truth in the form that a fit of this kind has."""
    return {"diagonal": data.noise[0], "scaled": data.noise}.get(kind, data.noise[:, 0])


def climb_from_truth(S: np.ndarray, n: np.ndarray, data: Drawn, kind: str) -> float:
    """Return the log-likelihood of the maximum next to the truth, for noise "isotropic" or "pooled"."""
    k, p, _ = S.shape
    trace = np.einsum("kpp->k", S)
    floor = np.full(k, 1e-9 * trace.max() / p)
    scoring = ScoringData(S, trace, n, p, floor, kind)
    end = maximise_likelihood(scoring, data.components, data.loadings, data.noise[:, 0], 1e-8, 300)
    return float(-end.point.model.value - n.sum() * p * np.log(2 * np.pi) / 2)


def measure(name: str, fits: int, seed: int) -> dict:
    problem = PROBLEMS[name]
    gains = []
    below_climb = []
    angles = []
    unconverged = 0
    seconds = 0.0
    for i in range(seed, seed + fits):
        data = draw_problem(problem, i)
        covariances = context_covariances(data.X, data.y)
        S, counts = covariances.covariances, covariances.n_samples
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fit = decompose(
                S,
                problem.design.r,
                solver="ml",
                noise=problem.noise,
                orthogonal=problem.orthogonal,
                n_samples=counts,
                random_state=i,
            )
        seconds += time.perf_counter() - start
        unconverged += not fit.converged
        n = counts - 1.0
        found = log_likelihood(S, n, fit.components, fit.loadings, fit.noise, problem.noise)
        truth = log_likelihood(S, n, data.components, data.loadings, truth_noise(data, problem.noise), problem.noise)
        gains.append(found - truth)
        if problem.noise in ("isotropic", "pooled") and not problem.orthogonal:
            below_climb.append(found < climb_from_truth(S, n, data, problem.noise) - 0.1)
        angles.append(1 - ascore(fit.components, data.components))
    return {
        "problem": name,
        "fits": fits,
        "below the truth": int(np.sum(np.array(gains) < 0)),
        "below the climb": int(np.sum(below_climb)) if below_climb else None,
        "lowest gain": min(gains),
        "median gain": float(np.median(gains)),
        "median 1 - Ascore": float(np.median(angles)),
        "mean": float(np.mean(angles)),
        "not converged": unconverged,
        "[s] each": seconds / fits,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=30, help="of each problem")
    parser.add_argument("--seed", type=int, default=0, help="of the first data set")
    parser.add_argument("--only", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    args = parser.parse_args()
    rows = []
    for name in args.only:
        rows.append(measure(name, args.fits, args.seed))
    print(as_markdown(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
