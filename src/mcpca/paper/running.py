"""Runs methods on cases, one at a time, and keeps every trial of every method as one line of a file.

A run that was stopped goes on where it was: what the file has is not done again. Lines are written whole and flushed,
and a last line that is not complete is left out when the file is read and cut off before more is written.
"""

from __future__ import annotations

import json
import os
import sys
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from .._covariances.context_covariances import context_covariances
from .._linalg.canonical import ascore
from ..baselines import METHODS, BaselineResult, run
from ..datasets import make_contexts
from .problems import Case, Sample

# The paper's methods in its order, then two that users ask for.
COMPARED = (
    *("mspm", "pca_stack", "pca_c", "pca_svd", "hogsvd", "ffdiag", "qrj1d", "jacobi", "jennrich"),
    *("nls", "nls_svd", "nls_jennrich", "minf", "als", "pham", "uwedge"),
)
LABELS = {
    "mspm": "MCPCA (mspm)",
    "pca_stack": "PCA-STACK",
    "pca_c": "PCA-C",
    "pca_svd": "PCA-SVD",
    "hogsvd": "HO GSVD",
    "ffdiag": "FFDIAG",
    "qrj1d": "QRJ1D",
    "jacobi": "Jacobi",
    "jennrich": "Jennrich",
    "nls": "NLS (random start)",
    "nls_svd": "NLS (SVD start)",
    "nls_jennrich": "NLS (Jennrich start)",
    "minf": "MINF",
    "als": "ALS",
    "pham": "Pham",
    "uwedge": "UWEDGE",
}
Record = dict[str, Any]


class Progress:
    """Lines on stderr; on a terminal the current step is written over."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.over = self.stream.isatty()
        self.last = time.monotonic()

    def say(self, line: str) -> None:
        """Write a line that stays."""
        self.clear()
        print(line, file=self.stream, flush=True)
        self.last = time.monotonic()

    def step(self, section: str, done: int, total: int, what: str) -> None:
        """Tell how far a section is; away from a terminal about every 20 seconds."""
        text = f"{section}: {done} of {total} runs done, now {what}"
        if self.over:
            self.stream.write(f"\r{text[:110]:<110}")
            self.stream.flush()
        elif time.monotonic() - self.last > 20:
            self.say(text)

    def clear(self) -> None:
        """Take the current step off a terminal."""
        if self.over:
            self.stream.write("\r" + " " * 110 + "\r")


class Store:
    """Results of one section: a file with one JSON object per line.

    Parameters
    ----------
    path : Path
        Need not exist.

    Attributes
    ----------
    records : list of dict
        In the order of the file.
    torn : bool
        Whether the file ended within a line, as after a loss of power.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: list[Record] = []
        self.torn = False
        self._whole = 0  # bytes up to the end of the last complete line
        text = path.read_bytes() if path.exists() else b""
        for number, line in enumerate(text.splitlines(keepends=True), 1):
            last = self._whole + len(line) == len(text)
            record = _parse(line)
            if record is None and not last:
                raise ValueError(f"{path}, line {number}, is not a result; take the line out, or move the file away.")
            if record is None or not line.endswith(b"\n"):
                self.torn = True
                break
            self.records.append(record)
            self._whole += len(line)

    def add(self, record: Record) -> None:
        """Append a record as one line, and leave nothing of it in a buffer."""
        if self.torn:
            os.truncate(self.path, self._whole)
            self.torn = False
        # Appending, so that a second run on the same file can repeat work but not write over a line.
        with self.path.open("ab") as file:
            file.write((json.dumps(record) + "\n").encode())
        self.records.append(record)

    def find(self, key: Mapping[str, Any], time_limit: float | None) -> Record | None:
        """Return the latest record of ``key`` that holds for this time limit.

        One that was stopped by its limit holds for the same limit only; one that came to its end holds for any limit
        that it would have met.
        """
        for record in reversed(self.records):
            if all(record.get(name) == value for name, value in key.items()):
                same = record.get("time_limit") == time_limit
                within = not record.get("capped") and (time_limit is None or (record["seconds"] or 0) <= time_limit)
                if same or within:
                    return record
        return None


