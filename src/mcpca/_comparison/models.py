"""Two fitted models compared: which MCPCs of one come back in the other, and how loadings differ.

Features and contexts are aligned by name. Over the common features C a direction ``a`` is ``s u``, ``s = ||a_C||`` and
``||u|| = 1``, and the model's covariances of these features are

    (A diag(b) A^T)_CC = sum_j b_j s_j^2 u_j u_j^T,

so that ``u_j`` is the direction and ``b_j s_j^2`` its loading wherever two models have different features: on one
scale for both. With the same features ``s = 1``, and these are the MCPCs and loadings of the models themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._data.detect import is_anndata
from .._inference.replication import REPLICATES
from .._linalg.canonical import match_components
from .._results.fitted import Fitted, fitted
from .._results.pipelines import split_steps
from .._utils.arguments import check_real
from .._utils.optional import require
from .._utils.printing import NAMED, Shown, counted, span
from .._utils.types import Array
from .._utils.wording import beside, listed, quoted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DEFAULT_NAMES = ("first", "second")
_ROUNDING = 1e-8  # of a cosine from 1, and of a loading relative to the largest: no more than solvers' last digits
_OTHER_UNITS = 2.0  # ratio of all loadings beyond which the two runs are said to be on different scales


@dataclass(frozen=True, repr=False)
class ModelComparison(Shown):
    """MCPCs of a first model (r MCPCs) and a second one (s MCPCs), paired by direction; m = min(r, s) pairs.

    Attributes
    ----------
    names : tuple of two str
        What the two models are called in words and tables.
    mcpcs : tuple of two lists
        Names of the r MCPCs of the first and the s MCPCs of the second.
    first, second : ndarray (m,) of int
        Columns that are paired, in the order of the first, so that the sum of ``|cos|`` is the largest possible.
    signs : ndarray (m,)
        1, or -1 where the two of a pair point in opposite directions, which is a convention.
    cosines : ndarray (m,)
        ``|cos|`` of each pair, over the common features.
    threshold : float
        ``|cos|`` from which on an MCPC is said to come back.
    all_cosines : ndarray (r, s)
        ``|cos|`` of every MCPC of the first with every one of the second.
    features, contexts : list of str
        Those that both have, in the order of the first.
    features_alone, contexts_alone : tuple of two lists
        Those that only the first, and only the second has.
    directions : tuple of ndarray (p, r) and ndarray (p, s)
        Unit directions over the p common features.
    kept : tuple of ndarray (r,) and ndarray (s,)
        ``s_j^2``, the share of each direction that lies in common features; 1 where features are the same.
    loadings : tuple of ndarray (k, r) and ndarray (k, s)
        Loadings of these directions in the k common contexts.
    loadings_are : tuple of two str
        Which loadings these are, in words.
    by_name : bool
        Whether features were aligned by name; if not, by place, because a model has no names for them.
    identical : bool
        Whether features, contexts, MCPCs and loadings are the same to the last bit.
    """

    names: tuple[str, str]
    mcpcs: tuple[list[str], list[str]]
    first: Array
    second: Array
    signs: Array
    cosines: Array
    threshold: float
    all_cosines: Array
    features: list[str]
    contexts: list[str]
    features_alone: tuple[list[str], list[str]]
    contexts_alone: tuple[list[str], list[str]]
    directions: tuple[Array, Array]
    kept: tuple[Array, Array]
    loadings: tuple[Array, Array]
    loadings_are: tuple[str, str]
    by_name: bool
    identical: bool

    @property
    def returns(self) -> Array:
        """Whether each pair is the same MCPC, ``|cos| >= threshold`` (m,)."""
        return np.asarray(self.cosines >= self.threshold)

    @property
    def gone(self) -> Array:
        """MCPCs of the first that do not come back in the second."""
        return np.setdiff1d(np.arange(len(self.mcpcs[0])), self.first[self.returns])

    @property
    def new(self) -> Array:
        """MCPCs of the second that none of the first comes back as."""
        return np.setdiff1d(np.arange(len(self.mcpcs[1])), self.second[self.returns])

    @property
    def differences(self) -> Array:
        """Loadings of the second less those of the first, (k, m): of each pair in each common context."""
        return np.asarray(self.loadings[1][:, self.second] - self.loadings[0][:, self.first])

    @property
    def scale(self) -> float:
        """Sum of the loadings of the second over that of the first, of all pairs that come back; NaN without any."""
        pairs = self.returns
        below = float(self.loadings[0][:, self.first[pairs]].sum())
        return float(self.loadings[1][:, self.second[pairs]].sum()) / below if below > 0 else float("nan")

    @property
    def same(self) -> bool:
        """Whether the two models are the same up to rounding, order and sign of MCPCs."""
        alone = any(map(len, (*self.features_alone, *self.contexts_alone)))
        if alone or self.all_cosines.shape[0] != self.all_cosines.shape[1] or not len(self.contexts):
            return False
        most = max(float(np.abs(B).max(initial=0)) for B in self.loadings)
        return bool((self.cosines >= 1 - _ROUNDING).all() and np.abs(self.differences).max() <= _ROUNDING * most)

    @property
    def shares(self) -> tuple[Array, Array]:
        """Share of each MCPC in the sum of all loadings in common contexts, (r,) and (s,)."""
        totals = [B.sum(axis=0) for B in self.loadings]
        first, second = (total / (total.sum() or 1) for total in totals)
        return first, second

    def columns(self) -> dict[str, list[Any]]:
        """Return a row for each MCPC of the first, paired or not, and for each of the second without a pair."""
        r, s = self.all_cosines.shape
        partner = dict(zip(self.first.tolist(), range(len(self.first)), strict=True))
        rows: list[tuple[int | None, int | None, int | None]] = []
        for j in range(r):
            pair = partner.get(j)
            rows.append((j, None if pair is None else int(self.second[pair]), pair))
        rows += [(None, j, None) for j in range(s) if j not in set(self.second.tolist())]
        shares = self.shares
        largest = np.abs(self.differences).max(axis=0, initial=0)
        found: dict[str, list[Any]] = {
            self.names[0]: [None if i is None else self.mcpcs[0][i] for i, _, _ in rows],
            self.names[1]: [None if j is None else self.mcpcs[1][j] for _, j, _ in rows],
            "|cos|": [None if n is None else float(self.cosines[n]) for _, _, n in rows],
            "comes back": [bool(n is not None and self.returns[n]) for _, _, n in rows],
            "sign": [None if n is None else int(self.signs[n]) for _, _, n in rows],
            f"share in {self.names[0]}": [None if i is None else float(shares[0][i]) for i, _, _ in rows],
            f"share in {self.names[1]}": [None if j is None else float(shares[1][j]) for _, j, _ in rows],
            "largest difference of loadings": [None if n is None else float(largest[n]) for _, _, n in rows],
        }
        return found

    def loading_columns(self) -> dict[str, list[Any]]:
        """Return a row for each pair and each common context: both loadings, and the second less the first."""
        k, m = len(self.contexts), len(self.first)
        before, after = (B[:, j].T.ravel() for B, j in zip(self.loadings, (self.first, self.second), strict=True))
        return {
            self.names[0]: [self.mcpcs[0][j] for j in self.first.tolist() for _ in range(k)],
            self.names[1]: [self.mcpcs[1][j] for j in self.second.tolist() for _ in range(k)],
            "context": self.contexts * m,
            f"loading in {self.names[0]}": before.tolist(),
            f"loading in {self.names[1]}": after.tolist(),
            "difference": (after - before).tolist(),
        }

    @property
    def table(self) -> Any:
        """``columns()`` as a DataFrame."""
        return require("pandas", "pandas").DataFrame(self.columns())

    @property
    def loading_table(self) -> Any:
        """``loading_columns()`` as a DataFrame."""
        return require("pandas", "pandas").DataFrame(self.loading_columns())

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw ``|cos|`` of every MCPC of the first (rows) with every one of the second (columns), as a heatmap."""
        # Late, because Matplotlib is an extra.
        from ..plotting._common import SEQUENTIAL, axes_or_new, settle, width_of
        from ..plotting._heatmap import add_bar, draw_heatmap, write_numbers

        r, s = self.all_cosines.shape
        height, width = (min(max(0.45 * n, 2), 8) for n in (r, s))
        ax = axes_or_new(ax, (width + width_of(self.mcpcs[0]) + 1, height + 1))
        image = draw_heatmap(ax, self.all_cosines, *self.mcpcs, colours=SEQUENTIAL, largest=1)
        add_bar(ax, image, "|cos|")
        ax.set_ylabel(self.names[0])
        ax.set_xlabel(self.names[1])
        settle(ax)
        write_numbers(ax, image, lambda value: f"{value:.2f}", "auto")
        return ax

    # Words -----------------------------------------------------------------------------------------------------------

    @property
    def called(self) -> tuple[str, str]:
        """What the two are called within a sentence."""
        a, b = (f"the {name}" if name in _DEFAULT_NAMES else name for name in self.names)
        return a, b

    def _words(self) -> list[str]:
        a, b = self.called
        if self.identical:
            return [f"The two models are the same to the last bit: {self._sizes()}."]
        if self.same:
            return [f"The two models are the same up to rounding: {self._sizes()}."]
        words = [self._in_short(), *self._pairs_in_words()]
        if len(self.new):
            words.append(f"New in {b}: {listed([self.mcpcs[1][j] for j in self.new.tolist()], NAMED)}.")
        words += [*self._aligned("features", self.features, self.features_alone), *self._kept_in_words()]
        words += self._aligned("contexts", self.contexts, self.contexts_alone)
        if not self.by_name:
            words.append("Features are compared by their place, because they do not have names in both.")
        ratio = self.scale
        if np.isfinite(ratio) and not 1 / _OTHER_UNITS <= ratio <= _OTHER_UNITS:
            words.append(f"Loadings are {ratio:.3g} times as large in {b} as in {a}: the rows may be on another scale.")
        if self.loadings_are[0] != self.loadings_are[1]:
            words.append(f"Loadings of {a} are {self.loadings_are[0]}; those of {b} {self.loadings_are[1]}.")
        return words

    def _sizes(self) -> str:
        r = counted(len(self.mcpcs[0]), "MCPC")
        return f"{r} of {counted(len(self.contexts), 'context')} and {counted(len(self.features), 'feature')}"

    def _in_short(self) -> str:
        a, b = self.called
        r, s = self.all_cosines.shape
        n = int(self.returns.sum())
        verb = "comes" if n == 1 else "come"
        gone = f"{len(self.gone)} not" if len(self.gone) else ""
        new = f"{len(self.new)} of the {s} in {b} {'is' if len(self.new) == 1 else 'are'} new" if len(self.new) else ""
        rest = "; ".join(part for part in (gone, new) if part)
        return f"{n} of {counted(r, 'MCPC')} of {a} {verb} back in {b} (|cos| >= {self.threshold:g})" + (
            f"; {rest}." if rest else "."
        )

    def _pairs_in_words(self) -> list[str]:
        words = []
        if self.returns.any():
            words.append(f"Those that come back have |cos| {span(self.cosines[self.returns])}.")
        if len(self.gone):
            nearest = self.all_cosines.argmax(axis=1)
            told = [
                f"{self.mcpcs[0][j]} (nearest {self.mcpcs[1][nearest[j]]}, |cos| "
                f"{beside(float(self.all_cosines[j, nearest[j]]), self.threshold)})"
                for j in self.gone.tolist()
            ]
            words.append(f"Gone: {listed(told, NAMED)}.")
        return words

    def _aligned(self, what: str, common: list[str], alone: tuple[list[str], list[str]]) -> list[str]:
        if not any(map(len, alone)):
            return []
        told = [
            f"{len(names):,} only in {model} ({quoted(names, 3)})"
            for model, names in zip(self.called, alone, strict=True)
            if names
        ]
        return [f"{len(common):,} {what} in common, {', '.join(told)}."]

    def _kept_in_words(self) -> list[str]:
        if not any(map(len, self.features_alone)):
            return []
        least = min(float(kept.min()) for kept in self.kept)
        return [
            "Directions are compared over common features and made unit there, and loadings are theirs; common "
            f"features hold at least {least:.0%} of every direction (squared)."
        ]

    def _rows(self) -> dict[str, Any]:
        return {name: ["" if v is None else v for v in values] for name, values in self.columns().items()}


