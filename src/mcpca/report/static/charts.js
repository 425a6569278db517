// Charts: one way to draw all of them, with the colours of the page.
{
  const { el } = mcpca;
  const drawn = new Map(); // element -> function that makes its traces and layout
  const stale = new Set(); // elements whose picture is not that of the function
  const near = new Set(); // elements in view, or nearly
  const printed = new Set(); // elements whose picture is as wide as paper

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  mcpca.colour = colour;

  // Purple is negative and orange positive; the middle is the colour of the paper.
  mcpca.diverging = () => [
    [0, colour("negative")],
    [0.25, colour("negative-pale")],
    [0.5, colour("middle")],
    [0.75, colour("positive-pale")],
    [1, colour("positive")],
  ];

  const base = (height) => ({
    height,
    ...(mcpca.printing ? { width: mcpca.PAPER } : {}),
    margin: { l: 10, r: 12, t: 8, b: 40 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12, color: colour("text") },
    hoverlabel: { bgcolor: colour("panel"), bordercolor: colour("line"), font: { color: colour("text") } },
    showlegend: false,
    dragmode: false,
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("muted"), activecolor: colour("accent") },
    bargap: 0.25,
  });
  mcpca.axis = (title, more = {}) => ({
    title: { text: title, font: { size: 12 } },
    gridcolor: colour("grid"),
    linecolor: colour("line"),
    zerolinecolor: colour("line"),
    automargin: true,
    fixedrange: true,
    ...more,
  });
  // An axis of names: places 0, 1, ... from the top, labelled by text that Plotly is not to interpret.
  mcpca.nameAxis = (labels) =>
    mcpca.axis("", {
      tickmode: "array",
      tickvals: mcpca.range(labels.length),
      ticktext: labels,
      range: [labels.length - 0.4, -0.6],
      showgrid: false,
      zeroline: false,
      ticks: "",
    });
  mcpca.rowsHeight = (n) => Math.max(150, 19 * n + 60);

  const config = { displayModeBar: false, responsive: true, doubleClick: false, showTips: false };
  // Points that the graphics card draws are drawn as vectors on paper and in files.
  const vectors = (traces) => traces.map((t) => (t.type === "scattergl" ? { ...t, type: "scatter" } : t));

  const paint = (node) => {
    stale.delete(node);
    if (printed.delete(node)) Plotly.purge(node); // it would keep the width of the paper
    if (mcpca.printing) printed.add(node);
    const { traces, layout, height, after } = drawn.get(node)();
    const merged = { ...base(height), ...layout };
    node.style.minHeight = `${height}px`; // when the window changes Plotly forgets the height, and keeps the picture
    Plotly.react(node, mcpca.printing ? vectors(traces) : traces, merged, config);
    after?.(node); // where a chart listens to its reader
  };

  // A place for a chart; `label` is what a screen reader says, `make` returns {traces, layout, height, file, after}:
  // `file` are words for the name of its file (what it is, of which MCPC or context), `after` is called once painted.
  // It is painted when it comes near the window: a choice changes many charts, of which few are looked at.
  const watcher = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) near.add(target);
        else near.delete(target);
      }
      mcpca.paintStale();
    },
    { rootMargin: "300px" },
  );
  // What is returned holds the chart, which has the id, and buttons to save it.
  mcpca.chart = (id) => {
    const node = el("div", { id, class: "chart", role: "figure" });
    watcher.observe(node);
    const buttons = mcpca.saveButtons(
      id.replace("chart-", ""),
      () => mcpca.chartSvg(node),
      () => drawn.get(node)().file ?? [id.replace("chart-", "")],
    );
    const whole = el("div", { class: "figure" }, node, el("div", { class: "save-tools" }, ...buttons));
    whole.chart = node;
    return whole;
  };
  mcpca.draw = (place, label, make) => {
    const node = place.chart ?? place;
    node.setAttribute("aria-label", label);
    drawn.set(node, make);
    stale.add(node);
    if (near.has(node)) mcpca.paintStale();
    else node.style.minHeight = `${make().height}px`; // so that nothing moves when it is painted
  };
  // Paint what is in view, or everything (to print). Before Plotly has been read there is nothing to paint with.
  mcpca.paintStale = (all = false) => {
    if (!window.Plotly) return;
    for (const node of [...stale]) if (node.isConnected && (all || near.has(node))) paint(node);
  };
  // The chart as it would be painted, of a width of its own, on white paper.
  mcpca.figure = (node, width) => {
    const { traces, layout, height } = drawn.get(node)();
    const merged = { ...base(height), ...layout, width, paper_bgcolor: "#ffffff" };
    return { traces: vectors(traces), layout: merged, label: node.getAttribute("aria-label") };
  };
  mcpca.outdated = (node) => {
    if (drawn.has(node)) stale.add(node);
    mcpca.paintStale();
  };
  mcpca.painted = (node) => drawn.has(node) && !stale.has(node);
  mcpca.repaint = () => {
    for (const node of drawn.keys()) stale.add(node);
    mcpca.paintStale();
  };

  // Horizontal whiskers of intervals around values.
  mcpca.whiskers = (values, lower, upper) => ({
    type: "data",
    symmetric: false,
    array: values.map((v, i) => upper[i] - v),
    arrayminus: values.map((v, i) => v - lower[i]),
    thickness: 1.2,
    width: 0,
    color: colour("muted"),
  });
}
