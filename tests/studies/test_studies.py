"""Studies find what is planted in small data of their layout, say what is missing, and pages hold the run's numbers."""

import gzip
import itertools
import json
import re
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import study_data
from scipy.stats import false_discovery_control
from threadpoolctl import threadpool_info, threadpool_limits

from mcpca import MCPCA
from mcpca.analysis import link_recall
from mcpca.analysis.links import pairs_called
from mcpca.datasets import make_contexts
from studies import chance, digits, human, loaders, organs, patients, perturb, primates, run, tcga, write_up
from studies.output import RESULTS, Report, plain

DOCS = write_up.DOCS


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return study_data.write_all(tmp_path_factory.mktemp("data"))


class Light(Report):
    """A report whose figures are made and not rendered, which takes most of the time."""

    def figure(self, name, drawn, *, dpi=100):
        plt.close(getattr(drawn, "figure", drawn))
        self._figures[f"{self.study}_{name}.png"] = b""


def quiet(study, kind=Light):
    return kind(study, lambda line: None)


def filled(report, tmp_path):
    """The results as written and read again, after the study's template took them."""
    results = json.loads(report.write(tmp_path / report.study).read_text())
    assert write_up.fill(write_up.read_template(report.study), results)
    return results


# Studies on planted data


def test_tcga_finds_the_axis_of_two_types_and_its_poles(data, tmp_path):
    report = quiet("tcga")
    tcga.run(data, report, 9)
    n = filled(report, tmp_path)["numbers"]
    assert n["types"] == 7
    assert n["n"] == 7 * 60 - 5  # the other machine is left out
    assert n["specific"] + n["shared"] + n["broad"] == n["rank"] == 4
    assert n["organs"] > n["organs_chance_upper"]
    assert n["spread_p"] == pytest.approx(1 / 10)
    assert n["both"] == 175
    assert n["both_best"] > n["both_chance_upper"]
    axes = pd.read_csv(tmp_path / "tcga" / "axes.csv").set_index("MCPC")
    planted = axes[axes["carried by"].isin(["UVM, SKCM", "SKCM, UVM"])]
    assert len(planted) == 1
    sets = pd.read_csv(tmp_path / "tcga" / "sets_everywhere.csv")
    best = sets[sets["component"] == planted.index[0]].sort_values("p").iloc[0]
    assert best["set"] == study_data.SHARED_SET


def test_patients_tell_variance_from_mean(data, tmp_path):
    report = quiet("patients")
    patients.run(data, report, 9)
    n = filled(report, tmp_path)["numbers"]
    for prefix in ("myeloid", "t"):
        assert n[f"{prefix}_samples"] == 14
        assert n[f"{prefix}_pairs"] == 7
        assert n[f"{prefix}_only_variance"] == "MCPC 1"
        means = pd.read_csv(tmp_path / "patients" / f"{prefix}_origin.csv").set_index("MCPC")["mean, Bonferroni"]
        assert means.min() < 0.05 < means["MCPC 1"]
        paired = pd.read_csv(tmp_path / "patients" / f"{prefix}_paired.csv").set_index("MCPC")
        assert paired["variance, tumour / normal"]["MCPC 1"] == pytest.approx(5, rel=0.3)
        assert paired["variance p"]["MCPC 1"] == pytest.approx(2 / 2**7)
    assert n["melanoma_patients"] == 4


def test_perturbations_of_a_pathway_are_recalled(data, tmp_path):
    report = quiet("perturb")
    perturb.run(data, report, 20)
    results = filled(report, tmp_path)
    n = results["numbers"]
    assert n["thp1_perturbations"] == 19  # the control is none
    table = pd.read_csv(tmp_path / "perturb" / "thp1_recall.csv").set_index(["links", "features"])
    own = table.loc["interferon gamma", "mean PCs"]
    assert own["pairs"] == 10
    assert own["recall"] > own["95% of chance"]
    assert own["p"] < 0.05
    np.testing.assert_allclose(table["q"], false_discovery_control(table["p"]), rtol=1e-4)
    assert own["by chance"] == pytest.approx(0.1, abs=0.06)
    k562 = pd.read_csv(tmp_path / "perturb" / "k562_recall.csv").set_index(["links", "features"])
    assert k562.loc["a gene in common", "mean PCs"]["pairs"] == 2


