// The map: a heatmap of the loadings on a canvas of the size of its window, drawn anew as it scrolls, so that thousands
// of contexts cost no more than those in view. Names beside it are elements of the page.
{
  const { el, data, byId } = mcpca;
  const RAMPS = {
    light: ["#f7fbff", "#deebf7", "#c6dbef", "#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#08519c", "#08306b"],
    dark: ["#1d242c", "#16304d", "#0b447f", "#1a62a3", "#3a86bf", "#65a8d3", "#98c6e2", "#c7def0", "#f7fbff"],
  };
  const HEAD = 34; // pixels above the cells, for the numbers of the MCPCs
  const READABLE = 18,
    SMALLEST = 2,
    LARGEST = 26; // heights of a row
  const LABEL = 13; // pixels that a name needs
  const PAGE = 780; // pixels down a printed page, less the title
  const AROUND = 225; // pixels for what is above the section and below the map
  const MOST_NUMBERS = 150; // cells; beyond it the colours say more

  const view = { rows: [], columns: [], rowHeight: READABLE, columnWidth: 20, labels: 150, at: null };
  const state = { find: "", findMcpc: "", rowOrder: "given", columnOrder: "given", scale: "mcpc", least: 0, fit: true };
  mcpca.map = { view, state };

  // Colours 0..255 by interpolation between the stops of a ramp.
  const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const table = (stops) =>
    mcpca.range(256).map((c) => {
      const at = (c / 255) * (stops.length - 1),
        low = Math.min(Math.floor(at), stops.length - 2);
      const [a, b] = [rgb(stops[low]), rgb(stops[low + 1])];
      return a.map((v, i) => Math.round(v + (at - low) * (b[i] - v)));
    });
  const tables = { light: table(RAMPS.light), dark: table(RAMPS.dark) };

  const sum = (row) => row.reduce((a, b) => a + b, 0);
  const totals = data.loadings.map(sum);
  const rowMost = data.loadings.map((row) => Math.max(...row, 0));
  const most = Math.max(...rowMost);
  // What a colour stands for, from 0 to 1.
  const SCALES = {
    mcpc: ["per MCPC", "share of the MCPC's largest", (i, j) => data.loadings[i][j] / (mcpca.largest[j] || 1)],
    context: ["per context", "share of the context's largest", (i, j) => data.loadings[i][j] / (rowMost[i] || 1)],
    none: ["as it is", `${data.loading.name} (variance)`, (i, j) => data.loadings[i][j] / (most || 1)],
  };
  const given = data.ofContexts;
  const collator = new Intl.Collator("en", { numeric: true });
  const ROWS = {
    given: ["order given", () => mcpca.range(mcpca.k)],
    cluster: ["similarity", () => data.orders.contexts],
    name: ["name", () => mcpca.range(mcpca.k).sort((a, b) => collator.compare(data.contexts[a], data.contexts[b]))],
    chosen: ["loading on the chosen MCPC", () => by(mcpca.k, (i) => data.loadings[i][mcpca.chosen.mcpc])],
    total: ["total loading", () => by(mcpca.k, (i) => totals[i])],
    explained: ["how well they are fitted", () => by(mcpca.k, (i) => given.explained[i])],
    rows: ["number of rows", () => by(mcpca.k, (i) => given.rows[i])],
  };
  const COLUMNS = {
    given: ["total variance", () => mcpca.range(mcpca.r)],
    cluster: ["similarity", () => data.orders.mcpcs],
    chosen: ["loading in the chosen context", () => by(mcpca.r, (j) => data.loadings[mcpca.chosen.context][j])],
    carrying: ["number of contexts that carry it", () => by(mcpca.r, (j) => data.ofMcpcs.carrying[j])],
  };
  const by = (n, value) => mcpca.sortedBy(mcpca.range(n), value);

  // Which MCPCs a text finds: by name, by number, or by a feature at one of the poles.
  const findMcpc = (text) => {
    const { names, poles } = data.features;
    const features = new Set(mcpca.range(names.length).filter((f) => names[f].toLowerCase().includes(text)));
    return (j) =>
      data.mcpcs[j].toLowerCase().includes(text) ||
      ["positive", "negative"].some((end) => poles[j][end].features.some((f) => features.has(f)));
  };

  const arrange = () => {
    const text = state.find.trim().toLowerCase(),
      ofMcpc = state.findMcpc.trim().toLowerCase();
    const found =
      ofMcpc === "" ? () => true : /^\d+$/.test(ofMcpc) ? (j) => String(j + 1) === ofMcpc : findMcpc(ofMcpc);
    const [[, columns], [, rows]] = [COLUMNS[state.columnOrder], ROWS[state.rowOrder]];
    view.columns = columns().filter(found);
    view.rows = rows().filter(
      (i) =>
        (text === "" || data.contexts[i].toLowerCase().includes(text)) &&
        (state.least === 0 || view.columns.some((j) => carries(i, j))),
    );
    if (view.at && (view.at[0] >= view.rows.length || view.at[1] >= view.columns.length)) view.at = null;
    const shown = (n, of, what) => `${n === of ? "all" : `${mcpca.count(n)} of`} ${mcpca.many(of, what)}`;
    byId("map-count").textContent =
      `Showing ${shown(view.rows.length, mcpca.k, "context")} and ${shown(view.columns.length, mcpca.r, "MCPC")}.`;
  };
  const carries = (i, j) =>
    state.least === 0 || (data.loadings[i][j] > 0 && data.loadings[i][j] >= state.least * mcpca.largest[j]);

  // Elements ---------------------------------------------------------------------------------------------------------
  byId("map-loadings").textContent = data.loading.words;
  const canvas = el("canvas", { "aria-hidden": "true" });
  const names = el("div", { class: "map-names", "aria-hidden": "true" });
  const numbers = el("div", { class: "map-numbers", "aria-hidden": "true" });
  const stage = el("div", { class: "map-stage" }, numbers, names, canvas);
  const spacer = el("div", { class: "map-spacer" }, stage);
  const scroller = el(
    "div",
    {
      id: "heatmap",
      class: "map-scroll",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "heatmap",
      "aria-label": `Heatmap of loadings: ${mcpca.k} contexts by ${mcpca.r} MCPCs. Arrow keys move, Enter selects.`,
      "aria-describedby": "map-keys",
    },
    spacer,
  );
  const bar = el("span", { class: "legend-bar" });
  const legend = el(
    "div",
    { class: "legend", "aria-hidden": "true" },
    el("span", {}, "0"),
    bar,
    el("span", { id: "legend-most" }),
    el("span", { id: "legend-what", class: "muted" }),
  );

  const measure = () => {
    const width = mcpca.printing ? mcpca.PAPER : byId("map-view").clientWidth - 2;
    // Beside the details all of the map is to be seen at once; above them it may take most of the window.
    const above = byId("map-view").getBoundingClientRect().top - byId("map").getBoundingClientRect().top;
    const aside = getComputedStyle(byId("map")).position === "sticky";
    const inWindow = Math.max(280, aside ? window.innerHeight - above - AROUND : 0.72 * window.innerHeight);
    const tallest = mcpca.printing ? PAGE : inWindow;
    const longest = Math.max(...data.contexts.map((name) => Math.min(name.length, 40)), 4);
    view.labels = Math.min(width * 0.34, 200, 7.2 * longest + 14);
    const room = width - view.labels;
    view.columnWidth = Math.min(Math.max(room / Math.max(view.columns.length, 1), 9), 56);
    const whole = (tallest - HEAD) / Math.max(view.rows.length, 1);
    view.rowHeight = state.fit || mcpca.printing ? Math.min(Math.max(whole, SMALLEST), LARGEST) : READABLE;
    const [height, across] = [
      HEAD + view.rowHeight * view.rows.length,
      view.labels + view.columnWidth * view.columns.length,
    ];
    spacer.style.height = `${height}px`;
    spacer.style.width = `${Math.max(across, 1)}px`;
    view.height = Math.min(height, tallest);
    view.width = Math.min(across, width);
    scroller.style.height = `${view.height + (across > width ? 14 : 0) + 2}px`;
    stage.style.width = `${view.width}px`;
    stage.style.height = `${view.height}px`;
  };

  const inView = (from, size, length, n) => [
    Math.max(0, Math.floor(from / size)),
    Math.min(n, Math.ceil((from + length) / size)),
  ];

  const paint = () => {
    const { rows, columns, rowHeight, columnWidth, labels, width, height } = view;
    const [left, top] = [scroller.scrollLeft, scroller.scrollTop];
    const dense = window.devicePixelRatio || 1;
    const [w, h] = [Math.max(width - labels, 1), Math.max(height - HEAD, 1)];
    canvas.width = w * dense;
    canvas.height = h * dense;
    canvas.style.cssText = `left:${labels}px;top:${HEAD}px;width:${w}px;height:${h}px`;
    const c = canvas.getContext("2d");
    c.scale(dense, dense);
    const colours = tables[mcpca.dark() ? "dark" : "light"],
      value = SCALES[state.scale][2];
    const [r0, r1] = inView(top, rowHeight, h, rows.length),
      [c0, c1] = inView(left, columnWidth, w, columns.length);
    const gap = rowHeight > 8 && columnWidth > 8 ? 1 : 0;
    c.font = "11px system-ui, sans-serif";
    const text = (i, j) => mcpca.number(data.loadings[i][j], 3);
    const fits = (i, j) => c.measureText(text(i, j)).width < columnWidth - 6;
    const few = rows.length * columns.length <= MOST_NUMBERS && rowHeight >= 15;
    const written = few && rows.every((i) => columns.every((j) => fits(i, j)));
    c.textAlign = "center";
    c.textBaseline = "middle";
    for (let a = r0; a < r1; a++) {
      for (let b = c0; b < c1; b++) {
        const [i, j] = [rows[a], columns[b]],
          [x, y] = [b * columnWidth - left, a * rowHeight - top];
        const shade = colours[carries(i, j) ? Math.round(255 * Math.min(value(i, j), 1)) : 0];
        c.fillStyle = `rgb(${shade.join(",")})`;
        c.fillRect(x, y, columnWidth - gap, Math.max(rowHeight - gap, 1));
        if (written && carries(i, j)) {
          c.fillStyle = 0.299 * shade[0] + 0.587 * shade[1] + 0.114 * shade[2] < 140 ? "#fff" : "#26303a";
          c.fillText(text(i, j), x + (columnWidth - gap) / 2, y + (rowHeight - gap) / 2 + 0.5);
        }
      }
    }
    const outline = (x, y, across, down, line) => {
      c.lineWidth = line;
      c.strokeStyle = mcpca.colour("accent");
      c.strokeRect(x - left - 0.5, y - top - 0.5, across, down);
    };
    const [a, b] = [rows.indexOf(mcpca.chosen.context), columns.indexOf(mcpca.chosen.mcpc)];
    if (a >= 0) outline(0, a * rowHeight, columns.length * columnWidth, Math.max(rowHeight, 3), 1.5);
    if (b >= 0) outline(b * columnWidth, 0, columnWidth, rows.length * rowHeight, 1.5);
    if (view.at && document.activeElement === scroller) {
      outline(view.at[1] * columnWidth, view.at[0] * rowHeight, columnWidth, Math.max(rowHeight, 4), 3);
    }
    label(r0, r1, c0, c1, left, top);
  };

  // Names of the rows and columns in view; where they are narrower than a name, of some, and of the chosen ones.
  const label = (r0, r1, c0, c1, left, top) => {
    const { rows, columns, rowHeight, columnWidth, labels } = view;
    const every = Math.ceil(LABEL / rowHeight),
      chosenRow = rows.indexOf(mcpca.chosen.context);
    const items = [];
    for (let a = r0; a < r1; a++) {
      const chosen = a === chosenRow;
      if (!chosen && (a % every || (chosenRow >= 0 && Math.abs(a - chosenRow) < every))) continue;
      const name = data.contexts[rows[a]];
      const node = el("span", { class: chosen ? "chosen" : null, title: mcpca.short(name, 200) }, mcpca.nameNode(name));
      node.dataset.context = rows[a];
      node.style.cssText = `top:${HEAD + (a + 0.5) * rowHeight - top - 8}px;max-width:${labels - 8}px`;
      items.push(node);
    }
    names.replaceChildren(...items);
    names.style.width = `${labels}px`;
    const wide = String(mcpca.r).length * 7 + 5,
      sparse = Math.ceil(wide / columnWidth);
    const chosenColumn = columns.indexOf(mcpca.chosen.mcpc);
    const heads = [el("span", { class: "map-corner muted" }, "MCPC")];
    heads[0].style.width = `${labels - 8}px`;
    for (let b = c0; b < c1; b++) {
      const chosen = b === chosenColumn;
      if (!chosen && (b % sparse || (chosenColumn >= 0 && Math.abs(b - chosenColumn) < sparse))) continue;
      const node = el("span", { class: chosen ? "chosen" : null }, String(columns[b] + 1));
      node.dataset.mcpc = columns[b];
      node.style.cssText = `left:${labels + (b + 0.5) * columnWidth - left - 20}px`;
      heads.push(node);
    }
    numbers.replaceChildren(...heads);
  };

  const drawLegend = () => {
    const stops = tables[mcpca.dark() ? "dark" : "light"]
      .filter((_, c) => c % 51 === 0)
      .map((v) => `rgb(${v.join(",")})`);
    bar.style.background = `linear-gradient(to right, ${stops.join(",")})`;
    byId("legend-most").textContent = state.scale === "none" ? mcpca.number(most, 3) : "100%";
    byId("legend-what").textContent = SCALES[state.scale][1];
  };

  mcpca.map.paint = paint;
  mcpca.map.refresh = () => {
    arrange();
    measure();
    paint();
    drawLegend();
  };
  // A new choice: an order that depends on it changes too.
  mcpca.map.choose = () => {
    view.at = null; // the keyboard goes on from there
    if (state.rowOrder === "chosen" || state.columnOrder === "chosen") mcpca.map.refresh();
    else paint();
  };

  // Pointer and keyboard ---------------------------------------------------------------------------------------------
  const cellAt = (event) => {
    const box = canvas.getBoundingClientRect();
    const a = Math.floor((event.clientY - box.top + scroller.scrollTop) / view.rowHeight);
    const b = Math.floor((event.clientX - box.left + scroller.scrollLeft) / view.columnWidth);
    return a >= 0 && a < view.rows.length && b >= 0 && b < view.columns.length ? [a, b] : null;
  };
  const words = (i, j) => {
    const parts = [`${data.loading.name} ${mcpca.number(data.loadings[i][j])}`];
    if (mcpca.largest[j] > 0)
      parts.push(`${mcpca.percent(data.loadings[i][j] / mcpca.largest[j])} of the MCPC's largest`);
    if (data.intervals) {
      parts.push(`interval ${mcpca.number(data.intervals.lower[i][j])} to ${mcpca.number(data.intervals.upper[i][j])}`);
    }
    if (data.presence)
      parts.push(data.presence.adjusted[i][j] <= data.presence.alpha ? "present" : "not shown to be present");
    return parts.join(", ");
  };
  const tip = byId("tip");
  canvas.addEventListener("mousemove", (event) => {
    const cell = cellAt(event);
    tip.hidden = !cell;
    if (!cell) return;
    const [i, j] = [view.rows[cell[0]], view.columns[cell[1]]];
    tip.replaceChildren(
      el("b", {}, mcpca.nameNode(data.contexts[i], 60)),
      el("span", {}, `${mcpca.mcpcName(j)}: ${words(i, j)}`),
    );
    tip.style.left = `${Math.min(event.clientX + 14, window.innerWidth - 270)}px`;
    tip.style.top = `${event.clientY + 14}px`;
  });
  canvas.addEventListener("mouseleave", () => (tip.hidden = true));
  canvas.addEventListener("click", (event) => {
    const cell = cellAt(event);
    if (cell) mcpca.choose({ context: view.rows[cell[0]], mcpc: view.columns[cell[1]] }, "mcpc");
  });
  names.addEventListener("click", (event) => {
    const node = event.target.closest("[data-context]");
    if (node) mcpca.choose({ context: Number(node.dataset.context) }, "context");
  });
  numbers.addEventListener("click", (event) => {
    const node = event.target.closest("[data-mcpc]");
    if (node) mcpca.choose({ mcpc: Number(node.dataset.mcpc) }, "mcpc");
  });
  const goTo = (a, b) => {
    view.at = [Math.min(Math.max(a, 0), view.rows.length - 1), Math.min(Math.max(b, 0), view.columns.length - 1)];
    const [y, x] = [view.at[0] * view.rowHeight, view.at[1] * view.columnWidth];
    const [h, w] = [view.height - HEAD - view.rowHeight, view.width - view.labels - view.columnWidth];
    scroller.scrollTop = Math.min(Math.max(scroller.scrollTop, y - h), y);
    scroller.scrollLeft = Math.min(Math.max(scroller.scrollLeft, x - w), x);
    paint();
    const [i, j] = [view.rows[view.at[0]], view.columns[view.at[1]]];
    mcpca.announce(`${mcpca.contextName(i)}, ${mcpca.mcpcName(j)}: ${words(i, j)}`);
  };
  const STEPS = {
    ArrowUp: [-1, 0],
    ArrowDown: [1, 0],
    ArrowLeft: [0, -1],
    ArrowRight: [0, 1],
    PageUp: [-10, 0],
    PageDown: [10, 0],
    Home: [0, -1e9],
    End: [0, 1e9],
  };
  scroller.addEventListener("keydown", (event) => {
    if (!view.rows.length || !view.columns.length || event.ctrlKey || event.metaKey || event.altKey) return;
    const start = [
      Math.max(view.rows.indexOf(mcpca.chosen.context), 0),
      Math.max(view.columns.indexOf(mcpca.chosen.mcpc), 0),
    ];
    const at = view.at ?? start;
    if (STEPS[event.key]) goTo(at[0] + STEPS[event.key][0], at[1] + STEPS[event.key][1]);
    else if (event.key === "Enter" || event.key === " ")
      mcpca.choose({ context: view.rows[at[0]], mcpc: view.columns[at[1]] });
    else return;
    event.preventDefault();
  });
  scroller.addEventListener("scroll", paint);
  scroller.addEventListener("focus", paint);
  scroller.addEventListener("blur", paint);

  // Controls ---------------------------------------------------------------------------------------------------------
  mcpca.map.begin = () => {
    byId("map-view").append(scroller, legend);
    if (!data.orders.contexts) delete ROWS.cluster;
    if (!given.rows) delete ROWS.rows;
    const entries = (choices) => Object.entries(choices).map(([key, [text]]) => [key, text]);
    const bind = (id, key, read, event = "change") =>
      byId(id).addEventListener(event, (e) => {
        state[key] = read(e.target.value);
        mcpca.map.refresh();
      });
    const same = (text) => text;
    mcpca.options(byId("row-order"), entries(ROWS), state.rowOrder);
    mcpca.options(byId("column-order"), entries(COLUMNS), state.columnOrder);
    mcpca.options(byId("scale"), entries(SCALES), state.scale);
    mcpca.options(
      byId("rows-height"),
      [
        ["fit", "all in view"],
        ["read", "readable"],
      ],
      "fit",
    );
    byId("rows-height-label").hidden = mcpca.k * READABLE < 500;
    bind("find-context", "find", same, "input");
    bind("find-mcpc", "findMcpc", same, "input");
    bind("row-order", "rowOrder", same);
    bind("column-order", "columnOrder", same);
    bind("scale", "scale", same);
    bind("rows-height", "fit", (value) => value === "fit");
    byId("least").addEventListener("input", (e) => {
      state.least = Number(e.target.value) / 100;
      byId("least-value").textContent = state.least ? `${e.target.value}% of the MCPC's largest` : "all";
      mcpca.map.refresh();
    });
    const details = byId("map-table");
    const fillTable = () => {
      if (!details.open) return;
      const columns = [
        { title: "context", name: true, value: (i) => data.contexts[i] },
        ...view.columns.map((j) => ({ title: data.mcpcs[j], value: (i) => data.loadings[i][j] })),
      ];
      details.lastElementChild.replaceChildren(
        mcpca.table({
          caption: "Loadings as shown in the map",
          file: "loadings.csv",
          columns,
          rows: view.rows,
          open: true,
        }),
      );
    };
    details.addEventListener("toggle", fillTable);
    for (const id of ["find-context", "find-mcpc", "row-order", "column-order", "least"])
      byId(id).addEventListener("input", fillTable);
    mcpca.map.refresh();
  };
}
