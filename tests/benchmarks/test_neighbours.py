"""The comparison with neighbours: its measures on planted rows, and its way with processes that are missing or fail."""

import importlib
import json
import os
import sys
import textwrap

import numpy as np
import pytest
from pages import ROOT

from mcpca.datasets import make_contexts

# Answers by what it is asked for; the real ones need environments of their own.
FAKE = """
import sys
import numpy as np

method, source, target = sys.argv[1:]
data = np.load(source)
if method == "rise":
    raise MemoryError("no room for this tensor")
X, y, r = data["X"], data["y"], int(data["r"])
V = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:r].T
C = np.array([np.cov((X[y == i] @ V).T) for i in range(y.max() + 1)])
formula = {} if method == "cnmf" else {"covariances": C}
np.savez(target, axes=V, basis=V, **formula, scores=X @ V, converged=method != "cnmf", steps=1, warned="",
         version=f"{method} 1.0", wall=2.0, cpu=3.0 if method == "cnmf" else 1.5, before=10**6, peak=3 * 10**6)
"""


@pytest.fixture(scope="module")
def neighbours():
    """Scripts of the folder import each other by name."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield importlib.import_module("neighbours")
    sys.path.remove(str(ROOT / "benchmarks"))


@pytest.fixture
def fake(neighbours, tmp_path, monkeypatch):
    worker = tmp_path / "worker.py"
    worker.write_text(textwrap.dedent(FAKE))
    monkeypatch.setattr(neighbours, "WORKER", worker)
    monkeypatch.setattr(neighbours, "problems", lambda data, planted: [neighbours.Problem("planted", 3, draw, planted)])
    return neighbours


def draw(seed):
    from neighbours import Rows

    data = make_contexts(3, 8, 3, n_samples=40, noise=0.2, random_state=seed)
    return Rows(data.X, data.y, counts=np.abs(data.X), axes=data.components)


def test_halves_are_halves_of_every_context_with_their_counts(neighbours):
    first, second = neighbours.halves(draw(0), 0)
    assert np.bincount(first.y).tolist() == np.bincount(second.y).tolist() == [20, 20, 20]
    assert np.array_equal(np.abs(first.X), first.counts)
    together = np.vstack([first.X, second.X])
    assert np.array_equal(np.sort(together, axis=0), np.sort(draw(0).X, axis=0))
    assert not np.array_equal(first.X, neighbours.halves(draw(0), 1)[0].X)


def test_off_diagonal_error_is_that_of_its_formula(neighbours):
    rows = draw(0)
    rng = np.random.default_rng(0)
    basis, C = rng.standard_normal((8, 3)), np.array([np.cov(rng.standard_normal((3, 9))) for _ in range(3)])
    above = below = 0.0
    for i in range(3):
        S = np.cov(rows.X[rows.y == i].T)
        M = basis @ C[i] @ basis.T
        for a in range(8):
            for b in range(8):
                if a != b:
                    above += (S[a, b] - M[a, b]) ** 2
                    below += S[a, b] ** 2
    half = neighbours.covariances(rows, 3)
    assert neighbours.off_diagonal_error(half, basis, C) == pytest.approx(above / below)
    assert neighbours.off_diagonal_error(half, basis, 0 * C) == pytest.approx(1)
    own = neighbours.by_context(rows.X, rows.y)
    assert neighbours.off_diagonal_error(half, np.eye(8), own) == pytest.approx(0, abs=1e-12)


def test_agreement_is_blind_to_order_and_sign_and_sees_axes_that_are_gone(neighbours):
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((8, 4)))[0]
    Q[-1] = 0
    Q /= np.linalg.norm(Q, axis=0)
    assert neighbours.agreement(Q, -2 * Q[:, ::-1]) == pytest.approx((1, 1))
    gone = Q.copy()
    gone[:, 1] = 0
    mean, share = neighbours.agreement(Q, gone)
    assert (mean, share) == pytest.approx((0.75, 0.75))


def test_recovery_is_of_axes_or_of_scores_within_contexts(neighbours):
    rows = draw(0)
    assert neighbours.recovery(rows, {"axes": -3 * rows.axes[:, ::-1]}) == pytest.approx(1)
    Z = np.random.default_rng(1).standard_normal((len(rows.y), 3))
    planted = neighbours.Rows(rows.X, rows.y, scores=Z)
    moved = 2 * Z[:, [2, 0, 1]] + 100.0 * rows.y[:, None]
    assert neighbours.recovery(planted, {"scores": moved}) == pytest.approx(1)
    assert neighbours.recovery(planted, {"scores": np.random.default_rng(2).standard_normal(Z.shape)}) < 0.4


def test_chance_is_the_recovery_of_those_who_know_the_span_alone(neighbours):
    rows = draw(0)
    assert 0.5 < neighbours.chance(rows, 3, 0) < 0.9
    one = neighbours.Rows(rows.X, rows.y, axes=rows.axes[:, :1])
    assert neighbours.chance(one, 1, 0) == pytest.approx(1)  # a span of one axis is that axis
    assert neighbours.Rows(rows.X, rows.y).planted == {}


def test_runs_are_tabled_kept_and_not_repeated(fake, tmp_path, capsys):
    kept = tmp_path / "runs.json"
    given = ["--planted", "--splits", "2", "--methods", "mcpca", "rise", "mofaflex", "cnmf", "--keep", str(kept)]
    given += ["--environment", f"cnmf={sys.executable}", f"rise={sys.executable}"]
    fake.main(given)
    out, err = capsys.readouterr()
    assert "mofaflex: left out, no --environment mofaflex=PYTHON" in err
    assert "failed: planted, rise, split 1: MemoryError: no room for this tensor" in out
    lines = {line.split(" | ")[1]: line.strip("| ").split(" | ") for line in out.splitlines() if " | " in line}
    head = lines["method"]
    cnmf = dict(zip(head, lines["cnmf"], strict=True))
    assert (cnmf["splits"], cnmf["cpu"], cnmf["wall"], cnmf["memory"], cnmf["not converged"]) == (
        "2",
        "2",
        "1",
        "2",
        "4",
    )
    mcpca = dict(zip(head, lines["mcpca"], strict=True))
    assert mcpca["error by scores"] == mcpca["error by formula"] == cnmf["error by scores"]
    assert cnmf["error by formula"] == "-"
    assert "own covariance" in lines
    assert "cnmf 1.0; mcpca 1.0" in out
    runs = json.loads(kept.read_text())
    assert len(runs) == 2 * (4 + 1 + 2)
    fake.WORKER.unlink()  # nothing is left to be measured but what failed
    fake.main([*given[:4], "mcpca", "cnmf", *given[8:]])
    assert capsys.readouterr().out.split("failed")[0].strip() == out.split("failed")[0].strip()
    assert json.loads(kept.read_text()) == runs


def test_an_environment_needs_a_known_name_and_a_python(neighbours):
    with pytest.raises(SystemExit, match="scvi=python: the name is one of rise, mofaflex, cnmf"):
        neighbours.environments(["scvi=python"])
    with pytest.raises(SystemExit, match=r"cnmf=: nothing is no file; pass the environment's python"):
        neighbours.environments(["cnmf="])
    assert neighbours.environments([f"rise={os.path.relpath(sys.executable)}"]) == {"rise": sys.executable}


@pytest.mark.parametrize("name", ["uncorrelated scores", "correlated scores", "shifted means", "sparse axes"])
def test_planted_rows_have_the_covariances_they_are_said_to_have(neighbours, name):
    rows = neighbours.PLANTED[name](0)
    parts = [rows.X[rows.y == i] for i in range(neighbours.K)]
    S = np.array([np.cov(part.T) for part in parts]) - 0.04 * np.eye(neighbours.P)
    inverse = np.linalg.pinv(rows.axes)
    C = inverse @ S @ inverse.T
    scales = np.sqrt(np.maximum(np.einsum("krr->kr", C), 1e-12))
    strong = scales > 0.3
    correlations = C / scales[:, :, None] / scales[:, None, :]
    both = strong[:, :, None] & strong[:, None, :] & ~np.eye(neighbours.R, dtype=bool)
    expected = 0.7 if name == "correlated scores" else 0.0
    assert abs(correlations[both].mean() - expected) < 0.06
    means = np.array([part.mean(axis=0) for part in parts])
    moved = np.linalg.norm(means - means.mean(axis=0), axis=1)
    assert (moved.min() > 1) == (name == "shifted means")
    assert ((rows.axes == 0).mean() > 0.5) == (name == "sparse axes")


def test_planted_counts_are_used_as_planted(neighbours):
    rows = neighbours.programmes(0)
    assert (rows.counts >= 0).all()
    assert np.array_equal(rows.counts, rows.counts.round())
    assert rows.scores.sum(axis=1) == pytest.approx(1)
    assert np.sort(rows.scores, axis=1)[:, -1].mean() > 0.7  # most of a cell is one programme
    assert neighbours.suits("cnmf", rows)
    assert not neighbours.suits("cnmf", neighbours.uncorrelated(0))


def test_the_worker_of_this_package_answers_in_the_units_of_the_rows(neighbours):
    rows = neighbours.uncorrelated(0)
    answer = neighbours.fit("mcpca", sys.executable, rows, neighbours.R, 0)
    assert answer["converged"]
    assert answer["version"].startswith("mcpca ")
    assert answer["peak"] >= answer["before"] > 0
    assert neighbours.recovery(rows, answer) > 0.98
    S, C = neighbours.covariances(rows, neighbours.R), neighbours.by_context(answer["scores"], rows.y)
    assert neighbours.off_diagonal_error(S, answer["basis"], answer["covariances"]) < 0.05
    assert neighbours.off_diagonal_error(S, answer["basis"], C) < 0.05
    assert np.einsum("krr->kr", C) == pytest.approx(np.einsum("krr->kr", answer["covariances"]), abs=0.15)