def test_primates_give_the_known_tree(data, tmp_path, monkeypatch):
    monkeypatch.setattr(organs, "RESAMPLES", 3)
    report = quiet("primates", Report)
    primates.run(data, report, 4)
    n = filled(report, tmp_path)["numbers"]
    for name in ("tree", "distances"):
        assert (tmp_path / "primates" / f"primates_{name}.png").read_bytes().startswith(b"\x89PNG")
    assert n["right_loadings"] >= 5
    assert n["right_means"] < n["right_loadings"]
    assert n["names_exchanged"] == pytest.approx(2 / 24)
    assert n["balanced_rows"] == 6
    assert (n["region_groups"], n["region_left_out"]) == (6, "none")
    assert n["region_groups_of_loadings"] == 6 * 4
    assert n["region_groups_loadings"] > n["region_groups_means"]


@pytest.mark.filterwarnings("ignore::mcpca.UncertainRankWarning")  # a few sentences: halves agree at no rank
def test_human_finds_an_axis_of_both_forms_at_different_times(data, tmp_path):
    report = quiet("human")
    human.run(data, report, 5)
    results = filled(report, tmp_path)
    n = results["numbers"]
    assert n["contexts"] == 6
    axes = pd.read_csv(tmp_path / "human" / "axes.csv").set_index("MCPC")
    planted = axes[(axes["forms"] == "both") & (axes["halves, cos"] > 0.9)]
    assert list(planted.index) == [n["axis"]]
    assert planted["peak in fiction"].iloc[0] == "1800-1819"
    assert planted["peak in science"].iloc[0] == "1840-1859"
    assert n["spread"] > n["spread_sentences_upper"]
    poles = pd.read_csv(tmp_path / "human" / "poles.csv")
    assert len(poles) == 40
    # The axis is that of two contexts, and so are most of the sentences at its ends.
    assert poles["context"].isin(["fiction 1800", "science 1840"]).mean() > 0.8


def test_digits_are_found_in_their_contexts(data, tmp_path):
    report = quiet("digits")
    digits.run(data, report, 3, n=200, rank=5, ranks=(3, 5), draws=2)
    results = filled(report, tmp_path)
    n = results["numbers"]
    assert min(n["digit_0"], n["digit_1"], n["digit_2"]) > 0.8
    assert n["recovered"] == n["draws"] == 2
    assert n["corr_0_least"] <= n["corr_0"] <= n["corr_0_most"]
    assert n["in_place"] >= 2
    assert n["in_place"] > n["in_place_chance_upper"]
    # The rank is given; what the rule would say is told, draw by draw.
    draws = pd.read_csv(tmp_path / "digits" / "draws.csv")
    assert draws.groupby("draw").size().tolist() == [len(digits.METHODS) + 1] * 2
    assert set(draws[draws["method"] != "MCPCA (mspm)"]["rank"]) == {n["rank"]}
    curve = pd.read_csv(tmp_path / "digits" / "stability.csv")
    passing = curve[curve[digits.RULE] > n["threshold"]].groupby("draw")["rank"].max()
    assert n["rule_ranks"] == ", ".join(map(str, passing.reindex([1, 2], fill_value="none")))
    by_rank = pd.DataFrame(results["tables"]["ranks"]["rows"], columns=results["tables"]["ranks"]["columns"])
    assert by_rank["rank"].tolist() == [3, 5]
    assert by_rank["draws with all three"].tolist()[1] == "2 of 2"


def test_a_draw_on_the_line_and_draws_without_a_rank():
    report = quiet("digits")
    cosines = {1: [0.9, 0.79999], 2: [0.7, 0.6]}
    curve = pd.DataFrame(
        [
            {"draw": draw, "rank": r, digits.RULE: c, digits.COSINE: c + 0.09, digits.UNIT: c + 0.01}
            | {"threshold": 0.8, "not converged": 1}
            for draw, own in cosines.items()
            for r, c in zip((3, 5), own, strict=True)
        ]
    )
    found = pd.DataFrame(
        [
            {"draw": draw, "rank": r, "corr 0": 0.9, "corr 1": 0.8 + draw / 50, "corr 2": np.nan, "recovered": r - 2}
            for draw in cosines
            for r in (3, 5)
        ]
    )
    digits._add_ranks(report, found, curve, 5)
    n = report.numbers
    assert (n["rule_ranks"], n["rule_ranks_rounded"], n["rule_changed"]) == ("3, none", "5, none", 1)
    assert n["rounding_most"] == pytest.approx(0.01)
    assert (n["rule_ranks_cosine"], n["rule_unsettled"], n["rule_runs"]) == ("5, none", 4, 40)
    assert n["cosine_least"] == pytest.approx(0.69)
    assert (n["rule_nearest_draw"], n["rule_nearest_rank"], n["rule_passes"]) == (1, 5, 0)
    assert n["rule_nearest_by"] == pytest.approx(1e-5)
    rows = report.results()["tables"]["ranks"]["rows"]
    curves = [3, "0.80 (0.70 to 0.90)", 1, "0.89 (0.79 to 0.99)"]
    assert rows[0] == [*curves, "0.90 (0.90 to 0.90)", "0.83 (0.82 to 0.84)", "", 1.0, "0 of 2"]
    assert rows[1][-1] == "2 of 2"


