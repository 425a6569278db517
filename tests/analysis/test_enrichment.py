"""Sets at the poles of MCPCs: GMT files, over-representation, ranks, Enrichr by a stand-in."""

import gzip
import types

import numpy as np
import pandas as pd
import pytest
from scipy.stats import fisher_exact, mannwhitneyu

import mcpca.analysis as analysis
from mcpca import MCPCA
from mcpca.datasets import make_contexts

GENES = [f"g{i}" for i in range(400)]


@pytest.fixture(scope="module")
def scores():
    return pd.DataFrame(np.random.default_rng(0).standard_normal((400, 2)), index=GENES, columns=["MCPC 1", "MCPC 2"])


# Files


def test_gmt_files_are_read(tmp_path):
    text = "HALLMARK\thttp://x\tTP53\tMYC\tTP53\n\nGO term\t\tA,1.0\tB,0.5\t1,2-ethanediol\t\n"
    (tmp_path / "h.gmt").write_text(text)
    with gzip.open(tmp_path / "h.gmt.gz", "wt") as file:
        file.write(text)
    expected = {"HALLMARK": ["TP53", "MYC"], "GO term": ["A", "B", "1,2-ethanediol"]}
    assert analysis.read_gmt(tmp_path / "h.gmt") == expected
    assert analysis.read_gmt(str(tmp_path / "h.gmt.gz")) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\tc\nb only\n", r"line 2: a set is a name, .* got 1 field\(s\), the first 'b only'"),
        ("a\t\tx\na\t\ty\n", "line 2: the set 'a' comes twice"),
        ("\n\n", "holds no sets"),
    ],
)
def test_damaged_gmt_files_are_refused(tmp_path, text, message):
    (tmp_path / "s.gmt").write_text(text)
    with pytest.raises(ValueError, match=message):
        analysis.read_gmt(tmp_path / "s.gmt")


def test_files_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "s.gmt").write_bytes(b"\xff\xfe\x00binary")
    with pytest.raises(ValueError, match="is not a GMT file"):
        analysis.read_gmt(tmp_path / "s.gmt")
    (tmp_path / "s.gmt.gz").write_bytes(b"not compressed")
    with pytest.raises(ValueError, match="is not a GMT file"):
        analysis.read_gmt(tmp_path / "s.gmt.gz")
    with pytest.raises(FileNotFoundError):
        analysis.read_gmt(tmp_path / "none.gmt")


# Tests


def test_over_representation_is_fishers_exact_test(scores):
    rng = np.random.default_rng(1)
    sets = {f"s{i}": [*rng.choice(GENES, rng.integers(3, 60), replace=False), "unmeasured"] for i in range(20)}
    table = analysis.enrichment(scores, sets, n=50)
    assert len(table) == 2 * 2 * 20
    for row in table.itertuples():
        z = scores[row.component].sort_values(ascending=row.pole == "negative")
        top, members = set(z.index[:50]), set(sets[row.set]) - {"unmeasured"}
        both = len(top & members)
        square = [[both, 50 - both], [len(members) - both, 400 - 50 - len(members) + both]]
        assert row.size == len(members)
        assert row.overlap == both
        assert row.expected == pytest.approx(50 * len(members) / 400)
        assert row.p == pytest.approx(fisher_exact(square, "greater").pvalue)
        assert set(filter(None, row.features.split(";"))) == top & members
    strongest = scores["MCPC 1"].idxmax()
    told = analysis.enrichment(scores, {"s": [strongest, *GENES[:50]]}, n=50, components=0)["features"][0]
    assert told.split(";")[0] == strongest


def test_ranks_are_compared_as_mann_whitney_does(scores):
    rng = np.random.default_rng(2)
    rounded = scores.round(1)  # with ties
    sets = {f"s{i}": list(rng.choice(GENES, rng.integers(3, 60), replace=False)) for i in range(10)}
    table = analysis.enrichment(rounded, sets, method="ranked")
    for row in table.itertuples():
        inside = rounded.index.isin(sets[row.set])
        z = rounded[row.component].to_numpy()
        side = "greater" if row.pole == "positive" else "less"
        test = mannwhitneyu(z[inside], z[~inside], alternative=side, method="asymptotic", use_continuity=False)
        assert row.p == pytest.approx(test.pvalue)
        assert row.auc == pytest.approx(test.statistic / (inside.sum() * (~inside).sum()))


