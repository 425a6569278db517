"""Excel workbooks: read as their CSV would be, written so that names and digits survive."""

import datetime
import io
import json
import math
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from table_files import FEATURES, check_equal, exact_csv, frame, planted

from mcpca.cli import main
from mcpca.cli._console import Failure
from mcpca.cli._policy import check_sheets
from mcpca.cli.tables import Reading, UnusableFileError, read_data, write_table
from mcpca.cli.tables.kinds import file_kind
from mcpca.cli.tables.workbook_writing import too_large

openpyxl = pytest.importorskip("openpyxl")
NAMED = {"context": ("group",), "index": "cell"}
QUICK = ("-r", "2", "--no-report", "--no-picture", "--no-context-test")
# What Excel would make dates, numbers or formulas of.
NAMES = ["MARCH1", "SEPT2", "DEC1", "1-Mar", "2310009E13", "=SUM(A1)", "+x", "-x", "@y", "1e5", "007", "TRUE", "a\tb"]


def book(path, rows, **sheets):
    """Write rows to the sheet "data", and other sheets beside it."""
    workbook = openpyxl.Workbook()
    workbook.active.title = "data"
    for row in rows:
        workbook.active.append(row)
    for name, content in sheets.items():
        page = workbook.create_sheet(name)
        for row in content:
            page.append(row)
    workbook.save(path)
    return workbook


def table_rows(table):
    return [list(table.columns), *table.astype(object).values.tolist()]


def forms():
    table = frame()
    rows = table_rows(table)
    unnamed = [["", *rows[0][1:]], *rows[1:]]
    as_text = [[str(v) for v in row] for row in rows]
    commas = [[str(v).replace(".", ",") for v in row] for row in rows]
    edges = [[], [], *([*row, None, "", " "] for row in rows), [None], ["", " "], []]
    return {
        "plain": (rows, NAMED),
        "numbers as text": (as_text, NAMED),
        "decimal commas": (commas, NAMED | {"decimal": ","}),
        "index without a name": (unnamed, {"context": ("group",)}),
        "empty edges": (edges, NAMED),
        "no header": (rows[1:], {"context": ("2",), "index": "1", "header": False}),
    }


@pytest.mark.parametrize("form", forms())
def test_a_sheet_gives_the_same_rows_as_its_csv(tmp_path, form):
    rows, options = forms()[form]
    book(tmp_path / "x.xlsx", rows, empty=[], also_empty=[[None, " "]])
    assert file_kind(tmp_path / "x.xlsx").format == "Excel"
    data = read_data([tmp_path / "x.xlsx"], Reading(**options))
    if form == "no header":
        data.feature_names = FEATURES if data.feature_names == [str(j + 3) for j in range(6)] else None
    check_equal(data)
    if form == "empty edges":
        assert data.notes == [f"3 empty columns and 2 empty rows at the end of {tmp_path / 'x.xlsx'}, sheet 'data'."]
    if form == "plain":
        check_equal(read_data([tmp_path / "x.xlsx"], Reading(**options, max_bytes=100)), in_memory=False)


def test_sheets_are_chosen_by_name_and_labels_by_their_columns(tmp_path):
    labels = frame()[["cell", "group"]].sample(frac=1, random_state=2).rename(columns={"group": "tissue"})
    rows = table_rows(frame().drop(columns="group"))
    book(tmp_path / "x.xlsx", rows, samples=table_rows(labels))
    asked = {"index": "cell", "context": ("tissue",), "labels": tmp_path / "x.xlsx"}
    data = read_data([tmp_path / "x.xlsx"], Reading(**asked, sheet="data"))
    check_equal(data)
    frame().drop(columns="group").to_csv(tmp_path / "x.csv", index=False)
    check_equal(read_data([tmp_path / "x.csv"], Reading(**asked, sheet="samples")))
    with pytest.raises(UnusableFileError, match=r"has 2 sheets with something in them: 'data', 'samples'; .*--sheet"):
        read_data([tmp_path / "x.xlsx"], Reading(**asked))
    with pytest.raises(UnusableFileError, match=r"has no sheet 'sample' \(--sheet\); did you mean 'samples'"):
        read_data([tmp_path / "x.xlsx"], Reading(**asked, sheet="sample"))


def hidden(path):
    workbook = book(path, [["group", "a"], ["x", 1]], rest=[])
    workbook["data"].sheet_state = "hidden"
    workbook.save(path)


def merged(path):
    workbook = book(path, [["group", "a"], ["x", 1], [None, 2], ["y", 3]])
    workbook["data"].merge_cells("A2:A3")
    workbook.save(path)


def cut(path):
    book(path, [["a"]])
    path.write_bytes(path.read_bytes()[:2000])


def two_formulas(path):
    book(path, [["group", "a"], ["x", 1], ["y", "=B2+1"]])


