"""Rows that would count twice are refused: moments merged with themselves, files named twice, files of one content."""

import gzip
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from table_files import frame

import mcpca._covariances.moment_fingerprints
from mcpca import MCPCA, ContextMoments, DuplicateRowsError
from mcpca.cli import main
from mcpca.datasets import make_contexts

MESSAGE = r"These rows are in these moments already: .*allow_duplicates=True"


@pytest.fixture
def data():
    return make_contexts(4, 6, 3, n_samples=40, noise=0.2, random_state=0)


def moments(X, y):
    return ContextMoments().update(X, y)


def test_moments_are_not_merged_with_themselves(data):
    own = moments(data.X, data.y)
    with pytest.raises(DuplicateRowsError, match=r"4 of 4 contexts \(0, 1, 2, 3\)"):
        own.merge(own)
    with pytest.raises(DuplicateRowsError, match=MESSAGE):
        own.update(data.X, data.y)
    assert own.counts.tolist() == [40] * 4
    twice = own.merge(own, allow_duplicates=True)
    assert twice.counts.tolist() == [80] * 4
    assert own.update(data.X, data.y, allow_duplicates=True).counts.tolist() == [80] * 4


def test_rows_are_known_in_any_order_and_chunks(data, rng):
    own = moments(data.X, data.y)
    order = rng.permutation(len(data.y))
    by_chunks = ContextMoments()
    for rows in np.array_split(order, 5):
        by_chunks.update(data.X[rows], data.y[rows])
    for rows in np.array_split(order, 5):
        with pytest.raises(DuplicateRowsError, match=MESSAGE):
            by_chunks.update(data.X[rows], data.y[rows])
    columns = rng.permutation(6)
    names = [f"f{j}" for j in range(6)]
    turned = moments(pd.DataFrame(data.X, columns=names)[[names[j] for j in columns]], data.y)
    for other in (by_chunks, moments(data.X[order], data.y[order]), turned):
        with pytest.raises(DuplicateRowsError, match="4 of 4 contexts"):
            own.merge(other)


def test_parts_are_known_after_merging_saving_and_loading(data, tmp_path):
    a, b, c = (moments(data.X[i::3], data.y[i::3]) for i in range(3))
    a.merge(b).save(tmp_path / "ab.npz")
    both = ContextMoments.load(tmp_path / "ab.npz")
    assert both.merge(c).counts.sum() == len(data.y)
    for part, other in ((both, a), (b, both), (both, b.merge(c)), (both.merge(c), c)):
        with pytest.raises(DuplicateRowsError, match=MESSAGE):
            part.merge(other)
    # One context alone, beside others that are new.
    some = moments(data.X[::3], np.where(data.y[::3] == 2, 2, data.y[::3] + 10))
    with pytest.raises(DuplicateRowsError, match=r"1 of 4 contexts \(2\)"):
        both.merge(some)


def test_files_without_fingerprints_load_and_are_known_by_what_they_hold(data, tmp_path, monkeypatch):
    own = moments(data.X, data.y)
    written = mcpca._covariances.moments.write_file

    def as_before(path, kind, arrays, header):
        written(path, kind, arrays, {name: value for name, value in header.items() if name != "fingerprints"})

    monkeypatch.setattr(mcpca._covariances.moments, "write_file", as_before)
    own.save(tmp_path / "old.npz")
    old = ContextMoments.load(tmp_path / "old.npz")
    np.testing.assert_array_equal(old.scatters, own.scatters)
    assert len(old.fingerprints) == 0
    with pytest.raises(DuplicateRowsError, match="4 of 4 contexts"):
        old.merge(old)


def test_wrong_fingerprints_are_named(data, tmp_path, monkeypatch):
    monkeypatch.setattr(mcpca._covariances.moments, "fingerprints_to_json", lambda marks: ["what"])
    moments(data.X, data.y).save(tmp_path / "x.npz")
    with pytest.raises(ValueError, match="fingerprints of rows are not what ContextMoments"):
        ContextMoments.load(tmp_path / "x.npz")


def test_few_whole_numbers_may_agree_by_chance(rng):
    """Answers of yes and no, row by row or two at a time, come again without being the same."""
    X, y = rng.integers(0, 2, size=(300, 3)), np.repeat(["a"], 300)
    total = ContextMoments()
    for i in range(0, 300, 2):
        total.update(X[i : i + 2], y[i : i + 2])
    single = ContextMoments()
    for i in range(50):
        single.update(X[i : i + 1] + 0.5, y[i : i + 1])
    assert int(total.counts[0]) == 300
    assert int(single.counts[0]) == 50
    counts = moments(rng.poisson(20, size=(50, 5)), np.repeat(["a"], 50))
    with pytest.raises(DuplicateRowsError, match=MESSAGE):
        counts.merge(counts)


