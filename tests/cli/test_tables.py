"""Files of every format give the same rows; wrong ones give one clear sentence."""

import csv
import gzip
import re
import warnings
import zipfile

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from table_files import FEATURES, N, P, exact_csv, frame, planted, truncated_gzip, write_all, write_folder

from mcpca import MCPCA
from mcpca.cli.tables import Reading, UnusableFileError, read_data, write_table
from mcpca.cli.tables.dialect import is_number
from mcpca.cli.tables.kinds import file_kind
from mcpca.cli.tables.labels import MISSING, Labels, crossed_labels, labels_of_texts


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("formats")
    return folder, write_all(folder)


NAMES = [
    *("plain.csv", "packed.csv.gz", "no-suffix", "continental.csv", "pandas.csv", "r.tsv", "headless.csv", "wide.csv"),
    *("table.parquet", "cells.h5ad", "cells.zarr", "arrays.npz", "sparse.npz", "rows.npy"),
]


def dense(X):
    return X.toarray() if scipy.sparse.issparse(X) else np.asarray(X)


@pytest.mark.parametrize("name", NAMES)
def test_every_format_gives_the_same_rows(files, name):
    folder, options = files
    X, y = planted()
    data = read_data([folder / name], Reading(**options[name]))
    np.testing.assert_array_equal(dense(data.X), X)
    assert data.labels.names().tolist() == y.tolist()
    assert data.labels.categories == ["c0", "c1", "c2", "c3"]
    expected = {"headless.csv": [str(j + 3) for j in range(P)], "sparse.npz": None, "rows.npy": None}
    assert data.feature_names == expected.get(name, FEATURES)
    numbered = [str(i + 1) for i in range(len(y))]
    assert data.row_names == (numbered if name in ("sparse.npz", "rows.npy") else frame()["cell"].tolist())
    assert data.in_memory


@pytest.mark.parametrize("name", ["plain.csv", "packed.csv.gz", "table.parquet", "cells.h5ad", "cells.zarr"])
def test_beyond_the_bound_of_memory_rows_stay_in_the_file(files, name):
    folder, options = files
    X, y = planted()
    data = read_data([folder / name], Reading(**options[name], max_bytes=100, features=tuple(FEATURES[:5])))
    assert not data.in_memory
    assert data.feature_names == FEATURES[:5]
    np.testing.assert_array_equal(dense(data.source.gather(slice(0, len(y)))), X[:, :5])
    streamed = MCPCA(2, random_state=0).fit(data.source, data.labels)
    inside = MCPCA(2, random_state=0).fit(X[:, :5], y)
    np.testing.assert_allclose(streamed.components_, inside.components_, atol=1e-8)
    np.testing.assert_allclose(streamed.loadings_, inside.loadings_, atol=1e-8)


@pytest.mark.parametrize("max_bytes", [2**30, 100])
def test_rows_and_contexts_are_left_out_by_request(tmp_path, max_bytes):
    table = frame()
    table.loc[:3, "group"] = None
    table.loc[4, "group"] = "rare"
    table.to_csv(tmp_path / "x.csv", index=False)
    asked = Reading(context=("group",), index="cell", max_bytes=max_bytes)
    with pytest.raises(UnusableFileError, match=r"4 of 120 rows have no context .* --drop-unlabelled"):
        read_data([tmp_path / "x.csv"], asked)
    data = read_data(
        [tmp_path / "x.csv"],
        Reading(context=("group",), index="cell", max_bytes=max_bytes, drop_unlabelled=True, min_samples=2),
    )
    np.testing.assert_array_equal(data.source.gather(slice(0, 115)), planted()[0][5:])
    assert data.row_names == table["cell"].tolist()[5:]
    assert data.labels.names().tolist() == table["group"].tolist()[5:]
    assert data.dropped == {"rare": 1}
    assert data.notes == ["4 rows without a context.", "1 context with fewer than 2 rows: 'rare' (1)."]


