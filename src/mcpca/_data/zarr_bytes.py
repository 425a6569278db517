"""Arrays of Zarr in a folder of this machine, whose chunks are read and decoded by threads.

Zarr passes each chunk through a queue of tasks, which takes as long as decoding it if chunks are small (1.2 to 2.6
times what is needed here, the more the smaller and the less compressed chunks are). ``disk`` reads arrays through
``direct_zarr``, which leaves other stores, shards and codecs that ``chunk_codecs`` does not know to Zarr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from .chunk_codecs import Undo, zarr_steps
from .compressed_chunks import ChunkedRows, Stored
from .file_faults import ChangedFile


class ZarrChunks(ChunkedRows):
    """An array of Zarr whose chunks are files in ``folder``; for the rest it looks like ``array``.

    The size and time of each chunk's file are noted when it is first read, and compared later. Memory: 16 bytes a chunk.
    """

    def __init__(self, array: Any, folder: str, steps: Sequence[Undo]) -> None:
        super().__init__(array)
        self.store = array.store
        self._folder = folder
        self._steps = steps
        self._key = array.metadata.encode_chunk_key
        self._seen = np.full((*self._grid, 2), -1, dtype=np.int64)

    def _opened(self) -> None:
        return None

    def _stored(self, opened: None, chunk: tuple[int, ...]) -> Stored | None:
        path = os.path.join(self._folder, self._key(chunk))
        try:
            with open(path, "rb", buffering=0) as file:
                status = os.fstat(file.fileno())
                content = file.read()
        except FileNotFoundError:
            self._compare(path, chunk, (0, 0))
            return None
        self._compare(path, chunk, (status.st_size, status.st_mtime_ns))
        return Stored(content, self._steps)

    def _compare(self, path: str, chunk: tuple[int, ...], now: tuple[int, int]) -> None:
        seen = self._seen[chunk]
        if seen[0] < 0:
            seen[:] = now
        elif tuple(seen.tolist()) != now:
            raise ChangedFile(path, "the file of a chunk was " + ("written to" if now != (0, 0) else "deleted"))


def direct_zarr(array: Any) -> Any:
    """Return an array of Zarr as ``ZarrChunks`` if its chunks are local files that can be decoded here, else itself."""
    metadata = getattr(array, "metadata", None)
    root = getattr(getattr(array, "store", None), "root", None)
    # Of the stores of Zarr only that of local folders has a path as its root; it is not imported to ask for its name.
    if not isinstance(root, os.PathLike) or not hasattr(metadata, "encode_chunk_key"):
        return array
    dtype = np.dtype(array.dtype)
    if dtype.kind not in "iuf" or not dtype.isnative or len(array.shape) not in (1, 2) or getattr(array, "shards", None):
        return array
    codecs = _codecs(metadata.to_dict())
    steps = None if codecs is None else zarr_steps(codecs)
    folder = os.path.join(os.path.abspath(root), array.store_path.path)
    return array if steps is None else ZarrChunks(array, folder, steps)


def _codecs(metadata: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return the codecs between bytes of an array in C order and those of its chunks; None if there are others."""
    if metadata["zarr_format"] == 2:
        if metadata.get("filters") or metadata["order"] != "C":
            return None
        return [dict(metadata["compressor"])] if metadata["compressor"] else []
    codecs = [dict(codec) for codec in metadata["codecs"]]
    # The first is the one that turns numbers into bytes; a transposition or shards would stand in its place.
    first = codecs[0] if codecs else {}
    endian = first.get("configuration", {}).get("endian", sys.byteorder)
    known = first.get("name") == "bytes" and str(getattr(endian, "value", endian)) == sys.byteorder
    regular = metadata["chunk_grid"]["name"] == "regular" and not metadata.get("storage_transformers")
    return codecs[1:] if known and regular else None
