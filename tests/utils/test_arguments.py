"""Options that cannot have an effect are refused: with their name, why, and the way out. Defaults never are."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from mcpca import (
    MCPCA,
    ContextMoments,
    analysis,
    context_covariances,
    decompose,
    plotting,
    select_rank,
    tl,
)
from mcpca._utils.arguments import refuse_without_effect
from mcpca.datasets import make_contexts
from mcpca.report import write_report

LEAVES = "((0,1),(2,3));"


@pytest.fixture(scope="module")
def data():
    return make_contexts(4, 8, 2, n_samples=60, noise=0.3, random_state=0)


@pytest.fixture(scope="module")
def S(data):
    return context_covariances(data.X, data.y).covariances


@pytest.fixture(scope="module")
def model(data):
    return MCPCA(2, random_state=0).fit(data.X, data.y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rank_range": [1, 2]}, r"rank_range has no effect, because the rank is given, n_components=2; drop it, or"),
        ({"rank_range": range(1, 3)}, r"rank_range=range\(1, 3\) has no effect"),
        ({"n_seed_pairs": 3}, r"n_seed_pairs=3 has no effect.*n_components=2.*or pass n_components=None"),
        ({"cos_sim_threshold": 0.9}, r"cos_sim_threshold=0.9 has no effect"),
        ({"n_components": None, "n_seed_pairs": 3}, r"n_seed_pairs=3 has no effect.*halves.*pass rank_range"),
    ],
)
def test_parameters_of_the_estimator(data, S, parameters, message):
    model = MCPCA(**{"n_components": 2, "random_state": 0, **parameters})
    moments = ContextMoments().update(data.X, data.y)
    for call in (
        lambda: model.fit(data.X, data.y),
        lambda: model.fit(moments),
        lambda: model.fit_covariances(S, n_samples=60),
        lambda: model.partial_fit(data.X, data.y),
    ):
        with pytest.raises(ValueError, match=message):
            call()
        assert not hasattr(model, "components_")


def test_what_has_an_effect_is_taken(data, S):
    MCPCA(2, solver="ml", noise="pooled").fit(data.X, data.y)
    MCPCA(rank_range=[1, 2], n_seed_pairs=2, cos_sim_threshold=0.5, random_state=0).fit(data.X, data.y)
    MCPCA(cos_sim_threshold=0.7, random_state=0).fit(data.X, data.y)
    MCPCA(rank_range=[1, 2], n_seed_pairs=2, random_state=0).fit_covariances(S)
    clone(MCPCA(2, noise="pooled"))  # refused when it is fitted, so that parameters can be set one by one


def test_models_that_chose_their_rank_are_fitted_again(data):
    model = MCPCA(rank_range=[1, 2], n_seed_pairs=2, cos_sim_threshold=0.5, random_state=0).fit(data.X, data.y)
    assert model.replicability(data.X, data.y, 1, random_state=0).cosines.shape == (1, model.r_)
    assert model.bootstrap(data.X, data.y, 2, random_state=0).angles.shape == (2, model.r_)


def test_a_grid_over_solvers_and_noise(data):
    grid = [{"solver": ["mspm"]}, {"solver": ["ml"], "noise": ["isotropic", "pooled"]}]
    search = GridSearchCV(MCPCA(2, random_state=0), grid, cv=StratifiedKFold(2), refit=False, error_score="raise")
    search.fit(data.X, data.y)
    assert len(search.cv_results_["params"]) == 3


def test_checkpoints(data, S, tmp_path):
    """Data that are too small for passes need none and say nothing; covariances and moments never do."""
    path = tmp_path / "fit.ckpt"
    MCPCA(2, random_state=0).fit(data.X, data.y, checkpoint=path)
    assert not path.exists()
    for X, what in ((S, "covariances"), (ContextMoments().update(data.X, data.y), "moments")):
        with pytest.raises(ValueError, match=f"checkpoint has no effect, because {what} take no pass over rows; drop"):
            MCPCA(2).fit(X, checkpoint=path)


def test_decompose(S):
    with pytest.raises(ValueError, match=r"noise='diagonal' needs directions outside the MCPCs.*n_components=8 is the"):
        decompose(S, 8, noise="diagonal")
    decompose(S, 2, n_samples=60, random_state=0)  # what is known of the data is no option


def test_select_rank(data, S):
    with pytest.raises(ValueError, match=r"n_seed_pairs=2 has no effect, because criteria=\(\) has no 'seeds'; drop"):
        select_rank(data.X, data.y, criteria=(), n_seed_pairs=2)
    with pytest.raises(ValueError, match="n_splits=3 has no effect, because covariances have no rows to split"):
        select_rank(S, n_samples=60, n_splits=3)
    with pytest.raises(ValueError, match=r"cos_sim_threshold=0.9 has no effect"):
        select_rank(S, n_samples=60, criteria=("scree",), cos_sim_threshold=0.9)
    found = select_rank(S, n_samples=60, criteria=("seeds",), n_seed_pairs=2, cos_sim_threshold=0.9, random_state=0)
    assert found.threshold == 0.9


def test_anndata(data, model):
    anndata = pytest.importorskip("anndata")
    adata = anndata.AnnData(data.X, obs={"patient": data.y.astype(str)}, var=pd.DataFrame(index=list("abcdefgh")))
    tl.mcpca(adata, "patient", n_comps=2)
    with pytest.raises(ValueError, match="n_seed_pairs=3 has no effect"):
        tl.mcpca(adata, "patient", n_comps=2, n_seed_pairs=3)
    with pytest.raises(ValueError, match="noise='white' is unknown"):
        tl.mcpca(adata, "patient", n_comps=2, noise="white")
    with pytest.raises(ValueError, match=r"key='other' has no effect.*model is an MCPCA"):
        tl.loadings_for(adata, "patient", model=tl.model(adata), key="other")
    with pytest.raises(ValueError, match="missing='drop' has no effect, because without context_key"):
        tl.loadings_for(adata, model=adata, missing="drop")
    with pytest.raises(ValueError, match="min_samples=5 has no effect"):
        tl.loadings_for(adata, model=adata, min_samples=5)
    # A list may hold both, and then the name is that of the AnnData's fit.
    tl.mcpca(adata, "patient", n_comps=2, key_added="other")
    named = MCPCA(2, random_state=0).fit(data.X, data.y.astype(str))
    assert len(analysis.tree_distances([adata, named], LEAVES, key="other", n_pcs=2))


def test_analyses(data, model):
    sets = {"one": ["feature 1", "feature 2", "feature 3"]}
    table = analysis.feature_scores(model)
    cases = {
        "key='other'": lambda: analysis.feature_scores(model, key="other"),
        "by='projection'": lambda: analysis.top_features(table, 2, by="projection"),
        "names": lambda: analysis.top_features(table, 2, names=list("abcdefgh")),
        "organism='mouse'": lambda: analysis.enrichment(model, sets, n=2, organism="mouse"),
        "min_size=2": lambda: analysis.enrichment(model, "KEGG", method="enrichr", n=2, min_size=2),
        "n_pcs=5": lambda: analysis.associate(model, [1.0, 2.0, 3.0, 4.0], n_pcs=5),
        "max_q=0.1": lambda: analysis.describe(model, max_q=0.1),
        "n_pcs=2": lambda: analysis.context_tree(model, n_pcs=2),
        "n_pcs=3": lambda: analysis.tree_distances(model, LEAVES, n_pcs=3),
    }
    for shown, call in cases.items():
        with pytest.raises(ValueError, match=f"^{shown} has no effect, because .*; drop it"):
            call()
    assert analysis.associate(model, [1.0, 2.0, 3.0, 4.0], n_pcs=0).pc_means is None


def test_pictures_and_the_report(data, model, tmp_path):
    plt = pytest.importorskip("matplotlib.pyplot")
    pytest.importorskip("plotly")
    figure, axes = plt.subplots(1, 2)
    cases = {
        "max_contexts=3": lambda: plotting.plot_scores(model, 0, data.X, data.y, contexts=[0, 1], max_contexts=3),
        "n_columns=2": lambda: plotting.plot_component_images(model, (2, 4), n_columns=2, ax=axes),
        "groups": lambda: plotting.plot_loadings(model, groups=["a", "a", "b", "b"]),
        "key='other'": lambda: plotting.plot_angles(model, key="other"),
        "max_rows=10": lambda: write_report(model, tmp_path / "report.html", max_rows=10),
    }
    for shown, call in cases.items():
        with pytest.raises(ValueError, match=f"^{shown} has no effect, because .*; drop"):
            call()
    plt.close(figure)
    assert not (tmp_path / "report.html").exists()


def test_defaults_are_never_refused():
    for value, default in ((5, 5), (np.int64(5), 5), (0.8, 0.8), (None, None), ("mcpca", "mcpca")):
        refuse_without_effect("option", value, default, "of this", "drop it")
    for value, default in ((np.arange(5), 5), (5.5, 5), ([1], None), (False, None), ("5", 5)):
        with pytest.raises(ValueError, match=r"^option.* has no effect, because of this; drop it.$"):
            refuse_without_effect("option", value, default, "of this", "drop it")
