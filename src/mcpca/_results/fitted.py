"""One view of a fit, whether it is a model, a Pipeline that ends in one, or stored in an AnnData.

Plots, analyses and reports call ``fitted(source, key)`` first and see nothing but the ``Fitted`` it returns; only rows
are read separately (``fitted_rows``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._data.detect import index_of, is_anndata
from .._estimator.mcpca import fitted_model
from .._model.compared import Compared, compared
from .._model.identifiability import DEFAULT_DEGREES, ProportionalPair, indistinct_loadings
from .._rank.paper_rule import RankChoice
from .._rank.selection import RankSelection
from .._utils.arguments import refuse_without_effect
from .._utils.array_api import to_host
from .._utils.component_names import as_called_now, component_names, unknown
from .._utils.types import Array
from .anndata_layout import columns_of_fit, features_are_lost, keys_of, noise_of_stored, obs_columns, stored_fit
from .pipelines import names_after, split_steps


@dataclass(frozen=True)
class Fitted:
    """A fit, wherever it came from; arrays are float64 on the host.

    Attributes
    ----------
    loadings : ndarray (k, r)
        As fitted; ``compared`` returns those to compare contexts by.
    contexts : list of k str
    names : list of r str
        Names of the MCPCs as readers see them: "MCPC 1", ...
    components, projection : ndarray (p, r), ndarray (r, p)
    features : list of p str
        Names of the features of the fit, not of others that an AnnData may hold. For a fit on principal components
        stored in an AnnData, the features that these are made of. "feature 1", ... if they have no names.
    singular_values : ndarray
    n_samples : ndarray (k,) or None
    explained, squared_norms : ndarray (k,)
        ``||P(S_i)||_F^2`` and ``||S_i||_F^2``.
    norm_errors : ndarray (k,) or None
        Standard errors of ``squared_norms``, 0 where they are exact; None if they are not known.
    scores : ndarray (n, r) or None
        Scores of the rows in the AnnData.
    labels : ndarray (n,) of object, or None
        Context of each of these rows as str; None for rows that were not fitted.
    columns, n_vars : ndarray (p,) of int or None, int or None
        Positions of the features in an AnnData's ``var``, None if they are all of ``var`` in its order; and its length.
    lost : tuple of str
        Features of the fit that the AnnData no longer has.
    orthogonal : bool
        Whether the MCPCs were constrained to be orthogonal.
    corrected_loadings : ndarray (k, r) or None
        Loadings without the noise of their context; None for fits of older versions. See ``compared``.
    noise : str or None
        The model of noise of the fit; None if the noise is in ``loadings``.
    cross_fitted : bool
        Whether ``corrected_loadings`` are of other rows than the axes.
    prepared : str or None
        What was done to the rows, in words; None if they were taken as they are.
    """

    loadings: Array
    contexts: list[str]
    names: list[str]
    components: Array
    projection: Array
    features: list[str]
    singular_values: Array
    n_samples: Array | None
    explained: Array
    squared_norms: Array
    norm_errors: Array | None = None
    scores: Array | None = None
    labels: Array | None = None
    columns: Array | None = None
    n_vars: int | None = None
    lost: tuple[str, ...] = ()
    orthogonal: bool = False
    corrected_loadings: Array | None = None
    noise: str | None = None
    cross_fitted: bool = False
    prepared: str | None = None

    def compared(self, corrected: bool = True) -> Compared:
        """Return the loadings by which contexts are compared, and which they are in words."""
        return compared(self.loadings, self.corrected_loadings, self.noise, corrected, cross_fitted=self.cross_fitted)

    def same_loadings(self, corrected: bool, also_corrected: bool) -> bool:
        """Whether both choices give the same loadings: of a fit with noise, which has one kind, any two do."""
        return self.compared(corrected).words == self.compared(also_corrected).words

    def with_all_features(self) -> Fitted:
        """Return the fit itself, or raise if the AnnData has lost features, so that its axes are incomplete."""
        if self.lost:
            raise features_are_lost(len(self.features) + len(self.lost), self.lost)
        return self

    def over_var(self) -> Array:
        """Return A over all of ``var``, with zeros for features that were not fitted."""
        # full (n_vars, r)
        if self.columns is None or self.n_vars is None:
            return self.components
        full = np.zeros((self.n_vars, self.components.shape[1]))
        full[self.columns] = self.components
        return full

    def proportional_loadings(self, max_degrees: float = DEFAULT_DEGREES) -> list[ProportionalPair]:
        """Return the pairs of MCPCs that the contexts cannot tell apart, as ``MCPCA.proportional_loadings`` does."""
        p = len(self.components)
        return indistinct_loadings(self.loadings, max_degrees, orthogonal=self.orthogonal, n_features=p)


def fitted(source: Any, key: str = "mcpca") -> Fitted:
    """Read a fitted ``MCPCA``, alone or at the end of a Pipeline, or the fit of ``mcpca.tl.mcpca`` in an AnnData."""
    if is_anndata(source):
        return _fitted_of_anndata(source, key)
    # A key that is ignored would suggest that another fit is shown.
    refuse_without_effect("key", key, "mcpca", "it names a fit in an AnnData, and source is a model", "drop it")
    return _fitted_of_model(source)


def rank_selection(source: Any, key: str = "mcpca") -> RankSelection | None:
    """Return ``source`` if it is a choice of rank, or that of a model or an AnnData; None if there is none."""
    if is_anndata(source):
        # Missing at any level: no rank was chosen there, or by the paper's rule, which has no JSON.
        text = source.uns.get(key, {}).get("rank", {}).get("json")
        return None if text is None else RankSelection.from_json(str(text))
    # A model may hold the paper's RankChoice instead, which has no curves of that kind.
    choice = getattr(source, "rank_choice_", source)
    return choice if isinstance(choice, RankSelection) else None


def paper_choice(source: Any, key: str = "mcpca") -> RankChoice | None:
    """Return ``source`` if it is a choice by the paper's rule, or that of a model or AnnData; else None."""
    if not is_anndata(source):
        choice = getattr(source, "rank_choice_", source)
        return choice if isinstance(choice, RankChoice) else None
    stored = source.uns.get(key, {}).get("rank", {})
    if "scores" not in stored:
        return None
    return RankChoice(
        # 0 is stored for no rank.
        int(stored["rank"]) or None,
        str(stored["outcome"]),
        str(stored["reason"]),
        np.asarray(stored["table"].index),
        np.asarray(stored["scores"]),
        float(stored["threshold"]),
        np.asarray(stored["singular_values"]),
        stored.get("unsettled"),
        str(stored["matching"]),
    )


