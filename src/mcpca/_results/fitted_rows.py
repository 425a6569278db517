"""Rows that go with a fit: those of a context, a sample of them where they are many, and their scores.

Rows are read where they are: a sample is the only thing that is made dense, and scores are found in one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from .._data.contexts import Contexts, contexts_of_codes
from .._data.detect import anndata_parts, has_dask_rows, is_anndata
from .._data.projection import projected_rows
from .._data.sources import as_source, check_block
from .._estimator.mcpca import fitted_model
from .._model.new_rows import read_new_contexts
from .._utils.component_names import context_index
from .._utils.types import Array
from .anndata_layout import stored_fit
from .fitted import Fitted
from .pipelines import split_steps, transformed_rows


@dataclass(frozen=True)
class RowsByContext:
    """Rows by context, and the MCPCs in the space where they were fitted.

    Attributes
    ----------
    contexts : Contexts
    order : list of int
        Position in ``contexts`` of each fitted context; -1 where there are no rows of it.
    components, projection : ndarray (q, r), ndarray (r, q)
    columns : ndarray (q,) of int, or None
        Positions of the features that were fitted among those of the rows, where these are not the same.
    """

    contexts: Contexts
    order: list[int]
    components: Array
    projection: Array
    columns: Array | None = None

    def fit_data_of_rows(self, W: Array) -> Array:
        """Return W (q, m) in the space of the rows, with zeros for features that were not fitted."""
        if self.columns is None:
            return W
        full = np.zeros((self.contexts.n_features, W.shape[1]))
        full[self.columns] = W
        return full

    def position(self, i: int, names: Sequence[str]) -> int:
        """Return the position of the fitted context i in ``contexts``, or explain that it has no rows."""
        if self.order[i] < 0 or self.contexts.n_samples[self.order[i]] == 0:
            raise ValueError(f"Context {names[i]!r} has no rows in the data given; pass data that has some.")
        return self.order[i]


def read_space(source: Any, fit: Fitted, key: str, X: Any, y: Any) -> RowsByContext:
    """Return the rows that go with a fit: ``X`` and ``y`` for a model, those of the AnnData itself otherwise."""
    if is_anndata(source):
        if X is not None or y is not None:
            raise ValueError("X and y go with a fitted model; an AnnData brings its own rows. Drop them.")
        return _of_anndata(source, fit, key)
    if X is None:
        raise ValueError("A fitted model keeps no rows: pass X and y, in any form that fit takes.")
    steps, model = split_steps(source)
    if steps is not None:
        X, y = transformed_rows(steps, X, y)
    if is_anndata(X) and isinstance(y, str) and y in X.obs.columns:
        y = X.obs[y]
    blocks = X.values() if isinstance(X, dict) else X if isinstance(X, (list, tuple)) else [X]
    if any(map(has_dask_rows, blocks)):
        raise TypeError("X is on Dask, and rows are drawn here; pass rows that were computed: a sample of X.compute().")
    contexts = read_new_contexts(fitted_model(model), X, y, min_samples=1)
    given = [str(name) for name in contexts.names.tolist()]
    if contexts.by_name:
        at = {context_index(name, fit.contexts, "X or y: context"): i for i, name in enumerate(given)}
        order = [at.get(i, -1) for i in range(len(fit.contexts))]
    elif len(given) == len(fit.contexts):
        order = list(range(len(given)))
    else:
        raise ValueError(
            f"X has {len(given)} contexts without names and the model has {len(fit.contexts)}: pass y=labels with one "
            "matrix, a list of all contexts in their order, or a dict {context: rows}."
        )
    return RowsByContext(contexts, order, fit.components, fit.projection)


def _of_anndata(adata: Any, fit: Fitted, key: str) -> RowsByContext:
    stored = stored_fit(adata, key)
    settings = dict(stored.get("params", {}))
    obsm, layer = (settings.get(name) for name in ("obsm", "layer"))
    columns = None
    if obsm is not None:
        matrix = _entry(adata.obsm, obsm, "obsm")
        A, P = (np.asarray(stored[name], dtype=np.float64) for name in ("components", "projection"))
    else:
        matrix = anndata_parts(adata)[0] if layer is None else _entry(adata.layers, layer, "layers")
        A, P, columns = fit.whole().components, fit.projection, fit.columns
    read = as_source(matrix, "The matrix of adata")
    contexts = contexts_of_codes(read, _codes(fit), np.array(fit.contexts), None)
    return RowsByContext(contexts, list(range(len(fit.contexts))), A, P, columns)


def _codes(fit: Fitted) -> Array:
    """Return the position of the context of each row of an AnnData (n,), -1 where it was not fitted."""
    assert fit.labels is not None
    at = {name: i for i, name in enumerate(fit.contexts)}
    return np.array([at.get(label, -1) for label in fit.labels], dtype=np.intp)


def _entry(mapping: Any, name: str, place: str) -> Any:
    if name not in mapping:
        raise ValueError(
            f"The fit was made on adata.{place}[{name!r}], which is not there any more; put it back, or fit again."
        )
    return mapping[name]


@dataclass(frozen=True)
class RowSample:
    """Some rows of a context, or of several: ``rows`` (m, q), dense or CSR, of ``n`` there are."""

    rows: Any
    n: int

    @property
    def m(self) -> int:
        """Number of rows in the sample."""
        return int(self.rows.shape[0])


def sample_rows(space: RowsByContext, positions: Sequence[int], most: int) -> RowSample:
    """Return the rows of contexts, in their order; of more than ``most`` a random sample, always the same one."""
    contexts = space.contexts
    ends = np.cumsum([contexts.n_samples[i] for i in positions])
    n = int(ends[-1])
    kept = np.arange(n) if n <= most else np.sort(np.random.default_rng(0).choice(n, most, replace=False))
    parts = np.split(kept, np.searchsorted(kept, ends[:-1]))
    numbers: dict[int, list[Array]] = {}
    for i, part, end in zip(positions, parts, ends, strict=True):
        own, mine = contexts.rows[i], part - (end - contexts.n_samples[i])
        taken = own.start + mine if isinstance(own, slice) else own[mine]
        numbers.setdefault(id(contexts.sources[i]), []).append(taken)
    sources = {id(one): one for one in contexts.sources}
    blocks: list[Any] = []
    for number, taken_of in numbers.items():
        block: Any = sources[number].gather(np.concatenate(taken_of))
        check_block(block, 0, "The rows drawn")
        blocks.append(block if space.columns is None else block[:, space.columns])
    sparse = any(scipy.sparse.issparse(block) for block in blocks)
    rows = blocks[0] if len(blocks) == 1 else scipy.sparse.vstack(blocks).tocsr() if sparse else np.concatenate(blocks)
    return RowSample(rows, n)


def scores_by_context(
    source: Any, fit: Fitted, key: str, j: int, X: Any, y: Any, wanted: Sequence[int], center: str
) -> list[Array]:
    """Return the scores on MCPC j of the rows of each wanted context.

    ``center`` "context" takes off the mean of the context's rows, "overall" that of all rows. Cost: one pass over the
    rows, or none where an AnnData has the scores.
    """
    if is_anndata(source) and X is None and y is None and scores_are_stored(source, key, center):
        assert fit.scores is not None
        z, codes = fit.scores[:, j], _codes(fit)
        own = [z[codes == i] for i in wanted]
        empty = [fit.contexts[i] for i, values in zip(wanted, own, strict=True) if not len(values)]
        if empty:
            raise ValueError(f"Context {empty[0]!r} has no rows in the data given; pass data that has some.")
        overall = float(z[codes >= 0].mean())
    else:
        space = read_space(source, fit, key, X, y)
        positions = [space.position(i, fit.contexts) for i in wanted]
        contexts = space.contexts
        among = positions if center == "context" else range(len(contexts.names))
        found: dict[int, Array] = {}
        for i in among:
            one = contexts.sources[i]
            if id(one) not in found:
                found[id(one)] = projected_rows(one, space.fit_data_of_rows(space.projection[[j]].T)[:, 0])
        own = [found[id(contexts.sources[i])][contexts.rows[i]] for i in positions]
        overall = 0.0
        if center == "overall":
            sums = [found[id(contexts.sources[i])][contexts.rows[i]].sum() for i in among]
            overall = float(sum(sums) / contexts.n_samples.sum())
    return [values - (values.mean() if center == "context" else overall) for values in own]


def scores_are_stored(adata: Any, key: str, center: str) -> bool:
    """Whether the scores kept in an AnnData tell those asked for: differences between contexts may be gone."""
    return center == "context" or dict(stored_fit(adata, key).get("params", {})).get("center") != "context"
