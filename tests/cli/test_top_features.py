"""Features at the poles: the table, the lines for a terminal, the JSON; and the picture, which is scaled as the map."""

import json
import unicodedata

import numpy as np
import pandas as pd
import pytest
from table_files import FEATURES, exact_csv, frame, planted

from mcpca import MCPCA
from mcpca.cli import main
from mcpca.cli._reporting import write_loadings_picture
from mcpca.cli._top_features import feature_columns, feature_lines, top_features
from mcpca.poles import N_FEATURES, percentiles, poles
from mcpca.report._render import render

CSV = ["--context", "group", "--index", "cell", "--rank", "2"]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    frame().to_csv(folder / "plain.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def fitted(inputs, tmp_path_factory):
    out = tmp_path_factory.mktemp("results") / "fit"
    assert main(["fit", str(inputs / "plain.csv"), *CSV, "-o", str(out), "--no-report", "-q"]) == 0
    return out


def wide_model(p=60, r=3, k=5, names=None, contexts=None):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((p, r))
    X = [(rng.standard_normal((4 * p, r)) * rng.gamma(1, 1, r)) @ A.T for _ in range(k)]
    X = [x + 0.1 * rng.standard_normal(x.shape) for x in X]
    frames = [pd.DataFrame(x, columns=names) for x in X]
    return MCPCA(r, random_state=0).fit(dict(zip(contexts or [f"c{i}" for i in range(k)], frames, strict=True)))


def columns_of(text):
    """Return how many columns of a terminal a line takes."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in ("W", "F") else 1 for c in text
    )


def test_percentiles_count_what_is_smaller():
    rng = np.random.default_rng(1)
    A = rng.integers(-4, 5, (30, 3)) / 4.0  # with many ties
    twin = [[100 * sum(abs(other) < abs(a) for other in column) / 30 for a in column] for column in A.T]
    np.testing.assert_allclose(percentiles(A), np.transpose(twin), atol=1e-12)
    np.testing.assert_array_equal(percentiles(-A * [1, 2, 3]), percentiles(A))  # neither sign nor scale matters
    assert percentiles(np.zeros((5, 2))).max() == 0
    with pytest.raises(ValueError, match=r"components has shape \(3,\); a matrix"):
        percentiles([1.0, 2.0, 3.0])


def test_the_table_has_the_poles_of_every_mcpc(fitted):
    table = exact_csv(fitted / "features.csv")
    assert table.columns.tolist() == ["MCPC", "pole", "rank", "feature", "weight", "percentile"]
    X, y = planted()
    A = MCPCA(2, random_state=0).fit(X, y).components_
    expected = percentiles(A)
    for j in range(2):
        ends = poles(A, FEATURES, j, N_FEATURES)
        for sign, end in (("positive", ends.positive), ("negative", ends.negative)):
            part = table[(table["MCPC"] == f"MCPC {j + 1}") & (table["pole"] == sign)]
            assert part["feature"].tolist() == end.names
            assert part["rank"].tolist() == list(range(1, len(end.names) + 1))
            np.testing.assert_array_equal(part["weight"], end.values)
            np.testing.assert_allclose(part["percentile"], expected[end.indices, j], atol=1e-12)
    assert set(table["MCPC"]) == {"MCPC 1", "MCPC 2"}


def test_the_table_has_as_many_features_as_the_report():
    pytest.importorskip("plotly")
    model = wide_model()
    table = feature_columns(model, top_features(model, {}))
    counts = pd.DataFrame(table).groupby(["MCPC", "pole"]).size()
    A = model.components_
    for j in range(3):
        assert counts[f"MCPC {j + 1}", "positive"] == min(N_FEATURES, int((A[:, j] > 0).sum()))
        assert counts[f"MCPC {j + 1}", "negative"] == min(N_FEATURES, int((A[:, j] < 0).sum()))
    assert counts.max() == N_FEATURES
    assert render.__wrapped__.__kwdefaults__["n_features"] == N_FEATURES


def test_stdout_has_a_line_for_each_and_json_the_names(inputs, tmp_path, capsys):
    command = ["fit", str(inputs / "plain.csv"), *CSV, "--no-report", "--no-picture"]
    assert main([*command, "-o", str(tmp_path / "a")]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("MCPC ")]
    assert [line[:6] for line in lines] == ["MCPC 1", "MCPC 2"]
    table = pd.read_csv(tmp_path / "a" / "features.csv")
    told = json.loads((tmp_path / "a" / "diagnostics.json").read_text())["variance_explained_by_component"]
    for line in lines:
        of_mcpc = table[table["MCPC"] == line[:6]]
        plus = of_mcpc[of_mcpc["pole"] == "positive"]["feature"].tolist()
        minus = of_mcpc[of_mcpc["pole"] == "negative"]["feature"].tolist()
        assert line.endswith(f"+ {', '.join(plus)}  - {', '.join(minus)}")
        assert f" {told[line[:6]]:.0%}  in " in line
        assert " of 4 contexts  " in line
    assert main([*command, "-o", str(tmp_path / "b"), "--json", "-q"]) == 0
    features = json.loads(capsys.readouterr().out)["features"]
    assert [one["component"] for one in features] == ["MCPC 1", "MCPC 2"]
    for one in features:
        part = table[table["MCPC"] == one["component"]]
        assert one["positive"] == part[part["pole"] == "positive"]["feature"].tolist()
        assert one["negative"] == part[part["pole"] == "negative"]["feature"].tolist()
        assert 1 <= one["carrying_contexts"] <= 4


@pytest.mark.parametrize(
    "name",
    [
        "g{}",
        "a feature with a name that is too long for a line, {}",
        "基因表达的名字很长的特征{}",
        "é" * 30 + "{}",
    ],
)
def test_lines_fit_into_100_columns(name):
    model = wide_model(names=[name.format(j) for j in range(60)])
    text = feature_lines(top_features(model, {"MCPC 1": 0.5}), "features.csv")
    for line in text.splitlines():
        assert columns_of(line) <= 100
        assert "+ " in line
        assert " - " in line
        assert line.count(", ...") == 2  # there are more at both poles
    assert columns_of(max(text.splitlines(), key=columns_of)) > 60  # the room is used


def test_many_mcpcs_are_counted_and_control_characters_do_not_reach_the_terminal():
    model = wide_model(p=30, r=25, k=40, names=[f"a\x1b[31m{j}\n" for j in range(30)])
    lines = feature_lines(top_features(model, {}), "features.parquet").splitlines()
    assert len(lines) == 21
    assert lines[-1] == "... and 5 more in features.parquet"
    assert "\x1b" not in "".join(lines)
    assert "a?[31m" in lines[0]


def test_a_pole_without_features_is_left_out():
    model = MCPCA(1, random_state=0).fit_covariances(np.stack([np.diag([2.0, 0.0]), np.diag([1.0, 0.0])]))
    (line,) = feature_lines(top_features(model, {}), "features.csv").splitlines()
    assert line.endswith("in 2 of 2 contexts  + 1")
    assert len(feature_columns(model, top_features(model, {}))["feature"]) == 1


def test_repeat_compares_the_features(inputs, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["fit", str(inputs / "plain.csv"), *CSV, "-o", str(out), "--no-report", "--no-picture", "-q"]
    assert main(command) == 0
    run = json.loads((out / "run.json").read_text())
    assert {"features.csv", "replicability.csv"} <= set(run["outputs"])
    assert main(["repeat", str(out), "-o", str(tmp_path / "again"), "-q"]) == 0
    assert "to the last bit" in capsys.readouterr().out
    for name in ("features.csv", "replicability.csv"):
        assert (tmp_path / "again" / name).read_bytes() == (out / name).read_bytes()
        changed = {**run, "outputs": {**run["outputs"], name: "0" * 64}}
        (out / "run.json").write_text(json.dumps(changed))
        assert main(["repeat", str(out), "-o", str(tmp_path / "again"), "--force", "-q"]) == 0
        assert f"differ from those of {out}: {name}" in capsys.readouterr().err


def test_the_picture_is_scaled_as_the_map(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    model = wide_model(k=3, r=2)
    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **options: drawn.append(figure))
    assert write_loadings_picture(model, tmp_path / "loadings.png")
    (ax, *_) = drawn[0].axes
    B = model.corrected_loadings_
    np.testing.assert_allclose(ax.images[0].get_array(), B / B.max(axis=0), atol=1e-12)
    assert ax.child_axes[0].get_ylabel() == "corrected loading\n/ largest of its MCPC"
