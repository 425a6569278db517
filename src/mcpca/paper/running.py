"""Runs methods on cases, one at a time, and stores every trial of every method as one line of a file.

A run that was stopped can be resumed: what the file has is not done again. Lines are appended whole and flushed; an
incomplete last line, as a loss of power leaves it, is ignored when the file is read and cut off before more is written.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._covariances.context_covariances import context_covariances
from .._linalg.canonical import ascore
from .._utils.progress import ProgressLine, reporting
from ..baselines import METHODS, BaselineResult, run
from ..datasets import make_contexts
from .problems import Case, Sample

# The paper's methods in its order, then two established ones that it does not have.
COMPARED = (
    *("mspm", "pca_stack", "pca_c", "pca_svd", "hogsvd", "ffdiag", "qrj1d", "jacobi", "jennrich"),
    *("nls", "nls_svd", "nls_jennrich", "minf", "als", "pham", "uwedge"),
)
# The paper has plain SVD on the digits alone (its Fig. S2E), and not in the comparison of times and errors.
COMPARED_ON_DIGITS = (*COMPARED[:5], "svd", *COMPARED[5:])
LABELS = {
    "mspm": "MCPCA (mspm)",
    "pca_stack": "PCA-STACK",
    "pca_c": "PCA-C",
    "pca_svd": "PCA-SVD",
    "hogsvd": "HO GSVD",
    "svd": "SVD",
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
# Another stream than that of the data (``problems``), so that no method's start is made of the numbers that made A.
_METHOD_SEED = 21
_WARM_UP_SECONDS = 5.0


class Progress:
    """Lines on stderr: some that stay, and one that shows the current step."""

    def __init__(self) -> None:
        self._line = ProgressLine("", away=True)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._line.clear()
        print(text, file=sys.stderr, flush=True)

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Show steps while the body runs; methods and functions that it calls show no progress of their own."""
        with reporting(self._line, name):
            yield

    def step(self, section: str, done: int, total: int, what: str) -> None:
        """Report how many runs of a section are done, and what runs now."""
        self._line(section, done, total, what)


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
        Whether the file ends within a line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: list[Record] = []
        self.torn = False
        self._complete_bytes = 0  # up to the end of the last complete line
        text = path.read_bytes() if path.exists() else b""
        for number, line in enumerate(text.splitlines(keepends=True), 1):
            # Only the last line can be torn by a crash. A bad line before it is damage of another kind, which must not
            # be skipped in silence.
            is_last = self._complete_bytes + len(line) == len(text)
            record = _parse(line)
            if record is None and not is_last:
                raise ValueError(f"{path}, line {number}, is not a result; delete the line, or move the file away.")
            # Complete JSON without its line end is torn too: the next record would be appended to the same line.
            if record is None or not line.endswith(b"\n"):
                self.torn = True
                break
            self.records.append(record)
            self._complete_bytes += len(line)

    def add(self, record: Record) -> None:
        """Append a record as one line; when this returns, nothing of it is left in a buffer."""
        if self.torn:
            # Cut only now, and not when the file is read: reading a file changes nothing in it.
            os.truncate(self.path, self._complete_bytes)
            self.torn = False
        # Appending: a second run on the same file may repeat work, but never overwrites a line.
        with self.path.open("ab") as file:
            file.write((json.dumps(record) + "\n").encode())
        self.records.append(record)

    def find(self, key: Mapping[str, Any], time_limit: float | None) -> Record | None:
        """Return the latest record with these entries that is valid for a time limit.

        A run that was stopped by its limit is valid for the same limit only; one that came to its end, for any limit
        that it would have met.
        """
        # The latest first: a run that was repeated with a larger limit replaces the earlier one.
        for record in reversed(self.records):
            if all(record.get(name) == value for name, value in key.items()):
                same_limit = record.get("time_limit") == time_limit
                # A run without an answer has no seconds; with the same data and seed no limit would change that.
                in_time = time_limit is None or (record["seconds"] or 0) <= time_limit
                if same_limit or (in_time and not record.get("capped")):
                    return record
        return None


