"""Write the tables that the tests of the wrapper use: ``python make_test_data.py [FOLDER]``.

Five tissues of 40 rows and two planted axes in six genes: the first is in all tissues, the second in two.
``counts.csv`` has counts with the same two axes in their logarithms, and a column of runs.
"""

import csv
import sys
from pathlib import Path

import numpy as np

TISSUES = ["blood", "brain", "gut", "liver", "lung"]
GENES = [f"gene{j}" for j in range(1, 7)]
LOADINGS = np.array([[1.0, 0], [3, 0], [2, 0], [1, 4], [2, 2]])
ROWS = 40


def tables(seed: int = 0) -> dict[str, list[list[str]]]:
    """Return the lines of each file."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((6, 2)))[0]
    values, counts = [["tissue", *GENES]], [["tissue", "run", *GENES]]
    for tissue, loading in zip(TISSUES, LOADINGS, strict=True):
        signal = (rng.standard_normal((ROWS, 2)) * np.sqrt(loading)) @ axes.T
        rows = signal + 0.2 * rng.standard_normal((ROWS, 6))
        values += [[tissue, *(f"{x:.3f}" for x in row)] for row in rows]
        drawn = rng.poisson(20 * np.exp(0.4 * signal))
        runs = rng.integers(1, 3, ROWS)
        counts += [[tissue, f"run{run}", *map(str, row)] for run, row in zip(runs, drawn, strict=True)]
    return {"tissues.csv": values, "counts.csv": counts}


def main(folder: Path) -> None:
    """Write the files to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in tables().items():
        with open(folder / name, "w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "test-data")
