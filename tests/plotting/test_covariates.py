"""Loadings against covariates and over time: points and lines are the model's loadings, tests are SciPy's."""

import itertools
import shutil
import sys

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text
from pictures import BASELINE, check_picture, plain_style
from scipy.stats import f_oneway, permutation_test, spearmanr
from sklearn.exceptions import NotFittedError
from stored_fit import stored_fit
from unequal_noise import fitted_to, two_groups

from mcpca import MCPCA
from mcpca.analysis import associate
from mcpca.datasets import make_contexts
from mcpca.plotting import plot_covariate, plot_trends
from mcpca.plotting._covariates import side_by_side
from mcpca.plotting._trends import _style

K = 12


def fit(k, r=3, prefix="context "):
    truth = make_contexts(k, 10, r, n_samples=60, random_state=0)
    names = [f"{prefix}{i}" for i in range(k)]
    return MCPCA(r, random_state=0).fit_covariances(truth.covariances, context_names=names)


@pytest.fixture(scope="module")
def model():
    return fit(K)


@pytest.fixture(scope="module")
def age():
    return np.random.default_rng(4).uniform(20, 80, K).round(1)


STAGES = ["II", "I", "III", "I", "II", "III", "I", "III", "II", "I", "III", "II"]
FORMS = ["science", "fiction"] * 6
YEARS = [1800 + 20 * (i // 2) for i in range(K)]


@pytest.fixture(autouse=True)
def _no_open_figures(monkeypatch):
    assert plt.get_fignums() == []
    monkeypatch.setattr(plt, "show", lambda *a, **k: pytest.fail("show was called"))
    yield
    plt.close("all")


def points(ax):
    return np.concatenate([np.asarray(c.get_offsets()) for c in ax.collections])


# One covariate


def test_points_are_the_loadings_and_the_title_has_spearmans_correlation(model, age):
    ax = plot_covariate(model, "MCPC 2", age, label="age")
    np.testing.assert_array_equal(points(ax), np.column_stack([age, model.loadings_[:, 1]]))
    rho, p = spearmanr(age, model.loadings_[:, 1])
    assert ax.get_title() == f"MCPC 2, 12 contexts\nSpearman's ρ = {rho:.2f}, p = {p:.2g}"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("age", "loading of MCPC 2 (variance)")
    assert ax.get_ylim()[0] <= 0


def test_dates_are_an_axis_of_dates(model):
    days = pd.Series(pd.date_range("2021-03-01", periods=K), index=model.contexts_, name="visit")
    ax = plot_covariate(model, 0, days)
    assert f"ρ = {spearmanr(np.arange(K), model.loadings_[:, 0])[0]:.2f}" in ax.get_title()
    assert ax.get_xlabel() == "visit"
    np.testing.assert_allclose(np.diff(points(ax)[:, 0]), 1)  # days
    ax.figure.canvas.draw()


def test_two_categories_are_compared_by_the_t_test(model):
    ax = plot_covariate(model, 0, FORMS)
    b = model.loadings_[:, 0]
    p = permutation_test((b[1::2], b[::2]), lambda v, w: v.mean() - w.mean(), n_resamples=10**6).pvalue  # all 924
    assert f"t-test p = {p:.2g}" in ax.get_title()
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["fiction", "science"]
    np.testing.assert_array_equal(points(ax)[:, 1], np.concatenate([b[1::2], b[::2]]))
    # Points stay in the column of their category, which has a marker of its own.
    np.testing.assert_array_equal(np.round(points(ax)[:, 0]), [0] * 6 + [1] * 6)
    first, second = (c.get_paths()[0].vertices.shape for c in ax.collections)
    assert first != second


def test_several_categories_are_compared_by_analysis_of_variance(model):
    b, stages = model.loadings_[:, 0], np.array(STAGES)
    p = f_oneway(*(b[stages == s] for s in ("I", "II", "III"))).pvalue
    ax = plot_covariate(model, 0, STAGES)
    assert ax.get_title().endswith(f"\nANOVA p = {p:.2g}")
    medians = [line.get_ydata()[0] for line in ax.lines if line.get_color() == "black"]
    np.testing.assert_allclose(medians, [np.median(b[stages == s]) for s in ("I", "II", "III")])


@pytest.mark.parametrize("n", [8, 12])
def test_picture_docs_and_association_name_the_same_test(n):
    """Of 8 contexts in three groups p is exact, of 12 by tables: the one that ``associate`` tells either way."""
    truth = make_contexts(n, 10, 3, random_state=4)
    few = MCPCA(3, random_state=0).fit_covariances(truth.covariances)
    stages = ["I", "II", "III", "II"] * (n // 4)
    found = associate(few, stages)
    title = plot_covariate(few, 1, stages).get_title()
    assert found.tests == ("anova",)
    assert title.endswith(f"\nANOVA p = {found.table['anova_p'].iloc[1]:.2g}")
    told = " ".join(plot_covariate.__doc__.split())
    assert "one-way analysis of variance (ANOVA) for more" in told
    assert "Kruskal" not in told


def test_ordered_categories_have_a_correlation_too(model):
    ordered = pd.Categorical(STAGES, categories=["III", "II", "I"], ordered=True)
    ax = plot_covariate(model, 0, ordered)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["III", "II", "I"]
    assert f"Spearman's ρ = {spearmanr(ordered.codes, model.loadings_[:, 0])[0]:.2f}" in ax.get_title()
    numbers = plot_covariate(model, 0, 3 - ordered.codes.astype(float), kind="category")
    assert [tick.get_text() for tick in numbers.get_xticklabels()] == ["1", "2", "3"]
    assert "ANOVA" in numbers.get_title()


def test_contexts_without_a_value_are_left_out_on_request(model, age):
    some = dict(zip(model.contexts_[:9], age[:9], strict=True))
    with pytest.raises(ValueError, match=r"covariate has no value for 3 of 12 contexts: 'context 9'"):
        plot_covariate(model, 0, some)
    ax = plot_covariate(model, 0, some, missing="drop")
    assert len(points(ax)) == 9
    rho = spearmanr(age[:9], model.loadings_[:9, 0])[0]
    assert "9 contexts, 3 without a value left out" in ax.get_title()
    assert f"ρ = {rho:.2f}" in ax.get_title()


@pytest.mark.parametrize(
    ("covariate", "words"),
    [
        ([5.0] * K, "too few different values"),
        (["a"] * K, "one group, nothing to compare"),
        (["a"] * (K - 1) + ["b"], "no test: a group has one context"),
    ],
)
def test_where_there_is_nothing_to_test_it_is_said(covariate, words, model):
    ax = plot_covariate(model, 0, covariate)
    assert words in ax.get_title()
    assert len(points(ax)) == K


def test_equal_loadings_are_not_tested():
    model = fit(K)
    model.loadings_ = model.corrected_loadings_ = np.ones((K, 3))
    assert "all loadings are equal" in plot_covariate(model, 0, STAGES).get_title()
    assert "too few different values" in plot_covariate(model, 0, np.arange(K)).get_title()


def test_names_of_contexts_stand_apart_beside_their_points(model, age):
    ax = plot_covariate(model, 0, age)
    ax.figure.canvas.draw()
    assert {text.get_text() for text in ax.texts} <= set(model.contexts_)
    assert len(ax.texts) >= 8
    boxes = [Text.get_window_extent(text) for text in ax.texts]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    own = dict(zip(model.contexts_, model.loadings_[:, 0], strict=True))
    for text in ax.texts:
        assert text.xy[1] == own[text.get_text()]
    assert not plot_covariate(model, 0, age, annotate=False).texts
    many = fit(200)
    assert not plot_covariate(many, 0, np.arange(200)).texts
    assert plot_covariate(many, 0, np.arange(200), annotate=True).texts


def test_names_of_many_categories_do_not_overlap():
    model = fit(200)
    ax = plot_covariate(model, 0, [f"a category with a long name, number {i % 90}" for i in range(200)])
    ax.figure.canvas.draw()
    labels = ax.get_xticklabels()
    boxes = [label.get_window_extent() for label in labels]
    assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes))
    assert min(box.y0 for box in boxes) >= 0
    assert 10 < len(labels) < 90
    for place, label in zip(ax.get_xticks(), labels, strict=True):
        assert label.get_text().endswith(f"ber {place}")


def test_close_points_are_side_by_side():
    heights = np.array([0.0, 1, 2, 3, 50, 51])
    x = side_by_side(heights, 6, 20)
    for i, j in itertools.combinations(range(6), 2):
        assert np.hypot(heights[i] - heights[j], x[i] - x[j]) >= 5
    assert (np.abs(side_by_side(np.zeros(100), 6, 20)) <= 20).all()
    np.testing.assert_array_equal(side_by_side(np.array([0.0, 10, 20]), 6, 20), 0)


# Over time


def lines(ax):
    """{label: (x, y)} of the lines that have points; labels are those of the legend."""
    drawn = [line for line in ax.lines if len(line.get_xdata())]
    proxies = [line for line in ax.lines if not len(line.get_xdata())]
    return {p.get_label(): line for p, line in zip(proxies, drawn, strict=True)}


def test_lines_are_the_loadings_of_groups_over_time(model):
    order = np.random.default_rng(2).permutation(K)  # contexts need not be in the order of time
    shuffled = MCPCA(3, random_state=0).fit_covariances(
        np.einsum("pr,kr,qr->kpq", model.components_, model.loadings_[order], model.components_),
        context_names=model.contexts_[order],
    )
    years = dict(zip(model.contexts_, YEARS, strict=True))
    forms = dict(zip(model.contexts_, FORMS, strict=True))
    ax = plot_trends(shuffled, [0, 2], years, forms)
    found = lines(ax)
    assert list(found) == ["MCPC 1, fiction", "MCPC 1, science", "MCPC 3, fiction", "MCPC 3, science"]
    for (j, start), line in zip(itertools.product((0, 2), (1, 0)), found.values(), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), np.arange(1800, 1920, 20))
        name = shuffled.contexts_.tolist()
        own = [shuffled.loadings_[name.index(f"context {i}"), j] for i in range(start, K, 2)]
        np.testing.assert_allclose(line.get_ydata(), own)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == list(found)


