"""Claims: a floor of noise takes the bias out of loadings, and expected scores are nearer to the truth.

python benchmarks/floor.py [--trials 20] [--first 3000] [--only loadings rows scores]

Loadings: relative error ``||B - truth|| / ||truth||`` and mean bias over the designs of ``designs.py``, of the paper's
loadings, of the corrected ones, and of ``ml``. Rows: the same bias as contexts get more rows. Scores: mean correlation
of scores with the true ones, over MCPCs and over contexts that have them, of projections and of expected scores
(``posterior=True``), for the default and for ``ml``. Nothing was tuned on these seeds.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace

import numpy as np

from designs import DESIGNS, Design, Drawn, draw
from mcpca import MCPCA, match_components

_LOADINGS = ("base", "skewed", "unequal n", "noise by context", "row t5", "1% bad rows", "noise by feature and context")
_SCORES = ("base", "skewed", "noise by context", "row t5", "p=100, n=30", "collinear")
_FITS = {
    "paper's": ({}, "loadings_"),
    "corrected": ({}, "corrected_loadings_"),
    "scaled": ({"noise": "scaled"}, "loadings_"),
    "ml": ({"solver": "ml"}, "loadings_"),
    "ml, scaled": ({"solver": "ml", "noise": "scaled"}, "loadings_"),
}


def _print(cells: list[object]) -> None:
    print("| " + " | ".join(f"{c:.3f}" if isinstance(c, float) else str(c) for c in cells) + " |", flush=True)


def _head(cells: list[str]) -> None:
    _print(list(cells))
    _print(["---"] * len(cells))


def _fitted(data: Drawn, r: int, options: dict) -> tuple[MCPCA, np.ndarray, np.ndarray]:
    """Return a fit, and for each true component the fitted one and its sign."""
    model = MCPCA(r, random_state=0, **options).fit(data.X, data.y)
    match = match_components(model.components_, data.components)
    return model, match.indices, match.signs


def loadings(trials: int, first: int) -> None:
    """Print errors and biases of loadings by design."""
    _head(["design", *(f"{name}: error, bias" for name in _FITS)])
    for name in _LOADINGS:
        cells: list[object] = [name]
        for options, attribute in _FITS.values():
            errors = []
            for seed in range(first, first + trials):
                data = draw(DESIGNS[name], seed)
                model, order, _ = _fitted(data, DESIGNS[name].r, options)
                gap = getattr(model, attribute)[:, order] - data.loadings
                errors.append((np.linalg.norm(gap) / np.linalg.norm(data.loadings), gap.mean()))
            error, bias = np.mean(errors, axis=0)
            cells.append(f"{error:.3f}, {bias:+.3f}")
        _print(cells)


def rows(trials: int, first: int) -> None:
    """Print the bias relative to the mean loading as the number of rows grows."""
    _head(["rows per context", "paper's", "corrected", "ml"])
    for n in (100, 300, 1000, 5000):
        design = replace(Design(), rows=n)
        cells: list[object] = [n]
        for name in ("paper's", "corrected", "ml"):
            options, attribute = _FITS[name]
            biases = []
            for seed in range(first, first + trials):
                data = draw(design, seed)
                model, order, _ = _fitted(data, design.r, options)
                biases.append((getattr(model, attribute)[:, order] - data.loadings).mean() / data.loadings.mean())
            cells.append(f"{np.mean(biases):+.1%}")
        _print(cells)


def scores(trials: int, first: int) -> None:
    """Print correlations of scores with the true ones."""
    _head(["design", "mspm, projected", "mspm, expected", "ml, projected", "ml, expected"])
    for name in _SCORES:
        cells: list[object] = [name]
        for options in ({}, {"solver": "ml"}):
            for posterior in (False, True):
                found = []
                for seed in range(first, first + trials):
                    data = draw(DESIGNS[name], seed)
                    model, order, signs = _fitted(data, DESIGNS[name].r, options)
                    Z = model.transform(data.X, data.y, posterior=posterior)[:, order] * signs
                    found.append(_correlation(Z, data))
                cells.append(float(np.mean(found)))
        _print(cells)


def _correlation(Z: np.ndarray, data: Drawn) -> float:
    """Return the mean correlation with the true scores over pairs of a context and an MCPC that it has."""
    values = []
    for i in np.unique(data.y):
        here = data.y == i
        for j in np.flatnonzero(data.loadings[i] > 0):
            z = Z[here, j]
            # An MCPC that was not found there has scores of 0, which say nothing.
            values.append(np.corrcoef(z, data.scores[here, j])[0, 1] if z.std() > 0 else 0.0)
    return float(np.mean(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--first", type=int, default=3000)
    parts = {"loadings": loadings, "rows": rows, "scores": scores}
    parser.add_argument("--only", nargs="*", choices=list(parts), default=list(parts))
    arguments = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # unequal noise is what these designs are about
        for name in arguments.only:
            print(f"\n{name}, {arguments.trials} data sets each\n")
            parts[name](arguments.trials, arguments.first)


if __name__ == "__main__":
    main()
