"""Batch and covariates in moments: sites add their cross-products, and the model is that of all rows."""

from functools import reduce
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from mcpca import MCPCA, ContextMoments, context_covariances
from mcpca._covariances.moments import reduced
from mcpca.datasets import make_contexts
from mcpca.exceptions import NothingAboveNoiseError, NuisanceWarning

NUISANCE = ("shares", "ranks", "cell_contexts", "cell_levels", "cell_counts", "shifts", "centres", "slopes")


def rows(seed=0):
    """Rows of 4 contexts, moved by 3 batches, by numbers and by a factor, of which sites see different levels."""
    rng = np.random.default_rng(seed)
    truth = make_contexts(4, 10, 3, n_samples=90, noise=0.2, random_state=seed)
    n = len(truth.X)
    site = rng.integers(3, size=n)
    # Batch "d" and level "IV" are of the third site alone, level "I" of the first two.
    batch = np.where((site == 2) & (rng.random(n) < 0.5), "d", np.array(["a", "b", "c"])[rng.integers(3, size=n)])
    stage = np.where(site == 2, np.array(["II", "IV"])[rng.integers(2, size=n)], "")
    stage = np.where(site < 2, np.array(["I", "II", "III"])[rng.integers(3, size=n)], stage)
    depth = 1000 + 40 * rng.standard_normal(n) + 30 * truth.y
    age = rng.integers(20, 80, size=n)
    moved = (batch[:, None] == np.array(["b", "c", "d"])) @ rng.standard_normal((3, 10))
    moved += (stage[:, None] == np.array(["I", "III", "IV"])) @ rng.standard_normal((3, 10))
    moved += np.outer((depth - 1000) / 40, rng.standard_normal(10)) + np.outer(age / 30, rng.standard_normal(10))
    covariates = pd.DataFrame({"stage": stage, "depth": depth, "age": age})
    names = np.array(["breast", "colon", "liver", "lung"])[truth.y]
    return SimpleNamespace(X=truth.X + 2 * moved + 5, y=names, batch=batch, covariates=covariates, site=site)


def given(data, batch=True, covariates=True):
    """Return what is passed beside the rows."""
    return ({"batch": data.batch} if batch else {}) | ({"covariates": data.covariates} if covariates else {})


def part(data, which):
    """Return arguments for some of the rows."""
    rest = {"batch": data.batch[which], "covariates": data.covariates.iloc[which].reset_index(drop=True)}
    return data.X[which], data.y[which], rest


def sites_of(data, **only):
    parts = []
    for s in range(3):
        X, y, rest = part(data, data.site == s)
        parts.append(ContextMoments().update(X, y, **{name: rest[name] for name in given(data, **only)}))
    return parts


def regressed_out(data, batch=True, covariates=True):
    """Return the covariances of residuals: a regression of each context's rows on indicators and covariates."""
    out = []
    for name in np.unique(data.y):
        members = data.y == name
        X = data.X[members]
        columns = [np.ones(len(X))]
        if batch:
            columns += [data.batch[members] == level for level in np.unique(data.batch[members])]
        if covariates:
            stage = data.covariates["stage"].to_numpy()[members]
            columns += [stage == level for level in np.unique(stage)]
            columns += [data.covariates[column].to_numpy()[members] - 500 for column in ("depth", "age")]
        Z = np.column_stack(columns).astype(float)
        Z /= np.linalg.norm(Z, axis=0)
        beta, _, rank, _ = np.linalg.lstsq(Z, X, rcond=1e-10)
        left = X - Z @ beta
        out.append(left.T @ left / (len(X) - rank))
    return np.array(out)


def assert_same_model(model, whole, atol=1e-8):
    for name in ("components_", "loadings_", "means_", "projection_"):
        np.testing.assert_allclose(getattr(model, name), getattr(whole, name), atol=atol)
    assert model.n_samples_per_context_.tolist() == whole.n_samples_per_context_.tolist()
    for name in NUISANCE:
        np.testing.assert_allclose(getattr(model.nuisance_, name), getattr(whole.nuisance_, name), atol=atol)
    assert model.nuisance_.levels.tolist() == whole.nuisance_.levels.tolist()
    assert model.nuisance_.columns == whole.nuisance_.columns
    assert model.nuisance_.coding == whole.nuisance_.coding


