"""What ``mcpca doctor`` prints is run: for files of every kind, its command works and finds what was planted."""

import gzip
import json
import shlex
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from mcpca.cli import main

K, P, N = 3, 5, 12  # contexts, features, rows of each
FEATURES = ["ACTB", "CD4", "LYZ", "MS4A1", "NKG7"]
CONTEXTS = ["c0", "c1", "c2"]
QUICK = ["--rank", "1", "-q", "--no-report", "--no-picture", "--no-context-test", "--json"]


def rows(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(K * N, P)).round(4)
    return X, np.array([CONTEXTS[i % K] for i in range(K * N)])


def frame(seed=0):
    X, y = rows(seed)
    table = pd.DataFrame(X, columns=FEATURES)
    table.insert(0, "group", y)
    return table


def counts_table():
    """Counts of 24 genes with many zeros, by names of genes."""
    rng = np.random.default_rng(1)
    names = [f"{a}{b}" for a in "ABCD" for b in ("KT", "RAF", "TP", "XIN", "CL", "LK")]
    X = rng.poisson(rng.gamma(0.5, 4, size=24), size=(K * N, 24)).astype(float)
    X[0, 0] = 60
    return pd.DataFrame(X, columns=names).assign(group=rows()[1]), names


def annotated(X, folder, name, **obs):
    import anndata

    adata = anndata.AnnData(
        X, obs=pd.DataFrame({**obs, "group": rows()[1]}, index=[f"r{i}" for i in range(X.shape[0])])
    )
    adata.var_names = FEATURES if X.shape[1] == P else counts_table()[1]
    with warnings.catch_warnings():  # of the version of the format that will be the default
        warnings.simplefilter("ignore")
        getattr(adata, f"write_{name.rsplit('.', 1)[1]}")(folder / name)


# Kinds of files: a function that writes one into a folder, and returns what doctor is given and what should be found,
# if that differs from all contexts and features.


def plain(folder):
    frame().to_csv(folder / "x.csv", index=False)
    return ["x.csv"]


def tabs(folder):
    frame().to_csv(folder / "x.tsv", sep="\t", index=False)
    return ["x.tsv"]


def continental(folder):
    frame().to_csv(folder / "x.csv", sep=";", decimal=",", index=False)
    return ["x.csv"], {"--decimal"}


def packed(folder):
    frame().to_csv(folder / "x.csv.gz", index=False)
    return ["x.csv.gz"]


def utf16(folder):
    (folder / "x.csv").write_bytes(frame().to_csv(index=False).encode("utf-16"))
    return ["x.csv"]


def utf16_without_mark(folder):
    (folder / "x.csv").write_bytes(frame().to_csv(index=False).encode("utf-16-le"))
    return ["x.csv"], {"--encoding"}


def latin1(folder):
    text = frame().assign(note="Stra\xdfe").to_csv(index=False)
    (folder / "x.csv").write_bytes(text.encode("latin-1"))
    return ["x.csv"], {"--encoding", "--drop"}


def headless(folder):
    frame().to_csv(folder / "x.csv", index=False, header=False)
    return ["x.csv"], {"--no-header"}, {"features": ["2", "3", "4", "5", "6"]}


def odd_names(folder):
    table = frame()
    names = ["a b", 'the "gene"', "it's", "x*y", "@z"]
    table.columns = ["my group", *names]
    table.insert(0, "-id", [f"row {i}" for i in range(len(table))])
    table.insert(1, "--why", "so" * 3)
    table.to_csv(folder / "x.csv", index=False)
    return ["x.csv"], {"--index=-id", "--drop=--why"}, {"features": names}


def blanks_in_file_name(folder):
    frame().to_csv(folder / "my 'best' data $HOME.csv", index=False)
    return ["my 'best' data $HOME.csv"]


def dashes_in_file_name(folder):
    frame().to_csv(folder / "--rank.csv", index=False)
    return ["--", "--rank.csv"]


def parquet(folder):
    frame().to_parquet(folder / "x.parquet", index=False)
    return ["x.parquet"]


def parquet_with_index(folder):
    table = frame()
    table.index = [f"r{i}" for i in range(len(table))]
    table.to_parquet(folder / "x.parquet")
    return ["x.parquet"]


def h5ad_dense(folder):
    annotated(rows()[0], folder, "x.h5ad", n_genes=np.arange(K * N), batch=np.arange(K * N) % 2)
    return ["x.h5ad"]


def h5ad_sparse(folder):
    annotated(scipy.sparse.csr_matrix(rows()[0]), folder, "x.h5ad")
    return ["x.h5ad"]


def h5ad_counts(folder):
    table, names = counts_table()
    annotated(table[names].to_numpy(), folder, "x.h5ad")
    return ["x.h5ad"], {"--normalize"}, {"features": names}


