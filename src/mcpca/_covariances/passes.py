"""Run one pass over the rows of all contexts.

Everything that ``StreamedCovariances`` computes goes through ``run_pass``. It hands pieces of rows to a kernel and adds
the results in a fixed order, reports progress, writes and resumes checkpoints, and explains sums that are not finite.

A fit by passes, step by step (``docs/large.md`` is the version for users):

1. Decision. ``fit_data_of_rows`` finds that covariances should not be formed. If a checkpoint has finished passes,
   ``check_rows_on_file`` reads all rows once, without products, and refuses to resume if they have changed.
2. First look. If rows are on disk, a sixteenth of them is loaded and its leading directions are found. This is not
   counted as a pass, since it does not read all rows, and it is not in the checkpoint: a resumed fit repeats it.
3. Pass 1, "means". It finds the means (k, p) and a sketch of ``[S_1 ... S_k]`` (p, s). After a first look, if every
   context fits into memory, it is called "means and basis" and finds the means and the first product ``G V`` with
   ``G = sum_i S_i S_i``.
4. "basis". One pass for each further product of block Lanczos, until the leading eigenvectors of G are certified. Each
   also extends the core ``U^T S_i U`` and improves the estimates of the squared norms. A context that is too large to
   be gathered adds two passes over its own rows each time. By default the eigenvectors are multiplied by G once more at
   the end, by what the last pass has found, and are then outside the span of what was multiplied: "core" follows.
5. Solver. It works on the core, without rows, and asks for more only in directions outside the basis: "components"
   draws each component from the covariances themselves, "core" and "loadings" are products with the result, and
   "variances" are the diagonals that a choice of rank, scaled features or feature-wise noise need.

Between passes the means, the sketch and ``PassResults`` are kept; rows never are. A checkpoint holds the totals of
every finished pass under its stage's name, in order; the totals of the pass under way, with the number of row groups
they cover; and marks of each context's rows, made in pass 1. A resumed fit runs from the beginning, and ``run_pass``
returns the totals on file, where there are any, instead of reading rows.

Neither groups nor pieces of rows depend on the number of threads, and their sums are added in order, so the result does
not depend on it either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from .._data import context_sums
from .._data.blocks import Room, has_finite_sum
from .._data.context_sums import Sum
from .._data.contexts import Contexts
from .._data.read_ahead import steady_threads
from .._data.row_marks import marks_of
from .._data.sources import check_block
from .._data.sparse_products import compiled_products
from .._utils.parallel import each, n_workers
from .._utils.progress import silent
from .._utils.stages import Stage
from .._utils.types import Array, Report
from .checkpoint import Checkpoint, PassUnderWay
from .row_groups import Group, Groups, Piece, all_rows, one_context, whole_contexts

TOL = 1e-7  # of a basis, for passes outside a fit, and where rows cannot tell what would do
# Rows read at a time, 64 MB, when the row of a NaN has to be named. The fit has failed by then, so only memory counts.
_EXPLAIN_BYTES = 2**26
# Numbers in scores that wait until they are squared together, 32 MB in single precision. With fewer, sums over contexts
# are formed more often.
_WAITING_NUMBERS = 2**23

# What a block of rows (n, p) and the contexts of its rows (n,) add to the totals of a pass; see ``kernels.py``.
Kernel = Callable[[Any, Array], list[Sum]]


class PassEngine(Protocol):
    """Makes passes over rows that are not read here: on a device, or on other machines."""

    def add(self, kernel: Kernel, totals: list[Array]) -> None:
        """Add what ``kernel`` makes of all rows to ``totals``."""

    def add_gram(self, gram: Any, totals: list[Array]) -> None:
        """Add ``sum_i S_i S_i V`` and its by-products to ``totals``; see ``gram.py``."""


@dataclass
class PassLedger:
    """The number of passes made so far. Mutable: it grows as a fit proceeds."""

    n_passes: int = 0

    def enter(self, stage: str) -> str:
        """Count a pass, and return the heading for its progress, such as "pass 3, basis"."""
        self.n_passes += 1
        return Stage(f"pass {self.n_passes}, {stage}", "pass")


@dataclass(frozen=True)
class Passes:
    """The settings that all passes of a fit share, and the three objects that change as it proceeds.

    Settings are ``report``, the callback for progress, and ``tol``, the tolerance of the basis, or None for what the
    rows can tell (``sampling_limits``). What changes are
    ``checkpoint``, which outlives the process; ``ledger``, the count of passes; and ``room``, the buffer in which rows
    of whole contexts are gathered, reused from pass to pass. ``device`` makes the passes over rows on a device.
    """

    report: Report
    checkpoint: Checkpoint
    tol: float | None
    ledger: PassLedger = field(default_factory=PassLedger)
    room: Room = field(default_factory=Room)
    device: PassEngine | None = None

    @classmethod
    def silent(cls) -> Passes:
        """Return passes that report no progress and keep no checkpoint."""
        return cls(silent, Checkpoint(None, {}), TOL)


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
    """Apply ``kernel`` to every piece of the rows and add the results to ``totals``, in the order of the pieces.

    Parameters
    ----------
    stage : str
        Name of the pass in progress reports and in the checkpoint.
    kernel : callable
        It may run in other threads and on other machines, so it must hold arrays only: no rows, files or contexts.
    totals : list of ndarray
        Zeros to add to. If a checkpoint keeps them, they are read-only once the pass is finished.
    whole : ndarray of int, optional
        Read only these contexts, with all rows of a context in one piece.
    only : int, optional
        Read only this context, in pieces.
    """
    engine = engine_of(contexts, passes)
    if engine is not None:
        # The kernel goes to the rows, and only totals come back.
        run_pass_on_workers(contexts, passes, stage, partial(engine.add, kernel), totals)
        return
    checkpoint = passes.checkpoint
    # Passes on file are counted too: a resumed fit has the ``n_passes_`` of one that was never interrupted.
    heading = passes.ledger.enter(stage)
    if checkpoint.recall(stage, totals):
        return
    # The totals of an interrupted pass cover its first groups, which come in the same order again. Both numbers are 0
    # unless this is the pass that was under way when the file was last written.
    skipped, skipped_rows = checkpoint.resume(stage, totals)
    rows = _wanted_rows(contexts, passes, whole, only)
    # In the first pass only. It reads all rows of all contexts, whatever its stage, so its marks cover everything.
    marking = checkpoint.marking
    marks = np.zeros(len(contexts.names), dtype=np.uint64)  # sums of these wrap, as marks are meant to
    passes.report(heading, 0, rows.n_rows)
    # Set here, as the comparison after the loop needs ``number`` even if there are no groups.
    number = done = 0
    waiting: list[Sum] = []
    # Closed, so that a pass that fails leaves no thread behind that still reads.
    with rows.threads, compiled_products(contexts.sparse_bytes), closing(rows.groups):
        for number, group in enumerate(rows.groups, start=1):
            done += group.n_rows
            if number > skipped:
                marks = marks + _add_group(group, contexts, kernel, totals, waiting, marking=marking)
                # Totals are saved between groups and never within one: in a resumed pass no row is counted twice, or
                # lost. Nor with scores that wait to be added.
                if not waiting or _add_waiting(waiting, contexts, totals, least=_WAITING_NUMBERS):
                    checkpoint.during(PassUnderWay(stage, number, done, totals), marks if marking else None)
            elif marking:
                # The totals on file cover this group already. Its rows are read only to check that they are the same;
                # in later passes ``check_rows_on_file`` has done so, and a group on file is passed over.
                marks = marks + _marks_of_group(group, len(marks))
            if number == skipped:
                # A function that returns blocks of rows may cut them differently the second time.
                if done != skipped_rows:
                    raise checkpoint.differs("the blocks that rows come in")
                if marking:
                    checkpoint.compare_marks(marks, contexts.names)
            passes.report(heading, done, rows.n_rows)
    # Fewer groups than the totals on file cover: again, rows were cut differently.
    if number < skipped:
        raise checkpoint.differs("the blocks that rows come in")
    if waiting:
        _add_waiting(waiting, contexts, totals, least=1)
        checkpoint.during(PassUnderWay(stage, number, done, totals), marks if marking else None)
    checkpoint.after(stage, totals)


def engine_of(contexts: Contexts, passes: Passes) -> PassEngine | None:
    """Return what makes passes over rows on a device or on other machines; None if they are read here."""
    return contexts.engine if passes.device is None else passes.device


def run_pass_on_workers(
    contexts: Contexts, passes: Passes, stage: str, add: Callable[[list[Array]], None], totals: list[Array]
) -> None:
    """Run a pass on the machines or the device that hold the rows; ``add`` adds its result to ``totals``."""
    # No ``resume`` and no marks here: the pass is a single computation, so a file has all of it or nothing, and the
    # marks of rows that are elsewhere are in the identity of the fit.
    heading = passes.ledger.enter(stage)
    if passes.checkpoint.recall(stage, totals):
        return
    n_rows = int(contexts.n_samples.sum())
    passes.report(heading, 0, n_rows)
    add(totals)
    # Workers report NaN and infinite values among their own rows, so only an overflow can remain.
    if not all(np.isfinite(total).all() for total in totals):
        raise overflow(contexts)
    passes.report(heading, n_rows, n_rows)
    passes.checkpoint.after(stage, totals)


def check_rows_on_file(contexts: Contexts, passes: Passes) -> None:
    """Raise if the rows are not those of the finished passes on file. Reads all rows once, without products.

    Rows on other machines and on devices are part of the fit's identity, which was compared when the checkpoint was
    opened.
    """
    if engine_of(contexts, passes) is not None or not passes.checkpoint.resumed:
        return
    heading = "comparing rows with the checkpoint"
    n_rows = int(contexts.n_samples.sum())
    marks = np.zeros(len(contexts.names), dtype=np.uint64)
    done = 0
    passes.report(heading, 0, n_rows)
    # Marks are sums mod 2^64, so the order does not matter: rows come as is fastest, however the first pass took them.
    with steady_threads(contexts), closing(all_rows(contexts, ahead=True)) as groups:
        for group in groups:
            marks += _marks_of_group(group, len(marks))
            done += group.n_rows
            passes.report(heading, done, n_rows)
    passes.checkpoint.compare_marks(marks, contexts.names)


def overflow(contexts: Contexts) -> ValueError:
    """Return the error for finite rows whose sums are not finite."""
    return ValueError(
        f"X is too large for {contexts.dtype}: its squares overflow. Divide it by a constant, or pass float64."
    )


class _WantedRows(NamedTuple):
    """The row groups of a pass, how many rows they have in all, and what the loop over them has to run in."""

    groups: Groups
    n_rows: int
    threads: AbstractContextManager[None] = nullcontext()  # which can be entered as often as one likes


def _wanted_rows(contexts: Contexts, passes: Passes, whole: Array | None, only: int | None) -> _WantedRows:
    # Groups are generated as they are read, so the number of rows for progress has to come from the contexts.
    if whole is not None:
        # To and fro, and by the number of the pass, which is the same in a fit that was resumed.
        backwards = passes.ledger.n_passes % 2 == 0
        groups = whole_contexts(contexts, whole, passes.room, backwards=backwards)
        return _WantedRows(groups, int(contexts.n_samples[whole].sum()))
    if only is not None:
        return _WantedRows(one_context(contexts, only), int(contexts.n_samples[only]))
    return _WantedRows(all_rows(contexts, ahead=True), int(contexts.n_samples.sum()), steady_threads(contexts))


def _add_group(
    group: Group, contexts: Contexts, kernel: Kernel, totals: list[Array], waiting: list[Sum], *, marking: bool
) -> Array:
    """Add the sums of a group to ``totals`` and return the marks (k,) of its rows, which are 0 unless ``marking``.

    Scores to be squared are put with those that are ``waiting``.
    """
    k = len(contexts.names)

    def of_piece(piece: Piece) -> tuple[list[Sum], bool, Array | None]:
        X, codes = piece.load()
        # NaN and infinite values spread to the sums, where checking for them costs next to nothing while they are in
        # the cache.
        with np.errstate(invalid="ignore", over="ignore"):
            sums = kernel(X, codes)
            is_finite = all(
                has_finite_sum(item.value) for item in sums if not isinstance(item.key, context_sums.Squared)
            )
            return sums, is_finite, marks_of(X, codes, k) if marking else None

    marks = np.zeros(k, dtype=np.uint64)
    # Pieces are not kept in a variable: their rows must be released before the next group is read.
    for sums, is_finite, piece_marks in _over_pieces(of_piece, group.pieces()):
        # Before anything is added, so that no checkpoint ever holds totals that are not finite.
        if not is_finite:
            _explain(contexts)
        # Results come in the order of the pieces, whichever thread is done first: floating-point addition is not
        # associative, and totals must not depend on timing.
        for item in sums:
            if isinstance(item.key, context_sums.Squared):
                waiting.append(item)
            else:
                context_sums.add(totals, item)
        if piece_marks is not None:
            marks += piece_marks
    return marks


def _add_waiting(waiting: list[Sum], contexts: Contexts, totals: list[Array], least: int) -> bool:
    """Add the squares of the scores that are waiting, if these are ``least`` numbers or more; return whether so."""
    if sum(item.value.size for item in waiting) < least:
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        item = context_sums.squared(waiting)
    waiting.clear()
    if not has_finite_sum(item.value):
        _explain(contexts)
    context_sums.add(totals, item)
    return True


def _marks_of_group(group: Group, k: int) -> Array:
    def of_piece(piece: Piece) -> Array:
        return marks_of(*piece.load(), k)

    return np.asarray(sum(_over_pieces(of_piece, group.pieces()), start=np.zeros(k, dtype=np.uint64)))


def _over_pieces(call: Callable[[Piece], Any], pieces: list[Piece]) -> Iterator[Any]:
    """Yield ``call(piece)`` in order, in several threads; with a single piece BLAS keeps its threads instead."""
    return each(call, pieces, n_workers() if len(pieces) > 1 else 1)


def _explain(contexts: Contexts) -> None:
    """Raise for sums that are not finite: name the rows with NaN or infinite values, or report an overflow."""
    # The sums tell that something is wrong but not where, so rows are read again, up to the first bad block. Contexts
    # of one matrix share their source, which is read once.
    for source in {id(source): source for source in contexts.sources}.values():
        for first, block in source.scan(_EXPLAIN_BYTES):
            check_block(block, first, "X")
    raise overflow(contexts)
