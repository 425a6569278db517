"""``random_state`` and ``rng`` are two names of one thing: in every public function that has the first."""

import importlib
import inspect

import anndata
import numpy as np
import pandas as pd
import pytest
from test_public_surface import MODULES

import mcpca
from mcpca import MCPCA, analysis, baselines, datasets, report, tl
from mcpca._utils.arguments import as_generator, one_random_state
from mcpca.datasets import make_contexts

DATA = make_contexts(6, 8, 2, n_samples=30, noise=0.3, random_state=0)
X, Y, S = DATA.X, DATA.y, DATA.covariances
CELLS = anndata.AnnData(X.copy(), obs=pd.DataFrame({"c": Y.astype(str)}, index=[f"r{i}" for i in range(len(Y))]))
MODEL = MCPCA(2, random_state=0).fit(X, Y)
STAGE = [1.0, 2.5, 3.0, 1.5, 2.0, 4.0]
LINKS = {"s": {"a": [0, 1, 2], "b": [3, 4, 5]}}


def fitted_cells():
    adata = CELLS.copy()
    tl.mcpca(adata, "c", n_comps=2, rng=0)
    adata.obs["stage"] = np.array(STAGE)[Y]
    return adata


def scores_of_fit(**seed):
    adata = CELLS.copy()
    tl.mcpca(adata, "c", n_comps=2, **seed)
    return adata.uns["mcpca"]["params"]["random_state"]


# What each function returns, as something that can be compared.
CALLS = {
    "MCPCA.bootstrap": lambda **seed: MODEL.bootstrap(X, Y, n=3, verbose=False, **seed).angles,
    "MCPCA.context_dependence": lambda **seed: (
        MODEL.context_dependence(X, Y, n_splits=1, n_permutations=19, **seed).statistics
    ),
    "MCPCA.covariances": lambda **seed: MODEL.covariances(X, Y, **seed).weights,
    "MCPCA.replicability": lambda **seed: MODEL.replicability(X, Y, n_splits=2, **seed).cosines,
    "choose_rank": lambda **seed: mcpca.choose_rank(S, [1, 2, 3], n_seed_pairs=1, **seed).scores,
    "compare_solvers": lambda **seed: next(
        iter(mcpca.compare_solvers(X, Y, 2, ["mspm"], baselines=(), n_splits=1, **seed).values.values())
    ),
    "context_dependence": lambda **seed: (
        mcpca.context_dependence(X, Y, 2, n_splits=1, n_permutations=19, **seed).statistics
    ),
    "cramer_rao_bound": lambda **seed: (
        mcpca.cramer_rao_bound(DATA.components[:4, :1], [[1.0], [3.0]], 0.1, n=50, pilot_samples=20, **seed).angles
    ),
    "decompose": lambda **seed: mcpca.decompose(S, 2, **seed).components,
    "overcomplete": lambda **seed: mcpca.overcomplete(S, 2, **seed).components,
    "select_rank": lambda **seed: mcpca.select_rank(X, Y, ranks=[1, 2], **seed).replicability.cosines,
    "analysis.associate": lambda **seed: (
        analysis.associate(MODEL, STAGE, permutations=20, X=X, y=Y, n_pcs=2, **seed).table["p"].to_numpy()
    ),
    "analysis.compare_with_pca": lambda **seed: analysis.compare_with_pca(
        MODEL, X=X, y=Y, n_pcs=2, n_top=5, n_random=9, **seed
    ).best.select_dtypes("number"),
    "analysis.differential_variance": lambda **seed: (
        analysis.differential_variance(MODEL, list("aabbab"), permutations=19, **seed).table["p"].to_numpy()
    ),
    "analysis.link_recall": lambda **seed: analysis.link_recall(
        MODEL, LINKS, X=X, y=Y, n_pcs=2, permutations=9, **seed
    )["chance"].to_numpy(),
    "analysis.trees_by_group": lambda **seed: (
        analysis.trees_by_group(
            MODEL, "((0,1,2),(3,4,5));", ["a"] * len(Y), X=X, y=Y, resamples=5, pooled=None, metric="euclidean", **seed
        )
        .clades["support"]
        .to_numpy()
    ),
    "baselines.run": lambda **seed: baselines.run("jennrich", S, 2, **seed).components,
    "datasets.load_digit_contexts": lambda **seed: datasets.load_digit_contexts(3, **seed).contexts["0 and 2"],
    "datasets.make_contexts": lambda **seed: make_contexts(2, 3, 1, n_samples=4, **seed).X,
    "report.render": lambda **seed: report.render(MODEL, X=X, y=Y, max_rows=12, **seed),
    "report.write_report": lambda path="", **seed: report.write_report(MODEL, path, X=X, y=Y, **seed).read_bytes(),
    "tl.associate": lambda **seed: tl.associate(fitted_cells(), "stage", n_pcs=2, **seed).table["p"].to_numpy(),
    "tl.bootstrap": lambda **seed: tl.bootstrap(fitted_cells(), n=3, **seed).angles,
    "tl.context_dependence": lambda **seed: (
        tl.context_dependence(fitted_cells(), n_splits=1, n_permutations=19, **seed).statistics
    ),
    "tl.mcpca": scores_of_fit,
    "tl.rank": lambda **seed: tl.rank(CELLS.copy(), "c", ranks=[1, 2], **seed).replicability.cosines,
    "tl.replicability": lambda **seed: tl.replicability(fitted_cells(), n_splits=2, **seed).cosines,
}


