"""A checkpoint goes on with the fit that it is of and with no other: rows, labels, parameters are compared in full."""

import os
import subprocess
import sys
import textwrap

import h5py
import numpy as np
import pytest
import scipy.sparse
from test_checkpoint import RANK, Blocks, by_passes, problem, same  # noqa: F401  (a fixture)

from mcpca import MCPCA
from mcpca._covariances import checkpoint
from mcpca._data.fingerprints import digest, marks_of
from mcpca._utils.array_files import write_file
from mcpca.datasets import make_contexts

ANOTHER = r"is of another fit: it differs in {}.*another path, or delete the file"


def stop():
    raise KeyboardInterrupt


def interrupted(X, y, path, when, **parameters):
    with pytest.raises(KeyboardInterrupt):
        MCPCA(RANK, **{"random_state": 0, **parameters}).fit(Blocks(X, when, stop), y, checkpoint=path)
    assert path.exists()


def slow_marks(X, codes, k):
    """Python's integers, a value at a time."""

    def mixed(x):
        x = (x + 0x9E3779B97F4A7C15) % 2**64
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
        return x ^ x >> 31

    marks = [0] * k
    for row, code in zip(X, codes, strict=True):
        total = 0
        for j, value in enumerate(row):
            bits = int.from_bytes(value.tobytes(), sys.byteorder)
            bits = bits ^ bits >> 32 if value.dtype == np.float64 else bits
            total += bits * (mixed(j) | 1)
        marks[code] = (marks[code] + mixed(total % 2**64)) % 2**64
    return marks


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_marks_depend_on_rows_alone(rng, monkeypatch, dtype):
    """Not on their order, on blocks, on the layout in memory, or on whether zeros are stored."""
    monkeypatch.setattr("mcpca._data.fingerprints._VALUES_AT_A_TIME", 40)
    X = rng.standard_normal((30, 7)).astype(dtype)
    X[rng.random(X.shape) < 0.4] = 0
    X[[3, 20]] = 0
    codes = rng.integers(3, size=30)
    expected = slow_marks(X, codes, 3)
    assert marks_of(X, codes, 3).tolist() == expected
    assert marks_of(np.asfortranarray(X), codes, 3).tolist() == expected
    assert marks_of(np.repeat(X, 2, axis=1)[:, ::2], codes, 3).tolist() == expected
    sparse, order = scipy.sparse.csr_array(X), rng.permutation(30)
    assert marks_of(sparse, codes, 3).tolist() == expected
    assert marks_of(sparse[order], codes[order], 3).tolist() == expected
    assert (marks_of(X[:11], codes[:11], 3) + marks_of(sparse[11:], codes[11:], 3)).tolist() == expected


