"""What a fit leaves behind: one typed value, read off the estimator, and shown to users in their own containers."""

import dataclasses
import inspect
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from mcpca import MCPCA, decompose
from mcpca._estimator.mcpca import fitted_model
from mcpca._estimator.parameters import RANK_RULE_DEFAULTS, Parameters
from mcpca._model.fitted_model import FittedModel
from mcpca.datasets import make_contexts
from twins import sampled_problem

ATTRIBUTES = {
    "components": "components_",
    "projection": "projection_",
    "loadings": "loadings_",
    "contexts": "contexts_",
    "means": "means_",
    "n_samples": "n_samples_per_context_",
    "corrected_loadings": "corrected_loadings_",
    "noise_variance": "noise_variance_",
    "singular_values": "singular_values_",
    "n_iter": "n_iter_",
    "n_passes": "n_passes_",
    "basis_residual": "basis_residual_",
    "basis_error": "basis_error_",
    "feature_names": "feature_names_in_",
    "facets": "_facets",
    "score_moments": "_score_moments",
    "solver": "solver",
    "orthogonal": "orthogonal",
    "missing": "missing",
    "degrees_of_freedom": "degrees_of_freedom_",
    "attenuation": "attenuation_",
    "nuisance": "nuisance_",
    "kept_of": "kept_of_",
    "preprocess": "preprocess_",
    "space": "_space",
}


@pytest.fixture(scope="module")
def frame():
    """Rows of three contexts with named features, an index of text, and the labels in a column."""
    data = make_contexts(3, 6, 2, n_samples=40, noise=0.1, random_state=3)
    index = [f"row {i}" for i in range(len(data.X))]
    rows = pd.DataFrame(data.X, columns=[f"gene {j}" for j in range(6)], index=index)
    return rows.assign(site=np.array(["a", "b", "c"])[data.y])


@pytest.mark.parametrize("solver", ["mspm", "ml"])
def test_a_fitted_model_is_what_the_attributes_say(frame, solver):
    estimator = MCPCA(2, solver=solver, random_state=0).fit(frame, "site")
    model = fitted_model(estimator)
    assert {field.name for field in dataclasses.fields(FittedModel)} == {*ATTRIBUTES, "label_columns", "noise"}
    for field, attribute in ATTRIBUTES.items():
        assert getattr(model, field) is getattr(estimator, attribute), field
    assert model.noise == {"mspm": None, "ml": "isotropic"}[solver]  # what "auto" stands for
    assert model.label_columns == ("site",) == tuple(estimator.label_columns_)
    assert (model.n_components, model.n_features) == (estimator.n_components_, estimator.n_features_in_) == (2, 6)
    assert model.context_means.positions() == {"a": 0, "b": 1, "c": 2}
    np.testing.assert_array_equal(model.context_means.of(["c", "a"]), estimator.means_[[2, 0]])


def test_what_a_fit_does_not_have_is_none(frame):
    S = np.stack([np.cov(rows.drop(columns="site"), rowvar=False) for _, rows in frame.groupby("site")])
    model = fitted_model(MCPCA(2, random_state=0).fit_covariances(S))
    absent = (model.means, model.n_samples, model.noise, model.feature_names)
    assert absent == (None,) * 4
    assert model.label_columns == ()
    old = dataclasses.replace(model, noise_variance=None, corrected_loadings=None)
    with pytest.raises(ValueError, match=r"presence\(\) needs the noise, and this model was saved by an older mcpca"):
        old.gaussian("presence()")
    with pytest.raises(ValueError, match="without corrected loadings; fit it again, or pass corrected=False"):
        old.compared_loadings()
    with pytest.raises(ValueError, match=r"presence\(\) needs the number of rows of each context; pass n_samples"):
        model.counts("presence()")


def test_a_model_that_is_not_fitted_is_refused(frame):
    estimator = MCPCA(2)
    with pytest.raises(NotFittedError):
        fitted_model(estimator)
    with pytest.raises(NotFittedError):
        estimator.transform(frame)


def test_parameters_have_the_names_and_defaults_of_the_constructor():
    constructor = inspect.signature(MCPCA).parameters
    fields = {field.name: field for field in dataclasses.fields(Parameters)}
    # What n_components="replicating" stands for is apart.
    assert set(fields) == {*constructor, "keep"}
    defaults = {name: field.default for name, field in fields.items() if field.default is not dataclasses.MISSING}
    assert defaults.pop("keep") is None
    assert defaults == {name: constructor[name].default for name in defaults} == RANK_RULE_DEFAULTS
    Parameters(**MCPCA().get_params(deep=False)).checked()


def test_one_matrix_gives_a_frame_with_the_index_of_its_rows(frame):
    model = MCPCA(2, random_state=0).fit(frame, "site").set_output(transform="pandas")
    scores = model.transform(frame, "site")
    assert isinstance(scores, pd.DataFrame)
    assert scores.index.equals(frame.index)
    assert scores.columns.tolist() == model.get_feature_names_out().tolist()
    shuffled = frame.sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(model.transform(shuffled, "site"), scores.loc[shuffled.index])


@pytest.mark.parametrize("container", [list, dict])
def test_contexts_give_frames_with_the_index_of_their_rows(frame, container):
    blocks = {site: rows.drop(columns="site") for site, rows in frame.groupby("site")}
    X = blocks if container is dict else list(blocks.values())
    model = MCPCA(2, random_state=0).fit(X)
    plain = model.transform(X)
    framed = model.set_output(transform="pandas").transform(X)
    assert type(framed) is container
    assert len(framed) == 3
    for key, rows in X.items() if container is dict else enumerate(X):
        assert isinstance(framed[key], pd.DataFrame)
        assert framed[key].index.equals(rows.index)
        np.testing.assert_array_equal(framed[key], plain[key])


@pytest.fixture
def unsettled(rng):
    """Rows, labels and covariances that a single step of maximum likelihood does not settle."""
    _, _, S = sampled_problem(rng, 5, 9, 3, 60, 0.5)
    y = np.repeat(np.arange(5), 60)
    X = np.concatenate([rng.multivariate_normal(np.zeros(9), Si, size=60) for Si in S])
    return X, y, S


OPTIONS = {"solver": "ml", "tol": 1e-12, "max_iter": 1, "random_state": 0}
FITS = {
    "fit": lambda X, y, S: MCPCA(3, **OPTIONS).fit(X, y),
    "fit_covariances": lambda X, y, S: MCPCA(3, **OPTIONS).fit_covariances(S),
    "decompose": lambda X, y, S: decompose(S, 3, **OPTIONS),
}


@pytest.mark.parametrize("name", FITS)
def test_a_warning_of_a_fit_points_at_the_line_that_called_it(unsettled, name):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        FITS[name](*unsettled)
    assert any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    assert [warning.filename for warning in caught] == [__file__] * len(caught)


def test_a_warning_of_transform_points_at_the_line_that_called_it(frame):
    model = MCPCA(2, random_state=0).fit(frame, "site")
    with pytest.warns(UserWarning, match="X does not have valid feature names") as caught:
        model.transform(frame.drop(columns="site").to_numpy())
    assert [warning.filename for warning in caught] == [__file__]
