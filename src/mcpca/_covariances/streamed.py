"""Covariances that are never formed: products with them are passes over the rows.

With ``X_i`` the rows of context i, ``m_i`` their mean and ``Z_i = (X_i - 1 m_i^T) V`` the centred scores,

    S_i V = (X_i - 1 m_i^T)^T Z_i / (n_i - 1),   V^T S_i V = Z_i^T Z_i / (n_i - 1),

so sparse rows stay sparse (only scores are centred) and memory is O(p m + k m^2) and the means, (k, p). Most passes
take rows in any order. Only ``sum_i S_i S_i V`` needs all rows of a context together, ``S_i V`` being complete before
it is multiplied again: contexts are then gathered, as many at a time as scikit-learn's ``working_memory`` allows, and a
context that is larger than that is read twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse

from .._data import context_sums
from .._data.context_sums import Sum as _Sum
from .._data.contexts import Contexts
from .._data.projection import offset_scores
from .._linalg import eigenbasis
from .._utils.parallel import blas_aside
from .._utils.types import Array
from .gram import Gram
from .interface import Basis, Covariances
from .pass_results import PassResults
from .passes import Passes, run, run_on_workers
from .row_groups import memory_limit, sample_of

_MOST_PRODUCTS = 40
_PROBES, _ROUGH = 8, 5e-3  # random directions, and the error of squared norms from which on they are asked
_TOL = 1e-7
_CENTRED = 2**20  # numbers in a centred copy of rows
_MANY = 200  # contexts, of which a block of rows then has few each
_SAMPLE, _TIMES_WIDTH = 1 / 16, 10  # rows that are looked at first: a share, and how many that must be at least


@dataclass(frozen=True)
class StreamedCovariances:
    """``Covariances`` of rows, by passes over them.

    ``weights`` (k,) multiply the covariances and ``scale`` (p,) the features; ``means`` (k, p) are those of the rows as
    they are. ``sketch`` (p, s) is a first guess of the leading directions, from the pass that found the means. What
    passes have found that may be asked for again is in ``_known``.
    """

    contexts: Contexts
    passes: Passes
    means: Array
    sketch: Array
    weights: Array
    scale: Array | None = None
    _known: PassResults = field(default_factory=PassResults)

    @classmethod
    @blas_aside()
    def of(cls, contexts: Contexts, width: int, passes: Passes) -> StreamedCovariances:
        """Find means, and sketch ``[S_1 ... S_k]`` with ``width`` combinations of its columns: one pass.

        Column l of the sketch is ``sum_i w_il S_i x_l``. In the model that is ``A diag(sum_i w_il b_i) A^T x_l``: some
        combination of all components. Where rows are read from disk, x are the leading directions of some of them and
        w the variances along these, which saves a later pass or two; otherwise both are random. And where each context
        fits into memory, the sketch is ``sum_i S_i S_i x_l``: the pass is then the first one for the basis as well.
        """
        k, p = len(contexts.names), contexts.n_features
        width = min(width, p)
        guess = cls._first_look(contexts, width, passes)
        if guess is not None and (contexts.context_bytes() <= memory_limit()).all():
            sums = np.zeros((k, p))
            rows = cls(contexts, passes, sums, guess[0], np.ones(k))
            sketch = rows._gram_times(guess[0], sums)
            rows._known.multiplied, rows._known.products = guess[0], sketch
            passes.room.clear()
            return replace(rows, means=sums / contexts.n_samples[:, None], sketch=sketch)
        if guess is None:
            rng = np.random.default_rng(0)  # decides how many passes are needed, and nothing that is reported
            guess = rng.standard_normal((p, width)), rng.standard_normal((k, width))
        directions, mixture = guess[0], guess[1] / np.maximum(contexts.n_samples - 1.0, 1.0)[:, None]
        typed, by_row = directions.astype(contexts.dtype), mixture.astype(contexts.dtype)

        row_sums = _row_sums(contexts)

        def kernel(X: Any, codes: Array) -> list[_Sum]:
            return [_Sum(0, *row_sums(X, codes)), _Sum(1, ..., X.T @ ((X @ typed) * by_row[codes]))]

        totals = [np.zeros((k, p)), np.zeros((p, width))]
        run(contexts, passes, "means", kernel, totals)
        means = totals[0] / contexts.n_samples[:, None]
        sketch = totals[1] - means.T @ ((means @ directions) * mixture * contexts.n_samples[:, None])
        return cls(contexts, passes, means, sketch, np.ones(k))

    @classmethod
    def with_means(cls, contexts: Contexts, passes: Passes) -> StreamedCovariances:
        """Find means alone, where no basis will be asked for: one pass."""
        means = context_means(contexts, passes)
        return cls(contexts, passes, means, np.empty((contexts.n_features, 0)), np.ones(len(means)))

    @classmethod
    def _first_look(cls, contexts: Contexts, width: int, passes: Passes) -> tuple[Array, Array] | None:
        """Return the leading eigenvectors (p, width) of ``sum_i S_i`` of a sample of rows, and variances (k, width)."""
        sample = sample_of(contexts, _SAMPLE, _TIMES_WIDTH * width)
        if sample is None:
            return None
        passes.report("a first look", 0, 1)
        chosen, inside = sample
        rows = cls.of(inside, width, Passes.silent())
        alike = np.ones((len(chosen), width))
        found = eigenbasis.top_eigenvectors(
            lambda V: rows.combine(V, alike[:, : V.shape[1]]), rows.sketch, width, width, tol=_TOL, eps=_TOL, most=5
        )
        variances = rows.variances_along(found.vectors)
        weights = np.tile(variances.mean(axis=0), (len(contexts.names), 1))  # of contexts with no row in the sample
        weights[chosen] = variances
        passes.report("a first look", 1, 1)
        return found.vectors, weights

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

    @blas_aside()
    def basis(self, q: int, r: int) -> Basis:
        """Return the top ``q`` left singular vectors of ``[S_1 ... S_k]`` by block Lanczos, a pass for each product."""
        eps = float(np.finfo(self.dtype).eps) / 8
        width = max(min(r + eigenbasis.SPARE, self.n_features), -(-q // 2))
        start = self._known.multiplied
        if start is None or start.shape[1] < width:
            start = self._first_block(width)

        def times(V: Array) -> Array:
            known = self._known.product(V)
            return self._gram_times(V) if known is None else known

        found = eigenbasis.top_eigenvectors(times, start, q, r, tol=self.passes.tol, eps=eps, most=_MOST_PRODUCTS)
        self.passes.room.clear()
        return Basis(found.vectors, np.sqrt(found.values), found.residual)

    def _first_block(self, width: int) -> Array:
        start = self.sketch if self.scale is None else self.scale[:, None] * self.sketch
        if start.shape[1] < width:  # a rank that was not known when the sketch was made
            more = np.random.default_rng(1).standard_normal((len(start), width - start.shape[1]))
            size = np.linalg.norm(start) / np.sqrt(max(start.size, 1))
            start = np.hstack([start, more * max(size, np.finfo(float).tiny)])
        return start[:, :width]

    def _gram_times(self, V: Array, row_sums: Array | None = None) -> Array:
        """Return ``sum_i S_i S_i V`` (p, s) for orthonormal V, and learn two things on the way.

        Estimates of ``||S_i||^2 = ||S_i U||^2 + ||S_i (I - U U^T)||^2``, U being V with all that came before. The
        second is estimated without bias by ``||S_i x||^2`` of random x outside U (Hutchinson), eight of them, in every
        pass as long as it is worthwhile: the more U holds, the less is left to chance. And ``V^T S_i V``, with all V
        that came before and are orthogonal to this one: whatever is asked for in their span later needs no pass.

        Where means are not known yet, the sums of rows are added to ``row_sums`` (k, p); each context has to fit into
        memory for that.
        """
        s, block, probing = V.shape[1], V, self._known.norms_are_rough(_ROUGH)
        seen = self._known.basis_with(V, self.n_contexts)
        U = seen if seen.size else V
        if probing:
            x = np.random.default_rng(2).standard_normal((len(V), _PROBES))
            block = np.hstack([V, x - U @ (U.T @ x)])
        scaled = block if self.scale is None else self.scale[:, None] * block
        typed, offsets = scaled.astype(self.dtype), self.means @ scaled
        gram = Gram(typed, offsets, self.means, self._factors, self.scale, s, seen.astype(self.dtype))
        core = np.zeros((self.n_contexts, seen.shape[1], s), dtype=self.dtype)
        totals = [np.zeros((len(V), s)), np.zeros((self.n_contexts, block.shape[1])), core]
        engine = self.contexts.engine
        if engine is not None:
            run_on_workers(self.contexts, self.passes, "basis", partial(engine.add_gram, gram), totals)
        elif row_sums is not None:
            whole = np.arange(self.n_contexts)
            run(self.contexts, self.passes, "means and basis", gram.with_row_sums, [*totals, row_sums], whole=whole)
        else:
            limit, sizes = memory_limit(), self.contexts.context_bytes()
            run(self.contexts, self.passes, "basis", gram.whole, totals, whole=np.flatnonzero(sizes <= limit))
            totals = [total.copy() for total in totals]  # a finished pass stays as it is
            for i in np.flatnonzero(sizes > limit).tolist():
                self._large_gram(i, gram, totals)
        if probing:
            self._known.estimate_norms(totals[1][:, :s].sum(axis=1), totals[1][:, s:], U.shape[1], U.shape[1] > s)
        if seen.size:
            self._known.widen(seen, totals[2])
        return totals[0] if self.scale is None else self.scale[:, None] * totals[0]

    def _large_gram(self, i: int, gram: Gram, totals: list[Array]) -> None:
        """Add context i, which is too large to be held, in two readings of its rows."""

        def first(X: Any, codes: Array) -> list[_Sum]:
            Z = offset_scores(X, gram.typed, gram.offsets[i].astype(gram.dtype))
            return [_Sum(0, ..., context_sums.transposed(X, Z)), _Sum(1, ..., Z.sum(axis=0, dtype=np.float64))]

        parts = [np.zeros(gram.typed.shape), np.zeros(gram.typed.shape[1])]
        run(self.contexts, self.passes, "basis", first, parts, only=i)
        Y = gram.image(i, *parts)
        totals[1][i] += gram.squares(Y)
        Y = Y[:, : gram.s]
        totals[2][i] = gram.core(Y)

        def second(X: Any, codes: Array) -> list[_Sum]:
            T = gram.scores(X, Y, i)
            return [_Sum(0, ..., context_sums.transposed(X, T)), _Sum(1, ..., T.sum(axis=0, dtype=np.float64))]

        parts = [np.zeros(Y.shape), np.zeros(gram.s)]
        run(self.contexts, self.passes, "basis", second, parts, only=i)
        totals[0] += parts[0] - np.outer(self.means[i], parts[1])

    def array_or_none(self) -> Array | None:
        """Return None: there are only rows."""
        return None

    @blas_aside()
    def whole(self) -> Array:
        """Return all entries (k, p, p), from rows that are made dense a block at a time."""
        p, means = self.n_features, self.means.astype(self.dtype)
        step = max(1, _CENTRED // p)

        def kernel(X: Any, codes: Array) -> list[_Sum]:
            present, rows = context_sums.rows_of_contexts(codes, 0, len(means))
            out, left = np.zeros((len(present), p, p)), np.zeros((len(present), p))
            for j, i in enumerate(present.tolist()):
                Xi = X[rows[j]]
                uncentred = context_sums.scatter_uncentred(Xi, means[i])
                if uncentred is not None:
                    out[j] = uncentred
                    continue
                for start in range(0, Xi.shape[0], step):
                    Z = Xi[start : start + step]
                    Z = (Z.toarray() if scipy.sparse.issparse(Z) else Z) - means[i]
                    left[j] += Z.sum(axis=0, dtype=np.float64)
                    out[j] += Z.T @ Z
            return [_Sum(0, present, out), _Sum(1, present, left)]

        total, left = np.zeros((self.n_contexts, p, p)), np.zeros((self.n_contexts, p))
        run(self.contexts, self.passes, "covariances", kernel, [total, left])
        S = total * self._factors[:, None, None]
        for Si, rounding, factor in zip(S, left, self._factors / self.contexts.n_samples, strict=True):
            Si -= np.outer(factor * rounding, rounding)  # what the rounding of the mean has added
        return S if self.scale is None else S * np.outer(self.scale, self.scale)

    def congruences(self, A: Array) -> Iterator[Array]:
        """Yield ``A^T S_i A`` of all contexts: one pass. Cost O(nnz m), memory O(k m^2).

        No pass where A is in the span of an orthonormal U whose ``T_i = U^T S_i U`` are known: ``C^T T_i C`` for
        ``A = U C``.
        """
        known = self._known.congruences(A)
        yield from [self._core(A)] if known is None else known

    @blas_aside()
    def _core(self, A: Array) -> Array:
        scores, m = self._scores(A), A.shape[1]

        def kernel(X: Any, codes: Array) -> list[_Sum]:
            Z, present, bounds = context_sums.by_context(scores(X, codes), codes)
            out = np.empty((len(present), m, m))
            for j in range(len(present)):
                Zi = Z[bounds[j] : bounds[j + 1]]
                out[j] = Zi.T @ Zi
            return [_Sum(0, present, out)]

        total = np.zeros((self.n_contexts, m, m))
        run(self.contexts, self.passes, "core", kernel, [total])
        total = total * self._factors[:, None, None]  # a finished pass stays as it is
        self._known.replace(A, total.astype(self.dtype))
        return total

    @blas_aside()
    def variances_along(self, A: Array) -> Array:
        """Return ``a_j^T S_i a_j`` (k, m): one pass. Cost O(nnz m)."""
        scores = self._scores(A)

        def kernel(X: Any, codes: Array) -> list[_Sum]:
            Z, present, bounds = context_sums.by_context(scores(X, codes), codes)
            return [_Sum(0, present, np.add.reduceat(Z**2, bounds[:-1], axis=0, dtype=np.float64))]

        total = np.zeros((self.n_contexts, A.shape[1]))
        run(self.contexts, self.passes, "loadings", kernel, [total])
        return total * self._factors[:, None]

    @blas_aside()
    def combine(self, A: Array, weights: Array) -> Array:
        """Return ``sum_i S_i A W_i`` (p, m): one pass. Cost O(nnz m)."""
        scores = self._scores(A)
        shaped = self._factors.reshape((-1,) + (1,) * (weights.ndim - 1)) * weights
        W = shaped.astype(self.dtype)

        def kernel(X: Any, codes: Array) -> list[_Sum]:
            Z = scores(X, codes)
            if W.ndim == 2:
                Z *= W[codes]
            else:
                Z = context_sums.multiplied(Z, codes, W)
            ordered, present, bounds = context_sums.by_context(Z, codes)
            sums = np.add.reduceat(ordered, bounds[:-1], axis=0, dtype=np.float64)
            return [_Sum(0, ..., context_sums.transposed(X, Z)), _Sum(1, present, sums)]

        totals = [np.zeros(A.shape), np.zeros((self.n_contexts, A.shape[1]))]
        run(self.contexts, self.passes, "components", kernel, totals)
        out = totals[0] - self.means.T @ totals[1]
        return out if self.scale is None else self.scale[:, None] * out

    @blas_aside()
    def variances(self) -> Array:
        """Return the variances of features in every context (k, p): one pass, made once."""
        if self._known.variances is None:
            means = self.means

            def kernel(X: Any, codes: Array) -> list[_Sum]:
                present, squares = context_sums.squares_by_context(X, codes, means)
                return [_Sum(0, present, squares)]

            total = np.zeros((self.n_contexts, self.n_features))
            run(self.contexts, self.passes, "variances", kernel, [total])
            # A zero of a sparse row differs from the mean as well, which the sums above left out.
            squares = total + np.where(self.contexts.sparse, self.contexts.n_samples, 0)[:, None] * means**2
            squares *= self._factors[:, None]
            self._known.variances = squares if self.scale is None else squares * self.scale**2
        return self._known.variances

    def squared_norms(self) -> Array:
        """Return estimates of ``||S_i||_F^2`` (k,), from the first pass for the basis; ``norm_errors`` are theirs."""
        if self._known.squared_norms is None:
            self._gram_times(np.linalg.qr(self._first_block(2))[0])
        assert self._known.squared_norms is not None
        return self._known.squared_norms

    def norm_errors(self) -> Array:
        """Return the standard errors of ``squared_norms`` (k,)."""
        self.squared_norms()
        assert self._known.norm_errors is not None
        return self._known.norm_errors

    def pooled(self, weights: Array) -> Array:
        """Return ``sum_i weights_i S_i`` (p, p): one pass, for few features."""
        p = self.n_features
        return self.combine(np.eye(p), np.broadcast_to(weights[:, None], (len(weights), p)))

    def scaled(self, scale: Array) -> StreamedCovariances:
        """Return the covariances of features multiplied by ``scale`` (p,)."""
        scale = scale if self.scale is None else self.scale * scale
        return replace(self, scale=scale, _known=PassResults())

    def weighted(self, weights: Array) -> Covariances:
        """Return the covariances times ``weights`` (k,)."""
        return replace(self, weights=self.weights * weights, _known=PassResults())

    def most_variable(self, m: int) -> Array:
        """Return which ``m`` features vary most, all rows together, in their order: a pass."""
        pooled = (self.contexts.n_samples - 1) @ self.variances()
        return np.sort(np.argsort(-pooled, kind="stable")[: min(m, self.n_features)])

    @property
    def _factors(self) -> Array:
        return np.asarray(self.weights / np.maximum(self.contexts.n_samples - 1.0, 1.0))  # one row varies by 0

    def _scores(self, A: Array) -> Callable[[Any, Array], Array]:
        """Return the function that gives centred scores on A of rows with their contexts."""
        A = A if self.scale is None else self.scale[:, None] * A
        typed, offsets = A.astype(self.dtype), (self.means @ A).astype(self.dtype)
        return lambda X, codes: offset_scores(X, typed, offsets[codes])


def context_means(contexts: Contexts, passes: Passes | None = None) -> Array:
    """Return the means of contexts (k, p) in float64: one pass, also where a context has a single row."""
    total, row_sums = np.zeros((len(contexts.names), contexts.n_features)), _row_sums(contexts)

    def kernel(X: Any, codes: Array) -> list[_Sum]:
        return [_Sum(0, *row_sums(X, codes))]

    run(contexts, passes or Passes.silent(), "means", kernel, [total])
    return np.asarray(total / contexts.n_samples[:, None])


def _row_sums(contexts: Contexts) -> Callable[[Any, Array], tuple[Any, Any]]:
    """Return the function for the sums of rows by context in a block: key and value."""
    # What other machines send is to be small.
    flat = contexts.engine is None and len(contexts.names) > _MANY and contexts.sparse.all()
    return context_sums.entries_by_context if flat else context_sums.sums_by_context
