"""Trees of contexts within groups of the rows, and of all rows: species by organ, and pooled.

A context may have rows of several kinds: organs of a species, cell types of a patient. Over all rows a covariance is
that within kinds plus that between their means, and the second part may be all that a tree shows. So the model is
fitted to the rows of each kind too, and the trees of its loadings and of the paper's three alternatives are compared
with a known tree, kind by kind.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from sklearn.base import clone

from .._results.fitted import fitted
from .._utils.arguments import as_generator, check_integer, one_random_state
from .._utils.printing import Shown, counted
from .._utils.progress import reporting
from .._utils.types import Array
from .._utils.user_warnings import muted
from .._utils.wording import quoted
from ..context_tree import context_linkage
from ..exceptions import UnequalNoiseWarning
from ._rows import per_row, read_rows
from ._tables import pandas
from .newick import Clades, clades_of_linkage, clades_of_newick, restricted, robinson_foulds
from .trees import TREE_FEATURES, ContextTree, PCFeatures, clade_support, context_tree, normalized_distance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LEAST_CONTEXTS = 3  # two have one tree


@dataclass(frozen=True, repr=False)
class GroupTrees(Shown):
    """Trees of contexts by group of rows, beside a known tree.

    Attributes
    ----------
    table : DataFrame
        A row for each group and kind of features: "group", "features", "number" (of MCPCs or PCs), "contexts" and
        "rows" that the group has, "distance" (Robinson and Foulds), "normalized", "newick", "loadings" (which ones, in
        words). With resamples also "support", the mean over clades of the known tree of the share of resamples that
        have it, and "right", the share of resamples whose tree is the known one.
    trees : dict {group: {features: ContextTree}}
    clades : DataFrame or None
        With resamples, a row for each clade of a tree or of the known one: "group", "features", "clade", "in tree",
        "in known", "support".
    left_out : dict {group: str}
        Groups without trees, and why.
    """

    table: Any
    trees: dict[str, dict[str, ContextTree]]
    clades: Any
    left_out: dict[str, str]

    def _words(self) -> list[str]:
        table = self.table
        groups = list(dict.fromkeys(table["group"]))
        right = [
            f"{name} in {int((table['distance'][table['features'] == name] == 0).sum())}"
            for name in dict.fromkeys(table["features"])
        ]
        words = [
            f"Trees of contexts in {counted(len(groups), 'set')} of rows: {quoted(groups)}.",
            f"The known tree is found, of {len(groups)}, by {', by '.join(right)}.",
        ]
        if self.left_out:
            words.append(f"Left out: {'; '.join(f'{name}, {why}' for name, why in self.left_out.items())}.")
        return words

    def _rows(self) -> Mapping[str, Sequence[Any]]:
        shown = ("group", "features", "number", "contexts", "rows", "distance", "support", "right")
        return {name: self.table[name].tolist() for name in shown if name in self.table}

    def plot(self) -> Figure:
        """Draw the distances to the known tree, as ``mcpca.plotting.plot_group_trees`` does."""
        # Late, because Matplotlib is an extra.
        from ..plotting import plot_group_trees

        return cast("Figure", plot_group_trees(self).figure)


def trees_by_group(
    model: Any,
    known: str,
    by: Any,
    *,
    X: Any,
    y: Any,
    corrected: bool = True,
    n_pcs: int | None = None,
    method: str = "average",
    metric: str = "correlation",
    rooted: bool = True,
    min_rows: int = 2,
    pooled: str | None = "all",
    resamples: int = 0,
    random_state: Any = None,
    rng: Any = None,
    verbose: Any = None,
) -> GroupTrees:
    """Compare trees of contexts with a known tree, in each group of rows and over all rows.

    Parameters
    ----------
    model : MCPCA
        Its parameters count; it is fitted anew to the rows of each group, and need not be fitted itself.
    known : str
        The known tree in Newick format; its leaves include the contexts.
    by : array-like (n,)
        The group of each row, such as its organ; rows without one (None, NaN) are among all rows alone.
    X : array-like, sparse matrix or DataFrame (n, p)
        All rows.
    y : array-like (n,)
        The context of each row.
    corrected, n_pcs, method, metric
        As for ``context_tree``. PCs are those of the rows of the group; where a group has fewer than ``n_pcs``, all of
        them are taken.
    rooted : bool
        As for ``ContextTree.distance``.
    min_rows : int
        Least number of rows that a context must have in a group to be in its trees. From two rows a covariance has one
        direction.
    pooled : str or None
        The name of all rows together among the groups; None leaves them out.
    resamples : int
        How often rows are drawn anew, within contexts, for the support of clades; 0 for none. The model, and the PCs,
        are then found again.
    random_state, rng : int, Generator, SeedSequence, BitGenerator or None
        Determines the resamples.
    verbose : None, bool or callable
        Progress, as in ``MCPCA``.

    Returns
    -------
    GroupTrees

    Notes
    -----
    A fit for each group, and ``resamples`` more. A group in which fewer than three contexts have ``min_rows`` rows, or
    to which the model cannot be fitted, is in ``left_out`` with the reason. Resamples to which it cannot be fitted do
    not count; support is NaN where that is all of them. Support treats rows as independent: two rows of one individual
    are not.

    Examples
    --------
    >>> import numpy as np
    >>> from mcpca import MCPCA
    >>> from mcpca.analysis import trees_by_group
    >>> from mcpca.datasets import make_contexts
    >>> truth = make_contexts(n_contexts=4, n_features=8, n_components=3, random_state=0)
    >>> organ = np.where(np.arange(len(truth.y)) % 2, "brain", "heart")
    >>> found = trees_by_group(MCPCA(3, random_state=0), "((0, 1), (2, 3));", organ, X=truth.X, y=truth.y)
    >>> found.table["group"].unique().tolist()
    ['all', 'brain', 'heart']
    """
    if not hasattr(model, "bootstrap") or not hasattr(model, "get_params"):
        raise TypeError(f"model is a {type(model).__name__}; pass an MCPCA, which is fitted to the rows of each group.")
    min_rows = check_integer(min_rows, "min_rows", 2)
    resamples = check_integer(resamples, "resamples", 0)
    X = X if hasattr(X, "iloc") or hasattr(X, "tocsr") else np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"X has {X.ndim} dimension(s); pass one matrix of all rows (n, p), with y and by.")
    n = X.shape[0]
    labels = per_row(y, n, None, "y", None)
    names = np.asarray(X.index) if hasattr(X, "iloc") else None
    groups = per_row(by, n, names, "by", None)
    wanted = list(dict.fromkeys(map(str, labels)))
    clades, leaves = clades_of_newick(known)
    lost = [name for name in wanted if name not in leaves]
    if lost:
        raise ValueError(
            f"known lacks {len(lost)} of the {len(wanted)} contexts among its leaves: {quoted(lost)}; it has "
            f"{quoted(leaves)}. Use the names of the contexts."
        )
    parts = _parts(groups, pooled)
    draws = as_generator(one_random_state(rng, random_state)).spawn(len(parts))
    how = _How(corrected, n_pcs, method, metric, rooted, resamples)
    records: list[dict[str, Any]] = []
    supports: list[Any] = []
    trees: dict[str, dict[str, ContextTree]] = {}
    left_out: dict[str, str] = {}
    with reporting(verbose, "trees by group") as report:
        for done, ((name, inside), draw) in enumerate(zip(parts.items(), draws, strict=True)):
            report("groups", done, len(parts))
            chosen = _with_enough(labels, inside, min_rows)
            k = len(set(map(str, labels[chosen])))
            if k < _LEAST_CONTEXTS:
                left_out[name] = f"{k} contexts have {min_rows} rows or more there, and a tree needs {_LEAST_CONTEXTS}"
                continue
            rows = X.iloc[chosen] if hasattr(X, "iloc") else X[chosen]
            try:
                with warnings.catch_warnings():
                    # It asks for corrected loadings, which ``corrected`` has been decided about.
                    warnings.simplefilter("ignore", UnequalNoiseWarning)
                    model_there = clone(model).fit(rows, labels[chosen])
            except ValueError as error:
                if name == pooled:
                    raise
                left_out[name] = str(error).rstrip(".")
                continue
            with muted():  # of resamples: the fit itself has said it
                found, table, support = _compare(model_there, rows, labels[chosen], clades, how, draw)
            trees[name] = found
            size = {"contexts": k, "rows": len(chosen)}
            records += [
                {"group": name, "features": one["features"], "number": one["number"]} | size | one for one in table
            ]
            supports += [one.assign(group=name) for one in support]
        report("groups", len(parts), len(parts))
    if not trees:
        raise ValueError(
            f"No group of by has a tree: {'; '.join(f'{name}: {why}' for name, why in left_out.items())}. Pass more "
            "rows, or larger groups."
        )
    pd = pandas()
    clade_table = None
    if supports:
        clade_table = pd.concat(supports, ignore_index=True)
        clade_table = clade_table[["group", "features", "clade", "in tree", "in known", "support"]]
    return GroupTrees(pd.DataFrame(records), trees, clade_table, left_out)


@dataclass(frozen=True)
class _How:
    """How trees are made, and compared."""

    corrected: bool
    n_pcs: int | None
    method: str
    metric: str
    rooted: bool
    resamples: int


def _parts(groups: Array, pooled: str | None) -> dict[str, Array]:
    """Return the rows of each group, by name in order, all of them first."""
    missing = np.asarray(pandas().isna(groups))
    names = np.array([None if gone else str(name) for name, gone in zip(groups, missing, strict=True)], dtype=object)
    own = sorted({name for name in names if name is not None})
    if pooled is not None and pooled in own:
        raise ValueError(
            f"pooled={pooled!r} is the name of a group of by too; name all rows otherwise, or pass pooled=None."
        )
    parts: dict[str, Array] = {} if pooled is None else {pooled: np.arange(len(names))}
    parts |= {name: np.flatnonzero(names == name) for name in own}
    if not parts:
        raise ValueError("by has no group, and pooled is None; pass the group of each row.")
    return parts


def _with_enough(labels: Array, inside: Array, min_rows: int) -> Array:
    """Return those of the rows ``inside`` whose context has ``min_rows`` of them."""
    own = labels[inside].astype(str)
    names, counts = np.unique(own, return_counts=True)
    return np.asarray(inside[np.isin(own, names[counts >= min_rows])])


def _compare(
    model: Any, X: Any, y: Array, known: Clades, how: _How, draw: np.random.Generator
) -> tuple[dict[str, ContextTree], list[dict[str, Any]], list[Any]]:
    """Return the trees of one set of rows, their distances to the known one, and the support of clades."""
    fit = fitted(model, "mcpca")
    contexts = list(fit.contexts)
    right = restricted(known, contexts)
    rank = len(fit.names)
    m = min(rank if how.n_pcs is None else check_integer(how.n_pcs, "n_pcs", 1), X.shape[0] - 1, X.shape[1])
    options: dict[str, Any] = {"method": how.method, "metric": how.metric}
    trees = {"loadings": context_tree(model, corrected=how.corrected, **options)}
    for name in TREE_FEATURES[1:]:
        trees[name] = context_tree(model, features=cast(Any, name), n_pcs=m, X=X, y=y, **options)
    linkages = _resampled(model, X, y, m, how, draw) if how.resamples else {}
    records = []
    supports = []
    for name, tree in trees.items():
        own = clades_of_linkage(tree.linkage, contexts)
        record = {
            "features": name,
            "number": rank if name == "loadings" else m,
            "distance": int(robinson_foulds(own, right, contexts, rooted=how.rooted)),
            "normalized": normalized_distance(own, right, contexts, rooted=how.rooted),
            "newick": tree.newick(),
            "loadings": tree.loadings,
        }
        if linkages:
            table = clade_support(tree, linkages[name], right).assign(features=name)
            supports.append(table)
            of_known = table["support"][table["in known"].astype(bool)]
            record["support"] = float(of_known.mean()) if len(of_known) else float("nan")
            drawn = [clades_of_linkage(one, contexts) for one in linkages[name]]
            same = [robinson_foulds(one, right, contexts, rooted=how.rooted) == 0 for one in drawn]
            record["right"] = float(np.mean(same)) if same else float("nan")
        records.append(record)
    return trees, records, supports


def _resampled(model: Any, X: Any, y: Array, m: int, how: _How, draw: np.random.Generator) -> dict[str, list[Array]]:
    """Return linkages of resamples of the rows within contexts, for each kind of features."""
    of_loadings, of_rows = draw.spawn(2)
    options: dict[str, Any] = {"method": how.method, "metric": how.metric}
    try:
        bootstrap = model.bootstrap(
            X, y, n=how.resamples, corrected=how.corrected, random_state=of_loadings, verbose=False
        )
        draws = list(bootstrap.loadings)
    except ValueError:  # the rows are too few to be drawn anew; support is then NaN
        draws = []
    linkages = {"loadings": [context_linkage(B, **options) for B in draws]}
    linkages |= {name: [] for name in TREE_FEATURES[1:]}
    labels = y.astype(str)
    members = [np.flatnonzero(labels == name) for name in np.unique(labels)]
    for _ in range(how.resamples):
        rows = np.concatenate([of_rows.choice(own, len(own)) for own in members])
        drawn = X.iloc[rows] if hasattr(X, "iloc") else X[rows]
        # Rows drawn more than once may leave fewer PCs than there were.
        features = PCFeatures(read_rows(model, "mcpca", drawn, y[rows]), m, fewer=True)
        for name in TREE_FEATURES[1:]:
            linkages[name].append(context_linkage(features.of(name, m), **options))
    return linkages
