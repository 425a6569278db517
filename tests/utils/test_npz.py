"""Files from anybody: nothing is believed that the file does not bear out, and errors say what is wrong."""

import gzip
import io
import json
import struct
import tracemalloc
import zipfile
from contextlib import suppress

import numpy as np
import pytest

from mcpca import MCPCA, ContextMoments
from mcpca._utils.array_files import read_file
from mcpca._utils.npz import NeedsPickleError, NpzArchive, NpzError, map_array
from mcpca.cli import main
from mcpca.cli.tables import Reading, UnusableFileError, read_data
from mcpca.datasets import make_contexts

K, P, R = 4, 6, 2
MODEL, MOMENTS = "mcpca-model", "mcpca-moments"


@pytest.fixture(scope="module")
def data():
    return make_contexts(K, P, R, n_samples=40, noise=0.1, random_state=0)


@pytest.fixture(scope="module")
def model(data):
    return MCPCA(R, solver="ml", random_state=0).fit(data.X, data.y)


@pytest.fixture
def saved(model, tmp_path):
    model.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def moments(data, tmp_path):
    ContextMoments().update(data.X, data.y).save(tmp_path / "moments.npz")
    return tmp_path / "moments.npz"


def npy(array, shape=None):
    """An array as NumPy writes it, with another shape in its header if asked for."""
    buffer = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(array.dtype)
    header = {"descr": descr, "fortran_order": False, "shape": array.shape if shape is None else shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + array.tobytes()


def rewrite(path, packed=False, more=(), **changed):
    """Replace members of a zip file by these bytes; None takes one away."""
    with zipfile.ZipFile(path) as file:
        members = {name.removesuffix(".npy"): file.read(name) for name in file.namelist()}
    members |= changed
    method = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in members.items():
            if content is not None:
                file.writestr(f"{name}.npy", content)
        for name, content in more:
            file.writestr(f"{name}.npy", content, zipfile.ZIP_DEFLATED)


def header_of(path):
    with np.load(path) as file:
        return json.loads(file["header"].tobytes())


def with_header(path, **changed):
    text = json.dumps(header_of(path) | changed).encode()
    rewrite(path, header=npy(np.frombuffer(text, dtype=np.uint8)))


def peak_of(call):
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# The container


def test_arrays_come_back_as_numpy_reads_them(tmp_path, rng):
    arrays = {
        "plain": rng.standard_normal((3, 4)),
        "turned": np.asfortranarray(rng.standard_normal((3, 4))),
        "words": np.array(["a", "süd"]),
        "bytes": np.array([b"a", b"bc"]),
        "none": np.zeros((0, 3)),
        "scalar": np.array(2.5),
        "swapped": np.arange(3, dtype=">i4"),
        "fields": np.zeros(2, dtype=[("a", "i4"), ("b", "f8")]),
        "truth": np.array([True, False]),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **arrays)
        with NpzArchive(tmp_path / "a.npz") as archive, np.load(tmp_path / "a.npz") as theirs:
            assert set(archive.names) == set(theirs.files)
            for name in archive.names:
                ours = archive.read(name)
                np.testing.assert_array_equal(ours, theirs[name])
                assert (ours.dtype, ours.shape) == (theirs[name].dtype, theirs[name].shape)
                assert archive.info(name)[:2] == (ours.shape, ours.dtype)


def test_what_is_not_known_is_not_read(saved, model):
    """Three megabytes that unpack to three gigabytes took three gigabytes."""
    rewrite(saved, more=[("bomb", npy(np.zeros(2**22)))])
    peak = peak_of(lambda: MCPCA.load(saved))
    assert peak < 2**21
    np.testing.assert_array_equal(MCPCA.load(saved).components_, model.components_)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy(np.zeros(3), shape=(10**13,)), "said to be float64 of shape .*, 80,000,000,000,000 bytes, and has 24"),
        (npy(np.zeros(3), shape=(2**62, 4)), "said to be float64 of shape"),
        (npy(np.zeros(3), shape=(2,)), "16 bytes, and has 24"),
        (npy(np.zeros(3), shape=(-3,)), r"has the shape \(-3,\)"),
        (npy(np.zeros(3), shape=(True, 3)), r"has the shape \(True, 3\)"),
        (npy(np.zeros(0), shape=(1,) * 70), "which NumPy does not write"),
        (npy(np.zeros(1, dtype="V0"), shape=(10**13,)), "which NumPy does not write"),
        (npy(np.zeros(3))[:-1], "and has 23"),
        (npy(np.zeros(3))[:20], "header of an array is cut short"),
        (b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31), "a header of 2,147,483,648 bytes"),
        (b"\x93NUMPY\x01\x00" + struct.pack("<H", 20) + b"(" * 20, "cannot be read: SyntaxError"),
        (b"\x93NUMPY\x01\x00" + struct.pack("<H", 4) + b"{}  ", "cannot be read: KeyError"),
        (b"\x93NUMPY\x09\x00" + bytes(90), "does not begin as those of NumPy do"),
        (b"hello", "header of an array is cut short"),
        (npy(np.zeros(3)).replace(b"'<f8'", b"'|O' "), "can only be read by pickle"),
    ],
)
def test_headers_that_lie_are_named_before_memory_is_taken(saved, content, message):
    rewrite(saved, components_=content)
    with pytest.raises(ValueError, match=rf"not a complete MCPCA model \(\d+ bytes; .*{message}"):
        MCPCA.load(saved)


