"""A sample of the rows, loaded into memory.

``StreamedCovariances`` takes its first look at one: the leading directions of the sample are a good start for those of
all rows, at a fraction of the cost of a pass.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from .._data.blocks import has_finite_sum, stored
from .._data.contexts import Contexts
from .._data.held_rows import memory_limit
from .._data.labels import n_rows, rows_by_context
from .._data.preprocessed import reads_single_rows
from .._data.sources import Source, as_source
from .._utils.types import Array

# Consecutive rows in each run of a sample. Longer runs are faster to read; shorter ones spread the sample more evenly
# over a file that is sorted, and so over its contexts.
_RUN_ROWS = 64
# A sample takes at most this share of the memory for rows. With more, less is left for the work on it.
_SHARE_OF_MEMORY = 1 / 4


class RowSample(NamedTuple):
    """Indices of the contexts with two or more rows in the sample, and their rows as ``Contexts`` in this order."""

    chosen: list[int]
    contexts: Contexts


def sample_of(contexts: Contexts, share: float, least: int) -> RowSample | None:
    """Return a share of the rows, in equally spaced runs, which costs about that share of a reading.

    None if single rows cannot be read, if the sample would have fewer than ``least`` rows, or if some of its values are
    not finite.
    """
    # Contexts of one matrix share their source.
    sources = list({id(source): source for source in contexts.sources}.values())
    if contexts.resampled or not all(map(reads_single_rows, sources)):
        return None
    n_bytes = sum(source.nbytes for source in sources)
    # The sample stays in memory while its leading directions are found.
    share = min(share, _SHARE_OF_MEMORY * memory_limit() / max(n_bytes, 1))
    blocks: dict[int, Source] = {}
    # Rows of each context within the block that is gathered from its source; empty unless the sample has some.
    rows: list[slice | Array] = [slice(0, 0)] * len(contexts.names)
    for source in sources:
        codes = contexts.codes(source)
        # Code -1 marks rows that belong to no context.
        wanted = np.flatnonzero(_in_sample(len(codes), share) & (codes >= 0))
        if not len(wanted):
            continue
        block: Any = source.gather(wanted)
        if not has_finite_sum(stored(block)):
            return None  # the pass over all rows will name the row
        # Sorted once, so that a piece with all rows of some contexts is a stretch of the block, and no copy.
        order = np.argsort(codes[wanted], kind="stable")
        blocks[id(source)] = as_source(block[order], "X")
        # ``rows_by_context`` wants codes without gaps, and not all contexts are in the sample.
        present, index = np.unique(codes[wanted][order], return_inverse=True)
        for i, places in zip(present.tolist(), rows_by_context(index), strict=True):
            rows[i] = places
    counts = np.array([n_rows(places) for places in rows])
    chosen = np.flatnonzero(counts > 1).tolist()  # a covariance needs two
    if counts[chosen].sum() < least:
        return None
    # Without nuisance: the sample only has to point roughly the right way.
    sample = replace(
        contexts.without_annotations(),
        names=contexts.names[chosen],
        sources=[blocks[id(contexts.sources[i])] for i in chosen],
        rows=[rows[i] for i in chosen],
        n_samples=counts[chosen],
    )
    return RowSample(chosen, sample)


def _in_sample(n: int, share: float) -> Array:
    """Return which of n rows are sampled: run t is if a whole number lies between ``share t`` and ``share (t + 1)``."""
    # Spread evenly and without a random generator, so that a resumed fit takes the same sample.
    run = np.arange(n) // _RUN_ROWS
    return np.asarray(np.floor((run + 1) * share) > np.floor(run * share))
