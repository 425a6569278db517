"""What is said of wrong inputs: the exit code, the message, and that it is in words of the command line."""

import gzip
import json
import os
import re
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mcpca.cli import main
from mcpca.cli._words import in_words_of_the_command

P, K, N = 5, 3, 14
FEATURES = [f"g{j}" for j in range(P)]
OUT = ["-o", "out", "--no-report", "--no-picture", "--no-context-test"]
FIT = ["-c", "group", "-r", "2", *OUT]

# What only those who write Python know. Names with underscores are told apart below, where quotes are left out.
PYTHON = re.compile(
    r"\b(None|True|False|DataFrame|ndarray|dtype|Traceback|self|lambda|kwargs|NaN|astype|float(32|64)?|int(32|64)|"
    r"n_\w+|(?!JSON|CSV)[A-Z]\w*(Error|Exception|Warning)|BadZipFile|StringIO)\b|"
    r"\b[Xy]=|\bX (is|has)\b|<class|\bnp\.|numpy\.|\[Errno|object at 0x|\bpass y\b|codec"
)
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
UNDERSCORED = re.compile(r"\b[a-z]+(_[a-z0-9]+)+\b(?!\.csv)")
# Ways to convert files of other programs, in which the names of functions are the point.
OTHER_PROGRAMS = re.compile(
    r"scanpy\.\w+\(\"[^\"]*\"\)\.write_h5ad|zellkonverter::\w+|write\.csv\(x[^)]*\)|array2table"
)


def frame(n=K * N, p=P, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.normal(size=(n, p)).round(3), columns=[f"g{j}" for j in range(p)])
    table.insert(0, "group", [f"c{i % K}" for i in range(n)])
    return table


def lines(table=None):
    return (frame() if table is None else table).to_csv(index=False).splitlines()


def with_cell(line, column, value, before=()):
    """Return the text of the table with another value in a line, counted from 1, and with lines before the header."""
    text = lines()
    cells = text[line - 1].split(",")
    cells[column] = value
    text[line - 1] = ",".join(cells)
    return "\n".join([*before, *text]) + "\n"


def quoted_breaks():
    """A column of notes, some over two lines, and "n.d." in the 21st row."""
    table = frame().astype({"g1": object})
    table.insert(1, "note", ["two\nlines" if i % 7 == 0 else "one" for i in range(len(table))])
    table.loc[20, "g1"] = "n.d."
    return table.to_csv(index=False)


