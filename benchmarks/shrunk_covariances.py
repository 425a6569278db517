"""Covariances of contexts against those of unseen rows: ``MCPCA.covariances(X, y)``, its parts, and peers.

python benchmarks/shrunk_covariances.py [--data DIR] [--planted] [--solver ml] [--splits 4] [--first 0] [--only NAME]

The rows of each context are split into random halves. The model is fitted to one, all covariances are found from it,
and judged on the other; then the other way round. Small data (fewer than 500 rows) are split 25 times as often.

* error: ``sum_i ||S_i' - C_i||_F^2 / sum_i ||S_i'||_F^2``, S_i' of the other half. Sampling puts a floor under it.
* negative log-likelihood of the rows of the other half, Gaussian, per row and feature, about means of the first half.
* rows of the other half that are given to a wrong context by quadratic discriminants, with priors by numbers of rows.

Own, pooled, model and identity are the four parts; "best pair" is the better of own and pooled, own and model, half
of each. Ledoit and Wolf's estimate and OAS are scikit-learn's, for each context by itself. "below" says whether the
mixture has less error than each of its parts on average, which of them is next, and by how many standard errors over
splits; splits share rows, so that this is a reading aid and not a test.

The rule (which parts, weights that add up to 1, how far contexts are drawn together) was chosen with ``solver="ml"`` on
other random halves of the same real data, 2 to 4 splits of each and 16 to 32 of small ones; planted ones had no part.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator

import numpy as np
from sklearn.covariance import ledoit_wolf, oas

import real_data
from mcpca import MCPCA
from run import as_markdown
from solver_guide import planted_problems

SMALL = 500
REPEATS = 25
PARTS = ("own", "pooled", "model", "identity")
PAIRS = {"own + pooled": (0.5, 0.5, 0, 0), "own + model": (0.5, 0, 0.5, 0)}


def halves(y: np.ndarray, seed: int) -> np.ndarray:
    """Return which rows are in the first half of their context."""
    rng = np.random.default_rng([seed, 3])
    first = np.zeros(len(y), dtype=bool)
    for name in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == name))
        first[rows[: len(rows) // 2]] = True
    return first


def peer(estimate, X: np.ndarray, y: np.ndarray, names: np.ndarray) -> np.ndarray:
    """Return an estimate for each context; on the scale of n - 1, as all others are."""
    stack = []
    for name in names:
        Z = X[y == name]
        stack.append(estimate(Z - Z.mean(axis=0), assume_centered=True)[0] * len(Z) / (len(Z) - 1))
    return np.stack(stack)


def log_densities(X: np.ndarray, means: np.ndarray, C: np.ndarray) -> np.ndarray:
    """Return the Gaussian log-density (n, k) of rows in all contexts; -inf where a covariance is singular."""
    out = np.full((len(X), len(C)), -np.inf)
    p = X.shape[1]
    for i, (mean, S) in enumerate(zip(means, C, strict=True)):
        values, vectors = np.linalg.eigh(S)
        if values[0] > p * np.finfo(float).eps * values[-1]:
            Z = (X - mean) @ vectors / np.sqrt(values)
            out[:, i] = -0.5 * ((Z**2).sum(axis=1) + np.log(2 * np.pi * values).sum())
    return out


def judged(X: np.ndarray, y: np.ndarray, new: np.ndarray, labels: np.ndarray, r: int, solver: str, seed: int) -> dict:
    """Return for every estimate from rows X: error, negative log-likelihood and share of wrong contexts on new rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that converge slowly, of few rows
        model = MCPCA(r, solver=solver, random_state=0).fit(X, y)
        mixture = model.covariances(X, y, random_state=seed)
    names = model.contexts_
    weights = dict(zip(PARTS, np.eye(4), strict=True)) | PAIRS
    estimates = {name: np.asarray(model.covariances(X, y, shrink=row)) for name, row in weights.items()}
    estimates |= {"Ledoit-Wolf": peer(ledoit_wolf, X, y, names), "OAS": peer(oas, X, y, names)}
    estimates["mixture"] = np.asarray(mixture)
    target = np.stack([np.cov(new[labels == name], rowvar=False) for name in names])
    codes = np.searchsorted(names, labels)
    priors = np.log(np.bincount(np.searchsorted(names, y)) / len(y))
    out = {"weights": mixture.weights.mean(axis=0)}
    for name, C in estimates.items():
        densities = log_densities(new, model.means_, C)
        own = densities[np.arange(len(new)), codes]
        out[name] = (
            float(((target - C) ** 2).sum() / (target**2).sum()),
            float(-own.mean() / new.shape[1]),
            float((np.argmax(densities + priors, axis=1) != codes).mean()) if np.isfinite(densities).all() else np.nan,
        )
    return out


