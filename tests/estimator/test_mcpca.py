"""The estimator: the paper's listings, PCA's answer, scores, new contexts, and life inside scikit-learn."""

import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline

from mcpca import MCPCA, ascore, nonnegative_loadings
from mcpca.datasets import make_contexts
from twins import compose


@pytest.fixture(scope="module")
def data():
    return make_contexts(6, 12, 4, n_samples=100, density=0.7, noise=0.1, random_state=1)


@pytest.fixture(scope="module")
def X_list(data):
    return [data.X[data.y == i] + i for i in range(6)]


@pytest.fixture(scope="module")
def model(X_list):
    return MCPCA(4, random_state=0).fit(dict(zip("abcdef", X_list, strict=True)))


def test_the_papers_first_listing(X_list):
    r = 4
    from mcpca import MCPCA

    model = MCPCA(n_components=r)
    model.fit(X_list)
    A = model.components_
    B = model.loadings_
    assert A.shape == (12, 4)
    assert B.shape == (6, 4)
    np.testing.assert_allclose(np.linalg.norm(A, axis=0), 1)
    assert (B >= 0).all()


def test_the_papers_second_listing(X_list):
    rank_list = [2, 3, 4]
    from mcpca import MCPCA

    model = MCPCA(n_components=None, rank_range=rank_list, n_seed_pairs=5, cos_sim_threshold=0.8)
    with pytest.raises(NotFittedError, match="call fit"):  # printed without the line that sees the data
        _ = model.r_
    model.fit(X_list)
    r = model.r_
    assert r == model.n_components_ == 4
    assert model.rank_choice_.scores.shape == (3, 5)


def test_fitted_attributes(model):
    assert model.projection_.shape == (4, 12)
    np.testing.assert_allclose(model.projection_ @ model.components_, np.eye(4), atol=1e-12)
    assert model.means_.shape == (6, 12)
    assert model.contexts_.tolist() == list("abcdef")
    assert model.n_samples_per_context_.tolist() == [100] * 6
    assert model.n_features_in_ == 12
    assert model.n_iter_ >= 1
    assert (np.diff(model.singular_values_) <= 0).all()
    assert not hasattr(model, "feature_names_in_")
    assert model.get_feature_names_out().tolist() == ["mcpca0", "mcpca1", "mcpca2", "mcpca3"]


def test_planted_components_come_back(data, model):
    assert ascore(model.components_, data.components) > 0.99


def test_loadings_are_the_least_squares_ones(X_list, model):
    S = np.stack([np.cov(X, rowvar=False) for X in X_list])
    np.testing.assert_allclose(model.loadings_, nonnegative_loadings(S, model.components_), atol=1e-12)


def test_one_context_is_pca(rng):
    X = rng.standard_normal((60, 5)) @ rng.standard_normal((5, 9)) + 3
    pca, model = PCA(4).fit(X), MCPCA(4).fit(X)
    np.testing.assert_allclose(np.abs((pca.components_ * model.components_.T).sum(axis=1)), 1, atol=1e-10)
    np.testing.assert_allclose(model.loadings_[0], pca.explained_variance_)
    signs = np.sign((pca.components_ * model.components_.T).sum(axis=1))
    np.testing.assert_allclose(model.transform(X) * signs, pca.transform(X), atol=1e-10)
    np.testing.assert_allclose(model.inverse_transform(model.transform(X)), pca.inverse_transform(pca.transform(X)))
    np.testing.assert_allclose(MCPCA(4).fit(X, ["only"] * 60).components_, model.components_)


def test_rows_and_rotations(data):
    base = MCPCA(4, random_state=0).fit(data.X, data.y)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(data.X))
    shuffled = MCPCA(4, random_state=1).fit(data.X[order], data.y[order])
    np.testing.assert_allclose(shuffled.components_, base.components_, atol=1e-8)
    Q = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    rotated = MCPCA(4, random_state=2).fit(data.X @ Q.T, data.y)
    np.testing.assert_allclose(rotated.loadings_, base.loadings_, atol=1e-8)


# Scores


def test_scores_without_labels_keep_differences_between_contexts(X_list, model):
    X = np.vstack(X_list)
    np.testing.assert_allclose(model.transform(X), (X - X.mean(axis=0)) @ model.projection_.T, atol=1e-10)


