"""The commands with what their extra brings: a table of commas in, tables of commas out, read without pandas."""

import csv

import numpy as np
import pytest

from mcpca import MCPCA
from mcpca.cli import main
from mcpca.datasets import make_contexts

TISSUES = np.array(["bone", "gut", "lung", "skin"])
COLUMNS = ["--context", "tissue", "--index", "cell", "-q"]


@pytest.fixture(scope="module")
def data():
    return make_contexts(n_contexts=4, n_features=8, n_components=3, n_samples=60, noise=0.2, random_state=0)


@pytest.fixture(scope="module")
def folder(data, tmp_path_factory):
    """A table of rows, and what ``mcpca fit`` made of it."""
    folder = tmp_path_factory.mktemp("alone")
    with (folder / "cells.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["cell", "tissue", *(f"gene {j}" for j in range(8))])
        table.writerows([f"c{i}", TISSUES[data.y[i]], *row] for i, row in enumerate(data.X.tolist()))
    options = ["--rank", "3", "--seed", "0", "-o", str(folder / "out")]
    assert main(["fit", str(folder / "cells.csv"), *COLUMNS, *options]) == 0
    return folder


def read(path, n_names=1):
    """First names of the rows, names of the columns, and the numbers of a table."""
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    return [row[0] for row in rows], header[n_names:], np.array([row[n_names:] for row in rows], dtype=float)


def test_tables_are_those_of_the_fit(data, folder):
    model = MCPCA(3, random_state=0).fit(data.X, TISSUES[data.y])
    names, columns, loadings = read(folder / "out" / "loadings.csv")
    assert (names, columns) == (TISSUES.tolist(), ["MCPC 1", "MCPC 2", "MCPC 3"])
    np.testing.assert_allclose(loadings, model.loadings_, rtol=1e-12)
    features, _, components = read(folder / "out" / "components.csv")
    assert features == [f"gene {j}" for j in range(8)]
    np.testing.assert_allclose(components, model.components_, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(MCPCA.load(folder / "out" / "model.mcpca").components_, components)
    for name in ("report.html", "loadings.png", "run.json"):
        assert (folder / "out" / name).stat().st_size > 0


def test_scores_and_loadings_of_rows(data, folder):
    cells, scores, new = (folder / name for name in ("cells.csv", "scores.csv", "new.csv"))
    assert main(["transform", str(folder / "out"), str(cells), *COLUMNS, "-o", str(scores)]) == 0
    names, columns, Z = read(scores, n_names=2)
    model = MCPCA(3, random_state=0).fit(data.X, TISSUES[data.y])
    assert (names[:2], columns) == (["c0", "c1"], ["MCPC 1", "MCPC 2", "MCPC 3"])
    np.testing.assert_allclose(Z, model.transform(data.X), atol=1e-10)  # about the mean of all rows
    assert main(["loadings", str(folder / "out"), str(cells), *COLUMNS, "-o", str(new)]) == 0
    assert read(new)[0] == TISSUES.tolist()


def test_sums_of_two_sites_give_the_model_of_all_rows(folder):
    header, *rows = (folder / "cells.csv").read_text(encoding="utf-8").splitlines()
    sites = []
    for i in range(2):
        site = folder / f"site{i}.csv"
        site.write_text("\n".join([header, *rows[i::2]]) + "\n", encoding="utf-8")
        sites.append(str(folder / f"site{i}.npz"))
        assert main(["moments", str(site), *COLUMNS, "-o", sites[-1]]) == 0
    assert main(["merge", *sites, "-o", str(folder / "all.npz"), "-q"]) == 0
    options = ["--rank", "3", "--seed", "0", "-o", str(folder / "merged"), "-q"]
    assert main(["fit", str(folder / "all.npz"), *options]) == 0
    merged, whole = (read(folder / run / "loadings.csv")[2] for run in ("merged", "out"))
    np.testing.assert_allclose(merged, whole, rtol=1e-8)


def test_the_other_commands_end_well(folder, capsys):
    cells, out = str(folder / "cells.csv"), str(folder / "out")
    assert main(["doctor", cells]) == 0
    assert "--context tissue --index cell" in capsys.readouterr().out
    assert main(["rank", cells, *COLUMNS, "--seed", "0", "-o", str(folder / "ranks")]) == 0
    assert main(["report", out, cells, *COLUMNS, "-o", str(folder / "page.html")]) == 0
    assert main(["repeat", out, "-q", "-o", str(folder / "again")]) == 0
    assert "to the last bit" in capsys.readouterr().out
    assert main(["compare", out, str(folder / "again"), "-q", "-o", str(folder / "compared")]) == 0
    assert (folder / "compared" / "comparison.html").stat().st_size > 0
