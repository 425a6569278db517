// What a reader does with the map: pointer, keyboard and controls.
{
  const { el, data, byId } = mcpca;
  const { view, state, scroller, canvas, strips, names, numbers, sides, paint } = mcpca.map;
  const READABLE_FROM = 500; // pixels: below it readable rows are all in view

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
  const show = (event, ...lines) => {
    tip.replaceChildren(...lines);
    tip.hidden = false;
    tip.style.left = `${Math.max(Math.min(event.clientX + 14, window.innerWidth - 270), 0)}px`;
    const below = event.clientY + 14 + tip.offsetHeight <= window.innerHeight;
    tip.style.top = `${below ? event.clientY + 14 : event.clientY - 14 - tip.offsetHeight}px`;
  };
  const hide = () => (tip.hidden = true);
  canvas.addEventListener("mousemove", (event) => {
    const cell = cellAt(event);
    if (!cell) return hide();
    const [i, j] = [view.rows[cell[0]], view.columns[cell[1]]];
    show(
      event,
      el("b", {}, mcpca.nameNode(data.contexts[i], 60)),
      el("span", {}, `${mcpca.mcpcName(j)}: ${words(i, j)}`),
    );
  });
  // Marks say what they stand for.
  const columnAt = (event) => {
    const at = event.clientX - strips.getBoundingClientRect().left + scroller.scrollLeft;
    return view.columns[Math.floor(at / view.columnWidth)];
  };
  strips.addEventListener("mousemove", (event) => {
    const j = columnAt(event);
    if (j === undefined) return hide();
    show(event, el("b", {}, mcpca.mcpcName(j)), ...mcpca.marks.words(j).map((line) => el("span", {}, line)));
  });
  strips.addEventListener("click", (event) => {
    const j = columnAt(event);
    if (j !== undefined) mcpca.choose({ mcpc: j }, "mcpc");
  });
  sides.addEventListener("mousemove", (event) => {
    const box = sides.getBoundingClientRect();
    const i = view.rows[Math.floor((event.clientY - box.top + scroller.scrollTop) / view.rowHeight)];
    const column = mcpca.map.beside[Math.floor((event.clientX - box.left) / mcpca.map.BESIDE)];
    if (i === undefined || !column) return hide();
    show(
      event,
      el("b", {}, mcpca.nameNode(data.contexts[i], 60)),
      el("span", {}, mcpca.nameNode(column.title, 60), ": ", mcpca.nameNode(column.words(i), 60)),
    );
  });
  for (const node of [canvas, strips, sides]) node.addEventListener("mouseleave", hide);
  canvas.addEventListener("click", (event) => {
    const cell = cellAt(event);
    if (cell) mcpca.choose({ context: view.rows[cell[0]], mcpc: view.columns[cell[1]] }, "mcpc");
  });
  names.addEventListener("click", (event) => {
    const node = event.target.closest("[data-context]");
    if (node) mcpca.choose({ context: Number(node.dataset.context) }, "context");
  });
  numbers.addEventListener("click", (event) => {
    // Beside a number, which is narrow, its column counts.
    const node = event.target.closest("[data-mcpc]"),
      j = node ? Number(node.dataset.mcpc) : columnAt(event);
    if (j !== undefined) mcpca.choose({ mcpc: j }, "mcpc");
  });
  const goTo = (a, b) => {
    const before = view.at ? view.at[1] : null;
    view.at = [Math.min(Math.max(a, 0), view.rows.length - 1), Math.min(Math.max(b, 0), view.columns.length - 1)];
    const [y, x] = [view.at[0] * view.rowHeight, view.at[1] * view.columnWidth];
    const [h, w] = [view.height - view.head - view.rowHeight, view.width - view.labels - view.columnWidth];
    scroller.scrollTop = Math.min(Math.max(scroller.scrollTop, y - h), y);
    scroller.scrollLeft = Math.min(Math.max(scroller.scrollLeft, x - w), x);
    paint();
    const [i, j] = [view.rows[view.at[0]], view.columns[view.at[1]]];
    // What is known of the MCPC is said once, on the way into its column.
    const told = view.at[1] === before || !mcpca.marks.tested.length;
    const known = told ? "" : `. Tests: ${mcpca.marks.words(j).join("; ")}.`;
    mcpca.announce(`${mcpca.contextName(i)}, ${mcpca.mcpcName(j)}: ${words(i, j)}${known}`);
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
  scroller.addEventListener("scroll", () => paint());
  for (const type of ["focus", "blur"]) scroller.addEventListener(type, () => paint(false));

  // Controls ---------------------------------------------------------------------------------------------------------
  mcpca.map.begin = () => {
    mcpca.map.place();
    mcpca.list.begin();
    const entries = (choices) => Object.entries(choices).map(([key, [text]]) => [key, text]);
    const bind = (id, key, read, event = "change") =>
      byId(id).addEventListener(event, (e) => {
        state[key] = read(e.target.value);
        mcpca.map.refresh();
      });
    const same = (text) => text;
    mcpca.options(byId("row-order"), entries(mcpca.rowOrders), state.rowOrder);
    mcpca.options(byId("column-order"), entries(mcpca.columnOrders), state.columnOrder);
    mcpca.options(byId("scale"), entries(mcpca.map.SCALES), state.scale);
    mcpca.options(
      byId("rows-height"),
      [
        ["fit", "all in view"],
        ["read", "readable"],
      ],
      "fit",
    );
    byId("rows-height-label").hidden = mcpca.k * mcpca.map.READABLE < READABLE_FROM;
    bind("find-context", "find", same, "input");
    bind("find-mcpc", "findMcpc", same, "input");
    mcpca.marks.fillFilter(byId("show"));
    bind("show", "show", same);
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
        ...mcpca.metadata.tableColumns(),
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
    mcpca.address.control("show");
    details.addEventListener("toggle", fillTable);
    for (const id of ["find-context", "find-mcpc", "show", "row-order", "column-order", "least"])
      byId(id).addEventListener("input", fillTable);
    mcpca.map.refresh();
  };
}
