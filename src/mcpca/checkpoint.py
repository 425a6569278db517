"""What survives a crash: the results of finished passes over the data, and the sums of the one under way.

A fit is deterministic given its passes, so a fit that starts again runs as before, except that passes that are on file
are not made again, and that the pass under way goes on where it was.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from ._check import Array
from ._files import read_file, write_file

FORMAT = "mcpca-checkpoint"
_SECONDS = 60.0  # between two writings within a pass


class Checkpoint:
    """Passes on file at ``path``, or nowhere where that is None.

    ``identity`` tells one fit from another: JSON values by name. A file with another one is not touched and raises.
    """

    def __init__(self, path: Any, identity: dict[str, Any]) -> None:
        self.path = None if path is None else Path(path)
        self.identity: dict[str, Any] = json.loads(json.dumps(identity))
        self.seed = int(np.random.SeedSequence().generate_state(1)[0])
        self._finished: list[list[Array]] = []
        self._under_way: tuple[int, list[Array]] | None = None
        self._next = 0
        self._written = time.monotonic()
        if self.path is not None and self.path.exists():
            self._read(self.path)
        elif self.path is not None and not self.path.parent.is_dir():
            raise FileNotFoundError(
                f"checkpoint={str(path)!r}: the folder {str(self.path.parent)!r} does not exist; create it first."
            )

    def recall(self, totals: list[Array]) -> bool:
        """Fill ``totals`` from the next finished pass, if there is one on file."""
        if self._next >= len(self._finished):
            return False
        for total, known in zip(totals, self._finished[self._next], strict=True):
            total[...] = known
        self._next += 1
        return True

    def resume(self, totals: list[Array]) -> int:
        """Fill ``totals`` with the sums of the pass under way, and return how many groups are in them."""
        if self._under_way is None:
            return 0
        groups, sums = self._under_way
        for total, known in zip(totals, sums, strict=True):
            total[...] = known
        self._under_way = None
        return groups

    def during(self, groups: int, totals: list[Array]) -> None:
        """Keep the sums over so many groups, if the last time is long enough ago."""
        if self.path is not None and time.monotonic() - self._written >= _SECONDS:
            self._write((groups, totals))

    def after(self, totals: list[Array]) -> None:
        """Keep the result of a finished pass, which is not to change any more."""
        if self.path is not None:
            self._finished.append(list(totals))
            self._next = len(self._finished)
            self._write(None)

    def finish(self) -> None:
        """Delete the file: the fit is done."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _write(self, under_way: tuple[int, list[Array]] | None) -> None:
        assert self.path is not None
        arrays = {f"pass_{i}_{j}": total for i, pass_ in enumerate(self._finished) for j, total in enumerate(pass_)}
        sizes = [len(pass_) for pass_ in self._finished]
        groups, sums = under_way or (0, [])
        arrays |= {f"sum_{j}": total for j, total in enumerate(sums)}
        header = {"identity": self.identity, "seed": self.seed, "sizes": sizes, "groups": groups, "sums": len(sums)}
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
        arrays, header = read_file(path, FORMAT, "checkpoint", "fit(..., checkpoint=path)")
        differ = sorted(name for name in self.identity if header["identity"].get(name) != self.identity[name])
        if differ:
            raise ValueError(
                f"checkpoint={str(path)!r} is of another fit: it differs in {', '.join(differ)}. Pass the data and "
                "parameters of that fit to resume it, or another path, or delete the file."
            )
        self.seed = header["seed"]
        self._finished = [[arrays[f"pass_{i}_{j}"] for j in range(size)] for i, size in enumerate(header["sizes"])]
        if header["sums"]:
            self._under_way = header["groups"], [arrays[f"sum_{j}"] for j in range(header["sums"])]