def test_several_contexts_at_one_time_are_points_and_their_mean_a_line(model):
    ax = plot_trends(model, 1, YEARS)
    b = model.loadings_[:, 1]
    mean, each = (line for line in ax.lines if len(line.get_xdata()))
    np.testing.assert_allclose(mean.get_ydata(), (b[::2] + b[1::2]) / 2)
    np.testing.assert_array_equal(np.column_stack(each.get_data()), np.column_stack([YEARS, b]))
    assert mean.get_marker() == "o"
    assert mean.get_markersize() == 0
    assert ax.get_legend() is None
    assert ax.get_ylabel() == "loading of MCPC 2 (variance)"


def test_normalised_trends_reach_one(model):
    ax = plot_trends(model, [0, 1], YEARS, FORMS, normalize="component")
    for name, j in (("MCPC 1", 0), ("MCPC 2", 1)):
        tops = [line.get_ydata().max() for label, line in lines(ax).items() if label.startswith(name)]
        assert max(tops) == 1
        np.testing.assert_allclose(
            lines(ax)[f"{name}, science"].get_ydata(), model.loadings_[::2, j] / model.loadings_[:, j].max()
        )
    assert ax.get_ylabel() == "loading / largest of its MCPC"


def test_time_in_categories_and_dates(model):
    when = pd.Categorical(["late", "early"] * 6, categories=["early", "late"], ordered=True)
    ax = plot_trends(model, 0, when)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["early", "late"]
    b = model.loadings_[:, 0]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [b[1::2].mean(), b[::2].mean()])
    days = plot_trends(model, 0, pd.date_range("2020-01-01", periods=K))
    days.figure.canvas.draw()
    np.testing.assert_allclose(days.lines[0].get_ydata(), b)