# Threads


def test_numbers_do_not_depend_on_the_threads_of_blas(data, tmp_path, monkeypatch):
    # Runs from different seeds agree on some of so many axes, and rounding alone moves their mean cosine by hundredths.
    monkeypatch.setattr(run, "Report", Light)
    monkeypatch.setattr(digits, "run", partial(digits.run, n=300, rank=5, ranks=(5, 12), draws=1))
    written = []
    for threads in (1, 2):
        out = tmp_path / f"{threads}"
        with threadpool_limits(threads):
            assert run.main(["digits", "--data", str(data), "--output", str(out), "--permutations", "1"]) == 0
        written.append({path.name: path.read_bytes() for path in sorted((out / "digits").iterdir())})
    assert {RESULTS, "stability.csv", "draws.csv"} <= set(written[0])
    assert written[0] == written[1]


def test_studies_run_in_one_thread(tmp_path, monkeypatch):
    def threads():
        return {library["num_threads"] for library in threadpool_info()}

    seen = []
    monkeypatch.setattr(primates, "run", lambda data, report, permutations: seen.append(threads()))
    with threadpool_limits(2):
        assert run.main(["primates", "--data", str(tmp_path), "--output", str(tmp_path)]) == 0
        assert threads() == {2}
    assert seen == [{1}]


# Chance


def test_dealing_contexts_anew_leaves_only_sampling():
    truth = make_contexts(5, 8, 3, n_samples=300, random_state=0)
    model = MCPCA(3, random_state=0).fit(truth.X, truth.y)
    null = chance.permuted_fits(truth.X, truth.y, 3, 19, chance.spread, seed=0)
    assert chance.Chance(chance.spread(model), np.array(null)).p == 1 / 20
    # Rows without contexts of their own are like rows dealt anew.
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((600, 8)) * np.arange(1, 9), np.repeat(list("abc"), 200)
    inside = [
        chance.Chance(
            chance.spread(MCPCA(2, random_state=0).fit(X, labels)),
            np.array(chance.permuted_fits(X, labels, 2, 9, chance.spread, seed=1)),
        ).p
        for labels in (rng.permutation(y) for _ in range(10))
    ]
    assert np.mean(np.array(inside) <= 0.1) <= 0.4


def test_means_of_contexts_do_not_become_covariance():
    X = np.vstack([np.zeros((50, 3)), np.full((50, 3), 100.0)]) + np.random.default_rng(0).standard_normal((100, 3))
    y = np.repeat(["a", "b"], 50)
    rows = chance.centred_by_context(X, y)
    S, n = chance.covariances(rows, np.arange(100) % 2, 2)
    assert n.tolist() == [50, 50]
    assert np.abs(S).max() < 3
    np.testing.assert_allclose(S[0], np.cov(rows[::2], rowvar=False))


def test_groups_are_dealt_whole_and_within_strata():
    codes = np.repeat([0, 0, 1, 1, 2, 3], 10)
    groups = np.repeat(list("abcdef"), 10)
    form = np.where(codes < 2, "x", "y")
    deal = chance.deal_groups(groups, form)
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(50):
        dealt = deal(codes, rng)
        assert all(len(set(dealt[groups == g])) == 1 for g in "abcdef")
        assert set(dealt[form == "x"]) == {0, 1}
        seen.add(tuple(dealt))
    assert len(seen) == 6 * 2
    assert codes.tolist() == np.repeat([0, 0, 1, 1, 2, 3], 10).tolist()
    with pytest.raises(ValueError, match="rows of several contexts"):
        chance.deal_groups(np.repeat("a", 60))(codes, rng)


def test_groups_are_dealt_again_where_a_context_has_too_few_rows():
    sizes = [1, 1, 5, 5, 9, 9]
    codes, groups = np.repeat([0, 0, 0, 1, 1, 1], sizes), np.repeat(list("abcdef"), sizes)
    rng = np.random.default_rng(0)
    for min_rows, smallest in ((2, 7), (11, 11), (15, 15)):
        deal = chance.deal_groups(groups, min_rows=min_rows)
        assert min(np.bincount(deal(codes, rng)).min() for _ in range(200)) == smallest
    with pytest.raises(
        ValueError, match="None of 10000 permutations gives every context min_rows=16 rows; lower min_rows"
    ):
        chance.deal_groups(groups, min_rows=16)(codes, rng)


