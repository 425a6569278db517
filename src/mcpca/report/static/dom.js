// Elements of the page. Text is always set as text, never as markup.
{
  // el("p", {class: "muted"}, "text", node): attributes, event handlers (functions), children.
  mcpca.el = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (typeof value === "function") node.addEventListener(name, value);
      else node.setAttribute(name, value === true ? "" : String(value));
    }
    node.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return node;
  };
  const { el } = mcpca;
  mcpca.byId = (id) => document.getElementById(id);

  // A name of the user's, isolated from the direction of the text around it.
  mcpca.nameNode = (text, length) => el("bdi", {}, mcpca.short(text, length));

  // The whole of a name that is too long for a heading.
  mcpca.wholeName = (text, length = 80) =>
    mcpca.short(text, length) === mcpca.visible(text)
      ? null
      : el(
          "details",
          { class: "whole-name" },
          el("summary", {}, `Full name (${mcpca.count(text.length)} characters)`),
          el("p", {}, el("bdi", {}, mcpca.visible(text))),
        );

  mcpca.options = (select, entries, chosen) => {
    select.replaceChildren(
      ...entries.map(([value, text]) => el("option", { value, selected: String(value) === String(chosen) }, text)),
    );
    return select;
  };

  mcpca.picker = (id, label, entries, chosen, change) =>
    el(
      "label",
      {},
      `${label} `,
      mcpca.options(el("select", { id, change: (event) => change(event.target.value) }), entries, chosen),
    );

  mcpca.contextEntries = () => mcpca.data.contexts.map((_, i) => [i, mcpca.contextName(i, 60)]);

  // A heading with a select and buttons for the previous and next entry.
  mcpca.chooser = (id, entries, chosen, change) => {
    const step = (by) => change((chosen() + by + entries.length) % entries.length);
    const select = mcpca.options(
      el("select", { id: `${id}-select`, "aria-label": `Choose ${id}`, change: (e) => change(Number(e.target.value)) }),
      entries,
      chosen(),
    );
    const button = (sign, label, by) =>
      el("button", { type: "button", "aria-label": label, click: () => step(by) }, sign);
    const node = el(
      "span",
      { class: "chooser" },
      button("\u2039", `Previous ${id}`, -1),
      select,
      button("\u203a", `Next ${id}`, 1),
    );
    return { node, update: () => (select.value = String(chosen())) };
  };

  mcpca.announce = (text) => (mcpca.byId("live").textContent = text);

  mcpca.copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Where the browser has no clipboard for files: the old way.
      const area = el("textarea", { class: "unseen" });
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    mcpca.announce("Copied.");
  };
}
