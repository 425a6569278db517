"""What HDF5 and Zarr do to the bytes of a chunk, undone without Python's lock.

A chunk is written by a chain of steps: ``stored = f_m(... f_1(bytes))``. ``decode`` undoes them from the last to the
first, and the last one undone writes straight to where the bytes belong if its library can. Each step is a function
``undo(data, to)``: it returns the bytes before the step, either in ``to``, an array of the size of the chunk, or in
memory of its own. All of them release Python's lock while they work, so chunks are decoded by threads side by side.

gzip is undone by libdeflate (the package deflate), ISA-L (isal) or zlib-ng, whichever is found first, and by zlib
otherwise; zstd, blosc and LZ4 by numcodecs, LZF by imagecodecs. What cannot be undone here is left to the library that
opened the file: ``hdf5_steps`` and ``zarr_steps`` then return None.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from .._utils.types import Array

Undo = Callable[[Any, Array], Any]

# Libraries that undo gzip, the fastest first: as measured on chunks of indices and values of sparse matrices.
_INFLATERS = ("deflate", "isal.isal_zlib", "zlib_ng.zlib_ng")
_GZIP_WINDOW = 31  # wbits of zlib for the header of a gzip file; 15 is that of plain zlib
_ZLIB_WINDOW = 15
# Elements that are unshuffled at a time: small enough to stay in a core's cache while their bytes are collected.
_UNSHUFFLED = 2**16
# Words that are summed at a time for a Fletcher checksum; the temporary arrays take eight bytes for each.
_SUMMED = 2**16
_FLETCHER = 65535  # the modulus of both sums


def decode(stored: Any, steps: Sequence[Undo], to: Array) -> None:
    """Undo ``steps``, the last one first, and put the bytes of the chunk into ``to``, uint8 (size,)."""
    data = stored
    for number in reversed(range(len(steps))):
        # Only the step that is undone last writes to the result. Unused memory is never mapped, so it costs nothing.
        data = steps[number](data, to if number == 0 else np.empty_like(to))
    if data is to:
        return
    found = np.frombuffer(data, dtype=np.uint8)
    if len(found) != len(to):
        raise ValueError(f"{len(found)} bytes came out where {len(to)} are needed")
    to[:] = found


def hdf5_steps(filters: Sequence[tuple[int, Sequence[int]]]) -> list[Undo] | None:
    """Return how to undo filters of HDF5, each (its number, its parameters); None if one of them cannot be."""
    return _all_or_none([_hdf5_step(number, values) for number, values in filters])


def zarr_steps(codecs: Sequence[dict[str, Any]]) -> list[Undo] | None:
    """Return how to undo codecs of Zarr, each as its metadata: {"name": ...} in version 3, {"id": ...} in version 2."""
    return _all_or_none([_zarr_step(str(codec.get("name", codec.get("id")))) for codec in codecs])


def _all_or_none(steps: list[Undo | None]) -> list[Undo] | None:
    found = [step for step in steps if step is not None]
    return found if len(found) == len(steps) else None


def _hdf5_step(number: int, values: Sequence[int]) -> Undo | None:
    # The first three are HDF5's own, the others are registered with The HDF Group.
    if number == 1:
        return _inflater(_ZLIB_WINDOW)
    if number == 2:
        return _unshuffler(int(values[0])) if len(values) else None
    if number == 3:
        return _without_fletcher32
    if number == 32000:
        return _lzf()
    names = {32001: "Blosc", 32015: "Zstd"}
    return _of_numcodecs(names[number]) if number in names else None


def _zarr_step(name: str) -> Undo | None:
    if name in ("gzip", "zlib"):
        return _inflater(_GZIP_WINDOW if name == "gzip" else _ZLIB_WINDOW)
    names = {"zstd": "Zstd", "blosc": "Blosc", "lz4": "LZ4"}
    return _of_numcodecs(names[name]) if name in names else None


@cache
def _inflater(window: int) -> Undo:
    """Return what undoes gzip or zlib, by the fastest library that is installed."""
    for name in _INFLATERS:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        if name != "deflate":
            return _inflating(module.decompress, window)
        whole: Callable[[Any, int], Any] = module.gzip_decompress if window == _GZIP_WINDOW else module.zlib_decompress
        return lambda data, to: whole(data, len(to))
    return _inflating(zlib.decompress, window)


def _inflating(decompress: Callable[..., Any], window: int) -> Undo:
    return lambda data, to: decompress(data, wbits=window, bufsize=len(to))


def _of_numcodecs(name: str) -> Undo | None:
    try:
        codec = getattr(importlib.import_module("numcodecs"), name)()
    except (ImportError, AttributeError):
        return None

    size_of = _SIZES[name]

    def undo(data: Any, to: Array) -> Any:
        # numcodecs refuses a destination that is too small; a larger one it would fill in part and say nothing.
        stored = np.frombuffer(data, dtype=np.uint8)
        size = size_of(stored[:_LONGEST_HEADER].tobytes())
        if size is None:
            return codec.decode(data)
        if size != len(to):
            raise ValueError(f"{size} bytes came out where {len(to)} are needed")
        codec.decode(data, to)
        return to

    return undo


def _zstd_size(header: bytes) -> int | None:
    """Return the size of the content of a Zstandard frame, None if its header does not say (RFC 8878, 3.1.1.1)."""
    if len(header) < 5:
        return None
    flags = header[4]
    one_segment = flags >> 5 & 1
    first = 5 + (1 - one_segment) + (0, 1, 2, 4)[flags & 3]
    length = (one_segment, 2, 4, 8)[flags >> 6]
    if not length:
        return None
    size = int.from_bytes(header[first : first + length], "little")
    return size + 256 if length == 2 else size


# The number of bytes before compression, by what the compressed bytes begin with.
_SIZES: dict[str, Callable[[bytes], int | None]] = {
    "Blosc": lambda header: int.from_bytes(header[4:8], "little"),
    "LZ4": lambda header: int.from_bytes(header[:4], "little"),  # as numcodecs writes it
    "Zstd": _zstd_size,
}
_LONGEST_HEADER = 18  # that of Zstandard


def _lzf() -> Undo | None:
    try:
        imagecodecs = importlib.import_module("imagecodecs")
    except ImportError:
        return None
    # It can be built without some of its codecs.
    if not imagecodecs.LZF.available:
        return None

    def undo(data: Any, to: Array) -> Any:
        found: Array = np.asarray(imagecodecs.lzf_decode(data, out=to))
        return to if found.nbytes == len(to) else found.copy()

    return undo


def _unshuffler(width: int) -> Undo:
    """Return what undoes a shuffle: byte j of every element stands in the j-th of ``width`` equal parts."""

    def undo(data: Any, to: Array) -> Any:
        shuffled = np.frombuffer(data, dtype=np.uint8)
        if len(shuffled) != len(to):
            raise ValueError(f"{len(shuffled)} shuffled bytes came out where {len(to)} are needed")
        n = len(to) // width
        # (width, n) and its transpose (n, width). Copied a byte of each element at a time: NumPy is faster with one
        # long stride than with the transpose as a whole.
        parts, elements = shuffled[: n * width].reshape(width, n), to[: n * width].reshape(n, width)
        for first in range(0, n, _UNSHUFFLED):
            for j in range(width):
                elements[first : first + _UNSHUFFLED, j] = parts[j, first : first + _UNSHUFFLED]
        to[n * width :] = shuffled[n * width :]  # bytes that make no whole element are left where they are
        return to

    return undo if width > 1 else lambda data, to: data


def _without_fletcher32(data: Any, to: Array) -> Any:
    """Return the bytes before a Fletcher checksum of four bytes, once they have been compared with it."""
    stored = np.frombuffer(data, dtype=np.uint8)
    if len(stored) < 4:
        raise ValueError("the checksum is missing")
    content, checksum = stored[:-4], stored[-4:]
    first, second = (int(value) for value in checksum.view("<u2"))  # HDF5 keeps the 32-bit number little-endian
    # Zero and the modulus stand for the same remainder, and HDF5 writes either.
    found = fletcher32(content)
    if found != (first % _FLETCHER, second % _FLETCHER):
        raise ValueError("the bytes do not have the checksum that is stored with them")
    return content


def fletcher32(content: Array) -> tuple[int, int]:
    """Return both sums of Fletcher's checksum of uint8 (n,), mod 65535.

    With words w_0, ..., w_{m-1} of two bytes, high byte first, they are ``sum_i w_i`` and ``sum_i (m - i) w_i``.
    """
    if len(content) % 2:
        content = np.append(content, np.uint8(0))
    words = content.view(">u2")
    plain = weighted = 0
    m = len(words)
    for first in range(0, m, _SUMMED):
        block = words[first : first + _SUMMED].astype(np.uint64)
        # Products are below 2^32 with weights as remainders, so their sum is below 2^48.
        weights = np.arange(m - first, m - first - len(block), -1, dtype=np.uint64) % np.uint64(_FLETCHER)
        plain += int(block.sum())
        weighted += int((block * weights).sum())
    return plain % _FLETCHER, weighted % _FLETCHER
