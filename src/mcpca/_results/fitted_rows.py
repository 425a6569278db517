"""Rows that belong to a fit: those of a context, a sample of them if they are many, and their scores.

``rows_of_fit`` finds the rows for a ``Fitted`` (arguments ``X`` and ``y`` of a public function, or the AnnData of the
fit); the plots of rows and scores and ``analysis`` go on from there. Rows stay where they are: only a sample is ever
taken as a whole, and scores are computed block by block in one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from .._data.contexts import Contexts, contexts_of_codes
from .._data.dask_reading import readable_rows
from .._data.detect import anndata_parts, has_dask_rows, is_anndata
from .._data.low_rank_rows import LowRankRows
from .._data.projection import projected_rows
from .._data.sources import check_block
from .._estimator.mcpca import fitted_model
from .._model.new_rows import read_new_contexts
from .._utils.component_names import context_index
from .._utils.types import Array
from .anndata_layout import stored_fit
from .anndata_preprocess import fitted_preprocess
from .anndata_refit import entry_of_fit, preprocessed_of_fit
from .fitted import Fitted
from .pipelines import split_steps, transformed_rows


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
        # Zero weights instead of a selection of columns: rows on disk or sparse ones need not be copied.
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
    # The model was fitted to what comes out of these steps.
    if steps is not None:
        X, y = transformed_rows(steps, X, y)
    if is_anndata(X) and isinstance(y, str) and y in X.obs.columns:
        y = X.obs[y]
    # Each context may be an array of its own, on Dask or not.
    by_context = list(X.values()) if isinstance(X, dict) else X
    blocks = by_context if isinstance(by_context, (list, tuple)) else [X]
    if any(map(has_dask_rows, blocks)):
        raise TypeError("X is on Dask, and rows are drawn here; pass rows that were computed: a sample of X.compute().")
    # A single row is enough here: scores need no covariance.
    fitted_model(model).refuse_missing("Drawing rows", "Draw the scores that model.transform(X, y) returns.")
    contexts = read_new_contexts(fitted_model(model), X, y, min_samples=1)
    names = [str(name) for name in contexts.names.tolist()]
    if contexts.by_name:
        # Named contexts may come in any order, and only some of them; unknown names are an error.
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
    # Rows are read from where the fit read them: obsm, a layer, or X.
    settings = dict(stored.get("params", {}))
    obsm = settings.get("obsm")
    layer = settings.get("layer")
    columns = None
    if obsm is not None:
        # ``fit`` has the axes in terms of var; the rows are in obsm, and so must the axes be.
        matrix = entry_of_fit(adata.obsm, obsm, "obsm")
        A = np.asarray(stored["components"], dtype=np.float64)
        projection = np.asarray(stored["projection"], dtype=np.float64)
    else:
        matrix = anndata_parts(adata)[0] if layer is None else entry_of_fit(adata.layers, layer, "layers")
        A = fit.with_all_features().components
        projection = fit.projection
        columns = fit.columns
    steps = fitted_preprocess(stored)
    if steps is not None:
        # Features of the fit alone, in its order.
        contexts = preprocessed_of_fit(adata, key, steps, _context_codes(fit), np.array(fit.contexts))
        return RowsByContext(contexts, list(range(len(fit.contexts))), A, projection, None)
    source = readable_rows(matrix, "The matrix of adata")
    contexts = contexts_of_codes(source, _context_codes(fit), np.array(fit.contexts), None)
    return RowsByContext(contexts, list(range(len(fit.contexts))), A, projection, columns)


def _context_codes(fit: Fitted) -> Array:
    """Return the position of the context of each row of an AnnData (n,), -1 for rows that were not fitted."""
    assert fit.labels is not None
    position = {name: i for i, name in enumerate(fit.contexts)}
    return np.array([position.get(label, -1) for label in fit.labels], dtype=np.intp)


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
    # Row numbers of context i, in the line of all rows of the wanted contexts, end before ends[i].
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
        # Rows may have changed since the fit, or be others: NaN would go unnoticed into a plot.
        check_block(block, 0, "The rows drawn")
        if isinstance(block, LowRankRows):
            block = block.toarray()  # few rows, of which entries are shown
        blocks.append(block if space.columns is None else block[:, space.columns])
    if len(blocks) == 1:
        return SampledRows(blocks[0], n)
    # One sparse block decides for all: made dense, sparse rows may not fit in memory.
    sparse = any(scipy.sparse.issparse(block) for block in blocks)
    return SampledRows(scipy.sparse.vstack(blocks).tocsr() if sparse else np.concatenate(blocks), n)


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
    # Rows may have been removed from the AnnData since the fit, down to none of a context.
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
    # The overall mean needs the rows of all contexts; the mean of a context only its own.
    to_read = positions if center == "context" else list(range(len(contexts.names)))
    # Row j of pinv(A): (q,), or over all features of the rows.
    weights = space.over_row_features(space.projection[[j]].T)[:, 0]
    # Contexts may share one matrix, which is then projected once.
    by_source: dict[int, Array] = {}
    for i in to_read:
        source = contexts.sources[i]
        if id(source) not in by_source:
            by_source[id(source)] = projected_rows(source, weights)

    def scores_of(i: int) -> Array:
        return by_source[id(contexts.sources[i])][contexts.rows[i]]

    overall = 0.0
    if center == "overall":
        overall = float(sum(scores_of(i).sum() for i in to_read) / contexts.n_samples.sum())
    return [scores_of(i) for i in positions], overall
