"""The paper's Methods, line by line, on small files in the paper's formats: as the authors ran them, and not."""

import json
import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter
from scipy.spatial.distance import cdist

import mcpca.analysis
from mcpca import MCPCA
from mcpca.datasets import make_contexts
from studies import (
    as_authors,
    corpus,
    formats,
    guides,
    loaders,
    methods_human,
    methods_patients,
    methods_perturb,
    methods_primates,
    methods_tcga,
    run,
    survival_types,
    write_up,
)
from studies.output import RESULTS, Report

anndata = pytest.importorskip("anndata")
pytest.importorskip("h5py")
import paper_files  # noqa: E402
import study_data  # noqa: E402

from studies import cells  # noqa: E402


def quiet(name="methods"):
    return Light(name, lambda line: None)


class Light(Report):
    """A report whose figures are made and not rendered, which takes most of the time."""

    def figure(self, name, drawn, *, dpi=100):
        plt.close(getattr(drawn, "figure", drawn))
        self._figures[f"{self.study}_{name}.png"] = b""


def lines(report):
    """What came out, by sentence."""
    return {row[0]: row[2] for row in report.results()["tables"]["methods"]["rows"]}


def line(report, word):
    (found,) = [text for sentence, text in lines(report).items() if word in sentence]
    return found


# Loaders


def test_xena_as_the_authors_read_it(tmp_path):
    expression, phenotype, survival = paper_files.write_xena(tmp_path)
    about = pd.read_csv(phenotype, sep="\t")
    more = about.iloc[[0, 1]].assign(
        sample=["TCGA-AA-7777-01", "TCGA-AA-6666-05"], sample_type=["Primary Tumor", "New"]
    )
    blood = about.iloc[:60].assign(
        sample=[f"TCGA-BB-{i:04d}-03" for i in range(60)],
        sample_type="Primary Blood Derived Cancer - Peripheral Blood",
        _primary_disease="acute myeloid leukemia",
    )
    pd.concat([about, more, blood]).to_csv(phenotype, sep="\t", index=False)
    here = formats.xena(expression, phenotype, survival)
    rows = formats.xena(expression, phenotype, survival, as_authors=True)
    # Every gene stays, with 0 for what is missing; a tumour without expression is a row of zeros.
    assert (len(here.features), len(rows.features)) == (17, 18)
    assert len(rows.y) == len(here.y) + 1
    assert (~rows.about["measured"]).sum() == 1
    assert (rows.X[~rows.about["measured"]] == 0).all()
    assert rows.X[0, rows.features.index("GENE17")] == 0
    # One tumour of thymoma is one line; blood cancers are no "Primary Tumor".
    assert set(rows.y) == set(here.y)
    assert np.isnan(rows.about["time"][~rows.about["measured"]]).all()


def test_luca_as_the_authors_read_it(tmp_path):
    path = paper_files.write_luca(tmp_path / "luca.h5ad", anndata)
    here, rows = cells.luca(path), cells.luca(path, as_authors=True)
    assert here.features == [f"GENE{i}" for i in range(11)]
    assert rows.features == [f"GENE{i}" for i in range(1, 11)]
    assert rows.coding.tolist() == [True] * 8 + [False] * 2
    # More than 200, of any disease: the last patient has 200 of adenocarcinoma, and one of another disease.
    assert set(rows.y) == set(here.y)
    assert "P15" in set(rows.y)
    assert set(cells.luca(path, as_authors=True, min_cells=201).y) == {f"P{i}" for i in range(1, 15)}
    shares = rows.about["metastasis"].groupby(rows.y).first()
    assert shares["P3"] == 1
    assert shares["P1"] == 0
    assert set(rows.about["stage"][rows.y == "P15"]) == {"III or IV"}
    adata = anndata.read_h5ad(path)
    adata.var = adata.var.drop(columns="mito")
    adata.write_h5ad(tmp_path / "other.h5ad")
    with pytest.raises(ValueError, match=r"has none of the columns \['mito'\]"):
        cells.luca(tmp_path / "other.h5ad", as_authors=True)


def test_replogle_as_the_authors_read_it(tmp_path, monkeypatch):
    path = paper_files.write_replogle(tmp_path / "raw.h5ad")
    assert len(set(cells.replogle(path, min_cells=301).y)) == 8  # of the nine, one has a cell of few counts
    with pytest.raises(ValueError, match="no perturbation with 301 cells"):
        cells.replogle(path, min_cells=301, as_authors=True)
    monkeypatch.setattr(cells, "AUTHORS_CELLS", 100)
    rows = cells.replogle(path, as_authors=True)
    assert len(rows.parts[0].pooled) == 100
    assert len(rows.y) == len(cells.replogle(path, min_cells=301).y)
    assert (np.diff(rows.parts[0].pooled) > 0).all()