def test_a_folder_has_one_context_per_file(tmp_path):
    write_folder(tmp_path)
    X, y = planted()
    data = read_data([tmp_path], Reading())
    order = np.argsort(y, kind="stable")
    np.testing.assert_array_equal(data.X, X[order])
    assert data.labels.names().tolist() == sorted(y.tolist())
    assert data.row_names[0] == "c0:1"
    assert data.row_names[N] == "c1:1"
    assert data.notes == [f"'README.txt' in {tmp_path}: not named like tables."]
    listed = read_data(sorted(tmp_path.glob("c*")), Reading())
    np.testing.assert_array_equal(listed.X, data.X)
    part = read_data([tmp_path], Reading(max_bytes=4000))
    assert not part.in_memory  # the first two files are in memory, the others are not
    np.testing.assert_array_equal(part.source.gather(slice(0, len(y))), data.X)


def test_files_with_a_column_of_contexts_belong_together(tmp_path):
    table = frame()
    table[:50].to_csv(tmp_path / "part-1.csv", index=False)
    table[50:].to_parquet(tmp_path / "part-2.parquet", index=False)
    data = read_data([tmp_path], Reading(context=("group",), index="cell"))
    np.testing.assert_array_equal(data.X, planted()[0])
    assert data.labels.names().tolist() == table["group"].tolist()
    assert data.row_names == table["cell"].tolist()


def test_arrays_by_context(tmp_path):
    X, y = planted()
    np.savez(tmp_path / "x.npz", genes=np.array(FEATURES), **{name: X[y == name] for name in ("c2", "c0", "c1")})
    data = read_data([tmp_path / "x.npz"], Reading(drop=("g1",)))
    assert data.labels.categories == ["c0", "c1", "c2"]
    assert data.feature_names == [name for name in FEATURES if name != "g1"]
    for i, name in enumerate(["c0", "c1", "c2"]):
        np.testing.assert_array_equal(data.X[data.labels.codes == i], np.delete(X[y == name], 1, axis=1))


def test_anndata_layers_obsm_and_the_order_of_categories(files, tmp_path):
    import anndata

    folder, _ = files
    X, _ = planted()
    layer = read_data([folder / "cells.h5ad"], Reading(context=("group",), layer="dense"))
    np.testing.assert_array_equal(layer.X, X)
    scores = read_data([folder / "cells.zarr"], Reading(context=("group",), obsm="X_pca"))
    np.testing.assert_array_equal(scores.X, X[:, :3])
    assert scores.feature_names == ["X_pca1", "X_pca2", "X_pca3"]
    adata = anndata.read_h5ad(folder / "cells.h5ad")
    adata.obs["group"] = adata.obs["group"].cat.reorder_categories(["c3", "c0", "c2", "c1"])
    adata.write_h5ad(tmp_path / "x.h5ad")
    assert read_data([tmp_path / "x.h5ad"], Reading(context=("group",))).labels.categories == ["c3", "c0", "c2", "c1"]


def test_features_are_found_by_pattern_list_and_name(files, tmp_path):
    folder, _ = files
    (tmp_path / "names.txt").write_text("g5\n\ng0\n")
    base = {"context": ("group",), "index": "cell"}
    for asked, names in (
        ({"features": ("g[1-3]",)}, ["g1", "g2", "g3"]),
        ({"features": ("g*",), "drop": ("g[02]",)}, ["g1", "g3", "g4", "g5"]),
        ({"features": (f"@{tmp_path / 'names.txt'}",)}, ["g0", "g5"]),
    ):
        for name in ("plain.csv", "arrays.npz"):
            data = read_data([folder / name], Reading(**base, **asked))
            assert data.feature_names == names
            np.testing.assert_array_equal(data.X, planted()[0][:, [FEATURES.index(n) for n in names]])
    in_order = read_data([folder / "plain.csv"], Reading(**base), features=["g4", "g0"], need_context=False)
    np.testing.assert_array_equal(in_order.X, planted()[0][:, [4, 0]])
    assert in_order.notes == ["4 columns that the model does not have: 'g1', 'g2', 'g3', 'g5'."]
    with pytest.raises(UnusableFileError, match=r"--features 'h\*' names no column; it has 'cell', 'group', 'g0'"):
        read_data([folder / "plain.csv"], Reading(**base, features=("h*",)))


