"""The benchmark: results survive interruption, tables say what the results say, and caps are never hidden."""

import json
import subprocess
import sys
from statistics import median

import matplotlib

matplotlib.use("Agg")

import matplotlib.image
import numpy as np
import pytest

from mcpca.paper import _command, digits, figures, main, problems, running, tables
from mcpca.paper._command import FULL, QUICK, SECTIONS, Size, jobs
from mcpca.paper.claims import check_claims
from mcpca.paper.problems import Shape
from mcpca.paper.running import COMPARED, COMPARED_ON_DIGITS, LABELS, Progress, Section, Store, run_section

TINY = Size(
    accuracy_trials=2,
    sample_size_trials=1,
    robustness_trials=1,
    sizes=(8, 1000, 4000),
    images=300,
    draws=1,
    ranks=(2, 7),
    shape=Shape(p=12, k=6, r=4, n=60, density=0.6),
    hard_shape=Shape(p=12, k=6, r=4, n=60, density=0.6),
    time_limit=2.0,
)
FEW = ("mspm", "pca_stack", "ffdiag", "nls", "qrj1d")


@pytest.fixture
def tiny(monkeypatch):
    """The command with tiny sizes; rank off by 1, since there are four components."""
    monkeypatch.setattr(_command, "FULL", TINY)
    cases = problems.robustness_cases
    monkeypatch.setattr(_command, "robustness_cases", lambda shape: cases(shape, off=1))


def section(trials=2, methods=FEW):
    return Section("2b", "title", [problems.paper_case(TINY.shape)], trials, methods)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_all_sections_write_their_files(tiny, tmp_path, capsys):
    assert main(["--output", str(tmp_path / "new" / "folder"), "--methods", *FEW]) == 0
    output = tmp_path / "new" / "folder"
    names = {f"{name}.{end}" for name in SECTIONS for end in ("jsonl", "json", "md", "png")}
    names |= {"digits_rank.png", "claims.json", "claims.md"}
    assert {path.name for path in output.iterdir()} == names
    for path in output.glob("*.png"):
        assert np.ptp(matplotlib.image.imread(path)[..., :3]) > 0.5
    printed = capsys.readouterr()
    for name in SECTIONS:
        assert (output / f"{name}.md").read_text() in printed.out
        assert f"{name}: " in printed.err
    assert len(lines(output / "2b.jsonl")) == 2 * len(FEW)
    assert len(lines(output / "robustness.jsonl")) == 8 * len(FEW)
    before = {path.name: path.read_bytes() for path in output.glob("*.jsonl")}
    assert main(["--output", str(output), "--only", "2b", "digits", "--methods", *FEW]) == 0
    assert {path.name: path.read_bytes() for path in output.glob("*.jsonl")} == before
    again = capsys.readouterr().err
    assert f"2b: {2 * len(FEW)} runs, {2 * len(FEW)} of them already in {output / '2b.jsonl'}" in again


def test_tables_equal_the_lines(tiny, tmp_path, capsys):
    output = str(tmp_path)
    assert main(["--output", output, "--only", "2b", "2c", "--trials", "3", "--methods", "mspm", "pca_stack"]) == 0
    found = lines(tmp_path / "2b.jsonl")
    rows = json.loads((tmp_path / "2b.json").read_text())["rows"]
    assert [row["method"] for row in rows] == ["MCPCA (mspm)", "PCA-STACK"]
    for row, name in zip(rows, ("mspm", "pca_stack"), strict=True):
        own = [r for r in found if r["method"] == name]
        assert row["trials"] == len(own) == 3
        assert row["median 1 - Ascore"] == median(r["error"] for r in own)
        assert row["worst"] == max(r["error"] for r in own)
        assert row["median seconds"] == median(r["seconds"] for r in own)
        assert f"| {row['median 1 - Ascore']:.2g} |" in (tmp_path / "2b.md").read_text()
    found = lines(tmp_path / "2c.jsonl")
    row = json.loads((tmp_path / "2c.json").read_text())["rows"][0]
    for n in TINY.sizes:
        assert row[f"N = {n}"] == median(r["error"] for r in found if r["method"] == "mspm" and r["N"] == n)
    expected = np.log(row["N = 4000"] / row["N = 1000"]) / np.log(4)
    assert row["slope"] == pytest.approx(expected)
    assert row["N = 4000"] < row["N = 8"]


