"""Moments of rows with missing values: of the features that a context has, or pairwise.

Rows come as ``Contexts`` with NaN for what is missing and are read twice, in blocks, so that memory is O(k p^2) and a
block. ``whole_features`` takes contexts of which whole features are missing. ``pairwise`` takes any pattern: with
indicators m_f of values that are there, values z centred by the mean of those, and N = m^T m the rows of each pair,

    C_fg = (sum z_f z_g - (sum z_f m_g)(sum z_g m_f) / N_fg) / (N_fg - 1),

the covariance over rows that have both, projected to the nearest positive semi-definite matrix where need be. Pairwise
covariances are unbiased if values are missing completely at random.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._data.contexts import Contexts
from .._utils.stages import uneven
from .._utils.types import Array, Report
from .._utils.wording import listed, quoted

_BLOCK_BYTES = 2**25  # of rows that are read at a time


@dataclass(frozen=True)
class ObservedMoments:
    """Covariances (k, p, p), 0 where a feature is missing, mask (k, p), means (k, p) with NaN there, counts (k,)."""

    covariances: Array
    mask: Array
    means: Array
    counts: Array

    def features(self, keep: Array) -> ObservedMoments:
        """Return the moments of some features, a mask (p,)."""
        return replace(
            self,
            covariances=self.covariances[:, keep][:, :, keep],
            mask=self.mask[:, keep],
            means=self.means[:, keep],
        )


def whole_features(contexts: Contexts, missing: str, report: Report) -> ObservedMoments:
    """Return the moments of contexts of which whole features are missing; a feature that is NaN in part is an error."""
    sums, counts = _sums(contexts, report)
    n = contexts.n_samples[:, None]
    partly = (counts > 0) & (counts < n)
    if partly.any():
        i = int(partly.any(axis=1).argmax())
        names = _names(contexts, np.flatnonzero(partly[i]))
        raise ValueError(
            f"missing={missing!r} is for whole features, and context {contexts.names.tolist()[i]!r} has NaN in some of "
            f"its rows only, in {partly[i].sum()} features: {quoted(names)}. Pass missing='em' with solver='ml', or "
            "missing='pairwise'; or impute these values."
        )
    mask = counts > 0
    means = np.where(mask, sums / np.maximum(counts, 1), np.nan)
    S = np.zeros((*mask.shape, mask.shape[1]))
    for i, block in _blocks(contexts):
        Z = np.where(mask[i], block - means[i], 0)
        S[i] += Z.T @ Z
    S /= (contexts.n_samples - 1.0)[:, None, None]
    return _checked(contexts, ObservedMoments(S, mask, means, contexts.n_samples))


def pairwise(contexts: Contexts, missing: str, report: Report) -> ObservedMoments:
    """Return pairwise moments; features that a context lacks altogether are outside of its mask."""
    sums, counts = _sums(contexts, report)
    mask = counts > 0
    means = np.where(mask, sums / np.maximum(counts, 1), np.nan)
    k, p = mask.shape
    S = np.empty((k, p, p))
    products = np.zeros((p, p))
    one_sided = np.zeros((p, p))
    pairs = np.zeros((p, p))
    for i in range(k):
        for total in (products, one_sided, pairs):
            total[:] = 0
        for _, block in _blocks(contexts, i):
            seen = ~np.isnan(block)
            Z = np.where(seen, block - means[i], 0)
            there = seen.astype(np.float64)
            products += Z.T @ Z
            one_sided += Z.T @ there
            pairs += there.T @ there
        own = np.outer(mask[i], mask[i])
        few = own & (pairs < 2)
        if few.any():
            f, g = np.argwhere(few)[0]
            first, second = _names(contexts, np.array([f, g]))
            raise ValueError(
                f"missing={missing!r}: context {contexts.names.tolist()[i]!r} has {int(pairs[f, g])} rows with both "
                f"{first!r} and {second!r}, and a covariance needs 2 of them. Drop one of the two, or the context."
            )
        N = np.maximum(pairs, 2)
        S[i] = np.where(own, (products - one_sided * one_sided.T / N) / (N - 1), 0)
        S[i] = nearest_psd(S[i])
    return _checked(contexts, ObservedMoments(S, mask, means, contexts.n_samples))


def nearest_psd(S: Array) -> Array:
    """Return the positive semi-definite matrix that is nearest to a symmetric one: eigenvalues below 0 become 0."""
    w, Q = np.linalg.eigh((S + S.T) / 2)
    if w[0] >= 0:
        return S
    return np.asarray((Q * np.maximum(w, 0)) @ Q.T)


def _sums(contexts: Contexts, report: Report) -> tuple[Array, Array]:
    """Return the sums and the numbers of values (k, p); raise for infinite values and contexts without any."""
    k, p = len(contexts.names), contexts.n_features
    sums = np.zeros((k, p))
    counts = np.zeros((k, p))
    for i, block in _blocks(contexts):
        seen = ~np.isnan(block)
        values = np.where(seen, block, 0)
        if not np.isfinite(values).all():
            names = _names(contexts, np.flatnonzero(~np.isfinite(values).all(axis=0)))
            raise ValueError(
                f"X, context {contexts.names.tolist()[i]!r}, has infinite (inf) values in feature(s) {listed(names)}; "
                "make them NaN, which stands for missing values, or drop them."
            )
        sums[i] += values.sum(axis=0)
        counts[i] += seen.sum(axis=0)
        report(uneven("rows"), i + 1, k)
    empty = np.flatnonzero(~counts.any(axis=1))
    if len(empty):
        names = [contexts.names.tolist()[i] for i in empty]
        raise ValueError(f"Contexts {quoted(names)} have no feature at all: every value is missing. Drop them.")
    return sums, counts


def _blocks(contexts: Contexts, only: int | None = None) -> Iterator[tuple[int, Any]]:
    """Yield (context, dense block of its rows in float64), for all contexts or one."""
    size = max(1, _BLOCK_BYTES // (8 * contexts.n_features))
    for i in range(len(contexts.names)) if only is None else [only]:
        n = int(contexts.n_samples[i])
        for start in range(0, n, size):
            yield i, contexts.block_rows(i, start, min(start + size, n)).astype(np.float64, copy=False)


def _names(contexts: Contexts, columns: Array) -> list[Any]:
    return list(columns.tolist() if contexts.feature_names is None else contexts.feature_names[columns].tolist())


def _checked(contexts: Contexts, moments: ObservedMoments) -> ObservedMoments:
    if not np.isfinite(moments.covariances).all():
        raise ValueError("X has values whose squares are out of the range of float64; divide it by a constant.")
    return moments