def test_scores_with_labels_are_centred_by_label(X_list, model, rng):
    X, y = np.vstack(X_list), np.repeat(list("abcdef"), 100)
    order = rng.permutation(600)
    Z = model.transform(X[order], y[order])
    for name in "abcdef":
        np.testing.assert_allclose(Z[y[order] == name].mean(axis=0), 0, atol=1e-9)


def test_one_context_alone_scores_as_among_the_others(X_list, model):
    y = np.repeat(list("abcdef"), 100)
    together = model.transform(np.vstack(X_list), y)
    as_dict = model.transform({"c": X_list[2]})
    assert list(as_dict) == ["c"]
    np.testing.assert_allclose(as_dict["c"], together[200:300], atol=1e-12)
    np.testing.assert_allclose(model.transform(X_list[2], ["c"] * 100), together[200:300], atol=1e-12)
    np.testing.assert_allclose(model.transform(X_list[2][:1], ["c"]), together[200:201], atol=1e-12)
    np.testing.assert_allclose(model.transform(X_list)[2], together[200:300], atol=1e-12)


def test_lists_go_by_position_only_when_complete(X_list, model):
    with pytest.raises(ValueError, match=r"X is a list of 2 contexts, but the model has 6.*Pass a dict"):
        model.transform(X_list[:2])


def test_unknown_contexts_need_a_mean(X_list, model):
    with pytest.raises(ValueError, match=r"Contexts 'z' were not seen in fit \(known: .*center='own'"):
        model.transform(X_list[0], ["z"] * 100)
    with pytest.raises(ValueError, match="were not seen in fit"):
        model.transform({"z": X_list[0]})
    centred = (X_list[0] - X_list[0].mean(axis=0)) @ model.projection_.T
    np.testing.assert_allclose(model.transform(X_list[0], ["z"] * 100, center="own"), centred, atol=1e-10)
    np.testing.assert_allclose(model.transform({"z": X_list[0]}, center="own")["z"], centred, atol=1e-10)
    np.testing.assert_allclose(model.transform([X_list[0]], center="own")[0], centred, atol=1e-10)
    mean = X_list[0].mean(axis=0)
    np.testing.assert_allclose(model.transform(X_list[0], center=mean), centred, atol=1e-10)
    Z = model.transform(np.vstack(X_list[:2]), np.repeat(["z", "b"], 100), center={"z": mean})
    np.testing.assert_allclose(Z, np.vstack([centred, model.transform({"b": X_list[1]})["b"]]), atol=1e-10)


def test_center_is_checked(X_list, model):
    with pytest.raises(ValueError, match="center='mine'; choose None, 'overall', 'own'"):
        model.transform(X_list[0], center="mine")
    with pytest.raises(ValueError, match=r"center has shape \(3,\); a finite mean of shape \(12,\)"):
        model.transform(X_list[0], center=[1, 2, 3])
    with pytest.raises(ValueError, match="needs y"):
        model.transform(X_list[0], center={"a": np.zeros(12)})
    with pytest.raises(ValueError, match="drop y"):
        model.transform(X_list, y=[1])
    with pytest.raises(ValueError, match="not known from scores"):
        model.inverse_transform(np.zeros((2, 4)), center="own")
    with pytest.raises(ValueError, match="X has 3 columns, but scores of this model have 4"):
        model.inverse_transform(np.zeros((2, 3)))


def test_round_trip_in_every_form(data):
    exact = make_contexts(5, 10, 4, n_samples=50, random_state=2)
    model = MCPCA(4, random_state=0).fit(exact.X, exact.y)
    np.testing.assert_allclose(model.inverse_transform(model.transform(exact.X, exact.y), exact.y), exact.X, atol=1e-8)
    blocks = [exact.X[exact.y == i] for i in range(5)]
    back = model.inverse_transform(model.transform(blocks))
    np.testing.assert_allclose(np.vstack(back), exact.X, atol=1e-8)


