"""One card of plain text for each MCPC: what is at its poles, which contexts carry it, and how reliable it is.

Gathers what other functions computed (``enrichment``, ``top_samples``, ``associate``, the model's replicability or
errors, the test of contexts) into text for people or language models; nothing is computed here but the order of
features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from .._inference.bootstrap import Bootstrap
from .._inference.dependence_result import ContextDependence
from .._inference.precision import Precision
from .._inference.replication import Replicability
from .._model.compared import Compared
from .._results.anndata_inference import stored_associations, stored_bootstrap, stored_dependence, stored_replicability
from .._results.fitted import Fitted, fitted
from .._utils.arguments import check_integer, check_real, refuse_without_effect
from .._utils.progress import shown
from .._utils.types import Array
from .._utils.wording import beside, listed
from ..poles import Pole, poles
from ..sharing import carrying_contexts, how_shared
from ._association_result import Association
from ._tables import chosen_components
from .features import scores_table

_SHARING = {
    "specific": "It is specific to one context",
    "shared": "Some contexts share it",
    "broad": "It is broad, found in many contexts",
    "none": "No context carries it",
}
_STATISTICS = {"spearman": "Spearman's correlation", "t-test": "t =", "anova": "F =", "partial F": "F ="}
_QUANTITIES = {
    "loadings": "its loadings",
    "variance": "variances of its scores",
    "sd": "standard deviations of its scores",
    "mean": "means of its scores",
}
_MOST_CHARACTERS = 200  # of a row's name: about two sentences; a card holds up to 2 n of them


@shown("cards")
def describe(
    source: Any,
    *,
    components: Any = None,
    n: int = 10,
    enriched: Any = None,
    max_q: float = 0.001,
    samples: Any = None,
    association: Association | Sequence[Association] | Literal["auto"] | None = "auto",
    sure: Replicability | Bootstrap | Precision | Literal["auto"] | None = "auto",
    context_dependence: ContextDependence | Literal["auto"] | None = "auto",
    by: Literal["components", "projection"] = "components",
    pca: Any = None,
    names: str | Sequence[Any] | None = None,
    corrected: bool = True,
    key: str = "mcpca",
) -> dict[str, str]:
    """Write a card of plain text for each MCPC, to read or to give to a language model for a label.

    The paper gives the sets enriched at FDR < 0.001 to a language model, which summarises them in a label per MCPC.

    Parameters
    ----------
    source : MCPCA, Pipeline or AnnData
        A fitted model, or a Pipeline that ends in one; or an AnnData with a fit.
    components : int, str or sequence of them, optional
        MCPCs by column (0 is MCPC 1) or name; by default all.
    n : int
        Largest number of features, sets, rows and contexts, of each, that a card names.
    enriched : DataFrame, optional
        The table of ``enrichment``.
    max_q : float
        Sets with a "q" below it are named.
    samples : DataFrame, optional
        The table of ``top_samples``: rows at the poles, by their "name" (sentences, patients).
    association : Association, sequence of them, "auto" or None
        Results of ``associate``. "auto" takes those of all covariates that ``mcpca.tl.associate`` stored in an AnnData.
    sure : Replicability, Bootstrap, Precision, "auto" or None
        The result of ``model.replicability(X, y)``, ``model.bootstrap(X, y)`` or ``model.standard_errors()``. "auto"
        takes what ``mcpca.tl.replicability`` and ``mcpca.tl.bootstrap`` stored in an AnnData, or what a model knows
        from the choice of its rank.
    context_dependence : ContextDependence, "auto" or None
        The result of ``model.context_dependence(X, y)``. "auto" takes what ``mcpca.tl.context_dependence`` stored in an
        AnnData, or what a model knows from the choice of its rank.
    by, pca, names, key
        As for ``feature_scores``.
    corrected : bool
        Whether contexts are listed by loadings without their noise.

    Returns
    -------
    dict {name of the MCPC: text}
        A few lines each, without markup.

    Notes
    -----
    Only the order of features is computed. A card says what was not looked for: for MCPCs that are not in the tables,
    and for a reliability that was neither passed nor stored.
    """
    n = check_integer(n, "n", 1)
    max_q = check_real(max_q, "max_q", 0, 1, "It is a false discovery rate.")
    if enriched is None:
        refuse_without_effect("max_q", max_q, 0.001, "no enriched sets are given", "drop it, or pass enriched")
    fit = fitted(source, key)
    associations = _given_or(association, stored_associations(source, key, Association))
    # A rank that was chosen brings evidence on every MCPC; what was stored for the purpose takes its place.
    chosen = getattr(source, "rank_choice_", None)
    halves = stored_replicability(source, key) or getattr(chosen, "replicability", None)
    reliabilities = _given_or(sure, [halves, stored_bootstrap(source, key)])
    tests = _given_or(context_dependence, [stored_dependence(source, key) or getattr(chosen, "dependence", None)])
    _check_tables(enriched, samples, associations, reliabilities, fit.names)
    _check_dependence(tests, len(fit.names))
    # Features are those before a PCA, in which poles can be read; loadings and sharing do not depend on it.
    table = scores_table(source, by=by, pca=pca, names=names, key=key)
    compared = fit.compared(corrected)
    sharing = how_shared(compared.values)
    cards = {}
    for j in chosen_components(components, fit.names):
        ends = poles(table.to_numpy(), list(table.index), j, n)
        lines = [f"{fit.names[j]}, one of {len(fit.names)} MCPCs of {len(fit.contexts)} contexts."]
        if fit.prepared is not None:
            lines.append(fit.prepared)
        lines.append(_contexts(fit, compared, j, sharing.labels[j], float(sharing.effective[j]), n))
        lines += [_dependence(test, j) for test in tests]
        # Features, sets and rows of one pole together, lest the two be mixed up when they are summarised.
        for pole, end in (("positive", ends.positive), ("negative", ends.negative)):
            lines += _pole(fit.names[j], pole, end, enriched, max_q, samples, n)
        lines += [_association(found, fit.names[j], compared.words) for found in associations]
        lines.append(_reliability(fit, compared.values[:, j], j, reliabilities))
        lines.append("Which pole is called positive is a convention; the two are opposites.")
        cards[fit.names[j]] = "\n".join(lines) + "\n"
    return cards


def _given_or(given: Any, stored: Sequence[Any]) -> list[Any]:
    """Return results as a list: those given, or with "auto" those stored with the fit; None is no result."""
    if isinstance(given, str) and given == "auto":
        given = stored
    results = given if isinstance(given, (list, tuple)) else [given]
    return [result for result in results if result is not None]


def _contexts(fit: Fitted, compared: Compared, j: int, kind: str, effective: float, n: int) -> str:
    """Say how much variance MCPC j holds, and which contexts carry it; ``kind`` and ``effective`` of ``how_shared``."""
    b = compared.values[:, j]
    total = float(compared.values.sum())
    share = 100 * float(b.sum()) / total if total > 0 else 0.0  # of the sum of B, the variance along all MCPCs
    carriers = carrying_contexts(b)
    text = f"Contexts: it holds {share:.2g}% of the variance of all MCPCs. {_SHARING[kind]}"
    if not len(carriers):
        return text + "."
    text += f" (as if {effective:.1f} of {len(b)} had it equally)." if len(b) > 1 else "."
    named = [f"{fit.contexts[i]} ({b[i]:.3g})" for i in carriers]
    text += f" Carried by {listed(named, n)}; the number is the loading, the variance along it ({compared.words})."
    n_without = int((b == 0).sum())
    if n_without == 1:
        return text + " One context has none of it."
    return text + (f" {n_without} contexts have none of it." if n_without else "")


def _dependence(test: ContextDependence, j: int) -> str:
    """Say whether MCPC j differs between contexts."""
    said = f"p = {test.p_values[j]:.2g}, q = {test.q_values[j]:.2g}"
    if test.dependent[j]:
        text = f"it differs between contexts, its variance by {test.dispersion[j]:.0%} (standard deviation; {said})"
        if test.outcome == "scale":
            text += "; so do all MCPCs, by one factor a context, which is a difference of scale and not of axes"
    else:
        text = f"no difference between contexts is seen ({said}): it is in all contexts alike, and pooled PCA would do"
    return f"Is it of the contexts: {text}."


def _pole(name: str, pole: str, end: Pole, enriched: Any, max_q: float, samples: Any, n: int) -> list[str]:
    """Return lines about one pole: its features, then enriched sets and rows if there are such tables."""
    title = f"{pole.capitalize()} pole"
    shown = ", ".join(f"{feature} ({value:+.2g})" for feature, value in zip(end.names, end.values, strict=True))
    lines = [f"{title}, features: {shown or 'none'}."]
    # "None" would claim a result; the table may be of other MCPCs only.
    if enriched is not None and not (enriched["component"] == name).any():
        lines.append(f"{title}, enriched sets: not looked for.")
    elif enriched is not None:
        sets = _rows_of(enriched, name, pole)
        # By p and not by q, which has many ties.
        sets = sets[sets["q"] < max_q].sort_values("p", kind="stable")
        # Between semicolons, since details have commas.
        named = "; ".join(f"{row['set']}{_set_detail(row)}" for _, row in sets.head(n).iterrows())
        # A language model must not take the list for complete.
        more = f" and {len(sets) - n:,} more" if len(sets) > n else ""
        lines.append(f"{title}, enriched sets: {named or f'none at FDR < {max_q:g}'}{more}.")
    if samples is not None and not (samples["component"] == name).any():
        lines.append(f"{title}, rows: not looked for.")
    elif samples is not None:
        rows = _rows_of(samples, name, pole).sort_values("rank", kind="stable").head(n)
        lines.append(f"{title}, rows:" + ("" if len(rows) else " none."))
        lines += [f"- {_one_line(str(row['name']))} [{row['context']}]" for _, row in rows.iterrows()]
    return lines


def _set_detail(row: Any) -> str:
    """Return what the method found about a set: the overlap (over-representation, Enrichr) or the AUC (ranks)."""
    q = f"q = {row['q']:.1g}"
    # Enrichr with a background does not tell the size, which is then NaN.
    if "overlap" in row.index and "size" in row.index and np.isfinite(row["size"]):
        return f" ({int(row['overlap'])} of its {int(row['size'])} features, {q})"
    return f" (AUC {row['auc']:.2f}, {q})" if "auc" in row.index else f" ({q})"


def _association(association: Association, name: str, listed_loadings: str) -> str:
    """Say what was found about MCPC ``name``; ``listed_loadings`` are those of the card, in words."""
    row = association.table.loc[name]
    statistics = ", ".join(f"{_STATISTICS[test]} {row[test]:.2f}" for test in association.tests)
    # Which loadings the card has is said where it lists them; those of the test may be others.
    others = f" ({association.loadings})" if association.loadings not in (None, listed_loadings) else ""
    # Blocks and confounders are part of what was found; the tests of one covariate name themselves.
    design = "" if association.how is None else f", {association.how}"
    text = (
        f"Covariate: {_QUANTITIES[association.of]}{others} against {association.covariate} in {association.n_contexts} "
        f"contexts{design}: {statistics}; "
    )
    if np.isnan(row["p"]):
        return text + "it does not vary, so there is no test."
    text += f"p = {row['p']:.2g}, {row['bonferroni']:.2g} after Bonferroni's correction; "
    text += "significant" if row["significant"] else "not significant"
    # What is not significant cannot be beyond PCA.
    if association.beyond_pca is not None and row["significant"]:
        text += ", beyond what PCA shows" if row["beyond_pca"] else ", though not beyond what PCA shows"
    return text + "."


def _reliability(fit: Fitted, b: Array, j: int, reliabilities: Sequence[Any]) -> str:
    """Say how far MCPC j can be trusted: by results, the rows behind it, and MCPCs it cannot be told apart from.

    ``b`` (k,) are its loadings.
    """
    words = [_reliability_by(sure, j) for sure in reliabilities]
    if not words:
        words.append("not assessed; model.replicability or model.bootstrap would tell")
    if fit.n_samples is not None:
        carriers = carrying_contexts(b)
        words.append(f"{int(np.asarray(fit.n_samples)[carriers].sum())} rows in the contexts that carry it")
    twins = _twins(fit, j)
    if twins:
        kind = "equal" if fit.orthogonal else "proportional"
        words.append(
            f"its loadings are nearly {kind} to those of {', '.join(fit.names[i] for i in twins)}, from which it "
            "cannot be told apart"
        )
    return f"How sure: {'; '.join(words)}."


def _reliability_by(sure: Replicability | Bootstrap | Precision, j: int) -> str:
    """Say what one result tells about MCPC j."""
    if isinstance(sure, Replicability):
        again = "comes back" if sure.replicates[j] else "does not come back"
        n_splits = len(sure.cosines)
        # With enough digits that a mean just above the threshold does not read as equal to it.
        mean = beside(sure.agreement[j], sure.threshold)
        spread = f", sd {sure.spread[j]:.2f} over {n_splits} splits" if n_splits > 1 else ""
        required = f"more than {sure.threshold:g} is required"
        return f"it {again} in halves of the {sure.by} (mean |cos| {mean}{spread}; {required})"
    if isinstance(sure, Bootstrap):
        return f"{100 * sure.confidence:g}% of resamples stay within {sure.angle_bounds[j]:.0f} degrees of it"
    return f"expected to be {sure.angles[j]:.1f} degrees from the truth, if the Gaussian model holds"


def _twins(fit: Fitted, j: int) -> list[int]:
    """Return the MCPCs whose loadings are proportional to those of MCPC j, so that the pair is not identifiable."""
    # With one context all loadings are proportional, and the axes are identified by being orthogonal instead.
    if len(fit.loadings) < 2:
        return []
    # A pair of an MCPC with itself stands for loadings that are all 0.
    pairs = [(pair.first, pair.second) for pair in fit.proportional_loadings() if pair.first != pair.second]
    return [a if b == j else b for a, b in pairs if j in (a, b)]


def _rows_of(table: Any, name: str, pole: str) -> Any:
    return table[(table["component"] == name) & (table["pole"] == pole)]


def _one_line(text: str) -> str:
    """Return text without line breaks, cut to a length at which a card stays readable."""
    # A line break within a name would look like the next entry.
    text = " ".join(text.split())
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "..."


def _check_dependence(tests: list[Any], r: int) -> None:
    """Raise if a test of contexts is none, or is of another number of MCPCs."""
    for test in tests:
        if not isinstance(test, ContextDependence):
            raise TypeError(
                f"context_dependence is a {type(test).__name__}; pass what MCPCA.context_dependence returned, 'auto' "
                "or None."
            )
        if len(test.p_values) != r:
            raise ValueError(
                f"context_dependence is of {len(test.p_values)} MCPCs, and the fit has {r}; pass that of this fit."
            )


def _check_tables(
    enriched: Any, samples: Any, associations: list[Any], reliabilities: list[Any], names: Sequence[str]
) -> None:
    """Raise if a table or result is of the wrong kind, or of a fit with other MCPCs than ``names``."""
    # MCPCs of another fit have the same names: only a table that has more of them can be recognised.
    needed = {  # argument: the table, the columns that cards use, the function that makes it
        "enriched": (enriched, ("component", "pole", "set", "p", "q"), "enrichment"),
        "samples": (samples, ("component", "pole", "rank", "name", "context"), "top_samples"),
    }
    for argument, (table, columns, maker) in needed.items():
        if table is None:
            continue
        missing = [name for name in columns if name not in getattr(table, "columns", ())]
        if missing:
            raise ValueError(f"{argument} lacks the columns {missing}; pass the table that {maker} returned.")
        _check_names(argument, table["component"], names)
    for association in associations:
        if not isinstance(association, Association):
            raise TypeError(f"association is a {type(association).__name__}; pass what associate returned.")
        _check_names("association", association.table.index, names)
        if len(association.table) != len(names):
            raise ValueError(
                f"association is of {len(association.table)} MCPCs, and the fit has {len(names)}; pass that of this "
                "fit."
            )
    for sure in reliabilities:
        if not isinstance(sure, (Replicability, Bootstrap, Precision)):
            raise TypeError(
                f"sure is a {type(sure).__name__}; pass what replicability, bootstrap or standard_errors returned."
            )
        # cosines (splits, r); angles (..., r)
        n_mcpcs = (sure.cosines if isinstance(sure, Replicability) else sure.angles).shape[-1]
        if n_mcpcs != len(names):
            raise ValueError(f"sure is of {n_mcpcs} MCPCs, and the fit has {len(names)}; pass that of this fit.")


def _check_names(argument: str, mcpcs: Any, names: Sequence[str]) -> None:
    unknown = [str(name) for name in dict.fromkeys(mcpcs) if name not in names]
    if unknown:
        raise ValueError(
            f"{argument} is of {unknown[0]}, and the fit has {names[0]} to {names[-1]}; pass that of this fit."
        )
