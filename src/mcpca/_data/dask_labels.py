"""Labels of rows on Dask: they become one small integer for each row, kept on the workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._utils.optional import require
from .._utils.types import Array
from .dask_graph import Graph, check_announced, optimised, persisted
from .dask_tasks import Coder, Seen, count, encode, gathered, see_labels
from .detect import is_dask
from .label_kinds import plain_label
from .labels import Coded, check_labels, encode_labels, name_array, sorted_names


@dataclass(frozen=True)
class DaskLabels:
    """Names of contexts; codes of rows as a Dask array; the contexts of each block; rows of each context."""

    names: Array
    codes: Any
    present: list[Array]
    counts: Array


def labels_there(y: Any, n: int, lengths: tuple[int, ...], rows: list[Any]) -> DaskLabels:
    """Read labels of n rows in blocks of these lengths, and keep them where the ``rows`` are."""
    if is_dask(y):
        return _kept(*_coded(y, n, lengths), lengths, rows)
    names, codes = encode_labels(y, n)
    return codes_there(Coded(codes, names), lengths, rows)


def codes_there(coded: Coded, lengths: tuple[int, ...], rows: list[Any]) -> DaskLabels:
    """Keep codes of rows in blocks of these lengths where the ``rows`` are; -1 is a row that is in no context."""
    k = len(coded.categories)
    small = np.min_scalar_type(-k if (coded.codes < 0).any() else max(k - 1, 0))
    sent = require("dask.array", "dask").from_array(coded.codes.astype(small), chunks=(lengths,))
    return _kept(coded.categories, sent, lengths, rows)


def _kept(names: Array, codes: Any, lengths: tuple[int, ...], rows: list[Any]) -> DaskLabels:
    codes = persisted(codes, rows)
    graph = Graph([codes])
    counted = graph.compute(graph.call(gathered, [graph.call(count, (codes.name, j)) for j in range(len(lengths))]))
    counts = np.zeros(len(names), dtype=np.intp)
    for present, own in counted:
        counts[present] += own
    return DaskLabels(names, codes, [present for present, _ in counted], counts)


def _coded(y: Any, n: int, lengths: tuple[int, ...]) -> tuple[Array, Any]:
    """Return the names in labels that are a Dask collection, and these labels as numbers, not computed yet."""
    da = require("dask.array", "dask")
    frame = hasattr(y, "to_dask_array")
    dtype = getattr(y, "dtype", None)
    known = frame and str(dtype) == "category" and y.cat.known
    categories = [plain_label(c) for c in y.cat.categories] if known else None
    if frame and dtype is not None and not isinstance(dtype, np.dtype):
        y = y.astype(object)  # types of pandas, which are none of NumPy's
    labels = y.to_dask_array() if frame else y
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(f"y has {labels.ndim} dimensions; pass one context label per row.")
    check_announced(labels, "y")
    labels = optimised(labels)
    graph = Graph([labels])
    looks = [graph.call(see_labels, (labels.name, j)) for j in range(labels.numblocks[0])]
    seen: list[Seen] = graph.compute(graph.call(gathered, looks))
    check_labels((sum(s.n for s in seen),), n, sum(s.missing for s in seen))
    values = [s.values for s in seen if s.n]
    kinds = {v.dtype.kind for v in values}
    if len(kinds) == 1 and kinds != {"O"}:
        names = np.unique(np.concatenate(values))
    else:
        names = name_array(sorted_names([name for part in values for name in part.tolist()]))
    used = set(names.tolist())
    # Partitions may have categories of their own, whatever is announced: without a common order names are sorted.
    if categories is not None and used <= set(categories):
        names = name_array([c for c in categories if c in used])
    labels = da.Array(labels.dask, labels.name, (tuple(s.n for s in seen),), dtype=labels.dtype)
    labels = labels if labels.chunks[0] == lengths else labels.rechunk((lengths,))
    small = np.min_scalar_type(max(len(names) - 1, 0))
    graph = Graph([labels])
    coder = graph.put(Coder(names, small))
    graph.tasks |= {(graph.name, j): (encode, coder, (labels.name, j)) for j in range(len(lengths))}
    return names, da.Array(graph.layers(), graph.name, (lengths,), dtype=small)