@pytest.fixture(scope="module")
def data():
    return rows()


WHAT = [{}, {"batch": False}, {"covariates": False}]


@pytest.mark.parametrize("only", WHAT, ids=["both", "covariates", "batch"])
def test_merged_sites_have_the_covariances_of_residuals(data, only):
    twin = regressed_out(data, **only)
    merged = reduce(ContextMoments.merge, sites_of(data, **only))
    np.testing.assert_allclose(merged.covariances().covariances, twin, atol=1e-10)
    np.testing.assert_allclose(context_covariances(data.X, data.y, **given(data, **only)).covariances, twin, atol=1e-10)
    # They differ from those with the nuisance in them, or nothing of this could fail.
    assert np.abs(context_covariances(data.X, data.y).covariances - twin).max() > 1


@pytest.mark.parametrize("only", WHAT, ids=["both", "covariates", "batch"])
def test_the_model_of_merged_sites_is_that_of_pooled_rows(data, only):
    first, second, third = sites_of(data, **only)
    whole = MCPCA(3, random_state=0).fit(data.X, data.y, **given(data, **only))
    for merged in (first.merge(second).merge(third), third.merge(first.merge(second))):
        model = MCPCA(3, random_state=0).fit(merged)
        assert_same_model(model, whole)
        scores = model.transform(data.X, data.y, **given(data, **only))
        np.testing.assert_allclose(scores, whole.transform(data.X, data.y, **given(data, **only)), atol=1e-8)
    # The scores are those of residuals: within a batch of a context they have mean 0.
    if "batch" in given(data, **only):
        members = (data.batch == "d") & (data.y == "lung")
        np.testing.assert_allclose(scores[members].mean(axis=0), 0, atol=1e-8)


def test_chunks_by_partial_fit_end_where_fit_does(data):
    whole = MCPCA(3, random_state=0).fit(data.X, data.y, **given(data))
    order = np.random.default_rng(1).permutation(len(data.X))
    for chunks in (np.array_split(order, 7), np.split(np.argsort(data.batch, kind="stable"), [50, 51, 300])):
        model = MCPCA(3, random_state=0)
        for chunk in chunks:
            X, y, rest = part(data, chunk)
            model.partial_fit(X, y, **rest)
        assert_same_model(model, whole)


def test_single_rows_add_up(data):
    """A factor of one level, a batch of one row and a scatter of 0 at each step."""
    few = np.arange(0, len(data.X), 3)
    total = ContextMoments()
    for i in few:
        X, y, rest = part(data, [i])
        total.update(X, y, **rest)
    X, y, rest = part(data, few)
    expected = context_covariances(X, y, **rest)
    np.testing.assert_allclose(total.covariances().covariances, expected.covariances, atol=1e-8)


def test_partial_fit_waits_for_degrees_of_freedom():
    rng = np.random.default_rng(0)
    model = MCPCA(1, random_state=0)
    y = np.repeat(["u", "v"], 3)
    depth = rng.standard_normal(6)
    # 3 rows less the mean, a second batch and a covariate: none left.
    model.partial_fit(rng.standard_normal((6, 4)), y, batch=["a", "a", "b"] * 2, covariates=depth)
    assert not hasattr(model, "components_")
    assert model.moments_.counts.tolist() == [3, 3]
    model.partial_fit(rng.standard_normal((6, 4)), y, batch=["a", "a", "b"] * 2, covariates=depth[::-1])
    assert model.components_.shape == (4, 1)
    assert model.nuisance_.ranks.tolist() == [2, 2]