TEXTS = {
    "good.csv": "\n".join(lines()) + "\n",
    "empty.csv": "",
    "blank.csv": "\n \n\n",
    "header.csv": lines()[0] + "\n",
    "nd.csv": with_cell(6, 2, "n.d."),
    "percent.csv": with_cell(8, 3, "3%"),
    "percents.csv": "\n".join([lines()[0] + ",share", *(f"{line},{i}%" for i, line in enumerate(lines()[1:]))]) + "\n",
    "nd-comments.csv": with_cell(6, 2, "n.d.", ["# one", "# two"]),
    "nd-blank.csv": with_cell(6, 2, "n.d.", ["", ""]),
    "nd-quoted.csv": quoted_breaks(),
    "nd-late.csv": "\n".join([*lines(frame(400)), "c0,1,n.d.,1,1,1"]) + "\n",
    "nd-late-comments.csv": "\n".join(["# one", *lines(frame(400)), "# two", "c0,1,n.d.,1,1,1"]) + "\n",
    "gap.csv": with_cell(9, 4, ""),
    "gap-comments.csv": with_cell(9, 4, "", ["# one"]),
    "infinite.csv": with_cell(9, 4, "inf"),
    "huge.csv": with_cell(9, 4, "1e300"),
    "short.csv": "\n".join([*lines()[:4], "c0,1,2", *lines()[4:]]) + "\n",
    "long.csv": "\n".join([*lines()[:4], "c0,1,2,3,4,5,6", *lines()[4:]]) + "\n",
    "long-header.csv": "\n".join([lines()[0] + ",h1,h2", *lines()[1:]]) + "\n",
    "short-late.csv": "\n".join([*lines(frame(400)), "c0,1,2"]) + "\n",
    "mixed.csv": "\n".join([*lines()[:4], lines()[4].replace(",", ";"), *lines()[5:]]) + "\n",
    "quote.csv": "\n".join([*lines()[:3], '"' + lines()[3], *lines()[4:]]) + "\n",
    "twice.csv": "\n".join([lines()[0].replace("g3", "g1"), *lines()[1:]]) + "\n",
    "nameless.csv": "\n".join([lines()[0].replace("g3", ""), *lines()[1:]]) + "\n",
    "title.csv": "\n".join(["Table 3", *lines()]) + "\n",
    "spaces.txt": "\n".join(line.replace(",", "   ") for line in lines()) + "\n",
    "commas.csv": "\n".join(line.replace(",", ";").replace(".", ",") for line in lines()) + "\n",
    "page.html": "<!DOCTYPE html>\n<html><body>Sign in</body></html>\n",
    "login.csv": "\n<HTML>\n<body>Sign in</body></html>\n",
    "data.json": '{"a": [1, 2],\n "b": [3, 4]}\n',
    "lines.jsonl": '[{"a": 1}]\n[{"a": 2}]\n',
    "data.xml": '<?xml version="1.0"?>\n<a/>\n',
    "picture.svg": "<svg xmlns=''></svg>\n",
    "notes.rtf": "{\\rtf1 hello}\n",
    "cells.mtx": "%%MatrixMarket matrix coordinate real general\n3 3 1\n1 1 2\n",
    "pointer.csv": "version https://git-lfs.github.com/spec/v1\noid sha256:1\n",
    "labels.txt": "\n".join(["a", "b", "c"] * N) + "\n",
    "few.txt": "a\nb\n",
    "names.txt": "\n",
    "run.json": '{"a": 1}',
}
BYTES = {
    "picture.png": b"\x89PNG\r\n\x1a\n" + bytes(40),
    "picture.jpg": b"\xff\xd8\xff\xe0" + bytes(40),
    "picture.gif": b"GIF89a" + bytes(40),
    "paper.pdf": b"%PDF-1.4\n" + bytes(40),
    "old.xls": b"\xd0\xcf\x11\xe0" + bytes(40),
    "x.rds": gzip.compress(b"X\n\x00\x00\x00\x03" + bytes(40)),
    "x.RData": gzip.compress(b"RDX3\nX\n" + bytes(40)),
    "x.mat": b"MATLAB 5.0 MAT-file, Platform: GLNXA64" + bytes(90),
    "x.sav": b"$FL2@(#)" + bytes(40),
    "x.sqlite": b"SQLite format 3\x00" + bytes(40),
    "x.feather": b"ARROW1\x00\x00" + bytes(40),
    "x.pkl": b"\x80\x05\x95" + bytes(40),
    "x.bz2": b"BZh91AY&SY" + bytes(40),
    "x.tar": bytes(257) + b"ustar\x00" + bytes(300),
    "program": b"\x7fELF" + bytes(40),
    "unknown": bytes(range(1, 9)) + bytes(40),
    "half.npz": b"PK\x03\x04" + bytes(40),
    "half.gz": gzip.compress(b"group,a,b\n" * 99)[:30],
    "latin.csv": "group,a,b\n\xe4,1,2\n".encode("latin-1"),
    "wide.csv": "\n".join(lines()).encode("utf-16-le"),
}


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    """A folder with wrong files of all kinds, and a few right ones."""
    h5py = pytest.importorskip("h5py")
    folder = tmp_path_factory.mktemp("wrong")
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    for name, content in BYTES.items():
        (folder / name).write_bytes(content)
    before = Path.cwd()
    os.chdir(folder)
    try:
        for name, entries in {
            "table.zip": ["good.csv"],
            "x.docx": ["word/document.xml"],
            "x.ods": ["mimetype", "content.xml"],
        }.items():
            with zipfile.ZipFile(name, "w") as file:
                for entry in entries:
                    file.writestr(entry, "x")
        os.symlink("nowhere.csv", "link.csv")
        os.symlink("loop.csv", "loop.csv")
        os.symlink("/nowhere/at/all", "folder-link")
        for name in ("nothing", "notables", "10x", "parts", "sub"):
            Path(name).mkdir()
        Path("notables/readme.md").write_text("x")
        for name in ("matrix.mtx.gz", "barcodes.tsv.gz", "features.tsv.gz"):
            Path("10x", name).write_bytes(gzip.compress(b"x\n"))
        frame(seed=1).to_csv("sub/good.csv", index=False)
        frame()[FEATURES].to_csv("parts/a.csv", index=False)
        frame(seed=1)[FEATURES[1:]].to_csv("parts/b.csv", index=False)
        with h5py.File("10x.h5", "w") as file:
            group = file.create_group("matrix")
            for name in ("barcodes", "data", "indices", "indptr", "shape"):
                group[name] = np.arange(3)
        with h5py.File("x.loom", "w") as file:
            for name in ("col_attrs", "layers", "row_attrs"):
                file.create_group(name)
            file["matrix"] = np.eye(3)
        with h5py.File("some.h5", "w") as file:
            file["x"] = np.eye(3)
        X = frame()[FEATURES].to_numpy()
        np.save("x.npy", X)
        np.save("cube.npy", np.ones((2, 3, 4)))
        np.save("text.npy", np.array(["a", "b"]))
        np.save("complex.npy", np.ones((3, 3), dtype=complex))
        np.save("objects.npy", np.array([{}], dtype=object))
        np.save("nan.npy", np.where(np.arange(len(X))[:, None] == 3, np.nan, X))
        np.savez("matrix.npz", X=X)
        np.savez("widths.npz", a=np.ones((3, 4)), b=np.ones((3, 5)))
        np.savez("vector.npz", a=np.ones(3))
        np.savez("objects.npz", X=X, group=np.array([None] * len(X), dtype=object))
        frame().assign(**dict.fromkeys(FEATURES, 0.0)).to_csv("zero.csv", index=False)
        frame().assign(**dict.fromkeys(FEATURES, 7.5)).to_csv("constant.csv", index=False)
        frame().assign(group=["alone", *frame()["group"][1:]]).to_csv("single.csv", index=False)
        frame().assign(group=[f"c{i}" for i in range(K * N)]).to_csv("singles.csv", index=False)
        frame(n=1).to_csv("one-row.csv", index=False)
        frame().assign(group=[None, *frame()["group"][1:]]).to_csv("unlabelled.csv", index=False)
        frame().assign(copy=frame()["g0"]).to_csv("copied.csv", index=False)
        frame(n=K * 400, p=4, seed=5).to_csv("noise.csv", index=False)
        frame().rename(columns=lambda name: name.replace("g", "h") if name != "group" else name).to_csv(
            "other.csv", index=False
        )
        frame(p=4).to_csv("fewer.csv", index=False)
        frame().assign(group="new").to_csv("new.csv", index=False)
        frame().to_csv("again.csv", index=False)
        assert main(["fit", "good.csv", *FIT, "-o", "res", "-q"]) == 0
        assert main(["moments", "good.csv", "-c", "group", "-o", "good.moments", "-q"]) == 0
        assert main(["moments", "other.csv", "-c", "group", "-o", "other.moments", "-q"]) == 0
        assert main(["moments", "single.csv", "-c", "group", "-o", "single.moments", "-q"]) == 0
        assert main(["moments", "zero.csv", "-c", "group", "-o", "zero.moments", "-q"]) == 0
    finally:
        os.chdir(before)
    return folder


