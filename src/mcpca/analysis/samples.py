"""Rows along an MCPC: their scores, those at the poles, and the medians of groups (works, patients).

Tables around ``_rows.scores_of_rows``, which reads the rows or takes the scores that an AnnData holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from .._utils.arguments import check_integer
from .._utils.progress import shown
from ._rows import per_row, scores_of_rows
from ._tables import chosen_components, pandas


@shown("scores")
def sample_scores(
    source: Any,
    *,
    X: Any = None,
    y: Any = None,
    center: Literal["overall", "context"] = "overall",
    key: str = "mcpca",
) -> Any:
    """Return the scores of rows on the MCPCs, ``pinv(A) (x - mean)``, with the context of each.

    Parameters
    ----------
    source : MCPCA, Pipeline or AnnData
        A fitted model, or a Pipeline that ends in one, with the rows in ``X`` and ``y``; or an AnnData with a fit,
        which brings its own rows.
    X, y : optional
        Rows of fitted contexts, in any form that ``fit`` takes except Dask.
    center : {"overall", "context"}
        Mean to subtract: that of all rows, so that differences between contexts stay visible, or that of the row's own
        context.
    key : str
        Name of the fit in an AnnData.

    Returns
    -------
    DataFrame (n, 1 + r)
        "context" and a column for each MCPC, in the order of the rows; the context is missing for rows of an AnnData
        that were not fitted.

    Notes
    -----
    One pass over the rows, O(n p r); none if an AnnData holds the scores.
    """
    pd = pandas()
    fit, Z, codes, names = scores_of_rows(source, key, X, y, center)
    table = pd.DataFrame(Z, index=names, columns=fit.names)  # 0, 1, ... where rows have no names
    table.insert(0, "context", np.array([*fit.contexts, None], dtype=object)[codes])  # code -1 is the None
    return table


@shown("scores")
def top_samples(
    source: Any,
    n: int = 20,
    *,
    components: Any = None,
    names: str | Sequence[Any] | None = None,
    X: Any = None,
    y: Any = None,
    center: Literal["overall", "context"] = "overall",
    key: str = "mcpca",
) -> Any:
    """Return the rows at both poles of MCPCs: the sentences that the paper reads, or the cells and patients.

    Parameters
    ----------
    source, X, y, center, key
        As for ``sample_scores``.
    n : int
        Number of rows at each pole.
    components : int, str or sequence of them, optional
        MCPCs by column (0 is MCPC 1) or name; by default all.
    names : sequence of n_rows values, or str, optional
        Names for the rows (the sentences themselves, say), a Series by its index; for an AnnData also the name of a
        column of ``obs``. By default the index.

    Returns
    -------
    DataFrame
        "component", "pole", "rank" (1 is the strongest), "row" (its number, from 0), "name", "context", "score".

    Notes
    -----
    Rows without a context are left out. Ties are in the order of the rows.
    """
    pd = pandas()
    n = check_integer(n, "n", 1)
    # Z (n, r), codes (n,)
    fit, Z, codes, index = scores_of_rows(source, key, X, y, center)
    if names is None:
        row_names = np.arange(len(Z)) if index is None else index
    else:
        row_names = per_row(names, len(Z), index, "names", source)
    member = np.flatnonzero(codes >= 0)
    # A row would otherwise be at both poles.
    if 2 * n > len(member):
        raise ValueError(f"n={n} rows at each of two poles, but there are {len(member)}; n <= {len(member) // 2}.")
    parts = []
    for j in chosen_components(components, fit.names):
        for pole, sign in (("positive", -1), ("negative", 1)):
            # Ascending in both cases, so that ties stay in the order of the rows.
            order = member[np.argsort(sign * Z[member, j], kind="stable")[:n]]
            contexts = [fit.contexts[code] for code in codes[order]]
            parts.append(
                pd.DataFrame(
                    {
                        "component": fit.names[j],
                        "pole": pole,
                        "rank": np.arange(1, n + 1),
                        "row": order,
                        "name": row_names[order],
                        "context": contexts,
                        "score": Z[order, j],
                    }
                )
            )
    return pd.concat(parts, ignore_index=True)


@shown("scores")
def group_medians(
    source: Any,
    groups: str | Sequence[Any],
    *,
    X: Any = None,
    y: Any = None,
    center: Literal["overall", "context"] = "overall",
    min_rows: int = 1,
    key: str = "mcpca",
) -> Any:
    """Return the median score of each group of rows on each MCPC; in the paper, of each work over its sentences.

    Parameters
    ----------
    source, X, y, center, key
        As for ``sample_scores``.
    groups : sequence of n_rows labels, or str
        The group of each row (a work, a patient), missing if it has none. A Series is matched by its index if ``X`` is
        a DataFrame or an AnnData; for an AnnData also the name of a column of ``obs``.
    min_rows : int
        Groups with fewer rows are left out.

    Returns
    -------
    DataFrame (groups, 1 + r)
        "n", the number of rows, and the medians; sorted by group.
    """
    pd = pandas()
    min_rows = check_integer(min_rows, "min_rows", 1)
    fit, Z, codes, names = scores_of_rows(source, key, X, y, center)
    labels = pd.Series(per_row(groups, len(Z), names, "groups", source))
    grouped_rows = (codes >= 0) & labels.notna().to_numpy()
    # Labels as an array: as a Series they would be aligned by index with the new frame.
    grouped = pd.DataFrame(Z[grouped_rows], columns=fit.names).groupby(labels[grouped_rows].to_numpy(), observed=True)
    table = grouped.median()
    # Both are indexed by group, and pandas aligns them.
    table.insert(0, "n", grouped.size())
    table = table[table["n"] >= min_rows]
    if not len(table):
        largest = int(grouped.size().max()) if grouped_rows.any() else 0
        way_out = "lower min_rows" if largest else "give rows a group"
        raise ValueError(f"groups has no group of min_rows={min_rows} rows; the largest has {largest}: {way_out}.")
    return table.rename_axis("group")
