"""Digits on grass and clouds: which methods find the digits and the contexts they are in, and what chance would find.

``python studies/run.py digits --data DIR``. The comparison is the benchmark's own, ``mcpca.paper``.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.decomposition import PCA

from benchmarks.digits import best_correlations, composites
from mcpca import MCPCA, IdentifiabilityWarning, plotting
from mcpca.paper.digits import RECOVERED, DigitsSection, run_digits
from mcpca.paper.problems import DATA_FILES, DIGITS
from mcpca.paper.running import LABELS, Progress, Store
from mcpca.sharing import carrying_contexts

from .chance import Array, Chance, covariances, permuted_fits
from .loaders import read_arrays
from .output import Report

FOLDER = "mnist_backgrounds"
METHODS = ("mspm", "pca_stack", "hogsvd", "ffdiag", "nls")  # of the paper's Fig. 2G, without the slowest, QRJ1D
CONTEXTS = ("background", "0 and 2", "1 and 2")
PLANTED = {0: {1}, 1: {2}, 2: {1, 2}}  # contexts that a digit is in
AXES = 100  # pooled PCs in which chance is measured
SECONDS = 20.0


def run(
    data: Path,
    report: Report,
    permutations: int = 200,
    *,
    n: int = 10_000,
    ranks: tuple[int, ...] = (9, 11, 13, 15, 17, 19, 21),
    draws: int = 2,
) -> None:
    """Study the digits with ``n`` images in each of three contexts, as in the paper."""
    for name, keys in DATA_FILES.items():
        read_arrays(data, FOLDER, name, keys)
    folder = data / FOLDER
    section = DigitsSection("digits", "Digits on grass and clouds", n, ranks, draws, folder, METHODS)
    with tempfile.TemporaryDirectory() as place:
        rank_record, *records = run_digits(section, Store(Path(place) / "digits.jsonl"), SECONDS, Progress())
    rank = int(rank_record["rank"])
    report.say(f"rank {rank}: {rank_record['reason']}")
    report.add(n=n, draws=draws, rank=rank, rank_reason=rank_record["reason"], permutations=permutations)
    table = _methods(records)
    report.table("methods", table)
    ours = table[table["method"] == LABELS["mspm"]].iloc[0]
    report.add(recovered=int(ours["draws with all three"]), **{f"corr_{d}": ours[f"corr {d}"] for d in DIGITS})
    others = table[(table["method"] != LABELS["mspm"]) & (table["draws with all three"] > 0)]["method"]
    report.add(others=", ".join(others) or "none")

    contexts, means = composites(str(folder), seed=0, n=n)
    X, y = np.vstack(contexts), np.repeat([0, 1, 2], [len(rows) for rows in contexts])
    S, counts = covariances(X, y, len(contexts))
    with warnings.catch_warnings():
        # Three contexts do not tell all of so many MCPCs apart; the report counts them.
        warnings.simplefilter("ignore", IdentifiabilityWarning)
        model = MCPCA(rank, random_state=0).fit_covariances(S, n_samples=counts, context_names=list(CONTEXTS))
    report.add(proportional=len(model.proportional_loadings()))
    _draw(report, model, means)
    _compare_with_chance(report, X, y, means, _other_digits(folder), rank, permutations)
    _claims(report)


def _methods(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Return a row for each method: the correlations with the mean digits, and in how many draws all are recovered."""
    rows = []
    for name in METHODS:
        own = [record for record in records if record["method"] == name and "failed" not in record]
        row: dict[str, Any] = {"method": LABELS[name]}
        for i, d in enumerate(DIGITS):
            row[f"corr {d}"] = float(np.mean([record["correlations"][i] for record in own])) if own else np.nan
        row["digits recovered"] = float(np.mean([sum(record["recovered"]) for record in own])) if own else 0.0
        row["draws with all three"] = sum(all(record["recovered"]) for record in own)
        row["draws"] = sum(record["method"] == name for record in records)
        rows.append(row)
    return pd.DataFrame(rows)


def _other_digits(folder: Path) -> Array:
    """Return the mean images of the digits that are in no context: 3 to 9."""
    with np.load(folder / "mnist.npz") as file:
        images, labels = file["x_train"], file["y_train"]
    others = [d for d in np.unique(labels) if d not in DIGITS]
    return np.stack([images[labels == d].mean(axis=0).ravel() / 255 for d in others])