def test_a_torn_last_line_is_done_again_and_nothing_else(tmp_path, capsys):
    path = tmp_path / "2b.jsonl"
    first = run_section(section(), Store(path), 2.0, Progress())
    whole = path.read_bytes()
    for cut in (1, 25):
        path.write_bytes(whole[:-cut])
        store = Store(path)
        assert store.torn
        assert len(store.records) == len(first) - 1
        again = run_section(section(), store, 2.0, Progress())
        assert "is incomplete; that run is repeated" in capsys.readouterr().err
        assert [(r["method"], r["trial"], r["error"]) for r in again] == [
            (r["method"], r["trial"], r["error"]) for r in first
        ]
        assert len(lines(path)) == len(first)
        assert path.read_bytes().startswith(whole[: whole[:-1].rindex(b"\n") + 1])


def test_a_bad_line_within_the_file_is_an_error(tiny, tmp_path, capsys):
    (tmp_path / "2b.jsonl").write_text('{"method": 1\n{}\n')
    assert main(["--output", str(tmp_path), "--only", "2b"]) == 2
    assert "2b.jsonl, line 1, is not a result; delete the line" in capsys.readouterr().err


def test_more_trials_add_to_what_is_there(tmp_path, monkeypatch):
    path = tmp_path / "2b.jsonl"
    run_section(section(1), Store(path), 2.0, Progress())
    before = path.read_bytes()
    ran = []
    monkeypatch.setattr(running, "run", lambda name, *args, **options: ran.append(name) or real(name, *args, **options))
    real = sys.modules["mcpca.baselines"].run
    records = run_section(section(2), Store(path), 2.0, Progress())
    assert ran == list(FEW)
    assert path.read_bytes().startswith(before)
    assert len(records) == 2 * len(FEW)
    # A smaller question of the same file has the smaller answer.
    assert len(run_section(section(1, ("ffdiag",)), Store(path), 2.0, Progress())) == 1


def test_interruption_keeps_what_was_done(tiny, tmp_path, monkeypatch, capsys):
    real, count = running.run, []

    def stops(name, *args, **options):
        count.append(name)
        if len(count) == 6:  # two for the warming up
            raise KeyboardInterrupt
        return real(name, *args, **options)

    monkeypatch.setattr(running, "run", stops)
    command = ["--output", str(tmp_path), "--only", "2b", "--trials", "4", "--methods", "mspm", "ffdiag"]
    assert main(command) == 130
    assert "; the same command resumes it" in capsys.readouterr().err
    assert len(lines(tmp_path / "2b.jsonl")) == 3
    monkeypatch.setattr(running, "run", real)
    assert main(command) == 0
    assert "8 runs, 3 of them already" in capsys.readouterr().err
    assert len(lines(tmp_path / "2b.jsonl")) == 8


