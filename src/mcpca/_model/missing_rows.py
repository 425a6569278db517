"""Rows that lack features of a fitted model: scores, loadings and distances from the features that are there.

Restricted to some features, a model is a model: ``x_o ~ N(mean_o, A_o B_i A_o^T + noise_o)`` with the rows A_o of A,
whose columns need not have unit length. ``restricted`` makes it, and everything that takes rows works on it as on any
other. Rows are grouped by context and by which values they have; a feature whose mean is not known in a context,
because the fit had none of it there, counts as missing for its rows.

Fewer features tell less about scores. The variance of their errors is ``diag((A_o^T A_o)^-1)`` times the noise by least
squares, and the diagonal of ``(B^-1 + A_o^T D_o^-1 A_o)^-1`` given the row; warnings say by what factor it has grown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from .._covariances.observed import pairwise
from .._covariances.scaling import stack_in_range
from .._covariances.stack import CovarianceStack
from .._data.alignment import are_positions, matrix_and_names, with_columns
from .._data.columns import positions_of
from .._data.contexts import Contexts, named_blocks
from .._data.detect import InputKind, input_kind
from .._data.labels import encode_labels, name_array, rows_by_context, take_labels
from .._data.union import refuse_nuisance
from .._data.validation import check_rows
from .._solvers.masked_em import IncompleteRows
from .._utils.array_api import is_device_array, to_host
from .._utils.progress import silent
from .._utils.stages import uneven
from .._utils.types import Array, Report
from .._utils.user_warnings import warn
from .._utils.wording import quoted
from ..exceptions import MissingFeaturesWarning
from .fitted_model import FittedModel
from .new_contexts import divided_by_attenuation, loadings_for, loadings_on, mean_log_likelihood, predicted_errors
from .new_rows import check_n_features, read_incomplete, refuse_incomplete
from .outlyingness import outlyingness
from .scores import in_order_of_features, posterior_projections, scores

_SINGULAR = 1e-10  # relative size of the smallest singular value of A_o below which scores are not determined


def takes_missing(model: FittedModel, missing: Any, *, batch: Any = None, covariates: Any = None) -> bool:
    """Whether rows may lack features: as the call says, or else if the model was fitted to such rows.

    Raises if nuisance is to be removed from such rows.
    """
    takes = _takes_missing(model, missing)
    if takes:
        refuse_incomplete(model)
        refuse_nuisance("union" if model.missing == "error" else model.missing, batch, covariates)
    return takes


def _takes_missing(model: FittedModel, missing: Any) -> bool:
    if missing is None:
        return model.missing != "error"
    if missing not in ("error", "union"):
        raise ValueError(
            f"missing={missing!r}; choose 'union' (rows may lack features), 'error' (they may not), or None for what "
            "the model was fitted with."
        )
    return bool(missing == "union")


def restricted(model: FittedModel, present: Array) -> FittedModel:
    """Return the model of some of its features, a mask (p,); facets and scree stay those of all."""
    A = to_host(model.components)[present]
    noise = model.noise_variance
    if noise is not None and model.noise in ("diagonal", "scaled"):
        noise = to_host(noise)[..., present]
    return replace(
        model,
        components=A,
        projection=np.linalg.pinv(A),
        means=None if model.means is None else to_host(model.means)[:, present],
        noise_variance=noise,
        # Rows of the restricted model are arrays in its order.
        feature_names=None,
        label_columns=(),
    )


# Scores


def scores_of_present(
    model: FittedModel, X: Any, y: Any, center: Any, posterior: bool, report: Report, **nuisance: Any
) -> Any:
    """Return the scores (n, r) of one matrix whose rows may lack features; see ``MCPCA.transform``.

    ``nuisance`` (batch, covariates) has been refused: all of it is None.
    """
    rows = _Rows.read(model, X, y, center)
    if rows.values is None:
        sub, X, center = rows.selected(posterior)
        return scores(sub, X, rows.y, center, posterior, report)
    out = np.empty((len(rows.values), model.n_components), dtype=np.result_type(rows.values, model.projection))
    costs = Costs(model, posterior)
    for piece in rows.pieces(by_label=posterior):
        sub = restricted(model, piece.present)
        if posterior:
            projection = posterior_projections(sub, None if piece.name is None else [piece.name])[0]
        else:
            projection = sub.projection
            costs.check_determined(piece)
        out[piece.members] = piece.centred[:, piece.present] @ projection.T
        costs.add(piece)
    costs.warn("scores")
    return out


def outlyingness_of_present(model: FittedModel, X: Any, y: Any, center: Any, report: Report) -> Any:
    """Return distances (n,) of rows that may lack features, each divided by the number that it has."""
    rows = _Rows.read(model, X, y, center)
    if rows.values is None:
        sub, X, center = rows.selected(posterior=True)
        return outlyingness(sub, X, rows.y, center, report)
    out = np.empty(len(rows.values))
    for piece in rows.pieces(by_label=True):
        sub = restricted(model, piece.present)
        block = piece.centred[:, piece.present]
        labels = None if piece.name is None else name_array([piece.name]).repeat(len(block))
        out[piece.members] = outlyingness(sub, block, labels, np.zeros(block.shape[1]), silent)
    return out


class Piece(NamedTuple):
    """Rows (numbers) of one context that have the same values, a mask ``present`` (p,), centred; the context's name."""

    members: Array
    present: Array
    centred: Array
    name: Any


