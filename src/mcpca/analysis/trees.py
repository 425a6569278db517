"""Trees of contexts, from loadings or from PCA, and how far they are from a known tree.

The paper's comparison of species with their phylogeny (Fig. S4). Linkages come from ``mcpca.context_tree``, as for
``plot_context_tree``; clades and distances between trees are in ``newick``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from .._results.fitted import Fitted, fitted
from .._utils.arguments import check_integer, check_integers, refuse_without_effect
from .._utils.printing import Shown, counted
from .._utils.progress import shown
from .._utils.types import Array
from .._utils.wording import quoted
from ..context_tree import context_linkage
from ._rows import FittedRows, read_rows, rows_are_given, same_contexts
from ._tables import pandas
from .newick import (
    Clades,
    clades_of_linkage,
    clades_of_newick,
    linkage_of_clades,
    newick_of_linkage,
    restricted,
    robinson_foulds,
    splits,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KNOWN = "a known tree (levels)"
# What contexts can be compared by: loadings, and the paper's three alternatives from PCA.
TREE_FEATURES = ("loadings", "means", "covariances", "variances")


@dataclass(frozen=True, repr=False)
class ContextTree(Shown):
    """A hierarchical clustering of contexts.

    Attributes
    ----------
    contexts : list of k str
    linkage : ndarray (k - 1, 4)
        SciPy's linkage matrix.
    features : str
        What contexts were compared by.
    loadings : str or None
        Which loadings these were, in words; None if contexts were compared by PCs.
    metric : str or None
        How; None for a known tree, whose heights are levels.
    method : str or None
        The linkage; None for a known tree.
    corrected : bool or None
        Whether noise was taken out of the loadings; None if contexts were compared by PCs.
    """

    contexts: list[str]
    linkage: Array
    features: str
    loadings: str | None = None
    metric: str | None = None
    method: str | None = None
    corrected: bool | None = None

    def _words(self) -> list[str]:
        if self.features == _KNOWN:
            return [f"A known tree of {counted(len(self.contexts), 'context')}; newick() returns the whole tree."]
        first, second = (self.contexts[int(i)] for i in self.linkage[0, :2])
        which = [] if self.loadings is None else [f"These are {self.loadings}."]
        return [
            f"A tree of {counted(len(self.contexts), 'context')} by {self.features}.",
            *which,
            f"The closest two are {first} and {second}; newick() returns the whole tree.",
        ]

    @classmethod
    def from_newick(cls, known: str, contexts: Sequence[str] | None = None) -> ContextTree:
        """Return a known tree, to be drawn beside others: the paper's Fig. S4A.

        Parameters
        ----------
        known : str
            In Newick format. Branch lengths are ignored: a node is one level above the highest of its children.
        contexts : sequence of names, optional
            The leaves to keep, at least two; by default all.
        """
        clades, leaves = clades_of_newick(known)
        kept = leaves if contexts is None else [str(name) for name in contexts]
        unknown = [name for name in kept if name not in leaves]
        if unknown or len(set(kept)) < max(2, len(kept)):
            raise ValueError(
                f"contexts={quoted(kept)} must be two or more different leaves of known, which has {quoted(leaves)}."
            )
        return cls(kept, linkage_of_clades(restricted(clades, kept), kept), _KNOWN)

    def plot(self) -> Figure:
        """Draw the tree with its leaves at the right, as ``mcpca.plotting.plot_context_tree`` does."""
        # Late, because Matplotlib is an extra.
        from ..plotting import plot_context_tree

        return cast("Figure", plot_context_tree(self).figure)

    def newick(self) -> str:
        """Return the tree in Newick format, with branch lengths."""
        return newick_of_linkage(self.linkage, self.contexts)

    def support(self, bootstrap: Any, known: str | None = None) -> Any:
        """Return how many resamples of the rows have each clade of this tree of loadings (Felsenstein's support).

        Parameters
        ----------
        bootstrap : Bootstrap
            What ``model.bootstrap(X, y)`` returned for the model of this tree, with the same ``corrected``. Loadings of
            every resample are clustered as these were.
        known : str, optional
            A known tree in Newick format whose leaves include the contexts; "in known" then says which clades it has,
            and clades that only it has are added.

        Returns
        -------
        DataFrame
            A row for each clade of two or more contexts but all: "clade", its contexts joined by commas, "in tree",
            with ``known`` "in known", and "support", the share of resamples that have it.
        """
        if self.corrected is None:
            raise ValueError(f"The tree is by {self.features}; support is that of trees of loadings.")
        draws = getattr(bootstrap, "loadings", None)
        if draws is None or np.ndim(draws) != 3:
            raise ValueError(
                "bootstrap has no loadings of resamples; pass what model.bootstrap(X, y) returned, not one read from a "
                "file."
            )
        if draws.shape[1] != len(self.contexts):
            raise ValueError(
                f"bootstrap has {draws.shape[1]} contexts and the tree {len(self.contexts)}; both are to be of one "
                "model."
            )
        if bool(bootstrap.corrected) != self.corrected:
            raise ValueError(
                f"The tree has corrected={self.corrected} and the bootstrap corrected={bootstrap.corrected}; make both "
                "alike."
            )
        assert self.method is not None
        assert self.metric is not None
        linkages = [context_linkage(B, method=self.method, metric=self.metric) for B in draws]
        return clade_support(self, linkages, None if known is None else self._clades_of(known))

    def distance(self, known: str, *, rooted: bool = True, normalized: bool = False) -> float:
        """Return Robinson and Foulds' distance to a known tree: the number of clades that only one of the two has.

        Parameters
        ----------
        known : str
            In Newick format. Its leaves must include the contexts; other leaves are removed.
        rooted : bool
            Compare clades, the leaves below a node: hierarchical clustering has a root. Otherwise compare splits of the
            leaves in two, for trees whose root has no meaning.
        normalized : bool
            Divide by the number of clades (or splits) of both trees: from 0, the same, to 1, none in common.
        """
        # Clades of the tree of contexts and of the known one, both over the contexts alone.
        tree_clades = clades_of_linkage(self.linkage, self.contexts, levels=self.features == _KNOWN)
        known_clades = self._clades_of(known)
        if normalized:
            return normalized_distance(tree_clades, known_clades, self.contexts, rooted=rooted)
        return robinson_foulds(tree_clades, known_clades, self.contexts, rooted=rooted)

    def _clades_of(self, known: str) -> Clades:
        """Return the clades of a known tree over the contexts alone."""
        clades, leaves = clades_of_newick(known)
        missing = [name for name in self.contexts if name not in leaves]
        if missing:
            raise ValueError(
                f"known lacks {len(missing)} of the {len(self.contexts)} contexts among its leaves: {quoted(missing)}; "
                f"it has {quoted(leaves)}. Use the names of the contexts."
            )
        return restricted(clades, self.contexts)


def normalized_distance(first: Clades, second: Clades, contexts: Sequence[str], *, rooted: bool) -> float:
    """Return Robinson and Foulds' distance over the number of clades (or splits) of both trees."""
    distance = robinson_foulds(first, second, contexts, rooted=rooted)
    if not rooted:
        first = splits(first, contexts)
        second = splits(second, contexts)
    # Trees of few contexts may have no clade or split at all: 0 / 1.
    return distance / max(len(first) + len(second), 1)


def clade_support(tree: ContextTree, linkages: Sequence[Array], right: Clades | None = None) -> Any:
    """Return how many linkages have each clade of a tree, and each of ``right``, as ``ContextTree.support`` does."""
    counts: dict[frozenset[str], int] = {}
    for linkage in linkages:
        for clade in clades_of_linkage(linkage, tree.contexts):
            counts[clade] = counts.get(clade, 0) + 1
    own = clades_of_linkage(tree.linkage, tree.contexts)
    place = {name: i for i, name in enumerate(tree.contexts)}
    named = [sorted(clade, key=place.__getitem__) for clade in own | (right or set())]
    records = []
    for names in sorted(named, key=lambda names: (len(names), [place[name] for name in names])):
        clade = frozenset(names)
        record: dict[str, Any] = {"clade": ", ".join(names), "in tree": clade in own}
        if right is not None:
            record["in known"] = clade in right
        share = counts.get(clade, 0) / len(linkages) if linkages else float("nan")
        records.append(record | {"support": share})
    columns = ["clade", "in tree", *([] if right is None else ["in known"]), "support"]
    return pandas().DataFrame(records, columns=columns)


def context_tree(
    source: Any,
    *,
    features: Literal["loadings", "means", "covariances", "variances"] = "loadings",
    corrected: bool = True,
    n_pcs: int | None = None,
    X: Any = None,
    y: Any = None,
    method: str = "average",
    metric: str = "correlation",
    key: str = "mcpca",
) -> ContextTree:
    """Cluster contexts by their loadings, or by one of the paper's three alternatives from PCA.

    The paper compares such trees of species with their phylogeny.

    Parameters
    ----------
    source : MCPCA, Pipeline or AnnData
        A fitted model, or a Pipeline that ends in one; or an AnnData with a fit.
    features : {"loadings", "means", "covariances", "variances"}
        Rows of B; or, in the space of the overall PCs (PCA of all rows), for each context the mean of its rows, their
        covariance matrix as one long row, or the variances of the PCs.
    corrected : bool
        Whether to take the noise of each context out of its loadings; otherwise contexts are also close because they
        have the same noise.
    n_pcs : int, optional
        Number of overall PCs for the alternatives; by default that of MCPCs.
    X, y : optional
        Rows of the fitted contexts for a model, which the alternatives need.
    method, metric : str
        As for ``mcpca.plotting.plot_context_tree``: "average" linkage of 1 - correlation. With few PCs "euclidean" may
        be the better metric: the correlation of two numbers with two others is always 1 or -1.
    key : str
        Name of the fit in an AnnData.

    Returns
    -------
    ContextTree

    Notes
    -----
    Cost O(k^2 r + k^3) for loadings; PCA of the rows and a pass over them for the others.
    """
    fit = fitted(source, key)
    if features not in TREE_FEATURES:
        raise ValueError(f"features={features!r} is unknown; choose one of {list(TREE_FEATURES)}.")
    if features == "loadings":
        why = "loadings are on MCPCs and not on PCs"
        refuse_without_effect("n_pcs", n_pcs, None, why, "drop it, or pass features='means' or another")
        return _tree_of_loadings(fit, corrected, method, metric)
    why = f"it is about loadings, and features={features!r} are of PCs"
    refuse_without_effect("corrected", corrected, True, why, "drop it")
    m = check_integer(len(fit.names) if n_pcs is None else n_pcs, "n_pcs", 1)
    rows = read_rows(source, key, X, y)
    return _tree(fit, PCFeatures(rows, m).of(features, m), features, method, metric)


@shown("trees")
def tree_distances(
    source: Any,
    known: str,
    *,
    corrected: bool = True,
    n_pcs: int | Sequence[int] | None = None,
    X: Any = None,
    y: Any = None,
    method: str = "average",
    metric: str = "correlation",
    rooted: bool = True,
    key: str = "mcpca",
) -> Any:
    """Compare the trees of ``context_tree`` with a known tree, as in the paper's Fig. S4.

    Parameters
    ----------
    source : MCPCA, Pipeline, AnnData, or sequence of them
        One fit, or several models of different ranks fitted to the same rows.
    known : str
        The known tree, in Newick format.
    corrected : bool
        As for ``context_tree``.
    n_pcs : int or sequence of int, optional
        Numbers of overall PCs for the alternatives; by default the ranks of the models.
    X, y, method, metric, key
        As for ``context_tree``; without rows the alternatives are left out.
    rooted : bool
        As for ``ContextTree.distance``.

    Returns
    -------
    DataFrame
        "features", "number" (of MCPCs or PCs), "distance" (Robinson and Foulds), "normalized", and "newick";
        "loadings" says which loadings they are, and is missing for PCs.
    """
    pd = pandas()
    sources, fits = same_contexts(source, key)
    trees = [(len(fit.names), _tree_of_loadings(fit, corrected, method, metric)) for fit in fits]
    ranks = [len(fit.names) for fit in fits]
    # Ranks by default, so that MCPCA and PCA have the same numbers of columns.
    numbers = sorted(set(check_integers(ranks if n_pcs is None else n_pcs, "n_pcs", 1)))
    if not rows_are_given(sources[0], X, y):
        refuse_without_effect("n_pcs", n_pcs, None, "PCs are those of rows, and none are given", "drop it, or pass X")
    else:
        # The rows are the same for all models, so those of the first will do.
        pc_features = PCFeatures(read_rows(sources[0], key, X, y), max(numbers))
        for name in TREE_FEATURES[1:]:
            for m in numbers:
                trees.append((m, _tree(fits[0], pc_features.of(name, m), name, method, metric)))
    records = [
        {
            "features": tree.features,
            "number": number,
            "distance": int(tree.distance(known, rooted=rooted)),
            "normalized": tree.distance(known, rooted=rooted, normalized=True),
            "newick": tree.newick(),
            "loadings": tree.loadings,
        }
        for number, tree in trees
    ]
    return pd.DataFrame(records)


class PCFeatures:
    """What overall PCs say about contexts; one PCA and one pass serve any number of PCs up to ``most``.

    ``fewer`` allows rows that have fewer PCs than that.
    """

    def __init__(self, rows: FittedRows, most: int, *, fewer: bool = False) -> None:
        # V (q, most), Z (n, most)
        found = rows.principal_directions(most)
        V = found.vectors
        if fewer:  # of rows that repeat, the last directions may have no variance, and be those of rounding
            V = V[:, found.variances > 1e-10 * found.variances[0]]
        elif V.shape[1] < most:
            raise ValueError(f"n_pcs={most}, but the rows have {V.shape[1]} PCs; choose at most that many.")
        Z = rows.project(V)
        self._covariances = rows.covariances(Z)  # (k, most, most)
        # From the mean of all rows: PCA centres there, and 1 - correlation depends on the origin.
        self._means = rows.moments(Z)[0] - Z[rows.codes >= 0].mean(axis=0)

    def of(self, features: str, m: int) -> Array:
        """Return the features (k, ...) of contexts on the first m PCs."""
        if features == "means":
            return np.asarray(self._means[:, :m])
        # The leading block is the covariance on the first m PCs.
        covariances = self._covariances[:, :m, :m]
        if features == "covariances":
            return np.asarray(covariances.reshape(len(covariances), -1))
        return np.asarray(np.diagonal(covariances, axis1=1, axis2=2))


def _tree_of_loadings(fit: Fitted, corrected: bool, method: str, metric: str) -> ContextTree:
    compared = fit.compared(corrected)
    tree = _tree(fit, compared.values, "loadings", method, metric)
    return replace(tree, loadings=compared.words, corrected=corrected)


def _tree(fit: Fitted, values: Array, features: str, method: str, metric: str) -> ContextTree:
    """Cluster the contexts by the rows of ``values`` (k, m)."""
    # A row of one number is constant, so all contexts would be at distance 0.
    if values.shape[1] < 2 and metric == "correlation":
        raise ValueError("One MCPC or PC has no correlation over contexts; take more, or metric='euclidean'.")
    linkage = context_linkage(values, method=method, metric=metric)
    return ContextTree(list(fit.contexts), linkage, features, metric=metric, method=method)
