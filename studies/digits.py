"""Digits on grass and clouds: which methods find the digits and the contexts they are in, and what chance would find.

``python studies/run.py digits --data DIR``. The comparison is the benchmark's own, ``mcpca.paper``.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning

from benchmarks.digits import best_correlations, composites
from mcpca import MCPCA, IdentifiabilityWarning, choose_rank, plotting
from mcpca.paper.digits import RECOVERED, draw_data, measure_method
from mcpca.paper.problems import DATA_FILES, PLANTED_DIGITS
from mcpca.paper.running import LABELS
from mcpca.sharing import carrying_contexts

from .chance import Array, Chance, covariances, permuted_fits
from .loaders import read_arrays
from .output import Report

FOLDER = "mnist_backgrounds"
RANK = 17  # the paper's
METHODS = ("mspm", "pca_stack", "hogsvd", "ffdiag", "qrj1d", "nls")  # of the paper's Fig. 2G
CONTEXTS = ("background", "0 and 2", "1 and 2")
PLANTED = {0: {1}, 1: {2}, 2: {1, 2}}  # contexts that a digit is in
AXES = 100  # pooled PCs in which chance is measured
RULE, COSINE, UNIT = CURVES = ("seeds, as the authors pair", "seeds, by cos", "in another unit")


def run(
    data: Path,
    report: Report,
    permutations: int = 200,
    *,
    n: int = 10_000,
    rank: int = RANK,
    ranks: tuple[int, ...] = (9, 11, 13, 15, 17, 19, 21),
    draws: int = 5,
) -> None:
    """Study the digits with ``n`` images in each of three contexts, as in the paper.

    Methods are compared at ``rank``; ``ranks`` tell what another one would change.
    """
    for name, keys in DATA_FILES.items():
        read_arrays(data, FOLDER, name, keys)
    folder = data / FOLDER
    report.add(n=n, draws=draws, rank=rank, permutations=permutations)
    records, curve = _compare(folder, n, rank, ranks, draws, report)
    report.table("draws", records, on_page=False)
    report.table("stability", curve, on_page=False)
    _add_methods(report, records[records["rank"] == rank])
    _add_ranks(report, records[records["method"] == LABELS["mspm"]], curve, rank)

    contexts, means = composites(str(folder), seed=0, n=n)
    X = np.vstack(contexts)
    y = np.repeat([0, 1, 2], [len(rows) for rows in contexts])
    S, counts = covariances(X, y, len(contexts))
    with warnings.catch_warnings():
        # Three contexts do not tell all of so many MCPCs apart; the report counts them.
        warnings.simplefilter("ignore", IdentifiabilityWarning)
        model = MCPCA(rank, random_state=0).fit_covariances(S, n_samples=counts, context_names=list(CONTEXTS))
    report.add(proportional=len(model.proportional_loadings()))
    _draw(report, model, means)
    _compare_with_chance(report, X, y, means, _other_digits(folder), rank, permutations)
    _claims(report)


def _compare(
    folder: Path, n: int, rank: int, ranks: tuple[int, ...], draws: int, report: Report
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a row for each draw, method and rank, and one for each draw and rank with the agreement of seeds.

    No method has a limit of time: what it found would depend on the machine.
    """
    records = []
    curve = []
    for draw in range(draws):
        data = draw_data(folder, n, draw)
        # The same data in another unit: cosines are the same but for rounding, since 3 is no power of two.
        ways = ((data.covariances, "authors"), (data.covariances, "greedy"), (3 * data.covariances, "authors"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # counted below
            choices = [choose_rank(S, ranks, matching=matching, random_state=23) for S, matching in ways]
        choice = choices[0]
        report.say(f"draw {draw + 1} of {draws}: {choice.reason}")
        for i, r in enumerate(choice.ranks.tolist()):
            scores = {name: float(c.mean_scores[i]) for name, c in zip(CURVES, choices, strict=True)}
            kept = {"threshold": choice.threshold, "not converged": int(choice.unsettled[i])}
            curve.append({"draw": draw + 1, "rank": r} | scores | kept)
        runs = [(name, rank) for name in METHODS] + [("mspm", r) for r in ranks if r != rank]
        for name, r in runs:
            found = measure_method(name, data, r, draw, None)
            row: dict[str, Any] = {"draw": draw + 1, "method": LABELS[name], "rank": r}
            for i, d in enumerate(PLANTED_DIGITS):
                row[f"corr {d}"] = found["correlations"][i] if "correlations" in found else np.nan
            records.append(row | {"recovered": sum(found.get("recovered", ())), "failed": found.get("failed", "")})
    return pd.DataFrame(records), pd.DataFrame(curve)


def _add_methods(report: Report, records: pd.DataFrame) -> None:
    """Keep what each method makes of the draws, at one rank."""
    rows = {LABELS[name]: records[records["method"] == LABELS[name]] for name in METHODS}
    report.table("methods", pd.DataFrame([{"method": name} | _over_draws(own) for name, own in rows.items()]))
    ours = rows.pop(LABELS["mspm"])
    report.add(recovered=_with_all(ours))
    for d in PLANTED_DIGITS:
        corr = ours[f"corr {d}"]
        report.add(**{f"corr_{d}": corr.mean(), f"corr_{d}_least": corr.min(), f"corr_{d}_most": corr.max()})
    others = {name: times for name, own in rows.items() if (times := _with_all(own))}
    report.add(
        others=", ".join(f"{name} in {times}" for name, times in others.items()) or "none",
        others_only_nls=set(others) == {LABELS["nls"]},
    )


def _add_ranks(report: Report, records: pd.DataFrame, curve: pd.DataFrame, rank: int) -> None:
    """Keep what MCPCA finds at each rank, beside what the paper's rule says of the rank."""
    threshold = float(curve["threshold"].iloc[0])
    rows = []
    with_all = []
    for r, own in curve.groupby("rank"):
        score = own[RULE]
        agreement = {RULE: _range(score), "draws in which it passes": int((score > threshold).sum())}
        agreement |= {COSINE: _range(own[COSINE])}
        rows.append({"rank": r} | agreement | _over_draws(records[records["rank"] == r]))
        with_all.append(_with_all(records[records["rank"] == r]))
    report.table("ranks", pd.DataFrame(rows))
    chosen = [_chosen_ranks(curve, column, threshold) for column in CURVES]
    nearest = curve.loc[(curve[RULE] - threshold).abs().idxmin()]
    passed = curve[(curve["rank"] == rank) & (curve[RULE] > threshold)]
    report.add(
        threshold=threshold,
        rule_ranks=", ".join(chosen[0]),
        rule_ranks_cosine=", ".join(chosen[1]),
        rule_ranks_rounded=", ".join(chosen[2]),
        rule_changed=sum(a != b for a, b in zip(chosen[0], chosen[2], strict=True)),
        rounding_most=float((curve[RULE] - curve[UNIT]).abs().max()),
        cosine_least=float(curve[COSINE].min()),
        rule_unsettled=int(curve["not converged"].sum()),
        rule_runs=10 * len(curve),
        rule_passes=len(passed),
        rule_nearest_rank=int(nearest["rank"]),
        rule_nearest_draw=int(nearest["draw"]),
        rule_nearest=nearest[RULE],
        rule_nearest_by=abs(nearest[RULE] - threshold),
        ranks_least=int(curve["rank"].min()),
        ranks_most=int(curve["rank"].max()),
        recovered_least=min(with_all),
        recovered_most=max(with_all),
    )


def _chosen_ranks(curve: pd.DataFrame, column: str, threshold: float) -> list[str]:
    """Return what the paper's rule chooses in each draw."""
    largest = curve[curve[column] > threshold].groupby("draw")["rank"].max()
    return [str(largest.get(draw, "none")) for draw in curve["draw"].unique()]


def _over_draws(records: pd.DataFrame) -> dict[str, Any]:
    """Return the mean and the range of correlations over draws, and in how many of them all digits are recovered."""
    corr = {f"corr {d}": _range(records[f"corr {d}"]) for d in PLANTED_DIGITS}
    recovered = float(records["recovered"].mean())
    return corr | {"digits recovered": recovered, "draws with all three": f"{_with_all(records)} of {len(records)}"}


def _with_all(records: pd.DataFrame) -> int:
    return int((records["recovered"] == len(PLANTED_DIGITS)).sum())


def _range(values: pd.Series) -> str:
    if values.isna().all():
        return ""
    return f"{values.mean():.2f} ({values.min():.2f} to {values.max():.2f})"


def _other_digits(folder: Path) -> Array:
    """Return the mean images of the digits that are in no context: 3 to 9."""
    with np.load(folder / "mnist.npz") as file:
        images = file["x_train"]
        labels = file["y_train"]
    others = [d for d in np.unique(labels) if d not in PLANTED_DIGITS]
    return np.stack([images[labels == d].mean(axis=0).ravel() / 255 for d in others])


def _compare_with_chance(
    report: Report, X: Array, y: Array, means: Array, others: Array, rank: int, permutations: int
) -> None:
    """Measure, in the space of pooled PCs, the similarity to digits and the loadings when contexts are permuted."""
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
    for i, d in enumerate(PLANTED_DIGITS):
        report.add(**Chance(float(observed[i]), chance[:, i]).numbers(f"digit_{d}"))
    report.add(**Chance(in_place, np.array([one[1] for one in null])).numbers("in_place"))
    absent = best_correlations(axes.components_.T @ model.components_, others)
    report.add(absent_mean=float(absent.mean()), absent_most=float(absent.max()))


def _in_place(model: MCPCA, pictures: Array, means: Array) -> int:
    """Return how many digits are recovered: like their mean image, alone, and loaded in the contexts they are in."""
    likeness = np.abs(np.corrcoef(means, pictures.T)[: len(means), len(means) :])
    best = likeness.argmax(axis=1)
    good = 0
    for i, d in enumerate(PLANTED_DIGITS):
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
    for i, d in enumerate(PLANTED_DIGITS):
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
        f"draws of {n['draws']} with all three: {n['others']}",
        "",
        n["others_only_nls"],
    )
