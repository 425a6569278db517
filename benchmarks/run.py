"""Measure what the package claims: prints tables, writes them as JSON and Markdown, and draws the picture.

python benchmarks/run.py [--reference DIR] [--data DIR] [--only SECTION ...] [--trials 40] [--repeats 5]
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path

import numpy as np
import scipy
import sklearn

import accuracy
import digits
import efficiency
import fuzz
import intervals
import mcpca
import memory
import ranks
import robust
import solvers
import speed
from reference import load_reference

SECTIONS = ("speed", "accuracy", "memory", "digits")
SECTIONS += ("digits by solver", "efficiency", "low rank", "solvers", "errors", "held out", "intervals", "fuzz")
SECTIONS += ("robust", "robust rank")
SECTIONS += ("rank of noise", "planted rank", "rank sweep", "rank of digits")


def show(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, (float, np.floating)):
        return f"{value:.3g}"
    return str(value)


def as_markdown(rows: list[dict]) -> str:
    head = list(rows[0])
    cells = [head, ["---"] * len(head), *([show(row.get(h)) for h in head] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)


def draw(results: dict[str, list[dict]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = results["speed"]
    names = [f"{row['shape']}\n({row['p, k, r']})" for row in rows]
    bars = [("MCPCA.fit from rows", "fit [s]", "#1b6ca8"), ("PCA.fit from rows", "PCA [s]", "#b8c4ce")]
    bars.append(("decompose from covariances", "decompose [s]", "#5aa469"))
    if rows[0]["reference [s]"] is not None:
        bars.append(("reference from covariances", "reference [s]", "#d17b49"))
    figure, ax = plt.subplots(figsize=(11, 4.5), layout="constrained")
    width = 0.8 / len(bars)
    for i, (label, key, colour) in enumerate(bars):
        ax.bar(
            np.arange(len(rows)) + (i - (len(bars) - 1) / 2) * width,
            [r[key] for r in rows],
            width,
            label=label,
            color=colour,
        )
    ax.set_yscale("log")
    ax.set_xticks(range(len(rows)), names, fontsize=8)
    ax.set_ylabel("seconds (median, one run)")
    ax.legend(frameon=False, fontsize=8, ncols=2)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title("Time on the paper's seven shapes (features, contexts, rank)", fontsize=10)
    figure.savefig(path, dpi=150)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", metavar="DIR", help="checkout of the authors' code, measured beside ours")
    parser.add_argument("--data", metavar="DIR", help="folder of real data, one folder each (see real_data.py)")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument(
        "--trials", type=int, default=40, help="data sets per shape for accuracy (an eighth on Perturb-seq)"
    )
    parser.add_argument("--repeats", type=int, default=5, help="timings per shape")
    parser.add_argument("--resamples", type=int, default=100, help="of the bootstrap, for its coverage")
    parser.add_argument("--problems", type=int, default=10_000, help="random problems of the fuzz test")
    parser.add_argument("--output", default="benchmark-output", type=Path)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    reference = load_reference(args.reference) if args.reference else None

    def log(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    measures = {
        "speed": lambda: speed.measure(reference, args.repeats, log),
        "accuracy": lambda: accuracy.measure(reference, args.trials, log),
        "memory": lambda: memory.measure(log),
        "digits": lambda: digits.measure(reference, f"{args.data}/mnist_backgrounds", log) if args.data else [],
        "digits by solver": lambda: digits.measure_solvers(f"{args.data}/mnist_backgrounds", log) if args.data else [],
        "efficiency": lambda: efficiency.measure(max(1, args.trials // 2), log),
        "low rank": lambda: efficiency.measure_low_rank(reference, args.trials, log),
        "solvers": lambda: solvers.measure_time(args.repeats, log),
        "errors": lambda: solvers.measure_errors(reference, args.data, log),
        "held out": lambda: solvers.measure_held_out(args.data, 5, log) if args.data else [],
        "intervals": lambda: intervals.measure(args.trials, args.resamples, log),
        "robust": lambda: robust.measure(args.trials, log),
        "robust rank": lambda: robust.measure_ranks(max(1, args.trials // 4), log),
        "fuzz": lambda: fuzz.measure(args.problems, log),
        "rank of noise": lambda: ranks.measure_noise(args.trials, log),
        "planted rank": lambda: ranks.measure_planted(args.trials, log),
        "rank sweep": lambda: ranks.measure_sweep(reference, log),
        "rank of digits": lambda: ranks.measure_digits(reference, args.data, log) if args.data else [],
    }
    results = {name: measures[name]() for name in SECTIONS if name in args.only}
    versions = {"mcpca": mcpca.__version__, "numpy": np.__version__, "scipy": scipy.__version__}
    versions |= {"scikit-learn": sklearn.__version__, "python": platform.python_version()}
    text = "\n\n".join(f"## {name}\n\n{as_markdown(rows)}" for name, rows in results.items() if rows)
    print(text)
    (args.output / "benchmark.md").write_text(text + "\n")
    (args.output / "benchmark.json").write_text(json.dumps({"versions": versions, **results}, indent=1, default=float))
    if "speed" in results:
        draw(results, args.output / "benchmark.png")
    print(f"\nwritten to {args.output}/", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
