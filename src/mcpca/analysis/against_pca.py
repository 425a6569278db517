"""Is an MCPC visible to PCA? The PCs of all rows and of each context that come closest to it, by three measures.

The comparison of the paper's Fig. 4E-F. PCs come from ``_rows.FittedRows``; each set of rows (all, a context, a group
of contexts) costs one PCA and one pass to project every row on its PCs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._results.context_tests import rank_correlations
from .._results.context_values import ContextValues, context_values
from .._utils.arguments import check_integer
from .._utils.printing import Shown, counted, span
from .._utils.progress import shown
from .._utils.types import Array
from ._rows import FittedRows, read_rows
from ._tables import chosen_components, pandas

OVERALL = "all rows"


@dataclass(frozen=True, repr=False)
class PCAComparison(Shown):
    """MCPCs compared with PCs.

    Attributes
    ----------
    best : DataFrame
        For each MCPC and each set of rows ("rows": "all rows", a context or a group) the best PC by each of three
        measures: "cosine" and its "cosine_pc", "variance_correlation" and "variance_correlation_pc", "overlap" and
        "overlap_pc".
    pairs : DataFrame
        The same three numbers for each MCPC and each PC, with "pc" from 1: the points of the paper's Fig. 4E-F.
    n_top : int
        Rows at each end that "overlap" counts.
    """

    best: Any
    pairs: Any
    n_top: int

    def _words(self) -> list[str]:
        overall = self._overall()
        n_sets = self.best["rows"].nunique() - 1  # but for all rows
        return [
            f"{counted(len(overall), 'MCPC')} compared with the PCs of all rows and of {counted(n_sets, 'other set')} "
            "of rows.",
            f"The best PC of all rows has |cos| {span(overall['cosine'], '.2f')}, variances correlated by "
            f"{span(overall['variance_correlation'], '.2f')}, and {span(overall['overlap'], '.0%')} of the "
            f"{self.n_top} rows at an end.",
        ]

    def _rows(self) -> dict[str, Any]:
        overall = self._overall()
        columns = ["cosine", "cosine_pc", "variance_correlation", "overlap"]
        return {"": list(overall["component"]), **{name: list(overall[name]) for name in columns}}

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

    Three measures of similarity, each 1 for a PC that equals the MCPC: the paper's evidence that PCA does not show an
    MCPC (Fig. 4E-F).

    - "cosine": ``|a_j^T v|`` of the MCPC and the PC's axis;
    - "variance_correlation": Spearman's correlation over contexts of the variance along the PC, ``v^T S_i v``, with the
      loadings b_ij;
    - "overlap": the share of the ``n_top`` rows with the highest (or lowest) MCPC scores that are also among the
      ``n_top`` at one end of the PC. The best of the two poles and the two signs of the PC counts, which favours PCA.

    Parameters
    ----------
    source : MCPCA, Pipeline or AnnData
        A fitted model, or a Pipeline that ends in one, with the rows in ``X`` and ``y``; or an AnnData with a fit,
        which brings its own rows.
    X, y : optional
        Rows of the fitted contexts, in any form that ``fit`` takes except Dask.
    groups : dict or Series {context: group}, array-like (k,), or str, optional
        Compute PCA for each group of contexts (all science, all fiction) instead of each context. Contexts with a
        missing value are in no group.
    components : int, str or sequence of them, optional
        MCPCs by column (0 is MCPC 1) or name; by default all.
    n_pcs : int
        Number of PCs of each set of rows, or as many as it has.
    n_top : int
        Number of rows at each end.
    key : str
        Name of the fit in an AnnData.

    Returns
    -------
    PCAComparison

    Notes
    -----
    Cost O(n p n_pcs) for each set of rows: with many contexts, group them. PCs of more than 100,000 rows are those of a
    random sample. Sets of two rows or fewer, which have one PC at most, are left out.
    """
    pd = pandas()
    n_pcs = check_integer(n_pcs, "n_pcs", 1)
    n_top = check_integer(n_top, "n_top", 1)
    rows = read_rows(source, key, X, y)
    fit = rows.fit
    chosen = chosen_components(components, fit.names)
    # Only rows of fitted contexts compete for the ends.
    member = np.flatnonzero(rows.codes >= 0)
    if 2 * n_top > len(member):
        raise ValueError(
            f"n_top={n_top} rows at each of two ends, but there are {len(member)}; n_top <= {len(member) // 2}."
        )
    sets: dict[str, list[int] | None] = {OVERALL: None, **_sets_of_contexts(source, key, rows, groups)}
    A = rows.components[:, chosen]
    B = fit.loadings[:, chosen]
    # Not centred: a shift of a whole column does not change which rows are at its ends.
    Z = rows.scores()[member][:, chosen]
    # Indicators (N, MCPCs) of the rows at either pole, computed once for all sets of rows.
    is_high, is_low = (_members(end, len(member)) for end in _ends(Z, n_top))
    parts = []
    for name, among in sets.items():
        # V (q, PCs) from the rows of this set alone, but all rows are projected on it.
        V = rows.principal_directions(n_pcs, among).vectors
        scores = rows.project(V)
        variances = rows.moments(scores)[1]  # (k, PCs): of every context along every PC
        has_variance = np.isfinite(variances).all(axis=1)  # contexts of a single row have none
        correlations = rank_correlations(variances[has_variance], B[has_variance])
        # For each end of the PCs and each pole of the MCPCs the number of rows in common, (PCs, MCPCs): indexing
        # ``inside`` (N, MCPCs) with ``end`` (n_top, PCs) and summing over the rows counts all pairs at once.
        shared = [inside[end].sum(axis=0) for end in _ends(scores[member], n_top) for inside in (is_high, is_low)]
        overlap = np.max(shared, axis=0) / n_top
        cosines = np.minimum(np.abs(V.T @ A), 1)  # rounding may exceed 1
        pc = np.arange(1, V.shape[1] + 1)
        for column, j in enumerate(chosen):
            measures = {
                "cosine": cosines[:, column],
                "variance_correlation": correlations[:, column],
                "overlap": overlap[:, column],
            }
            # Long format: one frame for each MCPC and set, with a row for each PC.
            parts.append(pd.DataFrame({"component": fit.names[j], "rows": name, "pc": pc, **measures}))
    table = pd.concat(parts, ignore_index=True)
    # Ordered categoricals only to sort by: users get plain text.
    table["component"] = pd.Categorical(table["component"], [fit.names[j] for j in chosen], ordered=True)
    table["rows"] = pd.Categorical(table["rows"], list(sets), ordered=True)
    table = table.sort_values(["component", "rows", "pc"], ignore_index=True)
    best = _best(pd, table)
    for frame in (table, best):
        frame[["component", "rows"]] = frame[["component", "rows"]].astype(object)
    return PCAComparison(best, table, n_top)


