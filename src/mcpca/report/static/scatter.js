// Scores of rows on two MCPCs, in all contexts: coloured, with names, and with a table of the rows that are selected by
// a lasso, by a box, or by ranges and contexts.
{
  const { el, data, byId, metadata, number, count } = mcpca;
  const MOST_COLOURED = 8; // contexts that have a colour at first
  const HEIGHT = 430;
  // Points that are drawn: SVG of 20,000 takes a second, and as long for each move of a lasso. Contexts in colour come
  // first. What is selected is found among all rows.
  const MOST_DRAWN = 6000,
    LEAST_GREY = 1500;
  const MOST_CORNERS = 60; // of a lasso: the address has room for these
  const OTHERS = [
    ["grey", "grey"],
    ["hidden", "hidden"],
  ];
  const DRAGS = [
    ["lasso", "select by lasso"],
    ["select", "select a box"],
    ["none", "do nothing"],
  ];
  const first = { x: 0, y: Math.min(1, mcpca.r - 1), colour: "context", contexts: null, others: "grey" };
  const state = { ...first };
  let drag = "lasso",
    region = null, // what selects rows
    selected = null, // a set of rows, null where none is selected
    parts,
    chart;

  const samples = (i) => (data.rows ? data.rows.contexts[i] : null);
  const withRows = mcpca.range(mcpca.k).filter((i) => samples(i) && samples(i).shown);
  // Those that vary most along the two, unless others are chosen.
  const usual = () => {
    const size = (i) => [state.x, state.y].reduce((s, j) => s + data.loadings[i][j] / (mcpca.largest[j] || 1), 0);
    return withRows.length <= 2 * MOST_COLOURED ? withRows : mcpca.sortedBy(withRows, size).slice(0, MOST_COLOURED);
  };
  const chosen = () => state.contexts ?? usual();

  const rowsOf = (contexts) =>
    contexts.flatMap((i) => {
      const scores = mcpca.columns(samples(i).scores);
      return mcpca.range(samples(i).shown).map((a) => ({
        x: scores[state.x][a],
        y: scores[state.y][a],
        at: metadata.starts[i] + a,
        context: i,
      }));
    });

  mcpca.scatter = { state, selected: () => (selected ? [...selected] : null) };
  mcpca.scatter.begin = () => {
    const title = el(
      "div",
      { class: "title" },
      el("h2", { id: "scatter-title" }, "Scatter: rows on two MCPCs"),
      mcpca.backToMap(),
    );
    if (!withRows.length || mcpca.r < 2) {
      const why = mcpca.r < 2 ? "There is only one MCPC." : "No rows are in this file.";
      byId("scatter").append(title, el("p", { class: "muted" }, why));
      return;
    }
    parts = Object.fromEntries(["controls", "words", "select", "table"].map((name) => [name, el("div")]));
    parts.selected = el("p", { id: "scatter-selected", class: "muted", role: "status" });
    chart = mcpca.chart("chart-scatter");
    byId("scatter").append(title, parts.controls, parts.words, chart, parts.select, parts.selected, parts.table);
    const whole = (key, field, n) =>
      mcpca.address.register(key, {
        read: (text) => {
          const value = Number(text);
          state[field] = Number.isInteger(value) && value >= 1 && value <= n ? value - 1 : first[field];
        },
        write: () => (state[field] === first[field] ? null : String(state[field] + 1)),
      });
    whole("scatter-x", "x", mcpca.r);
    whole("scatter-y", "y", mcpca.r);
    mcpca.address.register("scatter-colour", {
      read: (text) => (state.colour = colours().some(([key]) => key === text) ? text : first.colour),
      write: () => (state.colour === first.colour ? null : state.colour),
    });
    mcpca.address.register("scatter-contexts", {
      read: (text) => {
        const given = text === null ? null : text === "all" ? withRows : text.split(".").map((one) => Number(one) - 1);
        state.contexts = given && given.length && given.every((i) => withRows.includes(i)) ? [...new Set(given)] : null;
      },
      write: () => {
        if (!state.contexts) return null;
        return state.contexts.length === withRows.length ? "all" : state.contexts.map((i) => i + 1).join(".");
      },
    });
    mcpca.address.register("scatter-others", {
      read: (text) => (state.others = text === "hidden" ? text : first.others),
      write: () => (state.others === first.others ? null : state.others),
    });
    mcpca.address.register("scatter-rows", {
      read: (text) => (region = regionOf(text)),
      write: () => (region ? [region.kind, ...region.ends].join("_") : null),
      show: () => show(),
    });
    if (window.innerWidth <= 700) drag = "none"; // a finger that drags scrolls the page
    document.addEventListener("renamed", show);
    show();
  };

  const colours = () => [
    ["context", "context"],
    ...mcpca.points.variables().map(([key, name]) => [key, mcpca.short(name, 30)]),
  ];
  const set = (field, value) => {
    state[field] = value;
    if (field === "x" || field === "y") region = null; // other axes, other rows
    show();
    mcpca.address.push();
  };

  const show = () => {
    selected = rowsIn(region);
    controls();
    words();
    draw();
    selecting();
    table();
  };

  const controls = () => {
    const focused = document.activeElement?.id; // controls are made anew
    const axes = data.mcpcs.map((_, j) => [j, mcpca.mcpcName(j)]);
    const pick = (id, label, entries, field, read) =>
      mcpca.picker(id, label, entries, state[field], (to) => set(field, read(to)));
    const list = mcpca.options(
      el("select", {
        id: "scatter-contexts",
        multiple: true,
        size: 5,
        change: (event) => {
          const to = [...event.target.selectedOptions].map((option) => Number(option.value));
          set("contexts", to.length ? to : null);
        },
      }),
      withRows.map((i) => [i, mcpca.contextName(i, 40)]),
      null,
    );
    for (const option of list.options) option.selected = chosen().includes(Number(option.value));
    const button = (id, text, act) => el("button", { type: "button", class: "small", id, click: act }, text);
    parts.controls.replaceChildren(
      el(
        "div",
        { class: "controls" },
        pick("scatter-x", "Across", axes, "x", Number),
        pick("scatter-y", "Up", axes, "y", Number),
        pick("scatter-colour", "Colour by", colours(), "colour", String),
        pick("scatter-others", "Other contexts", OTHERS, "others", String),
        mcpca.picker("scatter-drag", "Drag to", DRAGS, drag, (to) => {
          drag = to;
          draw();
        }),
        el(
          "div",
          { class: "with-buttons" },
          el("label", {}, "Contexts ", list),
          button("scatter-all", "All", () => set("contexts", withRows)),
          button("scatter-usual", "Those that vary most", () => set("contexts", null)),
        ),
      ),
    );
    if (focused?.startsWith("scatter-")) byId(focused)?.focus();
  };

  const words = () => {
    const of = chosen().length;
    const some = of < withRows.length ? `${count(of)} of ${mcpca.many(withRows.length, "context")} in colour. ` : "";
    const all = countOf(chosen()) + countOf(others()),
      drawn = mcpca.count(Math.min(all, MOST_DRAWN));
    const said = `About ${drawn} of ${mcpca.count(all)} points are drawn, and all can be selected. `,
      thin = all > MOST_DRAWN ? said : "";
    parts.words.replaceChildren(
      el(
        "p",
        { id: "scatter-words", class: "muted" },
        `${some}${thin}Scores are from the mean of each context. ${data.rows.words}`,
      ),
    );
  };

  const others = () => {
    const inColour = new Set(chosen());
    return state.others === "hidden" ? [] : withRows.filter((i) => !inColour.has(i));
  };
  const countOf = (contexts) => contexts.reduce((n, i) => n + samples(i).shown, 0);
  const thinned = (points, most) => {
    const step = Math.ceil(points.length / most);
    return step > 1 ? points.filter((_, at) => at % step === 0) : points;
  };
  // Points of the chart.
  const layers = () => {
    const inColour = new Set(chosen());
    const strong = thinned(rowsOf(chosen()), MOST_DRAWN);
    const weak = thinned(rowsOf(others()), Math.max(MOST_DRAWN - strong.length, LEAST_GREY));
    const variable = mcpca.points.variable(state.colour) ?? mcpca.points.ofContexts(chosen());
    for (const p of [...weak, ...strong]) {
      p.text = `${mcpca.forPlot(metadata.rowName(p.at), 60)}<br>${mcpca.forPlot(data.contexts[p.context], 40)}`;
      if (state.colour !== "context" && inColour.has(p.context)) {
        const value = metadata.textOf(variable[2], variable[3](p.at, p.context));
        p.text += `<br>${mcpca.forPlot(variable[1])}: ${mcpca.forPlot(value, 40)}`;
      }
      p.text += `<br>${number(p.x, 3)}, ${number(p.y, 3)}`;
    }
    return { weak, strong, variable };
  };

  const draw = () => {
    mcpca.draw(
      chart,
      `Scores of rows on ${mcpca.mcpcName(state.x)} and ${mcpca.mcpcName(state.y)}, coloured by ${label()}. Rows are ` +
        "selected by ranges below, and shown in a table.",
      () => {
        const { weak, strong, variable } = layers();
        const drawn = mcpca.points.traces(strong, variable, { selected });
        const grey = {
          type: "scatter",
          mode: "markers",
          name: "other contexts",
          x: weak.map((p) => p.x),
          y: weak.map((p) => p.y),
          text: weak.map((p) => p.text),
          customdata: weak.map((p) => p.at),
          hovertemplate: "%{text}<extra></extra>",
          marker: { size: 4, color: mcpca.colour("line") },
          unselected: { marker: { opacity: 0.25 } },
          ...(selected ? { selectedpoints: mcpca.range(weak.length).filter((a) => selected.has(weak[a].at)) } : {}),
        };
        const traces = [...(weak.length ? [grey] : []), ...drawn];
        const { height, layout } = mcpca.points.below(HEIGHT, chart, traces);
        return {
          file: ["scatter", data.mcpcs[state.x], data.mcpcs[state.y]],
          height,
          traces,
          layout: {
            ...layout,
            dragmode: drag === "none" ? false : drag,
            hovermode: "closest",
            xaxis: mcpca.axis(`score on ${mcpca.mcpcPlot(state.x)}`),
            yaxis: mcpca.axis(`score on ${mcpca.mcpcPlot(state.y)}`),
            newselection: { line: { color: mcpca.colour("accent"), width: 2 } },
          },
          after: listen,
        };
      },
    );
  };
  const label = () => colours().find(([key]) => key === state.colour)[1];

  // What selects rows: {kind, ends}. "lasso": x, y of its corners in turn; "box": x from, to, y from, to of all points
  // shown; "colour": the same of points in colour, where "" is no bound. Written to the address, so corners are few.
  const rounded = (v) => Number(v.toPrecision(4));
  const regionOf = (text) => {
    const [kind, ...ends] = (text ?? "").split("_");
    const corners = kind === "lasso" && ends.length >= 6 && ends.length % 2 === 0 && ends.length <= 2 * MOST_CORNERS;
    if (!corners && !((kind === "box" || kind === "colour") && ends.length === 4)) return null;
    const usable = (end) => (end === "" ? kind === "colour" : Number.isFinite(Number(end)));
    return ends.every(usable) ? { kind, ends: ends.map((end) => (end === "" ? "" : Number(end))) } : null;
  };
  const regionDrawn = ({ lassoPoints, range }) => {
    if (!lassoPoints) {
      const sides = [range.x, range.y].flatMap((ends) => [Math.min(...ends), Math.max(...ends)]);
      return { kind: "box", ends: sides.map(rounded) };
    }
    const step = Math.ceil(lassoPoints.x.length / MOST_CORNERS);
    const kept = mcpca.range(lassoPoints.x.length).filter((at) => at % step === 0);
    return { kind: "lasso", ends: kept.flatMap((at) => [rounded(lassoPoints.x[at]), rounded(lassoPoints.y[at])]) };
  };
  const rowsIn = (given) => {
    if (!given) return null;
    const among = rowsOf(given.kind === "colour" ? chosen() : [...chosen(), ...others()]);
    return new Set(among.filter(given.kind === "lasso" ? inLasso(given.ends) : inBox(given.ends)).map((p) => p.at));
  };
  const inBox = ([x0, x1, y0, y1]) => {
    const within = (v, from, to) => (from === "" || v >= from) && (to === "" || v <= to);
    return (p) => within(p.x, x0, x1) && within(p.y, y0, y1);
  };
  // A line from the point to the right crosses the border an odd number of times.
  const inLasso = (ends) => (p) => {
    const n = ends.length / 2,
      [x, y] = [(at) => ends[2 * at], (at) => ends[2 * at + 1]];
    let odd = false;
    for (let a = 0, b = n - 1; a < n; b = a++)
      if (y(a) > p.y !== y(b) > p.y && p.x < x(a) + ((x(b) - x(a)) * (p.y - y(a))) / (y(b) - y(a))) odd = !odd;
    return odd;
  };
  const listen = (node) => {
    node.removeAllListeners("plotly_selected");
    node.on("plotly_selected", (event) => {
      if (!event || !(event.lassoPoints || event.range)) return; // a click beside all points
      region = regionDrawn(event);
      selected = rowsIn(region);
      mcpca.address.push();
      table();
    });
  };

  // Ranges and contexts, for those who use no pointer.
  const range = { x: ["", ""], y: ["", ""] };
  const selecting = () => {
    const field = (axis, end, text) =>
      el(
        "label",
        {},
        text,
        el("input", {
          type: "number",
          step: "any",
          id: `select-${axis}-${end ? "to" : "from"}`,
          value: range[axis][end],
          input: (event) => (range[axis][end] = event.target.value),
        }),
      );
    const act = (text, id, click) => el("button", { type: "button", class: "small", id, click }, text);
    const open = parts.select.querySelector("details")?.open ?? false;
    parts.select.replaceChildren(
      el(
        "details",
        { open },
        el("summary", {}, "Select rows by ranges, without a pointer"),
        el(
          "div",
          { class: "controls" },
          field("x", 0, `${mcpca.mcpcName(state.x)} from `),
          field("x", 1, "to "),
          field("y", 0, `${mcpca.mcpcName(state.y)} from `),
          field("y", 1, "to "),
          act("Select rows in colour", "select-rows", () => {
            const ends = [...range.x, ...range.y].map((end) => (end === "" ? "" : Number(end)));
            choose({ kind: "colour", ends });
          }),
          act("Select none", "select-none", () => choose(null)),
        ),
      ),
    );
  };
  const choose = (to) => {
    region = to;
    selected = rowsIn(region);
    mcpca.address.push();
    draw();
    table();
  };

  const table = () => {
    if (!selected) {
      parts.selected.textContent = "Drag around points to have them in a table.";
      return parts.table.replaceChildren();
    }
    const rows = rowsOf(withRows).filter((p) => selected.has(p.at));
    const known = (name, column, value) => ({
      title: mcpca.short(name),
      name: Boolean(column.categories),
      value: (p) => {
        const v = value(p.at, p.context);
        return !metadata.isKnown(column, v) ? null : column.categories ? column.categories[v] : v;
      },
      text: (p) => metadata.textOf(column, value(p.at, p.context)),
    });
    parts.selected.textContent = `${mcpca.many(rows.length, "row")} selected.`;
    parts.table.replaceChildren(
      mcpca.table({
        caption: `Selected rows on ${mcpca.mcpcName(state.x)} and ${mcpca.mcpcName(state.y)}`,
        file: `rows-mcpc-${state.x + 1}-${state.y + 1}.csv`,
        columns: [
          { title: "row", name: true, value: (p) => metadata.rowName(p.at) },
          { title: "context", name: true, value: (p) => data.contexts[p.context] },
          { title: data.mcpcs[state.x], value: (p) => p.x },
          ...(state.x === state.y ? [] : [{ title: data.mcpcs[state.y], value: (p) => p.y }]),
          ...mcpca.points.variables().map(([, name, column, value]) => known(name, column, value)),
        ],
        rows,
        open: true,
      }),
    );
  };
}