def _compare_with_chance(
    report: Report, X: Array, y: Array, means: Array, others: Array, rank: int, permutations: int
) -> None:
    """Measure, in the space of pooled PCs, the likeness to digits and the loadings when contexts are dealt anew."""
    axes = PCA(min(AXES, X.shape[1]), svd_solver="covariance_eigh").fit(X)
    Z = axes.transform(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)
        model = MCPCA(rank, random_state=0).fit(Z, y)

    def found(fit: MCPCA) -> tuple[Array, int]:
        pictures = axes.components_.T @ fit.components_
        return best_correlations(pictures, means), _in_place(fit, pictures, means)

    observed, in_place = found(model)
    null = permuted_fits(Z, y, rank, permutations, found, seed=1)
    chance = np.array([one[0] for one in null])
    for i, d in enumerate(DIGITS):
        report.add(**Chance(float(observed[i]), chance[:, i]).numbers(f"digit_{d}"))
    report.add(**Chance(in_place, np.array([one[1] for one in null])).numbers("in_place"))
    absent = best_correlations(axes.components_.T @ model.components_, others)
    report.add(absent_mean=float(absent.mean()), absent_most=float(absent.max()))


def _in_place(model: MCPCA, pictures: Array, means: Array) -> int:
    """Return how many digits are recovered: like their mean image, alone, and loaded in the contexts they are in."""
    likeness = np.abs(np.corrcoef(means, pictures.T)[: len(means), len(means) :])
    best = likeness.argmax(axis=1)
    good = 0
    for i, d in enumerate(DIGITS):
        j = best[i]
        carried = set(carrying_contexts(np.asarray(model.loadings_)[:, j]).tolist())
        good += bool(likeness[i, j] >= RECOVERED and (best == j).sum() == 1 and carried == PLANTED[d])
    return good


def _draw(report: Report, model: MCPCA, means: Array) -> None:
    """Draw the mean digits above the MCPCs that are most like them, with the contexts that carry these."""
    side = round(np.sqrt(means.shape[1]))
    correlations = np.corrcoef(means, model.components_.T)[: len(means), len(means) :]
    best = np.abs(correlations).argmax(axis=1)
    figure, axes = plt.subplots(2, len(means), figsize=(6.2, 4.8), constrained_layout=True)
    for i, d in enumerate(DIGITS):
        image = model.components_[:, best[i]] * np.sign(correlations[i, best[i]])
        carried = ", ".join(f'"{CONTEXTS[c]}"' for c in carrying_contexts(np.asarray(model.loadings_)[:, best[i]]))
        for row, picture, title in (
            (0, means[i], f"mean digit {d}"),
            (1, image, f"MCPC {best[i] + 1}\nin {carried}\n|corr| {abs(correlations[i, best[i]]):.2f}"),
        ):
            ax = axes[row, i]
            bound = np.abs(picture).max()
            ax.imshow(picture.reshape(side, side), cmap="RdBu_r", vmin=-bound, vmax=bound)
            ax.set_title(title, fontsize=9)
            ax.set_axis_off()
    report.figure("digits", figure)
    report.figure("loadings", plotting.plot_loadings(model, normalize="component"))


def _claims(report: Report) -> None:
    n = report.numbers
    report.claim(
        "MCPCA finds the digits",
        "0, 1 and 2 are clear",
        f"|corr| {n['corr_0']:.2f}, {n['corr_1']:.2f}, {n['corr_2']:.2f}; all three recovered in {n['recovered']} of "
        f"{n['draws']} draws",
        f"contexts dealt anew: {n['digit_0_chance']:.2f}, {n['digit_1_chance']:.2f}, {n['digit_2_chance']:.2f}; digits "
        f"that are not there: {n['absent_mean']:.2f}",
        "partly" if 0 < n["recovered"] < n["draws"] else bool(n["recovered"]),
    )
    report.claim(
        "Loadings tell where the digits are",
        "0 in context 2, 1 in 3, 2 in both",
        f"{n['in_place']:.0f} of 3 digits, on pooled PCs",
        f"{n['in_place_chance']:.2f} of 3; p = {n['in_place_p']:.2g}",
        bool(n["in_place_p"] < 0.05),
    )
    report.claim(
        "Of the other methods only NLS finds them",
        "FFDIAG, HO GSVD and pooled PCA do not",
        f"all three in some draw: {n['others']}",
        "",
        bool(n["others"] == LABELS["nls"]),
    )
