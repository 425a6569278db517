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

from .._utils.parallel import blas_aside, is_aside, n_workers
from .contexts import Contexts
from .disk import CSCDiskSource, CSRDiskSource, DenseDiskSource
from .sources import Source

# Sources whose blocks may be read by another thread. Functions of the user's need not allow that.
_FILES = (CSCDiskSource, CSRDiskSource, DenseDiskSource)


def blocks_ahead(source: Source, max_bytes: int) -> Iterator[tuple[int, Any]]:
    """Yield ``source.scan(max_bytes)``; from a file, the next block is read while the caller works on the present one.

    Only within ``blas_aside``: the thread that reads keeps BLAS to one thread whenever it has work for several, and if
    BLAS were not kept to one throughout, the number of its threads in the caller's products, and with it their last
    bits, would be a matter of timing. With a single thread for BLAS there is no other for reading, either. Memory: two
    blocks where a scan has one.
    """
    blocks = source.scan(max_bytes)
    if not isinstance(source, _FILES) or not is_aside() or n_workers() < 2:
        yield from blocks
        return
    with ThreadPoolExecutor(1) as pool:
        # The context says how many threads may be used, which BLAS itself does not within ``blas_aside``.
        context = copy_context()

        def following() -> tuple[int, Any] | None:
            return context.run(lambda: next(blocks, None))

        coming = pool.submit(following)
        while (block := coming.result()) is not None:
            coming = pool.submit(following)
            yield block


def steady_threads(contexts: Contexts) -> AbstractContextManager[None]:
    """Return what a loop over rows has to run in for ``blocks_ahead`` to read ahead, if some are in files."""
    # Rows that are prepared as they are read have their file in ``raw``.
    is_file = any(isinstance(getattr(source, "raw", source), _FILES) for source in contexts.sources)
    return blas_aside() if is_file else nullcontext()
