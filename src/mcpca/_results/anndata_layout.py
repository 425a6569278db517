"""Where a fit is stored in an AnnData: one layout, which ``mcpca.tl`` writes and plots, analyses and reports read.

For ``key="mcpca"`` (any other key takes the place of "mcpca", and stands before "MCPCs" in ``varm``):

- ``obsm["X_mcpca"]`` (n, r): scores;
- ``obs["mcpca_context"]``: the context of each row as text, categorical, missing where the row was not fitted;
- ``varm["MCPCs"]`` (n_vars, r): A, with zeros for features that were left out, and ``varm["MCPCs_projection"]``: the
  transpose of pinv(A). For a fit on principal components both are multiplied by their axes; for one on anything else in
  ``obsm`` they are not there;
- ``uns["mcpca"]``, a dict:

  - "loadings": DataFrame (k, r), B; rows are the contexts as text, columns "MCPC 1", ..., "MCPC r"
    (older versions wrote "MCPC1", ..., which is read as well); "corrected_loadings", the same without the noise of
    their context;
  - "contexts": DataFrame (k rows) with "n_samples", "variance_explained", "squared_norm" and its standard error
    "squared_norm_error", "reconstruction_error", "offdiagonal", "offdiagonal_correlation", "likelihood_loss", and
    "noise_variance" unless it is by feature;
  - "levels", where columns were crossed: DataFrame (k rows), the label of each context in each column;
  - "variance_shares": DataFrame (k, r), what each MCPC adds to "variance_explained";
  - "landscape": DataFrame (r rows) with "F", "gradients", "curvatures", "peaks", "degrees" and "basins", as
    ``MCPCA.landscape`` has them, and "certified"; not of a fit with missing features, or of one so large that these
    take more than seconds;
  - "preprocess", where rows were prepared: "summary" in words, "target_sum", "json" and arrays, which
    ``FittedPreprocess.from_state`` reads;
  - "singular_values": the scree; "means": (k, p), of the features of the fit;
  - "features": their names (p,), where they have names; "components" (p, r) and "projection" (r, p) in the space of the
    fit, where that is not ``var``; "pca_features", for a fit on principal components whose axes are known: the names of
    those features that the axes are made of;
  - "noise_variance"; of a fit with noise also "score_covariances" and "variance_outside";
  - "params": all that is needed to repeat the run, and "version";
  - "diagnostics": "n_samples", "reconstruction_error", "relative_error" (its share of the squared norms),
    "explained_share" with its standard error "explained_share_error", "variance_explained",
    "offdiagonal_correlation", "likelihood_loss", "n_iter", "n_passes", "basis_residual", "basis_error", "exponent"
    (squares are in units of ``16^exponent``; 0 unless data are far from 1), and "warnings" (texts);
  - "dropped": "n_missing", rows without a label, and "contexts", a DataFrame with "n_samples" of the contexts left out,
    which is not there if none was;
  - "rank", where a rank was chosen: "rank", "reason", "table" (DataFrame, one row per rank), "data" (what it was chosen
    on), and "json", which ``RankSelection.from_json`` reads, or what the paper's rule found;
  - "solver", where the solver was chosen: "solver", "noise", "reason", "table" (DataFrame, one row per candidate), and
    "json", which ``SolverComparison.from_json`` reads;
  - "replicability", "context_dependence", "bootstrap" and "associations", where they were computed: see
    ``anndata_inference``. A new fit under the same key removes them.

All of it survives ``write_h5ad`` and ``write_zarr``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._data.anndata_rows import EXTRA, FeatureSpace, ObsContexts
from .._data.dask_graph import computed
from .._data.detect import index_of
from .._estimator.mcpca import fitted_model, restored, saved_model
from .._estimator.persistence import from_state, to_state
from .._model.landscape import Landscape, landscape_on_the_way
from .._model.removed_nuisance import RemovedNuisance
from .._rank.paper_rule import RankChoice
from .._rank.selection import RankSelection
from .._solvers import SOLVERS, resolved_noise
from .._utils.component_names import component_names
from .._utils.optional import require
from .._utils.types import Array
from .._utils.wording import close_names, quoted
from .anndata_preprocess import preprocess_content, preprocess_parameter, preprocess_state

# Columns of "contexts", and the facets of the model that they store.
_FACETS = {
    "squared_norm": "squared_norms",
    "squared_norm_error": "squared_norm_errors",
    "reconstruction_error": "reconstruction_errors",
    "offdiagonal": "offdiagonals",
    "offdiagonal_correlation": "offdiagonal_correlations",
    "likelihood_loss": "likelihood_losses",
}
_LANDSCAPE = tuple(Landscape.__dataclass_fields__)  # columns of "landscape", and the arrays that they store
# Entries of ``uns`` about noise, and the names of their arrays in the state of a model.
_NOISE = {
    "noise_variance": "noise_variance_",
    "score_covariances": "score_covariances",
    "variance_outside": "variance_outside",
    "attenuation": "attenuation_",
}
# Numbers of the header of a state that are kept among the diagnostics.
_NUMBERS = ("n_iter", "n_passes", "basis_residual", "basis_error", "exponent", "degrees_of_freedom", "kept_of")


class Keys(NamedTuple):
    """Names under which a fit is stored."""

    uns: str
    scores: str
    context: str
    components: str
    projection: str


def keys_of(key: str) -> Keys:
    """Return the names that belong to ``key_added=key``."""
    # HDF5 and Zarr take a slash for the separator of groups.
    if not isinstance(key, str) or not key or "/" in key:
        raise ValueError(f"key_added={key!r}; pass a name without '/', which AnnData files do not allow.")
    components = "MCPCs" if key == "mcpca" else f"{key}_MCPCs"
    return Keys(key, f"X_{key}", f"{key}_context", components, f"{components}_projection")


def stored_fit(adata: Any, key: str) -> dict[str, Any]:
    """Return ``adata.uns[key]``; raise if there is no fit of that name."""
    stored = adata.uns.get(key)
    # ``tl.rank`` writes under the same key, but without loadings: that alone is no fit.
    if stored is not None and "loadings" in stored:
        return dict(loaded(stored))
    fits = [str(name) for name, value in adata.uns.items() if hasattr(value, "keys") and "loadings" in value]
    hint = ""
    if fits:
        near = close_names(key, fits, most=1)
        hint = f" There are fits under {quoted(fits)}" + (f"; did you mean {near[0]!r}?" if near else ".")
    raise ValueError(
        f"key={key!r} names no fit of MCPCA in adata.uns.{hint} Run mcpca.tl.mcpca(adata, context_key) first."
    )


def loaded(value: Any) -> Any:
    """Return results with what ``anndata.experimental.read_lazy`` left in the file read; others as they are."""
    if hasattr(value, "keys") and hasattr(value, "items") and not hasattr(value, "columns"):
        return {name: loaded(entry) for name, entry in value.items()}
    # Tables are of a kind of their own, arrays are on Dask; both may be nested in dicts.
    return value.to_memory() if hasattr(value, "to_memory") else computed(value)


def obs_columns(adata: Any, names: list[str]) -> Any:
    """Return columns of ``obs`` as a DataFrame, also where ``obs`` is read lazily."""
    return loaded(adata.obs[names])


# Writing


def add_result(adata: Any, key: str, name: str, content: dict[str, Any]) -> None:
    """Store one more result in ``uns[key]``; a fit stays, and so does anything else that the user has put there."""
    stored = adata.uns.get(key)
    adata.uns[key] = {**(dict(stored) if hasattr(stored, "keys") else {}), name: content}


def stored_names(names: str | list[str] | None) -> Any:
    """Return names of columns as they come back from a file: several as an array of text."""
    return names if names is None or isinstance(names, str) else np.array(list(names), dtype=object)


def write_fit(
    adata: Any,
    key: str,
    model: Any,
    scores: Array,
    space: FeatureSpace,
    contexts: ObsContexts,
    params: dict[str, Any],
    notes: list[str],
) -> None:
    """Store a fitted model in an AnnData, in place of an earlier one with that key.

    Everything is computed before anything is stored, so that an error leaves the AnnData as it was.
    """
    pd = require("pandas", EXTRA)
    keys = keys_of(key)
    # None in place of vectors where the fit is on an entry of ``obsm`` without known axes.
    over_var = {
        keys.components: space.over_var(model.components_, adata.n_vars),
        keys.projection: space.over_var(model.projection_.T, adata.n_vars),
    }
    names = [str(name) for name in contexts.names]
    var_names = np.asarray(index_of(adata, "var")).astype(str).astype(object)
    content = _content(model, space, names, contexts.levels, params, notes, var_names, pd)
    content["dropped"] = {"n_missing": contexts.n_missing}
    if contexts.dropped:  # releases of anndata up to 0.12.10 at least cannot read a file lazily that has an empty table
        content["dropped"]["contexts"] = pd.DataFrame(
            {"n_samples": np.array([n for _, n in contexts.dropped], dtype=np.int64)},
            index=pd.Index([name for name, _ in contexts.dropped], dtype=object),
        )
    data = data_of(params)
    before = adata.uns.get(key)
    if model.rank_choice_ is not None:
        content["rank"] = rank_content(model.rank_choice_, data)
    elif hasattr(before, "keys") and "rank" in before and _same_data(before["rank"].get("data", {}), data):
        # tl.rank, then tl.mcpca with the rank it found: the choice stays with the fit it was made for.
        content["rank"] = before["rank"]
    if model.solver_choice_ is not None:
        content["solver"] = _solver_content(model)
    # Code -1, rows that were not fitted, becomes a missing category.
    labels = pd.Categorical.from_codes(contexts.codes, categories=names)
    adata.obsm[keys.scores] = scores
    adata.obs[keys.context] = labels
    for name, vectors in over_var.items():
        if vectors is not None:
            adata.varm[name] = vectors
        # An earlier fit under this key may have left vectors that do not belong to the new one.
        elif name in adata.varm:
            del adata.varm[name]
    adata.uns[key] = content


def _content(
    model: Any,
    space: FeatureSpace,
    names: list[str],
    levels: list[Array],
    params: dict[str, Any],
    notes: list[str],
    var_names: Array,
    pd: Any,
) -> dict[str, Any]:
    """Return the content of ``uns``, except "dropped" and "rank"."""
    # The same state as in a file of ``save``, so that ``read_model`` restores the model by the same function.
    arrays, header = to_state(saved_model(model))
    labels = component_names(model)
    table = {
        "n_samples": model.n_samples_per_context_,
        "variance_explained": arrays["facet_variance_shares"].sum(axis=1),
    }
    table |= {column: arrays[f"facet_{facet}"] for column, facet in _FACETS.items()}
    noise = {name: arrays[source] for name, source in _NOISE.items() if source in arrays}
    # One variance per context fits into the table; noise by feature does not.
    if fitted_model(model).noise_by_context is not None:
        table["noise_variance"] = noise["noise_variance"]
    content = {
        "loadings": pd.DataFrame(model.loadings_, index=names, columns=labels),
        "corrected_loadings": pd.DataFrame(model.corrected_loadings_, index=names, columns=labels),
        "contexts": pd.DataFrame(table, index=names),
        "variance_shares": pd.DataFrame(arrays["facet_variance_shares"], index=names, columns=labels),
        "singular_values": model.singular_values_,
        "means": model.means_,
        "params": params,
        "diagnostics": _diagnostics(model, header, notes),
        **noise,
    }
    landscape = landscape_on_the_way(fitted_model(model).space)
    if landscape is not None:
        table_of_mcpcs = {name: arrays[f"landscape_{name}"] for name in _LANDSCAPE}
        content["landscape"] = pd.DataFrame(table_of_mcpcs | {"certified": landscape.certified}, index=labels)
    if model.preprocess_ is not None:
        content["preprocess"] = preprocess_content(model.preprocess_)
    removed = model.nuisance_
    if removed is not None:
        content["nuisance"] = {
            "table": pd.DataFrame({"share": removed.shares, "degrees_of_freedom": removed.ranks}, index=names),
            "what": removed.what,
            # Labels and names of any kind, which tables of a file could not hold; arrays are beside them.
            "json": json.dumps(header["nuisance"]),
            **{name: arrays[name] for name in removed.array_names},
        }
    if levels:
        keys = [str(key) for key in params["context_key"]]
        content["levels"] = pd.DataFrame(dict(zip(keys, levels, strict=True)), index=names)
    if space.names is not None:
        content["features"] = space.names.astype(object)
    # ``varm`` then holds these multiplied by the axes of the PCA, or nothing: the model needs them as they are.
    if not space.in_var:
        content |= {"components": model.components_, "projection": model.projection_}
    if space.axes is not None:
        # scanpy stores zeros for genes that its PCA left out.
        content["pca_features"] = var_names[(space.axes != 0).any(axis=1)]
    return content


def _solver_content(model: Any) -> dict[str, Any]:
    """Return the dict that stores a choice of solver; noise that loadings contain is stored as "none"."""
    choice = model.solver_choice_
    return {
        "solver": model.solver_,
        "noise": model.noise_ or "none",
        "reason": choice.reason,
        "table": choice.table,
        "json": choice.to_json(),
    }


def _diagnostics(model: Any, header: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    # NaN if nothing varies: then there is nothing to explain, and no error.
    share = model.explained_share()
    return {
        "n_samples": int(model.n_samples_per_context_.sum()),
        "reconstruction_error": model.reconstruction_error(),
        "relative_error": 1 - share if np.isfinite(share) else 0.0,
        "explained_share": share if np.isfinite(share) else 0.0,
        "explained_share_error": float(np.nan_to_num(model.explained_share_error())),
        "variance_explained": model.variance_explained(),
        "offdiagonal_correlation": model.offdiagonal_correlation(),
        "likelihood_loss": model.likelihood_loss(),
        "n_iter": int(header["n_iter"]),
        "n_passes": header["n_passes"],
        "basis_residual": float(header["basis_residual"]),
        "basis_error": header["basis_error"],
        "exponent": int(header["exponent"]),
        "degrees_of_freedom": model.degrees_of_freedom_,
        "kept_of": model.kept_of_,
        "warnings": np.array(notes, dtype=object),
    }


def data_of(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that say which rows and features were used."""
    names = ("context_key", "layer", "obsm", "mask_var", "min_samples", "preprocess")
    return {name: params[name] for name in names}