def zarr(folder):
    annotated(rows()[0], folder, "x.zarr")
    return ["x.zarr"]


def npz(folder):
    X, y = rows()
    np.savez(folder / "x.npz", X=X, genes=np.array(FEATURES), group=y, number=np.arange(len(y)) % 2)
    return ["x.npz"]


def npz_by_context(folder):
    X, y = rows()
    np.savez(folder / "x.npz", **{name: X[y == name] for name in CONTEXTS}, genes=np.array(FEATURES))
    return ["x.npz"]


def npz_integers(folder):
    X, y = rows()
    np.savez(folder / "x.npz", X=X, genes=np.array(FEATURES), cluster=np.unique(y, return_inverse=True)[1])
    return ["x.npz"], set(), {"contexts": ["0", "1", "2"]}


def npz_sparse(folder):
    scipy.sparse.save_npz(folder / "x.npz", scipy.sparse.csr_matrix(rows()[0]))
    (folder / "labels.txt").write_text("\n".join(rows()[1]))
    return ["x.npz", "--labels", "labels.txt"], {"--labels"}, {"features": None}


def npy(folder):
    np.save(folder / "x.npy", rows()[0])
    np.save(folder / "labels.npy", rows()[1])
    return ["x.npy", "--labels", "labels.npy"], {"--labels"}, {"features": None}


def folder_of_tables(folder):
    (folder / "parts").mkdir()
    for name, part in frame().groupby("group"):
        part[FEATURES].to_csv(folder / "parts" / f"{name}.csv", index=False)
    return ["parts"]


def folder_with_barcodes(folder):
    (folder / "parts").mkdir()
    table = frame().assign(barcode=[f"AAAC{i}-1" for i in range(K * N)], quality="good")
    for name, part in table.groupby("group"):
        part[["barcode", *FEATURES, "quality"]].to_csv(folder / "parts" / f"{name}.tsv", sep="\t", index=False)
    return ["parts"], {"--index", "--drop"}


def folder_with_decimal_commas(folder):
    (folder / "parts").mkdir()
    for name, part in frame().groupby("group"):
        part[FEATURES].to_csv(folder / "parts" / f"{name}.csv", sep=";", decimal=",", index=False)
    return ["parts"], {"--decimal"}


def genes_by_samples(folder):
    """Genes in lines, samples in columns, and a sheet beside it that says where they are from, in another order."""
    X, y = rows()
    samples = [f"s{i}" for i in range(len(y))]
    pd.DataFrame(X.T, index=pd.Index(FEATURES, name="gene"), columns=samples).to_csv(folder / "x.csv")
    sheet = pd.DataFrame({"sample": samples, "tissue": y, "age": np.arange(len(y))})
    sheet.sample(frac=1, random_state=0).to_csv(folder / "sheet.csv", index=False)
    return ["x.csv"], {"--transpose", "--labels"}


def genes_by_samples_in_lines(folder):
    X, y = rows()
    table = pd.DataFrame(X.T, index=pd.Index(FEATURES, name="gene"), columns=[f"s{i}" for i in range(len(y))])
    table = pd.concat([pd.DataFrame([y], index=["tissue"], columns=table.columns), table])
    table.rename_axis("gene").to_csv(folder / "x.csv")
    return ["x.csv"], {"--transpose", "--context"}


def samples_with_a_sheet(folder):
    X, y = rows()
    samples = [f"s{i}" for i in range(len(y))]
    pd.DataFrame(X, index=pd.Index(samples, name="sample"), columns=FEATURES).to_csv(folder / "x.csv")
    sheet = pd.DataFrame({"id": samples, "tissue": y})[::-1]
    sheet.to_csv(folder / "sheet.tsv", sep="\t", index=False)
    return ["x.csv"], {"--labels", "--index"}


def comments(folder):
    (folder / "x.csv").write_text("# made by hand\n# on, a, Monday\n" + frame().to_csv(index=False))
    return ["x.csv"], {"--comment"}


def comments_and_decimal_commas(folder):
    (folder / "x.csv").write_text("# made by hand\n" + frame().to_csv(sep=";", decimal=",", index=False))
    return ["x.csv"], {"--comment", "--decimal"}


def separator_line(folder):
    (folder / "x.csv").write_text("sep=;\n" + frame().to_csv(sep=";", index=False))
    return ["x.csv"]


def edges_of_a_spreadsheet(folder):
    lines = [f"{line},," for line in frame().to_csv(index=False).splitlines()]
    (folder / "x.csv").write_text("\n".join([*lines, "," * (P + 2), "," * (P + 2)]) + "\n")
    return ["x.csv"]


def workbook(folder):
    pytest.importorskip("openpyxl")
    frame().to_excel(folder / "x.xlsx", index=False)
    return ["x.xlsx"]