def test_labels_cross_and_sort_as_people_do():
    assert labels_of_texts(["b10", "b2", "a", "B"]).categories == ["B", "a", "b2", "b10"]
    left, right = labels_of_texts(["x", "y", "NA", "x"], ["NA"]), labels_of_texts([1820, 1800, 1800, None])
    both = crossed_labels([left, right])
    assert both.names().tolist() == ["x / 1820", "y / 1800", "", ""]
    assert both.counts().tolist() == [1, 1]
    assert Labels(np.array([0, -1]), ["a"]).names().tolist() == ["a", ""]


def test_numbers_survive_text_and_parquet(tmp_path, rng):
    values = np.concatenate([rng.normal(size=50), [1e-300, -0.0, 1 / 3, 1e22, np.nan]])
    single = values.astype(np.float32)
    single[50] = 1e-40
    columns = {"name": [f'a"{i},\n' for i in range(55)], "double": values, "single": single, "n": np.arange(55)}
    for format in ("csv", "tsv", "parquet"):
        path = tmp_path / f"x.{format}"
        write_table(columns, path, format)
        back = pd.read_parquet(path) if format == "parquet" else exact_csv(path, sep="," if format == "csv" else "\t")
        assert back["name"].tolist() == columns["name"]
        np.testing.assert_array_equal(back["double"], values)
        np.testing.assert_array_equal(back["single"].astype(np.float32), single)
        np.testing.assert_array_equal(back["n"], columns["n"])


def test_lines_before_and_within_the_header(tmp_path):
    text = frame().rename(columns={"g0": "g\n0"}).to_csv(index=False)
    (tmp_path / "x.csv").write_text("\n\n" + text)
    data = read_data([tmp_path / "x.csv"], Reading(context=("group",), index="cell"))
    np.testing.assert_array_equal(data.X, planted()[0])
    assert data.feature_names[0] == "g\n0"


def test_marks_of_encoding(tmp_path):
    frame().rename(columns={"g0": "größe"}).to_csv(tmp_path / "x.csv", index=False, encoding="utf-8-sig")
    data = read_data([tmp_path / "x.csv"], Reading(context=("group",), index="cell"))
    assert data.feature_names[0] == "größe"
    assert data.row_names[0] == "cell0"
    frame().rename(columns={"g0": "größe"}).to_csv(tmp_path / "y.csv", index=False, encoding="latin-1")
    data = read_data([tmp_path / "y.csv"], Reading(context=("group",), index="cell", encoding="latin-1"))
    assert data.feature_names[0] == "größe"


def test_parquet_of_many_types(tmp_path):
    import decimal

    table = frame().assign(
        flag=np.arange(120) % 2 == 0,
        price=[decimal.Decimal(i) / 4 for i in range(120)],
        small=np.arange(120, dtype=np.int8) % 7,
        lists=[[1, 2]] * 120,
        group=pd.Categorical(frame()["group"]),
    )
    table.to_parquet(tmp_path / "x.parquet")
    asked = {"context": ("group",), "index": "cell"}
    with pytest.raises(UnusableFileError, match="1 column of text among the features: 'lists'"):
        read_data([tmp_path / "x.parquet"], Reading(**asked))
    with pytest.raises(UnusableFileError, match="its column 'lists' holds lists, which are not text"):
        read_data([tmp_path / "x.parquet"], Reading(context=("lists",), index="cell", drop=("group",)))
    data = read_data([tmp_path / "x.parquet"], Reading(**asked, drop=("lists",)))
    np.testing.assert_array_equal(data.X[:, 6:], np.c_[table["flag"], np.arange(120) / 4, table["small"]])
    table["flag"] = [None if i == 3 else True for i in range(120)]
    table.to_parquet(tmp_path / "x.parquet")
    with pytest.raises(UnusableFileError, match=r"first in row 4, column 'flag', in 1 column: 'flag' \(1\)"):
        read_data([tmp_path / "x.parquet"], Reading(**asked, drop=("lists",)))
    frame()[FEATURES].astype(np.float32).assign(y=planted()[1]).to_parquet(tmp_path / "single.parquet")
    assert read_data([tmp_path / "single.parquet"], Reading(context=("y",))).X.dtype == np.float32