class _Rows(NamedTuple):
    """Rows that may lack features: dense ``values`` (n, p) with NaN, or None for ``source``, any other matrix.

    ``present`` (p,) are the features that the matrix has at all.
    """

    model: FittedModel
    values: Array | None
    source: Any
    present: Array
    y: Any
    center: Any

    @classmethod
    def read(cls, model: FittedModel, X: Any, y: Any, center: Any) -> _Rows:
        kind = input_kind(X)
        if is_device_array(X):
            X = to_host(X)
        X, y = take_labels(X, y, kind)
        center = in_order_of_features(model, center)
        matrix = matrix_and_names(X, "X", kind)
        p = model.n_features
        present = np.ones(p, dtype=bool)
        has_names = matrix.names is not None and not are_positions(matrix.names)
        if has_names and model.feature_names is not None:
            assert matrix.names is not None
            known = model.feature_names.tolist()
            own = set(matrix.names)
            present = np.array([name in own for name in known])
            if not present.any():
                raise ValueError(
                    f"X has none of the {p} features of the fit, {quoted(known)}; pass rows that have some."
                )
            chosen = [name for name, there in zip(known, present, strict=True) if there]
            matrix = with_columns(matrix, positions_of(chosen, matrix.names, "X", "of the fit", ""), "X")
        is_dense = matrix.kind in (InputKind.ARRAY, InputKind.FRAME, InputKind.SEQUENCE, InputKind.OTHER)
        if not is_dense and not (matrix.kind is InputKind.SOURCE and getattr(matrix.X, "sparse", True) is False):
            return cls(model, None, matrix.X, present, y, center)
        block = check_rows(matrix.X, "X") if is_dense else matrix.X.gather(slice(0, matrix.X.shape[0]))
        check_n_features(block.shape[1], int(present.sum()))
        if np.isinf(block).any():
            raise ValueError("X contains infinite (inf) values; make them NaN, which stands for missing, or drop them.")
        values = np.full((len(block), p), np.nan, dtype=block.dtype)
        values[:, present] = block
        return cls(model, values, None, present, y, center)

    def selected(self, posterior: bool) -> tuple[FittedModel, Any, Any]:
        """Return the model of the features that a sparse, stored or Dask matrix has, the matrix, and its centre."""
        known = self.present.copy()
        center = self.center
        means = None if self.model.means is None else to_host(self.model.means)
        if isinstance(center, np.ndarray):
            known &= np.isfinite(center)
        elif means is not None and self.y is not None and center is None:
            # A mean for each context: only features that all of them have.
            known &= np.isfinite(means).all(axis=0)
        elif means is not None:
            known &= np.isfinite(self.model.context_means.overall())
        X = self.source
        if not known[self.present].all():
            matrix = matrix_and_names(X, "X")
            X = with_columns(matrix, np.flatnonzero(known[self.present]), "X").X
        if isinstance(center, np.ndarray):
            center = center[known]
        costs = Costs(self.model, posterior)
        piece = Piece(np.arange(1), known, np.empty((0, 0)), None)
        if not posterior:
            costs.check_determined(piece)
        costs.add(piece)
        costs.warn("scores")
        return restricted(self.model, known), X, center

    def pieces(self, *, by_label: bool) -> Iterator[Piece]:
        """Yield rows by context and by what they have; ``by_label`` also where one mean is for all."""
        assert self.values is not None
        for members, mean, name in self._groups(by_label):
            centred = self.values[members] - mean
            block = IncompleteRows.of(centred)
            for present, rows in zip(block.patterns, rows_by_context(block.codes), strict=True):
                yield Piece(members[rows], present, block.values[rows], name)

    def _groups(self, by_label: bool) -> list[tuple[Array, Array, Any]]:
        """Return (row numbers, mean, context) for each context; the mean may be NaN where it is not known."""
        values = self.values
        assert values is not None
        n = len(values)
        center = self.center
        names: list[Any] | None = None
        groups = [np.arange(n)]
        if self.y is not None and (by_label or not isinstance(center, np.ndarray)):
            labels, codes = encode_labels(self.y, n)
            names = labels.tolist()
            # As row numbers: rows that stand together come as slices.
            groups = [np.arange(n)[rows] for rows in rows_by_context(codes)]
        if isinstance(center, np.ndarray) and center.shape == (self.model.n_features,):
            means: Sequence[Array] = [center]
        else:
            means = self.model.context_means.by_context(names, center, lambda: [_mean(values[g]) for g in groups])
        if len(means) == 1:
            means = [means[0]] * len(groups)
        return list(zip(groups, means, names or [None] * len(groups), strict=True))