def test_directories_that_lie_are_named(tmp_path):
    """Sizes in the directory of a zip file that its bytes cannot hold; arrays that share bytes."""
    path = tmp_path / "a.npz"
    np.savez(path, a=np.zeros(100), b=np.zeros(100))
    content = path.read_bytes()
    place = content.index(b"PK\x01\x02")
    for sizes in [(10**9, 10**9), (100, 10**9)]:
        path.write_bytes(content[: place + 20] + struct.pack("<II", *sizes) + content[place + 28 :])
        with NpzArchive(path) as archive, pytest.raises(NpzError, match="said to have 1,000,000,000 bytes, which the"):
            archive.read("a")
    large, n = npy(np.zeros(1000)), 20
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("0.npy", large)
        first = file.infolist()[0]
        for i in range(1, n):  # the same bytes under other names
            other = zipfile.ZipInfo(f"{i}.npy")
            for name in ("CRC", "compress_size", "file_size", "header_offset"):
                setattr(other, name, getattr(first, name))
            file.filelist.append(other)
            file.NameToInfo[other.filename] = other
    with NpzArchive(path, stored=True) as archive, pytest.raises(NpzError):
        [archive.read(str(i)) for i in range(n)]


def test_files_that_are_packed_or_have_a_name_twice_are_refused(saved, model):
    content = saved.read_bytes()
    rewrite(saved, packed=True)
    with pytest.raises(ValueError, match="is compressed, which such files never are"):
        MCPCA.load(saved)
    saved.write_bytes(content)
    with zipfile.ZipFile(saved, "a") as file, pytest.warns(UserWarning, match="Duplicate name"):
        file.writestr("loadings_.npy", npy(np.zeros((K, R))))
    with pytest.raises(ValueError, match="has two arrays called 'loadings_'"):
        MCPCA.load(saved)


