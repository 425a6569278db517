"""Threads for many small independent pieces of linear algebra, with BLAS kept to one thread in each.

A product of small matrices is too little work for the threads of BLAS, which are woken, synchronised, and then spin in
wait of the next product. Here the pieces run in parallel instead, each with single-threaded BLAS. Pieces are cut by the
size of the problem and never by the number of threads, so that sums over them, and hence all results, are the same on
every machine.

Used by passes over rows (``_data``, ``_covariances``), by the solvers (contexts in slices), and by resampling.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from functools import cache
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController  # a dependency of scikit-learn

_Part = TypeVar("_Part")

# Numbers in the slice of contexts that one call works on: two megabytes of float64, which stay in a core's cache.
# Larger slices spill to memory, smaller ones pay more for Python around each call.
_SLICE_NUMBERS = 2**18
# Operations (k r^3) below which starting threads costs more than they gain.
_WORTHWHILE_OPERATIONS = 2 * 10**7
# Within ``blas_aside``, the number of threads that ``each`` may use (BLAS itself then reports 1) and the pool that has
# them. None elsewhere, also within the threads of that pool: a call in one of them cannot wait for a thread that it
# occupies itself.
_aside: ContextVar[tuple[int, ThreadPoolExecutor] | None] = ContextVar("aside", default=None)


# Inspecting all loaded libraries is slow, so it is done once.
@cache
def _blas() -> Any:
    return ThreadpoolController().select(user_api="blas")


class _OneThreadEach:
    """Context manager that keeps BLAS at one thread while anybody is inside: the first one sets it, the last undoes it.

    The number of threads belongs to the whole process. If everybody restored what they had found, fits in parallel
    threads that do not end in the order in which they began would leave BLAS at one thread for good.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._holders = 0
        self._limiter: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            # The limit as it was before the first holder came is what the last one restores.
            if self._holders == 0:
                self._limiter = _blas().limit(limits=1)
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if self._holders == 0:
                    self._limiter.restore_original_limits()


# Also makes the sums within a product the same however many jobs share the cores.
one_thread_each = _OneThreadEach()


def n_workers() -> int:
    """Return the number of threads that BLAS may use here, which respects limits set in the environment."""
    # Several BLAS may be loaded, NumPy's and SciPy's; without any there is one thread.
    aside = _aside.get()
    return aside[0] if aside else max((library["num_threads"] for library in _blas().info()), default=1)


def is_aside() -> bool:
    """Whether this is within ``blas_aside``."""
    return _aside.get() is not None


def each(call: Callable[[Any], _Part], pieces: Sequence[Any], workers: int) -> Iterator[_Part]:
    """Yield ``call(piece)`` for every piece, in order; with a single worker BLAS keeps its threads."""
    if workers < 2:
        yield from map(call, pieces)
        return
    aside = _aside.get()
    if aside is not None and aside[0] == workers:
        yield from _in_order(aside[1], call, pieces)
        return
    with one_thread_each(), ThreadPoolExecutor(workers) as pool:
        yield from _in_order(pool, call, pieces)


def _in_order(pool: ThreadPoolExecutor, call: Callable[[Any], _Part], pieces: Sequence[Any]) -> Iterator[_Part]:
    """Yield the results in the order of the pieces, whichever ends first, so that callers may add up what comes."""
    # What holds for the caller, such as the current client of Dask, holds in the threads, too; all but the pool.
    context = copy_context()
    context.run(_aside.set, None)
    futures = deque(pool.submit(context.copy().run, call, piece) for piece in pieces)
    try:
        while futures:
            futures[0].exception()  # waits for it
            yield futures.popleft().result()  # not kept, once it is taken
    finally:
        # After a failure, or where the caller has seen enough: nothing of it goes on when this returns.
        for future in futures:
            future.cancel()
        wait(futures)


@contextmanager
def blas_aside(workers: int | None = None) -> Iterator[None]:
    """Keep BLAS to one thread around repeated calls of ``each`` that have small products between them.

    Threads of BLAS go on spinning after a product, for longer than a small piece of work takes, and would compete with
    those of ``each``. These are kept, too: starting some takes milliseconds on a busy machine. There are ``workers`` of
    them, by default as many as BLAS has.
    """
    if _aside.get() is not None:
        yield
        return
    # Before BLAS is limited: afterwards it would report one thread, and ``each`` would take that for all there is.
    workers = workers or n_workers()
    # Threads of the pool are started by the first pieces that it gets.
    with one_thread_each(), ThreadPoolExecutor(workers) as pool:
        token = _aside.set((workers, pool))
        try:
            yield
        finally:
            _aside.reset(token)


@contextmanager
def own_threads(k: int, r: int) -> Iterator[None]:
    """Keep one pool of threads for all calls of ``over_contexts`` in the body, and BLAS to one thread meanwhile.

    For iterations that call it at every step: starting a pool each time would cost more than the work. Does nothing
    if k contexts at rank r are too little work for threads.
    """
    with blas_aside() if _worthwhile(k, r) else nullcontext():
        yield


def over_contexts(call: Callable[[slice], _Part], k: int, r: int, numbers: int = _SLICE_NUMBERS) -> list[_Part]:
    """Return ``call`` of slices of k contexts, each context being about r^2 numbers and r^3 operations.

    The slices, of about ``numbers`` each, do not depend on the number of threads, and nor do sums over them.
    """
    step = max(1, numbers // (r * r))
    slices = [slice(i, min(i + step, k)) for i in range(0, k, step)]
    # The same slices as with threads, so that sums over them are the same.
    if not _worthwhile(k, r) or len(slices) < 2:
        return list(map(call, slices))
    return list(each(call, slices, n_workers()))


def _worthwhile(k: int, r: int) -> bool:
    return k * r**3 > _WORTHWHILE_OPERATIONS