def fit(file, *more):
    return ["fit", file, *FIT, *more]


# (command, exit code, part of the message)
FAULTS = [
    # Nothing there.
    (fit("goood.csv"), 3, "goood.csv: there is no such file; did you mean 'good.csv'?"),
    (fit("no/such.csv"), 3, "there is no such file, nor the folder 'no'"),
    (fit("link.csv"), 3, "link.csv: is a link to 'nowhere.csv', which is not there; mend the link"),
    (fit("loop.csv"), 3, "is a link to 'loop.csv', which is not there"),
    (fit("folder-link"), 3, "is a link to '/nowhere/at/all', which is not there"),
    (fit("empty.csv"), 3, "is empty (0 bytes)"),
    (fit("blank.csv"), 3, "has only empty lines"),
    (fit("header.csv"), 3, "has a header but no rows"),
    (["fit", "nothing", "-o", "out"], 3, "is a folder without tables (.csv, .parquet, .npy and so on)"),
    (["fit", "notables", "-o", "out"], 3, "there is only 'readme.md' in it"),
    # Files of other programs.
    (fit("picture.png"), 3, "is a picture (PNG); pass the table that it was drawn from"),
    (fit("picture.jpg"), 3, "is a picture (JPEG)"),
    (fit("picture.gif"), 3, "is a picture (GIF)"),
    (fit("picture.svg"), 3, "is a picture (SVG)"),
    (fit("page.html"), 3, "is a web page (HTML) and not a table"),
    (fit("login.csv"), 3, "is a web page (HTML) and not a table"),
    (fit("data.json"), 3, "is JSON and not a table; save its table as delimited text"),
    (fit("lines.jsonl"), 3, "is JSON and not a table"),
    (fit("data.xml"), 3, "is XML and not a table"),
    (fit("notes.rtf"), 3, "is a text document (RTF)"),
    (fit("paper.pdf"), 3, "is a PDF; copy its table into a spreadsheet"),
    (fit("old.xls"), 3, "is an old Excel workbook"),
    (fit("x.docx"), 3, "is a Word document"),
    (fit("x.ods"), 3, "is an OpenDocument file; save its sheet as CSV"),
    (fit("table.zip"), 3, "is a zip file with 'good.csv' in it; unpack it first"),
    (fit("x.rds"), 3, "is an R object (.rds); in R, write.csv("),
    (fit("x.RData"), 3, "is an R workspace; in R, write.csv("),
    (fit("x.mat"), 3, "is a MATLAB file; in MATLAB, writetable("),
    (fit("x.sav"), 3, "is an SPSS file"),
    (fit("x.sqlite"), 3, "is a database (SQLite); export its table as CSV"),
    (fit("x.feather"), 3, "is an Arrow file (Feather); save it as Parquet"),
    (fit("x.pkl"), 3, "pickle, which can run code and is never opened"),
    (fit("x.bz2"), 3, "is compressed by bzip2; unpack it first (bunzip2)"),
    (fit("x.tar"), 3, "is an archive (tar); unpack it first"),
    (fit("program"), 3, "is a program"),
    (fit("unknown"), 3, "is a binary file of no known format; pass delimited text"),
    (fit("cells.mtx"), 3, "is a Matrix Market file"),
    (fit("pointer.csv"), 3, "is a placeholder for a file in Git LFS"),
    (["fit", "10x", "-o", "out"], 3, "is a folder of 10x Genomics (matrix.mtx, barcodes, features)"),
    (fit("10x.h5"), 3, "is a 10x Genomics file and not an AnnData; make it an .h5ad"),
    (fit("x.loom"), 3, "is a loom file and not an AnnData"),
    (fit("some.h5"), 3, "is not an AnnData: it lacks obs and var; it has 'x'"),
    (fit("half.npz"), 3, "is a truncated or damaged zip file"),
    (fit("half.gz"), 3, "is truncated or damaged gzip data"),
    # Text that is not a table of numbers, with the line in the file.
    (fit("latin.csv"), 3, "is not in the encoding utf-8 (byte 0xe4); pass --encoding latin-1"),
    (fit("wide.csv"), 3, "looks like UTF-16 without its mark; pass --encoding utf-16-le"),
    (fit("good.csv", "--encoding", "utf-16"), 3, "is not in the encoding utf-16"),
    (
        fit("nd.csv"),
        3,
        "has 'n.d.' in line 6, column 'g1', which is otherwise numbers; correct it, leave the column out",
    ),
    (fit("nd-comments.csv", "--comment", "#"), 3, "has 'n.d.' in line 8, column 'g1'"),
    (fit("nd-blank.csv"), 3, "has 'n.d.' in line 8, column 'g1'"),
    (fit("nd-quoted.csv", "--drop", "note"), 3, "has 'n.d.' in line 25, column 'g1'"),
    (fit("nd-late.csv"), 3, "line 402 has 'n.d.' in column 'g1', which is otherwise numbers"),
    (fit("nd-late-comments.csv", "--comment", "#"), 3, "line 404 has 'n.d.' in column 'g1'"),
    (fit("percent.csv"), 3, "has '3%' in line 8, column 'g2', which is otherwise numbers"),
    (fit("percents.csv"), 3, "has '0%' in line 2, column 'share', and so on: numbers with a sign or a unit"),
    (fit("gap.csv"), 3, "1 of 42 rows has missing or infinite values, the first in row 8 (line 9, column 'g3')"),
    (fit("gap-comments.csv", "--comment", "#"), 3, "the first in row 8 (line 10, column 'g3')"),
    (fit("infinite.csv"), 3, "1 of 42 rows has missing or infinite values"),
    (fit("huge.csv"), 3, "has values of about 1e+300, whose squares are too large"),
    (fit("short.csv"), 3, "line 5 has 3 cells where the header has 6 (separated by commas): 'c0,1,2'"),
    (fit("long.csv"), 3, "line 5 has 7 cells where the header has 6"),
    (fit("short-late.csv"), 3, "line 402 has 3 cells where the header has 6"),
    (fit("long-header.csv"), 3, "its first line (1) has 8 cells where most lines below have 6"),
    (fit("title.csv"), 3, "its first line (1) has 1 cell where most lines below have 6"),
    (fit("nd-comments.csv"), 3, "'# one'; it should name the columns; if it is a comment, pass --comment '#'"),
    (fit("mixed.csv"), 3, "mixed delimiters: line 1 is separated by commas and line 5 by semicolons"),
    (fit("quote.csv"), 3, "line 4 opens a quote that nothing closes"),
    (fit("twice.csv"), 3, "has 1 column name more than once: 'g1' (columns 3 and 5)"),
    (fit("nameless.csv"), 3, "has no name for column 5 in its header"),
    (fit("spaces.txt"), 3, "is separated by runs of spaces"),
    (fit("commas.csv"), 3, "has numbers with decimal commas"),
    # Columns.
    (["fit", "good.csv", "-c", "gruop", *OUT], 3, "has no column (--context) 'gruop'; did you mean 'group'?"),
    (fit("good.csv", "--index", "gg1"), 3, "has no column (--index) 'gg1'; did you mean 'g1'?"),
    (fit("good.csv", "--drop", "gg1"), 3, "--drop 'gg1' names no column; did you mean 'g1'?"),
    (fit("good.csv", "--features", "zzz*"), 3, "--features 'zzz*' names no column"),
    (fit("good.csv", "--drop", "g*"), 3, "has no column left for features"),
    (fit("good.csv", "--drop", "@gone.txt"), 3, "cannot be read as the list of names for --drop (No such file"),
    (fit("good.csv", "--drop", "@names.txt"), 3, "has no names for --drop; write one per line"),
    (fit("good.csv", "--batch", "run"), 3, "--covariates or --row-metadata) 'run'; it has 'group'"),
    (["fit", "good.csv", *OUT], 3, "nothing says which context each row is from; pass --context COLUMN"),
    (["fit", "good.csv", "sub/good.csv", *OUT], 3, "sub/good.csv: gives a context the same name, 'good', as good.csv"),
    (fit("good.csv", "again.csv"), 3, "again.csv: has the same content as good.csv: its rows would count twice"),
    (["fit", "good.csv", "fewer.csv", *FIT], 3, "fewer.csv: has no columns for the features 'g4'"),
    (["fit", "fewer.csv", "good.csv", *FIT], 3, "good.csv: has 'g4' in addition to the features of fewer.csv"),
    (["fit", "parts", *OUT], 3, "b.csv: has no columns for the features 'g0'"),
    (fit("good.csv", "good.csv"), 3, "good.csv: is given twice"),
    # Arrays.
    (["fit", "x.npy", *OUT], 3, "nothing says which context each row is from; pass --labels FILE"),
    (["fit", "x.npy", "--labels", "few.txt", *OUT], 3, "few.txt: has 2 labels for 42 rows; write one per row"),
    (["fit", "x.npy", "--labels", "x.npy", *OUT], 3, "holds 42 x 5 numbers; labels are a list, one for each row"),
    (["fit", "x.npy", "--labels", "good.txt", *OUT], 3, "good.txt: there is no such file"),
    (["fit", "cube.npy", "--labels", "few.txt", *OUT], 3, "holds 2 x 3 x 4 numbers; rows are a matrix of numbers"),
    (["fit", "text.npy", "--labels", "few.txt", *OUT], 3, "holds 2 texts; rows are a matrix of numbers"),
    (["fit", "complex.npy", "--labels", "few.txt", *OUT], 3, "holds 3 x 3 complex numbers"),
    (["fit", "objects.npy", "--labels", "few.txt", *OUT], 3, "can only be read by pickle, which can run code: refused"),
    (
        ["fit", "nan.npy", "--labels", "labels.txt", *OUT],
        3,
        "5 missing or infinite values in rows 1 to 42, the first in",
    ),
    (["fit", "matrix.npz", *OUT], 3, "nothing says which context each row is from"),
    (["fit", "widths.npz", *OUT], 3, "has matrices of different widths (4, 5 columns)"),
    (["fit", "vector.npz", *OUT], 3, "has no matrix of numbers, only a (3 numbers)"),
    (fit("objects.npz"), 3, "'group' can only be read by pickle, which can run code: refused"),
    # Data that cannot be fitted.
    (fit("zero.csv"), 3, "zero.csv: The covariances are all zero: no feature varies in any context"),
    (["fit", "zero.csv", "-c", "group", *OUT], 3, "The covariances are all zero"),
    (fit("constant.csv"), 3, "The covariances are all zero"),
    (["rank", "constant.csv", "-c", "group"], 3, "The covariances are all zero"),
    (["fit", "zero.moments", "-r", "1", *OUT], 3, "zero.moments: The covariances are all zero"),
    (fit("single.csv"), 3, "1 of 4 contexts have fewer than 2 rows: 'alone' (1 row)."),
    (["rank", "single.csv", "-c", "group"], 3, "--min-samples 2 leaves them out"),
    (fit("singles.csv"), 3, "No context has two: are these all rows, and is it the column of contexts?"),
    (fit("one-row.csv"), 3, "1 of 1 contexts have fewer than 2 rows"),
    (fit("unlabelled.csv"), 3, "1 of 42 rows have no context"),
    (fit("good.csv", "--min-samples", "99"), 3, "no context has 99 rows or more; lower --min-samples"),
    (["fit", "single.moments", "-r", "1", *OUT], 3, "or make them anew with --min-samples 2"),
    (fit("good.csv", "--normalize", "log1p"), 3, "and --normalize is for counts. Pass raw counts"),
    (fit("good.csv", "--batch", "g0"), 3, "--batch: nuisance leaves no degree of freedom in 3 of 3 contexts"),
    (["rank", "good.csv", "-c", "group", "--groups", "group"], 3, "--groups: every context has a single group"),
    # Options.
    (fit("good.csv", "-r", "0"), 2, "'0' is neither 'auto', 'replicating' nor a whole number"),
    (fit("good.csv", "-r", "two"), 2, "'two' is neither 'auto'"),
    (fit("good.csv", "-r", "6"), 2, "6 exceeds the number of features, 5"),
    (fit("copied.csv", "-r", "6"), 2, "--rank 6 exceeds the numerical rank of the data, 5"),
    (["rank", "good.csv", "-c", "group", "--ranks", "9"], 2, "9 exceeds the number of features, 5"),
    (["rank", "good.csv", "-c", "group", "--ranks", "5-3"], 2, "'5-3' has no rank in it"),
    (["rank", "good.csv", "-c", "group", "--criteria", "luck"], 2, "'luck' is not one of"),
    (fit("good.csv", "--tol", "small"), 2, "'small' is not a number"),
    (fit("good.csv", "--max-iter", "0"), 2, "0 is less than 1"),
    (fit("good.csv", "--max-iter", "1.5"), 2, "'1.5' is not a whole number"),
    (fit("good.csv", "--solver", "svd"), 2, "'svd' is not one of 'mspm'"),
    (fit("good.csv", "--bogus"), 2, "No such option"),
    (fit("good.csv", "--delimiter", "ab"), 2, "'ab' is not one character"),
    (fit("good.csv", "--encoding", "klingon"), 2, "'klingon' is not an encoding that is known"),
    (fit("good.csv", "--decimal", "x"), 2, "'x' is not one of '.', ','"),
    (fit("good.csv", "-c", "group"), 2, "'group' is named twice"),
    (fit("good.csv", "--covariates", "g0 +"), 2, "--covariates 'g0 +' is not a formula"),
    (fit("good.csv", "--normalize", "log1p", "--target-sum", "0"), 2, "0.0 is not above 0"),
    (fit("good.csv", "--hvg", "2"), 2, "--hvg has no effect"),
    (fit("good.csv", "--layer", "x"), 2, "is a text table, and --layer is for AnnData"),
    (fit("good.csv", "--features", "group"), 2, "--features 'group' matches only what --context or --index names"),
    (["fit", "x.npy", "-c", "group", *OUT], 2, "has no columns for --context"),
    (["fit", "good.moments", "-c", "group", *OUT], 2, "holds moments, which know their contexts"),
    (["fit", "good.moments", "--robust", *OUT], 2, "--robust weighs single rows, and moments do not have them"),
    (["fit"], 2, "Missing argument"),
    (["fti"], 2, "No such command 'fti'. Did you mean 'fit'?"),
    (["report", "res", "-c", "group"], 2, "--context has no effect: no file of rows is given"),
    (
        ["transform", "res", "good.csv", "-c", "group", "--batch", "group", "-o", "s.csv"],
        2,
        "model was fitted without batch",
    ),
    (
        ["transform", "res", "good.csv", "-c", "group", "--features", "g0", "-o", "s.csv"],
        2,
        "so --features has no effect",
    ),
    (
        ["transform", "res", "good.csv", "--drop", "group", "--center", "context", "-o", "s.csv"],
        2,
        "needs --context or --labels",
    ),
    # Models and moments.
    (["transform", "ress", "good.csv", "-o", "s.csv"], 3, "ress: there is no such file; did you mean 'res'?"),
    (["transform", "good.csv", "good.csv", "-o", "s.csv"], 3, "is not a fitted model (text)"),
    (["transform", "good.moments", "good.csv", "-o", "s.csv"], 3, "is not a fitted model (moments)"),
    (["transform", "nothing", "good.csv", "-o", "s.csv"], 3, "there is no model in it"),
    (
        ["transform", "res", "other.csv", "-c", "group", "-o", "s.csv"],
        3,
        "has no columns for the features 'g0', 'g1', 'g2'",
    ),
    (
        ["transform", "res", "new.csv", "-c", "group", "--center", "context", "-o", "s.csv"],
        3,
        "Pass --center own to centre new contexts",
    ),
    (["loadings", "res", "fewer.csv", "-c", "group"], 3, "has no columns for the features 'g4'"),
    (["fit", "res", *OUT], 3, "is a folder of results of mcpca fit, which holds no rows"),
    (["fit", "res/model.mcpca", *OUT], 3, "is a fitted model and has no rows"),
    (
        ["merge", "good.moments", "other.moments", "-o", "out"],
        3,
        "other.moments: The set of rows to add lacks 5 of the 5",
    ),
    (["merge", "good.moments", "good.csv", "-o", "out"], 3, "good.csv: holds no moments (text)"),
    (["merge", "good.moments", "good.moments", "-o", "out"], 3, "is given twice"),
    (["repeat", "run.json", "-o", "out"], 3, "is not a run.json of mcpca fit"),
    (["repeat", "gone", "-o", "out"], 3, "cannot be read (No such file or directory)"),
    (["doctor", "picture.png"], 3, "is a picture (PNG)"),
    (["doctor", "constant.csv", "-c", "group", "--layer", "x"], 2, "--layer is for AnnData"),
    # Nothing above noise.
    (["fit", "noise.csv", "-c", "group", *OUT], 4, "Pass --rank R to fit one all the same."),
    (["rank", "noise.csv", "-c", "group", "--criteria", "none"], 4, "noise"),
    # Outputs.
    (["fit", "good.csv", "-c", "group", "-r", "1", "-o", "good.csv"], 5, "--out good.csv is a file; choose a folder"),
    (["fit", "good.csv", "-c", "group", "-r", "1", "-o", "x.csv"], 5, "results are a folder"),
    (["fit", "good.csv", "-c", "group", "-r", "1", "-o", "res"], 5, "exists; choose another folder"),
    (["fit", "good.csv", "-c", "group", "-r", "1", "-o", "good.csv/out"], 5, "nothing can be created in"),
    (["transform", "res", "good.csv", "-c", "group", "-o", "x.pdf"], 5, "and not as .pdf; choose one of these"),
    (["transform", "res", "good.csv", "-c", "group", "--json"], 2, "--json goes to stdout, and so does the table"),
    (["moments", "good.csv", "-c", "group", "-o", "nothing"], 5, "is a folder; name a file"),
    (["report", "res", "-o", "x.pdf"], 5, "choose a name that ends in .html"),
    (fit("good.csv", "--checkpoint", "good.csv/x"), 5, "--checkpoint"),
]


