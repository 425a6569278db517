"""The identity of a fit: what a checkpoint stores to recognise the fit that it belongs to.

``MCPCA.fit`` computes it before any pass, from what is known without reading rows: shapes, labels and parameters. The
rows themselves are compared by the marks made in the first pass (``row_marks``), and the code by ``code_digest``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._data.contexts import Contexts
from .._data.held_rows import memory_limit
from .._data.row_marks import marks_of
from .._utils.types import Array
from .device_rows import is_sparse_there

_DIGEST_BYTES = 16  # 128 bits: no two values agree by chance


def identity_of(contexts: Contexts, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the identity of a fit: the shape of the data, labels and parameters, by the names that errors give them.

    Rows on other machines and sparse ones on a device have to be read for it, since passes there make no marks; the
    latter come to the host for it, a context at a time.
    """
    # Rows in this process are marked by the first pass, which reads them anyway; only labels are needed here.
    rows: dict[str, int] = {}
    if contexts.engine is None and not is_sparse_there(contexts):
        labels = _digest_of_row_numbers(contexts)
    else:
        if contexts.engine is None:
            labels = _digest_of_row_numbers(contexts)
            marks = np.concatenate(
                [marks_of(contexts.block(i), np.zeros(n, dtype=np.intp), 1) for i, n in enumerate(contexts.n_samples)]
            )
        else:
            marks, labels = contexts.engine.fingerprint()
        rows = {f"context {name!r}": mark for name, mark in zip(contexts.names.tolist(), marks.tolist(), strict=True)}
    return {
        "the number of rows": int(contexts.n_samples.sum()),
        "the number of features": contexts.n_features,
        "the contexts": digest(contexts.names.astype(object)),
        "the labels of rows": labels,
        "batch and covariates": _digest_of_nuisance(contexts),
        "the rows": rows,
        "the form of X": sorted({type(source).__name__ for source in contexts.sources}),  # determines the order of rows
        "the precision": str(contexts.dtype),
        "scikit-learn's working_memory": memory_limit(),  # determines samples and panels of rows
        # Progress reports do not affect the result.
        "the parameters": {name: digest(value) for name, value in parameters.items() if name != "verbose"},
    }


def digest(value: Any) -> Any:
    """Return JSON that is equal for equal parameters only: arrays go by their bytes, generators by their state."""
    # The type goes into each digest, so that 0, 0.0, False and "0" differ.
    if isinstance(value, np.random.Generator):
        return ["Generator", digest(value.bit_generator.state)]
    if isinstance(value, (np.random.BitGenerator, np.random.SeedSequence)):
        return [type(value).__name__, digest(value.state)]
    if isinstance(value, np.random.RandomState):
        return ["RandomState", digest(value.get_state(legacy=False))]
    # np.int64(3) and 3 are the same parameter.
    if isinstance(value, np.generic):
        value = value.item()
    # The bytes of an array of objects are addresses, which change with every process: it goes item by item below.
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return ["array", value.dtype.str, list(value.shape), _digest_of_bytes(value)]
    if isinstance(value, Mapping) or (hasattr(value, "items") and hasattr(value, "index")):  # a Series
        # Sorted, since the order of a mapping means nothing; by repr, since keys of different types do not compare.
        pairs = ([digest(name), digest(item)] for name, item in value.items())
        return ["mapping", sorted(pairs, key=repr)]
    if isinstance(value, (list, tuple, range, np.ndarray)):
        return ["sequence", [digest(item) for item in value]]
    # Arrays of other libraries, on the host or on a device.
    if hasattr(value, "__array__"):
        return digest(np.asarray(value))
    return [type(value).__name__, repr(value)]


def _digest_of_bytes(values: Array) -> str:
    return hashlib.blake2b(np.ascontiguousarray(values).tobytes(), digest_size=_DIGEST_BYTES).hexdigest()


def _digest_of_nuisance(contexts: Contexts) -> Any:
    """Return a digest of the nuisance of rows; None if they have none."""
    design = contexts.nuisance
    if design is None:
        return None
    return [digest(design.levels.tolist()), digest(list(design.strata)), digest(list(design.numbers))]


def _digest_of_row_numbers(contexts: Contexts) -> str:
    """Return a digest of which rows belong to which context."""
    content = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for rows in contexts.rows:
        # int64 everywhere, so that the digest is the same on systems whose default integer is shorter.
        numbers = np.asarray([rows.start, rows.stop] if isinstance(rows, slice) else rows)
        # The length first, since a row that moves to the next context would leave the bytes as they are.
        content.update(np.int64(len(numbers)).tobytes())
        content.update(np.ascontiguousarray(numbers, dtype=np.int64).tobytes())
    return content.hexdigest()
