"""Labels are kept as they are written; those that read as one, or as none, are told at every door."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from table_files import FEATURES, frame, planted

from mcpca import MCPCA, ContextMoments, DoubtfulLabelsWarning, context_covariances
from mcpca.cli import main
from mcpca.cli.tables import Reading, UnusableFileError, read_data

APART = r"differ only by blanks or case are kept apart: 'A' and 'A '"
NONE = r"'NA' reads as a missing label and is kept as a context of its own"


@pytest.fixture
def labels():
    """Four contexts: A, the same with a blank, B, and NA."""
    return pd.Series(planted()[1]).map({"c0": "A", "c1": "A ", "c2": "B", "c3": "NA"}).to_numpy(dtype=str)


DOORS = {
    "fit": lambda X, y: MCPCA(2, random_state=0).fit(X, y).contexts_,
    "dict": lambda X, y: MCPCA(2, random_state=0).fit({n: X[y == n] for n in np.unique(y).tolist()}).contexts_,
    "partial_fit": lambda X, y: MCPCA(2, random_state=0).partial_fit(X, y).contexts_,
    "covariances": lambda X, y: context_covariances(X, y).contexts,
    "fit_covariances": lambda X, y: (
        MCPCA(2, random_state=0)
        .fit_covariances([np.cov(X[y == n].T) for n in np.unique(y)], context_names=np.unique(y).tolist())
        .contexts_
    ),
    "update": lambda X, y: ContextMoments().update(X, y).contexts,
    "merge": lambda X, y: (
        ContextMoments()
        .update(X[np.isin(y, ["A", "B"])], y[np.isin(y, ["A", "B"])])
        .merge(ContextMoments().update(X[y == "A "], y[y == "A "]))
        .contexts
    ),
}


@pytest.mark.parametrize("door", DOORS)
def test_blanks_and_case_make_contexts_that_are_told(door, labels):
    X = planted()[0]
    y = np.where(labels == "NA", "a", labels)
    message = APART if door == "merge" else APART.replace("'A '", "'A ' and 'a'")
    with pytest.warns(DoubtfulLabelsWarning, match=message):
        names = DOORS[door](X, y)
    assert {"A", "A "} <= set(names.tolist())


@pytest.mark.parametrize("text", ["NA", "nan", "None", "<NA>"])
def test_missing_by_name_is_a_context_that_is_told(labels, text):
    y = np.where(labels == "NA", text, np.char.strip(labels)).astype(str)
    with pytest.warns(DoubtfulLabelsWarning, match=f"y: '{text}' reads as a missing label"):
        model = MCPCA(2, random_state=0).fit(planted()[0], y)
    assert text in model.contexts_.tolist()


def test_labels_that_differ_are_not_doubted():
    X, y = planted()
    with warnings.catch_warnings():
        warnings.simplefilter("error", DoubtfulLabelsWarning)
        MCPCA(2, random_state=0).fit(X, np.char.replace(y, "c3", "Nan Shan"))
        MCPCA(2, random_state=0).fit(X, pd.Series(y).str[1:].astype(int))


# Files -------------------------------------------------------------------------------------------------------------


def write(tmp_path, labels, name):
    """Write the labels in a format; return the paths and how to read them."""
    X = planted()[0]
    table = pd.DataFrame(X, columns=FEATURES).assign(group=labels)
    path, by_name = tmp_path / name, {"context": ("group",)}
    if name.endswith(".csv"):
        table.to_csv(path, index=False)
    elif name.endswith(".parquet"):
        table.to_parquet(path, index=False)
    elif name.endswith(".npz"):
        np.savez(path, X=X, group=labels)
    elif name.endswith(".h5ad"):
        import anndata

        obs = pd.DataFrame({"group": pd.Categorical(labels)}, index=[str(i) for i in range(len(X))])
        anndata.AnnData(X, obs=obs).write_h5ad(path)
    else:
        np.save(path, X)
        text = tmp_path / "labels.txt"
        text.write_text("\r\n".join(labels) + "\r\n", newline="")
        by_name = {"labels": text}
    return [path], by_name


@pytest.mark.parametrize("name", ["x.csv", "x.parquet", "x.npz", "x.h5ad", "x.npy"])
def test_every_format_keeps_labels_apart_and_says_so(tmp_path, labels, name):
    paths, reading = write(tmp_path, labels, name)
    data = read_data(paths, Reading(**reading))
    assert sorted(data.labels.categories) == ["A", "A ", "B", "NA"]
    assert data.labels.names().tolist() == labels.tolist()
    told = " ".join(data.oddities)
    assert "differ only by blanks or case are kept apart: 'A' and 'A '" in told
    assert "--na-values NA makes it missing" in told
    gone = Reading(**reading, na_values=("NA",))
    with pytest.raises(UnusableFileError, match=r"30 of 120 rows have no context \(empty, or one of --na-values\)"):
        read_data(paths, gone)
    kept = read_data(paths, Reading(**reading, na_values=("NA", "B"), drop_unlabelled=True))
    assert sorted(kept.labels.categories) == ["A", "A "]
    assert kept.n_rows == 60


@pytest.mark.parametrize("name", ["x.csv", "x.parquet", "x.npz", "x.h5ad", "x.npy"])
def test_empty_and_blank_labels_are_missing(tmp_path, labels, name):
    y = np.where(labels == "NA", "", np.where(labels == "A ", "  ", labels))
    paths, reading = write(tmp_path, y, name)
    with pytest.raises(UnusableFileError, match="60 of 120 rows have no context"):
        read_data(paths, Reading(**reading))
    data = read_data(paths, Reading(**reading, drop_unlabelled=True))
    assert data.labels.categories == ["A", "B"]


def test_missing_values_that_are_no_text_are_missing(tmp_path):
    """NaN among numbers that are labels is not the text "nan"."""
    X = planted()[0]
    year = np.where(np.arange(120) % 4 == 0, np.nan, 1800.0 + np.arange(120) % 3)
    pd.DataFrame(X, columns=FEATURES).assign(group=pd.array(year)).to_parquet(tmp_path / "x.parquet", index=False)
    import pyarrow as pa
    import pyarrow.parquet

    columns = {name: X[:, j] for j, name in enumerate(FEATURES)} | {"group": pa.array(year)}  # NaN, and not null
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "y.parquet")
    for name in ("x.parquet", "y.parquet"):
        data = read_data([tmp_path / name], Reading(context=("group",), drop_unlabelled=True))
        assert data.n_rows == 90
        assert len(data.labels.categories) == 3


def test_crossed_contexts_are_doubted_by_their_parts(tmp_path, labels):
    table = frame().assign(group=labels, sex=np.where(np.arange(120) % 2 == 0, "f", "m"))
    table.to_csv(tmp_path / "x.csv", index=False)
    data = read_data([tmp_path / "x.csv"], Reading(context=("group", "sex"), index="cell"))
    told = " ".join(data.oddities)
    assert "'A / f' and 'A  / f'" in told
    assert "'NA / f', 'NA / m' reads as a missing label" in told


def test_the_command_tells_once_and_follows_na_values(tmp_path, capsys, labels):
    path, out = tmp_path / "x.csv", tmp_path / "out"
    frame().assign(group=labels).to_csv(path, index=False)
    fit = ["fit", str(path), "-c", "group", "--index", "cell", "-r", "2", "--no-report", "--no-picture", "-q"]
    assert main([*fit, "-o", str(out)]) == 0
    err = capsys.readouterr().err
    assert err.count("kept apart") == 1
    assert err.count("reads as a missing label") == 1
    assert pd.read_csv(out / "loadings.csv", keep_default_na=False)["context"].tolist() == ["A", "A ", "B", "NA"]
    assert main([*fit, "--na-values", "NA", "--drop-unlabelled", "-o", str(tmp_path / "b"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["diagnostics"]["contexts"] == 3
    assert main(["doctor", str(path), "--na-values", "NA", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["command"].endswith("--na-values NA --drop-unlabelled")
    assert len(told["contexts"]["group"]) == 3


def test_numbers_that_mean_missing(tmp_path):
    table = frame()
    table.loc[3, "g1"] = -999
    table.to_csv(tmp_path / "x.csv", index=False)
    reading = {"context": ("group",), "index": "cell"}
    read_data([tmp_path / "x.csv"], Reading(**reading))
    with pytest.raises(UnusableFileError, match=r"1 of 120 rows has missing or infinite values.*'g1'"):
        read_data([tmp_path / "x.csv"], Reading(**reading, na_values=("-999.0",)))