def test_the_cap_is_reported_in_lines_tables_and_figure(tmp_path):
    store = Store(tmp_path / "2b.jsonl")
    records = run_section(section(3, ("mspm", "qrj1d")), store, 1e-6, Progress())
    stopped = [r for r in records if r["method"] == "qrj1d"]
    assert all(r["capped"] and r["time_limit"] == 1e-6 and "time_limit" in r["notes"] for r in stopped)
    assert all(not r["capped"] and r["time_limit"] is None for r in records if r["method"] == "mspm")
    rows = tables.accuracy_table(records)
    assert [row["stopped at the cap"] for row in rows] == ["", "3 of 3"]
    ax = figures.runtime_figure(records, "title", 1e-6).axes[0]
    assert "QRJ1D, 3 of 3 at cap" in [text.get_text() for text in ax.get_legend().get_texts()]
    assert any("time cap, 1e-06 s (hollow" in text.get_text() for text in ax.texts)
    # A larger cap asks again for what was stopped, and for that alone.
    later = run_section(section(3, ("mspm", "qrj1d")), Store(store.path), 60.0, Progress())
    assert not any(r["capped"] for r in later)
    assert len(lines(store.path)) == 9
    # What came to its end holds for any cap it would have met.
    assert len(run_section(section(3, ("qrj1d",)), Store(store.path), 50.0, Progress())) == 3
    assert len(lines(store.path)) == 9


def test_a_method_without_an_answer_is_counted(tmp_path):
    # As many components as asked for are not in data without noise.
    case = problems.Case("too many", "too many", TINY.shape, lambda shape, rng: _too_many(shape, rng))
    failing = Section("x", "x", [case], 2, ("mspm", "nls"))
    records = run_section(failing, Store(tmp_path / "x"), 2.0, Progress())
    assert all("exceeds the numerical rank" in r["failed"] for r in records)
    assert run_section(failing, Store(tmp_path / "x"), 3.0, Progress()) == records
    rows = tables.accuracy_table(records)
    assert [row["no answer"] for row in rows] == ["2 of 2"] * 2
    assert rows[0]["median 1 - Ascore"] is None
    figures.robustness_figure(records, [case], "title", None)


def _too_many(shape, rng):
    sample = problems.paper_case(shape).draw(shape, rng)
    return problems.Sample(sample.data, 8, sample.truth)


@pytest.mark.parametrize("orthogonal", [False, True])
def test_covariances_have_the_distribution_of_rows(orthogonal):
    shape = Shape(p=6, k=4, r=3, density=1.0)
    A, B = problems._truth(shape, np.random.default_rng(0), orthogonal)
    assert orthogonal == np.allclose(A.T @ A, np.eye(3))
    small, large = (
        np.stack([problems._sampled_covariances(A, B, n, np.random.default_rng((n, i))) for i in range(1500)])
        for n in (6, 7)
    )
    truth = (A * B[:, None, :]) @ A.T
    # Var S_jl = (s_jl^2 + s_jj s_ll) / (n - 1), of rows (n = 6) and of Bartlett's factors (n = 7) alike.
    diagonal = np.einsum("kjj->kj", truth)
    variance = truth**2 + diagonal[:, :, None] * diagonal[:, None, :]
    for S, n in ((small, 6), (large, 7)):
        spread = variance / (n - 1)
        assert np.all(np.abs(S.mean(axis=0) - truth) < 5 * np.sqrt(spread / len(S)) + 1e-12)
        assert np.allclose(S.var(axis=0), spread, rtol=0.3, atol=0.02 * spread.max())


def test_the_truth_is_the_same_at_every_number_of_rows():
    cases = problems.sample_size_cases(TINY.shape, (8, 1000))
    few, many = (case.sample(3) for case in cases)
    assert np.array_equal(few.truth, many.truth)
    assert not np.array_equal(few.truth, cases[0].sample(4).truth)
    assert few.data.shape == many.data.shape == (6, 12, 12)


def test_robustness_cases_are_what_they_say():
    shape = Shape(p=12, k=8, r=4, n=3000, density=1.0)
    cases = {case.name: case.sample(0) for case in problems.robustness_cases(shape, off=1)}
    assert {name: s.rank for name, s in cases.items() if s.rank != 4} == {"rank +1": 5, "rank -1": 3}
    assert sorted(len(rows) for rows in cases["unequal sizes"].data)[0] == 300
    assert max(len(rows) for rows in cases["unequal sizes"].data) == 30_000
    plain = np.einsum("kpp->", cases["as in the paper"].data)
    noisy = np.einsum("kpp->", cases["noise 0.3"].data)
    assert noisy - plain == pytest.approx(8 * 12 * 0.09, rel=0.1)
    assert np.einsum("kpp->", cases["heavy tails"].data) == pytest.approx(plain, rel=0.2)
    assert np.linalg.matrix_rank(cases["heavy tails"].data[0], tol=1e-8) == 4


