"""Small files in the formats of the paper's sources, with planted truth."""

import json

import h5py
import numpy as np
import pandas as pd
import study_data
from scipy.sparse import csr_matrix


def write_xena(folder):
    """Tables of UCSC Xena: three pairs of types, each with an axis that no pooled PC is near to.

    One gene has a missing value, one sample is normal tissue, one type has a single tumour.
    """
    rng = np.random.default_rng(0)
    # Pooled over types, axes D H_j of equal variance have the covariance D H H^T D = D^2: PCs are the blocks of genes.
    H = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2
    blocks = study_data.axes_on([range(0, 4), range(4, 8), range(8, 12), range(12, 16)], 18)
    A = blocks @ (np.diag([1.3, 1.1, 0.9, 0.7]) @ H)
    loadings = {
        "kidney clear cell carcinoma": [8, 0.1, 0.1, 2.7],
        "kidney papillary cell carcinoma": [8, 0.1, 0.1, 2.7],
        "liver hepatocellular carcinoma": [0.1, 8, 0.1, 2.7],
        "cholangiocarcinoma": [0.1, 8, 0.1, 2.7],
        "skin cutaneous melanoma": [0.1, 0.1, 8, 2.7],
        "uveal melanoma": [0.1, 0.1, 8, 2.7],
    }
    X, y = study_data.contexts(loadings, A, 80, rng)
    samples = [f"TCGA-AA-{i:04d}-01" for i in range(len(y))]
    table = pd.DataFrame(X.T, index=[f"GENE{i}" for i in range(18)], columns=samples)
    table.loc["GENE17", samples[0]] = np.nan
    table["TCGA-AA-9999-11"] = 0.0
    table["TCGA-AA-8888-01"] = 0.0  # the only one of its type
    table.rename_axis("sample").to_csv(folder / "expression.xena.gz", sep="\t")
    about = pd.DataFrame(
        {
            "sample": [*samples, "TCGA-AA-9999-11", "TCGA-AA-8888-01"],
            "sample_type_id": 1,
            "sample_type": "Primary Tumor",
            "_primary_disease": [*y, "skin cutaneous melanoma", "thymoma"],
        }
    )
    about.loc[len(y), ["sample_type_id", "sample_type"]] = 11, "Solid Tissue Normal"
    about.to_csv(folder / "phenotype.tsv", sep="\t", index=False)
    survival = pd.DataFrame(
        {"sample": samples, "OS": rng.integers(0, 2, len(y)), "OS.time": rng.exponential(300, len(y)) + 1}
    )
    survival.to_csv(folder / "survival.tsv", sep="\t", index=False)
    return folder / "expression.xena.gz", folder / "phenotype.tsv", folder / "survival.tsv"


