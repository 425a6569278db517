"""The word "human" in science and fiction: axes of both forms, when each has them, sentences at their poles, and PCA.

``python studies/run.py human --data DIR``, or with the paper's corpus ``--pg19 DIR --catalogue FILE --model NAME``.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import false_discovery_control, hypergeom

from mcpca import MCPCA, match_components, plotting, select_rank
from mcpca.analysis import compare_with_pca, group_medians, top_samples
from mcpca.sharing import carrying_contexts

from .chance import Array, Chance, deal_groups, permuted_fits, spread
from .loaders import Rows, human, pooled_axes
from .output import Report

RANK = 10  # the paper's
AXES = 100
MIN_ROWS = 50  # sentences of a context, in the data and after permutation
N_TOP = 200  # sentences, as in the paper's Fig. 4E-F
FEWEST = 10  # sentences with a word after "human" for it to count
SHOWN = 3  # sentences at each pole on the page
LONGEST = 160  # characters of a sentence on the page
BACK = 0.8  # mean |cos| between halves above which an axis comes back
FORMS = ("fiction", "science")


def run(data: Path, report: Report, permutations: int = 200) -> None:
    """Study the data at hand: sentences of Project Gutenberg, embedded by MiniLM."""
    study_word(human(data), report, permutations)


def run_pg19(pg19: Path, catalogue: Path, model: Any, report: Report, permutations: int = 200) -> None:
    """Study the paper's corpus."""
    from .corpus import gutenberg

    rows = gutenberg(pg19, catalogue, model=model)
    report.add(source=f"{rows.source} with {Path(catalogue).name}", model=str(model))
    study_word(rows, report, permutations)


