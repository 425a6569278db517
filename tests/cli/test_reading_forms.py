"""One table in many forms of text: comments, Excel's leftovers, decimal commas, the other way round, piped in."""

import gzip
import hashlib
import io
import json
import sys

import numpy as np
import pytest
from table_files import check_equal, frame, planted

from mcpca.cli import main
from mcpca.cli.tables import Reading, UnusableFileError, read_data

NAMED = {"context": ("group",), "index": "cell"}


def lines_of(table, **options):
    return table.to_csv(index=False, **options).splitlines(keepends=True)


def with_comments(lines, mark="#"):
    """Put comments before the header and among the rows, many enough to fill what is looked at first."""
    head = [f"{mark}{'x,' * 40}{i}\n" for i in range(300)]
    return [*head, lines[0], f"{mark} one, two\n", *lines[1:60], f'{mark} "stray\n', *lines[60:], f"{mark} end\n"]


def with_empty_edges(lines, delimiter=","):
    empty = delimiter * (lines[0].count(delimiter) + 3)
    return [*(line.rstrip("\n") + 3 * delimiter + "\n" for line in lines), *[empty + "\n"] * 5]


FORMS = {
    "comment": (lambda: with_comments(lines_of(frame())), {"comment": "#"}),
    "GEO's comment": (lambda: with_comments(lines_of(frame(), sep="\t"), "!"), {"comment": "!"}),
    "several characters": (lambda: with_comments(lines_of(frame()), "//"), {"comment": "//"}),
    "sep=": (lambda: ["sep=;\r\n", *lines_of(frame(), sep=";")], {}),
    "quoted sep=": (lambda: ['"sep=,"\n', *lines_of(frame())], {}),
    "sep= and an option": (lambda: ["sep=,\n", *lines_of(frame(), sep="|")], {"delimiter": "|"}),
    "sep= in comments": (lambda: ["# one\n", "sep=|\n", "#\n", *lines_of(frame(), sep="|")], {"comment": "#"}),
    "empty edges": (lambda: with_empty_edges(lines_of(frame())), {}),
    "empty edges, tabs": (lambda: with_empty_edges(lines_of(frame(), sep="\t"), "\t"), {}),
    "all of Excel": (
        lambda: ["sep=;\n", *with_comments(with_empty_edges(lines_of(frame(), sep=";", decimal=","), ";"))],
        {"comment": "#", "decimal": ","},
    ),
    "delimiter at line ends": (
        lambda: [lines_of(frame())[0], *(line.rstrip("\n") + ",\n" for line in lines_of(frame())[1:])],
        {},
    ),
    "decimal comma, tabs": (lambda: lines_of(frame(), sep="\t", decimal=","), {"decimal": ","}),
    "decimal comma, quoted": (lambda: lines_of(frame(), decimal=","), {"decimal": ","}),
    "decimal comma, bars": (lambda: lines_of(frame(), sep="|", decimal=","), {"decimal": ","}),
    "decimal comma, spaces": (lambda: lines_of(frame(), sep=" ", decimal=","), {"decimal": ","}),
}
PACKING = {
    "plain": lambda text: text.encode(),
    "gz": lambda text: gzip.compress(text.encode()),
    "utf-16": lambda text: text.encode("utf-16"),
}


@pytest.mark.parametrize("packing", PACKING)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_text_gives_the_same_rows(tmp_path, form, packing):
    make, options = FORMS[form]
    path = tmp_path / "x.csv"
    path.write_bytes(PACKING[packing]("".join(make())))
    data = read_data([path], Reading(**NAMED, **options))
    check_equal(data)
    if "edges" in form:
        assert data.notes == [f"3 empty columns and 5 empty rows at the end of {path}."]
    check_equal(read_data([path], Reading(**NAMED, **options, max_bytes=100)), in_memory=False)


def test_labels_have_comments_too(tmp_path):
    X, y = planted()
    np.save(tmp_path / "rows.npy", X)
    (tmp_path / "labels.txt").write_text("# who\n" + "\n#\n".join(y) + "\n")
    data = read_data([tmp_path / "rows.npy"], Reading(labels=tmp_path / "labels.txt", comment="#"))
    assert data.labels.names().tolist() == y.tolist()
    (tmp_path / "labels.csv").write_text("".join(with_comments(lines_of(frame()[["cell", "group"]]))))
    asked = Reading(labels=tmp_path / "labels.csv", context=("group",), comment="#")
    assert read_data([tmp_path / "rows.npy"], asked).labels.names().tolist() == y.tolist()


