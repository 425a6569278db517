"""What an MCPC is made of: its entries by feature, mapped back through a PCA, and the features at its poles.

``feature_scores`` is where enrichment and cards start too (``scores_table``). Mapping back through the steps of a
pipeline is done by ``_results.pipelines``, for an AnnData by ``mcpca.tl.mcpca`` when it stores the fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from .._data.detect import is_anndata
from .._results.fitted import fitted, resolve_feature_names
from .._results.pipelines import back_through, names_before, split_steps
from .._utils.arguments import check_integer, refuse_without_effect
from .._utils.array_api import to_host
from ..poles import poles
from ._tables import chosen_components, pandas


def feature_scores(
    source: Any,
    *,
    by: Literal["components", "projection"] = "components",
    pca: Any = None,
    names: str | Sequence[Any] | None = None,
    key: str = "mcpca",
) -> Any:
    """Return the score of each feature on each MCPC: gene scores, if features are genes.

    After a PCA, ``z = V^T (x - mean)``, the fit is in the space of its m PCs, whose axes are the columns of V (p, m).
    The paper multiplies the MCPCs by these axes, ``V A``: how features change when a score grows by 1. With the
    projection matrix it is ``V pinv(A)^T``: how much a feature contributes to a score. Whitening by the PCA and scaling
    before it are undone. Without a PCA the two are A and ``pinv(A)^T`` themselves.

    Parameters
    ----------
    source : MCPCA, Pipeline or AnnData
        A fitted model; a Pipeline that ends in one, whose PCA needs no ``pca``; or an AnnData with a fit:
        ``mcpca.tl.mcpca`` maps a fit on scanpy's PCs to genes by itself.
    by : {"components", "projection"}
        The MCPCs, as the paper does, or the projection matrix.
    pca : fitted PCA of scikit-learn (also TruncatedSVD), Pipeline, DataFrame or array (m, p), optional
        The PCA that came before, alone or in a Pipeline with a scaler before it; or its axes, one in each row. Features
        for which all axes are 0, as scanpy stores them for genes that it left out, are left out here too.
    names : sequence of p names, or str, optional
        Names of the features; by default those that ``pca`` or the fit knows. For an AnnData also names for all of
        ``var``, or the name of a column of it.
    key : str
        Name of the fit in an AnnData.

    Returns
    -------
    DataFrame (p, r)
        Features of the fit by MCPCs: the same rows for an AnnData as for its model. Other features in ``var`` were not
        fitted (or, for a fit on principal components, do not enter these) and are not in the table.

    Notes
    -----
    Cost O(p m r).
    """
    pd = pandas()
    fit = fitted(source, key).with_all_features()  # raises if features of the fit are no longer in the AnnData
    if by not in ("components", "projection"):
        raise ValueError(f"by={by!r}; choose 'components' or 'projection'.")
    # (m, r) in the space of the fit; ``values`` below are (p, r).
    matrix = fit.components if by == "components" else fit.projection.T
    # The steps before MCPCA: ``pca``, or those of a Pipeline. An AnnData holds its MCPCs in genes already.
    before = pca
    if before is None and not is_anndata(source):
        before = split_steps(source)[0]
    if before is None:
        return pd.DataFrame(matrix, index=resolve_feature_names(source, fit, names, key), columns=fit.names)
    # Errors name what the user passed.
    argument = "source" if pca is None else "pca"
    values = back_through(before, matrix, by, argument)
    if isinstance(names, str):
        raise ValueError(f"names={names!r} is a column of var, and with pca there are none; pass the names themselves.")
    features = names_before(before) if names is None else [str(name) for name in names]
    if features is None:
        # As many features before the steps as after are taken to be the same, as for a scaler.
        features = fit.features if len(values) == len(matrix) else [f"feature {i + 1}" for i in range(len(values))]
    if len(features) != len(values):
        raise ValueError(
            f"names has {len(features)} entries, but {argument} has {len(values)} features; pass one for each."
        )
    table = pd.DataFrame(values, index=features, columns=fit.names)
    # A fitted estimator used all of its features; plain axes show by zeros which ones were left out.
    return table if hasattr(before, "fit") else table[(np.asarray(to_host(before)) != 0).any(axis=0)]


gene_scores = feature_scores


def top_features(
    source: Any,
    n: int = 200,
    *,
    components: Any = None,
    by: Literal["components", "projection"] = "components",
    pca: Any = None,
    names: str | Sequence[Any] | None = None,
    key: str = "mcpca",
) -> Any:
    """Return the features at both poles of MCPCs; the paper takes 200 genes at each.

    Parameters
    ----------
    source : MCPCA, Pipeline, AnnData, or DataFrame (p, r) of ``feature_scores``
    n : int
        Number of features at each pole, or as many as have that sign: a feature with a score of 0 is at no pole.
    components : int, str or sequence of them, optional
        MCPCs by column (0 is MCPC 1) or name; by default all.
    by, pca, names, key
        As for ``feature_scores``; not with a DataFrame, which is its result.

    Returns
    -------
    DataFrame
        "component", "pole" ("positive" or "negative"), "rank" (1 is the strongest), "feature", "score".

    Notes
    -----
    The sign of an MCPC is a convention: which of its poles is called positive has no meaning. Cost O(r p log p).
    """
    pd = pandas()
    n = check_integer(n, "n", 1)
    table = scores_table(source, by=by, pca=pca, names=names, key=key)
    rows = []
    for j in chosen_components(components, list(table.columns)):
        # Ties and zeros are decided there, as for plots and cards.
        ends = poles(table.to_numpy(), list(table.index), j, n)
        for pole, end in (("positive", ends.positive), ("negative", ends.negative)):
            rows += [
                (table.columns[j], pole, i + 1, name, value)
                for i, (name, value) in enumerate(zip(end.names, end.values, strict=True))
            ]
    return pd.DataFrame(rows, columns=["component", "pole", "rank", "feature", "score"])


def scores_table(source: Any, **options: Any) -> Any:
    """Return the table of ``feature_scores``, or ``source`` itself, checked, if it is such a table."""
    pd = pandas()
    if not isinstance(source, pd.DataFrame):
        return feature_scores(source, **options)
    for name, default in {"by": "components", "pca": None, "names": None, "key": "mcpca"}.items():
        why = "source is a table of feature scores, which is taken as it is"
        refuse_without_effect(name, options[name], default, why, "drop it, or pass the model")
    try:
        values = source.to_numpy(dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"source has columns that are not numeric ({error}); pass features by MCPCs.") from error
    if 0 in values.shape or not np.isfinite(values).all():
        raise ValueError(f"source has shape {values.shape} or entries that are not finite; pass features by MCPCs.")
    # Names as text: members of sets and names of MCPCs are compared with them as such.
    return pd.DataFrame(values, index=[str(name) for name in source.index], columns=[str(c) for c in source.columns])
