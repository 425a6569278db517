"""describe: a card says what is there, and nothing that is not."""

import numpy as np
import pandas as pd
import pytest
from unequal_noise import fitted_to, two_groups

import mcpca.analysis as analysis
from mcpca import MCPCA, Replicability
from mcpca.datasets import make_contexts


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((20, 3))
    A /= np.linalg.norm(A, axis=0)
    B = np.array([[9, 0.0, 2], [0, 4, 2], [0, 4, 2.1], [0.01, 0, 2], [0, 0, 1.9], [0, 0.1, 2]])
    X = np.vstack([(rng.standard_normal((60, 3)) * np.sqrt(b)) @ A.T for b in B])
    names = ["thyroid", "liver", "lung", "skin", "brain", "colon"]
    return pd.DataFrame(X, columns=[f"g{j}" for j in range(20)]), np.repeat(names, 60)


@pytest.fixture(scope="module")
def model(data):
    return MCPCA(3, random_state=0).fit(*data)


def lines(card, start):
    return [line for line in card.splitlines() if line.startswith(start)]


def test_contexts_that_carry_an_mcpc_are_named(model):
    cards = analysis.describe(model)
    assert list(cards) == ["MCPC 1", "MCPC 2", "MCPC 3"]
    by_kind = {}
    for name, card in cards.items():
        j = int(name.split()[1]) - 1
        (told,) = lines(card, "Contexts:")
        carried = model.loadings_[:, j] >= model.loadings_[:, j].max() / 2
        assert [str(c) for c in model.contexts_[carried] if f"{c} (" in told.partition("Carried by")[2]] == [
            str(c) for c in model.contexts_[carried]
        ]
        assert not any(f"{c} (" in told for c in model.contexts_[~carried])
        share = 100 * model.loadings_[:, j].sum() / model.loadings_.sum()
        assert f"{share:.2g}% of the variance" in told
        by_kind |= {kind: name for kind in ("specific to one", "Some contexts share", "broad") if kind in told}
    assert len(by_kind) == 3
    assert "thyroid (" in cards[by_kind["specific to one"]]


def test_contexts_are_listed_by_corrected_loadings_unless_told_otherwise():
    X, y, *_ = two_groups()
    noisy = fitted_to(X, y)
    said = {
        True: "corrected loadings: the noise of each context is taken out",
        False: "loadings as fitted: the noise of each context is in them",
    }
    for corrected, B in ((True, noisy.corrected_loadings_), (False, noisy.loadings_)):
        card = analysis.describe(noisy, corrected=corrected, components=2, n=20)["MCPC 3"]
        (told,) = lines(card, "Contexts:")
        assert f"the variance along it ({said[corrected]})." in told
        b = B[:, 2]
        for i in np.flatnonzero(b >= b.max() / 2):
            assert f"{noisy.contexts_[i]} ({b[i]:.3g})" in told
        # As fitted only contexts with much noise seem to carry it.
        assert ("quiet" in told) == corrected
    # Loadings of a test are named if they are others than those of the card.
    found = analysis.associate(noisy, list(range(12)), corrected=False)
    card = analysis.describe(noisy, association=found)["MCPC 1"]
    assert f"Covariate: its loadings ({said[False]}) against the covariate in 12 contexts" in card
    card = analysis.describe(noisy, association=found, corrected=False)["MCPC 1"]
    assert "Covariate: its loadings against the covariate in 12 contexts" in card


def test_poles_are_those_of_the_mcpc(model):
    card = analysis.describe(model, components=1, n=3)["MCPC 2"]
    a = model.components_[:, 1]
    (positive,), (negative,) = lines(card, "Positive pole, features"), lines(card, "Negative pole, features")
    for line, order in ((positive, np.argsort(-a)), (negative, np.argsort(a))):
        assert line.endswith(": " + ", ".join(f"g{i} ({a[i]:+.2g})" for i in order[:3]) + ".")