def test_other_rows_are_other_rows(data, rng):
    """The last digit that is measured makes other rows; so does a row more."""
    own = moments(data.X, data.y)
    noisy = moments(data.X + 1e-3 * rng.normal(size=data.X.shape), data.y)
    assert own.merge(noisy).counts.tolist() == [80] * 4
    assert own.merge(moments(data.X[1:], np.roll(data.y, 40)[1:])).counts.sum() == 319


def test_only_the_last_fingerprints_are_kept(monkeypatch, rng):
    monkeypatch.setattr(mcpca._covariances.moment_fingerprints, "MOST_FINGERPRINTS", 8)
    total = ContextMoments()
    for _ in range(20):
        total.update(rng.normal(size=(5, 3)), ["a"] * 5)
    assert len(total.fingerprints) == 8


def test_partial_fit_refuses_a_chunk_that_comes_again(data):
    model = MCPCA(3, random_state=0).partial_fit(data.X, data.y)
    with pytest.raises(DuplicateRowsError, match=MESSAGE):
        model.partial_fit(data.X, data.y)
    assert model.moments_.counts.tolist() == [40] * 4
    assert model.partial_fit(data.X, data.y, allow_duplicates=True).moments_.counts.tolist() == [80] * 4


# Files -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "ok.csv"
    frame().drop(columns="cell").to_csv(path, index=False)
    return path


def names_of_the_same(table):
    """The same file by another name, a copy, and the same content packed."""
    (table.parent / "link.csv").symlink_to(table)
    shutil.copy(table, table.parent / "copy.csv")
    (table.parent / "packed.csv.gz").write_bytes(gzip.compress(table.read_bytes()))
    return {
        str(table): "is given twice",
        str(table.parent / "x" / ".." / "ok.csv"): "is .*ok.csv again",
        str(table.parent / "link.csv"): "is .*ok.csv again",
        str(table.parent / "copy.csv"): "has the same content as .*ok.csv",
        str(table.parent / "packed.csv.gz"): "has the same content as .*ok.csv",
    }


@pytest.mark.parametrize("context", [["-c", "group"], []])
def test_files_of_the_same_rows_are_refused(table, tmp_path, capsys, context):
    (tmp_path / "x").mkdir()
    out = tmp_path / "out"
    for other, message in names_of_the_same(table).items():
        drop = [] if context else ["--drop", "group"]
        for words in (["fit", "--rank", "2"], ["moments"], ["rank"]):
            assert main([words[0], str(table), other, *context, *drop, *words[1:], "-o", str(out)]) == 3
            err = capsys.readouterr().err
            assert re.search(message, err), (words, err)
            assert "its rows would count twice" in err
            assert not out.exists()


def test_duplicates_on_request(table, tmp_path, capsys):
    shutil.copy(table, tmp_path / "copy.csv")
    fit = ["fit", str(table), str(tmp_path / "copy.csv"), "-c", "group", "-r", "2", "-q", "--no-report", "--no-picture"]
    assert main([*fit, "--allow-duplicates", "-o", str(tmp_path / "out")]) == 0
    assert json.loads((tmp_path / "out" / "diagnostics.json").read_text())["rows"] == 240
    capsys.readouterr()
    assert main(["repeat", str(tmp_path / "out"), "-o", str(tmp_path / "again"), "-q"]) == 0


def test_sites_are_not_merged_twice(table, tmp_path, capsys):
    site = tmp_path / "a.moments"
    assert main(["moments", str(table), "-c", "group", "-o", str(site), "-q"]) == 0
    other = frame().iloc[::2].drop(columns="cell")
    other.to_csv(tmp_path / "half.csv", index=False)
    assert main(["moments", str(tmp_path / "half.csv"), "-c", "group", "-o", str(tmp_path / "b.moments"), "-q"]) == 0
    assert main(["merge", str(site), str(tmp_path / "b.moments"), "-o", str(tmp_path / "ab.moments")]) == 0
    # The same rows in another order are another file.
    frame().iloc[::-1].drop(columns="cell").to_csv(tmp_path / "turned.csv", index=False)
    assert main(["moments", str(tmp_path / "turned.csv"), "-c", "group", "-o", str(tmp_path / "t.moments"), "-q"]) == 0
    out = tmp_path / "all.moments"
    capsys.readouterr()
    for first, second, message in (
        ("a", "a", "is given twice"),
        ("ab", "a", "These rows are in these moments already"),
        ("ab", "t", "These rows are in these moments already"),
    ):
        words = ["merge", str(tmp_path / f"{first}.moments"), str(tmp_path / f"{second}.moments"), "-o", str(out)]
        assert main(words) == 3
        err = capsys.readouterr().err
        assert message in err
        assert "--allow-duplicates" in err
        assert not out.exists()
    assert main([*words, "--allow-duplicates"]) == 0
    assert "sums over 300 rows" in capsys.readouterr().out