CHANGES = {
    "one value by its last bit": lambda X: X.__setitem__((333, 17), np.nextafter(X[333, 17], np.inf)),
    "two features negated": lambda X: X.__setitem__((slice(None), [3, 4]), -X[:, [3, 4]]),
    "two features exchanged": lambda X: X.__setitem__((slice(None), [3, 4]), X[:, [4, 3]]),
    "doubled": lambda X: np.multiply(X, 2, out=X),
    "negated": lambda X: np.negative(X, out=X),
    "a feature shuffled": lambda X: X.__setitem__((slice(None), 5), np.random.default_rng(0).permutation(X[:, 5])),
    "rows of two contexts exchanged": lambda X: X.__setitem__([0, 399], X[[399, 0]]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_rows_has_another_mark(change):
    data = problem()
    for dtype in (np.float32, np.float64):
        X = data.X.astype(dtype)
        before = marks_of(X, data.y, 4)
        CHANGES[change](X)
        assert (marks_of(X, data.y, 4) != before).any()


@pytest.mark.parametrize("when", [21, 40, 52])
def test_rows_that_have_changed_are_refused_before_any_product(by_passes, tmp_path, when):  # noqa: F811
    """Within the first pass, after it, and within later ones; wherever the rows are."""
    data, path = problem(), tmp_path / "fit.ckpt"
    interrupted(data.X, data.y, path, when)
    content = path.read_bytes()
    other = data.X.copy()
    other[150:] *= 3
    stages = []
    model = MCPCA(RANK, random_state=0, verbose=lambda *told: stages.append(told[0]))
    with pytest.raises(ValueError, match=ANOTHER.format(r"the rows \(context 1, context 2")):
        model.fit(Blocks(other), data.y, checkpoint=path)
    assert not any(stage.startswith("pass 2") for stage in stages)
    assert path.read_bytes() == content
    resumed = MCPCA(RANK, random_state=0).fit(Blocks(data.X), data.y, checkpoint=path)
    same(resumed, MCPCA(RANK, random_state=0).fit(Blocks(data.X), data.y))


@pytest.mark.parametrize("form", ["array", "sparse", "hdf5", "memory map"])
def test_ten_thousand_rows_tripled_from_row_six_thousand_on(by_passes, tmp_path, form):  # noqa: F811
    data, path = make_contexts(5, 12, RANK, n_samples=2000, noise=0.3, random_state=0), tmp_path / "fit.ckpt"
    order = np.random.default_rng(0).permutation(len(data.X))
    X, y = data.X[order], data.y[order]
    changed = X.copy()
    changed[6000:] *= 3
    with h5py.File(tmp_path / "rows.h5", "w") as file:

        def given(rows, name):
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
            MCPCA(RANK, random_state=0, verbose=tell).fit(given(X, "X"), y, checkpoint=path)
        with pytest.raises(
            ValueError, match=ANOTHER.format(r"the rows \(context 0, context 1, context 2 and 2 more\)")
        ):
            MCPCA(RANK, random_state=0).fit(given(changed, "changed"), y, checkpoint=path)


def test_rows_that_were_not_read_yet_may_change(by_passes, tmp_path):  # noqa: F811
    """A first pass that was under way has seen nothing of them: the answer is that of the rows as they are now."""
    data, path = problem(), tmp_path / "fit.ckpt"
    interrupted(data.X, data.y, path, 13)
    other = data.X.copy()
    other[350:] *= 3
    resumed = MCPCA(RANK, random_state=0).fit(Blocks(other), data.y, checkpoint=path)
    same(resumed, MCPCA(RANK, random_state=0).fit(Blocks(other), data.y))


@pytest.mark.parametrize("blocks", [3, 5])
def test_the_same_rows_in_other_blocks_are_told(by_passes, tmp_path, blocks):  # noqa: F811
    data, path = problem(), tmp_path / "fit.ckpt"
    interrupted(data.X, data.y, path, 13)
    with pytest.raises(ValueError, match=ANOTHER.format("the blocks that rows come in")):
        MCPCA(RANK, random_state=0).fit(lambda: iter(np.array_split(data.X, blocks)), data.y, checkpoint=path)
    with pytest.raises(ValueError, match=ANOTHER.format("the form of X")):
        MCPCA(RANK, random_state=0).fit(data.X, data.y, checkpoint=path)


def test_parameters_are_compared_in_full(by_passes, tmp_path):  # noqa: F811
    """Not by what is printed of a long array."""
    data = make_contexts(1200, 6, RANK, n_samples=3, noise=0.3, random_state=0)
    path, weights = tmp_path / "fit.ckpt", np.ones(1200)
    interrupted(data.X, data.y, path, 150, context_weights=weights)
    other = weights.copy()
    other[600] = 1.0001
    assert repr(other) == repr(weights)
    with pytest.raises(ValueError, match=ANOTHER.format(r"the parameters \(context_weights, max_iter\)")):
        MCPCA(RANK, random_state=0, context_weights=other, max_iter=7).fit(Blocks(data.X), data.y, checkpoint=path)


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
    data, path = problem(), tmp_path / "fit.ckpt"
    options = {"solver": "lsq"}
    expected = MCPCA(RANK, random_state=kind(7), **options).fit(Blocks(data.X), data.y)
    generator = kind(7)
    interrupted(data.X, data.y, path, 90, random_state=generator, **options)
    assert digest(generator) == digest(kind(7))  # where it was, so that the next call is the same fit
    with pytest.raises(ValueError, match=ANOTHER.format(r"the parameters \(random_state\)")):
        MCPCA(RANK, random_state=kind(8), **options).fit(Blocks(data.X), data.y, checkpoint=path)
    content = path.read_bytes()
    same(MCPCA(RANK, random_state=kind(7), **options).fit(Blocks(data.X), data.y, checkpoint=path), expected)
    path.write_bytes(content)
    same(MCPCA(RANK, random_state=generator, **options).fit(Blocks(data.X), data.y, checkpoint=path), expected)


def test_a_second_fit_on_the_same_path_is_refused(by_passes, tmp_path):  # noqa: F811
    data, path = problem(), tmp_path / "fit.ckpt"
    refused = []

    def second():
        with pytest.raises(ValueError, match=rf"is in use by another fit \(process {os.getpid()}\); wait for it"):
            MCPCA(RANK, random_state=0).fit(data.X, data.y, checkpoint=path)
        refused.append(sorted(p.name for p in tmp_path.iterdir()))

    model = MCPCA(RANK, random_state=0).fit(Blocks(data.X, 40, second), data.y, checkpoint=path)
    assert refused == [[".fit.ckpt.lock", "fit.ckpt"]]
    same(model, MCPCA(RANK, random_state=0).fit(Blocks(data.X), data.y))
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
    MCPCA(RANK, random_state=0).fit(data.X, data.y, checkpoint=path)
    assert sorted(p.name for p in tmp_path.iterdir()) == others


def test_a_link_to_a_checkpoint_is_followed(by_passes, tmp_path):  # noqa: F811
    data, path, link = problem(), tmp_path / "fit.ckpt", tmp_path / "link"
    link.symlink_to(path)
    interrupted(data.X, data.y, link, 40)
    assert link.is_symlink()
    with checkpoint.Checkpoint(path, {}), pytest.raises(ValueError, match="is in use by another fit"):
        MCPCA(RANK, random_state=0).fit(Blocks(data.X), data.y, checkpoint=link)
    MCPCA(RANK, random_state=0).fit(Blocks(data.X), data.y, checkpoint=link)
    assert [p.name for p in tmp_path.iterdir()] == ["link"]


def test_a_folder_that_takes_no_files(tmp_path):
    data = problem()
    with pytest.raises(OSError, match=r"checkpoint=.*its folder takes no files \(File name too long\); pass another"):
        MCPCA(RANK).fit(data.X, data.y, checkpoint=tmp_path / ("x" * 250))


def header_of(**changed):
    return {"identity": {}, "seed": 1, "sizes": [1], "groups": 0, "rows": 0, "sums": 0} | changed


@pytest.mark.parametrize(
    ("arrays", "header", "message"),
    [
        ({}, header_of(), "tells of pass_0_0, which the file does not have"),
        ({"pass_0_0": np.full(3, np.nan)}, header_of(), "array 'pass_0_0' is not of finite numbers"),
        ({"pass_0_0": np.array(["a"])}, header_of(), "array 'pass_0_0' is not of finite numbers"),
        ({"pass_0_0": np.ones(3), "marks": np.ones(2)}, header_of(), "its marks are float64"),
        ({}, header_of(sizes=[10**12]), "does not say how many passes"),
        ({}, header_of(sizes=None), "does not say how many passes"),
        ({}, header_of(sums=-1), "does not say how many passes"),
        ({}, header_of(sizes=[], seed="1"), "lacks what a fit is known by"),
        ({}, header_of(sizes=[], identity=[]), "lacks what a fit is known by"),
    ],
)
def test_damaged_checkpoints_are_refused_by_what_is_wrong(tmp_path, arrays, header, message):
    path = tmp_path / "fit.ckpt"
    write_file(path, checkpoint.FORMAT, arrays, header)
    with pytest.raises(ValueError, match=f"{message}.*delete the file"), checkpoint.Checkpoint(path, {}):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["fit.ckpt"]


def test_passes_of_another_shape_are_refused(tmp_path):
    """Also where NumPy would stretch them to the shape that is needed."""
    path = tmp_path / "fit.ckpt"
    write_file(path, checkpoint.FORMAT, {"pass_0_0": np.ones(1)}, header_of())
    with (
        checkpoint.Checkpoint(path, {}) as saved,
        pytest.raises(ValueError, match=r"shapes \[\(1,\)\] where \[\(3,\)\]"),
    ):
        saved.recall([np.zeros(3)])
