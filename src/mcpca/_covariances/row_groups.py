"""Rows in pieces: what one thread works on, and how rows that are not in memory get there.

A pass asks for all rows in any order, for contexts whose rows come together, or for the rows of one context. Rows in
memory are gathered by context, a piece at a time. Others are read in order; where a context's rows must come together,
as many contexts as fit into memory are gathered in one reading of the file. Pieces depend on the data alone, and not on
the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from sklearn import get_config

from .._data.blocks import Room
from .._data.contexts import Contexts
from .._data.labels import rows_by_context
from .._data.sources import CSRDiskSource, DenseDiskSource, Source, as_source
from .._utils.types import Array

_PIECE = 2**23  # bytes of rows that one thread works on
_SCAN = 2**25  # bytes of rows read at a time, where reading is in order; larger arrays are not used again by malloc
_RUN = 64  # neighbouring rows of a sample
_AT_A_TIME = 16  # pieces of a group
ON_DISK = (CSRDiskSource, DenseDiskSource)  # files of which single rows can be read


class Piece(NamedTuple):
    """Some rows and the index of each one's context; ``load`` gets them."""

    load: Callable[[], tuple[Any, Array]]
    n_rows: int


class Group(NamedTuple):
    """Pieces that are made together, after which a pass can be interrupted and resumed."""

    pieces: Callable[[], list[Piece]]
    n_rows: int


class _Segment(NamedTuple):
    """Rows ``start`` to ``stop`` of context ``context``."""

    context: int
    start: int
    stop: int


def memory_limit() -> int:
    """Bytes of rows that may be gathered at a time: scikit-learn's ``working_memory``."""
    return int(float(get_config()["working_memory"]) * 2**20)


def all_rows(contexts: Contexts) -> Iterator[Group]:
    """Yield all rows once, in any order."""
    read: list[Source] = []
    for source in contexts.sources:
        if not _in_order(contexts, source) or any(source is other for other in read):
            continue
        read.append(source)
        codes = contexts.codes(source)
        for first, block in source.scan(_SCAN):
            own = codes[first : first + block.shape[0]]
            yield Group(partial(_split, block, own), int((own >= 0).sum()))
    rest = [i for i, source in enumerate(contexts.sources) if not _in_order(contexts, source)]
    yield from _grouped(contexts, _segments(contexts, rest, cut=True))


def whole_contexts(contexts: Contexts, wanted: Array, room: Room) -> Iterator[Group]:
    """Yield the rows of the wanted contexts, all rows of a context in one piece.

    Rows that are not in memory are gathered in ``room``: a group is to be done with before the next is loaded.
    """
    near = [i for i in wanted.tolist() if contexts.sources[i].in_memory]
    yield from _grouped(contexts, _segments(contexts, near, cut=False))
    far = [i for i in wanted.tolist() if not contexts.sources[i].in_memory]
    sizes = contexts.context_bytes()
    panel: list[int] = []
    for i in far:
        same = not panel or contexts.sources[panel[0]] is contexts.sources[i]
        if panel and (not same or sizes[panel].sum() + sizes[i] > memory_limit()):
            yield _panel(contexts, panel, room)
            panel = []
        panel.append(i)
    if panel:
        yield _panel(contexts, panel, room)


def sample_of(contexts: Contexts, share: float, least: int) -> tuple[list[int], Contexts] | None:
    """Return a share of rows that are on disk, in memory: the contexts that have two or more of them, and these.

    Runs of neighbouring rows at equal distances, which cost a share of a reading. None where all rows are in memory,
    where single rows cannot be read, where there would be fewer than ``least``, or where some are not finite.
    """
    sources = list({id(source): source for source in contexts.sources}.values())
    if contexts.resampled or not all(isinstance(source, ON_DISK) for source in sources):
        return None
    share = min(share, memory_limit() / 4 / max(sum(source.nbytes for source in sources), 1))
    blocks: dict[int, Source] = {}
    rows: list[slice | Array] = [slice(0, 0)] * len(contexts.names)
    for source in sources:
        codes = contexts.codes(source)
        runs = np.arange(len(codes)) // _RUN
        wanted = np.flatnonzero((np.floor((runs + 1) * share) > np.floor(runs * share)) & (codes >= 0))
        if not len(wanted):
            continue
        block: Any = source.gather(wanted)
        if not np.isfinite((block.data if source.sparse else block).sum(dtype=np.float64)):
            return None  # a pass over all rows will tell which
        blocks[id(source)] = as_source(block, "X")
        present, index = np.unique(codes[wanted], return_inverse=True)
        for i, own in zip(present.tolist(), rows_by_context(index), strict=True):
            rows[i] = own
    counts = np.array([own.stop - own.start if isinstance(own, slice) else len(own) for own in rows])
    chosen = np.flatnonzero(counts > 1).tolist()
    if counts[chosen].sum() < least:
        return None
    return chosen, replace(
        contexts,
        names=contexts.names[chosen],
        sources=[blocks[id(contexts.sources[i])] for i in chosen],
        rows=[rows[i] for i in chosen],
        n_samples=counts[chosen],
    )