@pytest.mark.parametrize(("n_components", "n_groups"), [(8, 1), (1, 8), (8, 8)])
def test_no_two_lines_are_alike_in_black_and_white(n_components, n_groups):
    styles = [_style(i, g, n_components, n_groups) for i, g in itertools.product(range(n_components), range(n_groups))]
    assert len({(style["marker"], str(style["linestyle"])) for style in styles}) == n_components * n_groups


def test_contexts_without_time_or_group(model):
    years = dict(zip(model.contexts_[2:], YEARS[2:], strict=True))
    forms = dict(zip(model.contexts_[:10], FORMS[:10], strict=True))
    with pytest.raises(ValueError, match=r"time has no value for 2 of 12 contexts: 'context 0', 'context 1'"):
        plot_trends(model, 0, years)
    ax = plot_trends(model, 0, years, forms, missing="drop")
    assert [line.get_xdata().tolist() for line in lines(ax).values()] == [[1820, 1840, 1860, 1880]] * 2
    assert ax.get_title() == "4 contexts without a value left out"
    with pytest.raises(ValueError, match=r"No context has both a time and a group; pass both"):
        plot_trends(model, 0, {"context 0": 1}, {"context 1": "a"}, missing="drop")


# Both


def test_columns_of_an_anndata(model):
    truth = make_contexts(4, 6, 2, n_samples=20, random_state=0)
    obs = {"year": truth.y * 10, "form": np.array(["a", "b", "a", "b"])[truth.y], "row": np.arange(80)}
    adata, fitted = stored_fit(truth.X, np.array(["w", "x", "y", "z"])[truth.y], 2, obs=obs)
    ax = plot_covariate(adata, 0, "year")
    np.testing.assert_allclose(points(ax), np.column_stack([[0, 10, 20, 30], fitted.corrected_loadings_[:, 0]]))
    assert ax.get_xlabel() == "year"
    ax = plot_trends(adata, "MCPC 2", "year", "form")
    np.testing.assert_allclose(lines(ax)["b"].get_ydata(), fitted.corrected_loadings_[[1, 3], 1])
    with pytest.raises(ValueError, match=r"covariate='row' is not constant within contexts"):
        plot_covariate(adata, 0, "row")
    with pytest.raises(ValueError, match=r"group='from' is not a column of adata\.obs; did you mean 'form'"):
        plot_trends(adata, 0, "year", "from")


