"""DataArrays of xarray: dimensions and coordinates in, the model of the plain array, DataArrays and Datasets out."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from mcpca import MCPCA
from mcpca.datasets import make_contexts

DATA = make_contexts(4, 6, 2, n_samples=30, noise=0.3, random_state=0)
X, Y = DATA.X, np.array(["DJF", "MAM", "JJA", "SON"])[DATA.y]
TIMES = pd.date_range("2000-01-01", periods=len(X))
WEEK = np.arange(len(X)) // 7 % 2
STATIONS = [f"station {j}" for j in range(6)]


def rows(data=X):
    coords = {"time": TIMES, "station": STATIONS, "season": ("time", Y), "week": ("time", WEEK)}
    coords |= {"height": ("station", np.arange(6.0)), "run": 7}
    return xr.DataArray(data, dims=("time", "station"), coords=coords, name="temperature")


def fields():
    """Return the same values as (time, lat, lon)."""
    coords = {"time": TIMES, "lat": [10.0, 20.0], "lon": [1.0, 2.0, 3.0], "season": ("time", Y)}
    return xr.DataArray(X.reshape(-1, 2, 3), dims=("time", "lat", "lon"), coords=coords)


@pytest.fixture(scope="module")
def plain():
    return MCPCA(2, random_state=0).fit(X, Y)


def same_model(one, other):
    for name in ("components_", "loadings_", "corrected_loadings_", "means_"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert list(one.contexts_) == list(other.contexts_)


def test_a_coordinate_names_the_contexts(plain):
    model = MCPCA(2, random_state=0).fit(rows(), y="season")
    same_model(model, plain)
    assert list(model.feature_names_in_) == STATIONS
    assert not hasattr(model, "label_columns_")
    same_model(MCPCA(2, random_state=0).fit(rows(), Y), plain)
    crossed = MCPCA(2, random_state=0).fit(rows(), y=["season", "week"])
    labels = [f"{s} / {t}" for s, t in zip(Y, WEEK, strict=True)]
    same_model(crossed, MCPCA(2, random_state=0).fit(X, labels))


def test_labels_of_a_dataarray_go_by_its_index(plain):
    labels = rows().season
    backwards = labels.isel(time=slice(None, None, -1))
    same_model(MCPCA(2, random_state=0).fit(rows(), labels), plain)
    same_model(MCPCA(2, random_state=0).fit(rows(), backwards), plain)
    same_model(MCPCA(2, random_state=0).fit(X, labels), plain)


def test_groups_batch_and_covariates_are_coordinates_too():
    depth = np.random.default_rng(0).standard_normal(len(X))
    da = rows().assign_coords(depth=("time", depth))
    model = MCPCA(2, random_state=0).fit(da, "season", batch="week", covariates="depth")
    same_model(model, MCPCA(2, random_state=0).fit(X, Y, batch=WEEK, covariates=depth))
    # Of a model without them, since groups are the same weeks.
    plain = MCPCA(2, random_state=0).fit(X, Y)
    halves = MCPCA(2, random_state=0).fit(da, "season").replicability(da, "season", 1, groups="week", rng=0)
    assert np.array_equal(halves.cosines, plain.replicability(X, Y, 1, groups=WEEK, rng=0).cosines)


def test_scores_keep_rows_and_their_coordinates(plain):
    model = MCPCA(2, random_state=0).fit(rows(), "season")
    for Z, expected in (
        (model.transform(rows()), plain.transform(X)),
        (model.transform(rows(), "season"), plain.transform(X, Y)),
        (model.transform(rows(), center="own"), plain.transform(X, center="own")),
    ):
        assert isinstance(Z, xr.DataArray)
        assert Z.dims == ("time", "mcpc")
        assert np.array_equal(Z.values, expected)
        assert list(Z.mcpc.values) == ["MCPC 1", "MCPC 2"]
        assert set(Z.coords) == {"time", "season", "week", "run", "mcpc"}
    assert Z.groupby("season").var("time").sizes == {"season": 4, "mcpc": 2}


def test_scores_and_rows_go_back_and_forth(plain):
    model = MCPCA(2, random_state=0).fit(rows(), "season")
    Z = model.transform(rows(), "season")
    back = model.inverse_transform(Z, "season")
    assert back.dims == ("time", "feature")
    assert list(back.feature.values) == STATIONS
    assert np.array_equal(back.values, plain.inverse_transform(plain.transform(X, Y), Y))


def test_features_go_by_their_coordinate(plain):
    model = MCPCA(2, random_state=0).fit(rows(), "season")
    mixed = rows()[:, ::-1]
    assert np.allclose(model.transform(mixed), plain.transform(X), rtol=1e-10)
    assert model.score(mixed, "season") == pytest.approx(plain.score(X, Y), rel=1e-12)
    with pytest.raises(ValueError, match=r"X lacks 2 of the 6 features of the fit: 'station 0', 'station 1'"):
        model.transform(rows()[:, 2:])


def test_without_coordinates_it_is_an_array(plain):
    bare = xr.DataArray(X, dims=("a", "columns"))
    model = MCPCA(2, random_state=0).fit(bare, Y)
    same_model(model, plain)
    assert not hasattr(model, "feature_names_in_")
    assert model.transform(bare).dims == ("a", "mcpc")


def test_stacked_dimensions_are_features_and_make_maps(plain):
    da = fields().stack(space=("lat", "lon"))
    model = MCPCA(2, random_state=0).fit(da, "season")
    same_model(model, plain)
    assert model.feature_names_in_[1] == (10.0, 2.0)
    maps = model.to_xarray(like=da).components.unstack("space")
    assert maps.dims == ("mcpc", "lat", "lon")
    assert np.array_equal(maps.sel(lat=20.0, lon=1.0), plain.components_[3])
    # Without like the levels have no names of their own.
    assert np.array_equal(model.to_xarray().components.sel(feature=(20.0, 1.0)), plain.components_[3])


def test_stacked_contexts_are_named_by_their_dimension(tmp_path):
    trials = X.reshape(4, 30, 6)
    da = xr.DataArray(
        trials, dims=("condition", "trial", "neuron"), coords={"condition": list("abcd"), "trial": range(30)}
    )
    stacked = da.stack(sample=("condition", "trial"))
    model = MCPCA(2, random_state=0).fit(stacked.transpose("sample", "neuron"), y="condition")
    plain = MCPCA(2, random_state=0).fit(dict(zip("abcd", trials, strict=True)))
    assert np.allclose(model.components_, plain.components_, rtol=1e-10)
    Z = model.transform(stacked.transpose("sample", "neuron")).unstack("sample")
    assert Z.sizes == {"mcpc": 2, "condition": 4, "trial": 30}
    # Contexts as a dict or a Dataset of DataArrays.
    dataset = xr.Dataset({name: da.sel(condition=name, drop=True) for name in "abcd"})
    for contexts in (dict(dataset.items()), dataset):
        same_model(MCPCA(2, random_state=0).fit(contexts), plain)
    scores = plain.transform(dict(dataset.items()))
    assert scores["b"].dims == ("trial", "mcpc")


def test_a_model_of_times_and_places_is_saved(tmp_path, plain):
    for da in (fields().stack(space=("lat", "lon")), rows().assign_coords(station=pd.date_range("2001", periods=6))):
        MCPCA(2, random_state=0).fit(da, "season").save(tmp_path / "model.mcpca")
        loaded = MCPCA.load(tmp_path / "model.mcpca")
        assert np.allclose(loaded.transform(da[:, ::-1]), plain.transform(X), rtol=1e-10)


def test_rows_on_dask_stay_there():
    dask = pytest.importorskip("dask.array")
    da = rows(dask.from_array(X, chunks=(50, -1)))
    model = MCPCA(2, random_state=0).fit(da, "season")
    same_model(model, MCPCA(2, random_state=0).fit(dask.from_array(X, chunks=(50, -1)), Y))
    Z = model.transform(da, "season")
    assert isinstance(Z.data, dask.Array)
    assert np.allclose(Z.values, MCPCA(2, random_state=0).fit(X, Y).transform(X, Y))
    assert list(Z.season.values) == list(Y)


def test_set_output_comes_first():
    model = MCPCA(2, random_state=0).set_output(transform="pandas").fit(rows(), "season")
    assert isinstance(model.transform(rows()), pd.DataFrame)


@pytest.mark.parametrize("noise", ["isotropic", "diagonal", "scaled", None])
def test_the_model_is_a_dataset(noise):
    solver = "mspm" if noise is None else "ml"
    model = MCPCA(2, solver=solver, noise=noise, random_state=0).fit(rows(), "season")
    ds = model.to_xarray()
    assert ds.sizes == {"feature": 6, "mcpc": 2, "context": 4}
    for name, attribute, dims in (
        ("components", "components_", ("feature", "mcpc")),
        ("projection", "projection_", ("mcpc", "feature")),
        ("loadings", "loadings_", ("context", "mcpc")),
        ("corrected_loadings", "corrected_loadings_", ("context", "mcpc")),
        ("means", "means_", ("context", "feature")),
        ("n_samples", "n_samples_per_context_", ("context",)),
    ):
        assert ds[name].dims == dims
        assert np.array_equal(ds[name], getattr(model, attribute))
    of_noise = {"diagonal": ("feature",), "scaled": ("context", "feature")}
    assert ds.noise_variance.dims == of_noise.get(noise, ("context",))
    assert (
        ds.loadings.sel(context="JJA", mcpc="MCPC 2").item() == model.loadings_[list(model.contexts_).index("JJA"), 1]
    )
    assert list(ds.feature.values) == STATIONS
    assert ds.attrs == {"solver": solver, "noise": noise or "none", "orthogonal": 0}
    without_rows = MCPCA(2, random_state=0).fit_covariances(DATA.covariances).to_xarray()
    assert not {"means", "n_samples"} & set(without_rows)
    assert "feature" not in without_rows.coords


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: MCPCA(2).fit(fields(), "season"),
            ValueError,
            r"X is a DataArray with the dimensions \('time', 'lat', 'lon'\); two are needed, rows first and features "
            r"second. If only 'time' are rows, pass X.stack\(features=\('lat', 'lon'\)\); if 'lon' alone are features, "
            r"X.stack\(rows=\('time', 'lat'\)\).transpose\(\), with y='time'",
        ),
        (lambda: MCPCA(2).fit(rows()[:, 0]), ValueError, r"the dimensions \('time',\); two are needed"),
        (
            lambda: MCPCA(2).fit(rows(), "saison"),
            ValueError,
            r"y='saison' is not a column of X, a DataArray, along 'time' \('station', 'height' go with 'station': "
            r"X.transpose\(\) exchanges them\), which has 'time', 'season', 'week'; did you mean 'season'\?",
        ),
        (lambda: MCPCA(2).fit(rows().T, "season"), ValueError, r"along 'station' \('time', 'season', 'week' go with"),
        (lambda: MCPCA(2).fit(rows(), Y[:-1]), ValueError, r"y has shape \(119,\) and X has 120 rows"),
        (
            lambda: MCPCA(2).fit(rows(), rows().season.assign_coords(time=TIMES + pd.Timedelta(days=1))),
            ValueError,
            r"y has an index with other names than the rows of X: 1 of 120 rows have no value",
        ),
        (
            lambda: MCPCA(2).fit(rows(), "season").to_xarray(like=X),
            TypeError,
            r"like is a ndarray; pass a DataArray with rows and the features of the fit",
        ),
        (
            lambda: MCPCA(2).fit(rows(), "season").to_xarray(like=rows()[:, :3]),
            ValueError,
            r"like lacks 3 of the 6 features of the fit",
        ),
        (
            lambda: MCPCA(2).fit(X, Y).to_xarray(like=rows()[:, :3]),
            ValueError,
            r"like has 3 features, and the model has 6",
        ),
        (
            lambda: MCPCA(2).fit(rows(), "season").to_xarray(like=rows().rename(station="mcpc")),
            ValueError,
            r"like calls its features 'mcpc'",
        ),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
