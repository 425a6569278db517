"""Which solver for which data: every solver on real data and on planted problems, judged by rows it has not seen.

python benchmarks/solver_guide.py [--data DIR] [--planted] [--solvers NAME ...] [--splits 5] [--only NAME ...]

The rows of each context are split into random halves; each half is fitted and judged on the other one, by the judge of
``mcpca.compare_solvers`` (``_inference/held_out.py`` has the formulas). "auto" chooses within the half that it is
given. Columns:

* training, held-out error: ``sum_i ||S_i - A diag(b_i) A^T||_F^2 / sum_i ||S_i||_F^2`` with loadings as fitted, S_i of
  the half that was fitted, and of the other.
* off-diagonal error, error beside isotropic noise: the same with loadings without noise, but for the diagonals, or but
  for a multiple of the identity. The table of the data has those of naive covariances. Features that were reduced by
  PCA are judged by the second.
* log-likelihood: mean per row and feature, with the variances of the fitted half, by one rule for all.
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
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy
import sklearn
from sklearn.exceptions import ConvergenceWarning

import mcpca
import real_data
from mcpca import MCPCA, IdentifiabilityWarning, ascore, match_components
from mcpca._comparison.naive import NAIVE
from mcpca._covariances.fit_data import without_basis
from mcpca._data.contexts import read_contexts
from mcpca._inference.held_out import (
    ANISOTROPIC,
    OFF_DIAGONAL,
    Half,
    SharedAxes,
    deciding_error,
    errors,
    log_likelihood,
)
from mcpca._inference.sampling import split_rows
from mcpca._utils.progress import silent
from mcpca.datasets import make_contexts
from run import as_markdown

TOL = 1e-7
SOLVERS = {
    "mspm": {"solver": "mspm"},
    "lsq": {"solver": "lsq"},
    "ml": {"solver": "ml"},
    "ml-pooled": {"solver": "ml", "noise": "pooled"},
    "ml-diagonal": {"solver": "ml", "noise": "diagonal"},
    "ml-scaled": {"solver": "ml", "noise": "scaled"},
    "auto": {"solver": "auto"},
}
# What the summary ranks solvers by, and whether more of it is better.
JUDGES = {
    "held-out error": False,
    OFF_DIAGONAL: False,
    ANISOTROPIC: False,
    "log-likelihood": True,
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


def halves(X: np.ndarray, y: np.ndarray, seed: int, r: int) -> list[Half]:
    """Return two random halves of every context."""
    contexts = read_contexts(X, y)
    if contexts.n_samples.min() < 4:
        raise ValueError(f"A context has {contexts.n_samples.min()} rows; two halves need 4.")
    return [Half(part, r, TOL) for part in split_rows(contexts, 0.5, np.random.default_rng([seed, 2]))]


def fit(half: Half, r: int, solver: str) -> tuple[MCPCA, bool, float]:
    """Return the model, whether it converged, and the seconds it took."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", ConvergenceWarning)
        warnings.simplefilter("ignore", IdentifiabilityWarning)
        start = time.perf_counter()
        model = MCPCA(r, random_state=0, verbose=False, **SOLVERS[solver]).fit(half.rows)
        seconds = time.perf_counter() - start
    return model, not caught, seconds


def error(S: np.ndarray, model: np.ndarray) -> float:
    return float(((S - model) ** 2).sum() / (S**2).sum())


def judge(fitted: Half, other: Half, model: MCPCA) -> dict[str, float]:
    """Measure a model of one half on both."""
    A = model.components_
    as_fitted = SharedAxes(A, model.loadings_).matrices()
    without_noise = SharedAxes(A, model.corrected_loadings_)
    return {
        "training error": error(fitted.array, as_fitted),
        "held-out error": error(other.array, as_fitted),
        **errors(other, without_noise),
        "log-likelihood": log_likelihood(fitted, other, without_noise),
    }


