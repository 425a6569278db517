"""``--context-table``, ``--row-metadata``, and columns of rows that are constant within contexts, in reports."""

import base64
import json

import anndata
import numpy as np
import pandas as pd
import pytest
from reading_reports import content

from mcpca.cli import main
from mcpca.datasets import make_contexts

PATIENTS = ["p1", "p2", "p10", "p11"]
SEX = dict(zip(PATIENTS, "fmfm", strict=True))
STAGE = dict(zip(PATIENTS, [1, 2, 3, 2.5], strict=True))
FIT = ["--rank", "2", "--no-picture", "--no-context-test", "--no-replicability", "-q"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("metadata")
    truth = make_contexts(n_contexts=4, n_features=6, n_components=2, n_samples=30, noise=0.2, random_state=0)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(truth.y))
    patient = np.array(PATIENTS)[truth.y[order]]
    rows = pd.DataFrame(
        {
            "cell": [f"cell {i}" for i in range(len(order))],
            "patient": patient,
            "sex": [SEX[p] for p in patient],
            "stage": [STAGE[p] for p in patient],
            "well": rng.choice(["A1", "B2"], len(order)),
            "depth": rng.gamma(2, 100, len(order)).round(3),
        }
    )
    genes = pd.DataFrame(truth.X[order], columns=[f"gene{j}" for j in range(6)])
    table = pd.concat([rows, genes], axis=1)
    table.to_csv(folder / "cells.csv", index=False)
    table.to_csv(folder / "excel.csv", index=False, sep=";", decimal=",")
    table.to_parquet(folder / "cells.parquet")
    obs = rows.set_index("cell").astype({"sex": "category"})
    anndata.AnnData(genes.to_numpy(), obs=obs, var=pd.DataFrame(index=genes.columns)).write_h5ad(folder / "cells.h5ad")
    for p in PATIENTS:
        table[table["patient"] == p].drop(columns="patient").to_csv(folder / f"{p}.csv", index=False)
    known = pd.DataFrame(
        {
            "site": ["north", "south", "", "<b>x</b>", "east"],
            "patient": ["p10", "p1", "p2", "p99", "p11"],
            "age": ["41.5", "NA", "7", "1", "1e2"],
        }
    )
    known.to_csv(folder / "known.csv", index=False)
    known[["patient", "site", "age"]].to_parquet(folder / "known.parquet")
    known[["patient", "site", "age"]].rename(columns={"patient": "id"}).to_csv(
        folder / "known.tsv", sep="\t", index=False
    )
    assert main(["fit", str(folder / "cells.csv"), *TEXT, *FIT, "--no-report", "-o", str(folder / "fitted")]) == 0
    return folder


DROP = ["--drop", "sex", "--drop", "stage", "--drop", "depth"]
TEXT = ["-c", "patient", "--index", "cell", *DROP, "--drop", "well"]


def metadata(path):
    return content(path.read_text(encoding="utf-8"))


def by_context(data):
    """Columns of contexts: name -> values by context."""
    contexts = data["contexts"]
    columns = {}
    for column in data["metadata"]["contexts"]:
        names = column["categories"]
        values = [v if names is None else None if v < 0 else names[v] for v in column["values"]]
        columns[column["name"]] = dict(zip(contexts, values, strict=True))
    return columns


def by_row(data, name):
    column = next(c for c in data["metadata"]["rows"] if c["name"] == name)
    values = np.frombuffer(base64.b64decode(column["data"]), dtype="<" + column["kind"]).tolist()
    if column["categories"] is not None:
        values = [column["categories"][v] for v in values]
    return dict(zip(data["metadata"]["names"]["names"], values, strict=True))


@pytest.mark.parametrize("name", ["cells.csv", "excel.csv", "cells.parquet", "cells.h5ad"])
def test_columns_that_are_constant_within_contexts_are_found(folder, name, tmp_path):
    # Not dropped: well and depth, which are named as metadata, and so are no features.
    columns = ["-c", "patient"] if name == "cells.h5ad" else ["-c", "patient", "--index", "cell", *DROP[:4]]
    decimal = ["--decimal", ","] if name == "excel.csv" else []
    rows = ["--row-metadata", "well", "--row-metadata", "depth"]
    code = main(["fit", str(folder / name), *columns, *rows, *decimal, *FIT, "-o", str(tmp_path / "out")])
    assert code == 0
    data = metadata(tmp_path / "out" / "report.html")
    assert by_context(data) == {"sex": SEX, "stage": STAGE}
    table = pd.read_csv(folder / "cells.csv").set_index("cell")
    assert by_row(data, "well") == table["well"].to_dict()
    depth = by_row(data, "depth")
    np.testing.assert_allclose([depth[c] for c in table.index], table["depth"], rtol=1e-6)


def test_files_of_a_context_each(folder, tmp_path):
    files = [str(folder / f"{p}.csv") for p in PATIENTS]
    more = ["--index", "cell", *DROP, "--row-metadata", "well", *FIT, "-o", str(tmp_path / "out")]
    assert main(["fit", *files, *more]) == 0
    data = metadata(tmp_path / "out" / "report.html")
    assert by_context(data) == {"sex": SEX, "stage": STAGE}
    assert len(by_row(data, "well")) == 120