@pytest.mark.parametrize(
    ("words", "here", "authors"),
    [
        ("Psychological fiction", "fiction", "fiction"),
        ("Theological essays", None, "science"),
        ("Logic; Ethics", "science", "science"),
        ("Logical thinking", "science", "science"),
        ("Ethics; Detective and mystery stories", None, "fiction"),
        ("Science fiction", "fiction", "fiction"),
        ("Northwestern states", None, "fiction"),
        ("Western stories; Novels", "fiction", "fiction"),
        ("Cookery", None, None),
    ],
)
def test_forms_here_and_by_the_authors(words, here, authors):
    assert corpus.form_of(words) == here
    assert corpus.form_of(words, as_authors=True) == authors


def test_gutenberg_as_the_authors_read_it(tmp_path, monkeypatch):
    monkeypatch.setattr(mcpca.analysis, "contextual_embeddings", paper_files.embed)
    folder, catalogue = paper_files.write_pg19(tmp_path)
    table = pd.read_csv(catalogue, keep_default_na=False)
    table.loc[0, ["Subjects", "Bookshelves"]] = "Essays", "Geology"  # only the shelf tells
    table.loc[2, "Subjects"] = "Geology -- Fiction"
    table.to_csv(catalogue, index=False)
    long = "It was human " + "x" * 600 + ". It was human nature."
    (folder / "train" / "4.txt").write_text(long, encoding="utf-8")
    here = corpus.gutenberg(folder, catalogue)
    rows = corpus.gutenberg(folder, catalogue, as_authors=True)
    # 1800 is before the first period, 1820 ends it.
    assert set(here.about["year"]) == {1800, 1820, 1840}
    assert set(rows.about["year"]) == {1820, 1840}
    assert set(rows.about["period"]) == {1800, 1820}
    assert set(rows.about["period"][rows.about["year"] == 1820]) == {1800}
    # The long sentence is left out, the short one of that work is not, although its context is smaller than 50.
    assert rows.about["sentence"].str.len().max() < 600
    assert "Work 4, in parts (1820)" in set(rows.about["work"])
    by_work = dict(zip(here.about["work"], here.about["form"], strict=True))
    assert by_work["Work 0, in parts (1800)"] == "science"
    assert "Work 2, in parts (1800)" not in by_work  # both forms


def test_tables_of_species(tmp_path):
    paths, listed = paper_files.write_species_tables(tmp_path)
    rows = cells.species_tables(paths, listed)
    assert rows.features == [f"G{j}" for j in range(9)]
    assert list(dict.fromkeys(rows.y)) == ["Human", "Chimpanzee", "Gorilla", "Macaque", "Marmoset"]
    assert cells.species_tables(paths).features == [f"G{j}" for j in range(10)]
    table = pd.read_csv(paths[1], index_col=0)
    np.testing.assert_allclose(rows.X[1500], table.iloc[:9, 0])
    with pytest.raises(ValueError, match="is a second table of Human"):
        cells.species_tables([paths[0], paths[0], paths[1]])
    with pytest.raises(ValueError, match="tables of 2 species"):
        cells.species_tables(paths[:2])
    listed.write_text("absent\n")
    with pytest.raises(ValueError, match="have 0 genes in common"):
        cells.species_tables(paths, listed)


def test_sentences_at_hand_as_the_authors_take_them(tmp_path):
    data = study_data.write_all(tmp_path)
    here, rows = loaders.human(data), loaders.human(data, as_authors=True)
    period = dict(zip(rows.about["year"], rows.about["period"], strict=True))
    assert all(first < year <= first + 20 for year, first in period.items())
    own = dict(zip(here.about["year"], here.about["period"], strict=True))
    assert all(first <= year < first + 20 for year, first in own.items())


# Lines


@pytest.mark.parametrize("version", ["authors", "text"])
def test_lines_of_cancer_types(tmp_path, version):
    as_ran = version == "authors"
    expression, phenotype, survival = paper_files.write_xena(tmp_path)
    rows = formats.xena(expression, phenotype, survival, as_authors=as_ran)
    rows.features[2] = "SMTN"  # has MT in it
    (tmp_path / "sets.gmt").write_text("first\t\t" + "\t".join(rows.features[:4]) + "\nother\t\tA\tB\tC\tGENE9\n")
    report = quiet()
    methods_tcga.methods(
        rows,
        report,
        as_authors=as_ran,
        sets=[tmp_path / "sets.gmt"],
        axis="MCPC 2",
        cancer="uveal melanoma",
    )
    n = report.numbers
    assert n["tumours"] == 480
    assert n["dropped"] == (1 if as_ran else 0)
    ranks = report._tables["ranks"]
    assert ranks["rank"].tolist() == [len(rows.features)]  # no rank of 20 among so few features
    assert (n["axis"], n["cancer"]) == ("MCPC 2", "uveal melanoma")
    assert "uveal melanoma: 80 tumours" in str(report.results()["tables"]["methods"])
    # The same test as lifelines', of scores as they are.
    Z, _ = loaders.pooled_axes(rows, 400)
    model = MCPCA(min(30, Z.shape[1]), random_state=0).fit(Z, rows.y)
    own = (rows.y == "uveal melanoma") & rows.about["time"].notna().to_numpy()
    frame = rows.about[own].assign(z=(Z @ model.projection_[1])[own])[["time", "event", "z"]]
    cox = CoxPHFitter().fit(frame, "time", "event")
    assert n["cox_p"] == pytest.approx(cox.summary["p"]["z"], rel=1e-3)
    assert f"split at the {90 if as_ran else 50}% quantile" in str(report.results()["tables"]["methods"])