# What a model and moments can be


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("components_", lambda A: A * np.nan, "components_ has values that are NaN"),
        ("components_", lambda A: A[:, 0], "components_ has shape"),
        ("components_", lambda A: A[:, :0], "has shape"),
        ("components_", lambda A: A.astype("S4"), r"components_ is of type \|S4"),
        ("loadings_", lambda B: B[:-1], r"loadings_ has shape \(3, 2\) where \(4, 2\) is needed"),
        ("loadings_", lambda B: -B, "loadings_ has values below 0"),
        ("projection_", lambda W: W.T, r"projection_ has shape \(6, 2\) where \(2, 6\) is needed"),
        ("means_", lambda m: m * np.inf, "means_ has values that are NaN or infinite"),
        ("noise_variance_", lambda s: s[:1], r"noise_variance_ has shape \(1,\) where \(4,\) or \(6,\)"),
        ("n_samples_per_context_", lambda n: n * 1.0, "n_samples_per_context_ is of type float64"),
        ("facet_squared_norms", lambda n: n[1:], "facet_squared_norms has shape"),
        ("score_covariances", lambda R: R[0], "score_covariances has shape"),
    ],
)
def test_arrays_that_no_model_has(saved, name, change, message):
    with np.load(saved) as file:
        values = file[name]
    with np.errstate(invalid="ignore"):
        rewrite(saved, **{name: npy(np.ascontiguousarray(change(values)))})
    with pytest.raises(ValueError, match=f"not a consistent MCPCA model: .*{message}.*Save it again"):
        MCPCA.load(saved)


@pytest.mark.parametrize(
    "changed",
    [
        {"contexts": ["a"]},
        {"contexts": ["a", "b", "c", "a"]},
        {"contexts": [["a"], "b", "c", "d"]},
        {"contexts": 4},
        {"feature_names": ["a"]},
        {"feature_names": {}},
        {"parameters": []},
        {"parameters": {"solver": "what"}},
        {"parameters": {"random_state": "x"}},
        {"selection": "{}"},
        {"selection": 3},
        {"n_iter": "many"},
        {"n_passes": []},
        {"basis_residual": "small"},
        {"basis_error": "small"},
    ],
)
def test_headers_that_no_model_has(saved, changed):
    with_header(saved, **changed)
    with pytest.raises(ValueError, match="not a consistent MCPCA model"):
        MCPCA.load(saved)


def test_headers_that_are_none(saved):
    with_header(saved, choice=3)
    with pytest.raises(ValueError, match="lacks 'choice_ranks', 'choice_scores', 'choice_scree'; it is not"):
        MCPCA.load(saved)
    for content in (b"[" * 100_000, b"\xff\xfe", b"[]", b'{"format": "mcpca-model", "version": "x"}'):
        rewrite(saved, header=npy(np.frombuffer(content, dtype=np.uint8)))
        with pytest.raises(ValueError, match="not a complete MCPCA model"):
            MCPCA.load(saved)
    rewrite(saved, header=None)
    with pytest.raises(ValueError, match="it has no array 'header'"):
        MCPCA.load(saved)


def _asymmetric(M):
    M[1, 0, 3] *= 2
    return M


def _indefinite(M):
    M[2, 0, 1] = M[2, 1, 0] = 2 * np.sqrt(M[2, 0, 0] * M[2, 1, 1])
    return M


BAD_MOMENTS = {
    "negated": ("scatters", np.negative, "scatter of context 0 is not positive semi-definite: its smallest eigenvalue"),
    "asymmetric": ("scatters", _asymmetric, "scatter of context 1 is not symmetric"),
    "indefinite": ("scatters", _indefinite, "scatter of context 2 is not positive semi-definite"),
    "NaN": ("scatters", lambda M: M * np.nan, "scatters has values that are NaN"),
    "infinite": ("means", lambda m: m + np.inf, "means has values that are NaN or infinite"),
    "narrow": ("scatters", lambda M: M[:, :-1, :-1], r"scatters is float64 of shape \(4, 5, 5\) where \(4, 6, 6\)"),
    "short": ("counts", lambda n: n[:-1], r"counts is int64 of shape \(3,\) where \(4,\)"),
    "many": ("counts", lambda n: n * 10**13, "context 0 has a count of 400,000,000,000,000, where 1 to"),
    "negative": ("counts", np.negative, "context 0 has a count of -40"),
    "real": ("counts", lambda n: n + 0.5, "counts is float64"),
    "flat": ("means", lambda m: m[0], "means is float64 of shape"),
}


