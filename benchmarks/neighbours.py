"""MCPCA beside its neighbours on the same rows: PARAFAC2 (TensorLy), PARAFAC2-RISE, MOFA-FLEX, cNMF, PCA.

python benchmarks/neighbours.py [--data DIR] [--planted] [--environment NAME=PYTHON ...] [--methods NAME ...]
    [--splits 3] [--first 0] [--keep FILE]

Each fit runs in a process of its own (``neighbour_workers.py``), by the Python of the environment that has the method:
``--environment rise=rise/bin/python mofaflex=mofa/bin/python cnmf=cnmf/bin/python``. MCPCA, PCA and TensorLy's
PARAFAC2 take the Python of this script. A method whose environment is not given is left out, by name. Processes have
one thread.

The rows of each context are split into random halves. On real data each half is fitted and judged on the other; planted
rows are fitted in one half. Columns:

* error: of the covariances of log-normalised features in the half that was not fitted, off their diagonals, as
  ``mcpca.compare_solvers`` has it; 0 at best, 1 for a model that predicts nothing. "by scores" takes the covariances
  of the fitted scores in each context, r (r + 1) / 2 numbers, for all methods alike; "by formula" those that the model
  has, r numbers: of scores that are uncorrelated, or correlated alike in all contexts. Naive covariances are beside.
* agreement, share above 0.9: matched |cos| of the axes of the two halves, their mean, and how many are above 0.9.
* CPU: seconds of one fit by the processor, in units of MCPCA's of the same half; wall time likewise.
* memory: largest resident memory of the process less that before the fit, in MB.
* recovery: of what was planted, the mean matched |cos| of axes, or |correlation| of scores, as the problem says.

``--keep FILE`` holds what was measured; what it has is not measured again, so that a run can go on where it ended.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import real_data
from mcpca import ascore, match_components
from mcpca._comparison.naive import NAIVE
from mcpca._data.contexts import read_contexts
from mcpca._inference.held_out import OFF_DIAGONAL, Half, Matrices, errors
from mcpca.datasets import make_contexts

WORKER = Path(__file__).with_name("neighbour_workers.py")
OURS = ("mcpca", "mcpca auto", "pca", "parafac2")  # by the Python of this script
THEIRS = ("rise", "mofaflex", "cnmf")  # by that of their environment
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
UNIT = "mcpca"  # whose times are 1
BY_SCORES, BY_FORMULA = "error by scores", "error by formula"


@dataclass(frozen=True)
class Rows:
    """Rows, contexts from 0, counts where there are any, and what was planted: axes (p, r) or scores (n, r)."""

    X: np.ndarray
    y: np.ndarray
    counts: np.ndarray | None = None
    axes: np.ndarray | None = None
    scores: np.ndarray | None = None

    def part(self, rows: np.ndarray) -> Rows:
        """Return some of the rows."""
        return Rows(
            *(None if v is None else v[rows] for v in (self.X, self.y, self.counts)), self.axes, self.scores_of(rows)
        )

    @property
    def planted(self) -> dict[str, np.ndarray]:
        """What was planted, by its name."""
        return {name: value for name in ("axes", "scores") if (value := getattr(self, name)) is not None}

    def scores_of(self, rows: np.ndarray) -> np.ndarray | None:
        """Return the planted scores of some rows."""
        return None if self.scores is None else self.scores[rows]


@dataclass(frozen=True)
class Problem:
    """``draw(seed)`` gives rows; ``both`` halves are fitted, or the first only."""

    name: str
    r: int
    draw: Callable[[int], Rows]
    both: bool = False


# Real data ---------------------------------------------------------------------------------------------------------


def melanoma(directory: Path) -> Problem:
    data = real_data.load("melanoma_patients", directory, axes=False)
    # Values are log2(TPM / 10 + 1).
    rows = Rows(data.X, np.unique(data.y, return_inverse=True)[1], np.exp2(data.X) - 1)
    return Problem("melanoma_patients", data.rank, lambda seed: rows, both=True)


def papalexi(directory: Path, contexts: int = 10, cells: int = 300) -> Problem:
    """Take genes that 5% of the cells have, and as many cells of each of the largest contexts."""
    counts, y = real_data.papalexi_counts(directory)
    counts = counts[:, (counts > 0).mean(axis=0) > 0.05]
    names, sizes = np.unique(y, return_counts=True)
    largest = names[np.argsort(-sizes, kind="stable")[:contexts]]
    rng = np.random.default_rng(0)
    some = np.concatenate([rng.choice(np.flatnonzero(y == name), cells, replace=False) for name in largest])
    counts, y = counts[some], np.repeat(np.arange(contexts), cells)
    kept = counts.any(axis=1)
    counts, y = counts[kept], y[kept]
    rows = Rows(real_data.log_normalised(counts), y, counts)
    return Problem("perturb_papalexi", 7, lambda seed: rows, both=True)


# Planted truth -----------------------------------------------------------------------------------------------------

K, P, R, N = 8, 40, 4, 300


def _axes(rng: np.random.Generator, density: float = 1.0) -> np.ndarray:
    A = rng.standard_normal((P, R)) * (rng.random((P, R)) < density)
    return A / np.linalg.norm(A, axis=0)


def _gaussian(A: np.ndarray, C: np.ndarray, rng: np.random.Generator, means: np.ndarray | None = None) -> Rows:
    """Rows with covariances ``A C_i A^T + 0.04 I`` about ``means`` (k, p)."""
    y = np.repeat(np.arange(len(C)), N)
    roots = np.linalg.cholesky(C)
    Z = np.einsum("nr,nsr->ns", rng.standard_normal((len(y), C.shape[1])), roots[y])
    X = Z @ A.T + 0.2 * rng.standard_normal((len(y), len(A)))
    return Rows(X if means is None else X + means[y], y, axes=A)


def uncorrelated(seed: int) -> Rows:
    """MCPCA's model."""
    data = make_contexts(K, P, R, n_samples=N, noise=0.2, density=0.6, random_state=seed)
    return Rows(data.X, data.y, axes=data.components)


