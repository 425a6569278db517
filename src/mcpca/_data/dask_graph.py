"""One computation on Dask: its tasks, the cluster that computes them, and errors when that cluster is lost.

``dask_rows`` and ``dask_labels`` build passes with ``Graph``. Dask and distributed are never imported before the
user has: a cluster is looked for only if ``distributed`` is loaded.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import uuid4

from .._utils.optional import require
from .dask_tasks import combined_sums

# Sums that one task of the tree adds. More make the tree flatter, with fewer tasks to schedule, but have to be in the
# memory of one worker at the same time.
ARITY = 8
# Errors of distributed (by name, since it may not be installed) that mean that the connection to the cluster is gone,
# and those that may also come from the user's blocks: a read from a server has timeouts of its own.
_LOST = ("CommClosedError", "ClosedClientError", "FutureCancelledError", "FuturesCancelledError")
_PERHAPS_LOST = (asyncio.CancelledError, concurrent.futures.CancelledError, ConnectionError, TimeoutError)


class _LargeGraphs:
    """The setting that distributed does not warn of large graphs, while a computation of ours is under way.

    Graphs hold directions and means of many features, once for each pass. Settings are those of the process, and
    threads may fit halves at the same time: the first to begin makes the setting, and the last to end undoes it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way = 0
        self._exits = ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            # Not before distributed is loaded: on leaving, its own defaults would be removed with the setting.
            if not self._under_way and "distributed" in sys.modules:
                quiet = {"distributed.admin.large-graph-warning-threshold": "4GB"}
                self._exits.enter_context(require("dask", "dask").config.set(quiet))
            self._under_way += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._under_way -= 1
            if not self._under_way:
                self._exits.close()


_LARGE_GRAPHS = _LargeGraphs()


class Graph:
    """Tasks of one computation by key, under a unique name, on top of the graphs of ``collections``."""

    def __init__(self, collections: list[Any]) -> None:
        self.collections = list(collections)
        self._begin()

    def _begin(self) -> None:
        # Dask knows results by the keys of their tasks: under a name used before, it might hand out old ones.
        self.name = f"mcpca-{uuid4().hex}"
        self.tasks: dict[Any, Any] = {}

    def put(self, value: Any) -> Any:
        """Add a value, which Dask must not take for a task or a key (no tuple, list or str), and return its key."""
        # Tasks are never removed, so their number is unique within the name.
        key = self.name, "task", len(self.tasks)
        self.tasks[key] = value
        return key

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Add a call, in which keys stand for values, and return its key."""
        return self.put((function, *arguments))

    def tree(self, keys: list[Any], arity: int = ARITY, combine: Callable[[list[Any]], Any] = combined_sums) -> Any:
        """Add up sums in the order of ``keys``, which fixes the rounding, and return the key of the total."""
        # Depth log_arity(blocks). A sum is freed once the next level has used it, so a worker holds few at a time.
        while len(keys) > 1:
            keys = [self.call(combine, keys[i : i + arity]) for i in range(0, len(keys), arity)]
        return keys[0]

    def again(self, arrays: list[Any], after: Any) -> list[Any]:
        """Return the same arrays, whose blocks are computed again after the value of ``after`` is known."""
        # ``bind`` gives the blocks new keys that depend on ``after``. Under their old keys Dask would keep the blocks
        # in memory from their first use to their second.
        known = self.delayed(after)
        bind = require("dask.graph_manipulation", "dask").bind
        bound = [bind(array, known) for array in arrays]
        self.collections += [known, *bound]
        self._begin()  # the tasks so far are part of the collections now
        return bound

    def layers(self) -> Any:
        """Return the tasks as a layer on top of the graphs of the collections."""
        highlevel = require("dask.highlevelgraph", "dask").HighLevelGraph
        return highlevel.from_collections(self.name, self.tasks, dependencies=self.collections)

    def delayed(self, key: Any) -> Any:
        """Return the value of ``key`` as a Dask object."""
        return require("dask.delayed", "dask").Delayed(key, self.layers(), layer=self.name)

    def compute(self, key: Any) -> Any:
        """Compute the value of ``key`` on the cluster that holds the collections, or by Dask's default scheduler."""
        return computed(self.delayed(key), self.collections)


def computed(X: Any, collections: list[Any] | None = None) -> Any:
    """Compute a Dask object on the cluster that holds these collections, or X itself; return anything else as it is."""
    if not hasattr(X, "__dask_graph__"):
        return X
    collections = [X] if collections is None else collections
    with readable_errors(collections):
        # Futures are of use only on their own cluster, which need not be that of the current client.
        client = _client_of(collections)
        options = {} if client is None else {"scheduler": client.get}
        with _LARGE_GRAPHS:
            return X.compute(**options)


def _futures(arrays: list[Any]) -> list[Any]:
    """Return the futures of the arrays, blocks that a cluster holds; none without a cluster."""
    distributed = sys.modules.get("distributed")
    return [] if distributed is None else list(distributed.futures_of(arrays))


def are_persisted(arrays: list[Any]) -> bool:
    """Whether a cluster holds all blocks of the arrays."""
    return len(_futures(arrays)) >= sum(int(array.numblocks[0]) for array in arrays)


