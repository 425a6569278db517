"""Arrays of NumPy: .npy as a memory map, .npz by names and shapes of its arrays. What needs pickle is refused."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._check import Array
from ._errors import UnusableFileError, some
from .columns import matching
from .data import Part, Reading, columns_named
from .labels import labels_of_texts, same_label, stacked

_SPARSE = {"data", "indices", "indptr", "shape"}
_MATRICES = ("X", "x", "data", "matrix", "arr_0")
_DAMAGED = (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error)


class ArrayInfo(NamedTuple):
    """Shape and type of an array, without its values."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def read_npy(path: Path) -> Array:
    """Return the array of an .npy as a memory map."""
    try:
        with path.open("rb") as file:
            info = _header(file)
        _refuse_objects({path.name: info}, path)
        array: Array = np.load(path, mmap_mode="r" if np.prod(info.shape) else None, allow_pickle=False)
    except UnusableFileError:
        raise
    except _DAMAGED as error:
        raise UnusableFileError(path, f"is an .npy cut short or damaged ({error}); copy it again.") from error
    return array


def read_npy_part(path: Path, reading: Reading, wanted: Sequence[str] | None) -> Part:
    """Return the rows of an .npy; its columns have no names."""
    X = read_npy(path)
    _check_matrix(ArrayInfo(X.shape, X.dtype), str(path), "it")
    _no_columns(reading, str(path))
    for option, asked in (("--index", reading.index), ("--context", reading.context and reading.labels is None)):
        if asked:
            raise UnusableFileError(
                path, f"is an .npy, which has no columns for {option}; drop it. --labels FILE names contexts."
            )
    if wanted is not None and len(wanted) != X.shape[1]:
        raise UnusableFileError(path, f"has {X.shape[1]} columns where {len(wanted)} features are needed.")
    return Part(str(path), X.shape[0], None, [X])


class Npz:
    """The arrays of an .npz by name; values are read when asked for."""

    def __init__(self, path: Path) -> None:
        self.path, self.where = path, str(path)
        self.arrays: dict[str, ArrayInfo] = {}
        try:
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    with archive.open(name) as file:
                        self.arrays[name.removesuffix(".npy")] = _header(file)
        except _DAMAGED as error:
            raise UnusableFileError(path, f"is an .npz cut short or damaged ({error}); copy it again.") from error

    def load(self, name: str) -> Array:
        """Return one array."""
        _refuse_objects({name: self.arrays[name]}, self.path)
        try:
            with np.load(self.path, allow_pickle=False) as file:
                array: Array = file[name]
        except _DAMAGED as error:
            raise UnusableFileError(
                self.path, f"its array {name!r} is cut short or damaged ({error}); copy the file again."
            ) from error
        return array

    @property
    def is_sparse(self) -> bool:
        """Whether a sparse matrix is in it, in the layout of ``scipy.sparse.save_npz``."""
        return self.arrays.keys() >= _SPARSE

    def matrices(self) -> list[str]:
        """Names of 2-D arrays of numbers."""
        return [n for n, info in self.arrays.items() if len(info.shape) == 2 and info.dtype.kind in "biuf"]

    def vectors(self, n: int) -> list[str]:
        """Names of 1-D arrays of length n."""
        return [
            name
            for name, info in self.arrays.items()
            if info.shape == (n,) and not (self.is_sparse and name in _SPARSE | {"format"})
        ]

    def shape(self) -> tuple[int, int] | None:
        """Shape of the matrix where there is one to take, sparse or dense; None where there are several."""
        if self.is_sparse:
            rows, columns = self.load("shape").tolist()
            return rows, columns
        name = self.matrix_name()
        if name is None:
            return None
        rows, columns = self.arrays[name].shape
        return rows, columns

    def matrix_name(self) -> str | None:
        """Name of the one matrix; None where 2-D arrays are contexts."""
        matrices = self.matrices()
        if len(matrices) == 1:
            return matrices[0]
        return next((name for name in _MATRICES if name in matrices), None)

    def read(self, reading: Reading, wanted: Sequence[str] | None) -> Part:
        """Return the rows: of one matrix, with labels by ``reading.context``, or of one 2-D array per context."""
        _refuse_objects(self.arrays, self.path)
        shape = self.shape()
        if shape is None or (not self.is_sparse and len(self.arrays) == 1 and self.matrix_name() not in _MATRICES):
            return self._by_context(reading, wanted)
        X: Any = self._sparse(shape) if self.is_sparse else self.load(str(self.matrix_name()))
        columns = [] if reading.labels is not None else list(reading.context)
        vectors = self.vectors(shape[0])
        columns_named(vectors, columns, self.where, f"1-D array of length {shape[0]:,} (--context)")
        if reading.index is not None:
            columns_named(vectors, [reading.index], self.where, f"1-D array of length {shape[0]:,} (--index)")
        names = self._feature_names(shape)
        X, names, others = select_features(X, names, reading, wanted, self.where)
        labels = [labels_of_texts(self.load(name).tolist(), reading.na_values) for name in columns]
        rows = None if reading.index is None else [str(v) for v in self.load(reading.index).tolist()]
        return Part(self.where, shape[0], names, [X], None, labels, rows, others)

    def _by_context(self, reading: Reading, wanted: Sequence[str] | None) -> Part:
        names = self.matrices()
        if not names:
            shapes = ", ".join(f"{name} {info.shape}" for name, info in list(self.arrays.items())[:5])
            raise UnusableFileError(self.where, f"has no 2-D array of numbers, only {shapes}; save rows as X (n, p).")
        widths = {self.arrays[name].shape[1] for name in names}
        if len(widths) > 1:
            raise UnusableFileError(
                self.where, f"has 2-D arrays of different widths {sorted(widths)[:5]}, which cannot be contexts."
            )
        for option, asked in (("--context", reading.context), ("--index", reading.index)):
            if asked:
                raise UnusableFileError(
                    self.where,
                    f"has one array per context ({some(names)}), which takes no {option}; or name the one matrix X.",
                )
        blocks = [self.load(name) for name in names]
        labels = stacked([same_label(name, len(block)) for name, block in zip(names, blocks, strict=True)])
        n = sum(map(len, blocks))
        columns = self._feature_names((n, widths.pop()))
        taken = [select_features(block, columns, reading, wanted, self.where) for block in blocks]
        return Part(self.where, n, taken[0][1], [X for X, _, _ in taken], None, [labels], None, taken[0][2])

    def _sparse(self, shape: tuple[int, int]) -> Any:
        stored = self.load("format").item() if "format" in self.arrays else "csr"
        layout = stored.decode() if isinstance(stored, bytes) else str(stored)
        if layout not in ("csr", "csc"):
            raise UnusableFileError(self.where, f"holds a sparse matrix as {layout}; save it as csr.")
        kind = scipy.sparse.csr_array if layout == "csr" else scipy.sparse.csc_array
        try:
            X = kind((self.load("data"), self.load("indices"), self.load("indptr")), shape=shape)
            X.check_format()
        except ValueError as error:
            raise UnusableFileError(self.where, f"its sparse matrix does not hold together ({error}).") from error
        return scipy.sparse.csr_array(X)

    def _feature_names(self, shape: tuple[int, int]) -> list[str] | None:
        """Names from the one 1-D array of texts that is as long as there are columns."""
        if shape[0] == shape[1]:
            return None  # it could be of rows
        found = [name for name in self.vectors(shape[1]) if self.arrays[name].dtype.kind in "US"]
        names = [str(v) for v in self.load(found[0]).tolist()] if len(found) == 1 else None
        return names if names is not None and len(set(names)) == len(names) else None


