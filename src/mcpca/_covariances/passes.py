"""One pass over the rows of all contexts: pieces in order, progress, checkpoints, and sums that are not finite.

A fit by passes, step by step (``docs/large.md`` says it for users):

1. ``fit_data_of_rows`` decides that covariances are not formed. Where a checkpoint has finished passes,
   ``check_rows_on_file`` reads all rows once, without products, and refuses them if they are not those of the file.
2. Rows on disk: a first look at a sixteenth of them, kept in memory for as long as it takes ("a first look"; not a
   pass, since it does not read all rows, and made again by a fit that resumes).
3. Pass 1, "means": the means (k, p) and a sketch of ``[S_1 ... S_k]`` (p, s). After a first look, and where every
   context fits into memory, it is "means and basis": the means and the first product ``G V``, ``G = sum_i S_i S_i``.
4. "basis", a pass for each further product of block Lanczos, until the leading eigenvectors of G are certified; each
   brings the core ``U^T S_i U`` and estimates of the squared norms with it. A context that is too large to be gathered
   adds two passes of its own rows to each.
5. The solver works on the core. It asks for rows again only in directions outside the basis: "components" draws each
   component from the covariances themselves, "core" and "loadings" are products with the result, "variances" the
   diagonals that a choice of rank, scaled features or noise of every feature need.

What is kept between passes are the means, the sketch and ``PassResults``; rows never are. A checkpoint holds the totals
of every finished pass, in this order and by these names, the totals of the pass under way with the number of groups of
rows in them, and marks of the rows of each context, made in pass 1. A fit that resumes runs from the beginning, and
each ``run_pass`` that finds its pass on file returns those totals instead of reading rows.

Groups and pieces of rows do not depend on the number of threads and their sums are added in order, so the answer does
not either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .._data import context_sums
from .._data.blocks import Room
from .._data.context_sums import Sum
from .._data.contexts import Contexts
from .._data.row_marks import marks_of
from .._data.sources import check_block
from .._utils.parallel import each, n_workers
from .._utils.progress import silent
from .._utils.types import Array, Report
from .checkpoint import Checkpoint, PassUnderWay
from .row_groups import Group, Piece, all_rows, one_context, whole_contexts

_TOL = 1e-7  # the default of ``MCPCA``, for passes that no fit with another tolerance asks for
_EXPLAINED_BYTES = 2**26  # of rows read at a time when NaN and infinite values are looked for

Kernel = Callable[[Any, Array], list[Sum]]


@dataclass
class PassLedger:
    """A count of the passes over the rows; it grows while a fit goes on."""

    n_passes: int = 0

    def enter(self, stage: str) -> str:
        """Count a pass, and return what progress calls it."""
        self.n_passes += 1
        return f"pass {self.n_passes}, {stage}"


@dataclass(frozen=True)
class Passes:
    """How passes are made: to whom progress is reported, and up to which tolerance a basis is wanted.

    Three things that change go with them: ``checkpoint``, which outlives the process; ``ledger``, which counts; and
    ``room``, memory for rows that must come together, which is used again from pass to pass.
    """

    report: Report
    checkpoint: Checkpoint
    tol: float
    ledger: PassLedger = field(default_factory=PassLedger)
    room: Room = field(default_factory=Room)

    @classmethod
    def silent(cls) -> Passes:
        """Return passes without progress and without a checkpoint."""
        return cls(silent, Checkpoint(None, {}), _TOL)


def run_pass(
    contexts: Contexts,
    passes: Passes,
    stage: str,
    kernel: Kernel,
    totals: list[Array],
    *,
    whole: Array | None = None,
    only: int | None = None,
) -> None:
    """Add what ``kernel`` makes of every piece to ``totals``, in the order of pieces.

    ``whole`` names contexts whose rows must come together; ``only`` is a context whose rows are all that is wanted.
    Kernels may run on other machines: they know arrays, and not the rows or whoever asks. Totals belong to the caller
    until the pass ends. From then on a checkpoint may hold them too, and they are read-only if it does.
    """
    if contexts.engine is not None:
        run_pass_on_workers(contexts, passes, stage, partial(contexts.engine.add, kernel), totals)
        return
    checkpoint = passes.checkpoint
    heading = passes.ledger.enter(stage)
    if checkpoint.recall(stage, totals):
        return
    skipped, skipped_rows = checkpoint.resume(stage, totals)
    rows = _wanted_rows(contexts, passes.room, whole, only)
    marking = checkpoint.marking
    marks = np.zeros(len(contexts.names), dtype=np.uint64)
    passes.report(heading, 0, rows.n_rows)
    number = done = 0
    for number, group in enumerate(rows.groups, start=1):
        done += group.n_rows
        if number > skipped:
            marks = marks + _add_group(group, contexts, kernel, totals, marking=marking)
            checkpoint.during(PassUnderWay(stage, number, done, totals), marks if marking else None)
        elif marking:
            # The pass was interrupted in the middle: what is in its sums is not added again, only compared.
            marks = marks + _marks_of_group(group, len(marks))
        if number == skipped:
            if done != skipped_rows:
                raise checkpoint.differs("the blocks that rows come in")
            if marking:
                checkpoint.compare_marks(marks, contexts.names)
        passes.report(heading, done, rows.n_rows)
    if number < skipped:
        raise checkpoint.differs("the blocks that rows come in")
    checkpoint.after(stage, totals)


def run_pass_on_workers(
    contexts: Contexts, passes: Passes, stage: str, add: Callable[[list[Array]], None], totals: list[Array]
) -> None:
    """Make a pass where the rows are: ``add`` adds all of it to ``totals``."""
    heading = passes.ledger.enter(stage)
    if passes.checkpoint.recall(stage, totals):
        return
    n_rows = int(contexts.n_samples.sum())
    passes.report(heading, 0, n_rows)
    add(totals)
    # The workers have named NaN and infinite values among the rows they hold, so only an overflow is left.
    if not all(np.isfinite(total).all() for total in totals):
        raise overflow(contexts)
    passes.report(heading, n_rows, n_rows)
    passes.checkpoint.after(stage, totals)


def check_rows_on_file(contexts: Contexts, passes: Passes) -> None:
    """Raise where rows are not those of the finished passes on file: one reading, without products.

    Rows on other machines were compared there, before the checkpoint was opened.
    """
    if contexts.engine is not None or not passes.checkpoint.resumed:
        return
    heading = "comparing rows with the checkpoint"
    n_rows = int(contexts.n_samples.sum())
    marks = np.zeros(len(contexts.names), dtype=np.uint64)
    done = 0
    passes.report(heading, 0, n_rows)
    for group in all_rows(contexts):
        marks += _marks_of_group(group, len(marks))
        done += group.n_rows
        passes.report(heading, done, n_rows)
    passes.checkpoint.compare_marks(marks, contexts.names)


def overflow(contexts: Contexts) -> ValueError:
    """Return the error for rows that are finite and sums of them that are not."""
    return ValueError(
        f"X is too large for {contexts.dtype}: its squares overflow. Divide it by a constant, or pass float64."
    )


class _WantedRows(NamedTuple):
    groups: Iterator[Group]
    n_rows: int


def _wanted_rows(contexts: Contexts, room: Room, whole: Array | None, only: int | None) -> _WantedRows:
    if whole is not None:
        return _WantedRows(whole_contexts(contexts, whole, room), int(contexts.n_samples[whole].sum()))
    if only is not None:
        return _WantedRows(one_context(contexts, only), int(contexts.n_samples[only]))
    return _WantedRows(all_rows(contexts), int(contexts.n_samples.sum()))


def _add_group(group: Group, contexts: Contexts, kernel: Kernel, totals: list[Array], *, marking: bool) -> Array:
    """Add the sums of a group to ``totals``, and return the marks (k,) of its rows: 0 unless ``marking``."""
    k = len(contexts.names)

    def of_piece(piece: Piece) -> tuple[list[Sum], Array | None]:
        X, codes = piece.load()
        # NaN and infinite values show in the sums; they are looked for there, once, and not in every row.
        with np.errstate(invalid="ignore", over="ignore"):
            return kernel(X, codes), marks_of(X, codes, k) if marking else None

    marks = np.zeros(k, dtype=np.uint64)
    # The pieces are a local of this function, so that their rows are gone before the next group is read.
    for sums, piece_marks in _over_pieces(of_piece, group.pieces()):
        for item in sums:
            if not np.isfinite(item.value.sum(dtype=np.float64)):
                _explain(contexts)
            context_sums.add(totals, item)
        if piece_marks is not None:
            marks += piece_marks
    return marks


def _marks_of_group(group: Group, k: int) -> Array:
    def of_piece(piece: Piece) -> Array:
        return marks_of(*piece.load(), k)

    return np.asarray(sum(_over_pieces(of_piece, group.pieces()), start=np.zeros(k, dtype=np.uint64)))


def _over_pieces(call: Callable[[Piece], Any], pieces: list[Piece]) -> Iterator[Any]:
    """Yield ``call`` of every piece in order; BLAS keeps its threads where there is one piece."""
    return each(call, pieces, n_workers() if len(pieces) > 1 else 1)


def _explain(contexts: Contexts) -> None:
    """Raise for sums that are not finite: name the rows that are not, or say that squares overflow."""
    for source in {id(source): source for source in contexts.sources}.values():
        for first, block in source.scan(_EXPLAINED_BYTES):
            check_block(block, first, "X")
    raise overflow(contexts)
