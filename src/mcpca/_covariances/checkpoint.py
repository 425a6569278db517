"""What survives a crash: the totals of finished passes over the rows, and those of the pass under way.

A fit is deterministic given its passes, so a fit that starts again runs as before, except that passes on file are not
made again, and that the pass under way goes on where it was. ``run_pass`` asks ``recall`` and ``resume`` before it
reads rows, and calls ``during`` and ``after`` to have totals kept.

The file holds, beside arrays, a header in JSON:

    code          digest of the code that wrote it (``code_digest``), and the version of the package for the message
    identity      what tells the fit from others (``fit_identity``)
    seed          of the fit, where the user gave none
    finished      stage and shapes of the totals of every finished pass, in order: arrays ``pass_<i>_<j>``
    under_way     the same of the pass under way, with the groups and rows in its totals: arrays ``sum_<j>``; or null

and ``marks`` of the rows of each context (``row_marks``), made in the first pass, by which a fit that resumes tells
whether they are still the same. Nothing is taken from a file in which any of these does not fit: it is refused by what
differs, and left as it is.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from .._utils.array_files import read_file, write_file
from .._utils.atomic_files import remove_leftovers
from .._utils.locks import Busy, Lock
from .._utils.types import Array
from .._utils.wording import listed
from .code_digest import code_digest

FORMAT = "mcpca-checkpoint"
# Between two writings within a pass. A crash loses at most as much work; a writing takes as long as the disk needs for
# the totals of all passes, which may be gigabytes.
_SECONDS_BETWEEN_WRITINGS = 60.0
_SHOWN = 3  # names in a message, of contexts or parameters that differ
_MARKS = "marks"
_MOST_ARRAYS = 10**6  # that a header may announce: a damaged one could make the reader look for any number of names


class FinishedPass(NamedTuple):
    """The totals of a finished pass, and the name of its stage ("means", "basis", ...)."""

    stage: str
    totals: list[Array]


class PassUnderWay(NamedTuple):
    """The totals over the first ``groups`` groups of a pass, which have ``rows`` rows."""

    stage: str
    groups: int
    rows: int
    totals: list[Array]


class Checkpoint:
    """Passes on file at ``path``, or nowhere where that is None; to be used in a ``with`` statement where it is not.

    ``identity`` tells one fit from another: JSON values by name, or dicts of them. A file with another one is not
    touched and raises, and so does one that another fit is writing to. ``draws`` is a generator of random numbers that
    a fit which fails leaves where it was: calling it again is then the same fit.
    """

    def __init__(self, path: Any, identity: dict[str, Any], draws: Any = None) -> None:
        self.path = None if path is None else Path(path)
        self.identity: dict[str, Any] = json.loads(json.dumps(identity))  # as it comes back from a file
        self.seed = int(np.random.SeedSequence().generate_state(1)[0])
        # Of the rows of each context (k,), uint64; not known before the first pass, and of some rows within it.
        self.marks: Array | None = None
        self._finished: list[FinishedPass] = []
        self._under_way: PassUnderWay | None = None
        self._next = 0  # the finished pass that ``recall`` returns next
        self._written = time.monotonic()
        self._draws = draws
        self._draws_state: Any = None
        self._lock: Lock | None = None

    def __enter__(self) -> Self:
        if self.path is None:
            return self
        target = self._target()
        if not target.parent.is_dir():
            raise FileNotFoundError(
                f"checkpoint={str(self.path)!r}: the folder {str(target.parent)!r} does not exist; create it first."
            )
        self._lock = Lock(target)
        try:
            self._lock.take()
        except OSError as error:
            why = f"its folder takes no files ({error.strerror or error}); pass another path"
            raise OSError(error.errno, f"checkpoint={str(self.path)!r}: {why}") from error
        except Busy as error:
            raise ValueError(
                f"checkpoint={str(self.path)!r} is in use by another fit ({error}); wait for it, or pass another path."
            ) from error
        try:
            remove_leftovers(target)
            if target.exists():
                self._read(self.path)
        except BaseException:
            self._lock.give_back()
            raise
        self._draws_state = _state_of(self._draws)
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if self._lock is not None:
            self._lock.give_back()
        if kind is not None and self._draws_state is not None:
            _set_state(self._draws, self._draws_state)

    @property
    def marking(self) -> bool:
        """Whether the pass that comes is the first, which marks rows."""
        return self.path is not None and not self._finished

    @property
    def resumed(self) -> bool:
        """Whether there are finished passes on file, and marks of all rows with them."""
        return bool(self._finished) and self._next == 0

    def recall(self, stage: str, totals: list[Array]) -> bool:
        """Fill ``totals`` from the next finished pass, if there is one on file."""
        if self._next >= len(self._finished):
            return False
        finished = self._finished[self._next]
        self._fill(stage, totals, finished.stage, finished.totals)
        self._next += 1
        return True

    def resume(self, stage: str, totals: list[Array]) -> tuple[int, int]:
        """Fill ``totals`` with those of the pass under way, and return how many groups and rows are in them."""
        if self._under_way is None:
            return 0, 0
        under_way = self._under_way
        self._fill(stage, totals, under_way.stage, under_way.totals)
        self._under_way = None
        return under_way.groups, under_way.rows

    def during(self, under_way: PassUnderWay, marks: Array | None = None) -> None:
        """Keep the totals of a pass under way, if the last writing is long enough ago.

        ``marks`` (k,) are of the rows so far, where the pass makes them.
        """
        if self.path is None:
            return
        self.marks = self.marks if marks is None else marks
        if time.monotonic() - self._written >= _SECONDS_BETWEEN_WRITINGS:
            self._write(under_way)

    def after(self, stage: str, totals: list[Array]) -> None:
        """Keep the totals of a finished pass. They are written again with every later one, so they become read-only."""
        if self.path is None:
            return
        for total in totals:
            total.flags.writeable = False
        self._finished.append(FinishedPass(stage, list(totals)))
        self._next = len(self._finished)
        self._write(None)

    def finish(self) -> None:
        """Delete the file: the fit is done."""
        if self.path is not None:
            self._target().unlink(missing_ok=True)

    def differs(self, what: str) -> ValueError:
        """Return the error for a file that is of another fit."""
        return ValueError(
            f"checkpoint={str(self.path)!r} is of another fit: it differs in {what}. Pass the data and parameters of "
            "that fit to resume it, or another path, or delete the file."
        )

    def compare_marks(self, marks: Array, names: Array) -> None:
        """Raise where these marks (k,) of the contexts ``names`` are not those on file."""
        if self.marks is None or self.marks.shape != marks.shape:
            raise self._damaged("marks", f"are not those of {len(marks):,} contexts")
        others = [f"context {name!r}" for name in names[self.marks != marks].tolist()]
        if others:
            raise self.differs(f"the rows ({listed(others, _SHOWN)})")

    def _target(self) -> Path:
        """Where the file is: a link is followed."""
        return Path(os.path.realpath(str(self.path)))

    def _fill(self, stage: str, totals: list[Array], stage_on_file: str, on_file: list[Array]) -> None:
        number = self._next + 1
        if stage_on_file != stage:
            raise self._does_not_fit(f"pass {number} is {stage_on_file!r} on file and {stage!r} in this fit")
        needed = [total.shape for total in totals]
        shapes = [values.shape for values in on_file]
        # NumPy would stretch (1,) to (3,) without a word.
        if shapes != needed:
            raise self._does_not_fit(f"pass {number}, {stage!r}, has shapes {shapes} where {needed} are needed")
        for total, values in zip(totals, on_file, strict=True):
            total[...] = values

    def _does_not_fit(self, why: str) -> ValueError:
        return ValueError(
            f"checkpoint={str(self.path)!r} does not fit: {why}. The two have taken different courses, as they may "
            "with another number of threads or another BLAS; delete the file to begin anew, or pass another path."
        )

    def _damaged(self, what: str, why: str) -> ValueError:
        return ValueError(f"checkpoint={str(self.path)!r} is damaged: its {what} {why}; delete the file.")

    def _write(self, under_way: PassUnderWay | None) -> None:
        assert self.path is not None
        arrays = {
            f"pass_{i}_{j}": total
            for i, finished in enumerate(self._finished)
            for j, total in enumerate(finished.totals)
        }
        header: dict[str, Any] = {
            "code": {"digest": code_digest(), "version": version("mcpca")},
            "identity": self.identity,
            "seed": self.seed,
            "finished": [_in_json(finished.stage, finished.totals) for finished in self._finished],
            "under_way": None,
        }
        if under_way is not None:
            arrays |= {f"sum_{j}": total for j, total in enumerate(under_way.totals)}
            progress = {"groups": under_way.groups, "rows": under_way.rows}
            header["under_way"] = _in_json(under_way.stage, under_way.totals) | progress
        if self.marks is not None:
            arrays[_MARKS] = self.marks
        try:
            write_file(self.path, FORMAT, arrays, header)
        except OSError as error:
            raise OSError(
                error.errno,
                f"checkpoint={str(self.path)!r} could not be written ({error.strerror or error}); the previous one is "
                "as it was. Make room and call fit again to resume, or pass checkpoint=None",
            ) from error
        self._written = time.monotonic()

    def _read(self, path: Path) -> None:
        arrays, header = read_file(path, FORMAT, "checkpoint", "fit(..., checkpoint=path)", _members)
        self._check_code(header.get("code"))
        identity = header.get("identity")
        if not isinstance(identity, dict) or not _is_count(header.get("seed")):
            raise self._damaged("header", "lacks what a fit is known by")
        differences = [_difference(name, value, identity.get(name)) for name, value in self.identity.items()]
        if any(differences):
            raise self.differs(", ".join(sorted(filter(None, differences))))
        if not _tells_passes(header):
            raise self._damaged("header", "does not say which passes are in it")
        self._check_arrays(arrays, header)
        self.seed = header["seed"]
        self.marks = arrays.get(_MARKS)
        self._finished = [
            FinishedPass(record["stage"], [arrays[f"pass_{i}_{j}"] for j in range(len(record["shapes"]))])
            for i, record in enumerate(header["finished"])
        ]
        record = header["under_way"]
        if record is not None:
            totals = [arrays[f"sum_{j}"] for j in range(len(record["shapes"]))]
            self._under_way = PassUnderWay(record["stage"], record["groups"], record["rows"], totals)

    def _check_code(self, code: Any) -> None:
        """Raise where the file was written by another state of the code, whose totals may be other numbers."""
        written = code if isinstance(code, dict) else {}
        if written.get("digest") == code_digest():
            return
        writer = f"mcpca {written.get('version')}, {written.get('digest')}" if written else "an earlier one"
        raise ValueError(
            f"checkpoint={str(self.path)!r} was written by another state of the code ({writer[:99]}) than this one "
            f"(mcpca {version('mcpca')}, {code_digest()}). Resume with that code, pass another path, or delete the "
            "file to begin anew."
        )

    def _check_arrays(self, arrays: dict[str, Array], header: dict[str, Any]) -> None:
        shapes = _shapes(header)
        lost = [name for name in shapes if name not in arrays]
        if lost:
            raise self._damaged("header", f"tells of {listed(lost, _SHOWN)}, which the file does not have")
        for name, shape in shapes.items():
            values = arrays[name]
            if values.shape != shape:
                raise self._damaged(f"array {name!r}", f"has shape {values.shape} and its header says {shape}")
            if values.dtype.kind != "f" or not np.isfinite(values).all():
                raise self._damaged(f"array {name!r}", "is not of finite numbers")
        marks = arrays.get(_MARKS)
        if marks is not None and marks.dtype != np.uint64:
            raise self._damaged("marks", f"are {marks.dtype}")


def _in_json(stage: str, totals: list[Array]) -> dict[str, Any]:
    return {"stage": stage, "shapes": [list(total.shape) for total in totals]}


def _members(header: dict[str, Any]) -> Iterator[str]:
    """Yield the names of the arrays that a header tells of; none where it does not."""
    if _tells_passes(header):
        yield from _shapes(header)
        yield _MARKS


def _shapes(header: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all totals that a header tells of, by the names of their arrays."""
    finished = {
        f"pass_{i}_{j}": tuple(shape)
        for i, record in enumerate(header["finished"])
        for j, shape in enumerate(record["shapes"])
    }
    under_way = header["under_way"]
    sums = [] if under_way is None else under_way["shapes"]
    return finished | {f"sum_{j}": tuple(shape) for j, shape in enumerate(sums)}