def test_expected_scores_without_labels_are_by_the_average_context():
    """Loadings and noise averaged by rows: B A^T (A B A^T + s I)^-1, contexts with more rows counting more."""
    data = make_contexts(3, 9, 2, n_samples=400, noise=0.8, random_state=3)
    kept = np.concatenate([np.flatnonzero(data.y == i)[:n] for i, n in enumerate([30, 60, 400])])
    X = data.X[kept]
    model = MCPCA(2, solver="ml", random_state=0).fit(X, data.y[kept])
    share = np.array([30, 60, 400]) / 490
    b, s = share @ model.loadings_, share @ model.noise_variance_
    A = model.components_
    expected = (X - X.mean(axis=0)) @ np.linalg.solve(A * b @ A.T + s * np.eye(9), A * b)
    np.testing.assert_allclose(model.transform(X, posterior=True), expected, rtol=1e-8, atol=1e-10)


def test_scores_of_a_single_row_become_rows_on_dask_too():
    da = pytest.importorskip("dask.array")
    exact = make_contexts(5, 10, 3, n_samples=50, random_state=2)
    model = MCPCA(3, random_state=0).fit(exact.X, exact.y)
    single = np.concatenate([np.flatnonzero(exact.y == label)[:1] for label in np.unique(exact.y)])
    labels = exact.y[single]
    Z = model.transform(exact.X[single], labels)
    back = model.inverse_transform(da.from_array(Z, chunks=(2, 3)), labels)
    np.testing.assert_allclose(back.compute(), model.inverse_transform(Z, labels), atol=1e-12)


def test_a_model_of_covariances_asks_for_a_mean(X_list):
    S = np.stack([np.cov(X, rowvar=False) for X in X_list])
    model = MCPCA(4, random_state=0).fit_covariances(S)
    with pytest.raises(ValueError, match="knows no means; pass center='own'"):
        model.transform(X_list[0])
    assert model.transform(X_list[0], center="own").shape == (100, 4)


# New contexts and quality


def test_loadings_for_known_data_are_the_fitted_ones(X_list, model):
    np.testing.assert_allclose(model.loadings_for(X_list), model.corrected_loadings_, atol=1e-10)
    np.testing.assert_allclose(model.loadings_for(X_list[3]), model.corrected_loadings_[3], atol=1e-10)
    S = np.stack([np.cov(X, rowvar=False) for X in X_list])
    np.testing.assert_allclose(model.loadings_for(S), model.corrected_loadings_, atol=1e-10)
    np.testing.assert_allclose(model.loadings_for(S[1]), model.corrected_loadings_[1], atol=1e-10)
    np.testing.assert_allclose(
        model.loadings_for(dict(zip("xyzuvw", X_list, strict=True))), model.corrected_loadings_, atol=1e-10
    )
    labelled = model.loadings_for(np.vstack(X_list), np.repeat(range(6), 100))
    np.testing.assert_allclose(labelled, model.corrected_loadings_, atol=1e-10)
    assert model.loadings_for([X_list[0]]).shape == (1, 4)
    np.testing.assert_allclose(model.loadings_for(X_list, corrected=False), model.loadings_, atol=1e-10)


def test_score_is_the_share_of_squared_covariance(X_list, model):
    S = np.stack([(X - X.mean(axis=0)).T @ (X - X.mean(axis=0)) / len(X) for X in X_list])
    left = np.linalg.norm(S - compose(model.components_, model.loadings_)) ** 2
    expected = 1 - left / np.linalg.norm(S) ** 2
    assert model.score(dict(zip("abcdef", X_list, strict=True))) == pytest.approx(expected)
    assert model.score(X_list) == pytest.approx(expected)
    assert model.score(np.vstack(X_list), np.repeat(list("abcdef"), 100)) == pytest.approx(expected)


def test_score_of_new_rows_is_about_the_fitted_means(X_list, model, rng):
    fresh = {name: X[rng.permutation(100)[:30]] + 0.3 for name, X in zip("abcdef", X_list, strict=True)}
    centred = [rows - mean for rows, mean in zip(fresh.values(), model.means_, strict=True)]
    S = np.stack([c.T @ c / 30 for c in centred])
    left = np.linalg.norm(S - compose(model.components_, model.loadings_)) ** 2
    assert model.score(fresh) == pytest.approx(1 - left / np.linalg.norm(S) ** 2)


def test_score_judges_new_rows_and_prefers_the_true_rank(data):
    half = np.arange(len(data.X)) % 2 == 0
    scores = {
        r: MCPCA(r, random_state=0).fit(data.X[half], data.y[half]).score(data.X[~half], data.y[~half]) for r in (2, 4)
    }
    assert scores[4] > scores[2] + 0.05


