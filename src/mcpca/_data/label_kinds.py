"""Types that may name a context: text, numbers, bytes, dates, times, spans of time and tuples of these; also as JSON.

A fitted model can always be saved, so labels of any other type are refused when they are read (``labels``). Dates of
NumPy and pandas become Python's wherever these are exact, so that the same date is the same context whichever library
it comes from. Saved models use the JSON half (``_estimator.persistence``).
"""

from __future__ import annotations

import base64
import datetime
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .._utils.types import Array

_PLAIN = (str, bool, int, float)
# The resolution of Python's datetime and timedelta.
_MICROSECONDS = {"M": "M8[us]", "m": "m8[us]"}


def plain_label(label: Any, where: str = "y") -> Any:
    """Return a label as a value of Python, or of NumPy or pandas if Python has no such value; raise for other types.

    Labels that mean the same become equal: a day of NumPy and of Python, a moment of pandas and of Python.
    """
    if isinstance(label, _PLAIN):
        # np.str_ and np.float64 are subclasses of str and float, but would be shown and saved as NumPy's.
        return label.item() if isinstance(label, np.generic) else label
    if isinstance(label, tuple):
        return tuple(plain_label(part, where) for part in label)
    # By the function for arrays, so that a date becomes the same label alone and in an array.
    if isinstance(label, (np.datetime64, np.timedelta64)):
        return plain_labels(np.array([label]))[0]
    if isinstance(label, np.generic) and label.dtype.kind in "biuf":
        return label.item()
    name = type(label).__name__
    # By name and attribute, since pandas need not be installed. Before ``_writer``: a Timestamp is also a datetime, and
    # would pass as one with its nanoseconds.
    if name in ("Timestamp", "Timedelta") and hasattr(label, "nanoseconds" if name == "Timedelta" else "nanosecond"):
        # Python's types hold microseconds; a label with nanoseconds stays NumPy's, which has no time zones.
        nanoseconds = label.nanoseconds if name == "Timedelta" else label.nanosecond
        if not nanoseconds:
            return label.to_pytimedelta() if name == "Timedelta" else label.to_pydatetime()
        if getattr(label, "tzinfo", None) is None:
            return label.to_numpy()
    elif _writer(label) is not None:
        return label
    raise TypeError(
        f"{where} has the label {_short(label)}, a {name}, which cannot name a context; pass text, whole numbers, "
        "dates, bytes or tuples of these, e.g. [str(label) for label in y]."
    )


def plain_labels(labels: Array) -> Array:
    """Return labels (n,) such that ``tolist`` gives plain ones, as objects if need be; missing ones stay missing."""
    kind = labels.dtype.kind
    if kind == "c":
        raise ValueError(f"y has complex labels (dtype {labels.dtype}); pass text or whole numbers, one label per row.")
    if kind == "V":
        raise ValueError(
            f"y has labels of several fields (dtype {labels.dtype}); pass one of the fields, or tuples of them in an "
            "array of objects."
        )
    if kind == "S":
        return labels.astype(object)
    if kind not in "mM":
        return labels
    small = labels.astype(_MICROSECONDS[kind]) if labels.dtype != np.dtype(_MICROSECONDS[kind]) else labels
    values = small.tolist()
    unit = np.datetime_data(labels.dtype)[0]
    # Calendar units become ``date``, not ``datetime``: a day is not the moment of its midnight.
    if kind == "M" and unit in ("Y", "M", "W", "D"):
        values = labels.astype("M8[D]").tolist()
    # Dates beyond the years of Python come out as integers, and nanoseconds are cut off: these stay NumPy's.
    # So does NaT, which equals nothing, itself included; it is found missing later.
    exact = (small == labels) & [not isinstance(value, int) for value in values]
    out = np.empty(len(labels), dtype=object)
    out[:] = [value if is_exact else label for value, is_exact, label in zip(values, exact, labels, strict=True)]
    return out


def sort_key(label: Any) -> Any:
    """Return the key that sorts plain labels: by type first, since mixed ones cannot be compared, then by value."""
    if isinstance(label, tuple):
        return "tuple", tuple(sort_key(part) for part in label)
    # Python refuses to compare moments with a zone to those without.
    if isinstance(label, datetime.datetime) and label.tzinfo is not None:
        return "datetime with a zone", label
    if isinstance(label, datetime.datetime):
        return "datetime64", np.datetime64(label)  # comparable to those that stayed NumPy's
    if isinstance(label, datetime.timedelta):
        return "timedelta64", np.timedelta64(label)
    return type(label).__name__, label