def test_frames_name_batch_and_covariates_which_are_no_features(data):
    frame = pd.DataFrame(data.X, columns=[f"g{j}" for j in range(10)])
    frame = frame.assign(context=data.y, run=data.batch, **data.covariates)
    names = {"batch": "run", "covariates": ["stage", "depth", "age"]}
    whole = MCPCA(3, random_state=0).fit(frame, "context", **names)
    model = MCPCA(3, random_state=0)
    total = ContextMoments()
    for s in range(3):
        chunk = frame[data.site == s]
        # Other orders of columns: features go by name, and so do covariates.
        chunk = chunk[chunk.columns[::-1]] if s else chunk
        model.partial_fit(chunk, "context", **names)
        total.update(chunk, "context", batch="run", covariates=["age", "depth", "stage"] if s else names["covariates"])
    assert_same_model(model, whole)
    assert_same_model(MCPCA(3, random_state=0).fit(total), whole)
    assert model.feature_names_in_.tolist() == [f"g{j}" for j in range(10)]
    np.testing.assert_allclose(
        model.transform(frame, "context", **names), whole.transform(frame, "context", **names), atol=1e-8
    )
    covariances = context_covariances(frame, "context", **names)
    assert covariances.feature_names.tolist() == [f"g{j}" for j in range(10)]
    np.testing.assert_allclose(covariances.covariances, regressed_out(data), atol=1e-10)


def test_sparse_rows_and_separate_contexts_have_the_same_moments(data):
    dense = ContextMoments().update(data.X, data.y, **given(data))
    sparse = ContextMoments().update(scipy.sparse.csr_array(data.X), data.y, **given(data))
    members = {name: np.flatnonzero(data.y == name) for name in np.unique(data.y).tolist()}
    separate = ContextMoments().update(
        {name: data.X[m] for name, m in members.items()},
        batch={name: data.batch[m] for name, m in members.items()},
        covariates={name: data.covariates.iloc[m].reset_index(drop=True) for name, m in members.items()},
    )
    for other in (sparse, separate):
        np.testing.assert_allclose(other.covariances().covariances, dense.covariances().covariances, atol=1e-10)


def test_rows_on_dask_have_the_same_moments(data):
    da = pytest.importorskip("dask.array")
    lazy = ContextMoments().update(da.from_array(data.X, chunks=(70, 10)), data.y, **given(data))
    np.testing.assert_allclose(lazy.covariances().covariances, regressed_out(data), atol=1e-10)


@pytest.mark.parametrize("unit", [1e-120, 1e120])
def test_units_far_from_1_change_nothing(data, unit):
    X, y, rest = part(data, data.site == 0)
    covariances = ContextMoments().update(X * unit, y, **rest).covariances().covariances
    expected = context_covariances(X, y, **rest).covariances
    np.testing.assert_allclose(covariances / unit / unit, expected, rtol=1e-9, atol=1e-10)


def test_a_covariate_with_a_large_mean_keeps_its_digits(data):
    """Seconds since 1970, of some hours: constant to seven digits."""
    seconds = 1.7e9 + 1e4 * data.covariates["depth"].to_numpy()
    which = [data.site == s for s in range(3)]
    parts = [ContextMoments().update(data.X[m], data.y[m], covariates={"seconds": seconds[m]}) for m in which]
    model = MCPCA(3, random_state=0).fit(reduce(ContextMoments.merge, parts))
    whole = MCPCA(3, random_state=0).fit(data.X, data.y, covariates=data.covariates["depth"].to_numpy())
    assert model.nuisance_.ranks.tolist() == [1] * 4
    np.testing.assert_allclose(model.components_, whole.components_, atol=1e-8)


# Files


def test_a_file_has_the_nuisance_and_merging_goes_on(data, tmp_path):
    first, second, third = sites_of(data)
    first.merge(second).save(tmp_path / "two.npz")
    third.save(tmp_path / "one.npz")
    merged = ContextMoments.load(tmp_path / "two.npz").merge(ContextMoments.load(tmp_path / "one.npz"))
    model = MCPCA(3, random_state=0).fit(merged)
    assert_same_model(model, MCPCA(3, random_state=0).fit(data.X, data.y, **given(data)))
    model.save(tmp_path / "model.npz")
    loaded = MCPCA.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(
        loaded.transform(data.X, data.y, **given(data)), model.transform(data.X, data.y, **given(data))
    )


def test_a_file_without_nuisance_has_nothing_of_it(data, tmp_path):
    ContextMoments().update(data.X, data.y).save(tmp_path / "plain.npz")
    with np.load(tmp_path / "plain.npz") as file:
        assert set(file.files) == {"header", "counts", "means", "scatters"}
        assert b"nuisance" not in file["header"].tobytes()
    assert ContextMoments.load(tmp_path / "plain.npz").nuisance is None