def _mean(rows: Array) -> Array:
    """Return the mean of the values that are there (p,); NaN where there is none."""
    seen = ~np.isnan(rows)
    counts = seen.sum(axis=0)
    return np.where(counts > 0, np.where(seen, rows, 0).sum(axis=0) / np.maximum(counts, 1), np.nan)


class Costs:
    """What missing features cost: collects patterns, and warns of the worst."""

    def __init__(self, model: FittedModel, posterior: bool) -> None:
        self._model = model
        self._posterior = posterior
        self._A = to_host(model.components).astype(np.float64)
        self._complete = self._variances(np.ones(len(self._A), dtype=bool))
        self._n_rows = 0
        self._n_incomplete = 0
        self._missing = np.zeros(len(self._A), dtype=bool)
        self._most = 0
        self._factor = 1.0
        self._component = 0

    def check_determined(self, piece: Piece) -> None:
        """Raise unless the features of the piece determine scores on all MCPCs."""
        A = self._A[piece.present]
        r = A.shape[1]
        size = np.linalg.svd(A, compute_uv=False) if len(A) >= r else np.zeros(1)
        if size[-1] <= _SINGULAR * max(size[0], np.finfo(float).tiny):
            raise ValueError(
                f"Row {int(piece.members[0])} has {len(A)} of the {len(self._A)} features of the fit, which do not "
                f"determine its scores on {r} MCPCs. Drop such rows, or pass posterior=True for expected scores."
            )

    def add(self, piece: Piece) -> None:
        """Count the rows of a piece."""
        self._n_rows += len(piece.members)
        if piece.present.all():
            return
        self._n_incomplete += len(piece.members)
        self._missing |= ~piece.present
        self._most = max(self._most, int((~piece.present).sum()))
        factors = self._variances(piece.present) / self._complete
        j = int(factors.argmax())
        if factors[j] > self._factor:
            self._factor = float(factors[j])
            self._component = j

    def warn(self, what: str) -> None:
        """Issue one warning, if features are missing."""
        if not self._n_incomplete:
            return
        names = self._model.feature_names
        missing = np.flatnonzero(self._missing)
        shown = quoted(missing.tolist() if names is None else names[missing].tolist())
        how = "expected given" if self._posterior else "by least squares on"
        warn(
            f"X lacks features of the fit, up to {self._most} of {len(self._A)} in a row ({shown}): {what} are {how} "
            f"those that are there. The variance of their errors is up to {self._factor:.3g} times that with all "
            f"features (MCPC {self._component + 1}).",
            MissingFeaturesWarning,
        )

    def _variances(self, present: Array) -> Array:
        """Return the variances of errors of scores (r,), up to a factor, with these features."""
        A = self._A[present]
        if not self._posterior:
            return np.diag(np.linalg.pinv(A.T @ A, hermitian=True))
        sub = restricted(self._model, present).gaussian("posterior=True")
        share = np.ones(len(sub.B)) if self._model.n_samples is None else np.asarray(self._model.n_samples, dtype=float)
        share = share / share.sum()
        root = np.sqrt(np.maximum(share @ sub.B, np.finfo(float).tiny))
        white = sub.white
        information = np.eye(len(root)) + root[:, None] * (white.T @ white) * root / float(share @ sub.s)
        return np.asarray(root**2 * np.diag(np.linalg.inv(information)))