def _same_data(first: Any, second: Any) -> bool:
    """Whether two dicts of ``data_of`` are equal; one of them may have been read from a file, as arrays of text."""
    return all(
        [str(v) for v in np.atleast_1d(first.get(name))] == [str(v) for v in np.atleast_1d(second.get(name))]
        for name in {*first, *second}
    )


def rank_content(choice: RankSelection | RankChoice, data: dict[str, Any]) -> dict[str, Any]:
    """Return the dict that stores a choice of rank."""
    # No rank (nothing above noise) is stored as 0, since older versions of anndata do not write None.
    content: dict[str, Any] = {"rank": int(choice.rank or 0), "reason": choice.reason, "data": data}
    # JSON brings it back in full; the table is there for readers of the file.
    if isinstance(choice, RankSelection):
        return content | {"table": choice.table, "json": choice.to_json()}
    pd = require("pandas", EXTRA)
    table = pd.DataFrame({"mean score": choice.mean_scores}, index=pd.Index(choice.ranks, name="rank"))
    content |= {"table": table, "threshold": choice.threshold, "outcome": choice.outcome}
    content |= {"scores": choice.scores, "singular_values": choice.singular_values, "matching": choice.matching}
    if choice.unsettled is not None:
        content["unsettled"] = choice.unsettled
    return content


