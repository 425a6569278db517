"""Is an MCPC visible to PCA? The PCs of all rows and of each context that come closest to it, in three ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._results.context_tests import rank_correlations
from .._results.context_values import context_values
from .._utils.arguments import check_integer
from .._utils.printing import Shown, counted, span
from .._utils.progress import shown
from .._utils.types import Array
from ._rows import FittedRows, read_rows
from ._tables import chosen_components, pandas

OVERALL = "all rows"


@dataclass(frozen=True, repr=False)
class PCAComparison(Shown):
    """MCPCs beside PCs.

    Attributes
    ----------
    best : DataFrame
        For each MCPC and each set of rows ("rows": "all rows", a context or a group) the best PC in each of three ways:
        "cosine" and its "cosine_pc", "variance_correlation" and "variance_correlation_pc", "overlap" and "overlap_pc".
    pairs : DataFrame
        The same three numbers for each MCPC and each PC, with "pc" from 1: the points of the paper's Fig. 4E-F.
    n_top : int
    """

    best: Any
    pairs: Any
    n_top: int

    def _words(self) -> list[str]:
        own = self._overall()
        n, sets = len(own), self.best["rows"].nunique()
        return [
            f"{counted(n, 'MCPC')} beside the PCs of all rows and of {counted(sets - 1, 'other set')} of rows.",
            f"The best PC of all rows has |cos| {span(own['cosine'], '.2f')}, variances correlated by "
            f"{span(own['variance_correlation'], '.2f')}, and {span(own['overlap'], '.0%')} of the {self.n_top} rows "
            "at an end.",
        ]

    def _rows(self) -> dict[str, Any]:
        own = self._overall()
        told = ["cosine", "cosine_pc", "variance_correlation", "overlap"]
        return {"": list(own["component"]), **{name: list(own[name]) for name in told}}

    def _overall(self) -> Any:
        return self.best[self.best["rows"] == OVERALL]


@shown("comparison with PCA")
def compare_with_pca(
    source: Any,
    *,
    X: Any = None,
    y: Any = None,
    groups: Any = None,
    components: Any = None,
    n_pcs: int = 50,
    n_top: int = 200,
    key: str = "mcpca",
) -> PCAComparison:
    """Compare each MCPC with the PCs of all rows together and with those of each context.

    Three likenesses, each 1 where a PC is the MCPC: the paper's evidence that PCA does not show an MCPC (Fig. 4E-F).

    - "cosine": ``|a_j^T v|`` of the MCPC and the PC's axis;
    - "variance_correlation": Spearman's correlation over contexts of the variance along the PC, ``v^T S_i v``, with the
      loadings b_ij;
    - "overlap": the share of the ``n_top`` rows with the highest MCPC scores (or the lowest) that are among the
      ``n_top`` at an end of the PC. Of the two poles and the two signs of the PC the best counts, which favours PCA.

    Parameters
    ----------
    source : MCPCA, Pipeline or AnnData
        A fitted model, or a Pipeline that ends in one, with the rows in ``X`` and ``y``; or an AnnData with a fit,
        which brings its own.
    X, y : optional
        Rows of the fitted contexts, in any form that ``fit`` takes but Dask.
    groups : dict or Series {context: group}, array-like (k,), or str, optional
        PCA of the rows of each group of contexts in place of each context: all science, all fiction. A context without
        one is in no group.
    components : int, str or sequence of them, optional
        MCPCs by column (0 is MCPC 1) or name; by default all.
    n_pcs : int
        PCs of each set of rows; as many as there are where there are fewer.
    n_top : int
        Rows at an end.
    key : str
        Name of the fit in an AnnData.

    Returns
    -------
    PCAComparison

    Notes
    -----
    Cost O(n p n_pcs) for each set of rows: with many contexts, group them. PCs of more than 100,000 rows are those of a
    random sample. A set of two rows or fewer has no PCs to speak of and is left out.
    """
    pd = pandas()
    n_pcs, n_top = check_integer(n_pcs, "n_pcs", 1), check_integer(n_top, "n_top", 1)
    rows = read_rows(source, key, X, y)
    fit = rows.fit
    chosen = chosen_components(components, fit.names)
    member = np.flatnonzero(rows.codes >= 0)
    if 2 * n_top > len(member):
        raise ValueError(
            f"n_top={n_top} rows at each of two ends, but there are {len(member)}; n_top <= {len(member) // 2}."
        )
    sets: dict[str, list[int] | None] = {OVERALL: None, **_sets_of_contexts(source, key, rows, groups)}
    Z, A, B = rows.scores()[member][:, chosen], rows.components[:, chosen], fit.loadings[:, chosen]
    is_high, is_low = (_members(end, len(member)) for end in _ends(Z, n_top))
    parts = []
    for name, among in sets.items():
        V = rows.principal_directions(n_pcs, among).vectors
        scores = rows.project(V)
        _, variances = rows.moments(scores)
        known = np.isfinite(variances).all(axis=1)
        correlations = rank_correlations(variances[known], B[known])
        # Of the rows at each end of each PC, how many are at each pole of each MCPC: (PCs, MCPCs).
        shared = [inside[end].sum(axis=0) for end in _ends(scores[member], n_top) for inside in (is_high, is_low)]
        overlap = np.max(shared, axis=0) / n_top
        cosines = np.minimum(np.abs(V.T @ A), 1)
        pc = np.arange(1, V.shape[1] + 1)
        for at, j in enumerate(chosen):
            likeness = {
                "cosine": cosines[:, at],
                "variance_correlation": correlations[:, at],
                "overlap": overlap[:, at],
            }
            parts.append(pd.DataFrame({"component": fit.names[j], "rows": name, "pc": pc, **likeness}))
    table = pd.concat(parts, ignore_index=True)
    table["component"] = pd.Categorical(table["component"], [fit.names[j] for j in chosen], ordered=True)
    table["rows"] = pd.Categorical(table["rows"], list(sets), ordered=True)
    table = table.sort_values(["component", "rows", "pc"], ignore_index=True)
    best = _best(pd, table)
    for frame in (table, best):
        frame[["component", "rows"]] = frame[["component", "rows"]].astype(object)
    return PCAComparison(best, table, n_top)


def _sets_of_contexts(source: Any, key: str, rows: FittedRows, groups: Any) -> dict[str, list[int] | None]:
    contexts = rows.fit.contexts
    named: list[str | None]
    if groups is None:
        named = list(contexts)
    else:
        read = context_values(groups, contexts, "groups", source=source, key=key, missing="drop")
        named = [
            None if gone else read.categories[value] if read.kind == "category" else _written(value)
            for value, gone in zip(read.values, read.missing, strict=True)
        ]
    sets: dict[str, list[int] | None] = {}
    counts = np.bincount(rows.codes[rows.codes >= 0], minlength=len(contexts))
    for group in dict.fromkeys(name for name in named if name is not None):
        among = [i for i, name in enumerate(named) if name == group and counts[i] > 0]
        if counts[among].sum() > 2:
            sets[group if group != OVERALL else f"{group} (context)"] = among
    return sets


def _written(value: Any) -> str:
    return str(value)[:10] if isinstance(value, np.datetime64) else f"{value:g}"


def _ends(Z: Array, n: int) -> tuple[Array, Array]:
    """Return the numbers of the n rows with the largest and the smallest entries of each column of Z (N, m): (n, m)."""
    columns = np.ascontiguousarray(Z.T)
    high, low = ([_largest(z, n) for z in signed] for signed in (columns, -columns))
    return np.array(high).T, np.array(low).T


def _largest(z: Array, n: int) -> Array:
    """Return the numbers of the n largest entries of z, of ties the first: a full sort costs far more."""
    bound = np.partition(z, len(z) - n)[len(z) - n]
    above = np.flatnonzero(z > bound)
    return np.concatenate([above, np.flatnonzero(z == bound)[: n - len(above)]])


def _members(numbers: Array, N: int) -> Array:
    """Return which of N rows are among those of each column of ``numbers`` (n, m): (N, m)."""
    inside = np.zeros((N, numbers.shape[1]), dtype=bool)
    np.put_along_axis(inside, numbers, True, axis=0)
    return inside


def _best(pd: Any, table: Any) -> Any:
    parts = []
    for (component, name), own in table.groupby(["component", "rows"], observed=True):
        row = {"component": component, "rows": name}
        for likeness in ("cosine", "variance_correlation", "overlap"):
            values = own[likeness]
            at = values.idxmax() if values.notna().any() else own.index[0]
            row |= {likeness: table.at[at, likeness], f"{likeness}_pc": table.at[at, "pc"]}
        parts.append(row)
    return pd.DataFrame(parts)
