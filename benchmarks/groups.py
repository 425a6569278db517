"""Rows in groups (cells of donors): what is found, and which errors to believe, with and without ``groups=``.

    python benchmarks/groups.py [--only null planted errors presence] [--seeds 100] [--first 0]

``null``: donors differ by random shifts, and rows vary by noise; there is nothing to find, and rank 0 is right. Nested
donors are in one context each, crossed donors in all of them with the same shift. ``planted``: three axes beside the
shifts, which are found if the recommended rank is 3 and halves agree. ``errors``: donors differ along the axes; how
often 95% intervals of loadings (``solver="ml"``) contain the truth of other donors, and the angle of the MCPCs over the
one that is expected. ``presence``: how often an MCPC is called present (p < 0.05) where only donors' shifts outside of
it are.
"""

from __future__ import annotations

import argparse
import warnings
from typing import NamedTuple

import numpy as np

from mcpca import MCPCA, match_components, select_rank

R = 3


class Design(NamedTuple):
    """k contexts of g donors with n rows of p features each; ``shift`` is the standard deviation of donors' shifts."""

    k: int = 6
    g: int = 6
    n: int = 40
    p: int = 30
    shift: float = 0.5
    crossed: bool = False
    strength: float = 0.0  # largest loading of the planted axes, noise being 1; 0 plants none

    def __str__(self) -> str:
        kind = "crossed" if self.crossed else "nested"
        return f"{self.k} x {self.g} donors, {kind}, {self.n} rows each, p = {self.p}, shift {self.shift:g}"

    def draw(self, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rows, contexts and donors."""
        rng = np.random.default_rng(seed)
        k, g, n, p = self.k, self.g, self.n, self.p
        A = np.linalg.qr(rng.standard_normal((p, R)))[0]
        B = self.strength * rng.uniform(0.2, 1, (k, R)) * (rng.random((k, R)) < 0.7)
        shifts = self.shift * rng.standard_normal((1 if self.crossed else k, g, p))
        shifts = np.broadcast_to(shifts, (k, g, p))
        scores = rng.standard_normal((k, g, n, R)) * np.sqrt(B)[:, None, None]
        X = scores @ A.T + shifts[:, :, None] + rng.standard_normal((k, g, n, p))
        context, donor, _ = np.indices((k, g, n))
        if not self.crossed:
            donor = donor + g * context
        return X.reshape(-1, p), context.ravel(), donor.ravel()


NULLS = [
    Design(),
    Design(shift=1.0),
    Design(shift=2.0),
    Design(crossed=True),
    Design(crossed=True, shift=1.0),
    Design(k=4, g=3, n=60),
    Design(k=8, g=2, n=60),
    Design(k=6, g=20, n=5, shift=1.0),
    Design(k=3, g=6, p=60),
]


def recommended(design: Design, seeds: range, how: str) -> list[tuple[int, str]]:
    """Return rank and outcome for every seed; ``how`` is what the labels of donors are passed as."""
    found = []
    for seed in seeds:
        X, y, donors = design.draw(seed)
        labels = {name: donors for name in how.split("+") if name}
        choice = select_rank(X, y, criteria=(), random_state=seed, verbose=False, **labels)
        found.append((choice.rank, choice.outcome))
    return found


def null(seeds: range) -> None:
    """Print how often rank 0 is recommended where donors only shift."""
    print("| design | rank 0 with groups= | rank 0 without | ranks without (middle 80%) |\n|---|---|---|---|")
    for design in NULLS:
        ranks = np.array([rank for rank, _ in recommended(design, seeds, "groups")])
        without = np.array([rank for rank, _ in recommended(design, seeds[: max(1, len(seeds) // 20)], "")])
        low, high = np.quantile(without, [0.1, 0.9])
        print(
            f"| {design} | {(ranks == 0).mean():.0%} | {(without == 0).mean():.0%} | {low:.0f} to {high:.0f} |",
            flush=True,
        )


def planted(seeds: range) -> None:
    """Print how often three planted axes are found beside shifts of donors."""
    print("| shift | largest loading | groups= | no labels | groups= and batch= |\n|---|---|---|---|---|")
    for strength in (3.0, 6.0, 12.0):
        for shift in (0.0, 0.3, 0.5, 1.0):
            design = Design(shift=shift, strength=strength)
            shares = []
            for how in ("groups", "", "groups+batch"):
                found = recommended(design, seeds, how)
                shares.append(np.mean([rank == R and outcome == "agreed" for rank, outcome in found]))
            print(f"| {shift:g} | {strength:g} | " + " | ".join(f"{share:.0%}" for share in shares) + " |", flush=True)


def _donor_axes(seed: int, g: int, n: int, share: float, k: int = 5, p: int = 15) -> tuple[np.ndarray, ...]:
    """Return rows, contexts, donors, A and B: a ``share`` of the variance of every axis is between donors."""
    rng = np.random.default_rng(seed)
    A = np.linalg.qr(rng.standard_normal((p, R)))[0] + 0.3 * rng.standard_normal((p, R)) / np.sqrt(p)
    A /= np.linalg.norm(A, axis=0)
    B = np.exp(rng.uniform(-0.5, 2.5, (k, R)))  # far from proportional
    of_donors = np.sqrt(share) * rng.standard_normal((k, g, 1, R))
    of_rows = np.sqrt(1 - share) * rng.standard_normal((k, g, n, R))
    X = ((of_donors + of_rows) * np.sqrt(B)[:, None, None]) @ A.T + 0.5 * rng.standard_normal((k, g, n, p))
    context, donor, _ = np.indices((k, g, n))
    return X.reshape(-1, p), context.ravel(), (donor + g * context).ravel(), A, B


def errors(seeds: range) -> None:
    """Print coverage of intervals and expected angles, where axes vary between donors."""
    print(
        "| donors a context | share between donors | coverage without | with groups= | bootstrap, groups= "
        "| angle over expected, without | with |\n|---|---|---|---|---|---|---|"
    )
    for share in (0.0, 0.1, 0.3):
        for g in (4, 6, 12, 30):
            inside: dict[str, list[float]] = {"rows": [], "groups": [], "bootstrap": []}
            squared: dict[str, list[float]] = {"truth": [], "rows": [], "groups": []}
            for seed in seeds:
                X, y, donors, A, B = _donor_axes(seed, g, 360 // g, share)
                model = MCPCA(R, solver="ml", random_state=0, verbose=False).fit(X, y)
                match = match_components(model.components_, A)
                truth = np.empty_like(B)
                truth[:, match.indices] = B
                squared["truth"].append(float((np.arccos(np.minimum(match.cosines, 1)) ** 2).mean()))
                for name, labels in (("rows", {}), ("groups", {"groups": donors})):
                    precision = model.standard_errors(X, y, **labels)
                    low, high = precision.intervals(model.loadings_)
                    inside[name].append(float(((low <= truth) & (truth <= high)).mean()))
                    squared[name].append(float((np.radians(precision.angles) ** 2).mean()))
                if seed < seeds[0] + len(seeds) // 4:
                    drawn = model.bootstrap(X, y, n=60, groups=donors, random_state=seed, verbose=False)
                    inside["bootstrap"].append(float(((drawn.lower <= truth) & (truth <= drawn.upper)).mean()))
            covered = " | ".join(f"{np.mean(inside[name]):.2f}" for name in ("rows", "groups", "bootstrap"))
            angle = np.mean(squared["truth"])
            ratios = " | ".join(f"{np.sqrt(angle / np.mean(squared[name])):.2f}" for name in ("rows", "groups"))
            print(f"| {g} | {share:.0%} | {covered} | {ratios} |", flush=True)


def presence(seeds: range) -> None:
    """Print how often an MCPC is called present in a context without it, beside donors that differ in another axis."""
    print("| donors a context | share between donors | p < 0.05 without | with groups= |\n|---|---|---|---|")
    for share in (0.0, 0.3):
        for g in (4, 6, 12, 30):
            rates: dict[str, list[float]] = {"rows": [], "groups": []}
            for seed in seeds:
                rng = np.random.default_rng(seed)
                k, p, n = 5, 15, 360 // g
                A = np.linalg.qr(rng.standard_normal((p, R)))[0]
                B = np.exp(rng.uniform(-0.5, 2.5, (k, R)))  # far from proportional
                B[0, 0] = 0.0
                of_donors = np.sqrt(share) * rng.standard_normal((k, g, 1, R))
                scores = of_donors + np.sqrt(1 - share) * rng.standard_normal((k, g, n, R))
                # Donors also differ in how noisy their rows are.
                noise = 0.5 * np.exp(0.3 * np.sqrt(share) * rng.standard_normal((k, g, 1, 1)))
                X = (scores * np.sqrt(B)[:, None, None]) @ A.T + noise * rng.standard_normal((k, g, n, p))
                context, donor, _ = np.indices((k, g, n))
                X, y, donors = X.reshape(-1, p), context.ravel(), (donor + g * context).ravel()
                model = MCPCA(R, solver="ml", random_state=0, verbose=False).fit(X, y)
                j = int(match_components(model.components_, A).indices[0])
                for name, labels in (("rows", {}), ("groups", {"groups": donors})):
                    rates[name].append(float(model.presence(X, y, **labels).p_values[0, j] < 0.05))
            print(f"| {g} | {share:.0%} | {np.mean(rates['rows']):.2f} | {np.mean(rates['groups']):.2f} |", flush=True)


SECTIONS = {"null": null, "planted": planted, "errors": errors, "presence": presence}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in arguments.only:
        print(f"\n{name}, {arguments.seeds} data sets each\n", flush=True)
        SECTIONS[name](range(arguments.first, arguments.first + arguments.seeds))


if __name__ == "__main__":
    main()