# Reading


class Columns(NamedTuple):
    """Features of a fit in ``var``: their positions, in the order of the fit, and the names of missing ones."""

    positions: Array
    lost: list[str]


def columns_of_fit(adata: Any, key: str, stored: dict[str, Any]) -> Columns:
    """Return the positions in ``var`` of the features of a fit whose axes are in ``varm``; others have zeros there.

    For a fit on principal components these are the features that the components are made of.
    """
    names = keys_of(key)
    # "components" in ``uns`` mark a fit that was not made on ``var``: its "features" are not genes.
    known = stored.get("pca_features") if "components" in stored else stored.get("features")
    if known is None:  # written by a version that did not store them: a feature without any entry was not fitted
        both = [np.asarray(adata.varm[name]) for name in (names.components, names.projection)]
        return Columns(np.flatnonzero(np.hstack(both).any(axis=1)), [])
    features = [str(name) for name in known]
    # By name, as the user may have reordered or filtered ``var`` since.
    positions = index_of(adata, "var").astype(str).get_indexer(features)
    lost = [name for name, position in zip(features, positions, strict=True) if position < 0]
    # get_indexer gives -1 for names that are not there.
    return Columns(positions[positions >= 0], lost)


def features_are_lost(n: int, lost: Sequence[str]) -> ValueError:
    """Return the error for an AnnData that has lost some of the ``n`` features of a fit."""
    return ValueError(
        f"The fit was made on {n} features, of which adata has lost {len(lost)} ({quoted(lost)}); use the AnnData "
        "that has them all, or fit again."
    )