def write_luca(path, anndata):
    """CELLxGENE's layout, sparse: 15 patients with 200 cancer cells, who vary more along one axis in late stages."""
    rng = np.random.default_rng(0)
    parts, obs = [], []
    A = study_data.axes_on([(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)], 12)
    for i in range(16):
        late = i >= 8
        b = np.array([12 if late else 2, 3, 2.5, 1.5, 1]) * np.exp(0.1 * rng.standard_normal(5))
        n = 202 if i else 150
        parts.append((rng.standard_normal((n, 5)) * np.sqrt(b)) @ A.T + 0.1 * rng.standard_normal((n, 12)))
        stage = ["I", "II", "III", "IV"][i // 4] if i < 15 else "III or IV"
        own = {"donor_id": f"P{i}", "uicc_stage": stage, "disease": "lung adenocarcinoma", "ann_fine": "Cancer cells"}
        origin = "tumor_metastasis" if i % 3 == 0 else "tumor_primary"
        obs += [own | {"ann_coarse": "Epithelial cell", "origin": origin}] * n
    table = pd.DataFrame(obs).set_axis([f"cell {i}" for i in range(len(obs))])
    table.loc[table.index[-1], "ann_fine"] = "Club"
    table.loc[table.index[-2], "disease"] = "squamous cell lung carcinoma"
    order = rng.permutation(len(table))  # patients are not one after the other
    symbols = [f"GENE{i}" for i in range(11)] + ["MT-CO1"]
    var = pd.DataFrame({"feature_name": symbols}, index=[f"ENSG{i:011d}" for i in range(12)])
    var["mito"] = [i in (0, 11) for i in range(12)]  # the symbol of the first does not tell
    var["feature_type"] = ["protein_coding"] * 9 + ["lncRNA"] * 3
    X = csr_matrix(np.vstack(parts)[order].astype(np.float32))
    anndata.AnnData(X, obs=table.iloc[order].astype("category"), var=var).write_h5ad(path)
    return path


def replogle_counts():
    """Counts (n, 12) and perturbations: A and B share their effect, "rare" has few cells, one cell few counts."""
    rng = np.random.default_rng(0)
    names = [*"ABCDEFGH", "non-targeting", "rare"]
    rates = np.exp(rng.standard_normal((len(names), 12)) * 0.2) * 250
    rates[1] = rates[0]
    y = np.repeat(names, [301] * 9 + [50])
    counts = rng.poisson(rates.repeat([301] * 9 + [50], axis=0)).astype(np.float32)
    counts[5] = 1
    return counts, y


def write_replogle(path):
    """The authors' layout: dense, AnnData's older format with categories apart."""
    counts, y = replogle_counts()
    names, codes = np.unique(y, return_inverse=True)
    with h5py.File(path, "w") as file:
        file["X"] = counts
        for group, index, columns in (
            ("obs", [f"cell-{i}" for i in range(len(y))], {"UMI_count": counts.sum(axis=1)}),
            (
                "var",
                [f"ENSG{i}" for i in range(12)],
                {"gene_name": np.array([f"G{i}" for i in range(12)], dtype=object)},
            ),
        ):
            made = file.create_group(group)
            made["index"] = np.array(index, dtype=object)
            for name, values in columns.items():
                made[name] = values
            made.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.1.0", "_index": "index"})
            made.attrs["column-order"] = np.array([*columns, *(["gene"] if group == "obs" else [])], dtype=object)
        file["obs/gene"] = codes.astype(np.int16)
        file["obs/__categories/gene"] = np.array(names, dtype=object)
        file["obs/gene"].attrs["categories"] = file["obs/__categories/gene"].ref
    return path


def write_links(path):
    path.write_text("set\t\tA\tB\nother\t\tC\tX\nthird\t\tE\tF\tG\n")
    return path


def write_species(folder, anndata):
    """CELLxGENE's layout: files named by identifiers; one has counts, and each some genes that others have not."""
    rng = np.random.default_rng(0)
    for i, name in enumerate(("Homo sapiens", "Pan troglodytes", "Gorilla gorilla gorilla", "Callithrix jacchus")):
        symbols = [f"G{j}" for j in range(i, 30)]
        X = rng.gamma(2, 1, (80, len(symbols))) * np.linspace(1, 3, len(symbols)) ** (i % 2)
        X = csr_matrix(np.round(100 * X) if name == "Homo sapiens" else np.log1p(X))
        var = pd.DataFrame({"feature_name": symbols}, index=[f"ENS{i}_{s}" for s in symbols])
        obs = pd.DataFrame({"organism": pd.Categorical([name] * 80)}, index=[f"c{j}" for j in range(80)])
        anndata.AnnData(X.astype(np.float32), obs=obs, var=var).write_h5ad(folder / f"{i}-{i}.h5ad")
    return sorted(folder.glob("*.h5ad"))


def write_species_tables(folder):
    """The authors' layout: genes x cells as CSV, one for each species, and a list of orthologues.

    Spreads along four axes move apart as species do, marmoset the furthest.
    """
    rng = np.random.default_rng(0)
    A = study_data.axes_on([(0, 1), (2, 3), (4, 5), (6, 7)], 10)
    paths = []
    for i, name in enumerate(("human", "chimp", "gorilla", "rhesus", "marmoset")):
        b = np.array([9, 7, 5, 3]) + np.array([0, 0.2, 2.5, 6, 14])[i] * np.array([1, -0.3, 0.5, 0.2])
        X = (rng.standard_normal((1500, 4)) * np.sqrt(b)) @ A.T + 0.05 * rng.standard_normal((1500, 10))
        genes = [f"G{j}" for j in range(10)] + [f"only in {name}"]
        table = pd.DataFrame(np.column_stack([X, np.ones(1500)]).T, index=genes)
        paths.append(folder / f"{name}_data.csv")
        table.round(4).to_csv(paths[-1])
    (folder / "useful_genes(S6).csv").write_text("\n".join([f"G{j}" for j in range(9)] + ["absent"]))
    return paths, folder / "useful_genes(S6).csv"


def write_pair_files(folder):
    """CORUM's, SIGNOR's and Reactome's layouts, each with a gene that is linked to itself."""
    pd.DataFrame({"ComplexID": [1, 2], "subunits_gene_name": ["A;B;B", "C;X"]}).to_csv(
        folder / "corum_humanComplexes.txt", sep="\t", index=False
    )
    pd.DataFrame({"ENTITYA": ["A", "C", "E"], "EFFECT": "up", "ENTITYB": ["B", "C", None]}).to_csv(
        folder / "signor.tsv", sep="\t", index=False
    )
    reactome = [["1", "R-1", "A [cytosol]", "P1"], ["1", "R-2", "A [nucleus]", "P1"], ["2", "R-3", "B [cytosol]", "P1"]]
    pd.DataFrame(reactome).to_csv(folder / "NCBI2Reactome_PE_Pathway.txt", sep="\t", header=False, index=False)
    return folder / "corum_humanComplexes.txt", folder / "signor.tsv", folder / "NCBI2Reactome_PE_Pathway.txt"


def write_pg19(folder):
    """PG-19 with twelve works and 60 sentences each, and Project Gutenberg's catalogue."""
    (folder / "train").mkdir()
    (folder / "test").mkdir()
    lines, catalogue = [], []
    words = ("nature", "mind", "race")
    for i in range(12):
        form, year = ("Fiction" if i % 2 else "Geology"), 1800 + 20 * (i // 4)
        lines.append(f'{i},"Work {i}, in parts",{year},http://example.org/{i}')
        catalogue.append({"Text#": i, "Type": "Text", "Subjects": form, "LoCC": "", "Bookshelves": ""})
        text = " ".join(
            f"It was human {words[j % 3]}, said Mr. Smith {j} times. Inhuman things follow." for j in range(60)
        )
        (folder / ("test" if i == 3 else "train") / f"{i}.txt").write_text(text, encoding="utf-8")
    lines.append("99,No text,1810,http://example.org/99")
    (folder / "metadata.csv").write_text("\n".join(lines), encoding="utf-8")
    pd.DataFrame(catalogue).to_csv(folder / "pg_catalog.csv", index=False)
    return folder, folder / "pg_catalog.csv"


def gutenberg_records():
    """The column METADATA of ``gutenberg_english`` for the same works."""
    return [
        json.dumps({"text_id": i, "subjects": "Fiction" if i % 2 else "Botany", "bookshelves": ""}) for i in range(12)
    ]


def embed(sentences, word, model, **options):
    """Stands for a language model: vectors that differ by form and word, one of them beyond its reach."""
    rng = np.random.default_rng(len(sentences))
    X = rng.standard_normal((len(sentences), 12)) * np.linspace(2, 0.5, 12)
    X[:, 0] += 3 * np.array(["nature" in one for one in sentences])
    X[3] = np.nan
    return X.astype(np.float32)


TEN = ("hsa", "ptr", "ppa", "ggo", "ppy", "mml", "mmu", "mdo", "oan", "gga")


def write_brawand(path, codes=TEN, individuals=8):
    """Brawand's layout, RPKM of ten species: loadings follow the tree in brain and liver, in the heart they do not.

    The chicken has no heart, and the platypus one.
    """
    rng = np.random.default_rng(0)
    # Two axes tell species 0 to j from the others, and vary the more the larger j is: the first two are the nearest,
    # and the others join them one by one.
    k = len(codes)
    B = np.array(
        [[1.5**j * (9 if (i <= j) == one else 0.5) for j in range(k - 1) for one in (True, False)] for i in range(k)]
    )
    A = study_data.axes_on([range(3 * j, 3 * j + 3) for j in range(2 * (k - 1))], p := 6 * (k - 1))
    columns = {code: [f"ENS{code.upper()}{i:04d}" for i in range(p)] for code in codes}
    for organ in ("br", "ht", "lv"):
        turned = np.arange(k) * (3 if organ == "ht" else 1) % k
        for i, code in enumerate(codes):
            n = {("gga", "ht"): 0, ("oan", "ht"): 1}.get((code, organ), individuals)
            for one in range(n):
                z = (
                    A @ (rng.standard_normal(A.shape[1]) * np.sqrt(0.02 * B[turned[i]]))
                    + 0.05 * rng.standard_normal(p)
                    + 9
                )
                columns[f"{code}.{organ}.{'MF'[one % 2]}.{one // 2 + 1}"] = 2**z - 1
    table = pd.DataFrame(columns)
    table.loc[0, f"{codes[0]}.br.M.1"] = np.nan
    table.to_csv(path, sep="\t", index=False)
    return path