# Contexts


def loadings_of_present(model: FittedModel, X: Any, y: Any, corrected: bool, report: Report) -> Array:
    """Return the loadings of new contexts that may lack features; see ``MCPCA.loadings_for``."""
    is_stack = getattr(X, "ndim", 2) == 3
    if is_stack or _is_complete_array(model, X):
        return loadings_for(model, X, y, corrected, report)
    single = y is None and not isinstance(X, Contexts) and named_blocks(X) is None
    contexts = read_incomplete(model, X, y, min_samples=2)
    moments = pairwise(contexts, "union", report)
    B = np.empty((len(contexts.names), model.n_components))
    costs = Costs(model, posterior=False)
    for i, present in enumerate(moments.mask):
        piece = Piece(np.array([i]), present, np.empty((0, 0)), None)
        costs.check_determined(piece)
        costs.add(piece)
        S, e = stack_in_range(moments.covariances[i : i + 1][:, present][:, :, present])
        sub = restricted(model, present)
        B[i] = np.ldexp(loadings_on(sub, CovarianceStack(S), e, corrected), 2 * e)[0]
    costs.warn("loadings")
    B = divided_by_attenuation(model, B, corrected).astype(to_host(model.loadings).dtype, copy=False)
    return np.asarray(B[0] if single else B)


def score_of_present(model: FittedModel, X: Any, y: Any, metric: str | None, report: Report) -> float:
    """Return how well the model predicts rows that may lack features; see ``MCPCA.score``.

    Both metrics are over what is there: the density of the values that a row has, averaged over rows, or covariances of
    pairs of values that rows have.
    """
    if metric not in (None, "covariance", "likelihood"):
        raise ValueError(f"metric={metric!r}; choose None, 'covariance' or 'likelihood'.")
    contexts = read_incomplete(model, X, y, min_samples=1)
    k = len(contexts.names)
    if not contexts.by_name and k == 1 < len(model.contexts):
        raise ValueError(
            "X is one matrix without labels: rows that lack features are scored by the context that they belong to. "
            "Pass y, or a dict of contexts."
        )
    by_likelihood = metric == "likelihood" or (metric is None and model.noise is not None)
    names = contexts.names.tolist() if contexts.by_name else model.contexts.tolist()
    if not contexts.by_name:
        model.context_means.in_order(k)
    means = model.context_means.of(names)
    positions = model.context_means.positions()
    sums = np.zeros(2)
    for i, (name, mean) in enumerate(zip(names, means, strict=True)):
        block = IncompleteRows.of(contexts.dense_block(i).astype(np.float64) - mean)
        place = np.array([positions[name]])
        if by_likelihood:
            for present, rows in zip(block.patterns, rows_by_context(block.codes), strict=True):
                Z = block.values[rows][:, present]
                S, e = stack_in_range((Z.T @ Z / len(Z))[None])
                sub = restricted(model, present)
                n = np.array([len(Z)])
                sums += [len(Z) * mean_log_likelihood(sub, CovarianceStack(S), e, n, place), len(Z)]
        else:
            there = block.seen.astype(np.float64)
            present = np.asarray(there.any(axis=0))
            pairs = np.maximum(there.T @ there, 1)
            S, e = stack_in_range((block.values.T @ block.values / pairs)[None][:, present][:, :, present])
            errors = predicted_errors(restricted(model, present), CovarianceStack(S), e, place)
            sums += np.ldexp(np.array(errors), 4 * e)
        report(uneven("contexts"), i + 1, k)
    if by_likelihood:
        return float(sums[0] / sums[1])
    return float(1 - sums[0] / sums[1]) if sums[1] > 0 else 0.0


def _is_complete_array(model: FittedModel, X: Any) -> bool:
    """Whether X is an array of all features without NaN: rows, or a covariance."""
    return isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] == model.n_features and bool(np.isfinite(X).all())
