"""A checkpoint resumes its own fit and no other: rows, labels, parameters and code are compared in full."""

import os
import shutil
import subprocess
import sys
import textwrap
import zipfile
from dataclasses import replace
from importlib.metadata import version

import h5py
import numpy as np
import pytest
import scipy.sparse
from test_checkpoint import RANK, Blocks, by_passes, problem, same  # noqa: F401  (a fixture)

import mcpca
from mcpca import MCPCA
from mcpca._covariances import checkpoint
from mcpca._covariances import code_digest as code_digests
from mcpca._covariances.checkpoint import Checkpoint
from mcpca._covariances.code_digest import code_digest
from mcpca._covariances.fit_identity import digest, identity_of
from mcpca._data.contexts import read_contexts
from mcpca._utils.array_files import write_file
from mcpca.datasets import make_contexts

ANOTHER = r"belongs to another fit: it differs in {}.*another path, or delete the file"


def stop():
    raise KeyboardInterrupt


def interrupted(X, y, path, when, **parameters):
    with pytest.raises(KeyboardInterrupt):
        MCPCA(RANK, **{"random_state": 0, "tol": 1e-7, **parameters}).fit(Blocks(X, when, stop), y, checkpoint=path)
    assert path.exists()


@pytest.mark.parametrize("when", [21, 40, 52])
def test_rows_that_have_changed_are_refused_before_any_product(by_passes, tmp_path, when):  # noqa: F811
    """Within the first pass, after it, and within later ones; wherever the rows are."""
    data = problem()
    path = tmp_path / "fit.ckpt"
    interrupted(data.X, data.y, path, when)
    content = path.read_bytes()
    other = data.X.copy()
    other[150:] *= 3
    stages = []
    model = MCPCA(RANK, tol=1e-7, random_state=0, verbose=lambda *progress: stages.append(progress[0]))
    with pytest.raises(ValueError, match=ANOTHER.format(r"the rows \(context 1, context 2")):
        model.fit(Blocks(other), data.y, checkpoint=path)
    assert not any(stage.startswith("pass 2") for stage in stages)
    assert path.read_bytes() == content
    resumed = MCPCA(RANK, tol=1e-7, random_state=0).fit(Blocks(data.X), data.y, checkpoint=path)
    same(resumed, MCPCA(RANK, tol=1e-7, random_state=0).fit(Blocks(data.X), data.y))


@pytest.mark.parametrize("form", ["array", "sparse", "hdf5", "memory map"])
def test_ten_thousand_rows_tripled_from_row_six_thousand_on(by_passes, tmp_path, form):  # noqa: F811
    data = make_contexts(5, 12, RANK, n_samples=2000, noise=0.3, random_state=0)
    path = tmp_path / "fit.ckpt"
    order = np.random.default_rng(0).permutation(len(data.X))
    X, y = data.X[order], data.y[order]
    changed = X.copy()
    changed[6000:] *= 3
    with h5py.File(tmp_path / "rows.h5", "w") as file:

        def stored(rows, name):
            if form == "hdf5":
                return file.create_dataset(name, data=rows, chunks=(100, 12))
            if form == "memory map":
                np.save(tmp_path / f"{name}.npy", rows)
                return np.load(tmp_path / f"{name}.npy", mmap_mode="r")
            return scipy.sparse.csr_array(rows) if form == "sparse" else rows

        def tell(stage, done, total):
            if stage.startswith("pass 2"):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            MCPCA(RANK, tol=1e-7, random_state=0, verbose=tell).fit(stored(X, "X"), y, checkpoint=path)
        with pytest.raises(
            ValueError, match=ANOTHER.format(r"the rows \(context 0, context 1, context 2 and 2 more\)")
        ):
            MCPCA(RANK, tol=1e-7, random_state=0).fit(stored(changed, "changed"), y, checkpoint=path)


def test_rows_that_were_not_read_yet_may_change(by_passes, tmp_path):  # noqa: F811
    """A first pass that was under way has seen nothing of them: the answer is that of the rows as they are now."""
    data = problem()
    path = tmp_path / "fit.ckpt"
    interrupted(data.X, data.y, path, 13)
    other = data.X.copy()
    other[350:] *= 3
    resumed = MCPCA(RANK, tol=1e-7, random_state=0).fit(Blocks(other), data.y, checkpoint=path)
    same(resumed, MCPCA(RANK, tol=1e-7, random_state=0).fit(Blocks(other), data.y))


