// What is chosen, where that is kept, and the beginning.
{
  const { el, data, byId } = mcpca;

  mcpca.printing = false;
  mcpca.PAPER = 680; // pixels across a page
  mcpca.dark = () => document.documentElement.dataset.theme === "dark";
  mcpca.chosen = { mcpc: 0, context: 0, other: Math.min(1, mcpca.k - 1) };

  mcpca.backToMap = () => el("a", { class: "to-map", href: "#map" }, "Map");
  mcpca.contextLink = (i) =>
    el(
      "button",
      { type: "button", class: "link", click: () => mcpca.choose({ context: i }, "context") },
      mcpca.nameNode(data.contexts[i]),
    );

  // The address keeps what is chosen, by number, counted from 1.
  const KEYS = { mcpc: mcpca.r, context: mcpca.k, other: mcpca.k };
  const FIRST = { ...mcpca.chosen };
  for (const [key, n] of Object.entries(KEYS)) {
    mcpca.address.register(key, {
      read: (text) => {
        const value = Number(text);
        mcpca.chosen[key] = Number.isInteger(value) && value >= 1 && value <= n ? value - 1 : FIRST[key];
      },
      write: () => String(mcpca.chosen[key] + 1),
    });
  }
  // Fields of the map that are kept too, by their ids.
  const FIELDS = ["find-context", "find-mcpc", "row-order", "column-order", "scale", "least", "rows-height"];

  const goTo = (id) => {
    const section = byId(id);
    section.scrollIntoView({ behavior: "instant", block: "start" });
    section.focus({ preventScroll: true });
  };
  mcpca.goTo = goTo;

  // Two contexts are compared, so they differ.
  const tellApart = (before) => {
    if (mcpca.chosen.other !== mcpca.chosen.context || mcpca.k === 1) return;
    mcpca.chosen.other = before !== mcpca.chosen.context ? before : (before + 1) % mcpca.k;
  };
  const show = () => {
    mcpca.mcpc.show();
    mcpca.context.show();
    mcpca.features.show();
    mcpca.map.choose();
  };

  // Choose an MCPC, a context or another context to compare with; then go to a section, if told so.
  mcpca.choose = (what, section = null) => {
    const before = mcpca.chosen.context;
    Object.assign(mcpca.chosen, what);
    tellApart(before);
    if ("mcpc" in what && "context" in what) mcpca.mcpc.showRowsOf(what.context); // a cell of the map
    mcpca.address.push();
    show();
    if (section) goTo(section);
    mcpca.announce(`Chosen: ${mcpca.mcpcName(mcpca.chosen.mcpc)}; context ${mcpca.contextName(mcpca.chosen.context)}.`);
  };

  const setTheme = (dark) => {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    byId("theme").setAttribute("aria-pressed", String(dark));
    mcpca.metadata.refresh();
    mcpca.map.refresh();
    mcpca.repaint();
  };
  mcpca.setTheme = setTheme;
  // The system's, where the reader has not chosen.
  const systemIsDark = () => matchMedia("(prefers-color-scheme: dark)").matches;
  mcpca.address.register("theme", {
    read: (text) => {
      const dark = text === "dark" || (text !== "light" && systemIsDark());
      if (dark !== mcpca.dark()) setTheme(dark);
    },
    write: () => (mcpca.printing || mcpca.dark() === systemIsDark() ? null : mcpca.dark() ? "dark" : "light"),
  });

  // Before Plotly is read: the map and all words.
  const begin = () => {
    document.documentElement.dataset.theme = systemIsDark() ? "dark" : "light";
    byId("theme").setAttribute("aria-pressed", String(mcpca.dark()));
    const rows = data.ofContexts.rows;
    const sum = rows ? rows.reduce((a, b) => a + b, 0) : 0;
    byId("summary").textContent =
      `${mcpca.many(mcpca.k, "context")}, ${mcpca.many(mcpca.r, "MCPC")}, ` +
      mcpca.many(data.features.count, "feature") +
      (rows ? `, ${mcpca.many(sum, "row")}. ` : ". ") +
      (data.rows ? data.rows.words : "");
    mcpca.mcpc.begin();
    mcpca.context.begin();
    mcpca.metadata.begin();
    mcpca.map.begin();
    FIELDS.forEach(mcpca.address.control);
    mcpca.features.begin();
    mcpca.scatter.begin();
    mcpca.rest.begin();
    mcpca.address.begin(() => tellApart(mcpca.chosen.context), show);
    byId("theme").addEventListener("click", () => {
      setTheme(!mcpca.dark());
      mcpca.address.push();
    });
    mcpca.print.begin();
    byId("map-save").append(
      ...mcpca.saveButtons(
        "map",
        async () => mcpca.mapSvg(),
        () => ["map of loadings"],
      ),
    );
    window.addEventListener("resize", () => mcpca.map.refresh());
    document.addEventListener("click", (event) => {
      const link = event.target.closest('a[href^="#"]');
      if (!link) return;
      event.preventDefault(); // the address is for what is chosen
      goTo(link.getAttribute("href").slice(1));
    });
  };

  // Plotly takes a second to read, and longer on a phone: it is text until the map has been seen.
  const readPlotly = () => {
    const text = byId("plotly");
    document.head.append(el("script", {}, text.textContent)); // runs at once; the policy knows its hash
    text.remove();
    mcpca.paintStale();
    performance.mark("charts");
    document.documentElement.dataset.ready = "yes";
  };
  begin();
  performance.mark("map");
  if (document.hidden)
    setTimeout(readPlotly); // frames are not drawn, so none would come
  else requestAnimationFrame(() => setTimeout(readPlotly));
}
