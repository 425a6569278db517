"""Rows in groups of pieces, as passes read them.

``run_pass`` needs all rows in any order, all rows of each context together, or the rows of a single context. Rows in
memory are gathered by context, one piece at a time. Other rows are read in the order of the file; if all rows of a
context are needed together, each reading of the file gathers as many contexts as fit into memory.

A piece is the work of one thread. A group is loaded at once, and a pass can be interrupted and resumed after it. Both
depend on the data and on ``memory_limit()`` only, and not on the number of threads, so that sums always come out the
same.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._data import context_sums
from .._data.blocks import SCAN_BYTES, Room
from .._data.contexts import Contexts
from .._data.held_rows import held, memory_limit
from .._data.labels import as_numbers
from .._data.preprocessed import expect_rereads, is_file
from .._data.read_ahead import blocks_ahead, steady_threads
from .._data.sources import CSRDiskSource, CSRSource, DenseDiskSource, Source, as_source
from .._data.sparse_products import compiled_rows
from .._utils.types import Array, Report

# Bytes of rows in a piece, 8 MB. With larger ones threads idle at the end of a group, and take more memory, since each
# holds a copy of its piece. With smaller ones products have few rows, and there are more sums to add.
_PIECE_BYTES = 2**23
# And of those that a panel is cut into, 16 MB, where they are views. Each adds a product of p numbers a direction to
# the total, which takes as long as to multiply some hundred rows; larger pieces leave the cache while they are
# multiplied.
_PANEL_PIECE_BYTES = 2**24
# Pieces in a group of rows in memory. With more, checkpoints are written less often and more sums wait to be added in
# order; with fewer, threads more often wait for the last piece of a group.
_PIECES_PER_GROUP = 16
# Pieces that a block from a file is cut into, so that as many threads can share it. It must not follow the number of
# threads, since the order of sums depends on it.
_PIECES_PER_BLOCK = 4
# Share of the memory for rows that decoded parts of a compressed file may take besides, where each panel takes a
# reading of it. With half, most of the indices of a million cells are decoded once.
_KEPT_SHARE = 0.5
ON_DISK = (CSRDiskSource, DenseDiskSource)  # files of which single rows can be read


class Piece(NamedTuple):
    """The work of one thread; ``load`` returns its rows and the index of each row's context."""

    load: Callable[[], tuple[Any, Array]]
    n_rows: int


class Group(NamedTuple):
    """Pieces that are loaded together by calling ``pieces``; a pass can be interrupted and resumed after a group."""

    pieces: Callable[[], list[Piece]]
    n_rows: int


Groups = Generator[Group, None, None]


class _Segment(NamedTuple):
    """Rows ``start`` to ``stop`` of context ``context``."""

    context: int
    start: int
    stop: int


def loaded_if_small(contexts: Contexts, report: Report) -> Contexts:
    """Return contexts with their rows in memory if files hold them and all fit into ``memory_limit()``, else as is.

    Passes gather that many bytes of rows at a time in any case, and so need not read them again.
    """
    files = {id(source): source for source in contexts.sources if is_file(source)}
    if not files or sum(source.nbytes for source in files.values()) > memory_limit():
        return contexts
    here: dict[int, Source] = {}
    with steady_threads(contexts):
        for key, source in files.items():
            loaded = held(source, memory_limit(), report, "reading rows")
            if loaded is None:  # sizes of prepared rows are estimates
                return contexts
            here[key] = loaded
    return replace(contexts, sources=[here.get(id(source), source) for source in contexts.sources])


def all_rows(contexts: Contexts, *, ahead: bool = False) -> Groups:
    """Yield all rows once, in any order.

    ``ahead`` reads files a block ahead of what is asked for; the loop over the groups then runs in ``steady_threads``.
    """
    # Identity and not equality: contexts of one labelled matrix share the object, and the file is read once for all.
    read: list[Source] = []
    for source in contexts.sources:
        if not _read_in_order(contexts, source) or any(source is other for other in read):
            continue
        read.append(source)
        codes = contexts.codes(source)
        # The file is read in order, as groups are asked for; what threads share is the work on each block.
        for first, block in blocks_ahead(source, SCAN_BYTES) if ahead else source.scan(SCAN_BYTES):
            block_codes = codes[first : first + block.shape[0]]
            yield Group(partial(_split, block, block_codes), int((block_codes >= 0).sum()))
    # The others come by context, so that kernels need not sort them.
    gathered = [i for i, source in enumerate(contexts.sources) if not _read_in_order(contexts, source)]
    yield from _grouped(contexts, _segments(contexts, gathered, cut=True))