def workbook_of_sheets(folder):
    pytest.importorskip("openpyxl")
    with pd.ExcelWriter(folder / "x.xlsx") as writer:
        pd.DataFrame({"about": ["made by hand"]}).to_excel(writer, sheet_name="read me", index=False)
        frame().to_excel(writer, sheet_name="the data", index=False)
    return ["x.xlsx"], {"--sheet"}


def moments(folder):
    frame().to_csv(folder / "x.csv", index=False)
    assert main(["moments", "x.csv", "-c", "group", "-o", "x.moments", "-q"]) == 0
    return ["x.moments"]


def metadata(folder):
    n = K * N
    rng = np.random.default_rng(2)
    table = frame().assign(
        n_counts=rng.integers(1000, 9000, n), pct_counts_mt=rng.random(n), year=2000 + rng.integers(0, 5, n)
    )
    table.to_csv(folder / "x.csv", index=False)
    return ["x.csv"], {"--drop"}


def counts(folder):
    table, names = counts_table()
    table.to_csv(folder / "x.csv", index=False)
    return ["x.csv"], {"--normalize"}, {"features": names}


def missing_labels(folder):
    table = frame()
    table.loc[[4, 7], "group"] = None
    table.to_csv(folder / "x.csv", index=False)
    return ["x.csv"], {"--drop-unlabelled"}


def small_contexts(folder):
    table = frame()
    table.loc[0, "group"] = "alone"
    table.to_csv(folder / "x.csv", index=False)
    return ["x.csv"], {"--min-samples"}


def one_context(folder):
    frame().assign(group="all").to_csv(folder / "x.csv", index=False)
    return ["x.csv"], set(), {"contexts": ["all"]}


def numeric_labels(folder):
    frame().assign(group=lambda t: t["group"].str[1:]).rename(columns={"group": "cluster"}).to_csv(
        folder / "x.csv", index=False
    )
    return ["x.csv"], set(), {"contexts": ["0", "1", "2"]}


