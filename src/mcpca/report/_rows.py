"""What the report shows of rows: a sample of every context, its scores, and the context's own principal components."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse

from .._data.contexts import Contexts, named_blocks
from .._data.detect import has_dask_rows, is_anndata, is_dask
from .._data.labels import take_labels
from .._data.projection import offset_scores
from .._data.validation import check_finite
from .._estimator.mcpca import fitted_model
from .._model.new_rows import read_new_contexts, with_fitted_features
from .._utils.array_api import to_host
from .._utils.parallel import each, n_workers
from .._utils.types import Array

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
N_AXES = 3  # principal components of a context, of which any two are shown
MOST_SHOWN = 500  # rows of a context
_MOST_USED, _FEWEST_USED = 1000, 100  # rows of a context behind its quantiles and principal components
_MOST_NUMBERS = 10**7  # in these, so that wide rows stay within 80 MB
_NOTHING = 1e-12  # share of squares that is rounding


@dataclass(frozen=True)
class RowSample:
    """Rows of one context; m of them are shown.

    Attributes
    ----------
    n : int
        Rows that were given.
    n_used : int
        Rows behind the quantiles and the principal components.
    quantiles : ndarray (5, r)
        Of the scores, at ``QUANTILES``.
    scores : ndarray (m, r)
    coordinates : ndarray (m, 3)
        Along the principal components of the context, from its mean.
    axes : ndarray (r, 3)
        Cosines between MCPCs and these principal components.
    shares : ndarray (3,)
        Of the context's variance, in these rows.
    """

    n: int
    n_used: int
    quantiles: Array
    scores: Array
    coordinates: Array
    axes: Array
    shares: Array


def sample_rows(model: Any, X: Any, y: Any, max_rows: int, rng: np.random.Generator) -> list[RowSample | None]:
    """Return a sample of each fitted context, None where no rows of it were given.

    Notes
    -----
    Rows in memory are read one context at a time for each thread of BLAS, up to 1,000 of them. All others (on disk, in
    chunks, on Dask) are read in one pass that takes what is shown, or 100 rows of a context where that is less. Sparse
    rows stay sparse.
    """
    contexts = _read(model, X, y)
    index = _places(model, contexts)
    per_context = min(MOST_SHOWN, max_rows // len(model.contexts_))
    P, A = (np.asarray(to_host(x), dtype=np.float64) for x in (model.projection_, model.components_))
    means = None if model.means_ is None else np.asarray(to_host(model.means_), dtype=np.float64)
    names = contexts.names.tolist()

    def describe(draw: _Draw) -> RowSample:
        rows = draw.rows()
        _check_finite(rows, f"X, context {names[draw.context]!r},", contexts.feature_names)
        mean = np.asarray(rows.mean(axis=0)).ravel() if means is None else means[index[draw.context]]
        return _describe(rows, draw.shown, int(contexts.n_samples[draw.context]), mean.astype(np.float64), P, A)

    samples: list[RowSample | None] = [None] * len(model.contexts_)
    draws = _draws(contexts, per_context, rng)
    for draw, sample in zip(draws, each(describe, draws, n_workers()), strict=True):
        samples[index[draw.context]] = sample
    return samples


def _read(model: Any, X: Any, y: Any) -> Contexts:
    X, y = take_labels(X, y)
    if is_anndata(X) and has_dask_rows(X):
        X = with_fitted_features(fitted_model(model), X, "X")[0]
    named = named_blocks(X)
    if named is None:
        X, y = _chunks_of_dask(model, X, y) if is_dask(X) else (to_host(X), y)
    else:
        blocks = [
            _chunks_of_dask(model, block, None)[0] if has_dask_rows(block) else to_host(block) for block in named.blocks
        ]
        X = dict(zip(named.names.tolist(), blocks, strict=True)) if named.by_name else blocks
    return read_new_contexts(fitted_model(model), X, y, min_samples=1)


def _chunks_of_dask(model: Any, X: Any, y: Any) -> tuple[Any, Any]:
    """Turn rows on Dask into a function that gives their blocks, computed one after the other; labels into an array."""
    from .._data.dask_rows import whole_rows

    X = with_fitted_features(fitted_model(model), X, "X")[0]
    blocks = whole_rows(X, "X").to_delayed().ravel().tolist()

    def chunks() -> Iterator[Any]:
        return (block.compute() for block in blocks)

    return chunks, np.asarray(y.compute()) if is_dask(y) else y


def _places(model: Any, contexts: Contexts) -> list[int]:
    """Return the index of each of these contexts among the fitted ones."""
    if contexts.by_name:
        position = {name: i for i, name in enumerate(model.contexts_.tolist())}
        unknown = [name for name in contexts.names.tolist() if name not in position]
        if unknown:
            raise ValueError(
                f"X has contexts that the model was not fitted on: {unknown[:5]}"
                f"{f' and {len(unknown) - 5} more' if len(unknown) > 5 else ''}; leave their rows out."
            )
        return [position[name] for name in contexts.names.tolist()]
    k = len(model.contexts_)
    if len(contexts.names) != k:
        raise ValueError(
            f"X has {len(contexts.names)} context(s) without names and the model has {k}; pass y=labels, a dict "
            "{name: rows}, or a list with all of them in their order."
        )
    return list(range(k))


class _Draw(NamedTuple):
    """Rows of a context, read when they are asked for, and which of these are shown."""

    context: int
    rows: Callable[[], Any]
    shown: Array


def _draws(contexts: Contexts, per_context: int, rng: np.random.Generator) -> list[_Draw]:
    """Draw rows of every context that has any."""
    k, p = len(contexts.names), contexts.n_features
    here = max(per_context, min(_MOST_USED, _MOST_NUMBERS // p))
    # Those of all contexts are held at a time.
    there = max(per_context, min(_FEWEST_USED, 5 * _MOST_NUMBERS // (k * p)))
    wanted = []
    for i, n in enumerate(contexts.n_samples.tolist()):
        m = min(n, here if contexts.sources[i].in_memory else there)
        wanted.append(np.sort(rng.choice(n, m, replace=False)))
    drawn = contexts.take(wanted)
    elsewhere: dict[int, Any] = {}
    for source in {id(s): s for s in contexts.sources if not s.in_memory}.values():
        mine = [i for i, s in enumerate(contexts.sources) if s is source]
        numbers = np.concatenate([np.asarray(drawn.rows[i]) for i in mine])
        together, start = source.gather(numbers), 0
        for i in mine:
            stop = start + len(drawn.rows[i])  # type: ignore[arg-type]  # not a slice: these were taken
            elsewhere[i], start = together[start:stop], stop
    draws = []
    for i, chosen in enumerate(wanted):
        shown = np.sort(rng.choice(len(chosen), min(len(chosen), per_context), replace=False))
        if len(chosen):
            draws.append(_Draw(i, partial(elsewhere.__getitem__ if i in elsewhere else drawn.block, i), shown))
    return draws


def _check_finite(rows: Any, where: str, features: Array | None) -> None:
    if scipy.sparse.issparse(rows):
        check_finite(np.asarray(rows.data)[None], where, None)
    else:
        check_finite(rows, where, features)


def _describe(rows: Any, shown: Array, n: int, mean: Array, P: Array, A: Array) -> RowSample:
    scores = offset_scores(rows, P.T, mean @ P.T)
    V, shares = _principal_axes(rows)
    return RowSample(
        n,
        rows.shape[0],
        np.quantile(scores, QUANTILES, axis=0),
        scores[shown],
        offset_scores(rows[shown], V, mean @ V),
        A.T @ V,
        shares,
    )


def _principal_axes(rows: Any) -> tuple[Array, Array]:
    """Return the first principal components of rows (p, 3) and their shares of variance; zeros where there are fewer.

    From the smaller of X^T X (p, p) and X X^T (n, n); sparse rows stay sparse, and their products are centred.
    Signs are those that make the largest entry positive.
    """
    n, p = rows.shape
    V, shares = np.zeros((p, N_AXES)), np.zeros(N_AXES)
    m = min(N_AXES, n - 1, p)
    rows = rows.astype(np.float64)
    mean = np.asarray(rows.mean(axis=0)).ravel()
    squares = n * float(mean @ mean)
    if not scipy.sparse.issparse(rows):
        rows, mean = rows - mean, np.zeros(p)
    products = _dense(rows.T @ rows if p <= n else rows @ rows.T)
    if p <= n:
        products = products - n * np.outer(mean, mean)
    else:
        products = products + products.mean() - products.mean(axis=0) - products.mean(axis=1)[:, None]
    total = float(np.trace(products))
    if m < 1 or total <= _NOTHING * squares:
        return V, shares
    size = len(products)
    values, vectors = scipy.linalg.eigh(products, subset_by_index=[size - m, size - 1])
    values, axes = values[::-1], vectors[:, ::-1]
    if p > n:
        axes = np.asarray(rows.T @ axes) - mean[:, None] * axes.sum(axis=0)
        axes /= np.maximum(np.linalg.norm(axes, axis=0), np.finfo(float).tiny)
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(m)])
    known = values > _NOTHING * total
    V[:, :m], shares[:m] = np.where(known, axes, 0), np.where(known, values / total, 0)
    return V, shares


def _dense(X: Any) -> Array:
    return np.asarray(X.toarray() if scipy.sparse.issparse(X) else X)
