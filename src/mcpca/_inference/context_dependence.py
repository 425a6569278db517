"""Is an axis of the contexts, or in all of them alike? Axes of one half, their variances by context in the other.

Axes that are fitted to rows look as if they differed between the contexts of the same rows, whatever these are: that is
what the fit looks for. So rows are split into halves, within contexts or by groups. A row x of one half has its scores
on the axes of the other, ``z = W (x - m_i)``, W the pseudoinverse of these axes and m_i the mean of the row's context.
``label_permutation`` asks whether the variances of z differ between contexts more than they would with permuted labels.
Both halves of a split are judged together, each on the axes of the other. There is a test for each split, by the same
permutations; what comes out depends on the split, and p-values are those of the mean normal score over splits.

Axes of halves are matched with those of the model; what is said of MCPC j is said of its matches.

The whole is judged by the sum over axes, in standard deviations under permutation, and then once more with the rows of
each context divided by their overall scale: contexts that differ by a factor only have the same axes as the pooled
rows, and no method can tell axes apart by them.

``dependence_of`` is for callers that fit halves by themselves or by a function; ``context_dependence_of_fit`` is
``MCPCA.context_dependence``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._covariances.moments import ContextMoments
from .._covariances.nuisance_bases import context_bases
from .._data.contexts import Contexts
from .._data.projection import projected_rows
from .._linalg.canonical import match_components
from .._model.fitted_model import FittedModel
from .._model.new_rows import read_fitted_contexts
from .._utils.arguments import as_generator, check_integer
from .._utils.array_api import to_host
from .._utils.parallel import n_workers
from .._utils.progress import silent
from .._utils.types import Array, Report
from .._utils.wording import quoted
from .dependence_result import LEVEL, PERMUTATIONS, SPLITS, ContextDependence
from .label_permutation import (
    LabelTest,
    dispersion,
    dispersion_beyond_scale,
    over_splits,
    tail_of_sum,
    units_of_groups,
    units_of_rows,
    upper_tail,
)
from .replication import agreement_of_halves, by_context, refit, refit_in_threads
from .sampling import MIN_ROWS, Halves, checked_groups

_SCALE_PERMUTATIONS = 199  # at most: what comes out is only compared with the level
FitHalf = Callable[[Contexts, np.random.Generator], Array]


class FittedHalves(NamedTuple):
    """Two halves of the rows, and the axes (p, r) that were fitted to each."""

    first: Contexts
    second: Contexts
    axes: tuple[Array, Array]


def refuse_without_rows(X: Any) -> None:
    """Raise if X is covariances or moments."""
    if X is None or isinstance(X, ContextMoments) or getattr(X, "ndim", 2) == 3:
        what = "X is None" if X is None else "X holds covariances or moments"
        raise ValueError(
            f"context_dependence() permutes rows over contexts, and {what}, without rows; pass the rows. Without them, "
            "standard_errors() says how far loadings can be told apart."
        )


def judged_contexts(contexts: Contexts) -> tuple[Contexts, tuple[Any, ...]]:
    """Return the contexts that have rows for two halves, and the names of the others; raise if fewer than two do."""
    names = contexts.names.tolist()
    if len(names) < 2:
        raise ValueError(
            f"context_dependence() asks whether axes differ between contexts, and there is one, {quoted(names)}; pass "
            "y with a label for each row, or use PCA."
        )
    enough = contexts.n_samples >= MIN_ROWS
    judged = [name for name, kept in zip(names, enough.tolist(), strict=True) if kept]
    left_out = tuple(name for name, kept in zip(names, enough.tolist(), strict=True) if not kept)
    if len(judged) < 2:
        raise ValueError(
            f"context_dependence() needs two contexts with at least {MIN_ROWS} rows, two for each half, and "
            f"{len(judged)} of {len(names)} have them (fewer: {quoted(left_out)}); merge small contexts."
        )
    return contexts.in_order(judged), left_out


def fit_halves(
    contexts: Contexts, fit: FitHalf, n_splits: int, rng: np.random.Generator, report: Report
) -> list[FittedHalves]:
    """Split rows, or groups where there are some, and fit both halves of each split by ``fit(half, rng)`` -> (p, r).

    Each split and each half has its own stream of random numbers, so that the number of threads changes nothing.
    """
    halving = Halves(contexts, "auto", n_splits)
    streams = rng.spawn(halving.n_splits)
    pairs = [halving.split(i, stream) for i, stream in enumerate(streams)]
    halves = [half for pair in pairs for half in pair]
    seeds = [seed for stream in streams for seed in stream.spawn(2)]

    def fit_one(i: int) -> Array:
        try:
            return np.asarray(fit(halves[i], seeds[i]), dtype=np.float64)
        except ValueError as error:
            raise ValueError(f"Half of the {halving.by} cannot be fitted: {error}") from error

    axes = refit_in_threads(fit_one, len(halves), "halves", report)
    return [FittedHalves(*pair, (axes[2 * i], axes[2 * i + 1])) for i, pair in enumerate(pairs)]


def dependence_of(
    contexts: Contexts,
    components: Array,
    halves: FitHalf | Sequence[FittedHalves],
    *,
    n_splits: int = SPLITS,
    n_permutations: int = PERMUTATIONS,
    rng: np.random.Generator,
    report: Report,
    workers: int | None = None,
) -> ContextDependence:
    """Test the axes of halves against permuted labels, in the order of ``components`` (p, r).

    Parameters
    ----------
    contexts
        All rows, with groups and nuisance if there are some. Those with fewer than 4 rows are left out here.
    components
        Of the model that the answer is about, (p, r).
    halves
        A function that fits components (p, r) to half of the rows, ``fit(half, rng)``, or halves that were fitted:
        splits of these ``contexts`` by ``Halves`` (and without the contexts that ``judged_contexts`` leaves out).
        Their axes may be more than r: the best matches are taken.

    Notes
    -----
    ``2 n_splits`` fits to halves, O(n p r) for scores in one pass, and O(n r n_splits) a permutation. Memory
    O(n r n_splits).
    """
    contexts, left_out = judged_contexts(contexts)
    test_rng = rng.spawn(1)[0]
    fitted = fit_halves(contexts, halves, n_splits, rng, report) if callable(halves) else list(halves)
    A = np.asarray(components, dtype=np.float64)
    matched = [[_matched(half, A) for half in split.axes] for split in fitted]
    taken, sides = _sides(contexts, fitted)
    if not taken.all():
        left_out = (*left_out, *contexts.names[~taken].tolist())
        contexts = contexts.in_order(contexts.names[taken].tolist())
        sides = [side for side, kept in zip(sides, taken.tolist(), strict=True) if kept]
    if len(contexts.names) < 2:
        raise ValueError(
            "groups: fewer than two contexts have two groups or more, so that contexts cannot be told from their "
            "groups; pass smaller groups, or drop groups."
        )
    k = len(contexts.names)
    S = len(fitted)
    r = A.shape[1]
    Z = _scores(contexts, [[directions for directions, _ in pair] for pair in matched], sides)
    units = units_of_rows(contexts, test_rng) if contexts.groups is None else units_of_groups(contexts)
    test = LabelTest.of(Z, np.repeat(np.arange(k), contexts.n_samples), units, k)
    workers = n_workers() if workers is None else workers
    variances, freedom = test.variances(test.observed)
    observed = dispersion(variances, freedom)
    first, second = test_rng.spawn(2)
    null = test.permuted(dispersion, n_permutations, first, workers, report)
    p_value = _whole(observed, null, S)
    beyond = float("nan")
    if p_value <= LEVEL and r > 1:
        scaled = test.without_scale()
        relative = dispersion_beyond_scale(*scaled.variances(scaled.observed))
        n = min(n_permutations, _SCALE_PERMUTATIONS)
        beyond = _whole(relative, scaled.permuted(dispersion_beyond_scale, n, second, workers, silent), S)
    return ContextDependence(
        p_value,
        over_splits(upper_tail(observed, null).reshape(S, r)),
        observed.reshape(S, r).mean(axis=0),
        null.mean(axis=0).reshape(S, r).mean(axis=0),
        variances.reshape(k, S, r).mean(axis=1),
        contexts.names,
        contexts.n_samples,
        np.mean([cosines for pair in matched for _, cosines in pair], axis=0),
        beyond,
        len(fitted),
        n_permutations,
        "rows" if contexts.groups is None else "groups",
        left_out,
        _between_halves(fitted, A),
    )


def _between_halves(fitted: Sequence[FittedHalves], A: Array) -> Array | None:
    """Return |cos| (s, r) between the axes of both halves, in the order of A; None for halves of another rank."""
    if any(half.shape != A.shape for split in fitted for half in split.axes):
        return None
    return np.stack([agreement_of_halves(*split.axes, A) for split in fitted])


def _whole(observed: Array, null: Array, n_splits: int) -> float:
    """Return the p-value of all axes together, from statistics (s r,) and their null (n, s r)."""
    parts = np.split(np.arange(len(observed)), n_splits)
    return float(over_splits(np.array([tail_of_sum(observed[part], null[:, part]) for part in parts])))


def _matched(half: Array, A: Array) -> tuple[Array, Array]:
    """Return directions (p, r) that give the scores on those axes of a half which match A, and their |cos|.

    They are those of all axes of the half, so that what others have of a row is taken off.
    """
    matching = match_components(half, A)
    return np.linalg.pinv(half).T[:, matching.indices], matching.cosines


def _sides(contexts: Contexts, fitted: Sequence[FittedHalves]) -> tuple[Array, list[Array]]:
    """Return which contexts are in all splits (k,), and for each its rows' sides (n_i, s): 0, 1, or -1 for neither."""
    sides = [np.full((n, len(fitted)), -1, dtype=np.int8) for n in contexts.n_samples.tolist()]
    place = {name: i for i, name in enumerate(contexts.names.tolist())}
    for s, split in enumerate(fitted):
        for side, half in enumerate(split[:2]):
            for name, rows in zip(half.names.tolist(), half.rows, strict=True):
                if name in place:
                    sides[place[name]][np.isin(_numbers(contexts.rows[place[name]]), _numbers(rows)), s] = side
    return np.array([bool((of_context >= 0).any(axis=0).all()) for of_context in sides]), sides


