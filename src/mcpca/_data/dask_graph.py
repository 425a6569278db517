"""One computation on Dask: its tasks, where they are computed, and what is said when the cluster is lost."""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from .._utils.optional import require
from .dask_tasks import combined

ARITY = 8  # sums that one task of the tree adds
_LOST = ("CommClosedError", "ClosedClientError", "FutureCancelledError", "FuturesCancelledError")
_PERHAPS_LOST = (asyncio.CancelledError, concurrent.futures.CancelledError, ConnectionError, TimeoutError)


class Graph:
    """Tasks of one computation by key, under a name of their own, on top of those of ``collections``."""

    def __init__(self, collections: list[Any]) -> None:
        self.collections = list(collections)
        self._begin()

    def _begin(self) -> None:
        self.name = f"mcpca-{uuid4().hex}"
        self.tasks: dict[Any, Any] = {}

    def put(self, value: Any) -> Any:
        """Add a value that is no tuple, list or str, and return its key."""
        key = self.name, "task", len(self.tasks)
        self.tasks[key] = value
        return key

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Add a call, in which keys stand for values, and return its key."""
        return self.put((function, *arguments))

    def tree(self, keys: list[Any], arity: int = ARITY) -> Any:
        """Add up sums in the order of ``keys``, and return the key of the total."""
        while len(keys) > 1:
            keys = [self.call(combined, keys[i : i + arity]) for i in range(0, len(keys), arity)]
        return keys[0]

    def again(self, arrays: list[Any], after: Any) -> list[Any]:
        """Return the same arrays, whose blocks are to be made again once the value of ``after`` is known."""
        known = self.delayed(after)
        bind = require("dask.graph_manipulation", "dask").bind
        bound = [bind(array, known) for array in arrays]
        self.collections += [known, *bound]
        self._begin()  # what was added so far is part of the collections now
        return bound

    def layers(self) -> Any:
        """Return the tasks on top of those of the collections."""
        highlevel = require("dask.highlevelgraph", "dask").HighLevelGraph
        return highlevel.from_collections(self.name, self.tasks, dependencies=self.collections)

    def delayed(self, key: Any) -> Any:
        """Return the value of ``key`` as a Dask object."""
        return require("dask.delayed", "dask").Delayed(key, self.layers(), layer=self.name)

    def compute(self, key: Any) -> Any:
        """Compute the value of ``key`` where the collections are, or else by Dask's default scheduler."""
        return computed(self.delayed(key), self.collections)


def computed(X: Any, beside: list[Any] | None = None) -> Any:
    """Compute a Dask object where the collections ``beside`` it are, or its own; anything else is returned as it is."""
    if not hasattr(X, "__dask_graph__"):
        return X
    beside = [X] if beside is None else beside
    with readable_errors(beside):
        client = _client_of(beside)
        options = {} if client is None else {"scheduler": client.get}
        # Directions and means of many features are sent once in each pass, which is no mistake to be warned of. Not
        # set before distributed is loaded, whose own settings would be gone with it afterwards.
        quiet = {"distributed.admin.large-graph-warning-threshold": "4GB"} if "distributed" in sys.modules else {}
        with require("dask", "dask").config.set(quiet):
            return X.compute(**options)


def _futures(arrays: list[Any]) -> list[Any]:
    """Return what the arrays hold on the workers of a cluster, none where there is no cluster."""
    distributed = sys.modules.get("distributed")
    return [] if distributed is None else list(distributed.futures_of(arrays))


def kept(arrays: list[Any]) -> bool:
    """Whether all blocks are kept on the workers."""
    return len(_futures(arrays)) >= sum(int(array.numblocks[0]) for array in arrays)


def _client_of(arrays: list[Any]) -> Any:
    """Return the client of a cluster that keeps some of the arrays; None where Dask's default scheduler will do."""
    futures = _futures(arrays)
    return futures[0].client if futures else None


def optimised(array: Any) -> Any:
    """Return the array with its steps fused, once instead of in every pass.

    Left as it is where a cluster keeps something of it: blocks that are nothing but kept would fall out of its graph.
    """
    with readable_errors([array]):
        if _futures([array]):
            return array
        (found,) = require("dask", "dask").optimize(array)
        return found