def python_words(message):
    """Return what of a message only those who write Python know."""
    message = OTHER_PROGRAMS.sub("", message).replace("a Python pickle", "").replace("in Python by ", "")
    bare = QUOTED.sub("", message)  # without names from files, and values that were typed
    return [found[0] for pattern in (PYTHON, UNDERSCORED) for found in pattern.finditer(bare)]


@pytest.mark.parametrize(("command", "code", "message"), FAULTS, ids=[" ".join(case[0])[:70] for case in FAULTS])
def test_wrong_inputs_are_told_in_words_of_the_command(wrong, monkeypatch, capsys, command, code, message):
    """The exit code of docs/cli.md, one line that says what is wrong, nothing written, and JSON if asked for."""
    monkeypatch.chdir(wrong)
    before = sorted(os.listdir())
    assert main(command) == code
    captured = capsys.readouterr()
    last = captured.err.splitlines()[-1]
    assert last.startswith("mcpca: ")
    assert message in last
    assert python_words(captured.err) == []
    assert not last.endswith(("..", "?.", ";.", ":."))
    assert sorted(os.listdir()) == before
    if "--json" not in command:
        main([*command, "--json"])
        captured = capsys.readouterr()
        answer = json.loads(captured.out)
        assert answer["ok"] is False
        assert answer["error"]["exit_code"] == code
        assert answer["error"]["kind"] == {2: "usage", 3: "input", 4: "rank", 5: "output"}[code]
        assert f"mcpca: {answer['error']['message']}" == last


