// What is chosen, filtered and named, kept in the address: a link leads to it, and Back restores it.
// A part of the page keeps its state by one call of `register`, or of `control` for a field of a form.
{
  const { byId } = mcpca;
  const LATER = 150; // milliseconds from typing to the address: browsers refuse hundreds of changes in a few seconds
  const parts = new Map(); // key -> {read, write, show}
  let loaded = false,
    reading = false,
    waiting = null, // {text, timer} of what was typed last
    inHistory = "", // the address that was read or written last
    settle = null,
    showAll = null;

  const now = () => {
    const text = new URLSearchParams();
    for (const [key, part] of parts) {
      const value = part.write();
      if (value !== null && value !== undefined) text.set(key, value);
    }
    return `#${text}`;
  };
  const write = (text, push) => {
    if (waiting) clearTimeout(waiting.timer);
    waiting = null;
    inHistory = text;
    try {
      if (push) history.pushState({ mcpca: true }, "", text);
      else history.replaceState({ mcpca: true }, "", text === "" ? undefined : text);
    } catch {
      // A viewer without addresses, as in some mail programs: everything works but links and Back.
    }
  };
  // What was typed belongs to the entry before, to which Back leads.
  const flush = () => {
    if (waiting) write(waiting.text, false);
  };

  // Each part takes its value, or null where the address has none: the state that the page begins with.
  const readOne = (part, value) => {
    try {
      part.read(value);
    } catch {
      part.read(null); // a link that is broken is not to break the page
    }
  };
  const load = () => {
    if (waiting) clearTimeout(waiting.timer);
    waiting = null;
    inHistory = location.hash;
    const given = new URLSearchParams(location.hash.slice(1));
    // What the reader wrote is not undone by Back, nor by a link that has nothing of the kind.
    const own = loaded && history.state?.mcpca === true;
    const stays = (key, part) => part.lasting && loaded && (own || !given.has(key));
    reading = true;
    for (const [key, part] of parts) if (!stays(key, part)) readOne(part, given.get(key));
    settle();
    for (const part of parts.values()) part.show?.();
    reading = false;
    loaded = true;
    const lasts = [...parts.values()].some((part) => part.lasting && part.write() !== null);
    write(lasts ? now() : inHistory, false); // so that the entry is known to be one of this page
    showAll();
  };

  mcpca.address = {
    // read(text or null) sets the state, write() returns it, or null for the one that the page begins with; show(),
    // where there is one, is called when all parts have been read. What `read` cannot use it takes for null. Parts that
    // are `lasting` (names, notes) are read from links only, and stay when the reader goes back.
    register: (key, part) => {
      parts.set(key, part);
      if (!loaded) return;
      const given = new URLSearchParams(location.hash.slice(1));
      if (!given.has(key)) return;
      reading = true;
      readOne(part, given.get(key));
      reading = false;
      part.show?.();
    },
    // After a choice: a new entry of the history, so that Back undoes it.
    push: () => {
      if (!loaded || reading) return;
      flush();
      const text = now();
      if (text !== inHistory) write(text, true);
    },
    // While something is typed or slid: the same entry.
    replace: () => {
      if (!loaded || reading) return;
      if (waiting) clearTimeout(waiting.timer);
      waiting = { text: now(), timer: setTimeout(flush, LATER) };
    },
    // Once, when the parts have registered: read the address. `settling` is called when all have been read, then `show`
    // of the parts, then `showing`; and so again for every entry of the history.
    begin: (settling, showing) => {
      [settle, showAll] = [settling, showing];
      load();
    },
    reading: () => reading, // while fields are filled in from the address, not by the reader
    text: now, // of what is shown now
    current: () => inHistory,
  };

  // A select, a search field, a slider or a checkbox, by its id, which is its key: its value is the state, and its own
  // listeners do the rest. Call it when the field has its options and its first value. Choosing pushes, typing
  // and sliding replace.
  mcpca.address.control = (id) => {
    const field = byId(id),
      checkbox = field.type === "checkbox";
    const get = () => (checkbox ? (field.checked ? "yes" : "no") : field.value),
      first = get();
    const usable = (text) => {
      if (checkbox) return text === "yes" || text === "no";
      if (field.tagName === "SELECT") return [...field.options].some((o) => o.value === text && !o.disabled);
      if (field.type === "range") return text.trim() !== "" && Number(text) >= field.min && Number(text) <= field.max;
      return text.length <= 1000;
    };
    const read = (text) => {
      const value = text !== null && usable(text) ? text : first;
      if (value === get()) return;
      if (checkbox) field.checked = value === "yes";
      else field.value = value;
      for (const type of ["input", "change"]) field.dispatchEvent(new Event(type, { bubbles: true }));
    };
    const chosen = checkbox || field.tagName === "SELECT";
    field.addEventListener(chosen ? "change" : "input", chosen ? mcpca.address.push : mcpca.address.replace);
    mcpca.address.register(id, { read, write: () => (get() === first ? null : get()) });
  };

  // Back, Forward, or another link to this file.
  const moved = () => {
    if (loaded && location.hash !== inHistory) load();
  };
  window.addEventListener("popstate", moved);
  window.addEventListener("hashchange", moved);
  window.addEventListener("pagehide", flush);
}
