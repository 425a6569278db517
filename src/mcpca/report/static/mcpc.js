// One MCPC: its features at both poles, its loadings, scores in the contexts that carry it, rows of a context, and
// whether it comes back.
{
  const { el, data, byId, number, percent, count } = mcpca;
  const MOST_BARS = 10; // features at each pole in the chart; the table has all
  const MOST_CONTEXTS = 25, // in the chart of loadings, likewise
    MOST_BOXES = 12; // contexts in the chart of scores
  let chooser, parts;
  // null: the context with the largest loading that has rows; colour: "score", or what is known of rows
  const pair = { x: 0, y: 1, context: null, colour: "score" };

  // Which rows, along which principal components: counted from 1 in the address.
  const kept = (key, field, n, first) =>
    mcpca.address.register(key, {
      read: (text) => {
        const value = Number(text);
        pair[field] = Number.isInteger(value) && value >= 1 && value <= n ? value - 1 : first;
      },
      write: () => (pair[field] === first ? null : String(pair[field] + 1)),
    });

  const printedName = el("span", { class: "print-only" }); // on paper there is nothing to choose
  mcpca.mcpc = {};
  mcpca.mcpc.begin = () => {
    if (data.rows) {
      kept("rows-context", "context", mcpca.k, null);
      kept("rows-x", "x", data.rows.axes, 0);
      kept("rows-y", "y", data.rows.axes, 1);
      mcpca.address.register("rows-colour", {
        read: (text) => (pair.colour = rowVariable(text) ? text : "score"),
        write: () => (pair.colour === "score" ? null : pair.colour),
      });
    }
    chooser = mcpca.chooser(
      "MCPC",
      data.mcpcs.map((_, j) => [j, mcpca.mcpcName(j)]),
      () => mcpca.chosen.mcpc,
      (j) => mcpca.choose({ mcpc: j }),
    );
    parts = Object.fromEntries(
      ["naming", "words", "features", "loadings", "scores", "rows", "back"].map((name) => [name, el("div")]),
    );
    byId("mcpc").append(
      el(
        "div",
        { class: "title" },
        el("h2", { id: "mcpc-title" }, el("span", { class: "screen-only" }, "MCPC"), printedName),
        chooser.node,
        mcpca.backToMap(),
      ),
      ...Object.values(parts),
    );
    parts.naming.append(mcpca.names.box);
    parts.featureChart = mcpca.chart("chart-features");
    parts.loadingChart = mcpca.chart("chart-loadings");
    parts.scoreChart = mcpca.chart("chart-scores");
    parts.rowChart = mcpca.chart("chart-rows");
  };

  // From the map: a click on a cell chooses the context whose rows are shown, too.
  mcpca.mcpc.showRowsOf = (i) => (pair.context = i);
  mcpca.mcpc.show = () => {
    const j = mcpca.chosen.mcpc;
    chooser.update();
    printedName.replaceChildren(mcpca.nameNode(data.mcpcs[j], 60));
    mcpca.names.show();
    const order = mcpca.sortedBy(mcpca.range(mcpca.k), (i) => data.loadings[i][j]);
    const carrying = order.slice(0, data.ofMcpcs.carrying[j]);
    parts.words.replaceChildren(...words(j, carrying));
    features(j);
    loadings(j, order);
    scores(j, order, carrying);
    rows(j, order);
    back(j);
  };

  // Two paragraphs: how much of the variance and which contexts; then its neighbour, its error and F.
  const words = (j, carrying) => {
    const { share, explained, nearest, cosine, angles, landscape } = data.ofMcpcs;
    const first = el(
      "p",
      {},
      `${mcpca.mcpcName(j)} has ${percent(share[j])} of the sum of all loadings, and explains `,
      `${percent(explained[j])} of the squared covariances. `,
    );
    if (carrying.length) {
      first.append(
        `At least half of its largest loading is in ${count(carrying.length)} of ${mcpca.many(mcpca.k, "context")}: `,
      );
      carrying.slice(0, 5).forEach((i, at) => first.append(at ? ", " : "", mcpca.contextLink(i)));
      first.append(carrying.length > 5 ? ` and ${count(carrying.length - 5)} more.` : ".");
    } else first.append("No context has a loading on it.");
    const second = [];
    if (nearest) second.push(`The nearest other axis is ${mcpca.mcpcName(nearest[j])} (cos ${number(cosine[j], 2)}).`);
    if (angles) second.push(`Uncertainty: ${number(angles.degrees[j], 2)}\u00b0 (${angles.words}).`);
    if (landscape)
      second.push(
        `F = ${number(landscape.F[j], 3)}, ` +
          (landscape.own[j]
            ? `with a local maximum of its own ${number(landscape.degrees[j], 2)}\u00b0 away (F = ${number(landscape.peak[j], 3)}).`
            : "without a local maximum of its own."),
      );
    return [first, second.length ? el("p", { class: "muted" }, second.join(" ")) : null].filter(Boolean);
  };

  // Bars from the most positive entry down to the most negative one; the table has all features of both poles.
  const features = (j) => {
    const ends = data.features.poles[j],
      all = [];
    for (const end of ["positive", "negative"]) {
      ends[end].features.forEach((f, at) =>
        all.push({ end, name: data.features.names[f], entry: ends[end].entries[at], weight: ends[end].weights[at] }),
      );
    }
    const bars = [
      ...all.filter((f) => f.end === "positive").slice(0, MOST_BARS),
      ...all
        .filter((f) => f.end === "negative")
        .slice(0, MOST_BARS)
        .reverse(),
    ];
    mcpca.draw(
      parts.featureChart,
      `Features at both poles of ${mcpca.mcpcName(j)}; the numbers are in the table below.`,
      () => ({
        height: mcpca.rowsHeight(bars.length),
        file: ["features", data.mcpcs[j]],
        traces: [
          {
            type: "bar",
            orientation: "h",
            x: bars.map((f) => f.entry),
            y: mcpca.range(bars.length),
            marker: { color: bars.map((f) => mcpca.colour(f.entry > 0 ? "positive" : "negative")) },
            text: bars.map((f) => `${mcpca.forPlot(f.name, 60)}: ${number(f.entry)}`),
            textposition: "none",
            hovertemplate: "%{text}<extra></extra>",
          },
        ],
        layout: {
          xaxis: mcpca.axis("entry of the MCPC"),
          yaxis: mcpca.nameAxis(bars.map((f) => mcpca.forPlot(f.name))),
        },
      }),
    );
    parts.features.replaceChildren(
      el("h3", {}, "Features at both poles"),
      parts.featureChart,
      mcpca.table({
        caption: `Features at the poles of ${mcpca.mcpcName(j)} (of ${count(data.features.count)})`,
        file: `mcpc-${j + 1}-features.csv`,
        columns: [
          { title: "feature", name: true, value: (f) => f.name },
          { title: "pole", value: (f) => f.end },
          { title: "entry", value: (f) => f.entry },
          { title: "weight in scores", value: (f) => f.weight },
        ],
        rows: all,
        click: (f) => mcpca.features.choose(f.name, "features"),
      }),
    );
  };

  // Whether a loading is shown to be above 0; all are where no tests were passed to the report.
  const present = (i, j) => !data.presence || data.presence.adjusted[i][j] <= data.presence.alpha;

  const loadings = (j, order) => {
    const top = order.slice(0, MOST_CONTEXTS);
    mcpca.draw(
      parts.loadingChart,
      `Loadings of contexts on ${mcpca.mcpcName(j)}; the numbers are in the table below.`,
      () => {
        const values = top.map((i) => data.loadings[i][j]);
        const trace = {
          type: "scatter",
          mode: "markers",
          x: values,
          y: mcpca.range(top.length),
          marker: {
            size: 9,
            color: top.map((i) => mcpca.colour(i === mcpca.chosen.context ? "accent" : "data")),
            symbol: top.map((i) => (present(i, j) ? "circle" : "circle-open")),
          },
          text: top.map((i) => `${mcpca.forPlot(data.contexts[i], 60)}: ${number(data.loadings[i][j])}`),
          hovertemplate: "%{text}<extra></extra>",
        };
        if (data.intervals) {
          const ends = [data.intervals.lower, data.intervals.upper].map((rows) => top.map((i) => rows[i][j]));
          trace.error_x = mcpca.whiskers(values, ...ends);
        }
        return {
          height: mcpca.rowsHeight(top.length),
          file: ["loadings", data.mcpcs[j]],
          traces: [trace],
          layout: {
            xaxis: mcpca.axis(`${data.loading.name} (variance)`, { rangemode: "tozero" }),
            yaxis: mcpca.nameAxis(top.map((i) => mcpca.forPlot(data.contexts[i]))),
          },
        };
      },
    );
    const columns = [
      { title: "context", name: true, value: (i) => data.contexts[i] },
      { title: data.loading.name, value: (i) => data.loadings[i][j] },
    ];
    if (data.intervals) {
      columns.push(
        { title: "lower", value: (i) => data.intervals.lower[i][j] },
        { title: "upper", value: (i) => data.intervals.upper[i][j] },
      );
    }
    if (data.presence) columns.push(mcpca.pColumn((i) => data.presence.adjusted[i][j]));
    const notes = [];
    if (mcpca.k > MOST_CONTEXTS)
      notes.push(`The ${MOST_CONTEXTS} largest of ${count(mcpca.k)} are drawn; the table has all.`);
    if (data.intervals) notes.push(`Whiskers are ${data.intervals.words}.`);
    if (data.presence) notes.push(`Rings: not shown to be above 0 (adjusted p > ${data.presence.alpha}).`);
    parts.loadings.replaceChildren(
      el("h3", {}, "Loadings: where it varies"),
      el("p", { class: "muted" }, notes.join(" ")),
      parts.loadingChart,
      mcpca.table({
        caption: `Loadings on ${mcpca.mcpcName(j)}`,
        file: `mcpc-${j + 1}-loadings.csv`,
        columns,
        rows: order,
        click: (i) => mcpca.choose({ context: i }, "context"),
        marked: (i) => i === mcpca.chosen.context,
      }),
    );
  };

  // The sample of rows of a context, null where there is none; see ContextSample in _rows.py.
  const samples = (i) => (data.rows ? data.rows.contexts[i] : null);

  // Boxes are drawn from quantiles, which come from more rows than are in the file.
  const scores = (j, order, carrying) => {
    const shown = carrying.filter((i) => samples(i)).slice(0, MOST_BOXES);
    if (!shown.length) {
      const why = data.rows
        ? "No rows were given of the contexts that carry it."
        : "The report was written without rows, so there are no scores.";
      parts.scores.replaceChildren(el("h3", {}, "Scores"), el("p", { class: "muted" }, why));
      return;
    }
    const quantile = (q) => shown.map((i) => samples(i).quantiles[j][q]);
    mcpca.draw(
      parts.scoreChart,
      `Distributions of scores on ${mcpca.mcpcName(j)} in ${shown.length} contexts.`,
      () => ({
        height: mcpca.rowsHeight(1.3 * shown.length),
        file: ["scores", data.mcpcs[j]],
        traces: [
          {
            type: "box",
            orientation: "h",
            y: mcpca.range(shown.length),
            lowerfence: quantile(0),
            q1: quantile(1),
            median: quantile(2),
            q3: quantile(3),
            upperfence: quantile(4),
            line: { color: mcpca.colour("data"), width: 1.4 },
            fillcolor: mcpca.colour("data-pale"),
            hoverinfo: "x",
          },
        ],
        layout: {
          xaxis: mcpca.axis("score, from the context's mean"),
          yaxis: mcpca.nameAxis(shown.map((i) => mcpca.forPlot(data.contexts[i]))),
        },
      }),
    );
    const of = shown.map(samples),
      partial = of.some((s) => s.used < s.n);
    const basis = partial
      ? `up to ${count(Math.max(...of.map((s) => s.used)))} rows of each, drawn at random`
      : "all rows of each";
    const cut =
      carrying.length > shown.length ? `${shown.length} of the ${count(carrying.length)} contexts that carry it. ` : "";
    parts.scores.replaceChildren(
      el("h3", {}, "Scores in the contexts that carry it"),
      el(
        "p",
        { class: "muted" },
        `${cut}Boxes are the middle half with the median, whiskers 5% to 95%; from ${basis}.`,
      ),
      parts.scoreChart,
      mcpca.table({
        caption: `Quantiles of scores on ${mcpca.mcpcName(j)}, all contexts with rows`,
        file: `mcpc-${j + 1}-scores.csv`,
        columns: [
          { title: "context", name: true, value: (i) => data.contexts[i] },
          ...data.rows.quantiles.map((q, at) => ({
            title: `${Math.round(100 * q)}%`,
            value: (i) => samples(i).quantiles[j][at],
          })),
          { title: "rows used", value: (i) => samples(i).used },
        ],
        rows: order.filter((i) => samples(i)),
        click: (i) => mcpca.choose({ context: i }, "context"),
      }),
    );
  };

  // What is known of rows, by its key; contexts are not told apart by what is known of them, since one is drawn.
  const rowVariables = () => mcpca.points.variables().filter(([key]) => key.startsWith("row-"));
  const rowVariable = (key) => rowVariables().find(([name]) => name === key) ?? null;

  // Rows of one context in the plane of two of its principal components. Called again when a picker changes.
  const rows = (j, order) => {
    const possible = order.filter((i) => samples(i) && samples(i).shown);
    const head = el("h3", {}, "Rows of a context along two principal components");
    if (!possible.length) {
      parts.rows.replaceChildren(head, el("p", { class: "muted" }, "No rows are in this file."));
      return;
    }
    const i = pair.context !== null && possible.includes(pair.context) ? pair.context : possible[0],
      sample = samples(i);
    // A context with few rows has fewer than three principal components; the pair chosen before may be gone.
    const axes = mcpca.range(data.rows.axes).filter((a) => sample.shares[a] > 0);
    if (axes.length > 1 && (!axes.includes(pair.x) || !axes.includes(pair.y) || pair.x === pair.y))
      [pair.x, pair.y] = axes;
    const name = (a) => `PC ${a + 1} (${percent(sample.shares[a])})`;
    const pick = (id, label, entries, value, key) =>
      mcpca.picker(id, label, entries, value, (to) => {
        pair[key] = key === "colour" ? to : Number(to);
        rows(j, order);
        mcpca.address.push();
      });
    const coordinates = mcpca.columns(sample.coordinates),
      colours = mcpca.columns(sample.scores)[j];
    // Two standard deviations along the MCPC, projected: sample.axes has its cosines with the principal components.
    const end = 2 * Math.sqrt(data.loadings[i][j]),
      [dx, dy] = [pair.x, pair.y].map((a) => end * sample.axes[j][a]);
    mcpca.draw(
      parts.rowChart,
      `Rows of ${mcpca.contextName(i)} along PC ${pair.x + 1} and PC ${pair.y + 1}, coloured by ` +
        (rowVariable(pair.colour)
          ? `${mcpca.short(rowVariable(pair.colour)[1])}, with the axis of `
          : "their scores on ") +
        `${mcpca.mcpcName(j)}${rowVariable(pair.colour) ? "" : ", with its axis"}.`,
      () => {
        const most = colours.reduce((a, b) => Math.max(a, Math.abs(b)), 0) || 1; // 0 is the middle of the colours
        const [across, up] = [pair.x, pair.y].map((a) => Array.from(coordinates[a]));
        const variable = rowVariable(pair.colour);
        const said = across.map((_, a) => {
          const at = mcpca.metadata.starts[i] + a;
          const value = variable ? mcpca.metadata.textOf(variable[2], variable[3](at, i)) : "";
          const known = variable ? `<br>${mcpca.forPlot(variable[1])}: ${mcpca.forPlot(value, 40)}` : "";
          return `${mcpca.forPlot(mcpca.metadata.rowName(at), 60)}${known}<br>score ${number(colours[a], 3)}`;
        });
        const points = across.map((x, a) => ({
          x,
          y: up[a],
          at: mcpca.metadata.starts[i] + a,
          context: i,
          text: said[a],
        }));
        const byScore = {
          type: "scatter",
          mode: "markers",
          x: across,
          y: up,
          marker: {
            size: 6,
            color: Array.from(colours),
            cmin: -most,
            cmax: most,
            colorscale: mcpca.diverging(),
            line: { width: 0.6, color: mcpca.colour("muted") },
            colorbar: { title: { text: "score", side: "right" }, thickness: 10, len: 0.9, outlinewidth: 0 },
          },
          text: said,
          hovertemplate: "%{text}<extra></extra>",
          showlegend: false,
        };
        const drawn = variable ? mcpca.points.traces(points, variable) : [byScore];
        const { height, layout } = mcpca.points.below(380, parts.rowChart, drawn);
        return {
          file: ["rows", data.mcpcs[j], data.contexts[i]],
          height,
          traces: [
            ...drawn,
            {
              type: "scatter",
              mode: "lines+markers",
              x: [-dx, dx],
              y: [-dy, dy],
              line: { color: mcpca.colour("accent"), width: 3 },
              marker: { symbol: ["circle-open", "circle"], size: 9, color: mcpca.colour("accent") },
              hovertemplate: `${mcpca.mcpcPlot(j)}<extra></extra>`,
              showlegend: false,
            },
          ],
          layout: {
            ...layout,
            xaxis: mcpca.axis(name(pair.x)),
            yaxis: mcpca.axis(name(pair.y), { scaleanchor: "x" }),
            hovermode: "closest",
          },
        };
      },
    );
    // The share of its length that the projection of a unit vector keeps.
    const seen = Math.hypot(sample.axes[j][pair.x], sample.axes[j][pair.y]);
    parts.rows.replaceChildren(
      head,
      el(
        "div",
        { class: "controls" },
        pick(
          "rows-context",
          "Context",
          possible.map((i) => [i, mcpca.contextName(i, 60)]),
          i,
          "context",
        ),
        ...(axes.length > 1
          ? [
              pick(
                "rows-x",
                "Across",
                axes.map((a) => [a, name(a)]),
                pair.x,
                "x",
              ),
              pick(
                "rows-y",
                "Up",
                axes.map((a) => [a, name(a)]),
                pair.y,
                "y",
              ),
            ]
          : []),
        ...(rowVariables().length
          ? [
              pick(
                "rows-colour",
                "Colour by",
                [["score", "score"], ...rowVariables().map(([key, text]) => [key, mcpca.short(text, 30)])],
                pair.colour,
                "colour",
              ),
            ]
          : []),
      ),
      el(
        "p",
        { class: "muted" },
        `${count(sample.shown)} of ${count(sample.n)} rows${sample.shown < sample.n ? ", drawn at random" : ""}. `,
        "The line is two standard deviations of the MCPC to either side (dot: positive), ",
        `seen in this plane at ${percent(seen)} of its length.`,
      ),
      parts.rowChart,
    );
  };

  // Whether it comes back in halves of the rows, or of what was split.
  const back = (j) => {
    const replicability = data.ofMcpcs.replicability;
    let text = "Whether this MCPC comes back in other rows was not computed.";
    if (replicability && replicability.mean[j] === null)
      text = "It is not known whether this MCPC comes back: halves have too few rows.";
    else if (replicability) {
      const each = replicability.cosines[j].map((c) => number(c, 3));
      const good = replicability.replicates[j];
      text =
        `In halves of the ${replicability.by} it comes back with |cos| ${replicability.said[j]} (mean of ${each.length} splits: ` +
        `${each.join(", ")}), which is ${good ? "above" : "not above"} ${replicability.threshold}: ` +
        `it ${good ? "replicates" : "does not replicate"}.`;
    }
    const dependence = data.ofMcpcs.dependence;
    let ofContexts = "Whether this MCPC differs between contexts was not tested.";
    if (dependence) {
      const said =
        `p = ${number(dependence.p[j], 2)}, q = ${number(dependence.q[j], 2)}, ${count(dependence.permutations)} permutations ` +
        `of ${dependence.by}`;
      ofContexts = dependence.dependent[j]
        ? `Its variance differs between contexts, by ${percent(dependence.dispersion[j])} of its mean (standard deviation; ${said}).`
        : `No difference between contexts is seen (${said}): it is in all contexts alike, and pooled PCA would do.`;
      if (dependence.outcome === "scale" && dependence.dependent[j])
        ofContexts += " So do all MCPCs, by one factor a context: a difference of scale.";
    }
    parts.back.replaceChildren(
      el("h3", {}, "Replicability"),
      el("p", { id: "replicability" }, text),
      el("h3", {}, "Is it of the contexts?"),
      el("p", { id: "dependence" }, ofContexts),
    );
  };
}