def test_highly_variable_genes_and_raw_counts(tmp_path, rng):
    import anndata

    counts = rng.poisson(30, size=(40, P)).astype(np.float32)
    obs = pd.DataFrame({"type": list("ab") * 20}, index=[str(i) for i in range(40)])
    var = pd.DataFrame(
        {"highly_variable": [True, False] * 3, "mine": [True] + [False] * 5, "n": range(6)}, index=FEATURES
    )
    adata = anndata.AnnData(scipy.sparse.csr_matrix(counts), obs=obs, var=var, layers={"log": np.log1p(counts)})
    for name in ("a.h5ad", "b.h5ad"):
        adata.write_h5ad(tmp_path / name)
    base = {"context": ("type",)}
    data = read_data([tmp_path / "a.h5ad"], Reading(**base))
    assert data.feature_names == FEATURES[::2]
    assert data.notes == ["3 of 6 features by var['highly_variable']; --mask-var all takes all."]
    assert data.oddities[0].startswith("the values look like raw counts; --normalize log1p")
    for asked, names in (
        ({"mask_var": "all"}, FEATURES),
        ({"mask_var": "mine"}, ["g0"]),
        ({"features": ("g1", "g2")}, ["g1", "g2"]),
        ({"features": ("g1", "g2"), "mask_var": "highly_variable", "max_bytes": 0}, ["g2"]),
    ):
        found = read_data([tmp_path / "a.h5ad"], Reading(**base, layer="log", **asked))
        assert found.feature_names == names
        assert found.oddities == []
        columns = [FEATURES.index(name) for name in names]
        np.testing.assert_allclose(dense(found.source.gather(slice(0, 40))), np.log1p(counts)[:, columns])
    twice = Reading(**base, allow_duplicates=True)
    assert read_data([tmp_path / "a.h5ad", tmp_path / "b.h5ad"], twice).X.shape == (80, 3)
    with pytest.raises(UnusableFileError, match="its column 'n' of var is not true or false"):
        read_data([tmp_path / "a.h5ad"], Reading(**base, mask_var="n"))
    with pytest.raises(UnusableFileError, match="has no column of var"):
        read_data([tmp_path / "a.h5ad"], Reading(**base, mask_var="hvg"))


def test_one_context_is_told(tmp_path):
    frame().assign(group="all").to_csv(tmp_path / "x.csv", index=False)
    data = read_data([tmp_path / "x.csv"], Reading(context=("group",), index="cell"))
    assert data.oddities == ["there is only one context, 'all', for which MCPCA is PCA."]


def test_parts_of_one_table_may_have_the_same_name(tmp_path):
    for year, rows in (("2019", frame()[:50]), ("2020", frame()[50:])):
        (tmp_path / year).mkdir()
        rows.to_csv(tmp_path / year / "x.csv", index=False)
    paths = [tmp_path / "2019" / "x.csv", tmp_path / "2020" / "x.csv"]
    np.testing.assert_array_equal(read_data(paths, Reading(context=("group",), index="cell")).X, planted()[0])


def test_old_anndata_files_are_read(tmp_path):
    """Before anndata 0.7 obs and var were tables of HDF5 itself, and sparse matrices had another mark."""
    import h5py

    X, y = planted()
    index = np.array([f"cell{i}".encode() for i in range(len(y))])
    obs = np.zeros(len(y), dtype=[("index", "S10"), ("group", "S5")])
    obs["index"], obs["group"] = index, y.astype("S")
    var = np.zeros(P, dtype=[("index", "S5")])
    var["index"] = FEATURES
    with h5py.File(tmp_path / "old.h5ad", "w") as file:
        file["X"], file["obs"], file["var"] = X, obs, var
    data = read_data([tmp_path / "old.h5ad"], Reading(context=("group",), drop=("g5",)))
    np.testing.assert_array_equal(data.X, X[:, :5])
    assert data.labels.names().tolist() == y.tolist()
    assert data.row_names[:2] == ["cell0", "cell1"]
    assert data.feature_names == FEATURES[:5]


