"""One card of plain text for each MCPC: what is at its poles, which contexts carry it, and how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from .._inference.bootstrap import Bootstrap
from .._inference.precision import Precision
from .._inference.replication import Replicability
from .._results.fitted import Fitted, fitted
from .._utils.arguments import check_integer, check_real, refuse_without_effect
from .._utils.progress import shown
from .._utils.wording import beside
from ..poles import Pole, poles
from ..sharing import carrying_contexts, how_shared
from ._tables import chosen_components
from .association import Association
from .features import scores_table

_SHARING = {
    "specific": "It is specific to one context",
    "shared": "Some contexts share it",
    "broad": "It is broad, found in many contexts",
    "none": "No context carries it",
}
_STATISTICS = {"spearman": "Spearman's correlation", "t-test": "t =", "anova": "F ="}
_OF = {
    "loadings": "its loadings",
    "variance": "variances of its scores",
    "sd": "standard deviations of its scores",
    "mean": "means of its scores",
}
_MOST_TEXT = 200  # characters of a row's name


@shown("cards")
def describe(
    source: Any,
    *,
    components: Any = None,
    n: int = 10,
    enriched: Any = None,
    max_q: float = 0.001,
    samples: Any = None,
    association: Association | None = None,
    sure: Replicability | Bootstrap | Precision | None = None,
    by: Literal["components", "projection"] = "components",
    pca: Any = None,
    names: str | Sequence[Any] | None = None,
    key: str = "mcpca",
) -> dict[str, str]:
    """Write a card of plain text for each MCPC, to read aloud or to hand to a language model for a label.

    The paper hands the sets enriched at FDR < 0.001 to a language model, which sums them up in a label for each MCPC.

    Parameters
    ----------
    source : MCPCA, Pipeline or AnnData
        A fitted model, or a Pipeline that ends in one; or an AnnData with a fit.
    components : int, str or sequence of them, optional
        MCPCs by column (0 is MCPC 1) or name; by default all.
    n : int
        Features, sets, rows and contexts that a card names, at most, of each kind.
    enriched : DataFrame, optional
        Of ``enrichment``.
    max_q : float
        Sets with a "q" below it are named.
    samples : DataFrame, optional
        Of ``top_samples``: rows at the poles, by their "name" (sentences, patients).
    association : Association, optional
        Of ``associate``.
    sure : Replicability, Bootstrap or Precision, optional
        What ``model.replicability(X, y)``, ``model.bootstrap(X, y)`` or ``model.standard_errors()`` gave.
    by, pca, names, key
        As for ``feature_scores``.

    Returns
    -------
    dict {name of the MCPC: text}
        Some lines each, without markup.

    Notes
    -----
    Nothing is computed anew but the order of features. What was not given is said not to be known: tables of some MCPCs
    alone leave the others without it.
    """
    n = check_integer(n, "n", 1)
    max_q = check_real(max_q, "max_q", 0, 1, "It is a false discovery rate.")
    if enriched is None:
        refuse_without_effect("max_q", max_q, 0.001, "no enriched sets are given", "drop it, or pass enriched")
    fit = fitted(source, key)
    _check_tables(enriched, samples, association, sure, fit.names)
    table = scores_table(source, by=by, pca=pca, names=names, key=key)
    sharing = how_shared(fit.loadings)
    cards = {}
    for j in chosen_components(components, fit.names):
        ends = poles(table.to_numpy(), list(table.index), j, n)
        lines = [f"{fit.names[j]}, one of {len(fit.names)} MCPCs of {len(fit.contexts)} contexts."]
        lines += [_contexts(fit, j, sharing.labels[j], float(sharing.effective[j]), n)]
        for pole, end in (("positive", ends.positive), ("negative", ends.negative)):
            lines += _pole(fit.names[j], pole, end, enriched, max_q, samples, n)
        if association is not None:
            lines += [_association(association, fit.names[j])]
        lines += [_certainty(fit, j, sure)]
        lines += ["Which pole is called positive is a convention; the two are opposites."]
        cards[fit.names[j]] = "\n".join(lines) + "\n"
    return cards


def _contexts(fit: Fitted, j: int, kind: str, effective: float, n: int) -> str:
    b = fit.loadings[:, j]
    total = float(fit.loadings.sum())
    share = 100 * float(b.sum()) / total if total > 0 else 0.0
    carriers = carrying_contexts(b)
    text = f"Contexts: it holds {share:.2g}% of the variance of all MCPCs. {_SHARING[kind]}"
    if not len(carriers):
        return text + "."
    text += f" (as if {effective:.1f} of {len(b)} had it alike)." if len(b) > 1 else "."
    named = [f"{fit.contexts[i]} ({b[i]:.3g})" for i in carriers[:n]]
    more = f" and {len(carriers) - n} more" if len(carriers) > n else ""
    without = int((b == 0).sum())
    text += f" Carried by {', '.join(named)}{more}; the number is the loading, the variance along it."
    return text + (
        f" {without} contexts have none of it." if without > 1 else " One context has none of it." if without else ""
    )


def _pole(name: str, pole: str, end: Pole, enriched: Any, max_q: float, samples: Any, n: int) -> list[str]:
    title = f"{pole.capitalize()} pole"
    shown = ", ".join(f"{feature} ({value:+.2g})" for feature, value in zip(end.names, end.values, strict=True))
    lines = [f"{title}, features: {shown or 'none'}."]
    if enriched is not None and not (enriched["component"] == name).any():
        lines.append(f"{title}, enriched sets: not looked for.")
    elif enriched is not None:
        own = _rows_of(enriched, name, pole)
        own = own[own["q"] < max_q].sort_values("p", kind="stable")
        sets = [f"{row['set']}{_detail(row)}" for _, row in own.head(n).iterrows()]
        more = f" and {len(own) - n} more" if len(own) > n else ""
        lines.append(f"{title}, enriched sets: {'; '.join(sets) or f'none at FDR < {max_q:g}'}{more}.")
    if samples is not None and not (samples["component"] == name).any():
        lines.append(f"{title}, rows: not looked for.")
    elif samples is not None:
        own = _rows_of(samples, name, pole).sort_values("rank", kind="stable").head(n)
        lines += [f"{title}, rows:" + (" none." if not len(own) else "")]
        lines += [f"- {_shortened(str(row['name']))} [{row['context']}]" for _, row in own.iterrows()]
    return lines


def _detail(row: Any) -> str:
    q = f"q = {row['q']:.1g}"
    if "overlap" in row.index and "size" in row.index and np.isfinite(row["size"]):
        return f" ({int(row['overlap'])} of its {int(row['size'])} features, {q})"
    return f" (AUC {row['auc']:.2f}, {q})" if "auc" in row.index else f" ({q})"


def _association(found: Association, name: str) -> str:
    row = found.table.loc[name]
    shown = ", ".join(f"{_STATISTICS[test]} {row[test]:.2f}" for test in found.tests)
    text = f"Covariate: {_OF[found.of]} against {found.covariate} in {found.n_contexts} contexts: {shown}; "
    if np.isnan(row["p"]):
        return text + "it does not vary, so there is no test."
    text += f"p = {row['p']:.2g}, {row['bonferroni']:.2g} after Bonferroni's correction; "
    text += "significant" if row["significant"] else "not significant"
    if found.beyond_pca is not None and row["significant"]:
        text += ", beyond what PCA shows" if row["beyond_pca"] else ", though not beyond what PCA shows"
    return text + "."


def _certainty(fit: Fitted, j: int, sure: Any) -> str:
    words = []
    if isinstance(sure, Replicability):
        again = "comes back" if sure.replicates[j] else "does not come back"
        n, mean = len(sure.cosines), beside(sure.agreement[j], sure.threshold)
        spread = f", sd {sure.spread[j]:.2f} over {n} splits" if n > 1 else ""
        words.append(
            f"it {again} in halves of the rows (mean |cos| {mean}{spread}; more than {sure.threshold:g} is asked for)"
        )
    elif isinstance(sure, Bootstrap):
        share = f"{100 * sure.confidence:g}%"
        words.append(f"{share} of resamples stay within {sure.angle_bounds[j]:.0f} degrees of it")
    elif isinstance(sure, Precision):
        words.append(f"expected to be {sure.angles[j]:.1f} degrees from the truth, if the Gaussian model holds")
    else:
        words.append("not assessed; halves of the rows or the bootstrap would tell")
    if fit.n_samples is not None:
        carriers = carrying_contexts(fit.loadings[:, j])
        words.append(f"{int(np.asarray(fit.n_samples)[carriers].sum())} rows in the contexts that carry it")
    twins = _twins(fit, j)
    if twins:
        kind = "equal" if fit.orthogonal else "proportional"
        words.append(
            f"its loadings are nearly {kind} to those of {', '.join(fit.names[i] for i in twins)}, from which it "
            "cannot be told apart"
        )
    return f"How sure: {'; '.join(words)}."


def _twins(fit: Fitted, j: int) -> list[int]:
    if len(fit.loadings) < 2:
        return []
    pairs = [(pair.first, pair.second) for pair in fit.proportional_loadings() if pair.first != pair.second]
    return [a if b == j else b for a, b in pairs if j in (a, b)]


def _rows_of(table: Any, name: str, pole: str) -> Any:
    return table[(table["component"] == name) & (table["pole"] == pole)]


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 3] + "..."


def _check_tables(enriched: Any, samples: Any, association: Any, sure: Any, names: Sequence[str]) -> None:
    needed = {
        "enriched": (enriched, ("component", "pole", "set", "p", "q"), "enrichment"),
        "samples": (samples, ("component", "pole", "rank", "name", "context"), "top_samples"),
    }
    for argument, (table, columns, maker) in needed.items():
        lost = [] if table is None else [name for name in columns if name not in getattr(table, "columns", ())]
        if lost:
            raise ValueError(f"{argument} lacks the columns {lost}; pass the table that {maker} returned.")
        if table is not None:
            _check_names(argument, table["component"], names)
    if association is not None:
        if not isinstance(association, Association):
            raise TypeError(f"association is a {type(association).__name__}; pass what associate returned.")
        _check_names("association", association.table.index, names)
        if len(association.table) != len(names):
            raise ValueError(
                f"association is of {len(association.table)} MCPCs, and the fit has {len(names)}; pass this fit's."
            )
    if sure is None:
        return
    if not isinstance(sure, (Replicability, Bootstrap, Precision)):
        raise TypeError(
            f"sure is a {type(sure).__name__}; pass what replicability, bootstrap or standard_errors returned."
        )
    own = sure.cosines if isinstance(sure, Replicability) else sure.angles
    if own.shape[-1] != len(names):
        raise ValueError(f"sure is of {own.shape[-1]} MCPCs, and the fit has {len(names)}; pass that of this fit.")


def _check_names(argument: str, given: Any, names: Sequence[str]) -> None:
    strange = [str(name) for name in dict.fromkeys(given) if name not in names]
    if strange:
        raise ValueError(
            f"{argument} is of {strange[0]}, and the fit has {names[0]} to {names[-1]}; pass that of this fit."
        )