@pytest.mark.parametrize("name", ["known.csv", "known.tsv", "known.parquet"])
def test_a_table_of_contexts(folder, name, tmp_path, capsys):
    arguments = ["report", str(folder / "fitted"), str(folder / "cells.csv"), *TEXT, "--out", str(tmp_path / "r.html")]
    assert main([*arguments, "--context-table", str(folder / name)]) == 0
    said = capsys.readouterr().err
    assert f"left out: 1 line of {folder / name} about no context of the rows: 'p99'." in said
    found = by_context(metadata(tmp_path / "r.html"))
    assert found == {
        "sex": SEX,
        "stage": STAGE,
        "site": {"p1": "south", "p2": None, "p10": "north", "p11": "east"},
        "age": {"p1": None, "p2": 7, "p10": 41.5, "p11": 100},
    }


def test_a_table_without_rows_and_contexts_that_it_lacks(folder, tmp_path, capsys):
    (tmp_path / "some.csv").write_text("patient,site\np1,north\np2,south\n")
    arguments = ["report", str(folder / "fitted"), "--context-table", str(tmp_path / "some.csv")]
    assert main([*arguments, "--out", str(tmp_path / "r.html")]) == 0
    assert "warning: 2 contexts of 4 not in" in capsys.readouterr().err
    found = by_context(metadata(tmp_path / "r.html"))
    assert found == {"site": {"p1": "north", "p2": "south", "p10": None, "p11": None}}


def test_a_run_is_repeated_with_its_tables(folder, tmp_path):
    known = tmp_path / "known.csv"
    known.write_bytes((folder / "known.csv").read_bytes())
    more = ["--context-table", str(known), "--row-metadata", "depth", *FIT]
    columns = ["-c", "patient", "--index", "cell", *DROP[:4], "--drop", "well"]
    assert main(["fit", str(folder / "cells.csv"), *columns, *more, "-o", str(tmp_path / "out")]) == 0
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert any(entry["path"].endswith("known.csv") for entry in run["inputs"])
    assert main(["repeat", str(tmp_path / "out"), "-o", str(tmp_path / "again"), "-q"]) == 0
    pages = [metadata(tmp_path / name / "report.html") for name in ("out", "again")]
    assert pages[0]["metadata"] == pages[1]["metadata"]
    assert set(by_context(pages[1])) == {"sex", "stage", "site", "age"}
    known.write_text("patient,site\np1,elsewhere\n")
    assert main(["repeat", str(tmp_path / "out"), "-o", str(tmp_path / "third"), "-q"]) == 3


WRONG = [
    (["--context-table", "{}/none.csv"], 3, "none.csv"),
    (["--context-table", "{}/fitted/model.mcpca"], 3, "is not a table of contexts (model); pass CSV, TSV, .xlsx or"),
    (["--context-table", "{}/other.csv"], 3, "its column 'name' has none of the contexts 'p1', 'p2', 'p10', 'p11'"),
    (["--context-table", "{}/twice.csv"], 3, "its column 'patient' has 'p1' in more than one line; keep one line"),
    (["--context-table", "{}/alone.csv"], 3, "and no other column; add what is known of them"),
    (["--row-metadata", "wel"], 3, "--row-metadata) 'wel'; did you mean 'well'?"),
    (["--row-metadata", "essay"], 3, "different texts, and --row-metadata is for numbers and up to 500 texts"),
    ([f"--row-metadata=c{i}" for i in range(11)], 2, "11 columns are named; a report takes up to 10"),
]


@pytest.mark.parametrize(("options", "code", "text"), WRONG)
def test_wrong_tables_and_columns(folder, options, code, text, tmp_path, capsys):
    (folder / "other.csv").write_text("name,site\nx,north\ny,south\n")
    (folder / "twice.csv").write_text("patient,site\np1,north\np1,south\n")
    (folder / "alone.csv").write_text("patient\np1\np2\n")
    data = folder / "cells.csv"
    if options[-1] == "essay":
        table = pd.concat([pd.read_csv(data)] * 5, ignore_index=True)
        data = tmp_path / "essays.csv"
        table.assign(essay=[f"essay {i}" for i in range(len(table))]).to_csv(data, index=False)
    options = [option.format(folder) for option in options]
    out = tmp_path / "r.html"
    assert main(["report", str(folder / "fitted"), str(data), *TEXT, *options, "--out", str(out)]) == code
    said = capsys.readouterr().err
    assert text in said
    assert "Traceback" not in said
    assert not out.exists()


def test_options_without_effect_are_refused(folder, tmp_path, capsys):
    fit = ["fit", str(folder / "cells.csv"), *TEXT, *FIT, "--no-report", "-o", str(tmp_path / "out")]
    assert main([*fit, "--context-table", str(folder / "known.csv")]) == 2
    assert (
        "--context-table has no effect: it is for the report, and --no-report leaves that out"
        in capsys.readouterr().err
    )
    assert main(["report", str(folder / "fitted"), "--row-metadata", "well", "-o", str(tmp_path / "r.html")]) == 2
    assert "--row-metadata has no effect: no file of rows is given" in capsys.readouterr().err


def test_what_doctor_drops_may_still_be_shown(folder, tmp_path):
    """A column of text is no feature, and can be said to be none: that is no reason not to colour rows by it."""
    assert "well" in TEXT[TEXT.index("--drop") :]
    out = tmp_path / "out"
    assert main(["fit", str(folder / "cells.csv"), *TEXT, *FIT, "--row-metadata", "well", "-o", str(out)]) == 0
    table = pd.read_csv(folder / "cells.csv").set_index("cell")
    assert by_row(metadata(out / "report.html"), "well") == table["well"].to_dict()
