"""Files: whole or not at all, no pickle, everything comes back."""

import io
import json
import os
import re
import stat
import zipfile
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest

from mcpca import MCPCA
from mcpca.cli._outputs import new_file, new_folder
from mcpca.datasets import make_contexts


@pytest.fixture(scope="module")
def data():
    return make_contexts(4, 6, 2, n_samples=40, noise=0.1, random_state=0)


@pytest.fixture
def model(data):
    frame = pd.DataFrame(data.X, columns=list("abcdef"))
    labels = np.array(["north", "süd", "east", "west"])[data.y]
    return MCPCA(n_components=None, rank_range=range(1, 3), random_state=3).fit(frame, labels)


def assert_same_model(left, right):
    assert left.get_params() == {**right.get_params(), "rank_range": left.rank_range}
    a, b = vars(left), vars(right)
    assert {n for n in a if n.endswith("_")} == {n for n in b if n.endswith("_")}
    for name in (n for n in a if n.endswith("_") and n != "rank_choice_"):
        if isinstance(b[name], np.ndarray):
            np.testing.assert_array_equal(a[name], b[name])
            assert a[name].dtype == b[name].dtype
        else:
            assert a[name] == b[name]


def test_round_trip(model, data, tmp_path):
    path = tmp_path / "model.mcpca"
    model.save(path)
    copy = MCPCA.load(path)
    assert_same_model(copy, model)
    assert copy.rank_choice_.reason == model.rank_choice_.reason
    np.testing.assert_array_equal(copy.rank_choice_.scores, model.rank_choice_.scores)
    np.testing.assert_array_equal(copy.rank_choice_.unsettled, model.rank_choice_.unsettled)
    assert copy.rank_choice_.matching == model.rank_choice_.matching
    frame = pd.DataFrame(data.X, columns=list("abcdef"))
    np.testing.assert_array_equal(copy.transform(frame), model.transform(frame))
    assert copy.reconstruction_error() == model.reconstruction_error()
    assert copy.likelihood_loss() == model.likelihood_loss()
    assert os.listdir(tmp_path) == ["model.mcpca"]


def test_a_model_of_covariances_round_trips(data, tmp_path):
    S = np.stack([np.cov(data.X[data.y == i], rowvar=False) for i in range(4)]).astype(np.float32)
    model = MCPCA(2, random_state=0).fit_covariances(S)
    model.save(tmp_path / "m")
    assert_same_model(MCPCA.load(str(tmp_path / "m")), model)


def test_objects_in_parameters_are_left_out(data, tmp_path):
    model = MCPCA(2, random_state=np.random.default_rng(0), verbose=lambda *_: None).fit(data.X, data.y)
    model.save(tmp_path / "m")
    copy = MCPCA.load(tmp_path / "m")
    assert copy.random_state is None
    assert copy.verbose is None
    copy.fit(data.X, data.y)


def test_no_code_can_run_from_a_file(model, tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "boom"),)

    path = tmp_path / "bomb"
    with open(path, "wb") as file:
        np.savez(file, header=np.array([Bomb()], dtype=object), components_=np.array([Bomb()], dtype=object))
    with pytest.raises(ValueError, match="not a complete MCPCA model"):
        MCPCA.load(path)
    assert not (tmp_path / "boom").exists()


def test_truncated_and_foreign_files(model, tmp_path):
    path = tmp_path / "model"
    model.save(path)
    content = path.read_bytes()
    for cut in (0, 1, 10, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:cut])
        with pytest.raises(ValueError, match=rf"not a complete MCPCA model \({cut} bytes"):
            MCPCA.load(path)
    # Every byte of an array counts; others are those of the container, such as time stamps.
    of_arrays = np.zeros(len(content), dtype=bool)
    with zipfile.ZipFile(io.BytesIO(content)) as container:
        for member in container.infolist():
            # The lengths of the name and of what follows it are in the last four of a header's 30 bytes.
            lengths = np.frombuffer(content, "<u2", count=2, offset=member.header_offset + 26)
            first = member.header_offset + 30 + int(lengths.sum())
            of_arrays[first : first + member.compress_size] = True
    assert of_arrays.mean() > 0.5
    for position in range(0, len(content), 41):
        flipped = bytearray(content)
        flipped[position] ^= 0xFF
        path.write_bytes(bytes(flipped))
        if of_arrays[position]:
            with pytest.raises(ValueError, match=re.escape(str(path))):
                MCPCA.load(path)
            continue
        with suppress(ValueError):
            loaded = MCPCA.load(path)
            np.testing.assert_array_equal(loaded.components_, model.components_)
            np.testing.assert_array_equal(loaded.loadings_, model.loadings_)
    foreign = {"text": b"hello", "npz": _npz(a=np.ones(3)), "npy": _npy(np.ones(3)), "zip": _zip()}
    for name, content in foreign.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=r"truncated or another kind of file; pass what MCPCA.save wrote"):
            MCPCA.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        MCPCA.load(tmp_path / "missing")


