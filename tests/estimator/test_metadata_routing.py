"""scikit-learn's metadata routing: groups, batch and covariates reach the model through Pipelines and searches."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn import config_context
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mcpca import MCPCA
from mcpca.datasets import make_contexts

DATA = make_contexts(4, 8, 2, n_samples=60, noise=0.3, random_state=0)
X, Y = DATA.X, DATA.y
DRAWN = np.random.default_rng(1)
BATCH = DRAWN.integers(0, 3, len(Y))
DONOR = DRAWN.integers(0, 12, len(Y))
DEPTH = DRAWN.standard_normal(len(Y))
FOLDS = StratifiedKFold(3)


@pytest.fixture
def routed():
    with config_context(enable_metadata_routing=True):
        yield


def same_model(one, other):
    for name in ("components_", "loadings_", "corrected_loadings_", "means_"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


def fitted_by_hand(rows=slice(None), n_components=2, **annotations):
    scaler = StandardScaler().fit(X[rows])
    model = MCPCA(n_components, random_state=0).fit(scaler.transform(X[rows]), Y[rows], **annotations)
    return scaler, model


def test_a_pipeline_passes_batch_and_covariates_on(routed):
    model = MCPCA(2, random_state=0).set_fit_request(batch=True, covariates=True)
    pipe = make_pipeline(StandardScaler(), model).fit(X, Y, batch=BATCH, covariates=DEPTH)
    _, expected = fitted_by_hand(batch=BATCH, covariates=DEPTH)
    same_model(pipe[-1], expected)
    assert not np.array_equal(pipe[-1].components_, fitted_by_hand()[1].components_)


def test_fit_transform_needs_the_request_of_fit_alone(routed):
    pipe = make_pipeline(StandardScaler(), MCPCA(2, random_state=0).set_fit_request(batch=True))
    Z = pipe.fit_transform(X, Y, batch=BATCH)
    scaler, expected = fitted_by_hand(batch=BATCH)
    assert np.array_equal(Z, expected.transform(scaler.transform(X)))
    # In the middle of a Pipeline as well.
    before = make_pipeline(MCPCA(2, random_state=0).set_fit_request(batch=True), StandardScaler())
    scores = MCPCA(2, random_state=0).fit(X, Y, batch=BATCH).transform(X)
    assert np.array_equal(before.fit_transform(X, Y, batch=BATCH), StandardScaler().fit_transform(scores))


def test_groups_reach_the_choice_of_the_rank(routed):
    # Of few groups, so that the choice depends on them.
    groups = np.arange(len(Y)) % 60 // 10
    model = MCPCA(None, random_state=0).set_fit_request(groups=True)
    pipe = make_pipeline(StandardScaler(), model).fit(X, Y, groups=groups)
    _, expected = fitted_by_hand(n_components=None, groups=groups)
    same_model(pipe[-1], expected)
    assert pipe[-1].rank_choice_.replicability.by == "groups"


# Before 1.8 scikit-learn passed nothing on to the score of a Pipeline, PCA's or ours.
SCORES_PIPELINES = tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 8)


@pytest.mark.parametrize(
    "piped",
    [False, pytest.param(True, marks=pytest.mark.skipif(not SCORES_PIPELINES, reason="needs scikit-learn 1.8"))],
)
def test_cross_validation_by_donors_and_within_batches(routed, piped):
    model = MCPCA(2, random_state=0).set_fit_request(batch=True, groups=False).set_score_request(batch=True)
    estimator = make_pipeline(StandardScaler(), model) if piped else model
    folds = GroupKFold(3)
    params = {"batch": BATCH, "groups": DONOR}  # groups: of the folds
    scores = cross_validate(estimator, X, Y, cv=folds, params=params)["test_score"]
    for score, (train, test) in zip(scores, folds.split(X, Y, DONOR), strict=True):
        rows, new = X[train], X[test]
        if piped:
            scaler = StandardScaler().fit(rows)
            rows, new = scaler.transform(rows), scaler.transform(new)
        fit = MCPCA(2, random_state=0).fit(rows, Y[train], batch=BATCH[train])
        assert score == fit.score(new, Y[test], batch=BATCH[test])


@pytest.mark.parametrize("is_routed", [False, True])
def test_a_search_over_ranks_is_scored_by_the_model(is_routed):
    pipe = make_pipeline(StandardScaler(), MCPCA(random_state=0))
    with config_context(enable_metadata_routing=is_routed):
        search = GridSearchCV(pipe, {"mcpca__n_components": [1, 2, 3]}, cv=FOLDS, error_score="raise").fit(X, Y)
        assert search.score(X, Y) == search.best_estimator_.score(X, Y)
    by_hand = []
    for r in (1, 2, 3):
        folds = []
        for train, test in FOLDS.split(X, Y):
            scaler, model = fitted_by_hand(train, r)
            folds.append(model.score(scaler.transform(X[test]), Y[test]))
        by_hand.append(np.mean(folds))
    assert np.allclose(search.cv_results_["mean_test_score"], by_hand, rtol=1e-12)
    best = 1 + int(np.argmax(by_hand))
    assert best > 1
    assert search.best_params_ == {"mcpca__n_components": best}
    same_model(search.best_estimator_[-1], fitted_by_hand(n_components=best)[1])


def test_a_search_passes_the_metric_of_the_score_on(routed):
    model = MCPCA(solver="ml", random_state=0).set_score_request(metric=True)
    search = GridSearchCV(model, {"n_components": [1, 2]}, cv=FOLDS, error_score="raise").fit(X, Y, metric="covariance")
    train, test = next(iter(FOLDS.split(X, Y)))
    fit = MCPCA(2, solver="ml", random_state=0).fit(X[train], Y[train])
    assert search.cv_results_["split0_test_score"][1] == fit.score(X[test], Y[test], metric="covariance")


def test_what_nobody_asked_for_is_an_error(routed):
    pipe = make_pipeline(StandardScaler(), MCPCA(2, random_state=0))
    with pytest.raises(UnsetMetadataPassedError, match=r"\[batch\] are passed but are not explicitly set.*MCPCA.fit"):
        pipe.fit(X, Y, batch=BATCH)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'sample_weight'"):
        pipe.fit(X, Y).score(X, Y, sample_weight=np.ones(len(Y)))
    with pytest.raises(ValueError, match=r"groups has no effect, because the rank is given"):
        make_pipeline(StandardScaler(), MCPCA(2).set_fit_request(groups=True)).fit(X, Y, groups=DONOR)


def test_without_routing_names_of_steps_do():
    pipe = make_pipeline(StandardScaler(), MCPCA(2, random_state=0)).fit(X, Y, mcpca__batch=BATCH)
    same_model(pipe[-1], fitted_by_hand(batch=BATCH)[1])


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_a_pipeline_returns_named_columns(container):
    frame = pd.DataFrame(X, columns=list("abcdefgh"), index=[f"row {i}" for i in range(len(X))])
    rows = frame if container == "pandas" else pl.DataFrame(frame)
    pipe = make_pipeline(StandardScaler(), MCPCA(2, random_state=0)).set_output(transform=container)
    Z = pipe.fit_transform(rows, Y)
    assert list(Z.columns) == list(pipe.get_feature_names_out()) == ["mcpca0", "mcpca1"]
    plain = make_pipeline(StandardScaler(), MCPCA(2, random_state=0)).fit_transform(X, Y)
    # DataFrames may be column-major, so that the scaler adds in another order.
    assert np.allclose(Z, plain, rtol=1e-10, atol=1e-12)
    if container == "pandas":
        assert list(pipe[-1].feature_names_in_) == list("abcdefgh")  # the step before names its columns
        assert list(Z.index) == list(frame.index)
