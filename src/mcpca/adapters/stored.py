"""Where a fit is kept in an AnnData: one layout, which ``mcpca.tl`` writes and the pictures read.

For ``key="mcpca"`` (any other key takes the place of "mcpca", and stands before "MCPCs" in ``varm``):

- ``obsm["X_mcpca"]`` (n, r): scores;
- ``obs["mcpca_context"]``: the context of each row, categorical, missing where the row was not fitted;
- ``varm["MCPCs"]`` (n_vars, r): A, with zeros for features that were left out, and ``varm["MCPCs_projection"]``: the
  transpose of pinv(A). For a fit on principal components both are multiplied by their loadings;
- ``uns["mcpca"]``: "loadings", a DataFrame of contexts by MCPCs; "components" and "projection" in the space of the fit,
  where that is not ``var``; "contexts", a DataFrame with the number of rows and the facets of each context;
  "singular_values"; "params"; "diagnostics"; and what else ``mcpca.tl`` documents.
"""

from __future__ import annotations

import difflib
from typing import Any, NamedTuple


class Keys(NamedTuple):
    """Names under which one fit is stored."""

    uns: str
    scores: str
    context: str
    components: str
    projection: str


def keys_of(key: str) -> Keys:
    """Return the names that belong to ``key_added=key``."""
    components = "MCPCs" if key == "mcpca" else f"{key}_MCPCs"
    return Keys(key, f"X_{key}", f"{key}_context", components, f"{components}_projection")


def stored_fit(adata: Any, key: str) -> dict[str, Any]:
    """Return ``adata.uns[key]``, or explain that there is no fit of that name."""
    found = adata.uns.get(key)
    if found is None or "loadings" not in found:
        fits = [str(name) for name, value in adata.uns.items() if hasattr(value, "keys") and "loadings" in value]
        near = difflib.get_close_matches(key, fits, n=1)
        have = f" There are fits under {fits}" + (f"; did you mean {near[0]!r}?" if near else ".") if fits else ""
        raise ValueError(
            f"key={key!r} names no fit of MCPCA in adata.uns.{have} Run mcpca.tl.mcpca(adata, context_key) first."
        )
    return dict(found)
