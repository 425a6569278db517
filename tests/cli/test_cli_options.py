"""An option that could have no effect is refused, with why and the way out; nothing is written."""

import shutil

import numpy as np
import pytest
from table_files import FEATURES, frame, planted, write_all

from mcpca.cli import main


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_all(folder)
    quiet = ["-r", "2", "-q", "--no-report", "--no-picture"]
    assert main(["fit", str(folder / "plain.csv"), *CSV, *quiet, "-o", str(folder / "fitted")]) == 0
    assert main(["moments", str(folder / "plain.csv"), *CSV, "-o", str(folder / "m.moments"), "-q"]) == 0
    X, y = planted()
    np.savez(folder / "by-context.npz", **{name: X[y == name] for name in np.unique(y)})
    np.save(folder / "more.npy", X[1:])
    (folder / "features.txt").write_text("\n".join(FEATURES))
    return folder


CSV = ["--context", "group", "--index", "cell"]
GROUP = ["-c", "group"]
# What is typed, with {} for the folder of files; the exit code; and what is said.
REFUSED = [
    # Of AnnData, on other files.
    (["fit", "{}/plain.csv", *CSV, "--layer", "x"], 2, "is a text table, and --layer is for AnnData (.h5ad, .zarr)"),
    (["fit", "{}/table.parquet", *CSV, "--obsm", "x"], 2, "is a Parquet table, and --obsm is for AnnData"),
    (["fit", "{}/plain.csv", *CSV, "--mask-var", "all"], 2, "--mask-var is for AnnData"),
    (["rank", "{}/arrays.npz", *CSV, "--mask-var", "all"], 2, "is an .npz, and --mask-var is for AnnData"),
    (["moments", "{}/rows.npy", "--labels", "{}/labels.txt", "--layer", "x"], 2, "is an .npy, and --layer is for"),
    (["fit", "{}/cells.h5ad", *GROUP, "--obsm", "X_pca", "--mask-var", "all"], 2, "--mask-var chooses features of var"),
    (["fit", "{}/cells.h5ad", *GROUP, "--obsm", "X_pca", "--layer", "dense"], 2, "both name the matrix; pass one"),
    # Of text, on other files.
    (["fit", "{}/table.parquet", *CSV, "--delimiter", ";"], 2, "--delimiter is for text"),
    (["fit", "{}/table.parquet", *CSV, "--decimal", ","], 2, "--decimal is for text"),
    (["fit", "{}/cells.h5ad", *GROUP, "--no-header"], 2, "--no-header is for text"),
    (["fit", "{}/arrays.npz", *CSV, "--encoding", "latin-1"], 2, "--encoding is for text"),
    (["fit", "{}/rows.npy", "--labels", "{}/labels.npy", "--encoding", "latin-1"], 2, "--encoding is for text"),
    (["fit", "{}/rows.npy", "--labels", "{}/labels.txt", "--delimiter", ";"], 2, "--delimiter is for text"),
    # Of named columns, on arrays.
    (["fit", "{}/rows.npy", "--labels", "{}/labels.txt", "--index", "cell"], 2, "no columns for --index; drop it"),
    (["fit", "{}/rows.npy", "{}/more.npy", *GROUP], 2, "no columns for --context; drop it. --labels FILE"),
    (
        ["fit", "{}/rows.npy", "--labels", "{}/labels.npy", *GROUP],
        2,
        "is an array of labels without columns for --context to name; drop the option",
    ),
    (["fit", "{}/by-context.npz", "--index", "cell"], 2, "which takes no --index"),
    # Columns with two roles.
    (["fit", "{}/plain.csv", *CSV, "-c", "group"], 2, "'group' is named twice; name each column once"),
    (
        ["fit", "{}/plain.csv", *CSV, "--drop", "group"],
        2,
        "--drop 'group' matches only what --context or --index names",
    ),
    (["fit", "{}/plain.csv", *CSV, "--features", "g?", "--features", "cell"], 2, "--features 'cell' matches only what"),
    # Of rows, on moments and without rows.
    (["fit", "{}/m.moments", "--drop", "g1"], 2, "is a file of moments, and --drop is for files of rows"),
    (["fit", "{}/m.moments", "--min-samples", "5"], 2, "--min-samples is for files of rows"),
    (["fit", "{}/m.moments", "--na-values", "x"], 2, "--na-values is for files of rows"),
    (
        ["fit", "{}/m.moments", "--robust"],
        2,
        "--robust weighs single rows, and moments do not have them; pass the rows",
    ),
    (["fit", "{}/m.moments", "--cross-fit", "2"], 2, "--cross-fit 2 fits parts of the rows, and moments do not have"),
    (
        ["fit", "{}/plain.csv", *CSV, "--robust", "--solver", "auto"],
        2,
        "--solver auto cannot be combined with --robust",
    ),
    (["fit", "{}/m.moments", "--solver", "auto"], 2, "--solver auto fits halves of the rows, and moments do not have"),
    (["fit", "{}/plain.csv", *CSV, "--robust", "--cross-fit", "2"], 2, "--cross-fit cannot be combined with --robust"),
    (["fit", "{}/plain.csv", *CSV, "--robust", "--checkpoint", "OUT/x"], 2, "a robust fit keeps no progress in files"),
    (["fit", "{}/m.moments", "--center", "context"], 2, "--center context has no effect: moments have no rows"),
    (["fit", "{}/m.moments", "--checkpoint", "x"], 2, "--checkpoint has no effect: a fit to moments makes no pass"),
    (["report", "{}/fitted", *GROUP], 2, "--context has no effect: no file of rows is given; pass DATA"),
    (["report", "{}/fitted", "--max-memory", "5", "--decimal", ","], 2, "--decimal has no effect: no file of rows"),
    # Without contexts.
    (
        ["transform", "{}/fitted", "{}/plain.csv", "--min-samples", "3"],
        2,
        "--min-samples has no effect, since the rows have no contexts",
    ),
    (["transform", "{}/fitted", "{}/plain.csv", "--drop-unlabelled"], 2, "--drop-unlabelled has no effect"),
    # Features that the model has chosen.
    (["transform", "{}/fitted", "{}/plain.csv", "--features", "g?"], 2, "so --features has no effect; drop it"),
    (["loadings", "{}/fitted", "{}/cells.h5ad", *GROUP, "--mask-var", "all"], 2, "--mask-var has no effect"),
    # Of the model.
    (
        ["fit", "{}/plain.csv", *CSV, "--noise", "diagonal", "--solver", "ml", "--orthogonal"],
        2,
        "--orthogonal cannot be combined with --noise diagonal",
    ),
    # Of outputs that are not written.
    (["fit", "{}/plain.csv", *CSV, "--center", "context", "--no-scores"], 2, "with --no-scores there are none"),
    (["fit", "{}/plain.csv", *CSV, "--title", "T", "--no-report"], 2, "--title has no effect: with --no-report"),
    (["rank", "{}/plain.csv", *CSV, "--criteria", "all", "--criteria", "scree"], 2, "--criteria all has no effect"),
    # Names of outputs that say something else.
    (
        ["transform", "{}/fitted", "{}/plain.csv", "-o", "OUT/x.xlsx"],
        5,
        "tables are written as .csv, .tsv or .parquet, and not as .xlsx",
    ),
    (["loadings", "{}/fitted", "{}/plain.csv", *CSV, "-o", "OUT/x.csv.gz"], 5, "and not as .gz; choose one of these"),
    (["report", "{}/fitted", "-o", "OUT/x.pdf"], 5, "choose a name that ends in .html"),
    (
        ["moments", "{}/plain.csv", *CSV, "-o", "OUT/x.csv"],
        5,
        "moments have a file format of their own; choose a name that does not end in",
    ),
    (
        ["merge", "{}/m.moments", "-o", "OUT/x.parquet"],
        5,
        "moments have a file format of their own; choose a name that does not end in",
    ),
    (["fit", "{}/plain.csv", *CSV, "-o", "OUT/x.xlsx"], 5, "results are a folder"),
    (["rank", "{}/plain.csv", *CSV, "-o", "OUT/x.csv"], 5, "results are a folder"),
]


