"""When does each group of contexts have most of an MCPC, and in which order? The paper's graph of Fig. 4D.

Science and fiction over periods: an MCPC of both forms peaks in one of them first. Nodes of the graph are MCPCs in
groups, edges go from an earlier peak to the next one of the same MCPC or of the same group.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from .._results.context_values import ContextValues, context_values
from .._results.fitted import fitted
from .._utils.arguments import check_real
from .._utils.printing import NAMED, Shown, counted
from .._utils.types import Array
from .._utils.wording import listed
from ._tables import chosen_components, names_of_values, pandas

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# Of a loading beside the largest: one that is just the share of it may come out a rounding below.
_ROUNDING = 1e-9


@dataclass(frozen=True, repr=False)
class TemporalOrder(Shown):
    """When MCPCs peak in groups of contexts.

    Attributes
    ----------
    nodes : DataFrame
        A row for each MCPC in each group that carries it: "component", "group"; "peak", the time of its largest
        loading in the group, and "place", the same as a number that can be sorted and drawn; "first" and "last", the
        first and last times with at least ``share`` of that loading; "loading", at the peak; "lead", this over the
        largest loading of the group at any other time: near 1 the peak might as well be elsewhere, and infinite if
        there is no other.
    edges : DataFrame
        "source" and "target", rows of ``nodes``, and "of": "component" from one group to the next that has the same
        MCPC, "group" from one MCPC to the next within a group.
    times : dict {time: place}
        All times, in their order.
    shared : list of str
        MCPCs that all groups carry.
    share : float
        Of the largest loading of an MCPC, that a group needs to carry it.
    loadings : str
        Which loadings these are, in words.
    """

    nodes: Any
    edges: Any
    times: dict[str, float]
    shared: list[str]
    share: float
    loadings: str

    def _words(self) -> list[str]:
        words = [
            f"{counted(self.nodes['component'].nunique(), 'MCPC')} in "
            f"{counted(self.nodes['group'].nunique(), 'group')} of contexts, over {counted(len(self.times), 'time')}; "
            f"in all groups: {listed(self.shared, NAMED)}."
        ]
        for name in self.shared[:NAMED]:
            own = self.nodes[self.nodes["component"] == name]
            peaks = [f"{' and '.join(map(str, at['group']))} ({at['peak'].iloc[0]})" for _, at in own.groupby("place")]
            words.append(f"{name} peaks in {', then '.join(peaks)}.")
        words.append(f"These are {self.loadings}. Any loadings have an order: see 'lead', and ask what chance does.")
        return words

    def _rows(self) -> dict[str, Any]:
        columns = ["component", "group", "peak", "first", "last", "loading", "lead"]
        return {name: list(self.nodes[name]) for name in columns}

    def plot(self) -> Figure:
        """Draw the graph: time from left to right, groups one above the other."""
        # Late, because Matplotlib is an extra.
        from ..plotting import plot_temporal_order

        return cast("Figure", plot_temporal_order(self).figure)


def temporal_order(
    source: Any,
    time: Any,
    group: Any,
    *,
    components: Any = None,
    share: float = 0.5,
    corrected: bool = True,
    missing: Literal["error", "drop"] = "error",
    key: str = "mcpca",
) -> TemporalOrder:
    """Find when each MCPC peaks in each group of contexts (fiction, science), and the order of these peaks.

    Parameters
    ----------
    source : MCPCA, Pipeline or AnnData
        A fitted model, or a Pipeline that ends in one; or an AnnData with a fit.
    time : dict or Series {context: value}; array-like (k,); or str
        Numbers, dates, or categories in their order: by context, in the order of the contexts, or, for an AnnData, the
        name of a column of ``obs`` that is constant within contexts.
    group : the same
        The group of each context.
    components : int, str or sequence of them, optional
        MCPCs by column (0 is MCPC 1) or name; by default those that every group carries, as in the paper, or all if
        there are none.
    share : float
        A group carries an MCPC if its largest loading there is at least this share of the largest of all contexts.
    corrected : bool
        Whether to take the noise of each context out of its loadings.
    missing : {"error", "drop"}
        Whether contexts without a time or group are an error or are left out.
    key : str
        Name of the fit in an AnnData.

    Returns
    -------
    TemporalOrder
        ``plot()`` draws it.

    Notes
    -----
    Several contexts of one group at one time count by their mean loading. Of equal loadings the first time counts.
    Groups that peak at the same time are not joined by an edge. The order is a description: loadings that have nothing
    to do with time have one, too. Cost O(k r).
    """
    pd = pandas()
    fit = fitted(source, key)
    share = check_real(share, "share", 0, 1, "It is a share of the largest loading.")
    where = {"source": source, "key": key, "missing": missing}
    when = context_values(time, fit.contexts, "time", **where)
    kinds = context_values(group, fit.contexts, "group", **where)
    used = np.flatnonzero(~when.missing & ~kinds.missing)
    if not len(used):
        raise ValueError("No context has both a time and a group; pass both for at least one.")
    levels, t = np.unique(when.values[used], return_inverse=True)
    group_levels, g = np.unique(kinds.values[used], return_inverse=True)
    compared = fit.compared(corrected)
    # (groups, times, r), NaN where a group has no context
    means = _means(compared.values[used], g, t, (len(group_levels), len(levels)))
    peaks = np.nanmax(means, axis=1)
    # A column of zeros has no largest loading that a group could carry.
    carried = (peaks >= (share - _ROUNDING) * peaks.max(axis=0)) & (peaks > 0)
    in_all = np.flatnonzero(carried.all(axis=0)).tolist()
    chosen = (
        (in_all or chosen_components(None, fit.names))
        if components is None
        else chosen_components(components, fit.names)
    )
    times = dict(zip(_names(when, levels), _places(when, levels), strict=True))
    groups = names_of_values(kinds, group_levels)
    records = [
        {"component": fit.names[j], "group": groups[i], **_peak(means[i, :, j], share, times)}
        for j in chosen
        for i in range(len(groups))
        if carried[i, j]
    ]
    if not records:
        raise ValueError("No group carries any of these MCPCs, whose loadings are all 0; choose others.")
    nodes = pd.DataFrame(records)
    shared = [fit.names[j] for j in chosen if j in in_all]
    return TemporalOrder(nodes, pd.DataFrame(_edges(nodes)), times, shared, share, compared.words)


def _means(B: Array, g: Array, t: Array, shape: tuple[int, int]) -> Array:
    """Return the mean loadings (groups, times, r) of contexts B (k, r); NaN where there is none."""
    cells = g * shape[1] + t
    counts = np.bincount(cells, minlength=shape[0] * shape[1])
    # An indicator (cells, k): one product sums all MCPCs at once.
    sums = (cells == np.arange(len(counts))[:, None]).astype(np.float64) @ B
    with np.errstate(invalid="ignore"):
        means = sums / counts[:, None]
    return np.asarray(means.reshape(*shape, -1))


def _names(when: ContextValues, levels: Array) -> list[str]:
    """Return times as readers know them; of dates the day, if no two are of one day."""
    names = names_of_values(when, levels)
    days = [name[:10] for name in names]
    return days if when.kind == "date" and len(set(days)) == len(days) else names


def _places(when: ContextValues, levels: Array) -> list[float]:
    """Return times as numbers: categories by their order, dates as days since 1970."""
    if when.kind == "date":
        return [float(one) for one in levels.astype("datetime64[s]").astype(np.int64) / 86_400]
    return [float(level) for level in levels]


def _peak(b: Array, share: float, times: dict[str, float]) -> dict[str, Any]:
    """Describe the peak of loadings b (times,) of one group, NaN at times that it lacks."""
    at = int(np.nanargmax(b))
    above = np.flatnonzero(np.nan_to_num(b, nan=-1.0) >= (share - _ROUNDING) * b[at])
    others = np.delete(b, at)
    others = others[np.isfinite(others)]
    second = float(others.max()) if len(others) else 0.0
    names = list(times)
    return {
        "peak": names[at],
        "place": times[names[at]],
        "first": names[above[0]],
        "last": names[above[-1]],
        "loading": float(b[at]),
        "lead": float(b[at]) / second if second > 0 else np.inf,
    }


def _edges(nodes: Any) -> dict[str, list[Any]]:
    """Return edges from each peak to the next later ones of the same MCPC, and of the same group."""
    found: dict[str, list[Any]] = {"source": [], "target": [], "of": []}
    for column in ("component", "group"):
        for _, own in nodes.groupby(column, sort=False):
            places = np.unique(own["place"])
            # From all peaks at one time to all at the next: equal times have no order.
            for early, late in itertools.pairwise(places):
                for a in own.index[own["place"] == early]:
                    for b in own.index[own["place"] == late]:
                        found["source"].append(int(a))
                        found["target"].append(int(b))
                        found["of"].append(column)
    return found
