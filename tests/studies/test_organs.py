"""Species by organ: tables of both layouts, trees within organs and pooled, chance, and what is said to be missing."""

import itertools
import json
import math
from functools import partial

import numpy as np
import pandas as pd
import paper_files
import pytest
import study_data

from mcpca.analysis.newick import clades_of_newick, restricted
from studies import formats, methods_primates, organs, run, write_up
from studies.known import AMNIOTES, PRIMATES, names_exchanged
from studies.output import RESULTS


def test_tables_of_species_by_organ(tmp_path):
    rows = formats.species_by_organ(paper_files.write_brawand(tmp_path / "amniotes.txt"))
    assert set(rows.y) == set(clades_of_newick(AMNIOTES)[1])
    counts = pd.crosstab(rows.about["species"], rows.about["organ"])
    assert counts.loc["Human"].to_dict() == {"brain": 8, "heart": 8, "liver": 8}
    assert counts["heart"]["Chicken"] == 0
    assert counts["heart"]["Platypus"] == 1
    # The first gene has a missing value; genes have the first column's names.
    assert rows.features == [f"ENSHSA{i:04d}" for i in range(1, 54)]
    table = pd.read_csv(tmp_path / "amniotes.txt", sep="\t")
    np.testing.assert_allclose(rows.X[0], np.log2(1 + table["hsa.br.M.1"][1:]))
    named = table.rename(columns=lambda name: f"Human_brain_{name}" if name.startswith("hsa.br") else name)
    named = named[[name for name in named if "_" in name or name.startswith("ptr.lv")]]
    named.insert(0, "gene", [f"G{i}" for i in range(54)])
    named.to_csv(tmp_path / "named.csv.gz", index=False)
    rows = formats.species_by_organ(tmp_path / "named.csv.gz")
    assert rows.about.groupby("species")["organ"].first().to_dict() == {"Chimpanzee": "liver", "Human": "brain"}
    assert rows.features[0] == "G1"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: t.rename(columns=lambda name: name.replace(".", "-")),
            "has 0 columns named Species_Organ_Individual",
        ),
        (
            lambda t: t.assign(**{"hsa.br.M.1": -1.0}),
            "has values below 0; pass expression as it is, without logarithms",
        ),
        (lambda t: t.assign(**{"hsa.br.M.1": "high"}), "a sample has a value that is no number"),
    ],
)
def test_other_tables_are_refused(tmp_path, change, message):
    table = pd.read_csv(paper_files.write_brawand(tmp_path / "a.txt"), sep="\t")
    change(table).to_csv(tmp_path / "b.tsv", sep="\t", index=False)
    with pytest.raises(ValueError, match=message):
        formats.species_by_organ(tmp_path / "b.tsv")


def by_enumeration(known, species):
    clades = restricted(clades_of_newick(known)[0], species)
    right = 0
    for order in itertools.permutations(species):
        renamed = dict(zip(species, order, strict=True))
        right += {frozenset(renamed[name] for name in clade) for clade in clades} == set(clades)
    return right / math.factorial(len(species))


@pytest.mark.parametrize(
    "known", ["(((a,b),c),d);", "((a,b),(c,d));", "(((a,b),(c,d)),e);", "(a,b,(c,d,e));", "((a,b,f),(c,d,e));"]
)
def test_names_that_may_be_exchanged(known):
    species = clades_of_newick(known)[1]
    assert names_exchanged(known, species) == pytest.approx(by_enumeration(known, species), rel=1e-12)
    assert names_exchanged(known, species[:3]) == pytest.approx(by_enumeration(known, species[:3]), rel=1e-12)


def test_ten_species_leave_two_exchanges():
    species = clades_of_newick(AMNIOTES)[1]
    assert names_exchanged(AMNIOTES, species) == 2 / math.factorial(10)


@pytest.fixture(scope="module")
def organs_run(tmp_path_factory):
    data = tmp_path_factory.mktemp("data")
    (data / organs.FOLDER).mkdir()
    (data / organs.FOLDER / "SOURCE.txt").write_text("made up")
    codes = ("hsa", "ptr", "ggo", "mml", "gga")
    paper_files.write_brawand(data / organs.FOLDER / "five.txt", codes, individuals=120)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(organs, "RANKS", (6, 7, 8))
        patch.setattr(organs, "RESAMPLES", 6)
        arguments = ["organs", "--data", str(data), "--output", str(data / "out"), "--permutations", "4"]
        assert run.main([*arguments, "--tree", "((((Human,Chimpanzee),Gorilla),Macaque),Chicken);"]) == 0
    return data