def test_sets_and_rows_are_named(data, model):
    X, y = data
    order = np.argsort(-model.components_[:, 0])
    sets = {"planted": [f"g{i}" for i in order[:5]], "other": [f"g{i}" for i in order[7:12]]}
    enriched = analysis.enrichment(model, sets, n=5)
    samples = analysis.top_samples(model, 2, names=[f"patient {i} " + "x" * 300 for i in range(360)], X=X, y=y)
    card = analysis.describe(model, components=0, enriched=enriched, samples=samples, n=2)["MCPC 1"]
    row = enriched[(enriched["set"] == "planted") & (enriched["component"] == "MCPC 1")].iloc[0]
    (sets_line,) = lines(card, "Positive pole, enriched")
    assert sets_line == f"Positive pole, enriched sets: planted (5 of its 5 features, q = {row['q']:.1g})."
    assert lines(card, "Negative pole, enriched") == ["Negative pole, enriched sets: none at FDR < 0.001."]
    top = samples[(samples["component"] == "MCPC 1") & (samples["pole"] == "positive")]
    told = lines(card, "- ")
    assert len(told) == 4
    assert told[0].startswith(f"- patient {top['row'].iloc[0]} xxx")
    assert told[0].endswith(f"... [{top['context'].iloc[0]}]")
    assert max(map(len, told)) < 230
    ranks = analysis.enrichment(model, sets, method="ranked")
    assert "planted (AUC 1.00" in analysis.describe(model, components=0, enriched=ranks, max_q=0.05)["MCPC 1"]


def test_sets_are_named_by_their_false_discovery_rate(model):
    rows = [("s", 1e-5, 1e-4), ("t", 1e-4, 0.01), ("u", 2e-6, 2e-5)]
    given = pd.DataFrame(rows, columns=["set", "p", "q"]).assign(component="MCPC 1", pole="negative")
    card = analysis.describe(model, enriched=given, components=0)["MCPC 1"]
    assert lines(card, "Negative pole, enriched") == ["Negative pole, enriched sets: u (q = 2e-05); s (q = 0.0001)."]


@pytest.mark.parametrize(("mean", "said"), [(0.8996, "0.8996"), (0.90004, "0.90004"), (0.9, "0.90"), (0.85, "0.85")])
def test_a_mean_is_not_rounded_across_the_bound_beside_it(model, mean, said):
    halves = Replicability(np.full((1, 3), mean))
    card = analysis.describe(model, sure=halves)["MCPC 1"]
    again = "comes back" if mean > 0.9 else "does not come back"
    assert f"it {again} in halves of the rows (mean |cos| {said}; more than 0.9 is required)" in card


@pytest.mark.parametrize("by", ["groups", "contexts"])
def test_halves_are_called_by_what_was_split(model, by):
    card = analysis.describe(model, sure=Replicability(np.ones((2, 3)), by=by))["MCPC 1"]
    assert f"it comes back in halves of the {by} (mean" in card


