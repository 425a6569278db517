"""Genes x samples with a sheet of samples: ``--transpose``, and contexts that are matched by name."""

import io
import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from table_files import FEATURES, frame, planted

from mcpca.cli import main
from mcpca.cli.tables import Reading, UnusableFileError, read_data

QUICK = ("-r", "2", "--no-report", "--no-picture", "--no-context-test")


def turned():
    """Return the planted table as genes x samples."""
    return frame().set_index("cell")[FEATURES].T.rename_axis("gene")


def sheet(seed=1, **more):
    """Return the samples in another order, with columns before and after their names."""
    table = frame()[["cell", "group"]].rename(columns={"group": "tissue", "cell": "geo_accession"})
    table.insert(0, "title", [f"sample {i}" for i in range(len(table))])
    table["age"] = np.arange(len(table)) % 7
    table["run"] = [f"r{i % 3}" for i in range(len(table))]
    return table.assign(**more).sample(frac=1, random_state=seed)


def write_form(folder, form):
    table = turned()
    if form == "parquet":
        table.to_parquet(folder / "x.parquet")
        return folder / "x.parquet", {}
    if form == "xlsx":
        pytest.importorskip("openpyxl")
        table.to_excel(folder / "x.xlsx")
        return folder / "x.xlsx", {}
    path = folder / "x.tsv"
    text = table.to_csv(sep="\t", decimal="," if form == "decimal" else ".")
    if form == "geo":
        text = '!Series_title\t"a"\n' * 70 + "!series_matrix_table_begin\n" + text + "!series_matrix_table_end\n"
    if form == "excel's":
        text = text.replace("\n", "\t\t\n") + "\t" * (len(table.columns) + 2) + "\n"
    path.write_text(text)
    return path, {"decimal": {"decimal": ","}, "geo": {"comment": "!"}}.get(form, {})


def check_equal(data):
    X, y = planted()
    np.testing.assert_array_equal(data.X.toarray() if scipy.sparse.issparse(data.X) else data.X, X)
    assert data.labels.names().tolist() == y.tolist()
    assert data.labels.categories == ["c0", "c1", "c2", "c3"]


@pytest.mark.parametrize("form", ["plain", "decimal", "geo", "excel's", "parquet", "xlsx"])
def test_samples_are_matched_to_their_sheet_by_name(tmp_path, form):
    path, options = write_form(tmp_path, form)
    sheet().to_csv(tmp_path / "samples.csv", index=False)
    asked = Reading(transpose=True, labels=tmp_path / "samples.csv", context=("tissue",), **options)
    data = read_data([path], asked)
    check_equal(data)
    assert data.feature_names == FEATURES
    assert data.row_names == frame()["cell"].tolist()
    assert data.says == [
        f"contexts are matched to rows by name, in the column 'geo_accession' of {tmp_path / 'samples.csv'}."
    ]


def test_contexts_in_a_line_of_the_table(tmp_path):
    table = turned().astype(object)
    table.loc["run"] = [f"r{i % 3}" for i in range(len(table.columns))]
    table.loc["tissue"] = frame()["group"].tolist()
    for order in (table.index, table.index[::-1]):
        table.loc[order].to_csv(tmp_path / "x.csv", decimal=",", sep=";")
        asked = Reading(transpose=True, context=("tissue",), batch=("run",), decimal=",")
        data = read_data([tmp_path / "x.csv"], asked)
        assert data.feature_names == [name for name in order if name in FEATURES]
        X = pd.DataFrame(data.X, columns=data.feature_names)[FEATURES]
        np.testing.assert_array_equal(X, planted()[0])
        assert data.labels.names().tolist() == planted()[1].tolist()
        assert data.annotations["batch"].tolist() == [f"r{i % 3}" for i in range(120)]
    with pytest.raises(UnusableFileError, match=r"has no line \(--context, .*'organ'"):
        read_data(
            [tmp_path / "x.csv"], Reading(transpose=True, context=("organ",), drop=("tissue", "run"), decimal=",")
        )
    with pytest.raises(UnusableFileError, match=r"line 2, column 'cell0' has 'c\d', which is no number"):
        read_data([tmp_path / "x.csv"], Reading(transpose=True, context=("run",), decimal=","))


def test_batch_and_covariates_are_in_the_sheet(tmp_path):
    turned().to_csv(tmp_path / "x.csv")
    sheet().to_csv(tmp_path / "samples.csv", index=False)
    asked = Reading(
        transpose=True, labels=tmp_path / "samples.csv", context=("tissue", "run"), batch=("run",), covariates="age"
    )
    data = read_data([tmp_path / "x.csv"], asked)
    assert data.annotations["batch"].tolist() == [f"r{i % 3}" for i in range(120)]
    assert data.annotations["covariates"]["age"].tolist() == [i % 7 for i in range(120)]
    assert data.labels.names().tolist()[:2] == [f"{planted()[1][i]} / r{i}" for i in range(2)]