def test_chance_counts_the_observed_number():
    one = chance.Chance(2.0, np.array([1.0, 2.0, 3.0]))
    assert (one.p, one.mean) == (3 / 4, 2.0)
    assert one.numbers("x")["x_p"] == 3 / 4


def test_sign_flips_are_exact():
    D = np.random.default_rng(0).normal([0, 1, 3], size=(6, 3))
    p = patients._sign_flips(D)
    for j in range(3):
        sums = [
            abs(sum(s * d for s, d in zip(signs, D[:, j], strict=True)))
            for signs in itertools.product((1, -1), repeat=6)
        ]
        assert p[j] == pytest.approx(np.mean([one >= abs(D[:, j].sum()) - 1e-9 for one in sums]))
    assert patients._sign_flips(np.ones((5, 1))) == pytest.approx(2 / 32)


def test_pairs_share_a_patient():
    origin = pd.Series({"LUNG_N01": "nLung", "LUNG_T02": "tLung", "LUNG_N02": "nLung", "LN_02": "nLN"})
    assert patients.paired_samples(origin) == [("LUNG_N02", "LUNG_T02")]


def test_perturbations_with_a_gene_in_common():
    assert perturb.shared_genes(["A", "A+B", "B", "C"]) == [("A", "A+B"), ("A+B", "B")]


def test_recall_when_names_are_exchanged_is_that_of_exchanged_links():
    truth = make_contexts(8, 6, 3, n_samples=40, random_state=0)
    models = [MCPCA(r, random_state=0).fit(truth.X, truth.y) for r in (2, 3)]
    contexts = [str(name) for name in models[0].contexts_]
    known = {"a": [(contexts[0], contexts[3]), (contexts[1], contexts[2])], "b": [(contexts[4], contexts[7])]}
    at = {name: i for i, name in enumerate(contexts)}
    places = np.random.default_rng(0).permutation(8)
    renamed = {name: contexts[place] for name, place in zip(contexts, places, strict=True)}
    links = {name: [(renamed[a], renamed[b]) for a, b in pairs] for name, pairs in known.items()}
    options = {"X": truth.X, "y": truth.y, "tail": 0.2}
    null = perturb._recall_by_chance(pairs_called(models, **options), known, at, [np.arange(8), places])
    for e, own in enumerate((known, links)):
        for one in link_recall(models, own, max_sizes=None, **options).itertuples():
            assert null[one.links, one.features][e] == one.recall


def test_sets_of_a_collection_count_by_their_size():
    sets = {"small": ["A", "B"], "large": ["C", "D", "E"], "other": ["F", "X"]}
    found = perturb._known({"GO": sets}, list("ABCDEF"), (2, 3, 5, None))
    assert found == {
        "GO, sets of 2 at most": [("A", "B")],
        "GO, sets of 3 at most": [("A", "B"), ("C", "D"), ("C", "E"), ("D", "E")],
    }