def _client_of(arrays: list[Any]) -> Any:
    """Return the client of the cluster that holds some block of the arrays, None if there is none."""
    futures = _futures(arrays)
    return futures[0].client if futures else None


def optimised(array: Any) -> Any:
    """Return the array with its steps fused, once instead of in every pass.

    An array of which a cluster holds some blocks stays as it is: these would fall out of the graph.
    """
    with readable_errors([array]):
        if _futures([array]):
            return array
        (fused,) = require("dask", "dask").optimize(array)
        return fused


def persisted(array: Any, rows: list[Any]) -> Any:
    """Compute an array and keep it, on the cluster that holds the arrays ``rows`` if there is one."""
    with readable_errors([array, *rows]):
        client = _client_of(rows)
        # Not optimised again: fused steps would be different tasks under names that were computed before.
        if client is None:
            return array.persist(optimize_graph=False)
        # The current client may belong to another cluster, which does not have these futures.
        with client.as_current():
            return array.persist(optimize_graph=False, scheduler=client.get)


def check_workers(arrays: list[Any]) -> None:
    """Raise if a cluster computes the arrays and mcpca cannot be imported there.

    Without this check a worker that cannot unpickle a task dies, its tasks move to the next one, and the fit hangs.
    """
    client = client_in_use(arrays)
    if client is None or client.status != "running":  # the error for a lost one comes from the first computation
        return
    import_mcpca = importlib.import_module, "mcpca"  # from the standard library, which every worker has
    with readable_errors(arrays):
        answers = client.run(*import_mcpca, on_error="return")
    # Only a failed import is reported here; anything else shows again, with its own error, in the computation.
    failed = {f"worker {where}": error for where, error in answers.items() if isinstance(error, ImportError)}
    # Recent versions of distributed unpickle the graph on the scheduler, so it needs mcpca as well.
    try:
        client.run_on_scheduler(*import_mcpca)
    except ImportError as error:
        failed["the scheduler"] = error
    if failed:
        where, cause = next(iter(failed.items()))
        more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        raise ModuleNotFoundError(
            f"The Dask cluster lacks the package mcpca: it cannot be imported on {where}{more} ({cause}). Rows stay on "
            "the workers, and mcpca's functions go to them: install mcpca on every worker and on the scheduler, in the "
            "same version as here, and call again.",
            name="mcpca",
        ) from cause


def client_in_use(arrays: list[Any]) -> Any:
    """Return the client of the cluster that computes these arrays, None if there is no cluster."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    # Dask's scheduler is a function: the method ``get`` of a client, whose ``__self__`` is that client, or a plain
    # function if there is no cluster.
    scheduler = require("dask.base", "dask").get_scheduler(collections=arrays)
    client = _client_of(arrays) or getattr(scheduler, "__self__", None)
    return client if isinstance(client, distributed.Client) else None


@contextmanager
def readable_errors(arrays: list[Any]) -> Iterator[None]:
    """Turn the many errors of a lost cluster into one that says what to do; errors of the data stay as they are."""
    try:
        yield
    # asyncio's CancelledError derives from BaseException: ``Exception`` alone would let it through.
    except (Exception, asyncio.CancelledError) as error:
        if type(error).__name__ == "KilledWorker":
            raise OSError(
                f"Dask's workers died repeatedly on the same task ({error}), often for lack of memory. Use smaller "
                "chunks (X.rechunk), fewer threads or more memory per worker, and call fit again."
            ) from error
        if not isinstance(error, _PERHAPS_LOST) and type(error).__name__ not in _LOST:
            raise
        client = client_in_use(arrays)
        if client is not None and client.status != "running":
            raise _lost(error) from error
        # After the status: the same error means a lost cluster if the client is down, and missing tasks if it runs.
        if "lost dependencies" in str(error):
            raise _incomplete(error) from error
        if client is not None and type(error).__name__ in _LOST:
            raise _lost(error) from error
        raise


def _lost(error: BaseException) -> ConnectionError:
    return ConnectionError(
        f"The Dask cluster was lost, or its client closed, while X was being read ({type(error).__name__}: {error}). "
        "Nothing was fitted. Connect again with distributed.Client(address), make X again (what was persisted is gone "
        "with the cluster) and call fit again; with checkpoint=path it resumes after the last finished pass."
    )


def check_announced(array: Any, where: str) -> None:
    """Raise if an array announces blocks for which it has no task; cost O(number of blocks)."""
    # Other graphs than Dask's layered ones do not tell their output cheaply, and are left to the computation.
    layer = getattr(array.dask, "layers", {}).get(array.name)
    if layer is None:
        return
    have = set(layer.get_output_keys())
    lacking = [key for key in require("dask.core", "dask").flatten(array.__dask_keys__()) if key not in have]
    if lacking:
        raise ValueError(
            f"{where} announces {array.npartitions} blocks and has no task for {len(lacking)} of them; the first is "
            f"block {lacking[0][1:]}. Its chunks do not match its tasks: give it the true ones."
        )


def _incomplete(error: BaseException) -> ValueError:
    return ValueError(
        f"X or y has no task for some of the blocks that it announces ({error}). Either what was persisted was "
        "cancelled, or the chunks and meta that it was given are not those of its blocks. The cluster is still there: "
        "make X and y again, with the true ones."
    )