FAULTY = {
    "hidden": (hidden, r"nothing in its visible sheets; the hidden sheet 'data' is read with --sheet data"),
    "merged": (merged, r"has merged cells \('A2:A3'\), of which only the first has a value; unmerge"),
    "no values": (lambda p: book(p, [], b=[]), "is a workbook without any value"),
    "only a header": (lambda p: book(p, [["group", "a"]]), "has a header but no rows"),
    "title": (lambda p: book(p, [["My data"], [], ["group", "a", "b"], ["x", 1, 2]]), "remove what stands above"),
    "unnamed": (lambda p: book(p, [["group", None, "b"], ["x", 1, 2]]), "cell B1 is empty, and row 1"),
    "no header": (lambda p: book(p, [[1.5, 2.5], [1, 2]]), r"has no header: row 1 is numbers .*--no-header"),
    "formula": (two_formulas, r"cell B3 is a formula without a stored value \('=B2\+1'\)"),
    "failed formula": (
        lambda p: book(p, [["group", "a"], ["x", 1], ["y", "#DIV/0!"]]),
        r"cell B3 has '#DIV/0!' in column 'a', a formula that failed",
    ),
    "text far down": (
        lambda p: book(p, [["group", "a"], *[["x", 1]] * 150, ["y", "n.d."]]),
        r"cell B152 has 'n\.d\.' in column 'a', which is otherwise numbers; .*--na-values n\.d\.",
    ),
    "beyond the header": (
        lambda p: book(p, [["group", "a"], *[["x", 1]] * 150, ["y", 2, "note"]]),
        r"cell C152 has 'note', right of the last column that the header names \('a'\)",
    ),
    "gap": (lambda p: book(p, [["group", "a"], ["x", 1], [], ["y", 2]]), r"1 of 3 rows has missing .* in row 2"),
    "repeated": (lambda p: book(p, [["group", "a", "a"], ["x", 1, 2]]), "column name more than once"),
    "cut": (cut, "damaged"),
}


@pytest.mark.parametrize("case", FAULTY)
def test_faults_of_workbooks_are_told_by_cells(tmp_path, case):
    make, message = FAULTY[case]
    make(tmp_path / "x.xlsx")
    with pytest.raises(UnusableFileError, match=message):
        read_data([tmp_path / "x.xlsx"], Reading(context=("group",)))


def test_missing_values_and_kinds_of_cells(tmp_path):
    day = datetime.datetime(2021, 3, 1)
    rows = [["id", "group", "a"], [day, 1, 1.5], [7, 2.0, "2.5"], [True, "three", 3], ["x", 1, "."]]
    book(tmp_path / "x.xlsx", rows)
    with pytest.raises(UnusableFileError, match=r"1 of 4 rows has missing or infinite values, the first in row 4"):
        read_data([tmp_path / "x.xlsx"], Reading(context=("group",), index="id", na_values=(".",)))
    book(tmp_path / "x.xlsx", rows[:-1])
    data = read_data([tmp_path / "x.xlsx"], Reading(context=("group",), index="id"))
    assert data.row_names == ["2021-03-01", "7", "TRUE"]
    assert data.labels.names().tolist() == ["1", "2", "three"]
    assert data.X[:, 0].tolist() == [1.5, 2.5, 3.0]


def test_dates_among_names_are_told_with_their_cells(tmp_path):
    march, september = datetime.datetime(2021, 3, 1), datetime.date(2021, 9, 2)
    rows = table_rows(frame())
    book(tmp_path / "x.xlsx", [[*rows[0][:2], march, september, *FEATURES[2:]], *rows[1:]])
    data = read_data([tmp_path / "x.xlsx"], Reading(**NAMED))
    warned = [text for text in data.oddities if "Excel" in text]
    assert "'2021-03-01' (a name such as MARCH1?) in C1, '2021-09-02' (a name such as SEPT2?) in D1" in warned[0]
    lines = zip([march, *FEATURES[1:]], planted()[0].T.tolist(), strict=True)
    turned = [["gene", *frame()["cell"]], *([name, *values] for name, values in lines)]
    book(tmp_path / "t.xlsx", turned)
    (tmp_path / "labels.txt").write_text("\n".join(planted()[1]))
    data = read_data([tmp_path / "t.xlsx"], Reading(transpose=True, labels=tmp_path / "labels.txt"))
    warned = [text for text in data.oddities if "Excel" in text]
    assert len(warned) == 1
    assert "'2021-03-01' (a name such as MARCH1?) in A2" in warned[0]


# Written ----------------------------------------------------------------------------------------------------------


