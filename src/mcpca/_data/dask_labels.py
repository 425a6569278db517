"""Labels of rows on Dask: they become one small integer per row, kept on the workers.

Labels may be in this process (an array, a column of ``obs``) or a Dask collection themselves. Either way ``DaskLabels``
has them in the same blocks as the rows, so that a task of a pass gets both.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from .._utils.optional import require
from .._utils.types import Array
from .dask_graph import Graph, check_announced, optimised, persisted
from .dask_tasks import Coder, SeenLabels, count, encode, gathered, see_labels
from .detect import is_dask
from .label_kinds import plain_label
from .labels import Coded, check_labels, encode_labels, name_array, sorted_names


@dataclass(frozen=True)
class DaskLabels:
    """Labels in the blocks of the rows.

    ``names`` (k,) of contexts, ``codes`` of rows as a Dask array (None if all are in one context), the contexts that
    are ``present`` in each block, and ``counts`` (k,) of rows.
    """

    names: Array
    codes: Any
    present: list[Array]
    counts: Array


def labels_on_dask(y: Any, n: int, lengths: tuple[int, ...], rows: list[Any]) -> DaskLabels:
    """Read the labels of n rows in blocks of these lengths, and keep them where the arrays ``rows`` are."""
    # From a Dask collection the names are known only after a look at all labels; otherwise they are at hand.
    if is_dask(y):
        return _persisted_codes(*_coded(y, n, lengths), lengths, rows)
    names, codes = encode_labels(y, n)
    return codes_on_dask(Coded(codes, names), lengths, rows)


def codes_on_dask(coded: Coded, lengths: tuple[int, ...], rows: list[Any]) -> DaskLabels:
    """Send codes of rows to where the arrays ``rows`` are, in blocks of these lengths; -1 is for no context."""
    k = len(coded.categories)
    # A byte per row for up to 256 contexts; signed if -1 occurs.
    small = np.min_scalar_type(-k if (coded.codes < 0).any() else max(k - 1, 0))
    sent = require("dask.array", "dask").from_array(coded.codes.astype(small), chunks=(lengths,))
    return _persisted_codes(coded.categories, sent, lengths, rows)


def kept_codes(codes: Array, lengths: tuple[int, ...], rows: list[Any]) -> Any:
    """Return codes (n,) as a Dask array in blocks of these lengths, kept where the arrays ``rows`` are."""
    starts = np.cumsum([0, *lengths]).tolist()
    graph = Graph([])
    # Blocks are values and no tasks: without a cluster there is nothing to compute.
    graph.tasks |= {(graph.name, j): codes[a:b] for j, (a, b) in enumerate(pairwise(starts))}
    sent = require("dask.array", "dask").Array(graph.layers(), graph.name, (tuple(lengths),), dtype=codes.dtype)
    return persisted(sent, rows)


def _persisted_codes(names: Array, codes: Any, lengths: tuple[int, ...], rows: list[Any]) -> DaskLabels:
    """Compute the codes, keep them on the workers, and count the rows of each context."""
    # Every pass needs them, and they are small: kept, they are neither sent nor computed again.
    codes = persisted(codes, rows)
    graph = Graph([codes])
    counted = graph.compute(graph.call(gathered, [graph.call(count, (codes.name, j)) for j in range(len(lengths))]))
    # In this process and in the order of blocks; each block gives at most k numbers.
    counts = np.zeros(len(names), dtype=np.intp)
    for present, block_counts in counted:
        counts[present] += block_counts
    return DaskLabels(names, codes, [present for present, _ in counted], counts)


def _coded(y: Any, n: int, lengths: tuple[int, ...]) -> tuple[Array, Any]:
    """Return the names of the contexts in labels that are a Dask collection, and the codes, not computed yet."""
    da = require("dask.array", "dask")
    is_frame = hasattr(y, "to_dask_array")
    dtype = getattr(y, "dtype", None)
    # Noted before the conversion below, which loses the order of categories.
    has_known_categories = is_frame and str(dtype) == "category" and y.cat.known
    categories = [plain_label(c) for c in y.cat.categories] if has_known_categories else None
    if is_frame and dtype is not None and not isinstance(dtype, np.dtype):
        y = y.astype(object)  # pandas' own types have no counterpart in a Dask array
    labels = y.to_dask_array() if is_frame else y
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(f"y has {labels.ndim} dimensions; pass one context label per row.")
    check_announced(labels, "y")
    labels = optimised(labels)
    graph = Graph([labels])
    # Two computations on labels: codes depend on the names in all blocks, so these come first, and ``encode`` second.
    looks = [graph.call(see_labels, (labels.name, j)) for j in range(labels.numblocks[0])]
    seen: list[SeenLabels] = graph.compute(graph.call(gathered, looks))
    check_labels((sum(s.n for s in seen),), n, sum(s.missing for s in seen))
    # An empty block has no labels, but an array of some default type, which would make types look mixed.
    values = [s.values for s in seen if s.n]
    kinds = {v.dtype.kind for v in values}
    if len(kinds) == 1 and kinds != {"O"}:
        names = np.unique(np.concatenate(values))
    else:
        names = name_array(sorted_names([name for part in values for name in part.tolist()]))
    used = set(names.tolist())
    # Partitions may have other categories than the collection announces; then there is no order but the sorted one.
    if categories is not None and used <= set(categories):
        names = name_array([c for c in categories if c in used])
    # The same blocks with their lengths, which a Dask DataFrame does not know and rechunking needs.
    labels = da.Array(labels.dask, labels.name, (tuple(s.n for s in seen),), dtype=labels.dtype)
    labels = labels if labels.chunks[0] == lengths else labels.rechunk((lengths,))
    # Unsigned will do: missing labels were refused above, so there is no -1.
    small = np.min_scalar_type(max(len(names) - 1, 0))
    graph = Graph([labels])
    coder = graph.put(Coder(names, small))
    # Keys (name, number of the block), as Dask expects of an array, so that the graph can become one.
    graph.tasks |= {(graph.name, j): (encode, coder, (labels.name, j)) for j in range(len(lengths))}
    return names, da.Array(graph.layers(), graph.name, (lengths,), dtype=small)