def _numbers(rows: slice | Array) -> Array:
    return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows


def _scores(contexts: Contexts, directions: Sequence[Sequence[Array]], sides: Sequence[Array]) -> Array:
    """Return scores (n, s r) of rows on the axes of the half that they are not in, centred and with mean square 1.

    ``directions[s][h]`` (p, r) are those of half h of split s.
    """
    S = len(directions)
    # (p, s 2 r): scores on all axes by one product, of which each row keeps those of the half that it is not in.
    side_by_side = np.hstack([half for pair in directions for half in pair])
    bases = None if contexts.nuisance is None else context_bases(contexts.nuisance)
    # Of rows on other machines only the scores come here.
    projected = None if contexts.engine is None else contexts.here(side_by_side)
    whole: dict[int, Array] = {}
    parts: list[Array] = []
    for i, of_context in enumerate(sides):
        source = contexts.sources[i]
        if projected is not None:
            scores = projected.dense_block(i)
        elif source.in_memory:
            scores = np.asarray(contexts.block(i) @ side_by_side)
        else:
            # Files are read once, in order, for all their contexts.
            if id(source) not in whole:
                whole[id(source)] = projected_rows(source, side_by_side)
            scores = whole[id(source)][contexts.rows[i]]
        if not np.isfinite(scores).all():
            contexts.check_finite(i)
        n = len(scores)
        scores = scores - scores.mean(axis=0)
        if bases is not None:
            scores = bases[i].residual(scores) * np.sqrt((n - 1) / max(n - 1 - bases[i].rank, 1))
        both = scores.reshape(n, S, 2, -1)
        # A row of half 0 has its scores on the axes of half 1, and the reverse.
        parts.append(np.where(of_context[:, :, None] == 0, both[:, :, 1], both[:, :, 0]))
    Z = np.concatenate(parts)
    side = np.concatenate(list(sides))
    for s in range(S):
        for half in (0, 1):
            members = side[:, s] == half
            of_half = Z[members, s]
            # By the largest first, so that squares of very large or small numbers stay in range.
            size = np.abs(of_half).max(axis=0, initial=0)
            of_half = of_half / np.where(size > 0, size, 1.0)
            root = np.sqrt(np.mean(of_half**2, axis=0))
            Z[members, s] = of_half / np.where(root > 0, root, 1.0)
    return Z.reshape(len(Z), -1)


