"""``run.json``: everything needed to repeat a run, and to tell whether the repetition gave the same results.

``mcpca fit`` and ``mcpca rank`` write it last, with checksums of inputs and outputs; ``mcpca repeat`` reads it, finds
the inputs (``_located``), runs again with the recorded options and compares the outputs.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shlex
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from .. import __version__
from .._data.preprocess import Preprocess
from .._utils.parallel import n_workers
from ._console import Failure
from ._located import Located, stored_path
from ._policy import preprocess_of
from .tables import Reading, UnusableFileError

RUN_FORMAT = "mcpca-run"
RUN_FORMAT_VERSION = 2  # 1 had absolute paths, and no runs of mcpca rank
# Packages whose version can change a result.
_PACKAGES = ("numpy", "scipy", "scikit-learn", "pyarrow", "anndata", "h5py", "zarr", "click")
# Fields of ``Reading`` that name a file: labels, and tables beside the rows.
_READING_PATHS = tuple(field.name for field in fields(Reading) if "Path" in str(field.type))


@dataclass(frozen=True)
class RunOptions:
    """What decides the result of a command: its options, but for where results go."""

    data: tuple[Path, ...]
    reading: Reading

    def to_json(self, folder: Path | None = None) -> dict[str, Any]:
        """Return JSON values; paths are relative to ``folder``, where the record is, or absolute."""
        # Patterns @FILE name files too, and are stored like the others.
        reading = asdict(self.reading)
        for name in _READING_PATHS:
            path = getattr(self.reading, name)
            reading[name] = None if path is None else stored_path(path, folder)
        for name in ("features", "drop"):
            reading[name] = [
                f"@{stored_path(Path(value[1:]), folder)}" if value.startswith("@") else value
                for value in reading[name]
            ]
        simple = {name: getattr(self, name) for name in self._simple_fields()}
        return {"data": [stored_path(path, folder) for path in self.data], "reading": reading, **simple}

    @classmethod
    def from_json(cls, content: dict[str, Any], located: Located | None = None) -> Self:
        """Return the options that ``to_json`` has written, with paths as ``located`` has found them."""

        def path(text: str) -> Path:
            return Path(text) if located is None else located.path(text)

        # JSON has no tuples; as lists, fields would differ from the defaults of ``Reading`` and count as given.
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in content["reading"].items()
        }
        for name in ("features", "drop"):
            values[name] = tuple(f"@{path(value[1:])}" if value.startswith("@") else value for value in values[name])
        # Records of earlier versions lack what came later here, too.
        paths = {name: values.get(name) for name in _READING_PATHS}
        values |= {name: None if text is None else path(text) for name, text in paths.items()}
        reading = Reading(**values)
        # Records of earlier versions lack options that came later; those runs had them at their defaults.
        simple = {
            name: tuple(content[name]) if isinstance(content[name], list) else content[name]
            for name in cls._simple_fields()
            if name in content
        }
        if located is None:
            return cls(tuple(map(Path, content["data"])), reading, **simple)
        lists = [value[1:] for name in ("features", "drop") for value in content["reading"][name] if value[:1] == "@"]
        return cls(located.data(content["data"], [*lists, *filter(None, paths.values())]), reading, **simple)

    @classmethod
    def _simple_fields(cls) -> list[str]:
        """Names of the fields that are JSON values as they are."""
        return [field.name for field in fields(cls) if field.name not in ("data", "reading")]


@dataclass(frozen=True)
class FitOptions(RunOptions):
    """The options of ``mcpca fit``."""

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


@dataclass(frozen=True)
class RankOptions(RunOptions):
    """The options of ``mcpca rank``."""

    ranks: tuple[int, ...] | None = None
    criteria: tuple[str, ...] = ("all",)
    seed: int = 0
    normalize: str | None = None
    hvg: int | None = None
    target_sum: float | None = None
    scale: bool = False
    format: str = "csv"

    @property
    def preprocess(self) -> Preprocess | None:
        """What is done to rows as they are read."""
        return preprocess_of(self.normalize, self.hvg, self.target_sum, self.scale)


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


def record(
    options: FitOptions | RankOptions, command: list[str], inputs: list[dict[str, Any]], folder: Path
) -> dict[str, Any]:
    """Return the record of a run, before its results are known; it will lie in ``folder``."""
    return {
        "format": RUN_FORMAT,
        "format_version": RUN_FORMAT_VERSION,
        "kind": "rank" if isinstance(options, RankOptions) else "fit",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": ["mcpca", *command],
        # Where the record is written: paths below are relative to it.
        "folder": os.path.abspath(folder),
        "options": options.to_json(folder),
        # Also among the options; here for those who look for it.
        "seed": options.seed,
        "inputs": [{**entry, "path": stored_path(Path(entry["path"]), folder)} for entry in inputs],
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
        raise UnusableFileError(path, "is not a run.json of mcpca fit or rank.") from error
    # A later version may record options that would be ignored here: the run would be repeated wrongly.
    if content["format_version"] > RUN_FORMAT_VERSION:
        raise UnusableFileError(path, f"was written by a later mcpca ({content['versions']['mcpca']}); upgrade.")
    return dict(content)


def check_same(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> None:
    """Raise if files have changed since ``locate``, or if a folder has more of them."""
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