def having(parameter):
    """Return the public functions and methods with this parameter, as ``CALLS`` has them, without ``MCPCA`` itself."""
    found = set()
    for module in map(importlib.import_module, (name for name in MODULES if name != "mcpca.pl")):
        prefix = module.__name__.removeprefix("mcpca").removeprefix(".")
        for name in getattr(module, "__all__", []):
            thing = getattr(module, name)
            if inspect.isclass(thing):
                methods = {f"{name}.{n}": m for n, m in inspect.getmembers(thing, inspect.isfunction) if n[0] != "_"}
            else:
                methods = {name: thing} if inspect.isfunction(thing) else {}
            found |= {
                f"{prefix}.{n}".removeprefix(".")
                for n, m in methods.items()
                if parameter in inspect.signature(m).parameters
            }
    return found


def test_every_function_has_both_names_and_is_called_below():
    assert having("random_state") == having("rng") == set(CALLS)
    assert "rng" not in inspect.signature(MCPCA).parameters  # whose parameters are those of scikit-learn


@pytest.mark.parametrize("name", sorted(set(CALLS) - {"report.write_report"}))
def test_a_seed_means_the_same_by_either_name(name):
    call = CALLS[name]
    expected = call(random_state=3)
    actual = call(rng=3)
    assert actual == expected if isinstance(expected, str) else np.array_equal(actual, expected)
    with pytest.raises(TypeError, match=r"rng and random_state are both given.*pass rng alone"):
        call(rng=3, random_state=3)


def test_the_report_on_file_too(tmp_path):
    call = CALLS["report.write_report"]
    few = {"max_rows": 12}
    one = call(path=tmp_path / "a.html", random_state=3, **few)
    assert call(path=tmp_path / "b.html", rng=3, **few) == one
    assert call(path=tmp_path / "c.html", rng=4, **few) != one
    with pytest.raises(TypeError, match="both given"):
        call(path=tmp_path / "d.html", rng=3, random_state=3)


@pytest.mark.parametrize("name", ["choose_rank", "context_dependence", "baselines.run"])
def test_a_seed_sequence_is_a_seed_by_either_name_and_stays_as_it_is(name):
    call = CALLS[name]
    sequence = np.random.SeedSequence(3)
    expected = call(random_state=3)
    for _ in range(2):  # streams that are spawned are not counted in it
        assert np.array_equal(call(random_state=sequence), expected)
        assert np.array_equal(call(rng=sequence), expected)
    assert sequence.n_children_spawned == 0


def test_an_integer_of_numpy_is_an_integer():
    call = CALLS["context_dependence"]
    for seed in ({"rng": np.int64(3)}, {"random_state": np.int64(3)}):
        assert np.array_equal(call(**seed), call(random_state=3))


@pytest.mark.parametrize("name", ["datasets.make_contexts", "MCPCA.replicability"])
def test_a_generator_and_its_bits_go_on_from_call_to_call(name):
    call = CALLS[name]
    expected = call(random_state=np.random.default_rng(3))
    for key in ("random_state", "rng"):
        for draws in (np.random.default_rng(3), np.random.PCG64(3)):
            assert np.array_equal(call(**{key: draws}), expected)
            assert not np.array_equal(call(**{key: draws}), expected)


@pytest.mark.parametrize("solver", ["mspm", "ml"])
def test_the_estimator_takes_them_as_random_state(solver):
    expected = MCPCA(2, solver=solver, random_state=3).fit(X, Y).components_
    for state in (np.random.default_rng(3), np.random.PCG64(3), np.random.SeedSequence(3)):
        assert np.array_equal(MCPCA(2, solver=solver, random_state=state).fit(X, Y).components_, expected)


@pytest.mark.parametrize("name", ["analysis.link_recall", "tl.replicability"])
def test_where_the_default_is_0_none_is_another_seed(name, monkeypatch):
    call = CALLS[name]
    assert np.array_equal(call(), call(rng=0))
    monkeypatch.undo()  # tests draw the same numbers without a seed; here they are to differ
    assert not np.array_equal(call(rng=None), call(rng=None))


@pytest.mark.parametrize(
    ("seed", "message"),
    [
        (-1, "rng=-1 is nothing that numpy.random.default_rng takes; pass an integer >= 0"),
        (True, "rng=True is nothing"),
        ("7", "rng='7' is nothing"),
        (np.random.RandomState(0), "A RandomState goes to random_state"),
    ],
)
def test_what_is_no_rng(seed, message):
    with pytest.raises(ValueError, match=message):
        make_contexts(2, 3, 1, rng=seed)
    with pytest.raises(ValueError, match=message):
        one_random_state(seed, None)


def test_what_is_no_random_state():
    with pytest.raises(ValueError, match=r"random_state='7' is a str.*a SeedSequence, a BitGenerator, a RandomState"):
        as_generator("7")
