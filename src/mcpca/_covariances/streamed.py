"""Covariances that are never formed: products with them are passes over the rows.

``fit_data_of_rows`` makes ``StreamedCovariances`` where an array (k, p, p) would be too large or too dear, and solvers
ask it for products as they ask ``CovarianceStack``. With ``X_i`` the rows of context i, ``m_i`` their mean and
``Z_i = (X_i - 1 m_i^T) V`` the centred scores,

    S_i V = (X_i - 1 m_i^T)^T Z_i / (n_i - 1),   V^T S_i V = Z_i^T Z_i / (n_i - 1),

so sparse rows stay sparse (only scores are centred) and memory is O(p m + k m^2) and the means, (k, p). Most passes
take rows in any order (``kernels.py``); those for the basis need the rows of a context together (``gram_passes.py``).
``passes.py`` says which passes a fit makes, and in which order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .._data.contexts import Contexts
from .._linalg import eigenbasis
from .._utils.parallel import blas_aside
from .._utils.types import Array
from . import kernels
from .gram import Gram, GramInParts
from .gram_passes import block_for, learned, multiply, multiply_and_sum_rows
from .interface import Basis, Covariances
from .pass_results import PassMemory, PassResults
from .passes import Passes, run_pass
from .row_groups import memory_limit
from .row_sample import sample_of

# Products for a basis at most, a pass each. Where the scree falls at the rank two to ten do; where it is flat there is
# no answer to converge to, and Lanczos stops when products bring little. This bound ends what converges too slowly.
_MOST_PRODUCTS = 40
# Of rows on disk this share is looked at first. A larger one costs as much of a pass, a smaller one has directions that
# are farther from the answer, and so more passes to come.
_SAMPLE_SHARE = 1 / 16
# Rows of that sample for each direction that is sought in it, at least; with fewer its directions are mostly noise, and
# random ones do as well.
_SAMPLE_ROWS_PER_DIRECTION = 10
# The leading directions of a sample are only a start for those of all rows: five products with it, which is in memory,
# are enough, and digits beyond the seventh are of no use.
_SAMPLE_PRODUCTS = 5
_SAMPLE_TOL = 1e-7


class _FirstGuess(NamedTuple):
    """``directions`` (p, s) that are probably leading, and the variances of contexts along them, ``mixture`` (k, s)."""

    directions: Array
    mixture: Array


@dataclass(frozen=True)
class StreamedCovariances:
    """``Covariances`` of rows, by passes over them.

    ``weights`` (k,) multiply the covariances and ``scale`` (p,) the features; ``means`` (k, p) are those of the rows as
    they are. ``sketch`` (p, s) is a first guess of the leading directions, from the pass that found the means. None of
    these change. What does are ``passes``, which count, and ``_memory``, with what passes have found that may be asked
    for again.
    """

    contexts: Contexts
    passes: Passes
    means: Array
    sketch: Array
    weights: Array
    scale: Array | None = None
    _memory: PassMemory = field(default_factory=PassMemory)

    @classmethod
    @blas_aside()
    def of(cls, contexts: Contexts, width: int, passes: Passes) -> StreamedCovariances:
        """Find means, and sketch ``[S_1 ... S_k]`` with ``width`` combinations of its columns: one pass.

        Column l of the sketch is ``sum_i w_il S_i x_l``. In the model that is ``A diag(sum_i w_il b_i) A^T x_l``: some
        combination of all components. Where rows are read from disk, x are the leading directions of some of them and
        w the variances along these, which saves a later pass or two; otherwise both are random. And where each context
        fits into memory, the sketch is ``sum_i S_i S_i x_l``: the pass is then the first one for the basis as well.
        """
        width = min(width, contexts.n_features)
        guess = cls._first_look(contexts, width, passes)
        if guess is None:
            return cls._with_sketch(contexts, _random_guess(contexts, width), passes)
        if (contexts.context_bytes() <= memory_limit()).all():
            return cls._with_first_product(contexts, guess.directions, passes)
        return cls._with_sketch(contexts, guess, passes)

    @classmethod
    def with_means(cls, contexts: Contexts, passes: Passes) -> StreamedCovariances:
        """Find means alone, where no basis will be asked for: one pass."""
        means = context_means(contexts, passes)
        return cls(contexts, passes, means, np.empty((contexts.n_features, 0)), np.ones(len(means)))

    @classmethod
    def _with_first_product(cls, contexts: Contexts, V: Array, passes: Passes) -> StreamedCovariances:
        """Find means and ``G V`` for an orthonormal V in one pass over contexts that fit into memory."""
        ones = np.ones(len(contexts.names))
        block = block_for(V, PassResults(), len(ones))
        dtype = contexts.dtype
        factors = _scatter_factors(contexts, ones)
        gram = Gram(block.directions.astype(dtype), block.s, factors, None, block.seen.astype(dtype))
        totals, row_sums = multiply_and_sum_rows(contexts, passes, gram)
        results = learned(PassResults(), block, totals).with_products(V, totals.product)
        passes.room.clear()
        means = row_sums / contexts.n_samples[:, None]
        return cls(contexts, passes, means, totals.product, ones, _memory=PassMemory(results))

    @classmethod
    def _with_sketch(cls, contexts: Contexts, guess: _FirstGuess, passes: Passes) -> StreamedCovariances:
        """Find means and ``sum_i w_il S_i x_l`` in one pass over rows in any order."""
        k, p = len(contexts.names), contexts.n_features
        directions = guess.directions
        mixture = guess.mixture / np.maximum(contexts.n_samples - 1.0, 1.0)[:, None]
        kernel = partial(
            kernels.row_sums_and_sketch,
            kernels.adds_by_entry(contexts),
            directions.astype(contexts.dtype),
            mixture.astype(contexts.dtype),
        )
        row_sums = np.zeros((k, p))
        uncentred = np.zeros((p, directions.shape[1]))
        run_pass(contexts, passes, "means", kernel, [row_sums, uncentred])
        means = row_sums / contexts.n_samples[:, None]
        # Means were not known in the pass. To take them off afterwards loses digits where they are large, which matters
        # little here: the sketch decides how many passes follow, and not their answer.
        sketch = uncentred - means.T @ ((means @ directions) * mixture * contexts.n_samples[:, None])
        return cls(contexts, passes, means, sketch, np.ones(k))

    @classmethod
    def _first_look(cls, contexts: Contexts, width: int, passes: Passes) -> _FirstGuess | None:
        """Return the leading eigenvectors (p, width) of ``sum_i S_i`` of a sample of rows on disk, None without one."""
        sample = sample_of(contexts, _SAMPLE_SHARE, _SAMPLE_ROWS_PER_DIRECTION * width)
        if sample is None:
            return None
        passes.report("a first look", 0, 1)
        rows = cls.of(sample.contexts, width, Passes.silent())  # in memory: no further sample
        alike = np.ones((len(sample.chosen), width))
        leading = eigenbasis.top_eigenvectors(
            lambda V: rows.combine(V, alike[:, : V.shape[1]]),
            rows.sketch,
            width,
            width,
            tol=_SAMPLE_TOL,
            eps=_SAMPLE_TOL,
            most=_SAMPLE_PRODUCTS,
        )
        variances = rows.variances_along(leading.vectors)
        # Contexts with no row in the sample are taken to be like the average of the others.
        mixture = np.tile(variances.mean(axis=0), (len(contexts.names), 1))
        mixture[sample.chosen] = variances
        passes.report("a first look", 1, 1)
        return _FirstGuess(leading.vectors, mixture)

    @property
    def n_contexts(self) -> int:
        """Number of contexts, k."""
        return len(self.contexts.names)

    @property
    def n_features(self) -> int:
        """Number of features, p."""
        return self.contexts.n_features

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 when all rows are, float64 otherwise."""
        return self.contexts.dtype

    @property
    def known(self) -> PassResults:
        """What passes have found so far."""
        return self._memory.results

    @blas_aside()
    def basis(self, q: int, r: int) -> Basis:
        """Return the top ``q`` left singular vectors of ``[S_1 ... S_k]`` by block Lanczos, a pass for each product."""
        # Lanczos is content with residuals of 8 eps of the largest eigenvalue: the rounding of the precision of rows.
        eps = float(np.finfo(self.dtype).eps) / 8
        width = max(min(r + eigenbasis.SPARE, self.n_features), -(-q // 2))
        start = self.known.multiplied
        if start is None or start.shape[1] < width:
            start = self._first_block(width)

        def times(V: Array) -> Array:
            product = self.known.product(V)  # of the first block, where the first pass has multiplied it
            return self._gram_times(V) if product is None else product

        top = eigenbasis.top_eigenvectors(times, start, q, r, tol=self.passes.tol, eps=eps, most=_MOST_PRODUCTS)
        self.passes.room.clear()  # no later pass gathers contexts
        return Basis(top.vectors, np.sqrt(top.values), top.residual)

    def _first_block(self, width: int) -> Array:
        """Return the sketch, cut or filled up with random directions to ``width`` columns."""
        start = self.sketch if self.scale is None else self.scale[:, None] * self.sketch
        missing = width - start.shape[1]
        if missing > 0:  # the rank was not known when the sketch was made
            more = np.random.default_rng(1).standard_normal((len(start), missing))
            # Of the size of the others: what comes out of a QR decomposition of the block depends on it.
            size = np.linalg.norm(start) / np.sqrt(max(start.size, 1))
            start = np.hstack([start, more * max(size, np.finfo(float).tiny)])
        return start[:, :width]

    def _gram_times(self, V: Array) -> Array:
        """Return ``sum_i S_i S_i V`` (p, s) for an orthonormal V, and remember what the pass brought beside it."""
        block = block_for(V, self.known, self.n_contexts)
        scaled = self._scaled_columns(block.directions)
        gram = GramInParts(
            scaled.astype(self.dtype),
            block.s,
            self._factors,
            self.scale,
            block.seen.astype(self.dtype),
            means=self.means,
            offsets=self.means @ scaled,
        )
        totals = multiply(self.contexts, self.passes, gram)
        self._memory.results = learned(self.known, block, totals)
        return self._scaled_columns(totals.product)

    def array_or_none(self) -> Array | None:
        """Return None: there are only rows."""
        return None

    @blas_aside()
    def whole(self) -> Array:
        """Return all entries (k, p, p), from rows that are made dense a block at a time."""
        k, p = self.means.shape
        scatters = np.zeros((k, p, p))
        left = np.zeros((k, p))
        kernel = partial(kernels.centred_scatters, self.means.astype(self.dtype))
        run_pass(self.contexts, self.passes, "covariances", kernel, [scatters, left])
        S = scatters * self._factors[:, None, None]
        # sum (x - m)(x - m)^T exceeds the scatter by n d d^T, d = left / n being the rounding of the mean m.
        for Si, sums, factor in zip(S, left, self._factors / self.contexts.n_samples, strict=True):
            Si -= np.outer(factor * sums, sums)
        return S if self.scale is None else S * np.outer(self.scale, self.scale)

    def congruences(self, A: Array) -> Iterator[Array]:
        """Yield ``A^T S_i A`` of all contexts: one pass. Cost O(nnz m), memory O(k m^2).

        No pass where A is in the span of an orthonormal U whose ``T_i = U^T S_i U`` are known: ``C^T T_i C`` for
        ``A = U C``.
        """
        known = self.known.congruences(A)
        yield from [self._core(A)] if known is None else known

    @blas_aside()
    def _core(self, A: Array) -> Array:
        m = A.shape[1]
        scatters = np.zeros((self.n_contexts, m, m))
        run_pass(self.contexts, self.passes, "core", partial(kernels.score_scatters, self._scores(A)), [scatters])
        core = scatters * self._factors[:, None, None]
        self._memory.results = self.known.with_core(A, core.astype(self.dtype))
        return core

    @blas_aside()
    def variances_along(self, A: Array) -> Array:
        """Return ``a_j^T S_i a_j`` (k, m): one pass. Cost O(nnz m)."""
        squares = np.zeros((self.n_contexts, A.shape[1]))
        run_pass(self.contexts, self.passes, "loadings", partial(kernels.score_squares, self._scores(A)), [squares])
        return squares * self._factors[:, None]

    @blas_aside()
    def combine(self, A: Array, weights: Array) -> Array:
        """Return ``sum_i S_i A W_i`` (p, m): one pass. Cost O(nnz m)."""
        factors = self._factors.reshape((-1,) + (1,) * (weights.ndim - 1))
        W = (factors * weights).astype(self.dtype)
        products = np.zeros(A.shape)
        sums = np.zeros((self.n_contexts, A.shape[1]))
        kernel = partial(kernels.combined_products, self._scores(A), W)
        run_pass(self.contexts, self.passes, "components", kernel, [products, sums])
        # sum_i (X_i - 1 m_i^T)^T Z_i W_i = sum_i X_i^T Z_i W_i - m_i (1^T Z_i W_i)
        return self._scaled_columns(products - self.means.T @ sums)

    @blas_aside()
    def variances(self) -> Array:
        """Return the variances of features in every context (k, p): one pass, made once."""
        if self.known.variances is None:
            squares = np.zeros((self.n_contexts, self.n_features))
            run_pass(self.contexts, self.passes, "variances", partial(kernels.feature_squares, self.means), [squares])
            # Each zero of a sparse row is off the mean by -m as well. The sums above left m^2 out, in every entry.
            left_out = np.where(self.contexts.sparse, self.contexts.n_samples, 0)[:, None] * self.means**2
            variances = (squares + left_out) * self._factors[:, None]
            variances = variances if self.scale is None else variances * self.scale**2
            self._memory.results = self.known.with_variances(variances)
        assert self.known.variances is not None
        return self.known.variances

    def squared_norms(self) -> Array:
        """Return estimates of ``||S_i||_F^2`` (k,), from the passes for the basis; ``norm_errors`` are theirs."""
        if self.known.squared_norms is None:
            self._gram_times(np.linalg.qr(self._first_block(2))[0])
        assert self.known.squared_norms is not None
        return self.known.squared_norms

    def norm_errors(self) -> Array:
        """Return the standard errors of ``squared_norms`` (k,)."""
        self.squared_norms()
        assert self.known.norm_errors is not None
        return self.known.norm_errors

    def pooled(self, weights: Array) -> Array:
        """Return ``sum_i weights_i S_i`` (p, p): one pass, for few features."""
        p = self.n_features
        return self.combine(np.eye(p), np.broadcast_to(weights[:, None], (len(weights), p)))

    def scaled(self, scale: Array) -> StreamedCovariances:
        """Return the covariances of features multiplied by ``scale`` (p,); nothing is known of them yet."""
        scale = scale if self.scale is None else self.scale * scale
        return replace(self, scale=scale, _memory=PassMemory())

    def weighted(self, weights: Array) -> Covariances:
        """Return the covariances times ``weights`` (k,); nothing is known of them yet."""
        return replace(self, weights=self.weights * weights, _memory=PassMemory())

    def most_variable(self, m: int) -> Array:
        """Return which ``m`` features vary most, all rows together, in their order: a pass."""
        pooled = (self.contexts.n_samples - 1) @ self.variances()
        return np.sort(np.argsort(-pooled, kind="stable")[: min(m, self.n_features)])

    @property
    def _factors(self) -> Array:
        return _scatter_factors(self.contexts, self.weights)

    def _scaled_columns(self, A: Array) -> Array:
        """Return ``D A`` for D = diag(scale): (X D) A is X (D A), so that rows are used as they are."""
        return A if self.scale is None else self.scale[:, None] * A

    def _scores(self, A: Array) -> kernels.CentredScores:
        A = self._scaled_columns(A)
        return kernels.CentredScores(A.astype(self.dtype), (self.means @ A).astype(self.dtype))


def context_means(contexts: Contexts, passes: Passes | None = None) -> Array:
    """Return the means of contexts (k, p) in float64: one pass, also where a context has a single row."""
    sums = np.zeros((len(contexts.names), contexts.n_features))
    kernel = partial(kernels.row_sums, kernels.adds_by_entry(contexts))
    run_pass(contexts, passes or Passes.silent(), "means", kernel, [sums])
    return np.asarray(sums / contexts.n_samples[:, None])


def _random_guess(contexts: Contexts, width: int) -> _FirstGuess:
    rng = np.random.default_rng(0)  # decides how many passes are needed, and nothing that is reported
    directions = rng.standard_normal((contexts.n_features, width))
    return _FirstGuess(directions, rng.standard_normal((len(contexts.names), width)))


def _scatter_factors(contexts: Contexts, weights: Array) -> Array:
    """Return ``w_i / (n_i - 1)`` (k,), with which scatters become weighted covariances."""
    return np.asarray(weights / np.maximum(contexts.n_samples - 1.0, 1.0))  # a single row has a scatter of 0