def spoiled(path, change):
    """Write the file again with some arrays changed."""
    with np.load(path) as file:
        arrays = {name: file[name].copy() for name in file.files}
    change(arrays)
    np.savez(path, **arrays)


def _header(old, new):
    def change(arrays):
        text = arrays["header"].tobytes().decode()
        assert old in text
        arrays["header"] = np.frombuffer(text.replace(old, new).encode(), dtype=np.uint8)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.pop("nuisance_crosses"), "nuisance_crosses is missing"),
        (lambda a: a["nuisance_cell_levels"].__setitem__(0, 9), "nuisance_cell_levels is not within 0 to 3"),
        (lambda a: a["nuisance_cell_counts"].__setitem__(0, 9999), "do not add up"),
        (lambda a: a["nuisance_cell_means"].__setitem__(0, 9999), "means of its batches are not those"),
        (lambda a: a["nuisance_cell_levels"].__setitem__(1, 0), "not in order, or not distinct"),
        (lambda a: a["nuisance_sizes"].__setitem__(0, np.nan), "nuisance_sizes has values that are NaN"),
        (lambda a: a["nuisance_normals"].__imul__(-1), "scatter of the covariates of context 'breast'"),
        (lambda a: a["nuisance_crosses"].__imul__(100), "what nuisance leaves of the scatter of context 'breast'"),
        (lambda a: a.update(nuisance_normals=a["nuisance_normals"][:, :2]), "where .4, 6, 6. is needed"),
        (_header('"columns": [', '"columns": ["more", '), "not those of its variables"),
        (_header('"formula": null', '"formula": "depth"'), "has a formula, 'depth', which"),
        (_header('"levels": [', '"levels": 3, "was": ['), "its nuisance is not what ContextMoments.save writes"),
    ],
)
def test_a_file_that_no_rows_have_is_refused(data, tmp_path, change, message):
    path = tmp_path / "site.npz"
    reduce(ContextMoments.merge, sites_of(data)).save(path)
    spoiled(path, change)
    with pytest.raises(ValueError, match=message):
        ContextMoments.load(path)


# What is refused


def test_moments_of_different_nuisance_do_not_merge(data):
    plain = ContextMoments().update(data.X[:50], data.y[:50])
    X, y, rest = part(data, np.arange(100, 200))
    both = ContextMoments().update(X, y, **rest)
    with pytest.raises(ValueError, match="come with batch and covariates 'age', 'depth', 'stage', and those before "):
        plain.merge(both)
    with pytest.raises(ValueError, match="come with neither batch nor covariates, and those before with batch and"):
        both.merge(plain)
    with pytest.raises(ValueError, match=r"come with batch, and those before with batch and.*pass the same"):
        both.merge(ContextMoments().update(data.X[:50], data.y[:50], batch=data.batch[:50]))
    labels = data.covariates[:50].assign(age=data.covariates["age"][:50].astype(str))
    with pytest.raises(ValueError, match="covariates, 'age', are labels in these rows and numbers in those before"):
        both.update(data.X[:50], data.y[:50], batch=data.batch[:50], covariates=labels)
    assert both.counts.sum() == 100


def test_a_fit_to_moments_takes_what_they_have(data):
    total = ContextMoments().update(data.X, data.y)
    with pytest.raises(ValueError, match=r"batch has no effect.*moments have none; pass it to ContextMoments.update"):
        MCPCA(3).fit(total, batch=data.batch)


def test_chunks_that_disagree_change_nothing(data):
    X, y, rest = part(data, data.site == 0)
    model = MCPCA(3, random_state=0).partial_fit(X, y, **rest)
    before = model.components_.copy()
    other_X, other_y, other = part(data, data.site == 1)
    with pytest.raises(ValueError, match="come with neither batch nor covariates"):
        model.partial_fit(other_X, other_y)
    with pytest.raises(ValueError, match="batch has 3 values"):
        model.partial_fit(other_X, other_y, batch=["a"] * 3, covariates=other["covariates"])
    np.testing.assert_array_equal(model.components_, before)
    assert model.moments_.counts.sum() == len(X)