@pytest.mark.parametrize("method", ["over-representation", "ranked"])
def test_a_planted_set_is_found_at_its_pole(method):
    rng = np.random.default_rng(3)
    z = rng.standard_normal(2000)
    z[:30] -= 1.5
    names = [f"g{i}" for i in range(2000)]
    sets = {f"null {i}": list(rng.choice(names, 30, replace=False)) for i in range(200)} | {"planted": names[:30]}
    table = analysis.enrichment(pd.DataFrame({"MCPC 1": z}, index=names), sets, method=method)
    found = table[table["q"] < 0.001]
    assert found[["pole", "set"]].to_numpy().tolist() == [["negative", "planted"]]
    assert table.index.tolist() == list(range(len(table)))


@pytest.mark.parametrize("method", ["over-representation", "ranked"])
def test_false_positives_stay_at_their_level(method):
    """Random sets: a share of at most 5% has p <= 0.05 (a discrete test has less), and of ranks about 5%."""
    rng = np.random.default_rng(4)
    table = pd.DataFrame(rng.standard_normal((1000, 10)), index=[f"g{i}" for i in range(1000)])
    sets = {f"s{i}": list(rng.choice(table.index, 40, replace=False)) for i in range(100)}
    p = analysis.enrichment(table, sets, method=method)["p"]
    share = (p <= 0.05).mean()  # of 2000, of which sets are correlated between poles
    assert share < 0.065
    assert share > (0.035 if method == "ranked" else 0.01)


def test_sets_of_a_model_with_names(tmp_path):
    data = make_contexts(5, 30, 2, n_samples=50, random_state=0)
    frame = pd.DataFrame(data.X, columns=[f"g{i}" for i in range(30)])
    model = MCPCA(2, random_state=0).fit(frame, data.y)
    a = model.components_[:, 0]
    top = [f"g{i}" for i in np.argsort(-a)[:5]]
    (tmp_path / "one.gmt").write_text("top\t\t" + "\t".join(top) + "\n")
    (tmp_path / "two.gmt").write_text("rest\t\t" + "\t".join(f"g{i}" for i in np.argsort(-a)[10:15]) + "\n")
    both = analysis.enrichment(model, [tmp_path / "one.gmt", tmp_path / "two.gmt"], n=5, components=0)
    first = both[(both["set"] == "top") & (both["pole"] == "positive")].iloc[0]
    assert (first["overlap"], first["collection"]) == (5, "one")
    # Each collection has tests of its own to correct for.
    assert first["q"] == first["p"]
    named = analysis.enrichment(model, {"mine": tmp_path / "one.gmt"}, n=5, components=0)
    assert named["collection"].unique().tolist() == ["mine"]


def test_the_background_is_what_counts(scores):
    few = GENES[:100]
    table = analysis.enrichment(scores, {"s": GENES[:10]}, n=20, background=few)
    alone = analysis.enrichment(scores.loc[few], {"s": GENES[:10]}, n=20)
    pd.testing.assert_frame_equal(table, alone)


