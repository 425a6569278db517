// The map: a heatmap of the loadings on a canvas of the size of its window, drawn anew as it scrolls, so that thousands
// of contexts cost no more than those in view. Names beside it are elements of the page. Other scripts may add orders of
// contexts to `mcpca.rowOrders`, and narrow columns between names and cells to `mcpca.map.beside`, before it begins.
{
  const { el, data, byId } = mcpca;
  const { rowOrders, columnOrders, findMcpc } = mcpca;
  const RAMPS = {
    light: ["#f7fbff", "#deebf7", "#c6dbef", "#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#08519c", "#08306b"],
    dark: ["#1d242c", "#16304d", "#0b447f", "#1a62a3", "#3a86bf", "#65a8d3", "#98c6e2", "#c7def0", "#f7fbff"],
  };
  const NUMBERS = 26, // pixels above the cells, for the numbers of the MCPCs,
    STRIP = 12, // and for each kind of marks below them
    NAMES = 130, // at most for names that the reader gave,
    BESIDE = 12; // and across, for each column between names and cells
  const READABLE = 18,
    SMALLEST = 1,
    LARGEST = 26; // heights of a row
  const NARROWEST = 5,
    WIDEST = 56; // columns
  const LABEL = 14; // pixels that a name needs
  const FEW_LABELS = 62; // pixels that names get at least
  const PAGE = 640; // pixels down a printed page, less the title
  const LEAST = 280; // pixels down, whatever the window
  const MOST_NUMBERS = 150; // cells; beyond it the colours say more

  const view = { rows: [], columns: [], at: null };
  Object.assign(view, { rowHeight: READABLE, columnWidth: 20, labels: 150, above: 0, head: NUMBERS });
  const state = {
    find: "",
    findMcpc: "",
    show: "all",
    rowOrder: "given",
    columnOrder: "given",
    scale: "mcpc",
    least: 0,
    fit: true,
  };
  // beside: [{title, letter, colour(i), words(i), fill(canvas, x, y, w, h, i)}], one for each narrow column; a letter stands
  // above it, and `fill` paints a cell where a colour is not enough.
  mcpca.map = { view, state, beside: [] };

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

  const rowMost = data.loadings.map((row) => Math.max(...row, 0));
  const most = Math.max(...rowMost);
  // What a colour stands for, from 0 to 1.
  const SCALES = {
    mcpc: ["per MCPC", "share of the MCPC's largest", (i, j) => data.loadings[i][j] / (mcpca.largest[j] || 1)],
    context: ["per context", "share of the context's largest", (i, j) => data.loadings[i][j] / (rowMost[i] || 1)],
    none: ["as it is", `${data.loading.name} (variance)`, (i, j) => data.loadings[i][j] / (most || 1)],
  };
  const arrange = () => {
    const text = state.find.trim().toLowerCase(),
      ofMcpc = state.findMcpc.trim().toLowerCase();
    const found =
      ofMcpc === "" ? () => true : /^\d+$/.test(ofMcpc) ? (j) => String(j + 1) === ofMcpc : findMcpc(ofMcpc);
    const [[, columns], [, rows]] = [columnOrders[state.columnOrder], rowOrders[state.rowOrder]];
    const [, , passes, filtered] = mcpca.marks.FILTERS[state.show];
    const which = [filtered, found.words].filter(Boolean).join(", ");
    view.columns = columns().filter((j) => found(j) && passes(j));
    view.rows = rows().filter(
      (i) =>
        (text === "" || data.contexts[i].toLowerCase().includes(text) || mcpca.metadata.matches(i, text)) &&
        (state.least === 0 || view.columns.some((j) => carries(i, j))),
    );
    if (view.at && (view.at[0] >= view.rows.length || view.at[1] >= view.columns.length)) view.at = null;
    const shown = (n, of, what) => `${n === of ? "all" : `${mcpca.count(n)} of`} ${mcpca.many(of, what)}`;
    byId("map-count").textContent =
      `Showing ${shown(view.rows.length, mcpca.k, "context")} and ${shown(view.columns.length, mcpca.r, "MCPC")}` +
      (which ? `, ${which}.` : ".");
  };
  const carries = (i, j) =>
    state.least === 0 || (data.loadings[i][j] > 0 && data.loadings[i][j] >= state.least * mcpca.largest[j]);

  // Elements ---------------------------------------------------------------------------------------------------------
  byId("map-loadings").textContent = data.loading.words;
  const canvas = el("canvas", { "aria-hidden": "true" });
  const strips = el("canvas", { class: "map-marks", "aria-hidden": "true" }); // of the MCPCs, below their numbers
  const sides = el("canvas", { class: "map-sides", "aria-hidden": "true" }); // of the contexts, beside their names
  const names = el("div", { class: "map-names", "aria-hidden": "true" });
  const numbers = el("div", { class: "map-numbers", "aria-hidden": "true" });
  const stage = el("div", { class: "map-stage" }, numbers, names, canvas, strips, sides);
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

  // How thick the browser's scroll bars are; 0 where they lie over the page.
  const barSize = () => {
    const probe = el("div", { class: "unseen bar-probe" });
    byId("map-view").append(probe);
    const size = probe.offsetWidth - probe.clientWidth;
    probe.remove();
    return size;
  };

  // Pixels down that the map may take. Beside the details all of it is to be seen at once, when the page is opened if
  // rows can be that low, else when it has been scrolled to; above them it may take most of the window.
  const tallestOf = (needed) => {
    const [section, area] = [byId("map"), byId("map-view")].map((node) => node.getBoundingClientRect());
    if (getComputedStyle(byId("map")).position !== "sticky")
      return Math.max(LEAST, 0.72 * window.innerHeight, Math.min(needed, 0.9 * window.innerHeight));
    const above = area.top - section.top + byId("map").scrollTop;
    const last = byId("map-table").firstElementChild.getBoundingClientRect().bottom;
    const around = above + last - scroller.getBoundingClientRect().bottom + 8;
    const top = byId("map").parentNode.getBoundingClientRect().top + window.scrollY;
    const kept = parseFloat(getComputedStyle(byId("map")).top); // where it stays
    const [first, then] = [top, kept].map((from) => window.innerHeight - from - around);
    // In a low window the section is scrolled rather than the map in it.
    return Math.max(LEAST, Math.min(needed, 0.6 * window.innerHeight), Math.min(Math.max(first, needed), then));
  };

  const measure = () => {
    const n = [Math.max(view.rows.length, 1), Math.max(view.columns.length, 1)];
    view.above = mcpca.names.longest ? Math.min(NAMES, 6.4 * mcpca.names.longest + 10) : 0;
    view.head = view.above + NUMBERS + STRIP * mcpca.marks.tested.length;
    const tallest = Math.floor(mcpca.printing ? PAGE : tallestOf(view.head + SMALLEST * n[0]));
    const whole = (tallest - view.head) / n[0];
    view.rowHeight = state.fit || mcpca.printing ? Math.min(Math.max(whole, SMALLEST), LARGEST) : READABLE;
    const height = Math.ceil(view.head + view.rowHeight * view.rows.length - 1e-6);
    const down = height > tallest; // has to be scrolled
    const bars = barSize();
    view.room = byId("map-view").clientWidth;
    const width = mcpca.printing ? mcpca.PAPER : view.room - (down ? bars : 0);
    const longest = Math.max(...data.contexts.map((name) => Math.min(name.length, 40)), 4);
    const side = mcpca.map.beside.length ? BESIDE * mcpca.map.beside.length + 4 : 0;
    const wanted = Math.max(Math.min(width * 0.34, 200, 7.2 * longest + 14), FEW_LABELS);
    // Where columns are many, names give way.
    view.names = Math.max(Math.min(wanted, width - side - NARROWEST * n[1]), FEW_LABELS);
    view.labels = view.names + side;
    view.columnWidth = Math.min(Math.max((width - view.labels) / n[1], NARROWEST), WIDEST);
    const across = Math.ceil(view.labels + view.columnWidth * view.columns.length - 1e-6);
    const sideways = across > width;
    spacer.style.height = `${height}px`;
    spacer.style.width = `${Math.max(across, 1)}px`;
    view.height = Math.min(height, tallest);
    view.width = Math.min(across, width);
    scroller.style.height = `${view.height + (sideways ? bars : 0)}px`;
    scroller.style.overflow = `${sideways ? "auto" : "hidden"} ${down ? "auto" : "hidden"}`;
    stage.style.width = `${view.width}px`;
    stage.style.height = `${view.height}px`;
  };

  // Which rows and columns are in view, where these are not all.
  const tellInView = () => {
    const part = (what, from, size, length, n) => {
      const [first, last] = [Math.round(from / size) + 1, Math.min(n, Math.floor((from + length) / size + 1e-6))];
      const [low, to, of] = [first, last, n].map(mcpca.count);
      return first > 1 || last < n ? [`${what} ${low} to ${to} of ${of}`] : [];
    };
    const parts = [
      ...part("rows", scroller.scrollTop, view.rowHeight, view.height - view.head, view.rows.length),
      ...part("columns", scroller.scrollLeft, view.columnWidth, view.width - view.labels, view.columns.length),
    ];
    const text = parts.length ? `In view: ${parts.join(", ")}; scroll for the others.` : "";
    if (byId("map-in-view").textContent !== text) byId("map-in-view").textContent = text;
  };

  const inView = (from, size, length, n) => [
    Math.max(0, Math.floor(from / size)),
    Math.min(n, Math.ceil((from + length) / size)),
  ];

  // A canvas of this size at this place, cleared, to be drawn on in pixels of the page.
  const prepare = (node, left, top, w, h) => {
    const dense = window.devicePixelRatio || 1;
    node.width = w * dense;
    node.height = h * dense;
    node.style.cssText = `left:${left}px;top:${top}px;width:${w}px;height:${h}px`;
    const c = node.getContext("2d");
    c.scale(dense, dense);
    return c;
  };
  // Edges on pixels of the screen: between them rows of a pixel or two would blur.
  const snap = (at) => Math.round(at * (window.devicePixelRatio || 1)) / (window.devicePixelRatio || 1);

  // The colour of a cell, that of a number on it, and whether it has one.
  const shade = (i, j) => {
    const shown = carries(i, j),
      share = shown ? Math.min(SCALES[state.scale][2](i, j), 1) : 0;
    const [red, green, blue] = tables[mcpca.dark() ? "dark" : "light"][Math.round(255 * share)];
    const ink = 0.299 * red + 0.587 * green + 0.114 * blue < 140 ? "#fff" : "#26303a";
    return { colour: `rgb(${red},${green},${blue})`, ink, shown };
  };
  const few = () => view.rows.length * view.columns.length <= MOST_NUMBERS;

  // Names are elements, and are left as they are where only the frame of a cell changes: a click ends where it began.
  const paint = (withNames = true) => {
    const { rows, columns, rowHeight, columnWidth, labels, width, height, head } = view;
    const [left, top] = [scroller.scrollLeft, scroller.scrollTop];
    const [w, h] = [Math.max(width - labels, 1), Math.max(height - head, 1)];
    const c = prepare(canvas, labels, head, w, h);
    const [r0, r1] = inView(top, rowHeight, h, rows.length),
      [c0, c1] = inView(left, columnWidth, w, columns.length);
    const gap = rowHeight > 8 && columnWidth > 8 ? 1 : 0;
    c.font = "11px system-ui, sans-serif";
    const text = (i, j) => mcpca.number(data.loadings[i][j], 3);
    const fits = (i, j) => c.measureText(text(i, j)).width < columnWidth - 6;
    const written = few() && rowHeight >= 15 && rows.every((i) => columns.every((j) => fits(i, j)));
    c.textAlign = "center";
    c.textBaseline = "middle";
    for (let a = r0; a < r1; a++) {
      const y = snap(a * rowHeight - top),
        down = Math.max(snap((a + 1) * rowHeight - top) - y - gap, 0.5);
      for (let b = c0; b < c1; b++) {
        const [i, j] = [rows[a], columns[b]],
          x = snap(b * columnWidth - left),
          across = snap((b + 1) * columnWidth - left) - x - gap;
        const { colour, ink, shown } = shade(i, j);
        c.fillStyle = colour;
        c.fillRect(x, y, across, down);
        if (written && shown) {
          c.fillStyle = ink;
          c.fillText(text(i, j), x + across / 2, y + down / 2 + 0.5);
        }
      }
    }
    const outline = (x, y, across, down, line) => {
      c.lineWidth = line;
      c.strokeStyle = mcpca.colour("accent");
      c.strokeRect(x - left - 0.5, y - top - 0.5, across, down);
    };
    // Lines between groups of contexts, where these stand together.
    c.fillStyle = mcpca.colour("text");
    if (rowHeight >= 3)
      for (const a of mcpca.metadata.breaks(state.rowOrder, rows)) c.fillRect(0, snap(a * rowHeight - top) - 1, w, 1);
    const [a, b] = [rows.indexOf(mcpca.chosen.context), columns.indexOf(mcpca.chosen.mcpc)];
    if (a >= 0) outline(0, a * rowHeight, columns.length * columnWidth, Math.max(rowHeight, 3), 1.5);
    if (b >= 0) outline(b * columnWidth, 0, columnWidth, rows.length * rowHeight, 1.5);
    if (view.at && document.activeElement === scroller) {
      outline(view.at[1] * columnWidth, view.at[0] * rowHeight, columnWidth, Math.max(rowHeight, 4), 3);
    }
    paintMarks(c0, c1, left);
    paintSides(r0, r1, top);
    if (!withNames) return;
    labelRows(r0, r1, top);
    labelColumns(c0, c1, left);
    tellInView();
  };

  const paintMarks = (c0, c1, left) => {
    const { columns, columnWidth, labels, width } = view;
    const size = Math.min(columnWidth - 0.5, STRIP - 2);
    const down = STRIP * mcpca.marks.tested.length;
    const c = prepare(strips, labels, view.above + NUMBERS - 4, Math.max(width - labels, 1), down);
    mcpca.marks.tested.forEach((key, line) => {
      for (let b = c0; b < c1; b++)
        mcpca.marks.paint(c, key, columns[b], (b + 0.5) * columnWidth - left, (line + 0.5) * STRIP, size);
    });
  };

  const paintSides = (r0, r1, top) => {
    const { rows, rowHeight, names: from, labels, height, head } = view;
    const c = prepare(sides, from, head, Math.max(labels - from, 0), Math.max(height - head, 1));
    mcpca.map.beside.forEach(({ colour, fill }, at) => {
      for (let a = r0; a < r1; a++) {
        const y = snap(a * rowHeight - top),
          down = Math.max(snap((a + 1) * rowHeight - top) - y - (rowHeight > 8 ? 1 : 0), 0.5);
        c.fillStyle = colour(rows[a]) ?? "transparent";
        if (fill) fill(c, at * BESIDE, y, BESIDE - 2, down, rows[a]);
        else c.fillRect(at * BESIDE, y, BESIDE - 2, down);
      }
    });
  };

  // Places of labels along a side, none on another: the chosen one first, then every n-th. `size` is what one takes.
  const placed = (from, to, every, chosen, span) => {
    const taken = [];
    const free = ([low, high]) => taken.every((other) => high <= other[0] || low >= other[1]);
    const order = mcpca.range(Math.max(to - from, 0)).map((at) => from + at);
    const wanted = [...order.filter((at) => at === chosen), ...order.filter((at) => at !== chosen && at % every === 0)];
    return wanted.filter((at) => {
      const own = span(at);
      if (!own || !free(own)) return false;
      taken.push(own);
      return true;
    });
  };

  // Names of the rows in view; where rows are lower than a name, of some, and of the chosen one.
  const labelRows = (r0, r1, top) => {
    const { rows, rowHeight, names: wide, head, height } = view;
    const middle = (a) => {
      const at = head + (a + 0.5) * rowHeight - top;
      return at < head || at > height ? null : Math.min(Math.max(at, head + LABEL / 2), height - LABEL / 2);
    };
    const span = (a) => (middle(a) === null ? null : [middle(a) - LABEL / 2, middle(a) + LABEL / 2]);
    const chosen = rows.indexOf(mcpca.chosen.context);
    const items = placed(r0, r1, Math.ceil(LABEL / rowHeight), chosen, span).map((a) => {
      const name = data.contexts[rows[a]];
      const node = el(
        "span",
        { class: a === chosen ? "chosen" : null, title: mcpca.short(name, 200) },
        mcpca.nameNode(name),
      );
      node.dataset.context = rows[a];
      node.style.cssText = `top:${middle(a) - 8}px;max-width:${wide - 8}px`;
      return node;
    });
    names.replaceChildren(...items);
    names.style.width = `${wide}px`;
  };

  // Numbers of the columns in view, likewise, and the names of the marks below them.
  const ruler = el("canvas").getContext("2d");
  const labelColumns = (c0, c1, left) => {
    const { columns, columnWidth, labels, width, names: wide } = view;
    ruler.font = `700 11.5px ${getComputedStyle(document.body).fontFamily}`;
    const size = (b) => ruler.measureText(String(columns[b] + 1)).width;
    const start = (b) => {
      const at = labels + (b + 0.5) * columnWidth - left;
      if (at < labels || at > width) return null;
      return Math.min(Math.max(at - size(b) / 2, labels), width - size(b));
    };
    const GAP = 2; // to each side
    const span = (b) => (start(b) === null ? null : [start(b) - GAP, start(b) + size(b) + GAP]);
    const largest = ruler.measureText("0".repeat(String(mcpca.r).length)).width + 2 * GAP;
    const chosen = columns.indexOf(mcpca.chosen.mcpc);
    const heads = placed(c0, c1, Math.ceil(largest / columnWidth), chosen, span).map((b) => {
      const title = mcpca.mcpcName(columns[b]);
      const node = el("span", { class: b === chosen ? "chosen" : null, title }, String(columns[b] + 1));
      node.dataset.mcpc = columns[b];
      node.style.cssText = `left:${start(b)}px;width:${size(b)}px;top:${view.above + 5}px`;
      return node;
    });
    // Names that the reader gave, upright above the numbers, as many as have room.
    const named = (b) => mcpca.names.given(columns[b]) !== "" && start(b) !== null;
    const beam = (b) => (named(b) ? [start(b) + size(b) / 2 - LABEL / 2, start(b) + size(b) / 2 + LABEL / 2] : null);
    const given = placed(c0, c1, 1, chosen, beam).map((b) => {
      const node = el("span", { class: `map-given${b === chosen ? " chosen" : ""}`, title: mcpca.mcpcName(columns[b]) });
      node.append(mcpca.nameNode(mcpca.names.given(columns[b])));
      node.dataset.mcpc = columns[b];
      node.style.cssText = `left:${beam(b)[0] - 1}px;height:${view.above - 2}px;top:4px`;
      return node;
    });
    const aside = ["MCPC", ...mcpca.marks.tested.map(mcpca.marks.titles)].map((text, line) => {
      const node = el("span", { class: "map-corner muted" }, text);
      node.style.cssText = `width:${wide - 8}px;top:${view.above + (line ? NUMBERS - 6 + (line - 1) * STRIP : 5)}px`;
      return node;
    });
    const letters = mcpca.map.beside.map(({ letter, title }, at) => {
      const node = el("span", { class: "map-letter", title: mcpca.short(title, 100) }, letter ?? "");
      node.style.cssText = `left:${wide + at * BESIDE - 1}px;width:${BESIDE}px;top:${view.head - 20}px`;
      return node;
    });
    numbers.replaceChildren(...aside, ...letters, ...heads, ...given);
    numbers.style.height = `${view.head - 4}px`;
  };

  // What the colours stand for: from 0 to `most`.
  const scale = () => ({
    stops: tables[mcpca.dark() ? "dark" : "light"].filter((_, c) => c % 51 === 0).map((v) => `rgb(${v.join(",")})`),
    most: state.scale === "none" ? mcpca.number(most, 3) : "100%",
    what: SCALES[state.scale][1],
  });
  const drawLegend = () => {
    const shown = scale();
    bar.style.background = `linear-gradient(to right, ${shown.stops.join(",")})`;
    byId("legend-most").textContent = shown.most;
    byId("legend-what").textContent = shown.what;
  };

  Object.assign(mcpca.map, { shade, few, scale });
  Object.assign(mcpca.map, { paint, scroller, canvas, strips, names, numbers, sides, SCALES, BESIDE, READABLE });
  mcpca.map.refresh = () => {
    arrange();
    drawLegend();
    measure();
    paint();
    mcpca.list.show();
  };
  // A new choice: an order that depends on it changes too.
  mcpca.map.choose = () => {
    view.at = null; // the keyboard goes on from there
    if (state.rowOrder === "chosen" || state.columnOrder === "chosen") return mcpca.map.refresh();
    paint();
    mcpca.list.show();
  };
  // Into the page, once. Its width also changes when the page gets a scroll bar, which is no change of the window.
  mcpca.map.place = () => {
    byId("map-view").append(scroller, legend, mcpca.marks.legend());
    new ResizeObserver(() => {
      if (byId("map-view").clientWidth === view.room || mcpca.printing) return;
      measure();
      paint();
    }).observe(byId("map-view"));
  };
}
