"""Claims: cross-fitted loadings are unbiased where there are more features than rows, and bootstrap intervals cover.

``loadings``: loadings of the fit, cross-fitted ones, and those of the same contexts from new rows (``loadings_for``),
without and with ``cross_fit``. The bias is that of the sum over present loadings, relative to the truth; "zeros" is the
mean of absent ones (present ones are 1.5 on average). The designs of ``designs.py`` with p = 1000 and 2000 have a noise
at which the axes themselves can hardly be found, and are shown with less noise besides.

``intervals``: how many nominal 95% intervals of ``bootstrap`` contain the truth, absent loadings included.

    python benchmarks/cross_fitting.py loadings [--seeds 4] [--first 7000]
    python benchmarks/cross_fitting.py intervals [--seeds 8] [--first 7000] [--resamples 100] [--designs NAME ...]
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import replace

import numpy as np

from designs import DESIGNS, Design, draw
from mcpca import MCPCA, match_components
from mcpca.exceptions import InflatedLoadingsWarning

# name, noise sd (None: that of the design), solvers, data sets as a share of --seeds, splits
PROBLEMS = [
    ("base", None, ("mspm", "ml"), 1, 5),
    ("p=100, n=30", None, ("mspm", "ml"), 2, 5),
    ("p=1000, n=40", 0.3, ("mspm", "ml"), 1, 3),
    ("p=1000, n=40", 0.5, ("mspm", "ml"), 1, 3),
    ("p=1000, n=40", 0.7, ("mspm",), 1, 3),
    ("p=2000, n=50", 0.3, ("mspm", "ml"), 1, 3),
    ("p=2000, n=50", 0.5, ("mspm",), 1, 3),
]
# With the share of the loadings that is expected to be covered; cross-fitted where splits are above 0.
COVERED = {
    "base": ("0.92 to 0.97", 0),
    "skewed": ("0.92 to 0.97", 0),
    "unequal n": ("0.92 to 0.97", 0),
    "noise by context": ("0.92 to 0.97", 0),
    "row t5": ("at least 0.88", 0),
    "1% bad rows": ("at least 0.88", 0),
    "p=100, n=30": ("0.92 to 0.97", 5),
}


def errors(found: np.ndarray, truth: np.ndarray) -> tuple[float, float, float]:
    """Return the bias of present loadings, the relative error of all, and the mean of absent ones."""
    present = truth > 0
    bias = found[present].sum() / truth[present].sum() - 1
    return bias, float(np.linalg.norm(found - truth) / np.linalg.norm(truth)), float(found[~present].mean())


def loadings(design: Design, solver: str, splits: int, seeds: range) -> None:
    kinds = ("fitted", "cross-fitted", "new rows", "new rows, cross-fitted model")
    rows: dict[str, list] = {kind: [] for kind in kinds}
    angles = []
    gap = []
    seconds = 0.0
    lost = 0
    for seed in seeds:
        data = draw(design, seed)
        new = draw(design, seed + 50_000, truth_seed=seed)
        plain = MCPCA(design.r, solver=solver, random_state=0, verbose=False).fit(data.X, data.y)
        start = time.perf_counter()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = MCPCA(design.r, solver=solver, cross_fit=splits, random_state=0, verbose=False)
            model.fit(data.X, data.y)
        lost += any(issubclass(w.category, InflatedLoadingsWarning) for w in caught)
        seconds += time.perf_counter() - start
        match = match_components(model.components_, data.components)
        again = model.loadings_for(new.X, new.y)
        found = (plain.corrected_loadings_, model.corrected_loadings_, plain.loadings_for(new.X, new.y), again)
        for kind, B in zip(kinds, found, strict=True):
            rows[kind].append(errors(B[:, match.indices], data.loadings))
        gap.append(again.sum() / model.corrected_loadings_.sum() - 1)
        angles.append((np.mean(match.cosines**2), model.attenuation_.mean()))
    n = len(seeds)
    true, kept = np.mean(angles, axis=0)
    print(
        f"  {solver}: cos^2 to the truth {true:.2f}, attenuation_ {kept:.2f}; new rows against fitted ones "
        f"{np.mean(gap):+.3f}; warned of lost MCPCs in {lost} of {n}; {seconds / n:.1f} s a fit"
    )
    for kind, values in rows.items():
        bias, error, zeros = np.mean(values, axis=0)
        print(f"    {kind:30s} bias {bias:+.3f}   relative error {error:.3f}   zeros {zeros:.3f}", flush=True)


def coverage(name: str, seeds: range, resamples: int) -> None:
    bar, splits = COVERED[name]
    design = DESIGNS[name]
    hits: dict[str, list] = {"all": [], "present": [], "absent": [], "width": []}
    for seed in seeds:
        data = draw(design, seed)
        model = MCPCA(design.r, cross_fit=splits, random_state=0, verbose=False).fit(data.X, data.y)
        spread = model.bootstrap(data.X, data.y, resamples, random_state=seed, verbose=False)
        order = match_components(model.components_, data.components).indices
        truth = data.loadings
        inside = (spread.lower[:, order] <= truth) & (truth <= spread.upper[:, order])
        hits["all"].append(inside.mean())
        hits["present"].append(inside[truth > 0].mean())
        hits["absent"].append(inside[truth == 0].mean())
        hits["width"].append((spread.upper - spread.lower)[:, order][truth > 0].mean())
    shares = {key: float(np.mean(values)) for key, values in hits.items()}
    error = np.std(hits["all"], ddof=1) / np.sqrt(len(seeds))
    print(
        f"{name:18s} {shares['all']:.3f} +- {error:.3f} ({bar})   present {shares['present']:.3f}   "
        f"absent {shares['absent']:.3f}   width {shares['width']:.2f}   {f'cross_fit={splits}' if splits else ''}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["loadings", "intervals"])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first", type=int, default=7000)
    parser.add_argument("--resamples", type=int, default=100)
    parser.add_argument("--designs", nargs="*", default=list(COVERED))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.what == "intervals":
        for name in options.designs:
            coverage(name, range(options.first, options.first + options.seeds), options.resamples)
        return
    for name, noise, solvers, share, splits in PROBLEMS:
        design = DESIGNS[name] if noise is None else replace(DESIGNS[name], noise_sd=noise)
        seeds = range(options.first, options.first + share * options.seeds)
        print(f"{name}, noise sd {design.noise_sd}, cross_fit={splits}, seeds {seeds.start} to {seeds.stop - 1}")
        for solver in solvers:
            loadings(design, solver, splits, seeds)


if __name__ == "__main__":
    main()
