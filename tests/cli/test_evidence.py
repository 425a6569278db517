"""Is it real: halves that are fitted anyway, ``--replicability`` and ``--bootstrap``, in every combination."""

import json

import numpy as np
import pandas as pd
import pytest
from reading_reports import content
from table_files import FEATURES, exact_csv, frame, planted

from mcpca import MCPCA
from mcpca.cli import main
from mcpca.cli._evidence import FILE, Evidence, read_evidence, words_of_evidence
from mcpca.datasets import make_contexts

CSV = ["--context", "group", "--index", "cell"]
PLAIN = ["--no-report", "--no-picture", "--no-scores", "-q"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("inputs") / "plain.csv"
    frame().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def model():
    return MCPCA(2, random_state=0).fit(*planted())


def fit(table, out, *options, code=0):
    assert main(["fit", str(table), *CSV, "-o", str(out), *PLAIN, *options]) == code
    return out


def test_halves_of_the_context_test_tell_what_comes_back(table, model, tmp_path, capsys):
    out = fit(table, tmp_path / "out", "--rank", "2")
    test = model.context_dependence(*planted(), random_state=0)
    halves = test.replicability
    assert halves.cosines.shape == (4, 2)
    written = exact_csv(out / "replicability.csv", index_col=0)
    np.testing.assert_array_equal(written["mean_cosine"], halves.agreement)
    assert written.index.tolist() == ["MCPC 1", "MCPC 2"]
    assert written["replicates"].tolist() == halves.replicates.tolist()
    told = f"{halves.n_replicating} of 2 come back in halves of the rows (|cos| > 0.9, mean of 4 splits)"
    assert told in capsys.readouterr().out
    diagnostics = json.loads((out / "diagnostics.json").read_text())
    assert diagnostics["replicability"]["splits"] == 4
    assert diagnostics["bootstrap"] is None
    run = json.loads((out / "run.json").read_text())
    assert run["evidence"] == {"replicability": "the halves of the test of contexts", "bootstrap": None}
    assert run["options"]["replicability"] is None
    assert not (out / "loading_intervals.csv").exists()


def test_cosines_are_those_of_halves_that_were_planted_apart():
    """An axis that only noise has does not come back, whatever the others do."""
    made = make_contexts(6, 12, 3, n_samples=100, noise=0.5, random_state=0)
    test = MCPCA(6, random_state=0).fit(made.X, made.y).context_dependence(made.X, made.y, random_state=0)
    halves = test.replicability
    assert 1 <= halves.n_replicating <= 4
    some = test.of_components(halves.replicates)
    np.testing.assert_array_equal(some.replicability.agreement, halves.agreement[halves.replicates])
    again = type(test).from_json(test.to_json())
    np.testing.assert_array_equal(again.replicability.cosines, halves.cosines)
    older = json.loads(test.to_json())
    del older["cosines"]
    assert type(test).from_json(json.dumps(older)).replicability is None


def test_what_is_asked_for_is_what_the_library_gives(table, model, tmp_path, capsys):
    out = fit(table, tmp_path / "out", "--rank", "2", "--replicability", "--bootstrap", "12")
    X, y = planted()
    halves = model.replicability(X, y, random_state=0)
    written = exact_csv(out / "replicability.csv", index_col=0)
    np.testing.assert_array_equal(written["mean_cosine"], halves.agreement)
    np.testing.assert_array_equal(written["least"], halves.cosines.min(axis=0))
    errors = model.bootstrap(X, y, 12, random_state=0)
    intervals = exact_csv(out / "loading_intervals.csv")
    for name, values in (
        ("lower", errors.lower),
        ("upper", errors.upper),
        ("standard_error", errors.standard_errors),
        ("loading", model.corrected_loadings_),
    ):
        wide = intervals.pivot(index="context", columns="component", values=name)
        np.testing.assert_array_equal(wide.to_numpy(), values)
    assert (intervals["lower"] <= intervals["upper"]).all()
    told = capsys.readouterr().out
    assert "mean of 10 splits" in told
    assert "12 resamples: 95% of them stay within " in told
    run = json.loads((out / "run.json").read_text())
    assert run["evidence"] == {"replicability": "splits of its own", "bootstrap": 12}


def test_repeat_repeats_it(table, tmp_path, capsys):
    out = fit(table, tmp_path / "out", "--rank", "2", "--replicability", "--bootstrap", "5")
    assert main(["repeat", str(out), "-o", str(tmp_path / "again"), "-q"]) == 0
    assert "to the last bit" in capsys.readouterr().out
    for name in ("replicability.csv", "loading_intervals.csv", FILE):
        assert (tmp_path / "again" / name).read_bytes() == (out / name).read_bytes()


@pytest.mark.parametrize(
    ("options", "files"),
    [
        (["--rank", "2", "--no-replicability"], set()),
        (["--rank", "2", "--no-context-test"], set()),
        (["--rank", "2", "--no-context-test", "--bootstrap", "0"], set()),
        (["--rank", "2", "--no-context-test", "--bootstrap", "3"], {"loading_intervals.csv", FILE}),
        (["--rank", "2", "--no-context-test", "--replicability"], {"replicability.csv", FILE}),
        ([], {"replicability.csv", FILE}),
    ],
)
def test_what_is_written_follows_from_the_options(table, tmp_path, options, files):
    out = fit(table, tmp_path / "out", *options)
    names = {path.name for path in out.iterdir()}
    assert names & {"replicability.csv", "loading_intervals.csv", FILE} == files


def test_a_chosen_rank_rests_on_halves_already(table, tmp_path):
    X, y = planted()
    chosen = MCPCA(random_state=0).fit(X, y).rank_choice_.replicability
    out = fit(table, tmp_path / "out")
    written = exact_csv(out / "replicability.csv", index_col=0)
    np.testing.assert_array_equal(written["mean_cosine"], chosen.agreement)
    assert json.loads((out / "run.json").read_text())["evidence"]["replicability"] == "the choice of the rank"
    # Ten splits are ten splits.
    out = fit(table, tmp_path / "more", "--replicability")
    assert json.loads((out / "diagnostics.json").read_text())["replicability"]["splits"] == 10


WITH = {
    "groups": ["--groups", "donor", "--drop", "run", "--drop", "age"],
    "groups, batch, covariates": ["--groups", "donor", "--batch", "run", "--covariates", "age"],
    "robust": ["--drop", "donor", "--drop", "run", "--drop", "age", "--robust"],
    "cross-fit": ["--drop", "donor", "--drop", "run", "--drop", "age", "--cross-fit", "2"],
    "ml": ["--drop", "donor", "--drop", "run", "--drop", "age", "--solver", "ml"],
    "auto": ["--drop", "donor", "--drop", "run", "--drop", "age", "--solver", "auto"],
    "normalized": ["--drop", "donor", "--drop", "run", "--drop", "age", "--normalize", "log1p"],
}


@pytest.fixture(scope="module")
def annotated(tmp_path_factory):
    """Rows with donors, runs and ages, and counts with them."""
    folder = tmp_path_factory.mktemp("annotated")
    rng = np.random.default_rng(0)
    made = make_contexts(4, 6, 2, n_samples=100, noise=0.2, random_state=1)
    n = len(made.y)
    others = {
        "group": [f"c{y}" for y in made.y],
        "cell": [f"cell{i}" for i in range(n)],
        "donor": [f"d{i}" for i in rng.integers(0, 8, n)],
        "run": [f"r{i}" for i in rng.integers(0, 2, n)],
        "age": rng.normal(50, 9, n).round(2),
    }
    pd.DataFrame(made.X, columns=FEATURES).assign(**others).to_csv(folder / "rows.csv", index=False)
    counts = rng.poisson(np.exp(np.clip(made.X + 2, -2, 5)))
    pd.DataFrame(counts, columns=FEATURES).assign(**others).to_csv(folder / "counts.csv", index=False)
    return folder


@pytest.mark.parametrize("case", WITH)
def test_every_combination(annotated, tmp_path, capsys, case):
    file = annotated / ("counts.csv" if case == "normalized" else "rows.csv")
    command = [*WITH[case], "--rank", "2", "--replicability", "--bootstrap", "4"]
    out = fit(file, tmp_path / "out", *command)
    told = capsys.readouterr().out
    by = "groups" if "--groups" in command else "rows"
    assert f" of 2 come back in halves of the {by} (|cos| > 0.9" in told
    intervals = pd.read_csv(out / "loading_intervals.csv")
    assert len(intervals) == 4 * 2
    assert np.isfinite(intervals[["lower", "upper", "standard_error"]].to_numpy()).all()
    assert (intervals["standard_error"] > 0).any()
    assert (intervals["lower"] <= intervals["loading"] + 1e-9).mean() > 0.8


def test_groups_are_split_together(annotated, tmp_path):
    table = pd.read_csv(annotated / "rows.csv")
    model = MCPCA(2, random_state=0).fit(table[FEATURES].to_numpy(), table["group"].to_numpy())
    halves = model.replicability(
        table[FEATURES].to_numpy(), table["group"].to_numpy(), groups=table["donor"].to_numpy(), random_state=0
    )
    # Without anything else that splits rows: the option has an effect.
    out = fit(
        annotated / "rows.csv",
        tmp_path / "out",
        *(*WITH["groups"], "--rank", "2", "--no-context-test", "--replicability"),
    )
    written = exact_csv(out / "replicability.csv", index_col=0)
    np.testing.assert_allclose(written["mean_cosine"], halves.agreement, rtol=1e-14)
    fit(annotated / "rows.csv", tmp_path / "none", *WITH["groups"], "--rank", "2", "--no-context-test", code=2)


def test_streamed_rows_and_moments_say_what_is_not_done(annotated, tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.standard_normal((8000, 20)) * np.linspace(3, 1, 20), columns=[f"g{j}" for j in range(20)])
    rows["group"] = np.arange(8000) % 3
    rows.to_parquet(tmp_path / "many.parquet")
    command = ["fit", str(tmp_path / "many.parquet"), "-c", "group", "--rank", "1", "--max-memory", "1", *PLAIN[:-1]]
    assert main([*command, "-o", str(tmp_path / "a")]) == 0
    said = capsys.readouterr()
    assert "was not looked at: rows are streamed, and each of 20 fits would read them again" in said.err
    assert not (tmp_path / "a" / FILE).exists()
    assert "not looked at" in json.loads((tmp_path / "a" / "run.json").read_text())["evidence"]["replicability"]
    assert main([*command, "-o", str(tmp_path / "b"), "--replicability", "--bootstrap", "2"]) == 0
    assert "1 of 1 come back in halves" in capsys.readouterr().out
    assert (tmp_path / "b" / "loading_intervals.csv").exists()
    moments = ["moments", str(annotated / "rows.csv"), *CSV, "--drop", "donor", "--drop", "run", "--drop", "age"]
    assert main([*moments, "-o", str(tmp_path / "x.moments"), "-q"]) == 0
    command = ["fit", str(tmp_path / "x.moments"), "--rank", "2", *PLAIN[:-1]]
    assert main([*command, "-o", str(tmp_path / "c")]) == 0
    assert "was not looked at: moments have no rows to split." in capsys.readouterr().err
    for option, name in ((["--replicability"], "--replicability"), (["--bootstrap", "9"], "--bootstrap 9")):
        assert main([*command, "-o", str(tmp_path / "d"), *option]) == 2
        assert f"{name} fits parts of the rows, and moments do not have them" in capsys.readouterr().err


def test_one_resample_has_no_spread(table, tmp_path, capsys):
    fit(table, tmp_path / "out", "--rank", "2", "--bootstrap", "1", code=2)
    assert "--bootstrap: 1 resample has no spread; pass some hundreds, or 0" in capsys.readouterr().err


def test_rows_that_are_too_few_for_halves_do_not_lose_the_fit(tmp_path, capsys):
    """Of three rows there are no two halves of two; the fit is there, and a warning says what is not."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.standard_normal((63, 4)), columns=list("abcd"))
    rows["group"] = ["x"] * 30 + ["y"] * 30 + ["z"] * 3
    rows["cell"] = [f"cell{i}" for i in range(63)]
    rows.to_csv(tmp_path / "few.csv", index=False)
    out = fit(tmp_path / "few.csv", tmp_path / "out", "--rank", "2", "--replicability")
    said = capsys.readouterr().err
    assert "--replicability could not be done, and the rest is as it would be without it: 1 of 3 contexts" in said
    assert not (out / "replicability.csv").exists()
    assert (out / "model.mcpca").exists()


def test_the_report_shows_it_also_later(table, tmp_path):
    pytest.importorskip("plotly")
    out = tmp_path / "out"
    command = ["fit", str(table), *CSV, "--rank", "2", "-o", str(out), "--replicability", "--bootstrap", "5", "-q"]
    assert main([*command, "--no-picture"]) == 0
    first = content((out / "report.html").read_text(encoding="utf-8"))
    assert first["ofMcpcs"]["replicability"]["by"] == "rows"
    assert "5 bootstrap resamples of the rows" in first["intervals"]["words"]
    assert main(["report", str(out), "-o", str(tmp_path / "later.html"), "-q"]) == 0
    later = content((tmp_path / "later.html").read_text(encoding="utf-8"))
    assert later["ofMcpcs"]["replicability"] == first["ofMcpcs"]["replicability"]
    assert later["ofMcpcs"]["angles"] == first["ofMcpcs"]["angles"]
    assert later["intervals"] == first["intervals"]
    # Intervals are of corrected loadings, and are not drawn about others.
    assert main(["report", str(out), "-o", str(tmp_path / "fitted.html"), "--as-fitted", "-q"]) == 0
    assert content((tmp_path / "fitted.html").read_text(encoding="utf-8"))["intervals"] is None


def test_a_file_that_is_not_ours_is_no_evidence(model, tmp_path):
    assert read_evidence(tmp_path, model) == Evidence()
    for text in ("", "[1]", "{", '{"replicability": {"cosines": [[0.5, 0.5, 0.5]]}}', '{"bootstrap": {"lower": 3}}'):
        (tmp_path / FILE).write_text(text)
        assert read_evidence(tmp_path, model) == Evidence()
    assert words_of_evidence(model, Evidence()) == []
