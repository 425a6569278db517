"""The studies read the paper's own files as published, hold little of them in memory, and their runs have pages too."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.decomposition import PCA

import mcpca.analysis
from studies import cells, corpus, formats, loaders, run, stored, write_up
from studies.output import RESULTS

anndata, h5py = pytest.importorskip("anndata"), pytest.importorskip("h5py")
import paper_files  # noqa: E402 (needs h5py)

# Values stay in their files


@pytest.fixture(scope="module")
def planted():
    """Rows with a large mean, (300, 20), half of them zeros."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 20)) @ np.diag(np.linspace(3, 0.3, 20)) + 50
    X[rng.random(X.shape) < 0.5] = 0
    return X


def write_h5ad(path, X):
    n, p = X.shape
    obs = pd.DataFrame(index=[f"c{i}" for i in range(n)])
    anndata.AnnData(X, obs=obs, var=pd.DataFrame(index=[f"G{j}" for j in range(p)])).write_h5ad(path)
    return path


@pytest.mark.parametrize("kind", [np.asarray, csr_matrix], ids=["dense", "sparse"])
def test_stored_axes_are_those_of_pca(tmp_path, monkeypatch, planted, kind):
    path = write_h5ad(tmp_path / "rows.h5ad", kind(planted))
    monkeypatch.setattr(stored, "BLOCK", 8 * 20 * 7)  # seven rows at a time
    chosen, columns = np.flatnonzero(np.arange(300) % 3 > 0), np.arange(1, 20)
    rows = stored.StoredRows((stored.Part(path, chosen, columns),), np.repeat("a", 200), [f"G{j}" for j in columns])
    Z, pca = loaders.pooled_axes(rows, 5)
    X = planted[chosen][:, columns]
    whole = PCA(5, svd_solver="full").fit(X)
    np.testing.assert_allclose(Z, whole.transform(X), atol=1e-8)
    np.testing.assert_allclose(pca.components_, whole.components_, atol=1e-10)
    np.testing.assert_allclose(pca.explained_variance_, whole.explained_variance_)
    np.testing.assert_allclose(pca.explained_variance_ratio_, whole.explained_variance_ratio_)
    assert list(pca.feature_names_in_) == rows.features


def test_axes_of_other_rows_than_those_projected_and_counts_scaled(tmp_path, planted):
    counts = np.abs(np.round(planted))
    counts[7] = 0  # nothing to divide by
    paths = [write_h5ad(tmp_path / f"{i}.h5ad", counts[150 * i : 150 * i + 150]) for i in range(2)]
    every = np.arange(150)
    parts = tuple(stored.Part(path, every, np.arange(19), 100.0) for path in paths)
    rows = stored.StoredRows(parts, np.repeat(["a", "b"], 150), [f"G{j}" for j in range(19)])
    some = np.arange(300) % 2 == 0
    Z, _ = stored.stored_axes(rows.take(some), 3)
    # Sizes are over all genes of the file, also the one that was left out.
    X = np.log1p(counts * 100 / np.maximum(counts.sum(axis=1, keepdims=True), 1))[:, :19]
    whole = PCA(3, svd_solver="full").fit(X)
    np.testing.assert_allclose(Z, whole.transform(X)[some], atol=1e-8)
    assert rows.take(some).y.tolist() == rows.y[some].tolist()