@pytest.mark.parametrize("blocks", [3, 5])
def test_the_same_rows_in_other_blocks_are_told(by_passes, tmp_path, blocks):  # noqa: F811
    data = problem()
    path = tmp_path / "fit.ckpt"
    interrupted(data.X, data.y, path, 13)
    with pytest.raises(ValueError, match=ANOTHER.format("the blocks that rows come in")):
        MCPCA(RANK, tol=1e-7, random_state=0).fit(lambda: iter(np.array_split(data.X, blocks)), data.y, checkpoint=path)
    with pytest.raises(ValueError, match=ANOTHER.format("the form of X")):
        MCPCA(RANK, tol=1e-7, random_state=0).fit(data.X, data.y, checkpoint=path)


def test_parameters_are_compared_in_full(by_passes, tmp_path):  # noqa: F811
    """Not by what is printed of a long array."""
    data = make_contexts(1200, 6, RANK, n_samples=3, noise=0.3, random_state=0)
    path = tmp_path / "fit.ckpt"
    weights = np.ones(1200)
    interrupted(data.X, data.y, path, 150, context_weights=weights)
    other = weights.copy()
    other[600] = 1.0001
    assert repr(other) == repr(weights)
    with pytest.raises(ValueError, match=ANOTHER.format(r"the parameters \(context_weights, max_iter\)")):
        MCPCA(RANK, tol=1e-7, random_state=0, context_weights=other, max_iter=7).fit(
            Blocks(data.X), data.y, checkpoint=path
        )


def test_digests_tell_values_apart():
    rng = np.random.default_rng
    alike = [
        (rng(0), rng(0)),
        (np.random.RandomState(3), np.random.RandomState(3)),
        (np.int64(3), 3),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (np.arange(4)[::-1], np.array([3, 2, 1, 0])),
        (range(3), [0, 1, 2]),
    ]
    for one, other in alike:
        assert digest(one) == digest(other)
    later = rng(0)
    later.random()
    values = [rng(0), rng(1), later, np.random.RandomState(0), 0, 0.0, "0", None, False, [0], {"0": 0}, {0: 0}]
    values += [np.zeros(1), np.zeros(2), np.zeros((1, 1)), np.zeros(1, np.float32), np.array([0, "0"], dtype=object)]
    assert len({repr(digest(value)) for value in values}) == len(values)


@pytest.mark.parametrize("kind", [np.random.default_rng, np.random.RandomState])
def test_a_generator_is_known_by_its_state(by_passes, tmp_path, kind):  # noqa: F811
    data = problem()
    path = tmp_path / "fit.ckpt"
    options = {"solver": "lsq"}
    expected = MCPCA(RANK, tol=1e-7, random_state=kind(7), **options).fit(Blocks(data.X), data.y)
    generator = kind(7)
    interrupted(data.X, data.y, path, 90, random_state=generator, **options)
    assert digest(generator) == digest(kind(7))  # where it was, so that the next call is the same fit
    with pytest.raises(ValueError, match=ANOTHER.format(r"the parameters \(random_state\)")):
        MCPCA(RANK, tol=1e-7, random_state=kind(8), **options).fit(Blocks(data.X), data.y, checkpoint=path)
    content = path.read_bytes()
    same(MCPCA(RANK, tol=1e-7, random_state=kind(7), **options).fit(Blocks(data.X), data.y, checkpoint=path), expected)
    path.write_bytes(content)
    same(
        MCPCA(RANK, tol=1e-7, random_state=generator, **options).fit(Blocks(data.X), data.y, checkpoint=path), expected
    )


