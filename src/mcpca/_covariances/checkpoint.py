"""Checkpoints: a file with the totals of finished passes over the rows, and of the pass under way.

Given the totals of its passes a fit is deterministic. To resume one is therefore to run it again from the beginning,
taking totals from the file for as long as there are any. ``run_pass`` calls ``recall`` and ``resume`` before it reads
rows, and ``during`` and ``after`` to save what it has summed.

Besides arrays, the file has a JSON header:

    code        digest of the code that wrote the file (``code_digest``), and the package version for error messages
    identity    the data's shape, labels and parameters (``fit_identity``)
    seed        the seed of the fit, used if the user gave none
    finished    stage and shapes of the totals of each finished pass, in order; the arrays are ``pass_<i>_<j>``
    under_way   the same for the pass under way, with the groups and rows summed so far; the arrays are ``sum_<j>``

The array ``marks`` has a mark of each context's rows (``row_marks``), made in the first pass. If any of these does not
match the fit, the file is refused with the name of what differs, and left as it is.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
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
# A crash loses about this much work of the pass under way. Writing more often costs more: each time the totals of all
# passes go to disk, and the means alone can be hundreds of megabytes.
_SECONDS_BETWEEN_WRITINGS = 60.0
# Share of the time of a fit that writing may take. After one that took longer than the second number, the next comes
# only when it does not take more than that: the passes in between are lost if the process is killed.
_SHARE_OF_TIME = 0.1
_NEGLIGIBLE_SECONDS = 0.25
_SHOWN = 3  # contexts, parameters or arrays listed in an error; the rest are counted
_MARKS = "marks"
# More arrays than any fit has. A header that lists more is damaged, and would keep the reader busy with their names.
_MOST_ARRAYS = 10**6


class FinishedPass(NamedTuple):
    """The totals of a finished pass and the name of its stage: "means", "basis", ..."""

    stage: str
    totals: list[Array]


class PassUnderWay(NamedTuple):
    """The totals over the first ``groups`` row groups of a pass, with ``rows`` rows in all."""

    stage: str
    groups: int
    rows: int
    totals: list[Array]


class Checkpoint:
    """The passes saved at ``path``, in a ``with`` statement; with ``path=None`` nothing is saved or resumed.

    Parameters
    ----------
    path : path or None
    identity : dict
        What distinguishes this fit from others: JSON values, or dicts of them, by the name that an error gives them. A
        file with another identity raises and is left alone, and so does one that another fit is writing.
    draws : Generator, BitGenerator or RandomState, optional
        The user's random generator. If the fit fails, its state is restored, so that calling ``fit`` again repeats the
        same fit and can resume.
    """

    def __init__(self, path: Any, identity: dict[str, Any], draws: Any = None) -> None:
        self.path = None if path is None else Path(path)
        self.identity: dict[str, Any] = json.loads(json.dumps(identity))  # as it will come back from a file
        # From the entropy of the system, unless a file brings the seed that the fit began with.
        self.seed = int(np.random.SeedSequence().generate_state(1)[0])
        # Marks of the rows of each context (k,), uint64: None before the first pass, of the rows so far during it.
        self.marks: Array | None = None
        self._finished: list[FinishedPass] = []
        self._under_way: PassUnderWay | None = None
        self._next = 0  # index of the finished pass that ``recall`` returns next
        # Monotonic, since the system clock may be set back.
        self._written = time.monotonic()
        self._pause = 0.0  # seconds from then on in which nothing is written
        self._has_unwritten = False  # a finished pass that is not on file
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
        # Locked before it is read, since the other fit might be about to replace or delete the file.
        self._lock = Lock(target)
        try:
            self._lock.take()
        except OSError as error:
            why = f"no file can be created in its folder ({error.strerror or error}); pass another path"
            raise OSError(error.errno, f"checkpoint={str(self.path)!r}: {why}") from error
        except Busy as error:
            raise ValueError(
                f"checkpoint={str(self.path)!r} is in use by another fit ({error}); wait for it, or pass another path."
            ) from error
        try:
            # Nobody else writes while this lock is held, so unfinished files of this name are of fits that were killed.
            remove_leftovers(target)
            if target.exists():
                self._read(self.path)
        except BaseException:  # __exit__ is not called if __enter__ raises
            self._lock.give_back()
            raise
        # The state that ``identity`` describes: nothing has been drawn since.
        self._draws_state = _state_of(self._draws)
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is not None and self._has_unwritten:
            # The fit has failed for a reason of its own, which is what the user has to be told.
            with suppress(OSError):
                self._write(None)
        if self._lock is not None:
            self._lock.give_back()
        # Only after a failure: a fit that succeeds has used its draws.
        if kind is not None and self._draws_state is not None:
            _set_state(self._draws, self._draws_state)

    @property
    def marking(self) -> bool:
        """Whether the next pass is the first, which marks rows."""
        return self.path is not None and not self._finished

    @property
    def resumed(self) -> bool:
        """Whether finished passes were read from the file, with marks of all rows, and none has been used yet."""
        return bool(self._finished) and self._next == 0

    def recall(self, stage: str, totals: list[Array]) -> bool:
        """Fill ``totals`` from the next finished pass on file; False if there is none."""
        if self._next >= len(self._finished):
            return False
        # In the order in which they were made: a fit that runs again asks for the same passes one after the other.
        finished = self._finished[self._next]
        self._fill(stage, totals, finished.stage, finished.totals)
        self._next += 1
        return True

    def resume(self, stage: str, totals: list[Array]) -> tuple[int, int]:
        """Fill ``totals`` from the pass under way, and return how many groups and rows they cover: 0 without one."""
        if self._under_way is None:
            return 0, 0
        under_way = self._under_way
        self._fill(stage, totals, under_way.stage, under_way.totals)
        # Used once: the passes that follow start at their first group.
        self._under_way = None
        return under_way.groups, under_way.rows

    def during(self, under_way: PassUnderWay, marks: Array | None = None) -> None:
        """Save the totals of the pass under way, unless the file was written less than a minute or so ago.

        ``marks`` (k,) are those of the rows so far, in the pass that makes them.
        """
        if self.path is None:
            return
        # Kept even if nothing is written now: ``after`` writes them with the totals of the pass.
        self.marks = self.marks if marks is None else marks
        if self._is_due(_SECONDS_BETWEEN_WRITINGS):
            self._write(under_way)

    def after(self, stage: str, totals: list[Array]) -> None:
        """Keep the totals of a finished pass, and save them, at once or with those of a later one.

        They are made read-only, since every later save writes them again.
        """
        if self.path is None:
            return
        # Kept without a copy, so they must not change before the next save.
        for total in totals:
            total.flags.writeable = False
        self._finished.append(FinishedPass(stage, list(totals)))
        self._next = len(self._finished)  # what this process has computed is not recalled
        self._has_unwritten = True
        if self._is_due(0.0):
            self._write(None)

    def _is_due(self, seconds: float) -> bool:
        """Whether to write: so many seconds after the last writing, or more if that took long."""
        return time.monotonic() - self._written >= max(seconds, self._pause)

    def finish(self) -> None:
        """Delete the file: the fit is done."""
        if self.path is not None:
            self._target().unlink(missing_ok=True)

    def differs(self, what: str) -> ValueError:
        """Return the error for a file that belongs to another fit."""
        return ValueError(
            f"checkpoint={str(self.path)!r} belongs to another fit: it differs in {what}. Pass the data and parameters "
            "of that fit to resume it, or another path, or delete the file."
        )

    def compare_marks(self, marks: Array, names: Array) -> None:
        """Raise if these marks (k,) of the contexts ``names`` are not those on file."""
        if self.marks is None or self.marks.shape != marks.shape:
            raise self._damaged("marks", f"are not of {len(marks):,} contexts")
        # Marks are by context, so that the error can say where rows have changed.
        others = [f"context {name!r}" for name in names[self.marks != marks].tolist()]
        if others:
            raise self.differs(f"the rows ({listed(others, _SHOWN)})")

    def _target(self) -> Path:
        """Return the path of the file itself: links are followed."""
        # Two paths to one file must share one lock, and unlinking a link would leave the file behind.
        return Path(os.path.realpath(str(self.path)))

    def _fill(self, stage: str, totals: list[Array], stage_on_file: str, on_file: list[Array]) -> None:
        # For errors; the pass under way follows the finished ones, all of which have been recalled by then.
        number = self._next + 1
        if stage_on_file != stage:
            raise self._does_not_match(f"pass {number} is {stage_on_file!r} on file and {stage!r} in this fit")
        needed = [total.shape for total in totals]
        shapes = [values.shape for values in on_file]
        # Compared before they are assigned, where NumPy would silently broadcast (1,) to (3,).
        if shapes != needed:
            raise self._does_not_match(f"pass {number}, {stage!r}, has shapes {shapes} where {needed} are needed")
        for total, values in zip(totals, on_file, strict=True):
            total[...] = values

    def _does_not_match(self, why: str) -> ValueError:
        return ValueError(
            f"checkpoint={str(self.path)!r} does not match: {why}. The fit has taken a different course, as it may "
            "with another number of threads or another BLAS. Delete the file to start afresh, or pass another path."
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
        # Everything that ``_read`` compares goes into the file each time: ``write_file`` replaces it as a whole, so
        # that a crash leaves the previous one.
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
        begin = time.monotonic()
        try:
            write_file(self.path, FORMAT, arrays, header)
        except OSError as error:
            raise OSError(
                error.errno,
                f"checkpoint={str(self.path)!r} could not be written ({error.strerror or error}); the previous one is "
                "unchanged. Free some space and call fit again to resume, or pass checkpoint=None",
            ) from error
        self._written = time.monotonic()
        took = self._written - begin
        self._pause = took / _SHARE_OF_TIME if took > _NEGLIGIBLE_SECONDS else 0.0
        self._has_unwritten = False

    def _read(self, path: Path) -> None:
        arrays, header = read_file(path, FORMAT, "checkpoint", "fit(..., checkpoint=path)", _members)
        # The code comes first: other code may write another layout, which would look like damage.
        self._check_code(header.get("code"))
        identity = header.get("identity")
        if not isinstance(identity, dict) or not _is_count(header.get("seed")):
            raise self._damaged("header", "does not identify a fit")
        # Files of the same code have the same names in their identity, so those of this fit are enough.
        differences = [_difference(name, value, identity.get(name)) for name, value in self.identity.items()]
        if any(differences):
            raise self.differs(", ".join(sorted(filter(None, differences))))
        if not _lists_passes(header):
            raise self._damaged("header", "does not list the passes in the file")
        self._check_arrays(arrays, header)
        # Nothing is taken over before every check has passed.
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
        """Raise if the file was written by another state of the code, whose totals may be different numbers."""
        written = code if isinstance(code, dict) else {}
        if written.get("digest") == code_digest():
            return
        writer = f"mcpca {written.get('version')}, {written.get('digest')}" if written else "an earlier version"
        raise ValueError(
            f"checkpoint={str(self.path)!r} was written by different code ({writer[:99]}) from that running now (mcpca "
            f"{version('mcpca')}, {code_digest()}). Resume with that code, pass another path, or delete the file to "
            "start afresh."
        )

    def _check_arrays(self, arrays: dict[str, Array], header: dict[str, Any]) -> None:
        shapes = _shapes(header)
        missing = [name for name in shapes if name not in arrays]
        if missing:
            raise self._damaged("header", f"lists {listed(missing, _SHOWN)}, which the file lacks")
        # Totals that are not finite are never written, and would spoil the fit without a warning.
        for name, shape in shapes.items():
            values = arrays[name]
            if values.shape != shape:
                raise self._damaged(f"array {name!r}", f"has shape {values.shape}, and the header says {shape}")
            if values.dtype.kind != "f" or not np.isfinite(values).all():
                raise self._damaged(f"array {name!r}", "has values that are not finite numbers")
        marks = arrays.get(_MARKS)
        if marks is not None and marks.dtype != np.uint64:
            raise self._damaged("marks", f"are {marks.dtype}")


def _in_json(stage: str, totals: list[Array]) -> dict[str, Any]:
    return {"stage": stage, "shapes": [list(total.shape) for total in totals]}


def _members(header: dict[str, Any]) -> Iterator[str]:
    """Yield the names of the arrays that a header lists; none if it is malformed."""
    if _lists_passes(header):
        yield from _shapes(header)
        yield _MARKS


def _shapes(header: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all totals that a header lists, by the names of their arrays."""
    finished = {
        f"pass_{i}_{j}": tuple(shape)
        for i, record in enumerate(header["finished"])
        for j, shape in enumerate(record["shapes"])
    }
    under_way = header["under_way"]
    sums = [] if under_way is None else under_way["shapes"]
    return finished | {f"sum_{j}": tuple(shape) for j, shape in enumerate(sums)}


