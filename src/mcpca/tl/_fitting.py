"""Fits to an AnnData, a choice of their rank, and the model that is stored with them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np

from .._data.anndata_rows import (
    FeatureSpace,
    ObsContexts,
    check_anndata,
    check_target,
    contexts_of_obs,
    space_of,
    warn_of_counts,
)
from .._data.annotations import Annotations, annotations_of_obs
from .._data.contexts import Contexts
from .._data.dask_graph import computed
from .._data.detect import is_dask
from .._data.mudata_rows import takes_mudata
from .._data.preprocess import Preprocess, as_preprocess
from .._data.preprocessed import fit_and_preprocess
from .._estimator.mcpca import MCPCA, fitted_model
from .._model.decomposition import check_weights
from .._rank.selection import RankSelection, select_rank
from .._results.anndata_layout import add_result, data_of, keys_of, rank_content, read_model, stored_names, write_fit
from .._results.anndata_preprocess import of_rows_in, stored_preprocess
from .._utils.arguments import NOT_GIVEN, as_seed, one_random_state
from .._utils.progress import reporting
from .._utils.types import Array
from .._utils.user_warnings import warn
from .._utils.wording import nearest


@takes_mudata
def mcpca(
    adata: Any,
    context_key: str | list[str],
    *,
    n_comps: int | str | None = None,
    layer: str | None = None,
    obsm: str | None = None,
    mask_var: Any = "auto",
    key_added: str = "mcpca",
    solver: str = "mspm",
    rng: Any = NOT_GIVEN,
    random_state: Any = NOT_GIVEN,
    min_samples: int = 10,
    missing: str = "error",
    missing_features: str = "error",
    center: str = "overall",
    groups: str | list[str] | None = None,
    batch: str | list[str] | None = None,
    covariates: str | list[str] | None = None,
    preprocess: Any = None,
    copy: bool = False,
    mod: str | None = None,
    **parameters: Any,
) -> Any:
    """Find axes that explain variation in subsets of contexts, and how much of each axis every context carries.

    Parameters
    ----------
    adata : AnnData or MuData
        In memory, backed, read lazily (``anndata.experimental.read_lazy``) or on Dask, dense or sparse; nothing is made
        dense, a matrix on file is not loaded unless it fits into scikit-learn's ``working_memory``, and rows on Dask
        stay there. Values should be normalised; raw counts need ``preprocess`` (``RawCountsWarning``).
    context_key : str or list of str
        Column of ``adata.obs`` with the context of each row (a patient, a perturbation, a cell type, ...). Several
        columns are crossed: every combination that occurs is a context, "a / b".
    n_comps : int, None or "replicating"
        Number of MCPCs. None chooses it as ``mcpca.select_rank`` does, and raises ``NothingAboveNoiseError`` if nothing
        is above noise. "replicating" keeps those of the chosen number that come back in halves of the rows.
    layer : str, optional
        Use ``adata.layers[layer]`` instead of ``adata.X``.
    obsm : str, optional
        Use ``adata.obsm[obsm]``, for example "X_pca". For principal components of scanpy the MCPCs are still given in
        genes, by the components' axes in ``adata.varm``.
    mask_var : "auto", str, array of bool (n_vars,) or None
        Features to use: a column of ``adata.var`` or a mask. "auto" is "highly_variable" if there is such a column and
        all features otherwise; None is all features.
    key_added : str
        Name for the results, see below.
    solver : {"mspm", "lsq", "ml", "auto"}
        As for ``MCPCA``.
    rng : int, Generator, SeedSequence, BitGenerator or None
        Determines every random number; by default 0. The seed used is stored with the parameters as an integer.
    random_state : int, Generator, RandomState or None
        The same by the name that scanpy and scikit-learn give it; ``rng`` is preferred, and both are an error.
    min_samples : int
        Contexts with fewer rows are left out of the fit, with a ``DroppedContextsWarning``. Their rows still get
        scores.
    missing : {"error", "drop"}
        Whether rows without a context are an error or are left out of the fit.
    missing_features : {"error", "union", "em", "pairwise"}
        What to do where values are NaN: the parameter ``missing`` of ``MCPCA``. "union" is for genes that whole
        contexts lack, as ``anndata.concat(..., join="outer")`` leaves them; it needs ``solver="lsq"`` or "ml". Rows
        then have scores from the genes that they have, about the mean of their context.
    center : {"overall", "context"}
        Mean subtracted from the rows before scores are computed. "overall": that of all fitted rows, so that
        differences between contexts stay visible, and every row has scores. "context": that of the row's own context;
        rows that were not fitted have NaN.
    groups, batch, covariates : str or list of str, optional
        Columns of ``adata.obs``, as for ``MCPCA.fit``: which rows were sampled together (donors), for the choice of the
        rank; and nuisance that is removed within each context, from the scores as well: strata, crossed if they are
        several; numbers and labels, or a formula over columns, "sex + np.log(n_counts)". Rows that were not fitted then
        have NaN for scores. ``uns[key]["nuisance"]`` says how much of each context's variance it was.
    preprocess : {None, "log1p", "pearson"}, function or Preprocess
        What is done to rows while they are read, as for ``MCPCA``: both names are for raw counts. Totals are over all
        features, also where ``mask_var`` selects some. ``adata`` keeps its counts, and every function of ``mcpca.tl``
        and every plot prepares them again as the fit did. ``uns[key]["preprocess"]`` says what was done.
    copy : bool
        Leave ``adata`` unchanged and return a copy with the results.
    mod : str, optional
        The modality of a MuData to fit; results go into it, ``mdata.mod[mod]``. Not needed if there is only one.
        Columns of ``obs`` are those of the modality, or of ``mdata.obs`` if it has none of that name.
    **parameters
        Further parameters of ``MCPCA``: orthogonal, noise, context_weights, rank_range, n_seed_pairs,
        cos_sim_threshold, robust, cross_fit, tol, max_iter, verbose. ``context_weights`` may be a dict by context.

    Returns
    -------
    None, or AnnData with ``copy=True``. For ``key_added="mcpca"``:

    ``adata.obsm["X_mcpca"]`` : ndarray (n_obs, r)
        Scores, for ``sc.pp.neighbors(adata, use_rep="X_mcpca")`` and what follows from it; in memory wherever the rows
        are.
    ``adata.varm["MCPCs"]``, ``adata.varm["MCPCs_projection"]`` : ndarray (n_vars, r)
        The MCPCs, unit columns, with zeros for features left out; and the vectors that turn a row into scores. (Other
        keys: ``varm["key_MCPCs"]``.) For principal components without axes these are in ``uns`` alone.
    ``adata.obs["mcpca_context"]`` : categorical
        The context of each row; missing for rows that were not fitted.
    ``adata.uns["mcpca"]`` : dict
        "loadings", a DataFrame of contexts by MCPCs, >= 0, and "corrected_loadings", the same without the noise of
        their context, by which plots and analyses compare contexts; "contexts" with the number of rows and the quality
        of the fit in each; "params", "diagnostics", "singular_values", "dropped", "rank", ...: all that
        ``mcpca.tl.model`` needs to restore the fitted ``MCPCA``. See ``mcpca._results.anndata_layout``.

    Notes
    -----
    Cost and memory are those of ``MCPCA.fit``, plus one pass over the rows for scores and, for rows in memory without
    ``preprocess``, a copy of the features that ``mask_var`` selects. If anything fails ``adata`` stays unchanged.

    Examples
    --------
    >>> import anndata, mcpca
    >>> from mcpca.datasets import make_contexts
    >>> data = make_contexts(n_contexts=6, n_features=20, n_components=4, random_state=0)
    >>> adata = anndata.AnnData(data.X, obs={"patient": data.y.astype(str)})
    >>> mcpca.tl.mcpca(adata, "patient", n_comps=4)
    >>> adata.uns["mcpca"]["loadings"].shape
    (6, 4)
    """
    # Arguments are checked before the data are read, which may take long.
    check_anndata(adata)
    keys_of(key_added)
    check_target(adata, copy)
    random_state = one_random_state(rng, random_state, 0)
    if center not in ("overall", "context"):
        raise ValueError(f"center={center!r}; choose 'overall' or 'context'.")
    fitted = _unfitted(n_comps, solver, random_state, parameters | {"preprocess": preprocess}, missing_features)
    spec = as_preprocess(preprocess)
    if missing_features != "error" and center == "overall":
        center = "context"  # an overall mean of features that some contexts lack would not be comparable
    space = space_of(adata, layer, obsm, _mask_beside(spec, mask_var), select=spec is None)
    if missing_features != "error" and is_dask(space.source):
        raise ValueError(
            f"missing_features={missing_features!r} reads rows in this process, context by context, and those of adata "
            "are on Dask. Select the features that all contexts have, and drop missing_features; or pass "
            "adata.to_memory(), some rows of it, or the AnnData of a file as it was opened."
        )
    contexts = contexts_of_obs(adata, context_key, min_samples=min_samples, missing=missing)
    annotated = annotations_of_obs(adata, groups=groups, batch=batch, covariates=covariates)
    # By now it is known which contexts are dropped, and weights must match the others.
    if fitted.context_weights is not None:
        fitted.context_weights = _weights(fitted.context_weights, contexts)
    # Warnings are stored with the fit as well, so that whoever opens the file later sees them.
    notes = [*contexts.warn_of_dropped(min_samples)]
    counts_note = warn_of_counts(space, layer) if spec is None else None
    if counts_note is not None:
        notes.append(counts_note)
    with warnings.catch_warnings(record=True) as early, reporting(fitted.verbose, "preparing rows") as report:
        warnings.simplefilter("always")
        prepared = fit_and_preprocess(spec, contexts.with_rows(space), adata, report, columns=space.columns)
    rows = annotated.attach(prepared)
    if spec is not None:
        space = _prepared_space(space, rows)
    # Recorded, so that they can be stored with the fit.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")  # a filter of the caller must not keep one from being stored
        fitted.fit(rows)
        scores = _scores(of_rows_in(fitted, adata), space, contexts, center, annotated.annotations)
    for item in [*early, *caught]:  # issued again, now subject to the caller's filters and at the caller's line
        notes.append(str(item.message))
        warn(item.message, item.category)
    params = _params(fitted, context_key, n_comps, layer, obsm, space, key_added, min_samples, missing, center)
    said = {"groups": groups, "batch": batch, "covariates": covariates}
    params |= {name: stored_names(value) for name, value in said.items() if value is not None}
    # Everything that may fail has been done: adata is changed, or copied, only now.
    target = adata.copy() if copy else adata
    write_fit(target, key_added, fitted, scores, space, contexts, params, notes)
    return target if copy else None


@takes_mudata
def rank(
    adata: Any,
    context_key: str | list[str],
    *,
    layer: str | None = None,
    obsm: str | None = None,
    mask_var: Any = "auto",
    key_added: str = "mcpca",
    rng: Any = NOT_GIVEN,
    random_state: Any = NOT_GIVEN,
    min_samples: int = 10,
    missing: str = "error",
    groups: str | list[str] | None = None,
    batch: str | list[str] | None = None,
    covariates: str | list[str] | None = None,
    preprocess: Any = None,
    mod: str | None = None,
    **options: Any,
) -> RankSelection:
    """Recommend a number of MCPCs, or say that nothing is above noise.

    Parameters
    ----------
    adata, context_key, layer, obsm, mask_var, key_added, rng, random_state, min_samples, missing, groups, batch, \