@pytest.mark.parametrize("max_bytes", [2**30, 100])
def test_columns_that_count_rows_are_noticed(tmp_path, max_bytes):
    table = frame().assign(number=np.arange(120) * 2, falls=-np.arange(120), halves=np.arange(120) / 2)
    table.to_csv(tmp_path / "x.csv", index=False)
    data = read_data([tmp_path / "x.csv"], Reading(context=("group",), index="cell", max_bytes=max_bytes))
    assert data.oddities == [
        "the column 'number' looks like row numbers; if it is not a measurement, leave it out with --drop."
    ]
    several = [tmp_path / "first.csv", tmp_path / "second.csv"]
    for path, part in zip(several, (table[:60], table[60:]), strict=True):
        part.to_csv(path, index=False)
    reading = Reading(context=("group",), index="cell", max_bytes=max_bytes)
    assert read_data(several, reading).oddities == data.oddities
    assert read_data(several, reading, features=data.feature_names).oddities == []  # of a model that has them
    table.loc[119, "number"] = 0
    table.to_csv(tmp_path / "x.csv", index=False)
    assert read_data([tmp_path / "x.csv"], Reading(context=("group",), index="cell")).oddities == []
    table[60:].to_csv(several[1], index=False)
    assert read_data(several, reading).oddities == []  # it does not rise in all files


def test_progress_is_told_within_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("mcpca.cli.tables.delimited._BATCH_BYTES", 2000)
    monkeypatch.setattr("mcpca.cli.tables.delimited._MOST_BATCH_BYTES", 2000)
    for name in ("x.csv", "y.csv.gz"):
        pd.concat([frame()] * 20).to_csv(tmp_path / name, index=False)
    told = []
    read_data(
        [tmp_path / "x.csv", tmp_path / "y.csv.gz"],
        Reading(context=("group",), index="cell", allow_duplicates=True),
        report=lambda *stage: told.append(stage),
    )
    shares = [done for _, done, _ in told]
    assert {(stage, total) for stage, _, total in told} == {("reading", 200)}
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] == 200
    assert len({share for share in shares if 0 < share < 100}) > 2


# Wrong files -------------------------------------------------------------------------------------------------------

