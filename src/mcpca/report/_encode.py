"""Numbers and names on their way into a page: few digits, few bytes, nothing that could be mistaken for markup.

``_content`` calls ``rounded`` and ``packed`` for what ``static/data.js`` reads back; ``_page`` calls ``as_json`` last.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from .._utils.types import Array

_DIGITS = 5  # significant ones, as rest.js says on the page; each more adds a byte to every number of the file
_INT16_MAX = 32767
# Inside a script element only "<" can end it or open a comment; the others are for text that is copied elsewhere.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def rounded(values: Any, digits: int = _DIGITS) -> Any:
    """Return numbers as (nested) lists with that many significant digits; None for NaN and infinity."""
    # Through an array of objects, since None and int must survive the reshape.
    array = np.asarray(values, dtype=np.float64)
    return np.array([_short(v, digits) for v in array.ravel().tolist()], dtype=object).reshape(array.shape).tolist()


def _short(value: float, digits: int) -> float | int | None:
    if not np.isfinite(value):
        return None  # JSON has neither NaN nor infinity
    short = float(f"{value:.{digits}g}")
    # 3.0 is written as 3, which saves a fifth of the bytes of a table of counts. Beyond 1e15 an exponent is shorter.
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def packed(values: Array) -> dict[str, Any]:
    """Return a matrix (n, m) as 16-bit integers in base64 and one scale per column: ``value = integer * scale``.

    The error is at most half a scale: 1.5e-5 of the largest absolute value of the column.
    """
    # initial=0: a page may show no rows at all. A column of zeros has the scale 0 and needs no division.
    scales = np.abs(values).max(axis=0, initial=0) / _INT16_MAX
    integers = np.round(values / np.where(scales > 0, scales, 1)).astype("<i2")
    # Seven digits, since an error in the scale is an error in every number of the column.
    return {"scales": rounded(scales, 7), "data": base64.b64encode(integers.tobytes()).decode("ascii")}


def as_json(content: Any) -> str:
    """Return JSON in plain ASCII that is safe inside a script element, whatever its strings contain."""
    # allow_nan=False: NaN is no JSON, and the browser would reject the page; better to fail here.
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return text