def test_arrays_are_turned_too(tmp_path):
    X, y = planted()
    np.save(tmp_path / "x.npy", X.T)
    (tmp_path / "labels.txt").write_text("\n".join(y))
    check_equal(read_data([tmp_path / "x.npy"], Reading(transpose=True, labels=tmp_path / "labels.txt")))
    np.savez(tmp_path / "x.npz", X=X.T, tissue=y, genes=np.array(FEATURES), cell=frame()["cell"].to_numpy(dtype=str))
    data = read_data([tmp_path / "x.npz"], Reading(transpose=True, context=("tissue",), index="cell"))
    check_equal(data)
    assert data.feature_names == FEATURES
    assert data.row_names == frame()["cell"].tolist()
    scipy.sparse.save_npz(tmp_path / "sparse.npz", scipy.sparse.csr_matrix(X.T))
    check_equal(read_data([tmp_path / "sparse.npz"], Reading(transpose=True, labels=tmp_path / "labels.txt")))
    np.savez(tmp_path / "contexts.npz", **{name: X[y == name].T for name in sorted(set(y))})
    data = read_data([tmp_path / "contexts.npz"], Reading(transpose=True))
    np.testing.assert_array_equal(data.X, np.vstack([X[y == name] for name in sorted(set(y))]))


def test_one_file_per_context_with_genes_in_any_order(tmp_path):
    X, y = planted()
    for i, name in enumerate(sorted(set(y))):
        part = turned().loc[:, y == name]
        (part if i else part[::-1]).to_csv(tmp_path / f"{name}.csv")
    data = read_data([tmp_path], Reading(transpose=True))
    assert data.feature_names == FEATURES[::-1]
    np.testing.assert_array_equal(data.X[:, ::-1], np.vstack([X[y == name] for name in sorted(set(y))]))


def test_columns_and_features_are_chosen_by_name(tmp_path):
    table = turned()
    table.insert(0, "symbol", [f"s{j}" for j in range(len(FEATURES))])
    table.to_csv(tmp_path / "x.csv")
    sheet().to_csv(tmp_path / "samples.csv", index=False)
    asked = {"transpose": True, "labels": tmp_path / "samples.csv", "context": ("tissue",)}
    with pytest.raises(UnusableFileError, match=r"1 column of text among the rows \(--transpose\): 'symbol'"):
        read_data([tmp_path / "x.csv"], Reading(**asked))
    data = read_data([tmp_path / "x.csv"], Reading(**asked, drop=("symbol", "g[01]", "cell0")))
    assert data.feature_names == FEATURES[2:]
    np.testing.assert_array_equal(data.X, planted()[0][1:, 2:])
    data = read_data([tmp_path / "x.csv"], Reading(**asked, drop=("gene",), index="symbol", features=("s[12]",)))
    assert data.feature_names == ["s1", "s2"]
    np.testing.assert_array_equal(data.X, planted()[0][:, 1:3])
    with pytest.raises(UnusableFileError, match=r"--drop 'nothing\*' names no column"):
        read_data([tmp_path / "x.csv"], Reading(**asked, drop=("symbol", "nothing*")))
    with pytest.raises(UnusableFileError, match=r"takes more than --max-memory .* raise --max-memory"):
        read_data([tmp_path / "x.csv"], Reading(**asked, drop=("symbol",), max_bytes=100))


def faulty(table, line=None, **cells):
    for column, value in cells.items():
        table[column] = table[column].astype(object)
        table.loc[line, column] = value
    return table


@pytest.mark.parametrize(
    ("table", "samples", "message"),
    [
        (
            turned().rename(columns={"cell3": "cellX"}),
            sheet(),
            r"says nothing of 1 row of the data: 'cellX' \(by its column 'geo_accession'\); it has 'cell3', which the "
            r"data do not have\. .*--drop-unlabelled",
        ),
        (turned(), sheet().iloc[:110], "says nothing of 10 rows of the data"),
        (turned(), pd.concat([sheet(), sheet()[:2]]), "names 2 rows more than once in its column 'geo_accession'"),
        (turned(), sheet()[["title", "tissue"]], "has no column with the names of the rows, 'cell0'"),
        (turned().rename({"g1": "g0"}), sheet(), r"has 1 name of features more than once in the column 'gene': 'g0'"),
        (turned().rename({"g1": ""}), sheet(), "line 3, column 'gene' is empty, where the name of a feature"),
        (
            faulty(turned(), "g2", cell5=None),
            sheet(),
            r"1 of 120 rows has missing or infinite values, the first in 'cell5', in 1 column: 'g2' \(1\)",
        ),
        (faulty(turned(), "g2", cell5="n.d."), sheet(), r"column of text among the rows .*'cell5'"),
    ],
)
def test_faults_are_told_by_name(tmp_path, table, samples, message):
    table.to_csv(tmp_path / "x.csv")
    samples.to_csv(tmp_path / "samples.csv", index=False)
    with pytest.raises(UnusableFileError, match=message):
        read_data([tmp_path / "x.csv"], Reading(transpose=True, labels=tmp_path / "samples.csv", context=("tissue",)))