def resolve_feature_names(source: Any, fit: Fitted, names: Any, key: str) -> list[str]:
    """Return the names of the features of a fit (p,), for an argument ``names`` of a public function.

    ``names`` is None for those of the fit, a column of an AnnData's ``var``, or the names themselves; names for all of
    ``var`` are reduced to the features of the fit.
    """
    p = len(fit.features)
    n_vars = fit.n_vars
    if names is None:
        return fit.features
    if isinstance(names, str):
        if not is_anndata(source) or keys_of(key).components not in source.varm:
            raise ValueError(
                f"names={names!r} would be a column of var, for a fit that is stored in an AnnData's varm; pass the "
                f"{p} names themselves."
            )
        if names not in source.var.columns:
            raise ValueError(
                unknown(names, "names", source.var.columns, "a column of adata.var") + " Pass the name of one."
            )
        names = source.var[names]
    texts = [str(name) for name in names]
    # If p equals n_vars as well, ``columns`` is a reordering of ``var``, and names are in the order of ``var``.
    if fit.columns is not None and len(texts) == n_vars:
        return [texts[i] for i in fit.columns]
    if len(texts) != p:
        among = "" if fit.columns is None else f" of the fit, and {n_vars} in adata.var"
        raise ValueError(f"names has {len(texts)} entries, but there are {p} features{among}; pass one for each.")
    return texts