def whole_contexts(contexts: Contexts, wanted: Array, room: Room, *, backwards: bool = False) -> Groups:
    """Yield the rows of the wanted contexts, with all rows of a context in one piece.

    Rows that are not in memory are gathered in ``room``, so a group must be finished before the next is loaded. With
    ``backwards`` the groups of these come in the opposite order, and so begin with rows that are there already if the
    pass before has ended with them.
    """
    # Of rows in memory a piece is gathered when its turn comes, so no panels are needed.
    in_memory = [i for i in wanted.tolist() if contexts.sources[i].in_memory]
    yield from _grouped(contexts, _segments(contexts, in_memory, cut=False))
    # A panel takes one reading of the file.
    for source in {id(source): source for source in contexts.sources if is_file(source)}.values():
        if source.nbytes > memory_limit():
            expect_rereads(source, int(_KEPT_SHARE * memory_limit()))
    panels = _panels(contexts, wanted)
    for panel in reversed(panels) if backwards else panels:
        yield _panel(contexts, panel, room)


def _panels(contexts: Contexts, wanted: Array) -> list[list[int]]:
    """Divide the wanted contexts that are not in memory into parts of one source each that fit there together."""
    sizes = contexts.context_bytes()
    panels: list[list[int]] = []
    for i in wanted.tolist():
        if contexts.sources[i].in_memory:
            continue
        # A panel is closed where the next context would not fit. One that is larger than the limit by itself would be
        # read all the same, alone; ``multiply`` keeps those away.
        panel = panels[-1] if panels else []
        same_source = bool(panel) and contexts.sources[panel[0]] is contexts.sources[i]
        if same_source and sizes[panel].sum() + sizes[i] <= memory_limit():
            panel.append(i)
        else:
            panels.append([i])
    return panels


def one_context(contexts: Contexts, i: int) -> Groups:
    """Yield the rows of context i."""
    yield from _grouped(contexts, _segments(contexts, [i], cut=True))


def _read_in_order(contexts: Contexts, source: Source) -> bool:
    """Whether to read a source from beginning to end: it is not in memory, and each row is needed once."""
    # A resample may have some rows twice and others not at all: they have to be asked for by number.
    return not source.in_memory and not contexts.resampled


