"""Which errors to believe on real data: those of the model, those of the rows, or the bootstrap.

python benchmarks/real_errors.py --data DIR [--splits 5] [--resamples 30]

Rows of each context are split into halves, and ``ml`` is fitted to both. What the two differ by is known: halves are
independent, so an axis of one half is ``1 / sqrt(2)`` of the angle between the two from what it estimates, as a root
mean square. Each kind of error is asked, on one half alone, for the same number. Printed is the median over MCPCs and
splits, and for each kind the share of axes whose angle between halves is more than twice what it says (about 5% if it
is right and errors are Gaussian in many directions; 0 if it is far too large).
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict

import numpy as np

from mcpca import MCPCA, match_components
from real_data import load

_SETS = ("tcga_mrna_small", "lung_cancer_kim", "melanoma_patients", "perturb_papalexi", "text_human")
_MOST_ROWS = 300  # of a context: enough to compare, and small data are where errors matter


def _halves(y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    first = []
    second = []
    for name in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == name))[:_MOST_ROWS]
        first.append(rows[: len(rows) // 2])
        second.append(rows[len(rows) // 2 :])
    return np.concatenate(first), np.concatenate(second)


def _said(model: MCPCA, X: np.ndarray, y: np.ndarray, resamples: int) -> dict[str, np.ndarray]:
    """Return the root mean square angle of each MCPC that each kind of error says."""
    bootstrap = model.bootstrap(X, y, resamples, random_state=0)
    return {
        "model": model.standard_errors().angles,
        "sandwich": model.standard_errors(X, y).angles,
        "bootstrap": np.sqrt((bootstrap.angles**2).mean(axis=0)),
    }


def compare(data_set: str, directory: str, splits: int, resamples: int) -> list[str]:
    """Return a row of the table."""
    data = load(data_set, directory)
    observed = []
    said: dict[str, list[float]] = defaultdict(list)
    beyond: dict[str, list[bool]] = defaultdict(list)
    for seed in range(splits):
        first, second = _halves(data.y, np.random.default_rng(seed))
        fits = [
            MCPCA(data.rank, solver="ml", random_state=0).fit(data.X[rows], data.y[rows]) for rows in (first, second)
        ]
        match = match_components(fits[1].components_, fits[0].components_)
        angles = np.degrees(np.arccos(np.minimum(match.cosines, 1)))
        observed += (angles / np.sqrt(2)).tolist()
        try:
            errors = _said(fits[0], data.X[first], data.y[first], resamples)
        except ValueError as error:
            return [data_set, f"not possible: {error}"]
        for kind, values in errors.items():
            said[kind] += values.tolist()
            beyond[kind] += (angles / np.sqrt(2) > 2 * values).tolist()
    cells = [f"{np.median(values):.1f} ({np.mean(beyond[kind]):.0%})" for kind, values in said.items()]
    return [data_set, f"{np.median(observed):.1f}", *cells]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--resamples", type=int, default=30)
    arguments = parser.parse_args()
    print("| data | observed between halves, degrees | model (beyond twice) | sandwich | bootstrap |")
    print("|---|---|---|---|---|")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence on halves, and of few rows
        for name in _SETS:
            row = compare(name, arguments.data, arguments.splits, arguments.resamples)
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