WRONG = {
    "bad value": ("#\n#\na,b\n1,2\n#\n3,x\n" + 200 * "1,2\n", {"comment": "#"}, "has 'x' in line 6, column 'b'"),
    "bad value far down": (
        "#\na,b\n" + 200 * "1,2\n" + "#\n3,n.d.\n",
        {"comment": "#"},
        r"line 204 has 'n\.d\.' in column 'b', which is otherwise numbers; .* --na-values n\.d\.",
    ),
    "ragged": ("#\na,b\n#\n1,2,3\n1,2,3,4\n", {"comment": "#"}, "line 4 has 3 cells where the header has 2"),
    "ragged far down": (
        "#\na,b\n" + 200 * "1,2\n" + "#\n3\n",
        {"comment": "#", "delimiter": ","},
        r"line 204 has 1 cell where the header has 2",
    ),
    "only comments": ("# a\n# b\n", {"comment": "#"}, r"only empty lines and lines that begin with '#' \(--comment\)"),
    "empty row within": (
        "a,b\n1,2\n,\n3,4\n,\n",
        {},
        r"1 of 3 rows has missing or infinite values, the first in row 2 .line 3, column 'a'.",
    ),
    "empty column within": ("a,,b\n1,,2\n3,,4\n", {}, "has no name for column 2 in its header"),
    "value without a name": (
        "a,b,\n" + 200 * "1,2,\n" + "1,2,x\n",
        {},
        r"line 202 has 'x' right of the last column that the header names \('b'\)",
    ),
    "thousands": ('a,b\n"1,234",2\n"5,678",3\n', {}, "has commas between thousands"),
    "a label alone in the last row": ("group,a\nx,1\ny,2\nx,\n", {}, r"1 of 3 rows has missing .* row 3 .line 4"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_texts_are_told_by_their_lines(tmp_path, case):
    content, options, message = WRONG[case]
    (tmp_path / "wrong.csv").write_text(content)
    context = ("group",) if "group" in content else ()
    with pytest.raises(UnusableFileError, match=message):
        read_data([tmp_path / "wrong.csv"], Reading(context=context, **options), need_context=False)


def test_text_for_missing_numbers(tmp_path):
    lines = lines_of(frame())
    lines[5] = lines[5].replace(lines[5].split(",")[3], "n.d.")
    (tmp_path / "x.csv").write_text("".join(lines))
    with pytest.raises(UnusableFileError, match=r"has 'n\.d\.' in line 6, column 'g1', which is otherwise numbers"):
        read_data([tmp_path / "x.csv"], Reading(**NAMED))
    with pytest.raises(UnusableFileError, match=r"the first in row 5 .line 6, column 'g1'., in 1 column: 'g1' \(1\)"):
        read_data([tmp_path / "x.csv"], Reading(**NAMED, na_values=("n.d.",)))


@pytest.mark.parametrize("option", [["--comment", "#"], ["--sheet", "a"], ["--decimal", ","]])
def test_options_of_text_have_no_effect_on_arrays(tmp_path, option, capsys):
    X, y = planted()
    np.savez(tmp_path / "x.npz", X=X, group=y)
    assert main(["fit", str(tmp_path / "x.npz"), "-c", "group", *option]) == 2
    assert f"{option[0]} is for" in capsys.readouterr().err


# Piped in ----------------------------------------------------------------------------------------------------------


class Piped(io.TextIOWrapper):
    """What sys.stdin is when bytes are piped in."""

    def __init__(self, content):
        super().__init__(io.BytesIO(content))


QUICK = ("-r", "2", "--no-report", "--no-picture", "--no-context-test")


@pytest.fixture
def run(capsys, monkeypatch):
    def run_command(*words, stdin=None):
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", Piped(stdin))
        code = main([str(word) for word in words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run_command


def parquet_bytes():
    buffer = io.BytesIO()
    frame().to_parquet(buffer, index=False)
    return buffer.getvalue()


@pytest.mark.parametrize("form", ["text", "gz", "Parquet"])
def test_stdin_is_read_like_a_file(tmp_path, run, form):
    text = "".join(lines_of(frame())).encode()
    (tmp_path / "x.csv").write_bytes(text)
    content = {"text": text, "gz": gzip.compress(text), "Parquet": parquet_bytes()}[form]
    words = ["-c", "group", "--index", "cell", *QUICK, "-o"]
    assert run("fit", tmp_path / "x.csv", *words, tmp_path / "a")[0] == 0
    code, _, err = run("fit", "-", *words, tmp_path / "b", stdin=content)
    assert code == 0, err
    for name in ("scores.csv", "loadings.csv", "components.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    record = json.loads((tmp_path / "b" / "run.json").read_text())
    assert record["options"]["data"] == ["-"]
    assert [(e["path"], e["sha256"]) for e in record["inputs"]] == [("stdin", hashlib.sha256(content).hexdigest())]
    code, _, err = run("repeat", tmp_path / "b", "-o", tmp_path / "c")
    assert code == 3
    assert "read stdin, which is not kept" in err
    assert "--data FILE" in err


def test_labels_from_stdin_and_faults_of_it(tmp_path, run, monkeypatch):
    X, y = planted()
    np.save(tmp_path / "rows.npy", X)
    labels = "\n".join(y).encode()
    words = ["fit", tmp_path / "rows.npy", "--labels", "-", *QUICK, "-o", tmp_path / "out"]
    assert run(*words, stdin=labels)[0] == 0
    assert json.loads((tmp_path / "out" / "run.json").read_text())["options"]["reading"]["labels"] == "-"
    code, _, err = run("fit", "-", "--labels", "-", "-c", "x", stdin=b"a,b\n")
    assert (code, "can be read once" in err) == (2, True)
    code, _, err = run("fit", "-", "-c", "group", stdin=b"")
    assert code == 3
    assert err.startswith("mcpca: stdin: is empty")
    code, _, err = run("fit", "-", "-c", "nothing", stdin=b"a,b\n1,2\n")
    assert (code, err.startswith("mcpca: stdin: has no column (--context) 'nothing'")) == (3, True)
    piped = Piped(b"")
    monkeypatch.setattr(piped, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", piped)
    code, _, err = run("fit", "-", "-c", "group")
    assert (code, "nothing is piped in" in err) == (2, True)
    code, out, err = run("doctor", "-", stdin="".join(lines_of(frame())).encode())
    assert code == 0, err
    assert out.startswith("stdin: text separated by commas")
    assert "mcpca fit - --context group" in out