# JSON


def labels_to_json(labels: Iterable[Any]) -> list[Any]:
    """Return labels as JSON: text and numbers as they are, anything else as {kind: content}."""
    return [_to_json(plain_label(label, "The model")) for label in labels]


def labels_from_json(values: Sequence[Any]) -> list[Any]:
    """Return the labels that ``labels_to_json`` wrote; raise ValueError for anything that it does not write."""
    return [_from_json(value) for value in values]


def _to_json(label: Any) -> Any:
    if isinstance(label, _PLAIN):
        return label
    kind, write = _writer(label) or (type(label).__name__, str)
    return {kind: write(label)}


def _from_json(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    # Files may come from anywhere: every shape that ``_to_json`` does not write is an error, and nothing is guessed.
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError(f"{_short(value)} is not a name of a context or feature.")
    ((kind, content),) = value.items()
    if kind not in _READERS:
        raise ValueError(f"{_short(value)} is a name of unknown kind {kind!r}; there are {list(_READERS)}.")
    try:
        return _READERS[kind](content)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise ValueError(f"{_short(value)} is not a valid {kind} ({error}).") from error


def _writer(label: Any) -> tuple[str, Callable[[Any], Any]] | None:
    """Return the kind of a label other than text and numbers, and the function that writes it; None if it has none."""
    if isinstance(label, tuple):
        return "tuple", lambda value: [_to_json(part) for part in value]
    if isinstance(label, bytes):
        return "bytes", lambda value: base64.b64encode(value).decode()
    if isinstance(label, datetime.datetime):  # before date, of which it is a subclass
        return "datetime", lambda value: value.isoformat()
    if isinstance(label, (datetime.date, datetime.time)):
        return type(label).__name__, lambda value: value.isoformat()
    if isinstance(label, datetime.timedelta):
        return "timedelta", lambda value: [value.days, value.seconds, value.microseconds]
    if isinstance(label, (np.datetime64, np.timedelta64)):
        return type(label).__name__, lambda value: [int(value.astype(np.int64)), np.datetime_data(value.dtype)[0]]
    if type(label).__module__.partition(".")[0] == "pandas":
        if type(label).__name__ == "Period":
            return "Period", lambda value: [value.ordinal, value.freqstr]
        if type(label).__name__ == "Interval":
            return "Interval", lambda value: [*labels_to_json([value.left, value.right]), value.closed]
    return None


# A table of fixed constructors, not names looked up in modules: a file cannot make anything else run.
_READERS: dict[str, Callable[[Any], Any]] = {
    "tuple": lambda content: tuple(labels_from_json(content)),
    "bytes": lambda content: base64.b64decode(content, validate=True),
    "datetime": datetime.datetime.fromisoformat,
    "date": datetime.date.fromisoformat,
    "time": datetime.time.fromisoformat,
    "timedelta": lambda content: datetime.timedelta(*content),
    "datetime64": lambda content: np.datetime64(*content),
    "timedelta64": lambda content: np.timedelta64(*content),
    "Period": lambda content: _pandas().Period(ordinal=content[0], freq=content[1]),
    "Interval": lambda content: _pandas().Interval(*map(_end, labels_from_json(content[:2])), closed=content[2]),
}


def _end(value: Any) -> Any:
    """Return an end of an Interval, which takes dates only as pandas' own."""
    if isinstance(value, (datetime.datetime, np.datetime64)):
        return _pandas().Timestamp(value)
    return _pandas().Timedelta(value) if isinstance(value, (datetime.timedelta, np.timedelta64)) else value


def _pandas() -> Any:
    from .._utils.optional import require

    return require("pandas", "analysis")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def names_to_json(names: Array | None) -> list[Any] | None:
    """Return names as JSON values, which ``labels_from_json`` reads; None stays None."""
    return None if names is None else labels_to_json(names.tolist())


def checked_names(names: Any, what: str) -> list[Any]:
    """Return names that ``names_to_json`` wrote; raise if they are not a list of distinct names."""
    if not isinstance(names, list):
        raise ValueError(f"{what} is not a list of names")
    # By their repr, because names that are dicts cannot be hashed.
    repeated = [name for name, n in Counter(map(repr, names)).items() if n > 1]
    if repeated:
        raise ValueError(f"{what} has {repeated[0][:40]} more than once")
    try:
        return labels_from_json(names)
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise ValueError(f"{what} has a name that cannot be read ({error})") from error