def problems(args: argparse.Namespace) -> Iterator[tuple[str, int, int, object]]:
    """Yield names, ranks, numbers of splits and a function of the seed that gives rows and labels."""
    for name in real_data.NAMES if args.data else ():
        if not args.only or name in args.only:
            data = real_data.load(name, args.data)
            splits = args.splits * (REPEATS if len(data.y) < SMALL else 1)
            yield name, data.rank, splits, lambda seed, data=data: (data.X, data.y)
    for problem in planted_problems() if args.planted else ():
        if not args.only or problem.name in args.only:
            yield problem.name, problem.rank, args.splits, lambda seed, problem=problem: problem.draw(seed)[:2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", metavar="DIR", help="folder with the real data, one sub-folder per source")
    parser.add_argument("--planted", action="store_true", help="planted problems too")
    parser.add_argument("--solver", default="ml", help="of the model")
    parser.add_argument("--splits", type=int, default=4, help="random halves (small data: 25 times as many)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first split")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these data sets or planted problems only")
    args = parser.parse_args()
    if not (args.data or args.planted):
        parser.error("nothing to measure: give --data DIR, --planted, or both")
    errors, likelihoods, mistakes = [], [], []
    for name, r, splits, draw in problems(args):
        runs = []
        for seed in range(args.first, args.first + splits):
            X, y = draw(seed)
            first = halves(y, seed)
            both = [judged(X[side], y[side], X[~side], y[~side], r, args.solver, seed) for side in (first, ~first)]
            # The two directions of a split are one number: they have the same rows.
            runs.append({key: np.mean([run[key] for run in both], axis=0) for key in both[0]})
        means = {key: np.mean([run[key] for run in runs], axis=0) for key in runs[0]}
        best = min(PARTS, key=lambda part: means[part][0])
        gaps = np.array([run[best][0] - run["mixture"][0] for run in runs])
        spread = gaps.std(ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else np.nan
        shape = f"{X.shape[1]}, {len(np.unique(y))}, {r}"
        estimates = [key for key in means if key not in ("weights", *PAIRS)]
        pairs = min(PAIRS, key=lambda pair: means[pair][0])
        row = {"data": name, "p, k, r": shape} | {key: f"{means[key][0]:.4f}" for key in estimates}
        row |= {"best pair": f"{means[pairs][0]:.4f} ({pairs})"}
        row |= {"below": f"{'yes' if gaps.mean() > 0 else 'NO'}, {best} by {gaps.mean() / spread:.1f} s.e."}
        row |= {"mean weights": " / ".join(f"{w:.2f}" for w in means["weights"])}
        errors.append(row)
        likelihoods.append({"data": name} | {key: f"{means[key][1]:.3f}" for key in estimates})
        mistakes.append({"data": name} | {key: f"{100 * means[key][2]:.1f}" for key in estimates})
        print(f"{name}: {splits} splits, mixture {means['mixture'][0]:.4f}", file=sys.stderr, flush=True)
    print(f"## Held-out error, solver {args.solver}, seeds from {args.first}\n\n{as_markdown(errors)}\n")
    print(f"## Negative log-likelihood per row and feature\n\n{as_markdown(likelihoods)}\n")
    print(f"## Rows given to a wrong context, %\n\n{as_markdown(mistakes)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
