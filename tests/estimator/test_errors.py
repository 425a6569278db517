"""Bad input: an error that names the argument, the value, the bound and the way out; and nothing changed."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from mcpca import MCPCA, IdentifiabilityWarning, choose_rank, context_covariances, decompose
from mcpca.datasets import load_digit_contexts, make_contexts


@pytest.fixture
def X(rng):
    return rng.standard_normal((40, 5))


def blocks_with(X, value, context=1, feature=2):
    blocks = [X[:20].copy(), X[20:].copy()]
    blocks[context][3, feature] = value
    return blocks


CASES = {
    "nan": (
        lambda X: MCPCA(2).fit(blocks_with(X, np.nan)),
        r"context 1, contains 1 NaN and 0 infinite \(inf\) values, in feature\(s\) 2; impute or drop",
    ),
    "both infinities, scored in float32": (
        lambda X: MCPCA(2, random_state=0).fit(X).score({0: np.float32([[1, 2, 3, 4, np.inf], [1, 2, 3, 4, -np.inf]])}),
        r"contains 0 NaN and 2 infinite",
    ),
    "inf": (lambda X: MCPCA(2).fit(blocks_with(X, -np.inf)), r"context 1, contains 0 NaN and 1 infinite"),
    "nan named": (
        lambda X: MCPCA(2).fit({"lung": pd.DataFrame(blocks_with(X, np.nan, 0)[0], columns=list("abcde"))}),
        r"context 'lung', contains 1 NaN .* feature\(s\) c;",
    ),
    "nan labelled": (
        lambda X: MCPCA(2).fit(np.vstack(blocks_with(X, np.nan)), ["a"] * 20 + ["b"] * 20),
        "context 'b', contains 1 NaN",
    ),
    "feature counts": (
        lambda X: MCPCA(2).fit({"a": X, "b": X[:, :3]}),
        "context 'a' has 5 and context 'b' has 3. Select the common ones",
    ),
    "feature names": (
        lambda X: MCPCA(2).fit([pd.DataFrame(X, columns=list("abcde")), pd.DataFrame(X, columns=list("abcdx"))]),
        r"context 1, lacks 1 of the 5 features of the first context: 'e', and has 1 in addition: 'x'\.",
    ),
    "one sample": (
        lambda X: MCPCA(2).fit([X, X[:1]]),
        r"1 of 2 contexts have fewer than 2 samples: 1 \(n_samples = 1\). A covariance needs at least 2; drop or merge",
    ),
    "empty context": (lambda X: MCPCA(2).fit([X, X[:0]]), r"fewer than 2 samples: 1 \(n_samples = 0\)"),
    "empty list": (lambda X: MCPCA(2).fit([]), "X is an empty list: 0 contexts"),
    "empty dict": (lambda X: MCPCA(2).fit({}), "X is an empty dict: 0 contexts"),
    "text": (lambda X: MCPCA(2).fit("rows.csv"), "X is a str and not rows; pass a 2-D array or DataFrame, a list"),
    "None in a dict": (lambda X: MCPCA(2).fit({"a": None}), "X, context 'a', is a NoneType and not rows"),
    "ragged": (lambda X: MCPCA(1).fit([[1, 2], [3]]), "X has rows of different lengths"),
    "masked": (lambda X: MCPCA(2).fit(np.ma.masked_greater(X, 1.5)), r"X has \d+ masked values; fill them"),
    "1-D": (lambda X: MCPCA(2).fit(X[0]), r"X must be 2-D \(n_samples, n_features\), got shape \(5,\)"),
    "1-D in a list": (lambda X: MCPCA(2).fit([X, X[0]]), r"X, context 1, must be 2-D .* got shape \(5,\)"),
    "3-D in a list": (lambda X: MCPCA(2).fit([X[None]]), r"must be 2-D .* got shape \(1, 40, 5\)"),
    "3-D not square": (
        lambda X: MCPCA(2).fit(np.ones((2, 3, 4))),
        r"S must be a \(k, p, p\) stack of covariances, got shape \(2, 3, 4\)",
    ),
    "3-D with y": (lambda X: MCPCA(2).fit(np.stack([np.eye(3)] * 2), [0, 1]), "takes no y"),
    "strings": (lambda X: MCPCA(2).fit(pd.DataFrame({"a": ["x"] * 4, "b": range(4)})), r"non-numeric columns \['a'\]"),
    "string array": (lambda X: MCPCA(1).fit(np.array([["a", "b"], ["c", "d"]])), "not numeric"),
    "complex": (lambda X: MCPCA(1).fit(X + 1j), "Complex data not supported"),
    "r = 0": (lambda X: MCPCA(0).fit(X), r"n_components=0 is out of bounds: 1 <= n_components <= 5"),
    "r < 0": (lambda X: MCPCA(-2).fit(X), "n_components=-2 is out of bounds"),
    "r > p": (lambda X: MCPCA(6).fit(X), "n_components=6 is out of bounds.*choose a rank of at most 5"),
    "r = 2.0": (lambda X: MCPCA(2.0).fit(X), r"n_components=2.0 is not an integer \(got float\)"),
    "r = True": (lambda X: MCPCA(True).fit(X), "n_components=True is not an integer"),
    "r = '2'": (lambda X: MCPCA("2").fit(X), "n_components='2' is unknown; pass a number, None .* or 'replicating'"),
    "r > rank": (
        lambda X: MCPCA(4).fit([X[:10] @ np.diag([1, 1, 1, 0, 0]), X[10:] @ np.diag([1, 1, 1, 0, 0])]),
        "n_components=4 exceeds the numerical rank of the data, 3.*Choose n_components <= 3",
    ),
    "r > samples": (lambda X: MCPCA(5).fit([X[:3], X[3:5]]), "exceeds the numerical rank of the data, 3"),
    "all zero": (lambda X: MCPCA(1).fit([X * 0, X * 0]), "covariances are all zero"),
    "all constant, rank chosen": (lambda X: MCPCA().fit([X * 0 + 1, X * 0]), "covariances are all zero"),
    "labels too few": (lambda X: MCPCA(2).fit(X, [0, 1]), r"y has shape \(2,\) and X has 40 rows"),
    "labels 2-D": (lambda X: MCPCA(2).fit(X, np.zeros((40, 2))), r"y has shape \(40, 2\) and X has 40 rows"),
    "labels missing": (lambda X: MCPCA(2).fit(X, ["a"] * 38 + [None] * 2), "y has 2 missing labels; drop those rows"),
    "labels nan": (lambda X: MCPCA(2).fit(X, [0.0] * 39 + [np.nan]), "y has 1 missing labels"),
    "categories missing": (lambda X: MCPCA(2).fit(X, pd.Categorical(["a"] * 39 + [None])), "y has 1 missing labels"),
    "y with a list": (lambda X: MCPCA(2).fit([X, X], [0] * 80), "X already holds separate contexts"),
    "duplicate names": (lambda X: MCPCA(2).fit(pd.Series([X, X], index=["a", "a"])), r"more than once: \['a'\]"),
    "solver": (
        lambda X: MCPCA(2, solver="magic").fit(X),
        r"solver='magic' is unknown; choose one of \['auto', 'lsq', 'ml', 'mspm'\]",
    ),
    "random_state": (lambda X: MCPCA(2, random_state=1.5).fit(X), "random_state=1.5 is a float; pass an integer"),
    "random_state < 0": (lambda X: MCPCA(2, random_state=-1).fit(X), "random_state=-1 is negative"),
    "tol": (lambda X: MCPCA(2, tol=1.0).fit(X), r"tol=1.0 is out of bounds: 1e-15 <= tol <= 0.01"),
    "max_iter": (lambda X: MCPCA(2, max_iter=0).fit(X), "max_iter=0 is out of bounds: max_iter >= 1"),
    "verbose": (lambda X: MCPCA(2, verbose="yes").fit(X), "verbose='yes'; pass True, False or a function"),
    "rank_range": (lambda X: MCPCA(rank_range=[1, 9]).fit(X), "rank_range entry=9 is out of bounds"),
    "rank_range empty": (lambda X: MCPCA(rank_range=[]).fit(X), "rank_range is empty"),
    "rank_range int": (lambda X: MCPCA(rank_range=3).fit(X), "rank_range=3 is not a list of ranks"),
    "n_seed_pairs": (lambda X: MCPCA(rank_range=[2], n_seed_pairs=0).fit(X), "n_seed_pairs=0 is out of bounds"),
    "threshold": (lambda X: MCPCA(rank_range=[2], cos_sim_threshold=2).fit(X), "cos_sim_threshold=2 is out of bounds"),
    "asymmetric": (
        lambda X: decompose(np.array([[[1.0, 0.5], [0.2, 1.0]]]), 1),
        r"S\[0\] is not symmetric: \|S - S\^T\| reaches 0.3",
    ),
    "nan covariance": (
        lambda X: decompose(np.stack([np.eye(2), np.full((2, 2), np.nan)]), 1),
        r"S contains 4 NaN or infinite values, in context\(s\) 1; recompute",
    ),
    "indefinite": (
        lambda X: decompose(np.stack([np.eye(2), np.diag([1, -0.1])]), 1),
        r"S\[1\] is not positive semi-definite: its smallest eigenvalue is -0.1",
    ),
    "2-D covariance": (lambda X: decompose(np.eye(3), 1), r"A single matrix is S\[None\]"),
    "empty stack": (lambda X: decompose(np.zeros((0, 3, 3)), 1), r"S is empty: shape \(0, 3, 3\)"),
    "complex stack": (lambda X: decompose(np.eye(2)[None] * 1j, 1), "Complex data not supported"),
    "string stack": (lambda X: decompose(np.full((1, 2, 2), "a"), 1), "not numeric"),
    "r of decompose": (lambda X: decompose(np.eye(3)[None], 4), "r=4 is out of bounds: 1 <= r <= 3"),
    "n_samples": (
        lambda X: MCPCA(1).fit_covariances(np.stack([np.eye(2)] * 2), n_samples=[5, 1]),
        "one integer >= 2 per context is needed, 2 of them",
    ),
    "context_names": (
        lambda X: MCPCA(1).fit_covariances(np.stack([np.eye(2)] * 2), context_names=["a", "a"]),
        "context_names has 2 entries, 1 of them distinct; 2 distinct are needed",
    ),
    "feature_names": (
        lambda X: MCPCA(1).fit_covariances(np.eye(2)[None], feature_names=["a"]),
        "feature_names has 1 entries",
    ),
    "overflow": (lambda X: context_covariances([X.astype(np.float32) * np.float32(1e30)]), "squares overflow"),
    "rank above data": (
        lambda X: choose_rank(np.diag([1.0, 1, 0, 0])[None], [3]),
        "rank_range reaches 3, above the numerical rank of the data, 2",
    ),
    "make_contexts": (lambda X: make_contexts(density=2), "density=2 is out of bounds"),
    "digits": (lambda X: load_digit_contexts(1), "n_samples=1 is out of bounds"),
}


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_explained(X, case):
    call, message = CASES[case]
    with pytest.raises(ValueError, match=message):
        call(X)


def test_methods_before_fit(X):
    model = MCPCA(2)
    calls = [
        lambda: model.transform(X),
        lambda: model.transform([X]),
        lambda: model.inverse_transform(X),
        lambda: model.score(X),
        lambda: model.loadings_for(X),
        lambda: model.save("nowhere"),
        lambda: model.r_,
        model.reconstruction_error,
        model.likelihood_loss,
        model.proportional_loadings,
        model.get_feature_names_out,
    ]
    for call in calls:
        with pytest.raises(NotFittedError):
            call()


def test_transform_with_other_features(X):
    model = MCPCA(2).fit(X)
    with pytest.raises(ValueError, match="X has 4 features, but MCPCA is expecting 5 features as input"):
        model.transform(X[:, :4])
    with pytest.raises(ValueError, match="X has 4 features, but MCPCA is expecting 5"):
        model.loadings_for([X[:, :4]])
    with pytest.raises(ValueError, match="X has 4 features, but MCPCA is expecting 5"):
        model.loadings_for(np.stack([np.eye(4)]))
    with pytest.raises(ValueError, match="contains 1 NaN"):
        model.transform(blocks_with(X, np.nan)[1])
    with pytest.raises(ValueError, match="contains 1 NaN"):
        model.score(blocks_with(X, np.nan)[1])


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("case", ["nan", "r > rank", "rank_range", "one sample", "tol"])
def test_a_failed_fit_leaves_the_fitted_model_as_it_was(X, case):
    model = MCPCA(2, random_state=0).fit([X[:20], X[20:]])
    before = {name: value for name, value in vars(model).items() if name.endswith("_")}
    _call, message = CASES[case]
    broken = MCPCA(2)
    vars(broken).update(vars(model))
    attempts = {
        "nan": lambda: broken.fit(blocks_with(X, np.nan)),
        "r > rank": lambda: broken.set_params(n_components=4).fit([X @ np.diag([1, 1, 1, 0, 0])] * 2),
        "rank_range": lambda: broken.set_params(n_components=None, rank_range=[1, 9]).fit(X),
        "one sample": lambda: broken.fit([X, X[:1]]),
        "tol": lambda: broken.set_params(tol=1.0).fit(X),
    }
    with pytest.raises(ValueError, match=message):
        attempts[case]()
    for name, value in before.items():
        assert getattr(broken, name) is value


def test_allowed_oddities(X):
    """Constant features and all-zero contexts are data, not errors."""
    blocks = [np.column_stack([X[:20], np.ones(20)]), np.column_stack([X[20:], np.ones(20)]), np.zeros((5, 6))]
    model = MCPCA(2, random_state=0).fit(blocks)
    assert (model.loadings_[2] == 0).all()
    assert np.abs(model.components_[-1]).max() < 1e-12


def test_rounding_asymmetry_is_tolerated(rng):
    S = np.stack([np.cov(rng.standard_normal((30, 6)), rowvar=False) for _ in range(3)])
    noisy = S * (1 + 1e-15 * rng.standard_normal(S.shape))
    np.testing.assert_allclose(
        decompose(noisy, 2, random_state=0).components, decompose(S, 2, random_state=0).components, atol=1e-9
    )


def test_warning_is_a_user_warning():
    assert issubclass(IdentifiabilityWarning, UserWarning)
