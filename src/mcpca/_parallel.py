"""Many small independent pieces of linear algebra: one thread of BLAS each, several pieces at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController  # comes with scikit-learn, which needs it


@cache
def _blas() -> Any:
    return ThreadpoolController().select(user_api="blas")


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
