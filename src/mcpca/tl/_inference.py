"""What is asked about a fit that an AnnData holds: whether it comes back, how far it moves, what it goes with.

Each function restores the fitted ``MCPCA``, hands it the rows that it was fitted on (``_results.anndata_refit``: layer,
features and contexts are those of the fit), returns what the method of that name returns, and stores it beside the fit
(``_results.anndata_inference``), where pictures, cards and reports find it.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from .._data.anndata_rows import check_anndata, check_target
from .._data.contexts import Contexts
from .._data.mudata_rows import takes_mudata
from .._estimator.mcpca import MCPCA
from .._inference.bootstrap import Bootstrap
from .._inference.dependence_result import PERMUTATIONS, SPLITS, ContextDependence
from .._inference.replication import REPLICATES, Replicability
from .._results.anndata_inference import (
    ASSOCIATIONS,
    BOOTSTRAP,
    DEPENDENCE,
    REPLICABILITY,
    bootstrap_content,
    dependence_content,
    fields_content,
    replicability_content,
    stored_result,
)
from .._results.anndata_layout import add_result, read_model, stored_fit
from .._results.anndata_refit import contexts_of_fit
from .._utils.arguments import NOT_GIVEN, as_seed, one_random_state
from .._utils.component_names import as_called_now


@takes_mudata
def replicability(
    adata: Any,
    *,
    key: str = "mcpca",
    n_splits: int = 10,
    threshold: float = REPLICATES,
    by: str = "auto",
    groups: str | list[str] | None = None,
    rng: Any = NOT_GIVEN,
    random_state: Any = NOT_GIVEN,
    verbose: Any = None,
    mod: str | None = None,
) -> Replicability:
    """Split the rows of each context into halves, fit both, and see which MCPCs both find.

    Parameters
    ----------
    adata : AnnData or MuData
        With a fit of ``mcpca.tl.mcpca`` and its rows, wherever they are; at least 4 of them in every context. Layer,
        ``obsm`` and features are those of the fit.
    key : str
        The ``key_added`` of the fit.
    n_splits, threshold, by, verbose
        As for ``MCPCA.replicability``: ``by="contexts"`` asks whether axes would be found in other contexts.
    groups : str or list of str, optional
        Columns of ``adata.obs`` that say which rows were sampled together, and so are split together; by default those
        of the fit. Batch and covariates are those of the fit.
    rng : int, Generator, SeedSequence, BitGenerator or None
        Determines the splits; by default 0. The seed used is stored as an integer.
    random_state : int, Generator, RandomState or None
        The same by the name that scanpy and scikit-learn give it; ``rng`` is preferred, and both are an error.
    mod : str, optional
        The modality of a MuData, as for ``mcpca.tl.mcpca``.

    Returns
    -------
    Replicability
        Its content is also stored, in ``adata.uns[key]["replicability"]``: "table", a DataFrame with the "agreement" of
        each MCPC between halves, its "spread" over splits and whether it "replicates"; "cosines", "threshold",
        "params". ``plot_loadings``, ``analysis.describe`` and reports of ``adata`` show it.

    Notes
    -----
    Cost as for ``MCPCA.replicability``. Rows on Dask stay there, where halves are picked in every pass.

    Examples
    --------
    >>> import anndata, mcpca
    >>> from mcpca.datasets import make_contexts
    >>> data = make_contexts(n_contexts=6, n_features=20, n_components=4, random_state=0)
    >>> adata = anndata.AnnData(data.X, obs={"patient": data.y.astype(str)})
    >>> mcpca.tl.mcpca(adata, "patient", n_comps=4)
    >>> mcpca.tl.replicability(adata, n_splits=3, rng=0).n_replicating
    4
    """
    model, contexts, seed = _asked(adata, key, rng, random_state, groups)
    result = model.replicability(
        contexts, n_splits=n_splits, threshold=threshold, by=by, random_state=seed, verbose=verbose
    )
    params = _params(n_splits=len(result.cosines), by=by, random_state=seed)
    add_result(adata, key, REPLICABILITY, replicability_content(result, _mcpcs(adata, key), params))
    return result


@takes_mudata
def context_dependence(
    adata: Any,
    *,
    key: str = "mcpca",
    groups: str | list[str] | None = None,
    n_splits: int = SPLITS,
    n_permutations: int = PERMUTATIONS,
    rng: Any = NOT_GIVEN,
    random_state: Any = NOT_GIVEN,
    n_jobs: int | None = None,
    verbose: Any = None,
    mod: str | None = None,
) -> ContextDependence:
    """Test which MCPCs differ between contexts, and which are the same in all of them.

    Parameters
    ----------
    adata, key, groups, rng, random_state, mod
        As for ``mcpca.tl.replicability``. Contexts with fewer than 4 rows take no part; groups are permuted whole.
    n_splits, n_permutations, n_jobs, verbose
        As for ``MCPCA.context_dependence``.

    Returns
    -------
    ContextDependence
        Its content is also stored, in ``adata.uns[key]["context_dependence"]``: "table", a DataFrame with the "p" and
        the "q" of each MCPC, whether it is "dependent", and the "dispersion" of its variances over contexts; "p_value"
        of the whole, "outcome", "json", "params". ``plot_context_dependence``, ``analysis.describe`` and reports of
        ``adata`` show it.

    Notes
    -----
    Cost as for ``MCPCA.context_dependence``. Rows on Dask stay there, and their scores come here: 2 r n_splits numbers
    a row.

    Examples
    --------
    >>> import anndata, mcpca
    >>> from mcpca.datasets import make_contexts
    >>> data = make_contexts(n_contexts=6, n_features=20, n_components=4, random_state=0)
    >>> adata = anndata.AnnData(data.X, obs={"patient": data.y.astype(str)})
    >>> mcpca.tl.mcpca(adata, "patient", n_comps=4)
    >>> mcpca.tl.context_dependence(adata, n_permutations=199, rng=0).n_dependent
    4
    """
    model, contexts, seed = _asked(adata, key, rng, random_state, groups)
    result = model.context_dependence(
        contexts,
        n_splits=n_splits,
        n_permutations=n_permutations,
        random_state=seed,
        n_jobs=n_jobs,
        verbose=verbose,
    )
    params = _params(n_splits=result.n_splits, n_permutations=result.n_permutations, random_state=seed)
    add_result(adata, key, DEPENDENCE, dependence_content(result, _mcpcs(adata, key), params))
    return result


@takes_mudata
def bootstrap(
    adata: Any,
    *,
    key: str = "mcpca",
    n: int = 200,
    confidence: float = 0.95,
    corrected: bool = True,
    groups: str | list[str] | None = None,
    rng: Any = NOT_GIVEN,
    random_state: Any = NOT_GIVEN,
    verbose: Any = None,
    mod: str | None = None,
) -> Bootstrap:
    """Resample the rows of each context, fit again, and measure how much the answer changes.

    Parameters
    ----------
    adata, key, groups, rng, random_state, mod
        As for ``mcpca.tl.replicability``; contexts need 2 rows. Groups are resampled whole.
    n, confidence, corrected, verbose
        As for ``MCPCA.bootstrap``.

    Returns
    -------
    Bootstrap
        Its content, without the loadings of single resamples, is also stored, in ``adata.uns[key]["bootstrap"]``:
        "lower", "upper", "standard_errors" and "bias", DataFrames of contexts by MCPCs; "angle_bounds", a DataFrame
        with the "degrees" within which each MCPC stays; "angles", "confidence", "n_failed", "corrected", "params".
        ``plot_covariate``, ``analysis.describe`` and reports of ``adata`` show it.

    Notes
    -----
    Cost as for ``MCPCA.bootstrap``: n fits. Rows on Dask stay there, and count in a pass as often as they were drawn.
    """
    model, contexts, seed = _asked(adata, key, rng, random_state, groups)
    result = model.bootstrap(
        contexts, n=n, confidence=confidence, corrected=corrected, random_state=seed, verbose=verbose
    )
    params = _params(n=len(result.angles) + result.n_failed, random_state=seed)
    content = bootstrap_content(result, [str(name) for name in model.contexts_], _mcpcs(adata, key), params)
    add_result(adata, key, BOOTSTRAP, content)
    return result


@takes_mudata
def associate(
    adata: Any,
    covariate: Any,
    *,
    key: str = "mcpca",
    name: str | None = None,
    rng: Any = NOT_GIVEN,
    random_state: Any = NOT_GIVEN,
    mod: str | None = None,
    **options: Any,
) -> Any:
    """Find the MCPCs associated with a covariate of contexts, and check if PCA shows it too.

    Parameters
    ----------
    adata : AnnData or MuData
        With a fit of ``mcpca.tl.mcpca`` and its rows.
    covariate : str, or as for ``mcpca.analysis.associate``
        A column of ``adata.obs`` that is constant within contexts (a stage, an age, a treatment).
    key : str
        The ``key_added`` of the fit.
    name : str, optional
        Name under which the result is stored, in place of one of that name; by default the covariate as it was given,
        and for ``of`` other than loadings "covariate (of)".
    rng : int, Generator, SeedSequence, BitGenerator or None
        For permutations; by default 0.
    random_state : int, Generator, RandomState or None
        The same by the name that scanpy and scikit-learn give it; ``rng`` is preferred, and both are an error.
    mod : str, optional
        The modality of a MuData, as for ``mcpca.tl.mcpca``.
    **options
        Further parameters of ``mcpca.analysis.associate``.

    Returns
    -------
    Association
        Its content is also stored, in ``adata.uns[key]["associations"][name]``, where "table" has a row for each MCPC.
        ``analysis.describe`` shows what is stored under all names.

    Notes
    -----
    Cost as for ``mcpca.analysis.associate``.
    """
    from ..analysis.association import associate as associate_fit  # here: ``import mcpca`` should not import analyses

    _check(adata, key)
    if name is not None and (not isinstance(name, str) or not name or "/" in name):
        raise ValueError(f"name={name!r}; pass a name without '/', which AnnData files do not allow.")
    seed = as_seed(one_random_state(rng, random_state, 0))
    result = associate_fit(adata, covariate, key=key, random_state=seed, **options)
    if name is None:
        given = covariate if isinstance(covariate, str) else result.covariate
        # HDF5 and Zarr take a slash for the separator of groups; the covariate itself is among the fields.
        name = given.replace("/", "|") + ("" if result.of == "loadings" else f" ({result.of})")
    before = stored_result(adata, key, ASSOCIATIONS)
    entry = {**fields_content(result), "params": _params(random_state=seed)}
    add_result(adata, key, ASSOCIATIONS, {**(before or {}), name: entry})
    return result


def _asked(adata: Any, key: str, rng: Any, random_state: Any, groups: Any) -> tuple[MCPCA, Contexts, int]:
    """Return the fitted model, the rows of the fit, and the seed of what is asked about them."""
    _check(adata, key)
    # A Generator cannot be stored: one number is drawn from it, and that repeats the run.
    seed = as_seed(one_random_state(rng, random_state, 0))
    return read_model(MCPCA, adata, key), contexts_of_fit(adata, key, groups), seed


def _check(adata: Any, key: str) -> None:
    """Raise if there is no fit to ask about, or no place to store the answer."""
    check_anndata(adata)
    check_target(adata)
    stored_fit(adata, key)


def _mcpcs(adata: Any, key: str) -> list[str]:
    """Return the names of the MCPCs of a fit, as readers see them."""
    return list(as_called_now(stored_fit(adata, key)["loadings"].columns))


def _params(**params: Any) -> dict[str, Any]:
    return {**params, "version": version("mcpca")}