@pytest.mark.parametrize(
    ("draw", "match"),
    [
        (lambda m: plot_covariate(m, 3, range(K)), r"component=3 is out of bounds"),
        (lambda m: plot_covariate(m, 0, range(3)), r"covariate has shape \(3,\); pass one value for each of the 12"),
        (lambda m: plot_covariate(m, 0, "age"), r"covariate='age' would be a column of obs"),
        (lambda m: plot_covariate(m, 0, YEARS, kind="box"), r"kind='box'; choose 'auto' or 'category'"),
        (lambda m: plot_covariate(m, 0, YEARS, annotate="no"), r"annotate='no'; choose True, False or 'auto'"),
        (lambda m: plot_trends(m, [], YEARS), r"components is empty"),
        (lambda m: plot_trends(m, 0, YEARS, normalize="row"), r"normalize='row'; choose None or 'component'"),
        (lambda m: plot_trends(m, 0, YEARS, [f"g{i}" for i in range(K)]), r"group has 12 entries, .* for up to 8"),
    ],
)
def test_errors_name_argument_value_and_way_out(draw, match, model):
    with pytest.raises(ValueError, match=match):
        draw(model)
    assert plt.get_fignums() == []


PICTURES = {
    "covariate_number": lambda m, ax, j=0: plot_covariate(m, j, YEARS, ax=ax),
    "covariate_category": lambda m, ax, j=0: plot_covariate(m, j, STAGES, annotate=False, ax=ax),
    "trends": lambda m, ax, j=0: plot_trends(m, [j, 1], YEARS, FORMS, ax=ax),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_look_as_they_did(name, model, tmp_path, monkeypatch):
    with plain_style():
        for j in (0, 2):  # MCPC 3 must not pass for MCPC 1
            figure = plt.figure(figsize=(4, 3))
            # At a fixed place: a layout moves with the width of letters.
            ax = figure.add_axes((0.15, 0.18, 0.35 if name == "trends" else 0.6, 0.66))
            PICTURES[name](model, ax, j)
            if j == 0:
                check_picture(figure, name)
                continue
            monkeypatch.delenv("MCPCA_UPDATE_PICTURES", raising=False)
            shutil.copy(BASELINE / f"{name}.png", tmp_path)
            with pytest.raises(AssertionError, match="differs"):
                check_picture(figure, name, tmp_path)


@pytest.mark.parametrize("name", PICTURES)
def test_given_axes_are_used_and_no_figure_is_opened(name, model):
    ax = matplotlib.figure.Figure().add_subplot()
    assert PICTURES[name](model, ax) is ax
    assert plt.get_fignums() == []
    PICTURES[name](model, None)
    assert len(plt.get_fignums()) == 1


@pytest.mark.parametrize("name", PICTURES)
def test_model_must_be_fitted(name):
    with pytest.raises(NotFittedError):
        PICTURES[name](MCPCA(3), None)


@pytest.mark.parametrize("name", PICTURES)
def test_missing_matplotlib_names_the_extra(name, model, monkeypatch):
    for module in [n for n in sys.modules if n.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r'pip install "mcpca\[plot\]"'):
        PICTURES[name](model, None)


# The noise


@pytest.fixture(scope="module")
def unequal():
    X, y, *_ = two_groups(k=8, n=100)
    return fitted_to(X, y)


def test_loadings_against_a_covariate_are_corrected_unless_told_otherwise(unequal):
    noisy = [name.split()[0] for name in unequal.contexts_]
    ax = plot_covariate(unequal, 1, np.arange(8))
    np.testing.assert_array_equal(points(ax)[:, 1], unequal.corrected_loadings_[:, 1])
    assert ax.get_ylabel() == "corrected loading of MCPC 2 (variance)"
    ax = plot_covariate(unequal, 1, np.arange(8), corrected=False)
    np.testing.assert_array_equal(points(ax)[:, 1], unequal.loadings_[:, 1])
    assert ax.get_ylabel() == "loading of MCPC 2 (variance)"
    # The plot and the table agree: noise is no difference between the groups, but looks like one as fitted.
    for corrected in (True, False):
        p = associate(unequal, noisy, corrected=corrected).table["p"].iloc[1]
        assert f"p = {p:.2g}" in plot_covariate(unequal, 1, noisy, corrected=corrected).get_title()
        assert (p > 0.2) == corrected


def test_trends_are_of_corrected_loadings_unless_told_otherwise(unequal):
    for corrected, B in ((True, unequal.corrected_loadings_), (False, unequal.loadings_)):
        ax = plot_trends(unequal, 0, np.arange(8), corrected=corrected)
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), B[:, 0])
        name = "corrected loading" if corrected else "loading"
        assert ax.get_ylabel() == f"{name} of MCPC 1 (variance)"
        ax = plot_trends(unequal, 0, np.arange(8), corrected=corrected, normalize="component")
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), B[:, 0] / B[:, 0].max())
        assert ax.get_ylabel() == f"{name} of MCPC 1 / largest of its MCPC"
    with pytest.raises(TypeError, match="corrected='yes'; pass True, or False"):
        plot_trends(unequal, 0, np.arange(8), corrected="yes")
