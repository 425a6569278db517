"""Pictures of analyses look as they did when someone looked at them; those of other numbers do not pass for them."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from pictures import BASELINE, LARGEST, TOLERANCE, axes, check_picture, picture_distance, plain_style, save_picture
from planted_maps import axes_of, planted_model, rearranged_model

from mcpca import RankChoice
from mcpca.analysis import Association, GroupTrees, PCAComparison, Survival, temporal_order
from mcpca.plotting import (
    plot_components,
    plot_contexts,
    plot_covariances,
    plot_enrichment,
    plot_forest,
    plot_group_medians,
    plot_group_trees,
    plot_link_recall,
    plot_pc_p_values,
    plot_pca_comparison,
    plot_rank_choice,
    plot_row_images,
    plot_survival,
    plot_temporal_order,
    plot_tree_distances,
)

ROWS = ["all rows", "young", "old"]


@pytest.fixture(scope="module")
def model():
    return planted_model()


@pytest.fixture(scope="module")
def other():
    return rearranged_model()


@pytest.fixture(autouse=True)
def _plain():
    with plain_style():
        yield
    plt.close("all")


def numbers(model, *shape):
    """Numbers from 0 to 1 of any shape, made of the loadings of a model: no random number decides."""
    share = model.loadings_.ravel()
    grown = np.resize(share / share.max(), np.prod(shape, dtype=int))
    return (grown * (1 + np.arange(len(grown)) % 7) % 1).reshape(shape)


def survival_of(model):
    names = [f"MCPC {j + 1}" for j in range(12)]
    ratios = np.exp(2 * numbers(model, 12) - 1)
    table = pd.DataFrame({"hazard_ratio": ratios, "lower": ratios / 1.6, "upper": ratios * 1.6}, index=names)
    table["p"] = numbers(model, 12)[::-1] / 4
    parts = []
    for group, rate in (("high", 0.02 + 0.2 * numbers(model, 3)[1]), ("low", 0.02 + 0.1 * numbers(model, 4)[3])):
        t = np.arange(25.0)
        s = np.exp(-rate * t)
        s[3::4] = s[2::4][: len(s[3::4])]  # every fourth time nobody has an event
        curve = {"time": t, "survival": s, "lower": s * 0.8, "upper": np.minimum(1, s * 1.2), "at_risk": 25 - t}
        parts.append(pd.DataFrame({"component": "MCPC 1", "group": group, **curve}))
    table = table.assign(logrank_p=0.02, events=17, n=50)
    return Survival(table, pd.concat(parts), table)


def association_of(model):
    p = pd.DataFrame({"p": [0.0004, 0.3], "significant": [True, False]}, index=["MCPC 1", "MCPC 2"])
    pcs = pd.DataFrame({"p": 10 ** (-3 * numbers(model, 100))}, index=[f"PC {i + 1}" for i in range(100)])
    pcs["significant"] = pcs["p"] < 0.05 / 100
    return Association(p, pcs, pcs, "stage", ("spearman",), "loadings", 6, 0.05, 1e-4)


def comparison_of(model):
    keys = [(rows, pc) for rows in ROWS for pc in range(1, 51)]
    pairs = pd.DataFrame(keys, columns=["rows", "pc"]).assign(component="MCPC 1")
    pairs[["overlap", "variance_correlation"]] = numbers(model, 150, 2) * [1, 2] - [0, 1]
    best = pd.DataFrame({"component": ["MCPC 1"], "rows": ["all rows"]})
    best[["overlap_chance", "variance_correlation_chance"]] = 0.2 + 0.6 * numbers(model, 1, 2)
    return PCAComparison(best, pairs, 200)


def medians_of(model):
    works = [f"work {i}" for i in range(30)]
    return pd.DataFrame({"n": 5, "MCPC 1": numbers(model, 30) - 0.5}, index=works)


def order_of(model):
    return temporal_order(model, [1, 2, 3] * 2, list("aaabbb"), components=[0, 1, 2], share=0.2)


def distances_of(model):
    keys = [(name, r) for name in ("loadings", "means", "covariances", "variances") for r in range(2, 9)]
    return pd.DataFrame(keys, columns=["features", "number"]).assign(distance=np.round(6 * numbers(model, 28)))


def recall_of(model, ranks):
    keys = [
        (links, name, r)
        for links in ("pathways", "complexes", "signals")
        for name in ("mean PCs", "mean PCs + loadings", "mean PCs + PC sds")
        for r in ([0] if name == "mean PCs" else ranks)
    ]
    table = pd.DataFrame(keys, columns=["links", "features", "number"])
    recall = 0.1 + 0.4 * numbers(model, len(table))
    return table.assign(recall=recall, chance_upper=recall[::-1], p=np.where(recall > 0.35, 0.01, 0.5))


def sets_of(model):
    keys = [(f"MCPC {j}", pole, f"set {i}") for j in (1, 2, 3) for pole in ("positive", "negative") for i in range(7)]
    q = 10 ** (-5 * numbers(model, 42))
    share = numbers(model, 42)[::-1]
    return pd.DataFrame(keys, columns=["component", "pole", "set"]).assign(size=10, overlap=10 * share, q=q, p=q)


def choice_of(model):
    ranks = np.arange(2, 14)
    scores = np.clip(1.05 - 0.03 * ranks[:, None] * (0.3 + numbers(model, 12, 5)), 0, 1)
    return RankChoice(7, "stable", "", ranks, scores, 0.8, np.ones(14), np.append(np.zeros(10), [2, 1]))


def rows_of(model):
    """Rows along the axes of each context, both ways, around a mean that is not 0."""
    A = axes_of()
    mean = 0.3 * A.sum(axis=1)
    halves = [A * np.sqrt(b) for b in model.loadings_]
    return {
        name: np.concatenate([mean + sign * size * half.T for sign in (-1, 1) for size in (0.5, 1, 1.7)])
        for name, half in zip(model.contexts_, halves, strict=True)
    }


def trees_of(model):
    keys = [
        (group, features)
        for group in ("all", "brain", "heart", "kidney", "liver", "lung", "testis")
        for features in ("loadings", "means", "covariances", "variances")
    ]
    distance = 2 * (numbers(model, 28).argsort().argsort() % 3)
    table = pd.DataFrame(keys, columns=["group", "features"]).assign(distance=distance, contexts=10)
    return GroupTrees(table, {}, None, {})


PICTURES = {
    "components": lambda m: plot_components(m, n=18, annotate=False, ax=axes()),
    "contexts": lambda m: plot_contexts(
        m, rows_of(m), contexts=m.contexts_[:3], arrow=2, ax=axes(right=1.2, width=4.5, above=0.5)
    ),
    "covariances": lambda m: plot_covariances(m, contexts=m.contexts_[:3], n=12, order="given"),
    "enrichment": lambda m: plot_enrichment(sets_of(m), q=0.01, ax=axes(below=0.9, width=4.5, height=3.6)),
    "forest": lambda m: plot_forest(survival_of(m), ax=axes(right=2.1, above=0.7, width=5.2, height=3.4)),
    "group_medians": lambda m: plot_group_medians(
        medians_of(m), 0, [1800 + 20 * (i % 4) for i in range(30)], [i % 2 for i in range(30)], ax=axes()
    ),
    "group_trees": lambda m: plot_group_trees(
        trees_of(m), ax=axes(left=1.1, right=0.1, above=0.5, width=2.6, height=3)
    ),
    "link_recall": lambda m: plot_link_recall(recall_of(m, [5]), ax=axes(right=1.8, width=5)),
    "link_recall_numbers": lambda m: plot_link_recall(recall_of(m, [5, 10, 20]), ax=axes(above=0.6, width=5)),
    "pc_p_values": lambda m: plot_pc_p_values(association_of(m), ax=axes(right=1.6, above=0.5, width=5)),
    "pca_comparison": lambda m: plot_pca_comparison(comparison_of(m), ax=axes(right=1.5, width=5)),
    "rank_choice": lambda m: plot_rank_choice(choice_of(m), ax=axes(right=0.1, above=0.5)),
    "row_images": lambda m: plot_row_images(m, (6, 6), rows_of(m), contexts=m.contexts_[:3], n=4),
    "survival": lambda m: plot_survival(survival_of(m), 0, ax=axes(right=0.1, below=1.0, above=0.5, height=3.5)),
    "temporal_order": lambda m: plot_temporal_order(order_of(m), ax=axes(right=0.1, width=4.5, height=3.2, above=0.5)),
    "tree_distances": lambda m: plot_tree_distances(distances_of(m), ax=axes(right=1.8, above=0.5, width=5.5)),
}


def figure_of(drawn):
    return getattr(drawn, "figure", drawn)


@pytest.mark.parametrize("name", PICTURES)
def test_picture_is_the_one_that_was_looked_at(name, model):
    check_picture(figure_of(PICTURES[name](model)), name)


@pytest.mark.parametrize("name", PICTURES)
def test_picture_of_other_numbers_does_not_pass(name, other, tmp_path):
    save_picture(figure_of(PICTURES[name](other)), tmp_path / "other.png")
    assert picture_distance(tmp_path / "other.png", BASELINE / f"{name}.png") > TOLERANCE


def test_kept_pictures_are_small():
    sizes = [(BASELINE / f"{name}.png").stat().st_size for name in PICTURES]
    assert max(sizes) < LARGEST
