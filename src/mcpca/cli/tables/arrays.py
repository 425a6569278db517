"""NumPy files: .npy as a memory map, .npz by the names and shapes of its arrays. Pickles are refused.

Bytes are read by ``_utils.npz``, which trusts no file; here is what the arrays mean. An .npz holds one matrix of rows,
dense or sparse, with 1-D arrays beside it for contexts and names, or one 2-D array per context.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import scipy.sparse

from ..._utils.npz import ArrayInfo, NeedsPickleError, NpzArchive, NpzError, map_array
from ..._utils.types import Array
from ..._utils.wording import listed
from ._errors import UnusableFileError, UselessOptionError, quoted_names, reason
from .columns import choose_features
from .data import ANNOTATION_OPTIONS, Budget, FilePart, Reading, column_positions
from .labels import Labels, labels_of_texts, same_label, stacked

_SPARSE_PARTS = {"data", "indices", "indptr", "shape"}  # as scipy.sparse.save_npz calls them
_MATRIX_NAMES = ("X", "x", "data", "matrix", "arr_0")  # the matrix if there are several 2-D arrays; arr_0 is NumPy's
_TEXT_BYTES = 64  # of a str in Python, besides its characters


def read_npy(path: Path) -> Array:
    """Return the array of an .npy as a memory map."""
    try:
        # Mapped and not read, so that an .npy of any size costs no memory here and needs no budget.
        return map_array(path)
    except NeedsPickleError as error:
        raise _needs_pickle([path.name], path) from error
    except (NpzError, OSError) as error:
        raise UnusableFileError(path, f"is a truncated or damaged .npy ({reason(error)}); copy it again.") from error


def array_in_words(X: Any) -> str:
    """Return the size and the type of an array: "3 x 4 complex numbers"."""
    size = " x ".join(map(str, X.shape)) or "1"
    kinds = {"b": "truth values", "i": "whole numbers", "u": "whole numbers", "f": "numbers", "c": "complex numbers"}
    return f"{size} {kinds.get(X.dtype.kind, 'texts' if X.dtype.kind in 'US' else 'values that are no numbers')}"


def read_npy_part(path: Path, reading: Reading, wanted: Sequence[str] | None) -> FilePart:
    """Return the rows of an .npy; its columns have no names."""
    X = read_npy(path)
    if X.ndim != 2 or X.dtype.kind not in "biuf" or 0 in X.shape:
        raise UnusableFileError(
            path, f"holds {array_in_words(X)}; rows are a matrix of numbers, one row below the other."
        )
    if reading.transpose:
        X = X.T
    _check_unnamed_columns(X.shape[1], reading, wanted, str(path))
    for option, value in (
        ("--index", reading.index),
        ("--context", reading.context and reading.labels is None),
        (ANNOTATION_OPTIONS, reading.annotation_columns),
    ):
        if value:
            raise UselessOptionError(
                path, f"is an .npy, which has no columns for {option}; drop it. --labels FILE names contexts."
            )
    # A memory map counts as in memory: the system reads pages of it as they are needed.
    return FilePart(str(path), X.shape[0], None, [X])


class Npz:
    """An opened .npz: shapes and types are known, values are read when asked for, within ``budget``.

    Attributes
    ----------
    path, where : Path, str
    arrays : dict of str to ArrayInfo
    """

    def __init__(self, path: Path, budget: Budget) -> None:
        self.path = path
        self.where = str(path)
        self._budget = budget
        try:
            # Headers alone: names, shapes and types, without values.
            with NpzArchive(path) as archive:
                self.arrays: dict[str, ArrayInfo] = {name: archive.info(name) for name in archive.names}
        except (NpzError, OSError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> UnusableFileError:
        return UnusableFileError(self.path, f"is a truncated or damaged .npz ({reason(error)}); copy it again.")

    # Which arrays there are

    @property
    def is_sparse(self) -> bool:
        """Whether there is a sparse matrix, in the layout of ``scipy.sparse.save_npz``."""
        return self.arrays.keys() >= _SPARSE_PARTS

    def matrices(self) -> list[str]:
        """Names of 2-D arrays of numbers."""
        # Booleans, integers and floats; complex numbers and text are no rows.
        return [n for n, info in self.arrays.items() if len(info.shape) == 2 and info.dtype.kind in "biuf"]

    def matrix_name(self) -> str | None:
        """Name of the matrix of rows; None if the 2-D arrays are contexts."""
        matrices = self.matrices()
        if len(matrices) == 1:
            return matrices[0]
        return next((name for name in _MATRIX_NAMES if name in matrices), None)

    def vectors(self, n: int) -> list[str]:
        """Names of 1-D arrays of length n."""
        # In a small file the arrays of a sparse matrix can happen to have length n.
        parts_of_matrix = _SPARSE_PARTS | {"format"} if self.is_sparse else set()
        return [name for name, info in self.arrays.items() if info.shape == (n,) and name not in parts_of_matrix]

    def shape(self) -> tuple[int, int] | None:
        """Shape of the matrix of rows, sparse or dense; None if the 2-D arrays are contexts."""
        if self.is_sparse:
            # Any archive can have four arrays of these names: trust none of them before it is checked.
            if self.arrays["shape"].shape != (2,) or self.arrays["shape"].dtype.kind not in "iu":
                raise UnusableFileError(self.where, "its sparse matrix is not consistent (its shape).")
            rows, columns = self.load("shape").tolist()
            return rows, columns
        name = self.matrix_name()
        if name is None:
            return None
        rows, columns = self.arrays[name].shape
        return rows, columns

    # Values

    def load(self, name: str) -> Array:
        """Return one array."""
        info = self.arrays[name]
        if info.dtype.hasobject:
            raise _needs_pickle([name], self.path)
        # By the header, before anything is unpacked: a small zip may hold an array of many gigabytes.
        self._take(info.nbytes, name)
        try:
            with NpzArchive(self.path) as archive:
                # No more than the header said a moment ago, in case the file has been changed since.
                return archive.read(name, info.nbytes)
        except (NpzError, OSError) as error:
            raise self._damaged(error) from error

    def labels(self, name: str, na_values: Sequence[str]) -> Labels:
        """Return a 1-D array as labels."""
        return labels_of_texts(self._values(name), na_values)

    def _values(self, name: str) -> list[Any]:
        """Return the values of a 1-D array as Python objects, which are soon made into codes and free their room."""
        info = self.arrays[name]
        # Taken and given back: what counts is that the objects fit beside the rows for a moment.
        as_objects = _TEXT_BYTES * info.shape[0]
        self._take(as_objects, name)
        values: list[Any] = self.load(name).tolist()
        self._budget.give_back(as_objects + info.nbytes)
        return values

    def _take(self, n: int, name: str) -> None:
        if not self._budget.take(n):
            raise UnusableFileError(
                self.path,
                f"its array {name!r} takes {n / 2**20:,.0f} MiB in memory, more than --max-memory leaves; raise "
                "--max-memory, or save the rows as .npy, which is read in parts.",
            )

    # Rows

    def read(self, reading: Reading, wanted: Sequence[str] | None) -> FilePart:
        """Return the rows: of the matrix, with labels by ``reading.context``, or of one 2-D array per context."""
        objects = [name for name, info in self.arrays.items() if info.dtype.hasobject]
        if objects:
            raise _needs_pickle(objects, self.path)
        shape = self.shape()
        # A single array of another name than usual is a single context of that name.
        is_one_context = not self.is_sparse and len(self.arrays) == 1 and self.matrix_name() not in _MATRIX_NAMES
        if shape is None or is_one_context:
            return self._read_contexts(reading, wanted)
        # Contexts are 1-D arrays beside the matrix, or a file of their own; the matrix has no column for them.
        X: Any = self._sparse_matrix(shape) if self.is_sparse else self.load(str(self.matrix_name()))
        if reading.transpose:
            shape = shape[1], shape[0]
            X = scipy.sparse.csr_array(X.T) if self.is_sparse else X.T
        columns = [] if reading.labels is not None else list(reading.context)
        vectors = self.vectors(shape[0])
        column_positions(vectors, columns, self.where, f"1-D array of length {shape[0]:,} (--context)")
        annotations = reading.annotation_columns
        what = f"1-D array of length {shape[0]:,} ({ANNOTATION_OPTIONS})"
        column_positions(vectors, annotations, self.where, what)
        if reading.index is not None:
            column_positions(vectors, [reading.index], self.where, f"1-D array of length {shape[0]:,} (--index)")
        X, names, others = _select_features(X, self._feature_names(shape), reading, wanted, self.where)
        labels = [self.labels(name, reading.na_values) for name in columns]
        row_names = None if reading.index is None else [str(v) for v in self._values(reading.index)]
        said = {name: self.labels(name, reading.na_values) for name in annotations}
        return FilePart(self.where, shape[0], names, [X], None, labels, row_names, others, annotations=said)

    def _read_contexts(self, reading: Reading, wanted: Sequence[str] | None) -> FilePart:
        names = self.matrices()
        if not names:
            shapes = listed([f"{name} ({array_in_words(info)})" for name, info in self.arrays.items()])
            raise UnusableFileError(
                self.where, f"has no matrix of numbers, only {shapes}; save the rows as a matrix called X."
            )
        # From the headers, before any array is read.
        widths = {self.arrays[name].shape[0 if reading.transpose else 1] for name in names}
        if len(widths) > 1:
            raise UnusableFileError(
                self.where,
                f"has matrices of different widths ({listed(sorted(widths))} columns), which cannot be contexts; save "
                "those of one width, or one matrix called X with an array of contexts beside it.",
            )
        for option, value in (
            ("--context", reading.context),
            ("--index", reading.index),
            (ANNOTATION_OPTIONS, reading.annotation_columns),
        ):
            if value:
                raise UselessOptionError(
                    self.where,
                    f"has one array per context ({quoted_names(names)}), which takes no {option}; or name the one "
                    "matrix X.",
                )
        blocks = [self.load(name).T if reading.transpose else self.load(name) for name in names]
        # Labels in the order of the blocks, one context for each array.
        labels = stacked([same_label(name, len(block)) for name, block in zip(names, blocks, strict=True)])
        n = sum(map(len, blocks))
        columns = self._feature_names((n, widths.pop()))
        selected = [_select_features(block, columns, reading, wanted, self.where) for block in blocks]
        _, feature_names, others = selected[0]
        return FilePart(self.where, n, feature_names, [X for X, _, _ in selected], None, [labels], None, others)

    def _sparse_matrix(self, shape: tuple[int, int]) -> Any:
        # save_npz writes the layout as a 0-D array of bytes; an archive without it is taken to be CSR.
        is_named = "format" in self.arrays and not self.arrays["format"].shape
        stored = self.load("format").item() if is_named else "csr"
        layout = stored.decode() if isinstance(stored, bytes) else str(stored)
        if layout not in ("csr", "csc"):
            raise UnusableFileError(self.where, f"holds a sparse matrix as {layout}; save it as csr.")
        cls = scipy.sparse.csr_array if layout == "csr" else scipy.sparse.csc_array
        try:
            X = cls((self.load("data"), self.load("indices"), self.load("indptr")), shape=shape)
            X.check_format()  # indices beyond the shape would be read from foreign memory
        except (ValueError, TypeError, IndexError) as error:
            raise UnusableFileError(self.where, f"its sparse matrix is not consistent ({reason(error)}).") from error
        # CSR, since rows are taken out by blocks and by context.
        return scipy.sparse.csr_array(X)

    def _feature_names(self, shape: tuple[int, int]) -> list[str] | None:
        """Return names from the one 1-D array of text that is as long as there are columns."""
        if shape[0] == shape[1]:
            return None  # they could as well be names of rows
        candidates = [name for name in self.vectors(shape[1]) if self.arrays[name].dtype.kind in "US"]
        if len(candidates) != 1:
            return None
        names = [str(value) for value in self._values(candidates[0])]
        # Names that repeat would make --features ambiguous, and are no names of features.
        return names if len(set(names)) == len(names) else None


def _select_features(
    X: Any, names: list[str] | None, reading: Reading, wanted: Sequence[str] | None, where: str
) -> tuple[Any, list[str] | None, list[str]]:
    """Return the columns of a matrix in memory that are asked for, their names, and the names of the others."""
    if names is None:
        _check_unnamed_columns(X.shape[1], reading, wanted, where)
        return X, None, []
    features, others = choose_features(names, reading, wanted, where)
    if features == names:
        return X, names, []
    return X[:, column_positions(names, features, where, "features")], features, others


def _check_unnamed_columns(p: int, reading: Reading, wanted: Sequence[str] | None, where: str) -> None:
    """Raise if columns that have no names are asked for by name, or are not as many as are needed."""
    # Refused, since an option that is ignored reads like one that was obeyed.
    for option, value in (("--features", reading.features), ("--drop", reading.drop)):
        if value:
            raise UselessOptionError(where, f"has no names of columns, which {option} needs; drop the option.")
    if wanted is not None and len(wanted) != p:
        raise UnusableFileError(where, f"has {p} columns where {len(wanted)} features are needed.")


def _needs_pickle(names: Iterable[str], path: Path) -> UnusableFileError:
    return UnusableFileError(
        path,
        f"{quoted_names(names)} can only be read by pickle, which can run code: refused; save it as an array of text "
        "or of numbers, and not of objects.",
    )
