"""Patients: the spread of cells along an axis, and their mean, against the tissue or the stage of a tumour.

``python studies/run.py patients --data DIR``, or with the paper's atlas ``--luca FILE``.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import false_discovery_control

from mcpca import MCPCA, plotting
from mcpca.analysis import Association, associate, feature_scores, top_features

from .chance import Array, Chance, permuted_fits, spread
from .loaders import Rows, lung, melanoma, pooled_axes
from .output import Report

RANK = 5  # the paper's
MIN_CELLS = 200
CELLS = {"myeloid": "Myeloid cells", "t": "T/NK cells"}
ORIGINS = {
    "nLung": "normal lung",
    "tLung": "early tumour",
    "tL/B": "advanced tumour",
    "nLN": "normal lymph node",
    "mLN": "lymph node metastasis",
    "PE": "pleural effusion",
    "mBrain": "brain metastasis",
}
STAGES = ("I", "II", "III", "IV")
ALPHA = 0.05


def run(data: Path, report: Report, permutations: int = 200) -> None:
    """Study the data at hand: two kinds of immune cells of lung samples, and melanoma patients."""
    cells = lung(data)
    report.add(permutations=permutations, rank=RANK, cells=len(cells.y), genes=len(cells.features))
    for prefix, cell_type in CELLS.items():
        # One kind of cells, as in the paper: otherwise axes are those of composition.
        chosen = (cells.about["cell_type"] == cell_type).to_numpy()
        if not chosen.any():
            raise ValueError(f"cell_type has no {cell_type!r}; it has {sorted(set(cells.about['cell_type']))[:8]}.")
        study_samples(cells.take(chosen), report, prefix, permutations)
    _study_melanoma(melanoma(data), report, permutations)
    _claims(report)


def run_luca(path: Path, report: Report, permutations: int = 200) -> None:
    """Study the paper's atlas: cancer cells, patients as contexts, and their stage."""
    from .cells import luca

    rows = luca(path)
    Z, pca = pooled_axes(rows, 400)
    model = MCPCA(RANK, random_state=0).fit(Z, rows.y)
    stage = pd.Series(rows.about["stage"].to_numpy(), index=rows.y).groupby(level=0).first()
    known = stage[stage.isin(STAGES)]
    covariate = pd.Series(
        pd.Categorical(stage.where(stage.isin(STAGES)), STAGES, ordered=True), index=stage.index, name="stage"
    )
    late = known.isin(("III", "IV")).sum()
    counts = pd.Series(rows.y).value_counts()
    report.add(
        source=rows.source,
        permutations=permutations,
        rank=RANK,
        cells=len(rows.y),
        genes=len(rows.features),
        axes=Z.shape[1],
        variance_of_axes=float(pca.explained_variance_ratio_.sum()),
        patients=len(stage),
        fewest=int(counts.min()),
        most=int(counts.max()),
        staged=len(known),
        late=late,
    )
    n = max(permutations, int(min(50, Z.shape[1]) / ALPHA) + 1)
    tested = {
        of: associate(
            model,
            covariate,
            of=of,
            corrected=of != "loadings",  # loadings as fitted are the paper's
            split="III",
            X=Z,
            y=rows.y,
            permutations=n,
            random_state=0,
            missing="drop",
        )
        for of in ("loadings", "variance", "mean")
    }
    table = _tests_table(tested)
    report.table("stage", table)
    best = str(tested["loadings"].table["p"].idxmin())
    report.add(
        reassignments=n,
        summary=tested["loadings"].summary(),
        pca_sds=len(_pc_sds(tested)),
        pcs=min(50, Z.shape[1]),
        beyond_pca=", ".join(tested["loadings"].beyond_pca or []) or "none",
        axis=best,
    )
    report.table("poles", _poles(feature_scores(model, pca=pca)))
    report.figure("stage", plotting.plot_covariate(model, best, covariate, corrected=False, missing="drop"))
    spreading = _spread_not_mean(tested)
    report.claim(
        "The loading of an axis goes with stage",
        "MCPC 5, Bonferroni p < 0.05",
        ", ".join(tested["loadings"].significant) or "no MCPC",
        f"{n} reassignments of stages",
        bool(tested["loadings"].significant),
    )
    report.claim(
        "Its variance goes with stage, and its mean does not",
        "MCPC 5",
        ", ".join(spreading) or "no MCPC",
        f"{n} reassignments of stages",
        bool(spreading),
    )
    report.claim(
        "PCA does not see it",
        "no PC of 50 has a standard deviation that goes with stage",
        f"{report.numbers['pca_sds']} of {report.numbers['pcs']} PCs have one; beyond PCA: "
        f"{report.numbers['beyond_pca']}",
        f"at most {ALPHA} of {report.numbers['pcs']}",
        bool(report.numbers["pca_sds"] == 0 and tested["loadings"].significant),
    )