def test_tall_rows_take_the_room_of_a_block(tmp_path):
    """60,000 x 300 as float64 are 144 MB; the peak grows by less than a third of that."""
    path = tmp_path / "tall.h5ad"
    with h5py.File(write_h5ad(path, np.zeros((1, 300), dtype=np.float32)), "r+") as file:
        del file["X"]
        made = file.create_dataset("X", (60_000, 300), dtype=np.float32)
        for first in range(0, 60_000, 10_000):
            made[first : first + 10_000] = np.random.default_rng(first).random((10_000, 300), dtype=np.float32)
    code = f"""
import resource, numpy as np
from studies import stored
stored.BLOCK = 2**21
part = lambda n: stored.Part({str(path)!r}, np.arange(n), np.arange(300))
rows = lambda n: stored.StoredRows((part(n),), np.zeros(n), ["G"] * 300)
stored.stored_axes(rows(1000), 5)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
Z, _ = stored.stored_axes(rows(60_000), 5)
assert Z.shape == (60_000, 5)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    root = Path(stored.__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 48_000  # KiB


def test_large_tables_have_the_axes_of_a_full_decomposition(monkeypatch, planted):
    rows = loaders.Rows(planted, np.repeat("a", 300), [f"G{j}" for j in range(20)])
    Z, _ = loaders.pooled_axes(rows, 4)
    monkeypatch.setattr(loaders, "LARGE", 10)
    np.testing.assert_allclose(loaders.pooled_axes(rows, 4)[0], Z, atol=1e-8)


def test_files_that_are_no_h5ad(tmp_path):
    (tmp_path / "text.h5ad").write_text("text")
    with pytest.raises(ValueError, match=r"--luca .*text.h5ad is no .h5ad file"):
        cells.luca(tmp_path / "text.h5ad")
    h5py.File(tmp_path / "empty.h5ad", "w").close()
    with pytest.raises(ValueError, match="has no X, obs, var"):
        cells.replogle(tmp_path / "empty.h5ad")
    with pytest.raises(FileNotFoundError, match=r"--species .*none.h5ad is missing"):
        cells.species_cells([tmp_path / "none.h5ad"])


# Formats


def test_xena_tables(tmp_path):
    expression, phenotype, survival = paper_files.write_xena(tmp_path)
    rows = formats.xena(expression, phenotype, survival)
    # Without the gene that has a missing value, normal tissue, and a type with one tumour.
    assert rows.X.shape == (480, 17)
    assert rows.features[:2] == ["GENE0", "GENE1"]
    assert (rows.about["time"] > 0).all()
    table = pd.read_csv(expression, sep="\t", index_col=0)
    np.testing.assert_allclose(rows.X[7, 3], table.iloc[3, 7], rtol=1e-6)
    about = pd.read_csv(phenotype, sep="\t")
    # The names of TcgaTargetGTEX_phenotype, and its encoding.
    other = about.rename(columns={"_primary_disease": "primary disease or tissue", "sample_type": "_sample_type"})
    other.assign(more="caf\u00e9").to_csv(phenotype, sep="\t", index=False, encoding="latin-1")
    assert formats.xena(expression, phenotype).y.tolist() == rows.y.tolist()
    about.drop(columns="sample_type").to_csv(phenotype, sep="\t", index=False)
    with pytest.raises(ValueError, match=r"phenotype.tsv has none of the columns \['sample_type', '_sample_type'\]"):
        formats.xena(expression, phenotype)
    about.assign(sample="other").to_csv(phenotype, sep="\t", index=False)
    with pytest.raises(ValueError, match="no primary tumour in common"):
        formats.xena(expression, phenotype)
    about.to_csv(phenotype, sep="\t", index=False)
    with pytest.raises(ValueError, match=r"No cancer type .* has 90 primary tumours; the most are 80"):
        formats.xena(expression, phenotype, min_rows=90)


def test_luca(tmp_path):
    path = paper_files.write_luca(tmp_path / "luca.h5ad", anndata)
    rows = cells.luca(path)
    assert rows.features == [f"GENE{i}" for i in range(11)]
    # A patient with few cells is left out, and of the last one a healthy cell and one of another disease.
    assert {name: int((rows.y == name).sum()) for name in set(rows.y)} == {
        f"P{i}": 202 if i < 15 else 200 for i in range(1, 16)
    }
    assert set(rows.about["stage"][rows.y == "P12"]) == {"IV"}
    adata = anndata.read_h5ad(path)
    Z, _ = stored.stored_axes(rows, 11)
    chosen = (adata.obs["ann_fine"] == "Cancer cells") & (adata.obs["disease"] == "lung adenocarcinoma")
    X = adata[chosen & (adata.obs["donor_id"] != "P0")][:, :11].X.toarray()
    # All axes: distances between cells are those in the space of genes.
    np.testing.assert_allclose(np.linalg.norm(Z[0] - Z, axis=1), np.linalg.norm(X[0] - X, axis=1), rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match=r"0 patients .* have 500 cancer cells, .* the most are 202"):
        cells.luca(path, min_cells=500)
    with pytest.raises(ValueError, match=r"no cell with disease in \['asthma'\] .* there are \['lung adenocarcinoma'"):
        cells.luca(path, diseases=["asthma"])
    # The authors' own names.
    names = {"donor_id": "patient", "disease": "condition", "ann_fine": "cell_type"}
    adata.obs = adata.obs.rename(columns=names)
    adata.obs["condition"] = adata.obs["condition"].cat.rename_categories({"lung adenocarcinoma": "LUAD"})
    adata.obs["cell_type"] = adata.obs["cell_type"].cat.rename_categories({"Cancer cells": "Tumor cells"})
    adata.var = adata.var.set_index("feature_name")
    adata.write_h5ad(tmp_path / "authors.h5ad")
    again = cells.luca(tmp_path / "authors.h5ad")
    assert again.y.tolist() == rows.y.tolist()
    assert again.features == rows.features
    adata.obs = adata.obs.drop(columns="uicc_stage")
    adata.write_h5ad(tmp_path / "authors.h5ad")
    with pytest.raises(ValueError, match=r"has none of the columns \['uicc_stage'\]; it has \['patient'"):
        cells.luca(tmp_path / "authors.h5ad")
    adata.X = csr_matrix(np.round(100 * np.abs(adata.X.toarray())))
    adata.write_h5ad(tmp_path / "counts.h5ad")
    with pytest.raises(ValueError, match="X holds counts; pass the published atlas"):
        cells.luca(tmp_path / "counts.h5ad")


def test_replogle(tmp_path):
    path = paper_files.write_replogle(tmp_path / "raw.h5ad")
    rows = cells.replogle(path)
    assert sorted(set(rows.y)) == [*"ABCDEFGH", "non-targeting"]
    assert len(rows.y) == 9 * 301 - 1  # without the cell of few counts
    assert len(rows.parts[0].pooled) == 9 * 301 - 1 + 50  # axes are those of perturbations with few cells too
    assert rows.features[0] == "G0"
    (X,) = rows.blocks(pooled=False)
    np.testing.assert_allclose(np.expm1(X).sum(axis=1), 1000)
    # scPerturb's version: another format, symbols as index, compressed; and without sums, which are then counted.
    counts, y = paper_files.replogle_counts()
    obs = pd.DataFrame({"perturbation": pd.Categorical(y)}, index=[f"c{i}" for i in range(len(y))])
    var = pd.DataFrame({"ensembl_id": "E"}, index=[f"G{i}" for i in range(12)])
    anndata.AnnData(counts, obs=obs, var=var).write_h5ad(tmp_path / "sc.h5ad", compression="gzip")
    again = cells.replogle(tmp_path / "sc.h5ad")
    assert again.y.tolist() == rows.y.tolist()
    assert again.features == rows.features
    np.testing.assert_array_equal(again.parts[0].pooled, rows.parts[0].pooled)
    with pytest.raises(ValueError, match="no perturbation with 400 cells of 2000 counts or more; the most are 301"):
        cells.replogle(path, min_cells=400)
    with h5py.File(path, "r+") as file:
        file["X"][...] = np.log1p(counts)
    with pytest.raises(ValueError, match="X holds no counts; pass raw ones"):
        cells.replogle(path)


def test_species(tmp_path):
    files = paper_files.write_species(tmp_path, anndata)
    rows = cells.species_cells(files)
    assert rows.features == sorted(f"G{j}" for j in range(3, 30))
    assert list(dict.fromkeys(rows.y)) == ["Human", "Chimpanzee", "Gorilla", "Marmoset"]
    first, second, *_ = rows.blocks(pooled=False)
    one, two = (anndata.read_h5ad(path) for path in files[:2])
    sizes = np.asarray(one.X.sum(axis=1)).ravel()
    at = one.var["feature_name"].tolist().index(rows.features[4])
    np.testing.assert_allclose(first[:, 4], np.log1p(1e4 * one.X[:, [at]].toarray().ravel() / sizes), rtol=1e-6)
    at = two.var["feature_name"].tolist().index(rows.features[4])
    np.testing.assert_allclose(second[:, 4], two.X[:, [at]].toarray().ravel())
    with pytest.raises(ValueError, match=r"2 files .* needs 3 species"):
        cells.species_cells(files[:2])
    with pytest.raises(ValueError, match="are both of Human; pass a file for each"):
        cells.species_cells([files[0], files[0]])
    one.obs = one.obs.drop(columns="organism")
    one.uns["organism"] = "Homo sapiens"
    one.write_h5ad(tmp_path / "uns.h5ad")
    two.obs = two.obs.drop(columns="organism")
    two.write_h5ad(tmp_path / "Bonobo.h5ad")
    assert set(cells.species_cells([tmp_path / "uns.h5ad", tmp_path / "Bonobo.h5ad", files[2]]).y) == {
        *("Human", "Bonobo", "Gorilla")
    }
    two.var["feature_name"] = "same"
    two.write_h5ad(tmp_path / "Bonobo.h5ad")
    with pytest.raises(ValueError, match="have 0 genes in common"):
        cells.species_cells([tmp_path / "Bonobo.h5ad", files[2], files[3]])


def test_gutenberg(tmp_path, monkeypatch):
    asked = {}

    def embed(sentences, word, model, **options):
        asked.update(n=len(sentences), word=word, model=model)
        return paper_files.embed(sentences, word, model)

    monkeypatch.setattr(mcpca.analysis, "contextual_embeddings", embed)
    folder, catalogue = paper_files.write_pg19(tmp_path)
    rows = corpus.gutenberg(folder, catalogue, model="tiny")
    assert asked == {"n": 720, "word": "human", "model": "tiny"}
    assert len(rows.y) == 719
    assert sorted(set(rows.y)) == [f"{form} {year}" for form in ("fiction", "science") for year in (1800, 1820, 1840)]
    assert rows.about["work"][0] == "Work 0, in parts (1800)"
    assert rows.about["work"].nunique() == 12
    records = pd.DataFrame({"TEXT": "long", "METADATA": paper_files.gutenberg_records()})
    records.to_csv(tmp_path / "records.csv", index=False)
    assert len(corpus.gutenberg(folder, tmp_path / "records.csv").y) == 719
    pd.DataFrame({"METADATA": ["no json"]}).to_csv(tmp_path / "records.csv", index=False)
    with pytest.raises(ValueError, match="METADATA is no JSON"):
        corpus.gutenberg(folder, tmp_path / "records.csv")
    pd.DataFrame({"id": [1]}).to_csv(tmp_path / "records.csv", index=False)
    with pytest.raises(ValueError, match="lacks the columns"):
        corpus.gutenberg(folder, tmp_path / "records.csv")
    with pytest.raises(FileNotFoundError, match=r"metadata.csv is missing; --pg19"):
        corpus.gutenberg(tmp_path / "train", catalogue)


def test_gutenberg_in_parquet(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(mcpca.analysis, "contextual_embeddings", paper_files.embed)
    folder, _ = paper_files.write_pg19(tmp_path)
    (tmp_path / "parquet").mkdir()
    records = pd.DataFrame({"TEXT": "long", "METADATA": paper_files.gutenberg_records()})
    for i in range(2):
        records.iloc[6 * i : 6 * i + 6].to_parquet(tmp_path / "parquet" / f"train-{i}.parquet")
    assert len(corpus.gutenberg(folder, tmp_path / "parquet").y) == 719
    records[["TEXT"]].to_parquet(tmp_path / "texts.parquet")
    with pytest.raises(ValueError, match="has no METADATA in Parquet"):
        corpus.gutenberg(folder, tmp_path / "texts.parquet")


def test_sentences_are_cut_at_their_ends():
    text = (
        'The human\nmind. "Is it human?" he said. Mr. Smith, a Human being, left. Inhuman acts. None! Dr. No is human'
    )
    assert corpus.sentences_with(text, "human") == [
        "The human mind.",
        '"Is it human?" he said.',
        "Mr. Smith, a Human being, left.",
        "Dr. No is human",
    ]
    assert corpus.sentences_with("Humanity alone.", "human") == []


@pytest.mark.parametrize(
    ("words", "form"),
    [
        ("Geology -- England", "science"),
        ("Love stories", "fiction"),
        ("Science fiction", "fiction"),
        ("Ethics; Detective and mystery stories", None),
        ("Cookery", None),
    ],
)
def test_forms_by_keywords(words, form):
    assert corpus.form_of(words) == form


# Runs and their pages


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Every study on small files in the paper's formats, from the command line, and where results went."""
    pytest.importorskip("lifelines")
    folder = tmp_path_factory.mktemp("paper")
    for name in ("species", "pg19"):
        (folder / name).mkdir()
    expression, phenotype, survival = paper_files.write_xena(folder)
    pg19, catalogue = paper_files.write_pg19(folder / "pg19")
    options = {
        "tcga": ["--xena", expression, "--phenotype", phenotype, "--survival", survival],
        "patients": ["--luca", paper_files.write_luca(folder / "luca.h5ad", anndata)],
        "perturb": [
            *("--replogle", paper_files.write_replogle(folder / "raw.h5ad")),
            *("--links", paper_files.write_links(folder / "GO.gmt")),
        ],
        "primates": ["--species", *paper_files.write_species(folder / "species", anndata)],
        "human": ["--pg19", pg19, "--catalogue", catalogue],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mcpca.analysis, "contextual_embeddings", paper_files.embed)
        for study, given in options.items():
            arguments = [study, *map(str, given), "--output", str(folder / "out"), "--permutations", "3"]
            assert run.main(arguments) == 0
    return folder / "out"