def one_context(contexts: Contexts, i: int) -> Iterator[Group]:
    """Yield the rows of context i."""
    yield from _grouped(contexts, _segments(contexts, [i], cut=True))


def _in_order(contexts: Contexts, source: Source) -> bool:
    """Whether a source is best read from beginning to end: it is not in memory, and its rows are wanted once each."""
    return not source.in_memory and not contexts.resampled


def _segments(contexts: Contexts, wanted: list[int], *, cut: bool) -> Iterator[list[_Segment]]:
    """Yield lists of segments of one source with about ``_PIECE`` bytes; ``cut`` allows to cut contexts."""
    piece: list[_Segment] = []
    size, source = 0.0, None
    for i in wanted:
        row_bytes = contexts.row_bytes(i)
        n = int(contexts.n_samples[i])
        step = max(1, int(_PIECE // max(row_bytes, 1))) if cut else n
        for start in range(0, n, step):
            stop = min(start + step, n)
            if piece and (contexts.sources[i] is not source or size + (stop - start) * row_bytes > _PIECE):
                yield piece
                piece, size = [], 0.0
            source = contexts.sources[i]
            piece.append(_Segment(i, start, stop))
            size += (stop - start) * row_bytes
    if piece:
        yield piece


def _grouped(contexts: Contexts, pieces: Iterator[list[_Segment]]) -> Iterator[Group]:
    group: list[Piece] = []
    for segments in pieces:
        group.append(Piece(partial(_gather, contexts, segments), _rows_of(segments)))
        if len(group) == _AT_A_TIME:
            yield _ready(group)
            group = []
    if group:
        yield _ready(group)


def _ready(pieces: list[Piece]) -> Group:
    return Group(lambda: pieces, sum(piece.n_rows for piece in pieces))


def _gather(contexts: Contexts, segments: list[_Segment]) -> tuple[Any, Array]:
    rows = [contexts.row_numbers(s.context, s.start, s.stop) for s in segments]
    codes = np.repeat([s.context for s in segments], [s.stop - s.start for s in segments])
    return contexts.sources[segments[0].context].gather(_joined(rows)), codes


def _joined(rows: list[slice | Array]) -> slice | Array:
    """One slice where rows follow one another, an array of their numbers otherwise."""
    slices = [r for r in rows if isinstance(r, slice)]
    if len(slices) == len(rows) and all(a.stop == b.start for a, b in pairwise(slices)):
        return slice(slices[0].start, slices[-1].stop)
    return np.concatenate([_numbers(r) for r in rows])


def _numbers(rows: slice | Array) -> Array:
    return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows


def _split(block: Any, codes: Array) -> list[Piece]:
    """Cut a block that was read into pieces for threads, without rows that belong to no context."""
    wanted = codes >= 0
    if not wanted.all():
        block, codes = block[np.flatnonzero(wanted)], codes[wanted]
    step = max(1, -(-len(codes) // 4))
    parts = [slice(start, min(start + step, len(codes))) for start in range(0, len(codes), step)]
    return [Piece(partial(_part, block, codes, part), part.stop - part.start) for part in parts]


def _part(block: Any, codes: Array, part: slice) -> tuple[Any, Array]:
    return block[part], codes[part]


def _panel(contexts: Contexts, chosen: list[int], room: Room) -> Group:
    """Gather contexts that are not in memory by one reading, and cut them into pieces."""

    def load() -> list[Piece]:
        counts = contexts.n_samples[chosen]
        own = [contexts.row_numbers(i, 0, int(contexts.n_samples[i])) for i in chosen]
        rows = _joined(own)
        ends = np.cumsum(counts)
        places: list[slice | Array] = [slice(e - n, e) for e, n in zip(ends.tolist(), counts.tolist(), strict=True)]
        if not isinstance(rows, slice):  # in the order of the file, which is fast to read; pieces pick their own
            rows = np.unique(rows)
            places = [np.searchsorted(rows, _numbers(part)) for part in own]
        source = contexts.sources[chosen[0]]
        gathered = source.gather(rows, room) if isinstance(source, ON_DISK) else source.gather(rows)
        block = as_source(gathered, "X")
        inside = replace(
            contexts, sources=[block] * len(chosen), rows=places, n_samples=counts, names=contexts.names[chosen]
        )
        local = _segments(inside, list(range(len(chosen))), cut=False)
        return [Piece(partial(_renamed, inside, segments, np.array(chosen)), _rows_of(segments)) for segments in local]

    return Group(load, int(contexts.n_samples[chosen].sum()))


def _rows_of(segments: list[_Segment]) -> int:
    return sum(segment.stop - segment.start for segment in segments)


def _renamed(inside: Contexts, segments: list[_Segment], chosen: Array) -> tuple[Any, Array]:
    X, codes = _gather(inside, segments)
    return X, chosen[codes]
