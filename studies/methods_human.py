"""The paper's Methods for the word "human", sentence by sentence, in the text's version or as the authors ran it.

``python studies/run.py human --pg19 DIR --catalogue FILE --as-authors`` (or ``--as-text``, or with ``--data DIR``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist
from scipy.stats import rankdata
from sklearn.decomposition import PCA

from mcpca import MCPCA
from mcpca.sharing import carrying_contexts

from .chance import Array
from .loaders import Rows
from .output import Report

RANK = 10
PCS = 50
N_TOP = 200
FORMS = ("fiction", "science")


def methods(
    rows: Rows, report: Report, *, as_authors: bool, axes: Sequence[str] = (), at_hand: str | None = None
) -> None:
    """Report a line for each sentence of "MCPCs of genres of textual production and time periods".

    ``rows`` are of ``corpus.gutenberg``, or ``loaders.human``, with the same ``as_authors``. ``axes`` are the MCPCs to
    compare with PCs; by default those that both forms carry, or else the first. ``at_hand`` says what rows are that are
    not the paper's.
    """
    version = "authors" if as_authors else "text"
    about = rows.about
    counts = pd.Series(rows.y).value_counts()
    years = sorted({int(name.rsplit(" ", 1)[1]) for name in counts.index})
    first = f"({years[0]}, {years[0] + 20}]" if as_authors else f"{years[0]} to {years[0] + 19}"
    report.add(version=version, source=rows.source, sentences=len(rows.y), contexts=len(counts))
    keywords = (
        "keywords anywhere in the subjects, both forms are fiction"
        if as_authors
        else "keywords at the beginning of words in subjects and bookshelves, both forms left out"
    )
    report.method(
        "Texts annotated by form, from keywords in the metadata, and by period",
        f"{at_hand or keywords}; sentences of {'less than 600 characters' if as_authors else 'any length'}",
        f"{len(rows.y)} sentences of {about['work'].nunique()} works; the first period is {first}; {counts.min()} to "
        f"{counts.max()} in a context",
    )
    report.method(
        "The first occurrence of the word, its tokens at the final layer averaged",
        "vectors as they are, no PCA before",
        f"{rows.X.shape[1]} dimensions",
    )
    model = MCPCA(RANK, random_state=0).fit(rows.X, rows.y)
    names = [f"MCPC {j + 1}" for j in range(RANK)]
    forms = np.array([str(name).rsplit(" ", 1)[0] for name in model.contexts_])
    B = np.asarray(model.loadings_)
    both = [name for j, name in enumerate(names) if set(forms[carrying_contexts(B[:, j])]) == set(FORMS)]
    report.method(
        "MCPCA with 10 components",
        f"{len(counts)} contexts",
        f"of both forms: {', '.join(both) or 'none'} (the paper: 4 and 6)",
    )
    # The mean of all sentences is not taken off by the authors; it moves no sentence past another.
    scores = rows.X @ model.projection_.T
    medians = pd.DataFrame(scores, columns=names).groupby(about["work"].to_numpy()).median()
    chosen = list(axes) or both[:2] or names[:1]
    own = medians[chosen[0]]
    report.method(
        "Per-text scores are medians over sentences",
        f"{chosen[0]}",
        f"{len(medians)} works; highest {own.idxmax()}, lowest {own.idxmin()}",
    )
    table = against_pcs(rows, model, scores, chosen, as_authors=as_authors)
    report.table("pcs", table)
    report.add(compared=", ".join(chosen), both=", ".join(both) or "none")
    cosine = "cosine of the projection" if as_authors else "cosine"
    for name in chosen:
        part = table[table["MCPC"] == name].set_index("PCs of")
        report.method(
            f"50 PCs of all, of science, of fiction: overlap of the top 200 sentences, Spearman correlation of "
            f"variances, cosine ({name})",
            "cosine of the projection, the authors' way to count overlap" if as_authors else "cosine of the MCPC",
            "; ".join(
                f"{kind}: cos {row[cosine]:.2f}, correlation {row['correlation']:.2f}, overlap {row['overlap']:.0%}"
                for kind, row in part.iterrows()
            ),
        )


def against_pcs(rows: Rows, model: MCPCA, scores: Array, chosen: Sequence[str], *, as_authors: bool) -> pd.DataFrame:
    """Return for MCPCs and three sets of rows the best PC by each measure."""
    labels = np.array([str(name) for name in rows.y])
    form = np.array([name.rsplit(" ", 1)[0] for name in labels])
    contexts = [str(name) for name in model.contexts_]
    axes = {"cosine": np.asarray(model.components_).T, "cosine of the projection": model.projection_}
    n = min(N_TOP, len(labels) // 4)
    table = []
    for kind, mine in (("all", np.ones(len(form), dtype=bool)), *((one, form == one) for one in FORMS)):
        m = min(PCS, int(mine.sum()) - 1, rows.X.shape[1])
        pca = PCA(m, svd_solver="full").fit(rows.X[mine])
        on_pcs = pca.transform(rows.X)
        sds = pd.DataFrame(on_pcs).groupby(labels).std().loc[contexts].to_numpy()
        correlations = 1 - cdist(
            rankdata(np.asarray(model.loadings_), axis=0).T, rankdata(sds, axis=0).T, "correlation"
        )
        cosines = {key: np.abs(1 - cdist(own, pca.components_, "cosine")).max(axis=1) for key, own in axes.items()}
        for name in chosen:
            j = int(name.split()[-1]) - 1
            shared = overlaps(scores[:, j], on_pcs, n, as_authors=as_authors)
            table.append(
                {
                    "MCPC": name,
                    "PCs of": kind,
                    **{key: float(own[j]) for key, own in cosines.items()},
                    "correlation": float(np.nanmax(correlations[j])),
                    "overlap": float(shared.max()),
                }
            )
    return pd.DataFrame(table)


def overlaps(z: Array, on_pcs: Array, n: int, *, as_authors: bool) -> Array:
    """Return for each PC (columns of on_pcs) the share of its top rows that are top rows of the scores z.

    In the text: of the n rows with the highest scores, or the lowest, those at one end of the PC; the better of both
    poles and ends. ``as_authors``: the n lowest and the n highest by score, against the n *smallest* and the n largest
    by absolute score on the PC, since their code sorts absolute values and takes both ends. Half of what it looks at
    are then rows that the PC says nothing of.
    """
    order = np.argsort(z, kind="stable")
    ends = [order[:n], order[-n:]]
    if as_authors:
        inside = np.isin(np.arange(len(z)), np.concatenate(ends))
        sizes = np.argsort(np.abs(on_pcs), axis=0, kind="stable")
        return np.asarray(inside[np.vstack([sizes[:n], sizes[-n:]])].mean(axis=0))
    of_pcs = np.argsort(on_pcs, axis=0, kind="stable")
    shares = [np.isin(np.arange(len(z)), end)[own].mean(axis=0) for end in ends for own in (of_pcs[:n], of_pcs[-n:])]
    return np.asarray(np.max(shares, axis=0))