def test_the_check_for_python_finds_some():
    """Otherwise the assertion above could be passed by anything."""
    for text in (
        "n_components=3 exceeds the rank",
        "X has negative values",
        "cross_fit=5",
        "an array of dtype float64",
        "ValueError: no",
        "[Errno 2] no",
        "pass center=None",
        "max_iter",
        "BadZipFile: no",
    ):
        assert python_words(text), text
    assert python_words("--rank 3 exceeds 'n_genes' of the file; see corrected_loadings.csv") == []


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Choose n_components <= 3.", "Choose --rank 3 or lower."),
        ("Fit with cross_fit=5, or robust=True.", "Fit with --cross-fit 5, or --robust."),
        ("Pass noise='pooled', or noise=None.", "Pass --noise pooled, or no --noise."),
        ("n_components=... sets a rank.", "--rank sets a rank."),
        ("covariates='a + b' is not a formula", "--covariates 'a + b' is not a formula"),
        ("X has gaps in row 0, feature 3.", "has gaps in row 1, feature 4."),
        ("context 'a' (n_samples = 1)", "context 'a' (1 row)"),
        ("n_top=21 is out of bounds: 1 <= n_top <= 20 is needed.", "--hvg 21 is out of bounds: it goes from 1 to 20."),
        ("tol=1e-07, max_iter=200", "--tol 1e-07, --max-iter 200"),
        ("without noise\n and batch", "without noise and batch"),
    ],
)
def test_parameters_become_options(said, told):
    assert in_words_of_the_command(said) == told


def test_a_bug_and_a_missing_extra_have_codes_of_their_own(wrong, monkeypatch, capsys):
    import sys

    from mcpca.cli import _fitting

    monkeypatch.chdir(wrong)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "plotly", None)
        assert main(["report", "res", "-o", "x.html"]) == 2
    assert 'pip install "mcpca[report]"' in capsys.readouterr().err

    def fail(*args, **options):
        raise KeyError("somewhere")

    monkeypatch.setattr(_fitting, "read_data", fail)
    assert main(fit("good.csv")) == 1
    assert "(a bug in mcpca; --debug shows where)" in capsys.readouterr().err
