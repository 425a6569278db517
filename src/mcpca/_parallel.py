"""Many small independent pieces of linear algebra: one thread of BLAS each, several pieces at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController  # comes with scikit-learn, which needs it

_Part = TypeVar("_Part")

_CACHED = 2**17  # numbers of a piece that stay in a cache: a megabyte
_WORTHWHILE = 2 * 10**7  # operations below which threads cost more than they bring


@cache
def _blas() -> Any:
    return ThreadpoolController().select(user_api="blas")


@cache
def _n_cores() -> int:
    """Return what ``n_workers`` said at first, also while BLAS is kept to one thread."""
    return n_workers()


def n_workers() -> int:
    """Return the number of threads that BLAS may use here: the environment's limits are kept."""
    return max((library["num_threads"] for library in _blas().info()), default=1)


def each(call: Callable[[Any], None], pieces: Sequence[Any], workers: int) -> Iterator[None]:
    """Call ``call`` on every piece and yield after each, in order; with one worker BLAS keeps its threads."""
    if workers < 2:
        yield from map(call, pieces)
        return
    with _blas().limit(limits=1), ThreadPoolExecutor(workers) as pool:
        yield from pool.map(call, pieces)


def own_threads(k: int, r: int) -> Any:
    """Keep BLAS to one thread where ``over_contexts`` would use several: its own go on spinning after a product."""
    return _blas().limit(limits=1) if k * r**3 > _WORTHWHILE and _n_cores() > 1 else nullcontext()


def over_contexts(call: Callable[[slice], _Part], k: int, r: int) -> list[_Part]:
    """Return ``call`` of slices of k contexts, each of which means about r^2 numbers and r^3 operations.

    Slices depend on k and r alone, so that sums over them come out the same whatever the threads.
    """
    step = max(1, _CACHED // (r * r))
    pieces = [slice(i, min(i + step, k)) for i in range(0, k, step)]
    workers = _n_cores() if k * r**3 > _WORTHWHILE and len(pieces) > 1 else 1
    if workers < 2:
        return [call(piece) for piece in pieces]
    with _blas().limit(limits=1), ThreadPoolExecutor(workers) as pool:
        return list(pool.map(call, pieces))