def test_similarities_of_fits_are_shares():
    truth = make_contexts(8, 12, 4, n_samples=400, random_state=0)
    model = MCPCA(4, random_state=0).fit(truth.X, truth.y)
    assert set(methods_tcga.similarities(model, model).values()) == {1.0}
    other = MCPCA(4, random_state=0).fit(np.random.default_rng(0).standard_normal(truth.X.shape), truth.y)
    assert max(methods_tcga.similarities(model, other).values()) < 0.5


def test_the_axis_of_two_types():
    truth = make_contexts(6, 10, 3, n_samples=400, random_state=3)
    model = MCPCA(3, random_state=0).fit(truth.X, truth.y)
    B = model.loadings_
    for pair in ([0, 1], [2, 5]):
        share = B[pair].sum(axis=0) / B.sum(axis=0)
        name = methods_tcga.axis_of_types(model, [str(model.contexts_[i]) for i in pair])
        assert name == f"MCPC {share.argmax() + 1}"


@pytest.mark.parametrize("version", ["authors", "text"])
def test_lines_of_patients(tmp_path, version):
    as_ran = version == "authors"
    path = paper_files.write_luca(tmp_path / "luca.h5ad", anndata)
    rows = cells.luca(path, as_authors=as_ran)
    (tmp_path / "sets.gmt").write_text("first\t\tGENE0\tGENE1\tGENE2\n")
    report = quiet()
    methods_patients.methods(rows, report, as_authors=as_ran, sets=[tmp_path / "sets.gmt"])
    n = report.numbers
    assert n["patients"] == 15
    assert n["staged"] == (15 if as_ran else 14)
    assert n["genes_at_poles"] == (8 if as_ran else 11)
    assert n["axis"] == "MCPC 1"  # late stages vary more along it
    # What is planted is III and IV against I and II; counting III as early blurs it.
    assert n["axis_bonferroni"] < (0.1 if as_ran else 0.01)
    assert n["sd_p"] < 0.01 < n["mean_p"]
    assert n["axis_halves"] > 0.95
    assert n["axis_seeds"] > 0.999
    assert n["metastasis_p"] > 0.05
    assert len(lines(report)) >= 9
    late = {"authors": "late: III or IV and IV", "text": "late: III and IV"}[version]
    assert late in str(report.results()["tables"]["methods"])


@pytest.mark.parametrize("version", ["authors", "text"])
def test_lines_of_lung_samples_at_hand(tmp_path, version):
    """Advanced tumours, pleural effusions and brain metastases vary five times as much along one axis as early ones."""
    rng = np.random.default_rng(0)
    study_data.write_patients(tmp_path, rng)
    study_data.write_tumours(tmp_path, rng)
    as_ran = version == "authors"
    rows = loaders.lung_tumours(tmp_path, as_authors=as_ran)
    stage = rows.about["stage"].groupby(rows.y).first()
    # Two samples are of normal lung, one has too few cells; one has 200, which the authors ask more than.
    assert stage.value_counts().to_dict() == {"early": 7 - as_ran, "advanced": 7, "": 2}
    assert rows.about["metastasis"].groupby(rows.y).first().sum() == 6
    assert set(rows.about["cell_type"]) == {"Myeloid cells"}
    out = tmp_path / "out"
    assert run.main(["patients", f"--as-{version}", "--data", str(tmp_path), "--output", str(out)]) == 0
    results = json.loads((out / f"patients_{version}" / RESULTS).read_text())
    n = results["numbers"]
    assert (n["patients"], n["staged"], n["axis"]) == (16 - as_ran, 14 - as_ran, "MCPC 1")
    assert n["axis_bonferroni"] < 1e-3
    assert n["sd_p"] < 1e-4 < 0.01 < n["mean_p"]
    assert n["axis_halves"] > 0.99
    assert n["other_patients"] == 2
    assert min(n["other_seeds"]) > 0.99
    by_sentence = {row[0]: row[1:] for row in results["tables"]["methods"]["rows"]}
    assert (
        "needs stages, --luca FILE. Samples of no such kind, 2, are in the fit"
        in by_sentence["Cancer stage, I to IV"][1]
    )
    assert "stage and metastasis, which the file does not have" in by_sentence["The same for patients with melanoma"][1]
    page = write_up.fill(write_up.read_template(f"patients_{version}"), results)
    assert "early: " in page
    with pytest.raises(ValueError, match=r"cell_type='B cells'; there are \['Myeloid cells', 'T/NK cells'\] from"):
        loaders.lung_tumours(tmp_path, cell_type="B cells")