def test_digits_from_files_and_recovery(tiny, tmp_path, capsys):
    """Squares of pixels as digits: three bars at places of their own, on weak noise."""
    rng = np.random.default_rng(0)
    images = np.zeros((90, 6, 6), dtype=np.uint8)
    labels = np.repeat([0, 1, 2], 30)
    for d in range(3):
        images[labels == d, 2 * d] = 250
    np.savez(tmp_path / "mnist.npz", x_train=images, y_train=labels)
    noise = rng.integers(0, 20, (2, 50, 6, 6), dtype=np.uint8)
    np.savez(tmp_path / "backgrounds_28x28.npz", grass=noise[0], cloud=noise[1])
    output = tmp_path / "output"
    command = ["--output", str(output), "--only", "digits", "--data", str(tmp_path), "--trials", "2"]
    assert main([*command, "--methods", "mspm", "pca_stack", "svd"]) == 0
    found = lines(output / "digits_mnist.jsonl")
    assert [(r["method"], r["trial"]) for r in found] == [
        ("choose_rank", 0),
        *((name, trial) for trial in (0, 1) for name in ("mspm", "pca_stack", "svd")),
    ]
    rows = json.loads((output / "digits_mnist.json").read_text())["rows"]
    assert [row["method"] for row in rows] == ["MCPCA (mspm)", "PCA-STACK", "SVD"]
    assert rows[0]["all three"] == "2 of 2"
    assert rows[0]["corr 0"] > 0.9
    assert (output / "digits_mnist_rank.png").exists()
    assert main([*command, "--methods", "mspm"]) == 0
    assert "3 of them already" in capsys.readouterr().err


def test_a_blot_like_every_digit_recovers_none():
    assert digits._recovered(np.array([0.9, 0.9, 0.7]), np.array([4, 4, 2]), [True] * 3) == [False] * 3
    assert digits._recovered(np.array([0.9, 0.9, 0.9]), np.array([4, 5, 2]), [True, False, True]) == [True, False, True]


def accuracy_row(name, error, seconds, off=0):
    row = {"method": LABELS[name], "trials": 4, "median 1 - Ascore": error, "trials above 0.01": off}
    return row | {"median seconds": seconds, "times MCPCA's": seconds / 0.1}


def test_claims_are_answered_by_the_numbers():
    slow = [accuracy_row("mspm", 1e-3, 0.1), accuracy_row("ffdiag", 1e-3, 3.0), accuracy_row("uwedge", 1e-4, 0.01)]
    answers = {row["claim"]: row["holds"] for row in check_claims({"2b": slow})}
    # Methods that the paper does not have do not decide, and what was not run is not answered.
    assert answers == {
        "MCPCA is the fastest of the accurate methods": "yes",
        "No method is more accurate than MCPCA": "yes",
        "FFDIAG is 30 times slower": "yes",
    }
    fast = [slow[0], accuracy_row("ffdiag", 8e-4, 0.05)]
    answers = {row["claim"]: row["holds"] for row in check_claims({"2b": fast})}
    assert set(answers.values()) == {"no"}
    nls = [accuracy_row(name, 1e-3, 0.2, off) for name, off in (("nls", 2), ("nls_svd", 0), ("nls_jennrich", 0))]
    (row,) = (row for row in check_claims({"2b": [*slow, *nls]}) if row["claim"].startswith("NLS"))
    assert row["holds"] == "yes"
    assert "NLS (random start) 2 of 4" in row["our numbers"]
    sizes = [
        {"method": LABELS[name], "N = 10": e, "N = 100": e / 10, "slope": -1.0}
        for name, e in (("mspm", 0.2), ("ffdiag", 0.1))
    ]
    answers = {row["section"]: row["holds"] for row in check_claims({"2c": sizes})}
    assert answers == {"2c": "no"}
    assert [row["holds"] for row in check_claims({"s2c": sizes[:1]})] == ["yes", "yes"]
    found = [
        {"method": LABELS[name], "draws": 5, "all three": f"{n} of 5"}
        for name, n in (("mspm", 5), ("nls", 5), ("nls_svd", 4), ("nls_jennrich", 3), ("ffdiag", 2))
    ]
    assert [row["holds"] for row in check_claims({"digits": found})] == ["yes"]
    found[-1]["all three"] = "3 of 5"
    assert [row["holds"] for row in check_claims({"digits": found})] == ["no"]
    assert check_claims({}) == []