def select_features(
    X: Any, names: list[str] | None, reading: Reading, wanted: Sequence[str] | None, where: str
) -> tuple[Any, list[str] | None, list[str]]:
    """Return the columns of a matrix in memory that are asked for, their names, and the names that were left."""
    if names is None:
        _no_columns(reading, where)
        if wanted is not None and len(wanted) != X.shape[1]:
            raise UnusableFileError(where, f"has {X.shape[1]} columns where {len(wanted)} features are needed.")
        return X, None, []
    chosen = chosen_features(names, reading, wanted, where)
    if chosen == names:
        return X, names, []
    kept = set(chosen)
    return X[:, columns_named(names, chosen, where, "features")], chosen, [name for name in names if name not in kept]


def chosen_features(names: list[str], reading: Reading, wanted: Sequence[str] | None, where: str) -> list[str]:
    """Return the features to take of a matrix whose columns are all numbers."""
    dropped = set(matching(reading.drop, names, "--drop", where))
    free = [name for name in names if name not in dropped]
    if wanted is not None:
        columns_named(free, wanted, where, "columns for the features")
        return list(wanted)
    taken = set(matching(reading.features, names, "--features", where)) if reading.features else set(free)
    chosen = [name for name in free if name in taken]
    if not chosen:
        raise UnusableFileError(where, f"has no feature left; it has {some(names)}.")
    return chosen


def _no_columns(reading: Reading, where: str) -> None:
    asked = [("--features", reading.features), ("--drop", reading.drop)]
    given = [option for option, value in asked if value]
    if given:
        raise UnusableFileError(where, f"has no names of columns, which {given[0]} needs; drop the option.")


def _check_matrix(info: ArrayInfo, where: str, what: str) -> None:
    if len(info.shape) != 2 or info.dtype.kind not in "biuf" or 0 in info.shape:
        raise UnusableFileError(
            where, f"{what} has shape {info.shape} and type {info.dtype}; rows are a 2-D array of real numbers."
        )


def _refuse_objects(arrays: dict[str, ArrayInfo], path: Path) -> None:
    needing = [name for name, info in arrays.items() if info.dtype.hasobject]
    if needing:
        raise UnusableFileError(
            path,
            f"{some(needing)} can only be read by pickle, which can run code: refused; save texts as "
            "array.astype(str), numbers as array.astype(float).",
        )


def _header(file: Any) -> ArrayInfo:
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version in read:
        shape, _, dtype = read[version](file)
    else:
        shape, _, dtype = np.lib.format._read_array_header(file, version)  # type: ignore[attr-defined]
    return ArrayInfo(shape, dtype)