def correlated(seed: int) -> Rows:
    """PARAFAC2's model: scores correlate by 0.7, in all contexts alike."""
    rng = np.random.default_rng([seed, 1])
    D = np.sqrt(np.abs(rng.standard_normal((K, R))) + 0.05)
    return _gaussian(_axes(rng), D[:, :, None] * (0.3 * np.eye(R) + 0.7) * D[:, None, :], rng)


def shifted(seed: int) -> Rows:
    """Contexts with the same covariance; the mean of each is moved along one axis."""
    rng = np.random.default_rng([seed, 2])
    A = _axes(rng)
    return _gaussian(A, np.tile(np.eye(R) * 0.5, (K, 1, 1)), rng, 1.5 * A.T[np.arange(K) % R])


def sparse(seed: int) -> Rows:
    """MOFA's priors: an axis has a fifth of the features; all have the same variance in all contexts."""
    rng = np.random.default_rng([seed, 3])
    return _gaussian(_axes(rng, 0.2), np.tile(np.eye(R), (K, 1, 1)), rng)


def programmes(seed: int) -> Rows:
    """Draw counts by cNMF's model, ``Poisson(depth usages spectra)``; cells use few, contexts prefer some."""
    rng = np.random.default_rng([seed, 4])
    spectra = rng.gamma(0.3, size=(R, P)) + 0.02
    spectra /= spectra.sum(axis=1, keepdims=True)
    y = np.repeat(np.arange(K), N)
    preferences = rng.dirichlet(np.full(R, 1.0), size=K)
    usages = np.array([rng.dirichlet(0.8 * preferences[i] + 0.02) for i in y])
    counts = rng.poisson(rng.lognormal(np.log(400), 0.3, size=(len(y), 1)) * usages @ spectra).astype(float)
    return Rows(real_data.log_normalised(counts), y, counts, scores=usages)


PLANTED = {
    "uncorrelated scores": uncorrelated,
    "correlated scores": correlated,
    "shifted means": shifted,
    "sparse axes": sparse,
    "non-negative programmes": programmes,
}


# Measures ----------------------------------------------------------------------------------------------------------


