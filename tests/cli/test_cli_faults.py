"""Whatever happens on the way, results are whole or not there, and the exit code says what happened."""

import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from table_files import FEATURES, frame

from mcpca.cli import _fitting, _reporting, main
from mcpca.cli.tables import tabular

CSV = ["--context", "group", "--index", "cell"]


@pytest.fixture
def table(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    frame().to_csv(folder / "x.csv", index=False)
    return folder / "x.csv"


def fit(table, out, *more):
    return main(["fit", str(table), *CSV, "-r", "2", "-o", str(out), "--no-report", "--no-picture", "-q", *more])


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# Ctrl-C ------------------------------------------------------------------------------------------------------------


def hook(monkeypatch, phase):
    """Send ourselves SIGINT in a phase of the fit."""

    def interrupt(*args, **options):
        signal.raise_signal(signal.SIGINT)

    def after(function, calls):
        left = [calls]

        def called(*args, **options):
            left[0] -= 1
            if left[0] == 0:
                interrupt()
            return function(*args, **options)

        return called

    if phase == "reading":
        monkeypatch.setattr(tabular, "batch_matrix", interrupt)
    elif phase == "fitting":
        monkeypatch.setattr("mcpca._estimator.fitting.decompose_checked", interrupt)
    elif phase == "scores":
        monkeypatch.setattr(_fitting, "row_scores", interrupt)
    elif phase == "tables":
        monkeypatch.setattr(_fitting, "write_table", after(_fitting.write_table, 4))
    elif phase == "model":
        monkeypatch.setattr("mcpca._estimator.mcpca.save_model", interrupt)
    elif phase == "picture":
        monkeypatch.setattr(_fitting, "write_loadings_picture", interrupt)
    elif phase == "report":
        monkeypatch.setattr(_reporting, "report_writer", lambda: interrupt)
    elif phase == "renaming":
        monkeypatch.setattr(os, "rename", after(os.rename, 2))


PHASES = ["reading", "fitting", "scores", "tables", "model", "picture", "report", "renaming"]


def shown(phase):
    return [f"--{phase}"] if phase in ("picture", "report") else []


@pytest.mark.parametrize("phase", PHASES[:-1])
def test_ctrl_c_leaves_nothing(table, tmp_path, monkeypatch, capsys, phase):
    hook(monkeypatch, phase)
    assert fit(table, tmp_path / "new" / "out", *shown(phase)) == 130
    assert capsys.readouterr().err == "mcpca: interrupted; nothing is left half written.\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


@pytest.mark.parametrize("phase", PHASES)
def test_ctrl_c_leaves_the_old_results(table, tmp_path, monkeypatch, capsys, phase):
    out = tmp_path / "out"
    assert fit(table, out) == 0
    before = contents(tmp_path)
    hook(monkeypatch, phase)
    assert fit(table, out, "--force", "--seed", "1", "--json", *shown(phase)) == 130
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["error"]["kind"] == "interrupted"
    monkeypatch.undo()
    assert contents(tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "out"]


def run(program, *, wait_for=None, send=None, **options):
    """Run a program of Python that imports this tree; send a signal when it has printed a line."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
    if send is not None:
        assert process.stdout.readline().strip() == wait_for
        process.send_signal(send)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.mark.parametrize(("number", "code", "word"), [(signal.SIGINT, 130, "inter"), (signal.SIGTERM, 143, "term")])
def test_signals_from_outside_while_files_are_read_and_written(table, tmp_path, number, code, word):
    """SIGINT while a table is read, SIGTERM while tables are written."""
    patched = "tabular.batch_matrix" if number == signal.SIGINT else "_fitting.write_table"
    program = f"""
        import sys, time
        from mcpca.cli import main, _fitting
        from mcpca.cli.tables import tabular
        original = {patched}
        def slow(*args, **options):
            print("now", flush=True)
            time.sleep(20)
            return original(*args, **options)
        {patched} = slow
        sys.exit(main(["fit", {str(table)!r}, *{CSV!r}, "-r", "2", "-o", {str(tmp_path / "out")!r}, "--no-report"]))
    """
    returned, _, err = run(program, wait_for="now", send=number)
    assert returned == code
    assert word in err
    assert "Traceback" not in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_a_long_fit_goes_on_from_its_checkpoint(table, tmp_path, monkeypatch):
    from mcpca._covariances import checkpoint

    monkeypatch.setattr("mcpca._covariances.fit_data.MOST_NUMBERS", 0)
    kept = tmp_path / "fit.ckpt"
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.Checkpoint, "finish", lambda self: signal.raise_signal(signal.SIGINT))
        assert fit(table, tmp_path / "out", "--checkpoint", str(kept)) == 130
    assert kept.exists()
    assert not (tmp_path / "out").exists()
    assert fit(table, tmp_path / "out", "--checkpoint", str(kept), "--seed", "1") == 3  # it is of another fit
    assert kept.exists()
    assert fit(table, tmp_path / "out", "--checkpoint", str(kept)) == 0
    assert not kept.exists()
    assert fit(table, tmp_path / "whole") == 0
    for name in ("components.csv", "loadings.csv", "scores.csv"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


# Disks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 200, 3000])
def test_a_full_disk_leaves_nothing(table, tmp_path, capsys, limit):
    """A real limit on the size of files stands in for a full disk: in the first table, in the scores, in the model."""
    out = tmp_path / "out"
    assert fit(table, out) == 0
    before = contents(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        codes = [fit(table, tmp_path / "other"), fit(table, out, "--force", "--seed", "1")]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert codes == [5, 5]
    err = capsys.readouterr().err
    assert err.count("\n") == 2
    assert "other cannot be written (File too large); nothing was changed." in err
    assert contents(tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "out"]


def test_single_files_are_whole_or_not_there(table, tmp_path, capsys):
    out, scores = tmp_path / "out", tmp_path / "scores.csv"
    assert fit(table, out) == 0
    base = ["transform", str(out), str(table), "--index", "cell", "--drop", "group", "-q"]
    assert main([*base, "-o", str(scores)]) == 0
    before = contents(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
        assert main([*base, "-o", str(scores), "--force", "--center", "own"]) == 5
        assert main(["moments", str(table), *CSV, "-o", str(tmp_path / "m")]) == 5
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert contents(tmp_path) == before
    assert main([*base, "-o", str(scores)]) == 5
    assert "scores.csv exists; choose another name, or replace it with --force" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_stdout_that_is_full_or_closed(table, tmp_path):
    out = tmp_path / "out"
    assert fit(table, out) == 0
    program = f"""
        import os, sys
        from mcpca.cli import main
        arguments = ["transform", {str(out)!r}, {str(table)!r}, "--index", "cell", "--drop", "group", "-q"]
        full = os.open("/dev/full", os.O_WRONLY)
        reading, writing = os.pipe()
        os.close(reading)
        codes = []
        for target in (full, writing):
            os.dup2(target, 1)
            sys.stdout = os.fdopen(os.dup(1), "w")
            codes.append(main(arguments))
            try:
                sys.stdout.close()
            except OSError:
                pass
        print(codes, file=sys.stderr)
        os._exit(0)
    """
    _, _, err = run(program)
    assert err == "mcpca: stdout cannot be written (No space left on device).\n[5, 141]\n"


@pytest.fixture
def as_nobody():
    """A folder that everyone can read and only its owner can write to, and a user who is not its owner."""
    folder = Path(tempfile.mkdtemp(prefix="mcpca-test-"))
    folder.chmod(0o755)
    root = os.geteuid() == 0
    try:
        yield folder, (lambda: os.seteuid(65534)) if root else (lambda: folder.chmod(0o555))
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_folder_without_permission_and_a_file_without_it(as_nobody, table, tmp_path, capsys):
    folder, become = as_nobody
    shutil.copy(table, folder / "x.csv")
    shutil.copy(table, folder / "secret.csv")
    (folder / "secret.csv").chmod(0)
    assert fit(table, tmp_path / "warm") == 0  # all that is imported late is imported by now
    before = sorted(folder.iterdir())
    become()
    assert fit(folder / "x.csv", folder / "out") == 5
    assert f"out cannot be written: nothing can be created in {folder} (Permission denied)." in capsys.readouterr().err
    assert fit(folder / "secret.csv", Path(tempfile.gettempdir()) / "mcpca-test-nowhere") == 3
    assert "secret.csv: cannot be opened (Permission denied)." in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


def test_what_is_there_is_not_overwritten(table, tmp_path, capsys):
    out = tmp_path / "out"
    assert fit(table, out) == 0
    before = contents(out)
    assert fit(table, out, "--seed", "1") == 5
    assert "exists; choose another folder, or replace it with --force" in capsys.readouterr().err
    assert contents(out) == before
    assert fit(table, out, "--format", "parquet", "--force") == 0
    assert (out / "scores.parquet").exists()
    assert not (out / "scores.csv").exists()
    (out / "thesis.txt").write_text("mine")
    assert fit(table, out, "--force") == 5
    assert "holds 'thesis.txt', which mcpca did not write" in capsys.readouterr().err
    assert (out / "thesis.txt").read_text() == "mine"
    assert fit(table, table, "--force") == 5
    assert "is a file; choose a folder" in capsys.readouterr().err
    assert main(["moments", str(table), *CSV, "-o", str(tmp_path)]) == 5
    assert "is a folder; name a file" in capsys.readouterr().err


def test_a_link_to_a_folder_of_results_stays_a_link(table, tmp_path):
    assert fit(table, tmp_path / "real") == 0
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert fit(table, tmp_path / "link", "--force", "--no-scores") == 0
    assert (tmp_path / "link").is_symlink()
    assert not (tmp_path / "real" / "scores.csv").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "link", "real"]


# Files that are wrong, through the command ---------------------------------------------------------------------------


def test_wrong_files_end_with_3_and_one_line(tmp_path, capsys):
    import numpy as np
    from table_files import truncated_gzip

    inputs = tmp_path / "in"
    inputs.mkdir()
    truncated_gzip(inputs / "half.csv.gz")
    (inputs / "mixed.csv").write_text("group,a,b\nx,1,2\ny;3;4\nx,1,2\n")
    (inputs / "headless.csv").write_text("x,0.5,1.5\ny,2.5,1.0\n")
    frame().to_csv(inputs / "text.csv", index=False)
    (inputs / "twice.csv").write_text("group,a,a\nx,1,2\ny,1,2\n")
    (inputs / "wide.csv").write_text("group," + ",".join(f"v{i}" for i in range(10**6)) + "\n")
    np.savez(inputs / "pickle.npz", X=np.eye(3), group=np.array(["a", 1, None], dtype=object))
    for name, message in (
        ("half.csv.gz", "truncated or damaged gzip data"),
        ("mixed.csv", "mixed delimiters"),
        ("headless.csv", "has no header"),
        ("text.csv", "1 column of text among the features: 'cell'"),
        ("twice.csv", "1 column name more than once: 'a'"),
        ("wide.csv", "has 1,000,001 columns"),
        ("pickle.npz", "can only be read by pickle, which can run code: refused"),
        ("nothing.csv", "there is no such file"),
    ):
        for command in ("fit", "moments"):
            assert main([command, str(inputs / name), "-c", "group", "-o", str(tmp_path / "out")]) == 3
            captured = capsys.readouterr()
            assert message in captured.err
            assert captured.err.count("\n") == 1
            assert captured.out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_input_that_changes_between_passes_is_noticed(tmp_path, capsys, monkeypatch):
    """A table that is streamed, and grows while it is read."""
    import pandas as pd

    table = pd.concat([frame()] * 250, ignore_index=True)
    path = tmp_path / "x.csv"
    table.to_csv(path, index=False)
    original = _fitting.read_data

    def read_then_grow(*args, **options):
        data = original(*args, **options)
        assert not data.in_memory
        data.source  # noqa: B018  # opened, and so measured
        with path.open("a") as file:
            file.write("cell,c0," + ",".join("1" for _ in FEATURES) + "\n")
        return data

    monkeypatch.setattr(_fitting, "read_data", read_then_grow)
    assert main(["fit", str(path), *CSV, "-r", "2", "-o", str(tmp_path / "out"), "--max-memory", "1"]) == 3
    assert "changed between passes" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_temporary_files_are_hidden_beside_the_output(table, tmp_path, monkeypatch):
    """Renaming is only atomic within a disk: what is unfinished lies beside its place."""
    seen = []
    original = _fitting.write_table

    def look(columns, target, format):
        seen.append([path.name for path in tmp_path.iterdir() if path.name.startswith(".out.")])
        assert stat.S_IMODE(Path(target).parent.stat().st_mode) == 0o700
        original(columns, target, format)

    monkeypatch.setattr(_fitting, "write_table", look)
    assert fit(table, tmp_path / "out") == 0
    assert all(len(names) == 1 for names in seen)


def test_ctrl_c_while_the_package_is_imported():
    """NumPy's import stands for a user who is quick."""
    code = (
        "import signal, sys, types, mcpca_command\n"
        "class Quick:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'numpy': signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Quick())\n"
        "sys.exit(mcpca_command.main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "mcpca: interrupted.\n")