def by_method(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Return the records of each method, in the order in which methods first appear."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record["method"], []).append(record)
    return groups


def _parse(line: bytes) -> Record | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


@dataclass(frozen=True)
class Section:
    """Cases, and the number of trials of each; ``name`` is that of the file, and of the option ``--only``."""

    name: str
    title: str
    cases: Sequence[Case]
    trials: int
    methods: Sequence[str] = COMPARED

    def items(self) -> Iterator[tuple[int, Case, str, Record]]:
        """Yield trial, case, method and key of the record; trials outermost, so that a stopped run has all cases."""
        # Methods innermost, so that the data of a trial and case are drawn once for all of them.
        for trial in range(self.trials):
            for case in self.cases:
                for name in self.methods:
                    yield trial, case, name, {**case.describe(), "trial": trial, "method": name}

    def select(self, store: Store, time_limit: float | None) -> list[Record]:
        """Return the records of this section as it is asked for now; the file may have others."""
        records = (store.find(key, limit_for(name, time_limit)) for _, _, name, key in self.items())
        return [record for record in records if record is not None]


def limit_for(name: str, time_limit: float | None) -> float | None:
    """Return the limit if the method has such an option; the others do not iterate for long."""
    return time_limit if "time_limit" in METHODS[name].options else None


def run_section(section: Section, store: Store, time_limit: float | None, progress: Progress) -> list[Record]:
    """Run what the store does not have yet, and return all records of the section."""
    # Looked up method by method: those without a time limit are valid under any.
    todo = [item for item in section.items() if store.find(item[3], limit_for(item[2], time_limit)) is None]
    total = section.trials * len(section.cases) * len(section.methods)
    announce(section.name, store, total, len(todo), progress)
    sample: Sample | None = None
    drawn: tuple[int, str] | None = None  # what ``sample`` is: all methods get the same one
    with progress.section(section.name):
        for i, (trial, case, name, key) in enumerate(todo):
            progress.step(section.name, total - len(todo) + i, total, f"{name}, {case.name}, trial {trial + 1}")
            if sample is None or drawn != (trial, case.name):
                sample = case.sample(trial)
                drawn = (trial, case.name)
            store.add(key | measure_trial(name, sample, trial, limit_for(name, time_limit)))
    return section.select(store, time_limit)


def announce(section: str, store: Store, total: int, todo: int, progress: Progress) -> None:
    """Print how many runs there are, and how many of them are done already."""
    done = f", {total - todo} of them already in {store.path}" if todo < total else ""
    progress.say(f"{section}: {total} runs{done}")
    if store.torn:
        progress.say(f"{section}: the last line of {store.path} is incomplete; that run is repeated")


def measure_trial(name: str, sample: Sample, trial: int, time_limit: float | None) -> Record:
    """Run a method and return its time and error; if it cannot answer, the reason is in ``failed``."""
    result = attempt(name, sample.data, sample.rank, trial, time_limit)
    if isinstance(result, str):
        return {"error": None, "seconds": None, "capped": False, "time_limit": time_limit, "failed": result}
    A = result.components
    truth = sample.truth
    # At a wrong rank the smaller set of components is matched into the larger one.
    score = ascore(A, truth) if A.shape[1] >= truth.shape[1] else ascore(truth, A)
    # Cosines of unit vectors may exceed 1 by rounding, and the logarithmic axes take no negative error.
    return {"error": max(1 - score, 0.0), **outcome(result, time_limit)}


def attempt(name: str, data: Any, rank: int, trial: int, time_limit: float | None) -> BaselineResult | str:
    """Run a method with random numbers of its own; return its result, or the reason why it has none."""
    options: dict[str, Any] = {} if time_limit is None else {"time_limit": time_limit}
    # By name and not by position: a method has the same start whichever others are run beside it. crc32, since hash()
    # of a str differs from process to process.
    rng = np.random.default_rng([_METHOD_SEED, trial, zlib.crc32(name.encode())])
    try:
        return run(name, data, rank, random_state=rng, verbose=False, **options)
    except (ValueError, ArithmeticError) as error:  # LinAlgError is a ValueError
        return str(error)


def outcome(result: BaselineResult, time_limit: float | None) -> Record:
    """Return the entries that every record has."""
    # A run may converge in the very step that exceeds the limit: that one is complete.
    capped = time_limit is not None and not result.converged and result.seconds >= time_limit
    return {
        "seconds": result.seconds,
        "converged": result.converged,
        "capped": capped,
        "time_limit": time_limit,
        "notes": result.notes,
    }


def warm_up(names: Sequence[str]) -> None:
    """Run each method once on little data, so that no first trial pays for importing modules."""
    made = make_contexts(5, 12, 3, n_samples=50, random_state=np.random.default_rng(0))
    S = context_covariances(made.X, made.y).covariances
    for name in names:
        # The results are thrown away, and a failure does not matter here: on other data the method may do well.
        attempt(name, S, 3, 0, limit_for(name, _WARM_UP_SECONDS))
