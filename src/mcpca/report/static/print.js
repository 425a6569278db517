// Paper: a chosen set of sections and of MCPCs, on white, with all rows of the tables that are open.
{
  const { el, byId, data } = mcpca;
  const sections = [...document.querySelectorAll("main section")].map((section) => section.id);
  const chosen = { left: new Set(), mcpcs: null, tables: false }; // mcpcs: null for the one that is chosen on the page
  const mcpcs = () => chosen.mcpcs ?? [mcpca.chosen.mcpc];
  mcpca.print = { chosen };

  mcpca.address.register("print-without", {
    read: (text) => (chosen.left = new Set((text ?? "").split(".").filter((id) => sections.includes(id)))),
    write: () => [...chosen.left].join(".") || null,
  });
  mcpca.address.register("print-mcpcs", {
    read: (text) => {
      const given = (text ?? "").split(".").map((at) => Number(at) - 1);
      const known = [...new Set(given)].filter((j) => Number.isInteger(j) && j >= 0 && j < mcpca.r);
      chosen.mcpcs = known.length ? known.sort((a, b) => a - b) : null;
    },
    write: () => chosen.mcpcs?.map((j) => j + 1).join(".") ?? null,
  });
  mcpca.address.register("print-tables", {
    read: (text) => (chosen.tables = text === "all"),
    write: () => (chosen.tables ? "all" : null),
  });

  // The dialog -------------------------------------------------------------------------------------------------------
  const dialog = el("dialog", { id: "print-dialog", "aria-labelledby": "print-title" });
  const check = (value, on, change, ...text) => {
    const box = el("input", { type: "checkbox", value, change: (event) => change(event.target.checked) });
    box.checked = on;
    return el("label", {}, box, " ", ...text);
  };
  const fill = () => {
    const title = (id) => document.querySelector(`nav a[href="#${id}"]`)?.textContent ?? id;
    const toggle = (id) => (on) => {
      if (on) chosen.left.delete(id);
      else chosen.left.add(id);
    };
    const pick = (j) => (on) => {
      const now = new Set(mcpcs());
      if (on) now.add(j);
      else now.delete(j);
      take([...now].sort((a, b) => a - b));
    };
    const take = (list) => (chosen.mcpcs = list.length === 1 && list[0] === mcpca.chosen.mcpc ? null : list);
    const button = (text, act, more = {}) => el("button", { type: "button", click: act, ...more }, text);
    const all = (list) => () => {
      take(list());
      fill();
    };
    dialog.replaceChildren(
      el("h2", { id: "print-title" }, "Print"),
      el(
        "fieldset",
        { id: "print-sections" },
        el("legend", {}, "Sections"),
        ...sections.map((id) => check(id, !chosen.left.has(id), toggle(id), title(id))),
      ),
      el(
        "fieldset",
        { id: "print-mcpcs" },
        el("legend", {}, "MCPCs, each with its features, loadings and scores"),
        el(
          "div",
          { class: "print-list" },
          ...mcpca.range(mcpca.r).map((j) => check(j, mcpcs().includes(j), pick(j), mcpca.nameNode(data.mcpcs[j]))),
        ),
        button(
          "The chosen one",
          all(() => [mcpca.chosen.mcpc]),
          { class: "small" },
        ),
        " ",
        button(
          "Those in the map",
          all(() => [...mcpca.map.view.columns].sort((a, b) => a - b)),
          { class: "small" },
        ),
        " ",
        button(
          "All",
          all(() => mcpca.range(mcpca.r)),
          { class: "small" },
        ),
      ),
      el(
        "fieldset",
        {},
        el("legend", {}, "Tables"),
        check("all", chosen.tables, (on) => (chosen.tables = on), "all, not only those that are open"),
      ),
      el(
        "div",
        { class: "names-tools" },
        button(
          "Print",
          () => {
            dialog.close();
            mcpca.address.push();
            window.print();
          },
          { id: "print-now" },
        ),
        button("Close", () => {
          dialog.close();
          mcpca.address.push();
        }),
      ),
    );
  };

  // Before and after -------------------------------------------------------------------------------------------------
  // A copy of the section of an MCPC as it is painted. Pictures refer to their own pieces by ids, which must differ.
  const copy = (section, j) => {
    const node = section.cloneNode(true);
    for (const part of [node, ...node.querySelectorAll("[id]")]) if (!part.closest("svg")) part.removeAttribute("id");
    for (const svg of node.querySelectorAll("svg")) {
      for (const part of svg.querySelectorAll("[id]")) part.id = `copy-${j}-${part.id}`;
      for (const part of svg.querySelectorAll("*"))
        for (const { name, value } of [...part.attributes])
          if (/url\(['"]?#|^#/.test(value) && /clip-path|href|style|fill|mask|stroke/.test(name))
            part.setAttribute(
              name,
              value.replace(/(url\(['"]?)#|^#/, (_, url) => `${url ?? ""}#copy-${j}-`),
            );
    }
    node.classList.add("printed-mcpc");
    node.dataset.mcpc = j;
    return node;
  };
  let undo = [];
  const refill = () => {
    for (const table of document.querySelectorAll(".table")) table.dispatchEvent(new Event("refill"));
  };
  const before = () => {
    if (mcpca.printing) return;
    const dark = mcpca.dark();
    mcpca.printing = true;
    for (const id of sections) byId(id).classList.toggle("not-printed", chosen.left.has(id));
    const section = byId("mcpc"),
      list = mcpcs(),
      single = list.length === 1 && list[0] === mcpca.chosen.mcpc;
    const on = mcpca.chosen.mcpc;
    mcpca.setTheme(false); // paper is white
    const openAll = () => {
      if (chosen.tables)
        for (const details of document.querySelectorAll(".table details:not([open])")) {
          details.open = true;
          details.dataset.opened = "";
        }
    };
    openAll();
    refill();
    mcpca.paintStale(true);
    undo.push(() => {
      for (const details of document.querySelectorAll("[data-opened]")) {
        details.open = false;
        delete details.dataset.opened;
      }
      mcpca.printing = false;
      refill();
      mcpca.setTheme(dark);
    });
    if (single || chosen.left.has("mcpc")) return;
    const copies = list.map((j) => {
      mcpca.chosen.mcpc = j;
      mcpca.mcpc.show();
      openAll();
      mcpca.paintStale(true);
      return copy(section, j);
    });
    section.after(...copies);
    section.classList.add("not-printed");
    mcpca.chosen.mcpc = on;
    mcpca.mcpc.show();
    undo.push(() => copies.forEach((node) => node.remove()));
  };
  const after = () => {
    for (const act of undo.reverse()) act();
    undo = [];
    for (const id of sections) byId(id).classList.remove("not-printed");
  };

  mcpca.print.begin = () => {
    document.body.append(dialog);
    byId("print").addEventListener("click", () => {
      fill();
      dialog.showModal();
    });
    window.addEventListener("beforeprint", before);
    window.addEventListener("afterprint", after);
  };
}
