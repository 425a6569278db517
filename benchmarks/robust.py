"""Claim: with ``robust=True`` heavy tails and bad rows cost nothing, and clean rows are fitted as always.

Rows of ``designs.py``. For each design and solver: the distance of the axes from the truth (1 - Ascore) and the error
of the corrected loadings beside the truth, ordinary and robust. A robust fit gives the loadings of the bulk of the
rows, and those of rows with heavy tails are smaller than their variances by a common factor: errors are after the best
common factor, which is a column of its own. Outlyingness is judged by how well it tells bad rows from good ones (AUC).

Constants of the robust fit were chosen on seeds from 100 to 206; seeds here begin at 5000.

python benchmarks/robust.py [--trials 30]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import numpy as np
from sklearn.metrics import roc_auc_score

from designs import DESIGNS, Design, Drawn, draw
from mcpca import MCPCA, ascore, match_components, select_rank

FIRST_SEED = 5000
_MORE = {
    "10% bad rows": Design(bad=0.1),
    "p=100, n=30, 1% bad": Design(p=100, rows=30, bad=0.01),
}
_NAMES = ("base", "skewed", "unequal n", "noise by context", "p=100, n=30", "row t5", "row t3", "1% bad rows")


def errors(model: MCPCA, data: Drawn) -> tuple[float, float, float]:
    """Return 1 - Ascore, the relative error of the loadings after the best common factor, and the factor."""
    B = model.corrected_loadings_[:, match_components(model.components_, data.components).indices]
    truth = data.loadings
    factor = float((B * truth).sum() / (truth**2).sum())
    return 1 - ascore(model.components_, data.components), float(np.abs(B / factor - truth).sum() / truth.sum()), factor


def measure(trials: int, log: Callable[[str], None]) -> list[dict]:
    rows = []
    for name in (*_NAMES, *_MORE):
        design = {**DESIGNS, **_MORE}[name]
        for solver in ("mspm", "ml"):
            found: dict[bool, list[tuple[float, float, float]]] = {False: [], True: []}
            freedom = []
            areas = []
            for seed in range(FIRST_SEED, FIRST_SEED + trials):
                data = draw(design, seed)
                for robust in (False, True):
                    model = MCPCA(design.r, solver=solver, robust=robust, random_state=seed).fit(data.X, data.y)
                    found[robust].append(errors(model, data))
                freedom.append(model.degrees_of_freedom_)
                if data.bad.any():
                    areas.append(roc_auc_score(data.bad, model.outlyingness(data.X, data.y)))
            plain, robust_errors = (np.mean(found[robust], axis=0) for robust in (False, True))
            rows.append(
                {
                    "design": name,
                    "solver": solver,
                    "data sets": trials,
                    "1 - Ascore": plain[0],
                    "robust": robust_errors[0],
                    "error of loadings": plain[1],
                    "robust ": robust_errors[1],
                    "factor": plain[2],
                    "robust  ": robust_errors[2],
                    "degrees of freedom": float(np.median(freedom)),
                    "AUC of bad rows, least": min(areas) if areas else None,
                }
            )
            log(f"robust  {rows[-1]}")
    return rows


def measure_ranks(trials: int, log: Callable[[str], None]) -> list[dict]:
    """Count how often the planted rank, 5, is chosen: on all rows alike, and by a robust fit."""
    rows = []
    for name in ("base", "row t5", "row t3", "1% bad rows"):
        right = {"all rows alike": 0, "robust": 0}
        for seed in range(FIRST_SEED, FIRST_SEED + trials):
            data = draw(DESIGNS[name], seed)
            right["all rows alike"] += select_rank(data.X, data.y, criteria=(), random_state=seed).rank == 5
            right["robust"] += MCPCA(robust=True, random_state=seed).fit(data.X, data.y).r_ == 5
        rows.append({"design": name, "data sets": trials, **right})
        log(f"robust rank  {rows[-1]}")
    return rows


if __name__ == "__main__":
    import warnings

    from run import as_markdown

    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=30)
    arguments = parser.parse_args()
    # Ranks that halves do not agree on, and noise that differs between contexts, are part of the designs.
    warnings.simplefilter("ignore")

    def to_stderr(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    print(as_markdown(measure(arguments.trials, to_stderr)))
    print(as_markdown(measure_ranks(max(1, arguments.trials // 3), to_stderr)))