def test_quick_is_smaller_and_compares_the_same():
    quick, full = ({job.section.name: job.section for job in jobs(size, SECTIONS)} for size in (QUICK, FULL))
    assert list(quick) == list(full) == list(SECTIONS)
    assert full["2b"].trials == full["s2b"].trials == 40
    assert full["2b"].cases[0].describe() == {
        "case": "general A",
        "p": 100,
        "k": 50,
        "r": 60,
        "N": 1000,
        "density": 0.2,
    }
    assert [case.x for case in full["2c"].cases][:: len(FULL.sizes) - 1] == [10, 1e5]
    for name in SECTIONS:
        assert quick[name].trials < full[name].trials
        compared = COMPARED_ON_DIGITS if name == "digits" else COMPARED
        assert tuple(quick[name].methods) == tuple(full[name].methods) == compared
    assert QUICK.time_limit < FULL.time_limit
    assert set(COMPARED_ON_DIGITS) == set(LABELS) == set(figures._LOOKS)
    assert set(COMPARED_ON_DIGITS) - set(COMPARED) == {"svd"}


def test_errors_name_the_way_out(tmp_path, capsys, monkeypatch):
    file = tmp_path / "file"
    file.touch()
    for argv, message in [
        (["--output", str(file)], "cannot take the results .it is a file.; choose a directory"),
        (["--data", str(tmp_path), "--only", "2b"], "--data has no effect: it is for the digits, and --only is 2b"),
        (["--data", str(tmp_path / "none")], "is not a folder; pass the one that has mnist.npz"),
        (["--data", str(tmp_path)], "has no mnist.npz and no backgrounds_28x28.npz"),
    ]:
        assert main(argv) == 2
        assert message.replace(".it is a file.", "(it is a file)") in capsys.readouterr().err
    for argv in (["--only", "3z"], ["--trials", "0"], ["--trials", "x"], ["--time-limit", "-1"], ["--methods", "zz"]):
        with pytest.raises(SystemExit):
            main(argv)
        assert "invalid" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["--output", str(tmp_path)]) == 2
    assert 'pip install "mcpca[plot]"' in capsys.readouterr().err


def test_runs_as_a_module_without_importing_matplotlib_first():
    code = (
        "import runpy, sys, mcpca.paper\n"
        "assert 'matplotlib' not in sys.modules\n"
        "sys.argv = ['mcpca.paper', '--help']\n"
        "runpy.run_module('mcpca.paper', run_name='__main__')"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    for option in ("--quick", "--data", "--output", "--only", "--trials", "--time-limit"):
        assert option in shown.stdout


def test_two_runs_on_one_file_keep_each_other_s_lines(tmp_path):
    path = tmp_path / "x.jsonl"
    first, second = Store(path), Store(path)
    first.add({"method": "a", "notes": "a long line"})
    second.add({"method": "b"})
    first.add({"method": "c"})
    assert [r["method"] for r in Store(path).records] == ["a", "b", "c"]
