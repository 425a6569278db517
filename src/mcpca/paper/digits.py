"""Digits on photographs: the rank by the paper's rule, and which digits each method finds at that rank.

The rule is applied as for the published ranks: runs to convergence, components paired as in the authors' code. For
comparison there are two more curves from the same seeds: components paired by ``|cos|``, and runs stopped after 100
steps.

A method has recovered a digit if its component that is closest to the mean image has |correlation| >= 0.8 with it, is
closest to no other digit, and has its loadings where the digit was planted: these contexts, and no others, have at
least half of its largest loading. Without the last two conditions a blot that resembles every digit would count three
times.
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
from .problems import PLANTED_DIGITS, Images, load_images
from .running import COMPARED_ON_DIGITS, Progress, Record, Store, announce, attempt, limit_for, outcome

RECOVERED = 0.8  # least |correlation| with the mean digit
CURVE = "choose_rank"  # the "method" of the record that holds the choice of the rank
PAIRED = "authors"  # how components of two runs are paired when the rank is chosen
_DATA_SEED = 22
_RANK_SEED = 23
CURVES: dict[str, Any] = {
    "authors": {"matching": PAIRED},
    "cosine": {},
    "stopped": {"tol": 1e-4, "max_iter": 100},
}


@dataclass(frozen=True)
class DigitsSection:
    """The section: ``n`` images per context, candidates for the rank, and the folder of data (None: scikit-learn's).

    The rank is chosen on the first of ``trials`` draws of the data, and used for all.
    """

    name: str
    title: str
    n: int
    ranks: tuple[int, ...]
    trials: int = 1
    directory: Path | None = None
    methods: Sequence[str] = COMPARED_ON_DIGITS

    def key(self, method: str, trial: int = 0) -> Record:
        """Return what identifies a record."""
        # Candidates and matching decide the rank, and the rank decides every method's result: both are in the key, so
        # that records of another choice are not taken for these.
        source = "scikit-learn" if self.directory is None else "mnist_backgrounds"
        rule = {"candidates": list(self.ranks), "matching": PAIRED}
        return {"case": source, "N": self.n, **rule, "trial": trial, "method": method}

    def keys(self) -> list[Record]:
        """Return the key of the choice of the rank, then those of the methods, draw by draw."""
        # The rank first, since the methods need it; draws outermost, so that each is drawn once for all methods.
        runs = [self.key(name, trial) for trial in range(self.trials) for name in self.methods]
        return [self.key(CURVE), *runs]


def run_digits(section: DigitsSection, store: Store, time_limit: float | None, progress: Progress) -> list[Record]:
    """Run what the store does not have yet; return the record of the rank first, then those of the methods."""
    keys = section.keys()
    # The choice of the rank has no cap: stopped half way it would be another rank, and another experiment.
    limits = [None if key["method"] == CURVE else limit_for(key["method"], time_limit) for key in keys]
    records = [store.find(key, limit) for key, limit in zip(keys, limits, strict=True)]
    missing = [i for i, record in enumerate(records) if record is None]
    announce(section.name, store, len(keys), len(missing), progress)
    data: Images | None = None
    drawn_trial = -1
    with progress.section(section.name):
        for done, i in enumerate(missing):
            name = keys[i]["method"]
            trial = keys[i]["trial"]
            progress.step(section.name, len(keys) - len(missing) + done, len(keys), f"{name}, draw {trial + 1}")
            if data is None or drawn_trial != trial:
                data = draw_data(section.directory, section.n, trial)
                drawn_trial = trial
            if name == CURVE:
                result = _choose_rank(data, section.ranks)
            else:
                assert records[0] is not None  # the rank comes first
                result = measure_method(name, data, records[0]["rank"], trial, limits[i])
            record = keys[i] | result
            records[i] = record
            store.add(record)
    return [record for record in records if record is not None]


def draw_data(directory: Path | None, n: int, trial: int) -> Images:
    """Return the data of a draw, which depend on its number alone."""
    return load_images(directory, n, np.random.default_rng([_DATA_SEED, trial]))


def _choose_rank(data: Images, ranks: Sequence[int]) -> Record:
    """Choose the rank by the paper's rule; return it with all that the pictures show."""
    # The seconds of all three curves together: what the section costs, not a time to compare.
    start = perf_counter()
    choices = curves(data.covariances, ranks, _RANK_SEED)
    choice = choices[PAIRED]
    # If no rank passes the rule, the most stable one: the methods are compared all the same.
    rank = int(choice.ranks[np.argmax(choice.mean_scores)]) if choice.rank is None else choice.rank
    return {
        "rank": rank,
        "ranks": choice.ranks.tolist(),
        # Five digits are more than a picture shows, and keep the line of the file short.
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
        "images": _rounded_images(data.means),
    }


def curves(S: Array, ranks: Sequence[int], seed: int) -> dict[str, RankChoice]:
    """Return the rule's answer for each of ``CURVES``, from the same seeds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the result counts runs that did not converge
        return {
            # A new generator of the same seed for each: the curves then differ by their variant, not by their starts.
            name: choose_rank(S, ranks, random_state=np.random.default_rng(seed), **options)
            for name, options in CURVES.items()
        }


def measure_method(name: str, data: Images, rank: int, trial: int, time_limit: float | None) -> Record:
    """Run a method; return the component closest to each digit, and whether the digit is recovered."""
    result = attempt(name, data.covariances, rank, trial, time_limit)
    if isinstance(result, str):
        return {"rank": rank, "seconds": None, "capped": False, "time_limit": time_limit, "failed": result}
    # means (3, p), A (p, r), B (k, r); loadings (k, 3) are those of the components closest to the three digits.
    A = result.components
    B = result.loadings
    correlations = _correlations(data.means, A)  # (3, r)
    # Signs of components are arbitrary, so |correlation| decides; the sign is kept for drawing the image.
    best = np.abs(correlations).argmax(axis=1)
    signed = correlations[np.arange(len(PLANTED_DIGITS)), best]
    loadings = B[:, best]
    agree = [
        # Equality and not inclusion: a component that loads on every context does not say where the digit is.
        set(np.flatnonzero(planted)) == set(carrying_contexts(b))
        for planted, b in zip(data.truth.T, loadings.T, strict=True)
    ]
    return {
        "rank": rank,
        "correlations": np.abs(signed).tolist(),
        "components": best.tolist(),
        "loadings": loadings.tolist(),
        "agree": agree,
        "recovered": _recovered(np.abs(signed), best, agree),
        # Only the first draw is shown in a figure.
        **({"images": _rounded_images((A[:, best] * np.where(signed < 0, -1, 1)).T)} if trial == 0 else {}),
        **outcome(result, time_limit),
    }


def _recovered(correlations: Array, best: Array, agree: Sequence[bool]) -> list[bool]:
    # One component that is closest to several digits has separated none of them.
    is_unique = [int((best == j).sum()) == 1 for j in best]
    return [
        bool(correlation >= RECOVERED and in_place and unique)
        for correlation, in_place, unique in zip(correlations, agree, is_unique, strict=True)
    ]


def _correlations(means: Array, A: Array) -> Array:
    """Return the correlation of each mean image with each component (3, r); 0 for a constant component."""
    # Pearson's correlation over pixels: both images are centred over their p pixels before the cosine.
    centred = A - A.mean(axis=0)
    centred_means = means - means.mean(axis=1, keepdims=True)
    norms = np.outer(np.linalg.norm(centred_means, axis=1), np.linalg.norm(centred, axis=0))
    # A constant image has norm 0 once centred: 0 / tiny is 0, and 0 / 0 would be NaN.
    return np.asarray(centred_means @ centred / np.maximum(norms, np.finfo(float).tiny))


def _rounded_images(rows: Array) -> Any:
    """Return images with four digits, relative to their largest pixel: as much as a picture shows, in a small file."""
    return np.round(rows / np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-300), 4).tolist()
