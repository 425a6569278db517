// Two models beside each other: pairs of MCPCs, the loadings and features of one pair, and what else changed.
{
  const { el, data, byId } = mcpca;
  const [A, B] = data.names.map((name) => mcpca.short(name, 60));
  const SHOWN = 30; // contexts and features drawn as bars; the tables have all
  const chosen = { pair: 0 };
  const pairName = (n) => {
    const { first, second } = data.pairs[n];
    return `${mcpca.short(data.ofFirst.mcpcs[first])} and ${mcpca.short(data.mcpcs[second])} (|cos| ${said(n)})`;
  };
  // With enough digits to be on the right side of the threshold.
  const said = (n) => {
    const value = data.pairs[n].cosine;
    for (let digits = 2; digits < 6; digits++) {
      const text = value.toFixed(digits);
      if (Number(text) >= data.threshold === data.pairs[n].returns) return text;
    }
    return String(value);
  };

  const heading = (id, text, ...more) => el("div", { class: "title" }, el("h2", { id: `${id}-title` }, text), ...more);

  // MCPCs: a row each, and all |cos| ---------------------------------------------------------------------------------
  const partner = new Map(data.pairs.map((pair, n) => [pair.first, n]));
  const rowsOfMcpcs = () => {
    const rows = data.ofFirst.mcpcs.map((_, i) => {
      const n = partner.get(i);
      return { first: i, second: n === undefined ? null : data.pairs[n].second, pair: n ?? null };
    });
    const taken = new Set(data.pairs.map((pair) => pair.second));
    data.mcpcs.forEach((_, j) => {
      if (!taken.has(j)) rows.push({ first: null, second: j, pair: null });
    });
    return rows;
  };
  const verdict = (row) =>
    row.pair === null
      ? row.first === null
        ? `only in ${B}`
        : `only in ${A}`
      : data.pairs[row.pair].returns
        ? "comes back"
        : "does not come back";
  const share = (of, at) => (at === null ? null : of.share[at]);
  const mcpcTable = () =>
    mcpca.table({
      caption: "MCPCs of both, paired by direction",
      file: "matched-mcpcs.csv",
      open: true,
      rows: rowsOfMcpcs(),
      click: (row) => (row.pair === null ? mcpca.announce("It has no pair.") : choose(row.pair, true)),
      marked: (row) => row.pair === null || !data.pairs[row.pair].returns,
      columns: [
        { title: A, value: (row) => (row.first === null ? "none" : data.ofFirst.mcpcs[row.first]), name: true },
        { title: B, value: (row) => (row.second === null ? "none" : data.mcpcs[row.second]), name: true },
        {
          title: "|cos|",
          value: (row) => (row.pair === null ? null : data.pairs[row.pair].cosine),
          text: (row) => (row.pair === null ? "no pair" : said(row.pair)),
        },
        { title: "verdict", value: verdict },
        {
          title: `share in ${A}`,
          value: (row) => share(data.ofFirst, row.first),
          text: (row) => (row.first === null ? "none" : mcpca.percent(share(data.ofFirst, row.first))),
        },
        {
          title: `share in ${B}`,
          value: (row) => share(data.ofSecond, row.second),
          text: (row) => (row.second === null ? "none" : mcpca.percent(share(data.ofSecond, row.second))),
        },
      ],
    });
  const cosineTable = () => {
    if (!data.cosines) return el("p", { class: "muted" }, "There are too many MCPCs for a table of all pairs.");
    const isPair = new Set(data.pairs.map((pair) => `${pair.first},${pair.second}`));
    const caption = `|cos| of all pairs: rows are MCPCs of ${A}, columns those of ${B}; pairs are framed`;
    const line = (row, i) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, mcpca.nameNode(data.ofFirst.mcpcs[i], 20)),
        ...row.map((value, j) =>
          el(
            "td",
            {
              class: isPair.has(`${i},${j}`) ? "number paired" : "number",
              style: `background: color-mix(in srgb, var(--data-pale) ${Math.round(100 * value)}%, var(--paper))`,
            },
            value.toFixed(2),
          ),
        ),
      );
    return el(
      "details",
      { open: data.cosines.length * data.mcpcs.length <= 400 },
      el("summary", {}, caption),
      el(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
        el(
          "table",
          { class: "cosines" },
          el("caption", { class: "unseen" }, caption),
          el(
            "thead",
            {},
            el(
              "tr",
              {},
              el("td", {}),
              ...data.mcpcs.map((name) => el("th", { scope: "col" }, mcpca.nameNode(name, 20))),
            ),
          ),
          el("tbody", {}, ...data.cosines.map(line)),
        ),
      ),
    );
  };

  // One pair -----------------------------------------------------------------------------------------------------------
  const SVG = "http://www.w3.org/2000/svg";
  const shape = (tag, attributes) => {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
    return node;
  };
  // Two bars for each row, above one another, on one scale; from 0 in the middle where there are negative values.
  const bars = (id, label, rows) => {
    const most = rows.reduce((m, row) => Math.max(m, Math.abs(row[1]), Math.abs(row[2])), 0) || 1;
    const signed = rows.some((row) => row[1] < 0 || row[2] < 0);
    const zero = signed ? 50 : 0;
    const unit = (signed ? 50 : 100) / most;
    const bar = (value, y, kind) => {
      const width = Math.abs(value) * unit;
      return shape("rect", { class: kind, x: value < 0 ? zero - width : zero, y, width, height: 8 });
    };
    const cells = rows.slice(0, SHOWN).flatMap((row) => {
      const svg = shape("svg", { viewBox: "0 0 100 20", preserveAspectRatio: "none" });
      svg.append(
        bar(row[1], 1, "before"),
        bar(row[2], 11, "after"),
        shape("line", { class: "zero", x1: zero, x2: zero, y1: 0, y2: 20, "vector-effect": "non-scaling-stroke" }),
      );
      return [el("span", { class: "name" }, mcpca.nameNode(row[0], 30)), svg];
    });
    return el("div", { id, class: "bars", role: "img", "aria-label": label }, ...cells);
  };
  const key = () =>
    el(
      "p",
      { class: "key muted" },
      el("span", {}, el("i", { class: "before" }), mcpca.nameNode(A)),
      el("span", {}, el("i", { class: "after" }), mcpca.nameNode(B)),
    );
  const more = (n, what) =>
    n > SHOWN ? el("p", { class: "muted" }, `Drawn are ${SHOWN} of ${mcpca.count(n)} ${what}; the table has all.`) : null;
  const loadingRows = (n) => {
    const { first, second } = data.pairs[n];
    const rows = data.contexts.map((name, i) => [name, data.ofFirst.loadings[i][first], data.loadings[i][second]]);
    return mcpca.sortedBy(mcpca.range(rows.length), (i) => Math.abs(rows[i][2] - rows[i][1])).map((i) => rows[i]);
  };
  const valueColumns = (what) => [
    { title: `${what} in ${A}`, value: (row) => row[1] },
    { title: `${what} in ${B}`, value: (row) => row[2] },
    { title: "difference", value: (row) => Number((row[2] - row[1]).toPrecision(5)) },
  ];
  const fileOf = (n) => `${data.ofFirst.mcpcs[data.pairs[n].first]}-${data.mcpcs[data.pairs[n].second]}`;
  const safe = (text) => text.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60);
  const showPair = () => {
    const n = chosen.pair;
    const pair = data.pairs[n];
    const features = data.features.ofPairs[n];
    const loadings = loadingRows(n);
    const turned =
      pair.sign < 0 ? ` They point in opposite directions, which is a convention: weights of ${B} are turned.` : "";
    byId("pair-content").replaceChildren(
      el(
        "p",
        {},
        `${mcpca.short(data.ofFirst.mcpcs[pair.first])} of ${A} and ${mcpca.short(data.mcpcs[pair.second])} of ${B}: ` +
          `|cos| ${said(n)}, ${pair.returns ? "the same MCPC" : "not the same MCPC"} ` +
          `(${pair.returns ? "at least" : "below"} ${data.threshold}).${turned}`,
      ),
      key(),
      el("h3", {}, "Loadings in common contexts, the largest difference first"),
      ...(loadings.length
        ? [bars("bars-loadings", `Loadings of both in ${mcpca.many(loadings.length, "context")}`, loadings)]
        : [el("p", { class: "muted" }, "The two have no context in common.")]),
      more(loadings.length, "contexts") ?? "",
      mcpca.table({
        caption: "Loadings of this pair",
        file: `loadings-${safe(fileOf(n))}.csv`,
        rows: loadings,
        columns: [{ title: "context", value: (row) => row[0], name: true }, ...valueColumns("loading")],
      }),
      el("h3", {}, "Features with the largest weights in one or the other"),
      bars("bars-features", `Weights of ${mcpca.many(features.length, "feature")} in both`, features),
      mcpca.table({
        caption: "Weights of these features",
        file: `features-${safe(fileOf(n))}.csv`,
        rows: features,
        columns: [{ title: "feature", value: (row) => row[0], name: true }, ...valueColumns("weight")],
      }),
    );
  };
  const goTo = (id) => {
    byId(id).scrollIntoView({ behavior: "instant", block: "start" });
    byId(id).focus({ preventScroll: true });
  };
  let chooser = null;
  const choose = (n, go = false) => {
    chosen.pair = n;
    mcpca.address.push();
    chooser.update();
    showPair();
    if (go) goTo("pair");
    mcpca.announce(`Chosen: ${pairName(n)}.`);
  };
  mcpca.comparison = { choose, chosen };

  // All loadings, and what changed --------------------------------------------------------------------------------------
  const allLoadings = () =>
    data.pairs.flatMap((pair) =>
      data.contexts.map((name, i) => ({
        name,
        first: data.ofFirst.mcpcs[pair.first],
        second: data.mcpcs[pair.second],
        before: data.ofFirst.loadings[i][pair.first],
        after: data.loadings[i][pair.second],
      })),
    );
  const loadingsTable = () => {
    const rows = allLoadings();
    const difference = (row) => Number((row.after - row.before).toPrecision(5));
    const order = mcpca.sortedBy(mcpca.range(rows.length), (i) => Math.abs(difference(rows[i])));
    return mcpca.table({
      caption: "Loadings of all pairs, the largest difference first",
      file: "compared-loadings.csv",
      open: true,
      rows: order.map((i) => rows[i]),
      columns: [
        { title: "context", value: (row) => row.name, name: true },
        { title: A, value: (row) => row.first, name: true },
        { title: B, value: (row) => row.second, name: true },
        { title: `loading in ${A}`, value: (row) => row.before },
        { title: `loading in ${B}`, value: (row) => row.after },
        { title: "difference", value: difference },
      ],
    });
  };
  const aloneTable = (what, file, names, most) => {
    const rows = names.flatMap((list, which) => list.map((name) => ({ name, only: data.names[which] })));
    if (!rows.length) return null;
    return mcpca.table({
      caption: `${what} that only one of the two has${most}`,
      file,
      rows,
      columns: [
        { title: what.toLowerCase(), value: (row) => row.name, name: true },
        { title: "only in", value: (row) => row.only, name: true },
      ],
    });
  };

  const begin = () => {
    byId("summary").textContent =
      `${mcpca.many(data.ofFirst.mcpcs.length, "MCPC")} and ${mcpca.many(data.mcpcs.length, "MCPC")}; ` +
      `${mcpca.many(data.contexts.length, "context")} and ${mcpca.many(data.features.count, "feature")} in common.`;
    byId("mcpcs").append(
      heading("mcpcs", "Which MCPCs come back"),
      el("div", { class: data.good ? "finding good" : "finding" }, ...data.words.map((text) => el("p", {}, mcpca.visible(text)))),
      mcpcTable(),
      cosineTable(),
    );
    chooser = mcpca.chooser(
      "pair",
      data.pairs.map((_, n) => [n, pairName(n)]),
      () => chosen.pair,
      (n) => choose(n),
    );
    byId("pair").append(heading("pair", "One pair", chooser.node), el("div", { id: "pair-content" }));
    byId("loadings").append(
      heading("loadings", "Loadings side by side"),
      el("p", { class: "muted" }, [...new Set(data.which)].map((words) => `Shown are ${words}.`).join(" ")),
      data.contexts.length ? loadingsTable() : el("p", {}, "The two have no context in common."),
    );
    const cut = data.features.alone.some((n, i) => n > data.features.examples[i].length) ? " (the first of them)" : "";
    byId("changes").append(
      heading("changes", "What changed"),
      data.changes.length
        ? mcpca.table({
            caption: "Options, data and versions that differ",
            file: "changes.csv",
            open: true,
            rows: data.changes,
            columns: [
              { title: "what", value: (row) => row.what, name: true },
              { title: A, value: (row) => row.first, name: true, length: 200 },
              { title: B, value: (row) => row.second, name: true, length: 200 },
            ],
          })
        : el("p", {}, "Nothing that is known of the two runs differs."),
      ...data.notes.map((note) => el("p", { class: "muted" }, mcpca.visible(note))),
      aloneTable("Contexts", "contexts-in-one.csv", data.alone, "") ?? "",
      aloneTable("Features", "features-in-one.csv", data.features.examples, cut) ?? "",
    );
    byId("changes").lastElementChild.classList.add("changed");
    const dark = () => document.documentElement.dataset.theme === "dark";
    const setTheme = (on) => {
      document.documentElement.dataset.theme = on ? "dark" : "light";
      byId("theme").setAttribute("aria-pressed", String(on));
    };
    setTheme(matchMedia("(prefers-color-scheme: dark)").matches);
    byId("theme").addEventListener("click", () => setTheme(!dark()));
    byId("print").addEventListener("click", () => window.print());
    let before = false;
    window.addEventListener("beforeprint", () => ((before = dark()), setTheme(false)));
    window.addEventListener("afterprint", () => setTheme(before));
    document.addEventListener("click", (event) => {
      const link = event.target.closest('a[href^="#"]');
      if (!link) return;
      event.preventDefault();
      goTo(link.getAttribute("href").slice(1));
    });
    // By number, counted from 1.
    mcpca.address.register("pair", {
      read: (text) => {
        const n = Number(text);
        chosen.pair = Number.isInteger(n) && n >= 1 && n <= data.pairs.length ? n - 1 : 0;
      },
      write: () => (chosen.pair ? String(chosen.pair + 1) : null),
    });
    mcpca.address.begin(
      () => {},
      () => {
        chooser.update();
        showPair();
      },
    );
    document.documentElement.dataset.ready = "yes";
  };
  begin();
}
