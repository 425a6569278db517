// Names and notes that the reader gives to MCPCs. A name stands behind the MCPC's own on the whole page, in names of files
// and in saved tables; both are kept in the address, and can be saved as a file and read from one.
{
  const { el, data, byId } = mcpca;
  const NAME = 30, // letters of a name: with the MCPC's own it fits wherever a name is shown
    NOTE = 400;
  const MOST = 4000; // letters of the address for all of them: mail programs cut longer links
  const SOON = 200; // milliseconds from typing to the page
  const own = [...data.mcpcs];
  const all = own.map(() => ({ name: "", note: "" }));
  const letters = (text, most) => [...text].slice(0, most).join("");
  const clean = {
    name: (text) => letters(text.replace(/[\r\n\t]+/g, " "), NAME),
    note: (text) => letters(text.replace(/\r\n?/g, "\n"), NOTE),
  };

  const set = (j, what) => {
    for (const [key, text] of Object.entries(what)) all[j][key] = clean[key](text);
    const name = all[j].name.trim();
    data.mcpcs[j] = name === "" ? own[j] : `${own[j]}: ${name}`;
    mcpca.names.longest = Math.max(...all.map((entry) => [...entry.name.trim()].length));
  };

  // In the address: "3.T-cell exhaustion*5.Cycling", numbers counted from 1.
  const escaped = (text) => text.replace(/[%*]/g, (c) => (c === "%" ? "%25" : "%2A"));
  const unescaped = (text) => text.replace(/%(25|2A)/g, (_, code) => (code === "25" ? "%" : "*"));
  const length = (text) => new URLSearchParams({ n: text }).toString().length;
  let outside = 0; // notes that the address has no room for
  const entries = (key) =>
    all.map((entry, j) => (entry[key].trim() === "" ? "" : `${j + 1}.${escaped(entry[key].trim())}`)).filter(Boolean);
  const inAddress = () => {
    const kept = { name: [], note: [] };
    let room = MOST;
    outside = 0;
    for (const key of ["name", "note"])
      for (const text of entries(key)) {
        room -= length(`${text}*`);
        if (room >= 0) kept[key].push(text);
        else {
          room += length(`${text}*`);
          outside++;
        }
      }
    return kept;
  };
  for (const [key, place] of [
    ["names", "name"],
    ["notes", "note"],
  ])
    mcpca.address.register(key, {
      lasting: true,
      read: (text) => {
        const given = new Map(
          (text ?? "").split("*").map((entry) => {
            const at = entry.indexOf(".");
            return [Number(entry.slice(0, at)) - 1, unescaped(entry.slice(at + 1))];
          }),
        );
        own.forEach((_, j) => set(j, { [place]: given.get(j) ?? "" }));
      },
      show: () => {
        if (data.mcpcs.join("\n") !== labels) others();
      },
      write: () => inAddress()[place].join("*") || null,
    });

  // The page with other names. Tables and charts of a section are made anew by its own functions.
  const relabel = () => {
    const select = byId("MCPC-select");
    if (select) [...select.options].forEach((option) => (option.textContent = mcpca.mcpcName(Number(option.value))));
  };
  const refresh = () => {
    mcpca.mcpc.show();
    mcpca.context.show();
    mcpca.features.show();
    others();
  };
  let labels = own.join("\n"); // that the page shows
  const others = () => {
    labels = data.mcpcs.join("\n");
    relabel();
    mcpca.map.refresh();
    byId("map-table").dispatchEvent(new Event("toggle"));
    for (const table of document.querySelectorAll(".table")) table.dispatchEvent(new Event("refill"));
    document.dispatchEvent(new Event("renamed"));
  };

  // The fields, in the section of the MCPC ----------------------------------------------------------------------------
  let later = null,
    of = null; // the MCPC whose fields are shown
  const typed = (key) => (event) => {
    set(of, { [key]: event.target.value });
    mcpca.address.replace();
    tell();
    clearTimeout(later);
    later = setTimeout(refresh, SOON);
  };
  const name = el("input", {
    type: "text",
    id: "mcpc-name",
    maxlength: NAME,
    autocomplete: "off",
    input: typed("name"),
  });
  const note = el("textarea", { id: "mcpc-note", maxlength: NOTE, rows: 3, input: typed("note") });
  const full = el("p", { id: "names-full", class: "finding warning", role: "status" });
  const shown = el("p", { id: "note", class: "note" });
  const tell = () => {
    inAddress();
    full.hidden = outside === 0;
    full.textContent =
      `The address has room for ${mcpca.count(MOST)} letters: ${outside === 1 ? "1 of the" : mcpca.count(outside)} names or ` +
      `notes ${outside === 1 ? "is" : "are"} not in it. Save the names as a file to keep all.`;
  };

  const content = () => ({
    report: data.title,
    mcpcs: all
      .map((entry, j) => ({ mcpc: j + 1, name: entry.name.trim(), note: entry.note.trim() }))
      .filter((entry) => entry.name !== "" || entry.note !== ""),
  });
  const save = () => {
    const text = `${JSON.stringify(content(), null, 2)}\n`;
    mcpca.saveBlob(mcpca.fileName(["names"], "json"), new Blob([text], { type: "application/json" }));
  };
  // Names of a file replace those of the same MCPCs.
  const take = (text) => {
    let given;
    try {
      given = JSON.parse(text).mcpcs;
    } catch {
      given = null;
    }
    if (!Array.isArray(given))
      return mcpca.announce(said("This is no file of names: it has no list \u201cmcpcs\u201d."));
    let n = 0;
    for (const entry of given) {
      const j = Number(entry?.mcpc) - 1;
      if (!(j in all)) continue;
      const text = (value) => (typeof value === "string" ? value : "");
      set(j, { name: text(entry.name), note: text(entry.note) });
      n++;
    }
    mcpca.address.push();
    tell();
    refresh();
    const left = given.length - n;
    return mcpca.announce(
      said(`${mcpca.many(n, "MCPC")} named${left ? `; ${mcpca.count(left)} of the file are not in this report` : ""}.`),
    );
  };
  const result = el("span", { id: "names-read", class: "muted" });
  const said = (text) => (result.textContent = text);
  const file = el("input", {
    type: "file",
    id: "names-file",
    class: "unseen",
    accept: ".json,application/json",
    "aria-label": "File of names",
    tabindex: "-1",
    change: async () => {
      if (file.files[0]) take(await file.files[0].text());
      file.value = "";
    },
  });
  const button = (text, act) => el("button", { type: "button", class: "small", click: act }, text);
  const fields = el(
    "details",
    { id: "naming", class: "naming" },
    el("summary", {}, "Name it, write a note"),
    el(
      "div",
      { class: "controls" },
      el("label", {}, `Name (up to ${NAME} letters) `, name),
      el("label", {}, `Note (up to ${NOTE} letters) `, note),
    ),
    el(
      "div",
      { class: "names-tools" },
      button("Save names", save),
      button("Load names", () => file.click()),
      file,
      result,
    ),
    el(
      "p",
      { class: "muted small" },
      `Names and notes of all MCPCs are kept in the address, up to ${mcpca.count(MOST)} letters of it: copy it to keep or `,
      "send them. Nothing is sent anywhere else.",
    ),
    full,
  );

  mcpca.names = {
    longest: 0,
    given: (j) => all[j].name.trim(),
    note: (j) => all[j].note.trim(),
    box: el("div", {}, shown, fields),
    take,
    content,
    show: () => {
      of = mcpca.chosen.mcpc;
      if (document.activeElement !== name) name.value = all[of].name;
      if (document.activeElement !== note) note.value = all[of].note;
      shown.hidden = all[of].note.trim() === "";
      shown.textContent = mcpca.names.note(of);
      tell();
    },
  };
}
