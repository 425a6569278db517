"""One pass over the rows of all contexts: pieces in order, progress, what survives a crash, sums that are not finite.

Blocks of rows do not depend on the number of threads and their sums are added in order, so the answer does not either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from .._data import context_sums
from .._data.blocks import Room
from .._data.context_sums import Sum
from .._data.contexts import Contexts
from .._data.fingerprints import marks_of
from .._data.sources import check_block
from .._utils.parallel import each, n_workers
from .._utils.progress import silent
from .._utils.types import Array, Report
from .checkpoint import Checkpoint
from .row_groups import Group, Piece, all_rows, one_context, whole_contexts

_TOL = 1e-7


@dataclass(frozen=True)
class Passes:
    """How passes are made: what is told meanwhile, and what survives a crash. ``count`` grows with every pass.

    Rows that must come together are gathered in ``room``.
    """

    report: Report
    checkpoint: Checkpoint
    tol: float
    count: list[int] = field(default_factory=lambda: [0])
    room: Room = field(default_factory=Room)

    @classmethod
    def silent(cls) -> Passes:
        """Return passes that tell nothing and leave nothing."""
        return cls(silent, Checkpoint(None, {}), _TOL)


def run(
    contexts: Contexts,
    passes: Passes,
    stage: str,
    kernel: Callable[[Any, Array], list[Sum]],
    totals: list[Array],
    *,
    whole: Array | None = None,
    only: int | None = None,
) -> None:
    """Add what ``kernel`` makes of every piece to ``totals``, in the order of pieces.

    ``whole`` names contexts whose rows must come together; ``only`` is a context whose rows are all that is wanted.
    Kernels may run on other machines: they know arrays, and not the rows or whoever asks.
    """
    if contexts.engine is not None:
        run_on_workers(contexts, passes, stage, partial(contexts.engine.add, kernel), totals)
        return
    passes.count[0] += 1
    if passes.checkpoint.recall(totals):
        return
    skipped, skipped_rows = passes.checkpoint.resume(totals)
    groups: Iterator[Group] = all_rows(contexts)
    total = int(contexts.n_samples.sum())
    if whole is not None:
        groups, total = whole_contexts(contexts, whole, passes.room), int(contexts.n_samples[whole].sum())
    elif only is not None:
        groups, total = one_context(contexts, only), int(contexts.n_samples[only])
    workers, marking, k = n_workers(), passes.checkpoint.marking, len(contexts.names)
    marks = np.zeros(k, dtype=np.uint64)

    def of(piece: Piece) -> tuple[list[Sum], Array | None]:
        X, codes = piece.load()
        with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is looked for
            return kernel(X, codes), marks_of(X, codes, k) if marking else None

    done, stage = 0, f"pass {passes.count[0]}, {stage}"
    passes.report(stage, 0, total)
    number = 0
    for number, group in enumerate(groups, start=1):
        done += group.n_rows
        if number > skipped:
            pieces = group.pieces()
            for sums, own in each(of, pieces, workers if len(pieces) > 1 else 1):
                for item in sums:
                    if not np.isfinite(item.value.sum(dtype=np.float64)):
                        _explain(contexts)
                    context_sums.add(totals, item)
                marks += 0 if own is None else own
            del pieces  # and the rows with them, before the next are read
            passes.checkpoint.marks = marks if marking else passes.checkpoint.marks
            passes.checkpoint.during(number, done, totals)
        elif marking:
            marks += _marks(group, k)
        if number == skipped:
            if done != skipped_rows:
                raise passes.checkpoint.differs("the blocks that rows come in")
            if marking:
                passes.checkpoint.compare(marks, contexts.names)
        passes.report(stage, done, total)
    if number < skipped:
        raise passes.checkpoint.differs("the blocks that rows come in")
    passes.checkpoint.after(totals)


def compare(contexts: Contexts, passes: Passes) -> None:
    """Raise where rows are not those of the finished passes on file: one reading, without products."""
    if contexts.engine is not None or not passes.checkpoint.resumed:
        return  # those that are elsewhere were compared where they are
    marks, done, total = np.zeros(len(contexts.names), dtype=np.uint64), 0, int(contexts.n_samples.sum())
    passes.report("comparing rows with the checkpoint", 0, total)
    for group in all_rows(contexts):
        marks += _marks(group, len(marks))
        done += group.n_rows
        passes.report("comparing rows with the checkpoint", done, total)
    passes.checkpoint.compare(marks, contexts.names)


def _marks(group: Group, k: int) -> Array:
    pieces = group.pieces()

    def of(piece: Piece) -> Array:
        X, codes = piece.load()
        return marks_of(X, codes, k)

    return np.asarray(sum(each(of, pieces, n_workers() if len(pieces) > 1 else 1), start=np.zeros(k, dtype=np.uint64)))


def run_on_workers(
    contexts: Contexts, passes: Passes, stage: str, add: Callable[[list[Array]], None], totals: list[Array]
) -> None:
    """Make a pass where the rows are: ``add`` adds all of it to ``totals``."""
    passes.count[0] += 1
    if passes.checkpoint.recall(totals):
        return
    total, stage = int(contexts.n_samples.sum()), f"pass {passes.count[0]}, {stage}"
    passes.report(stage, 0, total)
    add(totals)
    if not all(np.isfinite(t).all() for t in totals):  # rows that are not finite were told by those who have them
        raise overflow(contexts)
    passes.report(stage, total, total)
    passes.checkpoint.after(totals)


def _explain(contexts: Contexts) -> None:
    """Raise for sums that are not finite: by the rows that are not, or because squares overflow."""
    for source in {id(source): source for source in contexts.sources}.values():
        for first, block in source.scan(2**26):
            check_block(block, first, "X")
    raise overflow(contexts)


def overflow(contexts: Contexts) -> ValueError:
    """Return the error for rows that are finite and sums of them that are not."""
    return ValueError(
        f"X is too large for {contexts.dtype}: its squares overflow. Divide it by a constant, or pass float64."
    )