def test_formulas_are_refused_with_a_way_out(data):
    pytest.importorskip("formulaic")
    frame = pd.DataFrame(data.X).rename(columns=str).assign(depth=data.covariates["depth"])
    with pytest.raises(ValueError, match=r"covariates='log\(depth\)' is a formula.*compute its columns"):
        ContextMoments().update(frame, data.y, covariates="log(depth)")


def test_the_same_rows_are_recognised_with_their_nuisance(data):
    first, second, _ = sites_of(data)
    with pytest.raises(ValueError, match="in these moments already"):
        first.merge(second).merge(second)
    twice = first.merge(first, allow_duplicates=True)
    np.testing.assert_allclose(twice.nuisance.normals, 2 * first.nuisance.normals)
    assert twice.nuisance.cell_counts.tolist() == (2 * first.nuisance.cell_counts).tolist()


def test_what_more_chunks_may_mend_is_not_checked(data):
    """A first chunk may have one batch a context, of which nothing can be said yet; fits to all rows say it."""
    moments = ContextMoments().update(data.X, data.y, batch=data.y)
    with pytest.warns(NuisanceWarning, match="batch has no effect"):
        checked = reduced(moments).covariances
    unchecked = reduced(moments, check=False).covariances  # a warning would be an error here
    np.testing.assert_array_equal(unchecked.covariances, checked.covariances)


def test_the_checks_of_rows_are_those_of_moments(data):
    """Too few degrees of freedom, nuisance without effect, and collinear covariates."""
    X, y, depth = data.X, data.y, data.covariates["depth"].to_numpy()
    with pytest.warns(NuisanceWarning, match="batch has no effect"):
        MCPCA(3, random_state=0).fit(ContextMoments().update(X, y, batch=y))
    with pytest.warns(NuisanceWarning, match="covariates 'site' have no effect"):
        ContextMoments().update(X, y, covariates={"site": np.unique(y, return_inverse=True)[1]}).covariances()
    collinear = {"depth": depth, "again": 3 * depth + 7}
    for call in (
        lambda: ContextMoments().update(X, y, covariates=collinear).covariances(),
        lambda: context_covariances(X, y, covariates=collinear),
    ):
        with pytest.raises(ValueError, match="covariates 'depth', 'again' are collinear"):
            call()
    few = np.concatenate([np.flatnonzero(y == name)[:3] for name in np.unique(y)])
    with pytest.raises(ValueError, match="leaves no degree of freedom in 4 of 4 contexts"):
        ContextMoments().update(X[few], y[few], batch=["a", "b", "c"] * 4).covariances()


def test_moments_say_what_they_are_with(data):
    total = ContextMoments().update(data.X, data.y, **given(data))
    assert repr(total).endswith("360 rows, with batch and covariates 'age', 'depth', 'stage')")
    assert "A fit removes batch and covariates" in str(total)
    assert "with" not in repr(ContextMoments().update(data.X, data.y))


def test_the_rank_is_chosen_without_the_nuisance():
    """Noise, and a batch that moves all contexts: nothing is there but the batch."""
    rng = np.random.default_rng(0)
    y = np.repeat(["u", "v", "w"], 200)
    batch = np.tile(["a", "b"], 300)
    X = rng.standard_normal((600, 12)) + np.outer(batch == "b", 4 * rng.standard_normal(12))
    with_batch = ContextMoments().update(X, y, batch=batch)
    assert MCPCA(None, random_state=0).fit(ContextMoments().update(X, y)).n_components_ == 1
    with pytest.raises(NothingAboveNoiseError):
        MCPCA(None, random_state=0).fit(with_batch)


def test_one_degree_of_freedom_is_enough(rng):
    """Three rows of a context in two batches: what is left of the scatter is divided by 3 - 2."""
    X = rng.standard_normal((43, 5))
    y = np.repeat(["a", "few"], [40, 3])
    batch = np.r_[np.tile(["one", "two"], 20), ["one", "one", "two"]]
    S = ContextMoments().update(X, y, batch=batch).covariances().covariances
    d = X[40] - X[41]
    np.testing.assert_allclose(S[1], np.outer(d, d) / 2, atol=1e-12)
