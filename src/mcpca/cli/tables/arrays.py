"""Arrays of NumPy: .npy as a memory map, .npz by names and shapes of its arrays. What needs pickle is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ..._utils.npz import ArrayInfo, NpzArchive, NpzError, read_array_header
from ..._utils.types import Array
from ._errors import UnusableFileError, some
from .columns import matching
from .data import Budget, FilePart, Reading, columns_named
from .labels import Labels, labels_of_texts, same_label, stacked

_SPARSE = {"data", "indices", "indptr", "shape"}
_MATRICES = ("X", "x", "data", "matrix", "arr_0")
_TEXT = 64  # bytes of a text in Python, beside its characters


def read_npy(path: Path) -> Array:
    """Return the array of an .npy as a memory map."""
    try:
        with path.open("rb") as file:
            info, _ = read_array_header(file)
        _refuse_objects({path.name: info}, path)
        array: Array = np.load(path, mmap_mode="r" if info.nbytes else None, allow_pickle=False)
    except UnusableFileError:
        raise
    except (OSError, EOFError, ValueError, SyntaxError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise UnusableFileError(path, f"is an .npy cut short or damaged ({error}); copy it again.") from error
    return array


def read_npy_part(path: Path, reading: Reading, wanted: Sequence[str] | None) -> FilePart:
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
    return FilePart(str(path), X.shape[0], None, [X])


class Npz:
    """The arrays of an .npz by name; values are read when asked for, as many as there is room for in ``budget``."""

    def __init__(self, path: Path, budget: Budget) -> None:
        self.path, self.where, self._budget = path, str(path), budget
        try:
            with NpzArchive(path) as archive:
                self.arrays: dict[str, ArrayInfo] = {name: archive.info(name) for name in archive.names}
        except (NpzError, OSError) as error:
            raise UnusableFileError(path, f"is an .npz cut short or damaged ({error}); copy it again.") from error

    def load(self, name: str) -> Array:
        """Return one array."""
        _refuse_objects({name: self.arrays[name]}, self.path)
        self._take(self.arrays[name].nbytes, name)
        try:
            with NpzArchive(self.path) as archive:
                return archive.read(name, self.arrays[name].nbytes)
        except (NpzError, OSError) as error:
            raise UnusableFileError(self.path, f"is cut short or damaged ({error}); copy the file again.") from error

    def labels(self, name: str, na_values: Sequence[str]) -> Labels:
        """Return a 1-D array as labels."""
        return labels_of_texts(self._texts(name), na_values)

    def _texts(self, name: str) -> list[Any]:
        """Return the values of a 1-D array; room that only they take is given back."""
        info = self.arrays[name]
        room = _TEXT * info.shape[0]
        self._take(room, name)
        values: list[Any] = self.load(name).tolist()
        self._budget.give_back(room + info.nbytes)
        return values

    def _take(self, n: int, name: str) -> None:
        if not self._budget.take(n):
            raise UnusableFileError(
                self.path,
                f"its array {name!r} takes {n / 2**20:,.0f} MiB in memory, more than --max-memory leaves; raise "
                "--max-memory, or save the rows as .npy, which is read in parts.",
            )

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
            if self.arrays["shape"].shape != (2,) or self.arrays["shape"].dtype.kind not in "iu":
                raise UnusableFileError(self.where, "its sparse matrix does not hold together (its shape).")
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

    def read(self, reading: Reading, wanted: Sequence[str] | None) -> FilePart:
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
        labels = [self.labels(name, reading.na_values) for name in columns]
        rows = None if reading.index is None else [str(v) for v in self._texts(reading.index)]
        return FilePart(self.where, shape[0], names, [X], None, labels, rows, others)

    def _by_context(self, reading: Reading, wanted: Sequence[str] | None) -> FilePart:
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
        return FilePart(self.where, n, taken[0][1], [X for X, _, _ in taken], None, [labels], None, taken[0][2])

    def _sparse(self, shape: tuple[int, int]) -> Any:
        said = "format" in self.arrays and not self.arrays["format"].shape
        stored = self.load("format").item() if said else "csr"
        layout = stored.decode() if isinstance(stored, bytes) else str(stored)
        if layout not in ("csr", "csc"):
            raise UnusableFileError(self.where, f"holds a sparse matrix as {layout}; save it as csr.")
        kind = scipy.sparse.csr_array if layout == "csr" else scipy.sparse.csc_array
        try:
            X = kind((self.load("data"), self.load("indices"), self.load("indptr")), shape=shape)
            X.check_format()
        except (ValueError, TypeError, IndexError) as error:
            raise UnusableFileError(self.where, f"its sparse matrix does not hold together ({error}).") from error
        return scipy.sparse.csr_array(X)

    def _feature_names(self, shape: tuple[int, int]) -> list[str] | None:
        """Names from the one 1-D array of texts that is as long as there are columns."""
        if shape[0] == shape[1]:
            return None  # it could be of rows
        found = [name for name in self.vectors(shape[1]) if self.arrays[name].dtype.kind in "US"]
        names = [str(v) for v in self._texts(found[0])] if len(found) == 1 else None
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
