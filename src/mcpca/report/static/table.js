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

  // p-values below what a number can hold are 0 in the data.
  mcpca.pColumn = (value) => ({
    title: "adjusted p of no loading",
    value,
    text: (row) => (value(row) === 0 ? "< 1e-300" : mcpca.number(value(row), 2)),
  });

  // columns: [{title, value(row), text(row)?, name?, length?}]; rows: any values. `value` is what is sorted and saved,
  // `text` what is shown; a `name` column holds names of the user's. It can be copied and saved without being opened.
  mcpca.table = ({ caption, file, columns, rows, open = false, click = null, marked = () => false }) => {
    let all = rows.length <= FIRST + 2;
    let sorted = rows,
      by = null,
      down = true;
    const body = el("tbody");
    const more = el("button", { type: "button", class: "more small", click: () => ((all = !all), fill()) });

    const cell = (column, row, first) => {
      const value = column.value(row);
      const text = column.text ? column.text(row) : typeof value === "number" ? mcpca.number(value) : value;
      const inside = column.name ? mcpca.nameNode(text ?? "", column.length) : (text ?? "not known");
      const number = typeof value === "number" || (value === null && !column.name);
      return el(first ? "th" : "td", { class: number ? "number" : null, scope: first ? "row" : null }, inside);
    };
    const fill = () => {
      body.replaceChildren(
        ...(all ? sorted : sorted.slice(0, FIRST)).map((row) => {
          const line = el("tr", {}, ...columns.map((column, c) => cell(column, row, c === 0)));
          if (marked(row)) line.classList.add("marked");
          if (click) {
            line.classList.add("clickable");
            line.firstChild.replaceChildren(
              el("button", { type: "button", class: "link", click: () => click(row) }, ...line.firstChild.childNodes),
            );
          }
          return line;
        }),
      );
      more.hidden = rows.length <= FIRST + 2;
      more.textContent = all ? "Show fewer" : `Show all ${mcpca.count(rows.length)}`;
    };
    const sortBy = (c, head) => {
      down = by === c ? !down : typeof columns[c].value(rows[0]) === "number";
      by = c;
      const order = mcpca.sortedBy(mcpca.range(rows.length), (i) => columns[c].value(rows[i]));
      sorted = (down ? order : order.reverse()).map((i) => rows[i]);
      for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      fill();
    };
    const heads = columns.map((column, c) => {
      const head = el("th", {
        scope: "col",
        class: rows.length && typeof column.value(rows[0]) === "number" ? "number" : null,
      });
      head.append(el("button", { type: "button", class: "sort", click: () => sortBy(c, head) }, column.title));
      return head;
    });
    const lines = (write, separator) =>
      [
        columns.map((column) => write(column.title)),
        ...sorted.map((row) => columns.map((col) => write(col.value(row)))),
      ]
        .map((line) => line.join(separator))
        .join("\r\n") + "\r\n";
    fill();
    const button = (text, label, act) =>
      el("button", { type: "button", class: "small", "aria-label": label, click: act }, text);
    return el(
      "div",
      { class: "table" },
      el(
        "div",
        { class: "table-tools" },
        button("Copy", `Copy: ${caption}`, () => mcpca.copy(lines(tsv, "\t"))),
        button("Save CSV", `Save CSV: ${caption}`, () => mcpca.save(file, lines(csv, ","))),
      ),
      el(
        "details",
        { open },
        el("summary", {}, caption),
        el(
          "div",
          { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
          el("table", {}, el("caption", { class: "unseen" }, caption), el("thead", {}, el("tr", {}, ...heads)), body),
        ),
        more,
      ),
    );
  };
}