def test_names_and_digits_survive_a_workbook(tmp_path):
    numbers = np.random.default_rng(0).normal(size=len(NAMES)) * 10.0 ** np.arange(-6, 7)
    columns = {"feature": NAMES, "=1+1": numbers, "whole": np.arange(len(NAMES))}
    write_table(columns, tmp_path / "x.xlsx", "xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "x.xlsx").active
    for row, name in enumerate(NAMES, start=2):
        cell = sheet.cell(row, 1)
        assert (cell.value, cell.data_type, cell.number_format) == (name, "s", "@")
    assert [sheet.cell(i + 2, 2).value for i in range(len(NAMES))] == numbers.tolist()
    (tmp_path / "labels.txt").write_text("\n".join("ab"[i % 2] for i in range(len(NAMES))))
    data = read_data([tmp_path / "x.xlsx"], Reading(index="feature", labels=tmp_path / "labels.txt"))
    assert data.row_names == NAMES
    assert data.feature_names == ["=1+1", "whole"]
    np.testing.assert_array_equal(data.X[:, 0], numbers)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(st.text(st.characters(codec="utf-8"), max_size=8), min_size=2, max_size=6),
    values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=6),
)
def test_any_name_and_number_comes_back(tmp_path, names, values):
    n = min(len(names), len(values))
    buffer = io.BytesIO()
    # \r is what XML itself does not keep; a name of blanks alone is an empty cell.
    names = [f"n{name}n".replace("\r", "") for name in names[:n]]
    write_table({"name": names, "x": np.array(values[:n])}, buffer, "xlsx")
    (tmp_path / "any.xlsx").write_bytes(buffer.getvalue())
    data = read_data([tmp_path / "any.xlsx"], Reading(index="name"), need_context=False)
    assert data.row_names == names
    np.testing.assert_array_equal(data.X[:, 0], values[:n])


def test_missing_and_infinite_numbers(tmp_path):
    write_table({"x": np.array([1.0, math.nan, math.inf])}, tmp_path / "x.xlsx", "xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "x.xlsx").active
    assert [cell.value for cell in sheet["A"]] == ["x", 1, None, "inf"]


def test_results_as_workbooks_are_those_of_csv_and_repeat(tmp_path, capsys):
    frame().to_csv(tmp_path / "x.csv", index=False)
    words = ["fit", str(tmp_path / "x.csv"), "--index", "cell", "-c", "group", *QUICK]
    assert main([*words, "-o", str(tmp_path / "csv")]) == 0
    assert main([*words, "--format", "xlsx", "-o", str(tmp_path / "xlsx")]) == 0
    for name in ("scores", "loadings", "components", "diagnostics"):
        expected = exact_csv(tmp_path / "csv" / f"{name}.csv")
        pd.testing.assert_frame_equal(pd.read_excel(tmp_path / "xlsx" / f"{name}.xlsx"), expected, check_exact=True)
    capsys.readouterr()
    assert main(["repeat", str(tmp_path / "xlsx"), "-o", str(tmp_path / "again")]) == 0
    assert "The same numbers" in capsys.readouterr().out
    assert main([*words, "--format", "xlsx", "--force", "-o", str(tmp_path / "xlsx")]) == 0
    out = str(tmp_path / "scores.xlsx")
    assert main(["transform", str(tmp_path / "csv"), str(tmp_path / "x.csv"), "--index", "cell", "-o", out]) == 0
    scores = pd.read_excel(out)
    np.testing.assert_allclose(scores["MCPC 1"], pd.read_csv(tmp_path / "csv" / "scores.csv")["MCPC 1"], rtol=1e-10)


def test_tables_beyond_a_sheet_are_refused_before_the_fit():
    assert too_large(1_048_575, 16_384) is None
    assert "1,048,576 rows, and a sheet of Excel has 1,048,575" in too_large(1_048_576, 2)
    assert "16,385 columns" in too_large(5, 16_385)

    class Data:
        n_features = 10
        n_rows = 2_000_000

    check_sheets(Data, scores=False)
    with pytest.raises(Failure, match=r"scores.xlsx would have 2,000,000 rows, .* choose --format parquet or csv"):
        check_sheets(Data, scores=True)


def test_a_workbook_from_stdin(tmp_path, capsys, monkeypatch):
    rows = table_rows(frame())
    book(tmp_path / "x.xlsx", rows)
    content = (tmp_path / "x.xlsx").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    words = ["fit", "-", "--index", "cell", "-c", "group", *QUICK, "--no-scores", "-o", str(tmp_path / "out")]
    assert main(words) == 0
    assert json.loads((tmp_path / "out" / "run.json").read_text())["inputs"][0]["path"] == "stdin"


def test_without_openpyxl_the_extra_is_named(tmp_path, capsys, monkeypatch):
    book(tmp_path / "x.xlsx", table_rows(frame()))
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    assert main(["fit", str(tmp_path / "x.xlsx"), "-c", "group"]) == 2
    assert 'pip install "mcpca[excel]"' in capsys.readouterr().err
