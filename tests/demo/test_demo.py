"""The demo writes its pictures and says what the model says."""

import copy
import re
import subprocess
import sys
import warnings

import matplotlib

matplotlib.use("Agg")

import matplotlib.image
import matplotlib.pyplot as plt
import numpy as np
import pytest
from reading_reports import content

from mcpca import MCPCA, IdentifiabilityWarning, demo
from mcpca.datasets import load_digit_contexts

PICTURES = {"samples.png", "mcpcs.png", "loadings.png", "overview.png"}


def read_tables(text, contexts):
    """The numbers behind each context's name, blocks of columns joined."""
    rows = {name: [] for name in contexts}
    for line in text.splitlines():
        for name in contexts:
            if re.fullmatch(rf"{name}(\s+\d+\.\d{{4}})+", line):
                rows[name] += map(float, line.removeprefix(name).split())
    return np.array(list(rows.values()))


def test_demo_writes_pictures_and_prints_the_loadings(tmp_path, capsys):
    output = tmp_path / "new" / "folder"
    assert demo.main(["--output", str(output), "--n-samples", "400", "--n-components", "7", "--seed", "3"]) == 0
    printed = capsys.readouterr()
    assert {path.name for path in output.iterdir()} == {*PICTURES, "report.html"}
    assert printed.out.endswith(f"\nOpen {output / 'report.html'}\n")
    for name in PICTURES:
        assert str(output / name) in printed.out
        height, width = matplotlib.image.imread(output / name).shape[:2]
        assert 200 < height < width < 2500
    assert plt.get_fignums() == []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)
        model = MCPCA(7, random_state=3).fit(load_digit_contexts(400, random_state=3).contexts)
    np.testing.assert_allclose(read_tables(printed.out, model.contexts_), model.loadings_, rtol=0, atol=5.1e-5)
    # Not a terminal: one plain line for each finished stage.
    assert "\r" not in printed.err
    assert "components: 7/7\n" in printed.err


def test_table_of_many_columns_goes_on_below(fitted):
    _, model = fitted
    wide = copy.copy(model)
    wide.n_components_, wide.loadings_ = 24, np.tile(model.loadings_, 4)[:, :24]
    table = demo.loadings_table(wide)
    np.testing.assert_allclose(read_tables(table, wide.contexts_), wide.loadings_, rtol=0, atol=5.1e-5)
    assert max(map(len, table.splitlines())) <= 100
    assert re.findall(r"MCPC (\d+)", table) == [str(j + 1) for j in range(24)]


@pytest.fixture(scope="module")
def fitted():
    data = load_digit_contexts(3000, random_state=0)
    return data, MCPCA(demo.N_COMPONENTS, random_state=0).fit(data.contexts)


def test_words_come_from_the_model(fitted):
    data, model = fitted
    matches = demo.match_digits(model, data)
    text = demo.describe_matches(model, matches)
    for digit, match in enumerate(matches):
        r = [abs(np.corrcoef(a, data.mean_digits[digit])[0, 1]) for a in model.components_.T]
        assert match.component == np.argmax(r)
        assert match.correlation == pytest.approx(max(r))
        shares = model.loadings_[:, match.component] / model.loadings_[:, match.component].sum()
        listed = ", ".join(f'{s:.0%} in "{c}"' for s, c in zip(shares, model.contexts_, strict=True))
        assert f"digit {digit}: MCPC {match.component + 1}, |correlation| {max(r):.3f}; {listed}." in text
    assert [match.planted for match in matches] == [{1}, {2}, {1, 2}]


def test_digits_are_found_where_they_were_planted(fitted):
    data, model = fitted
    matches = demo.match_digits(model, data)
    assert all(match.agrees for match in matches)
    assert min(match.correlation for match in matches) > 0.75
    assert len({match.component for match in matches}) == 3
    assert "All 3 vary in just the contexts in which the digit was planted" in demo.describe_matches(model, matches)


