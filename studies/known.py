"""What is known from elsewhere, to compare with: organs of cancer types, clusters of microRNAs, pathways, a tree.

Written down from general knowledge of the field, and small on purpose; where a database is at hand, pass its file.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from mcpca.analysis.newick import clades_of_newick, restricted

# TCGA's cancer types by the organ or tissue that they start in; types that are not here are alone in theirs.
ORGANS = {
    **dict.fromkeys(("KICH", "KIRC", "KIRP"), "kidney"),
    **dict.fromkeys(("LUAD", "LUSC"), "lung"),
    **dict.fromkeys(("COAD", "READ"), "colon and rectum"),
    **dict.fromkeys(("UCEC", "UCS"), "uterus"),
    **dict.fromkeys(("CHOL", "LIHC"), "liver and bile duct"),
    **dict.fromkeys(("ESCA", "STAD"), "oesophagus and stomach"),
    **dict.fromkeys(("ACC", "PCPG"), "adrenal gland"),
    **dict.fromkeys(("SKCM", "UVM"), "melanocytes"),
}


# The names of these types in Xena's column "_primary_disease".
XENA_TYPES = {
    "adrenocortical cancer": "ACC",
    "cholangiocarcinoma": "CHOL",
    "colon adenocarcinoma": "COAD",
    "esophageal carcinoma": "ESCA",
    "kidney chromophobe": "KICH",
    "kidney clear cell carcinoma": "KIRC",
    "kidney papillary cell carcinoma": "KIRP",
    "liver hepatocellular carcinoma": "LIHC",
    "lung adenocarcinoma": "LUAD",
    "lung squamous cell carcinoma": "LUSC",
    "pheochromocytoma & paraganglioma": "PCPG",
    "rectum adenocarcinoma": "READ",
    "skin cutaneous melanoma": "SKCM",
    "stomach adenocarcinoma": "STAD",
    "uterine carcinosarcoma": "UCS",
    "uterine corpus endometrioid carcinoma": "UCEC",
    "uveal melanoma": "UVM",
}


def organ_of(cancer_type: str) -> str:
    """Return the organ of a cancer type, by TCGA's abbreviation or Xena's name, or the type itself."""
    return ORGANS.get(XENA_TYPES.get(cancer_type.lower(), cancer_type), cancer_type)


def _mirs(*names: str) -> list[str]:
    return [f"hsa-{'' if name.startswith('let') else 'mir-'}{name}" for name in " ".join(names).split()]


# MicroRNAs that are transcribed together, or of one family; in TCGA's names of precursors.
MICRORNA_SETS = {
    "miR-200 family": _mirs("141 200a 200b 200c 429"),
    "miR-17-92 and its paralogues": _mirs("17 18a 19a 20a 19b-1 92a-1 106b 93 25 106a 18b 20b 19b-2 92a-2 363"),
    "14q32 cluster": _mirs(
        "127 134 136 154 299 323 323a 323b 329-1 329-2 337 369 370 376a-1 376a-2 376b 376c 377 379 380 381 382 409 410",
        "411 412 431 432 433 485 487a 487b 493 494 495 496 539 541 543 544 654 655 656 665 668 758",
        "770 889 1185-1 1185-2",
    ),
    "Xq27.3 cluster": _mirs(
        "506 507 508 509-1 509-2 509-3 510 513a-1 513a-2 513b 513c 514-1 514-2 514-3 514b 888 891a"
    ),
    "let-7 family": _mirs("let-7a-1 let-7a-2 let-7a-3 let-7b let-7c let-7d let-7e let-7f-1 let-7f-2 let-7g let-7i 98"),
    "miR-143 and miR-145": _mirs("143 145 133a-1 133a-2 133b 1-1 1-2"),
    "miR-34 and miR-449": _mirs("34b 34c 449a 449b 449c"),
    "immune cells": _mirs("150 142 155 146a 223 342 511-1 511-2"),
    "liver": _mirs("122 885 483 192 194-1 194-2"),
    "miR-183-96-182": _mirs("183 96 182"),
    "miR-181": _mirs("181a-1 181a-2 181b-1 181b-2 181c 181d"),
    "miR-99a, let-7c, miR-125b": _mirs("99a 125b-2 100 125b-1 let-7c let-7a-2"),
}

# Perturbed genes of the THP-1 screen that work together.
THP1_PATHWAYS = {
    "interferon gamma": {"interferon gamma": ["IFNGR1", "IFNGR2", "JAK2", "STAT1", "IRF1"]},
    "JAK-STAT": {"JAK-STAT": ["IFNGR1", "IFNGR2", "JAK2", "STAT1", "STAT2", "STAT3", "STAT5A"]},
    "interferons, all": {
        "gamma": ["IFNGR1", "IFNGR2", "JAK2", "STAT1", "IRF1"],
        "alpha and beta": ["STAT1", "STAT2", "IRF7", "UBE2L6"],
    },
    "immune checkpoints": {"checkpoints": ["CD86", "PDCD1LG2", "TNFRSF14", "CMTM6", "MARCH8"]},
}

# Activated genes of the K562 screen in one signalling cascade.
K562_PATHWAYS = {
    "MAP kinases": {"MAP kinases": ["MAP2K3", "MAP2K6", "MAP3K21", "MAP4K3", "MAP4K5", "MAPK1"]},
}

# Species of the study by their Newick tree.
PRIMATES = "(((((Human,Chimpanzee),Gorilla),Gibbon),(Macaque,Rhesus)),Marmoset);"

# The ten species of Brawand et al. 2011, six organs each.
AMNIOTES = "((((((((Human,(Chimpanzee,Bonobo)),Gorilla),Orangutan),Macaque),Mouse),Opossum),Platypus),Chicken);"


def names_exchanged(known: str, species: Sequence[str]) -> float:
    """Return the share of all exchanges of species' names with which a tree of this shape would be right.

    Exact for the best case, a tree of the known one's shape; one of another shape is never right. Of k! exchanges those
    are right that map the tree to itself: for each node the products of its children's, times m! for m children of one
    shape. O(k^2).
    """
    clades = restricted(clades_of_newick(known)[0], list(species))
    # The largest cluster so far that holds each leaf, with its shape and the number of exchanges that keep it.
    found: dict[str, tuple[frozenset[str], str, int]] = {name: (frozenset([name]), "", 1) for name in species}
    for clade in [*sorted(clades, key=len), frozenset(species)]:
        children = list({found[name][0]: found[name] for name in clade}.values())
        shapes = Counter(shape for _, shape, _ in children)
        number = math.prod(own for *_, own in children) * math.prod(math.factorial(m) for m in shapes.values())
        shape = f"({','.join(sorted(one for _, one, _ in children))})"
        for name in clade:
            found[name] = (clade, shape, number)
    return found[species[0]][2] / math.factorial(len(species))