def test_stages_of_the_authors_count_three_as_early():
    stage = pd.Series(["I", "II", "III", "III", "IV", "III or IV"], index=list("abcdef"))
    values = pd.DataFrame({"v": [0.0, 0.1, 0.0, 0.2, 5, 5.2]}, index=stage.index)
    authors = methods_patients.stage_tests(values, stage, methods_patients.STAGES["authors"])
    text = methods_patients.stage_tests(values, stage[stage != "III or IV"], methods_patients.STAGES["text"])
    assert authors["t p"]["v"] < 1e-6 < 0.05 < text["t p"]["v"]
    with pytest.raises(ValueError, match="0 of 2 patients have a late stage"):
        methods_patients.stage_tests(values, stage[:2], methods_patients.STAGES["text"])


def naive_recall(F, links, names):
    """The authors' get_recall in words: standardise, cosine distances with the diagonal, both 5% tails."""
    z = (F - F.mean(axis=0)) / (1e-4 + F.std(axis=0))
    distance = cdist(z, z, "cosine")
    pairs = [(a, b) for a in range(len(names)) for b in range(a, len(names))]
    values = np.array([distance[a, b] for a, b in pairs])
    low, high = np.percentile(values, 5), np.percentile(values, 95)
    called = {
        tuple(sorted((names[a], names[b]))) for (a, b), v in zip(pairs, values, strict=True) if v < low or v > high
    }
    return len(links & called) / len(links)


def test_recall_of_the_authors(tmp_path):
    rng = np.random.default_rng(0)
    names = [f"P{i:02d}" for i in range(60)]
    F = rng.standard_normal((60, 6))
    some = rng.choice(60, (40, 2))
    links = {tuple(sorted((names[a], names[b]))) for a, b in some} | {("P02", "P02")}
    table = methods_perturb.recall_table({"mean PCs": {0: F}}, {"links": links}, names, as_authors=True, exchanges=200)
    assert table["recall"][0] == pytest.approx(naive_recall(F, links, names))
    assert 0 < table["recall"][0] < 1
    # A pair of a perturbation with itself is always called, whatever the names.
    own = {("P02", "P02"), ("P07", "P07")}
    table = methods_perturb.recall_table({"mean PCs": {0: F}}, {"own": own}, names, as_authors=True, exchanges=20)
    assert (table["recall"][0], table["by chance"][0], table["p"][0]) == (1, 1, 1)
    upper = np.triu_indices(60, 1)
    called, theirs = (methods_perturb.called_pairs(F, as_authors=one) for one in (False, True))
    assert called[upper].mean() == pytest.approx(0.1, abs=0.01)
    assert not np.diag(called).any()
    assert np.diag(theirs).all()
    # Of 1,830 pairs 60 are on the diagonal, which leaves fewer places for others among the nearest 5%.
    assert theirs[upper].sum() < called[upper].sum() - 50


def test_links_of_published_files(tmp_path):
    corum, signor, reactome = paper_files.write_pair_files(tmp_path)
    gmt = paper_files.write_links(tmp_path / "GO.gmt")
    files = {"corum": corum, "signor": signor, "reactome": reactome, "GO": gmt}
    names = list("ABCDEFGH")
    with_selves = methods_perturb.known_links(files, names, self_pairs=True)
    assert with_selves["corum"] == {("A", "B"), ("B", "B")}
    assert with_selves["signor"] == {("A", "B"), ("C", "C")}
    assert with_selves["reactome"] == {("A", "A"), ("A", "B")}
    assert with_selves["GO, sets of 5 at most"] == {("A", "B"), ("E", "F"), ("E", "G"), ("F", "G")}
    assert "GO" not in with_selves  # larger sets add no pair
    without = methods_perturb.known_links(files, names, self_pairs=False)
    assert without["corum"] == without["signor"] == without["reactome"] == {("A", "B")}


def test_signed_loadings_are_least_squares():
    truth = make_contexts(6, 8, 3, n_samples=50, noise=0.5, random_state=0)
    model = MCPCA(3, random_state=0).fit(truth.X, truth.y)
    found = methods_perturb.signed_loadings(model, truth.X, truth.y)
    A = model.components_
    design = np.stack([np.outer(a, a).ravel() for a in A.T], axis=1)
    for i, name in enumerate(model.contexts_):
        S = np.cov(truth.X[truth.y == name], rowvar=False)
        np.testing.assert_allclose(found[i], np.linalg.lstsq(design, S.ravel(), rcond=None)[0], rtol=1e-8)
    positive = (found > 0).all(axis=1)
    assert positive.any()
    np.testing.assert_allclose(found[positive], model.loadings_[positive], rtol=1e-6)


