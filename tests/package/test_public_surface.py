"""What users rely on: names, parameters, fitted attributes, files, the layout in AnnData, commands and their options.

The list is in ``public_surface.json``. Where it is meant to change, write it anew, look at the difference, and tell
users in the CHANGELOG: ``python tests/package/test_public_surface.py``.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pathlib
import tempfile
import zipfile
from importlib.metadata import version
from typing import Any

import click
import numpy as np
import pytest

import mcpca
from mcpca import MCPCA, ContextMoments
from mcpca.datasets import make_contexts

LISTED = pathlib.Path(__file__).with_name("public_surface.json")
MODULES = ("mcpca", *(f"mcpca.{name}" for name in ("analysis", "baselines", "datasets", "exceptions", "plotting")))
MODULES += ("mcpca.report", "mcpca.tl", "mcpca.pl", "mcpca.sharing", "mcpca.poles", "mcpca.context_tree")


def surface() -> dict[str, Any]:
    return {
        "names": {name: _names_of(importlib.import_module(name)) for name in MODULES if name != "mcpca.pl"}
        | {"mcpca.pl": _names_of(mcpca.pl)},
        "fitted": _fitted(),
        "files": _files(),
        "anndata": _anndata(),
        "commands": _commands(),
    }


def _names_of(module: Any) -> dict[str, Any]:
    defined = [n for n, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__]
    names = getattr(module, "__all__", None) or [n for n in defined if not n.startswith("_")]
    return {name: _described(getattr(module, name)) for name in sorted(names)}


def _described(thing: Any) -> Any:
    if inspect.isclass(thing):
        if issubclass(thing, Exception):
            return [base.__name__ for base in thing.__mro__[1:-1]]
        members = {n: m for n, m in inspect.getmembers(thing) if not n.startswith("_") and _is_ours(thing, n)}
        fields = getattr(thing, "__dataclass_fields__", {})
        return {
            "call": _parameters(thing),
            "members": {n: _parameters(m) if callable(m) else "attribute" for n, m in sorted(members.items())},
            "fields": [n for n in fields if not n.startswith("_")],
        }
    return _parameters(thing) if callable(thing) else type(thing).__name__


def _is_ours(cls: type, name: str) -> bool:
    """Tell attributes of this package from those that scikit-learn's classes bring, also where they are overridden."""
    owners = [base.__module__.split(".")[0] for base in cls.__mro__ if name in vars(base)]
    return owners[0] == "mcpca" and "sklearn" not in owners


def _parameters(thing: Any) -> str:
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return "()"
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def _models() -> dict[str, MCPCA]:
    truth = make_contexts(n_contexts=5, n_features=8, n_components=3, n_samples=60, random_state=0)
    ways = {solver: MCPCA(3, solver=solver, random_state=0) for solver in ("mspm", "lsq", "ml")}
    models = {name: model.fit(truth.X, truth.y) for name, model in ways.items()}
    models["orthogonal"] = MCPCA(3, orthogonal=True, random_state=0).fit(truth.X, truth.y)
    models["partial"] = MCPCA(3, random_state=0).partial_fit(truth.X, truth.y)
    models["covariances"] = MCPCA(3, random_state=0).fit_covariances(truth.covariances)
    models["chosen"] = MCPCA(random_state=0).fit(truth.X, truth.y)
    models["paper's rule"] = MCPCA(rank_range=[2, 3], n_seed_pairs=2, random_state=0).fit(truth.X, truth.y)
    return models


def _fitted() -> dict[str, Any]:
    def kind(value: Any) -> str:
        return f"{value.dtype.kind}{value.ndim}" if isinstance(value, np.ndarray) else type(value).__name__

    return {
        way: {
            name: kind(getattr(model, name))
            for name in sorted(dir(model))
            if name.endswith("_") and not name.startswith("_") and not callable(getattr(model, name))
        }
        for way, model in _models().items()
    }


def _files() -> dict[str, Any]:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for way, model in _models().items():
            model.save(pathlib.Path(folder) / "model.npz")
            found[f"model, {way}"] = _inside(pathlib.Path(folder) / "model.npz")
        moments = ContextMoments().update([np.eye(4), np.ones((5, 4)) + np.eye(5, 4)])
        moments.save(pathlib.Path(folder) / "moments.npz")
        found["moments"] = _inside(pathlib.Path(folder) / "moments.npz")
    return found


def _inside(path: pathlib.Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        names = sorted(archive.namelist())
    with np.load(path) as arrays:
        header = json.loads(bytes(arrays["header"]).decode()) if "header" in names or "header.npy" in names else {}
    return {"entries": names, "header": sorted(header)}


def _anndata() -> dict[str, Any]:
    import anndata
    import pandas as pd

    truth = make_contexts(n_contexts=5, n_features=8, n_components=3, n_samples=60, random_state=0)
    found = {}
    for name, options in {
        "mspm": {},
        "ml": {"solver": "ml"},
        "chosen": {"n_comps": None},
        "asked": {},
        "new": {},
    }.items():
        adata = anndata.AnnData(truth.X, obs=pd.DataFrame({"c": truth.y}, index=[f"r{i}" for i in range(len(truth.y))]))
        adata.obs["c"] = adata.obs["c"].astype(str).astype("category")
        adata.obs["stage"] = truth.y % 2
        mcpca.tl.mcpca(adata, "c", **({"n_comps": 3, "rng": 0} | options))
        if name == "asked":
            mcpca.tl.replicability(adata, n_splits=2)
            mcpca.tl.context_dependence(adata, n_splits=1, n_permutations=19)
            mcpca.tl.bootstrap(adata, n=2)
            mcpca.tl.associate(adata, "stage", n_pcs=2)
        elif name == "new":
            adata = mcpca.tl.transform(adata, "c", model=adata, key_added="scores", copy=True)
            del adata.uns["mcpca"]
        found[name] = {
            "obsm": sorted(adata.obsm),
            "varm": sorted(adata.varm),
            "layers": sorted(name for name in adata.layers if name is not None),  # X itself, with anndata 0.13
            "uns": {key: _shape_of(value) for key, value in sorted(adata.uns.items())},
        }
    return found


def _shape_of(value: Any) -> Any:
    return {k: _shape_of(v) for k, v in sorted(value.items())} if isinstance(value, dict) else type(value).__name__


def default_of(parameter):
    """Return the default as text; where there is none, click before 8.3 has None for what it calls unset since."""
    return str(parameter.default).replace("Sentinel.UNSET", "None")


def _commands() -> dict[str, Any]:
    from mcpca.cli._app import app

    def told(command: click.Command) -> Any:
        if isinstance(command, click.Group):
            return {name: told(command.commands[name]) for name in sorted(command.commands)}
        return [
            [*p.opts, *p.secondary_opts, p.type.name, default_of(p), p.required, p.multiple or p.nargs != 1]
            for p in command.params
        ]

    return told(app)


def test_what_users_rely_on_is_as_listed():
    if tuple(map(int, version("click").split(".")[:2])) < (8, 3):
        pytest.skip("click before 8.3 keeps defaults of flags otherwise than the list has them")
    now, listed = json.loads(json.dumps(surface())), json.loads(LISTED.read_text())
    for part in listed:
        assert now[part] == listed[part], part
    assert sorted(now) == sorted(listed)


if __name__ == "__main__":
    LISTED.write_text(json.dumps(surface(), indent=1, sort_keys=True) + "\n")
