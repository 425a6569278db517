"""Files and folders appear whole or not at all, and nothing is replaced unasked."""

import os
import stat

import pytest

from mcpca._utils.atomic_files import (
    TargetExistsError,
    parents_made,
    remove_leftovers,
    replace_file,
    staged_file,
    staged_folder,
)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("permissions", [0o600, 0o444, 0o640])
def test_a_replaced_file_keeps_its_permissions_also_while_it_is_written(tmp_path, permissions):
    target = tmp_path / "model"
    target.write_text("old")
    target.chmod(permissions)
    with staged_file(target, replace=True) as staging:
        assert mode(staging) == permissions | stat.S_IWUSR
        staging.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert mode(target) == permissions
    replace_file(target, lambda file: file.write(b"newer"))
    assert target.read_text() == "newer"
    assert mode(target) == permissions
    assert names(tmp_path) == ["model"]


@pytest.mark.parametrize("replace", [True, False])
def test_an_error_leaves_the_old_file_and_no_other(tmp_path, replace):
    target = tmp_path / "model"

    def fail():
        with staged_file(target, replace=replace) as staging:
            staging.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert names(tmp_path) == []
    target.write_text("old")
    with pytest.raises(KeyboardInterrupt):
        fail()
    assert names(tmp_path) == ["model"]
    assert target.read_text() == "old"


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path, monkeypatch, links):
    def no_link(*args):
        raise PermissionError("no links here")

    if not links:
        monkeypatch.setattr(os, "link", no_link)
    target = tmp_path / "table"

    def write(others):
        with staged_file(target, replace=False) as staging:
            staging.write_text("ours")
            if others:
                target.write_text("theirs")

    with pytest.raises(TargetExistsError):
        write(others=True)
    assert target.read_text() == "theirs"
    target.unlink()
    write(others=False)
    assert target.read_text() == "ours"
    assert names(tmp_path) == ["table"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with staged_file(tmp_path / "link", replace=True) as staging:
        staging.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def fill(target, replace, *, error=None, others=False):
    with staged_folder(target, replace=replace) as staging:
        assert mode(staging) == 0o700
        (staging / "a").write_text("new")
        if others:
            target.mkdir(exist_ok=True)
            (target / "a").write_text("theirs")
        if error is not None:
            raise error


def test_folders_are_published_replaced_and_kept(tmp_path):
    target = tmp_path / "out"
    with pytest.raises(ValueError, match="half"):
        fill(target, False, error=ValueError("half"))
    assert names(tmp_path) == []
    with pytest.raises(TargetExistsError):
        fill(target, False, others=True)
    assert (target / "a").read_text() == "theirs"
    with pytest.raises(ValueError, match="half"):
        fill(target, True, error=ValueError("half"))
    assert (target / "a").read_text() == "theirs"
    fill(target, True)
    assert (target / "a").read_text() == "new"
    (target / "a").unlink()
    fill(target, False)  # into an empty folder
    assert (target / "a").read_text() == "new"
    umask = os.umask(0)
    os.umask(umask)
    assert mode(target) == 0o777 & ~umask
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("renames", [1, 2])
def test_a_folder_is_put_back_if_it_cannot_be_swapped(tmp_path, monkeypatch, renames):
    """Interrupted before the old folder is out of the way, and before the new one is in its place."""
    target = tmp_path / "out"
    target.mkdir()
    (target / "a").write_text("old")
    rename, calls = os.rename, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == renames:
            raise KeyboardInterrupt
        rename(*args)

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fill(target, True)
    assert (target / "a").read_text() == "old"
    assert names(tmp_path) == ["out"]


def test_folders_above_are_removed_only_if_the_body_fails_and_they_are_empty(tmp_path):
    def make(*parts, error=None, others=None):
        with parents_made(tmp_path.joinpath(*parts)):
            if others is not None:
                (tmp_path / others).write_text("theirs")
            if error is not None:
                raise error

    with pytest.raises(ValueError, match="no"):
        make("a", "b", "c", error=ValueError("no"))
    assert names(tmp_path) == []
    with pytest.raises(ValueError, match="no"):
        make("a", "b", "c", error=ValueError("no"), others="a/file")
    assert names(tmp_path / "a") == ["file"]
    make("a", "b", "c")
    assert names(tmp_path / "a") == ["b", "file"]


def test_leftovers_of_a_killed_process_are_removed_and_no_other_files(tmp_path):
    for name in (".x.0123abcd.tmp", ".x.lock", ".y.0123abcd.tmp", "x"):
        (tmp_path / name).write_text("")
    remove_leftovers(tmp_path / "x")
    assert names(tmp_path) == [".x.lock", ".y.0123abcd.tmp", "x"]