def test_trees_are_found_where_they_are_planted(organs_run):
    results = json.loads((organs_run / "out" / "organs" / RESULTS).read_text())
    n = results["numbers"]
    assert (n["species"], n["groups"], n["left_out"]) == (5, 3, "none")
    table = pd.read_csv(organs_run / "out" / "organs" / "at_rank.csv").set_index(["rows", "features"])
    loadings = table.xs("loadings of MCPCs", level="features")
    assert loadings["species"].to_dict() == {"pooled": 5, "brain": 5, "heart": 4, "liver": 5}
    for organ in ("brain", "liver"):
        assert loadings["normalized"][organ] == 0
        assert loadings["p"][organ] <= 0.2
        assert loadings["normalized"][organ] < table["normalized"][organ, "means of PCs"]
        assert loadings["support of known clades"][organ] > 0.5
    assert loadings["normalized"]["heart"] > 0.4
    support = pd.read_csv(organs_run / "out" / "organs" / "support.csv")
    assert list(support.columns) == ["clade", "pooled", "brain", "heart", "liver"]
    page = write_up.fill(write_up.read_template("organs"), results)
    assert "organs_by_group.png" in page
    assert "Left out" not in page


def test_species_by_organ_as_the_authors_cluster(organs_run, tmp_path, monkeypatch):
    monkeypatch.setattr(methods_primates, "methods", partial(methods_primates.methods, ranks=(3, 5)))
    path = organs_run / organs.FOLDER / "five.txt"
    tree = "((((Human,Chimpanzee),Gorilla),Macaque),Chicken);"
    arguments = ["primates", "--as-authors", "--organs", str(path), "--tree", tree, "--output", str(tmp_path)]
    assert run.main(arguments) == 0
    results = json.loads((tmp_path / "primates_authors" / RESULTS).read_text())
    by_sentence = {row[0]: row[1:] for row in results["tables"]["methods"]["rows"]}
    how, out = by_sentence["The same within each organ (not in the paper)"]
    assert "3 of them, with 4 to 5 species; ranks 2 to 5" in how
    assert out.startswith("right, of all and ranks: loadings ")
    assert " of 6" in out


def test_what_is_missing_is_said(tmp_path, capsys):
    arguments = ["organs", "--output", str(tmp_path / "out")]
    for given, message in (
        (["--data", str(tmp_path)], "species_organs is missing: put a table of species by organ there"),
        (["--data", str(tmp_path / "no")], "is no folder; name the one that has species_organs"),
        (["--organs", str(tmp_path / "no.csv")], "no.csv is missing; docs/studies says where to get it"),
        (["--as-authors", "--data", str(tmp_path)], "Study organs has no version of the authors to run"),
        ([], "Study organs needs --data DIR"),
    ):
        assert run.main([*arguments, *given]) == 2
        assert message in capsys.readouterr().err
    (tmp_path / organs.FOLDER).mkdir()
    assert run.main([*arguments, "--data", str(tmp_path)]) == 2
    assert "has 0 files that end in .csv, .csv.gz" in capsys.readouterr().err
    path = paper_files.write_brawand(tmp_path / organs.FOLDER / "ten.txt", individuals=2)
    assert run.main([*arguments, "--organs", str(path), "--tree", PRIMATES]) == 2
    assert "The known tree lacks Bonobo, Chicken, Mouse, Opossum, Orangutan, Platypus;" in capsys.readouterr().err


def test_all_studies_run_without_a_table_of_organs(tmp_path, capsys, monkeypatch):
    study_data.write_all(tmp_path)
    ran = []
    monkeypatch.setattr(run, "_task", lambda name, given, report: lambda: ran.append(name))
    assert run.main(["all", "--data", str(tmp_path), "--output", str(tmp_path / "out")]) == 0
    assert ran == [name for name in run.STUDIES if name != "organs"]
    assert "organs: left out, " in capsys.readouterr().err
    (tmp_path / organs.FOLDER).mkdir()
    paper_files.write_brawand(tmp_path / organs.FOLDER / "ten.txt")
    ran.clear()
    assert run.main(["all", "--data", str(tmp_path), "--output", str(tmp_path / "out")]) == 0
    assert ran == list(run.STUDIES)
