"""Which solver for which data: every solver on real data and on planted problems, judged by rows it has not seen.

python benchmarks/solver_guide.py [--data DIR] [--planted] [--solvers NAME ...] [--splits 5] [--only NAME ...]

The rows of each context are split into random halves; each half is fitted and judged on the other one. Columns:

* training, held-out error: ``sum_i ||S_i - A diag(b_i) A^T||_F^2 / sum_i ||S_i||_F^2``, S_i of the half that was
  fitted, and of the other. Sampling alone puts a floor under the second: the table of the data has the errors of the
  fitted half's covariances themselves, of their average, and of the first r principal axes of that average, with
  loadings by non-negative least squares.
* held-out error + s: of ``A diag(b_i) A^T + s_i I`` with the s_i >= 0 that suit the fitted half best. Loadings of a
  solver that models noise do not contain the noise; this compares them with those that do.
* held-out log-lik.: mean Gaussian log-likelihood per row and feature under ``A diag(b_i) A^T + s_i I``. s_i is the
  solver's own noise; for a solver that has none, the variance that the fitted half has outside the span of A, per
  dimension. With r = p there is no outside, a small constant stands in, and a loading of 0 is punished by its size.
* log-lik., refitted s: s_i maximises the likelihood of the fitted half, A and B given. One rule for all solvers, so
  that it compares A and B only.
* agreement: mean |cos| of the matched components of the two halves. At ranks r/2 and 3r/2 it and the held-out error say
  what happens when the rank is chosen too low or too high.
* 1 - Ascore: distance from the truth, for planted problems.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy
import sklearn
from sklearn.exceptions import ConvergenceWarning

import mcpca
import real_data
from mcpca import (
    ContextCovariances,
    IdentifiabilityWarning,
    ascore,
    context_covariances,
    decompose,
    match_components,
    nonnegative_loadings,
)
from mcpca._model.gaussian import GaussianModel
from mcpca.datasets import make_contexts
from run import as_markdown

FLOOR = 1e-3  # of the mean variance of a feature: the least noise given to a solver that has none of its own
TINY = 1e-6  # the same where likelihood or a solver decides
SOLVERS = {
    "mspm": {"solver": "mspm"},
    "lsq": {"solver": "lsq"},
    "ml": {"solver": "ml"},
    "ml-pooled": {"solver": "ml", "noise": "pooled"},
    "ml-diagonal": {"solver": "ml", "noise": "diagonal"},
}
# What the summary ranks solvers by, and whether more of it is better.
JUDGES = {
    "held-out error": False,
    "held-out error + s": False,
    "held-out log-lik.": True,
    "log-lik., refitted s": True,
    "agreement": True,
}


@dataclass(frozen=True)
class Problem:
    """``draw(seed)`` gives rows, labels and the truth or None; planted problems have fresh rows for every seed.

    ``repeat`` times the number of splits asked for are taken: small data cost nothing, and their halves differ a lot.
    """

    name: str
    rank: int
    note: str
    repeat: int
    draw: Callable[[int], tuple[np.ndarray, np.ndarray, np.ndarray | None]]


def real(name: str, directory: str) -> Problem:
    data = real_data.load(name, directory)
    return Problem(name, data.rank, data.note, 10 if len(data.y) < 500 else 1, lambda seed: (data.X, data.y, None))


def planted(name: str, k: int, p: int, r: int, note: str, *, change: Callable | None = None, **options) -> Problem:
    """``change(X, y, rng)`` turns the rows of ``make_contexts`` into those of a problem it does not make itself."""

    def draw(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        data = make_contexts(k, p, r, random_state=seed, **options)
        # Not the stream of make_contexts: its first numbers are the components.
        X, y = change(data.X, data.y, np.random.default_rng([seed, 1])) if change else (data.X, data.y)
        return X, y, data.components

    return Problem(name, r, note, 4, draw)


def noise_by_context(X: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    levels = rng.permutation(np.geomspace(0.05, 0.8, y.max() + 1))
    return X + levels[y][:, None] * rng.standard_normal(X.shape), y


def noise_by_feature(X: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Add variances that spread over two orders of magnitude: no multiple of the identity describes them."""
    levels = 0.3 * np.exp(0.5 * rng.standard_normal(X.shape[1]))
    return X + levels * rng.standard_normal(X.shape), y


