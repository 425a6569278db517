// Points of rows in a chart, coloured by their context, by what is known of it, or by what is known of the row.
{
  const { data, metadata } = mcpca;
  mcpca.points = {};

  // What rows can be coloured by: [key, label, column, value(row, context)]. A row is a number over all contexts.
  mcpca.points.variables = () => [
    ...metadata.rowColumns.map((column, c) => {
      const value = (at) => metadata.valuesOf(column)[at];
      return [`row-${c + 1}`, column.name, column, value];
    }),
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
    const trace = (some, name, marker, more = {}) => ({
      type: "scatter",
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
        colorbar: {
          title: { text: mcpca.forPlot(column.name), side: "right" },
          thickness: 10,
          len: 0.9,
          outlinewidth: 0,
        },
      };
      return [...grey, trace(known, mcpca.forPlot(column.name), marker, { showlegend: false })];
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
    return [...grey, ...named];
  };

  // Height and layout of a chart with the names of its traces below it. Plotly would put them wherever there is room by
  // its guess: so their rows are counted here, and get a margin of their own.
  const LINE = 19, // pixels of a row of names
    SIGN = 48, // and of a sign, with its gaps
    AXIS = 52; // below the chart, for numbers and title
  const ruler = document.createElement("canvas").getContext("2d");
  // Rows of names depend on the width, so that a chart that was made narrower is made anew.
  const painted = new Map(); // chart -> the width that its names were counted for
  const follower = new ResizeObserver((entries) => {
    for (const { target } of entries)
      if (!mcpca.printing && target.clientWidth && target.clientWidth !== painted.get(target)) mcpca.outdated(target);
  });
  mcpca.points.below = (height, place, traces) => {
    const node = place.chart ?? place;
    if (!painted.has(node)) follower.observe(node);
    painted.set(node, node.clientWidth);
    const names = traces.filter((trace) => trace.showlegend !== false).map((trace) => trace.name);
    if (!names.length) return { height, layout: { showlegend: false } };
    ruler.font = "12px system-ui, sans-serif";
    const wide = Math.ceil(Math.max(...names.map((name) => ruler.measureText(name).width))) + 2;
    const width = mcpca.printing ? mcpca.PAPER : node.clientWidth || 600;
    const across = Math.max(Math.floor((width - 70) / (wide + SIGN)), 1);
    const room = LINE * Math.ceil(names.length / across) + 14;
    return {
      height: height + room,
      layout: {
        showlegend: true,
        margin: { l: 10, r: 12, t: 8, b: AXIS + room },
        legend: {
          orientation: "h",
          x: 0,
          yref: "container",
          y: 0,
          yanchor: "bottom",
          entrywidth: wide,
          maxheight: room + 4,
          itemclick: false,
          itemdoubleclick: false,
        },
      },
    };
  };
}