def persisted(array: Any, beside: list[Any]) -> Any:
    """Return an array that is computed and kept, on the cluster that keeps the arrays ``beside`` it if there is one."""
    with readable_errors([array, *beside]):
        client = _client_of(beside)
        # Fused again, steps would be other tasks by the names of those that were computed before.
        if client is None:
            return array.persist(optimize_graph=False)
        with client.as_current():
            return array.persist(optimize_graph=False, scheduler=client.get)


def check_workers(arrays: list[Any]) -> None:
    """Raise where a cluster is in use and mcpca cannot be imported on it: a worker that lacks it dies, and all wait."""
    client = _client_in_use(arrays)
    if client is None or client.status != "running":  # a lost one is told of where something is computed
        return
    asked = importlib.import_module, "mcpca"  # a function that workers have, whatever else they lack
    with readable_errors(arrays):
        found = client.run(*asked, on_error="return")
    lacking = {f"worker {where}": error for where, error in found.items() if isinstance(error, ImportError)}
    try:
        client.run_on_scheduler(*asked)
    except ImportError as error:
        lacking["the scheduler"] = error
    if lacking:
        where, cause = next(iter(lacking.items()))
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise ModuleNotFoundError(
            f"The Dask cluster lacks the package mcpca: it cannot be imported on {where}{more} ({cause}). Rows stay on "
            "the workers, and mcpca's functions go to them: install mcpca on every worker and on the scheduler, in the "
            "version that is here, and call again.",
            name="mcpca",
        ) from cause


def _client_in_use(arrays: list[Any]) -> Any:
    """Return the client that computes these arrays, None where no cluster does."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    scheduler = require("dask.base", "dask").get_scheduler(collections=arrays)
    own = _client_of(arrays) or getattr(scheduler, "__self__", None)
    return own if isinstance(own, distributed.Client) else None


@contextmanager
def readable_errors(arrays: list[Any]) -> Iterator[None]:
    """Turn a lost cluster into an error that says so and what to do; errors of the data stay as they are."""
    try:
        yield
    except (Exception, asyncio.CancelledError) as error:
        if type(error).__name__ == "KilledWorker":
            raise OSError(
                f"Dask's workers died again and again over the same task ({error}), often for want of memory. Use "
                "smaller chunks (X.rechunk), fewer threads or more memory for each worker, and call fit again."
            ) from error
        # Blocks that are read from elsewhere have connections and time limits of their own.
        theirs = isinstance(error, _PERHAPS_LOST)
        if not theirs and type(error).__name__ not in _LOST:
            raise
        client = _client_in_use(arrays)
        if client is not None and client.status != "running":
            raise _lost(error) from error
        if "lost dependencies" in str(error):
            raise _incomplete(error) from error
        if client is not None and type(error).__name__ in _LOST:
            raise _lost(error) from error
        raise


def _lost(error: BaseException) -> ConnectionError:
    return ConnectionError(
        f"The Dask cluster was lost, or its client closed, while X was being read ({type(error).__name__}: {error}). "
        "Nothing was fitted. Connect again with distributed.Client(address), make X again (what was persisted there is "
        "gone with it) and call fit again; with checkpoint=path it goes on after the last finished pass."
    )


def check_announced(array: Any, where: str) -> None:
    """Raise where an array announces blocks for which it has no task; cost O(number of blocks)."""
    layer = getattr(array.dask, "layers", {}).get(array.name)
    if layer is None:
        return
    have = set(layer.get_output_keys())
    lacking = [key for key in require("dask.core", "dask").flatten(array.__dask_keys__()) if key not in have]
    if lacking:
        raise ValueError(
            f"{where} announces {array.npartitions} blocks and has no task for {len(lacking)} of them; the first is "
            f"block {lacking[0][1:]}. Its chunks are not those of its tasks: give it the true ones."
        )


def _incomplete(error: BaseException) -> ValueError:
    return ValueError(
        f"X or y has no task for some of the blocks that it announces ({error}). Either what was persisted was "
        "cancelled, or the chunks and meta that it was given are not those of its blocks. The cluster is there: make X "
        "and y again, with the true ones."
    )