def test_newer_and_incomplete_files(model, tmp_path):
    header = {"format": "mcpca-model", "version": 99}
    (tmp_path / "new").write_bytes(_npz(header=np.frombuffer(json.dumps(header).encode(), np.uint8)))
    with pytest.raises(ValueError, match="format version 99 and this mcpca reads up to 1; upgrade"):
        MCPCA.load(tmp_path / "new")
    header["version"] = 1
    (tmp_path / "part").write_bytes(_npz(header=np.frombuffer(json.dumps(header).encode(), np.uint8)))
    with pytest.raises(ValueError, match=r"lacks .*components_"):
        MCPCA.load(tmp_path / "part")


def test_a_crash_while_writing_leaves_the_old_file(model, data, tmp_path, monkeypatch):
    path = tmp_path / "model"
    model.save(path)
    old = path.read_bytes()

    def crash(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", crash)
    with pytest.raises(OSError, match="disk full"):
        MCPCA(1).fit(data.X, data.y).save(path)
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["model"]


def test_a_link_stays_a_link(model, tmp_path):
    """What it points to is replaced, as a whole, in its own folder."""
    (tmp_path / "store").mkdir()
    target, link = tmp_path / "store" / "model", tmp_path / "latest"
    link.symlink_to(target)
    for _ in range(2):  # a link to nothing yet, and to a file
        model.save(link)
        assert link.is_symlink()
        assert not target.is_symlink()
        assert_same_model(MCPCA.load(target), model)
    assert sorted(os.listdir(tmp_path)) == ["latest", "store"]
    assert os.listdir(tmp_path / "store") == ["model"]
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere" / "model")
    with pytest.raises(FileNotFoundError, match=r"is a link to .*the folder .*nowhere' does not exist; create it"):
        model.save(tmp_path / "lost")


def test_new_files_get_the_permissions_of_new_files(model, tmp_path, monkeypatch):
    """The umask is one for all threads of a process: it is not set, not even for a moment. Old files keep theirs."""
    old = os.umask(0o027)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "umask", lambda mask: pytest.fail("the umask was set"))
            model.save(tmp_path / "new")
            assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
            (tmp_path / "new").chmod(0o600)
            model.save(tmp_path / "new")
            assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600
            with new_file(tmp_path / "table", force=False) as file:
                file.write_text("x")
            with new_folder(tmp_path / "out", force=False) as folder:
                (folder / "table").write_text("x")
    finally:
        os.umask(old)
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("table", "out", "out/table")}
    assert modes == {"table": 0o640, "out": 0o750, "out/table": 0o640}


def test_tables_are_written_through_links(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "table")
    with new_file(tmp_path / "link", force=False) as file:
        file.write_text("x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "table").read_text() == "x"


def test_missing_folder_and_odd_names(model, data, tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist; create it first"):
        model.save(tmp_path / "no" / "model")
    blocks = {1j: data.X[data.y == 0], 2j: data.X[data.y == 1]}
    with pytest.raises(TypeError, match="X has the label 1j, a complex, which cannot name a context"):
        MCPCA(2).fit(blocks).save(tmp_path / "m")
    assert os.listdir(tmp_path) == []


def test_names_keep_their_types(data, tmp_path):
    labels = np.array(["a", 1, 2.5, "d"], dtype=object)[data.y]
    MCPCA(2, random_state=0).fit(data.X, labels).save(tmp_path / "m")
    assert MCPCA.load(tmp_path / "m").contexts_.tolist() == [2.5, 1, "a", "d"]


def _npz(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def _zip():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("readme.txt", "hello")
    return buffer.getvalue()
