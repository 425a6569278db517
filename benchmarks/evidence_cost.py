"""What evidence for a fit costs, as a multiple of the fit's own time in the same run.

    python benchmarks/evidence_cost.py [--repeats 5] [--cpu]

For each shape and solver, in fits:

- ``by default``: what ``mcpca fit`` adds to say which MCPCs come back, from halves that its test of contexts has fitted
  anyway (their axes are matched; no fit). The bound is 1: the fit's time again.
- ``test``: that test itself, with four splits, permutations and all.
- ``one split``, ``--replicability``: ``MCPCA.replicability`` with 1 and with 10 splits, the rows split within contexts.
- ``a resample``: one of ``MCPCA.bootstrap``, from 20.

Seconds are the least of several runs by the clock, or of the processor with ``--cpu``, for a machine that others use.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from mcpca import MCPCA
from mcpca._inference.replication import agreement_of_halves
from mcpca.datasets import make_contexts

# Contexts, features, rank, rows of a context.
SHAPES = [(4, 50, 5, 200), (12, 100, 8, 300), (30, 200, 10, 100), (6, 400, 10, 2000), (150, 60, 20, 80)]
SOLVERS = ("mspm", "lsq", "ml")
BOUND = 1.0


def seconds(call: Callable[[], Any], repeats: int, clock: Callable[[], float]) -> float:
    """Return the least time of several runs."""
    times = []
    for _ in range(repeats):
        began = clock()
        call()
        times.append(clock() - began)
    return min(times)


def matching(A: np.ndarray, splits: int) -> None:
    """Do what the default adds: match the axes of both halves of each split with each other and with A."""
    rng = np.random.default_rng(0)
    for _ in range(splits):
        agreement_of_halves(*(A + 0.1 * rng.standard_normal(A.shape) / np.sqrt(len(A)) for _ in range(2)), A)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    clock = time.process_time if options.cpu else time.perf_counter
    warnings.simplefilter("ignore")
    print(
        "| contexts x features, rank, rows | solver | fit, s | by default | test | one split | 10 splits | a resample |"
    )
    print("|---|---|---|---|---|---|---|---|")
    worst = 0.0
    for k, p, r, n in SHAPES:
        made = make_contexts(k, p, r, n_samples=n, noise=0.3, random_state=1000)
        for solver in SOLVERS:
            unfitted = MCPCA(r, solver=solver, random_state=0, verbose=False)
            model = unfitted.fit(made.X, made.y)
            A = np.asarray(model.components_, dtype=np.float64)
            rows: dict[str, Any] = {"X": made.X, "y": made.y, "random_state": 0, "verbose": False}
            fit = seconds(lambda u=unfitted, m=made: u.fit(m.X, m.y), options.repeats, clock)
            calls: list[tuple[Callable[[], Any], float]] = [
                (lambda a=A: matching(a, 4), 1.0),
                (lambda m=model, w=rows: m.context_dependence(**w), 1.0),
                (lambda m=model, w=rows: m.replicability(n_splits=1, **w), 1.0),
                (lambda m=model, w=rows: m.replicability(**w), 1.0),
                (lambda m=model, w=rows: m.bootstrap(n=20, **w), 20.0),
            ]
            ratios = [seconds(call, options.repeats, clock) / count / fit for call, count in calls]
            worst = max(worst, ratios[0])
            cells = " | ".join(f"{ratio:.2f}" for ratio in ratios)
            print(f"| {k} x {p}, {r}, {n} | {solver} | {fit:.3f} | {cells} |", flush=True)
    print(f"\nBy default at most {worst:.2f} of the fit's time; the bound is {BOUND:g}.")


if __name__ == "__main__":
    main()
