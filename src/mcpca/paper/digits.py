"""Digits on photographs: the rank by the paper's rule, and what each method makes of it.

The rule is taken as the published ranks were: runs to convergence, components paired as in the authors' code. Beside it
stand the curves of the same seeds with components paired by ``|cos|``, and with runs stopped after 100 steps.

A digit counts as recovered by a method where the component that is closest to its mean image has |correlation| >= 0.8
with it, is closest to no other digit, and has its loadings where the digit was planted: the contexts with at least half
of its largest loading are those. Without the last two a blot that is like every digit would count three times.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .._rank.paper_rule import RankChoice, choose_rank
from .._utils.types import Array
from ..sharing import carrying_contexts
from .problems import DIGITS, Images, load_images
from .running import COMPARED, Progress, Record, Store, announce, attempt, limit_for, outcome

RECOVERED = 0.8
CURVE = "choose_rank"
PAIRED = "authors"  # how components of two runs are paired where the rank is chosen
CURVES: dict[str, Any] = {
    "authors": {"matching": PAIRED},
    "cosine": {},
    "stopped": {"tol": 1e-4, "max_iter": 100},
}


@dataclass(frozen=True)
class DigitsSection:
    """What to run: ``n`` images per context, candidates for the rank, and where the files are (None: scikit-learn).

    The rank is chosen on the first of ``trials`` draws of the data.
    """

    name: str
    title: str
    n: int
    ranks: tuple[int, ...]
    trials: int = 1
    directory: Path | None = None
    methods: Sequence[str] = COMPARED

    def key(self, method: str, trial: int = 0) -> Record:
        """Return what identifies a record."""
        source = "scikit-learn" if self.directory is None else "mnist_backgrounds"
        rule = {"candidates": list(self.ranks), "matching": PAIRED}
        return {"case": source, "N": self.n, **rule, "trial": trial, "method": method}

    def keys(self) -> list[Record]:
        """Return the key of the rank, then those of the methods, draw by draw."""
        runs = [self.key(name, trial) for trial in range(self.trials) for name in self.methods]
        return [self.key(CURVE), *runs]


def run_digits(section: DigitsSection, store: Store, time_limit: float | None, progress: Progress) -> list[Record]:
    """Run what the store does not have; return the record of the rank first, then those of the methods."""
    keys = section.keys()
    limits = [None if key["method"] == CURVE else limit_for(key["method"], time_limit) for key in keys]
    records = [store.find(key, limit) for key, limit in zip(keys, limits, strict=True)]
    missing = [i for i, record in enumerate(records) if record is None]
    announce(section.name, store, len(keys), len(missing), progress)
    data, drawn = None, -1
    for done, i in enumerate(missing):
        name, trial = keys[i]["method"], keys[i]["trial"]
        progress.step(section.name, len(keys) - len(missing) + done, len(keys), f"{name}, draw {trial + 1}")
        if data is None or drawn != trial:
            data, drawn = draw_images(section.directory, section.n, trial), trial
        if name == CURVE:
            found = _curve(data, section.ranks)
        else:
            assert records[0] is not None  # the rank comes first
            found = measure_method(name, data, records[0]["rank"], trial, limits[i])
        records[i] = keys[i] | found
        store.add(keys[i] | found)
    progress.clear()
    return [record for record in records if record is not None]


def draw_images(directory: Path | None, n: int, trial: int) -> Images:
    """Return the data of a draw, a function of its number alone."""
    return load_images(directory, n, np.random.default_rng([22, trial]))


def _curve(data: Images, ranks: Sequence[int]) -> Record:
    """Choose the rank by the paper's rule; return it with what the pictures need."""
    start = perf_counter()
    choices = curves(data.covariances, ranks, 23)
    choice = choices[PAIRED]
    rank = int(choice.ranks[np.argmax(choice.mean_scores)]) if choice.rank is None else choice.rank
    return {
        "rank": rank,
        "ranks": choice.ranks.tolist(),
        "curves": {name: np.round(c.mean_scores, 5).tolist() for name, c in choices.items()},
        "chosen": {name: c.rank for name, c in choices.items()},
        "unsettled": {name: np.asarray(c.unsettled).tolist() for name, c in choices.items()},
        "threshold": choice.threshold,
        "reason": choice.reason,
        "seconds": perf_counter() - start,
        "source": data.source,
        "contexts": list(data.contexts),
        "planted": data.truth.tolist(),
        "side": data.side,
        "images": _images(data.means),
    }


def curves(S: Array, ranks: Sequence[int], seed: int) -> dict[str, RankChoice]:
    """Return the rule's answer for each of ``CURVES``, from the same seeds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # counted in what is returned
        return {
            name: choose_rank(S, ranks, random_state=np.random.default_rng(seed), **options)
            for name, options in CURVES.items()
        }


def measure_method(name: str, data: Images, rank: int, trial: int, time_limit: float | None) -> Record:
    """Run a method; return the component closest to each digit, and whether the digit is recovered."""
    result = attempt(name, data.covariances, rank, trial, time_limit)
    if isinstance(result, str):
        return {"rank": rank, "seconds": None, "capped": False, "time_limit": time_limit, "failed": result}
    A, B = result.components, result.loadings
    correlations = _correlations(data.means, A)
    best = np.abs(correlations).argmax(axis=1)
    signed = correlations[np.arange(len(DIGITS)), best]
    loadings = B[:, best]
    agree = [set(np.flatnonzero(t)) == set(carrying_contexts(b)) for t, b in zip(data.truth.T, loadings.T, strict=True)]
    return {
        "rank": rank,
        "correlations": np.abs(signed).tolist(),
        "components": best.tolist(),
        "loadings": loadings.tolist(),
        "agree": agree,
        "recovered": _recovered(np.abs(signed), best, agree),
        # Pictures are drawn of the first draw alone.
        **({"images": _images((A[:, best] * np.where(signed < 0, -1, 1)).T)} if trial == 0 else {}),
        **outcome(result, time_limit),
    }


def _recovered(correlations: Array, best: Array, agree: Sequence[bool]) -> list[bool]:
    alone = [int((best == j).sum()) == 1 for j in best]
    return [bool(c >= RECOVERED and a and own) for c, a, own in zip(correlations, agree, alone, strict=True)]


def _correlations(means: Array, A: Array) -> Array:
    """Return the correlation of each mean image with each component; 0 where a component is constant."""
    centred = A - A.mean(axis=0)
    pictures = (means - means.mean(axis=1, keepdims=True)).T
    sizes = np.outer(np.linalg.norm(pictures, axis=0), np.linalg.norm(centred, axis=0))
    return np.asarray(pictures.T @ centred / np.maximum(sizes, np.finfo(float).tiny))


def _images(rows: Array) -> Any:
    """Return images to four digits of their largest pixel, which is what a picture shows."""
    return np.round(rows / np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-300), 4).tolist()
