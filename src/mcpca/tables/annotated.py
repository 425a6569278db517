"""AnnData in HDF5 or Zarr: only what is asked for is read, and a matrix beyond memory stays on disk."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._check import Array
from .._optional import require
from ..sources import as_source
from ._errors import UnusableFileError, nearest, short, some
from .arrays import chosen_features, select_features
from .data import Budget, Part, Reading, columns_named
from .labels import MISSING, Labels, labels_of_texts

_SCAN = 2**26  # bytes of rows read at a time


class Annotated:
    """An AnnData on disk.

    Attributes
    ----------
    n_obs, n_vars : int
    obs : DataFrame
    var_names : list of str
    layers, obsm : list of str
    """

    def __init__(self, path: Path, format: str) -> None:
        self.path, self.where, self.format = path, str(path), format
        self._read_elem, self._sparse_dataset = _readers()
        self._file = self._open(path)
        groups = set(self._file.keys()) if hasattr(self._file, "keys") else set()
        if not {"obs", "var"} <= groups:
            raise UnusableFileError(path, f"is no AnnData: it lacks obs and var; it has {some(sorted(groups))}.")
        # Before version 0.7 of anndata tables had no mark of what they are; only its reader of whole files knows them.
        self._whole = None if "encoding-type" in self._file["obs"].attrs else self._read_whole()
        self.obs = self._element("obs") if self._whole is None else self._whole.obs
        var = self._element("var") if self._whole is None else self._whole.var
        self.var_names = [str(name) for name in var.index]
        self.n_obs, self.n_vars = len(self.obs), len(self.var_names)
        self.layers, self.obsm = (
            self._keys(name) if self._whole is None else sorted(getattr(self._whole, name))
            for name in ("layers", "obsm")
        )

    def _keys(self, name: str) -> list[str]:
        return sorted(self._file[name].keys()) if name in self._file else []

    def _read_whole(self) -> Any:
        try:
            with warnings.catch_warnings():  # that the format is old
                warnings.simplefilter("ignore")
                return require("anndata", "anndata").read_h5ad(self.path)
        except Exception as error:  # of h5py and anndata
            raise UnusableFileError(self.path, f"is an AnnData that cannot be read ({short(error, 160)}).") from error

    def _open(self, path: Path) -> Any:
        library = require("h5py" if self.format == "h5ad" else "zarr", "anndata")
        try:
            return library.File(str(path), "r") if self.format == "h5ad" else library.open(str(path), mode="r")
        except Exception as error:  # h5py and zarr have many
            raise UnusableFileError(
                path, f"is {self.format} cut short or damaged ({short(error, 160)}); copy it again."
            ) from error

    def _element(self, name: str) -> Any:
        try:
            return self._read_elem(self._file[name])
        except Exception as error:  # of h5py, zarr and anndata
            raise UnusableFileError(
                self.path, f"its {name} cannot be read ({short(error, 160)}); is the file whole?"
            ) from error

    def matrix(self, reading: Reading) -> tuple[Any, list[str] | None]:
        """Return the matrix on disk that is asked for, and the names of its columns."""
        if reading.layer is not None and reading.obsm is not None:
            raise UnusableFileError(self.where, "--layer and --obsm both name the matrix; pass one.")
        names: list[str] | None = self.var_names
        key = "X"
        if reading.layer is not None:
            self._check_key(reading.layer, self.layers, "layers", "--layer")
            key = f"layers/{reading.layer}"
        elif reading.obsm is not None:
            self._check_key(reading.obsm, self.obsm, "obsm", "--obsm")
            key, names = f"obsm/{reading.obsm}", None
        elif "X" not in self._file or str(self._file["X"].attrs.get("encoding-type")) == "null":
            have = f"layers {some(self.layers)}" if self.layers else "no layers either"
            raise UnusableFileError(self.where, f"has no matrix X; it has {have}.")
        if self._whole is not None:
            stored = self._whole.X if key == "X" else getattr(self._whole, key.split("/")[0])[key.split("/")[1]]
            return stored, names if names is not None else self._numbered(reading.obsm, stored)
        stored = self._file[key]
        encoding = str(stored.attrs.get("encoding-type", "array"))
        if encoding in ("csr_matrix", "csc_matrix"):
            return self._sparse_dataset(stored), names
        if encoding == "dataframe":
            frame = self._element(key)
            return frame.to_numpy(), [str(name) for name in frame.columns]
        if len(getattr(stored, "shape", ())) != 2:
            raise UnusableFileError(self.where, f"{key} is no matrix ({encoding}); pass --layer or --obsm.")
        return stored, names if names is not None else self._numbered(reading.obsm, stored)

    def _numbered(self, name: str | None, stored: Any) -> list[str]:
        return [f"{name}{j + 1}" for j in range(stored.shape[1])]

    def _check_key(self, name: str, names: list[str], what: str, option: str) -> None:
        if name not in names:
            raise UnusableFileError(
                self.where, f"{option} {name!r} is not among its {what}; {nearest(name, names)}it has {some(names)}."
            )

    def labels(self, column: str) -> Labels:
        """Return a column of ``obs``; the order of categories is kept."""
        columns_named([str(c) for c in self.obs.columns], [column], self.where, "column of obs (--context)")
        values = self.obs[column]
        categories = getattr(getattr(values, "cat", None), "categories", None)
        if categories is None:
            return labels_of_texts(values.tolist())
        names = [str(c).strip() for c in categories]
        to = np.array([-1 if name in MISSING else i for i, name in enumerate(names)] + [-1], dtype=np.int32)
        return Labels(to[np.asarray(values.cat.codes)], names)

    def read(self, reading: Reading, wanted: Sequence[str] | None, budget: Budget) -> Part:
        """Return the rows: in memory where ``budget`` allows, sparse ones as CSR, else from disk."""
        stored, names = self.matrix(reading)
        labels = [self.labels(c) for c in reading.context] if reading.labels is None else []
        row_names = self._row_names(reading)
        if names is not None and len(set(names)) < len(names):
            raise UnusableFileError(
                self.where, "has names of features more than once; make them unique (adata.var_names_make_unique())."
            )
        try:
            source = as_source(stored, self.where)
            if source.shape[0] != self.n_obs:
                raise UnusableFileError(self.where, f"its matrix has {source.shape[0]} rows and obs {self.n_obs}.")
            if budget.take(source.nbytes):
                X = source.gather(slice(0, source.shape[0]))
                X, names, others = select_features(X, names, reading, wanted, self.where)
                return Part(self.where, self.n_obs, names, [X], None, labels, row_names, others)
        except UnusableFileError:
            raise
        except (OSError, ValueError, TypeError) as error:
            raise UnusableFileError(self.where, f"its matrix cannot be read ({short(error, 300)}).") from error
        if names is None:
            return Part(self.where, self.n_obs, None, None, source, labels, row_names)
        chosen = chosen_features(names, reading, wanted, self.where)
        if chosen == names:
            return Part(self.where, self.n_obs, names, None, source, labels, row_names)
        columns = columns_named(names, chosen, self.where, "features")
        kept = set(chosen)
        others = [name for name in names if name not in kept]
        return Part(self.where, self.n_obs, chosen, None, _Columns(source, columns), labels, row_names, others)

    def _row_names(self, reading: Reading) -> list[str]:
        if reading.index is None:
            return [str(name) for name in self.obs.index]
        columns_named([str(c) for c in self.obs.columns], [reading.index], self.where, "column of obs (--index)")
        return [str(name) for name in self.obs[reading.index]]


class _Columns:
    """Some columns of rows on disk, block by block."""

    def __init__(self, source: Any, columns: Array) -> None:
        self._source, self._columns = source, columns

    def __iter__(self) -> Iterator[Any]:
        for _, block in self._source.scan(_SCAN):
            yield block[:, self._columns]


def _readers() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return ``read_elem`` and ``sparse_dataset``, which moved to ``anndata.io`` in version 0.11."""
    require("anndata", "anndata")
    try:
        home = importlib.import_module("anndata.io")
        return home.read_elem, home.sparse_dataset
    except (ImportError, AttributeError):
        home = importlib.import_module("anndata.experimental")
        return home.read_elem, home.sparse_dataset