def study_samples(rows: Rows, report: Report, prefix: str, permutations: int) -> None:
    """Relate MCPCs of one kind of cells to the origin of samples: seven origins, and normal lung against tumour."""
    rows = rows.keep(MIN_CELLS)
    model = MCPCA(RANK, random_state=0).fit(rows.X, rows.y)
    again = model.replicability(rows.X, rows.y, random_state=0)
    origin = pd.Series(rows.about["origin"].to_numpy(), index=rows.y).groupby(level=0).first().rename("origin")
    counts = origin.map(ORIGINS).value_counts()
    null = permuted_fits(rows.X, rows.y, RANK, permutations, spread, seed=1)
    report.add(
        **{
            f"{prefix}_cells": len(rows.y),
            f"{prefix}_samples": len(origin),
            f"{prefix}_origins": ", ".join(f"{counts[o]} {o}" for o in ORIGINS.values() if o in counts),
            f"{prefix}_replicating": again.n_replicating,
        },
        **Chance(spread(model), np.array(null)).numbers(f"{prefix}_spread"),
    )
    # Tests of so many PCs at level alpha need so many reassignments.
    n = max(permutations, int(len(rows.features) / ALPHA) + 1)
    tested = {
        of: associate(
            model, origin, of=of, corrected=of != "loadings", X=rows.X, y=rows.y, permutations=n, random_state=0
        )
        for of in ("loadings", "variance", "mean")
    }
    report.table(f"{prefix}_origin", _tests_table(tested))
    report.add(
        **{f"{prefix}_{of}_significant": len(one.significant) for of, one in tested.items()},
        **{f"{prefix}_pc_sds_significant": len(_pc_sds(tested))},
        **{f"{prefix}_pcs": min(50, rows.X.shape[1])},
        **{f"{prefix}_beyond_pca": ", ".join(tested["loadings"].beyond_pca or []) or "none"},
        **{f"{prefix}_only_variance": ", ".join(_spread_not_mean(tested)) or "none"},
        **{f"{prefix}_reassignments": n},
    )
    pairs = paired_samples(origin)
    if len(pairs) >= 5:
        paired = paired_tests(model, rows, pairs)
        report.table(f"{prefix}_paired", paired)
        only = paired[(paired["variance q"] < ALPHA) & (paired["mean p"] >= ALPHA)]["MCPC"]
        report.add(
            **{
                f"{prefix}_pairs": len(pairs),
                f"{prefix}_paired_variance": int((paired["variance q"] < ALPHA).sum()),
                f"{prefix}_paired_mean": int((paired["mean q"] < ALPHA).sum()),
                f"{prefix}_paired_only_variance": ", ".join(only) or "none",
                f"{prefix}_paired_least_p": 2 / 2 ** len(pairs),
            }
        )
    report.table(f"{prefix}_poles", _poles(feature_scores(model, names=rows.features)))
    best = str(tested["loadings"].table["p"].idxmin())
    report.add(**{f"{prefix}_axis": best})
    named = origin.map(ORIGINS)
    order = [o for o in ORIGINS.values() if o in set(named)]
    report.figure(
        f"{prefix}_origin",
        plotting.plot_covariate(
            model,
            best,
            pd.Series(pd.Categorical(named, order), index=named.index),
            corrected=False,
            label="",
            annotate=False,
        ),
    )


def paired_samples(origin: pd.Series) -> list[tuple[str, str]]:
    """Return (normal, tumour) samples of one patient: names that end in the same number after N and T."""
    tumours = {name.replace("_T", "_N"): name for name in origin.index if origin[name] == "tLung" and "_T" in name}
    return [(name, tumours[name]) for name in origin.index if origin[name] == "nLung" and name in tumours]


def paired_tests(model: MCPCA, rows: Rows, pairs: list[tuple[str, str]]) -> pd.DataFrame:
    """Compare tumour with normal tissue of the same patients, MCPC by MCPC: log variance and mean of the scores.

    Exact: of all ways to exchange the two samples of patients, the share with a mean difference as large.
    """
    scores = rows.X @ model.projection_.T
    labels = np.asarray(rows.y)
    moments = {
        name: (scores[labels == name].mean(axis=0), np.log(scores[labels == name].var(axis=0, ddof=1)))
        for pair in pairs
        for name in pair
    }
    differences = [np.array([moments[t][m] - moments[n][m] for n, t in pairs]) for m in (1, 0)]
    p = [_sign_flips(D) for D in differences]
    q = [false_discovery_control(one) for one in p]
    return pd.DataFrame(
        {
            "MCPC": [f"MCPC {j + 1}" for j in range(model.n_components_)],
            "variance, tumour / normal": np.exp(differences[0].mean(axis=0)),
            "variance p": p[0],
            "variance q": q[0],
            "mean, tumour - normal": differences[1].mean(axis=0),
            "mean p": p[1],
            "mean q": q[1],
        }
    )


