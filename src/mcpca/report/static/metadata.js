// What is known of contexts and rows beside the model (tissue, sex, dose): columns of names or of numbers, their
// colours, and the strips of colour beside the map. See _metadata.py for how they are packed.
{
  const { el, data, byId } = mcpca;
  const { view, scroller, sides } = mcpca.map;
  const FIRST = 3; // columns that are shown at first
  const MOST_LISTED = 12; // names in a legend; the rest is counted, and named where it is pointed at
  // Eight colours that colour-blind readers tell apart, and four marks: 32 names. Others are grey.
  const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999933", "#7b5cc4"];
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up"];
  const GREY = "#8a949e";
  const VIRIDIS = ["#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725"];
  const columns = data.metadata.contexts;
  const LETTERS = "abcdefghijklmnopqrstuvwxyz";
  const letter = (at) => LETTERS[at] ?? String(at + 1);

  const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const between = (share) => {
    const at = Math.min(Math.max(share, 0), 1) * (VIRIDIS.length - 1),
      low = Math.min(Math.floor(at), VIRIDIS.length - 2);
    const [a, b] = [rgb(VIRIDIS[low]), rgb(VIRIDIS[low + 1])];
    return `rgb(${a.map((v, c) => Math.round(v + (at - low) * (b[c] - v))).join(",")})`;
  };

  // Values of rows: codes or numbers in base64, little end first; decoded when first asked for.
  const SIZES = { i1: 1, i2: 2, i4: 4, f4: 4, u4: 4 };
  const GET = { i1: "getInt8", i2: "getInt16", i4: "getInt32", f4: "getFloat32", u4: "getUint32" };
  const unpacked = (text, kind) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0)),
      view = new DataView(bytes.buffer);
    return Array.from({ length: bytes.length / SIZES[kind] }, (_, at) => view[GET[kind]](at * SIZES[kind], true));
  };
  const decoded = new Map();
  const valuesOf = (column) => {
    if (!column.kind) return column.values;
    if (!decoded.has(column)) {
      const values = unpacked(column.data, column.kind);
      decoded.set(column, column.categories ? values : values.map((v) => (Number.isFinite(v) ? v : null)));
    }
    return decoded.get(column);
  };

  // Rows are numbered over all contexts, one after the other.
  const starts = [];
  let n = 0;
  if (data.rows)
    data.rows.contexts.forEach((sample) => {
      starts.push(n);
      n += sample ? sample.shown : 0;
    });
  let numbers = null;
  const rowName = (at) => {
    const known = data.metadata.names;
    if (known.names) return known.names[at];
    numbers ??= unpacked(known.data, "u4");
    return `row ${numbers[at] + 1}`;
  };

  // How a column is coloured: style(value) is {colour, symbol, variant}, value a code or a number.
  const UNKNOWN = { colour: null, symbol: "x-thin-open", variant: 0 };
  const scales = new Map();
  const scaleOf = (column) => {
    if (scales.has(column)) return scales.get(column);
    const values = valuesOf(column);
    let scale;
    if (column.categories) {
      let order = mcpca.range(column.categories.length);
      if (order.length > COLOURS.length * SYMBOLS.length) {
        const count = order.map(() => 0);
        for (const code of values) if (code >= 0) count[code]++;
        order = mcpca.sortedBy(order, (code) => count[code]); // the most frequent have colours of their own
      }
      const place = new Map(order.map((code, at) => [code, at]));
      const style = (code) => {
        const at = place.get(code);
        if (at === undefined) return UNKNOWN;
        if (at >= COLOURS.length * SYMBOLS.length) return { colour: GREY, symbol: "circle", variant: 0 };
        const mark = Math.floor(at / COLOURS.length);
        return { colour: COLOURS[at % COLOURS.length], symbol: SYMBOLS[mark], variant: mark };
      };
      scale = { column, style, order };
    } else {
      let [low, high] = [Infinity, -Infinity];
      for (const v of values)
        if (v !== null) {
          low = Math.min(low, v);
          high = Math.max(high, v);
        }
      const style = (v) =>
        v === null
          ? UNKNOWN
          : { colour: between(high > low ? (v - low) / (high - low) : 0.5), symbol: "circle", variant: 0 };
      scale = { column, style, low, high };
    }
    scales.set(column, scale);
    return scale;
  };
  const isKnown = (column, value) => (column.categories ? value >= 0 : value !== null);
  const textOf = (column, value) => {
    if (!isKnown(column, value)) return "not known";
    return column.categories ? mcpca.visible(column.categories[value]) : mcpca.number(value, 6);
  };

  // A cell or a sign of a legend: its colour, with a mark for every eight names.
  const fill = (c, x, y, w, h, style) => {
    c.fillStyle = style.colour ?? mcpca.colour("grid");
    c.fillRect(x, y, w, h);
    if (style.variant === 0 || h < 4) return;
    c.fillStyle = mcpca.colour("paper");
    if (style.variant === 1) {
      c.beginPath();
      c.moveTo(x, y);
      c.lineTo(x + w, y);
      c.lineTo(x, y + h);
      c.fill();
    } else if (style.variant === 2) c.fillRect(x + w / 3, y, w / 3, h);
    else c.fillRect(x, y + h / 3, w, h / 3);
  };
  const sign = (style) => {
    const dense = window.devicePixelRatio || 1;
    const node = el("canvas", { width: 11 * dense, height: 11 * dense, class: "sign", "aria-hidden": "true" });
    const c = node.getContext("2d");
    c.scale(dense, dense);
    fill(c, 0, 0, 11, 11, style);
    return node;
  };
  // The colours of a column in words and signs, after its name.
  const legendOf = (column) => {
    const scale = scaleOf(column),
      known = valuesOf(column).some((v) => !isKnown(column, v));
    const entry = (style, node) => el("span", { class: "sign-name" }, sign(style), " ", node);
    const unknown = known ? [entry(UNKNOWN, "not known")] : [];
    if (!column.categories) {
      if (scale.low === Infinity) return unknown;
      const bar = el("span", { class: "legend-bar" });
      bar.style.background = `linear-gradient(to right, ${VIRIDIS.join(",")})`;
      return [el("span", {}, mcpca.number(scale.low, 3)), bar, el("span", {}, mcpca.number(scale.high, 3)), ...unknown];
    }
    const listed = scale.order.slice(0, MOST_LISTED),
      rest = scale.order.slice(MOST_LISTED);
    const more = el("summary", {}, `${mcpca.count(rest.length)} more`);
    const named = (code) => entry(scale.style(code), mcpca.nameNode(column.categories[code], 30));
    return [
      ...listed.map(named),
      ...(rest.length ? [el("details", { class: "rest-of-names" }, more, ...rest.map(named))] : []),
      ...unknown,
    ];
  };

  // The strips beside the map -----------------------------------------------------------------------------------------
  const start = mcpca.range(Math.min(FIRST, columns.length));
  let shown = [...start];
  const box = el("fieldset", { id: "metadata", class: "metadata" }, el("legend", {}, "Known of the contexts"));

  // Orders of contexts: names stand together in their order, numbers with the largest first; what is not known is last.
  const within = data.orders.contexts ?? mcpca.range(mcpca.k),
    place = new Map(within.map((i, at) => [i, at]));
  columns.forEach((column, c) => {
    const code = (i) => (column.values[i] < 0 ? Infinity : column.values[i]);
    const groups = () =>
      [...within].sort((a, b) => (code(a) === code(b) ? place.get(a) - place.get(b) : code(a) - code(b)));
    const sizes = () => mcpca.sortedBy(mcpca.range(mcpca.k), (i) => column.values[i]);
    mcpca.rowOrders[`known-${c + 1}`] = [mcpca.short(column.name, 40), column.categories ? groups : sizes];
  });

  const words = (column, i) => textOf(column, column.values[i]);
  const beside = (at) => {
    const column = columns[at],
      style = (i) => scaleOf(column).style(column.values[i]);
    return {
      title: column.name,
      letter: letter(at),
      colour: (i) => style(i).colour ?? mcpca.colour("grid"),
      words: (i) => words(column, i),
      fill: (c, x, y, w, h, i) => fill(c, x, y, w, h, style(i)),
    };
  };

  mcpca.metadata = {
    columns,
    rowColumns: data.metadata.rows,
    scaleOf,
    textOf,
    isKnown,
    valuesOf,
    starts,
    rowName,
    // All that is known of a context, in words.
    words: (i) => columns.map((column) => `${mcpca.short(column.name)}: ${mcpca.short(words(column, i))}`),
    // Whether a name that is known of a context has a text in it.
    matches: (i, text) =>
      columns.some((c) => c.categories && c.values[i] >= 0 && c.categories[c.values[i]].toLowerCase().includes(text)),
    // Columns of a table of contexts.
    tableColumns: () =>
      columns.map((column) => {
        const known = (i) => (column.categories ? column.categories[column.values[i]] : column.values[i]);
        return {
          title: mcpca.short(column.name),
          name: Boolean(column.categories),
          value: (i) => (isKnown(column, column.values[i]) ? known(i) : null),
          text: (i) => words(column, i),
        };
      }),
    // Places where another group begins, if an order of contexts is one of groups.
    breaks: (order, rows) => {
      const column = columns[Number(/^known-(\d+)$/.exec(order)?.[1]) - 1];
      if (!column?.categories) return [];
      return mcpca.range(rows.length).filter((a) => a && column.values[rows[a]] !== column.values[rows[a - 1]]);
    },
  };

  sides.addEventListener("click", (event) => {
    const top = sides.getBoundingClientRect().top;
    const i = view.rows[Math.floor((event.clientY - top + scroller.scrollTop) / view.rowHeight)];
    if (i !== undefined) mcpca.choose({ context: i }, "context");
  });

  // Which strips are shown, with their colours: a line for each column.
  const fillBox = () => {
    mcpca.map.beside = shown.map(beside);
    box.replaceChildren(
      box.firstChild,
      ...columns.map((column, at) => {
        const on = shown.includes(at);
        const check = el("input", {
          type: "checkbox",
          id: `strip-${at + 1}`,
          change: (event) => toggle(at, event.target.checked),
        });
        check.checked = on;
        return el(
          "div",
          { class: on ? "strip-line" : "strip-line off" },
          el("label", {}, check, " ", el("b", { "aria-hidden": "true" }, letter(at)), " ", mcpca.nameNode(column.name)),
          ...(on ? legendOf(column) : []),
        );
      }),
    );
  };
  const toggle = (at, on) => {
    shown = on ? [...shown, at].sort((a, b) => a - b) : shown.filter((other) => other !== at);
    show();
    byId(`strip-${at + 1}`).focus();
    mcpca.address.push();
  };
  const show = () => {
    mcpca.metadata.refresh();
    mcpca.map.refresh();
  };
  mcpca.metadata.refresh = () => columns.length && fillBox(); // signs have the colours of the page

  // Before the map begins, which measures what is below it.
  mcpca.metadata.begin = () => {
    if (!columns.length) return;
    byId("map-view").after(box);
    fillBox();
    mcpca.address.register("strips", {
      read: (text) => {
        const given = text === "none" ? [] : (text ?? "?").split(".").map((one) => Number(one) - 1);
        const usable = given.every((at) => Number.isInteger(at) && at >= 0 && at < columns.length);
        shown = usable ? [...new Set(given)].sort((a, b) => a - b) : [...start];
      },
      write: () => {
        if (String(shown) === String(start)) return null;
        return shown.length ? shown.map((at) => at + 1).join(".") : "none";
      },
      show,
    });
  };
}