def test_bad_sets(scores, tmp_path):
    with pytest.raises(ValueError, match="400 differ only by upper and lower case"):
        analysis.enrichment(scores, {"s": [name.upper() for name in GENES]}, n=20)
    with pytest.raises(ValueError, match=r"No member of any set is a feature: sets have \['x', 'y'\]"):
        analysis.enrichment(scores, {"s": ["x", "y"]}, n=20)
    with pytest.raises(ValueError, match=r"No set has 3 to 400 members .* the largest has 2"):
        analysis.enrichment(scores, {"s": ["g1", "g2"]}, n=20)
    with pytest.raises(ValueError, match="n=300 features at each of two poles, but there are 400"):
        analysis.enrichment(scores, {"s": GENES[:9]}, n=300)
    with pytest.raises(ValueError, match=r"sets\['s'\] has no members"):
        analysis.enrichment(scores, {"s": []})
    with pytest.raises(ValueError, match="sets is empty"):
        analysis.enrichment(scores, {})
    with pytest.raises(TypeError, match=r"sets\['s'\] is a int; pass its members as a list"):
        analysis.enrichment(scores, {"s": 5})
    with pytest.raises(TypeError, match="sets is a int"):
        analysis.enrichment(scores, 5)
    with pytest.raises(ValueError, match="method='gsea' is unknown"):
        analysis.enrichment(scores, {"s": GENES[:9]}, method="gsea")
    with pytest.raises(ValueError, match="background names none of the features"):
        analysis.enrichment(scores, {"s": GENES[:9]}, background=["x"])
    with pytest.raises(TypeError, match="background='g1' is a str"):
        analysis.enrichment(scores, {"s": GENES[:9]}, background="g1")
    with pytest.raises(ValueError, match="files of the same name"):
        analysis.enrichment(scores, [tmp_path / "a" / "h.gmt", tmp_path / "h.gmt"])
    with pytest.raises(ValueError, match="Feature 'g0' comes more than once"):
        analysis.enrichment(pd.concat([scores, scores]), {"s": GENES[:9]}, n=20)


# Enrichr


class Enrichr:
    """Stands in for GSEApy: answers as Enrichr does, from one set; remembers what it was asked."""

    def __init__(self, with_background=False):
        self.asked, self._with_background = [], with_background

    def enrichr(self, gene_list, gene_sets, organism, background, outdir, no_plot, verbose):
        self.asked.append((list(gene_list), list(gene_sets), organism, background))
        both = [gene for gene in gene_list if gene in GENES[:100]]
        answer = {
            "Gene_set": gene_sets[0],
            "Term": ["late", "early"],
            "Overlap": [f"{len(both)}/100", "2/50"],
            "P-value": [0.5, 1e-6],
            "Adjusted P-value": [0.6, 2e-6],
            "Odds Ratio": [1.0, 5.0],
            "Genes": [";".join(both), "g1;g2"],
        }
        if self._with_background:
            del answer["Overlap"]
        return types.SimpleNamespace(results=pd.DataFrame(answer))


@pytest.mark.parametrize("with_background", [False, True])
def test_enrichr_is_asked_for_each_pole(monkeypatch, scores, with_background):
    stand_in = Enrichr(with_background)
    monkeypatch.setitem(__import__("sys").modules, "gseapy", stand_in)
    background = GENES if with_background else None
    table = analysis.enrichment(scores, "GO", method="enrichr", n=30, components=1, background=background)
    z = scores["MCPC 2"].sort_values()
    assert [asked[0] for asked in stand_in.asked] == [z.index[::-1][:30].tolist(), z.index[:30].tolist()]
    assert {asked[2] for asked in stand_in.asked} == {"human"}
    assert table["set"].tolist() == ["early", "late"] * 2  # the smallest p first
    assert table["q"].tolist() == [2e-6, 0.6] * 2
    assert table["overlap"][0] == 2
    assert table["pole"].tolist() == ["positive"] * 2 + ["negative"] * 2
    assert np.isnan(table["size"][0]) if with_background else table["size"][0] == 50


def test_enrichr_that_gives_no_answer_is_told_as_such(monkeypatch, scores):
    def offline(**_):
        raise Exception("Error sending gene list")

    monkeypatch.setitem(__import__("sys").modules, "gseapy", types.SimpleNamespace(enrichr=offline))
    with pytest.raises(ConnectionError, match=r"no answer for MCPC 1 .*Error sending gene list.*pass GMT files"):
        analysis.enrichment(scores, ["GO"], method="enrichr")
    for sets in ({}, {"GO": ["a"]}, ["GO", 1], None):
        with pytest.raises(TypeError, match="sets must name libraries"):
            analysis.enrichment(scores, sets, method="enrichr")