def crossed(folder):
    frame().assign(sex=["f", "f", "f", "m", "m", "m"] * (K * N // 6)).to_csv(folder / "x.csv", index=False)
    both = [f"{c} / {sex}" for c in CONTEXTS for sex in "fm"]
    return ["x.csv", "-c", "group", "-c", "sex"], set(), {"contexts": both}


def numbers_with_words(folder):
    """A column of numbers with an "n.d." in it names no rows and no contexts: it is left out."""
    table = frame().assign(CD19=[str(i / 7) for i in range(K * N)])
    table.loc[5, "CD19"] = "n.d."
    table.to_csv(folder / "x.csv", index=False)
    return ["x.csv"], {"--drop"}


def gaps_in_features(folder):
    table = frame().assign(CD19=np.arange(K * N) / 7)
    table.loc[5, "CD19"] = None
    table.to_csv(folder / "x.csv", index=False)
    return ["x.csv"], {"--drop"}


KINDS = [
    *(plain, tabs, continental, packed, utf16, utf16_without_mark, latin1, headless, odd_names, blanks_in_file_name),
    *(dashes_in_file_name, parquet, parquet_with_index, h5ad_dense, h5ad_sparse, h5ad_counts, zarr, npz),
    *(npz_by_context, npz_integers, npz_sparse, npy, folder_of_tables, folder_with_barcodes),
    *(folder_with_decimal_commas, genes_by_samples, genes_by_samples_in_lines, samples_with_a_sheet, comments),
    *(comments_and_decimal_commas, separator_line, edges_of_a_spreadsheet, workbook, workbook_of_sheets, moments),
    *(metadata, counts, missing_labels, small_contexts, one_context, numeric_labels, crossed, numbers_with_words),
    *(gaps_in_features,),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_command_that_doctor_prints_works(kind, tmp_path, monkeypatch, capsys):
    """It fits the planted contexts and features, and has the options that the file needs, and no others."""
    monkeypatch.chdir(tmp_path)
    made = kind(tmp_path)
    words, options, found = (made, set(), {}) if isinstance(made, list) else (*made, {})[:3]
    capsys.readouterr()
    assert main(["doctor", *words]) == 0
    out = capsys.readouterr().out
    command = shlex.split(out.splitlines()[-1])
    assert command[:2] == ["mcpca", "fit"]
    expected = options | {"--context"} if "--context" in command else options
    typed = {word for word in command if word.startswith("--")}
    # Row numbers and unique names become --index wherever there are any; it is asked for where it matters.
    assert typed - {"--index"} == expected - {"--index"}
    assert options - typed == set()
    assert main([*command[1:], *QUICK]) == 0
    result = json.loads(capsys.readouterr().out)["diagnostics"]
    features = found.get("features", FEATURES)
    contexts = found.get("contexts", CONTEXTS)
    loadings = pd.read_csv("mcpca-output/loadings.csv", index_col=0)
    assert [str(name) for name in loadings.index] == contexts
    assert result["contexts"] == len(contexts)
    if features is None:
        assert result["features"] == P
    else:
        components = pd.read_csv("mcpca-output/components.csv", index_col=0)
        # An apostrophe keeps a spreadsheet from running what begins like a formula.
        assert sorted(str(name).removeprefix("'@") for name in components.index) == sorted(
            name.removeprefix("@") for name in features
        )


def test_genes_by_samples_are_fitted_as_their_transpose(tmp_path, monkeypatch, capsys):
    """Matched by name: the sheet is in another order than the columns."""
    from mcpca import MCPCA

    monkeypatch.chdir(tmp_path)
    genes_by_samples(tmp_path)
    assert main(["doctor", "x.csv"]) == 0
    command = shlex.split(capsys.readouterr().out.splitlines()[-1])
    assert main([*command[1:], *QUICK]) == 0
    X, y = rows()
    model = MCPCA(1, random_state=0).fit(X, y)
    loadings = pd.read_csv("mcpca-output/loadings.csv", index_col=0).to_numpy()
    np.testing.assert_allclose(loadings, model.loadings_, rtol=1e-6, atol=1e-9)


def test_what_doctor_says_of_crossings_sheets_and_samples(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    crossed(tmp_path)
    assert main(["doctor", "x.csv"]) == 0
    out = capsys.readouterr().out
    assert "could be contexts: group (3), sex (2)" in out
    assert "crossed, 'group' and 'sex' give 6 contexts of 6 rows (name both with --context)" in out
    one_context(tmp_path)
    assert main(["doctor", "x.csv"]) == 0
    assert "there is only one context, 'all', for which MCPCA is PCA." in capsys.readouterr().out
    genes_by_samples(tmp_path)
    assert main(["doctor", "x.csv"]) == 0
    assert "one line per feature: sheet.csv names its columns in 'sample'" in capsys.readouterr().out
    (tmp_path / "sheet.csv").unlink()
    assert main(["doctor", "x.csv"]) == 3
    captured = capsys.readouterr()
    assert "nothing says which context each of its 36 columns is from" in captured.err
    assert "--transpose --labels FILE --context context" in captured.err
    numbers_with_words(tmp_path)
    assert main(["doctor", "x.csv"]) == 0
    assert "has 'n.d.' in line 7, column 'CD19', which is otherwise numbers" in capsys.readouterr().out


def test_doctor_looks_at_a_folder_of_results(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    plain(tmp_path)
    assert main(["fit", "x.csv", "-c", "group", *QUICK]) == 0
    capsys.readouterr()
    assert main(["doctor", "mcpca-output"]) == 0
    assert "a fitted model: 1 MCPC, 3 contexts, 5 features" in capsys.readouterr().out


def test_options_of_a_reading_are_read_back():
    """``option_words`` is the inverse of ``take_reading``, for every field that is about the file."""
    from dataclasses import fields
    from pathlib import Path

    import click

    from mcpca.cli._options import annotation_options, reading_options, take_reading
    from mcpca.cli.tables import Reading
    from mcpca.cli.tables.options import option_words

    reading = Reading(
        context=("a b", "-c"),
        labels=Path("l.csv"),
        features=("x*",),
        drop=("-d", "e"),
        index="--id",
        header=False,
        delimiter="\t",
        decimal=",",
        encoding="latin-1",
        comment="#",
        sheet="my sheet",
        transpose=True,
        mod="rna",
        layer="l",
        obsm="o",
        mask_var="m",
        min_samples=3,
        drop_unlabelled=True,
        na_values=("-999",),
        allow_duplicates=True,
        max_bytes=5 * 2**20,
        groups=("g",),
        batch=("h",),
        covariates="i + j",
    )
    same = [f.name for f in fields(Reading) if getattr(reading, f.name) == getattr(Reading, f.name)]
    # Of the model, or of the report: doctor suggests none of these.
    assert same == ["row_metadata", "context_table", "raw", "gaps"]
    read = []

    @click.command()
    @reading_options
    @annotation_options
    def command(**params):
        read.append(take_reading(params))

    command.main(option_words(reading), standalone_mode=False)
    assert read == [reading]


def test_gzipped_text_of_doctor_is_text(tmp_path, monkeypatch, capsys):
    """Remedies are for packed text too."""
    monkeypatch.chdir(tmp_path)
    text = "# by hand\n" + frame().to_csv(sep=";", decimal=",", index=False)
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert main(["doctor", "x.csv.gz"]) == 0
    assert "--decimal , --comment '#'" in capsys.readouterr().out