@pytest.mark.parametrize("change", BAD_MOMENTS)
def test_moments_that_no_rows_have(moments, tmp_path, capsys, change):
    """By Python and by the commands that take files from others."""
    pytest.importorskip("click")  # for the commands
    name, make, message = BAD_MOMENTS[change]
    with np.load(moments) as file:
        values = file[name]
    rewrite(moments, **{name: npy(np.ascontiguousarray(make(values)))})
    with pytest.raises(ValueError, match=f"holds moments that no rows have: .*{message}.*Ask whoever sent it"):
        ContextMoments.load(moments)
    out = ["-o", str(tmp_path / "out")]
    (tmp_path / "copy.npz").write_bytes(moments.read_bytes())
    files = [str(moments), str(tmp_path / "copy.npz")]
    for command in (["fit", files[0], *out], ["doctor", files[0]], ["merge", "--allow-duplicates", *files, *out]):
        assert main(command) == 3
        assert "no rows have" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_moments_of_few_rows_large_means_and_single_precision_are_taken(tmp_path, rng):
    """Rounding leaves scatters that are singular a little indefinite."""
    path = tmp_path / "moments.npz"
    for dtype in (np.float32, np.float64):
        X = (rng.standard_normal((90, 40)) * 1e-3 + 50).astype(dtype)
        moments = ContextMoments()
        for i in range(0, 90, 10):
            moments.update(X[i : i + 10], np.repeat([0, 1], 5))
        for found in (moments, ContextMoments().update(X, rng.integers(20, size=90))):
            found.save(path)
            np.testing.assert_array_equal(ContextMoments.load(path).scatters, found.scatters)
    ContextMoments().save(path)
    assert len(ContextMoments.load(path).contexts) == 0


# Damage anywhere


def damaged(content, rng, n=150):
    """Yield the same file with bytes changed, cut out, doubled, or exchanged for others that mean something."""
    words = [b"\x00" * 8, b"\xff" * 8, b"PK\x01\x02", b"PK\x05\x06", b"(99999999999,)", b"'|O'", b"{" * 8, b"\x93NUMPY"]
    for i in range(n):
        at = int(rng.integers(len(content)))
        changed = bytearray(content)
        kind = i % 5
        if kind == 0:
            changed[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            word = words[int(rng.integers(len(words)))]
            changed[at : at + len(word)] = word
        elif kind == 2:
            del changed[at:]
        elif kind == 3:
            del changed[at : at + int(rng.integers(1, 50))]
        else:
            changed[at:at] = changed[at : at + int(rng.integers(1, 50))]
        yield bytes(changed)


@pytest.mark.parametrize("checked", [True, False])
def test_damaged_files_raise_errors_with_words(saved, moments, rng, monkeypatch, checked):
    """Whatever the bytes; also where somebody made the checksums right again."""
    if not checked:
        monkeypatch.setattr(zipfile.ZipExtFile, "_update_crc", lambda self, data: None)
    read = lambda path: read_file(path, "any", "file", "anybody", lambda header: ["a"])  # noqa: E731
    loaded, told = 0, []
    for path, load in ((saved, MCPCA.load), (moments, ContextMoments.load), (saved, read)):
        content = path.read_bytes()
        for changed in damaged(content, rng):
            path.write_bytes(changed)
            try:
                load(path)
                loaded += 1
            except ValueError as error:
                told.append(str(error) if str(path) in str(error) else "")
        path.write_bytes(content)
    assert all(0 < len(text) < 2000 for text in told)
    assert len(told) > loaded


def test_damaged_arrays_at_the_command_line(tmp_path, rng):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, X=rng.standard_normal((20, 3)), c=np.repeat(["a", "b"], 10))
    content = path.read_bytes()
    for changed in damaged(content, rng):
        path.write_bytes(changed)
        with suppress(UnusableFileError):
            read_data([path], Reading(context=("c",)))