def _sets_of_contexts(source: Any, key: str, rows: FittedRows, groups: Any) -> dict[str, list[int] | None]:
    """Return the positions of the contexts of each set of rows, by its name: a group, or each context by itself."""
    contexts = rows.fit.contexts
    group_of: list[str | None] = list(contexts)
    if groups is not None:
        read = context_values(groups, contexts, "groups", source=source, key=key, missing="drop")
        group_of = [
            None if missing else _group_name(value, read)
            for value, missing in zip(read.values, read.missing, strict=True)
        ]
    sets: dict[str, list[int] | None] = {}
    counts = np.bincount(rows.codes[rows.codes >= 0], minlength=len(contexts))
    for group in dict.fromkeys(name for name in group_of if name is not None):
        among = [i for i, name in enumerate(group_of) if name == group and counts[i] > 0]
        # Two rows or fewer have at most one PC, which says nothing.
        if counts[among].sum() > 2:
            # A context may be called "all rows" too.
            sets[group if group != OVERALL else f"{group} (context)"] = among
    return sets


def _group_name(value: Any, read: ContextValues) -> str:
    """Return what a group is called: its category, a date without its time of day, or a number."""
    if read.kind == "category":
        return str(read.categories[value])
    return str(value)[:10] if isinstance(value, np.datetime64) else f"{value:g}"


def _ends(Z: Array, n: int) -> tuple[Array, Array]:
    """Return the numbers of the n rows with the largest and the smallest entries of each column of Z (N, m): (n, m)."""
    columns = np.ascontiguousarray(Z.T)
    high, low = ([_largest(z, n) for z in signed] for signed in (columns, -columns))
    return np.array(high).T, np.array(low).T


def _largest(z: Array, n: int) -> Array:
    """Return the numbers of the n largest entries of z, the first ones among ties.

    ``np.partition`` takes linear time, which matters for many rows and 50 PCs of every context.
    """
    # The n-th largest entry: all above it are in, and as many of those equal to it as are needed.
    bound = np.partition(z, len(z) - n)[len(z) - n]
    above = np.flatnonzero(z > bound)
    return np.concatenate([above, np.flatnonzero(z == bound)[: n - len(above)]])


def _members(numbers: Array, N: int) -> Array:
    """Return an indicator (N, m) of the rows whose numbers are in each column of ``numbers`` (n, m)."""
    inside = np.zeros((N, numbers.shape[1]), dtype=bool)
    np.put_along_axis(inside, numbers, True, axis=0)
    return inside


def _best(pd: Any, table: Any) -> Any:
    """Return the best PC by each measure, for each MCPC and each set of rows; the first where a measure is NaN."""
    records = []
    for (component, name), pairs in table.groupby(["component", "rows"], observed=True):
        record = {"component": component, "rows": name}
        for measure in ("cosine", "variance_correlation", "overlap"):
            values = pairs[measure]
            # pandas refuses the idxmax of nothing but NaN, or warns of it.
            best = values.idxmax() if values.notna().any() else pairs.index[0]
            record |= {measure: table.at[best, measure], f"{measure}_pc": table.at[best, "pc"]}
        records.append(record)
    return pd.DataFrame(records)