def test_words_say_when_digits_are_not_found(fitted):
    data, _ = fitted
    model = MCPCA(1, random_state=0).fit(data.contexts)
    text = demo.describe_matches(model, demo.match_digits(model, data))
    assert "0 of 3 vary in just" in text
    assert 'Digit 0 was planted in "0 and 2"; MCPC 1 varies in "background" and "0 and 2" and "1 and 2".' in text
    assert "MCPC 1 matches digits 0, 1, 2: at this rank they are not separated." in text


def test_proportional_loadings_are_told_in_a_plain_line(monkeypatch, tmp_path, capsys):
    fit = MCPCA.fit

    def fit_proportional(self, X, y=None):
        fit(self, X, y)
        self.loadings_[:, 1] = 2 * self.loadings_[:, 0]
        self.loadings_[:, 2] = 0
        warnings.warn("two columns", IdentifiabilityWarning, stacklevel=2)
        return self

    monkeypatch.setattr(MCPCA, "fit", fit_proportional)
    assert demo.main(["--output", str(tmp_path), "--n-samples", "200", "--n-components", "3"]) == 0
    assert "nearly proportional loadings: MCPC 1 and MCPC 2; MCPC 3 (no loadings)." in capsys.readouterr().out


def test_other_warnings_reach_the_caller(monkeypatch, fitted):
    def fit_and_warn(self, X, y=None):
        warnings.warn("something else", RuntimeWarning, stacklevel=2)
        return self

    monkeypatch.setattr(MCPCA, "fit", fit_and_warn)
    with pytest.warns(RuntimeWarning, match="something else"):
        _, proportional = demo._fit(fitted[0], 3, 0)
    assert not proportional


def test_output_that_is_a_file_is_refused(tmp_path, capsys):
    path = tmp_path / "taken"
    path.write_text("mine")
    assert demo.main(["--output", str(path)]) == 2
    assert demo.main(["--output", str(path / "below")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"--output {path} cannot take the pictures (it is a file); choose a directory." in printed.err
    assert path.read_text() == "mine"


def test_output_without_permission_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    assert demo.main(["--output", str(tmp_path)]) == 2
    assert "no permission to write" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["mcpcs.png", "report.html"])
def test_file_that_cannot_be_written_is_reported(name, tmp_path, capsys):
    (tmp_path / name).mkdir()
    assert demo.main(["--output", str(tmp_path), "--n-samples", "200", "--n-components", "3"]) == 2
    assert f"{tmp_path / name} cannot be written" in capsys.readouterr().err


def test_report_holds_the_fitted_model(tmp_path, capsys):
    assert demo.main(["--output", str(tmp_path), "--n-samples", "300", "--n-components", "4", "--seed", "1"]) == 0
    shown = content((tmp_path / "report.html").read_text(encoding="utf-8"))
    np.testing.assert_allclose(shown["loadings"], read_tables(capsys.readouterr().out, shown["contexts"]), atol=1e-4)
    assert len(shown["ofMcpcs"]["replicability"]["cosines"][0]) == 3
    assert len(shown["ofMcpcs"]["dependence"]["p"]) == 4
    assert [sample["n"] for sample in shown["rows"]["contexts"]] == [300] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--n-components", "65"], "1 <= n_components <= 64"),
        (["--n-samples", "1"], "n_samples >= 2"),
        (["--seed", "-1"], "random_state=-1 is negative"),
    ],
)
def test_bad_numbers_end_without_a_traceback(arguments, message, tmp_path, capsys):
    assert demo.main(["--output", str(tmp_path), *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("module", ["matplotlib", "PIL", "plotly"])
def test_missing_packages_name_the_extra(module, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    assert demo.main(["--output", str(tmp_path)]) == 2
    assert 'pip install "mcpca[demo]"' in capsys.readouterr().err


def test_demo_runs_as_a_module(tmp_path):
    (tmp_path / "taken").touch()
    command = [sys.executable, "-m", "mcpca.demo", "--output", str(tmp_path / "taken")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("python -m mcpca.demo: --output")
    assert done.stderr.count("\n") == 1
