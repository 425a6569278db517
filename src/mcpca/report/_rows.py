"""What the report shows of rows: a sample of every context, its scores, and the context's own principal components.

``render`` calls ``read_rows`` and ``sample_contexts`` once, after the steps of a pipeline; ``_content`` packs the
samples into the page. Rows may come in any form that ``MCPCA.transform`` takes. Whatever their number, only a sample of
each context is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._data.annotations import places_of_contexts
from .._data.contexts import Contexts, named_blocks
from .._data.detect import has_dask_rows, is_dask
from .._data.labels import take_labels
from .._data.low_rank_rows import LowRankRows
from .._data.projection import offset_scores
from .._data.validation import check_finite
from .._estimator.mcpca import fitted_model
from .._model.new_rows import read_new_contexts, with_fitted_features
from .._results.row_pca import principal_directions
from .._utils.array_api import to_host
from .._utils.parallel import each, n_workers
from .._utils.types import Array
from .._utils.wording import quoted

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
N_AXES = 3  # principal components of a context, of which the page shows any two
MOST_SHOWN = 500  # rows of a context in the page; more make the file larger, and the points hide one another
# Rows of a context behind its quantiles and principal components. Rows in memory are read one context at a time, all
# others in one pass that holds those of every context at once: hence the two bounds.
_MOST_USED = 1000
_MOST_USED_OF_A_PASS = 100
# In the rows of one context, so that wide rows stay within 80 MB; a pass holds five times as many.
_MOST_NUMBERS = 10**7
_ROUNDING = 1e-12  # share of the sum of squares below which a variance is rounding error


@dataclass(frozen=True)
class ContextSample:
    """Rows of one context; m of them are shown.

    Attributes
    ----------
    n : int
        Rows of the context in the data.
    n_used : int
        Rows behind the quantiles and the principal components.
    quantiles : ndarray (5, r)
        Quantiles of the scores, at ``QUANTILES``.
    scores : ndarray (m, r)
    coordinates : ndarray (m, 3)
        Along the principal components of the context, from its mean.
    axes : ndarray (r, 3)
        Cosines between MCPCs and these principal components.
    shares : ndarray (3,)
        Shares of the context's variance along these principal components, in the rows used.
    numbers : ndarray (m,)
        Which rows of X are shown, counted from 0 over all of them, or over its blocks one after the other.
    """

    n: int
    n_used: int
    quantiles: Array
    scores: Array
    coordinates: Array
    axes: Array
    shares: Array
    numbers: Array


def sample_contexts(
    model: Any, contexts: Contexts, max_rows: int, rng: np.random.Generator
) -> list[ContextSample | None]:
    """Return a sample of each fitted context, None for those without rows; ``contexts`` are those of ``read_rows``.

    Notes
    -----
    Rows in memory are read one context at a time in each thread, up to 1,000 of them. All others (on disk, in chunks,
    on Dask) are read in one pass that takes as many rows as are shown, or 100 of a context where that is more. Sparse
    rows stay sparse.
    """
    fitted_index = fitted_places(model, contexts)
    # The same number from each, so that small contexts are not drowned by large ones.
    per_context = min(MOST_SHOWN, max_rows // len(model.contexts_))
    # P (r, p), A (p, r), means (k, p)
    P, A = (np.asarray(to_host(x), dtype=np.float64) for x in (model.projection_, model.components_))
    means = None if model.means_ is None else np.asarray(to_host(model.means_), dtype=np.float64)
    names = contexts.names.tolist()

    def sample_of(draw: _Draw) -> ContextSample:
        rows = draw.rows()
        if isinstance(rows, LowRankRows):
            rows = rows.toarray()  # a sample of some hundred
        # Only the rows drawn are checked: all of them would take a pass over the data.
        _check_finite(rows, f"X, context {names[draw.context]!r},", contexts.feature_names)
        # A model fitted on covariances knows no means: rows are then centred by their own.
        mean = np.asarray(rows.mean(axis=0)).ravel() if means is None else means[fitted_index[draw.context]]
        return _summarised(rows, draw, int(contexts.n_samples[draw.context]), mean.astype(np.float64), P, A)

    samples: list[ContextSample | None] = [None] * len(model.contexts_)
    # Randomness first, work in threads after: the page does not depend on which thread ends first.
    draws = _draws(contexts, per_context, rng)
    for draw, sample in zip(draws, each(sample_of, draws, n_workers()), strict=True):
        samples[fitted_index[draw.context]] = sample
    return samples


def read_rows(model: Any, X: Any, y: Any) -> Contexts:
    """Return the rows by context, with the features of the fit; rows on Dask as chunks, those on a device on the host.

    Dask comes first: ``read_new_contexts`` would keep such rows on the workers, where none can be drawn by number.
    """
    X, y = take_labels(X, y)
    named = named_blocks(X)
    if named is None:
        X, y = _chunks_of_dask(model, X, y) if has_dask_rows(X) else (to_host(X), y)
    else:
        blocks = [
            _chunks_of_dask(model, block, None)[0] if has_dask_rows(block) else to_host(block) for block in named.blocks
        ]
        X = dict(zip(named.names.tolist(), blocks, strict=True)) if named.by_name else blocks
    fitted_model(model).refuse_missing("A report with rows", "Leave X out of it.")
    return read_new_contexts(fitted_model(model), X, y, min_samples=1)


def _chunks_of_dask(model: Any, X: Any, y: Any) -> tuple[Any, Any]:
    """Turn rows on Dask, or an AnnData with such rows, into a function that computes their blocks one after the other.

    Labels become an array. Features are put in the order of the fit here, since blocks have no names to find them by.
    """
    from .._data.dask_rows import whole_rows

    X = with_fitted_features(fitted_model(model), X, "X")[0]
    # Blocks of whole rows: a chunk must not hold only some of the features.
    blocks = whole_rows(X, "X").to_delayed().ravel().tolist()

    def chunks() -> Iterator[Any]:
        # One block at a time is in memory.
        return (block.compute() for block in blocks)

    return chunks, np.asarray(y.compute()) if is_dask(y) else y


def fitted_places(model: Any, contexts: Contexts) -> list[int]:
    """Return the index of each context of the data among the fitted ones."""
    if contexts.by_name:
        # By the labels themselves and not by text, as in ``fit``.
        position = {name: i for i, name in enumerate(model.contexts_.tolist())}
        unknown = [name for name in contexts.names.tolist() if name not in position]
        if unknown:
            raise ValueError(
                f"X has contexts that the model was not fitted on: {quoted(unknown)}; leave their rows out."
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
    """Rows drawn from a context: ``rows()`` reads all that are used, ``shown`` are the places of those in the page.

    ``numbers`` are the places of these among all rows of X.
    """

    context: int
    rows: Callable[[], Any]
    shown: Array
    numbers: Array


def _draws(contexts: Contexts, per_context: int, rng: np.random.Generator) -> list[_Draw]:
    """Draw rows of every context that has any. All random numbers are drawn here, in the order of the contexts."""
    k = len(contexts.names)
    p = contexts.n_features
    most_in_memory = max(per_context, min(_MOST_USED, _MOST_NUMBERS // p))
    # A pass holds the rows of all k contexts at once: k m p numbers.
    most_of_a_pass = max(per_context, min(_MOST_USED_OF_A_PASS, 5 * _MOST_NUMBERS // (k * p)))
    chosen_rows = []
    for i, n in enumerate(contexts.n_samples.tolist()):
        m = min(n, most_in_memory if contexts.sources[i].in_memory else most_of_a_pass)
        # Sorted, so that files are read from front to back.
        chosen_rows.append(np.sort(rng.choice(n, m, replace=False)))
    drawn = contexts.take(chosen_rows)
    _, places = places_of_contexts(contexts)
    gathered = _gathered(drawn)
    draws = []
    for i, chosen in enumerate(chosen_rows):
        shown = np.sort(rng.choice(len(chosen), min(len(chosen), per_context), replace=False))
        if len(chosen):
            read = gathered.__getitem__ if i in gathered else drawn.block
            draws.append(_Draw(i, partial(read, i), shown, places[i][chosen[shown]]))
    return draws


def _gathered(drawn: Contexts) -> dict[int, Any]:
    """Return the rows of each context that are not in memory, in one pass over each source.

    Several contexts may share a source (a file with rows in any order), which would be read once for each otherwise.
    """
    gathered: dict[int, Any] = {}
    for source in {id(s): s for s in drawn.sources if not s.in_memory}.values():
        of_source = [i for i, s in enumerate(drawn.sources) if s is source]
        row_numbers = [np.asarray(drawn.rows[i]) for i in of_source]
        rows = source.gather(np.concatenate(row_numbers))
        stops = np.cumsum([len(numbers) for numbers in row_numbers])
        for i, numbers, stop in zip(of_source, row_numbers, stops, strict=True):
            gathered[i] = rows[stop - len(numbers) : stop]
    return gathered


def _check_finite(rows: Any, where: str, features: Array | None) -> None:
    if scipy.sparse.issparse(rows):
        # Entries that are not stored are zeros; the others have lost their columns, so no feature is named.
        check_finite(np.asarray(rows.data)[None], where, None)
    else:
        check_finite(rows, where, features)


def _summarised(rows: Any, draw: _Draw, n: int, mean: Array, P: Array, A: Array) -> ContextSample:
    """Return the sample of a context from the rows (m, p) that were drawn."""
    # Products are centred instead of rows, which stay sparse: (X - 1 mean^T) P^T = X P^T - 1 (P mean)^T.
    # scores (m, r), V (p, 3)
    scores = offset_scores(rows, P.T, mean @ P.T)
    V, shares = _principal_axes(rows)
    return ContextSample(
        n,
        rows.shape[0],
        np.quantile(scores, QUANTILES, axis=0),
        scores[draw.shown],
        offset_scores(rows[draw.shown], V, mean @ V),
        A.T @ V,
        shares,
        draw.numbers,
    )


def _principal_axes(rows: Any) -> tuple[Array, Array]:
    """Return the first principal components of rows (p, 3) and their shares of variance; zeros where there are fewer.

    A direction whose variance is rounding error would be arbitrary, so it counts as absent.
    """
    n, p = rows.shape
    V = np.zeros((p, N_AXES))
    shares = np.zeros(N_AXES)
    m = min(N_AXES, n - 1, p)
    rows = rows.astype(np.float64)
    # sum |x|^2 - n |mean|^2 is the total variation. If it is rounding next to the squares, rows are equal.
    squares = float((rows.multiply(rows) if scipy.sparse.issparse(rows) else rows**2).sum())
    mean = np.asarray(rows.mean(axis=0)).ravel()
    if m < 1 or squares - n * float(mean @ mean) <= _ROUNDING * squares:
        return V, shares
    directions = principal_directions(rows, m)
    present = directions.variances > _ROUNDING * directions.total
    V[:, :m] = np.where(present, directions.vectors, 0)
    shares[:m] = np.where(present, directions.variances / directions.total, 0)
    return V, shares