def rows_by_context(X: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Keep between 4% and all of the rows of a context."""
    n = len(y) // (y.max() + 1)
    counts = rng.permutation(np.geomspace(0.04 * n, n, y.max() + 1)).round()
    keep = np.arange(len(y)) % n < counts[y]
    return X[keep], y[keep]


def planted_problems() -> list[Problem]:
    return [
        planted("noise 0.1", 20, 30, 8, "dense B", n_samples=200, noise=0.1),
        planted("noise 0.4", 20, 30, 8, "dense B", n_samples=200, noise=0.4),
        planted("few rows", 20, 30, 8, "40 rows a context", n_samples=40, noise=0.2),
        planted("sparse B", 30, 30, 8, "a fifth of B is not zero", n_samples=200, noise=0.2, density=0.2),
        planted("many components", 30, 40, 24, "a fifth of B is not zero", n_samples=400, noise=0.1, density=0.2),
        planted("few contexts", 3, 30, 6, "dense B", n_samples=400, noise=0.2),
        planted("orthogonal A", 10, 30, 6, "dense B", n_samples=200, noise=0.2, orthogonal=True),
        planted("unequal rows", 20, 30, 8, "40 to 1000 rows", n_samples=1000, noise=0.2, change=rows_by_context),
        planted("unequal noise", 20, 30, 8, "sd 0.05 to 0.8 by context", n_samples=200, change=noise_by_context),
        planted("diagonal noise", 20, 30, 8, "sd differs by feature", n_samples=200, change=noise_by_feature),
    ]


def halves(X: np.ndarray, y: np.ndarray, seed: int) -> list[ContextCovariances]:
    """Covariances of two random halves of every context."""
    rng = np.random.default_rng([seed, 2])
    first = np.zeros(len(y), dtype=bool)
    for name in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == name))
        if len(rows) < 4:
            raise ValueError(f"Context {name!r} has {len(rows)} rows; two halves need 4.")
        first[rows[: len(rows) // 2]] = True
    return [context_covariances(X[half], y[half]) for half in (first, ~first)]


def fit(data: ContextCovariances, r: int, solver: str) -> tuple[mcpca.Decomposition, float]:
    """Return the decomposition and the seconds it took."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # counted
        warnings.simplefilter("ignore", IdentifiabilityWarning)
        start = time.perf_counter()
        result = decompose(data.covariances, r, n_samples=data.n_samples, random_state=0, **SOLVERS[solver])
        return result, time.perf_counter() - start


def error(S: np.ndarray, model: np.ndarray) -> float:
    return float(((S - model) ** 2).sum() / (S**2).sum())


def covariances(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return (A * B[:, None, :]) @ A.T


def mean_variances(S: np.ndarray) -> np.ndarray:
    return np.trace(S, axis1=1, axis2=2) / S.shape[1]


def outside_noise(S: np.ndarray, A: np.ndarray) -> np.ndarray:
    """Variance outside the span of A per dimension (k,), at least a small share of the mean variance."""
    p, r = A.shape
    least = FLOOR * mean_variances(S)
    if r == p:
        return least
    Q = np.linalg.qr(A)[0]
    inside = np.einsum("pj,kpq,qj->k", Q, S, Q, optimize=True)
    return np.maximum((np.trace(S, axis1=1, axis2=2) - inside) / (p - r), least)


class Gaussian:
    """``N(0, M_i + s_i I)`` for any s_i, from one eigendecomposition ``M_i = V diag(m) V^T`` of each context."""

    def __init__(self, M: np.ndarray) -> None:
        m, self.vectors = np.linalg.eigh(M)
        self.m = np.maximum(m, 0)

    def log_likelihoods(self, S: np.ndarray, s: np.ndarray) -> np.ndarray:
        """Per row and feature, of rows with covariances S (k, p, p), for each of n values s (k, n)."""
        d = np.einsum("kpj,kpq,kqj->kj", self.vectors, S, self.vectors, optimize=True)
        v = self.m[:, None, :] + s[:, :, None]
        return -0.5 * (np.log(2 * np.pi * v) + d[:, None, :] / v).mean(axis=2)

    def best_noise(self, S: np.ndarray) -> np.ndarray:
        """Return the s_i (k,) of highest likelihood for S, to 2%: the likelihood is flat there."""
        grid = np.geomspace(TINY, 2, 400) * mean_variances(S)[:, None]
        return np.take_along_axis(grid, self.log_likelihoods(S, grid).argmax(axis=1)[:, None], axis=1)[:, 0]


def judge(fitted: ContextCovariances, other: ContextCovariances, result: mcpca.Decomposition) -> dict[str, float]:
    """Measure a decomposition of one half on both."""
    S = fitted.covariances
    A = result.components
    B = result.loadings
    M = covariances(A, B)
    gaussian = Gaussian(M)
    noise = outside_noise(S, A) if result.noise is None else result.noise
    choices = [noise if len(noise) == len(S) else mean_variances(S), gaussian.best_noise(S)]
    each = gaussian.log_likelihoods(other.covariances, np.stack(choices, axis=1))
    given, refitted = np.average(each, axis=0, weights=other.n_samples)
    if len(noise) != len(S):  # by feature
        model = GaussianModel(A, B, noise, True)
        densities = model.log_likelihoods(model.likelihood(other.covariances, other.n_samples))
        given = float(np.average(densities, weights=other.n_samples)) / len(A)
    constant = np.maximum(mean_variances(S - M), 0)
    return {
        "training error": error(S, M),
        "held-out error": error(other.covariances, M),
        "held-out error + s": error(other.covariances, M + constant[:, None, None] * np.eye(len(A))),
        "held-out log-lik.": given,
        "log-lik., refitted s": refitted,
    }


def ranks(r: int, p: int) -> dict[str, int]:
    """Return the rank, and those too low and too high where they differ from it."""
    candidates = {"": r, " at r/2": max(r // 2, 1), " at 3r/2": min(3 * r // 2, p)}
    return {label: value for label, value in candidates.items() if not label or value != r}


def yardsticks(fitted: ContextCovariances, other: ContextCovariances, r: int) -> dict[str, float]:
    """Held-out errors that need no solver."""
    S = fitted.covariances
    average = np.average(S, axis=0, weights=fitted.n_samples)
    axes = np.linalg.eigh(average)[1][:, -r:]
    models = {
        "error of S_i": S,
        "error of the average": average,
        "error of its PCA": covariances(axes, nonnegative_loadings(S, axes)),
    }
    return {name: error(other.covariances, model) for name, model in models.items()}


def measure(problem: Problem, solvers: list[str], splits: int, log: Callable[[str], None]) -> tuple[dict, list[dict]]:
    """Return a row on the data, and one on each solver and split (means of the two directions)."""
    runs = []
    references = []
    for split in range(splits * problem.repeat):
        X, y, truth = problem.draw(split)
        pair = halves(X, y, split)
        references += [yardsticks(*pair, problem.rank), yardsticks(*pair[::-1], problem.rank)]
        for solver in solvers:
            run = {"data": problem.name, "solver": solver, "split": split}
            run |= {"fits": 0, "not converged": 0, "failures": []}
            runs.append(run)
            for label, r in ranks(problem.rank, X.shape[1]).items():
                try:
                    _measure_rank(run, pair, r, label, truth)
                except (ValueError, np.linalg.LinAlgError) as exception:  # the rest is still worth having
                    run["failures"].append(f"r = {r}: {type(exception).__name__}: {exception}")
                    log(f"{problem.name}  split {split}  {solver}: {run['failures'][-1]}")
        latest = [f"{run['solver']} {run['held-out error']:.4f}" for run in runs[-len(solvers) :] if "agreement" in run]
        log(f"{problem.name}  split {split}: held-out error {', '.join(latest)}")
    counts = np.unique(y, return_counts=True)[1]
    about = {"data": problem.name, "p, k, r": f"{X.shape[1]}, {len(counts)}, {problem.rank}"}
    about |= {"rows a context": f"{counts.min()}-{counts.max()}", "splits": splits * problem.repeat}
    about |= {name: float(np.mean([row[name] for row in references])) for name in references[0]}
    return about | {"note": problem.note}, runs


def _measure_rank(run: dict, pair: list[ContextCovariances], r: int, label: str, truth: np.ndarray | None) -> None:
    fits = [fit(half, r, run["solver"]) for half in pair]
    results = [result for result, _ in fits]
    run["fits"] += 2
    run["not converged"] += sum(not result.converged for result in results)
    agreement = float(match_components(results[0].components, results[1].components).cosines.mean())
    judged = [judge(pair[i], pair[1 - i], results[i]) for i in (0, 1)]
    means = {key: float(np.mean([row[key] for row in judged])) for key in judged[0]}
    if label:
        run["held-out error" + label], run["agreement" + label] = means["held-out error"], agreement
        return
    run.update(means, agreement=agreement, seconds=float(np.mean([taken for _, taken in fits])))
    if truth is not None:
        run["1 - Ascore"] = float(np.mean([1 - ascore(result.components, truth) for result in results]))


COLUMNS = ("training error", *JUDGES, "held-out error at r/2", "held-out error at 3r/2")
COLUMNS += ("agreement at r/2", "agreement at 3r/2", "1 - Ascore")


def table(runs: list[dict]) -> list[dict]:
    """One row per data set and solver: means over the splits where there is a value."""
    rows = []
    for data, solver in dict.fromkeys((run["data"], run["solver"]) for run in runs):
        mine = [run for run in runs if (run["data"], run["solver"]) == (data, solver)]
        row = {"data": data, "solver": solver}
        for column in COLUMNS:
            if any(column in run for run in runs):
                values = [run[column] for run in mine if column in run]
                row[column] = f"{np.mean(values):.4f}" if values else None
        fits = sum(run["fits"] for run in mine)
        failed = sum(len(run["failures"]) for run in mine)
        row["not converged"] = f"{sum(run['not converged'] for run in mine)} of {fits}"
        row["not converged"] += f", {failed} failed" if failed else ""
        row["seconds"] = np.mean([run["seconds"] for run in mine if "seconds" in run] or [np.nan])
        rows.append(row)
    return rows


def summary(runs: list[dict], solvers: list[str]) -> tuple[list[dict], list[dict]]:
    """Say who is best on each data set and by how much, and how often each solver is.

    The margin is to the second best, with the standard error of the paired difference over splits, and clear if it is
    more than two of them. Splits of the same rows are not independent: a reading aid, not a test.
    """
    rows = []
    won = {solver: {column: [0, 0] for column in JUDGES} for solver in solvers}
    for data in dict.fromkeys(run["data"] for run in runs):
        here = {solver: [run for run in runs if (run["data"], run["solver"]) == (data, solver)] for solver in solvers}
        here = {solver: mine for solver, mine in here.items() if all("agreement" in run for run in mine)}
        row = {"data": data}
        if len(here) > 1:
            for column, more_is_better in JUDGES.items():
                values = {solver: np.array([run[column] for run in mine]) for solver, mine in here.items()}
                means = {solver: v.mean() for solver, v in values.items()}
                best, second, *_ = sorted(means, key=means.__getitem__, reverse=more_is_better)
                gaps = values[best] - values[second]
                spread = gaps.std(ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else np.nan
                clear = bool(abs(gaps.mean()) > 2 * spread)
                won[best][column][0] += 1
                won[best][column][1] += clear
                row[column] = f"{best} by {abs(gaps.mean()):.2g} ± {spread:.1g}{'' if clear else ', unclear'}"
        rows.append(row)
    counts = [
        {"solver": solver} | {column: f"{best} ({clear} clear)" for column, (best, clear) in won[solver].items()}
        for solver in solvers
    ]
    return rows, counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", metavar="DIR", help="folder with the real data, one sub-folder per source")
    parser.add_argument("--planted", action="store_true", help="planted problems too")
    parser.add_argument("--solvers", nargs="+", default=["mspm", "lsq", "ml", "ml-diagonal"], choices=SOLVERS)
    parser.add_argument("--splits", type=int, default=5, help="random halves (planted problems 4, small data 10 times)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these data sets or planted problems only")
    parser.add_argument("--output", default="benchmark-output", type=Path)
    args = parser.parse_args()
    if not (args.data or args.planted):
        parser.error("nothing to measure: give --data DIR, --planted, or both")
    if args.splits < 1:
        parser.error("--splits must be at least 1")

    def log(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    solvers = args.solvers
    sources = {name: (lambda name=name: real(name, args.data)) for name in real_data.NAMES if args.data}
    sources |= {problem.name: (lambda problem=problem: problem) for problem in planted_problems() if args.planted}
    if unknown := set(args.only or ()) - set(sources):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(sources)}")

    about = []
    runs = []
    for name, source in sources.items():
        if not args.only or name in args.only:
            row, more = measure(source(), solvers, args.splits, log)
            about.append(row)
            runs += more

    sections = {"Data": about, "Solvers": table(runs)}
    if len(solvers) > 1:
        sections["Best by"], sections["Best, in how many data sets"] = summary(runs, solvers)
    text = "\n\n".join(f"## {name}\n\n{as_markdown(rows)}" for name, rows in sections.items())
    print(text)
    args.output.mkdir(parents=True, exist_ok=True)
    versions = {"mcpca": mcpca.__version__, "numpy": np.__version__, "scipy": scipy.__version__}
    versions |= {"scikit-learn": sklearn.__version__, "python": platform.python_version()}
    (args.output / "solver_guide.md").write_text(text + "\n")
    content = {"versions": versions, "splits": args.splits, **sections, "runs": runs}
    (args.output / "solver_guide.json").write_text(json.dumps(content, indent=1, default=float))
    log(f"\nwritten to {args.output}/")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