def test_a_second_fit_on_the_same_path_is_refused(by_passes, tmp_path):  # noqa: F811
    data = problem()
    path = tmp_path / "fit.ckpt"
    refused = []

    def second():
        with pytest.raises(ValueError, match=rf"is in use by another fit \(process {os.getpid()}\); wait for it"):
            MCPCA(RANK, tol=1e-7, random_state=0).fit(data.X, data.y, checkpoint=path)
        refused.append(sorted(p.name for p in tmp_path.iterdir()))

    model = MCPCA(RANK, tol=1e-7, random_state=0).fit(Blocks(data.X, 40, second), data.y, checkpoint=path)
    assert refused == [[".fit.ckpt.lock", "fit.ckpt"]]
    same(model, MCPCA(RANK, tol=1e-7, random_state=0).fit(Blocks(data.X), data.y))
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_fit_left_is_no_obstacle_and_goes(by_passes, tmp_path):  # noqa: F811
    """Its lock goes with the process, and half-written files with the next fit; files of others stay."""
    path = tmp_path / "fit.ckpt"
    script = f"""
        import os, signal
        from pathlib import Path
        from mcpca._covariances.checkpoint import Checkpoint
        from mcpca._utils import atomic_files
        saved = Checkpoint({str(path)!r}, {{}}).__enter__()
        atomic_files.file_beside(Path({str(path)!r}))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=environment, check=False)
    left = sorted(p.name for p in tmp_path.iterdir())
    assert left[0].endswith(".tmp")
    assert left[1] == ".fit.ckpt.lock"
    others = [".fit.ckpt.b.12345678.tmp", ".fit.ckpt.tmp", "fit.ckpt.12345678.tmp"]
    for name in others:
        (tmp_path / name).touch()
    data = problem()
    MCPCA(RANK, tol=1e-7, random_state=0).fit(data.X, data.y, checkpoint=path)
    assert sorted(p.name for p in tmp_path.iterdir()) == others


def test_a_link_to_a_checkpoint_is_followed(by_passes, tmp_path):  # noqa: F811
    data = problem()
    path = tmp_path / "fit.ckpt"
    link = tmp_path / "link"
    link.symlink_to(path)
    interrupted(data.X, data.y, link, 40)
    assert link.is_symlink()
    with Checkpoint(path, {}), pytest.raises(ValueError, match="is in use by another fit"):
        MCPCA(RANK, tol=1e-7, random_state=0).fit(Blocks(data.X), data.y, checkpoint=link)
    MCPCA(RANK, tol=1e-7, random_state=0).fit(Blocks(data.X), data.y, checkpoint=link)
    assert [p.name for p in tmp_path.iterdir()] == ["link"]


def test_a_folder_that_takes_no_files(tmp_path):
    data = problem()
    with pytest.raises(
        OSError, match=r"checkpoint=.*no file can be created in its folder \(File name too long\); pass another"
    ):
        MCPCA(RANK).fit(data.X, data.y, checkpoint=tmp_path / ("x" * 250))


def header_of(**changed):
    header = {"code": {"digest": code_digest(), "version": "0"}, "identity": {}, "seed": 1, "under_way": None}
    return header | {"finished": [{"stage": "means", "shapes": [[3]]}]} | changed


def under_way(**changed):
    return {"stage": "basis", "shapes": [[2]], "groups": 1, "rows": 7} | changed


@pytest.mark.parametrize(
    ("arrays", "header", "message"),
    [
        ({}, header_of(), "header lists pass_0_0, which the file lacks"),
        ({"pass_0_0": np.full(3, np.nan)}, header_of(), "array 'pass_0_0' has values that are not finite numbers"),
        ({"pass_0_0": np.array(list("abc"))}, header_of(), "array 'pass_0_0' has values that are not finite numbers"),
        ({"pass_0_0": np.ones(2)}, header_of(), r"array 'pass_0_0' has shape \(2,\), and the header says \(3,\)"),
        ({"pass_0_0": np.ones(3), "marks": np.ones(2)}, header_of(), "marks are float64"),
        ({"pass_0_0": np.ones(3)}, header_of(under_way=under_way()), "header lists sum_0, which the file lacks"),
        (
            {"pass_0_0": np.ones(3), "sum_0": np.ones(1)},
            header_of(under_way=under_way()),
            r"array 'sum_0' has shape \(1,\), and the header says \(2,\)",
        ),
        ({}, header_of(finished=[{"stage": "means", "shapes": [[]] * 10**6}]), "does not list the passes"),
        ({}, header_of(finished=None), "does not list the passes"),
        ({}, header_of(finished=[{"stage": None, "shapes": []}]), "does not list the passes"),
        ({}, header_of(finished=[{"stage": "means", "shapes": [[-1]]}]), "does not list the passes"),
        ({}, header_of(finished=[{"stage": "means", "shapes": 3}]), "does not list the passes"),
        ({}, header_of(under_way=under_way(groups=-1)), "does not list the passes"),
        ({}, header_of(under_way={}), "does not list the passes"),
        ({}, header_of(finished=[], seed="1"), "does not identify a fit"),
        ({}, header_of(finished=[], identity=[]), "does not identify a fit"),
    ],
)
def test_damaged_checkpoints_are_refused_by_what_is_wrong(tmp_path, arrays, header, message):
    path = tmp_path / "fit.ckpt"
    write_file(path, checkpoint.FORMAT, arrays, header)
    with pytest.raises(ValueError, match=f"is damaged: its .*{message}.*delete the file"), Checkpoint(path, {}):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["fit.ckpt"]


@pytest.mark.parametrize(
    ("stage", "shape", "message"),
    [
        ("means", 3, r"pass 1, 'means', has shapes \[\(1,\)\] where \[\(3,\)\] are needed"),
        ("core", 1, "pass 1 is 'means' on file and 'core' in this fit"),
    ],
)
def test_finished_passes_that_do_not_fit_are_refused(tmp_path, stage, shape, message):
    """Also where NumPy would stretch them to the shape that is needed."""
    path = tmp_path / "fit.ckpt"
    finished = [{"stage": "means", "shapes": [[1]]}]
    write_file(path, checkpoint.FORMAT, {"pass_0_0": np.ones(1)}, header_of(finished=finished))
    with (
        Checkpoint(path, {}) as saved,
        pytest.raises(
            ValueError, match=f"does not match: {message}.*Delete the file to start afresh, or pass another path"
        ),
    ):
        saved.recall(stage, [np.zeros(shape)])


@pytest.mark.parametrize(
    ("stage", "shape", "message"),
    [
        ("basis", 3, r"pass 2, 'basis', has shapes \[\(2,\)\] where \[\(3,\)\] are needed"),
        ("core", 2, "pass 2 is 'basis' on file and 'core' in this fit"),
    ],
)
def test_a_pass_under_way_that_does_not_fit_is_refused(tmp_path, stage, shape, message):
    path = tmp_path / "fit.ckpt"
    arrays = {"pass_0_0": np.ones(3), "sum_0": np.ones(2)}
    write_file(path, checkpoint.FORMAT, arrays, header_of(under_way=under_way()))
    with Checkpoint(path, {}) as saved:
        assert saved.recall("means", [np.zeros(3)])
        with pytest.raises(
            ValueError, match=f"does not match: {message}.*Delete the file to start afresh, or pass another"
        ):
            saved.resume(stage, [np.zeros(shape)])
    with Checkpoint(path, {}) as saved:
        saved.recall("means", [np.zeros(3)])
        totals = [np.zeros(2)]
        assert saved.resume("basis", totals) == (1, 7)
        np.testing.assert_array_equal(totals[0], 1)


@pytest.mark.parametrize(
    ("code", "writer"),
    [
        ({"digest": "0" * 32, "version": "0.1"}, r"mcpca 0\.1, 0{32}"),
        (None, "an earlier version"),
    ],
)
def test_a_checkpoint_of_other_code_is_refused(tmp_path, code, writer):
    """Before anything else is asked of the file, whose layout may be another one."""
    path = tmp_path / "fit.ckpt"
    header = {name: value for name, value in header_of(code=code, finished=None).items() if value is not None}
    write_file(path, checkpoint.FORMAT, {}, header)
    content = path.read_bytes()
    states = rf"written by different code \({writer}\) from that running now \(mcpca .*, {code_digest()}\)"
    way_out = r"\. Resume with that code, pass another path, or delete the file"
    with pytest.raises(ValueError, match=states + way_out), Checkpoint(path, {}):
        pass
    assert path.read_bytes() == content


def test_the_digest_of_the_code_is_of_its_source_files(tmp_path, monkeypatch):
    """One changed file changes it, wherever the package is; without source files it is the version, and says so."""
    package = tmp_path / "copy" / "mcpca"
    shutil.copytree(os.path.dirname(mcpca.__file__), package, ignore=shutil.ignore_patterns("__pycache__"))

    def digest_in(folder):
        monkeypatch.setattr(code_digests.resources, "files", lambda name: folder)
        return code_digest.__wrapped__()

    assert digest_in(package) == code_digest()
    with zipfile.ZipFile(tmp_path / "mcpca.zip", "w") as archive:
        for path in package.rglob("*.py"):
            archive.write(path, path.relative_to(package.parent))
    with zipfile.ZipFile(tmp_path / "mcpca.zip") as archive:
        assert digest_in(zipfile.Path(archive, "mcpca/")) == code_digest()
    for name, counts in (("_solvers/mspm.py", True), ("_linalg/new.py", True), ("report/__init__.py", False)):
        before = digest_in(package)
        with (package / name).open("a") as file:
            file.write("# changed\n")
        assert (digest_in(package) != before) == counts
    for path in package.rglob("*.py"):
        path.unlink()
    assert digest_in(package) == f"version {version('mcpca')}, without source files"


def test_a_row_that_moves_to_the_next_context_is_another_fit(rng):
    """Also where its number stays at the same place among all numbers of rows."""
    X = rng.standard_normal((12, 3))
    first = np.array([0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2])[rng.permutation(12)]
    moved = first.copy()
    moved[np.flatnonzero(first == 1)[0]] = 0
    labels = [identity_of(read_contexts(X, y), {})["the labels of rows"] for y in (first, moved)]
    assert labels[0] != labels[1]
    contexts = read_contexts(X, np.repeat([0, 1, 2], 4))
    pairs = []
    for rows in ([[1, 2], [3], [0]], [[1], [2, 3], [0]]):
        given = replace(contexts, rows=[np.array(part) for part in rows])
        pairs.append(identity_of(given, {})["the labels of rows"])
    assert pairs[0] != pairs[1]