# What is missing or wrong is said, and nothing is left half written


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tcga"], "needs --data DIR"),
        (["primates", "--data", "nowhere"], "--data nowhere is no folder"),
        (["all", "--data", "."], r"mnist.npz is missing: --data must name a folder with mnist_backgrounds/mnist.npz"),
        (["human", "--data", ".", "--permutations", "0"], "--permutations 0 is no reference"),
        (["perturb", "--replogle", "x.h5ad"], "--replogle needs --links"),
        (["human", "--pg19", "x"], "--pg19 needs --catalogue"),
        (["patients", "--luca", "x.h5ad"], "--luca x.h5ad is missing"),
    ],
)
def test_bad_command_lines(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run.main([*arguments, "--output", "out"]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_not_whole(tmp_path):
    folder = tmp_path / "tcga_mrna_small"
    folder.mkdir()
    path = folder / "tcga_mrna_6types_log2cpm.npz"
    np.savez(path, X=np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"lacks the arrays \['genes', 'context', 'barcode'\]"):
        loaders.tcga_mrna(tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"is no complete \.npz file"):
        loaders.tcga_mrna(tmp_path)
    np.savez(path, X=np.full((2, 2), np.nan), genes=["a", "b"], context=["x", "x"], barcode=["p", "q"])
    with pytest.raises(ValueError, match="2 rows have NaN"):
        loaders.tcga_mrna(tmp_path)
    np.savez(path, X=np.zeros((2, 2)), genes=["a", "b"], context=["x", "x"], barcode=["p", "q"])
    with pytest.raises(ValueError, match="0 contexts of 1 have 30 rows or more"):
        loaders.tcga_mrna(tmp_path)
    (tmp_path / "primate_brain_bulk").mkdir()
    with gzip.open(tmp_path / "primate_brain_bulk" / "xu2018_primate_brain.csv.gz", "wt") as file:
        file.write(",Human_CB\nG,1\n")
    with pytest.raises(ValueError, match="must be named Species_Region_Individual"):
        loaders.primates(tmp_path)


def test_text_that_does_not_match_its_embeddings(tmp_path, data):
    folder = tmp_path / "text_human"
    folder.mkdir()
    for name in ("human_minilm_embeddings.npz", "human_sentences.jsonl.gz"):
        (folder / name).write_bytes((data / "text_human" / name).read_bytes())
    with gzip.open(folder / "human_sentences.jsonl.gz", "wt") as file:
        file.write('{"sentence": "One."}\n')
    with pytest.raises(ValueError, match="has 1 lines, but the embeddings are of line 480 too"):
        loaders.human(tmp_path)


def test_a_report_is_written_whole_or_not_at_all(tmp_path):
    report = quiet("tcga")
    report.add(x=1.23456789, y=float("nan"), names=["a"])
    report.table("t", pd.DataFrame({"a": [1, 2]}))
    path = report.write(tmp_path / "out")
    assert json.loads(path.read_text())["numbers"] == {"x": 1.23457, "y": None, "names": ["a"]}
    before = {one.name: one.read_bytes() for one in path.parent.iterdir()}
    assert sorted(before) == [RESULTS, "t.csv"]
    broken = quiet("tcga")
    broken.table("t", pd.DataFrame({"a": [object()]}))
    with pytest.raises(TypeError, match="cannot be kept"):
        broken.write(tmp_path / "out")
    assert {one.name: one.read_bytes() for one in path.parent.iterdir()} == before
    with pytest.raises(ValueError, match="'x' of study 'tcga' is there already"):
        report.add(x=2)
    with pytest.raises(NotADirectoryError, match="is a file"):
        report.write(path)
    with pytest.raises(TypeError, match="A set cannot be kept"):
        plain({1, 2})


# Pages


def test_places_are_filled():
    results = {
        "study": "s",
        "numbers": {"n": 12345, "x": 0.12345, "none": None},
        "tables": {"t": {"columns": ["a", "b"], "rows": [[1, "x|y"], [0.5, None]]}},
        "figures": ["s_f.png"],
    }
    assert write_up.fill("{n} {x} {x:.1f} ![]({figure.f})", results) == "12,345 0.123 0.1 ![](s_f.png)"
    assert write_up.fill("{table.t}", results) == "| a | b |\n| --- | --- |\n| 1 | x\\|y |\n| 0.5 |  |"
    for template, message in (
        ("{m}", "have no number 'm'"),
        ("{table.u}", "have no table 'u'"),
        ("{figure.g}", "which the run did not draw"),
        ("{none}", "not known in this run"),
    ):
        with pytest.raises(ValueError, match=message):
            write_up.fill(template, results)


# There is no page of species by organ: nobody here had the table.
@pytest.mark.parametrize("study", [name for name in run.STUDIES if name != "organs"])
def test_pages_hold_the_numbers_of_their_run(study):
    results = json.loads((DOCS / f"{study}.json").read_text(encoding="utf-8"))
    page = (DOCS / f"{study}.md").read_text(encoding="utf-8")
    assert page == write_up.fill(write_up.read_template(study), results)
    assert results["numbers"]["permutations"] >= 200
    figures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page)
    assert figures
    for figure in figures:
        assert (DOCS / figure).stat().st_size <= write_up.LARGEST
    # A number in the prose that no run gave would not be noticed when it changes.
    typed = re.findall(r"(?<![\w.{])\d+\.\d+(?!\w)", re.sub(r"\{[^}]*\}|`[^`]*`", "", write_up.read_template(study)))
    assert typed == []


def test_pages_are_written_from_the_command_line(tmp_path, capsys):
    out = tmp_path / "out" / "primates"
    out.mkdir(parents=True)
    (out / RESULTS).write_bytes((DOCS / "primates.json").read_bytes())
    for figure in DOCS.glob("primates_*.png"):
        (out / figure.name).write_bytes(figure.read_bytes())
    assert write_up.main([str(tmp_path / "out"), "--docs", str(tmp_path / "docs")]) == 0
    assert (tmp_path / "docs" / "primates.md").read_text() == (DOCS / "primates.md").read_text()
    assert write_up.main([str(tmp_path / "docs")]) == 2
    assert "run studies/run.py with --output" in capsys.readouterr().err
