"""What may name a context: text, numbers, bytes, dates, times, spans of them and tuples of these; and these as JSON.

What a model is fitted to it can save: labels of any other kind are refused where they are read. Dates of NumPy and
pandas become Python's where these are exact, so that one date is one context, whoever wrote it.
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
_MICROSECONDS = {"M": "M8[us]", "m": "m8[us]"}


def plain_label(label: Any, where: str = "y") -> Any:
    """Return a label as a value of Python, or of pandas where Python has no such value; raise for other kinds.

    The same for labels that mean the same: a day of NumPy and of Python, a moment of pandas and of Python.
    """
    if isinstance(label, _PLAIN):
        return label.item() if isinstance(label, np.generic) else label
    if isinstance(label, tuple):
        return tuple(plain_label(part, where) for part in label)
    if isinstance(label, (np.datetime64, np.timedelta64)):
        return plain_labels(np.array([label]))[0]
    if isinstance(label, np.generic) and label.dtype.kind in "biuf":
        return label.item()
    name = type(label).__name__
    if name in ("Timestamp", "Timedelta") and hasattr(label, "nanoseconds" if name == "Timedelta" else "nanosecond"):
        beyond = label.nanoseconds if name == "Timedelta" else label.nanosecond
        if not beyond:
            return label.to_pytimedelta() if name == "Timedelta" else label.to_pydatetime()
        if getattr(label, "tzinfo", None) is None:
            return label.to_numpy()
    elif _writer(label) is not None:
        return label
    raise TypeError(
        f"{where} has the label {_short(label)}, a {name}, by which no context can be called; pass text, whole "
        "numbers, dates, bytes or tuples of these: [str(label) for label in y], say."
    )


def plain_labels(labels: Array) -> Array:
    """Return labels (n,) of which ``tolist`` gives plain ones: itself, or objects; what is missing stays so."""
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
    if kind == "M" and unit in ("Y", "M", "W", "D"):
        values = labels.astype("M8[D]").tolist()
    # Beyond the years of Python's dates NumPy gives integers, and nanoseconds are cut off.
    exact = (small == labels) & [not isinstance(value, int) for value in values]
    out = np.empty(len(labels), dtype=object)
    out[:] = [value if fine else label for value, fine, label in zip(values, exact, labels, strict=True)]
    return out


def sort_key(label: Any) -> Any:
    """Return what plain labels are sorted by: type first, since mixed ones cannot be compared, then value."""
    if isinstance(label, tuple):
        return "tuple", tuple(sort_key(part) for part in label)
    if isinstance(label, datetime.datetime) and label.tzinfo is not None:
        return "datetime with a zone", label
    if isinstance(label, datetime.datetime):
        return "datetime64", np.datetime64(label)  # beside which those that Python has no value for may stand
    if isinstance(label, datetime.timedelta):
        return "timedelta64", np.timedelta64(label)
    return type(label).__name__, label


# JSON


def labels_to_json(labels: Iterable[Any]) -> list[Any]:
    """Return labels as JSON: text and numbers as they are, all else as {kind: content}."""
    return [_to_json(plain_label(label, "The model")) for label in labels]


def labels_from_json(values: Sequence[Any]) -> list[Any]:
    """Return the labels that ``labels_to_json`` told of; raise ValueError for what it does not write."""
    return [_from_json(value) for value in values]


def _to_json(label: Any) -> Any:
    if isinstance(label, _PLAIN):
        return label
    kind, write = _writer(label) or (type(label).__name__, str)
    return {kind: write(label)}


def _from_json(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError(f"{_short(value)} is no name of a context or feature.")
    ((kind, content),) = value.items()
    if kind not in _READERS:
        raise ValueError(f"{_short(value)} is a name of unknown kind {kind!r}; there are {list(_READERS)}.")
    try:
        return _READERS[kind](content)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise ValueError(f"{_short(value)} is no {kind} ({error}).") from error


def _writer(label: Any) -> tuple[str, Callable[[Any], Any]] | None:
    """Return the kind of a label that is no text or number, and how it becomes JSON; None for what has no kind."""
    if isinstance(label, tuple):
        return "tuple", lambda own: [_to_json(part) for part in own]
    if isinstance(label, bytes):
        return "bytes", lambda own: base64.b64encode(own).decode()
    if isinstance(label, datetime.datetime):  # which is a date too
        return "datetime", lambda own: own.isoformat()
    if isinstance(label, (datetime.date, datetime.time)):
        return type(label).__name__, lambda own: own.isoformat()
    if isinstance(label, datetime.timedelta):
        return "timedelta", lambda own: [own.days, own.seconds, own.microseconds]
    if isinstance(label, (np.datetime64, np.timedelta64)):
        return type(label).__name__, lambda own: [int(own.astype(np.int64)), np.datetime_data(own.dtype)[0]]
    if type(label).__module__.startswith("pandas."):
        if type(label).__name__ == "Period":
            return "Period", lambda own: [own.ordinal, own.freqstr]
        if type(label).__name__ == "Interval":
            return "Interval", lambda own: [*labels_to_json([own.left, own.right]), own.closed]
    return None


_READERS: dict[str, Callable[[Any], Any]] = {
    "tuple": lambda own: tuple(labels_from_json(own)),
    "bytes": lambda own: base64.b64decode(own, validate=True),
    "datetime": datetime.datetime.fromisoformat,
    "date": datetime.date.fromisoformat,
    "time": datetime.time.fromisoformat,
    "timedelta": lambda own: datetime.timedelta(*own),
    "datetime64": lambda own: np.datetime64(*own),
    "timedelta64": lambda own: np.timedelta64(*own),
    "Period": lambda own: _pandas().Period(ordinal=own[0], freq=own[1]),
    "Interval": lambda own: _pandas().Interval(*map(_end, labels_from_json(own[:2])), closed=own[2]),
}


def _end(value: Any) -> Any:
    """Return an end of an Interval, which takes dates of pandas only."""
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
    """Names as JSON values, which ``label_kinds.labels_from_json`` reads."""
    return None if names is None else labels_to_json(names.tolist())


def checked_names(names: Any, what: str) -> list[Any]:
    """Return names that ``names_to_json`` wrote, or raise where they are no list of different names."""
    if not isinstance(names, list):
        raise ValueError(f"{what} is no list of names")
    twice = [name for name, n in Counter(map(repr, names)).items() if n > 1]
    if twice:
        raise ValueError(f"{what} has {twice[0][:40]} more than once")
    try:
        return labels_from_json(names)
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise ValueError(f"{what} has a name that cannot be read ({error})") from error
