// One context: what it is made of, how well it is fitted, which others are like it; and two contexts side by side.
{
  const { el, data, byId, number, percent, count } = mcpca;
  const MOST_BARS = 30, // MCPCs in a chart; tables have all
    MOST_ALIKE = 8; // similar contexts in the table
  const facts = data.ofContexts;
  let chooser, parts;
  const chart = {};

  const printedName = el("span", { class: "print-only" });
  mcpca.context = {};
  mcpca.context.begin = () => {
    chooser = mcpca.chooser(
      "context",
      mcpca.contextEntries(),
      () => mcpca.chosen.context,
      (i) => mcpca.choose({ context: i }),
    );
    parts = Object.fromEntries(["words", "made", "fit", "alike"].map((name) => [name, el("div")]));
    byId("context").append(
      el(
        "div",
        { class: "title" },
        el("h2", { id: "context-title" }, "Context", printedName),
        chooser.node,
        mcpca.backToMap(),
      ),
      ...Object.values(parts),
    );
    for (const name of ["made", "fit", "compare"]) chart[name] = mcpca.chart(`chart-${name}`);
    parts.compare = el("div");
    byId("compare").append(el("h2", { id: "compare-title" }, "Compare two contexts"), parts.compare);
  };

  // 1 for the largest; contexts without a value do not count.
  const place = (values, i) => values.filter((v) => v !== null && v > values[i]).length + 1;

  mcpca.context.show = () => {
    const i = mcpca.chosen.context;
    chooser.update();
    printedName.replaceChildren(" ", mcpca.nameNode(data.contexts[i], 60));
    const lines = [];
    if (facts.rows) lines.push(`${count(facts.rows[i])} rows.`);
    if (facts.explained[i] !== null) {
      lines.push(
        `The MCPCs explain ${percent(facts.explained[i])} of its squared covariance` +
          (mcpca.k > 1 ? `, place ${count(place(facts.explained, i))} of ${count(mcpca.k)}.` : "."),
      );
    }
    lines.push(`Relative squared error of its covariance: ${number(facts.error[i], 3)}.`);
    if (mcpca.r > 1)
      lines.push(`Correlation left between scores: ${number(facts.correlation[i], 2)} (root mean square; 0 is exact).`);
    if (facts.noise) lines.push(`Noise variance beside the MCPCs: ${number(facts.noise[i], 3)}.`);
    const known = mcpca.metadata.words(i).map((text, at) => [at ? "; " : "Known of it: ", el("bdi", {}, text)]);
    parts.words.replaceChildren(
      ...[
        mcpca.wholeName(data.contexts[i], 60),
        el("p", { id: "context-words" }, lines.join(" ")),
        known.length ? el("p", { id: "context-known" }, ...known, ".") : null,
      ].filter(Boolean),
    );
    made(i);
    fit(i);
    alike(i);
    compare();
  };

  // Its loadings, the largest first.
  const made = (i) => {
    const order = mcpca.sortedBy(mcpca.range(mcpca.r), (j) => data.loadings[i][j]),
      top = order.slice(0, MOST_BARS);
    const total = data.loadings[i].reduce((a, b) => a + b, 0);
    mcpca.draw(
      chart.made,
      `Loadings of ${mcpca.contextName(i)} on the MCPCs; the numbers are in the table below.`,
      () => {
        const values = top.map((j) => data.loadings[i][j]);
        const trace = {
          type: "bar",
          orientation: "h",
          x: values,
          y: mcpca.range(top.length),
          marker: { color: top.map((j) => mcpca.colour(j === mcpca.chosen.mcpc ? "accent" : "data")) },
          text: top.map((j) => `${mcpca.mcpcPlot(j)}: ${number(data.loadings[i][j])}`),
          textposition: "none",
          hovertemplate: "%{text}<extra></extra>",
        };
        if (data.intervals)
          trace.error_x = mcpca.whiskers(
            values,
            top.map((j) => data.intervals.lower[i][j]),
            top.map((j) => data.intervals.upper[i][j]),
          );
        return {
          height: mcpca.rowsHeight(top.length),
          file: ["loadings of a context", data.contexts[i]],
          traces: [trace],
          layout: {
            xaxis: mcpca.axis(`${data.loading.name} (variance)`, { rangemode: "tozero" }),
            yaxis: mcpca.nameAxis(top.map((j) => mcpca.mcpcPlot(j))),
          },
        };
      },
    );
    const columns = [
      { title: "MCPC", name: true, value: (j) => data.mcpcs[j] },
      { title: data.loading.name, value: (j) => data.loadings[i][j] },
      {
        title: "share of its loadings",
        value: (j) => (total ? data.loadings[i][j] / total : null),
        text: (j) => percent(total ? data.loadings[i][j] / total : null),
      },
      {
        title: "share of the MCPC's largest",
        value: (j) => (mcpca.largest[j] ? data.loadings[i][j] / mcpca.largest[j] : null),
        text: (j) => percent(mcpca.largest[j] ? data.loadings[i][j] / mcpca.largest[j] : null),
      },
    ];
    if (data.intervals)
      columns.push(
        { title: "lower", value: (j) => data.intervals.lower[i][j] },
        { title: "upper", value: (j) => data.intervals.upper[i][j] },
      );
    if (data.presence) columns.push(mcpca.pColumn((j) => data.presence.adjusted[i][j]));
    parts.made.replaceChildren(
      el("h3", {}, "What it is made of"),
      chart.made,
      mcpca.table({
        caption: "Loadings of the context",
        file: `context-${i + 1}-loadings.csv`,
        columns,
        rows: order,
        click: (j) => mcpca.choose({ mcpc: j }, "mcpc"),
        marked: (j) => j === mcpca.chosen.mcpc,
      }),
    );
  };

  // Its share explained among those of all contexts; with one or two contexts the sentence above says it all.
  const fit = (i) => {
    if (mcpca.k < 3) return parts.fit.replaceChildren();
    const order = mcpca.sortedBy(
      mcpca.range(mcpca.k).filter((a) => facts.explained[a] !== null),
      (a) => facts.explained[a],
    );
    mcpca.draw(
      chart.fit,
      `Share of squared covariance explained in every context, with ${mcpca.contextName(i)} marked.`,
      () => ({
        height: 190,
        file: ["fit of contexts", data.contexts[i]],
        traces: [
          {
            type: "scatter",
            mode: "markers",
            x: order.map((_, at) => at + 1),
            y: order.map((a) => facts.explained[a]),
            marker: {
              size: order.map((a) => (a === i ? 12 : 6)),
              color: order.map((a) => mcpca.colour(a === i ? "accent" : "data")),
              opacity: 1,
              line: { width: 0 },
            },
            text: order.map((a) => `${mcpca.forPlot(data.contexts[a], 60)}: ${percent(facts.explained[a])}`),
            hovertemplate: "%{text}<extra></extra>",
          },
        ],
        layout: {
          xaxis: mcpca.axis("contexts, best fitted first"),
          yaxis: mcpca.axis("explained", { tickformat: ".3~p" }),
          hovermode: "closest",
        },
      }),
    );
    parts.fit.replaceChildren(el("h3", {}, "How well it is fitted, among all contexts"), chart.fit);
  };

  // The contexts with the most similar loadings by their cosine, which ignores the total variance.
  const alike = (i) => {
    if (mcpca.k < 3) return parts.alike.replaceChildren();
    const cosines = data.loadings.map((row) => mcpca.cosine(row, data.loadings[i]));
    const order = mcpca
      .sortedBy(
        mcpca.range(mcpca.k).filter((a) => a !== i),
        (a) => cosines[a],
      )
      .slice(0, MOST_ALIKE);
    parts.alike.replaceChildren(
      el("h3", {}, "Contexts made of the same"),
      mcpca.table({
        caption: "Most similar contexts",
        file: `context-${i + 1}-similar.csv`,
        columns: [
          { title: "context", name: true, value: (a) => data.contexts[a] },
          { title: "cosine of loadings", value: (a) => cosines[a] },
        ],
        rows: order,
        open: true,
        click: (a) => mcpca.choose({ other: a }, "compare"),
      }),
    );
  };

  // Loadings of the chosen context and of another one, by the size of their difference.
  const compare = () => {
    if (mcpca.k < 2) return parts.compare.replaceChildren(el("p", { class: "muted" }, "There is only one context."));
    const [a, b] = [mcpca.chosen.context, mcpca.chosen.other];
    const difference = (j) => data.loadings[a][j] - data.loadings[b][j];
    const cosine = mcpca.cosine(data.loadings[a], data.loadings[b]);
    const order = mcpca.sortedBy(mcpca.range(mcpca.r), (j) => Math.abs(difference(j))),
      top = order.slice(0, MOST_BARS);
    mcpca.draw(
      chart.compare,
      `Loadings of ${mcpca.contextName(a)} and ${mcpca.contextName(b)}; the numbers are in the table below.`,
      () => {
        const dots = (i, colour, symbol) => ({
          type: "scatter",
          mode: "markers",
          name: mcpca.forPlot(data.contexts[i]),
          x: top.map((j) => data.loadings[i][j]),
          y: mcpca.range(top.length),
          marker: { size: 10, color: mcpca.colour(colour), symbol, line: { width: 2, color: mcpca.colour(colour) } },
          text: top.map(
            (j) => `${mcpca.forPlot(data.contexts[i])}, ${mcpca.mcpcPlot(j)}: ${number(data.loadings[i][j])}`,
          ),
          hovertemplate: "%{text}<extra></extra>",
        });
        const line = {
          type: "scatter",
          mode: "lines",
          hoverinfo: "skip",
          showlegend: false,
          line: { color: mcpca.colour("line"), width: 3 },
        };
        // One trace for all lines between the two dots of an MCPC: null ends a line.
        line.x = top.flatMap((j) => [data.loadings[a][j], data.loadings[b][j], null]);
        line.y = top.flatMap((_, at) => [at, at, null]);
        return {
          height: mcpca.rowsHeight(top.length) + 30,
          file: ["comparison", data.contexts[a], data.contexts[b]],
          traces: [line, dots(a, "data", "circle"), dots(b, "accent", "diamond-open")],
          layout: {
            showlegend: true,
            legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
            xaxis: mcpca.axis(`${data.loading.name} (variance)`, { rangemode: "tozero" }),
            yaxis: mcpca.nameAxis(top.map((j) => mcpca.mcpcPlot(j))),
            margin: { l: 10, r: 12, t: 34, b: 40 },
            hovermode: "closest",
          },
        };
      },
    );
    const entries = mcpca.contextEntries(),
      set = (key) => (to) => mcpca.choose({ [key]: Number(to) });
    parts.compare.replaceChildren(
      el(
        "div",
        { class: "controls" },
        mcpca.picker("compare-a", "First", entries, a, set("context")),
        mcpca.picker("compare-b", "Second", entries, b, set("other")),
      ),
      el("p", { id: "compare-words" }, `Cosine between their loadings: ${number(cosine, 3)} (1 is the same mixture).`),
      el("p", { id: "compare-loadings", class: "muted" }, data.loading.words),
      chart.compare,
      mcpca.table({
        caption: "Loadings of both contexts, largest difference first",
        file: `compare-${a + 1}-${b + 1}.csv`,
        columns: [
          { title: "MCPC", name: true, value: (j) => data.mcpcs[j] },
          { title: "first", value: (j) => data.loadings[a][j] },
          { title: "second", value: (j) => data.loadings[b][j] },
          { title: "difference", value: difference, text: (j) => number(difference(j)) },
        ],
        rows: order,
        click: (j) => mcpca.choose({ mcpc: j }, "mcpc"),
      }),
    );
  };
}