def _tells_passes(header: dict[str, Any]) -> bool:
    """Whether a header says which passes there are, with their stages and shapes, and no more than there can be."""
    finished = header.get("finished")
    under_way = header.get("under_way", {})
    if not isinstance(finished, list) or not all(map(_is_record, finished)):
        return False
    records = list(finished)
    if under_way is not None:
        if not _is_record(under_way) or not all(_is_count(under_way.get(name)) for name in ("groups", "rows")):
            return False
        records.append(under_way)
    return len(records) + sum(len(record["shapes"]) for record in records) <= _MOST_ARRAYS


def _is_record(record: Any) -> bool:
    """Whether this is what ``_in_json`` makes of a pass."""
    if not isinstance(record, dict) or not isinstance(record.get("stage"), str):
        return False
    shapes = record.get("shapes")
    return isinstance(shapes, list) and all(isinstance(shape, list) and all(map(_is_count, shape)) for shape in shapes)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _difference(name: str, value: Any, on_file: Any) -> str | None:
    """Return the name of what differs, and within a dict the names there; None where nothing does."""
    if value == on_file:
        return None
    if not isinstance(value, dict) or not isinstance(on_file, dict):
        return name
    return f"{name} ({listed([key for key in {**value, **on_file} if value.get(key) != on_file.get(key)], _SHOWN)})"


def _state_of(draws: Any) -> Any:
    if isinstance(draws, np.random.Generator):
        return draws.bit_generator.state
    return draws.get_state(legacy=False) if isinstance(draws, np.random.RandomState) else None


def _set_state(draws: Any, state: Any) -> None:
    if isinstance(draws, np.random.Generator):
        draws.bit_generator.state = state
    else:
        draws.set_state(state)