def _parse(line: bytes) -> Record | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


@dataclass(frozen=True)
class Section:
    """Cases and how many trials of each; ``name`` is that of the file and of the option."""

    name: str
    title: str
    cases: Sequence[Case]
    trials: int
    methods: Sequence[str] = COMPARED

    def items(self) -> Iterator[tuple[int, Case, str, Record]]:
        """Yield trial, case, method and the key of the record, trials outermost: a stopped run has all cases."""
        for trial in range(self.trials):
            for case in self.cases:
                for name in self.methods:
                    yield trial, case, name, {**case.describe(), "trial": trial, "method": name}

    def select(self, store: Store, time_limit: float | None) -> list[Record]:
        """Return the records of this section as it is now asked for, leaving out others in the file."""
        found = (store.find(key, limit_for(name, time_limit)) for _, _, name, key in self.items())
        return [record for record in found if record is not None]


def limit_for(name: str, time_limit: float | None) -> float | None:
    """Return the limit where the method takes one; the others have no long iteration."""
    return time_limit if "time_limit" in METHODS[name].options else None


def run_section(section: Section, store: Store, time_limit: float | None, progress: Progress) -> list[Record]:
    """Run what the store does not have, and return all records of the section."""
    todo = [item for item in section.items() if store.find(item[3], limit_for(item[2], time_limit)) is None]
    total = section.trials * len(section.cases) * len(section.methods)
    announce(section.name, store, total, len(todo), progress)
    sample: Sample | None = None
    drawn: tuple[int, str] | None = None
    for i, (trial, case, name, key) in enumerate(todo):
        progress.step(section.name, total - len(todo) + i, total, f"{name}, {case.name}, trial {trial + 1}")
        if sample is None or drawn != (trial, case.name):
            sample, drawn = case.sample(trial), (trial, case.name)
        store.add(key | measure(name, sample, trial, limit_for(name, time_limit)))
    progress.clear()
    return section.select(store, time_limit)


def announce(section: str, store: Store, total: int, todo: int, progress: Progress) -> None:
    """Say what is already there."""
    there = f", {total - todo} of them already in {store.path}" if todo < total else ""
    progress.say(f"{section}: {total} runs{there}")
    if store.torn:
        progress.say(f"{section}: the last line of {store.path} is not complete and is done again")


def measure(name: str, sample: Sample, trial: int, time_limit: float | None) -> Record:
    """Run a method and return its time and error; a method that cannot answer has its reason in ``failed``."""
    result = attempt(name, sample.data, sample.rank, trial, time_limit)
    if isinstance(result, str):
        return {"error": None, "seconds": None, "capped": False, "time_limit": time_limit, "failed": result}
    A, truth = result.components, sample.truth
    # The smaller set is matched into the larger one.
    score = ascore(A, truth) if A.shape[1] >= truth.shape[1] else ascore(truth, A)
    return {"error": max(1 - score, 0.0), **outcome(result, time_limit)}


def attempt(name: str, data: Any, rank: int, trial: int, time_limit: float | None) -> BaselineResult | str:
    """Run a method with its own random numbers; return why where it cannot answer."""
    options: dict[str, Any] = {} if time_limit is None else {"time_limit": time_limit}
    rng = np.random.default_rng([21, trial, zlib.crc32(name.encode())])
    try:
        return run(name, data, rank, random_state=rng, verbose=False, **options)
    except (ValueError, ArithmeticError) as error:  # LinAlgError is a ValueError
        return str(error)


def outcome(result: BaselineResult, time_limit: float | None) -> Record:
    """Return what is written of every run."""
    capped = time_limit is not None and not result.converged and result.seconds >= time_limit
    return {
        "seconds": result.seconds,
        "converged": result.converged,
        "capped": capped,
        "time_limit": time_limit,
        "notes": result.notes,
    }


def warm_up(names: Sequence[str]) -> None:
    """Run each method once on little data, so that no first trial pays for loading code."""
    made = make_contexts(5, 12, 3, n_samples=50, random_state=np.random.default_rng(0))
    S = context_covariances(made.X, made.y).covariances
    for name in names:
        attempt(name, S, 3, 0, limit_for(name, 5.0))
