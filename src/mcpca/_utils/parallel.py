"""Many small independent pieces of linear algebra: one thread of BLAS each, several pieces at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController  # comes with scikit-learn, which needs it

_Part = TypeVar("_Part")

_CACHED = 2**18  # numbers of a piece that stay in a cache: a megabyte
_WORTHWHILE = 2 * 10**7  # operations below which threads cost more than they bring
# The threads of ``own_threads``, where BLAS itself is down to one; None elsewhere, and in those threads.
_reserved: ContextVar[ThreadPoolExecutor | None] = ContextVar("reserved", default=None)
# The threads that ``each`` may use in ``blas_aside``; 0 elsewhere.
_aside: ContextVar[int] = ContextVar("aside", default=0)


@cache
def _blas() -> Any:
    return ThreadpoolController().select(user_api="blas")


class _Limit:
    """BLAS at one thread as long as anybody wants that: the first one in sets it, the last one out undoes it.

    The number of threads is one for the process. Were each to put back what it found, fits in parallel threads that do
    not end in the order of their beginning would leave BLAS at one thread for good.
    """

    def __init__(self) -> None:
        self._lock, self._holders = Lock(), 0
        self._set: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._holders == 0:
                self._set = _blas().limit(limits=1)
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if self._holders == 0:
                    self._set.restore_original_limits()


one_thread_each = _Limit()  # so that sums within a product come out the same however many jobs share the cores


def n_workers() -> int:
    """Return the number of threads that BLAS may use here: the environment's limits are kept."""
    return _aside.get() or max((library["num_threads"] for library in _blas().info()), default=1)


def each(call: Callable[[Any], _Part], pieces: Sequence[Any], workers: int) -> Iterator[_Part]:
    """Yield ``call`` of every piece, in order; with one worker BLAS keeps its threads."""
    if workers < 2:
        yield from map(call, pieces)
        return
    with one_thread_each(), ThreadPoolExecutor(workers) as pool:
        yield from pool.map(call, pieces)


@contextmanager
def blas_aside() -> Iterator[None]:
    """Keep BLAS to one thread where ``each`` is called again and again with small products between.

    Threads of BLAS go on spinning after a product, for longer than a small piece of work takes.
    """
    token = _aside.set(n_workers())
    try:
        with one_thread_each():
            yield
    finally:
        _aside.reset(token)


@contextmanager
def own_threads(k: int, r: int) -> Iterator[None]:
    """Keep BLAS to one thread where ``over_contexts`` uses several: its own go on spinning after a product.

    The threads of ``over_contexts`` are then the same from call to call.
    """
    workers = n_workers() if _worthwhile(k, r) else 1
    if workers < 2:
        yield
        return
    with one_thread_each(), ThreadPoolExecutor(workers) as pool:
        token = _reserved.set(pool)
        try:
            yield
        finally:
            _reserved.reset(token)


def over_contexts(call: Callable[[slice], _Part], k: int, r: int) -> list[_Part]:
    """Return ``call`` of slices of k contexts, each of which means about r^2 numbers and r^3 operations.

    Slices depend on k and r alone, so that sums over them come out the same whatever the threads.
    """
    step = max(1, _CACHED // (r * r))
    pieces = [slice(i, min(i + step, k)) for i in range(0, k, step)]
    if not _worthwhile(k, r) or len(pieces) < 2:
        return list(map(call, pieces))
    pool = _reserved.get()
    return list(each(call, pieces, n_workers()) if pool is None else pool.map(call, pieces))


def _worthwhile(k: int, r: int) -> bool:
    return k * r**3 > _WORTHWHILE
