"""New rows and the fit that another AnnData holds: their loadings by context, and their scores."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from .._data.anndata_rows import (
    EXTRA,
    FeatureSpace,
    ObsContexts,
    check_anndata,
    check_target,
    contexts_of_obs,
    labels_of_obs,
    layer_matrix,
)
from .._data.annotations import annotations_of_obs
from .._data.dask_graph import computed
from .._data.detect import is_anndata
from .._data.labels import name_array
from .._data.mudata_rows import takes_mudata
from .._estimator.mcpca import MCPCA, fitted_model
from .._model.new_rows import n_raw_features
from .._results.anndata_layout import add_result, keys_of, obs_columns, read_model, stored_fit, stored_names
from .._results.anndata_new import features_by_name, rows_on_components
from .._results.anndata_preprocess import fitted_preprocess, of_rows_in
from .._utils.arguments import check_integer, refuse_without_effect
from .._utils.component_names import component_names
from .._utils.optional import require
from .._utils.types import Array

_NO_LABEL = "<no label>"  # stands for rows without one while scores are computed


@takes_mudata
def loadings_for(
    adata: Any,
    context_key: str | list[str] | None = None,
    *,
    model: Any,
    key: str = "mcpca",
    layer: str | None = None,
    min_samples: int = 2,
    missing: str = "error",
    corrected: bool = True,
    batch: str | list[str] | None = None,
    covariates: str | list[str] | None = None,
    missing_features: str = "error",
    mod: str | None = None,
) -> Any:
    """Return the loadings of new contexts on MCPCs that were fitted to other data.

    They are without the noise of the new contexts, and comparable with ``uns[key]["corrected_loadings"]``.

    Parameters
    ----------
    adata : AnnData or MuData
        New rows. Features are found by name, in any order; others are ignored.
    context_key : str or list of str, optional
        As for ``mcpca.tl.mcpca``; None takes all rows as one context, "all".
    model : AnnData, MuData or MCPCA
        The AnnData or MuData with the fit, or a fitted model whose features have names.
    key : str
        The ``key_added`` of the fit.
    layer : str, optional
        Layer of ``adata`` to use; by default the one of the fit, or ``adata.X`` if it had none.
    min_samples, missing
        As for ``mcpca.tl.mcpca``.
    corrected : bool
        As for ``MCPCA.loadings_for``: False leaves the noise of the new contexts in, as in ``uns[key]["loadings"]`` of
        a fit without noise.
    batch, covariates : str or list of str, optional
        Columns of ``adata.obs``, as for ``mcpca.tl.mcpca``: removed within each new context.
    missing_features : {"error", "union"}
        Features of the fit that ``adata`` lacks are an error, or left out with a warning that says what it costs:
        loadings are then those of least squares on the features that are there. See ``missing`` of
        ``MCPCA.loadings_for``.
    mod : str, optional
        The modality of a MuData, in ``adata`` and in ``model`` alike, as for ``mcpca.tl.mcpca``.

    Returns
    -------
    DataFrame (contexts, MCPCs)
        ``attrs["loadings"]`` says in words which loadings they are.

    Notes
    -----
    For a fit on principal components in ``obsm`` the new rows are taken from ``adata.obsm``, where they must be on the
    same components. If they are not there, they are computed from features, by name, with the axes of the components in
    ``varm`` of the AnnData with the fit. How they are centred does not matter: the mean of every context is subtracted.
    Cost O(n p r), one pass or two.
    """
    check_anndata(adata)
    pd = require("pandas", EXTRA)
    new = _fit_and_rows(model, key, adata, layer, centred=False, missing_features=missing_features)
    fitted = new.fitted
    if context_key is None:
        why = "without context_key all rows are one context"
        refuse_without_effect("min_samples", min_samples, 2, why, "drop it, or pass context_key")
        refuse_without_effect("missing", missing, "error", why, "drop it, or pass context_key")
        check_integer(adata.n_obs, "adata.n_obs", 2, way_out="A covariance needs 2 rows.")
        # One context, code 0 for every row; none dropped, none missing.
        contexts = ObsContexts(np.array(["all"]), np.zeros(adata.n_obs, dtype=np.intp), [], [], 0)
    else:
        # single: new rows may all be of one context, where ``tl.mcpca`` asks for two.
        contexts = contexts_of_obs(adata, context_key, min_samples=min_samples, missing=missing, single=True)
        contexts.warn_of_dropped(min_samples)
    if missing_features == "union":
        for name, value in (("batch", batch), ("covariates", covariates)):
            refuse_without_effect(name, value, None, "features are missing", "drop one of the two")
        chosen = contexts.codes >= 0
        B = fitted.loadings_for(
            new.source[chosen], contexts.names[contexts.codes[chosen]], corrected=corrected, missing="union"
        )
    else:
        rows = contexts.with_rows(FeatureSpace(new.source, None, None, None, False, None))
        rows = annotations_of_obs(adata, batch=batch, covariates=covariates).attach(rows)
        B = fitted.loadings_for(rows, corrected=corrected)
    table = pd.DataFrame(B, index=contexts.names.astype(object), columns=component_names(fitted))
    table.attrs["loadings"] = fitted_model(fitted).loadings_in_words(corrected)
    return table


@takes_mudata
def transform(
    adata: Any,
    context_key: str | list[str] | None = None,
    *,
    model: Any,
    key: str = "mcpca",
    key_added: str | None = None,
    layer: str | None = None,
    center: Any = None,
    posterior: bool = False,
    missing: str = "error",
    batch: str | list[str] | None = None,
    covariates: str | list[str] | None = None,
    missing_features: str = "error",
    copy: bool = False,
    mod: str | None = None,
) -> Any:
    """Store the scores of new rows on MCPCs that were fitted to other data.

    Parameters
    ----------
    adata : AnnData or MuData
        New rows, in memory, backed or on Dask. Features are found by name, in any order. Others than those of the fit
        are left out, and counted in what is stored; missing ones are an error that names them.
    context_key : str or list of str, optional
        As for ``mcpca.tl.mcpca``, for contexts of the fit, which are found by name: each row is centred by the fitted
        mean of its own context. None centres all rows by the overall mean of the fit, as its own scores are.
    model : AnnData, MuData or MCPCA
        The AnnData or MuData with the fit, or a fitted model whose features have names.
    key : str
        The ``key_added`` of the fit.
    key_added : str, optional
        Name for the scores; by default ``key``.
    layer : str, optional
        Layer of ``adata`` to use; by default the one of the fit, or ``adata.X`` if it had none.
    center, posterior
        As for ``MCPCA.transform``: "own" centres each context by its mean in ``adata``, also contexts that the fit has
        not seen.
    missing : {"error", "drop"}
        Whether rows without a context are an error or have NaN for scores.
    batch, covariates : str or list of str, optional
        Columns of ``adata.obs`` with what the fit removed, for scores without it; see ``MCPCA.transform``. Covariates
        go by name. Needs ``context_key``.
    missing_features : {"error", "union"}
        Features of the fit that ``adata`` lacks are an error, or left out with a warning that says what it costs; see
        ``missing`` of ``MCPCA.transform``.
    copy : bool
        Leave ``adata`` unchanged and return a copy with the scores.
    mod : str, optional
        The modality of a MuData, in ``adata`` and in ``model`` alike, as for ``mcpca.tl.mcpca``.

    Returns
    -------
    None, or AnnData with ``copy=True``. For ``key_added="mcpca"``:

    ``adata.obsm["X_mcpca"]`` : ndarray (n_obs, r)
        Scores, comparable with those of the fit where both were centred in the same way.
    ``adata.uns["mcpca"]["transform"]`` : dict
        How they were computed: "key", "context_key", "layer" or "obsm", "center", "posterior", "ignored", the number of
        features that the fit does not have, and "version".

    Notes
    -----
    For a fit on principal components in ``obsm`` rows are taken from ``adata.obsm``, where they must be on the same
    components and centred as those of the fit. If they are not there they are computed from features, by name, with the
    axes and the mean of the PCA, which are read from the AnnData with the fit. Cost O(n p r), one pass. If anything
    fails ``adata`` stays unchanged.
    """
    check_anndata(adata)
    check_target(adata, copy)
    key_added = key if key_added is None else key_added
    names = keys_of(key_added)
    before = adata.uns.get(key_added)
    # Loadings, axes and pictures of that fit would be shown beside scores on other axes.
    if hasattr(before, "keys") and "loadings" in before:
        raise ValueError(
            f"key_added={key_added!r}: adata has a fit of its own under this key, whose scores would be replaced; pass "
            "another key_added."
        )
    if context_key is None:
        why = "without context_key rows have no contexts"
        refuse_without_effect("missing", missing, "error", why, "drop it, or pass context_key")
    is_own = isinstance(center, str) and center == "own"
    fitted, source, layer, obsm = _fit_and_rows(
        model, key, adata, layer, centred=not is_own, missing_features=missing_features
    )
    labels, unlabelled = None, None
    if context_key is not None:
        labels, unlabelled = _labels(adata, context_key, missing, fitted, is_own, posterior)
    nuisance = _nuisance(adata, fitted, batch, covariates)
    if missing_features == "union":
        nuisance["missing"] = "union"
    scores = np.array(computed(fitted.transform(source, labels, center=center, posterior=posterior, **nuisance)))
    if unlabelled is not None:
        scores[unlabelled] = np.nan
    # Everything that may fail has been done: adata is changed, or copied, only now.
    target = adata.copy() if copy else adata
    target.obsm[names.scores] = scores
    how = {
        "key": key,
        "context_key": stored_names(context_key),
        "layer": layer,
        "obsm": obsm,
        "center": center if isinstance(center, str) else None if center is None else "given",
        "posterior": posterior,
        "batch": stored_names(batch),
        "covariates": stored_names(covariates),
        # Features that the fit does not have are left out without a warning: an AnnData usually has all genes.
        "ignored": adata.n_vars - n_raw_features(fitted_model(fitted)) if obsm is None else None,
        "version": version("mcpca"),
    }
    add_result(target, key_added, "transform", {name: value for name, value in how.items() if value is not None})
    return target if copy else None


def _nuisance(adata: Any, fitted: MCPCA, batch: Any, covariates: Any) -> dict[str, Any]:
    """Return batch and covariates of the rows, as values: rows of a fit are not an AnnData."""
    said = annotations_of_obs(adata, batch=batch, covariates=covariates).annotations
    nuisance: dict[str, Any] = {}
    if said is not None and said.batch is not None:
        nuisance["batch"] = said.batch
    if said is not None and said.variables is not None:
        # All that the fit has removed, also what a formula does not name by itself.
        nuisance["covariates"] = obs_columns(adata, list(said.variables))
    return nuisance


def _labels(
    adata: Any, context_key: Any, missing: str, fitted: MCPCA, is_own: bool, posterior: bool
) -> tuple[Array, Array | None]:
    """Return a label (n,) for every row, as the fit has them, and which rows have none of their own, if any."""
    coded = labels_of_obs(adata, context_key, missing)
    # By text, which is what contexts in an AnnData are; those of a model may be numbers.
    contexts = {str(name): name for name in fitted.contexts_.tolist()}
    known = [contexts.get(name, name) for name in coded.categories.tolist()]
    unlabelled = coded.codes < 0
    if not unlabelled.any():
        return name_array(known)[coded.codes], None
    if unlabelled.all():
        raise ValueError(f"context_key={context_key!r}: no row has a label; drop context_key.")
    # These rows get scores with the others, which are deleted afterwards. Their values must not change any mean.
    if is_own and posterior:
        raise ValueError(
            "missing='drop' with center='own' and posterior=True: rows without a context have no loadings to shrink "
            "by; leave them out of adata."
        )
    codes = np.where(unlabelled, len(known) if is_own else coded.codes[~unlabelled][0], coded.codes)
    return name_array([*known, _NO_LABEL] if is_own else known)[codes], unlabelled


class _NewRows(NamedTuple):
    """A fitted model, new rows in the space of its fit, and where these are from: a layer, or an entry of ``obsm``."""

    fitted: MCPCA
    source: Any
    layer: str | None
    obsm: str | None


def _fit_and_rows(
    model: Any, key: str, adata: Any, layer: str | None, *, centred: bool, missing_features: str
) -> _NewRows:
    """Return the fitted model of an AnnData, or the model itself, and the rows of ``adata`` in the space of its fit.

    ``centred``: whether rows are to be compared with means of the fit, see ``rows_on_components``. If features may be
    missing, the rows are an AnnData, whose features the model finds by name itself.
    """
    if missing_features not in ("error", "union"):
        raise ValueError(f"missing_features={missing_features!r}; choose 'error' or 'union'.")
    find = features_by_name if missing_features == "error" else _as_named
    if is_anndata(model):
        stored = stored_fit(model, key)
        fitted: MCPCA = read_model(MCPCA, model, key)
        params = stored["params"]
        # New data are expected in the form of the fit, which its layer tells.
        layer = params.get("layer") if layer is None else layer
        # In ``var`` features have names to go by; entries of ``obsm`` need their axes.
        if params.get("obsm") is None:
            steps = fitted_preprocess(stored)
            known: Any = stored["features"] if steps is None else steps.feature_names_in
            source = find(adata, layer, [str(name) for name in known])
            return _NewRows(of_rows_in(fitted, adata), source, layer, None)
        refuse_without_effect(
            "missing_features", missing_features, "error", "the fit is on principal components", "drop it"
        )
        A = np.asarray(stored["components"])
        source = rows_on_components(adata, params["obsm"], layer, model, key, A, centred=centred)
        return _NewRows(fitted, source, layer, params["obsm"])
    if not isinstance(model, MCPCA):
        raise TypeError(f"model is a {type(model).__name__}; pass the AnnData with a fit, or a fitted MCPCA.")
    refuse_without_effect("key", key, "mcpca", "it names a fit in an AnnData, and model is an MCPCA", "drop it")
    names = getattr(model, "feature_names_in_", None)
    raw = getattr(model, "preprocess_", None)
    if raw is not None:
        names = raw.feature_names_in
    if names is None:
        raise ValueError(
            "model has no names of features to find those of adata by; pass the AnnData with the fit, or the rows "
            "themselves to the method of the model."
        )
    return _NewRows(of_rows_in(model, adata), find(adata, layer, [str(name) for name in names]), layer, None)


def _as_named(adata: Any, layer: str | None, names: list[str]) -> Any:
    """Return an AnnData with a layer as its matrix, in which features are found by name."""
    matrix, _ = layer_matrix(adata, layer)
    if layer is None:
        return adata
    return type(adata)(matrix, obs=adata.obs[[]], var=adata.var[[]])