@pytest.mark.parametrize("version", ["authors", "text"])
def test_lines_of_perturbations(tmp_path, version):
    as_ran = version == "authors"
    # More than 299 is what 300 or more is.
    path = paper_files.write_replogle(tmp_path / "raw.h5ad")
    rows = cells.replogle(path, as_authors=as_ran, min_cells=299 if as_ran else 300)
    files = {"GO": paper_files.write_links(tmp_path / "GO.gmt"), "signor": paper_files.write_pair_files(tmp_path)[1]}
    report = quiet()
    methods_perturb.methods(rows, files, report, as_authors=as_ran, exchanges=20, ranks=(2, 4))
    n = report.numbers
    # Controls are a perturbation to the authors.
    assert n["perturbations"] == (9 if as_ran else 8)
    recall = report._tables["recall"]
    assert set(recall["features"]) == {"mean PCs", "with loadings", "with PC spreads"}
    assert recall.set_index("links")["to itself"].loc["signor"].tolist() == [int(as_ran)] * 3
    assert n["collections"] == 2
    with pytest.raises(ValueError, match="No link is between two perturbations"):
        methods_perturb.methods(rows, {"none": {"set": ["x", "y"]}}, quiet(), as_authors=as_ran, ranks=(2,))


def test_lines_of_species(tmp_path):
    paths, listed = paper_files.write_species_tables(tmp_path)
    rows = cells.species_tables(paths, listed)
    tree = "((((Human,Chimpanzee),Gorilla),Macaque),Marmoset);"
    report = quiet()
    methods_primates.methods(rows, tree, report, as_authors=True, ranks=(3, 4))
    n = report.numbers
    assert n["right_loadings"] == 2
    assert n["right_means"] == 0
    assert n["merges"] == [0, 0]
    assert "9 genes (the authors' notebook: 13,991)" in line(report, "500 PCs")


def test_topological_disagreement_counts_numbers_of_clusters():
    # The authors' known tree: divergence in millions of years, as their notebook has it.
    D = np.array([[0, 6, 8, 25, 40], [6, 0, 8, 25, 40], [8, 8, 0, 25, 40], [25, 25, 25, 0, 40], [40, 40, 40, 40, 0]])
    J = np.eye(5) - 1 / 5
    w, V = np.linalg.eigh(-0.5 * J @ D**2 @ J)
    X = V[:, w > 1e-9] * np.sqrt(w[w > 1e-9])
    np.testing.assert_allclose(cdist(X, X), D, atol=1e-5)
    assert methods_primates.merges_that_differ(X) == 0
    # Chimpanzee and gorilla first: the first two merges have other numbers, the later ones the same.
    assert methods_primates.merges_that_differ(X[[2, 1, 0, 3, 4]]) == 2
    names = ["Human", "Chimpanzee", "Gorilla", "Macaque", "Marmoset"]
    order = methods_primates.caterpillar("((((Human,Chimpanzee),Gorilla),Macaque),Marmoset);", names)
    assert set(order[:2]) == {"Human", "Chimpanzee"}
    assert order[2:] == ["Gorilla", "Macaque", "Marmoset"]
    assert methods_primates.caterpillar("((a,b),(c,d));", list("abcd")) is None


def test_overlap_of_the_authors_takes_the_middle_of_a_pc_as_well():
    rng = np.random.default_rng(0)
    z = rng.standard_normal(1000)
    same = methods_human.overlaps(z, z[:, None], 100, as_authors=False)
    assert same[0] == 1
    # Of a PC that is the MCPC itself: the 200 at its ends, half of which are among its 100 largest |scores|.
    authors = methods_human.overlaps(z, z[:, None], 100, as_authors=True)
    order, sizes = np.argsort(z), np.argsort(np.abs(z))
    top = set(order[:100]) | set(order[-100:])
    assert authors[0] == np.mean([i in top for i in [*sizes[:100], *sizes[-100:]]])
    assert authors[0] == pytest.approx(0.5)


@pytest.mark.parametrize("version", ["authors", "text"])
def test_lines_of_the_word(tmp_path, version):
    as_ran = version == "authors"
    rows = loaders.human(study_data.write_all(tmp_path), as_authors=as_ran)
    report = quiet()
    methods_human.methods(rows, report, as_authors=as_ran)
    table = report._tables["pcs"]
    assert set(table["PCs of"]) == {"all", "fiction", "science"}
    assert table["cosine"].between(0, 1.0001).all()
    first = "(1800, 1820]" if as_ran else "1800 to 1819"
    assert first in line(report, "annotated by form")
    model = MCPCA(10, random_state=0).fit(rows.X, rows.y)
    name = table["MCPC"][0]
    j = int(name.split()[-1]) - 1
    V = np.linalg.svd(rows.X - rows.X.mean(axis=0), full_matrices=False)[2][:50]
    for column, axis in (
        ("cosine", model.components_[:, j]),
        ("cosine of the projection", np.linalg.pinv(model.components_)[j]),
    ):
        assert table[column][0] == pytest.approx(np.abs(V @ axis).max() / np.linalg.norm(axis), rel=1e-6)
    shown = table["cosine of the projection" if as_ran else "cosine"][0]
    assert f"all: cos {shown:.2f}" in str(report.results()["tables"]["methods"])


# Runs


