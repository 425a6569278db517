"""One planted data set, written in every format that the command line reads."""

import gzip
import warnings

import numpy as np
import pandas as pd
import scipy.sparse

from mcpca.datasets import make_contexts

K, P, R, N = 4, 6, 2, 30
FEATURES = [f"g{j}" for j in range(P)]


def planted():
    """Return rows (120, 6) rounded so that text holds them exactly, and labels."""
    data = make_contexts(K, P, R, n_samples=N, noise=0.1, random_state=3)
    order = np.random.default_rng(0).permutation(len(data.y))
    return data.X[order].round(6), np.array([f"c{y}" for y in data.y[order]])


def exact_csv(path, **options):
    """Read numbers to the last bit, for which there is an option before pandas 3.1, and no need of it since."""
    if tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1):
        options["float_precision"] = "round_trip"
    return pd.read_csv(path, **options)


def frame():
    X, y = planted()
    table = pd.DataFrame(X, columns=FEATURES)
    table.insert(0, "group", y)
    table.insert(0, "cell", [f"cell{i}" for i in range(len(y))])
    return table


def write_all(folder):
    """Write the data set in every format; return {name: (paths, options of Reading)}."""
    import anndata

    X, y = planted()
    table = frame()
    named = {"context": ("group",), "index": "cell"}
    table.to_csv(folder / "plain.csv", index=False)
    table.to_csv(folder / "packed.csv.gz", index=False)
    table.to_csv(folder / "no-suffix", sep="\t", index=False)
    table.to_csv(folder / "continental.csv", sep=";", decimal=",", index=False)
    table.set_index("cell").rename_axis(None).to_csv(folder / "pandas.csv")
    # As R's write.table does: the header has no name for the names of rows.
    text = table.set_index("cell").rename_axis(None).to_csv(sep="\t")
    (folder / "r.tsv").write_text(text.removeprefix("\t"))
    table.to_csv(folder / "headless.csv", index=False, header=False)
    (folder / "wide.csv").write_bytes(table.to_csv(index=False).encode("utf-16"))
    table.to_parquet(folder / "table.parquet", index=False)
    obs = pd.DataFrame({"group": pd.Categorical(y)}, index=table["cell"])
    var = pd.DataFrame(index=FEATURES)
    adata = anndata.AnnData(scipy.sparse.csr_matrix(X), obs=obs, var=var, layers={"dense": X}, obsm={"X_pca": X[:, :3]})
    adata.write_h5ad(folder / "cells.h5ad")
    with warnings.catch_warnings():  # of the version of the format that will be the default
        warnings.simplefilter("ignore")
        adata.write_zarr(folder / "cells.zarr")
    np.savez(folder / "arrays.npz", X=X, genes=np.array(FEATURES), group=y, cell=table["cell"].to_numpy(dtype=str))
    scipy.sparse.save_npz(folder / "sparse.npz", scipy.sparse.csr_matrix(X))
    np.save(folder / "rows.npy", X)
    (folder / "labels.txt").write_text("\n".join(y) + "\n")
    table[["cell", "group"]].to_csv(folder / "labels.csv", index=False)
    np.save(folder / "labels.npy", y)
    return {
        "plain.csv": named,
        "packed.csv.gz": named,
        "no-suffix": named,
        "continental.csv": named | {"decimal": ","},
        "pandas.csv": {"context": ("group",)},
        "r.tsv": {"context": ("group",)},
        "headless.csv": {"context": ("2",), "index": "1", "header": False},
        "wide.csv": named,
        "table.parquet": named,
        "cells.h5ad": {"context": ("group",)},
        "cells.zarr": {"context": ("group",)},
        "arrays.npz": {"context": ("group",), "index": "cell"},
        "sparse.npz": {"labels": folder / "labels.txt"},
        "rows.npy": {"labels": folder / "labels.csv", "context": ("group",)},
    }


def write_folder(folder):
    """Write one file per context, in three formats and with columns in another order."""
    X, y = planted()
    table = pd.DataFrame(X, columns=FEATURES)
    for name in sorted(set(y)):
        part = table[y == name]
        if name == "c1":
            part[FEATURES[::-1]].to_csv(folder / "c1.csv.gz", index=False)
        elif name == "c2":
            part.to_parquet(folder / "c2.parquet", index=False)
        else:
            part.to_csv(folder / f"{name}.csv", index=False)
    (folder / "README.txt").write_text("no table\n")


def truncated_gzip(path):
    whole = gzip.compress(frame().to_csv(index=False).encode())
    path.write_bytes(whole[: len(whole) // 2])


def check_equal(data, in_memory=True):
    """Assert that what was read is the planted table."""
    X, y = planted()
    np.testing.assert_array_equal(np.vstack([block for _, block in data.source.scan(2**20)]), X)
    assert data.labels.names().tolist() == y.tolist()
    assert data.feature_names == FEATURES
    assert data.row_names == frame()["cell"].tolist()
    assert data.in_memory == in_memory