def test_libraries_that_enrichr_has_nothing_for_are_told(monkeypatch, scores):
    """GSEApy skips names that it does not know, and gives an empty list where nothing is left."""
    sys_modules = __import__("sys").modules
    monkeypatch.setitem(sys_modules, "gseapy", Enrichr())
    with pytest.warns(UserWarning, match="Enrichr has nothing for GO_2032: either it has no library of that name"):
        table = analysis.enrichment(scores, ["GO", "GO_2032"], method="enrichr", components=0)
    assert table["collection"].unique().tolist() == ["GO"]
    empty = types.SimpleNamespace(enrichr=lambda **_: types.SimpleNamespace(results=[]))
    monkeypatch.setitem(sys_modules, "gseapy", empty)
    with pytest.warns(UserWarning, match="nothing for GO"):
        nothing = analysis.enrichment(scores, "GO", method="enrichr", components=0)
    assert list(nothing.columns) == list(table.columns)
    assert len(nothing) == 0


def test_missing_gseapy_names_the_extra(monkeypatch, scores):
    monkeypatch.setitem(__import__("sys").modules, "gseapy", None)
    with pytest.raises(ImportError, match=r'pip install "mcpca\[analysis\]"'):
        analysis.enrichment(scores, "GO", method="enrichr")


# Rows of the paper's Table S1: members of a set among the 200 genes at a pole, members in all, p-value, odds ratio.
TABLE_S1 = [
    ("Epithelial Mesenchymal Transition", 70, 200, 5.00999164462356e-92, None),
    ("Leydig Precursor Cell Fetal Gonad Human", 44, 221, 8.67894560477825e-45, 31.2694480660582),
    ("Fibroblast Skin Mouse", 31, 90, 7.02653297920666e-40, 61.375087754488),
    ("T Cell Peripheral Blood Human", 19, 48, 3.74156972800138e-26, 71.565822061345),
    ("Collagen Fibril Organization", 16, 45, 2.72627611683316e-21, 59.2833583208395),
    ("Enterocyte Progenitor Cell Small Intestine", 19, 134, 8.63124382297007e-17, 17.9685323084314),
    ("Coagulation", 19, 138, 1.51853068731862e-16, None),
    ("Skin Development", 11, 69, 8.34285824420906e-11, 19.8104360518153),
    ("Epithelial Cell Ovarian Cortex Human", 5, 9, 1.16002439624355e-8, 126.897435897435),
    ("Central Nervous System Development", 14, 288, 1.29653446938662e-6, 5.36386468879993),
    ("Activated CD4+ T Cell Blood Human", 4, 11, 3.0310483972e-6, 57.7055393586005),
    ("Spermatogenesis", 9, 135, 8.81478258082678e-6, 7.35751682872101),
    ("Dendritic Cell Decidua Human", 3, 7, 3.34730337971703e-5, 75.3654822335025),
    ("Schwann Cell Skin Human", 3, 9, 7.91555905106562e-5, 50.238578680203),
]


def test_p_values_of_the_papers_table_are_those_of_20000_genes():
    scores = pd.DataFrame({"MCPC 1": np.linspace(1, -1, 1000)}, index=[f"g{i}" for i in range(1000)])
    sets = {
        name: [*(f"g{i}" for i in range(overlap)), *(f"not measured {i}" for i in range(size - overlap))]
        for name, overlap, size, _, _ in TABLE_S1
    }
    found = analysis.enrichment(scores, sets, n=200, background=20_000)
    own = found[found["pole"] == "positive"].set_index("set").loc[list(sets)]
    assert own["overlap"].tolist() == [row[1] for row in TABLE_S1]
    assert own["size"].tolist() == [row[2] for row in TABLE_S1]
    # Enrichr computes p to about four digits of its logarithm (in all 3,426 rows, to 1.01e-4 of it).
    np.testing.assert_allclose(np.log(own["p"]), np.log([row[3] for row in TABLE_S1]), rtol=1.01e-4)
    # Its odds ratios are those of the same table of 2 by 2, exactly.
    for _, a, K, _, ratio in TABLE_S1:
        if ratio is not None:
            assert a * (20_000 - K - 200 + a) / ((200 - a) * (K - a)) == pytest.approx(ratio, rel=1e-12)
