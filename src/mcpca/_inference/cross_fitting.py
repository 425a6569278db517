"""Loadings in rows that the axes were not fitted to, and what axes lose there: for features near or above the rows.

In p features an axis fitted to few rows is ``c a + e``: it has a cosine c to the truth a, and its error e, which points
into p directions, is fitted to the noise of these rows. In the same rows e finds variance, so that loadings are too
large, by a share of about ``tan^2`` of the angle; in unseen rows e finds none, and they are too small by ``c^2``.

Here rows are divided into parts. Axes are fitted to all parts but one (``_Unseen``), and in that one, whose
covariances S_i are independent of them, for axes a_j with the dual vectors f_j (``f_j . a_l = 0`` for l other than j):

    a_j^T S_i a_j - s_i         has the mean  c^2 b_ij
    v = sum_i w_i (S_i - s_i) f_j    has the mean  c (sum_i w_i b_ij) a

The second is a power step from the axis towards the truth, and a new error that does not know that of the axis. With
the same v' from other rows, ``(a_j . v) (a_j . v') / (v . v')`` has the ratio of means ``c^2``: what axes lose is
measured, without any assumption on noise or on the size of errors. Loadings are the first line divided by it.

The axes of the whole fit are better than those of its parts. For one spike of ``d`` times the noise in n rows,
``tan^2 = g (1 + d) / (d^2 - g)`` with ``g = p / n``; a share q of the rows has g / q, and eliminating g gives
``t_whole = q t (1 + d) / (1 + d + t (1 - q))`` for ``t = tan^2`` of the parts. ``attenuation`` is
``1 / (1 + t_whole)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from .._covariances.fit_data import FitData, without_basis
from .._covariances.scaling import in_range
from .._data.contexts import Contexts
from .._linalg.canonical import match_components
from .._model.fitted_model import FittedModel
from .._solvers.floor import own_floor
from .._solvers.loadings import solve_loadings
from .._utils.array_api import like, to_host
from .._utils.component_names import mcpc_name
from .._utils.progress import silent
from .._utils.types import Array, Report
from .._utils.user_warnings import warn
from .._utils.wording import listed
from ..exceptions import InflatedLoadingsWarning
from .replication import check_halves, refit_in_threads
from .sampling import MIN_ROWS, GroupDesign, split_parts

# Parts of the rows: axes are fitted to all but one. With more, axes are closer to those of the whole fit, but there are
# as many fits, and fewer rows in which to look at them. Contexts with fewer than two rows a part make for fewer parts.
_MOST_PARTS = 5
# How far ``tan^2`` of single MCPCs is from what the theory of their signal and noise says, once that is calibrated on
# all of them; a share. It decides how much a noisy measurement is drawn towards the theory.
_THEORY_ERROR = 0.3
# Share of fitted loadings that has to be left in unseen rows; with less, parts of the rows do not find the MCPC at all.
_LEAST_LEFT = 0.1
# How often unseen rows are divided into halves: pairs of rows in different halves are what is measured by, and one time
# leaves half of the pairs unused. It costs two passes over the unseen rows, and no fit.
_HALVINGS = 4
_ROUNDS = 30  # between loadings and noise, each a contraction by about r / p
_LEAST_NOISE = 1e-9  # of the largest loading: less does not move an axis
# Expected share of loadings that is noise above which users are told.
_MOST_INFLATION = 0.1

Refit = Callable[[Contexts, np.random.Generator], FittedModel]


class _Half(NamedTuple):
    """Half of the unseen rows, and which contexts count there (k,)."""

    rows: Contexts
    counted: Array


class _Part(NamedTuple):
    """Rows that axes are fitted to, the others, and these divided into halves in some ways."""

    fitted: Contexts
    unseen: Contexts
    halvings: list[tuple[_Half, _Half]]


class _Unseen(NamedTuple):
    """What axes find in rows that they were not fitted to; r axes in the order of the model's.

    Attributes
    ----------
    freedom : ndarray (k,)
        Unseen rows of each context, less one for the mean.
    along : ndarray (k, r)
        Variances along the axes.
    traces : ndarray (k,)
    overlaps : ndarray (r,)
        ``(a_j . v) (a_j . v')``, summed over the ways to divide the rows into halves.
    lengths : ndarray (r,)
        ``v . v'``, likewise.
    """

    freedom: Array
    along: Array
    traces: Array
    overlaps: Array
    lengths: Array


def cross_fitted(
    model: FittedModel, contexts: Contexts, n_splits: int, rng: np.random.Generator, refit: Refit, report: Report
) -> FittedModel:
    """Return ``model`` with cross-fitted ``corrected_loadings``, and with the ``attenuation`` of its components.

    Parameters
    ----------
    contexts
        The rows that the model was fitted on.
    n_splits : int
        How often the rows are divided at random.
    refit
        Fits some of the rows, with the parameters and the rank of the model; the caller's, since fits are above here.

    Notes
    -----
    Takes ``5 n_splits`` fits to four fifths of the rows, fewer and smaller ones if contexts have fewer than ten rows;
    as many at a time as BLAS has threads. Each split has its own stream of random numbers.
    """
    contexts, e = in_range(contexts)
    A = to_host(model.components).astype(np.float64)
    streams = rng.spawn(n_splits)
    n_parts = _MOST_PARTS
    divided = [_parts(contexts, n_parts, stream) for stream in streams]
    # The same number in every split, by which splits are averaged. Groups that are not in all contexts may be divided
    # into more parts in some splits than in others.
    while len({len(parts) for parts in divided} | {n_parts}) > 1:
        n_parts = min(map(len, divided))
        divided = [
            parts if len(parts) == n_parts else _parts(contexts, n_parts, stream)
            for parts, stream in zip(divided, streams, strict=True)
        ]
    parts = [part for of_split in divided for part in of_split]
    seeds = [seed for stream in streams for seed in stream.spawn(n_parts)]

    def look(i: int) -> _Unseen:
        try:
            fitted = refit(parts[i].fitted, seeds[i])
        except ValueError as error:
            raise ValueError(
                f"cross_fit={n_splits}: {n_parts - 1} of {n_parts} parts of the rows cannot be fitted with "
                f"{A.shape[1]} components: {error}"
            ) from error
        return _unseen(parts[i], fitted, A)

    looks = refit_in_threads(look, len(parts), "cross-fit", report)
    freedom = np.array([one.freedom for one in looks])
    total = freedom.sum(axis=0)
    along = np.einsum("fk,fkj->kj", freedom, np.array([one.along for one in looks])) / total[:, None]
    traces = np.einsum("fk,fk->k", freedom, np.array([one.traces for one in looks])) / total
    overlaps = np.array([one.overlaps for one in looks]).reshape(n_splits, n_parts, -1)
    lengths = np.array([one.lengths for one in looks]).reshape(n_splits, n_parts, -1)
    # The model is in the units of the data, and all here in those of rows times 2^-e.
    noise = np.ldexp(to_host(model.noise_variance).astype(np.float64), -2 * e)
    start = np.ldexp(model.compared_loadings().astype(np.float64), -2 * e)
    expected = _expected_tangents(start, _levels(noise, model.noise), contexts.n_samples, A.shape)
    tangents = _measured_tangents(overlaps, lengths, expected)
    B, levels = _loadings(A, along * (1 + tangents), 1 + tangents, traces, noise, model.noise)
    _warn_of_lost((along - levels[:, None]).sum(axis=0), start.sum(axis=0))
    attenuation = 1 / (1 + _of_the_whole(tangents, 1 - 1 / n_parts, B, levels))
    dtype = to_host(model.loadings).dtype
    return replace(
        model,
        corrected_loadings=like(np.ldexp(B, 2 * e).astype(dtype, copy=False), model.loadings),
        attenuation=like(attenuation.astype(dtype, copy=False), model.loadings),
    )


def check_cross_fit(contexts: Contexts, n_splits: int, rank: int | None) -> None:
    """Raise if the rows cannot be cross-fitted; nothing has been fitted yet."""
    if rank is not None and rank == contexts.n_features:
        raise ValueError(
            f"cross_fit={n_splits} needs n_components < n_features, and both are {rank}: noise is seen outside the "
            "MCPCs only. Lower n_components, or pass cross_fit=0."
        )
    check_halves(contexts, f"pass cross_fit=0 in place of {n_splits}")
    if contexts.groups is not None:
        GroupDesign.of(contexts).check_several(
            f"cross_fit={n_splits}", "Drop these contexts, drop groups, or pass cross_fit=0."
        )


def _parts(contexts: Contexts, most: int, stream: np.random.Generator) -> list[_Part]:
    """Divide the rows of every context at random into at most ``most`` parts, or its groups if it has some."""
    if contexts.groups is None:
        n_parts = min(most, int(contexts.n_samples.min()) // 2)
        orders = [stream.permutation(n) for n in contexts.n_samples.tolist()]
        # Part q of a context are every n_parts-th of its shuffled rows; in the order of the rows, which is read
        # fastest.
        unseen = [[np.sort(order[q::n_parts]) for order in orders] for q in range(n_parts)]
    else:
        unseen = split_parts(contexts, most, stream)
    parts = []
    for rows in unseen:
        fitted = [np.setdiff1d(np.arange(n), held) for n, held in zip(contexts.n_samples.tolist(), rows, strict=True)]
        halvings = [_halves(contexts, rows, stream) for _ in range(_HALVINGS)]
        parts.append(_Part(contexts.take(fitted), contexts.take(rows), halvings))
    return parts


def _halves(contexts: Contexts, rows: list[Array], stream: np.random.Generator) -> tuple[_Half, _Half]:
    """Divide some ``rows`` of each context at random, so that no row counts in both halves, and no group."""
    sides = None
    if contexts.groups is not None:
        # Of all groups: those outside of ``rows`` do not matter. A group is on one side in all contexts.
        sides = stream.integers(2, size=len(contexts.groups.names))
    first = []
    second = []
    counted = np.ones((2, len(rows)))
    for i, held in enumerate(rows):
        if sides is None:
            mixed = stream.permutation(held)
            halves = [np.sort(mixed[: len(held) // 2]), np.sort(mixed[len(held) // 2 :])]
        else:
            assert contexts.groups is not None
            side = sides[contexts.groups.codes[i][held]]
            halves = [held[side == 0], held[side == 1]]
        if min(map(len, halves)) >= MIN_ROWS // 2:
            first.append(halves[0])
            second.append(halves[1])
        else:
            # Too few for two covariances: they count in one of the halves only, of groups the one with most of them.
            without = stream.integers(2) if sides is None else int(len(halves[0]) > len(halves[1]))
            most = halves[1 - without]
            kept = held if sides is None or len(most) < MIN_ROWS // 2 else most
            first.append(kept)
            second.append(kept)
            counted[without, i] = 0
    return _Half(contexts.take(first), counted[0]), _Half(contexts.take(second), counted[1])


def _unseen(part: _Part, fitted: FittedModel, reference: Array) -> _Unseen:
    """Look at unseen rows along fitted axes."""
    match = match_components(fitted.components, reference)
    A = to_host(fitted.components)[:, match.indices].astype(np.float64)
    B = fitted.compared_loadings()[:, match.indices].astype(np.float64)
    data = without_basis(part.unseen, A.shape[1], silent)
    along = _in_units(data, data.covariances.variances_along(A))
    traces = _in_units(data, data.covariances.traces())
    noise = _noise_of_unseen(fitted, A, along, traces)  # (k, 1) or (k, p)
    dual = np.linalg.pinv(A).T
    # Contexts count by how much of an MCPC they have: those without it would add nothing but noise.
    weights = B / np.maximum((B**2).sum(axis=0), np.finfo(float).tiny)
    overlaps = np.zeros(A.shape[1])
    lengths = np.zeros(A.shape[1])
    for halves in part.halvings:
        first, second = (_power_step(half, dual, weights, noise) for half in halves)
        overlaps += (A * first).sum(axis=0) * (A * second).sum(axis=0)
        lengths += (first * second).sum(axis=0)
    assert data.counts is not None
    return _Unseen(np.maximum(data.counts - 1.0, 0.0), along, traces, overlaps, lengths)


def _power_step(half: _Half, dual: Array, weights: Array, noise: Array) -> Array:
    """Return ``sum_i w_ij (S_i - s_i) f_j`` (p, r)."""
    rows = without_basis(half.rows, dual.shape[1], silent)
    w = weights * half.counted[:, None]
    return np.asarray(_in_units(rows, rows.covariances.combine(dual, w)) - (noise.T @ w) * dual)


def _in_units(data: FitData, values: Array) -> Array:
    """Return variances of ``data`` in the units of the rows that were handed to it."""
    return np.asarray(np.ldexp(values, 2 * data.exponent))


def _noise_of_unseen(fitted: FittedModel, A: Array, along: Array, traces: Array) -> Array:
    """Return the noise variances of unseen rows, (k, 1) or (k, p)."""
    if fitted.noise in (None, "isotropic"):
        return np.asarray(own_floor(A, along, traces).noise[:, None])
    # Noise that contexts or features share is known better from all other rows.
    noise = to_host(fitted.noise_variance).astype(np.float64)
    if fitted.noise == "diagonal":
        return np.broadcast_to(noise, (len(along), len(noise)))
    return np.asarray(noise if fitted.noise == "scaled" else noise[:, None])


def _levels(noise: Array, kind: str | None) -> Array:
    """Return the mean noise variance of contexts: (k,), or (1,) if they all share it."""
    if kind == "diagonal":
        return np.asarray(noise.mean(keepdims=True))
    return np.asarray(noise.mean(axis=1) if noise.ndim == 2 else noise)


def _expected_tangents(B: Array, s: Array, n: Array, shape: tuple[int, ...]) -> Array:
    """Return the expected ``tan^2`` (r,) of MCPCs due to directions outside their span, to first order.

    In each of these p - r directions, rows of context i have the information ``n_i b^2 / (s_i (b + s_i))`` on an axis.
    """
    p, r = shape
    # Without noise axes are exact; the bound only keeps the ratio finite.
    s = np.maximum(s[:, None], _LEAST_NOISE * max(float(B.max(initial=0)), np.finfo(float).tiny))
    strength = n[:, None] * B**2 / np.maximum(s * (B + s), np.finfo(float).tiny)
    return np.asarray((p - r) / np.maximum(strength.sum(axis=0), np.finfo(float).tiny))


def _measured_tangents(overlaps: Array, lengths: Array, expected: Array) -> Array:
    """Return ``tan^2`` (r,) from looks at unseen rows (splits, parts, r), noisy ones drawn towards the expected.

    ``lengths / overlaps`` estimates ``1 / c^2 = 1 + tan^2``. Its error is that of sums over the parts of a split; other
    splits are of the same rows. What is expected counts up to a common factor, by which solvers differ.
    """
    n_splits = len(overlaps)
    sums = overlaps.sum(axis=(0, 1))
    seen = sums > 0  # others are not found in unseen rows at all
    safe = np.where(seen, sums, 1.0)
    measured = np.where(seen, (lengths.sum(axis=(0, 1)) - sums) / safe, 0.0)
    residuals = lengths - (1 + measured) * overlaps
    variances = (residuals**2).sum(axis=1).sum(axis=0) * n_splits / safe**2
    precision = np.where(seen, 1 / np.maximum(variances, np.finfo(float).tiny), 0.0)
    # Least squares through the origin.
    slope = (precision * measured * expected).sum() / max((precision * expected**2).sum(), np.finfo(float).tiny)
    theory = max(slope, 0.0) * expected if seen.any() else expected
    trust = 1 / np.maximum((_THEORY_ERROR * theory) ** 2, np.finfo(float).tiny)
    # The two are weighted by their precisions.
    return np.maximum((precision * measured + trust * theory) / (precision + trust), 0)


def _loadings(
    A: Array, along: Array, factors: Array, traces: Array, noise: Array, kind: str | None
) -> tuple[Array, Array]:
    """Return loadings (k, r), and noise levels (k,) or (1,), from variances along axes times ``factors`` (r,).

    Variances along axes have all of the noise but only ``c^2 = 1 / factors`` of the loadings. The trace has all of
    both: ``tr S_i = sum_j b_ij + p s_i``.
    """
    G = (A.T @ A) ** 2
    if kind in ("diagonal", "scaled"):
        # A row of noise (k, p), or one for all contexts (p,).
        B = solve_loadings(G, along - (noise @ A**2) * factors)
        return B, _levels(noise, kind)
    s = traces / len(A)
    B = np.zeros_like(along)
    for _ in range(_ROUNDS):
        before = s
        B = solve_loadings(G, along - s[:, None] * factors)
        s = np.maximum(traces - B.sum(axis=1), 0) / len(A)
        if kind == "pooled":
            s = np.full_like(s, s.mean())
        if np.abs(s - before).max() <= 1e-12 * s.max():
            break
    return B, s


def _of_the_whole(tangents: Array, share: float, B: Array, s: Array) -> Array:
    """Return ``tan^2`` (r,) of axes that are fitted to all rows and not to a ``share`` of them."""
    squares = (B**2).sum(axis=0)
    # Without noise axes are exact; the bound only keeps the ratio finite.
    noise = np.maximum((B * s[:, None]).sum(axis=0), _LEAST_NOISE * squares)
    signal = squares / np.maximum(noise, np.finfo(float).tiny)
    return np.asarray(share * tangents * (1 + signal) / (1 + signal + tangents * (1 - share)))


def _warn_of_lost(unseen: Array, fitted: Array) -> None:
    """Warn of MCPCs whose loadings (r,), summed over contexts, are hardly there in unseen rows."""
    lost = unseen <= _LEAST_LEFT * fitted
    if lost.any():
        names = listed([mcpc_name(j) for j in np.flatnonzero(lost).tolist()])
        warn(
            f"Parts of the rows do not find {names}: less than {_LEAST_LEFT:.0%} of the loadings is left in unseen "
            "rows, and cross-fitted loadings are guesses. Lower n_components, or take fewer features.",
            InflatedLoadingsWarning,
        )


def expected_inflation(model: FittedModel) -> Array | None:
    """Return by which share (r,) the loadings of each MCPC are expected to be too large; None if it cannot be known.

    An axis that fits the noise of its own rows at ``tan^2`` of its angle finds about that share of variance there. At
    most 1, where theory ends; 0 for cross-fitted loadings.
    """
    if model.n_samples is None or model.noise_variance is None or model.corrected_loadings is None:
        return None
    if model.attenuation is not None or model.n_features == model.n_components:
        return np.zeros(model.n_components)
    B = model.compared_loadings().astype(np.float64)
    s = _levels(to_host(model.noise_variance).astype(np.float64), model.noise)
    # Shares have no unit, but their squares do.
    size = max(float(B.max()), float(s.max()), np.finfo(float).tiny)
    shape = (model.n_features, model.n_components)
    inflation = np.zeros(model.n_components)
    # Loadings are inflated already: the expected share is one that leaves the loadings from which it follows.
    for _ in range(_ROUNDS):
        B_less = B / size / (1 + inflation)
        inflation = np.minimum(_expected_tangents(B_less, s / size, model.n_samples, shape), 1)
    return inflation


def warn_of_inflation(model: FittedModel) -> None:
    """Warn if loadings are expected to contain much noise that axes have fitted, which no interval knows of."""
    inflation = expected_inflation(model)
    if inflation is None or not (inflation > _MOST_INFLATION).any():
        return
    many = np.flatnonzero(inflation > _MOST_INFLATION)
    names = listed([mcpc_name(j) for j in many.tolist()])
    counts = model.counts("cross_fit")
    worst = float(inflation.max())
    warn(
        f"{model.n_features:,} features and {counts.mean():,.0f} rows in the average context: loadings of {names} are "
        f"expected to be too large, by up to about {worst:.0%}{' or more' if worst == 1 else ''}, because axes fit "
        "noise of the rows that loadings are taken from. Fit with cross_fit=5, or to fewer features (principal "
        "components of the rows), or pool contexts.",
        InflatedLoadingsWarning,
    )