def context_dependence_of_fit(
    model: FittedModel,
    unfitted: Any,
    X: Any,
    y: Any,
    n_splits: Any,
    n_permutations: Any,
    random_state: Any,
    report: Report,
    *,
    groups: Any = None,
    batch: Any = None,
    covariates: Any = None,
    n_jobs: Any = None,
) -> ContextDependence:
    """Test the MCPCs of a fitted model; see ``MCPCA.context_dependence``. ``unfitted`` is fitted to halves."""
    n_splits = check_integer(n_splits, "n_splits", 1)
    n_permutations = check_integer(
        n_permutations, "n_permutations", 19, way_out="With fewer, no p-value is below 0.05."
    )
    if n_jobs is not None and n_jobs != -1:
        check_integer(n_jobs, "n_jobs", 1, way_out="None or -1 uses all cores.")
    refuse_without_rows(X)
    model.refuse_missing("context_dependence()", "Fit rows without missing features, or fill the missing values.")
    contexts = checked_groups(read_fitted_contexts(model, X, y, groups=groups, batch=batch, covariates=covariates))
    A = np.asarray(to_host(model.components), dtype=np.float64)
    unfitted = by_context(unfitted, contexts)

    def fit(half: Contexts, rng: np.random.Generator) -> Array:
        return np.asarray(to_host(refit(unfitted, half, rng).components_))

    return dependence_of(
        contexts,
        A,
        fit,
        n_splits=n_splits,
        n_permutations=n_permutations,
        rng=as_generator(random_state),
        report=report,
        workers=None if n_jobs in (None, -1) else int(n_jobs),
    )
