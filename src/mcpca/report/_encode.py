"""Numbers and names on their way into a page: few digits, few bytes, nothing that could be taken for markup."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from .._utils.types import Array

DIGITS = 5
_HIGHEST = 32767  # of a 16-bit integer
# Inside a script element only "<" can end it or open a comment; the others are for whoever copies the text elsewhere.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def rounded(values: Any, digits: int = DIGITS) -> Any:
    """Return numbers as (nested) lists with so many significant digits; None for NaN and infinity."""
    array = np.asarray(values, dtype=np.float64)
    flat = [float(f"{v:.{digits}g}") if np.isfinite(v) else None for v in array.ravel().tolist()]
    # 3.0 is written as 3: a fifth of the bytes of a table of counts.
    short = [int(v) if v is not None and v.is_integer() and abs(v) < 1e15 else v for v in flat]
    return np.array(short, dtype=object).reshape(array.shape).tolist()


def packed(values: Array) -> dict[str, Any]:
    """Return a matrix (n, m) as 16-bit integers in base64 and one scale per column: ``value = integer * scale``.

    The error is at most half a scale: 1.5e-5 of the largest absolute value of the column.
    """
    scales = np.abs(values).max(axis=0, initial=0) / _HIGHEST
    integers = np.round(values / np.where(scales > 0, scales, 1)).astype("<i2")
    # Seven digits, since an error of the scale is an error of every number.
    return {"scales": rounded(scales, 7), "data": base64.b64encode(integers.tobytes()).decode("ascii")}


def as_json(content: Any) -> str:
    """Return JSON that is plain ASCII and can stand inside a script element, whatever its strings are."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return text


def shortened(name: str, length: int = 60) -> str:
    """Return a name that fits into a sentence."""
    return name if len(name) <= length else name[: length - 1] + "…"