# What a page must name: the file, and what was planted in it.
NAMED = {
    "tcga_xena": [
        "`expression.xena.gz`, types by `phenotype.tsv`",
        "480, primary, of 6 types",
        "**Survival**",
        "**Survival by type.**",
    ],
    "patients_luca": [
        "`luca.h5ad`",
        "15 patients with 200 or more (200 to 202)",
        "of 14 patients, 7 of them III or IV",
    ],
    "perturb_replogle": [
        "`raw.h5ad`",
        "2,758 with 2,000 counts",
        "| 8 with 300 cells or more",
        "| GO, sets of 5 at most |",
    ],
    "primates_species": ["Human (0-0.h5ad)", "27 that all files have", "Marmoset 80"],
    "human_pg19": ["PG-19 with pg_catalog.csv", "`bert-base-uncased`", "719, of 12 works"],
}


def test_runs_on_the_papers_files_have_pages(runs, tmp_path):
    assert sorted(path.name for path in runs.iterdir()) == sorted(NAMED)
    assert write_up.main([str(runs), "--docs", str(tmp_path)]) == 0
    for name, texts in NAMED.items():
        page = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
        for text in texts:
            assert text in page
        assert not re.search(r"\{[a-z_.]+[}:]|<!--|\bnan\b|\bNone\b|  \|  \|", page)
        assert f"python studies/run.py {name.split('_')[0]} --{name.split('_')[1]} " in page
        assert "--data DIR" not in page
        for figure in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page):
            assert figure.startswith(name)
            assert (tmp_path / figure).read_bytes().startswith(b"\x89PNG")
        assert json.loads((tmp_path / f"{name}.json").read_text())["study"] == name


