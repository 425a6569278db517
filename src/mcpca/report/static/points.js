// Points of rows in a chart, coloured by their context, by what is known of it, or by what is known of the row.
{
  const { data, metadata } = mcpca;
  const MOST_SVG = 3000; // points; more are drawn by WebGL where the browser has it
  let webgl = null;
  mcpca.points = {};
  mcpca.points.kind = (n) => {
    if (n <= MOST_SVG || mcpca.printing) return "scatter";
    webgl ??= Boolean(document.createElement("canvas").getContext("webgl"));
    return webgl ? "scattergl" : "scatter";
  };

  // What rows can be coloured by: [key, label, column, value(row, context)]. A row is a number over all contexts.
  mcpca.points.variables = () => [
    ...metadata.rowColumns.map((column, c) => [`row-${c + 1}`, column.name, column, (at) => metadata.valuesOf(column)[at]]),
    ...metadata.columns.map((column, c) => [`known-${c + 1}`, column.name, column, (at, i) => column.values[i]]),
  ];
  mcpca.points.variable = (key) => mcpca.points.variables().find(([name]) => name === key) ?? null;

  // Contexts as a column, of which only those in `chosen` have a colour.
  mcpca.points.ofContexts = (chosen) => {
    const place = new Map(chosen.map((i, at) => [i, at]));
    const column = {
      name: "context",
      categories: chosen.map((i) => data.contexts[i]),
      values: chosen.map((_, at) => at),
    };
    return ["context", "context", column, (at, i) => place.get(i) ?? -1];
  };

  const OUTLINE = 0.5;
  // Traces of points {x, y, at, context, text}: one for each name, or one with a scale of numbers. `selected`, a set of
  // rows, are drawn strong and others weak; null leaves all as they are.
  mcpca.points.traces = (points, variable, { size = 6, selected = null } = {}) => {
    const kind = mcpca.points.kind(points.length);
    const trace = (some, name, marker, more = {}) => ({
      type: kind,
      mode: "markers",
      name,
      x: some.map((p) => p.x),
      y: some.map((p) => p.y),
      text: some.map((p) => p.text),
      customdata: some.map((p) => p.at),
      hovertemplate: "%{text}<extra></extra>",
      marker: { size, line: { width: OUTLINE, color: mcpca.colour("muted") }, ...marker },
      unselected: { marker: { opacity: 0.12 } },
      ...(selected ? { selectedpoints: mcpca.range(some.length).filter((a) => selected.has(some[a].at)) } : {}),
      ...more,
    });
    const [, , column, value] = variable;
    const scale = metadata.scaleOf(column);
    const unknown = (p) => !metadata.isKnown(column, value(p.at, p.context));
    const rest = points.filter(unknown);
    // What is not known comes first, so that the others are drawn over it.
    const grey = rest.length
      ? [trace(rest, "not known", { color: mcpca.colour("line"), line: { width: 0 }, symbol: "circle" })]
      : [];
    if (!column.categories) {
      const known = points.filter((p) => !unknown(p));
      const marker = {
        color: known.map((p) => value(p.at, p.context)),
        cmin: scale.low,
        cmax: scale.high > scale.low ? scale.high : scale.low + 1,
        colorscale: "Viridis",
        colorbar: { title: { text: mcpca.forPlot(column.name), side: "right" }, thickness: 10, len: 0.9, outlinewidth: 0 },
      };
      return { traces: [...grey, trace(known, mcpca.forPlot(column.name), marker, { showlegend: false })], names: grey.length };
    }
    const groups = new Map();
    for (const p of points)
      if (!unknown(p)) {
        const code = value(p.at, p.context);
        if (!groups.has(code)) groups.set(code, []);
        groups.get(code).push(p);
      }
    const named = scale.order
      .filter((code) => groups.has(code))
      .map((code) => {
        const { colour, symbol } = scale.style(code);
        return trace(groups.get(code), mcpca.forPlot(column.categories[code]), { color: colour, symbol });
      });
    return { traces: [...grey, ...named], names: named.length + grey.length };
  };

  // Pixels that a legend of so many names takes above a chart, about. Below it would lie on the labels of the axis.
  mcpca.points.legendHeight = (names, width) => (names ? 22 * Math.ceil((names * 130) / Math.max(width - 60, 200)) + 12 : 0);
  mcpca.points.legend = { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", itemclick: false, itemdoubleclick: false };
}