def _sign_flips(D: Array) -> Array:
    """Return two-sided p-values (r,) of the column means of D (n, r), over all 2^n signs, or 10,000 where n > 13."""
    n = len(D)
    if n <= 13:
        signs = np.array(list(itertools.product((1.0, -1.0), repeat=n)))
    else:
        signs = np.vstack([np.ones(n), np.random.default_rng(0).choice((1.0, -1.0), (9999, n))])
    return np.asarray((np.abs(signs @ D) >= np.abs(D.sum(axis=0)) - 1e-9).mean(axis=0))


def _spread_not_mean(tested: dict[str, Association]) -> list[str]:
    """Return MCPCs whose variance is significant after correction while their mean is not even before it."""
    mean = tested["mean"].table["p"]
    return [name for name in tested["variance"].significant if mean[name] >= ALPHA]


def _pc_sds(tested: dict[str, Association]) -> list[str]:
    """Return the PCs whose standard deviation goes with the covariate after correction."""
    table = tested["loadings"].pc_sds
    return [] if table is None else [str(name) for name in table.index[table["significant"]]]


def _tests_table(tested: dict[str, Association]) -> pd.DataFrame:
    table = pd.DataFrame({"MCPC": list(tested["loadings"].table.index)})
    for of, one in tested.items():
        table[f"{of}, p"] = one.table["p"].to_numpy()
        table[f"{of}, Bonferroni"] = one.table["bonferroni"].to_numpy()
    table["beyond PCA"] = np.where(tested["loadings"].table["beyond_pca"], "yes", "no")
    return table


def _poles(genes: pd.DataFrame) -> pd.DataFrame:
    table = top_features(genes, 5).groupby(["component", "pole"], sort=False)["feature"].agg(", ".join).unstack("pole")
    return table.reset_index().rename(columns={"component": "MCPC"})


def _study_melanoma(rows: Rows, report: Report, permutations: int) -> None:
    """Patients without a covariate: whether they differ in their axes at all."""
    Z, _ = pooled_axes(rows, 30)
    model = MCPCA(RANK, random_state=0).fit(Z, rows.y)
    again = model.replicability(Z, rows.y, random_state=0)
    null = permuted_fits(Z, rows.y, RANK, permutations, spread, seed=1)
    report.add(
        melanoma_cells=len(rows.y),
        melanoma_patients=len(model.contexts_),
        melanoma_genes=len(rows.features),
        melanoma_replicating=again.n_replicating,
        **Chance(spread(model), np.array(null)).numbers("melanoma_spread"),
    )
    report.figure("melanoma", plotting.plot_loadings(model, normalize="component", order="cluster"))


def _verdict(n: dict[str, Any], prefix: str) -> bool | str:
    if n[f"{prefix}_only_variance"] != "none":
        return True
    return "only in pairs of tissues" if n.get(f"{prefix}_paired_only_variance", "none") != "none" else False


def _claims(report: Report) -> None:
    n = report.numbers
    for prefix, cells in (("myeloid", "myeloid cells"), ("t", "T and NK cells")):
        report.claim(
            f"Loadings go with a covariate of samples ({cells})",
            "MCPC 5 with stage, in cancer cells",
            f"{n[f'{prefix}_loadings_significant']} of {RANK} MCPCs with the origin of the sample",
            f"at most {ALPHA} of {RANK} expected, by {n[f'{prefix}_reassignments']} reassignments",
            bool(n[f"{prefix}_loadings_significant"] > 0),
        )
        report.claim(
            f"Variance, and not the mean ({cells})",
            "MCPC 5: variance with stage, mean not",
            f"by origin: {n[f'{prefix}_only_variance']}"
            + (f"; in pairs of tissues: {n[f'{prefix}_paired_only_variance']}" if f"{prefix}_pairs" in n else ""),
            f"the mean goes with origin in {n[f'{prefix}_mean_significant']} of {RANK}",
            _verdict(n, prefix),
        )
        report.claim(
            f"PCA does not see it ({cells})",
            "no PC of 50 has a standard deviation that goes with stage",
            f"{n[f'{prefix}_pc_sds_significant']} of {n[f'{prefix}_pcs']} PCs have one that goes with origin",
            f"at most {ALPHA} of {n[f'{prefix}_pcs']} expected",
            bool(n[f"{prefix}_pc_sds_significant"] == 0 and n[f"{prefix}_beyond_pca"] != "none"),
        )
    report.claim("Stage of the tumour", "I to IV", "not in these files", "", "cannot be told here")
    report.claim(
        "Patients differ in their axes (melanoma)",
        "",
        f"coefficient of variation of loadings {n['melanoma_spread']:.2f}",
        f"mean {n['melanoma_spread_chance']:.2f}, 95% up to {n['melanoma_spread_chance_upper']:.2f}; p = "
        f"{n['melanoma_spread_p']:.2g}",
        bool(n["melanoma_spread_p"] < 0.05),
    )