def _fitted_of_model(source: Any) -> Fitted:
    steps, model = split_steps(source)
    names = getattr(model, "feature_names_in_", None)
    # A PCA before MCPCA gives arrays, whose columns are named by the steps alone.
    # The model may be of some of the features that rows have.
    done = model.preprocess_
    p = model.n_features_in_ if done is None else done.n_features_in
    columns = None if done is None else done.columns
    if names is None and steps is not None:
        names = _at(names_after(steps, p), columns)
    features = _at(_numbered_features(p), columns) if names is None else [str(name) for name in names]
    assert features is not None
    return Fitted(
        _double(model.loadings_),
        [str(name) for name in model.contexts_],
        component_names(model),
        _double(model.components_),
        _double(model.projection_),
        features,
        _double(model.singular_values_),
        model.n_samples_per_context_,
        model.variance_explained(per="context"),
        model.squared_norms(),
        model.squared_norm_errors(),
        orthogonal=bool(model.orthogonal),
        corrected_loadings=_double_or_none(model.corrected_loadings_),
        noise=fitted_model(model).noise,
        cross_fitted=model.attenuation_ is not None,
        prepared=None if model.preprocess_ is None else model.preprocess_.summary(),
    )


def _at(names: Any, columns: Array | None) -> list[Any] | None:
    """Return the names at some positions, or all; None for none."""
    if names is None:
        return None
    return list(names) if columns is None else [names[j] for j in columns.tolist()]


def _numbered_features(p: int) -> list[str]:
    return [f"feature {j + 1}" for j in range(p)]


def _fitted_of_anndata(adata: Any, key: str) -> Fitted:
    # A (p, r) and pinv(A)^T (p, r) in ``varm``; table (k, r).
    names = keys_of(key)
    stored = stored_fit(adata, key)
    table = stored["loadings"]
    contexts = stored["contexts"]
    n_vars = None
    columns = None
    lost: list[str] = []
    if names.components in adata.varm:
        # The axes in terms of var, where features that were not fitted have zeros: these are left out.
        n_vars = adata.n_vars
        columns, lost = columns_of_fit(adata, key, stored)
        A = np.asarray(adata.varm[names.components])[columns]
        projection_transposed = np.asarray(adata.varm[names.projection])[columns]
        features = [str(name) for name in index_of(adata, "var")[columns]]
        # Nothing to select then, which saves copies of the rows' columns.
        if np.array_equal(columns, np.arange(n_vars)):
            columns = None
    else:
        # A fit on an entry of obsm whose axes are not known: its columns have no names.
        A = stored["components"]
        projection_transposed = np.asarray(stored["projection"]).T
        features = _numbered_features(len(A))
    # As objects: a categorical would keep NaN where readers expect None.
    labels = obs_columns(adata, [names.context])[names.context].astype(object)
    return Fitted(
        _double(table),
        [str(name) for name in table.index],
        as_called_now(table.columns),
        _double(A),
        _double(projection_transposed).T,
        features,
        _double(stored["singular_values"]),
        np.asarray(contexts["n_samples"]),
        _double(contexts["variance_explained"]),
        _double(contexts["squared_norm"]),
        _double(contexts["squared_norm_error"]) if "squared_norm_error" in contexts else None,
        scores=_double(adata.obsm[names.scores]),
        labels=labels.where(labels.notna(), None).to_numpy(),
        columns=columns,
        n_vars=n_vars,
        lost=tuple(lost),
        orthogonal=bool(stored["params"].get("orthogonal", False)),
        corrected_loadings=_double_or_none(stored.get("corrected_loadings")),
        noise=noise_of_stored(stored),
        cross_fitted="attenuation" in stored,
        prepared=str(stored["preprocess"]["summary"]) if "preprocess" in stored else None,
    )


def _double_or_none(values: Any) -> Array | None:
    return None if values is None else _double(values)


def _double(values: Any) -> Array:
    """Return float64 values on the host."""
    return np.asarray(to_host(values), dtype=np.float64)