def _segments(
    contexts: Contexts, wanted: list[int], *, cut: bool, n_bytes: int | None = None
) -> Iterator[list[_Segment]]:
    """Yield lists of segments of one source with about ``n_bytes`` (8 MB); only with ``cut`` are contexts divided."""
    n_bytes = _PIECE_BYTES if n_bytes is None else n_bytes
    piece: list[_Segment] = []
    size = 0.0
    source = None
    for i in wanted:
        # An average over the source: rows of sparse matrices differ, and a piece need not be exact.
        row_bytes = contexts.row_bytes(i)
        n = int(contexts.n_samples[i])
        step = max(1, int(n_bytes // max(row_bytes, 1))) if cut else n
        for start in range(0, n, step):
            stop = min(start + step, n)
            added = (stop - start) * row_bytes
            # A piece is one ``gather``, so it cannot span two sources. Small contexts share a piece; without ``cut`` a
            # context larger than the bound is a piece by itself.
            if piece and (contexts.sources[i] is not source or size + added > n_bytes):
                yield piece
                piece = []
                size = 0.0
            source = contexts.sources[i]
            piece.append(_Segment(i, start, stop))
            size += added
    if piece:
        yield piece


def _grouped(contexts: Contexts, pieces: Iterator[list[_Segment]]) -> Iterator[Group]:
    group: list[Piece] = []
    for segments in pieces:
        group.append(Piece(partial(_gather, contexts, segments), _count_rows(segments)))
        if len(group) == _PIECES_PER_GROUP:
            yield _group_of(group)
            group = []
    if group:
        yield _group_of(group)


def _group_of(pieces: list[Piece]) -> Group:
    # In a function of its own: a lambda in ``_grouped`` would refer to the variable there, and so to later lists.
    return Group(lambda: pieces, sum(piece.n_rows for piece in pieces))


def _gather(contexts: Contexts, segments: list[_Segment]) -> tuple[Any, Array]:
    """Return the rows of segments of one source, and the index of each row's context."""
    rows = [contexts.row_numbers(segment.context, segment.start, segment.stop) for segment in segments]
    lengths = [segment.stop - segment.start for segment in segments]
    # One code for each row, (n,), as kernels need them; the rows of a context stand together.
    codes = np.repeat([segment.context for segment in segments], lengths)
    return contexts.sources[segments[0].context].gather(_joined(rows)), codes


def _joined(rows: list[slice | Array]) -> slice | Array:
    """Return one slice if the rows are consecutive, which sources return without a copy; else their numbers."""
    # Contexts that stand one after the other in the matrix, such as rows that are sorted by label, join up again.
    slices = [part for part in rows if isinstance(part, slice)]
    if len(slices) == len(rows) and all(a.stop == b.start for a, b in pairwise(slices)):
        return slice(slices[0].start, slices[-1].stop)
    return np.concatenate([as_numbers(part) for part in rows])


def _split(block: Any, codes: Array) -> list[Piece]:
    """Divide a block from a file into pieces, without rows that belong to no context."""
    wanted = codes >= 0
    if not wanted.all():
        block = block[np.flatnonzero(wanted)]
        codes = codes[wanted]
    # Rounded up, so that there are at most so many parts; without any wanted rows there is none.
    step = max(1, -(-len(codes) // _PIECES_PER_BLOCK))
    parts = [slice(start, min(start + step, len(codes))) for start in range(0, len(codes), step)]
    return [Piece(partial(_part, block, codes, part), part.stop - part.start) for part in parts]


def _part(block: Any, codes: Array, part: slice) -> tuple[Any, Array]:
    return context_sums.consecutive(block, part.start, part.stop), codes[part]


def _panel(contexts: Contexts, chosen: list[int], room: Room) -> Group:
    """Return a group that gathers contexts from a file in one reading, and divides them into pieces."""

    def load() -> list[Piece]:
        counts = contexts.n_samples[chosen]
        numbers = [contexts.row_numbers(i, 0, int(contexts.n_samples[i])) for i in chosen]
        rows = _joined(numbers)
        # ``places``: the rows of each context within the block that is gathered. If that is one stretch of the file,
        # they are runs, in the order of the contexts.
        ends = np.cumsum(counts)
        places: list[slice | Array] = [slice(e - n, e) for e, n in zip(ends.tolist(), counts.tolist(), strict=True)]
        source = contexts.sources[chosen[0]]
        # Each row goes straight to its context where the loop that copies it is compiled.
        goes_anywhere = isinstance(source, CSRDiskSource) and compiled_rows()
        if not isinstance(rows, slice) and not goes_anywhere:
            # Put in the order of the file, which is fastest; pieces then pick the rows of their contexts. Rows that a
            # resampled context has twice are read once.
            is_wanted = np.zeros(source.shape[0], dtype=bool)
            is_wanted[rows] = True
            rows = np.flatnonzero(is_wanted)
            place_of_row = np.cumsum(is_wanted) - 1
            places = [place_of_row[part] for part in numbers]
        key = id(source), tuple(chosen)
        gathered: Any = room.kept(key)
        if gathered is None:
            # Only these sources can gather into a given buffer, and consecutive rows they read elsewhere.
            gathered = source.gather(rows, room) if isinstance(source, ON_DISK) else source.gather(rows)
            if isinstance(source, ON_DISK) and not isinstance(rows, slice):
                room.keep(key, gathered)
        # Blocks of a source are canonical, which need not be found out again.
        is_sparse = scipy.sparse.issparse(gathered)
        block = CSRSource(gathered, "X", canonical=True) if is_sparse else as_source(gathered, "X")
        # The contexts of the panel, with the gathered rows as their source.
        inside = replace(
            contexts, sources=[block] * len(chosen), rows=places, n_samples=counts, names=contexts.names[chosen]
        )
        # Positions in ``chosen`` are contexts here; ``_gather_as`` turns them back into contexts of the fit.
        pieces = _segments(inside, list(range(len(chosen))), cut=False, n_bytes=_PANEL_PIECE_BYTES)
        codes = np.array(chosen)
        return [Piece(partial(_gather_as, codes, inside, segments), _count_rows(segments)) for segments in pieces]

    return Group(load, int(contexts.n_samples[chosen].sum()))


def _gather_as(context_codes: Array, inside: Contexts, segments: list[_Segment]) -> tuple[Any, Array]:
    """Return rows as ``_gather`` does for the contexts of a panel, with their indices among all contexts."""
    X, codes = _gather(inside, segments)
    return X, context_codes[codes]


def _count_rows(segments: list[_Segment]) -> int:
    return sum(segment.stop - segment.start for segment in segments)
