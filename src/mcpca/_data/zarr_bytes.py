"""Arrays of Zarr in a folder of this machine, whose chunks are read and decoded by threads.

Zarr passes each chunk through a queue of tasks, which takes as long as decoding it if chunks are small (1.2 to 2.6
times what is needed here, the more the smaller and the less compressed chunks are). ``disk`` reads arrays through
``direct_zarr``, which leaves other stores, and codecs that ``chunk_codecs`` does not know, to Zarr. A chunk is a file,
or a part of one if chunks are stored together in shards.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._utils.types import Array
from .chunk_codecs import Undo, zarr_steps
from .compressed_chunks import ChunkedRows, Stored
from .file_faults import ChangedFile

_NOT_STORED = 2**64 - 1  # offset and size of a chunk that its shard does not have
_CHECKSUM_BYTES = 4


class _File(NamedTuple):
    """Size and time of a file when it was first read, and where chunks are in it if it is a shard, (chunks, 2)."""

    size: int
    modified: int
    places: Array | None


class Shards(NamedTuple):
    """Chunks of a shard along each axis, and whether the index of their places is at the end of its file."""

    chunks: tuple[int, ...]
    index_at_end: bool


class ZarrChunks(ChunkedRows):
    """An array of Zarr whose chunks are files in ``folder``, or parts of them; for the rest it looks like ``array``.

    The size and time of each file are noted when it is first read, and compared later. Memory: about 200 bytes a file,
    and 16 for each chunk of a shard.
    """

    def __init__(self, array: Any, folder: str, steps: Sequence[Undo], shards: Shards | None = None) -> None:
        super().__init__(array)
        self.store = array.store
        self._folder = folder
        self._steps = steps
        self._shards = shards
        self._key = array.metadata.encode_chunk_key
        self._files: dict[tuple[int, ...], _File] = {}

    def _opened(self) -> None:
        return None

    def _stored(self, opened: None, chunk: tuple[int, ...]) -> Stored | None:
        shard = chunk
        if self._shards is not None:
            shard = tuple(i // n for i, n in zip(chunk, self._shards.chunks, strict=True))
        path = os.path.join(self._folder, self._key(shard))
        try:
            with open(path, "rb") as file:
                noted = self._noted(shard, path, file)
                content = file.read() if noted.places is None else self._part(file, noted, chunk)
        except FileNotFoundError as error:
            if self._files.setdefault(shard, _File(-1, -1, None)).size >= 0:
                raise ChangedFile(path, "the file of a chunk was deleted") from error
            return None
        return None if content is None else Stored(content, self._steps)

    def _noted(self, shard: tuple[int, ...], path: str, file: Any) -> _File:
        """Return what is known of an open file; raise if it is no longer what it was."""
        status = os.fstat(file.fileno())
        noted = self._files.get(shard)
        if noted is None:
            places = None if self._shards is None else _places(file, status.st_size, self._shards)
            noted = self._files[shard] = _File(status.st_size, status.st_mtime_ns, places)
        if (noted.size, noted.modified) != (status.st_size, status.st_mtime_ns):
            raise ChangedFile(path, "the file of a chunk was written to")
        return noted

    def _part(self, file: Any, noted: _File, chunk: tuple[int, ...]) -> bytes | None:
        """Return the bytes of a chunk in the file of its shard; None if it is not there."""
        assert self._shards is not None
        assert noted.places is not None
        inside = tuple(i % n for i, n in zip(chunk, self._shards.chunks, strict=True))
        offset, size = (int(n) for n in noted.places[np.ravel_multi_index(inside, self._shards.chunks)])
        if offset == size == _NOT_STORED:
            return None
        if offset + size > noted.size:
            raise ValueError(f"its bytes would be {offset} to {offset + size - 1} of a shard that has {noted.size}")
        file.seek(offset)
        content: bytes = file.read(size)
        return content


def _places(file: Any, size: int, shards: Shards) -> Array:
    """Read the index of a shard: offset and size of each chunk in C order, and their checksum."""
    n = math.prod(shards.chunks)
    length = 16 * n + _CHECKSUM_BYTES
    if size < length:
        raise ValueError(f"a shard of {n} chunks has only {size} bytes")
    file.seek(size - length if shards.index_at_end else 0)
    index: bytes = file.read(length)
    if _crc32c(index[:-_CHECKSUM_BYTES]) != int.from_bytes(index[-_CHECKSUM_BYTES:], "little"):
        raise ValueError("the index of its shard does not have the checksum that is stored with it")
    return np.frombuffer(index[:-_CHECKSUM_BYTES], dtype="<u8").reshape(n, 2)


def _crc32c(content: bytes) -> int:
    """Return the checksum by the library that Zarr itself needs: google-crc32c since 3.1.5, crc32c before."""
    try:
        return int(importlib.import_module("google_crc32c").value(content))
    except ModuleNotFoundError:
        return int(importlib.import_module("crc32c").crc32c(content))


def direct_zarr(array: Any) -> Any:
    """Return an array of Zarr as ``ZarrChunks`` if its chunks are local files that can be decoded here, else itself."""
    metadata: Any = getattr(array, "metadata", None)
    root = getattr(getattr(array, "store", None), "root", None)
    # Of the stores of Zarr only that of local folders has a path as its root; it is not imported to ask for its name.
    if not isinstance(root, os.PathLike) or not hasattr(metadata, "encode_chunk_key"):
        return array
    dtype = np.dtype(array.dtype)
    if dtype.kind not in "iuf" or not dtype.isnative or len(array.shape) not in (1, 2):
        return array
    layout = _layout(metadata.to_dict())
    steps = None if layout is None else zarr_steps(layout.codecs)
    if layout is None or steps is None:
        return array
    folder = os.path.join(os.path.abspath(root), array.store_path.path)
    return ZarrChunks(array, folder, steps, layout.shards)


class _Layout(NamedTuple):
    """The codecs between bytes of numbers in C order and those of a chunk, and how chunks are put into shards."""

    codecs: list[dict[str, Any]]
    shards: Shards | None


def _layout(metadata: dict[str, Any]) -> _Layout | None:
    """Return how chunks are stored, by the metadata of their array; None if it is in another way."""
    if metadata["zarr_format"] == 2:
        if metadata.get("filters") or metadata["order"] != "C":
            return None
        return _Layout([dict(metadata["compressor"])] if metadata["compressor"] else [], None)
    if metadata["chunk_grid"]["name"] != "regular" or metadata.get("storage_transformers"):
        return None
    codecs = list(metadata["codecs"])
    shards = None
    if len(codecs) == 1 and codecs[0]["name"] == "sharding_indexed":
        inside = codecs[0]["configuration"]
        # The index as it is by default: numbers of eight bytes, and their checksum.
        if [codec["name"] for codec in inside["index_codecs"]] != ["bytes", "crc32c"] or not _is_native(
            inside["index_codecs"][0]
        ):
            return None
        shape = metadata["chunk_grid"]["configuration"]["chunk_shape"]
        per_shard = tuple(int(s) // int(c) for s, c in zip(shape, inside["chunk_shape"], strict=True))
        shards = Shards(per_shard, str(getattr(inside["index_location"], "value", inside["index_location"])) == "end")
        codecs = list(inside["codecs"])
    # The first is the one that turns numbers into bytes; a transposition would stand before it.
    return _Layout([dict(codec) for codec in codecs[1:]], shards) if codecs and _is_native(codecs[0]) else None


def _is_native(codec: dict[str, Any]) -> bool:
    """Whether a codec leaves numbers in the order of bytes that this machine has."""
    endian = codec.get("configuration", {}).get("endian", sys.byteorder)  # bytes by themselves have no order
    return codec["name"] == "bytes" and str(getattr(endian, "value", endian)) == sys.byteorder