covariates, preprocess, mod
        As for ``mcpca.tl.mcpca``, which chooses the same rank with the same arguments.
    **options
        Further parameters of ``mcpca.select_rank``: ranks, criteria, null, n_splits, n_seed_pairs, cos_sim_threshold,
        n_jobs, verbose.

    Returns
    -------
    RankSelection
        ``rank``, ``reason``, every curve, and ``plot()``. Its content is also stored, in
        ``adata.uns[key_added]["rank"]``.

    Notes
    -----
    Cost as for ``select_rank``. If covariances of all features would be too large (see ``docs/large.md``) only the 300
    most variable ones are used, and ``reason`` says so.
    """
    check_anndata(adata)
    keys_of(key_added)
    check_target(adata)
    random_state = one_random_state(rng, random_state, 0)
    spec = as_preprocess(preprocess)
    space = space_of(adata, layer, obsm, _mask_beside(spec, mask_var), select=spec is None)
    contexts = contexts_of_obs(adata, context_key, min_samples=min_samples, missing=missing)
    annotated = annotations_of_obs(adata, groups=groups, batch=batch, covariates=covariates)
    contexts.warn_of_dropped(min_samples)
    if spec is None:
        warn_of_counts(space, layer)
    # Issued again below, so that they point at the caller's line.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with reporting(options.get("verbose"), "preparing rows") as report:
            prepared = fit_and_preprocess(spec, contexts.with_rows(space), adata, report, columns=space.columns)
        rows = annotated.attach(prepared)
        selection = select_rank(rows, random_state=random_state, **options)
    for item in caught:
        warn(item.message, item.category)
    key = stored_names(context_key)
    # In the form in which ``tl.mcpca`` will compare it with its own arguments.
    chosen = {"context_key": key, "layer": layer, "obsm": obsm, "mask_var": space.mask_var, "min_samples": min_samples}
    chosen["preprocess"] = stored_preprocess(preprocess)
    add_result(adata, key_added, "rank", rank_content(selection, data_of(chosen)))
    return selection


@takes_mudata
def model(adata: Any, key: str = "mcpca", *, mod: str | None = None) -> MCPCA:
    """Return the fitted ``MCPCA`` that ``mcpca.tl.mcpca`` stored, for ``standard_errors``, ``transform``, ``save``, ...

    Its contexts are named as in ``adata.uns[key]["loadings"]``, by text. Nothing is fitted again; the features of the
    fit must still be in ``adata``, its rows need not.

    Parameters
    ----------
    adata : AnnData or MuData
    key : str
        The ``key_added`` of the fit.
    mod : str, optional
        The modality of a MuData.
    """
    check_anndata(adata)
    fitted: MCPCA = read_model(MCPCA, adata, key)
    return fitted


def _unfitted(n_comps: Any, solver: str, random_state: Any, parameters: dict[str, Any], missing_features: str) -> MCPCA:
    """Return a model with these parameters, whose ``random_state`` is an integer: only that can be stored."""
    # n_comps, solver and random_state are arguments of their own.
    own = {"n_components", "solver", "random_state", "missing", "preprocess"}
    known = sorted(set(MCPCA().get_params(deep=False)) - own)
    for name in parameters:
        if name not in known and name != "preprocess":
            raise TypeError(f"mcpca.tl.mcpca() has no parameter {name!r}; {nearest(name, known)}")
    # A Generator cannot be stored: one number is drawn from it, and that repeats the run.
    seed = as_seed(random_state)
    return MCPCA(n_comps, solver=solver, random_state=seed, missing=missing_features, **parameters)


def _weights(weights: Any, contexts: ObsContexts) -> Array:
    """Return weights in the order of contexts; a dict may also hold those of contexts that were dropped."""
    if isinstance(weights, Mapping):
        # Text, as contexts of an AnnData are.
        dropped = {name for name, _ in contexts.dropped}
        weights = {str(name): weight for name, weight in weights.items() if str(name) not in dropped}
    return check_weights(weights, contexts.names)


def _mask_beside(spec: Preprocess | None, mask_var: Any) -> Any:
    """Return the mask of features: none by default where ``n_top`` chooses them."""
    if spec is None or spec.n_top is None:
        return mask_var
    if mask_var is not None and not (isinstance(mask_var, str) and mask_var == "auto"):
        raise ValueError(
            f"mask_var and n_top={spec.n_top} both select features; drop mask_var, or pass Preprocess without n_top."
        )
    return None


def _prepared_space(space: FeatureSpace, rows: Contexts) -> FeatureSpace:
    """Return the features of prepared rows; the source has all of them still, for later steps to prepare."""
    assert rows.preprocess is not None
    return replace(space, names=rows.feature_names, columns=rows.preprocess.columns)


def _scores(
    fitted: MCPCA, space: FeatureSpace, contexts: ObsContexts, center: str, annotations: Annotations | None
) -> Array:
    """Return the scores (n_obs, r) of all rows, without the nuisance that the fit removed.

    By context they are those about the overall mean less an offset for each context, ``pinv(A) (mean_i - mean)``: no
    second pass over the rows. Nuisance is an offset for each row.
    """
    if fitted.missing != "error":
        is_fitted = contexts.codes >= 0
        scores = np.full((len(is_fitted), fitted.n_components_), np.nan)
        rows = np.flatnonzero(is_fitted)
        scores[rows] = fitted.transform(
            space.source.gather(rows), contexts.names[contexts.codes[rows]], missing="union"
        )
        return scores
    scores = np.asarray(computed(fitted.transform(space.source, center="overall")))
    if fitted.nuisance_ is not None:
        assert annotations is not None
        is_fitted = contexts.codes >= 0
        scores = scores.copy()
        scores[is_fitted] -= fitted.nuisance_.offsets(annotations.of_rows(is_fitted), contexts.codes[is_fitted])
        scores[~is_fitted] = np.nan
    if center == "overall":
        return scores
    # means (k, p), offsets (k, r)
    means = np.asarray(fitted.means_, dtype=np.float64)
    offsets = (means - fitted_model(fitted).context_means.overall()) @ fitted.projection_.T
    # The last row is for code -1: rows that were not fitted.
    offsets = np.vstack([offsets, np.full(offsets.shape[1], np.nan)])
    return np.asarray(scores - offsets[contexts.codes], scores.dtype)


def _params(
    fitted: MCPCA,
    context_key: str | list[str],
    n_comps: int | str | None,
    layer: str | None,
    obsm: str | None,
    space: FeatureSpace,
    key_added: str,
    min_samples: int,
    missing: str,
    center: str,
) -> dict[str, Any]:
    """Return the arguments of ``mcpca`` as they are stored, in forms that an AnnData file can hold."""
    of_model = fitted.get_params(deep=False)
    del of_model["n_components"]  # stored as n_comps
    missing_features = of_model.pop("missing")  # "missing" is about rows without a context here
    del of_model["verbose"]  # has no effect on results
    of_model["preprocess"] = stored_preprocess(of_model["preprocess"])
    # A range or tuple is nothing that a file can hold.
    if of_model["rank_range"] is not None:
        of_model["rank_range"] = np.array(list(of_model["rank_range"]))
    mask_var = space.mask_var
    if mask_var is not None and not isinstance(mask_var, str):
        mask_var = np.asarray(mask_var, dtype=bool)
    return {
        "context_key": stored_names(context_key),
        "n_comps": n_comps if n_comps is None or isinstance(n_comps, str) else int(n_comps),
        "layer": layer,
        "obsm": obsm,
        "mask_var": mask_var,
        "key_added": key_added,
        "min_samples": int(min_samples),
        "missing": missing,
        "missing_features": missing_features,
        "center": center,
        **of_model,
        "version": version("mcpca"),
    }