def _lists_passes(header: dict[str, Any]) -> bool:
    """Whether a header lists its passes in the way this module writes them, and not more than a fit can have."""
    finished = header.get("finished")
    # None if no pass was under way; {}, which is no record, if the header does not say.
    under_way = header.get("under_way", {})
    if not isinstance(finished, list) or not all(map(_is_record, finished)):
        return False
    records = list(finished)
    if under_way is not None:
        if not _is_record(under_way) or not all(_is_count(under_way.get(name)) for name in ("groups", "rows")):
            return False
        records.append(under_way)
    # Counted from the header, before a single array is read or named.
    return len(records) + sum(len(record["shapes"]) for record in records) <= _MOST_ARRAYS


def _is_record(record: Any) -> bool:
    """Whether this is the output of ``_in_json``."""
    if not isinstance(record, dict) or not isinstance(record.get("stage"), str):
        return False
    shapes = record.get("shapes")
    return isinstance(shapes, list) and all(isinstance(shape, list) and all(map(_is_count, shape)) for shape in shapes)


def _is_count(value: Any) -> bool:
    # JSON has no bound on integers, and True is an int to Python. 2^63 is where lengths of arrays end.
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _difference(name: str, value: Any, on_file: Any) -> str | None:
    """Return the name if the values differ, with the keys that do if they are dicts; None if they are equal."""
    if value == on_file:
        return None
    if not isinstance(value, dict) or not isinstance(on_file, dict):
        return name
    # The keys of both, since either may lack some.
    return f"{name} ({listed([key for key in {**value, **on_file} if value.get(key) != on_file.get(key)], _SHOWN)})"


def _state_of(draws: Any) -> Any:
    # A copy, which later draws leave alone. A seed or None has no state to restore.
    draws = getattr(draws, "bit_generator", draws)  # a Generator is no more than its bits
    if isinstance(draws, np.random.BitGenerator):
        return draws.state
    return draws.get_state(legacy=False) if isinstance(draws, np.random.RandomState) else None


def _set_state(draws: Any, state: Any) -> None:
    draws = getattr(draws, "bit_generator", draws)
    if isinstance(draws, np.random.BitGenerator):
        draws.state = state
    else:
        draws.set_state(state)