def compare_models(
    first: Any,
    second: Any,
    *,
    threshold: float = REPLICATES,
    corrected: bool = True,
    names: tuple[str, str] = _DEFAULT_NAMES,
    key: str | tuple[str, str] = "mcpca",
) -> ModelComparison:
    """Compare two fitted models: which MCPCs of the first come back in the second, and how loadings differ.

    MCPCs are paired so that the sum of ``|cos|`` is the largest possible (``match_components``); their order and signs
    do not matter, and the ranks may differ. Features and contexts are aligned by name. Where features differ,
    directions are compared over the common ones, made unit there, with the loadings that the model then has: ``b s^2``
    for a direction of which the share ``s^2`` is kept.

    Parameters
    ----------
    first, second : MCPCA, Pipeline or AnnData
        Fitted models, or AnnData with a fit. Two models without names for their features, or one, must have the same
        number of features, which are then compared by place.
    threshold : float
        ``|cos|`` from which on an MCPC is said to come back.
    corrected : bool
        Whether loadings are without the noise of their context; False compares ``loadings_``.
    names : tuple of two str
        What to call the two in words and tables.
    key : str or tuple of two str
        Name of the fit in an AnnData; two names for two fits.

    Returns
    -------
    ModelComparison

    Notes
    -----
    Cost O(p r s) for p common features.

    Examples
    --------
    >>> from mcpca import MCPCA, compare_models
    >>> from mcpca.datasets import make_contexts
    >>> truth = make_contexts(n_contexts=6, n_features=20, n_components=4, random_state=0)
    >>> models = [MCPCA(r, random_state=0).fit(truth.X, truth.y) for r in (4, 4)]
    >>> print(compare_models(*models))
    The two models are the same to the last bit: 4 MCPCs of 6 contexts and 20 features.
    """
    threshold = check_real(threshold, "threshold", 0, 1, "It is a |cos|.")
    if len(names) != 2 or names[0] == names[1]:
        raise ValueError(f"names={names!r}; pass two different names.")
    sources = (first, second)
    keys = (key, key) if isinstance(key, str) else tuple(key)
    if len(keys) != 2:
        raise ValueError(f"key={key!r}; pass one name, or one for each of the two.")
    # One key for an AnnData and a model is meant for the AnnData; a key for models alone is refused by ``fitted``.
    if isinstance(key, str) and any(map(is_anndata, sources)):
        keys = tuple(key if is_anndata(source) else "mcpca" for source in sources)
    a, b = (fitted(source, k).with_all_features() for source, k in zip(sources, keys, strict=True))
    named = all(_has_names(source) for source in sources)
    if not named:
        _check_same_number(a, b)
    rows = _common("features", a.features, b.features if named else a.features)
    contexts = _common("contexts", a.contexts, b.contexts)
    if not len(rows[0]):
        raise ValueError(
            f"the two models have no feature in common: {quoted(a.features, 3)} in the first, {quoted(b.features, 3)} "
            "in the second. MCPCs are compared by their features; use the same names."
        )
    directions, kept, loadings, which = [], [], [], []
    for fit, at, here in zip((a, b), rows, contexts, strict=True):
        A = fit.components[at]
        lengths = np.linalg.norm(A, axis=0)
        # Unit columns are, up to rounding; dividing them by 1 + 1e-16 would change their last bits.
        lengths = np.ones_like(lengths) if len(at) == len(fit.features) else lengths
        directions.append(A / np.where(lengths > 0, lengths, 1))
        kept.append(lengths**2)
        compared = fit.compared(corrected)
        loadings.append(compared.values[here] * lengths**2)
        which.append(compared.words)
    pairs = _paired(*directions)
    features_alone = _alone(a.features, rows[0]), _alone(b.features, rows[1])
    contexts_alone = _alone(a.contexts, contexts[0]), _alone(b.contexts, contexts[1])
    nothing_alone = not any(map(len, (*features_alone, *contexts_alone)))
    identical = nothing_alone and all(
        x.shape == y.shape and bool(np.array_equal(x, y)) for x, y in (directions, loadings)
    )
    return ModelComparison(
        (str(names[0]), str(names[1])),
        (a.names, b.names),
        *pairs,
        threshold,
        np.minimum(np.abs(directions[0].T @ directions[1]), 1),
        [a.features[i] for i in rows[0].tolist()],
        [a.contexts[i] for i in contexts[0].tolist()],
        features_alone,
        contexts_alone,
        (directions[0], directions[1]),
        (kept[0], kept[1]),
        (loadings[0], loadings[1]),
        (which[0], which[1]),
        named,
        identical,
    )