def test_runs_from_the_command_line_have_pages(tmp_path):
    (tmp_path / "data").mkdir()
    data = study_data.write_all(tmp_path / "data")
    arguments = ["human", "--data", str(data), "--output", str(tmp_path / "out"), "--permutations", "2"]
    assert run.main([*arguments, "--as-authors"]) == 0
    assert run.main([*arguments, "--as-text"]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["human_authors", "human_text"]
    assert write_up.main([str(tmp_path / "out"), "--docs", str(tmp_path / "docs")]) == 0
    page = (tmp_path / "docs" / "human_authors.md").read_text(encoding="utf-8")
    assert "as the authors ran it" in page
    assert "(1800, 1820]" in page
    assert not re.search(r"\{[a-z_.]+[}:]|<!--|\bnan\b|\bNone\b", page)
    results = json.loads((tmp_path / "out" / "human_authors" / RESULTS).read_text())
    assert len(results["tables"]["methods"]["rows"]) >= 5


@pytest.fixture(scope="module")
def authors_runs(tmp_path_factory):
    """Every study as the authors ran it, on small files in the paper's formats, from the command line."""
    folder = tmp_path_factory.mktemp("paper")
    for name in ("species", "pg19"):
        (folder / name).mkdir()
    expression, phenotype, survival = paper_files.write_xena(folder)
    pg19, catalogue = paper_files.write_pg19(folder / "pg19")
    paths, listed = paper_files.write_species_tables(folder / "species")
    (folder / "sets.gmt").write_text("set\t\tGENE1\tGENE2\tGENE3\n")
    options = {
        "tcga": ["--xena", expression, "--phenotype", phenotype, "--survival", survival, "--sets", folder / "sets.gmt"],
        "patients": [
            *("--luca", paper_files.write_luca(folder / "luca.h5ad", anndata), "--sets", folder / "sets.gmt"),
        ],
        "perturb": [
            *("--replogle", paper_files.write_replogle(folder / "raw.h5ad")),
            *("--links", paper_files.write_links(folder / "GO.gmt"), *paper_files.write_pair_files(folder)),
        ],
        "primates": ["--species", *paths, "--genes", listed],
        "human": ["--pg19", pg19, "--catalogue", catalogue],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mcpca.analysis, "contextual_embeddings", paper_files.embed)
        patch.setattr(methods_primates, "RANKS", (3, 4))
        for study, given in options.items():
            arguments = [study, *map(str, given), "--output", str(folder / "out"), "--permutations", "3"]
            assert run.main([*arguments, "--as-authors"]) == 0
    return folder / "out"


def test_each_study_runs_as_the_authors_ran_it(authors_runs, tmp_path):
    assert write_up.main([str(authors_runs), "--docs", str(tmp_path)]) == 0
    for study in as_authors.TITLES:
        page = (tmp_path / f"{study}_authors.md").read_text(encoding="utf-8")
        assert not re.search(r"\{[a-z_.]+[}:]|<!--|\bNone\b|data at hand|not run", page), study
        results = json.loads((authors_runs / f"{study}_authors" / RESULTS).read_text())
        lines_of = results["tables"]["methods"]["rows"]
        assert all(sentence and output for sentence, _, output in lines_of)
        assert len(lines_of) >= {"tcga": 7, "patients": 10, "perturb": 3, "primates": 6, "human": 5}[study]


PAGES = [f"{study}_{version}" for study in as_authors.TITLES for version in as_authors.VERSIONS]


@pytest.mark.parametrize("name", PAGES)
def test_pages_of_the_data_at_hand_hold_their_lines(name):
    results = json.loads((write_up.DOCS / f"{name}.json").read_text(encoding="utf-8"))
    page = (write_up.DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert page == write_up.fill(write_up.read_template(name), results)
    assert results["numbers"]["version"] == name.split("_")[1]
    assert "data at hand" in page or name.startswith("primates")
    assert f"studies/{name}.md" in (write_up.DOCS.parent / "authors.md").read_text(encoding="utf-8")


def test_no_part_of_the_paper_is_missing():
    text = (write_up.DOCS.parent / "paper.md").read_text(encoding="utf-8").split("## Each part of the paper")[1]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 40
    for row in rows:
        assert len(row) == 3
        assert all(cell.strip() for cell in row)
        assert "missing" not in row[2]
    named = " ".join(row[0] for row in rows)
    figures = "1A 1B 1C 2A 2B 2C 2D 2E 3A 3B 3C 3D 3E 3F 3G 3H 3I 3J 4A 4B 4C 4D 4E 4F 4G 4H 4I S1 S2B S2C S2D S2E S2F"
    for figure in [*figures.split(), "S3A-C", "S3D-E", "S3F", "S3G", "S3H", "S4A", "S4C", "S4J"]:
        assert figure in named, figure


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digits", "--as-authors", "--data", "."], "Study digits has no version of the authors"),
        (["tcga", "--as-authors"], "Study tcga needs --data DIR or --xena"),
        (["patients", "--as-authors"], "Study patients needs --data DIR or --luca"),
        (["patients", "--as-authors", "--data", "."], "lung_cancer_kim/kim2020_luad_immune_markers.npz is missing"),
        (["tcga", "--as-text", "--xena", "a"], "--xena needs --phenotype"),
        (["primates", "--as-authors", "--species", "a.csv", "b.h5ad"], "files of one kind"),
        (["primates", "--as-authors", "--species", "b.h5ad", "--genes", "g"], "--genes lists orthologues"),
    ],
)
def test_bad_command_lines(arguments, message, tmp_path, capsys):
    assert run.main([*arguments, "--output", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


def test_every_study_with_methods_has_a_title():
    assert set(as_authors.TITLES) == set(as_authors._RUNS) == set(as_authors._OPTIONS)
    assert set(as_authors.TITLES) < set(run.STUDIES)


# Survival by type


def test_score_tests_are_those_of_cox():
    rng = np.random.default_rng(1)
    n = 300
    Z = rng.standard_normal((n, 3))
    time = np.ceil(rng.exponential(np.exp(-0.3 * Z[:, 0])) * 20)  # with ties
    event = (rng.random(n) < 0.7).astype(float)
    root, p = survival_types.cox_score_tests(Z, time, event)
    U, V = np.zeros(3), np.zeros(3)
    for i in np.flatnonzero(event):
        risk = Z[time >= time[i]]
        U += Z[i] - risk.mean(axis=0)
        V += risk.var(axis=0)
    np.testing.assert_allclose(root, U / np.sqrt(V), rtol=1e-9)
    # Near to Wald's test of lifelines, and of its sign.
    for j in range(3):
        cox = CoxPHFitter().fit(pd.DataFrame({"z": Z[:, j], "time": time, "event": event}), "time", "event")
        assert root[j] == pytest.approx(cox.summary["z"]["z"], abs=0.15)
    assert p[0] < 1e-3
    assert root[0] > 0


def test_survival_by_type_finds_what_is_planted_and_little_by_chance(tmp_path):
    rng = np.random.default_rng(0)
    truth = make_contexts(5, 12, 3, n_samples=150, random_state=1)
    patients = np.array([f"TCGA-AA-{i:04d}" for i in range(len(truth.y))])
    names = np.array([f"T{i}" for i in truth.y])
    rows = loaders.Rows(truth.X, names, [f"m{i}" for i in range(12)], pd.DataFrame({"patient": patients}), "made up")
    model = MCPCA(3, random_state=0).fit(rows.X, rows.y)
    scores = (rows.X - rows.X.mean(axis=0)) @ model.projection_.T
    j = int(model.loadings_[1].argmax())
    hazard = np.where(names == "T1", np.exp(1.2 * scores[:, j] / scores[names == "T1", j].std()), 1)
    table = pd.DataFrame(
        {"sample": [f"{one}-01" for one in patients], "OS": 1, "OS.time": rng.exponential(500 / hazard) + 1}
    )
    table.loc[names == "T4", "OS"] = 0  # no deaths: not tested
    table.sample(frac=0.95, random_state=0).to_csv(tmp_path / "survival.tsv", sep="\t", index=False)
    timed = survival_types.with_times(rows, tmp_path / "survival.tsv")
    assert timed.about["time"].notna().sum() == round(0.95 * len(rows.y))
    report = quiet()
    survival_types.survival_by_type(model, rows.X, timed, report, 20)
    n = report.numbers
    assert n["survival_types"] == 4
    assert n["survival_tests"] == 12
    best = report._tables["survival_best"].iloc[0]
    assert (best["type"], best["MCPC"]) == ("T1", f"MCPC {j + 1}")
    assert best["q"] < 0.001
    assert best["hazard ratio"] > 2
    assert n["survival_found"] >= 1 > n["survival_found_chance"]
    assert n["survival_found_p"] < 0.1
    table.assign(sample="other").to_csv(tmp_path / "survival.tsv", sep="\t", index=False)
    with pytest.raises(ValueError, match="has none of the patients"):
        survival_types.with_times(rows, tmp_path / "survival.tsv")


def test_survival_goes_with_the_data_at_hand(tmp_path):
    (tmp_path / "data").mkdir()
    data = study_data.write_all(tmp_path / "data")
    rows = loaders.tcga_mirna(data)
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"sample": [f"{one}-01" for one in rows.about["patient"]], "OS": 1})
    table.assign(**{"OS.time": rng.exponential(300, len(table)) + 1}).to_csv(
        tmp_path / "times.tsv", sep="\t", index=False
    )
    report = Light("tcga", lambda line: None)
    given = run.parser().parse_args(["tcga", "--data", str(data), "--survival", str(tmp_path / "times.tsv")])
    given.permutations = 2
    run._task("tcga", given, report)()
    results = report.results()
    assert results["numbers"]["timed"] == len(rows.y)
    assert results["numbers"]["survival_types"] == 7
    page = write_up.fill(write_up.read_template("tcga"), results)
    assert "**Survival by type.** Every MCPC in each of 7 types" in page