def study_word(rows: Rows, report: Report, permutations: int) -> None:
    """Fit MCPCA to sentences by form and period, and report."""
    about = rows.about
    whole = MCPCA(RANK, random_state=0).fit(rows.X, rows.y)
    dimensions = rows.X.shape[1]
    Z, pca = pooled_axes(rows, AXES)
    # Hundreds of fits follow; the whole vectors, fitted once, tell what the PCs leave out.
    rows = replace(rows, X=Z, features=[f"PC {i + 1}" for i in range(Z.shape[1])])
    model = MCPCA(RANK, random_state=0).fit(rows.X, rows.y)
    same = match_components(pca.components_.T @ model.components_, whole.components_).cosines
    contexts = [str(name) for name in model.contexts_]
    form = np.array([name.rsplit(" ", 1)[0] for name in contexts])
    period = np.array([int(name.rsplit(" ", 1)[1]) for name in contexts])
    if set(form) != set(FORMS):
        raise ValueError(f"Forms are {sorted(set(form))}; the study compares {list(FORMS)}.")
    again = model.replicability(rows.X, rows.y, n_splits=20, random_state=0)
    selection = select_rank(rows.X, rows.y, criteria=(), random_state=0)
    works = about.groupby(rows.y)["work"].agg(["nunique", lambda own: own.value_counts(normalize=True).iloc[0]])
    report.add(
        permutations=permutations,
        rank=RANK,
        rank_selected=selection.rank,
        sentences=len(rows.y),
        works=about["work"].nunique(),
        contexts=len(contexts),
        dimensions=dimensions,
        axes=Z.shape[1],
        variance_of_axes=float(pca.explained_variance_ratio_.sum()),
        same=float(np.mean(same)),
        same_least=float(np.min(same)),
        replicating=again.n_replicating,
        fewest=int(pd.Series(rows.y).value_counts().min()),
        fewest_works=int(works["nunique"].min()),
        largest_share=float(works.iloc[:, 1].max()),
    )
    kinds = _kinds(model, form, period)
    # Sentences of a work are alike, so whole works are permuted: over the periods of their form, for claims about
    # periods, and over all contexts, for claims about forms. Single sentences show how much that matters.
    works_of = _work_in_context(rows)
    deals = {
        "sentences": None,
        "works": deal_groups(works_of, np.array([name.rsplit(" ", 1)[0] for name in rows.y]), min_rows=MIN_ROWS),
        "works_anywhere": deal_groups(works_of, min_rows=MIN_ROWS),
    }
    statistics = {
        dealt: permuted_fits(
            rows.X, rows.y, RANK, permutations, lambda one: _statistics(one, form, period), seed=seed, deal=deal
        )
        for seed, (dealt, deal) in enumerate(deals.items(), 1)
    }
    observed = _statistics(model, form, period)
    for dealt, null in statistics.items():
        for name, value in observed.items():
            chance = Chance(value, np.array([one[name] for one in null]))
            report.add(**{f"{name}_{dealt}_{key}": v for key, v in _parts(chance).items()})
    report.add(**observed)
    compared = compare_with_pca(
        model,
        corrected=False,
        X=rows.X,
        y=rows.y,
        groups=dict(zip(contexts, form, strict=True)),
        n_top=min(N_TOP, len(rows.y) // 4),
    )
    table = _axes(model, kinds, again, compared.best)
    report.table("axes", table)
    words = next_words(model, rows)
    report.table("words", words)
    axis = _chosen_axis(table)
    report.add(axis=axis or "none")
    shared = table[table["forms"] == "both"]
    report.add(shared=", ".join(shared["MCPC"]) or "none", both_percent=float(100 * len(shared) / len(table)))
    if axis is not None:
        _one_axis(report, model, axis, rows, table, compared, words)
    report.figure("loadings", plotting.plot_loadings(model, normalize="component"))
    drawn = shared.sort_values("halves, cos", ascending=False)["MCPC"].head(2).tolist() or [str(table["MCPC"][0])]
    report.figure(
        "trends",
        plotting.plot_trends(
            model,
            drawn,
            dict(zip(contexts, (period + 10).tolist(), strict=True)),
            group=dict(zip(contexts, form.tolist(), strict=True)),
            normalize="component",
            corrected=False,
            label="year",
        ),
    )
    _claims(report)


def _work_in_context(rows: Rows) -> Array:
    """Return a name for the sentences of a work in one context; a work in two parts may be in two periods."""
    return np.array([f"{work}|{y}" for work, y in zip(rows.about["work"], rows.y, strict=True)])


def _kinds(model: MCPCA, form: Array, period: Array) -> pd.DataFrame:
    """Return for each MCPC which forms carry it, and the period in which each form has most of it."""
    B = np.asarray(model.loadings_)
    rows = []
    for j in range(B.shape[1]):
        carrying = {str(form[i]) for i in carrying_contexts(B[:, j])}
        peaks = {one: int(period[form == one][B[form == one, j].argmax()]) for one in FORMS}
        rows.append({"forms": "both" if len(carrying) == 2 else carrying.pop(), **peaks})
    return pd.DataFrame(rows)


def _statistics(model: MCPCA, form: Array, period: Array) -> dict[str, float]:
    """Return what is claimed of the loadings, as numbers that chance can be asked for too.

    "both": MCPCs that both forms carry; "apart": those of them whose peaks are in different periods; "contrast": the
    difference between the mean loadings of the forms over their sum; "spread": of loadings over contexts.
    """
    kinds = _kinds(model, form, period)
    both = kinds["forms"] == "both"
    B = np.asarray(model.loadings_)
    means = np.stack([B[form == one].mean(axis=0) for one in FORMS])
    contrast = np.abs(means[0] - means[1]) / np.maximum(means.sum(axis=0), 1e-300)
    return {
        "both": float(both.sum()),
        "apart": float((both & (kinds[FORMS[0]] != kinds[FORMS[1]])).sum()),
        "contrast": float(contrast.mean()),
        "spread": spread(model),
    }


def _parts(chance: Chance) -> dict[str, float]:
    # Fewer MCPCs in both forms than by chance is a finding too: "Most MCPCs were restricted to one form".
    low = float((1 + (chance.null <= chance.observed + 1e-12).sum()) / (1 + len(chance.null)))
    return {"chance": chance.mean, "upper": chance.upper, "p": chance.p, "p_low": low}


def _axes(model: MCPCA, kinds: pd.DataFrame, again: Any, best: pd.DataFrame) -> pd.DataFrame:
    overall = best[best["rows"] == "all rows"].set_index("component")
    of_forms = best[best["rows"] != "all rows"].groupby("component", sort=False)
    table = pd.DataFrame({"MCPC": list(overall.index)})
    table["forms"] = kinds["forms"]
    for one in FORMS:
        table[f"peak in {one}"] = [f"{year}-{year + 19}" for year in kinds[one]]
    table["carried by"] = [
        ", ".join(str(model.contexts_[i]) for i in carrying_contexts(np.asarray(model.loadings_)[:, j])[:3])
        for j in range(len(table))
    ]
    table["halves, cos"] = again.agreement
    table["best pooled PC, cos"] = overall["cosine"].to_numpy()
    table["top sentences shared"] = overall["overlap"].to_numpy()
    table["variances, correlation"] = overall["variance_correlation"].to_numpy()
    table["best PC of a form, cos"] = of_forms["cosine"].max().to_numpy()
    return table


def next_words(model: MCPCA, rows: Rows) -> pd.DataFrame:
    """Return for each pole of each MCPC the word after "human" that is most over-represented among its top sentences.

    By chance a word's number there is hypergeometric; q is Benjamini and Hochberg's over all words, poles and MCPCs.
    """
    found = [re.search(r"\bhuman\b[\s,;]*([a-z]+)?", one, re.IGNORECASE) for one in rows.about["sentence"]]
    after = pd.Series([(one[1] or "").lower() if one else "" for one in found])
    counts = after.value_counts()
    common = [word for word in counts.index if word and counts[word] >= FEWEST]
    n = min(N_TOP, len(after) // 4)
    scores = (rows.X - rows.X.mean(axis=0)) @ model.projection_.T
    parts = []
    for j in range(scores.shape[1]):
        order = np.argsort(scores[:, j], kind="stable")
        for pole, top in (("positive", order[-n:]), ("negative", order[:n])):
            own = after[top].value_counts()
            for word in common:
                k = int(own.get(word, 0))
                p = float(hypergeom.sf(k - 1, len(after), int(counts[word]), n))
                share = k / n
                overall = counts[word] / len(after)
                parts.append((f"MCPC {j + 1}", pole, word, share, overall, p))
    columns = ["MCPC", "pole", "word after human", "share at the pole", "share overall", "p"]
    table = pd.DataFrame(parts, columns=columns)
    if table.empty:
        return table.rename(columns={"p": "q"})
    table["q"] = false_discovery_control(table["p"])
    best = table.sort_values("p", kind="stable").groupby(["MCPC", "pole"], sort=False).head(1).sort_index()
    return best.drop(columns="p")


def _chosen_axis(table: pd.DataFrame) -> str | None:
    """Return, of the MCPCs of both forms that come back, the one that PCA sees least; None without one of both forms.

    Where none comes back, the one that does so best.
    """
    both = table[(table["forms"] == "both")]
    if both.empty:
        return None
    back = both[both["halves, cos"] > BACK]
    chosen = both["halves, cos"].idxmax() if back.empty else back["best pooled PC, cos"].idxmin()
    return str(both.loc[chosen, "MCPC"])


def _one_axis(
    report: Report, model: MCPCA, axis: str, rows: Rows, table: pd.DataFrame, compared: Any, words: pd.DataFrame
) -> None:
    """Report sentences at the poles of an axis, works by their median, and how near PCA comes."""
    own = table.set_index("MCPC").loc[axis]
    top = top_samples(model, 20, components=axis, names=rows.about["sentence"].to_numpy(), X=rows.X, y=rows.y)
    top.insert(5, "work", rows.about["work"].to_numpy()[top["row"]])
    report.table("poles", top.drop(columns=["row"]), on_page=False)
    short = top[[len(one) <= LONGEST for one in top["name"]]].groupby("pole", sort=False).head(SHOWN)
    shown = short[["pole", "name", "work"]].rename(columns={"name": "sentence"})
    report.table("sentences", shown)
    medians = group_medians(model, rows.about["work"].to_numpy(), X=rows.X, y=rows.y, min_rows=5)[["n", axis]]
    medians = (
        medians.sort_values(axis).reset_index().rename(columns={"group": "work", "n": "sentences", axis: "median"})
    )
    report.table("works", medians, on_page=False)
    ends = pd.concat([medians.head(5), medians.tail(5)[::-1]])
    ends["work"] = [textwrap.shorten(name, 80, placeholder=" ...") for name in ends["work"]]
    ends.insert(0, "pole", ["negative"] * min(5, len(medians)) + ["positive"] * min(5, len(medians)))
    report.table("works_at_poles", ends)
    report.add(
        axis_halves=own["halves, cos"],
        **{
            f"axis_{pole}_{key}": value
            for pole, one in words[words["MCPC"] == axis].set_index("pole").iterrows()
            for key, value in (("word", one["word after human"]), ("share", one["share at the pole"]))
        },
        axis_pc_cos=own["best pooled PC, cos"],
        axis_overlap=own["top sentences shared"],
        axis_variances=own["variances, correlation"],
        axis_form_cos=own["best PC of a form, cos"],
        axis_fiction=own["peak in fiction"],
        axis_science=own["peak in science"],
        works_with_five=len(medians),
        **_works_by_chance(model, axis, rows),
    )
    report.figure("pca", plotting.plot_pca_comparison(compared, axis))


def _works_by_chance(model: MCPCA, axis: str, rows: Rows) -> dict[str, float]:
    """Return how far apart the medians of works are, and are if sentences are permuted over works within contexts."""
    j = int(axis.split()[-1]) - 1
    z = pd.Series((rows.X - rows.X.mean(axis=0)) @ model.projection_[j])
    works = rows.about["work"].to_numpy()
    sizes = pd.Series(works).map(pd.Series(works).value_counts())
    kept = (sizes >= 5).to_numpy()
    contexts = pd.Series(rows.y)
    rng = np.random.default_rng(4)

    def width(scores: pd.Series) -> float:
        return float(scores[kept].groupby(works[kept]).median().std())

    members = [own.to_numpy() for own in contexts.groupby(contexts).groups.values()]
    null = []
    for _ in range(200):
        order = np.arange(len(z))
        for mine in members:
            order[mine] = rng.permutation(mine)
        null.append(width(pd.Series(z.to_numpy()[order])))
    return Chance(width(z), np.array(null)).numbers("works_width")


def _claims(report: Report) -> None:
    n = report.numbers

    def chance(name: str) -> str:
        return (
            f"works dealt within forms: {n[f'{name}_works_chance']:.1f} (95% up to {n[f'{name}_works_upper']:.0f}), "
            f"p = {n[f'{name}_works_p']:.2g}; sentences dealt: {n[f'{name}_sentences_chance']:.1f}, p = "
            f"{n[f'{name}_sentences_p']:.2g}"
        )

    report.claim(
        "Most MCPCs are of one form",
        "8 of 10",
        f"{RANK - n['both']:.0f} of {RANK}",
        f"works dealt to any context: {RANK - n['both_works_anywhere_chance']:.1f}, p = "
        f"{n['both_works_anywhere_p_low']:.2g}; sentences dealt: {RANK - n['both_sentences_chance']:.1f}, p = "
        f"{n['both_sentences_p_low']:.2g}",
        bool(n["both"] < RANK / 2 and n["both_works_anywhere_p_low"] < 0.05),
    )
    report.claim("Some are of both forms", "MCPC 4 and 6", f"{n['shared']}", chance("both"), bool(n["both"] > 0))
    report.claim(
        "These are there at different times",
        "fiction 1800-1820 before science 1820-1840; science before fiction 1880-1900",
        f"peaks in different periods for {n['apart']:.0f} of {n['both']:.0f}",
        chance("apart"),
        "no more than by chance" if n["apart_works_p"] >= 0.05 else True,
    )
    if n["axis"] != "none":
        report.claim(
            "PCA does not find such an axis",
            "no PC is near it",
            f"closest pooled PC of {n['axis']} |cos| {n['axis_pc_cos']:.2f}, of one form {n['axis_form_cos']:.2f}; "
            f"shares {n['axis_overlap']:.0%} of the top sentences",
            f"halves of the sentences agree on the MCPC by {n['axis_halves']:.2f}",
            bool(max(n["axis_pc_cos"], n["axis_form_cos"]) < 0.7 and n["axis_halves"] > 0.7),
        )
        report.claim(
            "Works differ along it",
            "Huxley's Time and Life stands out",
            f"standard deviation of medians of {n['works_with_five']} works {n['works_width']:.3g}",
            f"sentences dealt to works within contexts: {n['works_width_chance']:.3g}; p = {n['works_width_p']:.2g}",
            bool(n["works_width_p"] < 0.05),
        )
