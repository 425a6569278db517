"""Rows that stay in their .h5ad files: chosen by what is known of cells, read in blocks, and put on pooled axes.

Only ``obs`` and ``var`` are read at once. Memory is that of the covariance of all genes, 8 p^2 bytes (0.5 GiB for
Replogle's 8,248 genes, 2.4 GiB for LuCA's 17,811), of a block of 128 MiB a few times over, and of the result (n, axes).
Measured on generated files: 1.1 GiB for 200,000 cells by 8,000 genes, dense, and 100 axes; 3.1 GiB for LuCA's width.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray
from scipy.linalg.blas import dsyr, dsyrk
from sklearn.decomposition import PCA

from mcpca._data.anndata_rows import counts_in
from mcpca._data.sources import as_source
from mcpca._utils.optional import require

Array = NDArray[Any]
BLOCK = 2**27  # bytes of a block of rows as float64


@dataclass(frozen=True)
class Part:
    """Rows of one file.

    Attributes
    ----------
    path : path
    rows : ndarray (n,) of int
        Numbers of the rows, ascending.
    columns : ndarray (p,) of int
        Numbers of the genes.
    scale : float or None
        Counts are divided by their sum over all genes of the file, multiplied by this, and log(1 + x) is taken; None
        where they are normalised already.
    pooled : ndarray (m,) of int, or None
        Rows that pooled axes are computed from, where these are not ``rows``.
    """

    path: Path
    rows: Array
    columns: Array
    scale: float | None = None
    pooled: Array | None = None

    def blocks(self, rows: Array) -> Iterator[Array]:
        """Yield these rows as dense blocks of float64, normalised."""
        with opened(self.path) as file:
            source = matrix_of(file, self.path)
            step = max(BLOCK // (8 * source.shape[1]), 1)
            for first in range(0, len(rows), step):
                yield self._block(source.gather(rows[first : first + step]))

    def _block(self, block: Any) -> Array:
        factors = None
        if self.scale is not None:
            sizes = np.asarray(block.sum(axis=1, dtype=np.float64)).ravel()
            factors = self.scale / np.where(sizes > 0, sizes, 1)
        block = block[:, self.columns] if len(self.columns) < block.shape[1] else block
        X = np.asarray(block.toarray() if scipy.sparse.issparse(block) else block, dtype=np.float64)
        if factors is not None:
            X = np.multiply(X, factors[:, None], out=X)
            np.log1p(X, out=X)
        if not np.isfinite(X).all():
            raise ValueError(f"{self.path} has values that are NaN, infinite or below -1; pass the file as published.")
        return X


@dataclass(frozen=True)
class StoredRows:
    """Rows of a study as ``loaders.Rows`` has them, except that the values stay in their files.

    ``y``, ``about`` and the rows of ``parts``, one part after the other, are in the same order. ``coding`` says of each
    feature whether it is a gene of a protein, where the file tells.
    """

    parts: tuple[Part, ...]
    y: Array
    features: list[str]
    about: pd.DataFrame = field(default_factory=pd.DataFrame)
    source: str = ""
    coding: Array | None = None

    def take(self, rows: Array) -> StoredRows:
        """Return some of the rows, by a mask; those that axes are computed from stay the same."""
        cuts = np.cumsum([len(part.rows) for part in self.parts])[:-1]
        parts = tuple(
            replace(part, rows=part.rows[own], pooled=part.rows if part.pooled is None else part.pooled)
            for part, own in zip(self.parts, np.split(rows, cuts), strict=True)
        )
        about = self.about.loc[rows].reset_index(drop=True) if len(self.about) else self.about
        return replace(self, parts=parts, y=self.y[rows], about=about)

    def blocks(self, *, pooled: bool) -> Iterator[Array]:
        """Yield dense blocks of the rows, or of those that axes are computed from."""
        for part in self.parts:
            yield from part.blocks(part.pooled if pooled and part.pooled is not None else part.rows)


def stored_axes(rows: StoredRows, n_axes: int) -> tuple[Array, PCA]:
    """Return the rows on the principal axes of all pooled rows, and the PCA, from two passes over the files.

    The first adds up the covariance of all genes, the second projects: rows are never together in memory. The axes are
    those of scikit-learn's PCA with a full decomposition, signs too. Time O(n p^2 + p^3), nearly all of it in BLAS.
    """
    p = len(rows.features)
    C = np.zeros((p, p), order="F")
    shift = np.zeros(p)
    total = np.zeros(p)
    n = 0
    for X in rows.blocks(pooled=True):
        # Around a mean of the first rows, sums of squares are about as large as what is left after centring.
        shift = X.mean(axis=0) if n == 0 else shift
        X -= shift
        total += X.sum(axis=0)
        n += len(X)
        C = dsyrk(1.0, X.T, beta=1.0, c=C, overwrite_c=1)
    if n < 2:
        raise ValueError(f"{n} rows of {rows.source} were chosen, and axes need 2 or more.")
    C = dsyr(-1.0 / n, total, a=C, overwrite_a=1)
    k = min(n_axes, p, n)
    whole = float(np.trace(C))
    values, V = scipy.linalg.eigh(C, lower=False, overwrite_a=True, subset_by_index=[p - k, p - 1], driver="evr")
    del C
    axes = np.ascontiguousarray(V[:, ::-1].T)
    axes *= np.sign(axes[np.arange(k), np.abs(axes).argmax(axis=1)])[:, None]
    pca = PCA(k)
    pca.mean_, pca.components_, pca.n_components_, pca.n_samples_ = shift + total / n, axes, k, n
    pca.explained_variance_ = np.maximum(values[::-1], 0) / (n - 1)
    pca.explained_variance_ratio_ = pca.explained_variance_ * (n - 1) / whole if whole > 0 else np.zeros(k)
    pca.n_features_in_, pca.feature_names_in_ = p, np.asarray(rows.features, dtype=object)
    Z = np.empty((len(rows.y), k))
    first = 0
    for X in rows.blocks(pooled=False):
        X -= pca.mean_
        np.matmul(X, axes.T, out=Z[first : first + len(X)])
        first += len(X)
    return Z, pca


@contextmanager
def opened(path: Path, option: str = "") -> Iterator[Any]:
    """Open an .h5ad file to read; errors name the option that it was given by."""
    h5py = require("h5py", "anndata")
    if not Path(path).is_file():
        raise FileNotFoundError(f"{option} {path} is missing; docs/studies says where to get it.")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise ValueError(f"{option} {path} is no .h5ad file ({error}); pass the file as it was downloaded.") from error
    with file:
        lost = [name for name in ("X", "obs", "var") if name not in file]
        if lost:
            raise ValueError(f"{option} {path} has no {', '.join(lost)}; pass an .h5ad file with X, obs and var.")
        yield file


def matrix_of(file: Any, path: Path) -> Any:
    """Return X of an open file, dense or sparse, as a source of rows."""
    io = require("anndata.io", "anndata")
    X = file["X"]
    return as_source(X if hasattr(X, "dtype") else io.sparse_dataset(X), f"X of {path}")


def read_frames(file: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return obs and var of an open file, the categories of older files too."""
    io = require("anndata.io", "anndata")
    with warnings.catch_warnings():
        # Replogle's files are of this older format, and nobody will write them anew.
        warnings.filterwarnings("ignore", message=".*was written without encoding metadata")
        return io.read_elem(file["obs"]), io.read_elem(file["var"])


def looks_like_counts(file: Any, path: Path) -> bool:
    """Whether the first rows are whole numbers, some large."""
    return counts_in(matrix_of(file, path)) is not None


def row_sums(path: Path) -> Array:
    """Return the sum of each row (n,), from a pass over the file."""
    with opened(path) as file:
        source = matrix_of(file, path)
        return np.concatenate(
            [np.asarray(block.sum(axis=1, dtype=np.float64)).ravel() for _, block in source.scan(BLOCK)]
        )
