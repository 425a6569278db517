"""Entries of all features in all MCPCs, small enough for a page: what its search of features reads.

``_content`` calls ``all_features``; ``static/features.js`` unpacks it when the search is first used.

An entry is written by its sign and the logarithm of its size, in 16 bits, so that small entries are as exact as large
ones: ``|a_ij| = largest_j exp(-step_j (code - 1))``, and code 0 is 0. The error is at most half a step, 0.05% of the
entry; below 1e-12 of the largest of its MCPC an entry is written as 0. Weights of scores are not written where they
follow from the entries: ``pinv(A) = inv(A^T A) A^T``, of which the page needs only the r by r matrix.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import numpy as np

from .._results.fitted import Fitted
from .._utils.types import Array
from ..poles import percentiles
from ._encode import rounded

MOST_NUMBERS = 2_000_000  # entries that are written all; 16 bits each, about 4 MB of the file
MOST_KEPT = 600_000  # entries beyond that: with their MCPC, weight and percentile, 10 bytes each before packing
MOST_FEATURES = 100_000  # names
_SIGN = 1 << 15
_MOST_CODES = _SIGN - 1  # sizes; 0 is one more
_RANGE = 1e-12  # smallest size that is kept, of the largest of its MCPC
_SAME = 1e-6  # of the largest weight, up to which weights are said to follow from the entries


def all_features(
    fit: Fitted, most_numbers: int = MOST_NUMBERS, most_kept: int = MOST_KEPT, most_features: int = MOST_FEATURES
) -> dict[str, Any]:
    """Return names and entries of the features as the page reads them, compressed.

    Up to ``most_numbers`` entries all are written. Beyond them each feature has its largest entries by size, as many as
    make ``most_kept``, with their weights in scores and with the number of features whose entries are smaller, which
    cannot be counted in the page then. Of more than ``most_features`` features those are written whose largest entry,
    relative to the largest of its MCPC, is largest.

    Notes
    -----
    Cost O(p r log p), memory O(p r).
    """
    A = fit.components
    W = fit.projection.T  # (p, r), as A
    p, r = A.shape
    largest, step = _scales(A)
    content: dict[str, Any] = {"features": p, "largest": rounded(largest, 7), "step": rounded(step, 7)}
    if p * r <= most_numbers:
        codes = _codes(A, largest, step)
        fields = [("entry", codes, 2)]
        inverse = fit.projection @ W  # pinv(A) pinv(A)^T = inv(A^T A)
        if np.abs(A @ inverse - W).max(initial=0) <= _SAME * np.abs(W).max(initial=0):
            return content | {"each": r, "inverse": rounded(inverse, 10)} | _packed(fit.features, fields)
        # Weights of other origin, as of a fit whose features were taken away since.
        ends = _scales(W)
        fields.append(("weight", _codes(W, *ends), 2))
        return content | {"each": r} | _weight_scales(ends) | _packed(fit.features, fields)
    kept = np.arange(p)
    if p > most_features:
        size = (np.abs(A) / np.where(largest > 0, largest, 1)).max(axis=1)
        kept = np.sort(np.argsort(-size, kind="stable")[:most_features])
    each = min(max(most_kept // len(kept), 1), r)
    ends = _scales(W)
    order = np.argsort(-np.abs(A[kept]), axis=1, kind="stable")[:, :each]  # MCPCs of each feature, (n, each)
    smaller = np.round(percentiles(A) * p / 100).astype(np.int64)
    at = (kept[:, None], order)
    fields = [
        ("mcpc", order, 2),
        ("entry", _codes(A, largest, step)[at], 2),
        ("weight", _codes(W, *ends)[at], 2),
        ("smaller", smaller[at], 4),
    ]
    names = [fit.features[i] for i in kept]
    return content | {"each": each} | _weight_scales(ends) | _packed(names, fields)


def _weight_scales(ends: tuple[Array, Array]) -> dict[str, Any]:
    return {"largestWeight": rounded(ends[0], 7), "weightStep": rounded(ends[1], 7)}


def _scales(values: Array) -> tuple[Array, Array]:
    """Return the largest size (r,) of each column, and the step (r,) of the logarithms of its codes."""
    sizes = np.abs(values)
    largest = sizes.max(axis=0, initial=0)
    smallest = np.min(sizes, axis=0, where=sizes > _RANGE * largest, initial=np.inf)
    spread = np.where(largest > 0, np.log(np.where(largest > 0, largest, 1) / np.minimum(smallest, 1e300)), 0)
    return largest, np.maximum(spread, 0) / (_MOST_CODES - 1)


def _codes(values: Array, largest: Array, step: Array) -> Array:
    """Return codes of a matrix (n, r): from 1 for the largest size up, 0 for 0, with the sign in the highest bit."""
    sizes = np.abs(values)
    known = sizes > _RANGE * largest
    down = np.log(np.where(largest > 0, largest, 1) / np.where(known, sizes, 1))
    codes = 1 + np.round(down / np.where(step > 0, step, 1)).astype(np.int64)
    return np.where(known, codes + _SIGN * (values < 0), 0)


def _packed(names: list[str], fields: list[tuple[str, Array, int]]) -> dict[str, Any]:
    """Return names and whole numbers, compressed: of each field the highest bytes of all numbers, then the next."""
    # High bytes are alike and low bytes are not, so they are kept apart.
    planes = [
        (numbers >> 8 * byte & 255).astype(np.uint8).tobytes()
        for _, numbers, n_bytes in fields
        for byte in reversed(range(n_bytes))
    ]
    return {
        "written": len(names),
        "names": _deflated(json.dumps(names, ensure_ascii=True).encode("ascii")),
        "fields": [[name, n_bytes] for name, _, n_bytes in fields],
        "numbers": _deflated(b"".join(planes)),
    }


def _deflated(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content, 6)).decode("ascii")
