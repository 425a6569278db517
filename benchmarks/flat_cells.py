"""Counts of cells with a flat scree behind their programmes, in memory and in files of AnnData's layout.

``counts.py`` and ``device.py --sparse`` measure on these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

BLOCK = 2000  # rows drawn at a time


@dataclass(frozen=True)
class FlatCells:
    """Raw counts of cells: gamma rates of genes, programmes with activity by context, log-normal library sizes.

    A cell of context i has ``w_j = 0.03 g_j a_ij`` of programme j beside 1 of the base line, with ``g`` standard
    exponential and ``a_ij`` exponential in two fifths of the contexts and 0 in the others. Its counts in all are
    Poisson distributed about ``median_total exp(0.3 z)``, with z standard normal. With 20,000 genes and a median total
    of 485 about 480 genes of a cell are not zero.
    """

    n_cells: int = 150_000
    n_genes: int = 20_000
    n_contexts: int = 300
    n_programmes: int = 30
    median_total: float = 485
    seed: int = 0

    @cached_property
    def _rates(self) -> tuple[np.ndarray, np.ndarray]:
        """Return cumulative rates of genes, the base line first and programmes below, and activity by context."""
        rng = np.random.default_rng(self.seed)
        rates = np.zeros((1 + self.n_programmes, self.n_genes))
        rates[0] = rng.gamma(0.5, 1, self.n_genes)
        size = self.n_genes // 50  # 400 of 20,000
        for programme in rates[1:]:
            programme[rng.choice(self.n_genes, size, replace=False)] = rng.gamma(1, 1, size)
        shape = self.n_contexts, self.n_programmes
        activity = rng.gamma(1, 1, shape) * (rng.random(shape) < 0.4)
        cumulative = np.cumsum(rates, axis=1)
        return cumulative / cumulative[:, -1:], activity

    def labels(self) -> np.ndarray:
        """Return the context of each cell (n,): in random order, as cells are in files."""
        return np.random.default_rng((self.seed, 1)).integers(self.n_contexts, size=self.n_cells)

    def blocks(self) -> Iterator[scipy.sparse.csr_array]:
        """Yield the counts in float32, some rows at a time."""
        y = self.labels()
        for start in range(0, self.n_cells, BLOCK):
            yield self._block(y[start : start + BLOCK], start)

    def matrix(self) -> scipy.sparse.csr_array:
        """Return all counts."""
        return _stacked(self.blocks())

    def _block(self, y: np.ndarray, number: int) -> scipy.sparse.csr_array:
        rng = np.random.default_rng((self.seed, 2, number))
        cumulative, activity = self._rates
        n = len(y)
        weights = np.hstack([np.ones((n, 1)), 0.03 * rng.gamma(1, 1, (n, self.n_programmes)) * activity[y]])
        totals = rng.poisson(self.median_total * np.exp(0.3 * rng.standard_normal(n)))
        parts = rng.multinomial(totals, weights / weights.sum(axis=1, keepdims=True))
        rows, genes = [], []
        for rates, counts in zip(cumulative, parts.T, strict=True):
            rows.append(np.repeat(np.arange(n, dtype=np.int32), counts))
            drawn = np.searchsorted(rates, rng.random(len(rows[-1])))
            genes.append(np.minimum(drawn, self.n_genes - 1).astype(np.int32))
        ones = np.ones(int(totals.sum()), dtype=np.float32)
        X = scipy.sparse.csr_array((ones, (np.concatenate(rows), np.concatenate(genes))), shape=(n, self.n_genes))
        X.sum_duplicates()
        return X


def log1p_of(X: scipy.sparse.csr_array, target: float | None = None) -> scipy.sparse.csr_array:
    """Return ``log(1 + T x / total)`` in float32, T being the median total: scanpy's normalize_total and log1p."""
    totals = np.asarray(X.sum(axis=1)).ravel()
    target = float(np.median(totals[totals > 0])) if target is None else target
    factors = target / np.where(totals > 0, totals, 1)
    data = np.log1p(X.data * np.repeat(factors, np.diff(X.indptr))).astype(np.float32)
    return scipy.sparse.csr_array((data, X.indices, X.indptr), shape=X.shape)


def _stacked(blocks: Iterator[Any]) -> scipy.sparse.csr_array:
    X = scipy.sparse.csr_array(scipy.sparse.vstack(list(blocks), format="csr"))
    if X.nnz < 2**31:
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X


def write_h5ad(path: Path, cells: FlatCells, blocks: Iterator[Any], genes: np.ndarray, compression: str | None) -> None:
    """Write rows in the layout of an AnnData file, under another name until it is whole: float32, indices int32."""
    import anndata
    import h5py
    import pandas as pd

    unfinished = path.with_suffix(".part")
    packed = {"compression": "gzip", "compression_opts": 4} if compression == "gzip" else {}
    with h5py.File(unfinished, "w") as file:
        group = file.create_group("X")
        shape = cells.n_cells, len(genes)
        group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": shape})
        sets = {
            name: group.create_dataset(name, (0,), kind, maxshape=(None,), chunks=(2**18,), **packed)
            for name, kind in (("data", "float32"), ("indices", "int32"))
        }
        ends = [np.zeros(1, dtype=np.int64)]
        for X in blocks:
            for name, values in (("data", X.data), ("indices", X.indices)):
                if len(values):
                    sets[name].resize((sets[name].shape[0] + len(values),))
                    sets[name][-len(values) :] = values
            ends.append(ends[-1][-1] + X.indptr[1:].astype(np.int64))
        group.create_dataset("indptr", data=np.concatenate(ends))
        names = pd.Categorical.from_codes(cells.labels(), [f"context {i:04d}" for i in range(cells.n_contexts)])
        anndata.io.write_elem(file, "obs", pd.DataFrame({"context": names}, index=np.arange(shape[0]).astype(str)))
        anndata.io.write_elem(file, "var", pd.DataFrame(index=[f"gene {i}" for i in genes]))
        for name in ("obsm", "varm", "obsp", "varp", "layers", "uns"):
            anndata.io.write_elem(file, name, {})
        file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    unfinished.rename(path)