# Files that unpack to far more than they are


@pytest.fixture
def bomb(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", X=np.zeros((2**20, 8)), c=np.zeros(2**20, dtype=np.int8))
    assert (tmp_path / "a.npz").stat().st_size < 2**17
    return tmp_path / "a.npz"


def test_arrays_beyond_max_memory_are_refused(bomb, tmp_path, capsys):
    pytest.importorskip("click")  # for the commands
    asked = [str(bomb), "--context", "c", "--max-memory", "16"]

    def run():
        for command in (["doctor", *asked], ["fit", *asked, "-o", str(tmp_path / "out")]):
            assert main(command) == 3
            assert (
                "more than --max-memory leaves; raise --max-memory, or save the rows as .npy" in capsys.readouterr().err
            )

    assert peak_of(run) < 2**25
    with pytest.raises(UnusableFileError, match=r"its array 'X' takes 64 MiB in memory"):
        read_data([bomb], Reading(context=("c",), max_bytes=2**25))
    assert read_data([bomb], Reading(context=("c",), max_bytes=2**28)).n_rows == 2**20


def test_packed_text_with_more_rows_than_memory_has_names_for(tmp_path, monkeypatch):
    path = tmp_path / "a.csv.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(b"x,c\n" + b"1,a\n2,b\n" * 200_000)
    monkeypatch.setattr("mcpca.cli.tables.tabular._ALWAYS_ALLOWED_BYTES", 2**24)
    with pytest.raises(
        UnusableFileError, match=r"names and contexts alone take more than --max-memory \(1 MB\); raise"
    ):
        read_data([path], Reading(context=("c",), max_bytes=2**20))
    assert read_data([path], Reading(context=("c",), max_bytes=2**26)).n_rows == 400_000


def test_packed_text_with_a_line_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr("mcpca.cli.tables.dialect._LONGEST_LINE", 2**20)
    line = b"1" * 2**23
    for name, content in {"first": line, "later": b"x,c\n" + b"1,a\n2,b\n" * 50_000 + line}.items():
        path = tmp_path / f"{name}.csv.gz"
        with gzip.open(path, "wb", 1) as file:
            file.write(content)
        with pytest.raises(UnusableFileError, match=r"it is not a table|fields|cannot be read as a table"):
            read_data([path], Reading(context=("c",)))
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((4, 2)))
    labels = tmp_path / "labels.txt.gz"
    for content, message in ((line, "a line of more than"), (b"a\n" * 10**6, "has more than 1,008 labels for 4 rows")):
        with gzip.open(labels, "wb", 1) as file:
            file.write(content)

        def read(message=message):
            with pytest.raises(UnusableFileError, match=message):
                read_data([tmp_path / "x.npy"], Reading(labels=labels))

        assert peak_of(read) < 2**23


def test_arrays_of_npy_are_mapped_and_pickles_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6.0).reshape(3, 2))
    X = map_array(tmp_path / "x.npy")
    assert isinstance(X, np.memmap)
    np.testing.assert_array_equal(X, np.arange(6.0).reshape(3, 2))
    np.save(tmp_path / "empty.npy", np.zeros((0, 2)))
    assert map_array(tmp_path / "empty.npy").shape == (0, 2)
    np.save(tmp_path / "objects.npy", np.array([None, "a"], dtype=object))
    with pytest.raises(NeedsPickleError, match="can only be read by pickle"):
        map_array(tmp_path / "objects.npy")
    (tmp_path / "half.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-8])
    with pytest.raises(NpzError, match="it cannot be read"):
        map_array(tmp_path / "half.npy")
    with pytest.raises(FileNotFoundError):
        map_array(tmp_path / "nothing.npy")
