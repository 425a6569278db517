// A fit of mcpca as a process of Nextflow: `include { MCPCA_FIT } from './main.nf'`, or run this file by itself,
//   nextflow run main.nf --data cells.h5ad --context cell_type --options '--normalize log1p --hvg 2000'

process MCPCA_FIT {
    tag "${name}"
    cpus 2
    memory '4 GB'
    publishDir "results/mcpca", mode: 'copy'

    // 4: nothing is above noise, which is an answer about these rows and no reason to stop the others.
    errorStrategy { task.exitStatus == 4 ? 'ignore' : 'terminate' }

    input:
    tuple val(name), path(data), val(context), val(options)

    output:
    tuple val(name), path("${name}/model.mcpca"), emit: model
    tuple val(name), path("${name}/*.csv"), emit: tables
    tuple val(name), path("${name}/report.html"), emit: report
    tuple val(name), path("${name}/loadings.png"), emit: picture
    tuple val(name), path("${name}/run.json"), emit: record

    script:
    """
    export OPENBLAS_NUM_THREADS=${task.cpus}
    mcpca fit ${data} --context '${context}' ${options} \\
        --max-memory ${task.memory.toMega().intdiv(2)} \\
        --report --picture --format csv --out '${name}'
    """
}

workflow {
    if (!params.data || !params.context) {
        error "--data FILE and --context COLUMN are needed"
    }
    rows = file(params.data, checkIfExists: true)
    MCPCA_FIT(channel.of([rows.simpleName, rows, params.context, params.options ?: '']))
}