def halves(rows: Rows, seed: int) -> list[Rows]:
    """Return two random halves of every context."""
    rng = np.random.default_rng([seed, 5])
    first = np.zeros(len(rows.y), dtype=bool)
    for i in range(rows.y.max() + 1):
        mine = rng.permutation(np.flatnonzero(rows.y == i))
        first[mine[: len(mine) // 2]] = True
    return [rows.part(np.flatnonzero(first)), rows.part(np.flatnonzero(~first))]


def covariances(rows: Rows, r: int) -> Half:
    return Half(read_contexts(rows.X, rows.y), r, 1e-7)


def off_diagonal_error(other: Half, basis: np.ndarray, C: np.ndarray) -> float:
    """Return the error of ``basis C_i basis^T`` in a half that was not fitted."""
    return errors(other, Matrices(basis @ C @ basis.T))[OFF_DIAGONAL]


def by_context(Z: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the covariances (k, r, r) of scores within contexts."""
    return np.array([np.cov(Z[y == i], rowvar=False).reshape(Z.shape[1], Z.shape[1]) for i in range(y.max() + 1)])


def agreement(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Return the mean |cos| of matched axes, and the share above 0.9; an axis that is 0 agrees with none."""
    cosines = match_components(*(_something(A) for A in (first, second))).cosines
    found = np.array(cosines)
    return float(found.mean()), float((found > 0.9).mean())


def _something(A: np.ndarray) -> np.ndarray:
    """Return axes in which those that a method has switched off have a direction, that of the last feature."""
    A = A.copy()
    A[-1, ~A.any(axis=0)] = 1
    return A


def recovery(rows: Rows, answer: dict) -> float:
    """Return the mean matched |cos| of axes with those planted, or of scores, less the means of contexts."""
    if rows.scores is None:
        return float(ascore(_something(answer["axes"]), rows.axes))
    parts = [
        np.vstack([Z[rows.y == i] - Z[rows.y == i].mean(axis=0) for i in range(rows.y.max() + 1)])
        for Z in (answer["scores"], rows.scores)
    ]
    return float(match_components(*parts).cosines.mean())


class Failure(RuntimeError):
    """A worker ended with an error; its last line is the message."""


def fit(method: str, python: str, rows: Rows, r: int, seed: int) -> dict:
    """Run one method in a process of its own, in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.npz", Path(folder) / "out.npz"
        extra = {} if rows.counts is None else {"counts": rows.counts}
        np.savez(source, X=rows.X, y=rows.y, r=r, seed=seed, **extra)
        # CI: no lines of progress from parafac2.
        environment = os.environ | dict.fromkeys(THREADS, "1") | {"CI": "1"}
        command = [python, str(WORKER), method, str(source), str(target)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
        if done.returncode:
            raise Failure((done.stderr.strip().splitlines() or ["no message"])[-1])
        with np.load(target) as file:
            return {key: file[key] if file[key].ndim else file[key].item() for key in file}


def measure(problem: Problem, method: str, python: str, split: int) -> dict:
    """Return one row of what was measured for one split, means over its fits."""
    parts = halves(problem.draw(split), split)
    fitted = parts if problem.both else parts[:1]
    answers = [fit(method, python, rows, problem.r, split) for rows in fitted]
    others = [covariances(rows, problem.r) for rows in parts[::-1]]
    row = {"data": problem.name, "method": method, "split": split, "version": answers[0]["version"]}
    for rows, other, answer in zip(fitted, others, answers, strict=False):
        found = {BY_SCORES: by_context(answer["scores"], rows.y)}
        found |= {BY_FORMULA: answer["covariances"]} if "covariances" in answer else {}
        for name, C in found.items():
            row[name] = row.get(name, 0) + off_diagonal_error(other, answer["basis"], C) / len(fitted)
    if problem.both:
        row["agreement"], row["share above 0.9"] = agreement(*(answer["axes"] for answer in answers))
    else:
        row["recovery"] = recovery(fitted[0], answers[0])
    for key in ("cpu", "wall", "steps"):
        row[key] = float(np.mean([answer[key] for answer in answers]))
    row["memory"] = float(np.mean([answer["peak"] - answer["before"] for answer in answers])) / 1e6
    row["not converged"] = sum(not answer["converged"] for answer in answers)
    row["warned"] = "; ".join(sorted({str(answer["warned"]) for answer in answers} - {""}))
    return row


def chance(rows: Rows, r: int, seed: int, draws: int = 50) -> float:
    """Return the mean recovery by random axes of the planted span: that of a method that finds the span alone."""
    rng = np.random.default_rng([seed, 6])
    mixed = rng.standard_normal((draws, r, r))
    return float(np.mean([recovery(rows, {k: v @ G for k, v in rows.planted.items()}) for G in mixed]))


def naive(problem: Problem, split: int) -> list[dict]:
    """Return the errors of covariances that need no components, and for planted rows the recovery by chance."""
    rows = problem.draw(split)
    found = {"data": problem.name, "method": "random axes of the planted span", "split": split}
    by_chance = [found | {"recovery": chance(rows, problem.r, split)}] if rows.planted else []
    parts = [covariances(rows, problem.r) for rows in halves(rows, split)]
    return by_chance + [
        {
            "data": problem.name,
            "method": name,
            "split": split,
            BY_FORMULA: float(
                np.mean([errors(b, predict(a, problem.r))[OFF_DIAGONAL] for a, b in (parts, parts[::-1])])
            ),
        }
        for name, predict in NAIVE.items()
    ]


def summary(runs: list[dict]) -> list[dict]:
    """One row per data set and method: means over splits, times in units of those of MCPCA in the same split."""
    unit = {(run["data"], run["split"]): run for run in runs if run["method"] == UNIT}
    rows = []
    for data, method in dict.fromkeys((run["data"], run["method"]) for run in runs):
        mine = [run for run in runs if (run["data"], run["method"]) == (data, method)]
        row = {"data": data, "method": method, "splits": len(mine)}
        for column in (BY_SCORES, BY_FORMULA, "agreement", "share above 0.9", "recovery"):
            values = [run[column] for run in mine if column in run]
            row[column] = f"{np.mean(values):.3f} ± {np.std(values):.3f}" if values else "-"
        timed = [(run, unit[data, run["split"]]) for run in mine if "cpu" in run and (data, run["split"]) in unit]
        for column in ("cpu", "wall"):
            row[column] = f"{np.mean([a[column] / b[column] for a, b in timed]):.3g}" if timed else "-"
        row["memory"] = f"{np.mean([run['memory'] for run in mine]):.0f}" if timed else "-"
        row["not converged"] = sum(run.get("not converged", 0) for run in mine)
        rows.append(row)
    return rows


def as_markdown(rows: list[dict]) -> str:
    """Return a table of texts and integers; columns in which nothing was measured are left out."""
    head = [name for name in rows[0] if any(row[name] != "-" for row in rows)]
    return "\n".join(
        "| " + " | ".join(map(str, line)) + " |"
        for line in [head, ["---"] * len(head), *([row[h] for h in head] for row in rows)]
    )


def problems(data: str | None, planted: bool) -> list[Problem]:
    found = [make(Path(data)) for make in (melanoma, papalexi)] if data else []
    return found + [Problem(name, R, draw) for name, draw in PLANTED.items()] * planted


def suits(method: str, rows: Rows) -> bool:
    """Whether a method can see these rows: cNMF needs values that are not negative."""
    return method != "cnmf" or rows.counts is not None


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of real data; without it there are none")
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--only", nargs="+", help="names of data sets or planted problems")
    parser.add_argument("--methods", nargs="+", choices=[*OURS, *THEIRS], default=[*OURS, *THEIRS])
    parser.add_argument("--environment", nargs="+", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--keep", help="a JSON file of what was measured, read and added to")
    return parser.parse_args(given)


def environments(given: list[str]) -> dict[str, str]:
    """Return the Python of each environment; raise on what is not NAME=PYTHON with a known name and a file."""
    found = {}
    for text in given:
        name, _, python = text.partition("=")
        if name not in THEIRS:
            raise SystemExit(f"--environment {text}: the name is one of {', '.join(THEIRS)}, as in cnmf=PYTHON.")
        if not Path(python).is_file():
            raise SystemExit(f"--environment {text}: {python or 'nothing'} is no file; pass the environment's python.")
        found[name] = os.path.abspath(python)  # not resolved: a link is what makes it that environment
    return found


def main(given: list[str] | None = None) -> None:
    args = arguments(given)
    pythons = environments(args.environment)
    missing = [m for m in args.methods if m in THEIRS and m not in pythons]
    for method in missing:
        print(f"{method}: left out, no --environment {method}=PYTHON", file=sys.stderr)
    methods = [m for m in args.methods if m not in missing]
    kept = Path(args.keep) if args.keep else None
    runs = json.loads(kept.read_text()) if kept and kept.exists() else []
    done = {(run["data"], run["method"], run["split"]) for run in runs}
    failures = []

    def keep() -> None:
        if kept:
            kept.write_text(json.dumps(runs, indent=1))

    for problem in problems(args.data, args.planted):
        if args.only and problem.name not in args.only:
            continue
        for split in range(args.first, args.first + args.splits):
            rows = problem.draw(split)
            runs += [row for row in naive(problem, split) if (row["data"], row["method"], split) not in done]
            keep()
            for method in methods:
                if (problem.name, method, split) in done or not suits(method, rows):
                    continue
                start = time.perf_counter()
                try:
                    run = measure(problem, method, pythons.get(method, sys.executable), split)
                except Failure as failure:
                    failures.append(f"{problem.name}, {method}, split {split}: {failure}")
                    print(failures[-1], file=sys.stderr)
                    continue
                runs.append(run)
                judged = f"{run[BY_SCORES]:.3f} {run.get('agreement', run.get('recovery')):.3f}"
                print(
                    f"{problem.name} {split} {method}: {judged} ({time.perf_counter() - start:.0f} s)", file=sys.stderr
                )
                keep()
    for data in dict.fromkeys(run["data"] for run in runs):
        print(f"\n{data}\n\n{as_markdown(summary([run for run in runs if run['data'] == data]))}")
    versions = sorted({run["version"] for run in runs if "version" in run})
    print(f"\n{'; '.join(versions)}; Python {platform.python_version()}")
    for line in sorted({f"{run['data']}, {run['method']}: {run['warned']}" for run in runs if run.get("warned")}):
        print(line)
    for line in failures:
        print("failed: " + line)


if __name__ == "__main__":
    main()
