"""A file of a model is not trusted: what is in it has to be one model, and what is wrong is named."""

import numpy as np
import pytest

from mcpca import MCPCA
from mcpca._estimator import persistence
from mcpca.datasets import make_contexts


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """The arrays and the header of a file, as they are read."""
    data = make_contexts(3, 5, 2, n_samples=30, noise=0.2, random_state=0)
    path = tmp_path_factory.mktemp("model") / "model.mcpca"
    MCPCA(2, random_state=0).fit(data.X, data.y, batch=np.tile([0, 1], 45)).save(path)
    known = [*persistence._SHAPES, *persistence._CHOICE, persistence._UNSETTLED]
    return persistence.read_file(path, persistence.MODEL_FORMAT, "MCPCA model", "MCPCA.save", lambda header: known)


def of_no_length(arrays):
    return {name: values for name, values in arrays.items() if name in ("components_", "nuisance_cell_contexts")}


def test_the_file_itself_is_consistent(state):
    persistence._check_arrays(*state)
    assert persistence._nuisance(*state) is not None


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("components_", lambda v: v[0], r"components_ has shape \(2,\), not \(p, r\)"),
        ("loadings_", lambda v: v[:2], r"loadings_ has shape \(2, 2\) where \(3, 2\) is needed"),
        ("loadings_", lambda v: v.astype(int), "loadings_ is of type int64"),
        ("loadings_", lambda v: v * np.nan, "loadings_ has values that are NaN or infinite"),
        ("loadings_", lambda v: -v - 1, r"loadings_ has values below 0 \(the smallest is -"),
        ("means_", lambda v: v / 0.0, "means_ has values that are NaN or infinite"),
    ],
)
def test_arrays_that_are_not_of_one_model(state, name, change, message):
    arrays, header = state
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=message):
        persistence._check_arrays({**arrays, name: change(arrays[name])}, header)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_iter": "many"}, "n_iter is 'many'"),
        ({"basis_residual": [1]}, r"basis_residual is '\[1\]'"),
        ({"feature_names": ["a", "b"]}, "it has 2 names for 5 features"),
    ],
)
def test_headers_that_are_not_of_one_model(state, change, message):
    arrays, header = state
    with pytest.raises(ValueError, match=message):
        persistence._check_arrays(arrays, header | change)


def test_a_model_of_nothing(state):
    arrays, header = state
    with pytest.raises(ValueError, match="it has 3 contexts, 0 features and 2 components"):
        persistence._check_arrays({**of_no_length(arrays), "components_": np.zeros((0, 2))}, header)


def test_batches_of_contexts_that_are_not_there(state):
    arrays, header = state
    wrong = {**arrays, "nuisance_cell_contexts": arrays["nuisance_cell_contexts"] + 7}
    with pytest.raises(ValueError, match="nuisance_cell_contexts is not within 0 to 2"):
        persistence._nuisance(wrong, header)


def test_degrees_of_freedom_are_positive_numbers():
    assert persistence._degrees_of_freedom(None) is None
    assert persistence._degrees_of_freedom("4.5") == 4.5
    for text in ("0", "-1", "nan"):
        with pytest.raises(ValueError, match=f"degrees_of_freedom is '{text}'"):
            persistence._degrees_of_freedom(text)