def noise_of_stored(stored: dict[str, Any]) -> str | None:
    """Return the model of noise behind the stored loadings; None if the noise is in them."""
    if "solver" in stored:
        noise = str(stored["solver"]["noise"])
        return None if noise == "none" else noise
    solver = str(stored["params"].get("solver", "mspm"))
    # In older versions only a likelihood had noise, and "isotropic" was the default of all solvers.
    if "corrected_loadings" not in stored and not SOLVERS[solver].models_noise:
        return None
    missing = str(stored["params"].get("missing_features") or "error")
    return resolved_noise(solver, stored["params"].get("noise"), missing)


def read_model(cls: Any, adata: Any, key: str) -> Any:
    """Return the fitted model that ``write_fit`` stored, in full; ``cls`` is the class of models."""
    stored = stored_fit(adata, key)
    diagnostics, contexts = stored["diagnostics"], stored["contexts"]
    A, projection = _vectors(adata, key, stored)
    arrays: dict[str, Any] = {
        "components_": A,
        "projection_": projection,
        "loadings_": stored["loadings"].to_numpy(),
        "singular_values_": np.asarray(stored["singular_values"]),
        "n_samples_per_context_": contexts["n_samples"].to_numpy(),
        "means_": np.asarray(stored["means"]),
        "facet_variance_shares": stored["variance_shares"].to_numpy(),
    }
    arrays |= {f"facet_{facet}": contexts[column].to_numpy() for column, facet in _FACETS.items()}
    arrays |= {target: np.asarray(stored[name]) for name, target in _NOISE.items() if name in stored}
    if "landscape" in stored:
        arrays |= {f"landscape_{name}": stored["landscape"][name].to_numpy() for name in _LANDSCAPE}
    features = stored.get("features")
    header = {
        "parameters": _parameters(cls, stored["params"]),
        "contexts": [str(name) for name in stored["loadings"].index],
        "feature_names": None if features is None else [str(name) for name in features],
        **{name: diagnostics.get(name) for name in _NUMBERS},
    }
    # Fits of older versions have neither corrected loadings nor a word on noise, which tells ``from_state`` their age.
    if "corrected_loadings" in stored:
        arrays["corrected_loadings_"] = stored["corrected_loadings"].to_numpy()
        header["noise"] = noise_of_stored(stored)
    if "solver" in stored:
        header |= {"solver": str(stored["solver"]["solver"]), "solver_choice": str(stored["solver"]["json"])}
    nuisance = stored.get("nuisance")
    if nuisance is not None:
        header["nuisance"] = json.loads(str(nuisance["json"]))
        arrays |= {name: np.asarray(nuisance[name]) for name in RemovedNuisance.array_names}
    steps = preprocess_state(stored)
    if steps is not None:
        arrays |= steps[0]
        header["preprocess"] = steps[1]
    rank = stored.get("rank")
    n_comps = header["parameters"]["n_components"]
    # With n_comps given, a stored rank is that of ``tl.rank`` and no result of the fit.
    if rank is not None and (n_comps is None or isinstance(n_comps, str)):
        if "json" in rank:
            header["selection"] = str(rank["json"])
        else:
            header["choice"] = [int(rank["rank"]), str(rank["outcome"]), str(rank["reason"]), float(rank["threshold"])]
            arrays["choice_ranks"] = np.asarray(rank["table"].index)
            arrays |= {"choice_scores": rank["scores"], "choice_scree": rank["singular_values"]}
            if "unsettled" in rank:
                arrays["choice_unsettled"] = np.asarray(rank["unsettled"])
            header["matching"] = str(rank.get("matching", "greedy"))
    return restored(cls, from_state(arrays, header))


def _vectors(adata: Any, key: str, stored: dict[str, Any]) -> tuple[Array, Array]:
    """Return A (p, r) and pinv(A) (r, p) in the space of the fit."""
    if "components" in stored:
        return np.asarray(stored["components"]), np.asarray(stored["projection"])
    names = keys_of(key)
    positions, lost = columns_of_fit(adata, key, stored)
    if lost or names.components not in adata.varm:
        raise features_are_lost(len(positions) + len(lost), lost)
    A, projection = (np.asarray(adata.varm[name])[positions] for name in (names.components, names.projection))
    return A, np.ascontiguousarray(projection.T)


def _parameters(cls: Any, params: Any) -> dict[str, Any]:
    # Older versions of anndata do not write None.
    known = {name: params.get(name) for name in cls().get_params(deep=False) if name != "verbose"}
    plain = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in known.items()}
    # A fit that was stored before there was a choice was not robust.
    # "missing" of ``tl.mcpca`` is about rows without a context.
    return plain | {
        "n_components": params.get("n_comps"),
        "robust": bool(params.get("robust", False)),
        "preprocess": preprocess_parameter(params.get("preprocess")),
        "missing": str(params.get("missing_features") or "error"),
    }
