"""Rows that belong to a fit: those of a context, a sample of them if they are many, and their scores.

``rows_of_fit`` finds the rows for a ``Fitted`` (arguments ``X`` and ``y`` of a public function, or the AnnData of the
fit); the plots of rows and scores and ``analysis`` go on from there. Rows stay where they are: only a sample is ever
made dense, and scores are computed block by block in one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import LinearOperator, svds

from .._data.contexts import Contexts
from .._data.detect import anndata_parts, is_anndata
from .._data.sources import as_source, check_block, is_dask
from .._utils.component_names import context_index
from .._utils.types import Array
from .anndata_layout import stored_fit
from .fitted import Fitted
from .pipelines import split_steps, transformed_rows

_SCAN_BYTES = 2**26  # of rows read at a time
_EXACT_UP_TO = 600  # rows or features: all eigenvectors of a Gram matrix of this size, instead of ARPACK
_LEAST_LANCZOS_VECTORS = 40  # ARPACK's; more converge in fewer iterations and take more memory
_ARPACK_TOL = 1e-8  # relative accuracy of singular values
_ARPACK_TOL_FLOAT32 = 1e-5  # products of float32 rows have few more digits


@dataclass(frozen=True)
class RowsByContext:
    """Rows by context, and the MCPCs in the space where they were fitted.

    Attributes
    ----------
    contexts : Contexts
    order : list of int
        Position in ``contexts`` of each fitted context; -1 for those without rows.
    components, projection : ndarray (q, r), ndarray (r, q)
    columns : ndarray (q,) of int, or None
        Positions of the fitted features among those of the rows; None if they are the same.
    """

    contexts: Contexts
    order: list[int]
    components: Array
    projection: Array
    columns: Array | None = None

    def over_row_features(self, W: Array) -> Array:
        """Return W (q, m) over all features of the rows, with zeros for those that were not fitted."""
        if self.columns is None:
            return W
        full = np.zeros((self.contexts.n_features, W.shape[1]))
        full[self.columns] = W
        return full

    def position(self, i: int, names: Sequence[str]) -> int:
        """Return the position of the fitted context i in ``contexts``; raise if it has no rows."""
        if self.order[i] < 0 or self.contexts.n_samples[self.order[i]] == 0:
            raise ValueError(f"Context {names[i]!r} has no rows in the data given; pass data that has some.")
        return self.order[i]


def rows_of_fit(source: Any, fit: Fitted, key: str, X: Any, y: Any) -> RowsByContext:
    """Return the rows that belong to a fit: ``X`` and ``y`` for a model, its own rows for an AnnData."""
    if is_anndata(source):
        if X is not None or y is not None:
            raise ValueError("X and y go with a fitted model; an AnnData brings its own rows. Drop them.")
        return _rows_of_anndata(source, fit, key)
    if X is None:
        raise ValueError("A fitted model keeps no rows: pass X and y, in any form that fit accepts.")
    steps, model = split_steps(source)
    if steps is not None:
        X, y = transformed_rows(steps, X, y)
    if is_anndata(X) and isinstance(y, str) and y in X.obs.columns:
        y = X.obs[y]
    by_context = list(X.values()) if isinstance(X, dict) else X
    blocks = by_context if isinstance(by_context, (list, tuple)) else [X]
    if any(is_dask(block) for block in blocks):
        raise TypeError("X is on Dask, and rows are drawn here; pass rows that were computed: a sample of X.compute().")
    contexts = model._read_new(X, y, min_samples=1)
    names = [str(name) for name in contexts.names.tolist()]
    if contexts.by_name:
        position = {context_index(name, fit.contexts, "X or y: context"): i for i, name in enumerate(names)}
        order = [position.get(i, -1) for i in range(len(fit.contexts))]
    elif len(names) == len(fit.contexts):
        order = list(range(len(names)))
    else:
        raise ValueError(
            f"X has {len(names)} contexts without names and the model has {len(fit.contexts)}: pass y=labels with one "
            "matrix, a list of all contexts in their order, or a dict {context: rows}."
        )
    return RowsByContext(contexts, order, fit.components, fit.projection)


def _rows_of_anndata(adata: Any, fit: Fitted, key: str) -> RowsByContext:
    stored = stored_fit(adata, key)
    settings = dict(stored.get("params", {}))
    obsm = settings.get("obsm")
    layer = settings.get("layer")
    columns = None
    if obsm is not None:
        # ``fit`` has the axes in terms of var; the rows are in obsm, and so must the axes be.
        matrix = _entry(adata.obsm, obsm, "obsm")
        A = np.asarray(stored["components"], dtype=np.float64)
        projection = np.asarray(stored["projection"], dtype=np.float64)
    else:
        matrix = anndata_parts(adata)[0] if layer is None else _entry(adata.layers, layer, "layers")
        A = fit.with_all_features().components
        projection = fit.projection
        columns = fit.columns
    k = len(fit.contexts)
    codes = _context_codes(fit)
    counts = np.bincount(codes[codes >= 0], minlength=k)
    # Row numbers by context: a stable sort keeps their order, and rows that were not fitted (-1) come first.
    numbers = np.argsort(codes, kind="stable")[(codes < 0).sum() :]
    rows = np.split(numbers, np.cumsum(counts)[:-1])
    source = as_source(matrix, "The matrix of adata")
    contexts = Contexts(np.array(fit.contexts), True, None, [source] * k, rows, counts)
    return RowsByContext(contexts, list(range(k)), A, projection, columns)


def _context_codes(fit: Fitted) -> Array:
    """Return the position of the context of each row of an AnnData (n,), -1 for rows that were not fitted."""
    assert fit.labels is not None
    position = {name: i for i, name in enumerate(fit.contexts)}
    return np.array([position.get(label, -1) for label in fit.labels], dtype=np.intp)


def _entry(mapping: Any, name: str, place: str) -> Any:
    if name not in mapping:
        raise ValueError(
            f"The fit was made on adata.{place}[{name!r}], which no longer exists; put it back, or fit again."
        )
    return mapping[name]


@dataclass(frozen=True)
class SampledRows:
    """Some rows of one context or of several: ``rows`` (m, q), dense or CSR, out of ``n``."""

    rows: Any
    n: int

    @property
    def m(self) -> int:
        """Number of rows in the sample."""
        return int(self.rows.shape[0])


def sampled_rows(space: RowsByContext, positions: Sequence[int], most: int) -> SampledRows:
    """Return the rows of the contexts at ``positions``; if there are more than ``most``, a fixed random sample."""
    contexts = space.contexts
    ends = np.cumsum([contexts.n_samples[i] for i in positions])
    n = int(ends[-1])
    # Numbers among all rows of these contexts in a line; the seed is fixed so that a plot shows the same rows again.
    drawn = np.arange(n) if n <= most else np.sort(np.random.default_rng(0).choice(n, most, replace=False))
    drawn_by_context = np.split(drawn, np.searchsorted(drawn, ends[:-1]))
    # Contexts that share a source (one matrix with labels) are read from it in one go.
    row_numbers: dict[int, list[Array]] = {}
    for i, numbers, end in zip(positions, drawn_by_context, ends, strict=True):
        within = numbers - (end - contexts.n_samples[i])
        rows = contexts.rows[i]
        in_source = rows.start + within if isinstance(rows, slice) else rows[within]
        row_numbers.setdefault(id(contexts.sources[i]), []).append(in_source)
    sources = {id(source): source for source in contexts.sources}
    blocks: list[Any] = []
    for source_id, parts in row_numbers.items():
        block: Any = sources[source_id].gather(np.concatenate(parts))
        check_block(block, 0, "The rows drawn")
        blocks.append(block if space.columns is None else block[:, space.columns])
    if len(blocks) == 1:
        return SampledRows(blocks[0], n)
    sparse = any(scipy.sparse.issparse(block) for block in blocks)
    return SampledRows(scipy.sparse.vstack(blocks).tocsr() if sparse else np.concatenate(blocks), n)


@dataclass(frozen=True)
class Directions:
    """Leading principal components of some rows.

    ``mean`` (q,) of the rows, ``vectors`` (q, m) with the largest entry of each positive, ``variances`` (m,) along
    them, and the ``total`` variance.
    """

    mean: Array
    vectors: Array
    variances: Array
    total: float


def principal_directions(rows: Any, m: int) -> Directions:
    """Return the top ``m`` principal components of rows (n, q), dense or sparse.

    Exact by the smaller of the two Gram matrices if that is small, by ARPACK otherwise, which leaves sparse rows
    sparse. Cost O(n q min(n, q)) or O(nnz m) per iteration.
    """
    n, q = rows.shape
    mean = np.asarray(rows.mean(axis=0, dtype=np.float64)).ravel()
    if min(n, q) <= _EXACT_UP_TO:
        squares, vectors, total = _eigenvectors_of_gram(rows, mean, m)
    else:
        squares, vectors, total = _singular_vectors(rows, mean, m)
    vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=0), np.finfo(float).tiny)
    peak = np.argmax(np.abs(vectors), axis=0)
    vectors = vectors * np.where(vectors[peak, np.arange(vectors.shape[1])] < 0, -1, 1)
    return Directions(mean, vectors, np.maximum(squares, 0) / (n - 1), total / (n - 1))


def _eigenvectors_of_gram(rows: Any, mean: Array, m: int) -> tuple[Array, Array, float]:
    """Return squared singular values (m,), right singular vectors (q, m) of any length, and the sum of squares."""
    n, q = rows.shape
    centred = (rows.toarray() if scipy.sparse.issparse(rows) else rows).astype(np.float64) - mean
    total = float(np.sum(centred**2))
    wide = n < q
    values, vectors = np.linalg.eigh(centred @ centred.T if wide else centred.T @ centred)
    values = values[::-1][:m]
    vectors = vectors[:, ::-1][:, :m]
    # Left singular vectors u give the right ones, up to their length, by X^T u.
    return values, centred.T @ vectors if wide else vectors, total


def _singular_vectors(rows: Any, mean: Array, m: int) -> tuple[Array, Array, float]:
    """Return the same as ``_eigenvectors_of_gram`` by ARPACK, without a centred copy of the rows."""
    n, q = rows.shape
    sparse = scipy.sparse.issparse(rows)
    squares = rows.multiply(rows).sum() if sparse else np.einsum("ij,ij->", rows, rows, dtype=np.float64)
    total = float(squares - n * mean @ mean)
    # Products are in the precision of the rows: vectors of another one would make a copy of the rows each time.
    rows = rows.astype(np.float64) if sparse else rows
    dtype = rows.dtype
    transposed = rows.T
    # (X - 1 mean^T) v = X v - (mean^T v) 1, and its transpose: centring would make sparse rows dense.
    centred = LinearOperator(
        (n, q),
        matvec=lambda v: rows @ v.ravel().astype(dtype, copy=False) - mean @ v.ravel(),
        rmatvec=lambda u: transposed @ u.ravel().astype(dtype, copy=False) - mean * u.sum(),
        dtype=np.float64,
    )
    start = np.random.default_rng(0).standard_normal(min(n, q))
    tol = _ARPACK_TOL if dtype == np.float64 else _ARPACK_TOL_FLOAT32
    n_vectors = min(max(2 * m + 1, _LEAST_LANCZOS_VECTORS), n, q)
    _, singular, right = svds(centred, m, v0=start, tol=tol, ncv=n_vectors)
    order = np.argsort(-singular)
    return singular[order] ** 2, right[order].T, total


def scores_by_context(
    source: Any, fit: Fitted, key: str, j: int, X: Any, y: Any, wanted: Sequence[int], center: str
) -> list[Array]:
    """Return the scores on MCPC j of the rows of each wanted context.

    ``center`` "context" subtracts the mean of the context's rows, "overall" that of all rows. Cost: one pass over the
    rows, or none if an AnnData has the scores.
    """
    if is_anndata(source) and X is None and y is None and scores_are_stored(source, key, center):
        scores, overall = _stored_scores(fit, j, wanted)
    else:
        scores, overall = _computed_scores(rows_of_fit(source, fit, key, X, y), fit, j, wanted, center)
    if center == "context":
        return [values - values.mean() for values in scores]
    return [values - overall for values in scores]


def scores_are_stored(adata: Any, key: str, center: str) -> bool:
    """Whether the scores stored in an AnnData can be centred this way.

    Stored scores that were centred by context have lost the differences between contexts.
    """
    return center == "context" or dict(stored_fit(adata, key).get("params", {})).get("center") != "context"


def _stored_scores(fit: Fitted, j: int, wanted: Sequence[int]) -> tuple[list[Array], float]:
    """Return the stored scores on MCPC j of each wanted context, and the mean over all fitted rows."""
    assert fit.scores is not None
    z = fit.scores[:, j]
    codes = _context_codes(fit)
    scores = [z[codes == i] for i in wanted]
    empty = [fit.contexts[i] for i, values in zip(wanted, scores, strict=True) if not len(values)]
    if empty:
        raise ValueError(f"Context {empty[0]!r} has no rows in the data given; pass data that has some.")
    return scores, float(z[codes >= 0].mean())


def _computed_scores(
    space: RowsByContext, fit: Fitted, j: int, wanted: Sequence[int], center: str
) -> tuple[list[Array], float]:
    """Return the same from rows; the mean is 0 where ``center`` does not need it, and other contexts are not read."""
    contexts = space.contexts
    positions = [space.position(i, fit.contexts) for i in wanted]
    to_read = positions if center == "context" else list(range(len(contexts.names)))
    weights = space.over_row_features(space.projection[[j]].T)[:, 0]
    by_source: dict[int, Array] = {}
    for i in to_read:
        source = contexts.sources[i]
        if id(source) not in by_source:
            by_source[id(source)] = _scores_of_source(source, weights)

    def scores_of(i: int) -> Array:
        return by_source[id(contexts.sources[i])][contexts.rows[i]]

    overall = 0.0
    if center == "overall":
        overall = float(sum(scores_of(i).sum() for i in to_read) / contexts.n_samples.sum())
    return [scores_of(i) for i in positions], overall


def _scores_of_source(source: Any, weights: Array) -> Array:
    z = np.empty(source.shape[0])
    for first, block in source.scan(_SCAN_BYTES):
        check_block(block, first, "X")
        z[first : first + block.shape[0]] = block @ weights
    return z
