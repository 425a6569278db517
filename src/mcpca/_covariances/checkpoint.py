"""What survives a crash: the results of finished passes over the data, and the sums of the one under way.

A fit is deterministic given its passes, so a fit that starts again runs as before, except that passes that are on file
are not made again, and that the pass under way goes on where it was. The first pass also marks the rows of each context
(``fingerprints.marks_of``), by which a fit that starts again tells whether they are still the same.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from .._utils.array_files import read_file, write_file
from .._utils.atomic_files import remove_leftovers
from .._utils.locks import Busy, Lock
from .._utils.types import Array

FORMAT = "mcpca-checkpoint"
_SECONDS = 60.0  # between two writings within a pass
_SHOWN = 3  # of what differs
_MARKS = "marks"
_MOST = 10**6  # arrays in a file


class UnderWay(NamedTuple):
    """The sums over the first ``groups`` groups of a pass, which have ``rows`` rows."""

    groups: int
    rows: int
    sums: list[Array]


class Checkpoint:
    """Passes on file at ``path``, or nowhere where that is None; to be used in a ``with`` statement where it is not.

    ``identity`` tells one fit from another: JSON values by name, or dicts of them. A file with another one is not
    touched and raises, and so does one that another fit is writing to. ``draws`` is a generator of random numbers that
    a fit which fails leaves where it was: calling it again is then the same fit.
    """

    def __init__(self, path: Any, identity: dict[str, Any], draws: Any = None) -> None:
        self.path = None if path is None else Path(path)
        self.identity: dict[str, Any] = json.loads(json.dumps(identity))
        self.seed = int(np.random.SeedSequence().generate_state(1)[0])
        # Of the rows of each context (k,), uint64; not known before the first pass, and of some rows within it.
        self.marks: Array | None = None
        self._finished: list[list[Array]] = []
        self._under_way: UnderWay | None = None
        self._next = 0
        self._written = time.monotonic()
        self._draws, self._state = draws, None
        self._lock: Lock | None = None

    def __enter__(self) -> Self:
        if self.path is None:
            return self
        place = self._place()
        if not place.parent.is_dir():
            raise FileNotFoundError(
                f"checkpoint={str(self.path)!r}: the folder {str(place.parent)!r} does not exist; create it first."
            )
        self._lock = Lock(place)
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
            remove_leftovers(place)
            if place.exists():
                self._read(self.path)
        except BaseException:
            self._lock.give_back()
            raise
        self._state = _state_of(self._draws)
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if self._lock is not None:
            self._lock.give_back()
        if kind is not None and self._state is not None:
            _set_state(self._draws, self._state)

    @property
    def marking(self) -> bool:
        """Whether the pass that comes is the first, which marks rows."""
        return self.path is not None and not self._finished

    @property
    def resumed(self) -> bool:
        """Whether there are finished passes on file, and marks of all rows with them."""
        return bool(self._finished) and self._next == 0

    def recall(self, totals: list[Array]) -> bool:
        """Fill ``totals`` from the next finished pass, if there is one on file."""
        if self._next >= len(self._finished):
            return False
        self._fill(totals, self._finished[self._next])
        self._next += 1
        return True

    def resume(self, totals: list[Array]) -> tuple[int, int]:
        """Fill ``totals`` with the sums of the pass under way, and return how many groups and rows are in them."""
        if self._under_way is None:
            return 0, 0
        groups, rows, sums = self._under_way
        self._fill(totals, sums)
        self._under_way = None
        return groups, rows

    def during(self, groups: int, rows: int, totals: list[Array]) -> None:
        """Keep the sums over so many groups, if the last time is long enough ago."""
        if self.path is not None and time.monotonic() - self._written >= _SECONDS:
            self._write(UnderWay(groups, rows, totals))

    def after(self, totals: list[Array]) -> None:
        """Keep the totals of a finished pass. They are written again with every later one, so they become read-only."""
        if self.path is not None:
            for total in totals:
                total.flags.writeable = False
            self._finished.append(list(totals))
            self._next = len(self._finished)
            self._write(None)

    def finish(self) -> None:
        """Delete the file: the fit is done."""
        if self.path is not None:
            self._place().unlink(missing_ok=True)

    def differs(self, what: str) -> ValueError:
        """Return the error for a file that is of another fit."""
        return ValueError(
            f"checkpoint={str(self.path)!r} is of another fit: it differs in {what}. Pass the data and parameters of "
            "that fit to resume it, or another path, or delete the file."
        )

    def compare(self, marks: Array, names: Array) -> None:
        """Raise where these marks (k,) of the contexts ``names`` are not those on file."""
        if self.marks is None or self.marks.shape != marks.shape:
            raise self._damaged("marks", f"are not those of {len(marks):,} contexts")
        others = [f"context {name!r}" for name in names[self.marks != marks].tolist()]
        if others:
            raise self.differs(f"the rows ({_some(others)})")

    def _place(self) -> Path:
        """Where the file is: a link is followed."""
        return Path(os.path.realpath(str(self.path)))

    def _fill(self, totals: list[Array], known: list[Array]) -> None:
        shapes, found = [total.shape for total in totals], [values.shape for values in known]
        if shapes != found:
            raise self._damaged("passes", f"have shapes {found} where {shapes} are needed")
        for total, values in zip(totals, known, strict=True):
            total[...] = values

    def _damaged(self, what: str, why: str) -> ValueError:
        return ValueError(f"checkpoint={str(self.path)!r} is damaged: its {what} {why}; delete the file.")

    def _write(self, under_way: UnderWay | None) -> None:
        assert self.path is not None
        arrays = {f"pass_{i}_{j}": total for i, pass_ in enumerate(self._finished) for j, total in enumerate(pass_)}
        sizes = [len(pass_) for pass_ in self._finished]
        groups, rows, sums = under_way or UnderWay(0, 0, [])
        arrays |= {f"sum_{j}": total for j, total in enumerate(sums)}
        if self.marks is not None:
            arrays[_MARKS] = self.marks
        header = {"identity": self.identity, "seed": self.seed, "sizes": sizes}
        try:
            write_file(self.path, FORMAT, arrays, {**header, "groups": groups, "rows": rows, "sums": len(sums)})
        except OSError as error:
            raise OSError(
                error.errno,
                f"checkpoint={str(self.path)!r} could not be written ({error.strerror or error}); the previous one is "
                "as it was. Make room and call fit again to resume, or pass checkpoint=None",
            ) from error
        self._written = time.monotonic()

    def _read(self, path: Path) -> None:
        arrays, header = read_file(path, FORMAT, "checkpoint", "fit(..., checkpoint=path)", _members)
        theirs = header.get("identity")
        if not isinstance(theirs, dict) or not _is_count(header.get("seed")):
            raise self._damaged("header", "lacks what a fit is known by")
        differ = [_difference(name, mine, theirs.get(name)) for name, mine in self.identity.items()]
        if any(differ):
            raise self.differs(", ".join(sorted(filter(None, differ))))
        if not _tells(header):
            raise self._damaged("header", "does not say how many passes are in it")
        lost = [name for name in _members(header) if name not in arrays and name != _MARKS]
        if lost:
            raise self._damaged("header", f"tells of {_some(lost)}, which the file does not have")
        for name, values in arrays.items():
            if name != _MARKS and (values.dtype.kind != "f" or not np.isfinite(values).all()):
                raise self._damaged(f"array {name!r}", "is not of finite numbers")
        self.seed = header["seed"]
        self.marks = arrays.get(_MARKS)
        if self.marks is not None and self.marks.dtype != np.uint64:
            raise self._damaged("marks", f"are {self.marks.dtype}")
        self._finished = [[arrays[f"pass_{i}_{j}"] for j in range(size)] for i, size in enumerate(header["sizes"])]
        if header["sums"]:
            sums = [arrays[f"sum_{j}"] for j in range(header["sums"])]
            self._under_way = UnderWay(header["groups"], header["rows"], sums)


def _members(header: dict[str, Any]) -> Iterator[str]:
    """Yield the names of the arrays that a header tells of; none where it does not."""
    if _tells(header):
        yield from (f"pass_{i}_{j}" for i, size in enumerate(header["sizes"]) for j in range(size))
        yield from (f"sum_{j}" for j in range(header["sums"]))
        yield _MARKS


def _tells(header: dict[str, Any]) -> bool:
    """Whether a header says how many arrays there are, and no more than there can be."""
    sizes, counts = header.get("sizes"), [header.get(name, -1) for name in ("sums", "groups", "rows")]
    return (
        isinstance(sizes, list)
        and all(map(_is_count, [*sizes, *counts]))
        and len(sizes) + sum(sizes) + counts[0] <= _MOST
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _difference(name: str, mine: Any, its: Any) -> str | None:
    """Return the name of what differs, and within a dict the names there; None where nothing does."""
    if mine == its:
        return None
    if not isinstance(mine, dict) or not isinstance(its, dict):
        return name
    return f"{name} ({_some([own for own in {**mine, **its} if mine.get(own) != its.get(own)])})"


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else shown


def _state_of(draws: Any) -> Any:
    if isinstance(draws, np.random.Generator):
        return draws.bit_generator.state
    return draws.get_state(legacy=False) if isinstance(draws, np.random.RandomState) else None


def _set_state(draws: Any, state: Any) -> None:
    if isinstance(draws, np.random.Generator):
        draws.bit_generator.state = state
    else:
        draws.set_state(state)
