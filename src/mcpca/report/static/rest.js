// Findings in words, the rank, what the words mean, how to cite, and how it was run.
{
  const { el, data, byId, number, percent } = mcpca;
  const facts = data.ofContexts;
  // What the criteria of a rank selection measure; others are parts of these.
  const CRITERIA = {
    "split-half agreement": "mean |cos| between halves",
    excess: "standard deviations above noise",
    replicating: "MCPCs with |cos| > 0.9 between halves",
    "seed stability": "mean |cos| between seeds",
    "held-out error": "relative squared error",
    "held-out log-likelihood": "mean per row",
    BIC: "less is better",
    "projection similarity": "share of MCPCs",
    "loading similarity": "share of MCPCs",
    "context consistency": "mean over other ranks",
  };
  const COMPARED = new Set(["split-half agreement", "seed stability"]); // with the threshold
  const charts = {};

  mcpca.rest = {};
  mcpca.rest.begin = () => {
    charts.criterion = mcpca.chart("chart-criterion");
    charts.scree = mcpca.chart("chart-scree");
    diagnostics();
    rank();
    about();
  };

  // Findings come in words from _words.py, the gravest first; the table has the numbers behind them.
  const diagnostics = () => {
    const LEVELS = { warning: "Warning", note: "Note", good: "Good" };
    const columns = [
      { title: "context", name: true, value: (i) => data.contexts[i] },
      facts.rows && { title: "rows", value: (i) => facts.rows[i] },
      {
        title: "squared covariance explained",
        value: (i) => facts.explained[i],
        text: (i) => percent(facts.explained[i]),
      },
      { title: "relative error", value: (i) => facts.error[i] },
      { title: "correlation of scores", value: (i) => facts.correlation[i] },
      {
        title: "likelihood loss",
        value: (i) => facts.loss[i],
        text: (i) => (facts.loss[i] === null ? "infinite" : number(facts.loss[i])), // JSON has no infinity
      },
      facts.noise && { title: "noise variance", value: (i) => facts.noise[i] },
    ].filter(Boolean);
    byId("diagnostics").append(
      el("h2", { id: "diagnostics-title" }, "Diagnostics"),
      ...data.findings.map((f) =>
        el(
          "div",
          { class: `finding ${f.level}` },
          el("p", {}, el("span", { class: "level" }, LEVELS[f.level]), " ", el("b", {}, f.title)),
          el("p", {}, el("bdi", {}, mcpca.visible(f.text))),
        ),
      ),
      mcpca.table({
        caption: "Fit of every context",
        file: "contexts.csv",
        columns,
        rows: mcpca.range(mcpca.k),
        open: true,
        click: (i) => mcpca.choose({ context: i }, "context"),
      }),
      ...landscape(),
    );
  };

  // F of the power method around every MCPC; nothing for models that have not kept it.
  const landscape = () => {
    const known = data.ofMcpcs.landscape;
    if (!known) return [];
    return [
      mcpca.table({
        caption: "F of the power method at every MCPC",
        file: "mcpcs.csv",
        columns: [
          { title: "MCPC", name: true, value: (j) => data.mcpcs[j] },
          { title: "F", value: (j) => known.F[j] },
          { title: "gradient", value: (j) => known.gradient[j] },
          { title: "curvature", value: (j) => known.curvature[j] },
          { title: "certified maximum", value: (j) => (known.certified[j] ? "yes" : "no") },
          { title: "F at the maximum", value: (j) => known.peak[j] },
          { title: "degrees to it", value: (j) => known.degrees[j] },
          { title: "of its own", value: (j) => (known.own[j] ? "yes" : "no") },
        ],
        rows: mcpca.range(mcpca.r),
        click: (j) => mcpca.choose({ mcpc: j }, "mcpc"),
      }),
    ];
  };

  // Why the model has its rank: one curve at a time of those criteria that were computed, and a scree plot.
  const rank = () => {
    const { ranks, columns, reason } = data.rank,
      known = Object.keys(CRITERIA).filter((name) => name in columns);
    const nodes = [el("h2", { id: "rank-title" }, "Rank"), el("p", {}, reason)];
    if (known.length) {
      nodes.push(
        el(
          "div",
          { class: "controls" },
          mcpca.picker(
            "criterion",
            "Criterion",
            known.map((name) => [name, name]),
            known[0],
            criterion,
          ),
        ),
        charts.criterion,
        mcpca.table({
          caption: "All criteria",
          file: "ranks.csv",
          columns: [
            { title: "rank", value: (at) => ranks[at] },
            ...Object.keys(columns).map((name) => ({ title: name, value: (at) => columns[name][at] })),
          ],
          rows: mcpca.range(ranks.length),
        }),
      );
    }
    nodes.push(el("h3", {}, "Scree: singular values of all covariances side by side"), charts.scree);
    byId("rank").append(...nodes);
    if (known.length) criterion(known[0]);
    scree();
  };

  // Lines across a chart: at a rank, and at a threshold.
  const mark = (x) => ({
    type: "line",
    x0: x,
    x1: x,
    yref: "paper",
    y0: 0,
    y1: 1,
    line: { color: mcpca.colour("accent"), width: 1.5, dash: "dash" },
  });
  const level = (y) => ({
    type: "line",
    xref: "paper",
    x0: 0,
    x1: 1,
    y0: y,
    y1: y,
    line: { color: mcpca.colour("muted"), width: 1, dash: "dot" },
  });

  const criterion = (name) => {
    const { ranks, columns, votes, threshold } = data.rank;
    const choice = votes[name] ? ` Alone it would choose ${votes[name]}.` : "";
    mcpca.draw(charts.criterion, `${name} by rank; the numbers are in the table below.${choice}`, () => ({
      height: 260,
      file: ["rank", name],
      traces: [
        {
          type: "scatter",
          mode: "lines+markers",
          x: ranks,
          y: columns[name],
          connectgaps: true,
          line: { color: mcpca.colour("data"), width: 1.5 },
          marker: {
            size: ranks.map((r) => (r === votes[name] ? 12 : 6)),
            color: mcpca.colour("data"),
            opacity: 1,
            line: { width: 0 },
          },
          hovertemplate: "rank %{x}: %{y:.4~g}<extra></extra>",
        },
      ],
      layout: {
        xaxis: mcpca.axis("rank (dashed: this model's; large dot: what the criterion alone would choose)", {
          tickformat: "d",
        }),
        yaxis: mcpca.axis(CRITERIA[name]),
        shapes: [mark(mcpca.r), ...(COMPARED.has(name) ? [level(threshold)] : [])],
      },
    }));
  };

  // Values to label on a logarithmic axis, written whole: of decades, of 1, 2 and 5, or closer, where these are few.
  const STEPS = [[1], [1, 2, 5], [1, 1.5, 2, 3, 5, 7], mcpca.range(18).map((at) => 1 + at / 2)];
  const logTicks = (values) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const decades = mcpca
      .range(Math.floor(Math.log10(high)) - Math.floor(Math.log10(low)) + 1)
      .map((at) => 10 ** (at + Math.floor(Math.log10(low))));
    const ticksOf = (steps) =>
      decades.flatMap((decade) => steps.map((step) => step * decade)).filter((v) => v >= 0.98 * low && v <= 1.02 * high);
    const enough = STEPS.map(ticksOf).find((ticks) => ticks.length >= 3) ?? ticksOf(STEPS.at(-1));
    // Labels of many decades would lie on each other.
    const tickvals = enough.filter((_, at) => at % Math.ceil(enough.length / 7) === 0);
    return { type: "log", tickvals, ticktext: tickvals.map((v) => number(v, 3)) };
  };

  // Singular values, with the upper end of what noise gives where the rank was selected by comparison with it.
  const scree = () => {
    const of = data.rank.scree ?? {},
      upper = of["null upper"];
    mcpca.draw(
      charts.scree,
      `Scree: ${data.scree.length} singular values, the largest ${number(data.scree[0])}; the rank is ${mcpca.r}.`,
      () => {
        const places = data.scree.map((_, at) => at + 1);
        const traces = [
          {
            type: "scatter",
            mode: "lines+markers",
            name: "data",
            x: places,
            y: data.scree,
            line: { color: mcpca.colour("data"), width: 1 },
            marker: { size: 5, color: places.map((at) => mcpca.colour(at <= mcpca.r ? "data" : "muted")) },
            hovertemplate: "%{x}: %{y:.4~g}<extra></extra>",
          },
        ];
        if (upper) {
          traces.push({
            type: "scatter",
            mode: "lines",
            name: "noise, upper end",
            x: upper.map((_, at) => at + 1),
            y: upper,
            line: { color: mcpca.colour("muted"), width: 1, dash: "dot" },
            hoverinfo: "skip",
          });
        }
        return {
          height: 260,
          file: ["scree"],
          traces,
          layout: {
            showlegend: Boolean(upper),
            legend: { x: 1, xanchor: "right", y: 1 },
            xaxis: mcpca.axis("index", { tickformat: "d" }),
            yaxis: mcpca.axis(
              "singular value",
              // Values of 0, as of exactly low-rank covariances, have no logarithm.
              data.scree.every((v) => v > 0) ? logTicks([...data.scree, ...(upper ?? [])].filter((v) => v > 0)) : {},
            ),
            shapes: [mark(mcpca.r + 0.5)],
          },
        };
      },
    );
  };

  const about = () => {
    const { glossary, citation, run, rows } = data;
    const copied = (text) => el("button", { type: "button", class: "small", click: () => mcpca.copy(text) }, "Copy");
    byId("about").append(
      el("h2", { id: "about-title" }, "About this report"),
      el("h3", {}, "What the words mean"),
      el("dl", {}, ...Object.entries(glossary).flatMap(([word, text]) => [el("dt", {}, word), el("dd", {}, text)])),
      el("h3", {}, "What is in this file"),
      el(
        "p",
        { id: "sampling" },
        rows ? rows.words : "No rows: the model alone.",
        " Numbers are rounded to 5 digits. The file needs no network and sends nothing.",
      ),
      el("h3", {}, "How to cite"),
      el("p", {}, citation.text, " ", copied(citation.text)),
      el("pre", { tabindex: "0" }, citation.bibtex),
      copied(citation.bibtex),
      el("h3", {}, "How it was run"),
      mcpca.table({
        caption: "Parameters and versions",
        file: "run.csv",
        columns: [
          { title: "what", name: true, value: (row) => row[0] },
          { title: "value", name: true, length: 2000, value: (row) => row[1] },
        ],
        rows: run,
        open: true,
      }),
    );
  };
}
