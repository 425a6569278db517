"""Powers of two that bring data to a size whose powers do not overflow, and results back: both without rounding.

Solvers multiply covariances with each other, and so take fourth powers of the data and more. Rows and covariances that
are far from 1 are therefore multiplied by a power of two where they enter, ``x 2^-e``, and results by powers of ``2^e``
where they leave: covariances and loadings by ``4^e``, means by ``2^e``. Data near 1 stay as they are: e is 0.

``in_range`` is for rows and ``stack_in_range`` for covariances; ``fit_data`` keeps e beside the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from .._data.blocks import RowBlock, Source, largest, times_power
from .._data.contexts import Contexts
from .._data.preprocessed import reads_single_rows
from .._data.sources import ChunkSource, CSCDiskSource, CSCSource
from .._utils.array_api import namespace, to_host
from .._utils.types import Array

# Sizes from 2^-bits to 2^bits stay as they are. Powers up to the sixth are then finite and not 0, also of entries that
# are smaller than the largest by all digits of the precision; in single precision powers up to the fourth.
_BITS = {np.dtype(np.float32): 12, np.dtype(np.float64): 40}
# Entries of a source that are looked at, in each of up to three places, for its size. A few powers of two either way
# are no matter, so a sample is enough.
_SAMPLE_NUMBERS = 2**16
# Sources that are looked at: there may be a file for each of thousands of contexts.
_MOST_SOURCES = 64
# Powers of two that results need around the square of the largest entry.
_RESULT_BITS = 16
# Bytes of a block where a source whose sample was all 0 is searched for the first entry that is not.
_SEARCH_BYTES = 2**24


class ScaledSource:
    """Rows of another source times ``2^-e``, multiplied as they are read."""

    # A copy of all rows would double the memory, or not fit at all for rows on disk: blocks are scaled as they pass.
    def __init__(self, source: Source, e: int) -> None:
        self._source = source
        self._e = e
        self.shape = source.shape
        self.dtype = source.dtype
        self.nbytes = source.nbytes
        self.in_memory = source.in_memory
        self.sparse = source.sparse
        self.low_rank = getattr(source, "low_rank", False)

    def gather(self, rows: slice | Array) -> RowBlock:
        """Return these rows in this order: a copy."""
        return times_power(self._source.gather(rows), -self._e)

    def scan(self, max_bytes: int) -> Iterator[tuple[int, RowBlock]]:
        """Yield (number of the first row, block)."""
        for first, block in self._source.scan(max_bytes):
            yield first, times_power(block, -self._e)


def exponent(size: float, dtype: Any) -> int:
    """Return the e for which ``size 2^-e``, the largest entry of data, is between 1/2 and 1; 0 where it is safe."""
    # All zeros, or nothing finite in the sample: there is no size to go by, and later checks name what is wrong.
    if not (np.isfinite(size) and size > 0):
        return 0
    # size = m 2^e with m in [1/2, 1).
    e = int(np.frexp(np.float64(size))[1])
    return e if abs(e) > _BITS[np.dtype(dtype)] else 0


def in_range(contexts: Contexts) -> tuple[Contexts, int]:
    """Return the contexts with rows times ``2^-e``, and e, from a look at some rows.

    Raises where variances of such rows, which are results, would overflow or underflow.
    """
    size = _size_of_some(contexts)
    e = exponent(size, contexts.dtype)
    if e == 0:
        return contexts, 0
    bounds = np.finfo(contexts.dtype)
    # Covariances go back to the caller at the scale of the rows, times 4^e: around that there must be room for sums
    # over rows above and for small variances below.
    if not bounds.minexp < 2 * e - _RESULT_BITS < 2 * e + _RESULT_BITS < bounds.maxexp:
        raise out_of_range(size, contexts.dtype)
    return scaled_rows(contexts, e), e


def scaled_rows(contexts: Contexts, e: int) -> Contexts:
    """Return the contexts with rows times ``2^-e``."""
    if e == 0:
        return contexts
    scaled: dict[int, Any] = {}  # contexts of a labelled matrix share one source
    for source in contexts.sources:
        if id(source) not in scaled:
            # A source that can scale itself does so at less cost, or where its rows are; all others are wrapped.
            scaled[id(source)] = source.scaled(e) if hasattr(source, "scaled") else ScaledSource(source, e)
    # An engine reads rows by itself and not through the sources, so it has to be told as well.
    engine = None if contexts.engine is None else contexts.engine.scaled(e)
    return replace(contexts, sources=[scaled[id(source)] for source in contexts.sources], engine=engine)


def out_of_range(size: float, dtype: Any) -> ValueError:
    """Return the error for rows of this size."""
    what, how, remedy = ("large", "overflow", "Divide") if size > 1 else ("small", "underflow", "Multiply")
    or_double = ", or pass float64" if np.dtype(dtype) == np.float32 else ""
    return ValueError(
        f"X is too {what} for {np.dtype(dtype)}: its squares {how} (its values are about {size:.0e}). {remedy} it by a "
        f"constant{or_double}."
    )


def stack_in_range(S: Any) -> tuple[Any, int]:
    """Return covariances (k, p, p), of NumPy or on a device, times ``4^-e``, and e: a copy where e is not 0."""
    # No entry of a covariance is larger than its largest variance, so the diagonals tell the size.
    diagonal = np.einsum("kpp->kp", S) if isinstance(S, np.ndarray) else to_host(namespace(S).linalg.diagonal(S))
    # The root, since e is the exponent of rows: covariances are scaled by its double. float64 whatever S is in, because
    # products of a stack are in float64.
    e = exponent(float(np.sqrt(np.abs(diagonal).max(initial=0))), np.float64)
    return (S, 0) if e == 0 else (times_power(S, -2 * e), e)


def _size_of_some(contexts: Contexts) -> float:
    """Return the size of the largest entry in a sample of the sources, 0 only where all entries of those are 0."""
    if contexts.engine is not None:
        return float(contexts.engine.size)
    # Each source once, evenly spread over the contexts if there are more than can be looked at.
    sources = list({id(source): source for source in contexts.sources}.values())
    return max(_size_of(source) for source in sources[:: -(-len(sources) // _MOST_SOURCES)])


def _size_of(source: Source) -> float:
    """Return the size of the largest entry in a sample: from the beginning, and the middle and end if that is cheap."""
    if isinstance(source, ChunkSource):
        size = source.size
    elif hasattr(source, "largest_entry"):  # sparse rows on a device, which are not copied for it
        size = float(source.largest_entry)
    elif isinstance(source, (CSCSource, CSCDiskSource)):
        size = largest(source.first_entries(_SAMPLE_NUMBERS))
    else:
        n = source.shape[0]
        # Beginning, middle and end: sorted rows, or files that were appended to, may change in size on the way.
        n_rows = min(n, max(1, _SAMPLE_NUMBERS // source.shape[1]))
        reads_anywhere = source.in_memory or reads_single_rows(source)
        starts = {0, (n - n_rows) // 2, n - n_rows} if reads_anywhere else {0}
        size = max(largest(source.gather(slice(start, start + n_rows))) for start in sorted(starts))
    if size == 0:
        # A sample of zeros says nothing of the rest, which may have to be read.
        sizes = (largest(block) for _, block in source.scan(_SEARCH_BYTES))
        size = next((nonzero for nonzero in sizes if nonzero), 0.0)
    return size