def test_files_that_need_not_be_there_are_found_in_the_data(tmp_path):
    """A table of survival, genes of more types, and gene sets, each in a folder of its own."""
    data = study_data.write_all(tmp_path)
    small = loaders.tcga_mrna(data)
    assert len(set(small.y)) == 3
    with np.load(data / "tcga_mirna" / "tcga_mirna_log2rpm.npz") as file:
        X, barcode, context = file["X"], file["barcode"], file["context"]
    for folder in ("tcga_survival", "tcga_mrna", "gene_sets"):
        (data / folder).mkdir()
    genes = [f"GENE{i}" for i in range(X.shape[1])]
    np.savez(data / "tcga_mrna" / "seven.npz", **{"X": X, "genes": genes, "context": context, "barcode": barcode})
    rng = np.random.default_rng(0)
    times = pd.DataFrame(
        {"patient": [one[:12] for one in barcode], "event": 1, "time": rng.exponential(300, len(X)) + 1}
    )
    times.to_csv(data / "tcga_survival" / "times.csv", index=False)
    (data / "tcga_survival" / "SOURCE.txt").write_text("made up")
    (data / "gene_sets" / "sets.gmt").write_text("first\t\t" + "\t".join(genes[:4]) + "\n")
    larger = loaders.tcga_mrna(data)
    assert len(set(larger.y)) == 7
    report = Light("tcga", lambda line: None)
    given = run.parser().parse_args(["tcga", "--data", str(data)])
    given.permutations = 2
    run._task("tcga", given, report)()
    n = report.numbers
    assert n["timed"] == len(loaders.tcga_mirna(data).y)
    assert n["survival_types"] == n["mrna_survival_types"] == n["mrna_types"] == 7
    page = write_up.fill(write_up.read_template("tcga"), report.results())
    assert "**Genes of 7 types.**" in page
    assert f"The same with genes: {n['mrna_survival_tests']} tests in 7 types" in page
    lines_of = Light("tcga_authors", lambda line: None)
    given = run.parser().parse_args(["tcga", "--as-authors", "--data", str(data)])
    run._task("tcga", given, lines_of)()
    found = {row[0]: row[1:] for row in lines_of.results()["tables"]["methods"]["rows"]}
    assert "genes, seven.npz" in str(found)
    assert "not run: --sets" not in str(found)
    (data / "tcga_survival" / "other.csv").write_text("")
    with pytest.raises(FileNotFoundError, match=r"tcga_survival has 2 files that end in \.csv"):
        loaders.optional_file(data, "tcga_survival")
    assert loaders.optional_file(data, "nothing") is None
    with pytest.raises(FileNotFoundError, match="is no folder; name the one that has tcga_survival"):
        loaders.optional_file(data / "none", "tcga_survival")