def test_score_of_unknown_contexts_points_to_stratified_folds(X_list, model):
    with pytest.raises(ValueError, match=r"Contexts 'z' were not seen in fit.*StratifiedKFold"):
        model.score({"z": X_list[0]})


def test_score_of_single_rows_and_of_a_new_context(X_list, model):
    assert np.isfinite(model.score({"a": X_list[0][:1], "b": X_list[1][:3]}))
    assert 0 < model.score(X_list[0]) <= 1


# Life inside scikit-learn


def test_pipeline_with_labels(data):
    pipe = make_pipeline(PCA(8), MCPCA(4, random_state=0)).fit(data.X, data.y)
    back = pipe[0].components_.T @ pipe[1].components_
    assert ascore(back, data.components) > 0.98
    np.testing.assert_allclose(pipe.fit_transform(data.X, data.y), pipe.transform(data.X), atol=1e-8)
    assert pipe.get_feature_names_out().tolist() == ["mcpca0", "mcpca1", "mcpca2", "mcpca3"]


def test_clone_grid_search_and_cross_validation(data):
    base = MCPCA(2, random_state=0, tol=1e-8)
    assert clone(base).get_params() == base.get_params()
    search = GridSearchCV(base, {"n_components": [1, 2, 4]}, cv=StratifiedKFold(3)).fit(data.X, data.y)
    assert search.best_params_ == {"n_components": 4}
    assert np.isfinite(cross_val_score(base, data.X, data.y, cv=StratifiedKFold(3))).all()


def test_set_output_pandas(data, X_list, model):
    frame = pd.DataFrame(data.X, columns=[f"g{i}" for i in range(12)], index=[f"row{i}" for i in range(600)])
    fitted = MCPCA(4, random_state=0).set_output(transform="pandas").fit(frame, data.y)
    Z = fitted.transform(frame)
    assert isinstance(Z, pd.DataFrame)
    assert Z.columns.tolist() == fitted.get_feature_names_out().tolist()
    assert Z.index.equals(frame.index)
    by_context = fitted.transform({0: frame[data.y == 0], 3: frame[data.y == 3]})
    assert all(isinstance(part, pd.DataFrame) for part in by_context.values())
    assert by_context[3].index.tolist() == [f"row{i}" for i in range(300, 400)]


def test_feature_names_are_checked_at_transform(data):
    frame = pd.DataFrame(data.X, columns=[f"g{i}" for i in range(12)])
    fitted = MCPCA(2).fit(frame, data.y)
    with pytest.raises(ValueError, match="X lacks 1 of the 12 features of the fit: 'g0'"):
        fitted.transform(frame.rename(columns={"g0": "other"}))


def test_joblib_and_pickle(model, X_list, tmp_path):
    joblib.dump(model, tmp_path / "model.joblib")
    for copy in (joblib.load(tmp_path / "model.joblib"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(copy.transform(X_list[0]), model.transform(X_list[0]))
    runs = joblib.Parallel(n_jobs=2)(joblib.delayed(MCPCA(4, random_state=s).fit)(X_list) for s in (0, 1))
    np.testing.assert_allclose(runs[0].components_, runs[1].components_, atol=1e-6)


def test_init_stores_and_nothing_else():
    sentinel = object()
    assert MCPCA(n_components=sentinel, solver=sentinel).get_params()["solver"] is sentinel


@pytest.mark.parametrize("state", [0, np.random.RandomState(0), np.random.default_rng(0), None])
def test_every_random_state_is_accepted(X_list, model, state):
    fitted = MCPCA(4, random_state=state).fit(X_list)
    np.testing.assert_allclose(fitted.components_, model.components_, atol=1e-6)


def test_verbose_hook_sees_the_stages(X_list):
    stages = []
    MCPCA(4, verbose=lambda stage, done, total: stages.append(stage)).fit(X_list)
    assert list(dict.fromkeys(stages)) == ["covariances", "basis", "components", "loadings"]


def test_refit_forgets_the_old_fit(data, X_list):
    frame = pd.DataFrame(data.X, columns=[f"g{i}" for i in range(12)])
    fitted = MCPCA(2).fit(frame, data.y)
    assert hasattr(fitted, "feature_names_in_")
    fitted.fit(X_list)
    assert not hasattr(fitted, "feature_names_in_")
