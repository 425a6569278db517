"""The next block of a file, read and decompressed while the present one is multiplied.

Blocks come from one thread of their own, in order, so that sums over them are what they are without it. Reading a block
has parts that threads cannot share (checks of its indices, the tail of the last chunk); these run beside the products
now. Panels of whole contexts are not read ahead: a second panel would double the memory that ``working_memory`` allows
for, and both gathering and multiplying one keep all threads busy.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from typing import Any

from .._data.contexts import Contexts
from .._data.sources import CSCDiskSource, CSRDiskSource, DenseDiskSource, Source
from .._utils.parallel import blas_aside, n_workers

# Sources whose blocks may be read by another thread. Functions of the user's need not allow that.
_FILES = (CSCDiskSource, CSRDiskSource, DenseDiskSource)


def blocks_ahead(source: Source, max_bytes: int) -> Iterator[tuple[int, Any]]:
    """Yield ``source.scan(max_bytes)``; from a file, the next block is read while the caller works on the present one.

    With a single thread for BLAS there is no other for reading, either. Memory: two blocks where a scan has one.
    """
    blocks = source.scan(max_bytes)
    if not isinstance(source, _FILES) or n_workers() < 2:
        yield from blocks
        return
    with ThreadPoolExecutor(1) as pool:
        # The context says how many threads may be used, which BLAS itself does not within ``steady_threads``.
        context = copy_context()

        def following() -> tuple[int, Any] | None:
            return context.run(lambda: next(blocks, None))

        coming = pool.submit(following)
        while (block := coming.result()) is not None:
            coming = pool.submit(following)
            yield block


def steady_threads(contexts: Contexts) -> AbstractContextManager[None]:
    """Return what a loop over ``blocks_ahead`` has to run in, if some rows are in files.

    The thread that reads keeps BLAS to one thread whenever it has work for several. If BLAS were not kept to one
    throughout, the number of its threads in the caller's products, and with it their last bits, would be a matter of
    timing.
    """
    return blas_aside() if any(isinstance(source, _FILES) for source in contexts.sources) else nullcontext()