# Guides


def planted_guides(effect, seed=0):
    """Four guides for each of six targets and six non-targeting ones; targets raise variance along an axis each."""
    rng = np.random.default_rng(seed)
    parts, guide, target = [], [], []
    names = [f"T{i}" for i in range(6)]
    for name in [*names, guides.CONTROL]:
        for g in range(6 if name == guides.CONTROL else 4):
            b = np.ones(6)
            if name in names:
                b[names.index(name)] += effect
            parts.append(rng.standard_normal((150, 6)) * np.sqrt(b * np.linspace(2, 1, 6)))
            guide += [f"{name}g{g}"] * 150
            target += [name] * 150
    about = pd.DataFrame({"target": target})
    return loaders.Rows(np.vstack(parts), np.array(guide), [f"G{i}" for i in range(6)], about, "made up")


def test_guides_of_one_target_are_alike_in_variance_alone(monkeypatch):
    monkeypatch.setattr(guides, "RANKS", (6,))
    report = quiet("guides")
    guides.study_guides(planted_guides(3.0), report, 8)
    n = report.numbers
    assert n["guides"] == 30
    assert n["controls"] == 6
    assert n["same"] > 0.5 > abs(n["other"])
    assert n["p"] < 0.05
    assert n["beyond_p"] < 0.05
    assert n["means_p"] > 0.05  # means were not moved
    assert write_up.fill(write_up.read_template("guides"), report.results())
    null = quiet("guides")
    guides.study_guides(planted_guides(0.0, seed=2), null, 8)
    assert null.numbers["p"] > 0.05


def test_likeness_is_from_the_controls_in_their_spread():
    rng = np.random.default_rng(0)
    F = rng.standard_normal((8, 3)) * [1, 100, 0.01] + [5, 7, 1]
    controls = np.arange(8) < 4
    S = guides.likeness(F, controls)
    np.testing.assert_allclose(np.diag(S), 1)
    np.testing.assert_allclose(guides.likeness(F * [3, 0.5, 20] + 9, controls), S)
    own = F[:4]
    d = (F[5] - own.mean(axis=0)) / own.std(axis=0, ddof=1)
    e = (F[0] - F[1:4].mean(axis=0)) / own.std(axis=0, ddof=1)
    assert S[5, 0] == pytest.approx(d @ e / np.linalg.norm(d) / np.linalg.norm(e))


def test_guides_need_targets_and_controls():
    rows = planted_guides(1.0)
    with pytest.raises(ValueError, match="the study needs two and 'non-targeting'"):
        guides.study_guides(rows.take(rows.about["target"].to_numpy() != guides.CONTROL), quiet(), 2)