@pytest.mark.parametrize(("words", "code", "message"), REFUSED, ids=[" ".join(case[0]) for case in REFUSED])
def test_options_without_effect_are_refused(inputs, tmp_path, capsys, monkeypatch, words, code, message):
    monkeypatch.chdir(tmp_path)
    typed = [word.replace("{}", str(inputs)).replace("OUT/", "") for word in words]
    out = [] if "-o" in typed else ["-o", "report.html" if words[0] == "report" else "out"]
    assert main([*typed, *out, "-q"]) == code
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rank", "{}/plain.csv", *CSV, "--format", "parquet"], "--format has no effect: nothing is written to a file"),
        (["rank", "{}/plain.csv", *CSV, "--force"], "--force has no effect: nothing is written to a file"),
        (["transform", "{}/fitted", "{}/plain.csv", "--force"], "--force has no effect"),
        (["loadings", "{}/fitted", "{}/plain.csv", *CSV, "--force"], "--force has no effect"),
        (["doctor", "{}/m.moments", "--drop", "g1"], "has no rows, so --drop has no effect"),
        (["doctor", "{}/fitted/model.mcpca", "--context", "g1"], "so --context has no effect"),
        (["doctor", "{}/plain.csv", "--layer", "g1"], "--layer is for AnnData"),
        (["fit", "{}/plain.csv", *CSV, "--na-values", ""], "empty labels are missing without it"),
    ],
)
def test_options_without_an_output(inputs, capsys, words, message):
    assert main([word.replace("{}", str(inputs)) for word in words]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_options_with_an_effect_on_one_file_or_the_labels_are_taken(inputs, tmp_path, capsys):
    """Among several files the text ones have a use for a delimiter, and a file of labels for an encoding."""
    table = frame()
    table[:60].to_csv(tmp_path / "a.csv", sep=";", index=False)
    table[60:].to_parquet(tmp_path / "b.parquet", index=False)
    quick = ["-r", "2", "-q", "--no-report", "--no-picture"]
    files = [str(tmp_path / "a.csv"), str(tmp_path / "b.parquet")]
    assert main(["fit", *files, *CSV, "--delimiter", ";", *quick, "-o", str(tmp_path / "one")]) == 0
    (tmp_path / "labels.txt").write_bytes("\n".join(planted()[1]).replace("c1", "\xe9").encode("latin-1"))
    labelled = [str(inputs / "rows.npy"), "--labels", str(tmp_path / "labels.txt"), "--encoding", "latin-1"]
    assert main(["fit", *labelled, *quick, "-o", str(tmp_path / "two")]) == 0
    shutil.copy(inputs / "labels.csv", tmp_path / "labels.csv")
    labelled = [str(inputs / "rows.npy"), "--labels", str(tmp_path / "labels.csv"), "-c", "group", "--delimiter", ","]
    assert main(["fit", *labelled, *quick, "-o", str(tmp_path / "three")]) == 0
    # Columns that the model does not have may be dropped: they are then not told of.
    capsys.readouterr()
    assert (
        main(["transform", str(tmp_path / "one"), str(inputs / "plain.csv"), "--drop", "group", "--index", "cell"]) == 0
    )
    assert "left out" not in capsys.readouterr().err
    assert main(["report", str(tmp_path / "one"), "-o", str(tmp_path / "a.HTML")]) in (0, 2)


def test_a_title_asks_for_the_report(inputs, tmp_path, capsys, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "plotly", None)
    assert main(["fit", str(inputs / "plain.csv"), *CSV, "-r", "2", "--title", "T", "-o", str(tmp_path / "out")]) == 2
    assert 'pip install "mcpca[report]"' in capsys.readouterr().err
