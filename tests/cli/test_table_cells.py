"""Texts that a spreadsheet would run are written so that it does not, and read back as they were."""

import csv

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_files import FEATURES, frame, planted

from mcpca.cli import main
from mcpca.cli.tables import Reading, read_data, write_table
from mcpca.cli.tables.cells import guarded, plain, plain_column

NAMES = ["=cmd()", "+1 day", "-x", "@SUM(A1)", "'=was guarded", "''@", "'quoted", "-5", "+1.5e3", "\t=1", "plain", "-"]


@given(st.text(alphabet="='+-@\t\r 1a", max_size=6))
def test_what_is_guarded_comes_back(text):
    assert plain(guarded(text)) == text
    if guarded(text) != text:
        assert guarded(text) == f"'{text}"
    try:
        float(text)
    except ValueError:
        assert not guarded(text).startswith(("=", "+", "-", "@", "\t", "\r"))


def test_arrow_does_the_same():
    import pyarrow as pa

    texts = [*NAMES, *map(guarded, NAMES), "", None]
    assert plain_column(pa.array(texts)).to_pylist() == [None if t is None else plain(t) for t in texts]


@pytest.mark.parametrize("format", ["csv", "tsv"])
def test_tables_hold_no_formulas(tmp_path, format):
    path = tmp_path / f"x.{format}"
    write_table({"name": NAMES, "value": np.linspace(-3, 3, len(NAMES))}, path, format)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t" if format == "tsv" else ","))
    numbers = {"-5", "+1.5e3"}
    assert all(row["name"] in numbers or row["name"][0] not in "=+-@\t" for row in rows)
    assert rows[0]["name"] == "'=cmd()"
    assert float(rows[0]["value"]) == -3  # numbers are numbers
    assert read_data([path], Reading(index="name"), need_context=False).row_names == NAMES


def test_parquet_keeps_texts(tmp_path):
    write_table({"name": NAMES}, tmp_path / "x.parquet", "parquet")
    assert pd.read_parquet(tmp_path / "x.parquet")["name"].tolist() == NAMES


def test_what_was_written_is_read_again_by_the_commands(tmp_path, capsys):
    """Scores of contexts and rows with such names are data for another run: the names are the same."""
    names = dict(zip(["c0", "c1", "c2", "c3"], ["=A", "@B", "-C", "'=D"], strict=True))
    groups = [names[g] for g in planted()[1]]
    table = frame().assign(group=groups, cell=[f"={i}" for i in range(120)])
    data = tmp_path / "x.parquet"
    table.to_parquet(data, index=False)
    out = tmp_path / "out"
    quick = ["--no-report", "--no-picture", "-q"]
    assert main(["fit", str(data), "-c", "group", "--index", "cell", "-r", "2", "-o", str(out), *quick]) == 0
    scores = out / "scores.csv"
    again = read_data([scores], Reading(context=("context",), index="row"))
    assert again.row_names == table["cell"].tolist()
    assert again.labels.names().tolist() == groups
    second = tmp_path / "second"
    assert main(["fit", str(scores), "-c", "context", "--index", "row", "-r", "2", "-o", str(second), *quick]) == 0
    loadings = read_data([second / "loadings.csv"], Reading(index="context"), need_context=False)
    assert sorted(loadings.row_names) == sorted(names.values())
    # Labels of one run for the rows of another, and names of features as a list.
    lines = pd.read_csv(scores)["context"].tolist()
    (tmp_path / "labels.txt").write_text("\n".join(lines))
    np.save(tmp_path / "rows.npy", planted()[0])
    told = read_data([tmp_path / "rows.npy"], Reading(labels=tmp_path / "labels.txt"))
    assert told.labels.names().tolist() == groups
    renamed = table.rename(columns={"g0": "=g0"})
    renamed.to_parquet(tmp_path / "y.parquet", index=False)
    (tmp_path / "list.txt").write_text("'=g0\ng1\n")
    found = read_data([tmp_path / "y.parquet"], Reading(context=("group",), features=(f"@{tmp_path / 'list.txt'}",)))
    assert found.feature_names == ["=g0", "g1"]
    capsys.readouterr()
    assert main(["loadings", str(out), str(data), "-c", "group", "--index", "cell"]) == 0
    assert '"\'=A"' in capsys.readouterr().out
    assert read_data([out / "components.csv"], Reading(index="feature"), need_context=False).row_names == FEATURES
