"""What ``select_rank`` says of real data: tables, figures and JSON behind ``docs/rank.md``.

python benchmarks/rank_guide.py --data DIR [--only NAME ...] [--seeds 3] [--output rank-output]

Each data set is looked at twice, as ``real_data.load`` prepares it (principal components of the pooled rows) and with
its own features. All criteria are computed for the former; of the latter, and of other seeds, only the recommendation.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import real_data
from mcpca import RankSelection, select_rank
from run import as_markdown

NAMES = ("tcga_mirna", "melanoma_patients", "text_human")


def summary(name: str, selection: RankSelection, features: str, seed: int, seconds: float) -> dict:
    found = selection.replicability
    return {
        "data": name,
        "features": features,
        "seed": seed,
        "above noise": selection.n_above_noise,
        "rank": selection.rank,
        "come back": None
        if found is None
        else f"{found.counts.mean():.1f} ({found.counts.min()} to {found.counts.max()})",
        "[s]": seconds,
    }


def curves(selection: RankSelection) -> list[dict]:
    columns = {name: values for name, values in selection.columns.items() if name not in ("spread", "noise sd")}
    return [
        {"rank": int(r), **{name: float(values[i]) for name, values in columns.items()}}
        for i, r in enumerate(selection.ranks)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", metavar="DIR", required=True, help="folder of real data (see real_data.py)")
    parser.add_argument("--only", nargs="+", choices=real_data.NAMES, default=NAMES)
    parser.add_argument("--seeds", type=int, default=3, help="how often the recommendation is repeated")
    parser.add_argument("--output", default="rank-output", type=Path)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    rows = []
    parts = []
    for name in args.only:
        prepared = real_data.load(name, args.data)
        own = real_data.load(name, args.data, axes=False)
        label = f"{prepared.X.shape[1]} PCs" if prepared.X.shape != own.X.shape else f"{own.X.shape[1]} own"
        start = time.perf_counter()
        selection = select_rank(prepared.X, prepared.y, random_state=0, verbose=True)
        rows.append(summary(name, selection, f"{label}, all criteria", 0, time.perf_counter() - start))
        stem = args.output / name.replace("/", "_")
        stem.with_suffix(".json").write_text(selection.to_json())
        selection.plot().savefig(stem.with_suffix(".png"), dpi=110)
        parts.append(
            f"## {name}\n\n{selection.reason}\n\nVotes: {selection.votes}\n\n"
            f"Agreement of each component: {np.round(selection.replicability.agreement, 2).tolist()}\n\n"
            f"{as_markdown(curves(selection))}"
        )
        for features, data in ((label, prepared), (f"{own.X.shape[1]} own", own)):
            for seed in range(args.seeds):
                start = time.perf_counter()
                found = select_rank(data.X, data.y, criteria=(), random_state=seed)
                rows.append(summary(name, found, features, seed, time.perf_counter() - start))
            if own.X.shape == prepared.X.shape:
                break
    text = "\n\n".join([f"## recommendations\n\n{as_markdown(rows)}", *parts])
    print(text)
    (args.output / "ranks.md").write_text(text + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