HEAD = "group,a,b\n"
ROWS = "".join(f"{'xy'[i % 2]},{i}.5,{i * i}\n" for i in range(300))
WRONG = {
    "cut-short": (HEAD + ROWS + "x,1\n", r"line 302 has 2 cells where the header has 3 \('x,1'\)"),
    "mixed delimiters": (
        HEAD + "x,1,2\ny;3;4\n" * 5,
        "mixed delimiters: line 1 is separated by commas and line 3 by se",
    ),
    "mixed later": (HEAD + ROWS + "x;1;2\n", r"line 302 has 1 cell where the header has 3 \('x;1;2'\): another"),
    "ragged": (HEAD + "x,1,2\nx,1\nx,1,2\nx,1,2\n", r"line 3 has 2 cells where the header has 3 .*'x,1'"),
    "no header": (
        "x,0.5,1.5\n" + "y,2.5,1.0\n" * 4,
        r"has no header: its first line is numbers \('0.5', '1.5'\).*--no-h",
    ),
    "text column": (
        "group,a,note\n" + "x,1,fine\ny,2,bad\n" * 4,
        r"1 column of text among the features: 'note'.*--drop note",
    ),
    "text later": (HEAD + ROWS + "x,1,oops\n", r"line 302 has 'oops' in column 'b', which is otherwise numbers"),
    "twice": ("group,a,a\nx,1,2\ny,1,2\n", r"1 column name more than once: 'a' .columns 2 and 3.; rename"),
    "ragged after a text": ('group,a,note\nx,1,"two\nlines"\ny,1\n', r"line 4 has 2 cells where the header has 3"),
    "unnamed": ("group,a,\nx,1,2\ny,1,2\n", "has no name for column 3 in its header"),
    "missing": (
        HEAD + "x,1,2\ny,,4\nx,NA,inf\n",
        r"2 of 3 rows have missing or .* first in row 2 .line 3, column 'a'., in 2 columns: 'a' \(2\), 'b' \(1\)",
    ),
    "decimal commas": ("group;a;b\nx;1,5;2\ny;2,5;3\n", r"decimal commas \('1,5' in column 'a'\); pass --decimal ','"),
    "header only": (HEAD, "a header but no rows"),
    "blank": ("\n\n", "only empty lines"),
    "no column": (
        "Group,a\nx,1\ny,2\n",
        r"no column \(--context\) 'group'; did you mean 'Group'\? it has 'Group', 'a'",
    ),
    "thousands": ('group;a\nx;"1,234"\ny;2\n', r"commas between thousands \('1,234' in column 'a'\)"),
    "runs of spaces": ("group  a  b\nx  1  2\ny 1  3\n", "separated by runs of spaces"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_texts_are_named(tmp_path, case):
    content, message = WRONG[case]
    path = tmp_path / "wrong.csv"
    path.write_text(content)
    with pytest.raises(UnusableFileError, match=f"^{re.escape(str(path))}: .*{message}"):
        read_data([path], Reading(context=("group",)))
    (tmp_path / "packed").write_bytes(gzip.compress(content.encode()))
    with pytest.raises(UnusableFileError, match=message):
        read_data([tmp_path / "packed"], Reading(context=("group",)))


def npz(path, **arrays):
    np.savez(path, **arrays)


def make_wrong(tmp_path):
    """Return {name: (path, message)} of files that are damaged, foreign or dangerous."""
    import anndata
    import h5py

    X, y = planted()
    np.savez(tmp_path / "pickle.npz", X=X, group=y.astype(object))
    np.save(tmp_path / "pickle.npy", y.astype(object))
    truncated_gzip(tmp_path / "half.csv.gz")
    (tmp_path / "latin.csv").write_bytes("group,größe\nx,1\ny,2\n".encode("latin-1"))
    (tmp_path / "nul.csv").write_bytes(b"group,a\nx,\0\n")
    whole = (tmp_path / "pickle.npz").read_bytes()
    (tmp_path / "half.npz").write_bytes(whole[: len(whole) // 2])
    np.save(tmp_path / "whole.npy", X)
    (tmp_path / "half.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:500])
    np.save(tmp_path / "cube.npy", np.zeros((2, 3, 4)))
    frame().to_parquet(tmp_path / "whole.parquet")
    (tmp_path / "half.parquet").write_bytes((tmp_path / "whole.parquet").read_bytes()[:2000])
    anndata.AnnData(X, obs=pd.DataFrame({"type": y}, index=[str(i) for i in range(len(y))])).write_h5ad(
        tmp_path / "a.h5ad"
    )
    (tmp_path / "half.h5ad").write_bytes((tmp_path / "a.h5ad").read_bytes()[:4000])
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = X
    with zipfile.ZipFile(tmp_path / "book.xlsx", "w") as file:
        file.writestr("xl/workbook.xml", "")
    with zipfile.ZipFile(tmp_path / "some.zip", "w") as file:
        file.writestr("a.csv", "x")
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / "packed.npy").write_bytes(gzip.compress((tmp_path / "whole.npy").read_bytes()))
    (tmp_path / "nothing").mkdir()
    nan = X.copy()
    nan[5, 2] = np.nan
    np.savez(tmp_path / "nan.npz", X=nan, group=y, genes=np.array(FEATURES))
    MCPCA(2, random_state=0).fit(X, y).save(tmp_path / "model.mcpca")
    return {
        "pickle.npz": r"'group' can only be read by pickle, which can run code: refused",
        "pickle.npy": r"can only be read by pickle, which can run code: refused",
        "half.csv.gz": "is truncated or damaged gzip data .*download it again",
        "latin.csv": r"is not in the encoding utf-8 \(byte 0xf6\); pass --encoding",
        "nul.csv": "is a binary file of no known format",
        "half.npz": "is a truncated or damaged zip file",
        "half.npy": "is a truncated or damaged .npy",
        "cube.npy": "holds 2 x 3 x 4 numbers; rows are a matrix of numbers",
        "half.parquet": "is a truncated or damaged Parquet file",
        "half.h5ad": "is a truncated or damaged h5ad file",
        "a.h5ad": r"has no column of obs \(--context\) 'group'; it has 'type'",
        "other.h5": "is not an AnnData: it lacks obs and var; it has 'x'",
        "book.xlsx": "is a truncated or damaged workbook",
        "some.zip": r"is a zip file with 'a.csv' in it; unpack it first",
        "empty.csv": r"is empty \(0 bytes\)",
        "packed.npy": "holds npy packed by gzip; unpack it first",
        "nothing": "is a folder without tables .*there is nothing in it",
        "nan.npz": "has 1 missing or infinite value in rows 1 to 120, the first in row 6, 'g2'",
        "model.mcpca": "is a fitted model and has no rows",
        "whole.cvs": "there is no such file",
        "whole.npz": "there is no such file; did you mean 'whole.npy'",
    }


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wrong")
    return folder, make_wrong(folder)


@pytest.mark.parametrize(
    "name",
    [
        *("pickle.npz", "pickle.npy", "half.csv.gz", "latin.csv", "nul.csv", "half.npz", "half.npy", "cube.npy"),
        *("half.parquet", "half.h5ad", "a.h5ad", "other.h5", "book.xlsx", "some.zip", "empty.csv", "packed.npy"),
        *("nothing", "nan.npz", "model.mcpca", "whole.cvs", "whole.npz"),
    ],
)
def test_damaged_foreign_and_dangerous_files_are_named(wrong, name):
    folder, messages = wrong
    labels = {"labels": folder / "pickle.npy"} if name == "pickle.npy" else {}
    with pytest.raises(UnusableFileError, match=messages[name]):
        read_data([folder / name], Reading(context=() if name == "nothing" else ("group",), **labels))


def test_pickles_are_not_run(tmp_path):
    """An object that leaves a trace when it is unpickled leaves none."""

    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "trace"), "w"))

    np.savez(tmp_path / "x.npz", X=np.eye(3), group=np.array([Trap(), 1, 2], dtype=object))
    with pytest.raises(UnusableFileError, match="refused"):
        read_data([tmp_path / "x.npz"], Reading(context=("group",)))
    assert not (tmp_path / "trace").exists()


def test_damage_anywhere_is_refused_or_harmless(files, tmp_path):
    """Bytes that were lost or changed at random end in one kind of error, or in rows."""
    folder, options = files
    rng = np.random.default_rng(0)
    refused = 0
    for name in ("plain.csv", "packed.csv.gz", "table.parquet", "cells.h5ad", "arrays.npz", "rows.npy"):
        whole = (folder / name).read_bytes()
        for trial in range(12):
            damaged = bytearray(whole)
            # The library of HDF5 itself can crash on changed bytes, against which nothing helps: it only loses some.
            for place in rng.integers(len(whole) if trial % 2 else 400, size=0 if name == "cells.h5ad" else 5):
                damaged[place] = rng.integers(256)
            if trial % 3 == 0 or name == "cells.h5ad":
                damaged = damaged[: rng.integers(len(whole))]
            (tmp_path / name).write_bytes(bytes(damaged))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of anndata about files that look old
                try:
                    data = read_data([tmp_path / name], Reading(**options[name]))
                except UnusableFileError:
                    refused += 1
                    continue
            assert data.n_rows == data.source.shape[0]
    assert refused > 40


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff"), min_size=1, max_size=8)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_table_that_is_written_is_read(tmp_path, data):
    """Names, labels and notes of any characters; any delimiter; any numbers; in memory and streamed."""
    word = texts.map(str.strip).filter(lambda text: text and text not in MISSING and not is_number(text, "."))
    p, n = data.draw(st.integers(1, 4)), data.draw(st.integers(2, 6))
    columns = data.draw(st.lists(word, min_size=p + 2, max_size=p + 2, unique=True))
    numbers = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=p, max_size=p)
    X = data.draw(st.lists(numbers, min_size=n, max_size=n))
    y, notes = (data.draw(st.lists(text, min_size=n, max_size=n)) for text in (word, texts | st.just('a\nb,;|\t"')))
    with (tmp_path / "x.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=data.draw(st.sampled_from(",\t;|")))
        writer.writerow(columns)
        writer.writerows([y[i], notes[i], *X[i]] for i in range(n))
    asked = Reading(context=(columns[0],), drop=(columns[1],), max_bytes=data.draw(st.sampled_from([0, 2**20])))
    found = read_data([tmp_path / "x.csv"], asked)
    np.testing.assert_array_equal(found.source.gather(slice(0, n)), np.array(X))
    assert found.labels.names().tolist() == y
    assert found.feature_names == columns[2:]


@pytest.mark.parametrize("header", [True, False])
def test_a_million_columns_are_refused_quickly(tmp_path, header):
    path = tmp_path / "wide.csv"
    line = ",".join(f"v{i}" for i in range(10**6)) if header else ",".join("0" * 10**6)
    path.write_text(line + "\n" + ",".join("1" * 10**6) + "\n")
    with pytest.raises(UnusableFileError, match="has 1,000,000 columns, and tables are read up to 100,000; transpose"):
        read_data([path], Reading(context=("v0",), header=header))


def test_labels_that_do_not_fit_the_rows(files, tmp_path):
    folder, _ = files
    (tmp_path / "header.txt").write_text("group\n" + (folder / "labels.txt").read_text())
    for labels, message in (
        (tmp_path / "header.txt", r"121 labels for 120 rows; write one per row, without a header"),
        (folder / "rows.npy", r"holds 120 x 6 numbers; labels are a list"),
        (folder / "table.parquet", "is a table; name its column of contexts with --context"),
        (tmp_path / "nothing.txt", "there is no such file"),
    ):
        with pytest.raises(UnusableFileError, match=message):
            read_data([folder / "rows.npy"], Reading(labels=labels))
    from_npy = read_data([folder / "rows.npy"], Reading(labels=folder / "labels.npy"))
    assert from_npy.labels.names().tolist() == planted()[1].tolist()


def test_files_of_a_folder_must_share_their_features(tmp_path):
    table = frame()
    table[FEATURES].to_csv(tmp_path / "a.csv", index=False)
    table[FEATURES[1:]].to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(UnusableFileError, match=r"b\.csv: has no columns for the features 'g0'"):
        read_data([tmp_path], Reading())
    table[[*FEATURES]].assign(extra=1.0).to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(UnusableFileError, match=r"b\.csv: has 'extra' in addition to the features of .*a\.csv"):
        read_data([tmp_path], Reading())
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(table[FEATURES][1:].to_csv(index=False).encode()))
    with pytest.raises(UnusableFileError, match=r"a\.csv\.gz: gives a context the same name, 'a', as .*a\.csv does"):
        read_data([tmp_path], Reading())


def test_quoted_line_ends_and_delimiters_within_texts(tmp_path):
    table = frame()
    table["sentence"] = [f'He said: "yes,\nand no; {i}"\u2028\x0c' for i in range(len(table))]
    table.to_csv(tmp_path / "x.csv", index=False)
    data = read_data([tmp_path / "x.csv"], Reading(context=("group",), index="cell", drop=("sentence",)))
    np.testing.assert_array_equal(data.X, planted()[0])


def test_content_decides_and_not_the_name(files, tmp_path):
    folder, _ = files
    for name, format in (
        ("table.parquet", "Parquet"),
        ("cells.h5ad", "h5ad"),
        ("arrays.npz", "npz"),
        ("rows.npy", "npy"),
    ):
        disguised = tmp_path / f"{name}.csv"
        disguised.write_bytes((folder / name).read_bytes())
        assert file_kind(disguised).format == format