def test_a_design_says_what_it_is_beside_and_within(model):
    k = len(model.contexts_)
    about = pd.DataFrame(
        {"time": ["before", "after"] * (k // 2), "age": np.arange(k) ** 1.5, "patient": np.arange(k) // 2},
        index=list(model.contexts_),
    )
    tested = analysis.associate(model, "time + age", data=about, block="patient")
    (line,) = lines(analysis.describe(model, association=tested)["MCPC 1"], "Covariate")
    assert f"against time in {k} contexts, {tested.how}: F = " in line
    assert "beside age" in line


def test_how_sure_is_told_by_what_was_asked(data, model):
    X, y = data
    halves = model.replicability(X, y, 2, random_state=0)
    card = analysis.describe(model, sure=halves)["MCPC 1"]
    again = "comes back" if halves.replicates[0] else "does not come back"
    b = model.loadings_[:, 0]
    rows = 60 * (b >= b.max() / 2).sum()
    told = (
        f"it {again} in halves of the rows (mean |cos| {halves.agreement[0]:.2f}, sd {halves.spread[0]:.2f} over 2 "
        f"splits; more than 0.9 is required); {rows} rows in the"
    )
    assert f"How sure: {told} contexts that carry it." in card
    spread = model.bootstrap(X, y, 3, random_state=0)
    card = analysis.describe(model, sure=spread)["MCPC 2"]
    assert f"95% of resamples stay within {spread.angle_bounds[1]:.0f} degrees" in card
    assert "not assessed" in analysis.describe(model)["MCPC 1"]
    ml = MCPCA(3, solver="ml", random_state=0).fit(X + 0.1 * np.random.default_rng(0).standard_normal(X.shape), y)
    errors = ml.standard_errors()
    assert f"expected to be {errors.angles[2]:.1f} degrees" in analysis.describe(ml, sure=errors)["MCPC 3"]


def test_mcpcs_that_cannot_be_told_apart_are_said_to_be_so():
    S = np.stack([np.diag([3.0, 2, 1]) * s for s in (1, 2)]) + np.stack([np.diag([0, 0, s]) for s in (1.0, 5)])
    with pytest.warns(UserWarning, match="proportional"):
        model = MCPCA(3, random_state=0).fit_covariances(S)
    cards = analysis.describe(model)
    alike = {name for name, card in cards.items() if "cannot be told apart" in card}
    assert len(alike) == 2
    for name in alike:
        assert f"proportional to those of {(alike - {name}).pop()}," in cards[name]


def test_an_association_is_told(data, model):
    found = analysis.associate(model, list(range(6)))
    card = analysis.describe(model, association=found, components="MCPC 3")["MCPC 3"]
    row = found.table.loc["MCPC 3"]
    told = (
        f"Covariate: its loadings against the covariate in 6 contexts: Spearman's correlation {row['spearman']:.2f}; "
    )
    assert told + f"p = {row['p']:.2g}, " in card
    ages = pd.Series(range(6), index=model.contexts_, name="age")
    card = analysis.describe(model, association=analysis.associate(model, ages), components=0)["MCPC 1"]
    assert "Covariate: its loadings against age in 6 contexts" in card


def test_tables_of_some_mcpcs_say_nothing_of_the_others(data, model):
    X, y = data
    enriched = analysis.enrichment(model, {"s": [f"g{i}" for i in range(5)]}, n=5, components=0)
    samples = analysis.top_samples(model, 2, X=X, y=y, components=0)
    cards = analysis.describe(model, enriched=enriched, samples=samples)
    assert lines(cards["MCPC 1"], "Positive pole, enriched") == ["Positive pole, enriched sets: none at FDR < 0.001."]
    for pole in ("Positive", "Negative"):
        assert lines(cards["MCPC 2"], f"{pole} pole, enriched") == [f"{pole} pole, enriched sets: not looked for."]
        assert lines(cards["MCPC 2"], f"{pole} pole, rows") == [f"{pole} pole, rows: not looked for."]


def test_bad_input(model):
    data = make_contexts(4, 5, 2, n_samples=20, random_state=0)
    other = MCPCA(2, random_state=0).fit(data.X, data.y).replicability(data.X, data.y, 1, random_state=0)
    with pytest.raises(ValueError, match=r"enriched lacks the columns \['pole', 'set', 'p', 'q'\]"):
        analysis.describe(model, enriched=pd.DataFrame({"component": []}))
    with pytest.raises(ValueError, match="samples lacks the columns"):
        analysis.describe(model, samples=[1])
    with pytest.raises(TypeError, match="association is a dict"):
        analysis.describe(model, association={})
    with pytest.raises(TypeError, match="sure is a float"):
        analysis.describe(model, sure=0.9)
    two = MCPCA(2, random_state=0).fit(data.X, data.y)
    with pytest.raises(ValueError, match="enriched is of MCPC 3, and the fit has MCPC 1 to MCPC 2"):
        analysis.describe(two, enriched=analysis.enrichment(model, {"s": [f"g{i}" for i in range(5)]}, n=5))
    with pytest.raises(ValueError, match="association is of MCPC 3, and the fit has MCPC 1 to MCPC 2"):
        analysis.describe(two, association=analysis.associate(model, range(6)))
    with pytest.raises(ValueError, match="association is of 2 MCPCs, and the fit has 3"):
        analysis.describe(model, association=analysis.associate(two, range(4)))
    with pytest.raises(ValueError, match="sure is of 2 MCPCs, and the fit has 3"):
        analysis.describe(model, sure=other)
    with pytest.raises(ValueError, match="max_q=2 is out of bounds"):
        analysis.describe(model, max_q=2)


def test_a_rank_that_was_chosen_tells_of_its_mcpcs():
    data = make_contexts(5, 12, 2, n_samples=80, noise=0.3, random_state=0)
    cards = analysis.describe(MCPCA(random_state=0).fit(data.X, data.y))
    assert all("|cos|" in card and "differs between contexts" in card for card in cards.values())
    silent = analysis.describe(MCPCA(2, random_state=0).fit(data.X, data.y))
    assert not any("differs between contexts" in card for card in silent.values())