def ranks(r: int, p: int) -> dict[str, int]:
    """Return the rank, and those too low and too high where they differ from it."""
    candidates = {"": r, " at r/2": max(r // 2, 1), " at 3r/2": min(3 * r // 2, p)}
    return {label: value for label, value in candidates.items() if not label or value != r}


def yardsticks(fitted: Half, other: Half, r: int, judged_by: str) -> dict[str, float]:
    """Held-out errors that need no solver."""
    return {name: errors(other, predict(fitted, r))[judged_by] for name, predict in NAIVE.items()}


def measure(problem: Problem, solvers: list[str], splits: int, log: Callable[[str], None]) -> tuple[dict, list[dict]]:
    """Return a row on the data, and one on each solver and split (means of the two directions)."""
    runs = []
    references = []
    for split in range(splits * problem.repeat):
        X, y, truth = problem.draw(split)
        pair = halves(X, y, split, problem.rank)
        judged_by = deciding_error(without_basis(read_contexts(X, y), problem.rank, silent))
        references += [yardsticks(*order, problem.rank, judged_by) for order in (pair, pair[::-1])]
        for solver in solvers:
            run = {"data": problem.name, "solver": solver, "split": split}
            run |= {"fits": 0, "not converged": 0, "failures": []}
            runs.append(run)
            # A choice at other ranks would take as long again, and say no more of the solver.
            at = {"": problem.rank} if solver == "auto" else ranks(problem.rank, X.shape[1])
            for label, r in at.items():
                try:
                    _measure_rank(run, pair, r, label, truth)
                except (ValueError, np.linalg.LinAlgError) as exception:  # the rest is still worth having
                    run["failures"].append(f"r = {r}: {type(exception).__name__}: {exception}")
                    log(f"{problem.name}  split {split}  {solver}: {run['failures'][-1]}")
        latest = [f"{run['solver']} {run[OFF_DIAGONAL]:.4f}" for run in runs[-len(solvers) :] if "agreement" in run]
        log(f"{problem.name}  split {split}: {OFF_DIAGONAL} {', '.join(latest)}")
    counts = np.unique(y, return_counts=True)[1]
    about = {"data": problem.name, "p, k, r": f"{X.shape[1]}, {len(counts)}, {problem.rank}"}
    about |= {"rows a context": f"{counts.min()}-{counts.max()}", "splits": splits * problem.repeat}
    about |= {name: float(np.mean([row[name] for row in references])) for name in references[0]}
    return about | {"judged by": judged_by, "note": problem.note}, runs


def _measure_rank(run: dict, pair: list[Half], r: int, label: str, truth: np.ndarray | None) -> None:
    fits = [fit(half, r, run["solver"]) for half in pair]
    models = [model for model, _, _ in fits]
    run["fits"] += 2
    run["not converged"] += sum(not converged for _, converged, _ in fits)
    agreement = float(match_components(models[0].components_, models[1].components_).cosines.mean())
    judged = [judge(pair[i], pair[1 - i], models[i]) for i in (0, 1)]
    means = {key: float(np.mean([row[key] for row in judged])) for key in judged[0]}
    if label:
        run["held-out error" + label], run["agreement" + label] = means["held-out error"], agreement
        return
    run.update(means, agreement=agreement, seconds=float(np.mean([taken for _, _, taken in fits])))
    if run["solver"] == "auto":
        run["chosen"] = [model.solver_choice_.best for model in models]
    if truth is not None:
        run["1 - Ascore"] = float(np.mean([1 - ascore(model.components_, truth) for model in models]))


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
        chosen = Counter(choice for run in mine for choice in run.get("chosen", ()))
        row["chosen"] = ", ".join(f"{choice} {n}" for choice, n in chosen.most_common()) or None
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
    parser.add_argument("--solvers", nargs="+", default=["mspm", "lsq", "ml", "ml-scaled", "auto"], choices=SOLVERS)
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
