"""Does ``solver="auto"`` choose well? Distance from the truth over 22 planted designs, beside that of every candidate.

python benchmarks/auto_solver.py [--first 1000] [--seeds 10] [--principal] [--data DIR] [--only NAME ...]

Designs are those of ``designs.py`` but for three (two with thousands of features, and one that is another again with
more noise), and the ten planted problems of ``solver_guide.py``. The oracle takes the best of the five fits of each
data set, knowing the truth. All numbers are 1 - Ascore, means over data sets; the last row is the mean over designs.
Seeds below 1000 were used while the choice was made.

With ``--principal`` rows are turned to the principal axes of all rows first, all of them, so that nothing is lost: the
truth turns with them. With ``--data`` the table below the others has the mean squared correlation of features over all
rows, in units of what chance gives: below 0.9, the choice takes features for principal axes.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable

import numpy as np

import designs
import real_data
from mcpca import MCPCA, ascore
from run import as_markdown
from solver_guide import planted_problems

LEFT_OUT = ("p=2000, n=50", "p=1000, n=40", "noise sd 0.1 to 1.5")
CANDIDATES = {
    "mspm": {"solver": "mspm"},
    "lsq": {"solver": "lsq"},
    "ml": {"solver": "ml"},
    "ml diagonal": {"solver": "ml", "noise": "diagonal"},
    "ml scaled": {"solver": "ml", "noise": "scaled"},
}
Draw = Callable[[int], tuple[np.ndarray, np.ndarray, np.ndarray]]


def _of_design(design: designs.Design) -> Draw:
    def draw(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        drawn = designs.draw(design, seed)
        return drawn.X, drawn.y, drawn.components

    return draw


def all_designs() -> dict[str, tuple[int, Draw]]:
    """Return rank and draws of the 22 designs by name."""
    found = {name: (d.r, _of_design(d)) for name, d in designs.DESIGNS.items() if name not in LEFT_OUT}
    return found | {problem.name: (problem.rank, problem.draw) for problem in planted_problems()}


def turned(X: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and truth in the principal axes of all rows."""
    axes = np.linalg.eigh(np.cov(X.T))[1][:, ::-1]
    return (X - X.mean(axis=0)) @ axes, axes.T @ truth


def beyond_chance(X: np.ndarray) -> str:
    """Mean squared correlation of features over all rows, in units of what chance gives."""
    R = np.corrcoef(X[:, X.std(axis=0) > 0].T)
    return f"{((R**2).sum() - len(R)) / (len(R) * (len(R) - 1)) * (len(X) - 1):.2f}"


def measure(draw: Draw, r: int, seed: int, principal: bool) -> tuple[dict[str, float], str, dict[str, float]]:
    """Return 1 - Ascore of every fit, what was chosen, and seconds."""
    X, y, truth = draw(seed)
    if principal:
        X, truth = turned(X, truth)
    distances = {}
    seconds = {}
    chosen = ""
    for name, options in {**CANDIDATES, "auto": {"solver": "auto"}}.items():
        start = time.perf_counter()
        model = MCPCA(r, random_state=0, verbose=False, **options).fit(X, y)
        seconds[name] = time.perf_counter() - start
        distances[name] = 1 - ascore(model.components_, truth)
        if name == "auto":
            chosen = model.solver_choice_.best
    distances["oracle"] = min(distances[name] for name in CANDIDATES)
    return distances, chosen, seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=1000, help="first seed")
    parser.add_argument("--seeds", type=int, default=10, help="data sets of each design")
    parser.add_argument("--principal", action="store_true", help="in the principal axes of all rows")
    parser.add_argument("--data", metavar="DIR", help="folder with the real data, for the table of shares")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these designs only")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # of single fits: unequal noise, similar loadings
    found = {name: value for name, value in all_designs().items() if not args.only or name in args.only}
    rows = []
    times: list[dict[str, float]] = []
    squares = []
    for name, (r, draw) in found.items():
        results = [measure(draw, r, args.first + i, args.principal) for i in range(args.seeds)]
        row = {column: float(np.mean([result[0][column] for result in results])) for column in results[0][0]}
        counts = ", ".join(f"{choice} {n}" for choice, n in Counter(result[1] for result in results).most_common())
        rows.append({"design": name} | row | {"chosen": counts})
        times += [result[2] for result in results]
        squares.append({"data": name, "correlation": beyond_chance(draw(args.first)[0])})
        print(rows[-1], file=sys.stderr, flush=True)
    columns = [column for column in rows[0] if column not in ("design", "chosen")]
    means = {column: float(np.mean([row[column] for row in rows])) for column in columns}
    rows.append({"design": f"mean over {len(rows)} designs"} | means | {"chosen": ""})
    print(as_markdown([{k: f"{v:.4f}" if isinstance(v, float) else v for k, v in row.items()} for row in rows]))
    ratios = [row["auto"] / row["mspm"] for row in times]
    print(f"\nauto / oracle: {means['auto'] / means['oracle']:.3f} (bar 1.25)")
    print(f"Time of auto / time of mspm: median {np.median(ratios):.0f}, {min(ratios):.0f} to {max(ratios):.0f}")
    if args.data:
        for name in real_data.NAMES:
            X = real_data.load(name, args.data).X
            half = X[np.random.default_rng(0).random(len(X)) < 0.5]
            squares.append({"data": name, "correlation": beyond_chance(X), "in half of the rows": beyond_chance(half)})
        print("\n" + as_markdown([{"data": "", "correlation": "", "in half of the rows": ""} | row for row in squares]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
