// Tables that can be sorted, copied and saved.
{
  const { el } = mcpca;
  const FIRST = 10; // rows before "Show all"

  // A spreadsheet takes text that begins like this for a formula; an apostrophe says that it is text.
  const harmless = (text) => (/^'*[=+\-@\t\r]/.test(text) ? `'${text}` : text);
  const raw = (value) =>
    value === null || value === undefined ? "" : typeof value === "number" ? value : harmless(value);
  const csv = (value) => {
    const text = String(raw(value));
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const tsv = (value) => String(raw(value)).replace(/[\t\r\n]+/g, " ");

  // How tables are sorted, and which are open, by the kind of table: one that is made anew, as of another MCPC, stays as
  // it was. Kept in the address: the number of a column and d or u (down, up), a (all rows), o or c (open, closed).
  const orders = new Map();
  const orderOf = (kind) => {
    if (!orders.has(kind)) orders.set(kind, {});
    return orders.get(kind);
  };
  const written = ({ by, down, all, open }) =>
    (by === undefined ? "" : `${by}${down ? "d" : "u"}`) +
    (all ? "a" : "") +
    (open === undefined ? "" : open ? "o" : "c");
  mcpca.address.register("tables", {
    read: (text) => {
      for (const order of orders.values()) for (const key of Object.keys(order)) delete order[key];
      for (const part of (text ?? "").split(",")) {
        const found = /^([a-z-]{1,40})\.(?:(\d{1,3})([du]))?(a?)([oc]?)$/.exec(part);
        if (!found) continue;
        const [, kind, by, way, all, open] = found;
        if (by !== undefined) Object.assign(orderOf(kind), { by: Number(by), down: way === "d" });
        if (all) orderOf(kind).all = true;
        if (open) orderOf(kind).open = open === "o";
      }
      for (const table of document.querySelectorAll(".table")) table.dispatchEvent(new Event("reorder"));
    },
    write: () => {
      const parts = [...orders].filter(([, order]) => written(order) !== "");
      const texts = parts.map(([kind, order]) => `${kind}.${written(order)}`);
      return texts.length ? texts.sort().join(",") : null; // the same text, in whatever order tables were made
    },
  });

  // p-values below what a number can hold are 0 in the data.
  mcpca.pColumn = (value) => ({
    title: "adjusted p of no loading",
    value,
    text: (row) => (value(row) === 0 ? "< 1e-300" : mcpca.number(value(row), 2)),
  });

  // columns: [{title, value(row), text(row)?, sort(row)?, saved?, name?, length?}]; rows: any values. `value` is what is
  // sorted, unless `sort` is there, and saved, under the title `saved` if there is one; `text` is what is shown, text or
  // an element; a `name` column holds names of the user's. It can be copied and saved without being opened. `below(row)` is
  // an element for a line of its own under each row; columns that are `hidden` are saved, not shown.
  mcpca.table = ({ caption, file, columns: all, rows, open = false, click = null, ...more }) => {
    const { marked = () => false, below = null } = more;
    const order = orderOf(file.toLowerCase().replace(/\.csv$/, "").replace(/-?\d+|[^a-z-]/g, ""));
    const columns = all.filter((column) => !column.hidden);
    const few = rows.length <= FIRST + 2;
    let sorted = rows;
    const body = el("tbody");
    const toggle = el("button", { type: "button", class: "more small", click: () => showAll() });
    const showAll = () => {
      order.all = !order.all;
      mcpca.address.push();
      fill();
    };

    const cell = (column, row, first) => {
      const value = column.value(row);
      const text = column.text ? column.text(row) : typeof value === "number" ? mcpca.number(value) : value;
      const inside = column.name ? mcpca.nameNode(text ?? "", column.length) : (text ?? "not known");
      const number = typeof value === "number" || (value === null && !column.name);
      return el(first ? "th" : "td", { class: number ? "number" : null, scope: first ? "row" : null }, inside);
    };
    const fill = () => {
      body.replaceChildren(
        ...(few || order.all || mcpca.printing ? sorted : sorted.slice(0, FIRST)).flatMap((row) => {
          const line = el("tr", {}, ...columns.map((column, c) => cell(column, row, c === 0)));
          if (marked(row)) line.classList.add("marked");
          if (click) {
            line.classList.add("clickable");
            line.firstChild.replaceChildren(
              el("button", { type: "button", class: "link", click: () => click(row) }, ...line.firstChild.childNodes),
            );
          }
          if (!below) return [line];
          const under = el("tr", { class: "below" }, el("td", { colspan: columns.length }, below(row)));
          if (marked(row)) under.classList.add("marked");
          return [line, under];
        }),
      );
      toggle.hidden = few;
      toggle.textContent = order.all ? "Show fewer" : `Show all ${mcpca.count(rows.length)}`;
    };
    const keyOf = (c) => columns[c].sort ?? columns[c].value;
    const sort = () => {
      for (const head of heads) head.removeAttribute("aria-sort");
      sorted = rows;
      if (!(order.by < columns.length)) return; // also where nothing was chosen
      heads[order.by].setAttribute("aria-sort", order.down ? "descending" : "ascending");
      const key = keyOf(order.by),
        found = mcpca.sortedBy(mcpca.range(rows.length), (i) => key(rows[i])).map((i) => rows[i]);
      const unknown = found.filter((row) => key(row) === null);
      sorted = order.down ? found : [...found.filter((row) => key(row) !== null).reverse(), ...unknown];
    };
    const sortBy = (c) => {
      order.down = order.by === c ? !order.down : rows.some((row) => typeof keyOf(c)(row) === "number");
      order.by = c;
      mcpca.address.push();
      sort();
      fill();
    };
    const heads = columns.map((column, c) => {
      const head = el("th", {
        scope: "col",
        class: rows.length && typeof column.value(rows[0]) === "number" ? "number" : null,
        "data-title": column.title, // for paper
      });
      head.append(el("button", { type: "button", class: "sort", click: () => sortBy(c) }, column.title));
      return head;
    });
    const lines = (write, separator) =>
      [
        all.map((column) => write(column.saved ?? column.title)),
        ...sorted.map((row) => all.map((col) => write(col.value(row)))),
      ]
        .map((line) => line.join(separator))
        .join("\r\n") + "\r\n";
    sort();
    fill();
    const button = (text, label, act) =>
      el("button", { type: "button", class: "small", "aria-label": label, click: act }, text);
    // Other names of MCPCs, or paper, on which all rows are written.
    const refill = (event) => {
      if (event.target === event.currentTarget) fill();
    };
    const begin = open;
    // Said by the click, which comes before the change; a change by a script, as for paper, is not the reader's.
    const turned = () => {
      order.open = !details.open;
      if (order.open === begin) delete order.open;
      mcpca.address.push();
    };
    const reorder = () => {
      sort();
      fill();
      details.open = order.open ?? begin;
    };
    const details = el(
      "details",
      { open: order.open ?? begin },
      el("summary", { click: turned }, caption),
      el(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
        el("table", {}, el("caption", { class: "unseen" }, caption), el("thead", {}, el("tr", {}, ...heads)), body),
      ),
      toggle,
    );
    return el(
      "div",
      { class: "table", refill, reorder },
      el(
        "div",
        { class: "table-tools" },
        button("Copy", `Copy: ${caption}`, () => mcpca.copy(lines(tsv, "\t"))),
        button("Save CSV", `Save CSV: ${caption}`, () => mcpca.save(file, lines(csv, ","))),
      ),
      details,
    );
  };
}
