"""Powers of two that bring data to a size whose powers are numbers, and results back: both without rounding.

Solvers multiply covariances with each other, and so take fourth powers of the data and more. Rows and covariances that
are far from 1 are therefore multiplied by a power of two where they enter, ``x 2^-e``, and results by powers of ``2^e``
where they leave. Whatever is near 1 stays as it is: e is 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from .._data.blocks import RowBlock, Source, largest, times_power
from .._data.contexts import Contexts
from .._data.sources import ChunkSource, CSCDiskSource, CSCSource, CSRDiskSource, DenseDiskSource
from .._utils.array_api import namespace, to_host
from .._utils.types import Array

# Sizes from 2^-bits to 2^bits stay as they are. Powers up to the sixth are then numbers, also of what is smaller than
# the largest entry by all digits that there are; in single precision up to the fourth.
_BITS = {np.dtype(np.float32): 12, np.dtype(np.float64): 40}
_FIRST = 2**16  # numbers that are looked at
_MOST_SOURCES = 64
_DIGITS = 16  # powers of two that are left to results around the square of the largest entry


class ScaledSource:
    """Rows of another source times ``2^-e``, multiplied as they are read."""

    def __init__(self, source: Source, e: int) -> None:
        self._source, self._e = source, e
        self.shape, self.dtype, self.nbytes = source.shape, source.dtype, source.nbytes
        self.in_memory, self.sparse = source.in_memory, source.sparse

    def gather(self, rows: slice | Array) -> RowBlock:
        """Return these rows in this order: a copy."""
        return times_power(self._source.gather(rows), -self._e)

    def scan(self, max_bytes: int) -> Iterator[tuple[int, RowBlock]]:
        """Yield (number of the first row, block)."""
        for first, block in self._source.scan(max_bytes):
            yield first, times_power(block, -self._e)


def exponent(size: float, dtype: Any) -> int:
    """Return the e that brings ``size``, of the largest entry of data, between 1/2 and 1; 0 where it is safe."""
    if not (np.isfinite(size) and size > 0):
        return 0
    e = int(np.frexp(np.float64(size))[1])
    return e if abs(e) > _BITS[np.dtype(dtype)] else 0


def in_range(contexts: Contexts) -> tuple[Contexts, int]:
    """Return the contexts with rows times ``2^-e``, and e, from a look at some rows.

    Raises where variances of such rows, which are results, would be no numbers.
    """
    size = _size_of_some(contexts)
    e = exponent(size, contexts.dtype)
    if e == 0:
        return contexts, 0
    bounds = np.finfo(contexts.dtype)
    if not bounds.minexp < 2 * e - _DIGITS < 2 * e + _DIGITS < bounds.maxexp:
        raise out_of_range(size, contexts.dtype)
    return scaled_rows(contexts, e), e


def scaled_rows(contexts: Contexts, e: int) -> Contexts:
    """Return the contexts with rows times ``2^-e``."""
    if e == 0:
        return contexts
    scaled: dict[int, Any] = {}
    for source in contexts.sources:
        if id(source) not in scaled:
            scaled[id(source)] = source.scaled(e) if hasattr(source, "scaled") else ScaledSource(source, e)
    engine = None if contexts.engine is None else contexts.engine.scaled(e)
    return replace(contexts, sources=[scaled[id(source)] for source in contexts.sources], engine=engine)


def out_of_range(size: float, dtype: Any) -> ValueError:
    """Return the error for rows of this size."""
    what, how, way = ("large", "overflow", "Divide") if size > 1 else ("small", "underflow", "Multiply")
    return ValueError(
        f"X is too {what} for {np.dtype(dtype)}: its squares {how} (its values are about {size:.0e}). {way} it by a "
        f"constant{', or pass float64' if np.dtype(dtype) == np.float32 else ''}."
    )


def stack_in_range(S: Any) -> tuple[Any, int]:
    """Return covariances (k, p, p), here or on a device, times ``4^-e``, and e: a copy where e is not 0."""
    diagonal = np.einsum("kpp->kp", S) if isinstance(S, np.ndarray) else to_host(namespace(S).linalg.diagonal(S))
    e = exponent(float(np.sqrt(np.abs(diagonal).max(initial=0))), np.float64)
    return (S, 0) if e == 0 else (times_power(S, -2 * e), e)


def _size_of_some(contexts: Contexts) -> float:
    """Return the size of the largest of some entries of some sources, 0 only where all are 0."""
    if contexts.engine is not None:
        return float(contexts.engine.size)
    sources = list({id(source): source for source in contexts.sources}.values())
    return max(_size_of(source) for source in sources[:: -(-len(sources) // _MOST_SOURCES)])


def _size_of(source: Source) -> float:
    """Return the size of the largest of some entries: at the beginning, in the middle and at the end where it can."""
    if isinstance(source, ChunkSource):
        size = source.size
    elif isinstance(source, (CSCSource, CSCDiskSource)):
        size = largest(source.first_entries(_FIRST))
    else:
        n = source.shape[0]
        few = min(n, max(1, _FIRST // source.shape[1]))
        anywhere = source.in_memory or isinstance(source, (CSRDiskSource, DenseDiskSource))
        starts = {0, (n - few) // 2, n - few} if anywhere else {0}
        size = max(largest(source.gather(slice(start, start + few))) for start in sorted(starts))
    if size == 0:
        size = next((found for _, block in source.scan(2**24) if (found := largest(block))), 0.0)
    return size