def test_planted_truth_is_found_in_the_papers_formats(runs):
    results = {path.name: json.loads((path / RESULTS).read_text()) for path in runs.iterdir()}
    claims = {name: {row[0]: row[4] for row in one["tables"]["claims"]["rows"]} for name, one in results.items()}
    assert claims["patients_luca"]["The loading of an axis goes with stage"] == "yes"
    assert claims["patients_luca"]["Its variance goes with stage, and its mean does not"] == "yes"
    assert claims["tcga_xena"]["An axis shared by few types is missed by pooled PCA"] == "yes"
    assert results["tcga_xena"]["numbers"]["organs"] > 0.5  # types of one organ have the same axes
    recall = results["perturb_replogle"]["tables"]["k562_recall"]
    assert recall["rows"][0][1] == 4  # A with B, and E, F and G; X was not perturbed
    assert results["perturb_replogle"]["numbers"]["controls"] == 301
    assert results["primates_species"]["numbers"]["species"] == 4


def test_no_number_is_typed_into_templates_of_such_runs():
    for name in NAMED:
        text = re.sub(r"\{[^}]*\}|`[^`]*`", "", write_up.read_template(name))
        assert re.findall(r"(?<![\w.{])\d+\.\d+(?!\w)", text) == []
    with pytest.raises(
        FileNotFoundError, match=r"study 'tcga_gtex' has no template. There are \['digits', 'guides', 'human', "
    ):
        write_up.read_template("tcga_gtex")


def test_make_says_at_once_that_data_are_missing():
    root = Path(run.__file__).parent.parent
    try:
        done = subprocess.run(["make", "-n", "studies", "DATA="], cwd=root, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("make is not installed")
    assert done.returncode == 2
    assert "make studies needs DATA=DIR" in done.stderr
    assert "pip" not in done.stdout  # only what make says of folders, where make runs this test
