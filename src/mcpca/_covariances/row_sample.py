"""A sample of rows that are on disk, brought into memory: what ``StreamedCovariances`` takes its first look at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from .._data.contexts import Contexts
from .._data.labels import rows_by_context
from .._data.sources import Source, as_source
from .._utils.types import Array
from .row_groups import ON_DISK, memory_limit

# Neighbouring rows of a sample. Longer runs are read faster, down to the chunks of the file; shorter ones are spread
# more evenly over files whose rows are in some order, and so over contexts.
_RUN_ROWS = 64
# Of the memory for rows, a sample takes a quarter at most: passes over it need room as well.
_SHARE_OF_MEMORY = 1 / 4


class RowSample(NamedTuple):
    """The indices of contexts with two or more rows in the sample, and these rows, as ``Contexts`` in that order."""

    chosen: list[int]
    contexts: Contexts


def sample_of(contexts: Contexts, share: float, least: int) -> RowSample | None:
    """Return a share of rows that are on disk, in memory: runs of neighbouring rows, at equal distances.

    That costs a share of a reading. None where all rows are in memory, where single rows cannot be read, where there
    would be fewer than ``least``, or where some are not finite.
    """
    sources = list({id(source): source for source in contexts.sources}.values())
    if contexts.resampled or not all(isinstance(source, ON_DISK) for source in sources):
        return None
    n_bytes = sum(source.nbytes for source in sources)
    share = min(share, _SHARE_OF_MEMORY * memory_limit() / max(n_bytes, 1))
    blocks: dict[int, Source] = {}
    rows: list[slice | Array] = [slice(0, 0)] * len(contexts.names)
    for source in sources:
        codes = contexts.codes(source)
        wanted = np.flatnonzero(_in_sample(len(codes), share) & (codes >= 0))
        if not len(wanted):
            continue
        block: Any = source.gather(wanted)
        if not np.isfinite((block.data if source.sparse else block).sum(dtype=np.float64)):
            return None  # a pass over all rows will say which
        blocks[id(source)] = as_source(block, "X")
        present, index = np.unique(codes[wanted], return_inverse=True)
        for i, places in zip(present.tolist(), rows_by_context(index), strict=True):
            rows[i] = places
    counts = np.array([_n_rows(places) for places in rows])
    chosen = np.flatnonzero(counts > 1).tolist()  # a covariance needs two
    if counts[chosen].sum() < least:
        return None
    sample = replace(
        contexts,
        names=contexts.names[chosen],
        sources=[blocks[id(contexts.sources[i])] for i in chosen],
        rows=[rows[i] for i in chosen],
        n_samples=counts[chosen],
    )
    return RowSample(chosen, sample)


def _in_sample(n: int, share: float) -> Array:
    """Return which of n rows are in the sample: run t is where ``share`` times t passes a whole number."""
    run = np.arange(n) // _RUN_ROWS
    return np.asarray(np.floor((run + 1) * share) > np.floor(run * share))


def _n_rows(rows: slice | Array) -> int:
    return int(rows.stop - rows.start) if isinstance(rows, slice) else len(rows)
