"""What tells one fit from another: the identity that a checkpoint is written with, and compared by.

``MCPCA.fit`` makes it before any pass, from what is known without reading rows: shapes, labels and parameters. The rows
themselves are compared by the marks of the first pass (``row_marks``), and the code by ``code_digest``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._data.contexts import Contexts
from .._utils.types import Array
from .row_groups import memory_limit

_DIGEST_BYTES = 16  # of all digests here: 128 bits, so that no two values agree by chance


def identity_of(contexts: Contexts, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return what tells a fit from others before its rows are read: the shape of the data, labels and parameters.

    Its names are those that a refusal gives to the user. Rows on other machines are read for it, since these mark their
    rows by themselves.
    """
    if contexts.engine is None:
        rows = {}
        labels = _digest_of_row_numbers(contexts)
    else:
        marks, labels = contexts.engine.fingerprint()
        rows = {f"context {name!r}": mark for name, mark in zip(contexts.names.tolist(), marks.tolist(), strict=True)}
    return {
        "the number of rows": int(contexts.n_samples.sum()),
        "the number of features": contexts.n_features,
        "the contexts": digest(contexts.names.astype(object)),
        "the labels of rows": labels,
        "the rows": rows,
        "the form of X": sorted({type(source).__name__ for source in contexts.sources}),  # decides the order of rows
        "the precision": str(contexts.dtype),
        "scikit-learn's working_memory": memory_limit(),  # decides which rows are looked at first, and how many at once
        # ``verbose`` has no part in the answer.
        "the parameters": {name: digest(value) for name, value in parameters.items() if name != "verbose"},
    }


def digest(value: Any) -> Any:
    """Return a parameter as JSON that is the same for equal values only: arrays by their bytes, generators by state."""
    if isinstance(value, np.random.Generator):
        return ["Generator", digest(value.bit_generator.state)]
    if isinstance(value, np.random.RandomState):
        return ["RandomState", digest(value.get_state(legacy=False))]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return ["array", value.dtype.str, list(value.shape), _digest_of_bytes(value)]
    if isinstance(value, Mapping) or (hasattr(value, "items") and hasattr(value, "index")):  # a Series
        pairs = ([digest(name), digest(item)] for name, item in value.items())
        return ["mapping", sorted(pairs, key=repr)]
    if isinstance(value, (list, tuple, range, np.ndarray)):
        return ["sequence", [digest(item) for item in value]]
    if hasattr(value, "__array__"):
        return digest(np.asarray(value))
    return [type(value).__name__, repr(value)]


def _digest_of_bytes(values: Array) -> str:
    return hashlib.blake2b(np.ascontiguousarray(values).tobytes(), digest_size=_DIGEST_BYTES).hexdigest()


def _digest_of_row_numbers(contexts: Contexts) -> str:
    """Return a digest of which rows are whose."""
    content = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for rows in contexts.rows:
        numbers = np.asarray([rows.start, rows.stop] if isinstance(rows, slice) else rows)
        content.update(np.ascontiguousarray(numbers, dtype=np.int64).tobytes())
    return content.hexdigest()
