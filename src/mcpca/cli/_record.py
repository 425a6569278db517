"""``run.json``: everything needed to repeat a run, and to tell whether the repetition gave the same results.

``mcpca fit`` writes it last, with checksums of inputs and outputs; ``mcpca repeat`` reads it, checks that the inputs
are unchanged, fits again with the recorded options and compares the outputs.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import shlex
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .. import __version__
from .._data.preprocess import Preprocess
from .._utils.parallel import n_workers
from ._console import Failure
from ._outputs import checksums
from ._policy import preprocess_of
from .tables import Reading, UnusableFileError, stdin

RUN_FORMAT = "mcpca-run"
RUN_FORMAT_VERSION = 1
# Packages whose version can change a result.
_PACKAGES = ("numpy", "scipy", "scikit-learn", "pyarrow", "anndata", "h5py", "zarr", "click")


@dataclass(frozen=True)
class FitOptions:
    """What decides the result of ``mcpca fit``: its options, but for where results go."""

    data: tuple[Path, ...]
    reading: Reading
    rank: int | str | None = None
    solver: str = "mspm"
    orthogonal: bool = False
    noise: str | None = "auto"
    robust: bool = False
    cross_fit: int = 0
    normalize: str | None = None
    hvg: int | None = None
    target_sum: float | None = None
    scale: bool = False
    seed: int = 0
    tol: float | None = None
    max_iter: int = 200
    format: str = "csv"
    center: str = "overall"
    scores: bool = True
    report: bool | None = None
    picture: bool = True
    context_test: bool = True
    replicability: bool | None = None
    bootstrap: int = 0
    title: str | None = None

    @property
    def preprocess(self) -> Preprocess | None:
        """What is done to rows as they are read."""
        return preprocess_of(self.normalize, self.hvg, self.target_sum, self.scale)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; paths are absolute, so that the run can be repeated from anywhere."""
        # Patterns @FILE name files too, and are made absolute like the others.
        reading = asdict(self.reading)
        for name in ("labels", "context_table"):
            path = getattr(self.reading, name)
            reading[name] = None if path is None else _absolute(path)
        for name in ("features", "drop"):
            reading[name] = [f"@{Path(v[1:]).absolute()}" if v.startswith("@") else v for v in reading[name]]
        simple = {name: getattr(self, name) for name in _simple_fields()}
        return {"data": [_absolute(path) for path in self.data], "reading": reading, **simple}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> FitOptions:
        """Return the options that ``to_json`` has written."""
        # JSON has no tuples; as lists, fields would differ from the defaults of ``Reading`` and count as given.
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in content["reading"].items()
        }
        # Records of earlier versions lack what came later here, too.
        paths = {name: values.pop(name, None) for name in ("labels", "context_table")}
        values |= {name: None if path is None else Path(path) for name, path in paths.items()}
        reading = Reading(**values)
        # Records of earlier versions lack options that came later; those runs had them at their defaults.
        simple = {name: content[name] for name in _simple_fields() if name in content}
        return cls(tuple(Path(path) for path in content["data"]), reading, **simple)


def _absolute(path: Path) -> str:
    """Return a path that holds in any folder; stdin stays what it is."""
    return str(path) if path == stdin.STDIN else str(path.absolute())


def _simple_fields() -> list[str]:
    """Names of the fields that are JSON values as they are."""
    return [field.name for field in fields(FitOptions) if field.name not in ("data", "reading")]


def versions() -> dict[str, str]:
    """Return the versions of Python, mcpca and the packages that compute."""
    installed = {"mcpca": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            installed[name] = importlib.metadata.version(name)
        # Optional ones are left out; a comparison then shows that one has come or gone.
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed


def record(options: FitOptions, command: list[str], inputs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the record of a run, before its results are known."""
    return {
        "format": RUN_FORMAT,
        "format_version": RUN_FORMAT_VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": ["mcpca", *command],
        "options": options.to_json(),
        # Also among the options; here for those who look for it.
        "seed": options.seed,
        "inputs": inputs,
        "versions": versions(),
        "machine": {"system": platform.platform(), "processor": platform.machine(), "threads": n_workers()},
    }


def for_a_reader(run: dict[str, Any]) -> dict[str, str]:
    """Return the lines about a run that its report shows."""
    lines = {"date": run["created"], "command": shlex.join(run["command"]), "seed": str(run["seed"])}
    for entry in run["inputs"]:
        lines[f"input {Path(entry['path']).name}"] = f"{entry['bytes']:,} bytes, SHA-256 {entry['sha256']}"
    return lines | {"versions": ", ".join(f"{name} {version}" for name, version in run["versions"].items())}


def read_record(path: Path) -> dict[str, Any]:
    """Read a ``run.json``, or that of a folder of results."""
    path = path / "run.json" if path.is_dir() else path
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != RUN_FORMAT:
            # JSON of something else, answered like JSON that lacks the key.
            raise KeyError("format")
    except OSError as error:
        raise UnusableFileError(path, f"cannot be read ({error.strerror}).") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UnusableFileError(path, "is not a run.json of mcpca fit.") from error
    # A later version may record options that would be ignored here: the run would be repeated wrongly.
    if content["format_version"] > RUN_FORMAT_VERSION:
        raise UnusableFileError(path, f"was written by a later mcpca ({content['versions']['mcpca']}); upgrade.")
    return dict(content)


def check_inputs(before: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    """Return the checksums of the inputs of a record, or raise if one of them has changed."""
    if any(entry["path"] == stdin.NAME for entry in before["inputs"]):
        raise UnusableFileError(
            path, "the run read stdin, which is not kept; save what was piped in, and name that file with --data FILE."
        )
    files = [Path(entry["path"]) for entry in before["inputs"]]
    # A better answer than the error of reading, which would not say that the run needs the file.
    missing = [file for file in files if not file.exists()]
    if missing:
        raise UnusableFileError(missing[0], f"is not there any more; the run in {path} read it.")
    now = checksums(files)
    check_same(before["inputs"], now)
    return now


def check_same(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> None:
    """Raise if files have changed, or if a folder has more of them."""
    paths = {entry["path"] for entry in before}
    # A folder with one more file has other results although no checksum of the old ones has changed.
    added = [entry["path"] for entry in now if entry["path"] not in paths]
    if added:
        raise Failure(f"{added[0]} was not there in the run that is to be repeated.", 3, "input")
    for old, new in zip(before, now, strict=True):
        if old["sha256"] != new["sha256"]:
            raise Failure(
                f"{old['path']} has changed (SHA-256 {new['sha256'][:12]} now, {old['sha256'][:12]} then); the run "
                "cannot be repeated.",
                3,
                "input",
            )
