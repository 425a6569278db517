# Fits of mcpca by Snakemake: `include: "mcpca.smk"` and ask for results/mcpca/NAME/report.html, or run this file by itself.
# The configuration has an entry for each fit; docs/pipelines.md says what goes into it.
#
#   mcpca:
#     blood:
#       data: blood.h5ad
#       context: cell_type
#       options: --normalize log1p --hvg 2000 --rank 30
#       new: next-year.h5ad        # optional: rows to score on the same axes

FITS = config["mcpca"]


rule mcpca_all:
    default_target: True
    input:
        expand("results/mcpca/{name}/report.html", name=FITS),
        expand("results/mcpca/{name}.scores.csv", name=[name for name in FITS if "new" in FITS[name]]),


rule mcpca_fit:
    input:
        lambda wildcards: FITS[wildcards.name]["data"],
    output:
        loadings="results/mcpca/{name}/loadings.csv",
        corrected="results/mcpca/{name}/corrected_loadings.csv",
        components="results/mcpca/{name}/components.csv",
        features="results/mcpca/{name}/features.csv",
        scores="results/mcpca/{name}/scores.csv",
        diagnostics="results/mcpca/{name}/diagnostics.json",
        picture="results/mcpca/{name}/loadings.png",
        report="results/mcpca/{name}/report.html",
        model="results/mcpca/{name}/model.mcpca",
        record="results/mcpca/{name}/run.json",
    params:
        folder=lambda wildcards, output: output.model.rpartition("/")[0],
        context=lambda wildcards: FITS[wildcards.name]["context"],
        options=lambda wildcards: FITS[wildcards.name].get("options", ""),
    log:
        "logs/mcpca/{name}.log",
    threads: 2
    resources:
        mem_mb=4000,
        rows_mb=2000,
    shell:
        # --force: a folder in which Snakemake has removed some outputs is replaced as a whole.
        "mcpca fit {input:q} --context {params.context:q} {params.options}"
        " --max-memory {resources.rows_mb} --report --picture --scores --format csv"
        " --out {params.folder:q} --force > {log:q} 2>&1"


rule mcpca_transform:
    input:
        model="results/mcpca/{name}/model.mcpca",
        rows=lambda wildcards: FITS[wildcards.name]["new"],
    output:
        "results/mcpca/{name}.scores.csv",
    log:
        "logs/mcpca/{name}.transform.log",
    threads: 2
    shell:
        "mcpca transform {input.model:q} {input.rows:q} --out {output:q} --force > {log:q} 2>&1"
