"""HDF5 files with chunks that are compressed by hand."""

import h5py
import numpy as np

GZIP, FLETCHER, LZF, BLOSC, ZSTD = 1, 3, 32000, 32001, 32015  # numbers of filters


def by_hand(path, name, values, length, code, encode):
    """Write chunks of a filter that h5py itself does not know, as its plug-in would."""
    with h5py.File(path, "a") as file:
        stored = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        stored.set_chunk((length,))
        stored.set_filter(code, h5py.h5z.FLAG_OPTIONAL, (3,))
        space = h5py.h5s.create_simple(values.shape)
        group = file.require_group(name).id if name else file.id
        kind = h5py.h5t.py_create(values.dtype)
        dataset = h5py.Dataset(h5py.h5d.create(group, b"data", kind, space, stored))
        for i in range(0, len(values), length):
            chunk = np.zeros(length, values.dtype)
            chunk[: len(values[i : i + length])] = values[i : i + length]
            dataset.id.write_direct_chunk((i,), bytes(encode(chunk.tobytes())))