def test_other_samples_of_a_sheet_and_samples_without_a_line(tmp_path):
    turned().iloc[:, :100].to_csv(tmp_path / "x.csv")
    sheet().to_csv(tmp_path / "samples.csv", index=False)
    asked = Reading(transpose=True, labels=tmp_path / "samples.csv", context=("tissue",))
    data = read_data([tmp_path / "x.csv"], asked)
    assert data.labels.names().tolist() == planted()[1][:100].tolist()
    assert len(data.notes) == 1
    assert data.notes[0].startswith(f"20 lines of {tmp_path / 'samples.csv'} about other rows: 'cell1")
    sheet().query("age > 0").to_csv(tmp_path / "samples.csv", index=False)
    asked = Reading(transpose=True, labels=tmp_path / "samples.csv", context=("tissue",), drop_unlabelled=True)
    data = read_data([tmp_path / "x.csv"], asked)
    kept = np.arange(100) % 7 > 0
    assert data.row_names == frame()["cell"][:100][kept].tolist()
    np.testing.assert_array_equal(data.X, planted()[0][:100][kept])
    assert data.labels.names().tolist() == planted()[1][:100][kept].tolist()


def test_rows_with_names_are_matched_by_name_without_transpose(tmp_path):
    frame().drop(columns="group").to_csv(tmp_path / "x.csv", index=False)
    sheet().to_csv(tmp_path / "samples.csv", index=False)
    asked = {"labels": tmp_path / "samples.csv", "context": ("tissue",)}
    check_equal(read_data([tmp_path / "x.csv"], Reading(**asked, index="cell")))
    # Without names for the rows, the order is all there is.
    by_order = read_data([tmp_path / "x.csv"], Reading(**asked, drop=("cell",)))
    assert by_order.labels.names().tolist() == sheet()["tissue"].tolist()
    assert not by_order.says


def test_names_that_excel_has_spoiled(tmp_path):
    renamed = turned().rename({"g0": "1-Mar", "g1": "2-Sep", "g2": "TP53"})
    renamed.to_csv(tmp_path / "x.csv")
    sheet().to_csv(tmp_path / "samples.csv", index=False)
    data = read_data(
        [tmp_path / "x.csv"], Reading(transpose=True, labels=tmp_path / "samples.csv", context=("tissue",))
    )
    assert [text for text in data.oddities if "Excel" in text] == [
        "names of features look like those that Excel has turned into dates or numbers: '1-Mar' (a name such as "
        "MARCH1?), '2-Sep' (a name such as SEPT2?); correct them in the file."
    ]
    # Points in time are meant to be dates.
    renamed.rename(dict(zip(renamed.index, pd.date_range("2021-01-01", periods=6).astype(str), strict=True))).to_csv(
        tmp_path / "x.csv"
    )
    data = read_data(
        [tmp_path / "x.csv"], Reading(transpose=True, labels=tmp_path / "samples.csv", context=("tissue",))
    )
    assert not data.oddities


def test_the_journey_of_a_series_matrix(tmp_path, capsys):
    path, _ = write_form(tmp_path, "geo")
    sheet().to_csv(tmp_path / "samples.csv", index=False)
    frame().to_csv(tmp_path / "plain.csv", index=False)
    words = ["--transpose", "--comment", "!", "--labels", str(tmp_path / "samples.csv"), "--context", "tissue"]
    assert main(["fit", str(path), *words, "--scale", *QUICK, "-o", str(tmp_path / "a")]) == 0
    assert "by name, in the column 'geo_accession'" in capsys.readouterr().err
    plain = ["fit", str(tmp_path / "plain.csv"), "--index", "cell", "-c", "group", "--scale"]
    assert main([*plain, *QUICK, "-o", str(tmp_path / "b")]) == 0
    assert "divided by" in capsys.readouterr().out
    for name in ("scores.csv", "loadings.csv", "components.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    record = json.loads((tmp_path / "a" / "run.json").read_text())
    assert record["options"]["scale"]
    assert record["options"]["reading"]["transpose"]
    assert main(["repeat", str(tmp_path / "a"), "-o", str(tmp_path / "c")]) == 0
    assert "The same numbers" in capsys.readouterr().out
    # New samples on the fitted model, in the same form: scaled by what the fit has found.
    assert main(["transform", str(tmp_path / "a"), str(path), *words[:3], "--index", "gene"]) == 0
    scores = pd.read_csv(io.StringIO(capsys.readouterr().out))
    fitted = pd.read_csv(tmp_path / "a" / "scores.csv")
    np.testing.assert_allclose(scores[["MCPC 1", "MCPC 2"]], fitted[["MCPC 1", "MCPC 2"]], rtol=1e-10)
    assert main(["rank", str(path), *words, "--scale", "--ranks", "1-2", "--criteria", "none"]) == 0


def test_an_anndata_is_not_turned(tmp_path, capsys):
    anndata = pytest.importorskip("anndata")
    X, y = planted()
    anndata.AnnData(X, obs=pd.DataFrame({"group": y}, index=frame()["cell"])).write_h5ad(tmp_path / "x.h5ad")
    assert main(["fit", str(tmp_path / "x.h5ad"), "-c", "group", "--transpose"]) == 2
    assert "an AnnData says what is a row and what a feature" in capsys.readouterr().err