def _has_names(source: Any) -> bool:
    """Whether features of a fit have names of their own."""
    if is_anndata(source):
        return True
    steps, model = split_steps(source)
    return getattr(model, "feature_names_in_", None) is not None or steps is not None


def _check_same_number(a: Fitted, b: Fitted) -> None:
    if len(a.features) != len(b.features):
        raise ValueError(
            f"the first model has {len(a.features)} features and the second {len(b.features)}, and they do not have "
            "names in both by which they could be told apart; fit rows with named columns."
        )


def _common(what: str, first: list[str], second: list[str]) -> tuple[Array, Array]:
    """Return the places of the common names in both, in the order of the first."""
    if first == second:
        places = np.arange(len(first))
        return places, places
    for names in (first, second):
        if len(set(names)) < len(names):
            twice = next(name for i, name in enumerate(names) if name in names[:i])
            raise ValueError(f"{what} have the same name ({twice!r}) more than once, and so cannot be aligned by name.")
    there = {name: i for i, name in enumerate(second)}
    both = [(i, there[name]) for i, name in enumerate(first) if name in there]
    return np.array([i for i, _ in both], dtype=np.intp), np.array([j for _, j in both], dtype=np.intp)


def _alone(names: list[str], common: Array) -> list[str]:
    taken = set(common.tolist())
    return [name for i, name in enumerate(names) if i not in taken]


def _paired(U: Array, V: Array) -> tuple[Array, Array, Array, Array]:
    """Return columns of U and of V that are paired, in the order of U, the sign and ``|cos|`` of each pair."""
    # ``match_components`` gives every column of its second argument one of the first, which must not have fewer.
    if U.shape[1] <= V.shape[1]:
        match = match_components(V, U)
        pairs = np.arange(U.shape[1]), match.indices
    else:
        match = match_components(U, V)
        pairs = match.indices, np.arange(V.shape[1])
    order = np.argsort(pairs[0], kind="stable")
    return pairs[0][order], pairs[1][order], match.signs[order], np.minimum(match.cosines[order], 1)
