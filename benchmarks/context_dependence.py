"""Is it of the contexts? How often ``context_dependence`` says so where it is, and where it is not.

    python benchmarks/context_dependence.py --data DIR            # all tables
    python benchmarks/context_dependence.py --only planted power  # those that need no data

- ``real``: five real data sets with their labels, three seeds each.
- ``shuffled``: the same rows with labels in random order, 20 times each: nothing is of the contexts.
- ``planted``: rows with the same covariance in all contexts, and other means; nothing is of the contexts.
- ``power``: five axes, of which three differ between contexts.

"claimed" is a whole p <= 0.05 and some q <= 0.05. Seeds are those from ``--seed`` on. The statistic was chosen on seeds
0 and 1 of the real sets, and how splits are combined on shuffles from seed 100 on and on planted rows; tables of real
and shuffled labels are from ``--seed 1000``, those of planted rows from ``--seed 2000``.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import real_data
from mcpca import ContextDependence, context_dependence

RANKS = {"melanoma_patients": 7, "text_human": 6, "tcga_mirna": 15, "perturb_norman": 8, "perturb_papalexi": 6}
P, R, K = 30, 4, 8  # of planted rows
Drawn = tuple[np.ndarray, np.ndarray, dict[str, Any]]


def table(head: list[str], rows: Iterator[list[Any]]) -> None:
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)
    print()


def share(values: list[Any]) -> str:
    return f"{100 * np.mean(values):.1f}%"


def claimed(result: ContextDependence) -> bool:
    return result.p_value <= 0.05 and bool((result.q_values <= 0.05).any())


def of_real(directory: str, seed: int) -> Iterator[list[Any]]:
    for name, r in RANKS.items():
        data = real_data.load(name, directory)
        found = [context_dependence(data.X, data.y, r, random_state=seed + i) for i in range(3)]
        yield [
            name,
            r,
            ", ".join(str(int((one.p_values <= 0.01).sum())) for one in found),
            ", ".join(str(one.n_dependent) for one in found),
            ", ".join(f"{one.p_value:g}" for one in found),
            ", ".join(one.outcome for one in found),
            ", ".join(f"{np.median(one.dispersion):.2f}" for one in found),
        ]


def of_shuffled(directory: str, seed: int, n: int) -> Iterator[list[Any]]:
    every: list[ContextDependence] = []
    for name, r in RANKS.items():
        data = real_data.load(name, directory)
        found = []
        for i in range(n):
            y = np.random.default_rng([seed, i, 3]).permutation(data.y)
            found.append(context_dependence(data.X, y, r, random_state=seed + i))
        every += found
        yield [name, r, *_of_nulls(found)]
    yield ["all", "", *_of_nulls(every)]


def _of_nulls(found: list[ContextDependence]) -> list[Any]:
    n = len(found)
    ps = np.concatenate([one.p_values for one in found])
    return [
        n,
        f"{sum(claimed(one) for one in found)} ({share([claimed(one) for one in found])})",
        share([one.p_value <= 0.05 for one in found]),
        share([(one.q_values <= 0.05).any() for one in found]),
        share([one.p_value <= 0.01 for one in found]),
        share(list(ps <= 0.05)),
        f"{int((ps <= 0.01).sum())} of {len(ps)}",
    ]


NULL_HEAD = ["claimed", "whole p <= 0.05", "some q <= 0.05", "whole p <= 0.01", "p <= 0.05 of MCPCs", "p <= 0.01"]


def _rows(rng: np.random.Generator, counts: np.ndarray, loadings: np.ndarray, t: float | None = None) -> np.ndarray:
    """Return rows of contexts with ``counts`` (k,) rows, ``A diag(loadings_i) A^T + I`` and unequal means."""
    A = np.linalg.qr(rng.standard_normal((P, R)))[0] + 0.3 * rng.standard_normal((P, 1))
    y = np.repeat(np.arange(len(counts)), counts)
    X = (rng.standard_normal((len(y), R)) * np.sqrt(loadings)[y]) @ A.T + rng.standard_normal((len(y), P))
    if t is not None:
        X *= np.sqrt((t - 2) / rng.chisquare(t, len(y)))[:, None]
    return X + 3 * rng.standard_normal((len(counts), P))[y]


def _alike(rng: np.random.Generator, counts: np.ndarray) -> np.ndarray:
    return np.tile(np.array([8.0, 5.0, 3.0, 2.0]), (len(counts), 1))


def _plain(counts: Any, t: float | None = None) -> Callable[[np.random.Generator], Drawn]:
    n = np.asarray(counts)

    def drawn(rng: np.random.Generator) -> Drawn:
        return _rows(rng, n, _alike(rng, n), t), np.repeat(np.arange(len(n)), n), {}

    return drawn


def _donors(crossed: bool, per: int, rows: int, shift: float, unequal: bool) -> Callable[[np.random.Generator], Drawn]:
    """Return donors with shifts of their own and, if ``unequal``, a scale of their own: 0.6 to 1.6 as a rule."""

    def drawn(rng: np.random.Generator) -> Drawn:
        n = np.full(K, per * rows)
        y = np.repeat(np.arange(K), n)
        within = np.tile(np.repeat(np.arange(per), rows), K)
        donor = within if crossed else y * per + within
        X = _rows(rng, n, _alike(rng, n))
        if unequal:
            # In a crossed design a donor has another scale in each context: samples differ, and contexts do not.
            cell = y * per + within
            means = np.stack([X[y == i].mean(axis=0) for i in range(K)])[y]
            X = means + (X - means) * np.exp(0.5 * rng.standard_normal(cell.max() + 1))[cell][:, None]
        X += shift * rng.standard_normal((donor.max() + 1, P))[donor]
        return X, y, {"groups": donor}

    return drawn


def _batches(rng: np.random.Generator) -> Drawn:
    n = np.full(K, 60)
    y = np.repeat(np.arange(K), n)
    batch = rng.integers(4, size=len(y))
    X = _rows(rng, n, _alike(rng, n)) + 3 * rng.standard_normal((K * 4, P))[4 * y + batch]
    return X, y, {"batch": batch}


def _scaled(rng: np.random.Generator) -> Drawn:
    n = np.full(K, 100)
    X = _rows(rng, n, _alike(rng, n))
    y = np.repeat(np.arange(K), n)
    centred = X - np.stack([X[y == i].mean(axis=0) for i in range(K)])[y]
    return centred * np.geomspace(0.5, 2, K)[y][:, None], y, {}


NULLS: dict[str, Callable[[np.random.Generator], Drawn]] = {
    "8 x 100 rows": _plain(np.full(K, 100)),
    "8 x 300 rows, t5": _plain(np.full(K, 300), 5),
    "8 x 300 rows, t3": _plain(np.full(K, 300), 3),
    "10 to 1000 rows": _plain(np.geomspace(10, 1000, K).astype(int)),
    "10 to 1000 rows, t5": _plain(np.geomspace(10, 1000, K).astype(int), 5),
    "40 x 6 rows": _plain(np.full(40, 6)),
    "2 x 200 rows": _plain(np.full(2, 200)),
    "6 nested donors of 20 rows, shift 1": _donors(False, 6, 20, 1, False),
    "6 crossed donors of 20 rows, shift 1": _donors(True, 6, 20, 1, False),
    "6 nested donors of 20 rows, shift 1, own scales": _donors(False, 6, 20, 1, True),
    "6 crossed donors of 20 rows, shift 1, own scales": _donors(True, 6, 20, 1, True),
    "batches removed": _batches,
}


def of_planted(seed: int, n: int) -> Iterator[list[Any]]:
    for name, draw in NULLS.items():
        found = []
        for i in range(n):
            X, y, options = draw(np.random.default_rng([seed, i]))
            found.append(context_dependence(X, y, R, n_permutations=199, random_state=seed + i, **options))
        yield [name, *_of_nulls(found)]


def of_scale(seed: int, n: int) -> Iterator[list[Any]]:
    outcomes = []
    for i in range(n):
        X, y, _ = _scaled(np.random.default_rng([seed, i]))
        outcomes.append(context_dependence(X, y, R, n_permutations=199, random_state=seed + i).outcome)
    yield ["one factor a context, 0.5 to 2", n, *(share([one == what for one in outcomes]) for what in OUTCOMES)]


OUTCOMES = ("alike", "scale", "diffuse", "dependent")


def of_power(seed: int, n: int) -> Iterator[list[Any]]:
    """Draw loadings of which the first axis has the same everywhere; those of others differ by ``spread`` in logs."""
    for rows in (50, 200):
        for spread in (0.2, 0.5, 1.0):
            differs: list[bool] = []
            alike: list[bool] = []
            whole: list[bool] = []
            for i in range(n):
                rng = np.random.default_rng([seed, i])
                counts = np.full(K, rows)
                loadings = np.array([8.0, 5.0, 3.0, 2.0]) * np.exp(spread * rng.standard_normal((K, R)))
                loadings[:, 0] = 8.0
                state = rng.bit_generator.state
                X = _rows(rng, counts, loadings)
                rng.bit_generator.state = state
                A = np.linalg.qr(rng.standard_normal((P, R)))[0] + 0.3 * rng.standard_normal((P, 1))
                found, model_axes = _with_axes(X, np.repeat(np.arange(K), counts), seed + i)
                # The MCPC that is the axis which is alike, if one is within 18 degrees of it.
                cosines = np.abs(model_axes.T @ (A[:, 0] / np.linalg.norm(A[:, 0])))
                first = int(np.argmax(cosines))
                whole.append(found.outcome != "alike")
                if cosines[first] > 0.95:
                    alike.append(bool(found.dependent[first]))
                differs += [bool(one) for j, one in enumerate(found.dependent) if j != first]
            said = share(alike) if alike else "-"
            yield [f"{K} x {rows}", spread, n, share(whole), share(differs), f"{said} of {len(alike)}"]


def _with_axes(X: np.ndarray, y: np.ndarray, seed: int) -> tuple[ContextDependence, np.ndarray]:
    from mcpca import MCPCA

    model = MCPCA(R, random_state=seed).fit(X, y)
    return model.context_dependence(X, y, n_permutations=199, random_state=seed), model.components_


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=["real", "shuffled", "planted", "scale", "power"])
    parser.add_argument("--data", help="folder with the real data sets")
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--shuffles", type=int, default=20)
    parser.add_argument("--trials", type=int, default=200)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    seed = arguments.seed
    if "real" in arguments.only:
        head = ["data", "rank", "p <= 0.01", "dependent", "whole p", "outcome", "median dispersion"]
        table(head, of_real(arguments.data, seed))
    if "shuffled" in arguments.only:
        head = ["shuffled labels", "rank", "shuffles", *NULL_HEAD]
        table(head, of_shuffled(arguments.data, seed, arguments.shuffles))
    if "planted" in arguments.only:
        table(["identical covariances", "data sets", *NULL_HEAD], of_planted(seed, arguments.trials))
    if "scale" in arguments.only:
        table(["proportional covariances", "data sets", *OUTCOMES], of_scale(seed, arguments.trials))
    if "power" in arguments.only:
        head = ["rows", "spread", "data sets", "whole", "MCPCs that differ", "axis that is alike, called different"]
        table(head, of_power(seed, max(arguments.trials // 4, 1)))


if __name__ == "__main__":
    main()
