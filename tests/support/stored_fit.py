"""An AnnData with a fit in it, filled by hand as ``mcpca._results.anndata_layout`` says."""

import anndata
import numpy as np
import pandas as pd

from mcpca import MCPCA
from mcpca._results.anndata_layout import keys_of


def stored_fit(X, labels, r, *, key="mcpca", obsm=None, layer=None, mask=None, center="overall", unused=0, obs=None):
    """Return (adata, model): ``model`` was fitted to the rows of ``X`` (n, p) with ``labels``, and adata holds it.

    X is adata's X, or its layer or obsm of that name. ``mask`` (p,) is which features were fitted; the last ``unused``
    rows were not. For obsm, ``var`` has 5 features of its own and A is not mapped to them.
    """
    n = X.shape[0] - unused
    columns = np.arange(X.shape[1]) if mask is None else np.flatnonzero(mask)
    fitted = X[:n][:, columns]
    model = MCPCA(r, random_state=0).fit(fitted, labels[:n])
    frame = pd.DataFrame({} if obs is None else obs, index=[f"row {i}" for i in range(X.shape[0])])
    names = keys_of(key)
    if obsm is not None:
        adata = anndata.AnnData(np.zeros((X.shape[0], 5)), obs=frame)
        adata.obsm[obsm] = X
    else:
        adata = anndata.AnnData(X if layer is None else np.zeros(X.shape), obs=frame)
        adata.var_names = [f"gene {j}" for j in range(X.shape[1])]
        if layer is not None:
            adata.layers[layer] = X
    codes = [str(label) for label in labels[:n]] + [None] * unused
    adata.obs[names.context] = pd.Categorical(codes, categories=[str(name) for name in model.contexts_])
    adata.obsm[names.scores] = _scores(model, X, labels, n, columns, center)
    components = [f"MCPC {j + 1}" for j in range(r)]
    index = [str(name) for name in model.contexts_]
    adata.uns[key] = {
        "loadings": pd.DataFrame(model.loadings_, index=index, columns=components),
        "corrected_loadings": pd.DataFrame(model.corrected_loadings_, index=index, columns=components),
        "contexts": pd.DataFrame(
            {
                "n_samples": model.n_samples_per_context_,
                "variance_explained": model.variance_explained(per="context"),
                "squared_norm": model.squared_norms(),
            },
            index=index,
        ),
        "singular_values": model.singular_values_,
        "params": {"obsm": obsm, "layer": layer, "mask_var": None if mask is None else "chosen", "center": center},
    }
    if obsm is not None:
        adata.uns[key] |= {"components": model.components_, "projection": model.projection_}
    else:
        adata.uns[key]["features"] = adata.var_names[columns].to_numpy(dtype=object)
        for name, values in ((names.components, model.components_), (names.projection, model.projection_.T)):
            adata.varm[name] = np.zeros((X.shape[1], r))
            adata.varm[name][columns] = values
        if mask is not None:
            adata.var["chosen"] = mask
    return adata, model


def _scores(model, X, labels, n, columns, center):
    if center == "overall":
        return model.transform(X[:, columns])
    scores = np.full((X.shape[0], model.n_components_), np.nan)
    scores[:n] = model.transform(X[:n][:, columns], labels[:n])
    return scores
